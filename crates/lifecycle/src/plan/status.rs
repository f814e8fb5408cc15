//! What a plan says about itself: phase, next step, conditions.

use coppice_api::Reason;
use coppice_api::condition::{self, ACCEPTED, ConditionState, FIRED, READY};
use coppice_api::manager::{Action, Firing, NamespaceManagerStatus, NextStep, Phase};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;

use super::decide;
use super::{Plan, PlanBuilder, Step};
use crate::digest::DigestComparison;
use crate::governor::Denied;

/// The conditions of a manager that watches its policies, in the order of status.
const WATCHING: [(&str, &str, Reason, &str); 3] = [
    (ACCEPTED, "True", Reason::Accepted, "spec is valid and permitted by the platform settings"),
    (
        FIRED,
        "False",
        Reason::NotFired,
        "no policy has fired since the policies were changed or the manager was re-armed",
    ),
    (READY, "True", Reason::Reconciled, "spec is in force and nothing is failing"),
];

/// What makes it unknown whether a step may be taken: neither the user nor the budget has stopped it.
pub(crate) const UNKNOWN: [Reason; 10] = [
    Reason::AnnotationsNotRead,
    Reason::ClockSkew,
    Reason::Forbidden,
    Reason::LimitsUnknown,
    Reason::NotSynced,
    Reason::SettingsMissing,
    Reason::Stale,
    Reason::TooLarge,
    Reason::Undecodable,
    Reason::UnsupportedDigest,
];

