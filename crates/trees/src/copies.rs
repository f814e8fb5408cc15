//! The kinds that are copied down a tree, each with its cache.

use std::sync::Arc;

use coppice_controllers::first_stale;
use coppice_kinds::{CopiedKind, LimitRanges, NetworkPolicies, Propagated, RoleBindings};
use coppice_runtime::kind::Kind;
use coppice_runtime::read::{self, ListError};
use coppice_runtime::store::{Freshness, Store};
use coppice_runtime::watches::{Subscription, Watches};

use crate::context::Why;

/// What the caches know of the objects that are copied, and of the copies.
#[derive(Default)]
pub(crate) struct CopyStores {
    limit_ranges: Store<LimitRanges>,
    network_policies: Store<NetworkPolicies>,
    role_bindings: Store<RoleBindings>,
}

impl CopyStores {
    /// Calls this with the namespace whenever one of its objects changes.
    pub(crate) fn subscribe(
        &self,
        watches: &Watches,
        changed: &Arc<impl Fn(&str) + Send + Sync + 'static>,
    ) -> [Subscription; 3] {
        let changed = || {
            let changed = Arc::clone(changed);
            move |namespace: &str, _: &str| changed(namespace)
        };
        [
            watches.subscribe(&self.limit_ranges, changed()),
            watches.subscribe(&self.network_policies, changed()),
            watches.subscribe(&self.role_bindings, changed()),
        ]
    }

    fn freshness(&self) -> [(Freshness, &'static str); 3] {
        [
            (self.limit_ranges.freshness(), LimitRanges::RESOURCE),
            (self.network_policies.freshness(), NetworkPolicies::RESOURCE),
            (self.role_bindings.freshness(), RoleBindings::RESOURCE),
        ]
    }

    /// Whether all of them have been listed.
    pub(crate) fn synced(&self) -> bool {
        !self.freshness().iter().any(|(freshness, _)| matches!(freshness, Freshness::NotSynced(_)))
    }

    /// Why what the caches know cannot be trusted, if so.
    pub(crate) fn stale(&self) -> Option<Why> {
        first_stale(&self.freshness())
    }

    /// The objects of a kind in a namespace; or why one of them is not understood.
    pub(crate) fn decoded(&self, kind: CopiedKind, namespace: &str) -> Result<Vec<Arc<Propagated>>, Why> {
        let objects = match kind {
            CopiedKind::LimitRange => self.limit_ranges.decoded(namespace),
            CopiedKind::NetworkPolicy => self.network_policies.decoded(namespace),
            CopiedKind::RoleBinding => self.role_bindings.decoded(namespace),
        };
        objects.map_err(|why| {
            let message = format!("{} {} in namespace {namespace} {}", kind.as_str(), why.name, why.detail);
            (why.reason, message)
        })
    }

    /// Every object of every kind.
    pub(crate) fn for_each(&self, mut each: impl FnMut(&Propagated)) {
        self.limit_ranges.for_each(&mut each);
        self.network_policies.for_each(&mut each);
        self.role_bindings.for_each(&mut each);
    }
}

/// The objects of a kind in a namespace, read again.
pub(crate) async fn listed(
    client: &kube::Client,
    kind: CopiedKind,
    namespace: &str,
) -> Result<Vec<Arc<Propagated>>, ListError> {
    let objects = match kind {
        CopiedKind::LimitRange => read::list::<LimitRanges>(client, namespace).await,
        CopiedKind::NetworkPolicy => read::list::<NetworkPolicies>(client, namespace).await,
        CopiedKind::RoleBinding => read::list::<RoleBindings>(client, namespace).await,
    };
    Ok(objects?.into_iter().map(Arc::new).collect())
}

/// One of them, read again.
pub(crate) async fn named_object(
    client: &kube::Client,
    kind: CopiedKind,
    namespace: &str,
    name: &str,
) -> Result<Option<Arc<Propagated>>, kube::Error> {
    let object = match kind {
        CopiedKind::LimitRange => read::get::<LimitRanges>(client, namespace, name).await,
        CopiedKind::NetworkPolicy => read::get::<NetworkPolicies>(client, namespace, name).await,
        CopiedKind::RoleBinding => read::get::<RoleBindings>(client, namespace, name).await,
    };
    Ok(object?.map(Arc::new))
}
