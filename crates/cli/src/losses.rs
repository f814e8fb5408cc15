//! What is lost with namespaces that are deleted, read with the rights of the user who asks.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Debug;
use std::sync::Arc;

use coppice_api::losses::{ForeignFinalizer, Losses, MAX_LISTED};
use coppice_api::names::{FINALIZER, GROUP};
use coppice_lifecycle::losses::{AtStake, is_foreign, losses, volume_of};
use futures::{StreamExt as _, stream};
use k8s_openapi::api::core::v1::{Namespace, PersistentVolume, PersistentVolumeClaim, Service};
use kube::api::{ApiResource, DynamicObject, ListParams};
use kube::core::PartialObjectMeta;
use kube::discovery::{ApiGroup, Discovery, Scope, verbs};
use kube::{Api, Client, ResourceExt as _};
use serde::de::DeserializeOwned;
use thiserror::Error;

use crate::connect::failed;
use crate::live;

/// So many requests are under way at a time.
const CONCURRENT: usize = 8;
/// Resources that are looked at on their own, or that carry no finalizers of others and may be many.
const LEFT_OUT: [(&str, &str); 5] = [
    ("", "persistentvolumeclaims"),
    ("", "services"),
    ("", "events"),
    ("events.k8s.io", "events"),
    ("discovery.k8s.io", "endpointslices"),
];

/// Kinds of ours whose finalizer stays until a cluster elsewhere is deleted, or a credential for one is revoked.
const OURS_ELSEWHERE: [&str; 2] = ["ManagedCluster", "ClusterAccess"];

/// Of the kinds that cannot be read so many are named.
const MAX_NAMED: usize = 8;
/// Of more namespaces than this, everything is listed at once.
const MANY: usize = 20;

/// Why something was not read, in words that are the same for each kind.
#[derive(Clone, Debug, Error)]
enum NotRead {
    #[error("you may not read them")]
    Forbidden,
    #[error("the API server answers {code} {reason}")]
    Refused { code: u16, reason: String },
    #[error("{:#}", failed("not read", .0))]
    Failed(Arc<kube::Error>),
    #[error("it does not exist any more")]
    Gone,
}

impl From<kube::Error> for NotRead {
    fn from(error: kube::Error) -> Self {
        match error {
            kube::Error::Api(status) if status.code == 403 => Self::Forbidden,
            kube::Error::Api(status) => Self::Refused { code: status.code, reason: status.reason },
            error => Self::Failed(Arc::new(error)),
        }
    }
}

/// What is lost with each of these namespaces. Of finalizers only those of namespaces, claims and Services.
pub(crate) async fn of_namespaces(client: &Client, wanted: &BTreeSet<String>) -> BTreeMap<String, Losses> {
    if wanted.len() > MANY {
        return of_many(client, wanted).await;
    }
    let reads = wanted.iter().map(async |name| (name.clone(), losses(&at_stake(client, name).await)));
    stream::iter(reads).buffer_unordered(CONCURRENT).collect().await
}

async fn of_many(client: &Client, wanted: &BTreeSet<String>) -> BTreeMap<String, Losses> {
    let (namespaces, claims, services, volumes) = futures::join!(
        all::<Namespace>(client),
        all::<PersistentVolumeClaim>(client),
        all::<Service>(client),
        all::<PersistentVolume>(client)
    );
    let namespaces = by(namespaces, |namespace| namespace.metadata.name.clone());
    let claims = by(claims, |claim| claim.metadata.namespace.clone());
    let services = by(services, |service| service.metadata.namespace.clone());
    let volumes = by(volumes, |volume| volume.metadata.name.clone());
    let of_one = |name: &String| {
        let in_it = claims.as_ref().ok().and_then(|claims| claims.get(name)).into_iter().flatten();
        let bound = in_it.filter_map(volume_of).filter_map(|volume| {
            let found = volumes.as_ref().map_err(Clone::clone).map(|all| all.get(volume)?.first().cloned());
            Some((volume.to_owned(), found.transpose()?))
        });
        let namespace = namespaces.as_ref().map_err(Clone::clone);
        let namespace = namespace.map(|all| all.get(name).and_then(|found| found.first()).cloned());
        let at_stake = AtStake {
            namespace: namespace.and_then(|found| found.ok_or(NotRead::Gone)),
            claims: of(&claims, name),
            volumes: bound.collect(),
            services: of(&services, name),
        };
        (name.clone(), losses(&at_stake))
    };
    wanted.iter().map(of_one).collect()
}

/// Everything of a kind.
async fn all<K>(client: &Client) -> Result<Vec<K>, NotRead>
where
    K: kube::Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned,
{
    Ok(live::list(&Api::<K>::all(client.clone()), None).await?)
}

type Grouped<K> = Result<BTreeMap<String, Vec<K>>, NotRead>;

fn by<K>(all: Result<Vec<K>, NotRead>, key: impl Fn(&K) -> Option<String>) -> Grouped<K> {
    let mut grouped = BTreeMap::<String, Vec<K>>::new();
    all?.into_iter().for_each(|one| grouped.entry(key(&one).unwrap_or_default()).or_default().push(one));
    Ok(grouped)
}

fn of<K: Clone>(grouped: &Grouped<K>, name: &str) -> Result<Vec<K>, NotRead> {
    grouped.as_ref().map(|all| all.get(name).cloned().unwrap_or_default()).map_err(Clone::clone)
}

