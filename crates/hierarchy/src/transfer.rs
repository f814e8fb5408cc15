//! The one next step for an amount to move from one namespace of a tree to another, from whatever state there is.
//!
//! The amount goes up from the source to an ancestor of both, and down to the target. On its way it is in one ledger at every
//! revision: [held](Ledger::held) by a namespace, or in the [change](AllotmentChange::transfer) of an allotment by which it moves
//! to the next. Nobody can use it until it is released.
//!
//! 1. *Take*: the source holds the amount, and its own quota is smaller by that. What is still used of it after 30 s stays.
//! 2. *Move*: the ledger of the upper one of two neighbors records the change. [`decide`](crate::decide) carries it out, as any
//!    other change of an allotment.
//! 3. *Release*: the target holds nothing any more, and has the amount as its own quota.
//! 4. *Remember*: the source writes down what has arrived, by the name of the object. One that says the same under that name later, when the
//!    object is gone, does nothing: whoever applies all of a folder again transfers nothing twice, as far as the source remembers. It
//!    records 128 names, or fewer whose amounts are long, and removes the oldest of more; and nothing of a transfer that did not arrive or
//!    whose object lost its finalizer before that was written down. Its memory is in its quota, and goes with it (decision 0019).
//!
//! [`Transfer::stops`] from the source to the target, with its places; the way turns at `top`, here 2:
//!
//! ```text
//!            2  ancestor (top)
//!           ╱ ╲
//!          1   3
//!         ╱     ╲
//!  source 0      4  target
//! ```
//!
//! `at` is the place that the amount has reached. Where the target is the ancestor, `top` is the last place; where the source is, the first.
//! What is reversed goes back by the same places, from `at` to 0.
//!
//! How far it has come is written down before the next step. Whoever reads all quotas before that record takes nothing a second
//! time: a quota that was written meanwhile has another revision, and what has ended is recorded.

use coppice_mutants::{Mutant, active};
use jiff::Timestamp;

use crate::decide::{MAX_CHANGES, not_shrunk};
use crate::ledger::{AllotmentChange, AppliedTransfer, HeldAmount, Ledger, Quota, Record};
use crate::refusal::QuotaRefusal;
use crate::resources::Resources;

/// A namespace on the way.
#[derive(Clone, Copy, Debug)]
pub struct Stop<'a> {
    /// By what the ledger of its parent knows it; the root has none.
    pub id: &'a str,
    /// Its name.
    pub name: &'a str,
    /// Its quota; none if the namespace or the quota is gone.
    pub quota: Option<&'a Quota>,
    /// Its record, which is read after the quota of its parent. The root has none.
    pub record: &'a Record,
}

/// An amount on its way.
#[derive(Clone, Copy, Debug)]
pub struct Transfer<'a> {
    /// No other transfer ever has the same.
    pub id: &'a str,
    /// Its name, by which the source remembers it.
    pub name: &'a str,
    /// How much.
    pub amount: &'a Resources,
    /// The namespaces from the source to the target. Only those at its [places](Self::places) are looked at.
    pub stops: &'a [Stop<'a>],
    /// The place of the ancestor, up to which the way leads up.
    pub top: usize,
    /// How far the amount has come, as was recorded. None: nothing is known to have been taken.
    pub at: Option<usize>,
    /// Whether it returns.
    pub reversing: bool,
    /// Whether it is not wanted any more: then it returns, unless it has arrived.
    pub cancelled: bool,
}

/// What a write is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TransferStep {
    /// The source holds the amount.
    Take,
    /// It begins to move to the next namespace.
    Move,
    /// The namespace has it as its own.
    Release,
    /// The source remembers that it has arrived.
    Remember,
}

/// What is to be done now.
#[derive(Clone, Debug, PartialEq)]
pub enum TransferDecision {
    /// The ledger of the namespace at this place, with the revision that was read. Then everything is read and decided again.
    Write(TransferStep, usize, Ledger),
    /// The amount has come to this place: to be recorded first.
    At(usize),
    /// Nothing until something changes, or until then.
    Wait(Option<Timestamp>),
    /// One of this name has moved the same amount to the same namespace then: nothing is taken.
    AlreadyApplied(Timestamp),
    /// Nothing was taken.
    Refused(Box<QuotaRefusal>),
    /// It cannot arrive: to be recorded first.
    Reverse(Box<QuotaRefusal>),
    /// It is nowhere on its way: the target has it, if all quotas were as they were read at one time. So for the two below.
    Arrived,
    /// The source has what it had.
    Returned,
    /// The namespace that had it is gone or has lost its quota: whoever has the quota of that one has the amount.
    Dissolved,
}

