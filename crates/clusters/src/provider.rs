//! What a `ClusterProvider` allows, and its status.

use std::collections::BTreeSet;

use coppice_api::Reason;
use coppice_api::condition::{self, ConditionState, READY};
use coppice_api::selector::Labels;
use coppice_clusters_api::cluster_provider::MAX_USED_BY;
use coppice_clusters_api::{
    Allowed, ClusterAccessSpec, ClusterAccessStatus, ClusterProviderSpec, ClusterProviderStatus, Issuer,
    Rights,
};
use jiff::{SignedDuration, Timestamp};

use crate::certificate::TOLERANCE;
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

/// What a `ClusterProvider` says of what a target has by now for a `ClusterAccess` that names it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum GrantVerdict {
    /// It allowed that when somebody looked, and has not changed since; or there is nothing, or nobody, to ask about.
    #[default]
    Settled,
    /// It may have changed since.
    Unread,
    /// It allows that.
    Allowed,
    /// Which rights the target has is not known: it has to be asked.
    Unknown,
    /// It does not allow the credential: it is valid for too long, or its issuer is none that may be.
    CredentialNotAllowed,
    /// It does not allow the rights, or not to this namespace any more.
    RightsNotAllowed,
}

/// Whether the labels of a namespace have to be known.
pub fn needs_labels(provider: &ClusterProviderSpec) -> bool {
    provider.allow.iter().any(|allowed| allowed.namespace_selector.is_some())
}

/// Whether a `ClusterProvider` of that name allows what a `ClusterAccess` in that namespace asks for: one of its entries has to allow
/// all of it. What was issued before and is valid until then has these rights, too, and is bounded as what is asked for.
pub fn permission(
    (name, provider): (&str, &ClusterProviderSpec),
    (namespace, labels): (&str, &Labels),
    access: &ClusterAccessSpec,
    (valid_until, now): (Option<Timestamp>, Timestamp),
) -> Permission {
    if let Some(message) = of_another_kind(name, provider, access) {
        return Permission::Refused(Reason::NotAllowed, message);
    }
    // The rights of Gardener's issuers are the same with each credential.
    let valid_until = valid_until.filter(|_| !access.issuer.is_of_garden());
    let (mut why, mut outlasting) = (None, None);
    for allowed in provider.allow.iter().filter(|allowed| selects(allowed, namespace, labels)) {
        match (beyond(allowed, access), valid_until.and_then(|until| outlasts(allowed, until, now))) {
            (None, None) if access.forget_after < provider.min_forget_after => {
                let least = provider.min_forget_after;
                let message = format!(
                    "spec.forgetAfter: write at least {least}, as minForgetAfter of ClusterProvider {name} says"
                );
                return Permission::Refused(Reason::NotAllowed, message);
            }
            (None, None) => return Permission::Allowed,
            (None, outlasts) => outlasting = outlasting.or(outlasts),
            (beyond, _) => why = why.or(beyond),
        }
    }
    let message = outlasting.or(why).map_or_else(
        || {
            format!(
                "ClusterProvider {name} does not allow the namespace {namespace}: ask the platform for an entry in its spec.allow"
            )
        },
        |beyond| format!("{beyond}: ClusterProvider {name} allows no more to this namespace"),
    );
    Permission::Refused(Reason::NotAllowed, message)
}

/// Whether a `ClusterProvider` of that name allows what a target has by now: these rights, and what was issued and is valid until then. One of
/// its entries has to allow all of it. What Gardener has issued has rights of its own and cannot be revoked, and where a provider is by now
/// one of another kind its kubeconfig does not lead to the target: nothing is taken away there.
pub fn grant_verdict(
    (name, provider): (&str, &ClusterProviderSpec),
    (namespace, labels): (&str, &Labels),
    access: &ClusterAccessSpec,
    rights: &[&Rights],
    (valid_until, now): (Option<Timestamp>, Timestamp),
) -> GrantVerdict {
    if access.issuer.is_of_garden() || of_another_kind(name, provider, access).is_some() {
        return GrantVerdict::Allowed;
    }
    let covers = |allowed: &&Allowed| rights.iter().all(|rights| exceeded(rights, &allowed.rights).is_none());
    let selected = provider.allow.iter().filter(|allowed| selects(allowed, namespace, labels));
    let covering: Vec<&Allowed> = selected.filter(covers).collect();
    if covering.is_empty() && !rights.is_empty() {
        return GrantVerdict::RightsNotAllowed;
    }
    let is_allowed = |allowed: &&Allowed| {
        allowed.issuers.contains(&access.issuer)
            && valid_until.is_none_or(|until| outlasts(allowed, until, now).is_none())
    };
    if covering.iter().any(is_allowed) { GrantVerdict::Allowed } else { GrantVerdict::CredentialNotAllowed }
}

