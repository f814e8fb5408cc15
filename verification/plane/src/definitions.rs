//! The `CustomResourceDefinitions` of Cluster API, out of its Go module: each as it is there, but with one version, since only a webhook of its
//! own could convert another one.

use std::{fs, path::Path};

use serde_json::{Value, json};

use crate::error::{Error, Result, io};

/// The version that stays, which is served and stored.
const VERSION: &str = "v1beta2";

/// A `List` of the definitions in the YAML files of this folder, without those that do not have the version.
pub(crate) fn list(dir: &Path) -> Result<Value> {
    let action = || io(format!("list {}", dir.display()));
    let mut files = fs::read_dir(dir)
        .map_err(action())?
        .map(|entry| entry.map(|entry| entry.path()))
        .collect::<std::io::Result<Vec<_>>>()
        .map_err(action())?;
    files.retain(|file| file.extension().is_some_and(|extension| extension == "yaml"));
    files.sort();
    let mut items = Vec::new();
    for file in files {
        let text = fs::read_to_string(&file).map_err(io(format!("read {}", file.display())))?;
        let definition: Value = serde_yaml::from_str(&text)
            .map_err(|error| Error::Module { file: file.clone(), missing: error.to_string() })?;
        items.extend(of_one_version(definition));
    }
    if items.is_empty() {
        let missing = format!("it has no definitions of {VERSION}");
        return Err(Error::Module { file: dir.to_owned(), missing });
    }
    Ok(json!({"apiVersion": "v1", "kind": "List", "items": items}))
}

fn of_one_version(mut definition: Value) -> Option<Value> {
    let spec = definition.get_mut("spec")?.as_object_mut()?;
    spec.insert("conversion".to_owned(), json!({"strategy": "None"}));
    let versions = spec.get_mut("versions")?.as_array_mut()?;
    versions.retain(|version| version["name"] == VERSION);
    let version = versions.first_mut()?.as_object_mut()?;
    for field in ["served", "storage"] {
        version.insert(field.to_owned(), json!(true));
    }
    Some(definition)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_each_definition_the_one_version_stays_and_nothing_is_converted() {
        let dir = tempfile::tempdir().unwrap();
        let definition = |name: &str, versions: &str| {
            format!(
                "---\nkind: CustomResourceDefinition\nmetadata: {{name: {name}}}\nspec:\n  conversion: {{strategy: Webhook}}\n  versions: [{versions}]\n"
            )
        };
        let write = |file: &str, text: &str| std::fs::write(dir.path().join(file), text).unwrap();
        let old = "{name: v1beta1, served: true, storage: true}";
        write(
            "b.yaml",
            &definition("b", &format!("{old}, {{name: v1beta2, served: false, storage: false, schema: s}}")),
        );
        write("a.yaml", &definition("a", "{name: v1beta2, served: true, storage: true}"));
        write("old.yaml", &definition("old", old));
        write("kustomization.txt", "no YAML: [");
        let definition = |name: &str, version: &Value| {
            json!({"kind": "CustomResourceDefinition", "metadata": {"name": name},
                "spec": {"conversion": {"strategy": "None"}, "versions": [version]}})
        };
        let expected = [
            definition("a", &json!({"name": "v1beta2", "served": true, "storage": true})),
            definition("b", &json!({"name": "v1beta2", "served": true, "storage": true, "schema": "s"})),
        ];
        assert_eq!(list(dir.path()).unwrap()["items"], json!(expected));
    }

    #[test]
    fn a_folder_without_definitions_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let error = list(dir.path()).unwrap_err().to_string();
        assert!(error.contains("has no definitions of v1beta2"), "{error}");
        assert!(error.starts_with(&dir.path().display().to_string()), "{error}");
    }
}
