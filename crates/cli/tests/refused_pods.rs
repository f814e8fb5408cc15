//! What `explain` says of Events about workloads whose pods are refused.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on has failed")]

use crate::support::run;
use crate::support::server::{Script, against, list, status};
use serde_json::{Value, json};

const EVENTS: &str = "GET /api/v1/namespaces/a/events";

fn failing(kind: &str, name: &str, reason: &str) -> Value {
    json!({
        "kind": kind, "name": name, "reason": reason, "message": "0 of 1 pods are there", "source": "Workloads",
        "since": "2026-03-01T12:10:00Z"
    })
}

fn record(failing: &[Value]) -> Value {
    json!({
        "apiVersion": "coppice.dev/v1alpha1", "kind": "ManagedNamespace",
        "metadata": {"name": "coppice", "namespace": "a", "uid": "r-1", "resourceVersion": "1", "generation": 1},
        "spec": {},
        "status": {
            "observedGeneration": 1, "namespaceUid": "ns-1", "phase": "Unstable", "failing": failing,
            "manager": {"name": "ci", "uid": "c-1", "digest": "c1:1", "generation": 1, "since": "2026-03-01T12:00:02Z"},
            "next": {"reason": "Observing", "message": "it observes"}
        }
    })
}

fn event(kind: &str, name: &str, minute: u32, message: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Event", "metadata": {"name": format!("{name}.{minute}"), "namespace": "a"},
        "involvedObject": {"kind": kind, "name": name, "namespace": "a"}, "type": "Warning", "reason": "FailedCreate",
        "lastTimestamp": format!("2026-03-01T12:{minute:02}:00Z"), "message": message
    })
}

/// Of several workloads, one of them with another reason, one of another name, and one without any Event.
fn objects() -> (Value, Vec<Value>) {
    let lacks = |kind, name| failing(kind, name, "PodsNotCreated");
    let record = record(&[
        lacks("Deployment", "web"),
        lacks("StatefulSet", "db"),
        lacks("StatefulSet", "quiet"),
        failing("StatefulSet", "slow", "PodsNotReady"),
    ]);
    let mut normal = event("StatefulSet", "quiet", 29, "it is said in passing");
    normal["type"] = "Normal".into();
    let mut other = event("StatefulSet", "quiet", 29, "something else");
    other["reason"] = "FailedUpdate".into();
    let events = vec![
        event("StatefulSet", "db", 28, "pods \"db-0\" is forbidden: exceeded quota: none"),
        event("StatefulSet", "db", 12, "an earlier one"),
        event("StatefulSet", "slow", 29, "of no workload that lacks pods"),
        event("StatefulSet", "db-2", 29, "of another one"),
        event("Job", "web-12", 29, "of no ReplicaSet"),
        event("ReplicaSet", "web-api-5d4f8", 29, "of another Deployment"),
        event("ReplicaSet", "web-5d4f8", 27, "pods \"web-5d4f8-\" is forbidden: violates PodSecurity"),
        normal,
        other,
    ];
    (record, events)
}

const SHOWN: &str = "What fails
  Deployment/web: 0 of 1 pods are there [PodsNotCreated], since 2026-03-01T12:10:00Z (20m ago)
    its latest Event, 2026-03-01T12:27:00Z (3m ago): pods \"web-5d4f8-\" is forbidden: violates PodSecurity
  StatefulSet/db: 0 of 1 pods are there [PodsNotCreated], since 2026-03-01T12:10:00Z (20m ago)
    its latest Event, 2026-03-01T12:28:00Z (2m ago): pods \"db-0\" is forbidden: exceeded quota: none
  StatefulSet/quiet: 0 of 1 pods are there [PodsNotCreated], since 2026-03-01T12:10:00Z (20m ago)
  StatefulSet/slow: 0 of 1 pods are there [PodsNotReady], since 2026-03-01T12:10:00Z (20m ago)
";

