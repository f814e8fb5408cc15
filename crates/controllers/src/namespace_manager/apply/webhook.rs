//! Handing a webhook to the outbox: it delivers in the background and wakes the manager when it knows more.

use coppice_api::manager::{Intent, Policy};
use coppice_lifecycle::body::{Sender, body};
use coppice_lifecycle::destination::Destination;
use coppice_lifecycle::record::Outcome;
use coppice_notify::webhook::WebhookRequest;
use coppice_runtime::error::chain;
use coppice_runtime::kinds::Manager;
use coppice_runtime::read;

use super::{Carried, soon};
use crate::shared::{Key, Shared};

pub(super) async fn submit(
    shared: &Shared,
    key: &Key,
    intent: &Intent,
    policy: &Policy,
) -> Result<Carried, String> {
    // The cache may be behind: what has been delivered already must not be sent again.
    let fresh = read::get::<Manager>(&shared.clients.reads, &key.namespace, &key.name).await;
    let Some(manager) = fresh.map_err(|e| chain(&e))? else { return Ok(Carried::Gone) };
    if manager.status.intent.as_ref() != Some(intent) || manager.terminating {
        return Ok(Carried::Changed(manager));
    }
    let Some(outbox) = shared.outbox() else { return Ok(Carried::Wait(soon(shared))) };
    let url = policy.then.webhook.as_ref().map_or("", |w| w.url.as_str());
    let destination = match Destination::parse(url) {
        Ok(destination) => destination,
        Err(error) => return Ok(Carried::Ended(Outcome::failed(error.to_string()), manager)),
    };
    let sender = Sender { namespace: &key.namespace, name: &key.name };
    let request = WebhookRequest {
        id: intent.id.clone(),
        destination,
        allow: shared.law().0.hosts.clone(),
        namespace: key.namespace.to_string(),
        body: body(sender, policy, intent),
        now: shared.now(),
    };
    match outbox.submit(&key.namespace, key.clone(), request) {
        Ok(_) => Ok(Carried::Wait(None)),
        // The outbox is full: others are served first.
        Err(error) => {
            tracing::warn!(manager = %key, %error, "webhook waits");
            Ok(Carried::Wait(soon(shared)))
        }
    }
}

/// Lets the outbox forget an attempt whose outcome is in status.
pub(super) fn forget_finished(shared: &Shared, before: &Manager, after: &Manager) {
    let Some(intent) = &before.status.intent else { return };
    let recorded = after.status.intent.as_ref().is_none_or(|now| now.attempts != intent.attempts);
    if let Some(outbox) = shared.outbox().filter(|_| recorded) {
        outbox.forget(&intent.id);
    }
}
