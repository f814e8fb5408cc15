//! Scenarios in which pods come while the quotas of a tree change.

use std::time::Duration;

use coppice_sim::scenario::objects::pod;
use coppice_sim::scenario::{Scenario, ScriptStep};
use coppice_sim::server::{Request, Server};
use serde_json::Value;

use super::requests::{
    change_quota, delete_pod, delete_subnamespace, gone, holds_or_ended, only_cpu, only_pods,
    pod_with_one_cpu, ready, slow_pod, subnamespace, subnamespace_with, transfer, transfer_of, tree,
    tree_with,
};
use super::scenarios::{both_ready, branches, scenario};

/// What the pods of a scenario use up.
#[derive(Clone, Copy)]
struct Unit {
    /// A quota of so many units.
    hard: fn(u32) -> Value,
    /// A pod, by namespace and name, that uses one.
    pod: fn(&str, &str) -> Request,
}

const NUMBER: Unit = Unit { hard: only_pods, pod };
const CPU: Unit = Unit { hard: only_cpu, pod: pod_with_one_cpu };

/// Many pods, as many of which run as there is room for.
fn try_pods(scenario: &mut Scenario, unit: Unit, seconds: u64, namespace: &'static str, count: usize) {
    for n in 0..count {
        let create = move |_: &Server| (unit.pod)(namespace, &format!("pod-{seconds}-{n}"));
        scenario.script.push(ScriptStep::at(seconds, create).or_not());
    }
}

pub(super) fn pods() -> Scenario {
    let about = "pods come everywhere while the quotas of a tree change: there are never more than it has";
    crowded(scenario("tree-pods", about), NUMBER)
}

pub(super) fn cpu() -> Scenario {
    let about = "pods that request cpu come everywhere while quota of it moves: they never request more than the tree has";
    let mut scenario = crowded(scenario("tree-cpu", about), CPU);
    let give = |_: &Server| transfer_of("team-b", "more", ("team-a", "team"), &only_cpu(1));
    scenario.script.push(ScriptStep::at(45, give));
    try_pods(&mut scenario, CPU, 50, "team-a", 3);
    scenario.ends.push("transfer team-b/more: *");
    scenario
}

fn crowded(mut scenario: Scenario, unit: Unit) -> Scenario {
    // What comes first decides what is refused.
    scenario.webhooks = false;
    scenario.replicas = 2;
    scenario.setup.extend(tree_with("team", &(unit.hard)(8)));
    scenario.setup.extend([
        subnamespace_with("team", "team-a", &(unit.hard)(4)),
        subnamespace_with("team", "team-b", &(unit.hard)(1)),
    ]);
    scenario.script = vec![
        ScriptStep::at(5, move |_| change_quota("team", "team-a", &(unit.hard)(1)))
            .once(|s| ready(s, "team", "team-a") && ready(s, "team", "team-b")),
    ];
    try_pods(&mut scenario, unit, 5, "team-a", 2);
    scenario.script.push(ScriptStep::at(5, move |_| change_quota("team", "team-b", &(unit.hard)(5))));
    for (seconds, namespace) in [(5, "team"), (5, "team-b"), (6, "team-a"), (6, "team"), (8, "team-b")] {
        try_pods(&mut scenario, unit, seconds, namespace, 3);
    }
    scenario.script.push(ScriptStep::at(10, |_| delete_pod("team-a", "pod-5-0")).or_not());
    try_pods(&mut scenario, unit, 45, "team-b", 3);
    try_pods(&mut scenario, unit, 45, "team", 3);
    scenario.ends = vec![
        "team: there",
        "team-a: there",
        "team-b: there",
        "own quota of team: *",
        "own quota of team-a: *",
        "own quota of team-b: *",
        "subnamespace team/team-a: *",
        "subnamespace team/team-b: *",
    ];
    scenario.lasts = Duration::from_mins(7);
    scenario
}

pub(super) fn pods_and_transfer() -> Scenario {
    let about = "pods come at both ends of a transfer: it moves what is not used, or nothing";
    let mut scenario = scenario("tree-pods-and-transfer", about);
    branches(&mut scenario);
    scenario
        .script
        .push(ScriptStep::at(5, |_| transfer("team-a-x", "more", "team-b-y", "team", 2)).once(both_ready));
    for namespace in ["team-b-y", "team-a", "team-b", "team"] {
        try_pods(&mut scenario, NUMBER, 5, namespace, 3);
    }
    for n in 0..3 {
        let create = move |_: &Server| pod("team-a-x", &format!("late-{n}"));
        let step = ScriptStep::at(5, create).once(|s| holds_or_ended(s, "team-a-x", "more"));
        scenario.script.push(step.or_not());
    }
    try_pods(&mut scenario, NUMBER, 50, "team-b-y", 3);
    try_pods(&mut scenario, NUMBER, 50, "team-a-x", 3);
    scenario.ends = vec![
        "team: there",
        "team-a: there",
        "team-a-x: there",
        "team-b: there",
        "team-b-y: there",
        "own quota of team: 2 pods",
        "own quota of team-a: 1 pods",
        "own quota of team-a-x: *",
        "own quota of team-b: 3 pods",
        "own quota of team-b-y: *",
        "subnamespace team/team-a: Ready, *",
        "subnamespace team/team-b: Ready, *",
        "subnamespace team-a/team-a-x: Ready, *",
        "subnamespace team-b/team-b-y: Ready, *",
        "transfer team-a-x/more: *",
    ];
    scenario
}

pub(super) fn slow_deletion() -> Scenario {
    let about = "a namespace takes long to go: what it had returns only when it is gone";
    let mut scenario = scenario("tree-slow-deletion", about);
    scenario.setup.extend(tree("team", 6));
    scenario.setup.push(subnamespace("team", "team-a", 4));
    scenario.script = vec![
        ScriptStep::at(5, |_| slow_pod("team-a", "slow", "25s")).once(|s| ready(s, "team", "team-a")),
        ScriptStep::at(15, |_| delete_subnamespace("team", "team-a")),
    ];
    try_pods(&mut scenario, NUMBER, 25, "team", 6);
    scenario
        .script
        .push(ScriptStep::at(60, |_| subnamespace("team", "team-b", 1)).once(|s| gone(s, "team", "team-a")));
    scenario.ends = vec![
        "team: there",
        "team-a: gone, deleted 1x",
        "team-b: there",
        "own quota of team: 5 pods",
        "own quota of team-b: 1 pods",
        "subnamespace team/team-b: Ready, 1 pods",
    ];
    scenario.lasts = Duration::from_mins(2);
    scenario
}