fn script(record: Value, events: (u16, Value)) -> Script {
    vec![
        (
            "GET /api/v1/namespaces/a",
            200,
            json!({"metadata": {"name": "a", "uid": "ns-1", "creationTimestamp": "2026-03-01T12:00:00Z"}}),
        ),
        ("GET /apis/coppice.dev/v1alpha1/namespaces/a/namespacemanagers", 200, list(&[])),
        ("GET /apis/coppice.dev/v1alpha1/namespaces/a/managednamespaces", 200, list(&[record])),
        ("GET /apis/coppice.dev/v1alpha1/clusternamespacemanagers", 403, status(403, "not you")),
        ("GET /apis/coppice.dev/v1alpha1/coppiceconfigs/coppice", 403, status(403, "not you")),
        (EVENTS, events.0, events.1),
    ]
}

#[test]
fn the_latest_event_of_each_workload_that_lacks_pods_explains_it_by_one_request() {
    let (record, events) = objects();
    let (ran, requests) = against("coppice explain a", script(record.clone(), (200, list(&events))));
    assert!(ran.code == 0 && ran.out.contains(SHOWN), "{}", ran.all());
    let asked: Vec<_> = requests.iter().filter(|(_, uri, _)| uri.contains("/events")).collect();
    assert_eq!(asked.len(), 1, "{requests:?}");
    let query = "limit=500&fieldSelector=reason%3DFailedCreate%2Ctype%3DWarning";
    let sorted = |text: &str| {
        let mut parts: Vec<_> = text.split('&').map(str::to_owned).collect();
        parts.sort_unstable();
        parts
    };
    assert_eq!(sorted(asked[0].1.split_once('?').unwrap().1.trim_start_matches('&')), sorted(query));
    let (ran, _) = against("coppice explain a -o json", script(record, (200, list(&events))));
    let report: Value = serde_json::from_str(&ran.out).unwrap();
    let said = &report["namespace"]["refusedPods"];
    assert_eq!(said.as_array().map(Vec::len), Some(2), "{report:#}");
    assert_eq!((&said[0]["kind"], &said[0]["name"]), (&"Deployment".into(), &"web".into()));
    assert_eq!(said[1]["at"], "2026-03-01T12:28:00Z");
}

#[test]
fn events_that_may_not_be_read_are_missed_and_those_that_explain_nothing_are_not_read() {
    let (record, _) = objects();
    let (ran, _) = against("coppice explain a", script(record, (403, status(403, "not you"))));
    let note = "note: the Events in namespace a cannot be read: not you; why pods are refused is not shown\n";
    assert!(ran.code == 0 && ran.err.contains(note), "{}", ran.all());
    assert!(ran.out.contains("StatefulSet/db: 0 of 1 pods are there [PodsNotCreated]"), "{}", ran.out);
    let ready = self::record(&[failing("StatefulSet", "slow", "PodsNotReady")]);
    let (ran, requests) = against("coppice explain a", script(ready, (200, list(&[]))));
    assert!(ran.code == 0 && !requests.iter().any(|(_, uri, _)| uri.contains("events")), "{requests:?}");
}

#[test]
fn events_of_a_dump_explain_as_those_of_a_cluster_do() {
    let (record, events) = objects();
    let manager = json!({
        "apiVersion": "coppice.dev/v1alpha1", "kind": "ClusterNamespaceManager",
        "metadata": {"name": "ci", "uid": "c-1", "generation": 1},
        "spec": {"selector": {"names": ["a"]}, "health": {}}
    });
    let spec: coppice_lifecycle::cluster::ValidClusterManager =
        serde_json::from_value(manager["spec"].clone()).unwrap();
    let mut record = record;
    record["status"]["manager"]["digest"] = spec.digest().into();
    let namespace = json!({
        "apiVersion": "v1", "kind": "Namespace",
        "metadata": {"name": "a", "uid": "ns-1", "creationTimestamp": "2026-03-01T12:00:00Z"}
    });
    let mut elsewhere = event("StatefulSet", "db", 29, "of another namespace");
    elsewhere["metadata"]["namespace"] = "b".into();
    let all = [vec![namespace, manager, record, elsewhere], events].concat();
    let dump = json!({"apiVersion": "v1", "kind": "List", "items": all}).to_string();
    let ran = run("coppice explain a -f -", &dump);
    assert!(ran.out.contains(SHOWN), "{}", ran.all());
}
