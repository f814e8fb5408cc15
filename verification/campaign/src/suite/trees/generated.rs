//! Trees by chance: a seed says what people do with them, at any time and without waiting for what they did before.

use std::time::Duration;

use coppice_sim::fault;
use coppice_sim::scenario::objects::config;
use coppice_sim::scenario::{Scenario, ScriptStep};
use coppice_sim::server::{Request, Server};
use serde_json::{Value, json};

use super::requests::{
    bind, change_quota, change_total_to, consent, delete_namespace, delete_pod, delete_subnamespace,
    delete_transfer, pod_with_cpu, subnamespace_with, transfer_of, tree_with,
};
use super::scenarios::scenario;

/// The name of all of them,
pub(super) const NAME: &str = "tree-generated";
/// and of those in which more is deleted.
pub(super) const CASCADES: &str = "tree-generated-cascades";
/// So many things are done.
const OPERATIONS: u64 = 24;
/// Up to so many seconds lie between two of them.
const PAUSE: u64 = 6;
/// The longest path of names in a tree.
const DEPTH: usize = 4;
/// So many kinds of things are done, of which these are two.
const CHOICES: u64 = 24;
const CONSENT: u64 = 21;
const DELETE: u64 = 23;
const ROOT: &str = "team";
/// The choices of choices: see [`fault::rng`].
const STREAM: u64 = 4;
/// Runs begin at 00:00, and end before this.
const LATER: &str = "2026-01-01T02:00:00Z";

/// What a seed says.
pub(super) fn generated(seed: u64) -> Scenario {
    let about =
        "people create, change, move and delete namespaces of a tree and quota at any time, as a seed says";
    of_seed(seed, scenario(NAME, about), |number| number % CHOICES)
}

/// The same, and most of what people do is to delete, and to consent that what is below goes, too. No budget stops it.
pub(super) fn cascades(seed: u64) -> Scenario {
    let about = "people create namespaces of a tree, and delete them with all below, as a seed says";
    let mut scenario = of_seed(seed, scenario(CASCADES, about), |number| match number % CHOICES {
        what @ 0..9 => what,
        9..16 => CONSENT,
        _ => DELETE,
    });
    scenario.setup.push(config(&json!({ "governor": { "atLeast": 100 } })));
    scenario
}

/// `choose`: which kind of thing is done, by a random number.
fn of_seed(seed: u64, mut scenario: Scenario, choose: fn(u64) -> u64) -> Scenario {
    let mut rng = fault::rng(seed, STREAM, 0);
    scenario.replicas = if rng.next_u64().is_multiple_of(2) { 2 } else { 1 };
    // Without the webhook what cannot be given is stored, and refused later.
    scenario.webhooks = fault::rng(seed, STREAM, 1).next_u64().is_multiple_of(2);
    scenario.setup.extend(tree_with(ROOT, &hard(6 + rng.next_u64() % 7, 10 + rng.next_u64() % 20)));
    scenario.setup.push(bind(ROOT, "developers", "alice"));
    let mut at = 1;
    for _ in 0..OPERATIONS {
        at += rng.next_u64() % PAUSE;
        scenario.script.push(match choose(rng.next_u64()) {
            0 => ScriptStep::kill_leader(at),
            1 => ScriptStep::compact_history(at),
            what => {
                let numbers = [(); 4].map(|()| rng.next_u64());
                ScriptStep::at(at, move |server| operation(server, what, numbers)).or_not()
            }
        });
    }
    scenario.ends = vec!["*"];
    scenario.lasts = Duration::from_secs(at + 60);
    scenario
}

/// A namespace of a tree.
struct Node {
    /// The one above; none above the root.
    parent: Option<String>,
    name: String,
}

impl Node {
    /// Where its Subnamespace is, or would be.
    fn parent(&self) -> &str {
        self.parent.as_deref().unwrap_or(ROOT)
    }
}

/// Something that somebody does with what there is. It may make no sense, such as to create what is there.
fn operation(server: &Server, what: u64, [one, other, pods, cpu]: [u64; 4]) -> Request {
    let nodes = nodes(server);
    let (node, to) = (chosen(&nodes, one), &*chosen(&nodes, other).name);
    let (parent, name) = (node.parent(), &*node.name);
    let (quota, transfer, pod) =
        (hard(pods % 7, cpu % 12), format!("give-{}", other % 2), format!("pod-{}", other % 3));
    match what {
        2..8 => {
            let deepest = name.split('-').count() >= DEPTH;
            let above = if deepest { ROOT } else { name };
            let letter = ["a", "b", "c"][usize::try_from(other % 3).unwrap_or(0)];
            subnamespace_with(above, &format!("{above}-{letter}"), &quota)
        }
        8..13 => change_quota(parent, name, &quota),
        13..17 => transfer_of(name, &transfer, (to, &common(name, to)), &hard(1 + pods % 3, cpu % 4)),
        17 => delete_transfer(name, &transfer),
        18 => pod_with_cpu(name, &pod),
        19 => delete_pod(name, &pod),
        20 => change_total_to(ROOT, &hard(4 + pods % 12, 8 + cpu % 24)),
        CONSENT => consent(parent, name, LATER),
        // A policy refuses it to users where there are others below.
        22 if node.parent.is_some() && !nodes.iter().any(|other| other.parent() == name) => {
            delete_namespace(name)
        }
        _ => delete_subnamespace(parent, name),
    }
}

/// An amount of each resource. A unit of cpu is a quarter.
fn hard(pods: u64, cpu: u64) -> Value {
    json!({ "pods": pods.to_string(), "cpu": format!("{}m", cpu * 250) })
}

/// The namespaces of the tree, the root first.
fn nodes(server: &Server) -> Vec<Node> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let below = server.objects("coppice.dev", "subnamespaces", "");
    let below = below.filter(|object| object["status"]["namespaceUid"].is_string()).map(|object| {
        let metadata = &object["metadata"];
        Node { parent: Some(text(&metadata["namespace"])), name: text(&metadata["name"]) }
    });
    [Node { parent: None, name: ROOT.to_owned() }].into_iter().chain(below).collect()
}

/// The root is among them.
fn chosen(nodes: &[Node], number: u64) -> &Node {
    &nodes[usize::try_from(number % nodes.len() as u64).unwrap_or(0)]
}

/// The lowest namespace that both are below, or are. Names show it, since each begins with the name of the one above.
fn common(one: &str, other: &str) -> String {
    let both = one.split('-').zip(other.split('-')).take_while(|(one, other)| one == other);
    both.map(|(part, _)| part).collect::<Vec<_>>().join("-")
}
