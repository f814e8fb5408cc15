//! Creates the namespace of each `Subnamespace`, gives it the quota that is asked for, and deletes it with the `Subnamespace`.
//!
//! Watches `Subnamespace`, `NamespaceTree`, namespaces and their native quotas; acts on the leader alone. `observe → plan → apply →
//! report`, with one write each time, until there is nothing to do. Caches say whether there is anything to do; every write is decided
//! on what was just read, the quota of the namespace above first, or on that and what our own writes have made of it since. Each is made
//! at the revision it was decided on. Where something ends, all is read again before every write.
//!
//! *Relies on*: the policies of the installation, which keep everybody else from writing the quotas and labels of trees. *Guarantees*:
//! at every revision a namespace's own quota and the allotments of its children are together at most its allotment; no namespace that
//! existed before is touched; none is deleted that other namespaces are below, or without an intent, fresh facts, budget and a record.
//!
//! Errors: retried with backoff by the queue, and said in the condition `Ready`.

mod apply;
mod moving;
mod observe;
mod plan;
mod report;
pub(crate) mod review;
mod round_robin;
mod seen_above;
mod unseen;

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use coppice_api::names::TREE_QUOTA_NAME;
use coppice_api::{SubnamespacePhase, SubnamespaceStatus};
use coppice_hierarchy::MAX_CHANGES;
use coppice_kinds::TreeQuota;
use coppice_runtime::controller::Controller;
use coppice_runtime::queue::{Queue, ReconcileResult};
use coppice_runtime::watches::{Subscription, Watches};
use tokio::time::Instant;

use crate::context::{FEW, TreeContext};
use crate::index::{Waiting, cascades};
use crate::last_seen::LastSeen;
use crate::position::is_detaching;
use crate::seen_trees::{SeenTrees, TreeChange};
use crate::throttle::Throttle;
use apply::SubnamespaceProgress;
use plan::{Step, SubnamespacePlan};
use round_robin::RoundRobin;
use seen_above::SeenAbove;
pub(crate) use unseen::UnseenWrites;

/// Writes in a row for one object; then others have their turn.
const MAX_ROUNDS: usize = 40;

/// Who waits for its turn looks again after so long, whatever has become of those before it.
const TURN_WITHIN: Duration = Duration::from_mins(1);

/// So long after the last one of many that wait was looked at without a change of their quota, others are: a quota changes with everything
/// that is created in its namespace, and all of them again and again would keep the program busy.
const FOLLOWING_AFTER: Duration = Duration::from_millis(250);

/// So often it is said of one at most that more are right below its namespace,
const SIZE_EVERY: Duration = Duration::from_secs(1);

/// and looked through the many below one that is deleted with all of them: with each of those something changes several times.
const CASCADE_EVERY: Duration = Duration::from_millis(100);

/// The controller of `Subnamespace`.
pub struct SubnamespaceController {
    context: Arc<TreeContext>,
    /// Which of those that wait in a namespace were looked at last.
    robin: RoundRobin,
    seen_trees: SeenTrees,
    seen_above: SeenAbove,
    /// Of those that are being deleted, where many are below them: which one it is, and whether by consent all below it go, too.
    seen_cascades: LastSeen<SubnamespaceKey, (Box<str>, bool)>,
    /// How often those below one that is deleted with all of them are looked through.
    cascades: Throttle<SubnamespaceKey>,
    /// How often it is said of a namespace that more are right below it.
    sizes: Throttle<SubnamespaceKey>,
}

/// Namespace and name of a `Subnamespace`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SubnamespaceKey {
    /// The namespace above, which it is in.
    pub parent: Arc<str>,
    /// Its name, which is that of its own namespace.
    pub name: Arc<str>,
}

impl SubnamespaceKey {
    fn new(parent: &str, name: &str) -> Self {
        Self { parent: parent.into(), name: name.into() }
    }
}

impl fmt::Display for SubnamespaceKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.parent, self.name)
    }
}

