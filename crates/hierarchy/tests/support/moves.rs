//! A tree in memory in which a namespace comes to be below its grandparent: namespaces and Subnamespaces, and who does what there.

use coppice_hierarchy::{
    Child, Departure, DepartureDecision, Ledger, Parent, Quota, QuotaDecision, Record, Write, decide,
};

use super::{Amounts, Stored, at, resources};

pub(crate) const TOTAL: Amounts = [20, 50];
/// Namespaces: the grandparent, the parent, the one that moves, and one beside the parent.
pub(crate) const TOP: usize = 0;
pub(crate) const PARENT: usize = 1;
pub(crate) const LEAF: usize = 2;
pub(crate) const BESIDE: usize = 3;
/// Their Subnamespaces, and that of the one that moves, below the grandparent.
pub(crate) const MOVED: usize = 4;

/// How far something has gone that is deleted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Life {
    There,
    Ends,
    Gone,
}

/// A write on its way, with the revision that was read.
#[derive(Clone, Debug)]
pub(crate) struct Message(Target, Option<u64>, Content);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Target {
    Quota(usize),
    Record(usize),
    /// The namespace that moves, whose label is set.
    Label,
    /// Subnamespaces: they are created, or end.
    Object(usize),
}

#[derive(Clone, Debug)]
pub(crate) enum Content {
    Ledger(Ledger),
    Record(Record),
    Life(Life),
    Moved,
}

/// What a replica does.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Task {
    /// An allotment is decided.
    Allot(usize),
    /// The one above it is going away.
    Leave,
    /// The new Subnamespace ends if there is nothing for it.
    Arrive,
}

/// Everything on the server. Reading is to keep all of it.
#[derive(Clone, Debug)]
pub(crate) struct Cluster {
    pub(crate) quotas: [Option<Stored<Quota>>; 4],
    pub(crate) records: [Stored<Record>; 5],
    /// Namespaces and Subnamespaces; the last one is created later.
    pub(crate) namespaces: [Life; 4],
    pub(crate) objects: [Stored<Option<Life>>; 5],
    /// Whose the namespace that moves is.
    pub(crate) label: Stored<usize>,
    pub(crate) wants: [Amounts; 4],
    pub(crate) revision: u64,
    pub(crate) now: i64,
}

impl Cluster {
    pub(crate) fn new() -> Self {
        let quota = |allotment: Amounts, given: Amounts| {
            let ledger = Ledger::new(resources(allotment), resources(given));
            let (hard, used) = (ledger.own(), resources([0, 0]));
            Some(Stored { revision: 1, object: Quota { enforced: hard.clone(), hard, used, ledger } })
        };
        let record = |has| Stored { revision: 1, object: Record { allotment: resources(has), decided: 0 } };
        Self {
            quotas: [
                quota(TOTAL, [13, 30]),
                quota([9, 20], [4, 8]),
                quota([4, 8], [0, 0]),
                quota([4, 10], [0, 0]),
            ],
            records: [
                record([0, 0]),
                record([9, 20]),
                record([4, 8]),
                record([4, 10]),
                Stored { revision: 1, object: Record::default() },
            ],
            namespaces: [Life::There; 4],
            objects: [Some(Life::There), Some(Life::There), Some(Life::There), Some(Life::There), None]
                .map(|object| Stored { revision: 1, object }),
            label: Stored { revision: 1, object: LEAF },
            wants: [[0, 0], [9, 20], [4, 8], [4, 10]],
            revision: 1,
            now: 0,
        }
    }

    pub(crate) fn quota(&self, namespace: usize) -> Option<&Quota> {
        self.quotas[namespace].as_ref().map(|stored| &stored.object)
    }

    pub(crate) fn life(&self, object: usize) -> Option<Life> {
        self.objects[object].object
    }

    /// The namespace of a Subnamespace.
    pub(crate) fn namespace(object: usize) -> usize {
        if object == MOVED { LEAF } else { object }
    }

    pub(crate) fn parent(object: usize) -> usize {
        if object == LEAF { PARENT } else { TOP }
    }

    /// The write that follows from what was read, one after the other.
    pub(crate) fn next([first, then, last]: [&Self; 3], task: Task) -> Option<Message> {
        match task {
            Task::Allot(object) => Self::allot(first, then, last, object),
            Task::Leave => Self::leave(first, then, last),
            Task::Arrive => Self::arrive(first, then, last),
        }
    }

