//! Carries a plan out: status first, then the deletion, then its outcome.

mod delete;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use coppice_api::names::MANAGED_NAMESPACE_NAME;
use coppice_api::steps::Intent;
use coppice_api::{ManagedNamespaceSpec, ManagedNamespaceStatus, Reason};
use coppice_kinds::{ManagedNamespaces, NamespaceRecord};
use coppice_lifecycle::cluster::{RecordPlan, RecordStep};
use coppice_lifecycle::facts::NamespaceFacts;
use coppice_lifecycle::plan::PlannedEvent;
use coppice_lifecycle::record::{self, StepOutcome};
use coppice_lifecycle::steps;
use coppice_runtime::error::chain;
use coppice_runtime::leader::Permit;
use coppice_runtime::write::WriteError;
use coppice_runtime::{read, write};
use jiff::Timestamp;
use tokio::time::Instant;

use super::observe::{self, FactsError, Observation};
use super::plan;
use crate::context::ControllerContext;
use delete::Interruption;

/// How a plan went.
pub(super) enum Applied {
    /// There is more to decide, on this record.
    Replan(NamespaceRecord),
    /// There is nothing to do until then, or until something changes.
    CheckAt(Option<Timestamp>),
    /// Nothing could be done; try again with backoff.
    Failed(StepError),
    /// The caches are behind what was read from the API server: nothing is done until they have had time to catch up.
    CacheBehind,
}

