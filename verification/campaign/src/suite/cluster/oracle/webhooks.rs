//! Whether the webhooks that come before the deletion of a namespace were sent.

use std::time::Duration;

use coppice_sim::run::RunRecord;
use jiff::{SignedDuration, Timestamp};
use serde_json::Value;

use super::governed::governing;
use super::rule::WEBHOOKS_FIRST;
use crate::oracle::notice::span;
use crate::oracle::{DestructiveAction, DestructiveStep, Findings, History, instant};

/// A deletion waits for a webhook for so long.
const WAITS: SignedDuration = SignedDuration::from_mins(10);
/// What began so long before a deletion was decided is known to every cache.
const KNOWN: Duration = Duration::from_secs(31);
/// What is due at the time of the deletion itself may come after it.
const APART: Duration = Duration::from_secs(2);

pub(super) fn check(
    record: &RunRecord<'_>,
    history: &History,
    steps: &[DestructiveStep<'_>],
    found: &mut Findings,
) {
    for step in steps.iter().filter(|step| step.action == DestructiveAction::Delete) {
        if let Some(manager) = under_way(history, step) {
            found.add(WEBHOOKS_FIRST, &format!("{} before the webhook of {manager} was sent", step.what()));
        }
        let (before, now) = (step.done.sent.saturating_sub(APART), step.now(record));
        let revision = history.revision_at(before);
        let Some(manager) = governing(history, step.namespace, revision) else { continue };
        let policies = manager["spec"]["policies"].as_array().map(Vec::as_slice).unwrap_or_default();
        let webhooks = policies
            .iter()
            .filter(|policy| policy["then"]["webhook"].is_object() && policy["mode"] != "Observe");
        let then = (revision, now - SignedDuration::try_from(APART).unwrap_or_default());
        for policy in webhooks.filter(|policy| is_due(history, step.namespace, policy, then)) {
            if !was_sent(history, step, (policy, now)) {
                found.add(
                    WEBHOOKS_FIRST,
                    &format!("{} before webhook {} was sent", step.what(), policy["name"]),
                );
            }
        }
    }
}

/// Whether a webhook was due at an instant and its revision: its ttl was over, or there were pods, and all had succeeded.
fn is_due(history: &History, namespace: &str, policy: &Value, (revision, now): (u64, Timestamp)) -> bool {
    let after = &policy["when"]["ttl"]["after"];
    if after.is_string() {
        let object = history.at("namespaces", "", namespace, revision);
        let created = object.and_then(|object| instant(&object["metadata"]["creationTimestamp"]));
        return created.is_some_and(|created| created + span(after) + SignedDuration::from_secs(1) <= now);
    }
    let pods = history.list("pods", namespace, revision);
    policy["when"]["podsSucceed"].is_object()
        && !pods.is_empty()
        && pods.iter().all(|pod| pod["status"]["phase"] == "Succeeded")
}

/// Whether the record says that the webhook has ended, or was decided long enough ago.
fn was_sent(history: &History, step: &DestructiveStep<'_>, (policy, now): (&Value, Timestamp)) -> bool {
    let until = history.revision_at(step.done.sent);
    let versions = history.versions("managednamespaces", step.namespace, "coppice");
    let mut versions = versions.filter(|(revision, _)| *revision <= until).filter_map(|(_, v)| v.as_deref());
    versions.any(|record| {
        let status = &record["status"];
        let ended =
            status["lastFiring"]["policy"] == policy["name"] && status["lastFiring"]["action"] == "webhook";
        let intent = &status["intent"];
        let decided = instant(&intent["decidedAt"]).filter(|_| intent["policy"] == policy["name"]);
        ended || decided.is_some_and(|at| now.duration_since(at) >= WAITS)
    })
}

/// Which manager in the namespace had a webhook under way long before the deletion was decided, and still had it then, less than ten
/// minutes after the date of the deletion.
fn under_way(history: &History, step: &DestructiveStep<'_>) -> Option<String> {
    let versions = history.versions("managednamespaces", step.namespace, "coppice");
    let decided = |record: &Value| record["status"]["intent"]["action"] == "delete";
    let mut versions = versions.filter_map(|(revision, record)| Some((*revision, record.as_deref()?)));
    let (revision, record) = versions.find(|(_, record)| decided(record))?;
    let status = &record["status"];
    let (due, now) = (instant(&status["notice"]["notBefore"])?, instant(&status["intent"]["decidedAt"])?);
    if now.duration_since(due) >= WAITS {
        return None;
    }
    let known = history.revision_at(history.time_of(revision).saturating_sub(KNOWN));
    let webhook = |manager: &Value| {
        let intent = &manager["status"]["intent"];
        (intent["action"] == "webhook").then(|| intent["id"].clone())
    };
    history.list("namespacemanagers", step.namespace, revision).into_iter().find_map(|manager| {
        let name = manager["metadata"]["name"].as_str()?;
        let before = history.at("namespacemanagers", step.namespace, name, known)?;
        let same = webhook(manager)? == webhook(before)?;
        same.then(|| name.to_owned())
    })
}
