//! Whether a namespace is ready for its users.

use super::facts::{Rollout, WorkloadFacts, Workloads};
use crate::facts::{PodFacts, PodPhase};

/// Whether everything that is to run is ready: a pod runs, each is ready or has succeeded, and no workload lacks one or is being
/// rolled out. That nothing fails is another question: what starts slowly does not fail.
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
        PodPhase::Running => pod.health.as_ref().is_none_or(|health| health.not_ready_since.is_none()),
        PodPhase::Pending | PodPhase::Failed | PodPhase::Unknown => false,
    }
}
