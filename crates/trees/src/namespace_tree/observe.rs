//! A `NamespaceTree`, its root and the quota in it: from caches, or straight from the API server.

use std::sync::Arc;

use coppice_api::names::{LABEL_CHILDREN, LABEL_ROOT, TREE_QUOTA_NAME};
use coppice_hierarchy::Resources;
use coppice_kinds::{
    CopiedKind, NamespaceTrees, Namespaces, SubnamespaceObject, Subnamespaces, Tree, TreeQuota, TreeQuotas,
};
use coppice_lifecycle::PlatformSettings;
use coppice_lifecycle::facts::NamespaceFacts;
use coppice_quantity::time::ServerTime;
use coppice_runtime::read::{self, ListError};

use crate::allotment::{Children, below};
use crate::context::{TreeContext, Why, was_below};
use crate::copies::listed;
use crate::position::is_detaching;

/// What a plan is made from.
pub(super) struct Observation {
    pub(super) tree: Arc<Tree>,
    /// The namespace that spec names.
    pub(super) root: Option<Arc<NamespaceFacts>>,
    /// Its quota.
    pub(super) quota: Option<Arc<TreeQuota>>,
    /// The other tree that the namespace belongs to.
    pub(super) other: Option<String>,
    /// How many Subnamespaces are in the root.
    pub(super) children: usize,
    /// What these have, where the quota has to be made again. Otherwise nobody asks.
    pub(super) below: Resources,
    /// How many namespaces the tree has.
    pub(super) size: u32,
    /// Once the root is being deleted or is gone: the paths of the namespaces below it. Otherwise nobody asks.
    pub(super) left: Vec<String>,
    /// The partitions of spec that are no namespaces right below the root, or not yet.
    pub(super) absent_partitions: Vec<String>,
    /// While the tree is being detached after its root: one of those without a Subnamespace.
    pub(super) stranded: Option<Stranded>,
    /// Why the caches cannot be trusted.
    pub(super) stale: Option<Why>,
    pub(super) settings: Arc<PlatformSettings>,
    pub(super) time: ServerTime,
}

/// A namespace that was right below a root, and whose Subnamespace went with that.
pub(super) struct Stranded {
    pub(super) namespace: Arc<NamespaceFacts>,
    /// Its quota.
    pub(super) quota: Option<Arc<TreeQuota>>,
    /// How many Subnamespaces are in it.
    pub(super) children: usize,
    /// How many copies are in it that are not its own yet. Those of a namespace in no tree are deleted.
    pub(super) copies: usize,
}

