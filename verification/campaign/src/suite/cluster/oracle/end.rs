//! How a run ends: namespaces with their records, and what cluster managers count.

use std::collections::{BTreeMap, BTreeSet};

use coppice_sim::run::RunRecord;
use coppice_sim::server::Verb;
use serde_json::{Value, json};

use crate::oracle::{EndState, STEPS, scaled};

/// Webhooks that a receiver has taken, by id.
const WEBHOOKS: &str = "webhooks, by id";

/// The end in words: a line for each namespace of the scenario, one for each cluster manager, one for the deletions.
pub(in crate::suite) fn lines(end: &EndState) -> Vec<String> {
    let own = |name: &str| name.starts_with("kube-") || ["default", "coppice-system"].contains(&name);
    let there = end.objects.keys().filter_map(|place| place.strip_prefix("namespaces /"));
    let deleted = end.effects.keys().filter_map(|effect| effect.strip_prefix("delete "));
    let names: BTreeSet<&str> = there.chain(deleted).filter(|name| !own(name)).collect();
    let text = |value: &Value| value.as_str().unwrap_or("unseen").to_owned();
    let mut lines = Vec::new();
    for name in names {
        let there = end.objects.contains_key(&format!("namespaces /{name}"));
        let mut said = vec![if there { "there" } else { "gone" }.to_owned()];
        said.extend(end.effects.get(&format!("delete {name}")).map(|times| format!("deleted {times}x")));
        said.extend(end.objects.get(&format!("managednamespaces {name}/coppice")).map(|record| {
            let phase = record["phase"].as_str().map(|phase| format!("{phase} ")).unwrap_or_default();
            format!("{phase}{}", text(&record["next"][0]))
        }));
        let workloads = format!("deployments {name}/");
        for (place, workload) in &end.objects {
            let Some(short) = place.strip_prefix(&workloads) else { continue };
            let times = end.effects.get(&format!("scale {name}/{short}")).copied().unwrap_or(0);
            said.push(format!("{short} {} scaled {times}x", workload["replicas"]));
        }
        lines.push(format!("{name}: {}", said.join(", ")));
    }
    for (place, manager) in &end.objects {
        let Some(name) = place.strip_prefix("clusternamespacemanagers /") else { continue };
        let (governed, due) = (&manager["namespaces"]["governed"], &manager["enforce"][0]);
        lines.push(format!("{name}: governs {governed}, due {due}, {}", text(&manager["ready"])));
    }
    let webhooks = end.effects.get(WEBHOOKS).copied().unwrap_or(0);
    if webhooks > 0 {
        lines.push(format!("webhooks: {webhooks}"));
    }
    lines.push(format!("{STEPS}{}", end.effects.values().sum::<usize>() - webhooks));
    lines
}

/// How a run ended.
pub(in crate::suite) fn end_state(record: &RunRecord<'_>) -> EndState {
    let (mut objects, mut effects) = (BTreeMap::new(), BTreeMap::new());
    for change in record.changes {
        let kind = &*change.kind.plural;
        let place = format!("{kind} {}/{}", change.namespace(), change.name());
        match change.after.as_deref().and_then(|object| mask(kind, object)) {
            Some(masked) => objects.insert(place, masked),
            None => objects.remove(&place),
        };
        if record.is_own(change) && kind == "namespaces" && change.verb == Verb::Delete {
            *effects.entry(format!("delete {}", change.name())).or_default() += 1;
        }
        if record.is_own(change) && scaled(change).is_some() {
            *effects.entry(format!("scale {}/{}", change.namespace(), change.name())).or_default() += 1;
        }
    }
    // How many messages people get depends on which of them are joined.
    let webhooks = record.received.iter().filter(|received| received.is_taken() && received.to.is_none());
    let ids: BTreeSet<&str> = webhooks.map(|received| received.id.as_str()).collect();
    if !ids.is_empty() {
        effects.insert(WEBHOOKS.to_owned(), ids.len());
    }
    EndState { objects, effects }
}

/// What must not differ; none for kinds that are not compared.
fn mask(kind: &str, object: &Value) -> Option<Value> {
    let status = &object["status"];
    match kind {
        "namespaces" => Some(json!({ "phase": status["phase"] })),
        "deployments" => Some(json!({ "replicas": object["spec"]["replicas"] })),
        "managednamespaces" => Some(json!({
            "spec": object["spec"], "manager": status["manager"]["name"], "phase": status["phase"],
            "next": [status["next"]["reason"], status["next"]["action"]], "firings": status["firings"],
            "intent": status["intent"]["action"], "announced": status["notice"]["policy"],
        })),
        "clusternamespacemanagers" => {
            let mut conditions = status["conditions"].as_array().into_iter().flatten();
            let ready =
                conditions.find(|condition| condition["type"] == "Ready").map(|ready| &ready["reason"]);
            // How many a switch would make due depends on how old they are when they are counted.
            let enforce = ["due", "policies", "sample"].map(|field| status["enforce"][field].clone());
            Some(json!({ "namespaces": status["namespaces"], "enforce": enforce, "ready": ready }))
        }
        _ => None,
    }
}

/// What the operator did that cannot be repeated: deletions and changes of workloads, by the number of the namespace, and what was recorded of them.
pub(in crate::suite) fn effects(record: &RunRecord<'_>) -> Vec<String> {
    let mut known: Vec<&str> = Vec::new();
    let mut number = |uid| {
        known.iter().position(|one| *one == uid).unwrap_or_else(|| {
            known.push(uid);
            known.len() - 1
        })
    };
    let mut effects = Vec::new();
    for change in record.changes.iter().filter(|change| record.is_own(change)) {
        let firing = |object: &Option<std::sync::Arc<Value>>| {
            object.as_deref().map_or(Value::Null, |object| object["status"]["lastFiring"].clone())
        };
        match (&*change.kind.plural, change.verb) {
            _ if scaled(change).is_some() => effects.push(format!("scale {}", number(&*change.uid))),
            ("namespaces", Verb::Delete) => effects.push(format!("delete {}", number(&*change.uid))),
            ("managednamespaces", _) if firing(&change.before) != firing(&change.after) => {
                let firing = firing(&change.after);
                let said = ["policy", "result", "reason"]
                    .map(|field| firing[field].as_str().unwrap_or_default().to_owned());
                effects.push(format!("fire {} {}", number(&*change.uid), said.join(" ")));
            }
            _ => {}
        }
    }
    effects
}
