//! What pods use of a quota.

use std::collections::{BTreeMap, BTreeSet};

use coppice_quantity::Quantity;
use jiff::Timestamp;
use serde_json::Value;

use super::super::meta;
use super::usage::{Amounts, add, amounts};

/// Resources that are counted by requests and by limits.
const COMPUTE: [&str; 3] = ["cpu", "memory", "ephemeral-storage"];
/// Resources that every container has to state of a pod that a quota counts by them.
const REQUIRED: [&str; 6] =
    ["cpu", "limits.cpu", "limits.memory", "memory", "requests.cpu", "requests.memory"];
const HUGE_PAGES: &str = "hugepages-";

/// Whether pods use a resource of a quota, their number as objects apart.
pub(super) fn use_resource(resource: &str) -> bool {
    let requested = resource.strip_prefix("requests.");
    let compute = requested.or_else(|| resource.strip_prefix("limits.")).unwrap_or(resource);
    resource == "pods"
        || COMPUTE.contains(&compute)
        || requested.unwrap_or(resource).starts_with(HUGE_PAGES)
        || requested.is_some_and(is_extended)
}

fn is_extended(resource: &str) -> bool {
    resource.contains('/') && !resource.contains("kubernetes.io/")
}

/// Whether a pod uses more than its place in storage: it has not ended, and its deletion is not overdue.
pub(super) fn count(pod: &Value, now: Timestamp) -> bool {
    let deletion: Option<Timestamp> = meta::text(pod, "deletionTimestamp").parse().ok();
    let grace = pod["metadata"]["deletionGracePeriodSeconds"].as_i64();
    let overdue = deletion.zip(grace).is_some_and(|(at, grace)| now > meta::later(at, grace));
    !overdue && !matches!(pod["status"]["phase"].as_str(), Some("Succeeded" | "Failed"))
}

/// What a pod uses that has not ended.
pub(super) fn usage(pod: &Value) -> Amounts {
    used(&sum(&pod["spec"], "requests"), &sum(&pod["spec"], "limits"))
}

/// What follows from requests and limits.
fn used(requests: &Amounts, limits: &Amounts) -> Amounts {
    let mut used = Amounts::from([("pods".to_owned(), Quantity::from(1_u32))]);
    for (name, amount) in requests {
        let plain = COMPUTE.contains(&name.as_str()) || name.starts_with(HUGE_PAGES);
        if plain {
            used.insert(name.clone(), *amount);
        }
        if plain || is_extended(name) {
            used.insert(format!("requests.{name}"), *amount);
        }
    }
    for (name, amount) in limits.iter().filter(|(name, _)| COMPUTE.contains(&name.as_str())) {
        used.insert(format!("limits.{name}"), *amount);
    }
    used
}

/// The requests or the limits of a pod: the sum of its containers or, where that is more, the most while it starts, and its overhead.
fn sum(spec: &Value, list: &str) -> Amounts {
    let of = |container: &Value| amounts(&container["resources"][list]);
    let (mut sum, mut sidecars, mut most) = (Amounts::new(), Amounts::new(), Amounts::new());
    for container in containers(spec, "containers") {
        add(&mut sum, &of(container));
    }
    for container in containers(spec, "initContainers") {
        let mut at_once = of(container);
        if container["restartPolicy"] == "Always" {
            add(&mut sum, &at_once);
            add(&mut sidecars, &at_once);
            at_once.clone_from(&sidecars);
        } else {
            add(&mut at_once, &sidecars);
        }
        raise(&mut most, &at_once);
    }
    raise(&mut sum, &most);
    let mut overhead = amounts(&spec["overhead"]);
    // There are no limits but those that are stated.
    overhead.retain(|name, _| list == "requests" || sum.contains_key(name));
    add(&mut sum, &overhead);
    sum
}

fn containers<'a>(spec: &'a Value, list: &str) -> impl Iterator<Item = &'a Value> + use<'a> {
    spec[list].as_array().into_iter().flatten()
}

fn raise(most: &mut Amounts, others: &Amounts) {
    for (name, amount) in others {
        if most.get(name).is_none_or(|before| before < amount) {
            most.insert(name.clone(), *amount);
        }
    }
}

/// What the containers of a pod have to state of resources, and do not, in the words of the API server; none if they state it all.
pub(super) fn unstated(pod: &Value, resources: &[&str]) -> Option<String> {
    let mut unstated: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    let spec = &pod["spec"];
    for container in containers(spec, "containers").chain(containers(spec, "initContainers")) {
        let (requests, limits) = (&container["resources"]["requests"], &container["resources"]["limits"]);
        let stated = used(&amounts(requests), &amounts(limits));
        for name in REQUIRED.into_iter().filter(|name| resources.contains(name)) {
            if !stated.contains_key(name) {
                unstated.entry(name).or_default().insert(container["name"].as_str().unwrap_or_default());
            }
        }
    }
    let each = unstated.into_iter().map(|(name, containers)| {
        let containers: Vec<&str> = containers.into_iter().collect();
        format!("{name} for: {}", containers.join(","))
    });
    let each: Vec<String> = each.collect();
    (!each.is_empty()).then(|| format!("must specify {}", each.join("; ")))
}

/// The quality of service of a pod, by what its containers request of cpu and memory, and limit.
pub(in crate::server) fn quality(pod: &Value) -> &'static str {
    let (mut requests, mut limits, mut all_limited) = (Amounts::new(), Amounts::new(), true);
    let spec = &pod["spec"];
    for container in containers(spec, "containers").chain(containers(spec, "initContainers")) {
        let of = |list: &str| {
            let mut own = amounts(&container["resources"][list]);
            own.retain(|name, amount| matches!(&**name, "cpu" | "memory") && *amount > Quantity::ZERO);
            own
        };
        let limited = of("limits");
        all_limited &= limited.len() == 2;
        add(&mut requests, &of("requests"));
        add(&mut limits, &limited);
    }
    if requests.is_empty() && limits.is_empty() {
        "BestEffort"
    } else if all_limited && requests == limits {
        "Guaranteed"
    } else {
        "Burstable"
    }
}
