//! What people do with cluster managers, and how it ends.

use std::time::Duration;

use coppice_sim::scenario::objects::{
    change_cluster_manager, change_record, cluster_manager, config, delete_cluster_manager, exists,
    namespace, namespace_record, record_of,
};
use coppice_sim::scenario::{Scenario, ScriptStep};
use coppice_sim::server::{Request, Server};
use serde_json::{Value, json};

/// Those that seeds choose from.
pub(super) fn all() -> Vec<Scenario> {
    vec![
        enforced(),
        observed(),
        switched(),
        settles(),
        announced(),
        held(),
        extended(),
        suspended(),
        contested(),
        unselected(),
        manager_gone(),
        recreated(),
        leader_killed(),
    ]
}

/// Two replicas, a budget that does not bind, a minute and a half.
fn scenario(name: &'static str, about: &'static str) -> Scenario {
    Scenario {
        name,
        about,
        setup: vec![config(&json!({
            "governor": { "perMinute": 100, "perHour": 1000, "maxShare": "100%", "atLeast": 100 },
        }))],
        script: Vec::new(),
        receiver: Vec::new(),
        replicas: 2,
        read_fault: None,
        ends: Vec::new(),
        lasts: Duration::from_secs(90),
    }
}

/// Deletes what begins with `ci-`, this long after its creation and with this notice. The manager has to settle for ten
/// seconds.
fn ci(mode: &str, ttl: &str, notice: &str) -> Value {
    json!({
        "mode": mode, "selector": { "names": ["ci-*"] }, "settle": "10s", "ttl": { "after": ttl },
        "policies": [{ "name": "end", "when": { "phase": { "in": ["Stale"] } }, "then": { "delete": { "notice": notice } } }],
    })
}

fn labelled(name: &str, label: &str) -> Request {
    let metadata = json!({ "name": name, "labels": { label: "true" } });
    let object = json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": metadata });
    Request::post("/api/v1/namespaces", &object)
}

fn enforced() -> Scenario {
    let mut scenario = scenario(
        "cluster-enforced",
        "of four namespaces one is due, one is created later, one is protected, one is not selected",
    );
    scenario.setup.extend([
        namespace("ci-due"),
        labelled("ci-dear", "coppice.dev/protected"),
        namespace("other"),
        cluster_manager("ci", &ci("Enforce", "30s", "0s")),
    ]);
    scenario.script = vec![ScriptStep::at(20, |_| namespace("ci-later"))];
    scenario.ends = vec![
        "ci-due: gone, deleted 1x",
        "ci-later: gone, deleted 1x",
        "ci-dear: there, Stale NamespaceProtected",
        "other: there",
        "ci: governs 1, due 0, Reconciled",
    ];
    scenario
}

fn observed() -> Scenario {
    let mut scenario =
        scenario("cluster-observed", "a manager observes two namespaces that are due, and a policy one");
    let mut policy = ci("Enforce", "20s", "0s");
    policy["selector"] = json!({ "names": ["dev"] });
    policy["policies"][0]["mode"] = "Observe".into();
    scenario.setup.extend([
        namespace("ci-a"),
        namespace("ci-b"),
        namespace("dev"),
        cluster_manager("ci", &ci("Observe", "20s", "5s")),
        cluster_manager("dev", &policy),
    ]);
    scenario.ends = vec![
        "ci-a: there, Stale Observing",
        "ci-b: there, Stale Observing",
        "dev: there, Stale Observing",
        "ci: governs 2, due 2, Reconciled",
        "dev: governs 1, due 1, Reconciled",
    ];
    scenario
}

fn switched() -> Scenario {
    let mut scenario =
        scenario("cluster-switched", "a manager that has observed for long enforces from now on");
    scenario.setup.extend([namespace("ci-due"), cluster_manager("ci", &ci("Observe", "5s", "10s"))]);
    scenario.script =
        vec![ScriptStep::at(40, |_| change_cluster_manager("ci", &json!({ "mode": "Enforce" })))];
    scenario.ends = vec!["ci-due: gone, deleted 1x", "ci: governs 0, due 0, Reconciled"];
    scenario
}

