//! Judges what becomes of namespaces that have a `NamespaceExpiry`, by what the API server saw.

use coppice_sim::run::RunRecord;
use jiff::Timestamp;
use serde_json::{Value, json};

use super::ACCOUNT;
use crate::oracle::notice::{self, span};
use crate::oracle::{Broken, DestructiveStep, EndState, Findings, History, READ, Rule, instant};
use crate::suite::lifecycle::end;

/// A `NamespaceExpiry` has asked for each deletion, and its time had come.
pub const EXPIRED: Rule = Rule("EXPIRED");

/// The resource.
const KIND: &str = "namespaceexpiries";

/// Notes what broke the rules of the sample.
pub(super) fn check(
    record: &RunRecord<'_>,
    history: &History,
    steps: &[DestructiveStep<'_>],
    found: &mut Findings,
) {
    for step in steps.iter().filter(|step| &*step.change.user == ACCOUNT) {
        let mut judged = found.require(EXPIRED, false, || "nothing asks for it".to_owned());
        for revision in history.revisions_between(step.done.sent.saturating_sub(READ), step.done.sent) {
            if judged.is_err()
                && let Some(expiry) = history.at(KIND, "", step.namespace, revision)
            {
                judged = justified(record, history, step, expiry, revision, found);
            }
        }
        if let Err((rule, why)) = judged {
            found.add(rule, &format!("{}, but {why}", step.what()));
        }
    }
}

/// Whether an object, as it was at a revision, justifies the step at the time at which it was sent.
fn justified(
    record: &RunRecord<'_>,
    history: &History,
    step: &DestructiveStep<'_>,
    expiry: &Value,
    revision: u64,
    found: &Findings,
) -> Result<(), Broken> {
    let (spec, now) = (&expiry["spec"], step.now(record));
    let namespace = history.at("namespaces", "", step.namespace, revision);
    let created = namespace.and_then(|namespace| instant(&namespace["metadata"]["creationTimestamp"]));
    let due =
        created.unwrap_or(Timestamp::MAX).saturating_add(span(&spec["after"])).unwrap_or(Timestamp::MAX);
    found.require(EXPIRED, now >= due, || format!("its time ends at {due}, and it was {now}"))?;
    let notice = (&json!("expiry"), span(&spec["notice"]));
    notice::has_run((record, history), (KIND, expiry), notice, now, found)
}

/// How a run ended.
pub(super) fn end_state(record: &RunRecord<'_>) -> EndState {
    let mut end = end::end_state(record);
    for change in record.changes.iter().filter(|change| &*change.kind.plural == KIND) {
        let place = format!("{KIND} {}", change.name());
        match change.after.as_deref().map(|expiry| &expiry["status"]) {
            Some(status) => {
                let masked = json!({"reason": status["reason"], "firings": status["firings"], "intent": status["intent"]["action"]});
                end.objects.insert(place, masked)
            }
            None => end.objects.remove(&place),
        };
    }
    end
}

/// The same in words: also a line for each `NamespaceExpiry`.
pub(super) fn end_lines(end: &EndState) -> Vec<String> {
    let mut lines = end::lines(end);
    for (place, expiry) in &end.objects {
        if let Some(name) = place.strip_prefix(KIND) {
            let (reason, firings) =
                (expiry["reason"].as_str().unwrap_or("unseen"), expiry["firings"].as_i64().unwrap_or(0));
            lines.push(format!("expiry{name}: {reason} {firings}x"));
        }
    }
    lines
}
