//! Policies of cluster managers that scale workloads down: once, beside those that delete the namespace.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on has failed")]

use coppice_api::Reason::*;
use coppice_api::managed_namespace::{Extension, FiredPolicy, RecordHold};
use coppice_api::steps::Action;
use coppice_api::{ScaledWorkload, Steps};
use coppice_lifecycle::cluster::ValidClusterManager;
use coppice_lifecycle::record::StepOutcome;

use crate::support::cluster::{Scene, at};

/// Scales down after 50 seconds and deletes after 100, with a notice.
fn manager(notice: &str) -> String {
    format!(
        "{{mode: Enforce, selector: {{names: ['ci-*']}}, settle: 10s, ttl: {{after: 100s}}, policies: [\
         {{name: sleep, when: {{ttl: {{after: 50s}}}}, then: {{scaleDown: {{}}}}}}, \
         {{name: end, when: {{phase: {{in: [Stale]}}}}, then: {{delete: {{notice: {notice}}}}}}}]}}"
    )
}

fn deployment(replicas: i32) -> ScaledWorkload {
    ScaledWorkload {
        api_version: "apps/v1".to_owned(),
        kind: "Deployment".to_owned(),
        name: "web".to_owned(),
        uid: "web-1".to_owned(),
        replicas: Some(replicas),
        firing: None,
        reverted: 0,
    }
}

/// It has settled, and what is due in time is scaled down.
fn scaled_down_at(seconds: i64, manager: &str) -> Scene {
    let mut scene = Scene::new(manager);
    assert_eq!(scene.reason(1), "TtlRunning");
    assert_eq!(scene.reason(seconds), "scaleDown");
    steps(&mut scene).scaled_down = vec![deployment(3)].into();
    scene.ends(&StepOutcome::ScaledDown { workloads: 1 }, seconds);
    scene
}

fn steps(scene: &mut Scene) -> &mut Steps {
    &mut scene.record.as_mut().unwrap().steps
}

fn fired(scene: &Scene) -> Vec<&str> {
    scene.status().fired.iter().map(|fired| &*fired.policy).collect()
}

#[test]
fn workloads_are_scaled_down_first_and_the_namespace_is_deleted_later() {
    let mut scene = Scene::new(&manager("0s"));
    let says = scene.says(1);
    let expected =
        "TtlRunning: the ttl ends at 2026-03-01T12:00:51Z; policy \"sleep\" acts at 2026-03-01T12:00:51Z";
    assert_eq!(says, expected);
    assert_eq!(scene.status().next.as_ref().unwrap().action.as_deref(), Some("scaleDown"));
    assert_eq!(scene.reason(50), "TtlRunning", "creation times are cut to whole seconds");
    assert_eq!(scene.reason(51), "scaleDown");
    let intent = scene.status().steps.intent.clone().unwrap();
    assert_eq!((&*intent.policy, intent.action, &*intent.reason), ("sleep", Action::ScaleDown, "TtlElapsed"));
    scene.ends(&StepOutcome::ScaledDown { workloads: 2 }, 52);
    assert_eq!(scene.status().steps.firings, 1);
    assert_eq!(
        scene.status().fired,
        [FiredPolicy {
            policy: "sleep".to_owned(),
            at: at(52),
            digest: scene.managers[0].1.policies()[0].digest.clone()
        }]
    );
    let says = scene.says(53);
    let expected =
        "TtlRunning: the ttl ends at 2026-03-01T12:01:41Z; policy \"end\" acts at 2026-03-01T12:01:41Z";
    assert_eq!(says, expected, "what has fired is done");
    assert_eq!(scene.reason(100), "TtlRunning");
    assert_eq!(scene.reason(101), "delete");
    assert_eq!(scene.events, [PolicyFired, ScaledDown, PolicyFired]);
}

