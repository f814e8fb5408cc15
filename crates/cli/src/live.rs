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

use crate::connect::failed;
use crate::facts::{Config, Manager};

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
    let mut managers = Vec::with_capacity(found.len());
    for object in found {
        managers.push(Manager::from_json(serde_json::to_value(object)?)?);
    }
    managers.sort_by(|a, b| (a.namespace(), a.name()).cmp(&(b.namespace(), b.name())));
    Ok(managers)
}

/// Everything that the operator reads, as it is, with what could not be read.
pub(crate) async fn objects(client: &Client, namespace: Option<&str>) -> Result<(Vec<Value>, Vec<String>)> {
    let managers = list(&managers_api(client, namespace), None)
        .await
        .map_err(|e| failed("the NamespaceManagers cannot be listed", &e))?;
    let mut kinds = vec![("v1", "Namespace"), ("coppice.dev/v1alpha1", "CoppiceConfig")];
    kinds.extend(coppice_sim::simulate::WATCHED_KINDS);
    let (mut objects, mut warnings) = (Vec::new(), Vec::new());
    for (version, kind) in kinds {
        let (group, version) = version.rsplit_once('/').unwrap_or(("", version));
        let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind));
        let cluster_wide = kind == "Namespace" || kind == "CoppiceConfig";
        let api: Api<DynamicObject> = match namespace {
            Some(namespace) if !cluster_wide => Api::namespaced_with(client.clone(), namespace, &resource),
            _ => Api::all_with(client.clone(), &resource),
        };
        match list(&api, None).await {
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
