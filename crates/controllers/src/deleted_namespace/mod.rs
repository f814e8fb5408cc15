//! Completes the records of deletions (`DeletedNamespace`), sends the messages that they owe once a namespace is gone, withdraws the
//! records of deletions that were given up, and deletes them when they have been kept long enough.
//!
//! Watches `DeletedNamespace` and namespaces; acts on the leader alone. `observe → plan → apply → report`.
//!
//! *Relies on*: the record being stored before its namespace is deleted, by
//! [`namespace_manager`](crate::namespace_manager) and [`managed_namespace`](crate::managed_namespace). *Guarantees*: a
//! record says `Deleted` only of a namespace that a fresh read does not find; none of a deletion that has been accepted is
//! deleted before its time, unless there are too many. Nothing here touches a namespace.
//!
//! Errors: retried with backoff by the queue; a record that cannot be understood is left as it is, until it has been kept
//! long enough.

mod apply;
mod observe;
mod plan;
mod report;

use std::fmt;
use std::sync::{Arc, PoisonError, RwLock};

use coppice_kinds::DeletedNamespaces;
use coppice_runtime::controller::Controller;
use coppice_runtime::object::OwnKind as _;
use coppice_runtime::queue::{Queue, ReconcileResult};
use coppice_runtime::store::Freshness;
use coppice_runtime::watches::{Subscription, Watches};

use crate::context::ControllerContext;
use plan::OldestKept;

/// The name of a `DeletedNamespace`: the id of the decision.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RecordKey(Arc<str>);

impl fmt::Display for RecordKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The controller of `DeletedNamespace`.
pub struct DeletionRecords {
    shared: Arc<ControllerContext>,
    /// Which records are kept where there are too many; determined with every resync.
    oldest_kept: RwLock<Option<OldestKept>>,
}

impl DeletionRecords {
    /// The controller, on what all controllers share.
    pub fn new(shared: Arc<ControllerContext>) -> Self {
        Self { shared, oldest_kept: RwLock::default() }
    }
}

impl Controller for DeletionRecords {
    type Key = RecordKey;
    const NAME: &'static str = "deletednamespace";

    /// Enqueued by every change of a record, and by a namespace that is being deleted or gone, if the cache has not learned that
    /// from an answer before.
    fn subscribe(self: &Arc<Self>, watches: &Watches, queue: &Queue<RecordKey>) -> Vec<Subscription> {
        let (shared, of_record) = (Arc::clone(&self.shared), queue.clone());
        let (of_namespace, sent) = (queue.clone(), queue.clone());
        shared
            .delivery_waiters
            .on_ended(DeletedNamespaces::KIND, move |subject| sent.add(RecordKey(Arc::clone(&subject.name))));
        let enqueue_namespace = move |_: &str, name: &str| {
            if shared.namespaces.get("", name).is_none_or(|namespace| namespace.terminating) {
                for key in observe::open_records(&shared, name) {
                    of_namespace.add(key);
                }
            }
        };
        vec![
            // Only looked up: whether a decision stands matters when a record is due.
            watches.subscribe(&self.shared.managers, |_, _| {}),
            watches.subscribe(&self.shared.managed_namespaces, |_, _| {}),
            watches.subscribe(&self.shared.namespaces, enqueue_namespace),
            watches.subscribe(&self.shared.deleted_namespaces, move |_, name| {
                of_record.add(RecordKey(name.into()));
            }),
        ]
    }

    fn synced(&self) -> bool {
        let synced = |freshness| !matches!(freshness, Freshness::NotSynced(_));
        synced(self.shared.deleted_namespaces.freshness())
            && synced(self.shared.namespaces.freshness())
            && synced(self.shared.managers.freshness())
            && synced(self.shared.managed_namespaces.freshness())
    }

    fn all(&self) -> Vec<RecordKey> {
        let keys = self.shared.deleted_namespaces.keys();
        keys.into_iter().map(|(_, name)| RecordKey(name.into())).collect()
    }

    async fn reconcile(self: Arc<Self>, key: RecordKey) -> ReconcileResult {
        let oldest_kept = self.oldest_kept.read().unwrap_or_else(PoisonError::into_inner).clone();
        reconcile(&self.shared, &key, oldest_kept.as_ref()).await
    }

    fn resync(&self) {
        let oldest_kept = observe::oldest_kept(&self.shared);
        *self.oldest_kept.write().unwrap_or_else(PoisonError::into_inner) = oldest_kept;
        report::count(&self.shared);
    }
}

async fn reconcile(
    shared: &ControllerContext,
    key: &RecordKey,
    oldest_kept: Option<&OldestKept>,
) -> ReconcileResult {
    let Ok(permit) = shared.gate.permit() else { return ReconcileResult::Done };
    let Some(observation) = observe::observe(shared, key, oldest_kept) else { return ReconcileResult::Done };
    let plan = plan::plan(&observation);
    let Some(step) = plan.step else {
        return plan.next_check.map_or(ReconcileResult::Done, |at| ReconcileResult::At(shared.instant(at)));
    };
    match apply::apply(shared, &permit, &observation, &step).await {
        Ok(again) => {
            report::report(&observation, &step);
            // The change itself enqueues this record again, and so does the end of an attempt.
            let check = plan.next_check.into_iter().chain(again).min();
            check.map_or(ReconcileResult::Done, |at| ReconcileResult::At(shared.instant(at)))
        }
        Err(error) => {
            report::failed(key, &error);
            ReconcileResult::Retry {
                category: error.category(),
                at_least: shared.clients.backpressure.remaining(),
            }
        }
    }
}
