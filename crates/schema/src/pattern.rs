//! Regular expressions as Go reads them, for the `regex` crate.

use std::collections::HashMap;
use std::sync::{Arc, LazyLock, Mutex, PoisonError};

use regex::Regex;

/// Why a text is no regular expression.
#[derive(Debug, thiserror::Error)]
#[error("{problem}")]
pub(crate) struct PatternError {
    /// What is wrong with it, in one line.
    problem: String,
}

/// So many patterns are remembered: more than all schemas and policies of an installation have.
const MAX_REMEMBERED: usize = 1_000;

/// Compiles a Go regular expression, or takes it as it was compiled before: schemas are read again for each simulated API server, and
/// to compile their patterns took a tenth of the simulation.
///
/// # Errors
///
/// What is wrong with the pattern.
pub(crate) fn compile(pattern: &str) -> Result<Arc<Regex>, PatternError> {
    static REMEMBERED: LazyLock<Mutex<HashMap<String, Arc<Regex>>>> = LazyLock::new(Mutex::default);
    let remembered = || REMEMBERED.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(known) = remembered().get(pattern) {
        return Ok(Arc::clone(known));
    }
    let compiled = Arc::new(compile_go(pattern)?);
    let mut remembered = remembered();
    if remembered.len() < MAX_REMEMBERED {
        remembered.insert(pattern.to_owned(), Arc::clone(&compiled));
    }
    Ok(compiled)
}

/// Compiles a Go regular expression. The crates' languages differ: here `\d`, `\s`, `\w` and `\b` mean ASCII, and a class
/// has no sets within it.
fn compile_go(pattern: &str) -> Result<Regex, PatternError> {
    Regex::new(&translate(pattern)).map_err(|error| {
        // The crate draws its error; only the last line says what is wrong.
        let text = error.to_string();
        let problem = text.lines().last().unwrap_or_default().trim_start_matches("error: ").to_owned();
        PatternError { problem }
    })
}

fn translate(pattern: &str) -> String {
    let mut out = String::with_capacity(pattern.len() + 16);
    let mut chars = pattern.chars().peekable();
    // Within a class: how many characters of it there have been.
    let mut class: Option<usize> = None;
    while let Some(c) = chars.next() {
        if c == '\\' {
            escape(&mut chars, class.is_some(), &mut out);
            class = class.map(|n| n + 1);
            continue;
        }
        match (class, c) {
            (None, '[') => {
                class = Some(0);
                out.push('[');
                if chars.next_if_eq(&'^').is_some() {
                    out.push('^');
                }
                continue;
            }
            (Some(1..), ']') => {
                class = None;
                out.push(']');
                continue;
            }
            (Some(_), '[') if chars.peek() == Some(&':') => named_class(&mut chars, &mut out),
            (Some(_), '[' | ']' | '&' | '~') => out.extend(['\\', c]),
            _ => out.push(c),
        }
        class = class.map(|n| n + 1);
    }
    out
}

/// What follows a backslash.
fn escape(chars: &mut std::iter::Peekable<std::str::Chars<'_>>, in_class: bool, out: &mut String) {
    let (open, close) = if in_class { ("", "") } else { ("[", "]") };
    match chars.next() {
        Some('d') => out.extend([open, "0-9", close]),
        Some('w') => out.extend([open, "0-9A-Za-z_", close]),
        Some('s') => out.extend([open, r"\t\n\f\r ", close]),
        Some('D') => out.push_str("[^0-9]"),
        Some('W') => out.push_str("[^0-9A-Za-z_]"),
        Some('S') => out.push_str(r"[^\t\n\f\r ]"),
        Some('b') if !in_class => out.push_str(r"(?-u:\b)"),
        Some('B') if !in_class => out.push_str(r"(?-u:\B)"),
        // Literally up to \E.
        Some('Q') if !in_class => {
            let mut literal = String::new();
            while let Some(c) = chars.next() {
                if c == '\\' && chars.next_if_eq(&'E').is_some() {
                    break;
                }
                literal.push(c);
            }
            out.push_str(&regex::escape(&literal));
        }
        Some(c) => out.extend(['\\', c]),
        None => out.push('\\'),
    }
}

/// `[:alpha:]`, up to its end.
fn named_class(chars: &mut std::iter::Peekable<std::str::Chars<'_>>, out: &mut String) {
    out.push('[');
    for c in chars.by_ref() {
        out.push(c);
        if c == ']' {
            break;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_mean_ascii_and_have_no_sets() {
        for (pattern, text, matches) in [
            (r"^\d+$", "12", true),
            (r"^\d+$", "١٢", false),
            (r"^\w+$", "ä", false),
            (r"^[\w-]+$", "a-b_1", true),
            (r"^[^\D]+$", "12", true),
            (r"^\S+$", "ä\u{a0}", true),
            (r"^[[a]+$", "[a", true),
            (r"^[]a]+$", "]a", true),
            (r"^[^]]$", "]", false),
            (r"^[a&&b]+$", "a&b", true),
            (r"^[[:alpha:]&]+$", "ab&", true),
            (r"\bé", "aé", true),
            (r"^\Qa.b\E.$", "a.bc", true),
            (r"^\Qa.b\E.$", "axbc", false),
            (r"^\p{L}+$", "äß", true),
            (r"(?i)^ß$", "ẞ", true),
            (r"a$", "a\n", false),
        ] {
            assert_eq!(compile(pattern).unwrap().is_match(text), matches, "{pattern} {text}");
        }
    }

    #[test]
    fn a_pattern_is_compiled_once() {
        let pattern = "^compiled-once$";
        assert!(Arc::ptr_eq(&compile(pattern).unwrap(), &compile(pattern).unwrap()));
    }

    #[test]
    fn an_invalid_pattern_is_reported_in_one_line() {
        assert_eq!(compile("a(").unwrap_err().to_string(), "unclosed group");
    }
}
