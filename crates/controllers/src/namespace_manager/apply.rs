//! Carries a plan out: status first, then the effect, then what came of it.

mod delete;
mod scale;
mod webhook;

use coppice_api::Reason;
use coppice_api::manager::{Intent, NamespaceManagerStatus};
use coppice_lifecycle::Plan;
use coppice_lifecycle::plan::{Effect, Note};
use coppice_lifecycle::record::{self, Outcome};
use coppice_runtime::error::chain;
use coppice_runtime::kinds::Manager;
use coppice_runtime::leader::Permit;
use coppice_runtime::write::WriteError;
use coppice_runtime::{read, write};
use jiff::{SignedDuration, Timestamp};

use super::observe::Observation;
use crate::shared::{Key, Shared};

/// How a plan went.
pub(super) enum Applied {
    /// There is more to decide, on this manager.
    Again(Manager),
    /// There is nothing to do until then, or until something changes.
    Look(Option<Timestamp>),
    /// Nothing could be done; try again with backoff.
    Failed(String),
}

/// What happened, for people.
#[derive(Default)]
pub(super) struct Told {
    pub(super) notes: Vec<Note>,
    /// The intent that they are about, if any.
    pub(super) intent: Option<Intent>,
}

/// How carrying out an effect went.
pub(super) enum Carried {
    /// It came to an end, on this revision of the manager.
    Ended(Outcome, Manager),
    /// The manager has changed: decide again, on this one.
    Changed(Manager),
    /// A fresh look gives another plan, for this manager.
    Replanned(Manager, Box<Plan>),
    /// Nothing can be done before then, or before something changes.
    Wait(Option<Timestamp>),
    /// The manager is gone, and its wishes with it.
    Gone,
}

/// Carries a plan out.
pub(super) async fn apply(shared: &Shared, observation: &Observation, plan: Plan) -> (Applied, Told) {
    let Ok(permit) = shared.gate.permit() else { return (Applied::Look(None), Told::default()) };
    let manager = &*observation.manager;
    let key = Key::new(&manager.namespace, &manager.name);
    if plan.status != *manager.status {
        let told = Told {
            notes: plan.notes,
            intent: plan.status.intent.clone().or_else(|| manager.status.intent.clone()),
        };
        return match save(shared, &permit, manager, &plan.status).await {
            Ok(written) => {
                count_blocked(shared, manager, &written);
                webhook::forget_finished(shared, manager, &written);
                (Applied::Again(written), told)
            }
            Err(error) => lost(error, shared, &key, &plan.status, told).await,
        };
    }
    let Some(effect) = plan.effect else { return (Applied::Look(plan.look_at), Told::default()) };
    let intent = effect.intent().clone();
    let carried = match effect {
        Effect::Delete(intent) => delete::carry_out(shared, &permit, &key, &intent).await,
        Effect::ScaleDown(intent, what) => scale::down(shared, &permit, &key, &intent, &what).await,
        Effect::Wake(intent) => scale::wake(shared, &permit, &key, &intent).await,
        Effect::Webhook(intent, policy) => webhook::submit(shared, &key, &intent, &policy).await,
    };
    match carried {
        Err(error) => (Applied::Failed(error), Told::default()),
        Ok(Carried::Gone) => (Applied::Look(None), Told::default()),
        Ok(Carried::Wait(at)) => (Applied::Look(at), Told::default()),
        Ok(Carried::Changed(manager)) => (Applied::Again(manager), Told::default()),
        Ok(Carried::Replanned(manager, plan)) => replanned(shared, &permit, &key, &manager, *plan).await,
        Ok(Carried::Ended(outcome, manager)) => {
            conclude(shared, &permit, &key, intent, outcome, manager).await
        }
    }
}

