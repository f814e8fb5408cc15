//! A `ManagedCluster` and the object that is made for it.

use coppice_clusters::managed::{LiveFact, Managed, Shape};
use coppice_clusters_api::names::LABEL_MANAGED_CLUSTER;
use coppice_runtime::error::chain;
use coppice_runtime::read;
use serde_json::Value;

use super::{ClusterKey, ManagedClusterController};
use crate::kinds::{CapiClusters, ManagedClusterObject, ManagedClusters};

/// Why what a decision rests on is not known: it is read again.
#[derive(Debug, thiserror::Error)]
#[error("{}", chain(.0))]
pub(super) struct ObserveError(#[from] kube::Error);

/// The `ManagedCluster` as it is at the API server.
pub(super) async fn fresh(
    controller: &ManagedClusterController,
    key: &ClusterKey,
) -> Result<Option<ManagedClusterObject>, ObserveError> {
    let reads = &controller.clients.reads;
    Ok(read::get::<ManagedClusters>(reads, &key.namespace, &key.name).await?)
}

/// Everything that a decision rests on; none if its spec or status cannot be understood.
pub(super) fn observed(managed: &ManagedClusterObject, live: &LiveFact) -> Option<Managed> {
    Some(Managed {
        namespace: managed.namespace.to_string(),
        name: managed.name.to_string(),
        uid: managed.uid.to_string(),
        generation: managed.generation,
        deleting: managed.terminating,
        has_finalizer: managed.has_finalizer,
        spec: managed.decoded().ok()?.clone(),
        status: (*managed.status).clone(),
        live: live.clone(),
    })
}

/// Looks at the object that is made.
pub(super) async fn look(
    controller: &ManagedClusterController,
    observed: &Managed,
) -> Result<LiveFact, ObserveError> {
    if Shape::of(&observed.spec) == Shape::Shoot {
        return Ok(LiveFact::Unserved(
            "spec.provider: write a ManagedCluster with clusterAPI, since this version of Coppice makes no Shoots yet".to_owned(),
        ));
    }
    let Managed { namespace, name, uid, .. } = observed;
    let path = format!("{}/{name}", read::path::<CapiClusters>(namespace));
    match controller.clients.reads.request::<Value>(read::request(&path)?).await {
        Ok(found) if found["metadata"]["labels"][LABEL_MANAGED_CLUSTER] == *uid => Ok(LiveFact::Made(found)),
        Ok(_) => Ok(LiveFact::Foreign),
        // Of a kind that is not served the API server names no object.
        Err(kube::Error::Api(status)) if status.code == 404 => {
            let is_served = status.details.as_ref().is_some_and(|details| details.name == *name);
            Ok(if is_served { LiveFact::Absent } else { unserved() })
        }
        Err(error) => Err(error.into()),
    }
}

fn unserved() -> LiveFact {
    LiveFact::Unserved(
        "the API server does not know the kind Cluster of cluster.x-k8s.io/v1beta2: install Cluster API 1.11 or later".to_owned(),
    )
}
