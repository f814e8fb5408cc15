//! What of a namespace's workloads is failing: a sentence for each rule.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on has failed")]

use coppice_api::HealthReason;
use coppice_api::health::{FailingObject, IgnoreRule, ShortWorkload};
use coppice_lifecycle::facts::{JobFacts, JobState, ObjectSlice, PodFacts, PodPhase};
use coppice_lifecycle::health::facts::{
    ClaimFacts, ContainerFacts, ContainerState, ControllerRef, FailureReport, JobHealth, PodHealth,
    PodReadiness, Rollout, Termination, WorkloadFacts,
};
use coppice_lifecycle::health::{Failures, KnownFailures, Workloads, failing};
use jiff::{SignedDuration, Timestamp};
use proptest::prelude::*;

fn at(seconds: i64) -> Timestamp {
    "2026-03-01T12:00:00Z".parse::<Timestamp>().unwrap() + SignedDuration::from_secs(seconds)
}

/// The workloads of a namespace; each was created at 0.
#[derive(Clone, Debug, Default)]
struct Scene {
    deployments: Vec<WorkloadFacts>,
    replica_sets: Vec<WorkloadFacts>,
    stateful_sets: Vec<WorkloadFacts>,
    daemon_sets: Vec<WorkloadFacts>,
    jobs: Vec<JobFacts>,
    pods: Vec<PodFacts>,
    claims: Vec<ClaimFacts>,
    ignore: Vec<IgnoreRule>,
    failing: Vec<FailingObject>,
    short: Vec<ShortWorkload>,
}

impl Scene {
    fn look(&self, now: i64) -> Failures {
        let workloads = Workloads {
            deployments: ObjectSlice::Slice(&self.deployments),
            replica_sets: ObjectSlice::Slice(&self.replica_sets),
            stateful_sets: ObjectSlice::Slice(&self.stateful_sets),
            daemon_sets: ObjectSlice::Slice(&self.daemon_sets),
            jobs: ObjectSlice::Slice(&self.jobs),
            pods: ObjectSlice::Slice(&self.pods),
            claims: ObjectSlice::Slice(&self.claims),
        };
        failing(
            &workloads,
            &self.ignore,
            KnownFailures { failing: &self.failing, short: &self.short },
            at(now),
        )
    }

    /// What fails, in short.
    fn lines(&self, now: i64) -> Vec<String> {
        let found = self.look(now);
        found.failing.iter().map(|one| format!("{} {} {}", one.kind, one.name, one.reason)).collect()
    }

    /// Looks, and remembers what was found.
    fn seen(&mut self, now: i64) -> Failures {
        let found = self.look(now);
        (self.failing, self.short) = (found.failing.clone(), found.short.clone());
        found
    }

    /// A Deployment `web` with its ReplicaSet `web-1`.
    fn deployment(rollout: Rollout) -> Self {
        let mut web_1 = workload("web-1");
        web_1.owner = Some(owner("apps", "Deployment", "web"));
        let web = WorkloadFacts { rollout, ..workload("web") };
        Self { deployments: vec![web], replica_sets: vec![web_1], ..Self::default() }
    }
}

fn workload(name: &str) -> WorkloadFacts {
    WorkloadFacts {
        name: name.into(),
        created_at: at(0),
        owner: None,
        short: false,
        refused: None,
        rollout: Rollout::Ended,
    }
}

fn owner(group: &str, kind: &str, name: &str) -> ControllerRef {
    ControllerRef { group: group.into(), kind: kind.into(), name: name.into() }
}

fn report(since: i64, reason: &str, message: &str) -> FailureReport {
    FailureReport { since: at(since), reason: reason.into(), message: message.into() }
}

/// A pod that is not ready since 10.
fn pod(name: &str, owner: Option<ControllerRef>) -> PodFacts {
    let health = PodHealth {
        owner,
        readiness: PodReadiness::NotReady { since: at(10) },
        unschedulable: None,
        gated: false,
        failed: None,
        containers: Vec::new(),
        claims: Vec::new(),
    };
    PodFacts {
        name: name.into(),
        labels: coppice_api::Labels::default(),
        phase: PodPhase::Running,
        terminating: false,
        job: None,
        health: Some(Box::new(health)),
    }
}