impl SubnamespaceController {
    /// The controller, on what those of trees share.
    pub fn new(context: Arc<TreeContext>) -> Self {
        Self {
            context,
            robin: RoundRobin::default(),
            seen_trees: SeenTrees::default(),
            seen_above: SeenAbove::default(),
            seen_cascades: LastSeen::default(),
            cascades: Throttle::every(CASCADE_EVERY),
            sizes: Throttle::every(SIZE_EVERY),
        }
    }

    /// The Subnamespaces of this name, wherever they are: there is one at most that created the namespace of that name. And those that
    /// are deleted with all below them, of which this may be one, or whose namespaces move up past it.
    fn enqueue_named(&self, name: &str, queue: &Queue<SubnamespaceKey>) {
        let context = &self.context;
        let mut all = context.subnamespaces.named(name);
        let moving =
            context.ending_with_parents().into_iter().filter(|object| moving::is_on_way(object, name));
        all.extend(context.cascading().into_iter().chain(moving).filter(|object| *object.name != *name));
        all.sort_by(|a, b| (&a.namespace, &a.name).cmp(&(&b.namespace, &b.name)));
        for object in all {
            queue.add(SubnamespaceKey::new(&object.namespace, &object.name));
        }
    }

    /// Those below one that is being deleted with all below it, or was to be, and whose status does not say that as it is now.
    fn enqueue_announced(&self, parent: &str, name: &str, queue: &Queue<SubnamespaceKey>) {
        let (context, key) = (&self.context, SubnamespaceKey::new(parent, name));
        let object = context.subnamespaces.get(parent, name).filter(|object| object.terminating);
        let now = context.shared.now();
        let many = object.as_deref().filter(|_| context.has_many_below(name));
        let seen = many.map(|object| (object.uid.clone(), plan::is_cascading(object, now)));
        let are_many = seen.is_some();
        // With each of many that goes its status changes, which is nothing to those that are left.
        if !self.seen_cascades.changed(key, seen) && are_many {
            return;
        }
        let Some(object) = object else { return };
        for (below, _) in context.bottom_up(name) {
            if plan::announcement_changes(&object, &below, now) {
                queue.add(SubnamespaceKey::new(&below.namespace, &below.name));
            }
        }
    }

    /// Those of trees that are being detached.
    fn enqueue_detaching(&self, queue: &Queue<SubnamespaceKey>) {
        let mut detaching = BTreeSet::new();
        self.context.trees.for_each(|tree| {
            if is_detaching(tree) {
                detaching.insert(tree.name.clone());
            }
        });
        if detaching.is_empty() {
            return;
        }
        self.context.subnamespaces.for_each(|object| {
            if detaching.contains(object.status.tree.as_str()) {
                queue.add(SubnamespaceKey::new(&object.namespace, &object.name));
            }
        });
    }

    /// Those in this namespace that do not have what they inherit from it, or do not say where they are now.
    fn enqueue_outdated(&self, parent: &str, queue: &Queue<SubnamespaceKey>) {
        let context = &self.context;
        let children = context.subnamespaces.count(parent);
        let Some(above) = context.shared.namespaces.get("", parent).filter(|_| children > 0) else {
            // Of one that is gone, or that none are in, nothing is kept.
            self.seen_above.remove_namespace(parent);
            return;
        };
        let Ok(position) = context.position(parent) else { return };
        if children <= FEW {
            self.seen_above.remove_namespace(parent);
        } else if !self.seen_above.changed(&above, &position) {
            return;
        }
        let children = context.subnamespaces.list(parent);
        let inherits = !position.spec.metadata.inherited.is_empty();
        let path = position.path();
        for object in &children {
            let above = object.status.path.strip_suffix(&*object.name);
            let elsewhere = above.is_some_and(|above| above.strip_suffix('/') != Some(&path));
            if elsewhere && object.status.namespace_uid.is_some() {
                queue.add(SubnamespaceKey::new(parent, &object.name));
            }
        }
        for object in children.iter().filter(|object| inherits || !object.status.metadata.is_empty()) {
            let namespace = context.shared.namespaces.get("", &object.name);
            let position = position.below(&object.name);
            if namespace
                .is_some_and(|namespace| plan::metadata_differs(object, &above, &namespace, &position))
            {
                queue.add(SubnamespaceKey::new(parent, &object.name));
            }
        }
    }

