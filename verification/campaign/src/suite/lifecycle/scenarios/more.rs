//! More scenarios: each of them about a guard, or about a condition.

use std::time::Duration;

use coppice_sim::scenario::objects::{
    change_config, change_manager, cluster_manager, config, delete_after, deployment, manager, manager_of,
    manager_path, namespace, pod, pod_phase,
};
use coppice_sim::scenario::{ReadAnswer, ReadFault, Scenario, ScriptStep};
use coppice_sim::server::{Request, Server};
use serde_json::{Value, json};

use super::{fired, generous, scenario, unavailable};

/// All that seeds choose from.
pub(super) fn all() -> Vec<Scenario> {
    vec![
        little_evidence(),
        delayed(),
        settling_across_leaders(),
        pod_when_due(),
        pods_unreadable_when_due(),
        held_before(),
        notice_shortened(),
        budget_of_two_an_hour(),
        budget_of_a_half(),
        rearmed(),
        workload_recreated(),
    ]
}

/// Due an hour from now, and not before, whatever the dates of answers say.
const LATER: &str = "2026-01-01T00:55:00Z";

fn scale_down_after(after: &str) -> Value {
    json!([{ "name": "sleep", "when": { "ttl": { "after": after } }, "then": { "scaleDown": {} } }])
}

fn when_pods(condition: &Value) -> Value {
    json!([{ "name": "pods", "when": { "podsSucceed": condition }, "then": { "delete": {} } }])
}

fn little_evidence() -> Scenario {
    let mut scenario = scenario(
        "evidence",
        "too few pods, those of others, an incomplete Job, a pod that is cut off, one that failed: none of it is success",
    );
    let conditions = [
        ("few", json!({ "initialDelay": "5s", "minPods": 2 })),
        ("others", json!({ "initialDelay": "5s", "selector": { "matchLabels": { "app": "wanted" } } })),
        ("jobs", json!({ "initialDelay": "5s" })),
        ("leaving", json!({ "initialDelay": "5s" })),
        ("failed", json!({ "initialDelay": "5s" })),
        ("enough", json!({ "initialDelay": "5s" })),
    ];
    for (name, condition) in &conditions {
        scenario.setup.extend([namespace(name), manager(name, &when_pods(condition)), pod(name, "one")]);
        scenario.setup.push(pod_phase(name, "one", "Succeeded"));
    }
    scenario.setup.extend([pod("failed", "two"), pod_phase("failed", "two", "Failed")]);
    let job = json!({
        "apiVersion": "batch/v1", "kind": "Job", "metadata": { "name": "j", "namespace": "jobs" },
        "spec": { "suspend": true, "template": { "spec": {
            "containers": [{ "name": "main", "image": "test" }], "restartPolicy": "Never",
        } } },
    });
    scenario.setup.push(Request::post("/apis/batch/v1/namespaces/jobs/jobs", &job));
    let slow = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {
            "name": "two", "namespace": "leaving", "finalizers": ["test.example.com/held"],
            "annotations": { "plane.coppice.dev/delete-delay": "1h" },
        },
        "spec": { "containers": [{ "name": "main", "image": "test" }], "restartPolicy": "Never" },
    });
    let pods = "/api/v1/namespaces/leaving/pods";
    scenario.setup.extend([Request::post(pods, &slow), pod_phase("leaving", "two", "Running")]);
    scenario.script = vec![ScriptStep::at(2, |_| Request::delete("/api/v1/namespaces/leaving/pods/two"))];
    scenario.ends = vec![
        "few: there, Active 0x",
        "others: there, Active 0x",
        "jobs: there, Active 0x",
        "leaving: there, Active 0x",
        "failed: there, Active 0x",
        "enough: gone, deleted 1x",
    ];
    scenario
}

fn delayed() -> Scenario {
    let mut scenario = scenario("delay", "pods have succeeded long before the initial delay is over");
    let policy = when_pods(&json!({ "initialDelay": "40s" }));
    scenario.setup.extend([namespace("early"), manager("early", &policy), pod("early", "one")]);
    scenario.setup.push(pod_phase("early", "one", "Succeeded"));
    scenario.ends = vec!["early: gone, deleted 1x"];
    scenario
}

