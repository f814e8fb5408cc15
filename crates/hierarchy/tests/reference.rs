//! Random trees against a model that knows nothing but sums: what is allowed, and what everybody has afterwards.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on has failed")]

use crate::support::{Amounts, Server, amounts, resources};
use coppice_hierarchy::QuotaDecision;
use proptest::prelude::*;

const TOTAL: Amounts = [20, 50];
const NAMESPACES: usize = 6;

/// A tree as numbers.
struct Reference {
    parents: Vec<Option<usize>>,
    has: Vec<Amounts>,
    used: Vec<Amounts>,
    exists: Vec<bool>,
}

impl Reference {
    fn new(parents: &[usize]) -> Self {
        let count = parents.len() + 1;
        let mut has = vec![[0, 0]; count];
        has[0] = TOTAL;
        let parents = std::iter::once(None).chain(parents.iter().copied().map(Some)).collect();
        Self { parents, has, used: vec![[0, 0]; count], exists: vec![true; count] }
    }

    fn children(&self, node: usize, at: usize) -> i64 {
        (0..self.has.len())
            .filter(|child| self.parents[*child] == Some(node))
            .map(|child| self.has[child][at])
            .sum()
    }

    fn own(&self, node: usize, at: usize) -> i64 {
        self.has[node][at] - self.children(node, at)
    }

    fn ask(&mut self, node: usize, want: Amounts) -> bool {
        let allowed = (0..2).all(|at| {
            let (has, want) = (self.has[node][at], want[at]);
            let kept = want >= has || want >= self.used[node][at] + self.children(node, at);
            let there =
                |parent: usize| want <= has || want - has <= self.own(parent, at) - self.used[parent][at];
            kept && self.parents[node].is_none_or(there)
        });
        if allowed {
            self.has[node] = want;
        }
        allowed
    }
}

#[derive(Clone, Copy, Debug)]
enum Operation {
    Ask {
        node: usize,
        amounts: Amounts,
    },
    /// As much of the own quota as there is.
    Use {
        node: usize,
        amounts: Amounts,
    },
    Delete {
        node: usize,
    },
}

fn operation() -> impl Strategy<Value = Operation> {
    let (node, some) = (0..=NAMESPACES, [0..16_i64, 0..40_i64]);
    prop_oneof![
        12 => (node.clone(), some.clone()).prop_map(|(node, amounts)| Operation::Ask { node, amounts }),
        4 => (node.clone(), some).prop_map(|(node, amounts)| Operation::Use { node, amounts }),
        1 => node.prop_map(|node| Operation::Delete { node }),
    ]
}

/// Carries an operation out on both; whether each allowed it.
fn both(
    server: &mut Server,
    reference: &mut Reference,
    operation: Operation,
    now: &mut i64,
) -> Result<(bool, bool), String> {
    match operation {
        Operation::Ask { node, amounts } if reference.exists[node] => {
            server.nodes[node].want = amounts;
            let decisions = server.settle(now)?;
            let allowed = !matches!(decisions.get(&node), Some(QuotaDecision::Refused(_)));
            // Who asked in vain asks no more, so that only one namespace wants something at a time.
            server.nodes[node].want = server.nodes[node].has;
            Ok((allowed, reference.ask(node, amounts)))
        }
        Operation::Use { node, amounts: more } => {
            let used = [0, 1].map(|at| more[at].min(reference.own(node, at)));
            reference.used[node] = used;
            server.update(node, |quota| quota.used = resources(used));
            Ok((true, true))
        }
        Operation::Delete { node } if node != 0 && !reference.parents.contains(&Some(node)) => {
            server.nodes[node].quota = None;
            server.nodes[node].exists = false;
            server.nodes[node].has = [0, 0];
            server.settle(now)?;
            (reference.exists[node], reference.has[node], reference.used[node]) = (false, [0, 0], [0, 0]);
            Ok((true, true))
        }
        Operation::Ask { .. } | Operation::Delete { .. } => Ok((true, true)),
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 128, ..ProptestConfig::default() })]

    #[test]
    fn everybody_has_what_sums_say(
        parents in proptest::collection::vec(any::<prop::sample::Index>(), NAMESPACES),
        operations in proptest::collection::vec(operation(), 0..40),
    ) {
        let parents: Vec<usize> = parents.iter().enumerate().map(|(at, parent)| parent.index(at + 1)).collect();
        let (mut server, mut reference, mut now) = (Server::new(&parents, TOTAL), Reference::new(&parents), 0);
        server.settle(&mut now).map_err(TestCaseError::fail)?;
        for operation in operations {
            let (allowed, expected) =
                both(&mut server, &mut reference, operation, &mut now).map_err(TestCaseError::fail)?;
            prop_assert_eq!(allowed, expected, "{:?}", operation);
            server.check_settled().map_err(TestCaseError::fail)?;
            for (place, node) in server.nodes.iter().enumerate() {
                prop_assert_eq!(node.has, reference.has[place], "{:?}", operation);
                let own = [0, 1].map(|at| reference.own(place, at));
                prop_assert!(node.quota.as_ref().is_none_or(|quota| amounts(&quota.object.hard) == own));
            }
        }
    }
}
