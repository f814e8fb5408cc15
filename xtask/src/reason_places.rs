//! In which files of the code each reason is given, found by its name.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use crate::sources::File;

/// Files by the name of the reason.
pub(crate) type Places = BTreeMap<String, BTreeSet<PathBuf>>;

/// Before the name of a reason.
const PREFIX: &str = "Reason::";
/// Crates that define, show or play reasons, and give none.
const OTHERS: [&str; 6] = ["api", "cli", "messages", "mutants", "scripted", "sim"];
/// Where the tests of a file begin.
const TESTS: &str = "#[cfg(test)]\nmod tests {";

/// For each reason the files that name it in an expression, tests apart. Those that only match it or compare with it do not give it.
pub(crate) fn places(files: &[File]) -> Places {
    let mut places = Places::new();
    for (path, text) in files.iter().filter(|(path, _)| may_give(path)) {
        let code = without_comments_and_tests(text);
        for (at, _) in code.match_indices(PREFIX) {
            let (before, rest) = (&code[..at], &code[at + PREFIX.len()..]);
            let end = rest.find(|c: char| !c.is_ascii_alphanumeric()).unwrap_or(rest.len());
            let (name, after) = rest.split_at(end);
            let of_another_type = before.ends_with(|c: char| c.is_ascii_alphanumeric());
            if !of_another_type && !is_pattern(before, after) {
                places.entry(name.to_owned()).or_default().insert(path.clone());
            }
        }
    }
    places
}

/// Whether it is the source of a crate that gives reasons, and neither a test nor a bug on purpose.
fn may_give(path: &Path) -> bool {
    let path = path.to_string_lossy();
    let Some((member, file)) = path.strip_prefix("crates/").and_then(|path| path.split_once("/src/")) else {
        return false;
    };
    let Some(stem) = file.strip_suffix(".rs") else { return false };
    let is_test = stem.ends_with("tests") || stem.contains("tests/") || stem.starts_with("test_");
    !OTHERS.contains(&member) && !is_test && !stem.ends_with("mutant_behavior")
}

fn without_comments_and_tests(text: &str) -> String {
    let code = text.split(TESTS).next().unwrap_or_default();
    code.lines().map(|line| line.split("//").next().unwrap_or_default()).collect::<Vec<_>>().join("\n")
}

/// Whether a reason between these is matched or compared with.
fn is_pattern(before: &str, after: &str) -> bool {
    let before = before.trim_end();
    let before = before.strip_suffix("Some(").map_or(before, str::trim_end);
    let one_of_several = before.strip_suffix('|').is_some_and(|rest| rest.ends_with(char::is_whitespace));
    let compared = ["==", "!="].iter().any(|operator| before.ends_with(operator));
    one_of_several || compared || is_before_arrow(after) || is_in_matches(before)
}

/// Whether this is the rest of the pattern of an arm.
fn is_before_arrow(rest: &str) -> bool {
    if ends_pattern(rest) {
        return true;
    }
    let mut depth = 0_usize;
    for (at, c) in rest.char_indices() {
        match c {
            '(' | '[' | '{' => depth += 1,
            ')' | ']' | '}' if depth > 0 => depth -= 1,
            // The end of a block, unless it is that of the fields of a pattern.
            '}' if !rest[at + 1..].trim_start().starts_with([')', ',', '=', '|']) => return false,
            ')' | ']' | '}' if ends_pattern(&rest[at + 1..]) => return true,
            // The end of a statement, or the next arm.
            ';' | '=' if depth == 0 => return false,
            _ => {}
        }
    }
    false
}

fn ends_pattern(rest: &str) -> bool {
    let rest = rest.trim_start();
    ["=>", "| ", "if "].iter().any(|follows| rest.starts_with(follows))
}

/// Whether `matches!(` is still open here.
fn is_in_matches(before: &str) -> bool {
    let Some((_, inside)) = before.rsplit_once("matches!(") else { return false };
    let mut depth = 0_usize;
    for c in inside.chars() {
        match c {
            '(' => depth += 1,
            ')' if depth == 0 => return false,
            ')' => depth -= 1,
            _ => {}
        }
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    fn places_in(path: &str, text: &str) -> Vec<String> {
        places(&[(path.into(), text.to_owned())]).into_keys().collect()
    }

    #[test]
    fn what_is_given_is_found_and_what_is_matched_is_not() {
        let given = "fn f(x: Reason) -> Reason {\n    g(Reason::A, Some(Reason::B)).unwrap_or_else(|_| Reason::C)\n}\n";
        assert_eq!(places_in("crates/lifecycle/src/a.rs", given), ["A", "B", "C"]);
        let matched = "match x {\n    Reason::A | Reason::B => 1,\n    Some(Reason::C) if y => 2,\n    | Reason::D => 3,\n    (Reason::K, _) if z => 4,\n}\n\
                       let _ = x == Reason::E || x != Some(Reason::F) || matches!(x, Some(Reason::G) | None);\n\
                       // Reason::H\nlet _ = HealthReason::I;\n#[cfg(test)]\nmod tests {\n    f(Reason::J);\n}\n";
        assert!(places_in("crates/lifecycle/src/a.rs", matched).is_empty());
    }

    #[test]
    fn what_follows_a_match_is_found() {
        let text = "if matches!(x, Reason::A) { Reason::B } else { match y { Z => Some(Reason::C), _ => None } }\nif z {}";
        assert_eq!(places_in("crates/trees/src/subnamespace/plan.rs", text), ["B", "C"]);
    }

    #[test]
    fn what_shows_reasons_and_what_tests_them_gives_none() {
        for path in
            ["crates/cli/src/a.rs", "crates/lifecycle/src/plan_tests.rs", "crates/lifecycle/tests/a.rs"]
        {
            assert!(places_in(path, "f(Reason::A)").is_empty(), "{path}");
        }
    }
}