/// Why nothing could be done or recorded. The reconcile is tried again with backoff.
#[derive(Debug, thiserror::Error)]
pub(super) enum StepError {
    /// The record could not be read.
    #[error("its record could not be read: {}", chain(.0))]
    Read(#[from] kube::Error),
    /// What the step rests on could not be read again, and the record is about another step by now.
    #[error("the facts could not be read again: {0}")]
    Facts(#[from] FactsError),
    /// The API server refused a write.
    #[error("its record: {0}")]
    Write(#[from] WriteError),
    /// Others write the same status, faster than this one.
    #[error("the status of its record changes all the time")]
    Races,
}

/// The Events of a reconcile.
#[derive(Default)]
pub(super) struct EventBatch {
    pub(super) events: Vec<PlannedEvent>,
    /// The intent that they are about, if any.
    pub(super) intent: Option<Intent>,
}

/// The pause before an outcome that the API server refused to take is offered again.
const STATUS_RETRY_PAUSE: Duration = Duration::from_millis(250);
/// Lost races in a row that mean that something is wrong.
const MAX_ATTEMPTS: usize = 5;

/// Carries a plan out.
pub(super) async fn apply(
    shared: &ControllerContext,
    permit: &Permit,
    observation: &Observation,
    plan: RecordPlan,
) -> (Applied, EventBatch) {
    let RecordPlan { step, next_check, events } = plan;
    match (step, &observation.record) {
        (RecordStep::Create, _) => (create(shared, permit, observation).await, EventBatch::default()),
        (RecordStep::WriteStatus(status), Some(record)) => {
            let intent = status.steps.intent.clone().or_else(|| record.status.steps.intent.clone());
            save_plan(shared, permit, record, *status, EventBatch { events, intent }).await
        }
        (RecordStep::Delete(intent), Some(_)) => delete(shared, permit, &observation.name, *intent).await,
        // A plan writes and deletes only where there is a record.
        (RecordStep::Nothing | RecordStep::WriteStatus(_) | RecordStep::Delete(_), _) => {
            (Applied::CheckAt(next_check), EventBatch::default())
        }
    }
}

/// Creates the record. The watch shows it, and wakes its namespace again.
async fn create(shared: &ControllerContext, permit: &Permit, observation: &Observation) -> Applied {
    let (place, spec) = ((&*observation.name, MANAGED_NAMESPACE_NAME), ManagedNamespaceSpec::default());
    let labels = BTreeMap::new();
    match write::create::<ManagedNamespaces>(&shared.clients, permit, place, &labels, &spec).await {
        // Gone: the namespace is.
        Ok(()) | Err(WriteError::Gone) => Applied::CheckAt(None),
        Err(WriteError::Conflict | WriteError::Ambiguous(_)) => Applied::CacheBehind,
        Err(error @ WriteError::Refused(_)) => Applied::Failed(error.into()),
    }
}

/// Writes a status, and the notice in it again if that took long: notice runs from when it can be seen.
async fn save_plan(
    shared: &ControllerContext,
    permit: &Permit,
    record: &NamespaceRecord,
    status: ManagedNamespaceStatus,
    mut batch: EventBatch,
) -> (Applied, EventBatch) {
    let began = Instant::now();
    let written = match save(shared, permit, record, &status).await {
        Ok(written) => written,
        Err(error) => return resolve_lost_write(error, shared, record, &status, batch).await,
    };
    let took = began.elapsed();
    let (mut status, mut events) = ((*written.status).clone(), batch.events.clone());
    let moved = steps::prolong_notice(&mut status.steps, &record.status.steps, took, &mut events);
    // Another replica may lead by now, and have decided on what there is.
    if !moved || permit.check().is_err() {
        return (Applied::Replan(written), batch);
    }
    let status = with_next_plan(shared, &written, None, status);
    match save(shared, permit, &written, &status).await {
        Ok(written) => {
            batch.events = events;
            (Applied::Replan(written), batch)
        }
        Err(error) => {
            let namespace = &written.namespace;
            tracing::warn!(%namespace, %error, "the notice is shorter by what its write took");
            (Applied::Replan(written), batch)
        }
    }
}

/// Deletes the namespace, and records what came of it.
async fn delete(
    shared: &ControllerContext,
    permit: &Permit,
    name: &str,
    intent: Intent,
) -> (Applied, EventBatch) {
    match delete::execute(shared, permit, name, &intent).await {
        Ok((outcome, record, namespace)) => {
            record_outcome(shared, permit, intent, outcome, (record, namespace)).await
        }
        Err(Interruption::Failed(outcome, record)) => {
            record_outcome(shared, permit, intent, outcome, (record, None)).await
        }
        Err(Interruption::Replanned(record, plan)) => match plan.step {
            RecordStep::WriteStatus(status) => {
                let batch = EventBatch { events: plan.events, intent: record.status.steps.intent.clone() };
                let (applied, batch) = save_plan(shared, permit, &record, *status, batch).await;
                // What comes next is decided when the caches have caught up.
                let applied =
                    if matches!(applied, Applied::Replan(_)) { Applied::CacheBehind } else { applied };
                (applied, batch)
            }
            _ => (Applied::CacheBehind, EventBatch::default()),
        },
        Err(Interruption::Wait(at)) => (Applied::CheckAt(at), EventBatch::default()),
        Err(Interruption::Error(error)) => (Applied::Failed(error), EventBatch::default()),
    }
}

/// Writes the outcome of a step into the record that holds its intent: true whatever else changes meanwhile, so that lost
/// races are retried on the newest revision.
async fn record_outcome(
    shared: &ControllerContext,
    permit: &Permit,
    intent: Intent,
    outcome: StepOutcome,
    (mut record, namespace): (NamespaceRecord, Option<Box<NamespaceFacts>>),
) -> (Applied, EventBatch) {
    let batch = |events| EventBatch { events, intent: Some(intent.clone()) };
    let namespace = namespace.map(|namespace| Arc::new(*namespace));
    let mut refused = StepError::Races;
    // Each may be the one that was written.
    let mut unanswered: Vec<(ManagedNamespaceStatus, Vec<PlannedEvent>)> = Vec::new();
    for _ in 0..MAX_ATTEMPTS {
        let Some(current) = record.status.steps.intent.clone().filter(|i| i.id == intent.id) else {
            // It was written and the answer was lost, or another writer recorded and reported it.
            let ours = unanswered.into_iter().find(|(status, _)| *status == *record.status);
            return (
                Applied::Replan(record),
                ours.map_or_else(EventBatch::default, |(_, events)| batch(events)),
            );
        };
        let mut status = (*record.status).clone();
        let events = record::apply(&mut status.steps, &current, &outcome, shared.now());
        let status = with_next_plan(shared, &record, namespace.clone(), status);
        match save(shared, permit, &record, &status).await {
            Ok(written) => return (Applied::Replan(written), batch(events)),
            // The record is gone with its namespace: the outcome is still reported.
            Err(WriteError::Gone) => return (Applied::CheckAt(None), batch(events)),
            Err(error @ WriteError::Refused(_)) => {
                refused = error.into();
                tokio::time::sleep(STATUS_RETRY_PAUSE).await;
            }
            Err(WriteError::Conflict | WriteError::Ambiguous(_)) => {
                match read_again(shared, &record).await {
                    Ok(Some(newer)) => record = newer,
                    Ok(None) => return (Applied::CheckAt(None), batch(events)),
                    Err(error) => {
                        refused = error.into();
                        tokio::time::sleep(STATUS_RETRY_PAUSE).await;
                    }
                }
                unanswered.push((status, events));
            }
        }
    }
    (Applied::Failed(refused), EventBatch::default())
}

/// A status with an outcome, and with all that the next evaluation would record anyway: one write for both. What that
/// evaluation would start, end or report is left to it.
fn with_next_plan(
    shared: &ControllerContext,
    record: &NamespaceRecord,
    namespace: Option<Arc<NamespaceFacts>>,
    status: ManagedNamespaceStatus,
) -> ManagedNamespaceStatus {
    let recorded = NamespaceRecord { status: Box::new(status.clone()), ..record.clone() };
    let Some(mut observation) = observe::with(shared, &record.namespace, recorded) else { return status };
    if let Some(namespace) = namespace {
        observation.namespace = Ok(namespace);
    }
    let plan = plan::plan(&observation);
    match plan.step {
        RecordStep::WriteStatus(next)
            if plan.events.is_empty() && next.steps.intent == status.steps.intent =>
        {
            *next
        }
        _ => status,
    }
}

/// Reads a record again whose write was lost; none if it is gone.
async fn read_again(
    shared: &ControllerContext,
    record: &NamespaceRecord,
) -> Result<Option<NamespaceRecord>, kube::Error> {
    let client = &shared.clients.reads;
    let now = read::get::<ManagedNamespaces>(client, &record.namespace, MANAGED_NAMESPACE_NAME).await?;
    match &now {
        Some(now) => shared.managed_namespaces.update_if_newer(&record.namespace, now.clone()),
        None => remove_if(shared, record),
    }
    Ok(now)
}

/// A record that the API server says is gone is not reconciled any more, whether or not the watch has reported it.
fn remove_if(shared: &ControllerContext, record: &NamespaceRecord) {
    let same = |known: &NamespaceRecord| known.uid == record.uid;
    shared.managed_namespaces.remove_if(&record.namespace, &record.name, same);
}

/// Writes a status.
async fn save(
    shared: &ControllerContext,
    permit: &Permit,
    record: &NamespaceRecord,
    status: &ManagedNamespaceStatus,
) -> Result<NamespaceRecord, WriteError> {
    let result = write::status::<ManagedNamespaces>(&shared.clients, permit, record, status).await;
    shared.metrics.status_written(result.is_ok());
    match &result {
        Ok(written) => {
            let (before, after) = (record.status.next.as_ref(), written.status.next.as_ref());
            shared.lifecycle_metrics.newly_blocked(before, after);
            shared.managed_namespaces.update_if_newer(&record.namespace, written.clone());
        }
        Err(WriteError::Gone) => remove_if(shared, record),
        Err(_) => {}
    }
    result
}

/// What to do about a write that was lost, and what to report: it may have happened.
async fn resolve_lost_write(
    error: WriteError,
    shared: &ControllerContext,
    record: &NamespaceRecord,
    written: &ManagedNamespaceStatus,
    batch: EventBatch,
) -> (Applied, EventBatch) {
    match error {
        // Events about the record went with it; that its namespace was deleted is kept elsewhere.
        WriteError::Gone => {
            let events = batch.events.into_iter().filter(|event| event.reason == Reason::NamespaceDeleted);
            (Applied::CheckAt(None), EventBatch { events: events.collect(), intent: batch.intent })
        }
        WriteError::Refused(_) => (Applied::Failed(error.into()), EventBatch::default()),
        WriteError::Conflict | WriteError::Ambiguous(_) => match read_again(shared, record).await {
            Ok(Some(newer)) if *newer.status == *written => (Applied::Replan(newer), batch),
            Ok(Some(newer)) => (Applied::Replan(newer), EventBatch::default()),
            Ok(None) => (Applied::CheckAt(None), EventBatch::default()),
            Err(error) => (Applied::Failed(error.into()), EventBatch::default()),
        },
    }
}
