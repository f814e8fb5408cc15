//! Default values.

use serde_json::Value;

use crate::node::{Entries, Node};

fn is_refused_null(value: &Value, node: &Node) -> bool {
    value.is_null() && !node.nullable
}

/// Puts defaults where a field is missing, or null without being nullable, at every level that is there.
pub(crate) fn apply(node: &Node, value: &mut Value) {
    match value {
        Value::Object(fields) => {
            for (name, child) in &node.properties {
                let Some(default) = &child.default else { continue };
                if fields.get(name).is_none_or(|value| is_refused_null(value, child)) {
                    fields.insert(name.clone(), default.clone());
                }
            }
            for (key, value) in fields {
                if let Some(child) = node.properties.get(key) {
                    apply(child, value);
                } else if let Some(Entries::Of(child)) = &node.entries {
                    item(child, value);
                }
            }
        }
        Value::Array(items) => {
            if let Some(node) = &node.items {
                for value in items {
                    item(node, value);
                }
            }
        }
        _ => {}
    }
}

fn item(node: &Node, value: &mut Value) {
    if is_refused_null(value, node) {
        *value = node.default.clone().unwrap_or_default();
    }
    apply(node, value);
}
