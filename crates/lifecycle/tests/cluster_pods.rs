//! Policies of cluster managers that wait for pods to succeed.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on has failed")]

use coppice_api::Reason::{self, *};
use coppice_api::manager::Verdict;
use coppice_api::steps::Action;
use coppice_lifecycle::facts::{PodFacts, PodPhase};
use coppice_lifecycle::record::StepOutcome;

use crate::support::cluster::{Scene, at, web};

/// Acts when pods with the label component=main have succeeded for so long.
fn manager(settle: &str, then: &str) -> String {
    format!(
        "{{mode: Enforce, selector: {{names: ['ci-*']}}, settle: 10s, policies: [{{name: done, when: {{podsSucceed: \
         {{selector: {{matchLabels: {{component: main}}}}, initialDelay: 0s, settle: {settle}}}}}, then: {{{then}}}}}]}}"
    )
}

fn pod(name: &str, component: &str, phase: PodPhase) -> PodFacts {
    PodFacts {
        name: name.into(),
        labels: [("component", component)].into_iter().collect(),
        phase,
        terminating: false,
        job: None,
        health: None,
    }
}

/// A test that runs, and a server that runs for ever.
fn scene(manager: &str) -> Scene {
    let mut scene = Scene::new(manager);
    scene.pods = vec![pod("server", "server", PodPhase::Running), pod("test", "main", PodPhase::Running)];
    scene
}

fn succeed(scene: &mut Scene) {
    scene.pods[1].phase = PodPhase::Succeeded;
}

fn not_known(scene: &mut Scene) {
    scene.pods_unknown =
        Some((Reason::Stale, "no update of pods has been received for 90 seconds".to_owned()));
}

fn verdict(scene: &Scene) -> (Verdict, &str, Option<i64>) {
    let known = &scene.status().policies[0];
    let since = known.succeeded_since.map(|since| since.duration_since(at(0)).as_secs());
    (known.verdict.result, &known.verdict.reason, since)
}

#[test]
fn a_namespace_is_deleted_once_its_pods_have_succeeded() {
    let mut scene = scene(&manager("0s", "delete: {}"));
    assert_eq!(scene.says(1), "PodsNotFinished: pod test is Running");
    assert_eq!(verdict(&scene), (Verdict::False, "PodsNotFinished", None));
    assert_eq!(scene.status().next.as_ref().unwrap().action.as_deref(), Some("delete"));
    assert_eq!(scene.reason(50), "PodsNotFinished");
    succeed(&mut scene);
    assert_eq!(scene.reason(60), "delete");
    assert_eq!(verdict(&scene), (Verdict::True, "PodsSucceeded", Some(60)));
    let intent = scene.status().steps.intent.clone().unwrap();
    assert_eq!((intent.action, &*intent.reason), (Action::Delete, "PodsSucceeded"));
    assert_eq!((&*intent.evidence["succeeded"], &*intent.evidence["pods"]), ("1", "test"));
    assert_eq!(scene.events, [PolicyFired]);
}

#[test]
fn nothing_is_done_before_the_manager_has_settled() {
    let mut scene = scene(&manager("0s", "delete: {}"));
    succeed(&mut scene);
    assert_eq!(scene.reason(1), "Settling");
    assert_eq!(scene.reason(10), "Settling");
    assert_eq!(scene.reason(11), "delete");
}

#[test]
fn a_failed_pod_and_no_pods_are_no_success() {
    let mut scene = scene(&manager("0s", "delete: {}"));
    scene.pods[1].phase = PodPhase::Failed;
    assert_eq!(scene.says(60), "PodFailed: pod test has failed");
    scene.pods.clear();
    assert_eq!(scene.says(61), "TooFewPods: 0 of at least 1 pod has succeeded (minPods)");
}

#[test]
fn what_is_decided_is_given_up_when_pods_run_again() {
    let mut scene = scene(&manager("0s", "delete: {}"));
    succeed(&mut scene);
    assert_eq!((scene.reason(1), scene.reason(60)), ("Settling".to_owned(), "delete".to_owned()));
    scene.pods.push(pod("test-2", "main", PodPhase::Pending));
    assert_eq!(scene.says(61), "PodsNotFinished: pod test-2 is Pending");
    assert_eq!(scene.status().steps.intent, None);
    assert_eq!(scene.events, [PolicyFired, Abandoned]);
}

#[test]
fn success_has_to_last_for_its_settle_without_a_gap() {
    let mut scene = scene(&manager("30s", "delete: {}"));
    assert_eq!(scene.reason(1), "PodsNotFinished");
    succeed(&mut scene);
    assert_eq!(scene.reason(60), "Watching");
    assert_eq!(verdict(&scene), (Verdict::False, "Settling", Some(60)));
    assert_eq!(scene.status().next.as_ref().unwrap().due, Some(at(90)));
    // What happened between 70 and 80 was not seen.
    scene.pods_since = 80;
    assert_eq!(scene.reason(90), "Watching");
    assert_eq!(scene.status().next.as_ref().unwrap().due, Some(at(110)));
    assert_eq!((scene.reason(109), scene.reason(110)), ("Watching".to_owned(), "delete".to_owned()));
}

