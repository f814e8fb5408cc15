//! The way of a transfer through its tree. Pure.

use coppice_api::Reason;
use coppice_api::quota_transfer::TransferStop;
use coppice_hierarchy::{ValidTransfer, partition_between};

use crate::context::Why;
use crate::position::{Place, Position};

/// The namespaces from the source to the target, whose tree this is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Route {
    pub(super) tree: String,
    pub(super) path: Vec<TransferStop>,
}

/// Why there is none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum NoRoute {
    /// Nothing changes that.
    Never(String),
    /// It is not known yet.
    Unknown(Why),
}

/// The way from one place to another. `uid`: of the Subnamespace of a namespace that is below another one.
pub(super) fn route(
    source: &str,
    spec: &ValidTransfer,
    place: impl Fn(&str) -> Place,
    uid: impl Fn(&str, &str) -> Option<String>,
) -> Result<Route, NoRoute> {
    if spec.to == source {
        return Err(NoRoute::Never(format!("spec.to is namespace {source} itself: name another one")));
    }
    let position = |name: &str| match place(name) {
        Place::In(position) => Ok(position),
        Place::Out => Err(NoRoute::Never(format!(
            "namespace {name} belongs to no tree: quota is transferred between namespaces of one tree"
        ))),
        Place::Unknown(why) => Err(NoRoute::Unknown((Reason::NotInTree, why))),
    };
    let (from, to) = (position(source)?, position(&spec.to)?);
    if let Some(tree) = [&from.tree, &to.tree].into_iter().find(|tree| tree.terminating) {
        return Err(NoRoute::Never(format!(
            "NamespaceTree {} is being deleted: no transfer begins in it",
            tree.name
        )));
    }
    if from.tree.name != to.tree.name {
        return Err(NoRoute::Never(format!(
            "namespace {source} belongs to NamespaceTree {}, and namespace {} to {}: quota is transferred between namespaces of one tree",
            from.tree.name, spec.to, to.tree.name
        )));
    }
    let common = common(&from, &to);
    let Some(top) = common.checked_sub(1).and_then(|last| from.names().get(last)) else {
        return Err(NoRoute::Never(format!("nothing is above both {source} and {}", spec.to)));
    };
    if **top != *spec.through {
        return Err(NoRoute::Never(format!(
            "spec.through is {}, and the nearest namespace that {source} and {} both are or are below of is {top}: create the \
             QuotaTransfer with through: {top}",
            spec.through, spec.to
        )));
    }
    if let Some(partition) = partition_between(from.names(), to.names(), &from.spec.partitions) {
        let (tree, root) = (&from.tree.name, from.root());
        return Err(NoRoute::Never(format!(
            "namespace {partition} is a partition of NamespaceTree {tree} (spec.partitions), whose quota stands for something that other \
             branches have not: give quota back to {root} instead, whose administrators decide who gets it"
        )));
    }
    let stop = |names: &[Box<str>], at: usize| {
        let missing =
            || NoRoute::Unknown((Reason::NotInTree, format!("namespace {} is not known", names[at])));
        let uid = uid(&names[at - 1], &names[at]).ok_or_else(missing)?;
        Ok(TransferStop { namespace: names[at].to_string(), uid })
    };
    let up = (common..from.names().len()).rev().map(|at| stop(from.names(), at));
    let turn = std::iter::once(Ok(TransferStop { namespace: top.to_string(), uid: String::new() }));
    let down = (common..to.names().len()).map(|at| stop(to.names(), at));
    let path = up.chain(turn).chain(down).collect::<Result<_, _>>()?;
    Ok(Route { tree: from.tree.name.to_string(), path })
}

/// How many namespaces from the root down both ways have.
fn common(one: &Position, other: &Position) -> usize {
    one.names().iter().zip(other.names()).take_while(|(one, other)| one == other).count()
}

#[cfg(test)]
#[path = "route_tests.rs"]
mod tests;
