//! Scenarios of trees that seeds do not choose: each shows one rule alone.

use coppice_sim::scenario::{Scenario, ScriptStep};

use super::cascades;
use super::requests::{delete_subnamespace, gone, ready, subnamespace, tree};
use super::scenarios::scenario;

/// They run without faults, and for the rule that each is about.
pub(super) fn all() -> Vec<Scenario> {
    vec![child_in_the_way(), cascades::over()]
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
