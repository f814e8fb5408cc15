//! A Subnamespace is being deleted whose namespace others are below: it stays, or, where `spec.cascadeUntil` consents, those go first, from
//! the bottom up and one after another. Those hear of it while they are there. Pure.

use std::collections::BTreeSet;

use coppice_api::Reason;
use coppice_api::condition::{self, ConditionState, DELETION_PENDING};
use coppice_api::names::LABEL_PROTECTED;
use coppice_api::steps::Action;
use coppice_kinds::SubnamespaceObject;
use coppice_lifecycle::PlatformSettings;
use coppice_lifecycle::facts::NamespaceFacts;
use coppice_lifecycle::plan::PlannedEvent;
use coppice_lifecycle::settings::Refusal;
use coppice_mutants::{Mutant, active};
use jiff::{SignedDuration, Timestamp};

use super::super::observe::Observation;
use super::{Lowest, State, Step, SubnamespacePlan, count};
use crate::context::Below;

/// For so long at most before it ends consent counts: nobody deletes by what was written once and for all.
const CONSENT: SignedDuration = SignedDuration::from_hours(24);
/// So many of the namespaces that are protected are named.
const MAX_NAMED: usize = 5;

impl SubnamespacePlan {
    /// Each of those below passes the governor twice: before its Subnamespace is deleted, which cannot be undone, and as any other, when its
    /// namespace is.
    pub(super) fn below_first(&mut self, observation: &Observation, namespace: &NamespaceFacts) -> State {
        let object = &observation.object;
        let until = match consent(object, observation.time.now()) {
            Ok(until) => until,
            Err(NoConsent { why, from }) => {
                self.next_check = from;
                let message = format!(
                    "namespace {0} has {1} below it, and stays: {why}delete these first (kubectl get subnamespaces -n {0}), or all below it \
                     with it (coppice tree delete {2}/{0} --cascade)",
                    object.name,
                    count(observation.children.len()),
                    object.namespace
                );
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
        let protection = |namespace: &NamespaceFacts| settings.protection(namespace);
        let going = |what: String| {
            let message = describe(observation, until, &what);
            State::deleting(Reason::CascadingDeletion, message)
        };
        let lowest = lowest(&observation.below);
        let waits_for = |(below, namespace): &&&Below| {
            let goes = |namespace: &NamespaceFacts| !namespace.terminating && protection(namespace).is_none();
            below.terminating && namespace.as_deref().is_some_and(goes)
        };
        if let Some((below, _)) = lowest.iter().find(waits_for) {
            // Its own status says what it waits for.
            return going(format!("{} is next", below.name));
        }
        let may_go = |(below, namespace): &&&Below| {
            !below.terminating && namespace.as_deref().and_then(protection).is_none()
        };
        let Some((next, _)) = lowest.iter().find(may_go) else {
            let stay = |(_, namespace): &&Below| {
                namespace.as_deref().filter(|namespace| !namespace.terminating).and_then(protection)
            };
            let refusals: Vec<Refusal> = lowest.iter().filter_map(stay).collect();
            return match refusals.first() {
                Some(refusal) if refusals.len() == lowest.len() => {
                    let message = format!("below namespace {}: {}", object.name, refusal.message);
                    State::deleting(refusal.reason, message)
                }
                _ => going("the lowest of these are being deleted".to_owned()),
            };
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

/// What is said while those below a namespace go, and which of them stay.
fn describe(observation: &Observation, until: Timestamp, what: &str) -> String {
    let (name, below) = (&observation.object.name, &observation.below);
    let protected: Vec<&str> = below
        .iter()
        .filter(|one| stays(&observation.settings, one))
        .map(|(object, _)| &*object.name)
        .collect();
    if protected.is_empty() {
        return format!(
            "namespace {name} is deleted after the {} below it, from the bottom up, which spec.cascadeUntil allows until {until}: {what}",
            below.len()
        );
    }
    let first = protected.iter().take(MAX_NAMED).copied().collect::<Vec<_>>().join(", ");
    let more = match protected.len().saturating_sub(MAX_NAMED) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    format!(
        "those below namespace {name} are deleted from the bottom up, which spec.cascadeUntil allows until {until}: {what}; what is protected \
         stays, and all above it: {first}{more}"
    )
}

/// Whether the namespace of one below is protected, so that it and all above it stay.
fn stays(settings: &PlatformSettings, (_, own): &Below) -> bool {
    own.as_deref().is_some_and(|own| !own.terminating && settings.protection(own).is_some())
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
    if observation.below.iter().any(|one| stays(&observation.settings, one)) {
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

/// Those that none of the others is below.
fn lowest(below: &[Below]) -> Vec<&Below> {
    let with_children: BTreeSet<&str> = below.iter().map(|(object, _)| &*object.namespace).collect();
    // A Subnamespace that created no namespace is above none, whatever its name is.
    let is_above = |object: &SubnamespaceObject| {
        object.status.namespace_uid.is_some() && with_children.contains(&*object.name)
    };
    below.iter().filter(|(object, _)| !is_above(object)).collect()
}

/// Nothing below is deleted.
struct NoConsent {
    /// Why, where there was consent or will be.
    why: String,
    /// When there is.
    from: Option<Timestamp>,
}

/// Until when all below the namespace may be deleted.
fn consent(object: &SubnamespaceObject, now: Timestamp) -> Result<Timestamp, NoConsent> {
    let until = object.decoded().ok().and_then(|spec| spec.cascade_until);
    let Some(until) = until else { return Err(NoConsent { why: String::new(), from: None }) };
    if until <= now && !active(Mutant::ConsentIgnored) {
        return Err(NoConsent {
            why: format!("the consent of spec.cascadeUntil ended at {until}; "),
            from: None,
        });
    }
    match until.checked_sub(CONSENT) {
        Ok(from) if from > now => Err(NoConsent {
            why: format!("spec.cascadeUntil counts for its last 24 hours alone, from {from}; "),
            from: Some(from),
        }),
        _ => Ok(until),
    }
}
