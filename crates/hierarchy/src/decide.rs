//! The one next step of a change, from whatever state there is.
//!
//! An amount is taken first and given last. Both ends of a change are ledgers in native quotas, written by compare-and-swap:
//!
//! 1. *Begin*: the parent's ledger records the change; what it takes leaves the parent's own quota in the same write.
//! 2. *Lower*, if the child is to have less: the child's own quota.
//! 3. *Decide*, once what was lowered is in force: the child's ledger has the new allotment and the number of the change. Or
//!    it has the number alone: the change is refused, and nobody can carry it out any more.
//! 4. *Report*: the child's record has the same allotment and number. It is what is known if the quota is gone with its namespace.
//! 5. *End*: the parent's ledger counts what is recorded now, and the rest is its own quota again, in the same write.
//!
//! Nothing else is remembered: who finds a change continues it. What is counted for a child is never less than it has, so
//! two that carry out the same change, with steps of one delayed, lost or repeated, give nothing twice.

use coppice_mutants::{Mutant, active};
use jiff::Timestamp;

use crate::ledger::{AllotmentChange, Ledger, Lowering, Quota, Record};
use crate::moves;
use crate::refusal::QuotaRefusal;
use crate::resources::Resources;

/// The changes of children that one ledger has under way at most; further ones wait.
pub const MAX_CHANGES: usize = 64;

/// A namespace and the quota that it gives from.
#[derive(Clone, Copy, Debug)]
pub struct Parent<'a> {
    /// Its name.
    pub name: &'a str,
    /// Its quota.
    pub quota: &'a Quota,
    /// What its children do not use, for the way out of a refusal.
    pub siblings: &'a [(String, Resources)],
}

/// A namespace whose allotment is decided.
///
/// Its quota and its record are read *after* the quota of its parent: without a change in the parent's ledger neither of them
/// changes, so they are what they are when that ledger is written with the revision that was read.
#[derive(Clone, Copy, Debug)]
pub struct Child<'a> {
    /// By what the parent's ledger knows it. No other child ever has the same, also none of its name.
    pub id: &'a str,
    /// Its name.
    pub name: &'a str,
    /// Whether there is such a namespace. If it is certain that there is none, all of its allotment returns.
    pub exists: bool,
    /// Whether the namespace is being deleted. Its quota goes with it, and is left alone: what is under way is decided in the record, so that
    /// what others have of its allotment can [leave](crate::Departure) it.
    pub ends: bool,
    /// Its quota. One that was lost is made again as it was recorded; a policy has to keep others from deleting it.
    pub quota: Option<&'a Quota>,
    /// What is known of its allotment without its quota.
    pub record: &'a Record,
    /// What its own children have by their records.
    pub below: &'a Resources,
}

/// One write. Where it is a ledger, the limits become its [`own`](Ledger::own).
#[derive(Clone, Debug, PartialEq)]
pub enum Write {
    /// The quota of the parent.
    Parent(Ledger),
    /// The quota of the namespace itself.
    Own(Ledger),
    /// The record of the namespace's allotment.
    Record(Record),
}

/// What a write is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum QuotaStep {
    /// A change is recorded, and what it takes is taken.
    Begin,
    /// The own quota becomes smaller ahead of the allotment.
    Lower,
    /// The change is carried out.
    Decide,
    /// It will not be.
    Refuse(Box<QuotaRefusal>),
    /// The record follows.
    Report,
    /// The change has ended.
    End,
    /// A namespace has no quota yet.
    Establish,
    /// Somebody else has written a quota: it becomes what its ledger says.
    Repair,
}

/// What is to be done now.
#[derive(Clone, Debug, PartialEq)]
pub enum QuotaDecision {
    /// Nothing: the namespace has what it is to have.
    Done,
    /// One write, with the revision that was read. Then everything is read and decided again.
    Write(QuotaStep, Write),
    /// Nothing until something changes, or until then.
    Wait(Option<Timestamp>),
    /// What is asked for cannot be given now, and nothing was begun.
    Refused(Box<QuotaRefusal>),
}

