//! The receiver of webhooks and of messages to people: answers as its script says, and records what it got.

use std::time::Duration;

use coppice_notify::channel::{ChannelError, SmtpStep};
use coppice_notify::request::{DeliverError, DeliveryRequest};
use coppice_notify::webhook::{Delivered, SendError};
use serde_json::json;

/// How long an attempt waits for an answer.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(10);
/// What a mail server and Slack are called.
const SERVER: &str = "the receiver";

/// What a receiver does with an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReceiverBehavior {
    /// Accepts it.
    Takes,
    /// Answers 503, or what is as much, and has not accepted it.
    Unavailable,
    /// Accepts it, and the answer is lost.
    TakesSilently,
    /// Refuses it for good: there is no such recipient.
    Refuses,
}

/// What a receiver got.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Received {
    /// When, from the beginning of the run.
    pub at: Duration,
    /// The id of the webhook, or of the message.
    pub id: String,
    /// To whom, by mail or in Slack; none if it is a webhook.
    pub to: Option<String>,
    /// The body of a webhook; of a message its text, in JSON.
    pub body: Vec<u8>,
    /// What was done with it.
    pub behavior: ReceiverBehavior,
}

impl Received {
    /// Whether it was accepted.
    pub fn is_taken(&self) -> bool {
        matches!(self.behavior, ReceiverBehavior::Takes | ReceiverBehavior::TakesSilently)
    }
}

/// The receiver.
#[derive(Clone, Debug, Default)]
pub struct Receiver {
    script: Vec<ReceiverBehavior>,
    received: Vec<Received>,
}

impl Receiver {
    /// One that follows a script, attempt by attempt, and accepts everything after that.
    pub fn new(script: &[ReceiverBehavior]) -> Self {
        Self { script: script.to_vec(), received: Vec::new() }
    }

    /// Everything it got, in order.
    pub fn received(&self) -> &[Received] {
        &self.received
    }

    /// Takes an attempt.
    ///
    /// # Errors
    /// What the attempt fails with, before anything is sent or by its script.
    pub(crate) fn attempt(
        &mut self,
        at: Duration,
        request: &DeliveryRequest,
    ) -> (Option<ReceiverBehavior>, Result<Delivered, DeliverError>) {
        let (to, body) = match request {
            DeliveryRequest::Webhook(request) => (None, request.body.clone()),
            DeliveryRequest::ChannelWebhook(request) => (None, request.webhook.body.clone()),
            DeliveryRequest::Email(request) => {
                (Some(request.to.clone()), message(&request.to, &request.text))
            }
            DeliveryRequest::Slack(request) => {
                let to = request.to.clone().unwrap_or_default();
                let body = message(&to, &request.text);
                (Some(to), body)
            }
            DeliveryRequest::Invalid { error, .. } => return (None, Err(error.clone().into())),
        };
        let behavior = self.script.get(self.received.len()).copied().unwrap_or(ReceiverBehavior::Takes);
        self.received.push(Received { at, id: request.id().to_owned(), to, body, behavior });
        (Some(behavior), answer(request, behavior))
    }
}

/// A message to a person, as it is recorded.
fn message(to: &str, text: &str) -> Vec<u8> {
    json!({ "type": "owner.message", "to": to, "text": text }).to_string().into_bytes()
}

fn answer(request: &DeliveryRequest, behavior: ReceiverBehavior) -> Result<Delivered, DeliverError> {
    let server = || SERVER.to_owned();
    let refused = |step, code: &str, permanent| ChannelError::Smtp {
        step,
        code: code.to_owned(),
        permanent,
        cause: String::new(),
    };
    let slack = |error: &str| ChannelError::Slack { error: error.to_owned(), retry_after: None };
    let status = |code| SendError::Status { code, excerpt: String::new(), retry_after: None };
    Err(match (behavior, request) {
        (ReceiverBehavior::Takes, _) => return Ok(Delivered { status: 200, address: None }),
        (
            ReceiverBehavior::TakesSilently,
            DeliveryRequest::Webhook(_) | DeliveryRequest::ChannelWebhook(_),
        ) => SendError::Timeout { after: TIMEOUT }.into(),
        (
            ReceiverBehavior::TakesSilently,
            DeliveryRequest::Email(_) | DeliveryRequest::Slack(_) | DeliveryRequest::Invalid { .. },
        ) => ChannelError::Timeout { server: server(), after: TIMEOUT }.into(),
        (ReceiverBehavior::Unavailable, DeliveryRequest::Webhook(_) | DeliveryRequest::ChannelWebhook(_)) => {
            status(503).into()
        }
        (ReceiverBehavior::Unavailable, DeliveryRequest::Email(_)) => {
            refused(SmtpStep::Greeting, "421", false).into()
        }
        (ReceiverBehavior::Unavailable, DeliveryRequest::Slack(_) | DeliveryRequest::Invalid { .. }) => {
            slack("status 503").into()
        }
        (ReceiverBehavior::Refuses, DeliveryRequest::Webhook(_) | DeliveryRequest::ChannelWebhook(_)) => {
            status(410).into()
        }
        (ReceiverBehavior::Refuses, DeliveryRequest::Email(_)) => {
            refused(SmtpStep::Recipient, "550 5.1.1", true).into()
        }
        (ReceiverBehavior::Refuses, DeliveryRequest::Slack(_) | DeliveryRequest::Invalid { .. }) => {
            slack("user_not_found").into()
        }
    })
}
