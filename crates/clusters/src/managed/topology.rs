//! What makes a `Cluster` of Cluster API with a topology (`cluster.x-k8s.io/v1beta2`).

#![allow(clippy::unnecessary_wraps, reason = "extenders may fail")]

use std::collections::{BTreeMap, BTreeSet};

use coppice_api::Reason;
use coppice_clusters_api::{CapiTopology, ClassVariables, ManagedClusterSpec, WorkerPool};
use serde_json::{Value, json};

use super::{Extender, Failure, Settings, at, later, object, texts};

/// In this order.
pub const EXTENDERS: [Extender; 6] = [
    ("class", class),
    ("networks", networks),
    ("version", version),
    ("controlPlane", control_plane),
    ("workers", workers),
    ("variables", variables),
];

/// By these the autoscaler of Cluster API knows how many machines there may be.
const MIN_SIZE: &str = "cluster.x-k8s.io/cluster-api-autoscaler-node-group-min-size";
const MAX_SIZE: &str = "cluster.x-k8s.io/cluster-api-autoscaler-node-group-max-size";
/// The longest name of a `MachineDeployment`, which is the value of a label, too.
const LONGEST_NAME: usize = 63;
/// So many replicas has a control plane that survives a failure.
const REPLICAS: u32 = 3;

fn class(spec: &ManagedClusterSpec, _: &Value, _: &Settings) -> Result<Value, Failure> {
    let CapiTopology { class, class_namespace, .. } = topology(spec)?;
    let class_ref = object([("name", json!(class)), ("namespace", json!(class_namespace))]);
    Ok(json!({"spec": {"topology": {"classRef": class_ref}}}))
}

fn networks(spec: &ManagedClusterSpec, _: &Value, _: &Settings) -> Result<Value, Failure> {
    let blocks =
        |prefix: Option<&String>| prefix.map_or(Value::Null, |prefix| json!({"cidrBlocks": [prefix]}));
    let Some(networks) = &spec.networks else { return Ok(json!({})) };
    let network =
        object([("pods", blocks(networks.pods.as_ref())), ("services", blocks(networks.services.as_ref()))]);
    let is_empty = network.as_object().is_some_and(serde_json::Map::is_empty);
    Ok(if is_empty { json!({}) } else { json!({"spec": {"clusterNetwork": network}}) })
}

fn version(spec: &ManagedClusterSpec, live: &Value, _: &Settings) -> Result<Value, Failure> {
    let has = at(live, "/spec/topology/version").as_str().unwrap_or_default();
    let version = later(&format!("v{}", spec.version), has);
    Ok(json!({"spec": {"topology": {"version": version}}}))
}

fn control_plane(spec: &ManagedClusterSpec, _: &Value, _: &Settings) -> Result<Value, Failure> {
    // Without it the field is not ours: some control planes have no replicas.
    let survives = spec
        .high_availability
        .map(|_| json!({"spec": {"topology": {"controlPlane": {"replicas": REPLICAS}}}}));
    Ok(survives.unwrap_or_else(|| json!({})))
}

fn workers(spec: &ManagedClusterSpec, _: &Value, _: &Settings) -> Result<Value, Failure> {
    let topology = topology(spec)?;
    let mut all = Vec::new();
    for pool in &spec.workers {
        let overrides = overrides(topology, pool)?;
        for (zone, min, max) in shares(pool) {
            all.push(deployment(topology, pool, &overrides, (zone, min, max)));
        }
    }
    let mut names = BTreeSet::new();
    for name in all.iter().filter_map(|one| one["name"].as_str()) {
        let wrong = if !names.insert(name) {
            format!(
                "write another name for one of the pools: two of their zones make the name {name}, and one of them would be dropped"
            )
        } else if name.len() > LONGEST_NAME {
            format!(
                "write a shorter name for the pool with the zone that makes the name {name}, or leave that out: Cluster API takes {LONGEST_NAME} characters at most"
            )
        } else {
            continue;
        };
        return Err(Failure::permanent(Reason::InvalidSpec, format!("spec.workers: {wrong}")));
    }
    Ok(if all.is_empty() {
        json!({})
    } else {
        json!({"spec": {"topology": {"workers": {"machineDeployments": all}}}})
    })
}

/// How many workers of a pool are in which zone: as many in each, and the first ones have what is left.
fn shares(pool: &WorkerPool) -> Vec<(Option<&str>, u32, u32)> {
    let count = u32::try_from(pool.zones.len()).unwrap_or(u32::MAX);
    if count == 0 {
        return vec![(None, pool.min, pool.max)];
    }
    let share = |of: u32, at: u32| of / count + u32::from(at < of % count);
    let zones = (0..count).zip(&pool.zones);
    zones.map(|(at, zone)| (Some(zone.as_str()), share(pool.min, at), share(pool.max, at))).collect()
}

