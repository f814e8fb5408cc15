//! What the sources define, found without a parser of Rust: by the words before and after a name.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use crate::sources::File;

/// Words after which a name is defined.
const ITEMS: [&str; 9] = ["fn", "struct", "enum", "trait", "const", "static", "type", "mod", "union"];
/// Those after which it is something that has members.
const OWNERS: [&str; 6] = ["struct", "enum", "trait", "type", "mod", "union"];

/// What there is in the sources.
#[derive(Default)]
pub(super) struct Symbols {
    files: BTreeMap<PathBuf, Defined>,
    /// Every word that is written anywhere but in comments and pages.
    words: BTreeSet<String>,
    /// Crates of ours: the name in Rust, and the folder.
    crates: BTreeMap<String, PathBuf>,
    /// Crates of others, by their names in Rust.
    others: BTreeSet<String>,
}

/// What one file defines.
#[derive(Default)]
struct Defined {
    /// Items, fields and variants.
    names: BTreeSet<String>,
    /// Types, traits and modules among them.
    owners: BTreeSet<String>,
    /// What it implements, and for what.
    implements: BTreeSet<String>,
}

impl Defined {
    fn has(&self, name: &str) -> bool {
        self.names.contains(name) || self.implements.contains(name)
    }
}

impl Symbols {
    /// Reads the sources. `lock` is the text of Cargo.lock.
    pub(super) fn of(files: &[File], lock: &str) -> Self {
        let mut symbols = Self::default();
        let name = |line: &str| Some(line.strip_prefix("name = \"")?.strip_suffix('"')?.replace('-', "_"));
        symbols.others = lock.lines().filter_map(name).chain(["std".to_owned(), "core".to_owned()]).collect();
        for (path, text) in files {
            let ours = path.extension().is_none_or(|e| e != "md") && !path.starts_with("docs");
            if path.file_name().is_some_and(|n| n == "Cargo.toml")
                && let (Some(folder), Some(name)) = (path.parent(), text.lines().find_map(name))
            {
                symbols.others.remove(&name);
                symbols.crates.insert(name, folder.to_owned());
            }
            if path.extension().is_some_and(|e| e == "rs") {
                let tokens = tokens(text, &mut symbols.words);
                symbols.files.insert(path.clone(), defined(&tokens));
            } else if ours {
                symbols.words.extend(words(text).map(str::to_owned));
            }
        }
        symbols
    }

    /// Whether it is written anywhere in the sources.
    pub(super) fn is_word(&self, word: &str) -> bool {
        self.words.contains(word)
    }

    /// Whether a word in the sources begins so.
    pub(super) fn begins_a_word(&self, stem: &str) -> bool {
        self.words.range(stem.to_owned()..).next().is_some_and(|word| word.starts_with(stem))
    }

    /// Whether it is a function (or another item, field or variant) of any file.
    pub(super) fn is_defined(&self, name: &str) -> bool {
        self.files.values().any(|file| file.has(name))
    }

    /// Whether one of the files defines all of the names.
    pub(super) fn defines(&self, files: &[PathBuf], names: &[&str]) -> bool {
        files
            .iter()
            .filter_map(|path| self.files.get(path))
            .any(|file| names.iter().all(|name| file.has(name)))
    }

    /// Whether a path such as `Type::member` or `module::item` leads anywhere.
    pub(super) fn leads_somewhere(&self, path: &[&str]) -> bool {
        let Some((first, rest)) = path.split_first() else { return false };
        if self.others.contains(*first) {
            return true;
        }
        let within: Vec<_> = match self.crates.get(*first) {
            Some(folder) => self.files.iter().filter(|(path, _)| path.starts_with(folder)).collect(),
            None => self.files.iter().filter(|(path, file)| belongs(path, file, first)).collect(),
        };
        let ours = self.crates.contains_key(*first)
            || within.iter().any(|(path, file)| file.owners.contains(*first) || is_module(path, first));
        if !ours {
            // Of the standard library, or of a crate that is imported.
            return path.iter().all(|name| self.is_word(name));
        }
        rest.iter().all(|name| within.iter().any(|(path, file)| file.has(name) || is_module(path, name)))
    }
}

