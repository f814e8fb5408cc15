//! Hazards that comments cite by number (H and digits) have an entry on their page.

use std::collections::BTreeSet;
use std::path::Path;

use anyhow::Result;

use crate::sources::{self, File};

/// The page, with a row `| H1 | ... |` for each hazard.
const PAGE: &str = "docs/hazards.md";

/// Citations without an entry, and entries that contradict each other.
pub(crate) fn check(root: &Path) -> Result<Vec<String>> {
    Ok(judge(&sources::files(root)?))
}

fn judge(files: &[File]) -> Vec<String> {
    let Some((_, page)) = files.iter().find(|(path, _)| path == Path::new(PAGE)) else {
        return vec![format!("{PAGE} is missing: comments cite hazards that it has to describe")];
    };
    let mut findings = Vec::new();
    let mut entries = BTreeSet::new();
    for (at, line) in page.lines().enumerate() {
        let number = line.strip_prefix("| ").and_then(|row| row.split(" |").next());
        if let Some(number) = number.filter(|cell| cited(cell).eq([*cell]))
            && !entries.insert(number)
        {
            findings.push(format!("{PAGE}:{}: {number} has two entries: keep one", at + 1));
        }
    }
    for (path, text) in files.iter().filter(|(path, _)| is_cited_in(path)) {
        for (at, line) in text.lines().enumerate() {
            let prose = if path.extension().is_some_and(|e| e == "rs") { comment(line) } else { line };
            for number in cited(prose).filter(|number| !entries.contains(number)) {
                findings.push(format!(
                    "{}:{}: {number} has no entry in {PAGE}: add a row, or cite another hazard",
                    path.display(),
                    at + 1
                ));
            }
        }
    }
    findings
}

/// Rust, and the pages about it.
fn is_cited_in(path: &Path) -> bool {
    path.extension().is_some_and(|e| e == "rs" || (e == "md" && path.starts_with("docs")))
}

/// What a line of Rust says to people. A `//` in a text counts as well: it does no harm.
fn comment(line: &str) -> &str {
    line.find("//").map_or("", |at| &line[at..])
}

/// The hazards that a text names.
fn cited(text: &str) -> impl Iterator<Item = &str> {
    let words = text.split(|c: char| !c.is_alphanumeric() && c != '_');
    words.filter(|word| {
        let digits = word.strip_prefix('H').unwrap_or_default();
        !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROWS: &str = "| # | Hazard |\n| --- | --- |\n| H1 | A name. |\n| H2 | As H1. |\n";

    fn findings(page: &str, path: &str, text: &str) -> Vec<String> {
        judge(&[(PAGE.into(), page.to_owned()), (path.into(), text.to_owned())])
    }

    #[test]
    fn a_citation_without_an_entry_is_found() {
        let text = format!("/// Read again (H1, H2).\nfn f() {{}} // {}\n", "H3");
        assert_eq!(
            findings(ROWS, "verification/tests/src/a.rs", &text),
            [format!(
                "verification/tests/src/a.rs:2: {} has no entry in docs/hazards.md: add a row, or cite another hazard",
                "H3"
            )]
        );
        assert_eq!(findings(ROWS, "docs/a.md", "two seconds, H3").len(), 1);
        assert_eq!(findings(&format!("{ROWS}\nSee H3.\n"), "a.rs", "").len(), 1, "the page cites itself");
    }

    #[test]
    fn code_and_longer_words_cite_nothing() {
        let text = "const H9: u8 = 9;\nlet s = \"H9\"; // SHA9, H9x, x_H9, HTTP\n";
        assert_eq!(findings(ROWS, "a.rs", text), [""; 0]);
        assert_eq!(findings(ROWS, "Cargo.toml", "# H9"), [""; 0]);
    }

    #[test]
    fn a_number_has_one_entry() {
        let found = findings(&format!("{ROWS}| H1 | Another. |\n"), "a.rs", "");
        assert_eq!(found, ["docs/hazards.md:5: H1 has two entries: keep one"]);
        assert_eq!(judge(&[]).len(), 1, "no page");
    }
}
