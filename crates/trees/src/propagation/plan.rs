//! What a namespace is to have of those above it, and what has to be done for that. Pure.

mod lint;

use std::collections::BTreeMap;
use std::sync::Arc;

use coppice_api::Reason;
use coppice_api::condition::ConditionState;
use coppice_api::names::ANNOTATION_PROPAGATE_TO;
use coppice_api::namespace_tree::{Propagation, PropagationMode};
use coppice_kinds::{CopiedKind, Origin, Propagated};

use super::observe::Observation;
use super::targets::{self, InvalidSelector};
use crate::position::Place;

/// How many problems a condition has in full.
const MAX_PROBLEMS: usize = 3;

/// What to do, and what to say.
#[derive(Debug, PartialEq)]
pub(super) struct PropagationPlan {
    /// Kind by kind, in their order; otherwise none depends on another.
    pub(super) steps: Vec<Step>,
    /// What cannot be done.
    pub(super) problems: Vec<MissingCopy>,
    /// What the tree says about the copies of each kind here; none while nothing can be said.
    pub(super) modes: Option<BTreeMap<CopiedKind, PropagationMode>>,
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
    /// Makes a copy an object as any other.
    Release(Arc<Propagated>),
}

/// Why a namespace does not have something of those above it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct MissingCopy {
    pub(super) reason: Reason,
    /// A clause, without its end.
    pub(super) message: String,
}

/// Decides. Depends on nothing but its argument.
pub(super) fn plan(observation: &Observation) -> PropagationPlan {
    let plan = needed(observation);
    debug_assert_eq!(lint::lint(observation, &plan), Vec::new(), "{plan:?}");
    plan
}

fn needed(observation: &Observation) -> PropagationPlan {
    let mut plan = PropagationPlan { steps: Vec::new(), problems: Vec::new(), modes: None };
    let there = observation.namespace.as_ref().is_some_and(|namespace| !namespace.terminating);
    if !there || observation.stale.is_some() {
        return plan;
    }
    match &observation.place {
        Place::Unknown(_) => {}
        Place::Out => plan.remove(&observation.own),
        Place::In(position) if position.is_detaching() => {
            let copies =
                observation.own.iter().filter(|object| object.origin.is_some() && !object.terminating);
            plan.steps.extend(copies.map(|copy| Step::Release(Arc::clone(copy))));
        }
        Place::In(position) => plan.decide(observation, &position.spec.propagate),
    }
    plan
}

impl PropagationPlan {
    fn decide(&mut self, observation: &Observation, rules: &Propagation) {
        let modes = CopiedKind::ALL.map(|kind| (kind, mode(rules, kind)));
        self.modes = Some(modes.into_iter().collect());
        for (kind, mode) in modes {
            match mode {
                PropagationMode::Ignore => {}
                PropagationMode::Remove => self.remove(of_kind(&observation.own, kind)),
                PropagationMode::Propagate => {
                    self.propagate(observation, kind, &rules.role_bindings.cluster_roles);
                }
            }
        }
    }

    fn remove<'a>(&mut self, own: impl IntoIterator<Item = &'a Arc<Propagated>>) {
        let copies = own.into_iter().filter(|object| object.origin.is_some() && !object.terminating);
        self.steps.extend(copies.map(|copy| Step::Delete(Arc::clone(copy))));
    }

    fn propagate(&mut self, observation: &Observation, kind: CopiedKind, cluster_roles: &[String]) {
        let wanted = wanted(observation, kind, cluster_roles);
        let own: BTreeMap<&str, &Arc<Propagated>> =
            of_kind(&observation.own, kind).map(|object| (&*object.name, object)).collect();
        for (name, (source, unclear)) in &wanted {
            if let Some(why) = unclear {
                // Whether it is to be here is not known: a copy stays as it is, and none is made.
                self.problems.push(not_a_selector(source, why));
                continue;
            }
            match own.get(name) {
                None if source.content.is_none() => self.problems.push(too_large(source)),
                // Nobody has rights in a namespace before it has its quota.
                None if kind == CopiedKind::RoleBinding && !observation.limited => self.modes = None,
                None => self.steps.push(Step::Create(Arc::clone(source))),
                Some(object) if object.origin.is_none() => self.problems.push(name_taken(object, source)),
                // It comes again once it is gone.
                Some(copy) if copy.terminating => self.modes = None,
                Some(_) if source.content.is_none() => self.problems.push(too_large(source)),
                Some(copy) if is_copy(copy, source) => {}
                // Without this one there is room for another.
                Some(copy) if !can_become(copy, source) => {
                    self.modes = None;
                    self.steps.push(Step::Delete(Arc::clone(copy)));
                }
                Some(copy) => {
                    let (copy, source) = (Arc::clone(copy), Arc::clone(source));
                    self.steps.push(Step::Update { copy, source });
                }
            }
        }
        // What cannot be copied any more is not left as it was either.
        let is_wanted = |copy: &Propagated| {
            let source = wanted.get(&*copy.name);
            source.is_some_and(|(source, unclear)| unclear.is_some() || source.content.is_some())
        };
        self.remove(of_kind(&observation.own, kind).filter(|object| !is_wanted(object)));
    }

    /// What to say of it: nothing while it is not known or not done.
    pub(super) fn state(&self) -> Option<ConditionState> {
        let state = |status, reason: Reason, message: String| {
            Some(ConditionState { status, reason: reason.to_string(), message })
        };
        if let Some(first) = self.problems.iter().min() {
            return state("False", first.reason, sentence(&self.problems));
        }
        state("True", Reason::Reconciled, what_is_there(self.modes.as_ref()?))
    }
}

