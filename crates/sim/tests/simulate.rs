//! Looking ahead: the real operator on a copy of what there is.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::time::Duration;

use coppice_sim::simulate::{Forecast, OperatorOptions, SimulationRequest, simulate, svg_timeline};
use jiff::Timestamp;
use serde_json::{Value, json};

const NOW: &str = "2026-03-01T12:00:00Z";

fn namespace(name: &str, created: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Namespace",
        "metadata": { "name": name, "uid": format!("uid-of-{name}"), "creationTimestamp": created },
    })
}

fn manager(namespace: &str, policies: &Value) -> Value {
    json!({
        "apiVersion": "coppice.dev/v1alpha1", "kind": "NamespaceManager",
        "metadata": { "name": "m", "namespace": namespace }, "spec": { "policies": policies },
    })
}

fn delete_after(after: &str, notice: &str) -> Value {
    json!([{ "name": "end", "when": { "ttl": { "after": after } }, "then": { "delete": { "notice": notice } } }])
}

/// With the defaults where there are no settings.
fn ahead(days: u64, mut objects: Vec<Value>) -> Forecast {
    if objects.iter().all(|object| object["kind"] != "CoppiceConfig") {
        objects.push(json!({
            "apiVersion": "coppice.dev/v1alpha1", "kind": "CoppiceConfig", "metadata": { "name": "coppice" }, "spec": {},
        }));
    }
    ahead_of(days, objects)
}

fn ahead_of(days: u64, objects: Vec<Value>) -> Forecast {
    let request = SimulationRequest {
        began: NOW.parse().unwrap(),
        lasts: Duration::from_hours(24 * days),
        objects,
        setup: OperatorOptions { own_namespace: "coppice-system".to_owned(), scale_kinds: Vec::new() },
    };
    simulate(&request).unwrap()
}

fn at(text: &str) -> Timestamp {
    text.parse().unwrap()
}

/// Reasons with their times, to the minute.
fn reasons(forecast: &Forecast, namespace: &str) -> Vec<(String, String)> {
    let of = forecast.timeline.iter().filter(|entry| entry.namespace == namespace);
    of.map(|entry| (entry.at.strftime("%dT%H:%M").to_string(), entry.reason.clone())).collect()
}

#[test]
fn a_namespace_is_announced_and_deleted_when_its_time_has_come() {
    let objects = vec![
        namespace("a", "2026-03-01T00:00:00Z"),
        manager("a", &delete_after("2d", "1h")),
        namespace("b", NOW),
    ];
    let forecast = ahead(7, objects.clone());
    let expected =
        [("02T23:00", "DeletionAnnounced"), ("03T00:00", "PolicyFired"), ("03T00:00", "NamespaceDeleted")];
    let expected = expected.map(|(at, reason)| (at.to_owned(), reason.to_owned()));
    assert_eq!(reasons(&forecast, "a"), expected);
    let fate = &forecast.managers[0];
    assert!(fate.deleted.unwrap() >= at("2026-03-03T00:00:00Z"), "{fate:?}");
    assert_eq!((forecast.managers.len(), forecast.notes.as_slice()), (1, &[] as &[String]));
    // The same question has the same answer.
    assert_eq!(format!("{:?}", ahead(7, objects.clone())), format!("{forecast:?}"));
    // Less far ahead it is still there.
    let sooner = ahead(1, objects);
    assert_eq!(sooner.managers[0].deleted, None);
    assert_eq!(sooner.timeline, []);
}

#[test]
fn without_settings_nothing_is_done() {
    let objects = vec![namespace("a", "2026-03-01T00:00:00Z"), manager("a", &delete_after("2d", "0s"))];
    let forecast = ahead_of(7, objects);
    assert_eq!(forecast.managers[0].deleted, None);
    assert!(format!("{:?}", forecast.managers[0]).contains("SettingsMissing"), "{:?}", forecast.managers[0]);
}

