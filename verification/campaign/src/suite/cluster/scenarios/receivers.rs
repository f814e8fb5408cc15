//! Policies that wait for pods, and receivers that hear of it.

use std::time::Duration;

use coppice_sim::receiver::ReceiverBehavior;
use coppice_sim::scenario::objects::{cluster_manager, config, manager, namespace, pod, pod_phase};
use coppice_sim::scenario::{Scenario, ScriptStep};
use serde_json::{Value, json};

use super::{ci, scenario};

fn webhook(when: &Value) -> Value {
    json!({ "name": "tell", "when": when, "then": { "webhook": { "url": "https://hooks.example.com/end" } } })
}

/// The pods of one of two namespaces succeed; of a third one they did before, and run again while notice runs.
pub(super) fn pods_succeed() -> Scenario {
    let mut scenario = scenario(
        "cluster-pods-succeed",
        "of three namespaces one is deleted when its pods have succeeded, of which a receiver is notified at the third attempt",
    );
    let succeeded = json!({ "podsSucceed": { "initialDelay": "0s" } });
    let mut spec = ci("Enforce", "10h", "20s");
    spec["policies"][0]["when"] = succeeded.clone();
    let mut tell = webhook(&succeeded);
    tell["when"]["podsSucceed"]["selector"] = json!({ "matchLabels": { "app": "test" } });
    if let Some(policies) = spec["policies"].as_array_mut() {
        policies.push(tell);
    }
    scenario.receiver =
        vec![ReceiverBehavior::Unavailable, ReceiverBehavior::TakesSilently, ReceiverBehavior::Takes];
    for name in ["ci-done", "ci-runs"] {
        scenario.setup.extend([namespace(name), pod(name, "p")]);
    }
    scenario.setup.push(cluster_manager("ci", &spec));
    scenario.script = vec![ScriptStep::at(25, |_| pod_phase("ci-done", "p", "Succeeded"))];
    scenario.lasts = Duration::from_mins(11);
    scenario.ends = vec![
        "ci-done: gone, deleted 1x",
        "ci-runs: there, Ok PodsNotFinished",
        "ci: governs 1, due 0, Reconciled",
        "webhooks: 1",
    ];
    scenario
}

/// A pod is there again while notice runs.
pub(super) fn pods_run_again() -> Scenario {
    let mut scenario = scenario(
        "cluster-pods-run-again",
        "the pods of a namespace have succeeded, and another one comes while notice runs",
    );
    let mut spec = ci("Enforce", "10h", "30s");
    spec["policies"][0]["when"] = json!({ "podsSucceed": { "initialDelay": "0s" } });
    scenario.setup.extend([namespace("ci-again"), pod("ci-again", "p"), cluster_manager("ci", &spec)]);
    scenario.script = vec![
        ScriptStep::at(15, |_| pod_phase("ci-again", "p", "Succeeded")),
        ScriptStep::at(35, |_| pod("ci-again", "another")),
    ];
    scenario.ends = vec!["ci-again: there, Ok PodsNotFinished", "ci: governs 1, due 0, Reconciled"];
    scenario
}

/// Both are due at once.
pub(super) fn webhooks_first() -> Scenario {
    let mut scenario = scenario(
        "cluster-webhooks-first",
        "a webhook and a deletion are due at the same time, and the receiver is not available at first",
    );
    let mut spec = ci("Enforce", "20s", "0s");
    if let Some(policies) = spec["policies"].as_array_mut() {
        policies.push(webhook(&json!({ "ttl": { "after": "20s" } })));
    }
    scenario.receiver = vec![ReceiverBehavior::Unavailable];
    scenario.setup.extend([namespace("ci-due"), cluster_manager("ci", &spec)]);
    scenario.lasts = Duration::from_mins(11);
    scenario.ends = vec!["ci-due: gone, deleted 1x", "ci: governs 0, due 0, Reconciled", "webhooks: 1"];
    scenario
}

/// A manager of the namespace has a webhook under way when its time has come.
pub(super) fn tenant_webhooks_first() -> Scenario {
    let mut scenario = scenario(
        "cluster-tenant-webhooks-first",
        "the webhook of a manager in a namespace is under way when a cluster manager is to delete it",
    );
    let tells = json!([{
        "name": "tell", "when": { "ttl": { "after": "5s" } },
        "then": { "webhook": { "url": "https://hooks.example.com/end" } },
    }]);
    scenario.receiver = vec![ReceiverBehavior::Unavailable; 5];
    scenario.setup = vec![
        config(&json!({
            "governor": { "perMinute": 100, "perHour": 1000, "maxShare": "100%", "atLeast": 100 },
            "tenants": { "webhookHosts": ["hooks.example.com"] },
        })),
        namespace("ci-due"),
        manager("ci-due", &tells),
        cluster_manager("ci", &ci("Enforce", "60s", "10s")),
    ];
    scenario.lasts = Duration::from_mins(14);
    scenario.ends = vec!["ci-due: gone, deleted 1x", "ci: governs 0, due 0, Reconciled", "webhooks: 1"];
    scenario
}
