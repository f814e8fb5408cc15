//! Deletes a namespace: the most dangerous request of all.

use coppice_api::steps::Action;
use coppice_kinds::Namespaces;
use coppice_lifecycle::facts::NamespaceFacts;
use coppice_lifecycle::settings::{PlatformSettings, SpecRefusal};
use k8s_openapi::api::core::v1::Namespace;
use kube::api::{DeleteParams, Preconditions};
use kube::core::Request;

use crate::deletion_record::StoredRecord;
use crate::governor::Reservation;
use coppice_mutants::Mutant;
use coppice_runtime::client::{Clients, USER_AGENT};
use coppice_runtime::error::chain;
use coppice_runtime::leader::{NotLeader, Permit};
use coppice_runtime::read;
use coppice_runtime::write::WriteError;

/// The outcome of a deletion.
#[derive(Debug)]
pub enum DeletionOutcome {
    /// The API server has accepted it; the namespace as it returned it, if it did.
    Done(Option<Box<NamespaceFacts>>),
    /// The namespace is being deleted or gone, by this request, whose answer was lost, or by somebody else.
    AlreadyGone,
    /// It has changed since it was read: decide again. What was reserved is not used yet.
    Changed(Box<Reservation>),
}

/// Why a deletion failed.
#[derive(Debug, thiserror::Error)]
pub enum DeleteError {
    /// The namespace is protected. Decisions check this as well: seeing it here means that the settings have changed since.
    #[error("{}", .0.message)]
    Protected(SpecRefusal),
    /// The lease was lost since the permit was given: another replica may lead by now.
    #[error("not deleted: {0}")]
    NotLeading(#[from] NotLeader),
    /// The API server refused.
    #[error("{0}")]
    Refused(WriteError),
    /// Its answer was lost, and the namespace is still there.
    #[error("not deleted: {0}")]
    NotDeleted(String),
    /// Its answer was lost, and it is not known whether the namespace is still there.
    #[error("{lost}; and then: {}", chain(then))]
    Unknown {
        /// What became of the answer.
        lost: String,
        /// Why the namespace could not be read.
        then: kube::Error,
    },
}

/// Deletes exactly the namespace that was read, in exactly the revision that was read.
///
/// Takes the record of the decision, a fresh read of the namespace, the settings that were reserved under, the lease and a
/// reservation, which is used up: without one of them there is no way to call this.
pub async fn namespace(
    clients: &Clients,
    permit: &Permit,
    reservation: Reservation,
    settings: &PlatformSettings,
    record: &StoredRecord,
    namespace: &NamespaceFacts,
) -> Result<DeletionOutcome, DeleteError> {
    if namespace.uid != record.uid && !coppice_mutants::active(Mutant::KeyedByName) {
        return Ok(DeletionOutcome::Changed(Box::new(reservation)));
    }
    if let Some(refusal) = settings.forbids(Action::Delete, namespace) {
        return Err(DeleteError::Protected(refusal));
    }
    // Reads, the record and the reservation have taken their time since it was given.
    permit.check()?;
    let mut parameters = DeleteParams::background().preconditions(Preconditions {
        uid: Some(namespace.uid.clone()),
        resource_version: Some(namespace.resource_version.clone()),
    });
    if coppice_mutants::active(Mutant::NoPreconditions) {
        parameters.preconditions = None;
    }
    if let Some(preconditions) = &mut parameters.preconditions
        && coppice_mutants::active(Mutant::NoRevision)
    {
        preconditions.resource_version = None;
    }
    let error = match send(permit.client(clients), &namespace.name, &parameters, &record.decision).await {
        Ok(answer) => {
            return Ok(DeletionOutcome::Done(answer.map(|now| Box::new(being_deleted(namespace, now)))));
        }
        Err(error) => error,
    };
    match WriteError::from(error) {
        WriteError::Gone => Ok(DeletionOutcome::AlreadyGone),
        // Edited; or deleted already, perhaps by this very request, if something on the way repeated it.
        WriteError::Conflict => {
            let now = read::get::<Namespaces>(&clients.reads, "", &namespace.name).await;
            Ok(if now.is_ok_and(|now| is_gone(now.as_ref(), namespace)) {
                DeletionOutcome::AlreadyGone
            } else {
                DeletionOutcome::Changed(Box::new(reservation))
            })
        }
        error @ WriteError::Refused(_) => Err(DeleteError::Refused(error)),
        WriteError::Ambiguous(message) => {
            // The answer was lost. A fresh read shows whether the deletion happened.
            match read::get::<Namespaces>(&clients.reads, "", &namespace.name).await {
                Ok(now) if is_gone(now.as_ref(), namespace) => Ok(DeletionOutcome::AlreadyGone),
                Ok(_) => Err(DeleteError::NotDeleted(message)),
                Err(then) => Err(DeleteError::Unknown { lost: message, then }),
            }
        }
    }
}

/// Sends the request; the namespace as the API server returned it, if it did. The audit log of the API server has the decision as a part of the `User-Agent`.
async fn send(
    client: &kube::Client,
    name: &str,
    parameters: &DeleteParams,
    decision: &str,
) -> Result<Option<Namespace>, kube::Error> {
    let mut request =
        Request::new("/api/v1/namespaces").delete(name, parameters).map_err(kube::Error::BuildRequest)?;
    let agent = http::HeaderValue::try_from(format!("{USER_AGENT} (decision {decision})"));
    let agent = agent.map_err(|error| kube::Error::HttpError(error.into()))?;
    request.headers_mut().insert(http::header::USER_AGENT, agent);
    Ok(client.request_status(request).await?.left())
}

/// Whether a namespace that was read before is being deleted, or gone, by a fresh read: there may be another of its name.
fn is_gone(now: Option<&NamespaceFacts>, before: &NamespaceFacts) -> bool {
    now.is_none_or(|now| now.uid != before.uid || now.terminating)
}

/// The namespace as it is now, by the answer to its deletion.
fn being_deleted(before: &NamespaceFacts, now: Namespace) -> NamespaceFacts {
    NamespaceFacts {
        terminating: now.metadata.deletion_timestamp.is_some(),
        resource_version: now.metadata.resource_version.unwrap_or_default(),
        ..before.clone()
    }
}

#[cfg(test)]
#[path = "delete_tests.rs"]
mod tests;
