//! Reports what has happened: Events, log, and what the API server has refused.

use coppice_api::condition::{self, ConditionState, READY};
use coppice_api::{DecodeError, QuotaTransferStatus, Reason};
use coppice_controllers::{ControllerContext, reference};
use coppice_kinds::{QuotaTransferObject, QuotaTransfers};
use coppice_lifecycle::plan::PlannedEvent;
use jiff::Timestamp;

use super::QuotaTransferKey;

/// What Events of transfers say was being done.
const ACTION: &str = "TransferQuota";

/// Publishes what is durable now.
pub(super) fn events(shared: &ControllerContext, object: &QuotaTransferObject, events: &[PlannedEvent]) {
    for PlannedEvent { warning, reason, message } in events {
        tracing::info!(source = %object.namespace, transfer = %object.name, %reason, "{message}");
        shared.events.publish(
            reference::<QuotaTransfers>(object),
            *warning,
            reason.as_str(),
            ACTION,
            message,
        );
    }
}

/// Counts what is refused, or waits for somebody, once its status says so.
pub(super) fn blocked(shared: &ControllerContext, before: &QuotaTransferStatus, after: &QuotaTransferStatus) {
    shared.lifecycle_metrics.newly_blocked_by(READY, &before.conditions, &after.conditions);
}

/// The status that says what the API server has refused.
pub(super) fn refused(object: &QuotaTransferObject, error: &str, now: Timestamp) -> QuotaTransferStatus {
    let mut status = (*object.status).clone();
    let reason = Reason::Retrying.to_string();
    let state = ConditionState { status: "False", reason, message: error.to_owned() };
    condition::set(&mut status.conditions, READY, state, object.generation, now);
    status
}

/// Reports what a transfer that is gone or has ended had left in a ledger.
pub(super) fn left_over(id: &str, namespace: &str) {
    tracing::warn!(
        transfer = id,
        namespace,
        "the transfer has ended: what was held for it is the namespace's own quota"
    );
}

/// Reports an object that is left alone because its status was written by another version.
pub(super) fn status_not_understood(shared: &ControllerContext, key: &QuotaTransferKey, error: &DecodeError) {
    shared.lifecycle_metrics.blocked(Reason::UnsupportedStatus.as_str());
    tracing::error!(transfer = %key, "{error}; nothing is done: run the version of Coppice that wrote it");
}

/// Reports that something was not done.
pub(super) fn failed(key: &QuotaTransferKey, error: &str) {
    tracing::warn!(transfer = %key, error, "not done; it is tried again");
}
