//! CEL in rules. Each line of `recorded/expressions.txt` is true, to kube-apiserver 1.36.3 as well.

#![expect(clippy::unwrap_used, reason = "a test that cannot read its cases has failed")]

use coppice_schema::Schema;
use serde_json::{Value, json};

/// A schema with one rule on a string that is `x`.
fn with_rule(rule: &Value) -> Result<Schema, String> {
    let x = json!({"type": "string", "maxLength": 10, "x-kubernetes-validations": [rule]});
    let other = json!({"type": "object", "properties": {"x": x, "n": {"type": "integer"}, "any": {"x-kubernetes-preserve-unknown-fields": true}}});
    Schema::compile(&other).map_err(|e| e.to_string())
}

fn answer(rule: &Value) -> Vec<String> {
    let schema = with_rule(rule).unwrap();
    schema.validate(&json!({"x": "x"}), None).iter().map(ToString::to_string).collect()
}

#[test]
fn expressions_mean_what_they_mean_to_the_api_server() {
    for rule in include_str!("recorded/expressions.txt").lines() {
        assert_eq!(answer(&json!({"rule": rule})), Vec::<String>::new(), "{rule}");
    }
}

#[test]
fn errors_have_the_text_of_the_api_server() {
    for (rule, error) in [
        ("[1][int(self.size())] == 1", "index out of bounds: 1"),
        ("{'a': 1}[self] == 1", "no such key: x"),
        ("1 / (self.size() - 1) == 1", "division by zero"),
        ("1 % (self.size() - 1) == 1", "modulus by zero"),
        ("9223372036854775807 + self.size() > 0", "integer overflow"),
        ("optional.none().value() == self", "optional.none() dereference"),
    ] {
        let expected = format!("x: Invalid value: \"string\": {error} evaluating rule: {rule}");
        assert_eq!(answer(&json!({"rule": rule})), [expected]);
    }
}

#[test]
fn what_cannot_be_evaluated_is_an_error_of_the_schema() {
    for (rule, problem) in [
        ("self.nonsense()", "unknown function nonsense of 1 arguments"),
        ("nonsense(self)", "unknown function nonsense of 1 arguments"),
        ("nonsense.of(self)", "unknown function nonsense.of of 1 arguments"),
        ("self.startsWith('a', 'b')", "unknown function startsWith of 3 arguments"),
        ("other == 1", "undeclared reference to 'other'"),
        ("self.matches('a(')", "invalid matches argument: unclosed group"),
        ("self.field == 1", "type 'string' does not support field selection"),
    ] {
        let error = with_rule(&json!({"rule": rule})).unwrap_err();
        let expected =
            format!("openAPIV3Schema.properties[x].x-kubernetes-validations[0].rule: {problem}: {rule}");
        assert_eq!(error, expected);
    }
    assert!(with_rule(&json!({"rule": "self =="})).is_err());
    let rule = |rule: &str| {
        let schema = json!({"type": "object", "properties": {"n": {"type": "integer"}, "any": {"x-kubernetes-preserve-unknown-fields": true}},
            "x-kubernetes-validations": [{"rule": rule}]});
        Schema::compile(&schema).map(drop).map_err(|e| e.to_string())
    };
    assert_eq!(rule("self.n > 1 && self.metadata.name != self.kind"), Ok(()));
    assert!(rule("self.m > 1").unwrap_err().contains("undefined field 'm'"));
    assert!(rule("has(self.metadata.labels)").unwrap_err().contains("undefined field 'labels'"));
}
