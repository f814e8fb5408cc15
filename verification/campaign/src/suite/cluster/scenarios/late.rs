//! What people do when a namespace has expired already, or its deletion is decided.

use coppice_sim::scenario::objects::{
    change_record, cluster_manager, namespace, namespace_record, record_of,
};
use coppice_sim::scenario::{Scenario, ScriptStep};
use coppice_sim::server::Request;
use serde_json::json;

use super::{ci, labelled, scenario};
use crate::suite::lifecycle::unavailable;

/// All expire at 21 s, their deletion is announced at 61 s, and due at 81 s.
pub(super) fn extended() -> Scenario {
    let mut scenario = scenario(
        "cluster-extended-late",
        "of three namespaces that have expired one is extended before its deletion is announced, and one after that",
    );
    let mut spec = ci("Enforce", "20s", "20s");
    spec["policies"][0]["when"]["phase"]["for"] = "1m".into();
    for name in ["ci-announced", "ci-mine", "ci-other"] {
        scenario.setup.extend([namespace(name), namespace_record(name, &json!({}))]);
    }
    scenario.setup.push(cluster_manager("ci", &spec));
    let extend = |at, name: &'static str| {
        ScriptStep::at(at, move |_| {
            change_record(name, &json!({ "extendUntil": { "at": "2026-01-02T00:00:00Z" } }))
        })
    };
    scenario.script = vec![
        extend(40, "ci-mine").once(|server| record_of(server, "ci-mine")["status"]["phase"] == "Stale"),
        extend(65, "ci-announced")
            .once(|server| record_of(server, "ci-announced")["status"]["notice"].is_object()),
    ];
    scenario.ends = vec![
        "ci-announced: there, Ok TtlRunning",
        "ci-mine: there, Ok TtlRunning",
        "ci-other: gone, deleted 1x",
        "ci: governs 2, due 0, Reconciled",
    ];
    scenario
}

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
