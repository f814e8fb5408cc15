//! Makes the cluster of each `ManagedCluster`, keeps it as the spec says, and deletes it at the end: as a `Cluster` in this cluster, or as a `Shoot` in
//! the garden of a `ClusterProvider`.
//!
//! Watches `ManagedCluster`; acts on the leader alone. `observe → plan → apply → report`, one step each time, until there is nothing to
//! do. The objects that are made are not watched, since their kind may not be there: each is read once a minute, a Shoot that is ready every 5
//! minutes, and every 15 seconds while something is under way.
//!
//! *Relies on*: the policies of the installation, which say who may write a `ManagedCluster`, and leave this account the objects with its
//! label alone. *Guarantees*: nothing is made without a finalizer and an intent in status; an object is changed and deleted only as it was
//! read, with the uid that status names; of its fields those alone are written that the spec decides.
//!
//! Errors: what the provider or this API server refuses is said in status, and tried again as its class says; so is a spec that is not
//! understood. What is not known is tried again with backoff by the queue.

mod apply;
mod observe;
mod plan;
mod report;
mod site;

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use coppice_clusters::managed::{LiveFact, ManagedStep, not_understood};
use coppice_clusters_api::{ClusterState, ManagedClusterStatus};
use coppice_runtime::client::Clients;
use coppice_runtime::controller::Controller;
use coppice_runtime::events::Events;
use coppice_runtime::leader::{Gate, Permit};
use coppice_runtime::queue::{Queue, ReconcileResult};
use coppice_runtime::server_clock::ServerClock;
use coppice_runtime::store::{Freshness, Store};
use coppice_runtime::watches::{Subscription, Watches};
use coppice_runtime::write::{self, WriteError};
use jiff::Timestamp;
use tokio::time::Instant;

use self::apply::Applied;
use self::observe::Memory;
use crate::kinds::{ManagedClusterObject, ManagedClusters};
use crate::metrics::AccessMetrics;
use crate::shared::{Providers, Shared};
use crate::targets::Targets;

/// Steps in a row for one object, then others have their turn.
const MAX_ROUNDS: usize = 16;
/// After that it is looked whether there is a place in the garden.
const BUSY: Duration = Duration::from_secs(2);
/// A garden is asked about a Shoot that is ready no more often than this.
const READY_LOOK: Duration = Duration::from_mins(5);

/// The controller of `ManagedCluster`. A garden is asked about a Shoot by the budget of its provider (`callsPerMinute`).
pub struct ManagedClusterController {
    clients: Clients,
    server_clock: ServerClock,
    gate: Gate,
    events: Events,
    metrics: AccessMetrics,
    clusters: Store<ManagedClusters>,
    providers: Providers,
    targets: Arc<Targets>,
    /// When there was nothing left to do for each.
    settled: Mutex<HashMap<ClusterKey, Instant>>,
}

/// The state as which one is counted: a deletion that fails is one that has failed.
fn counted_as(status: &ManagedClusterStatus) -> ClusterState {
    match status.state {
        Some(ClusterState::Deleting) if status.last_error.is_some() => ClusterState::Failed,
        state => state.unwrap_or(ClusterState::Planning),
    }
}

/// For how many seconds one has waited for what is under way; 0 if nothing is.
fn waits_for(status: &ManagedClusterStatus, now: Timestamp) -> i64 {
    status.waiting_since.map_or(0, |since| now.duration_since(since).as_secs().max(0))
}

/// Namespace and name of a `ManagedCluster`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClusterKey {
    namespace: Arc<str>,
    name: Arc<str>,
}

impl ClusterKey {
    pub(crate) fn new(namespace: &str, name: &str) -> Self {
        Self { namespace: namespace.into(), name: name.into() }
    }

    /// Its namespace.
    pub(crate) fn namespace(&self) -> &str {
        &self.namespace
    }
}

impl fmt::Display for ClusterKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

impl ManagedClusterController {
    /// The controller, on the API server of this cluster and on what it shares with the others.
    pub fn new(
        clients: Clients,
        server_clock: ServerClock,
        gate: Gate,
        events: Events,
        metrics: AccessMetrics,
        shared: &Shared,
    ) -> Self {
        let Shared { providers, targets, .. } = shared.clone();
        let (clusters, settled) = (providers.managed.clone(), Mutex::default());
        Self { clients, server_clock, gate, events, metrics, clusters, providers, targets, settled }
    }

    fn now(&self) -> Timestamp {
        self.server_clock.now().now()
    }

    /// Carries out one step after the other. What was planned from a cache is planned again on the API server's object before anything is
    /// written.
    async fn work(&self, permit: &Permit, key: &ClusterKey, cached: ManagedClusterObject) -> ReconcileResult {
        let (mut managed, mut is_fresh, mut memory) = (cached, false, Memory::default());
        for _ in 0..MAX_ROUNDS {
            if permit.check().is_err() {
                return ReconcileResult::Done;
            }
            let Some(observed) = observe::observed(&managed, &memory) else { return ReconcileResult::Done };
            let step = plan::plan(&observed, self.now());
            let writes = !matches!(step, ManagedStep::Wait(_) | ManagedStep::Look);
            if writes && !is_fresh {
                match observe::fresh(self, key).await {
                    // Another one of its name: the object that was looked at was made for the one before.
                    Ok(Some(read)) if read.uid != managed.uid => {
                        return ReconcileResult::Retry { category: "behind", at_least: Duration::ZERO };
                    }
                    Ok(Some(read)) => (managed, is_fresh) = (read, true),
                    Ok(None) => return ReconcileResult::Done,
                    Err(error) => return self.failed(key, &error.to_string()),
                }
                continue;
            }
            match apply::apply(self, permit, &managed, &observed, &mut memory, step).await {
                Applied::Again => {}
                Applied::Changed(changed) => managed = *changed,
                Applied::CheckAt(at) => {
                    // Nobody has looked at one that waits for its turn.
                    if !matches!(memory.live, LiveFact::WaitsForTurn { .. }) {
                        self.settled().insert(key.clone(), Instant::now());
                    }
                    return self.at(at);
                }
                Applied::Busy => return ReconcileResult::At(Instant::now() + BUSY),
                Applied::Behind => {
                    return ReconcileResult::Retry { category: "behind", at_least: Duration::ZERO };
                }
                Applied::Failed(error) => return self.failed(key, &error.to_string()),
            }
        }
        ReconcileResult::Retry { category: "rounds", at_least: Duration::ZERO }
    }

