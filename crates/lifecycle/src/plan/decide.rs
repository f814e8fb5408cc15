//! No step is under way: is there one to decide?

use std::fmt::Write as _;

use coppice_api::Reason;
use coppice_api::manager::{
    Action, Delete, Firing, Intent, NamespaceManagerSpec, Next, Notice, Phase, Policy, Verdict,
};
use jiff::{SignedDuration, Timestamp};
use sha2::{Digest as _, Sha256};

use super::intent::{giving_back, under_way};
use super::{Draft, Plan};
use crate::condition::{Evaluation, later, whole_second_after};
use crate::digest::Comparison;
use crate::facts::World;
use crate::mutants::{Mutant, active};

/// Why nothing may fire: phase, reason, message, and when that ends.
pub(super) type Frozen = (Phase, Reason, String, Option<Timestamp>);

pub(super) fn decide(mut draft: Draft<'_>, spec: &NamespaceManagerSpec, world: &World<'_>) -> Plan {
    if world.namespace.terminating {
        draft.status.notice = None;
        let message = "the namespace is being deleted".to_owned();
        return draft.waits(Phase::Terminating, Reason::NamespaceTerminating, message);
    }
    if spec.wake == Some(draft.status.firings) && !draft.status.scaled_down.is_empty() {
        return draft.decide_wake(world);
    }
    if let Some(refusal) = draft.refusal(spec, world) {
        return draft.refused(&refusal);
    }
    if let Some(plan) = draft.dormant(spec) {
        return plan;
    }
    let evaluations = draft.evaluate(spec, world);
    if let Some((phase, reason, message, ends)) = draft.frozen(spec) {
        draft.withdraw_notice(&message);
        draft.look_at = ends;
        return draft.waits(phase, reason, message);
    }
    let mut judged = spec.policies.iter().zip(&evaluations);
    if let Some((policy, evaluation)) = judged.find(|(_, e)| e.verdict == Verdict::True) {
        return fire(draft, policy, evaluation, world);
    }
    watch(draft, spec, &evaluations, world)
}

/// The first true policy: give notice, wait for what stops it, or write down that it fires.
fn fire(mut draft: Draft<'_>, policy: &Policy, evaluation: &Evaluation, world: &World<'_>) -> Plan {
    let Some(action) = policy.then.action() else {
        // The law has refused this already.
        return draft.waits(
            Phase::Refused,
            Reason::InvalidSpec,
            "the policy has not exactly one action".to_owned(),
        );
    };
    let announced = draft.status.notice.as_ref();
    let announced = announced.is_some_and(|n| n.policy == policy.name && n.uid == world.namespace.uid);
    // A notice that was given runs its time, also if the policy asks for none any more.
    let notice = |d: &&Delete| (announced || !d.notice.is_zero()) && !active(Mutant::NoticeSkipped);
    if let Some(delete) = policy.then.delete.as_ref().filter(notice) {
        if let Some((reason, message)) = draft.blind().filter(|_| !announced) {
            // A notice by a clock that is wrong would count from the wrong instant.
            return draft.step((action, &policy.name, None), (reason, message), None);
        }
        let due = draft.give_notice(policy, delete, world, draft.now);
        if draft.now < due {
            draft.look_no_later_than(Some(due));
            let message = format!("{}; notice runs until {due:.0}", evaluation.message);
            return draft.step((action, &policy.name, Some(due)), (Reason::NoticeRunning, message), None);
        }
    } else {
        draft.withdraw_notice(&format!("policy {:?} fires first", policy.name));
    }
    let stopped = if action.is_destructive() {
        draft.stopped()
    } else {
        draft.halted().map(|(reason, message)| (reason, message, None))
    };
    if let Some((reason, message, retry_at)) = stopped {
        draft.look_no_later_than(retry_at);
        return draft.step((action, &policy.name, retry_at), (reason, message), None);
    }
    let intent = draft.intent(action, &policy.name, world, evaluation);
    let message =
        format!("policy {:?}: {}; {action} follows ({})", policy.name, evaluation.message, intent.id);
    draft.note(false, Reason::PolicyFired, message);
    draft.status.intent = Some(intent);
    draft.look_at = Some(draft.now);
    let message = under_way(action, &evaluation.message, 0);
    draft.step((action, &policy.name, None), (Reason::InProgress, message), None)
}

