//! Trees of namespaces: users of a namespace create namespaces below it, and all of them together stay inside the quota of the tree.
//!
//! What is decided about quota is in `coppice-hierarchy`; the controllers here read what that needs, in the order in which it needs
//! it, and carry out the one next write. A program of its own runs them: `coppice-operator trees`.

pub mod admission;
mod allotment;
#[cfg(test)]
mod apply_support;
mod context;
mod copies;
mod error;
mod index;
mod last_seen;
mod metadata;
mod metrics;
pub mod namespace_tree;
mod overdraft;
mod position;
pub mod propagation;
pub mod quota_transfer;
mod reads;
pub mod replica;
mod seen_trees;
pub mod subnamespace;
mod throttle;
mod turns;
mod writes;

pub use context::TreeContext;
pub use metrics::TreeMetrics;
