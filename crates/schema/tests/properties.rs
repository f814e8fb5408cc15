//! What holds for every object, and for the examples.

#![expect(clippy::unwrap_used, reason = "a test that cannot read its cases has failed")]

use std::hash::{DefaultHasher, Hash as _, Hasher as _};

use coppice_schema::Schema;
use coppice_schema::mutate::{mutations, pick};
use proptest::prelude::*;
use serde_json::{Map, Value, json};

/// Numbers that look random, and are the same for the same seed.
fn numbers(seed: u64) -> impl FnMut() -> u64 {
    let mut count = 0_u64;
    move || {
        count += 1;
        let mut hasher = DefaultHasher::new();
        (seed, count).hash(&mut hasher);
        hasher.finish()
    }
}

fn raw(kind: &str) -> Value {
    let crd = coppice_api::crds().into_iter().find(|crd| crd.spec.names.kind == kind).unwrap();
    let schema = crd.spec.versions[0].schema.clone().unwrap().open_api_v3_schema.unwrap();
    serde_json::to_value(schema).unwrap()
}

/// Every schema that there is: ours, and one that has everything.
fn schemas() -> Vec<(Schema, Value)> {
    let everything = serde_json::from_str(include_str!("recorded/schema.json")).unwrap();
    let valid = serde_json::from_str(include_str!("recorded/valid.json")).unwrap();
    let manager = json!({"apiVersion": "coppice.dev/v1alpha1", "kind": "NamespaceManager", "metadata": {"name": "m"},
        "spec": {"policies": [{"name": "p", "when": {"podsSucceed": {}}, "then": {"webhook": {"url": "http://a.b.svc/"}}}]}});
    let config = json!({"apiVersion": "coppice.dev/v1alpha1", "kind": "CoppiceConfig", "metadata": {"name": "coppice"}, "spec": {}});
    [(everything, valid), (raw("NamespaceManager"), manager), (raw("CoppiceConfig"), config)]
        .into_iter()
        .map(|(schema, valid)| (Schema::compile(&schema).unwrap(), valid))
        .collect()
}

/// Any JSON, with names that the schemas know among those that they do not.
fn anything() -> impl Strategy<Value = Value> {
    let names = prop::sample::select(vec![
        "spec",
        "status",
        "metadata",
        "kind",
        "policies",
        "when",
        "then",
        "ttl",
        "after",
        "delete",
        "selector",
        "matchLabels",
        "governor",
        "name",
        "str",
        "cel",
        "x",
        "l",
        "m",
        "map",
        "k",
        "arr",
        "free",
        "res",
        "deep",
        "other",
    ]);
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<u64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        "\\PC{0,6}".prop_map(Value::from),
        ".{0,3}".prop_map(Value::from),
    ];
    leaf.prop_recursive(6, 64, 5, move |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::vec((names.clone(), inner), 0..5).prop_map(|fields| Value::Object(
                fields.into_iter().map(|(k, v)| (k.to_owned(), v)).collect::<Map<_, _>>()
            )),
        ]
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn nothing_makes_it_panic_and_pruning_and_defaults_change_nothing_twice(object in anything(), old in anything()) {
        for (schema, _) in schemas_once() {
            let mut pruned = object.clone();
            schema.prune(&mut pruned);
            let mut again = pruned.clone();
            prop_assert!(schema.prune(&mut again).is_empty());
            prop_assert_eq!(&again, &pruned);
            schema.default(&mut pruned);
            let mut again = pruned.clone();
            schema.default(&mut again);
            prop_assert_eq!(&again, &pruned);
            schema.validate(&object, None);
            schema.validate(&pruned, Some(&old));
            schema.validate_status(&pruned, &old);
        }
    }
}

fn schemas_once() -> &'static [(Schema, Value)] {
    static SCHEMAS: std::sync::OnceLock<Vec<(Schema, Value)>> = std::sync::OnceLock::new();
    SCHEMAS.get_or_init(schemas)
}

#[test]
fn mutations_of_what_is_valid_are_pruned_to_what_is_known() {
    for kind in ["NamespaceManager", "CoppiceConfig"] {
        let raw = raw(kind);
        let schema = Schema::compile(&raw).unwrap();
        let (_, valid) = schemas_once().iter().find(|(_, valid)| valid["kind"] == kind).unwrap();
        let mut refused = 0;
        for mutation in mutations(&raw, valid).into_iter().chain(pick(&raw, valid, numbers(7), 200)) {
            let mut object = mutation.value;
            schema.prune(&mut object);
            schema.default(&mut object);
            let mut again = object.clone();
            assert_eq!(schema.prune(&mut again), Vec::<String>::new(), "{}", mutation.path);
            schema.default(&mut again);
            assert_eq!(again, object, "{}", mutation.path);
            refused += usize::from(!schema.validate(&object, None).is_empty());
        }
        assert!(refused > 50, "{refused}");
    }
}

#[test]
fn the_examples_are_valid() {
    let folders = ["../../examples", "../../examples/ci"];
    let mut seen = 0;
    for entry in folders.into_iter().flat_map(|folder| std::fs::read_dir(folder).unwrap()) {
        let path = entry.unwrap().path();
        if path.extension().is_none_or(|e| e != "yaml") {
            continue;
        }
        let text = std::fs::read_to_string(&path).unwrap();
        for document in serde_yaml::Deserializer::from_str(&text) {
            let mut object = <Value as serde::Deserialize>::deserialize(document).unwrap();
            if object["apiVersion"] != "coppice.dev/v1alpha1" {
                continue;
            }
            seen += 1;
            let schema = Schema::compile(&raw(object["kind"].as_str().unwrap())).unwrap();
            assert_eq!(schema.prune(&mut object), Vec::<String>::new(), "{}", path.display());
            schema.default(&mut object);
            assert_eq!(schema.validate(&object, None), [], "{}", path.display());
        }
    }
    assert!(seen > 10, "{seen}");
}

#[test]
fn what_was_wrong_before_is_forgiven_while_it_does_not_change() {
    for kind in ["NamespaceManager", "CoppiceConfig"] {
        let raw = raw(kind);
        let schema = Schema::compile(&raw).unwrap();
        let (_, valid) = schemas_once().iter().find(|(_, valid)| valid["kind"] == kind).unwrap();
        let mut forgiven = 0;
        for mutation in pick(&raw, valid, numbers(11), 300) {
            let mut object = mutation.value;
            schema.prune(&mut object);
            schema.default(&mut object);
            let mut changed = object.clone();
            changed["metadata"]["labels"] = json!({"a": "b"});
            // Of the object as a whole it is not known what has not changed, and a rule that fails with an error is not
            // forgiven. An item of a map without the fields that are its key cannot be found in what was before.
            let left = schema.validate(&changed, Some(&object));
            let without_key = |c: &coppice_schema::ValidationError| {
                let item = c.field.strip_prefix("spec.channels[");
                item.is_some_and(|item| !item.contains("].") || item.ends_with("].name"))
            };
            let left = left.iter().filter(|c| {
                c.field.contains('.')
                    && !c.message.contains("evaluating rule")
                    && !c.message.contains("overload")
                    && !without_key(c)
            });
            assert_eq!(
                left.collect::<Vec<_>>(),
                Vec::<&coppice_schema::ValidationError>::new(),
                "{}",
                mutation.path
            );
            forgiven += usize::from(!schema.validate(&object, None).is_empty());
        }
        assert!(forgiven > 50, "{forgiven}");
    }
}
