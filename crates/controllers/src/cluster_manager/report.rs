//! Reports what went wrong, and what waits for a person. What there is, is in status.

use coppice_api::condition::{self, APPROVED, BUDGET_SUFFICIENT};
use coppice_kinds::{ClusterManager, ClusterManagers};

use super::apply::ManagerStatusError;
use crate::context::ControllerContext;
use crate::reference::reference;

/// Publishes an Event when a manager that enforces begins to wait for approval, or for more budget.
pub(super) fn waits(shared: &ControllerContext, before: &ClusterManager, after: &ClusterManager) {
    if !after.spec.as_ref().is_ok_and(|spec| spec.enforces() && !spec.suspend) {
        return;
    }
    for type_ in [APPROVED, BUDGET_SUFFICIENT] {
        let waits = |manager: &ClusterManager| {
            condition::find(&manager.status.conditions, type_).is_some_and(|one| one.status == "False")
        };
        let Some(now) = condition::find(&after.status.conditions, type_).filter(|_| waits(after)) else {
            continue;
        };
        // A switch to Enforce begins to wait, although the condition said so while it observed.
        if waits(before) && before.status.policy_digest == after.status.policy_digest {
            continue;
        }
        tracing::warn!(manager = %after.name, reason = %now.reason, "{}", now.message);
        shared.events.publish(reference::<ClusterManagers>(after), true, &now.reason, "Manage", &now.message);
    }
}

/// Logs that a status was not written.
pub(super) fn failed(error: &ManagerStatusError) {
    if error.is_race() {
        tracing::debug!(%error, "the status is decided again");
    } else {
        tracing::warn!(%error, "the status was not written");
    }
}