/// What a tree says about the copies of a kind.
const fn mode(rules: &Propagation, kind: CopiedKind) -> PropagationMode {
    match kind {
        CopiedKind::LimitRange => rules.limit_ranges.mode,
        CopiedKind::NetworkPolicy => rules.network_policies.mode,
        CopiedKind::RoleBinding => rules.role_bindings.mode,
    }
}

fn of_kind(objects: &[Arc<Propagated>], kind: CopiedKind) -> impl Iterator<Item = &Arc<Propagated>> {
    objects.iter().filter(move |object| object.kind == kind)
}

/// What a namespace is to have of those above it, by name; with why that is not clear. Of a name the nearest counts.
fn wanted<'a>(
    observation: &'a Observation,
    kind: CopiedKind,
    cluster_roles: &[String],
) -> BTreeMap<&'a str, (&'a Arc<Propagated>, Option<InvalidSelector>)> {
    let qualifies = |object: &Propagated| match &object.cluster_role {
        Some(role) => cluster_roles.iter().any(|name| **name == **role),
        None => kind != CopiedKind::RoleBinding,
    };
    let mut wanted = BTreeMap::new();
    let Some(namespace) = &observation.namespace else { return wanted };
    for source in observation.above.iter().flat_map(|objects| of_kind(objects, kind)) {
        if source.origin.is_some() || !qualifies(source) {
            continue;
        }
        match targets::includes(source.propagate_to.as_deref(), &namespace.labels) {
            Ok(false) => {}
            Ok(true) => drop(wanted.entry(&*source.name).or_insert((source, None))),
            Err(why) => drop(wanted.entry(&*source.name).or_insert((source, Some(why)))),
        }
    }
    wanted
}

/// Whether an update makes a copy as its source is.
fn can_become(copy: &Propagated, source: &Propagated) -> bool {
    // The role of a RoleBinding cannot be changed; what has been made too large is not known, so it is not known what to remove.
    copy.cluster_role == source.cluster_role
        && (copy.kind == CopiedKind::RoleBinding || copy.content.is_some())
}

/// What a namespace has because of these modes, for people. That nothing is copied of a kind is the default for all but one.
fn what_is_there(modes: &BTreeMap<CopiedKind, PropagationMode>) -> String {
    let with =
        |mode| modes.iter().filter(move |(_, its)| **its == mode).map(|(kind, _)| *kind).collect::<Vec<_>>();
    let names = |kinds: &[CopiedKind]| kinds.iter().map(|kind| kind.plural()).collect::<Vec<_>>().join(", ");
    let fields = |kinds: &[CopiedKind]| {
        let fields = kinds.iter().map(|kind| format!("spec.propagate.{}", kind.field()));
        fields.collect::<Vec<_>>().join(", ")
    };
    let mut parts = Vec::new();
    let copied = with(PropagationMode::Propagate);
    if !copied.is_empty() {
        parts.push(format!("the namespace has the {} that are copied from those above it", names(&copied)));
    }
    let removed = with(PropagationMode::Remove);
    if !removed.is_empty() {
        let why = fields(&removed);
        parts.push(format!("it has no copies of {} ({why} of the NamespaceTree: Remove)", names(&removed)));
    }
    let ignored: Vec<CopiedKind> = with(PropagationMode::Ignore);
    if ignored.contains(&CopiedKind::RoleBinding) {
        let (names, why) = (names(&ignored), fields(&ignored));
        parts.push(format!(
            "copies of {names} are left as they are, and no more are made ({why} of the NamespaceTree: Ignore)"
        ));
    }
    parts.join("; ")
}

/// Whether a copy is as it has to be.
fn is_copy(copy: &Propagated, source: &Propagated) -> bool {
    let origin = Origin { namespace: source.namespace.clone(), uid: source.uid.clone() };
    copy.origin.as_ref() == Some(&origin) && copy.content == source.content
}

fn name_taken(object: &Propagated, source: &Propagated) -> MissingCopy {
    let message = format!(
        "{3} {0} of namespace {1} is not copied: namespace {2} has a {3} {0} that Coppice did not write; delete that one, \
         or give one of them another name",
        source.name,
        source.namespace,
        object.namespace,
        source.kind.as_str()
    );
    MissingCopy { reason: Reason::CopyNameTaken, message }
}

fn not_a_selector(source: &Propagated, why: &InvalidSelector) -> MissingCopy {
    let message = format!(
        "{} {} of namespace {} is not copied: its annotation {ANNOTATION_PROPAGATE_TO} {why}; write a label selector of namespaces, such \
         as team=a or !test, or none, or remove the annotation",
        source.kind.as_str(),
        source.name,
        source.namespace
    );
    MissingCopy { reason: Reason::CopyRefused, message }
}

fn too_large(source: &Propagated) -> MissingCopy {
    let (of, instead) = match source.kind {
        CopiedKind::RoleBinding => ("subjects", "bind a group, or split it"),
        CopiedKind::LimitRange | CopiedKind::NetworkPolicy => ("spec", "split it"),
    };
    let message = format!(
        "{} {} of namespace {} is not copied: it has more than 8 KiB of {of}; {instead}",
        source.kind.as_str(),
        source.name,
        source.namespace
    );
    MissingCopy { reason: Reason::CopyRefused, message }
}

/// The first of them in full.
fn sentence(problems: &[MissingCopy]) -> String {
    let mut sorted: Vec<&MissingCopy> = problems.iter().collect();
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
