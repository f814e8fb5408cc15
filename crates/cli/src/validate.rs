//! Objects of our kinds in files, checked as the API server would: by the very schema that it has.

use std::fmt::Write as _;
use std::sync::OnceLock;

use coppice_quantity::Duration;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceDefinition, JSONSchemaProps, JSONSchemaPropsOrArray, JSONSchemaPropsOrBool,
};
use serde_json::Value;

use crate::rules;

/// Something wrong in an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Problem {
    /// Where: `spec.policies[0].when.ttl`.
    pub(crate) path: String,
    /// What, and what to write instead.
    pub(crate) message: String,
}

impl std::fmt::Display for Problem {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: {}", self.path, self.message)
    }
}

/// Our definitions. Made once: deriving a schema takes milliseconds, and there may be thousands of objects to check.
fn crds() -> &'static [CustomResourceDefinition] {
    static CRDS: OnceLock<Vec<CustomResourceDefinition>> = OnceLock::new();
    CRDS.get_or_init(coppice_api::crds)
}

/// Everything that the API server would refuse in an object of one of our kinds.
pub(crate) fn check(object: &Value) -> Vec<Problem> {
    let kind = object["kind"].as_str().unwrap_or_default();
    let mut found = Vec::new();
    let crd = crds().iter().find(|crd| crd.spec.names.kind == kind);
    let schema = crd.and_then(|crd| crd.spec.versions.first()?.schema.as_ref()?.open_api_v3_schema.clone());
    let Some(mut schema) = schema else {
        found.push(Problem {
            path: "kind".to_owned(),
            message: format!("this version knows no kind {kind:?}"),
        });
        return found;
    };
    // The API server's own fields, which the schema leaves to it; status is written by the operator alone.
    let properties = schema.properties.get_or_insert_default();
    for own in ["apiVersion", "kind", "metadata", "status"] {
        properties.insert(own.to_owned(), anything());
    }
    check_metadata(&object["metadata"], &mut found);
    walk(&schema, object, "", &mut found);
    found
}

fn anything() -> JSONSchemaProps {
    JSONSchemaProps { x_kubernetes_preserve_unknown_fields: Some(true), ..JSONSchemaProps::default() }
}

fn check_metadata(metadata: &Value, found: &mut Vec<Problem>) {
    let mut say = |path: &str, message: String| found.push(Problem { path: path.to_owned(), message });
    let Some(fields) = metadata.as_object() else {
        return say("metadata", "required: write at least metadata.name".to_owned());
    };
    for key in fields.keys().filter(|key| !coppice_schema::METADATA.contains(&key.as_str())) {
        say(&format!("metadata.{key}"), "unknown field".to_owned());
    }
    match metadata["name"].as_str() {
        Some(name) if is_dns_subdomain(name) => {}
        Some(name) => say(
            "metadata.name",
            format!(
                "{name:?} is not a name: write lower-case letters, digits, '-' and '.', beginning and ending with a letter or digit"
            ),
        ),
        None => say("metadata.name", "required".to_owned()),
    }
    if let Some(namespace) = metadata["namespace"].as_str().filter(|n| !is_dns_label(n)) {
        let message = format!(
            "{namespace:?} is not a namespace's name: write lower-case letters, digits and '-', at most 63"
        );
        say("metadata.namespace", message);
    }
}

/// Whether it can be the name of a namespace.
pub(crate) fn is_dns_label(text: &str) -> bool {
    let inner = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-';
    matches!(text.len(), 1..=63) && text.bytes().all(inner) && !text.starts_with('-') && !text.ends_with('-')
}

/// Whether it can be the name of most objects.
pub(crate) fn is_dns_subdomain(text: &str) -> bool {
    let part = |p: &str| {
        is_dns_label(p) || p.len() > 63 && is_dns_label(&p[..63]) && is_dns_label(&p[p.len() - 1..])
    };
    text.len() <= 253 && text.split('.').all(part)
}

