//! A step that has been decided: resume it, wait, or give it up.

use coppice_api::Reason;
use coppice_api::manager::{Action, Intent, NamespaceManagerStatus, Phase, PolicyStatus, Verdict};

use super::decide::dormant;
use super::{Delivery, Plan, PlanBuilder, Step, WebhookMessage};
use crate::body::{ManagerRef, body};
use crate::condition::Evaluation;
use crate::digest::DigestComparison;
use crate::facts::NamespaceSnapshot;
use crate::governor::Denied;
use crate::record;
use crate::steps::{self, NoticeDelivery, Resumed};
use crate::valid_spec::{PolicyAction, ValidPolicy, ValidSpec, ValidWebhook};

/// The message while a step is carried out. The decision uses it, too, so that one write records both.
pub(super) fn progress_message(action: Action, why: &str, attempts: u32) -> String {
    match action {
        Action::Webhook => format!("attempt {} at the webhook", attempts + 1),
        _ => format!("{why}: {action} is being carried out"),
    }
}

/// The same for waking.
pub(super) fn wake_message(status: &NamespaceManagerStatus) -> String {
    record::giving_back(status.steps.scaled_down.len())
}

/// What becomes of the intent in the observed status.
pub(super) fn resume(
    builder: PlanBuilder<'_>,
    spec: &ValidSpec,
    snapshot: &NamespaceSnapshot<'_>,
    intent: &Intent,
) -> Plan {
    if intent.uid != snapshot.namespace.uid {
        let message = format!("it was about another namespace of this name (uid {})", intent.uid);
        return builder.abandon(intent, Reason::Replaced, &message);
    }
    if intent.action == Action::Wake {
        return wake(builder, spec, snapshot, intent);
    }
    if let (Action::Webhook, Some(outcome)) = (intent.action, builder.delivered()) {
        // A webhook that the receiver has accepted is done, whatever has changed meanwhile.
        return builder.outcome(intent, &outcome);
    }
    match builder.compare(&intent.digest) {
        DigestComparison::Same => {}
        DigestComparison::Changed => {
            return builder.abandon(intent, Reason::PoliciesChanged, "the policies have changed since");
        }
        DigestComparison::NotUnderstood => return not_understood(builder, spec, snapshot, intent),
    }
    let Some((index, policy)) = spec.policies().iter().enumerate().find(|(_, p)| p.name == intent.policy)
    else {
        return builder.abandon(intent, Reason::PoliciesChanged, "its policy is gone");
    };
    if snapshot.namespace.terminating && intent.action.is_destructive() {
        return terminating(builder, intent);
    }
    let mut builder = builder;
    if let Some(refusal) = builder.refusal(spec, snapshot) {
        if intent.action.is_destructive() {
            return builder.abandon(intent, refusal.reason, &refusal.message);
        }
        return builder.refused(&refusal);
    }
    if let Some((phase, Denied { reason, message, retry_at })) = builder.inhibition(spec) {
        if intent.action.is_destructive() {
            // The intent is dropped: the step is decided again later, with a new notice where one is due.
            return builder.abandon(intent, reason, &message);
        }
        builder.check_no_later_than(retry_at);
        return builder.finish_waiting(
            phase,
            reason,
            format!("{message}; {} was decided and waits", intent.action),
        );
    }
    let before = builder.status.policies.clone();
    let evaluations = builder.evaluate(spec, snapshot);
    if !intent.action.is_destructive() {
        builder.keep_verdicts(&before);
    }
    let evaluation = &evaluations[index];
    match &policy.action {
        PolicyAction::Delete { .. } => {
            resume_destructive(builder, policy, evaluation, Step::Delete(intent.clone()))
        }
        PolicyAction::ScaleDown(what) => {
            let step = Step::ScaleDown(intent.clone(), what.clone());
            resume_destructive(builder, policy, evaluation, step)
        }
        PolicyAction::Webhook(what) => webhook(builder, policy, what, intent),
    }
}