    pub(crate) fn allot(first: &Self, then: &Self, last: &Self, object: usize) -> Option<Message> {
        let (parent, namespace) = (Self::parent(object), Self::namespace(object));
        let life = then.life(object).filter(|life| *life != Life::Gone)?;
        if namespace == LEAF && (last.label.object != object || object == LEAF && life == Life::Ends) {
            return None;
        }
        let exists = last.namespaces[namespace] != Life::Gone;
        let (quota, record) = (last.quota(namespace).filter(|_| exists), &then.records[object].object);
        let (id, below) = (object.to_string(), resources([0, 0]));
        let below = if namespace == PARENT { then.records[LEAF].object.allotment.clone() } else { below };
        let child = Child {
            id: &id,
            name: &id,
            exists,
            ends: last.namespaces[namespace] == Life::Ends,
            quota,
            record,
            below: &below,
        };
        let parent_quota = first.quota(parent)?;
        let name = parent.to_string();
        // A granted request: it keeps what it has.
        let want = if object == MOVED || namespace == PARENT {
            record.allotment.clone()
        } else {
            resources(then.wants[namespace])
        };
        let decision =
            decide(&Parent { name: &name, quota: parent_quota, siblings: &[] }, &child, &want, at(then.now));
        let QuotaDecision::Write(_, write) = decision else {
            let over = !exists && decision == QuotaDecision::Done && Self::is_unchanged(first, last, parent);
            return over.then(|| then.ends(object));
        };
        Some(match write {
            Write::Parent(ledger) => first.write_quota(parent, ledger),
            Write::Own(ledger) => last.write_quota(namespace, ledger),
            Write::Record(record) => {
                let revision = Some(then.records[object].revision);
                Message(Target::Record(object), revision, Content::Record(record))
            }
        })
    }

    /// That a ledger has nothing is believed only if it is read again with the same revision.
    pub(crate) fn is_unchanged(first: &Self, last: &Self, namespace: usize) -> bool {
        let revision = |cluster: &Self| cluster.quotas[namespace].as_ref().map(|stored| stored.revision);
        revision(first) == revision(last)
    }

    pub(crate) fn ends(&self, object: usize) -> Message {
        Message(Target::Object(object), Some(self.objects[object].revision), Content::Life(Life::Gone))
    }

    pub(crate) fn write_quota(&self, namespace: usize, ledger: Ledger) -> Message {
        let revision = self.quotas[namespace].as_ref().map(|stored| stored.revision);
        Message(Target::Quota(namespace), revision, Content::Ledger(ledger))
    }

    /// The namespace, its label and its quota were read first, then the quota of the grandparent.
    pub(crate) fn leave(first: &Self, then: &Self, last: &Self) -> Option<Message> {
        if first.life(LEAF) != Some(Life::Ends) || first.namespaces[PARENT] != Life::Ends {
            return None;
        }
        if first.namespaces[LEAF] == Life::Gone || first.label.object != LEAF {
            return Some(first.ends(LEAF));
        }
        let Some(life) = last.life(MOVED) else {
            let create = || {
                Message(Target::Object(MOVED), Some(last.objects[MOVED].revision), Content::Life(Life::There))
            };
            return (first.namespaces[LEAF] == Life::There).then(create);
        };
        if life == Life::Gone {
            // It ends after this one: that was read before.
            return None;
        }
        let departure = Departure {
            quota: first.quota(LEAF),
            ends: first.namespaces[LEAF] == Life::Ends,
            record: &first.records[LEAF].object,
            below: &resources([0, 0]),
            above: then.quota(TOP)?,
            id: &MOVED.to_string(),
            leaving: &PARENT.to_string(),
            leaving_record: &last.records[PARENT].object,
            between: &[],
        };
        match departure.decide(at(then.now)) {
            DepartureDecision::Own(ledger) => Some(first.write_quota(LEAF, ledger)),
            DepartureDecision::Above(ledger) => Some(then.write_quota(TOP, ledger)),
            DepartureDecision::Arrived => {
                Some(Message(Target::Label, Some(first.label.revision), Content::Moved))
            }
            // It is in vain: what was read first is old.
            DepartureDecision::Disturbed if then.revision < last.revision => None,
            DepartureDecision::Stays | DepartureDecision::Wait => None,
            DepartureDecision::Disturbed => panic!("nobody else has written anything"),
        }
    }

