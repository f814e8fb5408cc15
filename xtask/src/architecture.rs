//! Which crate may depend on which, and what the pure ones must not drag in.

mod layers;

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result, bail};
use serde_json::{Value, json};

use layers::{LAYERS, Layer};

use crate::manifests::{self, Install};
use crate::{dependencies, sources};

/// What no pure crate may have in its graph of normal dependencies.
const IMPURE: [&str; 14] = [
    "async-std",
    "axum",
    "hyper",
    "hyper-util",
    "kube-client",
    "kube-runtime",
    "mio",
    "rand",
    "reqwest",
    "rustls",
    "smol",
    "sqlx",
    "sqlx-core",
    "tokio",
];

/// What is not as designed. With the lock file as it is: a check writes nothing.
pub(crate) fn check(root: &Path) -> Result<Vec<String>> {
    let metadata = cargo(root, &["metadata", "--offline", "--locked", "--no-deps", "--format-version=1"])?;
    let metadata: Value = serde_json::from_str(&metadata).context("what cargo metadata prints")?;
    let mut findings = arrows(&LAYERS, &packages(&metadata)?);
    for (file, program) in IMAGES {
        let dockerfile = std::fs::read_to_string(root.join(file)).with_context(|| format!("read {file}"))?;
        findings.extend(unbuilt(file, &dockerfile, &metadata));
        findings.extend(not_alone(file, &dockerfile, program));
        findings.extend(built_together(file, &dockerfile));
    }
    let ignored = std::fs::read_to_string(root.join(".dockerignore")).context("read .dockerignore")?;
    findings.extend(out_of_context(&ignored, &metadata));
    findings.extend(mutant_features(&metadata));
    findings.extend(used_by_the_product(&metadata));
    let files = sources::files(root)?;
    findings.extend(test_programs(&metadata));
    findings.extend(left_out(&files));
    findings.extend(examples_not_run(&metadata, root, &files));
    findings.extend(dependencies::unused(root, &metadata, &files)?);
    for layer in LAYERS.iter().filter(|layer| layer.pure) {
        // With its own features only: what another crate switches on in a shared dependency is that crate's affair.
        let tree = cargo(
            root,
            &["tree", "--offline", "--locked", "-p", layer.name, "-e", "normal", "--prefix", "none"],
        )?;
        findings.extend(impurities(layer.name, &tree));
    }
    let programs: BTreeSet<&str> =
        manifests::components(&Install::kubectl()).iter().map(|component| component.binary).collect();
    for program in programs {
        let edges = "normal,features";
        let tree =
            cargo(root, &["tree", "--offline", "--locked", "-p", program, "-e", edges, "--prefix", "none"])?;
        findings.extend(leaks(program, &tree));
    }
    let makefile = std::fs::read_to_string(root.join("Makefile")).context("read Makefile")?;
    findings.extend(built_together("Makefile", &makefile));
    Ok(findings)
}

/// What a list of the metadata has; nothing, where there is no list.
fn items(list: &Value) -> impl Iterator<Item = &Value> {
    list.as_array().into_iter().flatten()
}

/// The file that lists the test files of a package.
const SUITE: &str = "tests/suite.rs";

/// Packages with more than one program of tests: each links all that it depends on again, which takes seconds.
fn test_programs(metadata: &Value) -> Vec<String> {
    let programs = |package: &Value| {
        let targets = items(&package["targets"]);
        targets.filter(|target| target["kind"] == json!(["test"])).count()
    };
    let packages = items(&metadata["packages"]);
    packages
        .filter(|package| programs(package) > 1)
        .map(|package| format!("{}: its tests are several programs: list them in {SUITE}", package["name"]))
        .collect()
}

/// Test files that no program of tests has as a module, and that do not run.
fn left_out(files: &[sources::File]) -> Vec<String> {
    let mut findings = Vec::new();
    for (suite, text) in files.iter().filter(|(path, _)| path.ends_with(SUITE)) {
        let folder = suite.parent();
        let beside = files.iter().filter(|(path, _)| path.parent() == folder && path != suite);
        for (path, _) in beside.filter(|(path, _)| path.extension().is_some_and(|end| end == "rs")) {
            let module = format!("mod {};", path.file_stem().unwrap_or_default().to_string_lossy());
            if !text.lines().any(|line| line == module) {
                findings.push(format!(
                    "{} does not run: {} has no {module:?}",
                    path.display(),
                    suite.display()
                ));
            }
        }
    }
    findings
}

