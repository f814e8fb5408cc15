//! What people do with managers, and how it ends.

mod chain;
mod more;

use std::time::Duration;

use coppice_sim::receiver::ReceiverBehavior;
use coppice_sim::scenario::objects::{
    change_config, change_manager, config, delete_after, deployment, exists, manager, manager_of,
    manager_path, manager_with, namespace, pod, pod_phase,
};
use coppice_sim::scenario::{ReadAnswer, ReadFault, Scenario, ScriptStep};
use coppice_sim::server::{Request, Server};
use serde_json::{Value, json};

pub use self::chain::wrong_input;

/// Those that seeds choose from.
pub(super) fn all() -> Vec<Scenario> {
    [
        ttl_fires(),
        pods_succeed(),
        extended_at_the_last_second(),
        recreated_under_the_same_name(),
        policy_removed_while_due(),
        scaled_down_and_woken(),
        webhook_with_a_flaky_receiver(),
        paused_while_due(),
        notice_and_hold(),
        budget_of_two_a_minute(),
        manager_deleted_while_due(),
        one_that_runs(),
        pods_that_cannot_be_read(),
    ]
    .into_iter()
    .chain(more::all())
    .collect()
}

/// Those that seeds do not choose from.
pub(super) fn apart() -> Vec<Scenario> {
    [more::timed(), more::collapse(), more::limited_notice(), more::limited_actions()]
        .into_iter()
        .chain(more::many_workloads())
        .collect()
}

