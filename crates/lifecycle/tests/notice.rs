//! Notice, and clocks: what was announced holds, and nothing is early.

use crate::support::{Scene, at, yaml};
use coppice_api::Reason;
use coppice_api::manager::{Hold, Verdict};
use coppice_lifecycle::facts::PodPhase;
use coppice_lifecycle::record::StepOutcome;
use jiff::SignedDuration;

fn ttl() -> Scene {
    Scene::policy("{ttl: {after: 40s}}", "{delete: {}}")
}

#[test]
fn notice_is_given_ahead_of_a_ttl_and_its_date_never_moves_earlier() {
    let mut scene = Scene::policy("{ttl: {after: 1h}}", "{delete: {notice: 15m}}");
    assert_eq!(scene.settle(10).next_check, Some(at(2701)), "15 minutes before 1 h and 1 s");
    scene.settle(2701);
    assert_eq!(scene.event_reasons(), [Reason::DeletionAnnounced]);
    let notice = scene.status.steps.notice.clone().unwrap();
    assert_eq!((notice.given_at, notice.not_before), (at(2701), at(3601)));
    assert_eq!((scene.settle(3600).step, scene.next_reason()), (None, "NoticeRunning"));
    // A shorter ttl after notice was given: the announced date stays.
    let mut shorter =
        Scene { spec: scene.spec.clone(), status: scene.status.clone(), ..Scene::new("policies: []") };
    shorter.edit(|s| s.policies[0].when = yaml("{ttl: {after: 50m}}"));
    assert_eq!(
        (shorter.settle(3100).step, shorter.status.steps.notice.clone().unwrap().not_before),
        (None, at(3601))
    );
    assert!(scene.settle(3601).step.is_some());
    // Notice was missed (the operator was away): it runs in full.
    let mut late = Scene::policy("{ttl: {after: 1h}}", "{delete: {notice: 15m}}");
    assert_eq!(late.settle(7200).step, None);
    assert_eq!(late.status.steps.notice.clone().unwrap().not_before, at(8100));
    assert!(late.settle(8100).step.is_some());
}

#[test]
fn notice_is_withdrawn_when_its_policy_is_not_due_any_more() {
    type Change = fn(&mut Scene);
    let changes: [Change; 3] = [
        |s| {
            s.edit(|s| s.extend_until = Some(at(36_000)));
        },
        |s| {
            s.edit(|s| s.suspend = true);
        },
        |s| {
            s.edit(|s| s.hold = Some(Hold { until: at(36_000), reason: None }));
        },
    ];
    for change in changes {
        let mut scene = Scene::policy("{ttl: {after: 1h}}", "{delete: {notice: 15m}}");
        scene.settle(3000);
        scene.event_reasons();
        change(&mut scene);
        scene.settle(3100);
        assert_eq!(
            (scene.event_reasons(), scene.status.steps.notice.clone()),
            (vec![Reason::NoticeWithdrawn], None)
        );
    }
}

#[test]
fn notice_of_pods_that_succeeded_starts_when_they_have() {
    let mut scene = Scene::policy("{podsSucceed: {initialDelay: 0s}}", "{delete: {notice: 5m}}");
    scene.pod("a", PodPhase::Succeeded);
    assert_eq!(scene.settle(100).step, None);
    assert_eq!(scene.settle(399).step, None);
    assert!(scene.settle(400).step.is_some());
}

/// A manager that deletes after an hour, with a quarter of an hour's notice, which has run; the intent is durable.
fn announced() -> Scene {
    let mut scene = Scene::policy("{ttl: {after: 1h}}", "{delete: {notice: 15m}}");
    scene.settle(2701);
    scene.settle(3601);
    assert!(scene.status.steps.intent.is_some());
    scene.event_reasons();
    scene
}

#[test]
fn after_a_refusal_a_hold_or_a_break_a_new_notice_is_given() {
    type Change = fn(&mut Scene);
    let breaks: [(Change, Change); 3] = [
        (|s| s.config.protected.names = vec!["team-*".to_owned()], |s| s.config.protected.names.clear()),
        (
            |s| {
                s.edit(|s| s.suspend = true);
            },
            |s| {
                s.edit(|s| s.suspend = false);
            },
        ),
        (
            |s| {
                s.edit(|s| s.extend_until = Some(at(5000)));
            },
            |s| {
                s.edit(|s| s.extend_until = None);
            },
        ),
    ];
    for (begin, end) in breaks {
        let mut scene = announced();
        begin(&mut scene);
        assert_eq!(scene.settle(4000).step, None);
        assert_eq!((scene.status.steps.intent.clone(), scene.status.steps.notice.clone()), (None, None));
        end(&mut scene);
        assert_eq!(scene.settle(9000).step, None);
        assert_eq!(scene.status.steps.notice.clone().unwrap().not_before, at(9900));
        assert!(scene.settle(9900).step.is_some());
    }
}

