//! `coppice import`: the manifests of other systems as ours.
#![allow(clippy::doc_markdown, reason = "comments on arguments are the help that people read in a terminal")]

use std::collections::BTreeSet;
use std::path::PathBuf;

use anyhow::{Result, bail};
use clap::{Args, Subcommand};

use crate::consol::{API_VERSION, Imported, import};
use crate::files::{self, Document};
use crate::{Exit, Io};

/// Translate the manifests of another system into ours
#[derive(Debug, Args)]
pub(crate) struct ImportArgs {
    #[command(subcommand)]
    system: System,
}

#[derive(Debug, Subcommand)]
enum System {
    Consol(ConsolArgs),
}

/// Translate NamespaceManagers of the ConSol k8s-namespace-manager (k8s.consol.de/v1beta1)
///
/// Writes YAML to standard output, other objects as they are. A manager that governed another namespace lands in that
/// namespace. Standard error says what is different: a note cannot change what happens, a warning can.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  coppice import consol old/*.yaml > new.yaml && kubectl diff -f new.yaml
  kubectl get namespacemanagers.k8s.consol.de -A -o yaml | coppice import consol - | coppice plan -f -

Exit codes: 0 everything is carried over exactly, 3 something is not (see the warnings), 1 error (nothing is written), 2 usage.")]
struct ConsolArgs {
    /// Files, directories, or - for standard input
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
    /// Also directories below directories
    #[arg(short = 'R', long)]
    recursive: bool,
    /// Say only what can change what happens
    #[arg(short, long)]
    quiet: bool,
}

pub(crate) fn run(args: &ImportArgs, io: &mut Io<'_>) -> Result<Exit> {
    let System::Consol(args) = &args.system;
    let documents = files::read(&args.files, args.recursive, io.stdin)?;
    let mut output = Vec::new();
    let mut exit = Exit::Ok;
    let mut taken = BTreeSet::new();
    for document in &documents {
        if !has_managers(document)? {
            output.push(document.text.clone());
            continue;
        }
        for (place, object) in document.objects() {
            if object["apiVersion"] != API_VERSION {
                output.push(crate::yaml::to_string(&object)?);
                continue;
            }
            let imported = match import(&object, &mut taken) {
                Ok(imported) => imported,
                Err(wrong) => bail!("{place}: NamespaceManager {}: {wrong}", name_of(&object)),
            };
            if print_remarks(&place, &imported, args.quiet, io)? {
                exit = Exit::Attention;
            }
            output.extend(imported.yaml);
        }
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

/// Reports the differences; returns whether one of them can change what happens.
fn print_remarks(place: &str, imported: &Imported, quiet: bool, io: &mut Io<'_>) -> Result<bool> {
    let mut differs = false;
    for remark in &imported.remarks {
        differs |= remark.differs;
        let word = if remark.differs { "warning" } else { "note" };
        if remark.differs || !quiet {
            io.print_note(&format!("{word}: {place}: {}: {}", imported.name, remark.text))?;
        }
    }
    Ok(differs)
}
