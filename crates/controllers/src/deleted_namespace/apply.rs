//! Carries a step out, once a fresh read has confirmed what the caches say.

use coppice_api::names::MANAGED_NAMESPACE_NAME;
use coppice_api::{DeletedNamespaceStatus, DeletionPhase};
use coppice_kinds::{DecidedIn, DeletedNamespaces, ManagedNamespaces, Managers, Namespaces};
use coppice_lifecycle::facts::NamespaceFacts;
use coppice_mutants::{Mutant, active};
use coppice_quantity::time::in_milliseconds;
use coppice_runtime::error::chain;
use coppice_runtime::leader::Permit;
use coppice_runtime::read;
use coppice_runtime::write::{self, WriteError};

use jiff::Timestamp;

use super::observe::{self, Observation};
use super::plan::DeletedNamespaceStep;
use crate::context::ControllerContext;
use crate::deletion_notification::notification_message;
use crate::owner_messages;

/// Why a record is not as it should be yet.
#[derive(Debug, thiserror::Error)]
pub(super) enum UpdateRecordError {
    /// What it is about could not be read.
    #[error("what it is about cannot be read: {}", chain(.0))]
    Read(#[from] kube::Error),
    /// The caches are behind what was read.
    #[error("the caches are behind")]
    CacheBehind,
    /// It could not be written.
    #[error("{0}")]
    Write(#[from] WriteError),
}

impl UpdateRecordError {
    /// Whether that is usual: something changed a moment ago.
    pub(super) const fn is_race(&self) -> bool {
        matches!(self, Self::CacheBehind | Self::Write(WriteError::Conflict))
    }

    /// A label of metrics.
    pub(super) const fn category(&self) -> &'static str {
        match self {
            Self::Read(_) | Self::Write(_) => "api",
            Self::CacheBehind => "behind",
        }
    }
}

/// Carries a step out. Returns when to look again, if time alone can change something.
pub(super) async fn apply(
    shared: &ControllerContext,
    permit: &Permit,
    observation: &Observation,
    step: &DeletedNamespaceStep,
) -> Result<Option<Timestamp>, UpdateRecordError> {
    let record = &*observation.record;
    let written = match step {
        DeletedNamespaceStep::Mark(phase) => {
            let phase = *phase;
            let gone = phase == DeletionPhase::Deleted;
            if gone && namespace(shared, observation).await?.is_some() && !active(Mutant::DeletedUnread) {
                return Err(UpdateRecordError::CacheBehind);
            }
            let deleted_at = (phase == DeletionPhase::Deleted).then(|| in_milliseconds(shared.now()));
            let notices = Vec::new();
            let status = DeletedNamespaceStatus { phase: Some(phase), deleted_at, notices };
            write::status::<DeletedNamespaces>(&shared.clients, permit, record, &status).await.map(drop)
        }
        DeletedNamespaceStep::Record(notices) => {
            let status = DeletedNamespaceStatus { notices: notices.clone(), ..(*record.status).clone() };
            write::status::<DeletedNamespaces>(&shared.clients, permit, record, &status).await.map(drop)
        }
        DeletedNamespaceStep::Deliver(due) => {
            let notification = record.spec.as_deref().ok().and_then(|fields| fields.notification.as_deref());
            let message = |key: &String| notification_message(shared, record, notification?, key);
            let messages: Vec<_> = due.iter().filter_map(message).collect();
            owner_messages::withdraw(
                shared,
                notification.into_iter().flat_map(|notification| &notification.superseded),
            );
            return Ok(owner_messages::submit_notification(shared, &record.name, &messages).await);
        }
        DeletedNamespaceStep::Withdraw => {
            // In this order: a deletion that is accepted in between is seen in the namespace.
            let decided = is_decided(shared, observation).await?;
            let present =
                namespace(shared, observation).await?.is_some_and(|namespace| !namespace.terminating);
            if (decided || !present) && !active(Mutant::RecordWithdrawnAtOnce) {
                return Err(UpdateRecordError::CacheBehind);
            }
            write::delete::<DeletedNamespaces>(&shared.clients, permit, record).await
        }
        DeletedNamespaceStep::Expire | DeletedNamespaceStep::MakeRoom => {
            write::delete::<DeletedNamespaces>(&shared.clients, permit, record).await
        }
    };
    match written {
        // Gone: somebody has deleted it.
        Ok(()) | Err(WriteError::Gone) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// The very namespace that the record is about, by a fresh read; none if it is gone.
async fn namespace(
    shared: &ControllerContext,
    observation: &Observation,
) -> Result<Option<NamespaceFacts>, kube::Error> {
    let Ok(fields) = &observation.record.spec else { return Ok(None) };
    let now = read::get::<Namespaces>(&shared.clients.reads, "", &fields.namespace).await?;
    Ok(now.filter(|now| *now.uid == *fields.uid))
}

/// Whether the decision still stands where it was made, by a fresh read.
async fn is_decided(shared: &ControllerContext, observation: &Observation) -> Result<bool, kube::Error> {
    let record = &observation.record;
    let Ok(fields) = &record.spec else { return Ok(true) };
    let (client, namespace) = (&shared.clients.reads, &*fields.namespace);
    Ok(match fields.decided_in() {
        DecidedIn::NamespaceManager(name) => {
            let manager = read::get::<Managers>(client, namespace, name).await?;
            manager.is_some_and(|m| {
                m.status_error.is_some() || observe::stands_by(&m.status.steps, &record.name)
            })
        }
        DecidedIn::ManagedNamespace => {
            let governed = read::get::<ManagedNamespaces>(client, namespace, MANAGED_NAMESPACE_NAME).await?;
            governed.is_some_and(|r| {
                r.status_error.is_some() || observe::stands_by(&r.status.steps, &record.name)
            })
        }
        DecidedIn::Unknown => true,
    })
}

#[cfg(test)]
#[path = "apply_tests.rs"]
mod tests;
