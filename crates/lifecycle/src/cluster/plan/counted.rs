//! What of the counts of all namespaces is in the way of a step.

use coppice_api::Reason;

use super::decide::CENSUS_INTERVAL;
use super::text::condition_text;
use super::{Builder, ClusterObserved, Governed, Judged, has_fired};
use crate::cluster::ValidClusterPolicy;
use crate::cluster::approval::{ApprovalState, newly_due};
use crate::condition::later;
use crate::governor::{Denied, hourly_limit};

impl Builder<'_> {
    /// What of the counts of all namespaces is in the way of a deletion. Without figures, which would be written to every
    /// record when they change.
    pub(super) fn counted(&self, governed: &Governed<'_>, judged: &Judged<'_>) -> Option<Denied> {
        let Governed { manager, namespace, since, .. } = governed;
        let policy = judged.policy;
        if !policy.action.is_destructive() {
            return None;
        }
        let Some(census) = self.observed.census else { return Some(self.not_counted(governed, policy)) };
        let left_alone = match &census.recreated {
            _ if !policy.action.deletes() => None,
            Some(recreated) => recreated.left_alone(namespace, self.now).map(|(until, message)| Denied {
                reason: Reason::RecreatedTooOften,
                message,
                retry_at: Some(until),
            }),
            None => self.still(Reason::RecreatedTooOften, policy),
        };
        if left_alone.is_some() {
            return left_alone;
        }
        let fired = &self.status.fired;
        let acts = |policy: &&ValidClusterPolicy| policy.enforces && policy.action.is_destructive();
        let acting = manager.spec.policies().iter().filter(acts).filter(|policy| !has_fired(policy, fired));
        let cause_since = governed.finding.cause_since(acting);
        if !cause_since.is_some_and(|at| newly_due(manager.spec, namespace, *since, at)) {
            return None;
        }
        let ClusterObserved { settings, managed, .. } = self.observed;
        let hourly = hourly_limit(&settings.config.governor, *managed);
        let counts = census.counts(manager.name, namespace);
        match ApprovalState::of(manager.spec, counts, hourly, self.now) {
            ApprovalState::NotNeeded | ApprovalState::Given => None,
            ApprovalState::NotCounted => Some(self.not_counted(governed, policy)),
            ApprovalState::Missing(_) => {
                let message = format!(
                    "{}; more namespaces than the hourly budget were due before this spec of ClusterNamespaceManager {} had \
                     governed them for settle: its condition Approved says how to approve that",
                    condition_text(governed, judged),
                    manager.name
                );
                Some(Denied::until_changed((Reason::ApprovalNeeded, message)))
            }
        }
    }

    /// What the record says of a policy, if it is this reason, and its time is not over.
    fn still(&self, reason: Reason, policy: &ValidClusterPolicy) -> Option<Denied> {
        let next = self.record.status.next.as_ref();
        let next =
            next.filter(|next| next.reason == reason.as_str() && next.policy.as_ref() == Some(&policy.name))?;
        let retry_at = next.due.unwrap_or_else(|| later(self.now, CENSUS_INTERVAL));
        (self.now < retry_at).then(|| Denied {
            reason,
            message: next.message.clone(),
            retry_at: Some(retry_at),
        })
    }

    /// Counts are missing for seconds after a start. What they were in the way of before is not known to be free.
    fn not_counted(&self, governed: &Governed<'_>, policy: &ValidClusterPolicy) -> Denied {
        let before = self.still(Reason::RecreatedTooOften, policy);
        if let Some(denied) = before.or_else(|| self.still(Reason::ApprovalNeeded, policy)) {
            return denied;
        }
        let retry_at = Some(later(self.now, CENSUS_INTERVAL));
        let message = format!(
            "the namespaces of ClusterNamespaceManager {} are not counted yet, and so not whether this needs approval",
            governed.manager.name
        );
        Denied { reason: Reason::NotCounted, message, retry_at }
    }
}
