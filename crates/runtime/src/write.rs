//! Writes: never retried blindly, always with the revision that they were decided on, only with a [`Permit`].

use std::collections::BTreeMap;
use std::time::Duration;

use coppice_api::names::{FIELD_MANAGER, FINALIZER};
use http::Request;
use kube::core::Status;
use kube::core::response::StatusDetails;
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::client::{Clients, MAX_RETRY_AFTER, ResourceName, ambiguous};
use crate::error::chain;
use crate::kind::Kind;
use crate::leader::Permit;
use crate::object::OwnKind;
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
    Refused(Refusal),
}

/// Why a write was refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct Refusal {
    /// What the API server says, or why nothing was sent to it.
    pub message: String,
    /// The HTTP code of its answer; none if it gave none.
    pub code: Option<u16>,
    /// For how long it asks to wait (`Retry-After`), if it does; of more than two minutes these count.
    pub retry_after: Option<Duration>,
}

impl Refusal {
    fn of(status: &Status) -> Self {
        let seconds = status.details.as_ref().map_or(0, |details| details.retry_after_seconds);
        let asked = Duration::from_secs(seconds.into()).min(MAX_RETRY_AFTER);
        let retry_after = Some(asked).filter(|asked| !asked.is_zero());
        Self { message: sentence(status), code: Some(status.code), retry_after }
    }

    /// Whether the API server has too many requests.
    pub fn is_throttled(&self) -> bool {
        self.code == Some(TOO_MANY_REQUESTS)
    }
}

/// The code of a server that has too many requests.
const TOO_MANY_REQUESTS: u16 = 429;

impl WriteError {
    /// That a write is refused without an answer of the API server.
    pub fn refused(message: impl Into<String>) -> Self {
        Self::Refused(Refusal { message: message.into(), code: None, retry_after: None })
    }
}

impl From<kube::Error> for WriteError {
    fn from(error: kube::Error) -> Self {
        match &error {
            kube::Error::Api(status) if status.code == 409 => Self::Conflict,
            kube::Error::Api(status) if status.code == 404 => Self::Gone,
            kube::Error::Api(status) if !ambiguous(&error) => Self::Refused(Refusal::of(status)),
            _ if ambiguous(&error) => Self::Ambiguous(chain(&error)),
            _ => Self::refused(chain(&error)),
        }
    }
}

/// Why an object was not applied.
#[derive(Debug, thiserror::Error)]
pub enum ApplyError {
    /// Others manage some of the fields and have given them other values. The message of the API server names both.
    #[error("{0}")]
    ManagedByOthers(String),
    /// As of every write.
    #[error(transparent)]
    Write(WriteError),
}

impl From<WriteError> for ApplyError {
    fn from(error: WriteError) -> Self {
        Self::Write(error)
    }
}

impl From<kube::Error> for ApplyError {
    fn from(error: kube::Error) -> Self {
        match error {
            kube::Error::Api(status) if has_other_managers(&status) => {
                Self::ManagedByOthers(sentence(&status))
            }
            error => Self::Write(error.into()),
        }
    }
}

/// Why an object was not created.
#[derive(Debug, thiserror::Error)]
pub enum CreateError {
    /// The namespace is being deleted: nothing can be created in it any more.
    #[error("{0}")]
    NamespaceTerminating(String),
    /// As of every write.
    #[error(transparent)]
    Write(WriteError),
}

impl From<WriteError> for CreateError {
    fn from(error: WriteError) -> Self {
        Self::Write(error)
    }
}

impl From<kube::Error> for CreateError {
    fn from(error: kube::Error) -> Self {
        match error {
            kube::Error::Api(status) if is_in_terminating_namespace(&status) => {
                Self::NamespaceTerminating(sentence(&status))
            }
            error => Self::Write(error.into()),
        }
    }
}

impl From<CreateError> for WriteError {
    fn from(error: CreateError) -> Self {
        match error {
            CreateError::NamespaceTerminating(message) => {
                Self::Refused(Refusal { message, code: Some(403), retry_after: None })
            }
            CreateError::Write(error) => error,
        }
    }
}

fn is_in_terminating_namespace(status: &Status) -> bool {
    status.code == 403 && has_cause(status, "NamespaceTerminating")
}

