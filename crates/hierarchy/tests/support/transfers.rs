//! Transfers on the server in memory: their records, and what a replica reads of them.

use coppice_hierarchy::{Quota, Record, Stop, Transfer, TransferDecision, release};

use super::{Amounts, Content, Message, Server, Stored, at, resources};

/// How a transfer has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    Refused,
    AlreadyApplied,
    Arrived,
    Returned,
    Dissolved,
}

/// What is recorded of a transfer.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Status {
    pub(crate) at: Option<usize>,
    pub(crate) reversing: bool,
    pub(crate) ended: Option<End>,
}

/// A transfer.
#[derive(Clone, Debug)]
pub(crate) struct Transferred {
    /// By what the source remembers it.
    pub(crate) name: String,
    /// The nodes from the source to the target.
    pub(crate) path: Vec<usize>,
    pub(crate) top: usize,
    pub(crate) amount: Amounts,
    pub(crate) cancelled: bool,
    pub(crate) status: Stored<Status>,
}

impl Transferred {
    pub(crate) fn write(&mut self, read: Option<u64>, revision: u64, status: Status) -> bool {
        let newest = read == Some(self.status.revision);
        if newest {
            self.status = Stored { revision, object: status };
        }
        newest
    }
}

/// What one replica has read of a transfer, and in which order it reads: what is nearer to the ancestor first.
#[derive(Clone, Debug, Default)]
pub(crate) struct TransferReading {
    pub(crate) transfer: usize,
    status: Option<u64>,
    open: Vec<usize>,
    /// By place: the quota, and the record of the node.
    read: Vec<(usize, Option<Stored<Quota>>, Record)>,
}

impl Server {
    /// Something is to move along these nodes.
    pub(crate) fn transfer(&mut self, path: &[usize], amount: Amounts) -> usize {
        self.transfer_named(&self.transfers.len().to_string(), path, amount)
    }

    /// The same under a name that another one may have had.
    pub(crate) fn transfer_named(&mut self, name: &str, path: &[usize], amount: Amounts) -> usize {
        let depth = |node: usize| std::iter::successors(Some(node), |node| self.nodes[*node].parent).count();
        let top = (0..path.len()).min_by_key(|place| depth(path[*place])).unwrap();
        self.revision += 1;
        let status = Stored { revision: self.revision, object: Status::default() };
        let (name, path) = (name.to_owned(), path.to_vec());
        self.transfers.push(Transferred { name, path, top, amount, cancelled: false, status });
        self.transfers.len() - 1
    }

    pub(crate) fn cancel(&mut self, transfer: usize) {
        self.revision += 1;
        let transferred = &mut self.transfers[transfer];
        transferred.cancelled = true;
        transferred.status.revision = self.revision;
    }

    pub(crate) fn begin_reading(&self, transfer: usize) -> TransferReading {
        let Transferred { path, top, status, .. } = &self.transfers[transfer];
        let places = Transfer::places(status.object.at, path.len());
        // Of one that has ended, whatever a late write has brought anywhere.
        let mut open = if status.object.ended.is_some() { (0..path.len()).collect() } else { places };
        // The last is read first.
        open.sort_by_key(|place| std::cmp::Reverse(place.abs_diff(*top)));
        TransferReading { transfer, status: Some(status.revision), open, read: Vec::new() }
    }

    /// Reads one more quota, and the record after it; whether it was the last.
    pub(crate) fn read_more(&self, reading: &mut TransferReading) -> bool {
        if let Some(place) = reading.open.pop() {
            let node = &self.nodes[self.transfers[reading.transfer].path[place]];
            reading.read.push((place, node.quota.clone(), node.record.object.clone()));
        }
        reading.open.is_empty()
    }

