//! `coppice simulate`: runs the operator ahead of time on a copy of what there is.
#![allow(clippy::doc_markdown, reason = "comments on arguments are the help that people read in a terminal")]

use std::collections::BTreeMap;

use anyhow::{Context as _, Result};
use clap::{Args, ValueEnum};
use coppice_api::names::CONFIG_NAME;
use coppice_quantity::Duration;
use coppice_sim::simulate::{
    Forecast, ManagerForecast, OperatorOptions, SimulationRequest, TimelineEntry, simulate, svg_timeline,
};
use jiff::{SignedDuration, Timestamp};
use serde::Serialize;
use serde_json::{Value, json};

use crate::args::{ArgumentError, ConnectionArgs, SourceArgs, positive_duration};
use crate::connect::connect;
use crate::files::Document;
use crate::lifecycle::LifecycleSnapshot;
use crate::lifecycle::documents::{self, Reading};
use crate::print::{self, Cell, Table};
use crate::{Exit, Io, compute, files, live, with_progress};

/// Run the operator ahead of time, on a copy: what it would do in the days to come, when and why
///
/// Lists when each namespace is deleted, by managers and by cluster managers. The real controllers work in virtual time on an
/// API server in memory, which holds a copy of the cluster or of files. Nothing is written to a cluster, and no webhook is sent. Only time passes:
/// pods and workloads stay as they are now, nobody holds, extends or changes anything, and every webhook is taken by its
/// receiver.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  coppice simulate                               the next 7 days of the whole cluster
  coppice simulate -n team-a --for 24h           of one namespace, until tomorrow
  kubectl get ns,nsman,cnsman,mns,delns,copcfg,pods,jobs,cronjobs,deploy,sts,ds,rs,pvc -A -o yaml | coppice simulate -f -
  coppice simulate -f managers/ --for 30d        of files, without a cluster
  coppice simulate -o svg > next-week.svg        as a picture of the namespaces over time

The budget of CoppiceConfig binds here, too, and is shared by all namespaces: with -n the others are not there to spend it.
Exit codes: 0 success, 3 something is refused or was left out, 1 error, 2 usage.")]
pub(crate) struct SimulateArgs {
    /// How far to look ahead, at most a year
    #[arg(long = "for", value_name = "TIME", default_value = "7d", value_parser = ahead)]
    lasts: Duration,
    #[command(flatten)]
    source: SourceArgs,
    /// How to print
    #[arg(short, long, value_enum, default_value_t, value_name = "FORMAT")]
    output: Output,
    /// Without the line of column names
    #[arg(long)]
    no_headers: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
enum Output {
    /// For people
    #[default]
    Table,
    /// For programs
    Json,
    /// A picture of the namespaces over time
    Svg,
}

#[derive(Serialize)]
struct Report<'a> {
    from: Timestamp,
    until: Timestamp,
    timeline: &'a [TimelineEntry],
    managers: &'a [ManagerForecast],
    notes: &'a [String],
}

/// The longest time to simulate.
const MAX_LOOKAHEAD: Duration = Duration::from_secs(366 * 24 * 3600);

fn ahead(text: &str) -> Result<Duration, ArgumentError> {
    let time = positive_duration(text)?;
    if time > MAX_LOOKAHEAD { Err(ArgumentError::TooFarAhead(MAX_LOOKAHEAD)) } else { Ok(time) }
}

pub(crate) async fn run(args: &SimulateArgs, connection: &ConnectionArgs, io: &mut Io<'_>) -> Result<Exit> {
    let source = &args.source;
    let began = source.at.map_or(io.now, |at| at.from(io.now));
    let (mut objects, warnings) = if source.files.is_empty() {
        let api = connect(connection, io).await?;
        let objects = live::objects(&api.client, connection.namespace.as_deref());
        with_progress("reading the cluster", io, objects).await??
    } else {
        let documents = files::read(&source.files, source.recursive, io.stdin)?;
        let namespace = connection.namespace.as_deref();
        let cluster_snapshot = documents::snapshot(
            &documents,
            Reading { source, namespace, assumed: io.now.min(began), further_need_pods: false },
        )?;
        let mut objects = from_files(&documents, &cluster_snapshot, namespace);
        if let Some(note) = documents::defaults_assumed(&documents) {
            io.print_note(note)?;
            // Not left to the operator in the simulation: missing settings stop it.
            objects.push(json!({
                "apiVersion": "coppice.dev/v1alpha1", "kind": "CoppiceConfig",
                "metadata": { "name": CONFIG_NAME }, "spec": {},
            }));
        }
        (objects, cluster_snapshot.warnings)
    };
    for warning in &warnings {
        io.print_note(&format!("warning: {warning}"))?;
    }
    // Cluster managers would govern the others, too.
    if let Some(wanted) = connection.namespace.as_deref() {
        objects.retain(|object| object["kind"] != "Namespace" || object["metadata"]["name"] == *wanted);
    }
    let request = SimulationRequest {
        began,
        lasts: std::time::Duration::from_secs(args.lasts.as_secs()),
        objects,
        setup: OperatorOptions {
            own_namespace: source.system_namespace.clone(),
            scale_kinds: source.scale_kinds.clone(),
        },
    };
    let what = format!("simulating {}", args.lasts);
    // On another thread, since it has a runtime of its own, in which time is virtual.
    let forecast = compute(&what, io, move || simulate(&request)).await?.context("the simulation")?;
    for note in &forecast.notes {
        io.print_note(&format!("note: {note}"))?;
    }
    write(args, &forecast, io)?;
    let refused = forecast.managers.iter().any(|manager| manager.phase == "Refused");
    let left_out = forecast.notes.iter().any(|note| note.starts_with("left out"));
    Ok(if refused || left_out { Exit::Attention } else { Exit::Ok })
}