#[test]
fn a_policy_fires_again_only_when_its_condition_has_been_false() {
    let mut scene = scaled_down_at(51, &manager("0s"));
    assert_eq!(scene.reason(60), "TtlRunning", "the deletion comes next");
    // Its users want more time: then it is not so old any more.
    scene.spec.extend_until = Some(Extension { at: at(90), by: None });
    assert_eq!(scene.reason(61), "TtlRunning");
    assert_eq!(fired(&scene), [""; 0]);
    assert_eq!(scene.status().next.as_ref().unwrap().due, Some(at(90)));
    assert_eq!(scene.reason(89), "TtlRunning");
    assert_eq!(scene.reason(90), "scaleDown");
    scene.ends(&StepOutcome::ScaledDown { workloads: 0 }, 90);
    assert_eq!((scene.status().steps.firings, fired(&scene)), (2, vec!["sleep"]));
    assert_eq!(scene.reason(91), "TtlRunning");
    assert_eq!(scene.status().next.as_ref().unwrap().policy.as_deref(), Some("end"));
}

#[test]
fn whoever_has_nothing_else_to_do_says_what_was_done() {
    let only = "{mode: Enforce, selector: {names: ['ci-*']}, settle: 10s, policies: [\
                {name: sleep, when: {ttl: {after: 50s}}, then: {scaleDown: {}}}]}";
    let mut scene = scaled_down_at(51, only);
    let expected = "Dormant: policy \"sleep\" fired at 2026-03-01T12:00:51Z; it fires again once its condition has been \
                    false in between";
    assert_eq!(scene.says(60), expected);
    assert_eq!(scene.reason(1_000_000), "Dormant");
    // A number that is none of the last firing asks for nothing.
    scene.spec.rearm = Some(2);
    assert_eq!(scene.reason(1_000_000), "Dormant");
    scene.spec.rearm = Some(1);
    assert_eq!(scene.reason(1_000_001), "scaleDown");
    scene.ends(&StepOutcome::ScaledDown { workloads: 1 }, 1_000_001);
    assert_eq!(scene.reason(1_000_002), "Dormant", "once");
}

#[test]
fn what_something_else_reverts_each_time_is_said_until_the_policy_fires_again() {
    let ready = |scene: &Scene| {
        let conditions = &scene.status().conditions;
        let ready = conditions.iter().find(|condition| condition.type_ == "Ready").unwrap();
        (ready.status.clone(), ready.reason.clone())
    };
    let reverted =
        StepOutcome::Reverted { message: "something has scaled Deployment web up again".to_owned() };
    let is_not_ready = ("False".to_owned(), "RevertedTooOften".to_owned());
    let only = "{mode: Enforce, selector: {names: ['ci-*']}, settle: 10s, policies: [\
                {name: sleep, when: {ttl: {after: 50s}}, then: {scaleDown: {}}}]}";
    let mut scene = Scene::new(only);
    assert_eq!((scene.reason(1), scene.reason(51)), ("TtlRunning".to_owned(), "scaleDown".to_owned()));
    scene.ends(&reverted, 52);
    let expected = "RevertedTooOften: policy \"sleep\": something has scaled Deployment web up again; it fires again once its \
                    condition has been false in between";
    assert_eq!((scene.says(60), ready(&scene)), (expected.to_owned(), is_not_ready.clone()));
    assert_eq!(scene.reason(1_000_000), "RevertedTooOften", "it is not tried again and again");
    scene.spec.rearm = Some(1);
    assert_eq!(scene.reason(1_000_001), "scaleDown");

    // Also where something else comes next.
    let mut scene = Scene::new(&manager("0s"));
    assert_eq!((scene.reason(1), scene.reason(51)), ("TtlRunning".to_owned(), "scaleDown".to_owned()));
    scene.ends(&reverted, 52);
    assert_eq!((scene.reason(53), ready(&scene)), ("TtlRunning".to_owned(), is_not_ready));
    scene.spec.extend_until = Some(Extension { at: at(90), by: None });
    assert_eq!((scene.reason(61), ready(&scene).0), ("TtlRunning".to_owned(), "True".to_owned()));
}

