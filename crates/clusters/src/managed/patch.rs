//! How the desired state is merged into what is live, and what of it others have changed.
//!
//! The desired state has nothing but the fields that a spec decides. All other fields of what is live stay. A field that was written
//! before and is not desired any more is taken away, as it was not anybody else's. Lists of items with a name or a type are merged by
//! these; all other lists are replaced.

use std::collections::BTreeSet;

use serde_json::{Map, Value};

use crate::kubeconfig::sha256;

static NONE: Value = Value::Null;

/// A field that differs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FieldChange {
    /// Where it is, as in `spec.topology.workers.machineDeployments[ci].replicas`.
    pub path: String,
    /// What it was; null if it was not there.
    pub from: Value,
    /// What it is then; null if it is not there.
    pub to: Value,
}

/// What is live with the desired fields, and without those that were written before and are not desired any more.
pub fn merge(live: &Value, desired: &Value, before: &Value) -> Value {
    match desired {
        Value::Object(desired) => {
            let mut merged = live.as_object().cloned().unwrap_or_default();
            for (field, old) in before.as_object().into_iter().flatten() {
                if !desired.contains_key(field) {
                    take_away(&mut merged, field, old);
                }
            }
            for (field, value) in desired {
                let next = merge(field_of(live, field), value, field_of(before, field));
                merged.insert(field.clone(), next);
            }
            Value::Object(merged)
        }
        Value::Array(desired) => match key_of(desired) {
            Some(key) => Value::Array(merge_items(items(live), desired, items(before), key)),
            None => Value::Array(desired.clone()),
        },
        desired => desired.clone(),
    }
}

/// Those that are live keep their order; new ones come after them.
fn merge_items(live: &[Value], desired: &[Value], before: &[Value], key: &str) -> Vec<Value> {
    let mut merged = Vec::new();
    for item in live {
        match (find(desired, key, item), find(before, key, item)) {
            (Some(desired), old) => merged.push(merge(item, desired, old.unwrap_or(&NONE))),
            (None, Some(_)) => {}
            (None, None) => merged.push(item.clone()),
        }
    }
    merged.extend(desired.iter().filter(|item| find(live, key, item).is_none()).cloned());
    merged
}

fn take_away(merged: &mut Map<String, Value>, field: &str, before: &Value) {
    let Some(value) = merged.remove(field) else { return };
    if let Some(left) = without(value, before) {
        merged.insert(field.to_owned(), left);
    }
}

/// What is left of a value without what was written into it; none if that is nothing.
fn without(value: Value, before: &Value) -> Option<Value> {
    match (value, before) {
        (Value::Object(mut fields), Value::Object(before)) => {
            for (field, old) in before {
                take_away(&mut fields, field, old);
            }
            (!fields.is_empty()).then_some(Value::Object(fields))
        }
        (Value::Array(mut all), Value::Array(before)) => {
            let key = key_of(before)?;
            all.retain(|item| find(before, key, item).is_none());
            (!all.is_empty()).then_some(Value::Array(all))
        }
        _ => None,
    }
}

/// The JSON merge patch that makes the one the other: an object without fields if they are the same.
pub fn merge_patch(from: &Value, to: &Value) -> Value {
    let (Value::Object(from), Value::Object(to)) = (from, to) else { return to.clone() };
    let mut patch = Map::new();
    for field in from.keys().filter(|field| !to.contains_key(*field)) {
        patch.insert(field.clone(), Value::Null);
    }
    for (field, value) in to {
        match from.get(field) {
            Some(same) if same == value => {}
            Some(before) if before.is_object() && value.is_object() => {
                patch.insert(field.clone(), merge_patch(before, value));
            }
            _ => {
                patch.insert(field.clone(), value.clone());
            }
        }
    }
    Value::Object(patch)
}

/// The fields that differ, in the order of their paths.
pub fn changes(from: &Value, to: &Value) -> Vec<FieldChange> {
    let mut found = Vec::new();
    collect(String::new(), from, to, &mut found);
    found
}

