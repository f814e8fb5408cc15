//! `coppice import consol`.

use std::collections::BTreeSet;

use anyhow::{Result, bail};
use clap::Args;

use super::{InputArgs, print_remarks};
use crate::consol::{self, API_VERSION};
use crate::files::Document;
use crate::{Exit, Io};

/// Translate NamespaceManagers of the ConSol k8s-namespace-manager (k8s.consol.de/v1beta1)
///
/// Writes YAML to standard output, other objects as they are. A manager that lives in the namespace that it governs becomes a
/// NamespaceManager; one that lives elsewhere becomes a ClusterNamespaceManager of that namespace, which observes until you
/// set its mode to Enforce. Standard error says what is different: a note cannot change what happens, a warning can.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  coppice import consol old/*.yaml > new.yaml && kubectl diff -f new.yaml
  kubectl get namespacemanagers.k8s.consol.de -A -o yaml | coppice import consol - | coppice plan -f -

Exit codes: 0 everything is carried over exactly, 3 something is not (see the warnings), 1 error (nothing is written), 2 usage.")]
pub(super) struct ConsolArgs {
    #[command(flatten)]
    input: InputArgs,
}

/// A part of the output.
enum Part {
    /// What is no manager of that operator, as it is.
    Other(String),
    /// One, by its number.
    Manager(String),
}

pub(super) fn run(args: &ConsolArgs, io: &mut Io<'_>) -> Result<Exit> {
    let documents = args.input.read(io)?;
    let (mut parts, mut managers) = (Vec::new(), Vec::new());
    let mut taken = BTreeSet::new();
    for document in &documents {
        if !has_managers(document)? {
            parts.push(Part::Other(document.text.clone()));
            continue;
        }
        for (place, object) in document.objects() {
            if object["apiVersion"] != API_VERSION {
                parts.push(Part::Other(crate::yaml::to_string(&object)?));
                continue;
            }
            match consol::import(&object, &mut taken) {
                Ok(manager) => managers.push(manager),
                Err(wrong) => bail!("{place}: NamespaceManager {}: {wrong}", name_of(&object)),
            }
            parts.push(Part::Manager(place));
        }
    }
    consol::merge(&mut managers);
    print(parts, managers, args.input.quiet, io)
}

fn print(parts: Vec<Part>, managers: Vec<consol::Translated>, quiet: bool, io: &mut Io<'_>) -> Result<Exit> {
    let mut managers = managers.into_iter();
    let mut output = Vec::new();
    let mut exit = Exit::Ok;
    for part in parts {
        let place = match part {
            Part::Other(text) => {
                output.push(text);
                continue;
            }
            Part::Manager(place) => place,
        };
        // There are as many managers as parts that are one.
        let Some(manager) = managers.next() else { continue };
        let name = manager.name.clone();
        let imported = match consol::write(manager) {
            Ok(imported) => imported,
            Err(wrong) => bail!("{place}: NamespaceManager {name}: {wrong}"),
        };
        if print_remarks(&format!("{place}: {}: ", imported.name), &imported.remarks, quiet, io)? {
            exit = Exit::Attention;
        }
        output.extend(imported.yaml);
    }
    for text in output {
        writeln!(io.out, "---\n{}", text.trim_end())?;
    }
    Ok(exit)
}

/// Whether a document has anything to translate. Versions and kinds of that operator that are not known are errors, not
/// passed through: they would be lost unseen.
fn has_managers(document: &Document) -> Result<bool> {
    let mut found = false;
    for (place, object) in document.objects() {
        let (version, kind) =
            (object["apiVersion"].as_str().unwrap_or_default(), object["kind"].as_str().unwrap_or_default());
        match (version, kind) {
            ("", _) | (_, "") => bail!("{place}: apiVersion or kind is missing"),
            (API_VERSION, "NamespaceManager") => found = true,
            (other, kind) if other.starts_with("k8s.consol.de/") => {
                bail!("{place}: {other} {kind} is not known; only {API_VERSION} NamespaceManager is")
            }
            _ => {}
        }
    }
    Ok(found)
}

fn name_of(object: &serde_json::Value) -> &str {
    object.pointer("/metadata/name").and_then(|n| n.as_str()).unwrap_or("without a name")
}
