//! What a `ClusterNamespaceManager` does, seen from outside: on a real API server, by the real operator.

use anyhow::{Context as _, ensure};
use coppice_plane::ADMIN;
use coppice_tests::{Operator, TestCluster, condition, on_own_plane, on_shared_plane};
use jiff::SignedDuration;
use serde_json::{Value, json};

use super::cli::coppice;
use super::gitops::judged;
use super::lifecycle::effective_delete;

type Test = anyhow::Result<()>;

/// Selects what begins with `cluster-`, without one of them.
const MANAGER: &str = "{apiVersion: coppice.dev/v1alpha1, kind: ClusterNamespaceManager, metadata: {name: ci}, spec: \
                       {selector: {names: ['cluster-*'], exclude: [cluster-other]}, settle: 4s, ttl: {after: 1s}, policies: \
                       [{name: end, when: {phase: {in: [Stale]}}, then: {delete: {notice: 3s}}}]}}";

/// The API server says the time to the second: a date that an operator writes just after its start may be so much too early.
pub(crate) const CLOCK: SignedDuration = SignedDuration::from_secs(1);

/// Waits until the record of a namespace is about its spec, and as described.
pub(crate) async fn record(
    test_cluster: &TestCluster,
    namespace: &str,
    what: &str,
    is: impl Fn(&Value) -> bool,
) -> anyhow::Result<Value> {
    let wanted = async || {
        let record = test_cluster.get("mns", namespace, "coppice").await.ok()??;
        let current = record["status"]["observedGeneration"] == record["metadata"]["generation"];
        (current && is(&record["status"])).then_some(record)
    };
    let found = test_cluster.until(&format!("the record of {namespace} says {what}"), wanted).await;
    let now = test_cluster.get("mns", namespace, "coppice").await;
    found.with_context(|| format!("it is {now:#?}"))
}

/// The same for the reason of what comes next.
pub(crate) async fn waits_for(
    test_cluster: &TestCluster,
    namespace: &str,
    reason: &str,
) -> anyhow::Result<Value> {
    record(test_cluster, namespace, reason, |status| status["next"]["reason"] == reason).await
}

/// Waits until the status of the manager counts so.
async fn counted(
    test_cluster: &TestCluster,
    what: &str,
    is: impl Fn(&Value) -> bool,
) -> anyhow::Result<Value> {
    let wanted = async || {
        let manager = test_cluster.get("cnsman", "", "ci").await.ok()??;
        (condition(&manager, "Ready")["status"] == "True" && is(&manager["status"])).then_some(manager)
    };
    let found = test_cluster.until(&format!("the cluster manager counts {what}"), wanted).await;
    let now = test_cluster.get("cnsman", "", "ci").await;
    found.with_context(|| format!("it is {now:#?}"))
}

/// The words of the row of a table that begins with this one.
fn row<'a>(table: &'a str, first: &str) -> Vec<&'a str> {
    let mut rows = table.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
    rows.find(|words| words.first() == Some(&first)).unwrap_or_default()
}

