//! Carries a plan out: status first, then the effect, then its outcome.

mod decision;
mod delete;
mod scale;
mod webhook;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use coppice_api::names::MANAGED_NAMESPACE_NAME;
use coppice_api::steps::Intent;
use coppice_api::{ManagedNamespaceSpec, ManagedNamespaceStatus};
use coppice_kinds::{ManagedNamespaces, NamespaceRecord};
use coppice_lifecycle::cluster::{NamespacePlan, NamespaceStep};
use coppice_lifecycle::facts::NamespaceFacts;
use coppice_runtime::leader::Permit;
use coppice_runtime::read;
use coppice_runtime::write::{self, WriteError};

use super::observe::{self, Observation};
use super::plan;
use crate::context::ControllerContext;
use crate::owner_messages;
use crate::status_writer::{Applied, EventBatch, StatusWriter};
use crate::webhook::acknowledge_attempt;
use decision::{Interruption, StepEnd};

/// Carries a plan out.
pub(super) async fn apply(
    shared: &ControllerContext,
    permit: &Permit,
    observation: &Observation,
    plan: NamespacePlan,
) -> (Applied<NamespaceRecord>, EventBatch) {
    let NamespacePlan { step, next_check, events, goes_on: _, messages, notification: _ } = plan;
    // What the owner is notified of comes first: the step may be the end of the namespace.
    let next_check = if messages.is_empty() {
        next_check
    } else {
        let again = owner_messages::submit(shared, &observation.name, &messages).await;
        next_check.into_iter().chain(again).min()
    };
    match (step, &observation.record) {
        (NamespaceStep::Create, _) => (create(shared, permit, observation).await, EventBatch::default()),
        (NamespaceStep::WriteStatus(status), Some(record)) => {
            let intent = status.steps.intent.clone().or_else(|| record.status.steps.intent.clone());
            let batch = EventBatch { events, intent };
            let (applied, batch) = writer(shared, permit, None).save_plan(record, &status, batch).await;
            if let Applied::Replan(written) = &applied
                && written.status.steps.intent == status.steps.intent
            {
                let (before, after) = (&record.status.steps.intent, &written.status.steps.intent);
                acknowledge_attempt(shared, before.as_ref(), after.as_ref());
            }
            (applied, batch)
        }
        (NamespaceStep::Delete(intent), Some(_)) => {
            let ended = delete::execute(shared, permit, &observation.name, &intent).await;
            record(shared, permit, *intent, ended).await
        }
        (NamespaceStep::ScaleDown(intent, what), Some(_)) => {
            let ended = scale::execute(shared, permit, &observation.name, &intent, &what).await;
            record(shared, permit, *intent, ended).await
        }
        (NamespaceStep::Webhook(intent, message), Some(_)) => {
            let submitted = webhook::submit(shared, &observation.name, &intent, message).await;
            let applied = match submitted {
                Applied::CheckAt(at) => Applied::CheckAt(at.into_iter().chain(next_check).min()),
                other => other,
            };
            (applied, EventBatch::default())
        }
        (NamespaceStep::Wake(intent), Some(_)) => {
            let ended = scale::wake(shared, permit, &observation.name, &intent).await;
            record(shared, permit, *intent, ended).await
        }
        // A plan writes and acts only where there is a record.
        (_, None) | (NamespaceStep::Nothing, _) => (Applied::CheckAt(next_check), EventBatch::default()),
    }
}

/// Creates the record. The watch shows it, and enqueues its namespace again. One that is there already is read: what the watch
/// has lost it does not show before its next list.
async fn create(
    shared: &ControllerContext,
    permit: &Permit,
    observation: &Observation,
) -> Applied<NamespaceRecord> {
    let (place, spec) = ((&*observation.name, MANAGED_NAMESPACE_NAME), ManagedNamespaceSpec::default());
    let labels = BTreeMap::new();
    match write::create::<ManagedNamespaces>(&shared.clients, permit, place, &labels, &spec).await {
        // Gone: the namespace is.
        Ok(()) | Err(WriteError::Gone) => Applied::CheckAt(None),
        Err(WriteError::Conflict | WriteError::Ambiguous(_)) => {
            let (namespace, name) = place;
            match read::get::<ManagedNamespaces>(&shared.clients.reads, namespace, name).await {
                Ok(Some(record)) => {
                    shared.managed_namespaces.update_if_newer(namespace, record.clone());
                    Applied::Replan(record)
                }
                Ok(None) => Applied::CacheBehind,
                Err(error) => Applied::Failed(error.into()),
            }
        }
        Err(error @ WriteError::Refused(_)) => Applied::Failed(error.into()),
    }
}

/// Writes the status of records; what is known of the namespace besides the caches goes into what comes next.
fn writer<'a>(
    shared: &'a ControllerContext,
    permit: &'a Permit,
    namespace: Option<Arc<NamespaceFacts>>,
) -> StatusWriter<
    'a,
    ManagedNamespaces,
    impl Fn(&NamespaceRecord, ManagedNamespaceStatus) -> ManagedNamespaceStatus,
> {
    let with_next_plan =
        move |record: &NamespaceRecord, status| with_next_plan(shared, record, namespace.clone(), status);
    StatusWriter { shared, permit, store: &shared.managed_namespaces, with_next_plan }
}

/// Records what came of an attempt at a step.
async fn record(
    shared: &ControllerContext,
    permit: &Permit,
    intent: Intent,
    ended: Result<StepEnd, Interruption>,
) -> (Applied<NamespaceRecord>, EventBatch) {
    let interruption = match ended {
        Ok(StepEnd { outcome, record, unchanged, namespace }) => {
            let writer = writer(shared, permit, namespace);
            return writer.record_outcome(intent, outcome, record, &unchanged).await;
        }
        Err(interruption) => interruption,
    };
    match interruption {
        Interruption::Failed(outcome, record) => {
            writer(shared, permit, None).record_outcome(intent, outcome, record, &BTreeSet::new()).await
        }
        Interruption::Changed(record) => (Applied::Replan(record), EventBatch::default()),
        Interruption::Replanned(record, plan) => match plan.step {
            NamespaceStep::WriteStatus(status) => {
                let batch = EventBatch { events: plan.events, intent: record.status.steps.intent.clone() };
                let (applied, batch) = writer(shared, permit, None).save_plan(&record, &status, batch).await;
                // What comes next is decided when the caches have caught up.
                let applied =
                    if matches!(applied, Applied::Replan(_)) { Applied::CacheBehind } else { applied };
                (applied, batch)
            }
            _ => (Applied::CacheBehind, EventBatch::default()),
        },
        Interruption::Wait(at) => (Applied::CheckAt(at), EventBatch::default()),
        Interruption::Error(error) => (Applied::Failed(error), EventBatch::default()),
    }
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
        NamespaceStep::WriteStatus(next)
            if plan.events.is_empty() && next.steps.intent == status.steps.intent =>
        {
            *next
        }
        _ => status,
    }
}

#[cfg(test)]
#[path = "apply_tests.rs"]
mod tests;
