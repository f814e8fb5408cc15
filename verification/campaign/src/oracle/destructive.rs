//! Whether each destructive step was right: the deletion of a namespace, and each workload that is scaled down.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use serde_json::Value;

use super::history::History;
use super::invariant::{Findings, Invariant};
use super::{budget, justified};
use coppice_sim::run::RunRecord;
use coppice_sim::server::{Change, Verb};
use coppice_sim::trace::Actor;
use coppice_sim::{Done, OPERATOR};

/// A decision may rest on what was read so long before its request is sent: two seconds (H3), and what it takes to send it.
const READ: Duration = Duration::from_millis(2200);
/// `paused`, a hold and `suspend` are honoured within this time, also while many workloads are scaled down.
const HONOURED: Duration = Duration::from_secs(5);
/// Records of deletions are kept for so long.
const RECORDS_KEPT: Duration = Duration::from_hours(30 * 24);
/// A clock that is wrong by more than this for so long is known to be wrong: the limit is five seconds.
const WRONG_CLOCK: (SignedDuration, Duration) = (SignedDuration::from_secs(7), Duration::from_secs(15));

/// What a destructive step does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum DestructiveAction {
    Delete,
    ScaleDown,
}

impl DestructiveAction {
    /// As it is written in policies and intents.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Delete => "delete",
            Self::ScaleDown => "scaleDown",
        }
    }
}

/// A destructive step.
pub(super) struct DestructiveStep<'a> {
    pub(super) action: DestructiveAction,
    /// The namespace.
    pub(super) namespace: &'a str,
    /// What the API server did.
    pub(super) change: &'a Change,
    /// What was asked of it.
    pub(super) done: &'a Done,
    /// The intent that stood in status when it was carried out.
    pub(super) intent: Option<&'a Value>,
}

impl DestructiveStep<'_> {
    /// What was done, for people.
    pub(super) fn what(&self) -> String {
        match self.action {
            DestructiveAction::Delete => format!("{} was deleted", self.namespace),
            DestructiveAction::ScaleDown => {
                format!(
                    "{} {}/{} was scaled down",
                    self.change.kind.plural,
                    self.namespace,
                    self.change.name()
                )
            }
        }
    }

    /// The time at which it was sent.
    pub(super) fn now(&self, record: &RunRecord<'_>) -> Timestamp {
        record.began + SignedDuration::try_from(self.done.sent).unwrap_or_default()
    }
}

pub(super) fn check(record: &RunRecord<'_>, history: &History, found: &mut Findings) {
    let mut steps: Vec<DestructiveStep<'_>> = Vec::new();
    for change in record.changes.iter().filter(|change| &*change.user == OPERATOR) {
        let action = match &*change.kind.plural {
            "namespaces" if change.verb == Verb::Delete => DestructiveAction::Delete,
            _ if scaled(change).is_some_and(|(before, after)| after < before) => DestructiveAction::ScaleDown,
            _ => continue,
        };
        let namespace = if action == DestructiveAction::Delete { change.name() } else { change.namespace() };
        let Some(done) = record.done.iter().find(|done| done.revisions.1 == change.revision) else {
            found.add(
                Invariant::Requested,
                &format!("nobody sent the change of {} {}", change.kind.plural, change.name()),
            );
            continue;
        };
        let managers = history.list("namespacemanagers", namespace, change.revision - 1);
        let mut intents = managers.into_iter().map(|manager| &manager["status"]["intent"]);
        let intent = intents.find(|intent| intent["action"] == action.name());
        steps.push(DestructiveStep { action, namespace, change, done, intent });
    }
    for step in &steps {
        one(record, history, step, found);
    }
    records(record, history, found);
    budget::check(record, history, &steps, found);
    justified::dates_of_notices(history, found);
}

/// How big a workload was before and after a change.
pub(crate) fn scaled(change: &Change) -> Option<(u64, u64)> {
    let size = |object: &Option<std::sync::Arc<Value>>| {
        let spec = &object.as_deref()?["spec"];
        match &*change.kind.plural {
            "deployments" | "statefulsets" | "replicasets" => spec["replicas"].as_u64(),
            "cronjobs" => Some(u64::from(spec["suspend"] != true)),
            _ => None,
        }
    };
    Some((size(&change.before)?, size(&change.after)?)).filter(|(before, after)| before != after)
}

