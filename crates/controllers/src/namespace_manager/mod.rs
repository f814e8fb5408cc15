//! Follows every `NamespaceManager`: decides what happens to its namespace, and makes it happen once.
//!
//! Watches `NamespaceManagers`, Namespaces, Pods, Jobs and `CoppiceConfig`; a change enqueues the managers of its namespace.
//! `observe → plan → apply → report`, repeated while a step leads to the next.
//!
//! *Relies on*: status of `NamespaceManagers` being written by the operator alone (RBAC); the API server honouring uid
//! and resourceVersion preconditions. *Guarantees*: every effect has a durable intent before it; every firing has one
//! effect, or several attempts under one id for a webhook; nothing destructive without fresh facts, budget, and an
//! unprotected namespace.
//!
//! Errors: a lost race is decided again at once; a failed step is written into status with its next attempt; anything
//! else is retried with backoff by the queue.

mod apply;
mod observe;
mod plan;
mod report;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use coppice_api::names::CONFIG_NAME;
use coppice_kinds::Managers;
use coppice_mutants::Mutant;
use coppice_runtime::controller::Controller;
use coppice_runtime::object::OwnKind as _;
use coppice_runtime::queue::{Queue, ReconcileResult};
use coppice_runtime::store::Freshness;
use coppice_runtime::watches::{Subscription, Watches};
use tokio::time::Instant;

use crate::annotations;
use crate::context::{ControllerContext, ManagerKey};
use crate::status_writer::Applied;

/// A chain of steps longer than this is broken up, so that no manager keeps others waiting.
const MAX_STEPS: usize = 12;

/// Caches that were behind have this long to catch up, and longer each time.
pub(crate) const CATCH_UP: Duration = Duration::from_secs(1);
/// For this long after the API server could not be reached, watches that are behind count as catching up.
pub(crate) const RECOVERY: Duration = Duration::from_mins(1);

/// The controller of `NamespaceManager`.
pub struct NamespaceManagers {
    shared: Arc<ControllerContext>,
}

impl NamespaceManagers {
    /// The controller, on what all controllers share.
    pub fn new(shared: Arc<ControllerContext>) -> Self {
        Self { shared }
    }
}

impl Controller for NamespaceManagers {
    type Key = ManagerKey;
    const NAME: &'static str = "namespacemanager";

    fn subscribe(self: &Arc<Self>, watches: &Watches, queue: &Queue<ManagerKey>) -> Vec<Subscription> {
        let shared = &self.shared;
        let (sent, waits) = (queue.clone(), queue.clone());
        shared.delivery_waiters.on_ended(Managers::KIND, move |subject| {
            sent.add(ManagerKey {
                namespace: Arc::clone(&subject.namespace),
                name: Arc::clone(&subject.name),
            });
        });
        shared.delivery_waiters.on_opened(move |shared| {
            shared.manager_keys().into_iter().for_each(|key| waits.add(key));
        });
        let enqueue_namespace = |of_object: bool| {
            let (shared, queue) = (Arc::clone(shared), queue.clone());
            move |namespace: &str, name: &str| {
                let namespace = if of_object { name } else { namespace };
                shared.managers_in(namespace).into_iter().for_each(|key| queue.add(key));
            }
        };
        let enqueue_manager = {
            let (shared, queue) = (Arc::clone(shared), queue.clone());
            move |namespace: &str, name: &str| {
                queue.add(ManagerKey::new(namespace, name));
                // Another takes the place of one that is gone, where there were too many.
                if shared.managers.get(namespace, name).is_none() {
                    shared.managers_in(namespace).into_iter().for_each(|key| queue.add(key));
                }
            }
        };
        let enqueue_all = {
            let (shared, queue) = (Arc::clone(shared), queue.clone());
            // Every reservation changes the settings' status: only what changes the settings enqueues everything.
            let seen = Mutex::new(None);
            move |_: &str, _: &str| {
                let config = shared.configs.get("", CONFIG_NAME);
                let settings = config.map(|config| (config.uid.clone(), config.generation));
                let mut seen = seen.lock().unwrap_or_else(PoisonError::into_inner);
                if *seen != settings {
                    *seen = settings;
                    drop(seen);
                    shared.manager_keys().into_iter().for_each(|key| queue.add(key));
                }
            }
        };
        let of_cluster_manager = {
            let (shared, queue) = (Arc::clone(shared), queue.clone());
            // Their limits bind managers. Their status is written often, and decides nothing.
            let seen = Mutex::new(BTreeMap::new());
            move |_: &str, name: &str| {
                let now = shared.cluster_managers.get("", name);
                let now = now.map(|manager| (manager.uid.clone(), manager.generation, manager.terminating));
                let mut seen = seen.lock().unwrap_or_else(PoisonError::into_inner);
                if seen.get(name) != now.as_ref() {
                    match now {
                        Some(now) => seen.insert(name.to_owned(), now),
                        None => seen.remove(name),
                    };
                    drop(seen);
                    shared.manager_keys().into_iter().for_each(|key| queue.add(key));
                }
            }
        };
        vec![
            watches.subscribe(&shared.configs, enqueue_all),
            watches.subscribe(&shared.namespaces, enqueue_namespace(true)),
            watches.subscribe(&shared.pods, enqueue_namespace(false)),
            watches.subscribe(&shared.jobs, enqueue_namespace(false)),
            watches.subscribe(&shared.managers, enqueue_manager),
            watches.subscribe(&shared.cluster_managers, of_cluster_manager),
            // Only looked up: whether the cluster manager's deletion of the namespace comes first.
            watches.subscribe(&shared.managed_namespaces, |_, _| {}),
        ]
    }

