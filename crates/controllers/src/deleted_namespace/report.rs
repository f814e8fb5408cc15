//! Reports what becomes of records: log and metrics.

use coppice_api::DeletionPhase;
use coppice_api::notify::{MessageDelivery, MessageState};

use super::RecordKey;
use super::apply::UpdateRecordError;
use super::observe::Observation;
use super::plan::DeletedNamespaceStep;
use crate::context::ControllerContext;

/// Reports a step.
pub(super) fn report(observation: &Observation, step: &DeletedNamespaceStep) {
    let record = &observation.record;
    let fields = record.spec.as_deref().ok();
    if matches!(step, DeletedNamespaceStep::MakeRoom | DeletedNamespaceStep::Expire) {
        for one in record.status.notices.iter().filter(|one| one.state == MessageState::Pending) {
            tracing::warn!(decision = %record.name, channel = one.channel, "the owner was not notified that the namespace is gone: its record goes");
        }
    }
    let message = match step {
        DeletedNamespaceStep::Deliver(_) => return,
        DeletedNamespaceStep::Record(notices) => return notified(observation, notices),
        DeletedNamespaceStep::Mark(DeletionPhase::Terminating) => "the namespace is being deleted",
        DeletedNamespaceStep::Mark(DeletionPhase::Deleted) => "the namespace is gone",
        DeletedNamespaceStep::Withdraw => "the deletion was given up: its record is withdrawn",
        DeletedNamespaceStep::Expire => "the record of the deletion was kept long enough: it is deleted",
        DeletedNamespaceStep::MakeRoom => {
            "there are too many records of deletions: one of the oldest is deleted"
        }
    };
    tracing::info!(
        namespace = %fields.map_or("", |f| &f.namespace),
        namespace_uid = fields.map_or("", |f| &f.uid),
        decision = %record.name,
        "{message}"
    );
}

/// Reports what came of messages about the namespace.
fn notified(observation: &Observation, notices: &[MessageDelivery]) {
    let record = &observation.record;
    let known = &record.status.notices;
    let is_new = |one: &&MessageDelivery| {
        one.state == MessageState::Failed
            && known.iter().any(|before| before.key == one.key && before.state != one.state)
    };
    for one in notices.iter().filter(is_new) {
        let error = one.last_error.as_deref().unwrap_or_default();
        tracing::warn!(decision = %record.name, channel = one.channel, error, "the owner was not notified that the namespace is gone");
    }
}

/// Reports that a record could not be brought up to date.
pub(super) fn failed(key: &RecordKey, error: &UpdateRecordError) {
    if error.is_race() {
        tracing::debug!(decision = %key, %error, "the record of a deletion is updated a moment later");
    } else {
        tracing::warn!(decision = %key, %error, "the record of a deletion could not be updated; it is tried again");
    }
}

/// Counts records by phase, for metrics.
pub(super) fn count(shared: &ControllerContext) {
    let (mut pending, mut terminating, mut deleted) = (0, 0, 0);
    shared.deleted_namespaces.for_each(|record| match record.status.phase {
        None => pending += 1,
        Some(DeletionPhase::Terminating) => terminating += 1,
        Some(DeletionPhase::Deleted) => deleted += 1,
    });
    shared.lifecycle_metrics.deleted_namespaces("Pending", pending);
    shared.lifecycle_metrics.deleted_namespaces(DeletionPhase::Terminating.as_str(), terminating);
    shared.lifecycle_metrics.deleted_namespaces(DeletionPhase::Deleted.as_str(), deleted);
}
