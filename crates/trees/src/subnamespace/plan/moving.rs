//! The namespace above is being deleted, and nobody has asked for the deletion of this one: it moves to the nearest one above that stays,
//! with its quota and all below it. Pure.
//!
//! A second Subnamespace of the same name there, the *successor*, takes it over. The quota goes first
//! ([`Departure`]), then the labels of the namespace say whose it is, and this one ends.

use coppice_api::Reason;
use coppice_api::names::{ANNOTATION_MOVED_FROM, ANNOTATION_PATH, LABEL_SUBNAMESPACE};
use coppice_hierarchy::{Departure, DepartureDecision};
use coppice_kinds::{SubnamespaceObject, TreeQuota};
use coppice_lifecycle::facts::NamespaceFacts;
use coppice_lifecycle::plan::PlannedEvent;
use coppice_mutants::{Mutant, active};

use super::super::moving::{MoveTarget, Moving};
use super::super::observe::Observation;
use super::{MoveStep, State, Step, SubnamespacePlan, being_deleted, is_created_by};
use crate::allotment::{below, recorded, understood};
use crate::metadata::NamespaceChanges;
use crate::position::label_changes;

/// Whether the Subnamespace goes with the namespace above: nobody has asked for the deletion of its own.
pub(super) fn parent_ends(observation: &Observation) -> bool {
    observation.parent.as_ref().is_none_or(|parent| parent.terminating) && !active(Mutant::ParentEndIgnored)
}

/// It cannot go anywhere, and is not deleted.
fn stays(observation: &Observation) -> State {
    let object = &observation.object;
    let message = format!(
        "namespace {} is being deleted, which deletes this Subnamespace; namespace {} stays until somebody deletes it",
        object.namespace, object.name
    );
    State::deleting(Reason::NamespaceTerminating, message)
}

impl SubnamespacePlan {
    /// The Subnamespace goes with the namespace above.
    pub(super) fn move_up(&mut self, observation: &Observation, namespace: &NamespaceFacts) -> State {
        let object = &observation.object;
        if namespace.labels.get(LABEL_SUBNAMESPACE).is_some_and(|owner| owner != &*object.uid) {
            // It is the successor's.
            self.step = Step::RemoveFinalizer;
            return being_deleted();
        }
        let moving = match &observation.moving {
            Some(MoveTarget::Found(moving)) => moving,
            Some(MoveTarget::Nowhere((_, why))) => {
                let State { message, .. } = stays(observation);
                return State::deleting(Reason::NamespaceTerminating, format!("{message}: {why}"));
            }
            None => {
                self.step = Step::Read;
                return stays(observation);
            }
        };
        let successor = moving.successor.as_deref();
        // That of another one before this, which a late write has given the namespace to, has what the namespace has already.
        let takes_over = |other: &&SubnamespaceObject| {
            other.annotations.moved_from.as_ref() == Some(&object.uid)
                || observation.is_fenced_for(&other.uid)
        };
        match (successor.filter(takes_over), successor) {
            (Some(successor), _) => self.depart(observation, namespace, moving, successor),
            _ if namespace.terminating => being_deleted(),
            (None, Some(_)) => waits(
                observation,
                moving,
                &format!(
                    "there is another Subnamespace {0} there: delete that (kubectl delete sns {0} -n {1})",
                    object.name, moving.above.name
                ),
            ),
            (None, None) => match object.decoded() {
                Ok(spec) => {
                    let mut spec = spec.clone();
                    // Consent to delete what is below it was given for where it was.
                    spec.cascade_until = None;
                    self.step = Step::Move(MoveStep::CreateSuccessor(Box::new(spec)));
                    waits(observation, moving, "")
                }
                Err(why) => waits(observation, moving, &why.to_string()),
            },
        }
    }

