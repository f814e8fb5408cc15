//! No step is under way: is there one to decide?

use std::collections::BTreeMap;
use std::fmt;

use coppice_api::Reason;
use coppice_api::manager::{Action, Firing, Intent, NextStep, Phase, Verdict};
use coppice_quantity::Duration;
use jiff::{SignedDuration, Timestamp};

use super::intent::{progress_message, wake_message};
use super::{Plan, PlanBuilder};
use crate::circumstances::inhibition;
use crate::condition::Evaluation;
use crate::digest::DigestComparison;
use crate::facts::NamespaceSnapshot;
use crate::governor::Denied;
use crate::steps::{self, Announcement, Decided, DuePolicy, NoticeDelivery};
use crate::valid_spec::{PolicyAction, ValidPolicy, ValidSpec};
use coppice_mutants::{Mutant, active};

pub(super) fn decide(
    mut builder: PlanBuilder<'_>,
    spec: &ValidSpec,
    snapshot: &NamespaceSnapshot<'_>,
) -> Plan {
    if snapshot.namespace.terminating {
        builder.status.steps.notice = None;
        let message = "the namespace is being deleted".to_owned();
        return builder.finish_waiting(Phase::Terminating, Reason::NamespaceTerminating, message);
    }
    if spec.wake == Some(builder.status.steps.firings) && !builder.status.steps.scaled_down.is_empty() {
        return builder.decide_wake(snapshot);
    }
    if let Some(refusal) = builder.refusal(spec, snapshot) {
        return builder.refused(&refusal);
    }
    if builder.may_still_be_refused() {
        return builder.unchanged();
    }
    if let Some(plan) = builder.dormant(spec) {
        return plan;
    }
    let evaluations = builder.evaluate(spec, snapshot);
    if let Some((phase, Denied { reason, message, retry_at })) = builder.inhibition(spec) {
        builder.withdraw_notice(&message);
        builder.next_check = retry_at;
        return builder.finish_waiting(phase, reason, message);
    }
    let mut judged = spec.policies().iter().zip(&evaluations);
    if let Some((policy, evaluation)) = judged.find(|(_, e)| e.verdict == Verdict::True) {
        return fire(builder, policy, evaluation, snapshot);
    }
    wait_for_conditions(builder, spec, &evaluations, snapshot)
}

/// The first true policy: give notice, wait for what stops it, or write down that it fires.
fn fire(
    mut builder: PlanBuilder<'_>,
    policy: &ValidPolicy,
    evaluation: &Evaluation,
    snapshot: &NamespaceSnapshot<'_>,
) -> Plan {
    let action = policy.action.kind();
    let notice = match policy.action {
        PolicyAction::Delete { notice } => Some(notice),
        PolicyAction::ScaleDown(_) | PolicyAction::Webhook(_) => None,
    };
    let circumstances = builder.circumstances();
    let decided = Decided {
        object_uid: builder.observed.manager.uid,
        action,
        policy: &policy.name,
        digest: &builder.digest,
        namespace: snapshot.namespace,
        reason: evaluation.reason,
        evidence: &evaluation.evidence,
    };
    let (message, prevent) = (&evaluation.message, steps::HOLD_TO_PREVENT);
    let due_policy = DuePolicy {
        decided,
        message,
        notice,
        due: builder.now,
        prevent,
        delivery: &NoticeDelivery::NotNeeded,
    };
    if let Err(denied) =
        steps::fire(&mut builder.status.steps, due_policy, circumstances, &mut builder.events)
    {
        return builder.denied((action, &policy.name), denied);
    }
    builder.next_check = Some(builder.now);
    let message = progress_message(action, &evaluation.message, 0);
    builder.pending((action, &policy.name, None), (Reason::InProgress, message), None)
}

