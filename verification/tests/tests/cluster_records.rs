//! Records of governed namespaces that the API server refuses: the cluster manager says so, and why.

use anyhow::{Context as _, ensure};
use coppice_tests::{TestCluster, condition, on_shared_plane};
use serde_json::{Value, json};

use super::cluster_managers::record;

type Test = anyhow::Result<()>;

/// Waits until the condition `Ready` of the cluster manager is as described; the manager.
async fn ready(test_cluster: &TestCluster, what: &str, is: impl Fn(&Value) -> bool) -> anyhow::Result<Value> {
    let wanted = async || {
        let manager = test_cluster.get("cnsman", "", "unrecorded").await.ok()??;
        is(&condition(&manager, "Ready")).then_some(manager)
    };
    let found = test_cluster.until(&format!("the cluster manager says {what}"), wanted).await;
    let now = test_cluster.get("cnsman", "", "unrecorded").await;
    found.with_context(|| format!("it is {now:#?}"))
}

#[test]
fn a_quota_that_refuses_a_record_is_named_by_the_cluster_manager_until_it_is_gone() -> Test {
    const COUNTED: &str = "count/managednamespaces.coppice.dev";
    on_shared_plane(async |test_cluster, _| {
        for name in ["unrecorded-a", "unrecorded-b"] {
            test_cluster.namespace(name).await?;
        }
        let admin = test_cluster.admin().await?;
        let quota = json!({"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "none", "namespace": "unrecorded-a"},
            "spec": {"hard": {COUNTED: "0"}}});
        admin.create(&quota).await?;
        // Before it is in force it limits nothing.
        let of_user = json!({"apiVersion": "coppice.dev/v1alpha1", "kind": "ManagedNamespace", "metadata": {"name": "coppice",
            "namespace": "unrecorded-a"}, "spec": {}});
        let refused = async || match admin.create(&of_user).await {
            Ok(_) => {
                admin.delete("mns", "unrecorded-a", "coppice", &json!({})).await.ok();
                None
            }
            Err(error) => error.to_string().contains("quota: none").then_some(()),
        };
        test_cluster.until("the quota refuses records", refused).await?;

        let manager = "{apiVersion: coppice.dev/v1alpha1, kind: ClusterNamespaceManager, metadata: {name: unrecorded}, spec: {mode: \
                       Enforce, selector: {names: ['unrecorded-*']}, settle: 1s, ttl: {after: 1s}, policies: [{name: end, when: \
                       {phase: {in: [Stale]}}, then: {delete: {notice: 1h}}}]}}";
        test_cluster.apply(manager).await?;
        let announced = |status: &Value| status["notice"].is_object();
        record(test_cluster, "unrecorded-b", "that the namespace is going to be deleted", announced).await?;
        let names_it = |ready: &Value| {
            let message = ready["message"].as_str().unwrap_or_default();
            ready["reason"] == "RecordsPending"
                && message.contains("of 1 of the 2 namespaces")
                && message.contains(COUNTED)
        };
        let manager = ready(test_cluster, "which record is refused, and by what", names_it).await?;
        let said = condition(&manager, "Ready");
        let message = said["message"].as_str().unwrap_or_default();
        let why = "That of unrecorded-a could not be written: the API server refused: ";
        ensure!(
            said["status"] == "False" && message.contains(why) && message.ends_with("(403)"),
            "{manager:#}"
        );
        let namespaces = json!({"selected": 2, "governed": 2, "recorded": 1});
        ensure!(manager["status"]["namespaces"] == namespaces, "{manager:#}");
        ensure!(test_cluster.get("mns", "unrecorded-a", "coppice").await?.is_none(), "it has a record");

        admin.delete("quota", "unrecorded-a", "none", &json!({})).await?;
        let all = |ready: &Value| ready["status"] == "True";
        let manager = ready(test_cluster, "that every namespace has its record", all).await?;
        ensure!(condition(&manager, "Ready")["reason"] == "Reconciled", "{manager:#}");
        let announced = |status: &Value| status["notice"].is_object();
        record(test_cluster, "unrecorded-a", "that the namespace is going to be deleted", announced).await?;
        Ok(())
    })
}