#[test]
fn another_spec_of_the_same_manager_does_not_scale_down_again_what_was_woken() {
    let mut scene = scaled_down_at(51, &manager("0s"));
    assert_eq!(scene.reason(52), "TtlRunning");
    steps(&mut scene).scaled_down = Vec::new().into();
    scene.manager(&manager("5s"));
    assert_eq!(scene.reason(60), "TtlRunning", "it is long settled when the deletion is announced");
    assert_eq!((fired(&scene), scene.status().manager.as_ref().unwrap().since), (vec!["sleep"], at(60)));
    // Another manager knows nothing of it.
    scene.managers[0].0 = "ci2".to_owned();
    assert_eq!(scene.reason(65), "Settling");
    assert_eq!(fired(&scene), [""; 0]);
    assert_eq!(scene.reason(75), "scaleDown");
}

#[test]
fn notice_of_the_deletion_runs_while_workloads_are_scaled_down() {
    // Announced at 41, before the scale-down is due.
    let mut scene = Scene::new(&manager("60s"));
    assert_eq!(scene.reason(1), "TtlRunning");
    let says = scene.says(41);
    assert_eq!(
        says,
        "NoticeRunning: the ttl ends at 2026-03-01T12:01:41Z; notice runs until 2026-03-01T12:01:41Z"
    );
    assert_eq!(scene.reason(51), "scaleDown");
    scene.ends(&StepOutcome::ScaledDown { workloads: 1 }, 51);
    let notice = scene.status().steps.notice.clone().unwrap();
    assert_eq!((&*notice.policy, notice.not_before), ("end", at(101)), "the same notice");
    assert_eq!(scene.reason(52), "NoticeRunning");
    assert_eq!(scene.reason(101), "delete");
    assert_eq!(scene.events, [DeletionAnnounced, PolicyFired, ScaledDown, PolicyFired]);
}

#[test]
fn a_scale_down_that_fails_keeps_no_deletion_waiting() {
    let mut scene = Scene::new(&manager("20s"));
    assert_eq!(scene.reason(1), "TtlRunning");
    assert_eq!(scene.reason(51), "scaleDown");
    for attempt in 0..20 {
        if scene.reason(51 + attempt) == "scaleDown" {
            scene.ends(&StepOutcome::failed("the API server says no".to_owned()), 51 + attempt);
        }
    }
    let says = scene.says(75);
    assert!(says.starts_with("Retrying: attempt "), "{says}");
    // It is announced all the same, and done.
    assert_eq!(scene.reason(81), "NoticeRunning");
    assert_eq!(scene.status().steps.intent.as_ref().unwrap().action, Action::ScaleDown);
    let mut seconds = 82;
    while scene.status().steps.intent.as_ref().is_none_or(|intent| intent.action != Action::Delete) {
        match &*scene.reason(seconds) {
            "scaleDown" => scene.ends(&StepOutcome::failed("no".to_owned()), seconds),
            "delete" => break,
            reason => assert!(["NoticeRunning", "Retrying"].contains(&reason), "{reason} at {seconds}"),
        }
        seconds += 1;
        assert!(seconds < 500, "it waits for ever");
    }
    assert!(seconds >= 101, "not before its notice has run");
    assert_eq!(scene.events.iter().filter(|reason| **reason == Abandoned).count(), 1, "{:?}", scene.events);
}

#[test]
fn whatever_stops_a_deletion_stops_a_scale_down() {
    type Change = fn(&mut Scene);
    let cases: [(Change, &str); 6] = [
        (|scene| scene.managers[0].1.suspend = true, "Suspended"),
        (|scene| scene.spec.hold = Some(RecordHold { until: at(9000), reason: None, by: None }), "Held"),
        (|scene| scene.config.governor.paused = true, "Paused"),
        (|scene| scene.stale = Some((Stale, "behind".to_owned())), "Stale"),
        (|scene| scene.certain = false, "ClockSkew"),
        (|scene| scene.settings_missing = true, "SettingsMissing"),
    ];
    for (change, reason) in cases {
        // Before it is decided, and after.
        let mut scene = Scene::new(&manager("0s"));
        assert_eq!(scene.reason(1), "TtlRunning");
        change(&mut scene);
        assert_eq!(scene.reason(60), reason);
        let mut scene = Scene::new(&manager("0s"));
        assert_eq!(scene.reason(1), "TtlRunning");
        assert_eq!(scene.reason(51), "scaleDown");
        change(&mut scene);
        assert_eq!(scene.reason(60), reason, "after it was decided");
    }
}