/// No policy is true: a ttl may still have to be announced ahead of its end.
fn wait_for_conditions(
    mut builder: PlanBuilder<'_>,
    spec: &ValidSpec,
    evaluations: &[Evaluation],
    snapshot: &NamespaceSnapshot<'_>,
) -> Plan {
    let mut nearest: Option<(&ValidPolicy, Duration, Timestamp)> = None;
    for (policy, evaluation) in spec.policies().iter().zip(evaluations) {
        let (Some(notice), Some(due)) = (policy.action.notice(), evaluation.due) else { continue };
        let from = earlier(due, notice);
        if builder.now < from {
            builder.check_no_later_than(Some(from));
        } else if nearest.is_none_or(|(_, _, other)| due < other) {
            nearest = Some((policy, notice, due));
        }
    }
    if let Some((policy, notice, due)) =
        nearest.filter(|_| builder.circumstances().unreliable_facts().is_none())
    {
        let given = builder.status.steps.notice.as_ref();
        if let Some(why) = builder.circumstances().unknown_limits.cloned()
            && given.is_none_or(|notice| notice.policy != policy.name)
        {
            // They may ask for more notice, so the date would be too early.
            return builder.pending((Action::Delete, &policy.name, Some(due)), why, None);
        }
        let announced = given.is_some();
        let other = builder.observed.other.as_ref().filter(|_| !announced);
        if let Some(Denied { reason, message, retry_at }) =
            other.and_then(|other| other.before(steps::earliest(due, notice, builder.now), builder.now))
        {
            builder.check_no_later_than(retry_at);
            return builder.pending((Action::Delete, &policy.name, Some(due)), (reason, message), None);
        }
        let due = builder.give_notice(policy, notice, snapshot, due);
        builder.check_no_later_than(Some(due));
        let message = format!("the ttl ends and notice runs until {due:.0}");
        return builder.pending(
            (Action::Delete, &policy.name, Some(due)),
            (Reason::NoticeRunning, message),
            None,
        );
    }
    // By the slower of two clocks, a date that has come may seem to be far off again.
    // While limits are not known, it may be them that announce it.
    let known = builder.time.uncertainty().is_none() && builder.circumstances().unknown_limits.is_none();
    if nearest.is_none() && known {
        builder.withdraw_notice("its policy is not due any more");
    }
    let next = next_step(spec, evaluations);
    builder.finish(Phase::Active, next, None)
}

/// What a manager that watches will do next: the policy with the nearest date, else the first; and what each waits for.
fn next_step(spec: &ValidSpec, evaluations: &[Evaluation]) -> NextStep {
    let judged = || spec.policies().iter().zip(evaluations);
    let chosen = nearest(judged, |e| e.due);
    NextStep {
        action: chosen.map(|(p, _)| p.action.kind().to_string()),
        policy: chosen.map(|(p, _)| p.name.clone()),
        due: chosen.and_then(|(_, e)| e.due),
        reason: chosen.map_or(Reason::Watching, |(_, e)| e.reason).to_string(),
        message: WatchingMessage { spec, verdicts: evaluations, text: |e| &e.message }.to_string(),
    }
}

/// What a manager that watches waits for: the message of its only policy, or of all of them with their actions.
pub(super) struct WatchingMessage<'a, T> {
    pub(super) spec: &'a ValidSpec,
    /// One for each policy.
    pub(super) verdicts: &'a [T],
    /// The message of a verdict.
    pub(super) text: fn(&T) -> &str,
}

impl<T> fmt::Display for WatchingMessage<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let [only] = self.verdicts {
            return f.write_str((self.text)(only));
        }
        for (n, (policy, verdict)) in self.spec.policies().iter().zip(self.verdicts).enumerate() {
            let separator = if n == 0 { "" } else { "; " };
            write!(f, "{separator}{}: {}", policy.action.kind(), (self.text)(verdict))?;
        }
        Ok(())
    }
}

/// The message of a manager that has fired.
pub(super) fn dormant(firing: &Firing, firings: i64) -> String {
    format!(
        "policy {:?} fired at {:.0} ({}); dormant until policies change or spec.rearm is {firings}",
        firing.policy, firing.at, firing.result
    )
}

