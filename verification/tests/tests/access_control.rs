//! What the API server itself refuses, whoever asks: the admission policies and roles of the installation.

pub(crate) mod access_policies;
pub(crate) mod raw_requests;

use anyhow::ensure;
use coppice_plane::{ADMIN, ALICE, BOB, OPERATOR};
use coppice_tests::{Operator, TestCluster, on_own_plane, on_shared_plane};
use raw_requests::{JSON, MERGE, PLAIN, Wire, cron_job, deployment, event, grant_everything};
use serde_json::{Value, json};

type Test = anyhow::Result<()>;

/// Deletes a namespace as the operator's account, with these preconditions.
async fn delete(test_cluster: &TestCluster, name: &str, preconditions: Value) -> anyhow::Result<String> {
    let body = json!({"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": preconditions});
    let uri = format!("/api/v1/namespaces/{name}");
    test_cluster.kubectl_stdin(OPERATOR, &["delete", "--raw", &uri, "-f", "-"], &body.to_string()).await
}

fn refused(answer: &anyhow::Result<String>, sentence: &str) -> bool {
    answer.as_ref().err().is_some_and(|error| error.to_string().contains(sentence))
}

#[test]
fn our_account_cannot_delete_without_preconditions_or_what_is_protected() -> Test {
    on_shared_plane(async |test_cluster, _| {
        for name in ["plain", "guarded-by-name", "labelled", "labelled-no"] {
            test_cluster.namespace(name).await?;
        }
        test_cluster
            .kubectl(ADMIN, &["label", "namespace", "labelled", "coppice.dev/protected=true"])
            .await?;
        // Any value protects.
        test_cluster
            .kubectl(ADMIN, &["label", "namespace", "labelled-no", "coppice.dev/protected=false"])
            .await?;
        let of = async |name: &str| -> anyhow::Result<Value> {
            let object = test_cluster.get("namespace", "", name).await?.unwrap_or_default();
            Ok(
                json!({"uid": object["metadata"]["uid"], "resourceVersion": object["metadata"]["resourceVersion"]}),
            )
        };
        let good = of("plain").await?;
        let without_revision = delete(test_cluster, "plain", json!({"uid": good["uid"]})).await;
        ensure!(refused(&without_revision, "with the uid and the resourceVersion"), "{without_revision:?}");
        let another = json!({"uid": "11111111-2222-3333-4444-555555555555", "resourceVersion": good["resourceVersion"]});
        let wrong = delete(test_cluster, "plain", another).await;
        ensure!(refused(&wrong, "Conflict") || refused(&wrong, "recondition"), "{wrong:?}");
        // A policy with parameters is ignored until the API server has found their kind.
        test_cluster
            .until("the policy of the settings is in force", async || {
                let options = json!({"apiVersion": "v1", "kind": "DeleteOptions", "dryRun": ["All"],
                                     "preconditions": of("guarded-by-name").await.ok()?});
                let args = ["delete", "--raw", "/api/v1/namespaces/guarded-by-name", "-f", "-"];
                let answer = test_cluster.kubectl_stdin(OPERATOR, &args, &options.to_string()).await;
                refused(&answer, "is protected").then_some(())
            })
            .await?;
        for name in ["guarded-by-name", "labelled", "labelled-no", "coppice-system"] {
            let answer = delete(test_cluster, name, of(name).await?).await;
            ensure!(refused(&answer, "is protected"), "{name}: {answer:?}");
        }
        delete(test_cluster, "plain", of("plain").await?).await?;
        Ok(())
    })
}

