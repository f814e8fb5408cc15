//! Quotas on a server in memory: revisions, compare-and-swap, the quota controller, and what is true whatever ledgers say.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on has failed")]
#![allow(dead_code, reason = "each test uses its part of it")]

pub(crate) mod moves;
pub(crate) mod transfers;

use std::collections::BTreeMap;

use coppice_hierarchy::{
    Child, Ledger, Parent, Quota, QuotaDecision, Record, Resources, Write, decide, decide_root,
};
use jiff::Timestamp;

use transfers::{Status, Transferred};

/// The resources of these tests. Amounts are whole numbers below 1000, so they print as they are.
pub(crate) const NAMES: [&str; 2] = ["cpu", "memory"];

/// An amount of each of [`NAMES`].
pub(crate) type Amounts = [i64; 2];

pub(crate) fn resources(amounts: Amounts) -> Resources {
    let named = NAMES.iter().zip(amounts).map(|(name, amount)| (*name, amount.to_string().parse().unwrap()));
    Resources::parse(named).unwrap()
}

pub(crate) fn amounts(resources: &Resources) -> Amounts {
    NAMES.map(|name| resources.get(&name.parse().unwrap()).to_string().parse().unwrap())
}

pub(crate) fn added(one: Amounts, other: Amounts) -> Amounts {
    [one[0] + other[0], one[1] + other[1]]
}

pub(crate) fn at(second: i64) -> Timestamp {
    Timestamp::from_second(1_790_000_000 + second).unwrap()
}

/// An object with its revision.
#[derive(Clone, Debug)]
pub(crate) struct Stored<T> {
    pub(crate) revision: u64,
    pub(crate) object: T,
}

/// A namespace of the tree.
#[derive(Clone, Debug)]
pub(crate) struct Node {
    /// Its parent's place; none: the root.
    pub(crate) parent: Option<usize>,
    pub(crate) exists: bool,
    /// It is being deleted: nothing can be created in it.
    pub(crate) terminating: bool,
    pub(crate) quota: Option<Stored<Quota>>,
    pub(crate) record: Stored<Record>,
    /// What is asked for it.
    pub(crate) want: Amounts,
    /// What it truly has: of the last ledger that was written, until the namespace is gone.
    pub(crate) has: Amounts,
}

/// A write on its way, with the revision that was read; none: it creates.
#[derive(Clone, Debug)]
pub(crate) struct Message {
    pub(crate) node: usize,
    pub(crate) revision: Option<u64>,
    pub(crate) content: Content,
}

#[derive(Clone, Debug)]
pub(crate) enum Content {
    Ledger(Ledger),
    Record(Record),
    /// Of a transfer, whose place the message names.
    Transfer(Status),
}

/// The API server.
#[derive(Clone, Debug)]
pub(crate) struct Server {
    pub(crate) nodes: Vec<Node>,
    pub(crate) transfers: Vec<Transferred>,
    revision: u64,
}

/// What one replica has read, in this order.
#[derive(Clone, Debug, Default)]
pub(crate) struct Reading {
    pub(crate) node: usize,
    pub(crate) parent: Option<Stored<Quota>>,
    pub(crate) own: Option<(bool, Option<Stored<Quota>>, Stored<Record>)>,
}

impl Server {
    /// A tree of which nothing exists but the root, with that much.
    pub(crate) fn new(parents: &[usize], total: Amounts) -> Self {
        let node = |parent, want| Node {
            parent,
            exists: true,
            terminating: false,
            quota: None,
            record: Stored { revision: 0, object: Record::default() },
            want,
            has: [0, 0],
        };
        let mut nodes = vec![node(None, total)];
        nodes.extend(parents.iter().map(|parent| node(Some(*parent), [0, 0])));
        let mut server = Self { nodes, transfers: Vec::new(), revision: 0 };
        let QuotaDecision::Write(_, Write::Own(ledger)) =
            decide_root("0", None, &resources(total), &Resources::default(), at(0))
        else {
            panic!("a root without a quota gets one");
        };
        assert!(server.deliver(Message { node: 0, revision: None, content: Content::Ledger(ledger) }));
        server
    }

