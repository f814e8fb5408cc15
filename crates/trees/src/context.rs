//! What the controllers of trees share.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use coppice_api::Reason;
use coppice_api::names::{LABEL_PARENT, LABEL_ROOT, LABEL_SUBNAMESPACE};
use coppice_controllers::{ControllerContext, first_stale};
use coppice_hierarchy::bottom_up;
use coppice_kinds::{NamespaceTrees, QuotaTransfers, SubnamespaceObject, Subnamespaces, Tree, TreeQuotas};
use coppice_lifecycle::facts::NamespaceFacts;
use coppice_runtime::store::{Freshness, Store};

use crate::copies::CopyStores;
use crate::index::{SubnamespaceIndex, Waiting};
use crate::metadata::annotations_to_read;
use crate::metrics::TreeMetrics;
use crate::position::{Above, Place, Position, above, is_detaching};
use crate::propagation::{Named, SharedAbove};
use crate::subnamespace::UnseenWrites;
use crate::turns::Turns;

/// No path has more names: a tree is at most 50 deep.
pub(crate) const MAX_PATH: usize = 64;
/// Of so many all are looked at whenever something changes that may concern them. Of more, those alone that it does concern, or some at a
/// time: with each of thousands something changes for all of the others.
pub(crate) const FEW: usize = 64;
/// A Subnamespace, and the namespace that it created, if that is there.
pub(crate) type Below = (Arc<SubnamespaceObject>, Option<Arc<NamespaceFacts>>);

/// No tree has more namespaces.
const MAX_BELOW: usize = 10_000;

/// A tree, and namespace and name of a Subnamespace in it.
type Creation = (Box<str>, Box<str>, Box<str>);

/// Why something is not known, or not done.
pub(crate) type Why = (Reason, String);

/// What all controllers share, and the caches of trees.
pub struct TreeContext {
    /// What controllers of every program share.
    pub shared: ControllerContext,
    /// Every `NamespaceTree`.
    pub(crate) trees: Store<NamespaceTrees>,
    /// Every `Subnamespace`.
    pub(crate) subnamespaces: Store<Subnamespaces>,
    /// The native quotas of their namespaces.
    pub(crate) quotas: Store<TreeQuotas>,
    /// Every `QuotaTransfer`.
    pub(crate) transfers: Store<QuotaTransfers>,
    /// What is copied down trees.
    pub(crate) copies: CopyStores,
    /// What is measured of trees.
    pub(crate) metrics: TreeMetrics,
    /// What was written of Subnamespaces and is not in their cache yet.
    pub(crate) unseen: UnseenWrites,
    /// Whose turn it is to change the quota of a namespace.
    pub(crate) turns: Turns,
    /// One read of each namespace and those above it, with the objects of these names, for all right below it that need it.
    reads_above: InUse<(Box<str>, Named), SharedAbove>,
    /// What is known of all Subnamespaces in the cache together.
    index: Arc<SubnamespaceIndex>,
    /// The Subnamespaces whose namespaces are being created: what the caches count may be behind.
    creations: Mutex<BTreeSet<Creation>>,
    /// What was looked up later must not be replaced by what was looked up before.
    reads_annotations: Mutex<()>,
}

impl TreeContext {
    /// With empty caches.
    pub fn new(shared: ControllerContext) -> Self {
        let (subnamespaces, index) = (Store::<Subnamespaces>::default(), Arc::<SubnamespaceIndex>::default());
        subnamespaces.set_index(index.clone());
        Self {
            metrics: TreeMetrics::new(&shared.metrics),
            shared,
            trees: Store::default(),
            subnamespaces,
            quotas: Store::default(),
            transfers: Store::default(),
            copies: CopyStores::default(),
            unseen: UnseenWrites::default(),
            turns: Turns::default(),
            reads_above: InUse::default(),
            index,
            creations: Mutex::default(),
            reads_annotations: Mutex::default(),
        }
    }

    /// Whether everything that decisions need has been listed.
    pub(crate) fn synced(&self) -> bool {
        let synced = |freshness| !matches!(freshness, Freshness::NotSynced(_));
        synced(self.trees.freshness())
            && synced(self.subnamespaces.freshness())
            && synced(self.quotas.freshness())
            && synced(self.shared.namespaces.freshness())
            && synced(self.shared.configs.freshness())
    }

    /// Why what the caches know cannot be trusted, if so.
    pub(crate) fn stale(&self) -> Option<Why> {
        first_stale(&[
            (self.trees.freshness(), "namespacetrees"),
            (self.subnamespaces.freshness(), "subnamespaces"),
            (self.quotas.freshness(), "resourcequotas"),
            (self.shared.namespaces.freshness(), "namespaces"),
            (self.shared.configs.freshness(), "coppiceconfigs"),
        ])
    }

