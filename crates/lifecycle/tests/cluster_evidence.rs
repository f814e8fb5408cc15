//! What a decision of a cluster manager keeps of what it rests on: the record of the namespace goes with it.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::collections::BTreeMap;

use coppice_api::{Labels, NamespacePhase};
use coppice_lifecycle::facts::{PodFacts, PodPhase};
use coppice_lifecycle::health::facts::{
    ContainerFacts, ContainerState, PodHealth, PodReadiness, Termination,
};

use crate::support::health::{Scene, at, spec};

/// A pod that no controller owns, whose container has ended with this message.
fn crashed(name: &str, phase: PodPhase, message: &str) -> PodFacts {
    let ended = Termination { exit_code: 1, reason: "Error".into(), message: message.into() };
    let loops = ContainerState::Waiting { reason: "CrashLoopBackOff".into(), message: "".into() };
    let (state, last) =
        if phase == PodPhase::Failed { (ContainerState::Ended(ended), None) } else { (loops, Some(ended)) };
    let health = PodHealth {
        owner: None,
        readiness: PodReadiness::NotReady { since: at(10) },
        unschedulable: None,
        gated: false,
        failed: None,
        containers: vec![ContainerFacts { name: "main".into(), restarts: true, state, last }],
        claims: Vec::new(),
    };
    let (labels, health) = (Labels::default(), Some(Box::new(health)));
    PodFacts { name: name.into(), labels, phase, terminating: false, job: None, health }
}

/// The evidence of the step that is decided once the namespace has failed for long enough.
fn evidence(scene: &mut Scene) -> BTreeMap<String, String> {
    scene.pass(1000);
    scene.status.steps.intent.as_ref().unwrap().evidence.clone()
}

#[test]
fn a_deletion_keeps_what_was_said_of_what_failed() {
    let mut scene = Scene::new(&spec("{in: [Failed]}", "0s"));
    scene.said = "exceeded quota: q, requested: pods=1".to_owned();
    scene.workloads = 2;
    scene.fails(true);
    let kept = evidence(&mut scene);
    assert_eq!(
        kept["failing"],
        "Deployment web (ProgressDeadlineExceeded), Deployment web-01 (ProgressDeadlineExceeded)"
    );
    assert_eq!(
        kept["workloadMessages"],
        "Deployment web: exceeded quota: q, requested: pods=1; \
         Deployment web-01: exceeded quota: q, requested: pods=1"
    );
    assert!(scene.deleted.is_some());
    // What stays says it itself, in its record.
    let scale_down = spec("{in: [Failed]}", "0s").replace("{delete: {notice: 0s}}", "{scaleDown: {}}");
    let mut scene = Scene::new(&scale_down);
    scene.fails(true);
    let kept = evidence(&mut scene);
    assert_eq!(kept["failing"], "Deployment web (ProgressDeadlineExceeded)");
    assert_eq!(kept.get("workloadMessages"), None);
    // Nothing fails.
    let mut scene = Scene::new(&spec("{in: [Stale]}", "0s").replace("after: 5000s", "after: 500s"));
    assert_eq!(evidence(&mut scene).get("workloadMessages"), None);
    assert!(scene.deleted.is_some());
}

#[test]
fn a_deletion_keeps_what_containers_wrote_when_they_ended() {
    let mut scene = Scene::new(&spec("{in: [Failed]}", "0s"));
    scene.pods = vec![
        crashed("api", PodPhase::Running, "panic: no database"),
        crashed("setup", PodPhase::Failed, "no such bucket"),
    ];
    let kept = evidence(&mut scene);
    assert_eq!(kept["failing"], "Pod api (CrashLoopBackOff), Pod setup (PodFailed)");
    assert_eq!(
        kept["workloadMessages"],
        "Pod api: container main restarts repeatedly with exit code 1 (Error): panic: no database; \
         Pod setup: container main ended with exit code 1 (Error): no such bucket"
    );
    assert!(scene.deleted.is_some());
}

#[test]
fn what_is_kept_of_it_is_no_longer_than_the_api_server_accepts() {
    let mut scene = Scene::new(&spec("{in: [Failed]}", "0s"));
    (scene.said, scene.workloads) = ("\u{fc}".repeat(1000), 30);
    scene.fails(true);
    let kept = evidence(&mut scene);
    let said = &kept["workloadMessages"];
    assert!(said.starts_with("Deployment web: \u{fc}\u{fc}"), "{said}");
    // As every text of a status; the schema of evidence has room for 8192.
    assert!(said.chars().count() == 4096 && said.ends_with("\u{fc}..."), "{}", said.chars().count());
}

#[test]
fn what_had_ended_before_the_watches_showed_it_has_not_been_failing_for_as_long() {
    // What was read lacks what failed by the watches: something else fails, or nothing.
    for (before, fails) in [("api", true), ("web", false)] {
        let mut scene = Scene::new(&spec("{in: [Failed]}", "0s"));
        scene.fails(true).pass(200);
        assert!(scene.deleted.take().is_some(), "decided, and about to be carried out");
        scene.before = Some(before);
        scene.fails(fails);
        assert_eq!((scene.status.phase, scene.next()), (Some(NamespacePhase::Unstable), "Watching"));
        scene.before = None;
        scene.fails(true);
        assert_eq!(scene.pass(500), [(250, NamespacePhase::Failing), (300, NamespacePhase::Failed)]);
        assert_eq!(scene.deleted, Some(300));
    }
}
