//! Reports what has happened: Events, log and metrics.

use coppice_api::steps::Action;
use coppice_api::{DecodeError, Reason};
use coppice_controllers::{ControllerContext, StepError, reference};
use coppice_lifecycle::plan::PlannedEvent;

use crate::object::{Expiries, Expiry};

/// Reports what a reconcile did.
pub(super) fn report(shared: &ControllerContext, expiry: &Expiry, events: &[PlannedEvent]) {
    for event in events {
        let (reason, message) = (event.reason.as_str(), &event.message);
        tracing::info!(expiry = %expiry.name, reason, "{message}");
        // The object is in no namespace: its Events are kept in `default`, also when the namespace is gone.
        let about = reference::<Expiries>(expiry);
        shared.events.publish(about, event.warning, reason, Action::Delete.as_str(), message);
        if event.reason == Reason::NamespaceDeleted {
            shared.lifecycle_metrics.firing(Action::Delete.as_str(), reason);
        }
    }
}

/// Reports an object that is left alone because its status was written by another version.
pub(super) fn status_not_understood(name: &str, error: &DecodeError) {
    tracing::error!(expiry = name, "{error}; nothing is done: run the version of Coppice that wrote it");
}

/// Reports that a plan was not carried out.
pub(super) fn failed(name: &str, error: &StepError) {
    tracing::warn!(expiry = name, %error, "the plan was not carried out; it is tried again");
}
