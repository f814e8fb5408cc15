//! What happened in a simulation, as its API server knows it.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use serde::Serialize;
use serde_json::Value;

use crate::operator::OPERATOR;
use crate::server::{Change, Server, Verb, meta};

/// Two Events with the same text within this time are one entry.
const SAME: SignedDuration = SignedDuration::from_secs(10);

/// Something that the operator does and reports.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct TimelineEntry {
    /// When.
    pub at: Timestamp,
    /// The namespace that it is about.
    pub namespace: String,
    /// The manager on whose behalf; none if that is not known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub manager: Option<String>,
    /// Its kind.
    pub manager_kind: &'static str,
    /// What, as an Event's reason says it.
    pub reason: String,
    /// Whether it is a warning.
    pub warning: bool,
    /// The message of the Event.
    pub message: String,
}

/// What becomes of a manager, and of its namespace; or of a namespace that a cluster manager governs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ManagerForecast {
    /// The namespace.
    pub namespace: String,
    /// The manager in it, or the cluster manager that governs it last.
    pub manager: String,
    /// Its kind.
    pub manager_kind: &'static str,
    /// When the namespace was made.
    pub created: Timestamp,
    /// When the operator deletes the namespace; none if it is still there in the end.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub deleted: Option<Timestamp>,
    /// The phase that the status shows last: of the manager, or of the record of the namespace.
    pub phase: String,
    /// What the status says last of what comes next: an enumerated reason.
    pub reason: String,
    /// The message.
    pub message: String,
}

/// Reads what happened after a revision.
pub(super) fn read(
    server: &Server,
    after: u64,
    began: Timestamp,
) -> (Vec<TimelineEntry>, Vec<ManagerForecast>) {
    let mut entries: Vec<TimelineEntry> = Vec::new();
    let mut deleted: BTreeMap<&str, Timestamp> = BTreeMap::new();
    // Who governs each namespace, at the time of each change.
    let mut governed: BTreeMap<&str, &str> = BTreeMap::new();
    for change in server.changes_since(0) {
        if &*change.kind.plural == "managednamespaces"
            && let Some(name) =
                change.after.as_deref().and_then(|record| record["status"]["manager"]["name"].as_str())
        {
            governed.insert(change.namespace(), name);
        }
        if change.revision <= after || &*change.user != OPERATOR {
            continue;
        }
        match &*change.kind.plural {
            "events" if change.verb == Verb::Create => entries.extend(event_entry(change, &governed)),
            "namespaces" if change.verb == Verb::Delete => {
                deleted.entry(change.name()).or_insert(change.at);
            }
            _ => {}
        }
    }
    entries.sort_by(|a, b| (a.at, &a.namespace).cmp(&(b.at, &b.namespace)));
    (once(entries), managers(server, &deleted, began))
}

/// The kinds of managers.
const MANAGER: &str = "NamespaceManager";
const CLUSTER_MANAGER: &str = "ClusterNamespaceManager";

fn event_entry(change: &Change, governed: &BTreeMap<&str, &str>) -> Option<TimelineEntry> {
    let event = change.after.as_deref()?;
    // Events are kept in the form of the core group, whichever they are written in.
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let about = &event["involvedObject"];
    let mut message = text(&event["message"]);
    let mut manager_kind = MANAGER;
    let (namespace, manager) = match about["kind"].as_str() {
        Some("Namespace") => {
            let (who, rest) = message.split_once(": ")?;
            let (kind, manager) = who.split_once(' ')?;
            manager_kind = [MANAGER, CLUSTER_MANAGER].into_iter().find(|known| *known == kind)?;
            let manager = Some(manager.to_owned());
            message = rest.to_owned();
            (text(&about["name"]), manager)
        }
        Some("ManagedNamespace") => {
            let namespace = text(&about["namespace"]);
            manager_kind = CLUSTER_MANAGER;
            let manager = governed.get(namespace.as_str()).map(|name| (*name).to_owned());
            (namespace, manager)
        }
        kind => {
            let manager = (kind != Some("CoppiceConfig")).then(|| text(&about["name"]));
            (text(&about["namespace"]), manager)
        }
    };
    let (reason, warning) = (text(&event["reason"]), event["type"] == "Warning");
    // When it happened: Events are written in the background, and one can overtake another.
    let at = event["eventTime"].as_str().and_then(|at| at.parse().ok()).unwrap_or(change.at);
    Some(TimelineEntry { at, namespace, manager, manager_kind, reason, warning, message })
}

/// What outlives a namespace is reported about the manager and about the namespace: once is enough here.
fn once(entries: Vec<TimelineEntry>) -> Vec<TimelineEntry> {
    let mut seen: BTreeMap<(String, Option<String>, String, String), Timestamp> = BTreeMap::new();
    let mut fresh = |entry: &TimelineEntry| {
        let key =
            (entry.namespace.clone(), entry.manager.clone(), entry.reason.clone(), entry.message.clone());
        let last = seen.insert(key, entry.at);
        last.is_none_or(|last| entry.at.duration_since(last) > SAME)
    };
    entries.into_iter().filter(|entry| fresh(entry)).collect()
}

/// The last state of every manager and governed namespace, also of those that have gone with their namespaces.
fn managers(server: &Server, deleted: &BTreeMap<&str, Timestamp>, began: Timestamp) -> Vec<ManagerForecast> {
    let mut last: BTreeMap<(&str, &str, &str), &Value> = BTreeMap::new();
    let mut created: BTreeMap<&str, Timestamp> = BTreeMap::new();
    for change in server.changes_since(0) {
        let Some(object) = change.after.as_deref().or(change.before.as_deref()) else { continue };
        match &*change.kind.plural {
            "namespacemanagers" => {
                last.insert((change.namespace(), MANAGER, change.name()), object);
            }
            "managednamespaces" => {
                last.insert((change.namespace(), CLUSTER_MANAGER, ""), object);
            }
            "namespaces" => {
                created.insert(change.name(), meta::created(object).unwrap_or(began));
            }
            _ => {}
        }
    }
    let managers = last.into_iter().filter_map(|((namespace, manager_kind, name), object)| {
        let status = &object["status"];
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let governing = || status["manager"]["name"].as_str();
        let manager = if manager_kind == MANAGER { name } else { governing()? };
        Some(ManagerForecast {
            namespace: namespace.to_owned(),
            manager: manager.to_owned(),
            manager_kind,
            created: created.get(namespace).copied().unwrap_or(began),
            deleted: deleted.get(namespace).copied(),
            phase: text(&status["phase"]),
            reason: text(&status["next"]["reason"]),
            message: text(&status["next"]["message"]),
        })
    });
    managers.collect()
}