impl PlanBuilder<'_> {
    /// A plan that does nothing now, and says why.
    pub(super) fn finish_waiting(self, phase: Phase, reason: Reason, message: String) -> Plan {
        self.finish(phase, NextStep { reason: reason.to_string(), message, ..NextStep::default() }, None)
    }

    /// A plan around a step of a policy: one that is taken (`step`), or that waits for the reason given.
    pub(super) fn pending(
        self,
        pending: (Action, &str, Option<Timestamp>),
        why: (Reason, String),
        step: Option<Step>,
    ) -> Plan {
        let (action, policy, due) = pending;
        let next = NextStep {
            action: Some(action.to_string()),
            policy: (!policy.is_empty()).then(|| policy.to_owned()),
            due,
            reason: why.0.to_string(),
            message: why.1,
        };
        self.finish(Phase::Pending, next, step)
    }

    /// A plan around a step of a policy that waits.
    pub(super) fn denied(mut self, (action, policy): (Action, &str), denied: Denied) -> Plan {
        self.check_no_later_than(denied.retry_at);
        self.pending((action, policy, denied.date()), (denied.reason, denied.message), None)
    }

    pub(super) fn finish(mut self, phase: Phase, next: NextStep, step: Option<Step>) -> Plan {
        self.status.phase = Some(phase);
        self.status.next = Some(next);
        let accepted = self.accepted();
        let ready = accepted.clone().filter(|accepted| accepted.status != "True").or_else(|| self.ready());
        let states = [accepted.or_else(|| self.limited()), self.fired(), ready];
        for ((type_, status, reason, message), state) in WATCHING.into_iter().zip(states) {
            let state = state.unwrap_or_else(|| ConditionState {
                status,
                reason: reason.to_string(),
                message: message.to_owned(),
            });
            let generation = self.generation_of(type_, &state);
            condition::set(&mut self.status.conditions, type_, state, generation, self.now);
        }
        Plan { status: self.status, step, next_check: self.next_check, events: self.events }
    }

    /// The generation that a condition is about. Whether a spec that cannot be understood has fired is not known: the one before has.
    fn generation_of(&self, type_: &str, state: &ConditionState) -> i64 {
        let manager = &self.observed.manager;
        let is_kept = type_ == FIRED && state.status == "True" && manager.spec.is_err();
        let before = condition::find(&self.status.conditions, type_).filter(|_| is_kept);
        before.and_then(|before| before.observed_generation).unwrap_or(manager.generation)
    }

    /// Why spec is not accepted, or not known to be, if so. Also of a manager that is not followed at present, because
    /// its namespace is being deleted or it wakes.
    fn accepted(&self) -> Option<ConditionState> {
        let Ok(spec) = self.observed.manager.spec else {
            let next = self.status.next.as_ref()?;
            return Some(state("False", next.reason.clone(), next.message.clone()));
        };
        let Some(snapshot) = &self.observed.snapshot else { return self.facts_unknown() };
        if let Some(refusal) = self.refusal(spec, snapshot) {
            return Some(state("False", refusal.reason.to_string(), refusal.message));
        }
        let (reason, message) = self.observed.limits.why_unknown()?;
        // What was accepted stays so for the seconds in which the limits are not known: what is due waits, and says so.
        let generation = Some(self.observed.manager.generation);
        let mut known = self.observed.manager.status.conditions.iter();
        let known = known.find(|known| known.type_ == ACCEPTED && known.observed_generation == generation);
        Some(match known.filter(|known| known.status == "True") {
            Some(known) => state("True", known.reason.clone(), known.message.clone()),
            None => state("Unknown", reason.to_string(), message.clone()),
        })
    }

    /// What the limits of the cluster manager change about a spec that is accepted, if anything.
    fn limited(&self) -> Option<ConditionState> {
        let said = self.observed.limits.said(self.observed.manager.spec.ok()?)?;
        let message = format!("spec is valid and permitted by the platform settings; {said}");
        Some(state("True", Reason::Accepted.to_string(), message))
    }

    /// What fired, if the manager is not armed again since.
    fn fired(&self) -> Option<ConditionState> {
        let firing = self.status.steps.last_firing.as_ref()?;
        let Ok(spec) = self.observed.manager.spec else {
            // Whether the policies have changed is not known.
            let before =
                condition::find(&self.status.conditions, FIRED).filter(|fired| fired.status == "True")?;
            return Some(state("True", before.reason.clone(), before.message.clone()));
        };
        let message = match self.compare(&firing.digest) {
            _ if spec.rearm == Some(self.status.steps.firings) => return None,
            DigestComparison::Changed => return None,
            DigestComparison::Same => decide::dormant(firing, self.status.steps.firings),
            DigestComparison::NotUnderstood => decide::not_understood(firing, self.status.steps.firings),
        };
        Some(state("True", firing.result.clone(), message))
    }

    /// Why a spec that is accepted is not in force, or what is failing, if so.
    fn ready(&self) -> Option<ConditionState> {
        let status = &self.status;
        if let Some(error) = status.steps.intent.as_ref().and_then(|i| i.last_error.as_ref()) {
            return Some(state("False", Reason::Retrying.to_string(), error.clone()));
        }
        if let Some(state) = self.facts_unknown() {
            return Some(state);
        }
        let blocks = |next: &&NextStep| UNKNOWN.iter().any(|reason| next.reason == reason.as_str());
        if let Some(next) = status.next.as_ref().filter(blocks) {
            return Some(state("Unknown", next.reason.clone(), next.message.clone()));
        }
        let given_up = |f: &&Firing| {
            [Reason::WebhookGivenUp, Reason::RevertedTooOften]
                .iter()
                .any(|result| f.result == result.as_str())
        };
        let failed =
            status.steps.last_firing.as_ref().filter(given_up).filter(|_| status.phase == Some(Phase::Fired));
        failed.map(|f| state("False", f.result.clone(), f.message.clone().unwrap_or_default()))
    }

    fn facts_unknown(&self) -> Option<ConditionState> {
        let (reason, message) = self.facts_unknown.as_ref()?;
        Some(state("Unknown", reason.to_string(), message.clone()))
    }
}

const fn state(status: &'static str, reason: String, message: String) -> ConditionState {
    ConditionState { status, reason, message }
}

/// Whether the conditions are those of a manager that watches its policies, about this generation.
pub(super) fn conditions_say_watching(status: &NamespaceManagerStatus, generation: i64) -> bool {
    let says = |(condition, (type_, status, reason, message)): (&Condition, (&str, &str, Reason, &str))| {
        condition.type_ == type_
            && condition.status == status
            && condition.observed_generation == Some(generation)
            && condition.reason == reason.as_str()
            && condition.message == message
    };
    status.conditions.len() == WATCHING.len() && status.conditions.iter().zip(WATCHING).all(says)
}
