//! What people do with cluster managers, and how it ends.

mod health;
mod late;
mod notices;
mod receivers;
mod reverted;
mod shared;
mod superseded;
mod unfollowed;

use std::time::Duration;

use coppice_sim::scenario::objects::{
    approve, change_cluster_manager, change_config, change_record, cluster_manager, config,
    delete_cluster_manager, deployment, exists, namespace, namespace_record, record_of,
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
        unapproved(),
        approval_ends(),
        holds_end(),
        settles(),
        announced(),
        held(),
        extended(),
        suspended(),
        scaled_down(),
        contested(),
        unselected(),
        manager_gone(),
        recreated(),
        leader_killed(),
        receivers::pods_succeed(),
        receivers::pods_run_again(),
        receivers::webhooks_first(),
    ]
}

/// Those that seeds do not choose from: where the health is looked at, a lost event of a pod is not known for an hour; where the events of a deletion are lost, it is not known before the next list, and one
/// more follows; where a kind of workload cannot be listed for long, its namespaces are looked at every five seconds; and where
/// namespaces cannot be listed again, it stays unknown what they have of an annotation that is newly named.
pub(super) fn apart() -> Vec<Scenario> {
    vec![
        recreated_often(),
        health::failed(),
        health::recovers(),
        health::steadies(),
        health::unlisted(),
        health::listed_later(),
        health::budget_spent(),
        health::sleeps(),
        newly_named(),
        ttl_shortened(),
        limited(),
        reverted::reverted(),
        superseded::superseded(),
        superseded::never_ready(),
        superseded::never_said(),
        superseded::successor_goes(),
        superseded::superseded_in_turn(),
        notices::notified_late(),
        notices::undelivered(),
        notices::proceeds(),
        notices::leader_killed(),
        notices::withdrawn(),
        notices::withdrawn_late(),
        notices::gone(),
        notices::within_hours(),
        notices::within_hours_in_slack(),
        notices::another_owner(),
        notices::fallback(),
        notices::many(),
        notices::many_again(),
        notices::many_leader_killed(),
        receivers::tenant_webhooks_first(),
        shared::two_sources(),
        shared::hourly(),
        unfollowed::pods(),
        unfollowed::failing(),
        unfollowed::failed(),
        unfollowed::namespaces(),
        late::extended(),
        late::unselected(),
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
        webhooks: false,
        target: None,
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

/// Three namespaces that are two minutes old when a manager enforces, at 130 s, and so many steps an hour.
fn three_at_once(name: &'static str, about: &'static str, per_hour: u32, notice: &str) -> Scenario {
    let mut scenario = scenario(name, about);
    scenario.setup = vec![
        config(&governor(per_hour)),
        namespace("ci-a"),
        namespace("ci-b"),
        namespace("ci-c"),
        cluster_manager("ci", &ci("Observe", "5s", notice)),
    ];
    scenario.script =
        vec![ScriptStep::at(130, |_| change_cluster_manager("ci", &json!({ "mode": "Enforce" })))];
    scenario.lasts = Duration::from_secs(250);
    scenario
}

fn governor(per_hour: u32) -> Value {
    json!({ "governor": { "perMinute": 100, "perHour": per_hour, "maxShare": "100%", "atLeast": 100 } })
}

fn unapproved() -> Scenario {
    let mut scenario = three_at_once(
        "cluster-unapproved",
        "a switch to Enforce makes three namespaces due, more than the hourly budget, until that is raised",
        2,
        "0s",
    );
    scenario.script.push(ScriptStep::at(170, |_| change_config(&governor(100))));
    scenario.ends = vec![
        "ci-a: gone, deleted 1x",
        "ci-b: gone, deleted 1x",
        "ci-c: gone, deleted 1x",
        "ci: governs 0, due 0, Reconciled",
    ];
    scenario
}

fn approval_ends() -> Scenario {
    let mut scenario = three_at_once(
        "cluster-approval-ends",
        "more than the hourly budget is approved, and the approval ends while notice runs",
        2,
        "40s",
    );
    let enforces = |server: &Server| {
        let manager = server.object("coppice.dev", "clusternamespacemanagers", "", "ci");
        manager.is_some_and(|manager| {
            manager["status"]["observedGeneration"] == manager["metadata"]["generation"]
        })
    };
    scenario
        .script
        .push(ScriptStep::at(150, |server| approve(server, "ci", 3, "2026-01-01T00:02:55Z")).once(enforces));
    scenario.ends = vec![
        "ci-a: there, Stale ApprovalNeeded",
        "ci-b: there, Stale ApprovalNeeded",
        "ci-c: there, Stale ApprovalNeeded",
        "ci: governs 3, due 3, Reconciled",
    ];
    scenario
}

fn holds_end() -> Scenario {
    let mut scenario = three_at_once(
        "cluster-holds-end",
        "the holds of three namespaces end at one time, which are more than the hourly budget",
        2,
        "0s",
    );
    let until = json!({ "hold": { "until": "2026-01-01T00:03:20Z" } });
    scenario.setup.extend(["ci-a", "ci-b", "ci-c"].map(|name| namespace_record(name, &until)));
    scenario.ends = vec![
        "ci-a: there, Stale ApprovalNeeded",
        "ci-b: there, Stale ApprovalNeeded",
        "ci-c: there, Stale ApprovalNeeded",
        "ci: governs 3, due 3, Reconciled",
    ];
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

fn scaled_down() -> Scenario {
    let mut scenario = scenario(
        "cluster-scaled-down",
        "of two namespaces the workloads are scaled down; one is deleted later, and in the other a user wakes them",
    );
    let sleep =
        json!({ "name": "sleep", "when": { "ttl": { "after": "20s" } }, "then": { "scaleDown": {} } });
    let mut sleep_and_end = ci("Enforce", "10m", "5s");
    let mut sleep_alone = ci("Enforce", "10h", "0s");
    sleep_alone["selector"]["names"] = json!(["dev"]);
    sleep_alone["policies"] = json!([sleep]);
    if let Some(policies) = sleep_and_end["policies"].as_array_mut() {
        policies.push(sleep);
    }
    scenario.setup.extend([
        namespace("ci-app"),
        deployment("ci-app", "front", 2),
        deployment("ci-app", "back", 1),
        namespace("dev"),
        deployment("dev", "web", 3),
        cluster_manager("ci", &sleep_and_end),
        cluster_manager("dev", &sleep_alone),
    ]);
    scenario.script = vec![
        ScriptStep::at(40, |server| {
            change_record("dev", &json!({ "wake": record_of(server, "dev")["status"]["firings"] }))
        })
        .once(|server| {
            let status = &record_of(server, "dev")["status"];
            status["firings"].as_i64() >= Some(1) && status["intent"].is_null()
        }),
    ];
    // Also where faults delay it by as much as attempts can be apart, nothing is deleted before it is scaled down.
    scenario.lasts = Duration::from_mins(11);
    scenario.ends = vec![
        "ci-app: gone, deleted 1x",
        "dev: there, Ok Dormant, web 3 scaled 2x",
        "ci: governs 0, due 0, Reconciled",
        "dev: governs 1, due 0, Reconciled",
    ];
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

fn recreated_often() -> Scenario {
    let mut scenario =
        scenario("cluster-recreated-often", "a namespace is made again each time it is deleted");
    scenario.setup.extend([namespace("ci-loop"), cluster_manager("ci", &ci("Enforce", "2s", "0s"))]);
    let again = |at| ScriptStep::at(at, |_| namespace("ci-loop")).once(|server| !exists(server, "ci-loop"));
    // The last one when every cache knows of the deletions before, also those whose events are late.
    scenario.script = vec![again(15), again(35), again(130)];
    scenario.lasts = Duration::from_secs(200);
    scenario.ends =
        vec!["ci-loop: there, deleted 3x, Stale RecreatedTooOften", "ci: governs 1, due 1, Reconciled"];
    scenario
}

/// Creates a namespace with the annotation `example.org/keep`.
fn annotated(name: &str) -> Request {
    let metadata =
        json!({ "name": name, "annotations": { "example.org/keep": "", "example.org/ttl": "1s" } });
    let object = json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": metadata });
    Request::post("/api/v1/namespaces", &object)
}

/// Namespaces become due at 18, 20, 22 and 24 s under one manager; from 17 s on another one comes first for three of them, by
/// an annotation that nobody has named before, and has to settle.
fn newly_named() -> Scenario {
    let mut scenario = scenario(
        "cluster-newly-named",
        "a manager that names an annotation for the first time takes over namespaces that are about to be deleted",
    );
    let mut first = ci("Enforce", "1h", "0s");
    first["priority"] = 1.into();
    first["ttl"]["fromAnnotation"] = "example.org/ttl".into();
    first["selector"] = json!({ "annotations": [{ "key": "example.org/keep" }] });
    scenario.setup.push(cluster_manager("ci", &ci("Enforce", "15s", "0s")));
    scenario.script = vec![
        ScriptStep::at(2, |_| annotated("ci-a")),
        ScriptStep::at(4, |_| annotated("ci-b")),
        ScriptStep::at(6, |_| annotated("ci-c")),
        ScriptStep::at(8, |_| namespace("ci-other")),
        ScriptStep::at(17, move |_| cluster_manager("keep", &first)),
    ];
    scenario.ends = vec![
        "ci-a: gone, deleted 1x",
        "ci-b: gone, deleted 1x",
        "ci-c: gone, deleted 1x",
        "ci-other: gone, deleted 1x",
        "ci: governs 0, due 0, Reconciled",
        "keep: governs 0, due 0, Reconciled",
    ];
    scenario
}

/// Says how long a namespace lives.
fn own_ttl(name: &str, ttl: &str) -> Request {
    let metadata = json!({ "annotations": { "example.org/ttl": ttl } });
    Request::patch(
        &format!("/api/v1/namespaces/{name}"),
        "application/merge-patch+json",
        &json!({ "metadata": metadata }),
    )
}

/// At 20 s two namespaces get a ttl that is over already. One of them has it until it has settled.
fn ttl_shortened() -> Scenario {
    let mut scenario = scenario(
        "cluster-ttl-shortened",
        "two namespaces get a shorter ttl by an annotation, and one of them a longer one again",
    );
    let mut spec = ci("Enforce", "1h", "0s");
    spec["ttl"]["fromAnnotation"] = "example.org/ttl".into();
    scenario.setup.extend([namespace("ci-a"), namespace("ci-b"), cluster_manager("ci", &spec)]);
    scenario.script = vec![
        ScriptStep::at(20, |_| own_ttl("ci-a", "5s")),
        ScriptStep::at(20, |_| own_ttl("ci-b", "5s")),
        ScriptStep::at(25, |_| own_ttl("ci-b", "2h")),
    ];
    scenario.ends =
        vec!["ci-a: gone, deleted 1x", "ci-b: there, Ok TtlRunning", "ci: governs 1, due 0, Reconciled"];
    scenario
}

/// One is held for ever, and held again; one is extended for ever. Holds count for 40 s, and no ttl ends after a minute.
fn limited() -> Scenario {
    let mut scenario = scenario(
        "cluster-limited",
        "a hold, one that is renewed and an extension end at the limits of the cluster manager",
    );
    let mut spec = ci("Enforce", "15s", "0s");
    spec["limits"] = json!({ "maxHold": "40s", "maxTTL": "1m" });
    let forever = json!({ "hold": { "until": "2027-01-01T00:00:00Z" } });
    scenario.setup.extend([
        namespace("ci-held"),
        namespace_record("ci-held", &forever),
        namespace("ci-renewed"),
        namespace_record("ci-renewed", &json!({ "hold": { "until": "2026-01-01T00:00:30Z" } })),
        namespace("ci-extended"),
        namespace_record("ci-extended", &json!({ "extendUntil": { "at": "2027-01-01T00:00:00Z" } })),
        cluster_manager("ci", &spec),
    ]);
    scenario.script = vec![ScriptStep::at(25, move |_| change_record("ci-renewed", &forever))];
    scenario.ends = vec![
        "ci-held: gone, deleted 1x",
        "ci-renewed: gone, deleted 1x",
        "ci-extended: gone, deleted 1x",
        "ci: governs 0, due 0, Reconciled",
    ];
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