    /// The same, anywhere in a tree.
    fn enqueue_outdated_of(&self, tree: &str, queue: &Queue<SubnamespaceKey>) {
        let context = &self.context;
        let tree_now = context.trees.get("", tree);
        let spec = tree_now.as_deref().and_then(|tree| tree.spec.as_ref().ok());
        let inherits = spec.is_some_and(|spec| !spec.metadata.inherited.is_empty());
        let mut parents: BTreeSet<Box<str>> = BTreeSet::new();
        context.subnamespaces.for_each(|object| {
            if object.status.tree == tree && (inherits || !object.status.metadata.is_empty()) {
                parents.insert(object.namespace.clone());
            }
        });
        for parent in &parents {
            self.enqueue_outdated(parent, queue);
        }
    }

    /// Those in this namespace whose allotments its ledger says are being changed (transfers begin such changes, too), and those that wait
    /// for something; of very many some, [others](Self::enqueue_following) after them, and the next time it goes on with those.
    fn enqueue_waiting(&self, parent: &str, queue: &Queue<SubnamespaceKey>) {
        let context = &self.context;
        let quota = context.quotas.get(parent, TREE_QUOTA_NAME);
        let changed = changed_by(quota.as_deref());
        let free = MAX_CHANGES.saturating_sub(changed.len());
        let mut names: BTreeMap<Box<str>, bool> = context.with_waiting(parent, |waiting| {
            let begun = waiting.iter().filter(|(_, uid)| changed.contains(&***uid));
            let chosen = self.robin.next(parent, &not_begun(waiting, &changed), free);
            let chosen = chosen.into_iter().map(|name| (name.into(), false));
            begun.map(|(name, _)| (name.clone(), true)).chain(chosen).collect()
        });
        if names.values().filter(|has_begun| **has_begun).count() < changed.len() {
            // What is changed by a transfer does not wait.
            let children = context.subnamespaces.list(parent);
            let begun = children.iter().filter(|object| changed.contains(&*object.uid));
            names.extend(begun.map(|object| (object.name.clone(), true)));
        }
        for (name, has_begun) in names {
            let key = SubnamespaceKey::new(parent, &name);
            // Those that wait for their turn are reconciled again when it comes.
            if !context.turns.is_waiting(&key, has_begun) {
                queue.add(key);
            }
        }
    }

    /// Of very many that wait in this namespace those that follow the ones that were looked at: what these could not have may be enough for
    /// one of them.
    fn enqueue_following(&self, parent: &str, queue: &Queue<SubnamespaceKey>) {
        let context = &self.context;
        let quota = context.quotas.get(parent, TREE_QUOTA_NAME);
        let changed = changed_by(quota.as_deref());
        let free = MAX_CHANGES.saturating_sub(changed.len());
        let keys: Vec<SubnamespaceKey> = context.with_waiting(parent, |waiting| {
            let chosen = self.robin.following(parent, &not_begun(waiting, &changed), free);
            chosen.into_iter().map(|name| SubnamespaceKey::new(parent, name)).collect()
        });
        let due = Instant::now() + FOLLOWING_AFTER;
        for key in keys {
            if !context.turns.is_waiting(&key, false) {
                queue.add_at(key, due);
            }
        }
    }

    /// Those that wait for something, wherever they are, when a tree has changed. Of many only those that may have waited for that: a tree
    /// that grows says every second how large it is.
    fn enqueue_waiting_for_tree(&self, change: TreeChange, queue: &Queue<SubnamespaceKey>) {
        let context = &self.context;
        let all = change == TreeChange::Changed || context.count_waiting() <= FEW;
        if !all && change == TreeChange::Same {
            return;
        }
        for object in context.waiting() {
            if all || object.status.phase == Some(SubnamespacePhase::Refused) {
                queue.add(SubnamespaceKey::new(&object.namespace, &object.name));
            }
        }
    }
}

