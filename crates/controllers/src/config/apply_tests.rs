use std::sync::Arc;

use coppice_kinds::Configs;
use coppice_scripted::{Sent, WriteAnswer};
use serde_json::{Value, json};

use super::super::{PlatformConfig, SettingsKey};
use super::*;
use crate::test_scene::{Scene, lines, reconcile, required, revision};

const CREATE_CONFIG: &str = "POST coppiceconfigs";
const CREATE_KEY: &str = "POST namespaces/coppice-system/secrets";
const WRITE_STATUS: &str = "PUT coppiceconfigs/coppice/status";

/// What comes of a reconcile where writes are answered so, and which were made.
async fn reconciled(scene: &Scene, answers: &[WriteAnswer]) -> (&'static str, Vec<Sent>) {
    scene.server.answer_writes(answers.iter().copied());
    let controller = Arc::new(PlatformConfig::new(Arc::clone(&scene.shared), |_| {}));
    let end = reconcile(&controller, SettingsKey).await;
    (end, scene.server.writes())
}

fn put_key(scene: &Scene, data: &Value) {
    let path = format!("/api/v1/namespaces/coppice-system/secrets/{WEBHOOK_KEY_SECRET}");
    scene.server.put_at(&path, json!({"metadata": {"name": WEBHOOK_KEY_SECRET}, "data": data}));
}

#[tokio::test(start_paused = true)]
async fn the_very_first_start_creates_the_settings_then_the_key_and_then_says_what_is_in_force() {
    let scene = Scene::new();
    let (end, sent) = reconciled(&scene, &[]).await;
    assert_eq!(
        (end, lines(&sent)),
        ("done", [CREATE_CONFIG, CREATE_KEY, WRITE_STATUS].map(str::to_owned).into())
    );
    assert_eq!(sent[0].body["metadata"], json!({"name": "coppice"}));
    assert_eq!(sent[1].body["metadata"]["name"], WEBHOOK_KEY_SECRET);
    assert!(sent[1].body["data"][KEY_FIELD].is_string());
    let status = &sent[2].body["status"];
    assert!(status["webhookKey"].as_str().unwrap().starts_with("whpk_"), "{status}");
    assert_eq!(status["conditions"][0]["status"], "True");
    let (end, sent) = reconciled(&scene, &[]).await;
    assert_eq!((end, lines(&sent)), ("done", Vec::new()), "nothing is new");
}

#[tokio::test(start_paused = true)]
async fn a_write_whose_answer_was_lost_is_read_and_not_made_again() {
    let scene = Scene::new();
    let (end, sent) = reconciled(&scene, &[WriteAnswer::Lost; 3]).await;
    assert_eq!(
        (end, lines(&sent)),
        ("done", [CREATE_CONFIG, CREATE_KEY, WRITE_STATUS].map(str::to_owned).into())
    );
}

#[tokio::test(start_paused = true)]
async fn a_write_that_is_refused_ends_the_reconcile_and_nothing_that_rests_on_it_follows() {
    let refused = WriteAnswer::Refused(403);
    for (answers, expected) in [
        (&[refused][..], &[CREATE_CONFIG][..]),
        (&[WriteAnswer::Done, refused], &[CREATE_CONFIG, CREATE_KEY]),
        (&[WriteAnswer::Done, WriteAnswer::Done, refused], &[CREATE_CONFIG, CREATE_KEY, WRITE_STATUS]),
    ] {
        let (end, sent) = reconciled(&Scene::new(), answers).await;
        assert_eq!((end, lines(&sent)), ("settings", expected.iter().map(ToString::to_string).collect()));
    }
}

#[tokio::test(start_paused = true)]
async fn after_a_conflict_the_status_is_decided_again_on_the_newer_revision() {
    let scene = Scene::new().with_settings();
    reconciled(&scene, &[]).await;
    scene.server.put::<Configs>(json!({"metadata": {"name": "coppice", "generation": 2}, "spec": {}}));
    let read = revision(&scene.server.object::<Configs>("", "coppice"));
    let (end, sent) = reconciled(&scene, &[WriteAnswer::Conflict]).await;
    assert_eq!((end, lines(&sent)), ("done", vec![WRITE_STATUS.to_owned(); 2]));
    assert_eq!(
        (required(&sent[0]), &sent[0].body["status"]["observedGeneration"]),
        (read.clone(), &json!(2))
    );
    assert_ne!(required(&sent[1])["resourceVersion"], read["resourceVersion"], "it was read again");
}

#[tokio::test(start_paused = true)]
async fn settings_that_are_deleted_meanwhile_are_not_created_again() {
    let scene = Scene::new().with_settings();
    reconciled(&scene, &[]).await;
    scene.server.put::<Configs>(json!({"metadata": {"name": "coppice", "generation": 2}, "spec": {}}));
    let (end, sent) = reconciled(&scene, &[WriteAnswer::Gone]).await;
    assert_eq!((end, lines(&sent)), ("done", vec![WRITE_STATUS.to_owned()]));
}

#[tokio::test(start_paused = true)]
async fn a_key_that_there_is_is_never_replaced() {
    for data in [json!({}), json!({KEY_FIELD: "bm8ga2V5"})] {
        let scene = Scene::new().with_settings();
        put_key(&scene, &data);
        let (end, sent) = reconciled(&scene, &[]).await;
        assert_eq!((end, lines(&sent)), ("done", vec![WRITE_STATUS.to_owned()]), "{data}");
        let ready = &sent[0].body["status"]["conditions"][0];
        assert!(ready["message"].as_str().unwrap().contains("webhooks wait"), "{ready}");
    }
}
