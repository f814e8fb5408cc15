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
        self.last_with(&[Reason::RevertedTooOften])
    }

    /// The last firing, if it has one of these results, and its policy does not fire again for now.
    fn last_with(&self, results: &[Reason]) -> Option<&Firing> {
        let last = self.status.steps.last_firing.as_ref()?;
        let waits = self.status.fired.iter().any(|fired| fired.policy == last.policy);
        Some(last).filter(|last| waits && results.iter().any(|result| last.result == result.as_str()))
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
        if let Some(firing) = self.last_with(&[Reason::RevertedTooOften, Reason::WebhookGivenUp]) {
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
