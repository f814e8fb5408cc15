//! A namespace comes to be below another one, with all that it has, because the one above it is going away.
//!
//! The allotment is in one place at every revision: counted in that of the one that is *leaving*, which is right below the *new parent*;
//! in the change by which it leaves that one; [arriving](Ledger::arriving); or in the change by which the namespace takes it up.
//!
//! 1. *Fence*: the namespace's own ledger names the id that it has below the new parent. No other changes its allotment any more, so
//!    that stands still.
//! 2. *Expect*: the ledger of the new parent has an entry for that id, of nothing. Where it was removed nothing can begin to leave.
//! 3. *Leave*: the same ledger records a change of the leaving one: it is to have less by that allotment. Its quota goes with it, so
//!    [`decide`](crate::decide) has that decided in its record.
//! 4. The labels of the namespace say who is above it now. That is not written here.
//! 5. *Take up*: [`decide`](crate::decide) of that id turns what has arrived into an allotment, by a change as any other.
//!
//! Where the namespace is gone, what has arrived for it is the new parent's own again.

use jiff::Timestamp;

use crate::decide::{Child, MAX_CHANGES, QuotaDecision, QuotaStep, Write, begin};
use crate::ledger::{AllotmentChange, HeldAmount, Ledger, Quota, Record};
use crate::resources::Resources;

/// A namespace that is to be below another.
///
/// What is read first is named first. The quota of the new parent is read *after* that of the namespace, and the rest after both.
#[derive(Clone, Copy, Debug)]
pub struct Departure<'a> {
    /// Its quota.
    pub quota: Option<&'a Quota>,
    /// Whether it is being deleted itself: then nothing is begun.
    pub ends: bool,
    /// What is known of its allotment without its quota.
    pub record: &'a Record,
    /// What its own children have by their records.
    pub below: &'a Resources,
    /// The quota of the new parent.
    pub above: &'a Quota,
    /// By what the new parent knows it. Exists, and does not end, as long as the namespace has not moved.
    pub id: &'a str,
    /// By what the new parent knows the one that is leaving,
    pub leaving: &'a str,
    /// and the record of that one.
    pub leaving_record: &'a Record,
    /// Those between the two that are being deleted, too, by what the new parent knows them, if they were to move: one that has begun to
    /// comes first, since what it takes along is counted there.
    pub between: &'a [String],
}

/// What is to be done now.
#[derive(Clone, Debug, PartialEq)]
pub enum DepartureDecision {
    /// The ledger of the namespace itself, with the revision that was read.
    Own(Ledger),
    /// The ledger of the new parent.
    Above(Ledger),
    /// All of what it has has arrived: it may be below the new parent.
    Arrived,
    /// Nothing of what it has was taken out, and it ends where it is.
    Stays,
    /// Nothing until something changes.
    Wait,
    /// More than the one that is leaving is counted for: somebody else has written a ledger, or what was read first is old.
    Disturbed,
}

impl Departure<'_> {
    /// The next step.
    pub fn decide(&self, now: Timestamp) -> DepartureDecision {
        let ledger = &self.above.ledger;
        if !self.above.is_as_recorded() {
            return DepartureDecision::Above(ledger.clone());
        }
        let arrived = ledger.arriving.get(self.id).map(|held| &held.amount);
        if ledger.is_moving(self.id) {
            return DepartureDecision::Wait;
        }
        if self.ends {
            let nothing = Resources::default();
            let begun = arrived.is_some_and(|amount| *amount != nothing);
            return if begun { DepartureDecision::Arrived } else { DepartureDecision::Stays };
        }
        let quota = match self.quota {
            Some(quota) if self.is_fenced(quota) => quota,
            other => return DepartureDecision::Own(self.fenced(other)),
        };
        let Some(arrived) = arrived else { return self.expect(now) };
        // A resource that is limited to nothing takes part in nothing.
        let missing = quota.ledger.allotment.minus(arrived);
        if missing == Resources::default() {
            return DepartureDecision::Arrived;
        }
        self.leave(&missing, now)
    }

    fn is_fenced(&self, quota: &Quota) -> bool {
        let ledger = &quota.ledger;
        ledger.changed_by.as_deref() == Some(self.id) && ledger.lowering.is_none() && quota.is_as_recorded()
    }

    /// What was being lowered is not: whoever asked for it cannot carry it out any more.
    fn fenced(&self, quota: Option<&Quota>) -> Ledger {
        let restored = || Ledger::restored(self.record.clone(), self.below.clone());
        let ledger = quota.map_or_else(restored, |quota| quota.ledger.clone());
        Ledger { changed_by: Some(self.id.into()), lowering: None, ..ledger }
    }

    fn expect(&self, now: Timestamp) -> DepartureDecision {
        let ledger = &self.above.ledger;
        // It has been taken up, and who looks here has not seen that yet.
        if ledger.changes.contains_key(self.id) {
            return DepartureDecision::Wait;
        }
        // The rest waits: a ledger is an annotation, which has an end.
        if ledger.arriving.len() >= MAX_CHANGES {
            return DepartureDecision::Wait;
        }
        let mut expected = ledger.clone();
        let nothing = HeldAmount { amount: Resources::default(), since: now };
        expected.arriving.insert(self.id.to_owned(), nothing);
        DepartureDecision::Above(expected)
    }

    fn leave(&self, amount: &Resources, now: Timestamp) -> DepartureDecision {
        let ledger = &self.above.ledger;
        let nothing = Resources::default();
        let first = |id: &String| {
            ledger.is_moving(id) || ledger.arriving.get(id).is_some_and(|held| held.amount != nothing)
        };
        if ledger.changes.contains_key(self.leaving)
            || ledger.changes.len() >= MAX_CHANGES
            || self.between.iter().any(first)
        {
            return DepartureDecision::Wait;
        }
        let from = &self.leaving_record.allotment;
        if !amount.within(from) {
            return DepartureDecision::Disturbed;
        }
        let change = AllotmentChange {
            number: self.leaving_record.decided + 1,
            from: from.clone(),
            to: from.minus(amount),
            since: now,
            transfer: None,
            moves: Some(self.id.to_owned()),
        };
        match begin(ledger, self.leaving, change) {
            QuotaDecision::Write(_, Write::Parent(begun)) => DepartureDecision::Above(begun),
            _ => DepartureDecision::Wait,
        }
    }
}

