//! Values in text as the API server, a Go program, prints them.

use std::fmt::Write as _;

use serde_json::{Number, Value};

/// A string in double quotes, as `%q` prints it.
pub(crate) fn quote(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 2);
    out.push('"');
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\u{7}' => out.push_str("\\a"),
            '\u{8}' => out.push_str("\\b"),
            '\u{c}' => out.push_str("\\f"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '\u{b}' => out.push_str("\\v"),
            c if is_printable(c) => out.push(c),
            // Writing to a String cannot fail.
            c if (c as u32) < 0x80 => drop(write!(out, "\\x{:02x}", c as u32)),
            c if (c as u32) < 0x1_0000 => drop(write!(out, "\\u{:04x}", c as u32)),
            c => drop(write!(out, "\\U{:08x}", c as u32)),
        }
    }
    out.push('"');
    out
}

/// Letters, marks, numbers, punctuation, symbols and the ASCII space. Rust's tables know the same, but escape a mark
/// that has no letter before it.
fn is_printable(c: char) -> bool {
    let after_a_letter: String = ['a', c].iter().collect();
    !after_a_letter.escape_debug().skip(1).any(|e| e == '\\')
}

/// A number as `%v` prints it.
pub(crate) fn number(number: &Number) -> String {
    match number.as_i64() {
        Some(int) => int.to_string(),
        None => float(number.as_f64().unwrap_or_default()),
    }
}

/// A float as `%v` prints it: shortest, with an exponent from a million on and below 1e-4.
pub(crate) fn float(value: f64) -> String {
    exponent_outside(value, -4, 6)
}

fn exponent_outside(value: f64, least: i32, most: i32) -> String {
    let scientific = format!("{value:e}");
    let Some((digits, exponent)) = scientific.split_once('e') else { return scientific };
    let exponent: i32 = exponent.parse().unwrap_or_default();
    if value != 0.0 && (exponent < least || exponent >= most) {
        let sign = if exponent < 0 { '-' } else { '+' };
        return format!("{digits}e{sign}{:02}", exponent.unsigned_abs());
    }
    format!("{value}")
}

/// A value after the words "Invalid value: ".
pub(crate) fn value(value: &Value) -> String {
    match value {
        Value::String(text) => quote(text),
        Value::Number(n) => number(n),
        other => json(other),
    }
}

/// A value as JSON, with sorted keys and HTML's characters escaped.
pub(crate) fn json(value: &Value) -> String {
    let mut out = String::new();
    write_json(value, &mut out);
    out
}

fn write_json(value: &Value, out: &mut String) {
    match value {
        Value::Null => out.push_str("null"),
        Value::Bool(b) => out.push_str(if *b { "true" } else { "false" }),
        Value::Number(n) => out.push_str(&json_number(n)),
        Value::String(text) => write_json_string(text, out),
        Value::Array(items) => {
            out.push('[');
            for (index, item) in items.iter().enumerate() {
                if index > 0 {
                    out.push(',');
                }
                write_json(item, out);
            }
            out.push(']');
        }
        Value::Object(fields) => {
            let mut sorted: Vec<_> = fields.iter().collect();
            sorted.sort_unstable_by_key(|(key, _)| key.as_str());
            out.push('{');
            for (index, (key, item)) in sorted.into_iter().enumerate() {
                if index > 0 {
                    out.push(',');
                }
                write_json_string(key, out);
                out.push(':');
                write_json(item, out);
            }
            out.push('}');
        }
    }
}

fn json_number(number: &Number) -> String {
    match number.as_i64() {
        Some(int) => int.to_string(),
        // JSON has one digit of the exponent where there is but one.
        None => exponent_outside(number.as_f64().unwrap_or_default(), -6, 21).replace("e-0", "e-"),
    }
}

fn write_json_string(text: &str, out: &mut String) {
    out.push('"');
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\u{8}' => out.push_str("\\b"),
            '\u{c}' => out.push_str("\\f"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '<' | '>' | '&' | '\u{2028}' | '\u{2029}' | '\0'..='\u{1f}' => {
                // Writing to a String cannot fail.
                let _ = write!(out, "\\u{:04x}", c as u32);
            }
            c => out.push(c),
        }
    }
    out.push('"');
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn strings_are_quoted_as_in_go() {
        for (text, quoted) in [
            ("a b", r#""a b""#),
            ("a\"b\\c\n\t\u{7}", r#""a\"b\\c\n\t\a""#),
            ("\u{1}\u{7f}", r#""\x01\x7f""#),
            ("grün 日本 e\u{301}", "\"grün 日本 e\u{301}\""),
            ("\u{301}", "\"\u{301}\""),
            ("\u{200d}\u{feff}\u{a0}", r#""\u200d\ufeff\u00a0""#),
            ("😀\u{e0001}", "\"😀\\U000e0001\""),
        ] {
            assert_eq!(quote(text), quoted);
        }
    }

    #[test]
    fn numbers_are_printed_as_in_go() {
        for (value, text) in [
            (100_000.0, "100000"),
            (1_000_000.0, "1e+06"),
            (1_234_567.5, "1.2345675e+06"),
            (0.5, "0.5"),
            (0.0001, "0.0001"),
            (0.000_01, "1e-05"),
            (-2.5e-7, "-2.5e-07"),
            (0.0, "0"),
        ] {
            assert_eq!(float(value), text);
        }
        assert_eq!(json(&json!(1e-7)), "1e-7");
        assert_eq!(json(&json!(0.000_01)), "0.00001");
        assert_eq!(json(&json!(u64::MAX)), "18446744073709552000");
    }

    #[test]
    fn objects_are_printed_sorted_and_safe_in_html() {
        assert_eq!(
            json(&json!({"b": [1, null, true], "a": "<x>&\u{1}"})),
            r#"{"a":"\u003cx\u003e\u0026\u0001","b":[1,null,true]}"#
        );
    }
}
