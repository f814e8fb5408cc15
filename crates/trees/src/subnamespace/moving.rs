//! Where a namespace goes whose parent is being deleted, straight from the API server.

use std::sync::Arc;

use coppice_api::Reason;
use coppice_api::names::TREE_QUOTA_NAME;
use coppice_kinds::{SubnamespaceObject, Subnamespaces, TreeQuota, TreeQuotas};
use coppice_lifecycle::facts::NamespaceFacts;
use coppice_runtime::read;

use crate::context::{MAX_PATH, TreeContext, Why};
use crate::position::{Above, Position};
use crate::reads::{self, Link};

/// Where a namespace moves.
pub(super) enum MoveTarget {
    /// To the nearest one above that stays.
    Found(Moving),
    /// It cannot go anywhere: why.
    Nowhere(Why),
}

/// What was read. The way up first, then the quota, then the rest.
pub(super) struct Moving {
    /// The nearest namespace above that is not being deleted,
    pub(super) above: Arc<NamespaceFacts>,
    /// where it is,
    pub(super) position: Position,
    /// and its quota.
    pub(super) quota: Option<Arc<TreeQuota>>,
    /// The Subnamespace in it whose namespace is being deleted, with the one that moves below it.
    pub(super) leaving: Arc<SubnamespaceObject>,
    /// The Subnamespace in it that has the name of the one that moves.
    pub(super) successor: Option<Arc<SubnamespaceObject>>,
    /// The uids of the successors of those between, which are being deleted, too.
    pub(super) between: Vec<String>,
}

/// Whether the Subnamespace that this one takes over from is still there. It was before this one, so a cache that knows this one and not
/// that one has seen that go.
pub(super) fn predecessor(context: &TreeContext, object: &SubnamespaceObject) -> bool {
    let Some(uid) = object.annotations.moved_from.as_ref().filter(|_| object.status.namespace_uid.is_none())
    else {
        return false;
    };
    let mut found = false;
    context.subnamespaces.for_each(|other| found |= other.uid == *uid);
    found
}

/// Whether a namespace is on the way of a Subnamespace that goes with the namespace above it.
pub(super) fn is_on_way(object: &SubnamespaceObject, namespace: &str) -> bool {
    object.status.path.split('/').any(|name| name == namespace)
}

/// Reads where this one goes; or why it can go nowhere.
pub(super) async fn read(
    context: &TreeContext,
    object: &SubnamespaceObject,
) -> Result<MoveTarget, kube::Error> {
    let client = &context.shared.clients.reads;
    let unknown = |why: String| Ok(MoveTarget::Nowhere((Reason::NotInTree, why)));
    let (mut going, mut at) = (Vec::new(), object.namespace.clone());
    let above = loop {
        let Some(Link { namespace, creator, above }) = reads::link(client, &at, None).await? else {
            return unknown(format!("namespace {at}, which is above, is missing"));
        };
        if !namespace.terminating {
            break namespace;
        }
        match (above, creator) {
            (Above::Namespace(next), Some(creator)) if going.len() < MAX_PATH => {
                going.push(creator);
                at = next;
            }
            (Above::Unknown(why), _) => return unknown(why),
            _ => return unknown("all namespaces above are being deleted, too".to_owned()),
        }
    };
    let name = &*above.name;
    let quota = read::get::<TreeQuotas>(client, name, TREE_QUOTA_NAME).await?.map(Arc::new);
    let in_it = async |of: &str| Ok::<_, kube::Error>(read::get::<Subnamespaces>(client, name, of).await?);
    let Some(topmost) = going.pop() else {
        return unknown(format!("namespace {} is not being deleted", object.namespace));
    };
    let leaving = in_it(&topmost.name).await?.filter(|leaving| leaving.uid == topmost.uid);
    let Some(leaving) = leaving.filter(|leaving| leaving.status_error.is_none()) else {
        return unknown(format!("Subnamespace {name}/{} is missing, or not understood", topmost.name));
    };
    let successor = in_it(&object.name).await?.map(Arc::new);
    if let Some(error) = successor.as_ref().and_then(|successor| successor.status_error.as_ref()) {
        return unknown(format!("Subnamespace {name}/{}: {error}", object.name));
    }
    let mut between = Vec::new();
    for one in going {
        let successor =
            in_it(&one.name).await?.filter(|other| other.annotations.moved_from.as_ref() == Some(&one.uid));
        between.extend(successor.map(|successor| successor.uid.to_string()));
    }
    let position = match context.position(name) {
        Ok(position) => position,
        Err(why) => return Ok(MoveTarget::Nowhere(why)),
    };
    Ok(MoveTarget::Found(Moving { above, position, quota, leaving: Arc::new(leaving), successor, between }))
}
