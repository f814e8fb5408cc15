//! `ClusterNamespaceManager`.

use coppice_api::ClusterNamespaceManagerStatus;
use coppice_lifecycle::cluster::{ClusterManagerFacts, ValidClusterManager};
use coppice_runtime::object::{NoAnnotations, Object, OwnKind};
use coppice_runtime::own_kind;

/// A `ClusterNamespaceManager`.
pub type ClusterManager = Object<ValidClusterManager, ClusterNamespaceManagerStatus>;

/// Every `ClusterNamespaceManager`.
#[derive(Debug)]
pub struct ClusterManagers;

own_kind!(ClusterManagers, "/apis/coppice.dev/v1alpha1", "clusternamespacemanagers");

impl OwnKind for ClusterManagers {
    type Spec = ValidClusterManager;
    type Status = ClusterNamespaceManagerStatus;
    type Annotations = NoAnnotations;
    const KIND: &'static str = "ClusterNamespaceManager";
    const NAMESPACED: bool = false;
    /// The platform writes it.
    const MAX_SPEC_BYTES: usize = 1 << 20;
}

/// A cluster manager, as the pure planner takes it. Its status decides nothing.
pub fn cluster_manager_facts(manager: &ClusterManager) -> ClusterManagerFacts<'_> {
    ClusterManagerFacts {
        name: &manager.name,
        uid: &manager.uid,
        generation: manager.generation,
        terminating: manager.terminating,
        spec: manager.spec.as_deref(),
    }
}
