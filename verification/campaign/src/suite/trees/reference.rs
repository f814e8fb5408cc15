//! Trees by chance against a model that knows nothing but sums. People do one thing after the other, each when the one before has come
//! to its end: after each of them all namespaces have what the model says. It uses neither the crate that decides about quotas nor its
//! types, and the programs are the real ones.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use coppice_api::names::TREE_QUOTA_NAME;
use coppice_runtime::clock::SeededRng;
use coppice_sim::fault;
use coppice_sim::run::RunRecord;
use coppice_sim::scenario::{Scenario, ScriptStep};
use coppice_sim::server::Request;
use serde_json::{Value, json};

use super::SUITE;
use super::requests::{
    change_quota, change_total_to, delete_namespace, delete_subnamespace, subnamespace_with, transfer_of,
    tree_with,
};
use super::scenarios::scenario;
use crate::oracle;

/// So many things are done, so many seconds apart: the quota controller may take five to put a quota in force.
const OPERATIONS: u64 = 24;
const PAUSE: u64 = 40;
/// When the first is done.
const START: u64 = 10;
/// The longest path of names.
const DEPTH: usize = 4;
/// So many Subnamespaces are deleted at most, so that trees grow.
const DELETIONS: usize = 3;
const ROOT: &str = "team";
const TOTAL: Amounts = [12, 12];
/// The choices of operations: see [`fault::rng`].
const STREAM: u64 = 5;

/// Of [`RESOURCES`].
type Amounts = [i64; 2];
const RESOURCES: [&str; 2] = ["pods", "cpu"];

fn plus(one: Amounts, other: Amounts) -> Amounts {
    [one[0] + other[0], one[1] + other[1]]
}

fn minus(one: Amounts, other: Amounts) -> Amounts {
    [one[0] - other[0], one[1] - other[1]]
}

fn within(one: Amounts, limit: Amounts) -> bool {
    one[0] <= limit[0] && one[1] <= limit[1]
}

fn hard(amounts: Amounts) -> Value {
    json!({ "pods": amounts[0].to_string(), "cpu": amounts[1].to_string() })
}

/// Whole numbers are written as they are.
fn amounts(hard: &Value) -> Amounts {
    RESOURCES.map(|name| hard[name].as_str().map_or(0, |amount| amount.parse().unwrap()))
}

/// What there is: of each namespace what its quota asks for, what is in force and what it and all below it have; and transfers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Sums {
    namespaces: BTreeMap<String, [Amounts; 3]>,
    transfers: BTreeSet<String>,
}

/// A namespace of the model.
struct Node {
    /// The root has none.
    parent: Option<String>,
    has: Amounts,
    /// What was last asked for it and granted. Asked for again, it changes nothing, whatever was transferred since.
    granted: Amounts,
}

/// A tree as numbers.
struct Model {
    nodes: BTreeMap<String, Node>,
    transfers: BTreeSet<(String, String)>,
    deleted: usize,
    /// How often something was granted, or refused.
    outcomes: BTreeMap<(&'static str, bool), u32>,
}

impl Model {
    fn new() -> Self {
        let root = Node { parent: None, has: TOTAL, granted: TOTAL };
        Self {
            nodes: BTreeMap::from([(ROOT.to_owned(), root)]),
            transfers: BTreeSet::new(),
            deleted: 0,
            outcomes: BTreeMap::new(),
        }
    }

    /// What its children have.
    fn given(&self, name: &str) -> Amounts {
        let children = self.nodes.values().filter(|node| node.parent.as_deref() == Some(name));
        children.fold([0, 0], |sum, node| plus(sum, node.has))
    }

    fn own(&self, name: &str) -> Amounts {
        minus(self.nodes[name].has, self.given(name))
    }

    fn has_children(&self, name: &str) -> bool {
        self.nodes.values().any(|node| node.parent.as_deref() == Some(name))
    }

    /// The names from the root down to a namespace.
    fn path(&self, name: &str) -> Vec<String> {
        let above = |name: &String| self.nodes[name].parent.clone();
        let mut path: Vec<String> = std::iter::successors(Some(name.to_owned()), above).collect();
        path.reverse();
        path
    }

    fn sums(&self) -> Sums {
        let of = |(name, node): (&String, &Node)| {
            let own = self.own(name);
            (name.clone(), [own, own, node.has])
        };
        let transfers = self.transfers.iter().map(|(source, name)| format!("{source}/{name}: Completed"));
        Sums { namespaces: self.nodes.iter().map(of).collect(), transfers: transfers.collect() }
    }

