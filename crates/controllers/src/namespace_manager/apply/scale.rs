//! Scaling workloads down on the decision of a manager; [`wake`](super::wake) undoes it. The order is that of
//! [`scale_down`](coppice_actions::scale_down); here is where a manager records replicas, and what it does when it is
//! interrupted.

use coppice_actions::scale_down::{self, ScaleDecision, ScaleDownEnd, Unfinished};
use coppice_api::manager::{Intent, ScaleDown};
use coppice_api::{ScaledWorkload, Steps};
use coppice_kinds::{Manager, Managers};
use coppice_lifecycle::record::StepOutcome;
use coppice_runtime::leader::Permit;
use coppice_runtime::read;
use coppice_runtime::write::WriteError;

use super::super::observe::Observation;
use super::delete::{self, ManagerDecision};
use super::result::{Interruption, StepResult};
use super::writer;
use crate::context::{ControllerContext, ManagerKey};

pub(super) async fn execute(
    shared: &ControllerContext,
    permit: &Permit,
    key: &ManagerKey,
    intent: &Intent,
    what: &ScaleDown,
) -> Result<StepResult, Interruption> {
    let decision = ManagerDecision { shared, key, intent };
    match scale_down::scale_down(shared.step(permit), &decision, what).await {
        Ok(end) => Ok(result(shared, end)),
        Err(Unfinished::Stopped(stopped)) => Err(delete::interruption(shared, stopped)),
        Err(Unfinished::NotLeading) => Ok(StepResult::Wait(None)),
        Err(Unfinished::Interrupted(Interruption::Ended(StepResult::Replanned(manager, mut plan)), run)) => {
            // The same write that says why the rest stays as it is also removes what was not touched.
            let unchanged = run.unchanged().await;
            plan.status.steps.remove_unchanged(&unchanged);
            Ok(StepResult::Replanned(manager, plan))
        }
        // By this attempt's manager: the one of a read that failed comes from a cache, which only counts workloads.
        Err(Unfinished::Interrupted(Interruption::Ended(StepResult::Completed(outcome, _)), run)) => {
            Ok(result(shared, run.ended(outcome).await))
        }
        Err(Unfinished::Interrupted(interruption, _)) => Err(interruption),
    }
}

fn result(shared: &ControllerContext, end: ScaleDownEnd<Observation>) -> StepResult {
    if let StepOutcome::Refused { reason, .. } = &end.outcome {
        shared.lifecycle_metrics.blocked(reason.as_str());
    }
    StepResult::ScaleDownEnded(end.outcome, Manager::clone(&end.observation.manager), end.unchanged)
}

impl ScaleDecision for ManagerDecision<'_> {
    fn steps(observation: &Observation) -> &Steps {
        &observation.manager.status.steps
    }

    async fn save_scaled_down(
        &self,
        permit: &Permit,
        observation: &mut Observation,
        all: Vec<ScaledWorkload>,
    ) -> Result<(), Interruption> {
        let Self { shared, key, .. } = self;
        let mut status = (*observation.manager.status).clone();
        status.steps.scaled_down = all.into();
        match writer(shared, permit).save(&observation.manager, &status).await {
            Ok(written) => {
                observation.manager = written.into();
                Ok(())
            }
            Err(WriteError::Gone) => Err(StepResult::Gone.into()),
            Err(error @ WriteError::Refused(_)) => Err(error.into()),
            Err(WriteError::Conflict | WriteError::Ambiguous(_)) => {
                let newer = read::get::<Managers>(&shared.clients.reads, &key.namespace, &key.name).await?;
                Err(newer.map_or(StepResult::Gone, StepResult::Changed).into())
            }
        }
    }
}

#[cfg(test)]
#[path = "scale_tests.rs"]
mod tests;
