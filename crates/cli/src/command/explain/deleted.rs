//! What is known of a namespace that does not exist: the records of Coppice, and the Events about it, which Kubernetes
//! keeps in `default`.

use anyhow::Result;
use coppice_api::notify::MessageDelivery;
use coppice_api::{DeletedNamespaceSpec, DeletionPhase};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Event, Namespace};
use kube::api::ListParams;
use kube::{Api, Client};
use serde::Serialize;

use super::governed_text::notice_line;
use crate::args::OutputFormat;
use crate::connect::failed;
use crate::facts::DeletedRecord;
use crate::print::{self, ERROR, HEADING, Table};
use crate::terminal::{PLAIN, Paragraph, Screen};
use crate::{Exit, Io, records, with_progress};

const READING_RECORDS: &str = "reading the records of deletions";

const NO_RECORD: &str = "there is no DeletedNamespace for it: Coppice did not delete it, or no longer keeps the record (30 days, the newest \
                         10,000)";
const NO_EVENT: &str = "no Event about it is left; Kubernetes keeps Events for an hour unless the API server is configured otherwise";

/// So many records are shown to people; CI systems use the same names again and again.
const SHOWN: usize = 5;

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct RecordedEvent {
    at: Option<Timestamp>,
    #[serde(rename = "type")]
    kind: String,
    reason: String,
    message: String,
    uid: String,
}

/// A deletion by Coppice.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct RecordedDeletion<'a> {
    decision: &'a str,
    /// None until the API server has accepted the deletion.
    phase: Option<DeletionPhase>,
    #[serde(skip_serializing_if = "Option::is_none")]
    deleted_at: Option<Timestamp>,
    /// What its owner is notified of.
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    notices: &'a [MessageDelivery],
    #[serde(flatten)]
    spec: Option<&'a DeletedNamespaceSpec>,
    /// What cannot be understood of the record.
    #[serde(skip_serializing_if = "Option::is_none")]
    problem: Option<String>,
}

impl<'a> From<&'a DeletedRecord> for RecordedDeletion<'a> {
    fn from(record: &'a DeletedRecord) -> Self {
        Self {
            decision: record.name(),
            phase: record.status.phase,
            deleted_at: record.status.deleted_at,
            notices: &record.status.notices,
            spec: record.spec.as_ref().ok(),
            problem: records::problem(record).map(ToString::to_string),
        }
    }
}

#[derive(Serialize)]
struct Report<'a> {
    namespace: &'a str,
    exists: bool,
    /// None if they cannot be read.
    records: Option<Vec<RecordedDeletion<'a>>>,
    /// None if they cannot be read.
    events: Option<&'a [RecordedEvent]>,
}

/// What was found, or why it cannot be read.
type Found<T> = Result<Vec<T>>;

pub(super) async fn run(
    client: &Client,
    namespace: &str,
    format: OutputFormat,
    io: &mut Io<'_>,
) -> Result<Exit> {
    let records = with_progress(READING_RECORDS, io, records(client, namespace)).await?;
    let events =
        with_progress("reading the Events about the namespace", io, events(client, namespace)).await?;
    let absent: Vec<String> =
        [absence(&records, NO_RECORD), absence(&events, NO_EVENT)].into_iter().flatten().collect();
    if absent.len() == 2 {
        let first = format!("namespace {namespace} does not exist, and nothing is known about it:");
        return Err(Paragraph { first, below: absent }.into());
    }
    let report = || Report {
        namespace,
        exists: false,
        records: records.as_ref().ok().map(|all| all.iter().map(RecordedDeletion::from).collect()),
        events: events.as_deref().ok(),
    };
    match format {
        OutputFormat::Json => print::json(io.out, &report())?,
        OutputFormat::Yaml => print::yaml(io.out, &report())?,
        OutputFormat::Name => {
            for record in records.iter().flatten() {
                writeln!(io.screen(), "{}", records::resource_name(record.name()))?;
            }
        }
        OutputFormat::Table | OutputFormat::Wide => {
            let records = records.as_deref().unwrap_or_default();
            text(namespace, records, events.as_deref().unwrap_or_default(), io)?;
        }
    }
    for what in absent {
        io.print_note(&format!("note: {what}"))?;
    }
    Ok(Exit::Ok)
}

/// Says so if Coppice deleted an earlier namespace of the same name: anyone who asks may mean that one. Those who may not read
/// records get no note.
pub(super) async fn note_earlier(client: &Client, now: &Namespace, io: &mut Io<'_>) -> Result<()> {
    let name = now.metadata.name.as_deref().unwrap_or_default();
    let labels = records::of_namespace(name);
    let reading = records::list(client, Some(&labels));
    let records = with_progress(READING_RECORDS, io, reading).await?.unwrap_or_default();
    let uid = now.metadata.uid.as_deref();
    let earlier = |record: &&DeletedRecord| record.spec.as_ref().is_ok_and(|s| Some(s.uid.as_str()) != uid);
    if records.iter().any(|record| earlier(&record)) {
        io.print_note(&format!(
            "note: Coppice deleted an earlier namespace of this name: coppice list --deleted -n {name}"
        ))?;
    }
    Ok(())
}

/// Why there is nothing to show.
fn absence<T>(found: &Found<T>, none: &str) -> Option<String> {
    match found {
        Err(why) => Some(format!("{why:#}")),
        Ok(all) => all.is_empty().then(|| none.to_owned()),
    }
}

