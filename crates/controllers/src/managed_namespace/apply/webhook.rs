//! Hands a webhook of a cluster manager to the outbox.

use coppice_api::names::MANAGED_NAMESPACE_NAME;
use coppice_api::steps::Intent;
use coppice_kinds::{ManagedNamespaces, NamespaceRecord};
use coppice_lifecycle::plan::WebhookMessage;
use coppice_runtime::read;

use crate::context::{ControllerContext, WebhookSubject};
use crate::status_writer::Applied;
use crate::webhook;

pub(super) async fn submit(
    shared: &ControllerContext,
    name: &str,
    intent: &Intent,
    message: WebhookMessage,
) -> Applied<NamespaceRecord> {
    // Tenants have room whatever is due for all namespaces of a cluster manager at once.
    let Some(outboxes) = shared.outboxes() else { return Applied::CheckAt(shared.in_one_second()) };
    let outbox = outboxes.webhooks;
    if outbox.in_flight() >= outbox.capacity() / 2 {
        return Applied::CheckAt(webhook::when_there_is_room(shared, &intent.id));
    }
    // The cache may be behind: what has been delivered already must not be sent again.
    let fresh = read::get::<ManagedNamespaces>(&shared.clients.reads, name, MANAGED_NAMESPACE_NAME).await;
    let record = match fresh {
        Ok(Some(record)) => record,
        Ok(None) => return Applied::CheckAt(None),
        Err(error) => return Applied::Failed(error.into()),
    };
    if record.status.steps.intent.as_ref() != Some(intent) || record.terminating {
        return Applied::Replan(record);
    }
    // The platform has written where it goes; special addresses are permitted by its settings alone.
    let hosts = shared.settings().0.hosts.clone().permitting(&message.destination);
    let subject = WebhookSubject::of_record(name);
    Applied::CheckAt(webhook::submit(shared, subject, intent, message, hosts))
}
