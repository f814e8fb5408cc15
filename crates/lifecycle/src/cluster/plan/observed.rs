//! What policies that observe would have done, and what became of the namespace: for whoever decides whether they may enforce.

use coppice_api::Reason;
use coppice_api::observed::{ObservedBefore, ObservedOutcome, WouldHaveActed};
use coppice_quantity::time::in_milliseconds;

use super::decide::Ruling;
use super::{Builder, Governed, Judged};
use crate::cluster::ValidClusterPolicy;

/// So many policies of managers that govern no more are remembered.
const BEFORE: usize = 10;

impl Builder<'_> {
    /// The manager that the record is about does not govern the namespace any more: what its policies would have done is kept for its
    /// counts.
    pub(super) fn remember_observed(&mut self) {
        let acted = std::mem::take(&mut self.status.would_have_acted);
        let Some(manager) = &self.status.manager else { return };
        let until = in_milliseconds(self.now);
        let before = acted.into_iter().map(|acted| ObservedBefore {
            manager_uid: manager.uid.clone(),
            digest: manager.digest.clone(),
            until,
            acted,
        });
        self.status.observed_before.splice(0..0, before);
        self.status.observed_before.truncate(BEFORE);
    }

    /// Writes down which policies that observe would have acted by now, and what became of the namespace since.
    pub(super) fn note_observed(&mut self, governed: &Governed<'_>) {
        let observing = governed.manager.spec.policies().iter().filter(|policy| !policy.enforces);
        for policy in observing {
            let judged = governed.judge(policy);
            let noted = self.status.would_have_acted.iter().position(|one| one.policy == policy.name);
            match noted {
                None => self.would_act(governed, &judged, policy),
                Some(index) if self.status.would_have_acted[index].outcome.is_none() => {
                    self.became(governed, &judged, index);
                }
                Some(_) => {}
            }
        }
    }

    fn would_act(&mut self, governed: &Governed<'_>, judged: &Judged<'_>, policy: &ValidClusterPolicy) {
        if !matches!(self.ruling(governed, judged), Ruling::Stopped(Reason::Observing, ..)) {
            // Suspended, protected or held: it would not.
            return;
        }
        let stands = judged.due.is_some_and(|due| due.unconfirmed.is_none());
        let Some(acts_at) = judged.acts_at.filter(|_| stands) else { return };
        if self.now < acts_at {
            return self.check_no_later_than(Some(acts_at));
        }
        self.status.would_have_acted.push(WouldHaveActed {
            policy: policy.name.clone(),
            at: in_milliseconds(self.now),
            reason: judged.reason().to_string(),
            outcome: None,
            outcome_at: None,
        });
        self.status.would_have_acted.sort_unstable_by(|a, b| a.policy.cmp(&b.policy));
    }

    /// What became of the namespace since a policy would have acted, if that is known.
    fn became(&mut self, governed: &Governed<'_>, judged: &Judged<'_>, index: usize) {
        let succeeded =
            governed.finding.verdict_on(judged.policy).is_some_and(|known| known.succeeded_since.is_some());
        let by_ttl = self.status.would_have_acted[index].reason == Reason::TtlElapsed.as_str();
        let outcome = if governed.hold_end.is_some_and(|end| self.now < end) {
            ObservedOutcome::Held
        } else if succeeded
            || self.unknown.is_some()
            || judged.due.is_some_and(|due| due.unconfirmed.is_some() || due.at <= self.now)
        {
            return;
        } else if by_ttl {
            ObservedOutcome::Extended
        } else {
            ObservedOutcome::Recovered
        };
        let one = &mut self.status.would_have_acted[index];
        (one.outcome, one.outcome_at) = (Some(outcome), Some(in_milliseconds(self.now)));
    }
}
