//! What holds for every plan of a `QuotaTransfer`, by what the plan looks like ([`coppice_api::lint`]). Builds with debug assertions check
//! every plan that they make. Pure.

use coppice_api::TransferPhase;
use coppice_api::condition::READY;
use coppice_api::lint::{self, PlanViolation};
use coppice_api::reason::ReasonPlace;

use super::super::observe::Observation;
use super::{Step, TransferPlan, is_agreed};

/// The rules that this plan breaks; [`plan`](super::plan) breaks none.
pub(super) fn lint(observation: &Observation, plan: &TransferPlan) -> Vec<PlanViolation> {
    if coppice_mutants::any_active() {
        // A bug on purpose is to be found by what the program does.
        return Vec::new();
    }
    let mut findings = said(observation, plan);
    findings.extend(history(observation, plan));
    let (object, before) = (&observation.object, &*observation.object.status);
    // A step is taken on what is written down.
    if plan.step != Step::Nothing && plan.status != *before {
        findings.push(PlanViolation::StepWithoutIntent);
    }
    let (has_ended, is_known) = (before.ended_at.is_some(), observation.stale.is_none());
    let is_allowed = match &plan.step {
        Step::Nothing => true,
        Step::AddFinalizer => is_known && !has_ended && !object.has_finalizer && !object.terminating,
        Step::RemoveFinalizer => has_ended && object.has_finalizer,
        Step::Quota(place, _) => is_known && !has_ended && object.has_finalizer && *place < before.path.len(),
    };
    if !is_allowed {
        findings.push(PlanViolation::Forbidden);
    }
    findings
}

/// A status is about the spec that there is, and says that the quota has moved where it has.
fn said(observation: &Observation, plan: &TransferPlan) -> Vec<PlanViolation> {
    let (object, after) = (&observation.object, &plan.status);
    let (before, generation) = (&*object.status, object.generation);
    let places = [(READY, ReasonPlace::Ready)];
    let mut findings = lint::conditions(&before.conditions, &after.conditions, generation, &places);
    let seen = (before.observed_generation, after.observed_generation);
    findings.extend(lint::observed_generation(seen.0, seen.1, generation));
    let is_complete = after.phase == Some(TransferPhase::Completed) && after.ended_at.is_some();
    if lint::says_ready(&before.conditions, &after.conditions) && !is_complete {
        findings.push(PlanViolation::ReadyTooEarly);
    }
    let is_seen = plan
        .events
        .iter()
        .all(|event| lint::is_said(event.reason.as_str(), &event.message, ReasonPlace::Event));
    if !is_seen {
        findings.push(PlanViolation::ReasonOutOfPlace);
    }
    findings
}

/// What has ended stays so, and what has begun keeps its way; it begins with everybody's consent, and ends nowhere on its way.
fn history(observation: &Observation, plan: &TransferPlan) -> Vec<PlanViolation> {
    let (object, after) = (&observation.object, &plan.status);
    let before = &*object.status;
    let (has_ended, has_begun) = (before.ended_at.is_some(), !before.path.is_empty());
    let is_reopened = has_ended
        && (before.ended_at, before.phase, &before.path) != (after.ended_at, after.phase, &after.path);
    let is_redirected = has_begun
        && (&before.path, before.begun_at, &before.tree) != (&after.path, after.begun_at, &after.tree);
    let ends = !has_ended && after.ended_at.is_some();
    let mut findings = Vec::new();
    if is_reopened || is_redirected || ends && after.at.is_some() || plan.found_nowhere && !ends {
        findings.push(PlanViolation::HistoryChanged);
    }
    let begins = !has_begun && !after.path.is_empty();
    let may_begin = !object.terminating
        && object.decoded().is_ok_and(|spec| spec.amount.is_ok() && is_agreed(spec, &object.namespace));
    if begins && !may_begin {
        findings.push(PlanViolation::Forbidden);
    }
    findings
}
