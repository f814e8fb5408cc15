//! A `ClusterAccess` and its Secret: from caches, or straight from the API server.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

use coppice_api::Reason;
use coppice_api::selector::Labels;
use coppice_clusters::kubeconfig::{self, Unencrypted};
use coppice_clusters::{
    AccessObservation, ClusterFact, GrantVerdict, KubeconfigFact, ManagedFact, OutputFact, Permission,
    Progress, Turn, kyma, needs_labels, valid_until,
};
use coppice_clusters_api::{ClusterAccessSpec, OutputFormat, Rights};
use coppice_runtime::error::chain;
use coppice_runtime::read;
use serde::Deserialize;

use super::apply::Memory;
use super::{AccessKey, ClusterAccessController};
use crate::allowed::Seen;
use crate::cluster_api;
use crate::kinds::{Access, ClusterAccesses, ClusterProviders, ManagedClusters, Provider};
use crate::output::{ExtraMetadata, fact, read_secret};
use crate::target::user_of;
use crate::targets::{ReadError, Source};

/// Why what a decision rests on is not known: it is read again.
#[derive(Debug, thiserror::Error)]
pub(super) enum ObserveError {
    /// The API server refused a read, or did not answer.
    #[error("{}", chain(.0))]
    Get(#[from] kube::Error),
    /// The same of the Secret with the kubeconfig.
    #[error(transparent)]
    Kubeconfig(ReadError),
    /// The watch has not shown yet what its provider says now.
    #[error("ClusterProvider {0} is another one by now than the watch has shown")]
    Behind(String),
}

/// What the watch says of its Secret.
pub(super) fn watched(controller: &ClusterAccessController, access: &Access) -> OutputFact {
    let found = access.spec.as_ref().ok().and_then(|spec| {
        let found = controller.outputs.get(&access.namespace, &spec.output.secret)?;
        (*found.access == *access.uid).then(|| (found.uid.to_string(), found.resource_version.to_string()))
    });
    OutputFact::Watched(found)
}

/// Where the kubeconfig of its target is.
pub(super) fn source(controller: &ClusterAccessController, access: &Access) -> Option<Source> {
    controller.providers.source_of_access(access)
}

/// Reads the kubeconfig of its target, and keeps it in memory. What is wrong with it is said when it is needed; `Err`: it was not read.
pub(super) async fn read_kubeconfig(
    controller: &ClusterAccessController,
    access: &Access,
) -> Result<(), ObserveError> {
    let Some(source) = source(controller, access) else { return Ok(()) };
    match controller.targets.read(&controller.clients, &source).await {
        Err(error @ ReadError::Unknown { .. }) => Err(ObserveError::Kubeconfig(error)),
        _ => Ok(()),
    }
}

/// Everything that a decision rests on; none if its spec or status cannot be understood.
pub(super) fn observed(
    controller: &ClusterAccessController,
    access: &Access,
    memory: &Memory,
) -> Option<AccessObservation> {
    let mut spec = access.decoded().ok()?.clone();
    let (cluster, managed) = controller.providers.resolve(access)?;
    spec.cluster = cluster;
    let provider = spec.cluster.provider_name();
    let min_forget_after = provider.and_then(|name| controller.providers.min_forget_after(name));
    let user_name = spec.issuer.is_of_garden().then(|| user_name(&memory.value)).flatten();
    let narrows = narrows(controller, access, &spec);
    let source = source(controller, access);
    let turn = match (memory.turn, provider) {
        (Turn::Unasked, None) if !takes_turns(controller, source.as_ref(), memory) => Turn::Granted,
        (turn, _) => turn,
    };
    let kubeconfig = source.map_or(KubeconfigFact::Unusable, |at| controller.targets.fact(&at));
    Some(AccessObservation {
        uid: access.uid.to_string(),
        generation: access.generation,
        deleting: access.terminating,
        has_finalizer: access.has_finalizer,
        spec,
        status: (*access.status).clone(),
        kubeconfig,
        managed: memory.managed.clone().unwrap_or(managed),
        cluster: memory.cluster,
        permission: memory.permission.clone(),
        grant: memory.grant,
        turn,
        min_forget_after,
        narrows,
        target: memory.identity.clone(),
        user_name,
        output: memory.output.clone(),
        progress: memory.progress.clone(),
    })
}

/// Whether the most urgent go first where no provider leads: the target has, or had a moment ago, too many requests. Who has begun goes on.
fn takes_turns(controller: &ClusterAccessController, source: Option<&Source>, memory: &Memory) -> bool {
    let turns = &controller.targets.turns;
    memory.progress == Progress::Nothing
        && source.is_some_and(|source| turns.was_throttled(source, controller.now()))
}

/// The user of the certificate in a kubeconfig of ours; none if it is none.
fn user_name(value: &[u8]) -> Option<String> {
    user_of(&kubeconfig::parse(value, Unencrypted::ToLoopback).ok()?.user)
}

/// Whether its rights only take away from those that its target has by a kubeconfig of the platform.
fn narrows(controller: &ClusterAccessController, access: &Access, spec: &ClusterAccessSpec) -> bool {
    let applied = access.status.observed_generation;
    applied.is_some_and(|applied| applied != access.generation)
        && spec.cluster.provider_name().is_some()
        && controller
            .target_rights
            .are_narrowed(&AccessKey::new(&access.namespace, &access.name), &spec.rights)
}

/// Whether the `ManagedCluster` and the `Cluster` of its target stay, as the API server says.
pub(super) async fn cluster(
    controller: &ClusterAccessController,
    access: &Access,
) -> Result<(ManagedFact, ClusterFact), ObserveError> {
    let Some((of, managed)) = controller.providers.resolve(access) else {
        return Ok((ManagedFact::NotNamed, ClusterFact::Stays));
    };
    let managed = if managed == ManagedFact::Gone { managed_now(controller, access).await? } else { managed };
    if managed == ManagedFact::Gone {
        return Ok((managed, ClusterFact::Gone));
    }
    let cluster = match &of.cluster_api {
        Some(cluster) => cluster_api::look(&controller.clients, &access.namespace, &cluster.name).await?,
        None => ClusterFact::Stays,
    };
    Ok((managed, cluster))
}

/// The `ManagedCluster` that its status names, which the cache does not have: a list may have lacked it, or what is there was too large.
async fn managed_now(
    controller: &ClusterAccessController,
    access: &Access,
) -> Result<ManagedFact, kube::Error> {
    let named = access.spec.as_ref().ok().and_then(|spec| spec.cluster.managed_cluster.as_ref());
    let (Some(named), Some(known)) = (named, &access.status.managed_cluster) else {
        return Ok(ManagedFact::Gone);
    };
    let now = read::get::<ManagedClusters>(&controller.clients.reads, &access.namespace, &named.name).await?;
    Ok(match now.filter(|now| *now.uid == *known.uid) {
        Some(now) if now.terminating => ManagedFact::Deleting,
        Some(_) => ManagedFact::Stays,
        None => ManagedFact::Gone,
    })
}

/// What is known without asking of what its `ClusterProvider` says of what its target has by now.
pub(super) fn known_grant(controller: &ClusterAccessController, access: &Access) -> GrantVerdict {
    let Some(provider) = provider(controller, access).filter(|_| access.status.sequence > 0) else {
        return GrantVerdict::Settled;
    };
    // One that cannot be understood says nothing.
    if provider.spec.is_err() {
        return GrantVerdict::Settled;
    }
    let status = &access.status;
    let refused = Reason::NotAllowed.as_str();
    let was_refused = status.last_error.as_ref().is_some_and(|error| error.reason == refused);
    let key = AccessKey::new(&access.namespace, &access.name);
    let is_known = || controller.allowed_before.contains(&key, &Seen::new(access, &provider));
    if !was_refused && status.revokes_at.is_none() && is_known() {
        GrantVerdict::Settled
    } else {
        GrantVerdict::Unread
    }
}

/// The `ClusterProvider` that it names, if that is there.
fn provider(controller: &ClusterAccessController, access: &Access) -> Option<Arc<Provider>> {
    let cluster = controller.providers.cluster_of(access)?;
    controller.providers.store.get("", cluster.provider_name()?)
}

/// Its spec, with the cluster that it is for.
fn resolved_spec(controller: &ClusterAccessController, access: &Access) -> Option<Arc<ClusterAccessSpec>> {
    let spec = access.spec.as_ref().ok()?;
    Some(match controller.providers.cluster_of(access)? {
        Cow::Borrowed(_) => Arc::clone(spec),
        Cow::Owned(cluster) => Arc::new(ClusterAccessSpec { cluster, ..ClusterAccessSpec::clone(spec) }),
    })
}

/// What the `ClusterProvider` that it names allows of what it asks for, and of what its target has by now. Of one that is gone or cannot be
/// understood nothing follows about that.
pub(super) async fn permission(
    controller: &ClusterAccessController,
    access: &Access,
) -> Result<(Permission, GrantVerdict), ObserveError> {
    let resolved = resolved_spec(controller, access);
    let named = resolved.as_ref().and_then(|spec| Some((spec, spec.cluster.provider_name()?)));
    let Some((spec, name)) = named else { return Ok((Permission::Allowed, GrantVerdict::Settled)) };
    let missing = |why: &str| {
        let message = format!("{}: ClusterProvider {name} {why}", spec.cluster.provider_field());
        (Permission::Refused(Reason::ProviderMissing, message), GrantVerdict::Settled)
    };
    let Some(found) = provider(controller, access) else {
        return Ok(missing(
            "does not exist: write the name of another one into a new ClusterAccess, or ask the platform to create it",
        ));
    };
    // What it allows is in its spec alone.
    let Ok(provider) = &found.spec else {
        return Ok(missing(
            "cannot be understood by this version of Coppice: ask the platform to write it again",
        ));
    };
    let by_labels = needs_labels(provider);
    let labels = if by_labels { labels(controller, &access.namespace).await? } else { Labels::default() };
    let validity = (valid_until(&access.status), controller.now());
    let (provider, namespace) = ((name, &**provider), (&*access.namespace, &labels));
    let permission = coppice_clusters::permission(provider, namespace, spec, validity);
    let key = AccessKey::new(&access.namespace, &access.name);
    if permission == Permission::Allowed {
        controller.allowed_before.insert(key.clone(), Seen::new(access, &found), by_labels);
    }
    let grant = rights_of(controller, &key, access, spec).map_or(GrantVerdict::Unknown, |rights| {
        let rights: Vec<&Rights> = rights.iter().map(|spec| &spec.rights).collect();
        coppice_clusters::grant_verdict(provider, namespace, spec, &rights, validity)
    });
    let takes = grant == GrantVerdict::RightsNotAllowed
        || grant == GrantVerdict::CredentialNotAllowed && access.status.revokes_at.is_some();
    if takes && !is_current(controller, &found).await? {
        return Err(ObserveError::Behind(name.to_owned()));
    }
    Ok((permission, grant))
}

/// Whether the API server has this provider as the cache has it: nothing is taken away by what it said before.
async fn is_current(controller: &ClusterAccessController, known: &Provider) -> Result<bool, kube::Error> {
    let now = read::get::<ClusterProviders>(&controller.clients.reads, "", &known.name).await?;
    Ok(now.is_some_and(|now| now.uid == known.uid && now.generation == known.generation))
}

/// In specs, which rights the target may have; none if that is not known.
fn rights_of(
    controller: &ClusterAccessController,
    key: &AccessKey,
    access: &Access,
    spec: &Arc<ClusterAccessSpec>,
) -> Option<Vec<Arc<ClusterAccessSpec>>> {
    match access.status.observed_generation {
        Some(applied) if applied == access.generation => Some(vec![Arc::clone(spec)]),
        Some(_) if spec.issuer.is_of_garden() => Some(Vec::new()),
        Some(_) => controller.target_rights.known(key),
        None => Some(controller.target_rights.known(key).unwrap_or_default()),
    }
}

/// The labels of a namespace, as they are now.
async fn labels(controller: &ClusterAccessController, namespace: &str) -> Result<Labels, kube::Error> {
    #[derive(Default, Deserialize)]
    #[serde(default)]
    struct Namespace {
        metadata: Meta,
    }
    #[derive(Default, Deserialize)]
    #[serde(default)]
    struct Meta {
        labels: Labels,
    }
    let request = read::request(&format!("/api/v1/namespaces/{namespace}"))?;
    let found: Namespace = controller.clients.reads.request(request).await?;
    Ok(found.metadata.labels)
}

/// The object as it is at the API server.
pub(super) async fn fresh(
    controller: &ClusterAccessController,
    key: &AccessKey,
) -> Result<Option<Access>, ObserveError> {
    let reads = &controller.clients.reads;
    Ok(read::get::<ClusterAccesses>(reads, &key.namespace, &key.name).await?)
}

/// Its Secret as it is there, and the value in it.
pub(super) async fn output(
    controller: &ClusterAccessController,
    access: &Access,
    observed: &AccessObservation,
) -> Result<(OutputFact, Vec<u8>), ObserveError> {
    let output = &observed.spec.output;
    let secret = read_secret(&controller.clients, &access.namespace, &output.secret).await?;
    Ok(fact(secret, &observed.uid, output.data_key()))
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
) -> Result<ExtraMetadata, ObserveError> {
    if format == OutputFormat::Coppice {
        return Ok(ExtraMetadata::default());
    }
    let path = format!("{}/{}", read::path::<ClusterAccesses>(&access.namespace), access.name);
    let found = controller.clients.reads.request::<Labeled>(read::request(&path)?).await?;
    let last_sync = kyma::last_sync(controller.now());
    Ok(ExtraMetadata {
        labels: kyma::labels(&access.name, &found.metadata.labels),
        annotations: BTreeMap::from([(kyma::LAST_SYNC.to_owned(), last_sync)]),
    })
}
