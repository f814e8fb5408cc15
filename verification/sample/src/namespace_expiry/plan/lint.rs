//! What holds for every plan that deletes something: the rules of [`coppice_lifecycle::lint`], said a second time, by what the plan looks
//! like. Builds with debug assertions check every plan that they make. Pure.

use coppice_api::steps::{Action, Intent};
use coppice_lifecycle::lint::{self, PlanViolation};
use coppice_lifecycle::steps;

use super::super::observe::Observation;
use super::{ExpiryPlan, POLICY};

/// The rules that this plan breaks; [`plan`](super::plan) breaks none.
pub(super) fn lint(observation: &Observation, plan: &ExpiryPlan) -> Vec<PlanViolation> {
    if coppice_mutants::any_active() {
        // A bug on purpose is to be found by what the program does.
        return Vec::new();
    }
    let (stored, planned) =
        (observation.expiry.status.steps.intent.as_ref(), plan.status.steps.intent.as_ref());
    let mut findings = Vec::new();
    if let Some(new) = planned.filter(|new| stored.is_none_or(|stored| stored.id != new.id)) {
        findings.extend(intent(observation, new));
    }
    if let Some(step) = &plan.step {
        findings.extend(lint::step(step, Action::Delete, stored));
        if planned != Some(step) {
            findings.push(PlanViolation::StepWithoutIntent);
        }
        findings.extend(intent(observation, step));
        let leaves = observation.namespace.as_deref().is_some_and(|namespace| namespace.terminating);
        if leaves || observation.circumstances().block(Action::Delete).is_some() {
            findings.push(PlanViolation::Forbidden);
        }
        if !steps::notice_has_run(&plan.status.steps, POLICY, &step.uid, observation.time.now()) {
            findings.push(PlanViolation::BeforeNotice);
        }
    }
    findings
}

/// An intent deletes the namespace that was observed, which is not protected, and says why.
fn intent(observation: &Observation, intent: &Intent) -> Vec<PlanViolation> {
    let Some(namespace) = observation.namespace.as_deref() else {
        return vec![PlanViolation::NoPrecondition];
    };
    let of_another = (intent.action != Action::Delete).then_some(PlanViolation::NotOfItsPolicy);
    lint::explained(intent, false)
        .into_iter()
        .chain(lint::precondition(intent, namespace))
        .chain(lint::protected(intent, &observation.settings, namespace))
        .chain(of_another)
        .collect()
}
