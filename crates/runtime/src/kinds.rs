//! The kinds that are watched, and the few fields of each that are kept.
//!
//! Everything is decoded straight into these shapes: what is not named here is skipped while the answer is read. All
//! fields are optional on the wire, so that one odd object cannot stop the watch of its kind.

use coppice_api::manager::NamespaceManagerStatus;
use coppice_api::{CoppiceConfigSpec, CoppiceConfigStatus, Labels};
use coppice_lifecycle::Wishes;
use coppice_lifecycle::facts::{JobFacts, JobState, NamespaceFacts, PodFacts, PodPhase};
use jiff::Timestamp;
use serde::Deserialize;
use serde::de::DeserializeOwned;

use crate::store::Named;

/// A kind that is watched and kept in a small shape.
pub trait Watched: Named + PartialEq + Sized {
    /// What is read of the API server's answer.
    type Wire: DeserializeOwned + Clone + Send;
    /// The resource, as in URLs; also the label of its metrics.
    const RESOURCE: &'static str;
    /// The path of the group and version, such as `/api/v1`.
    const GROUP_PATH: &'static str;

    /// The namespace (empty for cluster-scoped kinds) and the object.
    fn project(wire: Self::Wire) -> (Box<str>, Self);

    /// The revision of the object, from which a watch goes on.
    fn revision(wire: &Self::Wire) -> Option<&str>;
}

/// What is read of any object's metadata.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Meta {
    name: Box<str>,
    namespace: Box<str>,
    uid: Box<str>,
    resource_version: Box<str>,
    generation: i64,
    creation_timestamp: Option<Timestamp>,
    deletion_timestamp: Option<Box<str>>,
    labels: Option<Labels>,
    owner_references: Vec<Owner>,
}

impl Meta {
    fn revision(&self) -> Option<&str> {
        Some(&*self.resource_version).filter(|revision| !revision.is_empty())
    }
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct Owner {
    kind: Box<str>,
    uid: Box<str>,
    controller: bool,
}

impl Named for NamespaceFacts {
    fn name(&self) -> &str {
        &self.name
    }

    fn is_newer_than(&self, other: &Self) -> bool {
        self.uid == other.uid && is_later(&self.resource_version, &other.resource_version)
    }
}

/// Revisions are numbers that grow; where an API server has others, nothing is learnt from what it answers.
fn is_later(revision: &str, other: &str) -> bool {
    let number = |revision: &str| revision.parse::<u64>().ok();
    number(revision).zip(number(other)).is_some_and(|(this, other)| this > other)
}

/// A namespace on the wire.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct NamespaceWire {
    metadata: Meta,
    status: NamespaceStatusWire,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct NamespaceStatusWire {
    phase: Box<str>,
}

impl Watched for NamespaceFacts {
    type Wire = NamespaceWire;
    const RESOURCE: &'static str = "namespaces";
    const GROUP_PATH: &'static str = "/api/v1";

    fn revision(wire: &Self::Wire) -> Option<&str> {
        wire.metadata.revision()
    }

    fn project(wire: NamespaceWire) -> (Box<str>, Self) {
        let meta = wire.metadata;
        let facts = Self {
            terminating: meta.deletion_timestamp.is_some() || &*wire.status.phase == "Terminating",
            name: meta.name.into(),
            uid: meta.uid.into(),
            resource_version: meta.resource_version.into(),
            // The API server always sets it; without it the namespace counts as created at the end of time, so that
            // nothing in it is ever due.
            created: meta.creation_timestamp.unwrap_or(Timestamp::MAX),
            labels: meta.labels.unwrap_or_default(),
        };
        ("".into(), facts)
    }
}

impl Named for PodFacts {
    fn name(&self) -> &str {
        &self.name
    }
}

/// A pod on the wire.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct PodWire {
    metadata: Meta,
    status: PodStatusWire,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct PodStatusWire {
    phase: Option<Box<str>>,
}

impl Watched for PodFacts {
    type Wire = PodWire;
    const RESOURCE: &'static str = "pods";
    const GROUP_PATH: &'static str = "/api/v1";

    fn revision(wire: &Self::Wire) -> Option<&str> {
        wire.metadata.revision()
    }

