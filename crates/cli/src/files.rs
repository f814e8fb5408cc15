//! Documents in files: YAML and JSON, many in one file, as kubectl reads them.

use std::io::Read;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};
use serde::Deserialize as _;
use serde_json::Value;

/// One document, as it was written and as it is understood.
#[derive(Clone, Debug)]
pub(crate) struct Document {
    /// Where it is: `file.yaml, document 2`.
    pub(crate) place: String,
    /// Its text, comments included.
    pub(crate) text: String,
    /// What it says.
    pub(crate) value: Value,
}

impl Document {
    /// The objects in it: itself, or the items of a list, each with its place.
    pub(crate) fn objects(&self) -> Vec<(String, Value)> {
        let kind = self.value["kind"].as_str().unwrap_or_default();
        let items = self.value["items"].as_array().filter(|_| kind.ends_with("List"));
        match items {
            None => vec![(self.place.clone(), self.value.clone())],
            Some(items) => items
                .iter()
                .enumerate()
                .map(|(i, item)| {
                    let mut item = item.clone();
                    // The items of a typed list do not say what they are.
                    if let (Some(object), Some(of)) =
                        (item.as_object_mut(), kind.strip_suffix("List").filter(|k| !k.is_empty()))
                    {
                        object.entry("kind").or_insert_with(|| of.into());
                        object.entry("apiVersion").or_insert_with(|| self.value["apiVersion"].clone());
                    }
                    (format!("{}, items[{i}]", self.place), item)
                })
                .collect(),
        }
    }
}

/// Reads files, directories (their `.yaml`, `.yml` and `.json` files) and standard input (`-`).
pub(crate) fn read(paths: &[PathBuf], recursive: bool, stdin: &mut dyn Read) -> Result<Vec<Document>> {
    let mut documents = Vec::new();
    for path in paths {
        if path.as_os_str() == "-" {
            let mut text = String::new();
            stdin.read_to_string(&mut text).context("standard input cannot be read as text")?;
            documents.extend(parse("standard input", &text)?);
        } else if path.is_dir() {
            for file in directory(path, recursive)? {
                documents.extend(read_file(&file)?);
            }
        } else {
            documents.extend(read_file(path)?);
        }
    }
    Ok(documents)
}

fn read_file(path: &Path) -> Result<Vec<Document>> {
    let name = path.display().to_string();
    let text = std::fs::read_to_string(path).with_context(|| format!("{name} cannot be read"))?;
    parse(&name, &text)
}

fn directory(path: &Path, recursive: bool) -> Result<Vec<PathBuf>> {
    let name = path.display();
    let mut entries = Vec::new();
    for entry in std::fs::read_dir(path).with_context(|| format!("directory {name} cannot be read"))? {
        entries.push(entry.with_context(|| format!("directory {name} cannot be read"))?.path());
    }
    entries.sort();
    let mut files = Vec::new();
    for entry in entries {
        let is_manifest = entry.extension().is_some_and(|e| ["yaml", "yml", "json"].iter().any(|x| e == *x));
        // A link back up would never end.
        if recursive && entry.is_dir() && !entry.is_symlink() {
            files.extend(directory(&entry, recursive)?);
        } else if is_manifest && entry.is_file() {
            files.push(entry);
        }
    }
    Ok(files)
}

/// Reads every document of a text.
pub(crate) fn parse(name: &str, text: &str) -> Result<Vec<Document>> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    if text.trim_start().starts_with('{')
        && let Some(documents) = parse_json(name, text)
    {
        return Ok(documents);
    }
    let mut documents = Vec::new();
    for (line, chunk) in split(text) {
        if chunk.lines().all(|l| l.trim().is_empty() || l.trim_start().starts_with('#')) {
            continue;
        }
        let place = format!("{name}, document {}", documents.len() + 1);
        // Empty lines in front make the parser count lines as the reader of the file does.
        let padded = format!("{}{chunk}", "\n".repeat(line));
        let value = parse_yaml(&padded).with_context(|| format!("{place} cannot be read"))?;
        if !value.is_object() {
            bail!("{place}: expected an object with apiVersion, kind and metadata");
        }
        documents.push(Document { place, text: chunk.trim().to_owned(), value });
    }
    Ok(documents)
}

/// Objects in JSON one after the other; none if it is no JSON (YAML may begin with a brace, too).
fn parse_json(name: &str, text: &str) -> Option<Vec<Document>> {
    let mut documents = Vec::new();
    let mut stream = serde_json::Deserializer::from_str(text).into_iter::<Value>();
    let mut from = 0;
    while let Some(value) = stream.next() {
        let value = value.ok().filter(Value::is_object)?;
        let to = stream.byte_offset();
        let place = format!("{name}, document {}", documents.len() + 1);
        documents.push(Document { place, text: text.get(from..to)?.trim().to_owned(), value });
        from = to;
    }
    Some(documents)
}

fn parse_yaml(text: &str) -> Result<Value> {
    // Not straight into JSON: that would silently keep the last of two equal keys.
    let mut value = serde_yaml::Value::deserialize(serde_yaml::Deserializer::from_str(text))?;
    value.apply_merge()?;
    serde_json::to_value(value).context("YAML that JSON cannot express")
}

/// The parts between lines `---`, each with the number of lines before it.
fn split(text: &str) -> Vec<(usize, String)> {
    let mut parts = vec![(0, String::new())];
    for (number, line) in text.lines().enumerate() {
        let rest = line.strip_prefix("---").filter(|rest| rest.is_empty() || rest.starts_with([' ', '\t']));
        if let Some(rest) = rest {
            parts.push((number, rest.to_owned()));
        } else if let Some((_, part)) = parts.last_mut() {
            part.push_str(line);
        }
        if let Some((_, part)) = parts.last_mut() {
            part.push('\n');
        }
    }
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn documents_are_numbered_and_keep_their_comments() {
        let text = "# head\n---\n# first\na: 1\n---\n\n# nothing\n--- # tail\nb: |\n  ---\n  x\n";
        let documents = parse("f", text).unwrap();
        let places: Vec<_> = documents.iter().map(|d| (d.place.as_str(), d.text.as_str())).collect();
        assert_eq!(
            places,
            [("f, document 1", "# first\na: 1"), ("f, document 2", "# tail\nb: |\n  ---\n  x")]
        );
    }

    #[test]
    fn errors_name_file_document_and_line() {
        let error = |text: &str| format!("{:#}", parse("f.yaml", text).unwrap_err());
        let found = error("a: 1\n---\nb: [1\nc: 2\n");
        assert!(
            found.starts_with("f.yaml, document 2 cannot be read") && found.contains("line 4"),
            "{found}"
        );
        assert!(error("a: 1\na: 2\n").contains("duplicate"), "{}", error("a: 1\na: 2\n"));
        assert!(error("- a\n").contains("expected an object"));
    }

    #[test]
    fn json_streams_and_lists_are_read() {
        let documents =
            parse("f", r#"{"kind":"PodList","apiVersion":"v1","items":[{"metadata":{}}]} {"a":1}"#).unwrap();
        assert_eq!(documents.len(), 2);
        let (place, item) = &documents[0].objects()[0];
        assert_eq!((place.as_str(), item["kind"].as_str()), ("f, document 1, items[0]", Some("Pod")));
        assert_eq!(parse("f", "{a: 1, b: 2}").unwrap().len(), 1);
    }
}
