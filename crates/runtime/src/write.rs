//! Writes: never retried blindly, always with the revision that they were decided on, only with a [`Permit`].

use std::collections::BTreeMap;

use coppice_api::names::FIELD_MANAGER;
use http::Request;
use kube::core::Status;
use serde::Serialize;
use serde_json::json;

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

/// The type of most bodies.
const JSON: &str = "application/json";

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct StatusBody<'a, T> {
    api_version: &'static str,
    kind: &'static str,
    metadata: BodyMeta<'a>,
    status: &'a T,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct BodyMeta<'a> {
    name: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    namespace: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    uid: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    resource_version: &'a str,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct SpecBody<'a, T> {
    api_version: &'static str,
    kind: &'static str,
    metadata: SpecMeta<'a>,
    spec: &'a T,
}

#[derive(Serialize)]
struct SpecMeta<'a> {
    #[serde(flatten)]
    known: BodyMeta<'a>,
    labels: &'a BTreeMap<&'static str, String>,
}

/// Creates a cluster-scoped object of our own with these labels and this spec. [`WriteError::Conflict`] means that there is one of that
/// name, [`WriteError::Gone`] that the API server does not know the kind.
pub async fn create<K: OwnKind>(
    clients: &Clients,
    permit: &Permit,
    name: &str,
    labels: &BTreeMap<&'static str, String>,
    spec: &impl Serialize,
) -> Result<(), WriteError> {
    let metadata = BodyMeta { name, namespace: "", uid: "", resource_version: "" };
    let path = format!("{}?fieldManager={FIELD_MANAGER}", read::path::<K>(""));
    let body = spec_body::<K, _>(metadata, labels, spec)?;
    send(clients, permit, (http::Method::POST, path), (JSON, body)).await.map(drop)
}

/// Replaces labels and spec of one of our own objects that nobody else writes, if it is as it was read.
pub async fn replace<K: OwnKind>(
    clients: &Clients,
    permit: &Permit,
    object: &Object<K::Spec, K::Status>,
    labels: &BTreeMap<&'static str, String>,
    spec: &impl Serialize,
) -> Result<(), WriteError> {
    let metadata = BodyMeta {
        name: &object.name,
        namespace: &object.namespace,
        uid: &object.uid,
        resource_version: &object.resource_version,
    };
    let path = format!("{}/{}?fieldManager={FIELD_MANAGER}", read::path::<K>(&object.namespace), object.name);
    let body = spec_body::<K, _>(metadata, labels, spec)?;
    send(clients, permit, (http::Method::PUT, path), (JSON, body)).await.map(drop)
}

/// Deletes one of our own objects, if it is as it was read.
pub async fn delete<K: OwnKind>(
    clients: &Clients,
    permit: &Permit,
    object: &Object<K::Spec, K::Status>,
) -> Result<(), WriteError> {
    let options = json!({
        "apiVersion": "v1", "kind": "DeleteOptions",
        "preconditions": { "uid": object.uid, "resourceVersion": object.resource_version },
    });
    let path = format!("{}/{}", read::path::<K>(&object.namespace), object.name);
    let body = options.to_string().into_bytes();
    send(clients, permit, (http::Method::DELETE, path), (JSON, body)).await.map(drop)
}

fn spec_body<K: OwnKind, T: Serialize>(
    metadata: BodyMeta<'_>,
    labels: &BTreeMap<&'static str, String>,
    spec: &T,
) -> Result<Vec<u8>, WriteError> {
    let body = SpecBody {
        api_version: K::GROUP_PATH.trim_start_matches("/apis/"),
        kind: K::KIND,
        metadata: SpecMeta { known: metadata, labels },
        spec,
    };
    serde_json::to_vec(&body).map_err(|e| WriteError::Refused(e.to_string()))
}

/// Sends a request; what the API server answers.
async fn send(
    clients: &Clients,
    permit: &Permit,
    (method, path): (http::Method, String),
    (media_type, body): (&str, Vec<u8>),
) -> Result<String, WriteError> {
    let request = Request::builder()
        .method(method)
        .uri(path)
        .header(http::header::CONTENT_TYPE, media_type)
        .body(body)
        .map_err(|e| WriteError::Refused(e.to_string()))?;
    Ok(permit.client(clients).request_text(request).await?)
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
        metadata: BodyMeta {
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
        (http::Method::PUT, JSON)
    };
    let answer = send(clients, permit, (method, path), (media_type, body)).await?;
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
