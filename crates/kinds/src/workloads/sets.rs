//! `Deployment`s, `ReplicaSet`s, `StatefulSet`s and `DaemonSet`s.

use coppice_lifecycle::health::facts::{Rollout, WorkloadFacts};
use coppice_runtime::decode::{ObjectRef, Unreadable};
use coppice_runtime::kind::Kind;
use serde::Deserialize;

use super::{ConditionStatus, ConditionType, ConditionWire, WorkloadMeta};

/// The reason of a roll-out that has ended.
const ROLLED_OUT: &str = "NewReplicaSetAvailable";

/// A workload that asks for a number of pods, on the wire.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct SetWire {
    metadata: WorkloadMeta,
    spec: SpecWire,
    status: StatusWire,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct SpecWire {
    replicas: Option<i64>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct StatusWire {
    observed_generation: i64,
    replicas: i64,
    ready_replicas: i64,
    desired_number_scheduled: i64,
    current_number_scheduled: i64,
    number_ready: i64,
    conditions: Option<Vec<ConditionWire>>,
}

impl SetWire {
    /// How many pods its spec asks for.
    fn desired(&self) -> i64 {
        self.spec.replicas.unwrap_or(1)
    }

    /// Whether its controller has seen its spec: otherwise its status is about another one.
    fn is_observed(&self) -> bool {
        self.status.observed_generation > 0 && self.status.observed_generation >= self.metadata.generation
    }

    /// Whether there are too few pods, and those there are ready. One that creates its pods one after the other waits for
    /// the last one to be ready.
    fn short(&self) -> bool {
        let StatusWire { replicas, ready_replicas, .. } = self.status;
        self.is_observed() && replicas < self.desired() && ready_replicas >= replicas
    }

    /// The same of a `DaemonSet`, of which the nodes decide how many pods there are to be.
    fn daemon_short(&self) -> bool {
        let StatusWire { desired_number_scheduled, current_number_scheduled, number_ready, .. } = self.status;
        self.is_observed()
            && current_number_scheduled < desired_number_scheduled
            && number_ready >= current_number_scheduled
    }

    fn condition(&self, wanted: ConditionType) -> Option<&ConditionWire> {
        ConditionWire::find(self.status.conditions.as_deref(), wanted)
    }

    fn refused(&self) -> Option<&ConditionWire> {
        self.condition(ConditionType::ReplicaFailure).filter(|c| c.status == ConditionStatus::True)
    }

    fn rollout(&self) -> Rollout {
        if !self.is_observed() {
            return Rollout::UnderWay;
        }
        match self.condition(ConditionType::Progressing) {
            // It has no deadline of its own.
            None => Rollout::Ended,
            Some(c) if c.status == ConditionStatus::False => {
                Rollout::Stopped(c.report(self.metadata.created_at()))
            }
            Some(c) if c.reason.as_deref() == Some(ROLLED_OUT) => Rollout::Ended,
            Some(_) => Rollout::UnderWay,
        }
    }

    fn facts(self, short: bool, rollout: Rollout) -> WorkloadFacts {
        let created_at = self.metadata.created_at();
        WorkloadFacts {
            created_at,
            owner: self.metadata.owner(),
            short,
            refused: self.refused().map(|condition| condition.report(created_at)),
            rollout,
            name: self.metadata.name,
        }
    }
}

/// A kind of workload: its documentation, its name and its resource; which objects of it are kept, and what of them.
macro_rules! set {
    ($(#[doc = $doc:literal])+ $kind:ident, $resource:literal, $keep:expr, $project:expr) => {
        $(#[doc = $doc])+
        #[derive(Debug)]
        pub struct $kind;

        impl Kind for $kind {
            type Object = WorkloadFacts;
            type Wire = SetWire;
            type Context = ();
            const RESOURCE: &'static str = $resource;
            const GROUP_PATH: &'static str = "/apis/apps/v1";
            const BULK: bool = true;
            const CAN_COLLAPSE: bool = false;

            fn object_ref(wire: &SetWire) -> ObjectRef {
                wire.metadata.object_ref()
            }

            fn keep(wire: &SetWire, (): &()) -> bool {
                let keep: fn(&SetWire) -> bool = $keep;
                wire.metadata.deletion_timestamp.is_none() && keep(wire)
            }

            fn project(wire: SetWire, (): &()) -> Result<WorkloadFacts, Unreadable> {
                let project: fn(SetWire) -> WorkloadFacts = $project;
                Ok(project(wire))
            }

            fn name(object: &WorkloadFacts) -> &str {
                &object.name
            }
        }
    };
}

set!(
    /// Every `Deployment` whose roll-out has not ended, or that lacks pods.
    Deployments,
    "deployments",
    |wire| {
        wire.desired() > 0 && (wire.short() || wire.refused().is_some() || wire.rollout() != Rollout::Ended)
    },
    |wire| {
        let (short, rollout) = (wire.short(), wire.rollout());
        wire.facts(short, rollout)
    }
);

set!(
    /// Every `ReplicaSet` that is to have pods: these lead to the `Deployment` of a pod.
    ReplicaSets,
    "replicasets",
    |wire| wire.desired() > 0,
    |wire| {
        let short = wire.short();
        wire.facts(short, Rollout::Ended)
    }
);

set!(
    /// Every `StatefulSet` that lacks pods.
    StatefulSets,
    "statefulsets",
    |wire| wire.desired() > 0 && wire.short(),
    |wire| wire.facts(true, Rollout::Ended)
);

set!(
    /// Every `DaemonSet` that lacks pods.
    DaemonSets,
    "daemonsets",
    SetWire::daemon_short,
    |wire| wire.facts(true, Rollout::Ended)
);