    /// Has namespaces read with the annotations that trees name, and with those that were set because of them. Costs a list if there
    /// is a new one among them; what nobody names any more goes with the next.
    pub(crate) fn read_annotations(&self) {
        let one_at_a_time = self.reads_annotations.lock().unwrap_or_else(PoisonError::into_inner);
        let trees = self.trees.list("");
        let specs = trees.iter().filter_map(|tree| tree.spec.as_ref().ok());
        let named = specs.flat_map(|spec| [&spec.metadata.allowed, &spec.metadata.inherited]);
        let mut set = Vec::new();
        self.subnamespaces.for_each(|object| {
            if !object.status.metadata.annotations.is_empty() {
                set.push(object.status.metadata.clone());
            }
        });
        let wanted = annotations_to_read(named, &set);
        if !self.shared.namespaces.current_context().contains(&wanted) {
            self.shared.namespaces.set_context(wanted);
        }
        drop(one_at_a_time);
    }

    /// The same, if there may be one among those that were set because of this Subnamespace.
    pub(crate) fn read_annotations_of(&self, parent: &str, name: &str) {
        let Some(object) = self.subnamespaces.get(parent, name) else { return };
        let set = annotations_to_read([], [&object.status.metadata]);
        if !self.shared.namespaces.current_context().contains(&set) {
            self.read_annotations();
        }
    }

    /// The same of what else is looked at before a namespace is taken out of its tree.
    pub(crate) fn stale_besides(&self) -> Option<Why> {
        first_stale(&[(self.transfers.freshness(), "quotatransfers")]).or_else(|| self.copies.stale())
    }

    /// The read of this namespace and those above it, with their objects of these names.
    pub(crate) fn shared_above(&self, namespace: &str, named: &Named) -> Arc<SharedAbove> {
        self.reads_above.of((namespace.into(), named.clone()))
    }

    /// Those below this namespace, however far.
    pub(crate) fn below(&self, namespace: &str) -> Vec<Arc<str>> {
        let mut below: Vec<Arc<str>> = Vec::new();
        let mut next: Box<str> = namespace.into();
        let mut at = 0;
        loop {
            let children = self.subnamespaces.list(&next);
            below.extend(
                children
                    .iter()
                    .filter(|child| child.status.namespace_uid.is_some())
                    .map(|child| child.name.as_ref().into()),
            );
            // Names of namespaces are unique: in a cluster that is in order nobody comes twice.
            let Some(name) = below.get(at).filter(|_| below.len() <= MAX_BELOW) else { return below };
            next = name.as_ref().into();
            at += 1;
        }
    }

    /// The Subnamespaces below this namespace, however far, with the namespaces that they created: each after all below it.
    pub(crate) fn bottom_up(&self, namespace: &str) -> Vec<Below> {
        let children = |name: &str| -> Vec<Below> {
            self.subnamespaces.list(name).into_iter().map(|object| self.with_own(object)).collect()
        };
        // What is below a namespace that may never become its own is not below it.
        let own = |(object, own): &Below| {
            let is_its_own = own.is_some() && object.status.namespace_uid.is_some();
            is_its_own.then(|| object.name.to_string())
        };
        bottom_up(namespace, children, own)
    }

    /// With the namespace that it created or, before its status names one, that is marked as its own. Another one of that name is not.
    pub(crate) fn with_own(&self, object: Arc<SubnamespaceObject>) -> Below {
        let own = self.shared.namespaces.get("", &object.name);
        let own = own.filter(|own| match object.status.namespace_uid.as_deref() {
            Some(uid) => own.uid.as_str() == uid,
            None => own.labels.get(LABEL_SUBNAMESPACE) == Some(&*object.uid),
        });
        (object, own)
    }

    /// The tree that this namespace is the root of. Of several trees the oldest counts.
    pub(crate) fn tree_of_root(&self, namespace: &str) -> Option<Arc<Tree>> {
        let mut oldest: Option<(jiff::Timestamp, Box<str>)> = None;
        self.trees.for_each(|tree| {
            let is_root = tree.spec.as_ref().is_ok_and(|spec| spec.root == namespace);
            let this = (tree.created, tree.name.clone());
            if is_root && oldest.as_ref().is_none_or(|oldest| this < *oldest) {
                oldest = Some(this);
            }
        });
        self.trees.get("", &oldest?.1)
    }

