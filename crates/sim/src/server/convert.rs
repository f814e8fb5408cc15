//! Between the version in which objects are stored and the one in which they are asked for.

use std::sync::Arc;

use serde_json::Value;

use super::kinds::ServedKind;

/// Fields of an Event in `events.k8s.io/v1`, and the same in core `v1`.
const EVENT: [(&str, &str); 7] = [
    ("regarding", "involvedObject"),
    ("note", "message"),
    ("deprecatedSource", "source"),
    ("deprecatedFirstTimestamp", "firstTimestamp"),
    ("deprecatedLastTimestamp", "lastTimestamp"),
    ("deprecatedCount", "count"),
    ("reportingController", "reportingComponent"),
];

/// The object in the version of the kind; shared if it is stored in that version.
pub(super) fn to(kind: &ServedKind, object: &Arc<Value>) -> Arc<Value> {
    needed(kind, object).map_or_else(|| object.clone(), Arc::new)
}

/// The object in the version of the kind, unless it is stored in that version.
pub(super) fn needed(kind: &ServedKind, object: &Value) -> Option<Value> {
    let stored = object["apiVersion"].as_str().unwrap_or_default();
    let (group, version) = stored.rsplit_once('/').unwrap_or(("", stored));
    if group == kind.group && version == kind.version {
        return None;
    }
    let mut object = object.clone();
    if kind.group == "events.k8s.io" {
        rename(&mut object, EVENT.iter().map(|(new, core)| (*core, *new)));
        if let Some(map) = object.as_object_mut() {
            map.retain(|field, value| !field.starts_with("reporting") || value != "");
        }
    }
    object["apiVersion"] = Value::String(kind.api_version());
    Some(object)
}

/// An object that was given in the version of a kind, in the version in which it is stored.
pub(super) fn from(kind: &ServedKind, primary: &ServedKind, object: &mut Value) {
    if kind.group == "events.k8s.io" {
        rename(object, EVENT.iter().copied());
    }
    object["apiVersion"] = Value::String(primary.api_version());
}

fn rename(object: &mut Value, names: impl Iterator<Item = (&'static str, &'static str)>) {
    if let Some(map) = object.as_object_mut() {
        for (from, to) in names {
            if let Some(value) = map.remove(from) {
                map.insert(to.to_owned(), value);
            }
        }
    }
}
