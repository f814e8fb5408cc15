//! Amounts move between namespaces of a tree while two replicas' reads and writes are delayed, lost and repeated, workloads come
//! and go, requests change, and transfers are cancelled and namespaces deleted.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on has failed")]

use crate::support;

use crate::support::transfers::{End, TransferReading};
use crate::support::{Amounts, Message, Server, added, amounts, at, resources};
use coppice_hierarchy::{
    AppliedTransfer, Ledger, Quota, Record, Resources, Stop, Transfer, TransferDecision, TransferStep,
};
use coppice_quantity::Quantity;
use jiff::Timestamp;
use proptest::prelude::*;

const TOTAL: Amounts = [20, 50];
/// Below the root 1 and 2, and one below each of them.
const PARENTS: [usize; 4] = [0, 0, 1, 2];
const WANTED: [(usize, Amounts); 4] = [(1, [8, 20]), (2, [8, 20]), (3, [4, 8]), (4, [4, 8])];
/// Ways of transfers, from the source to the target.
const WAYS: [&[usize]; 6] = [&[3, 1, 0, 2, 4], &[1, 0, 2], &[0, 2, 4], &[4, 2], &[4, 2, 0], &[2, 0, 1, 3]];

/// Everybody has what they asked for.
fn tree() -> Server {
    let mut server = Server::new(&PARENTS, TOTAL);
    for (node, want) in WANTED {
        server.nodes[node].want = want;
        server.settle(&mut 0).unwrap();
        assert_eq!(server.nodes[node].has, want);
    }
    server
}

/// What the namespaces have, without the root.
fn all(server: &Server) -> Vec<Amounts> {
    server.nodes[1..].iter().map(|node| node.has).collect()
}

/// Nobody asks for anything: they keep what they have, as after a request that was granted.
fn settle(server: &mut Server, now: &mut i64) -> Result<(), String> {
    for _ in 0..500 {
        for node in 1..server.nodes.len() {
            server.nodes[node].want = amounts(&server.nodes[node].record.object.allotment);
        }
        let quiet = server.continue_transfers(*now)?;
        for node in 0..server.nodes.len() {
            server.mirror(node);
            let mut reading = server.read_parent(node);
            server.read_own(&mut reading);
            if let Some((_, Some(message))) = server.decided(&reading, at(*now)) {
                server.deliver(message);
                server.check()?;
            }
        }
        if quiet && server.check_settled().is_ok() {
            return Ok(());
        }
        *now += 1;
    }
    Err(format!("it does not come to an end: {:?}", server.transfers))
}

fn ended(server: &Server, transfer: usize) -> Option<End> {
    server.transfers[transfer].status.object.ended
}

#[test]
fn an_amount_moves_from_one_namespace_to_another() {
    let mut server = tree();
    let transfer = server.transfer(WAYS[0], [3, 0]);
    settle(&mut server, &mut 0).unwrap();
    assert_eq!(ended(&server, transfer), Some(End::Arrived));
    assert_eq!(all(&server), [[5, 20], [11, 20], [1, 8], [7, 8]]);
}

#[test]
fn an_amount_is_given_back_to_a_namespace_above() {
    let mut server = tree();
    let transfer = server.transfer(&[4, 2, 0], [4, 8]);
    settle(&mut server, &mut 0).unwrap();
    assert_eq!(ended(&server, transfer), Some(End::Arrived));
    assert_eq!(all(&server), [[8, 20], [4, 12], [4, 8], [0, 0]]);
}

#[test]
fn the_same_again_under_the_same_name_does_nothing() {
    let mut server = tree();
    let ends = |server: &mut Server, name: &str, way: &[usize], amount: Amounts| {
        let transfer = server.transfer_named(name, way, amount);
        settle(server, &mut 0).unwrap();
        ended(server, transfer)
    };
    assert_eq!(ends(&mut server, "more", WAYS[0], [1, 0]), Some(End::Arrived));
    let moved = [[7, 20], [9, 20], [3, 8], [5, 8]];
    assert_eq!(all(&server), moved);
    assert_eq!(ends(&mut server, "more", WAYS[0], [1, 0]), Some(End::AlreadyApplied));
    assert_eq!(all(&server), moved);
    // Another amount, another target, and another name are other transfers.
    assert_eq!(ends(&mut server, "more", WAYS[0], [0, 1]), Some(End::Arrived));
    assert_eq!(ends(&mut server, "more", &[3, 1], [0, 1]), Some(End::Arrived));
    assert_eq!(ends(&mut server, "again", &[3, 1], [0, 1]), Some(End::Arrived));
    assert_eq!(all(&server), [[7, 19], [9, 21], [3, 5], [5, 9]]);
    assert_eq!(ends(&mut server, "more", &[3, 1], [0, 1]), Some(End::AlreadyApplied));
    // From somewhere else it is another one, too.
    assert_eq!(ends(&mut server, "more", &[1, 0], [1, 0]), Some(End::Arrived));
    assert_eq!(all(&server), [[6, 19], [9, 21], [3, 5], [5, 9]]);
}