#[test]
fn what_is_not_known_deletes_nothing_and_withdraws_no_notice() {
    let mut scene = scene(&manager("0s", "delete: {notice: 60s}"));
    assert_eq!(scene.reason(1), "PodsNotFinished");
    not_known(&mut scene);
    assert_eq!(scene.says(2), "Stale: no update of pods has been received for 90 seconds");
    scene.pods_unknown = None;
    succeed(&mut scene);
    assert_eq!(scene.reason(60), "NoticeRunning");
    assert_eq!(scene.status().steps.notice.as_ref().unwrap().not_before, at(120));
    not_known(&mut scene);
    let expected = "Stale: whether the pods have succeeded is unknown: no update of pods has been received for 90 seconds; no \
                    action is taken";
    assert_eq!(scene.says(100), expected);
    assert_eq!(scene.says(200), expected);
    assert_eq!(scene.status().steps.notice.as_ref().unwrap().not_before, at(120), "announced is announced");
    scene.pods_unknown = None;
    assert_eq!(scene.reason(201), "delete");
    assert_eq!(verdict(&scene), (Verdict::True, "PodsSucceeded", Some(60)));
    assert_eq!(scene.events, [DeletionAnnounced, PolicyFired]);
}

#[test]
fn a_notice_is_withdrawn_when_pods_run_again() {
    let mut scene = scene(&manager("0s", "delete: {notice: 60s}"));
    succeed(&mut scene);
    assert_eq!((scene.reason(1), scene.reason(60)), ("Settling".to_owned(), "NoticeRunning".to_owned()));
    scene.pods[1].phase = PodPhase::Running;
    assert_eq!(scene.reason(70), "PodsNotFinished");
    assert_eq!(scene.events, [DeletionAnnounced, NoticeWithdrawn]);
    assert_eq!(verdict(&scene), (Verdict::False, "PodsNotFinished", None));
}

#[test]
fn a_scale_down_that_has_begun_is_finished_though_the_pods_go() {
    let mut scene = scene(&manager("0s", "scaleDown: {}"));
    succeed(&mut scene);
    assert_eq!((scene.reason(1), scene.reason(60)), ("Settling".to_owned(), "scaleDown".to_owned()));
    scene.record.as_mut().unwrap().steps.scaled_down = vec![web()].into();
    scene.pods.clear();
    assert_eq!(scene.reason(61), "scaleDown");
    scene.ends(&StepOutcome::ScaledDown { workloads: 1 }, 62);
    // Its pods are gone: its condition has been false, and it fires again when others have succeeded.
    assert_eq!(scene.reason(63), "TooFewPods");
    assert_eq!(scene.status().fired, []);
    scene.pods = vec![pod("test", "main", PodPhase::Succeeded)];
    assert_eq!(scene.reason(70), "scaleDown");
}

#[test]
fn what_was_heard_before_a_firing_lets_nothing_fire_again() {
    let mut scene = scene(&manager("0s", "scaleDown: {}"));
    succeed(&mut scene);
    assert_eq!((scene.reason(1), scene.reason(60)), ("Settling".to_owned(), "scaleDown".to_owned()));
    scene.ends(&StepOutcome::ScaledDown { workloads: 0 }, 62);
    // Another replica leads, and its watch has been silent since before the pod succeeded.
    scene.pods[1].phase = PodPhase::Running;
    scene.pods_heard = Some(59);
    assert_eq!(scene.reason(63), "Dormant");
    succeed(&mut scene);
    scene.pods_heard = None;
    assert_eq!(scene.reason(120), "Dormant");
    scene.pods[1].phase = PodPhase::Running;
    assert_eq!(scene.reason(130), "PodsNotFinished", "it runs again");
    succeed(&mut scene);
    assert_eq!(scene.reason(140), "scaleDown");
}

#[test]
fn what_is_not_known_lets_nothing_fire_again() {
    let mut scene = scene(&manager("0s", "scaleDown: {}"));
    succeed(&mut scene);
    assert_eq!((scene.reason(1), scene.reason(60)), ("Settling".to_owned(), "scaleDown".to_owned()));
    scene.ends(&StepOutcome::ScaledDown { workloads: 0 }, 61);
    assert_eq!(scene.reason(62), "Dormant");
    not_known(&mut scene);
    assert_eq!(scene.reason(63), "Dormant");
    scene.pods_unknown = None;
    assert_eq!(scene.reason(64), "Dormant");
    scene.pods[1].phase = PodPhase::Running;
    assert_eq!(scene.reason(65), "PodsNotFinished");
    succeed(&mut scene);
    assert_eq!(scene.reason(66), "scaleDown");
}

#[test]
fn another_spec_judges_from_the_beginning() {
    let mut scene = scene(&manager("0s", "delete: {notice: 60s}"));
    succeed(&mut scene);
    assert_eq!((scene.reason(1), scene.reason(60)), ("Settling".to_owned(), "NoticeRunning".to_owned()));
    scene.manager(&manager("0s", "delete: {notice: 90s}"));
    assert_eq!(scene.reason(80), "Settling");
    assert_eq!(verdict(&scene), (Verdict::True, "PodsSucceeded", Some(80)));
    assert_eq!(scene.events, [DeletionAnnounced, NoticeWithdrawn]);
    assert_eq!(scene.reason(90), "NoticeRunning");
}

