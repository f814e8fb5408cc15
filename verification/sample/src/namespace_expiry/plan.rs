//! What becomes of a namespace that has a `NamespaceExpiry`. Pure.

mod lint;

use std::collections::BTreeMap;

use coppice_api::Reason;
use coppice_api::steps::{Action, Intent};
use coppice_lifecycle::condition::since_creation;
use coppice_lifecycle::facts::NamespaceFacts;
use coppice_lifecycle::governor::Denied;
use coppice_lifecycle::plan::PlannedEvent;
use coppice_lifecycle::record::{self, StepOutcome};
use coppice_lifecycle::steps::{self, Announcement, Decided};
use coppice_mutants::{Mutant, active};
use jiff::{SignedDuration, Timestamp};

use super::observe::Observation;
use crate::kind::{NamespaceExpirySpec, NamespaceExpiryStatus};
use crate::object::Expiry;

/// The name of the only policy that there is, in notices, intents and records.
pub(super) const POLICY: &str = "expiry";

/// What to do: first make `status` durable, then delete by `step`, and look again at `next_check` at the latest.
#[derive(Debug, PartialEq)]
pub(super) struct ExpiryPlan {
    pub(super) status: NamespaceExpiryStatus,
    /// Always an intent that already was in the observed status.
    pub(super) step: Option<Intent>,
    /// When time alone can change the plan.
    pub(super) next_check: Option<Timestamp>,
    /// To publish once the status is durable.
    pub(super) events: Vec<PlannedEvent>,
}

/// Why it waits, or why nothing will be done.
type Why = (Reason, String);

/// Decides. Depends on nothing but its argument.
pub(super) fn plan(observation: &Observation) -> ExpiryPlan {
    let expiry = &observation.expiry;
    let status = (*expiry.status).clone();
    let mut plan = ExpiryPlan { status, step: None, next_check: None, events: Vec::new() };
    if !expiry.terminating {
        let (reason, message) = plan.decide(observation);
        plan.status.observed_generation = Some(expiry.generation);
        plan.status.reason = reason.to_string();
        plan.status.message = message;
    }
    debug_assert_eq!(lint::lint(observation, &plan), Vec::new(), "{plan:?}");
    plan
}

impl ExpiryPlan {
    fn decide(&mut self, observation: &Observation) -> Why {
        if let Some(firing) = &self.status.steps.last_firing {
            let message =
                format!("fired at {:.0} ({}); what has fired does not fire again", firing.at, firing.result);
            return (Reason::Dormant, message);
        }
        let spec = match observation.expiry.decoded() {
            Ok(spec) => spec,
            Err(why) => return (Reason::InvalidSpec, why.to_string()),
        };
        // One that is not known is not one that is gone.
        let namespace = match (observation.namespace.as_deref(), &observation.stale) {
            (None, Some(why)) => return why.clone(),
            (namespace, _) => namespace,
        };
        if let Some(intent) = self.status.steps.intent.clone() {
            return self.resume(observation, spec, namespace, &intent);
        }
        let Some(namespace) = namespace else {
            return self.no_longer((Reason::Watching, "there is no namespace of this name".to_owned()));
        };
        if namespace.terminating {
            self.status.steps.notice = None;
            return (Reason::NamespaceTerminating, "the namespace is being deleted".to_owned());
        }
        if let Some(refusal) = observation.settings.forbids(Action::Delete, namespace) {
            if self.status.reason != refusal.reason.as_str() {
                let message = refusal.message.clone();
                self.events.push(PlannedEvent { warning: true, reason: refusal.reason, message });
            }
            return self.no_longer((refusal.reason, refusal.message));
        }
        self.wait_or_fire(observation, spec, namespace)
    }

