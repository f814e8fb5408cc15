//! Namespaces.

use coppice_lifecycle::facts::{Annotations, NamespaceFacts};
use coppice_runtime::decode::{BoundedLabels, ObjectRef, Unreadable};
use coppice_runtime::kind::{Kind, LenientTime, is_later};
use jiff::Timestamp;
use serde::Deserialize;
use serde::de::IgnoredAny;

/// Every namespace.
#[derive(Debug)]
pub struct Namespaces;

/// A namespace on the wire.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct NamespaceWire {
    metadata: NamespaceMeta,
    status: NamespaceStatusWire,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct NamespaceMeta {
    name: Box<str>,
    uid: Box<str>,
    resource_version: Box<str>,
    creation_timestamp: LenientTime,
    deletion_timestamp: Option<IgnoredAny>,
    labels: BoundedLabels,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct NamespaceStatusWire {
    phase: Box<str>,
}

impl Kind for Namespaces {
    type Object = NamespaceFacts;
    type Wire = NamespaceWire;
    type Context = ();
    const RESOURCE: &'static str = "namespaces";
    const GROUP_PATH: &'static str = "/api/v1";

    fn object_ref(wire: &NamespaceWire) -> ObjectRef {
        let meta = &wire.metadata;
        ObjectRef { namespace: "".into(), name: meta.name.clone(), revision: meta.resource_version.clone() }
    }

    fn project(wire: NamespaceWire, (): &()) -> Result<NamespaceFacts, Unreadable> {
        let meta = wire.metadata;
        // Without its labels it is not known whether it is protected.
        let BoundedLabels(Some(labels)) = meta.labels else {
            return Err(Unreadable::too_large(meta.name, "labels"));
        };
        Ok(NamespaceFacts {
            annotations: Annotations::default(),
            terminating: meta.deletion_timestamp.is_some() || &*wire.status.phase == "Terminating",
            name: meta.name.into(),
            uid: meta.uid.into(),
            resource_version: meta.resource_version.into(),
            // The API server always sets it; without it the namespace counts as created at the end of time, so that
            // nothing in it is ever due.
            created: meta.creation_timestamp.0.unwrap_or(Timestamp::MAX),
            labels,
        })
    }

    fn name(object: &NamespaceFacts) -> &str {
        &object.name
    }

    fn is_newer(object: &NamespaceFacts, other: &NamespaceFacts) -> bool {
        object.uid == other.uid && is_later(&object.resource_version, &other.resource_version)
    }
}
