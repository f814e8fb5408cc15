//! Cluster managers: which of them governs a namespace, how that namespace is, and what becomes of it.
//!
//! Pure, like all of this crate. [`plan`] decides about one namespace; [`census`](census::census) counts for the status of
//! each cluster manager, by the same functions.

pub mod approval;
pub mod census;
mod hours;
mod identity;
mod limits;
pub mod observed;
mod owner;
pub mod phase;
mod plan;
mod recipient;
pub mod recreated;
pub mod selection;
mod supersede;
mod ttl;
mod valid_health;
mod valid_manager;
mod valid_selector;

pub use hours::{InvalidHours, ValidHours};
pub use identity::{NoIdentity, SupersedeError, Unidentified, ValidSupersede, identity_of};
pub use limits::{InvalidLimits, TenantLimits, ValidLimits, extension_end, held, hold_end, hold_left};
pub use owner::owner_of;
pub use plan::{ClusterObserved, HealthFacts, NamespacePlan, NamespaceStep, RecordFacts, lint, plan};
pub(crate) use recipient::RecordedRecipient;
pub use recipient::{AddressKey, Recipients, masked, recipients_of};
pub use selection::ClusterManagerFacts;
pub use supersede::{KnownSuccessor, SuccessorFacts};
pub use ttl::{EffectiveTtl, InvalidTtl, TtlSource, ValidTtl, ttl_of};
pub use valid_health::{HealthError, ValidHealth};
pub use valid_manager::{
    ClusterAction, ClusterCondition, ClusterPolicyError, InvalidClusterManager, ValidClusterManager,
    ValidClusterPolicy,
};
pub use valid_selector::{InvalidSelector, SelectorParts, SelectorPlace, ValidSelector};