/// Counts what is held back, when it begins to be.
fn count_blocked(shared: &Shared, before: &Manager, after: &Manager) {
    use Reason::{BudgetSpent, ClockSkew, Forbidden, NotSynced, Paused, Stale};
    let reason = |m: &Manager| m.status.next.as_ref().map(|next| next.reason.clone());
    let now = reason(after).filter(|now| reason(before).as_ref() != Some(now));
    for blocked in [BudgetSpent, ClockSkew, Forbidden, NotSynced, Paused, Stale] {
        if now.as_deref() == Some(blocked.as_str()) {
            shared.metrics.blocked(blocked.as_str());
        }
    }
}

/// Follows a plan that was made from a fresh look, as far as status goes. The caches are behind: what comes next is
/// decided when they have caught up.
async fn replanned(
    shared: &Shared,
    permit: &Permit,
    key: &Key,
    manager: &Manager,
    plan: Plan,
) -> (Applied, Told) {
    let soon = soon(shared);
    if plan.status == *manager.status {
        return (Applied::Look(soon), Told::default());
    }
    let told = Told { notes: plan.notes, intent: manager.status.intent.clone() };
    match save(shared, permit, manager, &plan.status).await {
        Ok(_) => (Applied::Look(soon), told),
        Err(error) => lost(error, shared, key, &plan.status, told).await,
    }
}

/// When to look again at something that will be different in a moment.
pub(super) fn soon(shared: &Shared) -> Option<Timestamp> {
    shared.clock.now().checked_add(SignedDuration::from_secs(1)).ok()
}

/// Writes what came of an effect into the manager that holds its intent.
async fn conclude(
    shared: &Shared,
    permit: &Permit,
    key: &Key,
    intent: Intent,
    outcome: Outcome,
    mut manager: Manager,
) -> (Applied, Told) {
    // What came of an attempt is true whatever else changes meanwhile: lost races are repeated on the newest revision.
    for _ in 0..5 {
        let Some(current) = manager.status.intent.clone().filter(|i| i.id == intent.id) else {
            return (Applied::Again(manager), Told::default());
        };
        let mut status = (*manager.status).clone();
        let notes = record::apply(&mut status, &current, &outcome, shared.clock.now());
        let told = |notes| Told { notes, intent: Some(intent.clone()) };
        match save(shared, permit, &manager, &status).await {
            Ok(written) => return (Applied::Again(written), told(notes)),
            // The namespace took its manager along: what was done is still told.
            Err(WriteError::Gone) => return (Applied::Look(None), told(notes)),
            Err(WriteError::Refused(error)) => return (Applied::Failed(error), told(notes)),
            Err(WriteError::Conflict | WriteError::Ambiguous(_)) => {
                match read::get::<Manager>(&shared.clients.reads, &key.namespace, &key.name).await {
                    Ok(Some(newer)) => manager = newer,
                    Ok(None) => return (Applied::Look(None), told(notes)),
                    Err(error) => return (Applied::Failed(chain(&error)), Told::default()),
                }
            }
        }
    }
    (Applied::Failed("the manager's status changes all the time".to_owned()), Told::default())
}

pub(super) async fn save(
    shared: &Shared,
    permit: &Permit,
    manager: &Manager,
    status: &NamespaceManagerStatus,
) -> Result<Manager, WriteError> {
    let result = write::status(&shared.clients, permit, manager, "NamespaceManager", status).await;
    shared.metrics.status_written(result.is_ok());
    result
}

/// What to do about a write that was lost, and what to tell: it may have happened.
async fn lost(
    error: WriteError,
    shared: &Shared,
    key: &Key,
    written: &NamespaceManagerStatus,
    told: Told,
) -> (Applied, Told) {
    match error {
        WriteError::Gone => (Applied::Look(None), Told::default()),
        WriteError::Refused(error) => (Applied::Failed(error), Told::default()),
        WriteError::Conflict | WriteError::Ambiguous(_) => {
            match read::get::<Manager>(&shared.clients.reads, &key.namespace, &key.name).await {
                Ok(Some(newer)) if *newer.status == *written => (Applied::Again(newer), told),
                Ok(Some(newer)) => (Applied::Again(newer), Told::default()),
                Ok(None) => (Applied::Look(None), Told::default()),
                Err(error) => (Applied::Failed(chain(&error)), Told::default()),
            }
        }
    }
}
