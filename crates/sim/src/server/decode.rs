//! From the body of a request to an object of the expected kind.

use serde_json::{Map, Value};

use super::builtin;
use super::crd::Checked;
use super::kinds::{Registry, ServedKind};
use super::meta;
use super::status::StatusError;

/// What becomes of fields that the kind does not have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Unknown {
    /// Dropped in silence.
    Ignore,
    /// Dropped with a warning.
    Warn,
    /// Refused.
    Strict,
}

/// An object, and the warnings that go with it.
pub(super) struct Decoded {
    pub(super) object: Value,
    pub(super) warnings: Vec<String>,
}

/// Whether the body is of a type that can be read; absent counts as JSON.
pub(super) fn check_media(content_type: Option<&str>) -> Result<(), StatusError> {
    let media = content_type.and_then(|c| c.split(';').next()).map_or("", str::trim);
    match media {
        "" | "*/*" | "application/json" => Ok(()),
        _ => Err(StatusError::unsupported_media_type()),
    }
}

/// The object in a body, checked to be of the kind.
pub(super) fn object(
    kinds: &Registry,
    kind: &ServedKind,
    body: &[u8],
    unknown: Unknown,
) -> Result<Decoded, StatusError> {
    let value = parse(kind, body)?;
    finish(kinds, kind, value, body, unknown)
}

/// JSON, or the words about what is not.
fn parse(kind: &ServedKind, body: &[u8]) -> Result<Value, StatusError> {
    let unrecognized = |error: &str| {
        let (kind, shown) = (&kind.kind, summary(body));
        StatusError::bad_request(format!(
            "the object provided is unrecognized (must be of type {kind}): couldn't get version/kind; json parse error: {error} ({shown})"
        ))
    };
    match serde_json::from_slice(body) {
        Ok(value @ Value::Object(_)) => Ok(value),
        Ok(other) => {
            let go = "Go value of type struct { APIVersion string \"json:\\\"apiVersion,omitempty\\\"\"; Kind string \"json:\\\"kind,omitempty\\\"\" }";
            Err(unrecognized(&format!("json: cannot unmarshal {} into {go}", go_kind(&other))))
        }
        Err(error) if error.is_eof() => Err(unrecognized("unexpected end of JSON input")),
        Err(error) => Err(unrecognized(&error.to_string())),
    }
}

/// The beginning of a body, as messages show it.
fn summary(body: &[u8]) -> String {
    const MAX_EXCERPT_BYTES: usize = 30;
    let shown = &body[..body.len().min(MAX_EXCERPT_BYTES)];
    let text = match body.first() {
        None => "<empty>".to_owned(),
        Some(b'{') => String::from_utf8_lossy(shown).into_owned(),
        Some(_) => hex(shown),
    };
    if body.len() > MAX_EXCERPT_BYTES { format!("{text} ...") } else { text }
}

fn hex(bytes: &[u8]) -> String {
    let digits = bytes.iter().flat_map(|byte| [byte >> 4, byte & 15]);
    digits.filter_map(|digit| char::from_digit(digit.into(), 16)).collect()
}

/// What Go calls a JSON value in messages about types.
pub(super) fn go_kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "bool",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

fn finish(
    kinds: &Registry,
    kind: &ServedKind,
    mut value: Value,
    body: &[u8],
    unknown: Unknown,
) -> Result<Decoded, StatusError> {
    check_type(kinds, kind, &mut value, body, unknown)?;
    check_metadata(kind, &value)?;
    check_texts(kind, &value)?;
    let dropped = clean(kind, &mut value);
    let quoted = |path: &String| format!("unknown field {path:?}");
    let mut warnings = Vec::new();
    if !dropped.is_empty() {
        match unknown {
            Unknown::Ignore => {}
            Unknown::Warn => warnings.extend(dropped.iter().map(quoted)),
            Unknown::Strict => {
                let list: Vec<String> = dropped.iter().map(quoted).collect();
                return Err(StatusError::bad_request(format!(
                    "{0} in version \"{1}\" cannot be handled as a {0}: strict decoding error: {2}",
                    kind.kind,
                    kind.version,
                    list.join(", ")
                )));
            }
        }
    }
    Ok(Decoded { object: value, warnings })
}

/// An object that a patch made: what it must not have is dropped, with a warning where that is asked for.
pub(super) fn patched(
    kinds: &Registry,
    kind: &ServedKind,
    value: Value,
    unknown: Unknown,
) -> Result<Decoded, StatusError> {
    let body = value.to_string();
    finish(kinds, kind, value, body.as_bytes(), unknown)
}

