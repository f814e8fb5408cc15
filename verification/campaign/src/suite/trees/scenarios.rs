//! What people do with trees of namespaces, and how it ends.

use std::time::Duration;

use coppice_sim::scenario::objects::{config, delete_after, manager, namespace, pod};
use coppice_sim::scenario::{Scenario, ScriptStep};
use coppice_sim::server::Server;
use serde_json::json;

use super::requests::{
    allotted, begun, bind, change, change_total, definitions, delete_namespace, delete_pod,
    delete_subnamespace, delete_transfer, ended, gone, ready, refused, subnamespace, transfer, tree, unbind,
};
use super::{cascades, pods, reviewed};

/// Those that seeds choose from.
pub(super) fn all() -> Vec<Scenario> {
    vec![
        siblings(),
        deep(),
        resized(),
        asked_back(),
        in_use(),
        total(),
        deleted(),
        namespace_deleted(),
        expired(),
        transferred(),
        transferred_far(),
        transfer_withdrawn(),
        target_deleted(),
        transfers_at_once(),
        bindings(),
        name_taken(),
        pods::pods(),
        pods::pods_and_transfer(),
        pods::slow_deletion(),
        cascades::cascade(),
        reviewed::denied(),
        reviewed::admitted_together(),
    ]
}

/// One namespace below another, and nothing else.
pub(super) fn small() -> Scenario {
    let mut scenario =
        scenario("tree-small", "a namespace is created below another, with a part of its quota");
    scenario.setup.extend(tree("team", 4));
    scenario.setup.push(subnamespace("team", "team-a", 2));
    scenario.ends = vec![
        "team: there",
        "team-a: there",
        "own quota of team: 2 pods",
        "own quota of team-a: 2 pods",
        "subnamespace team/team-a: Ready, 2 pods",
    ];
    scenario.lasts = Duration::from_secs(30);
    scenario
}

/// One replica of each program, which is started again when it is killed, and whose admission webhook is asked.
pub(super) fn scenario(name: &'static str, about: &'static str) -> Scenario {
    Scenario {
        name,
        about,
        setup: definitions().to_vec(),
        script: Vec::new(),
        receiver: Vec::new(),
        replicas: 1,
        read_fault: None,
        webhooks: true,
        target: None,
        ends: Vec::new(),
        lasts: Duration::from_secs(90),
    }
}

fn siblings() -> Scenario {
    let about = "three siblings ask for more than there is; when one returns some, the third gets it";
    let mut scenario = scenario("tree-siblings", about);
    // What the third one asks for is to be stored.
    scenario.webhooks = false;
    scenario.replicas = 2;
    scenario.setup.extend(tree("team", 10));
    scenario.setup.extend([subnamespace("team", "team-a", 4), subnamespace("team", "team-b", 4)]);
    scenario.script = vec![
        ScriptStep::at(5, |_| subnamespace("team", "team-c", 4))
            .once(|s| ready(s, "team", "team-a") && ready(s, "team", "team-b")),
        ScriptStep::at(10, |_| change("team", "team-a", 1)).once(|s| refused(s, "team", "team-c")),
        ScriptStep::kill_leader(12),
        ScriptStep::at(15, |_| change("team", "team-b", 5)).once(|s| ready(s, "team", "team-c")),
    ];
    scenario.ends = vec![
        "team: there",
        "team-a: there",
        "team-b: there",
        "team-c: there",
        "own quota of team: 0 pods",
        "own quota of team-a: 1 pods",
        "own quota of team-b: 5 pods",
        "own quota of team-c: 4 pods",
        "subnamespace team/team-a: Ready, 1 pods",
        "subnamespace team/team-b: Ready, 5 pods",
        "subnamespace team/team-c: Ready, 4 pods",
    ];
    scenario
}

/// A tree with four levels.
fn levels(scenario: &mut Scenario) {
    scenario.setup.extend(tree("team", 8));
    scenario.setup.push(subnamespace("team", "team-a", 6));
    scenario.script.extend([
        ScriptStep::at(1, |_| subnamespace("team-a", "team-a-b", 4)).once(|s| ready(s, "team", "team-a")),
        ScriptStep::at(2, |_| subnamespace("team-a-b", "team-a-b-c", 2))
            .once(|s| ready(s, "team-a", "team-a-b")),
    ]);
}

