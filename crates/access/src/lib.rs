//! Credentials for other clusters: issued by their API servers, tried out, written into Secrets of this one, replaced before they
//! expire, and revoked. And, where that is switched on, clusters that are made, changed and deleted.
//!
//! What is decided is in `coppice-clusters`; the controller here observes, and carries out the one next step. A program of its own runs
//! it: `coppice-access`, the only one of Coppice that may read the Secrets of others.

mod allowed;
mod budgets;
pub mod cluster_access;
mod cluster_api;
pub mod cluster_provider;
mod explain;
mod installation;
mod kinds;
pub mod leftovers;
pub mod managed_cluster;
mod metrics;
mod output;
pub mod release_all;
pub mod replica;
mod shared;
mod target;
mod target_leftovers;
mod target_rights;
mod targets;

pub use coppice_clusters::kubeconfig::{Kubeconfig, Unencrypted, User};
pub use kinds::{Access, ClusterAccesses};
pub use metrics::AccessMetrics;
pub use shared::Shared;
pub use target::MakeKey;
pub use target_leftovers::GONE_FOR;
pub use targets::Connect;