/// The next step for a namespace to have the allotment that is wanted.
pub fn decide(parent: &Parent<'_>, child: &Child<'_>, want: &Resources, now: Timestamp) -> QuotaDecision {
    // It comes to be below another namespace, and its allotment is changed there alone.
    let fenced =
        child.quota.and_then(|quota| quota.ledger.changed_by.as_deref()).is_some_and(|only| only != child.id);
    if child.exists && fenced {
        return QuotaDecision::Wait(None);
    }
    let nothing = parent.quota.ledger.allotment.emptied();
    // What is not asked for is limited to nothing; without a limit there would be any amount of it.
    let want = if child.exists { &nothing.larger(want) } else { &nothing };
    if !parent.quota.is_as_recorded() {
        return QuotaDecision::Write(QuotaStep::Repair, Write::Parent(parent.quota.ledger.clone()));
    }
    if child.exists
        && !child.ends
        && let Some(quota) = child.quota
        && !quota.is_as_recorded()
    {
        return QuotaDecision::Write(QuotaStep::Repair, Write::Own(quota.ledger.clone()));
    }
    let Some(change) = parent.quota.ledger.changes.get(child.id) else {
        return start(parent, child, want, now);
    };
    if child.record.decided >= change.number {
        end(parent, child, change)
    } else if child.exists && !child.ends {
        resume(parent, child, change, want, now)
    } else {
        let allotment = if child.exists { moves::left(child, change) } else { nothing };
        let last = Record { allotment, decided: change.number };
        QuotaDecision::Write(QuotaStep::Report, Write::Record(last))
    }
}

/// Why a namespace that is still to be created would not get what is asked for; none if it would, or if that is decided once the quota
/// of its parent is what its ledger says.
pub fn refused_to_new(parent: &Parent<'_>, name: &str, asked: &Resources) -> Option<QuotaRefusal> {
    let nothing = parent.quota.ledger.allotment.emptied();
    let (record, below) = (Record { allotment: nothing.clone(), decided: 0 }, Resources::default());
    let child =
        Child { id: name, name, exists: true, ends: false, quota: None, record: &record, below: &below };
    let refusal = || refusal(parent, &child, &nothing, &nothing.larger(asked));
    parent.quota.is_as_recorded().then(refusal).flatten()
}

/// Without a change under way: what is recorded is what the namespace has, and what its parent counts.
fn start(parent: &Parent<'_>, child: &Child<'_>, want: &Resources, now: Timestamp) -> QuotaDecision {
    let ledger = &parent.quota.ledger;
    let has = ledger.allotment.emptied().larger(&child.record.allotment);
    if let Some(decision) = moves::arrive(ledger, child, &has, now) {
        return decision;
    }
    if child.ends {
        return QuotaDecision::Done;
    }
    if child.exists && child.quota.is_none() {
        let record = Record { allotment: has, decided: child.record.decided };
        let restored = Ledger::restored(record, child.below.clone());
        return QuotaDecision::Write(QuotaStep::Establish, Write::Own(restored));
    }
    let quota = child.quota.filter(|_| child.exists);
    let decided = quota.map_or(0, |quota| quota.ledger.decided).max(child.record.decided);
    let begin = |to| {
        let number = decided + 1;
        let (from, since) = (has.clone(), now);
        begin(ledger, child.id, AllotmentChange { number, from, to, since, transfer: None, moves: None })
    };
    // Somebody else has written the quota, or the tree limits more than it did; or the parent's quota was lost with the change for which
    // this one was being lowered. Only with a change in the parent's ledger it is certain that this is not one that was carried out
    // meanwhile.
    let is_disturbed =
        |quota: &Quota| !quota.ledger.allotment.limits_like(&has) || quota.ledger.lowering.is_some();
    if quota.is_some_and(is_disturbed) {
        return begin(has.clone());
    }
    if *want == has {
        return QuotaDecision::Done;
    }
    if child.exists
        && let Some(refusal) = refusal(parent, child, &has, want)
    {
        return QuotaDecision::Refused(Box::new(refusal));
    }
    // What becomes smaller goes first: a change takes from one end only.
    let smaller = want.smaller(&has);
    begin(if smaller == has { want.clone() } else { smaller })
}

pub(crate) fn begin(ledger: &Ledger, id: &str, change: AllotmentChange) -> QuotaDecision {
    // What is given never exceeds the allotment, so the sum is a quantity.
    let given = ledger.given.plus(&change.larger().minus(&change.from));
    let Some(given) = given.filter(|_| ledger.changes.len() < MAX_CHANGES) else {
        return QuotaDecision::Wait(None);
    };
    let mut begun = Ledger { given, ..ledger.clone() };
    begun.changes.insert(id.to_owned(), change);
    QuotaDecision::Write(QuotaStep::Begin, Write::Parent(begun))
}

