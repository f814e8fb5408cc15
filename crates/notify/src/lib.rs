//! Sends signed webhooks to destinations that were checked.
//!
//! ```text
//! reconcile ─submit→ Outbox ─→ WebhookSender: check host, resolve, check addresses, sign, POST ─→ receiver
//!     ↑───────wake──────┘
//! ```
//! [`key`] is the operator's signing key, [`webhook`] is one attempt, [`outbox`] runs attempts beside the reconciles. Nothing here
//! is durable: the status of the object that wants a webhook records how often it was tried and when it is tried again.

pub mod key;
pub mod outbox;
pub mod roots;
pub mod webhook;
