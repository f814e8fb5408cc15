//! Metrics about trees. Names of trees and resources are labels; both are bounded, and end with their objects.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::AtomicU64;

use coppice_api::TransferPhase;
use coppice_hierarchy::{AllotmentChange, Quota, ResourceName, Resources};
use coppice_runtime::metrics::{DynamicFamily, Metrics, Registrar};
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;

use crate::context::TreeContext;

/// So many resources have series: more than trees have that anybody looks at.
const MAX_RESOURCES: usize = 32;

/// What the controllers of trees measure. Clones share it.
#[derive(Clone, Debug)]
pub struct TreeMetrics {
    quota: DynamicFamily<ByResource, Gauge<f64, AtomicU64>>,
    namespaces: DynamicFamily<ByPhase, Gauge>,
    transfers: Family<ByPhase, Gauge>,
    tree_transfers: DynamicFamily<ByPhase, Gauge>,
    changes: DynamicFamily<ByCause, Gauge>,
}

/// An amount of a resource.
#[derive(Clone, Debug, Default, Hash, PartialEq, Eq, PartialOrd, Ord, EncodeLabelSet)]
struct ByResource {
    resource: String,
    state: &'static str,
}

#[derive(Clone, Debug, Default, Hash, PartialEq, Eq, PartialOrd, Ord, EncodeLabelSet)]
struct ByPhase {
    phase: &'static str,
}

/// What changes an allotment.
#[derive(Clone, Debug, Default, Hash, PartialEq, Eq, PartialOrd, Ord, EncodeLabelSet)]
struct ByCause {
    cause: &'static str,
}

impl ByCause {
    fn of(change: &AllotmentChange) -> Self {
        let cause = match change {
            AllotmentChange { transfer: Some(_), .. } => "transfer",
            AllotmentChange { moves: Some(_), .. } => "move",
            _ => "request",
        };
        Self { cause }
    }
}

/// How many there are of each tree, by other labels.
type Counts<S> = BTreeMap<(String, S), i64>;

/// Counts one more; none of which the tree is not known.
fn add<S: Ord>(counts: &mut Counts<S>, tree: &str, labels: S) {
    if !tree.is_empty() {
        *counts.entry((tree.to_owned(), labels)).or_default() += 1;
    }
}

impl TreeMetrics {
    /// Without series, registered in `metrics`.
    pub fn new(metrics: &Metrics) -> Self {
        let this = Self {
            quota: DynamicFamily::new("tree"),
            namespaces: DynamicFamily::new("tree"),
            transfers: Family::default(),
            tree_transfers: DynamicFamily::new("tree"),
            changes: DynamicFamily::new("tree"),
        };
        metrics.register(|registry| this.register(registry));
        this
    }

    fn register(&self, to: &mut Registrar<'_>) {
        to.register("tree_quota", "Quota of a tree by resource, in its unit (cores, bytes, objects), counted once a minute by every replica of `coppice-trees`: `allotted` to the tree, `used` in all of its namespaces, `free` in its root, and `overdraft`, which is used beyond the quotas of single namespaces; the 64 trees with the most namespaces, the rest as `other`, and at most 32 resources", self.quota.clone());
        to.register("tree_namespaces", "Namespaces below the root of a tree by the phase of their Subnamespace, counted once a minute by every replica of `coppice-trees`; the 64 trees with the most, the rest as `other`", self.namespaces.clone());
        to.register(
            "quota_transfers",
            "QuotaTransfers by phase, counted once a minute by every replica of `coppice-trees`",
            self.transfers.clone(),
        );
        to.register("tree_transfers", "QuotaTransfers of a tree by phase, of those whose tree is known, counted once a minute by every replica of `coppice-trees`; the 64 trees with the most, the rest as `other`", self.tree_transfers.clone());
        to.register("tree_allotment_changes", "Changes of what namespaces of a tree were given that are under way, by cause: the `request` of a Subnamespace, a `transfer`, or a `move` to another namespace above; each takes seconds, and half a minute where the quota is in use; counted once a minute by every replica of `coppice-trees`; the 64 trees with the most, the rest as `other`", self.changes.clone());
    }

