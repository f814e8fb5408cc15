//! Whether anybody gains rights that nobody above gave.

use std::time::Duration;

use coppice_sim::run::RunRecord;
use serde_json::Value;

use super::super::ACCOUNT;
use super::rule::RIGHTS;
use crate::oracle::{Findings, History};

/// A copy is written on what was read so long before at most, and what it takes to send it. A request may be late by 20 s.
const RECENT: Duration = Duration::from_secs(25);

pub(super) fn check(record: &RunRecord<'_>, history: &History, found: &mut Findings) {
    for change in record.changes {
        let written = &*change.kind.plural == "rolebindings" && &*change.user == ACCOUNT;
        let Some(copy) = change.after.as_deref().filter(|_| written) else { continue };
        found.judges(RIGHTS);
        let at = history.time_of(change.revision);
        let mut recent = history.revisions_between(at.saturating_sub(RECENT), at);
        if !recent.any(|revision| is_above(history, change.namespace(), copy, change.name(), revision)) {
            found
                .add(RIGHTS, &format!("role binding {}/{} has no source", change.namespace(), change.name()));
        }
    }
}

/// Whether a namespace above had the same role binding at a revision.
fn is_above(history: &History, namespace: &str, copy: &Value, name: &str, revision: u64) -> bool {
    let mut at = namespace.to_owned();
    for _ in 0..64 {
        let Some(namespace) = history.at("namespaces", "", &at, revision) else { return false };
        let Some(parent) = namespace["metadata"]["labels"]["coppice.dev/parent"].as_str() else {
            return false;
        };
        let source = history.at("rolebindings", parent, name, revision);
        if source.is_some_and(|source| {
            source["roleRef"] == copy["roleRef"] && source["subjects"] == copy["subjects"]
        }) {
            return true;
        }
        parent.clone_into(&mut at);
    }
    false
}
