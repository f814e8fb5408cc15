//! Whole resources within an object (`x-kubernetes-embedded-resource`): they say what they are.

use serde_json::Value;

use crate::cause::ValidationError;
use crate::node::Node;
use crate::path::Path;

pub(crate) fn check(node: &Node, value: &Value, path: Path<'_>, causes: &mut Vec<ValidationError>) {
    if !node.has_embedded {
        return;
    }
    match value {
        Value::Object(fields) => {
            if node.embedded {
                identity(value, path, causes);
            }
            for (key, value) in fields {
                let Some(child) = node.child(key) else { continue };
                let is_entry = !node.properties.contains_key(key);
                let at = if is_entry { Path::Entry(&path, key) } else { Path::Field(&path, key) };
                check(child, value, at, causes);
            }
        }
        Value::Array(items) => {
            if let Some(child) = &node.items {
                for (index, item) in items.iter().enumerate() {
                    check(child, item, Path::Index(&path, index), causes);
                }
            }
        }
        _ => {}
    }
}

fn identity(resource: &Value, path: Path<'_>, causes: &mut Vec<ValidationError>) {
    for name in ["apiVersion", "kind"] {
        let at = || Path::Field(&path, name).bracketed();
        let detail = match resource.get(name) {
            None => {
                causes.push(ValidationError::required(at()));
                continue;
            }
            Some(Value::String(text)) if text.is_empty() => Some("must not be empty".to_owned()),
            Some(Value::String(text)) if name == "kind" => wrong_kind(text),
            Some(Value::String(text)) => wrong_version(text),
            Some(_) => Some("must be a string".to_owned()),
        };
        causes.extend(detail.map(|detail| ValidationError::invalid(at(), &resource[name], &detail)));
    }
    match resource.get("metadata") {
        None | Some(Value::Object(_)) => {}
        Some(other) => {
            causes.push(ValidationError::invalid(
                Path::Field(&path, "metadata").bracketed(),
                other,
                "must be an object",
            ));
        }
    }
}

fn wrong_version(version: &str) -> Option<String> {
    (version != "/" && version.matches('/').count() > 1)
        .then(|| format!("unexpected GroupVersion string: {version}"))
}

fn wrong_kind(kind: &str) -> Option<String> {
    let kind = kind.to_lowercase();
    let inner = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-';
    let fits =
        kind.starts_with(|c: char| c.is_ascii_lowercase()) && kind.bytes().all(inner) && !kind.ends_with('-');
    let mut problems = Vec::new();
    if kind.len() > 63 {
        problems.push("must be no more than 63 bytes");
    }
    if !fits {
        problems.push(
            "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic \
             character, and end with an alphanumeric character (e.g. 'my-name',  or 'abc-123', regex used for \
             validation is '[a-z]([-a-z0-9]*[a-z0-9])?')",
        );
    }
    (!problems.is_empty())
        .then(|| format!("may have mixed case, but should otherwise match: {}", problems.join(",")))
}
