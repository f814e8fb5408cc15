//! What the controllers share: what is watched, and the targets.

use std::borrow::Cow;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use coppice_clusters::kubeconfig::Unencrypted;
use coppice_clusters::{FoundCluster, ManagedFact};
use coppice_clusters_api::names::capi_kubeconfig;
use coppice_clusters_api::{ClusterProviderSpec, ClusterSource, GardenerShoot, Issuer, SecretKey};
use coppice_runtime::clock::Clock;
use coppice_runtime::collapse::Collapse;
use coppice_runtime::kind::Kind as _;
use coppice_runtime::store::Store;
use jiff::SignedDuration;

use crate::budgets::Budgets;
use crate::installation::Installation;
use crate::kinds::{Access, ClusterAccesses, ClusterProviders, ManagedClusters, OutputSecrets};
use crate::target::{MakeKey, Shoot};
use crate::targets::{Connect, Source, Targets};

/// What the controllers share. Clones share it, too.
#[derive(Clone)]
pub struct Shared {
    pub(crate) accesses: Store<ClusterAccesses>,
    pub(crate) outputs: Store<OutputSecrets>,
    pub(crate) providers: Providers,
    pub(crate) targets: Arc<Targets>,
    pub(crate) installation: Installation,
    /// How the keys of certificates are made; none: with the system's randomness.
    pub(crate) make_key: Option<MakeKey>,
    /// Whether a list of `ClusterAccess` has lacked much of what was known.
    accesses_lost: Arc<AtomicBool>,
}

/// Every `ClusterProvider` and `ManagedCluster`, and where the kubeconfigs of clusters are.
#[derive(Clone)]
pub(crate) struct Providers {
    pub(crate) store: Store<ClusterProviders>,
    pub(crate) managed: Store<ManagedClusters>,
    pub(crate) budgets: Budgets,
    /// The namespace of the program.
    namespace: Arc<str>,
}

impl Shared {
    /// Of a program in that namespace, which has so many workers and reaches targets in this way; none: over the network.
    pub fn new(
        clock: Clock,
        unencrypted: Unencrypted,
        namespace: &str,
        workers: NonZeroUsize,
        connect: Option<Connect>,
    ) -> Self {
        let providers = Providers {
            store: Store::default(),
            managed: Store::default(),
            budgets: Budgets::default(),
            namespace: namespace.into(),
        };
        let targets = Targets::new(clock, unencrypted).with_workers(workers).with_connect(connect);
        Self {
            accesses: Store::default(),
            outputs: Store::default(),
            providers,
            targets: Arc::new(targets),
            installation: Installation::default(),
            make_key: None,
            accesses_lost: Arc::default(),
        }
    }

    /// The same, where keys of certificates are made in this way; none: with the system's randomness.
    #[must_use]
    pub fn with_keys(self, make_key: Option<MakeKey>) -> Self {
        Self { make_key, ..self }
    }

    /// A list has lacked much of what was known. What is not in a list is not worked on; nothing is revoked or deleted for that.
    pub fn collapsed(&self, collapse: Collapse) {
        tracing::error!(?collapse, "a list has collapsed");
        if collapse.resource == ClusterAccesses::RESOURCE {
            self.accesses_lost.store(true, Ordering::Release);
        }
    }

    /// Whether that has happened to `ClusterAccess` since this process began: then neither the cache nor a list says which are gone.
    pub(crate) fn has_lost_accesses(&self) -> bool {
        self.accesses_lost.load(Ordering::Acquire)
    }
}

impl Providers {
    /// Whether their kubeconfigs are in that namespace.
    pub(crate) fn are_in(&self, namespace: &str) -> bool {
        *self.namespace == *namespace
    }

    /// That namespace.
    pub(crate) fn namespace(&self) -> &str {
        &self.namespace
    }

    /// Removes the budgets of those that are gone.
    pub(crate) fn retain_budgets(&self) {
        self.budgets.retain(|name| self.store.get("", name).is_some());
    }

    /// The cluster that a `ClusterAccess` is for, and what is known of the `ManagedCluster` that it names; none if its spec cannot be
    /// understood.
    pub(crate) fn resolve(&self, access: &Access) -> Option<(ClusterSource, ManagedFact)> {
        let cluster = &access.spec.as_ref().ok()?.cluster;
        let named = cluster.managed_cluster.as_ref();
        let found = named.and_then(|named| self.managed.get(&access.namespace, &named.name));
        let found = found.as_ref().map(|found| FoundCluster {
            uid: &found.uid,
            spec: found.decoded().ok(),
            status: &found.status,
            deleting: found.terminating,
        });
        Some(coppice_clusters::resolve(cluster, &access.status, found))
    }

