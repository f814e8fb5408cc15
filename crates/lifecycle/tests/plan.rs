//! What is decided, when, and with which words.

#![allow(
    clippy::too_many_lines,
    clippy::type_complexity,
    clippy::items_after_statements,
    reason = "tables of cases"
)]

use crate::support::{Scene, at, yaml};
use coppice_api::Reason;
use coppice_api::manager::{Hold, Phase, Verdict};
use coppice_lifecycle::breaker;
use coppice_lifecycle::facts::{JobState, PodPhase};
use coppice_lifecycle::plan::{Delivery, Step};
use coppice_lifecycle::record::{StepOutcome, WEBHOOK_ATTEMPTS};
use jiff::SignedDuration;

const PODS: &str = "{podsSucceed: {selector: {matchLabels: {component: main}}, initialDelay: 60s}}";

fn ttl() -> Scene {
    Scene::policy("{ttl: {after: 40s}}", "{delete: {}}")
}

fn pods() -> Scene {
    Scene::policy(PODS, "{delete: {}}")
}

#[test]
fn a_ttl_fires_after_its_time_and_never_in_the_second_of_doubt() {
    let mut scene = ttl();
    let plan = scene.settle(40);
    assert_eq!((scene.verdict().result, scene.phase()), (Verdict::False, Phase::Active));
    assert_eq!((scene.verdict().due, plan.next_check, plan.step), (Some(at(41)), Some(at(41)), None));
    let plan = scene.settle(41);
    let Some(Step::Delete(intent)) = plan.step else { panic!("{plan:?}") };
    assert_eq!((intent.uid.as_str(), intent.reason.as_str()), ("ns-1", "TtlElapsed"));
    assert_eq!(scene.event_reasons(), [Reason::PolicyFired]);
}

#[test]
fn until_is_exact_and_extend_until_moves_any_ttl_later() {
    let mut scene = Scene::policy("{ttl: {until: '2026-03-01T12:00:30Z'}}", "{delete: {}}");
    assert_eq!(scene.settle(29).step, None);
    assert!(scene.settle(30).step.is_some());
    for mut scene in [ttl(), Scene::policy("{ttl: {until: '2026-03-01T12:00:30Z'}}", "{delete: {}}")] {
        scene.edit(|s| s.extend_until = Some(at(100)));
        assert_eq!(scene.settle(99).step, None);
        assert_eq!(scene.status.next.as_ref().unwrap().due, Some(at(100)));
        assert!(scene.settle(100).step.is_some());
    }
    let mut earlier = ttl();
    earlier.edit(|s| s.extend_until = Some(at(10)));
    assert_eq!(earlier.settle(40).step, None, "an extension never makes a ttl shorter");
}

#[test]
fn pods_are_not_evaluated_before_the_initial_delay() {
    let mut scene = pods();
    scene.pod("a", PodPhase::Succeeded);
    let plan = scene.settle(60);
    assert_eq!((scene.verdict().reason.as_str(), plan.next_check), ("InitialDelay", Some(at(61))));
    assert!(scene.settle(61).step.is_some());
}

