//! A schema as it is used: read once from JSON by `compile`.

use std::collections::BTreeMap;
use std::sync::{Arc, LazyLock};

use regex::Regex;
use serde_json::Value;

use crate::cel::ValidationRule;
use crate::format::Format;

/// The types of JSON that a schema can ask for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Type {
    Object,
    Array,
    String,
    Integer,
    Number,
    Boolean,
}

impl Type {
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Object => "object",
            Self::Array => "array",
            Self::String => "string",
            Self::Integer => "integer",
            Self::Number => "number",
            Self::Boolean => "boolean",
        }
    }
}

/// How the items of a list are distinguished.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum ListType {
    /// By position.
    #[default]
    Atomic,
    /// By value.
    Set,
    /// By the values of these properties.
    Map(Vec<String>),
}

/// What a map's entries are.
#[derive(Debug)]
pub(crate) enum Entries {
    /// Anything.
    Any,
    /// Each of this schema.
    Of(Box<Node>),
}

/// One level of a schema.
#[derive(Debug, Default)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is a keyword of the schema, or what follows from several"
)]
pub(crate) struct Node {
    /// `None` where the type is open: unknown fields preserved, integer or string, or within allOf and the like.
    pub(crate) kind: Option<Type>,
    pub(crate) int_or_string: bool,
    pub(crate) nullable: bool,
    pub(crate) preserve_unknown: bool,
    pub(crate) embedded: bool,
    /// The schema of a whole resource: `apiVersion`, `kind` and `metadata` belong to the API server.
    pub(crate) root: bool,
    pub(crate) default: Option<Value>,
    pub(crate) properties: BTreeMap<String, Node>,
    pub(crate) entries: Option<Entries>,
    pub(crate) items: Option<Box<Node>>,
    pub(crate) list: ListType,
    pub(crate) checks: ValueChecks,
    pub(crate) rules: Vec<ValidationRule>,
    /// Whether this level or one below it has rules.
    pub(crate) has_rules: bool,
    /// Whether a list below this level is a set or a map.
    pub(crate) has_lists: bool,
    /// Whether a level below this one is a whole resource.
    pub(crate) has_embedded: bool,
}

/// What a value has to satisfy beyond its type.
#[derive(Debug, Default)]
pub(crate) struct ValueChecks {
    pub(crate) format: Option<Format>,
    pub(crate) allowed: Vec<Value>,
    pub(crate) pattern: Option<(String, Arc<Regex>)>,
    pub(crate) min_length: Option<u64>,
    pub(crate) max_length: Option<u64>,
    pub(crate) min_items: Option<u64>,
    pub(crate) max_items: Option<u64>,
    pub(crate) min_properties: Option<u64>,
    pub(crate) max_properties: Option<u64>,
    pub(crate) minimum: Option<f64>,
    pub(crate) exclusive_minimum: bool,
    pub(crate) maximum: Option<f64>,
    pub(crate) exclusive_maximum: bool,
    pub(crate) multiple_of: Option<f64>,
    pub(crate) required: Vec<String>,
    pub(crate) any_of: Vec<Node>,
    pub(crate) one_of: Vec<Node>,
    pub(crate) all_of: Vec<Node>,
    pub(crate) not: Option<Box<Node>>,
}

impl Node {
    /// The types that are accepted; none: any.
    pub(crate) fn types(&self) -> &[Type] {
        match self.kind {
            _ if self.int_or_string => &[Type::Integer, Type::String],
            Some(Type::Object) => &[Type::Object],
            Some(Type::Array) => &[Type::Array],
            Some(Type::String) => &[Type::String],
            Some(Type::Integer) => &[Type::Integer],
            Some(Type::Number) => &[Type::Number],
            Some(Type::Boolean) => &[Type::Boolean],
            None => &[],
        }
    }

    /// The schema of one field or entry.
    pub(crate) fn child(&self, key: &str) -> Option<&Self> {
        self.properties.get(key).or(match &self.entries {
            Some(Entries::Of(node)) => Some(node),
            _ => None,
        })
    }

    /// The schema of one field as rules see it: those of every resource are there without being written.
    pub(crate) fn rule_property(&self, key: &str) -> Option<&Self> {
        if self.root || self.embedded {
            match key {
                "apiVersion" | "kind" => return Some(&STRING),
                "metadata" => return Some(&METADATA),
                _ => {}
            }
        }
        self.properties.get(key)
    }

    /// Whether rules see it as an object with known fields, not as a map.
    pub(crate) fn is_object(&self) -> bool {
        self.root || self.embedded || !self.properties.is_empty()
    }

    pub(crate) fn of(kind: Type) -> Self {
        Self { kind: Some(kind), ..Self::default() }
    }
}

static STRING: LazyLock<Node> = LazyLock::new(|| Node::of(Type::String));

/// Rules see no more of `metadata` than this.
static METADATA: LazyLock<Node> = LazyLock::new(|| {
    let names = ["name", "generateName"].map(|name| (name.to_owned(), Node::of(Type::String)));
    Node { properties: names.into(), ..Node::of(Type::Object) }
});
