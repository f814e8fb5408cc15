//! Keeps the record of every namespace that a cluster manager governs (`ManagedNamespace`), and carries out what the
//! cluster manager's policies ask for.
//!
//! Watches `ClusterNamespaceManager`, `ManagedNamespace`, namespaces and `CoppiceConfig`: a change of a cluster manager or
//! of the settings enqueues every namespace, any other its own. While a cluster manager looks at the health of namespaces it
//! watches their workloads, too, and where one waits for pods, pods and Jobs enqueue their namespace; and it has namespaces kept with the annotations that cluster managers name. `observe → plan → apply → report`, repeated while a step
//! leads to the next.
//!
//! *Relies on*: status of `ManagedNamespace` being written by the operator alone (RBAC); the API server honouring uid and
//! resourceVersion preconditions. *Guarantees*: nothing is done without a record that says who governs and since when; a
//! namespace is deleted only after an intent in its record, and only if fresh reads of namespace, record, cluster managers
//! and settings ask for it again: for its health also of its workloads, and where a later namespace has taken its place of that
//! one, its record and its workloads. A spec is never written, except for creating a record that does not exist.
//!
//! Errors: a lost race is decided again at once; a failed step is written into status with its next attempt; anything else
//! is retried with backoff by the queue.

mod apply;
mod observe;
mod plan;
mod report;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use coppice_api::names::CONFIG_NAME;
use coppice_kinds::ManagedNamespaces;
use coppice_runtime::controller::Controller;
use coppice_runtime::object::OwnKind as _;
use coppice_runtime::queue::{Queue, ReconcileResult};
use coppice_runtime::store::Freshness;
use coppice_runtime::watches::{Subscription, Watches};
use tokio::time::Instant;

use crate::annotations::{self, KeptAnnotations};
use crate::cluster_manager::AllManagers;
use crate::context::ControllerContext;
use crate::health::{self, HealthWatches};
use crate::namespace_manager::{CATCH_UP, RECOVERY};
use crate::pods;
use crate::status_writer::Applied;

/// A chain of steps longer than this is broken up, so that no namespace keeps others waiting.
const MAX_STEPS: usize = 12;

/// The name of a namespace.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NamespaceKey(Arc<str>);

impl fmt::Display for NamespaceKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl NamespaceKey {
    /// The key of a namespace.
    pub fn new(name: &str) -> Self {
        Self(name.into())
    }
}

/// The controller of `ManagedNamespace`.
pub struct NamespaceRecords {
    shared: Arc<ControllerContext>,
    counts: Queue<AllManagers>,
    /// The watches of workloads, and what they are begun with.
    health: HealthWatches,
    annotations: KeptAnnotations,
    begin: OnceLock<(Watches, Queue<NamespaceKey>)>,
}

impl NamespaceRecords {
    /// The controller, on what all controllers share. What it writes is counted again: the cache has it before the watch,
    /// which enqueues nothing then.
    pub fn new(shared: Arc<ControllerContext>, counts: Queue<AllManagers>) -> Self {
        Self {
            shared,
            counts,
            health: HealthWatches::default(),
            annotations: KeptAnnotations::default(),
            begin: OnceLock::new(),
        }
    }

    /// Enqueues a namespace whose cluster manager waits for pods.
    fn enqueue_for_pods(&self, queue: &Queue<NamespaceKey>) -> impl Fn(&str, &str) + Send + Sync + 'static {
        let (shared, queue) = (Arc::clone(&self.shared), queue.clone());
        move |namespace, _| {
            if pods::are_waited_for(&shared, namespace) {
                queue.add(NamespaceKey::new(namespace));
            }
        }
    }

    /// Begins or ends the watches of workloads, as the cluster managers ask for.
    fn watch_health(&self) {
        let Some((watches, queue)) = self.begin.get() else { return };
        let (shared, queue) = (Arc::clone(&self.shared), queue.clone());
        self.health.update(&self.shared, watches, move |namespace: &str| {
            if health::is_looked_at(&shared, namespace) {
                queue.add(NamespaceKey(namespace.into()));
            }
        });
    }
}

impl Controller for NamespaceRecords {
    type Key = NamespaceKey;
    const NAME: &'static str = "managednamespace";

