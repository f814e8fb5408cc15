//! Who may write and delete the record of a namespace: the admission policy `coppice-records` and the roles for people, and
//! the command line with them, on a real API server.

use anyhow::ensure;
use coppice_plane::{ADMIN, ALICE, BOB, VIEWER};
use coppice_tests::{TestCluster, on_shared_plane};
use serde_json::{Value, json};

use super::access_control::raw_requests::{MERGE, PLAIN, Wire, WireResponse, grant_everything};
use super::cli::coppice;

type Test = anyhow::Result<()>;

/// Governs what begins with `rec-`, and only shows it.
const MANAGER: &str = "{apiVersion: coppice.dev/v1alpha1, kind: ClusterNamespaceManager, metadata: {name: records}, spec: \
                       {selector: {names: ['rec-*']}, ttl: {after: 9h}, policies: \
                       [{name: end, when: {phase: {in: [Stale]}}, then: {delete: {}}}]}}";

fn records(namespace: &str) -> String {
    format!("/apis/coppice.dev/v1alpha1/namespaces/{namespace}/managednamespaces")
}

fn record(namespace: &str) -> String {
    format!("{}/coppice", records(namespace))
}

/// Grants a role in a namespace to a user, and waits until that is in force for records.
pub(super) async fn grant(
    test_cluster: &TestCluster,
    namespace: &str,
    user: &str,
    role: &str,
) -> anyhow::Result<()> {
    let of = [format!("--clusterrole={role}"), format!("--user={user}")];
    let bind = ["create", "rolebinding", user, "-n", namespace];
    test_cluster.kubectl(ADMIN, &[&bind[..], &[&of[0], &of[1]]].concat()).await?;
    let may = ["auth", "can-i", "patch", "managednamespaces.coppice.dev", "-n", namespace];
    let granted = async || test_cluster.kubectl(user, &may).await.ok();
    test_cluster.until(&format!("{user} may write the record of {namespace}"), granted).await?;
    Ok(())
}

/// Waits until a cluster manager governs the namespace by its record.
async fn governed(test_cluster: &TestCluster, namespace: &str) -> anyhow::Result<Value> {
    test_cluster
        .until(&format!("{namespace} is governed"), async || {
            let record = test_cluster.get("mns", namespace, "coppice").await.ok()??;
            record["status"]["manager"].is_object().then_some(record)
        })
        .await
}

fn hold(by: Option<&str>, until: &str) -> Value {
    signed("hold", json!({"until": format!("{until}-01-01T00:00:00Z")}), by)
}

fn extension(by: Option<&str>) -> Value {
    signed("extendUntil", json!({"at": "2098-01-01T00:00:00Z"}), by)
}

fn signed(part: &str, mut value: Value, by: Option<&str>) -> Value {
    if let Some(by) = by {
        value["by"] = by.into();
    }
    json!({"spec": {part: value}})
}

