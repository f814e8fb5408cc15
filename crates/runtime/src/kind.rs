//! What the runtime has to know of a kind: where it is served, and the few fields of each object that are kept.
//!
//! Objects are decoded straight into these shapes: what is not named there is skipped while the answer is read. All
//! fields are optional on the wire, so that one odd object cannot stop the watch of its kind.

use std::fmt::Debug;

use coppice_api::names::FINALIZER;
use jiff::Timestamp;
use serde::Deserialize;
use serde::de::{DeserializeOwned, IgnoredAny};

use crate::decode::{ObjectRef, Unreadable};

/// A kind that is watched and kept in a small shape.
pub trait Kind: Debug + Send + Sync + 'static {
    /// What is kept of an object.
    type Object: Debug + PartialEq + Send + Sync + 'static;
    /// What is read of the API server's answer.
    type Wire: DeserializeOwned;
    /// What decides at run time how much is kept, `()` if nothing does. It begins as the default;
    /// [`Store::set_context`](crate::store::Store::set_context) changes it.
    type Context: Debug + Default + PartialEq + Send + Sync + 'static;
    /// The resource, as in URLs; also the label of its metrics.
    const RESOURCE: &'static str;
    /// The path of the group and version, such as `/api/v1`.
    const GROUP_PATH: &'static str;
    /// Whether there are so many that they are [listed again rarely](crate::intervals::ResyncIntervals::relist_bulk).
    const BULK: bool = false;
    /// The label selector of lists and watches; empty selects everything. An object that leaves it is reported as deleted.
    const LABEL_SELECTOR: &'static str = "";
    /// Whether the API server is asked for `metadata` alone, and leaves out the rest.
    const METADATA_ONLY: bool = false;

    /// Whether a list that lacks much of what was known is a [collapse](crate::collapse): not where less of the kind never
    /// leads to a destructive step, or what is kept of it comes and goes with its state.
    const CAN_COLLAPSE: bool = true;

    /// Whether the context decides which objects are kept. If it decides only what is kept of each, an object has to say itself
    /// what that was: then what the cache has stays true when the context changes, and is [listed again](crate::store::Store::is_listed)
    /// beside that.
    const CONTEXT_SELECTS: bool = true;

    /// Where the object is; its namespace is empty for cluster-scoped kinds.
    fn object_ref(wire: &Self::Wire) -> ObjectRef;

    /// Whether anything is kept of the object. What is not kept is as if it did not exist.
    fn keep(wire: &Self::Wire, context: &Self::Context) -> bool {
        let (_, _) = (wire, context);
        true
    }

    /// What is kept of the object.
    ///
    /// # Errors
    /// If it is too large to keep, or not understood.
    fn project(wire: Self::Wire, context: &Self::Context) -> Result<Self::Object, Unreadable>;

    /// What is kept of an object that cannot be decoded.
    ///
    /// # Errors
    /// If nothing is: the facts about its kind are unknown in its namespace then.
    fn from_undecodable(object_ref: &ObjectRef, why: &str) -> Result<Self::Object, Unreadable> {
        Err(Unreadable::undecodable(object_ref.name.clone(), why))
    }

    /// The object's name, unique in its namespace.
    fn name(object: &Self::Object) -> &str;

    /// Whether this is a later state of the same object than `other`; false if that is not known.
    fn is_newer(object: &Self::Object, other: &Self::Object) -> bool {
        let (_, _) = (object, other);
        false
    }

    /// Drops what no cache needs.
    fn compact(object: &mut Self::Object) {
        let _ = object;
    }
}

/// Revisions are numbers that grow; where an API server has others, nothing is taken over from what it answers.
pub fn is_later(revision: &str, other: &str) -> bool {
    let number = |revision: &str| revision.parse::<u64>().ok();
    number(revision).zip(number(other)).is_some_and(|(this, other)| this > other)
}

/// What is read of the metadata of most kinds.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default, bound(deserialize = "A: Default + Deserialize<'de>"))]
pub struct Meta<A = IgnoredAny> {
    /// Its name.
    pub name: Box<str>,
    /// Its namespace; empty for cluster-scoped kinds.
    pub namespace: Box<str>,
    /// Its uid.
    pub uid: Box<str>,
    /// Its revision.
    pub resource_version: Box<str>,
    /// The generation of its spec.
    pub generation: i64,
    /// When it was created.
    pub creation_timestamp: LenientTime,
    /// Present once it is being deleted.
    pub deletion_timestamp: Option<IgnoredAny>,
    /// Of its finalizers, whether ours is there.
    pub finalizers: OwnFinalizer,
    /// Those of its annotations that are read; of most kinds none.
    pub annotations: A,
}

impl<A> Meta<A> {
    /// Where the object is.
    pub fn object_ref(&self) -> ObjectRef {
        ObjectRef {
            namespace: self.namespace.clone(),
            name: self.name.clone(),
            revision: self.resource_version.clone(),
        }
    }
}

/// Whether our [finalizer](FINALIZER) is among those of an object.
#[derive(Clone, Copy, Debug, Default)]
pub struct OwnFinalizer(pub bool);