#[test]
fn what_was_begun_goes_on_from_where_it_is() {
    let mut warned = manager("a", &delete_after("1h", "6h"));
    // First as the operator itself writes it, an hour after its time.
    let before = ahead(1, vec![namespace("a", "2026-03-01T10:00:00Z"), warned.clone()]);
    assert_eq!(reasons(&before, "a")[0], ("01T12:00".to_owned(), "DeletionAnnounced".to_owned()));
    warned["metadata"]["generation"] = 1.into();
    warned["status"] = json!({
        "observedGeneration": 1, "firings": 0, "phase": "Pending",
        "notice": { "policy": "end", "uid": "uid-of-a", "givenAt": "2026-03-01T11:00:00Z", "notBefore": "2026-03-01T17:00:00Z" },
    });
    let after = ahead(1, vec![namespace("a", "2026-03-01T10:00:00Z"), warned]);
    let deleted = after.managers[0].deleted.unwrap();
    assert!((at("2026-03-01T17:00:00Z")..at("2026-03-01T17:01:00Z")).contains(&deleted), "{after:?}");
}

#[test]
fn the_budget_and_paused_bind_here_too() {
    let config = |governor: &Value| {
        json!({
            "apiVersion": "coppice.dev/v1alpha1", "kind": "CoppiceConfig", "metadata": { "name": "coppice" },
            "spec": { "governor": governor },
        })
    };
    let mut objects = vec![config(&json!({ "paused": true }))];
    for name in ["a", "b", "c"] {
        objects.extend([namespace(name, "2026-02-01T00:00:00Z"), manager(name, &delete_after("1h", "0s"))]);
    }
    let paused = ahead(1, objects.clone());
    assert!(
        paused.managers.iter().all(|fate| fate.deleted.is_none() && fate.reason == "Paused"),
        "{paused:?}"
    );
    objects[0] = config(&json!({ "perMinute": 100, "perHour": 1, "maxShare": "100%", "atLeast": 1 }));
    let slow = ahead(1, objects);
    let mut deleted: Vec<Timestamp> = slow.managers.iter().map(|fate| fate.deleted.unwrap()).collect();
    deleted.sort_unstable();
    assert!(deleted.windows(2).all(|two| two[1].duration_since(two[0]).as_mins() >= 59), "{deleted:?}");
}

#[test]
fn what_fails_by_its_claims_and_daemon_sets_goes_as_the_operator_would_let_it_go() {
    let metadata = |name: &str, namespace: &str| {
        json!({
            "name": name, "namespace": namespace, "uid": format!("uid-of-{namespace}-{name}"), "generation": 1,
            "creationTimestamp": "2026-03-01T00:00:00Z", "finalizers": ["kubernetes.io/pvc-protection"],
        })
    };
    let claim = |namespace: &str, phase: &str| {
        json!({
            "apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": metadata("data", namespace),
            "spec": {
                "accessModes": ["ReadWriteOnce"], "volumeName": "pv", "resources": { "requests": { "storage": "1Gi" } },
            },
            "status": { "phase": phase },
        })
    };
    let labels = json!({ "app": "log" });
    let daemon_set = json!({
        "apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": metadata("log", "short"),
        "spec": {
            "selector": { "matchLabels": labels },
            "template": {
                "metadata": { "labels": labels }, "spec": { "containers": [{ "name": "main", "image": "none" }] },
            },
        },
        "status": { "observedGeneration": 1, "desiredNumberScheduled": 1, "currentNumberScheduled": 0, "numberReady": 0 },
    });
    let manager = json!({
        "apiVersion": "coppice.dev/v1alpha1", "kind": "ClusterNamespaceManager", "metadata": { "name": "ci" },
        "spec": {
            "mode": "Enforce", "selector": { "names": ["lost", "short", "well"] }, "health": {},
            "policies": [{ "name": "end", "when": { "phase": { "in": ["Failed"] } }, "then": { "delete": {} } }],
        },
    });
    let mut objects = vec![manager, claim("lost", "Lost"), claim("well", "Bound"), daemon_set];
    objects.extend(["lost", "short", "well"].map(|name| namespace(name, "2026-03-01T00:00:00Z")));
    let forecast = ahead(1, objects);
    assert_eq!(forecast.notes, [""; 0]);
    let deleted = |name: &str| {
        forecast.managers.iter().find(|fate| fate.namespace == name).and_then(|fate| fate.deleted)
    };
    // It fails for five minutes until it is Failing, and for two more until it is Failed.
    let lost = deleted("lost").unwrap();
    assert!((at("2026-03-01T12:07:00Z")..at("2026-03-01T12:10:00Z")).contains(&lost), "{forecast:?}");
    // That pods are missing is a failure ten minutes later.
    let short = deleted("short").unwrap();
    assert!((at("2026-03-01T12:17:00Z")..at("2026-03-01T12:20:00Z")).contains(&short), "{forecast:?}");
    assert_eq!(deleted("well"), None);
}

