//! The ports of a program, for callers that nobody has to trust.
//!
//! - [`port`]: connections with limits on their number, time and memory, with TLS or without.
//! - [`probes`]: `/livez` and `/readyz`. [`metrics`]: `/metrics`, for those whom [`access`] lets in.
//! - [`certificate`]: what TLS shows, exchanged while connections are accepted: made by itself, or from files.
//! - [`authority`] (pure) and [`keeper`]: the certificate authority that the API server trusts for the admission webhook, made and
//!   renewed by the program itself.
//! - [`startup`]: what every program does with them before its controllers run.
//! - [`admission`]: the webhook. What it decides, others say: see [`Reviewer`](admission::Reviewer).

pub mod access;
pub mod admission;
pub mod authority;
pub mod certificate;
pub mod keeper;
pub mod metrics;
mod page;
pub mod port;
pub mod probes;
mod rate;
pub mod startup;
