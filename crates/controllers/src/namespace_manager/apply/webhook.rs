//! Hands a webhook of a manager to the outbox.

use std::sync::Arc;

use coppice_api::manager::Intent;
use coppice_kinds::Managers;
use coppice_lifecycle::plan::WebhookMessage;
use coppice_runtime::object::OwnKind as _;
use coppice_runtime::read;

use super::result::{Interruption, StepResult};
use crate::context::{ControllerContext, ManagerKey, WebhookSubject};
use crate::webhook;

pub(super) async fn submit(
    shared: &ControllerContext,
    key: &ManagerKey,
    intent: &Intent,
    message: WebhookMessage,
) -> Result<StepResult, Interruption> {
    // The cache may be behind: what has been delivered already must not be sent again.
    let fresh = read::get::<Managers>(&shared.clients.reads, &key.namespace, &key.name).await;
    let Some(manager) = fresh? else { return Ok(StepResult::Gone) };
    if manager.status.steps.intent.as_ref() != Some(intent) || manager.terminating {
        return Ok(StepResult::Changed(manager));
    }
    let hosts = shared.settings().0.hosts.clone();
    let subject = WebhookSubject {
        kind: Managers::KIND,
        namespace: Arc::clone(&key.namespace),
        name: Arc::clone(&key.name),
    };
    Ok(StepResult::Wait(webhook::submit(shared, subject, intent, message, hosts)))
}

#[cfg(test)]
#[path = "webhook_tests.rs"]
mod tests;