fn has_other_managers(status: &Status) -> bool {
    status.code == 409 && has_cause(status, "FieldManagerConflict")
}

fn has_cause(status: &Status, reason: &str) -> bool {
    status.details.iter().flat_map(|details| &details.causes).any(|cause| cause.reason == reason)
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
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    labels: &'a BTreeMap<&'static str, String>,
}

/// Creates an object of our own with these labels and this spec, in a namespace or (empty) in none. [`WriteError::Conflict`] means
/// that there is one of that name, [`WriteError::Gone`] that the API server does not know the kind or the namespace.
pub async fn create<K: OwnKind>(
    clients: &Clients,
    permit: &Permit,
    (namespace, name): (&str, &str),
    labels: &BTreeMap<&'static str, String>,
    spec: &impl Serialize,
) -> Result<(), WriteError> {
    let metadata = BodyMeta { name, namespace, uid: "", resource_version: "" };
    let path = format!("{}?fieldManager={FIELD_MANAGER}", read::path::<K>(namespace));
    let body = spec_body::<K, _>(metadata, labels, spec)?;
    send::<K>(clients, permit, (http::Method::POST, path), (JSON, body)).await.map(drop)
}

/// Replaces labels and spec of one of our own objects that nobody else writes, if it is as it was read.
pub async fn replace<K: OwnKind>(
    clients: &Clients,
    permit: &Permit,
    object: &K::Object,
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
    send::<K>(clients, permit, (http::Method::PUT, path), (JSON, body)).await.map(drop)
}

/// Deletes one of our own objects, if it is as it was read.
pub async fn delete<K: OwnKind>(
    clients: &Clients,
    permit: &Permit,
    object: &K::Object,
) -> Result<(), WriteError> {
    let revision = Revision { uid: &object.uid, resource_version: Some(&object.resource_version) };
    delete_object::<K>(clients, permit, (&object.namespace, &object.name), revision).await
}

/// Applies an object that is ours, whatever its kind: sets these fields, and removes those that were applied before and are
/// not among them. The object is created if there is none. A field that others manage is not taken from them.
///
/// With `metadata.uid` and `metadata.resourceVersion` it is applied to what was read alone; otherwise it is
/// [`WriteError::Conflict`].
pub async fn apply<K: Kind>(
    clients: &Clients,
    permit: &Permit,
    namespace: &str,
    name: &str,
    object: &impl Serialize,
) -> Result<(), ApplyError> {
    let path = format!("{}/{name}?fieldManager={FIELD_MANAGER}", read::path::<K>(namespace));
    let body = serde_json::to_vec(object).map_err(|e| WriteError::refused(e.to_string()))?;
    let request = request::<K>((http::Method::PATCH, path), ("application/apply-patch+yaml", body))?;
    answered(clients, permit, request).await?;
    Ok(())
}

/// Creates an object of whatever kind; as it is then. [`WriteError::Conflict`] means that there is one of that name, and
/// [`WriteError::Gone`] that there is no such namespace.
pub async fn create_object<K: Kind>(
    clients: &Clients,
    permit: &Permit,
    namespace: &str,
    object: &impl Serialize,
) -> Result<K::Object, WriteError> {
    create_object_with::<K>(clients, permit, namespace, object, &K::Context::default()).await
}

/// The same, of which as much is kept as this context says.
pub async fn create_object_with<K: Kind>(
    clients: &Clients,
    permit: &Permit,
    namespace: &str,
    object: &impl Serialize,
    context: &K::Context,
) -> Result<K::Object, WriteError> {
    Ok(created::<K>(clients, permit, namespace, object, context).await?)
}

/// Creates an object as [`create_object`] does, in a namespace of which it is not known whether it is being deleted.
pub async fn create_in_namespace<K: Kind>(
    clients: &Clients,
    permit: &Permit,
    namespace: &str,
    object: &impl Serialize,
) -> Result<K::Object, CreateError> {
    created::<K>(clients, permit, namespace, object, &K::Context::default()).await
}