/// Why nothing is begun. All of what is wanted is considered, not only the first change on the way there.
fn refusal(
    parent: &Parent<'_>,
    child: &Child<'_>,
    has: &Resources,
    want: &Resources,
) -> Option<QuotaRefusal> {
    let limited = &parent.quota.ledger.allotment;
    if let Some((name, _)) = want.iter().find(|(name, _)| !limited.names(name)) {
        let known: Vec<&str> = limited.iter().map(|(name, _)| name.as_str()).collect();
        return Some(QuotaRefusal::NotInTree { name: name.clone(), known: known.join(", ") });
    }
    if let Some(refusal) = child.quota.and_then(|quota| in_use(child.name, quota, want)) {
        return Some(refusal);
    }
    if active(Mutant::AdmittedUnchecked) {
        return None;
    }
    let needed = want.minus(has);
    let unused = parent.quota.unused();
    let name = needed.beyond(&unused)?;
    let siblings = parent.siblings.iter().filter(|(sibling, _)| sibling != child.name);
    let siblings = siblings.map(|(sibling, unused)| (sibling.clone(), unused.get(name)));
    Some(QuotaRefusal::TooLittle {
        name: name.clone(),
        needed: needed.get(name),
        parent: parent.name.to_owned(),
        own: parent.quota.hard.get(name),
        used: parent.quota.used.get(name),
        unused: unused.get(name),
        most: has.plus(&unused).unwrap_or_default().get(name),
        sibling: siblings.filter(|(_, unused)| !unused.is_zero()).max_by_key(|(_, unused)| *unused),
    })
}

/// Why a namespace cannot have as little as that.
fn in_use(namespace: &str, quota: &Quota, to: &Resources) -> Option<QuotaRefusal> {
    if active(Mutant::UsedQuotaTaken) {
        return None;
    }
    let allotment = &quota.ledger.allotment;
    let given = &quota.ledger.given.plus(&quota.ledger.on_the_way())?;
    let least = quota.used.plus(given)?;
    // Only of what becomes smaller: what is overdrawn already may stay as it is.
    let smaller = |name| to.get(name) < allotment.get(name);
    let (name, least) = least.iter().find(|(name, least)| smaller(name) && *least > to.get(name))?;
    let (used, given) = (quota.used.get(name), given.get(name));
    Some(QuotaRefusal::InUse { name: name.clone(), namespace: namespace.to_owned(), used, given, least })
}

/// A change that was begun.
fn resume(
    parent: &Parent<'_>,
    child: &Child<'_>,
    change: &AllotmentChange,
    want: &Resources,
    now: Timestamp,
) -> QuotaDecision {
    if change.moves.is_some() {
        return moves::take_up(child, change);
    }
    let Some(quota) = child.quota else {
        // It was deleted by somebody. Nobody can say any more what it was: as before the change, which is refused.
        let record = Record { allotment: change.from.clone(), decided: change.number };
        let restored = Ledger::restored(record, child.below.clone());
        return QuotaDecision::Write(QuotaStep::Establish, Write::Own(restored));
    };
    if quota.ledger.decided >= change.number {
        let Ledger { allotment, decided, .. } = &quota.ledger;
        let record = Record { allotment: allotment.clone(), decided: *decided };
        return QuotaDecision::Write(QuotaStep::Report, Write::Record(record));
    }
    if quota.ledger.allotment != change.from {
        return refuse(quota, change, QuotaRefusal::Disturbed { namespace: child.name.to_owned() });
    }
    if let Some(transfer) = &change.transfer {
        return match moved(quota, change, transfer) {
            Some(ledger) => QuotaDecision::Write(QuotaStep::Decide, Write::Own(ledger)),
            None => refuse(quota, change, QuotaRefusal::Disturbed { namespace: child.name.to_owned() }),
        };
    }
    // Of what is not wanted any more nothing is carried out: the next change takes or leaves the right amount.
    let wanted =
        if change.grows() { change.to.within(want) } else { want.smaller(&change.from) == change.to };
    if !wanted {
        return refuse(quota, change, QuotaRefusal::Superseded);
    }
    let (source, name) = if change.grows() { (parent.quota, parent.name) } else { (quota, child.name) };
    if !change.grows() && quota.ledger.lowering.is_none() {
        let lowering = Some(Box::new(Lowering { to: change.to.clone(), since: change.since }));
        return match in_use(child.name, quota, &change.to) {
            Some(refusal) => refuse(quota, change, refusal),
            None => QuotaDecision::Write(
                QuotaStep::Lower,
                Write::Own(Ledger { lowering, ..quota.ledger.clone() }),
            ),
        };
    }
    if source.is_shrunk(&change.taken()) {
        let decided = Ledger {
            allotment: change.to.clone(),
            decided: change.number,
            lowering: None,
            ..quota.ledger.clone()
        };
        return QuotaDecision::Write(QuotaStep::Decide, Write::Own(decided));
    }
    if now >= change.given_up() {
        return refuse(quota, change, not_shrunk(name, source, &change.taken()));
    }
    QuotaDecision::Wait(Some(change.given_up()))
}

/// The ledger of a child once the amount of a transfer has moved into it, or out of it. The own quota of neither end changes: before
/// the first such change, what was taken was not in use any more.
fn moved(quota: &Quota, change: &AllotmentChange, transfer: &str) -> Option<Ledger> {
    let ledger = &quota.ledger;
    let mut moved = Ledger { allotment: change.to.clone(), decided: change.number, ..ledger.clone() };
    if change.grows() {
        moved.held.insert(transfer.to_owned(), change.held());
    } else {
        moved.held.remove(transfer)?;
    }
    Some(moved)
}