#[test]
fn nobody_else_writes_status() -> Test {
    on_shared_plane(async |test_cluster, _| {
        test_cluster.namespace("forged").await?;
        test_cluster
            .manager("forged", "m", "{policies: [{name: end, when: {ttl: {after: 9h}}, then: {delete: {}}}]}")
            .await?;
        test_cluster.phase("forged", "m", "Active").await?;
        let forged = r#"{"status":{"firings":7}}"#;
        let patch =
            ["patch", "nsman", "m", "-n", "forged", "--subresource=status", "--type=merge", "-p", forged];
        let answer = test_cluster.kubectl(ADMIN, &patch).await;
        ensure!(refused(&answer, "Only Coppice writes status"), "{answer:?}");
        // Nor of a record: nobody is made to have failed.
        let record = "{apiVersion: coppice.dev/v1alpha1, kind: ManagedNamespace, metadata: {name: coppice, namespace: forged}, spec: {}}";
        test_cluster.apply(record).await?;
        let forged = r#"{"status":{"phase":"Failed"}}"#;
        let patch =
            ["patch", "mns", "coppice", "-n", "forged", "--subresource=status", "--type=merge", "-p", forged];
        let answer = test_cluster.kubectl(ADMIN, &patch).await;
        ensure!(refused(&answer, "Only Coppice writes status"), "{answer:?}");
        Ok(())
    })
}

#[test]
fn a_status_of_another_version_is_not_written() -> Test {
    on_own_plane(async {
        let test_cluster = TestCluster::start_without_pods().await?;
        test_cluster.namespace("newer").await?;
        test_cluster
            .manager("newer", "m", "{policies: [{name: end, when: {ttl: {after: 1s}}, then: {delete: {}}}]}")
            .await?;
        // Written by a later version, as its account: a phase that this one does not know. The schema of this version
        // would not take it, so the schema goes first.
        let crd = "crd/namespacemanagers.coppice.dev";
        let open = r#"[{"op":"remove","path":"/spec/versions/0/schema/openAPIV3Schema/properties/status/properties/phase/enum"}]"#;
        test_cluster.kubectl(ADMIN, &["patch", crd, "--type=json", "-p", open]).await?;
        let record = "{apiVersion: coppice.dev/v1alpha1, kind: ManagedNamespace, metadata: {name: coppice, namespace: newer}, spec: {}}";
        test_cluster.apply(record).await?;
        let crd = "crd/managednamespaces.coppice.dev";
        test_cluster.kubectl(ADMIN, &["patch", crd, "--type=json", "-p", open]).await?;
        let manager = "{apiVersion: coppice.dev/v1alpha1, kind: ClusterNamespaceManager, metadata: {name: ci}, spec: {mode: Enforce, \
                       selector: {names: [newer]}, settle: 1s, ttl: {after: 1s}, policies: [{name: end, when: {phase: {in: \
                       [Stale]}}, then: {delete: {}}}]}}";
        test_cluster.apply(manager).await?;
        let status = r#"{"status":{"phase":"Hibernating","firings":3}}"#;
        let write_to = |kind: &'static str, name: &'static str| {
            ["patch", kind, name, "-n", "newer", "--subresource=status", "--type=merge", "-p", status]
        };
        let (write, write_record) = (write_to("nsman", "m"), write_to("mns", "coppice"));
        test_cluster
            .kubectl(ADMIN, &["delete", "validatingadmissionpolicybinding", "coppice-status"])
            .await?;
        test_cluster
            .until("the status is written", async || test_cluster.kubectl(ADMIN, &write).await.ok())
            .await?;
        test_cluster
            .until("that of the record, too", async || test_cluster.kubectl(ADMIN, &write_record).await.ok())
            .await?;
        let _operator = Operator::start(&test_cluster).await?;
        test_cluster
            .until("an Event says so", async || {
                let events = test_cluster.events("newer", "m", "UnsupportedStatus").await.ok()?;
                let of_record = test_cluster.events("newer", "coppice", "UnsupportedStatus").await.ok()?;
                (!events.is_empty() && !of_record.is_empty()).then_some(())
            })
            .await?;
        let manager = test_cluster.get("nsman", "newer", "m").await?.unwrap_or_default();
        ensure!(
            manager["status"] == json!({"phase": "Hibernating", "firings": 3}),
            "{:#}",
            manager["status"]
        );
        let record = test_cluster.get("mns", "newer", "coppice").await?.unwrap_or_default();
        ensure!(record["status"] == json!({"phase": "Hibernating", "firings": 3}), "{:#}", record["status"]);
        ensure!(test_cluster.namespace_deletes()?.iter().all(|e| e.name != "newer"));
        Ok(())
    })
}

