//! Two transfers in a tree of three namespaces, and two replicas, one of which is killed or stopped at any moment: every order of what
//! they and Kubernetes can do, by the decisions of `coppice_hierarchy`. It is among these tests since it takes an optimised build.
//!
//! One replica reads, decides and writes without a pause, one step after the other. Besides, up to two steps rest on what was
//! read at any time before: each reads one quota after the other, decides, and its write arrives whenever it does, or never. Whoever is
//! killed leaves at most one step for each key that it works on, so two of them are one crash in the middle of both transfers, or of a
//! transfer and an allotment.
//!
//! How many steps are late at a time is the only bound. How often and for how long has none: a transfer takes so many writes, and as
//! many again if it returns, so that there are finitely many states, and each of them is visited. That a write of what is not the
//! newest any more does nothing is what the API server does; so a step that could only send such a write has ended.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on has failed")]

use std::collections::{BTreeSet, HashMap, HashSet};
use std::fmt::Debug;

use coppice_hierarchy::{
    Child, Ledger, Parent, Quota, QuotaDecision, Record, Resources, Stop, Transfer, TransferDecision, Write,
    decide, release,
};
use jiff::Timestamp;

/// A root with two children, who have as much each, which is all.
const NODES: usize = 3;
const NAMES: [&str; NODES] = ["0", "1", "2"];
const ROOT: usize = 0;
const CHILDREN: [usize; 2] = [1, 2];
const TOTAL: i64 = 4;
const EACH: i64 = 2;
/// By what ledgers know the transfers, each of which moves one pod.
const TRANSFERS: [&str; 2] = ["a", "b"];
/// The live replica needs fewer steps to bring all to its end.
const STEPS: usize = 200;

/// The nodes from the source of a transfer to its target, and the place of the root among them.
#[derive(Clone, Copy)]
struct Route {
    path: &'static [usize],
    top: usize,
}

const THERE: Route = Route { path: &[1, 0, 2], top: 1 };
const BACK: Route = Route { path: &[2, 0, 1], top: 1 };
const UP: Route = Route { path: &[1, 0], top: 1 };

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
enum End {
    Refused,
    Arrived,
    Returned,
    Dissolved,
}

/// What is recorded of a transfer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
struct Status {
    at: Option<u8>,
    reversing: bool,
    cancelled: bool,
    ended: Option<End>,
}

/// The number of a quota or a record.
type Id = u16;

/// Objects by their numbers: two that are the same have one.
#[derive(Default)]
struct Objects<T> {
    all: Vec<T>,
    ids: HashMap<String, Id>,
}

impl<T: Debug> Objects<T> {
    fn id(&mut self, object: T) -> Id {
        let next = Id::try_from(self.all.len()).unwrap();
        *self.ids.entry(format!("{object:?}")).or_insert_with(|| {
            self.all.push(object);
            next
        })
    }

    fn of(&self, id: Id) -> &T {
        &self.all[usize::from(id)]
    }
}

/// What each namespace has in the end, and how the transfers end.
type SettledState = ([i64; NODES], [Option<End>; 2]);

/// What the API server has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Cluster {
    quotas: [Id; NODES],
    records: [Id; NODES],
    transfers: [Status; 2],
}

/// A quota that was read, and the record after it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
struct Read {
    place: u8,
    quota: Id,
    record: Id,
    newest: bool,
}

/// What was read for a transfer, in this order.
type Reads = [Option<Read>; NODES];

/// A write, by the revision that was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
enum Change {
    Quota(usize, Id),
    Record(usize, Id),
    Status(usize, Status),
}

impl Change {
    /// What it writes.
    fn object(self) -> (&'static str, usize) {
        match self {
            Self::Quota(node, _) => ("quota", node),
            Self::Record(node, _) => ("record", node),
            Self::Status(transfer, _) => ("status", transfer),
        }
    }
}

/// A step that rests on what was read a while ago.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
enum Late {
    Nothing,
    /// So much has been read of a transfer.
    Transfer(usize, Reads),
    /// The quota of the root has been read for the allotment of a child; whether it is the newest.
    Allotment(usize, Id, bool),
    /// It is decided.
    Write(Change),
}

