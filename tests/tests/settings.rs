//! The platform's settings, the budget, the kill switch, and rights that are missing.

use anyhow::ensure;
use coppice_plane::ADMIN;
use coppice_tests::{Operator, Stage, alone};
use serde_json::Value;

type Test = anyhow::Result<()>;

const DUE: &str = "{policies: [{name: end, when: {ttl: {after: 1s}}, then: {delete: {}}}]}";

async fn settings(stage: &Stage, spec: &str) -> anyhow::Result<String> {
    let config =
        "{apiVersion: coppice.dev/v1alpha1, kind: CoppiceConfig, metadata: {name: coppice}, spec: SPEC}";
    stage.apply(&config.replace("SPEC", spec)).await
}

async fn waits_for(stage: &Stage, namespace: &str, reason: &str) -> anyhow::Result<Value> {
    stage.manager_until(namespace, "m", reason, |m| m["status"]["next"]["reason"] == reason).await
}

#[test]
fn the_kill_switch_stops_what_is_due_and_lets_it_go_on() -> Test {
    alone(async {
        let stage = Stage::start().await?;
        settings(&stage, "{governor: {paused: true}}").await?;
        let _operator = Operator::start(&stage).await?;
        let uid = stage.namespace("paused").await?;
        stage.manager("paused", "m", DUE).await?;
        let manager = waits_for(&stage, "paused", "Paused").await?;
        ensure!(manager["status"]["phase"] == "Pending" && manager["status"]["intent"].is_null());
        settings(&stage, "{governor: {paused: false}}").await?;
        stage.deleted("paused", &uid).await
    })
}

#[test]
fn the_budget_holds_across_restarts_and_says_when_it_goes_on() -> Test {
    alone(async {
        let stage = Stage::start().await?;
        settings(&stage, "{governor: {perMinute: 1}}").await?;
        let mut operator = Operator::start(&stage).await?;
        let uid = stage.namespace("first").await?;
        stage.manager("first", "m", DUE).await?;
        stage.deleted("first", &uid).await?;
        let second = stage.namespace("second").await?;
        stage.manager("second", "m", DUE).await?;
        let manager = waits_for(&stage, "second", "BudgetSpent").await?;
        ensure!(manager["status"]["next"]["due"].is_string(), "{manager:#}");
        operator.terminate().await?;
        let _operator = Operator::start(&stage).await?;
        waits_for(&stage, "second", "BudgetSpent").await?;
        ensure!(stage.namespace_deletes()?.iter().filter(|e| e.succeeded()).count() == 1);
        settings(&stage, "{governor: {perMinute: 10}}").await?;
        stage.deleted("second", &second).await
    })
}

#[test]
fn what_tenants_may_ask_for_can_be_changed_at_any_time() -> Test {
    alone(async {
        let stage = Stage::start().await?;
        settings(&stage, "{tenants: {actions: [webhook]}}").await?;
        let _operator = Operator::start(&stage).await?;
        let uid = stage.namespace("actions").await?;
        stage.manager("actions", "m", DUE).await?;
        waits_for(&stage, "actions", "ActionNotAllowed").await?;
        settings(&stage, "{tenants: {actions: [delete], namespaceSelector: {matchLabels: {team: a}}}}")
            .await?;
        waits_for(&stage, "actions", "NamespaceNotSelected").await?;
        settings(&stage, "{tenants: {actions: [delete]}, protected: {selector: {matchLabels: {kubernetes.io/metadata.name: actions}}}}").await?;
        waits_for(&stage, "actions", "NamespaceProtected").await?;
        ensure!(!stage.is_deleted("actions", &uid).await);
        settings(&stage, "{tenants: {actions: [delete]}}").await?;
        stage.deleted("actions", &uid).await?;
        // What looks like a host, so that the API server accepts it, and is none: its punycode cannot be read.
        let wrong = "{tenants: {webhookHosts: ['xn--a.example']}}";
        settings(&stage, wrong).await?;
        let shown = async || {
            let config = stage.get("coppiceconfig", "", "coppice").await.ok()??;
            let condition = config["status"]["conditions"][0].clone();
            (condition["status"] == "False" && condition["message"].to_string().contains("webhookHosts"))
                .then_some(())
        };
        stage.until("the bad entry is shown", shown).await
    })
}

