//! Whether what a spec made due at once was approved, or not more than the hourly budget.

use coppice_sim::run::RunRecord;
use jiff::{SignedDuration, Timestamp};
use serde_json::Value;

use super::governed::{governing, without_consent};
use super::rule::APPROVED;
use crate::oracle::notice::span;
use crate::oracle::{Broken, DestructiveStep, Findings, History, instant};

/// Namespaces that are older than this when a spec begins to govern were there before.
const NEW: SignedDuration = SignedDuration::from_secs(120);

pub(super) fn check(
    record: &RunRecord<'_>,
    history: &History,
    step: &DestructiveStep<'_>,
    (manager, revision): (&Value, u64),
    found: &Findings,
) -> Result<(), Broken> {
    let began = began(record, history, manager, revision);
    let settled = began + span(&manager["spec"]["settle"]);
    let now = step.now(record);
    let due_by_spec = |namespace: &Value| {
        let name = namespace["metadata"]["name"].as_str().unwrap_or_default();
        let user = history.at("managednamespaces", name, "coppice", revision);
        let user = user.map_or(&Value::Null, |record| &record["spec"]);
        let created = instant(&namespace["metadata"]["creationTimestamp"]).unwrap_or(Timestamp::MAX);
        let own = created.saturating_add(span(&manager["spec"]["ttl"]["after"])).unwrap_or(Timestamp::MAX);
        let due = instant(&user["extendUntil"]["at"]).map_or(own, |extended| own.max(extended));
        let same = |other: &Value| other["metadata"]["uid"] == manager["metadata"]["uid"];
        created.saturating_add(NEW).unwrap_or(Timestamp::MAX) < began
            && due < settled
            && namespace["metadata"]["deletionTimestamp"].is_null()
            && namespace["metadata"]["labels"]["coppice.dev/protected"].is_null()
            && instant(&user["hold"]["until"]).is_none_or(|until| until <= now)
            && governing(history, name, revision).is_some_and(same)
    };
    let namespaces = history.list("namespaces", "", revision);
    let mut due = namespaces.iter().filter(|namespace| due_by_spec(namespace));
    let concerned = due.clone().any(|namespace| namespace["metadata"]["name"] == *step.namespace);
    let count = due.by_ref().count() as u64;
    let governor = history.settings(revision).map_or(&Value::Null, |settings| &settings["spec"]["governor"]);
    let hourly = governor["perHour"].as_u64().unwrap_or(300);
    let approval = &manager["spec"]["approval"];
    let approved = approval["digest"] == manager["status"]["policyDigest"]
        && approval["namespaces"].as_u64() >= Some(count)
        && instant(&approval["validUntil"]).is_none_or(|until| now < until);
    found.require(APPROVED, !concerned || count <= hourly || approved, || {
        format!(
            "its spec made {count} namespaces due, the budget is {hourly} an hour, and nobody approved that"
        )
    })
}

/// Since when the spec of a manager decides as it does at a revision.
fn began(record: &RunRecord<'_>, history: &History, manager: &Value, revision: u64) -> Timestamp {
    let name = manager["metadata"]["name"].as_str().unwrap_or_default();
    let versions = history.versions("clusternamespacemanagers", "", name).rev();
    let same = |other: &Value| {
        other["metadata"]["uid"] == manager["metadata"]["uid"]
            && without_consent(&other["spec"]) == without_consent(&manager["spec"])
    };
    let since = versions
        .skip_while(|(at, _)| *at > revision)
        .take_while(|(_, other)| other.as_deref().is_some_and(same))
        .last()
        .map_or(revision, |(at, _)| *at);
    record.began + SignedDuration::try_from(history.time_of(since)).unwrap_or_default()
}
