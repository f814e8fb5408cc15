//! The records of deleted namespaces: `DeletedNamespace`.

use coppice_api::names::{GROUP, LABEL_NAMESPACE};
use coppice_api::{DecodeError, DeletedNamespace};
use jiff::Timestamp;
use kube::api::{ApiResource, DynamicObject};
use kube::{Api, Client};

use crate::connect::{code, failed};
use crate::facts::DeletedRecord;
use crate::live;

/// The records that a label selector selects, the newest decision first. Read without their type: one that this version
/// cannot understand must not hide the others.
pub(crate) async fn list(client: &Client, labels: Option<&str>) -> Result<Vec<DeletedRecord>, kube::Error> {
    let resource = ApiResource::erase::<DeletedNamespace>(&());
    let api: Api<DynamicObject> = Api::all_with(client.clone(), &resource);
    let mut records = Vec::new();
    for object in live::list(&api, labels).await? {
        let record = serde_json::to_value(object).and_then(DeletedRecord::from_json);
        records.push(record.map_err(kube::Error::SerdeError)?);
    }
    records.sort_by(|a, b| decided(b).cmp(&decided(a)).then_with(|| a.name().cmp(b.name())));
    Ok(records)
}

/// The label selector of the records of one namespace.
pub(crate) fn of_namespace(namespace: &str) -> String {
    format!("{LABEL_NAMESPACE}={namespace}")
}

/// When it was decided; for a record that cannot be understood, when it was written.
fn decided(record: &DeletedRecord) -> Option<Timestamp> {
    let written = record.meta.creation_timestamp.as_ref().map(|t| t.0);
    record.spec.as_ref().ok().map(|spec| spec.decided_at).or(written)
}

/// The name of the namespace that was deleted.
pub(crate) fn namespace(record: &DeletedRecord) -> Option<&str> {
    let label = record.meta.labels.as_ref().and_then(|labels| labels.get(LABEL_NAMESPACE));
    record.spec.as_ref().ok().map(|spec| spec.namespace.as_str()).or(label.map(String::as_str))
}

/// How far the deletion is, in a word; none if that cannot be understood.
pub(crate) fn phase(record: &DeletedRecord) -> Option<&'static str> {
    let known = record.status_error.is_none();
    known.then(|| record.status.phase.map_or("Pending", coppice_api::DeletionPhase::as_str))
}

/// What cannot be understood of it.
pub(crate) fn problem(record: &DeletedRecord) -> Option<&DecodeError> {
    record.spec.as_ref().err().or(record.status_error.as_ref())
}

/// How kubectl names a record.
pub(crate) fn resource_name(name: &str) -> String {
    format!("deletednamespace.{GROUP}/{name}")
}

/// Why records cannot be listed, and what to do.
pub(crate) fn unreadable(error: &kube::Error) -> anyhow::Error {
    let what = "the DeletedNamespaces cannot be listed";
    match code(error) {
        Some(403) => anyhow::anyhow!(
            "{:#}; they are cluster-scoped: cluster administrators can list them, and users with a ClusterRoleBinding to the \
             role view or another that permits `list` on deletednamespaces.{GROUP}; a RoleBinding does not suffice",
            failed(what, error)
        ),
        Some(404) => anyhow::anyhow!(
            "{what}: the API server does not know this kind; apply the CRDs of this version: \
             `coppice crds | kubectl apply --server-side -f -`"
        ),
        _ => failed(what, error),
    }
}
