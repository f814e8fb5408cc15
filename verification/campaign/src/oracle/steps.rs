//! The destructive steps: the deletion of a namespace, and each workload that is scaled down. What each of them has to be, whoever
//! asked for it.

use std::time::Duration;

use coppice_sim::Done;
use coppice_sim::run::RunRecord;
use coppice_sim::server::{Change, Verb};
use coppice_sim::trace::Actor;
use jiff::{SignedDuration, Timestamp};
use serde_json::Value;

use super::history::History;
use super::rule::{BREAKER, CLOCKS, Findings, INTENT_FIRST, PAUSED, PRECONDITIONS, PROTECTED, REQUESTED};

/// `paused`, a hold and `suspend` are honoured within this time, also while many workloads are scaled down.
pub(crate) const HONOURED: Duration = Duration::from_secs(5);
/// A decision to delete may rest on what was read so long before its request is sent: two seconds (H3), and what it takes to
/// send it.
pub(crate) const READ: Duration = Duration::from_millis(2200);
/// A clock that is wrong by more than this for so long is known to be wrong: the limit is five seconds.
const WRONG_CLOCK: (SignedDuration, Duration) = (SignedDuration::from_secs(7), Duration::from_secs(15));

/// What a destructive step does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DestructiveAction {
    /// A namespace is deleted.
    Delete,
    /// A workload is scaled down.
    ScaleDown,
}

impl DestructiveAction {
    /// As it is written in policies and intents.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Delete => "delete",
            Self::ScaleDown => "scaleDown",
        }
    }
}

/// A destructive step.
pub struct DestructiveStep<'a> {
    /// What it does.
    pub action: DestructiveAction,
    /// The namespace.
    pub namespace: &'a str,
    /// What the API server did.
    pub change: &'a Change,
    /// What was asked of it.
    pub done: &'a Done,
    /// The intent about this uid of its namespace that stood in a status when it was carried out.
    pub intent: Option<&'a Value>,
}

impl DestructiveStep<'_> {
    /// What was done, for people.
    pub fn what(&self) -> String {
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
    pub fn now(&self, record: &RunRecord<'_>) -> Timestamp {
        record.began + SignedDuration::try_from(self.done.sent).unwrap_or_default()
    }
}

/// Every destructive step of the programs that ran, in order.
pub(super) fn all<'a>(
    record: &'a RunRecord<'_>,
    history: &'a History,
    found: &mut Findings,
) -> Vec<DestructiveStep<'a>> {
    let mut steps = Vec::new();
    for change in record.changes.iter().filter(|change| record.is_own(change)) {
        let action = match &*change.kind.plural {
            "namespaces" if change.verb == Verb::Delete => DestructiveAction::Delete,
            _ if scaled(change).is_some_and(|(before, after)| after < before) => DestructiveAction::ScaleDown,
            _ => continue,
        };
        let namespace = if action == DestructiveAction::Delete { change.name() } else { change.namespace() };
        let Some(done) = record.done.iter().find(|done| done.revisions.1 == change.revision) else {
            found.add(
                REQUESTED,
                &format!("nobody sent the change of {} {}", change.kind.plural, change.name()),
            );
            continue;
        };
        let uid = history.uid_of(namespace, change.revision - 1);
        let mut intents = history.intents(namespace, change.revision - 1);
        let intent = intents.find(|intent| intent["action"] == action.name() && Some(&intent["uid"]) == uid);
        steps.push(DestructiveStep { action, namespace, change, done, intent });
    }
    steps
}

pub(super) fn check(
    record: &RunRecord<'_>,
    history: &History,
    steps: &[DestructiveStep<'_>],
    found: &mut Findings,
) {
    for step in steps {
        one(record, history, step, found);
    }
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
        found.add(PRECONDITIONS, &format!("{what} without uid or resourceVersion"));
    }
    if intent.is_none() {
        found.add(INTENT_FIRST, &format!("{what} without an intent in status"));
    }
    // A deletion is bound to the revision of its namespace. Of the rest, what is true now may have been changed a moment ago.
    let honoured = || history.revisions_between(done.sent.saturating_sub(HONOURED), done.sent);
    let system = namespace.starts_with("kube-") || ["default", "coppice-system"].contains(namespace);
    let protected = |revision| {
        history.at("namespaces", "", namespace, revision).is_none_or(|n| protected(history, n, revision))
    };
    if system
        || honoured().all(protected)
        || *action == DestructiveAction::Delete && protected(change.revision - 1)
    {
        found.add(PROTECTED, &what);
    }
    let paused =
        |revision| history.settings(revision).is_some_and(|c| c["spec"]["governor"]["paused"] == true);
    if honoured().all(paused) {
        found.add(PAUSED, &format!("{what} while everything was paused"));
    }
    let acknowledged = || {
        let settings = history.settings(change.revision - 1);
        settings.is_some_and(|settings| {
            let id = &settings["spec"]["governor"]["acknowledge"];
            let opened = |settings: &Value| settings["status"]["governor"]["breaker"]["id"] == *id;
            let mut versions = history.versions("coppiceconfigs", "", "coppice");
            id.is_string() && versions.any(|(_, settings)| settings.as_deref().is_some_and(opened))
        })
    };
    let collapsed = |&(replica, at): &(usize, Duration)| {
        matches!(done.who, Actor::Replica { replica: who, .. } if who == replica) && at < done.sent
    };
    if record.emptied.iter().any(collapsed) && !acknowledged() {
        found.add(BREAKER, &format!("{what} after a list had collapsed"));
    }
    if let Actor::Replica { replica, .. } = done.who
        && let Some(settings) = record.replicas.get(replica)
    {
        let (limit, time) = WRONG_CLOCK;
        let wrong = |at| settings.clock_error_at(at).abs() > limit;
        if wrong(done.sent) && wrong(done.sent.saturating_sub(time)) {
            found.add(CLOCKS, &format!("{what} by replica {replica}, whose clock is wrong"));
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
