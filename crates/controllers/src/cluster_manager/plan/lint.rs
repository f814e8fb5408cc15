//! What holds for every plan of cluster managers, by what their statuses look like ([`coppice_api::lint`]). Builds with debug
//! assertions check every plan that they make.

use coppice_api::condition::{
    self, ACCEPTED, APPROVED, BUDGET_SUFFICIENT, CHANNELS_KNOWN, IDENTITIES_KNOWN, OWNERS_KNOWN, READY,
};
use coppice_api::lint::{self, PlanViolation};
use coppice_api::reason::ReasonPlace;

use super::super::observe::Observation;
use super::{StatusPlan, StatusWrite};

/// Where users see the reason of each condition.
const PLACES: [(&str, ReasonPlace); 7] = [
    (ACCEPTED, ReasonPlace::Accepted),
    (APPROVED, ReasonPlace::Approved),
    (BUDGET_SUFFICIENT, ReasonPlace::Budget),
    (CHANNELS_KNOWN, ReasonPlace::Channels),
    (IDENTITIES_KNOWN, ReasonPlace::Identities),
    (OWNERS_KNOWN, ReasonPlace::Owners),
    (READY, ReasonPlace::Ready),
];

/// The rules that this plan breaks; [`plan`](super::plan) breaks none.
pub(super) fn lint(observation: &Observation, plan: &StatusPlan) -> Vec<PlanViolation> {
    if coppice_mutants::any_active() {
        // A bug on purpose is to be found by what the program does.
        return Vec::new();
    }
    plan.writes.iter().flat_map(|write| written(observation, write)).collect()
}

/// A status is about the spec that there is, and says that all is well where that is known of every cluster manager.
fn written(observation: &Observation, write: &StatusWrite) -> Vec<PlanViolation> {
    let StatusWrite { manager, status: after } = write;
    let (before, generation) = (&*manager.status, manager.generation);
    let mut findings = lint::conditions(&before.conditions, &after.conditions, generation, &PLACES);
    if manager.terminating || manager.status_error.is_some() {
        findings.push(PlanViolation::Forbidden);
    }
    if **after == *before {
        findings.push(PlanViolation::NothingNew);
    }
    if after.observed_generation != Some(generation) {
        findings.push(PlanViolation::OfAnotherGeneration);
    }
    let says = |type_: &str| {
        condition::find(&after.conditions, type_).is_some_and(|condition| condition.status == "True")
    };
    let is_understood = observation.managers.iter().all(|one| one.terminating || one.spec.is_ok());
    let all_recorded = after.namespaces.governed <= after.namespaces.recorded;
    let is_ready = is_understood && observation.census.is_some() && all_recorded;
    if says(READY) && !is_ready || says(ACCEPTED) && manager.spec.is_err() {
        findings.push(PlanViolation::ReadyTooEarly);
    }
    findings
}
