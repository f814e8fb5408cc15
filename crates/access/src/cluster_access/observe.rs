//! A `ClusterAccess` and its Secret: from caches, or straight from the API server.

use std::collections::BTreeMap;

use coppice_clusters::{ClusterFact, KubeconfigFact, Observed, OutputFact, kyma};
use coppice_clusters_api::OutputFormat;
use coppice_runtime::error::chain;
use coppice_runtime::read;
use serde::Deserialize;

use super::apply::Memory;
use super::{AccessKey, ClusterAccessController};
use crate::cluster_api;
use crate::kinds::{Access, ClusterAccesses};
use crate::output::{ExtraMetadata, fact, read_secret};
use crate::targets::{ReadError, Source};

/// What the watch says of its Secret.
pub(super) fn watched(controller: &ClusterAccessController, access: &Access) -> OutputFact {
    let found = access.spec.as_ref().ok().and_then(|spec| {
        let found = controller.outputs.get(&access.namespace, &spec.output.secret)?;
        (*found.access == *access.uid).then(|| (found.uid.to_string(), found.resource_version.to_string()))
    });
    OutputFact::Watched(found)
}

/// Where the kubeconfig of its target is.
pub(super) fn source(access: &Access) -> Option<Source> {
    let cluster = &access.spec.as_ref().ok()?.cluster;
    match (&cluster.kubeconfig_secret, &cluster.cluster_api) {
        (Some(secret), _) => Some(Source::new(&access.namespace, secret)),
        (None, Some(of)) => Some(Source::of_cluster(&access.namespace, &of.name)),
        (None, None) => None,
    }
}

/// Reads the kubeconfig of its target, and keeps it in memory. What is wrong with it is said when it is needed; `Err`: it was not read.
pub(super) async fn read_kubeconfig(
    controller: &ClusterAccessController,
    access: &Access,
) -> Result<(), String> {
    let Some(source) = source(access) else { return Ok(()) };
    match controller.targets.read(&controller.clients, &source).await {
        Err(error @ ReadError::Unknown { .. }) => Err(error.to_string()),
        _ => Ok(()),
    }
}

/// Everything that a decision rests on; none if its spec or status cannot be understood.
pub(super) fn observed(
    controller: &ClusterAccessController,
    access: &Access,
    memory: &Memory,
) -> Option<Observed> {
    let spec = access.decoded().ok()?.clone();
    let kubeconfig = source(access).map_or(KubeconfigFact::Unusable, |at| controller.targets.fact(&at));
    Some(Observed {
        uid: access.uid.to_string(),
        generation: access.generation,
        deleting: access.terminating,
        has_finalizer: access.has_finalizer,
        spec,
        status: (*access.status).clone(),
        kubeconfig,
        cluster: memory.cluster,
        target: memory.identity.clone(),
        output: memory.output.clone(),
        progress: memory.progress.clone(),
    })
}

/// Whether the `Cluster` of its target stays, as the API server says.
pub(super) async fn cluster(
    controller: &ClusterAccessController,
    access: &Access,
) -> Result<ClusterFact, String> {
    let cluster = access.spec.as_ref().ok().and_then(|spec| spec.cluster.cluster_api.as_ref());
    let Some(cluster) = cluster else { return Ok(ClusterFact::Stays) };
    let found = cluster_api::look(&controller.clients, &access.namespace, &cluster.name).await;
    found.map_err(|error| chain(&error))
}

/// The object as it is at the API server.
pub(super) async fn fresh(
    controller: &ClusterAccessController,
    key: &AccessKey,
) -> Result<Option<Access>, String> {
    let reads = &controller.clients.reads;
    read::get::<ClusterAccesses>(reads, &key.namespace, &key.name).await.map_err(|error| chain(&error))
}

/// Its Secret as it is there, and the value in it.
pub(super) async fn output(
    controller: &ClusterAccessController,
    access: &Access,
    observed: &Observed,
) -> Result<(OutputFact, Vec<u8>), String> {
    let output = &observed.spec.output;
    let secret = read_secret(&controller.clients, &access.namespace, &output.secret).await;
    Ok(fact(secret.map_err(|error| chain(&error))?, &observed.uid, output.data_key()))
}

/// The labels of an object.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Labeled {
    metadata: LabeledMeta,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct LabeledMeta {
    labels: BTreeMap<String, String>,
}

/// What its Secret has besides, as its format asks: for Kyma its labels are read, which no cache keeps.
pub(super) async fn output_metadata(
    controller: &ClusterAccessController,
    access: &Access,
    format: OutputFormat,
) -> Result<ExtraMetadata, String> {
    if format == OutputFormat::Coppice {
        return Ok(ExtraMetadata::default());
    }
    let path = format!("{}/{}", read::path::<ClusterAccesses>(&access.namespace), access.name);
    let request = read::request(&path).map_err(|error| chain(&error))?;
    let found = controller.clients.reads.request::<Labeled>(request).await.map_err(|error| chain(&error))?;
    let last_sync = kyma::last_sync(controller.now());
    Ok(ExtraMetadata {
        labels: kyma::labels(&access.name, &found.metadata.labels),
        annotations: BTreeMap::from([(kyma::LAST_SYNC.to_owned(), last_sync)]),
    })
}
