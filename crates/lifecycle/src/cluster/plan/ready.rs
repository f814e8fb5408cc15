//! The condition `Ready` of a record.

use coppice_api::Reason;
use coppice_api::condition::ConditionState;
use coppice_api::managed_namespace::NextStep;
use coppice_api::steps::Firing;

use super::Builder;
use crate::plan::UNKNOWN;

impl Builder<'_> {
    /// The last firing, if something reverted its scale-downs each time, and its policy does not fire again for now.
    pub(super) fn reverted(&self) -> Option<&Firing> {
        let last = self.status.steps.last_firing.as_ref()?;
        let waits = self.status.fired.iter().any(|fired| fired.policy == last.policy);
        Some(last).filter(|last| waits && last.result == Reason::RevertedTooOften.as_str())
    }

    /// The last firing, if it came to nothing, and its policy does not fire again for now.
    fn came_to_nothing(&self) -> Option<&Firing> {
        let last = self.status.steps.last_firing.as_ref()?;
        let waits = self.status.fired.iter().any(|fired| fired.policy == last.policy);
        let given_up = last.result == Reason::WebhookGivenUp.as_str();
        self.reverted().or(Some(last).filter(|_| waits && given_up))
    }

    pub(super) fn ready(&self, next: &NextStep) -> ConditionState {
        let state = |status, reason: &str, message: &str| ConditionState {
            status,
            reason: reason.to_owned(),
            message: message.to_owned(),
        };
        if let Some(error) = self.status.steps.intent.as_ref().and_then(|i| i.last_error.as_ref()) {
            return state("False", Reason::Retrying.as_str(), error);
        }
        if [Reason::InvalidSpec, Reason::RecordTerminating]
            .iter()
            .any(|reason| next.reason == reason.as_str())
        {
            return state("False", &next.reason, &next.message);
        }
        if let Some(firing) = self.came_to_nothing() {
            return state("False", &firing.result, firing.message.as_deref().unwrap_or_default());
        }
        if let Some((reason, message)) = &self.unknown {
            return state("Unknown", reason.as_str(), message);
        }
        if let Some(known) = self.pods_unknown() {
            return state("Unknown", &known.reason, &known.message);
        }
        if UNKNOWN.iter().any(|reason| next.reason == reason.as_str()) {
            return state("Unknown", &next.reason, &next.message);
        }
        state(
            "True",
            Reason::Reconciled.as_str(),
            "what is decided rests on is known, and nothing is failing",
        )
    }
}
