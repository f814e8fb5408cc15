//! Each rule for plans of cluster managers finds the plan that breaks it. That no plan breaks one, every other test shows.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on has failed")]

use coppice_api::manager::{Action, Intent};
use coppice_lifecycle::cluster::{NamespacePlan, NamespaceStep};
use coppice_lifecycle::lint::PlanViolation::{self, *};

use crate::support::cluster::{Scene, at};

const DUE: i64 = 161;

/// Deletes what is older than 100 s, after a notice of a minute.
fn manager(mode: &str) -> String {
    format!(
        "{{mode: {mode}, selector: {{names: ['ci-*']}}, settle: 10s, ttl: {{after: 100s}}, policies: [{{name: end, when: {{phase: \
         {{in: [Stale]}}}}, then: {{delete: {{notice: 60s}}}}}}]}}"
    )
}

/// A namespace that is about to be deleted after a notice of a minute, and the plan that deletes it.
fn deletion() -> (Scene, NamespacePlan) {
    let mut scene = Scene::new(&manager("Enforce"));
    scene.settled(1);
    scene.settled(41);
    let plan = scene.settled(DUE);
    (scene, plan)
}

/// What is found after one thing about the scene, or about its plan, is another.
fn found(change: impl FnOnce(&mut Scene, &mut NamespacePlan)) -> Vec<PlanViolation> {
    let (mut scene, mut plan) = deletion();
    assert!(matches!(plan.step, NamespaceStep::Delete(_)), "{plan:?}");
    change(&mut scene, &mut plan);
    scene.lint(&plan, at(DUE))
}

/// Changes the intent everywhere.
fn intent(change: impl FnOnce(&mut Intent)) -> impl FnOnce(&mut Scene, &mut NamespacePlan) {
    |scene, plan| {
        let record = scene.record.as_mut().unwrap();
        let mut intent = record.steps.intent.clone().unwrap();
        change(&mut intent);
        record.steps.intent = Some(intent.clone());
        plan.step = NamespaceStep::Delete(Box::new(intent));
    }
}

#[test]
fn a_plan_as_it_is_breaks_no_rule() {
    assert_eq!(found(|_, _| {}), []);
}

#[test]
fn a_step_belongs_to_an_intent_that_is_written_down_and_explains_it() {
    let no_intent = found(|scene, _| scene.record.as_mut().unwrap().steps.intent = None);
    assert_eq!(no_intent, [StepWithoutIntent]);
    assert_eq!(found(|scene, _| scene.record = None), [StepWithoutIntent]);
    assert_eq!(found(intent(|i| i.id.clear())), [Unexplained]);
    assert_eq!(found(intent(|i| i.reason.clear())), [Unexplained]);
    assert_eq!(found(intent(|i| i.digest.clear())), [Unexplained]);
    assert_eq!(found(intent(|i| i.uid = "another".to_owned())), [NoPrecondition, BeforeNotice]);
    assert_eq!(found(intent(|i| i.policy = "another".to_owned())), [NotOfItsPolicy]);
}

/// What is found where the deletion is decided only now.
fn decided(change: impl FnOnce(&mut Scene, &mut Intent)) -> Vec<PlanViolation> {
    found(|scene, plan| {
        let mut after = scene.status().clone();
        change(scene, after.steps.intent.as_mut().unwrap());
        scene.record.as_mut().unwrap().steps.intent = None;
        plan.step = NamespaceStep::WriteStatus(Box::new(after));
    })
}

#[test]
fn what_is_decided_explains_itself_and_is_what_a_policy_asks_for() {
    assert_eq!(decided(|_, _| {}), []);
    assert_eq!(decided(|_, i| i.id.clear()), [Unexplained]);
    assert_eq!(decided(|_, i| i.reason.clear()), [Unexplained]);
    assert_eq!(decided(|_, i| i.digest.clear()), [Unexplained]);
    assert_eq!(decided(|_, i| i.uid = "another".to_owned()), [NoPrecondition]);
    assert_eq!(decided(|_, i| i.policy = "another".to_owned()), [NotOfItsPolicy]);
    assert_eq!(decided(|_, i| i.action = Action::Webhook), [NotOfItsPolicy]);
    let observing =
        |scene: &mut Scene, _: &mut Intent| scene.managers = Scene::new(&manager("Observe")).managers;
    assert_eq!(decided(observing), [NotOfItsPolicy]);
    let parent = |scene: &mut Scene, _: &mut Intent| {
        scene.namespace.labels = [("coppice.dev/has-children", "")].into_iter().collect();
    };
    assert_eq!(decided(parent), [Protected]);
    assert_eq!(decided(|scene, _| scene.undecodable = true), [Forbidden]);
}

#[test]
fn nothing_is_destroyed_that_is_protected_or_while_something_says_no() {
    assert_eq!(
        found(|scene, _| scene.namespace.name = "kube-system".to_owned()),
        [Protected, Forbidden, NotOfItsPolicy]
    );
    let parent = |scene: &mut Scene, _: &mut NamespacePlan| {
        scene.namespace.labels = [("coppice.dev/has-children", "")].into_iter().collect();
    };
    assert_eq!(found(parent), [Protected]);
    assert_eq!(found(|scene, _| scene.namespace.terminating = true), [Forbidden]);
    assert_eq!(found(|scene, _| scene.record_terminating = true), [Forbidden]);
    assert_eq!(found(|scene, _| scene.settings_missing = true), [Forbidden]);
    assert_eq!(found(|scene, _| scene.config.governor.paused = true), [Forbidden]);
    assert_eq!(found(|scene, _| scene.certain = false), [Forbidden]);
    assert_eq!(found(|scene, _| scene.undecodable = true), [Forbidden]);
    let stale = |scene: &mut Scene, _: &mut NamespacePlan| {
        scene.stale = Some((coppice_api::Reason::Stale, "no update has been received".to_owned()));
    };
    assert_eq!(found(stale), [Forbidden]);
    // A manager that observes does nothing, whatever was decided while it enforced.
    let observing =
        |scene: &mut Scene, _: &mut NamespacePlan| scene.managers = Scene::new(&manager("Observe")).managers;
    assert_eq!(found(observing), [NotOfItsPolicy]);
    assert_eq!(found(|scene, _| scene.managers.clear()), [Forbidden, NotOfItsPolicy]);
}

#[test]
fn a_notice_has_run_and_only_moves_later() {
    let unannounced =
        |scene: &mut Scene, _: &mut NamespacePlan| scene.record.as_mut().unwrap().steps.notice = None;
    assert_eq!(found(unannounced), [BeforeNotice]);
    let too_early = |scene: &mut Scene, _: &mut NamespacePlan| {
        scene.record.as_mut().unwrap().steps.notice.as_mut().unwrap().not_before = at(DUE + 1);
    };
    assert_eq!(found(too_early), [BeforeNotice]);
    let moved = |scene: &mut Scene, plan: &mut NamespacePlan| {
        let mut after = scene.status().clone();
        after.steps.notice.as_mut().unwrap().not_before = at(100);
        plan.step = NamespaceStep::WriteStatus(Box::new(after));
    };
    assert_eq!(found(moved), [NoticeMovedEarlier]);
    let silent = |scene: &mut Scene, plan: &mut NamespacePlan| {
        let mut after = scene.status().clone();
        after.next = None;
        plan.step = NamespaceStep::WriteStatus(Box::new(after));
    };
    assert_eq!(found(silent), [Silent]);
}