/// The change cannot be carried out any more, and its amount is what it was.
fn refuse(quota: &Quota, change: &AllotmentChange, refusal: QuotaRefusal) -> QuotaDecision {
    let ledger = Ledger {
        allotment: change.from.clone(),
        decided: change.number,
        lowering: None,
        ..quota.ledger.clone()
    };
    QuotaDecision::Write(QuotaStep::Refuse(Box::new(refusal)), Write::Own(ledger))
}

/// Why what was lowered is not lower.
pub(crate) fn not_shrunk(namespace: &str, quota: &Quota, taken: &Resources) -> QuotaRefusal {
    let namespace = namespace.to_owned();
    let Some(name) = quota.still_used(taken) else { return QuotaRefusal::NotInForce { namespace } };
    let (used, own) = (quota.used.get(name), quota.hard.get(name));
    QuotaRefusal::StillUsed { name: name.clone(), namespace, used, own }
}

/// The parent has back what the child does not have by its record. Only the record counts, which was written once for this
/// change: who has seen the namespace, and who knows that it is gone, would end the same change differently.
fn end(parent: &Parent<'_>, child: &Child<'_>, change: &AllotmentChange) -> QuotaDecision {
    let ledger = &parent.quota.ledger;
    let back = change.larger().minus(&child.record.allotment);
    let given =
        if active(Mutant::QuotaNotReturned) { ledger.given.clone() } else { ledger.given.minus(&back) };
    let mut ended = Ledger { given, ..ledger.clone() };
    ended.changes.remove(child.id);
    // What comes back is what did not move down, or what moved up; also from a namespace that is gone.
    let comes_back = if change.grows() { &change.to } else { &change.from } != &child.record.allotment;
    if comes_back {
        ended.take_back(change);
    }
    QuotaDecision::Write(QuotaStep::End, Write::Parent(ended))
}

/// The next step for a root to have what its tree has in total. `below`: what its children have by their records, for a quota that was
/// lost and has to be made again.
pub fn decide_root(
    name: &str,
    quota: Option<&Quota>,
    total: &Resources,
    below: &Resources,
    now: Timestamp,
) -> QuotaDecision {
    let Some(quota) = quota else {
        let given = total.emptied().larger(below);
        return QuotaDecision::Write(
            QuotaStep::Establish,
            Write::Own(Ledger::new(total.larger(below), given)),
        );
    };
    let ledger = &quota.ledger;
    if !quota.is_as_recorded() {
        return QuotaDecision::Write(QuotaStep::Repair, Write::Own(ledger.clone()));
    }
    let smaller = total.smaller(&ledger.allotment);
    let Some(lowering) = &ledger.lowering else {
        return start_root(name, quota, total, smaller, now);
    };
    let taken = ledger.allotment.minus(&lowering.to);
    if lowering.to != smaller {
        refuse_root(ledger, QuotaRefusal::Superseded)
    } else if quota.is_shrunk(&taken) {
        QuotaDecision::Write(QuotaStep::Decide, Write::Own(with_allotment(ledger, &lowering.to)))
    } else if now >= lowering.given_up() {
        refuse_root(ledger, not_shrunk(name, quota, &taken))
    } else {
        QuotaDecision::Wait(Some(lowering.given_up()))
    }
}

fn start_root(
    name: &str,
    quota: &Quota,
    total: &Resources,
    smaller: Resources,
    now: Timestamp,
) -> QuotaDecision {
    let ledger = &quota.ledger;
    // A resource that the tree limits to nothing is limited, too.
    if total.limits_like(&ledger.allotment) {
        return QuotaDecision::Done;
    }
    if smaller == ledger.allotment {
        return QuotaDecision::Write(QuotaStep::Decide, Write::Own(with_allotment(ledger, total)));
    }
    if let Some(refusal) = in_use(name, quota, &smaller) {
        return QuotaDecision::Refused(Box::new(refusal));
    }
    let lowering = Some(Box::new(Lowering { to: smaller, since: now }));
    QuotaDecision::Write(QuotaStep::Lower, Write::Own(Ledger { lowering, ..ledger.clone() }))
}

fn refuse_root(ledger: &Ledger, refusal: QuotaRefusal) -> QuotaDecision {
    let raised = with_allotment(ledger, &ledger.allotment);
    QuotaDecision::Write(QuotaStep::Refuse(Box::new(refusal)), Write::Own(raised))
}

fn with_allotment(ledger: &Ledger, allotment: &Resources) -> Ledger {
    Ledger { allotment: allotment.clone(), lowering: None, ..ledger.clone() }
}
