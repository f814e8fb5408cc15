//! Announcing and deciding a step, and deciding it again, in the [`Steps`] of whatever object decides it; [`record`](crate::record) writes down
//! what came of it.

use std::collections::BTreeMap;

use coppice_api::manager::Verdict;
use coppice_api::steps::{Action, Intent, Notice};
use coppice_api::{Losses, Reason, Steps};
use coppice_mutants::{Mutant, active};
use coppice_quantity::Duration;
use coppice_quantity::time::in_milliseconds;
use jiff::{SignedDuration, Timestamp};

use crate::circumstances::Circumstances;
use crate::condition::{Evaluation, later, whole_second_after};
use crate::digest::id_of;
use crate::facts::NamespaceFacts;
use crate::governor::Denied;
use crate::plan::PlannedEvent;

/// A deletion that is to be announced.
#[derive(Clone, Copy, Debug)]
pub struct Announcement<'a> {
    /// The policy that will delete.
    pub policy: &'a str,
    /// The namespace.
    pub namespace: &'a NamespaceFacts,
    /// How long before the deletion it is announced.
    pub notice: Duration,
    /// When it is due by its condition.
    pub due: Timestamp,
    /// Why it will be deleted.
    pub reason: Reason,
    /// What users can do to prevent it.
    pub prevent: &'a str,
}

/// How users of a manager that has these fields prevent what it announces.
pub const HOLD_TO_PREVENT: &str = "extend, hold or suspend to prevent it";

/// A notice that can be seen later than this after it was decided ends later.
const NOTICE_DELAY: std::time::Duration = std::time::Duration::from_secs(1);

/// Gives notice of a deletion, or keeps the notice given; returns the instant before which nothing is deleted. That
/// instant may move later, never earlier.
pub fn give_notice(
    steps: &mut Steps,
    announcement: Announcement<'_>,
    now: Timestamp,
    events: &mut Vec<PlannedEvent>,
) -> Timestamp {
    let Announcement { policy, namespace, notice, due, reason, prevent } = announcement;
    let is_given = |n: &&Notice| n.policy == policy && n.uid == namespace.uid;
    if let Some(given) = steps.notice.as_ref().filter(is_given).cloned() {
        let kept = if active(Mutant::NoticeMovedEarlier) { Timestamp::MIN } else { given.not_before };
        let mut not_before = kept.max(later(given.given_at, notice));
        if due > now {
            not_before = not_before.max(whole_second_after(due));
        }
        steps.notice = Some(Notice { not_before, ..given });
        return not_before;
    }
    withdraw_notice(steps, &format!("policy {policy:?} announces another"), events);
    let given_at = whole_second_after(now);
    let not_before = earliest(due, notice, now);
    let message = format!(
        "namespace {} will be deleted at {not_before:.0} (policy {policy:?}); {prevent}",
        namespace.name
    );
    events.push(PlannedEvent { warning: true, reason: Reason::DeletionAnnounced, message });
    let (policy, uid) = (policy.to_owned(), namespace.uid.clone());
    let reason = Some(reason.to_string());
    steps.notice = Some(Notice { policy, uid, given_at, not_before, reason, losses: None });
    not_before
}

/// When a deletion can happen at the earliest for which notice is given now; without notice, when it is due.
pub(crate) fn earliest(due: Timestamp, notice: Duration, now: Timestamp) -> Timestamp {
    if notice.is_zero() {
        return due.max(now);
    }
    later(whole_second_after(now), notice).max(whole_second_after(due))
}

/// Withdraws a notice that no longer announces anything.
pub fn withdraw_notice(steps: &mut Steps, why: &str, events: &mut Vec<PlannedEvent>) {
    if let Some(notice) = steps.notice.take() {
        let message = format!(
            "the deletion announced for {:.0} (policy {:?}) will not happen then: {why}",
            notice.not_before, notice.policy
        );
        events.push(PlannedEvent { warning: false, reason: Reason::NoticeWithdrawn, message });
    }
}