    fn came_of(&mut self, what: &'static str, granted: bool) -> bool {
        *self.outcomes.entry((what, granted)).or_default() += 1;
        granted
    }

    /// The next thing that somebody does; the model has done it.
    fn operation(&mut self, rng: &mut SeededRng, number: u64) -> Request {
        loop {
            if let Some(request) = self.attempt(rng, number) {
                return request;
            }
        }
    }

    /// None if it makes no sense.
    fn attempt(&mut self, rng: &mut SeededRng, number: u64) -> Option<Request> {
        let names: Vec<String> = self.nodes.keys().cloned().collect();
        let [one, other] = [(); 2].map(|()| &*names[below(rng, names.len())]);
        let want = [(); 2].map(|()| i64::try_from(below(rng, 6)).unwrap());
        let letter = ["a", "b", "c"][below(rng, 3)];
        match below(rng, 16) {
            0..5 => self.create(one, letter, want),
            5..9 => self.change(one, want),
            9..12 => self.transfer((one, other), [1 + want[0] % 3, 1 + want[1] % 2], number),
            12 => self.delete(one),
            13 => self.change_total(plus(want, [8, 8])),
            _ => self.delete_parent(one),
        }
    }

    fn create(&mut self, parent: &str, letter: &str, want: Amounts) -> Option<Request> {
        let name = format!("{parent}-{letter}");
        if self.path(parent).len() >= DEPTH || self.nodes.contains_key(&name) {
            return None;
        }
        let request = subnamespace_with(parent, &name, &hard(want));
        let granted = within(want, self.own(parent));
        if self.came_of("create", granted) {
            self.nodes.insert(name, Node { parent: Some(parent.to_owned()), has: want, granted: want });
        }
        Some(request)
    }

    fn change(&mut self, name: &str, want: Amounts) -> Option<Request> {
        let (node, given) = (&self.nodes[name], self.given(name));
        let parent = node.parent.as_deref()?;
        let request = change_quota(parent, name, &hard(want));
        if want == node.granted {
            return Some(request);
        }
        let (has, above) = (node.has, self.own(parent));
        let granted = (0..RESOURCES.len()).all(|at| {
            let kept = want[at] >= has[at] || want[at] >= given[at];
            kept && want[at] - has[at] <= above[at]
        });
        if self.came_of("change", granted) {
            let parent = node_parent(&self.nodes[name]);
            self.nodes.insert(name.to_owned(), Node { parent, has: want, granted: want });
        }
        Some(request)
    }

    /// Each namespace on the way below the lowest one that both are below, or are, has less, or more.
    fn transfer(&mut self, (source, to): (&str, &str), amount: Amounts, number: u64) -> Option<Request> {
        if source == to {
            return None;
        }
        let (up, down) = (self.path(source), self.path(to));
        let common = up.iter().zip(&down).take_while(|(one, other)| one == other).count();
        let through = &up[common - 1];
        let name = format!("give-{number}");
        let request = transfer_of(source, &name, (to, through), &hard(amount));
        let granted = within(amount, self.own(source));
        if self.came_of("transfer", granted) {
            for (names, change) in [(&up, minus([0, 0], amount)), (&down, amount)] {
                for node in &names[common..] {
                    let node = self.nodes.get_mut(node).unwrap();
                    node.has = plus(node.has, change);
                }
            }
            self.transfers.insert((source.to_owned(), name));
        }
        Some(request)
    }

    /// What a namespace has that nothing is below returns.
    fn delete(&mut self, name: &str) -> Option<Request> {
        let parent = node_parent(&self.nodes[name])?;
        if self.has_children(name) || self.deleted >= DELETIONS {
            return None;
        }
        self.deleted += 1;
        self.came_of("delete", true);
        self.gone(name);
        Some(delete_subnamespace(&parent, name))
    }

    /// Those right below it come to be below the one above, with all that they have.
    fn delete_parent(&mut self, name: &str) -> Option<Request> {
        let parent = node_parent(&self.nodes[name])?;
        if !self.has_children(name) {
            return None;
        }
        self.came_of("delete a parent", true);
        self.gone(name);
        for node in self.nodes.values_mut().filter(|node| node.parent.as_deref() == Some(name)) {
            node.parent = Some(parent.clone());
        }
        Some(delete_namespace(name))
    }

