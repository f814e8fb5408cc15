//! What becomes of a `Subnamespace`: the one next write, or why there is none. Pure.

mod cascade;
mod creation;
mod detach;
mod ending;
mod lint;
mod metadata;
mod moving;
mod retry;
mod said;

use std::sync::Arc;

use coppice_api::condition::{self, ConditionState, READY};
use coppice_api::metadata::NamespaceMetadata;
use coppice_api::names::{ANNOTATION_PATH, LABEL_SUBNAMESPACE};
use coppice_api::steps::Intent;
use coppice_api::subnamespace::{Allotment, GrantedRequest};
use coppice_api::{Reason, SubnamespacePhase, SubnamespaceStatus};
use coppice_hierarchy::{
    Child, Parent, Quota, QuotaDecision, QuotaRefusal, QuotaStep, Resources, ValidSubnamespace, Write, decide,
};
use coppice_kinds::SubnamespaceObject;
use coppice_lifecycle::facts::NamespaceFacts;
use coppice_lifecycle::plan::PlannedEvent;
use coppice_mutants::{Mutant, active};
use jiff::Timestamp;

pub(super) use self::cascade::{announcement_changes, is_cascading, is_namespace_of, may_still_go};
use self::creation::{has_room, may_be_adopted, may_be_created, names_required};
pub(super) use self::metadata::differs as metadata_differs;
use super::observe::Observation;
use crate::allotment::{allotment, amounts, below, recorded, refused_resource, understood};
use crate::context::Why;
use crate::metadata::{NamespaceChanges, keys};
use crate::overdraft;
use crate::position::{Position, label_changes};

/// The name of what deletes a namespace with its Subnamespace, in intents and records.
pub(super) const POLICY: &str = "delete with the Subnamespace";
/// Why a deletion waits: for somebody to do something, or for a budget.
const WAITS: [Reason; 6] = [
    Reason::HasChildren,
    Reason::NamespaceProtected,
    Reason::Paused,
    Reason::BreakerOpen,
    Reason::BudgetSpent,
    Reason::TreeBudgetSpent,
];
/// The largest number that JSON has exactly; changes are counted one by one.
const MAX_NUMBER: u64 = (1 << 53) - 1;

/// What to do: first make `status` durable as far as it has to be, then take the step, and look again at `next_check` at the latest.
pub(super) struct SubnamespacePlan {
    pub(super) status: SubnamespaceStatus,
    pub(super) step: Step,
    /// When time alone can change the plan.
    pub(super) next_check: Option<Timestamp>,
    /// To publish once the status is durable,
    pub(super) events: Vec<PlannedEvent>,
    /// and those of them that are published in the namespace itself, too: its users need not be able to read the namespace above, in
    /// which the Subnamespace is.
    pub(super) own_events: Vec<PlannedEvent>,
    /// Why the quota is refused, for these.
    own_refusal: Option<String>,
}

/// One write besides status.
#[derive(Debug, PartialEq)]
pub(super) enum Step {
    Nothing,
    AddFinalizer,
    /// Marks the namespace above, and creates this one.
    CreateNamespace(NewNamespacePlace),
    /// Sets and removes labels and annotations of the namespace.
    Label(NamespaceChanges),
    /// Writes the quota of the namespace above.
    ParentQuota(coppice_hierarchy::Ledger),
    /// The namespace moves to the nearest one above that is not being deleted.
    Move(MoveStep),
    /// Nothing, but what is read decides that, and no cache.
    Read,
    /// Writes the quota of the namespace.
    OwnQuota(coppice_hierarchy::Ledger),
    /// Takes the quota of the namespace out of the tree: it stays as it is, and is nobody's but the namespace's.
    ReleaseQuota,
    /// Always an intent that already was in the observed status.
    DeleteNamespace(Intent),
    /// Deletes the Subnamespace, whose namespace somebody else has deleted.
    DeleteObject,
    /// Deletes one of those below, under which there is none.
    DeleteBelow(Lowest),
    RemoveFinalizer,
}

