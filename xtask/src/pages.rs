//! What pages name is there: paths, links, and names of the code.
//!
//! Whether a code span is a path or a name of the code is seen by its form, or by what stands beside it: `judge_ttl` after
//! `condition.rs` is a name in that file. Plain words are what they may be: fields of YAML, words of Kubernetes.

mod markdown;
mod symbols;

use std::collections::BTreeSet;
use std::fs;
use std::path::{Component, Path, PathBuf};

use anyhow::{Context as _, Result};

use self::markdown::{Page, Span};
use self::symbols::Symbols;
use crate::sources::{self, File};

/// Pages about the code: a code span with a capital letter is a type of ours there, or one that our code uses.
const ABOUT_CODE: [&str; 5] = [
    "docs/ARCHITECTURE.md",
    "docs/crates.md",
    "docs/life-of-a-deletion.md",
    "CONTRIBUTING.md",
    "docs/decisions/",
];
/// What a file's name ends in, if a name alone is a path.
const ENDINGS: [&str; 3] = [".rs", ".md", ".toml"];
/// The folders of crates.
const CRATES: [&str; 2] = ["crates", "verification"];
/// What is in a crate's folder, if a path begins with the name of the crate's folder.
const IN_A_CRATE: [&str; 3] = ["src", "tests", "fuzz"];

/// What pages name and what is not there.
pub(crate) fn check(root: &Path) -> Result<Vec<String>> {
    let lock = fs::read_to_string(root.join("Cargo.lock")).context("read Cargo.lock")?;
    Ok(judge(&sources::files(root)?, &lock))
}

fn judge(files: &[File], lock: &str) -> Vec<String> {
    let symbols = Symbols::of(files, lock);
    let pages: Vec<(&Path, Page)> = files
        .iter()
        .filter(|(path, _)| is_page(path))
        .map(|(path, text)| (path.as_path(), markdown::parse(text)))
        .collect();
    let tree = Tree::of(files);
    let mut findings = Vec::new();
    for (path, page) in &pages {
        for (line, target) in &page.links {
            let wrong = dead(path, target, &tree, &pages);
            findings.extend(wrong.map(|wrong| format!("{}:{line}: {target}: {wrong}", path.display())));
        }
        let names = Names { path, spans: &page.spans, tree: &tree, symbols: &symbols };
        for at in 0..page.spans.len() {
            let span = &page.spans[at];
            let wrong = names.missing(at);
            findings.extend(
                wrong.map(|wrong| format!("{}:{}: `{}` {wrong}", path.display(), span.line, span.text)),
            );
        }
    }
    findings
}

/// Every page, wherever it is. A changelog also names what is there no longer; reports of quick measurements are not committed.
fn is_page(path: &Path) -> bool {
    let other = path == Path::new("CHANGELOG.md") || path.starts_with("verification/bench/results");
    path.extension().is_some_and(|e| e == "md") && !other
}

/// Files and folders.
struct Tree(BTreeSet<PathBuf>);

impl Tree {
    fn of(files: &[File]) -> Self {
        let mut all = BTreeSet::new();
        for (path, _) in files {
            all.extend(path.ancestors().filter(|p| *p != Path::new("")).map(Path::to_owned));
        }
        // No text, and not written by hand, but there.
        all.insert("Cargo.lock".into());
        Self(all)
    }

    /// Whether a code span is a path of this repository, as far as one can see without looking.
    fn is_path(&self, text: &str) -> bool {
        let plain = text.chars().all(|c| c.is_ascii_alphanumeric() || "_-./".contains(c));
        let mut parts = text.split('/');
        let (first, second) = (parts.next().unwrap_or_default(), parts.next());
        let folder = text.strip_suffix('/').is_some_and(|folder| {
            !folder.is_empty() && folder.chars().all(|c| c.is_ascii_lowercase() || "_/".contains(c))
        });
        let top = second.is_some() && self.0.contains(Path::new(first));
        let in_crate = second.is_some_and(|second| IN_A_CRATE.contains(&second))
            && CRATES.iter().any(|folder| self.0.contains(&Path::new(folder).join(first)));
        let name = ENDINGS.iter().any(|end| text.strip_suffix(end).is_some_and(|stem| !stem.is_empty()));
        plain && !first.is_empty() && (folder || top || in_crate || name)
    }

    /// What a path stands for: below the root, below a folder of crates, beside the page; otherwise whatever ends like it, in the crates
    /// of the heading if it names some.
    fn resolve(&self, path: &str, page: &Path, heading: &[String]) -> Vec<PathBuf> {
        let path = Path::new(path);
        let beside = page.parent().unwrap_or(Path::new("")).join(path);
        let below = CRATES.map(|folder| Path::new(folder).join(path));
        if let Some(found) =
            [path.to_owned()].into_iter().chain(below).chain([beside]).find_map(|path| self.0.get(&path))
        {
            return vec![found.clone()];
        }
        let crates: Vec<&str> = heading
            .iter()
            .map(String::as_str)
            .filter(|h| CRATES.iter().any(|folder| Path::new(h).starts_with(folder)))
            .collect();
        let ends_so = self.0.iter().filter(|known| known.ends_with(path));
        ends_so
            .filter(|known| crates.is_empty() || crates.iter().any(|c| known.starts_with(c)))
            .cloned()
            .collect()
    }
}

