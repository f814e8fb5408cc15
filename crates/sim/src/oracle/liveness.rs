//! Whether the operator comes to rest, and survives.

use super::history::since;
use crate::run::{QUIET, Truth};
use crate::world::OPERATOR;

/// So many reads are in order in the quiet time at the end: the settings and the key, each minute, and now and then a list anew.
const READS: usize = 20;

pub(super) fn violations(truth: &Truth<'_>) -> Vec<String> {
    let quiet = truth.lasted.saturating_sub(QUIET);
    let late = truth.changes.iter().filter(|change| {
        &*change.user == OPERATOR && &*change.kind.plural != "leases" && since(truth.began, change.at) > quiet
    });
    let mut found: Vec<String> = late
        .take(3)
        .map(|change| {
            let at = since(truth.began, change.at);
            format!(
                "QUIET: {} {}/{} was written at {at:?}, when all was done",
                change.kind.plural,
                change.namespace(),
                change.name()
            )
        })
        .collect();
    // Requests that changed nothing are not in the history.
    let idle = truth.done.iter().filter(|done| {
        let routine = done.request.path.contains("/leases") || done.request.path.ends_with("reviews");
        !routine && done.at > quiet && done.revisions.0 == done.revisions.1
    });
    found.extend(idle.take(3).map(|done| {
        format!(
            "QUIET: {} {} was sent at {:?} and changed nothing",
            done.request.method, done.request.path, done.at
        )
    }));
    let reads = truth.reads.iter().filter(|at| **at > quiet).count();
    if reads > READS {
        found.push(format!("QUIET: {reads} reads in the last {} s, when all was done", QUIET.as_secs()));
    }
    let panics = truth.trace.lines().iter().filter(|line| line.what.starts_with("PANICS"));
    found.extend(panics.map(|line| format!("PANIC: {}", line.what)));
    found
}
