//! Signed webhooks out, to destinations that were checked.
//!
//! ```text
//! reconcile ─submit→ Outbox ─→ WebhookSender: check host, resolve, check addresses, sign, POST ─→ receiver
//!     ↑───────wake──────┘
//! ```
//! [`key`] is the operator's signing key, [`webhook`] is one attempt, [`outbox`] runs attempts beside the reconciles. Nothing here
//! is durable: how often a webhook was tried and when it is tried again stands in the status of the object that wants it.

pub mod key;
pub mod outbox;
pub mod roots;
pub mod webhook;
