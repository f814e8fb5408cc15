//! The rules of our schemas that the API server evaluates as CEL, for files that no API server has seen.
//!
//! A rule is found by its text, so that path and message come from the schema itself; a test fails when a schema has a
//! rule that is not here.

use coppice_lifecycle::destination::{AllowList, Destination, UrlError};
use serde_json::Value;

/// Whether a rule holds; none if it is not known here.
pub(crate) fn holds(rule: &str, value: &Value) -> Option<bool> {
    let has = |key: &str| value.get(key).is_some_and(|v| !v.is_null());
    let one_of = |keys: &[&str]| keys.iter().filter(|key| has(key)).count() == 1;
    let not_empty = |key: &str| !has(key) || size(&value[key]) > 0;
    let operator = value.get("operator").and_then(Value::as_str).unwrap_or_default();
    Some(match rule {
        "self.metadata.name == 'coppice'" => {
            value.pointer("/metadata/name").and_then(Value::as_str) == Some(coppice_api::names::CONFIG_NAME)
        }
        "self.all(p, self.exists_one(q, q.name == p.name))" => names_differ(value),
        "[has(self.ttl), has(self.podsSucceed)].filter(x, x).size() == 1" => one_of(&["ttl", "podsSucceed"]),
        "has(self.after) != has(self.until)" => one_of(&["after", "until"]),
        "[has(self.delete), has(self.scaleDown), has(self.webhook)].filter(x, x).size() == 1" => {
            one_of(&["delete", "scaleDown", "webhook"])
        }
        "size(self) > 0" => size(value) > 0,
        "has(self.apiVersion) || self.kind in ['Deployment', 'StatefulSet', 'ReplicaSet', 'CronJob']" => {
            let builtin = ["Deployment", "StatefulSet", "ReplicaSet", "CronJob"];
            has("apiVersion") || value["kind"].as_str().is_none_or(|kind| builtin.contains(&kind))
        }
        "has(self.matchLabels) || has(self.matchExpressions)" => {
            has("matchLabels") || has("matchExpressions")
        }
        "!has(self.matchLabels) || size(self.matchLabels) > 0" => not_empty("matchLabels"),
        "!has(self.matchExpressions) || size(self.matchExpressions) > 0" => not_empty("matchExpressions"),
        "!(self.operator in ['In', 'NotIn']) || (has(self.values) && size(self.values) > 0)" => {
            !["In", "NotIn"].contains(&operator) || size(&value["values"]) > 0
        }
        "!(self.operator in ['Exists', 'DoesNotExist']) || !has(self.values) || size(self.values) == 0" => {
            !["Exists", "DoesNotExist"].contains(&operator) || size(&value["values"]) == 0
        }
        "isURL(self) && url(self).getScheme() in ['http', 'https'] && url(self).getHostname() != ''" => {
            value.as_str().is_none_or(is_url)
        }
        "self.matches('^([1-9][0-9]?|100)%$')" => {
            value.as_str().is_none_or(|text| text.parse::<coppice_api::config::Percent>().is_ok())
        }
        "self.all(name, name.matches('^[a-z0-9*-]+$'))" => {
            let letter = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b"*-".contains(&b);
            let names = value.as_array().into_iter().flatten().filter_map(Value::as_str);
            names.into_iter().all(|name| !name.is_empty() && name.bytes().all(letter))
        }
        // Of status, which only the operator writes.
        "self.all(key, size(key) <= 63)" => true,
        keys if keys.starts_with("self.all(key, size(key) <= 317 && key.matches(") => {
            let mut keys = value.as_object().into_iter().flatten().map(|(key, _)| key);
            keys.all(|key| key.len() <= 317 && is_label_key(key))
        }
        words if words.starts_with("self.map(p, (has(p.when.podsSucceed) ") => words_of(value) <= 512,
        host if host.starts_with("self.contains('/') ? isCIDR(self) ") => value.as_str().is_none_or(is_host),
        label if label.starts_with("self.matches('^([A-Za-z0-9]([-._A-Za-z0-9]*") => {
            value.as_str().is_none_or(|text| text.is_empty() || is_label_name(text))
        }
        r"!self.matches('[^-.\\w]')" => value.as_str().is_none_or(|text| text.bytes().all(is_label_byte)),
        key if key.starts_with("self.matches('^([a-z0-9]([-.a-z0-9]*[a-z0-9])?/)?") => {
            value.as_str().is_none_or(is_label_key)
        }
        // How long a duration may be is checked by its type, too.
        long if long.starts_with("type(self) != string || !self.matches('[0-9]{11}') && ") => true,
        zero if zero.starts_with("type(self) != string || ") && zero.ends_with("self.matches('[1-9]')") => {
            value.as_str().is_none_or(|text| text.bytes().any(|b| (b'1'..=b'9').contains(&b)))
        }
        // The form of durations is checked by the type that reads them, which says more.
        form if form.starts_with("type(self) == string && ") => true,
        instant if instant.starts_with("self.matches('^[0-9]{4}-(0[1-9]|1[0-2])") => {
            value.as_str().is_none_or(is_instant)
        }
        _ => return None,
    })
}

