//! The values of rules. Objects are read in place, by their schema; nothing is copied to be read.

use std::borrow::Cow;
use std::cmp::Ordering;
use std::net::IpAddr;
use std::sync::Arc;

use jiff::Timestamp;
use serde_json::Value;

use crate::node::{Entries, ListType, Node, Type};
use crate::{go, text, url};

/// Why an expression has no value, in the words of the API server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Error(Cow<'static, str>);

impl Error {
    pub(crate) fn new(words: impl Into<Cow<'static, str>>) -> Self {
        Self(words.into())
    }

    pub(crate) fn no_such_overload() -> Self {
        Self::new("no such overload")
    }

    /// Arguments that the function is not for. CEL's own functions do not say which; operators do if nothing can stand on
    /// their left that is of such a type.
    pub(crate) fn no_overload_of(function: &str, arguments: &[Val<'_>]) -> Self {
        let left = arguments.first().map_or("", Val::type_name);
        let numbers = ["double", "int", "uint"].contains(&left);
        let times = ["google.protobuf.Duration", "google.protobuf.Timestamp"].contains(&left);
        let is_operand = match function {
            "!_" | "contains" | "startsWith" | "endsWith" | "matches" => true,
            "_+_" => numbers || times || ["bytes", "list", "string"].contains(&left),
            "_-_" => numbers || times,
            "_<_" | "_<=_" | "_>_" | "_>=_" => {
                numbers || times || ["bool", "bytes", "string"].contains(&left)
            }
            "_*_" | "_/_" => numbers,
            "_%_" => numbers && left != "double",
            "-_" | "size" => false,
            _ => {
                let types: Vec<&str> = arguments.iter().map(Val::type_name).collect();
                return Self::new(format!("no such overload: {function}({})", types.join(", ")));
            }
        };
        if is_operand { Self::no_such_overload() } else { Self::new(format!("no such overload: {function}")) }
    }

    pub(crate) fn is_no_such_overload(&self) -> bool {
        self.0.starts_with("no such overload")
    }

    pub(crate) fn words(&self) -> &str {
        &self.0
    }
}

/// A value or why there is none.
pub(crate) type Eval<'a> = Result<Val<'a>, Error>;

/// A value in a rule; what it refers to lives as long as the object and the schema.
#[derive(Clone, Debug)]
pub(crate) enum Val<'a> {
    Null,
    Bool(bool),
    Int(i64),
    Uint(u64),
    Double(f64),
    Str(Cow<'a, str>),
    Bytes(Arc<[u8]>),
    List(List<'a>),
    Map(Map<'a>),
    /// Nanoseconds.
    Duration(i64),
    Timestamp(Timestamp),
    /// A type, by its name.
    Type(&'static str),
    Optional(Option<Box<Val<'a>>>),
    Url(Arc<url::Url>),
    Ip(IpAddr),
    Cidr(IpAddr, u8),
    /// Kept without a schema: comparable, and nothing else.
    Unknown(&'a Value),
}

/// A list: of the object, or computed.
#[derive(Clone, Debug)]
pub(crate) enum List<'a> {
    Json(&'a [Value], &'a Node),
    Own(Arc<Vec<Val<'a>>>),
}

/// A map or object: of the object, or computed.
#[derive(Clone, Debug)]
pub(crate) enum Map<'a> {
    Json(&'a serde_json::Map<String, Value>, &'a Node),
    Own(Arc<Vec<(Val<'a>, Val<'a>)>>),
}

impl<'a> Val<'a> {
    pub(crate) fn text(text: impl Into<Cow<'a, str>>) -> Self {
        Self::Str(text.into())
    }

    pub(crate) fn list(items: Vec<Self>) -> Self {
        Self::List(List::Own(Arc::new(items)))
    }

    pub(crate) fn size(size: usize) -> Self {
        Self::Int(i64::try_from(size).unwrap_or(i64::MAX))
    }

    /// The value of a part of an object, by its schema.
    pub(crate) fn of(value: &'a Value, node: &'a Node) -> Eval<'a> {
        let wrong = |expected: &str| {
            Err(Error::new(format!("invalid data, expected {expected}, got {}", go_type(value))))
        };
        match (value, node.kind) {
            (Value::Null, _) if node.nullable => Ok(Self::Null),
            (Value::Null, _) => Err(Error::new("invalid data, got null for schema with nullable=false")),
            (Value::String(text), _) if node.int_or_string => Ok(Self::text(text)),
            (Value::Number(number), _) if node.int_or_string && number.is_i64() => {
                Ok(Self::Int(number.as_i64().unwrap_or_default()))
            }
            _ if node.int_or_string => {
                Err(Error::new("invalid data, expected XIntOrString value to be either a string or integer"))
            }
            (Value::Object(fields), Some(Type::Object)) => Ok(Self::Map(Map::Json(fields, node))),
            (Value::Array(items), Some(Type::Array)) => Ok(Self::List(List::Json(items, node))),
            (Value::String(text), Some(Type::String)) => string(text, node),
            (Value::Number(number), Some(Type::Number)) => {
                Ok(Self::Double(number.as_f64().unwrap_or_default()))
            }
            (Value::Number(number), Some(Type::Integer)) => match number.as_i64() {
                Some(int) => Ok(Self::Int(int)),
                None => wrong("int"),
            },
            (Value::Bool(b), Some(Type::Boolean)) => Ok(Self::Bool(*b)),
            (value, None) => Ok(Self::Unknown(value)),
            (_, Some(Type::Object)) => {
                Err(Error::new("invalid data, expected a map for the provided schema with type=object"))
            }
            (_, Some(Type::Array)) => {
                Err(Error::new("invalid data, expected an array for the provided schema with type=array"))
            }
            (_, Some(Type::String)) => wrong("string"),
            (_, Some(Type::Number)) => wrong("float"),
            (_, Some(Type::Integer)) => wrong("int"),
            (_, Some(Type::Boolean)) => wrong("bool"),
        }
    }

    pub(crate) fn type_name(&self) -> &'static str {
        match self {
            Self::Null => "null_type",
            Self::Bool(_) => "bool",
            Self::Int(_) => "int",
            Self::Uint(_) => "uint",
            Self::Double(_) => "double",
            Self::Str(_) => "string",
            Self::Bytes(_) => "bytes",
            Self::List(_) => "list",
            Self::Map(_) => "map",
            Self::Duration(_) => "google.protobuf.Duration",
            Self::Timestamp(_) => "google.protobuf.Timestamp",
            Self::Type(_) => "type",
            Self::Optional(_) => "optional_type",
            Self::Url(_) => "kubernetes.URL",
            Self::Ip(_) => "net.IP",
            Self::Cidr(..) => "net.CIDR",
            Self::Unknown(_) => "unknown",
        }
    }

    /// Whether two values are the same. Numbers are compared as numbers, other values only with their like.
    pub(crate) fn same(&self, other: &Self) -> Result<bool, Error> {
        Ok(match (self, other) {
            (Self::Bool(a), Self::Bool(b)) => a == b,
            (Self::Str(a), Self::Str(b)) => a == b,
            (Self::Bytes(a), Self::Bytes(b)) => a == b,
            (Self::Duration(a), Self::Duration(b)) => a == b,
            (Self::Timestamp(a), Self::Timestamp(b)) => a == b,
            (Self::Type(a), Self::Type(b)) => a == b,
            (Self::Url(a), Self::Url(b)) => a.text == b.text,
            (Self::Ip(a), Self::Ip(b)) => a == b,
            (Self::Cidr(a, n), Self::Cidr(b, m)) => a == b && n == m,
            (Self::Unknown(a), Self::Unknown(b)) => a == b,
            (Self::Optional(a), Self::Optional(b)) => match (a, b) {
                (Some(a), Some(b)) => a.same(b)?,
                (a, b) => a.is_none() && b.is_none(),
            },
            (Self::List(a), Self::List(b)) => a.same(b)?,
            (Self::Map(a), Self::Map(b)) => a.same(b)?,
            (Self::Null, Self::Null) => true,
            (a, b) => a.compare_numbers(b) == Some(Ordering::Equal),
        })
    }

    fn compare_numbers(&self, other: &Self) -> Option<Ordering> {
        match (self, other) {
            (Self::Int(a), Self::Int(b)) => Some(a.cmp(b)),
            (Self::Uint(a), Self::Uint(b)) => Some(a.cmp(b)),
            (Self::Int(a), Self::Uint(b)) => Some(i128::from(*a).cmp(&i128::from(*b))),
            (Self::Uint(a), Self::Int(b)) => Some(i128::from(*a).cmp(&i128::from(*b))),
            (a, b) => a.as_double()?.partial_cmp(&b.as_double()?),
        }
    }

    #[expect(clippy::cast_precision_loss, reason = "as whole numbers are compared with floats")]
    pub(crate) fn as_double(&self) -> Option<f64> {
        match self {
            Self::Int(int) => Some(*int as f64),
            Self::Uint(uint) => Some(*uint as f64),
            Self::Double(double) => Some(*double),
            _ => None,
        }
    }

    /// Which of two values is smaller, if they can be compared.
    pub(crate) fn compare(&self, other: &Self) -> Option<Ordering> {
        match (self, other) {
            (Self::Bool(a), Self::Bool(b)) => Some(a.cmp(b)),
            (Self::Str(a), Self::Str(b)) => Some(a.cmp(b)),
            (Self::Bytes(a), Self::Bytes(b)) => Some(a.cmp(b)),
            (Self::Duration(a), Self::Duration(b)) => Some(a.cmp(b)),
            (Self::Timestamp(a), Self::Timestamp(b)) => Some(a.cmp(b)),
            (a, b) => a.compare_numbers(b),
        }
    }
}

fn go_type(value: &Value) -> &'static str {
    match value {
        Value::Null => "<nil>",
        Value::Bool(_) => "bool",
        Value::Number(n) if n.is_i64() => "int64",
        Value::Number(_) => "float64",
        Value::String(_) => "string",
        Value::Array(_) => "[]interface {}",
        Value::Object(_) => "map[string]interface {}",
    }
}

/// Strings of some formats are what they stand for.
fn string<'a>(text: &'a str, node: &Node) -> Eval<'a> {
    let format = node.checks.format.as_ref().map_or("", |f| f.name.as_str());
    match format {
        "duration" => text::parse_duration(text).map(Val::Duration).ok_or_else(|| {
            Error::new(format!("Invalid duration {text}: unable to parse {text} as duration"))
        }),
        "date" => text
            .parse::<jiff::civil::Date>()
            .ok()
            .and_then(|date| date.to_zoned(jiff::tz::TimeZone::UTC).ok())
            .map(|zoned| Val::Timestamp(zoned.timestamp()))
            .ok_or_else(|| Error::new(format!("Invalid date formatted string {text}"))),
        "date-time" => text
            .parse()
            .map(Val::Timestamp)
            .map_err(|_| Error::new(format!("Invalid date-time formatted string {text}"))),
        "byte" => text::decode_base64(text)
            .map(|bytes| Val::Bytes(bytes.into()))
            .ok_or_else(|| Error::new(format!("Invalid byte formatted string {text}"))),
        _ => Ok(Val::text(text)),
    }
}

