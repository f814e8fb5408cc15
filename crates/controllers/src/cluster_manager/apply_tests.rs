use std::sync::{Arc, OnceLock};

use coppice_scripted::{Sent, WriteAnswer};
use serde_json::{Value, json};

use super::super::{AllManagers, ClusterNamespaceManagers, INTERVAL};
use super::*;
use crate::test_scene::{Scene, lines, reconcile, required, revision};

const CI: &str = "PUT clusternamespacemanagers/ci/status";
const DEV: &str = "PUT clusternamespacemanagers/dev/status";

/// Two cluster managers, of which `ci` governs a namespace.
async fn managers() -> (Scene, Arc<ClusterNamespaceManagers>) {
    let mut scene = Scene::new().with_settings();
    scene.namespace("ci-1", "u", false);
    for name in ["ci", "dev"] {
        let spec = json!({"selector": {"names": [format!("{name}-*")]}});
        scene.server.put::<ClusterManagers>(json!({"metadata": {"name": name}, "spec": spec}));
    }
    let records = Arc::new(OnceLock::new());
    let controller = Arc::new(ClusterNamespaceManagers::new(Arc::clone(&scene.shared), records));
    scene.followers.fill(&scene.shared.managers).await;
    scene.followers.add(&controller).await;
    (scene, controller)
}

/// What comes of a count where writes are answered so, and which were made.
async fn counted(
    (scene, controller): &(Scene, Arc<ClusterNamespaceManagers>),
    answers: &[WriteAnswer],
) -> (&'static str, Vec<Sent>) {
    scene.server.answer_writes(answers.iter().copied());
    let end = reconcile(controller, AllManagers).await;
    tokio::time::advance(INTERVAL).await;
    (end, scene.server.writes())
}

fn governed(sent: &Sent) -> &Value {
    &sent.body["status"]["namespaces"]["governed"]
}

#[tokio::test(start_paused = true)]
async fn each_status_is_written_at_the_revision_that_was_read_and_only_if_it_says_something_new() {
    let managers = managers().await;
    let read = revision(&managers.0.server.object::<ClusterManagers>("", "ci"));
    let (end, sent) = counted(&managers, &[]).await;
    assert_eq!((end, lines(&sent)), ("done", vec![CI.to_owned(), DEV.to_owned()]));
    assert_eq!(required(&sent[0]), read);
    assert_eq!((governed(&sent[0]), governed(&sent[1])), (&json!(1), &json!(0)));
    let (end, sent) = counted(&managers, &[]).await;
    assert_eq!((end, lines(&sent)), ("done", Vec::new()));
}

#[tokio::test(start_paused = true)]
async fn a_status_that_is_not_written_keeps_no_other_from_it() {
    for (answer, expected) in [
        (WriteAnswer::Conflict, "behind"),
        (WriteAnswer::Gone, "done"),
        (WriteAnswer::Lost, "api"),
        (WriteAnswer::Refused(403), "api"),
        (WriteAnswer::Never, "api"),
    ] {
        let managers = managers().await;
        let (end, sent) = counted(&managers, &[answer]).await;
        assert_eq!((end, lines(&sent)), (expected, vec![CI.to_owned(), DEV.to_owned()]), "{answer:?}");
        let stored = managers.0.server.object::<ClusterManagers>("", "dev");
        assert_eq!(stored["status"]["observedGeneration"], 1, "{answer:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn what_somebody_else_has_written_or_a_lost_answer_has_stored_is_not_overwritten() {
    for answer in [WriteAnswer::Conflict, WriteAnswer::Lost] {
        let managers = managers().await;
        counted(&managers, &[answer]).await;
        let stored = managers.0.server.object::<ClusterManagers>("", "ci");
        // The watch has not shown it yet.
        let (end, sent) = counted(&managers, &[]).await;
        assert_eq!((end, lines(&sent)), ("behind", vec![CI.to_owned()]), "{answer:?}");
        assert_eq!(managers.0.server.object::<ClusterManagers>("", "ci"), stored);
    }
}
