//! Whether a later namespace had taken the place of one that was deleted for that, judged more simply than the operator does: in
//! the scenarios all namespaces are of one project, each of its own pipeline, and ready when each of their pods runs and says so.

use std::time::Duration;

use serde_json::Value;

use super::rule::SUPERSEDED;
use crate::oracle::{Broken, DestructiveStep, Findings, History};

/// Events of a watch are late by less than this.
const LATE: Duration = Duration::from_secs(30);

pub(super) fn check(
    history: &History,
    step: &DestructiveStep<'_>,
    revision: u64,
    found: &Findings,
) -> Result<(), Broken> {
    let nobody = || "no namespace that stands has taken its place".to_owned();
    let Some(older) = history.at("namespaces", "", step.namespace, revision) else {
        return found.require(SUPERSEDED, false, nobody);
    };
    let all = history.list("namespaces", "", revision);
    let stands = |later: &Value| {
        let name = later["metadata"]["name"].as_str().unwrap_or_default();
        let record = history.at("managednamespaces", name, "coppice", revision);
        let says_ok = record.is_some_and(|record| record["status"]["phase"] == "Ok");
        // What its record says may be as old as the latest event of a watch.
        let sent = step.done.sent;
        let mut revisions = history.revisions_between(sent.saturating_sub(LATE), sent);
        let ready = revisions.any(|then| {
            let pods = history.list("pods", name, then);
            !pods.is_empty() && pods.iter().all(|pod| is_ready(pod))
        });
        later["metadata"]["deletionTimestamp"].is_null() && says_ok && ready
    };
    let successor = all.iter().find(|later| follows(later, older) && stands(later));
    found.require(SUPERSEDED, successor.is_some(), nobody)
}

/// Whether a pod runs, and its node says that it is ready.
pub(super) fn is_ready(pod: &Value) -> bool {
    let mut conditions = pod["status"]["conditions"].as_array().into_iter().flatten();
    pod["status"]["phase"] == "Running"
        && conditions.any(|condition| condition["type"] == "Ready" && condition["status"] == "True")
}

/// Whether a namespace is of a later pipeline than another one, and for the same.
pub(super) fn follows(later: &Value, older: &Value) -> bool {
    let label = |object: &Value, key: &str| object["metadata"]["labels"][key].as_str().map(str::to_owned);
    let number = |object: &Value| label(object, "pipeline").and_then(|text| text.parse::<u64>().ok());
    let same = |key| label(later, key).is_some() && label(later, key) == label(older, key);
    number(later) > number(older) && same("project") && (same("branch") || same("commit"))
}