/// Examples in the documentation of a library that does not run them: looking for them takes seconds a library, and most have none.
fn examples_not_run(metadata: &Value, root: &Path, files: &[sources::File]) -> Vec<String> {
    let mut findings = Vec::new();
    let targets = items(&metadata["packages"]).flat_map(|package| items(&package["targets"]));
    for library in
        targets.filter(|target| target["kind"] == json!(["lib"]) && target["doctest"] == json!(false))
    {
        let source = Path::new(library["src_path"].as_str().unwrap_or_default());
        let Some(folder) = source.strip_prefix(root).ok().and_then(Path::parent) else { continue };
        for (path, text) in files.iter().filter(|(path, _)| path.starts_with(folder)) {
            if has_example(text) {
                let advice = "write `text` behind its fence, or remove `doctest = false`";
                findings.push(format!("{}: an example that is not run: {advice}", path.display()));
            }
        }
    }
    findings
}

/// Whether comments of documentation have a block of Rust.
fn has_example(text: &str) -> bool {
    let lines = text.lines().map(str::trim_start);
    let fences = lines.filter_map(|line| line.strip_prefix("//!").or_else(|| line.strip_prefix("///")));
    // Every second one closes a block.
    let mut opening = fences.filter_map(|line| line.trim().strip_prefix("```")).step_by(2);
    let is_rust = |word: &str| {
        ["", "rust", "no_run", "should_panic", "compile_fail"].contains(&word) || word.starts_with("edition")
    };
    opening.any(|languages| languages.split(',').any(|word| is_rust(word.trim())))
}

/// The image of each program, in a file of its own.
const IMAGES: [(&str, &str); 2] =
    [("Dockerfile", "coppice-operator"), ("Dockerfile.access", "coppice-access")];

/// What only tests and simulations need, and a program in a cluster must not have.
const TESTING: [&str; 8] = [
    "tokio feature \"test-util\"",
    "coppice-campaign ",
    "coppice-conformance ",
    "coppice-plane ",
    "coppice-sample ",
    "coppice-scripted ",
    "coppice-sim ",
    "coppice-tests ",
];

/// What of [`TESTING`] is in a program.
fn leaks(program: &str, tree: &str) -> Vec<String> {
    let found = TESTING.iter().filter(|leak| tree.lines().any(|line| line.starts_with(**leak)));
    found
        .map(|leak| {
            let leak = leak.trim_end();
            format!(
                "{program} has {leak}: see `cargo tree -p {program} -e normal,features -i {}`",
                package_of(leak)
            )
        })
        .collect()
}

fn package_of(leak: &str) -> &str {
    leak.split(' ').next().unwrap_or_default()
}

/// Builds for release of more than one package: their features would be in each of them.
fn built_together(file: &str, text: &str) -> Vec<String> {
    let packages =
        |line: &&str| line.split_whitespace().filter(|word| ["-p", "--package"].contains(word)).count();
    let together = text.lines().filter(|line| line.contains("cargo build --release") && packages(line) != 1);
    together.map(|line| format!("{file}: build one package at a time: {}", line.trim())).collect()
}

/// A package of the workspace with its normal dependencies of ours.
struct Package {
    name: String,
    uses: BTreeSet<String>,
}

fn packages(metadata: &Value) -> Result<Vec<Package>> {
    let packages = metadata["packages"].as_array().context("cargo metadata names no packages")?;
    let name = |value: &Value| value["name"].as_str().unwrap_or_default().to_owned();
    let ours: BTreeSet<String> = packages.iter().map(name).collect();
    let uses = |package: &Value| -> BTreeSet<String> {
        let all = items(&package["dependencies"]);
        // Kind: null for normal ones, else "dev" or "build".
        all.filter(|dependency| dependency["kind"].is_null())
            .map(name)
            .filter(|dependency| ours.contains(dependency))
            .collect()
    };
    Ok(packages.iter().map(|package| Package { name: name(package), uses: uses(package) }).collect())
}

fn arrows(layers: &[Layer], packages: &[Package]) -> Vec<String> {
    let mut findings = Vec::new();
    for package in packages {
        let Some(at) = layers.iter().position(|layer| layer.name == package.name) else {
            findings.push(format!("{} is not in the table of xtask/src/architecture.rs", package.name));
            continue;
        };
        for used in &package.uses {
            let below = layers[..at].iter().find(|layer| layer.name == used);
            if !layers[at].may_use.contains(&used.as_str()) || below.is_none() {
                findings.push(format!("{} depends on {used}: arrows go down only", package.name));
            } else if layers[at].pure && below.is_some_and(|layer| !layer.pure) {
                findings.push(format!("{} is pure and depends on {used}, which is not", package.name));
            }
        }
    }
    findings
}

