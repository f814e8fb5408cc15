//! What a plan says about itself: phase, next step, the `Ready` condition.

use coppice_api::Reason;
use coppice_api::manager::{Action, NamespaceManagerStatus, Next, Phase};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};

use super::{Draft, Effect, Plan};

/// The condition that every manager has.
pub(super) const READY: &str = "Ready";

impl Draft<'_> {
    /// A plan that does nothing now, and says why.
    pub(super) fn waits(self, phase: Phase, reason: Reason, message: String) -> Plan {
        self.finish(phase, Next { reason: reason.to_string(), message, ..Next::default() }, None)
    }

    /// A plan around a step of a policy: one that is taken (`effect`), or that waits for the reason given.
    pub(super) fn step(
        self,
        step: (Action, &str, Option<Timestamp>),
        why: (Reason, String),
        effect: Option<Effect>,
    ) -> Plan {
        let (action, policy, due) = step;
        let next = Next {
            action: Some(action.to_string()),
            policy: (!policy.is_empty()).then(|| policy.to_owned()),
            due,
            reason: why.0.to_string(),
            message: why.1,
        };
        self.finish(Phase::Pending, next, effect)
    }

    pub(super) fn finish(mut self, phase: Phase, next: Next, effect: Option<Effect>) -> Plan {
        self.status.phase = Some(phase);
        self.status.next = Some(next);
        let ready = self.ready();
        set_condition(&mut self.status, ready, self.observed.manager.generation, self.now);
        Plan { status: self.status, effect, look_at: self.look_at, notes: self.notes }
    }

    /// Whether the manager is understood, possible, and nothing it does is failing.
    fn ready(&self) -> (&'static str, String, String) {
        let status = &self.status;
        if let (Some(Phase::Refused), Some(next)) = (status.phase, &status.next) {
            return ("False", next.reason.clone(), next.message.clone());
        }
        if let Some(error) = status.intent.as_ref().and_then(|i| i.last_error.as_ref()) {
            return ("False", Reason::Retrying.to_string(), error.clone());
        }
        if let Some((reason, message)) = &self.facts_unknown {
            return ("Unknown", reason.to_string(), message.clone());
        }
        let given_up = |f: &&coppice_api::manager::Firing| f.result == Reason::WebhookGivenUp.as_str();
        if let (Some(Phase::Fired), Some(firing)) =
            (status.phase, status.last_firing.as_ref().filter(given_up))
        {
            return ("False", firing.result.clone(), firing.message.clone().unwrap_or_default());
        }
        let next = status.next.as_ref();
        let reason = next.map_or_else(|| Reason::Watching.to_string(), |n| n.reason.clone());
        ("True", reason, next.map(|n| n.message.clone()).unwrap_or_default())
    }
}

fn set_condition(
    status: &mut NamespaceManagerStatus,
    ready: (&'static str, String, String),
    generation: i64,
    now: Timestamp,
) {
    let (value, reason, message) = ready;
    let before = status.conditions.iter().find(|c| c.type_ == READY);
    // Since when the status, not the reason, is what it is: as the API conventions define it.
    let since = before.filter(|c| c.status == value).map_or_else(
        || Time(Timestamp::from_second(now.as_second()).unwrap_or(now)),
        |c| c.last_transition_time.clone(),
    );
    let condition = Condition {
        type_: READY.to_owned(),
        status: value.to_owned(),
        reason,
        message,
        observed_generation: Some(generation),
        last_transition_time: since,
    };
    status.conditions.retain(|c| c.type_ != READY);
    status.conditions.push(condition);
}
