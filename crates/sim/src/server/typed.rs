//! Applied values must have the types that the schema names: the API server checks that before anything else, with
//! messages of its own.

use serde_json::{Map, Value, json};

use super::builtin;
use super::decode::not_base64;
use super::kinds::ServedKind;
use super::meta;
use super::status::StatusError;

/// Refuses an applied object whose values are of other types than its schema says.
pub(super) fn check(kind: &ServedKind, patch: &Value) -> Result<(), StatusError> {
    let mut errors = Vec::new();
    let fields = patch.as_object().into_iter().flatten();
    for (field, value) in fields.filter(|(field, _)| !matches!(field.as_str(), "apiVersion" | "kind")) {
        let place = format!(".{field}");
        match (&kind.custom, field.as_str()) {
            (_, "metadata") => walk(&metadata(), value, &place, &mut errors),
            (Some(custom), _) => field_of(&custom.open_api, field, value, &place, &mut errors),
            (None, _) if !builtin::fields(kind).contains(&field.as_str()) => errors.push(undeclared(&place)),
            (None, "data" | "stringData") if kind.group.is_empty() => {
                walk(
                    &json!({"type": "object", "additionalProperties": TEXT.clone()}),
                    value,
                    &place,
                    &mut errors,
                );
            }
            (None, "spec" | "status") => walk(&json!({"type": "object"}), value, &place, &mut errors),
            _ => {}
        }
    }
    if errors.is_empty() {
        return Ok(());
    }
    let errors =
        if errors.len() == 1 { errors.swap_remove(0) } else { format!("errors:\n  {}", errors.join("\n  ")) };
    Err(StatusError::internal(format!(
        "failed to create typed patch object ({}/{}; {}/{}, Kind={}): {errors}",
        meta::namespace(patch),
        meta::name(patch),
        kind.group,
        kind.version,
        kind.kind
    )))
}

/// What a secret holds is base64: that is checked later.
pub(super) fn encoded(kind: &ServedKind, patch: &Value) -> Result<(), StatusError> {
    let data = patch["data"].as_object().filter(|_| kind.group.is_empty() && kind.plural == "secrets");
    let mut texts = data.into_iter().flatten().filter_map(|(_, text)| text.as_str());
    let Some(at) = texts.find_map(not_base64) else { return Ok(()) };
    Err(StatusError::internal(format!(
        "failed to convert new object ({}/{}; /v1, Kind=Secret) to proper version: unable to convert unstructured object to \
         /v1, Kind=Secret: error decoding from json: illegal base64 data at input byte {at}",
        meta::namespace(patch),
        meta::name(patch)
    )))
}

static TEXT: std::sync::LazyLock<Value> = std::sync::LazyLock::new(|| json!({"type": "string"}));

/// The part of `metadata` that has types.
fn metadata() -> Value {
    let texts = json!({"type": "object", "additionalProperties": *TEXT});
    let owner = json!({"type": "object", "properties": {
        "apiVersion": *TEXT, "blockOwnerDeletion": {"type": "boolean"}, "controller": {"type": "boolean"},
        "kind": *TEXT, "name": *TEXT, "uid": *TEXT,
    }});
    json!({"type": "object", "properties": {
        "annotations": texts,
        "creationTimestamp": {"x-kubernetes-preserve-unknown-fields": true},
        "deletionGracePeriodSeconds": {"type": "integer"},
        "deletionTimestamp": {"x-kubernetes-preserve-unknown-fields": true},
        "finalizers": {"type": "array", "items": *TEXT},
        "generateName": *TEXT,
        "generation": {"type": "integer"},
        "labels": texts,
        "managedFields": {"x-kubernetes-preserve-unknown-fields": true},
        "name": *TEXT,
        "namespace": *TEXT,
        "ownerReferences": {"type": "array", "items": owner},
        "resourceVersion": *TEXT,
        "selfLink": *TEXT,
        "uid": *TEXT,
    }})
}

