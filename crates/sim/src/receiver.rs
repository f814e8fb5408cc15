//! Who receives webhooks: answers as its script says, and remembers what it got.

use std::time::Duration;

use coppice_notify::webhook::{Delivered, SendError, WebhookRequest};

/// What a receiver does with an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reaction {
    /// Takes it.
    Takes,
    /// Answers 503, and has not taken it.
    Unavailable,
    /// Takes it, and the answer is lost.
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
    /// Whether it was taken.
    pub taken: bool,
}

/// The receiver.
#[derive(Clone, Debug, Default)]
pub struct Receiver {
    script: Vec<Reaction>,
    received: Vec<Received>,
}

impl Receiver {
    /// One that does as told, attempt by attempt, and takes everything after that.
    pub fn new(script: &[Reaction]) -> Self {
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
    ) -> (Reaction, Result<Delivered, SendError>) {
        let reaction = self.script.get(self.received.len()).copied().unwrap_or(Reaction::Takes);
        self.received.push(Received {
            at,
            id: request.id.clone(),
            body: request.body.clone(),
            taken: reaction != Reaction::Unavailable,
        });
        let answer = match reaction {
            Reaction::Takes => Ok(Delivered { status: 200, address: None }),
            Reaction::Unavailable => {
                Err(SendError::Status { code: 503, excerpt: String::new(), retry_after: None })
            }
            Reaction::TakesSilently => Err(SendError::Timeout { after: Duration::from_secs(10) }),
        };
        (reaction, answer)
    }
}