fn settling_across_leaders() -> Scenario {
    let mut scenario = scenario(
        "settling",
        "pods have succeeded and settle; the leader dies, and one more pod comes, runs and succeeds before the next one leads",
    );
    let policy = when_pods(&json!({ "initialDelay": "1s", "settle": "40s" }));
    scenario.setup.extend([namespace("work"), manager("work", &policy), pod("work", "one")]);
    scenario.script = vec![
        ScriptStep::at(5, |_| pod_phase("work", "one", "Succeeded")),
        ScriptStep::kill_leader(20),
        ScriptStep::at(22, |_| pod("work", "two")),
        ScriptStep::at(26, |_| pod_phase("work", "two", "Succeeded")),
    ];
    scenario.lasts = Duration::from_secs(150);
    scenario.ends = vec!["work: gone, deleted 1x"];
    scenario
}

fn pod_when_due() -> Scenario {
    let mut scenario =
        scenario("pod-appears", "a pod appears at the very moment at which the deletion has been decided");
    let policy = when_pods(&json!({ "initialDelay": "20s", "minPods": 0 }));
    scenario.setup.extend([namespace("busy"), manager("busy", &policy)]);
    let decided = |server: &Server| manager_of(server, "busy")["status"]["intent"].is_object();
    scenario.script = vec![ScriptStep::at(5, |_| pod("busy", "late")).once(decided)];
    scenario.ends = vec!["busy: there, Active 0x"];
    scenario
}

fn pods_unreadable_when_due() -> Scenario {
    let mut scenario = scenario(
        "list-fails",
        "a pod appears three seconds before an empty namespace is due, and pods cannot be listed for a minute",
    );
    let policy = when_pods(&json!({ "initialDelay": "20s", "minPods": 0 }));
    scenario.setup.extend([namespace("busy"), manager("busy", &policy)]);
    let sleep = json!([{
        "name": "sleep",
        "when": { "podsSucceed": {
            "initialDelay": "20s", "minPods": 0, "selector": { "matchLabels": { "app": "test" } },
        } },
        "then": { "scaleDown": {} },
    }]);
    scenario.setup.extend([namespace("drowsy"), deployment("drowsy", "web", 1), manager("drowsy", &sleep)]);
    scenario.script =
        vec![ScriptStep::at(18, |_| pod("busy", "late")), ScriptStep::at(18, |_| pod("drowsy", "late"))];
    scenario.read_fault = Some(unavailable("/pods", 15, 75));
    scenario.lasts = Duration::from_mins(2);
    scenario.ends = vec!["busy: there, Active 0x", "drowsy: there, Active 0x, web 1"];
    scenario
}

fn held_before() -> Scenario {
    let mut scenario = scenario(
        "held",
        "four seconds before two deletions and two scale-downs, some are held and some suspended",
    );
    let hold = json!({ "hold": { "until": "2026-01-02T00:00:00Z" } });
    let suspend = json!({ "suspend": true });
    for (name, change) in [("keep", &hold), ("halt", &suspend)] {
        let change = change.clone();
        scenario.setup.extend([namespace(name), manager(name, &json!([delete_after("30s")]))]);
        scenario.script.push(ScriptStep::at(26, move |_| change_manager(name, &change)));
    }
    for (name, change) in [("up", hold), ("awake", suspend)] {
        scenario.setup.extend([
            namespace(name),
            deployment(name, "web", 1),
            manager(name, &scale_down_after("30s")),
        ]);
        scenario.script.push(ScriptStep::at(26, move |_| change_manager(name, &change)));
    }
    scenario.ends = vec![
        "keep: there, Held 0x",
        "halt: there, Suspended 0x",
        "up: there, Held 0x, web 1",
        "awake: there, Suspended 0x, web 1",
    ];
    scenario
}