#[test]
fn what_is_created_again_each_time_is_left_alone_for_a_day() {
    let deleted = |minute: u32| {
        let at = format!("2026-03-01T10:{minute}:00Z");
        json!({
            "apiVersion": "coppice.dev/v1alpha1", "kind": "DeletedNamespace",
            "metadata": { "name": format!("fire-{minute}"), "creationTimestamp": at },
            "spec": {
                "namespace": "again", "uid": format!("earlier-{minute}"), "namespaceCreated": "2026-03-01T09:00:00Z",
                "managerKind": "ClusterNamespaceManager", "manager": "ci", "policy": "end", "decidedAt": at,
                "attemptedAt": at, "reason": "TtlElapsed",
            },
            "status": { "phase": "Deleted", "deletedAt": at },
        })
    };
    let manager = json!({
        "apiVersion": "coppice.dev/v1alpha1", "kind": "ClusterNamespaceManager", "metadata": { "name": "ci" },
        "spec": {
            "mode": "Enforce", "selector": { "names": ["again"] }, "ttl": { "after": "1m" },
            "policies": [{ "name": "end", "when": { "phase": { "in": ["Stale"] } }, "then": { "delete": {} } }],
        },
    });
    let gone = |deletions: &[u32]| {
        let mut objects: Vec<Value> = deletions.iter().map(|minute| deleted(*minute)).collect();
        objects.extend([manager.clone(), namespace("again", "2026-03-01T11:00:00Z")]);
        let forecast = ahead(2, objects);
        assert_eq!(forecast.notes, [""; 0]);
        forecast.managers[0].deleted.unwrap()
    };
    let twice = gone(&[20, 40]);
    assert!(twice < at("2026-03-01T12:10:00Z"), "{twice}");
    let three_times = gone(&[10, 20, 40]);
    let day = at("2026-03-02T10:10:00Z")..at("2026-03-02T10:12:00Z");
    assert!(day.contains(&three_times), "{three_times}");
}

#[test]
fn unreadable_kinds_are_reported() {
    let mut bad = manager("a", &json!([]));
    bad["spec"] = json!({ "policies": 7 });
    let other =
        json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": "x", "namespace": "a" } });
    let forecast = ahead(1, vec![bad, manager("gone", &delete_after("1h", "0s")), other]);
    let notes = forecast.notes.join("\n");
    assert!(notes.contains("left out: NamespaceManager a/m: "), "{notes}");
    assert!(notes.contains("namespace gone was not given"), "{notes}");
    assert!(notes.contains("1 object of kinds"), "{notes}");
    assert_eq!(forecast.managers.len(), 1);
}

#[test]
fn the_picture_shows_each_namespace_and_escapes_what_it_shows() {
    let objects = vec![namespace("a", "2026-03-01T00:00:00Z"), manager("a", &delete_after("2d", "1h"))];
    let mut forecast = ahead(7, objects);
    forecast.managers[0].message = "<&\">".to_owned();
    let svg = svg_timeline::svg(&forecast);
    assert!(svg.starts_with("<svg ") && svg.ends_with("</svg>\n"));
    assert_eq!(svg.matches("<rect ").count(), 2);
    assert_eq!(svg.matches("<title>").count(), 1 + forecast.timeline.len());
    assert!(svg.contains("&lt;&amp;&quot;&gt;") && !svg.contains("<&"), "{svg}");
}
