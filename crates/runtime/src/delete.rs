//! Deleting a namespace: the most dangerous request of all.

use coppice_lifecycle::facts::NamespaceFacts;
use coppice_lifecycle::law::{Law, Refusal};
use k8s_openapi::api::core::v1::Namespace;
use kube::Api;
use kube::api::{DeleteParams, Preconditions};

use crate::client::Clients;
use crate::error::chain;
use crate::governor::Booking;
use crate::leader::Permit;
use crate::mutants::{self, Mutant};
use crate::read;
use crate::write::WriteError;

/// What came of a deletion.
#[derive(Debug, PartialEq, Eq)]
pub enum Deletion {
    /// The namespace that was asked for is being deleted or gone; as the API server answered with it, if it did.
    Done(Option<Box<NamespaceFacts>>),
    /// It has changed since it was read: decide again.
    Changed,
}

/// Why a deletion failed.
#[derive(Debug, thiserror::Error)]
pub enum DeleteError {
    /// The namespace is protected. Decisions check this as well: seeing it here means that the law has changed since.
    #[error("{}", .0.message)]
    Protected(Refusal),
    /// The API server refused, or its answer was lost and the namespace is still there.
    #[error("{0}")]
    Failed(String),
}

/// Deletes the very namespace that was read, in the very revision that was read, and no other.
///
/// Takes the uid that was decided about, a fresh read of the namespace, the law by the settings that were booked under, the
/// lease and a booking: without one of them there is no way to call this.
pub async fn namespace(
    clients: &Clients,
    _permit: &Permit,
    _booking: &Booking,
    law: &Law,
    decided_about: &str,
    namespace: &NamespaceFacts,
) -> Result<Deletion, DeleteError> {
    if namespace.uid != decided_about && !mutants::active(Mutant::KeyedByName) {
        return Ok(Deletion::Changed);
    }
    if let Some(refusal) = law.protection(namespace) {
        return Err(DeleteError::Protected(refusal));
    }
    let api: Api<Namespace> = Api::all(clients.writes.clone());
    let mut parameters = DeleteParams::background().preconditions(Preconditions {
        uid: Some(namespace.uid.clone()),
        resource_version: Some(namespace.resource_version.clone()),
    });
    if mutants::active(Mutant::NoPreconditions) {
        parameters.preconditions = None;
    }
    if let Some(preconditions) = &mut parameters.preconditions
        && mutants::active(Mutant::NoRevision)
    {
        preconditions.resource_version = None;
    }
    let error = match api.delete(&namespace.name, &parameters).await {
        Ok(answer) => {
            return Ok(Deletion::Done(answer.left().map(|now| Box::new(being_deleted(namespace, now)))));
        }
        Err(error) => error,
    };
    match WriteError::from(error) {
        WriteError::Gone => Ok(Deletion::Done(None)),
        WriteError::Conflict => Ok(Deletion::Changed),
        WriteError::Refused(message) => Err(DeleteError::Failed(message)),
        WriteError::Ambiguous(message) => {
            // The answer was lost. What there is now tells whether the deletion happened.
            let now = read::get::<NamespaceFacts>(&clients.reads, "", &namespace.name).await;
            match now {
                Ok(Some(now)) if now.uid == namespace.uid && !now.terminating => {
                    Err(DeleteError::Failed(format!("not deleted: {message}")))
                }
                Ok(_) => Ok(Deletion::Done(None)),
                Err(error) => Err(DeleteError::Failed(format!("{message}; and then: {}", chain(&error)))),
            }
        }
    }
}

/// The namespace as it is now, by the answer to its deletion.
fn being_deleted(before: &NamespaceFacts, now: Namespace) -> NamespaceFacts {
    NamespaceFacts {
        terminating: now.metadata.deletion_timestamp.is_some(),
        resource_version: now.metadata.resource_version.unwrap_or_default(),
        ..before.clone()
    }
}
