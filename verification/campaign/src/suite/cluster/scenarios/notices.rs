//! Owners who are notified that their namespaces will be deleted.

use std::time::Duration;

use coppice_sim::receiver::ReceiverBehavior;
use coppice_sim::scenario::objects::{change_record, cluster_manager, config, namespace, record_of};
use coppice_sim::scenario::{Scenario, ScriptStep};
use coppice_sim::server::Request;
use serde_json::{Value, json};

use super::{ci, scenario};

/// Owners are notified by a webhook, 20 s before their namespace is 40 s old.
fn notified(name: &'static str, about: &'static str, undelivered: &Value) -> Scenario {
    notified_of(name, about, undelivered, &[])
}

/// The same, and they are notified of this besides.
fn notified_of(name: &'static str, about: &'static str, undelivered: &Value, on: &[&str]) -> Scenario {
    let notify = json!({ "channels": ["hook"], "on": on, "undelivered": undelivered });
    notified_by(name, about, &notify)
}

/// The same, by all that the manager says of it.
fn notified_by(name: &'static str, about: &'static str, notify: &Value) -> Scenario {
    let mut scenario = scenario(name, about);
    let mut spec = ci("Enforce", "40s", "20s");
    spec["notify"] = notify.clone();
    scenario.setup = vec![
        config(&json!({
            "governor": { "perMinute": 100, "perHour": 1000, "maxShare": "100%", "atLeast": 100 },
            "channels": [{ "name": "hook", "webhook": { "url": "https://hooks.example.com/owners" } }],
        })),
        namespace("ci-due"),
        cluster_manager("ci", &spec),
    ];
    scenario.lasts = Duration::from_mins(4);
    scenario
}

/// The third attempt reaches the receiver, whose answer to the second was lost.
pub(super) fn notified_late() -> Scenario {
    let waits = json!({ "then": "Wait" });
    let mut scenario = notified(
        "cluster-notified",
        "an owner is notified at the third attempt, and notice runs from then",
        &waits,
    );
    scenario.receiver = vec![ReceiverBehavior::Unavailable, ReceiverBehavior::TakesSilently];
    scenario.ends = vec!["ci-due: gone, deleted 1x", "ci: governs 0, due 0, Reconciled", "webhooks: 1"];
    scenario
}

/// Nobody answers.
pub(super) fn undelivered() -> Scenario {
    let waits = json!({ "then": "Wait" });
    let mut scenario =
        notified("cluster-unnotified", "an owner cannot be notified, and the deletion waits", &waits);
    scenario.receiver = vec![ReceiverBehavior::Unavailable; 500];
    // Attempts are four minutes apart by then.
    scenario.lasts = Duration::from_mins(6);
    scenario.ends = vec!["ci-due: there, Stale NoticeUndelivered", "ci: governs 1, due 1, Reconciled"];
    scenario
}

/// Nobody answers before the namespace is gone, and the platform does not wait for that. What could not be announced is not sent
/// afterwards, although it waits for the channel by then.
pub(super) fn proceeds() -> Scenario {
    let proceeds = json!({ "after": "60s", "then": "Proceed" });
    let mut scenario = notified(
        "cluster-proceeds",
        "an owner cannot be notified, and the deletion proceeds after a minute",
        &proceeds,
    );
    scenario.receiver = vec![ReceiverBehavior::Unavailable; 7];
    scenario.ends = vec!["ci-due: gone, deleted 1x", "ci: governs 0, due 0, Reconciled", "webhooks: 1"];
    scenario
}

/// The leader is killed when the owner has been notified, and again while notice runs.
pub(super) fn leader_killed() -> Scenario {
    let waits = json!({ "then": "Wait" });
    let mut scenario = notified(
        "cluster-notified-leader-killed",
        "the replica that leads is killed before and after the owner is notified",
        &waits,
    );
    scenario.script = vec![ScriptStep::kill_leader(21), ScriptStep::kill_leader(45)];
    scenario.ends = vec!["ci-due: gone, deleted 1x", "ci: governs 0, due 0, Reconciled", "webhooks: 1"];
    scenario
}

