use std::time::Duration;

use coppice_api::{CoppiceConfigSpec, Labels};
use coppice_kinds::Configs;
use coppice_runtime::decode;
use coppice_runtime::leader::{Gate, gate};
use http::Method;
use serde_json::{Value, json};
use tokio::time::{Instant, advance};

use coppice_lifecycle::facts::Annotations;

use super::*;
use coppice_scripted::{Answer, Sent, scripted};

/// What the API server has when it is asked after the DELETE.
enum Then {
    Namespace { uid: &'static str, terminating: bool },
    Nothing,
    NoAnswer,
}

/// Deletes namespace `a` with uid `u` and revision `7`; the DELETE is answered with this code (none: not at all). What
/// came of it, and the requests.
async fn deletion(code: Option<u16>, then: Then) -> (Result<DeletionOutcome, DeleteError>, Vec<Sent>) {
    deletion_by(&Gate::always(Duration::ZERO).permit().unwrap(), code, then).await
}

/// The same with a permit.
async fn deletion_by(
    permit: &Permit,
    code: Option<u16>,
    then: Then,
) -> (Result<DeletionOutcome, DeleteError>, Vec<Sent>) {
    let (clients, requests) = scripted(move |method, _, _| match (method, code, &then) {
        (&Method::DELETE, None, _) | (&Method::GET, _, Then::NoAnswer) => Answer::Never,
        (&Method::DELETE, Some(200), _) => Answer::Object(200, namespace("u", true)),
        (&Method::DELETE, Some(code), _) => Answer::Refused(code),
        (_, _, Then::Namespace { uid, terminating }) => Answer::Object(200, namespace(uid, *terminating)),
        (_, _, Then::Nothing | Then::NoAnswer) => Answer::Refused(404),
    });
    let settings = json!({"metadata": {"name": "coppice", "uid": "s"}, "spec": {}}).to_string();
    let reservation =
        Reservation::for_tests(decode::item::<Configs>(&settings, &()).unwrap().object.unwrap());
    let platform = PlatformSettings::new(CoppiceConfigSpec::default(), "coppice-system", Vec::new());
    let before = NamespaceFacts {
        name: "a".to_owned(),
        uid: "u".to_owned(),
        resource_version: "7".to_owned(),
        created: "2026-01-01T00:00:00Z".parse().unwrap(),
        labels: Labels::default(),
        annotations: Annotations::default(),
        terminating: false,
    };
    let record = StoredRecord { decision: "fire-1".to_owned(), uid: "u".to_owned() };
    let done = super::namespace(&clients, permit, reservation, &platform, &record, &before).await;
    let requests = std::mem::take(&mut *requests.lock().unwrap());
    (done, requests)
}

fn namespace(uid: &str, terminating: bool) -> Value {
    let deleted = terminating.then_some("2026-01-01T00:00:01Z");
    json!({"apiVersion": "v1", "kind": "Namespace",
           "metadata": {"name": "a", "uid": uid, "resourceVersion": "8", "deletionTimestamp": deleted}})
}

const THERE: Then = Then::Namespace { uid: "u", terminating: false };
const TERMINATING: Then = Then::Namespace { uid: "u", terminating: true };
const ANOTHER: Then = Then::Namespace { uid: "v", terminating: false };

#[tokio::test(start_paused = true)]
async fn a_deletion_carries_the_uid_and_the_revision_that_were_read() {
    let (done, requests) = deletion(Some(200), THERE).await;
    assert!(
        matches!(done, Ok(DeletionOutcome::Done(Some(now))) if now.terminating && now.resource_version == "8")
    );
    let [Sent { method: Method::DELETE, headers, body, .. }] = requests.as_slice() else {
        panic!("{}", requests.len())
    };
    assert_eq!(body["preconditions"], json!({"uid": "u", "resourceVersion": "7"}));
    let agents: Vec<_> = headers.get_all(http::header::USER_AGENT).iter().collect();
    assert_eq!(
        agents,
        [&format!("{USER_AGENT} (decision fire-1)")],
        "it leads from the audit log to the record"
    );
}

#[tokio::test(start_paused = true)]
async fn nothing_is_sent_once_the_lease_was_not_renewed_in_time() {
    let deadline = Duration::from_secs(10);
    let (gate_handle, gate) = gate(deadline);
    gate_handle.renewed(Instant::now(), Duration::ZERO, 0);
    let permit = gate.permit().unwrap();
    advance(Duration::from_millis(9_999)).await;
    assert!(matches!(deletion_by(&permit, Some(200), THERE).await.0, Ok(DeletionOutcome::Done(_))));
    advance(Duration::from_millis(1)).await;
    let (done, requests) = deletion_by(&permit, Some(200), THERE).await;
    assert!(matches!(done, Err(DeleteError::NotLeading(NotLeader::Expired { age })) if age == deadline));
    assert_eq!(requests.len(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_namespace_that_was_deleted_already_is_deleted_and_one_that_was_edited_is_not() {
    for then in [TERMINATING, ANOTHER, Then::Nothing] {
        assert!(matches!(deletion(Some(409), then).await.0, Ok(DeletionOutcome::AlreadyGone)));
    }
    // What was reserved comes back, for the next attempt.
    for then in [THERE, Then::NoAnswer] {
        assert!(matches!(deletion(Some(409), then).await.0, Ok(DeletionOutcome::Changed(_))));
    }
    assert!(matches!(deletion(Some(404), THERE).await.0, Ok(DeletionOutcome::AlreadyGone)));
    assert!(matches!(deletion(Some(403), THERE).await.0, Err(DeleteError::Refused(_))));
}

#[tokio::test(start_paused = true)]
async fn a_lost_answer_says_nothing_and_a_fresh_read_does() {
    for then in [TERMINATING, ANOTHER, Then::Nothing] {
        assert!(matches!(deletion(None, then).await.0, Ok(DeletionOutcome::AlreadyGone)));
    }
    assert!(matches!(deletion(None, THERE).await.0, Err(DeleteError::NotDeleted(_))));
    assert!(matches!(deletion(None, Then::NoAnswer).await.0, Err(DeleteError::Unknown { .. })));
}
