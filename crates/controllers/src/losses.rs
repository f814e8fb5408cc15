//! Reads what is lost with a namespace, when its deletion is announced.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::time::Duration;

use coppice_lifecycle::losses::{AtStake, Losses, losses, volume_of};
use coppice_runtime::error::chain;
use futures::{StreamExt as _, stream};
use k8s_openapi::api::core::v1::{Namespace, PersistentVolume, PersistentVolumeClaim, Service};
use kube::api::ListParams;
use kube::{Api, Client};
use serde::de::DeserializeOwned;

/// It does not hold up the announcement for longer.
const MAX_TIME: Duration = Duration::from_secs(10);
/// So many volumes are read at a time.
const CONCURRENT: usize = 4;
/// No more volumes than this are read: as many as fit into a status, and some to sort by what becomes of them.
const MAX_VOLUMES: usize = 64;
/// Lists come in pages of this size.
const PAGE: u32 = 500;

/// What is lost with a namespace, as far as it can be read.
pub(crate) async fn read(client: &Client, namespace: &str) -> Losses {
    if let Ok(at_stake) = tokio::time::timeout(MAX_TIME, at_stake(client, namespace)).await {
        return losses(&at_stake);
    }
    let unknown = vec![format!("it was not read within {} s", MAX_TIME.as_secs())];
    Losses { unknown, ..Losses::default() }
}

async fn at_stake(client: &Client, namespace: &str) -> AtStake {
    let namespaces: Api<Namespace> = Api::all(client.clone());
    let claims = Api::<PersistentVolumeClaim>::namespaced(client.clone(), namespace);
    let services = Api::<Service>::namespaced(client.clone(), namespace);
    let (found, claims, services) = futures::join!(namespaces.get(namespace), list(&claims), list(&services));
    let volumes = match &claims {
        Ok(claims) => volumes(client, claims).await,
        Err(_) => BTreeMap::new(),
    };
    AtStake { namespace: found.map_err(|error| chain(&error)), claims, volumes, services }
}

/// The volumes of claims.
async fn volumes(
    client: &Client,
    claims: &[PersistentVolumeClaim],
) -> BTreeMap<String, Result<PersistentVolume, String>> {
    let api: Api<PersistentVolume> = Api::all(client.clone());
    let names: Vec<String> = claims.iter().filter_map(volume_of).map(str::to_owned).collect();
    let not_read = |name: &String| (name.clone(), Err("not read: there are too many".to_owned()));
    let mut found: BTreeMap<_, _> = names.iter().skip(MAX_VOLUMES).map(not_read).collect();
    let reads = names.into_iter().take(MAX_VOLUMES).map(async |name| (api.get_opt(&name).await, name));
    let mut reads = stream::iter(reads).buffer_unordered(CONCURRENT);
    while let Some((volume, name)) = reads.next().await {
        if let Some(volume) = volume.map_err(|error| chain(&error)).transpose() {
            found.insert(name, volume);
        }
    }
    found
}

async fn list<K: Clone + Debug + DeserializeOwned>(api: &Api<K>) -> Result<Vec<K>, String> {
    let mut params = ListParams::default().limit(PAGE);
    let mut all = Vec::new();
    loop {
        let page = api.list(&params).await.map_err(|error| chain(&error))?;
        all.extend(page.items);
        match page.metadata.continue_.filter(|token| !token.is_empty()) {
            Some(token) => params.continue_token = Some(token),
            None => return Ok(all),
        }
    }
}
