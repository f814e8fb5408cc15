//! Whether the quotas of a tree hold, at every revision: by what its native quotas are together, and by what people asked for. What the program
//! says that a namespace was given limits it besides, and permits nothing.

use std::collections::{BTreeMap, BTreeSet};

use coppice_api::names::{ANNOTATION_LEDGER, ANNOTATION_MOVED_FROM, TREE_QUOTA_NAME};
use coppice_quantity::Quantity;
use coppice_sim::run::RunRecord;
use coppice_sim::server::Change;
use serde_json::Value;

use super::rule::{LIMIT, NOTHING_LOST, USED};
use crate::oracle::Findings;

/// An amount of each resource.
pub(super) type Amounts = BTreeMap<String, Quantity>;

/// What there is at a revision.
#[derive(Default)]
pub(super) struct Trees {
    /// The most that the tree with this root may have: what was asked for it since it last was ready with what was asked for.
    limits: BTreeMap<String, Amounts>,
    /// What the tree with this root is asked to have, and whether that was refused.
    totals: BTreeMap<String, (Amounts, bool)>,
    /// The quotas of namespaces.
    quotas: BTreeMap<String, NativeQuota>,
    /// What each pod in each namespace uses that has not ended.
    pods: BTreeMap<String, BTreeMap<String, Amounts>>,
    /// By its name, the namespace above one, and what is recorded of its allotment.
    nodes: BTreeMap<String, (String, Amounts)>,
    /// By its name, the most that was asked for a namespace since it last was ready with what was asked for.
    asked: BTreeMap<String, Amounts>,
    /// By its name, what each transfer, by its uid, may have brought to a namespace, or brought back.
    brought: BTreeMap<String, BTreeMap<String, Amounts>>,
    /// The uids of `Subnamespace`s whose namespaces others have taken over.
    left: BTreeSet<String>,
}

#[derive(Default)]
struct NativeQuota {
    /// The larger of what is asked for and what is in force.
    own: Amounts,
    /// What its ledger says the namespace and all below it have.
    allotment: Amounts,
    /// The ledger as it is written, for people.
    ledger: String,
}

/// Answers what there is when all is done.
pub(super) fn check(record: &RunRecord<'_>, found: &mut Findings) -> Trees {
    let mut trees = Trees::default();
    let mut said = 0;
    for change in record.changes {
        if !trees.take(change) || said >= 3 {
            continue;
        }
        let before = found.count();
        trees.judge(change.revision, found);
        said += usize::from(found.count() > before);
    }
    for (root, (total, refused)) in &trees.totals {
        let Some(quota) = trees.quotas.get(root) else { continue };
        found.judges(NOTHING_LOST);
        let own = trees.has(root);
        let total = if *refused { &quota.allotment } else { total };
        let lost: Vec<&String> =
            total.iter().filter(|(name, amount)| get(&own, name) != **amount).map(|(name, _)| name).collect();
        if !lost.is_empty() {
            let ledgers: Vec<String> =
                trees.quotas.iter().map(|(name, quota)| format!("{name} {}", quota.ledger)).collect();
            let what = format!(
                "the namespaces of {root} have {own:?} in the end, and the tree has {total:?}: {}",
                ledgers.join(", ")
            );
            found.add(NOTHING_LOST, &what);
        }
    }
    trees
}

impl Trees {
    /// What the native quotas of a namespace and of all below it are together.
    pub(super) fn has(&self, top: &str) -> Amounts {
        let quotas = self.quotas.iter().filter(|(namespace, _)| self.is_below(namespace, top));
        quotas.fold(Amounts::new(), |sum, (_, quota)| plus(sum, &quota.own))
    }

