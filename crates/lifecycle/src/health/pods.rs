//! What is wrong with the pods of a namespace, reported for whatever controls them.

use std::collections::BTreeMap;

use coppice_api::HealthReason;
use jiff::Timestamp;

use super::containers::{exit_text, trouble};
use super::facts::{
    ClaimFacts, ContainerState, ControllerRef, FailureReport, PodHealth, Rollout, WorkloadFacts, Workloads,
};
use super::failing::{CheckTimes, POD_LIMIT};
use super::found_failures::FoundFailures;
use crate::condition::later;
use crate::facts::{JobFacts, JobState, PodFacts, PodPhase};

/// What pods belong to, by name.
struct Index<'a> {
    replica_sets: BTreeMap<&'a str, &'a WorkloadFacts>,
    deployments: BTreeMap<&'a str, &'a WorkloadFacts>,
    jobs: BTreeMap<&'a str, &'a JobFacts>,
    claims: BTreeMap<&'a str, &'a ClaimFacts>,
}

/// The object that users deal with, about which it is reported what is wrong with a pod: its Deployment, for example.
struct ReportedObject<'a> {
    kind: &'a str,
    name: &'a str,
    /// Whether its pods have to be ready some time.
    ready: bool,
}

/// Adds what is wrong with pods.
pub(super) fn find(workloads: &Workloads<'_>, found: &mut FoundFailures, checks: &mut CheckTimes) {
    let mut troubled = workloads.pods.iter().filter_map(|pod| Some((pod, pod.health.as_deref()?))).peekable();
    if troubled.peek().is_none() {
        return;
    }
    let index = Index {
        replica_sets: workloads.replica_sets.iter().map(|set| (&*set.name, set)).collect(),
        deployments: workloads.deployments.iter().map(|one| (&*one.name, one)).collect(),
        jobs: workloads.jobs.iter().map(|job| (&*job.name, job)).collect(),
        claims: workloads.claims.iter().map(|claim| (&*claim.name, claim)).collect(),
    };
    for (pod, health) in troubled.filter(|(pod, _)| !pod.terminating) {
        find_in_pod(pod, health, &index, found, checks);
    }
}

/// Adds what is wrong with one of them.
fn find_in_pod(
    pod: &PodFacts,
    health: &PodHealth,
    index: &Index<'_>,
    found: &mut FoundFailures,
    checks: &mut CheckTimes,
) {
    let Some(reported) = reported_object(pod, health, index) else { return };
    let ReportedObject { kind, name, ready } = reported;
    let about = |message: &str| {
        if (kind, name) == ("Pod", &*pod.name) {
            message.to_owned()
        } else {
            format!("pod {}: {message}", pod.name)
        }
    };
    let not_ready_since = health.readiness.not_ready_since();
    if pod.phase == PodPhase::Failed {
        // A controller replaces it, or counts it.
        if health.owner.is_none() {
            let since = not_ready_since.unwrap_or(checks.now);
            found.add((kind, name), HealthReason::PodFailed, (since, about(&failure(health))));
        }
        return;
    }
    let mut explained = false;
    for container in &health.containers {
        if let Some(trouble) = trouble(container, checks.now) {
            let since = not_ready_since.unwrap_or(checks.now);
            found.add((kind, name), trouble.reason, (since, about(&trouble.message)));
            checks.no_later_than(trouble.ends);
            explained = true;
        }
    }
    if let Some(FailureReport { since, message, .. }) = &health.unschedulable {
        match claim_without_volume(health, message, index) {
            Some(claim) => {
                let text = format!("pod {} waits for its volume: {message}", pod.name);
                found.add(("PersistentVolumeClaim", claim), HealthReason::VolumePending, (*since, text));
            }
            None => found.add((kind, name), HealthReason::Unschedulable, (*since, about(message))),
        }
        return;
    }
    let starting = |state: &ContainerState| matches!(state, ContainerState::Running { starting: true, .. });
    let waits = !ready || health.gated || health.containers.iter().any(|one| starting(&one.state));
    if let Some(since) = not_ready_since.filter(|_| !explained && !waits) {
        let limit = later(since, POD_LIMIT);
        if limit <= checks.now {
            let text = about("it has not been ready for ten minutes");
            found.add((kind, name), HealthReason::PodsNotReady, (since, text));
        } else {
            checks.no_later_than(Some(limit));
        }
    }
}

/// Climbs to the object that users deal with; none where that says by itself what became of its pods.
fn reported_object<'a>(
    pod: &'a PodFacts,
    health: &'a PodHealth,
    index: &Index<'a>,
) -> Option<ReportedObject<'a>> {
    let Some(owner) = &health.owner else {
        return Some(ReportedObject { kind: "Pod", name: &pod.name, ready: true });
    };
    if owner.is("batch", "Job") {
        let job = index.jobs.get(&*owner.name);
        let over = job.is_some_and(|job| job.state != JobState::Unfinished);
        // Its own deadline is its only one.
        return (!over).then_some(ReportedObject { kind: "Job", name: &owner.name, ready: false });
    }
    let deployment = owner.is("apps", "ReplicaSet").then(|| deployment_of(owner, index)).flatten();
    let Some(deployment) = deployment else {
        return Some(ReportedObject { kind: &owner.kind, name: &owner.name, ready: true });
    };
    let rollout = index.deployments.get(&*deployment.name).map(|deployment| &deployment.rollout);
    let ready = rollout.is_none_or(|rollout| *rollout != Rollout::UnderWay);
    Some(ReportedObject { kind: &deployment.kind, name: &deployment.name, ready })
}

/// The Deployment of a ReplicaSet.
fn deployment_of<'a>(replica_set: &ControllerRef, index: &Index<'a>) -> Option<&'a ControllerRef> {
    let owner = index.replica_sets.get(&*replica_set.name)?.owner.as_ref()?;
    owner.is("apps", "Deployment").then_some(owner)
}

/// The claim that keeps a pod from being scheduled, if the scheduler says that it is a claim: one that waits for the pod to be
/// scheduled has no volume, either.
fn claim_without_volume<'a>(health: &PodHealth, message: &str, index: &Index<'a>) -> Option<&'a str> {
    if !message.to_ascii_lowercase().contains("persistentvolumeclaim") {
        return None;
    }
    health.claims.iter().filter_map(|name| index.claims.get(&**name)).map(|claim| &*claim.name).min()
}

/// How a pod failed.
fn failure(health: &PodHealth) -> String {
    if let Some(FailureReport { reason, message, .. }) = &health.failed {
        return if message.is_empty() { reason.to_string() } else { format!("{reason}: {message}") };
    }
    let ended = health.containers.iter().find_map(|container| match &container.state {
        ContainerState::Ended(ended) if ended.exit_code != 0 => Some((&container.name, ended)),
        _ => None,
    });
    ended.map_or_else(
        || "it has failed".to_owned(),
        |(name, ended)| format!("container {name} ended with {}", exit_text(ended)),
    )
}

/// Claims whose volume is gone.
pub(super) fn find_lost_claims(workloads: &Workloads<'_>, found: &mut FoundFailures, now: Timestamp) {
    for claim in workloads.claims.iter().filter(|claim| claim.lost) {
        let text = "its volume is gone".to_owned();
        let since = claim.created_at.min(now);
        found.add(("PersistentVolumeClaim", &claim.name), HealthReason::VolumeLost, (since, text));
    }
}
