//! What is kept of workloads for the health of their namespace: as little as possible.
#![allow(clippy::unwrap_used, reason = "test code")]

use coppice_kinds::{Claims, DaemonSets, Deployments, Jobs, Pods, ReplicaSets, StatefulSets};
use coppice_lifecycle::health::facts::{ContainerState, ControllerRef, PodHealth, PodReadiness, Rollout};
use coppice_runtime::decode::item;
use coppice_runtime::kind::Kind;
use jiff::Timestamp;
use serde_json::{Value, json};

/// What is kept of an object, if anything.
fn kept<K: Kind<Context = ()>>(object: &Value) -> Option<K::Object> {
    item::<K>(&object.to_string(), &()).ok().map(|item| item.object.unwrap())
}

fn at(text: &str) -> Timestamp {
    text.parse().unwrap()
}

/// A set of the first generation that asks for so many pods, with this status.
fn set(replicas: i64, status: &Value) -> Value {
    let mut status = status.clone();
    status["observedGeneration"] = json!(1);
    json!({"metadata": {"name": "x", "namespace": "n", "generation": 1, "creationTimestamp": "2026-01-01T00:00:00Z"},
        "spec": {"replicas": replicas}, "status": status})
}

fn deployment(replicas: i64, progressing: &Value) -> Value {
    set(replicas, &json!({"replicas": replicas, "readyReplicas": replicas, "conditions": [progressing]}))
}

#[test]
fn of_deployments_those_are_kept_that_roll_out_or_fail() {
    let progressing = |status: &str, reason: &str| {
        json!({"type": "Progressing", "status": status, "reason": reason, "message": "late",
            "lastTransitionTime": "2026-01-01T00:10:00Z"})
    };
    let ended = progressing("True", "NewReplicaSetAvailable");
    assert_eq!(kept::<Deployments>(&deployment(3, &ended)), None, "it is well");
    let under_way = kept::<Deployments>(&deployment(3, &progressing("True", "ReplicaSetUpdated"))).unwrap();
    assert_eq!(under_way.rollout, Rollout::UnderWay);
    let late =
        kept::<Deployments>(&deployment(3, &progressing("False", "ProgressDeadlineExceeded"))).unwrap();
    let Rollout::Stopped(report) = late.rollout else { panic!("{:?}", late.rollout) };
    assert_eq!((report.since, &*report.message), (at("2026-01-01T00:10:00Z"), "late"));
    assert_eq!(kept::<Deployments>(&deployment(0, &progressing("False", "ProgressDeadlineExceeded"))), None);
    let mut unseen = deployment(3, &ended);
    unseen["metadata"]["generation"] = json!(2);
    assert_eq!(
        kept::<Deployments>(&unseen).unwrap().rollout,
        Rollout::UnderWay,
        "the status is about an older spec"
    );
    let refused =
        json!({"type": "ReplicaFailure", "status": "True", "reason": "FailedCreate", "message": "quota"});
    let refused = kept::<Deployments>(&set(3, &json!({"conditions": [ended, refused]}))).unwrap();
    assert_eq!((refused.short, &*refused.refused.unwrap().message), (true, "quota"));
}

