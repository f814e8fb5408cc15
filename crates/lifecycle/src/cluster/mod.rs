//! Cluster managers: which of them governs a namespace, how that namespace is, and what becomes of it.
//!
//! Pure, like all of this crate. [`plan`] decides about one namespace; [`census`](census::census) counts for the status of
//! each cluster manager, by the same functions.

pub mod approval;
pub mod census;
mod limits;
pub mod observed;
mod owner;
pub mod phase;
mod plan;
pub mod recreated;
pub mod selection;
mod ttl;
mod valid_health;
mod valid_manager;
mod valid_selector;

pub use limits::{InvalidLimits, TenantLimits, ValidLimits, extension_end, held, hold_end};
pub use owner::owner_of;
pub use plan::{ClusterObserved, HealthFacts, RecordFacts, RecordPlan, RecordStep, plan};
pub use selection::ClusterManagerFacts;
pub use ttl::{Ttl, TtlSource, ValidTtl, ttl_of};
pub use valid_health::ValidHealth;
pub use valid_manager::{
    ClusterAction, ClusterCondition, InvalidClusterManager, ValidClusterManager, ValidClusterPolicy,
};
pub use valid_selector::{InvalidSelector, Place, SelectorParts, ValidSelector};
