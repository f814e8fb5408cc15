//! Each rule for plans finds the plan that breaks it. That no plan breaks one, every other test shows.

#![allow(clippy::panic, reason = "helpers of tests")]

use coppice_api::manager::{Action, Intent};
use coppice_lifecycle::Plan;
use coppice_lifecycle::lint::PlanViolation::{self, *};
use coppice_lifecycle::plan::Step;
use jiff::SignedDuration;

use crate::support;

use crate::support::{Scene, at};

const DUE: i64 = 3_700;

/// A namespace that is about to be deleted after a notice, and the plan that deletes it.
fn deletion() -> (Scene, Plan) {
    let mut scene = Scene::policy("{ttl: {after: 1h}}", "{delete: {notice: 15m}}");
    scene.settle(2_800);
    let plan = scene.settle(DUE);
    (scene, plan)
}

/// What is found after one thing about the scene, or about its plan, is another.
fn found(change: impl FnOnce(&mut Scene, &mut Plan)) -> Vec<PlanViolation> {
    let (mut scene, mut plan) = deletion();
    assert!(matches!(plan.step, Some(Step::Delete(_))), "{plan:?}");
    change(&mut scene, &mut plan);
    scene.lint(&plan, DUE)
}

/// Changes the intent everywhere.
fn intent(change: impl FnOnce(&mut Intent)) -> impl FnOnce(&mut Scene, &mut Plan) {
    |scene, plan| {
        let mut intent = scene.status.steps.intent.clone().unwrap_or_else(|| panic!("there is an intent"));
        change(&mut intent);
        scene.status.steps.intent = Some(intent.clone());
        plan.status.steps.intent = Some(intent.clone());
        plan.step = Some(Step::Delete(intent));
    }
}

#[test]
fn a_plan_as_it_is_breaks_no_rule() {
    assert_eq!(found(|_, _| {}), []);
}

#[test]
fn a_step_belongs_to_an_intent_that_is_written_down_and_kept() {
    assert_eq!(found(|scene, _| scene.status.steps.intent = None), [StepWithoutIntent]);
    assert_eq!(found(|_, plan| plan.status.steps.intent = None), [StepWithoutIntent]);
}

#[test]
fn an_intent_says_why_what_and_about_which_namespace() {
    assert_eq!(found(intent(|i| i.id.clear())), [Unexplained]);
    assert_eq!(found(intent(|i| i.reason.clear())), [Unexplained]);
    assert_eq!(found(intent(|i| i.digest.clear())), [Unexplained]);
    assert_eq!(found(intent(|i| i.uid = "another".to_owned())), [NoPrecondition, BeforeNotice]);
    assert_eq!(found(intent(|i| i.action = Action::ScaleDown)), [NotOfItsPolicy, NotOfItsPolicy]);
    assert_eq!(found(intent(|i| i.policy = "another".to_owned())), [NotOfItsPolicy]);
}

#[test]
fn nothing_is_destroyed_that_is_protected_or_while_something_says_no() {
    assert_eq!(found(|scene, _| scene.namespace.name = "kube-system".to_owned()), [Protected]);
    let parent = |scene: &mut Scene, _: &mut Plan| {
        scene.namespace.labels = [("coppice.dev/has-children", "")].into_iter().collect();
    };
    assert_eq!(found(parent), [Protected]);
    assert_eq!(found(|scene, _| scene.spec.suspend = true), [Forbidden]);
    assert_eq!(found(|scene, _| scene.namespace.terminating = true), [Forbidden]);
    assert_eq!(found(|scene, _| scene.terminating = true), [Forbidden]);
    assert_eq!(found(|scene, _| scene.settings_missing = true), [Forbidden]);
    assert_eq!(found(|scene, _| scene.config.governor.paused = true), [Forbidden]);
    let collapse = |scene: &mut Scene, _: &mut Plan| {
        scene.budget.breaker =
            Some(coppice_lifecycle::breaker::opened("pods", 50, 50, false, support::at(0)));
    };
    assert_eq!(found(collapse), [Forbidden]);
    assert_eq!(found(|scene, _| scene.skew = None), [Forbidden]);
    let stale = |scene: &mut Scene, _: &mut Plan| {
        scene.stale = Some((coppice_api::Reason::Stale, "no update has been received".to_owned()));
    };
    assert_eq!(found(stale), [Forbidden]);
}

#[test]
fn a_notice_is_given_has_run_and_never_moves_earlier() {
    assert_eq!(found(|scene, _| scene.status.steps.notice = None), [BeforeNotice]);
    let earlier = |_: &mut Scene, plan: &mut Plan| {
        plan.status.steps.notice.iter_mut().for_each(|n| n.not_before -= SignedDuration::from_secs(1));
    };
    assert_eq!(found(earlier), [NoticeMovedEarlier]);
    let later = |scene: &mut Scene, plan: &mut Plan| {
        let date = at(DUE + 1);
        scene
            .status
            .steps
            .notice
            .iter_mut()
            .chain(&mut plan.status.steps.notice)
            .for_each(|n| n.not_before = date);
    };
    assert_eq!(found(later), [BeforeNotice]);
    let of_nothing = |_: &mut Scene, plan: &mut Plan| {
        plan.status.steps.notice.iter_mut().for_each(|n| n.policy = "another".to_owned());
    };
    assert_eq!(found(of_nothing), [NoticeOfNothing]);
}

#[test]
fn what_has_happened_stays_and_what_does_not_happen_has_a_reason() {
    assert_eq!(found(|_, plan| plan.status.steps.firings += 2), [HistoryChanged]);
    assert_eq!(found(|_, plan| plan.status.steps.firings -= 1), [HistoryChanged]);
    assert_eq!(found(|_, plan| plan.status.next = None), [Silent]);
}
