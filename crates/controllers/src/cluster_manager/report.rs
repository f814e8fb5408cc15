//! Reports what went wrong, and what waits for a person. What there is, is in status.

use coppice_api::Reason;
use coppice_api::condition::{self, ACCEPTED, APPROVED, BUDGET_SUFFICIENT, Condition};
use coppice_kinds::{ClusterManager, ClusterManagers};

use super::apply::ManagerStatusError;
use crate::context::ControllerContext;
use crate::reference::reference;

/// What Events of cluster managers say was being done.
const ACTION: &str = "Manage";

/// Publishes an Event when a spec cannot be understood, and when a manager that enforces begins to wait for approval, or for more
/// budget.
pub(super) fn waits(shared: &ControllerContext, before: &ClusterManager, after: &ClusterManager) {
    refused(shared, before, after);
    if !enforces(after) {
        return;
    }
    for type_ in [APPROVED, BUDGET_SUFFICIENT] {
        let Some(now) = denied(after, type_) else { continue };
        // A switch to Enforce begins to wait, although the condition said so while it observed.
        if denied(before, type_).is_some() && before.status.policy_digest == after.status.policy_digest {
            continue;
        }
        tracing::warn!(manager = %after.name, reason = %now.reason, "{}", now.message);
        shared.events.publish(reference::<ClusterManagers>(after), true, &now.reason, ACTION, &now.message);
    }
}

/// The same for a spec that cannot be understood, which stops every cluster manager; another one that cannot either is one more Event.
fn refused(shared: &ControllerContext, before: &ClusterManager, after: &ClusterManager) {
    let Some(now) = denied(after, ACCEPTED) else { return };
    let same_spec = before.status.observed_generation == after.status.observed_generation;
    if same_spec && denied(before, ACCEPTED).is_some() {
        return;
    }
    tracing::warn!(manager = %after.name, reason = %now.reason, "{}", now.message);
    let of = (reference::<ClusterManagers>(after), after.generation);
    shared.events.publish_of_spec(of, true, &now.reason, ACTION, &now.message);
}

/// The condition of this type, if it is `False`.
fn denied<'a>(manager: &'a ClusterManager, type_: &str) -> Option<&'a Condition> {
    condition::find(&manager.status.conditions, type_).filter(|one| one.status == "False")
}

fn enforces(manager: &ClusterManager) -> bool {
    manager.spec.as_ref().is_ok_and(|spec| spec.enforces() && !spec.suspend)
}

/// Counts what the conditions of cluster managers say, for metrics. What one that only observes would wait for, nobody waits for.
pub(super) fn count_conditions(shared: &ControllerContext) {
    let managers = shared.cluster_managers.list("");
    let said = managers.iter().filter(|manager| !manager.terminating).flat_map(|manager| {
        let acts = enforces(manager);
        let counts =
            move |one: &&Condition| acts || ![APPROVED, BUDGET_SUFFICIENT].contains(&one.type_.as_str());
        let conditions = manager.status.conditions.iter().filter(counts);
        conditions.filter_map(|one| Some((one.type_.as_str(), Reason::parse(&one.reason)?)))
    });
    shared.lifecycle_metrics.cluster_managers(said);
}

/// Logs that a status was not written.
pub(super) fn failed(error: &ManagerStatusError) {
    if error.is_race() {
        tracing::debug!(%error, "the status is decided again");
    } else {
        tracing::warn!(%error, "the status was not written");
    }
}

#[cfg(test)]
#[path = "report_tests.rs"]
mod tests;