/// A namespace whose pods have succeeded long since, and twelve others of the same age.
#[test]
fn what_has_succeeded_before_a_spec_governs_needs_approval() {
    let mut scene = scene(&manager("0s", "delete: {}"));
    succeed(&mut scene);
    (scene.others, scene.others_alike) = (Some(12), true);
    assert_eq!(scene.reason(1_000), "Settling");
    assert_eq!(scene.counts(1_000).enforce.newly_due, 13);
    assert_eq!(scene.reason(1_011), "ApprovalNeeded");
    // What was not known for a time is nothing new afterwards.
    not_known(&mut scene);
    assert_eq!(scene.reason(1_020), "Stale");
    (scene.pods_unknown, scene.pods_since) = (None, 1_030);
    assert_eq!(scene.reason(1_030), "ApprovalNeeded");
}

#[test]
fn what_becomes_known_after_a_spec_has_settled_needs_approval_all_the_same() {
    let mut scene = scene(&manager("0s", "delete: {}"));
    succeed(&mut scene);
    (scene.others, scene.others_alike) = (Some(12), true);
    not_known(&mut scene);
    assert_eq!(scene.reason(1_000), "Stale");
    assert_eq!(scene.reason(2_000), "Stale");
    (scene.pods_unknown, scene.pods_since) = (None, 2_000);
    assert_eq!(scene.reason(2_001), "ApprovalNeeded");
    // What is known to have run since then has succeeded in time.
    scene.pods[1].phase = PodPhase::Running;
    assert_eq!(scene.reason(2_002), "PodsNotFinished");
    succeed(&mut scene);
    assert_eq!(scene.reason(2_003), "delete");
}

#[test]
fn a_scale_down_that_has_begun_is_given_up_when_pods_run_again() {
    let mut scene = scene(&manager("0s", "scaleDown: {}"));
    succeed(&mut scene);
    assert_eq!((scene.reason(1), scene.reason(60)), ("Settling".to_owned(), "scaleDown".to_owned()));
    scene.record.as_mut().unwrap().steps.scaled_down = vec![web()].into();
    scene.pods.push(pod("test-2", "main", PodPhase::Running));
    assert_eq!(scene.reason(61), "PodsNotFinished");
    assert_eq!((scene.status().steps.firings, scene.status().wakes_from), (1, Some(1)));
    // What was scaled down can be woken.
    scene.spec.wake = Some(1);
    assert_eq!(scene.reason(62), "wake");
}

#[test]
fn a_decided_deletion_waits_while_the_pods_are_not_known() {
    let mut scene = scene(&manager("0s", "delete: {notice: 60s}"));
    succeed(&mut scene);
    assert_eq!((scene.reason(1), scene.reason(60)), ("Settling".to_owned(), "NoticeRunning".to_owned()));
    assert_eq!(scene.reason(120), "delete");
    not_known(&mut scene);
    assert_eq!(scene.reason(121), "Stale");
    assert!(scene.status().steps.intent.is_some() && scene.status().steps.notice.is_some());
    scene.pods_unknown = None;
    assert_eq!(scene.reason(130), "delete");
    assert_eq!(scene.events, [DeletionAnnounced, PolicyFired]);
}

#[test]
fn a_gap_is_no_recovery_of_what_would_have_been_deleted() {
    let mut scene = scene(&manager("30s", "delete: {}").replace("Enforce", "Observe"));
    succeed(&mut scene);
    assert_eq!((scene.reason(1), scene.reason(100)), ("Observing".to_owned(), "Observing".to_owned()));
    assert_eq!(scene.status().would_have_acted.len(), 1);
    scene.pods_since = 200;
    assert_eq!(scene.reason(201), "Observing");
    assert_eq!(scene.status().would_have_acted[0].outcome, None);
    scene.pods[1].phase = PodPhase::Running;
    assert_eq!(scene.reason(300), "Observing");
    assert!(scene.status().would_have_acted[0].outcome.is_some());
}

#[test]
fn it_is_counted_what_is_due_by_its_pods() {
    let mut scene = scene(&manager("0s", "delete: {}").replace("Enforce", "Observe"));
    assert_eq!(scene.reason(1), "Observing");
    assert_eq!(scene.counts(2).enforce.due, 0);
    succeed(&mut scene);
    let expected = "Observing: ClusterNamespaceManager ci observes: every pod that counts has succeeded; policy \"done\" would \
                    delete at 2026-03-01T12:01:00Z";
    assert_eq!(scene.says(60), expected);
    let counts = scene.counts(61).enforce;
    assert_eq!((counts.due, counts.policies[0].due), (1, 1));
    let noted = &scene.status().would_have_acted[0];
    assert_eq!((&*noted.policy, &*noted.reason), ("done", "PodsSucceeded"));
}
