//! Carries a plan out: status first, then the effect, then its outcome.

mod delete;
pub(super) mod mutant_behavior;
mod result;
mod scale;
pub(super) mod wake;
mod webhook;

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::time::Duration;

use coppice_api::Reason;
use coppice_api::manager::{Intent, NamespaceManagerStatus};
use coppice_kinds::{Manager, Managers};
use coppice_lifecycle::Plan;
use coppice_lifecycle::plan::{PlannedEvent, Step};
use coppice_lifecycle::record::{self, StepOutcome};
use coppice_lifecycle::steps;
use coppice_mutants::Mutant;
use coppice_runtime::error::chain;
use coppice_runtime::leader::Permit;
use coppice_runtime::write::WriteError;
use coppice_runtime::{read, write};
use jiff::{SignedDuration, Timestamp};
use tokio::time::Instant;

use super::observe::{self, Observation};
use super::plan;
use crate::context::{ControllerContext, ManagerKey};
use result::{Interruption, StepError, StepResult};

/// How a plan went.
pub(super) enum Applied {
    /// There is more to decide, on this manager.
    Replan(Manager),
    /// There is nothing to do until then, or until something changes.
    CheckAt(Option<Timestamp>),
    /// Nothing could be done; try again with backoff.
    Failed(StepError),
    /// The caches are behind what was read from the API server: nothing is done until they have had time to catch up.
    CacheBehind,
}

/// The pause before an outcome that the API server refused to take is offered again; at most eight times as long if it asks for it.
const STATUS_RETRY_PAUSE: Duration = Duration::from_millis(250);

/// The Events of a reconcile.
#[derive(Default)]
pub(super) struct EventBatch {
    pub(super) events: Vec<PlannedEvent>,
    /// The intent that they are about, if any.
    pub(super) intent: Option<Intent>,
}

/// Carries a plan out.
pub(super) async fn apply(
    shared: &ControllerContext,
    observation: &Observation,
    plan: Plan,
) -> (Applied, EventBatch) {
    let Ok(permit) = shared.gate.permit() else { return (Applied::CheckAt(None), EventBatch::default()) };
    let manager = &*observation.manager;
    let key = ManagerKey::new(&manager.namespace, &manager.name);
    if plan.status != *manager.status
        || coppice_mutants::active(Mutant::StatusEveryLoop) && plan.step.is_none()
    {
        let batch = EventBatch {
            events: plan.events,
            intent: plan.status.steps.intent.clone().or_else(|| manager.status.steps.intent.clone()),
        };
        let began = Instant::now();
        let (applied, batch) = match save(shared, &permit, manager, &plan.status).await {
            Ok(_) if plan.status == *manager.status => {
                (Applied::CheckAt(plan.next_check), EventBatch::default())
            }
            Ok(written) => {
                count_blocked(shared, manager, &written);
                webhook::acknowledge_attempt(shared, manager, &written);
                (Applied::Replan(written), batch)
            }
            Err(error) => resolve_lost_write(error, shared, manager, &plan.status, batch).await,
        };
        return match applied {
            Applied::Replan(written) if *written.status == plan.status => {
                run_whole_notice(shared, &permit, manager, written, (batch, began.elapsed())).await
            }
            other => (other, batch),
        };
    }
    let Some(step) = plan.step else { return (Applied::CheckAt(plan.next_check), EventBatch::default()) };
    let intent = step.intent().clone();
    if coppice_mutants::active(Mutant::OutcomeBeforeEffect) && matches!(step, Step::Delete(_)) {
        return mutant_behavior::record_before_delete(shared, &permit, &key, intent).await;
    }
    let carried = match step {
        Step::Delete(intent) => delete::execute(shared, &permit, &key, &intent).await,
        Step::ScaleDown(intent, what) => scale::execute(shared, &permit, &key, &intent, &what).await,
        Step::Wake(intent) => wake::wake(shared, &permit, &key, &intent).await,
        Step::Webhook(intent, message) => webhook::submit(shared, &key, &intent, message).await,
    };
    let ended = match carried {
        Ok(ended) | Err(Interruption::Ended(ended)) => ended,
        Err(Interruption::Failed(error)) => return (Applied::Failed(error), EventBatch::default()),
    };
    match ended {
        StepResult::Gone => {
            remove_if(shared, manager);
            (Applied::CheckAt(None), EventBatch::default())
        }
        StepResult::Wait(at) => (Applied::CheckAt(at), EventBatch::default()),
        StepResult::Changed(manager) => (Applied::Replan(manager), EventBatch::default()),
        StepResult::Replanned(manager, plan) => save_new_plan(shared, &permit, &manager, *plan).await,
        StepResult::Completed(outcome, manager) => {
            record_outcome(shared, &permit, intent, outcome, manager, &BTreeSet::new()).await
        }
        StepResult::ScaleDownEnded(outcome, manager, unchanged) => {
            record_outcome(shared, &permit, intent, outcome, manager, &unchanged).await
        }
    }
}

