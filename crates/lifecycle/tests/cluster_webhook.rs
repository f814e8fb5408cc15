//! Webhooks of cluster managers.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on has failed")]

use coppice_api::Reason::*;
use coppice_api::managed_namespace::RecordHold;
use coppice_api::steps::Action;
use coppice_lifecycle::cluster::{NamespaceStep, ValidClusterManager};
use coppice_lifecycle::plan::Delivery;
use coppice_lifecycle::record::StepOutcome;

use crate::support::cluster::{Scene, at, web};

const URL: &str = "https://ci.example.org/hook";

/// Calls a receiver after 50 seconds, and deletes after so many, with this notice.
fn manager(ttl: u32, notice: &str) -> String {
    format!(
        "{{mode: Enforce, selector: {{names: ['ci-*']}}, settle: 10s, ttl: {{after: {ttl}s}}, policies: [\
         {{name: end, when: {{phase: {{in: [Stale]}}}}, then: {{delete: {{notice: {notice}}}}}}}, \
         {{name: tell, when: {{ttl: {{after: 50s}}}}, then: {{webhook: {{url: '{URL}'}}}}}}]}}"
    )
}

fn failed(permanent: bool) -> Delivery {
    Delivery::Failed {
        error: "the receiver answered 503".to_owned(),
        permanent,
        retry_after: None,
        by_channel: false,
    }
}

/// An attempt has come to this, which the next plan records.
fn comes_to(scene: &mut Scene, delivery: Delivery, seconds: i64) {
    scene.delivery = delivery;
    let plan = scene.plan(at(seconds));
    scene.events.extend(plan.events.iter().map(|event| event.reason));
    let NamespaceStep::WriteStatus(status) = plan.step else { panic!("{:?}", plan.step) };
    scene.record = Some(*status);
    scene.delivery = Delivery::None;
}

#[test]
fn a_webhook_is_sent_once_and_says_who_and_why() {
    let mut scene = Scene::new(&manager(1000, "0s"));
    assert_eq!(scene.reason(1), "TtlRunning");
    assert_eq!(scene.status().next.as_ref().unwrap().action.as_deref(), Some("webhook"));
    assert_eq!(scene.reason(51), "webhook");
    let plan = scene.plan(at(51));
    let NamespaceStep::Webhook(intent, message) = plan.step else { panic!("{:?}", plan.step) };
    assert_eq!((intent.action, &*intent.policy), (Action::Webhook, "tell"));
    assert_eq!(message.destination.to_string(), URL);
    let body: serde_json::Value = serde_json::from_slice(&message.body).unwrap();
    assert_eq!(body["type"], "policy.fired");
    assert_eq!(body["manager"], serde_json::json!({"kind": "ClusterNamespaceManager", "name": "ci"}));
    assert_eq!(body["namespace"], serde_json::json!({"name": "ci-1", "uid": "ns-1"}));
    assert_eq!(body["policy"]["when"], serde_json::json!({"ttl": {"after": "50s"}}));
    assert_eq!(body["firing"], intent.id.as_str());
    assert_eq!(body["reason"], "TtlElapsed");
    scene.delivery = Delivery::InFlight;
    assert_eq!(scene.says(52), "InProgress: attempt 1 at the webhook");
    comes_to(&mut scene, Delivery::Delivered("200".to_owned()), 53);
    assert_eq!((scene.status().steps.firings, scene.status().fired.len()), (1, 1));
    assert_eq!(scene.reason(54), "TtlRunning", "the deletion comes next");
    assert_eq!(scene.reason(900), "TtlRunning");
    assert_eq!(scene.events, [PolicyFired, WebhookDelivered]);
}

#[test]
fn a_webhook_that_fails_is_tried_again_and_given_up_at_last() {
    let mut scene = Scene::new(&manager(100_000, "0s"));
    assert_eq!((scene.reason(1), scene.reason(51)), ("TtlRunning".to_owned(), "webhook".to_owned()));
    let (mut now, mut attempts) = (51, 0);
    while scene.status().steps.intent.is_some() {
        comes_to(&mut scene, failed(false), now);
        attempts += 1;
        if let Some(next) = scene.status().steps.intent.as_ref().and_then(|intent| intent.next_attempt) {
            assert_eq!(scene.reason(now), "Retrying");
            now = next.duration_since(at(0)).as_secs() + 1;
            assert_eq!(scene.reason(now), "webhook");
        }
    }
    assert_eq!((attempts, now < 51 + 700), (10, true), "{now}");
    assert_eq!(scene.reason(now), "TtlRunning", "it is not tried again");
    assert_eq!(scene.events.last(), Some(&WebhookGivenUp));
}

