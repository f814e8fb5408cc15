//! Objects as the API server writes them, decoded one by one.
//!
//! What a tenant writes into an object does not affect other objects: only the fields that are used are read, and an
//! object that cannot be decoded, or is too large to keep, stops neither its page nor the watch. It is [`Unreadable`],
//! and makes what is in its namespace unknown until it changes or is gone.

use std::borrow::Cow;
use std::fmt;

use coppice_api::{Labels, Reason};
use kube::core::Status;
use serde::de::{Deserializer, IgnoredAny, MapAccess, Visitor};
use serde::{Deserialize, de};
use serde_json::value::RawValue;

use crate::kind::Kind;

/// Bytes of text that are kept of one pod, Job or namespace: its names, labels, and the uid of its Job. A label can have
/// 380 bytes and an object more than ten thousand of them; what uses more than a few dozen is not understood by anybody.
pub const MAX_KEPT_BYTES: usize = 8 << 10;

/// Why nothing is known of an object, and so of its kind in its namespace.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{name} {detail}")]
pub struct Unreadable {
    /// The object's name; empty if not even that can be read.
    pub name: Box<str>,
    /// [`Reason::Undecodable`] or [`Reason::TooLarge`].
    pub reason: Reason,
    /// The message, as it continues after the name.
    pub detail: Box<str>,
}

impl Unreadable {
    /// An object that cannot be decoded.
    pub fn undecodable(name: Box<str>, why: &str) -> Self {
        let detail = format!("cannot be decoded ({why}); change or delete it").into();
        Self { name, reason: Reason::Undecodable, detail }
    }

    /// An object with more than [`MAX_KEPT_BYTES`] to keep.
    pub fn too_large(name: Box<str>, what: &str) -> Self {
        let detail =
            format!("has more than {MAX_KEPT_BYTES} bytes of {what}; remove some or delete it").into();
        Self { name, reason: Reason::TooLarge, detail }
    }
}

/// Where an object is, and in which revision.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ObjectRef {
    /// Its namespace; empty for cluster-scoped kinds, or if it cannot be read.
    pub namespace: Box<str>,
    /// Its name; empty if it cannot be read.
    pub name: Box<str>,
    /// Its revision, from which a watch continues; empty if it cannot be read.
    pub revision: Box<str>,
}

/// One object of a page or of a watch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Item<T> {
    /// Where it is.
    pub object_ref: ObjectRef,
    /// What is kept of it.
    pub object: Result<T, Unreadable>,
}

/// One page of a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Page<T> {
    /// The revision of the list.
    pub revision: String,
    /// The continue token of the next page; none on the last one.
    pub token: Option<String>,
    /// Its objects, except for those that are not [kept](Kind::keep).
    pub items: Vec<Item<T>>,
}

/// One event of a watch.
#[derive(Debug)]
pub enum Event<T> {
    /// An object was created or has changed.
    Changed(Item<T>),
    /// An object was created or has changed, and is not [kept](Kind::keep), perhaps no longer.
    Unwanted(ObjectRef),
    /// An object is gone; only its reference matters.
    Deleted(ObjectRef),
    /// Nothing has changed up to this revision.
    Bookmark(Box<str>),
    /// The watch cannot continue.
    Error(Box<Status>),
}

/// Decodes one object; where it is, if it is not [kept](Kind::keep). No content of it is an error.
pub fn item<K: Kind>(json: &str, context: &K::Context) -> Result<Item<K::Object>, ObjectRef> {
    match serde_json::from_str::<K::Wire>(json) {
        Ok(wire) if !K::object_ref(&wire).name.is_empty() => {
            let object_ref = K::object_ref(&wire);
            if !K::keep(&wire, context) {
                return Err(object_ref);
            }
            Ok(Item { object_ref, object: K::project(wire, context) })
        }
        Ok(_) => Ok(from_undecodable::<K>(json, "it has no name")),
        Err(error) => Ok(from_undecodable::<K>(json, &short_error(&error))),
    }
}

fn from_undecodable<K: Kind>(json: &str, why: &str) -> Item<K::Object> {
    let object_ref = object_ref(json);
    Item { object: K::from_undecodable(&object_ref, why), object_ref }
}