const SETTINGS: &str = "/apis/coppice.dev/v1alpha1/coppiceconfigs/coppice";
const PAUSE: &str = "{apiVersion: coppice.dev/v1alpha1, kind: CoppiceConfig, metadata: {name: coppice}, \
                     spec: {governor: {paused: PAUSED}}}";

/// The Secret that is mounted into the operator's pods is nothing that its account could ask for. Only on a plane on which it has the
/// rights of the installation, and no others: see [`grant_everything`].
async fn credentials_of_channels_are_not_read(test_cluster: &TestCluster, wire: &Wire) -> Test {
    let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "coppice-channels", "namespace": "coppice-system"},
        "stringData": {"slack-token": "xoxb-secret"}});
    test_cluster.admin().await?.create(&secret).await?;
    let secrets = "/api/v1/namespaces/coppice-system/secrets";
    let by_name = "fieldSelector=metadata.name%3Dcoppice-channels";
    for path in [
        format!("{secrets}/coppice-channels"),
        secrets.to_owned(),
        format!("{secrets}?{by_name}"),
        format!("{secrets}?{by_name}&watch=true&timeoutSeconds=1"),
    ] {
        let answer = wire.send("GET", &path, PLAIN, json!({})).await?;
        ensure!(answer.code == 403 && answer.refused("is forbidden"), "{path}: {answer:?}");
    }
    // There is no key yet, since no operator has run.
    let key = wire.send("GET", &format!("{secrets}/coppice-webhook-key"), PLAIN, json!({})).await?;
    ensure!(key.code == 404, "the one Secret that it may read: {key:?}");
    Ok(())
}