fn settles() -> Scenario {
    let mut scenario =
        scenario("cluster-settles", "the spec of a manager changes while it settles, and once more");
    scenario.setup.extend([namespace("ci-due"), cluster_manager("ci", &ci("Enforce", "1s", "0s"))]);
    scenario.setup.push(namespace("ci-other"));
    scenario.script = vec![
        ScriptStep::at(6, |_| change_cluster_manager("ci", &json!({ "settle": "30s" }))),
        ScriptStep::at(20, |_| {
            change_cluster_manager("ci", &json!({ "selector": { "exclude": ["ci-other"] } }))
        })
        .once(|server| recorded(server, "ci-other")),
    ];
    scenario.ends =
        vec!["ci-due: gone, deleted 1x", "ci-other: there, NotGoverned", "ci: governs 0, due 0, Reconciled"];
    scenario
}

fn announced() -> Scenario {
    let mut scenario = scenario("cluster-announced", "the end of a ttl is announced ahead of it");
    scenario.setup.extend([namespace("ci-due"), cluster_manager("ci", &ci("Enforce", "40s", "20s"))]);
    scenario.ends = vec!["ci-due: gone, deleted 1x", "ci: governs 0, due 0, Reconciled"];
    scenario
}

fn held() -> Scenario {
    let mut scenario = scenario(
        "cluster-held",
        "one namespace is held from the beginning, one before it is due, and one until a time",
    );
    let forever = json!({ "hold": { "until": "2027-01-01T00:00:00Z" } });
    scenario.setup.extend([
        namespace("ci-first"),
        namespace_record("ci-first", &forever),
        namespace("ci-last"),
        namespace("ci-until"),
        namespace_record("ci-until", &json!({ "hold": { "until": "2026-01-01T00:00:50Z" } })),
        cluster_manager("ci", &ci("Enforce", "30s", "0s")),
    ]);
    // As soon as there is its record: the manager has to settle for longer than that takes.
    scenario.script = vec![
        ScriptStep::at(25, move |_| change_record("ci-last", &forever))
            .once(|server| recorded(server, "ci-last")),
    ];
    scenario.ends = vec![
        "ci-first: there, Stale Held",
        "ci-last: there, Stale Held",
        "ci-until: gone, deleted 1x",
        "ci: governs 2, due 0, Reconciled",
    ];
    scenario
}

fn recorded(server: &Server, namespace: &str) -> bool {
    !record_of(server, namespace).is_null()
}

fn extended() -> Scenario {
    let mut scenario = scenario("cluster-extended", "the end of a namespace is extended before its time");
    scenario.setup.extend([
        namespace("ci-mine"),
        namespace_record("ci-mine", &json!({})),
        cluster_manager("ci", &ci("Enforce", "30s", "10s")),
    ]);
    scenario.script = vec![ScriptStep::at(25, |_| {
        change_record("ci-mine", &json!({ "extendUntil": { "at": "2026-01-02T00:00:00Z" } }))
    })];
    scenario.ends = vec!["ci-mine: there, Ok TtlRunning", "ci: governs 1, due 0, Reconciled"];
    scenario
}

fn suspended() -> Scenario {
    let mut scenario = scenario(
        "cluster-suspended",
        "a manager is suspended before a namespace is due, and another one would delete it",
    );
    let mut other = ci("Enforce", "1s", "0s");
    other["priority"] = json!(-1);
    scenario.setup.extend([
        namespace("ci-due"),
        cluster_manager("ci", &ci("Enforce", "30s", "0s")),
        cluster_manager("other", &other),
    ]);
    scenario.script = vec![ScriptStep::at(20, |_| change_cluster_manager("ci", &json!({ "suspend": true })))];
    scenario.ends = vec![
        "ci-due: there, Stale Suspended",
        "ci: governs 1, due 1, Reconciled",
        "other: governs 0, due 0, Reconciled",
    ];
    scenario
}

