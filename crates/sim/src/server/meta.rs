//! Reading and writing the metadata of objects.

use jiff::{SignedDuration, Timestamp, Unit};
use serde_json::{Map, Value};

/// A field of `metadata` that is a text; empty if absent.
pub(crate) fn text<'a>(object: &'a Value, field: &str) -> &'a str {
    object["metadata"][field].as_str().unwrap_or_default()
}

/// The name.
pub(crate) fn name(object: &Value) -> &str {
    text(object, "name")
}

/// The namespace; empty if there is none.
pub(crate) fn namespace(object: &Value) -> &str {
    text(object, "namespace")
}

/// The uid.
pub(crate) fn uid(object: &Value) -> &str {
    text(object, "uid")
}

/// The revision that last changed the object; 0 if it has none.
pub(crate) fn revision(object: &Value) -> u64 {
    text(object, "resourceVersion").parse().unwrap_or(0)
}

/// A label.
pub(crate) fn label<'a>(object: &'a Value, key: &str) -> Option<&'a str> {
    object["metadata"]["labels"][key].as_str()
}

/// An annotation.
pub(crate) fn annotation<'a>(object: &'a Value, key: &str) -> Option<&'a str> {
    object["metadata"]["annotations"][key].as_str()
}

/// The finalizers.
pub(crate) fn finalizers(object: &Value) -> impl Iterator<Item = &str> {
    object["metadata"]["finalizers"].as_array().into_iter().flatten().filter_map(Value::as_str)
}

/// Whether there are finalizers.
pub(crate) fn has_finalizers(object: &Value) -> bool {
    finalizers(object).next().is_some()
}

/// Whether the object is being deleted.
pub(crate) fn deleting(object: &Value) -> bool {
    object["metadata"]["deletionTimestamp"].is_string()
}

/// When the object was made.
pub(crate) fn created(object: &Value) -> Option<Timestamp> {
    text(object, "creationTimestamp").parse().ok()
}

/// The owner references.
pub(crate) fn owners(object: &Value) -> impl Iterator<Item = &Value> {
    object["metadata"]["ownerReferences"].as_array().into_iter().flatten()
}

/// The uid of the owner that manages the object.
pub(crate) fn controller(object: &Value) -> Option<&str> {
    owners(object).find(|o| o["controller"] == true).and_then(|o| o["uid"].as_str())
}

/// An instant as the API server writes it: whole seconds, cut off.
pub(crate) fn seconds(at: Timestamp) -> String {
    let whole = at
        .round(jiff::TimestampRound::new().smallest(Unit::Second).mode(jiff::RoundMode::Floor))
        .unwrap_or(at);
    whole.to_string()
}

/// An instant this many seconds later, at the end of time at the latest.
pub(crate) fn later(at: Timestamp, seconds: i64) -> Timestamp {
    at.saturating_add(SignedDuration::from_secs(seconds)).unwrap_or(Timestamp::MAX)
}

/// `metadata` to write into; made if it is not an object.
pub(crate) fn of(object: &mut Value) -> &mut Map<String, Value> {
    field(object, "metadata")
}

/// A field that is an object, to write into; made if it is not one.
pub(crate) fn field<'a>(object: &'a mut Value, name: &str) -> &'a mut Map<String, Value> {
    map(map(object).entry(name).or_insert(Value::Null))
}

/// A value as an object, to write into.
pub(crate) fn map(value: &mut Value) -> &mut Map<String, Value> {
    if !value.is_object() {
        *value = Value::Object(Map::new());
    }
    match value {
        Value::Object(map) => map,
        _ => unreachable!("made an object just now"),
    }
}

/// Sets a text in `metadata`.
pub(crate) fn set(object: &mut Value, field: &str, value: impl Into<Value>) {
    of(object).insert(field.to_owned(), value.into());
}

/// Removes a field of `metadata`.
pub(crate) fn unset(object: &mut Value, field: &str) {
    of(object).remove(field);
}

/// Replaces the finalizers; none means that the field is absent.
pub(crate) fn set_finalizers(object: &mut Value, finalizers: Vec<Value>) {
    if finalizers.is_empty() {
        unset(object, "finalizers");
    } else {
        set(object, "finalizers", finalizers);
    }
}
