//! Reads what is lost with a namespace, when its deletion is announced.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::time::Duration;

use coppice_lifecycle::losses::{AtStake, Losses, is_foreign, losses, volume_of};
use coppice_runtime::error::chain;
use futures::{StreamExt as _, stream};
use k8s_openapi::api::core::v1::{
    Namespace, PersistentVolume, PersistentVolumeClaim, PersistentVolumeClaimSpec,
    PersistentVolumeClaimStatus, Service, ServiceSpec, ServiceStatus,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::ListParams;
use kube::{Api, Client};
use serde::de::DeserializeOwned;
use thiserror::Error;
use tokio::sync::Semaphore;
use tokio::time::Instant;

/// It does not hold up the announcement for longer.
const MAX_TIME: Duration = Duration::from_secs(10);
/// So many volumes are read at a time.
const CONCURRENT: usize = 4;
/// No more volumes than this are read: as many as fit into a status, and some to sort by what becomes of them.
const MAX_VOLUMES: usize = 64;
/// So many namespaces are read at a time: an answer may have 16 MiB.
const MAX_READING: usize = 4;
/// Lists come in pages of this size.
const PAGE: u32 = 500;
/// Of more claims or Services than this, none is looked at.
const MAX_OBJECTS: usize = 2000;
/// Of one object so many finalizers count: one more than are listed.
const MAX_FINALIZERS: usize = 17;

/// Why something is not known.
#[derive(Debug, Error)]
enum NotRead {
    #[error("{}", chain(.0))]
    Failed(kube::Error),
    #[error("not read within {} s", MAX_TIME.as_secs())]
    NotInTime,
    #[error("not read: there are too many")]
    TooManyVolumes,
    #[error("there are more than {MAX_OBJECTS}")]
    TooManyObjects,
}

/// Reads what is lost with namespaces, a few at a time.
#[derive(Debug)]
pub(crate) struct LossReader(Semaphore);

impl Default for LossReader {
    fn default() -> Self {
        Self(Semaphore::new(MAX_READING))
    }
}

impl LossReader {
    /// What is lost with a namespace, as far as it can be read.
    pub(crate) async fn read(&self, client: &Client, namespace: &str) -> Losses {
        let _one = self.0.acquire().await;
        losses(&at_stake(client, namespace).await)
    }
}

async fn at_stake(client: &Client, namespace: &str) -> AtStake<NotRead> {
    let deadline = Instant::now() + MAX_TIME;
    let namespaces: Api<Namespace> = Api::all(client.clone());
    let claims = Api::<PersistentVolumeClaim>::namespaced(client.clone(), namespace);
    let services = Api::<Service>::namespaced(client.clone(), namespace);
    let found = async { namespaces.get(namespace).await.map_err(NotRead::Failed) };
    let (found, claims, services) = futures::join!(
        in_time(deadline, found),
        in_time(deadline, list(&claims, claim)),
        in_time(deadline, list(&services, service))
    );
    let volumes = match &claims {
        Ok(claims) => volumes(client, claims, deadline).await,
        Err(_) => BTreeMap::new(),
    };
    AtStake { namespace: found, claims, volumes, services }
}

/// What is read by then.
async fn in_time<T>(deadline: Instant, read: impl Future<Output = Result<T, NotRead>>) -> Result<T, NotRead> {
    tokio::time::timeout_at(deadline, read).await.unwrap_or(Err(NotRead::NotInTime))
}

/// The volumes of claims.
async fn volumes(
    client: &Client,
    claims: &[PersistentVolumeClaim],
    deadline: Instant,
) -> BTreeMap<String, Result<PersistentVolume, NotRead>> {
    let api: Api<PersistentVolume> = Api::all(client.clone());
    let names: Vec<String> = claims.iter().filter_map(volume_of).map(str::to_owned).collect();
    let not_read = |name: &String| (name.clone(), Err(NotRead::TooManyVolumes));
    let mut found: BTreeMap<_, _> = names.iter().skip(MAX_VOLUMES).map(not_read).collect();
    let reads = names.into_iter().take(MAX_VOLUMES).map(async |name| {
        let read = async { api.get_opt(&name).await.map_err(NotRead::Failed) };
        (in_time(deadline, read).await, name)
    });
    let mut reads = stream::iter(reads).buffer_unordered(CONCURRENT);
    while let Some((volume, name)) = reads.next().await {
        if let Some(volume) = volume.transpose() {
            found.insert(name, volume);
        }
    }
    found
}

/// Lists everything, each page reduced at once: tenants decide how large their objects are, and how many there are.
async fn list<K: Clone + Debug + DeserializeOwned>(
    api: &Api<K>,
    reduced: impl Fn(K) -> K,
) -> Result<Vec<K>, NotRead> {
    let mut params = ListParams::default().limit(PAGE);
    let mut all = Vec::new();
    loop {
        let page = api.list(&params).await.map_err(NotRead::Failed)?;
        all.extend(page.items.into_iter().map(&reduced));
        match page.metadata.continue_.filter(|token| !token.is_empty()) {
            Some(_) if all.len() >= MAX_OBJECTS => return Err(NotRead::TooManyObjects),
            Some(token) => params.continue_token = Some(token),
            None => return Ok(all),
        }
    }
}

/// What says which object it is, and the finalizers that may be listed.
fn metadata(of: ObjectMeta) -> ObjectMeta {
    let foreign = of.finalizers.into_iter().flatten().filter(|finalizer| is_foreign(finalizer));
    let finalizers = Some(foreign.take(MAX_FINALIZERS).collect());
    ObjectMeta { name: of.name, namespace: of.namespace, uid: of.uid, finalizers, ..ObjectMeta::default() }
}

fn claim(of: PersistentVolumeClaim) -> PersistentVolumeClaim {
    let spec = of.spec.map(|spec| PersistentVolumeClaimSpec {
        volume_name: spec.volume_name,
        resources: spec.resources,
        ..PersistentVolumeClaimSpec::default()
    });
    let status = of.status.map(|status| PersistentVolumeClaimStatus {
        phase: status.phase,
        capacity: status.capacity,
        ..PersistentVolumeClaimStatus::default()
    });
    PersistentVolumeClaim { metadata: metadata(of.metadata), spec, status }
}

fn service(of: Service) -> Service {
    let spec = of.spec.map(|spec| ServiceSpec { type_: spec.type_, ..ServiceSpec::default() });
    let status = of
        .status
        .map(|status| ServiceStatus { load_balancer: status.load_balancer, ..ServiceStatus::default() });
    Service { metadata: metadata(of.metadata), spec, status }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn of_what_tenants_write_only_what_is_said_is_kept() {
        let many: Vec<_> = (0..100).map(|n| format!("example.org/{n}")).collect();
        let annotations = json!({"large": "x".repeat(1000)});
        let object = |spec: Value, status: Value| {
            let metadata =
                json!({"name": "a", "finalizers": many, "annotations": annotations, "labels": {"a": "b"}});
            json!({"metadata": metadata, "spec": spec, "status": status})
        };
        let capacity = json!({"storage": "1Gi"});
        let of = object(
            json!({"volumeName": "v", "resources": {"requests": capacity}, "selector": {"matchLabels": annotations}}),
            json!({"phase": "Bound", "capacity": capacity}),
        );
        let kept = serde_json::to_value(claim(serde_json::from_value(of).unwrap())).unwrap();
        assert_eq!(kept["metadata"]["finalizers"].as_array().map(Vec::len), Some(MAX_FINALIZERS));
        assert_eq!(kept["metadata"]["annotations"], Value::Null);
        assert_eq!(kept["spec"], json!({"volumeName": "v", "resources": {"requests": capacity}}));
        assert_eq!(kept["status"], json!({"phase": "Bound", "capacity": capacity}));
        let ingress = json!({"ingress": [{"ip": "192.0.2.1"}]});
        let of = object(
            json!({"type": "LoadBalancer", "selector": annotations, "ports": [{"port": 80}]}),
            json!({"loadBalancer": ingress}),
        );
        let kept = serde_json::to_value(service(serde_json::from_value(of).unwrap())).unwrap();
        assert_eq!(
            (&kept["spec"], &kept["status"]),
            (&json!({"type": "LoadBalancer"}), &json!({"loadBalancer": ingress}))
        );
    }
}
