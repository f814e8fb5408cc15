//! Reports what has happened: Events, log, and what the API server has refused.

use coppice_api::condition::{self, ConditionState, READY};
use coppice_api::{DecodeError, NamespaceTreeStatus, Reason};
use coppice_controllers::{ControllerContext, reference};
use coppice_kinds::{NamespaceTrees, Tree};
use coppice_lifecycle::plan::PlannedEvent;
use jiff::Timestamp;

/// What Events of trees say was being done.
const ACTION: &str = "GrowTree";

/// Publishes what is durable now.
pub(super) fn events(shared: &ControllerContext, tree: &Tree, events: &[PlannedEvent]) {
    for PlannedEvent { warning, reason, message } in events {
        tracing::info!(tree = %tree.name, %reason, "{message}");
        let of = (reference::<NamespaceTrees>(tree), tree.generation);
        shared.events.publish_of_spec(of, *warning, reason.as_str(), ACTION, message);
    }
}

/// Counts what is refused, or waits for somebody, once its status says so.
pub(super) fn blocked(shared: &ControllerContext, before: &NamespaceTreeStatus, after: &NamespaceTreeStatus) {
    shared.lifecycle_metrics.newly_blocked_by(READY, &before.conditions, &after.conditions);
}

/// The status that says what the API server has refused.
pub(super) fn refused(tree: &Tree, error: &str, now: Timestamp) -> NamespaceTreeStatus {
    let mut status = (*tree.status).clone();
    let reason = Reason::Retrying.to_string();
    let state = ConditionState { status: "False", reason, message: error.to_owned() };
    condition::set(&mut status.conditions, READY, state, tree.generation, now);
    status
}

/// Reports an object that is left alone because its status was written by another version.
pub(super) fn status_not_understood(shared: &ControllerContext, name: &str, error: &DecodeError) {
    shared.lifecycle_metrics.blocked(Reason::UnsupportedStatus.as_str());
    tracing::error!(tree = name, "{error}; nothing is done: run the version of Coppice that wrote it");
}

/// Reports that something was not done.
pub(super) fn failed(name: &str, error: &str) {
    tracing::warn!(tree = name, error, "not done; it is tried again");
}
