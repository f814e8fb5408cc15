//! What the controllers share: what is watched, and the targets.

use std::borrow::Cow;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use coppice_clusters::kubeconfig::Unencrypted;
use coppice_clusters::{FoundCluster, ManagedFact};
use coppice_clusters_api::{ClusterProviderSpec, ClusterSource, GardenerShoot, Issuer, SecretKey};
use coppice_runtime::clock::Clock;
use coppice_runtime::collapse::Collapse;
use coppice_runtime::kind::Kind as _;
use coppice_runtime::store::Store;
use jiff::SignedDuration;

use crate::budgets::Budgets;
use crate::installation::Installation;
use crate::kinds::{Access, ClusterAccesses, ClusterProviders, ManagedClusters, OutputSecrets};
use crate::target::Shoot;
use crate::targets::{Connect, Source, Targets};

/// What the controllers share. Clones share it, too.
#[derive(Clone)]
pub struct Shared {
    pub(crate) accesses: Store<ClusterAccesses>,
    pub(crate) outputs: Store<OutputSecrets>,
    pub(crate) providers: Providers,
    pub(crate) targets: Arc<Targets>,
    pub(crate) installation: Installation,
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
            accesses_lost: Arc::default(),
        }
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