fn notice_shortened() -> Scenario {
    let mut scenario =
        scenario("notice-shortened", "a deletion is announced; then its policy asks for a shorter notice");
    let policy = |notice: &str| {
        json!([{
            "name": "end", "when": { "ttl": { "after": "10s" } }, "then": { "delete": { "notice": notice } },
        }])
    };
    scenario.setup.extend([namespace("mine"), manager("mine", &policy("70s"))]);
    scenario.script =
        vec![ScriptStep::at(20, move |_| change_manager("mine", &json!({ "policies": policy("5s") })))];
    scenario.lasts = Duration::from_mins(2);
    scenario.ends = vec!["mine: gone, deleted 1x"];
    scenario
}

/// Which of them are first is a matter of chance where things go wrong.
fn budget_of_two_an_hour() -> Scenario {
    let mut scenario = scenario(
        "hourly",
        "three namespaces are due and the workloads of a fourth, and two steps an hour are allowed",
    );
    scenario.setup = vec![config(
        &json!({ "governor": { "perMinute": 60, "perHour": 2, "maxShare": "100%", "atLeast": 100 } }),
    )];
    for (name, after) in [("a", "10s"), ("c", "50s"), ("d", "60s")] {
        scenario.setup.extend([namespace(name), manager(name, &json!([delete_after(after)]))]);
    }
    let workloads = ["one", "two", "three"].map(|name| deployment("b", name, 1));
    scenario
        .setup
        .extend([namespace("b"), manager("b", &scale_down_after("30s"))].into_iter().chain(workloads));
    scenario.lasts = Duration::from_mins(2);
    scenario.ends = vec!["a: *", "b: there*", "c: *", "d: *", "steps: 2"];
    scenario
}

fn budget_of_a_half() -> Scenario {
    let mut scenario = scenario(
        "share",
        "the workloads of four namespaces are to sleep, and half of the namespaces an hour are allowed",
    );
    scenario.setup = vec![config(
        &json!({ "governor": { "perMinute": 60, "perHour": 60, "maxShare": "50%", "atLeast": 1 } }),
    )];
    for (name, after) in [("a", "10s"), ("b", "25s"), ("c", "40s"), ("d", "55s")] {
        scenario.setup.extend([
            namespace(name),
            deployment(name, "web", 2),
            manager(name, &scale_down_after(after)),
        ]);
    }
    scenario.lasts = Duration::from_mins(2);
    scenario.ends = vec!["a: there*", "b: there*", "c: there*", "d: there*", "steps: 2"];
    scenario
}

fn rearmed() -> Scenario {
    let mut scenario = scenario(
        "rearm",
        "pods have succeeded and a webhook was sent; its manager is armed again for that firing, and fires once more",
    );
    let policy = json!([{
        "name": "tell", "when": { "podsSucceed": { "initialDelay": "5s" } },
        "then": { "webhook": { "url": "https://hooks.example.com/end" } },
    }]);
    scenario.setup.extend([namespace("app"), manager("app", &policy), pod("app", "one")]);
    scenario.setup.push(pod_phase("app", "one", "Succeeded"));
    let twice = |server: &Server| {
        let status = &manager_of(server, "app")["status"];
        status["firings"].as_i64() >= Some(2) && status["intent"].is_null()
    };
    scenario.script = vec![
        ScriptStep::at(30, |server| {
            change_manager("app", &json!({ "rearm": manager_of(server, "app")["status"]["firings"] }))
        })
        .once(|server| fired(server, "app")),
        // From then on the condition is false, and nobody has a reason to fire.
        ScriptStep::at(45, |_| pod("app", "two")).once(twice),
    ];
    scenario.lasts = Duration::from_mins(2);
    scenario.ends = vec!["app: there, Fired 2x", "webhooks: 2"];
    scenario
}