#[test]
fn a_hold_and_an_extension_carry_the_name_of_whoever_changes_them() -> Test {
    on_shared_plane(async |test_cluster, _| {
        test_cluster.namespace("by-name").await?;
        grant(test_cluster, "by-name", ALICE, "edit").await?;
        grant(test_cluster, "by-name", BOB, "admin").await?;
        let (alice, bob) = (Wire::new(test_cluster, ALICE)?, Wire::new(test_cluster, BOB)?);
        let (all, one) = (records("by-name"), record("by-name"));
        let advice = |part: &str, user: &str| {
            format!(
                "Whoever changes spec.{part} has to write their own user name into it: set spec.{part}.by to \\\"{user}\\\""
            )
        };
        let refused = |answer: &WireResponse, part: &str, user: &str| -> anyhow::Result<()> {
            ensure!(answer.refused(&advice(part, user)), "{part} by {user}: {answer:?}");
            Ok(())
        };
        let create = |spec: Value| {
            let mut record = json!({"apiVersion": "coppice.dev/v1alpha1", "kind": "ManagedNamespace", "metadata": {"name": "coppice"}});
            record["spec"] = spec["spec"].clone();
            record
        };
        refused(&alice.send("POST", &all, PLAIN, create(hold(Some(BOB), "2098"))).await?, "hold", ALICE)?;
        refused(&alice.send("POST", &all, PLAIN, create(extension(Some(BOB)))).await?, "extendUntil", ALICE)?;
        let created = alice.send("POST", &all, PLAIN, create(json!({"spec": {}}))).await?;
        ensure!(created.accepted(), "{created:?}");
        // By every kind of write.
        for by in [None, Some(BOB)] {
            for answer in alice.every_write(&one, &hold(by, "2098")).await? {
                refused(&answer, "hold", ALICE)?;
            }
            for answer in alice.every_write(&one, &extension(by)).await? {
                refused(&answer, "extendUntil", ALICE)?;
            }
        }
        for answer in alice.every_write(&one, &hold(Some(ALICE), "2098")).await? {
            ensure!(answer.accepted(), "{answer:?}");
        }
        // What stands under Alice's name only she changes; Bob may take it over, or away, and change the rest.
        refused(&bob.send("PATCH", &one, MERGE, hold(Some(ALICE), "2097")).await?, "hold", BOB)?;
        let by_alice = json!({"spec": {"hold": {"reason": "hers"}}});
        refused(&bob.send("PATCH", &one, MERGE, by_alice).await?, "hold", BOB)?;
        for change in [extension(Some(BOB)), hold(Some(BOB), "2097"), json!({"spec": {"hold": null}})] {
            let answer = bob.send("PATCH", &one, MERGE, change).await?;
            ensure!(answer.accepted(), "{answer:?}");
        }
        refused(&bob.send("PATCH", &one, MERGE, extension(Some(ALICE))).await?, "extendUntil", BOB)?;
        let labelled = alice.send("PATCH", &one, MERGE, json!({"metadata": {"labels": {"a": "b"}}})).await?;
        ensure!(labelled.accepted(), "what is Bob's is not changed: {labelled:?}");
        let forged = json!({"status": {"firings": 7}});
        let status = alice.send("PATCH", &format!("{one}/status"), MERGE, forged).await?;
        ensure!(status.code == 403, "{status:?}");
        Ok(())
    })
}

#[test]
fn accounts_with_the_verb_restore_what_others_asked_for() -> Test {
    on_shared_plane(async |test_cluster, _| {
        test_cluster.namespace("by-restore").await?;
        grant(test_cluster, "by-restore", VIEWER, "edit").await?;
        let restore = Wire::new(test_cluster, VIEWER)?;
        let one = record("by-restore");
        test_cluster.kubectl_stdin(VIEWER, &["apply", "-f", "-"], &empty("by-restore")).await?;
        let before = restore.send("PATCH", &one, MERGE, hold(Some(ALICE), "2098")).await?;
        ensure!(before.refused("need the verb set-requester on managednamespaces.coppice.dev"), "{before:?}");
        let verb = [
            "create",
            "role",
            "restore",
            "-n",
            "by-restore",
            "--verb=set-requester",
            "--resource=managednamespaces.coppice.dev",
        ];
        // kubectl knows the verbs of Kubernetes only, and warns of others.
        test_cluster.kubectl(ADMIN, &verb).await?;
        let bind =
            ["create", "rolebinding", "restore", "-n", "by-restore", "--role=restore", "--user=viewer"];
        test_cluster.kubectl(ADMIN, &bind).await?;
        test_cluster
            .until("the verb is in force", async || {
                let answer = restore.send("PATCH", &one, MERGE, hold(Some(ALICE), "2098")).await.ok()?;
                answer.accepted().then_some(())
            })
            .await?;
        let unnamed = restore.send("PATCH", &one, MERGE, extension(None)).await?;
        ensure!(unnamed.accepted(), "{unnamed:?}");
        // An administrator of the cluster has every verb.
        let admin =
            Wire::new(test_cluster, ADMIN)?.send("PATCH", &one, MERGE, hold(Some(BOB), "2096")).await?;
        ensure!(admin.accepted(), "{admin:?}");
        Ok(())
    })
}

