//! The snapshot of a cluster: of all of it, or of what its user may read.

use std::collections::{BTreeSet, VecDeque};

use anyhow::{Result, anyhow};
use coppice_api::names::{LABEL_TREE, TREE_QUOTA_NAME};
use k8s_openapi::api::core::v1::ResourceQuota;
use kube::api::{ApiResource, DynamicObject};
use kube::{Api, Client};
use serde_json::Value;

use super::{Subnamespace, TreeSnapshot};
use crate::args::Target;
use crate::connect::{code, failed};
use crate::live::list;

/// Where users may not list what is in all namespaces, it is read namespace by namespace from the one that is asked for.
///
/// # Errors
/// What cannot be read of that namespace, or of all of them if none is asked for.
pub(crate) async fn live(client: &Client, name: Option<&str>) -> Result<TreeSnapshot> {
    let mut snapshot = TreeSnapshot::default();
    let trees = ApiResource::erase::<coppice_api::NamespaceTree>(&());
    let trees = list(&Api::<DynamicObject>::all_with(client.clone(), &trees), None).await;
    match trees {
        Ok(found) => add_all(&mut snapshot, "NamespaceTree", found)?,
        Err(error) if name.is_some() && code(&error) == Some(403) => {}
        Err(error) => return Err(advised("the NamespaceTrees cannot be listed", &error, name)),
    }
    let all = list(&subnamespaces(client, None), None).await;
    let quotas = list(&Api::<ResourceQuota>::all(client.clone()), Some(LABEL_TREE)).await;
    match (all, quotas) {
        (Ok(found), Ok(quotas)) => {
            add_all(&mut snapshot, "Subnamespace", found)?;
            for quota in quotas {
                snapshot.add_quota(&serde_json::to_value(quota)?);
            }
        }
        (Err(error), _) | (_, Err(error)) => match name {
            Some(name) if code(&error) == Some(403) => walk(client, name, &mut snapshot).await?,
            _ => return Err(advised("the namespaces of trees cannot be listed", &error, name)),
        },
    }
    Ok(snapshot)
}

fn advised(what: &str, error: &kube::Error, name: Option<&str>) -> anyhow::Error {
    let advice = match code(error) {
        Some(404) => ": trees are a component of their own, which is not installed (see docs/operations.md)",
        Some(403) if name.is_none() => {
            ": name the tree or the namespace that you administer: coppice tree NAMESPACE"
        }
        _ => "",
    };
    failed(&format!("{what}{advice}"), error)
}

/// Reads a namespace, and those below it as far as they may be read.
async fn walk(client: &Client, top: &str, snapshot: &mut TreeSnapshot) -> Result<()> {
    let root = snapshot.trees.iter().find(|tree| tree.name() == top);
    let root = root.and_then(|tree| tree.spec.as_ref().ok()).map_or(top, |spec| &spec.root).to_owned();
    let (mut waiting, mut seen) = (VecDeque::from([root.clone()]), BTreeSet::new());
    while let Some(namespace) = waiting.pop_front() {
        if !seen.insert(namespace.clone()) {
            continue;
        }
        let children = match list(&subnamespaces(client, Some(&namespace)), None).await {
            Ok(children) => children,
            Err(error) => {
                let error = failed(&format!("what is below namespace {namespace} cannot be read"), &error);
                if namespace == root {
                    return Err(error);
                }
                snapshot.warnings.push(format!("{error:#}"));
                Vec::new()
            }
        };
        waiting.extend(children.iter().filter_map(|child| child.metadata.name.clone()));
        add_all(snapshot, "Subnamespace", children)?;
        match Api::<ResourceQuota>::namespaced(client.clone(), &namespace).get_opt(TREE_QUOTA_NAME).await {
            Ok(Some(quota)) => snapshot.add_quota(&serde_json::to_value(quota)?),
            Ok(None) => {}
            Err(error) => {
                let error = failed(&format!("the quota of namespace {namespace} cannot be read"), &error);
                snapshot.warnings.push(format!("{error:#}"));
            }
        }
    }
    Ok(())
}

/// One Subnamespace, if there is such a one.
pub(crate) async fn subnamespace(client: &Client, target: &Target) -> Result<Option<Subnamespace>> {
    let found = subnamespaces(client, Some(&target.namespace)).get_opt(&target.name).await;
    let found = found.map_err(|error| failed(&format!("Subnamespace {target} cannot be read"), &error))?;
    let Some(found) = found else { return Ok(None) };
    let object = Subnamespace::from_json(serde_json::to_value(found)?);
    object.map(Some).map_err(|error| anyhow!("Subnamespace {target} cannot be understood: {error}"))
}

/// Those in a namespace, or all.
pub(crate) fn subnamespaces(client: &Client, namespace: Option<&str>) -> Api<DynamicObject> {
    let resource = ApiResource::erase::<coppice_api::Subnamespace>(&());
    match namespace {
        Some(namespace) => Api::namespaced_with(client.clone(), namespace, &resource),
        None => Api::all_with(client.clone(), &resource),
    }
}

fn add_all(snapshot: &mut TreeSnapshot, kind: &str, found: Vec<DynamicObject>) -> Result<()> {
    for object in found {
        let object: Value = serde_json::to_value(object)?;
        snapshot.add_own(kind, object)?;
    }
    Ok(())
}