fn collect(path: String, from: &Value, to: &Value, found: &mut Vec<FieldChange>) {
    if from == to {
        return;
    }
    // Of what was not there each field is new.
    let (none, from_nothing) = (Map::new(), from.is_null());
    if let Value::Object(after) = to
        && let Some(before) = from.as_object().or((from_nothing && !after.is_empty()).then_some(&none))
    {
        for field in before.keys().chain(after.keys()).collect::<BTreeSet<_>>() {
            let dot = if path.is_empty() { "" } else { "." };
            collect(format!("{path}{dot}{field}"), field_of(from, field), field_of(to, field), found);
        }
        return;
    }
    let (before, after) = (items(from), items(to));
    let is_same_key = |key: &&'static str| from_nothing || key_of(before) == Some(*key);
    let Some(key) = key_of(after).filter(is_same_key) else {
        found.push(FieldChange { path, from: from.clone(), to: to.clone() });
        return;
    };
    let is_new = |item: &&Value| find(before, key, item).is_none();
    for item in before.iter().chain(after.iter().filter(is_new)) {
        let name = item[key].as_str().map_or_else(|| item[key].to_string(), str::to_owned);
        let old = find(before, key, item).unwrap_or(&NONE);
        let new = find(after, key, item).unwrap_or(&NONE);
        collect(format!("{path}[{name}]"), old, new, found);
    }
}

/// What others have changed of the fields that were written.
pub fn drift(live: &Value, written: &Value) -> Vec<FieldChange> {
    changes(written, &part(live, written))
}

/// As much of what is live as was written.
fn part(live: &Value, written: &Value) -> Value {
    match (live, written) {
        (Value::Object(live), Value::Object(written)) => {
            let both = written.iter().filter_map(|(field, old)| Some((field, live.get(field)?, old)));
            Value::Object(both.map(|(field, now, old)| (field.clone(), part(now, old))).collect())
        }
        (Value::Array(all), Value::Array(written)) => match key_of(written) {
            Some(key) => {
                let both = written.iter().filter_map(|old| Some((find(all, key, old)?, old)));
                Value::Array(both.map(|(now, old)| part(now, old)).collect())
            }
            None => live.clone(),
        },
        _ => live.clone(),
    }
}

/// The digest of a desired state.
pub fn hash(desired: &Value) -> String {
    sha256(canonical(desired).as_bytes())
}

/// The same text whatever the order of fields.
fn canonical(value: &Value) -> String {
    match value {
        Value::Object(fields) => {
            let sorted: BTreeSet<(&String, String)> =
                fields.iter().map(|(name, value)| (name, canonical(value))).collect();
            let all: Vec<String> = sorted
                .into_iter()
                .map(|(name, value)| format!("{}:{value}", Value::from(name.as_str())))
                .collect();
            format!("{{{}}}", all.join(","))
        }
        Value::Array(all) => format!("[{}]", all.iter().map(canonical).collect::<Vec<_>>().join(",")),
        value => value.to_string(),
    }
}

fn field_of<'a>(value: &'a Value, field: &str) -> &'a Value {
    value.get(field).unwrap_or(&NONE)
}

fn items(value: &Value) -> &[Value] {
    value.as_array().map_or(&[][..], Vec::as_slice)
}

/// By which field the items of a list are known.
fn key_of(list: &[Value]) -> Option<&'static str> {
    let names_all = |key: &&'static str| list.iter().all(|item| !field_of(item, key).is_null());
    ["name", "type"].into_iter().find(names_all).filter(|_| !list.is_empty())
}