fn of_web(name: &str) -> PodFacts {
    pod(name, Some(owner("apps", "ReplicaSet", "web-1")))
}

fn health(pod: &mut PodFacts) -> &mut PodHealth {
    pod.health.as_mut().unwrap()
}

fn waiting(mut pod: PodFacts, reason: &str) -> PodFacts {
    let last = (reason == "CrashLoopBackOff").then(|| Termination {
        exit_code: 1,
        reason: "Error".into(),
        message: "".into(),
    });
    let state = ContainerState::Waiting { reason: reason.into(), message: "".into() };
    health(&mut pod).containers.push(ContainerFacts { name: "main".into(), restarts: true, state, last });
    pod
}

fn job(name: &str, created: i64, state: JobState, of: Option<&str>) -> JobFacts {
    let failed = (state == JobState::Failed)
        .then(|| report(created + 5, "BackoffLimitExceeded", "it has failed three times"));
    let health = JobHealth {
        created_at: at(created),
        owner: of.map(|name| owner("batch", "CronJob", name)),
        short: false,
        failed,
    };
    JobFacts {
        name: name.into(),
        uid: name.into(),
        pod_labels: coppice_api::Labels::default(),
        state,
        succeeded: 0,
        terminating: false,
        health: Some(Box::new(health)),
    }
}

#[test]
fn pods_of_a_deployment_that_crash_are_one_line_with_the_deployments_name() {
    let mut scene = Scene::deployment(Rollout::UnderWay);
    scene.pods =
        vec![waiting(of_web("web-1-b"), "CrashLoopBackOff"), waiting(of_web("web-1-a"), "CrashLoopBackOff")];
    let found = scene.look(60);
    let [line] = found.failing.as_slice() else { panic!("{found:?}") };
    assert_eq!((&*line.kind, &*line.name, &*line.reason), ("Deployment", "web", "CrashLoopBackOff"));
    assert_eq!(line.message, "pod web-1-a: container main restarts repeatedly with exit code 1 (Error)");
    assert_eq!(line.since, at(10));
    // A deadline that is over says no more than that.
    scene.deployments[0].rollout = Rollout::Stopped(report(
        600,
        "ProgressDeadlineExceeded",
        "ReplicaSet \"web-1\" has timed out progressing.",
    ));
    assert_eq!(scene.lines(700), ["Deployment web CrashLoopBackOff"]);
    scene.pods.clear();
    assert_eq!(scene.lines(700), ["Deployment web ProgressDeadlineExceeded"]);
}

#[test]
fn pods_are_reported_for_what_controls_them() {
    for (controller, expected) in [
        (None, "Pod p CrashLoopBackOff"),
        (Some(owner("apps", "StatefulSet", "db")), "StatefulSet db CrashLoopBackOff"),
        (Some(owner("apps", "DaemonSet", "log")), "DaemonSet log CrashLoopBackOff"),
        (Some(owner("batch", "Job", "test")), "Job test CrashLoopBackOff"),
        (Some(owner("argoproj.io", "Workflow", "build")), "Workflow build CrashLoopBackOff"),
        (Some(owner("apps", "ReplicaSet", "alone")), "ReplicaSet alone CrashLoopBackOff"),
        (Some(owner("example.com", "ReplicaSet", "web-1")), "ReplicaSet web-1 CrashLoopBackOff"),
    ] {
        let mut scene = Scene::deployment(Rollout::Ended);
        scene.pods = vec![waiting(pod("p", controller), "CrashLoopBackOff")];
        assert_eq!(scene.lines(60), [expected]);
    }
}

#[test]
fn a_roll_out_fails_by_its_own_deadline_and_what_has_none_after_ten_minutes() {
    let mut scene = Scene::deployment(Rollout::UnderWay);
    scene.pods = vec![of_web("web-1-a")];
    assert_eq!(scene.lines(100_000), [""; 0], "its deadline may be far");
    scene.deployments[0].rollout = Rollout::Ended;
    assert_eq!(scene.lines(609), [""; 0]);
    assert_eq!(scene.look(609).next_check, Some(at(610)));
    assert_eq!(scene.lines(610), ["Deployment web PodsNotReady"]);
    // One that is not kept has nothing to say.
    scene.deployments.clear();
    assert_eq!(scene.lines(610), ["Deployment web PodsNotReady"]);
    for (kind, name) in [("StatefulSet", "db"), ("DaemonSet", "log")] {
        let scene = Scene { pods: vec![pod("p", Some(owner("apps", kind, name)))], ..Scene::default() };
        assert_eq!(scene.lines(609), [""; 0]);
        assert_eq!(scene.lines(610), [format!("{kind} {name} PodsNotReady")]);
    }
}