/// A step of a move.
#[derive(Debug, PartialEq)]
pub(super) enum MoveStep {
    /// Writes the quota of the namespace that this one moves to.
    AncestorQuota(coppice_hierarchy::Ledger),
    /// Creates the Subnamespace in that one,
    CreateSuccessor(Box<ValidSubnamespace>),
    /// and says in its status what the namespace was given.
    SuccessorStatus(Box<SubnamespaceStatus>),
    /// Says on the namespace that it is that one's.
    Label(NamespaceChanges),
}

/// A Subnamespace that is deleted since one above it is. Equal are the same.
#[derive(Debug)]
pub(super) struct Lowest(pub(super) Arc<SubnamespaceObject>);

impl PartialEq for Lowest {
    fn eq(&self, other: &Self) -> bool {
        self.0.uid == other.0.uid
    }
}

/// Where a namespace is created, and with which metadata besides. Equal are equal paths.
#[derive(Debug)]
pub(super) struct NewNamespacePlace(pub(super) Position, pub(super) NamespaceMetadata);

impl PartialEq for NewNamespacePlace {
    fn eq(&self, other: &Self) -> bool {
        self.0.path() == other.0.path() && self.1 == other.1
    }
}

/// What is reported of the state.
struct State {
    phase: SubnamespacePhase,
    reason: Reason,
    message: String,
}

impl State {
    fn pending(reason: Reason, message: impl Into<String>) -> Self {
        Self { phase: SubnamespacePhase::Pending, reason, message: message.into() }
    }

    fn refused((reason, message): Why) -> Self {
        Self { phase: SubnamespacePhase::Refused, reason, message }
    }

    fn deleting(reason: Reason, message: impl Into<String>) -> Self {
        Self { phase: SubnamespacePhase::Deleting, reason, message: message.into() }
    }
}

/// Decides. Depends on nothing but its argument.
pub(super) fn plan(observation: &Observation) -> SubnamespacePlan {
    let object = &observation.object;
    let status = (*object.status).clone();
    let mut plan = SubnamespacePlan::nothing(status);
    let state = match &observation.stale {
        Some(why) => State { phase: said::phase(object), reason: why.0, message: why.1.clone() },
        None => plan.decide(observation),
    };
    plan.describe(observation, state);
    plan.own_events = plan.of_interest(observation);
    debug_assert_eq!(lint::lint(observation, &plan), Vec::new(), "{:?} of {:?}", plan.step, plan.status);
    plan
}

/// Whether what must be durable before a step differs.
pub(super) fn is_durable(planned: &SubnamespaceStatus, stored: &SubnamespaceStatus) -> bool {
    let detached = |status: &SubnamespaceStatus| status.phase == Some(SubnamespacePhase::Detached);
    planned.namespace_uid == stored.namespace_uid
        && detached(planned) == detached(stored)
        && planned.allotment == stored.allotment
        && planned.request == stored.request
        && planned.refused == stored.refused
        && planned.metadata == stored.metadata
        && planned.steps == stored.steps
}

impl SubnamespacePlan {
    /// This status, and nothing to do.
    fn nothing(status: SubnamespaceStatus) -> Self {
        let (step, next_check) = (Step::Nothing, None);
        Self { status, step, next_check, events: Vec::new(), own_events: Vec::new(), own_refusal: None }
    }

    /// What users of the namespace learn while it is there: what goes wrong, and what they have after that. Not what it is created with.
    fn of_interest(&self, observation: &Observation) -> Vec<PlannedEvent> {
        let granted_before = observation.object.status.request.is_some();
        if observation.own_namespace().is_none_or(|namespace| namespace.terminating) {
            return Vec::new();
        }
        let wanted = |event: &&PlannedEvent| {
            event.warning
                || event.reason == Reason::OverdraftEnded
                || event.reason == Reason::QuotaGranted && granted_before
        };
        let event = |event: &PlannedEvent| {
            let refusal = self.own_refusal.clone().filter(|_| event.reason == Reason::QuotaRefused);
            PlannedEvent { message: refusal.unwrap_or_else(|| event.message.clone()), ..event.clone() }
        };
        self.events.iter().filter(wanted).map(event).collect()
    }

