//! A step that has been decided: carry on with it, wait, or give it up.

use coppice_api::Reason;
use coppice_api::manager::{
    Action, Intent, NamespaceManagerSpec, NamespaceManagerStatus, Notice, Phase, Policy, Verdict,
};

use super::decide::dormant;
use super::{Delivery, Draft, Effect, Observed, Plan};
use crate::condition::Evaluation;
use crate::digest::Comparison;
use crate::facts::World;
use crate::governor;
use crate::mutants::{Mutant, active};
use crate::record;
use crate::time::ClockDoubt;

/// What is said of a step that is being taken, also with the decision to take it: so one write says both.
pub(super) fn under_way(action: Action, why: &str, attempts: u32) -> String {
    match action {
        Action::Webhook => format!("attempt {} at the webhook", attempts + 1),
        _ => format!("{why}: {action} is being carried out"),
    }
}

/// The same for waking.
pub(super) fn giving_back(status: &NamespaceManagerStatus) -> String {
    format!("giving {} workloads their replicas back", status.scaled_down.len())
}

/// What becomes of the intent in the observed status.
pub(super) fn carry_on(
    draft: Draft<'_>,
    spec: &NamespaceManagerSpec,
    world: &World<'_>,
    intent: &Intent,
) -> Plan {
    if intent.uid != world.namespace.uid {
        let message = format!("it was about another namespace of this name (uid {})", intent.uid);
        return draft.abandon(intent, Reason::Replaced, &message);
    }
    if intent.action == Action::Wake {
        return wake(draft, spec, world, intent);
    }
    if let (Action::Webhook, Some(outcome)) = (intent.action, draft.delivered()) {
        // What the receiver has taken is done, whatever was changed meanwhile.
        return draft.outcome(intent, &outcome);
    }
    match draft.compare(&intent.digest) {
        Comparison::Same => {}
        Comparison::Changed => {
            return draft.abandon(intent, Reason::PoliciesChanged, "the policies have changed since");
        }
        Comparison::NotUnderstood => return not_understood(draft, spec, world, intent),
    }
    let Some((index, policy)) = spec.policies.iter().enumerate().find(|(_, p)| p.name == intent.policy)
    else {
        return draft.abandon(intent, Reason::PoliciesChanged, "its policy is gone");
    };
    if world.namespace.terminating && intent.action.is_destructive() {
        return terminating(draft, intent);
    }
    let mut draft = draft;
    if let Some(refusal) = draft.refusal(spec, world) {
        if intent.action.is_destructive() {
            return draft.abandon(intent, refusal.reason, &refusal.message);
        }
        return draft.refused(&refusal);
    }
    if let Some((phase, reason, message, ends)) = draft.frozen(spec) {
        if intent.action.is_destructive() {
            // Nothing of it is kept for later: then it is decided afresh, with notice where notice is due.
            return draft.abandon(intent, reason, &message);
        }
        draft.look_no_later_than(ends);
        return draft.waits(phase, reason, format!("{message}; {} was decided and waits", intent.action));
    }
    let evaluations = draft.evaluate(spec, world);
    match intent.action {
        Action::Webhook => webhook(draft, policy, intent),
        _ => destroy(draft, policy, &evaluations[index], intent),
    }
}

/// Another version of Coppice has decided, in a way that this one cannot check: it is not carried out, and not decided
/// again either, since some of it may have been done. What destroys can be given up by `suspend` or a hold, as always.
fn not_understood(
    mut draft: Draft<'_>,
    spec: &NamespaceManagerSpec,
    world: &World<'_>,
    intent: &Intent,
) -> Plan {
    if intent.action.is_destructive() {
        if world.namespace.terminating {
            return terminating(draft, intent);
        }
        if let Some((_, reason, message, _)) = draft.frozen(spec) {
            return draft.abandon(intent, reason, &message);
        }
    }
    draft.look_at = None;
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
    draft.step((intent.action, &intent.policy, None), (Reason::DigestNotUnderstood, message), None)
}

