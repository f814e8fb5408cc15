//! Moves what each `QuotaTransfer` says from its namespace to another one of the same tree.
//!
//! Watches `QuotaTransfer`, `Subnamespace`, `NamespaceTree`, namespaces and their native quotas; acts on the leader alone. `observe →
//! plan → apply → report`, with one write each time, until there is nothing to do. The changes of allotments that it begins in the
//! ledgers are carried out by the controller of `Subnamespace`.
//!
//! *Relies on*: the policies of the installation, which say who may ask and who may approve, and keep everybody else from the quotas of
//! trees. *Guarantees*: an amount is in one ledger at every revision, and nobody can use it before it has arrived or returned; what has
//! ended is not done again.
//!
//! Errors: retried with backoff by the queue, and said in the condition `Ready`.

mod apply;
mod observe;
mod plan;
mod report;
pub(crate) mod review;
mod route;

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use coppice_api::names::TREE_QUOTA_NAME;
use coppice_kinds::{QuotaTransferObject, TreeQuota};
use coppice_runtime::controller::Controller;
use coppice_runtime::queue::{Queue, ReconcileResult};
use coppice_runtime::store::Freshness;
use coppice_runtime::watches::{Subscription, Watches};
use tokio::time::Instant;

use crate::context::TreeContext;
use apply::TransferProgress;

/// Writes in a row for one object; then others have their turn.
const MAX_ROUNDS: usize = 40;

/// The controller of `QuotaTransfer`.
pub struct QuotaTransferController {
    context: Arc<TreeContext>,
}

/// Namespace and name of a `QuotaTransfer`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct QuotaTransferKey {
    /// The namespace that it is in, which is the source.
    pub source: Arc<str>,
    /// Its name.
    pub name: Arc<str>,
}

impl QuotaTransferKey {
    fn new(source: &str, name: &str) -> Self {
        Self { source: source.into(), name: name.into() }
    }

    /// Of what ledgers know it by.
    fn of_id(id: &str) -> Option<Self> {
        let mut parts = id.split('/');
        Some(Self::new(parts.next()?, parts.next()?))
    }
}

impl fmt::Display for QuotaTransferKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.source, self.name)
    }
}

/// By what ledgers know a transfer: one that is created later with the same name is another.
fn id(object: &QuotaTransferObject) -> String {
    format!("{}/{}/{}", object.namespace, object.name, object.uid)
}

/// The transfers that a ledger holds something for.
fn held(quota: &TreeQuota) -> impl Iterator<Item = &str> {
    let ledgers = quota.quota.iter().map(|quota| &quota.ledger);
    ledgers.flat_map(|ledger| ledger.held.keys()).map(String::as_str)
}

impl QuotaTransferController {
    /// The controller, on what those of trees share.
    pub fn new(context: Arc<TreeContext>) -> Self {
        Self { context }
    }

    /// Those on whose way a namespace is, those that it holds something for, and those whose way is not known yet.
    fn enqueue_through(&self, namespace: &str, queue: &Queue<QuotaTransferKey>) {
        self.context.transfers.for_each(|object| {
            let path = &object.status.path;
            let waits = object.status.ended_at.is_none()
                && (path.is_empty() || path.iter().any(|stop| stop.namespace == namespace));
            if waits {
                queue.add(QuotaTransferKey::new(&object.namespace, &object.name));
            }
        });
        if let Some(quota) = self.context.quotas.get(namespace, TREE_QUOTA_NAME) {
            held(&quota).filter_map(QuotaTransferKey::of_id).for_each(|key| queue.add(key));
        }
    }
}

impl Controller for QuotaTransferController {
    type Key = QuotaTransferKey;
    const NAME: &'static str = "quota_transfer";

    fn subscribe(self: &Arc<Self>, watches: &Watches, queue: &Queue<QuotaTransferKey>) -> Vec<Subscription> {
        let context = &self.context;
        let with = || (Arc::clone(self), queue.clone());
        vec![
            watches.subscribe(&context.transfers, {
                let queue = queue.clone();
                move |source, name| queue.add(QuotaTransferKey::new(source, name))
            }),
            watches.subscribe(&context.quotas, {
                let (this, queue) = with();
                move |namespace, _| this.enqueue_through(namespace, &queue)
            }),
            watches.subscribe(&context.subnamespaces, {
                let (this, queue) = with();
                move |_, name| this.enqueue_through(name, &queue)
            }),
            watches.subscribe(&context.trees, {
                let (this, queue) = with();
                move |_, _| this.all().into_iter().for_each(|key| queue.add(key))
            }),
            // Only looked up.
            watches.subscribe(&context.shared.namespaces, |_, _| {}),
        ]
    }

    fn synced(&self) -> bool {
        self.context.synced() && !matches!(self.context.transfers.freshness(), Freshness::NotSynced(_))
    }

    fn all(&self) -> Vec<QuotaTransferKey> {
        let mut all: BTreeSet<QuotaTransferKey> = BTreeSet::new();
        self.context.transfers.for_each(|object| {
            all.insert(QuotaTransferKey::new(&object.namespace, &object.name));
        });
        self.context.quotas.for_each(|quota| all.extend(held(quota).filter_map(QuotaTransferKey::of_id)));
        all.into_iter().collect()
    }

    async fn reconcile(self: Arc<Self>, key: QuotaTransferKey) -> ReconcileResult {
        let context = &self.context;
        let Ok(permit) = context.shared.gate.permit() else { return ReconcileResult::Done };
        if let Err(error) = apply::release_left_over(context, &permit, &key).await {
            return self.failed(&key, &error.to_string());
        }
        let Some(observation) = observe::cached(context, &key) else { return ReconcileResult::Done };
        if let Some(error) = &observation.object.status_error {
            // Status says what was taken: without it nothing can be decided, and it must not be overwritten.
            report::status_not_understood(&context.shared, &key, error);
            return ReconcileResult::Done;
        }
        let plan = plan::plan(&observation);
        if plan.is_steady(&observation.object.status) {
            return self.at(plan.next_check);
        }
        for _ in 0..MAX_ROUNDS {
            match apply::next(context, &permit, &key).await {
                TransferProgress::Again => {}
                TransferProgress::CheckAt(at) => return self.at(at),
                TransferProgress::Failed(error) => return self.failed(&key, &error.to_string()),
            }
        }
        ReconcileResult::Retry { category: "rounds", at_least: Duration::ZERO }
    }
}

impl QuotaTransferController {
    fn at(&self, next: Option<jiff::Timestamp>) -> ReconcileResult {
        next.map_or(ReconcileResult::Done, |at| {
            ReconcileResult::At(self.context.shared.instant(at).max(Instant::now()))
        })
    }

    fn failed(&self, key: &QuotaTransferKey, error: &str) -> ReconcileResult {
        report::failed(key, error);
        let at_least = self.context.shared.clients.backpressure.remaining();
        ReconcileResult::Retry { category: "api", at_least }
    }
}
