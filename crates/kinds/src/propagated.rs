//! Objects that trees copy from a namespace to those below it: `LimitRange`s, `NetworkPolicy`s and `RoleBinding`s.

use coppice_api::names::{ANNOTATION_PROPAGATED_UID, LABEL_PROPAGATED_FROM};
use coppice_runtime::decode::{MAX_KEPT_BYTES, ObjectRef, Unreadable};
use coppice_runtime::kind::{Kind, Meta, is_later};
use serde::Deserialize;
use serde_json::{Value, json};

/// The annotation that says which namespaces an object is copied into has at most so many bytes.
pub const MAX_PROPAGATE_TO: usize = 1 << 10;

/// The kinds that are copied, in the order in which a new namespace gets them: rights last, when everything that limits them is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum CopiedKind {
    /// What containers and claims request where they do not say it, and how much they may.
    LimitRange,
    /// Who may talk to whom.
    NetworkPolicy,
    /// Who has which role.
    RoleBinding,
}

impl CopiedKind {
    /// All of them, in their order.
    pub const ALL: [Self; 3] = [Self::LimitRange, Self::NetworkPolicy, Self::RoleBinding];

    /// As in `kind`.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::LimitRange => "LimitRange",
            Self::NetworkPolicy => "NetworkPolicy",
            Self::RoleBinding => "RoleBinding",
        }
    }

    /// More than one, for people.
    pub const fn plural(self) -> &'static str {
        match self {
            Self::LimitRange => "LimitRanges",
            Self::NetworkPolicy => "NetworkPolicies",
            Self::RoleBinding => "RoleBindings",
        }
    }

    /// Its field in `spec.propagate` of a NamespaceTree.
    pub const fn field(self) -> &'static str {
        match self {
            Self::LimitRange => "limitRanges",
            Self::NetworkPolicy => "networkPolicies",
            Self::RoleBinding => "roleBindings",
        }
    }

    /// As in `apiVersion`.
    pub const fn api_version(self) -> &'static str {
        match self {
            Self::LimitRange => "v1",
            Self::NetworkPolicy => "networking.k8s.io/v1",
            Self::RoleBinding => "rbac.authorization.k8s.io/v1",
        }
    }
}

/// What is kept of an object that is copied, or that is a copy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Propagated {
    /// What it is.
    pub kind: CopiedKind,
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
    /// Which namespaces it says it is copied into, cut after more than [`MAX_PROPAGATE_TO`] bytes; none: all below its own.
    pub propagate_to: Option<Box<str>>,
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

/// Every `LimitRange`.
#[derive(Debug)]
pub struct LimitRanges;

/// Every `NetworkPolicy`.
#[derive(Debug)]
pub struct NetworkPolicies;

/// A `LimitRange` or a `NetworkPolicy` on the wire: all of its spec is copied.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct SpecWire {
    metadata: CopiedMeta,
    spec: Value,
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
    #[serde(rename = "coppice.dev/propagate-to")]
    propagate_to: Option<Box<str>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct RoleRef {
    kind: Box<str>,
    name: Box<str>,
}

impl CopiedMeta {
    fn projected(self, kind: CopiedKind, content: Option<&Value>) -> Propagated {
        let Self { meta, labels, annotations } = self;
        // With the label it is ours, whatever became of the annotation: the label is guarded.
        let origin = labels
            .namespace
            .map(|namespace| Origin { namespace, uid: annotations.uid.clone().unwrap_or_default() });
        let content = content.map(Value::to_string).filter(|text| text.len() <= MAX_KEPT_BYTES);
        Propagated {
            kind,
            namespace: meta.namespace,
            name: meta.name,
            uid: meta.uid,
            resource_version: meta.resource_version,
            terminating: meta.deletion_timestamp.is_some(),
            origin,
            propagate_to: annotations.propagate_to.map(cut),
            cluster_role: None,
            content: content.map(Into::into),
        }
    }
}

/// So that it still shows that it was too long.
fn cut(text: Box<str>) -> Box<str> {
    let mut end = text.len().min(MAX_PROPAGATE_TO + 4);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    if end == text.len() { text } else { text[..end].into() }
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

/// A kind whose copies have its spec.
macro_rules! copied_by_spec {
    ($kind:ident, $variant:ident, $resource:literal, $path:literal) => {
        impl Kind for $kind {
            type Object = Propagated;
            type Wire = SpecWire;
            type Context = ();
            const RESOURCE: &'static str = $resource;
            const GROUP_PATH: &'static str = $path;
            const BULK: bool = true;
            /// As for `RoleBinding`s.
            const CAN_COLLAPSE: bool = false;

            fn object_ref(wire: &SpecWire) -> ObjectRef {
                wire.metadata.meta.object_ref()
            }

            fn project(wire: SpecWire, (): &()) -> Result<Propagated, Unreadable> {
                let content = json!({"spec": wire.spec});
                Ok(wire.metadata.projected(CopiedKind::$variant, Some(&content)))
            }

            fn name(object: &Propagated) -> &str {
                &object.name
            }

            fn is_newer(object: &Propagated, other: &Propagated) -> bool {
                object.uid == other.uid && is_later(&object.resource_version, &other.resource_version)
            }
        }
    };
}

copied_by_spec!(LimitRanges, LimitRange, "limitranges", "/api/v1");
copied_by_spec!(NetworkPolicies, NetworkPolicy, "networkpolicies", "/apis/networking.k8s.io/v1");

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
        Ok(Propagated {
            cluster_role: role,
            ..wire.metadata.projected(CopiedKind::RoleBinding, content.as_ref())
        })
    }

    fn name(object: &Propagated) -> &str {
        &object.name
    }

    fn is_newer(object: &Propagated, other: &Propagated) -> bool {
        object.uid == other.uid && is_later(&object.resource_version, &other.resource_version)
    }
}
