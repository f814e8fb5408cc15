//! The record of a deletion, a `DeletedNamespace`: no namespace is deleted before it is stored.

use std::collections::BTreeMap;

use coppice_api::DeletedNamespaceSpec;
use coppice_api::names::LABEL_NAMESPACE;
use coppice_kinds::{DeletedNamespaceFields, DeletedNamespaces};
use coppice_mutants::Mutant;
use coppice_runtime::client::Clients;
use coppice_runtime::error::chain;
use coppice_runtime::leader::Permit;
use coppice_runtime::read;
use coppice_runtime::write::{self, WriteError};

/// Proof that the record of a deletion is stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredRecord {
    /// The id of the decision: the record's name.
    pub(crate) decision: String,
    /// The uid of the namespace that it is about.
    pub(crate) uid: String,
}

/// Why a record is not stored.
#[derive(Debug, thiserror::Error)]
pub enum StoreRecordError {
    /// The kind is not served.
    #[error(
        "the API server does not know the kind DeletedNamespace: apply the CRDs of this version of Coppice"
    )]
    UnknownKind,
    /// The API server refused, or the answer was lost and the record is not there.
    #[error("{0}")]
    Write(WriteError),
    /// It was withdrawn or changed meanwhile.
    #[error(
        "the one of an earlier attempt was withdrawn or changed meanwhile; the next attempt stores it again"
    )]
    Withdrawn,
    /// Somebody deletes the one that there is, and a finalizer keeps it.
    #[error("the one of an earlier attempt is being deleted, and finalizers keep it: remove them")]
    Terminating,
    /// There is an object of that name, or may be one, and it cannot be read.
    #[error("it cannot be read: {}", chain(.0))]
    Read(kube::Error),
}

/// Stores the record of an attempt at a decision. An earlier attempt may have stored one already, or the decision may have
/// been given up and made again since: it is replaced, so that it says what the newest attempt rests on, and so that
/// whoever is about to withdraw it does so no more.
///
/// # Errors
/// If it is not known to be stored: then the namespace must not be deleted.
pub async fn store(
    clients: &Clients,
    permit: &Permit,
    decision: &str,
    spec: &DeletedNamespaceSpec,
) -> Result<StoredRecord, StoreRecordError> {
    let stored = || StoredRecord { decision: decision.to_owned(), uid: spec.uid.clone() };
    if coppice_mutants::active(Mutant::DeletionNotRecorded) {
        return Ok(stored());
    }
    let labels = BTreeMap::from([(LABEL_NAMESPACE, spec.namespace.clone())]);
    let error = match write::create::<DeletedNamespaces>(clients, permit, ("", decision), &labels, spec).await
    {
        Ok(()) => return Ok(stored()),
        Err(WriteError::Gone) => return Err(StoreRecordError::UnknownKind),
        Err(error @ WriteError::Refused(_)) => return Err(StoreRecordError::Write(error)),
        Err(error @ (WriteError::Conflict | WriteError::Ambiguous(_))) => error,
    };
    let found = read::get::<DeletedNamespaces>(&clients.reads, "", decision).await;
    let Some(found) = found.map_err(StoreRecordError::Read)? else {
        return Err(match error {
            WriteError::Conflict => StoreRecordError::Withdrawn,
            error => StoreRecordError::Write(error),
        });
    };
    if found.terminating {
        return Err(StoreRecordError::Terminating);
    }
    let this_attempt =
        |f: &DeletedNamespaceFields| *f.uid == *spec.uid && f.attempted_at == spec.attempted_at;
    if !found.spec.as_ref().is_ok_and(|fields| this_attempt(fields)) {
        match write::replace::<DeletedNamespaces>(clients, permit, &found, &labels, spec).await {
            Ok(()) => {}
            Err(WriteError::Conflict | WriteError::Gone) => return Err(StoreRecordError::Withdrawn),
            Err(error) => return Err(StoreRecordError::Write(error)),
        }
    }
    Ok(stored())
}

#[cfg(test)]
#[path = "deletion_record_tests.rs"]
mod tests;
