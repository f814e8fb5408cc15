//! Whether what is deleted with a namespace above was to be.

use coppice_sim::run::RunRecord;
use jiff::{SignedDuration, Timestamp};
use serde_json::Value;

use super::super::ACCOUNT;
use super::rule::CONSENT;
use crate::oracle::{Findings, History};

/// A request may be late by 20 s, and what it was decided on was read a moment before.
pub(super) const RECENT: SignedDuration = SignedDuration::from_secs(25);

pub(super) fn check(record: &RunRecord<'_>, history: &History, found: &mut Findings) {
    let going = |object: &Value| object["metadata"]["deletionTimestamp"].is_string();
    for change in record.changes {
        let written = &*change.kind.plural == "subnamespaces" && &*change.user == ACCOUNT;
        let Some(before) = change.before.as_deref().filter(|before| written && !going(before)) else {
            continue;
        };
        if change.after.as_deref().is_some_and(|after| !going(after)) {
            continue;
        }
        // Where somebody has deleted the namespace, the object goes, too.
        let (name, revision) = (change.name(), change.revision - 1);
        let uid = &before["status"]["namespaceUid"];
        let own = history.at("namespaces", "", name, revision).filter(|own| own["metadata"]["uid"] == *uid);
        if own.is_none() {
            continue;
        }
        found.judges(CONSENT);
        let since = change.at.checked_sub(RECENT).unwrap_or(change.at);
        if !consents(history, change.namespace(), since, revision) {
            found.add(
                CONSENT,
                &format!("Subnamespace {}/{name} is deleted, and nobody asked for it", change.namespace()),
            );
        }
    }
}

/// Whether a Subnamespace that created this namespace, or one above it, is being deleted with consent that lasts.
pub(super) fn consents(history: &History, namespace: &str, since: Timestamp, revision: u64) -> bool {
    let mut at = namespace.to_owned();
    for _ in 0..64 {
        let Some(namespace) = history.at("namespaces", "", &at, revision) else { return false };
        let Some(parent) = namespace["metadata"]["labels"]["coppice.dev/parent"].as_str() else {
            return false;
        };
        let above = history.at("subnamespaces", parent, &at, revision);
        let consents = above.is_some_and(|above| {
            let until =
                above["spec"]["cascadeUntil"].as_str().and_then(|until| until.parse::<Timestamp>().ok());
            above["metadata"]["deletionTimestamp"].is_string() && until.is_some_and(|until| until > since)
        });
        if consents {
            return true;
        }
        parent.clone_into(&mut at);
    }
    false
}
