//! What is restored: from a backup without status, as Velero makes it, and from what etcd held at an earlier time.

use std::collections::BTreeMap;

use anyhow::{Context as _, ensure};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use coppice_plane::ADMIN;
use coppice_tests::{Operator, TestCluster, on_own_plane, on_shared_plane};
use jiff::SignedDuration;
use serde_json::{Value, json};

use crate::cluster_managers::{CLOCK, record};
use crate::lifecycle::effective_delete;

type Test = anyhow::Result<()>;

/// Nothing is done before settle and notice are over.
const SETTLE_AND_NOTICE: SignedDuration = SignedDuration::from_secs(7);

fn manager(name: &str, notice: &str) -> String {
    format!(
        "{{apiVersion: coppice.dev/v1alpha1, kind: ClusterNamespaceManager, metadata: {{name: {name}}}, spec: {{mode: Enforce, selector: \
         {{names: ['{name}-*']}}, settle: 4s, policies: [{{name: end, when: {{ttl: {{after: 1s}}}}, then: {{delete: {{notice: {notice}}}}}}}]}}}}"
    )
}

/// Waits until the deletion of a namespace is announced.
async fn announced(test_cluster: &TestCluster, namespace: &str) -> Test {
    let is_announced = |status: &Value| status["notice"].is_object();
    record(test_cluster, namespace, "that it is announced", is_announced).await.map(drop)
}

#[test]
fn what_comes_from_a_backup_without_status_settles_and_is_announced_in_full() -> Test {
    on_shared_plane(async |test_cluster, _| {
        for name in ["backup-stays", "backup-lost"] {
            test_cluster.namespace(name).await?;
        }
        // Longer than any machine takes until the cluster manager is lost: nothing is deleted before.
        test_cluster.apply(&manager("backup", "1h")).await?;
        announced(test_cluster, "backup-stays").await?;
        announced(test_cluster, "backup-lost").await?;
        // Lost are the cluster manager, and a namespace with its record.
        test_cluster.kubectl(ADMIN, &["delete", "cnsman", "backup"]).await?;
        record(test_cluster, "backup-stays", "no notice", |status| status["notice"].is_null()).await?;
        let lost = test_cluster.get("namespace", "", "backup-lost").await?.context("it is gone already")?;
        test_cluster.kubectl(ADMIN, &["delete", "namespace", "backup-lost"]).await?;
        // They come back as they are in the backup: with other uids, what people wrote, and no status; long due.
        let lost_again = test_cluster.namespace("backup-lost").await?;
        ensure!(lost["metadata"]["uid"] != lost_again.as_str(), "it is the same");
        test_cluster.namespace("backup-held").await?;
        let held = "{apiVersion: coppice.dev/v1alpha1, kind: ManagedNamespace, metadata: {name: coppice, namespace: backup-held}, spec: \
                    {hold: {until: '2099-01-01T00:00:00Z', reason: release}}}";
        test_cluster.apply(held).await?;
        let stays = test_cluster
            .get("namespace", "", "backup-stays")
            .await?
            .context("backup-stays is gone, though nothing was to delete it")?;
        let stays = stays["metadata"]["uid"].as_str().unwrap_or_default().to_owned();
        // A moment before: requests to create something have no name in the audit log.
        let restored = test_cluster.plane.audit()?.last().context("the audit log is empty")?.received;
        test_cluster.apply(&manager("backup", "3s")).await?;
        for (name, uid) in [("backup-stays", &stays), ("backup-lost", &lost_again)] {
            test_cluster.deleted(name, uid).await?;
            let delete = effective_delete(test_cluster, name).await?;
            let waited = delete.received.duration_since(restored);
            ensure!(waited >= SETTLE_AND_NOTICE - CLOCK, "{name} was deleted {waited} after the restore");
        }
        let waits = |status: &Value| status["next"]["reason"] == "Held";
        record(test_cluster, "backup-held", "its hold", waits).await?;
        Ok(())
    })
}