/// What is wrong with a link, if it leads nowhere in this repository.
fn dead(page: &Path, target: &str, tree: &Tree, pages: &[(&Path, Page)]) -> Option<String> {
    if target.contains("://") || target.starts_with("mailto:") {
        return None;
    }
    let (path, anchor) = target.split_once('#').map_or((target, None), |(path, anchor)| (path, Some(anchor)));
    let place = if path.is_empty() {
        page.to_owned()
    } else {
        normal(&page.parent().unwrap_or(Path::new("")).join(path))
    };
    if place != Path::new("") && !tree.0.contains(&place) {
        return Some(format!("there is no {}: correct the link", place.display()));
    }
    let there = pages.iter().find(|(path, _)| *path == place).map(|(_, page)| page)?;
    let anchor = anchor.filter(|anchor| !there.anchors.iter().any(|known| known == anchor))?;
    Some(format!("{} has no heading for #{anchor}: correct the link", place.display()))
}

/// Without `.` and `..`.
fn normal(path: &Path) -> PathBuf {
    let mut normal = PathBuf::new();
    for part in path.components() {
        match part {
            Component::ParentDir => drop(normal.pop()),
            Component::CurDir => {}
            part => normal.push(part),
        }
    }
    normal
}

/// The code spans of one page.
struct Names<'a> {
    path: &'a Path,
    spans: &'a [Span],
    tree: &'a Tree,
    symbols: &'a Symbols,
}

impl Names<'_> {
    /// What a code span names that is not there, and what to do.
    fn missing(&self, at: usize) -> Option<String> {
        let span = &self.spans[at];
        let text = span.text.as_str();
        if self.tree.is_path(text) {
            let found = self.tree.resolve(text, self.path, &span.heading);
            let wrong = "is no file or folder of this repository: write the path that it has now";
            return found.is_empty().then(|| wrong.to_owned());
        }
        if let Some((names, file)) = self.names_in_a_file(at) {
            let files = self.tree.resolve(&file.text, self.path, &file.heading);
            // A file that is not there is its own finding.
            let defined = files.is_empty() || self.symbols.defines(&files, &names);
            return (!defined).then(|| format!("is not defined in {}: name what is there now", file.text));
        }
        if let Some(function) = text.strip_suffix("()").filter(|name| is_name(name)) {
            let wrong = "is no function of this repository: write the name that it has now";
            return (!self.symbols.is_defined(function)).then(|| wrong.to_owned());
        }
        if let Some(stem) = text.strip_suffix("...").filter(|stem| is_name(stem)) {
            let wrong = "begins no name in the sources: write the name that it has now";
            return (!self.symbols.begins_a_word(stem)).then(|| wrong.to_owned());
        }
        let known = match names(text)?.as_slice() {
            [name] if is_snake(name) => self.symbols.is_word(name) || self.is_metric(name),
            [name] if is_type(name) && self.is_about_code() => self.symbols.is_word(name),
            [_] => true,
            _ if text.contains("::") => self.symbols.leads_somewhere(&names(text)?),
            _ => true,
        };
        let wrong =
            "is not in the sources: write the name that it has now, or the whole path of what is not ours";
        (!known).then(|| wrong.to_owned())
    }

    /// The names that a code span has in a file, and that file: "`a.rs` `x`, `y`" or "`x` in `a.rs`".
    fn names_in_a_file(&self, at: usize) -> Option<(Vec<&str>, &Span)> {
        let named = names(&self.spans[at].text)?;
        let gap = |at: usize| self.spans.get(at).and_then(|span| span.gap.as_deref());
        let is_in_the_next = |at: usize| gap(at + 1) == Some(" in ") && is_rust(&self.spans[at + 1]);
        if is_in_the_next(at) {
            return Some((named, &self.spans[at + 1]));
        }
        let mut first = at;
        while [Some(", "), Some(" and "), Some(", and ")].contains(&gap(first)) {
            first -= 1;
            let text = &self.spans[first].text;
            names(text).filter(|_| !is_in_the_next(first) && !self.tree.is_path(text))?;
        }
        let file = first.checked_sub(1).map(|before| &self.spans[before])?;
        (gap(first) == Some(" ") && is_rust(file)).then_some((named, file))
    }

    fn is_about_code(&self) -> bool {
        ABOUT_CODE.iter().any(|page| self.path.starts_with(page))
    }

    /// Metrics are registered without the prefix that all of them have, and without their unit.
    fn is_metric(&self, name: &str) -> bool {
        let stem = name.strip_prefix("coppice_");
        let stem = stem.map(|stem| stem.trim_end_matches("_total"));
        let stem = stem.map(|stem| stem.trim_end_matches("_seconds").trim_end_matches("_bytes"));
        stem.is_some_and(|stem| self.symbols.is_word(stem))
    }
}

fn is_rust(span: &Span) -> bool {
    Path::new(&span.text).extension().is_some_and(|e| e == "rs")
}

fn is_name(text: &str) -> bool {
    text.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
        && text.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
}

/// A name of several words, such as `judge_ttl` or `MAX_MANAGERS`.
fn is_snake(name: &str) -> bool {
    name.trim_matches('_').contains('_')
}

/// A name in camel case, such as `Permit`.
fn is_type(name: &str) -> bool {
    name.starts_with(|c: char| c.is_ascii_uppercase()) && name.contains(|c: char| c.is_ascii_lowercase())
}

/// The parts of what may be a name of Rust: `plan`, `Fact::Known.since`, `Watched for PodFacts`, `crds()`.
fn names(text: &str) -> Option<Vec<&str>> {
    let text = text.strip_suffix("()").unwrap_or(text);
    let implemented = text.split(" for ");
    let parts: Vec<&str> =
        implemented.flat_map(|part| part.split("::")).flat_map(|part| part.split('.')).collect();
    parts.iter().all(|part| is_name(part)).then_some(parts)
}

#[cfg(test)]
mod tests;