    /// Whether there is nothing to do and nothing to write.
    pub(super) fn is_steady(&self, stored: &SubnamespaceStatus) -> bool {
        self.step == Step::Nothing && self.status == *stored
    }

    fn decide(&mut self, observation: &Observation) -> State {
        let object = &observation.object;
        if object.status.phase == Some(SubnamespacePhase::Detached) {
            return self.detached(object);
        }
        if let Some(state) = self.detach(observation) {
            return state;
        }
        if object.terminating {
            return self.end(observation);
        }
        if !object.has_finalizer {
            self.step = Step::AddFinalizer;
            return State::pending(Reason::CreatingNamespace, "the namespace is being created");
        }
        let Some(uid) = object.status.namespace_uid.as_deref() else {
            return if object.annotations.moved_from.is_some() {
                self.arrive(observation)
            } else {
                self.create(observation)
            };
        };
        match observation.namespace.as_deref() {
            Some(namespace) if namespace.uid == uid && namespace.terminating => self.going(observation),
            Some(namespace) if namespace.uid == uid => self.maintain(observation, namespace),
            _ => self.gone(observation),
        }
    }

    /// There is no namespace yet.
    fn create(&mut self, observation: &Observation) -> State {
        let (object, name) = (&observation.object, &*observation.object.name);
        if let Some(namespace) = observation.namespace.as_deref() {
            if namespace.terminating {
                let message =
                    format!("namespace {name} is being deleted: another one is created when it is gone");
                return State::pending(Reason::NamespaceTerminating, message);
            }
            if is_created_by(namespace, object) || active(Mutant::NamespaceTakenUp) {
                match may_be_adopted(observation, namespace) {
                    Ok(()) => {}
                    // It comes.
                    Err((reason @ Reason::QuotaChanging, message)) => return State::pending(reason, message),
                    Err(why) => return State::refused(why),
                }
                self.status.namespace_uid = Some(namespace.uid.clone());
                let message = format!("namespace {name} was created");
                self.events.push(PlannedEvent { warning: false, reason: Reason::NamespaceCreated, message });
                return State::pending(Reason::CreatingNamespace, "the namespace was created");
            }
            let message = format!(
                "there is a namespace {name} already, which this Subnamespace did not create: existing namespaces are never taken into a \
                 tree by their name; create a Subnamespace with another name, or have a cluster administrator adopt the namespace \
                 (coppice tree adopt {}/{name})",
                object.namespace
            );
            return State::refused((Reason::NameTaken, message));
        }
        let position = match may_be_created(observation) {
            Ok(position) => position,
            Err(why) => return State::refused(why),
        };
        let Some(parent_quota) = &observation.parent_quota else {
            let message = format!("namespace {} has no quota of its tree yet", object.namespace);
            return State::pending(Reason::QuotaChanging, message);
        };
        let asked = has_room(observation, &position, parent_quota);
        if let Err(why) = asked {
            return State::refused(why);
        }
        let metadata = match metadata::wanted(object, observation.parent.as_deref(), &position) {
            Ok(Some(wanted)) => wanted.metadata,
            // It is given to the namespace once it is known.
            Ok(None) => NamespaceMetadata::default(),
            Err(why) => return State::refused(why),
        };
        self.status.metadata = keys(&metadata, &object.status.metadata, true);
        self.step = Step::CreateNamespace(NewNamespacePlace(position, metadata));
        State::pending(Reason::CreatingNamespace, "the namespace is being created")
    }

