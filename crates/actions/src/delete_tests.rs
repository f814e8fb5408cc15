use std::sync::{Arc, Mutex};
use std::time::Duration;

use coppice_api::{CoppiceConfigSpec, Labels};
use coppice_kinds::Configs;
use coppice_runtime::client::Deadlines;
use coppice_runtime::clock::Clock;
use coppice_runtime::decode;
use coppice_runtime::leader::Gate;
use coppice_runtime::metrics::Metrics;
use coppice_runtime::server_clock::ServerClock;
use http::{Method, Request, Response};
use http_body_util::BodyExt as _;
use jiff::Timestamp;
use kube::client::Body;
use kube::core::Status;
use serde_json::{Value, json};
use tower::BoxError;

use super::*;

/// What the API server has when it is asked after the DELETE.
enum Then {
    Namespace { uid: &'static str, terminating: bool },
    Nothing,
    NoAnswer,
}

/// Deletes namespace `a` with uid `u` and revision `7`; the DELETE is answered with this code (none: not at all). What
/// came of it, and the requests.
async fn deletion(code: Option<u16>, then: Then) -> (Result<Deletion, DeleteError>, Vec<(Method, Value)>) {
    let requests: Arc<Mutex<Vec<(Method, Value)>>> = Arc::default();
    let (log, then) = (Arc::clone(&requests), Arc::new(then));
    let service = tower::service_fn(move |request: Request<Body>| {
        let (log, then) = (Arc::clone(&log), Arc::clone(&then));
        async move {
            let method = request.method().clone();
            let body = request.into_body().collect().await?.to_bytes();
            let body = serde_json::from_slice(&body).unwrap_or(Value::Null);
            log.lock().unwrap().push((method.clone(), body));
            let refused = |code| (code, serde_json::to_value(Status::failure("no", "Odd").with_code(code)));
            let (code, body) = match (method == Method::DELETE, code, &*then) {
                (true, None, _) | (false, _, Then::NoAnswer) => std::future::pending().await,
                (true, Some(200), _) => (200, Ok(namespace("u", true))),
                (true, Some(code), _) => refused(code),
                (false, _, Then::Namespace { uid, terminating }) => (200, Ok(namespace(uid, *terminating))),
                (false, _, Then::Nothing) => refused(404),
            };
            let body = serde_json::to_vec(&body?)?;
            Ok::<_, BoxError>(Response::builder().status(code).body(axum::body::Body::from(body))?)
        }
    });
    let now: Timestamp = "2026-01-01T00:00:00Z".parse().unwrap();
    let server_clock = ServerClock::new(Clock::following_tokio(now));
    let clients = Clients::over(&service, Deadlines::default(), &server_clock, &Metrics::new("test"));
    let permit = Gate::always(Duration::ZERO).permit().unwrap();
    let settings = json!({"metadata": {"name": "coppice", "uid": "s"}, "spec": {}}).to_string();
    let reservation = Reservation::for_tests(decode::item::<Configs>(&settings).object.unwrap());
    let platform = PlatformSettings::new(CoppiceConfigSpec::default(), "coppice-system", Vec::new());
    let before = NamespaceFacts {
        name: "a".to_owned(),
        uid: "u".to_owned(),
        resource_version: "7".to_owned(),
        created: now,
        labels: Labels::default(),
        terminating: false,
    };
    let done = super::namespace(&clients, &permit, &reservation, &platform, "u", &before).await;
    let requests = requests.lock().unwrap().clone();
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
    assert!(matches!(done, Ok(Deletion::Done(Some(now))) if now.terminating && now.resource_version == "8"));
    let [(method, body)] = requests.as_slice() else { panic!("{requests:?}") };
    assert_eq!(
        (method, &body["preconditions"]),
        (&Method::DELETE, &json!({"uid": "u", "resourceVersion": "7"}))
    );
}

#[tokio::test(start_paused = true)]
async fn a_namespace_that_was_deleted_already_is_deleted_and_one_that_was_edited_is_not() {
    for (then, expected) in [
        (THERE, Deletion::Changed),
        (TERMINATING, Deletion::AlreadyGone),
        (ANOTHER, Deletion::AlreadyGone),
        (Then::Nothing, Deletion::AlreadyGone),
        (Then::NoAnswer, Deletion::Changed),
    ] {
        assert_eq!(deletion(Some(409), then).await.0.unwrap(), expected);
    }
    assert_eq!(deletion(Some(404), THERE).await.0.unwrap(), Deletion::AlreadyGone);
    assert!(matches!(deletion(Some(403), THERE).await.0, Err(DeleteError::Refused(_))));
}

#[tokio::test(start_paused = true)]
async fn a_lost_answer_says_nothing_and_a_fresh_read_does() {
    for then in [TERMINATING, ANOTHER, Then::Nothing] {
        assert_eq!(deletion(None, then).await.0.unwrap(), Deletion::AlreadyGone);
    }
    assert!(matches!(deletion(None, THERE).await.0, Err(DeleteError::NotDeleted(_))));
    assert!(matches!(deletion(None, Then::NoAnswer).await.0, Err(DeleteError::Unknown { .. })));
}