fn deep() -> Scenario {
    let about = "four levels: quota goes down, and comes back through all of them";
    let mut scenario = scenario("tree-deep", about);
    levels(&mut scenario);
    scenario.script.extend([
        ScriptStep::at(5, |_| change("team-a-b", "team-a-b-c", 0))
            .once(|s| ready(s, "team-a-b", "team-a-b-c")),
        ScriptStep::at(6, |_| change("team-a", "team-a-b", 1)).once(|s| ready(s, "team-a-b", "team-a-b-c")),
        ScriptStep::at(7, |_| change("team", "team-a", 2)).once(|s| ready(s, "team-a", "team-a-b")),
        ScriptStep::at(8, |_| subnamespace("team", "team-z", 6)).once(|s| ready(s, "team", "team-a")),
    ]);
    scenario.ends = vec![
        "team: there",
        "team-a: there",
        "team-a-b: there",
        "team-a-b-c: there",
        "team-z: there",
        "own quota of team: 0 pods",
        "own quota of team-a: 1 pods",
        "own quota of team-a-b: 1 pods",
        "own quota of team-a-b-c: 0 pods",
        "own quota of team-z: 6 pods",
        "subnamespace team/team-a: Ready, 2 pods",
        "subnamespace team/team-z: Ready, 6 pods",
        "subnamespace team-a/team-a-b: Ready, 1 pods",
        "subnamespace team-a-b/team-a-b-c: Ready, 0 pods",
    ];
    scenario
}

fn resized() -> Scenario {
    let about = "two siblings change what they ask for again and again, without waiting";
    let mut scenario = scenario("tree-resized", about);
    scenario.replicas = 2;
    scenario.setup.extend(tree("team", 10));
    scenario.setup.extend([subnamespace("team", "team-a", 2), subnamespace("team", "team-b", 2)]);
    for (at, name, pods) in [
        (3, "team-a", 8),
        (3, "team-b", 8),
        (4, "team-a", 1),
        (5, "team-b", 3),
        (5, "team-a", 7),
        (6, "team-b", 1),
    ] {
        scenario.script.push(ScriptStep::at(at, move |_| change("team", name, pods)).or_not());
    }
    scenario
        .script
        .push(ScriptStep::at(20, |_| change("team", "team-a", 6)).once(|s| ready(s, "team", "team-b")));
    scenario.ends = vec![
        "team: there",
        "team-a: there",
        "team-b: there",
        "own quota of team: 3 pods",
        "own quota of team-a: 6 pods",
        "own quota of team-b: 1 pods",
        "subnamespace team/team-a: Ready, 6 pods",
        "subnamespace team/team-b: Ready, 1 pods",
    ];
    scenario
}

/// What was granted before is asked for again when the namespace has something else, and nobody has recorded that yet.
fn asked_back() -> Scenario {
    let about = "a namespace asks for more, and as soon as it has it for what it had before";
    let mut scenario = scenario("tree-asked-back", about);
    // Nothing comes between.
    scenario.webhooks = false;
    scenario.replicas = 2;
    scenario.setup.extend(tree("team", 8));
    scenario.setup.push(subnamespace("team", "team-a", 4));
    scenario.script = vec![
        ScriptStep::at(3, |_| change("team", "team-a", 6)).once(|s| ready(s, "team", "team-a")),
        ScriptStep::at(3, |_| change("team", "team-a", 4)).once(|s| allotted(s, "team-a", 6)),
    ];
    scenario.ends = vec![
        "team: there",
        "team-a: there",
        "own quota of team: 4 pods",
        "own quota of team-a: 4 pods",
        "subnamespace team/team-a: Ready, 4 pods",
    ];
    scenario
}

fn in_use() -> Scenario {
    let about = "what pods use stays; what they use no more can be taken back";
    let mut scenario = scenario("tree-in-use", about);
    // What is in use is to be asked for, and stored.
    scenario.webhooks = false;
    scenario.setup.extend(tree("team", 6));
    scenario.setup.push(subnamespace("team", "team-a", 4));
    for name in ["one", "two", "three"] {
        scenario
            .script
            .push(ScriptStep::at(3, move |_| pod("team-a", name)).once(|s| ready(s, "team", "team-a")));
    }
    scenario.script.extend([
        ScriptStep::at(10, |_| change("team", "team-a", 1)),
        ScriptStep::at(11, |_| delete_pod("team-a", "one")).once(|s| refused(s, "team", "team-a")),
        ScriptStep::at(12, |_| delete_pod("team-a", "two")),
        ScriptStep::at(60, |_| change("team", "team-a", 2)),
    ]);
    scenario.ends = vec![
        "team: there",
        "team-a: there",
        "own quota of team: 4 pods",
        "own quota of team-a: 2 pods",
        "subnamespace team/team-a: Ready, 2 pods",
    ];
    scenario
}

