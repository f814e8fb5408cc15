//! A snapshot of a cluster.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Debug;

use anyhow::Result;
use coppice_api::{Reason, names};
use coppice_lifecycle::settings::ScaleKind;
use coppice_lifecycle::{PolicyAction, ValidSpec};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Namespace;
use kube::api::{ApiResource, DynamicObject, ListParams};
use kube::core::{GroupVersionKind, NamespaceResourceScope, ObjectList, Request};
use kube::{Api, Client, Resource};
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::cluster_snapshot::{ByNamespace, ClusterSnapshot, excess_managers, managed_by_limit, settings};
use crate::connect::{code, failed};
use crate::facts::{self, Config, Manager};

/// Lists come in pages of this size.
const PAGE: u32 = 500;
/// Characters of the reason why an object cannot be decoded, which may quote what tenants wrote.
const LONGEST_WHY: usize = 200;

/// Which managers to read.
pub(crate) struct Scope<'a> {
    /// One namespace, or all of them.
    pub(crate) namespace: Option<&'a str>,
    /// One manager of it, or all of them.
    pub(crate) name: Option<&'a str>,
    /// What the installation lives in.
    pub(crate) system_namespace: &'a str,
    pub(crate) scale_kinds: Vec<ScaleKind>,
}

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

/// The inputs of the plans of the managers in scope.
pub(crate) async fn cluster_snapshot(client: &Client, scope: Scope<'_>) -> Result<ClusterSnapshot> {
    let mut warnings = Vec::new();
    let mut managers = managers(client, scope.namespace, None).await?;
    let namespaces_of_managers: BTreeSet<String> =
        managers.iter().map(|m| m.namespace().to_owned()).collect();
    let config = config(client, &mut warnings).await;
    let mut scale_kinds = scope.scale_kinds;
    scale_kinds.extend(accepted_kinds(&managers));
    let missing = matches!(config, ConfigRead::Missing);
    let (mut settings, budget) = settings(config.found(), scope.system_namespace, scale_kinds, &mut warnings);
    settings.missing = missing;
    let managed = match scope.namespace {
        None => namespaces_of_managers.len() as u64,
        Some(_) => managed_by_limit(&settings, &budget),
    };
    let excess_managers = excess_managers(&managers);
    managers.retain(|m| scope.name.is_none_or(|n| n == m.name()));
    let needs_pods = |manager: &Manager| manager.spec.as_ref().is_ok_and(ValidSpec::needs_pods);
    let (mut pods, mut jobs) = if managers.iter().any(needs_pods) {
        tokio::join!(
            by_namespace(client, scope.namespace, "pods", facts::pod),
            by_namespace(client, scope.namespace, "jobs", facts::job)
        )
    } else {
        (ByNamespace::default(), ByNamespace::default())
    };
    pods.sort_by(|p| &p.name);
    jobs.sort_by(|j| &j.name);
    let namespaces = namespaces(client, scope.namespace, &mut warnings).await?;
    Ok(ClusterSnapshot {
        managers,
        excess_managers,
        namespaces,
        pods,
        jobs,
        settings,
        budget,
        managed,
        warnings,
    })
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

async fn namespaces(
    client: &Client,
    one: Option<&str>,
    warnings: &mut Vec<String>,
) -> Result<BTreeMap<String, coppice_lifecycle::facts::NamespaceFacts>> {
    let found = match one {
        Some(name) => namespace(client, name).await.map(|n| n.into_iter().collect()),
        None => list(&Api::<Namespace>::all(client.clone()), None).await,
    };
    let found: Vec<Namespace> = match found {
        Ok(found) => found,
        Err(error) if code(&error) == Some(403) => {
            warnings.push(format!(
                "{:#}; nothing can be said of what is in them",
                failed("namespaces cannot be read", &error)
            ));
            Vec::new()
        }
        Err(error) => return Err(failed("namespaces cannot be read", &error)),
    };
    let facts = found.into_iter().map(|object| facts::namespace(object, Timestamp::MAX));
    Ok(facts.map(|facts| (facts.name.clone(), facts)).collect())
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

/// Objects of one kind, decoded one by one: one that cannot be makes its kind unknown in its namespace and nowhere else, as for the
/// operator. Those that may not be read are unknown, not absent.
async fn by_namespace<K, F>(
    client: &Client,
    namespace: Option<&str>,
    what: &str,
    project: fn(K) -> F,
) -> ByNamespace<F>
where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope> + DeserializeOwned,
{
    let request = Request::new(K::url_path(&(), namespace));
    let mut all = ByNamespace::default();
    let add = |item: Value| {
        let text = |field| item["metadata"][field].as_str().unwrap_or_default().to_owned();
        let (namespace, name) = (text("namespace"), text("name"));
        match serde_json::from_value(item) {
            Ok(object) => all.add(&namespace, project(object)),
            Err(error) => {
                let why: String = error.to_string().chars().take(LONGEST_WHY).collect();
                let message =
                    format!("{what} are not known: {name} cannot be decoded ({why}); change or delete it");
                all.add_odd(&namespace, message);
            }
        }
    };
    let page = async |params: &ListParams| {
        client.request(request.list(params).map_err(kube::Error::BuildRequest)?).await
    };
    match each(ListParams::default(), page, add).await {
        Ok(()) => all,
        Err(error) => {
            let reason = if code(&error) == Some(403) { Reason::Forbidden } else { Reason::NotSynced };
            ByNamespace::unknown(reason, format!("{:#}", failed(&format!("{what} cannot be listed"), &error)))
        }
    }
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
async fn each<T: Clone>(
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

/// Further kinds that the operator scales: how it was installed cannot be seen here, but that it accepted a manager
/// which names them can.
fn accepted_kinds(managers: &[Manager]) -> Vec<ScaleKind> {
    let accepted = managers.iter().filter(|m| {
        let refused = m.status.next.as_ref().is_some_and(|n| n.reason == Reason::KindNotAllowed.as_str());
        m.meta.generation.is_some() && m.status.observed_generation == m.meta.generation && !refused
    });
    let policies = accepted.filter_map(|m| m.spec.as_ref().ok()).flat_map(ValidSpec::policies);
    let scale_downs = policies.filter_map(|policy| match &policy.action {
        PolicyAction::ScaleDown(what) => Some(what),
        PolicyAction::Delete { .. } | PolicyAction::Webhook(_) => None,
    });
    scale_downs
        .flat_map(|what| what.selectors.iter().flatten())
        .filter_map(|s| {
            Some(ScaleKind {
                api_version: s.api_version.clone()?,
                kind: s.kind.clone(),
                plural: String::new(),
            })
        })
        .collect()
}
