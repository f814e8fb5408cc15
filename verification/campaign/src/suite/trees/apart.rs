//! Scenarios of trees that seeds do not choose: each shows one rule alone.

use coppice_sim::scenario::objects::config;
use coppice_sim::scenario::{Scenario, ScriptStep};
use coppice_sim::server::Server;
use serde_json::json;

use super::requests::{
    change, change_limit_range, delete_limit_range, delete_namespace, delete_subnamespace, delete_transfer,
    ended, gone, has_limits, limit_range, no_transfer, ready, refused, subnamespace, transfer, tree,
    tree_with_limits,
};
use super::scenarios::scenario;
use super::{cascades, membership, pods, reviewed};

/// They run without faults, for the rule that each is about, and with faults that seeds of their own choose: one more of those that
/// seeds choose from would make another run of most seeds.
pub(super) fn all() -> Vec<Scenario> {
    vec![
        child_in_the_way(),
        cascades::over(),
        reviewed::tried(),
        transferred_again(),
        parent_goes_away(),
        parents_go_away(),
        leaf_outlives_parent(),
        transfer_to_ending(),
        transfer_to_empty(),
        refused_until_free(),
        membership::detached(),
        membership::detached_without_root(),
        membership::adopted(),
        limits_copied(),
        flooded(),
        pods::cpu(),
    ]
}

/// Neither has quota that could be lost with it: only the rule about children can find that the upper one was deleted.
fn child_in_the_way() -> Scenario {
    let about = "a Subnamespace without quota is deleted while there is one below it";
    let mut scenario = scenario("tree-child-in-the-way", about);
    scenario.setup.extend(tree("team", 4));
    scenario.setup.push(subnamespace("team", "team-a", 0));
    scenario.script = vec![
        ScriptStep::at(1, |_| subnamespace("team-a", "team-a-b", 0)).once(|s| ready(s, "team", "team-a")),
        ScriptStep::at(5, |_| delete_subnamespace("team", "team-a")).once(|s| ready(s, "team-a", "team-a-b")),
        ScriptStep::at(20, |_| delete_subnamespace("team-a", "team-a-b")),
        ScriptStep::at(25, |_| subnamespace("team", "team-z", 4)).once(|s| gone(s, "team", "team-a")),
    ];
    scenario.ends = vec![
        "team: there",
        "team-a: gone, deleted 1x",
        "team-a-b: gone, deleted 1x",
        "team-z: there",
        "own quota of team: 0 pods",
        "own quota of team-z: 4 pods",
        "subnamespace team/team-z: Ready, 4 pods",
    ];
    scenario
}

/// Enough is left to give as much again: nothing but the memory of the source keeps it.
fn transferred_again() -> Scenario {
    let about = "a transfer that has moved quota is deleted, and the same is created again";
    let mut scenario = scenario("tree-transferred-again", about);
    scenario.replicas = 2;
    scenario.setup.extend(tree("team", 10));
    scenario.setup.extend([subnamespace("team", "team-a", 4), subnamespace("team", "team-b", 4)]);
    scenario.script = vec![
        ScriptStep::at(5, |_| transfer("team-a", "more", "team-b", "team", 1))
            .once(|s| ready(s, "team", "team-a") && ready(s, "team", "team-b")),
        ScriptStep::at(6, |_| delete_transfer("team-a", "more")).once(|s| ended(s, "team-a", "more")),
        ScriptStep::at(8, |_| transfer("team-a", "more", "team-b", "team", 1))
            .once(|s| no_transfer(s, "team-a", "more")),
    ];
    scenario.ends = vec![
        "team: there",
        "team-a: there",
        "team-b: there",
        "own quota of team: 2 pods",
        "own quota of team-a: 3 pods",
        "own quota of team-b: 5 pods",
        "subnamespace team/team-a: Ready, 3 pods",
        "subnamespace team/team-b: Ready, 5 pods",
        "transfer team-a/more: Completed",
    ];
    scenario
}