fn total() -> Scenario {
    let about = "an administrator raises the total of a tree, and lowers it to what is free";
    let mut scenario = scenario("tree-total", about);
    scenario.setup.extend(tree("team", 6));
    scenario.setup.push(subnamespace("team", "team-a", 3));
    scenario.script = vec![
        ScriptStep::at(3, |_| change_total("team", 12)).once(|s| ready(s, "team", "team-a")),
        ScriptStep::at(8, |_| change("team", "team-a", 9)).once(|s| allotted(s, "team", 12)),
        ScriptStep::at(20, |_| change_total("team", 4)).once(|s| ready(s, "team", "team-a")),
        ScriptStep::at(25, |_| change("team", "team-a", 2)),
        ScriptStep::at(30, |_| change_total("team", 5)).once(|s| ready(s, "team", "team-a")),
    ];
    scenario.ends = vec![
        "team: there",
        "team-a: there",
        "own quota of team: 3 pods",
        "own quota of team-a: 2 pods",
        "subnamespace team/team-a: Ready, 2 pods",
    ];
    scenario
}

fn deleted() -> Scenario {
    let about = "a Subnamespace is deleted while there is one below it; both go, the lower one first";
    let mut scenario = scenario("tree-deleted", about);
    scenario.replicas = 2;
    levels(&mut scenario);
    scenario.script.extend([
        ScriptStep::at(5, |_| delete_subnamespace("team-a", "team-a-b"))
            .once(|s| ready(s, "team-a-b", "team-a-b-c")),
        ScriptStep::kill_leader(8),
        ScriptStep::at(20, |_| delete_subnamespace("team-a-b", "team-a-b-c")),
        ScriptStep::at(25, |_| change("team", "team-a", 8)).once(|s| gone(s, "team-a", "team-a-b")),
    ]);
    scenario.ends = vec![
        "team: there",
        "team-a: there",
        "team-a-b: gone, deleted 1x",
        "team-a-b-c: gone, deleted 1x",
        "own quota of team: 0 pods",
        "own quota of team-a: 8 pods",
        "subnamespace team/team-a: Ready, 8 pods",
    ];
    scenario.lasts = Duration::from_secs(150);
    scenario
}

fn namespace_deleted() -> Scenario {
    let about = "somebody deletes a namespace and not its Subnamespace, and creates it again under its name";
    let mut scenario = scenario("tree-namespace-deleted", about);
    scenario.setup.extend(tree("team", 6));
    scenario.setup.push(subnamespace("team", "team-a", 4));
    scenario.script = vec![
        ScriptStep::at(5, |_| delete_namespace("team-a")).once(|s| ready(s, "team", "team-a")),
        ScriptStep::at(10, |_| subnamespace("team", "team-a", 5)).once(|s| gone(s, "team", "team-a")),
    ];
    scenario.ends = vec![
        "team: there",
        "team-a: there",
        "own quota of team: 1 pods",
        "own quota of team-a: 5 pods",
        "subnamespace team/team-a: Ready, 5 pods",
    ];
    scenario
}

fn expired() -> Scenario {
    let about = "a namespace of a tree has a manager, and expires: its quota returns";
    let mut scenario = scenario("tree-expired", about);
    scenario.setup.push(config(&json!({ "governor": { "perMinute": 30 } })));
    scenario.setup.extend(tree("team", 6));
    scenario.setup.extend([subnamespace("team", "team-a", 4), subnamespace("team", "team-b", 1)]);
    scenario.script = vec![
        ScriptStep::at(5, |_| manager("team-a", &json!([delete_after("20s")])))
            .once(|s| ready(s, "team", "team-a") && ready(s, "team", "team-b")),
        ScriptStep::at(40, |_| change("team", "team-b", 6)).once(|s| gone(s, "team", "team-a")),
    ];
    scenario.ends = vec![
        "team: there",
        "team-a: gone, deleted 1x",
        "team-b: there",
        "own quota of team: 0 pods",
        "own quota of team-b: 6 pods",
        "subnamespace team/team-b: Ready, 6 pods",
    ];
    scenario
}