fn workload_recreated() -> Scenario {
    let mut scenario = scenario(
        "recreated-workload",
        "of two deployments one is scaled down, deleted and made again, and then the namespace is woken",
    );
    let policy = json!([{
        "name": "sleep", "when": { "ttl": { "after": "10s" } },
        "then": { "scaleDown": { "selectors": [
            { "kind": "Deployment", "selector": { "matchLabels": { "app": "front" } } },
        ] } },
    }]);
    scenario.setup.extend([namespace("app"), deployment("app", "front", 3), deployment("app", "back", 2)]);
    scenario.setup.push(manager("app", &policy));
    let front = |server: &Server| server.object("apps", "deployments", "app", "front").is_some();
    scenario.script = vec![
        ScriptStep::at(20, |_| Request::delete("/apis/apps/v1/namespaces/app/deployments/front"))
            .once(|server| fired(server, "app")),
        ScriptStep::at(20, |_| deployment("app", "front", 0))
            .once(|server| server.object("apps", "deployments", "app", "front").is_none()),
        ScriptStep::at(25, |server| {
            change_manager("app", &json!({ "wake": manager_of(server, "app")["status"]["firings"] }))
        })
        .once(front),
    ];
    scenario.ends = vec!["app: there, Fired 1x, back 2, front 0 scaled 1x"];
    scenario
}

/// What is due in an hour stays, although the API server's clock, or its answers' dates, go wrong in many ways.
pub(super) fn timed() -> Scenario {
    let mut scenario = scenario(
        "timed",
        "a ttl, a notice, a hold, an extension, a time to settle, and a budget: none of them ends within the hour",
    );
    scenario.setup = vec![config(
        &json!({ "governor": { "perMinute": 60, "perHour": 1, "maxShare": "100%", "atLeast": 100 } }),
    )];
    let later = json!([{ "name": "later", "when": { "ttl": { "after": "30m" } }, "then": { "delete": {} } }]);
    let noticed = json!([{
        "name": "end", "when": { "ttl": { "after": "5s" } }, "then": { "delete": { "notice": "30m" } },
    }]);
    let now = json!([delete_after("5s")]);
    let settles = when_pods(&json!({ "initialDelay": "1s", "settle": "30m" }));
    for (name, spec) in [
        ("later", json!({ "policies": later })),
        ("noticed", json!({ "policies": noticed })),
        ("held", json!({ "policies": now, "hold": { "until": LATER } })),
        ("extended", json!({ "policies": now, "extendUntil": LATER })),
        ("settles", json!({ "policies": settles })),
    ] {
        let object = json!({
            "apiVersion": "coppice.dev/v1alpha1", "kind": "NamespaceManager",
            "metadata": { "name": "m", "namespace": name }, "spec": spec,
        });
        scenario.setup.extend([namespace(name), Request::post(&manager_path(name), &object)]);
    }
    scenario.setup.extend([pod("settles", "one"), pod_phase("settles", "one", "Succeeded")]);
    for (name, after) in [("first", "15s"), ("second", "60s")] {
        scenario.setup.extend([namespace(name), manager(name, &json!([delete_after(after)]))]);
    }
    scenario.lasts = Duration::from_mins(3);
    scenario.ends = vec![
        "later: there, Active 0x",
        "noticed: there, Pending 0x",
        "held: there, Held 0x",
        "extended: there, Active 0x",
        "settles: there, Active 0x",
        "first: *",
        "second: *",
        "steps: 1",
    ];
    scenario
}

const SETTINGS: &str = "/apis/coppice.dev/v1alpha1/coppiceconfigs/coppice";

/// The id of the breaker in the settings' status.
fn open_breaker(server: &Server) -> Value {
    let settings = server.object("coppice.dev", "coppiceconfigs", "", "coppice");
    settings.map(|settings| settings["status"]["governor"]["breaker"]["id"].clone()).unwrap_or_default()
}

