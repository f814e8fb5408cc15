//! Says of each `ClusterProvider` whether its kubeconfig can be used, and how many `ClusterAccess`es and `ManagedCluster`s name it.
//!
//! Watches `ClusterProvider`, `ClusterAccess`, `ManagedCluster`, and the metadata of Secrets with our label; acts on the leader alone. `observe → plan → apply → report`,
//! with one write of status at most.
//!
//! *Relies on*: the policies of the installation, which keep others from writing status. *Guarantees*: nothing is decided by that status
//! but whether it may be deleted; what a provider allows is read when something is issued. The kubeconfig is read by the key that the
//! provider names, and nothing of it is shown.
//!
//! Errors: said in the condition `Ready`, and looked at again with the periodic resync.

mod apply;
mod observe;
mod plan;
mod report;

use std::sync::Arc;
use std::time::Duration;

use coppice_api::condition::{self, READY};
use coppice_clusters_api::ClusterProviderStatus;
use coppice_runtime::client::Clients;
use coppice_runtime::controller::Controller;
use coppice_runtime::events::Events;
use coppice_runtime::leader::Gate;
use coppice_runtime::queue::{Queue, ReconcileResult};
use coppice_runtime::server_clock::ServerClock;
use coppice_runtime::store::Freshness;
use coppice_runtime::watches::{Subscription, Watches};
use coppice_runtime::write::WriteError;

use crate::metrics::AccessMetrics;
use crate::shared::Shared;

/// The controller of `ClusterProvider`. Its keys are names.
pub struct ClusterProviderController {
    clients: Clients,
    server_clock: ServerClock,
    gate: Gate,
    events: Events,
    metrics: AccessMetrics,
    shared: Shared,
}

impl ClusterProviderController {
    /// The controller, on the API server of this cluster and on what it shares with the others.
    pub fn new(
        clients: Clients,
        server_clock: ServerClock,
        gate: Gate,
        events: Events,
        metrics: AccessMetrics,
        shared: Shared,
    ) -> Self {
        Self { clients, server_clock, gate, events, metrics, shared }
    }

    fn failed(&self, name: &str, error: &str) -> ReconcileResult {
        report::failed(name, error);
        ReconcileResult::Retry { category: "api", at_least: self.clients.backpressure.remaining() }
    }

    /// Wakes those whose status has to say which `ClusterAccess`es use them: the first one, or that one is gone.
    fn wake_used(&self, (namespace, name): (&str, &str), queue: &Queue<Arc<str>>) {
        let access = self.shared.accesses.get(namespace, name);
        let cluster = access.as_ref().and_then(|access| self.shared.providers.cluster_of(access));
        let named = cluster.as_ref().and_then(|cluster| cluster.provider_name());
        self.wake_named(named, &format!("{namespace}/{name}"), |status| status.used_by.as_slice(), queue);
    }

    /// The same of `ManagedCluster`s.
    fn wake_making(&self, (namespace, name): (&str, &str), queue: &Queue<Arc<str>>) {
        let managed = self.shared.providers.managed.get(namespace, name);
        let shoot =
            managed.as_ref().and_then(|managed| managed.spec.as_ref().ok()?.provider.gardener.as_ref());
        let named = shoot.map(|shoot| shoot.cluster_provider.as_str());
        self.wake_named(
            named,
            &format!("{namespace}/{name}"),
            |status| status.used_by_clusters.as_slice(),
            queue,
        );
    }

    /// Wakes the provider of that name if its status names nobody, and all others that name who is at that place.
    fn wake_named(
        &self,
        named: Option<&str>,
        place: &str,
        used_by: fn(&ClusterProviderStatus) -> &[String],
        queue: &Queue<Arc<str>>,
    ) {
        self.shared.providers.store.for_each(|provider| {
            let used_by = used_by(&provider.status);
            let is_new = if named.is_some_and(|named| *named == *provider.name) {
                used_by.is_empty()
            } else {
                used_by.iter().any(|of| of == place)
            };
            if is_new && provider.decoded().is_ok() {
                queue.add((&*provider.name).into());
            }
        });
    }