    /// The write that follows from what was read, now that the record is read again.
    pub(crate) fn transfer_decided(&self, reading: &TransferReading, now: i64) -> Option<Message> {
        let transferred = self.transfers.get(reading.transfer)?;
        let status = &transferred.status.object;
        if reading.status != Some(transferred.status.revision) || !reading.open.is_empty() {
            return None;
        }
        let record = |object| Message {
            node: reading.transfer,
            revision: reading.status,
            content: Content::Transfer(object),
        };
        if status.ended.is_some() {
            // What a late write has brought is let go.
            return reading.read.iter().find_map(|(place, quota, _)| {
                let quota = quota.as_ref()?;
                let ledger = release(&quota.object.ledger, &reading.transfer.to_string())?;
                let (node, revision) = (transferred.path[*place], Some(quota.revision));
                Some(Message { node, revision, content: Content::Ledger(ledger) })
            });
        }
        let decision = Self::transfer_decision(reading, transferred, now);
        // Only if all of it was so at one time.
        let unchanged = |(place, quota, _): &(usize, Option<Stored<Quota>>, Record)| {
            let current = self.nodes[transferred.path[*place]].quota.as_ref();
            current.map(|stored| stored.revision) == quota.as_ref().map(|stored| stored.revision)
        };
        let ended = |end| Some(record(Status { ended: Some(end), at: None, ..status.clone() }));
        match decision {
            TransferDecision::Write(_, place, ledger) => {
                let (_, quota, _) = reading.read.iter().find(|(read, ..)| *read == place)?;
                let (node, revision) = (transferred.path[place], Some(quota.as_ref()?.revision));
                Some(Message { node, revision, content: Content::Ledger(ledger) })
            }
            TransferDecision::At(place) => Some(record(Status { at: Some(place), ..status.clone() })),
            TransferDecision::Reverse(_) => Some(record(Status { reversing: true, ..status.clone() })),
            TransferDecision::Wait(_) => None,
            TransferDecision::Refused(_) => ended(End::Refused),
            TransferDecision::AlreadyApplied(_) => ended(End::AlreadyApplied),
            _ if !reading.read.iter().all(unchanged) => None,
            TransferDecision::Arrived => ended(End::Arrived),
            TransferDecision::Returned => ended(End::Returned),
            TransferDecision::Dissolved => ended(End::Dissolved),
        }
    }

    fn transfer_decision(reading: &TransferReading, transferred: &Transferred, now: i64) -> TransferDecision {
        let names: Vec<String> = transferred.path.iter().map(ToString::to_string).collect();
        let nothing = Record::default();
        let stop = |place: usize| {
            let read = reading.read.iter().find(|(read, ..)| *read == place);
            Stop {
                id: &names[place],
                name: &names[place],
                quota: read.and_then(|(_, quota, _)| quota.as_ref()).map(|stored| &stored.object),
                record: read.map_or(&nothing, |(.., record)| record),
            }
        };
        let stops: Vec<Stop<'_>> = (0..names.len()).map(stop).collect();
        let status = &transferred.status.object;
        let (id, amount) = (reading.transfer.to_string(), resources(transferred.amount));
        let amount = without_nothing(&amount);
        let transfer = Transfer {
            id: &id,
            name: &transferred.name,
            amount: &amount,
            stops: &stops,
            top: transferred.top,
            at: status.at,
            reversing: status.reversing,
            cancelled: transferred.cancelled,
        };
        transfer.decide(at(now))
    }

    /// One step of each; whether there was nothing to do.
    pub(crate) fn continue_transfers(&mut self, now: i64) -> Result<bool, String> {
        let mut quiet = true;
        for transfer in 0..self.transfers.len() {
            let mut reading = self.begin_reading(transfer);
            while !self.read_more(&mut reading) {}
            let message = self.transfer_decided(&reading, now);
            quiet &= message.is_none() && self.transfers[transfer].status.object.ended.is_some();
            if let Some(message) = message {
                self.deliver(message);
                self.check()?;
            }
        }
        self.check_transfers()?;
        Ok(quiet)
    }

    /// The amount of each transfer is in one place at most.
    pub(crate) fn check_transfers(&self) -> Result<(), String> {
        for transfer in 0..self.transfers.len() {
            let id = transfer.to_string();
            let quotas = || self.nodes.iter().filter_map(|node| node.quota.as_ref());
            let changes = quotas().flat_map(|quota| &quota.object.ledger.changes);
            let moving: Vec<usize> = changes
                .filter(|(_, change)| change.transfer.as_ref() == Some(&id))
                .map(|(child, _)| child.parse().unwrap())
                .collect();
            // Where it moves, the child may hold it before or afterwards.
            let holds = |node: &usize| {
                let quota = self.nodes[*node].quota.as_ref();
                quota.is_some_and(|quota| quota.object.ledger.held.contains_key(&id))
                    && !moving.contains(node)
            };
            let held = (0..self.nodes.len()).filter(holds).count();
            if moving.len() + held > 1 {
                return Err(format!("transfer {id} is in {held} places and on {} ways", moving.len()));
            }
        }
        Ok(())
    }
}

fn without_nothing(all: &coppice_hierarchy::Resources) -> coppice_hierarchy::Resources {
    let some = all.iter().filter(|(_, amount)| !amount.is_zero());
    coppice_hierarchy::Resources::parse(some.map(|(name, amount)| (name.as_str(), amount))).unwrap()
}
