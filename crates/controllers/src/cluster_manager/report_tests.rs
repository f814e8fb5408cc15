use coppice_runtime::decode;
use serde_json::{Value, json};

use super::*;
use crate::test_scene::Scene;

/// A manager whose spec has this generation, and of which these conditions were written when it had.
fn manager(generation: i64, spec: &Value, said: &[(&str, &str, &str)]) -> ClusterManager {
    let metadata = json!({"name": "ci", "uid": "u", "generation": generation, "resourceVersion": "1"});
    let status = json!({
        "observedGeneration": generation, "policyDigest": "c1:0", "conditions": conditions(said),
    });
    let object = json!({"metadata": metadata, "spec": spec, "status": status}).to_string();
    decode::item::<ClusterManagers>(&object, &()).unwrap().object.unwrap()
}

fn conditions(said: &[(&str, &str, &str)]) -> Value {
    let condition = |(type_, status, reason): &(&str, &str, &str)| {
        json!({"type": type_, "status": status, "reason": reason, "message": format!("{type_} is {reason}"),
            "lastTransitionTime": "2026-01-01T00:00:00Z"})
    };
    said.iter().map(condition).collect()
}

/// The Events that are written when one status follows another: how, for which reason, and what they say.
async fn published(scene: &Scene, before: &ClusterManager, after: &ClusterManager) -> Vec<String> {
    waits(&scene.shared, before, after);
    scene.shared.events.flush().await;
    let written = scene.server.writes();
    let line = |text: &Value| text.as_str().unwrap_or_default().to_owned();
    let events = written.iter().filter(|sent| sent.path.contains("/events.k8s.io/"));
    events
        .map(|sent| {
            let body = &sent.body;
            format!(
                "{} {} {}: {}",
                sent.method,
                line(&body["type"]),
                line(&body["reason"]),
                line(&body["note"])
            )
        })
        .collect()
}

#[tokio::test(start_paused = true)]
async fn a_spec_that_cannot_be_understood_is_an_event_and_another_one_is_one_more() {
    let scene = Scene::new();
    let (wrong, right) = (json!({"selector": {}}), json!({"selector": {"names": ["ci-*"]}}));
    let refused = [("Accepted", "False", "InvalidSpec"), ("Ready", "False", "InvalidSpec")];
    let accepted = [("Accepted", "True", "Accepted"), ("Ready", "True", "Reconciled")];
    let said = ["POST Warning InvalidSpec: Accepted is InvalidSpec"];
    let created = manager(1, &wrong, &[]);
    let first = manager(1, &wrong, &refused);
    assert_eq!(published(&scene, &created, &first).await, said);
    assert_eq!(published(&scene, &first, &first).await, [""; 0], "nothing is new");
    let second = manager(2, &wrong, &refused);
    assert_eq!(published(&scene, &first, &second).await, said, "another spec");
    let corrected = manager(3, &right, &accepted);
    assert_eq!(published(&scene, &second, &corrected).await, [""; 0]);
    let third = manager(4, &wrong, &refused);
    assert_eq!(published(&scene, &corrected, &third).await, said);
    // The fault is that of another manager, which has the Event.
    let other = manager(3, &right, &[("Accepted", "True", "Accepted"), ("Ready", "False", "InvalidSpec")]);
    assert_eq!(published(&scene, &corrected, &other).await, [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn only_who_enforces_waits_for_approval() {
    let spec = |mode: &str, suspend: bool| {
        json!({"mode": mode, "suspend": suspend, "selector": {"names": ["ci-*"]}, "ttl": {"after": "1h"}, "policies": [
            {"name": "end", "when": {"phase": {"in": ["Stale"]}}, "then": {"delete": {}}}]})
    };
    let needed = [("Accepted", "True", "Accepted"), ("Approved", "False", "ApprovalNeeded")];
    for (mode, suspend, expected) in [
        ("Enforce", false, &["POST Warning ApprovalNeeded: Approved is ApprovalNeeded"][..]),
        ("Enforce", true, &[]),
        ("Observe", false, &[]),
    ] {
        let scene = Scene::new();
        let (before, after) =
            (manager(1, &spec(mode, suspend), &[]), manager(1, &spec(mode, suspend), &needed));
        assert_eq!(published(&scene, &before, &after).await, expected, "{mode}, suspended: {suspend}");
    }
}

#[tokio::test(start_paused = true)]
async fn what_managers_say_is_counted_by_condition_and_reason() {
    let mut scene = Scene::new();
    let spec = |mode: &str| {
        json!({"mode": mode, "selector": {"names": ["ci-*"]}, "ttl": {"after": "1h"}, "policies": [
            {"name": "end", "when": {"phase": {"in": ["Stale"]}}, "then": {"delete": {}}}]})
    };
    let needed = conditions(&[("Accepted", "True", "Accepted"), ("Approved", "False", "ApprovalNeeded")]);
    let refused = conditions(&[("Accepted", "False", "InvalidSpec"), ("Ready", "False", "Strange")]);
    let terminating = json!("2026-01-01T00:00:00Z");
    for (name, deleted, spec, conditions) in [
        ("enforces", Value::Null, spec("Enforce"), &needed),
        ("observes", Value::Null, spec("Observe"), &needed),
        ("refused", Value::Null, json!({"selector": {}}), &refused),
        ("goes", terminating, json!({"selector": {}}), &refused),
    ] {
        let metadata = json!({"name": name, "deletionTimestamp": deleted});
        let status = json!({"observedGeneration": 1, "conditions": conditions});
        let object = json!({"metadata": metadata, "spec": spec, "status": status});
        scene.server.put::<ClusterManagers>(object);
    }
    scene.followers.fill(&scene.shared.cluster_managers).await;
    count_conditions(&scene.shared);
    let text = scene.shared.metrics.encode();
    let mut series: Vec<_> =
        text.lines().filter_map(|line| line.strip_prefix("coppice_cluster_managers")).collect();
    series.sort_unstable();
    assert_eq!(
        series,
        [
            "{condition=\"Accepted\",reason=\"Accepted\"} 2",
            "{condition=\"Accepted\",reason=\"InvalidSpec\"} 1",
            "{condition=\"Approved\",reason=\"ApprovalNeeded\"} 1",
        ]
    );
}
