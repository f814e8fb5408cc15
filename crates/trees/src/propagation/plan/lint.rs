//! What holds for every plan of the copies in a namespace, by what the plan looks like ([`coppice_api::lint`]). Builds with debug assertions
//! check every plan that they make. Pure.

use std::collections::BTreeSet;
use std::sync::Arc;

use coppice_api::lint::{self, PlanViolation};
use coppice_api::reason::ReasonPlace;
use coppice_kinds::{CopiedKind, Propagated};

use super::super::observe::Observation;
use super::{PropagationPlan, Step};
use crate::position::Place;

/// The rules that this plan breaks; [`plan`](super::plan) breaks none.
pub(super) fn lint(observation: &Observation, plan: &PropagationPlan) -> Vec<PlanViolation> {
    if coppice_mutants::any_active() {
        // A bug on purpose is to be found by what the program does.
        return Vec::new();
    }
    let mut findings: Vec<PlanViolation> =
        plan.steps.iter().filter_map(|step| of_step(observation, step)).collect();
    let is_there = observation.namespace.as_ref().is_some_and(|namespace| !namespace.terminating);
    let is_known = observation.stale.is_none() && !matches!(observation.place, Place::Unknown(_));
    let mut once = BTreeSet::new();
    let each_once = plan.steps.iter().all(|step| once.insert(name(step)));
    let may_act = plan.steps.is_empty() || is_there && is_known;
    if !(may_act && each_once) {
        findings.push(PlanViolation::Forbidden);
    }
    let place = ReasonPlace::Propagated;
    let problems = plan.problems.iter().all(|one| lint::is_said(one.reason.as_str(), &one.message, place));
    let state = plan.state().is_none_or(|state| lint::is_said(&state.reason, &state.message, place));
    if !problems || !state {
        findings.push(PlanViolation::ReasonOutOfPlace);
    }
    findings
}

fn name(step: &Step) -> (CopiedKind, &str) {
    let (Step::Create(object)
    | Step::Update { copy: object, .. }
    | Step::Delete(object)
    | Step::Release(object)) = step;
    (object.kind, &*object.name)
}

/// Only copies are changed, as they were read, and only what is no copy is copied, where nothing is that others wrote.
fn of_step(observation: &Observation, step: &Step) -> Option<PlanViolation> {
    let is_own = |copy: &Arc<Propagated>| observation.own.iter().any(|own| Arc::ptr_eq(own, copy));
    let is_above = |source: &Arc<Propagated>| {
        observation.above.iter().flatten().any(|above| Arc::ptr_eq(above, source))
            && source.origin.is_none()
            && source.content.is_some()
    };
    let is_copy = |copy: &Arc<Propagated>| is_own(copy) && copy.origin.is_some() && !copy.terminating;
    let (is_allowed, changed) = match step {
        Step::Create(source) => {
            let is_free =
                !observation.own.iter().any(|own| own.kind == source.kind && own.name == source.name);
            let gives_rights = source.kind == CopiedKind::RoleBinding;
            (is_above(source) && is_free && (observation.limited || !gives_rights), None)
        }
        Step::Update { copy, source } => {
            let is_same = copy.kind == source.kind && copy.name == source.name;
            let same_role = copy.cluster_role == source.cluster_role;
            (is_copy(copy) && is_above(source) && is_same && same_role, Some(copy))
        }
        Step::Delete(copy) => (is_copy(copy), Some(copy)),
        Step::Release(copy) => {
            let detaches = matches!(&observation.place, Place::In(position) if position.is_detaching());
            (is_copy(copy) && detaches, Some(copy))
        }
    };
    if changed.is_some_and(|copy| copy.uid.is_empty() || copy.resource_version.is_empty()) {
        return Some(PlanViolation::NoPrecondition);
    }
    (!is_allowed).then_some(PlanViolation::Forbidden)
}
