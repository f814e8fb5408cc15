//! Campaigns: thousands of simulated runs of the real programs in which things go wrong, each judged by what the API server
//! and the receiver of webhooks saw.
//!
//! A [suite] has what people do, which programs run, and the rules that are about them; [`campaign`] says which runs there are,
//! [`oracle`] what must never happen in any of them, and [`digest`] has a fingerprint of every run of the tests.

pub mod campaign;
pub mod digest;
pub mod oracle;
pub mod run;
pub mod suite;
