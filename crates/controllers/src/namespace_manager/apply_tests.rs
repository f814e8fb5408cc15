use std::sync::Arc;

use coppice_kinds::{Deployments, Namespaces};
use coppice_runtime::controller::Controller as _;
use coppice_scripted::{Sent, WriteAnswer};
use serde_json::{Value, json};

use super::super::NamespaceManagers;
use super::*;
use crate::test_scene::{Scene, lines, reconcile, required, revision};

const STATUS: &str = "PUT namespaces/ci-1/namespacemanagers/end/status";
const STORE: &str = "POST deletednamespaces";
const RESERVE: &str = "PUT coppiceconfigs/coppice/status";
const DELETE: &str = "DELETE namespaces/ci-1";

/// A namespace that is a day old, with a manager that deletes it after an hour and without notice.
async fn due() -> (Scene, Arc<NamespaceManagers>) {
    following(Scene::new().with_settings(), &after_an_hour(&json!({"delete": {}})), &Value::Null).await
}

/// The spec of a manager whose only policy does this once its namespace is an hour old.
pub(super) fn after_an_hour(then: &Value) -> Value {
    json!({"policies": [{"name": "end", "when": {"ttl": {"after": "1h"}}, "then": then}]})
}

/// A namespace that is a day old, with a manager that has this spec and this status.
pub(super) async fn following(
    mut scene: Scene,
    spec: &Value,
    status: &Value,
) -> (Scene, Arc<NamespaceManagers>) {
    scene.namespace("ci-1", "u", false);
    let metadata = json!({"name": "end", "namespace": "ci-1"});
    scene.server.put::<Managers>(json!({"metadata": metadata, "spec": spec, "status": status}));
    let controller = Arc::new(NamespaceManagers::new(Arc::clone(&scene.shared)));
    scene.followers.add(&controller).await;
    controller.started();
    (scene, controller)
}

/// The writes of one reconcile, of which the first are answered so; without those of Events.
async fn reconciled(
    scene: &Scene,
    controller: &Arc<NamespaceManagers>,
    answers: &[WriteAnswer],
) -> Vec<Sent> {
    ended(scene, controller, answers).await.1
}

/// How it ends, and the same writes.
pub(super) async fn ended(
    scene: &Scene,
    controller: &Arc<NamespaceManagers>,
    answers: &[WriteAnswer],
) -> (&'static str, Vec<Sent>) {
    scene.server.answer_writes(answers.iter().copied());
    let end = reconcile(controller, ManagerKey::new("ci-1", "end")).await;
    let mut sent = scene.server.writes();
    sent.retain(|one| !one.path.contains("events.k8s.io"));
    (end, sent)
}

/// These writes come first, in this order.
#[track_caller]
pub(super) fn begins_with(sent: &[Sent], expected: &[&str]) {
    let lines = lines(sent);
    assert!(lines.join(" ").starts_with(&expected.join(" ")), "{lines:?}");
}

/// The changes of workloads.
pub(super) fn scaled(sent: &[Sent]) -> Vec<&Sent> {
    sent.iter().filter(|one| one.method == http::Method::PATCH).collect()
}

/// Has a Deployment of so many replicas in the namespace.
pub(super) fn put_deployment(scene: &Scene, replicas: i32) {
    let metadata = json!({"name": "web", "namespace": "ci-1", "uid": "w"});
    scene.server.put::<Deployments>(json!({"metadata": metadata, "spec": {"replicas": replicas}}));
}

/// The Deployment as it is.
pub(super) fn deployment(scene: &Scene) -> Value {
    scene.server.object::<Deployments>("ci-1", "web")
}

/// What status has of one of three replicas that was scaled down by the first firing.
pub(super) fn recorded() -> Value {
    json!([{"apiVersion": "apps/v1", "kind": "Deployment", "name": "web", "uid": "w", "replicas": 3, "firing": 0}])
}

#[tokio::test(start_paused = true)]
async fn a_namespace_is_deleted_after_its_intent_its_record_and_its_budget_and_as_it_was_read() {
    let (scene, controller) = due().await;
    let read = revision(&scene.server.object::<Namespaces>("", "ci-1"));
    let sent = reconciled(&scene, &controller, &[]).await;
    let lines = lines(&sent);
    assert!(lines.join(" ").starts_with(&[STATUS, STORE, RESERVE, DELETE, STATUS].join(" ")), "{lines:?}");
    let intent = &sent[0].body["status"]["intent"];
    assert_eq!((&intent["action"], &intent["uid"]), (&json!("delete"), &json!("u")));
    assert_eq!(&sent[1].body["metadata"]["name"], &intent["id"]);
    assert_eq!(required(&sent[3]), read);
    let outcome = &sent[4].body["status"];
    assert_eq!((&outcome["firings"], &outcome["lastFiring"]["id"]), (&json!(1), &intent["id"]));
    assert!(outcome["intent"].is_null(), "{outcome:#}");
}

#[tokio::test(start_paused = true)]
async fn a_namespace_is_not_deleted_where_one_of_the_writes_before_is_not_made() {
    for (done, answer, expected) in [
        // Its intent.
        (0, WriteAnswer::Refused(403), &[STATUS][..]),
        (0, WriteAnswer::Gone, &[STATUS]),
        // Its record: why it failed is written.
        (1, WriteAnswer::Refused(403), &[STATUS, STORE, STATUS]),
        // Its part of the budget.
        (2, WriteAnswer::Refused(403), &[STATUS, STORE, RESERVE, STATUS]),
    ] {
        let (scene, controller) = due().await;
        let answers: Vec<_> = [WriteAnswer::Done; 2].into_iter().take(done).chain([answer]).collect();
        let lines = lines(&reconciled(&scene, &controller, &answers).await);
        assert!(lines.join(" ").starts_with(&expected.join(" ")), "{answer:?} after {done}: {lines:?}");
        assert!(!lines.iter().any(|line| line == DELETE), "{answer:?} after {done}: {lines:?}");
        let namespace = scene.server.object::<Namespaces>("", "ci-1");
        assert!(namespace["metadata"]["deletionTimestamp"].is_null());
    }
}

#[tokio::test(start_paused = true)]
async fn a_deletion_is_sent_again_only_after_a_conflict_and_then_as_the_namespace_is_by_now() {
    for (answer, deletions, firings) in [
        (WriteAnswer::Conflict, 2, 1),
        (WriteAnswer::Lost, 1, 1),
        (WriteAnswer::Gone, 1, 1),
        (WriteAnswer::Refused(403), 1, 0),
    ] {
        let (scene, controller) = due().await;
        let read = revision(&scene.server.object::<Namespaces>("", "ci-1"));
        let answers = [WriteAnswer::Done, WriteAnswer::Done, WriteAnswer::Done, answer];
        let sent = reconciled(&scene, &controller, &answers).await;
        let deleted: Vec<&Sent> = sent.iter().filter(|one| one.method == http::Method::DELETE).collect();
        assert_eq!(deleted.len(), deletions, "{answer:?}: {:?}", lines(&sent));
        assert_eq!(required(deleted[0]), read, "{answer:?}");
        if let Some(again) = deleted.get(1) {
            assert_ne!(required(again)["resourceVersion"], read["resourceVersion"]);
        }
        let status = &sent[3 + deletions].body["status"];
        assert_eq!(status["firings"], firings, "{answer:?}: {status:#}");
        assert_eq!(status["intent"]["lastError"].is_string(), firings == 0, "{answer:?}: {status:#}");
    }
}
