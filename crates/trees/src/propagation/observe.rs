//! A namespace, where it is in its tree, what there is in it and above it: from caches, or straight from the API server.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use coppice_api::names::{LABEL_PARENT, TREE_QUOTA_NAME};
use coppice_kinds::{CopiedKind, Propagated, SubnamespaceObject, TreeQuota, TreeQuotas};
use coppice_lifecycle::facts::NamespaceFacts;
use coppice_mutants::{Mutant, active};
use coppice_runtime::kind::is_later;
use coppice_runtime::read::{self, ListError};
use coppice_runtime::shared_read::SharedRead;
use futures::future::try_join_all;

use crate::context::{TreeContext, Why};
use crate::copies::{listed, named_object};
use crate::position::{Above, Place};
use crate::reads::{self, FreshPlace, Link};

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
pub(crate) enum ReadError {
    #[error("{0}")]
    List(#[from] ListError),
    #[error("{}", coppice_runtime::error::chain(.0))]
    Get(#[from] kube::Error),
    #[error("{0}")]
    Unreadable(String),
    #[error("{0}")]
    Above(#[source] Arc<ReadError>),
}

/// Where a namespace is, and the objects that are copied from it and from those above it, the nearest first.
pub(crate) struct FreshAbove {
    place: Place,
    sources: Vec<Vec<Arc<Propagated>>>,
}

/// So many objects of a kind are read one by one; of more the kind is listed, which takes longer: the API server waits until its cache
/// has everything that was written before.
const MAX_SINGLE: usize = 4;

/// Names of objects that are read again.
pub(crate) type Named = BTreeMap<CopiedKind, BTreeSet<Box<str>>>;

/// One such read for all that are right below a namespace.
pub(crate) type SharedAbove = SharedRead<FreshAbove, ReadError>;

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
        Place::In(position) => position.ancestors().map(|above| sources(of(above))).collect(),
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

/// The same, with the namespace and the objects of these names above it read again: which of its own are deleted is decided on this.
pub(super) async fn fresh(
    context: &TreeContext,
    name: &str,
    named: &Named,
) -> Result<Observation, ReadError> {
    let client = &context.shared.clients.reads;
    // As it was before anything is read: what has been copied since is not among it. What has changed since is not deleted, since each is
    // deleted at the revision that is known here.
    let own = objects(context, name, &Named::new()).await?;
    let before = context.shared.namespaces.get("", name);
    let known = before.as_ref().and_then(|namespace| namespace.labels.get(LABEL_PARENT));
    let (link, seen) =
        tokio::try_join!(async { reads::link(client, name, known).await.map_err(ReadError::Get) }, async {
            match known {
                Some(parent) => read_above(context, parent, named).await.map(Some),
                None => Ok(None),
            }
        },)?;
    let (place, above) = match &link {
        None => (Place::Out, Vec::new()),
        Some(Link { above: Above::Namespace(parent), .. }) => {
            let above = match seen.filter(|_| known == Some(&**parent)) {
                Some(above) => above,
                None => read_above(context, parent, named).await?,
            };
            (above.place.below(name), above.sources.clone())
        }
        // From a root nothing is above, and it is seldom asked for.
        Some(Link { above: Above::Nothing | Above::Unknown(_), .. }) => {
            (reads::place(context, name).await?.place, Vec::new())
        }
    };
    let (namespace, creator) = link.map_or((None, None), |link| (Some(link.namespace), link.creator));
    Ok(Observation {
        namespace,
        creator,
        limited: context.quotas.get(name, TREE_QUOTA_NAME).is_some_and(|quota| is_in_force(&quota)),
        place,
        above,
        own,
        stale: stale(context),
    })
}

/// One read for all that are right below a namespace and ask at the same time.
async fn read_above(
    context: &TreeContext,
    parent: &str,
    named: &Named,
) -> Result<Arc<FreshAbove>, ReadError> {
    let shared = context.shared_above(parent, named);
    shared.read(fresh_above(context, parent, named)).await.map_err(ReadError::Above)
}

/// Reads the place of a namespace that others are below, and what is copied from it and from those above it.
async fn fresh_above(context: &TreeContext, parent: &str, named: &Named) -> Result<FreshAbove, ReadError> {
    // What is there is read along with where it is, as far as that is known.
    let known = match context.place(parent) {
        Place::In(position) => position.names().to_vec(),
        Place::Out | Place::Unknown(_) => Vec::new(),
    };
    let (FreshPlace { namespace, place, .. }, seen) = tokio::try_join!(
        async { reads::place(context, parent).await.map_err(ReadError::List) },
        all_sources(context, &known, named),
    )?;
    if namespace.is_none() {
        // What is below it is in no other place for that.
        let place = Place::without(&["below".into()], parent, None);
        return Ok(FreshAbove { place, sources: Vec::new() });
    }
    let sources = match &place {
        Place::In(position) if position.names() == known => seen,
        Place::In(position) => all_sources(context, position.names(), named).await?,
        Place::Out | Place::Unknown(_) => Vec::new(),
    };
    Ok(FreshAbove { place, sources })
}

/// What is copied of each of these, which are on a way down from a root: of the nearest first.
async fn all_sources(
    context: &TreeContext,
    path: &[Box<str>],
    named: &Named,
) -> Result<Vec<Vec<Arc<Propagated>>>, ReadError> {
    let reads: Vec<_> = path.iter().rev().map(|namespace| objects(context, namespace, named)).collect();
    Ok(try_join_all(reads).await?.into_iter().map(sources).collect())
}

async fn objects(
    context: &TreeContext,
    namespace: &str,
    again: &Named,
) -> Result<Vec<Arc<Propagated>>, ReadError> {
    let client = &context.shared.clients.reads;
    let mut all = Vec::new();
    for kind in CopiedKind::ALL {
        let names = again.get(&kind);
        if names.is_some_and(|names| names.len() > MAX_SINGLE) {
            all.extend(listed(client, kind, namespace).await?);
            continue;
        }
        let known = context.copies.decoded(kind, namespace).map_err(|(_, why)| ReadError::Unreadable(why))?;
        all.extend(known.into_iter().filter(|known| names.is_none_or(|names| !names.contains(&known.name))));
        for name in names.into_iter().flatten() {
            all.extend(named_object(client, kind, namespace, name).await?);
        }
    }
    Ok(all)
}

/// What is copied of what is above.
fn sources(mut above: Vec<Arc<Propagated>>) -> Vec<Arc<Propagated>> {
    if active(Mutant::OtherRoleBound) {
        for object in &mut above {
            let content = object.content.as_deref().map(|content| content.replace("edit", "admin").into());
            *object = Arc::new(Propagated { content, ..(**object).clone() });
        }
    }
    above
}

fn stale(context: &TreeContext) -> Option<Why> {
    context.stale().or_else(|| context.copies.stale())
}

/// Whether the quota that is in force is that of this namespace: where one of its name was deleted a moment ago, the caches may still have the
/// quota of that one (H1). What was written after the namespace is in it; otherwise it is read.
pub(super) async fn is_limited(context: &TreeContext, namespace: &NamespaceFacts) -> Result<bool, ReadError> {
    let is_own = |quota: &TreeQuota| is_later(&quota.resource_version, &namespace.resource_version);
    let known = context.quotas.get(&namespace.name, TREE_QUOTA_NAME);
    if known.is_some_and(|quota| is_own(&quota) && is_in_force(&quota)) {
        return Ok(true);
    }
    let client = &context.shared.clients.reads;
    let quota = read::get::<TreeQuotas>(client, &namespace.name, TREE_QUOTA_NAME).await?;
    Ok(quota.is_some_and(|quota| is_in_force(&quota)))
}

/// Whether the API server holds a namespace to what its quota says. A new one says nothing of every resource: that limits nothing before
/// it is in status.
fn is_in_force(quota: &TreeQuota) -> bool {
    quota.quota.as_ref().is_ok_and(|quota| quota.enforced.limits_like(&quota.hard))
}
