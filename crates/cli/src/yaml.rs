//! YAML that every parser reads alike.
//!
//! kubectl reads YAML 1.1, in which a plain `yes` or `on` is a boolean and `0777` a number: whatever could be taken for
//! something else is quoted, so that a label `"yes"` stays one.

use std::fmt::Write as _;

use anyhow::Result;
use coppice_api::text::acts_on_terminal;
use serde::Serialize;
use serde_yaml::{Mapping, Value};

use crate::terminal;

/// The key whose value is a comment on its map, in a file with comments.
pub const COMMENT: &str = "#";
/// In a file with comments, lists of scalars up to this width stay on one line.
const FLOW_WIDTH: usize = 100;

/// A value as YAML, its fields in their order.
pub fn to_string(value: &impl Serialize) -> Result<String> {
    Ok(write(&serde_yaml::to_value(value)?, false))
}

/// A value as a file for people to read: what is under [`COMMENT`] is a comment above its map, and short lists stay on one line.
pub fn with_comments(value: &Value) -> String {
    write(value, true)
}

fn write(value: &Value, comments: bool) -> String {
    let mut writer = Writer { text: String::new(), comments };
    writer.comment(value, 0);
    match value {
        Value::Mapping(fields) if !writer.is_empty(fields) => writer.mapping(fields, 0),
        Value::Sequence(items) if !items.is_empty() => writer.sequence(items, 0),
        scalar => {
            inline(&mut writer.text, scalar, 0);
            writer.text.push('\n');
        }
    }
    writer.text
}

struct Writer {
    text: String,
    /// Whether the file has comments, and short lists on one line.
    comments: bool,
}

impl Writer {
    /// Begins a line. What comes first in an item of a list follows its dash.
    fn begin(&mut self, depth: usize) {
        if !self.text.ends_with("- ") {
            indent(&mut self.text, depth);
        }
    }

    fn is_comment(&self, key: &Value) -> bool {
        self.comments && key.as_str() == Some(COMMENT)
    }

    fn is_empty(&self, fields: &Mapping) -> bool {
        fields.keys().all(|key| self.is_comment(key))
    }

    fn comment(&mut self, value: &Value, depth: usize) {
        let Value::Mapping(fields) = value else { return };
        let comment = fields.get(COMMENT).and_then(Value::as_str).filter(|_| self.comments);
        for line in comment.into_iter().flat_map(str::lines) {
            self.begin(depth);
            // Writing to a String cannot fail.
            let _ = writeln!(self.text, "# {line}");
        }
    }

    fn mapping(&mut self, fields: &Mapping, depth: usize) {
        for (key, value) in fields {
            if self.is_comment(key) {
                continue;
            }
            self.comment(value, depth);
            self.begin(depth);
            inline(&mut self.text, key, depth);
            self.text.push(':');
            match value {
                Value::Mapping(fields) if !self.is_empty(fields) => {
                    self.text.push('\n');
                    self.mapping(fields, depth + 1);
                }
                Value::Sequence(items) if !items.is_empty() => {
                    if let Some(flow) = flow(items).filter(|_| self.comments) {
                        let _ = writeln!(self.text, " {flow}");
                    } else {
                        self.text.push('\n');
                        self.sequence(items, depth);
                    }
                }
                scalar => {
                    self.text.push(' ');
                    inline(&mut self.text, scalar, depth + 1);
                    self.text.push('\n');
                }
            }
        }
    }

    fn sequence(&mut self, items: &[Value], depth: usize) {
        for item in items {
            self.comment(item, depth);
            self.begin(depth);
            self.text.push_str("- ");
            match item {
                Value::Mapping(fields) if !self.is_empty(fields) => self.mapping(fields, depth + 1),
                Value::Sequence(items) if !items.is_empty() => self.sequence(items, depth + 1),
                scalar => {
                    inline(&mut self.text, scalar, depth + 1);
                    self.text.push('\n');
                }
            }
        }
    }
}

fn indent(text: &mut String, depth: usize) {
    text.extend(std::iter::repeat_n("  ", depth));
}

/// Scalars as a list on one line, if it is short.
fn flow(items: &[Value]) -> Option<String> {
    let mut flow = "[".to_owned();
    for (index, item) in items.iter().enumerate() {
        flow.push_str(if index > 0 { ", " } else { "" });
        match item {
            Value::Mapping(_) | Value::Sequence(_) => return None,
            Value::String(s) if s.contains('\n') => return None,
            // In such a list a comma ends an item.
            Value::String(s) if s.contains(',') => quoted(&mut flow, s),
            scalar => inline(&mut flow, scalar, 0),
        }
    }
    flow.push(']');
    (flow.len() <= FLOW_WIDTH).then_some(flow)
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
        Value::String(s) => quoted(text, s),
        Value::Tagged(tagged) => inline(text, &tagged.value, depth),
    }
}

/// A JSON string is a YAML string in double quotes.
fn quoted(text: &mut String, s: &str) {
    text.push_str(&terminal::json(&serde_json::Value::from(s).to_string()));
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
    fn comments_stand_above_what_they_are_about() {
        let value = json!({
            COMMENT: "top", "only": {COMMENT: "nothing below"}, "short": ["yes", "a, b", 1], "long": ["x".repeat(60), "y".repeat(60)],
            "rules": [{COMMENT: "one\ntwo", "a": {COMMENT: "inner", "b": []}, "c": 1}, {COMMENT: "none"}, [[1], ["x"]]],
        });
        let (x, y) = ("x".repeat(60), "y".repeat(60));
        let expected = format!(
            "# top\nlong:\n- {x}\n- {y}\n# nothing below\nonly: {{}}\nrules:\n# one\n# two\n- # inner\n  a:\n    b: []\n  c: 1\n# none\n\
             - {{}}\n- - - 1\n  - - x\nshort: [\"yes\", \"a, b\", 1]\n"
        );
        let text = with_comments(&serde_yaml::to_value(&value).unwrap());
        assert_eq!(text, expected);
        let without = json!({
            "only": {}, "short": ["yes", "a, b", 1], "long": [x, y],
            "rules": [{"a": {"b": []}, "c": 1}, {}, [[1], ["x"]]],
        });
        assert_eq!(serde_yaml::from_str::<serde_json::Value>(&text).unwrap(), without);
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
