use std::sync::Arc;

use coppice_kinds::Managers;
use coppice_scripted::WriteAnswer;
use serde_json::{Value, json};

use super::super::super::NamespaceManagers;
use super::super::tests::{
    after_an_hour, begins_with, deployment, ended, following, put_deployment, recorded, scaled,
};
use crate::test_scene::{Scene, lines, required, revision};

const STATUS: &str = "PUT namespaces/ci-1/namespacemanagers/end/status";
const RESERVE: &str = "PUT coppiceconfigs/coppice/status";
const SCALE: &str = "PATCH /apis/apps/v1/namespaces/ci-1/deployments/web/scale";

/// A namespace that is a day old, with a Deployment of three replicas, and a manager that scales it down after an hour.
async fn due() -> (Scene, Arc<NamespaceManagers>) {
    let scene = Scene::new().with_settings();
    put_deployment(&scene, 3);
    following(scene, &after_an_hour(&json!({"scaleDown": {}})), &Value::Null).await
}

#[tokio::test(start_paused = true)]
async fn replicas_are_written_down_before_a_workload_is_scaled_down_as_it_was_read() {
    let (scene, controller) = due().await;
    let read = revision(&deployment(&scene));
    let (_, sent) = ended(&scene, &controller, &[]).await;
    begins_with(&sent, &[STATUS, RESERVE, STATUS, SCALE, STATUS]);
    let intent = &sent[0].body["status"]["intent"];
    assert_eq!((&intent["action"], &intent["uid"]), (&json!("scaleDown"), &json!("u")));
    assert!(sent[0].body["status"]["scaledDown"].is_null(), "nothing was decided about workloads yet");
    assert_eq!(sent[2].body["status"]["scaledDown"], recorded());
    assert_eq!((required(&sent[3]), &sent[3].body["spec"]), (read, &json!({"replicas": 0})));
    let outcome = &sent[4].body["status"];
    assert_eq!((&outcome["firings"], &outcome["lastFiring"]["id"]), (&json!(1), &intent["id"]));
    assert_eq!(
        (&outcome["lastFiring"]["result"], &outcome["scaledDown"]),
        (&json!("ScaledDown"), &recorded())
    );
    assert!(outcome["intent"].is_null(), "{outcome:#}");
    assert_eq!(deployment(&scene)["spec"]["replicas"], 0);
}

#[tokio::test(start_paused = true)]
async fn a_workload_is_scaled_down_again_only_after_a_conflict_and_what_was_not_touched_is_not_recorded() {
    for (answer, requests, replicas, firings, is_recorded) in [
        (WriteAnswer::Conflict, 2, json!(0), 1, true),
        // Whether it was done is read.
        (WriteAnswer::Lost, 1, json!(0), 1, true),
        (WriteAnswer::Gone, 1, Value::Null, 1, false),
        (WriteAnswer::Refused(403), 1, json!(3), 0, false),
    ] {
        let (scene, controller) = due().await;
        let read = revision(&deployment(&scene));
        let answers = [WriteAnswer::Done, WriteAnswer::Done, WriteAnswer::Done, answer];
        let (_, sent) = ended(&scene, &controller, &answers).await;
        begins_with(&sent, &[STATUS, RESERVE, STATUS, SCALE]);
        let scaled = scaled(&sent);
        assert_eq!(scaled.len(), requests, "{answer:?}: {:?}", lines(&sent));
        assert_eq!(required(scaled[0]), read, "{answer:?}");
        if let Some(again) = scaled.get(1) {
            assert_ne!(required(again)["resourceVersion"], read["resourceVersion"]);
        }
        assert_eq!(deployment(&scene)["spec"]["replicas"], replicas, "{answer:?}");
        let status = &sent[3 + requests].body["status"];
        assert_eq!(status["firings"], firings, "{answer:?}: {status:#}");
        let expected = if is_recorded { recorded() } else { Value::Null };
        assert_eq!(status["scaledDown"], expected, "{answer:?}");
        let error = status["intent"]["lastError"].as_str();
        assert_eq!(
            error.is_some_and(|error| error.starts_with("Deployment web: ")),
            firings == 0,
            "{error:?}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn nothing_is_scaled_down_where_one_of_the_writes_before_is_not_made() {
    for (done, answer, end, expected) in [
        // Its intent.
        (0, WriteAnswer::Refused(403), "api", &[STATUS][..]),
        (0, WriteAnswer::Gone, "done", &[STATUS]),
        // Its part of the budget: why it failed is written.
        (1, WriteAnswer::Refused(403), "later", &[STATUS, RESERVE, STATUS]),
        // The replicas.
        (2, WriteAnswer::Refused(403), "api", &[STATUS, RESERVE, STATUS]),
        (2, WriteAnswer::Gone, "done", &[STATUS, RESERVE, STATUS]),
    ] {
        let (scene, controller) = due().await;
        let answers: Vec<_> = [WriteAnswer::Done; 2].into_iter().take(done).chain([answer]).collect();
        let (ends, sent) = ended(&scene, &controller, &answers).await;
        begins_with(&sent, expected);
        assert_eq!((ends, scaled(&sent).len()), (end, 0), "{answer:?} after {done}: {:?}", lines(&sent));
        assert_eq!(deployment(&scene)["spec"]["replicas"], 3, "{answer:?} after {done}");
    }
}

#[tokio::test(start_paused = true)]
async fn replicas_of_which_it_is_not_known_whether_they_are_written_down_are_read_before_anything_is_touched()
{
    for (answer, expected) in [
        (WriteAnswer::Conflict, &[STATUS, RESERVE, STATUS, RESERVE, STATUS, SCALE, STATUS][..]),
        (WriteAnswer::Lost, &[STATUS, RESERVE, STATUS, RESERVE, SCALE, STATUS]),
    ] {
        let (scene, controller) = due().await;
        let (_, sent) = ended(&scene, &controller, &[WriteAnswer::Done, WriteAnswer::Done, answer]).await;
        begins_with(&sent, expected);
        assert_eq!(scaled(&sent).len(), 1, "{answer:?}");
        let status = &scene.server.object::<Managers>("ci-1", "end")["status"];
        assert_eq!((&status["firings"], &status["scaledDown"]), (&json!(1), &recorded()), "{answer:?}");
    }
}
