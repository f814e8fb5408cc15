//! Pods.

use coppice_lifecycle::facts::{PodFacts, PodPhase};
use coppice_runtime::decode::{BoundedLabels, ObjectRef, Unreadable};
use coppice_runtime::kind::Kind;
use serde::Deserialize;
use serde::de::IgnoredAny;

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
    status: PodStatusWire,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct PodMeta {
    name: Box<str>,
    namespace: Box<str>,
    resource_version: Box<str>,
    deletion_timestamp: Option<IgnoredAny>,
    labels: BoundedLabels,
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
        if self.uid.len() > MAX_UID_LENGTH { Box::default() } else { self.uid }
    }
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct PodStatusWire {
    phase: Option<Box<str>>,
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
        let job = meta.owner_references.into_iter().flatten().find(Owner::is_job);
        let BoundedLabels(Some(labels)) = meta.labels else {
            return Err(Unreadable::too_large(meta.name, "labels"));
        };
        Ok(PodFacts {
            name: meta.name,
            labels,
            phase: PodPhase::parse(wire.status.phase.as_deref()),
            terminating: meta.deletion_timestamp.is_some(),
            job: job.map(Owner::uid),
        })
    }

    fn name(object: &PodFacts) -> &str {
        &object.name
    }
}