impl<'de> Deserialize<'de> for OwnFinalizer {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let all = Option::<Vec<Box<str>>>::deserialize(deserializer)?;
        Ok(Self(all.into_iter().flatten().any(|finalizer| &*finalizer == FINALIZER)))
    }
}

/// An instant; none if it is left out or is none that we can count with, such as the last day of the year 9999.
#[derive(Clone, Copy, Debug, Default)]
pub struct LenientTime(pub Option<Timestamp>);

impl<'de> Deserialize<'de> for LenientTime {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = Option::<Box<str>>::deserialize(deserializer)?;
        Ok(Self(text.and_then(|text| text.parse().ok())))
    }
}

#[cfg(test)]
pub(crate) mod testing {
    //! Kinds for tests: what is kept of an object is small, can be too large, can be odd, and can be nothing.

    use coppice_api::Labels;

    use super::*;
    use crate::decode::BoundedLabels;

    /// Of the group `example.com`.
    #[derive(Debug)]
    pub(crate) struct Widgets;

    /// One of them.
    #[derive(Debug, PartialEq)]
    pub(crate) struct Widget {
        pub(crate) name: Box<str>,
        pub(crate) size: u32,
        pub(crate) labels: Labels,
    }

    #[derive(Debug, Default, Deserialize)]
    #[serde(default)]
    pub(crate) struct WidgetWire {
        metadata: Meta,
        size: u32,
        labels: BoundedLabels,
    }

    impl Kind for Widgets {
        type Object = Widget;
        type Wire = WidgetWire;
        type Context = ();
        const RESOURCE: &'static str = "widgets";
        const GROUP_PATH: &'static str = "/apis/example.com/v1";

        fn object_ref(wire: &WidgetWire) -> ObjectRef {
            wire.metadata.object_ref()
        }

        fn project(wire: WidgetWire, (): &()) -> Result<Widget, Unreadable> {
            let name = wire.metadata.name;
            match wire.labels.0 {
                Some(labels) => Ok(Widget { name, size: wire.size, labels }),
                None => Err(Unreadable::too_large(name, "labels")),
            }
        }

        fn name(object: &Widget) -> &str {
            &object.name
        }
    }
    /// Those of the label `tier=web`, of which the metadata is read. Of those that are not of the wanted generation nothing is
    /// kept.
    #[derive(Debug)]
    pub(crate) struct WebWidgets;

    /// What is kept of them.
    #[derive(Debug, Default, PartialEq)]
    pub(crate) struct Wanted {
        pub(crate) generation: i64,
        pub(crate) labels: bool,
    }

    #[derive(Debug, Default, Deserialize)]
    #[serde(default)]
    pub(crate) struct WebWidgetWire {
        metadata: LabelledMeta,
    }

    #[derive(Debug, Default, Deserialize)]
    #[serde(default)]
    struct LabelledMeta {
        #[serde(flatten)]
        meta: Meta,
        labels: BoundedLabels,
    }

    impl Kind for WebWidgets {
        type Object = Widget;
        type Wire = WebWidgetWire;
        type Context = Wanted;
        const RESOURCE: &'static str = Widgets::RESOURCE;
        const GROUP_PATH: &'static str = Widgets::GROUP_PATH;
        const LABEL_SELECTOR: &'static str = "tier=web";
        const METADATA_ONLY: bool = true;

        fn object_ref(wire: &WebWidgetWire) -> ObjectRef {
            wire.metadata.meta.object_ref()
        }

        fn keep(wire: &WebWidgetWire, wanted: &Wanted) -> bool {
            wire.metadata.meta.generation == wanted.generation
        }

        fn project(wire: WebWidgetWire, wanted: &Wanted) -> Result<Widget, Unreadable> {
            let labels = wire.metadata.labels.0.filter(|_| wanted.labels).unwrap_or_default();
            Ok(Widget { name: wire.metadata.meta.name, size: 0, labels })
        }

        fn name(object: &Widget) -> &str {
            &object.name
        }
    }
    /// All of the label `tier=web`: the context decides whether their labels are kept, and nothing else.
    #[derive(Debug)]
    pub(crate) struct LabelledWidgets;

    impl Kind for LabelledWidgets {
        type Object = Widget;
        type Wire = WebWidgetWire;
        type Context = Wanted;
        const RESOURCE: &'static str = Widgets::RESOURCE;
        const GROUP_PATH: &'static str = Widgets::GROUP_PATH;
        const LABEL_SELECTOR: &'static str = "tier=web";
        const METADATA_ONLY: bool = true;
        const CONTEXT_SELECTS: bool = false;

        fn object_ref(wire: &WebWidgetWire) -> ObjectRef {
            wire.metadata.meta.object_ref()
        }

        fn project(wire: WebWidgetWire, wanted: &Wanted) -> Result<Widget, Unreadable> {
            WebWidgets::project(wire, wanted)
        }

        fn name(object: &Widget) -> &str {
            &object.name
        }
    }
}
