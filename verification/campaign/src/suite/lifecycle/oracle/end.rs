//! How a run ends: namespaces, their managers and workloads, and what was done to them.

use std::collections::{BTreeMap, BTreeSet};

use coppice_sim::run::RunRecord;
use coppice_sim::server::Verb;
use serde_json::{Value, json};

use crate::oracle::{EndState, STEPS, scaled};

/// The end in words: a line for each namespace of the scenario, one for webhooks, one for the destructive steps.
pub(in crate::suite) fn lines(end: &EndState) -> Vec<String> {
    let own = |name: &str| name.starts_with("kube-") || ["default", "coppice-system"].contains(&name);
    let times = |effect: &str| end.effects.get(effect).copied().unwrap_or(0);
    let in_all = end.objects.keys().filter_map(|place| place.strip_prefix("namespaces /"));
    let deleted = end.effects.keys().filter_map(|effect| effect.strip_prefix("delete "));
    let names: BTreeSet<&str> = in_all.chain(deleted).filter(|name| !own(name)).collect();
    let (mut lines, mut steps) = (Vec::new(), 0);
    for name in names {
        let there = end.objects.contains_key(&format!("namespaces /{name}"));
        let mut line = format!("{name}: {}", if there { "there" } else { "gone" });
        let mut say = |what: String| {
            line.push_str(", ");
            line.push_str(&what);
        };
        let deleted = times(&format!("delete {name}"));
        steps += deleted;
        if deleted > 0 {
            say(format!("deleted {deleted}x"));
        }
        if let Some(manager) = end.objects.get(&format!("namespacemanagers {name}/m")) {
            let firings = manager["firings"].as_i64().unwrap_or(0);
            say(format!("{} {firings}x", manager["phase"].as_str().unwrap_or("unseen")));
        }
        let mut scaled_to_zero = 0;
        for (place, workload) in &end.objects {
            let Some((kind, of)) =
                place.split_once(' ').filter(|(kind, _)| kind.ends_with("sets") || *kind == "deployments")
            else {
                continue;
            };
            let Some(short) = of.strip_prefix(name).and_then(|rest| rest.strip_prefix('/')) else {
                continue;
            };
            let scaled = |effect: &&String| effect.starts_with(&format!("scale {kind} {of} to "));
            let scalings: usize = end.effects.keys().filter(scaled).map(|effect| times(effect)).sum();
            scaled_to_zero += times(&format!("scale {place} to 0"));
            let scaled = if scalings > 0 { format!(" scaled {scalings}x") } else { String::new() };
            say(format!("{short} {}{scaled}", workload["replicas"]));
        }
        steps += usize::from(scaled_to_zero > 0);
        lines.push(line);
    }
    let webhooks = times("webhooks, by id");
    if webhooks > 0 {
        lines.push(format!("webhooks: {webhooks}"));
    }
    lines.push(format!("{STEPS}{steps}"));
    lines
}

/// How a run ended.
pub(in crate::suite) fn end_state(record: &RunRecord<'_>) -> EndState {
    let mut objects = BTreeMap::new();
    let mut effects: BTreeMap<String, usize> = BTreeMap::new();
    for change in record.changes {
        let kind = &*change.kind.plural;
        let place = format!("{kind} {}/{}", change.namespace(), change.name());
        let masked = change.after.as_deref().and_then(|object| mask(kind, object));
        match masked {
            Some(masked) => objects.insert(place.clone(), masked),
            None => objects.remove(&place),
        };
        if record.is_own(change) {
            let size = |object: &Option<std::sync::Arc<Value>>| {
                object.as_deref().map(|o| o["spec"]["replicas"].clone())
            };
            let effect = match (kind, change.verb) {
                ("namespaces", Verb::Delete) => Some(format!("delete {}", change.name())),
                ("deployments" | "statefulsets", _) if size(&change.before) != size(&change.after) => {
                    Some(format!("scale {place} to {}", size(&change.after).unwrap_or_default()))
                }
                _ => None,
            };
            *effects.entry(effect.unwrap_or_default()).or_default() += 1;
        }
    }
    effects.remove("");
    let ids: BTreeSet<&str> =
        record.received.iter().filter(|r| r.is_taken()).map(|r| r.id.as_str()).collect();
    effects.insert("webhooks, by id".to_owned(), ids.len());
    EndState { objects, effects }
}

/// What must not differ; none for kinds that are not compared.
fn mask(kind: &str, object: &Value) -> Option<Value> {
    match kind {
        "namespaces" => Some(json!({ "phase": object["status"]["phase"] })),
        "deployments" | "statefulsets" => Some(json!({ "replicas": object["spec"]["replicas"] })),
        "namespacemanagers" => {
            let status = &object["status"];
            let policies = status["policies"].as_array().into_iter().flatten();
            let verdicts = policies.map(|p| json!([p["name"], p["result"], p["reason"]])).collect::<Vec<_>>();
            let recorded = status["scaledDown"].as_array().into_iter().flatten();
            Some(json!({
                "spec": object["spec"], "phase": status["phase"], "firings": status["firings"],
                "policies": verdicts, "next": [status["next"]["reason"], status["next"]["action"]],
                "last": [status["lastFiring"]["policy"], status["lastFiring"]["result"]],
                "intent": status["intent"]["action"],
                "scaledDown": recorded.map(|w| json!([w["kind"], w["name"], w["replicas"]])).collect::<Vec<_>>(),
            }))
        }
        _ => None,
    }
}

/// What the operator did that cannot be repeated: the verb, what it was done to, and why. Uids and ids are numbered in the order
/// in which they appear, so that they do not depend on what else there is.
pub(in crate::suite) fn effects(record: &RunRecord<'_>) -> Vec<String> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let mut effects = Vec::new();
    let mut known: Vec<String> = Vec::new();
    let mut number = |id: &str| {
        let at = known.iter().position(|one| one == id);
        at.unwrap_or_else(|| {
            known.push(id.to_owned());
            known.len() - 1
        })
    };
    for change in record.changes.iter().filter(|change| record.is_own(change)) {
        if let Some((before, after)) = scaled(change) {
            effects.push(format!("scale {} {before} {after}", number(&change.uid)));
        }
        match (&*change.kind.plural, change.verb) {
            ("namespaces", Verb::Delete) => effects.push(format!("delete {}", number(&change.uid))),
            ("namespacemanagers", _) => {
                let firing = |object: &Option<std::sync::Arc<Value>>| {
                    object.as_deref().map_or(Value::Null, |object| object["status"]["lastFiring"].clone())
                };
                let (old, new) = (firing(&change.before), firing(&change.after));
                if old["id"] != new["id"] {
                    let (policy, result, reason) =
                        (text(&new["policy"]), text(&new["result"]), text(&new["reason"]));
                    effects.push(format!("fire {} {policy} {result} {reason}", number(&change.uid)));
                }
            }
            _ => {}
        }
    }
    effects.extend(record.received.iter().map(|received| format!("webhook {}", number(&received.id))));
    effects
}
