//! Configuration files that Secrets and `ConfigMaps` hold. They have credentials: no error quotes what is in them.

use k8s_openapi::ByteString;
use serde_json::Value;
use thiserror::Error;

use crate::files;

/// The file that the chart writes: what lies beside it is laid over it.
const BASE: &str = "00-base.yml";

/// Why a file cannot be read: without what is in it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Error)]
pub(super) enum FileError {
    #[error("{field}.{name} is not {expected}")]
    Encoding { field: &'static str, name: String, expected: Encoding },
    #[error("{name} cannot be read as YAML{}", .line.map_or_else(String::new, |line| format!(" (line {line})")))]
    Yaml { name: String, line: Option<usize> },
}

/// What a value of a field has to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Error)]
pub(super) enum Encoding {
    #[error("a string")]
    String,
    #[error("base64")]
    Base64,
    #[error("text")]
    Text,
}

/// Whether it is an object that can hold files.
pub(super) fn holds_files(object: &Value) -> bool {
    object["apiVersion"] == "v1" && (object["kind"] == "Secret" || object["kind"] == "ConfigMap")
}

/// Whether it has the file that is read first.
pub(super) fn has_base(object: &Value) -> bool {
    ["data", "stringData"].iter().any(|field| object[*field].get(BASE).is_some())
}

/// What an object is called in messages.
pub(super) fn name_of(object: &Value) -> String {
    let name = object.pointer("/metadata/name").and_then(Value::as_str).unwrap_or("without a name");
    format!("{} {name}", object["kind"].as_str().unwrap_or_default())
}

/// The configuration files in an object, by their names in the order in which that system reads them; or why one cannot be read.
pub(super) fn files(object: &Value) -> Vec<(String, Result<Value, FileError>)> {
    let mut files = Vec::new();
    for (key, text) in texts(object) {
        let documents = text.and_then(|text| {
            files::parse(&key, &text).map_err(|error| {
                let at = |cause: &(dyn std::error::Error + 'static)| {
                    cause.downcast_ref::<serde_yaml::Error>()?.location()
                };
                let line = error.chain().find_map(at).map(|at| at.line());
                FileError::Yaml { name: key.clone(), line }
            })
        });
        match documents {
            Ok(documents) => {
                files.extend(documents.into_iter().map(|document| (key.clone(), Ok(document.value))));
            }
            Err(why) => files.push((key, Err(why))),
        }
    }
    files
}

/// The texts in an object that are configuration files.
fn texts(object: &Value) -> Vec<(String, Result<String, FileError>)> {
    let is_secret = object["kind"] == "Secret";
    let fields = |key: &str| object[key].as_object().into_iter().flatten().filter(|(name, _)| is_file(name));
    let text = |field: &'static str, name: &String, encoded: bool, value: &Value| {
        let plain = || value.as_str().map(str::to_owned).ok_or(Encoding::String);
        let text = if encoded { decoded(value) } else { plain() };
        let wrong = |expected| FileError::Encoding { field, name: name.clone(), expected };
        (name.clone(), text.map_err(wrong))
    };
    let data = fields("data").map(|(name, value)| text("data", name, is_secret, value));
    let more = fields("stringData").map(|(name, value)| text("stringData", name, false, value));
    let mut texts: Vec<_> = data.chain(more).collect();
    texts.sort();
    texts
}

/// The text in a value of a Secret, or what it is not.
fn decoded(value: &Value) -> Result<String, Encoding> {
    let bytes: ByteString = serde_json::from_value(value.clone()).map_err(|_| Encoding::Base64)?;
    String::from_utf8(bytes.0).map_err(|_| Encoding::Text)
}

fn is_file(name: &str) -> bool {
    let ending = std::path::Path::new(name).extension();
    !name.starts_with('.') && ending.is_some_and(|ending| ending == "yml" || ending == "yaml")
}