/// Dependencies that would put mutants into a program: only the tests of the campaigns may have them.
fn mutant_features(metadata: &Value) -> Vec<String> {
    let packages = items(&metadata["packages"]);
    let mut findings = Vec::new();
    for package in packages {
        let name = package["name"].as_str().unwrap_or_default();
        let all = items(&package["dependencies"]);
        let with = |dependency: &&Value| {
            let mut features = items(&dependency["features"]);
            features.any(|feature| feature == "mutants")
        };
        let may = |dependency: &&Value| name == "coppice-campaign" && dependency["kind"] == "dev";
        if all.filter(with).any(|dependency| !may(&dependency)) {
            findings.push(format!(
                "{name} asks for the feature `mutants`: only a dev-dependency of coppice-campaign may"
            ));
        }
        let mut features = package["features"].as_object().into_iter().flatten();
        let asks = |asked: &Value| asked.as_str().is_some_and(|asked| asked.ends_with("mutants"));
        if features.any(|(_, asked)| items(asked).any(asks)) {
            findings.push(format!("a feature of {name} switches `mutants` on"));
        }
    }
    findings
}

/// What is in `verification/` and what users run depends on.
fn used_by_the_product(metadata: &Value) -> Vec<String> {
    let all: Vec<(&str, bool, &Value)> = metadata["packages"]
        .as_array()
        .into_iter()
        .flatten()
        .map(|package| {
            let manifest = package["manifest_path"].as_str().unwrap_or_default();
            let checks = manifest.contains("/verification/");
            (package["name"].as_str().unwrap_or_default(), checks, &package["dependencies"])
        })
        .collect();
    let checks: BTreeSet<&str> =
        all.iter().filter(|(_, checks, _)| *checks).map(|(name, ..)| *name).collect();
    let products = all.iter().filter(|(name, is_check, _)| !is_check && *name != "xtask");
    let uses = products.flat_map(|(name, _, dependencies)| {
        let used = items(dependencies).filter_map(|used| used["name"].as_str());
        used.filter(|used| checks.contains(used)).map(move |used| (*name, used))
    });
    uses.map(|(name, used)| format!("{name} depends on {used}, which is in verification/")).collect()
}

/// Programs that the Dockerfile takes from the build.
fn taken(dockerfile: &str) -> impl Iterator<Item = &str> {
    dockerfile.split_whitespace().filter_map(|word| word.strip_prefix("target/release/"))
}

/// Those that no crate builds.
fn unbuilt(file: &str, dockerfile: &str, metadata: &Value) -> Vec<String> {
    let packages = items(&metadata["packages"]);
    let targets = packages.flat_map(|package| items(&package["targets"]));
    let built: BTreeSet<&str> = targets
        .filter(|target| target["kind"] == json!(["bin"]))
        .filter_map(|target| target["name"].as_str())
        .collect();
    taken(dockerfile)
        .filter(|name| !built.contains(name))
        .map(|name| format!("{file}: no crate builds a program {name}"))
        .collect()
}

/// An image with another program in it: each component has its own, so that nobody installs what they do not use.
fn not_alone(file: &str, dockerfile: &str, program: &str) -> Option<String> {
    let taken: Vec<&str> = taken(dockerfile).collect();
    (taken != [program])
        .then(|| format!("{file}: the image holds {} and not {program} alone", taken.join(", ")))
}

/// Folders of the workspace that `.dockerignore` keeps from the build of the image: Cargo wants all of them.
fn out_of_context(ignored: &str, metadata: &Value) -> Vec<String> {
    let root = format!("{}/", metadata["workspace_root"].as_str().unwrap_or_default());
    let packages = items(&metadata["packages"]);
    let folders: BTreeSet<&str> = packages
        .filter_map(|package| package["manifest_path"].as_str()?.strip_prefix(&root)?.split('/').next())
        .collect();
    let admitted: BTreeSet<&str> = ignored.lines().filter_map(|line| line.strip_prefix('!')).collect();
    let missing = folders.into_iter().filter(|folder| !admitted.contains(folder));
    missing
        .map(|folder| format!(".dockerignore: write !{folder}, which has crates of the workspace"))
        .collect()
}

fn impurities(package: &str, tree: &str) -> Vec<String> {
    let found: BTreeSet<&str> = tree
        .lines()
        .filter_map(|line| line.split_whitespace().next())
        .filter(|name| IMPURE.contains(name))
        .collect();
    let way = |name| format!("see `cargo tree -p {package} -e normal -i {name}`");
    found
        .iter()
        .map(|name| format!("{package} is pure and must not depend on {name}: {}", way(name)))
        .collect()
}

