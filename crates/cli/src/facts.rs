//! From objects of the API to the facts that a decision needs: the same as the operator's own conversion.

use coppice_api::manager::NamespaceManagerStatus;
use coppice_api::names::MANAGED_NAMESPACE_NAME;
use coppice_api::{
    ClusterNamespaceManagerStatus, CoppiceConfigSpec, CoppiceConfigStatus, DecodeError, DeletedNamespaceSpec,
    DeletedNamespaceStatus, Labels, ManagedNamespaceSpec, ManagedNamespaceStatus,
};
use coppice_lifecycle::ValidSpec;
use coppice_lifecycle::cluster::{ClusterManagerFacts, RecordFacts, ValidClusterManager};
use coppice_lifecycle::facts::{
    AnnotationKeys, Annotations, JobFacts, JobState, NamespaceFacts, PodFacts, PodPhase,
};
use jiff::Timestamp;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{Namespace, Pod};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use serde::Deserialize;
use serde::de::DeserializeOwned;

/// What stands for a uid that is not known; the name follows.
const UNKNOWN_UID: &str = "unknown-uid-of-";

/// An object of one of our own kinds.
#[derive(Clone, Debug)]
pub(crate) struct Object<S, T> {
    pub(crate) meta: ObjectMeta,
    /// Its spec, or why it cannot be understood.
    pub(crate) spec: Result<S, DecodeError>,
    /// Its status; the default if there is none or it cannot be understood.
    pub(crate) status: T,
    /// Why the status cannot be understood, if so.
    pub(crate) status_error: Option<DecodeError>,
}

/// A `NamespaceManager`.
pub(crate) type Manager = Object<ValidSpec, NamespaceManagerStatus>;
/// A `ClusterNamespaceManager`.
pub(crate) type ClusterManager = Object<ValidClusterManager, ClusterNamespaceManagerStatus>;
/// A `ManagedNamespace`.
pub(crate) type NamespaceRecord = Object<ManagedNamespaceSpec, ManagedNamespaceStatus>;
/// A `CoppiceConfig`.
pub(crate) type Config = Object<CoppiceConfigSpec, CoppiceConfigStatus>;
/// A `DeletedNamespace`.
pub(crate) type DeletedRecord = Object<DeletedNamespaceSpec, DeletedNamespaceStatus>;

#[derive(Deserialize)]
struct Wire {
    #[serde(default)]
    metadata: ObjectMeta,
    #[serde(default)]
    spec: serde_json::Value,
    #[serde(default)]
    status: serde_json::Value,
}

impl<S: DeserializeOwned, T: DeserializeOwned + Default> Object<S, T> {
    /// Reads an object; one that cannot be understood says so in its fields.
    pub(crate) fn from_json(value: serde_json::Value) -> Result<Self, serde_json::Error> {
        let wire: Wire = serde_json::from_value(value)?;
        let status = match wire.status {
            serde_json::Value::Null => Ok(T::default()),
            value => serde_json::from_value(value).map_err(|e| DecodeError::Status { why: e.to_string() }),
        };
        let (status, status_error) = match status {
            Ok(status) => (status, None),
            Err(error) => (T::default(), Some(error)),
        };
        let spec = serde_json::from_value(wire.spec).map_err(|e| DecodeError::Spec { why: e.to_string() });
        Ok(Self { meta: wire.metadata, spec, status, status_error })
    }
}

impl<S, T> Object<S, T> {
    /// Its namespace; empty for cluster-scoped kinds.
    pub(crate) fn namespace(&self) -> &str {
        self.meta.namespace.as_deref().unwrap_or_default()
    }

    /// Its name.
    pub(crate) fn name(&self) -> &str {
        self.meta.name.as_deref().unwrap_or_default()
    }
}

impl ClusterManager {
    /// Whether it waits for pods.
    pub(crate) fn needs_pods(&self) -> bool {
        self.spec.as_ref().is_ok_and(ValidClusterManager::needs_pods)
    }

    /// The manager, as the pure planner takes it. Its status decides nothing.
    pub(crate) fn facts(&self) -> ClusterManagerFacts<'_> {
        ClusterManagerFacts {
            name: self.name(),
            uid: self.meta.uid.as_deref().unwrap_or_default(),
            generation: self.meta.generation.unwrap_or_default(),
            terminating: self.meta.deletion_timestamp.is_some(),
            spec: self.spec.as_ref(),
        }
    }
}

impl NamespaceRecord {
    /// The record that the operator would create in a namespace.
    pub(crate) fn assumed(namespace: &str) -> Self {
        let meta = ObjectMeta {
            name: Some(MANAGED_NAMESPACE_NAME.to_owned()),
            namespace: Some(namespace.to_owned()),
            ..ObjectMeta::default()
        };
        let (spec, status) = (Ok(ManagedNamespaceSpec::default()), ManagedNamespaceStatus::default());
        Self { meta, spec, status, status_error: None }
    }

    /// The record, as the pure planner takes it.
    pub(crate) fn facts(&self) -> RecordFacts<'_> {
        RecordFacts {
            uid: self.meta.uid.as_deref().unwrap_or_default(),
            generation: self.meta.generation.unwrap_or_default(),
            terminating: self.meta.deletion_timestamp.is_some(),
            spec: self.spec.as_ref(),
            status: &self.status,
        }
    }
}

