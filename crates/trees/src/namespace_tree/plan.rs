//! What becomes of a `NamespaceTree`: the one next write, or why there is none. Pure.

mod lint;

use std::collections::BTreeMap;

use coppice_api::condition::{self, ConditionState, READY};
use coppice_api::names::ANNOTATION_PATH;
use coppice_api::{NamespaceTreeStatus, Reason};
use coppice_hierarchy::{Ledger, Quota, QuotaDecision, Resources, ValidTree, Write, decide_root};
use coppice_kinds::TreeQuota;
use coppice_lifecycle::facts::NamespaceFacts;
use coppice_lifecycle::plan::PlannedEvent;
use coppice_quantity::count;
use jiff::{SignedDuration, Timestamp};

use super::observe::{Observation, Stranded};
use crate::allotment::{amounts, refused_resource, understood};
use crate::context::Why;
use crate::metadata::NamespaceChanges;
use crate::overdraft;
use crate::position::{Position, is_detaching, label_changes};

/// Why a tree waits for somebody to do something.
const NEED_SOMEBODY: [Reason; 6] = [
    Reason::NamespaceProtected,
    Reason::RootTaken,
    Reason::RootDeleted,
    Reason::QuotaTaken,
    Reason::QuotaRefused,
    Reason::HasChildren,
];
/// So many of several namespaces are named.
const MAX_NAMED: usize = 5;
/// So long after copies were left in a namespace it is looked again.
const COPIES_LOOKED_AT: SignedDuration = SignedDuration::from_secs(5);
/// What became of a root whose name another namespace has.
const ANOTHER_ONE: &str = "was deleted, and is another one now";

/// What to do: take the step, or else make `status` durable, and look again at `next_check` at the latest.
pub(super) struct TreePlan {
    pub(super) status: NamespaceTreeStatus,
    pub(super) step: Step,
    /// When time alone can change the plan.
    pub(super) next_check: Option<Timestamp>,
    /// To publish once the status is durable.
    pub(super) events: Vec<PlannedEvent>,
}

/// One write besides status.
#[derive(Debug, PartialEq)]
pub(super) enum Step {
    Nothing,
    AddFinalizer,
    /// Sets and removes labels and annotations of the root.
    Label(NamespaceChanges),
    /// Writes the quota of the root.
    Quota(Ledger),
    /// Deletes it, with the tree.
    DeleteQuota,
    /// Takes it out of the tree: it stays as it is.
    ReleaseQuota,
    /// The same of a namespace that has lost its root and its Subnamespace,
    ReleaseStranded,
    /// and then its labels and annotations.
    LabelStranded(NamespaceChanges),
    RemoveFinalizer,
}

/// Decides. Depends on nothing but its argument.
pub(super) fn plan(observation: &Observation) -> TreePlan {
    let status = (*observation.tree.status).clone();
    let mut plan = TreePlan { status, step: Step::Nothing, next_check: None, events: Vec::new() };
    let state = match &observation.stale {
        Some(why) => Err(why.clone()),
        None => plan.decide(observation),
    };
    plan.describe(observation, state);
    debug_assert_eq!(lint::lint(observation, &plan), Vec::new(), "{:?} of {:?}", plan.step, plan.status);
    plan
}

impl TreePlan {
    /// Whether there is nothing to do and nothing to write.
    pub(super) fn is_steady(&self, stored: &NamespaceTreeStatus) -> bool {
        self.step == Step::Nothing && self.status == *stored
    }

    /// Whether all there is to do is to say how many namespaces there are.
    pub(super) fn says_only_size(&self, stored: &NamespaceTreeStatus) -> bool {
        let of_stored_size = NamespaceTreeStatus { namespaces: stored.namespaces, ..self.status.clone() };
        self.step == Step::Nothing && self.status.namespaces != stored.namespaces && of_stored_size == *stored
    }