/// An owner who was notified keeps the namespace, and is notified that it stays.
pub(super) fn withdrawn() -> Scenario {
    let waits = json!({ "then": "Wait" });
    let mut scenario =
        notified("cluster-notified-withdrawn", "an owner who was notified holds the namespace", &waits);
    scenario.script = vec![
        ScriptStep::at(35, |_| {
            change_record("ci-due", &json!({ "hold": { "until": "2027-01-01T00:00:00Z" } }))
        })
        .once(|server| record_of(server, "ci-due")["status"]["notices"][0]["state"] == "Delivered"),
    ];
    scenario.ends = vec!["ci-due: there, Stale Held", "ci: governs 1, due 0, Reconciled", "webhooks: 2"];
    scenario
}

/// The same, and the receiver takes the second message at the third attempt alone.
pub(super) fn withdrawn_late() -> Scenario {
    let mut scenario = withdrawn();
    scenario.name = "cluster-notified-withdrawn-late";
    scenario.about =
        "an owner who was notified holds the namespace, and is notified of that at the third attempt";
    scenario.receiver =
        vec![ReceiverBehavior::Takes, ReceiverBehavior::Unavailable, ReceiverBehavior::TakesSilently];
    scenario
}

/// The receiver is not available at first when the namespace is gone, of which nothing else is left to say so.
pub(super) fn gone() -> Scenario {
    let waits = json!({ "then": "Wait" });
    let about = "an owner is notified that a namespace will be deleted, and that it is gone";
    let mut scenario = notified_of("cluster-notified-gone", about, &waits, &["Deleted"]);
    scenario.receiver =
        vec![ReceiverBehavior::Takes, ReceiverBehavior::Unavailable, ReceiverBehavior::TakesSilently];
    scenario.script = vec![ScriptStep::kill_leader(50)];
    scenario.ends = vec!["ci-due: gone, deleted 1x", "ci: governs 0, due 0, Reconciled", "webhooks: 2"];
    scenario
}

/// Working hours that begin two minutes after the run.
fn hours() -> Value {
    json!({
        "timeZone": "UTC", "from": "00:02", "to": "24:00",
        "days": ["Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"],
    })
}

/// Notice is given before working hours begin, and runs from when they have begun.
pub(super) fn within_hours() -> Scenario {
    let about = "notice is given before people are at work, and runs from when they are notified";
    let mut scenario = notified_by(
        "cluster-notified-at-work",
        about,
        &json!({ "channels": ["hook"], "on": [], "workingHours": hours() }),
    );
    scenario.lasts = Duration::from_mins(5);
    scenario.ends = vec!["ci-due: gone, deleted 1x", "ci: governs 0, due 0, Reconciled", "webhooks: 1"];
    scenario
}

/// The annotation by which namespaces name their owner.
const OWNER: &str = "ci.example.org/slack";

/// A namespace whose owner is notified in Slack.
fn owned(name: &str, owner: &str) -> Request {
    let metadata = json!({ "name": name, "annotations": { OWNER: owner } });
    let object = json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": metadata });
    Request::post("/api/v1/namespaces", &object)
}

/// Owners are notified in Slack, 20 s before their namespaces are 40 s old.
fn notified_in_slack(name: &'static str, about: &'static str, fallback: Option<&str>) -> Scenario {
    notified_in_slack_by(name, about, fallback, &Value::Null)
}