/// Where the amount is.
enum Found<'a> {
    Held(usize, &'a HeldAmount),
    Moving,
    Nowhere,
}

impl<'a> Transfer<'a> {
    /// The places whose quotas a decision rests on: those next to where the amount is and, once it is with the target, the source.
    pub fn places(at: Option<usize>, count: usize) -> Vec<usize> {
        let near = Self::near(at, count);
        let source = (near.start > 0 && at == count.checked_sub(1)).then_some(0);
        source.into_iter().chain(near).collect()
    }

    fn near(at: Option<usize>, count: usize) -> std::ops::Range<usize> {
        at.map_or(0..count.min(1), |at| at.saturating_sub(1)..at.saturating_add(2).min(count))
    }

    /// The next step.
    pub fn decide(&self, now: Timestamp) -> TransferDecision {
        if self.cancelled && !self.reversing && self.at.is_none_or(|at| at < self.last()) {
            return TransferDecision::Reverse(Box::new(QuotaRefusal::Cancelled));
        }
        match self.find() {
            Found::Moving => TransferDecision::Wait(None),
            Found::Held(place, _) if self.at != Some(place) => TransferDecision::At(place),
            Found::Held(place, _) if self.reversing => self.back(place, now),
            Found::Held(place, held) => self.forward(place, held, now),
            Found::Nowhere => self.nowhere(now),
        }
    }

    fn last(&self) -> usize {
        self.stops.len().saturating_sub(1)
    }