fn transferred() -> Scenario {
    let about = "a sibling gives another one quota, and what it asked for before is applied again";
    let mut scenario = scenario("tree-transferred", about);
    scenario.replicas = 2;
    scenario.setup.extend(tree("team", 10));
    scenario.setup.extend([subnamespace("team", "team-a", 4), subnamespace("team", "team-b", 4)]);
    scenario.script = vec![
        ScriptStep::at(5, |_| transfer("team-a", "more", "team-b", "team", 3))
            .once(|s| ready(s, "team", "team-a") && ready(s, "team", "team-b")),
        ScriptStep::at(6, |_| change("team", "team-a", 4)).once(|s| ended(s, "team-a", "more")),
    ];
    scenario.ends = vec![
        "team: there",
        "team-a: there",
        "team-b: there",
        "own quota of team: 2 pods",
        "own quota of team-a: 1 pods",
        "own quota of team-b: 7 pods",
        "subnamespace team/team-a: Ready, 1 pods",
        "subnamespace team/team-b: Ready, 7 pods",
        "transfer team-a/more: Completed",
    ];
    scenario
}

/// Two branches, with a namespace in each.
pub(super) fn branches(scenario: &mut Scenario) {
    scenario.setup.extend(tree("team", 10));
    scenario.setup.extend([subnamespace("team", "team-a", 4), subnamespace("team", "team-b", 4)]);
    scenario.script.extend([
        ScriptStep::at(1, |_| subnamespace("team-a", "team-a-x", 3)).once(|s| ready(s, "team", "team-a")),
        ScriptStep::at(1, |_| subnamespace("team-b", "team-b-y", 1)).once(|s| ready(s, "team", "team-b")),
    ]);
}

pub(super) fn both_ready(server: &Server) -> bool {
    ready(server, "team-a", "team-a-x") && ready(server, "team-b", "team-b-y")
}

fn transferred_far() -> Scenario {
    let about = "quota goes from one branch of a tree to another, while the program is killed twice";
    let mut scenario = scenario("tree-transferred-far", about);
    branches(&mut scenario);
    scenario.script.extend([
        ScriptStep::at(5, |_| transfer("team-a-x", "more", "team-b-y", "team", 2)).once(both_ready),
        ScriptStep::kill_leader(6).once(|s| begun(s, "team-a-x", "more")),
        ScriptStep::kill_leader(30),
    ]);
    scenario.ends = vec![
        "team: there",
        "team-a: there",
        "team-a-x: there",
        "team-b: there",
        "team-b-y: there",
        "own quota of team: 2 pods",
        "own quota of team-a: 1 pods",
        "own quota of team-a-x: 1 pods",
        "own quota of team-b: 3 pods",
        "own quota of team-b-y: 3 pods",
        "subnamespace team/team-a: Ready, 2 pods",
        "subnamespace team/team-b: Ready, 6 pods",
        "subnamespace team-a/team-a-x: Ready, 1 pods",
        "subnamespace team-b/team-b-y: Ready, 3 pods",
        "transfer team-a-x/more: Completed",
    ];
    scenario
}

fn transfer_withdrawn() -> Scenario {
    let about = "a transfer is deleted on its way: it returns, or has arrived";
    let mut scenario = scenario("tree-transfer-withdrawn", about);
    branches(&mut scenario);
    scenario.script.extend([
        ScriptStep::at(5, |_| transfer("team-a-x", "more", "team-b-y", "team", 2)).once(both_ready),
        ScriptStep::at(5, |_| delete_transfer("team-a-x", "more")).once(|s| begun(s, "team-a-x", "more")),
    ]);
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
    ];
    scenario
}

