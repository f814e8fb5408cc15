//! `coppice list --deleted`: the namespaces that Coppice deleted, by its records.

use anyhow::Result;

use super::{ListArgs, as_list, nothing_found};
use crate::args::{ConnectionArgs, OutputFormat};
use crate::connect::connect;
use crate::facts::DeletedRecord;
use crate::print::{self, Cell, Table, WARNING};
use crate::{Exit, Io, records, with_progress};

/// Characters of the evidence in a table; the other formats have all of it.
const MAX_EVIDENCE: usize = 120;

pub(super) async fn run(args: &ListArgs, connection: &ConnectionArgs, io: &mut Io<'_>) -> Result<Exit> {
    // The context's namespace is about what exists: only one that was named limits what is gone.
    let namespace = connection.namespace.as_deref().filter(|_| !args.all_namespaces);
    let labels = args.selector.iter().filter(|selector| !selector.is_empty()).cloned();
    let selector: Vec<String> = namespace.map(records::of_namespace).into_iter().chain(labels).collect();
    let selector = (!selector.is_empty()).then(|| selector.join(","));
    let client = connect(connection, io).await?.client;
    let reading = records::list(&client, selector.as_deref());
    let found = with_progress("reading the records of deletions", io, reading).await?;
    let found = found.map_err(|e| records::unreadable(&e))?;
    match args.output.output {
        OutputFormat::Json => print::json(io.out, &as_list("DeletedNamespace", &found)?)?,
        OutputFormat::Yaml => print::yaml(io.out, &as_list("DeletedNamespace", &found)?)?,
        OutputFormat::Name => {
            for record in &found {
                writeln!(io.screen(), "{}", records::resource_name(record.name()))?;
            }
        }
        OutputFormat::Table | OutputFormat::Wide if found.is_empty() => nothing_found(namespace, io)?,
        OutputFormat::Table | OutputFormat::Wide => table(&found, args, io)?,
    }
    Ok(Exit::Ok)
}

fn table(found: &[DeletedRecord], args: &ListArgs, io: &mut Io<'_>) -> Result<()> {
    let wide = args.output.output == OutputFormat::Wide;
    let mut headers = vec!["NAMESPACE", "PHASE", "DELETED", "MANAGER", "POLICY"];
    if wide {
        headers.extend(["UID", "DECISION", "CREATED"]);
    }
    headers.push("WHY");
    let mut table = Table::new(&headers);
    let instant = |at| print::instant_or_dash(at, io.now);
    for record in found {
        let spec = record.spec.as_ref().ok();
        let mut cells: Vec<Cell> = vec![
            records::namespace(record).unwrap_or("-").into(),
            phase(record),
            instant(record.status.deleted_at).into(),
            spec.map_or("-", |s| s.manager.as_str()).into(),
            spec.map_or("-", |s| s.policy.as_str()).into(),
        ];
        if wide {
            cells.extend([
                spec.map_or("-", |s| s.uid.as_str()).into(),
                record.name().into(),
                instant(spec.map(|s| s.namespace_created)).into(),
            ]);
        }
        cells.push(why(record).into());
        table.row(cells);
    }
    table.write(&mut io.screen(), !args.output.no_headers)
}

fn phase(record: &DeletedRecord) -> Cell {
    match records::phase(record) {
        Some(unfinished @ ("Pending" | "Terminating")) => Cell::styled(unfinished, WARNING),
        known => known.unwrap_or("-").into(),
    }
}

/// The reason, and the evidence in short.
fn why(record: &DeletedRecord) -> String {
    let (Ok(spec), None) = (&record.spec, records::problem(record)) else {
        return records::problem(record).map_or_else(|| "-".to_owned(), ToString::to_string);
    };
    let evidence: Vec<String> = spec.evidence.iter().map(|(name, value)| format!("{name} {value}")).collect();
    let evidence = evidence.join(", ");
    let mut short: String = evidence.chars().take(MAX_EVIDENCE).collect();
    if short.len() < evidence.len() {
        short.push_str("...");
    }
    if short.is_empty() { spec.reason.clone() } else { format!("{}: {short}", spec.reason) }
}
