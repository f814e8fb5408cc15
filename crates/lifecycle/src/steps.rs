//! Announcing and deciding a step, in the [`Steps`] of whatever object decides it; [`record`](crate::record) writes down
//! what came of it.

use std::collections::BTreeMap;

use coppice_api::steps::{Action, Intent, Notice};
use coppice_api::{Reason, Steps};
use coppice_mutants::{Mutant, active};
use coppice_quantity::Duration;
use jiff::Timestamp;
use sha2::{Digest as _, Sha256};

use crate::condition::{later, whole_second_after};
use crate::digest::hex;
use crate::facts::NamespaceFacts;
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
}

/// Gives notice of a deletion, or keeps the notice given; returns the instant before which nothing is deleted. That
/// instant may move later, never earlier.
pub fn give_notice(
    steps: &mut Steps,
    announcement: Announcement<'_>,
    now: Timestamp,
    events: &mut Vec<PlannedEvent>,
) -> Timestamp {
    let Announcement { policy, namespace, notice, due } = announcement;
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
    let not_before = later(given_at, notice).max(whole_second_after(due));
    let message = format!(
        "namespace {} will be deleted at {not_before:.0} (policy {policy:?}); extend, hold or suspend to prevent it",
        namespace.name
    );
    events.push(PlannedEvent { warning: true, reason: Reason::DeletionAnnounced, message });
    steps.notice =
        Some(Notice { policy: policy.to_owned(), uid: namespace.uid.clone(), given_at, not_before });
    not_before
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
        decided_at: Timestamp::from_millisecond(now.as_millisecond()).unwrap_or(now),
        attempts: 0,
        next_attempt: None,
        last_error: None,
        reason: decided.reason.to_string(),
        evidence: decided.evidence.clone(),
    }
}

/// One id per decision, a function of what is decided: the same decision made twice (by two replicas, or again after a
/// lost answer) has the same id.
fn firing_id(steps: &Steps, decided: Decided<'_>) -> String {
    let firing = (steps.firings + 1).to_string();
    let mut hash = Sha256::new();
    for part in [decided.object_uid, &firing, decided.action.as_str(), decided.policy, decided.digest] {
        hash.update(part.len().to_be_bytes());
        hash.update(part);
    }
    format!("fire-{}", hex(&hash.finalize()[..10]))
}
