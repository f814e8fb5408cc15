//! Deletes the namespace of each `NamespaceExpiry` when its time has come.
//!
//! Watches `NamespaceExpiry`, namespaces and `CoppiceConfig`; acts on the leader alone. `observe → plan → apply → report`, with one write
//! of status or one deletion each time.
//!
//! *Relies on*: the operator, which follows what becomes of the record of a deletion, and keeps the settings. *Guarantees*: no
//! namespace is deleted before its time and its notice, and none without an intent in status, fresh facts, budget and a record.
//!
//! Errors: retried with backoff by the queue; a deletion that failed is written into status with its next attempt.

mod apply;
mod observe;
mod plan;
mod report;

use std::sync::Arc;
use std::time::Duration;

use coppice_controllers::{Applied, ControllerContext};
use coppice_runtime::controller::Controller;
use coppice_runtime::queue::{Queue, ReconcileResult};
use coppice_runtime::store::{Freshness, Store};
use coppice_runtime::watches::{Subscription, Watches};
use tokio::time::Instant;

use crate::object::Expiries;

/// The controller of `NamespaceExpiry`. Its keys are names.
pub struct NamespaceExpiries {
    shared: Arc<ControllerContext>,
    expiries: Store<Expiries>,
}

impl NamespaceExpiries {
    /// The controller, on what all controllers share.
    pub fn new(shared: Arc<ControllerContext>) -> Self {
        Self { shared, expiries: Store::default() }
    }
}

impl Controller for NamespaceExpiries {
    type Key = Arc<str>;
    const NAME: &'static str = "namespaceexpiry";

    /// Enqueued by every change of its object, and of the namespace.
    fn subscribe(self: &Arc<Self>, watches: &Watches, queue: &Queue<Arc<str>>) -> Vec<Subscription> {
        let (this, of_namespace, of_expiry) = (Arc::clone(self), queue.clone(), queue.clone());
        vec![
            // Only looked up: the resync each minute is soon enough for what waits for other settings.
            watches.subscribe(&self.shared.configs, |_, _| {}),
            watches.subscribe(&self.shared.namespaces, move |_, name| {
                if this.expiries.get("", name).is_some() {
                    of_namespace.add(name.into());
                }
            }),
            watches.subscribe(&self.expiries, move |_, name| of_expiry.add(name.into())),
        ]
    }

    fn synced(&self) -> bool {
        let synced = |freshness| !matches!(freshness, Freshness::NotSynced(_));
        synced(self.expiries.freshness())
            && synced(self.shared.namespaces.freshness())
            && synced(self.shared.configs.freshness())
    }

    fn all(&self) -> Vec<Arc<str>> {
        self.expiries.keys().into_iter().map(|(_, name)| name.into()).collect()
    }

    async fn reconcile(self: Arc<Self>, name: Arc<str>) -> ReconcileResult {
        let Ok(permit) = self.shared.gate.permit() else { return ReconcileResult::Done };
        let Some(observation) = observe::cached(&self, &name) else { return ReconcileResult::Done };
        if let Some(error) = &observation.expiry.status_error {
            // Status says what has been done: without it nothing can be decided, and it must not be overwritten.
            report::status_not_understood(&name, error);
            return ReconcileResult::Done;
        }
        let plan = plan::plan(&observation);
        let (applied, batch) = apply::apply(&self, &permit, &observation, plan).await;
        report::report(&self.shared, &observation.expiry, &batch.events);
        match applied {
            Applied::Replan(_) => ReconcileResult::At(Instant::now()),
            Applied::CheckAt(None) => ReconcileResult::Done,
            Applied::CheckAt(Some(at)) => ReconcileResult::At(self.shared.instant(at)),
            Applied::CacheBehind => ReconcileResult::Retry { category: "behind", at_least: Duration::ZERO },
            Applied::Failed(error) => {
                report::failed(&name, &error);
                let at_least = self.shared.clients.backpressure.remaining();
                ReconcileResult::Retry { category: "api", at_least }
            }
        }
    }
}
