//! What people write wrong in our kinds, and what the API server says to it: the same words without one.

#![expect(clippy::unwrap_used, reason = "a test that cannot read its cases has failed")]

use coppice_schema::{Schema, format_cause_list};
use serde::Deserialize;
use serde_json::{Value, json};

#[derive(Deserialize)]
struct Case {
    what: String,
    kind: String,
    name: Option<String>,
    spec: Value,
    says: Vec<String>,
}

fn schema(kind: &str) -> Schema {
    let crd = coppice_api::crds().into_iter().find(|crd| crd.spec.names.kind == kind).unwrap();
    let schema = crd.spec.versions[0].schema.clone().unwrap().open_api_v3_schema.unwrap();
    Schema::compile(&serde_json::to_value(schema).unwrap()).unwrap()
}

#[test]
fn mistakes_are_refused_in_the_api_servers_words() {
    let cases: Vec<Case> = serde_yaml::from_str(include_str!("refused.yaml")).unwrap();
    assert!(cases.len() > 40, "{}", cases.len());
    let (manager, config) = (schema("NamespaceManager"), schema("CoppiceConfig"));
    for case in cases {
        let (schema, name) = match case.kind.as_str() {
            "NamespaceManager" => (&manager, "m"),
            _ => (&config, "coppice"),
        };
        let mut object = json!({
            "apiVersion": "coppice.dev/v1alpha1", "kind": case.kind,
            "metadata": {"name": case.name.as_deref().unwrap_or(name)}, "spec": case.spec,
        });
        let unknown = schema.prune(&mut object);
        let mut says: Vec<String> = unknown.iter().map(|path| format!("unknown field \"{path}\"")).collect();
        if says.is_empty() {
            schema.default(&mut object);
            says.extend(schema.validate(&object, None).iter().map(ToString::to_string));
        }
        says.sort_unstable();
        assert_eq!(says, case.says, "{}", case.what);
    }
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
