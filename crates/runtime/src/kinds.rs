//! The kinds that are watched, and the few fields of each that are kept.
//!
//! Everything is decoded straight into these shapes: what is not named here is skipped while the answer is read. All
//! fields are optional on the wire, so that one odd object cannot stop the watch of its kind.

use coppice_api::manager::NamespaceManagerStatus;
use coppice_api::{CoppiceConfigSpec, CoppiceConfigStatus};
use coppice_lifecycle::Wishes;
use coppice_lifecycle::facts::{JobFacts, JobState, NamespaceFacts, PodFacts, PodPhase};
use jiff::Timestamp;
use serde::Deserialize;
use serde::de::{DeserializeOwned, IgnoredAny};
use serde_json::value::RawValue;

use crate::decode::{Kept, Place, Unreadable, brief};
use crate::store::Named;

/// Bytes of a manager's spec that are read. One that a person wrote has some hundreds.
const LARGEST_SPEC: usize = 128 << 10;
/// Bytes of the settings' spec that are read: the platform writes it.
const LARGEST_SETTINGS: usize = 1 << 20;

/// The API server's uids have 36 bytes.
const LONGEST_UID: usize = 64;

/// A kind that is watched and kept in a small shape.
pub trait Watched: Named + PartialEq + Sized {
    /// What is read of the API server's answer.
    type Wire: DeserializeOwned;
    /// The resource, as in URLs; also the label of its metrics.
    const RESOURCE: &'static str;
    /// The path of the group and version, such as `/api/v1`.
    const GROUP_PATH: &'static str;

    /// Where the object is; its namespace is empty for cluster-scoped kinds.
    fn place(wire: &Self::Wire) -> Place;

    /// What is kept of the object.
    fn project(wire: Self::Wire) -> Result<Self, Unreadable>;

    /// What is kept of an object that cannot be decoded.
    fn misread(place: &Place, why: &str) -> Result<Self, Unreadable> {
        Err(Unreadable::undecodable(place.name.clone(), why))
    }
}

/// What is read of the metadata of Jobs and of our own kinds.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Meta {
    name: Box<str>,
    namespace: Box<str>,
    uid: Box<str>,
    resource_version: Box<str>,
    generation: i64,
    creation_timestamp: Instant,
    deletion_timestamp: Option<IgnoredAny>,
}

impl Meta {
    fn place(&self) -> Place {
        Place {
            namespace: self.namespace.clone(),
            name: self.name.clone(),
            revision: self.resource_version.clone(),
        }
    }
}

/// An instant; none if it is left out or is none that we can count with, such as the last day of the year 9999.
#[derive(Clone, Copy, Debug, Default)]
struct Instant(Option<Timestamp>);

