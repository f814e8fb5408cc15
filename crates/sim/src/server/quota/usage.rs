//! What one object uses of a quota, as Kubernetes' evaluators count it (`pkg/quota/v1/evaluator/core`).
//!
//! Not evaluated: scopes, resources of a whole pod (`spec.resources`), and resizes of running pods.

use std::collections::BTreeMap;

use coppice_quantity::Quantity;
use jiff::Timestamp;
use serde::Deserialize as _;
use serde_json::Value;

use super::super::meta;
use super::pods;

/// An amount of each resource.
pub(in crate::server) type Amounts = BTreeMap<String, Quantity>;

/// How the name of a resource begins that counts objects.
const COUNT: &str = "count/";
/// What claims use, in all and of their storage class.
const OF_CLAIMS: [&str; 2] = ["persistentvolumeclaims", "requests.storage"];
/// What separates a storage class from what claims use of it.
const STORAGE_CLASS: &str = ".storageclass.storage.k8s.io/";
/// How claims were given a class before there was a field for it.
const CLASS_ANNOTATION: &str = "volume.beta.kubernetes.io/storage-class";

/// Group and plural of the kind whose objects use a resource; none if no objects do.
pub(in crate::server) fn used_by(resource: &str) -> Option<(&str, &str)> {
    if let Some(counted) = resource.strip_prefix(COUNT) {
        let (plural, group) = counted.split_once('.').unwrap_or((counted, ""));
        return Some((group, plural));
    }
    let of_claims = |suffix: &&str| {
        let class = resource.strip_suffix(*suffix);
        class.is_some_and(|class| class.is_empty() || class.ends_with(STORAGE_CLASS))
    };
    match resource {
        // These are counted under their plain names, too.
        "configmaps" | "replicationcontrollers" | "resourcequotas" | "secrets" => Some(("", resource)),
        "services" | "services.loadbalancers" | "services.nodeports" => Some(("", "services")),
        _ if OF_CLAIMS.iter().any(of_claims) => Some(("", "persistentvolumeclaims")),
        _ if pods::use_resource(resource) => Some(("", "pods")),
        _ => None,
    }
}

/// What an object of a kind, by group and plural, uses.
pub(in crate::server) fn usage((group, plural): (&str, &str), object: &Value, now: Timestamp) -> Amounts {
    let one = Quantity::from(1_u32);
    let dot = if group.is_empty() { "" } else { "." };
    let mut used = Amounts::from([(format!("{COUNT}{plural}{dot}{group}"), one)]);
    match (group, plural) {
        ("", "configmaps" | "replicationcontrollers" | "resourcequotas" | "secrets") => {
            used.insert(plural.to_owned(), one);
        }
        ("", "persistentvolumeclaims") => claim(object, &mut used),
        ("", "pods") if pods::count(object, now) => used.extend(pods::usage(object)),
        ("", "services") => service(object, &mut used),
        _ => {}
    }
    used
}

fn claim(claim: &Value, used: &mut Amounts) {
    let class = meta::annotation(claim, CLASS_ANNOTATION)
        .or_else(|| claim["spec"]["storageClassName"].as_str())
        .filter(|class| !class.is_empty());
    let requested = amounts(&claim["spec"]["resources"]["requests"]).get("storage").copied();
    for (name, amount) in OF_CLAIMS.into_iter().zip([Some(Quantity::from(1_u32)), requested]) {
        let Some(amount) = amount else { continue };
        if let Some(class) = class {
            used.insert(format!("{class}{STORAGE_CLASS}{name}"), amount);
        }
        used.insert(name.to_owned(), amount);
    }
}

fn service(service: &Value, used: &mut Amounts) {
    let spec = &service["spec"];
    let ports = || spec["ports"].as_array().into_iter().flatten();
    let number = |count: usize| Quantity::from(u32::try_from(count).unwrap_or(u32::MAX));
    let (balancers, node_ports) = match spec["type"].as_str() {
        Some("NodePort") => (0, ports().count()),
        Some("LoadBalancer") if spec["allocateLoadBalancerNodePorts"] == false => {
            (1, ports().filter(|port| port["nodePort"].as_u64().is_some_and(|port| port != 0)).count())
        }
        Some("LoadBalancer") => (1, ports().count()),
        _ => (0, 0),
    };
    used.insert("services".to_owned(), Quantity::from(1_u32));
    used.insert("services.loadbalancers".to_owned(), number(balancers));
    used.insert("services.nodeports".to_owned(), number(node_ports));
}

/// A list of resources.
pub(in crate::server) fn amounts(list: &Value) -> Amounts {
    let each = list.as_object().into_iter().flatten();
    each.filter_map(|(name, amount)| Some((name.clone(), Quantity::deserialize(amount).ok()?))).collect()
}

/// Adds amounts to others.
pub(in crate::server) fn add(sum: &mut Amounts, more: &Amounts) {
    for (name, amount) in more {
        let before = sum.get(name).copied().unwrap_or_default();
        sum.insert(name.clone(), before.checked_add(*amount).unwrap_or(before));
    }
}