    fn synced(&self) -> bool {
        let synced = |freshness| !matches!(freshness, Freshness::NotSynced(_));
        // Pods and Jobs that may not be read make the policies that need them unknown, and stop no other (H26).
        let answered = |freshness| !matches!(freshness, Freshness::NotSynced(None));
        let shared = &self.shared;
        synced(shared.managers.freshness())
            && synced(shared.namespaces.freshness())
            && synced(shared.configs.freshness())
            && synced(shared.cluster_managers.freshness())
            && annotations::synced(shared)
            && answered(shared.pods.freshness())
            && answered(shared.jobs.freshness())
    }

    fn all(&self) -> Vec<ManagerKey> {
        self.shared.manager_keys()
    }

    async fn reconcile(self: Arc<Self>, key: ManagerKey) -> ReconcileResult {
        reconcile(Arc::clone(&self.shared), key).await
    }

    fn panicked(&self, key: &ManagerKey, message: &str) {
        report::panicked(&self.shared, key, message);
    }

    fn started(&self) {
        self.shared.starts_evaluating();
    }

    fn resync(&self) {
        report::count_phases(&self.shared);
    }
}

/// Reconciles one manager as far as possible, and returns when to reconcile it again.
async fn reconcile(shared: Arc<ControllerContext>, key: ManagerKey) -> ReconcileResult {
    if !shared.gate.is_leader() {
        // Followers keep their caches warm and leave the rest to the leader, which reconciles everything when it
        // starts.
        return ReconcileResult::Done;
    }
    let Some(mut observation) = observe::cached(&shared, &key) else { return ReconcileResult::Done };
    if let Some(error) = &observation.manager.status_error {
        // Status says what has been done: without it nothing can be decided, and it must not be overwritten.
        report::status_not_understood(&shared, &observation, error);
        return ReconcileResult::Done;
    }
    if coppice_mutants::active(Mutant::Polling) {
        drop(apply::mutant_behavior::namespace(&shared, &key).await);
    }
    if observation.behind() && shared.clients.backpressure.had_no_response_within(RECOVERY) {
        // Nothing can be decided. To write that to every status, and to revert it a moment later, helps nobody.
        return ReconcileResult::At(Instant::now() + RECOVERY / 4);
    }
    for _ in 0..MAX_STEPS {
        let never_steady =
            coppice_mutants::active(Mutant::Polling) || coppice_mutants::active(Mutant::StatusEveryLoop);
        if let Some(steady) = plan::steady(&observation).filter(|_| !never_steady) {
            return steady
                .next_check
                .map_or(ReconcileResult::Done, |at| ReconcileResult::At(shared.instant(at)));
        }
        let plan = plan::plan(&observation);
        let (applied, batch) = apply::apply(&shared, &observation, plan).await;
        report::report(&shared, &observation, &batch);
        match applied {
            Applied::Replan(manager) => observation = observe::with(&shared, &key, manager),
            Applied::CheckAt(_) if coppice_mutants::active(Mutant::Polling) => {
                return ReconcileResult::At(Instant::now() + Duration::from_secs(1));
            }
            Applied::CheckAt(None) => return ReconcileResult::Done,
            Applied::CheckAt(Some(at)) => return ReconcileResult::At(shared.instant(at)),
            Applied::CacheBehind => return ReconcileResult::Retry { category: "behind", at_least: CATCH_UP },
            Applied::Failed(error) => {
                tracing::warn!(manager = %key, %error, "reconcile failed");
                return ReconcileResult::Retry {
                    category: "api",
                    at_least: shared.clients.backpressure.remaining(),
                };
            }
        }
    }
    ReconcileResult::At(Instant::now())
}