    /// Whether there are more namespaces than were said, which can wait where there were some already: a policy goes by whether there are any
    /// below the root.
    pub(super) fn grows(&self, stored: &NamespaceTreeStatus) -> bool {
        stored.namespaces > 1 && self.status.namespaces > stored.namespaces
    }

    /// Whether spec is in force; or why not.
    fn decide(&mut self, observation: &Observation) -> Result<(), Why> {
        let tree = &observation.tree;
        if tree.terminating {
            return self.end(observation);
        }
        let spec = tree.decoded_shared().map_err(|why| (Reason::InvalidSpec, why.to_string()))?;
        let total = spec.quota.as_ref();
        let total = total.map_err(|why| (Reason::InvalidSpec, format!("spec.quota.hard: {why}")))?;
        let root = self.root(observation, spec)?;
        if !tree.has_finalizer {
            self.step = Step::AddFinalizer;
            return Err(setting_up());
        }
        if self.status.root_uid.is_none() {
            self.status.root_uid = Some(root.uid.clone());
        }
        let position = Position::new(tree, spec, vec![root.name.as_str().into()]);
        let changes = label_changes(&root.labels, &position.labels(None), observation.children);
        if !changes.is_empty() {
            let path = BTreeMap::from([(ANNOTATION_PATH.to_owned(), Some(position.path()))]);
            self.step = Step::Label(NamespaceChanges { labels: changes, annotations: path });
            return Err(setting_up());
        }
        self.quota(observation, root, total)
    }

