//! What must not be written anywhere: calls that are dangerous here, sleeping tests, traces of somebody's machine, words that the
//! documentation of Kubernetes would not use; and files too long to be read.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use serde::Deserialize;

/// A file longer than this needs an argument, in the list of exceptions.
const MAX_LINES: usize = 600;
/// What is not sources. In a worktree `.git` is a file, with a path of the machine in it.
const SKIPPED: [&str; 2] = [".git", "node_modules"];
/// What cargo builds: in the root alone, since a module may have this name.
const BUILT: &str = "target";
/// Files that are not written by hand.
const LOCKS: [&str; 2] = ["Cargo.lock", "go.sum"];
/// This file, which has to name what it bans.
const THIS: &str = "xtask/src/sources.rs";
/// Where exceptions are.
const EXCEPTIONS: &str = "xtask/allow.yaml";

/// Where a text is banned.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Where {
    /// In every line of Rust that is not a comment.
    Rust,
    /// The same, in tests only.
    Tests,
    /// In every line of every file, where a path begins.
    Paths,
    /// In source code, manifests and documentation, as a whole word.
    Words,
}

/// A text that must not be written.
struct Ban {
    text: &'static str,
    location: Where,
    why: &'static str,
}

const fn ban(text: &'static str, location: Where, why: &'static str) -> Ban {
    Ban { text, location, why }
}

const BANS: [Ban; 24] = [
    ban("any_semantic", Where::Rust, "a list at resource version 0 may go back in time"),
    ban("ListSemantic::Any", Where::Rust, "a list at resource version 0 may go back in time"),
    ban("resourceVersion=0", Where::Rust, "a list at resource version 0 may go back in time"),
    ban(
        "generateName",
        Where::Rust,
        "a repeated create must not make a second object: names are deterministic",
    ),
    ban(
        "generate_name",
        Where::Rust,
        "a repeated create must not make a second object: names are deterministic",
    ),
    ban("/finalize", Where::Rust, "finalizers of namespaces are not ours to remove"),
    ban("delete_collection", Where::Rust, "a deletion names one object, with its uid and revision"),
    ban(
        "Semaphore::const_new",
        Where::Rust,
        "replicas of other runs share the process of a simulation: what waits belongs to its replica",
    ),
    ban("Result<Result<", Where::Rust, "an error is one enum that says what happened"),
    ban("thread::sleep", Where::Rust, "wait for a condition, not for a time"),
    ban("tokio::time::sleep", Where::Tests, "wait for a condition, not for a time"),
    ban("/work/", Where::Paths, "a path of somebody's machine"),
    ban("/root/", Where::Paths, "a path of somebody's machine"),
    ban("afresh", Where::Words, "write \"again\""),
    ban("anew", Where::Words, "write \"again\""),
    ban("shall", Where::Words, "use the present tense"),
    ban("told", Where::Words, "owners are notified, programs read or receive"),
    ban("wish", Where::Words, "say what is asked for, or spec"),
    ban("wishes", Where::Words, "say what is asked for"),
    ban("news", Where::Words, "say what has changed"),
    ban("unheard", Where::Words, "messages are undelivered"),
    ban("asleep", Where::Words, "workloads are scaled down"),
    ban("booked", Where::Words, "the budget is reserved"),
    ban("booking", Where::Words, "write \"reservation\""),
];
/// The extensions of files in which words are banned.
const WITH_WORDS: [&str; 5] = ["rs", "md", "go", "py", "yaml"];

/// The name of the rule about long files.
const LENGTH: &str = "length";

/// One exception, with its reason.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Exception {
    /// The banned text, or `length`.
    rule: String,
    /// The file.
    path: String,
    /// Why it is right there.
    reason: String,
}

/// What is written that must not be.
pub(crate) fn check(root: &Path) -> Result<Vec<String>> {
    let path = root.join(EXCEPTIONS);
    let text = fs::read_to_string(&path).with_context(|| format!("read {}", path.display()))?;
    let exceptions: Vec<Exception> = serde_yaml::from_str(&text).context(EXCEPTIONS)?;
    Ok(check_file(&files(root)?, &exceptions))
}

/// A file's path below the root, and its text.
pub(crate) type File = (PathBuf, String);

