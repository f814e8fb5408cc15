//! Whether the quotas of a tree hold, at every revision.

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
struct Trees {
    /// What the tree with this root has; the most that it had, while less is asked for than it had.
    limits: BTreeMap<String, Amounts>,
    /// What the tree with this root is asked to have, and whether that was refused.
    totals: BTreeMap<String, (Amounts, bool)>,
    /// The quotas of namespaces.
    quotas: BTreeMap<String, NativeQuota>,
    /// The pods in each namespace that have not ended.
    pods: BTreeMap<String, BTreeSet<String>>,
    /// By its name, the namespace above one, and what is recorded of its allotment.
    nodes: BTreeMap<String, (String, Amounts)>,
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

pub(super) fn check(record: &RunRecord<'_>, found: &mut Findings) {
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
        let own = trees.below(root, |quota| &quota.own);
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
}

impl Trees {
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
                    Some(_) => return pods.insert(name.to_owned()),
                    None => return pods.remove(name),
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
                // What is in force is what the tree was given: less only once that much is not used any more.
                let limit = self.limits.entry(root.clone()).or_default();
                *limit = larger(limit, &total);
                self.totals.insert(root, (total, refused(tree)));
            }
            // What it says of a namespace that is not its own any more.
            "subnamespaces" if self.left.contains(&*change.uid) => return false,
            "subnamespaces" => match after {
                Some(object) if object["status"]["namespaceUid"].is_string() => {
                    let allotted = amounts(&object["status"]["allotment"]["hard"]);
                    let from = &object["metadata"]["annotations"][ANNOTATION_MOVED_FROM];
                    self.left.extend(from.as_str().map(str::to_owned));
                    self.nodes.insert(name.to_owned(), (change.namespace().to_owned(), allotted));
                }
                None if self.nodes.get(name).is_some_and(|(parent, _)| parent == change.namespace()) => {
                    self.nodes.remove(name);
                }
                _ => return false,
            },
            _ => return false,
        }
        true
    }

    fn judge(&self, revision: u64, found: &mut Findings) {
        for (root, limit) in &self.limits {
            let own = self.below(root, |quota| &quota.own);
            found.judges(LIMIT);
            if let Some(name) = beyond(&own, limit) {
                let (own, limit) = (get(&own, name), get(limit, name));
                let what =
                    format!("{own} {name} in all quotas of {root}, of {limit}, at revision {revision}");
                found.add(LIMIT, &what);
            }
            let pods = self.pods.iter().filter(|(namespace, _)| self.is_below(namespace, root));
            let pods: u64 = pods.map(|(_, pods)| pods.len() as u64).sum();
            if pods > 0 {
                found.judges(USED);
            }
            if limit
                .get("pods")
                .is_some_and(|limit| pods.to_string().parse().is_ok_and(|pods: Quantity| pods > *limit))
            {
                found.add(
                    USED,
                    &format!("there are {pods} pods in {root}, of {limit:?}, at revision {revision}"),
                );
            }
        }
        for (node, (_, recorded)) in &self.nodes {
            let Some(quota) = self.quotas.get(node) else { continue };
            let (own, limit) = (self.below(node, |quota| &quota.own), larger(recorded, &quota.allotment));
            if let Some(name) = beyond(&own, &limit) {
                let (own, limit) = (get(&own, name), get(&limit, name));
                let what = format!("{own} {name} in the quotas from {node} on, of {limit}, at {revision}");
                found.add(LIMIT, &what);
            }
        }
    }

    /// The sum of a namespace and all below it.
    fn below(&self, top: &str, of: impl Fn(&NativeQuota) -> &Amounts) -> Amounts {
        let mut sum = Amounts::new();
        for (namespace, quota) in &self.quotas {
            if self.is_below(namespace, top) {
                for (name, amount) in of(quota) {
                    let before = get(&sum, name);
                    sum.insert(name.clone(), before.checked_add(*amount).unwrap_or(before));
                }
            }
        }
        sum
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

fn larger(one: &Amounts, other: &Amounts) -> Amounts {
    let names = one.keys().chain(other.keys());
    names.map(|name| (name.clone(), get(one, name).max(get(other, name)))).collect()
}

/// A resource of which there is more than there may be.
fn beyond<'a>(amounts: &'a Amounts, limit: &Amounts) -> Option<&'a str> {
    amounts.iter().find(|(name, amount)| **amount > get(limit, name)).map(|(name, _)| name.as_str())
}
