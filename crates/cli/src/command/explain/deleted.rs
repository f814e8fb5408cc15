//! What is known of a namespace that does not exist: the Events about it, which Kubernetes keeps in `default`.

use anyhow::{Result, bail};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Event;
use kube::api::ListParams;
use kube::{Api, Client};
use serde::Serialize;

use crate::args::Format;
use crate::connect::failed;
use crate::print::{self, Table};
use crate::{Exit, Io};

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

#[derive(Serialize)]
struct Report<'a> {
    namespace: &'a str,
    exists: bool,
    events: &'a [RecordedEvent],
}

pub(super) async fn run(client: &Client, namespace: &str, format: Format, io: &mut Io<'_>) -> Result<Exit> {
    let events: Api<Event> = Api::namespaced(client.clone(), "default");
    let about = ListParams::default()
        .fields(&format!("involvedObject.kind=Namespace,involvedObject.name={namespace}"));
    let found = events.list(&about).await.map_err(|e| {
        failed(&format!("namespace {namespace} does not exist, and the Events about it in namespace default cannot be read"), &e)
    })?;
    let mut events: Vec<RecordedEvent> = found.items.into_iter().map(recorded_events).collect();
    events.sort_by_key(|e| e.at);
    if events.is_empty() {
        bail!(
            "namespace {namespace} does not exist, and no Event about it is left; Kubernetes keeps Events for an hour \
             unless the API server is configured otherwise"
        );
    }
    match format {
        Format::Json => print::json(io.out, &Report { namespace, exists: false, events: &events })?,
        Format::Yaml => print::yaml(io.out, &Report { namespace, exists: false, events: &events })?,
        _ => {
            writeln!(
                io.screen(),
                "Namespace {namespace} does not exist (any more). What is remembered of it:"
            )?;
            writeln!(io.screen())?;
            let mut table = Table::new(&["WHEN", "TYPE", "REASON", "WHAT"]);
            for event in &events {
                let when = event.at.map_or_else(|| "-".to_owned(), |at| print::instant_from(at, io.now));
                table.row(vec![
                    when.into(),
                    event.kind.as_str().into(),
                    event.reason.as_str().into(),
                    event.message.as_str().into(),
                ]);
            }
            table.write(&mut io.screen(), true)?;
        }
    }
    Ok(Exit::Ok)
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