/// What is below moves to the root with all that it has, and the rest of what the one that was deleted had is the root's again.
fn parent_goes_away() -> Scenario {
    let about = "a namespace is deleted that others are below, and these move up, one of them with another one below it";
    let mut scenario = scenario("tree-parent-goes-away", about);
    scenario.replicas = 2;
    scenario.setup.extend(tree("team", 8));
    scenario.setup.push(subnamespace("team", "team-a", 5));
    scenario.script = vec![
        ScriptStep::at(1, |_| subnamespace("team-a", "team-a-b", 3)).once(|s| ready(s, "team", "team-a")),
        ScriptStep::at(2, |_| subnamespace("team-a-b", "team-a-b-c", 1))
            .once(|s| ready(s, "team-a", "team-a-b")),
        ScriptStep::at(3, |_| subnamespace("team-a", "team-a-d", 1))
            .once(|s| ready(s, "team-a-b", "team-a-b-c")),
        ScriptStep::at(6, |_| delete_namespace("team-a")).once(|s| ready(s, "team-a", "team-a-d")),
        ScriptStep::at(8, |_| subnamespace("team", "team-z", 4)).once(|s| gone(s, "team", "team-a")),
    ];
    scenario.ends = vec![
        "team: there",
        "team-a-b: there",
        "team-a-b-c: there",
        "team-a-d: there",
        "team-z: there",
        "own quota of team: 0 pods",
        "own quota of team-a-b: 2 pods",
        "own quota of team-a-b-c: 1 pods",
        "own quota of team-a-d: 1 pods",
        "own quota of team-z: 4 pods",
        "subnamespace team/team-a-b: Ready, 3 pods",
        "subnamespace team/team-a-d: Ready, 1 pods",
        "subnamespace team/team-z: Ready, 4 pods",
        "subnamespace team-a-b/team-a-b-c: Ready, 1 pods",
    ];
    scenario
}

/// Of two above one another the lower one is deleted while it moves up, or as soon as it has.
fn parents_go_away() -> Scenario {
    let about = "a namespace is deleted that others are below, and one of these a moment later, so that what is below both moves up";
    let mut scenario = scenario("tree-parents-go-away", about);
    scenario.replicas = 2;
    scenario.setup.extend(tree("team", 8));
    scenario.setup.push(subnamespace("team", "team-a", 6));
    scenario.script = vec![
        ScriptStep::at(1, |_| subnamespace("team-a", "team-a-b", 4)).once(|s| ready(s, "team", "team-a")),
        ScriptStep::at(2, |_| subnamespace("team-a-b", "team-a-b-c", 2))
            .once(|s| ready(s, "team-a", "team-a-b")),
        ScriptStep::at(3, |_| subnamespace("team-a", "team-a-d", 1))
            .once(|s| ready(s, "team-a-b", "team-a-b-c")),
        ScriptStep::at(6, |_| delete_namespace("team-a")).once(|s| ready(s, "team-a", "team-a-d")),
        ScriptStep::at(6, |_| delete_namespace("team-a-b")).once(|s| is_going(s, "team-a")),
    ];
    scenario.ends = vec![
        "team: there",
        "team-a-b-c: there",
        "team-a-d: there",
        "own quota of team: 5 pods",
        "own quota of team-a-b-c: 2 pods",
        "own quota of team-a-d: 1 pods",
        "subnamespace team/team-a-b-c: Ready, 2 pods",
        "subnamespace team/team-a-d: Ready, 1 pods",
    ];
    scenario
}

fn is_going(server: &Server, namespace: &str) -> bool {
    let object = server.object("", "namespaces", "", namespace);
    object.is_some_and(|object| object["metadata"]["deletionTimestamp"].is_string())
}

