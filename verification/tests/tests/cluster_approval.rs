//! What a change of a cluster manager that enforces makes due at once, on a real API server: beyond the hourly budget it waits for
//! approval. What the switch to `Enforce` does is in `cluster_managers.rs`.

use anyhow::{Context as _, ensure};
use coppice_tests::{Operator, TestCluster, condition, on_own_plane};
use serde_json::{Value, json};

use super::cluster_managers::{record, waits_for};

type Test = anyhow::Result<()>;

/// Deletes what this selects, so long after its creation, with a notice of three seconds.
fn manager(name: &str, names: &str, after: &str) -> String {
    format!(
        "{{apiVersion: coppice.dev/v1alpha1, kind: ClusterNamespaceManager, metadata: {{name: {name}}}, spec: {{mode: Enforce, \
         selector: {{names: ['{names}']}}, settle: 1s, ttl: {{after: {after}}}, policies: [{{name: end, when: {{phase: {{in: \
         [Stale]}}}}, then: {{delete: {{notice: 3s}}}}}}]}}}}"
    )
}

/// A cluster manager, once the condition `Approved` of this spec has this status and reason.
async fn approved(
    test_cluster: &TestCluster,
    name: &str,
    status: &str,
    reason: &str,
) -> anyhow::Result<Value> {
    let wanted = async || {
        let manager = test_cluster.get("cnsman", "", name).await.ok()??;
        let said = condition(&manager, "Approved");
        let current = said["observedGeneration"] == manager["metadata"]["generation"];
        (current && said["status"] == status && said["reason"] == reason).then_some(manager)
    };
    let found = test_cluster.until(&format!("{name} is approved: {status} {reason}"), wanted).await;
    let now = test_cluster.get("cnsman", "", name).await;
    found.with_context(|| format!("it is {now:#?}"))
}

fn instant(value: &Value) -> anyhow::Result<jiff::Timestamp> {
    Ok(value.as_str().context("it has no date")?.parse()?)
}

/// A change makes these two due, of which a budget of one an hour has room for none any more. Until somebody approves it they wait;
/// then they get their full notice, and wait for the budget.
async fn waits_for_approval(
    test_cluster: &TestCluster,
    name: &str,
    change: &Value,
    namespaces: [&str; 2],
) -> Test {
    approved(test_cluster, name, "True", "ApprovalNotNeeded").await?;
    test_cluster.patch("cnsman", "", name, &json!({ "spec": change }).to_string()).await?;
    for namespace in namespaces {
        waits_for(test_cluster, namespace, "ApprovalNeeded").await?;
    }
    let manager = approved(test_cluster, name, "False", "ApprovalNeeded").await?;
    ensure!(manager["status"]["enforce"]["newlyDue"] == 2, "{manager:#}");
    for namespace in namespaces {
        let waits = test_cluster.get("mns", namespace, "coppice").await?.unwrap_or_default();
        ensure!(waits["status"]["notice"].is_null(), "nothing is announced that is not approved: {waits:#}");
    }
    let approval = json!({
        "digest": manager["status"]["policyDigest"], "namespaces": 2, "validUntil": "2099-01-01T00:00:00Z",
    });
    let approve = json!({"spec": {"approval": approval}}).to_string();
    test_cluster.patch("cnsman", "", name, &approve).await?;
    // Until now nothing was announced.
    let since = instant(&condition(&manager, "Approved")["lastTransitionTime"])?;
    approved(test_cluster, name, "True", "ApprovalGiven").await?;
    for namespace in namespaces {
        let waits = waits_for(test_cluster, namespace, "BudgetSpent").await?;
        let notice = &waits["status"]["notice"];
        let (given, ends) = (instant(&notice["givenAt"])?, instant(&notice["notBefore"])?);
        ensure!(given >= since, "announced before it was approved at {since}: {notice}");
        ensure!(ends.duration_since(given).as_secs() >= 3, "it has no full notice: {notice}");
    }
    Ok(())
}

#[test]
fn what_a_wider_selector_and_a_shorter_ttl_make_due_beyond_the_hourly_budget_waits_for_approval() -> Test {
    on_own_plane(async {
        let test_cluster = TestCluster::start_without_pods().await?;
        let settings = "{apiVersion: coppice.dev/v1alpha1, kind: CoppiceConfig, metadata: {name: coppice}, spec: \
                        {governor: {perHour: PER_HOUR}}}";
        test_cluster.apply(&settings.replace("PER_HOUR", "2")).await?;
        let _operator = Operator::start(&test_cluster).await?;
        let (wide, short) = (["wide-1", "wide-2"], ["short-1", "short-2"]);
        for name in wide.iter().chain(&short) {
            test_cluster.namespace(name).await?;
        }
        test_cluster.apply(&manager("wide", "wide-none", "1s")).await?;
        test_cluster.apply(&manager("short", "short-*", "10h")).await?;
        // Namespaces that are two minutes old were there before.
        let clock = test_cluster.namespace("clock").await?;
        let later = "{policies: [{name: end, when: {ttl: {after: 125s}}, then: {delete: {}}}]}";
        test_cluster.manager("clock", "m", later).await?;
        test_cluster.deleted("clock", &clock).await?;
        // Of these two steps an hour the deletion of the clock has taken one.
        test_cluster.apply(&settings.replace("PER_HOUR", "1")).await?;
        for name in short {
            record(&test_cluster, name, "that it lives", |status| status["phase"] == "Ok").await?;
        }

        let wider = json!({"selector": {"names": ["wide-*"]}});
        waits_for_approval(&test_cluster, "wide", &wider, wide).await?;
        waits_for_approval(&test_cluster, "short", &json!({"ttl": {"after": "1s"}}), short).await?;
        let deletes = test_cluster.namespace_deletes()?;
        ensure!(deletes.iter().all(|delete| delete.name == "clock"), "{deletes:?}");

        test_cluster.apply(&settings.replace("PER_HOUR", "100")).await?;
        let gone = async || {
            let namespaces = test_cluster.list("ns", "").await.ok()?;
            let there = |name: &str| namespaces.iter().any(|one| one["metadata"]["name"] == name);
            (!wide.iter().chain(&short).any(|name| there(name))).then_some(())
        };
        test_cluster.until("all of them are deleted", gone).await
    })
}
