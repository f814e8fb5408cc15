//! What containers have to state where a quota limits it, and which LimitRanges state it for them.

use coppice_api::NamespaceTree;
use coppice_api::namespace_tree::PropagationMode;
use k8s_openapi::api::core::v1::LimitRange;
use kube::{Api, Client};

use super::NamespaceQuota;
use crate::args::Target;
use crate::live;

/// What every container has to state where a quota limits it, unless a `LimitRange` states it.
const STATED: [&str; 4] = ["cpu", "memory", "limits.cpu", "limits.memory"];

/// What of it a quota of these resources limits.
pub(crate) fn limited<'a>(resources: impl Iterator<Item = &'a str>) -> Vec<&'static str> {
    let names: Vec<&str> = resources.map(|name| name.strip_prefix("requests.").unwrap_or(name)).collect();
    STATED.into_iter().filter(|stated| names.contains(stated)).collect()
}

/// What of it none of these states for containers that do not. The API server completes what is left out when they are written.
pub(crate) fn missing(limited: &[&'static str], ranges: &[LimitRange]) -> Vec<&'static str> {
    limited.iter().copied().filter(|stated| !is_given(stated, ranges)).collect()
}

fn is_given(stated: &str, ranges: &[LimitRange]) -> bool {
    let mut items = ranges.iter().filter_map(|range| range.spec.as_ref()).flat_map(|spec| &spec.limits);
    items.any(|item| {
        let (key, given) = match stated.strip_prefix("limits.") {
            Some(key) => (key, &item.default),
            None => (stated, &item.default_request),
        };
        item.type_ == "Container" && given.as_ref().is_some_and(|given| given.contains_key(key))
    })
}

/// Which pods the API server refuses in a namespace that is created below one with this quota, and what to do; none where it refuses none,
/// or where this user may not read that.
pub(crate) async fn warning(client: &Client, target: &Target, quota: &NamespaceQuota) -> Option<String> {
    let Target { namespace: parent, name } = target;
    // What the namespace above is limited in, each one below it is.
    let limited = limited(quota.own.iter().map(|(resource, _)| resource.as_str()));
    if limited.is_empty() {
        return None;
    }
    let ranges = live::list(&Api::<LimitRange>::namespaced(client.clone(), parent), None).await.ok()?;
    let missing = missing(&limited, &ranges);
    let (pods, why) = if missing.is_empty() {
        let tree = Api::<NamespaceTree>::all(client.clone()).get_opt(&quota.tree).await.ok()??;
        if tree.spec.propagate.limit_ranges.mode == PropagationMode::Propagate {
            return None;
        }
        let mode = format!("spec.propagate.limitRanges.mode of NamespaceTree {}", quota.tree);
        (limited, format!("that of namespace {parent} is not copied ({mode})"))
    } else {
        (missing, format!("none in namespace {parent} does"))
    };
    Some(format!(
        "pods whose containers do not state {} are refused in {name}, unless a LimitRange there states it; {why}: state it in the pods, or \
         ask the platform for a LimitRange (coppice doctor says which)",
        pods.join(", ")
    ))
}