fn find<'a>(list: &'a [Value], key: &str, item: &Value) -> Option<&'a Value> {
    list.iter().find(|other| field_of(other, key) == field_of(item, key))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn pools(pools: &Value) -> Value {
        json!({"spec": {"workers": pools}})
    }

    #[test]
    fn unknown_fields_and_items_of_others_survive_and_what_is_not_desired_any_more_goes() {
        let live = json!({"spec": {
            "paused": true, "purpose": "testing",
            "workers": [
                {"name": "theirs", "max": 1},
                {"name": "old", "max": 2},
                {"name": "a", "max": 2, "sysctls": {"x": "1"}, "labels": {"mine": "1", "theirs": "2"}},
            ],
        }});
        let before = json!({"spec": {"purpose": "testing", "workers": [
            {"name": "old", "max": 2}, {"name": "a", "max": 2, "labels": {"mine": "1"}},
        ]}});
        let desired = pools(&json!([{"name": "new", "max": 1}, {"name": "a", "max": 3}]));
        let merged = merge(&live, &desired, &before);
        let expected = json!({"spec": {"paused": true, "workers": [
            {"name": "theirs", "max": 1},
            {"name": "a", "max": 3, "sysctls": {"x": "1"}, "labels": {"theirs": "2"}},
            {"name": "new", "max": 1},
        ]}});
        assert_eq!(merged, expected);
        let patch = merge_patch(&live, &merged);
        assert_eq!(patch["spec"]["purpose"], Value::Null);
        assert!(patch["spec"].as_object().unwrap().contains_key("purpose"), "{patch}");
        assert!(!patch["spec"].as_object().unwrap().contains_key("paused"), "{patch}");
        assert_eq!(merge_patch(&merged, &merged), json!({}));
    }

    #[test]
    fn lists_of_texts_are_replaced_and_items_are_known_by_number_or_type_too() {
        let live = json!({"zones": ["a", "b"], "subnets": [{"name": 2, "cidr": "x", "nat": true}], "extensions": [{"type": "dns", "on": 1}]});
        let desired = json!({"zones": ["b"], "subnets": [{"name": 2, "cidr": "y"}], "extensions": [{"type": "dns", "off": 1}]});
        let expected = json!({
            "zones": ["b"], "subnets": [{"name": 2, "cidr": "y", "nat": true}], "extensions": [{"type": "dns", "on": 1, "off": 1}]
        });
        assert_eq!(merge(&live, &desired, &Value::Null), expected);
    }

    #[test]
    fn drift_is_what_others_changed_of_what_was_written() {
        let written = pools(&json!([{"name": "a", "max": 2, "zones": ["x"]}, {"name": "b", "max": 1}]));
        let live = pools(&json!([{"name": "a", "max": 5, "zones": ["x"], "min": 1}, {"name": "c"}]));
        let found = drift(&live, &written);
        let shown: Vec<_> = found.iter().map(|c| (c.path.as_str(), c.from.clone(), c.to.clone())).collect();
        assert_eq!(
            shown,
            [
                ("spec.workers[a].max", json!(2), json!(5)),
                ("spec.workers[b]", json!({"name": "b", "max": 1}), Value::Null),
            ]
        );
        assert!(drift(&written, &written).is_empty());
        let shown: Vec<String> = changes(&Value::Null, &live).into_iter().map(|change| change.path).collect();
        assert_eq!(
            shown,
            [
                "spec.workers[a].max",
                "spec.workers[a].min",
                "spec.workers[a].name",
                "spec.workers[a].zones",
                "spec.workers[c].name"
            ]
        );
    }

    #[test]
    fn the_digest_is_of_the_fields_and_not_of_their_order() {
        let (one, other): (Value, Value) = (
            serde_json::from_str(r#"{"a": 1, "b": {"c": [1, 2]}}"#).unwrap(),
            serde_json::from_str(r#"{"b": {"c": [1, 2]}, "a": 1}"#).unwrap(),
        );
        assert_eq!(hash(&one), hash(&other));
        assert_eq!(hash(&one).len(), 64);
        assert_ne!(hash(&one), hash(&json!({"a": 1, "b": {"c": [2, 1]}})));
    }
}