/// What the documents hold, with the namespaces that a snapshot of them assumes.
fn from_files(
    documents: &[Document],
    cluster_snapshot: &LifecycleSnapshot,
    namespace: Option<&str>,
) -> Vec<Value> {
    let mut objects: Vec<Value> = Vec::new();
    let mut named = std::collections::BTreeSet::new();
    for (_, mut object) in documents.iter().flat_map(Document::objects) {
        let cluster_wide = ["Namespace", "CoppiceConfig", "ClusterNamespaceManager", "DeletedNamespace"];
        if cluster_wide.iter().any(|kind| object["kind"] == *kind) {
            if object["kind"] == "Namespace" {
                named.extend(object["metadata"]["name"].as_str().map(str::to_owned));
            }
        } else if let Some(metadata) = object["metadata"].as_object_mut() {
            let given = metadata.entry("namespace").or_insert_with(|| namespace.unwrap_or("default").into());
            if namespace.is_some_and(|wanted| *given != *wanted) {
                continue;
            }
        }
        objects.push(object);
    }
    let assumed = cluster_snapshot.namespaces.values().filter(|facts| !named.contains(&facts.name));
    objects.extend(assumed.map(|facts| {
        json!({
            "apiVersion": "v1", "kind": "Namespace",
            "metadata": { "name": facts.name, "uid": facts.uid, "creationTimestamp": print::instant(facts.created) },
        })
    }));
    objects
}

fn write(args: &SimulateArgs, forecast: &Forecast, io: &mut Io<'_>) -> Result<()> {
    match args.output {
        Output::Json => {
            let report = Report {
                from: forecast.began,
                until: forecast.until,
                timeline: &forecast.timeline,
                managers: &forecast.managers,
                notes: &forecast.notes,
            };
            print::json(io.out, &report)
        }
        Output::Svg => Ok(write!(io.out, "{}", svg_timeline::svg(forecast))?),
        Output::Table => {
            if !forecast.timeline.is_empty() {
                timeline(forecast).write(&mut io.screen(), !args.no_headers)?;
            }
            for line in summary(forecast, args.lasts) {
                io.print_note(&line)?;
            }
            Ok(())
        }
    }
}

fn timeline(forecast: &Forecast) -> Table {
    let mut table = Table::new(&["WHEN", "IN", "NAMESPACE", "MANAGER", "WHAT", "WHY"]);
    for entry in &forecast.timeline {
        let what = match entry.reason.as_str() {
            "NamespaceDeleted" => Cell::styled(&entry.reason, print::ERROR),
            _ if entry.warning => Cell::styled(&entry.reason, print::WARNING),
            _ => entry.reason.as_str().into(),
        };
        table.row(vec![
            print::instant(entry.at).into(),
            print::age(entry.at.duration_since(forecast.began)).into(),
            entry.namespace.as_str().into(),
            entry.manager.as_ref().map_or_else(|| "-".to_owned(), |m| shown(entry.manager_kind, m)).into(),
            what,
            entry.message.as_str().into(),
        ]);
    }
    table
}

/// How a manager is called in tables: cluster managers by their short name.
fn shown(kind: &str, manager: &str) -> String {
    if kind == "NamespaceManager" { manager.to_owned() } else { format!("cnsman/{manager}") }
}

/// A summary in a few lines.
fn summary(forecast: &Forecast, lasts: Duration) -> Vec<String> {
    let managers = &forecast.managers;
    if managers.is_empty() {
        return vec!["No NamespaceManagers or governed namespaces found: nothing would be done.".to_owned()];
    }
    let mut namespaces: BTreeMap<&str, bool> = BTreeMap::new();
    for manager in managers {
        *namespaces.entry(&manager.namespace).or_default() |= manager.deleted.is_some();
    }
    let deleted = namespaces.values().filter(|deleted| **deleted).count();
    let mut lines = vec![format!(
        "In {lasts}, of {}, {deleted} would be deleted.",
        print::count(namespaces.len(), "managed namespace")
    )];
    let mut left: BTreeMap<(&str, &str, &str), usize> = BTreeMap::new();
    for manager in managers.iter().filter(|manager| manager.deleted.is_none()) {
        let what = if manager.manager_kind == "NamespaceManager" { "manager" } else { "governed namespace" };
        *left.entry((&manager.phase, &manager.reason, what)).or_default() += 1;
    }
    lines.extend(left.into_iter().map(|((phase, reason, what), count)| {
        format!("  left as {phase} ({reason}): {}", print::count(count, what))
    }));
    let last = forecast.timeline.iter().rev().find(|entry| entry.reason == "NamespaceDeleted");
    lines.extend(last.map(|last| {
        let after = last.at.duration_since(forecast.began).max(SignedDuration::ZERO);
        format!("  the last deletion is {} from now", print::age(after))
    }));
    lines
}
