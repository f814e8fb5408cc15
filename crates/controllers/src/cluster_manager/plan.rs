//! The status of each cluster manager. Pure.

use std::sync::Arc;

use coppice_api::cluster_manager::NamespaceCounts;
use coppice_api::condition::{self, ACCEPTED, ConditionState, READY};
use coppice_api::{ClusterNamespaceManagerStatus, Reason};
use coppice_kinds::ClusterManager;
use jiff::Timestamp;

use super::observe::Observation;

/// A status to write.
pub(super) struct StatusWrite {
    pub(super) manager: Arc<ClusterManager>,
    pub(super) status: Box<ClusterNamespaceManagerStatus>,
}

/// What to write now, and when time alone changes it.
pub(super) struct StatusPlan {
    pub(super) writes: Vec<StatusWrite>,
    pub(super) next_check: Option<Timestamp>,
}

/// Every status that says something new.
pub(super) fn plan(observation: &Observation) -> StatusPlan {
    let writes = observation.managers.iter().filter_map(|manager| {
        // One that cannot be understood is left to the version that wrote it.
        if manager.status_error.is_some() || manager.terminating {
            return None;
        }
        let status = status(manager, observation);
        (status != *manager.status)
            .then(|| StatusWrite { manager: Arc::clone(manager), status: Box::new(status) })
    });
    let next_check = observation.census.as_ref().and_then(|census| census.next_check);
    StatusPlan { writes: writes.collect(), next_check }
}

fn status(manager: &ClusterManager, observation: &Observation) -> ClusterNamespaceManagerStatus {
    let mut status = (*manager.status).clone();
    status.observed_generation = Some(manager.generation);
    let counts = observation.census.as_ref().and_then(|census| census.managers.get(&*manager.name));
    // Old counts beside a new spec would be read as its own.
    let counts = counts.cloned().unwrap_or_default();
    (status.namespaces, status.enforce) = (counts.namespaces, counts.enforce);
    let (accepted, ready) = match &manager.spec {
        Ok(spec) => {
            status.policy_digest = Some(spec.digest().to_owned());
            let accepted = state("True", Reason::Accepted, "spec can be understood".to_owned());
            (accepted, ready(&status.namespaces, observation))
        }
        Err(why) => {
            let message = format!("{why}; nothing is done by any cluster manager until it can be understood");
            let refused = state("False", Reason::InvalidSpec, message);
            (refused.clone(), refused)
        }
    };
    for (type_, state) in [(ACCEPTED, accepted), (READY, ready)] {
        condition::set(&mut status.conditions, type_, state, manager.generation, observation.now);
    }
    status
}

fn ready(counts: &NamespaceCounts, observation: &Observation) -> ConditionState {
    let broken = observation.managers.iter().find(|manager| !manager.terminating && manager.spec.is_err());
    if let Some(broken) = broken {
        let message = format!(
            "ClusterNamespaceManager {} cannot be understood, so that it is not known which namespaces are its own",
            broken.name
        );
        return state("False", Reason::InvalidSpec, message);
    }
    let missing = counts.governed.saturating_sub(counts.recorded);
    if missing == 0 {
        let message = "every namespace that it governs has a record that says so".to_owned();
        return state("True", Reason::Reconciled, message);
    }
    let message = format!(
        "of {missing} of the {} namespaces that it governs the record does not say so yet; nothing is done to them before \
         it does",
        counts.governed
    );
    state("False", Reason::RecordsPending, message)
}

fn state(status: &'static str, reason: Reason, message: String) -> ConditionState {
    ConditionState { status, reason: reason.to_string(), message }
}

#[cfg(test)]
#[path = "plan_tests.rs"]
mod tests;
