//! Whether the operator comes to rest, and survives.

use super::history::since;
use super::rule::{Findings, Rule};
use crate::run::{QUIET, Truth};
use crate::world::OPERATOR;

/// So many reads are in order in the quiet time at the end: the settings and the key, each minute, and now and then a list anew.
const READS: usize = 20;

pub(super) fn judge(truth: &Truth<'_>, found: &mut Findings) {
    let quiet = truth.lasted.saturating_sub(QUIET);
    let late = truth.changes.iter().filter(|change| {
        &*change.user == OPERATOR && &*change.kind.plural != "leases" && since(truth.began, change.at) > quiet
    });
    for change in late.take(3) {
        let (kind, at) = (&change.kind.plural, since(truth.began, change.at));
        let what = format!(
            "{kind} {}/{} was written at {at:?}, when all was done",
            change.namespace(),
            change.name()
        );
        found.add(Rule::Quiet, &what);
    }
    // Requests that changed nothing are not in the history.
    let idle = truth.done.iter().filter(|done| {
        let routine = done.request.path.contains("/leases") || done.request.path.ends_with("reviews");
        !routine && done.at > quiet && done.revisions.0 == done.revisions.1
    });
    for done in idle.take(3) {
        let (method, path) = (&done.request.method, &done.request.path);
        found.add(Rule::Quiet, &format!("{method} {path} was sent at {:?} and changed nothing", done.at));
    }
    let reads = truth.reads.iter().filter(|at| **at > quiet).count();
    if reads > READS {
        found
            .add(Rule::Quiet, &format!("{reads} reads in the last {} s, when all was done", QUIET.as_secs()));
    }
    for line in truth.trace.lines().iter().filter(|line| line.what.starts_with("PANICS")) {
        found.add(Rule::Panic, &line.what);
    }
}