#[test]
fn a_webhook_is_sent_before_the_deletion_that_is_due_at_the_same_time() {
    let mut scene = Scene::new(&manager(50, "0s"));
    assert_eq!((scene.reason(1), scene.reason(51)), ("TtlRunning".to_owned(), "webhook".to_owned()));
    comes_to(&mut scene, failed(false), 52);
    assert_eq!(scene.reason(52), "Retrying", "the deletion waits for it");
    comes_to(&mut scene, Delivery::Delivered("204".to_owned()), 53);
    assert_eq!(scene.reason(54), "delete");
    assert_eq!(scene.events, [PolicyFired, ActionFailed, WebhookDelivered, PolicyFired]);
}

/// Fails until nobody waits for it any longer; returns when that was.
fn fails_for_long(scene: &mut Scene, delivery: &Delivery) -> i64 {
    let mut now = 51;
    while scene.status().steps.intent.as_ref().is_some_and(|intent| intent.action == Action::Webhook) {
        comes_to(scene, delivery.clone(), now);
        let next = scene.plan(at(now)).next_check.unwrap_or(at(now + 1));
        now = next.duration_since(at(0)).as_secs().max(now + 1);
        scene.settled(now);
    }
    now
}

#[test]
fn a_deletion_waits_ten_minutes_for_a_webhook_and_no_longer() {
    let mut scene = Scene::new(&manager(50, "0s"));
    assert_eq!((scene.reason(1), scene.reason(51)), ("TtlRunning".to_owned(), "webhook".to_owned()));
    // A receiver that asks for an hour.
    let wait = Some(std::time::Duration::from_hours(1));
    let busy =
        Delivery::Failed { error: "busy".to_owned(), permanent: false, retry_after: wait, by_channel: false };
    assert_eq!(fails_for_long(&mut scene, &busy), 651);
    assert_eq!(scene.reason(651), "delete");
    assert_eq!(scene.events, [PolicyFired, ActionFailed, WebhookGivenUp, PolicyFired]);
}

#[test]
fn a_webhook_of_which_no_attempt_could_be_made_is_not_given_up() {
    let mut scene = Scene::new(&manager(50, "0s"));
    assert_eq!((scene.reason(1), scene.reason(51)), ("TtlRunning".to_owned(), "webhook".to_owned()));
    // No operator leads for an hour.
    assert_eq!(scene.reason(3_600), "webhook");
    comes_to(&mut scene, Delivery::Delivered("200".to_owned()), 3_601);
    assert_eq!(scene.reason(3_602), "delete");
}

#[test]
fn what_users_want_woken_is_woken_though_a_webhook_has_ended_meanwhile() {
    let both = format!(
        "{{mode: Enforce, selector: {{names: ['ci-*']}}, settle: 10s, policies: [{{name: sleep, when: {{ttl: {{after: 40s}}}}, then: \
         {{scaleDown: {{}}}}}}, {{name: tell, when: {{ttl: {{after: 50s}}}}, then: {{webhook: {{url: '{URL}'}}}}}}]}}"
    );
    let mut scene = Scene::new(&both);
    assert_eq!((scene.reason(1), scene.reason(41)), ("TtlRunning".to_owned(), "scaleDown".to_owned()));
    scene.record.as_mut().unwrap().steps.scaled_down = vec![web()].into();
    scene.ends(&StepOutcome::ScaledDown { workloads: 1 }, 42);
    assert_eq!(scene.reason(51), "webhook");
    scene.spec.wake = Some(1);
    assert_eq!(scene.reason(52), "webhook", "one step at a time");
    comes_to(&mut scene, Delivery::Delivered("200".to_owned()), 53);
    assert_eq!((scene.status().steps.firings, scene.reason(54)), (2, "wake".to_owned()));
    scene.ends(&StepOutcome::Woken { workloads: 1, skipped: Vec::new() }, 55);
    assert_eq!((scene.reason(56), scene.status().wakes_from), ("Dormant".to_owned(), None));
    // Nor by the same number once more.
    assert_eq!(scene.reason(1_000), "Dormant");
}

