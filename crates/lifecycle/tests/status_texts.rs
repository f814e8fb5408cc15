//! Texts in status: bounded, and in good English.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod support;

use coppice_api::Reason;
use coppice_lifecycle::record::StepOutcome;
use support::Scene;

#[test]
fn texts_in_status_are_cut_where_others_decide_their_length() {
    let long = "ü".repeat(40_000);
    let mut scene = Scene::policy("{ttl: {after: 40s}}", "{webhook: {url: 'http://hook.team-a.svc/'}}");
    scene.settle(41);
    scene.outcome(&StepOutcome::failed(long.clone()), 42);
    scene.settle(42);
    assert_eq!(
        scene.status.steps.intent.as_ref().unwrap().last_error.as_ref().unwrap().chars().count(),
        1000
    );
    scene.outcome(&StepOutcome::WebhookDelivered { response: long.clone() }, 43);
    let written = scene.status.clone();
    scene.settle(44);
    for status in [&written, &scene.status] {
        let message = status.steps.last_firing.as_ref().unwrap().message.as_ref().unwrap();
        assert!(message.chars().count() == 4096 && message.ends_with("üü..."), "{}", message.len());
    }
    let mut blind = Scene::policy("{ttl: {after: 40s}}", "{delete: {}}");
    blind.stale = Some((Reason::Stale, long));
    blind.settle(41);
    assert_eq!(blind.status.next.as_ref().unwrap().message.chars().count(), 4096);
}

#[test]
fn one_attempt_is_one() {
    let mut scene = Scene::policy("{ttl: {after: 40s}}", "{webhook: {url: 'http://hook.team-a.svc/'}}");
    scene.settle(41);
    let min_delay = std::time::Duration::ZERO;
    scene.outcome(&StepOutcome::Failed { error: "410".to_owned(), permanent: true, min_delay }, 42);
    let message = scene.status.steps.last_firing.as_ref().unwrap().message.clone();
    assert_eq!(message.as_deref(), Some("given up after 1 attempt, the last: 410"));
}
