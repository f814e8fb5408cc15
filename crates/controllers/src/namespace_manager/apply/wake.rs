//! Wakes the workloads that a manager has scaled down.

use coppice_actions::wake;
use coppice_api::manager::Intent;
use coppice_kinds::Managers;
use coppice_runtime::leader::Permit;
use coppice_runtime::read;

use super::result::{Interruption, StepResult};
use crate::context::{ControllerContext, ManagerKey};
use crate::status_writer::StepError;

pub(super) async fn execute(
    shared: &ControllerContext,
    permit: &Permit,
    key: &ManagerKey,
    intent: &Intent,
) -> Result<StepResult, Interruption> {
    let fresh = read::get::<Managers>(&shared.clients.reads, &key.namespace, &key.name).await;
    let Some(manager) = fresh? else { return Ok(StepResult::Gone) };
    if manager.status.steps.intent.as_ref() != Some(intent) {
        return Ok(StepResult::Changed(manager));
    }
    let (settings, _) = shared.settings();
    let Some(entries) = manager.status.steps.scaled_down.listed() else {
        return Err(StepError::OnlyCounted.into());
    };
    let woken = wake::wake(&shared.clients, permit, &settings, &key.namespace, entries).await;
    Ok(woken.map_or(StepResult::Wait(None), |outcome| StepResult::Completed(outcome, manager)))
}

#[cfg(test)]
#[path = "wake_tests.rs"]
mod tests;