#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct State {
    cluster: Cluster,
    late: [Late; 2],
}

/// All that can happen, with what was decided before from the same.
struct Search {
    routes: [Route; 2],
    /// So many steps may be late at a time.
    late: usize,
    /// The first transfer is cancelled at some time.
    cancels: bool,
    quotas: Objects<Quota>,
    records: Objects<Record>,
    of_transfers: HashMap<(usize, Status, Reads), Option<Change>>,
    of_allotments: HashMap<(usize, Id, Id, Id), Option<Change>>,
    in_force: HashMap<Id, Option<Id>>,
}

fn pods(amount: i64) -> Resources {
    Resources::parse([("pods", amount.to_string().parse().unwrap())]).unwrap()
}

fn number(resources: &Resources) -> i64 {
    resources.get(&"pods".parse().unwrap()).to_string().parse().unwrap()
}

/// Time does not pass: what is being lowered is not given up.
const NOW: Timestamp = Timestamp::UNIX_EPOCH;

impl Search {
    fn new(routes: [Route; 2], late: usize, cancels: bool) -> Self {
        Self {
            routes,
            late,
            cancels,
            quotas: Objects::default(),
            records: Objects::default(),
            of_transfers: HashMap::new(),
            of_allotments: HashMap::new(),
            in_force: HashMap::new(),
        }
    }

    fn first(&mut self) -> State {
        let mut quota = |allotment, given| {
            let ledger = Ledger::new(pods(allotment), pods(given));
            let hard = ledger.own();
            self.quotas.id(Quota { enforced: hard.clone(), hard, used: pods(0), ledger })
        };
        let quotas = [quota(TOTAL, 2 * EACH), quota(EACH, 0), quota(EACH, 0)];
        let root = self.records.id(Record::default());
        let child = self.records.id(Record { allotment: pods(EACH), decided: 0 });
        let cluster = Cluster { quotas, records: [root, child, child], transfers: [Status::default(); 2] };
        State { cluster, late: [Late::Nothing; 2] }
    }

    fn with_ledger(&mut self, quota: Id, ledger: Ledger) -> Id {
        let before = self.quotas.of(quota).clone();
        self.quotas.id(Quota { hard: ledger.own(), ledger, ..before })
    }

    /// The places whose quotas a decision about a transfer rests on, in the order in which they are read: what is nearer to the root first.
    fn order(&self, transfer: usize, status: Status) -> Vec<usize> {
        let Route { path, top } = self.routes[transfer];
        // Of one that has ended, whatever a late write has brought anywhere.
        let mut places = if status.ended.is_some() {
            (0..path.len()).collect()
        } else {
            Transfer::places(status.at.map(usize::from), path.len())
        };
        places.reverse();
        places.sort_by_key(|place| place.abs_diff(top));
        places
    }

    /// Reads one more; none if all has been read.
    fn read_more(&self, cluster: &Cluster, transfer: usize, reads: Reads) -> Option<Reads> {
        let done = reads.iter().flatten().count();
        let place = *self.order(transfer, cluster.transfers[transfer]).get(done)?;
        let node = self.routes[transfer].path[place];
        let (quota, record) = (cluster.quotas[node], cluster.records[node]);
        let mut more = reads;
        more[done] = Some(Read { place: u8::try_from(place).unwrap(), quota, record, newest: true });
        Some(more)
    }

    fn transfer_step(&mut self, transfer: usize, status: Status, reads: Reads) -> Option<Change> {
        let key = (transfer, status, reads);
        if let Some(known) = self.of_transfers.get(&key) {
            return *known;
        }
        let change = self.decide_transfer(transfer, status, reads);
        self.of_transfers.insert(key, change);
        change
    }

