//! Hands a webhook to the outbox, which delivers it in the background and wakes the manager after the attempt.

use std::sync::Arc;

use coppice_api::manager::Intent;
use coppice_kinds::{Manager, Managers};
use coppice_lifecycle::plan::WebhookMessage;
use coppice_notify::webhook::WebhookRequest;
use coppice_runtime::object::OwnKind as _;
use coppice_runtime::read;

use super::in_one_second;
use super::result::{Interruption, StepResult};
use crate::context::{ControllerContext, ManagerKey, WebhookSubject};

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
    let Some(outbox) = shared.outbox() else { return Ok(StepResult::Wait(in_one_second(shared))) };
    let request = WebhookRequest {
        id: intent.id.clone(),
        destination: message.destination,
        allow: std::iter::once(shared.settings().0.hosts.clone()).chain(message.limits).collect(),
        namespace: key.namespace.to_string(),
        body: message.body,
        now: shared.now(),
    };
    let subject = WebhookSubject {
        kind: Managers::KIND,
        namespace: Arc::clone(&key.namespace),
        name: Arc::clone(&key.name),
    };
    match outbox.submit(&key.namespace, subject, request) {
        Ok(_) => Ok(StepResult::Wait(None)),
        // The outbox is full: others are served first.
        Err(error) => {
            tracing::warn!(manager = %key, %error, "webhook waits");
            Ok(StepResult::Wait(in_one_second(shared)))
        }
    }
}

/// Lets the outbox forget an attempt whose outcome is in status.
pub(super) fn acknowledge_attempt(shared: &ControllerContext, before: &Manager, after: &Manager) {
    let Some(intent) = &before.status.steps.intent else { return };
    let recorded = after.status.steps.intent.as_ref().is_none_or(|now| now.attempts != intent.attempts);
    if let Some(outbox) = shared.outbox().filter(|_| recorded) {
        outbox.acknowledge(&intent.id);
    }
}
