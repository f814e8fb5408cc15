//! Facts, policies and settings to a plan: what happens to a namespace, when and why.
//!
//! Pure: no clock, no I/O, no randomness. The operator, `coppice plan` and `coppice explain` call the same [`plan`], so
//! that what a user reads is what will happen.
//!
//! ```text
//! facts ──▶ condition ──▶ plan ──▶ Plan { status, step, next_check, events }
//!             settings ─────────┘           │ effect carried out by the operator
//!                              record ◀┘ StepOutcome
//! ```

pub mod annotations;
pub mod backoff;
pub mod body;
pub mod breaker;
pub mod circumstances;
pub mod cluster;
pub mod condition;
pub mod deletion_notification;
mod delivery;
mod digest;
pub mod facts;
pub mod glob;
pub mod governor;
pub mod health;
pub mod limits;
pub mod lint;
pub mod losses;
pub mod message;
pub mod other_deletion;
pub mod pending_webhook;
pub mod plan;
pub mod record;
pub mod settings;
pub mod steps;
mod valid_spec;

pub use digest::{DigestComparison, PolicyDigests, digest};
pub use plan::{Observed, Plan, Steady, plan, steady};
pub use settings::PlatformSettings;
pub use valid_spec::{
    InvalidPolicy, PolicyAction, PolicyCondition, PolicyError, TtlEnd, ValidPolicy, ValidSpec, ValidWebhook,
};
