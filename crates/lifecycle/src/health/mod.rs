//! The health of a namespace: what of its workloads is failing, and how long that makes it `Unstable`, `Failing` or `Failed`.
//!
//! Pure, like all of this crate. [`failing`](failing()) says what fails; [`advance`] moves the clocks by that, along the
//! [`EDGES`].

mod budget;
mod clocks;
mod containers;
mod edges;
pub mod facts;
mod failing;
mod found_failures;
mod pods;
mod ready;

pub use clocks::{Health, HealthSettings, advance, pause_clocks};
pub use edges::{EDGES, Edge, EdgeCause};
pub use facts::Workloads;
pub use failing::{Failures, KnownFailures, POD_LIMIT, failing};
pub use ready::{any_runs, is_ready};