fn contested() -> Scenario {
    let mut scenario = scenario(
        "cluster-contested",
        "an observing manager of high priority and one of short ttl do not displace the one that enforces first",
    );
    let (mut observing, mut later) = (ci("Observe", "1s", "0s"), ci("Enforce", "1s", "0s"));
    observing["priority"] = json!(9);
    later["selector"] = json!({ "names": ["*-due"] });
    scenario.setup.extend([
        namespace("ci-due"),
        cluster_manager("ci", &ci("Enforce", "5h", "0s")),
        cluster_manager("observes", &observing),
        cluster_manager("zz", &later),
    ]);
    scenario.ends = vec![
        "ci-due: there, Ok TtlRunning",
        "ci: governs 1, due 0, Reconciled",
        "observes: governs 0, due 0, Reconciled",
        "zz: governs 0, due 0, Reconciled",
    ];
    scenario
}

fn unselected() -> Scenario {
    let mut scenario = scenario(
        "cluster-unselected",
        "a namespace loses the label by which it is selected while notice runs",
    );
    let mut spec = ci("Enforce", "10s", "30s");
    spec["selector"] = json!({ "labels": { "matchLabels": { "ci": "true" } } });
    scenario.setup.extend([labelled("mine", "ci"), cluster_manager("ci", &spec)]);
    scenario.script = vec![
        ScriptStep::at(25, |_| {
            let labels = json!({ "metadata": { "labels": { "ci": null } } });
            Request::patch("/api/v1/namespaces/mine", "application/merge-patch+json", &labels)
        })
        .once(|server| recorded(server, "mine")),
    ];
    scenario.ends = vec!["mine: there, NotGoverned", "ci: governs 0, due 0, Reconciled"];
    scenario
}

fn manager_gone() -> Scenario {
    let mut scenario = scenario(
        "cluster-manager-gone",
        "a manager is deleted while notice runs, and made again under its name",
    );
    scenario.setup.extend([namespace("ci-due"), cluster_manager("ci", &ci("Enforce", "5s", "20s"))]);
    scenario.script = vec![
        ScriptStep::at(25, |_| delete_cluster_manager("ci")),
        ScriptStep::at(26, |_| cluster_manager("ci", &ci("Enforce", "5s", "20s"))),
    ];
    scenario.ends = vec!["ci-due: gone, deleted 1x", "ci: governs 0, due 0, Reconciled"];
    scenario
}

fn recreated() -> Scenario {
    let mut scenario = scenario(
        "cluster-recreated",
        "a namespace is deleted by its owner and made again under the same name before its time",
    );
    scenario.setup.extend([namespace("ci-twin"), cluster_manager("ci", &ci("Enforce", "80s", "0s"))]);
    scenario.script = vec![
        ScriptStep::at(60, |_| Request::delete("/api/v1/namespaces/ci-twin")),
        ScriptStep::at(60, |_| namespace("ci-twin")).once(|server| !exists(server, "ci-twin")),
        ScriptStep::at(61, |_| change_cluster_manager("ci", &json!({ "ttl": { "after": "10h" } })))
            .once(|server| exists(server, "ci-twin")),
    ];
    scenario.lasts = Duration::from_mins(2);
    scenario.ends = vec!["ci-twin: there, Ok TtlRunning", "ci: governs 1, due 0, Reconciled"];
    scenario
}

fn leader_killed() -> Scenario {
    let mut scenario = scenario(
        "cluster-leader-killed",
        "the replica that leads is killed while the manager settles and notice runs",
    );
    scenario.setup.extend([namespace("ci-due"), cluster_manager("ci", &ci("Enforce", "1s", "20s"))]);
    scenario.script = vec![ScriptStep::kill_leader(8), ScriptStep::kill_leader(25)];
    scenario.ends = vec!["ci-due: gone, deleted 1x", "ci: governs 0, due 0, Reconciled"];
    scenario
}

/// So short that every two faults at every two places can be tried.
pub(super) fn small() -> Scenario {
    let mut scenario =
        scenario("cluster-small", "one namespace is deleted after notice: for searches of everything");
    scenario.setup.extend([namespace("ci-due"), cluster_manager("ci", &ci("Enforce", "5s", "5s"))]);
    scenario.lasts = Duration::from_secs(45);
    scenario.ends = vec!["ci-due: gone, deleted 1x", "ci: governs 0, due 0, Reconciled"];
    scenario
}