#[test]
fn a_slow_start_and_a_pod_that_is_held_back_on_purpose_are_no_failures() {
    let mut starting = pod("p", None);
    let state = ContainerState::Running { since: at(20), starting: true };
    health(&mut starting).containers.push(ContainerFacts {
        name: "main".into(),
        restarts: false,
        state,
        last: None,
    });
    let mut gated = pod("q", None);
    gated.phase = PodPhase::Pending;
    health(&mut gated).gated = true;
    let scene = Scene { pods: vec![starting, gated], ..Scene::default() };
    assert_eq!(scene.lines(100_000), [""; 0]);
}

#[test]
fn a_pod_of_a_job_need_not_be_ready_and_counts_no_more_once_the_job_is_over() {
    let of_job = || pod("p", Some(owner("batch", "Job", "test")));
    let mut scene = Scene { pods: vec![of_job()], ..Scene::default() };
    scene.jobs = vec![job("test", 0, JobState::Unfinished, None)];
    assert_eq!(scene.lines(100_000), [""; 0]);
    scene.pods = vec![waiting(of_job(), "ErrImagePull")];
    assert_eq!(scene.lines(100), ["Job test ImagePullBackOff"]);
    scene.jobs = vec![job("test", 0, JobState::Complete, None)];
    assert_eq!(scene.lines(100), [""; 0]);
    scene.jobs = vec![job("test", 0, JobState::Failed, None)];
    let found = scene.look(100);
    assert_eq!(found.failing[0].message, "it has failed three times");
    assert_eq!(scene.lines(100), ["Job test JobFailed"]);
}

#[test]
fn of_the_jobs_of_a_cron_job_the_latest_that_has_finished_counts() {
    let jobs =
        vec![job("n-1", 100, JobState::Failed, Some("n")), job("n-2", 200, JobState::Unfinished, Some("n"))];
    let mut scene = Scene { jobs, ..Scene::default() };
    assert_eq!(scene.lines(300), ["Job n-1 JobFailed"]);
    scene.jobs[1] = job("n-2", 200, JobState::Complete, Some("n"));
    assert_eq!(scene.lines(300), [""; 0]);
    scene.jobs[1] = job("n-2", 200, JobState::Failed, Some("n"));
    assert_eq!(scene.lines(300), ["Job n-2 JobFailed"]);
    scene.jobs[1] = job("m-2", 200, JobState::Complete, Some("m"));
    assert_eq!(scene.lines(300), ["Job n-1 JobFailed"], "that is another CronJob");
}

#[test]
fn a_pod_that_nothing_replaces_fails_when_it_fails() {
    let mut failed = pod("p", None);
    failed.phase = PodPhase::Failed;
    let state =
        ContainerState::Ended(Termination { exit_code: 137, reason: "OOMKilled".into(), message: "".into() });
    health(&mut failed).containers.push(ContainerFacts {
        name: "main".into(),
        restarts: false,
        state,
        last: None,
    });
    let mut scene = Scene { pods: vec![failed], ..Scene::default() };
    assert_eq!(scene.lines(100), ["Pod p PodFailed"]);
    assert_eq!(scene.look(100).failing[0].message, "container main ended with exit code 137 (OOMKilled)");
    health(&mut scene.pods[0]).failed = Some(report(5, "Evicted", "The node was low on resource: memory."));
    assert_eq!(scene.look(100).failing[0].message, "Evicted: The node was low on resource: memory.");
    // Another pod takes its place.
    health(&mut scene.pods[0]).owner = Some(owner("apps", "ReplicaSet", "web-1"));
    assert_eq!(scene.lines(100_000), [""; 0]);
}