#[test]
fn pods_that_may_not_be_listed_are_unknown_and_stop_nothing_else() -> Test {
    alone(async {
        let stage = Stage::start_at_once().await?;
        let role = stage.get("clusterrole", "", "coppice-operator").await?.unwrap_or_default();
        let mut without = role.clone();
        if let Some(rules) = without["rules"].as_array_mut() {
            rules.retain(|rule| !rule["resources"].to_string().contains("\"pods\""));
        }
        without["metadata"] = serde_json::json!({"name": "coppice-operator"});
        stage.kubectl_stdin(ADMIN, &["replace", "-f", "-"], &without.to_string()).await?;
        let operator = Operator::spawn(&stage, &[]).await?;
        let blind = stage.namespace("blind").await?;
        stage.manager("blind", "m", "{policies: [{name: p, when: {podsSucceed: {initialDelay: 0s, minPods: 0}}, then: {delete: {}}}]}").await?;
        let timed = stage.namespace("timed").await?;
        stage.manager("timed", "m", DUE).await?;
        stage.deleted("timed", &timed).await?;
        let unknown = |m: &Value| m["status"]["policies"][0]["result"] == "Unknown";
        let manager = stage.manager_until("blind", "m", "Unknown", unknown).await?;
        ensure!(manager["status"]["policies"][0]["reason"] == "Forbidden", "{manager:#}");
        ensure!(manager["status"]["conditions"][0]["status"] == "Unknown");
        let why = operator.http("/readyz").await.err().map(|e| e.to_string()).unwrap_or_default();
        ensure!(why.contains("watch: pods: the API server refuses to list pods"), "{why}");
        let mut again = role;
        again["metadata"] = serde_json::json!({"name": "coppice-operator"});
        stage.kubectl_stdin(ADMIN, &["replace", "-f", "-"], &again.to_string()).await?;
        stage.deleted("blind", &blind).await
    })
}

#[test]
fn settings_that_are_deleted_reset_no_pause_and_are_not_created_again() -> Test {
    alone(async {
        let stage = Stage::start().await?;
        let mut operator = Operator::start(&stage).await?;
        let key = async || -> Option<Value> {
            let config = stage.get("coppiceconfig", "", "coppice").await.ok()??;
            let key = config["status"]["webhookKey"].clone();
            key.is_string().then_some(key)
        };
        let before = stage.until("the first start creates the settings and the key", &key).await?;
        settings(&stage, "{governor: {paused: true}}").await?;
        let uid = stage.namespace("due").await?;
        stage.manager("due", "m", DUE).await?;
        waits_for(&stage, "due", "Paused").await?;
        stage.kubectl(ADMIN, &["delete", "coppiceconfig", "coppice"]).await?;
        waits_for(&stage, "due", "SettingsMissing").await?;
        // Nor does another start: there is a key.
        operator.terminate().await?;
        let operator = Operator::start(&stage).await?;
        operator.leads(&stage).await?;
        stage.namespace("later").await?;
        stage.manager("later", "m", DUE).await?;
        waits_for(&stage, "later", "SettingsMissing").await?;
        waits_for(&stage, "due", "SettingsMissing").await?;
        ensure!(stage.get("coppiceconfig", "", "coppice").await?.is_none(), "they were created again");
        ensure!(stage.namespace_deletes()?.is_empty() && !stage.is_deleted("due", &uid).await);
        // Whoever creates them decides what is in them; the key stays the same.
        settings(&stage, "{governor: {paused: false}}").await?;
        stage.deleted("due", &uid).await?;
        ensure!(stage.until("the key is published again", &key).await? == before);
        Ok(())
    })
}
