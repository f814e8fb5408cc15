//! Chains of wrong input: a manager and the settings are changed to what a schema's mutations make of them, one after the other,
//! and back in the end. Whatever was on the way, the end is that of the right input alone.

use std::time::Duration;

use coppice_runtime::clock::SeededRng;
use coppice_schema::mutate;
use coppice_sim::scenario::objects::{config, deployment, manager_path, manager_with, namespace, pod};
use coppice_sim::scenario::{Scenario, ScriptStep};
use coppice_sim::server::Request;
use serde_json::{Value, json};

/// How many wrong values there are, and how far apart.
const LINKS: u64 = 8;
const APART: u64 = 7;

/// A chain that a seed decides. Without one, nothing is ever wrong.
pub fn wrong_input(seed: Option<u64>) -> Scenario {
    let (managers, settings) = (right_manager(), right_settings());
    let mut script = Vec::new();
    let mut end = 5;
    if let Some(seed) = seed {
        let mut rng = SeededRng::new(seed ^ 0x1D_872B_41C0);
        for _ in 0..LINKS {
            let of_settings = rng.next_u64().is_multiple_of(4);
            let (kind, right) =
                if of_settings { ("CoppiceConfig", &settings) } else { ("NamespaceManager", &managers) };
            let object = json!({ "spec": right });
            let mut of_object = SeededRng::new(rng.next_u64());
            let wrong = mutate::pick(&schema(kind), &object, || of_object.next_u64(), 1).pop();
            let wrong = wrong.map_or_else(|| object.clone(), |mutation| mutation.value);
            script.push(ScriptStep::at(end, move |_| replace(of_settings, wrong.get("spec"))).or_not());
            end += APART;
        }
    }
    let (back, usual) = (managers.clone(), settings.clone());
    script.push(ScriptStep::at(end, move |_| replace(true, Some(&usual))));
    // The namespace may have been deleted, as was asked for on the way.
    script.push(ScriptStep::at(end, move |_| replace(false, Some(&back))).or_not());
    Scenario {
        name: "wrong-input",
        about: "a manager and the settings are changed to wrong values, one after the other, and back",
        setup: vec![
            config(&settings),
            namespace("mine"),
            deployment("mine", "web", 2),
            pod("mine", "p"),
            manager_with("mine", &managers),
        ],
        script,
        receiver: Vec::new(),
        replicas: 1,
        read_fault: None,
        webhooks: false,
        target: None,
        ends: Vec::new(),
        // What has failed on the way is tried again within minutes.
        lasts: Duration::from_secs(end) + Duration::from_mins(6),
    }
}

/// Puts a whole spec in the place of what is there; without one, takes it away.
fn replace(of_settings: bool, spec: Option<&Value>) -> Request {
    let path = if of_settings {
        "/apis/coppice.dev/v1alpha1/coppiceconfigs/coppice".to_owned()
    } else {
        format!("{}/m", manager_path("mine"))
    };
    let change = match spec {
        Some(spec) => json!([{ "op": "add", "path": "/spec", "value": spec }]),
        None => json!([{ "op": "remove", "path": "/spec" }]),
    };
    Request::patch(&path, "application/json-patch+json", &change)
}

fn schema(kind: &str) -> Value {
    let crd = coppice_api::crds().into_iter().find(|crd| crd.spec.names.kind == kind);
    let crd = serde_json::to_value(crd).unwrap_or_default();
    let mut schema = crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"].clone();
    if let Some(properties) = schema["properties"].as_object_mut() {
        // Nobody but the operator writes it.
        properties.remove("status");
    }
    schema
}

fn right_manager() -> Value {
    json!({
        "suspend": false,
        "policies": [
            {
                "name": "tests",
                "when": { "podsSucceed": {
                    "selector": { "matchLabels": { "app": "test" } },
                    "initialDelay": "1h", "minPods": 2, "settle": "30s", "ignoreRetried": true,
                } },
                "then": { "webhook": { "url": "https://hooks.example.com/end" } },
            },
            { "name": "end", "when": { "ttl": { "after": "5h" } }, "then": { "delete": { "notice": "10m" } } },
            {
                "name": "sleep", "when": { "ttl": { "until": "2026-01-01T08:00:00Z" } },
                "then": { "scaleDown": { "selectors": [{ "kind": "Deployment" }] } },
            },
        ],
    })
}

fn right_settings() -> Value {
    json!({
        "governor": { "paused": false, "perMinute": 100, "perHour": 1000, "maxShare": "100%", "atLeast": 100 },
        "tenants": { "webhookHosts": ["hooks.example.com"] },
    })
}