/// Where an object is, whatever else is in it.
fn object_ref(json: &str) -> ObjectRef {
    #[derive(Default, Deserialize)]
    #[serde(rename_all = "camelCase", default)]
    struct Known<'a> {
        #[serde(borrow)]
        name: Option<&'a RawValue>,
        #[serde(borrow)]
        namespace: Option<&'a RawValue>,
        #[serde(borrow)]
        resource_version: Option<&'a RawValue>,
    }
    #[derive(Default, Deserialize)]
    #[serde(default)]
    struct Object<'a> {
        #[serde(borrow)]
        metadata: Option<&'a RawValue>,
    }
    let text =
        |raw: Option<&RawValue>| raw.and_then(|raw| serde_json::from_str(raw.get()).ok()).unwrap_or_default();
    let object: Object<'_> = serde_json::from_str(json).unwrap_or_default();
    let known =
        object.metadata.and_then(|raw| serde_json::from_str::<Known<'_>>(raw.get()).ok()).unwrap_or_default();
    ObjectRef {
        namespace: text(known.namespace),
        name: text(known.name),
        revision: text(known.resource_version),
    }
}

/// An error about an object without what changes with every revision, and without much of what tenants wrote.
pub(crate) fn short_error(error: &serde_json::Error) -> String {
    let text = error.to_string();
    let text = text.rsplit_once(" at line ").map_or(&*text, |(before, _)| before);
    let most = 200;
    let end = text.char_indices().nth(most).map_or(text.len(), |(at, _)| at);
    text[..end].to_owned()
}

/// Decodes a page. An error means that it is no list, whatever its objects are.
pub fn page<K: Kind>(json: &[u8], context: &K::Context) -> Result<Page<K::Object>, serde_json::Error> {
    #[derive(Deserialize)]
    struct List<'a> {
        metadata: Meta,
        #[serde(borrow, default)]
        items: Option<Vec<&'a RawValue>>,
    }
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase", default)]
    #[derive(Default)]
    struct Meta {
        resource_version: String,
        r#continue: Option<String>,
    }
    let list: List<'_> = serde_json::from_slice(json)?;
    let items = list.items.unwrap_or_default();
    Ok(Page {
        revision: list.metadata.resource_version,
        token: list.metadata.r#continue.filter(|token| !token.is_empty()),
        items: items.into_iter().filter_map(|raw| item::<K>(raw.get(), context).ok()).collect(),
    })
}

/// Decodes an event. An error means that it is no event, whatever its object is.
pub fn event<K: Kind>(json: &[u8], context: &K::Context) -> Result<Event<K::Object>, serde_json::Error> {
    #[derive(Deserialize)]
    struct Line<'a> {
        #[serde(borrow)]
        r#type: Cow<'a, str>,
        #[serde(borrow)]
        object: &'a RawValue,
    }
    let line: Line<'_> = serde_json::from_slice(json)?;
    let json = line.object.get();
    match &*line.r#type {
        "ADDED" | "MODIFIED" => Ok(item::<K>(json, context).map_or_else(Event::Unwanted, Event::Changed)),
        "DELETED" => Ok(Event::Deleted(object_ref(json))),
        "BOOKMARK" => Ok(Event::Bookmark(object_ref(json).revision)),
        "ERROR" => Ok(Event::Error(serde_json::from_str(json)?)),
        other => Err(de::Error::custom(format_args!("an event of type {other:?}"))),
    }
}

/// Labels up to [`MAX_KEPT_BYTES`]; none if there are more.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BoundedLabels(pub Option<Labels>);

impl Default for BoundedLabels {
    fn default() -> Self {
        Self(Some(Labels::default()))
    }
}

impl<'de> Deserialize<'de> for BoundedLabels {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Pairs;
        impl<'de> Visitor<'de> for Pairs {
            type Value = BoundedLabels;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a map of labels")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<BoundedLabels, A::Error> {
                let (mut pairs, mut bytes) = (Vec::new(), 0);
                while let Some((key, value)) = map.next_entry::<Box<str>, Box<str>>()? {
                    bytes += key.len() + value.len() + 2;
                    if bytes > MAX_KEPT_BYTES {
                        while map.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
                        return Ok(BoundedLabels(None));
                    }
                    pairs.push((key, value));
                }
                Ok(BoundedLabels(Some(pairs.into_iter().collect())))
            }

            fn visit_unit<E>(self) -> Result<BoundedLabels, E> {
                Ok(BoundedLabels::default())
            }
        }
        deserializer.deserialize_any(Pairs)
    }
}
