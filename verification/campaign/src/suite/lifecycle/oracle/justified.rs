//! Whether a policy asked for a step when it was sent, judged more simply than the operator does.

use std::time::Duration;

use coppice_sim::run::RunRecord;
use jiff::{SignedDuration, Timestamp};
use serde_json::Value;

use super::evidence::{self, EvidenceScope, span};
use super::rule::{HELD, INITIAL_DELAY, NOTICE, NOTICE_DATE, SELECTED, SETTLE, SUSPENDED, TTL};
use crate::oracle::rule::REQUESTED;
use crate::oracle::{Broken, DestructiveAction, DestructiveStep, Findings, HONOURED, History, instant};

/// A decision may rest on what was read so long before its request is sent: two seconds (H3), and what it takes to send it.
const READ: Duration = Duration::from_millis(2200);

/// The clocks of two machines that agree, as far as the `Date` header shows it, may differ by this much; the dates in status are whole
/// seconds, too.
const RESOLUTION: SignedDuration = SignedDuration::from_secs(2);

pub(super) fn check(
    record: &RunRecord<'_>,
    history: &History,
    steps: &[DestructiveStep<'_>],
    found: &mut Findings,
) {
    for step in steps {
        let read = if step.action == DestructiveAction::Delete { READ } else { HONOURED };
        let revisions = history.revisions_between(step.done.sent.saturating_sub(read), step.done.sent);
        if let Err((rule, why)) = at_any(record, history, step, revisions, found) {
            found.add(rule, &format!("{}, but {why}", step.what()));
        }
    }
    dates_of_notices(history, found);
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
    let policies = spec["policies"].as_array().map(Vec::as_slice).unwrap_or_default();
    let mut last = found.require(REQUESTED, false, || "no policy says so".to_owned());
    let asks = |policy: &&Value| {
        policy["then"][step.action.name()].is_object()
            && step.intent.is_none_or(|intent| intent["policy"] == policy["name"])
    };
    for policy in policies.iter().filter(asks) {
        last = noticed(record, history, manager, policy, now, found)
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

/// Whether notice of a deletion was given where it is due, and has run.
fn noticed(
    record: &RunRecord<'_>,
    history: &History,
    manager: &Value,
    policy: &Value,
    now: Timestamp,
    found: &Findings,
) -> Result<(), Broken> {
    let notice = span(&policy["then"]["delete"]["notice"]);
    let given = Some(&manager["status"]["notice"]).filter(|given| given["policy"] == policy["name"]);
    let Some(given) = given else {
        return found.require(NOTICE, notice.is_zero(), || "no notice of it was given".to_owned());
    };
    // The `Date` header tells whole seconds: by it a clock may seem right that is up to a second ahead.
    let announced =
        instant(&given["notBefore"]).map_or(Timestamp::MAX, |at| at - SignedDuration::from_secs(1));
    let seen = first_seen(history, manager, given).unwrap_or_default();
    let run = record.began + SignedDuration::try_from(seen).unwrap_or_default() + notice - RESOLUTION;
    let not_before = announced.max(run);
    found
        .require(NOTICE, now >= not_before, || format!("it was announced for {not_before}, and it was {now}"))
}

/// When the notice that a manager shows was there for the first time.
fn first_seen(history: &History, manager: &Value, given: &Value) -> Option<Duration> {
    let metadata = &manager["metadata"];
    let mut versions =
        history.versions("namespacemanagers", metadata["namespace"].as_str()?, metadata["name"].as_str()?);
    let shows = |version: &Value| {
        version["metadata"]["uid"] == metadata["uid"]
            && version["status"]["notice"]["givenAt"] == given["givenAt"]
    };
    let first = versions.find(|(_, version)| version.as_deref().is_some_and(shows));
    Some(history.time_of(first?.0))
}

/// The date of one notice may move later, never earlier: what was announced is what people rely on.
fn dates_of_notices(history: &History, found: &mut Findings) {
    for versions in history.all("namespacemanagers") {
        let mut before: Option<&Value> = None;
        for manager in versions.iter().filter_map(|(_, version)| version.as_deref()) {
            let notice = &manager["status"]["notice"];
            let same = |before: &&Value| {
                ["uid", "policy", "givenAt"].iter().all(|f| notice[f].is_string() && before[f] == notice[f])
            };
            let earlier = |before: &Value| instant(&notice["notBefore"]) < instant(&before["notBefore"]);
            if before.filter(same).is_some_and(earlier) {
                let (name, date) = (&manager["metadata"]["namespace"], &notice["notBefore"]);
                found.add(NOTICE_DATE, &format!("the deletion of {name} was brought forward to {date}"));
            }
            before = Some(notice);
        }
    }
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
