//! Which policies have fired.

use coppice_api::managed_namespace::FiredPolicy;
use coppice_mutants::{Mutant, active};

use super::{Builder, Governed};
use crate::cluster::{ClusterCondition, ValidClusterPolicy};

/// Whether it is this very policy that has fired: one that was changed is another.
pub(super) fn is_of(fired: &FiredPolicy, policy: &ValidClusterPolicy) -> bool {
    fired.policy == policy.name && fired.digest == policy.digest
}

/// Whether a policy has fired, and its condition has been true ever since.
pub(in crate::cluster) fn has_fired(policy: &ValidClusterPolicy, fired: &[FiredPolicy]) -> bool {
    !policy.action.deletes() && fired.iter().any(|one| is_of(one, policy))
}

impl Builder<'_> {
    /// A policy may fire again once its condition has been false, or when its user asks for that.
    pub(super) fn clear_fired(&mut self, governed: &Governed<'_>) {
        let (now, finding) = (self.now, &governed.finding);
        let woken = active(Mutant::FiredAgain) && self.status.steps.scaled_down.is_empty();
        let again = governed.spec.rearm == Some(self.status.steps.firings) || woken;
        let (policies, heard) = (governed.manager.spec.policies(), self.observed.pods_heard);
        // What is older than the firing does not end its condition.
        let ended = |fired: &FiredPolicy, policy: &ValidClusterPolicy| {
            let by_pods = matches!(policy.condition, ClusterCondition::PodsSucceed(_));
            // With another spec all namespaces are compared again, as soon as their records say that it governs them.
            let compared = !policy.condition.is_of_successors() || governed.settled_at <= now;
            finding.has_ended(policy, now) && (!by_pods || fired.at < heard) && compared
        };
        self.status.fired.retain(|fired| {
            let policy = policies.iter().find(|policy| is_of(fired, policy));
            !again && policy.is_some_and(|policy| !ended(fired, policy))
        });
    }
}
