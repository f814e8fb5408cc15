//! Namespaces.

use std::fmt;

use coppice_lifecycle::facts::{AnnotationKeys, Annotations, NamespaceFacts};
use coppice_runtime::decode::{BoundedLabels, ObjectRef, Unreadable};
use coppice_runtime::kind::{Kind, LenientTime, is_later};
use jiff::Timestamp;
use serde::de::{IgnoredAny, MapAccess, Visitor};
use serde::{Deserialize, Deserializer};

/// Every namespace, with the annotations that the context names.
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
    annotations: AllAnnotations,
}

/// Every annotation of a namespace, until it is projected.
#[derive(Debug, Default)]
struct AllAnnotations(Vec<(Box<str>, Box<str>)>);

impl<'de> Deserialize<'de> for AllAnnotations {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Pairs;
        impl<'de> Visitor<'de> for Pairs {
            type Value = AllAnnotations;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a map of annotations")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<AllAnnotations, A::Error> {
                let mut pairs = Vec::new();
                while let Some(pair) = map.next_entry::<Box<str>, Box<str>>()? {
                    pairs.push(pair);
                }
                Ok(AllAnnotations(pairs))
            }

            fn visit_unit<E>(self) -> Result<AllAnnotations, E> {
                Ok(AllAnnotations::default())
            }
        }
        deserializer.deserialize_any(Pairs)
    }
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct NamespaceStatusWire {
    phase: Box<str>,
}

impl Kind for Namespaces {
    type Object = NamespaceFacts;
    type Wire = NamespaceWire;
    type Context = AnnotationKeys;
    const RESOURCE: &'static str = "namespaces";
    const GROUP_PATH: &'static str = "/api/v1";
    /// A namespace says itself which annotations were read of it.
    const CONTEXT_SELECTS: bool = false;

    fn object_ref(wire: &NamespaceWire) -> ObjectRef {
        let meta = &wire.metadata;
        ObjectRef { namespace: "".into(), name: meta.name.clone(), revision: meta.resource_version.clone() }
    }

    fn project(wire: NamespaceWire, keys: &AnnotationKeys) -> Result<NamespaceFacts, Unreadable> {
        let meta = wire.metadata;
        // Without its labels it is not known whether it is protected.
        let BoundedLabels(Some(labels)) = meta.labels else {
            return Err(Unreadable::too_large(meta.name, "labels"));
        };
        Ok(NamespaceFacts {
            // As many as cluster managers name, each cut: nobody makes a namespace unreadable by them.
            annotations: Annotations::of(keys, meta.annotations.0),
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