/// The same, within these hours.
fn notified_in_slack_by(
    name: &'static str,
    about: &'static str,
    fallback: Option<&str>,
    hours: &Value,
) -> Scenario {
    let mut scenario = scenario(name, about);
    let mut spec = ci("Enforce", "40s", "20s");
    let fallback = fallback.map(|to| json!({ "slack": to }));
    spec["owner"] = json!({ "annotations": [{ "key": OWNER, "format": "Slack" }], "fallback": fallback });
    spec["notify"] = json!({ "channels": ["slack"], "on": [], "workingHours": hours });
    scenario.setup = vec![
        config(&json!({
            "governor": { "perMinute": 100, "perHour": 1000, "maxShare": "100%", "atLeast": 100 },
            "channels": [{ "name": "slack", "slack": { "tokenFile": "slack-token" } }],
        })),
        cluster_manager("ci", &spec),
    ];
    scenario.ends = vec!["ci-due: gone, deleted 1x", "ci: governs 0, due 0, Reconciled"];
    scenario
}

/// The same as [`within_hours`], in Slack.
pub(super) fn within_hours_in_slack() -> Scenario {
    let about = "notice is given before people are at work, and runs from when they are notified in Slack";
    let mut scenario = notified_in_slack_by("cluster-notified-in-slack-at-work", about, None, &hours());
    scenario.setup.push(owned("ci-due", "U0WORKS"));
    scenario.lasts = Duration::from_mins(5);
    scenario
}

/// There is no such member of Slack, which somebody puts right.
pub(super) fn another_owner() -> Scenario {
    let about = "the owner whom a namespace names does not exist, until it names another one";
    let mut scenario = notified_in_slack("cluster-notified-another", about, None);
    scenario.setup.push(owned("ci-due", "U0LEFT"));
    scenario.receiver = vec![ReceiverBehavior::Refuses, ReceiverBehavior::Unavailable];
    scenario.script = vec![ScriptStep::at(70, |_| {
        let metadata = json!({ "metadata": { "annotations": { OWNER: "U0CAME" } } });
        Request::patch("/api/v1/namespaces/ci-due", "application/merge-patch+json", &metadata)
    })];
    scenario.lasts = Duration::from_mins(5);
    scenario
}

/// There is no such member of Slack, and the platform is notified in their place.
pub(super) fn fallback() -> Scenario {
    let about = "the owner whom a namespace names does not exist, and the fallback is notified";
    let mut scenario = notified_in_slack("cluster-notified-fallback", about, Some("#platform"));
    scenario.setup.push(owned("ci-due", "U0LEFT"));
    scenario.receiver = vec![ReceiverBehavior::Refuses, ReceiverBehavior::TakesSilently];
    scenario.lasts = Duration::from_mins(4);
    scenario
}

/// All namespaces of one owner are due at once.
pub(super) fn many() -> Scenario {
    let about = "thirty namespaces of one owner are due at once: the owner gets twenty messages, and then one about ten";
    let mut scenario = notified_in_slack("cluster-notified-of-many", about, None);
    scenario.setup.extend((0..30).map(|n| owned(&format!("ci-{n:02}"), "U0MANY")));
    scenario.lasts = Duration::from_mins(8);
    // Each is deleted, once: none is governed any more.
    scenario.ends = vec!["ci-*", "ci: governs 0, due 0, Reconciled"];
    scenario
}

/// The same, and nobody knows whether the one about ten has arrived.
pub(super) fn many_again() -> Scenario {
    let mut scenario = many();
    scenario.name = "cluster-notified-of-many-again";
    scenario.about = "thirty namespaces of one owner are due at once, and the answer to the message about ten of them is lost";
    scenario.receiver = [vec![ReceiverBehavior::Takes; 20], vec![ReceiverBehavior::TakesSilently]].concat();
    scenario
}

/// The same, and who leads is killed twice: while messages are on their way, and while ten are held to be one. The next replica knows of
/// neither, and sends what is not recorded as delivered, under its key.
pub(super) fn many_leader_killed() -> Scenario {
    let mut scenario = many();
    scenario.name = "cluster-notified-of-many-leader-killed";
    scenario.about = "thirty namespaces of one owner are due at once, and the replica that leads is killed while they are announced";
    scenario.script = vec![ScriptStep::kill_leader(21), ScriptStep::kill_leader(60)];
    scenario
}