/// The settings are created again meanwhile, which closes no breaker.
pub(super) fn collapse() -> Scenario {
    let mut scenario = scenario(
        "collapse",
        "lists of pods are empty for four minutes; a namespace that is due then waits for an acknowledgment",
    );
    scenario.setup.extend([
        namespace("busy"),
        namespace("due"),
        manager("due", &json!([delete_after("20m")])),
    ]);
    scenario.setup.extend((0..12).map(|n| pod("busy", &format!("p{n:02}"))));
    // The first lists after those at the beginning.
    let during = (Duration::from_mins(9), Duration::from_mins(13));
    scenario.read_fault = Some(ReadFault { path: "/pods", during, answer: ReadAnswer::Nothing });
    let open = |server: &Server| open_breaker(server).is_string();
    let acknowledge =
        |server: &Server| change_config(&json!({ "governor": { "acknowledge": open_breaker(server) } }));
    scenario.script = vec![
        ScriptStep::at(840, |_| Request::delete(SETTINGS)).once(open),
        ScriptStep::at(900, |_| generous()),
        ScriptStep::at(1500, acknowledge).once(open),
    ];
    scenario.lasts = Duration::from_mins(26);
    scenario.ends = vec!["busy: there", "due: gone, deleted 1x"];
    scenario
}

/// So many that it takes far longer to scale them down than to stop it.
const WORKLOADS: u32 = 400;

/// The scenarios in which a scale-down of many workloads is to be stopped: how many of them are scaled down then is a matter of chance.
pub(super) fn many_workloads() -> Vec<Scenario> {
    let stops: [(&'static str, &'static str, &'static str, Value); 3] = [
        (
            "many-held",
            "hold",
            "many: there, Held 0x*",
            json!({ "hold": { "until": "2026-01-02T00:00:00Z" } }),
        ),
        ("many-suspended", "suspend", "many: there, Suspended 0x*", json!({ "suspend": true })),
        ("many-paused", "pause", "many: there, Pending 0x*", json!({ "governor": { "paused": true } })),
    ];
    let made = stops.map(|(name, what, end, change)| {
        let mut scenario = scenario(name, "many workloads are being scaled down when somebody stops it");
        scenario.setup.extend([namespace("many"), manager("many", &scale_down_after("10s"))]);
        scenario.setup.extend((0..WORKLOADS).map(|n| deployment("many", &format!("w{n:03}"), 1)));
        let fifth = |server: &Server| {
            let scaled_down = |n: u32| {
                let workload = server.object("apps", "deployments", "many", &format!("w{n:03}"));
                workload.is_some_and(|workload| workload["spec"]["replicas"] == 0)
            };
            (0..5).all(scaled_down)
        };
        let does = move |_: &Server| {
            if what == "pause" { change_config(&change) } else { change_manager("many", &change) }
        };
        scenario.script = vec![ScriptStep::at(10, does).once(fifth)];
        scenario.lasts = Duration::from_mins(2);
        scenario.ends = vec![end];
        scenario
    });
    made.into()
}

/// A cluster manager that does nothing itself, with these limits.
fn limits(limits: &Value) -> Request {
    cluster_manager("ci", &json!({ "mode": "Enforce", "selector": { "names": ["ci-*"] }, "limits": limits }))
}

/// Ahead of its end and for as long as a cluster manager demands, whatever the manager says.
pub(super) fn limited_notice() -> Scenario {
    let mut scenario = scenario(
        "limited-notice",
        "a cluster manager demands 20 s of notice of a manager that gives none, and does not govern another one",
    );
    scenario.setup.extend([
        limits(&json!({ "minNotice": "20s" })),
        namespace("ci-ends"),
        manager("ci-ends", &json!([delete_after("30s")])),
        namespace("other"),
        manager("other", &json!([delete_after("30s")])),
    ]);
    scenario.ends = vec!["ci-ends: gone, deleted 1x", "other: gone, deleted 1x"];
    scenario
}

pub(super) fn limited_actions() -> Scenario {
    let mut scenario =
        scenario("limited-actions", "a cluster manager permits managers to delete, and nothing else");
    scenario.setup.extend([
        limits(&json!({ "tenantActions": ["delete"] })),
        namespace("ci-sleeps"),
        deployment("ci-sleeps", "web", 2),
        manager("ci-sleeps", &scale_down_after("20s")),
        namespace("ci-ends"),
        manager("ci-ends", &json!([delete_after("30s")])),
    ]);
    scenario.ends = vec!["ci-ends: gone, deleted 1x", "ci-sleeps: there, Refused 0x, web 2"];
    scenario
}
