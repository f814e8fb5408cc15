//! Whether the programs come to rest, and survive.

use super::history::since;
use super::rule::{self, Findings};
use coppice_sim::run::{QUIET, RunRecord};
use serde_json::Value;

/// So many reads of each replica are in order in the quiet time at the end: the settings and the key, each minute, and the lists of up to
/// nine kinds, which may all be due again.
const READS: usize = 12;
/// Five kinds more are listed where a cluster manager looks at workloads: for the health of namespaces, or for what takes their place.
const READS_OF_WORKLOADS: usize = 5;
/// One replica alone may have so many.
const LEAST_READS: usize = 24;

pub(super) fn check(record: &RunRecord<'_>, found: &mut Findings) {
    let quiet = record.lasted.saturating_sub(QUIET);
    let late = record.changes.iter().filter(|change| {
        record.is_own(change) && &*change.kind.plural != "leases" && since(record.began, change.at) > quiet
    });
    for change in late.take(3) {
        let (kind, at) = (&change.kind.plural, since(record.began, change.at));
        let what = format!(
            "{kind} {}/{} was written at {at:?}, when all was done",
            change.namespace(),
            change.name()
        );
        found.add(rule::QUIET, &what);
    }
    // Requests that changed nothing are not in the history.
    let idle = record.done.iter().filter(|done| {
        let routine = done.request.path.contains("/leases") || done.request.path.ends_with("reviews");
        !routine && done.at > quiet && done.revisions.0 == done.revisions.1
    });
    for done in idle.take(3) {
        let (method, path) = (&done.request.method, &done.request.path);
        found.add(rule::QUIET, &format!("{method} {path} was sent at {:?} and changed nothing", done.at));
    }
    let reads = record.reads.iter().filter(|at| **at > quiet).count();
    let looks =
        |manager: &Value| ["health", "supersede"].iter().any(|field| manager["spec"][*field].is_object());
    let workloads = record.changes.iter().any(|change| {
        &*change.kind.plural == "clusternamespacemanagers" && change.after.as_deref().is_some_and(looks)
    });
    let each = if workloads { READS + READS_OF_WORKLOADS } else { READS };
    if reads > LEAST_READS.max(each * record.replicas.len()) {
        found
            .add(rule::QUIET, &format!("{reads} reads in the last {} s, when all was done", QUIET.as_secs()));
    }
    for line in record.trace.lines().iter().filter(|line| line.what.starts_with("PANICS")) {
        found.add(rule::PANIC, &line.what);
    }
}
