//! Namespaces whose workloads fail.

use std::time::Duration;

use coppice_sim::scenario::objects::{change_cluster_manager, cluster_manager, namespace, pod, pod_phase};
use coppice_sim::scenario::{Scenario, ScriptStep};
use coppice_sim::server::Request;
use serde_json::{Value, json};

use super::{ci, scenario};
use crate::suite::lifecycle::unavailable;

/// Deletes what has failed for 10 and for 5 seconds, with this notice.
pub(super) fn by_health(recovery: &str, notice: &str) -> Value {
    let mut spec = ci("Enforce", "1h", notice);
    spec["settle"] = "5s".into();
    spec["health"] = json!({ "settlingPeriod": "10s", "gracePeriod": "5s", "recoveryPeriod": recovery });
    spec["policies"][0]["when"]["phase"]["in"] = json!(["Failed"]);
    spec
}

pub(super) fn failed() -> Scenario {
    let mut scenario = scenario(
        "cluster-failed",
        "of two namespaces with a pod that no controller owns the pod of one fails",
    );
    scenario.setup.extend([
        namespace("ci-bad"),
        pod("ci-bad", "p"),
        namespace("ci-well"),
        pod("ci-well", "p"),
        cluster_manager("ci", &by_health("5s", "5s")),
    ]);
    scenario.script = vec![ScriptStep::at(20, |_| pod_phase("ci-bad", "p", "Failed"))];
    scenario.ends =
        vec!["ci-bad: gone, deleted 1x", "ci-well: there, Ok Watching", "ci: governs 1, due 0, Reconciled"];
    scenario
}

pub(super) fn recovers() -> Scenario {
    let mut scenario = scenario(
        "cluster-recovers",
        "what fails in a namespace is removed while notice of its deletion runs",
    );
    scenario.setup.extend([
        namespace("ci-good"),
        pod("ci-good", "p"),
        cluster_manager("ci", &by_health("20s", "10s")),
    ]);
    scenario.script = vec![
        ScriptStep::at(20, |_| pod_phase("ci-good", "p", "Failed")),
        ScriptStep::at(40, |_| Request::delete("/api/v1/namespaces/ci-good/pods/p")),
    ];
    scenario.ends = vec!["ci-good: there, Ok Watching", "ci: governs 1, due 0, Reconciled"];
    scenario
}

/// One namespace goes back to `Ok` from `Unstable`, and one from `Failing`.
pub(super) fn steadies() -> Scenario {
    let mut scenario = scenario(
        "cluster-steadies",
        "what fails in two namespaces is removed before its time is over: of one to settle, of the other one of grace",
    );
    for name in ["ci-unstable", "ci-failing"] {
        scenario.setup.extend([namespace(name), pod(name, "p")]);
    }
    let mut spec = by_health("5s", "0s");
    spec["health"]["gracePeriod"] = "20s".into();
    scenario.setup.push(cluster_manager("ci", &spec));
    scenario.script = vec![
        ScriptStep::at(20, |_| pod_phase("ci-unstable", "p", "Failed")),
        ScriptStep::at(20, |_| pod_phase("ci-failing", "p", "Failed")),
        ScriptStep::at(25, |_| Request::delete("/api/v1/namespaces/ci-unstable/pods/p")),
        // Both periods are over at 50 s.
        ScriptStep::at(40, |_| Request::delete("/api/v1/namespaces/ci-failing/pods/p")),
    ];
    scenario.ends = vec![
        "ci-unstable: there, Ok Watching",
        "ci-failing: there, Ok Watching",
        "ci: governs 2, due 0, Reconciled",
    ];
    scenario
}

/// A kind that cannot be listed is not one of which nothing fails, nor is anything done for what fails of others.
pub(super) fn unlisted() -> Scenario {
    let mut scenario = scenario(
        "cluster-unlisted",
        "a pod fails in a namespace, and one of the kinds of workloads cannot be listed",
    );
    scenario.read_fault = Some(unavailable("/daemonsets", 0, 100_000));
    scenario.setup.extend([
        namespace("ci-bad"),
        pod("ci-bad", "p"),
        cluster_manager("ci", &by_health("5s", "5s")),
    ]);
    scenario.script = vec![ScriptStep::at(20, |_| pod_phase("ci-bad", "p", "Failed"))];
    scenario.ends = vec!["ci-bad: there, Unknown NotSynced", "ci: governs 1, due 0, Reconciled"];
    scenario
}