/// No policy is true: a ttl may still have to be announced ahead of its end.
fn watch(
    mut draft: Draft<'_>,
    spec: &NamespaceManagerSpec,
    evaluations: &[Evaluation],
    world: &World<'_>,
) -> Plan {
    let mut nearest: Option<(&Policy, &Delete, Timestamp)> = None;
    for (policy, evaluation) in spec.policies.iter().zip(evaluations) {
        let notice = policy.then.delete.as_ref().filter(|d| !d.notice.is_zero());
        let (Some(delete), Some(due)) = (notice, evaluation.due) else { continue };
        let from = earlier(due, delete.notice);
        if draft.now < from {
            draft.look_no_later_than(Some(from));
        } else if nearest.is_none_or(|(_, _, other)| due < other) {
            nearest = Some((policy, delete, due));
        }
    }
    if let Some((policy, delete, due)) = nearest.filter(|_| draft.blind().is_none()) {
        let due = draft.give_notice(policy, delete, world, due);
        draft.look_no_later_than(Some(due));
        let message = format!("the ttl ends and notice runs until {due:.0}");
        return draft.step((Action::Delete, &policy.name, Some(due)), (Reason::NoticeRunning, message), None);
    }
    // By the slower of two clocks a date may seem to be far off again.
    if nearest.is_none() && draft.time.doubt().is_none() {
        draft.withdraw_notice("its policy is not due any more");
    }
    let next = next_of(spec, evaluations);
    draft.finish(Phase::Active, next, None)
}

/// What a manager that watches will do next: the policy with the nearest date, else the first; and what each waits for.
fn next_of(spec: &NamespaceManagerSpec, evaluations: &[Evaluation]) -> Next {
    let judged = || spec.policies.iter().zip(evaluations);
    let chosen = nearest(judged, |e| e.due);
    let message = match spec.policies.as_slice() {
        [_] => evaluations[0].message.clone(),
        _ => judged().fold(String::new(), |mut text, (policy, evaluation)| {
            let separator = if text.is_empty() { "" } else { "; " };
            let action = policy.then.action().map_or("nothing", Action::as_str);
            // Writing to a String cannot fail.
            let _ = write!(text, "{separator}{action}: {}", evaluation.message);
            text
        }),
    };
    Next {
        action: chosen.and_then(|(p, _)| p.then.action()).map(|a| a.to_string()),
        policy: chosen.map(|(p, _)| p.name.clone()),
        due: chosen.and_then(|(_, e)| e.due),
        reason: chosen.map_or(Reason::Watching, |(_, e)| e.reason).to_string(),
        message,
    }
}

/// What is said of a manager that has fired.
pub(super) fn dormant(firing: &Firing, firings: i64) -> String {
    format!(
        "policy {:?} fired at {:.0} ({}); dormant until policies change or spec.rearm is {firings}",
        firing.policy, firing.at, firing.result
    )
}

/// What is said of one that has fired under another version of Coppice.
fn not_understood(firing: &Firing, firings: i64) -> String {
    format!(
        "policy {:?} fired at {:.0} ({}) under another version of Coppice, and this version does not understand the digest \
         that says whether policies have changed since; dormant until spec.rearm is {firings}",
        firing.policy, firing.at, firing.result
    )
}

/// The policy that is told of: the one with the nearest date, else the first.
pub(super) fn nearest<'a, T: 'a, I: Iterator<Item = (&'a Policy, &'a T)>>(
    judged: impl Fn() -> I,
    due: impl Fn(&T) -> Option<Timestamp>,
) -> Option<(&'a Policy, &'a T)> {
    let dated = judged().filter(|(_, e)| due(e).is_some()).min_by_key(|(_, e)| due(e));
    dated.or_else(|| judged().next())
}

pub(super) fn earlier(at: Timestamp, by: coppice_quantity::Duration) -> Timestamp {
    at.checked_sub(SignedDuration::from_secs(by.as_secs_i64())).unwrap_or(Timestamp::MIN)
}

