//! What an outbox delivers, and why it is not delivered.

use std::time::Duration;

use jiff::Timestamp;
use thiserror::Error;

use crate::channel::{ChannelError, EmailRequest, SlackRequest, WebhookChannelRequest};
use crate::webhook::{SendError, WebhookRequest};

/// One attempt at something.
#[derive(Clone, Debug)]
pub enum DeliveryRequest {
    /// A signed webhook of a policy.
    Webhook(Box<WebhookRequest>),
    /// A message by the webhook of a channel.
    ChannelWebhook(Box<WebhookChannelRequest>),
    /// A mail.
    Email(Box<EmailRequest>),
    /// A message in Slack.
    Slack(Box<SlackRequest>),
    /// What cannot be sent: the attempt says why.
    Invalid {
        /// Its id.
        id: String,
        /// Why.
        error: ChannelError,
    },
}

impl DeliveryRequest {
    /// What is the same in every attempt.
    pub fn id(&self) -> &str {
        match self {
            Self::Webhook(request) => &request.id,
            Self::ChannelWebhook(request) => &request.webhook.id,
            Self::Email(request) => &request.id,
            Self::Slack(request) => &request.id,
            Self::Invalid { id, .. } => id,
        }
    }

    /// It is another attempt at what was sent under this id.
    pub(crate) fn set_id(&mut self, id: &str) {
        let of = match self {
            Self::Webhook(request) => &mut request.id,
            Self::ChannelWebhook(request) => &mut request.webhook.id,
            Self::Email(request) => &mut request.id,
            Self::Slack(request) => &mut request.id,
            Self::Invalid { id, .. } => id,
        };
        id.clone_into(of);
    }

    /// Whom it burdens: attempts at one host at once are few.
    pub(crate) fn host(&self) -> String {
        match self {
            Self::Webhook(request) => request.destination.host().to_string(),
            Self::ChannelWebhook(request) => request.webhook.destination.host().to_string(),
            // None of these is the name of a host of webhooks.
            Self::Email(request) => format!("smtp://{}:{}", request.channel.host, request.channel.port),
            // Workspaces may differ, and Slack counts for each; the place where they are reached does not.
            Self::Slack(_) => "slack://".to_owned(),
            Self::Invalid { .. } => String::new(),
        }
    }

    /// Whom it burdens, if that is a person or a room; none if a program reads it. An incoming webhook of Slack writes to one room.
    pub(crate) fn recipient(&self) -> Option<&str> {
        match self {
            Self::Webhook(_) | Self::ChannelWebhook(_) | Self::Invalid { .. } => None,
            Self::Email(request) => Some(&request.to),
            Self::Slack(request) => Some(request.to.as_deref().unwrap_or_default()),
        }
    }

    /// The same, attempted then.
    pub(crate) fn at(mut self, then: impl Fn(Timestamp) -> Timestamp) -> Self {
        match &mut self {
            Self::Webhook(request) => request.now = then(request.now),
            Self::ChannelWebhook(request) => request.webhook.now = then(request.webhook.now),
            Self::Email(request) => request.now = then(request.now),
            Self::Slack(_) | Self::Invalid { .. } => {}
        }
        self
    }
}

impl From<WebhookRequest> for DeliveryRequest {
    fn from(request: WebhookRequest) -> Self {
        Self::Webhook(Box::new(request))
    }
}

/// Why an attempt did not deliver.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum DeliverError {
    /// A webhook.
    #[error(transparent)]
    Webhook(#[from] SendError),
    /// A message by a channel.
    #[error(transparent)]
    Channel(#[from] ChannelError),
}

impl DeliverError {
    /// Whether another attempt of the same request is pointless.
    pub fn is_permanent(&self) -> bool {
        match self {
            Self::Webhook(error) => error.is_permanent(),
            Self::Channel(error) => error.is_permanent(),
        }
    }

    /// Whether it shows that the channel works, as the refusal of one recipient does; none if it says nothing of the channel.
    pub fn channel_works(&self) -> Option<bool> {
        match self {
            Self::Webhook(error) => error.receiver_works(),
            Self::Channel(error) => error.channel_works(),
        }
    }

    /// How long the receiver asked to wait.
    pub fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::Webhook(error) => error.retry_after(),
            Self::Channel(error) => error.retry_after(),
        }
    }
}
