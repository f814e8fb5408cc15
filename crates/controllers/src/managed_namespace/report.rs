//! Reports what happened: Events, metrics, logs.

use std::collections::BTreeMap;

use coppice_api::notify::MessageState;
use coppice_api::steps::{Action, Intent};
use coppice_api::{DecodeError, NamespacePhase, Reason};
use coppice_kinds::ManagedNamespaces;
use coppice_lifecycle::plan::PlannedEvent;
use k8s_openapi::api::core::v1::ObjectReference;

use super::observe::Observation;
use crate::context::ControllerContext;
use crate::metrics::ByPhase;
use crate::reference::reference;
use crate::status_writer::EventBatch;

/// Reports what a reconcile did.
pub(super) fn report(shared: &ControllerContext, observation: &Observation, batch: &EventBatch) {
    let deletes = batch.intent.as_ref().is_some_and(|intent| intent.action == Action::Delete);
    let Some(record) = &observation.record else { return };
    let manager = record.status.manager.as_ref().map_or("", |manager| &manager.name);
    for note in &batch.events {
        log(observation, manager, note, batch.intent.as_ref());
        count(shared, note, batch.intent.as_ref());
        let action = batch.intent.as_ref().map_or("Manage", |i| i.action.as_str());
        let publish = |about, message: &str| {
            shared.events.publish(about, note.warning, note.reason.as_str(), action, message);
        };
        if deletes && note.reason == Reason::PolicyFired {
            // The deletion that follows at once says the same, and so does the record, should it have to wait.
            continue;
        }
        // Events about the record are in its namespace: one that is being deleted takes no more.
        if !(deletes && note.reason == Reason::NamespaceDeleted) {
            publish(reference::<ManagedNamespaces>(record), &note.message);
        }
        if deletes || matches!(note.reason, Reason::DeletionAnnounced | Reason::NoticeWithdrawn) {
            // About the Namespace, and so kept in `default`: somebody may ask when the namespace is gone.
            let message = format!("ClusterNamespaceManager {manager}: {}", note.message);
            publish(namespace_reference(observation), &message);
        }
    }
}

/// Reports that a record is left alone because its status was written by another version.
pub(super) fn status_not_understood(
    shared: &ControllerContext,
    observation: &Observation,
    error: &DecodeError,
) {
    let Some(record) = &observation.record else { return };
    let reason = Reason::UnsupportedStatus;
    let message = format!("{error}; nothing is done: run the version of Coppice that wrote it");
    tracing::error!(namespace = %observation.name, "its record: {message}");
    shared.lifecycle_metrics.blocked(reason.as_str());
    let about = reference::<ManagedNamespaces>(record);
    shared.events.publish(about, true, reason.as_str(), "Manage", &message);
}

/// Reports that working on a namespace ended in a panic: contained, counted by the queue, and retried.
pub(super) fn panicked(shared: &ControllerContext, name: &str, message: &str) {
    let Some(record) = shared.record(name) else { return };
    let note = format!("a bug in Coppice stopped the work on this namespace; it is tried again: {message}");
    let about = reference::<ManagedNamespaces>(&record);
    shared.events.publish(about, true, Reason::ReconcilePanicked.as_str(), "Manage", &note);
}

fn log(observation: &Observation, manager: &str, note: &PlannedEvent, intent: Option<&Intent>) {
    let uid = observation.namespace.as_ref().map_or("", |namespace| &namespace.uid);
    let evidence = intent.map(|i| format!("{:?}", i.evidence)).unwrap_or_default();
    let id = intent.map_or("", |i| i.id.as_str());
    if note.warning {
        tracing::warn!(
            namespace = %observation.name, cluster_manager = manager, namespace_uid = uid,
            decision = id, evidence, reason = %note.reason, "{}", note.message
        );
    } else {
        tracing::info!(
            namespace = %observation.name, cluster_manager = manager, namespace_uid = uid,
            decision = id, evidence, reason = %note.reason, "{}", note.message
        );
    }
}

fn count(shared: &ControllerContext, note: &PlannedEvent, intent: Option<&Intent>) {
    let completed = matches!(
        note.reason,
        Reason::NamespaceDeleted
            | Reason::ScaledDown
            | Reason::RevertedTooOften
            | Reason::WebhookDelivered
            | Reason::WebhookGivenUp
    );
    let Some(intent) = intent.filter(|_| completed) else { return };
    shared.lifecycle_metrics.firing(intent.action.as_str(), note.reason.as_str());
    let due = intent.evidence.get("due").and_then(|due| due.parse::<jiff::Timestamp>().ok());
    if let Some(due) = due {
        let late = shared.now().duration_since(due);
        shared.lifecycle_metrics.firing_lateness(intent.action.as_str(), late);
    }
}

fn namespace_reference(observation: &Observation) -> ObjectReference {
    ObjectReference {
        api_version: Some("v1".to_owned()),
        kind: Some("Namespace".to_owned()),
        name: Some(observation.name.to_string()),
        uid: observation.namespace.as_ref().ok().map(|namespace| namespace.uid.clone()),
        ..ObjectReference::default()
    }
}

/// Counts governed namespaces by phase, for metrics.
pub(super) fn count_phases(shared: &ControllerContext) {
    let (mut counts, mut managers, mut owners) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
    let mut notices = BTreeMap::from(MessageState::ALL.map(|state| (state, 0_usize)));
    shared.managed_namespaces.for_each(|record| {
        for notice in &record.status.notices {
            *notices.entry(notice.state).or_default() += 1;
        }
        let Some(phase) = record.status.phase else { return };
        *counts.entry(phase).or_insert(0usize) += 1;
        let by_phase = || ByPhase { phase: phase.as_str() };
        if let Some(manager) = &record.status.manager {
            *managers.entry((manager.name.clone(), by_phase())).or_insert(0) += 1;
        }
        if let Some(owner) = &record.status.owner {
            *owners.entry((owner.clone(), by_phase())).or_insert(0) += 1;
        }
    });
    // Messages about namespaces that are gone.
    shared.deleted_namespaces.for_each(|record| {
        for notice in &record.status.notices {
            *notices.entry(notice.state).or_default() += 1;
        }
    });
    shared.lifecycle_metrics.namespaces_by(&managers, &owners);
    for (state, count) in notices {
        shared.lifecycle_metrics.notices(state.as_str(), count);
    }
    for phase in NamespacePhase::ALL {
        let count = counts.get(&phase).copied().unwrap_or(0);
        shared.lifecycle_metrics.managed_namespaces(phase.as_str(), count);
    }
}
