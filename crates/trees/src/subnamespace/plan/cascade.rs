//! A Subnamespace is being deleted whose namespace others are below: it stays, or, where `spec.cascadeUntil` consents, those go first, from
//! the bottom up and one after another. Those hear of it while they are there. Pure.

use coppice_api::Reason;
use coppice_api::condition::{self, ConditionState, DELETION_PENDING};
use coppice_api::names::LABEL_PROTECTED;
use coppice_api::steps::Action;
use coppice_hierarchy::{CascadeStep, Descendant, NoConsent, describe, next_below};
use coppice_kinds::SubnamespaceObject;
use coppice_lifecycle::PlatformSettings;
use coppice_lifecycle::facts::NamespaceFacts;
use coppice_lifecycle::plan::PlannedEvent;
use jiff::Timestamp;

use super::super::observe::Observation;
use super::{Lowest, State, Step, SubnamespacePlan, is_created_by};
use crate::context::Below;

impl SubnamespacePlan {
    /// Each of those below passes the governor twice: before its Subnamespace is deleted, which cannot be undone, and as any other, when its
    /// namespace is.
    pub(super) fn below_first(&mut self, observation: &Observation, namespace: &NamespaceFacts) -> State {
        let object = &observation.object;
        let until = match consent(object, observation.time.now()) {
            Ok(until) => until,
            Err(none) => {
                self.next_check = none.from;
                let message = none.has_children(&object.namespace, &object.name, observation.children.len());
                return State::deleting(Reason::HasChildren, message);
            }
        };
        self.next_check = Some(until);
        // That others are below it stops managers and people by `forbids`, which `protection` knows nothing of: here these go first.
        if let Some(refusal) = observation.settings.protection(namespace) {
            return State::deleting(refusal.reason, refusal.message);
        }
        if let Some(denied) = observation.circumstances().block(Action::Delete) {
            let state = self.waits(denied, observation.time.now());
            self.next_check = Some(self.next_check.map_or(until, |at| at.min(until)));
            return state;
        }
        self.next_below(observation, until)
    }

    /// Deletes the next one below, past those that are protected: these stay, and so does all above them.
    fn next_below(&mut self, observation: &Observation, until: Timestamp) -> State {
        let (object, settings) = (&observation.object, &observation.settings);
        let below: Vec<Descendant<'_>> = observation.below.iter().map(descendant).collect();
        let going = |what: String| {
            let message = describe(&object.name, &below, settings, until, &what);
            State::deleting(Reason::CascadingDeletion, message)
        };
        let next = match next_below(&below, settings) {
            CascadeStep::Delete(at) => &observation.below[at].0,
            // Its own status says what it waits for.
            CascadeStep::Wait(at) => return going(format!("{} is next", below[at].name)),
            CascadeStep::Going => return going("the lowest of these are being deleted".to_owned()),
            CascadeStep::Protected(refusal) => {
                let message = format!("below namespace {}: {}", object.name, refusal.message);
                return State::deleting(refusal.reason, message);
            }
        };
        self.step = Step::DeleteBelow(Lowest(next.clone()));
        let message = format!(
            "Subnamespace {}/{} was deleted, since {} is and spec.cascadeUntil allows it",
            next.namespace, next.name, object.name
        );
        self.events.push(PlannedEvent { warning: false, reason: Reason::CascadingDeletion, message });
        going(format!("{} is next", next.name))
    }

    /// Says that the namespace will be deleted with one above it, and how to prevent that; with an Event when that begins.
    pub(super) fn announce(&mut self, observation: &Observation) {
        let Ok(position) = &observation.parent_position else { return };
        if observation.stale.is_some() {
            return;
        }
        let (object, now) = (&observation.object, observation.time.now());
        let announcement = Some(observation).filter(|_| !position.is_detaching()).and_then(announcement);
        let conditions = &mut self.status.conditions;
        let Some((message, until)) = announcement else {
            conditions.retain(|condition| condition.type_ != DELETION_PENDING);
            return;
        };
        let reason = Reason::DeletedWithAncestor;
        if !is_announced(object) {
            self.events.push(PlannedEvent { warning: true, reason, message: message.clone() });
        }
        let state = ConditionState { status: "True", reason: reason.to_string(), message };
        condition::set(conditions, DELETION_PENDING, state, object.generation, now);
        // It is over only for a bug on purpose, which then does not come back at once for ever.
        let ends = Some(until).filter(|until| *until > now);
        self.next_check = self.next_check.into_iter().chain(ends).min();
    }
}