fn size(value: &Value) -> usize {
    match value {
        Value::Array(items) => items.len(),
        Value::Object(fields) => fields.len(),
        _ => 0,
    }
}

fn names_differ(policies: &Value) -> bool {
    let names: Vec<&str> =
        policies.as_array().into_iter().flatten().filter_map(|p| p["name"].as_str()).collect();
    names.iter().enumerate().all(|(i, name)| !names[..i].contains(name))
}

/// How many keys and values of labels the selectors of policies have.
fn words_of(policies: &Value) -> usize {
    let of_selector = |selector: &Value| {
        let requirements = selector["matchExpressions"].as_array().into_iter().flatten();
        2 * size(&selector["matchLabels"]) + requirements.map(|r| 1 + size(&r["values"])).sum::<usize>()
    };
    let of_policy = |policy: &Value| {
        let workloads = policy["then"]["scaleDown"]["selectors"].as_array().into_iter().flatten();
        let workloads: usize = workloads.map(|w| of_selector(&w["selector"])).sum();
        of_selector(&policy["when"]["podsSucceed"]["selector"]) + workloads
    };
    policies.as_array().into_iter().flatten().map(of_policy).sum()
}

fn is_host(text: &str) -> bool {
    AllowList::parse(&[text.to_owned()]).1.is_empty()
}

fn is_label_name(text: &str) -> bool {
    let ends = |b: Option<&u8>| b.is_some_and(u8::is_ascii_alphanumeric);
    let bytes = text.as_bytes();
    ends(bytes.first()) && ends(bytes.last()) && bytes.iter().copied().all(is_label_byte)
}

fn is_label_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"-_.".contains(&byte)
}

fn is_label_key(text: &str) -> bool {
    let (prefix, name) = text.split_once('/').unwrap_or(("x", text));
    let lower = |b: u8| !b.is_ascii_uppercase() && b != b'_';
    is_label_name(prefix) && prefix.bytes().all(lower) && is_label_name(name)
}

/// What is a URL but not an acceptable destination is for the law to refuse, with its own words.
fn is_url(text: &str) -> bool {
    !matches!(
        Destination::parse(text),
        Err(UrlError::Syntax(_) | UrlError::Scheme { .. } | UrlError::NoHost | UrlError::Host { .. })
    )
}

/// RFC 3339 and nothing else that the parser also knows.
fn is_instant(text: &str) -> bool {
    let bytes = text.as_bytes();
    let zone = text.ends_with(['Z', 'z'])
        || bytes.len() > 6 && matches!(bytes[bytes.len() - 6], b'+' | b'-') && bytes[bytes.len() - 3] == b':';
    let shape = bytes.len() >= 20
        && bytes.iter().enumerate().take(19).all(|(i, b)| match i {
            4 | 7 => *b == b'-',
            10 => matches!(b, b'T' | b't'),
            13 | 16 => *b == b':',
            _ => b.is_ascii_digit(),
        });
    shape && zone && text.parse::<jiff::Timestamp>().is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
        JSONSchemaProps, JSONSchemaPropsOrArray, JSONSchemaPropsOrBool,
    };
    use serde_json::json;

    fn each_rule(schema: &JSONSchemaProps, f: &mut dyn FnMut(&str)) {
        schema.x_kubernetes_validations.iter().flatten().for_each(|rule| f(&rule.rule));
        schema.properties.iter().flatten().for_each(|(_, child)| each_rule(child, f));
        if let Some(JSONSchemaPropsOrArray::Schema(item)) = &schema.items {
            each_rule(item, f);
        }
        if let Some(JSONSchemaPropsOrBool::Schema(child)) = &schema.additional_properties {
            each_rule(child, f);
        }
    }

    #[test]
    fn every_rule_of_every_schema_is_known() {
        let mut seen = 0;
        for crd in coppice_api::crds() {
            let schema = crd.spec.versions[0].schema.clone().unwrap().open_api_v3_schema.unwrap();
            each_rule(&schema, &mut |rule| {
                seen += 1;
                assert!(
                    holds(rule, &json!({})).is_some(),
                    "{}: teach rules.rs the rule {rule}",
                    crd.spec.names.kind
                );
            });
        }
        assert!(seen > 20, "{seen}");
    }

    #[test]
    fn instants_need_a_zone() {
        for (text, good) in [
            ("2026-12-01T18:00:00Z", true),
            ("2026-12-01T18:00:00.5+01:00", true),
            ("2026-12-01T18:00:00", false),
            ("2026-12-01", false),
            ("2026-13-01T18:00:00Z", false),
            ("20261201T180000Z", false),
            ("tomorrow", false),
        ] {
            assert_eq!(is_instant(text), good, "{text}");
        }
    }
}