    /// The Subnamespace that created a namespace. Labels say where to look, and its uid whether it is the one.
    pub(crate) fn creator(&self, namespace: &NamespaceFacts) -> Option<Arc<SubnamespaceObject>> {
        let parent = namespace.labels.get(LABEL_PARENT)?;
        let found = self.subnamespaces.get(parent, &namespace.name)?;
        (found.status.namespace_uid.as_deref() == Some(namespace.uid.as_str())).then_some(found)
    }

    /// Where a namespace is in its tree; or why it is in none.
    pub(crate) fn position(&self, name: &str) -> Result<Position, Why> {
        match self.place(name) {
            Place::In(position) => Ok(position),
            Place::Out => {
                let why = format!(
                    "namespace {name} belongs to no tree: an administrator creates a NamespaceTree with it as its root, or a \
                     Subnamespace creates it"
                );
                Err((Reason::NotInTree, why))
            }
            Place::Unknown(why) => Err((Reason::NotInTree, why)),
        }
    }

    /// Where a namespace is, as the caches have it.
    pub(crate) fn place(&self, name: &str) -> Place {
        let mut path: Vec<Box<str>> = Vec::new();
        let mut at: Box<str> = name.into();
        while path.len() < MAX_PATH {
            let Some(namespace) = self.shared.namespaces.get("", &at) else {
                let unreadable = self.shared.namespaces.unreadable_object(&at);
                return Place::without(&path, &at, unreadable.map(|why| why.to_string()));
            };
            path.push(at.clone());
            let creator = namespace.labels.get(LABEL_PARENT).and_then(|p| self.subnamespaces.get(p, &at));
            match above(&namespace, creator.as_deref()) {
                Above::Namespace(next) => at = next,
                Above::Nothing => {
                    return match self.detaching_without_root(&namespace) {
                        Some(tree) => Place::below_lost_root(&tree, path),
                        None => Place::at_root(self.tree_of_root(&at), &namespace, path),
                    };
                }
                Above::Unknown(why) => return Place::Unknown(why),
            }
        }
        Place::Unknown(format!("there are more than {MAX_PATH} namespaces above namespace {name}"))
    }

    /// The tree right below whose root a namespace was, by its labels, while the tree is being detached and the root is gone: with it went
    /// the Subnamespace that created the namespace.
    fn detaching_without_root(&self, namespace: &NamespaceFacts) -> Option<Arc<Tree>> {
        let root = namespace.labels.get(LABEL_ROOT).filter(|root| was_below(namespace, root))?;
        self.tree_of_root(root).filter(|tree| is_detaching(tree) && self.has_lost_root(tree))
    }

    /// Whether the root of a tree, which was set up, is not there any more. Another namespace of its name is none.
    fn has_lost_root(&self, tree: &Tree) -> bool {
        let (Ok(spec), Some(uid)) = (&tree.spec, tree.status.root_uid.as_deref()) else { return false };
        let namespaces = &self.shared.namespaces;
        namespaces.get("", &spec.root).is_none_or(|now| now.uid != uid)
            && namespaces.unreadable_object(&spec.root).is_none()
    }

    /// The namespaces that were right below the root of this tree and are there without their Subnamespaces, which went with the root.
    pub(crate) fn stranded(&self, tree: &Tree) -> Vec<String> {
        let Ok(spec) = &tree.spec else { return Vec::new() };
        let root = &*spec.root;
        if !self.has_lost_root(tree) || self.tree_of_root(root).is_none_or(|oldest| oldest.uid != tree.uid) {
            return Vec::new();
        }
        let mut names = Vec::new();
        self.shared.namespaces.for_each(|namespace| {
            if was_below(namespace, root) && !namespace.terminating {
                names.push(namespace.name.clone());
            }
        });
        // Not under the lock of the namespaces.
        names.retain(|name| self.subnamespaces.get(root, name).is_none());
        names.sort_unstable();
        names
    }

    /// The namespaces below the root of a tree, in the order of their paths, as they were when the root was there.
    pub(crate) fn paths_below_root(&self, tree: &str) -> Vec<String> {
        let mut paths = Vec::new();
        self.subnamespaces.for_each(|object| {
            if object.status.tree == tree && object.status.namespace_uid.is_some() {
                paths.push(object.status.path.clone());
            }
        });
        paths.sort_unstable();
        paths
    }

    /// The Subnamespaces that are being deleted and may take all below them with them.
    pub(crate) fn cascading(&self) -> Vec<Arc<SubnamespaceObject>> {
        let names = self.index.cascading().into_iter();
        names.filter_map(|(namespace, name)| self.subnamespaces.get(&namespace, &name)).collect()
    }