#[test]
fn paused_or_with_an_open_breaker_the_api_server_lets_our_account_wake_and_not_destroy() -> Test {
    on_own_plane(async {
        let test_cluster = TestCluster::start_without_pods().await?;
        test_cluster.namespace("n").await?;
        for (name, replicas) in [("runs", 2), ("sleeps", 0)] {
            test_cluster.apply(&deployment("n", name, replicas).to_string()).await?;
            test_cluster.apply(&cron_job("n", name, replicas == 0).to_string()).await?;
        }
        let wire = Wire::new(&test_cluster, OPERATOR)?;
        credentials_of_channels_are_not_read(&test_cluster, &wire).await?;
        let scale = async |name: &str, replicas: u32| {
            let path = format!("/apis/apps/v1/namespaces/n/deployments/{name}/scale");
            wire.send("PATCH", &path, MERGE, json!({"spec": {"replicas": replicas}})).await
        };
        let suspend = async |name: &str, suspend: bool| {
            let path = format!("/apis/batch/v1/namespaces/n/cronjobs/{name}");
            wire.send("PATCH", &path, MERGE, json!({"spec": {"suspend": suspend}})).await
        };
        let delete = async || -> anyhow::Result<raw_requests::WireResponse> {
            let found = test_cluster.get("namespace", "", "n").await?.unwrap_or_default();
            let metadata = &found["metadata"];
            let preconditions =
                json!({"uid": metadata["uid"], "resourceVersion": metadata["resourceVersion"]});
            // In the body: beside one, the API server ignores the query, and would delete.
            let options = json!({"apiVersion": "v1", "kind": "DeleteOptions", "dryRun": ["All"],
                                 "preconditions": preconditions});
            wire.send("DELETE", "/api/v1/namespaces/n", PLAIN, options).await
        };
        test_cluster.apply(&PAUSE.replace("PAUSED", "true")).await?;
        // A policy with parameters is in force some time after it was made; nothing is destroyed until it is.
        test_cluster
            .until("the policy is in force", async || delete().await.ok()?.refused("is paused").then_some(()))
            .await?;
        for answer in [delete().await?, scale("runs", 0).await?, suspend("runs", true).await?] {
            ensure!(answer.refused("is paused"), "{answer:?}");
        }
        for answer in [scale("sleeps", 3).await?, suspend("sleeps", false).await?] {
            ensure!(answer.accepted(), "waking goes on: {answer:?}");
        }
        // Nobody else is bound.
        test_cluster.kubectl(ADMIN, &["scale", "deployment", "sleeps", "-n", "n", "--replicas=0"]).await?;
        test_cluster.apply(&PAUSE.replace("PAUSED", "false")).await?;
        // Nor is the end of the pause in force at once.
        test_cluster
            .until("the pause is over", async || delete().await.ok()?.accepted().then_some(()))
            .await?;

        let breaker =
            json!({"id": "pods-1", "source": "pods", "since": "2026-03-01T12:00:00Z", "message": "m"});
        let mut settings = test_cluster.get("coppiceconfig", "", "coppice").await?.unwrap_or_default();
        settings["status"] = json!({"governor": {"breaker": breaker}});
        let written = wire.send("PUT", &format!("{SETTINGS}/status"), PLAIN, settings).await?;
        ensure!(written.accepted(), "{written:?}");
        test_cluster
            .until("the breaker is seen", async || {
                delete().await.ok()?.refused("The breaker is open").then_some(())
            })
            .await?;
        ensure!(scale("runs", 0).await?.refused("The breaker is open"));
        ensure!(scale("sleeps", 3).await?.accepted(), "waking goes on");
        test_cluster.apply(&PAUSE.replace("paused: PAUSED", "acknowledge: pods-1")).await?;
        test_cluster
            .until("the breaker is closed", async || delete().await.ok()?.accepted().then_some(()))
            .await?;
        for answer in [delete().await?, scale("runs", 0).await?, suspend("runs", true).await?] {
            ensure!(answer.accepted(), "{answer:?}");
        }
        // Settings that are missing stop the operator, not the API server.
        test_cluster.kubectl(ADMIN, &["delete", "coppiceconfig", "coppice"]).await?;
        ensure!(delete().await?.accepted());
        Ok(())
    })
}