/// The namespace is on its way: a deletion has done what it was to do; scaling is pointless.
fn terminating(mut draft: Draft<'_>, intent: &Intent) -> Plan {
    if intent.action == Action::Delete {
        let message = "the namespace is being deleted, by this decision or by somebody else".to_owned();
        record::complete(&mut draft.status, intent, Reason::NamespaceDeleted, message.clone(), draft.now);
        let note = format!("policy {:?}: {message} ({})", intent.policy, record::why(intent));
        draft.note(false, Reason::NamespaceDeleted, note);
        return draft.waits(Phase::Terminating, Reason::NamespaceTerminating, message);
    }
    draft.abandon(intent, Reason::NamespaceTerminating, "the namespace is being deleted")
}

fn wake(mut draft: Draft<'_>, spec: &NamespaceManagerSpec, world: &World<'_>, intent: &Intent) -> Plan {
    if world.namespace.terminating {
        return draft.abandon(intent, Reason::NamespaceTerminating, "the namespace is being deleted");
    }
    if spec.wake != Some(draft.status.firings) {
        return draft.abandon(intent, Reason::NoLongerTrue, "spec.wake no longer names the last firing");
    }
    if let Some(plan) = draft.not_yet(intent) {
        return plan;
    }
    draft.look_at = None;
    let message = giving_back(&draft.status);
    draft.step((Action::Wake, "", None), (Reason::InProgress, message), Some(Effect::Wake(intent.clone())))
}

/// A webhook was decided once and for all: receivers may have seen it, so it is delivered even if the pods that it
/// tells of have been cleaned away since.
fn webhook(mut draft: Draft<'_>, policy: &Policy, intent: &Intent) -> Plan {
    let say = |message: String| (Reason::InProgress, message);
    let step = (Action::Webhook, policy.name.as_str(), None);
    match &draft.observed.delivery {
        Delivery::InFlight => {
            let message = under_way(Action::Webhook, "", intent.attempts);
            draft.step(step, say(message), None)
        }
        Delivery::Failed { error, permanent, retry_after } => {
            let outcome = record::Outcome::Failed {
                error: error.clone(),
                permanent: *permanent,
                at_least: retry_after.unwrap_or_default(),
            };
            draft.outcome(intent, &outcome)
        }
        Delivery::Delivered(_) | Delivery::None => {
            if let Some(why) = draft.halted() {
                return draft.step(step, why, None);
            }
            if let Some(plan) = draft.not_yet(intent) {
                return plan;
            }
            let message = under_way(Action::Webhook, "", intent.attempts);
            let effect = Effect::Webhook(intent.clone(), policy.clone());
            draft.step(step, say(message), Some(effect))
        }
    }
}

/// A destructive step is decided again before every attempt.
fn destroy(mut draft: Draft<'_>, policy: &Policy, evaluation: &Evaluation, intent: &Intent) -> Plan {
    let step = (intent.action, policy.name.as_str(), None);
    match evaluation.verdict {
        // A notice that has run may not have by the slower of two clocks.
        Verdict::True if draft.time.doubt().is_some() => {}
        Verdict::True if draft.notice_given(policy, intent) => {}
        Verdict::True => {
            return draft.abandon(intent, Reason::NoLongerTrue, "notice has to be given afresh");
        }
        Verdict::False => return draft.abandon(intent, Reason::NoLongerTrue, &evaluation.message),
        Verdict::Unknown => {
            return draft.step(step, (evaluation.reason, evaluation.message.clone()), None);
        }
    }
    if let Some((reason, message, retry_at)) = draft.stopped() {
        draft.look_no_later_than(retry_at);
        return draft.step((step.0, step.1, retry_at), (reason, message), None);
    }
    if let Some(plan) = draft.not_yet(intent) {
        return plan;
    }
    let message = under_way(intent.action, &evaluation.message, intent.attempts);
    let effect = match &policy.then.scale_down {
        Some(scale_down) => Effect::ScaleDown(intent.clone(), scale_down.clone()),
        None => Effect::Delete(intent.clone()),
    };
    draft.step(step, (Reason::InProgress, message), Some(effect))
}