impl PlanBuilder<'_> {
    /// Keeps the verdicts of which nothing is known at present as they were. The intent of a webhook is carried out
    /// nevertheless, and a manager that has fired is dormant: status would tell for ever that nothing is known.
    fn keep_verdicts(&mut self, before: &[PolicyStatus]) {
        for policy in self.status.policies.iter_mut().filter(|policy| policy.result == Verdict::Unknown) {
            if let Some(known) = before.iter().find(|known| known.name == policy.name) {
                policy.clone_from(known);
            }
        }
    }
}

/// Another version of Coppice has decided, in a way that this one cannot check: it is not carried out, and not decided
/// again either, since some of it may have been done. As always, `suspend` or a hold gives up a destructive intent.
fn not_understood(
    mut builder: PlanBuilder<'_>,
    spec: &ValidSpec,
    snapshot: &NamespaceSnapshot<'_>,
    intent: &Intent,
) -> Plan {
    if intent.action.is_destructive() {
        if snapshot.namespace.terminating {
            return terminating(builder, intent);
        }
        if let Some((_, inhibition)) = builder.inhibition(spec) {
            return builder.abandon(intent, inhibition.reason, &inhibition.message);
        }
    }
    builder.next_check = None;
    let remedy = if intent.action.is_destructive() {
        "run that version, or set spec.suspend to give the step up"
    } else {
        "run that version, or create the manager again"
    };
    let message = format!(
        "{} ({}) was decided by another version of Coppice, and this version does not understand the digest that says whether \
         policies have changed since; it is neither carried out nor decided again: {remedy}",
        intent.action, intent.id
    );
    builder.pending((intent.action, &intent.policy, None), (Reason::UnsupportedDigest, message), None)
}

/// The namespace is being deleted: a deletion is complete; scaling is pointless.
fn terminating(mut builder: PlanBuilder<'_>, intent: &Intent) -> Plan {
    if intent.action == Action::Delete {
        let message = record::ALREADY_GONE.to_owned();
        record::complete(
            &mut builder.status.steps,
            intent,
            Reason::NamespaceDeleted,
            message.clone(),
            builder.now,
        );
        let note = format!("policy {:?}: {message} ({})", intent.policy, record::why(intent));
        builder.note(false, Reason::NamespaceDeleted, note);
        return builder.finish_waiting(Phase::Terminating, Reason::NamespaceTerminating, message);
    }
    builder.abandon(intent, Reason::NamespaceTerminating, "the namespace is being deleted")
}

fn wake(
    mut builder: PlanBuilder<'_>,
    spec: &ValidSpec,
    snapshot: &NamespaceSnapshot<'_>,
    intent: &Intent,
) -> Plan {
    if snapshot.namespace.terminating {
        return builder.abandon(intent, Reason::NamespaceTerminating, "the namespace is being deleted");
    }
    if spec.wake != Some(builder.status.steps.firings) {
        return builder.abandon(intent, Reason::NoLongerTrue, "spec.wake no longer names the last firing");
    }
    if let Some(plan) = builder.wait_for_retry(intent) {
        return plan;
    }
    builder.next_check = None;
    let message = wake_message(&builder.status);
    builder.pending((Action::Wake, "", None), (Reason::InProgress, message), Some(Step::Wake(intent.clone())))
}

