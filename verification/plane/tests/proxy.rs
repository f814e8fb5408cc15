//! Each fault of the proxy, as a client of a real control plane sees it.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test helper has nobody to return an error to")]

#[path = "proxy/past.rs"]
mod past;
#[path = "proxy/requests.rs"]
mod requests;
#[path = "proxy/support.rs"]
mod support;
#[path = "proxy/watches.rs"]
mod watches;
#[path = "proxy/whole.rs"]
mod whole;
