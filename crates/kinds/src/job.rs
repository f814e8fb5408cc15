//! Jobs.

use coppice_lifecycle::facts::{JobFacts, JobState};
use coppice_lifecycle::health::facts::JobHealth;
use coppice_runtime::decode::{BoundedLabels, ObjectRef, Unreadable};
use coppice_runtime::kind::Kind;
use serde::Deserialize;

use crate::workloads::{ConditionStatus, ConditionType, ConditionWire, WorkloadMeta};

/// Every Job.
#[derive(Debug)]
pub struct Jobs;

/// A Job on the wire.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct JobWire {
    metadata: WorkloadMeta,
    spec: JobSpecWire,
    status: JobStatusWire,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct JobSpecWire {
    suspend: Option<bool>,
    parallelism: Option<i64>,
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
    active: Option<i64>,
    conditions: Option<Vec<ConditionWire>>,
}

impl JobWire {
    fn condition(&self, wanted: ConditionType) -> Option<&ConditionWire> {
        let found = ConditionWire::find(self.status.conditions.as_deref(), wanted);
        found.filter(|condition| condition.status == ConditionStatus::True)
    }

    /// What its health depends on. One that is complete, and that nothing repeats, has nothing to say.
    fn health(&self, state: JobState) -> Option<Box<JobHealth>> {
        let (created_at, owner) = (self.metadata.created_at(), self.metadata.owner());
        if state == JobState::Complete && owner.is_none() {
            return None;
        }
        let runs = self.spec.suspend != Some(true) && self.spec.parallelism != Some(0);
        let failed = self.condition(ConditionType::Failed).filter(|_| state == JobState::Failed);
        Some(Box::new(JobHealth {
            created_at,
            owner,
            short: runs && self.status.active.unwrap_or(0) == 0,
            failed: failed.map(|condition| condition.report(created_at)),
        }))
    }
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
        let has = |wanted| wire.condition(wanted).is_some();
        let state = match (has(ConditionType::Complete), has(ConditionType::Failed)) {
            (true, _) => JobState::Complete,
            (false, true) => JobState::Failed,
            (false, false) => JobState::Unfinished,
        };
        let health = wire.health(state);
        let name = wire.metadata.name;
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
            health,
        })
    }

    fn name(object: &JobFacts) -> &str {
        &object.name
    }
}
