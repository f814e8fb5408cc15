//! Scaling the workloads of a namespace down on the decision of a cluster manager, and waking them. The order is that of
//! [`scale_down`](coppice_actions::scale_down); here is where a record holds replicas.

use std::sync::Arc;

use coppice_actions::scale_down::{self, ScaleDecision, ScaleDownEnd, Unfinished};
use coppice_actions::wake;
use coppice_api::manager::ScaleDown;
use coppice_api::names::MANAGED_NAMESPACE_NAME;
use coppice_api::steps::Intent;
use coppice_api::{ScaledWorkload, Steps};
use coppice_kinds::ManagedNamespaces;
use coppice_lifecycle::cluster::NamespaceStep;
use coppice_lifecycle::record::StepOutcome;
use coppice_runtime::leader::Permit;
use coppice_runtime::read;
use coppice_runtime::write::WriteError;

use super::decision::{self, Interruption, RecordDecision, StepEnd, Verified};
use super::writer;
use crate::context::ControllerContext;
use crate::status_writer::StepError;

pub(super) async fn execute(
    shared: &ControllerContext,
    permit: &Permit,
    name: &str,
    intent: &Intent,
    what: &ScaleDown,
) -> Result<StepEnd, Interruption> {
    let decision = RecordDecision { shared, name, intent };
    let ScaleDownEnd { outcome, observation, unchanged } =
        match scale_down::scale_down(shared.step(permit), &decision, what).await {
            Ok(end) => end,
            Err(Unfinished::Stopped(stopped)) => return Err(decision::interruption(shared, stopped)),
            Err(Unfinished::NotLeading) => return Err(Interruption::Wait(None)),
            Err(Unfinished::Interrupted(Interruption::Replanned(record, mut plan), run)) => {
                // The same write that says why the rest stays as it is also removes what was not touched.
                let unchanged = run.unchanged().await;
                if let NamespaceStep::WriteStatus(status) = &mut plan.step {
                    status.steps.remove_unchanged(&unchanged);
                }
                return Err(Interruption::Replanned(record, plan));
            }
            // By this attempt's record: the one of a read that failed comes from a cache, which only counts workloads.
            Err(Unfinished::Interrupted(Interruption::Failed(outcome, _), run)) => run.ended(outcome).await,
            Err(Unfinished::Interrupted(interruption, _)) => return Err(interruption),
        };
    if let StepOutcome::Refused { reason, .. } = &outcome {
        shared.lifecycle_metrics.blocked(reason.as_str());
    }
    Ok(StepEnd { unchanged, ..StepEnd::new(outcome, observation.record) })
}

/// Gives the workloads that the record holds their replicas back.
pub(super) async fn wake(
    shared: &ControllerContext,
    permit: &Permit,
    name: &str,
    intent: &Intent,
) -> Result<StepEnd, Interruption> {
    let fresh = read::get::<ManagedNamespaces>(&shared.clients.reads, name, MANAGED_NAMESPACE_NAME).await;
    let Some(record) = fresh.map_err(|error| Interruption::Error(error.into()))? else {
        return Err(Interruption::Wait(None));
    };
    if record.status.steps.intent.as_ref() != Some(intent) {
        return Err(Interruption::Changed(record));
    }
    let (settings, _) = shared.settings();
    let Some(entries) = record.status.steps.scaled_down.listed() else {
        return Err(Interruption::Error(StepError::OnlyCounted));
    };
    let woken = wake::wake(&shared.clients, permit, &settings, name, entries).await;
    woken.map(|outcome| StepEnd::new(outcome, record)).ok_or(Interruption::Wait(None))
}

impl ScaleDecision for RecordDecision<'_> {
    fn steps(verified: &Verified) -> &Steps {
        &verified.record.status.steps
    }

    async fn save_scaled_down(
        &self,
        permit: &Permit,
        verified: &mut Verified,
        all: Vec<ScaledWorkload>,
    ) -> Result<(), Interruption> {
        let Self { shared, name, .. } = self;
        let mut status = (*verified.record.status).clone();
        status.steps.scaled_down = all.into();
        match writer(shared, permit, None).save(&verified.record, &status).await {
            Ok(written) => {
                verified.observation.record = Some(Arc::new(written.clone()));
                verified.record = written;
                Ok(())
            }
            Err(WriteError::Gone) => Err(Interruption::Wait(None)),
            Err(error @ WriteError::Refused(_)) => Err(Interruption::Error(error.into())),
            Err(WriteError::Conflict | WriteError::Ambiguous(_)) => {
                let client = &shared.clients.reads;
                let newer = read::get::<ManagedNamespaces>(client, name, MANAGED_NAMESPACE_NAME).await;
                let newer = newer.map_err(|error| Interruption::Error(error.into()))?;
                Err(newer.map_or(Interruption::Wait(None), Interruption::Changed))
            }
        }
    }
}
