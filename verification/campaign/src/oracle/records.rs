//! Whether each deletion of a namespace was recorded before, and the record says what became of it.

use std::time::Duration;

use coppice_sim::run::RunRecord;
use serde_json::Value;

use super::history::History;
use super::rule::{Findings, RECORDED};
use super::steps::{DestructiveAction, DestructiveStep};

/// Records of deletions are kept for so long.
const RECORDS_KEPT: Duration = Duration::from_hours(30 * 24);

pub(super) fn check(
    record: &RunRecord<'_>,
    history: &History,
    steps: &[DestructiveStep<'_>],
    found: &mut Findings,
) {
    for step in steps.iter().filter(|step| step.action == DestructiveAction::Delete) {
        recorded(record, history, step, found);
    }
    records(record, history, found);
}

/// Whether there was a record of a deletion before it, and what it says in the end.
fn recorded(record: &RunRecord<'_>, history: &History, step: &DestructiveStep<'_>, found: &mut Findings) {
    let (what, uid) = (step.what(), history.uid_of(step.namespace, step.change.revision - 1));
    let before = history.list("deletednamespaces", "", step.change.revision - 1);
    // That there is an intent is a rule of its own. Of two which one it was does not show in the request.
    let intents = history.intents(step.namespace, step.change.revision - 1);
    let intents: Vec<&Value> = intents
        .filter(|intent| intent["action"] == step.action.name() && Some(&intent["uid"]) == uid)
        .map(|intent| &intent["id"])
        .collect();
    let decided = |record: &Value| intents.is_empty() || intents.contains(&&record["metadata"]["name"]);
    let about = before.into_iter().find(|record| Some(&record["spec"]["uid"]) == uid && decided(record));
    let Some(decision) = about.and_then(|record| record["metadata"]["name"].as_str()) else {
        found.add(RECORDED, &format!("{what} without a record of the decision"));
        return;
    };
    let last = history.revision_at(record.lasted);
    let namespace = history.at("namespaces", "", step.namespace, last);
    let there = namespace.is_some_and(|now| Some(&now["metadata"]["uid"]) == uid);
    let phase = if there { "Terminating" } else { "Deleted" };
    let says = history.at("deletednamespaces", "", decision, last).map(|record| &record["status"]["phase"]);
    // Long runs: it has been kept long enough.
    let expired = says.is_none() && record.lasted.saturating_sub(step.done.sent) > RECORDS_KEPT;
    if !expired && says.is_none_or(|says| says != phase) {
        found.add(RECORDED, &format!("{what}, and its record says {says:?} instead of {phase}"));
    }
}

/// Whether what records say is so, and none is taken away of a namespace that is being deleted or gone.
fn records(record: &RunRecord<'_>, history: &History, found: &mut Findings) {
    for change in record.changes.iter().filter(|change| &*change.kind.plural == "deletednamespaces") {
        let Some(before) = change.before.as_deref() else { continue };
        let name = before["spec"]["namespace"].as_str().unwrap_or_default();
        let namespace = history
            .at("namespaces", "", name, change.revision)
            .filter(|now| now["metadata"]["uid"] == before["spec"]["uid"]);
        let phase = |record: &Value| record["status"]["phase"].as_str().unwrap_or_default().to_owned();
        match change.after.as_deref().map(phase) {
            Some(now) if now == "Deleted" && namespace.is_some() => {
                found.add(RECORDED, &format!("{name} is recorded as deleted, and is there"));
            }
            None if phase(before) != "Deleted"
                && namespace.is_none_or(|now| now["metadata"]["deletionTimestamp"].is_string()) =>
            {
                found.add(RECORDED, &format!("the record of {name} is gone, and so is {name}"));
            }
            _ => {}
        }
    }
}
