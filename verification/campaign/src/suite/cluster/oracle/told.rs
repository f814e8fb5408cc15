//! Whether owners were told before their namespaces were deleted, by what a receiver got.

use std::collections::{BTreeMap, BTreeSet};

use coppice_sim::receiver::Received;
use coppice_sim::run::RunRecord;
use jiff::SignedDuration;
use serde_json::Value;

use super::rule::{DELIVERED, HOURS, ONE_KEY, TOLD};
use crate::oracle::notice::{RESOLUTION, span};
use crate::oracle::{Broken, DestructiveStep, Findings, History, instant};

/// An attempt may be so late.
const OVERDUE: SignedDuration = SignedDuration::from_secs(60);

/// Every message to an owner that was received, with what it says.
fn messages<'a>(record: &'a RunRecord<'_>) -> impl Iterator<Item = (&'a Received, Value)> {
    record.received.iter().filter_map(|received| {
        let said: Value = serde_json::from_slice(&received.body).ok()?;
        (said["type"] == "owner.notice").then_some((received, said))
    })
}

/// Whether notice has run since the announcement that the record of a namespace has was received; or where the manager proceeds
/// unheard, since it does.
pub(super) fn check(
    record: &RunRecord<'_>,
    (spec, noticed): (&Value, &Value),
    step: &DestructiveStep<'_>,
    notice: SignedDuration,
    found: &Findings,
) -> Result<(), Broken> {
    let notify = &spec["notify"];
    if notify.is_null() || notice.is_zero() {
        return Ok(());
    }
    let (now, given) = (step.now(record), &noticed["status"]["notice"]["givenAt"]);
    let announces = |said: &Value| {
        said["for"] == "DeletionAnnounced" && said["namespace"] == step.namespace && said["givenAt"] == *given
    };
    let taken = messages(record).filter(|(received, said)| received.taken && announces(said));
    let told = taken
        .map(|(received, _)| record.began + SignedDuration::try_from(received.at).unwrap_or_default())
        .min();
    let proceeds = (notify["undelivered"]["then"] == "Proceed")
        .then(|| instant(given).map(|given| given + span(&notify["undelivered"]["after"])))
        .flatten();
    let from = told.into_iter().chain(proceeds).min();
    let heard = from.is_some_and(|from| from + notice - RESOLUTION <= now);
    found.require(TOLD, heard, || format!("its owner was told at {told:?}, and it was {now}"))
}

/// One thing is told under one key.
pub(super) fn once(record: &RunRecord<'_>, found: &mut Findings) {
    let mut keys: BTreeMap<String, BTreeSet<&str>> = BTreeMap::new();
    for (received, said) in messages(record) {
        let what = ["uid", "for", "givenAt"].map(|field| said[field].as_str().unwrap_or_default().to_owned());
        keys.entry(what.join(" ")).or_default().insert(&received.id);
    }
    for (what, keys) in keys.iter().filter(|(_, keys)| keys.len() > 1) {
        found.add(ONE_KEY, &format!("{what} was told under {} keys", keys.len()));
    }
}

/// Everything that is owed at the end has been delivered, is a dead letter, or waits for its next attempt.
pub(super) fn delivered(record: &RunRecord<'_>, history: &History, found: &mut Findings) {
    let end = record.began + SignedDuration::try_from(record.lasted).unwrap_or_default();
    let last = |kind| history.all(kind).filter_map(|versions| versions.last()?.1.as_deref());
    for object in last("managednamespaces").chain(last("deletednamespaces")) {
        let (name, status) = (&object["metadata"]["name"], &object["status"]);
        let notices = status["notices"].as_array().map(Vec::as_slice).unwrap_or_default();
        for notice in notices.iter().filter(|notice| notice["state"] == "Pending") {
            let next = instant(&notice["nextAttempt"]);
            if next.is_none_or(|next| next + OVERDUE < end) {
                found.add(DELIVERED, &format!("{} of {name} was to be sent at {next:?}", notice["for"]));
            }
        }
        let owed = object["spec"]["owed"]["messages"].as_array().map_or(0, Vec::len);
        if status["phase"] == "Deleted" && notices.len() != owed {
            found
                .add(DELIVERED, &format!("of {owed} messages that {name} owes {} were begun", notices.len()));
        }
    }
}

/// Nobody is told anything outside working hours. In these scenarios they are in UTC, and on each day.
pub(super) fn within_hours(record: &RunRecord<'_>, history: &History, found: &mut Findings) {
    for (received, said) in messages(record) {
        let name = said["manager"].as_str().unwrap_or_default();
        let manager = history.at("clusternamespacemanagers", "", name, history.revision_at(received.at));
        let Some(manager) = manager else { continue };
        let hours = &manager["spec"]["notify"]["workingHours"];
        let (Some(from), Some(to)) = (hours["from"].as_str(), hours["to"].as_str()) else { continue };
        let at = record.began + SignedDuration::try_from(received.at).unwrap_or_default();
        let time = at.strftime("%H:%M").to_string();
        if &*time < from || &*time >= to {
            found.add(HOURS, &format!("{} was told at {at}", said["namespace"]));
        }
    }
}