impl Draft<'_> {
    /// Why nothing may fire at present, by the user's own wish.
    pub(super) fn frozen(&self, spec: &NamespaceManagerSpec) -> Option<Frozen> {
        if spec.suspend && !active(Mutant::SuspendIgnored) {
            let message = "spec.suspend is true: nothing is done until it is false".to_owned();
            return Some((Phase::Suspended, Reason::Suspended, message, None));
        }
        let hold = spec.hold.as_ref().filter(|h| self.now < h.until && !active(Mutant::HoldIgnored))?;
        let why = hold.reason.as_ref().map(|r| format!(" ({r})")).unwrap_or_default();
        let message = format!("held until {:.0}{why}", hold.until);
        Some((Phase::Held, Reason::Held, message, Some(hold.until)))
    }

    /// The plan of a manager that has fired and is not armed again.
    fn dormant(&mut self, spec: &NamespaceManagerSpec) -> Option<Plan> {
        let firing = self.status.last_firing.clone()?;
        let comparison = self.compare(&firing.digest);
        let armed = comparison == Comparison::Changed || active(Mutant::DormancyIgnored);
        let for_ever = active(Mutant::RearmedForEver) && spec.rearm.is_some();
        if armed || spec.rearm == Some(self.status.firings) || for_ever {
            return None;
        }
        let (reason, message) = if comparison == Comparison::Same {
            self.withdraw_notice("another policy has fired");
            (Reason::Dormant, dormant(&firing, self.status.firings))
        } else {
            self.withdraw_notice("another version of Coppice has fired a policy");
            (Reason::DigestNotUnderstood, not_understood(&firing, self.status.firings))
        };
        let draft = std::mem::replace(self, Draft::new(self.observed, self.time));
        Some(draft.waits(Phase::Fired, reason, message))
    }

    /// Gives notice of a deletion, or keeps the notice given; returns the instant before which nothing is deleted. That
    /// instant may move later, never earlier.
    fn give_notice(
        &mut self,
        policy: &Policy,
        delete: &Delete,
        world: &World<'_>,
        due: Timestamp,
    ) -> Timestamp {
        let uid = &world.namespace.uid;
        let given = self.status.notice.as_ref().filter(|n| n.policy == policy.name && n.uid == *uid).cloned();
        if let Some(mut notice) = given {
            let kept = if active(Mutant::NoticeMovedEarlier) { Timestamp::MIN } else { notice.not_before };
            notice.not_before = kept.max(later(notice.given_at, delete.notice));
            if due > self.now {
                notice.not_before = notice.not_before.max(whole_second_after(due));
            }
            let not_before = notice.not_before;
            self.status.notice = Some(notice);
            return not_before;
        }
        self.withdraw_notice(&format!("policy {:?} announces another", policy.name));
        let given_at = whole_second_after(self.now);
        let not_before = later(given_at, delete.notice).max(whole_second_after(due));
        let message = format!(
            "namespace {} will be deleted at {not_before:.0} (policy {:?}); extend, hold or suspend to prevent it",
            world.namespace.name, policy.name
        );
        self.note(true, Reason::DeletionAnnounced, message);
        let notice = Notice { policy: policy.name.clone(), uid: uid.clone(), given_at, not_before };
        self.status.notice = Some(notice);
        not_before
    }

    fn intent(&self, action: Action, policy: &str, world: &World<'_>, evaluation: &Evaluation) -> Intent {
        Intent {
            id: self.firing_id(action, policy),
            policy: policy.to_owned(),
            action,
            uid: world.namespace.uid.clone(),
            digest: self.digest.clone(),
            decided_at: Timestamp::from_millisecond(self.now.as_millisecond()).unwrap_or(self.now),
            attempts: 0,
            next_attempt: None,
            last_error: None,
            reason: evaluation.reason.to_string(),
            evidence: evaluation.evidence.clone(),
        }
    }

    /// One id per decision, a function of what is decided: the same decision made twice (by two replicas, or again
    /// after a lost answer) has the same id.
    fn firing_id(&self, action: Action, policy: &str) -> String {
        let manager = &self.observed.manager;
        let firing = (self.status.firings + 1).to_string();
        let mut hash = Sha256::new();
        for part in [manager.uid, &firing, action.as_str(), policy, &self.digest] {
            hash.update(part.len().to_be_bytes());
            hash.update(part);
        }
        hash.finalize()[..10].iter().fold("fire-".to_owned(), |mut id, byte| {
            // Writing to a String cannot fail.
            let _ = write!(id, "{byte:02x}");
            id
        })
    }

    fn decide_wake(mut self, world: &World<'_>) -> Plan {
        let evaluation = Evaluation {
            verdict: Verdict::True,
            reason: Reason::InProgress,
            message: String::new(),
            due: None,
            look_at: None,
            since: None,
            evidence: std::collections::BTreeMap::new(),
        };
        self.status.intent = Some(self.intent(Action::Wake, "", world, &evaluation));
        self.look_at = Some(self.now);
        let message = giving_back(&self.status);
        self.step((Action::Wake, "", None), (Reason::InProgress, message), None)
    }
}
