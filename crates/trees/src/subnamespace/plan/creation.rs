//! Whether the namespace of a `Subnamespace` may be created. Pure.

use coppice_api::Reason;
use coppice_api::names::LABEL_ROOT;
use coppice_hierarchy::{Parent, Resources, refused_to_new};
use coppice_kinds::TreeQuota;
use coppice_lifecycle::facts::{Annotations, NamespaceFacts};
use coppice_lifecycle::glob::permits;
use coppice_quantity::Quantity;
use jiff::Timestamp;

use super::super::observe::Observation;
use super::asked;
use crate::allotment::understood;
use crate::context::Why;
use crate::position::Position;

/// Where the namespace would be; or why it may not be created.
pub(super) fn may_be_created(observation: &Observation) -> Result<Position, Why> {
    let (name, above) = (&*observation.object.name, observation.parent_position.clone()?);
    if observation.parent.as_ref().is_none_or(|parent| parent.terminating) || above.tree.terminating {
        let message = format!("namespace {} is being deleted", observation.object.namespace);
        return Err((Reason::NamespaceTerminating, message));
    }
    let (tree, position) = (&above.tree, above.below(name));
    let spec =
        tree.decoded().map_err(|why| (Reason::NotInTree, format!("NamespaceTree {}: {why}", tree.name)))?;
    if !permits(&spec.names, (above.root(), &observation.object.namespace), name) {
        let message = format!(
            "NamespaceTree {} permits no namespace {name} in {}: name it by one of spec.names, which are {}",
            tree.name,
            observation.object.namespace,
            spec.names.join(", ")
        );
        return Err((Reason::NameNotAllowed, message));
    }
    let unmade = NamespaceFacts {
        name: name.to_owned(),
        uid: String::new(),
        resource_version: String::new(),
        created: Timestamp::MAX,
        labels: [("", ""); 0].into_iter().collect(),
        annotations: Annotations::default(),
        terminating: false,
    };
    if let Some(refusal) = observation.settings.protection(&unmade) {
        let message = format!("{}; create a Subnamespace with another name", refusal.message);
        return Err((refusal.reason, message));
    }
    if position.depth() > spec.max_depth {
        let message = format!(
            "namespace {name} would be {} below the root, and NamespaceTree {} permits {} (spec.maxDepth): create it further up",
            position.depth(),
            tree.name,
            spec.max_depth
        );
        return Err((Reason::TooDeep, message));
    }
    if observation.tree_size >= spec.max_namespaces {
        let message = format!(
            "NamespaceTree {} has {} namespaces and permits {} (spec.maxNamespaces): delete a Subnamespace that nobody needs",
            tree.name, observation.tree_size, spec.max_namespaces
        );
        return Err((Reason::TooManyNamespaces, message));
    }
    Ok(position)
}

/// Whether a request names what the tree requires of every one.
pub(super) fn names_required(position: &Position, asked: &Resources) -> Result<(), Why> {
    let tree = &position.tree;
    // Of a tree that is not understood nothing is known to be required; what it limits, its quotas say.
    let Ok(spec) = tree.decoded() else { return Ok(()) };
    let required = Resources::parse(spec.quota.required.iter().map(|name| (name.as_str(), Quantity::ZERO)));
    let required = required.unwrap_or_default();
    let missing: Vec<&str> =
        required.iter().filter(|(name, _)| !asked.names(name)).map(|(name, _)| name.as_str()).collect();
    if missing.is_empty() {
        return Ok(());
    }
    let message = format!(
        "spec.quota.hard does not name {}, which NamespaceTree {} requires (spec.quota.required): write an amount of each, 0 for none of it",
        missing.join(", "),
        tree.name
    );
    Err((Reason::InvalidSpec, message))
}

/// Whether an existing namespace that an administrator has marked for this Subnamespace may be taken into the tree. One that it created
/// was asked about before.
pub(super) fn may_be_adopted(observation: &Observation, namespace: &NamespaceFacts) -> Result<(), Why> {
    // What it created has had all labels of the tree from the beginning.
    if namespace.labels.get(LABEL_ROOT).is_some() {
        return Ok(());
    }
    if let Some(refusal) = observation.settings.protection(namespace) {
        return Err((refusal.reason, format!("{}; it cannot be adopted", refusal.message)));
    }
    if let Some(quota) = &observation.quota {
        understood(quota)?;
    }
    let position = may_be_created(observation)?;
    let Some(parent_quota) = &observation.parent_quota else {
        let message = format!("namespace {} has no quota of its tree yet", observation.object.namespace);
        return Err((Reason::QuotaChanging, message));
    };
    // Its quota holds from the moment that it is in the tree: without room for it, nothing new would run there.
    has_room(observation, &position, parent_quota)
}

/// Whether what is asked for is understood, complete, and there.
pub(super) fn has_room(
    observation: &Observation,
    position: &Position,
    parent_quota: &TreeQuota,
) -> Result<(), Why> {
    let (quota, asked) = (understood(parent_quota)?, asked(&observation.object)?);
    names_required(position, &asked)?;
    // Nothing is created for what would be refused.
    let object = &observation.object;
    let parent = Parent { name: &object.namespace, quota, siblings: &observation.siblings };
    match refused_to_new(&parent, &object.name, &asked) {
        Some(refusal) => Err((Reason::QuotaRefused, refusal.to_string())),
        None => Ok(()),
    }
}
