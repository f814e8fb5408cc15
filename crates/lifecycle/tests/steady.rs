//! Who rests, and what wakes them. That a manager which rests has the plan that says so is asserted at every plan of every
//! test of this crate, random histories among them (`support`): here is shown that many rest, and that none of what they
//! rest on is overlooked.

#![allow(clippy::type_complexity, reason = "a table of cases")]

use crate::support::{Scene, at, yaml};
use coppice_lifecycle::facts::{JobState, PodPhase};

/// Waits for pods, with an announced deletion far away.
fn waiting() -> Scene {
    let mut scene = Scene::new(
        "policies: [{name: passed, when: {podsSucceed: {initialDelay: 10s, selector: {matchLabels: {component: main}}}}, then: {scaleDown: {}}}, \
         {name: end, when: {ttl: {after: 1h}}, then: {delete: {notice: 10m}}}]",
    );
    scene.pod("a", PodPhase::Succeeded);
    scene.pod("b", PodPhase::Running);
    scene
}

#[test]
fn a_waiting_manager_is_steady_until_time_alone_changes_that() {
    let mut scene = waiting();
    for (seconds, next_check) in [(5, 11), (11, 3_001), (3_000, 3_001)] {
        scene.settle(seconds);
        let steady = scene.plan_and_steady(at(seconds)).1.unwrap();
        assert_eq!(steady.next_check, Some(at(next_check)), "at {seconds}");
    }
    // Notice has to be given.
    assert_eq!(scene.plan_and_steady(at(3_001)).1, None);
    let mut single = Scene::policy("{ttl: {until: '2026-03-01T12:00:30Z'}}", "{delete: {}}");
    assert_eq!(single.plan_and_steady(at(1)).1, None, "nothing has been said yet");
    single.settle(1);
    assert_eq!(single.plan_and_steady(at(29)).1.unwrap().next_check, Some(at(30)));
    assert_eq!(single.plan_and_steady(at(30)).1, None, "it is due");
}

#[test]
fn every_state_of_pods_and_jobs_that_is_no_success_may_be_rested_on() {
    let cases: [fn(&mut Scene); 8] = [
        |s| s.pods.clear(),
        |s| s.pods[1].phase = PodPhase::Pending,
        |s| s.pods[1].phase = PodPhase::Failed,
        |s| s.pods[1].terminating = true,
        |s| {
            s.job("j", JobState::Failed, 0);
        },
        |s| {
            s.job("j", JobState::Unfinished, 0);
        },
        |s| {
            s.job("j", JobState::Unfinished, 0);
            s.job_pod("p", PodPhase::Running, "j");
        },
        |s| s.pods[1].labels = [("component", "side")].into_iter().collect(),
    ];
    for (n, case) in cases.into_iter().enumerate() {
        let mut scene = waiting();
        case(&mut scene);
        if n == 7 {
            scene.edit(|s| s.policies[0].when = yaml("{podsSucceed: {initialDelay: 0s, minPods: 2}}"));
            scene.pods.truncate(1);
        }
        scene.settle(20);
        assert!(scene.plan_and_steady(at(20)).1.is_some(), "case {n}: {:?}", scene.status);
    }
}

#[test]
fn whatever_changes_wakes() {
    let changes: [(&str, fn(&mut Scene)); 25] = [
        ("the last pod succeeds", |s| s.pods[1].phase = PodPhase::Succeeded),
        ("a pod fails", |s| s.pods[1].phase = PodPhase::Failed),
        ("the pod that the status names has another name", |s| s.pods[1].name = "c".into()),
        ("facts are unknown", |s| s.unknown = Some(coppice_api::Reason::Stale)),
        ("the spec changes", |s| {
            s.edit(|s| s.policies[1].when = yaml("{ttl: {after: 2h}}"));
        }),
        ("the ttl is extended", |s| {
            s.edit(|s| s.extend_until = Some(at(9_000)));
        }),
        ("it is suspended", |s| s.spec.suspend = true),
        ("it is held", |s| s.spec.hold = Some(yaml("{until: '2026-03-01T15:00:00Z'}"))),
        ("only the generation changes", |s| s.generation += 1),
        ("the namespace is protected", |s| s.config.protected.names = vec!["team-*".to_owned()]),
        ("actions are forbidden", |s| s.config.tenants.actions.clear()),
        ("the namespace ends", |s| s.namespace.terminating = true),
        ("the manager ends", |s| s.terminating = true),
        ("the phase differs", |s| s.status.phase = None),
        ("a verdict is missing", |s| {
            s.status.policies.pop();
        }),
        ("a verdict is in other words", |s| s.status.policies[0].message.push('!')),
        ("a verdict is cut short", |s| {
            s.status.policies[1].message.pop();
        }),
        ("a date differs", |s| s.status.policies[1].due = Some(at(1))),
        ("the digest differs", |s| s.status.policies_digest = Some("0".to_owned())),
        ("the next step is in other words", |s| s.status.next.as_mut().unwrap().message.push('!')),
        ("the next step is another", |s| s.status.next.as_mut().unwrap().policy = None),
        ("a condition is of another generation", |s| s.status.conditions[0].observed_generation = Some(0)),
        ("a condition is missing", |s| drop(s.status.conditions.remove(1))),
        ("a condition has another reason", |s| s.status.conditions[2].reason = "TtlRunning".to_owned()),
        ("a condition has another status", |s| s.status.conditions[1].status = "True".to_owned()),
    ];
    for (what, change) in changes {
        let mut scene = waiting();
        scene.settle(20);
        assert!(scene.plan_and_steady(at(20)).1.is_some());
        change(&mut scene);
        assert_eq!(scene.plan_and_steady(at(20)).1, None, "{what}");
    }
}
