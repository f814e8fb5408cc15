//! Lists whose items are distinguished by value (sets) or by keys (maps): no item twice.

use serde_json::{Map, Value};

use crate::cause::ValidationError;
use crate::go;
use crate::node::{Entries, ListType, Node};
use crate::path::Path;

/// Every item that is there already, at its second place.
pub(crate) fn check(node: &Node, value: &Value, path: Path<'_>) -> Vec<ValidationError> {
    let mut causes = Vec::new();
    walk(node, value, path, &mut causes);
    causes
}

fn walk(node: &Node, value: &Value, path: Path<'_>, causes: &mut Vec<ValidationError>) {
    if !node.has_lists {
        return;
    }
    match value {
        Value::Object(fields) => {
            for (key, value) in fields {
                match (node.properties.get(key), &node.entries) {
                    (Some(child), _) => walk(child, value, Path::Field(&path, key), causes),
                    (None, Some(Entries::Of(child))) => walk(child, value, Path::Entry(&path, key), causes),
                    _ => {}
                }
            }
        }
        Value::Array(items) => {
            match &node.list {
                ListType::Atomic => {}
                ListType::Set => duplicates(items.iter().cloned(), path, causes),
                ListType::Map(keys) => {
                    match items.iter().position(|item| !item.is_object() && !item.is_null()) {
                        Some(index) => causes.push(ValidationError::invalid(
                            Path::Index(&path, index).bracketed(),
                            &items[index],
                            "must be an object for an array of list-type map",
                        )),
                        None => duplicates(items.iter().map(|item| keys_of(keys, item)), path, causes),
                    }
                }
            }
            if let Some(child) = &node.items {
                for (index, item) in items.iter().enumerate() {
                    walk(child, item, Path::Index(&path, index), causes);
                }
            }
        }
        _ => {}
    }
}

fn keys_of(keys: &[String], item: &Value) -> Value {
    let present = |key: &String| Some((key.clone(), item.get(key)?.clone()));
    Value::Object(keys.iter().filter_map(present).collect::<Map<_, _>>())
}

/// Of values that are there several times only the second is reported.
fn duplicates(values: impl Iterator<Item = Value>, path: Path<'_>, causes: &mut Vec<ValidationError>) {
    let mut seen: Vec<(String, usize)> = Vec::new();
    for (index, value) in values.enumerate() {
        let text = go::json(&value);
        match seen.iter_mut().find(|(known, _)| *known == text) {
            Some((_, times)) => {
                *times += 1;
                if *times == 2 {
                    causes.push(ValidationError::duplicate(Path::Index(&path, index).bracketed(), &value));
                }
            }
            None => seen.push((text, 1)),
        }
    }
}