#[test]
fn a_policy_that_changes_or_goes_gives_its_scale_down_up() {
    let mut scene = Scene::new(&manager("0s"));
    assert_eq!(scene.reason(1), "TtlRunning");
    assert_eq!(scene.reason(51), "scaleDown");
    scene.manager(&manager("1s"));
    scene.says(52);
    assert_eq!(scene.events.last(), Some(&Abandoned));
    assert!(scene.status().steps.intent.is_none(), "the new spec has to settle");
}

#[test]
fn more_scale_downs_than_the_budget_of_an_hour_need_approval_too() {
    let mut scene = Scene::new(&manager("0s"));
    // All of them were there long before.
    scene.others = Some(400);
    scene.config.governor.per_hour = 300;
    assert_eq!(scene.reason(1000), "Settling");
    assert_eq!(scene.reason(1010), "ApprovalNeeded");
    // What has fired already is not due by the spec.
    scene.others = Some(0);
    assert_eq!(scene.reason(1011), "delete");
}

#[test]
fn waking_gives_replicas_back_whatever_else_there_is() {
    let mut scene = scaled_down_at(51, &manager("0s"));
    scene.spec.wake = Some(0);
    assert_eq!(scene.reason(60), "TtlRunning", "a number from before asks for nothing");
    scene.spec.wake = Some(1);
    for stop in [None, Some(true), Some(false)] {
        let mut scene = scaled_down_at(51, &manager("0s"));
        scene.spec.wake = Some(1);
        match stop {
            // Held by somebody, or governed by nobody.
            Some(true) => scene.spec.hold = Some(RecordHold { until: at(9000), reason: None, by: None }),
            Some(false) => scene.managers.clear(),
            None => {}
        }
        assert_eq!(scene.reason(60), "wake");
        scene.ends(&StepOutcome::Woken { workloads: 1, skipped: Vec::new() }, 61);
        let says = scene.reason(62);
        let expected = match stop {
            None => "TtlRunning",
            Some(true) => "Held",
            Some(false) => "NotGoverned",
        };
        assert_eq!(says, expected);
        assert!(scene.status().steps.scaled_down.is_empty());
        assert_eq!(scene.status().steps.firings, 1, "it is no firing");
    }
}

#[test]
fn what_was_woken_stays_awake_while_the_condition_is_true() {
    let mut scene = scaled_down_at(51, &manager("0s"));
    scene.spec.wake = Some(1);
    assert_eq!(scene.reason(60), "wake");
    scene.ends(&StepOutcome::Woken { workloads: 1, skipped: Vec::new() }, 61);
    assert_eq!(scene.reason(62), "TtlRunning");
    assert_eq!(scene.status().next.as_ref().unwrap().policy.as_deref(), Some("end"));
    assert_eq!(scene.reason(101), "delete");
}

#[test]
fn a_wake_up_that_fails_keeps_no_deletion_waiting() {
    let mut scene = scaled_down_at(51, &manager("0s"));
    scene.spec.wake = Some(1);
    let mut seconds = 60;
    loop {
        match &*scene.reason(seconds) {
            "wake" => scene.ends(&StepOutcome::failed("no".to_owned()), seconds),
            "delete" => break,
            reason => assert_eq!(reason, "Retrying", "at {seconds}"),
        }
        seconds += 1;
        assert!(seconds < 500, "it waits for ever");
    }
    assert!(seconds >= 101, "not before it is due");
}

