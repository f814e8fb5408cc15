//! Jobs.

use coppice_lifecycle::facts::{JobFacts, JobState};
use coppice_runtime::decode::{BoundedLabels, ObjectRef, Unreadable};
use coppice_runtime::kind::{Kind, Meta};
use serde::Deserialize;

/// Every Job.
#[derive(Debug)]
pub struct Jobs;

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
    labels: BoundedLabels,
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

impl Kind for Jobs {
    type Object = JobFacts;
    type Wire = JobWire;
    type Context = ();
    const RESOURCE: &'static str = "jobs";
    const GROUP_PATH: &'static str = "/apis/batch/v1";
    const BULK: bool = true;

    fn object_ref(wire: &JobWire) -> ObjectRef {
        wire.metadata.object_ref()
    }

    fn project(wire: JobWire, (): &()) -> Result<JobFacts, Unreadable> {
        let name = wire.metadata.name;
        let conditions = wire.status.conditions.unwrap_or_default();
        let has = |kind: &str| conditions.iter().any(|c| &*c.r#type == kind && &*c.status == "True");
        let state = match (has("Complete"), has("Failed")) {
            (true, _) => JobState::Complete,
            (false, true) => JobState::Failed,
            (false, false) => JobState::Unfinished,
        };
        let labels = wire.spec.template.metadata.map(|meta| meta.labels).unwrap_or_default();
        let BoundedLabels(Some(pod_labels)) = labels else {
            return Err(Unreadable::too_large(name, "labels in its pod template"));
        };
        Ok(JobFacts {
            name,
            uid: wire.metadata.uid,
            pod_labels,
            state,
            succeeded: wire.status.succeeded.unwrap_or(0),
            terminating: wire.metadata.deletion_timestamp.is_some(),
        })
    }

    fn name(object: &JobFacts) -> &str {
        &object.name
    }
}
