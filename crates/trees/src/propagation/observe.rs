//! A namespace, where it is in its tree, what there is in it and above it: from caches, or straight from the API server.

use std::collections::BTreeSet;
use std::sync::Arc;

use coppice_api::names::{LABEL_PARENT, TREE_QUOTA_NAME};
use coppice_kinds::{
    CopiedKind, NamespaceTrees, Namespaces, Propagated, SubnamespaceObject, Subnamespaces, Tree, TreeQuota,
};
use coppice_lifecycle::facts::NamespaceFacts;
use coppice_runtime::read::{self, ListError};

use crate::context::{MAX_PATH, TreeContext, Why};
use crate::copies::listed;
use crate::position::{Above, Place, above};

/// What a plan is made from.
pub(super) struct Observation {
    /// The namespace, if it is there.
    pub(super) namespace: Option<Arc<NamespaceFacts>>,
    pub(super) place: Place,
    /// The Subnamespace that created it: its status says how it went.
    pub(super) creator: Option<Arc<SubnamespaceObject>>,
    /// Whether its quota is in force: nobody has rights in it before.
    pub(super) limited: bool,
    /// The objects of each namespace above, the nearest first.
    pub(super) above: Vec<Vec<Arc<Propagated>>>,
    /// Its own objects.
    pub(super) own: Vec<Arc<Propagated>>,
    /// Why something of this cannot be trusted.
    pub(super) stale: Option<Why>,
}

/// Why something could not be read again.
#[derive(Debug, thiserror::Error)]
pub(super) enum ReadError {
    #[error("{}", coppice_runtime::error::chain(.0))]
    Get(#[from] kube::Error),
    #[error("{0}")]
    List(#[from] ListError),
    #[error("{0}")]
    Unreadable(String),
}

/// What the caches know.
pub(super) fn cached(context: &TreeContext, name: &str) -> Observation {
    let place = context.place(name);
    let mut unreadable = None;
    let mut of = |namespace: &str| {
        CopiedKind::ALL
            .into_iter()
            .flat_map(|kind| {
                context.copies.decoded(kind, namespace).unwrap_or_else(|why| {
                    unreadable = Some(why);
                    Vec::new()
                })
            })
            .collect::<Vec<_>>()
    };
    let own = of(name);
    let above = match &place {
        Place::In(position) => position.ancestors().map(&mut of).collect(),
        Place::Out | Place::Unknown(_) => Vec::new(),
    };
    let namespace = context.shared.namespaces.get("", name);
    Observation {
        creator: namespace.as_ref().and_then(|namespace| context.creator(namespace)),
        limited: context.quotas.get(name, TREE_QUOTA_NAME).is_some_and(|quota| is_in_force(&quota)),
        namespace,
        place,
        above,
        own,
        stale: stale(context).or(unreadable),
    }
}

/// The same, with these kinds read again: what of them is deleted is decided on this.
pub(super) async fn fresh(
    context: &TreeContext,
    name: &str,
    kinds: &BTreeSet<CopiedKind>,
) -> Result<Observation, ReadError> {
    let client = &context.shared.clients.reads;
    // What is in it first: what has been copied since is not among it.
    let own = objects(context, name, kinds).await?;
    let (mut lowest, mut lowest_creator) = (None, None);
    let mut path: Vec<Box<str>> = Vec::new();
    let mut at: Box<str> = name.into();
    let place = loop {
        let Some(namespace) = read::get::<Namespaces>(client, "", &at).await? else {
            break Place::without(&path, &at, None);
        };
        if path.len() >= MAX_PATH {
            break Place::Unknown(format!(
                "there are more than {MAX_PATH} namespaces above namespace {name}"
            ));
        }
        let named = match namespace.labels.get(LABEL_PARENT) {
            Some(parent) => read::get::<Subnamespaces>(client, parent, &at).await?.map(Arc::new),
            None => None,
        };
        let next = above(&namespace, named.as_deref());
        path.push(at.clone());
        let namespace = Arc::new(namespace);
        if path.len() == 1 {
            lowest = Some(Arc::clone(&namespace));
            lowest_creator = named.filter(|_| matches!(next, Above::Namespace(_)));
        }
        match next {
            Above::Namespace(next) => at = next,
            Above::Nothing => break Place::at_root(tree_of_root(context, &at).await?, &namespace, path),
            Above::Unknown(why) => break Place::Unknown(why),
        }
    };
    let mut above = Vec::new();
    if let Place::In(position) = &place {
        for ancestor in position.ancestors() {
            above.push(objects(context, ancestor, kinds).await?);
        }
    }
    Ok(Observation {
        namespace: lowest,
        creator: lowest_creator,
        limited: context.quotas.get(name, TREE_QUOTA_NAME).is_some_and(|quota| is_in_force(&quota)),
        place,
        above,
        own,
        stale: stale(context),
    })
}

async fn objects(
    context: &TreeContext,
    namespace: &str,
    again: &BTreeSet<CopiedKind>,
) -> Result<Vec<Arc<Propagated>>, ReadError> {
    let mut all = Vec::new();
    for kind in CopiedKind::ALL {
        all.extend(if again.contains(&kind) {
            listed(&context.shared.clients.reads, kind, namespace).await?
        } else {
            context.copies.decoded(kind, namespace).map_err(|(_, why)| ReadError::Unreadable(why))?
        });
    }
    Ok(all)
}

async fn tree_of_root(context: &TreeContext, root: &str) -> Result<Option<Arc<Tree>>, ReadError> {
    let all = read::list::<NamespaceTrees>(&context.shared.clients.reads, "").await?;
    let of_root = all.into_iter().filter(|tree| tree.spec.as_ref().is_ok_and(|spec| spec.root == root));
    let oldest = of_root.min_by(|a, b| (a.created, &a.name).cmp(&(b.created, &b.name)));
    Ok(oldest.map(Arc::new))
}

fn stale(context: &TreeContext) -> Option<Why> {
    context.stale().or_else(|| context.copies.stale())
}

/// Whether the API server holds a namespace to what its quota says.
fn is_in_force(quota: &TreeQuota) -> bool {
    quota.quota.as_ref().is_ok_and(|quota| quota.enforced == quota.hard)
}