    /// The namespace is there.
    fn maintain(&mut self, observation: &Observation, namespace: &NamespaceFacts) -> State {
        let object = &observation.object;
        let position = match &observation.parent_position {
            Ok(position) => position.below(&object.name),
            Err(why) => return State::refused(why.clone()),
        };
        let labels = position.labels(Some(&object.uid));
        let mut changes =
            NamespaceChanges::labels(label_changes(&namespace.labels, &labels, observation.children.len()));
        if !changes.is_empty() {
            changes.annotations.insert(ANNOTATION_PATH.to_owned(), Some(position.path()));
        }
        let metadata = self.metadata(observation, namespace, &position).map(|(more, note)| {
            changes.extend(more);
            note
        });
        if !changes.is_empty() {
            self.step = Step::Label(changes);
            return self.unchanged(object, "the labels and annotations of the namespace are being written");
        }
        let asked = asked(object).and_then(|asked| {
            if granted_request(object).as_ref() != Some(&asked) {
                names_required(&position, &asked)?;
            }
            Ok(asked)
        });
        let want = match &asked {
            Ok(asked) => asked.clone(),
            // What cannot be understood changes nothing.
            Err(_) => allotment(object).unwrap_or_default(),
        };
        let (reason, state) = self.toward(observation, &want);
        if asked.is_ok() && reason == Some(Granted) {
            self.granted(object, &want);
        }
        match (asked, metadata) {
            (Err(why), _) | (Ok(_), Err(why)) if state.phase == SubnamespacePhase::Ready => {
                State::refused(why)
            }
            (_, Ok(Some(note))) if state.phase == SubnamespacePhase::Ready => {
                State { message: format!("{}; {note}", state.message), ..state }
            }
            _ => state,
        }
    }

    /// One step toward the quota that is wanted.
    fn toward(&mut self, observation: &Observation, want: &Resources) -> (Option<Granted>, State) {
        let object = &observation.object;
        let granted = granted_request(object);
        let has = allotment(object).unwrap_or_default();
        let now = observation.time.now();
        let refused = object.status.phase == Some(SubnamespacePhase::Refused)
            && object.status.observed_generation == Some(object.generation);
        if refused && active(Mutant::RefusedForEver) {
            return (None, self.unchanged(object, "refused before"));
        }
        if granted.as_ref() == Some(want) || granted.is_some() && active(Mutant::NewRequestIgnored) {
            // It was granted, and transfers may have changed it since.
            let state = self.quota_step(observation, &has, now).unwrap_or_else(|| self.in_force(observation));
            self.carried_out(observation, want);
            return (None, state);
        }
        if let Some(refused) = self.status.refused.clone()
            && Resources::recorded(&refused.hard).as_ref() == Ok(want)
            && now < refused.until
        {
            self.next_check = Some(refused.until);
            // What was begun is ended first.
            let state = self.quota_step(observation, &has, now);
            let why =
                (Reason::QuotaRefused, format!("{}; tried again at {:.0}", refused.message, refused.until));
            return (None, state.unwrap_or_else(|| State::refused(why)));
        }
        match self.quota_step(observation, want, now) {
            Some(state) => {
                self.carried_out(observation, want);
                (None, state)
            }
            None => (Some(Granted), self.in_force(observation)),
        }
    }

    /// What was asked for, or the first half of it, is granted with the very write that records it: by then something else may be wanted,
    /// also what was granted before.
    fn carried_out(&mut self, observation: &Observation, want: &Resources) {
        let object = &observation.object;
        let quota = observation.parent_quota.as_deref().and_then(|quota| understood(quota).ok());
        let change = quota.and_then(|quota| quota.ledger.changes.get(&*object.uid));
        // Transfers and moves change nothing of what was granted.
        let change = change.filter(|change| change.transfer.is_none() && change.moves.is_none());
        let recorded =
            self.status.allotment.as_ref().filter(|_| self.status.allotment != object.status.allotment);
        let (Some(change), Some(recorded)) = (change, recorded) else { return };
        let has = Resources::recorded(&recorded.hard).unwrap_or_default();
        if has == change.from || active(Mutant::EarlierRequestStands) {
            return;
        }
        if has == *want {
            self.granted(object, want);
        } else {
            self.status.request = Some(GrantedRequest { hard: amounts(&has) });
        }
    }

    /// The namespace has its quota: ready, once the API server limits by it. Until then it admits nothing of what is new, or limits
    /// nothing where the namespace had no quota.
    fn in_force(&self, observation: &Observation) -> State {
        let in_force = |quota: &Quota| quota.enforced.limits_like(&quota.hard);
        if !observation.quota.as_deref().map(understood).is_some_and(|quota| quota.is_ok_and(in_force)) {
            let message = "Kubernetes has not put the quota of the namespace in force yet";
            return self.unchanged(&observation.object, message);
        }
        let message = "the namespace has the quota that was asked for".to_owned();
        State { phase: SubnamespacePhase::Ready, reason: Reason::Reconciled, message }
    }

