//! Scenarios in which existing namespaces come into a tree, and those of a tree leave it.

use std::time::Duration;

use coppice_sim::scenario::objects::{namespace, pod};
use coppice_sim::scenario::{Scenario, ScriptStep};

use super::requests::{
    adopt, bind, bound, change, delete_namespace, delete_subnamespace, delete_tree, drop_finalizers, ended,
    gone, in_no_tree, is_going, keep_namespaces, ready, refused, subnamespace, transfer, tree, unbind,
};
use super::scenarios::scenario;

/// What the tree had is afterwards what its namespaces have as their own, each by itself: 2, 1, 3 and 2 of 8.
pub(super) fn detached() -> Scenario {
    let about =
        "a tree is detached: its namespaces stay, with their quotas and role bindings, and are others' again";
    let mut scenario = scenario("tree-detached", about);
    scenario.replicas = 2;
    scenario.setup.extend(tree("team", 8));
    scenario.setup.push(bind("team", "developers", "alice"));
    scenario.setup.extend([subnamespace("team", "team-a", 5), subnamespace("team", "team-z", 1)]);
    scenario.script = vec![
        ScriptStep::at(1, |_| subnamespace("team-a", "team-a-b", 3)).once(|s| ready(s, "team", "team-a")),
        ScriptStep::at(3, |_| transfer("team-a", "more", "team-z", "team", 1))
            .once(|s| ready(s, "team-a", "team-a-b") && ready(s, "team", "team-z")),
        ScriptStep::at(6, |_| keep_namespaces("team")).once(|s| {
            let copied = ["team-a", "team-a-b", "team-z"].iter().all(|name| bound(s, name, "developers"));
            copied && ended(s, "team-a", "more")
        }),
        ScriptStep::at(6, |_| delete_tree("team")),
        ScriptStep::kill_leader(7),
        // Nobody copies it again.
        ScriptStep::at(15, |_| unbind("team-a-b", "developers"))
            .once(|s| ["team", "team-a", "team-a-b", "team-z"].iter().all(|name| in_no_tree(s, name))),
    ];
    scenario.ends = vec![
        "team: there",
        "team-a: there",
        "team-a-b: there",
        "team-z: there",
        "own quota of team: 2 pods",
        "own quota of team-a: 1 pods",
        "own quota of team-a-b: 3 pods",
        "own quota of team-z: 2 pods",
        "role binding team/developers",
        "role binding team-a/developers",
        "role binding team-z/developers",
        "transfer team-a/more: Completed",
    ];
    scenario
}

/// What is left has afterwards what it had: 3 and 2 of the 8 of the tree.
pub(super) fn detached_without_root() -> Scenario {
    let about = "the root of a tree is gone, and the Subnamespace in it with it; then the tree is detached: what is left stays, with its quotas";
    let mut scenario = scenario("tree-detached-without-root", about);
    scenario.replicas = 2;
    scenario.setup.extend(tree("team", 8));
    scenario.setup.push(subnamespace("team", "team-a", 5));
    scenario.script = vec![
        ScriptStep::at(1, |_| subnamespace("team-a", "team-a-b", 2)).once(|s| ready(s, "team", "team-a")),
        ScriptStep::at(5, |_| delete_namespace("team")).once(|s| ready(s, "team-a", "team-a-b")),
        ScriptStep::at(8, |_| drop_finalizers("team", "team-a")).once(|s| is_going(s, "team", "team-a")),
        ScriptStep::at(12, |_| keep_namespaces("team"))
            .once(|s| s.object("", "namespaces", "", "team").is_none()),
        ScriptStep::at(12, |_| delete_tree("team")),
        ScriptStep::kill_leader(13),
        ScriptStep::at(20, |_| namespace("team")).once(|s| {
            let tree = s.object("coppice.dev", "namespacetrees", "", "team");
            tree.is_none() && ["team-a", "team-a-b"].iter().all(|name| in_no_tree(s, name))
        }),
    ];
    scenario.ends = vec![
        "team: there",
        "team-a: there",
        "team-a-b: there",
        "own quota of team-a: 3 pods",
        "own quota of team-a-b: 2 pods",
    ];
    scenario.lasts = Duration::from_mins(2);
    scenario
}

/// What it needs comes from the namespace above, and returns there with it, as of any other.
pub(super) fn adopted() -> Scenario {
    let about = "two namespaces that were there before are adopted into a tree, and one of them is deleted with its Subnamespace";
    let mut scenario = scenario("tree-adopted", about);
    scenario.replicas = 2;
    scenario.setup.extend(tree("team", 8));
    scenario.setup.extend([namespace("team-old"), namespace("team-left")]);
    scenario.setup.extend([subnamespace("team", "team-old", 4), subnamespace("team", "team-left", 2)]);
    scenario.script = vec![
        ScriptStep::at(1, |_| pod("team-old", "runs")),
        ScriptStep::at(3, |s| adopt(s, "team", "team-old")).once(|s| refused(s, "team", "team-old")),
        ScriptStep::at(3, |s| adopt(s, "team", "team-left")).once(|s| refused(s, "team", "team-left")),
        ScriptStep::at(5, |_| subnamespace("team-old", "team-old-b", 1))
            .once(|s| ready(s, "team", "team-old")),
        ScriptStep::at(8, |_| delete_subnamespace("team", "team-left"))
            .once(|s| ready(s, "team", "team-left") && ready(s, "team-old", "team-old-b")),
        ScriptStep::at(10, |_| change("team", "team-old", 8)).once(|s| gone(s, "team", "team-left")),
    ];
    scenario.ends = vec![
        "team: there",
        "team-left: gone, deleted 1x",
        "team-old: there",
        "team-old-b: there",
        "own quota of team: 0 pods",
        "own quota of team-old: 7 pods",
        "own quota of team-old-b: 1 pods",
        "subnamespace team/team-old: Ready, 8 pods",
        "subnamespace team-old/team-old-b: Ready, 1 pods",
    ];
    scenario
}
