//! Sends signed webhooks to destinations that were checked, and messages to owners of namespaces by mail and Slack.
//!
//! ```text
//! reconcile ─submit→ Outbox ─→ Deliverer ─→ webhook: check host, resolve, check addresses, sign, POST ─→ receiver
//!     ↑─────enqueue─────┘          └──────→ channel: read credentials, connect, say what was rendered ─→ mail server, Slack
//! ```
//! [`key`] is the operator's signing key, [`webhook`] and [`channel`] are one attempt, [`outbox`] runs attempts beside the reconciles,
//! [`credentials`] are files, [`seal`] hides addresses. Nothing here is durable: the status of the object that wants a webhook or a message records how
//! often it was tried and when it is tried again.

pub mod channel;
pub mod credentials;
pub mod key;
pub mod outbox;
pub mod request;
pub mod roots;
pub mod seal;
pub mod webhook;