    /// The cluster that a `ClusterAccess` is for: beside the name of a `ManagedCluster` what that stands for, if that is known.
    pub(crate) fn cluster_of<'a>(&self, access: &'a Access) -> Option<Cow<'a, ClusterSource>> {
        let cluster = &access.spec.as_ref().ok()?.cluster;
        if cluster.managed_cluster.is_none() {
            return Some(Cow::Borrowed(cluster));
        }
        self.resolve(access).map(|(cluster, _)| Cow::Owned(cluster))
    }

    /// Where the kubeconfig of the target of a `ClusterAccess` is.
    pub(crate) fn source_of_access(&self, access: &Access) -> Option<Source> {
        let (spec, cluster) = (access.spec.as_ref().ok()?, self.cluster_of(access)?);
        match (&cluster.kubeconfig_secret, &cluster.cluster_api, &cluster.gardener, &cluster.provider) {
            (Some(secret), ..) => Some(Source::new(&access.namespace, secret)),
            (None, Some(of), ..) => Some(Source::of_cluster(&access.namespace, &of.name)),
            (None, None, Some(shoot), _) => self.source_of_shoot(shoot, spec.issuer),
            (None, None, None, Some(provider)) => self.source_of(&provider.name),
            (None, None, None, None) => None,
        }
    }

    /// Whether the kubeconfig of the target of a `ClusterAccess` is in that Secret. It is asked of every access about each Secret that changes: names
    /// are compared, and not copied.
    pub(crate) fn is_source_of_access(&self, (namespace, secret): (&str, &str), access: &Access) -> bool {
        let Some(cluster) = self.cluster_of(access) else { return false };
        let is_here = *access.namespace == *namespace;
        let is_of = |name: &str, is_garden: bool| {
            let provider = if self.are_in(namespace) { self.store.get("", name) } else { None };
            let spec = provider.as_ref().and_then(|provider| provider.spec.as_ref().ok());
            spec.is_some_and(|spec| spec.credential.secret == secret && spec.project.is_some() == is_garden)
        };
        match (&cluster.kubeconfig_secret, &cluster.cluster_api, &cluster.gardener, &cluster.provider) {
            (Some(of), ..) => is_here && of.name == secret,
            (None, Some(of), ..) => is_here && capi_kubeconfig(&of.name) == secret,
            (None, None, Some(shoot), _) => is_of(&shoot.provider, true),
            (None, None, None, Some(provider)) => is_of(&provider.name, false),
            (None, None, None, None) => false,
        }
    }

    /// Where the kubeconfig of one is.
    pub(crate) fn source(&self, provider: &ClusterProviderSpec) -> Source {
        let credential = &provider.credential;
        let at = SecretKey { name: credential.secret.clone(), key: credential.key.clone() };
        Source::new(&self.namespace, &at)
    }

    /// The same for the one of that name, if it is there, its spec can be understood, and it is none of a garden.
    pub(crate) fn source_of(&self, name: &str) -> Option<Source> {
        let provider = self.store.get("", name)?;
        let spec = provider.spec.as_ref().ok().filter(|spec| spec.project.is_none())?;
        Some(self.source(spec))
    }

    /// How a Shoot is reached to have its credentials made by this issuer, if its provider is one of a garden.
    pub(crate) fn source_of_shoot(&self, shoot: &GardenerShoot, issuer: Issuer) -> Option<Source> {
        let provider = self.store.get("", &shoot.provider)?;
        let spec = provider.spec.as_ref().ok()?;
        let shoot = Shoot::new(spec.project.as_ref()?, &shoot.shoot, issuer);
        Some(Source::of_shoot(self.source(spec), shoot))
    }

    /// For how long at least it is tried to revoke what was issued by the one of that name.
    pub(crate) fn min_forget_after(&self, name: &str) -> Option<SignedDuration> {
        let provider = self.store.get("", name)?;
        let least = provider.spec.as_ref().ok()?.min_forget_after;
        Some(SignedDuration::from_secs(least.as_secs_i64()))
    }
}

#[cfg(test)]
mod tests {
    use coppice_runtime::read;
    use coppice_scripted::NOW;
    use serde_json::{Value, json};

    use super::*;

    fn access(cluster: &Value) -> Access {
        let object = json!({
            "metadata": {"name": "ci", "namespace": "team", "uid": "u", "resourceVersion": "1", "generation": 1},
            "spec": {
                "cluster": cluster, "output": {"secret": "out"},
                "rights": {"bind": {"clusterRole": "view", "namespaces": ["shop"]}},
            }
        });
        read::decoded::<ClusterAccesses>(object.to_string().as_bytes(), &()).unwrap()
    }

    #[test]
    fn the_secret_with_the_kubeconfig_of_a_target_is_known_without_a_copy_of_its_name() {
        let clock = Clock::following_tokio(NOW);
        let shared = Shared::new(clock, Unencrypted::Nowhere, "platform", NonZeroUsize::MIN, None);
        let providers = &shared.providers;
        for (name, project) in [("plain", None), ("garden", Some("dev"))] {
            let provider = json!({
                "metadata": {"name": name, "uid": name, "resourceVersion": "1", "generation": 1},
                "spec": {"credential": {"secret": format!("of-{name}")}, "project": project, "allow": []}
            });
            let provider = read::decoded::<ClusterProviders>(provider.to_string().as_bytes(), &()).unwrap();
            providers.store.upsert("", provider);
        }
        for (cluster, is_in) in [
            (json!({"kubeconfigSecret": {"name": "target"}}), Some(("team", "target"))),
            (json!({"clusterAPI": {"name": "shop"}}), Some(("team", "shop-kubeconfig"))),
            (json!({"provider": {"name": "plain"}}), Some(("platform", "of-plain"))),
            (json!({"gardener": {"provider": "garden", "shoot": "shop"}}), Some(("platform", "of-garden"))),
            // A provider of the other kind leads nowhere.
            (json!({"provider": {"name": "garden"}}), None),
            (json!({"gardener": {"provider": "plain", "shoot": "shop"}}), None),
            (json!({"provider": {"name": "gone"}}), None),
        ] {
            let access = access(&cluster);
            for namespace in ["team", "platform"] {
                for secret in ["target", "shop-kubeconfig", "of-plain", "of-garden"] {
                    let found = providers.is_source_of_access((namespace, secret), &access);
                    assert_eq!(found, is_in == Some((namespace, secret)), "{cluster}: {namespace}/{secret}");
                    let source = providers.source_of_access(&access);
                    assert_eq!(
                        found,
                        source.is_some_and(|source| source.is_in(namespace, secret)),
                        "{cluster}"
                    );
                }
            }
        }
    }
}
