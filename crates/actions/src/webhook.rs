//! Hands a webhook to an outbox, which delivers it in the background and enqueues its object after each attempt.
//!
//! For any kind of object: `K` is whatever the outbox enqueues. A webhook is no destructive step and takes nothing of the budget.
//! Whether it may be sent, and whether notice of it has run, the plan has decided, as for every step.

use std::fmt;

use coppice_api::steps::{Action, Intent};
use coppice_destination::AllowList;
use coppice_lifecycle::plan::{Delivery, WebhookMessage};
use coppice_notify::outbox::{AttemptState, Outbox};
use coppice_notify::webhook::WebhookRequest;
use jiff::{SignedDuration, Timestamp};

/// One attempt at a webhook.
#[derive(Clone, Debug)]
pub struct WebhookAttempt<'a> {
    /// The intent, as the object has it by a fresh read: a cache may be behind, and what has been delivered already must not be sent
    /// again.
    pub intent: &'a Intent,
    /// The namespace that it is sent for: namespaces take turns.
    pub namespace: &'a str,
    /// What is sent, and where to.
    pub message: WebhookMessage,
    /// Where the settings let webhooks go. The limits of the message have to permit it as well.
    pub hosts: AllowList,
    /// The time, which is signed.
    pub now: Timestamp,
}

/// What is known of the attempt at the webhook of this intent.
pub fn delivery<K: Send + 'static>(outbox: &Outbox<K>, intent: Option<&Intent>) -> Delivery {
    let attempt = intent.filter(|intent| intent.action == Action::Webhook);
    attempt.and_then(|intent| outbox.state(&intent.id)).map_or(Delivery::None, delivery_of)
}

/// An attempt, as planners take it.
pub fn delivery_of(attempt: AttemptState) -> Delivery {
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

/// Makes one attempt at a webhook of this object. Returns when to try again, if the outbox does not take it now.
pub fn submit<K: fmt::Display + Send + 'static>(
    outbox: &Outbox<K>,
    subject: K,
    attempt: WebhookAttempt<'_>,
) -> Option<Timestamp> {
    let WebhookAttempt { intent, namespace, message, hosts, now } = attempt;
    let WebhookMessage { destination, limits, body } = message;
    let request = WebhookRequest {
        id: intent.id.clone(),
        destination,
        allow: std::iter::once(hosts).chain(limits).collect(),
        namespace: namespace.to_owned(),
        body,
        now,
    };
    let of = subject.to_string();
    match outbox.submit(namespace, subject, intent.attempts, request) {
        Ok(_) => None,
        // The outbox is full: others are served first.
        Err(error) => {
            tracing::warn!(of, %error, "webhook waits");
            when_there_is_room(&intent.id, now)
        }
    }
}

/// When to ask again for room in the outbox: not all at once, of which there may be thousands.
pub fn when_there_is_room(id: &str, now: Timestamp) -> Option<Timestamp> {
    let spread = id.bytes().fold(0_i64, |sum, byte| (sum * 31 + i64::from(byte)) % 10_000);
    now.checked_add(SignedDuration::from_millis(2_000 + spread)).ok()
}

/// Has the outbox drop an attempt whose outcome is in status, where the intent was `before` it was written, and is `after` that.
pub fn acknowledge<K: Send + 'static>(outbox: &Outbox<K>, before: Option<&Intent>, after: Option<&Intent>) {
    let Some(intent) = before.filter(|intent| intent.action == Action::Webhook) else { return };
    if after.is_none_or(|now| now.attempts != intent.attempts || now.id != intent.id) {
        outbox.acknowledge(&intent.id);
    }
}

#[cfg(test)]
#[path = "webhook_tests.rs"]
mod tests;
