//! Two replicas change the allotments of random trees. Their reads and writes are delayed, lost and repeated in any order, while
//! workloads come and go, requests change and namespaces are deleted.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on has failed")]

use crate::support::{Amounts, Message, Reading, Server, added, amounts, at, resources};
use coppice_hierarchy::QuotaDecision;
use proptest::prelude::*;

const TOTAL: Amounts = [20, 50];
/// The namespaces beside the root, at most.
const NAMESPACES: usize = 5;

/// One thing that happens. Numbers choose among what there is.
#[derive(Clone, Copy, Debug)]
enum Event {
    /// A replica begins to look at a namespace, and has read the quota of the parent.
    ReadParent { replica: usize, node: usize },
    /// It has read the rest.
    ReadOwn { replica: usize },
    /// It decides, and writes what follows.
    Decide { replica: usize },
    /// It looks, decides and writes without a pause.
    Reconcile { node: usize },
    /// A write arrives. It is repeated later, if `again`.
    Deliver { message: usize, again: bool },
    /// A write is lost.
    Lose { message: usize },
    /// The quota controller copies `spec.hard`.
    Mirror { node: usize },
    /// Something is created, beyond the quota by as much as `slack`.
    Use { node: usize, amounts: Amounts, slack: i64 },
    /// Something ends.
    Release { node: usize, amounts: Amounts },
    /// Somebody asks for another quota.
    Want { node: usize, amounts: Amounts },
    /// A leaf is deleted; at first its quota goes.
    Terminate { node: usize },
    /// Its namespace is gone.
    Gone { node: usize },
    /// Somebody deletes the quota of a leaf.
    LoseQuota { node: usize },
    /// Time passes.
    Pass { seconds: i64 },
}

fn event() -> impl Strategy<Value = Event> {
    let node = 0..=NAMESPACES;
    let few = [0..4_i64, 0..4_i64];
    let want = [0..12_i64, 0..25_i64];
    prop_oneof![
        6 => (0..2_usize, node.clone()).prop_map(|(replica, node)| Event::ReadParent { replica, node }),
        6 => (0..2_usize).prop_map(|replica| Event::ReadOwn { replica }),
        6 => (0..2_usize).prop_map(|replica| Event::Decide { replica }),
        20 => node.clone().prop_map(|node| Event::Reconcile { node }),
        20 => (0..20_usize, any::<bool>()).prop_map(|(message, again)| Event::Deliver { message, again }),
        2 => (0..20_usize).prop_map(|message| Event::Lose { message }),
        10 => node.clone().prop_map(|node| Event::Mirror { node }),
        3 => (node.clone(), few.clone(), 0..2_i64).prop_map(|(node, amounts, slack)| Event::Use { node, amounts, slack }),
        3 => (node.clone(), few).prop_map(|(node, amounts)| Event::Release { node, amounts }),
        6 => (node.clone(), want).prop_map(|(node, amounts)| Event::Want { node, amounts }),
        1 => node.clone().prop_map(|node| Event::Terminate { node }),
        2 => node.clone().prop_map(|node| Event::Gone { node }),
        1 => node.prop_map(|node| Event::LoseQuota { node }),
        2 => (1..40_i64).prop_map(|seconds| Event::Pass { seconds }),
    ]
}

/// The server with what is on its way to it.
struct Cluster {
    server: Server,
    replicas: [Reading; 2],
    messages: Vec<Message>,
    now: i64,
}

impl Cluster {
    fn new(parents: &[usize]) -> Self {
        Self {
            server: Server::new(parents, TOTAL),
            replicas: [Reading::default(), Reading::default()],
            messages: Vec::new(),
            now: 0,
        }
    }

    /// Numbers of nodes are taken modulo their number, so that much happens in a small tree.
    fn node(&self, node: usize) -> usize {
        node % self.server.nodes.len()
    }