fn one(record: &RunRecord<'_>, history: &History, step: &DestructiveStep<'_>, found: &mut Findings) {
    let DestructiveStep { action, namespace, change, done, intent } = step;
    let what = step.what();
    let body: Value = serde_json::from_slice(&done.request.body).unwrap_or(Value::Null);
    let preconditions =
        if *action == DestructiveAction::Delete { &body["preconditions"] } else { &body["metadata"] };
    if !preconditions["uid"].is_string() || !preconditions["resourceVersion"].is_string() {
        found.add(Invariant::Preconditions, &format!("{what} without uid or resourceVersion"));
    }
    let uid =
        history.at("namespaces", "", namespace, change.revision - 1).map(|n| n["metadata"]["uid"].clone());
    if intent.is_none_or(|intent| Some(&intent["uid"]) != uid.as_ref()) {
        found.add(Invariant::IntentFirst, &format!("{what} without an intent in status"));
    }
    if *action == DestructiveAction::Delete {
        recorded(record, history, step, uid.as_ref(), found);
    }
    // A deletion is bound to the revision of its namespace. Of the rest, what is true now may have been changed a moment ago.
    let since = |time: Duration| history.revisions_between(done.sent.saturating_sub(time), done.sent);
    let read = if *action == DestructiveAction::Delete { READ } else { HONOURED };
    let system = namespace.starts_with("kube-") || ["default", "coppice-system"].contains(namespace);
    let protected = |revision| {
        history.at("namespaces", "", namespace, revision).is_none_or(|n| protected(history, n, revision))
    };
    if system
        || since(HONOURED).all(protected)
        || *action == DestructiveAction::Delete && protected(change.revision - 1)
    {
        found.add(Invariant::Protected, &what);
    }
    let paused =
        |revision| history.settings(revision).is_some_and(|c| c["spec"]["governor"]["paused"] == true);
    if since(HONOURED).all(paused) {
        found.add(Invariant::Paused, &format!("{what} while everything was paused"));
    }
    if let Actor::Replica { replica, .. } = done.who
        && let Some(settings) = record.replicas.get(replica)
    {
        let (limit, time) = WRONG_CLOCK;
        let wrong = |at| settings.clock_error_at(at).abs() > limit;
        if wrong(done.sent) && wrong(done.sent.saturating_sub(time)) {
            found.add(Invariant::Clocks, &format!("{what} by replica {replica}, whose clock is wrong"));
        }
    }
    if let Err((invariant, why)) = justified::at_any(record, history, step, since(read), found) {
        found.add(invariant, &format!("{what}, but {why}"));
    }
}

/// Whether there was a record of a deletion before it, and what it says in the end.
fn recorded(
    record: &RunRecord<'_>,
    history: &History,
    step: &DestructiveStep<'_>,
    uid: Option<&Value>,
    found: &mut Findings,
) {
    let what = step.what();
    let before = history.list("deletednamespaces", "", step.change.revision - 1);
    // That there is an intent is a rule of its own.
    let decided =
        |record: &Value| step.intent.is_none_or(|intent| intent["id"] == record["metadata"]["name"]);
    let about = before.into_iter().find(|record| Some(&record["spec"]["uid"]) == uid && decided(record));
    let Some(decision) = about.and_then(|record| record["metadata"]["name"].as_str()) else {
        found.add(Invariant::Recorded, &format!("{what} without a record of the decision"));
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
        found.add(Invariant::Recorded, &format!("{what}, and its record says {says:?} instead of {phase}"));
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
                found.add(Invariant::Recorded, &format!("{name} is recorded as deleted, and is there"));
            }
            None if phase(before) != "Deleted"
                && namespace.is_none_or(|now| now["metadata"]["deletionTimestamp"].is_string()) =>
            {
                found.add(Invariant::Recorded, &format!("the record of {name} is gone, and so is {name}"));
            }
            _ => {}
        }
    }
}

/// Whether a namespace was protected at a revision, by its label or by the settings.
fn protected(history: &History, namespace: &Value, revision: u64) -> bool {
    let metadata = &namespace["metadata"];
    let names = history.settings(revision).map_or(&Value::Null, |c| &c["spec"]["protected"]["names"]);
    metadata["labels"]["coppice.dev/protected"].is_string()
        || names.as_array().into_iter().flatten().any(|name| *name == metadata["name"])
}
