//! The conditions that `kubectl wait` can use: their types and reasons are stable, whatever texts say.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::time::Duration;

use crate::support::{Scene, at};
use coppice_api::condition::{ACCEPTED, FIRED, READY};
use coppice_api::manager::Phase;
use coppice_api::{DecodeError, Reason};
use coppice_lifecycle::record::StepOutcome;

const TTL: &str = "{ttl: {after: 40s}}";

fn conditions(scene: &Scene) -> [(&str, &str); 3] {
    let types: Vec<_> = scene.status.conditions.iter().map(|condition| condition.type_.as_str()).collect();
    assert_eq!(types, [ACCEPTED, FIRED, READY]);
    [ACCEPTED, FIRED, READY].map(|type_| scene.condition(type_))
}

const NOT_FIRED: (&str, &str) = ("False", "NotFired");
const IN_FORCE: [(&str, &str); 3] = [("True", "Accepted"), NOT_FIRED, ("True", "Reconciled")];

#[test]
fn what_it_waits_for_is_not_in_the_conditions() {
    let mut scene = Scene::policy(TTL, "{scaleDown: {}}");
    scene.settle(10);
    assert_eq!(conditions(&scene), IN_FORCE);
    scene.edit(|spec| spec.suspend = true);
    scene.settle(11);
    assert_eq!(conditions(&scene), IN_FORCE, "to be suspended is what was asked for");
    scene.edit(|spec| spec.suspend = false);
    scene.config.governor.paused = true;
    scene.settle(41);
    assert_eq!((scene.next_reason(), conditions(&scene)), ("Paused", IN_FORCE));
}

#[test]
fn fired_is_true_until_it_is_armed_again() {
    let mut scene = Scene::policy(TTL, "{scaleDown: {}}");
    assert!(scene.settle(41).step.is_some());
    assert_eq!(conditions(&scene), IN_FORCE, "it has not been carried out");
    scene.outcome(&StepOutcome::ScaledDown { workloads: 1 }, 42);
    scene.settle(42);
    let fired = [("True", "Accepted"), ("True", "ScaledDown"), ("True", "Reconciled")];
    assert_eq!(conditions(&scene), fired);
    let since = scene.status.conditions[1].last_transition_time.0;
    assert_eq!(since, at(42));
    scene.edit(|spec| spec.suspend = true);
    scene.settle(50);
    assert_eq!(conditions(&scene), fired);
    scene.edit(|spec| (spec.suspend, spec.rearm) = (false, Some(1)));
    scene.settings_missing = true;
    scene.settle(60);
    let missing = ("Unknown", "SettingsMissing");
    assert_eq!(conditions(&scene), [("True", "Accepted"), NOT_FIRED, missing]);
}

#[test]
fn what_was_given_up_has_fired_and_is_not_ready() {
    let mut scene = Scene::policy(TTL, "{webhook: {url: 'http://hook.team-a.svc/'}}");
    scene.settle(41);
    let permanent =
        StepOutcome::Failed { error: "404".to_owned(), permanent: true, min_delay: Duration::ZERO };
    scene.outcome(&permanent, 42);
    scene.settle(42);
    let given_up = Reason::WebhookGivenUp.as_str();
    assert_eq!(conditions(&scene), [("True", "Accepted"), ("True", given_up), ("False", given_up)]);
}

#[test]
fn what_something_else_reverts_each_time_has_fired_and_is_not_ready() {
    let mut scene = Scene::policy(TTL, "{scaleDown: {}}");
    scene.settle(41);
    let message = "something has scaled Deployment web up again".to_owned();
    scene.outcome(&StepOutcome::Reverted { message: message.clone() }, 42);
    scene.settle(42);
    let reverted = Reason::RevertedTooOften.as_str();
    assert_eq!(conditions(&scene), [("True", "Accepted"), ("True", reverted), ("False", reverted)]);
    assert_eq!(scene.status.steps.last_firing.as_ref().and_then(|f| f.message.as_ref()), Some(&message));
    assert_eq!(scene.settle(3000).step, None, "it is dormant");
}

#[test]
fn what_cannot_be_known_is_unknown() {
    let mut scene = Scene::policy(TTL, "{delete: {}}");
    scene.config.tenants.actions.clear();
    scene.settle(10);
    let refused = ("False", "ActionNotAllowed");
    assert_eq!(conditions(&scene), [refused, NOT_FIRED, refused]);
    scene.namespace.terminating = true;
    scene.settle(11);
    assert_eq!(scene.phase(), Phase::Terminating);
    assert_eq!(conditions(&scene), [refused, NOT_FIRED, refused], "whoever waits for it waits on");
    let mut scene = Scene::policy("{podsSucceed: {}}", "{delete: {}}");
    scene.unknown = Some(Reason::Stale);
    scene.settle(90);
    assert_eq!(conditions(&scene), [("True", "Accepted"), NOT_FIRED, ("Unknown", "Stale")]);
}

#[test]
fn a_spec_that_cannot_be_understood_is_refused_before_its_namespace_is_seen() {
    let mut scene = Scene::policy(TTL, "{delete: {}}");
    (scene.unseen, scene.undecodable) = (true, Some(DecodeError::Spec { why: "odd".to_owned() }));
    scene.settle(10);
    let refused = ("False", "InvalidSpec");
    assert_eq!((scene.phase(), conditions(&scene)), (Phase::Refused, [refused, NOT_FIRED, refused]));
    scene.unseen = false;
    scene.settle(11);
    assert_eq!((scene.phase(), conditions(&scene)), (Phase::Refused, [refused, NOT_FIRED, refused]));
    scene.undecodable = None;
    scene.settle(12);
    assert_eq!(conditions(&scene), IN_FORCE);
}

#[test]
fn a_spec_that_cannot_be_understood_has_not_fired_though_the_one_before_has() {
    let mut scene = Scene::policy(TTL, "{scaleDown: {}}");
    scene.settle(41);
    scene.outcome(&StepOutcome::ScaledDown { workloads: 1 }, 42);
    scene.settle(42);
    scene.generation = 2;
    scene.undecodable = Some(DecodeError::Spec { why: "odd".to_owned() });
    scene.settle(43);
    let refused = ("False", "InvalidSpec");
    assert_eq!(conditions(&scene), [refused, ("True", "ScaledDown"), refused]);
    let generations = scene.status.conditions.iter().map(|condition| condition.observed_generation);
    assert_eq!(generations.collect::<Vec<_>>(), [Some(2), Some(1), Some(2)]);
}
