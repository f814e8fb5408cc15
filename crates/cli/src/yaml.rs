//! YAML that every parser reads alike.
//!
//! kubectl reads YAML 1.1, in which a plain `yes` or `on` is a boolean and `0777` a number: whatever could be taken for
//! something else is quoted, so that a label `"yes"` stays one.

use std::fmt::Write as _;

use anyhow::Result;
use coppice_api::text::acts_on_terminal;
use serde::Serialize;
use serde_yaml::Value;

use crate::terminal;

/// A value as YAML, its fields in their order.
pub(crate) fn to_string(value: &impl Serialize) -> Result<String> {
    let value = serde_yaml::to_value(value)?;
    let mut text = String::new();
    match &value {
        Value::Mapping(fields) if !fields.is_empty() => mapping(&mut text, fields, 0),
        Value::Sequence(items) if !items.is_empty() => sequence(&mut text, items, 0),
        scalar => {
            inline(&mut text, scalar, 0);
            text.push('\n');
        }
    }
    Ok(text)
}

fn indent(text: &mut String, depth: usize) {
    text.extend(std::iter::repeat_n("  ", depth));
}

fn mapping(text: &mut String, fields: &serde_yaml::Mapping, depth: usize) {
    for (index, (key, value)) in fields.iter().enumerate() {
        // The first field of an item of a list follows its dash.
        if index > 0 || !text.ends_with("- ") {
            indent(text, depth);
        }
        inline(text, key, depth);
        text.push(':');
        match value {
            Value::Mapping(fields) if !fields.is_empty() => {
                text.push('\n');
                mapping(text, fields, depth + 1);
            }
            Value::Sequence(items) if !items.is_empty() => {
                text.push('\n');
                sequence(text, items, depth);
            }
            scalar => {
                text.push(' ');
                inline(text, scalar, depth + 1);
                text.push('\n');
            }
        }
    }
}

fn sequence(text: &mut String, items: &[Value], depth: usize) {
    for item in items {
        if !text.ends_with("- ") {
            indent(text, depth);
        }
        text.push_str("- ");
        match item {
            Value::Mapping(fields) if !fields.is_empty() => mapping(text, fields, depth + 1),
            Value::Sequence(items) if !items.is_empty() => sequence(text, items, depth + 1),
            scalar => {
                inline(text, scalar, depth + 1);
                text.push('\n');
            }
        }
    }
}

fn inline(text: &mut String, value: &Value, depth: usize) {
    match value {
        Value::Null => text.push_str("null"),
        Value::Mapping(_) => text.push_str("{}"),
        Value::Sequence(_) => text.push_str("[]"),
        // Writing to a String cannot fail.
        Value::Bool(b) => drop(write!(text, "{b}")),
        Value::Number(n) => drop(write!(text, "{n}")),
        Value::String(s) if is_block(s) => block(text, s, depth),
        Value::String(s) if is_plain(s) => text.push_str(s),
        // A JSON string is a YAML string in double quotes.
        Value::String(s) => text.push_str(&terminal::json(&serde_json::Value::from(s.as_str()).to_string())),
        Value::Tagged(tagged) => inline(text, &tagged.value, depth),
    }
}

/// Text of several lines that a literal block can hold as it is.
fn is_block(s: &str) -> bool {
    let good = |line: &str| !line.ends_with([' ', '\t']) && !line.contains(acts_on_terminal);
    s.contains('\n')
        && !s.starts_with([' ', '\n'])
        && !s.ends_with("\n\n")
        && !s.ends_with(' ')
        && s.split('\n').all(good)
}

fn block(text: &mut String, s: &str, depth: usize) {
    text.push_str(if s.ends_with('\n') { "|" } else { "|-" });
    for line in s.strip_suffix('\n').unwrap_or(s).split('\n') {
        text.push('\n');
        if !line.is_empty() {
            indent(text, depth.max(1));
            text.push_str(line);
        }
    }
}

/// Text that no parser takes for anything but text.
fn is_plain(s: &str) -> bool {
    let first = s.chars().next().is_some_and(|c| c.is_ascii_alphabetic() || matches!(c, '_' | '/'));
    let inside = |c: char| c.is_ascii_alphanumeric() || " _./-(),;+*=<>@$^~".contains(c) || c == ':';
    let words = ["y", "n", "yes", "no", "on", "off", "true", "false", "null", "nan", "inf"];
    // A duration such as 40s reads better without quotes, and is no number in any YAML.
    let duration = || s.parse::<coppice_quantity::Duration>().is_ok();
    (first || duration())
        && s.chars().all(inside)
        && !s.contains(": ")
        && !s.ends_with([':', ' '])
        && !words.contains(&s.to_ascii_lowercase().as_str())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn what_another_parser_could_take_for_something_else_is_quoted() {
        for text in [
            "yes",
            "No",
            "on",
            "y",
            "0777",
            "1_000",
            "1e3",
            "",
            "~",
            "- a",
            "a: b",
            "a #b",
            "#a",
            "2026-12-01",
            "*x",
            "{a}",
            "a\tb",
            " a",
        ] {
            let yaml = to_string(&json!({ "k": text })).unwrap();
            assert!(yaml.starts_with("k: \""), "{text:?}: {yaml}");
        }
        for text in ["40s", "1h30m", "example-01", "a b, c", "http://a.b/c:d", "apps/v1"] {
            assert_eq!(to_string(&json!({ "k": text })).unwrap(), format!("k: {text}\n"));
        }
    }

    #[test]
    fn what_is_written_reads_back() {
        let value = json!({
            "a": [[1, [2]], {"b": {"c": [], "d": {}}, "e": null}, "x\ny", "x\n\ny\n", " x\ny", "x \ny", "end\n\n"],
            "yes": {"on": [true, 1.5, -3, "1.5"], "long": "über\u{7}\u{9b}\u{202e}", "lines": "a\nb\u{202e}\n"},
            "block": {"in": [{"text": "a: b\n  # c\n", "next": "- d"}]}
        });
        let text = to_string(&value).unwrap();
        assert_eq!(serde_yaml::from_str::<serde_json::Value>(&text).unwrap(), value, "{text}");
    }

    #[test]
    fn our_definitions_read_back() {
        for crd in coppice_api::crds() {
            let text = to_string(&crd).unwrap();
            let read: serde_json::Value = serde_yaml::from_str(&text).unwrap();
            assert_eq!(read, serde_json::to_value(&crd).unwrap());
        }
    }
}
