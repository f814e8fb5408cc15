//! Writes YAML for people: with comments, short lists on one line, several lines as a block.
//!
//! A comment is the value of the key `#` of a map and is written above it. [`plain`] takes comments out.

use std::fmt::Write as _;

use serde_json::{Map, Value};

/// The key whose value is a comment.
pub(crate) const COMMENT: &str = "#";

/// Lists of scalars up to this width stay on one line.
const FLOW_WIDTH: usize = 100;

/// One document for each object, separated by `---`.
pub(crate) fn documents(objects: &[Value]) -> String {
    objects.iter().map(document).collect::<Vec<_>>().join("---\n")
}

/// One document.
pub(crate) fn document(object: &Value) -> String {
    let mut out = String::new();
    comment(&mut out, object, 0);
    block(&mut out, object, 0);
    out
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

fn comment(out: &mut String, value: &Value, indent: usize) {
    let Some(text) = value.get(COMMENT).and_then(Value::as_str) else { return };
    for line in text.lines() {
        let _ = writeln!(out, "{:indent$}# {line}", "");
    }
}

/// In the order in which people expect them: what it is, what it is called, the rest by name.
fn entries(map: &Map<String, Value>) -> impl Iterator<Item = (&String, &Value)> {
    const FIRST: [&str; 4] = ["apiVersion", "kind", "metadata", "name"];
    let rank = |key: &str| FIRST.iter().position(|first| *first == key).unwrap_or(FIRST.len());
    let mut entries: Vec<_> = map.iter().filter(|(key, _)| *key != COMMENT).collect();
    entries.sort_by_key(|(key, _)| rank(key));
    entries.into_iter()
}

/// A value on lines of its own.
fn block(out: &mut String, value: &Value, indent: usize) {
    match value {
        Value::Object(map) => {
            for (key, value) in entries(map) {
                comment(out, value, indent);
                let _ = write!(out, "{:indent$}{}:", "", scalar(key));
                after_key(out, value, indent);
            }
        }
        Value::Array(items) => {
            for item in items {
                comment(out, item, indent);
                let mut text = String::new();
                block(&mut text, item, indent + 2);
                let _ = write!(out, "{:indent$}- {}", "", text.trim_start());
            }
        }
        other => {
            let _ = writeln!(out, "{:indent$}{}", "", inline(other, indent));
        }
    }
}

/// What follows `key:`, with the end of the line.
fn after_key(out: &mut String, value: &Value, indent: usize) {
    match value {
        Value::Object(map) if entries(map).next().is_none() => out.push_str(" {}\n"),
        Value::Object(_) => {
            out.push('\n');
            block(out, value, indent + 2);
        }
        Value::Array(items) if items.is_empty() => out.push_str(" []\n"),
        Value::Array(items) => {
            if let Some(flow) = flow(items) {
                let _ = writeln!(out, " {flow}");
            } else {
                out.push('\n');
                block(out, value, indent);
            }
        }
        other => {
            let _ = writeln!(out, " {}", inline(other, indent + 2));
        }
    }
}

fn flow(items: &[Value]) -> Option<String> {
    let short = |item: &Value| match item {
        Value::Object(_) | Value::Array(_) => None,
        Value::String(text) if text.contains([',', '[', ']', '{', '}', '\n']) => {
            Some(serde_json::Value::from(text.as_str()).to_string())
        }
        other => Some(inline(other, 0)),
    };
    let items: Option<Vec<String>> = items.iter().map(short).collect();
    let text = format!("[{}]", items?.join(", "));
    (text.len() <= FLOW_WIDTH && !text.contains('\n')).then_some(text)
}

/// A scalar that begins on the line of its key; further lines are indented.
fn inline(value: &Value, indent: usize) -> String {
    let Value::String(text) = value else { return value.to_string() };
    let blockable = text.contains('\n')
        && !text.ends_with('\n')
        && text.lines().all(|line| line.trim_end() == line)
        && !text.starts_with([' ', '\n']);
    if !blockable {
        return scalar(text);
    }
    let mut out = "|-".to_owned();
    for line in text.lines() {
        let _ = if line.is_empty() { writeln!(out) } else { write!(out, "\n{:indent$}{line}", "") };
    }
    out
}

/// A text as it is, if no YAML parser can take it for something else; otherwise in double quotes, as JSON has them.
fn scalar(text: &str) -> String {
    let harmless = |c: char| c.is_ascii_alphanumeric() || " -_./()=<>+;$".contains(c);
    let words = ["true", "false", "yes", "no", "on", "off", "null", "y", "n"];
    let digit = text.starts_with(|c: char| c.is_ascii_digit());
    let number = text.parse::<f64>().is_ok() || (digit && text.contains(['-', '_', 'x', 'o', 'b', 'e', 'E']));
    let safe = text.starts_with(|c: char| c.is_ascii_alphanumeric() || c == '/')
        && text.chars().all(harmless)
        && !text.ends_with(' ')
        && !number
        && !words.contains(&text.to_ascii_lowercase().as_str());
    if safe { text.to_owned() } else { Value::from(text).to_string() }
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

    #[test]
    fn comments_stand_above_what_they_are_about() {
        let value = json!({"rules": [{"#": "why", "verbs": ["get"]}, {"verbs": ["list"]}]});
        assert_eq!(document(&value), "rules:\n# why\n- verbs: [get]\n- verbs: [list]\n");
    }
}
