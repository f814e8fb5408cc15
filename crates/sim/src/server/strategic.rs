//! Strategic merge patch, as far as kubectl needs it: lists of objects are merged by their key, others replaced;
//! `$patch`, `$deleteFromPrimitiveList`, `$setElementOrder` and `$retainKeys` are understood.

use serde_json::{Map, Value};

use super::kinds::ServedKind;
use super::meta;

/// Lists that are merged, wherever they are in a built-in kind, and the field that tells their elements apart. The order
/// of `ports` is by where they are.
const MERGE_KEYS: [(&str, &str); 20] = [
    ("containers", "name"),
    ("initContainers", "name"),
    ("ephemeralContainers", "name"),
    ("env", "name"),
    ("volumes", "name"),
    ("volumeMounts", "mountPath"),
    ("volumeDevices", "devicePath"),
    ("imagePullSecrets", "name"),
    ("hostAliases", "ip"),
    ("conditions", "type"),
    ("ownerReferences", "uid"),
    ("secrets", "name"),
    ("taints", "key"),
    ("addresses", "type"),
    ("topologySpreadConstraints", "topologyKey"),
    ("schedulingGates", "name"),
    ("resourceClaims", "name"),
    ("webhooks", "name"),
    ("validations", "expression"),
    ("podIPs", "ip"),
];

/// Lists of plain values that are merged as sets.
const SETS: [&str; 1] = ["finalizers"];

/// Why a patch is refused: the text is that of the `BadRequest`.
#[derive(Debug, thiserror::Error)]
pub(super) enum StrategicPatchError {
    /// It is no object.
    #[error("error decoding patch: not an object")]
    NoObject,
    /// `$patch` names no directive.
    #[error("Unknown patch type found: {0}")]
    Directive(String),
    /// An element of a list that is merged by a key has none.
    #[error("map: {item} does not contain declared merge key: {key}")]
    NoKey { item: Value, key: &'static str },
}

/// Carries out a patch.
pub(super) fn apply(kind: &ServedKind, target: &mut Value, patch: &Value) -> Result<(), StrategicPatchError> {
    let patch = patch.as_object().ok_or(StrategicPatchError::NoObject)?;
    let service = kind.group.is_empty() && kind.plural == "services";
    merge_map(meta::map(target), patch, service)
}

fn merge_key(field: &str, service: bool) -> Option<&'static str> {
    if field == "ports" {
        return Some(if service { "port" } else { "containerPort" });
    }
    MERGE_KEYS.iter().find(|(f, _)| *f == field).map(|(_, key)| *key)
}

/// The keys that tell the elements of a built-in list apart when it is applied. Keys may be absent.
pub(super) fn apply_keys(field: &str, items: &[Value]) -> Option<Vec<String>> {
    let keys: Vec<&str> = match field {
        "ports" if items.iter().all(|i| i.get("containerPort").is_some()) => {
            vec!["containerPort", "protocol"]
        }
        "ports" => vec!["port", "protocol"],
        field => vec![merge_key(field, false)?],
    };
    items.iter().all(Value::is_object).then(|| keys.into_iter().map(str::to_owned).collect())
}

fn merge_map(
    target: &mut Map<String, Value>,
    patch: &Map<String, Value>,
    service: bool,
) -> Result<(), StrategicPatchError> {
    match patch.get("$patch").and_then(Value::as_str) {
        Some("replace") => {
            *target =
                patch.iter().filter(|(k, _)| *k != "$patch").map(|(k, v)| (k.clone(), v.clone())).collect();
            return Ok(());
        }
        Some("delete") => {
            target.clear();
            return Ok(());
        }
        Some("merge") | None => {}
        Some(other) => return Err(StrategicPatchError::Directive(other.to_owned())),
    }
    if let Some(keep) = patch.get("$retainKeys").and_then(Value::as_array) {
        target.retain(|key, _| keep.iter().any(|k| k == key));
    }
    for (key, value) in patch.iter().filter(|(key, _)| !key.starts_with('$')) {
        match value {
            Value::Null => {
                target.remove(key);
            }
            Value::Object(inner) => {
                let slot = target.entry(key.as_str()).or_insert(Value::Null);
                let deleted = inner.get("$patch").is_some_and(|p| p == "delete");
                merge_map(meta::map(slot), inner, service)?;
                if deleted {
                    target.remove(key);
                }
            }
            Value::Array(items) => {
                let slot = target.entry(key.as_str()).or_insert_with(|| Value::Array(Vec::new()));
                merge_list(key, slot, items, service)?;
            }
            plain => {
                target.insert(key.clone(), plain.clone());
            }
        }
    }
    directives(target, patch, service);
    Ok(())
}

/// Directives about lists that are beside them: what to delete from a list, and its order.
fn directives(target: &mut Map<String, Value>, patch: &Map<String, Value>, service: bool) {
    for (key, value) in patch {
        if let (Some(field), Some(gone)) = (key.strip_prefix("$deleteFromPrimitiveList/"), value.as_array()) {
            if let Some(Value::Array(list)) = target.get_mut(field) {
                list.retain(|v| !gone.contains(v));
            }
        } else if let (Some(field), Some(order)) = (key.strip_prefix("$setElementOrder/"), value.as_array())
            && let Some(Value::Array(list)) = target.get_mut(field)
        {
            let by = merge_key(field, service);
            let place = |v: &Value| {
                order.iter().position(|o| by.map_or(o == v, |by| o[by] == v[by])).unwrap_or(order.len())
            };
            list.sort_by_key(place);
        }
    }
}

fn merge_list(
    field: &str,
    target: &mut Value,
    items: &[Value],
    service: bool,
) -> Result<(), StrategicPatchError> {
    let Value::Array(list) = target else {
        *target = Value::Array(items.to_vec());
        return Ok(());
    };
    if SETS.contains(&field) {
        for item in items {
            if !list.contains(item) {
                list.push(item.clone());
            }
        }
        return Ok(());
    }
    let objects = items.iter().all(Value::is_object);
    let Some(by) = merge_key(field, service).filter(|_| objects) else {
        *list = items.to_vec();
        return Ok(());
    };
    if items.iter().any(|item| item["$patch"] == "replace") {
        *list = items.iter().filter(|item| item["$patch"] != "replace").cloned().collect();
        return Ok(());
    }
    for item in items {
        let Some(key) = item.get(by) else {
            return Err(StrategicPatchError::NoKey { item: item.clone(), key: by });
        };
        let found = list.iter().position(|e| e.get(by) == Some(key));
        match (found, item["$patch"] == "delete") {
            (Some(at), true) => {
                list.remove(at);
            }
            (None, true) => {}
            (Some(at), false) => {
                if let Some(map) = item.as_object() {
                    merge_map(meta::map(&mut list[at]), map, service)?;
                }
            }
            (None, false) => list.push(item.clone()),
        }
    }
    Ok(())
}
