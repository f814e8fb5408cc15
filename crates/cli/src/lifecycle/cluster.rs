//! The snapshot of a cluster.

use std::collections::BTreeMap;

use anyhow::Result;
use coppice_api::Reason;
use coppice_lifecycle::facts::NamespaceFacts;
use coppice_lifecycle::settings::ScaleKind;
use coppice_lifecycle::{PolicyAction, ValidSpec};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Namespace;
use kube::api::ListParams;
use kube::core::{NamespaceResourceScope, Request};
use kube::{Api, Client, Resource};
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::{
    Governed, JudgedManagers, LifecycleSnapshot, ManagerFilter, TreeObjects, UnknownManagers,
    excess_managers, managed_by_limit, own_managers, settings,
};
use crate::args::SourceArgs;
use crate::by_namespace::ByNamespace;
use crate::connect::{code, failed};
use crate::facts::{self, ClusterManager, Manager};
use crate::live;

/// Characters of the reason why an object cannot be decoded, which may quote what tenants wrote.
const LONGEST_WHY: usize = 200;

/// What the plans of the managers that are wanted depend on.
pub(super) async fn snapshot(
    client: &Client,
    wanted: ManagerFilter<'_>,
    source: &SourceArgs,
) -> Result<LifecycleSnapshot> {
    let mut warnings = Vec::new();
    let mut managers = live::managers(client, wanted.namespace, None).await?;
    let config = live::config(client, &mut warnings).await;
    let mut scale_kinds = source.scale_kinds.clone();
    scale_kinds.extend(accepted_kinds(&managers));
    let missing = matches!(config, live::ConfigRead::Missing);
    let (mut settings, budget) =
        settings(config.found(), &source.system_namespace, scale_kinds, &mut warnings);
    settings.missing = missing;
    let governed = governed(client, wanted, &mut warnings).await;
    let namespaces = namespaces(client, wanted.namespace, &mut warnings).await?;
    let own_managers = own_managers(&managers);
    // With all namespaces at hand they are counted afterwards.
    let managed = managed_by_limit(&settings, &budget);
    let excess_managers = excess_managers(&managers);
    managers.retain(|m| wanted.name.is_none_or(|n| n == m.name()));
    let needs_pods = |manager: &Manager| manager.spec.as_ref().is_ok_and(ValidSpec::needs_pods);
    let by_cluster_managers =
        governed.managers.as_ref().is_ok_and(|managers| managers.iter().any(ClusterManager::needs_pods));
    let needed = match wanted.judged {
        JudgedManagers::All => by_cluster_managers || managers.iter().any(needs_pods),
        JudgedManagers::Cluster { further_need_pods } => by_cluster_managers || further_need_pods,
    };
    let (mut pods, mut jobs) = if needed {
        tokio::join!(
            by_namespace(client, wanted.namespace, "pods", facts::pod),
            by_namespace(client, wanted.namespace, "jobs", facts::job)
        )
    } else {
        (ByNamespace::default(), ByNamespace::default())
    };
    pods.sort_by(|p| &p.name);
    jobs.sort_by(|j| &j.name);
    Ok(LifecycleSnapshot {
        managers,
        excess_managers,
        namespaces,
        pods,
        jobs,
        governed,
        settings,
        budget,
        own_managers,
        managed,
        census: None,
        refused_pods: BTreeMap::new(),
        trees: TreeObjects::default(),
        warnings,
    })
}

/// Cluster managers and records. Where one of them may not be read, what is done to namespaces cannot be decided here; what
/// the operator reports can still be shown.
async fn governed(client: &Client, wanted: ManagerFilter<'_>, warnings: &mut Vec<String>) -> Governed {
    let mut governed = Governed { managers: Ok(Vec::new()), records: BTreeMap::new() };
    let (managers, records) =
        tokio::join!(live::cluster_managers(client), live::records(client, wanted.namespace, None));
    if wanted.name.is_some() {
        // Of a manager only the limits matter.
        let governs = records.is_ok_and(|records| !records.is_empty());
        governed.managers = managers.map_err(|error| {
            let why = UnknownManagers::managers(error);
            if governs {
                warnings.push(format!("{why}; which of their limits bind managers here is not known"));
            }
            why
        });
        return governed;
    }
    match records {
        // Of another name there is none.
        Ok(records) => {
            governed.records = records.into_iter().map(|r| (r.namespace().to_owned(), r)).collect();
            governed.managers = managers.map_err(|error| {
                let why = UnknownManagers::managers(error);
                if !governed.records.is_empty() {
                    warnings.push(format!(
                        "{why}; of governed namespaces is shown what the operator last reported"
                    ));
                }
                why
            });
        }
        Err(error) => {
            let why = UnknownManagers::records(error);
            warnings.push(format!("{why}; what cluster managers do is not shown"));
            governed.managers = Err(why);
        }
    }
    governed
}

async fn namespaces(
    client: &Client,
    one: Option<&str>,
    warnings: &mut Vec<String>,
) -> Result<BTreeMap<String, NamespaceFacts>> {
    let found = match one {
        Some(name) => live::namespace(client, name).await.map(|n| n.into_iter().collect()),
        None => live::list(&Api::<Namespace>::all(client.clone()), None).await,
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
    match live::each(ListParams::default(), page, add).await {
        Ok(()) => all,
        Err(error) => {
            let reason = if code(&error) == Some(403) { Reason::Forbidden } else { Reason::NotSynced };
            ByNamespace::unknown(reason, format!("{:#}", failed(&format!("{what} cannot be listed"), &error)))
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