#[test]
fn an_observing_policy_scales_nothing_down() {
    let observing = manager("0s").replace("{name: sleep,", "{name: sleep, mode: Observe,");
    let mut scene = Scene::new(&observing);
    assert_eq!(scene.reason(1), "TtlRunning");
    assert_eq!(scene.status().next.as_ref().unwrap().policy.as_deref(), Some("end"), "what acts comes first");
    assert_eq!(scene.reason(60), "TtlRunning");
    assert!(scene.events.is_empty());
    assert_eq!(scene.reason(101), "delete");
}

#[test]
fn wrong_policies_are_refused_with_what_to_write() {
    let spec = |when: &str, then: &str| {
        let policy = format!("{{name: p, when: {when}, then: {then}}}");
        let spec = format!("{{selector: {{names: ['ci-*']}}, ttl: {{after: 1h}}, policies: [{policy}]}}");
        serde_yaml::from_str::<ValidClusterManager>(&spec).err().map(|error| error.to_string())
    };
    let stale = "{phase: {in: [Stale]}}";
    assert_eq!(spec("{ttl: {after: 1h}}", "{scaleDown: {selectors: [{kind: Deployment}]}}"), None);
    let refused = [
        ("{}", "{delete: {}}", "write exactly one condition in when: phase, ttl or podsSucceed"),
        (
            "{phase: {in: [Stale]}, ttl: {after: 1h}}",
            "{delete: {}}",
            "write exactly one condition in when: phase, ttl or podsSucceed",
        ),
        ("{ttl: {after: 0s}}", "{delete: {}}", "when.ttl.after must be at least 1s"),
        (stale, "{}", "write exactly one action in then: delete, scaleDown or webhook"),
        (
            stale,
            "{delete: {}, scaleDown: {}}",
            "write exactly one action in then: delete, scaleDown or webhook",
        ),
        (
            stale,
            "{scaleDown: {selectors: []}}",
            "then.scaleDown.selectors is empty: leave it out to scale down every Deployment and StatefulSet",
        ),
    ];
    for (when, then, problem) in refused {
        assert_eq!(spec(when, then), Some(format!("policy \"p\": {problem}")), "{when} {then}");
    }
}

#[test]
fn the_reason_of_a_firing_is_that_of_its_condition() {
    let mut scene = Scene::new(&manager("0s"));
    // Both are due when the manager has settled: the deletion makes the rest superfluous.
    assert_eq!(scene.reason(500), "Settling");
    assert_eq!(scene.reason(510), "delete");
    assert_eq!(scene.status().steps.intent.as_ref().unwrap().policy, "end");
}

#[test]
fn while_nothing_is_counted_what_the_record_says_rests() {
    // A scale-down that failed, and one that is under way, both beside a notice.
    for fails in [true, false] {
        let mut scene = Scene::new(&manager("60s"));
        assert_eq!(scene.reason(1), "TtlRunning");
        assert_eq!(scene.reason(41), "NoticeRunning");
        assert_eq!(scene.reason(51), "scaleDown");
        if fails {
            scene.ends(&StepOutcome::failed("no".to_owned()), 51);
            scene.reason(51);
        }
        scene.others = None;
        for seconds in 52..70 {
            scene.settled(seconds);
        }
        assert!(scene.status().steps.notice.is_some() && scene.status().steps.intent.is_some());
        scene.others = Some(0);
        // What can go on does; once it waits, the namespace is deleted instead.
        assert_eq!(scene.reason(101), "scaleDown");
        scene.ends(&StepOutcome::failed("no".to_owned()), 101);
        assert_eq!(scene.reason(101), "delete");
    }
}

#[test]
fn a_scale_down_that_failed_is_looked_at_again_when_its_next_attempt_is_due() {
    let mut scene = Scene::new(&manager("60s"));
    assert_eq!(scene.reason(1), "TtlRunning");
    assert_eq!(scene.reason(41), "NoticeRunning");
    assert_eq!(scene.reason(51), "scaleDown");
    scene.ends(&StepOutcome::failed("no".to_owned()), 51);
    let next_attempt = scene.status().steps.intent.as_ref().unwrap().next_attempt;
    assert_eq!(scene.settled(51).next_check, next_attempt, "not when notice ends");
}

