//! The platform's settings, the budget, `paused`, and rights that are missing.

use anyhow::{Context as _, ensure};
use coppice_plane::{ADMIN, OPERATOR};
use coppice_tests::{Operator, TestCluster, condition, on_own_plane};
use serde_json::Value;

type Test = anyhow::Result<()>;

const DUE: &str = "{policies: [{name: end, when: {ttl: {after: 1s}}, then: {delete: {}}}]}";

async fn settings(test_cluster: &TestCluster, spec: &str) -> anyhow::Result<String> {
    let config =
        "{apiVersion: coppice.dev/v1alpha1, kind: CoppiceConfig, metadata: {name: coppice}, spec: SPEC}";
    test_cluster.apply(&config.replace("SPEC", spec)).await
}

async fn waits_for(test_cluster: &TestCluster, namespace: &str, reason: &str) -> anyhow::Result<Value> {
    test_cluster.manager_until(namespace, "m", reason, |m| m["status"]["next"]["reason"] == reason).await
}

#[test]
fn paused_stops_what_is_due_and_lets_it_go_on() -> Test {
    on_own_plane(async {
        let test_cluster = TestCluster::start_without_pods().await?;
        settings(&test_cluster, "{governor: {paused: true}}").await?;
        let _operator = Operator::start(&test_cluster).await?;
        let uid = test_cluster.namespace("paused").await?;
        test_cluster.manager("paused", "m", DUE).await?;
        let manager = waits_for(&test_cluster, "paused", "Paused").await?;
        ensure!(manager["status"]["phase"] == "Pending" && manager["status"]["intent"].is_null());
        settings(&test_cluster, "{governor: {paused: false}}").await?;
        test_cluster.deleted("paused", &uid).await
    })
}

#[test]
fn the_budget_holds_across_restarts_and_says_when_it_goes_on() -> Test {
    on_own_plane(async {
        let test_cluster = TestCluster::start_without_pods().await?;
        // Not a minute's budget: the next minute may begin before the operator has been started again.
        settings(&test_cluster, "{governor: {perHour: 1}}").await?;
        let mut operator = Operator::start(&test_cluster).await?;
        let uid = test_cluster.namespace("first").await?;
        test_cluster.manager("first", "m", DUE).await?;
        test_cluster.deleted("first", &uid).await?;
        let second = test_cluster.namespace("second").await?;
        test_cluster.manager("second", "m", DUE).await?;
        let manager = waits_for(&test_cluster, "second", "BudgetSpent").await?;
        ensure!(manager["status"]["next"]["due"].is_string(), "{manager:#}");
        operator.terminate().await?;
        let _operator = Operator::start(&test_cluster).await?;
        waits_for(&test_cluster, "second", "BudgetSpent").await?;
        ensure!(test_cluster.namespace_deletes()?.iter().all(|e| e.name == "first"));
        settings(&test_cluster, "{governor: {perHour: 10}}").await?;
        test_cluster.deleted("second", &second).await
    })
}

#[test]
fn what_tenants_may_ask_for_can_be_changed_at_any_time() -> Test {
    on_own_plane(async {
        let test_cluster = TestCluster::start_without_pods().await?;
        settings(&test_cluster, "{tenants: {actions: [webhook]}}").await?;
        let _operator = Operator::start(&test_cluster).await?;
        let uid = test_cluster.namespace("actions").await?;
        test_cluster.manager("actions", "m", DUE).await?;
        waits_for(&test_cluster, "actions", "ActionNotAllowed").await?;
        settings(
            &test_cluster,
            "{tenants: {actions: [delete], namespaceSelector: {matchLabels: {team: a}}}}",
        )
        .await?;
        waits_for(&test_cluster, "actions", "NamespaceNotSelected").await?;
        settings(&test_cluster, "{tenants: {actions: [delete]}, protected: {selector: {matchLabels: {kubernetes.io/metadata.name: actions}}}}").await?;
        waits_for(&test_cluster, "actions", "NamespaceProtected").await?;
        ensure!(!test_cluster.is_deleted("actions", &uid).await);
        settings(&test_cluster, "{tenants: {actions: [delete]}}").await?;
        test_cluster.deleted("actions", &uid).await?;
        // What looks like a host, so that the API server accepts it, and is none: its punycode cannot be read.
        let wrong = "{tenants: {webhookHosts: ['xn--a.example']}}";
        settings(&test_cluster, wrong).await?;
        let shown = async || {
            let config = test_cluster.get("coppiceconfig", "", "coppice").await.ok()??;
            let condition = condition(&config, "Ready");
            (condition["status"] == "False" && condition["message"].to_string().contains("webhookHosts"))
                .then_some(())
        };
        test_cluster.until("the bad entry is shown", shown).await
    })
}

