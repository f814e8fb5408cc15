//! A `ManagedCluster` and the object that is made for it.

use coppice_clusters::managed::{LiveFact, Managed};
use coppice_runtime::error::chain;
use coppice_runtime::read;

use super::site::{Found, Site, find, throttle};
use super::{ClusterKey, ManagedClusterController};
use crate::kinds::{ManagedClusterObject, ManagedClusters};
use crate::targets::ReadError;

/// Why what a decision rests on is not known: it is read again.
#[derive(Debug, thiserror::Error)]
pub(super) enum ObserveError {
    /// The API server refused a read, or did not answer.
    #[error("{}", chain(.0))]
    Get(#[from] kube::Error),
    /// The same of the Secret with the kubeconfig of the provider.
    #[error(transparent)]
    Kubeconfig(ReadError),
}

/// What a reconcile knows beside the `ManagedCluster`.
#[derive(Default)]
pub(super) struct Memory {
    /// The object that is made.
    pub(super) live: LiveFact,
    /// Where that is; none while it is not known.
    pub(super) site: Option<Site>,
}

/// What came of a look.
pub(super) enum Looked {
    /// The object is known, or why it is not.
    Done,
    /// There is no place in its garden.
    Busy,
}

/// The `ManagedCluster` as it is at the API server.
pub(super) async fn fresh(
    controller: &ManagedClusterController,
    key: &ClusterKey,
) -> Result<Option<ManagedClusterObject>, ObserveError> {
    let reads = &controller.clients.reads;
    Ok(read::get::<ManagedClusters>(reads, &key.namespace, &key.name).await?)
}

/// Everything that a decision rests on; none if its spec or status cannot be understood.
pub(super) fn observed(managed: &ManagedClusterObject, memory: &Memory) -> Option<Managed> {
    Some(Managed {
        namespace: managed.namespace.to_string(),
        name: managed.name.to_string(),
        uid: managed.uid.to_string(),
        generation: managed.generation,
        deleting: managed.terminating,
        has_finalizer: managed.has_finalizer,
        spec: managed.decoded().ok()?.clone(),
        status: (*managed.status).clone(),
        object_namespace: memory.site.as_ref().map_or(String::new(), |site| site.namespace.clone()),
        project: memory.site.as_ref().and_then(|site| site.project.clone()),
        live: memory.live.clone(),
    })
}

/// Looks at the object that is made.
pub(super) async fn look(
    controller: &ManagedClusterController,
    observed: &Managed,
    memory: &mut Memory,
) -> Result<Looked, ObserveError> {
    if memory.site.is_none() {
        match find(controller, observed).await? {
            Found::Site(site) => memory.site = Some(site),
            Found::Refused(failure) => {
                memory.live = LiveFact::Refused(failure);
                return Ok(Looked::Done);
            }
            Found::Busy => return Ok(Looked::Busy),
            Found::WaitsForTurn { since, until, is_throttled } => {
                memory.live = LiveFact::WaitsForTurn { since, until, is_throttled };
                return Ok(Looked::Done);
            }
        }
    }
    if let Some(site) = &memory.site {
        memory.live = site.look(observed).await?;
        if let Some(wait) = site.asks_to_wait(&memory.live) {
            throttle(controller, observed, wait);
        }
    }
    Ok(Looked::Done)
}