/// Notice runs from when it can be seen. If the write that gave it took longer than dates are accurate, its end moves by
/// as much, never earlier, and what is announced is that date.
async fn run_whole_notice(
    shared: &ControllerContext,
    permit: &Permit,
    before: &Manager,
    written: Manager,
    (mut batch, took): (EventBatch, Duration),
) -> (Applied, EventBatch) {
    let (mut status, mut events) = ((*written.status).clone(), batch.events.clone());
    let moved = steps::prolong_notice(&mut status.steps, &before.status.steps, took, &mut events);
    // Another replica may lead by now, and have decided on what there is.
    if !moved || permit.check().is_err() {
        return (Applied::Replan(written), batch);
    }
    let status = with_next_plan(shared, &written, status);
    match save(shared, permit, &written, &status).await {
        Ok(written) => {
            batch.events = events;
            (Applied::Replan(written), batch)
        }
        Err(error) => {
            let (namespace, manager) = (&written.namespace, &written.name);
            tracing::warn!(%namespace, %manager, %error, "the notice is shorter by what its write took");
            (Applied::Replan(written), batch)
        }
    }
}

/// Counts a step that is held back, once it starts to be.
fn count_blocked(shared: &ControllerContext, before: &Manager, after: &Manager) {
    shared.lifecycle_metrics.newly_blocked(before.status.next.as_ref(), after.status.next.as_ref());
}

/// Writes the status of a plan that was made from a fresh read. The caches are behind: what comes next is decided when
/// they have caught up.
async fn save_new_plan(
    shared: &ControllerContext,
    permit: &Permit,
    manager: &Manager,
    plan: Plan,
) -> (Applied, EventBatch) {
    if plan.status == *manager.status {
        return (Applied::CacheBehind, EventBatch::default());
    }
    let batch = EventBatch { events: plan.events, intent: manager.status.steps.intent.clone() };
    match save(shared, permit, manager, &plan.status).await {
        Ok(_) => (Applied::CacheBehind, batch),
        Err(error) => resolve_lost_write(error, shared, manager, &plan.status, batch).await,
    }
}

/// When to reconcile again something that is about to change.
pub(super) fn in_one_second(shared: &ControllerContext) -> Option<Timestamp> {
    shared.now().checked_add(SignedDuration::from_secs(1)).ok()
}

/// Writes the outcome of an effect into the manager that holds its intent, and forgets the workloads with these uids.
async fn record_outcome(
    shared: &ControllerContext,
    permit: &Permit,
    intent: Intent,
    outcome: StepOutcome,
    mut manager: Manager,
    unchanged: &BTreeSet<String>,
) -> (Applied, EventBatch) {
    // The outcome of an attempt is true whatever else changes meanwhile: lost races are retried on the newest revision.
    let batch = |events| EventBatch { events, intent: Some(intent.clone()) };
    let mut refused = StepError::Races;
    // Each may be the one that was written.
    let mut unanswered: Vec<(NamespaceManagerStatus, Vec<PlannedEvent>)> = Vec::new();
    for _ in 0..5 {
        let Some(current) = manager.status.steps.intent.clone().filter(|i| i.id == intent.id) else {
            // It was written and the answer was lost, or another writer recorded and reported it.
            let ours = unanswered.into_iter().find(|(status, _)| *status == *manager.status);
            return (
                Applied::Replan(manager),
                ours.map_or_else(EventBatch::default, |(_, events)| batch(events)),
            );
        };
        if !unchanged.is_empty() && permit.check().is_err() {
            // Another replica may have scaled them down since. It records what became of the intent.
            return (Applied::CheckAt(None), EventBatch::default());
        }
        let mut status = (*manager.status).clone();
        status.steps.scaled_down.retain(|workload| !unchanged.contains(&workload.uid));
        let events = record::apply_to_manager(&mut status, &current, &outcome, shared.now());
        let status = with_next_plan(shared, &manager, status);
        match save(shared, permit, &manager, &status).await {
            Ok(written) => {
                count_blocked(shared, &manager, &written);
                return (Applied::Replan(written), batch(events));
            }
            // The manager is gone with its namespace: the outcome is still reported.
            Err(WriteError::Gone) => return (Applied::CheckAt(None), batch(events)),
            Err(error @ WriteError::Refused(_)) => {
                // It is reported once it is recorded. The API server may only be overloaded.
                refused = error.into();
                status_retry_pause(shared).await;
            }
            Err(WriteError::Conflict | WriteError::Ambiguous(_)) => {
                match read_again(shared, &manager).await {
                    Ok(Some(newer)) => manager = newer,
                    Ok(None) => return (Applied::CheckAt(None), batch(events)),
                    Err(error) => {
                        refused = error.into();
                        status_retry_pause(shared).await;
                    }
                }
                unanswered.push((status, events));
            }
        }
    }
    (Applied::Failed(refused), EventBatch::default())
}