    /// Wakes those whose kubeconfig is in a Secret.
    fn wake_users(&self, (namespace, secret): (&str, &str), queue: &Queue<Arc<str>>) {
        let providers = &self.shared.providers;
        if !providers.are_in(namespace) {
            return;
        }
        self.shared.targets.changed(namespace, secret);
        providers.store.for_each(|provider| {
            if provider.spec.as_ref().is_ok_and(|spec| spec.credential.secret == secret) {
                queue.add((&*provider.name).into());
            }
        });
    }
}

impl Controller for ClusterProviderController {
    type Key = Arc<str>;
    const NAME: &'static str = "cluster_provider";

    /// Woken by every change of its object, and of the Secret with its kubeconfig, and by the first and last that use it.
    fn subscribe(self: &Arc<Self>, watches: &Watches, queue: &Queue<Arc<str>>) -> Vec<Subscription> {
        let (this, that) = (Arc::clone(self), Arc::clone(self));
        let (of_provider, of_secret, of_access) = (queue.clone(), queue.clone(), queue.clone());
        let (it, of_managed) = (Arc::clone(self), queue.clone());
        vec![
            watches.subscribe(&self.shared.providers.store, move |_, name| of_provider.add(name.into())),
            watches.subscribe(&self.shared.outputs, move |namespace, secret| {
                this.wake_users((namespace, secret), &of_secret);
            }),
            watches.subscribe(&self.shared.accesses, move |namespace, name| {
                that.wake_used((namespace, name), &of_access);
            }),
            watches.subscribe(&self.shared.providers.managed, move |namespace, name| {
                it.wake_making((namespace, name), &of_managed);
            }),
        ]
    }

    fn synced(&self) -> bool {
        let synced = |freshness| !matches!(freshness, Freshness::NotSynced(_));
        let Shared { accesses, providers, .. } = &self.shared;
        [accesses.freshness(), providers.store.freshness(), providers.managed.freshness()]
            .into_iter()
            .all(synced)
    }

    fn all(&self) -> Vec<Arc<str>> {
        self.shared.providers.store.keys().into_iter().map(|(_, name)| name.into()).collect()
    }

    fn resync(&self) {
        let (mut ready, mut others) = (0, 0);
        self.shared.providers.store.for_each(|provider| {
            let found = condition::find(&provider.status.conditions, READY);
            let count =
                if found.is_some_and(|found| found.status == "True") { &mut ready } else { &mut others };
            *count += 1;
        });
        self.metrics.set_providers(ready, others);
    }

    async fn reconcile(self: Arc<Self>, name: Arc<str>) -> ReconcileResult {
        let Ok(permit) = self.gate.permit() else { return ReconcileResult::Done };
        let Some(provider) = self.shared.providers.store.get("", &name) else { return ReconcileResult::Done };
        let spec = match &provider.spec {
            Ok(spec) => spec,
            Err(error) => {
                report::not_understood(&name, &error.to_string());
                return ReconcileResult::Done;
            }
        };
        if let Some(error) = &provider.status_error {
            report::status_not_understood(&name, &error.to_string());
            return ReconcileResult::Done;
        }
        let observation = match observe::observe(&self, &provider, spec).await {
            Ok(observation) => observation,
            Err(error) => return self.failed(&name, &error.to_string()),
        };
        let Some(status) = plan::plan(&provider, observation, self.server_clock.now().now()) else {
            return ReconcileResult::Done;
        };
        match apply::apply(&self, &permit, &provider, &status).await {
            Ok(written) => {
                report::saved(&self, &written, &provider.status);
                ReconcileResult::Done
            }
            Err(WriteError::Conflict | WriteError::Gone) => {
                ReconcileResult::Retry { category: "behind", at_least: Duration::ZERO }
            }
            Err(error) => self.failed(&name, &error.to_string()),
        }
    }
}