    fn quota(&self, place: usize) -> Option<&'a Quota> {
        self.stops.get(place)?.quota
    }

    /// A change of an allotment comes first: while it is under way the child may have the amount already.
    fn find(&self) -> Found<'a> {
        let places = Self::near(self.at, self.stops.len());
        for place in places.clone().skip(1) {
            let (above, below) = self.edge(place - 1, place);
            let change = self.quota(above).and_then(|quota| quota.ledger.changes.get(self.stops[below].id));
            if change.is_some_and(|change| change.transfer.as_deref() == Some(self.id)) {
                return Found::Moving;
            }
        }
        let held = |place| Some(Found::Held(place, self.quota(place)?.ledger.held.get(self.id)?));
        places.into_iter().find_map(held).unwrap_or(Found::Nowhere)
    }

    /// Of two neighbors the upper one and the lower one.
    fn edge(&self, one: usize, other: usize) -> (usize, usize) {
        let (first, second) = (one.min(other), one.max(other));
        if second <= self.top { (second, first) } else { (first, second) }
    }

    fn forward(&self, place: usize, held: &HeldAmount, now: Timestamp) -> TransferDecision {
        if place == self.last() {
            return self.release(place);
        }
        let (Some(stop), Some(quota)) = (self.stops.get(place), self.quota(place)) else {
            return TransferDecision::Wait(None);
        };
        let next = place + 1;
        if place == 0 && !quota.is_shrunk(self.amount) && !active(Mutant::TransferAtOnce) {
            if now < held.given_up() {
                return TransferDecision::Wait(Some(held.given_up()));
            }
            return TransferDecision::Reverse(Box::new(not_shrunk(stop.name, quota, self.amount)));
        }
        if self.quota(next).is_none() {
            let namespace = self.stops[next].name.to_owned();
            return TransferDecision::Reverse(Box::new(QuotaRefusal::Gone { namespace }));
        }
        self.step(place, next, now)
    }

    fn back(&self, place: usize, now: Timestamp) -> TransferDecision {
        let Some(next) = place.checked_sub(1) else { return self.release(place) };
        // What would return to a namespace that is gone returns to the one above it.
        if self.quota(next).is_none() { self.release(place) } else { self.step(place, next, now) }
    }

    fn release(&self, place: usize) -> TransferDecision {
        match self.quota(place).filter(|quota| quota.is_as_recorded()) {
            Some(quota) => TransferDecision::Write(
                TransferStep::Release,
                place,
                release(&quota.ledger, self.id).unwrap_or_else(|| quota.ledger.clone()),
            ),
            None => TransferDecision::Wait(None),
        }
    }

    /// Between two neighbors that have their quotas.
    fn step(&self, from: usize, to: usize, now: Timestamp) -> TransferDecision {
        let wait = TransferDecision::Wait(None);
        let (above, below) = self.edge(from, to);
        let child = &self.stops[below];
        let (Some(parent), Some(quota)) = (self.quota(above), child.quota) else { return wait };
        // Nothing is recorded of a namespace that was given nothing yet, and its quota limits it to nothing.
        let has = quota.ledger.allotment.emptied().larger(&child.record.allotment);
        // What somebody else has written is put right, and what is being changed is ended, before.
        let quiet = parent.is_as_recorded()
            && quota.is_as_recorded()
            && quota.ledger.allotment.limits_like(&has)
            && !parent.ledger.changes.contains_key(child.id)
            && parent.ledger.changes.len() < MAX_CHANGES;
        let down = from == above;
        let to = if down { has.plus(self.amount) } else { Some(has.minus(self.amount)) };
        let given =
            if down { parent.ledger.given.plus(self.amount) } else { Some(parent.ledger.given.clone()) };
        let (true, Some(to), Some(given)) = (quiet, to, given) else { return wait };
        let number = quota.ledger.decided.max(child.record.decided) + 1;
        let transfer = Some(self.id.to_owned());
        let change = AllotmentChange { number, from: has, to, since: now, transfer, moves: None };
        let mut ledger = Ledger { given, ..parent.ledger.clone() };
        if down {
            ledger.held.remove(self.id);
        }
        ledger.changes.insert(child.id.to_owned(), change);
        TransferDecision::Write(TransferStep::Move, above, ledger)
    }

    fn nowhere(&self, now: Timestamp) -> TransferDecision {
        match self.at {
            None if !self.reversing => self.take(now),
            None | Some(0) if self.reversing => TransferDecision::Returned,
            Some(at) if at == self.last() && !self.reversing => self.arrived(now),
            _ => TransferDecision::Dissolved,
        }
    }

    /// Where the source is gone there is nobody who could ask for the same.
    fn arrived(&self, now: Timestamp) -> TransferDecision {
        let Some(source) = self.quota(0) else { return TransferDecision::Arrived };
        let applied = self.applied(now);
        match source.ledger.applied.get(self.name) {
            Some(known) if known.is_same(&applied) => TransferDecision::Arrived,
            _ if !source.is_as_recorded() => TransferDecision::Wait(None),
            _ => {
                let ledger = source.ledger.remembering(self.name, applied);
                TransferDecision::Write(TransferStep::Remember, 0, ledger)
            }
        }
    }

    fn applied(&self, at: Timestamp) -> AppliedTransfer {
        let (to, id) = self
            .stops
            .last()
            .map(|target| (target.name.to_owned(), target.id.to_owned()))
            .unwrap_or_default();
        AppliedTransfer { to, id, amount: self.amount.clone(), at }
    }

    fn take(&self, now: Timestamp) -> TransferDecision {
        let Some(source) = self.stops.first() else { return TransferDecision::Wait(None) };
        let Some(quota) = source.quota else {
            let namespace = source.name.to_owned();
            return TransferDecision::Refused(Box::new(QuotaRefusal::Gone { namespace }));
        };
        let ledger = &quota.ledger;
        if let Some(at) = applied_before(ledger, self.name, &self.applied(now)) {
            return TransferDecision::AlreadyApplied(at);
        }
        if !quota.is_as_recorded() || ledger.held.len() >= MAX_CHANGES {
            return TransferDecision::Wait(None);
        }
        if let Some(refusal) = self.cannot_give(source.name, quota) {
            return TransferDecision::Refused(Box::new(refusal));
        }
        let mut taken = ledger.clone();
        taken.held.insert(self.id.to_owned(), HeldAmount { amount: self.amount.clone(), since: now });
        TransferDecision::Write(TransferStep::Take, 0, taken)
    }

    fn cannot_give(&self, source: &str, quota: &Quota) -> Option<QuotaRefusal> {
        let limited = &quota.ledger.allotment;
        if let Some((name, _)) = self.amount.iter().find(|(name, _)| !limited.names(name)) {
            let known: Vec<&str> = limited.iter().map(|(name, _)| name.as_str()).collect();
            return Some(QuotaRefusal::NotInTree { name: name.clone(), known: known.join(", ") });
        }
        let unused = quota.unused();
        let name = self.amount.beyond(&unused)?;
        Some(QuotaRefusal::CannotGive {
            name: name.clone(),
            namespace: source.to_owned(),
            amount: self.amount.get(name),
            own: quota.hard.get(name),
            used: quota.used.get(name),
            unused: unused.get(name),
        })
    }
}

/// When an earlier transfer of this name did the same, as the ledger of its source remembers; none if none did.
pub fn applied_before(ledger: &Ledger, name: &str, same: &AppliedTransfer) -> Option<Timestamp> {
    let known = ledger.applied.get(name).filter(|_| !active(Mutant::AppliedIgnored));
    known.filter(|known| known.is_same(same)).map(|known| known.at)
}

/// The ledger of a namespace that holds nothing for a transfer any more; none if it does not.
pub fn release(ledger: &Ledger, transfer: &str) -> Option<Ledger> {
    let mut released = ledger.clone();
    released.held.remove(transfer).map(|_| released)
}
