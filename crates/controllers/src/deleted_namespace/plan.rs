//! What becomes of a record. Pure.

mod lint;

use coppice_api::DeletionPhase;
use coppice_api::notify::{DeletionNotification, MessageDelivery, MessageState};
use coppice_kinds::DeletionRecord;
use coppice_lifecycle::deletion_notification::{self, NotificationPlan};
use coppice_mutants::{Mutant, active};
use jiff::{SignedDuration, Timestamp};

use super::observe::{NamespaceState, Observation};

/// Records are kept for so long after their namespace was gone.
const KEPT_FOR: SignedDuration = SignedDuration::from_hours(30 * 24);
/// At most so many records are kept: the newest.
pub(super) const MAX_RECORDS: usize = 10_000;
/// A record whose decision was given up is withdrawn this long after the last attempt, of which every request has ended by
/// then.
const SETTLED_AFTER: SignedDuration = SignedDuration::from_mins(1);
/// What is not known is looked at again after this time, and so is a namespace whose deletion may have been accepted: the
/// cache learns that from the answer, and is then not changed by the event that would enqueue the record.
const LOOK_AGAIN: SignedDuration = SignedDuration::from_secs(5);

/// A step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum DeletedNamespaceStep {
    /// Write how far the deletion is.
    Mark(DeletionPhase),
    /// Write what is known of its messages.
    Record(Vec<MessageDelivery>),
    /// Make one attempt at each of the messages with these keys.
    Deliver(Vec<String>),
    /// Delete the record: the deletion was given up, and its namespace is there.
    Withdraw,
    /// Delete the record: it has been kept long enough.
    Expire,
    /// Delete the record: there are too many, and it is one of the oldest.
    MakeRoom,
}

/// What to do now, and when to look again.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct DeletedNamespacePlan {
    pub(super) step: Option<DeletedNamespaceStep>,
    pub(super) next_check: Option<Timestamp>,
}

/// The oldest record that is kept where there are too many: by creation, and by name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct OldestKept(Timestamp, Box<str>);

impl OldestKept {
    pub(super) fn of(record: &DeletionRecord) -> Self {
        Self(record.created, record.name.clone())
    }

    /// Whether this one comes after a record: that one is surplus.
    pub(super) fn is_after(&self, record: &DeletionRecord) -> bool {
        (record.created, &record.name) < (self.0, &self.1)
    }
}

/// The next step.
pub(super) fn plan(observation: &Observation) -> DeletedNamespacePlan {
    let plan = decide(observation);
    debug_assert_eq!(lint::lint(observation, &plan), Vec::new(), "{plan:?}");
    plan
}

fn decide(observation: &Observation) -> DeletedNamespacePlan {
    let Observation { record, now, .. } = observation;
    let after = |from: Timestamp, time: SignedDuration| from.checked_add(time).unwrap_or(Timestamp::MAX);
    let now_or = |due: Timestamp, step: DeletedNamespaceStep| {
        if due <= *now { at_once(step) } else { DeletedNamespacePlan { step: None, next_check: Some(due) } }
    };
    if record.terminating {
        // Somebody deletes it, and finalizers keep it: nothing is left to do.
        return DeletedNamespacePlan { step: None, next_check: None };
    }
    let (Ok(fields), None) = (&record.spec, &record.status_error) else {
        // Another version wrote it. It is still evidence, and not kept longer than others.
        return now_or(after(record.created, KEPT_FOR), DeletedNamespaceStep::Expire);
    };
    match (record.status.phase, observation.namespace) {
        (Some(DeletionPhase::Deleted), _) => {
            let gone = record.status.deleted_at.unwrap_or(record.created);
            // What could not be delivered has an end: after a day of attempts at most.
            if let Some(notification) = &fields.notification
                && let Some(plan) = deliver(observation, notification, gone)
            {
                return plan;
            }
            if observation.surplus {
                return at_once(DeletedNamespaceStep::MakeRoom);
            }
            now_or(after(gone, KEPT_FOR), DeletedNamespaceStep::Expire)
        }
        (_, NamespaceState::Gone) => at_once(DeletedNamespaceStep::Mark(DeletionPhase::Deleted)),
        (None, NamespaceState::Terminating) if active(Mutant::DeletedUnread) => {
            at_once(DeletedNamespaceStep::Mark(DeletionPhase::Deleted))
        }
        (None, NamespaceState::Terminating) => {
            at_once(DeletedNamespaceStep::Mark(DeletionPhase::Terminating))
        }
        (None, NamespaceState::Present) if active(Mutant::RecordWithdrawnAtOnce) => {
            at_once(DeletedNamespaceStep::Withdraw)
        }
        (None, NamespaceState::Present) if !observation.decided => {
            now_or(after(fields.attempted_at, SETTLED_AFTER), DeletedNamespaceStep::Withdraw)
        }
        // One whose namespace is not known for so long will not be.
        (_, NamespaceState::Unknown) if after(record.created, KEPT_FOR) <= *now => {
            at_once(DeletedNamespaceStep::Expire)
        }
        (_, NamespaceState::Unknown | NamespaceState::Present) => {
            DeletedNamespacePlan { step: None, next_check: Some(after(*now, LOOK_AGAIN)) }
        }
        // The end of its namespace enqueues it.
        (_, NamespaceState::Terminating) => DeletedNamespacePlan { step: None, next_check: None },
    }
}

/// What becomes of its messages; none if nothing does any more.
fn deliver(
    observation: &Observation,
    notification: &DeletionNotification,
    gone_at: Timestamp,
) -> Option<DeletedNamespacePlan> {
    if active(Mutant::NotificationLost) {
        return None;
    }
    let known = &observation.record.status.notices;
    if known.is_empty() && !notification.messages.is_empty() {
        return Some(at_once(DeletedNamespaceStep::Record(deletion_notification::begin(
            notification,
            gone_at,
        ))));
    }
    let NotificationPlan { notices, due, next_check } =
        deletion_notification::go_on(notification, known, &observation.deliveries, observation.now);
    if notices != *known {
        return Some(at_once(DeletedNamespaceStep::Record(notices)));
    }
    let is_pending = |one: &MessageDelivery| one.state == MessageState::Pending;
    match due.is_empty() {
        true if !known.iter().any(is_pending) => None,
        true => Some(DeletedNamespacePlan { step: None, next_check }),
        false => Some(DeletedNamespacePlan { step: Some(DeletedNamespaceStep::Deliver(due)), next_check }),
    }
}

const fn at_once(step: DeletedNamespaceStep) -> DeletedNamespacePlan {
    DeletedNamespacePlan { step: Some(step), next_check: None }
}

#[cfg(test)]
#[path = "plan_tests.rs"]
mod tests;