    fn subscribe(self: &Arc<Self>, watches: &Watches, queue: &Queue<NamespaceKey>) -> Vec<Subscription> {
        let shared = &self.shared;
        // Called once.
        let _ = self.begin.set((watches.clone(), queue.clone()));
        let sent = queue.clone();
        shared.delivery_waiters.on_ended(ManagedNamespaces::KIND, move |subject| {
            sent.add(NamespaceKey(Arc::clone(&subject.namespace)));
        });
        let enqueue_all = |this: &Arc<Self>| {
            let (this, queue) = (Arc::clone(this), queue.clone());
            move || this.all().into_iter().for_each(|key| queue.add(key))
        };
        // Status is written often, and decides nothing: only another spec, or a manager that comes or goes, enqueues everything.
        let (enqueue, seen) = (enqueue_all(self), Mutex::new(BTreeMap::new()));
        let (managers, this) = (Arc::clone(shared), Arc::clone(self));
        let of_manager = move |_: &str, name: &str| {
            let now = managers.cluster_managers.get("", name);
            let now = now.map(|manager| (manager.uid.clone(), manager.generation, manager.terminating));
            let mut seen = seen.lock().unwrap_or_else(PoisonError::into_inner);
            if now.as_ref() != seen.get(name) {
                match now {
                    Some(now) => seen.insert(name.to_owned(), now),
                    None => seen.remove(name),
                };
                drop(seen);
                this.annotations.update(&managers);
                this.watch_health();
                enqueue();
            }
        };
        let (enqueue, seen, configs) = (enqueue_all(self), Mutex::new(None), Arc::clone(shared));
        let of_settings = move |_: &str, _: &str| {
            let config = configs.configs.get("", CONFIG_NAME);
            let now = config.map(|config| (config.uid.clone(), config.generation));
            let mut seen = seen.lock().unwrap_or_else(PoisonError::into_inner);
            if *seen != now {
                *seen = now;
                drop(seen);
                enqueue();
            }
        };
        let (namespaces, of_namespace) = (Arc::clone(shared), queue.clone());
        let of_namespace = move |_: &str, name: &str| {
            if !namespaces.cluster_managers.is_empty() || namespaces.record(name).is_some() {
                of_namespace.add(NamespaceKey(name.into()));
            }
        };
        let of_record = queue.clone();
        vec![
            watches.subscribe(&shared.configs, of_settings),
            watches.subscribe(&shared.namespaces, of_namespace),
            watches.subscribe(&shared.cluster_managers, of_manager),
            watches.subscribe(&shared.managed_namespaces, move |namespace, _| {
                of_record.add(NamespaceKey(namespace.into()));
            }),
            watches.subscribe(&shared.pods, self.enqueue_for_pods(queue)),
            watches.subscribe(&shared.jobs, self.enqueue_for_pods(queue)),
            // Only looked up: who else deletes the namespace, and how often that was done.
            watches.subscribe(&shared.managers, |_, _| {}),
            watches.subscribe(&shared.deleted_namespaces, |_, _| {}),
        ]
    }

    fn synced(&self) -> bool {
        let synced = |freshness| !matches!(freshness, Freshness::NotSynced(_));
        let shared = &self.shared;
        synced(shared.configs.freshness())
            && synced(shared.namespaces.freshness())
            && synced(shared.cluster_managers.freshness())
            && synced(shared.managed_namespaces.freshness())
            && synced(shared.managers.freshness())
            && synced(shared.deleted_namespaces.freshness())
            && {
                self.annotations.update(shared);
                self.watch_health();
                annotations::synced(shared) && health::synced(shared) && pods::synced(shared)
            }
    }

    /// Every namespace while there is a cluster manager; otherwise those that have a record.
    fn all(&self) -> Vec<NamespaceKey> {
        let shared = &self.shared;
        if shared.cluster_managers.is_empty() {
            let records = shared.managed_namespaces.keys();
            return records.into_iter().map(|(namespace, _)| NamespaceKey(namespace.into())).collect();
        }
        shared.namespaces.keys().into_iter().map(|(_, name)| NamespaceKey(name.into())).collect()
    }

    async fn reconcile(self: Arc<Self>, key: NamespaceKey) -> ReconcileResult {
        reconcile(&self.shared, &self.counts, &key.0).await
    }

    fn panicked(&self, key: &NamespaceKey, message: &str) {
        report::panicked(&self.shared, &key.0, message);
    }

    fn started(&self) {
        self.shared.starts_evaluating();
    }

    fn resync(&self) {
        self.annotations.update(&self.shared);
        report::count_phases(&self.shared);
    }
}

/// Reconciles one namespace as far as possible, and returns when to reconcile it again.
async fn reconcile(shared: &ControllerContext, counts: &Queue<AllManagers>, name: &str) -> ReconcileResult {
    let Ok(permit) = shared.gate.permit() else { return ReconcileResult::Done };
    let Some(mut observation) = observe::cached(shared, name) else {
        shared.refused_records.remove(name);
        return ReconcileResult::Done;
    };
    if observation.behind() && shared.clients.backpressure.had_no_response_within(RECOVERY) {
        // Nothing can be decided. To write that to records, and to revert it a moment later, helps nobody.
        return ReconcileResult::At(Instant::now() + RECOVERY / 4);
    }
    for _ in 0..MAX_STEPS {
        if let Some(error) = observation.record.as_ref().and_then(|record| record.status_error.as_ref()) {
            // Status says what has been done: without it nothing can be decided, and it must not be overwritten.
            report::status_not_understood(shared, &observation, error);
            return ReconcileResult::Done;
        }
        let plan = plan::plan(&observation);
        let (applied, batch) = apply::apply(shared, &permit, &observation, plan).await;
        report::report(shared, &observation, &batch);
        if shared.refused_records.note(name, &applied) {
            // Its cluster manager says it.
            counts.add(AllManagers);
        }
        match applied {
            Applied::Replan(record) => {
                counts.add(AllManagers);
                match observe::with(shared, name, record) {
                    Some(newer) => observation = newer,
                    None => return ReconcileResult::Done,
                }
            }
            Applied::CheckAt(None) => return ReconcileResult::Done,
            Applied::CheckAt(Some(at)) => return ReconcileResult::At(shared.instant(at)),
            Applied::CacheBehind => return ReconcileResult::Retry { category: "behind", at_least: CATCH_UP },
            Applied::Failed(error) => {
                tracing::warn!(namespace = name, %error, "reconcile failed");
                return ReconcileResult::Retry {
                    category: "api",
                    at_least: shared.clients.backpressure.remaining(),
                };
            }
        }
    }
    ReconcileResult::At(Instant::now())
}