/// At 20 s a manager begins to look at the health, and one of the kinds cannot be listed until 50 s. What fails meanwhile settles after
/// that.
pub(super) fn listed_later() -> Scenario {
    let mut scenario = scenario(
        "cluster-listed-later",
        "a pod fails in one of two namespaces while one of the kinds of workloads cannot be listed yet",
    );
    scenario.read_fault = Some(unavailable("/daemonsets", 0, 50));
    for name in ["ci-bad", "ci-well"] {
        scenario.setup.extend([namespace(name), pod(name, "p")]);
    }
    scenario.setup.push(cluster_manager("ci", &ci("Enforce", "1h", "5s")));
    scenario.script = vec![
        ScriptStep::at(20, |_| change_cluster_manager("ci", &by_health("5s", "5s"))),
        ScriptStep::at(30, |_| pod_phase("ci-bad", "p", "Failed")),
    ];
    // It is listed again after a pause that has grown meanwhile.
    scenario.lasts = Duration::from_mins(3);
    scenario.ends =
        vec!["ci-bad: gone, deleted 1x", "ci-well: there, Ok Watching", "ci: governs 1, due 0, Reconciled"];
    scenario
}

/// What fails never settles. Of 30 s of the budget one namespace has spent some 20 s when something fails again, and the rest at 70 s.
pub(super) fn budget_spent() -> Scenario {
    let mut scenario = scenario(
        "cluster-budget-spent",
        "in two namespaces a pod fails for a short time, and in one of them another one, until the failure budget is spent",
    );
    let mut spec = by_health("5s", "5s");
    spec["health"]["settlingPeriod"] = "10m".into();
    spec["health"]["failureBudget"] = json!({ "window": "1h", "max": "30s" });
    for name in ["ci-again", "ci-once"] {
        scenario.setup.extend([namespace(name), pod(name, "p")]);
    }
    scenario.setup.extend([pod("ci-again", "another"), cluster_manager("ci", &spec)]);
    let remove = |name: &str| Request::delete(&format!("/api/v1/namespaces/{name}/pods/p"));
    scenario.script = vec![
        ScriptStep::at(20, |_| pod_phase("ci-again", "p", "Failed")),
        ScriptStep::at(20, |_| pod_phase("ci-once", "p", "Failed")),
        ScriptStep::at(35, move |_| remove("ci-again")),
        ScriptStep::at(35, move |_| remove("ci-once")),
        ScriptStep::at(60, |_| pod_phase("ci-again", "another", "Failed")),
    ];
    scenario.ends =
        vec!["ci-again: gone, deleted 1x", "ci-once: there, Ok Watching", "ci: governs 1, due 0, Reconciled"];
    scenario
}

/// Creates a Deployment whose pods crash.
fn crashing(namespace: &str, name: &str, replicas: u32) -> Request {
    let labels = json!({ "app": name });
    let object = json!({
        "apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": { "name": name, "namespace": namespace, "labels": labels },
        "spec": {
            "replicas": replicas, "selector": { "matchLabels": labels },
            "template": {
                "metadata": { "labels": { "app": name, "plane.coppice.dev/outcome": "crashloop" } },
                "spec": { "containers": [{ "name": "main", "image": "test" }] },
            },
        },
    });
    Request::post(&format!("/apis/apps/v1/namespaces/{namespace}/deployments"), &object)
}

/// The namespace is `Failing` at 30 s, and `Failed` at 50 s: when the Deployment is scaled down its pods fail no more, and the other one does.
pub(super) fn sleeps() -> Scenario {
    let mut scenario = scenario(
        "cluster-sleeps-failing",
        "a Deployment and a pod that no controller owns fail: the first is scaled down, and later the namespace is deleted",
    );
    let mut spec = by_health("5s", "10s");
    spec["health"]["gracePeriod"] = "20s".into();
    let sleep = json!({
        "name": "sleep", "when": { "phase": { "in": ["Failing"] } }, "then": { "scaleDown": {} },
    });
    spec["policies"] = json!([sleep, spec["policies"][0]]);
    scenario.setup.extend([namespace("ci-app"), pod("ci-app", "p"), cluster_manager("ci", &spec)]);
    scenario.script = vec![
        ScriptStep::at(20, |_| pod_phase("ci-app", "p", "Failed")),
        ScriptStep::at(20, |_| crashing("ci-app", "web", 2)),
    ];
    // One of the two steps is the Deployment's.
    scenario.ends = vec!["ci-app: gone, deleted 1x", "ci: governs 0, due 0, Reconciled", "steps: 2"];
    scenario
}