/// None is below the lower one, so that nothing but this rule keeps it.
fn leaf_outlives_parent() -> Scenario {
    let about = "a namespace is deleted that one is below, which nobody has asked to delete";
    let mut scenario = scenario("tree-leaf-outlives-parent", about);
    scenario.setup.extend(tree("team", 4));
    scenario.setup.push(subnamespace("team", "team-a", 3));
    scenario.script = vec![
        ScriptStep::at(1, |_| subnamespace("team-a", "team-a-b", 1)).once(|s| ready(s, "team", "team-a")),
        ScriptStep::at(5, |_| delete_namespace("team-a")).once(|s| ready(s, "team-a", "team-a-b")),
    ];
    scenario.ends = vec![
        "team: there",
        "team-a-b: there",
        "own quota of team: 3 pods",
        "own quota of team-a-b: 1 pods",
        "subnamespace team/team-a-b: Ready, 1 pods",
    ];
    scenario
}

/// While it waits for what is below it, the one that is being deleted has what comes.
fn transfer_to_ending() -> Scenario {
    let about = "quota is transferred to a namespace that is being deleted and waits for one below it";
    let mut scenario = scenario("tree-transfer-to-ending", about);
    scenario.setup.extend(tree("team", 10));
    scenario.setup.extend([subnamespace("team", "team-a", 4), subnamespace("team", "team-b", 4)]);
    scenario.script = vec![
        ScriptStep::at(1, |_| subnamespace("team-b", "team-b-c", 1)).once(|s| ready(s, "team", "team-b")),
        ScriptStep::at(5, |_| delete_subnamespace("team", "team-b"))
            .once(|s| ready(s, "team-b", "team-b-c") && ready(s, "team", "team-a")),
        ScriptStep::at(8, |_| transfer("team-a", "more", "team-b", "team", 2)),
    ];
    scenario.ends = vec![
        "team: there",
        "team-a: there",
        "team-b: there",
        "team-b-c: there",
        "own quota of team: 2 pods",
        "own quota of team-a: 2 pods",
        "own quota of team-b: 5 pods",
        "own quota of team-b-c: 1 pods",
        "subnamespace team/team-a: Ready, 2 pods",
        "subnamespace team/team-b: Deleting, 6 pods",
        "subnamespace team-b/team-b-c: Ready, 1 pods",
        "transfer team-a/more: Completed",
    ];
    scenario
}

/// Nothing is recorded of a namespace that was given nothing yet.
fn transfer_to_empty() -> Scenario {
    let about = "quota is transferred to a namespace that has none";
    let mut scenario = scenario("tree-transfer-to-empty", about);
    scenario.setup.extend(tree("team", 4));
    scenario.setup.extend([subnamespace("team", "team-a", 3), subnamespace("team", "team-b", 0)]);
    let both = |s: &Server| ready(s, "team", "team-a") && ready(s, "team", "team-b");
    scenario.script = vec![ScriptStep::at(1, |_| transfer("team-a", "more", "team-b", "team", 2)).once(both)];
    scenario.ends = vec![
        "team: there",
        "team-a: there",
        "team-b: there",
        "own quota of team: 1 pods",
        "own quota of team-a: 1 pods",
        "own quota of team-b: 2 pods",
        "subnamespace team/team-a: Ready, 1 pods",
        "subnamespace team/team-b: Ready, 2 pods",
        "transfer team-a/more: Completed",
    ];
    scenario
}

/// Nobody asks again: what was refused is granted once it can be.
fn refused_until_free() -> Scenario {
    let about = "a namespace asks for more than is free, and gets it when a sibling returns some";
    let mut scenario = scenario("tree-refused-until-free", about);
    // What is too much is to be asked for, and stored.
    scenario.webhooks = false;
    scenario.setup.extend(tree("team", 6));
    scenario.setup.extend([subnamespace("team", "team-a", 4), subnamespace("team", "team-b", 1)]);
    let both = |s: &Server| ready(s, "team", "team-a") && ready(s, "team", "team-b");
    scenario.script = vec![
        ScriptStep::at(1, |_| change("team", "team-b", 3)).once(both),
        ScriptStep::at(5, |_| change("team", "team-a", 2)).once(|s| refused(s, "team", "team-b")),
    ];
    scenario.ends = vec![
        "team: there",
        "team-a: there",
        "team-b: there",
        "own quota of team: 1 pods",
        "own quota of team-a: 2 pods",
        "own quota of team-b: 3 pods",
        "subnamespace team/team-a: Ready, 2 pods",
        "subnamespace team/team-b: Ready, 3 pods",
    ];
    scenario
}