    /// Says in status that its spec cannot be understood, once. Nothing is written where that is so of its status.
    async fn say_not_understood(
        &self,
        permit: &Permit,
        key: &ClusterKey,
        cached: &ManagedClusterObject,
    ) -> ReconcileResult {
        let said = |managed: &ManagedClusterObject| {
            let error = managed.spec.as_ref().err().filter(|_| managed.status_error.is_none())?;
            let of = (managed.generation, managed.terminating);
            not_understood(&managed.status, of, &error.to_string(), self.now())
        };
        if said(cached).is_none() {
            return ReconcileResult::Done;
        }
        let managed = match observe::fresh(self, key).await {
            Ok(Some(managed)) => managed,
            Ok(None) => return ReconcileResult::Done,
            Err(error) => return self.failed(key, &error.to_string()),
        };
        let Some(status) = said(&managed) else { return ReconcileResult::Done };
        match write::status::<ManagedClusters>(&self.clients, permit, &managed, &status).await {
            Ok(written) => {
                report::saved(self, &written, &managed.status);
                ReconcileResult::Done
            }
            Err(WriteError::Conflict | WriteError::Gone) => {
                ReconcileResult::Retry { category: "behind", at_least: Duration::ZERO }
            }
            Err(error) => self.failed(key, &error.to_string()),
        }
    }

    fn settled(&self) -> MutexGuard<'_, HashMap<ClusterKey, Instant>> {
        self.settled.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Until when nobody looks at a Shoot that is ready; none if somebody has to.
    fn rests_until(&self, key: &ClusterKey, managed: &ManagedClusterObject) -> Option<Instant> {
        let status = &managed.status;
        let is_shoot = managed.spec.as_ref().is_ok_and(|spec| spec.provider.gardener.is_some());
        let is_ready = status.state == Some(ClusterState::Ready)
            && status.observed_generation == Some(managed.generation)
            && !managed.terminating;
        let until = *self.settled().get(key)? + READY_LOOK;
        (is_shoot && is_ready && Instant::now() < until).then_some(until)
    }

    fn at(&self, at: Option<Timestamp>) -> ReconcileResult {
        let Some(at) = at else { return ReconcileResult::Done };
        let ahead = Duration::try_from(at.duration_since(self.now())).unwrap_or(Duration::ZERO);
        ReconcileResult::At(Instant::now() + ahead)
    }

    fn failed(&self, key: &ClusterKey, error: &str) -> ReconcileResult {
        report::failed(key, error);
        ReconcileResult::Retry { category: "api", at_least: self.clients.backpressure.remaining() }
    }
}

impl Controller for ManagedClusterController {
    type Key = ClusterKey;
    const NAME: &'static str = "managed_cluster";

    /// Woken by every change of its object.
    fn subscribe(self: &Arc<Self>, watches: &Watches, queue: &Queue<ClusterKey>) -> Vec<Subscription> {
        let queue = queue.clone();
        let wake = move |namespace: &str, name: &str| queue.add(ClusterKey::new(namespace, name));
        vec![watches.subscribe(&self.clusters, wake)]
    }

    fn synced(&self) -> bool {
        let synced = |freshness| !matches!(freshness, Freshness::NotSynced(_));
        synced(self.clusters.freshness()) && synced(self.providers.store.freshness())
    }

    fn all(&self) -> Vec<ClusterKey> {
        self.clusters.keys().iter().map(|(namespace, name)| ClusterKey::new(namespace, name)).collect()
    }

    async fn reconcile(self: Arc<Self>, key: ClusterKey) -> ReconcileResult {
        let Ok(permit) = self.gate.permit() else { return ReconcileResult::Done };
        let Some(cached) = self.clusters.get(&key.namespace, &key.name) else { return ReconcileResult::Done };
        if let Err(error) = cached.decoded() {
            report::not_understood(&key, &error.to_string());
            return self.say_not_understood(&permit, &key, &cached).await;
        }
        if let Some(until) = self.rests_until(&key, &cached) {
            return ReconcileResult::At(until);
        }
        self.work(&permit, &key, (*cached).clone()).await
    }

    fn resync(&self) {
        let mut counts: BTreeMap<ClusterState, i64> = ClusterState::ALL.map(|state| (state, 0)).into();
        let (mut longest_wait, now) = (0_i64, self.now());
        self.clusters.for_each(|managed| {
            *counts.entry(counted_as(&managed.status)).or_default() += 1;
            longest_wait = longest_wait.max(waits_for(&managed.status, now));
        });
        self.metrics.set_managed_clusters(&counts, longest_wait);
        self.settled().retain(|key, _| self.clusters.get(&key.namespace, &key.name).is_some());
    }
}

#[cfg(test)]
#[path = "work_tests.rs"]
mod tests;