async fn status_retry_pause(shared: &ControllerContext) {
    let asked = shared.clients.backpressure.remaining();
    tokio::time::sleep(asked.clamp(STATUS_RETRY_PAUSE, 8 * STATUS_RETRY_PAUSE)).await;
}

/// A status with an outcome, and with all that the next evaluation would record anyway: one write for both. What that
/// evaluation would start, end or report is left to it.
fn with_next_plan(
    shared: &ControllerContext,
    manager: &Manager,
    status: NamespaceManagerStatus,
) -> NamespaceManagerStatus {
    let key = ManagerKey::new(&manager.namespace, &manager.name);
    let recorded = Manager { status: Box::new(status.clone()), ..manager.clone() };
    let plan = plan::plan(&observe::with(shared, &key, recorded));
    let only_says = plan.events.is_empty() && plan.status.steps.intent == status.steps.intent;
    if only_says { plan.status } else { status }
}

/// Reads a manager again whose write was lost, and returns its current state.
async fn read_again(shared: &ControllerContext, manager: &Manager) -> Result<Option<Manager>, kube::Error> {
    let now = read::get::<Managers>(&shared.clients.reads, &manager.namespace, &manager.name).await?;
    match &now {
        Some(now) => shared.managers.update_if_newer(&manager.namespace, now.clone()),
        None => remove_if(shared, manager),
    }
    Ok(now)
}

/// A manager that the API server says is gone is not reconciled any more, whether or not the watch has reported it.
fn remove_if(shared: &ControllerContext, manager: &Manager) {
    shared.managers.remove_if(&manager.namespace, &manager.name, |known| known.uid == manager.uid);
}

pub(super) async fn save(
    shared: &ControllerContext,
    permit: &Permit,
    manager: &Manager,
    status: &NamespaceManagerStatus,
) -> Result<Manager, WriteError> {
    let result = match complete(shared, manager, status).await {
        Ok(status) => write::status::<Managers>(&shared.clients, permit, manager, &status).await,
        Err(error) => Err(error),
    };
    shared.metrics.status_written(result.is_ok());
    match &result {
        Ok(written) => shared.managers.update_if_newer(&manager.namespace, written.clone()),
        Err(WriteError::Gone) => remove_if(shared, manager),
        Err(_) => {}
    }
    result
}

/// A status with the list of what is scaled down, of which caches know only the length.
async fn complete<'a>(
    shared: &ControllerContext,
    manager: &Manager,
    status: &'a NamespaceManagerStatus,
) -> Result<Cow<'a, NamespaceManagerStatus>, WriteError> {
    if status.steps.scaled_down.listed().is_some() {
        return Ok(Cow::Borrowed(status));
    }
    let now = read::get::<Managers>(&shared.clients.reads, &manager.namespace, &manager.name).await;
    match now.map_err(|e| WriteError::Refused(format!("the manager could not be read: {}", chain(&e))))? {
        None => Err(WriteError::Gone),
        Some(now) if now.uid != manager.uid || now.resource_version != manager.resource_version => {
            Err(WriteError::Conflict)
        }
        Some(now) => {
            let mut status = status.clone();
            status.steps.scaled_down = now.status.steps.scaled_down;
            Ok(Cow::Owned(status))
        }
    }
}

/// What to do about a write that was lost, and what to report: it may have happened.
async fn resolve_lost_write(
    error: WriteError,
    shared: &ControllerContext,
    manager: &Manager,
    written: &NamespaceManagerStatus,
    batch: EventBatch,
) -> (Applied, EventBatch) {
    match error {
        // Events about the manager went with it; that its namespace was deleted is kept elsewhere.
        WriteError::Gone => {
            let events = batch.events.into_iter().filter(|event| event.reason == Reason::NamespaceDeleted);
            (Applied::CheckAt(None), EventBatch { events: events.collect(), intent: batch.intent })
        }
        WriteError::Refused(_) => (Applied::Failed(error.into()), EventBatch::default()),
        WriteError::Conflict | WriteError::Ambiguous(_) => match read_again(shared, manager).await {
            Ok(Some(newer)) if *newer.status == *written => (Applied::Replan(newer), batch),
            Ok(Some(newer)) => (Applied::Replan(newer), EventBatch::default()),
            Ok(None) => (Applied::CheckAt(None), EventBatch::default()),
            Err(error) => (Applied::Failed(error.into()), EventBatch::default()),
        },
    }
}