    /// The next write for the namespace to have a quota; none if it has.
    fn quota_step(&mut self, observation: &Observation, want: &Resources, now: Timestamp) -> Option<State> {
        let (object, exists) = (&observation.object, observation.own_namespace().is_some());
        let parent_quota = match observation.parent_quota.as_deref().map(understood) {
            Some(Ok(quota)) => quota,
            Some(Err(why)) => return Some(State::refused(why)),
            None => {
                let message = format!(
                    "the quota of namespace {0} is missing, and is made again while {0} is in a tree; if the NamespaceTree is gone, an \
                     administrator creates one again with the same root",
                    object.namespace
                );
                return Some(State::pending(Reason::QuotaChanging, message));
            }
        };
        let quota = match observation.quota.as_deref().filter(|_| exists).map(understood).transpose() {
            Ok(quota) => quota,
            Err(why) => return Some(State::refused(why)),
        };
        let parent = Parent { name: &object.namespace, quota: parent_quota, siblings: &observation.siblings };
        let (record, below) = (recorded(object), below(&observation.children));
        let ends = observation.own_namespace().is_some_and(|namespace| namespace.terminating);
        let (id, name) = (&*object.uid, &*object.name);
        let child = Child { id, name, exists, ends, quota, record: &record, below: &below };
        let (step, write) = match decide(&parent, &child, want, now) {
            QuotaDecision::Done => return None,
            QuotaDecision::Refused(refusal) => {
                self.own_refusal = Some(refusal.without_sibling().to_string());
                return Some(State::refused((Reason::QuotaRefused, refusal.to_string())));
            }
            QuotaDecision::Wait(at) => {
                self.next_check = at;
                let message = "the quota is being changed: what becomes smaller has to be in force first";
                return Some(self.unchanged(object, message));
            }
            QuotaDecision::Write(step, write) => (step, write),
        };
        if let QuotaStep::Refuse(refusal) = &step
            && !matches!(**refusal, QuotaRefusal::Superseded | QuotaRefusal::Disturbed { .. })
        {
            // Written down first: what is refused is not wanted any more, and is ended then.
            let before = object.status.refused.as_deref();
            let refused = retry::refused(before, amounts(want), refusal.to_string(), now);
            self.status.refused = Some(Box::new(refused));
            return Some(self.unchanged(object, "the change of the quota is given up"));
        }
        match write {
            Write::Parent(ledger) => self.step = Step::ParentQuota(ledger),
            Write::Own(ledger) => self.step = Step::OwnQuota(ledger),
            Write::Record(record) => {
                let decided = i64::try_from(record.decided.min(MAX_NUMBER)).unwrap_or(i64::MAX);
                self.status.allotment = Some(Allotment { hard: amounts(&record.allotment), decided });
            }
        }
        Some(self.unchanged(object, "the quota is being changed"))
    }

    /// The namespace has what was asked for.
    fn granted(&mut self, object: &SubnamespaceObject, asked: &Resources) {
        let hard = amounts(asked);
        if self.status.request.as_ref().is_none_or(|request| request.hard != hard) {
            let message = format!("namespace {} has {asked}", object.name);
            self.events.push(PlannedEvent { warning: false, reason: Reason::QuotaGranted, message });
            self.status.request = Some(GrantedRequest { hard });
        }
        self.status.refused = None;
    }