/// Two replicas, generous settings, a minute and a half.
fn scenario(name: &'static str, about: &'static str) -> Scenario {
    Scenario {
        name,
        about,
        setup: vec![generous()],
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

/// Everything whose path ends so cannot be read between these seconds.
pub(in crate::suite) fn unavailable(path: &'static str, from: u64, until: u64) -> ReadFault {
    let during = (Duration::from_secs(from), Duration::from_secs(until));
    ReadFault { path, during, answer: ReadAnswer::Unavailable }
}

/// A budget that does not bind.
fn generous() -> Request {
    config(&json!({
        "governor": { "perMinute": 100, "perHour": 1000, "maxShare": "100%", "atLeast": 100 },
        "tenants": { "webhookHosts": ["hooks.example.com"] },
    }))
}

fn ttl_fires() -> Scenario {
    let mut scenario =
        scenario("ttl-fires", "one namespace is due, one much later, one has no manager, one is protected");
    scenario.setup.extend([
        namespace("due"),
        manager("due", &json!([delete_after("20s")])),
        namespace("later"),
        manager("later", &json!([delete_after("5h")])),
        namespace("free"),
        pod("free", "p"),
        Request::post(
            "/api/v1/namespaces",
            &json!({
                "apiVersion": "v1", "kind": "Namespace",
                "metadata": { "name": "dear", "labels": { "coppice.dev/protected": "true" } },
            }),
        ),
        manager("dear", &json!([delete_after("20s")])),
    ]);
    scenario.ends =
        vec!["due: gone, deleted 1x", "later: there, Active 0x", "free: there", "dear: there, Refused 0x"];
    scenario
}

fn pods_succeed() -> Scenario {
    let mut scenario = scenario(
        "pods-succeed",
        "the pods of one namespace succeed, one after the other; in the other, one fails",
    );
    let policy = json!([{
        "name": "tests", "when": { "podsSucceed": { "initialDelay": "5s", "minPods": 2 } }, "then": { "delete": {} },
    }]);
    for name in ["good", "bad"] {
        scenario.setup.extend([namespace(name), manager(name, &policy), pod(name, "one"), pod(name, "two")]);
    }
    scenario.script = vec![
        ScriptStep::at(10, |_| pod_phase("good", "one", "Succeeded")),
        ScriptStep::at(11, |_| pod_phase("bad", "one", "Failed")),
        ScriptStep::at(15, |_| pod_phase("bad", "two", "Succeeded")),
        ScriptStep::at(20, |_| pod_phase("good", "two", "Succeeded")),
    ];
    scenario.ends = vec!["good: gone, deleted 1x", "bad: there, Active 0x"];
    scenario
}

fn extended_at_the_last_second() -> Scenario {
    let mut scenario =
        scenario("extended", "the time of a namespace is extended three seconds before its end");
    scenario.setup.extend([namespace("mine"), manager("mine", &json!([delete_after("30s")]))]);
    scenario.script = vec![ScriptStep::at(28, |_| {
        change_manager("mine", &json!({ "extendUntil": "2026-01-02T00:00:00Z" }))
    })];
    scenario.ends = vec!["mine: there, Active 0x"];
    scenario
}

fn recreated_under_the_same_name() -> Scenario {
    let mut scenario = scenario(
        "recreated",
        "a namespace is deleted by its owner and made again under the same name before its time",
    );
    scenario.setup.extend([namespace("twin"), manager("twin", &json!([delete_after("30s")]))]);
    scenario.script = vec![
        ScriptStep::at(20, |_| Request::delete("/api/v1/namespaces/twin")),
        ScriptStep::at(20, |_| namespace("twin")).once(|server| !exists(server, "twin")),
        ScriptStep::at(21, |_| manager("twin", &json!([delete_after("10h")])))
            .once(|server| exists(server, "twin")),
    ];
    scenario.ends = vec!["twin: there, Active 0x"];
    scenario
}

fn policy_removed_while_due() -> Scenario {
    let mut scenario = scenario(
        "policy-removed",
        "a policy is due while everything is paused; it is removed, and the pause ends",
    );
    scenario.setup = vec![config(&json!({ "governor": { "paused": true } }))];
    scenario.setup.extend([namespace("mine"), manager("mine", &json!([delete_after("10s")]))]);
    scenario.script = vec![
        ScriptStep::at(30, |_| {
            let later =
                json!([{ "name": "later", "when": { "ttl": { "after": "9h" } }, "then": { "delete": {} } }]);
            change_manager("mine", &json!({ "policies": later }))
        }),
        ScriptStep::at(40, |_| change_config(&json!({ "governor": { "paused": false } }))),
    ];
    scenario.ends = vec!["mine: there, Active 0x"];
    scenario
}

fn scaled_down_and_woken() -> Scenario {
    let mut scenario =
        scenario("scaled-down", "two deployments are scaled down, and later woken to what they were");
    let policy =
        json!([{ "name": "sleep", "when": { "ttl": { "after": "10s" } }, "then": { "scaleDown": {} } }]);
    scenario.setup.extend([namespace("app"), deployment("app", "front", 3), deployment("app", "back", 2)]);
    scenario.setup.push(manager("app", &policy));
    scenario.script = vec![
        ScriptStep::at(30, |server| {
            let manager = manager_of(server, "app");
            change_manager("app", &json!({ "wake": manager["status"]["firings"] }))
        })
        .once(|server| fired(server, "app")),
    ];
    scenario.ends = vec!["app: there, Fired 1x, back 2 scaled 2x, front 3 scaled 2x"];
    scenario
}

fn fired(server: &Server, namespace: &str) -> bool {
    let manager = manager_of(server, namespace);
    manager["status"]["firings"].as_i64() >= Some(1) && manager["status"]["intent"] == Value::Null
}

fn webhook_with_a_flaky_receiver() -> Scenario {
    let mut scenario = scenario(
        "webhook",
        "a receiver is first not available, then takes the webhook without saying so, then answers",
    );
    let policy = json!([{
        "name": "tell", "when": { "ttl": { "after": "10s" } },
        "then": { "webhook": { "url": "https://hooks.example.com/end" } },
    }]);
    scenario.setup.extend([namespace("app"), manager("app", &policy)]);
    scenario.receiver =
        vec![ReceiverBehavior::Unavailable, ReceiverBehavior::TakesSilently, ReceiverBehavior::Takes];
    scenario.lasts = Duration::from_mins(4);
    scenario.ends = vec!["app: there, Fired 1x", "webhooks: 1"];
    scenario
}

fn paused_while_due() -> Scenario {
    let mut scenario = scenario(
        "paused",
        "three namespaces become due after everything was paused; a minute later it goes on",
    );
    for name in ["a", "b", "c"] {
        scenario.setup.extend([namespace(name), manager(name, &json!([delete_after("20s")]))]);
    }
    scenario.script = vec![
        ScriptStep::at(15, |_| change_config(&json!({ "governor": { "paused": true } }))),
        ScriptStep::at(60, |_| change_config(&json!({ "governor": { "paused": false } }))),
    ];
    scenario.lasts = Duration::from_mins(2);
    scenario.ends = vec!["a: gone, deleted 1x", "b: gone, deleted 1x", "c: gone, deleted 1x"];
    scenario
}

fn notice_and_hold() -> Scenario {
    let mut scenario = scenario(
        "notice",
        "a deletion is announced, held in the last moment, and announced again when the hold ends",
    );
    let policy = json!([{
        "name": "end", "when": { "ttl": { "after": "10s" } }, "then": { "delete": { "notice": "20s" } },
    }]);
    scenario.setup.extend([
        namespace("mine"),
        manager("mine", &policy),
        namespace("other"),
        manager("other", &policy),
    ]);
    // Fourteen seconds after the announcement, six before the deletion.
    scenario.script = vec![ScriptStep::at(16, |_| {
        change_manager("mine", &json!({ "hold": { "until": "2026-01-01T00:01:00Z" } }))
    })];
    scenario.lasts = Duration::from_mins(2);
    scenario.ends = vec!["mine: gone, deleted 1x", "other: gone, deleted 1x"];
    scenario
}

fn budget_of_two_a_minute() -> Scenario {
    let mut scenario = scenario("budget", "five namespaces are due at once, and two a minute may be deleted");
    scenario.setup = vec![config(
        &json!({ "governor": { "perMinute": 2, "perHour": 60, "maxShare": "100%", "atLeast": 100 } }),
    )];
    for name in ["a", "b", "c", "d", "e"] {
        scenario.setup.extend([namespace(name), manager(name, &json!([delete_after("15s")]))]);
    }
    scenario.lasts = Duration::from_mins(5);
    scenario.ends = vec![
        "a: gone, deleted 1x",
        "b: gone, deleted 1x",
        "c: gone, deleted 1x",
        "d: gone, deleted 1x",
        "e: gone, deleted 1x",
    ];
    scenario
}

fn one_that_runs() -> Scenario {
    let mut scenario =
        scenario("one-runs", "no pods at all would be success, but there is one, and it runs and runs");
    let policy = json!([{
        "name": "empty", "when": { "podsSucceed": { "initialDelay": "1s", "minPods": 0 } }, "then": { "delete": {} },
    }]);
    scenario.setup.extend([namespace("busy"), manager("busy", &policy), pod("busy", "p")]);
    scenario.setup.push(pod_phase("busy", "p", "Running"));
    scenario.ends = vec!["busy: there, Active 0x"];
    scenario
}

/// So short that every two faults at every two places can be tried.
pub(super) fn small() -> Scenario {
    let mut scenario = scenario(
        "small",
        "one namespace is deleted, the workload of another is scaled down: for searches of everything",
    );
    let policy =
        json!([{ "name": "sleep", "when": { "ttl": { "after": "15s" } }, "then": { "scaleDown": {} } }]);
    scenario.setup.extend([namespace("due"), manager("due", &json!([delete_after("10s")]))]);
    scenario.setup.extend([namespace("app"), deployment("app", "web", 1), manager("app", &policy)]);
    scenario.lasts = Duration::from_mins(1);
    scenario.ends = vec!["due: gone, deleted 1x", "app: there, Fired 1x, web 0 scaled 1x"];
    scenario
}

fn pods_that_cannot_be_read() -> Scenario {
    let mut scenario = one_that_runs();
    scenario.name = "unreadable";
    scenario.about = "the same, while pods cannot be listed for the first minute";
    scenario.read_fault = Some(unavailable("/pods", 0, 60));
    scenario
}

fn manager_deleted_while_due() -> Scenario {
    let mut scenario = scenario(
        "manager-deleted",
        "a manager is due while everything is paused; it is deleted, and the pause ends",
    );
    scenario.setup = vec![config(&json!({ "governor": { "paused": true } }))];
    scenario
        .setup
        .extend([namespace("mine"), manager_with("mine", &json!({ "policies": [delete_after("10s")] }))]);
    scenario.script = vec![
        ScriptStep::at(30, |_| Request::delete(&format!("{}/m", manager_path("mine")))),
        ScriptStep::at(40, |_| change_config(&json!({ "governor": { "paused": false } }))),
    ];
    scenario.ends = vec!["mine: there"];
    scenario
}
