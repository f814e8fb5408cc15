//! Every order of what two replicas can do, with reads and writes of each delayed or lost.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on has failed")]

use crate::support;

use std::collections::BTreeSet;

use crate::support::{Amounts, Content, Message, Reading, Server, at};

/// What the root has, and each child asks for: too little for two.
const TOTAL: Amounts = [3, 0];
const WANTED: Amounts = [2, 0];
/// What the first child asks for later, where it does.
const LATER: Amounts = [1, 0];
/// Writes on their way at most.
const MESSAGES: usize = 2;
/// Each child's changes that are followed.
const CHANGES: u64 = 2;
/// Of so many states one is followed to its end.
const FOLLOWED: usize = 10;

/// A state, and what can still happen once.
#[derive(Clone)]
struct State {
    server: Server,
    /// The child that each replica looks at, and what it has read.
    replicas: [(usize, Option<Reading>); 2],
    messages: Vec<Message>,
    /// The first child asks for something else.
    mind_changes: bool,
    /// The namespace of the first child is deleted.
    goes: bool,
    /// So much time passes that changes are given up.
    time_passes: bool,
}

impl State {
    fn new(children: [usize; 2]) -> Self {
        let mut server = Server::new(if children == [1, 1] { &[0] } else { &[0, 0] }, TOTAL);
        server.settle(&mut 0).unwrap();
        for child in children {
            server.nodes[child].want = WANTED;
        }
        let replicas = children.map(|child| (child, None));
        Self { server, replicas, messages: Vec::new(), mind_changes: false, goes: false, time_passes: true }
    }

    fn now(&self) -> i64 {
        if self.time_passes { 0 } else { 30 }
    }

    /// Everything that can happen next.
    fn successors(&self) -> Vec<Self> {
        let mut next = Vec::new();
        for replica in 0..self.replicas.len() {
            match &self.replicas[replica] {
                (child, None) => {
                    let mut state = self.clone();
                    state.replicas[replica].1 = Some(self.server.read_parent(*child));
                    next.push(state);
                }
                (_, Some(reading)) => next.extend(self.decided(replica, reading)),
            }
        }
        for at in 0..self.messages.len() {
            let mut lost = self.clone();
            let message = lost.messages.swap_remove(at);
            let mut delivered = lost.clone();
            if delivered.server.deliver(message) {
                next.push(delivered);
            }
            next.push(lost);
        }
        for node in 0..self.server.nodes.len() {
            let quota = self.server.nodes[node].quota.as_ref();
            if quota.is_some_and(|stored| !stored.object.enforced.limits_like(&stored.object.hard)) {
                let mut state = self.clone();
                state.server.mirror(node);
                next.push(state);
            }
        }
        if self.mind_changes {
            let mut state = Self { mind_changes: false, ..self.clone() };
            state.server.nodes[1].want = LATER;
            next.push(state);
        }
        if self.goes {
            let mut state = Self { goes: false, ..self.clone() };
            let child = &mut state.server.nodes[1];
            (child.exists, child.quota, child.has) = (false, None, [0, 0]);
            next.push(state);
        }
        if self.time_passes {
            next.push(Self { time_passes: false, ..self.clone() });
        }
        next
    }

    /// A replica reads the rest, decides and sends what follows: it arrives whenever it does.
    fn decided(&self, replica: usize, reading: &Reading) -> Option<Self> {
        let mut state = self.clone();
        state.replicas[replica].1 = None;
        let mut reading = reading.clone();
        self.server.read_own(&mut reading);
        let (_, message) = self.server.decided(&reading, at(self.now()))?;
        state.messages.extend(message);
        (state.messages.len() <= MESSAGES).then_some(state)
    }

    /// The most changes that were decided of one child.
    fn changes(&self) -> u64 {
        let quotas = self.server.nodes.iter().filter_map(|node| node.quota.as_ref());
        quotas.map(|quota| quota.object.ledger.decided).max().unwrap()
    }

    /// The state without revisions: of what was read or is on its way it matters only whether it is the newest.
    fn key(&mut self) -> String {
        let nodes = &self.server.nodes;
        let newest = |message: &Message| {
            let node = &nodes[message.node];
            match message.content {
                Content::Record(_) => message.revision == Some(node.record.revision),
                _ => message.revision == node.quota.as_ref().map(|stored| stored.revision),
            }
        };
        // What is not the newest never is again.
        self.messages.retain(newest);
        let reading = |reading: &Reading| {
            let (parent, now) = (reading.parent.as_ref().unwrap(), nodes[0].quota.as_ref().unwrap());
            format!("{} {} {:?}", reading.node, parent.revision == now.revision, parent.object)
        };
        let mut replicas: Vec<_> =
            self.replicas.iter().filter_map(|(_, read)| read.as_ref()).map(reading).collect();
        replicas.sort();
        let mut messages: Vec<_> =
            self.messages.iter().map(|message| format!("{} {:?}", message.node, message.content)).collect();
        messages.sort();
        let object = |node: &support::Node| {
            let quota = node.quota.as_ref().map(|stored| &stored.object);
            format!("{} {quota:?} {:?} {:?}", node.exists, node.record.object, node.want)
        };
        let nodes: Vec<_> = nodes.iter().map(object).collect();
        format!("{nodes:?} {replicas:?} {messages:?} {}", self.time_passes)
    }
}

/// Checks every state that can be reached, and that some of them come to one of these ends.
fn explore(first: State, ends: &[Vec<Amounts>]) -> usize {
    let mut seen = BTreeSet::new();
    let mut open = vec![first];
    while let Some(mut state) = open.pop() {
        if !seen.insert(state.key()) || state.changes() > CHANGES {
            continue;
        }
        state.server.check().unwrap_or_else(|error| panic!("{error}"));
        if seen.len() % FOLLOWED == 0 {
            let mut ended = state.server.clone();
            ended.settle(&mut 30).unwrap();
            ended.check_settled().unwrap();
            let has: Vec<_> = ended.nodes[1..].iter().map(|child| child.has).collect();
            assert!(ends.contains(&has), "{has:?}");
        }
        open.extend(state.successors());
    }
    seen.len()
}

#[test]
fn in_no_order_two_replicas_give_anything_twice_or_lose_it() {
    let first = State { mind_changes: true, goes: true, ..State::new([1, 1]) };
    let seen = explore(first, &[vec![WANTED], vec![LATER], vec![[0, 0]]]);
    assert!(seen > 10_000, "{seen} states");
}

#[test]
fn in_no_order_two_children_get_the_same_amount() {
    let seen = explore(State::new([1, 2]), &[vec![WANTED, [0, 0]], vec![[0, 0], WANTED]]);
    assert!(seen > 1000, "{seen} states");
}
