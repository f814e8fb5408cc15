//! Carries a plan out: status first, then the effect, then what came of it.

mod delete;
pub(super) mod mutated;
mod scale;
pub(super) mod wake;
mod webhook;

use std::time::Duration;

use coppice_api::Reason;
use coppice_api::manager::{Intent, NamespaceManagerStatus};
use coppice_lifecycle::Plan;
use coppice_lifecycle::plan::{Effect, Note};
use coppice_lifecycle::record::{self, Outcome};
use coppice_runtime::error::chain;
use coppice_runtime::kinds::Manager;
use coppice_runtime::leader::Permit;
use coppice_runtime::mutants::{self, Mutant};
use coppice_runtime::write::WriteError;
use coppice_runtime::{read, write};
use jiff::{SignedDuration, Timestamp};

use super::observe::{self, Observation};
use super::plan;
use crate::shared::{Key, Shared};

/// How a plan went.
pub(super) enum Applied {
    /// There is more to decide, on this manager.
    Again(Manager),
    /// There is nothing to do until then, or until something changes.
    Look(Option<Timestamp>),
    /// Nothing could be done; try again with backoff.
    Failed(String),
    /// The caches are behind what was read afresh: nothing is done until they have had time to catch up.
    Behind,
}

/// The pause before an outcome that the API server refused to take is offered again; at most eight times as long if it asks for it.
const BREATH: Duration = Duration::from_millis(250);

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
    if plan.status != *manager.status || mutants::active(Mutant::StatusEveryLoop) && plan.effect.is_none() {
        let told = Told {
            notes: plan.notes,
            intent: plan.status.intent.clone().or_else(|| manager.status.intent.clone()),
        };
        return match save(shared, &permit, manager, &plan.status).await {
            Ok(_) if plan.status == *manager.status => (Applied::Look(plan.look_at), Told::default()),
            Ok(written) => {
                count_blocked(shared, manager, &written);
                webhook::forget_finished(shared, manager, &written);
                (Applied::Again(written), told)
            }
            Err(error) => lost(error, shared, manager, &plan.status, told).await,
        };
    }
    let Some(effect) = plan.effect else { return (Applied::Look(plan.look_at), Told::default()) };
    let intent = effect.intent().clone();
    if mutants::active(Mutant::OutcomeBeforeEffect) && matches!(effect, Effect::Delete(_)) {
        return mutated::hasty(shared, &permit, &key, intent).await;
    }
    let carried = match effect {
        Effect::Delete(intent) => delete::carry_out(shared, &permit, &key, &intent).await,
        Effect::ScaleDown(intent, what) => scale::down(shared, &permit, &key, &intent, &what).await,
        Effect::Wake(intent) => wake::wake(shared, &permit, &key, &intent).await,
        Effect::Webhook(intent, policy) => webhook::submit(shared, &key, &intent, &policy).await,
    };
    match carried {
        Err(error) => (Applied::Failed(error), Told::default()),
        Ok(Carried::Gone) => {
            forget(shared, manager);
            (Applied::Look(None), Told::default())
        }
        Ok(Carried::Wait(at)) => (Applied::Look(at), Told::default()),
        Ok(Carried::Changed(manager)) => (Applied::Again(manager), Told::default()),
        Ok(Carried::Replanned(manager, plan)) => replanned(shared, &permit, &manager, *plan).await,
        Ok(Carried::Ended(outcome, manager)) => conclude(shared, &permit, intent, outcome, manager).await,
    }
}

/// Counts what is held back, when it begins to be.
fn count_blocked(shared: &Shared, before: &Manager, after: &Manager) {
    let reason = |m: &Manager| m.status.next.as_ref().map(|next| next.reason.clone());
    let now = reason(after).filter(|now| reason(before).as_ref() != Some(now));
    for blocked in [
        Reason::BudgetSpent,
        Reason::ClockSkew,
        Reason::Forbidden,
        Reason::NotSynced,
        Reason::Paused,
        Reason::SettingsMissing,
        Reason::Stale,
        Reason::TooLarge,
        Reason::Undecodable,
    ] {
        if now.as_deref() == Some(blocked.as_str()) {
            shared.metrics.blocked(blocked.as_str());
        }
    }
}

/// Follows a plan that was made from a fresh look, as far as status goes. The caches are behind: what comes next is
/// decided when they have caught up.
async fn replanned(shared: &Shared, permit: &Permit, manager: &Manager, plan: Plan) -> (Applied, Told) {
    if plan.status == *manager.status {
        return (Applied::Behind, Told::default());
    }
    let told = Told { notes: plan.notes, intent: manager.status.intent.clone() };
    match save(shared, permit, manager, &plan.status).await {
        Ok(_) => (Applied::Behind, told),
        Err(error) => lost(error, shared, manager, &plan.status, told).await,
    }
}

