//! Imports of that system's settings, as tests need them.
#![allow(
    dead_code,
    unreachable_pub,
    missing_docs,
    clippy::unwrap_used,
    clippy::panic,
    reason = "each test file uses its part"
)]

use serde_json::Value;

use crate::support::{Ran, run};

/// Of a system that runs in the namespace `ci-manager`.
pub fn import(text: &str) -> Ran {
    run("coppice import ska --namespace ci-manager -", text)
}

/// The documents of a text.
pub fn documents(text: &str) -> Vec<Value> {
    let parts = text.split("---\n").filter(|part| part.contains("apiVersion"));
    parts.map(|part| serde_yaml::from_str(part).unwrap()).collect()
}

/// The specs of the managers that were written, by name.
pub fn specs(ran: &Ran) -> Vec<(String, Value)> {
    let name = |object: &Value| object["metadata"]["name"].as_str().unwrap().to_owned();
    documents(&ran.out).iter().map(|object| (name(object), object["spec"].clone())).collect()
}

/// Settings of both controllers with these entries, without alerts.
pub fn of(collect: &str, action: &str) -> Ran {
    import(&format!(
        "collectController: {{config: {{prometheus: {{enabled: false}}, namespaces: {collect}}}}}\n\
         actionController: {{config: {{namespaces: {action}, notifier: {{token: xoxb-secret}}}}}}\n"
    ))
}

/// One manager, for entries of the same namespaces.
pub fn one(collect: &str, action: &str) -> (Ran, Value) {
    let names = "names: ['ci-.*']";
    let ran = of(&format!("[{{{names}, {collect}}}]"), &format!("[{{{names}, {action}}}]"));
    let all = specs(&ran);
    let [(_, spec)] = &*all else { panic!("{ran:?}") };
    let spec = spec.clone();
    (ran, spec)
}

/// The remarks that begin so, such as `warning: `.
pub fn remarks<'a>(ran: &'a Ran, kind: &str) -> Vec<&'a str> {
    ran.err.lines().filter(|line| line.starts_with(kind)).collect()
}
