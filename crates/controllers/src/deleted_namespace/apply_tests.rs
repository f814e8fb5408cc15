use std::sync::Arc;

use coppice_scripted::{Sent, WriteAnswer};
use serde_json::{Value, json};

use super::super::{DeletionRecords, RecordKey};
use super::*;
use crate::test_scene::{Scene, lines, reconcile, required, revision};

const STATUS: &str = "PUT deletednamespaces/fire-1/status";
const DELETE: &str = "DELETE deletednamespaces/fire-1";

/// How a write ends, and what becomes of the reconcile that makes it.
const ENDS: [(WriteAnswer, &str); 6] = [
    (WriteAnswer::Done, "done"),
    // Somebody has deleted the record.
    (WriteAnswer::Gone, "done"),
    (WriteAnswer::Conflict, "api"),
    (WriteAnswer::Lost, "api"),
    (WriteAnswer::Refused(403), "api"),
    (WriteAnswer::Never, "api"),
];

/// The record of a deletion of namespace `team-a` with uid `u`, decided by the manager `m` an hour ago.
fn record(status: &Value) -> Scene {
    let scene = Scene::new();
    let spec = json!({
        "namespace": "team-a", "uid": "u", "namespaceCreated": "2025-12-30T00:00:00Z", "managerKind": "NamespaceManager",
        "manager": "m", "policy": "p", "decidedAt": "2025-12-31T23:00:00Z", "attemptedAt": "2025-12-31T23:00:00Z",
        "reason": "TtlElapsed",
    });
    scene
        .server
        .put::<DeletedNamespaces>(json!({"metadata": {"name": "fire-1"}, "spec": spec, "status": status}));
    scene
}

/// A manager whose status has this intent.
fn put_manager(scene: &Scene, intent: Option<&str>) {
    let intent = intent.map(|id| {
        json!({
            "id": id, "policy": "p", "action": "delete", "uid": "u", "digest": "d", "reason": "TtlElapsed",
            "decidedAt": "2025-12-31T23:00:00Z", "evidence": {},
        })
    });
    let spec = json!({"policies": [{"name": "p", "when": {"ttl": {"after": "1h"}}, "then": {"delete": {}}}]});
    let metadata = json!({"name": "m", "namespace": "team-a"});
    scene.server.put::<Managers>(json!({"metadata": metadata, "spec": spec, "status": {"intent": intent}}));
}

/// What comes of a reconcile where this happens after everything was listed, and the write is answered so; and which were made.
async fn reconciled(
    scene: &mut Scene,
    meanwhile: impl FnOnce(&Scene),
    answer: WriteAnswer,
) -> (&'static str, Vec<Sent>) {
    let controller = Arc::new(DeletionRecords::new(Arc::clone(&scene.shared)));
    scene.followers.add(&controller).await;
    meanwhile(scene);
    scene.server.answer_writes([answer]);
    let end = reconcile(&controller, RecordKey("fire-1".into())).await;
    (end, scene.server.writes())
}

#[tokio::test(start_paused = true)]
async fn a_record_says_that_its_namespace_is_being_deleted_by_one_write_at_the_revision_that_was_read() {
    for (answer, expected) in ENDS {
        let mut scene = record(&json!({}));
        scene.namespace("team-a", "u", true);
        let read = revision(&scene.server.object::<DeletedNamespaces>("", "fire-1"));
        let (end, sent) = reconciled(&mut scene, |_| {}, answer).await;
        assert_eq!((end, lines(&sent)), (expected, vec![STATUS.to_owned()]), "{answer:?}");
        assert_eq!((required(&sent[0]), &sent[0].body["status"]), (read, &json!({"phase": "Terminating"})));
    }
}

#[tokio::test(start_paused = true)]
async fn a_record_says_deleted_only_of_a_namespace_that_a_fresh_read_does_not_find() {
    for (answer, expected) in ENDS {
        let mut scene = record(&json!({"phase": "Terminating"}));
        let (end, sent) = reconciled(&mut scene, |_| {}, answer).await;
        assert_eq!((end, lines(&sent)), (expected, vec![STATUS.to_owned()]), "{answer:?}");
        let status = &sent[0].body["status"];
        assert_eq!((&status["phase"], status["deletedAt"].is_string()), (&json!("Deleted"), true));
    }
    // The cache is behind.
    let mut scene = record(&json!({"phase": "Terminating"}));
    let (end, sent) =
        reconciled(&mut scene, |scene| scene.namespace("team-a", "u", true), WriteAnswer::Done).await;
    assert_eq!((end, lines(&sent)), ("behind", Vec::new()));
    // Another one of that name.
    let mut scene = record(&json!({"phase": "Terminating"}));
    let (end, sent) =
        reconciled(&mut scene, |scene| scene.namespace("team-a", "v", false), WriteAnswer::Done).await;
    assert_eq!((end, lines(&sent)), ("done", vec![STATUS.to_owned()]));
}

#[tokio::test(start_paused = true)]
async fn the_record_of_a_deletion_that_was_given_up_is_withdrawn_as_it_was_read() {
    for (answer, expected) in ENDS {
        let mut scene = record(&json!({}));
        scene.namespace("team-a", "u", false);
        put_manager(&scene, None);
        let read = revision(&scene.server.object::<DeletedNamespaces>("", "fire-1"));
        let (end, sent) = reconciled(&mut scene, |_| {}, answer).await;
        assert_eq!((end, lines(&sent)), (expected, vec![DELETE.to_owned()]), "{answer:?}");
        assert_eq!(required(&sent[0]), read);
    }
}

#[tokio::test(start_paused = true)]
async fn nothing_is_withdrawn_if_fresh_reads_find_the_decision_or_do_not_find_the_namespace() {
    let decided = |scene: &Scene| put_manager(scene, Some("fire-1"));
    let accepted = |scene: &Scene| scene.namespace("team-a", "u", true);
    let gone = |scene: &Scene| scene.server.remove::<Namespaces>("", "team-a");
    let happens: [&dyn Fn(&Scene); 3] = [&decided, &accepted, &gone];
    for meanwhile in happens {
        let mut scene = record(&json!({}));
        scene.namespace("team-a", "u", false);
        put_manager(&scene, None);
        let (end, sent) = reconciled(&mut scene, meanwhile, WriteAnswer::Done).await;
        assert_eq!((end, lines(&sent)), ("behind", Vec::new()));
    }
}

#[tokio::test(start_paused = true)]
async fn a_record_that_was_kept_long_enough_is_deleted_as_it_was_read() {
    for (answer, expected) in ENDS {
        let mut scene = record(&json!({"phase": "Deleted", "deletedAt": "2025-11-01T00:00:00Z"}));
        let read = revision(&scene.server.object::<DeletedNamespaces>("", "fire-1"));
        let (end, sent) = reconciled(&mut scene, |_| {}, answer).await;
        assert_eq!((end, lines(&sent)), (expected, vec![DELETE.to_owned()]), "{answer:?}");
        assert_eq!(required(&sent[0]), read);
    }
}