impl<'a> List<'a> {
    pub(crate) fn len(&self) -> usize {
        match self {
            Self::Json(items, _) => items.len(),
            Self::Own(items) => items.len(),
        }
    }

    /// An item that is there.
    pub(crate) fn get(&self, index: usize) -> Option<Eval<'a>> {
        match self {
            Self::Json(items, node) => {
                let item = items.get(index)?;
                Some(node.items.as_deref().map_or(Ok(Val::Unknown(item)), |node| Val::of(item, node)))
            }
            Self::Own(items) => items.get(index).cloned().map(Ok),
        }
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = Eval<'a>> + '_ {
        (0..self.len()).filter_map(|index| self.get(index))
    }

    pub(crate) fn to_vec(&self) -> Result<Vec<Val<'a>>, Error> {
        self.iter().collect()
    }

    pub(crate) fn contains(&self, value: &Val<'a>) -> Result<bool, Error> {
        for item in self.iter() {
            if item?.same(value)? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn kind(&self) -> &ListType {
        match self {
            Self::Json(_, node) => &node.list,
            Self::Own(_) => &ListType::Atomic,
        }
    }

    /// The order of sets and maps does not matter.
    fn same(&self, other: &Self) -> Result<bool, Error> {
        if self.len() != other.len() {
            return Ok(false);
        }
        if *self.kind() == ListType::Atomic {
            for (a, b) in self.iter().zip(other.iter()) {
                if !a?.same(&b?)? {
                    return Ok(false);
                }
            }
            return Ok(true);
        }
        for item in other.iter() {
            if !self.contains(&item?)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// One list after the other; to a set is added what it has not, in a map is replaced what has the same keys.
    pub(crate) fn concatenate(&self, other: &Self) -> Eval<'a> {
        let mut items = self.to_vec()?;
        for item in other.iter() {
            let item = item?;
            match self.kind() {
                ListType::Set if Self::Own(Arc::new(items.clone())).contains(&item)? => {}
                ListType::Map(keys) => match items.iter().position(|known| same_keys(keys, known, &item)) {
                    Some(place) => items[place] = item,
                    None => items.push(item),
                },
                _ => items.push(item),
            }
        }
        Ok(Val::list(items))
    }
}

fn same_keys(keys: &[String], a: &Val<'_>, b: &Val<'_>) -> bool {
    let (Val::Map(a), Val::Map(b)) = (a, b) else { return false };
    let is_same = |key: &String| match (a.field(key), b.field(key)) {
        (Some(Ok(a)), Some(Ok(b))) => a.same(&b) == Ok(true),
        (a, b) => a.is_none() && b.is_none(),
    };
    keys.iter().all(is_same)
}

impl<'a> Map<'a> {
    pub(crate) fn len(&self) -> usize {
        match self {
            Self::Json(fields, _) => fields.len(),
            Self::Own(entries) => entries.len(),
        }
    }

    /// The value of a key, by its name in expressions. Nulls in objects count as left out.
    pub(crate) fn field(&self, name: &str) -> Option<Eval<'a>> {
        match self {
            Self::Json(fields, node) if node.is_object() => {
                let name = super::names::unescape(name)?;
                let value = fields.get(name.as_ref()).filter(|value| !value.is_null())?;
                Some(Val::of(value, node.rule_property(&name)?))
            }
            Self::Json(fields, node) => match &node.entries {
                Some(Entries::Of(node)) => Some(Val::of(fields.get(name)?, node)),
                _ => None,
            },
            Self::Own(entries) => entries.iter().find_map(|(key, value)| match key {
                Val::Str(key) if key == name => Some(Ok(value.clone())),
                _ => None,
            }),
        }
    }

    pub(crate) fn get(&self, key: &Val<'a>) -> Result<Option<Val<'a>>, Error> {
        match (self, key) {
            (_, Val::Str(key)) => self.field(key).transpose(),
            (Self::Json(..), _) => Err(Error::no_such_overload()),
            (Self::Own(entries), key) => {
                for (known, value) in entries.iter() {
                    if known.same(key)? {
                        return Ok(Some(value.clone()));
                    }
                }
                Ok(None)
            }
        }
    }

    /// The keys as expressions see them.
    pub(crate) fn keys(&self) -> Vec<Val<'a>> {
        match self {
            Self::Json(fields, node) if node.is_object() => fields
                .keys()
                .filter(|key| node.rule_property(key).is_some())
                .map(|key| Val::Str(super::names::escape(key).unwrap_or(Cow::Borrowed(key))))
                .collect(),
            Self::Json(fields, _) => fields.keys().map(|key| Val::text(key.as_str())).collect(),
            Self::Own(entries) => entries.iter().map(|(key, _)| key.clone()).collect(),
        }
    }

    fn same(&self, other: &Self) -> Result<bool, Error> {
        if self.len() != other.len() {
            return Ok(false);
        }
        // What the schema does not know cannot be read, but be compared.
        if let (Self::Json(a, node), Self::Json(b, _)) = (self, other) {
            let unknown = |key: &&String| node.rule_property(key).is_none() && node.child(key).is_none();
            if a.keys().filter(unknown).any(|key| b.get(key).is_some_and(|b| *b != a[key])) {
                return Ok(false);
            }
        }
        for key in self.keys() {
            let same = match (self.get(&key)?, other.get(&key)?) {
                (Some(a), Some(b)) => a.same(&b)?,
                (a, b) => a.is_none() && b.is_none(),
            };
            if !same {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

/// A value in the words of an error: `no such key: x`.
impl std::fmt::Display for Val<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Null => f.write_str("null"),
            Self::Bool(b) => write!(f, "{b}"),
            Self::Int(int) => write!(f, "{int}"),
            Self::Uint(uint) => write!(f, "{uint}"),
            Self::Double(double) => f.write_str(&go::float(*double)),
            Self::Str(text) => f.write_str(text),
            other => f.write_str(other.type_name()),
        }
    }
}
