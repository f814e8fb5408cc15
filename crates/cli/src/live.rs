//! What commands read of a cluster.

use std::fmt::Debug;

use anyhow::Result;
use coppice_api::names;
use k8s_openapi::api::core::v1::Namespace;
use kube::api::{ApiResource, DynamicObject, ListParams};
use kube::core::{GroupVersionKind, ObjectList};
use kube::{Api, Client};
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::connect::{code, failed};
use crate::facts::{ClusterManager, Config, Manager, NamespaceRecord, Object};
use crate::namespace_record::record_of;

/// Lists come in pages of this size.
const PAGE: u32 = 500;

/// The resource of our managers, read without its type: an object that this version cannot understand must not hide
/// the others.
pub(crate) fn managers_api(client: &Client, namespace: Option<&str>) -> Api<DynamicObject> {
    let resource = ApiResource::erase::<coppice_api::NamespaceManager>(&());
    match namespace {
        Some(namespace) => Api::namespaced_with(client.clone(), namespace, &resource),
        None => Api::all_with(client.clone(), &resource),
    }
}

/// The resource of the records of governed namespaces, read in the same way.
pub(crate) fn records_api(client: &Client, namespace: Option<&str>) -> Api<DynamicObject> {
    let resource = ApiResource::erase::<coppice_api::ManagedNamespace>(&());
    match namespace {
        Some(namespace) => Api::namespaced_with(client.clone(), namespace, &resource),
        None => Api::all_with(client.clone(), &resource),
    }
}

/// The resource of the settings, read in the same way.
pub(crate) fn configs_api(client: &Client) -> Api<DynamicObject> {
    Api::all_with(client.clone(), &ApiResource::erase::<coppice_api::CoppiceConfig>(&()))
}

/// One manager; none if it does not exist.
pub(crate) async fn manager(client: &Client, namespace: &str, name: &str) -> Result<Option<Manager>> {
    let what = format!("NamespaceManager {namespace}/{name} cannot be read");
    let found = managers_api(client, Some(namespace)).get_opt(name).await.map_err(|e| failed(&what, &e))?;
    found.map(|object| Ok(Manager::from_json(serde_json::to_value(object)?)?)).transpose()
}

/// Every manager of a namespace or the cluster that a label selector selects, by namespace and name.
pub(crate) async fn managers(
    client: &Client,
    namespace: Option<&str>,
    labels: Option<&str>,
) -> Result<Vec<Manager>> {
    let place = namespace.map_or_else(String::new, |n| format!(" of namespace {n}"));
    let found = list(&managers_api(client, namespace), labels)
        .await
        .map_err(|e| failed(&format!("the NamespaceManagers{place} cannot be listed"), &e))?;
    Ok(decoded(found)?)
}

/// Every cluster manager, by name. None where the API server does not know the kind.
pub(crate) async fn cluster_managers(client: &Client) -> Result<Vec<ClusterManager>, kube::Error> {
    let resource = ApiResource::erase::<coppice_api::ClusterNamespaceManager>(&());
    let found = list(&Api::all_with(client.clone(), &resource), None).await;
    decoded(known_kind(found)?).map_err(kube::Error::SerdeError)
}

/// The record of a namespace; none if it does not exist.
pub(crate) async fn record(client: &Client, namespace: &str) -> Result<Option<NamespaceRecord>> {
    let what = format!("{} cannot be read", record_of(namespace));
    let api = records_api(client, Some(namespace));
    let found = api.get_opt(names::MANAGED_NAMESPACE_NAME).await.map_err(|e| failed(&what, &e))?;
    found.map(|object| Ok(NamespaceRecord::from_json(serde_json::to_value(object)?)?)).transpose()
}

/// Every record of a namespace or the cluster that a label selector selects, by namespace. None where the API server does
/// not know the kind.
pub(crate) async fn records(
    client: &Client,
    namespace: Option<&str>,
    labels: Option<&str>,
) -> Result<Vec<NamespaceRecord>, kube::Error> {
    let found = list(&records_api(client, namespace), labels).await;
    decoded(known_kind(found)?).map_err(kube::Error::SerdeError)
}

/// What was listed, or nothing if the CRD is not installed: then there are no such objects.
fn known_kind<T>(found: Result<Vec<T>, kube::Error>) -> Result<Vec<T>, kube::Error> {
    match found {
        Err(error) if code(&error) == Some(404) => Ok(Vec::new()),
        found => found,
    }
}

/// Objects of one of our kinds, by namespace and name.
fn decoded<S: DeserializeOwned, T: DeserializeOwned + Default>(
    found: Vec<DynamicObject>,
) -> Result<Vec<Object<S, T>>, serde_json::Error> {
    let mut objects = Vec::with_capacity(found.len());
    for object in found {
        objects.push(Object::from_json(serde_json::to_value(object)?)?);
    }
    objects.sort_by(|a, b| (a.namespace(), a.name()).cmp(&(b.namespace(), b.name())));
    Ok(objects)
}