#[test]
fn what_did_not_arrive_may_be_asked_for_again() {
    let mut server = tree();
    server.update(3, |quota| quota.used = resources([2, 0]));
    for end in [End::Refused, End::Refused] {
        let transfer = server.transfer_named("more", WAYS[0], [3, 0]);
        settle(&mut server, &mut 0).unwrap();
        assert_eq!(ended(&server, transfer), Some(end));
    }
    server.update(3, |quota| quota.used = resources([0, 0]));
    let returned = server.transfer_named("more", WAYS[0], [3, 0]);
    server.continue_transfers(0).unwrap();
    server.cancel(returned);
    settle(&mut server, &mut 0).unwrap();
    assert_eq!(ended(&server, returned), Some(End::Returned));
    let transfer = server.transfer_named("more", WAYS[0], [3, 0]);
    settle(&mut server, &mut 0).unwrap();
    assert_eq!(ended(&server, transfer), Some(End::Arrived));
}

/// The ledger of a source once it remembers that a transfer of this name to the root has arrived.
fn remembered(source: &Quota, name: &str, amount: &Resources, now: Timestamp) -> Ledger {
    let (record, root) = (Record::default(), Quota::default());
    let stops = [
        Stop { id: "1", name: "1", quota: Some(source), record: &record },
        Stop { id: "", name: "0", quota: Some(&root), record: &record },
    ];
    let arrived = Transfer {
        id: "u",
        name,
        amount,
        stops: &stops,
        top: 1,
        at: Some(1),
        reversing: false,
        cancelled: false,
    };
    let TransferDecision::Write(TransferStep::Remember, 0, ledger) = arrived.decide(now) else {
        panic!("it is not remembered")
    };
    ledger
}

#[test]
fn a_source_remembers_so_many_transfers_and_removes_the_oldest() {
    let amount = resources([1, 0]);
    let mut source = tree().nodes[1].quota.as_ref().unwrap().object.clone();
    let applied = |minute: i64| AppliedTransfer {
        to: "0".to_owned(),
        id: String::new(),
        amount: amount.clone(),
        at: at(60 * minute),
    };
    // The names are in another order than the times.
    source.ledger.applied = (0..128).map(|n| (format!("t-{n}"), applied((n + 28) % 128))).collect();
    let ledger = remembered(&source, "new", &amount, at(60 * 128));
    let has = |name: &str| ledger.applied.contains_key(name);
    assert_eq!((ledger.applied.len(), has("new"), has("t-100"), has("t-101")), (128, true, false, true));
    assert_eq!(ledger.own(), source.ledger.own());
}

#[test]
fn what_a_source_remembers_has_room_in_an_annotation() {
    // As many resources as an amount may have, with names as long as those of objects that are counted.
    let names: Vec<String> = (0..64).map(|n| format!("count/{}{n:02}", "x".repeat(60))).collect();
    let one: Quantity = "1".parse().unwrap();
    let amount = Resources::parse(names.iter().map(|name| (name.as_str(), one))).unwrap();
    let mut source = tree().nodes[1].quota.as_ref().unwrap().object.clone();
    for minute in 0..20 {
        source.ledger = remembered(&source, &format!("t-{minute}"), &amount, at(60 * minute));
        let applied = &source.ledger.applied;
        assert!(serde_json::to_string(applied).unwrap().len() <= 64 << 10, "after {minute}");
        assert!(applied.contains_key(&format!("t-{minute}")));
    }
    assert!(source.ledger.applied.len() > 5 && !source.ledger.applied.contains_key("t-0"));
}

