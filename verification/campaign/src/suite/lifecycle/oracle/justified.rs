//! Whether a policy asked for a step when it was sent, judged more simply than the operator does.

use std::time::Duration;

use coppice_sim::run::RunRecord;
use jiff::Timestamp;
use serde_json::Value;

use super::evidence::{self, EvidenceScope};
use super::rule::{HELD, INITIAL_DELAY, LIMITS, SELECTED, SETTLE, SUSPENDED, TTL};
use crate::oracle::notice::{self, RESOLUTION, span};
use crate::oracle::rule::REQUESTED;
use crate::oracle::{Broken, DestructiveAction, DestructiveStep, Findings, HONOURED, History, READ, instant};
use crate::suite::cluster::governing;

pub(super) fn check(
    record: &RunRecord<'_>,
    history: &History,
    steps: &[DestructiveStep<'_>],
    found: &mut Findings,
) {
    for step in steps {
        by_managers(record, history, step, found);
    }
}

/// Notes it if no manager in the namespace asked for a step.
pub(in crate::suite) fn by_managers(
    record: &RunRecord<'_>,
    history: &History,
    step: &DestructiveStep<'_>,
    found: &mut Findings,
) {
    let read = if step.action == DestructiveAction::Delete { READ } else { HONOURED };
    let revisions = history.revisions_between(step.done.sent.saturating_sub(read), step.done.sent);
    if let Err((rule, why)) = at_any(record, history, step, revisions, found) {
        found.add(rule, &format!("{}, but {why}", step.what()));
    }
}

/// Whether the step was justified at one of these revisions; otherwise why it was not at the last of them.
fn at_any(
    record: &RunRecord<'_>,
    history: &History,
    step: &DestructiveStep<'_>,
    revisions: impl Iterator<Item = u64>,
    found: &Findings,
) -> Result<(), Broken> {
    let mut last = found.require(REQUESTED, false, || "there is no manager that asks for it".to_owned());
    for revision in revisions {
        for manager in history.list("namespacemanagers", step.namespace, revision) {
            last = justified(record, history, step, manager, revision, found);
            if last.is_ok() {
                return last;
            }
        }
    }
    last
}

/// Whether a manager, as it was at a revision, justifies the step at the time at which it was sent.
fn justified(
    record: &RunRecord<'_>,
    history: &History,
    step: &DestructiveStep<'_>,
    manager: &Value,
    revision: u64,
    found: &Findings,
) -> Result<(), Broken> {
    let (spec, now) = (&manager["spec"], step.now(record));
    found.require(SUSPENDED, spec["suspend"] != true, || "its manager is suspended".to_owned())?;
    let held = instant(&spec["hold"]["until"]).is_some_and(|until| now < until);
    found.require(HELD, !held, || "it is held".to_owned())?;
    let limits = limits(history, step.namespace, revision);
    let permitted = limits["tenantActions"].as_array();
    let permitted = permitted.is_none_or(|actions| actions.iter().any(|action| action == step.action.name()));
    found.require(LIMITS, permitted, || "its cluster manager does not permit that".to_owned())?;
    let policies = spec["policies"].as_array().map(Vec::as_slice).unwrap_or_default();
    let mut last = found.require(REQUESTED, false, || "no policy says so".to_owned());
    let asks = |policy: &&Value| {
        policy["then"][step.action.name()].is_object()
            && step.intent.is_none_or(|intent| intent["policy"] == policy["name"])
    };
    for policy in policies.iter().filter(asks) {
        let own = span(&policy["then"]["delete"]["notice"]);
        let delete = step.action == DestructiveAction::Delete;
        let minimum = if delete { span(&limits["minNotice"]) } else { own };
        let notice = (&policy["name"], own.max(minimum));
        last = notice::has_run((record, history), ("namespacemanagers", manager), notice, now, found)
            .and_then(|()| condition(record, history, step, manager, policy, revision, found))
            .and_then(|()| {
                let selected =
                    step.action == DestructiveAction::Delete || selects(&policy["then"]["scaleDown"], step);
                found.require(SELECTED, selected, || "its policy does not select it".to_owned())
            });
        if last.is_ok() {
            break;
        }
    }
    last
}

/// The limits of the cluster manager that governs a namespace, if it enforces.
fn limits<'a>(history: &'a History, namespace: &str, revision: u64) -> &'a Value {
    let governs = governing(history, namespace, revision);
    governs
        .filter(|manager| manager["spec"]["mode"] == "Enforce")
        .map_or(&Value::Null, |m| &m["spec"]["limits"])
}

/// Whether the condition of a policy was true.
fn condition(
    record: &RunRecord<'_>,
    history: &History,
    step: &DestructiveStep<'_>,
    manager: &Value,
    policy: &Value,
    revision: u64,
    found: &Findings,
) -> Result<(), Broken> {
    let now = step.now(record);
    let namespace = history.at("namespaces", "", step.namespace, revision);
    let created =
        namespace.and_then(|n| instant(&n["metadata"]["creationTimestamp"])).unwrap_or(Timestamp::MAX);
    let when = &policy["when"];
    if let Some(ttl) = when["ttl"].as_object() {
        let own = match ttl.get("until") {
            Some(until) => instant(until).unwrap_or(Timestamp::MAX),
            None => created.saturating_add(span(&when["ttl"]["after"])).unwrap_or(Timestamp::MAX),
        };
        let due = instant(&manager["spec"]["extendUntil"]).map_or(own, |extended| own.max(extended));
        return found.require(TTL, now >= due, || format!("its time ends at {due}, and it was {now}"));
    }
    let wanted = &when["podsSucceed"];
    let earliest = created.saturating_add(span(&wanted["initialDelay"])).unwrap_or(Timestamp::MAX);
    found.require(INITIAL_DELAY, now >= earliest, || {
        format!("initialDelay ends at {earliest}, and it was {now}")
    })?;
    let place = EvidenceScope { history, namespace: step.namespace };
    evidence::holds(place, wanted, revision, found)?;
    let settle = span(&wanted["settle"]).checked_sub(RESOLUTION).unwrap_or_default();
    let Ok(settle) = Duration::try_from(settle) else { return Ok(()) };
    let from = step.done.sent.saturating_sub(settle);
    let mut then = history.revisions_between(from, step.done.sent).take_while(|r| *r <= revision);
    let broken = then.find_map(|revision| evidence::holds(place, wanted, revision, found).err());
    let why =
        || format!("its pods have not held for the time to settle: {}", broken.as_ref().map_or("", |b| &b.1));
    found.require(SETTLE, broken.is_none(), why)
}

/// Whether a scale-down is about a workload.
fn selects(scale_down: &Value, step: &DestructiveStep<'_>) -> bool {
    let workload = step.change.before.as_deref().unwrap_or(&Value::Null);
    let kind = match &*step.change.kind.plural {
        "deployments" => "Deployment",
        "statefulsets" => "StatefulSet",
        "replicasets" => "ReplicaSet",
        _ => "CronJob",
    };
    match scale_down["selectors"].as_array() {
        None => ["Deployment", "StatefulSet"].contains(&kind),
        Some(selectors) => selectors.iter().any(|selector| {
            selector["kind"] == kind
                && evidence::matches(&selector["selector"], &workload["metadata"]["labels"])
        }),
    }
}