    fn decide_transfer(&mut self, transfer: usize, status: Status, reads: Reads) -> Option<Change> {
        let (Route { path, top }, id) = (self.routes[transfer], TRANSFERS[transfer]);
        if status.ended.is_some() {
            let held = |read: &Read| Some((*read, release(&self.quotas.of(read.quota).ledger, id)?));
            let (read, ledger) = reads.iter().flatten().find_map(held)?;
            return self.write(path, read, ledger);
        }
        let at_place = |place: usize| reads.iter().flatten().find(|read| usize::from(read.place) == place);
        let (amount, nothing) = (pods(1), Record::default());
        let stop = |(place, node): (usize, &usize)| Stop {
            id: NAMES[*node],
            name: NAMES[*node],
            quota: at_place(place).map(|read| self.quotas.of(read.quota)),
            record: at_place(place).map_or(&nothing, |read| self.records.of(read.record)),
        };
        let stops: Vec<Stop<'_>> = path.iter().enumerate().map(stop).collect();
        let (at, Status { reversing, cancelled, .. }) = (status.at.map(usize::from), status);
        let transferred =
            Transfer { id, name: id, amount: &amount, stops: &stops, top, at, reversing, cancelled };
        let decision = transferred.decide(NOW);
        let recorded = |status| Some(Change::Status(transfer, status));
        let ended = |end| recorded(Status { at: None, ended: Some(end), ..status });
        match decision {
            TransferDecision::Write(_, place, ledger) => self.write(path, *at_place(place)?, ledger),
            TransferDecision::At(place) => {
                recorded(Status { at: Some(u8::try_from(place).unwrap()), ..status })
            }
            TransferDecision::Reverse(_) => recorded(Status { reversing: true, ..status }),
            TransferDecision::Wait(_) => None,
            TransferDecision::Refused(_) | TransferDecision::AlreadyApplied(_) => ended(End::Refused),
            // Only if all of it was so at one time.
            _ if !reads.iter().flatten().all(|read| read.newest) => None,
            TransferDecision::Arrived => ended(End::Arrived),
            TransferDecision::Returned => ended(End::Returned),
            TransferDecision::Dissolved => ended(End::Dissolved),
        }
    }

    fn write(&mut self, path: &[usize], read: Read, ledger: Ledger) -> Option<Change> {
        let node = path[usize::from(read.place)];
        read.newest.then(|| Change::Quota(node, self.with_ledger(read.quota, ledger)))
    }

    /// Rests on the quota of the root as it was read, and on the child's own, which is read after it.
    fn allotment_step(&mut self, cluster: &Cluster, child: usize, root: Id, newest: bool) -> Option<Change> {
        let key = (child, root, cluster.quotas[child], cluster.records[child]);
        let known = self.of_allotments.get(&key).copied();
        let change = known.unwrap_or_else(|| self.decide_allotment(key));
        self.of_allotments.insert(key, change);
        change.filter(|change| newest || change.object() != ("quota", ROOT))
    }

    fn decide_allotment(&mut self, (child, root, own, record): (usize, Id, Id, Id)) -> Option<Change> {
        let (below, recorded) = (pods(0), self.records.of(record));
        let parent = Parent { name: NAMES[ROOT], quota: self.quotas.of(root), siblings: &[] };
        let of = Child {
            id: NAMES[child],
            name: NAMES[child],
            exists: true,
            ends: false,
            quota: Some(self.quotas.of(own)),
            record: recorded,
            below: &below,
        };
        // What it asked for was granted: it keeps what it has.
        let QuotaDecision::Write(_, write) = decide(&parent, &of, &recorded.allotment, NOW) else {
            return None;
        };
        Some(match write {
            Write::Parent(ledger) => Change::Quota(ROOT, self.with_ledger(root, ledger)),
            Write::Own(ledger) => Change::Quota(child, self.with_ledger(own, ledger)),
            Write::Record(record) => Change::Record(child, self.records.id(record)),
        })
    }

    /// The quota once the quota controller has copied its limits; none if it has.
    fn mirrored(&mut self, quota: Id) -> Option<Id> {
        if let Some(known) = self.in_force.get(&quota) {
            return *known;
        }
        let stored = self.quotas.of(quota).clone();
        let differs = !stored.enforced.limits_like(&stored.hard);
        let mirrored = differs.then(|| self.quotas.id(Quota { enforced: stored.hard.clone(), ..stored }));
        self.in_force.insert(quota, mirrored);
        mirrored
    }

