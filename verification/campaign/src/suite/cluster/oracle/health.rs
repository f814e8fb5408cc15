//! Whether something had been failing in a namespace for as long as its cluster manager says, judged more simply than the
//! operator does: in the scenarios it is a pod that no controller owns.

use std::time::Duration;

use jiff::SignedDuration;
use serde_json::Value;

use super::rule::HEALTH;
use crate::oracle::notice::{RESOLUTION, span};
use crate::oracle::{Broken, DestructiveStep, Findings, History};

pub(super) fn check(
    history: &History,
    step: &DestructiveStep<'_>,
    (health, phases, revision): (&Value, &[Value], u64),
    found: &Findings,
) -> Result<(), Broken> {
    let period = |field| span(&health[field]);
    // What is done to what is `Failing` waits for no more.
    let is_failing = phases.iter().any(|phase| phase == "Failing");
    let grace = if is_failing { SignedDuration::ZERO } else { period("gracePeriod") };
    // How long ago.
    let ago = |period: SignedDuration| {
        let period = period.checked_sub(RESOLUTION).unwrap_or_default();
        step.done.sent.saturating_sub(Duration::try_from(period).unwrap_or_default())
    };
    let fails = |revision: u64| {
        let pods = history.list("pods", step.namespace, revision);
        pods.iter().any(|pod| {
            let alone = pod["metadata"]["ownerReferences"].is_null();
            pod["status"]["phase"] == "Failed" && alone && pod["metadata"]["deletionTimestamp"].is_null()
        })
    };
    let well_since = |from: Duration| {
        let mut then = history.revisions_between(from, step.done.sent).take_while(|then| *then <= revision);
        then.find(|then| !fails(*then)).or_else(|| (!fails(revision)).then_some(revision))
    };
    let well = well_since(ago(period("settlingPeriod") + grace));
    // What fails again and again need not settle.
    let spent = || {
        let (budget, until) = (&health["failureBudget"], ago(grace));
        let from =
            step.done.sent.saturating_sub(Duration::try_from(span(&budget["window"])).unwrap_or_default());
        let max = span(&budget["max"]).checked_sub(RESOLUTION).unwrap_or_default();
        let not_ok = not_ok(history, (from, until), period("recoveryPeriod"), fails);
        budget["max"].is_string() && not_ok >= max && well_since(until).is_none()
    };
    found.require(HEALTH, well.is_none() || spent(), || {
        let at = well.map(|revision| history.time_of(revision)).unwrap_or_default();
        format!("nothing failed in it at {at:?}, and its periods are {health}")
    })
}

/// For how long something failed between two times, or had failed within the time that it takes to recover.
fn not_ok(
    history: &History,
    (from, until): (Duration, Duration),
    recovery: SignedDuration,
    fails: impl Fn(u64) -> bool,
) -> SignedDuration {
    let recovery = Duration::try_from(recovery).unwrap_or_default();
    let revisions: Vec<u64> = history.revisions_between(from, until).collect();
    let ends = revisions.iter().skip(1).map(|next| history.time_of(*next)).chain([until]);
    let (mut total, mut begins, mut recovered) = (Duration::ZERO, from, from);
    for (revision, ends) in revisions.iter().zip(ends) {
        if fails(*revision) {
            recovered = ends + recovery;
        }
        total += recovered.min(ends).saturating_sub(begins);
        begins = ends;
    }
    SignedDuration::try_from(total).unwrap_or_default()
}