    pub(crate) fn children(&self, node: usize) -> impl Iterator<Item = usize> {
        (0..self.nodes.len()).filter(move |child| self.nodes[*child].parent == Some(node))
    }

    pub(crate) fn read_parent(&self, node: usize) -> Reading {
        let parent = self.nodes[node].parent.and_then(|parent| self.nodes[parent].quota.clone());
        Reading { node, parent, own: None }
    }

    /// Nothing is read before the parent was: a replica reads in this order.
    pub(crate) fn read_own(&self, reading: &mut Reading) {
        let node = &self.nodes[reading.node];
        reading.own = Some((node.exists, node.quota.clone(), node.record.clone()));
    }

    /// What a replica decides on what it has read, and the message that follows.
    pub(crate) fn decided(
        &self,
        reading: &Reading,
        now: Timestamp,
    ) -> Option<(QuotaDecision, Option<Message>)> {
        let (exists, quota, record) = reading.own.as_ref()?;
        let want = resources(self.nodes[reading.node].want);
        let (name, own) = (reading.node.to_string(), quota.as_ref().map(|stored| &stored.object));
        let below =
            self.children(reading.node).map(|child| amounts(&self.nodes[child].record.object.allotment));
        let below = resources(below.fold([0, 0], added));
        let decision = if let Some(parent_place) = self.nodes[reading.node].parent {
            let parent = reading.parent.as_ref()?;
            let parent_name = parent_place.to_string();
            let parent = Parent { name: &parent_name, quota: &parent.object, siblings: &[] };
            let child = Child {
                id: &name,
                name: &name,
                exists: *exists,
                ends: false,
                quota: own,
                record: &record.object,
                below: &below,
            };
            decide(&parent, &child, &want, now)
        } else {
            decide_root(&name, own, &want, &below, now)
        };
        let message = match &decision {
            QuotaDecision::Write(_, write) => Some(match write {
                Write::Parent(ledger) => Message {
                    node: self.nodes[reading.node].parent?,
                    revision: Some(reading.parent.as_ref()?.revision),
                    content: Content::Ledger(ledger.clone()),
                },
                Write::Own(ledger) => Message {
                    node: reading.node,
                    revision: quota.as_ref().map(|stored| stored.revision),
                    content: Content::Ledger(ledger.clone()),
                },
                Write::Record(record_of) => Message {
                    node: reading.node,
                    revision: Some(record.revision),
                    content: Content::Record(record_of.clone()),
                },
            }),
            _ => None,
        };
        Some((decision, message))
    }

    /// Carries a write out, if its revision is the newest. Each object is written by its own messages only.
    pub(crate) fn deliver(&mut self, message: Message) -> bool {
        self.revision += 1;
        if let Content::Transfer(status) = message.content {
            return self.transfers[message.node].write(message.revision, self.revision, status);
        }
        let (revision, node) = (self.revision, &mut self.nodes[message.node]);
        match message.content {
            Content::Transfer(_) => false,
            Content::Record(object) => {
                let newest = message.revision == Some(node.record.revision);
                if newest {
                    node.record = Stored { revision, object };
                }
                newest
            }
            Content::Ledger(ledger) => {
                let stored = node.quota.as_ref().map(|stored| stored.revision);
                if stored != message.revision || (stored.is_none() && (node.terminating || !node.exists)) {
                    return false;
                }
                node.has = amounts(&ledger.allotment);
                let before = node.quota.take().map(|stored| stored.object).unwrap_or_default();
                let object = Quota { hard: ledger.own(), ledger, ..before };
                node.quota = Some(Stored { revision, object });
                true
            }
        }
    }

    /// What the API server and its controllers do to a quota by themselves.
    pub(crate) fn update(&mut self, node: usize, change: impl FnOnce(&mut Quota)) {
        self.revision += 1;
        if let Some(stored) = &mut self.nodes[node].quota {
            stored.revision = self.revision;
            change(&mut stored.object);
        }
    }

    /// The quota controller of Kubernetes.
    pub(crate) fn mirror(&mut self, node: usize) {
        self.update(node, |quota| quota.enforced = quota.hard.clone());
    }