/// Whether a status gives a notice that the one before it did not give.
pub fn announces(steps: &Steps, before: &Steps) -> bool {
    let same = |a: &Notice, b: &Notice| (a.given_at, &a.policy, &a.uid) == (b.given_at, &b.policy, &b.uid);
    let notice = steps.notice.as_ref();
    notice.is_some_and(|notice| !before.notice.as_ref().is_some_and(|known| same(notice, known)))
}

/// Adds to a notice what is lost with the namespace, also in the Events that announce it.
pub fn name_losses(steps: &mut Steps, losses: Losses, events: &mut [PlannedEvent]) {
    let Some(notice) = &mut steps.notice else { return };
    if !losses.is_empty() {
        for event in events.iter_mut().filter(|event| event.reason == Reason::DeletionAnnounced) {
            event.message = format!("{}; {losses}", event.message);
        }
    }
    notice.losses = Some(losses);
}

/// Moves the end of a notice whose write has just given it, because notice runs from when it can be seen: if the write took
/// longer than dates are accurate, by as much, in the Events that announce it, too. True if that has to be written.
pub fn prolong_notice(
    steps: &mut Steps,
    before: &Steps,
    took: std::time::Duration,
    events: &mut [PlannedEvent],
) -> bool {
    if took <= NOTICE_DELAY || !announces(steps, before) {
        return false;
    }
    let Some(notice) = &mut steps.notice else { return false };
    let took = SignedDuration::from_secs(took.as_secs().saturating_add(1).try_into().unwrap_or(i64::MAX));
    let later = notice.not_before.saturating_add(took).unwrap_or(Timestamp::MAX);
    let announced = std::mem::replace(&mut notice.not_before, later);
    for event in events.iter_mut().filter(|event| event.reason == Reason::DeletionAnnounced) {
        event.message = event.message.replace(&format!("{announced:.0}"), &format!("{later:.0}"));
    }
    true
}

/// Whether a notice that this policy gave about the namespace with this uid has run.
pub fn notice_has_run(steps: &Steps, policy: &str, uid: &str, now: Timestamp) -> bool {
    steps.notice.as_ref().is_some_and(|n| n.policy == policy && n.uid == uid && n.not_before <= now)
}

/// What is decided.
#[derive(Clone, Copy, Debug)]
pub struct Decided<'a> {
    /// The uid of the object that decides.
    pub object_uid: &'a str,
    /// What is done.
    pub action: Action,
    /// By which policy; empty for what a user asks for directly.
    pub policy: &'a str,
    /// The digest of the policies.
    pub digest: &'a str,
    /// The namespace that it is done to.
    pub namespace: &'a NamespaceFacts,
    /// Why.
    pub reason: Reason,
    /// What was seen.
    pub evidence: &'a BTreeMap<String, String>,
}

/// The intent of a decision, to be written down before anything is done.
pub fn intent(steps: &Steps, decided: Decided<'_>, now: Timestamp) -> Intent {
    Intent {
        id: firing_id(steps, decided),
        policy: decided.policy.to_owned(),
        action: decided.action,
        uid: decided.namespace.uid.clone(),
        digest: decided.digest.to_owned(),
        decided_at: in_milliseconds(now),
        attempts: 0,
        next_attempt: None,
        last_error: None,
        reason: decided.reason.to_string(),
        evidence: decided.evidence.clone(),
    }
}

/// A policy that is due: its condition is true, or will be when the notice that runs ahead of it ends.
#[derive(Clone, Copy, Debug)]
pub struct DuePolicy<'a> {
    /// What it decides.
    pub decided: Decided<'a>,
    /// Why, for people.
    pub message: &'a str,
    /// Of a deletion: how long before it is announced, which may be zero.
    pub notice: Option<Duration>,
    /// When it is due by its condition; in the future only where notice runs ahead of it.
    pub due: Timestamp,
    /// What users can do to prevent it.
    pub prevent: &'a str,
    /// Whether somebody has been notified of it.
    pub delivery: &'a NoticeDelivery,
}

/// Whether somebody has been notified of a deletion that was announced.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NoticeDelivery {
    /// Nobody has to be.
    NotNeeded,
    /// Notice runs in full from this instant on.
    At(Timestamp),
    /// Nobody has been yet: nothing is deleted. Why, and when that may change by itself.
    Not(String, Option<Timestamp>),
}

