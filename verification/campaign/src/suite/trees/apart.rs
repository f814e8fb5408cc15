//! Scenarios of trees that seeds do not choose: each shows one rule alone.

use coppice_sim::scenario::{Scenario, ScriptStep};

use super::cascades;
use super::requests::{
    delete_subnamespace, delete_transfer, ended, gone, no_transfer, ready, subnamespace, transfer, tree,
};
use super::scenarios::scenario;

/// They run without faults, and for the rule that each is about.
pub(super) fn all() -> Vec<Scenario> {
    vec![child_in_the_way(), cascades::over(), transferred_again()]
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
