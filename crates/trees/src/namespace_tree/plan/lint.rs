//! What holds for every plan of a NamespaceTree, by what the plan looks like ([`coppice_api::lint`]). Builds with debug assertions check
//! every plan that they make. Pure.

use coppice_api::condition::{self, READY, WITHIN_QUOTA};
use coppice_api::lint::{self, PlanViolation};
use coppice_api::reason::ReasonPlace;
use coppice_lifecycle::facts::NamespaceFacts;

use super::super::observe::Observation;
use super::{Step, TreePlan, is_of};
use crate::metadata::NamespaceChanges;
use crate::position::is_detaching;

/// Where users see the reason of each condition.
const PLACES: [(&str, ReasonPlace); 2] = [(READY, ReasonPlace::Ready), (WITHIN_QUOTA, ReasonPlace::Quota)];

/// The rules that this plan breaks; [`plan`](super::plan) breaks none.
pub(super) fn lint(observation: &Observation, plan: &TreePlan) -> Vec<PlanViolation> {
    if coppice_mutants::any_active() {
        // A bug on purpose is to be found by what the program does.
        return Vec::new();
    }
    let mut findings = said(observation, plan);
    if plan.step == Step::Nothing {
        return findings;
    }
    let (tree, ends) = (&observation.tree, observation.tree.terminating);
    let adds = plan.step == Step::AddFinalizer;
    // What is not known changes nothing, and nothing is done that nobody would undo.
    if observation.stale.is_some() || tree.has_finalizer == adds || adds && ends {
        findings.push(PlanViolation::Forbidden);
    }
    match &plan.step {
        Step::Nothing | Step::AddFinalizer => {}
        Step::RemoveFinalizer => {
            let has_quota = own_root(observation, plan).is_some() && is_ours(observation);
            findings.extend((!ends || has_quota).then_some(PlanViolation::Forbidden));
        }
        Step::ReleaseStranded | Step::LabelStranded(_) => {
            findings.extend(of_stranded(observation, &plan.step));
        }
        Step::Label(_) | Step::Quota(_) | Step::DeleteQuota | Step::ReleaseQuota => {
            findings.extend(of_root(observation, plan));
        }
    }
    findings
}

/// A status is about the spec that there is, and says why nothing is done, or that all is well where it is; its root stays the same.
fn said(observation: &Observation, plan: &TreePlan) -> Vec<PlanViolation> {
    let (tree, after) = (&observation.tree, &plan.status);
    let before = &*tree.status;
    let mut findings = lint::conditions(&before.conditions, &after.conditions, tree.generation, &PLACES);
    if after.observed_generation != Some(tree.generation) {
        findings.push(PlanViolation::OfAnotherGeneration);
    }
    let Some(ready) = condition::find(&after.conditions, READY) else {
        findings.push(PlanViolation::Silent);
        return findings;
    };
    let is_well = plan.step == Step::Nothing && observation.stale.is_none() && !tree.terminating;
    if ready.status == "True" && !is_well {
        findings.push(PlanViolation::ReadyTooEarly);
    }
    if before.root_uid.is_some() && before.root_uid != after.root_uid {
        findings.push(PlanViolation::HistoryChanged);
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

/// The root that status names, if it is there.
fn own_root<'a>(observation: &'a Observation, plan: &TreePlan) -> Option<&'a NamespaceFacts> {
    let uid = plan.status.root_uid.as_deref();
    observation.root.as_deref().filter(|root| uid == Some(root.uid.as_str()))
}

/// Whether the quota says that it is one of this tree.
fn is_ours(observation: &Observation) -> bool {
    observation.quota.as_deref().is_some_and(|quota| is_of(quota, &observation.tree.name))
}

/// What is done to the root is done to the one that status names; while the tree is there it is that of no other, and not protected.
fn of_root(observation: &Observation, plan: &TreePlan) -> Vec<PlanViolation> {
    let Observation { tree, quota, settings, .. } = observation;
    let Some(root) = own_root(observation, plan) else { return vec![PlanViolation::NoPrecondition] };
    let mut findings = Vec::new();
    if !tree.terminating && settings.owner_of_system_namespace(&root.name).is_some() {
        findings.push(PlanViolation::Protected);
    }
    let (is_lost, children) = (quota.is_none(), observation.children > 0);
    let is_ours = is_ours(observation);
    let is_allowed = match (&plan.step, tree.terminating) {
        (Step::Label(_) | Step::Quota(_), false) => observation.other.is_none() && !root.terminating,
        // A tree that ends only takes away, but for a quota that was lost, and by which others return theirs.
        (Step::Label(changes), true) => only_removes(changes) && !children,
        (Step::Quota(_), true) => is_lost && children && !root.terminating,
        (Step::DeleteQuota, true) => is_ours && !children && !is_detaching(tree),
        (Step::ReleaseQuota, true) => is_ours && !children && is_detaching(tree),
        _ => false,
    };
    if !is_allowed {
        findings.push(PlanViolation::Forbidden);
    }
    findings
}

/// A namespace is taken out of a tree that ends after its root, with nothing of the tree in it any more.
fn of_stranded(observation: &Observation, step: &Step) -> Option<PlanViolation> {
    let ours = observation.tree.status.root_uid.as_deref();
    let has_root = observation.root.as_deref().is_some_and(|root| ours == Some(root.uid.as_str()));
    let Some(stranded) = &observation.stranded else { return Some(PlanViolation::NoPrecondition) };
    let in_tree = stranded.quota.as_deref().is_some_and(|quota| quota.tree.is_some());
    let is_next = match step {
        Step::LabelStranded(changes) => !in_tree && only_removes(changes),
        _ => in_tree,
    };
    let is_empty = stranded.children == 0 && stranded.copies == 0;
    let is_allowed = observation.tree.terminating && !has_root && is_empty && is_next;
    (!is_allowed).then_some(PlanViolation::Forbidden)
}

fn only_removes(changes: &NamespaceChanges) -> bool {
    changes.labels.values().chain(changes.annotations.values()).all(Option::is_none)
}