    /// Nothing is decided: announce the deletion ahead of its time, wait for what stops it, or write down that it fires.
    fn wait_or_fire(
        &mut self,
        observation: &Observation,
        spec: &NamespaceExpirySpec,
        namespace: &NamespaceFacts,
    ) -> Why {
        let (time, now, circumstances) =
            (observation.time, observation.time.now(), observation.circumstances());
        let due = since_creation(namespace, spec.after);
        let announced = due.checked_sub(SignedDuration::from_secs(spec.notice.as_secs_i64()));
        let announced = announced.unwrap_or(Timestamp::MIN);
        if now < announced && !time.may_have_passed(announced) {
            self.next_check = Some(time.when_it_may_have_passed(announced));
            return self.no_longer((Reason::TtlRunning, format!("the namespace expires at {due:.0}")));
        }
        if let Some(why) = circumstances.unreliable_facts() {
            return why;
        }
        let notice = Announcement {
            policy: POLICY,
            namespace,
            notice: spec.notice,
            due,
            reason: Reason::TtlElapsed,
            prevent: "delete the NamespaceExpiry to prevent it",
        };
        let not_before = steps::give_notice(&mut self.status.steps, notice, now, &mut self.events);
        let not_before = if active(Mutant::ExpiryNoticeIgnored) { due } else { not_before };
        if now < not_before {
            self.next_check = Some(not_before);
            return (
                Reason::NoticeRunning,
                format!("the namespace expires at {due:.0}; notice runs until {not_before:.0}"),
            );
        }
        if let Some(Denied { reason, message, retry_at }) = circumstances.block(Action::Delete) {
            self.next_check = retry_at;
            return (reason, message);
        }
        let expiry = &observation.expiry;
        let evidence = BTreeMap::from([
            ("created".to_owned(), namespace.created.to_string()),
            ("due".to_owned(), due.to_string()),
        ]);
        let decided = Decided {
            object_uid: &expiry.uid,
            action: Action::Delete,
            policy: POLICY,
            digest: &digest(expiry),
            namespace,
            reason: Reason::TtlElapsed,
            evidence: &evidence,
        };
        let intent = steps::intent(&self.status.steps, decided, now);
        let message = format!("the namespace has expired at {due:.0}; its deletion follows ({})", intent.id);
        self.events.push(PlannedEvent { warning: false, reason: Reason::PolicyFired, message });
        self.status.steps.intent = Some(intent);
        self.next_check = Some(now);
        in_progress()
    }

    /// What becomes of a decision: it is decided again before every attempt.
    fn resume(
        &mut self,
        observation: &Observation,
        spec: &NamespaceExpirySpec,
        namespace: Option<&NamespaceFacts>,
        intent: &Intent,
    ) -> Why {
        let (now, circumstances) = (observation.time.now(), observation.circumstances());
        let Some(namespace) = namespace.filter(|now| now.uid == intent.uid && !now.terminating) else {
            // By this decision or by somebody else.
            self.events.extend(record::apply(&mut self.status.steps, intent, &StepOutcome::AlreadyGone, now));
            return self.decide(observation);
        };
        if let Some(refusal) = observation.settings.forbids(Action::Delete, namespace) {
            return self.abandon(intent, refusal.reason, &refusal.message, now);
        }
        if intent.digest != digest(&observation.expiry) {
            return self.abandon(intent, Reason::PoliciesChanged, "its spec has changed since", now);
        }
        // A notice that has run by one clock may still run by the slower one.
        if let Some(why) = circumstances.unreliable_facts() {
            return why;
        }
        let noticed = steps::notice_has_run(&self.status.steps, POLICY, &namespace.uid, now);
        if now < since_creation(namespace, spec.after) || !(noticed || active(Mutant::ExpiryNoticeIgnored)) {
            return self.abandon(intent, Reason::NoLongerTrue, "its time or its notice has not run", now);
        }
        let denied = circumstances.block(Action::Delete).or_else(|| steps::wait_for_retry(intent, now));
        if let Some(Denied { reason, message, retry_at }) = denied {
            self.next_check = retry_at;
            return (reason, message);
        }
        self.step = Some(intent.clone());
        in_progress()
    }

    fn abandon(&mut self, intent: &Intent, reason: Reason, why: &str, now: Timestamp) -> Why {
        self.next_check = Some(now);
        (reason, steps::abandon(&mut self.status.steps, intent, why, &mut self.events))
    }

    /// What was announced will not happen then.
    fn no_longer(&mut self, why: Why) -> Why {
        steps::withdraw_notice(&mut self.status.steps, &why.1, &mut self.events);
        why
    }
}

/// The same while it is decided and while it is carried out, so that one write says both.
fn in_progress() -> Why {
    (Reason::InProgress, "the namespace has expired: its deletion is being carried out".to_owned())
}

/// What a decision rests on: the API server counts the changes of a spec.
fn digest(expiry: &Expiry) -> String {
    format!("generation-{}", expiry.generation)
}

#[cfg(test)]
#[path = "plan_tests.rs"]
mod tests;