#[test]
fn each_state_of_pods_and_jobs_has_its_verdict() {
    type Setup = fn(&mut Scene);
    let cases: &[(&str, Setup, Verdict, &str)] = &[
        ("no pods", |_| {}, Verdict::False, "TooFewPods"),
        (
            "running",
            |s| {
                s.pod("a", PodPhase::Running);
            },
            Verdict::False,
            "PodsNotFinished",
        ),
        (
            "pending",
            |s| {
                s.pod("a", PodPhase::Pending);
            },
            Verdict::False,
            "PodsNotFinished",
        ),
        (
            "failed",
            |s| {
                s.pod("a", PodPhase::Failed);
            },
            Verdict::False,
            "PodFailed",
        ),
        (
            "node lost",
            |s| {
                s.pod("a", PodPhase::Unknown);
            },
            Verdict::Unknown,
            "PodStateUnknown",
        ),
        (
            "succeeded",
            |s| {
                s.pod("a", PodPhase::Succeeded);
            },
            Verdict::True,
            "PodsSucceeded",
        ),
        (
            "a success that goes away is no evidence",
            |s| s.pod("a", PodPhase::Succeeded).terminating = true,
            Verdict::False,
            "TooFewPods",
        ),
        (
            "a pod that is cut off may be replaced",
            |s| {
                s.pod("a", PodPhase::Succeeded);
                s.pod("b", PodPhase::Running).terminating = true;
            },
            Verdict::False,
            "PodTerminating",
        ),
        (
            "a failure that goes away does not count",
            |s| {
                s.pod("a", PodPhase::Succeeded);
                s.pod("b", PodPhase::Failed).terminating = true;
            },
            Verdict::True,
            "PodsSucceeded",
        ),
        (
            "between two pods of a Job",
            |s| {
                s.job("j", JobState::Unfinished, 2);
                s.job_pod("a", PodPhase::Succeeded, "j");
                s.job_pod("b", PodPhase::Succeeded, "j");
            },
            Verdict::False,
            "JobNotComplete",
        ),
        (
            "a Job before its first pod",
            |s| {
                s.pod("a", PodPhase::Succeeded);
                s.job("j", JobState::Unfinished, 0);
            },
            Verdict::False,
            "JobNotComplete",
        ),
        (
            "a completed Job outweighs its failed pods",
            |s| {
                s.job("j", JobState::Complete, 1);
                s.job_pod("a", PodPhase::Failed, "j");
                s.job_pod("b", PodPhase::Succeeded, "j");
            },
            Verdict::True,
            "PodsSucceeded",
        ),
        (
            "a Job that failed",
            |s| {
                s.job("j", JobState::Failed, 0);
                s.job_pod("a", PodPhase::Failed, "j");
            },
            Verdict::False,
            "JobFailed",
        ),
        (
            "a completed Job whose pods were cleaned away",
            |s| {
                s.job("j", JobState::Complete, 1);
            },
            Verdict::True,
            "PodsSucceeded",
        ),
        (
            "a pod whose Job has not been seen",
            |s| {
                s.job_pod("a", PodPhase::Succeeded, "j");
            },
            Verdict::Unknown,
            "JobNotSeen",
        ),
        (
            "a Job with other labels does not count",
            |s| {
                s.pod("a", PodPhase::Succeeded);
                s.job("j", JobState::Unfinished, 0).pod_labels =
                    [("component", "other")].into_iter().collect();
            },
            Verdict::True,
            "PodsSucceeded",
        ),
        (
            "a pod with other labels does not count",
            |s| {
                s.pod("a", PodPhase::Succeeded);
                s.pod("b", PodPhase::Running).labels = [("component", "other")].into_iter().collect();
            },
            Verdict::True,
            "PodsSucceeded",
        ),
        (
            "what is certain wins over what is unknown",
            |s| {
                s.pod("a", PodPhase::Unknown);
                s.pod("b", PodPhase::Running);
            },
            Verdict::False,
            "PodsNotFinished",
        ),
        ("facts are stale", |s| s.unknown = Some(Reason::Stale), Verdict::Unknown, "Stale"),
        ("facts are forbidden", |s| s.unknown = Some(Reason::Forbidden), Verdict::Unknown, "Forbidden"),
    ];
    for (what, setup, verdict, reason) in cases {
        let mut scene = pods();
        setup(&mut scene);
        let plan = scene.settle(100);
        assert_eq!((scene.verdict().result, scene.verdict().reason.as_str()), (*verdict, *reason), "{what}");
        assert_eq!(plan.step.is_some(), *verdict == Verdict::True, "{what}");
    }
}

#[test]
fn min_pods_zero_takes_no_pods_for_success_and_ignore_retried_can_be_switched_off() {
    let mut scene = Scene::policy("{podsSucceed: {minPods: 0, initialDelay: 0s}}", "{delete: {}}");
    assert!(scene.settle(1).step.is_some());
    let mut scene = Scene::policy("{podsSucceed: {ignoreRetried: false, initialDelay: 0s}}", "{delete: {}}");
    scene.job("j", JobState::Complete, 1);
    scene.job_pod("a", PodPhase::Failed, "j");
    scene.settle(1);
    assert_eq!(scene.verdict().reason, "PodFailed");
    let mut scene = Scene::policy("{podsSucceed: {minPods: 3, initialDelay: 0s}}", "{delete: {}}");
    scene.job("j", JobState::Complete, 2);
    scene.job_pod("a", PodPhase::Succeeded, "j");
    scene.settle(1);
    assert_eq!(scene.verdict().message, "2 of at least 3 pods have succeeded (minPods)");
}

