//! What a namespace of a tree has, what it gave, and the changes under way; and the native quota that carries it.

use std::collections::BTreeMap;

use coppice_mutants::{Mutant, active};
use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};

use crate::resource_name::ResourceName;
use crate::resources::Resources;

/// A change that takes longer to make a quota smaller is given up.
const SHRINK_WITHIN: SignedDuration = SignedDuration::from_secs(30);

/// How many transfers a source remembers; of more, the oldest are removed.
const MAX_APPLIED: usize = 128;
/// As many bytes they have at most: the ledger is an annotation, and those of an object have 256 KiB together.
const MAX_APPLIED_BYTES: usize = 64 << 10;

/// What is written down in a namespace's native quota beside its limits, so that one compare-and-swap changes both.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Ledger {
    /// What the namespace was given, by its parent or, of a root, by the tree. Names every resource that the tree limits.
    pub allotment: Resources,
    /// What its children have, and what was taken for them.
    pub given: Resources,
    /// The last change of its allotment that was decided here, carried out or refused.
    #[serde(default)]
    pub decided: u64,
    /// To what the allotment is being lowered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lowering: Option<Box<Lowering>>,
    /// Changes of its children's allotments that are under way, by the child's id.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub changes: BTreeMap<String, AllotmentChange>,
    /// Amounts of its allotment that are here on their way to another namespace, by the transfer's id: nobody can use them.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub held: BTreeMap<String, HeldAmount>,
    /// Allotments of namespaces that come to be right below this one, by the id that they have here: nobody can use them. One of nothing
    /// is [expected](crate::Departure).
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub arriving: BTreeMap<String, HeldAmount>,
    /// By which id alone the allotment changes; none: by any. So what a namespace has stands still until it is below another.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub changed_by: Option<Box<str>>,
    /// Transfers from here that have arrived, by the name of the object, which may be gone: the same again does nothing.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub applied: BTreeMap<String, AppliedTransfer>,
}

/// An amount that has come this far on its way.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct HeldAmount {
    /// How much.
    pub amount: Resources,
    /// When it was taken, or began to move here.
    pub since: Timestamp,
}

/// A transfer that has arrived.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AppliedTransfer {
    /// The namespace that has the amount,
    pub to: String,
    /// and its id: a later namespace of the same name is another one.
    pub id: String,
    /// How much.
    pub amount: Resources,
    /// When it arrived.
    pub at: Timestamp,
}

/// What is known of a namespace's allotment without its quota, which goes with the namespace.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Record {
    /// Its allotment,
    pub allotment: Resources,
    /// and the last change of it that was decided.
    pub decided: u64,
}

/// An allotment that becomes smaller: the own quota is lowered first, and the allotment when that is in force.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Lowering {
    /// The new allotment.
    pub to: Resources,
    /// When it was begun.
    pub since: Timestamp,
}

/// The change of one child's allotment, in the ledger of the parent from its beginning to its end.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct AllotmentChange {
    /// Decided once the child's ledger has decided this number.
    pub number: u64,
    /// What the child had.
    pub from: Resources,
    /// What it is to have: of no resource less, or of none more.
    pub to: Resources,
    /// When it was begun.
    pub since: Timestamp,
    /// The transfer whose amount it moves, between what both of them hold. None: the child asked for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub transfer: Option<String>,
    /// The child whose allotment it moves: out of one that is going away, or into the child itself, to or from what is
    /// [arriving](Ledger::arriving).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub moves: Option<String>,
}

impl Ledger {
    /// The ledger of a namespace that has, and gave, that much.
    pub fn new(allotment: Resources, given: Resources) -> Self {
        Self { allotment, given, ..Self::default() }
    }

    /// The ledger of a namespace of which only that is known, and what its children have.
    pub fn restored(record: Record, given: Resources) -> Self {
        Self { decided: record.decided, ..Self::new(record.allotment, given) }
    }

    /// The own quota, which has to be the `spec.hard` of the native one.
    pub fn own(&self) -> Resources {
        let allotment = self.lowering.as_ref().map_or(&self.allotment, |lowering| &lowering.to);
        allotment.minus(&self.given).minus(&self.on_the_way())
    }

    /// What it holds for transfers and for namespaces that come to be below it, together.
    pub fn on_the_way(&self) -> Resources {
        let arriving = self.arriving.values().filter(|_| !active(Mutant::ArrivingUncounted));
        let amounts = self.held.values().chain(arriving).map(|held| &held.amount);
        // What is held is part of the allotment, so the sum is a quantity.
        amounts.fold(Resources::default(), |sum, amount| sum.plus(amount).unwrap_or(sum))
    }

    /// Whether something is on its way into the child with this id, out of one that is going away.
    pub(crate) fn is_moving(&self, id: &str) -> bool {
        self.changes.iter().any(|(child, change)| child != id && change.moves.as_deref() == Some(id))
    }