    /// What the replica that is not stopped, and Kubernetes, can do now.
    fn live(&mut self, cluster: &Cluster) -> Vec<Change> {
        let mut changes = Vec::new();
        for node in 0..NODES {
            changes.extend(self.mirrored(cluster.quotas[node]).map(|quota| Change::Quota(node, quota)));
        }
        for transfer in 0..TRANSFERS.len() {
            let mut reads = Reads::default();
            while let Some(more) = self.read_more(cluster, transfer, reads) {
                reads = more;
            }
            changes.extend(self.transfer_step(transfer, cluster.transfers[transfer], reads));
        }
        for child in CHILDREN {
            changes.extend(self.allotment_step(cluster, child, cluster.quotas[ROOT], true));
        }
        changes
    }

    /// A write arrives. What was read of the same object is not the newest any more.
    fn arrived(&self, State { mut cluster, late }: State, change: Change) -> State {
        match change {
            Change::Quota(node, quota) => cluster.quotas[node] = quota,
            Change::Record(node, record) => cluster.records[node] = record,
            Change::Status(transfer, status) => cluster.transfers[transfer] = status,
        }
        let late = late.map(|step| match (step, change) {
            (Late::Write(own), _) if own.object() == change.object() => Late::Nothing,
            (Late::Transfer(transfer, _), Change::Status(of, _)) if transfer == of => Late::Nothing,
            (Late::Transfer(transfer, reads), Change::Quota(node, _)) => {
                let path = self.routes[transfer].path;
                let seen = |read: Read| {
                    let newest = read.newest && path[usize::from(read.place)] != node;
                    Read { newest, ..read }
                };
                Late::Transfer(transfer, reads.map(|read| read.map(seen)))
            }
            (Late::Allotment(child, root, _), Change::Quota(ROOT, _)) => Late::Allotment(child, root, false),
            (step, _) => step,
        });
        State { cluster, late }
    }

    /// A late step reads one more; when that was all, it decides.
    fn read_late(&mut self, cluster: &Cluster, transfer: usize, reads: Reads) -> Late {
        let reads = self.read_more(cluster, transfer, reads).unwrap_or(reads);
        if self.read_more(cluster, transfer, reads).is_some() {
            return Late::Transfer(transfer, reads);
        }
        let change = self.transfer_step(transfer, cluster.transfers[transfer], reads);
        change.map_or(Late::Nothing, Late::Write)
    }

    /// What becomes of a late step.
    fn late_step(&mut self, state: &State, slot: usize) -> Vec<State> {
        let cluster = state.cluster;
        let with = |step: Late| {
            let mut late = state.late;
            late[slot] = step;
            State { cluster, late }
        };
        match state.late[slot] {
            Late::Nothing => {
                let transfers = (0..TRANSFERS.len())
                    .map(|transfer| self.read_late(&cluster, transfer, Reads::default()))
                    .collect::<Vec<_>>();
                let allotments = CHILDREN.map(|child| Late::Allotment(child, cluster.quotas[ROOT], true));
                transfers.into_iter().chain(allotments).map(with).collect()
            }
            Late::Transfer(transfer, reads) => {
                vec![with(Late::Nothing), with(self.read_late(&cluster, transfer, reads))]
            }
            Late::Allotment(child, root, newest) => {
                let change = self.allotment_step(&cluster, child, root, newest);
                vec![with(change.map_or(Late::Nothing, Late::Write))]
            }
            // It is lost, or arrives.
            Late::Write(change) => {
                let lost = with(Late::Nothing);
                vec![lost, self.arrived(lost, change)]
            }
        }
    }

    /// Everything that can happen next.
    fn successors(&mut self, state: &State) -> Vec<State> {
        let changes = self.live(&state.cluster);
        let mut next: Vec<State> = changes.into_iter().map(|change| self.arrived(*state, change)).collect();
        let first = state.cluster.transfers[0];
        if self.cancels && !first.cancelled && first.ended.is_none() {
            let cancelled = Change::Status(0, Status { cancelled: true, ..first });
            next.push(self.arrived(*state, cancelled));
        }
        for slot in 0..self.late {
            next.extend(self.late_step(state, slot));
        }
        for state in &mut next {
            // Which of them is which does not matter; what has ended comes last.
            state.late.sort_unstable_by(|one, other| other.cmp(one));
        }
        next
    }