fn empty(namespace: &str) -> String {
    format!(
        "{{apiVersion: coppice.dev/v1alpha1, kind: ManagedNamespace, metadata: {{name: coppice, namespace: {namespace}}}, spec: {{}}}}"
    )
}

#[test]
fn a_record_is_kept_while_its_namespace_lives_and_is_governed() -> Test {
    on_shared_plane(async |test_cluster, _| {
        let uid = test_cluster.namespace("rec-kept").await?;
        test_cluster.namespace("free").await?;
        test_cluster.apply(MANAGER).await?;
        governed(test_cluster, "rec-kept").await?;
        let sentence = "ClusterNamespaceManager records governs namespace rec-kept: deleting its record begins settle and notice again";
        for which in [
            &["coppice"][..],
            &["--all"],
            &["coppice", "--force", "--grace-period=0"],
            &["coppice", "--dry-run=server"],
        ] {
            let delete = [&["delete", "mns", "-n", "rec-kept"][..], which].concat();
            let error =
                test_cluster.kubectl(ADMIN, &delete).await.err().map(|e| e.to_string()).unwrap_or_default();
            ensure!(error.contains(sentence), "{which:?}: {error}");
        }
        let collection =
            Wire::new(test_cluster, ADMIN)?.send("DELETE", &records("rec-kept"), PLAIN, json!({})).await?;
        ensure!(collection.refused(sentence), "{collection:?}");
        // Nobody governs this one.
        test_cluster.apply(&empty("free")).await?;
        test_cluster.kubectl(ADMIN, &["delete", "mns", "coppice", "-n", "free"]).await?;
        // An account of Coppice is not bound.
        let ours = grant_everything(test_cluster).await?;
        let options = json!({"apiVersion": "v1", "kind": "DeleteOptions", "dryRun": ["All"]});
        let dry = ours.send("DELETE", &record("rec-kept"), PLAIN, options).await?;
        ensure!(dry.accepted(), "{dry:?}");
        // With its namespace it goes.
        test_cluster.kubectl(ADMIN, &["delete", "namespace", "rec-kept", "--wait=false"]).await?;
        test_cluster.deleted("rec-kept", &uid).await
    })
}

#[test]
fn an_editor_holds_extends_and_releases_a_governed_namespace() -> Test {
    on_shared_plane(async |test_cluster, _| {
        test_cluster.namespace("rec-cli").await?;
        grant(test_cluster, "rec-cli", ALICE, "edit").await?;
        test_cluster.apply(MANAGER).await?;
        governed(test_cluster, "rec-cli").await?;
        let run = async |args: &[&str]| -> anyhow::Result<String> {
            let (code, out, err) = coppice(test_cluster, ALICE, args).await?;
            ensure!(code == 0, "{args:?}: {code}: {out}{err}");
            Ok(out)
        };
        let reason = async |wanted: &str| {
            let what = format!("the record of rec-cli says {wanted}");
            let says = async || {
                let record = test_cluster.get("mns", "rec-cli", "coppice").await.ok()??;
                (record["status"]["next"]["reason"] == wanted).then_some(record)
            };
            test_cluster.until(&what, says).await
        };
        let out = run(&["hold", "rec-cli", "--for", "3h", "--reason", "debugging"]).await?;
        ensure!(out.starts_with("namespace/rec-cli held until "), "{out}");
        let held = reason("Held").await?;
        ensure!(
            held["spec"]["hold"]["by"] == ALICE && held["spec"]["hold"]["reason"] == "debugging",
            "{held:#}"
        );
        let out = run(&["explain", "rec-cli"]).await?;
        ensure!(
            out.contains("held by alice until") && out.contains("by ClusterNamespaceManager records"),
            "{out}"
        );
        ensure!(run(&["plan", "-n", "rec-cli"]).await?.contains("held by alice until"));
        run(&["extend", "rec-cli", "--by", "1h"]).await?;
        let before = held["status"]["expiresAt"].as_str().unwrap_or_default().parse::<jiff::Timestamp>()?;
        let later = (before + jiff::SignedDuration::from_hours(1)).to_string();
        run(&["release", "rec-cli"]).await?;
        let extended = reason("Observing").await?;
        ensure!(extended["spec"]["hold"].is_null(), "{extended:#}");
        ensure!(extended["spec"]["extendUntil"] == json!({"at": later, "by": ALICE}), "{extended:#}");
        let listed = run(&["list", "-n", "rec-cli"]).await?;
        ensure!(listed.lines().nth(1).is_some_and(|line| line.starts_with("rec-cli     Ok")), "{listed}");
        // Nothing to hold: no cluster manager that Alice could see, and no manager.
        let (code, _, err) =
            coppice(test_cluster, ALICE, &["hold", "no-such-namespace", "--for", "1h"]).await?;
        ensure!(code == 1, "{err}");
        Ok(())
    })
}