    /// Takes a change in; whether anything here is another than before.
    fn take(&mut self, change: &Change) -> bool {
        let (name, after) = (change.name(), change.after.as_deref());
        match &*change.kind.plural {
            "resourcequotas" if name == TREE_QUOTA_NAME => {
                let namespace = change.namespace().to_owned();
                match after {
                    Some(quota) => drop(self.quotas.insert(namespace, native(quota))),
                    None => drop(self.quotas.remove(&namespace)),
                }
            }
            "pods" => {
                let pods = self.pods.entry(change.namespace().to_owned()).or_default();
                let ended =
                    |pod: &Value| pod["status"]["phase"] == "Succeeded" || pod["status"]["phase"] == "Failed";
                match after.filter(|pod| !ended(pod)) {
                    Some(pod) => return pods.insert(name.to_owned(), used_by(pod)).is_none(),
                    None => return pods.remove(name).is_some(),
                }
            }
            "namespacetrees" => {
                let spec = after.or(change.before.as_deref()).map(|tree| &tree["spec"]);
                let root = spec.and_then(|spec| spec["root"].as_str()).unwrap_or_default().to_owned();
                let Some(tree) = after else {
                    self.totals.remove(&root);
                    return true;
                };
                let total = amounts(&tree["spec"]["quota"]["hard"]);
                // Less only once that much is not used any more.
                let limit = self.limits.entry(root.clone()).or_default();
                *limit = if is_ready(tree) { total.clone() } else { larger(limit, &total) };
                self.totals.insert(root, (total, refused(tree)));
            }
            // What it says of a namespace that is not its own any more.
            "subnamespaces" if self.left.contains(&*change.uid) => return false,
            "subnamespaces" => return self.take_subnamespace(change),
            "quotatransfers" => {
                let Some(transfer) = after else { return false };
                let to = transfer["spec"]["to"].as_str().unwrap_or_default();
                let (up, down) = (self.above(change.namespace()), self.above(to));
                for one in up.symmetric_difference(&down) {
                    let brought = self.brought.entry(one.clone()).or_default();
                    brought.insert(change.uid.to_string(), amounts(&transfer["spec"]["amount"]));
                }
                return false;
            }
            _ => return false,
        }
        true
    }

    fn take_subnamespace(&mut self, change: &Change) -> bool {
        let name = change.name();
        let Some(object) = change.after.as_deref() else {
            if self.nodes.get(name).is_some_and(|(parent, _)| parent != change.namespace()) {
                return false;
            }
            self.asked.remove(name);
            return self.nodes.remove(name).is_some();
        };
        let asked = amounts(&object["spec"]["quota"]["hard"]);
        let most = self.asked.entry(name.to_owned()).or_default();
        *most = if is_ready(object) { asked } else { larger(most, &asked) };
        if !object["status"]["namespaceUid"].is_string() {
            return false;
        }
        let allotted = amounts(&object["status"]["allotment"]["hard"]);
        let from = &object["metadata"]["annotations"][ANNOTATION_MOVED_FROM];
        self.left.extend(from.as_str().map(str::to_owned));
        self.nodes.insert(name.to_owned(), (change.namespace().to_owned(), allotted));
        true
    }

    fn judge(&self, revision: u64, found: &mut Findings) {
        for (root, limit) in &self.limits {
            let own = self.has(root);
            found.judges(LIMIT);
            if let Some(name) = beyond(&own, limit) {
                let (own, limit) = (get(&own, name), get(limit, name));
                let what =
                    format!("{own} {name} in all quotas of {root}, of {limit}, at revision {revision}");
                found.add(LIMIT, &what);
            }
            let pods = self.pods.iter().filter(|(namespace, _)| self.is_below(namespace, root));
            let used = pods.flat_map(|(_, pods)| pods.values()).fold(Amounts::new(), plus);
            if !used.is_empty() {
                found.judges(USED);
            }
            // What is not limited may be used without end.
            let mut limited = used.iter().filter(|(name, _)| limit.contains_key(*name));
            if let Some((name, used)) = limited.find(|(name, used)| **used > get(limit, name)) {
                let what = format!("pods in {root} use {used} {name}, of {limit:?}, at revision {revision}");
                found.add(USED, &what);
            }
        }
        for (node, (_, recorded)) in &self.nodes {
            let (own, asked) = (self.has(node), self.asked_for(node));
            let given = self.quotas.get(node).map(|quota| larger(recorded, &quota.allotment));
            for (limit, of) in [(Some(asked), "were asked for"), (given, "are recorded")] {
                let Some(limit) = limit else { continue };
                if let Some(name) = beyond(&own, &limit) {
                    let (own, limit) = (get(&own, name), get(&limit, name));
                    let what = format!(
                        "{own} {name} in the quotas from {node} on, and {limit} {of}, at revision {revision}"
                    );
                    found.add(LIMIT, &what);
                }
            }
        }
    }