/// Whether a file may define what is in a type or module of that name.
fn belongs(path: &Path, file: &Defined, owner: &str) -> bool {
    file.owners.contains(owner)
        || file.implements.contains(owner)
        || is_module(path, owner)
        || path.parent().is_some_and(|folder| folder.ends_with(owner))
}

/// Whether the file is the module.
fn is_module(path: &Path, name: &str) -> bool {
    path.file_stem().is_some_and(|stem| stem == name)
        || path.file_name().is_some_and(|file| file == "mod.rs")
            && path.parent().is_some_and(|folder| folder.ends_with(name))
}

fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split(|c: char| !c.is_alphanumeric() && c != '_').filter(|word| !word.is_empty())
}

/// Names and single marks of a Rust file, without comments and texts; the words of texts go into `texts`, and so do names.
fn tokens<'a>(text: &'a str, texts: &mut BTreeSet<String>) -> Vec<&'a str> {
    let mut tokens = Vec::new();
    let mut rest = text;
    while let Some(c) = rest.chars().next() {
        let length = if c.is_alphanumeric() || c == '_' {
            let end = rest.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(rest.len());
            raw_text(rest, end).unwrap_or(end)
        } else {
            match c {
                '/' if rest.starts_with("//") => rest.find('\n').unwrap_or(rest.len()),
                '/' if rest.starts_with("/*") => rest.find("*/").map_or(rest.len(), |end| end + 2),
                '"' => text_end(rest),
                '\'' => char_end(rest),
                _ => c.len_utf8(),
            }
        };
        let token = &rest[..length];
        if token.ends_with('"') || token.ends_with('#') && length > 1 {
            texts.extend(words(token).map(str::to_owned));
        } else if !c.is_whitespace() && !token.starts_with("//") && !token.starts_with("/*") {
            if c.is_alphanumeric() || c == '_' {
                texts.insert(token.to_owned());
            }
            tokens.push(token);
        }
        rest = &rest[length..];
    }
    tokens
}

/// The end of `r"..."` or `r#"..."#`, if that is what begins here with a name of that length.
fn raw_text(rest: &str, name: usize) -> Option<usize> {
    if !matches!(&rest[..name], "r" | "br" | "cr") {
        return None;
    }
    let marks = rest[name..].len() - rest[name..].trim_start_matches('#').len();
    let begin = name + marks + 1;
    rest[name + marks..].strip_prefix('"')?;
    let close = format!("\"{}", "#".repeat(marks));
    rest[begin..].find(&close).map(|end| begin + end + close.len())
}

/// The end of `"..."`.
fn text_end(rest: &str) -> usize {
    let mut escaped = false;
    for (at, c) in rest.char_indices().skip(1) {
        if escaped {
            escaped = false;
        } else if c == '"' {
            return at + 1;
        } else {
            escaped = c == '\\';
        }
    }
    rest.len()
}

/// The end of `'c'`; of a lifetime only its mark.
fn char_end(rest: &str) -> usize {
    let mut chars = rest.char_indices().skip(1);
    match (chars.next(), chars.next()) {
        (Some((_, '\\')), Some((at, c))) => {
            let from = at + c.len_utf8();
            rest[from..].find('\'').map_or(1, |end| from + end + 1)
        }
        (Some(_), Some((at, '\''))) => at + 1,
        _ => 1,
    }
}