#[test]
fn a_number_that_has_woken_once_wakes_nothing_that_was_scaled_down_since() {
    let mut scene = scaled_down_at(51, &manager("0s"));
    scene.spec.wake = Some(1);
    assert_eq!(scene.reason(60), "wake");
    scene.ends(&StepOutcome::Woken { workloads: 1, skipped: Vec::new() }, 61);
    // Extended, it is scaled down once more, and held before that is done.
    scene.spec.extend_until = Some(Extension { at: at(90), by: None });
    assert_eq!(scene.reason(62), "TtlRunning");
    assert_eq!(scene.reason(90), "scaleDown");
    steps(&mut scene).scaled_down = vec![deployment(3)].into();
    scene.spec.hold = Some(RecordHold { until: at(9000), reason: None, by: None });
    assert_eq!(scene.reason(91), "Held");
    assert_eq!(scene.status().steps.firings, 3);
    scene.spec.wake = Some(3);
    assert_eq!(scene.reason(92), "wake");
}

#[test]
fn a_number_that_has_woken_once_wakes_nothing_where_a_later_scale_down_fails() {
    let mut scene = scaled_down_at(51, &manager("0s"));
    scene.spec.wake = Some(1);
    assert_eq!(scene.reason(60), "wake");
    scene.ends(&StepOutcome::Woken { workloads: 1, skipped: Vec::new() }, 61);
    scene.spec.extend_until = Some(Extension { at: at(90), by: None });
    assert_eq!(scene.reason(62), "TtlRunning");
    assert_eq!(scene.reason(90), "scaleDown");
    steps(&mut scene).scaled_down = vec![deployment(3)].into();
    scene.ends(&StepOutcome::failed("the last is refused".to_owned()), 91);
    assert_eq!(scene.reason(91), "Retrying");
    scene.spec.wake = Some(2);
    assert_eq!(scene.reason(91), "wake", "now somebody wants them back");
}

#[test]
fn who_wants_workloads_back_does_not_wait_for_a_scale_down_that_fails() {
    let mut scene = Scene::new(&manager("0s"));
    assert_eq!(scene.reason(1), "TtlRunning");
    assert_eq!(scene.reason(51), "scaleDown");
    steps(&mut scene).scaled_down = vec![deployment(3)].into();
    scene.spec.wake = Some(0);
    assert_eq!(scene.reason(51), "scaleDown", "it is under way");
    scene.ends(&StepOutcome::failed("the last is refused".to_owned()), 52);
    assert_eq!(scene.reason(52), "wake");
    scene.ends(&StepOutcome::Woken { workloads: 1, skipped: Vec::new() }, 53);
    assert_eq!(
        (scene.reason(53), fired(&scene)),
        ("TtlRunning".to_owned(), vec!["sleep"]),
        "it counts as done"
    );
    assert_eq!(scene.reason(101), "delete");
}

#[test]
fn a_namespace_that_goes_takes_its_steps_along_and_says_nothing_else_of_them() {
    let mut scene = Scene::new(&manager("0s"));
    assert_eq!(scene.reason(1), "TtlRunning");
    assert_eq!(scene.reason(51), "scaleDown");
    scene.namespace.terminating = true;
    assert_eq!(scene.reason(52), "NamespaceTerminating");
    assert_eq!((scene.status().steps.firings, scene.status().steps.last_firing.as_ref()), (0, None));
    assert_eq!(scene.events, [PolicyFired, Abandoned]);
}

#[test]
fn a_policy_that_was_changed_is_another_and_may_fire() {
    let mut scene = scaled_down_at(51, &manager("0s"));
    assert_eq!(scene.reason(52), "TtlRunning");
    let wider = manager("0s").replace("{scaleDown: {}}", "{scaleDown: {selectors: [{kind: CronJob}]}}");
    scene.manager(&wider);
    assert_eq!(scene.reason(60), "Settling");
    assert_eq!(fired(&scene), [""; 0]);
    assert_eq!(scene.reason(70), "scaleDown");
}