    /// Counts everything again.
    pub(crate) fn count(&self, context: &TreeContext) {
        let mut phases = Counts::new();
        context.subnamespaces.for_each(|object| {
            if let Some(phase) = object.status.phase {
                add(&mut phases, &object.status.tree, ByPhase { phase: phase.as_str() });
            }
        });
        self.namespaces.set_all(&phases);

        let trees = amounts(context);
        // A tree without namespaces below its root has one all the same.
        let mut weights: BTreeMap<&str, i64> = trees.keys().map(|tree| (&**tree, 1)).collect();
        for ((tree, _), count) in &phases {
            weights.entry(tree).and_modify(|weight| *weight += count);
        }
        self.quota.set_amounts(&weights, &series(&trees));

        let mut transfers = BTreeMap::from(TransferPhase::ALL.map(|phase| (phase.as_str(), 0_i64)));
        let mut of_trees = Counts::new();
        context.transfers.for_each(|transfer| {
            if let Some(phase) = transfer.status.phase {
                let phase = phase.as_str();
                *transfers.entry(phase).or_default() += 1;
                add(&mut of_trees, &transfer.status.tree, ByPhase { phase });
            }
        });
        self.tree_transfers.set_all(&of_trees);
        for (phase, count) in transfers {
            self.transfers.get_or_create(&ByPhase { phase }).set(count);
        }

        let mut changes = Counts::new();
        context.quotas.for_each(|quota| {
            if let (Some(tree), Ok(own)) = (&quota.tree, &quota.quota) {
                own.ledger.changes.values().for_each(|change| add(&mut changes, tree, ByCause::of(change)));
            }
        });
        self.changes.set_all(&changes);
    }
}

/// What there is of the quota of a tree.
#[derive(Debug, Default, PartialEq)]
struct Amounts {
    allotted: Resources,
    used: Resources,
    free: Resources,
    overdraft: Resources,
}

impl Amounts {
    /// Takes in the quota of one namespace of the tree.
    fn add(&mut self, quota: &Quota, is_root: bool) {
        // A sum that is no quantity is not counted.
        let sum = |sum: &Resources, more: &Resources| sum.plus(more).unwrap_or_default();
        self.used = sum(&self.used, &quota.used);
        self.overdraft = sum(&self.overdraft, &quota.used.minus(&quota.hard));
        if is_root {
            self.free = quota.unused();
        }
    }

    fn states(&self) -> [(&'static str, &Resources); 4] {
        [
            ("allotted", &self.allotted),
            ("free", &self.free),
            ("overdraft", &self.overdraft),
            ("used", &self.used),
        ]
    }
}

/// Of every tree that is set up, by its name.
fn amounts(context: &TreeContext) -> BTreeMap<String, Amounts> {
    let mut trees = BTreeMap::new();
    let mut roots = BTreeMap::new();
    context.trees.for_each(|tree| {
        if let (Ok(spec), Some(_), Ok(allotted)) =
            (&tree.spec, &tree.status.root_uid, Resources::recorded(&tree.status.allotment))
        {
            trees.insert(tree.name.to_string(), Amounts { allotted, ..Amounts::default() });
            roots.insert(tree.name.clone(), spec.root.clone());
        }
    });
    context.quotas.for_each(|quota| {
        if let (Some(tree), Ok(own)) = (&quota.tree, &quota.quota)
            && let Some(amounts) = trees.get_mut(&**tree)
        {
            amounts.add(own, roots.get(tree).is_some_and(|root| **root == *quota.namespace));
        }
    });
    trees
}

/// The series of these trees, of the resources that they limit.
fn series(trees: &BTreeMap<String, Amounts>) -> BTreeMap<(String, ByResource), f64> {
    let limited = |tree: &Amounts| tree.allotted.iter().map(|(name, _)| name.clone()).collect::<Vec<_>>();
    let all: BTreeSet<ResourceName> = trees.values().flat_map(limited).collect();
    let resources: Vec<ResourceName> = all.into_iter().take(MAX_RESOURCES).collect();
    let mut series = BTreeMap::new();
    for (name, tree) in trees {
        for resource in resources.iter().filter(|resource| tree.allotted.names(resource)) {
            for (state, amounts) in tree.states() {
                let labels = ByResource { resource: resource.as_str().to_owned(), state };
                series.insert((name.clone(), labels), amounts.get(resource).as_f64());
            }
        }
    }
    series
}

#[cfg(test)]
mod tests {
    use coppice_hierarchy::Ledger;
    use coppice_quantity::Quantity;

    use super::*;

    fn resources(written: &[(&str, &str)]) -> Resources {
        let parse = |amount: &str| amount.parse::<Quantity>().unwrap();
        Resources::parse(written.iter().map(|(name, amount)| (*name, parse(amount)))).unwrap()
    }

