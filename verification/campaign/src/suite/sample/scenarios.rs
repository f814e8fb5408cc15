//! What people do with a `NamespaceExpiry`, and how it ends.

use std::time::Duration;

use coppice_sim::scenario::objects::{config, delete_after, manager, namespace};
use coppice_sim::scenario::{Scenario, ScriptStep};
use coppice_sim::server::Request;
use serde_json::{Value, json};

/// Those that seeds choose from.
pub(super) fn all() -> Vec<Scenario> {
    vec![due(), shortened(), extended(), protected(), shared_budget()]
}

/// One that expires, and nothing else.
pub(super) fn small() -> Scenario {
    let mut scenario = scenario("expiry-small", "one namespace expires");
    scenario.setup.extend(expiring("due", "10s", "5s"));
    scenario.ends = vec!["due: gone, deleted 1x", "expiry due: Dormant 1x"];
    scenario.lasts = Duration::from_secs(30);
    scenario
}

/// One replica of each program, which is started again when it is killed, and a minute and a half.
fn scenario(name: &'static str, about: &'static str) -> Scenario {
    let definition = serde_json::to_value(coppice_sample::crd()).unwrap_or(Value::Null);
    Scenario {
        name,
        about,
        setup: vec![Request::post("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", &definition)],
        script: Vec::new(),
        receiver: Vec::new(),
        replicas: 1,
        read_fault: None,
        webhooks: false,
        target: None,
        ends: Vec::new(),
        lasts: Duration::from_secs(90),
    }
}

const EXPIRIES: &str = "/apis/sample.coppice.dev/v1alpha1/namespaceexpiries";

/// Creates a namespace and its `NamespaceExpiry`.
fn expiring(name: &str, after: &str, notice: &str) -> [Request; 2] {
    let object = json!({
        "apiVersion": "sample.coppice.dev/v1alpha1", "kind": "NamespaceExpiry",
        "metadata": { "name": name }, "spec": { "after": after, "notice": notice },
    });
    [namespace(name), Request::post(EXPIRIES, &object)]
}

/// Changes `after` of a `NamespaceExpiry`.
fn change(name: &str, after: &str) -> Request {
    let patch = json!({ "spec": { "after": after } });
    Request::patch(&format!("{EXPIRIES}/{name}"), "application/merge-patch+json", &patch)
}

fn due() -> Scenario {
    let mut scenario = scenario("expiry-due", "one namespace expires, one much later, and one has no expiry");
    scenario.setup.extend(expiring("due", "30s", "10s"));
    scenario.setup.extend(expiring("later", "5h", "1h"));
    scenario.setup.push(namespace("free"));
    scenario.replicas = 2;
    scenario.script = vec![ScriptStep::kill_leader(25)];
    scenario.ends = vec![
        "due: gone, deleted 1x",
        "later: there",
        "free: there",
        "expiry due: Dormant 1x",
        "expiry later: TtlRunning 0x",
    ];
    scenario
}

fn shortened() -> Scenario {
    let about = "an expiry is shortened to a time that has passed: notice runs from then on";
    let mut scenario = scenario("expiry-shortened", about);
    scenario.setup.extend(expiring("cut", "5h", "30s"));
    scenario.script = vec![ScriptStep::at(20, |_| change("cut", "10s"))];
    scenario.ends = vec!["cut: gone, deleted 1x", "expiry cut: Dormant 1x"];
    scenario
}

fn extended() -> Scenario {
    let mut scenario = scenario("expiry-extended", "an expiry is extended seconds before its end");
    scenario.setup.extend(expiring("kept", "40s", "20s"));
    scenario.script = vec![ScriptStep::at(37, |_| change("kept", "5h"))];
    scenario.ends = vec!["kept: there", "expiry kept: TtlRunning 0x"];
    scenario
}

fn protected() -> Scenario {
    let mut scenario = scenario("expiry-protected", "a namespace is protected while its notice runs");
    scenario.setup.extend(expiring("shielded", "40s", "20s"));
    let patch = json!({ "metadata": { "labels": { "coppice.dev/protected": "" } } });
    scenario.script = vec![ScriptStep::at(30, move |_| {
        Request::patch("/api/v1/namespaces/shielded", "application/merge-patch+json", &patch)
    })];
    scenario.ends = vec!["shielded: there", "expiry shielded: NamespaceProtected 0x"];
    scenario
}

fn shared_budget() -> Scenario {
    let about =
        "two namespaces of managers and two that expire are due at once, and two a minute may be deleted";
    let mut scenario = scenario("expiry-budget", about);
    scenario.setup.push(config(&json!({ "governor": { "perMinute": 2 } })));
    for name in ["managed-a", "managed-b"] {
        scenario.setup.extend([namespace(name), manager(name, &json!([delete_after("20s")]))]);
    }
    for name in ["expiring-a", "expiring-b"] {
        scenario.setup.extend(expiring(name, "20s", "0s"));
    }
    scenario.ends = vec![
        "managed-a: gone, deleted 1x",
        "managed-b: gone, deleted 1x",
        "expiring-a: gone, deleted 1x",
        "expiring-b: gone, deleted 1x",
        "expiry expiring-a: Dormant 1x",
        "expiry expiring-b: Dormant 1x",
    ];
    // The ledger says for a while that the budget was spent.
    scenario.lasts = Duration::from_secs(200);
    scenario
}
