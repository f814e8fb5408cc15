//! How a run ends for trees: what each namespace has, and what became of each transfer.

use coppice_api::names::TREE_QUOTA_NAME;
use coppice_sim::run::RunRecord;
use serde_json::{Value, json};

use crate::oracle::EndState;
use crate::suite::lifecycle::end;

/// The kinds that are compared besides those of every namespace.
const COMPARED: [&str; 5] =
    ["limitranges", "quotatransfers", "resourcequotas", "rolebindings", "subnamespaces"];

/// How a run ended.
pub(super) fn end_state(record: &RunRecord<'_>) -> EndState {
    let mut end = end::end_state(record);
    for change in record.changes.iter().filter(|change| COMPARED.contains(&&*change.kind.plural)) {
        let kind = &*change.kind.plural;
        let place = format!("{kind} {}/{}", change.namespace(), change.name());
        match change.after.as_deref().and_then(|object| mask(kind, change.name(), object)) {
            Some(masked) => end.objects.insert(place, masked),
            None => end.objects.remove(&place),
        };
    }
    end
}

/// What must not differ; none for objects that are not compared.
fn mask(kind: &str, name: &str, object: &Value) -> Option<Value> {
    let (spec, status) = (&object["spec"], &object["status"]);
    match kind {
        "resourcequotas" if name == TREE_QUOTA_NAME => {
            Some(json!({"spec": spec["hard"], "status": status["hard"]}))
        }
        "subnamespaces" => Some(json!({"phase": status["phase"], "allotted": status["allotment"]["hard"]})),
        "quotatransfers" => Some(json!({"phase": status["phase"]})),
        "rolebindings" => Some(json!({"roleRef": object["roleRef"], "subjects": object["subjects"]})),
        "limitranges" => Some(json!({"requests": spec["limits"][0]["defaultRequest"]})),
        _ => None,
    }
}

/// The same in words: besides a line for each namespace, one for each quota of a tree (the own one), `Subnamespace` (with what it
/// has), transfer, role binding and limit range (with what containers request by it).
pub(super) fn end_lines(end: &EndState) -> Vec<String> {
    let mut lines = end::lines(end);
    for (place, object) in &end.objects {
        let Some((kind, of)) = place.split_once(' ') else { continue };
        let text = |field: &str| object[field].as_str().unwrap_or("unseen").to_owned();
        lines.extend(match kind {
            "resourcequotas" => {
                let namespace = of.split('/').next().unwrap_or_default();
                Some(format!("own quota of {namespace}: {}", amounts(&object["spec"])))
            }
            "subnamespaces" => {
                Some(format!("subnamespace {of}: {}, {}", text("phase"), amounts(&object["allotted"])))
            }
            "quotatransfers" => Some(format!("transfer {of}: {}", text("phase"))),
            "rolebindings" => Some(format!("role binding {of}")),
            "limitranges" => Some(format!("limit range {of}: {}", amounts(&object["requests"]))),
            _ => None,
        });
    }
    lines
}

fn amounts(hard: &Value) -> String {
    let each = hard.as_object().into_iter().flatten();
    let each: Vec<String> =
        each.map(|(name, amount)| format!("{} {name}", amount.as_str().unwrap_or_default())).collect();
    if each.is_empty() { "nothing".to_owned() } else { each.join(", ") }
}