/// Everything that the operator reads, as it is, with what could not be read.
pub(crate) async fn objects(client: &Client, namespace: Option<&str>) -> Result<(Vec<Value>, Vec<String>)> {
    let managers = list(&managers_api(client, namespace), None)
        .await
        .map_err(|e| failed("the NamespaceManagers cannot be listed", &e))?;
    let ours = ["CoppiceConfig", "ClusterNamespaceManager", "ManagedNamespace", "DeletedNamespace"];
    let mut kinds = vec![("v1", "Namespace")];
    kinds.extend(ours.map(|kind| ("coppice.dev/v1alpha1", kind)));
    kinds.extend(coppice_sim::simulate::WATCHED_KINDS);
    let (mut objects, mut warnings) = (Vec::new(), Vec::new());
    for (version, kind) in kinds {
        let (group, version) = version.rsplit_once('/').unwrap_or(("", version));
        let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind));
        let cluster_wide =
            ["Namespace", "CoppiceConfig", "ClusterNamespaceManager", "DeletedNamespace"].contains(&kind);
        let selector = namespace.filter(|_| kind == "DeletedNamespace").map(crate::records::of_namespace);
        let api: Api<DynamicObject> = match namespace {
            Some(namespace) if !cluster_wide => Api::namespaced_with(client.clone(), namespace, &resource),
            _ => Api::all_with(client.clone(), &resource),
        };
        match known_kind(list(&api, selector.as_deref()).await) {
            Ok(found) => objects.extend(found.into_iter().map(|object| (resource.clone(), object))),
            Err(error) => {
                let what = format!("{} cannot be listed", resource.plural);
                warnings.push(format!("{:#}; taken as none", failed(&what, &error)));
            }
        }
    }
    let resource = ApiResource::erase::<coppice_api::NamespaceManager>(&());
    objects.extend(managers.into_iter().map(|object| (resource.clone(), object)));
    let raw = objects.into_iter().map(|(resource, object)| {
        let mut object = serde_json::to_value(object)?;
        // The items of a list do not say what they are.
        object["apiVersion"] = resource.api_version.into();
        object["kind"] = resource.kind.into();
        Ok(object)
    });
    Ok((raw.collect::<Result<Vec<Value>>>()?, warnings))
}

/// One namespace; none if it does not exist.
pub(crate) async fn namespace(client: &Client, name: &str) -> Result<Option<Namespace>, kube::Error> {
    Api::<Namespace>::all(client.clone()).get_opt(name).await
}

/// The settings of a cluster.
pub(crate) enum ConfigRead {
    /// They are there.
    Found(Box<Config>),
    /// They do not exist: the operator does nothing.
    Missing,
    /// They cannot be read by this user.
    Unreadable,
}

impl ConfigRead {
    /// The settings, if they are there.
    pub(crate) fn found(self) -> Option<Config> {
        match self {
            Self::Found(config) => Some(*config),
            Self::Missing | Self::Unreadable => None,
        }
    }
}

/// The settings, with a warning if there are none, or if they cannot be read.
pub(crate) async fn config(client: &Client, warnings: &mut Vec<String>) -> ConfigRead {
    let why = match configs_api(client).get_opt(names::CONFIG_NAME).await {
        Ok(Some(object)) => match serde_json::to_value(object).and_then(Config::from_json) {
            Ok(config) => return ConfigRead::Found(Box::new(config)),
            Err(error) => error.to_string(),
        },
        Ok(None) => {
            let what = "does not exist, and nothing is done without it: the operator creates it at its very first start, \
                        later an administrator has to (kubectl create, with an empty spec for the defaults)";
            warnings.push(format!("CoppiceConfig/{} {what}", names::CONFIG_NAME));
            return ConfigRead::Missing;
        }
        Err(error) => format!("{:#}", failed("it cannot be read", &error)),
    };
    warnings.push(format!("CoppiceConfig/{}: {why}; its defaults are assumed", names::CONFIG_NAME));
    ConfigRead::Unreadable
}

/// Lists everything, page by page.
pub(crate) async fn list<K>(api: &Api<K>, labels: Option<&str>) -> Result<Vec<K>, kube::Error>
where
    K: Clone + Debug + DeserializeOwned,
{
    let params = ListParams { label_selector: labels.map(str::to_owned), ..ListParams::default() };
    let mut all = Vec::new();
    each(params, async |params: &ListParams| api.list(params).await, |object| all.push(object)).await?;
    Ok(all)
}

/// Calls back for everything that is listed, page by page: what is made of it may be much smaller.
pub(crate) async fn each<T: Clone>(
    mut params: ListParams,
    page: impl AsyncFn(&ListParams) -> Result<ObjectList<T>, kube::Error>,
    mut add: impl FnMut(T),
) -> Result<(), kube::Error> {
    params.limit = Some(PAGE);
    loop {
        let found = page(&params).await?;
        found.items.into_iter().for_each(&mut add);
        match found.metadata.continue_.filter(|token| !token.is_empty()) {
            Some(token) => params = params.continue_token(&token),
            None => return Ok(()),
        }
    }
}
