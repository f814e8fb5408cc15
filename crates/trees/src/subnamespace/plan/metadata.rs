//! The labels and annotations that a namespace is to have besides those about its tree. Pure.

use coppice_api::metadata::NamespaceMetadata;
use coppice_hierarchy::Rules;
use coppice_kinds::SubnamespaceObject;
use coppice_lifecycle::facts::NamespaceFacts;

use super::super::observe::Observation;
use super::SubnamespacePlan;
use crate::context::Why;
use crate::metadata::{self, NamespaceChanges, WantedMetadata};
use crate::position::Position;

/// What a namespace in this place is to have; nothing while that is not known.
///
/// # Errors
/// If the tree does not allow what is asked for.
pub(in super::super) fn wanted(
    object: &SubnamespaceObject,
    parent: Option<&NamespaceFacts>,
    position: &Position,
) -> Result<Option<WantedMetadata>, Why> {
    let none = NamespaceMetadata::default();
    let asked = object.decoded().map_or(&none, |spec| &spec.metadata);
    let Some(parent) = parent else { return Ok(None) };
    let rules = Rules { tree: &position.tree.name, spec: &position.spec };
    if let Some(broken) = rules.against_metadata(asked) {
        return Err((broken.reason, broken.message));
    }
    Ok(metadata::wanted(&position.spec.metadata.inherited, parent, asked).ok())
}

/// Whether a namespace has something else than it is to have, as far as that is known.
pub(in super::super) fn differs(
    object: &SubnamespaceObject,
    parent: &NamespaceFacts,
    namespace: &NamespaceFacts,
    position: &Position,
) -> bool {
    let Ok(Some(wanted)) = wanted(object, Some(parent), position) else { return false };
    let changes = metadata::changes(namespace, &wanted.metadata, &object.status.metadata);
    changes.is_ok_and(|changes| !changes.is_empty())
}

impl SubnamespacePlan {
    /// What has to change; status says of what it is set that Coppice did that, before and as long as it is there. With what is not
    /// inherited, for people.
    ///
    /// # Errors
    /// If the tree does not allow what is asked for: everything stays as it is.
    pub(super) fn metadata(
        &mut self,
        observation: &Observation,
        namespace: &NamespaceFacts,
        position: &Position,
    ) -> Result<(NamespaceChanges, Option<String>), Why> {
        let object = &observation.object;
        let Some(wanted) = wanted(object, observation.parent.as_deref(), position)? else {
            return Ok((NamespaceChanges::default(), None));
        };
        let set = object.status.metadata.clone();
        let Ok(changes) = metadata::changes(namespace, &wanted.metadata, &set) else {
            // Read again with the annotations that are missing, it enqueues this Subnamespace.
            return Ok((NamespaceChanges::default(), None));
        };
        self.status.metadata = metadata::keys(&wanted.metadata, &set, changes.is_empty());
        let note = (!wanted.too_long.is_empty()).then(|| {
            format!(
                "not inherited from {}: the annotation {}, which is longer than 256 characters",
                object.namespace,
                wanted.too_long.join(", ")
            )
        });
        Ok((changes, note))
    }
}
