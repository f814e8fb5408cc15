//! What is kept of a pod that may not be well.

use coppice_lifecycle::facts::PodPhase;
use coppice_lifecycle::health::facts::{
    ContainerFacts, ContainerState, FailureReport, PodHealth, PodReadiness, Termination,
};
use coppice_runtime::kind::LenientTime;
use jiff::Timestamp;
use serde::Deserialize;

use super::{
    ConditionStatus, ConditionType, ConditionWire, MAX_MESSAGE, MAX_NAME, MAX_WORD, OwnerWire, controller,
    one_line, shortened,
};

/// So many containers and claims are kept of a pod.
const MOST: usize = 8;

/// What is read of a pod's spec.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct PodSpecWire {
    volumes: Option<Vec<VolumeWire>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct VolumeWire {
    persistent_volume_claim: Option<ClaimSourceWire>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct ClaimSourceWire {
    claim_name: Box<str>,
}

/// What is read of a pod's status, besides its phase.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct PodHealthWire {
    pub(crate) phase: Option<Box<str>>,
    reason: Option<Box<str>>,
    message: Option<Box<str>>,
    conditions: Option<Vec<ConditionWire>>,
    init_container_statuses: Option<Vec<ContainerWire>>,
    container_statuses: Option<Vec<ContainerWire>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct ContainerWire {
    name: Box<str>,
    started: Option<bool>,
    ready: bool,
    restart_count: i64,
    state: StateWire,
    last_state: StateWire,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct StateWire {
    waiting: Option<WaitingWire>,
    running: Option<RunningWire>,
    terminated: Option<TerminatedWire>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct WaitingWire {
    reason: Option<Box<str>>,
    message: Option<Box<str>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct RunningWire {
    started_at: LenientTime,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct TerminatedWire {
    exit_code: i32,
    reason: Option<Box<str>>,
    message: Option<Box<str>>,
}

/// What is kept of a pod that was created then; nothing of one that is well, or that has nothing to be well for.
pub(crate) fn pod_health(
    (phase, created): (PodPhase, Timestamp),
    owners: &[OwnerWire],
    spec: &PodSpecWire,
    status: &PodHealthWire,
) -> Option<Box<PodHealth>> {
    if phase == PodPhase::Succeeded {
        return None;
    }
    let conditions = status.conditions.as_deref();
    let readiness = readiness(conditions, phase, created);
    // One that prepares the others has started when it runs, and is ready when it has ended; nobody can give it a deadline.
    let prepares = status.init_container_statuses.iter().flatten().map(|one| container(one, !one.ready));
    let others = status.container_statuses.iter().flatten().map(|one| container(one, false));
    let containers: Vec<_> = prepares.chain(others).flatten().take(MOST).collect();
    if readiness == PodReadiness::Ready && containers.is_empty() {
        return None;
    }
    let scheduled = ConditionWire::find(conditions, ConditionType::PodScheduled);
    let scheduled = scheduled.filter(|condition| condition.status == ConditionStatus::False);
    let because = |wanted: &str| scheduled.filter(|condition| condition.reason.as_deref() == Some(wanted));
    let unschedulable = because("Unschedulable").map(|condition| condition.report(created));
    // A pod that no node has taken has no containers yet.
    let claims = if unschedulable.is_some() && containers.is_empty() { claims(spec) } else { Vec::new() };
    let failed = status.reason.as_deref().filter(|_| phase == PodPhase::Failed).map(|reason| FailureReport {
        since: readiness.not_ready_since().unwrap_or(created),
        reason: shortened(reason, MAX_WORD),
        message: shortened(status.message.as_deref().unwrap_or_default(), MAX_MESSAGE),
    });
    Some(Box::new(PodHealth {
        owner: controller(owners),
        readiness,
        unschedulable,
        gated: because("SchedulingGated").is_some(),
        failed,
        containers,
        claims,
    }))
}

/// Whether a pod is ready. What its node does not say is not known.
fn readiness(conditions: Option<&[ConditionWire]>, phase: PodPhase, created: Timestamp) -> PodReadiness {
    match ConditionWire::find(conditions, ConditionType::Ready) {
        // One that has failed is not ready, whatever was true of it before.
        Some(ready) if ready.status == ConditionStatus::True && phase != PodPhase::Failed => {
            PodReadiness::Ready
        }
        // The node does not answer: how the pod is, nobody knows.
        Some(ready) if ready.status == ConditionStatus::Unknown => PodReadiness::Unknown,
        Some(ready) => PodReadiness::NotReady { since: ready.since(created) },
        // Its kubelet does not say.
        None if matches!(phase, PodPhase::Running | PodPhase::Unknown) => PodReadiness::Unknown,
        None => PodReadiness::NotReady { since: created },
    }
}

fn claims(spec: &PodSpecWire) -> Vec<Box<str>> {
    let volumes = spec.volumes.iter().flatten();
    let claims = volumes.filter_map(|volume| volume.persistent_volume_claim.as_ref());
    claims.map(|claim| shortened(&claim.claim_name, MAX_NAME)).take(MOST).collect()
}

/// What is kept of a container; nothing of one that runs as it should, or has ended as it should.
fn container(wire: &ContainerWire, prepares: bool) -> Option<ContainerFacts> {
    let (restarts, starting) = (wire.restart_count >= 2, prepares || wire.started == Some(false));
    let last = wire.last_state.terminated.as_ref().map(ended);
    let state = match &wire.state {
        StateWire { waiting: Some(waiting), .. } => {
            let reason = waiting.reason.as_deref().unwrap_or_default();
            if matches!(reason, "" | "ContainerCreating" | "PodInitializing") {
                return None;
            }
            // With every restart it waits for another time.
            let message = waiting.message.as_deref().filter(|_| reason != "CrashLoopBackOff");
            ContainerState::Waiting {
                reason: shortened(reason, MAX_WORD),
                message: shortened(message.unwrap_or_default(), MAX_MESSAGE),
            }
        }
        StateWire { running: Some(running), .. } => {
            let crashed = restarts && last.as_ref().is_some_and(|last| last.exit_code != 0);
            if !starting && !crashed {
                return None;
            }
            ContainerState::Running { since: running.started_at.0.unwrap_or(Timestamp::MIN), starting }
        }
        StateWire { terminated: Some(terminated), .. } if terminated.exit_code != 0 => {
            ContainerState::Ended(ended(terminated))
        }
        StateWire { .. } => return None,
    };
    Some(ContainerFacts { name: shortened(&wire.name, MAX_WORD), restarts, state, last })
}

fn ended(wire: &TerminatedWire) -> Termination {
    // What one said that ended with success explains nothing.
    let message = wire.message.as_deref().filter(|_| wire.exit_code != 0);
    Termination {
        exit_code: wire.exit_code,
        reason: shortened(wire.reason.as_deref().unwrap_or_default(), MAX_WORD),
        message: one_line(message.unwrap_or_default(), MAX_MESSAGE),
    }
}