    /// One step of the way.
    fn depart(
        &mut self,
        observation: &Observation,
        namespace: &NamespaceFacts,
        moving: &Moving,
        successor: &SubnamespaceObject,
    ) -> State {
        let (object, now) = (&observation.object, observation.time.now());
        let status = &*successor.status;
        let same = status.request == object.status.request && status.metadata == object.status.metadata;
        if !same && !namespace.terminating {
            let mut status = status.clone();
            status.request.clone_from(&object.status.request);
            status.metadata.clone_from(&object.status.metadata);
            self.step = Step::Move(MoveStep::SuccessorStatus(Box::new(status)));
            return waits(observation, moving, "");
        }
        let above = moving.quota.as_deref().map(understood);
        let quota = observation.quota.as_deref().map(understood).transpose();
        let (above, quota) = match (above, quota) {
            (Some(Ok(above)), Ok(quota)) => (above, quota),
            (Some(Err((_, why))), _) | (_, Err((_, why))) => return waits(observation, moving, &why),
            (None, _) => return waits(observation, moving, "the quota there is missing"),
        };
        let departure = Departure {
            quota,
            ends: namespace.terminating,
            record: &recorded(object),
            below: &below(&observation.children),
            above,
            id: &successor.uid,
            leaving: &moving.leaving.uid,
            leaving_record: &recorded(&moving.leaving),
            between: &moving.between,
        };
        match departure.decide(now) {
            DepartureDecision::Own(ledger) => self.step = Step::OwnQuota(ledger),
            DepartureDecision::Above(ledger) => self.step = Step::Move(MoveStep::AncestorQuota(ledger)),
            DepartureDecision::Arrived => {
                let position = moving.position.below(&object.name);
                let labels = position.labels(Some(&successor.uid));
                let mut changes = NamespaceChanges::labels(label_changes(
                    &namespace.labels,
                    &labels,
                    observation.children.len(),
                ));
                changes.annotations.insert(ANNOTATION_PATH.to_owned(), Some(position.path()));
                self.step = Step::Move(MoveStep::Label(changes));
            }
            DepartureDecision::Stays => return being_deleted(),
            DepartureDecision::Wait => {}
            DepartureDecision::Disturbed => {
                let why = format!(
                    "it has more than is recorded of Subnamespace {}/{}, which somebody else must have changed",
                    moving.leaving.namespace, moving.leaving.name
                );
                return waits(observation, moving, &why);
            }
        }
        waits(observation, moving, "")
    }

    /// Takes over the namespace that another Subnamespace had. Without one it ends: it never creates any.
    pub(super) fn arrive(&mut self, observation: &Observation) -> State {
        let object = &observation.object;
        if let Some(namespace) = observation.namespace.as_deref()
            && is_created_by(namespace, object)
        {
            self.status.namespace_uid = Some(namespace.uid.clone());
            let message = format!(
                "namespace {} is below {} now, with its quota and all below it: the one that it was in is being deleted",
                object.name, object.namespace
            );
            self.events.push(PlannedEvent {
                warning: false,
                reason: Reason::MovedToAncestor,
                message: message.clone(),
            });
            return State::pending(Reason::MovedToAncestor, message);
        }
        if observation.may_come() {
            let message = format!("namespace {} is being moved here", object.name);
            return State::pending(Reason::MovedToAncestor, message);
        }
        if object.status.request.is_none()
            && observation.parent_quota.as_deref().is_some_and(no_entry_of(object))
        {
            let message = format!(
                "namespace {0} was moved here, and nothing is known of it any more, as after a restore: create the Subnamespace again without \
                 the annotation {ANNOTATION_MOVED_FROM} to have a namespace {0}",
                object.name
            );
            return State::refused((Reason::MovedToAncestor, message));
        }
        self.gone(observation)
    }
}

/// Whether a ledger has nothing of this Subnamespace.
fn no_entry_of(object: &SubnamespaceObject) -> impl Fn(&TreeQuota) -> bool {
    |quota| {
        understood(quota).is_ok_and(|quota| {
            let ledger = &quota.ledger;
            !ledger.arriving.contains_key(&*object.uid) && !ledger.changes.contains_key(&*object.uid)
        })
    }
}

fn waits(observation: &Observation, moving: &Moving, why: &str) -> State {
    let object = &observation.object;
    let message = format!(
        "namespace {} is being deleted: namespace {} moves to {}, with its quota and all below it",
        object.namespace, object.name, moving.above.name
    );
    let message = if why.is_empty() { message } else { format!("{message}; it waits: {why}") };
    State::deleting(Reason::MovedToAncestor, message)
}
