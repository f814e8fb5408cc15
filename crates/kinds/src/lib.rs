//! The kinds that Coppice watches, a file for each: how an object is read, and the few fields of it that are kept.
//!
//! To add one: a type that stands for it and implements [`Kind`](coppice_runtime::kind::Kind), or for a kind of our own
//! [`OwnKind`](coppice_runtime::object::OwnKind); its line in `fuzz/projections.rs`; its tests in `tests/projections.rs`.

mod cluster_manager;
mod config;
mod deleted_namespace;
mod job;
mod managed_namespace;
mod manager;
mod namespace;
mod namespace_tree;
mod pod;
mod propagated;
mod quota_transfer;
mod subnamespace;
mod tree_quota;
mod workloads;

pub use cluster_manager::{ClusterManager, ClusterManagers, cluster_manager_facts};
pub use config::{Config, Configs};
pub use deleted_namespace::{
    DecidedIn, DeletedNamespaceFields, DeletedNamespaces, DeletionRecord, past_deletion,
};
pub use job::{JobWire, Jobs};
pub use managed_namespace::{ManagedNamespaces, NamespaceRecord, record_facts};
pub use manager::{Manager, Managers};
pub use namespace::{NamespaceWire, Namespaces};
pub use namespace_tree::{NamespaceTrees, Tree};
pub use pod::{PodWire, Pods};
pub use propagated::{
    CopiedKind, LimitRanges, MAX_PROPAGATE_TO, NetworkPolicies, Origin, Propagated, RoleBindingWire,
    RoleBindings, SpecWire,
};
pub use quota_transfer::{QuotaTransferObject, QuotaTransfers};
pub use subnamespace::{SubnamespaceAnnotations, SubnamespaceObject, Subnamespaces};
pub use tree_quota::{InvalidQuota, TreeQuota, TreeQuotaWire, TreeQuotas};
pub use workloads::{ClaimWire, Claims, DaemonSets, Deployments, ReplicaSets, SetWire, StatefulSets};
