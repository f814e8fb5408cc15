use super::*;

/// A repository with one page.
fn findings(page: &str, text: &str) -> Vec<String> {
    let file = |path: &str, text: &str| (PathBuf::from(path), text.to_owned());
    let files = [
        file(page, text),
        file("CHANGELOG.md", "`crates/gone/` [x](gone.md)"),
        file("docs/kinds/other.md", "# Other page\n"),
        file("crates/a/Cargo.toml", "name = \"coppice-a\"\n"),
        file(
            "crates/a/src/plan/decide.rs",
            "pub fn judge_ttl() {} struct Tally { pods: u8 } impl Tally { fn add_pod() {} }",
        ),
        file("crates/b/src/law.rs", "const MAX: u8 = 1; fn frozen() { register(\"lateness\", Permit) }"),
        file("deploy/install.yaml", "kind: Deployment"),
    ];
    judge(&files, "name = \"coppice-a\"\nname = \"tokio\"\n")
}

#[track_caller]
fn good(text: &str) {
    assert_eq!(findings("docs/ARCHITECTURE.md", text), [""; 0]);
}

#[track_caller]
fn bad(text: &str, expected: &str) {
    let found = findings("docs/ARCHITECTURE.md", text);
    assert_eq!(found, [format!("docs/ARCHITECTURE.md:{expected}")], "{text}");
}

#[test]
fn paths_below_the_root_the_crates_or_anything_are_found() {
    good(
        "`crates/a/src/plan/decide.rs`, `a/src/plan/`, `plan/decide.rs`, `law.rs`, `plan/`, `deploy/install.yaml`, `docs/`",
    );
    good("`kinds/other.md`, `Cargo.toml`");
    for path in [
        "crates/a/src/gone.rs",
        "a/src/gone",
        "plan/law.rs",
        "gone.rs",
        "deploy/gone.yaml",
        "gone/",
        "docs/gone",
    ] {
        bad(
            &format!("a\n`{path}`"),
            &format!("2: `{path}` is no file or folder of this repository: write the path that it has now"),
        );
    }
}

#[test]
fn what_only_looks_a_little_like_a_path_is_none() {
    good(
        "`coppice.dev/protected`, `/readyz`, `*/scale`, `apps/v1`, `manager.yaml`, `10.1.0.0/16`, `target/release`, `.rs`",
    );
    good("`api/v1`, `crates/*/src`, `CoppiceConfig/coppice`, `~/.cache/x`");
}

#[test]
fn under_the_heading_of_a_crate_files_are_of_that_crate() {
    good("### `crates/b` (pure)\n`law.rs`, `a/src/plan/decide.rs`\n## Then\n`decide.rs`");
    bad(
        "### `crates/b` (pure)\n`decide.rs`",
        "2: `decide.rs` is no file or folder of this repository: write the path that it has now",
    );
}

#[test]
fn names_beside_a_file_are_defined_in_it() {
    good("| `a/src/plan/decide.rs` `judge_ttl`, `Tally::add_pod` and `pods`; `frozen` is a word |");
    good("`frozen` in `law.rs`, `judge_ttl` in `decide.rs`, `MAX` in `law.rs`");
    good("`decide.rs`, `frozen`; `decide.rs` is not `frozen`; `law.rs` `kubectl get`, `plan`");
    let wrong = "is not defined in decide.rs: name what is there now";
    bad("see `decide.rs`\n`frozen`", &format!("2: `frozen` {wrong}"));
    bad("`decide.rs` `judge_ttl`, `frozen`", &format!("1: `frozen` {wrong}"));
    bad("`frozen` in `decide.rs`", &format!("1: `frozen` {wrong}"));
    bad("`decide.rs` `Tally::add_job`", &format!("1: `Tally::add_job` {wrong}"));
}

#[test]
fn names_that_can_be_nothing_else_are_in_the_sources() {
    good(
        "`judge_ttl`, `Tally::add_pod`, `judge_ttl()`, `tokio::time::interval`, `coppice_a::judge_ttl`, `Permit`",
    );
    good("`coppice_lateness_seconds`, `initialDelay`, `status.next.reason`, `firings`, `DELETE`, `-n`");
    let wrong =
        "is not in the sources: write the name that it has now, or the whole path of what is not ours";
    for name in [
        "judge_pods",
        "Tally::add_job",
        "Gone::add_pod",
        "coppice_a::gone",
        "coppice_gone_seconds",
        "Reservoir",
    ] {
        bad(&format!("`{name}`"), &format!("1: `{name}` {wrong}"));
    }
    good("`judge_...`");
    bad("`judged_...`", "1: `judged_...` begins no name in the sources: write the name that it has now");
    bad("`gone()`", "1: `gone()` is no function of this repository: write the name that it has now");
}

#[test]
fn on_pages_for_users_a_capital_letter_is_no_type() {
    assert_eq!(findings("docs/kinds/manager.md", "`ExternalName`, `Reservoir`"), [""; 0]);
    assert_eq!(findings("docs/kinds/manager.md", "`Tally::add_job`").len(), 1);
}

#[test]
fn pages_beside_what_they_describe_are_read_as_well() {
    let page = "verification/bench/peer/README.md";
    assert_eq!(findings(page, "[a](../../../docs/kinds/other.md) `crates/b/`"), [""; 0]);
    assert_eq!(
        findings(page, "[a](../../docs/kinds/other.md)\n`gone.rs`"),
        [
            format!(
                "{page}:1: ../../docs/kinds/other.md: there is no verification/docs/kinds/other.md: correct the link"
            ),
            format!(
                "{page}:2: `gone.rs` is no file or folder of this repository: write the path that it has now"
            ),
        ]
    );
}

#[test]
fn links_lead_to_files_and_headings() {
    good(
        "# A page\n[a](kinds/other.md#other-page) [b](#a-page) [c](../deploy) [d](https://x.example/y) [e](..)",
    );
    bad("[a](gone.md)", "1: gone.md: there is no docs/gone.md: correct the link");
    bad("[a](../kinds/other.md)", "1: ../kinds/other.md: there is no kinds/other.md: correct the link");
    bad(
        "[a](kinds/other.md#gone)",
        "1: kinds/other.md#gone: docs/kinds/other.md has no heading for #gone: correct the link",
    );
    bad("\n[a](#gone)", "2: #gone: docs/ARCHITECTURE.md has no heading for #gone: correct the link");
}