#[test]
fn what_is_used_is_not_taken() {
    let mut server = tree();
    server.update(3, |quota| quota.used = resources([2, 0]));
    let transfer = server.transfer(WAYS[0], [3, 0]);
    settle(&mut server, &mut 0).unwrap();
    assert_eq!(ended(&server, transfer), Some(End::Refused));
    assert_eq!(all(&server), WANTED.map(|(_, want)| want));
}

#[test]
fn what_is_used_meanwhile_returns() {
    let mut server = tree();
    let transfer = server.transfer(WAYS[0], [3, 0]);
    server.continue_transfers(0).unwrap();
    // It is admitted by what was in force.
    server.update(3, |quota| quota.used = resources([4, 0]));
    settle(&mut server, &mut 0).unwrap();
    assert_eq!(ended(&server, transfer), Some(End::Returned));
    assert_eq!(all(&server), WANTED.map(|(_, want)| want));
}

#[test]
fn what_is_cancelled_on_its_way_returns_from_wherever_it_is() {
    for rounds in 0..60 {
        let (mut server, mut now) = (tree(), 0);
        let transfer = server.transfer(WAYS[0], [3, 0]);
        for _ in 0..rounds {
            if !server.continue_transfers(now).unwrap() {
                for node in 0..5 {
                    server.mirror(node);
                    server.nodes[node].want =
                        if node == 0 { TOTAL } else { amounts(&server.nodes[node].record.object.allotment) };
                    let mut reading = server.read_parent(node);
                    server.read_own(&mut reading);
                    if let Some((_, Some(message))) = server.decided(&reading, at(now)) {
                        server.deliver(message);
                    }
                }
            }
        }
        if ended(&server, transfer).is_some() {
            assert!(rounds > 10, "{rounds}");
            return;
        }
        let arrived = server.transfers[transfer].status.object.at == Some(4);
        server.cancel(transfer);
        settle(&mut server, &mut now).unwrap();
        let expected = if arrived { End::Arrived } else { End::Returned };
        assert_eq!((rounds, ended(&server, transfer)), (rounds, Some(expected)));
        if !arrived {
            assert_eq!(all(&server), WANTED.map(|(_, want)| want), "after {rounds}");
        }
    }
    panic!("it has not arrived");
}

/// One thing that happens. Numbers choose among what there is.
#[derive(Clone, Copy, Debug)]
enum Event {
    Begin {
        replica: usize,
        transfer: usize,
    },
    ReadMore {
        replica: usize,
    },
    Decide {
        replica: usize,
    },
    /// A replica reads and decides about a transfer without a pause.
    Continue {
        transfer: usize,
    },
    Reconcile {
        node: usize,
    },
    Deliver {
        message: usize,
        again: bool,
    },
    Lose {
        message: usize,
    },
    Mirror {
        node: usize,
    },
    Use {
        node: usize,
        amounts: Amounts,
    },
    Free {
        node: usize,
        amounts: Amounts,
    },
    Want {
        node: usize,
        amounts: Amounts,
    },
    Cancel {
        transfer: usize,
    },
    /// The namespace of a leaf is gone.
    Gone {
        node: usize,
    },
    Pass {
        seconds: i64,
    },
}

fn event() -> impl Strategy<Value = Event> {
    let (node, transfer, replica, few) = (0..5_usize, 0..2_usize, 0..2_usize, [0..4_i64, 0..4_i64]);
    prop_oneof![
        4 => (replica.clone(), transfer.clone()).prop_map(|(replica, transfer)| Event::Begin { replica, transfer }),
        10 => replica.clone().prop_map(|replica| Event::ReadMore { replica }),
        4 => replica.prop_map(|replica| Event::Decide { replica }),
        10 => transfer.clone().prop_map(|transfer| Event::Continue { transfer }),
        20 => node.clone().prop_map(|node| Event::Reconcile { node }),
        25 => (0..20_usize, any::<bool>()).prop_map(|(message, again)| Event::Deliver { message, again }),
        2 => (0..20_usize).prop_map(|message| Event::Lose { message }),
        10 => node.clone().prop_map(|node| Event::Mirror { node }),
        2 => (node.clone(), few.clone()).prop_map(|(node, amounts)| Event::Use { node, amounts }),
        2 => (node.clone(), few.clone()).prop_map(|(node, amounts)| Event::Free { node, amounts }),
        1 => (node.clone(), few).prop_map(|(node, amounts)| Event::Want { node, amounts }),
        1 => transfer.prop_map(|transfer| Event::Cancel { transfer }),
        1 => node.prop_map(|node| Event::Gone { node }),
        1 => (1..40_i64).prop_map(|seconds| Event::Pass { seconds }),
    ]
}

