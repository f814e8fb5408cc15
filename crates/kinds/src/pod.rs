//! Pods.

use coppice_lifecycle::facts::{PodFacts, PodPhase};
use coppice_runtime::decode::{BoundedLabels, ObjectRef, Unreadable};
use coppice_runtime::kind::{Kind, LenientTime};
use jiff::Timestamp;
use serde::Deserialize;
use serde::de::IgnoredAny;

use crate::workloads::{OwnerWire, PodHealthWire, PodSpecWire, pod_health};

/// The API server's uids have 36 bytes.
const MAX_UID_LENGTH: usize = 64;

/// Every pod.
#[derive(Debug)]
pub struct Pods;

/// A pod on the wire.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct PodWire {
    metadata: PodMeta,
    spec: PodSpecWire,
    status: PodHealthWire,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct PodMeta {
    name: Box<str>,
    namespace: Box<str>,
    resource_version: Box<str>,
    creation_timestamp: LenientTime,
    deletion_timestamp: Option<IgnoredAny>,
    labels: BoundedLabels,
    owner_references: Option<Vec<OwnerWire>>,
}

/// Whether an owner is the Job that the pod belongs to. Other API groups may have kinds of that name, too.
fn is_job(owner: &OwnerWire) -> bool {
    owner.controls() && &*owner.kind == "Job" && owner.group() == "batch"
}

/// The uid of a Job. Whoever writes an owner may write any text: one that is too long for a uid is that of no Job.
fn uid(owner: &OwnerWire) -> Box<str> {
    if owner.uid.len() > MAX_UID_LENGTH { Box::default() } else { owner.uid.clone() }
}

impl Kind for Pods {
    type Object = PodFacts;
    type Wire = PodWire;
    type Context = ();
    const RESOURCE: &'static str = "pods";
    const GROUP_PATH: &'static str = "/api/v1";
    const BULK: bool = true;

    fn object_ref(wire: &PodWire) -> ObjectRef {
        let meta = &wire.metadata;
        ObjectRef {
            namespace: meta.namespace.clone(),
            name: meta.name.clone(),
            revision: meta.resource_version.clone(),
        }
    }

    fn project(wire: PodWire, (): &()) -> Result<PodFacts, Unreadable> {
        let meta = wire.metadata;
        let owners = meta.owner_references.unwrap_or_default();
        let phase = PodPhase::parse(wire.status.phase.as_deref());
        let created = meta.creation_timestamp.0.unwrap_or(Timestamp::MAX);
        let BoundedLabels(Some(labels)) = meta.labels else {
            return Err(Unreadable::too_large(meta.name, "labels"));
        };
        Ok(PodFacts {
            name: meta.name,
            labels,
            phase,
            terminating: meta.deletion_timestamp.is_some(),
            job: owners.iter().find(|owner| is_job(owner)).map(uid),
            health: pod_health((phase, created), &owners, &wire.spec, &wire.status),
        })
    }

    fn name(object: &PodFacts) -> &str {
        &object.name
    }
}