    fn quota(hard: &[(&str, &str)], used: &[(&str, &str)]) -> Quota {
        let (hard, used) = (resources(hard), resources(used));
        Quota { enforced: hard.clone(), hard, used, ledger: Ledger::default() }
    }

    #[test]
    fn a_tree_has_what_its_namespaces_use_and_what_one_uses_too_much_hides_behind_no_other() {
        let mut tree =
            Amounts { allotted: resources(&[("cpu", "10"), ("pods", "20")]), ..Amounts::default() };
        tree.add(&quota(&[("cpu", "6"), ("pods", "12")], &[("cpu", "500m"), ("pods", "2")]), true);
        tree.add(&quota(&[("cpu", "4"), ("pods", "8")], &[("cpu", "1"), ("pods", "9")]), false);
        let series = series(&BTreeMap::from([("shop".to_owned(), tree)]));
        let of = |resource: &str, state| {
            series[&("shop".to_owned(), ByResource { resource: resource.to_owned(), state })].to_string()
        };
        let states = ["allotted", "used", "free", "overdraft"];
        assert_eq!(states.map(|state| of("cpu", state)), ["10", "1.5", "5.5", "0"]);
        assert_eq!(states.map(|state| of("pods", state)), ["20", "11", "10", "1"]);
        assert_eq!(series.len(), 8);
    }

    #[test]
    fn resources_beyond_those_that_have_series_have_none() {
        let names: Vec<String> = (0..40).map(|n| format!("count/kind-{n:02}s.example.org")).collect();
        let hard: Vec<(&str, &str)> = names.iter().map(|name| (&**name, "1")).collect();
        let tree = Amounts { allotted: resources(&hard), ..Amounts::default() };
        assert_eq!(series(&BTreeMap::from([("t".to_owned(), tree)])).len(), 4 * MAX_RESOURCES);
    }

    #[test]
    fn series_have_their_names_and_end_with_their_objects() {
        let registry = Metrics::new("test");
        let metrics = TreeMetrics::new(&registry);
        let tree = Amounts { allotted: resources(&[("memory", "1Ki")]), ..Amounts::default() };
        metrics.quota.set_amounts(
            &BTreeMap::from([("shop", 1)]),
            &series(&BTreeMap::from([("shop".to_owned(), tree)])),
        );
        let line = "coppice_tree_quota{tree=\"shop\",resource=\"memory\",state=\"allotted\"} 1024.0";
        assert!(registry.encode().lines().any(|l| l == line), "{}", registry.encode());
        metrics.quota.set_amounts(&BTreeMap::new(), &BTreeMap::new());
        assert!(!registry.encode().contains("shop"), "{}", registry.encode());
    }

    #[test]
    fn what_moves_has_series_for_each_tree_by_what_moves_it() {
        let registry = Metrics::new("test");
        let metrics = TreeMetrics::new(&registry);
        let change = |transfer: Option<&str>, moves: Option<&str>| AllotmentChange {
            number: 1,
            from: Resources::default(),
            to: resources(&[("pods", "1")]),
            since: "2026-01-01T00:00:00Z".parse().unwrap(),
            transfer: transfer.map(str::to_owned),
            moves: moves.map(str::to_owned),
        };
        let (mut changes, mut transfers) = (Counts::new(), Counts::new());
        for change in
            [change(None, None), change(None, None), change(Some("t"), None), change(None, Some("c"))]
        {
            add(&mut changes, "shop", ByCause::of(&change));
        }
        for tree in ["shop", ""] {
            add(&mut transfers, tree, ByPhase { phase: TransferPhase::Moving.as_str() });
        }
        metrics.changes.set_all(&changes);
        metrics.tree_transfers.set_all(&transfers);
        let text = registry.encode();
        let mut lines: Vec<&str> = text.lines().filter(|line| line.contains("{tree=")).collect();
        lines.sort_unstable();
        let expected = [
            r#"coppice_tree_allotment_changes{tree="shop",cause="move"} 1"#,
            r#"coppice_tree_allotment_changes{tree="shop",cause="request"} 2"#,
            r#"coppice_tree_allotment_changes{tree="shop",cause="transfer"} 1"#,
            r#"coppice_tree_transfers{tree="shop",phase="Moving"} 1"#,
        ];
        assert_eq!(lines, expected);
        metrics.changes.set_all(&Counts::new());
        metrics.tree_transfers.set_all(&Counts::new());
        assert!(!registry.encode().contains("shop"), "{}", registry.encode());
    }
}