    /// With all objects in it.
    fn gone(&mut self, name: &str) {
        self.nodes.remove(name);
        self.transfers.retain(|(source, _)| source != name);
    }

    /// To no less than what the others have: that would be refused, and granted as soon as they return enough.
    fn change_total(&mut self, total: Amounts) -> Option<Request> {
        if !within(self.given(ROOT), total) {
            return None;
        }
        self.came_of("change the total", true);
        self.nodes.insert(ROOT.to_owned(), Node { parent: None, has: total, granted: total });
        Some(change_total_to(ROOT, &hard(total)))
    }
}

/// A number below this one.
fn below(rng: &mut SeededRng, limit: usize) -> usize {
    usize::try_from(rng.next_u64() % limit as u64).unwrap()
}

fn node_parent(node: &Node) -> Option<String> {
    node.parent.clone()
}

/// What people do, and after each of it what there is by the model.
fn generated(seed: u64, model: &mut Model) -> (Scenario, Vec<(String, Sums)>) {
    let mut rng = fault::rng(seed, STREAM, 0);
    let mut scenario = scenario("tree-reference", "people do one thing after the other, as a seed says");
    scenario.setup.extend(tree_with(ROOT, &hard(TOTAL)));
    let mut expected = Vec::new();
    for number in 0..OPERATIONS {
        let request = model.operation(&mut rng, number);
        let what = format!("{} {} {}", request.method, request.path, String::from_utf8_lossy(&request.body));
        expected.push((what, model.sums()));
        let step = ScriptStep::at(START + number * PAUSE, move |_| request.clone());
        scenario.script.push(step.or_not());
    }
    scenario.lasts = Duration::from_secs(START + OPERATIONS * PAUSE);
    (scenario, expected)
}

/// What the API server had until then.
fn observed(record: &RunRecord<'_>, until: Duration) -> Sums {
    let until = record.began.checked_add(until).unwrap();
    let mut objects: BTreeMap<(&str, &str, &str), &Value> = BTreeMap::new();
    for change in record.changes.iter().take_while(|change| change.at < until) {
        let place = (&*change.kind.plural, change.namespace(), change.name());
        match change.after.as_deref() {
            Some(object) => objects.insert(place, object),
            None => objects.remove(&place),
        };
    }
    let mut sums = Sums::default();
    for ((kind, namespace, name), object) in objects {
        let allotment = &object["status"]["allotment"];
        match kind {
            "resourcequotas" if name == TREE_QUOTA_NAME => {
                let of = sums.namespaces.entry(namespace.to_owned()).or_default();
                (of[0], of[1]) = (amounts(&object["spec"]["hard"]), amounts(&object["status"]["hard"]));
            }
            "subnamespaces" => {
                sums.namespaces.entry(name.to_owned()).or_default()[2] = amounts(&allotment["hard"]);
            }
            "namespacetrees" => sums.namespaces.entry(ROOT.to_owned()).or_default()[2] = amounts(allotment),
            "quotatransfers" => {
                let phase = object["status"]["phase"].as_str().unwrap_or_default();
                sums.transfers.insert(format!("{namespace}/{name}: {phase}"));
            }
            _ => {}
        }
    }
    sums
}

/// What a run of operations by chance came to.
#[derive(Debug)]
pub struct AgainstSums {
    /// Where a namespace had something else than the model says, and which rules were broken.
    pub differences: Vec<String>,
    /// How often each operation was granted, and how often refused.
    pub outcomes: BTreeMap<(&'static str, bool), u32>,
}

/// Plays the operations of a seed, and compares what all namespaces have after each of them with the model.
///
/// # Errors
///
/// What keeps the simulation from running.
pub fn against_sums(seed: u64) -> anyhow::Result<AgainstSums> {
    let mut model = Model::new();
    let (scenario, expected) = generated(seed, &mut model);
    let plan = SUITE.without_faults(scenario, seed);
    let (observations, mut differences) = coppice_sim::run::run(&plan, |record| {
        let after = |number: u64| observed(record, Duration::from_secs(START + number * PAUSE));
        let sums: Vec<Sums> = (1..=OPERATIONS).map(after).collect();
        (sums, oracle::judge(&SUITE, record, None).into_parts().0)
    })?;
    for (number, ((what, sums), observation)) in expected.iter().zip(&observations).enumerate() {
        if observation != sums {
            differences
                .push(format!("after operation {number}, {what}: {observation:?} in the place of {sums:?}"));
        }
    }
    Ok(AgainstSums { differences, outcomes: model.outcomes })
}
