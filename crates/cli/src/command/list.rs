//! `coppice list`: governed namespaces and managers as the operator reports them, or the namespaces that it deleted.
#![allow(clippy::doc_markdown, reason = "comments on arguments are the help that people read in a terminal")]

mod deleted;
mod governed;

use anyhow::Result;
use clap::Args;
use coppice_api::manager::Phase;
use serde::Serialize;
use serde_json::json;

use crate::args::{ConnectionArgs, OutputArgs, OutputFormat};
use crate::connect::{connect, failed};
use crate::facts::{Manager, NamespaceRecord, Object};
use crate::print::{self, Cell, Table};
use crate::write::resource_name;
use crate::{Exit, Io, live, namespace_record, with_progress};

/// List governed namespaces and managers as the operator last reported them, or the namespaces that it deleted
///
/// First the records of the namespaces that cluster managers govern (ManagedNamespace), then the NamespaceManagers.
/// `coppice plan` computes what will happen instead of reading what was reported.
#[derive(Debug, Args)]
#[command(
    visible_alias = "ls",
    after_help = "Examples:
  coppice list -A                                every governed namespace, and the managers of all namespaces
  coppice list --deleted                         the namespaces that Coppice deleted in the last 30 days
  coppice list --deleted -n team-a -o wide       those of the name team-a, with uid and decision

Phases of a deleted namespace: Pending (decided, and not being deleted yet), Terminating (being deleted), Deleted (gone).
Exit codes: 0 listed, 1 error, 2 usage."
)]
pub(crate) struct ListArgs {
    /// All namespaces
    #[arg(short = 'A', long)]
    all_namespaces: bool,
    /// Only objects with these labels: a=b,c in (d,e),!f
    #[arg(short = 'l', long, value_name = "SELECTOR")]
    selector: Option<String>,
    /// The namespaces that Coppice deleted, the newest decision first; of every name, unless -n gives one
    #[arg(long)]
    deleted: bool,
    #[command(flatten)]
    output: OutputArgs,
}

pub(crate) async fn run(args: &ListArgs, connection: &ConnectionArgs, io: &mut Io<'_>) -> Result<Exit> {
    if args.deleted {
        return deleted::run(args, connection, io).await;
    }
    let api = connect(connection, io).await?;
    let namespace = (!args.all_namespaces).then_some(api.namespace.as_str());
    let selector = args.selector.as_deref();
    let reading = async {
        let managers = live::managers(&api.client, namespace, selector).await?;
        anyhow::Ok((managers, live::records(&api.client, namespace, selector).await))
    };
    let (managers, records) = with_progress("reading managers and records", io, reading).await??;
    let records = match records {
        Ok(records) => records,
        Err(error) => {
            let why = failed("the records of namespaces (ManagedNamespaces) cannot be listed", &error);
            io.print_note(&format!("warning: {why:#}; only managers are shown"))?;
            Vec::new()
        }
    };
    match args.output.output {
        OutputFormat::Json => print::json(io.out, &both(&records, &managers)?)?,
        OutputFormat::Yaml => print::yaml(io.out, &both(&records, &managers)?)?,
        OutputFormat::Name => {
            for _ in &records {
                writeln!(io.screen(), "{}", namespace_record::resource_name())?;
            }
            for manager in &managers {
                writeln!(io.screen(), "{}", resource_name(manager.name()))?;
            }
        }
        OutputFormat::Table | OutputFormat::Wide => {
            if !records.is_empty() {
                governed::table(&records, args.output, io)?;
            }
            match (records.is_empty(), managers.is_empty()) {
                (true, true) => nothing_found(namespace, io)?,
                (false, true) => {}
                (only, false) => {
                    if !only {
                        writeln!(io.screen())?;
                    }
                    table(&managers, args, io)?;
                }
            }
        }
    }
    Ok(Exit::Ok)
}

