//! What people write wrong in our kinds, and what the API server says to it: the same words without one.

#![expect(clippy::unwrap_used, reason = "a test that cannot read its cases has failed")]

use std::collections::BTreeMap;

use coppice_schema::{Schema, format_cause_list};
use serde::Deserialize;
use serde_json::{Value, json};

#[derive(Deserialize)]
struct Case {
    what: String,
    kind: String,
    name: Option<String>,
    /// What was stored before, where it is an update.
    old: Option<Value>,
    spec: Value,
    says: Vec<String>,
}

fn schema(kind: &str) -> Schema {
    let crd = coppice_api::crds().into_iter().find(|crd| crd.spec.names.kind == kind).unwrap();
    let schema = crd.spec.versions[0].schema.clone().unwrap().open_api_v3_schema.unwrap();
    Schema::compile(&serde_json::to_value(schema).unwrap()).unwrap()
}

/// All that is said of an object, sorted.
fn said(schema: &Schema, case: &Case) -> Vec<String> {
    let name = if case.kind == "CoppiceConfig" { "coppice" } else { "m" };
    let name = case.name.as_deref().unwrap_or(name);
    let object = |spec: &Value| json!({"apiVersion": "coppice.dev/v1alpha1", "kind": case.kind, "metadata": {"name": name}, "spec": spec});
    let old = case.old.as_ref().map(|spec| {
        let mut old = object(spec);
        schema.default(&mut old);
        old
    });
    let mut object = object(&case.spec);
    let unknown = schema.prune(&mut object);
    let mut says: Vec<String> = unknown.iter().map(|path| format!("unknown field \"{path}\"")).collect();
    if says.is_empty() {
        schema.default(&mut object);
        says.extend(schema.validate(&object, old.as_ref()).iter().map(ToString::to_string));
    }
    says.sort_unstable();
    says
}

#[track_caller]
fn refused(cases: &str, at_least: usize) {
    let cases: Vec<Case> = serde_yaml::from_str(cases).unwrap();
    assert!(cases.len() >= at_least, "{}", cases.len());
    let mut schemas = BTreeMap::new();
    for case in cases {
        let schema = schemas.entry(case.kind.clone()).or_insert_with(|| schema(&case.kind));
        assert_eq!(said(schema, &case), case.says, "{}", case.what);
    }
}

#[test]
fn mistakes_are_refused_in_the_api_servers_words() {
    refused(include_str!("refused.yaml"), 40);
}

#[test]
fn mistakes_in_the_kinds_of_trees_are_refused_with_what_to_write_instead() {
    refused(include_str!("refused_trees.yaml"), 60);
}

#[test]
fn several_causes_are_one_sentence_in_brackets() {
    let object = json!({"spec": {"policies": [], "rearm": 0}});
    assert_eq!(
        format_cause_list(&schema("NamespaceManager").validate(&object, None)),
        "[spec.policies: Invalid value: 0: spec.policies in body should have at least 1 items, \
         spec.rearm: Invalid value: 0: spec.rearm in body should be greater than or equal to 1]"
    );
}

#[test]
fn a_status_is_checked_alone() {
    let schema = schema("NamespaceManager");
    let old = json!({"spec": {"policies": []}});
    let mut new = old.clone();
    new["status"] = json!({"conditions": "none"});
    let causes = schema.validate_status(&new, &old);
    assert!(causes[0].field == "status.conditions", "{causes:?}");
    assert!(causes.iter().all(|cause| !cause.field.starts_with("spec")), "{causes:?}");
    new["status"] = json!({"observedGeneration": 1});
    assert!(schema.validate_status(&new, &new).is_empty());
}
