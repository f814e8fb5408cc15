//! The receiver of webhooks: answers as its script says, and records what it got.

use std::time::Duration;

use coppice_notify::webhook::{Delivered, SendError, WebhookRequest};

/// What a receiver does with an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReceiverBehavior {
    /// Accepts it.
    Takes,
    /// Answers 503, and has not accepted it.
    Unavailable,
    /// Accepts it, and the answer is lost.
    TakesSilently,
}

/// What a receiver got.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Received {
    /// When, from the beginning of the run.
    pub at: Duration,
    /// The webhook's id.
    pub id: String,
    /// The body.
    pub body: Vec<u8>,
    /// Whether it was accepted.
    pub taken: bool,
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

    pub(crate) fn attempt(
        &mut self,
        at: Duration,
        request: &WebhookRequest,
    ) -> (ReceiverBehavior, Result<Delivered, SendError>) {
        let reaction = self.script.get(self.received.len()).copied().unwrap_or(ReceiverBehavior::Takes);
        self.received.push(Received {
            at,
            id: request.id.clone(),
            body: request.body.clone(),
            taken: reaction != ReceiverBehavior::Unavailable,
        });
        let answer = match reaction {
            ReceiverBehavior::Takes => Ok(Delivered { status: 200, address: None }),
            ReceiverBehavior::Unavailable => {
                Err(SendError::Status { code: 503, excerpt: String::new(), retry_after: None })
            }
            ReceiverBehavior::TakesSilently => Err(SendError::Timeout { after: Duration::from_secs(10) }),
        };
        (reaction, answer)
    }
}
