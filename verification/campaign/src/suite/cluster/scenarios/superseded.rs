//! Namespaces that take the place of older ones.

use std::time::Duration;

use coppice_sim::scenario::objects::{cluster_manager, pod, pod_runs, pod_that_waits};
use coppice_sim::scenario::{Scenario, ScriptStep};
use coppice_sim::server::Request;
use serde_json::{Value, json};

use super::{ci, scenario};

/// Deletes what is superseded, with this notice.
fn by_successor(notice: &str) -> Value {
    let mut spec = ci("Enforce", "1h", notice);
    spec["settle"] = "5s".into();
    spec["health"] = json!({ "settlingPeriod": "10s", "gracePeriod": "5s", "recoveryPeriod": "5s" });
    spec["identity"] =
        json!({ "project": "project", "pipeline": "pipeline", "branch": "branch", "commit": "commit" });
    spec["supersede"] = json!({ "by": ["Branch", "Commit"] });
    spec["policies"][0]["when"]["phase"]["in"] = json!(["Superseded"]);
    spec
}

/// A namespace of a pipeline of the project `shop`.
fn made(name: &str, pipeline: &str, branch: &str, commit: &str) -> Request {
    let labels = json!({ "project": "shop", "pipeline": pipeline, "branch": branch, "commit": commit });
    let metadata = json!({ "name": name, "labels": labels });
    let object = json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": metadata });
    Request::post("/api/v1/namespaces", &object)
}

/// `ci-old`, which is ready, and at 15 s `ci-new` of a later pipeline, and its pod.
fn two(name: &'static str, about: &'static str, notice: &str) -> Scenario {
    let mut scenario = scenario(name, about);
    scenario.setup.extend([
        made("ci-old", "9", "main", "a"),
        pod("ci-old", "p"),
        pod_runs("ci-old", "p", "True"),
        cluster_manager("ci", &by_successor(notice)),
    ]);
    scenario.script = vec![
        ScriptStep::at(15, |_| made("ci-new", "10", "main", "b")),
        ScriptStep::at(16, |_| pod("ci-new", "p")),
    ];
    scenario
}

pub(super) fn superseded() -> Scenario {
    let mut scenario = two(
        "cluster-superseded",
        "a namespace of a later pipeline becomes ready, and the older one goes",
        "10s",
    );
    scenario.script.push(ScriptStep::at(30, |_| pod_runs("ci-new", "p", "True")));
    scenario.ends =
        vec!["ci-old: gone, deleted 1x", "ci-new: there, Ok Watching", "ci: governs 1, due 0, Reconciled"];
    scenario
}

pub(super) fn never_ready() -> Scenario {
    let mut scenario = two(
        "cluster-never-ready",
        "nothing is ever deployed into a namespace of a later pipeline, and the older one stays",
        "5s",
    );
    scenario.script.truncate(1);
    scenario.ends =
        vec!["ci-old: there, Ok Watching", "ci-new: there, Ok Watching", "ci: governs 2, due 0, Reconciled"];
    scenario
}

/// The pod of the later namespace runs, and its node fell silent before it had said that the pod is ready.
pub(super) fn never_said() -> Scenario {
    let mut scenario = two(
        "cluster-readiness-unknown",
        "a pod runs in a namespace of a later pipeline, nobody says whether it is ready, and the older one stays",
        "5s",
    );
    // The kubelet of the simulation would say so at once.
    scenario.script.truncate(1);
    scenario.script.extend([
        ScriptStep::at(16, |_| pod_that_waits("ci-new", "p")),
        ScriptStep::at(20, |_| pod_runs("ci-new", "p", "Unknown")),
    ]);
    scenario.ends =
        vec!["ci-old: there, Ok Watching", "ci-new: there, Ok Watching", "ci: governs 2, due 0, Reconciled"];
    scenario
}

pub(super) fn successor_goes() -> Scenario {
    let mut scenario = two(
        "cluster-successor-goes",
        "a namespace is deleted that has taken the place of another, which stays",
        "30s",
    );
    scenario.script.extend([
        ScriptStep::at(20, |_| pod_runs("ci-new", "p", "True")),
        ScriptStep::at(40, |_| Request::delete("/api/v1/namespaces/ci-new")),
    ]);
    scenario.ends = vec!["ci-old: there, Ok Watching", "ci: governs 1, due 0, Reconciled"];
    scenario
}

pub(super) fn superseded_in_turn() -> Scenario {
    let mut scenario = scenario(
        "cluster-superseded-in-turn",
        "what would take the place of a namespace is superseded itself by one that has nothing in common with the first",
    );
    // All of it is there before it is watched, and the notice outlasts what a fault delays: which record is written first means nothing.
    for (name, pipeline, branch, commit) in
        [("ci-old", "9", "main", "a"), ("ci-new", "10", "other", "a"), ("ci-newest", "11", "other", "b")]
    {
        scenario.setup.extend([
            made(name, pipeline, branch, commit),
            pod(name, "p"),
            pod_runs(name, "p", "True"),
        ]);
    }
    scenario.setup.push(cluster_manager("ci", &by_successor("1m")));
    scenario.lasts = Duration::from_secs(150);
    scenario.ends = vec![
        "ci-old: there, Ok Watching",
        "ci-new: gone, deleted 1x",
        "ci-newest: there, Ok Watching",
        "ci: governs 2, due 0, Reconciled",
    ];
    scenario
}