/// The uids of those whose allotments a ledger says are being changed.
fn changed_by(quota: Option<&TreeQuota>) -> HashSet<&str> {
    let ledger = quota.and_then(|quota| quota.quota.as_ref().ok()).map(|quota| &quota.ledger);
    ledger.into_iter().flat_map(|ledger| ledger.changes.keys()).map(String::as_str).collect()
}

/// The names of those that wait and of which no change has begun, in order.
fn not_begun<'a>(waiting: &'a Waiting, changed: &HashSet<&str>) -> Vec<&'a str> {
    waiting.iter().filter(|(_, uid)| !changed.contains(&***uid)).map(|(name, _)| &**name).collect()
}

/// One is being looked at. At the end of that, however it comes, those that follow it are looked at if it is the last before them.
struct LookedAt<'a> {
    controller: &'a SubnamespaceController,
    key: &'a SubnamespaceKey,
}

impl Drop for LookedAt<'_> {
    fn drop(&mut self) {
        let Self { controller, key } = self;
        if controller.robin.looked_at(&key.parent, &key.name)
            && let Some(queue) = controller.context.turns.queue()
        {
            controller.enqueue_following(&key.parent, queue);
        }
    }
}

/// Whether there is nothing to do but to say that more are right below a namespace.
fn says_only_size(plan: &SubnamespacePlan, stored: &SubnamespaceStatus) -> bool {
    let children = plan.status.children;
    plan.step == Step::Nothing
        && children > stored.children
        && plan.status == SubnamespaceStatus { children, ..stored.clone() }
}

impl Controller for SubnamespaceController {
    type Key = SubnamespaceKey;
    const NAME: &'static str = "subnamespace";

    fn subscribe(self: &Arc<Self>, watches: &Watches, queue: &Queue<SubnamespaceKey>) -> Vec<Subscription> {
        let context = &self.context;
        context.turns.set_queue(queue);
        let with = || (Arc::clone(self), queue.clone());
        let copies = context.copies.subscribe(watches, &{
            let (this, queue) = with();
            Arc::new(move |_: &str| this.enqueue_detaching(&queue))
        });
        let others = [
            // Only looked up: the resync each minute is soon enough for what waits for other settings.
            watches.subscribe(&context.shared.configs, |_, _| {}),
            watches.subscribe(&context.trees, {
                let (this, queue) = with();
                move |_, name| {
                    let change = this.seen_trees.change(&this.context.trees, name);
                    // How large it says it is concerns nobody's labels; with each of many that comes or goes it says that again.
                    if change == TreeChange::Changed || this.context.subnamespaces.len() <= FEW {
                        this.context.read_annotations();
                        this.enqueue_outdated_of(name, &queue);
                    }
                    this.enqueue_detaching(&queue);
                    this.enqueue_waiting_for_tree(change, &queue);
                }
            }),
            watches.subscribe(&context.shared.namespaces, {
                let (this, queue) = with();
                move |_, name| {
                    this.enqueue_named(name, &queue);
                    this.enqueue_waiting(name, &queue);
                    this.enqueue_outdated(name, &queue);
                }
            }),
            watches.subscribe(&context.quotas, {
                let (this, queue) = with();
                move |namespace, _| {
                    this.enqueue_named(namespace, &queue);
                    this.enqueue_waiting(namespace, &queue);
                }
            }),
            watches.subscribe(&context.transfers, {
                let (this, queue) = with();
                move |_, _| this.enqueue_detaching(&queue)
            }),
            watches.subscribe(&context.subnamespaces, {
                let (this, queue) = with();
                move |parent, name| {
                    this.context.read_annotations_of(parent, name);
                    queue.add(SubnamespaceKey::new(parent, name));
                    // How many children there are is said by the namespace above.
                    this.enqueue_named(parent, &queue);
                    this.enqueue_announced(parent, name, &queue);
                }
            }),
        ];
        copies.into_iter().chain(others).collect()
    }

    fn synced(&self) -> bool {
        self.context.synced()
    }

    fn all(&self) -> Vec<SubnamespaceKey> {
        let keys = self.context.subnamespaces.keys();
        keys.into_iter().map(|(parent, name)| SubnamespaceKey::new(&parent, &name)).collect()
    }

