//! Whether what was announced was kept: for every kind that announces deletions in its status.

use std::time::Duration;

use coppice_quantity::Duration as Span;
use coppice_sim::run::RunRecord;
use jiff::{SignedDuration, Timestamp};
use serde_json::Value;

use super::history::{History, instant};
use super::rule::{Broken, Findings, NOTICE, NOTICE_DATE};

/// The clocks of two machines that agree, as far as the `Date` header shows it, may differ by this much; the dates in status are whole
/// seconds, too.
pub(crate) const RESOLUTION: SignedDuration = SignedDuration::from_secs(2);

/// A duration in an object.
pub(crate) fn span(value: &Value) -> SignedDuration {
    let span = value.as_str().and_then(|text| text.parse::<Span>().ok());
    span.map_or(SignedDuration::ZERO, |span| SignedDuration::from_secs(span.as_secs_i64()))
}

/// Whether notice of a deletion by a policy was given in the status of an object of a kind, where it is due, and has run.
pub(crate) fn has_run(
    (record, history): (&RunRecord<'_>, &History),
    (kind, object): (&str, &Value),
    (policy, notice): (&Value, SignedDuration),
    now: Timestamp,
    found: &Findings,
) -> Result<(), Broken> {
    let given = Some(&object["status"]["notice"]).filter(|given| given["policy"] == *policy);
    let Some(given) = given else {
        return found.require(NOTICE, notice.is_zero(), || "no notice of it was given".to_owned());
    };
    // The `Date` header tells whole seconds: by it a clock may seem right that is up to a second ahead.
    let announced =
        instant(&given["notBefore"]).map_or(Timestamp::MAX, |at| at - SignedDuration::from_secs(1));
    let seen = first_seen(history, kind, object, given).unwrap_or_default();
    let run = record.began + SignedDuration::try_from(seen).unwrap_or_default() + notice - RESOLUTION;
    let not_before = announced.max(run);
    found
        .require(NOTICE, now >= not_before, || format!("it was announced for {not_before}, and it was {now}"))
}

/// When the notice that an object shows was there for the first time.
fn first_seen(history: &History, kind: &str, object: &Value, given: &Value) -> Option<Duration> {
    let metadata = &object["metadata"];
    let namespace = metadata["namespace"].as_str().unwrap_or_default();
    let mut versions = history.versions(kind, namespace, metadata["name"].as_str()?);
    let shows = |version: &Value| {
        version["metadata"]["uid"] == metadata["uid"]
            && version["status"]["notice"]["givenAt"] == given["givenAt"]
    };
    let first = versions.find(|(_, version)| version.as_deref().is_some_and(shows));
    Some(history.time_of(first?.0))
}

/// The date of one notice may move later, never earlier: what was announced is what people rely on.
pub(super) fn check(history: &History, found: &mut Findings) {
    for versions in history.everything() {
        let mut before: Option<&Value> = None;
        for object in versions.iter().filter_map(|(_, version)| version.as_deref()) {
            let notice = &object["status"]["notice"];
            let same = |before: &&Value| {
                ["uid", "policy", "givenAt"].iter().all(|f| notice[f].is_string() && before[f] == notice[f])
            };
            let earlier = |before: &Value| instant(&notice["notBefore"]) < instant(&before["notBefore"]);
            if before.filter(same).is_some_and(earlier) {
                let (name, date) = (&object["metadata"]["name"], &notice["notBefore"]);
                found.add(NOTICE_DATE, &format!("the deletion by {name} was brought forward to {date}"));
            }
            before = Some(notice);
        }
    }
}
