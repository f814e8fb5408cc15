//! Every text, key, list and map in our kinds has a bound: what one object can hold, every operator keeps in memory. And every list
//! of a status says how it is merged.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    JSONSchemaProps, JSONSchemaPropsOrArray, JSONSchemaPropsOrBool,
};

use crate::support::schemas;

/// Whether it is refused whatever it is: none is ever stored.
fn is_refused(schema: &JSONSchemaProps) -> bool {
    schema.x_kubernetes_validations.iter().flatten().any(|rule| rule.rule == "false")
}

fn walk(schema: &JSONSchemaProps, path: &str, unbounded: &mut Vec<String>, seen: &mut usize) {
    if is_refused(schema) {
        return;
    }
    let mut miss = |what: &str| unbounded.push(format!("{path}: {what}"));
    *seen += 1;
    let text = schema.x_kubernetes_int_or_string == Some(true) || schema.type_.as_deref() == Some("string");
    if text && schema.max_length.is_none() && schema.enum_.is_none() {
        miss("a text without maxLength");
    }
    if schema.type_.as_deref() == Some("array") && schema.max_items.is_none() {
        miss("a list without maxItems");
    }
    if schema.x_kubernetes_preserve_unknown_fields == Some(true) {
        miss("anything at all");
    }
    if let Some(JSONSchemaPropsOrBool::Schema(child)) = &schema.additional_properties {
        if schema.max_properties.is_none() {
            miss("a map without maxProperties");
        }
        let bounds_keys = |rule: &str| rule.starts_with("self.all(key, ") && rule.contains("size(key) <= ");
        if !schema.x_kubernetes_validations.iter().flatten().any(|v| bounds_keys(&v.rule)) {
            miss("a map without a rule on the length of its keys");
        }
        walk(child, &format!("{path}[*]"), unbounded, seen);
    }
    match &schema.items {
        Some(JSONSchemaPropsOrArray::Schema(item)) => walk(item, &format!("{path}[]"), unbounded, seen),
        Some(JSONSchemaPropsOrArray::Schemas(_)) => unbounded.push(format!("{path}: a tuple")),
        None => {}
    }
    for (name, child) in schema.properties.iter().flatten() {
        walk(child, &format!("{path}.{name}"), unbounded, seen);
    }
}

#[test]
fn every_text_key_list_and_map_has_a_bound() {
    let (mut unbounded, mut seen) = (Vec::new(), 0);
    for (kind, schema) in schemas() {
        walk(&schema, &kind, &mut unbounded, &mut seen);
    }
    assert!(unbounded.is_empty(), "{}", unbounded.join("\n"));
    assert!(seen > 150, "{seen}");
}

/// The lists in a schema, each with its path.
fn lists<'a>(schema: &'a JSONSchemaProps, path: &str, found: &mut Vec<(String, &'a JSONSchemaProps)>) {
    if schema.type_.as_deref() == Some("array") {
        found.push((path.to_owned(), schema));
    }
    if let Some(JSONSchemaPropsOrArray::Schema(item)) = &schema.items {
        lists(item, &format!("{path}[]"), found);
    }
    if let Some(JSONSchemaPropsOrBool::Schema(child)) = &schema.additional_properties {
        lists(child, &format!("{path}[*]"), found);
    }
    for (name, child) in schema.properties.iter().flatten() {
        lists(child, &format!("{path}.{name}"), found);
    }
}

/// How server-side apply merges what several writers have.
#[test]
fn every_list_of_a_status_has_a_list_type() {
    let schemas = schemas();
    let mut found = Vec::new();
    for (kind, schema) in &schemas {
        if let Some(status) = schema.properties.as_ref().and_then(|fields| fields.get("status")) {
            lists(status, &format!("{kind}.status"), &mut found);
        }
    }
    let without = found.iter().filter(|(_, list)| list.x_kubernetes_list_type.is_none());
    let without: Vec<_> = without.map(|(path, _)| path.as_str()).collect();
    assert!(without.is_empty(), "{}", without.join("\n"));
    assert!(found.len() > 20, "{}", found.len());
}

#[test]
fn every_atomic_list_says_why_it_is_atomic() {
    let schemas = schemas();
    let mut found = Vec::new();
    for (kind, schema) in &schemas {
        lists(schema, kind, &mut found);
    }
    found.retain(|(_, list)| list.x_kubernetes_list_type.as_deref() == Some("atomic"));
    let says = |list: &JSONSchemaProps| {
        let text = list.description.as_deref().unwrap_or_default();
        text.contains("Atomic:") || text.contains("Atomic,")
    };
    let silent: Vec<_> =
        found.iter().filter(|(_, list)| !says(list)).map(|(path, _)| path.as_str()).collect();
    assert!(silent.is_empty(), "write \"Atomic, since ...\":\n{}", silent.join("\n"));
    assert!(found.len() > 20, "{}", found.len());
}