#[test]
fn a_webhook_that_leads_nowhere_lets_workloads_be_scaled_down() {
    let both = "{mode: Enforce, selector: {names: ['ci-*']}, settle: 10s, policies: [{name: tell, when: {ttl: {after: 40s}}, then: \
                {webhook: {url: 'https://user:secret@ci.example.org/'}}}, {name: sleep, when: {ttl: {after: 50s}}, then: {scaleDown: {}}}]}";
    let mut scene = Scene::new(both);
    assert_eq!((scene.reason(1), scene.reason(51)), ("InvalidSpec".to_owned(), "scaleDown".to_owned()));
}

#[test]
fn a_webhook_is_sent_before_the_deletion_that_takes_the_place_of_a_scale_down() {
    let three = format!(
        "{{mode: Enforce, selector: {{names: ['ci-*']}}, settle: 10s, ttl: {{after: 100s}}, policies: [{{name: sleep, when: {{ttl: {{after: \
         40s}}}}, then: {{scaleDown: {{}}}}}}, {{name: tell, when: {{ttl: {{after: 100s}}}}, then: {{webhook: {{url: '{URL}'}}}}}}, \
         {{name: end, when: {{phase: {{in: [Stale]}}}}, then: {{delete: {{}}}}}}]}}"
    );
    let mut scene = Scene::new(&three);
    assert_eq!((scene.reason(1), scene.reason(41)), ("TtlRunning".to_owned(), "scaleDown".to_owned()));
    let long = std::time::Duration::from_mins(10);
    scene.ends(&StepOutcome::Failed { error: "no".to_owned(), permanent: false, min_delay: long }, 42);
    assert_eq!(scene.reason(43), "Retrying");
    assert_eq!(scene.reason(101), "webhook");
    comes_to(&mut scene, Delivery::Delivered("200".to_owned()), 102);
    assert_eq!(scene.reason(103), "delete");
}

#[test]
fn notice_runs_while_a_webhook_is_under_way() {
    let mut scene = Scene::new(&manager(60, "60s"));
    assert_eq!(scene.reason(1), "TtlRunning", "of the webhook, which comes first");
    assert_eq!(scene.reason(11), "NoticeRunning");
    let date = scene.status().steps.notice.as_ref().unwrap().not_before;
    assert_eq!(scene.reason(51), "webhook");
    comes_to(&mut scene, failed(false), 52);
    assert_eq!(scene.status().steps.notice.as_ref().map(|notice| notice.not_before), Some(date));
    comes_to(&mut scene, Delivery::Delivered("200".to_owned()), 60);
    assert_eq!((scene.reason(70), scene.reason(71)), ("NoticeRunning".to_owned(), "delete".to_owned()));
    assert_eq!(
        scene.events,
        [DeletionAnnounced, PolicyFired, ActionFailed, WebhookDelivered, PolicyFired],
        "the notice is given once"
    );
}

#[test]
fn during_a_hold_no_attempt_begins_and_what_was_delivered_counts_all_the_same() {
    let mut scene = Scene::new(&manager(1000, "0s"));
    assert_eq!((scene.reason(1), scene.reason(51)), ("TtlRunning".to_owned(), "webhook".to_owned()));
    let first = scene.status().steps.intent.clone().unwrap().id;
    scene.spec.hold = Some(RecordHold { until: at(4_000), reason: None, by: None });
    scene.delivery = Delivery::InFlight;
    assert_eq!(scene.says(52), "InProgress: attempt 1 at the webhook", "it is under way");
    comes_to(&mut scene, failed(false), 53);
    assert_eq!(scene.reason(54), "Held");
    assert_eq!((scene.status().steps.intent.clone(), scene.events.last()), (None, Some(&Abandoned)));
    // An hour later it is decided again, and has ten minutes again, under an id of its own: its body differs.
    assert_eq!(scene.reason(4_000), "webhook");
    assert_ne!(scene.status().steps.intent.clone().unwrap().id, first);
    scene.spec.hold = Some(RecordHold { until: at(9_000), reason: None, by: None });
    comes_to(&mut scene, Delivery::Delivered("200".to_owned()), 4_001);
    assert_eq!(scene.status().steps.last_firing.as_ref().unwrap().result, "WebhookDelivered");
    assert_eq!(scene.reason(4_002), "Held");
}

