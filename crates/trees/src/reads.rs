//! Reads straight from the API server, for what must not be decided by caches: one of them may be behind another.

use std::collections::BTreeMap;
use std::sync::Arc;

use coppice_api::names::{LABEL_PARENT, LABEL_ROOT};
use coppice_kinds::{NamespaceTrees, Namespaces, SubnamespaceObject, Subnamespaces, Tree};
use coppice_lifecycle::facts::NamespaceFacts;
use coppice_runtime::read::{self, ListError};
use futures::future::try_join_all;

use crate::context::{MAX_PATH, TreeContext, was_below};
use crate::position::{Above, Place, above, is_detaching};

/// A namespace, and where it is.
pub(crate) struct FreshPlace {
    /// The namespace, if it is there.
    pub(crate) namespace: Option<Arc<NamespaceFacts>>,
    pub(crate) place: Place,
    /// The Subnamespaces that created it and those above it, the nearest first.
    pub(crate) creators: Vec<Arc<SubnamespaceObject>>,
}

/// A namespace, the Subnamespace that created it, and what is above it.
pub(crate) struct Link {
    pub(crate) namespace: Arc<NamespaceFacts>,
    pub(crate) creator: Option<Arc<SubnamespaceObject>>,
    pub(crate) above: Above,
}

/// Reads a namespace and the Subnamespace that created it; none if there is no such namespace. Both are read at once if the Subnamespace is
/// in the namespace that is `known` to be above.
pub(crate) async fn link(
    client: &kube::Client,
    name: &str,
    known: Option<&str>,
) -> Result<Option<Link>, kube::Error> {
    let (namespace, guess) = match known {
        Some(parent) => tokio::try_join!(
            read::get::<Namespaces>(client, "", name),
            read::get::<Subnamespaces>(client, parent, name),
        )?,
        None => (read::get::<Namespaces>(client, "", name).await?, None),
    };
    let Some(namespace) = namespace else { return Ok(None) };
    let named = match namespace.labels.get(LABEL_PARENT) {
        Some(parent) if known == Some(parent) => guess.map(Arc::new),
        Some(parent) => read::get::<Subnamespaces>(client, parent, name).await?.map(Arc::new),
        None => None,
    };
    let above = above(&namespace, named.as_deref());
    let creator = named.filter(|_| matches!(above, Above::Namespace(_)));
    Ok(Some(Link { namespace: Arc::new(namespace), creator, above }))
}

/// Reads at once all on a way down from a root, each of which is known to be below the one before it.
async fn links(
    client: &kube::Client,
    path: &[Box<str>],
) -> Result<BTreeMap<Box<str>, Option<Link>>, kube::Error> {
    let (mut reads, mut above) = (Vec::new(), None);
    for name in path {
        reads.push(link(client, name, above));
        above = Some(&**name);
    }
    let links = try_join_all(reads).await?;
    Ok(path.iter().cloned().zip(links).collect())
}

/// Reads a namespace, those above it, and their tree.
pub(crate) async fn place(context: &TreeContext, name: &str) -> Result<FreshPlace, ListError> {
    let client = &context.shared.clients.reads;
    let (mut lowest, mut creators) = (None, Vec::new());
    let mut path: Vec<Box<str>> = Vec::new();
    let mut at: Box<str> = name.into();
    // Where the caches say that it is. What is found there says whether it is so.
    let mut ahead = match context.place(name) {
        Place::In(position) => links(client, position.names()).await?,
        Place::Out | Place::Unknown(_) => BTreeMap::new(),
    };
    let place = loop {
        let found = match ahead.remove(&at) {
            Some(found) => found,
            None => link(client, &at, None).await?,
        };
        let Some(Link { namespace, creator, above }) = found else {
            break Place::without(&path, &at, None);
        };
        if path.len() >= MAX_PATH {
            break Place::Unknown(format!(
                "there are more than {MAX_PATH} namespaces above namespace {name}"
            ));
        }
        path.push(at);
        creators.extend(creator);
        lowest.get_or_insert_with(|| Arc::clone(&namespace));
        match above {
            Above::Namespace(next) => at = next,
            Above::Nothing => {
                break match detaching_without_root(context, &namespace).await? {
                    Some(tree) => Place::below_lost_root(&tree, path),
                    None => Place::at_root(tree_of_root(context, &namespace.name).await?, &namespace, path),
                };
            }
            Above::Unknown(why) => break Place::Unknown(why),
        }
    };
    Ok(FreshPlace { namespace: lowest, place, creators })
}

/// The tree right below whose root a namespace was, by its labels, while the tree is being detached and the root is gone.
async fn detaching_without_root(
    context: &TreeContext,
    namespace: &NamespaceFacts,
) -> Result<Option<Arc<Tree>>, ListError> {
    let Some(root) = namespace.labels.get(LABEL_ROOT).filter(|root| was_below(namespace, root)) else {
        return Ok(None);
    };
    let Some(tree) = tree_of_root(context, root).await?.filter(|tree| is_detaching(tree)) else {
        return Ok(None);
    };
    let Some(uid) = tree.status.root_uid.as_deref() else { return Ok(None) };
    let now = read::get::<Namespaces>(&context.shared.clients.reads, "", root).await?;
    let is_lost = now.is_none_or(|now| now.uid != uid);
    Ok(is_lost.then_some(tree))
}

/// The tree that this namespace is the root of. Of several trees the oldest counts: none that is older than a known one comes later.
async fn tree_of_root(context: &TreeContext, root: &str) -> Result<Option<Arc<Tree>>, ListError> {
    let client = &context.shared.clients.reads;
    let is_of_root = |tree: &Tree| tree.spec.as_ref().is_ok_and(|spec| spec.root == root);
    if let Some(known) = context.tree_of_root(root) {
        let tree = read::get::<NamespaceTrees>(client, "", &known.name).await?;
        if let Some(tree) = tree.filter(|tree| tree.uid == known.uid && is_of_root(tree)) {
            return Ok(Some(Arc::new(tree)));
        }
    }
    let all = read::list::<NamespaceTrees>(client, "").await?;
    let of_root = all.into_iter().filter(is_of_root);
    let oldest = of_root.min_by(|a, b| (a.created, &a.name).cmp(&(b.created, &b.name)));
    Ok(oldest.map(Arc::new))
}