/// Every file that is text, in the order of paths.
pub(crate) fn files(root: &Path) -> Result<Vec<File>> {
    let mut files = Vec::new();
    collect(root, Path::new(""), &mut files)?;
    files.sort();
    Ok(files)
}

fn collect(root: &Path, folder: &Path, files: &mut Vec<File>) -> Result<()> {
    for entry in fs::read_dir(root.join(folder)).with_context(|| format!("read {}", folder.display()))? {
        let entry = entry?;
        let name = entry.file_name();
        let path = folder.join(&name);
        let name = name.to_string_lossy();
        if SKIPPED.contains(&&*name) || path == Path::new(BUILT) {
            continue;
        }
        if entry.file_type()?.is_dir() {
            collect(root, &path, files)?;
        } else if entry.file_type()?.is_file() && !LOCKS.contains(&&*name) {
            // What is not text cannot be read by anybody either.
            if let Ok(text) = String::from_utf8(fs::read(root.join(&path))?) {
                files.push((path, text));
            }
        }
    }
    Ok(())
}

fn check_file(files: &[File], exceptions: &[Exception]) -> Vec<String> {
    let mut findings = Vec::new();
    let mut used = vec![false; exceptions.len()];
    for (path, text) in files.iter().filter(|(path, _)| path != Path::new(THIS)) {
        let mut found = banned(path, text);
        found.extend(too_long(path, text));
        for (rule, finding) in found {
            let excepted = exceptions.iter().position(|e| e.rule == rule && Path::new(&e.path) == path);
            match excepted {
                Some(at) => used[at] = true,
                None => findings.push(format!("{}{finding}", path.display())),
            }
        }
    }
    for (exception, _) in exceptions.iter().zip(used).filter(|(_, used)| !used) {
        findings.push(format!("{EXCEPTIONS}: nothing needs {:?} in {}", exception.rule, exception.path));
    }
    for exception in exceptions.iter().filter(|e| e.reason.trim().is_empty()) {
        findings.push(format!("{EXCEPTIONS}: {:?} in {} has no reason", exception.rule, exception.path));
    }
    findings
}

/// Each finding with the rule that it breaks.
fn banned(path: &Path, text: &str) -> Vec<(&'static str, String)> {
    let is = |extension: &str| path.extension().is_some_and(|e| e == extension);
    // The list of exceptions names what is banned.
    let (rust, words) = (is("rs"), WITH_WORDS.into_iter().any(is) && path != Path::new(EXCEPTIONS));
    let mut in_test = is_test(path);
    let mut found = Vec::new();
    for (number, line) in text.lines().enumerate() {
        in_test |= rust && line.trim() == "mod tests {";
        let comment = line.trim_start().starts_with("//");
        for ban in &BANS {
            let applies = match ban.location {
                Where::Rust => rust && !comment,
                Where::Tests => rust && !comment && in_test,
                Where::Paths => true,
                Where::Words => words,
            };
            let written = match ban.location {
                Where::Rust | Where::Tests => line.contains(ban.text),
                Where::Paths => begins_a_path(line, ban.text),
                Where::Words => has_word(line, ban.text),
            };
            if applies && written {
                found.push((ban.text, format!(":{}: {:?} is banned: {}", number + 1, ban.text, ban.why)));
            }
        }
    }
    found
}

fn is_test(path: &Path) -> bool {
    let in_folder = path.iter().any(|part| part == "tests");
    in_folder || path.file_stem().is_some_and(|stem| stem.to_string_lossy().ends_with("tests"))
}

/// Whether a line has this word, however it begins.
fn has_word(line: &str, word: &str) -> bool {
    line.split(|c: char| !c.is_alphanumeric()).any(|part| part.eq_ignore_ascii_case(word))
}

/// Whether the folder is written as an absolute path, not as a part of a longer one.
fn begins_a_path(line: &str, folder: &str) -> bool {
    line.match_indices(folder).any(|(at, _)| {
        let before = line[..at].chars().next_back();
        !before.is_some_and(|c| c.is_alphanumeric() || "_-.~*}>".contains(c))
    })
}

