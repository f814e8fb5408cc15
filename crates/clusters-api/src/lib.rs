//! The kinds of other clusters and of credentials for them, which the program `coppice-access` works on, and the names that it writes.
//!
//! Pure: no client, no clock. The CRDs in `deploy/access.yaml` are generated from here by `cargo xtask generate`.

pub mod cluster_access;
pub mod cluster_provider;
mod cluster_source;
mod issuer;
pub mod largest_rights;
pub mod managed_cluster;
pub mod managed_provider;
pub mod names;
mod schema;
mod superseded;

pub use cluster_access::{
    AccessPhase, Bind, Cause, ClusterAccess, ClusterAccessSpec, ClusterAccessStatus, ClusterRights,
    IssueIntent, LastError, NamedCluster, OtherError, Output, OutputFormat, OutputRevision, Restored, Rights,
    RoleRights, Rule, TargetIdentity,
};
pub use cluster_provider::{
    Allowed, ClusterProvider, ClusterProviderSpec, ClusterProviderStatus, ProviderCredential,
};
pub use cluster_source::{
    CapiCluster, ClusterSource, GardenerShoot, ManagedClusterName, ProviderName, SecretKey,
};
pub use issuer::Issuer;
pub use largest_rights::LargestRights;
pub use managed_cluster::{
    ClusterError, ClusterState, DeletionPolicy, FailureClass, FailureTolerance, MachineImage, MadeCluster,
    ManagedCluster, ManagedClusterSpec, ManagedClusterStatus, Networks, Oidc, Taint, TaintEffect, Volume,
    WorkerPool, ZoneAddresses,
};
pub use managed_provider::{
    CapiTopology, ClassVariables, ClusterMaker, Infrastructure, OpenStack, Purpose, ShootTemplate,
};
pub use superseded::{PendingRevocation, SupersededCertificate};

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;

/// The definitions of the kinds, in the order in which they are installed.
pub fn crds() -> Vec<CustomResourceDefinition> {
    vec![
        coppice_api::crd::<ClusterAccess>(),
        coppice_api::crd::<ClusterProvider>(),
        coppice_api::crd::<ManagedCluster>(),
    ]
}