#[test]
fn settling_starts_again_after_a_break_and_after_a_gap_in_the_facts() {
    let mut scene = Scene::policy("{podsSucceed: {initialDelay: 0s, settle: 30s}}", "{delete: {}}");
    scene.pod("a", PodPhase::Succeeded);
    let plan = scene.settle(10);
    assert_eq!((scene.verdict().reason.as_str(), plan.next_check), ("Settling", Some(at(40))));
    scene.pod("b", PodPhase::Running);
    scene.settle(20);
    scene.pods.pop();
    assert_eq!(scene.settle(25).next_check, Some(at(55)), "the break at 20 starts it again");
    scene.facts_since = at(50);
    assert_eq!(scene.settle(56).step, None, "what happened before 50 is not known");
    assert_eq!(scene.plan(56).next_check, Some(at(80)));
    assert!(scene.settle(80).step.is_some());
}

#[test]
fn the_first_true_policy_fires_and_an_unknown_one_blocks_no_other() {
    let mut scene = Scene::new(
        "policies: [{name: pods, when: {podsSucceed: {initialDelay: 0s}}, then: {delete: {}}}, \
         {name: late, when: {ttl: {after: 1h}}, then: {delete: {}}}, \
         {name: due, when: {ttl: {after: 10s}}, then: {webhook: {url: 'http://r.team-a.svc/'}}}, \
         {name: also due, when: {ttl: {after: 10s}}, then: {delete: {}}}]",
    );
    scene.unknown = Some(Reason::NotSynced);
    let Some(Step::Webhook(intent, _)) = scene.settle(11).step else { panic!() };
    assert_eq!(intent.policy, "due");
}

#[test]
fn after_firing_it_is_dormant_until_policies_change_or_it_is_rearmed() {
    let mut scene = Scene::policy("{ttl: {after: 40s}}", "{scaleDown: {}}");
    scene.settle(41);
    scene.outcome(&StepOutcome::ScaledDown { workloads: 2 }, 42);
    assert_eq!(scene.settle(43).step, None);
    assert_eq!((scene.phase(), scene.status.steps.firings), (Phase::Fired, 1));
    // Anything but the policies may change.
    scene.edit(|s| s.hold = Some(Hold { until: at(50), reason: None }));
    scene.edit(|s| s.extend_until = Some(at(60)));
    for rearm in [0, 2, 7] {
        scene.edit(|s| s.rearm = Some(rearm));
        assert_eq!(scene.settle(100).step, None, "rearm {rearm} is not firing 1");
    }
    scene.edit(|s| s.rearm = Some(1));
    let first = scene.status.steps.last_firing.clone().unwrap().id;
    let Some(Step::ScaleDown(intent, _)) = scene.settle(100).step else { panic!() };
    assert_ne!(intent.id, first);
    scene.outcome(&StepOutcome::ScaledDown { workloads: 0 }, 101);
    assert_eq!((scene.settle(102).step, scene.status.steps.firings), (None, 2));
    scene.edit(|s| s.policies[0].name = "another".to_owned());
    assert!(scene.settle(103).step.is_some(), "changed policies are decided again");
}

#[test]
fn suspend_hold_and_refusal_freeze_what_was_decided() {
    let freeze: &[(&str, fn(&mut Scene), Phase)] = &[
        (
            "suspend",
            |s| {
                s.edit(|s| s.suspend = true);
            },
            Phase::Suspended,
        ),
        (
            "hold",
            |s| {
                s.edit(|s| s.hold = Some(Hold { until: at(500), reason: None }));
            },
            Phase::Held,
        ),
        ("protect", |s| s.config.protected.names = vec!["team-*".to_owned()], Phase::Refused),
    ];
    for (what, freeze, phase) in freeze {
        // Before anything was decided.
        let mut scene = ttl();
        freeze(&mut scene);
        assert_eq!((scene.settle(100).step, scene.phase()), (None, *phase), "{what}");
        assert_eq!(scene.status.steps.intent, None, "{what}");
        // With a step decided and not taken.
        let mut scene = ttl();
        scene.settle(41);
        freeze(&mut scene);
        let plan = scene.settle(100);
        assert_eq!((plan.step, scene.phase()), (None, *phase), "{what}");
        if *phase == Phase::Held {
            assert_eq!(plan.next_check, Some(at(500)));
            assert!(scene.settle(500).step.is_some());
        }
    }
}