impl NoticeDelivery {
    /// Why a deletion that needs this much notice waits now, if it does.
    fn denies(&self, notice: Duration, now: Timestamp) -> Option<Denied> {
        match self {
            Self::NotNeeded => None,
            Self::At(at) => {
                let until = Some(later(*at, notice)).filter(|until| now < *until)?;
                let message = format!("notice runs until {until:.0}, from when it was delivered");
                Some(Denied { reason: Reason::NoticeRunning, message, retry_at: Some(until) })
            }
            Self::Not(why, retry_at) => {
                Some(Denied { reason: Reason::NoticeUndelivered, message: why.clone(), retry_at: *retry_at })
            }
        }
    }
}

/// The first true policy: gives notice, waits for what stops it, or puts its intent into `steps`.
///
/// # Errors
/// Why it waits, and until when.
pub fn fire(
    steps: &mut Steps,
    due_policy: DuePolicy<'_>,
    circumstances: Circumstances<'_>,
    events: &mut Vec<PlannedEvent>,
) -> Result<(), Denied> {
    let DuePolicy { decided, message, notice, due, prevent, delivery } = due_policy;
    let Decided { action, policy, namespace, .. } = decided;
    let now = circumstances.time.now();
    let announced = steps.notice.as_ref().is_some_and(|n| n.policy == policy && n.uid == namespace.uid);
    if let (Action::Delete, false, Some(other)) = (action, announced, circumstances.other)
        && let Some(denied) = other.before(earliest(due, notice.unwrap_or(Duration::ZERO), now), now)
    {
        return Err(denied);
    }
    if let (Action::Delete, false, Some(unknown)) = (action, announced, circumstances.unknown_limits) {
        // They may ask for more notice: none is given now, and none of another policy withdrawn.
        let why = circumstances.unreliable_facts().unwrap_or_else(|| unknown.clone());
        return Err(Denied::until_changed(why));
    }
    // A notice that was given keeps its date, even if the policy no longer asks for a notice.
    let notice = notice.filter(|notice| announced || !notice.is_zero());
    if let Some(notice) = notice.filter(|_| !active(Mutant::NoticeSkipped)) {
        if let Some(why) = circumstances.unreliable_facts().filter(|_| !announced) {
            // With a wrong clock, a notice would count from the wrong instant.
            return Err(Denied::until_changed(why));
        }
        let announcement = Announcement { policy, namespace, notice, due, reason: decided.reason, prevent };
        let mut until = give_notice(steps, announcement, now, events);
        if let (NoticeDelivery::At(at), Some(given)) = (delivery, &mut steps.notice) {
            until = until.max(later(*at, notice));
            given.not_before = until;
        }
        if now < until {
            let message = format!("{message}; notice runs until {until:.0}");
            return Err(Denied { reason: Reason::NoticeRunning, message, retry_at: Some(until) });
        }
        if let Some(denied) = delivery.denies(notice, now) {
            return Err(Denied { message: format!("{}; {}", due_policy.message, denied.message), ..denied });
        }
    } else {
        withdraw_notice(steps, &format!("policy {policy:?} fires first"), events);
    }
    if let Some(denied) = circumstances.block(action) {
        return Err(denied);
    }
    let other = circumstances.other.filter(|_| action == Action::Delete);
    let own = steps.notice.as_ref().filter(|_| announced).map_or(due, |notice| notice.not_before);
    let webhook = circumstances.webhook.filter(|_| action == Action::Delete);
    let denied = other.and_then(|other| other.before(own, now));
    // Without notice there may be no date but now, which comes ever later.
    let date = Some(own).filter(|_| announced);
    if let Some(denied) = denied.or_else(|| webhook?.before(date, now)) {
        return Err(denied);
    }
    decide(steps, decided, message, now, events);
    Ok(())
}

/// Puts the intent of a decision into `steps`.
fn decide(
    steps: &mut Steps,
    decided: Decided<'_>,
    message: &str,
    now: Timestamp,
    events: &mut Vec<PlannedEvent>,
) {
    let Decided { action, policy, .. } = decided;
    let intent = intent(steps, decided, now);
    let message = format!("policy {policy:?}: {message}; {action} follows ({})", intent.id);
    events.push(PlannedEvent { warning: false, reason: Reason::PolicyFired, message });
    steps.intent = Some(intent);
}