#[test]
fn a_stolen_token_changes_nothing_of_a_cronjob_but_suspend() -> Test {
    on_shared_plane(async |test_cluster, _| {
        let wire = grant_everything(test_cluster).await?;
        test_cluster.namespace("cron").await?;
        test_cluster.namespace("cron-protected").await?;
        test_cluster
            .kubectl(ADMIN, &["label", "namespace", "cron-protected", "coppice.dev/protected=yes"])
            .await?;
        for namespace in ["cron", "cron-protected", "kube-system"] {
            test_cluster.apply(&cron_job(namespace, "c", true).to_string()).await?;
        }
        let path = |namespace: &str| format!("/apis/batch/v1/namespaces/{namespace}/cronjobs/c");
        let owner = json!([{"apiVersion": "v1", "kind": "ConfigMap", "name": "x", "uid": "11111111-2222-3333-4444-555555555555"}]);
        let forbidden = [
            json!({"metadata": {"ownerReferences": owner}}),
            json!({"metadata": {"finalizers": ["example.org/never"]}}),
            json!({"metadata": {"labels": {"app": "other"}}}),
            json!({"metadata": {"annotations": {"a": "b"}}}),
            json!({"spec": {"timeZone": "Asia/Tokyo"}}),
            json!({"spec": {"schedule": "* * * * *"}}),
            json!({"spec": {"concurrencyPolicy": "Forbid"}}),
            json!({"spec": {"startingDeadlineSeconds": 1}}),
            json!({"spec": {"successfulJobsHistoryLimit": 0, "suspend": false}}),
            json!({"spec": {"jobTemplate": {"spec": {"template": {"spec": {"activeDeadlineSeconds": 1}}}}}}),
        ];
        for namespace in ["cron", "kube-system"] {
            for change in &forbidden {
                for answer in wire.every_write(&path(namespace), change).await? {
                    ensure!(
                        answer.refused("Coppice changes nothing of a CronJob but spec.suspend"),
                        "{change}: {answer:?}"
                    );
                }
            }
        }
        let removed = json!([{"op": "remove", "path": "/metadata/labels/app"}]);
        let answer = wire.send("PATCH", &path("cron"), JSON, removed).await?;
        ensure!(answer.refused("changes its metadata"), "{answer:?}");
        // The one thing that is left, by every kind of write; where it is protected, only to wake.
        for suspend in [false, true, false] {
            for answer in wire.every_write(&path("cron"), &json!({"spec": {"suspend": suspend}})).await? {
                ensure!(answer.accepted(), "{answer:?}");
            }
        }
        for namespace in ["cron-protected", "kube-system"] {
            for answer in wire.every_write(&path(namespace), &json!({"spec": {"suspend": false}})).await? {
                ensure!(answer.accepted(), "{answer:?}");
            }
            for answer in wire.every_write(&path(namespace), &json!({"spec": {"suspend": true}})).await? {
                ensure!(answer.refused("is protected"), "{answer:?}");
            }
        }
        let all = "/apis/batch/v1/namespaces/cron/cronjobs";
        let status = json!({"status": {"lastScheduleTime": "2020-01-01T00:00:00Z"}});
        for answer in [
            wire.send("POST", all, PLAIN, cron_job("cron", "mine", false)).await?,
            wire.send("DELETE", &path("cron"), PLAIN, json!({})).await?,
            wire.send("DELETE", all, PLAIN, json!({})).await?,
            wire.send("PATCH", &format!("{}/status", path("cron")), MERGE, status).await?,
        ] {
            ensure!(answer.refused("Coppice neither creates nor deletes a CronJob"), "{answer:?}");
        }
        Ok(())
    })
}