/// The name of the workers of a pool in a zone, with what Cluster API takes in names: lower-case letters, digits, '-', and dots between them.
fn name_in(pool: &str, zone: &str) -> String {
    let zone = zone.to_ascii_lowercase().replace(['_', '/'], "-");
    let parts = zone.split('.').map(|part| part.trim_matches('-')).filter(|part| !part.is_empty());
    format!("{pool}-{}", parts.collect::<Vec<_>>().join("."))
}

fn deployment(
    topology: &CapiTopology,
    pool: &WorkerPool,
    overrides: &[Value],
    (zone, min, max): (Option<&str>, u32, u32),
) -> Value {
    let name = zone.map_or_else(|| pool.name.clone(), |zone| name_in(&pool.name, zone));
    let mut annotations = pool.annotations.clone();
    let mut replicas = json!(min);
    if min != max {
        annotations.insert(MIN_SIZE.to_owned(), min.to_string());
        annotations.insert(MAX_SIZE.to_owned(), max.to_string());
        replicas = Value::Null;
    }
    let metadata = object([("labels", texts(&pool.labels)), ("annotations", texts(&annotations))]);
    let is_plain = metadata.as_object().is_some_and(serde_json::Map::is_empty);
    object([
        ("name", json!(name)),
        ("class", json!(topology.worker_class)),
        ("replicas", replicas),
        ("failureDomain", json!(zone)),
        ("metadata", if is_plain { Value::Null } else { metadata }),
        ("variables", if overrides.is_empty() { Value::Null } else { json!({"overrides": overrides}) }),
    ])
}

/// The variables of a pool.
fn overrides(topology: &CapiTopology, pool: &WorkerPool) -> Result<Vec<Value>, Failure> {
    let names = topology.variables.clone().unwrap_or_default();
    let taints = if pool.taints.is_empty() { Value::Null } else { json!(pool.taints) };
    let all = [
        ("machine", &names.machine, json!(pool.machine)),
        ("image", &names.image, json!(pool.image)),
        ("volume", &names.volume, json!(pool.volume)),
        ("taints", &names.taints, taints),
    ];
    let place = format!("spec.workers[{}].", pool.name);
    given(topology, &place, all)
}

fn variables(spec: &ManagedClusterSpec, _: &Value, _: &Settings) -> Result<Value, Failure> {
    let topology = topology(spec)?;
    let ClassVariables { region, nodes, oidc, audit_policy, administrators, .. } =
        topology.variables.clone().unwrap_or_default();
    let network = spec.networks.as_ref().and_then(|networks| networks.nodes.as_ref());
    let users = if spec.administrators.is_empty() { Value::Null } else { json!(spec.administrators) };
    let all = [
        ("region", &region, json!(spec.region)),
        ("nodes", &nodes, json!(network)),
        ("oidc", &oidc, json!(spec.oidc)),
        ("auditPolicy", &audit_policy, json!(spec.audit_policy)),
        ("administrators", &administrators, users),
    ];
    let all = given(topology, "spec.", all)?;
    Ok(if all.is_empty() { json!({}) } else { json!({"spec": {"topology": {"variables": all}}}) })
}

/// The variables that take what is given.
fn given<const N: usize>(
    topology: &CapiTopology,
    place: &str,
    all: [(&str, &Option<String>, Value); N],
) -> Result<Vec<Value>, Failure> {
    let (mut given, mut fields) = (Vec::new(), BTreeMap::new());
    for (field, name, value) in all.into_iter().filter(|(.., value)| !value.is_null()) {
        let Some(name) = name else {
            // The one field whose variable has another place.
            let of = if field == "nodes" { "networks.nodes" } else { field };
            let class = &topology.class;
            return Err(Failure::permanent(
                Reason::InvalidSpec,
                format!(
                    "{place}{of}: write into spec.provider.clusterAPI.variables.{field} which variable of the ClusterClass {class} takes it, or leave it out"
                ),
            ));
        };
        if let Some(other) = fields.insert(name, field) {
            return Err(Failure::permanent(
                Reason::InvalidSpec,
                format!(
                    "spec.provider.clusterAPI.variables: write another variable for {field} or for {other}: {name} has one value"
                ),
            ));
        }
        given.push(json!({"name": name, "value": value}));
    }
    Ok(given)
}

fn topology(spec: &ManagedClusterSpec) -> Result<&CapiTopology, Failure> {
    let none = || Failure::permanent(Reason::InvalidSpec, "spec.provider: write clusterAPI or gardener");
    spec.provider.cluster_api.as_ref().ok_or_else(none)
}