#[test]
fn what_is_no_longer_wanted_is_given_up_before_it_is_done() {
    let mut extended = ttl();
    extended.settle(41);
    extended.edit(|s| s.extend_until = Some(at(1000)));
    assert_eq!(extended.settle(42).step, None);
    assert_eq!(extended.event_reasons(), [Reason::PolicyFired, Reason::Abandoned]);
    assert_eq!((extended.phase(), extended.status.steps.firings), (Phase::Active, 0));

    let mut edited = ttl();
    edited.settle(41);
    edited.edit(|s| s.policies = yaml("[{name: p, when: {ttl: {after: 2h}}, then: {delete: {}}}]"));
    assert_eq!((edited.settle(42).step, edited.status.steps.intent.is_none()), (None, true));

    let mut recreated = ttl();
    recreated.settle(41);
    recreated.namespace.uid = "ns-2".to_owned();
    recreated.namespace.created = at(41);
    assert_eq!((recreated.settle(42).step, recreated.status.steps.intent.is_none()), (None, true));

    let mut running = pods();
    running.pod("a", PodPhase::Succeeded);
    running.settle(61);
    running.pod("b", PodPhase::Pending);
    assert_eq!((running.settle(62).step, running.status.steps.intent.is_none()), (None, true));
}

#[test]
fn what_is_unknown_when_it_comes_to_acting_waits_and_is_not_given_up() {
    let mut scene = pods();
    scene.pod("a", PodPhase::Succeeded);
    scene.settle(61);
    scene.unknown = Some(Reason::Stale);
    assert_eq!((scene.settle(62).step, scene.next_reason()), (None, "Stale"));
    assert_eq!(scene.ready(), ("Unknown", "Stale"));
    scene.unknown = None;
    assert!(scene.settle(63).step.is_some());
}

#[test]
fn breaker_budget_skew_and_staleness_stop_destruction_and_nothing_else() {
    let stop: &[(fn(&mut Scene), &str)] = &[
        (|s| s.config.governor.paused = true, "Paused"),
        (|s| s.budget.breaker = Some(breaker::opened("pods", 50, 50, false, at(30))), "BreakerOpen"),
        (|s| s.config.governor.per_minute = 0, "BudgetSpent"),
        (|s| s.skew = Some(SignedDuration::from_secs(-6)), "ClockSkew"),
        (|s| s.skew = None, "ClockSkew"),
        (|s| s.stale = Some((Reason::Stale, "no update has been received".to_owned())), "Stale"),
    ];
    for (stop, reason) in stop {
        let mut scene = ttl();
        stop(&mut scene);
        assert_eq!((scene.settle(41).step, scene.next_reason()), (None, *reason));
        assert_eq!(scene.status.steps.intent, None, "{reason}: nothing is decided while it cannot be done");
        let mut scene = ttl();
        scene.settle(41);
        stop(&mut scene);
        assert_eq!((scene.settle(42).step, scene.next_reason()), (None, *reason));
        let mut scene = Scene::policy("{ttl: {after: 40s}}", "{webhook: {url: 'http://r.team-a.svc/'}}");
        stop(&mut scene);
        // By a clock that is wrong, a webhook would be early, too.
        let sent = matches!(scene.settle(41).step, Some(Step::Webhook(..)));
        assert_eq!(sent, *reason != "ClockSkew", "{reason}");
    }
}