fn defined(tokens: &[&str]) -> Defined {
    let mut defined = Defined::default();
    let is_name = |token: &str| token.starts_with(|c: char| c.is_alphabetic() || c == '_');
    // For each open brace the parentheses that are open in it.
    let mut braces = vec![0_usize];
    // How many braces are open inside of the enums that are.
    let mut enums = Vec::new();
    let mut enum_follows = false;
    for (at, &token) in tokens.iter().enumerate() {
        let before = at.checked_sub(1).map_or("", |at| tokens[at]);
        let after = tokens.get(at + 1).copied().unwrap_or_default();
        match token {
            "{" => {
                braces.push(0);
                if std::mem::take(&mut enum_follows) {
                    enums.push(braces.len());
                }
            }
            "}" => {
                enums.pop_if(|depth| *depth == braces.len());
                braces.pop();
            }
            "(" | ")" => {
                if let Some(open) = braces.last_mut() {
                    *open = if token == "(" { *open + 1 } else { open.saturating_sub(1) };
                }
            }
            "enum" => enum_follows = true,
            "impl" if ["", "}", ";", "{", "]", "unsafe"].contains(&before) => {
                let head = tokens[at + 1..].iter().take_while(|token| !["{", ";", "where"].contains(token));
                defined.implements.extend(head.filter(|t| is_name(t)).map(|&t| t.to_owned()));
            }
            name if is_name(name) => {
                let item = ITEMS.contains(&before) && !ITEMS.contains(&name);
                let of_macro = before == "!" && at > 1 && tokens[at - 2] == "macro_rules";
                // Not of a function's parameters.
                let outside = braces.last() == Some(&0);
                let begins = outside && ["{", ",", ";", "]", ")", "pub"].contains(&before);
                let field = begins && after == ":" && tokens.get(at + 2) != Some(&":");
                let in_enum = enums.last() == Some(&braces.len());
                let variant = in_enum && begins && ["(", "{", ",", "=", "}"].contains(&after);
                if item && OWNERS.contains(&before) {
                    defined.owners.insert(name.to_owned());
                }
                if item || of_macro || field || variant {
                    defined.names.insert(name.to_owned());
                }
            }
            _ => {}
        }
    }
    defined
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &str = r##"
//! `Missing` and `gone` are in a comment only.
pub struct Store<T> { /* also */ pub(crate) kept: T, #[serde(default)] other: u8 }
pub enum Verdict { #[default] True, False { since: u8 }, Unknown(String) }
impl<T: Clone> Store<T> {
    pub const fn insert(&self, object: T) -> bool { called(object, '"', 'x', "in_a_text \" {") }
    const LIMIT: usize = 3;
}
impl Watched for Verdict { type Item<'a> = &'a str; }
macro_rules! table { () => { r#"raw " text_of_it"# } }
"##;

    fn symbols() -> Symbols {
        let files = [
            ("crates/a/Cargo.toml".into(), "[package]\nname = \"coppice-a\"\n".to_owned()),
            ("crates/a/src/store.rs".into(), FILE.to_owned()),
            (
                "crates/a/src/plan/mod.rs".into(),
                "use jiff::Timestamp; pub fn steady() { Timestamp::now() }".to_owned(),
            ),
            ("docs/a.md".into(), "in_a_page".to_owned()),
            ("Makefile".into(), "FUZZ_SECONDS ?= 300".to_owned()),
        ];
        Symbols::of(&files, "name = \"coppice-a\"\nname = \"tokio-util\"\n")
    }

    #[test]
    fn items_fields_and_variants_are_defined_and_uses_are_not() {
        let symbols = symbols();
        let here = |names: &[&str]| symbols.defines(&["crates/a/src/store.rs".into()], names);
        for name in
            ["Store", "kept", "other", "Verdict", "True", "False", "since", "Unknown", "insert", "LIMIT"]
        {
            assert!(here(&[name]), "{name}");
        }
        assert!(here(&["Item"]) && here(&["table"]) && here(&["Watched", "Verdict"]));
        for name in ["called", "object", "Missing", "gone", "in_a_text", "String", "default", "steady"] {
            assert!(!here(&[name]), "{name}");
        }
        assert!(symbols.is_defined("steady") && !symbols.is_defined("called"));
    }

    #[test]
    fn words_of_code_texts_and_other_files_count_and_those_of_comments_and_pages_do_not() {
        let symbols = symbols();
        assert!(["called", "in_a_text", "text_of_it", "FUZZ_SECONDS"].iter().all(|w| symbols.is_word(w)));
        assert!(!["Missing", "gone", "also", "in_a_page"].iter().any(|w| symbols.is_word(w)));
    }

    #[test]
    fn paths_lead_to_members_modules_and_other_crates() {
        let symbols = symbols();
        let leads = |path: &str| symbols.leads_somewhere(&path.split("::").collect::<Vec<_>>());
        for path in ["Store::insert", "Verdict::False", "store::LIMIT", "plan::steady", "coppice_a::steady"] {
            assert!(leads(path), "{path}");
        }
        assert!(leads("coppice_a::plan::steady") && leads("tokio_util::anything") && leads("std::x"));
        assert!(leads("Timestamp::now"), "imported");
        for path in [
            "Store::remove",
            "Store::steady",
            "plan::insert",
            "coppice_a::gone",
            "Gone::insert",
            "Other::now",
        ] {
            assert!(!leads(path), "{path}");
        }
    }
}
