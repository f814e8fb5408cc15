//! Fields that the schema does not know, and nulls where there can be none.

use serde_json::Value;

use crate::node::{Entries, Node};
use crate::path::Path;

/// What every whole resource has, and the API server checks.
pub(crate) const RESOURCE_FIELDS: [&str; 3] = ["apiVersion", "kind", "metadata"];

/// Drops unknown fields and says where they were, sorted.
pub(crate) fn unknown_fields(node: &Node, value: &mut Value) -> Vec<String> {
    let mut found = Vec::new();
    prune(Some(node), value, Path::Root, &mut found);
    found.sort_unstable();
    found
}

fn prune(node: Option<&Node>, value: &mut Value, path: Path<'_>, found: &mut Vec<String>) {
    if let Some(node) = node.filter(|n| n.preserve_unknown) {
        return below_preserved(node, value, path, found);
    }
    match value {
        Value::Object(fields) => fields.retain(|key, value| {
            let at = Path::Field(&path, key);
            let Some(node) = node else {
                found.push(at.dotted());
                return false;
            };
            if (node.root || node.embedded) && RESOURCE_FIELDS.contains(&key.as_str()) {
                return true;
            }
            match (node.properties.get(key), &node.entries) {
                (Some(child), _) => prune(Some(child), value, at, found),
                (None, Some(Entries::Of(child))) => prune(Some(child), value, at, found),
                (None, Some(Entries::Any)) => prune(None, value, at, found),
                (None, None) => {
                    found.push(at.dotted());
                    return false;
                }
            }
            true
        }),
        Value::Array(items) => {
            let node = node.and_then(|n| n.items.as_deref());
            for (index, item) in items.iter_mut().enumerate() {
                prune(node, item, Path::Index(&path, index), found);
            }
        }
        _ => {}
    }
}

/// Within what is preserved, the levels that have a schema are pruned again.
fn below_preserved(node: &Node, value: &mut Value, path: Path<'_>, found: &mut Vec<String>) {
    match value {
        Value::Object(fields) => {
            for (key, value) in fields {
                if (node.root || node.embedded) && RESOURCE_FIELDS.contains(&key.as_str()) {
                    continue;
                }
                let at = Path::Field(&path, key);
                match (node.properties.get(key), &node.entries) {
                    (Some(child), _) => prune(Some(child), value, at, found),
                    (None, Some(Entries::Of(child))) => prune(Some(child), value, at, found),
                    (None, Some(Entries::Any)) => prune(None, value, at, found),
                    (None, None) => {}
                }
            }
        }
        Value::Array(items) => {
            if let Some(node) = node.items.as_deref() {
                for (index, item) in items.iter_mut().enumerate() {
                    below_preserved(node, item, Path::Index(&path, index), found);
                }
            }
        }
        _ => {}
    }
}

/// Drops null fields whose schema neither admits null nor has a default; those with a default get it afterwards.
/// Nulls in lists stay, and are refused by the validation.
pub(crate) fn nulls(node: &Node, value: &mut Value) {
    match value {
        Value::Object(fields) => fields.retain(|key, value| {
            let Some(child) = node.child(key) else { return true };
            if value.is_null() && !child.nullable && child.default.is_none() {
                return false;
            }
            nulls(child, value);
            true
        }),
        Value::Array(items) => {
            if let Some(node) = &node.items {
                for item in items {
                    nulls(node, item);
                }
            }
        }
        _ => {}
    }
}
