//! What status says: texts bounded, and in good English; verdicts as they were decided on.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use crate::support::Scene;
use coppice_api::Reason;
use coppice_api::manager::{Phase, Verdict};
use coppice_lifecycle::facts::PodPhase;
use coppice_lifecycle::plan::{Delivery, Step};
use coppice_lifecycle::record::StepOutcome;

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

#[test]
fn what_a_webhook_was_decided_on_stays_in_status_while_nothing_is_known() {
    let mut scene =
        Scene::policy("{podsSucceed: {initialDelay: 60s}}", "{webhook: {url: 'http://r.team-a.svc/hook'}}");
    scene.pod("a", PodPhase::Succeeded);
    scene.settle(61);
    let verdicts = |scene: &Scene| {
        let policies = scene.status.policies.iter();
        policies.map(|policy| (policy.result, policy.reason.clone())).collect::<Vec<_>>()
    };
    let decided = verdicts(&scene);
    assert_eq!(decided, [(Verdict::True, "PodsSucceeded".to_owned())]);
    // Another replica carries the step out before it has listed the pods. The manager is dormant afterwards.
    scene.unknown = Some(Reason::NotSynced);
    assert!(matches!(scene.settle(62).step, Some(Step::Webhook(..))));
    assert_eq!((verdicts(&scene), scene.ready()), (decided.clone(), ("Unknown", "NotSynced")));
    scene.delivery = Delivery::Delivered("204".to_owned());
    scene.status = scene.plan(63).status;
    scene.unknown = None;
    scene.settle(64);
    assert_eq!((scene.phase(), verdicts(&scene)), (Phase::Fired, decided));
    assert_eq!(scene.ready(), ("True", "Reconciled"));
}