/// What a namespace that is being deleted has left once a change is decided there: what it is to have without what others take along, and
/// otherwise as much as it may have.
pub(crate) fn left(child: &Child<'_>, change: &AllotmentChange) -> Resources {
    if change.moves.as_deref().is_some_and(|id| id != child.id) {
        return change.to.clone();
    }
    let decided = child.quota.map(|quota| &quota.ledger).filter(|ledger| ledger.decided >= change.number);
    // No more than is counted for it: whoever writes the quota of a namespace that is being deleted gets nothing by that.
    decided.map_or_else(|| change.larger(), |ledger| ledger.allotment.smaller(&change.larger()))
}

/// Whether something is arriving for a child, and what becomes of it; none where the child has all that it has.
pub(crate) fn arrive(
    ledger: &Ledger,
    child: &Child<'_>,
    has: &Resources,
    now: Timestamp,
) -> Option<QuotaDecision> {
    if !child.exists && ledger.is_moving(child.id) {
        return Some(QuotaDecision::Wait(None));
    }
    let Some(arrived) = ledger.arriving.get(child.id) else {
        let fenced = child.quota.is_some_and(|quota| quota.ledger.changed_by.as_deref() == Some(child.id));
        // What it has is nowhere: without it the namespace would have nothing.
        let nowhere = child.exists && fenced && child.record.decided == 0;
        return nowhere.then_some(QuotaDecision::Wait(None));
    };
    let mut taken = ledger.clone();
    taken.arriving.remove(child.id);
    if !child.exists {
        return Some(QuotaDecision::Write(QuotaStep::End, Write::Parent(taken)));
    }
    let decided = child.quota.map_or(0, |quota| quota.ledger.decided).max(child.record.decided);
    let change = AllotmentChange {
        number: decided + 1,
        from: has.clone(),
        to: has.plus(&arrived.amount)?,
        since: now,
        transfer: None,
        moves: Some(child.id.to_owned()),
    };
    Some(begin(&taken, child.id, change))
}

/// The namespace has it already, and nothing of its own quota changes. From then on any change counts again: none that was begun for
/// another id has a larger number. Of a change that has to be decided in the record of a namespace that is being deleted nothing is carried
/// out by who has not seen that.
pub(crate) fn take_up(child: &Child<'_>, change: &AllotmentChange) -> QuotaDecision {
    if change.moves.as_deref() != Some(child.id) {
        return QuotaDecision::Wait(None);
    }
    let record = Record { allotment: change.to.clone(), decided: change.number };
    let ledger = match child.quota {
        Some(quota) if quota.ledger.decided >= change.number => {
            return QuotaDecision::Write(QuotaStep::Report, Write::Record(record));
        }
        Some(quota) => {
            let Record { allotment, decided } = record;
            Ledger { allotment, decided, lowering: None, changed_by: None, ..quota.ledger.clone() }
        }
        // It was deleted by somebody: what is recorded is made again.
        None => Ledger::restored(record, child.below.clone()),
    };
    QuotaDecision::Write(QuotaStep::Decide, Write::Own(ledger))
}
