//! The controllers: one folder each, the same five files in every one.
//!
//! `observe` (caches and fresh reads) → `plan` (pure) → `apply` (guarded writes) → `report` (Events, metrics, logs), wired
//! in `mod`.

pub mod cluster_manager;
pub mod config;
mod context;
pub mod deleted_namespace;
mod known_breaker;
pub mod managed_namespace;
mod metrics;
pub mod namespace_manager;
mod reference;
mod staleness;

pub use context::{ControllerContext, ManagerKey, OperatorOptions};
pub use metrics::LifecycleMetrics;
pub use reference::reference;
pub use staleness::first_stale;