#[test]
fn preview_and_plan_of_the_live_cluster_say_what_applying_a_manager_then_does() -> Test {
    on_shared_plane(async |test_cluster, _| {
        let uid = test_cluster.namespace("preview-old").await?;
        test_cluster.namespace("preview-kept").await?;
        // An administrator of the cluster need not name himself.
        let held = "{apiVersion: coppice.dev/v1alpha1, kind: ManagedNamespace, metadata: {name: coppice, namespace: preview-kept}, \
                    spec: {hold: {until: '2099-01-01T00:00:00Z'}}}";
        test_cluster.apply(held).await?;
        let manager = "{apiVersion: coppice.dev/v1alpha1, kind: ClusterNamespaceManager, metadata: {name: preview}, spec: \
                       {mode: Enforce, selector: {names: ['preview-*']}, settle: 1s, ttl: {after: 1s}, policies: \
                       [{name: end, when: {phase: {in: [Stale]}}, then: {delete: {}}}]}}";
        let file = std::env::temp_dir().join(format!("coppice-preview-{}.yaml", std::process::id()));
        std::fs::write(&file, manager)?;
        let path = file.display().to_string();
        let preview = async || coppice(test_cluster, ADMIN, &["preview", "-f", &path, "-o", "json"]).await;
        // What others of this plane's tests write is not about these.
        let writes = || -> anyhow::Result<usize> {
            let about = |name: &str| name == "preview" || name.starts_with("preview-");
            let audit = test_cluster.plane.audit()?;
            Ok(audit.iter().filter(|e| e.user == ADMIN && e.is_write() && about(&e.name)).count())
        };
        let before = writes()?;
        // A second after its creation it is old enough.
        let (code, said) = test_cluster
            .until("it would become due", async || {
                let (code, out, _) = preview().await.ok()?;
                (code == 3).then(|| (code, serde_json::from_str::<Value>(&out).ok()))
            })
            .await?;
        let said = said.unwrap_or_default();
        let due = json!([{"namespace": "preview-old", "manager": "preview"}]);
        ensure!(code == 3 && said["becomesDue"] == due, "{said:#}");
        let one = &said["managers"][0];
        ensure!(one["change"] == "New" && one["selected"] == 2 && one["governed"] == 2, "{one:#}");
        ensure!(writes()? == before, "it wrote");
        ensure!(!test_cluster.is_deleted("preview-old", &uid).await, "it deleted");
        test_cluster.apply(manager).await?;
        test_cluster.deleted("preview-old", &uid).await?;
        let (code, out, err) = preview().await?;
        ensure!(code == 0, "nothing becomes due any more: {out}{err}");
        let (_, out, err) = coppice(test_cluster, ADMIN, &["plan", "-n", "preview-kept"]).await?;
        ensure!(
            out.contains("cnsman/preview") && out.contains("held until 2099-01-01T00:00:00Z"),
            "{out}{err}"
        );
        let (_, out, _) = coppice(test_cluster, ADMIN, &["explain", "default"]).await?;
        let why = "preview does not select it: none of spec.selector.names matches its name";
        ensure!(out.contains(why), "{out}");
        std::fs::remove_file(&file)?;
        Ok(())
    })
}