    /// What must be true of every namespace at every revision.
    pub(crate) fn check(&self) -> Result<(), String> {
        for (place, node) in self.nodes.iter().enumerate() {
            let Some(Stored { object: quota, .. }) = &node.quota else { continue };
            let children: Amounts =
                self.children(place).map(|child| self.nodes[child].has).fold([0, 0], added);
            let (hard, enforced) = (amounts(&quota.hard), amounts(&quota.enforced));
            let counted = amounts(&quota.ledger.given);
            let returning = added(self.returning(place, quota), self.passing(place, quota));
            for at in 0..NAMES.len() {
                let has = node.has[at];
                if hard[at].max(enforced[at]) + children[at] + returning[at] > has {
                    return Err(format!(
                        "{place} has {has} {}: own {hard:?} {enforced:?}, children {children:?}, returning {returning:?}",
                        NAMES[at]
                    ));
                }
                let held = amounts(&quota.ledger.on_the_way())[at];
                let passing = self.passing(place, quota)[at];
                if hard[at] + counted[at] + held > has || children[at] + returning[at] - passing > counted[at]
                {
                    return Err(format!(
                        "{place} has {has} {}: own {hard:?}, children {children:?}, counted {counted:?}",
                        NAMES[at]
                    ));
                }
            }
        }
        Ok(())
    }

    /// What is held here for transfers from elsewhere: what was just taken here may still be in force.
    fn passing(&self, place: usize, quota: &Quota) -> Amounts {
        let from_elsewhere = quota.ledger.held.iter().filter(|(id, _)| {
            let transfer: usize = id.parse().unwrap();
            self.transfers[transfer].path[0] != place
        });
        from_elsewhere.map(|(_, held)| amounts(&held.amount)).fold([0, 0], added)
    }

    /// What children do not have any more and their parent does not have again.
    fn returning(&self, place: usize, quota: &Quota) -> Amounts {
        let of = |(name, change): (&String, &coppice_hierarchy::AllotmentChange)| {
            let child: usize = name.parse().unwrap();
            assert_eq!(self.nodes[child].parent, Some(place));
            let (from, has) = (amounts(&change.from), self.nodes[child].has);
            [(from[0] - has[0]).max(0), (from[1] - has[1]).max(0)]
        };
        quota.ledger.changes.iter().map(of).fold([0, 0], added)
    }

    /// Without faults, until nothing happens any more: the last decision about each namespace.
    pub(crate) fn settle(&mut self, now: &mut i64) -> Result<BTreeMap<usize, QuotaDecision>, String> {
        for _ in 0..200 {
            let mut last = BTreeMap::new();
            let mut quiet = true;
            for node in 0..self.nodes.len() {
                self.mirror(node);
                let mut reading = self.read_parent(node);
                self.read_own(&mut reading);
                let Some((decision, message)) = self.decided(&reading, at(*now)) else { continue };
                if let Some(message) = message {
                    quiet = false;
                    self.deliver(message);
                } else if let QuotaDecision::Wait(_) = decision {
                    quiet = false;
                    *now += 1;
                }
                self.check()?;
                last.insert(node, decision);
            }
            quiet &= self.continue_transfers(*now)?;
            if quiet {
                return Ok(last);
            }
        }
        Err("it does not come to an end".to_owned())
    }

    /// Nothing is on its way, and nothing is missing.
    pub(crate) fn check_settled(&self) -> Result<(), String> {
        for (place, node) in self.nodes.iter().enumerate() {
            let Some(Stored { object: quota, .. }) = &node.quota else { continue };
            let children: Amounts =
                self.children(place).map(|child| self.nodes[child].has).fold([0, 0], added);
            let own = [node.has[0] - children[0], node.has[1] - children[1]];
            let ledger = &quota.ledger;
            let quiet = ledger.changes.is_empty() && ledger.lowering.is_none() && ledger.held.is_empty();
            let limits = [amounts(&quota.hard), amounts(&quota.enforced)];
            if !quiet || limits != [own, own] || amounts(&ledger.given) != children {
                return Err(format!("{place} has {:?}, its children {children:?}: {quota:?}", node.has));
            }
        }
        Ok(())
    }
}
