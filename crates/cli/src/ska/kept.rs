//! Configuration files that Secrets and `ConfigMaps` hold. They have credentials: no error quotes what is in them.

use k8s_openapi::ByteString;
use serde_json::Value;

use crate::files;

/// The file that the chart writes: what lies beside it is laid over it.
const BASE: &str = "00-base.yml";

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
pub(super) fn files(object: &Value) -> Vec<(String, Result<Value, String>)> {
    let mut files = Vec::new();
    for (key, text) in texts(object) {
        let documents = text.and_then(|text| {
            files::parse(&key, &text).map_err(|error| {
                let at = |cause: &(dyn std::error::Error + 'static)| {
                    cause.downcast_ref::<serde_yaml::Error>()?.location()
                };
                let line = error.chain().find_map(at);
                let line = line.map_or_else(String::new, |at| format!(" (line {})", at.line()));
                format!("{key} cannot be read as YAML{line}")
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
fn texts(object: &Value) -> Vec<(String, Result<String, String>)> {
    let is_secret = object["kind"] == "Secret";
    let fields = |key: &str| object[key].as_object().into_iter().flatten().filter(|(name, _)| is_file(name));
    let plain = |value: &Value| value.as_str().map(str::to_owned).ok_or("a string");
    let data = fields("data").map(|(name, value)| {
        let text = if is_secret { decoded(value) } else { plain(value) };
        (name.clone(), text.map_err(|what| format!("data.{name} is not {what}")))
    });
    let more = fields("stringData").map(|(name, value)| {
        (name.clone(), plain(value).map_err(|what| format!("stringData.{name} is not {what}")))
    });
    let mut texts: Vec<_> = data.chain(more).collect();
    texts.sort();
    texts
}

/// The text in a value of a Secret, or what it is not.
fn decoded(value: &Value) -> Result<String, &'static str> {
    let bytes: ByteString = serde_json::from_value(value.clone()).map_err(|_| "base64")?;
    String::from_utf8(bytes.0).map_err(|_| "text")
}

fn is_file(name: &str) -> bool {
    let ending = std::path::Path::new(name).extension();
    !name.starts_with('.') && ending.is_some_and(|ending| ending == "yml" || ending == "yaml")
}
