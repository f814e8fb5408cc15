//! Whether each deletion of a namespace was right, judged anew and more simply than the operator does.

use std::time::Duration;

use coppice_quantity::Duration as Span;
use jiff::{SignedDuration, Timestamp};
use serde_json::Value;

use super::history::{History, instant};
use crate::run::Truth;
use crate::server::{Change, Verb};
use crate::world::{Done, OPERATOR};

/// A decision may rest on what was read so long before its request was sent: the time between fresh read and DELETE (H3), which is
/// two seconds, and what the answers took.
const READ: Duration = Duration::from_secs(4);
/// The clocks of two machines that agree, as far as the `Date` header shows it, may differ by this much; the dates in status are whole
/// seconds, too.
const RESOLUTION: SignedDuration = SignedDuration::from_secs(2);
/// Booked a minute apart, two deletions are sent so far apart at least: the step after the booking may take some time.
const MINUTE: Duration = Duration::from_secs(54);
/// The kill switch is honoured within this time.
const SWITCH: Duration = Duration::from_secs(5);

pub(super) fn violations(truth: &Truth<'_>, history: &History) -> Vec<String> {
    let mut found = Vec::new();
    let deletions: Vec<&Change> = truth.changes.iter().filter(|change| is_ours(change)).collect();
    for change in &deletions {
        match truth
            .done
            .iter()
            .find(|done| done.revisions.1 == change.revision && done.request.method == http::Method::DELETE)
        {
            Some(done) => judge(truth, history, change, done, &mut found),
            None => found.push(format!("GROUND TRUTH: nobody sent the deletion of {}", change.name())),
        }
    }
    found.extend(budget(truth, history, &deletions));
    found
}

fn is_ours(change: &Change) -> bool {
    change.kind.plural == "namespaces" && change.verb == Verb::Delete && &*change.user == OPERATOR
}

fn judge(truth: &Truth<'_>, history: &History, change: &Change, done: &Done, found: &mut Vec<String>) {
    let name = change.name();
    let body: Value = serde_json::from_slice(&done.request.body).unwrap_or(Value::Null);
    let preconditions = &body["preconditions"];
    if !preconditions["uid"].is_string() || !preconditions["resourceVersion"].is_string() {
        found.push(format!("ONE DECISION, ONE UID: {name} was deleted without uid or resourceVersion"));
    }
    let namespace = change.before.as_deref().unwrap_or(&Value::Null);
    if name.starts_with("kube-") || name == "default" || name == "coppice-system" || protected(namespace) {
        found.push(format!("PROTECTED: {name} was deleted"));
    }
    let from = done.sent.saturating_sub(READ);
    let window = || history.revisions_between(from, done.sent);
    let decided =
        window().flat_map(|revision| history.list("namespacemanagers", name, revision)).collect::<Vec<_>>();
    let now = truth.began + SignedDuration::try_from(done.at).unwrap_or_default();
    let reasons: Vec<String> = window()
        .flat_map(|revision| {
            let managers = history.list("namespacemanagers", name, revision);
            managers.into_iter().map(move |manager| (revision, manager))
        })
        .map(|(revision, manager)| unjustified(truth, history, namespace, manager, revision, now).err())
        .map(Option::unwrap_or_default)
        .collect();
    if decided.is_empty() {
        found.push(format!("FAIL TO KEEP: {name} was deleted, and it has no manager"));
    } else if reasons.iter().all(|reason| !reason.is_empty()) {
        found.push(format!(
            "FAIL TO KEEP: {name} was deleted, but {}",
            reasons.last().map_or("", String::as_str)
        ));
    }
    let intended = history.list("namespacemanagers", name, change.revision - 1).iter().any(|manager| {
        manager["status"]["intent"]["uid"] == namespace["metadata"]["uid"]
            && manager["status"]["intent"]["action"] == "delete"
    });
    if !intended {
        found.push(format!("CRASH-ONLY: {name} was deleted without an intent in status"));
    }
    let switched_off = |revision: u64| {
        history
            .at("coppiceconfigs", "", "coppice", revision)
            .is_some_and(|c| c["spec"]["governor"]["paused"] == true)
    };
    if history.revisions_between(done.sent.saturating_sub(SWITCH), done.sent).all(switched_off) {
        found.push(format!("CAPPED: {name} was deleted while everything was paused"));
    }
}

fn protected(namespace: &Value) -> bool {
    namespace["metadata"]["labels"]["coppice.dev/protected"].is_string()
}