fn target_deleted() -> Scenario {
    let about = "the namespace that quota is on its way to is deleted";
    let mut scenario = scenario("tree-target-deleted", about);
    branches(&mut scenario);
    scenario.script.extend([
        ScriptStep::at(5, |_| transfer("team-a-x", "more", "team-b-y", "team", 2)).once(both_ready),
        ScriptStep::at(5, |_| delete_namespace("team-b-y")).once(|s| begun(s, "team-a-x", "more")),
    ]);
    scenario.ends = vec![
        "team: there",
        "team-a: there",
        "team-a-x: there",
        "team-b: there",
        "own quota of team: 2 pods",
        "own quota of team-a: 1 pods",
        "own quota of team-a-x: *",
        "own quota of team-b: *",
        "subnamespace team/team-a: Ready, *",
        "subnamespace team/team-b: Ready, *",
        "subnamespace team-a/team-a-x: Ready, *",
        "transfer team-a-x/more: *",
    ];
    scenario
}

fn transfers_at_once() -> Scenario {
    let about = "transfers cross each other, and everybody changes what they ask for meanwhile";
    let mut scenario = scenario("tree-transfers-at-once", about);
    // What comes first decides what is refused.
    scenario.webhooks = false;
    scenario.replicas = 2;
    branches(&mut scenario);
    scenario.script.extend([
        ScriptStep::at(5, |_| transfer("team-a-x", "there", "team-b-y", "team", 2)).once(both_ready),
        ScriptStep::at(5, |_| transfer("team-b-y", "back", "team-a-x", "team", 1)),
        ScriptStep::at(5, |_| transfer("team-b", "up", "team", "team", 2)),
        ScriptStep::at(6, |_| change("team-a", "team-a-x", 1)),
        ScriptStep::at(6, |_| change("team", "team-b", 5)),
        ScriptStep::at(40, |_| change("team", "team-b", 6)),
    ]);
    scenario.ends = vec![
        "team: there",
        "team-a: there",
        "team-a-x: there",
        "team-b: there",
        "team-b-y: there",
        "own quota of team: *",
        "own quota of team-a: *",
        "own quota of team-a-x: *",
        "own quota of team-b: *",
        "own quota of team-b-y: *",
        "subnamespace team/team-a: Ready, *",
        "subnamespace team/team-b: *",
        "subnamespace team-a/team-a-x: *",
        "subnamespace team-b/team-b-y: Ready, *",
        "transfer team-a-x/there: *",
        "transfer team-b-y/back: *",
        "transfer team-b/up: *",
    ];
    scenario
}

fn bindings() -> Scenario {
    let about = "role bindings are copied down a tree, and go with their source";
    let mut scenario = scenario("tree-bindings", about);
    scenario.setup.extend(tree("team", 6));
    scenario.setup.extend([bind("team", "developers", "alice"), bind("team", "guests", "carol")]);
    scenario.setup.extend([
        subnamespace("team", "team-a", 4),
        namespace("free"),
        bind("free", "own", "carol"),
    ]);
    scenario.script = vec![
        ScriptStep::at(3, |_| subnamespace("team-a", "team-a-b", 1)).once(|s| ready(s, "team", "team-a")),
        ScriptStep::at(10, |_| unbind("team", "guests")).once(|s| ready(s, "team-a", "team-a-b")),
        ScriptStep::at(12, |_| bind("team-a", "testers", "bob")),
    ];
    scenario.ends = vec![
        "free: there",
        "team: there",
        "team-a: there",
        "team-a-b: there",
        "own quota of team: 2 pods",
        "own quota of team-a: 3 pods",
        "own quota of team-a-b: 1 pods",
        "role binding free/own",
        "role binding team/developers",
        "role binding team-a/developers",
        "role binding team-a/testers",
        "role binding team-a-b/developers",
        "role binding team-a-b/testers",
        "subnamespace team/team-a: Ready, 4 pods",
        "subnamespace team-a/team-a-b: Ready, 1 pods",
    ];
    scenario
}

fn name_taken() -> Scenario {
    let about =
        "there is a namespace of the name already: it stays as it is, also when the Subnamespace goes";
    let mut scenario = scenario("tree-name-taken", about);
    scenario.setup.extend(tree("team", 6));
    scenario.setup.extend([namespace("team-a"), subnamespace("team", "team-a", 4)]);
    scenario.script = vec![
        ScriptStep::at(10, |_| subnamespace("team", "team-b", 5)),
        ScriptStep::at(20, |_| delete_subnamespace("team", "team-a")),
    ];
    scenario.ends = vec![
        "team: there",
        "team-a: there",
        "team-b: there",
        "own quota of team: 1 pods",
        "own quota of team-b: 5 pods",
        "subnamespace team/team-b: Ready, 5 pods",
    ];
    scenario
}
