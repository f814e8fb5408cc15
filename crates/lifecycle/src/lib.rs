//! Facts, policies and law to a plan: what happens to a namespace, when and why.
//!
//! Pure: no clock, no I/O, no randomness. The operator, `coppice plan` and `coppice explain` call the same [`plan`], so
//! that what a user is told is what will happen.
//!
//! ```text
//! facts ──▶ condition ──▶ plan ──▶ Plan { status, effect, look_at, notes }
//!             law ─────────┘           │ effect carried out by the operator
//!                              record ◀┘ Outcome
//! ```

pub mod backoff;
pub mod body;
pub mod condition;
pub mod destination;
mod digest;
pub mod facts;
pub mod glob;
pub mod governor;
pub mod law;
pub mod mutants;
pub mod plan;
pub mod record;
pub mod time;
mod wishes;

pub use digest::{Comparison, Digests, digest};
pub use law::Law;
pub use plan::{Observed, Plan, Rest, plan, rest};
pub use wishes::Wishes;
