//! Watches that end, and what happens before everything is listed again.

use std::time::Duration;

use coppice_sim::scenario::objects::{cluster_manager, exists, namespace, pod, pod_phase, record_of};
use coppice_sim::scenario::{Scenario, ScriptStep};
use coppice_sim::server::{Request, Server};
use serde_json::{Value, json};

use super::health::by_health;
use super::scenario;
use crate::suite::lifecycle::unavailable;

/// There are these namespaces with a pod in each, which fails at 20 s.
fn each_fails(scenario: &mut Scenario, names: &[&'static str]) {
    for &name in names {
        scenario.setup.extend([namespace(name), pod(name, "p")]);
        scenario.script.push(ScriptStep::at(20, move |_| pod_phase(name, "p", "Failed")));
    }
}

fn remove(name: &str) -> Request {
    Request::delete(&format!("/api/v1/namespaces/{name}/pods/p"))
}

/// In both namespaces something fails from 20 s on, so that by what was known it is `Failed` at 35 s. Nobody sees that it is removed at
/// 30 s, and in one of them something fails again at 58 s.
pub(super) fn pods() -> Scenario {
    let mut scenario = scenario(
        "cluster-pods-unfollowed",
        "what fails in two namespaces is removed while nobody follows pods, and in one of them something else fails then",
    );
    each_fails(&mut scenario, &["ci-bad", "ci-good"]);
    scenario.setup.push(cluster_manager("ci", &by_health("5s", "5s")));
    scenario.read_fault = Some(unavailable("/pods", 21, 60));
    scenario.script.extend([
        ScriptStep::compact_history(22),
        ScriptStep::at(30, |_| remove("ci-bad")),
        ScriptStep::at(30, |_| remove("ci-good")),
        ScriptStep::at(31, |_| pod("ci-bad", "another")),
        ScriptStep::at(58, |_| pod_phase("ci-bad", "another", "Failed")),
    ]);
    scenario.lasts = Duration::from_mins(2);
    scenario.ends =
        vec!["ci-bad: gone, deleted 1x", "ci-good: there, Ok Watching", "ci: governs 1, due 0, Reconciled"];
    scenario
}

/// In both namespaces something fails from 20 s on, for three minutes until they are `Failing`. Nobody follows pods for half a minute from
/// a time on: nobody sees that it is removed then, and in one of them something else fails, for which there is another pod before. That
/// has to settle for three minutes again, until after the end.
fn fails_unseen(scenario: &mut Scenario, mut spec: Value, from: u64, another: ScriptStep) {
    each_fails(scenario, &["ci-bad", "ci-good"]);
    spec["health"]["settlingPeriod"] = "3m".into();
    scenario.setup.push(cluster_manager("ci", &spec));
    scenario.read_fault = Some(unavailable("/pods", from, from + 30));
    scenario.script.extend([
        another,
        ScriptStep::compact_history(from + 1),
        ScriptStep::at(from + 10, |_| remove("ci-bad")),
        ScriptStep::at(from + 10, |_| remove("ci-good")),
        ScriptStep::at(from + 15, |_| pod_phase("ci-bad", "another", "Failed")),
    ]);
    scenario.lasts = Duration::from_mins(5);
    scenario.ends = vec![
        "ci-bad: there, Unstable Watching",
        "ci-good: there, Ok Watching",
        "ci: governs 2, due 0, Reconciled",
    ];
}

/// They are `Failing` from 200 s on.
pub(super) fn failing() -> Scenario {
    let mut scenario = scenario(
        "cluster-failing-unfollowed",
        "what fails in two namespaces that are Failing is removed while nobody follows pods, and in one of them something else fails",
    );
    let mut spec = by_health("5s", "0s");
    spec["health"]["gracePeriod"] = "10h".into();
    let is_failing: fn(&Server) -> bool = |server| {
        ["ci-bad", "ci-good"].iter().all(|name| record_of(server, name)["status"]["phase"] == "Failing")
    };
    let another = ScriptStep::at(205, |_| pod("ci-bad", "another")).once(is_failing);
    fails_unseen(&mut scenario, spec, 210, another);
    scenario
}

/// They are `Failed` from 205 s on, which is announced.
pub(super) fn failed() -> Scenario {
    let mut scenario = scenario(
        "cluster-failed-unfollowed",
        "what fails in two namespaces that are Failed is removed while nobody follows pods, and in one of them something else fails",
    );
    let another = ScriptStep::at(210, |_| pod("ci-bad", "another"));
    fails_unseen(&mut scenario, by_health("5s", "10h"), 215, another);
    scenario
}

/// Something fails in three namespaces from 20 s on, and namespaces are not followed. Of one nothing changes; one is protected; one is
/// made again, and something fails in it, too.
pub(super) fn namespaces() -> Scenario {
    let mut scenario = scenario(
        "cluster-namespaces-unfollowed",
        "of three namespaces in which something fails one is protected and one made again while nobody follows namespaces",
    );
    each_fails(&mut scenario, &["ci-bad", "ci-dear", "ci-twin"]);
    scenario.setup.push(cluster_manager("ci", &by_health("5s", "5s")));
    scenario.read_fault = Some(unavailable("/namespaces", 21, 70));
    let protect = json!({ "metadata": { "labels": { "coppice.dev/protected": "true" } } });
    scenario.script.extend([
        ScriptStep::compact_history(22),
        ScriptStep::at(25, move |_| {
            Request::patch("/api/v1/namespaces/ci-dear", "application/merge-patch+json", &protect)
        }),
        ScriptStep::at(25, |_| Request::delete("/api/v1/namespaces/ci-twin")),
        ScriptStep::at(26, |_| namespace("ci-twin")).once(|server| !exists(server, "ci-twin")),
        ScriptStep::at(27, |_| pod("ci-twin", "p")),
        ScriptStep::at(29, |_| pod_phase("ci-twin", "p", "Failed")),
    ]);
    scenario.lasts = Duration::from_mins(2);
    scenario.ends = vec![
        "ci-bad: gone, deleted 1x",
        "ci-dear: there, Failed NamespaceProtected",
        "ci-twin: gone, deleted 1x",
        "ci: governs 1, due 0, Reconciled",
    ];
    scenario
}
