//! Objects that trees copy from a namespace to those below it: `RoleBinding`s.

use coppice_api::names::{ANNOTATION_PROPAGATED_UID, LABEL_PROPAGATED_FROM};
use coppice_runtime::decode::{MAX_KEPT_BYTES, ObjectRef, Unreadable};
use coppice_runtime::kind::{Kind, Meta, is_later};
use serde::Deserialize;
use serde_json::{Value, json};

/// What is kept of an object that is copied, or that is a copy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Propagated {
    /// Its namespace.
    pub namespace: Box<str>,
    /// Its name.
    pub name: Box<str>,
    /// Its uid.
    pub uid: Box<str>,
    /// The revision that was seen.
    pub resource_version: Box<str>,
    /// Whether it is being deleted.
    pub terminating: bool,
    /// What it is a copy of, if we wrote it.
    pub origin: Option<Origin>,
    /// The `ClusterRole` that it binds, if it does.
    pub cluster_role: Option<Box<str>>,
    /// What a copy has of it, as JSON; none if that is more than is kept, or nothing is ever copied of it.
    pub content: Option<Box<str>>,
}

/// What an object is a copy of.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Origin {
    /// The namespace of the source.
    pub namespace: Box<str>,
    /// The uid of the source.
    pub uid: Box<str>,
}

/// Every `RoleBinding`.
#[derive(Debug)]
pub struct RoleBindings;

/// A `RoleBinding` on the wire.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct RoleBindingWire {
    metadata: CopiedMeta,
    role_ref: Option<RoleRef>,
    subjects: Value,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct CopiedMeta {
    #[serde(flatten)]
    meta: Meta,
    labels: CopyLabels,
    annotations: CopyAnnotations,
}

/// The labels that are read.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct CopyLabels {
    #[serde(rename = "coppice.dev/propagated-from")]
    namespace: Option<Box<str>>,
}

/// The annotations that are read.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct CopyAnnotations {
    #[serde(rename = "coppice.dev/propagated-uid")]
    uid: Option<Box<str>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct RoleRef {
    kind: Box<str>,
    name: Box<str>,
}

impl CopiedMeta {
    fn projected(self, content: Option<&Value>) -> Propagated {
        let Self { meta, labels, annotations } = self;
        // With the label it is ours, whatever became of the annotation: the label is guarded.
        let origin =
            labels.namespace.map(|namespace| Origin { namespace, uid: annotations.uid.unwrap_or_default() });
        let content = content.map(Value::to_string).filter(|text| text.len() <= MAX_KEPT_BYTES);
        Propagated {
            namespace: meta.namespace,
            name: meta.name,
            uid: meta.uid,
            resource_version: meta.resource_version,
            terminating: meta.deletion_timestamp.is_some(),
            origin,
            cluster_role: None,
            content: content.map(Into::into),
        }
    }
}

impl Propagated {
    /// The label and the annotation of a copy of this object.
    pub fn copy_metadata(&self) -> Value {
        json!({
            "labels": {LABEL_PROPAGATED_FROM: self.namespace},
            "annotations": {ANNOTATION_PROPAGATED_UID: self.uid}
        })
    }
}

impl Kind for RoleBindings {
    type Object = Propagated;
    type Wire = RoleBindingWire;
    type Context = ();
    const RESOURCE: &'static str = "rolebindings";
    const GROUP_PATH: &'static str = "/apis/rbac.authorization.k8s.io/v1";
    const BULK: bool = true;
    /// No namespace is deleted because a `RoleBinding` is missing; of copies it is read again whether their sources are gone.
    const CAN_COLLAPSE: bool = false;

    fn object_ref(wire: &RoleBindingWire) -> ObjectRef {
        wire.metadata.meta.object_ref()
    }

    fn project(wire: RoleBindingWire, (): &()) -> Result<Propagated, Unreadable> {
        let role = wire.role_ref.filter(|role| &*role.kind == "ClusterRole").map(|role| role.name);
        let content = role.as_ref().map(|role| {
            let role_ref =
                json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role});
            json!({"roleRef": role_ref, "subjects": wire.subjects})
        });
        Ok(Propagated { cluster_role: role, ..wire.metadata.projected(content.as_ref()) })
    }

    fn name(object: &Propagated) -> &str {
        &object.name
    }

    fn is_newer(object: &Propagated, other: &Propagated) -> bool {
        object.uid == other.uid && is_later(&object.resource_version, &other.resource_version)
    }
}
