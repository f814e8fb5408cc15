//! Copies objects of each namespace of a tree to every namespace below it, as the tree says for each kind: its `RoleBinding`s that refer to
//! `ClusterRole`s, so that whoever has a role in a namespace has it below; its `LimitRange`s; its `NetworkPolicy`s.
//!
//! Watches these, `NamespaceTree`, `Subnamespace`, namespaces and their native quotas; acts on the leader alone. A key is a
//! namespace that copies are made in: `observe → plan → apply → report` for all that it is to have, however often, until it has that.
//! Copies are made on what the caches know; nothing is deleted but on what was just read of all above it, and as it was before that.
//!
//! *Relies on*: the policies of the installation, which keep everybody else from writing copies. *Guarantees*: only objects with our
//! label are changed or deleted; a copy is never a source; nothing is deleted while anything that says so is stale or unknown; a new
//! namespace has its quota, and what limits those who work in it, before anybody has rights in it.
//!
//! Errors: one object that is refused does not stop the others. Retried with backoff by the queue, and said in the condition
//! `Propagated` of the `Subnamespace`.

mod apply;
mod observe;
mod plan;
mod report;
mod seen_links;
mod targets;

use std::collections::BTreeSet;
use std::sync::Arc;

use coppice_runtime::controller::Controller;
use coppice_runtime::queue::{Queue, ReconcileResult};
use coppice_runtime::watches::{Subscription, Watches};

use crate::context::{FEW, TreeContext};
use crate::seen_trees::{SeenTrees, TreeChange};
use apply::PropagationProgress;
pub(crate) use observe::{Named, SharedAbove};
use seen_links::SeenLinks;

/// The controller of copies; its keys are names of namespaces.
pub struct PropagationController {
    context: Arc<TreeContext>,
    seen_trees: SeenTrees,
    seen_links: SeenLinks,
}

impl PropagationController {
    /// The controller, on what those of trees share.
    pub fn new(context: Arc<TreeContext>) -> Self {
        Self { context, seen_trees: SeenTrees::default(), seen_links: SeenLinks::default() }
    }

    /// All, when a tree has changed. Where they are many, not for how large it says it is.
    fn enqueue_of_tree(&self, tree: &str, queue: &Queue<Arc<str>>) {
        let change = self.seen_trees.change(&self.context.trees, tree);
        if change == TreeChange::Changed || self.context.created() <= FEW as u64 {
            for key in self.all() {
                queue.add(key);
            }
        }
    }

    /// The namespace of a Subnamespace and all below it. Where many are right below it, only if they may be elsewhere now: with each of them its
    /// status changes.
    fn enqueue_of_subnamespace(&self, parent: &str, name: &str, queue: &Queue<Arc<str>>) {
        let all = &self.context.subnamespaces;
        if all.count(name) <= FEW {
            self.seen_links.remove_link(parent, name);
        } else if !self.seen_links.changed(all, parent, name) {
            return queue.add(name.into());
        }
        self.enqueue_from(name, queue);
    }

    /// A namespace and all below it.
    fn enqueue_from(&self, namespace: &str, queue: &Queue<Arc<str>>) {
        queue.add(namespace.into());
        self.context.below(namespace).into_iter().for_each(|below| queue.add(below));
    }
}

impl Controller for PropagationController {
    type Key = Arc<str>;
    const NAME: &'static str = "propagation";

    fn subscribe(self: &Arc<Self>, watches: &Watches, queue: &Queue<Arc<str>>) -> Vec<Subscription> {
        let context = &self.context;
        let with = || (Arc::clone(self), queue.clone());
        let copied = context.copies.subscribe(watches, &{
            let (this, queue) = with();
            Arc::new(move |namespace: &str| this.enqueue_from(namespace, &queue))
        });
        let others = [
            watches.subscribe(&context.subnamespaces, {
                let (this, queue) = with();
                move |parent, name| this.enqueue_of_subnamespace(parent, name, &queue)
            }),
            watches.subscribe(&context.trees, {
                let (this, queue) = with();
                move |_, name| this.enqueue_of_tree(name, &queue)
            }),
            watches.subscribe(&context.shared.namespaces, {
                let queue = queue.clone();
                move |_, name| queue.add(name.into())
            }),
            watches.subscribe(&context.quotas, {
                let queue = queue.clone();
                move |namespace, _| queue.add(namespace.into())
            }),
        ];
        copied.into_iter().chain(others).collect()
    }

    fn synced(&self) -> bool {
        self.context.synced() && self.context.copies.synced()
    }

    /// Those that copies belong into, and those that have some.
    fn all(&self) -> Vec<Arc<str>> {
        let mut all: BTreeSet<Arc<str>> = BTreeSet::new();
        self.context.subnamespaces.for_each(|object| {
            if object.status.namespace_uid.is_some() {
                all.insert(object.name.as_ref().into());
            }
        });
        self.context.copies.for_each(|object| {
            if object.origin.is_some() {
                all.insert(object.namespace.as_ref().into());
            }
        });
        all.into_iter().collect()
    }

    async fn reconcile(self: Arc<Self>, namespace: Arc<str>) -> ReconcileResult {
        let context = &self.context;
        let Ok(permit) = context.shared.gate.permit() else { return ReconcileResult::Done };
        match apply::apply(context, &permit, &namespace).await {
            PropagationProgress::Done => ReconcileResult::Done,
            PropagationProgress::Outdated => ReconcileResult::retry("conflict"),
            PropagationProgress::Failed(error) => {
                report::failed(&namespace, &error.to_string());
                let at_least = context.shared.clients.backpressure.remaining();
                ReconcileResult::Retry { category: "api", at_least }
            }
        }
    }
}