fn both(records: &[NamespaceRecord], managers: &[Manager]) -> Result<serde_json::Value> {
    let mut items = items("ManagedNamespace", records)?;
    items.extend(self::items("NamespaceManager", managers)?);
    Ok(json!({ "apiVersion": "v1", "kind": "List", "items": items }))
}

fn nothing_found(namespace: Option<&str>, io: &mut Io<'_>) -> Result<()> {
    let place = namespace.map_or_else(String::new, |n| format!(" in {n} namespace"));
    Ok(io.print_note(&format!("No resources found{place}."))?)
}

fn as_list<S: Serialize, T: Serialize>(kind: &str, objects: &[Object<S, T>]) -> Result<serde_json::Value> {
    Ok(json!({ "apiVersion": "v1", "kind": "List", "items": items(kind, objects)? }))
}

fn items<S: Serialize, T: Serialize>(kind: &str, objects: &[Object<S, T>]) -> Result<Vec<serde_json::Value>> {
    let mut items = Vec::with_capacity(objects.len());
    for object in objects {
        let mut item = json!({
            "apiVersion": "coppice.dev/v1alpha1",
            "kind": kind,
            "metadata": object.meta,
            "status": object.status,
        });
        if let Ok(spec) = &object.spec {
            item["spec"] = serde_json::to_value(spec)?;
        }
        if let Some(metadata) = item["metadata"].as_object_mut() {
            metadata.remove("managedFields");
        }
        items.push(item);
    }
    Ok(items)
}

fn table(managers: &[Manager], args: &ListArgs, io: &mut Io<'_>) -> Result<()> {
    let wide = args.output.output == OutputFormat::Wide;
    let mut headers = if args.all_namespaces { vec!["NAMESPACE"] } else { Vec::new() };
    headers.extend(["NAME", "PHASE", "NEXT", "DUE", "AGE"]);
    if wide {
        headers.extend(["FIRED", "POLICIES", "HELD UNTIL", "EXTENDED UNTIL"]);
    }
    headers.push("WHY");
    let mut table = Table::new(&headers);
    let instant = |at| print::instant_or_dash(at, io.now);
    for manager in managers {
        let status = &manager.status;
        let next = status.next.as_ref();
        let age = manager.meta.creation_timestamp.as_ref();
        let mut cells: Vec<Cell> =
            if args.all_namespaces { vec![manager.namespace().into()] } else { Vec::new() };
        cells.extend([
            manager.name().into(),
            Cell::phase(status.phase),
            next.and_then(|n| n.action.as_deref()).unwrap_or("-").into(),
            instant(next.and_then(|n| n.due)).into(),
            age.map_or_else(|| "-".to_owned(), |t| print::age(io.now.duration_since(t.0))).into(),
        ]);
        if wide {
            let spec = manager.spec.as_ref().ok();
            let policies = spec.map_or_else(|| "-".to_owned(), |s| s.policies().len().to_string());
            cells.extend([
                status.steps.firings.to_string().into(),
                policies.into(),
                instant(spec.and_then(|s| s.hold.as_ref()).map(|h| h.until)).into(),
                instant(spec.and_then(|s| s.extend_until)).into(),
            ]);
        }
        cells.push(Cell::from(why(manager)));
        table.row(cells);
    }
    table.write(&mut io.screen(), !args.output.no_headers)
}

fn why(manager: &Manager) -> String {
    if let Some(error) = manager.spec.as_ref().err().or(manager.status_error.as_ref()) {
        return error.to_string();
    }
    let outdated =
        manager.meta.generation.is_some() && manager.status.observed_generation != manager.meta.generation;
    let message = manager.status.next.as_ref().map(|n| n.message.as_str());
    match (manager.status.phase, message) {
        (None::<Phase>, _) => {
            "the operator has not looked at it yet; `coppice doctor` says whether it runs".to_owned()
        }
        (_, Some(message)) if outdated => format!("{message} (before the last change of spec)"),
        (_, message) => message.unwrap_or("-").to_owned(),
    }
}