    fn project(wire: PodWire) -> (Box<str>, Self) {
        let meta = wire.metadata;
        let job = meta.owner_references.into_iter().find(|o| o.controller && &*o.kind == "Job");
        let facts = Self {
            name: meta.name,
            labels: meta.labels.unwrap_or_default(),
            phase: PodPhase::parse(wire.status.phase.as_deref()),
            terminating: meta.deletion_timestamp.is_some(),
            job: job.map(|o| o.uid),
        };
        (meta.namespace, facts)
    }
}

impl Named for JobFacts {
    fn name(&self) -> &str {
        &self.name
    }
}

/// A Job on the wire.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct JobWire {
    metadata: Meta,
    spec: JobSpecWire,
    status: JobStatusWire,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct JobSpecWire {
    template: TemplateWire,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct TemplateWire {
    metadata: Option<Meta>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct JobStatusWire {
    succeeded: u32,
    conditions: Vec<ConditionWire>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct ConditionWire {
    r#type: Box<str>,
    status: Box<str>,
}

impl Watched for JobFacts {
    type Wire = JobWire;
    const RESOURCE: &'static str = "jobs";
    const GROUP_PATH: &'static str = "/apis/batch/v1";

    fn revision(wire: &Self::Wire) -> Option<&str> {
        wire.metadata.revision()
    }

    fn project(wire: JobWire) -> (Box<str>, Self) {
        let has =
            |kind: &str| wire.status.conditions.iter().any(|c| &*c.r#type == kind && &*c.status == "True");
        let state = match (has("Complete"), has("Failed")) {
            (true, _) => JobState::Complete,
            (false, true) => JobState::Failed,
            (false, false) => JobState::Unfinished,
        };
        let facts = Self {
            name: wire.metadata.name,
            uid: wire.metadata.uid,
            pod_labels: wire.spec.template.metadata.and_then(|m| m.labels).unwrap_or_default(),
            state,
            succeeded: wire.status.succeeded,
            terminating: wire.metadata.deletion_timestamp.is_some(),
        };
        (wire.metadata.namespace, facts)
    }
}

/// An object of one of our own kinds: everything of spec and status, little of the metadata.
#[derive(Clone, Debug, PartialEq)]
pub struct Object<S, T> {
    /// Its namespace; empty for cluster-scoped kinds.
    pub namespace: Box<str>,
    /// Its name.
    pub name: Box<str>,
    /// Its uid.
    pub uid: Box<str>,
    /// The revision that was seen; the precondition of every write.
    pub resource_version: Box<str>,
    /// The generation of its spec.
    pub generation: i64,
    /// When it was created.
    pub created: Timestamp,
    /// Whether it is being deleted.
    pub terminating: bool,
    /// Its spec, or why it cannot be understood (it was written past the API server's checks, or for a newer version).
    pub spec: Result<Box<S>, String>,
    /// Its status; the default if there is none or it cannot be understood.
    pub status: Box<T>,
    /// Why the status cannot be understood, if so: nothing is done then, since it says what has been done.
    pub status_error: Option<String>,
}

impl<S, T> Object<S, T> {
    /// Its spec, if that and its status can be understood; otherwise why not.
    pub fn understood(&self) -> Result<&S, &str> {
        match (&self.spec, &self.status_error) {
            (Err(error), _) | (_, Some(error)) => Err(error),
            (Ok(spec), None) => Ok(spec),
        }
    }
}

impl<S: Send + Sync + 'static, T: Send + Sync + 'static> Named for Object<S, T> {
    fn name(&self) -> &str {
        &self.name
    }

    fn is_newer_than(&self, other: &Self) -> bool {
        self.uid == other.uid && is_later(&self.resource_version, &other.resource_version)
    }
}

/// An object of one of our own kinds on the wire.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct ObjectWire {
    metadata: Meta,
    spec: serde_json::Value,
    status: serde_json::Value,
}

impl<S: DeserializeOwned, T: DeserializeOwned + Default> From<ObjectWire> for Object<S, T> {
    fn from(wire: ObjectWire) -> Self {
        let meta = wire.metadata;
        let status = match wire.status {
            serde_json::Value::Null => Ok(T::default()),
            value => serde_json::from_value(value).map_err(|e| format!("status cannot be understood: {e}")),
        };
        let (status, status_error) = match status {
            Ok(status) => (status, None),
            Err(error) => (T::default(), Some(error)),
        };
        Self {
            namespace: meta.namespace,
            name: meta.name,
            uid: meta.uid,
            resource_version: meta.resource_version,
            generation: meta.generation,
            created: meta.creation_timestamp.unwrap_or(Timestamp::MAX),
            terminating: meta.deletion_timestamp.is_some(),
            spec: serde_json::from_value(wire.spec)
                .map(Box::new)
                .map_err(|e| format!("spec cannot be understood: {e}")),
            status: Box::new(status),
            status_error,
        }
    }
}

/// A `NamespaceManager`.
pub type Manager = Object<Wishes, NamespaceManagerStatus>;

impl Watched for Manager {
    type Wire = ObjectWire;
    const RESOURCE: &'static str = "namespacemanagers";
    const GROUP_PATH: &'static str = "/apis/coppice.dev/v1alpha1";

    fn revision(wire: &Self::Wire) -> Option<&str> {
        wire.metadata.revision()
    }

    fn project(wire: ObjectWire) -> (Box<str>, Self) {
        let object = Self::from(wire);
        (object.namespace.clone(), object)
    }
}

/// A `CoppiceConfig`.
pub type Config = Object<CoppiceConfigSpec, CoppiceConfigStatus>;

impl Watched for Config {
    type Wire = ObjectWire;
    const RESOURCE: &'static str = "coppiceconfigs";
    const GROUP_PATH: &'static str = "/apis/coppice.dev/v1alpha1";

    fn revision(wire: &Self::Wire) -> Option<&str> {
        wire.metadata.revision()
    }

    fn project(wire: ObjectWire) -> (Box<str>, Self) {
        ("".into(), Self::from(wire))
    }
}