async fn records(client: &Client, namespace: &str) -> Found<DeletedRecord> {
    let found = records::list(client, Some(&records::of_namespace(namespace))).await;
    found.map_err(|error| records::unreadable(&error))
}

async fn events(client: &Client, namespace: &str) -> Found<RecordedEvent> {
    let events: Api<Event> = Api::namespaced(client.clone(), "default");
    let about = ListParams::default()
        .fields(&format!("involvedObject.kind=Namespace,involvedObject.name={namespace}"));
    let what = "the Events about it in namespace default cannot be read";
    let found = events.list(&about).await.map_err(|error| failed(what, &error))?;
    let mut events: Vec<RecordedEvent> = found.items.into_iter().map(recorded_events).collect();
    events.sort_by_key(|e| e.at);
    Ok(events)
}

fn recorded_events(event: Event) -> RecordedEvent {
    let series = event.series.and_then(|s| s.last_observed_time).map(|t| t.0);
    RecordedEvent {
        at: series.or(event.last_timestamp.map(|t| t.0)).or(event.event_time.map(|t| t.0)),
        kind: event.type_.unwrap_or_default(),
        reason: event.reason.unwrap_or_default(),
        message: event.message.unwrap_or_default(),
        uid: event.involved_object.uid.unwrap_or_default(),
    }
}

fn text(namespace: &str, records: &[DeletedRecord], events: &[RecordedEvent], io: &mut Io<'_>) -> Result<()> {
    let now = io.now;
    let to = &mut io.screen();
    writeln!(to, "Namespace {namespace} does not exist (any more). What is remembered of it:")?;
    for record in records.iter().take(SHOWN) {
        writeln!(to)?;
        deletion(record, now, to)?;
    }
    if let Some(more) = records.len().checked_sub(SHOWN).filter(|more| *more > 0) {
        writeln!(to)?;
        writeln!(to, "{more} older records: coppice list --deleted -n {namespace}")?;
    }
    if !records.is_empty() {
        writeln!(to)?;
        writeln!(
            to,
            "The name of a DeletedNamespace is the decision's id. The audit log of the API server has it in the User-Agent of the \
             request that deleted the namespace."
        )?;
    }
    if events.is_empty() {
        return Ok(());
    }
    writeln!(to)?;
    if !records.is_empty() {
        to.put("Events", HEADING)?;
        writeln!(to)?;
    }
    let mut table = Table::new(&["WHEN", "TYPE", "REASON", "WHAT"]);
    for event in events {
        let when = print::instant_or_dash(event.at, now);
        table.row(vec![
            when.into(),
            event.kind.as_str().into(),
            event.reason.as_str().into(),
            event.message.as_str().into(),
        ]);
    }
    table.write(to, true)
}

fn deletion(record: &DeletedRecord, now: Timestamp, to: &mut Screen<'_>) -> Result<()> {
    to.put(&format!("DeletedNamespace {}", record.name()), HEADING)?;
    writeln!(to)?;
    writeln!(to, "  Phase:      {}", phase(record, now))?;
    if let Some(problem) = records::problem(record) {
        to.put("  ", PLAIN)?;
        to.put(&problem.to_string(), ERROR)?;
        writeln!(to)?;
    }
    let Ok(spec) = &record.spec else { return Ok(()) };
    let created = print::instant_from(spec.namespace_created, now);
    writeln!(to, "  Namespace:  created {created}, uid {}", spec.uid)?;
    writeln!(to, "  Decided:    {}", print::instant_from(spec.decided_at, now))?;
    // A NamespaceManager is in its namespace; a cluster manager is in none.
    let within =
        if spec.manager_kind == "NamespaceManager" { format!("{}/", spec.namespace) } else { String::new() };
    writeln!(to, "  By:         {} {within}{}, policy {:?}", spec.manager_kind, spec.manager, spec.policy)?;
    writeln!(to, "  Because:    {}", spec.reason)?;
    let evidence: Vec<String> = spec.evidence.iter().map(|(k, v)| format!("{k}: {v}")).collect();
    if !evidence.is_empty() {
        writeln!(to, "  Evidence:   {}", evidence.join("; "))?;
    }
    if let Some(losses) = spec.losses.as_ref().filter(|losses| !losses.is_empty()) {
        writeln!(to, "  Announced:  {losses}")?;
    }
    for notice in &record.status.notices {
        to.put("  Notified:   ", PLAIN)?;
        notice_line(notice, now, to)?;
    }
    for notice in spec.notification.iter().flat_map(|notification| &notification.superseded) {
        let why = notice.last_error.as_ref().map(|error| format!(" ({error})")).unwrap_or_default();
        writeln!(to, "  Not sent:   {} by {}, superseded by Deleted{why}", notice.about, notice.channel)?;
    }
    Ok(())
}

fn phase(record: &DeletedRecord, now: Timestamp) -> String {
    let Some(phase) = records::phase(record) else { return "-".to_owned() };
    match (record.status.phase, record.status.deleted_at) {
        (None, _) => {
            format!("{phase}: decided, and the namespace was not being deleted when the operator last looked")
        }
        (Some(DeletionPhase::Terminating), _) => {
            format!("{phase}: being deleted when the operator last looked")
        }
        (Some(DeletionPhase::Deleted), Some(at)) => {
            format!("{phase}, gone by {}", print::instant_from(at, now))
        }
        (Some(DeletionPhase::Deleted), None) => phase.to_owned(),
    }
}