/// When to look again at something that will be different in a moment.
pub(super) fn soon(shared: &Shared) -> Option<Timestamp> {
    shared.now().checked_add(SignedDuration::from_secs(1)).ok()
}

/// Writes what came of an effect into the manager that holds its intent.
async fn conclude(
    shared: &Shared,
    permit: &Permit,
    intent: Intent,
    outcome: Outcome,
    mut manager: Manager,
) -> (Applied, Told) {
    // What came of an attempt is true whatever else changes meanwhile: lost races are repeated on the newest revision.
    let told = |notes| Told { notes, intent: Some(intent.clone()) };
    let mut refused = "the manager's status changes all the time".to_owned();
    let mut unanswered: Option<(NamespaceManagerStatus, Vec<Note>)> = None;
    for _ in 0..5 {
        let Some(current) = manager.status.intent.clone().filter(|i| i.id == intent.id) else {
            // It was written after all, and the answer was lost; or somebody else settled it, who told it, too.
            let ours = unanswered.filter(|(status, _)| *status == *manager.status);
            return (Applied::Again(manager), ours.map_or_else(Told::default, |(_, notes)| told(notes)));
        };
        let mut status = (*manager.status).clone();
        let notes = record::apply(&mut status, &current, &outcome, shared.now());
        let status = followed_up(shared, &manager, status);
        match save(shared, permit, &manager, &status).await {
            Ok(written) => {
                count_blocked(shared, &manager, &written);
                return (Applied::Again(written), told(notes));
            }
            // The namespace took its manager along: what was done is still told.
            Err(WriteError::Gone) => return (Applied::Look(None), told(notes)),
            Err(WriteError::Refused(error)) => {
                // It is told when it is written down. The API server may only have too much to do.
                refused = error;
                tokio::time::sleep(shared.clients.patience.remaining().clamp(BREATH, 8 * BREATH)).await;
            }
            Err(WriteError::Conflict | WriteError::Ambiguous(_)) => match again(shared, &manager).await {
                Ok(Some(newer)) => (manager, unanswered) = (newer, Some((status, notes))),
                Ok(None) => return (Applied::Look(None), told(notes)),
                Err(error) => return (Applied::Failed(chain(&error)), Told::default()),
            },
        }
    }
    (Applied::Failed(refused), Told::default())
}

/// A status with an outcome in it, and with all that the next look would say anyway: one write for both. What that look would
/// begin, end or tell of is left to it.
fn followed_up(shared: &Shared, manager: &Manager, status: NamespaceManagerStatus) -> NamespaceManagerStatus {
    let key = Key::new(&manager.namespace, &manager.name);
    let concluded = Manager { status: Box::new(status.clone()), ..manager.clone() };
    let plan = plan::plan(&observe::with(shared, &key, concluded));
    let only_says = plan.notes.is_empty() && plan.status.intent == status.intent;
    if only_says { plan.status } else { status }
}

/// Reads a manager again whose write was lost, and remembers what there is now.
async fn again(shared: &Shared, manager: &Manager) -> Result<Option<Manager>, kube::Error> {
    let now = read::get::<Manager>(&shared.clients.reads, &manager.namespace, &manager.name).await?;
    match &now {
        Some(now) => shared.managers.learn(&manager.namespace, now.clone()),
        None => forget(shared, manager),
    }
    Ok(now)
}

/// A manager that the API server says is gone is looked at no more, whether or not the watch has told so.
fn forget(shared: &Shared, manager: &Manager) {
    shared.managers.forget(&manager.namespace, &manager.name, |known| known.uid == manager.uid);
}

pub(super) async fn save(
    shared: &Shared,
    permit: &Permit,
    manager: &Manager,
    status: &NamespaceManagerStatus,
) -> Result<Manager, WriteError> {
    let result = write::status(&shared.clients, permit, manager, "NamespaceManager", status).await;
    shared.metrics.status_written(result.is_ok());
    match &result {
        Ok(written) => shared.managers.learn(&manager.namespace, written.clone()),
        Err(WriteError::Gone) => forget(shared, manager),
        Err(_) => {}
    }
    result
}

/// What to do about a write that was lost, and what to tell: it may have happened.
async fn lost(
    error: WriteError,
    shared: &Shared,
    manager: &Manager,
    written: &NamespaceManagerStatus,
    told: Told,
) -> (Applied, Told) {
    match error {
        WriteError::Gone => (Applied::Look(None), Told::default()),
        WriteError::Refused(error) => (Applied::Failed(error), Told::default()),
        WriteError::Conflict | WriteError::Ambiguous(_) => match again(shared, manager).await {
            Ok(Some(newer)) if *newer.status == *written => (Applied::Again(newer), told),
            Ok(Some(newer)) => (Applied::Again(newer), Told::default()),
            Ok(None) => (Applied::Look(None), Told::default()),
            Err(error) => (Applied::Failed(chain(&error)), Told::default()),
        },
    }
}
