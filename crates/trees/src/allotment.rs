//! Quotas and allotments, as objects have them and as the engine has them. Pure.

use std::sync::Arc;

use coppice_api::{Amounts, Reason};
use coppice_hierarchy::{Quota, Record, Resources};
use coppice_kinds::{SubnamespaceObject, TreeQuota};

use crate::context::Why;

/// What a quota says; or why it cannot be understood.
pub(crate) fn understood(quota: &TreeQuota) -> Result<&Quota, Why> {
    let (namespace, name) = (&quota.namespace, &quota.name);
    if quota.tree.is_none() {
        // Whatever its annotations say. A tree that was taken apart has left such a one, too.
        let message = format!(
            "namespace {namespace} has a ResourceQuota {name} that belongs to no tree, and is not taken over: delete it, after you have created \
             another one like it if it is to hold besides"
        );
        return Err((Reason::QuotaTaken, message));
    }
    quota.quota.as_ref().map_err(|why| {
        let message = format!(
            "ResourceQuota {name} in namespace {namespace} cannot be understood ({why}): nothing is given or taken until it is as it was"
        );
        (Reason::QuotaTaken, message)
    })
}

/// What the namespace has, by its record.
pub(crate) fn allotment(object: &SubnamespaceObject) -> Option<Resources> {
    Resources::recorded(&object.status.allotment.as_ref()?.hard).ok()
}

/// The record of its allotment as the engine has it.
pub(crate) fn recorded(object: &SubnamespaceObject) -> Record {
    let decided = object.status.allotment.as_ref().map_or(0, |allotment| allotment.decided);
    Record { allotment: allotment(object).unwrap_or_default(), decided: u64::try_from(decided).unwrap_or(0) }
}

/// The Subnamespaces in a namespace.
#[derive(Clone, Debug, Default)]
pub(crate) struct Children {
    count: usize,
    /// What they have together, by their records; nothing where nobody asks.
    have: Resources,
}

impl Children {
    /// So many, where nobody asks what they have: only a quota that was lost has to be made again by that. Of thousands it would be added up
    /// whenever one of them changes.
    pub(crate) fn counted(count: usize) -> Self {
        Self { count, have: Resources::default() }
    }

    /// How many there are.
    pub(crate) fn len(&self) -> usize {
        self.count
    }

    /// Whether there are none.
    pub(crate) fn is_empty(&self) -> bool {
        self.count == 0
    }
}

impl From<Vec<Arc<SubnamespaceObject>>> for Children {
    fn from(children: Vec<Arc<SubnamespaceObject>>) -> Self {
        let all = children.iter().filter_map(|child| allotment(child));
        let have = all.fold(Resources::default(), |sum, has| sum.plus(&has).unwrap_or(sum));
        Self { count: children.len(), have }
    }
}

/// What these have together, by their records.
pub(crate) fn below(children: &Children) -> Resources {
    children.have.clone()
}

/// Amounts as a status has them.
pub(crate) fn amounts(resources: &Resources) -> Amounts {
    resources.iter().map(|(name, amount)| (name.as_str(), amount)).collect()
}

/// The resource that a refusal is about, which its message begins with.
pub(crate) fn refused_resource(message: &str) -> Option<&str> {
    Some(message.split_once(": ")?.0)
}
