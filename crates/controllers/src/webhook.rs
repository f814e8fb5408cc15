//! Hands webhooks to the outbox, which delivers them in the background and enqueues their object after each attempt.

use std::sync::Arc;

use coppice_api::steps::{Action, Intent};
use coppice_destination::AllowList;
use coppice_kinds::{Manager, Managers};
use coppice_lifecycle::facts::NamespaceFacts;
use coppice_lifecycle::pending_webhook::PendingWebhook;
use coppice_lifecycle::plan::{Delivery, WebhookMessage};
use coppice_notify::outbox::AttemptState;
use coppice_notify::webhook::WebhookRequest;
use coppice_runtime::object::OwnKind as _;
use jiff::{SignedDuration, Timestamp};

use crate::context::{ControllerContext, WebhookSubject};

/// What is known of the attempt at the webhook of this intent.
pub(crate) fn delivery(shared: &ControllerContext, intent: Option<&Intent>) -> Delivery {
    let attempt = intent
        .filter(|intent| intent.action == Action::Webhook)
        .and_then(|intent| shared.outboxes()?.webhooks.state(&intent.id));
    attempt.map_or(Delivery::None, delivery_of)
}

/// The webhook that one of these managers of a namespace has under way.
pub(crate) fn under_way<'a>(
    mut managers: impl Iterator<Item = &'a Arc<Manager>>,
    namespace: &NamespaceFacts,
) -> Option<PendingWebhook> {
    managers.find_map(|manager| {
        // One that is being deleted sends nothing any more.
        let steps = &manager.status.steps;
        let by = || format!("{} {}", Managers::KIND, manager.name);
        (!manager.terminating && steps.intent.is_some())
            .then(|| PendingWebhook::of(by(), steps, &namespace.uid))
            .flatten()
    })
}

/// An attempt, as the planner takes it.
pub(crate) fn delivery_of(attempt: AttemptState) -> Delivery {
    match attempt {
        AttemptState::InFlight => Delivery::InFlight,
        AttemptState::Done(Ok(delivered)) => Delivery::Delivered(delivered.status.to_string()),
        AttemptState::Done(Err(failure)) => Delivery::Failed {
            error: failure.message,
            permanent: failure.permanent,
            retry_after: failure.retry_after,
            by_channel: failure.by_channel,
        },
    }
}

/// Makes one attempt at a webhook, to where every one of the lists permits it. Returns when to try again, if the outbox does
/// not take it now.
pub(crate) fn submit(
    shared: &ControllerContext,
    subject: WebhookSubject,
    intent: &Intent,
    message: WebhookMessage,
    allow: Vec<AllowList>,
) -> Option<Timestamp> {
    let Some(outboxes) = shared.outboxes() else { return shared.in_one_second() };
    let namespace = subject.namespace.to_string();
    let request = WebhookRequest {
        id: intent.id.clone(),
        destination: message.destination,
        allow,
        namespace: namespace.clone(),
        body: message.body,
        now: shared.now(),
    };
    let id = &intent.id;
    let of = format!("{} {}/{}", subject.kind, subject.namespace, subject.name);
    match outboxes.webhooks.submit(&namespace, subject, intent.attempts, request) {
        Ok(_) => None,
        // The outbox is full: others are served first.
        Err(error) => {
            tracing::warn!(of, %error, "webhook waits");
            when_there_is_room(shared, id)
        }
    }
}

/// When to ask again for room in the outbox: not all at once, of which there may be thousands.
pub(crate) fn when_there_is_room(shared: &ControllerContext, id: &str) -> Option<Timestamp> {
    let spread = id.bytes().fold(0_i64, |sum, byte| (sum * 31 + i64::from(byte)) % 10_000);
    shared.now().checked_add(SignedDuration::from_millis(2_000 + spread)).ok()
}

/// Has the outbox drop an attempt whose outcome is in status.
pub(crate) fn acknowledge_attempt(
    shared: &ControllerContext,
    before: Option<&Intent>,
    after: Option<&Intent>,
) {
    let Some(intent) = before.filter(|intent| intent.action == Action::Webhook) else { return };
    let recorded = after.is_none_or(|now| now.attempts != intent.attempts || now.id != intent.id);
    if let Some(outboxes) = shared.outboxes().filter(|_| recorded) {
        outboxes.webhooks.acknowledge(&intent.id);
    }
}