    fn quotas_of(&self, cluster: &Cluster) -> [&Quota; NODES] {
        cluster.quotas.map(|quota| self.quotas.of(quota))
    }

    /// What must be so at every revision: by what native quotas are, and by what each child has.
    fn check(&self, cluster: &Cluster) {
        let quotas = self.quotas_of(cluster);
        let own = quotas.map(|quota| number(&quota.own()));
        let has = quotas.map(|quota| number(&quota.ledger.allotment));
        let below: i64 = CHILDREN.iter().map(|child| has[*child]).sum();
        assert!(own.iter().sum::<i64>() <= TOTAL, "{own:?}: {quotas:?}");
        assert!(own[ROOT] + below <= has[ROOT], "{own:?}, {has:?}: {quotas:?}");
        assert!(CHILDREN.iter().all(|child| own[*child] <= has[*child]), "{own:?}, {has:?}: {quotas:?}");
        for id in TRANSFERS {
            let changes = quotas[ROOT].ledger.changes.iter();
            let moving: Vec<&str> = changes
                .filter(|(_, change)| change.transfer.as_deref() == Some(id))
                .map(|(child, _)| child.as_str())
                .collect();
            // Where it moves, the child may hold it before or afterwards.
            let holds =
                |node: &usize| quotas[*node].ledger.held.contains_key(id) && !moving.contains(&NAMES[*node]);
            let held = (0..NODES).filter(holds).count();
            assert!(moving.len() + held <= 1, "{id} is in more than one place: {quotas:?}");
        }
    }

    /// The late steps have been killed, and the other replica goes on alone.
    fn ended(&mut self, cluster: Cluster) -> SettledState {
        let mut state = State { cluster, late: [Late::Nothing; 2] };
        for _ in 0..STEPS {
            let Some(change) = self.live(&state.cluster).into_iter().next() else {
                let quotas = self.quotas_of(&state.cluster);
                let rest = quotas
                    .iter()
                    .all(|quota| quota.ledger.changes.is_empty() && quota.ledger.held.is_empty());
                let own: i64 = quotas.iter().map(|quota| number(&quota.hard)).sum();
                assert!(rest && own == TOTAL, "something is lost: {quotas:?}");
                let has = quotas.map(|quota| number(&quota.ledger.allotment));
                return (has, state.cluster.transfers.map(|transfer| transfer.ended));
            };
            state = self.arrived(state, change);
        }
        panic!("it does not come to an end: {:?} of {:?}", state.cluster, self.quotas_of(&state.cluster));
    }
}

/// All outcomes, wherever it is that the late steps are killed; and how many states there are.
fn explore(mut search: Search) -> (BTreeSet<SettledState>, usize) {
    let first = search.first();
    let (mut seen, mut clusters, mut ends) = (HashSet::from([first]), HashSet::new(), BTreeSet::new());
    let mut open = vec![first];
    while let Some(state) = open.pop() {
        if clusters.insert(state.cluster) {
            search.check(&state.cluster);
            ends.insert(search.ended(state.cluster));
        }
        for next in search.successors(&state) {
            if seen.insert(next) {
                open.push(next);
            }
        }
    }
    (ends, seen.len())
}

#[test]
fn in_no_order_two_transfers_that_cross_give_anything_twice_or_lose_it() {
    let (ends, states) = explore(Search::new([THERE, BACK], 2, false));
    assert_eq!(ends, BTreeSet::from([([4, 2, 2], [Some(End::Arrived); 2])]));
    assert!(states > 100_000, "{states} states");
}

#[test]
fn in_no_order_a_transfer_that_is_cancelled_does_anything_but_arrive_or_return() {
    let (arrived, returned) = ([Some(End::Arrived); 2], [Some(End::Returned), Some(End::Arrived)]);
    for (second, ends) in [
        (BACK, [([4, 2, 2], arrived), ([4, 3, 1], returned)]),
        (UP, [([4, 0, 3], arrived), ([4, 1, 2], returned)]),
    ] {
        let (found, states) = explore(Search::new([THERE, second], 1, true));
        assert_eq!(found, BTreeSet::from(ends));
        assert!(states > 10_000, "{states} states");
    }
}
