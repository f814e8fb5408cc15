//! What holds for every plan of a Subnamespace that deletes something: the rules of [`coppice_lifecycle::lint`], said a second time, by
//! what the plan looks like. Builds with debug assertions check every plan that they make. Pure.

use coppice_api::steps::{Action, Intent};
use coppice_lifecycle::facts::NamespaceFacts;
use coppice_lifecycle::lint::{self, PlanViolation};

use super::super::observe::Observation;
use super::moving::parent_ends;
use super::{Lowest, Step, SubnamespacePlan};

/// The rules that this plan breaks; [`plan`](super::plan) breaks none.
pub(super) fn lint(observation: &Observation, plan: &SubnamespacePlan) -> Vec<PlanViolation> {
    if coppice_mutants::any_active() {
        // A bug on purpose is to be found by what the program does.
        return Vec::new();
    }
    let stored = observation.object.status.steps.intent.as_ref();
    let planned = plan.status.steps.intent.as_ref();
    let mut findings = Vec::new();
    if let Some(new) = planned.filter(|new| stored.is_none_or(|stored| stored.id != new.id)) {
        findings.extend(intent(observation, new));
    }
    match &plan.step {
        Step::DeleteNamespace(step) => {
            findings.extend(lint::step(step, Action::Delete, stored));
            if planned != Some(step) {
                findings.push(PlanViolation::StepWithoutIntent);
            }
            findings.extend(intent(observation, step));
            let leaves = observation.own_namespace().is_some_and(|namespace| namespace.terminating);
            if is_forbidden(observation) || leaves || !observation.children.is_empty() {
                findings.push(PlanViolation::Forbidden);
            }
        }
        Step::DeleteBelow(lowest) => findings.extend(below(observation, lowest)),
        _ => {}
    }
    findings
}

/// An intent deletes the namespace that this object created, which is not protected, and says why.
fn intent(observation: &Observation, intent: &Intent) -> Vec<PlanViolation> {
    let Some(namespace) = observation.own_namespace() else { return vec![PlanViolation::NoPrecondition] };
    let of_another = (intent.action != Action::Delete).then_some(PlanViolation::NotOfItsPolicy);
    lint::explained(intent, false)
        .into_iter()
        .chain(lint::precondition(intent, namespace))
        .chain(lint::protected(intent, &observation.settings, namespace))
        .chain(of_another)
        .collect()
}

/// One of those below goes only where the object consents to that, and where neither namespace is protected.
fn below(observation: &Observation, lowest: &Lowest) -> Vec<PlanViolation> {
    let protected = |namespace: &NamespaceFacts| observation.settings.protection(namespace).is_some();
    let one = observation.below.iter().find(|(object, _)| object.uid == lowest.0.uid);
    let own = observation.own_namespace().is_some_and(|namespace| protected(namespace));
    let mut findings = Vec::new();
    if own || one.is_some_and(|(_, namespace)| namespace.as_deref().is_some_and(protected)) {
        findings.push(PlanViolation::Protected);
    }
    let now = observation.time.now();
    let until = observation.object.decoded().ok().and_then(|spec| spec.cascade_until);
    if one.is_none() || until.is_none_or(|until| until <= now) || is_forbidden(observation) {
        findings.push(PlanViolation::Forbidden);
    }
    findings
}

/// Whether nobody has asked for a deletion, or something says that there is none now.
fn is_forbidden(observation: &Observation) -> bool {
    !observation.object.terminating
        || parent_ends(observation)
        || observation.stale.is_some()
        || observation.circumstances().block(Action::Delete).is_some()
}