    /// Whether the other Subnamespace is there was read first, and the namespace after it.
    pub(crate) fn arrive(first: &Self, then: &Self, last: &Self) -> Option<Message> {
        then.life(MOVED).filter(|life| *life != Life::Gone)?;
        if first.life(LEAF) != Some(Life::Gone) || then.label.object == MOVED {
            return None;
        }
        let (record, below) = (&then.records[MOVED].object, resources([0, 0]));
        let id = MOVED.to_string();
        let child =
            Child { id: &id, name: &id, exists: false, ends: false, quota: None, record, below: &below };
        // Its parent's quota is read first.
        let parent = Parent { name: "0", quota: first.quota(TOP)?, siblings: &[] };
        match decide(&parent, &child, &resources([0, 0]), at(then.now)) {
            QuotaDecision::Write(_, Write::Parent(ledger)) => Some(first.write_quota(TOP, ledger)),
            QuotaDecision::Done if Self::is_unchanged(first, last, TOP) => Some(then.ends(MOVED)),
            _ => None,
        }
    }

    pub(crate) fn deliver(&mut self, Message(target, read, content): Message) -> bool {
        self.revision += 1;
        let revision = self.revision;
        match (target, content) {
            (Target::Quota(namespace), Content::Ledger(ledger)) => {
                let stored = &mut self.quotas[namespace];
                let newest = stored.as_ref().map(|stored| stored.revision) == read;
                // Nothing is created in a namespace that is being deleted.
                if !newest || stored.is_none() && self.namespaces[namespace] != Life::There {
                    return false;
                }
                let before = stored.take().map(|stored| stored.object).unwrap_or_default();
                let object = Quota { hard: ledger.own(), ledger, ..before };
                *stored = Some(Stored { revision, object });
                true
            }
            (Target::Record(object), Content::Record(record)) => {
                let newest = Some(self.records[object].revision) == read;
                if newest && self.life(object) != Some(Life::Gone) {
                    self.records[object] = Stored { revision, object: record };
                }
                newest
            }
            (Target::Object(object), Content::Life(life)) => {
                let newest = Some(self.objects[object].revision) == read;
                if newest {
                    self.objects[object] = Stored { revision, object: Some(life) };
                }
                newest
            }
            (Target::Label, Content::Moved) => {
                let newest = Some(self.label.revision) == read && self.namespaces[LEAF] != Life::Gone;
                if newest {
                    self.label = Stored { revision, object: MOVED };
                }
                newest
            }
            _ => false,
        }
    }

    pub(crate) fn update(&mut self, namespace: usize, change: impl FnOnce(&mut Quota)) {
        self.revision += 1;
        if let Some(stored) = &mut self.quotas[namespace] {
            stored.revision = self.revision;
            change(&mut stored.object);
        }
    }

    pub(crate) fn mirror(&mut self, namespace: usize) {
        self.update(namespace, |quota| quota.enforced = quota.hard.clone());
    }

    /// Somebody deletes the parent; what is in it follows.
    pub(crate) fn delete_parent(&mut self) {
        if self.namespaces[PARENT] == Life::There {
            self.namespaces[PARENT] = Life::Ends;
        }
    }

    pub(crate) fn delete_contents(&mut self) {
        if self.namespaces[PARENT] == Life::Ends && self.life(LEAF) == Some(Life::There) {
            self.revision += 1;
            self.objects[LEAF] = Stored { revision: self.revision, object: Some(Life::Ends) };
        }
    }

    pub(crate) fn delete_leaf(&mut self) {
        if self.namespaces[LEAF] == Life::There {
            self.revision += 1;
            self.namespaces[LEAF] = Life::Ends;
            self.label.revision = self.revision;
        }
    }

    /// A namespace that is being deleted is gone once it is empty.
    pub(crate) fn finish(&mut self, namespace: usize) {
        let empty = namespace != PARENT || self.life(LEAF) == Some(Life::Gone);
        if self.namespaces[namespace] == Life::Ends && self.quotas[namespace].is_none() && empty {
            self.namespaces[namespace] = Life::Gone;
        }
    }
}
