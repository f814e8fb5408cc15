//! What people do when the deletion of a namespace is decided already.

use coppice_sim::scenario::objects::{cluster_manager, record_of};
use coppice_sim::scenario::{Scenario, ScriptStep};
use coppice_sim::server::Request;
use serde_json::json;

use super::{ci, labelled, scenario};
use crate::suite::lifecycle::unavailable;

/// What is decided at 31 s cannot be carried out before 60 s: the namespace cannot be read for it.
pub(super) fn unselected() -> Scenario {
    let mut scenario = scenario(
        "cluster-unselected-late",
        "a namespace loses the label by which it is selected while attempts at its deletion fail",
    );
    let mut spec = ci("Enforce", "30s", "0s");
    spec["selector"] = json!({ "labels": { "matchLabels": { "ci": "true" } } });
    scenario.setup.extend([labelled("mine", "ci"), cluster_manager("ci", &spec)]);
    scenario.read_fault = Some(unavailable("/namespaces/mine", 20, 60));
    scenario.script = vec![
        ScriptStep::at(35, |_| {
            let labels = json!({ "metadata": { "labels": { "ci": null } } });
            Request::patch("/api/v1/namespaces/mine", "application/merge-patch+json", &labels)
        })
        .once(|server| record_of(server, "mine")["status"]["intent"]["action"] == "delete"),
    ];
    scenario.ends = vec!["mine: there, NotGoverned", "ci: governs 0, due 0, Reconciled"];
    scenario
}
