//! A namespace that no cluster manager selects, or none any more: what was begun for one ends.

use coppice_api::Reason;
use coppice_api::condition::TTL_UNDERSTOOD;
use coppice_api::steps::Action;
use coppice_mutants::{Mutant, active};

use super::{Builder, NamespacePlan, NamespaceStep};
use crate::steps;

const WHY: &str = "no cluster manager selects the namespace";

impl Builder<'_> {
    pub(super) fn not_governed(mut self) -> NamespacePlan {
        if active(Mutant::UnselectedDeleted)
            && let Some(plan) = self.deletion_goes_on()
        {
            return plan;
        }
        self.withdraw_notice(WHY);
        let intent = self.status.steps.intent.clone();
        let wake = intent.as_ref().filter(|intent| intent.action == Action::Wake);
        if let Some(intent) = intent.as_ref().filter(|_| wake.is_none()) {
            self.count_given_up(intent);
            steps::abandon(&mut self.status.steps, intent, WHY, &mut self.events);
        }
        self.clear_health();
        self.clear_superseded();
        self.status.policies.clear();
        self.status.fired.clear();
        self.remember_observed();
        if !active(Mutant::GovernedForEver) {
            (self.status.manager, self.status.owner) = (None, None);
        }
        self.status.phase = None;
        self.status.phase_since = None;
        self.status.ttl = None;
        self.expires(None, (Reason::NotGoverned, WHY.to_owned()), None);
        self.status.conditions.retain(|known| known.type_ != TTL_UNDERSTOOD);
        self.give_up_messages(WHY);
        self.no_limits();
        match wake {
            Some(wake) => self.wake_waits(wake),
            None => self.waiting(Reason::NotGoverned, WHY.to_owned()),
        }
    }

    /// The bug: a deletion that is decided goes on, at the time of its next attempt.
    fn deletion_goes_on(&self) -> Option<NamespacePlan> {
        let intent = self.status.steps.intent.as_ref().filter(|intent| intent.action == Action::Delete)?;
        let step = match steps::wait_for_retry(intent, self.now) {
            Some(_) => NamespaceStep::Nothing,
            None => NamespaceStep::Delete(Box::new(intent.clone())),
        };
        Some(NamespacePlan { step, next_check: self.next_check, ..NamespacePlan::NOTHING })
    }
}