/// Whether the Subnamespace below that was chosen by caches may be deleted as it is `now`. `own`: its namespace, if that is there.
pub(in super::super) fn may_still_go(
    chosen: &SubnamespaceObject,
    now: &SubnamespaceObject,
    own: Option<&NamespaceFacts>,
    settings: &PlatformSettings,
) -> bool {
    now.uid == chosen.uid
        && !now.terminating
        && now.status_error.is_none()
        && own.is_none_or(|own| settings.protection(own).is_none())
}

/// Whether a namespace goes with this Subnamespace, which may not have said so in its status yet.
pub(in super::super) fn is_namespace_of(namespace: &NamespaceFacts, object: &SubnamespaceObject) -> bool {
    object.status.namespace_uid.as_deref() == Some(&*namespace.uid) || is_created_by(namespace, object)
}

/// What those are as the pure functions take them.
fn descendant((object, own): &Below) -> Descendant<'_> {
    Descendant {
        parent: &object.namespace,
        name: &object.name,
        created: object.status.namespace_uid.is_some(),
        terminating: object.terminating,
        namespace: own.as_deref(),
    }
}

/// What is said of a namespace whose turn in a cascade comes later, and until when; nothing of one that is being deleted, which nobody can
/// prevent any more, and of one that stays since it, one below it or the namespace at the top is protected.
fn announcement(observation: &Observation) -> Option<(String, Timestamp)> {
    let (object, now) = (&observation.object, observation.time.now());
    let goes = |namespace: &NamespaceFacts| {
        !namespace.terminating && observation.settings.protection(namespace).is_none()
    };
    if object.terminating || !observation.own_namespace().is_some_and(|namespace| goes(namespace)) {
        return None;
    }
    if observation.below.iter().any(|one| descendant(one).protection(&observation.settings).is_some()) {
        return None;
    }
    let mut above = observation.above.iter().filter(|(_, own)| own.as_deref().is_some_and(goes));
    let (above, until) = above.find_map(|(above, _)| Some((above, consent(above, now).ok()?)))?;
    let message = format!(
        "namespace {name} will be deleted with namespace {top} above it: Subnamespace {parent}/{top} is being deleted with all below it, \
         from the bottom up, which its spec.cascadeUntil allows until {until}; to keep this one, a cluster administrator protects it \
         (kubectl label namespace {name} {LABEL_PROTECTED}=true), or whoever is admin in namespace {parent} takes the consent back \
         (kubectl patch sns {top} -n {parent} --type=merge -p '{{\"spec\":{{\"cascadeUntil\":null}}}}')",
        name = object.name,
        top = above.name,
        parent = above.namespace,
    );
    Some((message, until))
}

/// Whether status says that the namespace will be deleted with one above it.
fn is_announced(object: &SubnamespaceObject) -> bool {
    condition::find(&object.status.conditions, DELETION_PENDING).is_some()
}

/// Whether what the lower one of two says of its deletion may have to change, now that the upper one is being deleted as it is.
pub(in super::super) fn announcement_changes(
    upper: &SubnamespaceObject,
    lower: &SubnamespaceObject,
    now: Timestamp,
) -> bool {
    !lower.terminating && consent(upper, now).is_ok() != is_announced(lower)
}

/// Whether it is being deleted with all below it, by consent that counts now.
pub(in super::super) fn is_cascading(object: &SubnamespaceObject, now: Timestamp) -> bool {
    object.terminating && consent(object, now).is_ok()
}

/// Until when all below the namespace may be deleted.
fn consent(object: &SubnamespaceObject, now: Timestamp) -> Result<Timestamp, NoConsent> {
    coppice_hierarchy::consent(object.decoded().ok().and_then(|spec| spec.cascade_until), now)
}
