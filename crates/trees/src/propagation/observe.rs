//! A namespace, where it is in its tree, what there is in it and above it: from caches, or straight from the API server.

use std::collections::BTreeSet;
use std::sync::Arc;

use coppice_api::names::TREE_QUOTA_NAME;
use coppice_kinds::{CopiedKind, Propagated, SubnamespaceObject, TreeQuota};
use coppice_lifecycle::facts::NamespaceFacts;
use coppice_mutants::{Mutant, active};
use coppice_runtime::read::ListError;

use crate::context::{TreeContext, Why};
use crate::copies::listed;
use crate::position::Place;
use crate::reads::{self, FreshPlace};

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

/// The same, with these kinds read again: what of them is deleted is decided on this.
pub(super) async fn fresh(
    context: &TreeContext,
    name: &str,
    kinds: &BTreeSet<CopiedKind>,
) -> Result<Observation, ReadError> {
    let client = &context.shared.clients.reads;
    // What is in it first: what has been copied since is not among it.
    let own = objects(context, name, kinds).await?;
    let FreshPlace { namespace, place, creators } = reads::place(client, name).await?;
    let mut above = Vec::new();
    if let Place::In(position) = &place {
        for ancestor in position.ancestors() {
            above.push(sources(objects(context, ancestor, kinds).await?));
        }
    }
    Ok(Observation {
        namespace,
        creator: creators.into_iter().next(),
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

/// Whether the API server holds a namespace to what its quota says.
fn is_in_force(quota: &TreeQuota) -> bool {
    quota.quota.as_ref().is_ok_and(|quota| quota.enforced == quota.hard)
}
