//! Whether something had been failing in a namespace for as long as its cluster manager says, judged more simply than the
//! operator does: in the scenarios it is a pod that no controller owns.

use std::time::Duration;

use serde_json::Value;

use super::rule::HEALTH;
use crate::oracle::notice::{RESOLUTION, span};
use crate::oracle::{Broken, DestructiveStep, Findings, History};

pub(super) fn check(
    history: &History,
    step: &DestructiveStep<'_>,
    (health, revision): (&Value, u64),
    found: &Findings,
) -> Result<(), Broken> {
    let periods = span(&health["settlingPeriod"]) + span(&health["gracePeriod"]);
    let periods = periods.checked_sub(RESOLUTION).unwrap_or_default();
    let from = step.done.sent.saturating_sub(Duration::try_from(periods).unwrap_or_default());
    let fails = |revision: u64| {
        let pods = history.list("pods", step.namespace, revision);
        pods.iter().any(|pod| {
            let alone = pod["metadata"]["ownerReferences"].is_null();
            pod["status"]["phase"] == "Failed" && alone && pod["metadata"]["deletionTimestamp"].is_null()
        })
    };
    let mut then = history.revisions_between(from, step.done.sent).take_while(|then| *then <= revision);
    let well = then.find(|then| !fails(*then)).or_else(|| (!fails(revision)).then_some(revision));
    found.require(HEALTH, well.is_none(), || {
        let at = well.map(|revision| history.time_of(revision)).unwrap_or_default();
        format!("nothing failed in it at {at:?}, and its periods are {health}")
    })
}