fn cargo(root: &Path, args: &[&str]) -> Result<String> {
    let program = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let output = Command::new(program).args(args).current_dir(root).output().context("run cargo")?;
    if !output.status.success() {
        bail!("cargo {}: {}", args.join(" "), String::from_utf8_lossy(&output.stderr).trim());
    }
    String::from_utf8(output.stdout).context("cargo prints UTF-8")
}

#[cfg(test)]
mod tests {
    use super::layers::{layer, pure};
    use super::*;

    fn package(name: &str, uses: &[&str]) -> Package {
        Package { name: name.to_owned(), uses: uses.iter().map(|&used| used.to_owned()).collect() }
    }

    #[test]
    fn an_arrow_up_and_an_unknown_crate_are_found() {
        let fine = package("coppice-lifecycle", &["coppice-api"]);
        let up = package("coppice-api", &["coppice-lifecycle"]);
        let aside = package("coppice-cli", &["coppice-runtime"]);
        let unknown = package("coppice-new", &[]);
        assert_eq!(
            arrows(&LAYERS, &[fine, up, aside, unknown]),
            [
                "coppice-api depends on coppice-lifecycle: arrows go down only",
                "coppice-cli depends on coppice-runtime: arrows go down only",
                "coppice-new is not in the table of xtask/src/architecture.rs",
            ]
        );
    }

    #[test]
    fn a_pure_crate_on_an_impure_one_is_found() {
        let layers = [layer("below", &[]), pure("above", &["below"])];
        assert_eq!(
            arrows(&layers, &[package("above", &["below"])]),
            ["above is pure and depends on below, which is not"]
        );
    }

    #[test]
    fn dev_dependencies_are_no_arrows() {
        let metadata = json!({"packages": [
            {"name": "a", "dependencies": [{"name": "b", "kind": "dev"}, {"name": "serde", "kind": null}]},
            {"name": "b", "dependencies": [{"name": "a", "kind": null}]}
        ]});
        let packages = packages(&metadata).unwrap();
        assert!(packages[0].uses.is_empty());
        assert!(packages[1].uses.contains("a"));
    }

    #[test]
    fn tests_that_are_several_programs_or_do_not_run_are_found() {
        let target = |kind: &str| json!({"kind": [kind]});
        let metadata = json!({"packages": [
            {"name": "one", "targets": [target("lib"), target("bin"), target("test")]},
            {"name": "two", "targets": [target("test"), target("test")]},
        ]});
        assert_eq!(
            test_programs(&metadata),
            ["\"two\": its tests are several programs: list them in tests/suite.rs"]
        );
        let file = |path: &str, text: &str| (Path::new(path).to_owned(), text.to_owned());
        let files = [
            file("crates/a/tests/listed.rs", ""),
            file("crates/a/tests/forgotten.rs", ""),
            file("crates/a/tests/data.json", ""),
            file("crates/a/tests/suite.rs", "// mod forgotten;\nmod listed;\n"),
            file("crates/b/tests/alone.rs", ""),
        ];
        assert_eq!(
            left_out(&files),
            ["crates/a/tests/forgotten.rs does not run: crates/a/tests/suite.rs has no \"mod forgotten;\""]
        );
    }

    #[test]
    fn an_example_that_is_not_run_is_found() {
        assert!(has_example("/// Adds.\n///\n/// ```\n/// add();\n/// ```\nfn add() {}\n"));
        assert!(has_example("/// ```edition2024,no_run\n/// ```\n"));
        assert!(has_example("//! ```text\n//! ```\n    //! ```rust\n"));
        assert!(!has_example("/// ```text\n/// a -> b\n/// ```\nlet fence = \"```\";\n"));
        let library = |doctest: bool| json!({"kind": ["lib"], "doctest": doctest, "src_path": "/there/crates/a/src/lib.rs"});
        let files = [
            (Path::new("crates/a/src/b.rs").to_owned(), "/// ```\n/// b();\n/// ```\n".to_owned()),
            (Path::new("crates/c/src/d.rs").to_owned(), "/// ```\n/// d();\n/// ```\n".to_owned()),
        ];
        let found = |doctest| {
            let metadata = json!({"packages": [{"name": "a", "targets": [library(doctest)]}]});
            examples_not_run(&metadata, Path::new("/there"), &files)
        };
        assert_eq!(
            found(false),
            [
                "crates/a/src/b.rs: an example that is not run: write `text` behind its fence, or remove `doctest = false`"
            ]
        );
        assert_eq!(found(true), [""; 0]);
    }

