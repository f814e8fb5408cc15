//! How a run ends: what a scenario says, and what must be the same, whatever went wrong on the way.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use coppice_sim::OPERATOR;
use coppice_sim::run::RunRecord;
use coppice_sim::server::Verb;

/// How a run ended, and what effects there were. Times, ids and revisions are left out: they may differ.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EndState {
    /// Namespaces, managers and workloads, by place, as far as they must not differ.
    pub objects: BTreeMap<String, Value>,
    /// How often the operator did what cannot be repeated, by what it did it to.
    pub effects: BTreeMap<String, usize>,
}

impl EndState {
    /// In which way the end differs from what a scenario states. A line that ends in `*` leaves the rest open; `steps` need not be
    /// stated.
    pub fn unlike(&self, stated: &[&str]) -> Vec<String> {
        let lines = self.lines();
        let fits = |line: &str, stated: &str| match stated.strip_suffix('*') {
            Some(beginning) => line.starts_with(beginning),
            None => line == stated,
        };
        let missing = stated.iter().filter(|stated| !lines.iter().any(|line| fits(line, stated)));
        let mut found: Vec<String> =
            missing.map(|stated| format!("END: {stated:?} is not so, but {lines:?}")).collect();
        let other = lines
            .iter()
            .filter(|line| !line.starts_with("steps: ") && !stated.iter().any(|stated| fits(line, stated)));
        found.extend(other.map(|line| format!("END: {line:?} is not among {stated:?}")));
        found
    }

    /// The end in words: a line for each namespace of the scenario, one for webhooks, one for the destructive steps.
    fn lines(&self) -> Vec<String> {
        let own = |name: &str| name.starts_with("kube-") || ["default", "coppice-system"].contains(&name);
        let times = |effect: &str| self.effects.get(effect).copied().unwrap_or(0);
        let in_all = self.objects.keys().filter_map(|place| place.strip_prefix("namespaces /"));
        let deleted = self.effects.keys().filter_map(|effect| effect.strip_prefix("delete "));
        let names: BTreeSet<&str> = in_all.chain(deleted).filter(|name| !own(name)).collect();
        let (mut lines, mut steps) = (Vec::new(), 0);
        for name in names {
            let there = self.objects.contains_key(&format!("namespaces /{name}"));
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
            if let Some(manager) = self.objects.get(&format!("namespacemanagers {name}/m")) {
                let firings = manager["firings"].as_i64().unwrap_or(0);
                say(format!("{} {firings}x", manager["phase"].as_str().unwrap_or("unseen")));
            }
            let mut scaled_to_zero = 0;
            for (place, workload) in &self.objects {
                let Some((kind, of)) = place
                    .split_once(' ')
                    .filter(|(kind, _)| kind.ends_with("sets") || *kind == "deployments")
                else {
                    continue;
                };
                let Some(short) = of.strip_prefix(name).and_then(|rest| rest.strip_prefix('/')) else {
                    continue;
                };
                let scaled = |effect: &&String| effect.starts_with(&format!("scale {kind} {of} to "));
                let scalings: usize = self.effects.keys().filter(scaled).map(|effect| times(effect)).sum();
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
        lines.push(format!("steps: {steps}"));
        lines
    }

    /// In which way another end differs from this one.
    pub fn differences(&self, other: &Self) -> Vec<String> {
        let mut found = Vec::new();
        let places: BTreeSet<&String> = self.objects.keys().chain(other.objects.keys()).collect();
        for place in places {
            let (wanted, got) = (self.objects.get(place), other.objects.get(place));
            if wanted != got {
                let show = |value: Option<&Value>| value.map_or("not there".to_owned(), Value::to_string);
                found.push(format!("ALIKE: {place} should be {} and is {}", show(wanted), show(got)));
            }
        }
        let effects: BTreeSet<&String> = self.effects.keys().chain(other.effects.keys()).collect();
        for effect in effects {
            let count = |end: &Self| end.effects.get(effect).copied().unwrap_or(0);
            if count(self) != count(other) {
                found.push(format!(
                    "ALIKE: {effect} should happen {} times and did {}",
                    count(self),
                    count(other)
                ));
            }
        }
        found
    }
}

pub(crate) fn end_state(record: &RunRecord<'_>) -> EndState {
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
        if &*change.user == OPERATOR {
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
    let ids: BTreeSet<&str> = record.received.iter().filter(|r| r.taken).map(|r| r.id.as_str()).collect();
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
