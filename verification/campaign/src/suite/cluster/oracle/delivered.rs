//! Whether every message to an owner that was written down was delivered, or why not: each key is followed through all revisions of the record
//! that has it, and what the record says of it is compared with what receivers took.

use std::sync::Arc;

use coppice_sim::receiver::Received;
use coppice_sim::run::RunRecord;
use coppice_sim::server::Change;
use jiff::SignedDuration;
use serde_json::Value;

use super::notices::text;
use super::rule::DELIVERED;
use crate::oracle::notice::RESOLUTION;
use crate::oracle::{Findings, History, instant, joins, since};

/// An attempt may be so late.
const OVERDUE: SignedDuration = SignedDuration::from_secs(60);
/// After one that failed, another one may wait for so long besides: the channel rests.
const LONGEST_PAUSE: SignedDuration = SignedDuration::from_mins(5);

pub(super) fn check(record: &RunRecord<'_>, history: &History, found: &mut Findings) {
    for change in record.changes {
        match &*change.kind.plural {
            "managednamespaces" | "deletednamespaces" => {}
            _ => continue,
        }
        let after = change.after.as_deref().map_or(&Value::Null, |after| after);
        let before = change.before.as_deref().map_or(&Value::Null, |before| before);
        for notice in notices(after) {
            let known = notices(before).iter().find(|known| known["key"] == notice["key"]);
            if let Some(wrong) = became(record, change, known, notice) {
                found.add(DELIVERED, &format!("{} about {} {wrong}", notice["for"], namespace(after)));
            }
        }
        for notice in notices(before) {
            let is_left = notices(after).iter().any(|left| left["key"] == notice["key"]);
            if !is_left && !may_go(record, history, change, notice) {
                let what = format!("{}, {},", notice["for"], notice["state"]);
                found.add(DELIVERED, &format!("{what} is in the record of {} no more", namespace(before)));
            }
        }
    }
    at_the_end(record, history, found);
}

/// The messages of a record.
fn notices(object: &Value) -> &[Value] {
    object["status"]["notices"].as_array().map(Vec::as_slice).unwrap_or_default()
}

/// The name of the namespace that a record is about.
fn namespace(object: &Value) -> &str {
    let of = [&object["spec"]["namespace"], &object["metadata"]["namespace"]];
    of.into_iter().find_map(Value::as_str).unwrap_or_default()
}

/// What is wrong with what a record says of a message, of which it said that before.
fn became(
    record: &RunRecord<'_>,
    change: &Change,
    before: Option<&Value>,
    notice: &Value,
) -> Option<&'static str> {
    let was = before.map_or(&Value::Null, |before| &before["state"]);
    if notice["state"] == *was {
        return None;
    }
    if *was == "Delivered" {
        return Some("is to be sent again, after it was delivered");
    }
    let by = since(record.began, change.at);
    let object = change.after.as_deref().map_or(&Value::Null, |after| after);
    let taken = || {
        let taken = record.received.iter().filter(|received| received.at <= by && received.is_taken());
        taken.into_iter().any(|received| brings(received, notice, namespace(object)))
    };
    match notice["state"].as_str() {
        Some("Delivered") if !taken() => Some("is recorded as delivered, and nobody took it"),
        Some("Failed") if notice["lastError"].as_str().is_none_or(str::is_empty) => {
            Some("is a dead letter, and nothing says why")
        }
        _ => None,
    }
}

/// Whether it is this message about a namespace, or one that joins it with others.
fn brings(received: &Received, notice: &Value, namespace: &str) -> bool {
    let Some(key) = notice["key"].as_str() else { return false };
    let names = |text: &str| {
        text.split(|c: char| !c.is_ascii_alphanumeric() && c != '-').any(|word| word == namespace)
    };
    match joins(received) {
        None => received.id == key,
        Some([first, last]) => {
            (first..=last).contains(&key) && text(received).is_some_and(|text| names(&text))
        }
    }
}

