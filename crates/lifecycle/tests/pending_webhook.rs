//! A deletion waits until a webhook of a manager in the namespace is delivered, ten minutes at most.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use crate::support;
use crate::support::cluster;

use coppice_api::steps::{Action, Intent, Steps};
use coppice_lifecycle::pending_webhook::PendingWebhook;

use crate::support::at;

fn steps(action: Action) -> Steps {
    let intent = Intent {
        id: "fire-1".to_owned(),
        policy: "tell-ci".to_owned(),
        action,
        uid: "ns-1".to_owned(),
        digest: "d".to_owned(),
        decided_at: at(0),
        attempts: 3,
        next_attempt: None,
        last_error: None,
        reason: "PodsSucceeded".to_owned(),
        evidence: [].into(),
    };
    Steps { intent: Some(intent), ..Steps::default() }
}

fn under_way(uid: &str) -> Option<PendingWebhook> {
    PendingWebhook::of("NamespaceManager hooks", &steps(Action::Webhook), uid)
}

#[test]
fn only_a_webhook_about_this_very_namespace_is_waited_for() {
    assert!(under_way("ns-1").is_some() && under_way("ns-2").is_none());
    assert_eq!(PendingWebhook::of("m", &steps(Action::ScaleDown), "ns-1"), None);
    assert_eq!(PendingWebhook::of("m", &Steps::default(), "ns-1"), None);
}

#[test]
fn a_manager_waits_for_the_webhook_of_another() {
    let mut scene = support::Scene::policy("{ttl: {after: 100s}}", "{delete: {notice: 20s}}");
    scene.webhook = under_way("ns-1");
    scene.settle(81);
    assert_eq!(scene.next_reason(), "NoticeRunning", "notice runs meanwhile");
    scene.settle(101);
    assert_eq!(scene.next_reason(), "WebhookPending");
    // Looked at again and again, it says the same.
    let said = scene.status.next.clone();
    scene.settle(102);
    assert_eq!(scene.status.next, said);
    scene.webhook = None;
    scene.settle(110);
    assert_eq!(scene.status.steps.intent.as_ref().map(|intent| intent.action), Some(Action::Delete));
}

#[test]
fn a_cluster_manager_waits_ten_minutes_after_its_time_and_no_longer() {
    let spec = "{selector: {names: ['ci-*']}, mode: Enforce, settle: 10s, ttl: {after: 100s}, \
         policies: [{name: end, when: {phase: {in: [Stale]}}, then: {delete: {notice: 60s}}}]}";
    let mut scene = cluster::Scene::new(spec);
    scene.webhook = under_way("ns-1");
    scene.settled(1);
    scene.settled(41);
    // Its date is 101 s.
    let says = scene.says(101);
    assert!(
        says.starts_with("WebhookPending: the webhook of NamespaceManager hooks (policy \"tell-ci\") is delivered first; from 2026-03-01T12:11:41Z on nothing waits for it"),
        "{says}"
    );
    let said = scene.status().next.clone();
    assert_eq!(scene.settled(200).next_check, Some(at(205)));
    assert_eq!(scene.status().next, said, "looked at again and again, it says the same");
    assert_eq!(scene.reason(700), "WebhookPending");
    assert_eq!(scene.settled(700).next_check, Some(at(701)));
    assert_eq!(scene.reason(701), "delete");
    // One that is delivered is waited for no more.
    let mut scene = cluster::Scene::new(spec);
    scene.webhook = under_way("ns-1");
    scene.settled(1);
    scene.settled(41);
    assert_eq!(scene.reason(120), "WebhookPending");
    scene.webhook = None;
    assert_eq!(scene.reason(125), "delete");
}

#[test]
fn without_notice_a_webhook_that_gets_nowhere_keeps_nothing_for_ever() {
    let mut scene = support::Scene::policy("{ttl: {after: 100s}}", "{delete: {notice: 0s}}");
    // It was decided at 0 s.
    scene.webhook = under_way("ns-1");
    scene.settle(101);
    assert_eq!(scene.next_reason(), "WebhookPending");
    scene.settle(599);
    assert_eq!(scene.next_reason(), "WebhookPending");
    scene.settle(600);
    assert_eq!(scene.status.steps.intent.as_ref().map(|intent| intent.action), Some(Action::Delete));
}