    async fn reconcile(self: Arc<Self>, key: SubnamespaceKey) -> ReconcileResult {
        let context = &self.context;
        let _wakes = context.turns.wakes_next(&key.parent);
        let number = context.turns.leave(&key);
        let Ok(permit) = context.shared.gate.permit() else { return ReconcileResult::Done };
        let _looked_at = LookedAt { controller: &self, key: &key };
        // Who has waited for its turn does not wait again.
        if number.is_none()
            && self.is_large_cascade(&key)
            && let Some(next) = self.cascades.until(&key)
        {
            return ReconcileResult::Waits(next);
        }
        let Some(observation) = observe::cached(context, &key) else {
            context.unseen.remove_write(&key.parent, &key.name);
            return ReconcileResult::Done;
        };
        if let Some(error) = &observation.object.status_error {
            // Status says what was given: without it nothing can be decided, and it must not be overwritten.
            report::status_not_understood(&context.shared, &key, error);
            return ReconcileResult::Done;
        }
        if let Some(until) = context.unseen.until(&observation.object) {
            // Its watch brings it back.
            return ReconcileResult::At(until);
        }
        let plan = plan::plan(&observation);
        if plan.is_steady(&observation.object.status) {
            return self.at(plan.next_check);
        }
        // Who has waited for its turn to say that does not begin again.
        if number.is_none()
            && says_only_size(&plan, &observation.object.status)
            && let Some(next) = self.sizes.until(&key)
        {
            return ReconcileResult::At(next);
        }
        if apply::says_ready(context, &permit, &observation.object, &plan).await {
            return self.at(plan.next_check);
        }
        apply::add_finalizer(context, &permit, &observation.object, &plan).await;
        // One at a time for each namespace above: two that change its quota at once would only conflict.
        let has_begun = observation.is_being_changed() == Some(true);
        let Some(turn) = context.turns.take_or_wait(&key, has_begun, number) else {
            return ReconcileResult::Waits(Instant::now() + TURN_WITHIN);
        };
        let (mut known, mut turn) = (None, Some(turn));
        // The caches may know more than before.
        if let Some(result) = self.steady(&key) {
            return result;
        }
        for _ in 0..MAX_ROUNDS {
            if turn.is_none() {
                turn = Some(context.turns.turn(&key.parent).await);
            }
            match apply::next(context, &permit, &key, known.take()).await {
                SubnamespaceProgress::Again => turn = None,
                // With what is known of the quota the turn is kept.
                SubnamespaceProgress::Written(after) => known = Some(after),
                SubnamespaceProgress::CheckAt(at) => return self.at(at),
                SubnamespaceProgress::Failed(error) => {
                    report::failed(&key, &error.to_string());
                    let at_least = context.shared.clients.backpressure.remaining();
                    return ReconcileResult::Retry { category: "api", at_least };
                }
            }
        }
        ReconcileResult::Retry { category: "rounds", at_least: Duration::ZERO }
    }
}

impl SubnamespaceController {
    /// Whether it may take many below it with it, of which one after another goes.
    fn is_large_cascade(&self, key: &SubnamespaceKey) -> bool {
        let object = self.context.subnamespaces.get(&key.parent, &key.name);
        object.is_some_and(|object| cascades(&object)) && self.context.has_many_below(&key.name)
    }

    /// What comes of one for which there is nothing to do by the caches; none if there is something.
    fn steady(&self, key: &SubnamespaceKey) -> Option<ReconcileResult> {
        let observation = observe::cached(&self.context, key)?;
        let plan = plan::plan(&observation);
        plan.is_steady(&observation.object.status).then(|| self.at(plan.next_check))
    }

    fn at(&self, next: Option<jiff::Timestamp>) -> ReconcileResult {
        next.map_or(ReconcileResult::Done, |at| {
            ReconcileResult::At(self.context.shared.instant(at).max(Instant::now()))
        })
    }
}

#[cfg(test)]
#[path = "many_tests.rs"]
mod tests;