fn too_long(path: &Path, text: &str) -> Option<(&'static str, String)> {
    let lines = text.lines().count();
    let rust = path.extension().is_some_and(|e| e == "rs");
    (rust && lines > MAX_LINES)
        .then(|| (LENGTH, format!(" has {lines} lines: split it, or give a reason in {EXCEPTIONS}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn findings(path: &str, text: &str) -> Vec<String> {
        check_file(&[(path.into(), text.to_owned())], &[])
    }

    fn exception(rule: &str, path: &str, reason: &str) -> Exception {
        Exception { rule: rule.to_owned(), path: path.to_owned(), reason: reason.to_owned() }
    }

    #[test]
    fn every_ban_can_fail() {
        for ban in &BANS {
            let path = if ban.location == Where::Tests { "a/tests/b.rs" } else { "a/src/b.rs" };
            let found = findings(path, &format!("fn f() {{\n    x(\"{}\");\n}}\n", ban.text));
            assert_eq!(found.len(), 1, "{}: {found:?}", ban.text);
            assert!(found[0].starts_with(&format!("{path}:2: ")), "{found:?}");
        }
    }

    #[test]
    fn comments_may_name_what_is_banned_but_no_machine() {
        assert_eq!(findings("src/b.rs", "// never any_semantic\n"), [""; 0]);
        assert_eq!(findings("src/b.rs", "// see /work/x\n").len(), 1);
        assert_eq!(findings("README.md", "see /root/x\n").len(), 1);
        assert_eq!(findings("README.md", "a/work/b, ~/work/b, $HOME/root/b\n"), [""; 0]);
    }

    #[test]
    fn words_count_as_a_whole_in_prose_and_names() {
        assert_eq!(findings("docs/b.md", "Owners are told.\n").len(), 1);
        assert_eq!(findings("src/b.rs", "/// Shall be.\nfn is_told() {}\n").len(), 2);
        assert_eq!(findings("src/b.rs", "// shallow\n"), [""; 0]);
        for path in ["deploy/b.yaml", "b.go", "b.py"] {
            assert_eq!(findings(path, "a = 'told'\n").len(), 1, "{path}");
        }
        assert_eq!(findings("b.json", "told\n"), [""; 0]);
        assert_eq!(findings(EXCEPTIONS, "- rule: told\n"), [""; 0]);
    }

    #[test]
    fn code_may_sleep_and_its_tests_may_not() {
        let sleep = "    tokio::time::sleep(pause).await;\n";
        assert_eq!(findings("src/b.rs", sleep), [""; 0]);
        assert_eq!(findings("src/b.rs", &format!("{sleep}mod tests {{\n{sleep}}}\n")).len(), 1);
        assert_eq!(findings("src/b/tests.rs", sleep).len(), 1);
        assert_eq!(findings("src/state_tests.rs", sleep).len(), 1);
    }

    #[test]
    fn a_worktree_is_a_checkout() {
        let root = tempfile::tempdir().unwrap();
        fs::write(root.path().join(".git"), "gitdir: /work/x\n").unwrap();
        fs::create_dir(root.path().join("target")).unwrap();
        fs::write(root.path().join("target/a.rs"), "").unwrap();
        fs::create_dir_all(root.path().join("src/target")).unwrap();
        fs::write(root.path().join("src/target/b.rs"), "").unwrap();
        fs::write(root.path().join("a.rs"), "").unwrap();
        let mut found: Vec<PathBuf> =
            super::files(root.path()).unwrap().into_iter().map(|(path, _)| path).collect();
        found.sort();
        assert_eq!(found, [PathBuf::from("a.rs"), PathBuf::from("src/target/b.rs")]);
    }

    #[test]
    fn long_files_need_a_reason() {
        let text = "x\n".repeat(MAX_LINES + 1);
        assert_eq!(findings("src/b.rs", &text).len(), 1);
        assert_eq!(findings("src/b.rs", &text[2..]), [""; 0]);
        let file = [("src/b.rs".into(), text)];
        assert_eq!(check_file(&file, &[exception(LENGTH, "src/b.rs", "a table")]), [""; 0]);
        assert_eq!(check_file(&file, &[exception(LENGTH, "src/b.rs", " ")]).len(), 1);
        assert_eq!(check_file(&file, &[exception(LENGTH, "src/c.rs", "a table")]).len(), 2);
    }
}
