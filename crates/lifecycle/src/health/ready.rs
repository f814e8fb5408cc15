//! Whether a namespace is ready for its users.

use coppice_mutants::{Mutant, active};

use super::facts::{PodHealth, PodReadiness, Rollout, WorkloadFacts, Workloads};
use crate::facts::{PodFacts, PodPhase};

/// Whether everything that is to run is known to be ready: a pod runs, each is ready or has succeeded, and no workload lacks one or
/// is being rolled out. That nothing fails is another question: what starts slowly does not fail, nor does a pod of which nobody
/// says whether it is ready.
pub fn is_ready(workloads: &Workloads<'_>) -> bool {
    let Workloads { deployments, replica_sets, stateful_sets, daemon_sets, jobs, pods, claims: _ } =
        *workloads;
    let lacks = |one: &WorkloadFacts| one.short || one.refused.is_some() || one.rollout != Rollout::Ended;
    let sets = [deployments, replica_sets, stateful_sets, daemon_sets];
    let mut counted = pods.iter().filter(|pod| !pod.terminating && !was_replaced(pod));
    any_runs(workloads)
        && counted.all(pod_is_ready)
        && !sets.into_iter().any(|set| set.iter().any(lacks))
        && !jobs.iter().any(|job| job.health.as_ref().is_some_and(|health| health.short))
}

/// Whether a pod runs. Those that have succeeded serve nobody: a Job may have prepared what is still to come.
pub fn any_runs(workloads: &Workloads<'_>) -> bool {
    workloads.pods.iter().any(|pod| !pod.terminating && pod.phase == PodPhase::Running)
}

/// A pod that has failed is replaced by its controller, which lacks one until then.
fn was_replaced(pod: &PodFacts) -> bool {
    let owned = pod.job.is_some() || pod.health.as_ref().is_some_and(|health| health.owner.is_some());
    pod.phase == PodPhase::Failed && owned
}

fn pod_is_ready(pod: &PodFacts) -> bool {
    match pod.phase {
        PodPhase::Succeeded => true,
        // Nothing is kept of one that is well.
        PodPhase::Running => pod.health.as_deref().is_none_or(says_ready),
        PodPhase::Pending | PodPhase::Failed | PodPhase::Unknown => false,
    }
}

fn says_ready(health: &PodHealth) -> bool {
    match health.readiness {
        PodReadiness::Ready => true,
        PodReadiness::NotReady { .. } => false,
        PodReadiness::Unknown => active(Mutant::UnknownIsReady),
    }
}

#[cfg(test)]
mod tests {
    use coppice_api::Labels;
    use jiff::Timestamp;

    use super::*;
    use crate::facts::ObjectSlice;

    fn running(readiness: Option<PodReadiness>) -> PodFacts {
        let health = readiness.map(|readiness| PodHealth {
            owner: None,
            readiness,
            unschedulable: None,
            gated: false,
            failed: None,
            containers: Vec::new(),
            claims: Vec::new(),
        });
        PodFacts {
            name: "web".into(),
            labels: Labels::default(),
            phase: PodPhase::Running,
            terminating: false,
            job: None,
            health: health.map(Box::new),
        }
    }

    #[test]
    fn a_pod_that_runs_is_ready_if_its_node_says_so() {
        let since = Timestamp::UNIX_EPOCH;
        for (readiness, ready) in [
            (None, true),
            // Something else is kept of it: it has crashed before.
            (Some(PodReadiness::Ready), true),
            (Some(PodReadiness::NotReady { since }), false),
            (Some(PodReadiness::Unknown), false),
        ] {
            let pods = [running(None), running(readiness)];
            let workloads = Workloads { pods: ObjectSlice::Slice(&pods), ..Workloads::EMPTY };
            assert_eq!(is_ready(&workloads), ready, "{readiness:?}");
            assert!(any_runs(&workloads), "{readiness:?}");
        }
    }
}
