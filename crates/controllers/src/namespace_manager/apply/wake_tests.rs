use std::sync::Arc;
use std::time::Duration;

use coppice_kinds::Managers;
use coppice_scripted::WriteAnswer;
use serde_json::{Value, json};

use super::super::super::NamespaceManagers;
use super::super::tests::{begins_with, deployment, ended, following, put_deployment, recorded, scaled};
use crate::test_scene::{Scene, lines, required, revision};

const STATUS: &str = "PUT namespaces/ci-1/namespacemanagers/end/status";
const SCALE: &str = "PATCH /apis/apps/v1/namespaces/ci-1/deployments/web/scale";

/// A namespace whose manager has scaled a Deployment of three replicas down, and is asked to wake it.
async fn asked() -> (Scene, Arc<NamespaceManagers>) {
    let scene = Scene::new().with_settings();
    put_deployment(&scene, 0);
    // Its policy is not due for the time being.
    let policy = json!({"name": "end", "when": {"ttl": {"after": "48h"}}, "then": {"scaleDown": {}}});
    let spec = json!({"policies": [policy], "wake": 1});
    following(scene, &spec, &json!({"firings": 1, "scaledDown": recorded()})).await
}

#[tokio::test(start_paused = true)]
async fn a_workload_has_its_replicas_back_as_it_was_read_and_is_not_recorded_any_more() {
    let (scene, controller) = asked().await;
    let read = revision(&deployment(&scene));
    let (_, sent) = ended(&scene, &controller, &[]).await;
    begins_with(&sent, &[STATUS, SCALE, STATUS]);
    let decided = &sent[0].body["status"];
    assert_eq!((&decided["intent"]["action"], &decided["intent"]["uid"]), (&json!("wake"), &json!("u")));
    assert_eq!(decided["scaledDown"], recorded(), "the list stays until it is done");
    assert_eq!((required(&sent[1]), &sent[1].body["spec"]), (read, &json!({"replicas": 3})));
    let outcome = &sent[2].body["status"];
    assert!(outcome["intent"].is_null() && outcome["scaledDown"].is_null(), "{outcome:#}");
    assert_eq!(outcome["firings"], 1, "waking is no firing");
    assert_eq!((deployment(&scene)["spec"]["replicas"].as_i64(), scaled(&sent).len()), (Some(3), 1));
}

#[tokio::test(start_paused = true)]
async fn a_workload_is_woken_once_however_its_answer_ends_unless_that_is_refused() {
    for (answer, requests, replicas) in [
        (WriteAnswer::Conflict, 2, json!(3)),
        (WriteAnswer::Lost, 1, json!(3)),
        (WriteAnswer::Never, 2, json!(3)),
        (WriteAnswer::Gone, 1, Value::Null),
    ] {
        let (scene, controller) = asked().await;
        let read = revision(&deployment(&scene));
        let (_, sent) = ended(&scene, &controller, &[WriteAnswer::Done, answer]).await;
        let scaled = scaled(&sent);
        assert_eq!(scaled.len(), requests, "{answer:?}: {:?}", lines(&sent));
        assert_eq!(required(scaled[0]), read, "{answer:?}");
        if answer == WriteAnswer::Conflict {
            assert_ne!(required(scaled[1])["resourceVersion"], read["resourceVersion"]);
        }
        assert_eq!(deployment(&scene)["spec"]["replicas"], replicas, "{answer:?}");
        let status = &sent[1 + requests].body["status"];
        assert!(status["intent"].is_null() && status["scaledDown"].is_null(), "{answer:?}: {status:#}");
    }
}

#[tokio::test(start_paused = true)]
async fn what_is_refused_stays_recorded_and_is_tried_again_for_as_long_as_there_is_a_manager() {
    let (scene, controller) = asked().await;
    let (end, sent) = ended(&scene, &controller, &[WriteAnswer::Done, WriteAnswer::Refused(403)]).await;
    begins_with(&sent, &[STATUS, SCALE, STATUS]);
    let status = &sent[2].body["status"];
    let error = status["intent"]["lastError"].as_str().unwrap();
    assert!(error.starts_with("Deployment web: "), "{error}");
    assert_eq!((end, &status["scaledDown"]), ("later", &recorded()));
    assert_eq!(deployment(&scene)["spec"]["replicas"], 0);
    // It is gone when it is tried again.
    scene.server.remove::<Managers>("ci-1", "end");
    tokio::time::advance(Duration::from_secs(10)).await;
    let (end, sent) = ended(&scene, &controller, &[]).await;
    assert_eq!((end, scaled(&sent).len()), ("done", 0), "{:?}", lines(&sent));
    assert_eq!(deployment(&scene)["spec"]["replicas"], 0);
}
