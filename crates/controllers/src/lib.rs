//! The controllers: one folder each, the same five files in every one.
//!
//! `observe` (caches and fresh reads) → `plan` (pure) → `apply` (guarded writes) → `report` (Events, metrics, logs), wired
//! in `mod`.

mod annotations;
pub mod cluster_manager;
pub mod config;
mod context;
pub mod deleted_namespace;
mod deletion_notification;
mod delivery_waiters;
mod health;
mod known_breaker;
mod losses;
pub mod managed_namespace;
mod message_texts;
mod metrics;
pub mod namespace_manager;
mod outboxes;
mod owner_messages;
mod pods;
mod reference;
mod refused_records;
mod staleness;
mod status_writer;
mod successor;
#[cfg(test)]
mod test_scene;
pub mod wake_all;
mod webhook;

pub use context::{ControllerContext, ManagerKey, OperatorOptions, WebhookSubject};
pub use delivery_waiters::DeliveryWaiters;
pub use health::WorkloadStores;
pub use metrics::LifecycleMetrics;
pub use outboxes::Outboxes;
pub use reference::{reference, reference_inside};
pub use staleness::first_stale;
pub use status_writer::{Applied, EventBatch, FactsError, StatusWriter, StepError, SteppedKind};