/// What somebody takes away of them comes again; and an object that somebody has under the same name stays.
fn limits_copied() -> Scenario {
    let about =
        "limit ranges are copied down a tree, are changed and deleted, and one has the name of another";
    let mut scenario = scenario("tree-limits-copied", about);
    scenario.replicas = 2;
    scenario.setup.extend(tree_with_limits("team", 6));
    scenario.setup.extend([
        limit_range("team", "defaults", "100m"),
        limit_range("team", "extra", "1"),
        subnamespace("team", "team-a", 4),
    ]);
    scenario.script = vec![
        ScriptStep::at(1, |_| subnamespace("team-a", "team-a-b", 1)).once(|s| ready(s, "team", "team-a")),
        ScriptStep::at(5, |_| change_limit_range("team", "defaults", "200m"))
            .once(|s| ready(s, "team-a", "team-a-b") && has_limits(s, "team-a-b", "defaults", "100m")),
        ScriptStep::at(6, |_| delete_limit_range("team", "extra"))
            .once(|s| has_limits(s, "team-a-b", "extra", "1")),
        ScriptStep::at(8, |_| limit_range("team-a", "own", "50m")),
        // Of two of a name the nearer one counts.
        ScriptStep::at(9, |_| limit_range("team", "own", "2"))
            .once(|s| has_limits(s, "team-a-b", "own", "50m")),
        ScriptStep::at(10, |_| delete_limit_range("team-a-b", "defaults"))
            .once(|s| has_limits(s, "team-a-b", "defaults", "200m")),
    ];
    scenario.ends = vec![
        "team: there",
        "team-a: there",
        "team-a-b: there",
        "limit range team/defaults: 200m cpu",
        "limit range team/own: 2 cpu",
        "limit range team-a/defaults: 200m cpu",
        "limit range team-a/own: 50m cpu",
        "limit range team-a-b/defaults: 200m cpu",
        "limit range team-a-b/own: 50m cpu",
        "own quota of team: 2 pods",
        "own quota of team-a: 3 pods",
        "own quota of team-a-b: 1 pods",
        "subnamespace team/team-a: Ready, 4 pods",
        "subnamespace team-a/team-a-b: Ready, 1 pods",
    ];
    scenario
}

/// Who deletes more than may be deleted in one tree delays nobody in the other. Which one waits is a matter of chance.
fn flooded() -> Scenario {
    let about =
        "five namespaces of a tree are deleted where four an hour may be, and then one of another tree";
    let mut scenario = scenario("tree-flooded", about);
    scenario.setup.push(config(&json!({ "governor": { "atLeast": 4 } })));
    scenario.setup.extend(tree("team", 8));
    scenario.setup.extend(tree("crew", 4));
    scenario.setup.extend(FLOODED.map(|name| subnamespace("team", name, 1)));
    scenario.setup.push(subnamespace("crew", "crew-a", 2));
    let all = |s: &Server| FLOODED.iter().all(|name| ready(s, "team", name)) && ready(s, "crew", "crew-a");
    let deletions = FLOODED.map(|name| ScriptStep::at(5, move |_| delete_subnamespace("team", name)));
    scenario.script.push(ScriptStep::at(5, |_| subnamespace("crew", "crew-b", 1)).once(all));
    scenario.script.extend(deletions);
    scenario.script.push(
        ScriptStep::at(20, |_| delete_subnamespace("crew", "crew-a")).once(|s| ready(s, "crew", "crew-b")),
    );
    scenario.ends = vec![
        "crew: there",
        "crew-a: gone, deleted 1x",
        "crew-b: there",
        "own quota of crew: 3 pods",
        "own quota of crew-b: 1 pods",
        "subnamespace crew/crew-b: Ready, 1 pods",
        "team: there",
        "team-*",
        "own quota of team*",
        "subnamespace team/team-*",
        "steps: 5",
    ];
    scenario
}

const FLOODED: [&str; 5] = ["team-a", "team-b", "team-c", "team-d", "team-e"];
