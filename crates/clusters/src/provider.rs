//! What a `ClusterProvider` allows, and its status.

use coppice_api::Reason;
use coppice_api::condition::{self, ConditionState, READY};
use coppice_api::selector::Labels;
use coppice_clusters_api::{Allowed, ClusterAccessSpec, ClusterProviderSpec, ClusterProviderStatus, Issuer};
use jiff::Timestamp;

use crate::largest::exceeded;

/// What a `ClusterProvider` says of the `ClusterAccess` that names it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Permission {
    /// In this reconcile nobody has looked yet.
    #[default]
    Unread,
    /// It allows what is asked for.
    Allowed,
    /// It does not, or is not there: why, and what to write instead.
    Refused(Reason, String),
}

/// Whether the labels of a namespace have to be known.
pub fn needs_labels(provider: &ClusterProviderSpec) -> bool {
    provider.allow.iter().any(|allowed| allowed.namespace_selector.is_some())
}

/// Whether a `ClusterProvider` of that name allows what a `ClusterAccess` in that namespace asks for: one of its entries has to allow
/// all of it.
pub fn permission(
    (name, provider): (&str, &ClusterProviderSpec),
    (namespace, labels): (&str, &Labels),
    access: &ClusterAccessSpec,
) -> Permission {
    let mut why = None;
    for allowed in provider.allow.iter().filter(|allowed| selects(allowed, namespace, labels)) {
        let Some(beyond) = beyond(allowed, access) else { return Permission::Allowed };
        why = why.or(Some(beyond));
    }
    let message = why.map_or_else(
        || {
            format!(
                "ClusterProvider {name} does not allow the namespace {namespace}: ask the platform for an entry in its spec.allow"
            )
        },
        |beyond| format!("{beyond}: ClusterProvider {name} allows no more to this namespace"),
    );
    Permission::Refused(Reason::NotAllowed, message)
}

fn selects(allowed: &Allowed, namespace: &str, labels: &Labels) -> bool {
    // An empty selector selects nothing: the API server refuses it, and nobody is allowed by a mistake.
    let by_labels = allowed.namespace_selector.as_ref();
    by_labels.is_some_and(|selector| !selector.is_empty() && selector.matches(labels))
        || allowed.namespaces.iter().any(|name| name == namespace)
}

/// What of a `ClusterAccess` an entry does not allow.
fn beyond(allowed: &Allowed, access: &ClusterAccessSpec) -> Option<String> {
    if !allowed.issuers.contains(&access.issuer) {
        let issuers: Vec<&str> = allowed.issuers.iter().copied().map(Issuer::as_str).collect();
        return Some(format!(
            "spec.issuer: write {} into a new ClusterAccess, since it cannot be changed",
            issuers.join(" or ")
        ));
    }
    if access.ttl > allowed.max_ttl {
        return Some(format!("spec.ttl: write at most {}", allowed.max_ttl));
    }
    exceeded(&access.rights, &allowed.rights)
}

/// The status of a `ClusterProvider`: how many name it, how many of them wait for its budget, and whether its kubeconfig can be used, or
/// else why not.
pub fn provider_status(
    (before, generation): (&ClusterProviderStatus, i64),
    (accesses, waiting): (i64, i64),
    usable: Result<(), (Reason, String)>,
    now: Timestamp,
) -> ClusterProviderStatus {
    let mut status = before.clone();
    status.observed_generation = Some(generation);
    (status.accesses, status.waiting) = (Some(accesses), Some(waiting));
    let (is, reason, message) = match usable {
        Ok(()) => ("True", Reason::KubeconfigUsable, "The kubeconfig is there and can be used.".to_owned()),
        Err((reason, message)) => ("False", reason, message),
    };
    let state = ConditionState { status: is, reason: reason.to_string(), message };
    condition::set(&mut status.conditions, READY, state, generation, now);
    status
}

#[cfg(test)]
#[path = "provider_tests.rs"]
mod tests;