impl<'de> Deserialize<'de> for Instant {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = Option::<Box<str>>::deserialize(deserializer)?;
        Ok(Self(text.and_then(|text| text.parse().ok())))
    }
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
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct NamespaceWire {
    metadata: NamespaceMeta,
    status: NamespaceStatusWire,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct NamespaceMeta {
    name: Box<str>,
    uid: Box<str>,
    resource_version: Box<str>,
    creation_timestamp: Instant,
    deletion_timestamp: Option<IgnoredAny>,
    labels: Kept,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct NamespaceStatusWire {
    phase: Box<str>,
}

impl Watched for NamespaceFacts {
    type Wire = NamespaceWire;
    const RESOURCE: &'static str = "namespaces";
    const GROUP_PATH: &'static str = "/api/v1";

    fn place(wire: &NamespaceWire) -> Place {
        let meta = &wire.metadata;
        Place { namespace: "".into(), name: meta.name.clone(), revision: meta.resource_version.clone() }
    }

    fn project(wire: NamespaceWire) -> Result<Self, Unreadable> {
        let meta = wire.metadata;
        // Without its labels it is not known whether it is protected.
        let Kept(Some(labels)) = meta.labels else { return Err(Unreadable::too_large(meta.name, "labels")) };
        Ok(Self {
            terminating: meta.deletion_timestamp.is_some() || &*wire.status.phase == "Terminating",
            name: meta.name.into(),
            uid: meta.uid.into(),
            resource_version: meta.resource_version.into(),
            // The API server always sets it; without it the namespace counts as created at the end of time, so that
            // nothing in it is ever due.
            created: meta.creation_timestamp.0.unwrap_or(Timestamp::MAX),
            labels,
        })
    }
}

impl Named for PodFacts {
    fn name(&self) -> &str {
        &self.name
    }
}

/// A pod on the wire.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct PodWire {
    metadata: PodMeta,
    status: PodStatusWire,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct PodMeta {
    name: Box<str>,
    namespace: Box<str>,
    resource_version: Box<str>,
    deletion_timestamp: Option<IgnoredAny>,
    labels: Kept,
    owner_references: Option<Vec<Owner>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Owner {
    api_version: Box<str>,
    kind: Box<str>,
    uid: Box<str>,
    controller: Option<bool>,
}

impl Owner {
    /// Whether it is the Job that the pod belongs to. Other API groups may have kinds of that name, too.
    fn is_job(&self) -> bool {
        self.controller == Some(true) && &*self.kind == "Job" && self.api_version.starts_with("batch/")
    }

    /// Its uid. Whoever writes an owner may write any text: one that is too long for a uid is that of no Job.
    fn uid(self) -> Box<str> {
        if self.uid.len() > LONGEST_UID { Box::default() } else { self.uid }
    }
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct PodStatusWire {
    phase: Option<Box<str>>,
}

impl Watched for PodFacts {
    type Wire = PodWire;
    const RESOURCE: &'static str = "pods";
    const GROUP_PATH: &'static str = "/api/v1";

    fn place(wire: &PodWire) -> Place {
        let meta = &wire.metadata;
        Place {
            namespace: meta.namespace.clone(),
            name: meta.name.clone(),
            revision: meta.resource_version.clone(),
        }
    }

    fn project(wire: PodWire) -> Result<Self, Unreadable> {
        let meta = wire.metadata;
        let job = meta.owner_references.into_iter().flatten().find(Owner::is_job);
        let Kept(Some(labels)) = meta.labels else { return Err(Unreadable::too_large(meta.name, "labels")) };
        Ok(Self {
            name: meta.name,
            labels,
            phase: PodPhase::parse(wire.status.phase.as_deref()),
            terminating: meta.deletion_timestamp.is_some(),
            job: job.map(Owner::uid),
        })
    }
}

impl Named for JobFacts {
    fn name(&self) -> &str {
        &self.name
    }
}

/// A Job on the wire.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct JobWire {
    metadata: Meta,
    spec: JobSpecWire,
    status: JobStatusWire,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct JobSpecWire {
    template: TemplateWire,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct TemplateWire {
    metadata: Option<TemplateMeta>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct TemplateMeta {
    labels: Kept,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct JobStatusWire {
    succeeded: Option<u32>,
    conditions: Option<Vec<ConditionWire>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct ConditionWire {
    r#type: Box<str>,
    status: Box<str>,
}

impl Watched for JobFacts {
    type Wire = JobWire;
    const RESOURCE: &'static str = "jobs";
    const GROUP_PATH: &'static str = "/apis/batch/v1";

    fn place(wire: &JobWire) -> Place {
        wire.metadata.place()
    }

    fn project(wire: JobWire) -> Result<Self, Unreadable> {
        let name = wire.metadata.name;
        let conditions = wire.status.conditions.unwrap_or_default();
        let has = |kind: &str| conditions.iter().any(|c| &*c.r#type == kind && &*c.status == "True");
        let state = match (has("Complete"), has("Failed")) {
            (true, _) => JobState::Complete,
            (false, true) => JobState::Failed,
            (false, false) => JobState::Unfinished,
        };
        let labels = wire.spec.template.metadata.map(|meta| meta.labels).unwrap_or_default();
        let Kept(Some(pod_labels)) = labels else {
            return Err(Unreadable::too_large(name, "labels in its pod template"));
        };
        Ok(Self {
            name,
            uid: wire.metadata.uid,
            pod_labels,
            state,
            succeeded: wire.status.succeeded.unwrap_or(0),
            terminating: wire.metadata.deletion_timestamp.is_some(),
        })
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
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct ObjectWire {
    metadata: Meta,
    spec: Option<Box<RawValue>>,
    status: Option<Box<RawValue>>,
}

impl<S: DeserializeOwned, T: DeserializeOwned + Default> Object<S, T> {
    /// An object whose spec is read up to so many bytes.
    fn read(wire: ObjectWire, largest: usize) -> Self {
        let meta = wire.metadata;
        let status = match wire.status {
            None => Ok(T::default()),
            Some(raw) => serde_json::from_str(raw.get())
                .map_err(|e| format!("status cannot be understood: {}", brief(&e))),
        };
        let (status, status_error) = match status {
            Ok(status) => (status, None),
            Err(error) => (T::default(), Some(error)),
        };
        let spec = wire.spec.as_ref().map_or("null", |raw| raw.get());
        let spec = if spec.len() > largest {
            Err(format!("spec has {} bytes, more than the {largest} that are read: shorten it", spec.len()))
        } else {
            serde_json::from_str(spec)
                .map(Box::new)
                .map_err(|e| format!("spec cannot be understood: {}", brief(&e)))
        };
        Self {
            namespace: meta.namespace,
            name: meta.name,
            uid: meta.uid,
            resource_version: meta.resource_version,
            generation: meta.generation,
            created: meta.creation_timestamp.0.unwrap_or(Timestamp::MAX),
            terminating: meta.deletion_timestamp.is_some(),
            spec,
            status: Box::new(status),
            status_error,
        }
    }

    /// An object whose metadata cannot be understood: it is there, asks for nothing, and its status is left as it is.
    fn odd(place: &Place, why: &str) -> Result<Self, Unreadable> {
        if place.name.is_empty() {
            return Err(Unreadable::undecodable("".into(), why));
        }
        Ok(Self {
            namespace: place.namespace.clone(),
            name: place.name.clone(),
            uid: "".into(),
            resource_version: place.revision.clone(),
            // Of no real object, and so of no law that is compiled already.
            generation: -1,
            created: Timestamp::MAX,
            terminating: false,
            spec: Err(format!("the object cannot be understood: {why}")),
            status: Box::default(),
            status_error: Some(format!("the object cannot be understood: {why}")),
        })
    }
}

/// A `NamespaceManager`.
pub type Manager = Object<Wishes, NamespaceManagerStatus>;

impl Watched for Manager {
    type Wire = ObjectWire;
    const RESOURCE: &'static str = "namespacemanagers";
    const GROUP_PATH: &'static str = "/apis/coppice.dev/v1alpha1";

    fn place(wire: &ObjectWire) -> Place {
        wire.metadata.place()
    }

    fn project(wire: ObjectWire) -> Result<Self, Unreadable> {
        Ok(Self::read(wire, LARGEST_SPEC))
    }

    fn misread(place: &Place, why: &str) -> Result<Self, Unreadable> {
        Self::odd(place, why)
    }
}

/// A `CoppiceConfig`.
pub type Config = Object<CoppiceConfigSpec, CoppiceConfigStatus>;

impl Watched for Config {
    type Wire = ObjectWire;
    const RESOURCE: &'static str = "coppiceconfigs";
    const GROUP_PATH: &'static str = "/apis/coppice.dev/v1alpha1";

    fn place(wire: &ObjectWire) -> Place {
        Place { namespace: "".into(), ..wire.metadata.place() }
    }

    fn project(wire: ObjectWire) -> Result<Self, Unreadable> {
        Ok(Self::read(wire, LARGEST_SETTINGS))
    }

    fn misread(place: &Place, why: &str) -> Result<Self, Unreadable> {
        Self::odd(&Place { namespace: "".into(), ..place.clone() }, why)
    }
}