/// A webhook is decided only once: receivers may have seen it, so it is delivered even if the pods that it describes
/// have been removed since.
fn webhook(
    mut builder: PlanBuilder<'_>,
    policy: &ValidPolicy,
    webhook: &ValidWebhook,
    intent: &Intent,
) -> Plan {
    let say = |message: String| (Reason::InProgress, message);
    let pending = (Action::Webhook, policy.name.as_str(), None);
    match &builder.observed.delivery {
        Delivery::InFlight => {
            let message = progress_message(Action::Webhook, "", intent.attempts);
            builder.pending(pending, say(message), None)
        }
        Delivery::Failed { error, permanent, retry_after, by_channel: _ } => {
            let outcome = record::StepOutcome::Failed {
                error: error.clone(),
                permanent: *permanent,
                min_delay: retry_after.unwrap_or_default(),
            };
            builder.outcome(intent, &outcome)
        }
        Delivery::Delivered(_) | Delivery::None => {
            let destination = match &webhook.destination {
                Ok(destination) => destination.clone(),
                Err(error) => {
                    return builder.pending(pending, (Reason::InvalidSpec, error.to_string()), None);
                }
            };
            if let Some(denied) = builder.circumstances().block(Action::Webhook) {
                return builder.denied((Action::Webhook, &policy.name), denied);
            }
            if let Some(plan) = builder.wait_for_retry(intent) {
                return plan;
            }
            let message = progress_message(Action::Webhook, "", intent.attempts);
            let manager = &builder.observed.manager;
            let sender = ManagerRef { kind: None, namespace: Some(manager.namespace), name: manager.name };
            let body = body(sender, manager.namespace, policy, webhook, intent);
            let message_out =
                WebhookMessage { destination, limits: builder.observed.limits.hosts().cloned(), body };
            builder.pending(pending, say(message), Some(Step::Webhook(intent.clone(), message_out)))
        }
    }
}

/// A destructive step is decided again before every attempt.
fn resume_destructive(
    builder: PlanBuilder<'_>,
    policy: &ValidPolicy,
    evaluation: &Evaluation,
    step: Step,
) -> Plan {
    let intent = step.intent();
    let steps = &builder.status.steps;
    match steps::resume(
        steps,
        intent,
        evaluation,
        (policy.action.notice(), &NoticeDelivery::NotNeeded),
        builder.circumstances(),
    ) {
        Resumed::GivenUp(why) => builder.abandon(intent, Reason::NoLongerTrue, &why),
        Resumed::Waits(denied) => builder.denied((intent.action, &policy.name), denied),
        Resumed::GoesOn => {
            let message = progress_message(intent.action, &evaluation.message, intent.attempts);
            let pending = (intent.action, policy.name.as_str(), None);
            builder.pending(pending, (Reason::InProgress, message), Some(step))
        }
    }
}

impl PlanBuilder<'_> {
    /// A plan that waits, if the next attempt's time has not come.
    fn wait_for_retry(&mut self, intent: &Intent) -> Option<Plan> {
        let denied = steps::wait_for_retry(intent, self.now)?;
        let builder = std::mem::replace(self, PlanBuilder::new(self.observed, self.time));
        Some(builder.denied((intent.action, &intent.policy), denied))
    }

    /// Records the outcome of an attempt that this process made in the background, with the message of the next
    /// evaluation: one write for both.
    fn outcome(mut self, intent: &Intent, outcome: &record::StepOutcome) -> Plan {
        self.events.extend(record::apply_to_manager(&mut self.status, intent, outcome, self.now));
        if let Some(intent) = self.status.steps.intent.clone()
            && let Some(plan) = self.wait_for_retry(&intent)
        {
            return plan;
        }
        self.next_check = Some(self.now);
        let message =
            self.status.steps.last_firing.as_ref().map(|firing| dormant(firing, self.status.steps.firings));
        self.finish_waiting(Phase::Fired, Reason::Dormant, message.unwrap_or_default())
    }

    /// The outcome of a webhook that was delivered, by this process.
    fn delivered(&self) -> Option<record::StepOutcome> {
        let Delivery::Delivered(response) = &self.observed.delivery else { return None };
        Some(record::StepOutcome::WebhookDelivered { response: response.clone() })
    }

    /// Gives up an intent, and the notice that led to it; the next evaluation decides again.
    fn abandon(mut self, intent: &Intent, reason: Reason, why: &str) -> Plan {
        let message = steps::abandon(&mut self.status.steps, intent, why, &mut self.events);
        self.next_check = Some(self.now);
        let phase = if reason == Reason::NamespaceTerminating { Phase::Terminating } else { Phase::Active };
        self.finish_waiting(phase, reason, message)
    }
}