/// Group, version and kind: of custom resources they have to be there, of built-in ones they may be missing.
fn check_type(
    kinds: &Registry,
    kind: &ServedKind,
    value: &mut Value,
    body: &[u8],
    unknown: Unknown,
) -> Result<(), StatusError> {
    let expected = kind.api_version();
    let given_version = value["apiVersion"].as_str().unwrap_or_default().to_owned();
    let given_kind = value["kind"].as_str().unwrap_or_default().to_owned();
    if kind.custom.is_some() {
        let text = String::from_utf8_lossy(body);
        let missing = |what: &str| {
            let why = format!("Object '{what}' is missing in '{text}'");
            // Where unknown fields do not matter, the real server knows which kind was expected.
            StatusError::bad_request(if unknown == Unknown::Ignore {
                format!("{0} in version {1:?} cannot be handled as a {0}: {why}", kind.kind, kind.version)
            } else {
                let shown = summary(body);
                format!(
                    "the object provided is unrecognized (must be of type {}): {why} ({shown})",
                    kind.kind
                )
            })
        };
        if given_kind.is_empty() {
            return Err(missing("Kind"));
        }
        if value.get("apiVersion").is_none() {
            return Err(missing("apiVersion"));
        }
        if given_version != expected {
            return Err(StatusError::bad_request(format!(
                "the API version in the data ({given_version}) does not match the expected API version ({expected})"
            )));
        }
        // A different kind is a problem of the object, reported with its others.
        return Ok(());
    }
    let events = ["v1", "events.k8s.io/v1"];
    if kind.kind == "Event" && given_version != expected && events.contains(&given_version.as_str()) {
        // Both are read, but not in place of each other.
        return Err(StatusError::bad_request(format!(
            "the API version in the data ({given_version}) does not match the expected API version ({expected})"
        )));
    }
    let fits_version = given_version.is_empty() || given_version == expected;
    let fits_kind = given_kind.is_empty() || given_kind == kind.kind;
    if !fits_version || !fits_kind {
        let shown_kind = if given_kind.is_empty() { &kind.kind } else { given_kind.as_str() };
        let shown_version = if given_version.is_empty() { expected.as_str() } else { given_version.as_str() };
        let (_, version) = shown_version.rsplit_once('/').unwrap_or(("", shown_version));
        let why = if kinds.find(shown_version, shown_kind).is_some() {
            let group = |v: &str| {
                v.rsplit_once('/')
                    .map_or("core".to_owned(), |(g, _)| g.split('.').next().unwrap_or(g).to_owned())
            };
            format!(
                "converting ({version}.{shown_kind}) to ({}.{}): unknown conversion",
                group(&expected),
                kind.kind
            )
        } else {
            format!(
                "no kind {shown_kind:?} is registered for version {shown_version:?} in scheme \"pkg/runtime/scheme.go:111\""
            )
        };
        return Err(StatusError::bad_request(format!(
            "{shown_kind} in version {version:?} cannot be handled as a {}: {why}",
            kind.kind
        )));
    }
    let map = meta::map(value);
    map.insert("apiVersion".to_owned(), Value::String(expected));
    map.insert("kind".to_owned(), Value::String(kind.kind.to_string()));
    Ok(())
}

/// The types of what is in `metadata`.
fn check_metadata(kind: &ServedKind, value: &Value) -> Result<(), StatusError> {
    let wrong = |what: &Value, field: &str, into: &str| {
        let (go, of) =
            (go_kind(what), if kind.custom.is_some() { "ObjectMeta" } else { "ObjectMeta.metadata" });
        StatusError::bad_request(format!(
            "{0} in version \"{1}\" cannot be handled as a {0}: json: cannot unmarshal {go} into Go struct field {of}{field} of type {into}",
            kind.kind, kind.version
        ))
    };
    let metadata = match &value["metadata"] {
        Value::Null => return Ok(()),
        Value::Object(metadata) => metadata,
        other => return Err(wrong(other, "", "v1.ObjectMeta")),
    };
    for (field, value) in metadata.iter().filter(|(_, v)| !v.is_null()) {
        let path = format!(".{field}");
        match field.as_str() {
            "labels" | "annotations" => match value.as_object() {
                None => return Err(wrong(value, &path, "map[string]string")),
                Some(map) => {
                    if let Some(bad) = map.values().find(|v| !v.is_string() && !v.is_null()) {
                        return Err(wrong(bad, &path, "string"));
                    }
                }
            },
            "finalizers" => match value.as_array() {
                None => return Err(wrong(value, &path, "[]string")),
                Some(list) => {
                    if let Some(bad) = list.iter().find(|v| !v.is_string()) {
                        return Err(wrong(bad, &path, "string"));
                    }
                }
            },
            "ownerReferences" if !value.is_array() => {
                return Err(wrong(value, &path, "[]v1.OwnerReference"));
            }
            "name" | "namespace" | "uid" | "resourceVersion" | "generateName" if !value.is_string() => {
                return Err(wrong(value, &path, "string"));
            }
            "generation" | "deletionGracePeriodSeconds" if !value.is_i64() => {
                return Err(wrong(value, &path, "int64"));
            }
            _ => {}
        }
    }
    Ok(())
}

