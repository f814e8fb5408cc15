//! The controllers: one folder each, the same five files in every one.
//!
//! `observe` (caches and fresh reads) → `plan` (pure) → `apply` (guarded writes) → `report` (Events, metrics, logs), wired
//! in `mod`.

pub mod config;
pub mod namespace_manager;
mod shared;

pub use shared::{Key, Setup, Shared};
