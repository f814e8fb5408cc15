//! The kinds that the health of a namespace depends on, beside pods and Jobs. Of each only those objects are kept that say
//! something about a failure: of a cluster in which everything is well, its `ReplicaSet`s alone.
//!
//! None of them can [collapse](coppice_runtime::collapse): what is not there fails less, and nothing is done to a namespace
//! because nothing fails in it.

mod claims;
mod pods;
mod sets;

use coppice_lifecycle::health::facts::{ControllerRef, FailureReport};
use coppice_runtime::decode::ObjectRef;
use coppice_runtime::kind::LenientTime;
use jiff::Timestamp;
use serde::Deserialize;
use serde::de::IgnoredAny;

pub use claims::{ClaimWire, Claims};
pub(crate) use pods::{PodHealthWire, PodSpecWire, pod_health};
pub use sets::{DaemonSets, Deployments, ReplicaSets, SetWire, StatefulSets};

/// Characters that are kept of a message.
const MAX_MESSAGE: usize = 256;
/// Characters that are kept of a reason, a kind or a group.
const MAX_WORD: usize = 63;
/// Characters that are kept of a name.
pub(crate) const MAX_NAME: usize = 253;

/// What is read of the metadata of a workload.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct WorkloadMeta {
    pub(crate) name: Box<str>,
    namespace: Box<str>,
    pub(crate) uid: Box<str>,
    resource_version: Box<str>,
    generation: i64,
    creation_timestamp: LenientTime,
    pub(crate) deletion_timestamp: Option<IgnoredAny>,
    owner_references: Option<Vec<OwnerWire>>,
}

impl WorkloadMeta {
    pub(crate) fn object_ref(&self) -> ObjectRef {
        ObjectRef {
            namespace: self.namespace.clone(),
            name: self.name.clone(),
            revision: self.resource_version.clone(),
        }
    }

    /// When it was created; the API server always says so.
    pub(crate) fn created_at(&self) -> Timestamp {
        self.creation_timestamp.0.unwrap_or(Timestamp::MAX)
    }

    /// What controls it, if anything.
    pub(crate) fn owner(&self) -> Option<ControllerRef> {
        controller(self.owner_references.as_deref().unwrap_or_default())
    }
}

/// An owner on the wire.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct OwnerWire {
    api_version: Box<str>,
    pub(crate) kind: Box<str>,
    name: Box<str>,
    pub(crate) uid: Box<str>,
    controller: Option<bool>,
}

impl OwnerWire {
    /// The API group of its kind.
    pub(crate) fn group(&self) -> &str {
        self.api_version.split_once('/').map_or("", |(group, _)| group)
    }

    /// Whether it controls the object.
    pub(crate) fn controls(&self) -> bool {
        self.controller == Some(true)
    }
}

/// What controls an object, if anything. Whoever writes an owner may write any text: it is shortened.
pub(crate) fn controller(owners: &[OwnerWire]) -> Option<ControllerRef> {
    let owner = owners.iter().find(|owner| owner.controls())?;
    Some(ControllerRef {
        group: shortened(owner.group(), MAX_WORD),
        kind: shortened(&owner.kind, MAX_WORD),
        name: shortened(&owner.name, MAX_NAME),
    })
}

/// A condition of a workload on the wire.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct ConditionWire {
    r#type: ConditionType,
    pub(crate) status: ConditionStatus,
    pub(crate) reason: Option<Box<str>>,
    message: Option<Box<str>>,
    last_transition_time: LenientTime,
}

impl ConditionWire {
    /// The condition of a type, if there is one.
    pub(crate) fn find(all: Option<&[Self]>, wanted: ConditionType) -> Option<&Self> {
        all.unwrap_or_default().iter().find(|condition| condition.r#type == wanted)
    }

    /// Since when its status is what it is.
    pub(crate) fn since(&self, created: Timestamp) -> Timestamp {
        self.last_transition_time.0.unwrap_or(created)
    }

    /// What it says about a failure.
    pub(crate) fn report(&self, created: Timestamp) -> FailureReport {
        FailureReport {
            since: self.since(created),
            reason: shortened(self.reason.as_deref().unwrap_or_default(), MAX_WORD),
            message: shortened(self.message.as_deref().unwrap_or_default(), MAX_MESSAGE),
        }
    }
}

/// The conditions that matter. Read without a copy of their names: most objects have several.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
pub(crate) enum ConditionType {
    Complete,
    Failed,
    PodScheduled,
    Progressing,
    Ready,
    ReplicaFailure,
    #[default]
    #[serde(other)]
    Other,
}

/// The status of a condition.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
pub(crate) enum ConditionStatus {
    True,
    False,
    #[default]
    #[serde(other)]
    Unknown,
}

/// The first characters of what a program wrote, in one line.
pub(crate) fn one_line(text: &str, most: usize) -> Box<str> {
    let words = text.split(|c: char| c.is_whitespace() || c.is_control()).filter(|word| !word.is_empty());
    shortened(&words.take(most).collect::<Vec<_>>().join(" "), most)
}

/// The first characters of a text.
pub(crate) fn shortened(text: &str, most: usize) -> Box<str> {
    text.char_indices().nth(most).map_or(text, |(end, _)| &text[..end]).into()
}
