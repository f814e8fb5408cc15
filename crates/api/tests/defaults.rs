//! Every optional field of a spec says what holds without it, and why.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    JSONSchemaProps, JSONSchemaPropsOrArray, JSONSchemaPropsOrBool,
};

use crate::support::schemas;

/// Selectors are those of Kubernetes.
const SELECTORS: [&str; 2] = ["matchLabels", "matchExpressions"];
/// Only Coppice writes it.
const RECORDS: [&str; 1] = ["DeletedNamespace"];

/// Of the fields of a union exactly one is written.
fn is_union(schema: &JSONSchemaProps) -> bool {
    let says = |message: &Option<String>| message.as_ref().is_some_and(|text| text.contains("exactly one"));
    schema.x_kubernetes_validations.iter().flatten().any(|rule| says(&rule.message))
}

/// Whether the default has its reason: a clause that follows it. What is in code is none.
fn has_a_reason(text: &str) -> bool {
    let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
    let Some((_, default)) = text.split_once("Default: ") else { return false };
    let sentence = default.split_once(". ").map_or(default, |(sentence, _)| sentence);
    sentence.split('`').step_by(2).any(|prose| prose.contains(", ") || prose.contains(": "))
}

fn walk(schema: &JSONSchemaProps, path: &str, silent: &mut Vec<String>, seen: &mut usize) {
    let required = |name: &String| schema.required.iter().flatten().any(|required| required == name);
    for (name, child) in schema.properties.iter().flatten() {
        if SELECTORS.contains(&name.as_str()) {
            continue;
        }
        let path = format!("{path}.{name}");
        if !required(name) && !is_union(schema) {
            *seen += 1;
            if !child.description.as_ref().is_some_and(|text| has_a_reason(text)) {
                silent.push(path.clone());
            }
        }
        walk(child, &path, silent, seen);
    }
    if let Some(JSONSchemaPropsOrArray::Schema(item)) = &schema.items {
        walk(item, &format!("{path}[]"), silent, seen);
    }
    if let Some(JSONSchemaPropsOrBool::Schema(child)) = &schema.additional_properties {
        walk(child, &format!("{path}[*]"), silent, seen);
    }
}

#[test]
fn every_optional_field_of_a_spec_says_its_default_and_why() {
    let (mut silent, mut seen) = (Vec::new(), 0);
    for (kind, schema) in schemas().into_iter().filter(|(kind, _)| !RECORDS.contains(&kind.as_str())) {
        let Some(spec) = schema.properties.as_ref().and_then(|fields| fields.get("spec")) else { continue };
        walk(spec, &kind, &mut silent, &mut seen);
    }
    assert!(silent.is_empty(), "write \"Default: ..., since ...\":\n{}", silent.join("\n"));
    assert!(seen > 80, "{seen}");
}

#[test]
fn a_default_with_nothing_more_has_no_reason() {
    for bare in [
        "Names. Default: any.",
        "Default: none",
        "Default: `[24h, 1h]`.",
        "Default: `a: b`. It is used, too.",
    ] {
        assert!(!has_a_reason(bare), "{bare}");
    }
    for said in [
        "Default: none, since nobody\nasked for it. More.",
        "Default: `08:00`, when work begins.",
        "Default: none: it decides.",
    ] {
        assert!(has_a_reason(said), "{said}");
    }
}