#[test]
fn another_manager_of_the_same_spec_does_not_speak_for_the_first() {
    let mut scene = Scene::new(&manager(1000, "0s"));
    assert_eq!((scene.reason(1), scene.reason(51)), ("TtlRunning".to_owned(), "webhook".to_owned()));
    let first = scene.status().steps.intent.clone().unwrap().id;
    scene.managers[0].0 = "renamed".to_owned();
    assert_eq!(scene.reason(52), "Settling");
    assert_eq!(scene.status().steps.intent, None);
    assert_eq!(scene.reason(62), "webhook");
    assert_ne!(scene.status().steps.intent.clone().unwrap().id, first);
}

#[test]
fn a_webhook_that_was_given_up_is_no_good_end() {
    let mut scene = Scene::new(&manager(100_000, "0s"));
    assert_eq!((scene.reason(1), scene.reason(51)), ("TtlRunning".to_owned(), "webhook".to_owned()));
    comes_to(&mut scene, failed(true), 52);
    assert_eq!(scene.reason(53), "TtlRunning");
    let ready = |scene: &Scene| {
        let conditions = &scene.status().conditions;
        let ready = conditions.iter().find(|condition| condition.type_ == "Ready").unwrap();
        (ready.status.clone(), ready.reason.clone())
    };
    assert_eq!(ready(&scene), ("False".to_owned(), "WebhookGivenUp".to_owned()));
}

#[test]
fn webhooks_need_neither_budget_nor_approval_and_protected_namespaces_have_them() {
    let only = format!(
        "{{mode: Enforce, selector: {{names: ['ci-*']}}, settle: 10s, policies: [{{name: tell, when: {{ttl: {{after: 50s}}}}, \
         then: {{webhook: {{url: '{URL}'}}}}}}]}}"
    );
    let mut scene = Scene::new(&only);
    scene.others = Some(50);
    scene.namespace.labels = [("coppice.dev/protected", "true")].into_iter().collect();
    assert_eq!(scene.reason(1_000), "Settling");
    assert_eq!(scene.counts(1_000).enforce.newly_due, 0);
    assert_eq!(scene.reason(1_011), "webhook");
}

#[test]
fn another_spec_gives_a_webhook_up() {
    let mut scene = Scene::new(&manager(1000, "0s"));
    assert_eq!((scene.reason(1), scene.reason(51)), ("TtlRunning".to_owned(), "webhook".to_owned()));
    scene.manager(&manager(2000, "0s"));
    assert_eq!(scene.reason(52), "Settling");
    assert_eq!((scene.status().steps.intent.clone(), scene.events.last()), (None, Some(&Abandoned)));
}

#[test]
fn a_url_that_leads_nowhere_is_said_and_stops_nothing_else() {
    let nowhere = manager(60, "0s").replace(URL, "https://user:secret@ci.example.org/hook");
    let mut scene = Scene::new(&nowhere);
    assert!(
        scene.says(1).starts_with("InvalidSpec: policy \"tell\": the webhook URL has a user"),
        "{}",
        scene.says(1)
    );
    assert_eq!(scene.reason(60), "InvalidSpec");
    assert_eq!(scene.reason(61), "delete");
}

#[test]
fn what_cannot_be_is_refused_with_what_to_write() {
    let refused = |policy: &str| {
        let spec = format!("{{selector: {{names: ['ci-*']}}, ttl: {{after: 1h}}, policies: [{policy}]}}");
        serde_yaml::from_str::<ValidClusterManager>(&spec).unwrap_err().to_string()
    };
    let why = refused(
        "{name: a, when: {phase: {in: [Stale]}}, then: {webhook: {url: 'https://x.example', format: consol}}}",
    );
    assert_eq!(
        why,
        "policy \"a\": the format consol of a webhook has no words for phases: write format coppice, or wait for ttl or podsSucceed"
    );
    let why = refused("{name: a, when: {ttl: {after: 1h}, podsSucceed: {}}, then: {delete: {}}}");
    assert_eq!(why, "policy \"a\": write exactly one condition in when: phase, ttl or podsSucceed");
    let why = refused(
        "{name: a, when: {ttl: {after: 1h}}, then: {delete: {}, webhook: {url: 'https://x.example'}}}",
    );
    assert_eq!(why, "policy \"a\": write exactly one action in then: delete, scaleDown or webhook");
    let why = refused("{name: a, when: {podsSucceed: {selector: {}}}, then: {delete: {}}}");
    assert!(why.contains("selector is empty"), "{why}");
    let why =
        refused("{name: a, when: {ttl: {after: 1h}}, then: {webhook: {url: 'https://x.example', urls: []}}}");
    assert!(why.contains("unknown field `urls`"), "{why}");
}
