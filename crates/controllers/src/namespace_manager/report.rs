//! Reports what happened: Events, metrics, logs.

use coppice_api::manager::{Action, Intent, Phase};
use coppice_api::{DecodeError, Reason};
use coppice_kinds::Managers;
use coppice_lifecycle::plan::PlannedEvent;
use k8s_openapi::api::core::v1::ObjectReference;

use super::observe::Observation;
use crate::context::{ControllerContext, ManagerKey};
use crate::reference::reference;
use crate::status_writer::EventBatch;

/// Reports what a reconcile did.
pub(super) fn report(shared: &ControllerContext, observation: &Observation, batch: &EventBatch) {
    let deletes = batch.intent.as_ref().is_some_and(|intent| intent.action == Action::Delete);
    for note in &batch.events {
        log(observation, note, batch.intent.as_ref());
        count(shared, note, batch.intent.as_ref());
        let action = batch.intent.as_ref().map_or("Manage", |i| i.action.as_str());
        let tell = |about, message: &str| {
            shared.events.publish(about, note.warning, note.reason.as_str(), action, message);
        };
        // Events about the manager are in its namespace: one that is about to be deleted takes them along, and takes no more.
        if !(deletes && matches!(note.reason, Reason::PolicyFired | Reason::NamespaceDeleted)) {
            tell(reference::<Managers>(&observation.manager), &note.message);
        }
        if deletes || matches!(note.reason, Reason::DeletionAnnounced | Reason::NoticeWithdrawn) {
            // About the Namespace, and so kept in `default`: somebody may ask when the namespace is gone.
            let manager = &observation.manager;
            let message = format!("NamespaceManager {}: {}", manager.name, note.message);
            tell(namespace_reference(observation), &message);
        }
    }
}

/// Reports that a manager is left alone because its status was written by another version.
pub(super) fn status_not_understood(
    shared: &ControllerContext,
    observation: &Observation,
    error: &DecodeError,
) {
    let reason = Reason::UnsupportedStatus;
    let message = format!("{error}; nothing is done: run the version of Coppice that wrote it");
    tracing::error!(namespace = %observation.manager.namespace, manager = %observation.manager.name, "{message}");
    shared.lifecycle_metrics.blocked(reason.as_str());
    shared.events.publish(
        reference::<Managers>(&observation.manager),
        true,
        reason.as_str(),
        "Manage",
        &message,
    );
}

/// Reports that working on a manager ended in a panic: contained, counted by the queue, and retried.
pub(super) fn panicked(shared: &ControllerContext, key: &ManagerKey, message: &str) {
    let Some(manager) = shared.managers.get(&key.namespace, &key.name) else { return };
    let reason = Reason::ReconcilePanicked.as_str();
    let note = format!("a bug in Coppice stopped the work on this manager; it is tried again: {message}");
    shared.events.publish(reference::<Managers>(&manager), true, reason, "Manage", &note);
}

fn log(observation: &Observation, note: &PlannedEvent, intent: Option<&Intent>) {
    let manager = &observation.manager;
    let uid = observation.namespace.as_ref().map_or("", |n| n.uid.as_str());
    let evidence = intent.map(|i| format!("{:?}", i.evidence)).unwrap_or_default();
    let id = intent.map_or("", |i| i.id.as_str());
    if note.warning {
        tracing::warn!(
            namespace = %manager.namespace, manager = %manager.name, namespace_uid = uid,
            decision = id, evidence, reason = %note.reason, "{}", note.message
        );
    } else {
        tracing::info!(
            namespace = %manager.namespace, manager = %manager.name, namespace_uid = uid,
            decision = id, evidence, reason = %note.reason, "{}", note.message
        );
    }
}

fn count(shared: &ControllerContext, note: &PlannedEvent, intent: Option<&Intent>) {
    let Some(intent) = intent else { return };
    match note.reason {
        Reason::NamespaceDeleted
        | Reason::ScaledDown
        | Reason::RevertedTooOften
        | Reason::WebhookDelivered
        | Reason::WebhookGivenUp => {
            shared.lifecycle_metrics.firing(intent.action.as_str(), note.reason.as_str());
            let due = intent.evidence.get("due").and_then(|due| due.parse::<jiff::Timestamp>().ok());
            if let Some(due) = due {
                let late = shared.now().duration_since(due);
                shared.lifecycle_metrics.firing_lateness(intent.action.as_str(), late);
            }
        }
        _ => {}
    }
    if intent.action == Action::Webhook {
        match note.reason {
            Reason::WebhookDelivered => shared.lifecycle_metrics.webhook_attempt("delivered"),
            Reason::ActionFailed | Reason::WebhookGivenUp => {
                shared.lifecycle_metrics.webhook_attempt("failed");
            }
            _ => {}
        }
    }
}

fn namespace_reference(observation: &Observation) -> ObjectReference {
    ObjectReference {
        api_version: Some("v1".to_owned()),
        kind: Some("Namespace".to_owned()),
        name: Some(observation.manager.namespace.to_string()),
        uid: observation.namespace.as_ref().map(|n| n.uid.clone()),
        ..ObjectReference::default()
    }
}

/// Counts managers by phase, for metrics.
pub(super) fn count_phases(shared: &ControllerContext) {
    let mut counts = std::collections::BTreeMap::new();
    shared.managers.for_each(|manager| {
        if let Some(phase) = manager.status.phase {
            *counts.entry(phase).or_insert(0usize) += 1;
        }
    });
    for phase in Phase::ALL {
        shared.lifecycle_metrics.managers(phase.as_str(), counts.get(&phase).copied().unwrap_or(0));
    }
}