#[test]
fn a_notice_runs_its_time_though_the_policy_asks_for_none_any_more() {
    for notice in ["0s", "1s"] {
        let mut scene = Scene::policy("{ttl: {after: 1h}}", "{delete: {notice: 15m}}");
        scene.settle(7200);
        scene.edit(|s| s.policies[0].then = yaml(&format!("{{delete: {{notice: {notice}}}}}")));
        assert_eq!(scene.settle(7300).step, None, "{notice}");
        assert!(scene.settle(8100).step.is_some(), "{notice}");
    }
}

#[test]
fn a_clock_that_is_wrong_gives_no_notice_and_starts_no_settling() {
    let mut scene = Scene::policy("{ttl: {after: 1h}}", "{delete: {notice: 15m}}");
    scene.skew = Some(SignedDuration::from_mins(10));
    for seconds in [2800, 4000] {
        scene.settle(seconds);
        assert_eq!(scene.status.steps.notice, None);
    }
    scene.skew = Some(SignedDuration::ZERO);
    assert_eq!(scene.settle(4600).step, None);
    assert_eq!(scene.status.steps.notice.clone().unwrap().not_before, at(5500));
    let mut scene = Scene::policy("{podsSucceed: {initialDelay: 0s, settle: 1h}}", "{delete: {}}");
    scene.pod("a", PodPhase::Succeeded);
    scene.skew = Some(SignedDuration::from_mins(10));
    scene.settle(10);
    assert_eq!((scene.verdict().result, scene.verdict().reason.as_str()), (Verdict::Unknown, "ClockSkew"));
}

#[test]
fn a_new_skew_alone_changes_nothing() {
    for (a, b) in [(6_000, 9_001), (-6_000, -7_000), (100, 900)] {
        let mut scene = ttl();
        scene.skew = Some(SignedDuration::from_millis(a));
        scene.settle(50);
        scene.skew = Some(SignedDuration::from_millis(b));
        assert_eq!(scene.plan(50).status, scene.status, "{a} {b}");
    }
}

#[test]
fn what_may_have_ended_by_one_of_two_clocks_is_unknown() {
    for (when, reason) in [
        ("{ttl: {after: 40s}}", "TtlRunning"),
        ("{podsSucceed: {initialDelay: 40s, minPods: 0}}", "InitialDelay"),
    ] {
        let mut scene = Scene::policy(when, "{delete: {}}");
        scene.skew = Some(SignedDuration::from_mins(1));
        scene.namespace.created = at(100);
        scene.settle(20);
        assert_eq!((scene.verdict().result, scene.verdict().reason.as_str()), (Verdict::False, reason));
        assert_eq!(scene.settle(81).step, None);
        assert_eq!(
            (scene.verdict().result, scene.verdict().reason.as_str()),
            (Verdict::Unknown, "ClockSkew")
        );
        assert_eq!(scene.ready().0, "Unknown");
        scene.skew = Some(SignedDuration::ZERO);
        assert_eq!(scene.settle(81).next_check, Some(at(141)));
        assert_eq!((scene.verdict().result, scene.verdict().reason.as_str()), (Verdict::False, reason));
    }
}

#[test]
fn a_doubt_about_the_time_neither_withdraws_a_notice_nor_gives_up_what_it_announced() {
    let mut scene = Scene::policy("{ttl: {after: 1h}}", "{delete: {notice: 30m}}");
    scene.settle(2000);
    let notice = scene.status.steps.notice.clone().unwrap();
    // The slower clock is before the notice was given.
    scene.skew = Some(SignedDuration::from_hours(1));
    scene.settle(900);
    assert_eq!(scene.status.steps.notice.clone().unwrap(), notice);
    scene.skew = Some(SignedDuration::ZERO);
    assert_eq!(scene.settle(2100).step, None);
    scene.settle(3801);
    let intent = scene.status.steps.intent.clone().unwrap();
    scene.skew = Some(SignedDuration::from_hours(1));
    assert_eq!(scene.settle(900).step, None);
    assert_eq!(scene.next_reason(), "ClockSkew");
    assert_eq!(scene.status.steps.intent, Some(intent), "it waits");
    scene.skew = Some(SignedDuration::ZERO);
    assert!(scene.settle(3802).step.is_some());
}

#[test]
fn of_two_policies_the_nearer_end_is_announced() {
    let mut scene = Scene::new(
        "policies: [{name: far, when: {ttl: {after: 10h}}, then: {delete: {notice: 9h}}}, \
         {name: near, when: {ttl: {after: 2h}}, then: {delete: {notice: 15m}}}]",
    );
    scene.settle(3700);
    assert_eq!(scene.status.steps.notice.clone().unwrap().policy, "far");
    scene.settle(6301);
    assert_eq!(scene.status.steps.notice.clone().unwrap().policy, "near");
    assert!(scene.settle(7201).step.is_some());
}

#[test]
fn a_notice_is_bound_to_its_namespace_and_gone_after_the_firing() {
    let mut scene = announced();
    scene.status.steps.intent = None;
    scene.namespace.uid = "ns-2".to_owned();
    assert_eq!(scene.settle(3700).step, None);
    assert_eq!(scene.status.steps.notice.clone().unwrap().given_at, at(3700));
    let mut scene = announced();
    scene.outcome(&StepOutcome::Deleted, 3602);
    assert_eq!(scene.status.steps.notice, None);
}