#[test]
fn a_pod_that_no_node_can_take_waits_for_a_node_or_for_its_volume() {
    let mut scene = Scene::deployment(Rollout::UnderWay);
    let mut waits = of_web("web-1-a");
    waits.phase = PodPhase::Pending;
    health(&mut waits).unschedulable =
        Some(report(12, "Unschedulable", "0/3 nodes are available: 3 Insufficient cpu."));
    health(&mut waits).claims = vec!["data".into()];
    scene.pods = vec![waits];
    // It is bound to a volume when the pod is scheduled, and not before.
    scene.claims = vec![ClaimFacts { name: "data".into(), created_at: at(0), lost: false }];
    assert_eq!(scene.lines(60), ["Deployment web Unschedulable"]);
    let text = "0/3 nodes are available: pod has unbound immediate PersistentVolumeClaims.";
    health(&mut scene.pods[0]).unschedulable = Some(report(12, "Unschedulable", text));
    assert_eq!(scene.lines(60), ["PersistentVolumeClaim data VolumePending"]);
    assert_eq!(scene.look(60).failing[0].message, format!("pod web-1-a waits for its volume: {text}"));
    scene.claims.clear();
    assert_eq!(scene.lines(60), ["Deployment web Unschedulable"], "there is no such claim");
    scene.pods.clear();
    scene.claims = vec![ClaimFacts { name: "data".into(), created_at: at(0), lost: false }];
    assert_eq!(scene.lines(100_000), [""; 0], "a claim that no pod waits for");
    scene.claims[0].lost = true;
    assert_eq!(scene.lines(60), ["PersistentVolumeClaim data VolumeLost"]);
}

#[test]
fn pods_that_are_not_created_fail_at_once_where_the_status_says_why_and_otherwise_after_ten_minutes() {
    let mut scene = Scene::deployment(Rollout::UnderWay);
    let refused =
        report(20, "FailedCreate", "exceeded quota: q, requested: pods=1, used: pods=3, limited: pods=3");
    (scene.deployments[0].short, scene.deployments[0].refused) = (true, Some(refused.clone()));
    (scene.replica_sets[0].short, scene.replica_sets[0].refused) = (true, Some(refused.clone()));
    let found = scene.look(30);
    assert_eq!(scene.lines(30), ["Deployment web PodsNotCreated"], "Deployment and ReplicaSet are one line");
    assert!(found.failing[0].message.starts_with("exceeded quota"), "{found:?}");
    assert_eq!(found.short, []);

    // Of a ReplicaSet that no Deployment controls as well.
    let mut alone = Scene { replica_sets: vec![workload("alone")], ..Scene::default() };
    (alone.replica_sets[0].short, alone.replica_sets[0].refused) = (true, Some(refused));
    assert_eq!(alone.lines(30), ["ReplicaSet alone PodsNotCreated"]);
    assert!(alone.look(30).failing[0].message.starts_with("exceeded quota"), "{alone:?}");
    assert_eq!(alone.look(30).short, []);

    for (kind, name, set_short) in KINDS {
        let line = format!("{kind} {name} PodsNotCreated");
        let mut scene = Scene::default();
        set_short(&mut scene, true);
        assert_eq!(scene.seen(10).next_check, Some(at(60)), "{line}: its controller is about to create them");
        assert_eq!(scene.short, [], "{line}");
        let found = scene.seen(60);
        assert_eq!((found.failing.len(), found.next_check), (0, Some(at(660))), "{line}");
        assert_eq!(scene.seen(659).failing, [], "{line}");
        scene.seen(660);
        assert_eq!(scene.lines(660), [&*line]);
        set_short(&mut scene, false);
        assert_eq!(scene.seen(670), Failures::default(), "{line}");
        set_short(&mut scene, true);
        assert_eq!(scene.seen(700).next_check, Some(at(1300)), "{line}: the ten minutes begin again");
    }
    // A Job that is over asks for no pods.
    let mut over = Scene { jobs: vec![job("test", 0, JobState::Complete, None)], ..Scene::default() };
    over.jobs[0].health.as_mut().unwrap().short = true;
    over.seen(60);
    assert_eq!(over.lines(100_000), [""; 0]);
}

/// Makes the only workload of a scene short of pods, or not.
type SetShort = fn(&mut Scene, bool);