#[test]
fn a_stolen_token_scales_to_and_from_zero_only_and_writes_only_what_is_its_own() -> Test {
    on_shared_plane(async |test_cluster, _| {
        let wire = grant_everything(test_cluster).await?;
        test_cluster.namespace("own").await?;
        test_cluster.apply(&deployment("own", "d", 2).to_string()).await?;
        let path = "/apis/apps/v1/namespaces/own/deployments/d";
        let manager = "/apis/coppice.dev/v1alpha1/namespaces/own/namespacemanagers/m";
        let late = "{policies: [{name: end, when: {ttl: {after: 9h}}, then: {delete: {}}}]}";
        test_cluster.manager("own", "m", late).await?;
        let before = [wire.get(path).await?, wire.get(manager).await?];
        let owner = json!([{"apiVersion": "v1", "kind": "ConfigMap", "name": "x", "uid": "11111111-2222-3333-4444-555555555555"}]);
        let metadata =
            json!({"labels": {"x": "y"}, "finalizers": ["example.org/never"], "ownerReferences": owner});
        let scale = async |replicas: u32| {
            let body = json!({"metadata": metadata, "spec": {"replicas": replicas}});
            wire.send("PATCH", &format!("{path}/scale"), MERGE, body).await
        };
        for replicas in [1, 3, 1_000_000] {
            ensure!(scale(replicas).await?.refused("to no other size"), "{replicas}");
        }
        for replicas in [0, 7, 0, 2] {
            ensure!(scale(replicas).await?.accepted(), "{replicas}");
        }
        let body = json!({"metadata": metadata, "spec": {"suspend": true}, "status": {"firings": 7}});
        let answer = wire.send("PATCH", &format!("{manager}/status"), MERGE, body).await?;
        ensure!(answer.accepted(), "{answer:?}");
        // What else stands in such requests is not taken over by the API server.
        for (path, before) in [path, manager].into_iter().zip(before) {
            let after = wire.get(path).await?;
            for field in ["labels", "finalizers", "ownerReferences"] {
                ensure!(
                    after["metadata"][field] == before["metadata"][field],
                    "{field}: {:#}",
                    after["metadata"]
                );
            }
            ensure!(after["spec"] == before["spec"], "{:#}", after["spec"]);
        }
        let secret = |name: &str, kind: &str| {
            let annotations = json!({"kubernetes.io/service-account.name": "coppice"});
            json!({"apiVersion": "v1", "kind": "Secret", "type": kind, "metadata": {"name": name, "annotations": annotations}})
        };
        // The one name that may be read, so that a token that never expires could be had by it.
        let secrets = "/api/v1/namespaces/own/secrets";
        for (name, kind) in
            [("coppice-webhook-key", "kubernetes.io/service-account-token"), ("other", "Opaque")]
        {
            let answer = wire.send("POST", secrets, PLAIN, secret(name, kind)).await?;
            ensure!(answer.refused("Coppice creates no Secret but"), "{name}: {answer:?}");
        }
        ensure!(wire.send("POST", secrets, PLAIN, secret("coppice-webhook-key", "Opaque")).await?.accepted());
        let lease =
            json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": "other"}});
        let answer =
            wire.send("POST", "/apis/coordination.k8s.io/v1/namespaces/own/leases", PLAIN, lease).await?;
        ensure!(answer.refused("Coppice creates no Lease but"), "{answer:?}");
        test_cluster
            .kubectl_stdin(ADMIN, &["create", "-f", "-"], &event("own", "theirs", "kubelet").to_string())
            .await?;
        let events = "/apis/events.k8s.io/v1/namespaces/own/events";
        let forged = json!({"metadata": {"labels": {"x": "y"}}});
        for answer in [
            wire.send("POST", events, PLAIN, event("own", "forged", "kubelet")).await?,
            wire.send("PATCH", &format!("{events}/theirs"), MERGE, forged.clone()).await?,
            wire.send("PATCH", "/api/v1/namespaces/own/events/theirs", MERGE, forged).await?,
        ] {
            ensure!(answer.refused("Coppice writes Events in its own name only"), "{answer:?}");
        }
        ensure!(wire.send("POST", events, PLAIN, event("own", "ours", "coppice")).await?.accepted());
        Ok(())
    })
}

#[test]
fn editors_of_a_namespace_read_managers_and_its_admins_write_them() -> Test {
    on_shared_plane(async |test_cluster, _| {
        test_cluster.namespace("roles").await?;
        for (user, role) in [(ALICE, "edit"), (BOB, "admin")] {
            let bind = ["create", "rolebinding", user, "-n", "roles"];
            let of = [format!("--clusterrole={role}"), format!("--user={user}")];
            test_cluster.kubectl(ADMIN, &[&bind[..], &[&of[0], &of[1]]].concat()).await?;
        }
        let manager = "{apiVersion: coppice.dev/v1alpha1, kind: NamespaceManager, metadata: {name: m, namespace: roles}, \
                       spec: {policies: [{name: end, when: {ttl: {after: 9h}}, then: {delete: {}}}]}}";
        let create =
            async |user: &str| test_cluster.kubectl_stdin(user, &["create", "-f", "-"], manager).await;
        // Kubernetes adds up the roles in the background.
        test_cluster.until("an admin creates a manager", async || create(BOB).await.ok()).await?;
        test_cluster
            .until("an editor reads it", async || {
                test_cluster.kubectl(ALICE, &["get", "nsman", "m", "-n", "roles"]).await.ok()
            })
            .await?;
        test_cluster.kubectl(BOB, &["delete", "nsman", "m", "-n", "roles"]).await?;
        ensure!(refused(&create(ALICE).await, "cannot create resource"), "{:?}", create(ALICE).await);
        let label = "rbac.authorization.k8s.io/aggregate-to-edit=true";
        test_cluster.kubectl(ADMIN, &["label", "clusterrole", "coppice-edit", "--overwrite", label]).await?;
        test_cluster.until("an editor creates a manager", async || create(ALICE).await.ok()).await?;
        Ok(())
    })
}
