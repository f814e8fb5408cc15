//! The output of a `ClusterAccess`, the tenant's Secret with the kubeconfig: read whole, written in one request on the revision that was read.

use std::collections::BTreeMap;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use coppice_api::names::FIELD_MANAGER;
use coppice_clusters::kubeconfig::sha256;
use coppice_clusters::{Obstacle, OutputFact, OutputSecret, Validity};
use coppice_clusters_api::OutputRevision;
use coppice_clusters_api::names::{
    ANNOTATION_CREDENTIAL, ANNOTATION_INSTALLATION, ANNOTATION_NOT_AFTER, ANNOTATION_NOT_BEFORE,
    CAPI_LABEL_CLUSTER, CAPI_SECRET_TYPE, LABEL_ACCESS,
};
use coppice_runtime::client::Clients;
use coppice_runtime::kind::Kind as _;
use coppice_runtime::leader::Permit;
use coppice_runtime::object::OwnKind as _;
use coppice_runtime::read;
use coppice_runtime::write::WriteError;
use http::{Method, Request};
use jiff::Timestamp;
use serde::Deserialize;
use serde_json::json;

use crate::kinds::{Access, ClusterAccesses, OutputSecrets};

/// A Secret, with what is in it.
#[derive(Default, Deserialize)]
#[serde(default)]
pub(crate) struct Secret {
    metadata: Meta,
    data: BTreeMap<String, String>,
    #[serde(rename = "type")]
    type_: String,
    immutable: bool,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Meta {
    uid: String,
    resource_version: String,
    labels: BTreeMap<String, String>,
    annotations: BTreeMap<String, String>,
}

impl Secret {
    /// A value of its data, if there is one and it is base64.
    pub(crate) fn value(&self, key: &str) -> Option<Vec<u8>> {
        BASE64_STANDARD.decode(self.data.get(key)?).ok()
    }

    /// Whether Cluster API keeps it for the cluster of that name.
    pub(crate) fn is_of_cluster(&self, name: &str) -> bool {
        let cluster = self.metadata.labels.get(CAPI_LABEL_CLUSTER);
        self.type_ == CAPI_SECRET_TYPE && cluster.is_some_and(|cluster| cluster == name)
    }

    /// The id of the installation that wrote it; none if it does not say so.
    pub(crate) fn installation(&self) -> Option<&str> {
        self.metadata.annotations.get(ANNOTATION_INSTALLATION).map(String::as_str)
    }

    fn obstacle(&self) -> Option<Obstacle> {
        if self.type_ != "Opaque" {
            return Some(Obstacle::OtherType);
        }
        self.immutable.then_some(Obstacle::Immutable)
    }
}

/// Reads a Secret; none if there is none.
pub(crate) async fn read_secret(
    clients: &Clients,
    namespace: &str,
    name: &str,
) -> Result<Option<Secret>, kube::Error> {
    let request = read::request(&format!("{}/{name}", read::path::<OutputSecrets>(namespace)))?;
    match read::answer::<Secret>(&clients.reads, request).await {
        Ok(secret) => Ok(Some(secret)),
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(None),
        Err(error) => Err(error),
    }
}

/// What the Secret is to an access, and its value.
pub(crate) fn fact(secret: Option<Secret>, uid: &str, key: &str) -> (OutputFact, Vec<u8>) {
    let Some(secret) = secret else { return (OutputFact::Absent, Vec::new()) };
    if secret.metadata.labels.get(LABEL_ACCESS).is_none_or(|access| access != uid) {
        return (OutputFact::Foreign, Vec::new());
    }
    let (value, obstacle) = (secret.value(key).unwrap_or_default(), secret.obstacle());
    let Meta { uid, resource_version, annotations, .. } = secret.metadata;
    let instant = |key: &str| annotations.get(key)?.parse::<Timestamp>().ok();
    let validity = instant(ANNOTATION_NOT_BEFORE).zip(instant(ANNOTATION_NOT_AFTER));
    let fact = OutputFact::Ours(OutputSecret {
        revision: OutputRevision { uid, resource_version, sha256: sha256(&value) },
        credential: annotations.get(ANNOTATION_CREDENTIAL).cloned(),
        validity: validity.map(|(not_before, not_after)| Validity { not_before, not_after }),
        obstacle,
    });
    (fact, value)
}

/// Labels and annotations that the Secret has besides those that every one has.
#[derive(Default)]
pub(crate) struct ExtraMetadata {
    pub(crate) labels: BTreeMap<String, String>,
    pub(crate) annotations: BTreeMap<String, String>,
}

/// What is written.
pub(crate) struct Write<'a> {
    pub(crate) access: &'a Access,
    pub(crate) secret: &'a str,
    pub(crate) key: &'a str,
    pub(crate) credential: &'a str,
    pub(crate) validity: Validity,
    pub(crate) value: &'a str,
    pub(crate) metadata: &'a ExtraMetadata,
    /// The id of this installation; empty: none is written.
    pub(crate) installation: &'a str,
}

impl Write<'_> {
    /// Writes it: over the revision that was read, or else as a Secret that is created. What is there then.
    pub(crate) async fn send(
        &self,
        clients: &Clients,
        permit: &Permit,
        on: Option<&OutputRevision>,
    ) -> Result<OutputFact, WriteError> {
        let Access { namespace, name, uid, .. } = self.access;
        let (mut labels, mut annotations) = (json!(self.metadata.labels), json!(self.metadata.annotations));
        labels[LABEL_ACCESS] = json!(uid);
        labels["app.kubernetes.io/managed-by"] = json!(FIELD_MANAGER);
        annotations[ANNOTATION_CREDENTIAL] = json!(self.credential);
        annotations[ANNOTATION_NOT_BEFORE] = json!(self.validity.not_before);
        annotations[ANNOTATION_NOT_AFTER] = json!(self.validity.not_after);
        if !self.installation.is_empty() {
            annotations[ANNOTATION_INSTALLATION] = json!(self.installation);
        }
        let mut body = json!({
            "apiVersion": "v1", "kind": "Secret", "type": "Opaque",
            "metadata": {
                "name": self.secret, "namespace": namespace,
                "labels": labels,
                "annotations": annotations,
                "ownerReferences": [{
                    "apiVersion": ClusterAccesses::GROUP_PATH.trim_start_matches("/apis/"),
                    "kind": ClusterAccesses::KIND, "name": name, "uid": uid, "controller": true
                }]
            },
            "data": {self.key: BASE64_STANDARD.encode(self.value)}
        });
        let path = read::path::<OutputSecrets>(namespace);
        let (method, path) = match on {
            None => (Method::POST, path),
            Some(on) => {
                body["metadata"]["uid"] = json!(on.uid);
                body["metadata"]["resourceVersion"] = json!(on.resource_version);
                (Method::PUT, format!("{path}/{}", self.secret))
            }
        };
        let request = Request::builder()
            .method(method)
            .uri(format!("{path}?fieldManager={FIELD_MANAGER}"))
            .header(http::header::CONTENT_TYPE, "application/json")
            .body(body.to_string().into_bytes())
            .map_err(|error| WriteError::refused(error.to_string()))?;
        let written = read::answer::<Secret>(permit.client(clients), request).await?;
        Ok(fact(Some(written), uid, self.key).0)
    }
}
