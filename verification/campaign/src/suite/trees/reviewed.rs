//! Scenarios about what the admission webhook is asked: they end alike, whatever it answers, and whether or not it does.

use coppice_sim::scenario::{Scenario, ScriptStep};

use super::requests::{
    allotted, change, change_total, delete_subnamespace, dry_run, gone, owns, ready, subnamespace, tree,
};
use super::scenarios::scenario;

/// The webhook denies what is too much, or the program refuses it. Once there is as much it is admitted, or given by itself.
pub(super) fn denied() -> Scenario {
    let about = "more is asked for than there is, and asked for again once another one has returned some";
    let mut scenario = scenario("tree-denied", about);
    scenario.replicas = 2;
    scenario.setup.extend(tree("team", 6));
    scenario.setup.push(subnamespace("team", "team-a", 4));
    scenario.script = vec![
        ScriptStep::at(5, |_| subnamespace("team", "team-b", 4))
            .once(|s| ready(s, "team", "team-a"))
            .or_not(),
        ScriptStep::at(10, |_| change("team", "team-a", 2)),
        ScriptStep::at(10, |_| subnamespace("team", "team-b", 4))
            .once(|s| owns(s, "team", 4) || !gone(s, "team", "team-b"))
            .or_not(),
    ];
    scenario.ends = vec![
        "team: there",
        "team-a: there",
        "team-b: there",
        "own quota of team: 0 pods",
        "own quota of team-a: 2 pods",
        "own quota of team-b: 4 pods",
        "subnamespace team/team-a: Ready, 2 pods",
        "subnamespace team/team-b: Ready, 4 pods",
    ];
    scenario
}

/// When the webhook is asked about the second one, the first has nothing yet: it admits both, and the program gives to one alone.
pub(super) fn admitted_together() -> Scenario {
    let about =
        "two siblings ask for more than there is at once, and for the same again when the tree has more";
    let mut scenario = scenario("tree-admitted-together", about);
    scenario.replicas = 2;
    scenario.setup.extend(tree("team", 6));
    scenario.script = vec![
        ScriptStep::at(5, |_| subnamespace("team", "team-a", 4)).once(|s| allotted(s, "team", 6)),
        ScriptStep::at(5, |_| subnamespace("team", "team-b", 4)).or_not(),
        ScriptStep::at(20, |_| change_total("team", 8)),
    ];
    // One of them is there.
    for name in ["team-a", "team-b"] {
        let again =
            ScriptStep::at(22, move |_| subnamespace("team", name, 4)).once(|s| allotted(s, "team", 8));
        scenario.script.push(again.or_not());
    }
    scenario.ends = vec![
        "team: there",
        "team-a: there",
        "team-b: there",
        "own quota of team: 0 pods",
        "own quota of team-a: 4 pods",
        "own quota of team-b: 4 pods",
        "subnamespace team/team-a: Ready, 4 pods",
        "subnamespace team/team-b: Ready, 4 pods",
    ];
    scenario
}

/// What was only tried takes nothing from what is asked for then.
pub(super) fn tried() -> Scenario {
    let about = "what is free is asked for in dry runs, and then by somebody else";
    let mut scenario = scenario("tree-tried", about);
    scenario.replicas = 2;
    scenario.setup.extend(tree("team", 6));
    scenario.setup.push(subnamespace("team", "team-a", 4));
    scenario.script = vec![
        ScriptStep::at(5, |_| dry_run(subnamespace("team", "team-b", 2)))
            .once(|s| ready(s, "team", "team-a")),
        ScriptStep::at(5, |_| dry_run(subnamespace("team", "team-c", 3))).or_not(),
        ScriptStep::at(6, |_| dry_run(change("team", "team-a", 1))),
        ScriptStep::at(7, |_| dry_run(change("team", "team-a", 6))),
        ScriptStep::at(8, |_| dry_run(delete_subnamespace("team", "team-a"))),
        ScriptStep::at(10, |_| subnamespace("team", "team-d", 2)),
    ];
    scenario.ends = vec![
        "team: there",
        "team-a: there",
        "team-d: there",
        "own quota of team: 0 pods",
        "own quota of team-a: 4 pods",
        "own quota of team-d: 2 pods",
        "subnamespace team/team-a: Ready, 4 pods",
        "subnamespace team/team-d: Ready, 2 pods",
    ];
    scenario
}