#[test]
fn observing_shows_what_enforcing_does_after_settle_and_notice() -> Test {
    on_shared_plane(async |test_cluster, _| {
        let uid = test_cluster.namespace("cluster-due").await?;
        let protected = "{apiVersion: v1, kind: Namespace, metadata: {name: cluster-dear, labels: \
                         {coppice.dev/protected: ''}}}";
        test_cluster.apply(protected).await?;
        for name in ["cluster-held", "cluster-other"] {
            test_cluster.namespace(name).await?;
        }
        // Whoever creates a namespace may create its record, too.
        let held = "{apiVersion: coppice.dev/v1alpha1, kind: ManagedNamespace, metadata: {name: coppice, namespace: \
                    cluster-held}, spec: {hold: {until: '2099-01-01T00:00:00Z', reason: debugging}}}";
        test_cluster.apply(held).await?;

        test_cluster.apply(MANAGER).await?;
        for until in ["--for=condition=Accepted", "--for=condition=Ready"] {
            test_cluster.kubectl(ADMIN, &["wait", "cnsman/ci", until, "--timeout=300s"]).await?;
        }
        let is_due = |status: &Value| status["phase"] == "Stale" && status["next"]["reason"] == "Observing";
        let observed = record(test_cluster, "cluster-due", "that it would be deleted", is_due).await?;
        let next = &observed["status"]["next"];
        ensure!(next["action"] == "delete" && next["policy"] == "end" && next["due"].is_string(), "{next:#}");
        waits_for(test_cluster, "cluster-dear", "NamespaceProtected").await?;
        waits_for(test_cluster, "cluster-held", "Held").await?;
        let manager = counted(test_cluster, "what is due", |status| status["enforce"]["due"] == 1).await?;
        let enforce = &manager["status"]["enforce"];
        let due = [&enforce["policies"], &enforce["sample"], &enforce["newlyDue"], &enforce["perHour"]];
        let expected = [json!([{"name": "end", "due": 1}]), json!(["cluster-due"]), json!(0), json!(0)];
        ensure!(due.into_iter().eq(&expected), "{manager:#}");
        let namespaces = json!({"selected": 3, "governed": 3, "recorded": 3});
        ensure!(manager["status"]["namespaces"] == namespaces, "{manager:#}");
        ensure!(test_cluster.get("mns", "cluster-other", "coppice").await?.is_none(), "it is excluded");
        let table = test_cluster.kubectl(ADMIN, &["get", "mns", "-A"]).await?;
        let columns = ["NAMESPACE", "NAME", "PHASE", "OWNER", "EXPIRES", "NEXT", "AGE"];
        ensure!(row(&table, "NAMESPACE") == columns, "{table}");
        let expires = observed["status"]["expiresAt"].as_str().context("it never expires")?;
        let shown = ["cluster-due", "coppice", "Stale", expires, "delete"];
        ensure!(row(&table, "cluster-due").starts_with(&shown), "{table}");
        let ours = |name: &str| name.starts_with("cluster-");
        ensure!(!test_cluster.namespace_deletes()?.iter().any(|e| ours(&e.name)), "it only observes");
        ensure!(observed["status"]["notice"].is_null(), "{observed:#}");

        test_cluster.patch("cnsman", "", "ci", r#"{"spec":{"mode":"Enforce"}}"#).await?;
        test_cluster.deleted("cluster-due", &uid).await?;
        let delete = effective_delete(test_cluster, "cluster-due").await?;
        let audit = test_cluster.plane.audit()?;
        // Other tests switch their own managers here, and the operator writes to their status.
        let switched = audit.iter().rfind(|e| {
            let spec = e.resource == "clusternamespacemanagers" && e.subresource.is_empty();
            e.verb == "patch" && spec && e.name == "ci"
        });
        let waited =
            delete.received.duration_since(switched.context("the switch is not in the audit log")?.received);
        ensure!(
            waited >= SignedDuration::from_secs(7) - CLOCK,
            "deleted {waited} after the switch: settle and notice take 7 s"
        );
        let announced = test_cluster.events("default", "cluster-due", "DeletionAnnounced").await?;
        ensure!(
            announced.iter().any(|note| note.starts_with("ClusterNamespaceManager ci: ")),
            "{announced:?}"
        );

        let decision = delete.user_agent.split_once("(decision ").map(|(_, id)| id.trim_end_matches(')'));
        let decision = decision.context("the DELETE names no decision")?;
        let complete = async || {
            let record = test_cluster.get("delns", "", decision).await.ok()??;
            (record["status"]["phase"] == "Deleted").then_some(record)
        };
        let remains = test_cluster.until("its record says that it is gone", complete).await?;
        let said = ["managerKind", "manager", "policy", "reason"].map(|field| remains["spec"][field].clone());
        ensure!(said == ["ClusterNamespaceManager", "ci", "end", "TtlElapsed"], "{remains:#}");

        counted(test_cluster, "nothing that is due", |status| status["enforce"]["due"] == 0).await?;
        waits_for(test_cluster, "cluster-dear", "NamespaceProtected").await?;
        waits_for(test_cluster, "cluster-held", "Held").await?;
        let deletes = test_cluster.namespace_deletes()?;
        let others = deletes.iter().find(|e| ours(&e.name) && e.name != "cluster-due");
        ensure!(others.is_none(), "{others:?}");
        Ok(())
    })
}

/// The condition `TtlUnderstood` of a record: its status and reason.
fn understood(status: &Value) -> (Value, Value) {
    let said = condition(&json!({"status": status}), "TtlUnderstood");
    (said["status"].clone(), said["reason"].clone())
}

#[test]
fn an_annotation_that_is_newly_named_selects_what_was_there_before_and_gives_it_a_ttl() -> Test {
    on_shared_plane(async |test_cluster, _| {
        let annotate = async |name: &str, annotations: Value| {
            let patch = json!({"metadata": {"annotations": annotations}}).to_string();
            test_cluster.patch("ns", "", name, &patch).await
        };
        let uid = test_cluster.namespace("annotated-ci").await?;
        annotate("annotated-ci", json!({"example.org/ci": "yes"})).await?;
        for name in ["annotated-other", "annotated-later"] {
            test_cluster.namespace(name).await?;
        }
        annotate("annotated-other", json!({"example.org/ci": "no", "example.org/ttl": "1s"})).await?;
        // By name, too: of the namespaces of other tests it is never unknown whether it selects them.
        let manager = "{apiVersion: coppice.dev/v1alpha1, kind: ClusterNamespaceManager, metadata: {name: annotated}, spec: {mode: \
                       Enforce, selector: {names: ['annotated-*'], anyOf: [{annotations: [{key: example.org/ci, value: 'yes'}]}, {names: \
                       [no-such-namespace]}]}, settle: 4s, ttl: {after: 1h, fromAnnotation: example.org/ttl}, policies: [{name: \
                       end, when: {phase: {in: [Stale]}}, then: {delete: {notice: 3s}}}]}}";
        test_cluster.apply(manager).await?;
        let says = |status: &'static str, reason: &'static str| {
            move |of: &Value| understood(of) == (json!(status), json!(reason))
        };
        record(test_cluster, "annotated-ci", "the manager's ttl", says("True", "TtlByManager")).await?;
        // Tests that share the plane have managers of their own.
        let one = json!({"selected": 1, "governed": 1, "recorded": 1});
        let selected = async || {
            let manager = test_cluster.get("cnsman", "", "annotated").await.ok()??;
            (manager["status"]["namespaces"] == one).then_some(manager)
        };
        let manager =
            test_cluster.until("the cluster manager counts the one that was there", selected).await?;
        ensure!(condition(&manager, "Ready")["status"] == "True", "{manager:#}");
        annotate("annotated-later", json!({"example.org/ci": "yes"})).await?;
        record(test_cluster, "annotated-later", "the manager's ttl", says("True", "TtlByManager")).await?;

        annotate("annotated-ci", json!({"example.org/ttl": "2"})).await?;
        let odd =
            record(test_cluster, "annotated-ci", "what is wrong", says("False", "TtlNotUnderstood")).await?;
        let message = condition(&odd, "TtlUnderstood")["message"].as_str().unwrap_or_default().to_owned();
        ensure!(message.contains("\"2\" has no unit: write 2s for seconds"), "{message}");
        waits_for(test_cluster, "annotated-ci", "TtlRunning").await?;

        annotate("annotated-ci", json!({"example.org/ttl": "1s"})).await?;
        test_cluster.deleted("annotated-ci", &uid).await?;
        let delete = effective_delete(test_cluster, "annotated-ci").await?;
        let audit = test_cluster.plane.audit()?;
        let shortened = audit
            .iter()
            .rfind(|e| e.verb == "patch" && e.resource == "namespaces" && e.name == "annotated-ci");
        let waited = delete.received.duration_since(shortened.context("no patch in the audit log")?.received);
        ensure!(
            waited >= SignedDuration::from_secs(7) - CLOCK,
            "deleted {waited} after its ttl was shortened: it settles for 4 s, and notice takes 3 s"
        );

        let deletes = test_cluster.namespace_deletes()?;
        let other = deletes.iter().find(|e| e.name.starts_with("annotated-") && e.name != "annotated-ci");
        ensure!(other.is_none(), "{other:?}");
        ensure!(test_cluster.get("mns", "annotated-other", "coppice").await?.is_none(), "nobody selects it");
        Ok(())
    })
}

/// The message of the condition `Approved` of the cluster manager, once it has this status and reason.
async fn approved(test_cluster: &TestCluster, status: &str, reason: &str) -> anyhow::Result<String> {
    let wanted = async || {
        let manager = test_cluster.get("cnsman", "", "ci").await.ok()??;
        let said = condition(&manager, "Approved");
        let current = said["observedGeneration"] == manager["metadata"]["generation"];
        let is = current && said["status"] == status && said["reason"] == reason;
        is.then(|| said["message"].as_str().unwrap_or_default().to_owned())
    };
    let found =
        test_cluster.until(&format!("the cluster manager is approved: {status} {reason}"), wanted).await;
    let now = test_cluster.get("cnsman", "", "ci").await;
    found.with_context(|| format!("it is {now:#?}"))
}

#[test]
fn what_a_switch_makes_due_beyond_the_hourly_budget_waits_for_approval() -> Test {
    on_own_plane(async {
        let test_cluster = TestCluster::start_without_pods().await?;
        let settings = "{apiVersion: coppice.dev/v1alpha1, kind: CoppiceConfig, metadata: {name: coppice}, spec: \
                        {governor: {perHour: PER_HOUR}}}";
        test_cluster.apply(&settings.replace("PER_HOUR", "2")).await?;
        let _operator = Operator::start(&test_cluster).await?;
        let names = ["cluster-1", "cluster-2"];
        for name in names {
            test_cluster.namespace(name).await?;
        }
        // Namespaces that are two minutes old were there before.
        let clock = test_cluster.namespace("clock").await?;
        let later = "{policies: [{name: end, when: {ttl: {after: 125s}}, then: {delete: {}}}]}";
        test_cluster.manager("clock", "m", later).await?;
        test_cluster.deleted("clock", &clock).await?;
        test_cluster.apply(MANAGER).await?;
        // Of these two steps an hour the deletion of the clock has taken one.
        test_cluster.apply(&settings.replace("PER_HOUR", "1")).await?;

        let said_before = approved(&test_cluster, "False", "ApprovalNeeded").await?;
        let manager =
            counted(&test_cluster, "what is due", |status| status["enforce"]["newlyDue"] == 2).await?;
        let digest = manager["status"]["policyDigest"].as_str().context("it has no digest")?;
        ensure!(manager["status"]["enforce"]["hourlyBudget"] == 1, "{manager:#}");
        ensure!(said_before.contains("namespaces: 2, validUntil: TIME"), "{said_before}");
        more_become_due_than_the_budget_has(&test_cluster).await?;

        test_cluster.patch("cnsman", "", "ci", r#"{"spec":{"mode":"Enforce"}}"#).await?;
        for name in names {
            waits_for(&test_cluster, name, "ApprovalNeeded").await?;
        }
        approved(&test_cluster, "False", "ApprovalNeeded").await?;
        judged(&test_cluster, "ci", ("Suspended", "InProgress")).await?;
        let published = async || {
            let events = test_cluster.events("default", "ci", "ApprovalNeeded").await.ok()?;
            (!events.is_empty()).then_some(())
        };
        test_cluster.until("an Event says that the manager waits for approval", published).await?;
        let approval = |digest: &Value| {
            let approval = json!({"digest": digest, "namespaces": 2, "validUntil": "2099-01-01T00:00:00Z"});
            json!({"spec": {"approval": approval}}).to_string()
        };
        test_cluster.patch("cnsman", "", "ci", &approval(&json!(digest))).await?;
        let said = approved(&test_cluster, "False", "ApprovalNeeded").await?;
        ensure!(said.contains("spec.approval names the digest of another spec"), "{said}");
        ensure!(test_cluster.namespace_deletes()?.iter().all(|delete| delete.name == "clock"));

        let manager = test_cluster.get("cnsman", "", "ci").await?.context("it is gone")?;
        let digest = &manager["status"]["policyDigest"];
        ensure!(digest.as_str().is_some_and(|digest| said_before.contains(digest)), "{said_before}");
        test_cluster.patch("cnsman", "", "ci", &approval(digest)).await?;
        approved(&test_cluster, "True", "ApprovalGiven").await?;
        judged(&test_cluster, "ci", ("Healthy", "Current")).await?;
        // Approved is not more budget: all of it is spent.
        for name in names {
            waits_for(&test_cluster, name, "BudgetSpent").await?;
        }
        let deletes = test_cluster.namespace_deletes()?;
        ensure!(deletes.iter().all(|delete| delete.name == "clock"), "{deletes:?}");
        test_cluster.apply(&settings.replace("PER_HOUR", "100")).await?;
        let gone = async || {
            let namespaces = test_cluster.list("ns", "").await.ok()?;
            let there = |name: &str| namespaces.iter().any(|one| one["metadata"]["name"] == name);
            (!names.into_iter().any(there)).then_some(())
        };
        test_cluster.until("both are deleted", gone).await?;
        budget(&test_cluster, "True", "BudgetSufficient").await.map(drop)
    })
}

/// The message of the condition `BudgetSufficient` of the manager `arrivals`, once it has this status and reason.
async fn budget(test_cluster: &TestCluster, status: &str, reason: &str) -> anyhow::Result<String> {
    let wanted = async || {
        let manager = test_cluster.get("cnsman", "", "arrivals").await.ok()??;
        let said = condition(&manager, "BudgetSufficient");
        let is = said["status"] == status && said["reason"] == reason;
        is.then(|| said["message"].as_str().unwrap_or_default().to_owned())
    };
    let found = test_cluster.until(&format!("the budget of arrivals: {reason}"), wanted).await;
    let now = test_cluster.get("cnsman", "", "arrivals").await;
    found.with_context(|| format!("it is {now:#?}"))
}

/// Where a step an hour is allowed, one namespace of ten minutes is more: that is a rate of six an hour.
async fn more_become_due_than_the_budget_has(test_cluster: &TestCluster) -> Test {
    let manager = "{apiVersion: coppice.dev/v1alpha1, kind: ClusterNamespaceManager, metadata: {name: arrivals}, spec: {mode: Enforce, \
                   selector: {names: ['arrivals-*']}, settle: 1s, ttl: {after: 9m}, policies: [{name: end, when: {phase: {in: \
                   [Stale]}}, then: {delete: {notice: 1s}}}]}}";
    test_cluster.namespace("arrivals-a").await?;
    test_cluster.apply(manager).await?;
    let said = budget(test_cluster, "False", "BudgetBelowArrivals").await?;
    let expected = "6 namespaces become due in an hour by the cluster managers that enforce, and the budget is 1 destructive step: raise \
                    perHour to 6 or more in spec.governor of CoppiceConfig/coppice";
    ensure!(said == expected, "{said}");
    let published = async || {
        let events = test_cluster.events("default", "arrivals", "BudgetBelowArrivals").await.ok()?;
        events.iter().any(|note| note == expected).then_some(())
    };
    test_cluster.until("an Event says that the budget is too small", published).await
}

#[test]
fn a_manager_and_a_cluster_manager_that_are_due_together_decide_and_announce_once() -> Test {
    on_shared_plane(async |test_cluster, _| {
        let uid = test_cluster.namespace("two-sources").await?;
        #[allow(clippy::disallowed_methods, reason = "they are to be due together, during the test")]
        let due = jiff::Timestamp::now() + SignedDuration::from_secs(100);
        let cluster_manager = "{apiVersion: coppice.dev/v1alpha1, kind: ClusterNamespaceManager, metadata: {name: two}, spec: \
                               {mode: Enforce, selector: {names: [two-sources]}, settle: 1s, ttl: {after: 1s}, policies: \
                               [{name: end, when: {phase: {in: [Stale]}}, then: {delete: {notice: 5s}}}]}}";
        let record_spec = format!(
            "{{apiVersion: coppice.dev/v1alpha1, kind: ManagedNamespace, metadata: {{name: coppice, namespace: two-sources}}, \
             spec: {{extendUntil: {{at: '{due:.0}'}}}}}}"
        );
        test_cluster.apply(&record_spec).await?;
        test_cluster.apply(cluster_manager).await?;
        record(test_cluster, "two-sources", "when it ends", |status| status["next"]["due"].is_string())
            .await?;
        let manager = format!(
            "{{policies: [{{name: end, when: {{ttl: {{until: '{due:.0}'}}}}, then: {{delete: {{notice: 5s}}}}}}]}}"
        );
        test_cluster.manager("two-sources", "m", &manager).await?;
        let waits = |m: &Value| m["status"]["next"]["reason"] == "DeletedByAnother";
        let manager =
            test_cluster.manager_until("two-sources", "m", "that the record comes first", waits).await?;
        let next = &manager["status"]["next"];
        ensure!(next["message"].to_string().contains("ClusterNamespaceManager two "), "{next:#}");
        let (code, said, error) = coppice(test_cluster, ADMIN, &["explain", "two-sources"]).await?;
        for part in [
            "\n  Governed:   by ClusterNamespaceManager two (Enforce)",
            "\nNamespaceManager two-sources/m\n",
            "[DeletedByAnother]",
        ] {
            ensure!(code == 0 && said.contains(part), "{part:?} is not in {said}{error}");
        }
        test_cluster.deleted("two-sources", &uid).await?;
        let about = |e: &&coppice_plane::AuditEvent| e.name == "two-sources" && e.succeeded();
        let deletes = test_cluster.namespace_deletes()?;
        ensure!(deletes.iter().filter(about).count() <= 1, "{deletes:?}");
        let announced = test_cluster.events("default", "two-sources", "DeletionAnnounced").await?;
        ensure!(announced.len() == 1, "{announced:?}");
        // One decision, and so one reservation, says in the end what became of the namespace.
        let complete = async || {
            let records = test_cluster.list("delns", "").await.ok()?;
            let about: Vec<_> =
                records.into_iter().filter(|record| record["spec"]["uid"] == uid.as_str()).collect();
            about.iter().all(|record| record["status"]["phase"] == "Deleted").then_some(about)
        };
        let records = test_cluster.until("the records say that it is gone", complete).await?;
        ensure!(records.len() == 1, "{records:#?}");
        Ok(())
    })
}

#[test]
fn workloads_are_scaled_down_once_and_woken_by_their_users() -> Test {
    const SLEEP: &str = "{apiVersion: coppice.dev/v1alpha1, kind: ClusterNamespaceManager, metadata: {name: sleep}, spec: \
                         {mode: Enforce, selector: {names: ['sleep-*']}, settle: 2s, policies: \
                         [{name: sleep, when: {ttl: {after: 1s}}, then: {scaleDown: {}}}]}}";
    on_shared_plane(async |test_cluster, _| {
        test_cluster.namespace("sleep-a").await?;
        let deployment = "{apiVersion: apps/v1, kind: Deployment, metadata: {name: web, namespace: sleep-a}, spec: {replicas: \
                          3, selector: {matchLabels: {a: b}}, template: {metadata: {labels: {a: b}}, spec: {containers: \
                          [{name: c, image: none}]}}}}";
        test_cluster.apply(deployment).await?;
        test_cluster.apply(SLEEP).await?;
        let slept = waits_for(test_cluster, "sleep-a", "Dormant").await?;
        let status = &slept["status"];
        ensure!(status["scaledDown"][0]["replicas"] == 3 && status["firings"] == 1, "{slept:#}");
        ensure!(status["fired"][0]["policy"] == "sleep", "{slept:#}");
        let replicas = async || -> anyhow::Result<Value> {
            let found = test_cluster.get("deployments", "sleep-a", "web").await?;
            Ok(found.context("there is no deployment")?["spec"]["replicas"].clone())
        };
        ensure!(replicas().await? == 0, "it runs");
        // Nobody governs the namespace any more: the record alone knows the replicas, and is kept for that.
        test_cluster.kubectl(ADMIN, &["delete", "cnsman", "sleep"]).await?;
        waits_for(test_cluster, "sleep-a", "NotGoverned").await?;
        let delete = ["delete", "mns", "coppice", "-n", "sleep-a"];
        let refused = test_cluster.kubectl(ADMIN, &delete).await.err().map(|e| e.to_string());
        let sentence =
            "this record alone knows their replicas: wake them first, with `coppice wake NAMESPACE`";
        ensure!(refused.as_ref().is_some_and(|error| error.contains(sentence)), "{refused:?}");
        let (code, said, error) = coppice(test_cluster, ADMIN, &["wake", "sleep-a"]).await?;
        let awake = "namespace/sleep-a awake\n  Deployment/web: 3 replicas again\n";
        ensure!(code == 0 && said == awake, "{said}{error}");
        ensure!(replicas().await? == 3, "it is still scaled down");
        test_cluster.kubectl(ADMIN, &delete).await?;
        Ok(())
    })
}

#[test]
fn what_something_scales_up_again_each_time_is_left_alone_after_three_times() -> Test {
    const SLEEP: &str = "{apiVersion: coppice.dev/v1alpha1, kind: ClusterNamespaceManager, metadata: {name: reverted}, spec: \
                         {mode: Enforce, selector: {names: ['reverted']}, settle: 2s, policies: \
                         [{name: sleep, when: {ttl: {after: 1s}}, then: {scaleDown: {}}}]}}";
    const DEPLOYMENT: &str = "{apiVersion: apps/v1, kind: Deployment, metadata: {name: web, namespace: reverted}, spec: {paused: true, \
                              replicas: 3, selector: {matchLabels: {a: b}}, template: {metadata: {labels: {a: b}}, spec: \
                              {containers: [{name: c, image: none}]}}}}";
    on_shared_plane(async |test_cluster, _| {
        let replicas = async || {
            let found = test_cluster.get("deployments", "reverted", "web").await.ok()??;
            found["spec"]["replicas"].as_i64()
        };
        // After so many firings, of which this came.
        let fired = async |firings: i64, result: &'static str| {
            record(test_cluster, "reverted", result, |status| {
                status["firings"] == firings
                    && status["lastFiring"]["result"] == result
                    && status["intent"].is_null()
            })
            .await
        };
        let rearm = async || {
            let (code, said, error) = coppice(test_cluster, ADMIN, &["rearm", "reverted"]).await?;
            ensure!(code == 0, "{said}{error}");
            Ok(())
        };
        test_cluster.namespace("reverted").await?;
        test_cluster.apply(DEPLOYMENT).await?;
        test_cluster.apply(SLEEP).await?;
        for firing in 1..=3 {
            fired(firing, "ScaledDown").await?;
            ensure!(replicas().await == Some(0), "it runs");
            // As a GitOps tool does.
            let by = "--field-manager=argocd-controller";
            let three = r#"{"spec":{"replicas":3}}"#;
            let patch = ["patch", "deployment", "web", "-n", "reverted", "--type=merge", by, "-p", three];
            test_cluster.kubectl(ADMIN, &patch).await?;
            rearm().await?;
        }
        let left_alone = fired(4, "RevertedTooOften").await?;
        ensure!(replicas().await == Some(3), "it is scaled down a fourth time");
        let by = r#"something has scaled Deployment web (field manager "argocd-controller") up again after each of 3 scale-downs"#;
        let says = |value: &Value| value.as_str().is_some_and(|text| text.contains(by));
        ensure!(says(&left_alone["status"]["lastFiring"]["message"]), "{left_alone:#}");
        let waits = waits_for(test_cluster, "reverted", "RevertedTooOften").await?;
        ensure!(says(&waits["status"]["next"]["message"]), "{waits:#}");
        ensure!(condition(&waits, "Ready")["reason"] == "RevertedTooOften", "{waits:#}");
        let event = async || {
            let events = test_cluster.events("reverted", "coppice", "RevertedTooOften").await.ok()?;
            events.iter().any(|note| note.contains(by)).then_some(())
        };
        test_cluster.until("the Event that names the field manager", event).await?;
        let (code, said, error) = coppice(test_cluster, ADMIN, &["explain", "reverted"]).await?;
        ensure!(code == 0 && said.contains(by), "{said}{error}");

        let (code, said, error) = coppice(test_cluster, ADMIN, &["wake", "reverted"]).await?;
        ensure!(code == 0, "{said}{error}");
        record(test_cluster, "reverted", "nothing that is scaled down", |s| s["scaledDown"].is_null())
            .await?;
        rearm().await?;
        // A firing has a number that no earlier `spec.wake` names.
        fired(6, "ScaledDown").await?;
        ensure!(replicas().await == Some(0), "it is not scaled down again");
        Ok(())
    })
}

#[test]
fn what_became_of_what_an_observing_manager_would_have_deleted_is_counted() -> Test {
    const OBSERVES: &str = "{apiVersion: coppice.dev/v1alpha1, kind: ClusterNamespaceManager, metadata: {name: watches}, spec: \
                            {selector: {names: ['watched-*']}, settle: 1s, ttl: {after: 1s}, policies: \
                            [{name: end, when: {phase: {in: [Stale]}}, then: {delete: {notice: 1s}}}]}}";
    on_shared_plane(async |test_cluster, _| {
        for name in ["extended", "held", "deleted", "left"] {
            test_cluster.namespace(&format!("watched-{name}")).await?;
        }
        test_cluster.apply(OBSERVES).await?;
        let counted = async |what: &str, expected: Value, others: Value| {
            let counts = async || {
                let manager = test_cluster.get("cnsman", "", "watches").await.ok()??;
                let status = &manager["status"];
                let governs = status["namespaces"]["governedBy"] == others;
                (governs && status["observed"]["policies"] == json!([expected])).then_some(())
            };
            let found = test_cluster.until(what, counts).await;
            let now = test_cluster.get("cnsman", "", "watches").await;
            found.with_context(|| format!("it is {now:#?}"))
        };
        let numbers = |[acted, extended, held, deleted, not_governed]: [u32; 5]| {
            json!({
                "name": "end", "wouldHaveActed": acted, "recovered": 0, "extended": extended, "held": held,
                "deletedByOthers": deleted, "notGoverned": not_governed,
            })
        };
        counted("four that would be gone", numbers([4, 0, 0, 0, 0]), Value::Null).await?;
        for args in [["extend", "watched-extended", "--by", "1h"], ["hold", "watched-held", "--for", "1h"]] {
            let (code, said, error) = coppice(test_cluster, ADMIN, &args).await?;
            ensure!(code == 0, "{said}{error}");
        }
        test_cluster.kubectl(ADMIN, &["delete", "namespace", "watched-deleted", "--wait=false"]).await?;
        // Another manager comes first for the last one.
        let first = OBSERVES
            .replace("name: watches", "name: watches-first")
            .replace("{selector: {names: ['watched-*']}", "{priority: 1, selector: {names: [watched-left]}");
        test_cluster.apply(&first).await?;
        let governs = json!([{"name": "watches-first", "namespaces": 1}]);
        counted("what became of all of them", numbers([4, 1, 1, 1, 1]), governs).await?;
        let (code, said, error) = coppice(test_cluster, ADMIN, &["explain", "watched-left"]).await?;
        let lost = "\n  watches selects it, too: watches-first has the higher priority (1 against 0)\n";
        ensure!(code == 0 && said.contains(lost), "{said}{error}");
        let became = record(test_cluster, "watched-held", "that it is held", |status| {
            status["wouldHaveActed"][0]["outcome"] == "Held"
        })
        .await?;
        let noted = &became["status"]["wouldHaveActed"][0];
        ensure!(noted["policy"] == "end" && noted["reason"] == "TtlElapsed", "{became:#}");
        let deletes = test_cluster.namespace_deletes()?;
        ensure!(!deletes.iter().any(|e| e.name.starts_with("watched-")), "it only observes");
        Ok(())
    })
}

#[test]
fn the_owner_of_a_namespace_is_shown_and_counted() -> Test {
    on_shared_plane(async |test_cluster, operator| {
        // No other test on this plane has that owner: namespaces are counted by owner.
        let namespace = "{apiVersion: v1, kind: Namespace, metadata: {name: owned-a, labels: {team: counted-owners}, annotations: \
                         {bench.example.org/owner: R3JhY2UgSG9wcGVyOjpVMDI0QkU3TEg=}}}";
        test_cluster.apply(namespace).await?;
        let manager = "{apiVersion: coppice.dev/v1alpha1, kind: ClusterNamespaceManager, metadata: {name: owned}, spec: {selector: \
                       {names: ['owned-*']}, owner: {annotations: [{key: bench.example.org/owner, format: SKA}], labels: \
                       [team]}}}";
        test_cluster.apply(manager).await?;
        let is = |owner: &'static str| move |status: &Value| status["owner"] == owner;
        record(test_cluster, "owned-a", "who owns it", is("Grace Hopper")).await?;
        let columns = test_cluster.kubectl(ADMIN, &["get", "mns", "-n", "owned-a"]).await?;
        ensure!(columns.contains("OWNER") && columns.contains("Grace Hopper"), "{columns}");
        let (_, list, _) = coppice(test_cluster, ADMIN, &["list", "-n", "owned-a"]).await?;
        ensure!(list.contains("OWNER") && list.contains("Grace Hopper"), "{list}");
        let (_, said, _) = coppice(test_cluster, ADMIN, &["explain", "owned-a"]).await?;
        ensure!(said.contains("\n  Owner:      Grace Hopper\n"), "{said}");
        let counted = async |series: &str, namespaces: f64| {
            let is = async || (operator.metric(series).await.ok()? == Some(namespaces)).then_some(());
            test_cluster.until(&format!("{series} is {namespaces}"), is).await
        };
        let first = "coppice_owner_namespaces{owner=\"Grace Hopper\",phase=\"Ok\"}";
        counted(first, 1.0).await?;
        // What cannot be understood any more spoils nothing else.
        let broken = r#"{"metadata":{"annotations":{"bench.example.org/owner":"nobody"}}}"#;
        test_cluster.patch("namespace", "", "owned-a", broken).await?;
        record(test_cluster, "owned-a", "who else owns it", is("counted-owners")).await?;
        test_cluster.namespace("owned-b").await?;
        let share = async || {
            let manager = test_cluster.get("cnsman", "", "owned").await.ok()??;
            let condition = condition(&manager, "OwnersKnown");
            let says = condition["message"] == "1 of 2 governed namespaces (50 %) does not say who owns them";
            (condition["status"] == "False" && says).then_some(())
        };
        test_cluster.until("the share without an owner is shown", share).await?;
        counted("coppice_owner_namespaces{owner=\"counted-owners\",phase=\"Ok\"}", 1.0).await?;
        counted("coppice_cluster_manager_namespaces{manager=\"owned\",phase=\"Ok\"}", 2.0).await?;
        let left = operator.metric(first).await?;
        ensure!(left.is_none(), "the series of the owner before goes on: {left:?}");
        Ok(())
    })
}