    /// Says in status what there is, and why.
    fn describe(&mut self, observation: &Observation, state: State) {
        let (object, now) = (&observation.object, observation.time.now());
        let State { phase, reason, mut message } = state;
        let before = condition::find(&self.status.conditions, READY).cloned();
        let before = before.as_ref().filter(|before| before.reason == reason.as_str());
        let of_this_spec = before.filter(|before| before.observed_generation == Some(object.generation));
        if let Some(before) = of_this_spec.filter(|_| reason == Reason::QuotaRefused) {
            let of = |message| (refused_resource(message), tried_again(message));
            if of(&before.message) == of(&message) {
                // What is used changes all the time: the numbers are those of when it was refused, as long as that is for the same resource.
                message.clone_from(&before.message);
            }
        }
        let begins = match phase {
            // Of another spec it is another refusal. What is not known is none.
            SubnamespacePhase::Refused => of_this_spec.is_none() && observation.stale.is_none(),
            SubnamespacePhase::Deleting => before.is_none() && WAITS.contains(&reason),
            _ => false,
        };
        if begins {
            let message = message.clone();
            self.events.push(PlannedEvent { warning: true, reason, message });
        }
        let ready = if observation.stale.is_some() {
            "Unknown"
        } else if phase == SubnamespacePhase::Ready {
            "True"
        } else {
            "False"
        };
        let state = ConditionState { status: ready, reason: reason.to_string(), message };
        condition::set(&mut self.status.conditions, READY, state, object.generation, now);
        let status = &mut self.status;
        status.phase = Some(phase);
        status.observed_generation = Some(object.generation);
        status.requested = asked(object).map_or_else(|(_, why)| why, |asked| asked.to_string());
        status.allotted = allotment(object).map_or_else(String::new, |has| has.to_string());
        status.children = u32::try_from(observation.children.len()).unwrap_or(u32::MAX);
        if let Ok(above) = &observation.parent_position {
            let position = above.below(&object.name);
            status.tree = position.tree.name.to_string();
            status.path = position.path();
            status.depth = position.depth();
        }
        if observation.own_namespace().is_none() {
            status.children = 0;
        }
        self.describe_overdraft(observation);
        self.announce(observation);
    }

    /// Says whether what is used is within the quota, once nothing is being changed. Of one that goes nobody asks any more.
    fn describe_overdraft(&mut self, observation: &Observation) {
        let object = &observation.object;
        let rests = matches!(self.status.phase, Some(SubnamespacePhase::Ready | SubnamespacePhase::Refused))
            && self.step == Step::Nothing
            && is_durable(&self.status, &object.status);
        let stays = !object.terminating
            && observation.stale.is_none()
            && observation.own_namespace().is_some_and(|namespace| !namespace.terminating);
        let quota = observation.quota.as_deref().filter(|_| rests && stays);
        let Some(quota) = quota.and_then(|quota| quota.quota.as_ref().ok()) else { return };
        let (conditions, seen) = (&mut self.status.conditions, (object.generation, observation.time.now()));
        let (event, ends) = overdraft::describe(conditions, &object.name, quota, seen);
        self.events.extend(event);
        self.next_check = self.next_check.into_iter().chain(ends).min();
    }
}

/// What is asked for has just been granted.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Granted;

fn being_deleted() -> State {
    State::deleting(Reason::NamespaceTerminating, "the namespace is being deleted, and its quota returned")
}

/// When a message says that it is tried again.
fn tried_again(message: &str) -> Option<&str> {
    Some(message.rsplit_once("; tried again at ")?.1)
}

fn count(children: usize) -> String {
    if children == 1 { "a Subnamespace".to_owned() } else { format!("{children} Subnamespaces") }
}

/// Whether a namespace has the label of this very object, which a policy lets nobody else set.
fn is_created_by(namespace: &NamespaceFacts, object: &SubnamespaceObject) -> bool {
    namespace.labels.get(LABEL_SUBNAMESPACE) == Some(&*object.uid)
}

/// What spec asks for; or what is wrong with it.
fn asked(object: &SubnamespaceObject) -> Result<Resources, Why> {
    let spec = object.decoded().map_err(|why| (Reason::InvalidSpec, why.to_string()))?;
    spec.asked().cloned().map_err(|why| (Reason::InvalidSpec, format!("spec.quota.hard: {why}")))
}

/// The last request that was granted.
fn granted_request(object: &SubnamespaceObject) -> Option<Resources> {
    Resources::recorded(&object.status.request.as_ref()?.hard).ok()
}

/// The reason that is written so.
pub(super) fn reason_of(text: &str) -> Option<Reason> {
    Reason::GROUPS.iter().flat_map(|(_, reasons)| *reasons).copied().find(|reason| reason.as_str() == text)
}

#[cfg(test)]
#[path = "plan_tests.rs"]
pub(super) mod tests;