/// A policy that is true and does not delete the namespace, of which others may have announced the deletion meanwhile.
///
/// # Errors
/// Why it waits, and until when.
pub fn fire_beside_notice(
    steps: &mut Steps,
    decided: Decided<'_>,
    message: &str,
    circumstances: Circumstances<'_>,
    events: &mut Vec<PlannedEvent>,
) -> Result<(), Denied> {
    if let Some(denied) = circumstances.block(decided.action) {
        return Err(denied);
    }
    decide(steps, decided, message, circumstances.time.now(), events);
    Ok(())
}

/// What becomes of a destructive step that was decided.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Resumed {
    /// It is not asked for any more; why.
    GivenUp(String),
    /// It waits.
    Waits(Denied),
    /// It is carried out now.
    GoesOn,
}

/// Decides a destructive step again, before every attempt at it: by its policy, which needs so much notice since it was delivered, and by
/// the circumstances.
pub fn resume(
    steps: &Steps,
    intent: &Intent,
    evaluation: &Evaluation,
    (notice, delivery): (Option<Duration>, &NoticeDelivery),
    circumstances: Circumstances<'_>,
) -> Resumed {
    let now = circumstances.time.now();
    // Also where so much of it is asked for since it was given.
    let long_enough =
        |notice: Duration| steps.notice.as_ref().is_some_and(|given| later(given.given_at, notice) <= now);
    let notice_given = || {
        notice.is_none_or(|notice| {
            notice_has_run(steps, &intent.policy, &intent.uid, now) && long_enough(notice)
        }) || active(Mutant::NoticeSkipped)
    };
    match evaluation.verdict {
        // A notice that has run by one clock may still run by the slower one.
        Verdict::True if circumstances.time.uncertainty().is_some() || notice_given() => {}
        Verdict::True => return Resumed::GivenUp("notice has to be given again".to_owned()),
        Verdict::False => return Resumed::GivenUp(evaluation.message.clone()),
        Verdict::Unknown => {
            let why = (evaluation.reason, evaluation.message.clone());
            return Resumed::Waits(Denied::until_changed(why));
        }
    }
    if let Some(denied) = notice.and_then(|notice| delivery.denies(notice, now)) {
        return Resumed::Waits(denied);
    }
    let other = circumstances.other.filter(|_| intent.action == Action::Delete);
    let denied = other.and_then(|other| other.before_decided(now));
    let denied =
        denied.or_else(|| circumstances.block(intent.action)).or_else(|| wait_for_retry(intent, now));
    denied.map_or(Resumed::GoesOn, Resumed::Waits)
}

/// Why there is no attempt now, if the next one's time has not come.
pub fn wait_for_retry(intent: &Intent, now: Timestamp) -> Option<Denied> {
    let at = intent.next_attempt.filter(|at| now < *at)?;
    let error = intent.last_error.as_deref().unwrap_or("it failed");
    let message = format!("attempt {} failed, next at {at:.0}: {error}", intent.attempts);
    Some(Denied { reason: Reason::Retrying, message, retry_at: Some(at) })
}

/// Gives up an intent, and the notice that led to it; returns the message.
pub fn abandon(steps: &mut Steps, intent: &Intent, why: &str, events: &mut Vec<PlannedEvent>) -> String {
    steps.intent = None;
    if intent.action == Action::Delete {
        steps.notice = None;
    }
    let message = format!("{} (policy {:?}, {}) is given up: {why}", intent.action, intent.policy, intent.id);
    events.push(PlannedEvent { warning: true, reason: Reason::Abandoned, message: message.clone() });
    message
}

/// One id per decision, a function of what is decided: the same decision made twice (by two replicas, or again after a
/// lost answer) has the same id.
fn firing_id(steps: &Steps, decided: Decided<'_>) -> String {
    let firing = (steps.firings + 1).to_string();
    id_of("fire", [decided.object_uid, &firing, decided.action.as_str(), decided.policy, decided.digest])
}