fn walk(schema: &Value, value: &Value, path: &str, errors: &mut Vec<String>) {
    if value.is_null() {
        return;
    }
    let mut wrong = |what: String| errors.push(format!("{path}: expected {what}"));
    // What has no type, such as what is a number or a text, is checked later.
    match schema["type"].as_str() {
        Some("integer" | "number") if !value.is_number() => {
            wrong(format!("numeric (int or float), got {}", go_type(value)));
        }
        Some("string") if !value.is_string() => {
            wrong(format!("string, got &value.valueUnstructured{{Value:{}}}", go_syntax(value)));
        }
        Some("boolean") if !value.is_boolean() => wrong(format!("boolean, got &{{{}}}", go(value))),
        Some("array") => match value {
            Value::Array(items) => list(schema, items, path, errors),
            other => wrong(format!("list, got &{{{}}}", go(other))),
        },
        Some("object") => match value {
            Value::Object(map) => object(schema, map, path, errors),
            other => wrong(format!("map, got &{{{}}}", go(other))),
        },
        _ => {}
    }
}

fn object(schema: &Value, map: &Map<String, Value>, path: &str, errors: &mut Vec<String>) {
    for (field, value) in map {
        field_of(schema, field, value, &format!("{path}.{field}"), errors);
    }
}

/// A field of an object with this schema.
fn field_of(schema: &Value, field: &str, value: &Value, path: &str, errors: &mut Vec<String>) {
    let properties = schema["properties"].as_object();
    let others = schema.get("additionalProperties").filter(|others| others.is_object());
    let keeps = schema["x-kubernetes-preserve-unknown-fields"] == true;
    match (properties.and_then(|p| p.get(field)), others) {
        (Some(schema), _) | (None, Some(schema)) => walk(schema, value, path, errors),
        (None, None) if keeps || properties.is_none() => {}
        (None, None) => errors.push(undeclared(path)),
    }
}

fn undeclared(path: &str) -> String {
    format!("{path}: field not declared in schema")
}

fn list(schema: &Value, items: &[Value], path: &str, errors: &mut Vec<String>) {
    let keys: Vec<&str> = match schema["x-kubernetes-list-type"].as_str() {
        Some("map") => schema["x-kubernetes-list-map-keys"]
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(Value::as_str)
            .collect(),
        _ => Vec::new(),
    };
    let mut seen: Vec<String> = Vec::new();
    for (at, item) in items.iter().enumerate() {
        let mut element = format!("[{at}]");
        if !keys.is_empty() && item.is_object() {
            if let Some(missing) = keys.iter().find(|key| item.get(**key).is_none()) {
                errors.push(format!(
                    "{path}: element {at}: associative list with keys has an element that omits key field {missing:?} \
                     (and doesn't have default value)"
                ));
                continue;
            }
            let named: Vec<String> = keys.iter().map(|key| format!("{key}={}", item[*key])).collect();
            element = format!("[{}]", named.join(","));
            if seen.contains(&element) {
                errors.push(format!("{path}: duplicate entries for key {element}"));
            }
            seen.push(element.clone());
        }
        walk(&schema["items"], item, &format!("{path}{element}"), errors);
    }
}

/// A value as Go prints it with `%v`.
fn go(value: &Value) -> String {
    match value {
        Value::Null => "<nil>".to_owned(),
        Value::String(text) => text.clone(),
        Value::Array(list) => format!("[{}]", list.iter().map(go).collect::<Vec<_>>().join(" ")),
        Value::Object(map) => {
            let fields: Vec<String> = map.iter().map(|(k, v)| format!("{k}:{}", go(v))).collect();
            format!("map[{}]", fields.join(" "))
        }
        other => other.to_string(),
    }
}

/// A value as Go prints it with `%#v`.
fn go_syntax(value: &Value) -> String {
    match value {
        Value::Null => "interface {}(nil)".to_owned(),
        Value::Array(list) => {
            format!("[]interface {{}}{{{}}}", list.iter().map(go_syntax).collect::<Vec<_>>().join(", "))
        }
        Value::Object(map) => {
            let fields: Vec<String> = map.iter().map(|(k, v)| format!("{k:?}:{}", go_syntax(v))).collect();
            format!("map[string]interface {{}}{{{}}}", fields.join(", "))
        }
        other => other.to_string(),
    }
}

/// The type of a value as Go prints it with `%T`.
fn go_type(value: &Value) -> &'static str {
    match value {
        Value::Null => "<nil>",
        Value::Bool(_) => "bool",
        Value::Number(n) if n.is_f64() => "float64",
        Value::Number(_) => "int64",
        Value::String(_) => "string",
        Value::Array(_) => "[]interface {}",
        Value::Object(_) => "map[string]interface {}",
    }
}
