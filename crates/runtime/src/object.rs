//! Objects of our own kinds: everything of spec and status is kept, and little of the metadata.

use std::fmt::Debug;
use std::sync::Arc;

use coppice_api::DecodeError;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::ObjectReference;
use serde::Deserialize;
use serde::Serialize;
use serde::de::{DeserializeOwned, IgnoredAny};
use serde_json::value::RawValue;

use crate::decode::{ObjectRef, Unreadable, short_error};
use crate::kind::{Kind, Meta};

/// A kind of our own. [`own_kind!`](crate::own_kind) declares one.
pub trait OwnKind: Kind<Object = Object<Self::Spec, Self::Status, Self::Annotations>, Context = ()> {
    /// Its spec.
    type Spec: DeserializeOwned + Debug + PartialEq + Send + Sync + 'static;
    /// Its status, which belongs to the operator.
    type Status: DeserializeOwned + Serialize + Debug + Default + PartialEq + Send + Sync + 'static;
    /// The annotations that are kept; [`NoAnnotations`] of most kinds.
    type Annotations: DeserializeOwned + Clone + Debug + Default + PartialEq + Send + Sync + 'static;
    /// The kind, as in `kind`.
    const KIND: &'static str;
    /// Whether its objects are in namespaces.
    const NAMESPACED: bool;
    /// Bytes of a spec that are read.
    const MAX_SPEC_BYTES: usize;

    /// Drops of a status what no cache needs.
    fn compact_status(status: &mut Self::Status) {
        let _ = status;
    }
}

/// The reference to an object, as Events have it.
pub fn reference<K: OwnKind>(object: &K::Object) -> ObjectReference {
    ObjectReference {
        api_version: Some(K::GROUP_PATH.trim_start_matches("/apis/").to_owned()),
        kind: Some(K::KIND.to_owned()),
        namespace: K::NAMESPACED.then(|| object.namespace.to_string()),
        name: Some(object.name.to_string()),
        uid: Some(object.uid.to_string()),
        ..ObjectReference::default()
    }
}

/// No annotation is kept.
pub type NoAnnotations = IgnoredAny;

/// An object of one of our own kinds.
#[derive(Clone, Debug, PartialEq)]
pub struct Object<S, T, A = NoAnnotations> {
    /// Its namespace; empty for cluster-scoped kinds.
    pub namespace: Box<str>,
    /// Its name.
    pub name: Box<str>,
    /// Its uid.
    pub uid: Box<str>,
    /// The revision that was seen; the precondition of every write.
    pub resource_version: Box<str>,
    /// The generation of its spec.
    pub generation: i64,
    /// When it was created.
    pub created: Timestamp,
    /// Whether it is being deleted.
    pub terminating: bool,
    /// Whether our [finalizer](coppice_api::names::FINALIZER) keeps it.
    pub has_finalizer: bool,
    /// What is kept of its annotations.
    pub annotations: A,
    /// Its spec, or why it cannot be understood.
    pub spec: Result<Arc<S>, DecodeError>,
    /// Its status; the default if there is none or it cannot be understood.
    pub status: Box<T>,
    /// Why the status cannot be understood, if so: nothing is done then, since it says what has been done.
    pub status_error: Option<DecodeError>,
}

/// An object of one of our own kinds on the wire.
#[derive(Debug, Default, Deserialize)]
#[serde(default, bound(deserialize = "A: Default + Deserialize<'de>"))]
pub struct ObjectWire<A = NoAnnotations> {
    metadata: Meta<A>,
    spec: Option<Box<RawValue>>,
    status: Option<Box<RawValue>>,
}

impl<A> ObjectWire<A> {
    /// Where the object is.
    pub fn object_ref<K: OwnKind>(&self) -> ObjectRef {
        scoped::<K>(self.metadata.object_ref())
    }
}

fn scoped<K: OwnKind>(object_ref: ObjectRef) -> ObjectRef {
    if K::NAMESPACED { object_ref } else { ObjectRef { namespace: "".into(), ..object_ref } }
}

impl<S, T, A> Object<S, T, A> {
    /// Its spec, if that and its status can be understood; otherwise why not.
    ///
    /// # Errors
    /// The reason.
    pub fn decoded(&self) -> Result<&S, &DecodeError> {
        self.decoded_shared().map(|spec| &**spec)
    }

    /// The same, for what keeps it.
    ///
    /// # Errors
    /// The reason.
    pub fn decoded_shared(&self) -> Result<&Arc<S>, &DecodeError> {
        match (&self.spec, &self.status_error) {
            (Err(error), _) | (_, Some(error)) => Err(error),
            (Ok(spec), None) => Ok(spec),
        }
    }

