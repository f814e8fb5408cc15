//! Campaigns: thousands of simulated runs of the real operator in which things go wrong, each judged by what the API server
//! and the receiver of webhooks saw.
//!
//! [`scenario`] has what people do, [`campaign`] which runs there are, [`oracle`] what must never happen and how a run ends,
//! [`digest`] a fingerprint of every run of the tests.

pub mod campaign;
pub mod digest;
pub mod oracle;
pub mod run;
pub mod scenario;
