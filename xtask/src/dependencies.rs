//! Dependencies that are declared and not used: they cost every build, and say of a crate what is not so.

use std::path::Path;

use anyhow::{Context as _, Result};
use serde_json::Value;

use crate::sources::File;

/// Dependencies of a crate that its sources do not name, and those of the workspace that no crate declares.
pub(crate) fn unused(root: &Path, metadata: &Value, files: &[File]) -> Result<Vec<String>> {
    let packages = metadata["packages"].as_array().context("cargo metadata names no packages")?;
    let mut findings = Vec::new();
    for package in packages {
        let name = package["name"].as_str().unwrap_or_default();
        let manifest = Path::new(package["manifest_path"].as_str().unwrap_or_default());
        let folder = manifest.parent().and_then(|folder| folder.strip_prefix(root).ok());
        let folder = folder.with_context(|| format!("{name} is outside of the workspace"))?;
        for dependency in dependencies(package) {
            let declared = declared_as(dependency);
            // What tests alone name would be in the graph of every program.
            let anywhere = dependency["kind"] == "dev";
            if !is_named(&declared.replace('-', "_"), folder, anywhere, files) {
                let advice =
                    if anywhere { "remove it" } else { "remove it, or let only its tests depend on it" };
                findings.push(format!("{name} depends on {declared}, and does not name it: {advice}"));
            }
        }
    }
    let manifest = files.iter().find(|(path, _)| path == Path::new("Cargo.toml"));
    let (_, manifest) = manifest.context("the workspace has no Cargo.toml")?;
    findings.extend(undeclared(manifest, packages));
    Ok(findings)
}

fn dependencies(package: &Value) -> impl Iterator<Item = &Value> {
    package["dependencies"].as_array().into_iter().flatten()
}

/// The name by which a crate uses a dependency.
fn declared_as(dependency: &Value) -> &str {
    dependency["rename"].as_str().or(dependency["name"].as_str()).unwrap_or_default()
}

/// Whether code in the crate's folder has this identifier: anywhere, or in what is built without its tests.
fn is_named(identifier: &str, folder: &Path, anywhere: bool, files: &[File]) -> bool {
    files.iter().any(|(path, text)| {
        let Ok(path) = path.strip_prefix(folder) else { return false };
        let is_rust = path.extension().is_some_and(|extension| extension == "rs");
        let is_built = path.starts_with("src") || path == Path::new("build.rs");
        is_rust && (anywhere || is_built) && text.lines().any(|line| has_identifier(line, identifier))
    })
}

/// Whether a line that is not a comment has the identifier.
fn has_identifier(line: &str, identifier: &str) -> bool {
    let mut words = line.split(|c: char| !c.is_alphanumeric() && c != '_');
    !line.trim_start().starts_with("//") && words.any(|word| word == identifier)
}

/// What `[workspace.dependencies]` has for nobody.
fn undeclared(manifest: &str, packages: &[Value]) -> Vec<String> {
    let lines = manifest.lines().skip_while(|line| *line != "[workspace.dependencies]").skip(1);
    let names = lines.take_while(|line| !line.starts_with('[')).filter_map(|line| line.split_once(" = "));
    let uses = |name: &str| packages.iter().flat_map(dependencies).any(|used| declared_as(used) == name);
    names
        .filter(|(name, _)| !name.starts_with('#') && !uses(name))
        .map(|(name, _)| format!("Cargo.toml: no crate depends on {name}: remove it"))
        .collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const WORKSPACE: &str = "[workspace.dependencies]\n# what for\ntokio = \"1\"\nserde_yaml = \"1\"\nuuid = \"1\"\n\n[profile.dev]\ndebug = 0\n";

    fn found(dependencies: &Value, files: &[(&str, &str)]) -> Vec<String> {
        let metadata = json!({"packages": [
            {"name": "a", "manifest_path": "/x/crates/a/Cargo.toml", "dependencies": dependencies}
        ]});
        let mut all: Vec<File> = files.iter().map(|(path, text)| (path.into(), (*text).to_owned())).collect();
        all.push(("Cargo.toml".into(), WORKSPACE.to_owned()));
        unused(Path::new("/x"), &metadata, &all).unwrap()
    }

    #[test]
    fn dependencies_that_no_source_names_are_found() {
        let dependencies = json!([
            {"name": "tokio", "kind": null},
            {"name": "tokio-util", "kind": null},
            {"name": "uuid", "kind": "dev"},
            {"name": "serde_yaml_ng", "rename": "serde_yaml", "kind": null},
        ]);
        let sources = "// uuid::Uuid\nuse tokio_util::sync;\nuse serde_yaml::from_str;";
        let found = found(
            &dependencies,
            &[("crates/a/src/lib.rs", sources), ("crates/b/src/lib.rs", "tokio::spawn")],
        );
        assert_eq!(
            found,
            [
                "a depends on tokio, and does not name it: remove it, or let only its tests depend on it",
                "a depends on uuid, and does not name it: remove it",
            ]
        );
    }

    #[test]
    fn what_tests_alone_name_is_a_dependency_of_tests() {
        let files = [("crates/a/tests/a.rs", "use tokio::fs; use serde_yaml::Value; use uuid::Uuid;")];
        let on = |kind: Value| {
            let names = ["tokio", "serde_yaml", "uuid"];
            Value::from_iter(names.map(|name| json!({"name": name, "kind": kind})))
        };
        assert_eq!(found(&on(json!("dev")), &files), [""; 0]);
        assert_eq!(found(&on(Value::Null), &files).len(), 3);
    }

    #[test]
    fn what_the_workspace_has_for_nobody_is_found() {
        let dependencies = json!([{"name": "tokio", "kind": null}]);
        assert_eq!(
            found(&dependencies, &[("crates/a/src/lib.rs", "tokio::spawn")]),
            [
                "Cargo.toml: no crate depends on serde_yaml: remove it",
                "Cargo.toml: no crate depends on uuid: remove it",
            ]
        );
    }
}