    /// The root, if the tree may have it.
    fn root<'a>(&self, observation: &'a Observation, spec: &ValidTree) -> Result<&'a NamespaceFacts, Why> {
        // A policy of the installation refuses every write to it.
        if let Some(owner) = observation.settings.owner_of_system_namespace(&spec.root) {
            let message = format!(
                "namespace {} cannot be the root of a tree: {owner}; delete this NamespaceTree, and create one for another namespace",
                spec.root
            );
            return Err((Reason::NamespaceProtected, message));
        }
        let Some(root) = observation.root.as_deref() else {
            // Another namespace of that name is none that the tree was set up with.
            let message = if self.status.root_uid.is_some() {
                format!(
                    "there is no namespace {} any more: delete this NamespaceTree (kubectl delete namespacetree {}), and create another one \
                     if the namespace is created again",
                    spec.root, observation.tree.name
                )
            } else {
                format!("there is no namespace {}: create it", spec.root)
            };
            return Err(root_deleted(observation, spec, "is gone").unwrap_or((Reason::RootMissing, message)));
        };
        if let Some(other) = &observation.other {
            let message = format!(
                "namespace {} cannot be the root of another tree: {other}; delete this NamespaceTree, and create one for another namespace",
                root.name
            );
            return Err((Reason::RootTaken, message));
        }
        if self.status.root_uid.as_ref().is_some_and(|uid| *uid != root.uid) {
            let message = format!(
                "namespace {} is another one than when the tree was set up: delete this NamespaceTree, and create one for it",
                root.name
            );
            let deleted = root_deleted(observation, spec, ANOTHER_ONE);
            return Err(deleted.unwrap_or((Reason::RootMissing, message)));
        }
        if root.terminating {
            let message = format!("namespace {} is being deleted", root.name);
            let deleted = root_deleted(observation, spec, "is being deleted");
            return Err(deleted.unwrap_or((Reason::NamespaceTerminating, message)));
        }
        Ok(root)
    }

    /// One step toward the quota that the tree has in total.
    fn quota(
        &mut self,
        observation: &Observation,
        root: &NamespaceFacts,
        total: &Resources,
    ) -> Result<(), Why> {
        let quota = observation.quota.as_deref().map(understood).transpose()?;
        if let Some(quota) = quota {
            self.status.allotment = amounts(&quota.ledger.allotment);
        }
        match decide_root(&root.name, quota, total, &observation.below, observation.time.now()) {
            QuotaDecision::Done => {
                self.name_quota(observation)?;
                self.in_force(observation, quota)
            }
            QuotaDecision::Refused(refusal) => Err((Reason::QuotaRefused, refusal.to_string())),
            QuotaDecision::Wait(at) => {
                self.next_check = at;
                // Given up after a while, it begins again: nothing else says that nobody puts it into force.
                let message = "the quota of the root is being changed: what becomes smaller has to be in force first, which takes a moment; \
                               where it never is, see whether kube-controller-manager runs";
                Err((Reason::QuotaChanging, message.to_owned()))
            }
            QuotaDecision::Write(_, Write::Own(ledger)) => {
                self.step = Step::Quota(ledger);
                Err((Reason::QuotaChanging, "the quota of the root is being changed".to_owned()))
            }
            // A root has nobody above it.
            QuotaDecision::Write(_, Write::Parent(_) | Write::Record(_)) => Err(setting_up()),
        }
    }

    /// The quota says whose it is: a tree that had the root before may have left it.
    fn name_quota(&mut self, observation: &Observation) -> Result<(), Why> {
        let known = observation.quota.as_deref();
        let Some(quota) = known.filter(|quota| !is_of(quota, &observation.tree.name)) else { return Ok(()) };
        self.step = Step::Quota(understood(quota)?.ledger.clone());
        Err(setting_up())
    }

    /// The root has its quota: spec is in force once Kubernetes limits by that. What was said of this spec stays while a namespace below is
    /// given some of it.
    fn in_force(&self, observation: &Observation, quota: Option<&Quota>) -> Result<(), Why> {
        let before = condition::find(&self.status.conditions, READY);
        let was_ready = before.is_some_and(|ready| {
            ready.status == "True" && ready.observed_generation == Some(observation.tree.generation)
        });
        if was_ready || quota.is_some_and(|quota| quota.enforced.limits_like(&quota.hard)) {
            return Ok(());
        }
        let message = "Kubernetes has not put the quota of the root in force yet; where it never does, see whether \
                       kube-controller-manager runs";
        Err((Reason::QuotaChanging, message.to_owned()))
    }

    /// The tree is being deleted: its namespace stays, with nothing of it.
    fn end(&mut self, observation: &Observation) -> Result<(), Why> {
        let tree = &observation.tree;
        if !tree.has_finalizer {
            return Err(ending());
        }
        let ours = self.status.root_uid.as_deref();
        let root = observation.root.as_deref().filter(|root| ours == Some(root.uid.as_str()));
        let Some(root) = root else {
            if let Some(stranded) = &observation.stranded {
                return Err((Reason::Detaching, self.release(stranded, observation.time.now())));
            }
            if is_detaching(tree) && observation.children > 0 {
                return Err((Reason::Detaching, left_inside(observation)));
            }
            if !observation.left.is_empty() {
                let spec = tree.decoded_shared().map_err(|why| (Reason::InvalidSpec, why.to_string()))?;
                let ends = if observation.root.is_some() { ANOTHER_ONE } else { "is gone" };
                // Their Subnamespaces name the tree: without it they would count for a later one of its name.
                return Err(root_deleted(observation, spec, ends).unwrap_or_else(ending));
            }
            self.step = Step::RemoveFinalizer;
            return Err(ending());
        };
        let quota = observation.quota.as_deref();
        if observation.other.is_some() && quota.is_some_and(|quota| !is_of(quota, &tree.name)) {
            // Both were set up at once. All of it is the other one's.
            self.step = Step::RemoveFinalizer;
            return Err(ending());
        }
        if observation.children > 0
            && quota.is_none()
            && !root.terminating
            && let Ok(spec) = tree.decoded_shared()
            && let Ok(total) = &spec.quota
        {
            // It was lost, and without it they could not return what they have.
            return self.quota(observation, root, total);
        }
        let detaching = is_detaching(tree);
        if observation.children > 0 && detaching {
            let below = count(observation.size.saturating_sub(1), "namespace");
            let message = format!("the tree is being detached: {below} first");
            return Err((Reason::Detaching, message));
        }
        if observation.children > 0 {
            let message = format!(
                "namespace {0} has Subnamespaces, and the tree stays: delete these first (kubectl get subnamespaces -n {0})",
                root.name
            );
            return Err((Reason::HasChildren, message));
        }
        if quota.is_some_and(|quota| is_of(quota, &tree.name)) {
            self.step = if detaching { Step::ReleaseQuota } else { Step::DeleteQuota };
            return Err(ending());
        }
        let changes = label_changes(&root.labels, &BTreeMap::new(), 0);
        self.step = if changes.is_empty() {
            Step::RemoveFinalizer
        } else {
            let path = BTreeMap::from([(ANNOTATION_PATH.to_owned(), None)]);
            Step::Label(NamespaceChanges { labels: changes, annotations: path })
        };
        Err(ending())
    }

    /// Takes a namespace out of the tree whose root is gone, and says what is done. What was on its way to it and from it went with the root.
    fn release(&mut self, stranded: &Stranded, now: Timestamp) -> String {
        let Stranded { namespace, quota, children, copies } = stranded;
        let name = &namespace.name;
        let quota = quota.as_deref().filter(|quota| quota.tree.is_some());
        let held =
            quota.and_then(|quota| quota.quota.as_ref().ok()).map_or(0, |quota| quota.ledger.held.len());
        if *children > 0 {
            let children = count(*children, "Subnamespace");
            return format!("the tree is being detached: {children} in namespace {name} first");
        }
        if held > 0 {
            return format!(
                "the tree is being detached: QuotaTransfers from namespace {name} end first ({held})"
            );
        }
        if *copies > 0 {
            // Nobody is woken by the last of them.
            self.next_check = now.checked_add(COPIES_LOOKED_AT).ok();
            return if *copies == 1 {
                format!("the tree is being detached: 1 copy in namespace {name} becomes its own first")
            } else {
                format!(
                    "the tree is being detached: {copies} copies in namespace {name} become its own first"
                )
            };
        }
        self.step = if quota.is_some() {
            Step::ReleaseStranded
        } else {
            let path = BTreeMap::from([(ANNOTATION_PATH.to_owned(), None)]);
            let labels = label_changes(&namespace.labels, &BTreeMap::new(), 0);
            Step::LabelStranded(NamespaceChanges { labels, annotations: path })
        };
        format!("the tree is being detached: namespace {name} becomes one of no tree")
    }

    /// Says in status what there is, and why.
    fn describe(&mut self, observation: &Observation, state: Result<(), Why>) {
        let (tree, now) = (&observation.tree, observation.time.now());
        let ready = match (&state, &observation.stale) {
            (Ok(()), _) => "True",
            (Err(_), Some(_)) => "Unknown",
            (Err(_), None) => "False",
        };
        let (reason, mut message) = state.err().unwrap_or_else(|| reconciled(observation));
        let before = condition::find(&self.status.conditions, READY).filter(|before| {
            before.reason == reason.as_str() && before.observed_generation == Some(tree.generation)
        });
        // Of another spec it is another refusal.
        let begins = before.is_none();
        if let Some(before) = before
            && reason == Reason::QuotaRefused
            && refused_resource(&before.message) == refused_resource(&message)
        {
            // What is used changes all the time: the numbers are those of when it was refused, as long as that is for the same resource.
            message.clone_from(&before.message);
        }
        if begins && NEED_SOMEBODY.contains(&reason) {
            self.events.push(PlannedEvent { warning: true, reason, message: message.clone() });
        }
        let state = ConditionState { status: ready, reason: reason.to_string(), message };
        condition::set(&mut self.status.conditions, READY, state, tree.generation, now);
        self.status.observed_generation = Some(tree.generation);
        self.status.namespaces = if self.status.root_uid.is_some() { observation.size } else { 0 };
        let has = Resources::recorded(&self.status.allotment).unwrap_or_default();
        self.status.allotted = if has.is_empty() { String::new() } else { has.to_string() };
        self.describe_overdraft(observation);
    }

    /// Says whether what is used in the root is within its own quota, once nothing is being changed.
    fn describe_overdraft(&mut self, observation: &Observation) {
        let tree = &observation.tree;
        let root = observation
            .root
            .as_deref()
            .filter(|root| self.status.root_uid.as_deref() == Some(root.uid.as_str()) && !root.terminating);
        let rests = self.step == Step::Nothing && observation.stale.is_none() && !tree.terminating;
        let Some(root) = root.filter(|_| rests) else { return };
        let quota = observation.quota.as_deref().filter(|quota| quota.tree.as_deref() == Some(&*tree.name));
        let Some(quota) = quota.and_then(|quota| quota.quota.as_ref().ok()) else { return };
        let (conditions, seen) = (&mut self.status.conditions, (tree.generation, observation.time.now()));
        let (event, ends) = overdraft::describe(conditions, &root.name, quota, seen);
        self.events.extend(event);
        self.next_check = self.next_check.into_iter().chain(ends).min();
    }
}

