//! Whether a namespace that several objects want to be deleted is announced, paid for, deleted and recorded once.

use std::collections::{BTreeMap, BTreeSet};

use coppice_sim::run::RunRecord;
use serde_json::Value;

use super::rule::ONE_DELETION;
use crate::oracle::{DestructiveAction, DestructiveStep, Findings, History};

pub(super) fn check(
    record: &RunRecord<'_>,
    history: &History,
    steps: &[DestructiveStep<'_>],
    found: &mut Findings,
) {
    let mut deleted: BTreeMap<&str, (&str, usize)> = BTreeMap::new();
    for step in steps.iter().filter(|step| step.action == DestructiveAction::Delete) {
        deleted.entry(&step.change.uid).or_insert((step.namespace, 0)).1 += 1;
    }
    let records = history.list("deletednamespaces", "", history.revision_at(record.lasted));
    let undisturbed = record.fired.is_empty() && leaders(history) == 1;
    for (uid, (namespace, requests)) in deleted {
        if requests > 1 {
            found.add(ONE_DELETION, &format!("{namespace} was deleted by {requests} requests"));
        }
        let about = records.iter().filter(|record| record["spec"]["uid"] == uid).count();
        if about > 1 && undisturbed {
            found.add(ONE_DELETION, &format!("{about} records tell of one deletion of {namespace}"));
        }
    }
    // What is not seen in time may be announced by another one, too; and what is reserved by whoever dies then is spent.
    if undisturbed {
        announced(record, history, found);
        paid(record, steps, found);
    }
}

/// Whether a manager in the namespace has decided a step.
pub(super) fn of_manager(history: &History, step: &DestructiveStep<'_>) -> bool {
    let Some(id) = step.intent.map(|intent| &intent["id"]) else { return false };
    let managers = history.list("namespacemanagers", step.namespace, step.change.revision - 1);
    managers.iter().any(|manager| manager["status"]["intent"]["id"] == *id)
}

/// How many replicas have led, each life of one counted.
fn leaders(history: &History) -> usize {
    let leases = history.all("leases").flatten();
    let holders = leases.filter_map(|(_, lease)| lease.as_deref()?["spec"]["holderIdentity"].as_str());
    holders.filter(|holder| !holder.is_empty()).collect::<BTreeSet<_>>().len()
}

/// No two objects announce the deletion of one namespace.
fn announced(record: &RunRecord<'_>, history: &History, found: &mut Findings) {
    const KINDS: [&str; 2] = ["managednamespaces", "namespacemanagers"];
    for change in record.changes.iter().filter(|change| KINDS.contains(&&*change.kind.plural)) {
        let notice = |object: &Value| object["status"]["notice"]["uid"].as_str().map(str::to_owned);
        let Some(uid) = change.after.as_deref().and_then(notice) else { continue };
        let same = |object: &Value| object["status"]["notice"]["uid"] == uid;
        let all = KINDS.map(|kind| history.list(kind, change.namespace(), change.revision));
        let announce = all.iter().flatten().filter(|object| same(object)).count();
        if announce > 1 {
            let namespace = change.namespace();
            found.add(ONE_DELETION, &format!("{announce} objects announce the deletion of {namespace}"));
            return;
        }
    }
}

/// What has been reserved is what has been done: deletions, and scale-downs however many workloads they are about.
fn paid(record: &RunRecord<'_>, steps: &[DestructiveStep<'_>], found: &mut Findings) {
    let settings = record.changes.iter().filter(|change| &*change.kind.plural == "coppiceconfigs");
    let reserved: u64 = settings
        .map(|change| {
            let newest = |object: &Option<std::sync::Arc<Value>>| {
                let entries = object.as_deref()?["status"]["governor"]["reservations"].as_array()?;
                let entry = entries.last()?;
                Some((entry["at"].as_str()?.to_owned(), entry["steps"].as_u64()?))
            };
            match (newest(&change.before), newest(&change.after)) {
                (Some((before, known)), Some((after, now))) if before == after => now.saturating_sub(known),
                // Older entries are put together, and leave the ledger; a newer one has been added.
                (before, Some((after, now))) if before.as_ref().is_none_or(|(at, _)| *at < after) => now,
                _ => 0,
            }
        })
        .sum();
    let (deletions, scaled): (Vec<_>, Vec<_>) =
        steps.iter().partition(|step| step.action == DestructiveAction::Delete);
    let firings =
        scaled.iter().map(|step| (step.namespace, step.intent.map(|intent| intent["id"].to_string())));
    let taken = (deletions.len() + firings.collect::<BTreeSet<_>>().len()) as u64;
    if reserved != taken {
        found.add(ONE_DELETION, &format!("{taken} steps were taken, and {reserved} units of the budget"));
    }
}
