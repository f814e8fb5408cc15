//! The tests that the security model names exist: whoever doubts a measure can find what fails without it.

use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result};

const PAGE: &str = "docs/security.md";
/// The heading of the cells that name tests.
const COLUMN: &str = "Test";
/// How a paragraph begins that names tests.
const PARAGRAPHS: [&str; 2] = ["Test: ", "Tests: "];

/// What is named and does not exist.
pub(crate) fn check(root: &Path) -> Result<Vec<String>> {
    let text = fs::read_to_string(root.join(PAGE)).with_context(|| format!("read {PAGE}"))?;
    let source = |path: &str| {
        let places = [root.join("crates").join(path), root.join("verification").join(path), root.join(path)];
        places.iter().find_map(|place| fs::read_to_string(place).ok())
    };
    let mut findings = Vec::new();
    for (line, text) in named(&text) {
        findings
            .extend(missing(&text, source).into_iter().map(|finding| format!("{PAGE}:{line}: {finding}")));
    }
    Ok(findings)
}

/// The texts that name tests, each with the number of its line.
fn named(page: &str) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    let mut column = None;
    let mut lines = page.lines().zip(1..).peekable();
    while let Some((line, number)) = lines.next() {
        if let Some(row) = line.strip_prefix('|') {
            let cells: Vec<&str> = row.split('|').map(str::trim).collect();
            column = column.or_else(|| cells.iter().position(|cell| *cell == COLUMN));
            found.extend(column.and_then(|at| cells.get(at)).map(|cell| (number, (*cell).to_owned())));
            continue;
        }
        column = None;
        let Some(from) = PARAGRAPHS.iter().find_map(|begin| line.find(begin)) else { continue };
        let mut paragraph = line[from..].to_owned();
        while let Some((next, _)) = lines.next_if(|(next, _)| !next.trim().is_empty()) {
            paragraph.push(' ');
            paragraph.push_str(next);
        }
        found.push((number, paragraph));
    }
    found
}

/// A file that a text names.
struct File<'a> {
    path: &'a str,
    /// What is in it, if it exists.
    source: Option<String>,
    /// How many tests of it are named.
    tests: usize,
}

impl File<'_> {
    /// A file is long: which test is meant has to be said.
    fn bare(&self) -> Option<String> {
        let bare = self.source.is_some() && self.tests == 0;
        bare.then(|| format!("{} is named without a test of it", self.path))
    }
}

/// What is wrong with a text that names tests: each has to stand behind the path of its file.
fn missing(text: &str, mut source: impl FnMut(&str) -> Option<String>) -> Vec<String> {
    let mut findings = Vec::new();
    let mut file: Option<File<'_>> = None;
    // What is in backticks: every other part.
    for word in text.split('`').skip(1).step_by(2) {
        if Path::new(word).extension().is_some_and(|extension| extension == "rs") {
            let next = File { path: word, source: source(word), tests: 0 };
            if next.source.is_none() {
                findings.push(format!("there is no file {word} (below the top, crates/ or verification/)"));
            }
            findings.extend(file.replace(next).and_then(|before| before.bare()));
        } else if word.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_') {
            let Some(file) = &mut file else {
                findings.push(format!("{word} is named without its file"));
                continue;
            };
            file.tests += 1;
            if file.source.as_ref().is_some_and(|text| !text.contains(&format!("fn {word}("))) {
                findings.push(format!("{} has no test {word}", file.path));
            }
        }
    }
    findings.extend(file.and_then(|last| last.bare()));
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    fn source(path: &str) -> Option<String> {
        (path == "a/src/b.rs").then(|| "#[test]\nfn it_holds() {}\nfn it_holds_twice() {}\n".to_owned())
    }

    #[test]
    fn tests_that_do_not_exist_or_cannot_be_found_are_named() {
        for (text, expected) in [
            ("`a/src/b.rs` `it_holds`, `it_holds_twice`; see `make lint`", &[][..]),
            ("", &[]),
            ("`it_holds`", &["it_holds is named without its file"]),
            ("`a/src/b.rs` `it_hold`", &["a/src/b.rs has no test it_hold"]),
            ("`b.rs` `it_holds`", &["there is no file b.rs (below the top, crates/ or verification/)"]),
            ("`a/src/b.rs`; `a/src/b.rs` `it_holds`", &["a/src/b.rs is named without a test of it"]),
            ("`a/src/b.rs`", &["a/src/b.rs is named without a test of it"]),
        ] {
            assert_eq!(missing(text, source), expected, "{text}");
        }
    }

    #[test]
    fn tests_are_named_in_a_column_and_in_paragraphs() {
        let page = "| Threat | Test |\n| --- | --- |\n| x `y` | `a` |\n\nText `b`. Test: `c`\n`d`.\n\n| Test it | No |\n| `e` | `f` |\n";
        let found: Vec<_> = named(page).into_iter().filter(|(_, text)| text.contains('`')).collect();
        assert_eq!(found, [(3, "`a`".to_owned()), (5, "Test: `c` `d`.".to_owned())]);
    }
}