async fn created<K: Kind>(
    clients: &Clients,
    permit: &Permit,
    namespace: &str,
    object: &impl Serialize,
    context: &K::Context,
) -> Result<K::Object, CreateError> {
    let path = format!("{}?fieldManager={FIELD_MANAGER}", read::path::<K>(namespace));
    let body = serde_json::to_vec(object).map_err(|e| WriteError::refused(e.to_string()))?;
    let request = request::<K>((http::Method::POST, path), (JSON, body))?;
    let created = answered(clients, permit, request).await?;
    Ok(read::decoded::<K>(created.as_bytes(), context)?)
}

/// The revision of an object that a write is decided on.
#[derive(Clone, Copy, Debug)]
pub struct Revision<'a> {
    /// Its uid.
    pub uid: &'a str,
    /// Its resource version; none where the write is right on whatever revision there is.
    pub resource_version: Option<&'a str>,
}

/// Merges fields into an object of whatever kind (as a JSON merge patch: null removes), if it is as it was read; as it is then.
pub async fn merge<K: Kind>(
    clients: &Clients,
    permit: &Permit,
    (namespace, name): (&str, &str),
    revision: Revision<'_>,
    mut fields: serde_json::Value,
) -> Result<K::Object, WriteError> {
    fields["metadata"]["uid"] = json!(revision.uid);
    if let Some(resource_version) = revision.resource_version {
        fields["metadata"]["resourceVersion"] = json!(resource_version);
    }
    let path = format!("{}/{name}?fieldManager={FIELD_MANAGER}", read::path::<K>(namespace));
    let body = ("application/merge-patch+json", fields.to_string().into_bytes());
    let written = send::<K>(clients, permit, (http::Method::PATCH, path), body).await?;
    Ok(read::decoded::<K>(written.as_bytes(), &K::Context::default())?)
}

/// Deletes an object of whatever kind, if it is as it was read.
pub async fn delete_object<K: Kind>(
    clients: &Clients,
    permit: &Permit,
    (namespace, name): (&str, &str),
    revision: Revision<'_>,
) -> Result<(), WriteError> {
    let options = json!({
        "apiVersion": "v1", "kind": "DeleteOptions",
        "preconditions": { "uid": revision.uid, "resourceVersion": revision.resource_version },
    });
    let path = format!("{}/{name}", read::path::<K>(namespace));
    let body = options.to_string().into_bytes();
    send::<K>(clients, permit, (http::Method::DELETE, path), (JSON, body)).await.map(drop)
}

/// Puts our [finalizer](FINALIZER) on one of our own objects, if it is as it was read. Returns the object as it is then.
pub async fn add_finalizer<K: OwnKind>(
    clients: &Clients,
    permit: &Permit,
    object: &K::Object,
) -> Result<K::Object, WriteError> {
    set_finalizer::<K>(clients, permit, object, true).await
}

/// Takes our [finalizer](FINALIZER), and no other, off one of our own objects, if it is as it was read. Returns the object
/// as it is then; one that was being deleted may be gone.
pub async fn remove_finalizer<K: OwnKind>(
    clients: &Clients,
    permit: &Permit,
    object: &K::Object,
) -> Result<K::Object, WriteError> {
    set_finalizer::<K>(clients, permit, object, false).await
}

async fn set_finalizer<K: OwnKind>(
    clients: &Clients,
    permit: &Permit,
    object: &K::Object,
    present: bool,
) -> Result<K::Object, WriteError> {
    #[derive(Deserialize)]
    struct Found {
        metadata: FoundMeta,
    }
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct FoundMeta {
        uid: String,
        resource_version: String,
        #[serde(default)]
        finalizers: Vec<String>,
    }
    // Caches do not keep the others, which have to stay. The revision is that of the object: they are as they were then.
    let path = format!("{}/{}", read::path::<K>(&object.namespace), object.name);
    let answer = permit.client(clients).request_text(read::request_of::<K>(&path)?).await;
    let unread = |error: kube::Error| WriteError::refused(format!("it could not be read: {}", chain(&error)));
    let answer = match answer {
        Err(kube::Error::Api(status)) if status.code == 404 => return Err(WriteError::Gone),
        answer => answer.map_err(unread)?,
    };
    let found: Found = serde_json::from_str(&answer).map_err(|e| unread(kube::Error::SerdeError(e)))?;
    let FoundMeta { uid, resource_version, finalizers: mut all } = found.metadata;
    if uid != *object.uid || resource_version != *object.resource_version {
        return Err(WriteError::Conflict);
    }
    if all.iter().any(|finalizer| finalizer == FINALIZER) == present {
        return Ok(read::decoded::<K>(answer.as_bytes(), &())?);
    }
    if present {
        all.push(FINALIZER.to_owned());
    } else {
        all.retain(|finalizer| finalizer != FINALIZER);
    }
    let body =
        json!({"metadata": {"uid": uid, "resourceVersion": resource_version, "finalizers": all}}).to_string();
    let path = format!("{path}?fieldManager={FIELD_MANAGER}");
    let body = ("application/merge-patch+json", body.into_bytes());
    let written = send::<K>(clients, permit, (http::Method::PATCH, path), body).await?;
    Ok(read::decoded::<K>(written.as_bytes(), &())?)
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
    serde_json::to_vec(&body).map_err(|e| WriteError::refused(e.to_string()))
}