#[test]
fn replica_sets_at_zero_are_dropped_and_the_others_lead_to_their_deployment() {
    assert_eq!(kept::<ReplicaSets>(&set(0, &json!({}))), None);
    let mut one = set(2, &json!({"replicas": 2, "readyReplicas": 1}));
    one["metadata"]["ownerReferences"] = json!([
        {"apiVersion": "v1", "kind": "Other", "name": "o", "uid": "u"},
        {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web", "uid": "u", "controller": true}
    ]);
    let one = kept::<ReplicaSets>(&one).unwrap();
    let web = ControllerRef { group: "apps".into(), kind: "Deployment".into(), name: "web".into() };
    assert_eq!((one.owner, one.short), (Some(web), false));
}

#[test]
fn other_sets_are_kept_while_they_lack_pods_that_could_be_created() {
    for (status, short) in [
        (json!({"replicas": 3, "readyReplicas": 3}), false),
        (json!({"replicas": 2, "readyReplicas": 2}), true),
        // The third is created when the second is ready.
        (json!({"replicas": 2, "readyReplicas": 1}), false),
        (json!({}), true),
    ] {
        assert_eq!(kept::<StatefulSets>(&set(3, &status)).is_some_and(|set| set.short), short, "{status}");
    }
    assert_eq!(kept::<StatefulSets>(&set(0, &json!({}))), None);
    let daemon = |desired, current, ready| {
        let status = json!({"desiredNumberScheduled": desired, "currentNumberScheduled": current, "numberReady": ready});
        kept::<DaemonSets>(&set(1, &status)).is_some()
    };
    assert_eq!(
        [daemon(5, 5, 3), daemon(5, 4, 4), daemon(5, 4, 3), daemon(0, 0, 0)],
        [false, true, false, false]
    );
    let mut going = set(3, &json!({}));
    going["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
    assert_eq!(kept::<StatefulSets>(&going), None);
}

#[test]
fn claims_with_a_volume_are_dropped() {
    let claim = |phase: &str| kept::<Claims>(&json!({"metadata": {"name": "c"}, "status": {"phase": phase}}));
    assert_eq!(claim("Bound"), None);
    assert_eq!(claim("Lost").map(|claim| claim.lost), Some(true));
    assert_eq!(claim("Pending").map(|claim| claim.lost), Some(false));
}

#[test]
fn a_job_that_is_complete_is_kept_for_the_health_of_its_cron_job_alone() {
    let job = |spec: Value, status: Value, owners: Value| {
        let metadata =
            json!({"name": "j", "creationTimestamp": "2026-01-01T00:00:00Z", "ownerReferences": owners});
        kept::<Jobs>(&json!({"metadata": metadata, "spec": spec, "status": status})).unwrap().health
    };
    let complete = json!({"conditions": [{"type": "Complete", "status": "True"}]});
    assert_eq!(job(json!({}), complete.clone(), json!(null)), None);
    let owner =
        json!([{"apiVersion": "batch/v1", "kind": "CronJob", "name": "c", "uid": "u", "controller": true}]);
    assert!(job(json!({}), complete, owner).unwrap().owner.unwrap().is("batch", "CronJob"));
    let failed = json!({"type": "Failed", "status": "True", "reason": "BackoffLimitExceeded", "message": "three times"});
    let failed = job(json!({}), json!({"conditions": [failed]}), json!(null)).unwrap().failed.unwrap();
    assert_eq!((&*failed.reason, &*failed.message), ("BackoffLimitExceeded", "three times"));
    for (spec, active, short) in [
        (json!({}), 0, true),
        (json!({}), 1, false),
        (json!({"suspend": true}), 0, false),
        (json!({"parallelism": 0}), 0, false),
    ] {
        let health = job(spec.clone(), json!({"active": active}), json!(null)).unwrap();
        assert_eq!(health.short, short, "{spec} with {active} pods");
    }
}

fn pod(status: &Value) -> Option<PodHealth> {
    let metadata = json!({"name": "p", "creationTimestamp": "2026-01-01T00:00:00Z"});
    let volumes =
        json!([{"name": "v", "persistentVolumeClaim": {"claimName": "data"}}, {"name": "w", "emptyDir": {}}]);
    let pod = json!({"metadata": metadata, "spec": {"volumes": volumes}, "status": status});
    kept::<Pods>(&pod).unwrap().health.map(|health| *health)
}

fn ready(status: &str) -> Value {
    json!({"type": "Ready", "status": status, "lastTransitionTime": "2026-01-01T00:05:00Z"})
}

#[test]
fn nothing_is_kept_of_a_pod_that_is_well_or_has_succeeded() {
    let running = json!({"name": "main", "started": true, "restartCount": 7, "state": {"running": {}},
        "lastState": {"terminated": {"exitCode": 0, "reason": "Completed"}}});
    let status = json!({"phase": "Running", "conditions": [ready("True")], "containerStatuses": [running]});
    assert_eq!(pod(&status), None);
    assert_eq!(pod(&json!({"phase": "Succeeded", "conditions": [ready("False")]})), None);
}

#[test]
fn of_a_pod_that_runs_it_is_kept_that_nobody_says_whether_it_is_ready() {
    let unknown = |status: Value| pod(&status).map(|health| health.readiness);
    for conditions in [json!(null), json!([]), json!([ready("Unknown")]), json!([ready("")])] {
        let status = json!({"phase": "Running", "conditions": conditions});
        assert_eq!(unknown(status), Some(PodReadiness::Unknown), "{conditions}");
    }
    // Its phase says that its node does not answer; one that has not started is not ready, whatever nobody says.
    assert_eq!(unknown(json!({"phase": "Unknown"})), Some(PodReadiness::Unknown));
    let since = at("2026-01-01T00:00:00Z");
    assert_eq!(unknown(json!({"phase": "Pending"})), Some(PodReadiness::NotReady { since }));
}

#[test]
fn of_a_pod_that_is_not_ready_it_is_kept_why() {
    let not_ready = pod(&json!({"phase": "Running", "conditions": [ready("False")]})).unwrap();
    assert_eq!(not_ready.readiness.not_ready_since(), Some(at("2026-01-01T00:05:00Z")));
    let pending = pod(&json!({})).unwrap();
    assert_eq!(
        (pending.readiness.not_ready_since(), pending.claims),
        (Some(at("2026-01-01T00:00:00Z")), vec![])
    );
    let scheduled = |reason: &str| json!({"type": "PodScheduled", "status": "False", "reason": reason, "message": "0/3 nodes"});
    let stuck = pod(&json!({"phase": "Pending", "conditions": [scheduled("Unschedulable")]})).unwrap();
    assert_eq!((&*stuck.unschedulable.unwrap().message, stuck.claims), ("0/3 nodes", vec!["data".into()]));
    let gated = pod(&json!({"phase": "Pending", "conditions": [scheduled("SchedulingGated")]})).unwrap();
    assert!(gated.gated && gated.unschedulable.is_none());
    let evicted = json!({"phase": "Failed", "reason": "Evicted", "message": "low on memory", "conditions": [ready("False")]});
    assert_eq!(&*pod(&evicted).unwrap().failed.unwrap().reason, "Evicted");
    let failed = pod(&json!({"phase": "Failed", "conditions": [ready("True")]})).unwrap();
    assert_eq!(
        failed.readiness.not_ready_since(),
        Some(at("2026-01-01T00:05:00Z")),
        "its kubelet has not said so yet"
    );
}

#[test]
fn of_a_run_that_failed_it_is_kept_what_it_wrote_about_that_in_one_line() {
    let last = |exit_code: i32, message: &str| {
        let ended = json!({"exitCode": exit_code, "reason": "Error", "message": message});
        let waits = json!({"waiting": {"reason": "CrashLoopBackOff"}});
        let one =
            json!({"name": "main", "state": waits, "lastState": {"terminated": ended}, "restartCount": 3});
        let status = json!({"phase": "Running", "conditions": [ready("False")], "containerStatuses": [one]});
        pod(&status).unwrap().containers.pop().unwrap().last.unwrap().message
    };
    assert_eq!(&*last(1, "panic: no database\n\n\tgoroutine 1\u{7}\r\n"), "panic: no database goroutine 1");
    assert_eq!(last(1, &"\u{fc} ".repeat(5000)).chars().count(), 256);
    assert_eq!(&*last(1, ""), "");
    assert_eq!(&*last(0, "done"), "", "it explains nothing");
    let ended = json!({"terminated": {"exitCode": 3, "message": "no\nconfiguration"}});
    let status = json!({"phase": "Failed", "containerStatuses": [{"name": "main", "state": ended}]});
    let ContainerState::Ended(ended) = pod(&status).unwrap().containers.pop().unwrap().state else {
        panic!("it has ended")
    };
    assert_eq!((ended.exit_code, &*ended.message), (3, "no configuration"));
}

#[test]
fn of_containers_those_are_kept_that_do_not_simply_run() {
    let container = |state: Value, restarts: i64, started: bool| {
        let last = json!({"terminated": {"exitCode": 1, "reason": "Error"}});
        let one = json!({"name": "main", "state": state, "lastState": last, "restartCount": restarts, "started": started});
        let status = json!({"phase": "Running", "conditions": [ready("False")], "containerStatuses": [one]});
        pod(&status).unwrap().containers.pop()
    };
    let waiting = |reason: &str, message: &str| json!({"waiting": {"reason": reason, "message": message}});
    let said = |container: Option<coppice_lifecycle::health::facts::ContainerFacts>| match container?.state {
        ContainerState::Waiting { reason, message } => Some(format!("{reason}: {message}")),
        _ => None,
    };
    assert_eq!(said(container(waiting("ContainerCreating", ""), 0, false)), None);
    let back_off =
        container(waiting("CrashLoopBackOff", "back-off 40s restarting failed container"), 3, false);
    assert_eq!(back_off.as_ref().unwrap().last.as_ref().unwrap().exit_code, 1);
    assert_eq!(said(back_off).unwrap(), "CrashLoopBackOff: ", "the time changes with every restart");
    let long = "x".repeat(10_000);
    assert_eq!(
        said(container(waiting("ErrImagePull", &long), 0, false)).unwrap().len(),
        "ErrImagePull: ".len() + 256
    );
    let running = json!({"running": {"startedAt": "2026-01-01T00:06:00Z"}});
    let since = at("2026-01-01T00:06:00Z");
    let state =
        |container: Option<coppice_lifecycle::health::facts::ContainerFacts>| container.map(|one| one.state);
    assert_eq!(state(container(running.clone(), 0, true)), None);
    assert_eq!(
        state(container(running.clone(), 2, true)),
        Some(ContainerState::Running { since, starting: false })
    );
    assert_eq!(state(container(running, 0, false)), Some(ContainerState::Running { since, starting: true }));
}