/// The server with what is on its way to it.
struct Cluster {
    server: Server,
    replicas: [TransferReading; 2],
    messages: Vec<Message>,
    now: i64,
}

impl Cluster {
    fn happen(&mut self, event: Event) {
        match event {
            Event::Begin { replica, transfer } => {
                self.replicas[replica] = self.server.begin_reading(transfer);
            }
            Event::ReadMore { replica } => drop(self.server.read_more(&mut self.replicas[replica])),
            Event::Decide { replica } => {
                let reading = std::mem::take(&mut self.replicas[replica]);
                self.messages.extend(self.server.transfer_decided(&reading, self.now));
            }
            Event::Continue { transfer } => {
                let mut reading = self.server.begin_reading(transfer);
                while !self.server.read_more(&mut reading) {}
                self.messages.extend(self.server.transfer_decided(&reading, self.now));
            }
            Event::Reconcile { node } => {
                let mut reading = self.server.read_parent(node);
                self.server.read_own(&mut reading);
                let decided = self.server.decided(&reading, at(self.now));
                self.messages.extend(decided.and_then(|(_, message)| message));
            }
            Event::Deliver { message, again } if !self.messages.is_empty() => {
                let at = message % self.messages.len();
                let message = if again { self.messages[at].clone() } else { self.messages.swap_remove(at) };
                self.server.deliver(message);
            }
            Event::Lose { message } if !self.messages.is_empty() => {
                self.messages.swap_remove(message % self.messages.len());
            }
            Event::Mirror { node } => self.server.mirror(node),
            Event::Use { node, amounts: more } => self.server.update(node, |quota| {
                let (used, limit) = (added(amounts(&quota.used), more), amounts(&quota.enforced));
                if used[0] <= limit[0] && used[1] <= limit[1] {
                    quota.used = resources(used);
                }
            }),
            Event::Free { node, amounts: less } => self.server.update(node, |quota| {
                let used = amounts(&quota.used);
                quota.used = resources([(used[0] - less[0]).max(0), (used[1] - less[1]).max(0)]);
            }),
            Event::Want { node, amounts } if node != 0 => self.server.nodes[node].want = amounts,
            Event::Cancel { transfer } => self.server.cancel(transfer),
            Event::Gone { node } if self.server.children(node).next().is_none() => {
                let node = &mut self.server.nodes[node];
                (node.terminating, node.exists, node.quota, node.has) = (true, false, None, [0, 0]);
            }
            Event::Pass { seconds } => self.now += seconds,
            _ => {}
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 128, ..ProptestConfig::default() })]

    #[test]
    fn nothing_is_transferred_twice_and_nothing_is_lost(
        ways in [0..WAYS.len(), 0..WAYS.len()],
        amounts in [[1..5_i64, 0..9_i64], [1..5_i64, 0..9_i64]],
        events in proptest::collection::vec(event(), 0..400),
    ) {
        let mut server = tree();
        for (way, amount) in ways.into_iter().zip(amounts) {
            server.transfer(WAYS[way], amount);
        }
        let mut cluster = Cluster { server, replicas: Default::default(), messages: Vec::new(), now: 0 };
        for event in events {
            cluster.happen(event);
            let checked = cluster.server.check().and_then(|()| cluster.server.check_transfers());
            checked.map_err(|error| TestCaseError::fail(format!("after {event:?}: {error}")))?;
        }
        for message in std::mem::take(&mut cluster.messages) {
            cluster.server.deliver(message);
            cluster.server.check().map_err(TestCaseError::fail)?;
        }
        settle(&mut cluster.server, &mut cluster.now).map_err(TestCaseError::fail)?;
        // Everything is somewhere.
        let own = |node: &support::Node| node.quota.as_ref().map_or([0, 0], |quota| support::amounts(&quota.object.hard));
        let sum = cluster.server.nodes.iter().map(own).fold([0, 0], added);
        prop_assert_eq!(sum, TOTAL);
    }
}