/// What can be short of pods without a status that says why: kind, name, and how.
const KINDS: [(&str, &str, SetShort); 4] = [
    ("StatefulSet", "db", |scene, short| {
        scene.stateful_sets = vec![WorkloadFacts { short, ..workload("db") }];
    }),
    ("DaemonSet", "log", |scene, short| {
        scene.daemon_sets = vec![WorkloadFacts { short, ..workload("log") }];
    }),
    ("ReplicaSet", "alone", |scene, short| {
        scene.replica_sets = vec![WorkloadFacts { short, ..workload("alone") }];
    }),
    ("Job", "test", |scene, short| {
        scene.jobs = vec![job("test", 0, JobState::Unfinished, None)];
        scene.jobs[0].health.as_mut().unwrap().short = short;
    }),
];

#[test]
fn a_roll_out_that_cannot_begin_says_why() {
    let stopped =
        Rollout::Stopped(report(20, "ReplicaSetCreateError", "admission webhook denied the request"));
    assert_eq!(Scene::deployment(stopped).lines(30), ["Deployment web PodsNotCreated"]);
}

#[test]
fn a_pod_does_not_fail_because_nobody_says_whether_it_is_ready() {
    let mut scene = Scene { pods: vec![pod("web", None)], ..Scene::default() };
    assert_eq!(scene.lines(700), ["Pod web PodsNotReady"]);
    health(&mut scene.pods[0]).readiness = PodReadiness::Unknown;
    assert_eq!(scene.look(100_000), Failures::default());
}

#[test]
fn a_line_keeps_its_instant_and_its_message_while_it_stands() {
    let mut scene = Scene::deployment(Rollout::UnderWay);
    scene.pods = vec![waiting(of_web("web-1-b"), "CrashLoopBackOff")];
    let first = scene.seen(60).failing;
    scene.pods = vec![waiting(of_web("web-1-c"), "CrashLoopBackOff")];
    health(&mut scene.pods[0]).readiness = PodReadiness::NotReady { since: at(200) };
    assert_eq!(scene.seen(300).failing, first);
    scene.pods.clear();
    assert_eq!(scene.seen(400).failing, []);
}

#[test]
fn rules_ignore_by_kind_name_and_reason() {
    let mut scene = Scene::deployment(Rollout::Stopped(report(5, "ProgressDeadlineExceeded", "")));
    scene.pods = vec![
        waiting(of_web("web-1-a"), "CrashLoopBackOff"),
        waiting(pod("debug-1", None), "ErrImagePull"),
        waiting(pod("other", None), "ErrImagePull"),
    ];
    let all =
        ["Deployment web CrashLoopBackOff", "Pod debug-1 ImagePullBackOff", "Pod other ImagePullBackOff"];
    assert_eq!(scene.lines(60), all);
    let rule = |kind: &str, name: &str, reason| IgnoreRule {
        kind: (!kind.is_empty()).then(|| kind.to_owned()),
        name: (!name.is_empty()).then(|| name.to_owned()),
        reason,
    };
    for (rule, left) in [
        (rule("", "debug-*", None), vec![all[0], all[2]]),
        (rule("Pod", "", None), vec![all[0]]),
        // The deadline that is over follows from what is ignored.
        (rule("", "", Some(HealthReason::CrashLoopBackOff)), vec![all[1], all[2]]),
        (rule("Deployment", "debug-*", None), all.to_vec()),
        (rule("Pod", "*", Some(HealthReason::OOMKilled)), all.to_vec()),
    ] {
        scene.ignore = vec![rule.clone()];
        assert_eq!(scene.lines(60), left, "{rule:?}");
    }
}

#[test]
fn only_the_first_sixteen_are_shown_and_the_others_are_counted() {
    let pods = (0..20).rev().map(|n| waiting(pod(&format!("p{n:02}"), None), "ErrImagePull"));
    let scene = Scene { pods: pods.collect(), ..Scene::default() };
    let found = scene.look(60);
    assert_eq!((found.failing.len(), found.more), (16, 4));
    assert_eq!((&*found.failing[0].name, &*found.failing[15].name), ("p00", "p15"));
}

