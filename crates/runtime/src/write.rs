//! Writes: never retried blindly, always with the revision that they were decided on, only with a [`Permit`].

use coppice_api::names::FIELD_MANAGER;
use http::Request;
use kube::core::Status;
use serde::Serialize;

use crate::client::{Clients, ambiguous};
use crate::error::chain;
use crate::leader::Permit;
use crate::object::{Object, OwnKind};
use crate::read;
use coppice_mutants::Mutant;

/// The outcome of a write.
#[derive(Debug, thiserror::Error)]
pub enum WriteError {
    /// The object has changed since it was read: read and decide again, never send the same body again (H9).
    #[error("the object has changed since it was read")]
    Conflict,
    /// There is no such object any more.
    #[error("the object is gone")]
    Gone,
    /// The write may have happened: read before anything else (H11).
    #[error("the answer to a write was lost, it may have happened: {0}")]
    Ambiguous(String),
    /// The API server refused it.
    #[error("{0}")]
    Refused(String),
}

impl From<kube::Error> for WriteError {
    fn from(error: kube::Error) -> Self {
        match &error {
            kube::Error::Api(status) if status.code == 409 => Self::Conflict,
            kube::Error::Api(status) if status.code == 404 => Self::Gone,
            kube::Error::Api(status) if !ambiguous(&error) => Self::Refused(sentence(status)),
            _ if ambiguous(&error) => Self::Ambiguous(chain(&error)),
            _ => Self::Refused(chain(&error)),
        }
    }
}

fn sentence(status: &Status) -> String {
    format!("the API server refused: {} ({})", status.message, status.code)
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct StatusBody<'a, T> {
    api_version: &'static str,
    kind: &'static str,
    metadata: StatusMeta<'a>,
    status: &'a T,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct StatusMeta<'a> {
    name: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    namespace: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    uid: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    resource_version: &'a str,
}

/// Replaces the status of one of our own objects, if nobody has changed the object since it was read. Returns the
/// object as it is then.
///
/// Status belongs to the operator alone, so that replacing it whole loses nothing; the revision makes every write a
/// compare-and-swap.
pub async fn status<K: OwnKind>(
    clients: &Clients,
    permit: &Permit,
    object: &Object<K::Spec, K::Status>,
    status: &K::Status,
) -> Result<Object<K::Spec, K::Status>, WriteError> {
    if let Some(error) = &object.status_error {
        // Replacing it would wipe out what has been done.
        return Err(WriteError::Refused(format!("{error}; it is left as it is")));
    }
    let body = StatusBody {
        api_version: K::GROUP_PATH.trim_start_matches("/apis/"),
        kind: K::KIND,
        metadata: StatusMeta {
            name: &object.name,
            namespace: &object.namespace,
            uid: if coppice_mutants::active(Mutant::KeyedByName) { "" } else { &object.uid },
            resource_version: if coppice_mutants::active(Mutant::KeyedByName) {
                ""
            } else {
                &object.resource_version
            },
        },
        status,
    };
    let path =
        format!("{}/{}/status?fieldManager={FIELD_MANAGER}", read::path::<K>(&object.namespace), object.name);
    let body = serde_json::to_vec(&body).map_err(|e| WriteError::Refused(e.to_string()))?;
    let (method, media_type) = if coppice_mutants::active(Mutant::KeyedByName) {
        (http::Method::PATCH, "application/merge-patch+json")
    } else {
        (http::Method::PUT, "application/json")
    };
    let request = Request::builder()
        .method(method)
        .uri(path)
        .header(http::header::CONTENT_TYPE, media_type)
        .body(body)
        .map_err(|e| WriteError::Refused(e.to_string()))?;
    let answer = permit.client(clients).request_text(request).await?;
    let written = read::decoded::<K>(answer.as_bytes())?;
    if *written.status != *status {
        // Going on would write the same again and again, and rely on what is not there.
        return Err(WriteError::Refused(format!(
            "the API server has kept only a part of the status: the definition of {} in the cluster is of another \
             version than this operator; apply the CRDs of its installation",
            K::KIND
        )));
    }
    Ok(written)
}