/// The role of the operator as it is installed.
pub(crate) async fn operator_role(test_cluster: &TestCluster) -> anyhow::Result<Value> {
    let role = test_cluster.get("clusterrole", "", "coppice-operator").await?;
    Ok(serde_json::json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": "coppice-operator"},
        "rules": role.context("the operator has no role")?["rules"]
    }))
}

/// Gives the operator this role without these resources, and waits until they are refused: roles are in force a moment later.
pub(crate) async fn with_role(test_cluster: &TestCluster, role: &Value, without: &[&str]) -> Test {
    let mut role = role.clone();
    let rules = role["rules"].as_array_mut().context("the role has no rules")?;
    for rule in rules.iter_mut() {
        if let Some(resources) = rule["resources"].as_array_mut() {
            resources.retain(|resource| !without.iter().any(|name| resource == name));
        }
    }
    rules.retain(|rule| rule["resources"].as_array().is_none_or(|resources| !resources.is_empty()));
    test_cluster.kubectl_stdin(ADMIN, &["replace", "-f", "-"], &role.to_string()).await?;
    let account = test_cluster.requests(OPERATOR).await?;
    for resource in without {
        let refused = async || {
            let error = account.list(resource, "").await.err()?.to_string();
            error.contains("(Forbidden)").then_some(())
        };
        test_cluster.until(&format!("the operator's account may not list {resource}"), refused).await?;
    }
    Ok(())
}

#[test]
fn pods_that_may_not_be_listed_are_unknown_and_stop_nothing_else() -> Test {
    on_own_plane(async {
        let test_cluster = TestCluster::start_without_pods_at_once().await?;
        let role = operator_role(&test_cluster).await?;
        with_role(&test_cluster, &role, &["pods"]).await?;
        let operator = Operator::spawn(&test_cluster, &[]).await?;
        let blind = test_cluster.namespace("blind").await?;
        test_cluster.manager("blind", "m", "{policies: [{name: p, when: {podsSucceed: {initialDelay: 0s, minPods: 0}}, then: {delete: {}}}]}").await?;
        let timed = test_cluster.namespace("timed").await?;
        test_cluster.manager("timed", "m", DUE).await?;
        test_cluster.deleted("timed", &timed).await?;
        // A list that was not answered in time is unknown, too.
        let unknown = |m: &Value| {
            let policy = &m["status"]["policies"][0];
            policy["result"] == "Unknown" && policy["reason"] == "Forbidden"
        };
        let manager = test_cluster.manager_until("blind", "m", "Unknown", unknown).await?;
        ensure!(condition(&manager, "Ready")["status"] == "Unknown");
        let why = operator.http("/readyz").await.err().map(|e| e.to_string()).unwrap_or_default();
        ensure!(why.contains("watch: pods: the API server refuses to list pods"), "{why}");
        with_role(&test_cluster, &role, &[]).await?;
        test_cluster.deleted("blind", &blind).await
    })
}

#[test]
fn settings_that_are_deleted_reset_no_pause_and_are_not_created_again() -> Test {
    on_own_plane(async {
        let test_cluster = TestCluster::start_without_pods().await?;
        let mut operator = Operator::start(&test_cluster).await?;
        let key = async || -> Option<Value> {
            let config = test_cluster.get("coppiceconfig", "", "coppice").await.ok()??;
            let key = config["status"]["webhookKey"].clone();
            key.is_string().then_some(key)
        };
        let before = test_cluster.until("the first start creates the settings and the key", &key).await?;
        settings(&test_cluster, "{governor: {paused: true}}").await?;
        let uid = test_cluster.namespace("due").await?;
        test_cluster.manager("due", "m", DUE).await?;
        waits_for(&test_cluster, "due", "Paused").await?;
        test_cluster.kubectl(ADMIN, &["delete", "coppiceconfig", "coppice"]).await?;
        waits_for(&test_cluster, "due", "SettingsMissing").await?;
        // Nor does another start: there is a key.
        operator.terminate().await?;
        let operator = Operator::spawn(&test_cluster, &[]).await?;
        operator.leads(&test_cluster).await?;
        test_cluster.namespace("later").await?;
        test_cluster.manager("later", "m", DUE).await?;
        waits_for(&test_cluster, "later", "SettingsMissing").await?;
        waits_for(&test_cluster, "due", "SettingsMissing").await?;
        ensure!(test_cluster.get("coppiceconfig", "", "coppice").await?.is_none(), "they were created again");
        ensure!(test_cluster.namespace_deletes()?.is_empty() && !test_cluster.is_deleted("due", &uid).await);
        // Whoever creates them decides what is in them; the key stays the same.
        settings(&test_cluster, "{governor: {paused: false}}").await?;
        test_cluster.deleted("due", &uid).await?;
        ensure!(test_cluster.until("the key is published again", &key).await? == before);
        Ok(())
    })
}