    /// Takes in what a transfer or a move that has ended does not leave with the child; what the child itself had asked for is its own again
    /// by what it gives.
    pub(crate) fn take_back(&mut self, change: &AllotmentChange) {
        let HeldAmount { amount, since } = change.held();
        if let Some(transfer) = &change.transfer {
            self.held.insert(transfer.clone(), HeldAmount { amount, since });
        } else if let Some(child) = &change.moves {
            let before = self.arriving.get(child).map(|held| held.amount.clone()).unwrap_or_default();
            // Both are a part of the allotment, so the sum is a quantity.
            let amount = before.plus(&amount).unwrap_or(amount);
            self.arriving.insert(child.clone(), HeldAmount { amount, since });
        }
    }

    /// The ledger that remembers one more transfer.
    pub(crate) fn remembering(&self, name: &str, applied: AppliedTransfer) -> Self {
        let mut ledger = self.clone();
        ledger.applied.insert(name.to_owned(), applied);
        let bytes = |ledger: &Self| -> usize {
            ledger.applied.iter().map(|(name, applied)| applied.bytes_under(name)).sum()
        };
        while ledger.applied.len() > MAX_APPLIED || bytes(&ledger) > MAX_APPLIED_BYTES {
            let others = ledger.applied.iter().filter(|(other, _)| *other != name);
            let oldest = others.min_by_key(|(_, applied)| applied.at);
            let Some(oldest) = oldest.map(|(name, _)| name.clone()) else { break };
            ledger.applied.remove(&oldest);
        }
        ledger
    }
}

impl AppliedTransfer {
    /// Whether both say the same, whenever they arrived.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        (&self.to, &self.id, &self.amount) == (&other.to, &other.id, &other.amount)
    }

    /// As many bytes as it has at most in a ledger, under this name: what is written around its parts, and numbers, are estimated.
    fn bytes_under(&self, name: &str) -> usize {
        let amount: usize = self.amount.iter().map(|(resource, _)| resource.as_str().len() + 32).sum();
        name.len() + self.to.len() + self.id.len() + amount + 96
    }
}

impl AllotmentChange {
    /// What the child has at most while it is not certain whether the change was carried out.
    pub fn larger(&self) -> Resources {
        self.from.larger(&self.to)
    }

    /// Whether the child is to have more.
    pub fn grows(&self) -> bool {
        self.from.within(&self.to)
    }

    /// What one end has to give up before the other gets anything.
    pub fn taken(&self) -> Resources {
        self.larger().minus(&self.from.smaller(&self.to))
    }

    /// What moves, on its way.
    pub(crate) fn held(&self) -> HeldAmount {
        HeldAmount { amount: self.taken(), since: self.since }
    }

    /// When it is given up, if what it takes is not free until then.
    pub fn given_up(&self) -> Timestamp {
        given_up(self.since)
    }
}

impl HeldAmount {
    /// When it returns, if what was taken is not free until then.
    pub fn given_up(&self) -> Timestamp {
        given_up(self.since)
    }
}

impl Lowering {
    /// When it is given up, if what it takes is not free until then.
    pub fn given_up(&self) -> Timestamp {
        given_up(self.since)
    }
}

fn given_up(since: Timestamp) -> Timestamp {
    since.checked_add(SHRINK_WITHIN).unwrap_or(Timestamp::MAX)
}

/// The native quota of a namespace, as it was read at one revision.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Quota {
    /// `spec.hard`
    pub hard: Resources,
    /// `status.hard`, by which the API server admits.
    pub enforced: Resources,
    /// `status.used`
    pub used: Resources,
    /// What is written beside it.
    pub ledger: Ledger,
}

impl Quota {
    /// What counts as the own quota: the larger of what was asked for and what is in force.
    pub fn own(&self) -> Resources {
        self.hard.larger(&self.enforced)
    }

    /// What its workloads do not use, and it can give.
    pub fn unused(&self) -> Resources {
        self.hard.minus(&self.used)
    }

    /// What is used beyond the own quota. Unknown while something is under way: what was lowered for that may return.
    pub fn overdraft(&self) -> Option<Resources> {
        let Ledger { lowering, changes, held, arriving, .. } = &self.ledger;
        let quiet = lowering.is_none() && changes.is_empty() && held.is_empty() && arriving.is_empty();
        quiet.then(|| self.used.minus(&self.own()))
    }

    /// What is neither its own quota nor its children's.
    pub fn free(&self) -> Resources {
        self.ledger.allotment.minus(&self.own()).minus(&self.ledger.given)
    }

    /// Whether the limits are the ledger's own quota. They are not if somebody else has written them.
    pub fn is_as_recorded(&self) -> bool {
        self.hard.limits_like(&self.ledger.own())
    }

    /// Whether a quota that became smaller is in force, and what is used of what was taken from it is within it.
    pub fn is_shrunk(&self, taken: &Resources) -> bool {
        self.is_as_recorded()
            && (self.enforced.limits_like(&self.hard) || active(Mutant::QuotaGivenAtOnce))
            && (self.still_used(taken).is_none() || active(Mutant::UsedQuotaTaken))
    }

    /// What is used beyond the own quota, of what was taken from it.
    pub fn still_used<'a>(&self, taken: &'a Resources) -> Option<&'a ResourceName> {
        let mut taken = taken.iter().filter(|(_, taken)| !taken.is_zero()).map(|(name, _)| name);
        taken.find(|name| self.used.get(name) > self.hard.get(name))
    }
}