/// Why something could not be read again.
#[derive(Debug, thiserror::Error)]
pub(super) enum ReadError {
    #[error("{}", coppice_runtime::error::chain(.0))]
    Get(#[from] kube::Error),
    #[error("what is in the tree: {0}")]
    List(#[from] ListError),
}

/// What the caches know; none if there is no such object.
pub(super) fn cached(context: &TreeContext, name: &str) -> Option<Observation> {
    let tree = context.trees.get("", name)?;
    let root = tree.spec.as_ref().map(|spec| spec.root.clone()).unwrap_or_default();
    let namespace = context.shared.namespaces.get("", &root);
    let quota = context.quotas.get(&root, TREE_QUOTA_NAME);
    let children = match &quota {
        // How many there are is all that anybody asks then, and it is asked whenever one of them changes.
        Some(_) => (context.subnamespaces.count(&root), Resources::default()),
        None => with_allotments(context.subnamespaces.list(&root)),
    };
    let names = if is_detaching(&tree) { context.stranded(&tree) } else { Vec::new() };
    let stranded = names.iter().find_map(|name| {
        let children = context.subnamespaces.count(name);
        let namespace = context.shared.namespaces.get("", name)?;
        let own = |kind| context.copies.decoded(kind, name).unwrap_or_default();
        let copies =
            CopiedKind::ALL.into_iter().flat_map(own).filter(|object| object.origin.is_some()).count();
        Some(Stranded { namespace, quota: context.quotas.get(name, TREE_QUOTA_NAME), children, copies })
    });
    Some(Observation { stranded, ..observation(context, tree, namespace, quota, children) })
}

/// How many Subnamespaces there are, and what they have together.
fn with_allotments(children: Vec<Arc<SubnamespaceObject>>) -> (usize, Resources) {
    let children = Children::from(children);
    (children.len(), below(&children))
}

/// The same from fresh reads.
pub(super) async fn fresh(context: &TreeContext, name: &str) -> Result<Option<Observation>, ReadError> {
    let client = &context.shared.clients.reads;
    let Some(tree) = read::get::<NamespaceTrees>(client, "", name).await? else { return Ok(None) };
    let root = tree.spec.as_ref().map(|spec| spec.root.clone()).unwrap_or_default();
    let namespace = if root.is_empty() { None } else { read::get::<Namespaces>(client, "", &root).await? };
    let quota = match &namespace {
        Some(_) => read::get::<TreeQuotas>(client, &root, TREE_QUOTA_NAME).await?,
        None => None,
    };
    let known = context.subnamespaces.count(&root);
    let marked = |namespace: &NamespaceFacts| namespace.labels.get(LABEL_CHILDREN).is_some();
    // Whether there are none has to be certain where something is removed for it; what they have, where the quota was lost.
    let must_be_certain = |namespace: &NamespaceFacts| quota.is_none() || known == 0 && marked(namespace);
    let children = if namespace.as_ref().is_some_and(must_be_certain) || tree.terminating {
        let all: Vec<_> =
            read::list::<Subnamespaces>(client, &root).await?.into_iter().map(Arc::new).collect();
        if quota.is_none() { with_allotments(all) } else { (all.len(), Resources::default()) }
    } else if quota.is_none() {
        with_allotments(context.subnamespaces.list(&root))
    } else {
        (known, Resources::default())
    };
    let is_root = |now: &NamespaceFacts| tree.status.root_uid.as_deref() == Some(&*now.uid);
    let has_root = namespace.as_ref().is_some_and(is_root);
    let stranded =
        if is_detaching(&tree) && !has_root { stranded(context, &tree, &root).await? } else { None };
    let (namespace, quota) = (namespace.map(Arc::new), quota.map(Arc::new));
    let mut seen = observation(context, Arc::new(tree), namespace, quota, children);
    let tree = &seen.tree;
    let ends = tree.terminating && tree.status.root_uid.is_some() && !has_root && !is_detaching(tree);
    if ends && seen.left.is_empty() {
        // The tree ends by that, too.
        let in_tree = right_below(context, tree, &root).await?;
        let stay = in_tree.iter().filter(|namespace| !namespace.terminating);
        seen.left = stay.map(|namespace| format!("{root}/{}", namespace.name)).collect();
    }
    Ok(Some(Observation { stranded, ..seen }))
}

/// The namespaces that were right below the root of this tree by their labels, as the API server has them.
async fn right_below(
    context: &TreeContext,
    tree: &Tree,
    root: &str,
) -> Result<Vec<NamespaceFacts>, ReadError> {
    if context.tree_of_root(root).is_some_and(|oldest| oldest.uid != tree.uid) {
        return Ok(Vec::new());
    }
    let client = &context.shared.clients.reads;
    let mut in_tree = read::list_labeled::<Namespaces>(client, LABEL_ROOT, root).await?;
    in_tree.retain(|namespace| was_below(namespace, root));
    Ok(in_tree)
}

/// The first one that still is: caches may be behind what was just written. That there is none is not taken from them, since the
/// tree ends by it.
async fn stranded(context: &TreeContext, tree: &Tree, root: &str) -> Result<Option<Stranded>, ReadError> {
    let client = &context.shared.clients.reads;
    let mut names = context.stranded(tree);
    if names.is_empty() {
        let in_tree = right_below(context, tree, root).await?;
        names = in_tree.into_iter().map(|namespace| namespace.name).collect();
    }
    for name in names {
        let quota = read::get::<TreeQuotas>(client, &name, TREE_QUOTA_NAME).await?.map(Arc::new);
        let creator = read::get::<Subnamespaces>(client, root, &name).await?;
        let namespace = read::get::<Namespaces>(client, "", &name).await?;
        let is_stranded = |namespace: &NamespaceFacts| {
            creator.is_none() && was_below(namespace, root) && !namespace.terminating
        };
        if let Some(namespace) = namespace.filter(is_stranded) {
            let children = read::list::<Subnamespaces>(client, &name).await?.len();
            let mut copies = 0;
            for kind in CopiedKind::ALL {
                let own = listed(client, kind, &name).await?;
                copies += own.iter().filter(|object| object.origin.is_some()).count();
            }
            return Ok(Some(Stranded { namespace: Arc::new(namespace), quota, children, copies }));
        }
    }
    Ok(None)
}

fn observation(
    context: &TreeContext,
    tree: Arc<Tree>,
    root: Option<Arc<NamespaceFacts>>,
    quota: Option<Arc<TreeQuota>>,
    (children, below): (usize, Resources),
) -> Observation {
    let name = tree.spec.as_ref().map(|spec| spec.root.clone()).unwrap_or_default();
    let unreadable = || {
        let unreadable = context.shared.namespaces.unreadable_object(&name)?;
        Some((unreadable.reason, format!("the root is not known: {unreadable}")))
    };
    let older = context.tree_of_root(&name).filter(|older| older.uid != tree.uid);
    let above = root.as_ref().and_then(|root| context.creator(root));
    let other = older.map(|older| format!("it is the root of NamespaceTree {}", older.name)).or_else(|| {
        above.map(|object| format!("Subnamespace {} in {} created it", object.name, object.namespace))
    });
    let ours = tree.status.root_uid.as_ref();
    let stays =
        root.as_ref().is_some_and(|root| !root.terminating && ours.is_none_or(|uid| *uid == root.uid));
    let left = if ours.is_none() || stays { Vec::new() } else { left(context, &tree) };
    Observation {
        other,
        left,
        absent_partitions: absent_partitions(context, &tree),
        stranded: None,
        size: context.size(&tree.name),
        stale: context.stale().or_else(unreadable),
        settings: context.shared.settings().0,
        time: context.shared.time(),
        tree,
        root,
        below,
        quota,
        children,
    }
}

/// The paths of the namespaces below a root that ends, whether or not their Subnamespaces are still there.
fn left(context: &TreeContext, tree: &Tree) -> Vec<String> {
    let mut paths = context.paths_below_root(&tree.name);
    let root = tree.spec.as_ref().map_or("", |spec| &*spec.root);
    paths.extend(context.stranded(tree).iter().map(|name| format!("{root}/{name}")));
    paths.sort_unstable();
    paths
}

/// The partitions of a tree that nobody has created. Nothing rests on it but what is said.
fn absent_partitions(context: &TreeContext, tree: &Tree) -> Vec<String> {
    let Ok(spec) = &tree.spec else { return Vec::new() };
    let is_below = |name: &str| {
        let object = context.subnamespaces.get(&spec.root, name);
        object.is_some_and(|object| object.status.namespace_uid.is_some())
    };
    spec.partitions.iter().filter(|name| !is_below(name)).cloned().collect()
}
