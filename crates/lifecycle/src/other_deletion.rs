//! Two objects that would delete one namespace: its managers, and the cluster manager by its record. One notice, one
//! reservation and one deletion are enough, so that the one whose deletion comes later stands back.

use coppice_api::manager::NextStep;
use coppice_api::steps::Action;
use coppice_api::{Reason, Steps};
use coppice_mutants::{Mutant, active};
use coppice_quantity::Duration;
use jiff::{SignedDuration, Timestamp};

use crate::condition::later;
use crate::facts::NamespaceFacts;
use crate::governor::Denied;

/// What is planned or announced counts for so long after its time, and what is decided for so long: nobody waits for ever for
/// what came to nothing.
const OVERDUE: Duration = Duration::from_secs(60);
const DECIDED: Duration = Duration::from_secs(900);
/// Statuses that change enqueue nobody else: who waits looks again after this time.
const AGAIN: Duration = Duration::from_secs(15);

/// Dates that differ by no more are one: each is announced in whole seconds, from the moment on at which its object was looked
/// at. Otherwise each of two that are due together would stand back for the other.
const ONE_DATE: SignedDuration = SignedDuration::from_secs(2);

/// How far it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum State {
    Decided,
    Announced,
    Planned,
}

/// A deletion of the namespace that another object plans, has announced, or has decided.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OtherDeletion {
    /// Which object.
    by: String,
    /// When, at the earliest.
    at: Timestamp,
    state: State,
    /// Whether it comes first where both have the same time, or both are decided.
    precedes: bool,
}

impl OtherDeletion {
    /// What the status of another object says about this namespace; none if it does not delete it, or waits for something
    /// other than time and budget. The record comes before managers (`precedes`), so that two never wait for each other.
    pub fn of(
        by: String,
        precedes: bool,
        (steps, next): (&Steps, Option<&NextStep>),
        namespace: &NamespaceFacts,
        now: Timestamp,
    ) -> Option<Self> {
        const GOES_ON: [Reason; 4] =
            [Reason::NoticeRunning, Reason::InProgress, Reason::Retrying, Reason::BudgetSpent];
        let next = next.filter(|_| !active(Mutant::OtherDeletionIgnored))?;
        let is = |reasons: &[Reason]| reasons.iter().any(|reason| next.reason == reason.as_str());
        let (at, state) = if is(&GOES_ON) {
            let intent = steps.intent.as_ref();
            let intent = intent.filter(|one| one.action == Action::Delete && one.uid == namespace.uid);
            let notice = steps.notice.as_ref().filter(|one| one.uid == namespace.uid);
            match (intent, notice) {
                (Some(intent), _) => (intent.decided_at, State::Decided),
                (None, notice) => (notice?.not_before, State::Announced),
            }
        } else {
            let deletes = next.action.as_deref() == Some(Action::Delete.as_str());
            let planned = deletes && is(&[Reason::TtlRunning, Reason::Settling]);
            (next.due.filter(|_| planned)?, State::Planned)
        };
        let lasts = if state == State::Decided { DECIDED } else { OVERDUE };
        (now <= later(at, lasts)).then_some(Self { by, at, state, precedes })
    }

    /// Of several, the one that comes first.
    pub fn first(all: impl Iterator<Item = Self>) -> Option<Self> {
        all.min_by_key(|one| (one.state != State::Decided, one.at))
    }

    /// Why a deletion that could happen at `own` is not announced or decided, if it stands back.
    pub(crate) fn before(&self, own: Timestamp, now: Timestamp) -> Option<Denied> {
        let apart = own.duration_since(self.at);
        let earlier = if apart.abs() <= ONE_DATE { self.precedes } else { apart.is_positive() };
        (self.state == State::Decided || earlier).then(|| self.denied(now))
    }

    /// The same for one that is decided already.
    pub(crate) fn before_decided(&self, now: Timestamp) -> Option<Denied> {
        (self.state == State::Decided && self.precedes).then(|| self.denied(now))
    }

    fn denied(&self, now: Timestamp) -> Denied {
        let Self { by, at, .. } = self;
        let message = match self.state {
            State::Decided => format!("{by} has decided to delete the namespace, which is enough"),
            State::Announced => format!("{by} has announced the deletion for {at:.0}, which is enough"),
            State::Planned => format!("{by} deletes the namespace at {at:.0}, which is enough"),
        };
        Denied { reason: Reason::DeletedByAnother, message, retry_at: Some(later(now, AGAIN)) }
    }
}