/// What is lost with a namespace, with the finalizers of everything in it.
pub(crate) async fn of_namespace(client: &Client, name: &str) -> Losses {
    let (at_stake, all) = futures::join!(at_stake(client, name), finalizers(client, name));
    let mut losses = losses(&at_stake);
    let (found, unknown) = all;
    losses.unknown.extend(unknown);
    losses.finalizers.extend(found);
    losses.finalizers.sort();
    let more = losses.finalizers.len().saturating_sub(MAX_LISTED);
    losses.finalizers.truncate(MAX_LISTED);
    let more = losses.more.unwrap_or(0).saturating_add(u32::try_from(more).unwrap_or(u32::MAX));
    losses.more = (more > 0).then_some(more);
    losses
}

async fn at_stake(client: &Client, name: &str) -> AtStake<NotRead> {
    let claims = Api::<PersistentVolumeClaim>::namespaced(client.clone(), name);
    let services = Api::<Service>::namespaced(client.clone(), name);
    let namespaces = Api::<Namespace>::all(client.clone());
    let (namespace, claims, services) =
        futures::join!(namespaces.get(name), live::list(&claims, None), live::list(&services, None));
    let volumes = volumes(client, claims.as_deref().unwrap_or_default()).await;
    AtStake {
        namespace: namespace.map_err(NotRead::from),
        claims: claims.map_err(NotRead::from),
        volumes,
        services: services.map_err(NotRead::from),
    }
}

async fn volumes(
    client: &Client,
    claims: &[PersistentVolumeClaim],
) -> BTreeMap<String, Result<PersistentVolume, NotRead>> {
    let api = Api::<PersistentVolume>::all(client.clone());
    let names = claims.iter().filter_map(volume_of).map(str::to_owned);
    let reads = names.map(async |name| (api.get_opt(&name).await, name));
    let found = stream::iter(reads).buffer_unordered(CONCURRENT).filter_map(async |(volume, name)| {
        let volume = volume.map_err(NotRead::from).transpose()?;
        Some((name, volume))
    });
    found.collect().await
}

/// The finalizers of everything else in a namespace that its deletion waits for, and what of it is not known.
async fn finalizers(client: &Client, namespace: &str) -> (Vec<ForeignFinalizer>, Vec<String>) {
    let discovery = match Discovery::new(client.clone()).run_aggregated().await {
        Ok(discovery) => discovery,
        Err(error) => return (Vec::new(), vec![format!("finalizers: {}", NotRead::from(error))]),
    };
    let kinds = discovery.groups().flat_map(ApiGroup::recommended_resources);
    let kinds = kinds.filter(|(kind, capabilities)| {
        let deleted = [verbs::LIST, verbs::DELETE].iter().all(|verb| capabilities.supports_operation(verb));
        let left_out = LEFT_OUT.contains(&(kind.group.as_str(), kind.plural.as_str()));
        capabilities.scope == Scope::Namespaced && deleted && !left_out
    });
    let kinds: Vec<ApiResource> = kinds.map(|(kind, _)| kind).collect();
    let reads = kinds.into_iter().map(|kind| of_kind(client, namespace, kind));
    let mut reads = stream::iter(reads).buffer_unordered(CONCURRENT);
    let (mut found, mut not_read) = (Vec::new(), BTreeMap::<String, BTreeSet<String>>::new());
    while let Some((kind, of_kind)) = reads.next().await {
        match of_kind {
            Ok(more) => found.extend(more),
            Err(why) => drop(not_read.entry(why.to_string()).or_default().insert(kind)),
        }
    }
    let unknown = not_read.into_iter().map(|(why, kinds)| {
        let mut named: Vec<_> = kinds.iter().take(MAX_NAMED).cloned().collect();
        if kinds.len() > MAX_NAMED {
            named.push(format!("{} more kinds", kinds.len() - MAX_NAMED));
        }
        format!("finalizers of {}: {why}", named.join(", "))
    });
    (found, unknown.collect())
}

/// Those of one kind; or why they are not known.
async fn of_kind(
    client: &Client,
    namespace: &str,
    kind: ApiResource,
) -> (String, Result<Vec<ForeignFinalizer>, NotRead>) {
    let api = Api::<DynamicObject>::namespaced_with(client.clone(), namespace, &kind);
    let (mut found, params) = (Vec::new(), ListParams::default());
    let is_elsewhere = is_ours_elsewhere(&kind);
    let page = async |params: &ListParams| api.list_metadata(params).await;
    let read = live::each(params, page, |object: PartialObjectMeta<DynamicObject>| {
        let name = object.name_any();
        let is_waited_for =
            |finalizer: &String| is_foreign(finalizer) || is_elsewhere && finalizer == FINALIZER;
        let foreign = object.finalizers().iter().filter(|finalizer| is_waited_for(finalizer));
        found.extend(foreign.map(|finalizer| ForeignFinalizer {
            finalizer: finalizer.clone(),
            kind: kind.kind.clone(),
            name: name.clone(),
        }));
    });
    let read = read.await.map_err(NotRead::from);
    (kind.plural.clone(), read.map(|()| found))
}

/// Whether it is one of these kinds.
fn is_ours_elsewhere(kind: &ApiResource) -> bool {
    kind.group == GROUP && OURS_ELSEWHERE.contains(&kind.kind.as_str())
}

#[cfg(test)]
mod tests {
    use coppice_clusters_api::{ClusterAccess, ManagedCluster};

    use super::*;

    #[test]
    fn our_finalizers_count_where_something_elsewhere_goes_first() {
        assert!(is_ours_elsewhere(&ApiResource::erase::<ManagedCluster>(&())));
        assert!(is_ours_elsewhere(&ApiResource::erase::<ClusterAccess>(&())));
        assert!(!is_ours_elsewhere(&ApiResource::erase::<coppice_api::Subnamespace>(&())));
        let mut of_others = ApiResource::erase::<ManagedCluster>(&());
        of_others.group = "example.org".to_owned();
        assert!(!is_ours_elsewhere(&of_others));
    }
}
