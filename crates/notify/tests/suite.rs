//! Every test of how messages are sent, in one program.
//!
//! A new file here is a module of this program, or it does not run.

mod channel_webhook;
mod channels;
mod email;
mod outbox;
mod support;
mod tls;
mod webhook;