/// What etcd holds, but for leases and Events: by key.
async fn snapshot(test_cluster: &TestCluster) -> anyhow::Result<BTreeMap<String, String>> {
    let range = json!({"key": STANDARD.encode("/registry/"), "range_end": STANDARD.encode("/registry0")});
    let all = etcd(test_cluster, "range", &range).await?;
    let mut found = BTreeMap::new();
    for pair in all["kvs"].as_array().into_iter().flatten() {
        let (key, value) =
            (pair["key"].as_str().unwrap_or_default(), pair["value"].as_str().unwrap_or_default());
        let name = String::from_utf8(STANDARD.decode(key)?)?;
        let passing = ["/registry/leases/", "/registry/masterleases/", "/registry/events/"];
        if !passing.iter().any(|prefix| name.starts_with(prefix)) {
            found.insert(key.to_owned(), value.to_owned());
        }
    }
    Ok(found)
}

/// Makes etcd hold what it held then, by revisions that follow those of now: what watches and caches have seen, they see change.
async fn restore(test_cluster: &TestCluster, then: &BTreeMap<String, String>) -> Test {
    let now = snapshot(test_cluster).await?;
    for key in now.keys().filter(|key| !then.contains_key(*key)) {
        etcd(test_cluster, "deleterange", &json!({ "key": key })).await?;
    }
    for (key, value) in then.iter().filter(|(key, value)| now.get(*key) != Some(value)) {
        etcd(test_cluster, "put", &json!({"key": key, "value": value})).await?;
    }
    Ok(())
}

async fn etcd(test_cluster: &TestCluster, request: &str, body: &Value) -> anyhow::Result<Value> {
    let url = format!("{}/v3/kv/{request}", test_cluster.plane.etcd_url());
    let client = reqwest::Client::builder().no_proxy().build()?;
    let answer = client.post(url).body(body.to_string()).send().await?.error_for_status()?;
    Ok(serde_json::from_slice(&answer.bytes().await?)?)
}

#[test]
fn what_etcd_held_before_is_paused_looked_at_and_announced_again() -> Test {
    on_own_plane(async {
        let test_cluster = TestCluster::start_without_pods().await?;
        let pause = async |paused: bool| {
            let patch = json!({"spec": {"governor": {"paused": paused}}}).to_string();
            test_cluster.patch("coppiceconfig", "", "coppice", &patch).await
        };
        let suspend = async |suspend: bool| {
            let patch = json!({"spec": {"suspend": suspend}}).to_string();
            test_cluster.patch("cnsman", "", "past", &patch).await
        };
        let operator = Operator::start(&test_cluster).await?;
        let uid = test_cluster.namespace("past-a").await?;
        // Long enough to be read as it is announced, before it is deleted.
        test_cluster.apply(&manager("past", "10s")).await?;
        announced(&test_cluster, "past-a").await?;
        let then = snapshot(&test_cluster).await?;
        test_cluster.deleted("past-a", &uid).await?;
        let gone = async || test_cluster.get("namespace", "", "past-a").await.ok()?.is_none().then_some(());
        test_cluster.until("it is gone", gone).await?;
        drop(operator);

        // As docs/guides/restore.md says: paused before the operator starts.
        restore(&test_cluster, &then).await?;
        let back = test_cluster.get("namespace", "", "past-a").await?.context("it did not come back")?;
        ensure!(back["metadata"]["uid"] == uid.as_str(), "{back:#}");
        pause(true).await?;
        let deletes = test_cluster.namespace_deletes()?.len();
        let _operator = Operator::start(&test_cluster).await?;
        let waits = |status: &Value| status["notice"].is_object() && status["next"]["reason"] == "Paused";
        record(&test_cluster, "past-a", "what was announced, and that nothing is done", waits).await?;
        // Whoever looks at it takes the notice back.
        suspend(true).await?;
        record(&test_cluster, "past-a", "no notice", |status| status["notice"].is_null()).await?;
        pause(false).await?;
        ensure!(test_cluster.namespace_deletes()?.len() == deletes, "it was deleted meanwhile");
        suspend(false).await?;
        test_cluster.deleted("past-a", &uid).await?;
        let delete = effective_delete(&test_cluster, "past-a").await?;
        let audit = test_cluster.plane.audit()?;
        let asked = audit.iter().rfind(|e| e.verb == "patch" && e.name == "past" && e.subresource.is_empty());
        let waited = delete.received.duration_since(asked.context("nobody ended the suspension")?.received);
        let notice = SignedDuration::from_secs(10);
        ensure!(
            waited >= notice - CLOCK,
            "deleted {waited} after the suspension ended, without another notice"
        );
        ensure!(test_cluster.namespace_deletes()?.len() == deletes + 1, "once");
        Ok(())
    })
}