fn walk(schema: &JSONSchemaProps, value: &Value, path: &str, found: &mut Vec<Problem>) {
    let before = found.len();
    let mut say = |message: String| found.push(Problem { path: path.to_owned(), message });
    // Durations are the only fields that let a number pass, to answer it with a sentence.
    if schema.x_kubernetes_int_or_string == Some(true) {
        if let Err(message) = duration(value) {
            return say(message);
        }
    } else if let Some(message) = wrong_type(schema, value, path) {
        return say(message);
    }
    limits(schema, value, &mut say);
    match value {
        Value::Object(fields) => object(schema, fields, path, found),
        Value::Array(items) => {
            if let Some(JSONSchemaPropsOrArray::Schema(item)) = &schema.items {
                for (index, value) in items.iter().enumerate() {
                    walk(item, value, &format!("{path}[{index}]"), found);
                }
            }
        }
        _ => {}
    }
    // As the API server, which evaluates rules only on what has the right form.
    if found.len() > before {
        return;
    }
    for rule in schema.x_kubernetes_validations.iter().flatten() {
        if rules::holds(&rule.rule, value) == Some(false) {
            let message = rule.message.clone().unwrap_or_else(|| format!("must satisfy {}", rule.rule));
            found.push(Problem { path: path.to_owned(), message });
        }
    }
}

fn object(
    schema: &JSONSchemaProps,
    fields: &serde_json::Map<String, Value>,
    path: &str,
    found: &mut Vec<Problem>,
) {
    if schema.x_kubernetes_preserve_unknown_fields == Some(true) {
        return;
    }
    let below = |key: &str| if path.is_empty() { key.to_owned() } else { format!("{path}.{key}") };
    let properties = schema.properties.iter().flatten();
    for required in schema.required.iter().flatten() {
        if fields.get(required).is_none_or(Value::is_null) {
            found.push(Problem { path: below(required), message: "required".to_owned() });
        }
    }
    for (key, value) in fields {
        let known = schema.properties.as_ref().and_then(|p| p.get(key));
        match (known, &schema.additional_properties) {
            // A null counts as left out.
            _ if value.is_null() && known.is_some() => {}
            (Some(child), _) => walk(child, value, &below(key), found),
            (None, Some(JSONSchemaPropsOrBool::Schema(child))) => walk(child, value, &below(key), found),
            (None, _) => {
                let names: Vec<&str> = properties.clone().map(|(name, _)| name.as_str()).collect();
                let message = format!("unknown field; known here: {}", names.join(", "));
                found.push(Problem { path: below(key), message });
            }
        }
    }
}

fn duration(value: &Value) -> Result<(), String> {
    match value {
        Value::String(text) => text.parse::<Duration>().map(|_| ()).map_err(|e| e.to_string()),
        Value::Number(number) => {
            Err(number.to_string().parse::<Duration>().err().map_or_else(String::new, |e| e.to_string()))
        }
        _ => Err("write a duration with a unit: 90s, 1h30m, 7d or 2w".to_owned()),
    }
}

fn wrong_type(schema: &JSONSchemaProps, value: &Value, path: &str) -> Option<String> {
    let wanted = schema.type_.as_deref()?;
    let good = match wanted {
        "object" => value.is_object(),
        "array" => value.is_array(),
        "string" => value.is_string(),
        "boolean" => value.is_boolean(),
        "integer" => value.is_i64() || value.is_u64(),
        "number" => value.is_number(),
        _ => true,
    };
    if good {
        return None;
    }
    let field = path.rsplit('.').next().unwrap_or(path);
    let is_ttl = schema.properties.as_ref().is_some_and(|p| p.contains_key("after"));
    Some(match (wanted, value) {
        // The mistake that everyone makes once.
        ("object", Value::Number(number)) if is_ttl => {
            format!("{number} is not a ttl: write {field}: {{after: {number}s}}")
        }
        ("object", Value::String(text)) if is_ttl && text.parse::<Duration>().is_ok() => {
            format!("{text} is not a ttl: write {field}: {{after: {text}}}")
        }
        ("object", Value::Bool(_)) => format!("must be an object: write {field}: {{}} for its defaults"),
        ("string", Value::Number(n)) => format!("must be a string: write \"{n}\" in quotes"),
        ("string", Value::Bool(b)) => format!("must be a string: write \"{b}\" in quotes"),
        ("boolean", _) => "must be true or false".to_owned(),
        (wanted, value) => format!("must be {}, not {}", article(wanted), article(type_of(value))),
    })
}

fn type_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

fn article(kind: &str) -> String {
    match kind {
        "null" => "null".to_owned(),
        "array" => "a list".to_owned(),
        "integer" => "a whole number".to_owned(),
        "object" => "an object".to_owned(),
        other => format!("a {other}"),
    }
}