/// A namespace; none without a creation time, which only the API server gives.
pub(crate) fn namespace(object: Namespace, assumed: Timestamp) -> NamespaceFacts {
    let phase = object.status.and_then(|s| s.phase);
    let meta = object.metadata;
    let name = meta.name.unwrap_or_default();
    NamespaceFacts {
        terminating: meta.deletion_timestamp.is_some() || phase.as_deref() == Some("Terminating"),
        uid: meta.uid.unwrap_or_else(|| format!("{UNKNOWN_UID}{name}")),
        resource_version: meta.resource_version.unwrap_or_default(),
        created: meta.creation_timestamp.map_or(assumed, |t| t.0),
        labels: meta.labels.unwrap_or_default().into_iter().collect(),
        annotations: Annotations::of(&AnnotationKeys::All, meta.annotations.unwrap_or_default()),
        name,
    }
}

/// A namespace of which nothing but its name, and perhaps its uid, is known.
pub(crate) fn assumed_namespace(name: &str, uid: Option<&str>, assumed: Timestamp) -> NamespaceFacts {
    let mut object = Namespace::default();
    object.metadata.name = Some(name.to_owned());
    object.metadata.uid = uid.map(str::to_owned);
    namespace(object, assumed)
}

/// Whether the uid of a namespace is not known: files need not say it.
pub(crate) fn has_unknown_uid(namespace: &NamespaceFacts) -> bool {
    namespace.uid.strip_prefix(UNKNOWN_UID) == Some(namespace.name.as_str())
}

/// A pod.
pub(crate) fn pod(object: Pod) -> PodFacts {
    let meta = object.metadata;
    let owners = meta.owner_references.unwrap_or_default();
    let is_job = |o: &OwnerReference| {
        o.controller == Some(true) && o.kind == "Job" && o.api_version.starts_with("batch/")
    };
    let job = owners.into_iter().find(is_job);
    PodFacts {
        name: meta.name.unwrap_or_default().into(),
        labels: labels(meta.labels),
        phase: PodPhase::parse(object.status.and_then(|s| s.phase).as_deref()),
        terminating: meta.deletion_timestamp.is_some(),
        job: job.map(|o| o.uid.into()),
        health: None,
    }
}

/// A Job.
pub(crate) fn job(object: Job) -> JobFacts {
    let meta = object.metadata;
    let status = object.status.unwrap_or_default();
    let has = |kind: &str| status.conditions.iter().flatten().any(|c| c.type_ == kind && c.status == "True");
    let state = match (has("Complete"), has("Failed")) {
        (true, _) => JobState::Complete,
        (false, true) => JobState::Failed,
        (false, false) => JobState::Unfinished,
    };
    let template = object.spec.and_then(|s| s.template.metadata).and_then(|m| m.labels);
    let name = meta.name.unwrap_or_default();
    JobFacts {
        uid: meta.uid.unwrap_or_else(|| format!("unknown-uid-of-{name}")).into(),
        pod_labels: labels(template),
        state,
        succeeded: status.succeeded.and_then(|n| u32::try_from(n).ok()).unwrap_or(0),
        terminating: meta.deletion_timestamp.is_some(),
        name: name.into(),
        health: None,
    }
}

fn labels(map: Option<std::collections::BTreeMap<String, String>>) -> Labels {
    map.unwrap_or_default().into_iter().collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_pod_belongs_to_the_job_that_controls_it() {
        let of = |version: &str, kind: &str, controller: bool| json!({"apiVersion": version, "kind": kind, "name": "x", "uid": kind, "controller": controller});
        let owner = |kind: &str, controller: bool| of("batch/v1", kind, controller);
        let read = |owners: serde_json::Value| {
            pod(serde_json::from_value(
                json!({"metadata": {"name": "p", "ownerReferences": owners}, "status": {"phase": "Failed"}}),
            )
            .unwrap())
        };
        assert_eq!(read(json!([owner("Job", true)])).job.as_deref(), Some("Job"));
        assert_eq!(read(json!([owner("Job", false), owner("ReplicaSet", true)])).job, None);
        assert_eq!(read(json!([of("example.org/v1", "Job", true)])).job, None, "of another API group");
        assert_eq!(read(json!([])).phase, PodPhase::Failed);
    }

    #[test]
    fn a_job_is_over_by_its_conditions() {
        let read = |conditions: serde_json::Value| {
            job(serde_json::from_value(
                json!({"metadata": {"name": "j"}, "status": {"succeeded": 3, "conditions": conditions}}),
            )
            .unwrap())
        };
        let condition = |kind: &str, status: &str| json!({"type": kind, "status": status});
        assert_eq!(read(json!([condition("Complete", "True")])).state, JobState::Complete);
        assert_eq!(read(json!([condition("Failed", "True")])).state, JobState::Failed);
        assert_eq!(
            read(json!([condition("Complete", "False"), condition("Suspended", "True")])).state,
            JobState::Unfinished
        );
        assert_eq!(read(json!([])).succeeded, 3);
    }
}