    fn happen(&mut self, event: Event) {
        match event {
            Event::ReadParent { replica, node } => {
                self.replicas[replica] = self.server.read_parent(self.node(node));
            }
            Event::ReadOwn { replica } => self.server.read_own(&mut self.replicas[replica]),
            Event::Decide { replica } => {
                let decided = self.server.decided(&self.replicas[replica], at(self.now));
                self.messages.extend(decided.and_then(|(_, message)| message));
            }
            Event::Reconcile { node } => {
                let mut reading = self.server.read_parent(self.node(node));
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
            Event::Pass { seconds } => self.now += seconds,
            Event::Mirror { node } => self.server.mirror(self.node(node)),
            other => self.people(other),
        }
    }

    /// What people and their workloads do.
    fn people(&mut self, event: Event) {
        match event {
            Event::Use { node, amounts: more, slack } => self.server.update(self.node(node), |quota| {
                let (used, limit) =
                    (added(amounts(&quota.used), more), added(amounts(&quota.enforced), [slack, slack]));
                if used[0] <= limit[0] && used[1] <= limit[1] {
                    quota.used = resources(used);
                }
            }),
            Event::Release { node, amounts: less } => self.server.update(self.node(node), |quota| {
                let used = amounts(&quota.used);
                quota.used = resources([(used[0] - less[0]).max(0), (used[1] - less[1]).max(0)]);
            }),
            Event::Want { node, amounts } => {
                let node = self.node(node);
                // The root's is the total of the tree.
                self.server.nodes[node].want = if node == 0 { added([10, 30], amounts) } else { amounts };
            }
            Event::Terminate { node } if self.is_leaf(self.node(node)) => {
                let node = self.node(node);
                self.server.nodes[node].terminating = true;
                self.server.nodes[node].quota = None;
            }
            Event::Gone { node } if self.server.nodes[self.node(node)].terminating => {
                let node = self.node(node);
                self.server.nodes[node].exists = false;
                self.server.nodes[node].has = [0, 0];
            }
            // A policy keeps others from doing so. Where it has happened, what was read and written before has ended.
            Event::LoseQuota { node } if self.is_leaf(self.node(node)) => {
                let node = self.node(node);
                self.server.nodes[node].quota = None;
                self.messages.clear();
                self.replicas = Default::default();
            }
            _ => {}
        }
    }

    /// Whether it has no children, and nothing was begun to give it some.
    fn is_leaf(&self, node: usize) -> bool {
        node != 0 && self.server.children(node).next().is_none()
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, ..ProptestConfig::default() })]

    #[test]
    fn nothing_is_given_twice_and_nothing_is_lost(
        parents in proptest::collection::vec(any::<prop::sample::Index>(), 1..=NAMESPACES),
        events in proptest::collection::vec(event(), 0..400),
    ) {
        // The parent of each namespace is an earlier one.
        let parents: Vec<usize> = parents.iter().enumerate().map(|(at, parent)| parent.index(at + 1)).collect();
        let mut cluster = Cluster::new(&parents);
        for event in events {
            let described = format!("{event:?}");
            cluster.happen(event);
            cluster.server.check().map_err(|error| TestCaseError::fail(format!("after {described}: {error}")))?;
        }
        // What is still on its way arrives, and namespaces that are being deleted are gone.
        for message in std::mem::take(&mut cluster.messages) {
            cluster.server.deliver(message);
            cluster.server.check().map_err(TestCaseError::fail)?;
        }
        for node in 0..=NAMESPACES {
            cluster.happen(Event::Gone { node });
        }
        let decisions = cluster.server.settle(&mut cluster.now).map_err(TestCaseError::fail)?;
        cluster.server.check_settled().map_err(TestCaseError::fail)?;
        for (place, decision) in decisions {
            let node = &cluster.server.nodes[place];
            let want = if node.exists { node.want } else { [0, 0] };
            prop_assert_eq!(decision == QuotaDecision::Done, node.has == want, "{}", place);
        }
    }
}
