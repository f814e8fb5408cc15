//! Reports what has happened: Events, log, and what the API server has refused.

use coppice_api::condition::{self, ConditionState, READY};
use coppice_api::{DecodeError, Reason, SubnamespacePhase, SubnamespaceStatus};
use coppice_controllers::{ControllerContext, reference, reference_inside};
use coppice_kinds::{SubnamespaceObject, Subnamespaces};
use coppice_lifecycle::plan::PlannedEvent;
use jiff::Timestamp;

use super::SubnamespaceKey;

/// What Events of trees say was being done.
const ACTION: &str = "GrowTree";

/// Publishes what is durable now.
pub(super) fn events(shared: &ControllerContext, object: &SubnamespaceObject, events: &[PlannedEvent]) {
    for PlannedEvent { warning, reason, message } in events {
        tracing::info!(parent = %object.namespace, subnamespace = %object.name, %reason, "{message}");
        let of = (reference::<Subnamespaces>(object), object.generation);
        shared.events.publish_of_spec(of, *warning, reason.as_str(), ACTION, message);
    }
}

/// Publishes in the namespace itself what its users learn.
pub(super) fn own_events(shared: &ControllerContext, object: &SubnamespaceObject, events: &[PlannedEvent]) {
    for PlannedEvent { warning, reason, message } in events {
        let about = reference_inside(&object.name, object.status.namespace_uid.as_deref());
        let of = (about, object.generation);
        shared.events.publish_of_spec(of, *warning, reason.as_str(), ACTION, message);
    }
}

/// Counts what is held back or refused, once its status says so.
pub(super) fn blocked(shared: &ControllerContext, before: &SubnamespaceStatus, after: &SubnamespaceStatus) {
    shared.lifecycle_metrics.newly_blocked_by(READY, &before.conditions, &after.conditions);
}

/// The status that says what the API server has refused.
pub(super) fn refused(object: &SubnamespaceObject, error: &str, now: Timestamp) -> SubnamespaceStatus {
    let mut status = (*object.status).clone();
    let reason = Reason::Retrying.to_string();
    let state = ConditionState { status: "False", reason, message: error.to_owned() };
    condition::set(&mut status.conditions, READY, state, object.generation, now);
    status.phase.get_or_insert(SubnamespacePhase::Pending);
    status
}

/// Reports an object that is left alone because its status was written by another version.
pub(super) fn status_not_understood(shared: &ControllerContext, key: &SubnamespaceKey, error: &DecodeError) {
    shared.lifecycle_metrics.blocked(Reason::UnsupportedStatus.as_str());
    tracing::error!(subnamespace = %key, "{error}; nothing is done: run the version of Coppice that wrote it");
}

/// Reports that something was not done.
pub(super) fn failed(key: &SubnamespaceKey, error: &str) {
    tracing::warn!(subnamespace = %key, error, "not done; it is tried again");
}
