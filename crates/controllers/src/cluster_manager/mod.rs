//! Counts, for the status of each `ClusterNamespaceManager`, what it selects and governs, and what is due; and for the
//! budget how many namespaces are under those that enforce.
//!
//! Watches `ClusterNamespaceManager`, `ManagedNamespace`, namespaces and `CoppiceConfig`; acts on the leader alone.
//! `observe → plan → apply → report`. All managers are one key, since one pass over the namespaces counts for all of them,
//! and at most every [`INTERVAL`] there is one.
//!
//! *Relies on*: [`managed_namespace`](crate::managed_namespace) keeping the records. *Guarantees*: a status is written only
//! when it says something new. Nothing here touches a namespace.
//!
//! Errors: retried with backoff by the queue.

mod apply;
mod observe;
mod plan;
mod report;

use std::fmt;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use coppice_runtime::controller::Controller;
use coppice_runtime::queue::{Queue, ReconcileResult};
use coppice_runtime::store::Freshness;
use coppice_runtime::watches::{Subscription, Watches};
use tokio::time::Instant;

use crate::context::ControllerContext;
use crate::managed_namespace::NamespaceKey;
use crate::successor;

/// The least time between two counts.
const INTERVAL: Duration = Duration::from_secs(3);

/// All cluster managers: the only key of their controller.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AllManagers;

impl fmt::Display for AllManagers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("all")
    }
}

/// The controller of `ClusterNamespaceManager`.
pub struct ClusterNamespaceManagers {
    shared: Arc<ControllerContext>,
    /// When the namespaces were last counted.
    counted: Mutex<Option<Instant>>,
    /// The queue of the records, once there is one: those are enqueued that do not say yet which namespace supersedes theirs.
    records: Arc<OnceLock<Queue<NamespaceKey>>>,
}

impl ClusterNamespaceManagers {
    /// The controller, on what all controllers share.
    pub fn new(shared: Arc<ControllerContext>, records: Arc<OnceLock<Queue<NamespaceKey>>>) -> Self {
        Self { shared, counted: Mutex::default(), records }
    }

    /// When to count, if not now. Otherwise this is the time of the last count.
    fn too_early(&self) -> Option<Instant> {
        let mut counted = self.counted.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        let next = counted.map(|last| last + INTERVAL).filter(|next| now < *next);
        if next.is_none() {
            *counted = Some(now);
        }
        next
    }
}

impl Controller for ClusterNamespaceManagers {
    type Key = AllManagers;
    const NAME: &'static str = "clusternamespacemanager";

    fn subscribe(self: &Arc<Self>, watches: &Watches, queue: &Queue<AllManagers>) -> Vec<Subscription> {
        let shared = &self.shared;
        let enqueue = || {
            let (shared, queue) = (Arc::clone(shared), queue.clone());
            move |_: &str, _: &str| {
                if !shared.cluster_managers.is_empty() {
                    queue.add(AllManagers);
                }
            }
        };
        let (managers, of_manager) = (Arc::clone(shared), queue.clone());
        vec![
            watches.subscribe(&shared.namespaces, enqueue()),
            watches.subscribe(&shared.managed_namespaces, enqueue()),
            // Only looked up: what is protected changes rarely, and the next pass counts it.
            watches.subscribe(&shared.configs, |_, _| {}),
            // Only looked up: what is deleted changes the namespaces, too.
            watches.subscribe(&shared.deleted_namespaces, |_, _| {}),
            // Its own status enqueues nothing.
            watches.subscribe(&shared.cluster_managers, move |_, name| {
                let manager = managers.cluster_managers.get("", name);
                if manager.is_none_or(|m| m.status.observed_generation != Some(m.generation) || m.terminating)
                {
                    of_manager.add(AllManagers);
                }
            }),
        ]
    }

    fn synced(&self) -> bool {
        let synced = |freshness| !matches!(freshness, Freshness::NotSynced(_));
        let shared = &self.shared;
        synced(shared.configs.freshness())
            && synced(shared.managers.freshness())
            && synced(shared.deleted_namespaces.freshness())
            && synced(shared.namespaces.freshness())
            && synced(shared.cluster_managers.freshness())
            && synced(shared.managed_namespaces.freshness())
    }

    fn all(&self) -> Vec<AllManagers> {
        vec![AllManagers]
    }

    fn resync(&self) {
        report::count_conditions(&self.shared);
    }

    async fn reconcile(self: Arc<Self>, _: AllManagers) -> ReconcileResult {
        let shared = &self.shared;
        let Ok(permit) = shared.gate.permit() else { return ReconcileResult::Done };
        if let Some(at) = self.too_early() {
            return ReconcileResult::At(at);
        }
        // Caches that are behind count nothing: what is written stays until they are not.
        let Some(observation) = observe::observe(shared) else { return ReconcileResult::Done };
        shared.set_census(observation.census.clone());
        if let Some(records) = self.records.get() {
            for name in successor::not_recorded(shared) {
                records.add(NamespaceKey::new(&name));
            }
        }
        let plan = plan::plan(&observation);
        match apply::apply(shared, &permit, plan.writes).await {
            Ok(()) => {
                plan.next_check.map_or(ReconcileResult::Done, |at| ReconcileResult::At(shared.instant(at)))
            }
            Err(error) => {
                report::failed(&error);
                ReconcileResult::Retry {
                    category: error.category(),
                    at_least: shared.clients.backpressure.remaining(),
                }
            }
        }
    }
}
