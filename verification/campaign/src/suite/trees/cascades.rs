//! A namespace is deleted with all below it.

use coppice_sim::scenario::{Scenario, ScriptStep};

use super::requests::{consent, delete_subnamespace, gone, ready, subnamespace, tree};
use super::scenarios::scenario;

/// Runs begin at 00:00, and end before this.
const LATER: &str = "2026-01-01T02:00:00Z";
/// Before any run.
const OVER: &str = "2025-12-31T23:00:00Z";

/// A branch of three, and a namespace beside it.
fn grown(name: &'static str, about: &'static str) -> Scenario {
    let mut scenario = scenario(name, about);
    scenario.setup.extend(tree("team", 8));
    scenario.setup.extend([subnamespace("team", "team-a", 5), subnamespace("team", "team-z", 2)]);
    scenario.script = vec![
        ScriptStep::at(1, |_| subnamespace("team-a", "team-a-b", 3)).once(|s| ready(s, "team", "team-a")),
        ScriptStep::at(2, |_| subnamespace("team-a-b", "team-a-b-c", 1))
            .once(|s| ready(s, "team-a", "team-a-b")),
    ];
    scenario
}

/// What is beside the branch stays, and all of its quota is back.
pub(super) fn cascade() -> Scenario {
    let about =
        "a namespace is deleted with all below it, to which somebody consents while it waits for these";
    let mut scenario = grown("tree-cascade", about);
    scenario.replicas = 2;
    scenario.script.extend([
        ScriptStep::at(5, |_| delete_subnamespace("team", "team-a"))
            .once(|s| ready(s, "team-a-b", "team-a-b-c")),
        ScriptStep::at(8, |_| consent("team", "team-a", LATER)).once(|s| ready(s, "team-a-b", "team-a-b-c")),
        ScriptStep::at(9, |_| subnamespace("team", "team-y", 6)).once(|s| gone(s, "team", "team-a")),
    ]);
    scenario.ends = vec![
        "team: there",
        "team-a: gone, deleted 1x",
        "team-a-b: gone, deleted 1x",
        "team-a-b-c: gone, deleted 1x",
        "team-y: there",
        "team-z: there",
        "own quota of team: 0 pods",
        "own quota of team-y: 6 pods",
        "own quota of team-z: 2 pods",
        "subnamespace team/team-y: Ready, 6 pods",
        "subnamespace team/team-z: Ready, 2 pods",
    ];
    scenario
}

/// Nothing of the branch goes.
pub(super) fn over() -> Scenario {
    let about = "a namespace with others below it is deleted, and the consent to delete these is over";
    let mut scenario = grown("tree-cascade-over", about);
    scenario.script.extend([
        ScriptStep::at(4, |_| consent("team", "team-a", OVER)).once(|s| ready(s, "team-a-b", "team-a-b-c")),
        ScriptStep::at(5, |_| delete_subnamespace("team", "team-a")),
    ]);
    scenario.ends = vec![
        "team: there",
        "team-a: there",
        "team-a-b: there",
        "team-a-b-c: there",
        "team-z: there",
        "own quota of team: 1 pods",
        "own quota of team-a: 2 pods",
        "own quota of team-a-b: 2 pods",
        "own quota of team-a-b-c: 1 pods",
        "own quota of team-z: 2 pods",
        "subnamespace team/team-a: Deleting, 5 pods",
        "subnamespace team/team-z: Ready, 2 pods",
        "subnamespace team-a/team-a-b: Ready, 3 pods",
        "subnamespace team-a-b/team-a-b-c: Ready, 1 pods",
    ];
    scenario
}