/// Sends a request; what the API server answers.
async fn send<K: Kind>(
    clients: &Clients,
    permit: &Permit,
    target: (http::Method, String),
    content: (&str, Vec<u8>),
) -> Result<String, WriteError> {
    Ok(answered(clients, permit, request::<K>(target, content)?).await?)
}

/// Sends a request; what the API server answers. If it has too many requests the error has for how long it asks to wait, which a header
/// alone may say.
async fn answered(
    clients: &Clients,
    permit: &Permit,
    request: Request<Vec<u8>>,
) -> Result<String, kube::Error> {
    let answer = permit.client(clients).request_text(request).await;
    answer.map_err(|mut error| {
        if let kube::Error::Api(status) = &mut error
            && status.code == TOO_MANY_REQUESTS
        {
            let left = clients.backpressure.remaining();
            let seconds = left.as_secs() + u64::from(left.subsec_nanos() > 0);
            let details = status.details.get_or_insert_with(no_details);
            details.retry_after_seconds =
                details.retry_after_seconds.max(u32::try_from(seconds).unwrap_or(u32::MAX));
        }
        error
    })
}

fn no_details() -> StatusDetails {
    StatusDetails {
        name: String::new(),
        group: String::new(),
        kind: String::new(),
        uid: String::new(),
        causes: Vec::new(),
        retry_after_seconds: 0,
    }
}

fn request<K: Kind>(
    (method, path): (http::Method, String),
    (media_type, body): (&str, Vec<u8>),
) -> Result<Request<Vec<u8>>, WriteError> {
    let request = Request::builder().method(method).uri(path).header(http::header::CONTENT_TYPE, media_type);
    request.extension(ResourceName(K::RESOURCE)).body(body).map_err(|e| WriteError::refused(e.to_string()))
}

/// Replaces the status of one of our own objects, if nobody has changed the object since it was read. Returns the
/// object as it is then.
///
/// Status belongs to the operator alone, so that replacing it whole loses nothing; the revision makes every write a
/// compare-and-swap.
pub async fn status<K: OwnKind>(
    clients: &Clients,
    permit: &Permit,
    object: &K::Object,
    status: &K::Status,
) -> Result<K::Object, WriteError> {
    if let Some(error) = &object.status_error {
        // Replacing it would wipe out what has been done.
        return Err(WriteError::refused(format!("{error}; it is left as it is")));
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
    let body = serde_json::to_vec(&body).map_err(|e| WriteError::refused(e.to_string()))?;
    let (method, media_type) = if coppice_mutants::active(Mutant::KeyedByName) {
        (http::Method::PATCH, "application/merge-patch+json")
    } else {
        (http::Method::PUT, JSON)
    };
    let answer = send::<K>(clients, permit, (method, path), (media_type, body)).await?;
    let written = read::decoded::<K>(answer.as_bytes(), &())?;
    if *written.status != *status {
        // Going on would write the same again and again, and rely on what is not there.
        return Err(WriteError::refused(format!(
            "the API server has kept only a part of the status: the definition of {} in the cluster is of another \
             version than this operator; apply the CRDs of its installation",
            K::KIND
        )));
    }
    Ok(written)
}

#[cfg(test)]
#[path = "write_tests.rs"]
mod tests;
