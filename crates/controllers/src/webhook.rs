//! The webhooks of managers and cluster managers, by the outbox of this program.

use std::sync::Arc;

use coppice_actions::webhook::{self, WebhookAttempt};
use coppice_api::steps::{Action, Intent};
use coppice_destination::AllowList;
use coppice_kinds::{Manager, Managers};
use coppice_lifecycle::facts::NamespaceFacts;
use coppice_lifecycle::pending_webhook::PendingWebhook;
use coppice_lifecycle::plan::{Delivery, WebhookMessage};
use coppice_notify::outbox::Outbox;
use coppice_runtime::object::OwnKind as _;
use jiff::Timestamp;

use crate::context::{ControllerContext, WebhookSubject};

/// The outbox of webhooks, if there is one and this intent is to call one.
fn outbox(shared: &ControllerContext, intent: Option<&Intent>) -> Option<Outbox<WebhookSubject>> {
    let outboxes = intent.filter(|intent| intent.action == Action::Webhook).and_then(|_| shared.outboxes());
    outboxes.map(|outboxes| outboxes.webhooks)
}

/// What is known of the attempt at the webhook of this intent.
pub(crate) fn delivery(shared: &ControllerContext, intent: Option<&Intent>) -> Delivery {
    outbox(shared, intent).map_or(Delivery::None, |outbox| webhook::delivery(&outbox, intent))
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

/// Makes one attempt at a webhook, to where these hosts and the limits of the message permit it. Returns when to try again, if it is not
/// taken now.
pub(crate) fn submit(
    shared: &ControllerContext,
    subject: WebhookSubject,
    intent: &Intent,
    message: WebhookMessage,
    hosts: AllowList,
) -> Option<Timestamp> {
    let Some(outboxes) = shared.outboxes() else { return shared.in_one_second() };
    let namespace = Arc::clone(&subject.namespace);
    let attempt = WebhookAttempt { intent, namespace: &namespace, message, hosts, now: shared.now() };
    webhook::submit(&outboxes.webhooks, subject, attempt)
}

/// When to ask again for room in the outbox.
pub(crate) fn when_there_is_room(shared: &ControllerContext, id: &str) -> Option<Timestamp> {
    webhook::when_there_is_room(id, shared.now())
}

/// Has the outbox drop an attempt whose outcome is in status.
pub(crate) fn acknowledge_attempt(
    shared: &ControllerContext,
    before: Option<&Intent>,
    after: Option<&Intent>,
) {
    if let Some(outbox) = outbox(shared, before) {
        webhook::acknowledge(&outbox, before, after);
    }
}