/// Why a manager, as it was at a revision, does not justify a deletion at `now`.
fn unjustified(
    truth: &Truth<'_>,
    history: &History,
    namespace: &Value,
    manager: &Value,
    revision: u64,
    now: Timestamp,
) -> Result<(), String> {
    let spec = &manager["spec"];
    if spec["suspend"] == true {
        return Err("its manager is suspended".to_owned());
    }
    if instant(&spec["hold"]["until"]).is_some_and(|until| now < until) {
        return Err("it is held".to_owned());
    }
    let policies = spec["policies"].as_array().map(Vec::as_slice).unwrap_or_default();
    let mut last = Err("no policy says so".to_owned());
    for policy in policies.iter().filter(|policy| policy["then"]["delete"].is_object()) {
        last = true_policy(truth.began, history, namespace, manager, policy, revision, now);
        if last.is_ok() {
            break;
        }
    }
    last
}

fn true_policy(
    began: Timestamp,
    history: &History,
    namespace: &Value,
    manager: &Value,
    policy: &Value,
    revision: u64,
    now: Timestamp,
) -> Result<(), String> {
    let created = instant(&namespace["metadata"]["creationTimestamp"]).unwrap_or(Timestamp::MAX);
    let notice = span(&policy["then"]["delete"]["notice"]);
    if !notice.is_zero() {
        let given = &manager["status"]["notice"];
        let at = first_told(history, manager, began).filter(|_| given["uid"] == namespace["metadata"]["uid"]);
        if at.is_none_or(|at| now < at + notice - RESOLUTION) {
            return Err(format!("its notice of {notice:?} had not passed"));
        }
    }
    let when = &policy["when"];
    if let Some(ttl) = when["ttl"].as_object() {
        let own = match ttl.get("until") {
            Some(until) => instant(until).unwrap_or(Timestamp::MAX),
            None => created + span(&when["ttl"]["after"]),
        };
        let due = instant(&manager["spec"]["extendUntil"]).map_or(own, |extended| own.max(extended));
        return if now >= due { Ok(()) } else { Err(format!("its time ends at {due}, and it was {now}")) };
    }
    let wanted = &when["podsSucceed"];
    let pods = history.list("pods", namespace["metadata"]["name"].as_str().unwrap_or_default(), revision);
    let least = usize::try_from(wanted["minPods"].as_u64().unwrap_or(1)).unwrap_or(usize::MAX);
    let ended = pods.iter().filter(|pod| pod["status"]["phase"] == "Succeeded").count();
    if ended < pods.len() || ended < least {
        return Err(format!("{ended} of {} pods had succeeded, of at least {least}", pods.len()));
    }
    Ok(())
}

/// When the notice that a manager shows was there for the first time.
fn first_told(history: &History, manager: &Value, began: Timestamp) -> Option<Timestamp> {
    let given = manager["status"]["notice"]["givenAt"].as_str()?;
    let metadata = &manager["metadata"];
    let mut versions =
        history.versions("namespacemanagers", metadata["namespace"].as_str()?, metadata["name"].as_str()?);
    let first = versions.find(|(_, version)| {
        version.as_ref().is_some_and(|version| version["status"]["notice"]["givenAt"] == given)
    });
    let at = SignedDuration::try_from(history.time_of(first?.0)).ok()?;
    Some(began + at)
}

fn span(value: &Value) -> SignedDuration {
    let span = value.as_str().and_then(|text| text.parse::<Span>().ok());
    span.map_or(SignedDuration::ZERO, |span| SignedDuration::from_secs(span.as_secs_i64()))
}

/// Whether more deletions were sent in a minute than may be. What was held up on its way may arrive together with later ones.
fn budget(truth: &Truth<'_>, history: &History, deletions: &[&Change]) -> Vec<String> {
    let sent = |change: &Change| {
        let ours = truth.done.iter().find(|done| done.revisions.1 == change.revision);
        ours.map_or(Duration::ZERO, |done| done.sent)
    };
    let mut times: Vec<(Duration, u64)> = deletions.iter().map(|c| (sent(c), c.revision)).collect();
    times.sort_unstable();
    let mut found = Vec::new();
    for (n, (last, revision)) in times.iter().enumerate() {
        let config = history.at("coppiceconfigs", "", "coppice", *revision);
        let limit = config.and_then(|c| c["spec"]["governor"]["perMinute"].as_u64()).unwrap_or(20);
        let within = |first: &&(Duration, u64)| last.saturating_sub(first.0) < MINUTE;
        let count = times[..=n].iter().filter(within).count() as u64;
        if count > limit {
            found.push(format!(
                "CAPPED: {count} deletions were sent in the minute before {last:?}, of at most {limit}"
            ));
        }
    }
    found
}
