//! Whether the namespace of a `Subnamespace` may be created. Pure.

use coppice_api::Reason;
use coppice_api::names::{LABEL_PARENT, LABEL_ROOT};
use coppice_hierarchy::{NewNamespace, Parent, Resources, Rules, refused_to_new};
use coppice_kinds::TreeQuota;
use coppice_lifecycle::facts::{Annotations, NamespaceFacts};
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
    let new = NewNamespace {
        root: above.root(),
        parent: &observation.object.namespace,
        name,
        depth: position.depth(),
        namespaces: observation.tree_size,
    };
    match (Rules { tree: &tree.name, spec: &above.spec }).against(&new).into_iter().next() {
        Some(broken) => Err((broken.reason, broken.message)),
        None => Ok(position),
    }
}

/// Whether a request names what the tree requires of every one.
pub(super) fn names_required(position: &Position, asked: &Resources) -> Result<(), Why> {
    let rules = Rules { tree: &position.tree.name, spec: &position.spec };
    match rules.against_request(asked) {
        Some(broken) => Err((broken.reason, broken.message)),
        None => Ok(()),
    }
}

/// Whether an existing namespace that an administrator has marked for this Subnamespace may be taken into the tree. One that it created
/// was asked about before.
pub(super) fn may_be_adopted(observation: &Observation, namespace: &NamespaceFacts) -> Result<(), Why> {
    // What it created has had all labels of the tree from the beginning.
    if let Some(root) = namespace.labels.get(LABEL_ROOT) {
        if namespace.labels.get(LABEL_PARENT) == Some(&*observation.object.namespace) {
            return Ok(());
        }
        let message = format!(
            "namespace {} belongs to a tree already (label {LABEL_ROOT}={root}), where others may be below it: create a Subnamespace with \
             another name, or take that tree apart first (coppice tree detach)",
            namespace.name
        );
        return Err((Reason::NameTaken, message));
    }
    if let Some(refusal) = observation.settings.protection(namespace) {
        return Err((refusal.reason, format!("{}; it cannot be adopted", refusal.message)));
    }
    if let Some(quota) = &observation.quota {
        understood(quota)?;
    }
    let position = may_be_created(observation)?;
    super::metadata::wanted(&observation.object, observation.parent.as_deref(), &position)?;
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
