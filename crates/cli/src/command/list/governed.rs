//! The namespaces that cluster managers govern, by their records.

use anyhow::Result;
use coppice_api::managed_namespace::RecordHold;
use coppice_api::manager::NextStep;
use coppice_api::{NamespacePhase, Reason};
use coppice_lifecycle::cluster::{extension_end, hold_end};

use crate::Io;
use crate::args::{OutputArgs, OutputFormat};
use crate::facts::NamespaceRecord;
use crate::print::{self, Cell, Table};

pub(super) fn table(records: &[NamespaceRecord], output: OutputArgs, io: &mut Io<'_>) -> Result<()> {
    let wide = output.output == OutputFormat::Wide;
    let mut headers = vec!["NAMESPACE", "PHASE", "OWNER", "EXPIRES", "NEXT", "DUE", "AGE"];
    if wide {
        headers.extend(["CLUSTER MANAGER", "HELD UNTIL", "EXTENDED UNTIL", "WHY"]);
    }
    let mut table = Table::new(&headers);
    let instant = |at| print::instant_or_dash(at, io.now);
    for record in records {
        let status = &record.status;
        let next = status.next.as_ref();
        let age = record.meta.creation_timestamp.as_ref();
        let mut cells: Vec<Cell> = vec![
            record.namespace().into(),
            print::namespace_phase(status.phase),
            status.owner.as_deref().unwrap_or("-").into(),
            instant(status.expires_at).into(),
            next.map_or_else(|| "-".to_owned(), action).into(),
            instant(next.and_then(|n| n.due)).into(),
            age.map_or_else(|| "-".to_owned(), |t| print::age(io.now.duration_since(t.0))).into(),
        ];
        if wide {
            let spec = record.spec.as_ref().ok();
            let by = |by: Option<&String>| by.map_or_else(String::new, |by| format!(" by {by}"));
            let hold = spec.and_then(|s| s.hold.as_ref());
            let ends = |h: &RecordHold| hold_end(status.limits.as_ref(), status.held.as_ref(), h);
            let hold = hold.map(|h| format!("{}{}", print::instant_from(ends(h), io.now), by(h.by.as_ref())));
            let extension = spec.and_then(|s| s.extend_until.as_ref());
            let extension = extension.map(|e| {
                format!(
                    "{}{}",
                    print::instant_from(extension_end(status.limits.as_ref(), e), io.now),
                    by(e.by.as_ref())
                )
            });
            cells.extend([
                status.manager.as_ref().map_or("-", |manager| manager.name.as_str()).into(),
                hold.unwrap_or_else(|| "-".to_owned()).into(),
                extension.unwrap_or_else(|| "-".to_owned()).into(),
                why(record).into(),
            ]);
        }
        table.row(cells);
    }
    table.write(&mut io.screen(), !output.no_headers)
}

/// What comes next, and whether its manager or policy only observes.
fn action(next: &NextStep) -> String {
    let would = if next.reason == Reason::Observing.as_str() { "would " } else { "" };
    next.action.as_ref().map_or_else(|| "-".to_owned(), |action| format!("{would}{action}"))
}

fn why(record: &NamespaceRecord) -> String {
    if let Some(error) = record.spec.as_ref().err().or(record.status_error.as_ref()) {
        return error.to_string();
    }
    let terminating = record.status.phase == Some(NamespacePhase::Terminating);
    let outdated = record.meta.generation.is_some()
        && record.status.observed_generation != record.meta.generation
        && !terminating;
    match record.status.next.as_ref().map(|next| next.message.as_str()) {
        None => "the operator has not looked at it yet; `coppice doctor` says whether it runs".to_owned(),
        Some(message) if outdated => format!("{message} (before the last change of spec)"),
        Some(message) => message.to_owned(),
    }
}