/// Nothing is left to do. What is named as a partition may be created later, or be the wrong name: as long as it is not there it keeps
/// no transfer from anywhere.
fn reconciled(observation: &Observation) -> Why {
    let absent = &observation.absent_partitions;
    let partitions = match &observation.tree.spec {
        Ok(spec) if !absent.is_empty() => format!(
            "; spec.partitions names what is no namespace right below {} yet: {}",
            spec.root,
            first(absent)
        ),
        _ => String::new(),
    };
    (Reason::Reconciled, format!("the tree has the quota that spec gives it{partitions}"))
}

/// The first of these, and how many more there are.
fn first(names: &[String]) -> String {
    let first: Vec<&str> = names.iter().take(MAX_NAMED).map(String::as_str).collect();
    let first = first.join(", ");
    match names.len().saturating_sub(MAX_NAMED) {
        0 => first,
        more => format!("{first} and {more} more"),
    }
}

/// The root ends, in these words, while others are below it; none where there is none.
fn root_deleted(observation: &Observation, spec: &ValidTree, ends: &str) -> Option<Why> {
    let left = &observation.left;
    if left.is_empty() {
        return None;
    }
    let detach =
        format!(", or keep all of them without a tree (coppice tree detach {})", observation.tree.name);
    let stays = if observation.tree.terminating { "; the tree stays until they are gone" } else { "" };
    let message = format!(
        "namespace {} {ends}, and the number of namespaces below it that are left without a root is {}: {}; they stay with the \
         quota that they have, since there is no namespace above to move to: delete them from the bottom up (kubectl delete namespace \
         NAME){detach}{stays}",
        spec.root,
        left.len(),
        first(left)
    );
    Some((Reason::RootDeleted, message))
}

/// What happens with Subnamespaces that are left in a root which ended by force, while the tree is being detached.
fn left_inside(observation: &Observation) -> String {
    let (children, tree) = (count(observation.children, "Subnamespace"), &observation.tree);
    let name = tree.spec.as_ref().map_or("", |spec| spec.root.as_str());
    if observation.root.is_some() {
        return format!("the tree is being detached: {children} in namespace {name} first");
    }
    let are = if observation.children == 1 { "is" } else { "are" };
    format!(
        "the tree is being detached, and the API server lets nobody change the {children} that {are} left in namespace {name} \
         without it: create it again (kubectl create namespace {name})"
    )
}

/// Whether a quota says that it is one of this tree.
fn is_of(quota: &TreeQuota, tree: &str) -> bool {
    quota.tree.as_deref() == Some(tree)
}

fn setting_up() -> Why {
    (Reason::QuotaChanging, "the tree is being set up".to_owned())
}

fn ending() -> Why {
    (Reason::NamespaceTerminating, "the tree is being deleted; its namespace stays".to_owned())
}

#[cfg(test)]
#[path = "plan_tests.rs"]
mod tests;