#[allow(
    clippy::cast_possible_wrap,
    clippy::cast_precision_loss,
    reason = "sizes of what a person has written"
)]
fn limits(schema: &JSONSchemaProps, value: &Value, say: &mut dyn FnMut(String)) {
    let (size, least, most, what) = match value {
        Value::String(text) => (text.chars().count(), schema.min_length, schema.max_length, "characters"),
        Value::Array(items) => (items.len(), schema.min_items, schema.max_items, "entries"),
        Value::Object(fields) => (fields.len(), schema.min_properties, schema.max_properties, "entries"),
        _ => (0, None, None, ""),
    };
    if let Some(least) = least.filter(|least| (size as i64) < *least) {
        say(format!("has {size} {what}; at least {least} are needed"));
    }
    if let Some(most) = most.filter(|most| (size as i64) > *most) {
        say(format!("has {size} {what}; at most {most} are accepted"));
    }
    if let Some(number) = value.as_f64() {
        if let Some(least) = schema.minimum.filter(|least| number < *least) {
            say(format!("{value} is too small; at least {least} is accepted"));
        }
        if let Some(most) = schema.maximum.filter(|most| number > *most) {
            say(format!("{value} is too large; at most {most} is accepted"));
        }
    }
    let allowed = schema.enum_.as_deref().unwrap_or_default();
    if !allowed.is_empty() && !allowed.iter().any(|a| a.0 == *value) {
        let list = allowed.iter().fold(String::new(), |mut list, a| {
            let separator = if list.is_empty() { "" } else { ", " };
            // Writing to a String cannot fail.
            let _ = write!(list, "{separator}{}", a.0.as_str().unwrap_or_default());
            list
        });
        say(format!("{value} is not known here; write one of {list}"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problems(spec: &str) -> Vec<String> {
        let spec: Value = serde_yaml::from_str(spec).unwrap();
        let object = serde_json::json!({
            "apiVersion": "coppice.dev/v1alpha1", "kind": "NamespaceManager", "metadata": {"name": "m", "namespace": "a"}, "spec": spec
        });
        check(&object).iter().map(ToString::to_string).collect()
    }

    fn policy(when: &str, then: &str) -> Vec<String> {
        problems(&format!("policies: [{{name: p, when: {when}, then: {then}}}]"))
    }

    #[test]
    fn good_managers_have_no_problems() {
        for (when, then) in [
            ("{ttl: {after: 40s}}", "{delete: {}}"),
            ("{ttl: {until: 2026-12-01T00:00:00Z}}", "{delete: {notice: 1h}}"),
            (
                "{podsSucceed: {selector: {matchLabels: {a: b}}, minPods: 0}}",
                "{scaleDown: {selectors: [{kind: Deployment}]}}",
            ),
            ("{podsSucceed: {}}", "{webhook: {url: 'http://a.b.svc/x', format: consol}}"),
        ] {
            assert_eq!(policy(when, then), Vec::<String>::new(), "{when} {then}");
        }
    }

    #[test]
    fn mistakes_are_named_with_place_and_remedy() {
        let cases = [
            (
                "{ttl: 300}",
                "{delete: {}}",
                "spec.policies[0].when.ttl: 300 is not a ttl: write ttl: {after: 300s}",
            ),
            (
                "{ttl: 5m}",
                "{delete: {}}",
                "spec.policies[0].when.ttl: 5m is not a ttl: write ttl: {after: 5m}",
            ),
            (
                "{ttl: {after: 300}}",
                "{delete: {}}",
                "when.ttl.after: \"300\" has no unit: write 300s for seconds",
            ),
            ("{ttl: {after: 0s}}", "{delete: {}}", "when.ttl.after: zero is not accepted here"),
            (
                "{ttl: {after: 5m, until: 2026-12-01T00:00:00Z}}",
                "{delete: {}}",
                "when.ttl: write exactly one of after",
            ),
            ("{ttl: {until: 2026-12-01}}", "{delete: {}}", "when.ttl.until: write an instant with its zone"),
            ("{tll: {after: 5m}}", "{delete: {}}", "when.tll: unknown field; known here: podsSucceed, ttl"),
            ("{ttl: {after: 5m}, podsSucceed: {}}", "{delete: {}}", "when: write exactly one condition"),
            (
                "{podsSucceed: {selector: {}}}",
                "{delete: {}}",
                "when.podsSucceed.selector: an empty selector is not accepted",
            ),
            (
                "{podsSucceed: {minPods: -1}}",
                "{delete: {}}",
                "minPods: -1 is too small; at least 0 is accepted",
            ),
            (
                "{podsSucceed: true}",
                "{delete: {}}",
                "must be an object: write podsSucceed: {} for its defaults",
            ),
            (
                "{podsSucceed: {selector: {matchLabels: {a: true}}}}",
                "{delete: {}}",
                "matchLabels.a: must be a string: write \"true\" in quotes",
            ),
            ("{podsSucceed: {}}", "{}", "then: write exactly one action"),
            (
                "{podsSucceed: {}}",
                "{scaleDown: {selectors: []}}",
                "selectors: selectors is empty and would select nothing",
            ),
            (
                "{podsSucceed: {}}",
                "{scaleDown: {selectors: [{kind: DaemonSet}]}}",
                "selectors[0]: kind must be Deployment",
            ),
            (
                "{podsSucceed: {}}",
                "{webhook: {url: ftp://a/b}}",
                "webhook.url: write an absolute http:// or https:// URL",
            ),
            ("{podsSucceed: {}}", "{webhook: {}}", "then.webhook.url: required"),
            (
                "{podsSucceed: {}}",
                "{webhook: {url: 'http://a/b', format: xml}}",
                "format: \"xml\" is not known here; write one of coppice, consol",
            ),
        ];
        for (when, then, expected) in cases {
            let found = policy(when, then);
            assert!(found.len() == 1 && found[0].contains(expected), "{when} {then}: {found:#?}");
        }
    }

    #[test]
    fn bounds_and_labels_are_checked() {
        for (when, then, expected) in [
            (
                "{podsSucceed: {selector: {matchLabels: {a: b-}}}}",
                "{delete: {}}",
                "selector.matchLabels.a: write a label's value",
            ),
            (
                "{podsSucceed: {selector: {matchLabels: {a/b/c: d}}}}",
                "{delete: {}}",
                "selector.matchLabels: write a label's key",
            ),
            (
                "{podsSucceed: {selector: {matchExpressions: [{key: A.b/c, operator: In, values: [d]}]}}}",
                "{delete: {}}",
                "matchExpressions[0].key: write a label's key",
            ),
            (
                "{podsSucceed: {selector: {matchExpressions: [{key: a.b/C_d, operator: In, values: [e, 'f g']}]}}}",
                "{delete: {}}",
                "values[1]: write a label's value",
            ),
            (
                "{ttl: {after: 36526d}}",
                "{delete: {}}",
                "when.ttl.after: \"36526d\" is too long: at most 36525d",
            ),
        ] {
            let found = policy(when, then);
            assert!(found.len() == 1 && found[0].contains(expected), "{when} {then}: {found:#?}");
        }
    }

    #[test]
    fn rules_on_the_whole_spec_hold_too() {
        let twice = "policies: [{name: p, when: {podsSucceed: {}}, then: {delete: {}}}, {name: p, when: {podsSucceed: {}}, then: {delete: {}}}]";
        assert!(problems(twice)[0].contains("spec.policies: two policies have the same name"));
        let values = vec!["v"; 64].join(", ");
        let expressions = vec![format!("{{key: k, operator: In, values: [{values}]}}"); 8].join(", ");
        let wide = format!(
            "policies: [{{name: p, when: {{podsSucceed: {{selector: {{matchExpressions: [{expressions}]}}}}}}, then: {{delete: {{}}}}}}]"
        );
        assert!(
            problems(&wide)[0]
                .contains("spec.policies: the selectors of all policies together have more than 512")
        );
        assert!(problems("policies: []")[0].contains("at least 1"));
        assert_eq!(problems("{}"), ["spec.policies: required"]);
        let hold = "{policies: [{name: p, when: {podsSucceed: {}}, then: {delete: {}}}], hold: {until: '2026-12-01T00:00:00'}}";
        assert!(problems(hold)[0].starts_with("spec.hold.until: write an instant with its zone"));
    }

    #[test]
    fn names_are_checked() {
        for (name, good) in
            [("a", true), ("a.b-c", true), ("A", false), ("-a", false), ("a..b", false), ("", false)]
        {
            assert_eq!(is_dns_subdomain(name), good, "{name}");
        }
    }
}