#[test]
fn failures_back_off_and_show() {
    let mut scene = ttl();
    scene.settle(41);
    scene.outcome(&StepOutcome::failed("no route".to_owned()), 41);
    let plan = scene.settle(41);
    assert_eq!((plan.step, plan.next_check, scene.phase()), (None, Some(at(42)), Phase::Pending));
    assert_eq!(scene.ready(), ("False", "Retrying"));
    assert!(scene.status.next.as_ref().unwrap().message.contains("no route"));
    assert!(scene.settle(42).step.is_some());
    assert_eq!(scene.event_reasons(), [Reason::PolicyFired, Reason::ActionFailed]);
}

#[test]
fn a_webhook_keeps_its_id_until_it_is_delivered_or_given_up() {
    let hook = || Scene::policy(PODS, "{webhook: {url: 'http://r.team-a.svc/hook'}}");
    let mut scene = hook();
    scene.pod("a", PodPhase::Succeeded);
    let Some(Step::Webhook(intent, _)) = scene.settle(61).step else { panic!() };
    // The pods that it tells of are cleaned away: what was decided is delivered.
    scene.pods.clear();
    scene.delivery = Delivery::InFlight;
    assert_eq!(scene.settle(62).step, None);
    scene.delivery =
        Delivery::Failed { error: "503".to_owned(), permanent: false, retry_after: None, by_channel: false };
    scene.status = scene.plan(63).status;
    scene.delivery = Delivery::None;
    assert_eq!(scene.settle(63).next_check, Some(at(64)));
    let Some(Step::Webhook(again, _)) = scene.settle(64).step else { panic!() };
    assert_eq!((again.id, again.attempts), (intent.id, 1));
    scene.delivery = Delivery::Delivered("204".to_owned());
    scene.status = scene.plan(65).status;
    assert_eq!((scene.phase(), scene.status.steps.firings), (Phase::Fired, 1));

    let mut scene = hook();
    scene.pod("a", PodPhase::Succeeded);
    scene.settle(61);
    for _ in 0..WEBHOOK_ATTEMPTS {
        scene.outcome(&StepOutcome::failed("503".to_owned()), 100);
    }
    scene.settle(2000);
    assert_eq!((scene.phase(), scene.ready()), (Phase::Fired, ("False", "WebhookGivenUp")));
}

#[test]
fn a_terminating_namespace_is_skipped_and_a_deletion_counted_once() {
    let mut scene = ttl();
    scene.namespace.terminating = true;
    assert_eq!((scene.settle(100).step, scene.phase()), (None, Phase::Terminating));
    assert_eq!(scene.status.steps.firings, 0);
    let mut scene = ttl();
    scene.settle(41);
    scene.namespace.terminating = true;
    scene.settle(42);
    assert_eq!((scene.phase(), scene.status.steps.firings), (Phase::Terminating, 1));
    assert_eq!(scene.status.steps.last_firing.clone().unwrap().result, "NamespaceDeleted");
    scene.settle(43);
    assert_eq!(scene.status.steps.firings, 1);
}

#[test]
fn wake_gives_back_once_and_in_any_phase_but_terminating() {
    let mut scene = Scene::policy("{ttl: {after: 40s}}", "{scaleDown: {}}");
    scene.settle(41);
    scene.status.steps.scaled_down =
        yaml("[{apiVersion: apps/v1, kind: Deployment, name: d, uid: u, replicas: 3}]");
    scene.outcome(&StepOutcome::ScaledDown { workloads: 1 }, 42);
    scene.settle(43);
    scene.edit(|s| s.wake = Some(7));
    assert_eq!(scene.settle(44).step, None, "another firing's wake");
    scene.edit(|s| {
        s.wake = Some(1);
        s.suspend = true;
    });
    assert!(matches!(scene.settle(45).step, Some(Step::Wake(_))));
    scene.outcome(&StepOutcome::Woken { workloads: 1, skipped: vec![] }, 46);
    assert_eq!(scene.settle(47).step, None);
    assert!(scene.status.steps.scaled_down.is_empty());
    assert_eq!(scene.status.steps.firings, 1);
}

#[test]
fn a_manager_that_is_being_deleted_has_no_policies() {
    let mut scene = ttl();
    scene.settle(41);
    scene.terminating = true;
    let plan = scene.plan(42);
    assert_eq!((plan.step, plan.next_check, plan.status), (None, None, scene.status));
}

