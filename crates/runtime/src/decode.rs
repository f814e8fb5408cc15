//! Objects as the API server writes them, decoded one by one.
//!
//! What a tenant writes into an object decides nothing about others: of each object only the fields that are used are
//! read, and one that cannot be understood, or is too large to keep, stops neither its page nor the watch. It is
//! [`Unreadable`], and makes what is in its namespace unknown until it changes or is gone.

use std::borrow::Cow;
use std::fmt;

use coppice_api::{Labels, Reason};
use kube::core::Status;
use serde::de::{Deserializer, IgnoredAny, MapAccess, Visitor};
use serde::{Deserialize, de};
use serde_json::value::RawValue;

use crate::kinds::Watched;

/// Bytes of text that are kept of one pod, Job or namespace: its names, labels, and the uid of its Job. A label can have
/// 380 bytes and an object more than ten thousand of them; what uses more than a few dozen is not understood by anybody.
pub const LARGEST_KEPT: usize = 8 << 10;

/// Why nothing is known of an object, and so of its kind in its namespace.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{name} {detail}")]
pub struct Unreadable {
    /// The object's name; empty if not even that can be read.
    pub name: Box<str>,
    /// [`Reason::Undecodable`] or [`Reason::TooLarge`].
    pub reason: Reason,
    /// The same for people, to go on after the name.
    pub detail: Box<str>,
}

impl Unreadable {
    /// An object that cannot be decoded.
    pub(crate) fn undecodable(name: Box<str>, why: &str) -> Self {
        let detail = format!("cannot be decoded ({why}); change or delete it").into();
        Self { name, reason: Reason::Undecodable, detail }
    }

    /// An object of which there would be more to keep than [`LARGEST_KEPT`].
    pub(crate) fn too_large(name: Box<str>, what: &str) -> Self {
        let detail = format!("has more than {LARGEST_KEPT} bytes of {what}; remove some or delete it").into();
        Self { name, reason: Reason::TooLarge, detail }
    }
}

/// Where an object is, and in which revision.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Place {
    /// Its namespace; empty for cluster-scoped kinds, or if it cannot be read.
    pub namespace: Box<str>,
    /// Its name; empty if it cannot be read.
    pub name: Box<str>,
    /// Its revision, from which a watch goes on; empty if it cannot be read.
    pub revision: Box<str>,
}

/// One object of a page or of a watch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Item<T> {
    /// Where it is.
    pub place: Place,
    /// What is kept of it.
    pub object: Result<T, Unreadable>,
}

/// One page of a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Page<T> {
    /// The revision of the list.
    pub revision: String,
    /// Behind which object the next page begins; none on the last one.
    pub token: Option<String>,
    /// Its objects.
    pub items: Vec<Item<T>>,
}

/// One event of a watch.
#[derive(Debug)]
pub enum Event<T> {
    /// An object was created or has changed.
    Changed(Item<T>),
    /// An object is gone; of it only the place matters.
    Deleted(Place),
    /// Nothing has changed up to this revision.
    Bookmark(Box<str>),
    /// The watch cannot go on.
    Error(Box<Status>),
}

/// Decodes one object. Nothing that it contains is an error.
pub fn item<T: Watched>(json: &str) -> Item<T> {
    match serde_json::from_str::<T::Wire>(json) {
        Ok(wire) if !T::place(&wire).name.is_empty() => {
            Item { place: T::place(&wire), object: T::project(wire) }
        }
        Ok(_) => misread(json, "it has no name"),
        Err(error) => misread(json, &brief(&error)),
    }
}

fn misread<T: Watched>(json: &str, why: &str) -> Item<T> {
    let place = place(json);
    Item { object: T::misread(&place, why), place }
}

/// Where an object is, whatever else is in it.
fn place(json: &str) -> Place {
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
    Place { namespace: text(known.namespace), name: text(known.name), revision: text(known.resource_version) }
}

/// An error about an object without what changes with every revision, and without much of what tenants wrote.
pub(crate) fn brief(error: &serde_json::Error) -> String {
    let text = error.to_string();
    let text = text.rsplit_once(" at line ").map_or(&*text, |(before, _)| before);
    let most = 200;
    let end = text.char_indices().nth(most).map_or(text.len(), |(at, _)| at);
    text[..end].to_owned()
}

/// Decodes a page. An error means that it is no list, whatever its objects are.
pub fn page<T: Watched>(json: &[u8]) -> Result<Page<T>, serde_json::Error> {
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
        items: items.into_iter().map(|raw| item(raw.get())).collect(),
    })
}

/// Decodes an event. An error means that it is no event, whatever its object is.
pub fn event<T: Watched>(json: &[u8]) -> Result<Event<T>, serde_json::Error> {
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
        "ADDED" | "MODIFIED" => Ok(Event::Changed(item(json))),
        "DELETED" => Ok(Event::Deleted(place(json))),
        "BOOKMARK" => Ok(Event::Bookmark(place(json).revision)),
        "ERROR" => Ok(Event::Error(serde_json::from_str(json)?)),
        other => Err(de::Error::custom(format_args!("an event of type {other:?}"))),
    }
}

/// Labels up to [`LARGEST_KEPT`]; none if there are more.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Kept(pub(crate) Option<Labels>);

impl Default for Kept {
    fn default() -> Self {
        Self(Some(Labels::default()))
    }
}

impl<'de> Deserialize<'de> for Kept {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Pairs;
        impl<'de> Visitor<'de> for Pairs {
            type Value = Kept;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a map of labels")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Kept, A::Error> {
                let (mut pairs, mut bytes) = (Vec::new(), 0);
                while let Some((key, value)) = map.next_entry::<Box<str>, Box<str>>()? {
                    bytes += key.len() + value.len() + 2;
                    if bytes > LARGEST_KEPT {
                        while map.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
                        return Ok(Kept(None));
                    }
                    pairs.push((key, value));
                }
                Ok(Kept(Some(pairs.into_iter().collect())))
            }

            fn visit_unit<E>(self) -> Result<Kept, E> {
                Ok(Kept::default())
            }
        }
        deserializer.deserialize_any(Pairs)
    }
}

#[cfg(test)]
#[path = "decode_tests.rs"]
mod tests;
