//! Keeps the quota and the labels of the root of each `NamespaceTree`, and says how large the tree is.
//!
//! Watches `NamespaceTree`, `Subnamespace`, namespaces and their native quotas; acts on the leader alone. `observe → plan → apply →
//! report`, with one write each time, decided on what was just read.
//!
//! *Relies on*: the policies of the installation, which keep everybody else from writing the quotas and labels of trees. *Guarantees*:
//! a namespace is taken into a tree only because an administrator names it; of a tree that is deleted nothing stays but its namespace.
//!
//! Errors: retried with backoff by the queue, and said in the condition `Ready`.

mod apply;
mod observe;
mod plan;
mod report;

use std::sync::Arc;
use std::time::Duration;

use coppice_runtime::controller::Controller;
use coppice_runtime::queue::{Queue, ReconcileResult};
use coppice_runtime::watches::{Subscription, Watches};
use tokio::time::Instant;

use crate::context::TreeContext;
use crate::throttle::Throttle;
use apply::TreeProgress;

/// Writes in a row for one object; then others have their turn.
const MAX_ROUNDS: usize = 20;

/// So often it is said of a tree at most that it is larger.
const SIZE_EVERY: Duration = Duration::from_secs(1);

/// The controller of `NamespaceTree`. Its keys are names.
pub struct NamespaceTreeController {
    context: Arc<TreeContext>,
    /// How often it is said of a tree that it is larger.
    sizes: Throttle<Arc<str>>,
}

impl NamespaceTreeController {
    /// The controller, on what those of trees share.
    pub fn new(context: Arc<TreeContext>) -> Self {
        Self { context, sizes: Throttle::every(SIZE_EVERY) }
    }

    /// The trees with this root.
    fn enqueue_of_root(&self, namespace: &str, queue: &Queue<Arc<str>>) {
        self.context.trees.for_each(|tree| {
            if tree.spec.as_ref().is_ok_and(|spec| spec.root == namespace) {
                queue.add((&*tree.name).into());
            }
        });
    }

    /// Those that are being deleted: what is still in them is not always below a root that is there.
    fn enqueue_ending(&self, queue: &Queue<Arc<str>>) {
        self.context.trees.for_each(|tree| {
            if tree.terminating {
                queue.add((&*tree.name).into());
            }
        });
    }
}

impl Controller for NamespaceTreeController {
    type Key = Arc<str>;
    const NAME: &'static str = "namespacetree";

    fn subscribe(self: &Arc<Self>, watches: &Watches, queue: &Queue<Arc<str>>) -> Vec<Subscription> {
        let context = &self.context;
        let with = || (Arc::clone(self), queue.clone());
        vec![
            watches.subscribe(&context.trees, {
                let queue = queue.clone();
                move |_, name| queue.add(name.into())
            }),
            watches.subscribe(&context.shared.namespaces, {
                let (this, queue) = with();
                move |_, name| {
                    this.enqueue_of_root(name, &queue);
                    this.enqueue_ending(&queue);
                }
            }),
            watches.subscribe(&context.quotas, {
                let (this, queue) = with();
                move |namespace, _| this.enqueue_of_root(namespace, &queue)
            }),
            watches.subscribe(&context.subnamespaces, {
                let (this, queue) = with();
                move |parent, name| {
                    this.enqueue_of_root(parent, &queue);
                    this.enqueue_ending(&queue);
                    let object = this.context.subnamespaces.get(parent, name);
                    if let Some(tree) = object.filter(|object| !object.status.tree.is_empty()) {
                        queue.add(tree.status.tree.as_str().into());
                    }
                }
            }),
        ]
    }

    fn synced(&self) -> bool {
        self.context.synced()
    }

    fn all(&self) -> Vec<Arc<str>> {
        self.context.trees.keys().into_iter().map(|(_, name)| name.into()).collect()
    }

    fn resync(&self) {
        self.context.metrics.count(&self.context);
    }

    async fn reconcile(self: Arc<Self>, name: Arc<str>) -> ReconcileResult {
        let context = &self.context;
        let Ok(permit) = context.shared.gate.permit() else { return ReconcileResult::Done };
        let Some(observation) = observe::cached(context, &name) else { return ReconcileResult::Done };
        if let Some(error) = &observation.tree.status_error {
            report::status_not_understood(&context.shared, &name, error);
            return ReconcileResult::Done;
        }
        let plan = plan::plan(&observation);
        if plan.is_steady(&observation.tree.status) {
            return at(context, plan.next_check);
        }
        if plan.says_only_size(&observation.tree.status) {
            if plan.grows(&observation.tree.status)
                && let Some(next) = self.sizes.until(&name)
            {
                return ReconcileResult::At(next);
            }
            if apply::says_size(context, &permit, &observation.tree, &plan).await {
                return at(context, plan.next_check);
            }
        }
        let root = observation.tree.spec.as_ref().map(|spec| spec.root.clone()).unwrap_or_default();
        for _ in 0..MAX_ROUNDS {
            let progress = {
                let _wakes = context.turns.wakes_next(&root);
                let _turn = context.turns.turn(&root).await;
                apply::next(context, &permit, &name).await
            };
            match progress {
                TreeProgress::Again => {}
                TreeProgress::CheckAt(next) => return at(context, next),
                TreeProgress::Failed(error) => {
                    report::failed(&name, &error.to_string());
                    let at_least = context.shared.clients.backpressure.remaining();
                    return ReconcileResult::Retry { category: "api", at_least };
                }
            }
        }
        ReconcileResult::Retry { category: "rounds", at_least: Duration::ZERO }
    }
}

fn at(context: &TreeContext, next: Option<jiff::Timestamp>) -> ReconcileResult {
    next.map_or(ReconcileResult::Done, |at| {
        ReconcileResult::At(context.shared.instant(at).max(Instant::now()))
    })
}