#[test]
fn what_a_receiver_has_taken_is_done_whatever_was_changed_meanwhile() {
    type Change = fn(&mut Scene);
    let changes: [Change; 3] = [
        |s| {
            s.edit(|s| s.suspend = true);
        },
        |s| {
            s.edit(|s| s.policies[0].when = yaml("{ttl: {after: 9h}}"));
        },
        |s| s.config.tenants.actions.clear(),
    ];
    for change in changes {
        let mut scene = Scene::policy("{ttl: {after: 40s}}", "{webhook: {url: 'http://r.team-a.svc/'}}");
        scene.settle(41);
        change(&mut scene);
        scene.delivery = Delivery::Delivered("200".to_owned());
        scene.status = scene.plan(42).status;
        assert_eq!((scene.status.steps.firings, scene.status.steps.intent.clone()), (1, None));
        assert_eq!(scene.status.steps.last_firing.clone().unwrap().result, "WebhookDelivered");
    }
}

#[test]
fn an_intent_is_bound_to_its_namespace_and_its_policies() {
    // Both would fire by themselves: only the binding keeps the old decision from being carried out.
    let mut recreated = ttl();
    let old = recreated.settle(41).step.unwrap().intent().clone();
    recreated.namespace.uid = "ns-2".to_owned();
    assert_eq!(recreated.plan(42).step, None);
    assert!(recreated.plan(42).status.steps.intent.is_none());
    let Some(Step::Delete(new)) = recreated.settle(42).step else { panic!() };
    assert_eq!((old.uid.as_str(), new.uid.as_str()), ("ns-1", "ns-2"));

    let mut edited = ttl();
    let old = edited.settle(41).step.unwrap().intent().clone();
    edited.edit(|s| s.policies[0].then = yaml("{scaleDown: {}}"));
    assert_eq!(edited.plan(42).step, None);
    let new = edited.settle(42).step.unwrap().intent().clone();
    assert_ne!(old.id, new.id);
}

#[test]
fn a_verdict_on_other_policies_says_nothing_about_how_long_this_one_has_held() {
    let mut scene = Scene::policy("{podsSucceed: {initialDelay: 0s, settle: 1m}}", "{delete: {}}");
    scene.pod("a", PodPhase::Succeeded);
    scene.settle(10);
    scene.edit(|s| s.policies[0].when = yaml("{podsSucceed: {initialDelay: 1s, settle: 1m}}"));
    assert_eq!(scene.settle(65).next_check, Some(at(125)));
}

#[test]
fn status_is_written_for_a_decision_and_for_its_outcome_and_not_in_between() {
    // By how many writes the plan and the status have come to agree.
    let writes = |scene: &mut Scene, seconds: i64| {
        for writes in 0..10 {
            let plan = scene.plan(seconds);
            if plan.status == scene.status {
                return (writes, plan);
            }
            scene.status = plan.status;
        }
        panic!("the plan never stands still: {:#?}", scene.status);
    };
    for then in ["{delete: {}}", "{scaleDown: {}}"] {
        let mut scene = Scene::policy("{ttl: {after: 40s}}", then);
        scene.settle(1);
        let (decided, plan) = writes(&mut scene, 41);
        assert_eq!((decided, plan.step.is_some()), (1, true), "{then}");
    }
    let mut scene = Scene::policy("{ttl: {after: 40s}}", "{webhook: {url: 'http://r.team-a.svc/hook'}}");
    scene.settle(1);
    let (decided, plan) = writes(&mut scene, 41);
    assert_eq!((decided, plan.step.is_some()), (1, true));
    scene.delivery = Delivery::InFlight;
    assert_eq!(writes(&mut scene, 42).0, 0, "that it is under way was said");
    scene.delivery =
        Delivery::Failed { error: "503".to_owned(), permanent: false, retry_after: None, by_channel: false };
    scene.status = scene.plan(43).status;
    scene.delivery = Delivery::None;
    assert_eq!(writes(&mut scene, 43).0, 0, "when it is tried again was said with the failure");
    scene.delivery = Delivery::Delivered("204".to_owned());
    scene.status = scene.plan(65).status;
    scene.delivery = Delivery::None;
    assert_eq!(writes(&mut scene, 66).0, 0, "that it is dormant was said with the delivery");
}
