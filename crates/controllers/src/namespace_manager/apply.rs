//! Carries a plan out: status first, then the effect, then its outcome.

mod delete;
pub(super) mod mutant_behavior;
mod result;
mod scale;
mod wake;
mod webhook;

use std::collections::BTreeSet;

use coppice_api::manager::NamespaceManagerStatus;
use coppice_kinds::{Manager, Managers};
use coppice_lifecycle::Plan;
use coppice_lifecycle::plan::Step;
use coppice_mutants::Mutant;
use coppice_runtime::leader::Permit;

use super::observe::{self, Observation};
use super::plan;
use crate::context::{ControllerContext, ManagerKey};
use crate::status_writer::{Applied, EventBatch, StatusWriter};
use crate::webhook::acknowledge_attempt;
use result::{Interruption, StepResult};

/// Carries a plan out.
pub(super) async fn apply(
    shared: &ControllerContext,
    observation: &Observation,
    plan: Plan,
) -> (Applied<Manager>, EventBatch) {
    let Ok(permit) = shared.gate.permit() else { return (Applied::CheckAt(None), EventBatch::default()) };
    let manager = &*observation.manager;
    let key = ManagerKey::new(&manager.namespace, &manager.name);
    if plan.status != *manager.status
        || coppice_mutants::active(Mutant::StatusEveryLoop) && plan.step.is_none()
    {
        let intent = plan.status.steps.intent.clone().or_else(|| manager.status.steps.intent.clone());
        let batch = EventBatch { events: plan.events, intent };
        let (applied, batch) = writer(shared, &permit).save_plan(manager, &plan.status, batch).await;
        return match applied {
            Applied::Replan(_) if plan.status == *manager.status => {
                (Applied::CheckAt(plan.next_check), EventBatch::default())
            }
            Applied::Replan(written) => {
                if written.status.steps.intent == plan.status.steps.intent {
                    let (before, after) = (&manager.status.steps.intent, &written.status.steps.intent);
                    acknowledge_attempt(shared, before.as_ref(), after.as_ref());
                }
                (Applied::Replan(written), batch)
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
        Step::Wake(intent) => wake::execute(shared, &permit, &key, &intent).await,
        Step::Webhook(intent, message) => webhook::submit(shared, &key, &intent, message).await,
    };
    let ended = match carried {
        Ok(ended) | Err(Interruption::Ended(ended)) => ended,
        Err(Interruption::Failed(error)) => return (Applied::Failed(error), EventBatch::default()),
    };
    match ended {
        StepResult::Gone => {
            writer(shared, &permit).remove(manager);
            (Applied::CheckAt(None), EventBatch::default())
        }
        StepResult::Wait(at) => (Applied::CheckAt(at), EventBatch::default()),
        StepResult::Changed(manager) => (Applied::Replan(manager), EventBatch::default()),
        StepResult::Replanned(manager, plan) => save_new_plan(shared, &permit, &manager, *plan).await,
        StepResult::Completed(outcome, manager) => {
            writer(shared, &permit).record_outcome(intent, outcome, manager, &BTreeSet::new()).await
        }
        StepResult::ScaleDownEnded(outcome, manager, unchanged) => {
            writer(shared, &permit).record_outcome(intent, outcome, manager, &unchanged).await
        }
    }
}

/// Writes the status of managers.
pub(super) fn writer<'a>(
    shared: &'a ControllerContext,
    permit: &'a Permit,
) -> StatusWriter<'a, Managers, impl Fn(&Manager, NamespaceManagerStatus) -> NamespaceManagerStatus> {
    let with_next_plan = |manager: &Manager, status| with_next_plan(shared, manager, status);
    StatusWriter { shared, permit, store: &shared.managers, with_next_plan }
}

/// Writes the status of a plan that was made from a fresh read. The caches are behind: what comes next is decided when
/// they have caught up.
async fn save_new_plan(
    shared: &ControllerContext,
    permit: &Permit,
    manager: &Manager,
    plan: Plan,
) -> (Applied<Manager>, EventBatch) {
    if plan.status == *manager.status {
        return (Applied::CacheBehind, EventBatch::default());
    }
    let batch = EventBatch { events: plan.events, intent: manager.status.steps.intent.clone() };
    let (applied, batch) = writer(shared, permit).save_plan(manager, &plan.status, batch).await;
    let applied = if matches!(applied, Applied::Replan(_)) { Applied::CacheBehind } else { applied };
    (applied, batch)
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

#[cfg(test)]
#[path = "apply_tests.rs"]
mod tests;
