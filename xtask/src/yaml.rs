//! Objects as YAML for people, as the command line writes it: with comments, in the order in which people expect their fields.
//!
//! A comment is the value of the key `#` of a map and is written above it. [`plain`] takes comments out.

use coppice_cli::yaml::{COMMENT, with_comments};
use serde_json::Value;

/// One document for each object, separated by `---`.
pub(crate) fn documents(objects: &[Value]) -> String {
    objects.iter().map(document).collect::<Vec<_>>().join("---\n")
}

/// One document.
pub(crate) fn document(object: &Value) -> String {
    with_comments(&ordered(object))
}

/// What it is, what it is called, the rest by name.
fn ordered(value: &Value) -> serde_yaml::Value {
    const FIRST: [&str; 4] = ["apiVersion", "kind", "metadata", "name"];
    let rank = |key: &str| FIRST.iter().position(|first| *first == key).unwrap_or(FIRST.len());
    match value {
        Value::Object(fields) => {
            let mut fields: Vec<_> = fields.iter().collect();
            fields.sort_by_key(|(key, _)| rank(key));
            let fields = fields.into_iter().map(|(key, value)| (key.as_str().into(), ordered(value)));
            serde_yaml::Value::Mapping(fields.collect())
        }
        Value::Array(items) => serde_yaml::Value::Sequence(items.iter().map(ordered).collect()),
        Value::String(text) => text.as_str().into(),
        Value::Number(number) => number_of(number),
        Value::Bool(value) => (*value).into(),
        Value::Null => serde_yaml::Value::Null,
    }
}

fn number_of(number: &serde_json::Number) -> serde_yaml::Value {
    let whole = number.as_i64().map(serde_yaml::Value::from).or_else(|| number.as_u64().map(Into::into));
    whole.or_else(|| number.as_f64().map(Into::into)).unwrap_or_default()
}

/// The value without its comments.
pub(crate) fn plain(value: &Value) -> Value {
    match value {
        Value::Object(map) => Value::Object(
            map.iter().filter(|(key, _)| *key != COMMENT).map(|(key, v)| (key.clone(), plain(v))).collect(),
        ),
        Value::Array(items) => Value::Array(items.iter().map(plain).collect()),
        other => other.clone(),
    }
}

/// The documents of a text, without empty ones.
pub(crate) fn parse(text: &str) -> anyhow::Result<Vec<Value>> {
    use serde::Deserialize as _;
    let mut documents = Vec::new();
    for document in serde_yaml::Deserializer::from_str(text) {
        let value = Value::deserialize(document)?;
        if !value.is_null() {
            documents.push(value);
        }
    }
    Ok(documents)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn what_is_written_reads_back_as_it_was() {
        let value = json!({
            "#": "top", "true": "yes", "numbers": ["1", "1e3", "0x1f", "1_000", "2026-01-01", "10m", 10, 1.5, null],
            "tricky": ["", " a", "a ", "- b", "c: d", "e #f", "*", "&x", "!y", "%z", "@w", "`v`", "{u}", "[t]", "s,r", "~"],
            "maps": [{"#": "one\ntwo", "a": {"#": "inner", "b": []}, "c": {}}, {"d": [[1, 2], ["x"]]}],
            "text": "one\n  two\n\nthree", "ending": "one\n", "starting": "\none", "spaces": "one \ntwo",
            "many": ["a rather long item of a list", "a rather long item of a list", "a rather long item of a list", "x"],
            "unicode": "ü „quoted“ \"double\" 'single' \\ \t"
        });
        let text = document(&value);
        assert_eq!(parse(&text).unwrap(), [plain(&value)], "{text}");
    }
}