    /// The Subnamespaces that are being deleted in namespaces that are, too.
    pub(crate) fn ending_with_parents(&self) -> Vec<Arc<SubnamespaceObject>> {
        let mut all = Vec::new();
        for parent in self.index.with_terminating() {
            if self.shared.namespaces.get("", &parent).is_some_and(|parent| parent.terminating) {
                let names = self.index.terminating_in(&parent).into_iter();
                all.extend(names.filter_map(|name| self.subnamespaces.get(&parent, &name)));
            }
        }
        all
    }

    /// How many Subnamespaces wait for something.
    pub(crate) fn count_waiting(&self) -> usize {
        self.index.count_waiting()
    }

    /// The Subnamespaces that wait for something.
    pub(crate) fn waiting(&self) -> Vec<Arc<SubnamespaceObject>> {
        let names = self.index.waiting().into_iter();
        names.filter_map(|(namespace, name)| self.subnamespaces.get(&namespace, &name)).collect()
    }

    /// What is made of those that wait in a namespace, under the lock of what is known of all: keep it short.
    pub(crate) fn with_waiting<R>(&self, namespace: &str, of: impl FnOnce(&Waiting) -> R) -> R {
        self.index.with_waiting(namespace, of)
    }

    /// Whether there are more than [`FEW`] below a namespace.
    pub(crate) fn has_many_below(&self, namespace: &str) -> bool {
        let (mut found, mut at): (Vec<Box<str>>, usize) = (vec![namespace.into()], 0);
        while let Some(parent) = found.get(at) {
            let children = self.subnamespaces.first(parent, FEW + 1);
            found.extend(children.iter().map(|child| child.name.clone()));
            if found.len() > FEW + 1 {
                return true;
            }
            at += 1;
        }
        false
    }

    /// How many namespaces Subnamespaces have created, in all trees.
    pub(crate) fn created(&self) -> u64 {
        self.index.created()
    }

    /// How many namespaces a tree has, its root included.
    pub(crate) fn size(&self, tree: &str) -> u32 {
        1 + self.index.size(tree)
    }

    /// The same, with those that are being created for others than this one.
    pub(crate) fn size_beside(&self, tree: &str, object: &SubnamespaceObject) -> u32 {
        self.size_with(&mut self.creations(), tree, object)
    }

    /// Counts the namespace of a Subnamespace from now on; false if the tree has as many as it may.
    pub(crate) fn begin_creation(&self, position: &Position, object: &SubnamespaceObject) -> bool {
        let tree = &*position.tree.name;
        let mut creations = self.creations();
        let has_room = self.size_with(&mut creations, tree, object) < position.spec.max_namespaces;
        if has_room {
            creations.insert((tree.into(), object.namespace.clone(), object.name.clone()));
        }
        has_room
    }

    /// It was not created.
    pub(crate) fn end_creation(&self, object: &SubnamespaceObject) {
        self.creations()
            .retain(|(_, parent, name)| (&**parent, &**name) != (&*object.namespace, &*object.name));
    }

    fn creations(&self) -> MutexGuard<'_, BTreeSet<Creation>> {
        self.creations.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn size_with(&self, creations: &mut BTreeSet<Creation>, tree: &str, object: &SubnamespaceObject) -> u32 {
        // What has a uid is counted as all others.
        creations.retain(|(_, parent, name)| {
            self.subnamespaces.get(parent, name).is_some_and(|known| known.status.namespace_uid.is_none())
        });
        let is_other = |(of, parent, name): &&Creation| {
            **of == *tree && (&**parent, &**name) != (&*object.namespace, &*object.name)
        };
        let others = u32::try_from(creations.iter().filter(is_other).count()).unwrap_or(u32::MAX);
        self.size(tree).saturating_add(others)
    }
}

/// Whether a namespace was right below this root when its labels were written.
pub(crate) fn was_below(namespace: &NamespaceFacts, root: &str) -> bool {
    [LABEL_ROOT, LABEL_PARENT].iter().all(|label| namespace.labels.get(label) == Some(root))
}

/// One for each key, the same for all who use it at a time.
pub(crate) struct InUse<K, T>(Mutex<BTreeMap<K, Weak<T>>>);

impl<K, T> Default for InUse<K, T> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<K: Ord, T: Default> InUse<K, T> {
    pub(crate) fn of(&self, key: K) -> Arc<T> {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(used) = all.get(&key).and_then(Weak::upgrade) {
            return used;
        }
        all.retain(|_, used| used.strong_count() > 0);
        let new = Arc::default();
        all.insert(key, Arc::downgrade(&new));
        new
    }
}