/// Whether a message may be in its record no more.
fn may_go(record: &RunRecord<'_>, history: &History, change: &Change, notice: &Value) -> bool {
    let is_pending = notice["state"] == "Pending";
    let (before, after) = (change.before.as_deref(), change.after.as_deref());
    let Some(before) = before else { return true };
    if &*change.kind.plural == "deletednamespaces" {
        // The record is kept for as long as anything is to be sent.
        return after.is_none() && !is_pending;
    }
    let Some(after) = after else { return !is_pending || is_superseded(history, change, before, notice) };
    let (was, now) = (&before["status"], &after["status"]);
    // For another namespace of that name everything begins again.
    if was["namespaceUid"] != now["namespaceUid"] {
        return true;
    }
    let stands = notice["for"] == "DeletionAnnounced" && now["notice"]["givenAt"] == notice["givenAt"];
    if !is_pending {
        // The oldest make room for others.
        return !stands;
    }
    let at = record.began + SignedDuration::try_from(since(record.began, change.at)).unwrap_or_default();
    match notice["for"].as_str() {
        Some("DeletionAnnounced") => !stands,
        Some("Expiring") => instant(&now["expiresAt"]).is_none_or(|end| end <= at + RESOLUTION),
        Some("Recovered") => is_another_phase(&now["phase"], "Ok"),
        Some("NoticeWithdrawn" | "Deleted") | None => false,
        Some(phase) => is_another_phase(&now["phase"], phase),
    }
}

/// Whether a namespace is known to be in another phase than one.
fn is_another_phase(phase: &Value, than: &str) -> bool {
    phase.as_str().is_some_and(|phase| phase != "Unknown" && phase != than)
}

/// Whether the record of a namespace that is gone may take with it a message that was to be sent: somebody else has deleted it, or the
/// record of its deletion lists what is superseded. What is written down while the namespace is being deleted goes with it.
fn is_superseded(history: &History, change: &Change, before: &Value, notice: &Value) -> bool {
    let (uid, key) = (&before["status"]["namespaceUid"], &notice["key"]);
    let deletions = history.list("deletednamespaces", "", change.revision).into_iter();
    let by_manager = |deletion: &&Arc<Value>| {
        deletion["spec"]["uid"] == *uid && deletion["spec"]["managerKind"] == "ClusterNamespaceManager"
    };
    let mut deletions = deletions.filter(by_manager).peekable();
    let is_listed = |deletion: &Arc<Value>| {
        let superseded = deletion["spec"]["notification"]["superseded"].as_array();
        superseded.into_iter().flatten().any(|one| one["key"] == *key)
    };
    let was_to_be_sent = |deletion: &Arc<Value>| {
        let name = deletion["metadata"]["name"].as_str().unwrap_or_default();
        let decided = history.versions("deletednamespaces", "", name).next().map_or(0, |version| version.0);
        let (namespace, name) = (change.namespace(), change.name());
        let then = history.at("managednamespaces", namespace, name, decided);
        then.is_some_and(|then| {
            notices(then).iter().any(|known| known["key"] == *key && known["state"] == "Pending")
        })
    };
    deletions.peek().is_none() || deletions.any(|deletion| is_listed(deletion) || !was_to_be_sent(deletion))
}

/// What is to be sent at the end waits for its next attempt; and what was to be said once a namespace is gone has been begun.
fn at_the_end(record: &RunRecord<'_>, history: &History, found: &mut Findings) {
    let end = record.began + SignedDuration::try_from(record.lasted).unwrap_or_default();
    let last = |kind| history.all(kind).filter_map(|versions| versions.last()?.1.as_deref());
    for object in last("managednamespaces").chain(last("deletednamespaces")) {
        let name = &object["metadata"]["name"];
        for notice in notices(object).iter().filter(|notice| notice["state"] == "Pending") {
            let next = instant(&notice["nextAttempt"]);
            let rests = if notice["attempts"] == 0 { SignedDuration::ZERO } else { LONGEST_PAUSE };
            if next.is_none_or(|next| next + OVERDUE + rests < end) {
                found.add(DELIVERED, &format!("{} of {name} was to be sent at {next:?}", notice["for"]));
            }
        }
        let (begun, messages) = (notices(object).len(), &object["spec"]["notification"]["messages"]);
        let messages = messages.as_array().map_or(0, Vec::len);
        if object["status"]["phase"] == "Deleted" && begun != messages {
            found.add(DELIVERED, &format!("of {messages} messages of {name} {begun} were begun"));
        }
    }
}
