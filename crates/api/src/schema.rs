//! Schema fragments that several kinds share.

use schemars::{Schema, SchemaGenerator, json_schema};

/// The sentence for a bad instant.
const INSTANT: &str =
    "write an instant with its zone, such as 2026-12-01T18:00:00Z or 2026-12-01T18:00:00+01:00";
/// The sentence for a bad duration.
const DURATION: &str = "write a duration with a unit, largest unit first: 90s, 1h30m, 7d or 2w (a number without a unit is not accepted)";

/// An RFC 3339 instant with a zone. Not `format: date-time`: that lets a date without a zone pass.
pub(crate) fn instant(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "string",
        "maxLength": 40,
        "x-kubernetes-validations": [{
            "rule": "self.matches('^[0-9]{4}-(0[1-9]|1[0-2])-(0[1-9]|[12][0-9]|3[01])[Tt]([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9]([.][0-9]{1,9})?([Zz]|[+-]([01][0-9]|2[0-3]):[0-5][0-9])$')",
            "message": INSTANT
        }]
    })
}

/// An instant in status, where only the operator writes.
pub(crate) fn status_instant(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "type": "string", "format": "date-time" })
}

/// A duration; zero is allowed.
pub(crate) fn duration(_: &mut SchemaGenerator) -> Schema {
    duration_with(&[])
}

/// A duration for which zero would be dangerous.
pub(crate) fn positive_duration(_: &mut SchemaGenerator) -> Schema {
    duration_with(&[(
        "type(self) != string || self == '' || self.matches('[1-9]')",
        "zero is not accepted here: it would expire every namespace at once; write at least 1s",
    )])
}

/// `x-kubernetes-int-or-string` lets a bare number pass the type check, so that the rule can answer it with a
/// sentence.
fn duration_with(more: &[(&str, &str)]) -> Schema {
    let mut rules = vec![serde_json::json!({
        "rule": format!("type(self) == string && self != '' && self.matches('{}')", coppice_quantity::DURATION_PATTERN),
        "message": DURATION
    })];
    rules.extend(more.iter().map(|(rule, message)| serde_json::json!({"rule": rule, "message": message})));
    json_schema!({
        "x-kubernetes-int-or-string": true,
        "maxLength": 32,
        "x-kubernetes-validations": rules
    })
}

/// Conditions as the API conventions want them: a map by type, so that several writers can own one each.
pub(crate) fn conditions(generator: &mut SchemaGenerator) -> Schema {
    let item = generator.subschema_for::<k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition>();
    json_schema!({
        "type": "array",
        "items": item,
        "x-kubernetes-list-type": "map",
        "x-kubernetes-list-map-keys": ["type"]
    })
}
