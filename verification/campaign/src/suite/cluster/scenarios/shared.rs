//! Budgets that are spent, and namespaces that several objects want to be deleted.

use std::time::Duration;

use coppice_sim::scenario::objects::{cluster_manager, config, manager, manager_with, namespace};
use coppice_sim::scenario::{Scenario, ScriptStep};
use serde_json::{Value, json};

use super::{ci, governor, scenario};

/// A policy of a manager in a namespace that deletes it, twenty seconds after it has announced that.
fn ends_after(after: &str) -> Value {
    let then = json!({ "delete": { "notice": "20s" } });
    json!([{ "name": "own", "when": { "ttl": { "after": after } }, "then": then }])
}

/// The cluster manager deletes them when they are 60 s old.
pub(super) fn two_sources() -> Scenario {
    let mut scenario = scenario(
        "cluster-two-sources",
        "managers of four namespaces delete them, too: together with the cluster manager, before it, after it, and one that is held",
    );
    for (name, after) in [("ci-together", "60s"), ("ci-before", "45s"), ("ci-after", "75s")] {
        scenario.setup.extend([namespace(name), manager(name, &ends_after(after))]);
    }
    let held = json!({ "hold": { "until": "2027-01-01T00:00:00Z" }, "policies": ends_after("45s") });
    scenario.setup.extend([
        namespace("ci-held"),
        manager_with("ci-held", &held),
        cluster_manager("ci", &ci("Enforce", "60s", "20s")),
    ]);
    scenario.ends = vec![
        "ci-together: gone, deleted 1x",
        "ci-before: gone, deleted 1x",
        "ci-after: gone, deleted 1x",
        "ci-held: gone, deleted 1x",
        "ci: governs 0, due 0, Reconciled",
        "steps: 4",
    ];
    scenario
}

/// Notice of the fourth and of the fifth ends when the three steps of the hour have been taken.
pub(super) fn hourly() -> Scenario {
    let mut scenario = scenario(
        "cluster-hourly",
        "five namespaces are due one after the other, and three steps an hour are allowed",
    );
    scenario.setup =
        vec![config(&governor(3)), namespace("ci-a"), cluster_manager("ci", &ci("Enforce", "60s", "30s"))];
    let later = [(5, "ci-b"), (10, "ci-c"), (15, "ci-d"), (20, "ci-e")];
    scenario.script = later.map(|(at, name)| ScriptStep::at(at, move |_| namespace(name))).into();
    // In the ledger an hour begins at a whole minute.
    scenario.lasts = Duration::from_mins(66);
    scenario.ends = vec![
        "ci-a: gone, deleted 1x",
        "ci-b: gone, deleted 1x",
        "ci-c: gone, deleted 1x",
        "ci-d: gone, deleted 1x",
        "ci-e: gone, deleted 1x",
        "ci: governs 0, due 0, Reconciled",
        "steps: 5",
    ];
    scenario
}
