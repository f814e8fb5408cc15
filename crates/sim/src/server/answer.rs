//! What is answered: a status code and a body that shares the stored objects.

use std::sync::Arc;

use serde::ser::{Serialize, SerializeMap, SerializeSeq, Serializer};
use serde_json::{Map, Value, json};

use super::watch::Watch;

/// The answer to a request.
#[derive(Debug)]
pub enum ServerReply {
    /// A complete response.
    Done(Response),
    /// A watch was opened: its events are taken from the server, one at a time.
    Watch(Box<Watch>),
}

impl ServerReply {
    /// The response, if this is not a watch.
    pub fn done(self) -> Option<Response> {
        match self {
            Self::Done(response) => Some(response),
            Self::Watch(_) => None,
        }
    }

    /// The watch, if one was opened.
    pub fn watch(self) -> Option<Watch> {
        match self {
            Self::Watch(watch) => Some(*watch),
            Self::Done(_) => None,
        }
    }
}

/// One response.
#[derive(Clone, Debug)]
pub struct Response {
    /// The HTTP status code.
    pub code: u16,
    /// The body.
    pub body: Body,
    /// Texts of `Warning` headers (code 299), in order.
    pub warnings: Vec<String>,
}

impl Response {
    pub(super) fn new(code: u16, body: Body) -> Self {
        Self { code, body, warnings: Vec::new() }
    }
}

/// The body of a response.
#[derive(Clone, Debug)]
pub enum Body {
    /// A stored object, shared.
    Object(Arc<Value>),
    /// A list of stored objects, shared.
    List(List),
    /// Something that is not a stored object, such as a `Status`.
    Value(Value),
    /// All groups and resources in one document, which its media type identifies.
    Discovery(Value),
    /// Plain text.
    Text(String),
}

impl Body {
    /// The media type.
    pub fn content_type(&self) -> &'static str {
        match self {
            Self::Text(_) => "text/plain; charset=utf-8",
            Self::Discovery(_) => "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList",
            _ => "application/json",
        }
    }

    /// The bytes that go over the wire.
    pub fn to_bytes(&self) -> Vec<u8> {
        match self {
            Self::Text(text) => text.clone().into_bytes(),
            // Every key of a `Value` is a string, so that it always has a form in JSON.
            body => serde_json::to_vec(body).unwrap_or_default(),
        }
    }

    /// The body as JSON. Copies what is shared; text becomes a string.
    pub fn to_value(&self) -> Value {
        match self {
            Self::Object(object) => object.as_ref().clone(),
            Self::List(list) => list.to_value(),
            Self::Value(value) | Self::Discovery(value) => value.clone(),
            Self::Text(text) => Value::String(text.clone()),
        }
    }
}

impl Serialize for Body {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Object(object) => object.serialize(serializer),
            Self::List(list) => list.serialize(serializer),
            Self::Value(value) | Self::Discovery(value) => value.serialize(serializer),
            Self::Text(text) => text.serialize(serializer),
        }
    }
}

/// A list of stored objects.
#[derive(Clone, Debug)]
pub struct List {
    /// Group and version, such as `v1`.
    pub api_version: String,
    /// The kind of the list, such as `PodList`.
    pub kind: String,
    /// The revision that the list shows.
    pub revision: u64,
    /// Where the next page begins, if there is one.
    pub continue_token: Option<String>,
    /// How many objects follow, where that is known.
    pub remaining: Option<usize>,
    /// Whether items carry `apiVersion` and `kind`: those of custom resources do, those of built-in kinds do not.
    pub typed_items: bool,
    /// The objects.
    pub items: Vec<Arc<Value>>,
}

impl List {
    /// `metadata` of the list.
    pub(super) fn metadata(&self) -> Value {
        let mut metadata = Map::new();
        metadata.insert("resourceVersion".to_owned(), Value::String(self.revision.to_string()));
        if let Some(token) = &self.continue_token {
            metadata.insert("continue".to_owned(), Value::String(token.clone()));
        }
        if let Some(remaining) = self.remaining {
            metadata.insert("remainingItemCount".to_owned(), remaining.into());
        }
        Value::Object(metadata)
    }

    fn to_value(&self) -> Value {
        let item = |item: &Arc<Value>| {
            let mut item = item.as_ref().clone();
            if let (false, Some(map)) = (self.typed_items, item.as_object_mut()) {
                map.remove("apiVersion");
                map.remove("kind");
            }
            item
        };
        json!({
            "apiVersion": self.api_version,
            "kind": self.kind,
            "metadata": self.metadata(),
            "items": self.items.iter().map(item).collect::<Vec<_>>(),
        })
    }
}

impl Serialize for List {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(4))?;
        map.serialize_entry("apiVersion", &self.api_version)?;
        map.serialize_entry("kind", &self.kind)?;
        map.serialize_entry("metadata", &self.metadata())?;
        map.serialize_entry("items", &Items(self))?;
        map.end()
    }
}

struct Items<'a>(&'a List);

impl Serialize for Items<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut seq = serializer.serialize_seq(Some(self.0.items.len()))?;
        for item in &self.0.items {
            match item.as_object() {
                Some(map) if !self.0.typed_items => seq.serialize_element(&Untyped(map))?,
                _ => seq.serialize_element(item.as_ref())?,
            }
        }
        seq.end()
    }
}

/// An object without `apiVersion` and `kind`.
struct Untyped<'a>(&'a Map<String, Value>);

impl Serialize for Untyped<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let fields = self.0.iter().filter(|(name, _)| !matches!(name.as_str(), "apiVersion" | "kind"));
        serializer.collect_map(fields)
    }
}
