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

/// The schema of a kind as its CRD has it.
fn written(kind: &str) -> Value {
    let mut crds = coppice_api::crds().into_iter().chain(coppice_clusters_api::crds());
    let crd = crds.find(|crd| crd.spec.names.kind == kind).unwrap();
    let schema = crd.spec.versions[0].schema.clone().unwrap().open_api_v3_schema.unwrap();
    serde_json::to_value(schema).unwrap()
}

fn schema(kind: &str) -> Schema {
    Schema::compile(&written(kind)).unwrap()
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
    refused(include_str!("refused_trees.yaml"), 90);
}

#[test]
fn numbers_of_objects_are_whole_in_every_form_that_is() {
    let schema = schema("NamespaceTree");
    let causes = |pods: Value| {
        let spec =
            json!({"root": "shop", "quota": {"hard": {"cpu": "1.5", "memory": "0.5Gi", "pods": pods}}});
        let causes = schema.validate(&json!({"metadata": {"name": "m"}, "spec": spec}), None);
        causes.iter().map(ToString::to_string).collect::<Vec<_>>()
    };
    for whole in
        [json!(10), json!("10"), json!("+2"), json!("1.0"), json!("1.5k"), json!("1.5e3"), json!("2000m")]
    {
        assert_eq!(causes(whole.clone()), Vec::<String>::new(), "{whole}");
    }
    for part in ["1.5", ".5", "1.50", "500m", "1500m", "10m", "1m"] {
        let said = causes(json!(part)).join(" ");
        assert!(said.contains("objects are counted, and there is no part of one"), "{part}: {said}");
    }
}

#[test]
fn every_name_that_quotas_count_is_accepted() {
    let schema = schema("Subnamespace");
    let causes = |resource: &str| {
        let object = json!({"metadata": {"name": "m"}, "spec": {"quota": {"hard": {resource: 1}}}});
        schema.validate(&object, None).iter().map(ToString::to_string).collect::<Vec<_>>()
    };
    for good in [
        "cpu",
        "requests.ephemeral-storage",
        "limits.memory",
        "hugepages-2Mi",
        "requests.hugepages-1Gi",
        "pods",
        "secrets",
        "services.loadbalancers",
        "requests.storage",
        "count/pods",
        "count/services",
        "count/deployments.apps",
        "requests.nvidia.com/gpu",
        "gold.storageclass.storage.k8s.io/requests.storage",
        "gold.storageclass.storage.k8s.io/persistentvolumeclaims",
        "gpu.deviceclass.resource.k8s.io/devices",
        "requests.deviceclass.resource.kubernetes.io/gpu",
    ] {
        assert_eq!(causes(good), Vec::<String>::new(), "{good}");
    }
    for bad in [
        "cpus",
        "CPU",
        "storage",
        "limits.storage",
        "requests.pods",
        "hugepages-",
        "nvidia.com/gpu",
        "limits.nvidia.com/gpu",
    ] {
        let said = causes(bad).join(" ");
        assert!(said.contains("write the name of a resource that quotas count"), "{bad}: {said}");
    }
}

#[test]
fn nothing_of_a_scope_is_dropped_before_it_is_refused() {
    for kind in ["NamespaceTree", "Subnamespace"] {
        let schema = schema(kind);
        let scopes = json!({"scopes": ["BestEffort"], "scopeSelector": {"matchExpressions": [{"scopeName": "Terminating"}]}});
        let mut object = json!({"spec": {"quota": scopes}});
        let written = object.clone();
        assert_eq!(schema.prune(&mut object), Vec::<String>::new(), "{kind}");
        assert_eq!(object, written);
    }
}

const ACCESS: &str = include_str!("refused_access.yaml");

#[test]
fn mistakes_in_the_kinds_of_access_are_refused_with_what_to_write_instead() {
    refused(ACCESS, 170);
}

/// `spec.allow[0].rights` as `spec.allow[].rights`.
fn without_indexes(place: &str) -> String {
    let mut inside = false;
    let keep = |c: &char| {
        let kept = !inside || *c == ']';
        inside = if inside { *c != ']' } else { *c == '[' };
        kept
    };
    place.chars().filter(keep).collect()
}

/// The places that the answers to cases name, each with its sentence.
fn answers(cases: &[Case], kind: &str) -> Vec<(String, String)> {
    let says = cases.iter().filter(|case| case.kind == kind).flat_map(|case| &case.says);
    let parts = says.filter_map(|said| said.split_once(": "));
    parts.map(|(place, sentence)| (without_indexes(place), sentence.to_owned())).collect()
}

/// The fields and the rules below a place that no answer is about. What is inside of a field counts for it.
fn without_a_case(schema: &Value, place: &str, answers: &[(String, String)], found: &mut Vec<String>) {
    for rule in schema["x-kubernetes-validations"].as_array().into_iter().flatten() {
        let message = rule["message"].as_str().unwrap();
        if !answers.iter().any(|(answered, sentence)| answered == place && sentence.ends_with(message)) {
            found.push(format!("{place}: {message}"));
        }
    }
    for (name, field) in schema["properties"].as_object().into_iter().flatten() {
        let place = format!("{place}.{name}");
        let is_inside = |rest: &str| rest.is_empty() || rest.starts_with(['.', '[']);
        if !answers.iter().any(|(answered, _)| answered.strip_prefix(&place).is_some_and(is_inside)) {
            found.push(place.clone());
        }
        without_a_case(field, &place, answers, found);
    }
    for entries in ["items", "additionalProperties"] {
        if schema[entries].is_object() {
            without_a_case(&schema[entries], &format!("{place}[]"), answers, found);
        }
    }
}

#[test]
fn every_field_and_every_rule_of_the_kinds_of_access_has_a_case() {
    let cases: Vec<Case> = serde_yaml::from_str(ACCESS).unwrap();
    for kind in ["ClusterAccess", "ClusterProvider", "ManagedCluster"] {
        let mut found = Vec::new();
        without_a_case(&written(kind)["properties"]["spec"], "spec", &answers(&cases, kind), &mut found);
        assert_eq!(found, Vec::<String>::new(), "{kind}");
    }
    // A field that no case is about is found.
    let mut found = Vec::new();
    without_a_case(&written("ManagedCluster")["properties"]["spec"], "spec", &[], &mut found);
    for field in ["spec.deletion.forceAfter", "spec.workers[]: write a min that is not larger than max"] {
        assert!(found.iter().any(|place| place == field), "{field}: {found:#?}");
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
