//! Which old value a new one continues, and whether it has changed: what has not is forgiven most mistakes, so that a
//! schema may become stricter without every object that is there becoming unchangeable.

use std::fmt::Write as _;

use serde_json::{Map, Value};

use crate::go;
use crate::node::{ListType, Node};

/// The old item that a new one continues: known by its keys in a list that is a map, unknown in every other.
pub(crate) fn old_item<'v>(node: &Node, item: &Value, old: Option<&'v Value>) -> Option<&'v Value> {
    let ListType::Map(keys) = &node.list else { return None };
    let wanted = key_of(keys, item.as_object()?)?;
    let is_it = |old: &&Value| old.as_object().and_then(|old| key_of(keys, old)).as_ref() == Some(&wanted);
    old?.as_array()?.iter().find(is_it)
}

/// An item's keys in one text. Only scalars are keys.
fn key_of(keys: &[String], item: &Map<String, Value>) -> Option<String> {
    let mut text = String::new();
    for key in keys {
        match item.get(key)? {
            Value::Null | Value::Array(_) | Value::Object(_) => return None,
            // Writing to a String cannot fail. Quotes and dots distinguish the types.
            Value::Number(n) if !n.is_i64() => drop(write!(text, "\0{:?}", n.as_f64())),
            scalar => drop(write!(text, "\0{}", go::value(scalar))),
        }
    }
    Some(text)
}

/// Whether nothing has changed, as far as the schema lets the API server know: fields that it does not know are never
/// the same, lists that are maps are so in any order.
pub(crate) fn same(node: &Node, new: &Value, old: &Value) -> bool {
    match (new, old) {
        (Value::Array(new), Value::Array(older)) => {
            new.len() == older.len()
                && match (&node.list, &node.items) {
                    (ListType::Map(_), Some(child)) => new.iter().all(|item| {
                        old_item(node, item, Some(old)).is_some_and(|old| same(child, item, old))
                    }),
                    _ => new == older,
                }
        }
        (Value::Object(new), Value::Object(old)) => {
            let is_same = |(key, new): (&String, &Value)| {
                old.get(key).zip(node.child(key)).is_some_and(|(old, child)| same(child, new, old))
            };
            new.len() == old.len() && new.iter().all(is_same)
        }
        (new, old) => new == old,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Schema;
    use serde_json::json;

    #[test]
    fn lists_that_are_maps_are_the_same_in_any_order() {
        let schema = Schema::compile(&json!({"type": "object", "properties": {"l": {
            "type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["k"],
            "items": {"type": "object", "required": ["k"], "properties": {"k": {"type": "string"}, "v": {"type": "integer"}}}
        }, "a": {"type": "array", "items": {"type": "integer"}}}}))
        .unwrap();
        let (list, plain) = (schema.root.child("l").unwrap(), schema.root.child("a").unwrap());
        let old = json!([{"k": "a", "v": 1}, {"k": "b", "v": 2}]);
        assert!(same(list, &json!([{"k": "b", "v": 2}, {"k": "a", "v": 1}]), &old));
        assert!(!same(list, &json!([{"k": "b", "v": 2}, {"k": "a", "v": 2}]), &old));
        assert!(!same(list, &json!([{"k": "b", "v": 2}]), &old));
        assert_eq!(old_item(list, &json!({"k": "b"}), Some(&old)), Some(&old[1]));
        assert_eq!(old_item(list, &json!({"v": 2}), Some(&old)), None);
        assert!(same(plain, &json!([1, 2]), &json!([1, 2])));
        assert!(!same(plain, &json!([2, 1]), &json!([1, 2])));
    }
}
