use coppice_runtime::leader::Gate;
use http::Method;
use serde_json::{Value, json};
use std::sync::Mutex;
use std::time::Duration;

use super::*;
use coppice_scripted::{Answer, scripted};

fn spec(attempted_at: &str) -> DeletedNamespaceSpec {
    DeletedNamespaceSpec {
        namespace: "team-a".to_owned(),
        uid: "u".to_owned(),
        namespace_created: "2026-01-01T00:00:00Z".parse().unwrap(),
        manager_kind: "NamespaceManager".to_owned(),
        manager: "m".to_owned(),
        policy: "end".to_owned(),
        decided_at: DECIDED.parse().unwrap(),
        attempted_at: attempted_at.parse().unwrap(),
        reason: "TtlElapsed".to_owned(),
        evidence: [("due".to_owned(), DECIDED.to_owned())].into(),
        losses: None,
        notification: None,
    }
}

const DECIDED: &str = "2026-01-02T00:00:00Z";
const ATTEMPTED: &str = "2026-01-02T00:05:00Z";

fn stored(attempted_at: &str) -> Value {
    json!({"metadata": {"name": "fire-1", "uid": "r", "resourceVersion": "7"}, "spec": spec(attempted_at)})
}

/// Stores the record of `fire-1`; what came of it, and the requests.
async fn store_by(
    answer: impl Fn(&Method) -> Answer + Send + Sync + 'static,
) -> (Result<StoredRecord, StoreRecordError>, Vec<(Method, Value)>) {
    let (clients, requests) = scripted(move |method, _, _| answer(method));
    let permit = Gate::always(Duration::ZERO).permit().unwrap();
    let result = store(&clients, &permit, "fire-1", &spec(ATTEMPTED)).await;
    let requests = requests.lock().unwrap().iter().map(|r| (r.method.clone(), r.body.clone())).collect();
    (result, requests)
}

#[tokio::test(start_paused = true)]
async fn a_record_says_what_is_deleted_and_why_and_can_be_found_by_its_namespace() {
    let (result, requests) = store_by(|_| Answer::Object(201, stored(ATTEMPTED))).await;
    let proof = StoredRecord { decision: "fire-1".to_owned(), uid: "u".to_owned() };
    assert_eq!(result.unwrap(), proof);
    let [(Method::POST, body)] = requests.as_slice() else { panic!("{requests:?}") };
    assert_eq!(body["kind"], "DeletedNamespace");
    let metadata = json!({"name": "fire-1", "labels": {"coppice.dev/namespace": "team-a"}});
    assert_eq!(body["metadata"], metadata);
    assert_eq!(body["spec"], serde_json::to_value(spec(ATTEMPTED)).unwrap());
}

#[tokio::test(start_paused = true)]
async fn what_this_attempt_has_stored_already_is_left_as_it_is() {
    for lost in [Some(409), None] {
        let (result, requests) = store_by(move |method| match (method, lost) {
            (&Method::GET, _) => Answer::Object(200, stored(ATTEMPTED)),
            (_, Some(code)) => Answer::Refused(code),
            (_, None) => Answer::Never,
        })
        .await;
        assert!(result.is_ok(), "{lost:?}: {result:?}");
        let methods: Vec<_> = requests.into_iter().map(|(method, _)| method).collect();
        assert_eq!(methods, [Method::POST, Method::GET], "{lost:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_later_attempt_replaces_the_record_of_an_earlier_one() {
    let (result, requests) = store_by(|method| match *method {
        Method::POST => Answer::Refused(409),
        _ => Answer::Object(200, stored(DECIDED)),
    })
    .await;
    assert!(result.is_ok(), "{result:?}");
    let [_, _, (Method::PUT, body)] = requests.as_slice() else { panic!("{requests:?}") };
    assert_eq!((&body["metadata"]["uid"], &body["metadata"]["resourceVersion"]), (&json!("r"), &json!("7")));
    assert_eq!(body["spec"]["attemptedAt"], ATTEMPTED);
}

#[tokio::test(start_paused = true)]
async fn without_a_record_there_is_no_proof() {
    let (unknown, _) = store_by(|_| Answer::Refused(404)).await;
    assert!(unknown.unwrap_err().to_string().contains("apply the CRDs"));
    let (refused, _) = store_by(|_| Answer::Refused(403)).await;
    assert!(matches!(refused, Err(StoreRecordError::Write(WriteError::Refused(_)))));
    let (lost, _) = store_by(|method| match *method {
        Method::POST => Answer::Never,
        _ => Answer::Refused(404),
    })
    .await;
    assert!(matches!(lost, Err(StoreRecordError::Write(WriteError::Ambiguous(_)))));
    let (unreadable, _) = store_by(|method| match *method {
        Method::POST => Answer::Refused(409),
        _ => Answer::Refused(500),
    })
    .await;
    assert!(matches!(unreadable, Err(StoreRecordError::Read(_))));
}

#[tokio::test(start_paused = true)]
async fn a_record_that_goes_or_changes_meanwhile_is_no_proof() {
    let cases: [(Answer, Option<Answer>, &str); 3] = [
        (Answer::Refused(404), None, "withdrawn"),
        (Answer::Object(200, stored(DECIDED)), Some(Answer::Refused(409)), "withdrawn"),
        (Answer::Object(200, terminating()), None, "finalizers"),
    ];
    for (found, replaced, says) in cases {
        let (found, replaced) = (Mutex::new(Some(found)), Mutex::new(replaced));
        let (result, _) = store_by(move |method| match *method {
            Method::POST => Answer::Refused(409),
            Method::GET => found.lock().unwrap().take().unwrap(),
            _ => replaced.lock().unwrap().take().unwrap(),
        })
        .await;
        let error = result.unwrap_err().to_string();
        assert!(error.contains(says), "{error}");
    }
}

fn terminating() -> Value {
    let mut record = stored(DECIDED);
    record["metadata"]["deletionTimestamp"] = json!(DECIDED);
    record
}