/// The types of what config maps and secrets hold: texts by key; and that the spec of a built-in kind is an object.
fn check_texts(kind: &ServedKind, value: &Value) -> Result<(), StatusError> {
    let spec = &value["spec"];
    if kind.custom.is_none() && !spec.is_null() && !spec.is_object() {
        return Err(StatusError::bad_request(format!(
            "{0} in version \"{1}\" cannot be handled as a {0}: json: cannot unmarshal {2} into Go struct field {0}.spec of type {1}.{0}Spec",
            kind.kind,
            kind.version,
            go_kind(spec)
        )));
    }
    if !kind.group.is_empty() || !matches!(kind.plural.as_ref(), "configmaps" | "secrets") {
        return Ok(());
    }
    for field in ["data", "binaryData"] {
        let binary = field == "binaryData" || kind.plural == "secrets";
        let mut texts = value[field].as_object().into_iter().flatten().filter_map(|(_, text)| text.as_str());
        if let (true, Some(at)) = (binary, texts.find_map(not_base64)) {
            return Err(StatusError::bad_request(format!(
                "{0} in version \"{1}\" cannot be handled as a {0}: illegal base64 data at input byte {at}",
                kind.kind, kind.version
            )));
        }
    }
    for field in ["data", "binaryData", "stringData"] {
        let (wrong, into) = match &value[field] {
            Value::Null => continue,
            Value::Object(map) => match map.values().find(|v| !v.is_string() && !v.is_null()) {
                Some(wrong) => (wrong, "string"),
                None => continue,
            },
            wrong => (wrong, "map[string]string"),
        };
        return Err(StatusError::bad_request(format!(
            "{0} in version \"{1}\" cannot be handled as a {0}: json: cannot unmarshal {2} into Go struct field {0}.{field} of type {into}",
            kind.kind,
            kind.version,
            go_kind(wrong)
        )));
    }
    Ok(())
}

/// The first byte that base64 does not have.
pub(super) fn not_base64(text: &str) -> Option<usize> {
    text.bytes().position(|c| !c.is_ascii_alphanumeric() && !matches!(c, b'+' | b'/' | b'=' | b'\r' | b'\n'))
}

/// Drops what is empty from an applied object; that it has nothing else than its kind has been checked.
pub(super) fn tidy(kind: &ServedKind, value: &mut Value) {
    if kind.custom.is_some() {
        // A null in a custom resource is no field that is left out.
        clean_metadata(value, &mut Vec::new());
    } else {
        clean(kind, value);
    }
}

/// Drops what the kind does not have; answers the paths, sorted as the API server does: metadata first.
fn clean(kind: &ServedKind, value: &mut Value) -> Vec<String> {
    let mut unknown = Vec::new();
    clean_metadata(value, &mut unknown);
    if let Some(custom) = &kind.custom {
        unknown.extend(custom.prune(value));
        whole_numbers(value);
    } else {
        let known = builtin::fields(kind);
        meta::map(value).retain(|field, _| {
            let known = matches!(field.as_str(), "apiVersion" | "kind" | "metadata")
                || known.contains(&field.as_str());
            if !known {
                unknown.push(field.clone());
            }
            known
        });
        drop_nulls(value);
    }
    unknown
}

fn clean_metadata(value: &mut Value, unknown: &mut Vec<String>) {
    let metadata = meta::of(value);
    metadata.retain(|field, value| {
        let known = coppice_schema::METADATA.contains(&field.as_str());
        if !known {
            unknown.push(format!("metadata.{field}"));
        }
        known && field != "managedFields" && field != "selfLink" && !is_empty(value)
    });
    if let Some(labels) = metadata.get_mut("labels").and_then(Value::as_object_mut) {
        go_strings(labels);
    }
    if let Some(annotations) = metadata.get_mut("annotations").and_then(Value::as_object_mut) {
        go_strings(annotations);
    }
}

/// A whole number is shown as one, however it was written: `1.0` is 1.
pub(super) fn whole_numbers(value: &mut Value) {
    match value {
        Value::Object(map) => map.values_mut().for_each(whole_numbers),
        Value::Array(list) => list.iter_mut().for_each(whole_numbers),
        Value::Number(number) if number.is_f64() => {
            // Written without a fraction, and without an exponent as long as it has no more than 18 digits.
            let text = number.as_f64().map(|float| format!("{float}")).unwrap_or_default();
            if let Ok(whole) = text.parse::<i64>() {
                *value = whole.into();
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// A null in a map of texts is an empty text.
fn go_strings(map: &mut Map<String, Value>) {
    for value in map.values_mut().filter(|v| v.is_null()) {
        *value = Value::String(String::new());
    }
}

fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::String(text) => text.is_empty(),
        Value::Array(list) => list.is_empty(),
        Value::Object(map) => map.is_empty(),
        _ => false,
    }
}

/// In built-in kinds a null field is an absent one.
fn drop_nulls(value: &mut Value) {
    match value {
        Value::Object(map) => {
            map.retain(|_, v| !v.is_null());
            map.values_mut().for_each(drop_nulls);
        }
        Value::Array(list) => list.iter_mut().for_each(drop_nulls),
        _ => {}
    }
}