#[test]
fn what_is_being_deleted_does_not_fail() {
    let mut scene = Scene { pods: vec![waiting(pod("p", None), "ErrImagePull")], ..Scene::default() };
    scene.pods[0].terminating = true;
    scene.jobs = vec![JobFacts { terminating: true, ..job("test", 0, JobState::Failed, None) }];
    assert_eq!(scene.look(100), Failures::default());
}

fn any_pod() -> impl Strategy<Value = PodFacts> {
    let owners = prop_oneof![
        Just(None),
        Just(Some(owner("apps", "ReplicaSet", "web-1"))),
        Just(Some(owner("apps", "StatefulSet", "db"))),
        Just(Some(owner("batch", "Job", "test"))),
    ];
    let reasons =
        prop_oneof![Just(""), Just("CrashLoopBackOff"), Just("ErrImagePull"), Just("ContainerCreating")];
    let phases = prop_oneof![Just(PodPhase::Pending), Just(PodPhase::Running), Just(PodPhase::Failed)];
    ("[a-c]", owners, reasons, phases, any::<bool>()).prop_map(|(name, owner, reason, phase, stuck)| {
        let mut one = pod(&name, owner);
        one.phase = phase;
        if !reason.is_empty() {
            one = waiting(one, reason);
        }
        health(&mut one).unschedulable = stuck.then(|| report(3, "Unschedulable", "no node"));
        one
    })
}

fn any_workload() -> impl Strategy<Value = WorkloadFacts> {
    let rollouts = prop_oneof![
        Just(Rollout::Ended),
        Just(Rollout::UnderWay),
        Just(Rollout::Stopped(report(9, "ProgressDeadlineExceeded", "late"))),
    ];
    ("[a-c]", any::<bool>(), any::<bool>(), rollouts).prop_map(|(name, short, refused, rollout)| {
        WorkloadFacts {
            short,
            refused: refused.then(|| report(7, "FailedCreate", "quota")),
            rollout,
            ..workload(&name)
        }
    })
}

prop_compose! {
    fn any_scene()(
        deployments in prop::collection::vec(any_workload(), 0..4),
        sets in prop::collection::vec(any_workload(), 0..4),
        pods in prop::collection::vec(any_pod(), 0..8),
        states in prop::collection::vec(0..3u8, 0..4),
    ) -> Scene {
        let states = states.into_iter().map(|n| [JobState::Unfinished, JobState::Complete, JobState::Failed][usize::from(n)]);
        let jobs = (0..).zip(states).map(|(n, state)| job(&format!("j{n}"), n, state, Some("n")));
        Scene { jobs: jobs.collect(), deployments, stateful_sets: sets, pods, ..Scene::deployment(Rollout::Ended) }
    }
}

proptest! {
    #[test]
    fn the_order_of_objects_does_not_matter(scene in any_scene(), now in 0..2000i64) {
        let mut turned = scene.clone();
        turned.deployments.reverse();
        turned.stateful_sets.reverse();
        turned.pods.reverse();
        turned.jobs.reverse();
        prop_assert_eq!(scene.look(now), turned.look(now));
    }

    #[test]
    fn lines_are_sorted_and_none_is_there_twice(scene in any_scene(), now in 0..2000i64) {
        let keys: Vec<_> = scene.look(now).failing.into_iter().map(|one| (one.kind, one.name, one.reason)).collect();
        let mut sorted = keys.clone();
        sorted.sort_by_key(|(kind, name, reason)| {
            let order = HealthReason::ALL.iter().position(|one| one.as_str() == reason);
            (kind.clone(), name.clone(), order)
        });
        sorted.dedup();
        prop_assert_eq!(keys, sorted);
    }

    #[test]
    fn workloads_that_are_well_never_fail(names in prop::collection::vec("[a-z]{1,5}", 0..6), now in 0..200_000i64) {
        let well = PodFacts { health: None, ..pod("p", None) };
        let pods = names.iter().map(|name| PodFacts { name: name.as_str().into(), ..well.clone() }).collect();
        let sets: Vec<_> = names.iter().map(|name| workload(name)).collect();
        let jobs = names.iter().map(|name| job(name, 0, JobState::Complete, None)).collect();
        let scene = Scene {
            deployments: sets.clone(), stateful_sets: sets.clone(), daemon_sets: sets, pods, jobs, ..Scene::default()
        };
        prop_assert_eq!(scene.look(now), Failures::default());
    }
}
