//! What a namespace is to have of those above it, and what has to be done for that. Pure.

use std::collections::BTreeMap;
use std::sync::Arc;

use coppice_api::Reason;
use coppice_api::condition::ConditionState;
use coppice_api::namespace_tree::{PropagationMode, RoleBindingPropagation};
use coppice_kinds::{Origin, Propagated};

use super::observe::Observation;
use crate::position::Place;

/// How many problems a condition has in full.
const MAX_PROBLEMS: usize = 3;

/// What to do, and what to say.
#[derive(Debug, PartialEq)]
pub(super) struct PropagationPlan {
    /// In whatever order: none depends on another.
    pub(super) steps: Vec<Step>,
    /// What cannot be done.
    pub(super) problems: Vec<Problem>,
    /// What the tree says about copies here; none while nothing can be said.
    pub(super) mode: Option<PropagationMode>,
}

/// One write.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Step {
    /// Copies this object.
    Create(Arc<Propagated>),
    /// Makes a copy as its source is.
    Update { copy: Arc<Propagated>, source: Arc<Propagated> },
    /// Deletes a copy.
    Delete(Arc<Propagated>),
}

/// Why a namespace does not have something of those above it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Problem {
    pub(super) reason: Reason,
    /// A clause, without its end.
    pub(super) message: String,
}

/// Decides. Depends on nothing but its argument.
pub(super) fn plan(observation: &Observation) -> PropagationPlan {
    let mut plan = PropagationPlan { steps: Vec::new(), problems: Vec::new(), mode: None };
    let there = observation.namespace.as_ref().is_some_and(|namespace| !namespace.terminating);
    if !there || observation.stale.is_some() {
        return plan;
    }
    match &observation.place {
        Place::Unknown(_) => {}
        Place::Out => plan.remove(&observation.own),
        Place::In(position) => {
            // A tree that is not understood is no place.
            let Ok(spec) = position.tree.decoded() else { return plan };
            plan.decide(observation, &spec.propagate.role_bindings);
        }
    }
    plan
}

impl PropagationPlan {
    fn decide(&mut self, observation: &Observation, rules: &RoleBindingPropagation) {
        self.mode = Some(rules.mode);
        match rules.mode {
            PropagationMode::Ignore => {}
            PropagationMode::Remove => self.remove(&observation.own),
            PropagationMode::Propagate => self.propagate(observation, &rules.cluster_roles),
        }
    }

    fn remove<'a>(&mut self, own: impl IntoIterator<Item = &'a Arc<Propagated>>) {
        let copies = own.into_iter().filter(|object| object.origin.is_some() && !object.terminating);
        self.steps.extend(copies.map(|copy| Step::Delete(Arc::clone(copy))));
    }

    fn propagate(&mut self, observation: &Observation, cluster_roles: &[String]) {
        let qualifies = |object: &Propagated| {
            let role = object.cluster_role.as_deref();
            object.origin.is_none() && role.is_some_and(|role| cluster_roles.iter().any(|name| name == role))
        };
        let mut wanted: BTreeMap<&str, &Arc<Propagated>> = BTreeMap::new();
        for source in observation.above.iter().flatten().filter(|object| qualifies(object)) {
            // The nearest came first.
            wanted.entry(&source.name).or_insert(source);
        }
        let own: BTreeMap<&str, &Arc<Propagated>> =
            observation.own.iter().map(|object| (&*object.name, object)).collect();
        for (name, source) in &wanted {
            match own.get(name) {
                None if source.content.is_none() => self.problems.push(too_large(source)),
                // Nobody has rights in a namespace before it has its quota.
                None if !observation.limited => self.mode = None,
                None => self.steps.push(Step::Create(Arc::clone(source))),
                Some(object) if object.origin.is_none() => self.problems.push(name_taken(object, source)),
                // It comes again once it is gone.
                Some(copy) if copy.terminating => self.mode = None,
                Some(_) if source.content.is_none() => self.problems.push(too_large(source)),
                Some(copy) if is_copy(copy, source) => {}
                // The role of a RoleBinding cannot be changed: without this one there is room for another.
                Some(copy) if copy.cluster_role != source.cluster_role => {
                    self.mode = None;
                    self.steps.push(Step::Delete(Arc::clone(copy)));
                }
                Some(copy) => {
                    let (copy, source) = (Arc::clone(copy), Arc::clone(source));
                    self.steps.push(Step::Update { copy, source });
                }
            }
        }
        // What cannot be copied any more is not left as it was either.
        let is_wanted =
            |copy: &Propagated| wanted.get(&*copy.name).is_some_and(|source| source.content.is_some());
        self.remove(observation.own.iter().filter(|object| !is_wanted(object)));
    }

    /// What to say of it: nothing while it is not known or not done.
    pub(super) fn state(&self) -> Option<ConditionState> {
        let state = |status, reason: Reason, message: String| {
            Some(ConditionState { status, reason: reason.to_string(), message })
        };
        if let Some(first) = self.problems.iter().min() {
            return state("False", first.reason, sentence(&self.problems));
        }
        let message = match self.mode? {
            PropagationMode::Propagate => "the namespace has what is copied from those above it",
            PropagationMode::Remove => {
                "nothing is copied from the namespaces above (spec.propagate of the NamespaceTree)"
            }
            PropagationMode::Ignore => {
                "copies are left as they are, and no more are made (spec.propagate of the NamespaceTree)"
            }
        };
        state("True", Reason::Reconciled, message.to_owned())
    }
}

/// Whether a copy is as it has to be.
fn is_copy(copy: &Propagated, source: &Propagated) -> bool {
    let origin = Origin { namespace: source.namespace.clone(), uid: source.uid.clone() };
    copy.origin.as_ref() == Some(&origin) && copy.content == source.content
}

fn name_taken(object: &Propagated, source: &Propagated) -> Problem {
    let message = format!(
        "RoleBinding {0} of namespace {1} is not copied: namespace {2} has a RoleBinding {0} that Coppice did not write; delete that one, \
         or give one of them another name",
        source.name, source.namespace, object.namespace
    );
    Problem { reason: Reason::CopyNameTaken, message }
}

fn too_large(source: &Propagated) -> Problem {
    let message = format!(
        "RoleBinding {} of namespace {} is not copied: it has more than 8 KiB of subjects; bind a group, or split it",
        source.name, source.namespace
    );
    Problem { reason: Reason::CopyRefused, message }
}

/// The first of them in full.
fn sentence(problems: &[Problem]) -> String {
    let mut sorted: Vec<&Problem> = problems.iter().collect();
    sorted.sort();
    let more = sorted.len().saturating_sub(MAX_PROBLEMS);
    let mut texts: Vec<&str> =
        sorted.iter().take(MAX_PROBLEMS).map(|problem| problem.message.as_str()).collect();
    let rest = format!("and {more} more");
    if more > 0 {
        texts.push(&rest);
    }
    texts.join("; ")
}

#[cfg(test)]
#[path = "plan_tests.rs"]
mod tests;
