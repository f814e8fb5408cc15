//! Names of properties as CEL's identifiers: `a-b` is `a__dash__b`.

use std::borrow::Cow;

use crate::node::{Entries, Node};

const RESERVED: [&str; 21] = [
    "true",
    "false",
    "null",
    "in",
    "as",
    "break",
    "const",
    "continue",
    "else",
    "for",
    "function",
    "if",
    "import",
    "let",
    "loop",
    "package",
    "namespace",
    "return",
    "var",
    "void",
    "while",
];

const ESCAPES: [(&str, &str); 4] =
    [("__", "__underscores__"), (".", "__dot__"), ("-", "__dash__"), ("/", "__slash__")];

/// The name of a property in expressions; none if it cannot occur in one.
pub(crate) fn escape(name: &str) -> Option<Cow<'_, str>> {
    let plain = |b: u8| b.is_ascii_alphanumeric() || b == b'_';
    if name.is_empty() || name.starts_with(|c: char| c.is_ascii_digit()) {
        return None;
    }
    if RESERVED.contains(&name) {
        return Some(format!("__{name}__").into());
    }
    if !name.bytes().all(|b| plain(b) || matches!(b, b'.' | b'-' | b'/')) {
        return None;
    }
    if name.bytes().all(plain) && !name.contains("__") {
        return Some(name.into());
    }
    let mut escaped = String::with_capacity(name.len() + 16);
    let mut rest = name;
    while let Some(first) = rest.chars().next() {
        let (taken, written) = ESCAPES
            .into_iter()
            .find(|(raw, _)| rest.starts_with(raw))
            .unwrap_or((&rest[..first.len_utf8()], ""));
        escaped.push_str(if written.is_empty() { taken } else { written });
        rest = &rest[taken.len()..];
    }
    Some(escaped.into())
}

/// The property that a name in an expression means; none for an escape that there is not.
pub(crate) fn unescape(name: &str) -> Option<Cow<'_, str>> {
    if !name.contains("__") {
        return Some(name.into());
    }
    let mut out = String::with_capacity(name.len());
    let mut rest = name;
    while let Some(start) = rest.find("__") {
        let inner = &rest[start + 2..];
        // Two underscores, something without any, two underscores.
        let Some(length) = inner.find('_').filter(|n| *n > 0 && inner[*n..].starts_with("__")) else {
            out.push_str(&rest[..=start]);
            rest = &rest[start + 1..];
            continue;
        };
        let word = &inner[..length];
        out.push_str(&rest[..start]);
        rest = &inner[length + 2..];
        match word {
            "underscores" => out.push_str("__"),
            "dot" => out.push('.'),
            "dash" => out.push('-'),
            "slash" => out.push('/'),
            reserved if RESERVED.contains(&reserved) && out.is_empty() && rest.is_empty() => {
                out.push_str(reserved);
            }
            _ => return None,
        }
    }
    out.push_str(rest);
    Some(out.into())
}

/// A rule's `fieldPath`, such as `.a['b']`, as it is written in causes; none if the schema has no such place.
pub(crate) fn normalize(path: &str, node: &Node) -> Option<String> {
    let mut written = String::new();
    let mut rest = path;
    let mut node = node;
    while !rest.is_empty() {
        let (name, after) = if let Some(after) = rest.strip_prefix('.') {
            let end = after.find(['.', '[']).unwrap_or(after.len());
            (after[..end].to_owned(), &after[end..])
        } else {
            quoted(rest.strip_prefix("['")?)?
        };
        if node.properties.is_empty() {
            let Some(Entries::Of(entry)) = &node.entries else { return None };
            written.extend(["[", &name, "]"]);
            node = entry;
        } else {
            node = node.properties.get(&name)?;
            if !written.is_empty() {
                written.push('.');
            }
            written.push_str(&name);
        }
        rest = after;
    }
    Some(written).filter(|written| !written.is_empty())
}

/// The text up to `']`, and what follows that.
fn quoted(text: &str) -> Option<(String, &str)> {
    let mut name = String::new();
    let mut chars = text.char_indices();
    loop {
        match chars.next()?.1 {
            '\\' => match chars.next()?.1 {
                c @ ('\'' | '\\') => name.push(c),
                _ => return None,
            },
            '\'' => return Some((name, chars.as_str().strip_prefix(']')?)),
            c => name.push(c),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_survive_both_ways() {
        for (name, escaped) in [
            ("plain", "plain"),
            ("a-b", "a__dash__b"),
            ("a.b/c", "a__dot__b__slash__c"),
            ("a__b", "a__underscores__b"),
            ("_x", "_x"),
            ("namespace", "__namespace__"),
        ] {
            assert_eq!(escape(name).unwrap(), escaped);
            assert_eq!(unescape(escaped).unwrap(), name);
        }
        assert_eq!(escape("0a"), None);
        assert_eq!(escape("a b"), None);
        assert_eq!(unescape("a__nothing__b"), None);
    }
}