/// The message of a manager that has fired under another version of Coppice.
pub(super) fn not_understood(firing: &Firing, firings: i64) -> String {
    format!(
        "policy {:?} fired at {:.0} ({}) under another version of Coppice, and this version does not understand the digest \
         that says whether policies have changed since; dormant until spec.rearm is {firings}",
        firing.policy, firing.at, firing.result
    )
}

/// The policy to report: the one with the nearest date, else the first.
pub(super) fn nearest<'a, T: 'a, I: Iterator<Item = (&'a ValidPolicy, &'a T)>>(
    judged: impl Fn() -> I,
    due: impl Fn(&T) -> Option<Timestamp>,
) -> Option<(&'a ValidPolicy, &'a T)> {
    let dated = judged().filter(|(_, e)| due(e).is_some()).min_by_key(|(_, e)| due(e));
    dated.or_else(|| judged().next())
}

pub(crate) fn earlier(at: Timestamp, by: Duration) -> Timestamp {
    at.checked_sub(SignedDuration::from_secs(by.as_secs_i64())).unwrap_or(Timestamp::MIN)
}

impl PlanBuilder<'_> {
    /// Why the user's own spec lets nothing fire at present, and the phase of such a manager.
    pub(super) fn inhibition(&self, spec: &ValidSpec) -> Option<(Phase, Denied)> {
        let inhibition = inhibition(spec.suspend, spec.hold.as_ref(), self.now)?;
        let phase = if inhibition.reason == Reason::Suspended { Phase::Suspended } else { Phase::Held };
        Some((phase, inhibition))
    }

    /// The plan of a manager that has fired and is not armed again.
    fn dormant(&mut self, spec: &ValidSpec) -> Option<Plan> {
        let firing = self.status.steps.last_firing.clone()?;
        let comparison = self.compare(&firing.digest);
        let armed = comparison == DigestComparison::Changed || active(Mutant::DormancyIgnored);
        let for_ever = active(Mutant::RearmNeverExpires) && spec.rearm.is_some();
        if armed || spec.rearm == Some(self.status.steps.firings) || for_ever {
            return None;
        }
        let (reason, message) = if comparison == DigestComparison::Same {
            self.withdraw_notice("another policy has fired");
            (Reason::Dormant, dormant(&firing, self.status.steps.firings))
        } else {
            self.withdraw_notice("another version of Coppice has fired a policy");
            (Reason::UnsupportedDigest, not_understood(&firing, self.status.steps.firings))
        };
        let builder = std::mem::replace(self, PlanBuilder::new(self.observed, self.time));
        Some(builder.finish_waiting(Phase::Fired, reason, message))
    }

    /// Gives notice of a deletion, or keeps the notice given; returns the instant before which nothing is deleted.
    fn give_notice(
        &mut self,
        policy: &ValidPolicy,
        notice: Duration,
        snapshot: &NamespaceSnapshot<'_>,
        due: Timestamp,
    ) -> Timestamp {
        let announcement = Announcement {
            policy: &policy.name,
            namespace: snapshot.namespace,
            notice,
            due,
            // That of a ttl alone is announced ahead.
            reason: Reason::TtlElapsed,
            prevent: steps::HOLD_TO_PREVENT,
        };
        steps::give_notice(&mut self.status.steps, announcement, self.now, &mut self.events)
    }

    fn intent(
        &self,
        action: Action,
        policy: &str,
        snapshot: &NamespaceSnapshot<'_>,
        (reason, evidence): (Reason, &BTreeMap<String, String>),
    ) -> Intent {
        let decided = Decided {
            object_uid: self.observed.manager.uid,
            action,
            policy,
            digest: &self.digest,
            namespace: snapshot.namespace,
            reason,
            evidence,
        };
        steps::intent(&self.status.steps, decided, self.now)
    }

    fn decide_wake(mut self, snapshot: &NamespaceSnapshot<'_>) -> Plan {
        let why = (Reason::InProgress, &BTreeMap::new());
        self.status.steps.intent = Some(self.intent(Action::Wake, "", snapshot, why));
        self.next_check = Some(self.now);
        let message = wake_message(&self.status);
        self.pending((Action::Wake, "", None), (Reason::InProgress, message), None)
    }
}
