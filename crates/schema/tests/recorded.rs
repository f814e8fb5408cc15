//! The answers that a kube-apiserver 1.36.3 has given, word by word: to objects of a schema that has everything, made by
//! `coppice_schema::mutate` of `recorded/valid.json`, and sent with `dryRun=All`.
//!
//! A case in `recorded/answers.json` is what was changed of the valid object (`set`, `remove`: JSON pointers) and the
//! causes that were answered, sorted, since the API server looks at properties in no order. For updates the old object
//! is given in the same way; it was written while the schema had no checks.

#![expect(clippy::unwrap_used, reason = "a test that cannot read its cases has failed")]

use coppice_schema::Schema;
use serde_json::Value;

fn load(text: &str) -> Value {
    serde_json::from_str(text).unwrap()
}

fn schema() -> Schema {
    Schema::compile(&load(include_str!("recorded/schema.json"))).unwrap()
}

/// An object with the changes of a case.
fn changed(object: &Value, changes: &Value) -> Value {
    let mut object = object.clone();
    let unescape = |key: &str| key.replace("~1", "/").replace("~0", "~");
    for (pointer, value) in changes["set"].as_object().into_iter().flatten() {
        let (parent, last) = pointer.rsplit_once('/').unwrap();
        match object.pointer_mut(parent).unwrap() {
            Value::Array(items) => items[last.parse::<usize>().unwrap()] = value.clone(),
            other => other[unescape(last)] = value.clone(),
        }
    }
    for pointer in changes["remove"].as_array().into_iter().flatten() {
        let (parent, last) = pointer.as_str().unwrap().rsplit_once('/').unwrap();
        object.pointer_mut(parent).unwrap().as_object_mut().unwrap().remove(&unescape(last));
    }
    object
}

/// What we say, as it is recorded.
fn causes(schema: &Schema, new: &Value, old: Option<&Value>) -> Vec<String> {
    let mut new = new.clone();
    schema.prune(&mut new);
    schema.default(&mut new);
    let mut causes: Vec<String> =
        schema.validate(&new, old).iter().map(|cause| format!("{} {cause}", cause.reason)).collect();
    causes.sort_unstable();
    causes
}

fn compare(schema: &Schema, from: &Value, old: Option<&Value>, cases: &Value) -> usize {
    let cases = cases.as_array().unwrap();
    for case in cases {
        let expected: Vec<&str> =
            case["causes"].as_array().unwrap().iter().map(|c| c.as_str().unwrap()).collect();
        let (set, removed) = (&case["set"], &case["remove"]);
        assert_eq!(causes(schema, &changed(from, case), old), expected, "set {set} removed {removed}");
    }
    cases.len()
}

#[test]
fn what_is_created_is_answered_as_the_api_server_does() {
    let answers = load(include_str!("recorded/answers.json"));
    let valid = load(include_str!("recorded/valid.json"));
    assert!(compare(&schema(), &valid, None, &answers["creates"]) > 200);
}

#[test]
fn what_is_updated_is_answered_as_the_api_server_does() {
    let answers = load(include_str!("recorded/answers.json"));
    let valid = load(include_str!("recorded/valid.json"));
    let mut seen = 0;
    for group in answers["updates"].as_array().unwrap() {
        let old = changed(&valid, &group["old"]);
        seen += compare(&schema(), &old, Some(&old), &group["cases"]);
    }
    assert!(seen > 150, "{seen}");
}