    /// Whether this is a later state of the same object than `other`.
    pub fn is_newer_than(&self, other: &Self) -> bool {
        self.uid == other.uid && crate::kind::is_later(&self.resource_version, &other.resource_version)
    }
}

impl<S: DeserializeOwned, T: DeserializeOwned + Default, A: Default> Object<S, T, A> {
    /// What is on the wire, of which a spec of so many bytes is read.
    pub fn from_wire(wire: ObjectWire<A>, max_spec_bytes: usize) -> Self {
        let meta = wire.metadata;
        let status = match wire.status {
            None => Ok(T::default()),
            Some(raw) => {
                serde_json::from_str(raw.get()).map_err(|e| DecodeError::Status { why: short_error(&e) })
            }
        };
        let (status, status_error) = match status {
            Ok(status) => (status, None),
            Err(error) => (T::default(), Some(error)),
        };
        let spec = wire.spec.as_ref().map_or("null", |raw| raw.get());
        let spec = if spec.len() > max_spec_bytes {
            Err(DecodeError::SpecTooLarge { bytes: spec.len(), max: max_spec_bytes })
        } else {
            serde_json::from_str(spec).map(Arc::new).map_err(|e| DecodeError::Spec { why: short_error(&e) })
        };
        Self {
            namespace: meta.namespace,
            name: meta.name,
            uid: meta.uid,
            resource_version: meta.resource_version,
            generation: meta.generation,
            created: meta.creation_timestamp.0.unwrap_or(Timestamp::MAX),
            terminating: meta.deletion_timestamp.is_some(),
            has_finalizer: meta.finalizers.0,
            annotations: meta.annotations,
            spec,
            status: Box::new(status),
            status_error,
        }
    }

    /// An object whose metadata cannot be understood: it is there, asks for nothing, and its status is left as it is.
    ///
    /// # Errors
    /// If it has no name.
    pub fn with_invalid_metadata<K: OwnKind>(object_ref: &ObjectRef, why: &str) -> Result<Self, Unreadable> {
        let object_ref = scoped::<K>(object_ref.clone());
        if object_ref.name.is_empty() {
            return Err(Unreadable::undecodable("".into(), why));
        }
        let error = DecodeError::Object { why: why.to_owned() };
        Ok(Self {
            namespace: object_ref.namespace,
            name: object_ref.name,
            uid: "".into(),
            resource_version: object_ref.revision,
            // Of no real object, and so of no settings that are compiled already.
            generation: -1,
            created: Timestamp::MAX,
            terminating: false,
            has_finalizer: false,
            annotations: A::default(),
            spec: Err(error.clone()),
            status: Box::default(),
            status_error: Some(error),
        })
    }
}

/// Makes a type that implements [`OwnKind`] a [`Kind`], which is the same for all of them.
#[macro_export]
macro_rules! own_kind {
    ($kind:ident, $group_path:literal, $resource:literal) => {
        impl $crate::kind::Kind for $kind {
            type Object = $crate::object::Object<
                <Self as $crate::object::OwnKind>::Spec,
                <Self as $crate::object::OwnKind>::Status,
                <Self as $crate::object::OwnKind>::Annotations,
            >;
            type Wire = $crate::object::ObjectWire<<Self as $crate::object::OwnKind>::Annotations>;
            type Context = ();
            const RESOURCE: &'static str = $resource;
            const GROUP_PATH: &'static str = $group_path;

            fn object_ref(wire: &Self::Wire) -> $crate::decode::ObjectRef {
                wire.object_ref::<Self>()
            }

            fn project(wire: Self::Wire, (): &()) -> Result<Self::Object, $crate::decode::Unreadable> {
                let max = <Self as $crate::object::OwnKind>::MAX_SPEC_BYTES;
                Ok($crate::object::Object::from_wire(wire, max))
            }

            fn from_undecodable(
                object_ref: &$crate::decode::ObjectRef,
                why: &str,
            ) -> Result<Self::Object, $crate::decode::Unreadable> {
                $crate::object::Object::with_invalid_metadata::<Self>(object_ref, why)
            }

            fn name(object: &Self::Object) -> &str {
                &object.name
            }

            fn is_newer(object: &Self::Object, other: &Self::Object) -> bool {
                object.is_newer_than(other)
            }

            fn compact(object: &mut Self::Object) {
                <Self as $crate::object::OwnKind>::compact_status(&mut object.status);
            }
        }
    };
}