/// Why a provider of a garden is none of a cluster, nor the other way round.
fn of_another_kind(name: &str, provider: &ClusterProviderSpec, access: &ClusterAccessSpec) -> Option<String> {
    match (provider.project.is_some(), access.cluster.gardener.is_some()) {
        (true, false) => Some(format!(
            "spec.cluster.provider: ClusterProvider {name} is for Shoots of a project of Gardener: write gardener, with this provider and a shoot, into \
             a new ClusterAccess"
        )),
        (false, true) => Some(format!(
            "{}: ClusterProvider {name} has no project of Gardener: write the name of another one into a new ClusterAccess, or ask the \
             platform for its spec.project",
            access.cluster.provider_field()
        )),
        _ => None,
    }
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

/// Until when the last credential is valid that was issued, also of those that were replaced and cannot be revoked; none if there is none.
pub fn valid_until(status: &ClusterAccessStatus) -> Option<Timestamp> {
    let left_by_crash = status.intent.as_ref().and_then(|intent| intent.written_until);
    let superseded = status.superseded_certificates.iter().map(|certificate| certificate.not_after);
    superseded.chain(status.not_after).chain(left_by_crash).max()
}

/// What was issued before by another entry, and is valid for longer than this one allows.
fn outlasts(allowed: &Allowed, valid_until: Timestamp, now: Timestamp) -> Option<String> {
    let longest = SignedDuration::from_secs(allowed.max_ttl.as_secs_i64()) + TOLERANCE;
    (valid_until.duration_since(now) > longest).then(|| {
        format!(
            "spec.rights: create another ClusterAccess with these, since what was issued for this one is valid until {valid_until}, and with these rights \
             it may be for {} at most",
            allowed.max_ttl
        )
    })
}

/// Who uses a `ClusterProvider`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// How many `ClusterAccess`es name it.
    pub accesses: i64,
    /// The first of them, as NAMESPACE/NAME.
    pub used_by: BTreeSet<String>,
    /// How many `ManagedCluster`s name it.
    pub managed_clusters: i64,
    /// The first of these.
    pub used_by_clusters: BTreeSet<String>,
    /// How many wait for its budget.
    pub waiting: i64,
}

impl Usage {
    /// Counts a `ClusterAccess` that names it.
    pub fn add(&mut self, namespace: &str, name: &str) {
        self.accesses += 1;
        keep_first(&mut self.used_by, namespace, name);
    }

    /// Counts a `ManagedCluster` that names it.
    pub fn add_cluster(&mut self, namespace: &str, name: &str) {
        self.managed_clusters += 1;
        keep_first(&mut self.used_by_clusters, namespace, name);
    }
}

fn keep_first(first: &mut BTreeSet<String>, namespace: &str, name: &str) {
    first.insert(format!("{namespace}/{name}"));
    if first.len() > MAX_USED_BY {
        first.pop_last();
    }
}

/// The status of a `ClusterProvider`: who uses it, and whether its kubeconfig can be used, or else why not.
pub fn provider_status(
    (before, generation): (&ClusterProviderStatus, i64),
    usage: Usage,
    usable: Result<(), (Reason, String)>,
    now: Timestamp,
) -> ClusterProviderStatus {
    let mut status = before.clone();
    status.observed_generation = Some(generation);
    (status.accesses, status.waiting) = (Some(usage.accesses), Some(usage.waiting));
    status.used_by = usage.used_by.into_iter().collect();
    status.managed_clusters = Some(usage.managed_clusters);
    status.used_by_clusters = usage.used_by_clusters.into_iter().collect();
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