    /// The most that people asked for a namespace and all below it, transfers included.
    fn asked_for(&self, node: &str) -> Amounts {
        let asked = self.asked.get(node).cloned().unwrap_or_default();
        let brought = self.brought.get(node).into_iter().flat_map(BTreeMap::values);
        brought.fold(asked, plus)
    }

    /// A namespace and all above it.
    fn above(&self, namespace: &str) -> BTreeSet<String> {
        let mut above = BTreeSet::new();
        let mut at = namespace;
        while above.insert(at.to_owned()) {
            let Some((parent, _)) = self.nodes.get(at) else { break };
            at = parent;
        }
        above
    }

    fn is_below(&self, namespace: &str, top: &str) -> bool {
        let mut at = namespace;
        for _ in 0..64 {
            if at == top {
                return true;
            }
            let Some((parent, _)) = self.nodes.get(at) else { return false };
            at = parent;
        }
        false
    }
}

/// What a pod uses: one of the pods, and what its containers request.
fn used_by(pod: &Value) -> Amounts {
    let containers = pod["spec"]["containers"].as_array().into_iter().flatten();
    let requests = containers.map(|container| amounts(&container["resources"]["requests"]));
    let one = Amounts::from([("pods".to_owned(), Quantity::from(1_u32))]);
    requests.fold(one, |sum, requested| plus(sum, &requested))
}

/// Whether what was last asked for is there, as is said of a tree or a `Subnamespace`.
fn is_ready(object: &Value) -> bool {
    let status = &object["status"];
    let mut conditions = status["conditions"].as_array().into_iter().flatten();
    status["observedGeneration"] == object["metadata"]["generation"]
        && conditions.any(|one| one["type"] == "Ready" && one["status"] == "True")
}

/// Whether what is asked for is refused for its quota.
pub(super) fn refused(object: &Value) -> bool {
    let conditions = object["status"]["conditions"].as_array();
    conditions.into_iter().flatten().any(|one| one["type"] == "Ready" && one["reason"] == "QuotaRefused")
}

fn native(quota: &Value) -> NativeQuota {
    let written = quota["metadata"]["annotations"][ANNOTATION_LEDGER].as_str().unwrap_or_default();
    let ledger: Value = serde_json::from_str(written).unwrap_or_default();
    NativeQuota {
        ledger: written.to_owned(),
        own: larger(&amounts(&quota["spec"]["hard"]), &amounts(&quota["status"]["hard"])),
        allotment: amounts(&ledger["allotment"]),
    }
}

pub(super) fn amounts(hard: &Value) -> Amounts {
    let each = hard.as_object().into_iter().flatten();
    each.filter_map(|(name, amount)| Some((name.clone(), amount.as_str()?.parse().ok()?))).collect()
}

pub(super) fn get(amounts: &Amounts, name: &str) -> Quantity {
    amounts.get(name).copied().unwrap_or_default()
}

fn plus(mut sum: Amounts, more: &Amounts) -> Amounts {
    for (name, amount) in more {
        let before = get(&sum, name);
        sum.insert(name.clone(), before.checked_add(*amount).unwrap_or(before));
    }
    sum
}

fn larger(one: &Amounts, other: &Amounts) -> Amounts {
    let names = one.keys().chain(other.keys());
    names.map(|name| (name.clone(), get(one, name).max(get(other, name)))).collect()
}

/// A resource of which there is more than there may be.
fn beyond<'a>(amounts: &'a Amounts, limit: &Amounts) -> Option<&'a str> {
    amounts.iter().find(|(name, amount)| **amount > get(limit, name)).map(|(name, _)| name.as_str())
}