impl Draft<'_> {
    /// Why neither the time nor what decisions rest on can be believed at present, if so.
    pub(super) fn blind(&self) -> Option<(Reason, String)> {
        let doubt = self.time.doubt().map(ClockDoubt::tell);
        doubt.or_else(|| self.observed.stale.clone())
    }

    /// What stops every destructive step at present.
    pub(super) fn stopped(&self) -> Option<(Reason, String, Option<jiff::Timestamp>)> {
        if let Some((reason, message)) = self.blind() {
            return Some((reason, message, None));
        }
        if let Some((reason, message)) = self.settings_missing() {
            return Some((reason, message, None));
        }
        let Observed { law, ledger, managed, .. } = self.observed;
        let denied = governor::allow(&law.config.governor, ledger, *managed, self.now).err()?;
        Some((denied.reason, denied.message, denied.retry_at))
    }

    /// Why nothing at all may be done, not even a webhook be sent: by a clock that is wrong it would be early, and signed with a
    /// time that receivers do not take.
    pub(super) fn halted(&self) -> Option<(Reason, String)> {
        self.settings_missing().or_else(|| self.time.doubt().map(ClockDoubt::tell))
    }

    /// Whether there are no settings: then nothing is allowed.
    fn settings_missing(&self) -> Option<(Reason, String)> {
        self.observed.law.missing.then(|| {
            let message = "CoppiceConfig/coppice does not exist, so nothing is allowed: an administrator has to create it \
                           again, with what is to be protected (an empty spec means the defaults)";
            (Reason::SettingsMissing, message.to_owned())
        })
    }

    /// A plan that waits, if the next attempt's time has not come.
    fn not_yet(&mut self, intent: &Intent) -> Option<Plan> {
        let at = intent.next_attempt.filter(|at| self.now < *at)?;
        self.look_no_later_than(Some(at));
        let error = intent.last_error.as_deref().unwrap_or("it failed");
        let message = format!("attempt {} failed, next at {at:.0}: {error}", intent.attempts);
        let draft = std::mem::replace(self, Draft::new(self.observed, self.time));
        Some(draft.step((intent.action, &intent.policy, Some(at)), (Reason::Retrying, message), None))
    }

    /// Records the outcome of an attempt that this process made in the background, with what the next look would say: one
    /// write for both.
    fn outcome(mut self, intent: &Intent, outcome: &record::Outcome) -> Plan {
        self.notes.extend(record::apply(&mut self.status, intent, outcome, self.now));
        if let Some(intent) = self.status.intent.clone()
            && let Some(plan) = self.not_yet(&intent)
        {
            return plan;
        }
        self.look_at = Some(self.now);
        let message = self.status.last_firing.as_ref().map(|firing| dormant(firing, self.status.firings));
        self.waits(Phase::Fired, Reason::Dormant, message.unwrap_or_default())
    }

    /// The outcome of a webhook that was delivered, by this process.
    fn delivered(&self) -> Option<record::Outcome> {
        let Delivery::Delivered(answer) = &self.observed.delivery else { return None };
        Some(record::Outcome::WebhookDelivered { answer: answer.clone() })
    }

    /// Whether the notice that a deletion needs was given and has run.
    fn notice_given(&self, policy: &Policy, intent: &Intent) -> bool {
        let needed = policy.then.delete.as_ref().is_some_and(|d| !d.notice.is_zero());
        let notice = self.status.notice.as_ref();
        let run = |n: &Notice| n.policy == policy.name && n.uid == intent.uid && n.not_before <= self.now;
        !needed || notice.is_some_and(run) || active(Mutant::NoticeSkipped)
    }

    /// Gives up an intent, and the notice that led to it; the next look decides afresh.
    fn abandon(mut self, intent: &Intent, reason: Reason, why: &str) -> Plan {
        self.status.intent = None;
        self.status.notice = None;
        self.look_at = Some(self.now);
        let message =
            format!("{} (policy {:?}, {}) is given up: {why}", intent.action, intent.policy, intent.id);
        self.note(true, Reason::Abandoned, message.clone());
        let phase = if reason == Reason::NamespaceTerminating { Phase::Terminating } else { Phase::Active };
        self.waits(phase, reason, message)
    }
}