    #[test]
    fn bugs_on_purpose_are_for_the_tests_of_the_campaigns_alone() {
        let with = |kind: Value| json!([{"name": "coppice-mutants", "kind": kind, "features": ["mutants"]}]);
        let metadata = json!({"packages": [
            {"name": "coppice-mutants", "dependencies": [], "features": {"mutants": []}},
            {"name": "coppice-campaign", "dependencies": with(json!("dev"))},
            {"name": "coppice-cli", "dependencies": with(json!("dev"))},
            {"name": "coppice-operator", "dependencies": with(Value::Null)},
            {"name": "coppice-runtime", "dependencies": [], "features": {"default": ["coppice-mutants/mutants"]}},
        ]});
        let found = mutant_features(&metadata);
        assert_eq!(found.len(), 3, "{found:?}");
    }

    #[test]
    fn what_users_run_depends_on_nothing_that_checks_it() {
        let on = |name: &str| json!([{"name": name, "kind": "dev"}]);
        let metadata = json!({"packages": [
            {"name": "coppice-cli", "manifest_path": "/x/crates/cli/Cargo.toml", "dependencies": on("coppice-plane")},
            {"name": "coppice-plane", "manifest_path": "/x/verification/plane/Cargo.toml", "dependencies": on("coppice-cli")},
            {"name": "xtask", "manifest_path": "/x/xtask/Cargo.toml", "dependencies": on("coppice-plane")},
        ]});
        assert_eq!(
            used_by_the_product(&metadata),
            ["coppice-cli depends on coppice-plane, which is in verification/"]
        );
    }

    #[test]
    fn a_program_that_nobody_builds_is_found() {
        let metadata = json!({"packages": [{"targets": [
            {"name": "a", "kind": ["bin"]}, {"name": "b", "kind": ["lib"]}
        ]}]});
        let found = unbuilt("Dockerfile", "RUN cp target/release/a target/release/b /out", &metadata);
        assert_eq!(found, ["Dockerfile: no crate builds a program b"]);
    }

    #[test]
    fn an_image_of_two_programs_is_found() {
        let not_alone = |text| not_alone("Dockerfile", text, "coppice-operator");
        assert_eq!(not_alone("RUN install target/release/coppice-operator"), None);
        let found = not_alone("RUN install target/release/coppice-operator target/release/coppice");
        assert_eq!(
            found.unwrap(),
            "Dockerfile: the image holds coppice-operator, coppice and not coppice-operator alone"
        );
        assert!(not_alone("RUN cargo build").is_some());
    }

    #[test]
    fn a_folder_that_the_build_of_the_image_cannot_see_is_found() {
        let metadata = json!({"workspace_root": "/x", "packages": [
            {"manifest_path": "/x/crates/api/Cargo.toml"}, {"manifest_path": "/x/xtask/Cargo.toml"}
        ]});
        assert_eq!(
            out_of_context("*\n!crates\n", &metadata),
            [".dockerignore: write !xtask, which has crates of the workspace"]
        );
        assert!(out_of_context("*\n!crates\n!xtask\n", &metadata).is_empty());
    }

    #[test]
    fn a_runtime_in_a_pure_graph_is_found() {
        let tree =
            "coppice-api v0.1.0 (/x)\nserde v1.0.0\ntokio v1.0.0 (*)\ntokio v1.0.0\ntokio-util v0.7.0\n";
        let findings = impurities("coppice-api", tree);
        assert_eq!(findings.len(), 1, "{findings:?}");
        assert!(findings[0].starts_with("coppice-api is pure and must not depend on tokio:"));
    }

    #[test]
    fn what_tests_need_is_found_in_a_program() {
        let tree = "coppice-operator v0.1.0 (/x)\ntokio feature \"rt\"\ntokio feature \"test-util\" (*)\ncoppice-sim v0.1.0 (/x)\n";
        let found = leaks("coppice-operator", tree);
        assert_eq!(found.len(), 2, "{found:?}");
        assert!(found[0].starts_with("coppice-operator has tokio feature \"test-util\": see"), "{found:?}");
        assert!(leaks("coppice-operator", "tokio v1.0.0\ncoppice-simple v1.0.0").is_empty());
    }

    #[test]
    fn programs_that_are_built_together_are_found() {
        let text = "\tcargo build --release --locked -p a\n\tcargo build --release -p a --package b\n\tcargo build --workspace\n";
        assert_eq!(
            built_together("Makefile", text),
            ["Makefile: build one package at a time: cargo build --release -p a --package b"]
        );
    }

    #[test]
    fn every_permitted_arrow_goes_down() {
        for (at, layer) in LAYERS.iter().enumerate() {
            for used in layer.may_use {
                assert!(LAYERS[..at].iter().any(|below| below.name == *used), "{} on {used}", layer.name);
            }
        }
    }
}
