use std::sync::{Arc, Mutex};
use std::time::Duration;

use http::{Method, Response};
use http_body_util::BodyExt as _;
use kube::client::Body;
use serde_json::{Value, json};
use tower::BoxError;

use super::*;
use crate::client::Deadlines;
use crate::clock::Clock;
use crate::leader::Gate;
use crate::metrics::Metrics;
use crate::object::{NoAnnotations, Object};
use crate::server_clock::ServerClock;

/// A kind of our own.
#[derive(Debug)]
struct Gadgets;

crate::own_kind!(Gadgets, "/apis/coppice.dev/v1", "gadgets");

impl OwnKind for Gadgets {
    type Spec = Value;
    type Status = Value;
    type Annotations = NoAnnotations;
    const KIND: &'static str = "Gadget";
    const NAMESPACED: bool = true;
    const MAX_SPEC_BYTES: usize = 1000;
}

type Gadget = Object<Value, Value>;

/// What was sent: method, path with query, media type, body.
type Sent = (Method, String, String, Value);

/// Runs this with clients whose requests are answered by method; none is never answered. What was sent.
async fn with<T>(
    answer: impl Fn(&Method) -> Option<(u16, Value)> + Send + Sync + 'static,
    run: impl AsyncFnOnce(&Clients, &Permit) -> T,
) -> (T, Vec<Sent>) {
    let sent: Arc<Mutex<Vec<Sent>>> = Arc::default();
    let (log, answer) = (Arc::clone(&sent), Arc::new(answer));
    let service = tower::service_fn(move |request: Request<Body>| {
        let (log, answer) = (Arc::clone(&log), Arc::clone(&answer));
        async move {
            let (parts, body) = request.into_parts();
            let body = serde_json::from_slice(&body.collect().await?.to_bytes()).unwrap_or(Value::Null);
            let media_type = parts.headers.get(http::header::CONTENT_TYPE);
            let media_type = media_type.map_or("", |value| value.to_str().unwrap()).to_owned();
            let answer = answer(&parts.method);
            log.lock().unwrap().push((parts.method, parts.uri.to_string(), media_type, body));
            let Some((code, object)) = answer else { return std::future::pending().await };
            let mut response = Response::builder().status(code);
            if code == 429 {
                response = response.header(http::header::RETRY_AFTER, "7");
            }
            Ok::<_, BoxError>(response.body(axum::body::Body::from(object.to_string()))?)
        }
    });
    let server_clock = ServerClock::new(Clock::following_tokio("2026-01-01T00:00:00Z".parse().unwrap()));
    let clients = Clients::over(&service, Deadlines::default(), &server_clock, &Metrics::new("test"));
    let permit = Gate::always(Duration::ZERO).permit().unwrap();
    let done = run(&clients, &permit).await;
    let sent = std::mem::take(&mut *sent.lock().unwrap());
    (done, sent)
}

fn gadget(revision: &str, finalizers: &[&str]) -> Value {
    let metadata = json!({"name": "g", "namespace": "n", "uid": "u", "resourceVersion": revision, "finalizers": finalizers});
    json!({"metadata": metadata, "spec": {}, "status": {}})
}

fn read_gadget(revision: &str, finalizers: &[&str]) -> Gadget {
    read::decoded::<Gadgets>(gadget(revision, finalizers).to_string().as_bytes(), &()).unwrap()
}

fn refusal(code: u16, reason: &str, causes: &Value) -> (u16, Value) {
    let message = "Apply failed with 1 conflict: conflict with \"kubectl\" using v1: .spec.size";
    let details = json!({"causes": causes});
    (
        code,
        json!({"kind": "Status", "status": "Failure", "message": message, "reason": reason, "code": code, "details": details}),
    )
}

async fn applied(answer: Option<(u16, Value)>) -> (Result<(), ApplyError>, Vec<Sent>) {
    let object = json!({"apiVersion": "coppice.dev/v1", "kind": "Gadget", "metadata": {"name": "g"}, "spec": {"size": 1}});
    let apply =
        async |clients: &Clients, permit: &Permit| apply::<Gadgets>(clients, permit, "n", "g", &object).await;
    with(move |_| answer.clone(), apply).await
}

#[tokio::test]
async fn an_object_is_applied_in_our_name_and_never_by_force() {
    let (done, sent) = applied(Some((201, gadget("1", &[])))).await;
    done.unwrap();
    let [(method, path, media_type, body)] = sent.as_slice() else { panic!("{sent:?}") };
    assert_eq!((method, media_type.as_str()), (&Method::PATCH, "application/apply-patch+yaml"));
    assert_eq!(path, "/apis/coppice.dev/v1/namespaces/n/gadgets/g?fieldManager=coppice");
    assert_eq!(body["spec"], json!({"size": 1}));
}

#[tokio::test(start_paused = true)]
async fn what_others_manage_is_left_to_them_and_a_lost_answer_is_ambiguous() {
    let causes = json!([{"reason": "FieldManagerConflict", "message": "conflict with \"kubectl\" using v1", "field": ".spec.size"}]);
    let error = applied(Some(refusal(409, "Conflict", &causes))).await.0.unwrap_err();
    assert!(matches!(error, ApplyError::ManagedByOthers(_)), "{error:?}");
    assert!(error.to_string().contains("conflict with \"kubectl\" using v1: .spec.size"), "{error}");
    // The revision that it carried.
    let error = applied(Some(refusal(409, "Conflict", &json!([])))).await.0.unwrap_err();
    assert!(matches!(error, ApplyError::Write(WriteError::Conflict)), "{error:?}");
    let error = applied(Some(refusal(422, "Invalid", &json!([])))).await.0.unwrap_err();
    assert!(matches!(error, ApplyError::Write(WriteError::Refused(_))), "{error:?}");
    for lost in [None, Some(refusal(500, "InternalError", &json!([])))] {
        let error = applied(lost).await.0.unwrap_err();
        assert!(matches!(error, ApplyError::Write(WriteError::Ambiguous(_))), "{error:?}");
    }
}

/// Adds or removes the finalizer of a gadget that was read in revision 7, while the API server has this one.
async fn finalized(
    present: bool,
    found: Option<Value>,
    patched: Option<(u16, Value)>,
) -> (Result<Gadget, WriteError>, Vec<Value>) {
    let object = read_gadget("7", if present { &[] } else { &[FINALIZER] });
    let write = async |clients: &Clients, permit: &Permit| {
        if present {
            add_finalizer::<Gadgets>(clients, permit, &object).await
        } else {
            remove_finalizer::<Gadgets>(clients, permit, &object).await
        }
    };
    let answer = move |method: &Method| match *method {
        Method::GET => {
            Some(found.clone().map_or_else(|| refusal(404, "NotFound", &json!([])), |found| (200, found)))
        }
        _ => patched.clone(),
    };
    let (done, sent) = with(answer, write).await;
    for (method, path, media_type, _) in sent.iter().skip(1) {
        assert_eq!((method, media_type.as_str()), (&Method::PATCH, "application/merge-patch+json"));
        assert_eq!(path, "/apis/coppice.dev/v1/namespaces/n/gadgets/g?fieldManager=coppice");
    }
    (done, sent.into_iter().skip(1).map(|(.., body)| body).collect())
}

#[tokio::test]
async fn our_finalizer_comes_and_goes_and_others_stay() {
    for (before, after) in [(&[][..], &[FINALIZER][..]), (&["x/a", "x/b"], &["x/a", "x/b", FINALIZER])] {
        let metadata =
            |finalizers| json!({"metadata": {"uid": "u", "resourceVersion": "7", "finalizers": finalizers}});
        let (done, sent) = finalized(true, Some(gadget("7", before)), Some((200, gadget("8", after)))).await;
        let written = done.unwrap();
        assert_eq!((written.has_finalizer, &*written.resource_version), (true, "8"));
        assert_eq!(sent, [metadata(after)]);
        let (done, sent) = finalized(false, Some(gadget("7", after)), Some((200, gadget("8", before)))).await;
        assert!(!done.unwrap().has_finalizer);
        assert_eq!(sent, [metadata(before)]);
        // Nothing is written that is so already.
        assert!(finalized(true, Some(gadget("7", after)), None).await.0.unwrap().has_finalizer);
        assert!(!finalized(false, Some(gadget("7", before)), None).await.0.unwrap().has_finalizer);
    }
}

#[tokio::test(start_paused = true)]
async fn a_finalizer_is_set_on_what_was_read_alone() {
    for found in [gadget("8", &[]), json!({"metadata": {"name": "g", "uid": "v", "resourceVersion": "7"}})] {
        let (done, sent) = finalized(true, Some(found), None).await;
        assert!(matches!(done, Err(WriteError::Conflict)) && sent.is_empty(), "{done:?}");
    }
    assert!(matches!(finalized(false, None, None).await.0, Err(WriteError::Gone)));
    let found = || Some(gadget("7", &[]));
    let conflict = finalized(true, found(), Some(refusal(409, "Conflict", &json!([])))).await.0;
    assert!(matches!(conflict, Err(WriteError::Conflict)), "{conflict:?}");
    let terminating = finalized(true, found(), Some(refusal(422, "Invalid", &json!([])))).await.0;
    assert!(matches!(terminating, Err(WriteError::Refused(_))), "{terminating:?}");
    let lost = finalized(true, found(), None).await.0;
    assert!(matches!(lost, Err(WriteError::Ambiguous(_))), "{lost:?}");
}

#[tokio::test(start_paused = true)]
async fn an_object_of_any_kind_is_created_once_and_changed_and_deleted_as_it_was_read() {
    let of_it = "/apis/coppice.dev/v1/namespaces/n/gadgets";
    let object = json!({"metadata": {"name": "g"}});
    let create = async |clients: &Clients, permit: &Permit| {
        create_object::<Gadgets>(clients, permit, "n", &object).await
    };
    let (created, sent) = with(|_| Some((201, gadget("1", &[]))), create).await;
    assert_eq!(&*created.unwrap().resource_version, "1");
    assert_eq!(
        sent,
        [(Method::POST, format!("{of_it}?fieldManager=coppice"), JSON.to_owned(), object.clone())]
    );
    let there = with(|_| Some(refusal(409, "AlreadyExists", &json!([]))), create).await.0;
    assert!(matches!(there, Err(WriteError::Conflict)), "{there:?}");
    let no_namespace = with(|_| Some(refusal(404, "NotFound", &json!([]))), create).await.0;
    assert!(matches!(no_namespace, Err(WriteError::Gone)), "{no_namespace:?}");
    let lost = with(|_| None, create).await.0;
    assert!(matches!(lost, Err(WriteError::Ambiguous(_))), "{lost:?}");
    let ends = refusal(403, "Forbidden", &json!([{"reason": "NamespaceTerminating"}]));
    let ends = with(move |_| Some(ends.clone()), create).await.0;
    assert!(matches!(ends, Err(WriteError::Refused(_))), "{ends:?}");

    let fields = json!({"metadata": {"labels": {"a": null}}});
    for (resource_version, metadata) in [
        (Some("7"), json!({"uid": "u", "resourceVersion": "7", "labels": {"a": null}})),
        (None, json!({"uid": "u", "labels": {"a": null}})),
    ] {
        let revision = Revision { uid: "u", resource_version };
        let change = async |clients: &Clients, permit: &Permit| {
            merge::<Gadgets>(clients, permit, ("n", "g"), revision, fields.clone()).await
        };
        let (changed, sent) = with(|_| Some((200, gadget("8", &[]))), change).await;
        assert_eq!(&*changed.unwrap().resource_version, "8");
        let (_, path, media_type, body) = &sent[0];
        assert_eq!(
            (path.as_str(), media_type.as_str()),
            (format!("{of_it}/g?fieldManager=coppice").as_str(), "application/merge-patch+json")
        );
        assert_eq!(*body, json!({"metadata": metadata}));
        let behind = with(|_| Some(refusal(409, "Conflict", &json!([]))), change).await.0;
        assert!(matches!(behind, Err(WriteError::Conflict)), "{behind:?}");
    }

    let delete = async |clients: &Clients, permit: &Permit| {
        let revision = Revision { uid: "u", resource_version: Some("7") };
        delete_object::<Gadgets>(clients, permit, ("n", "g"), revision).await
    };
    let (deleted, sent) = with(|_| Some((200, json!({"kind": "Status"}))), delete).await;
    assert!(deleted.is_ok() && sent[0].0 == Method::DELETE && sent[0].1 == format!("{of_it}/g"), "{sent:?}");
    assert_eq!(sent[0].3["preconditions"], json!({"uid": "u", "resourceVersion": "7"}));
}

#[tokio::test(start_paused = true)]
async fn a_namespace_that_is_being_deleted_is_known_by_the_cause_of_the_refusal() {
    let object = json!({"metadata": {"name": "g"}});
    let create = async |clients: &Clients, permit: &Permit| {
        create_in_namespace::<Gadgets>(clients, permit, "n", &object).await
    };
    let ends = refusal(403, "Forbidden", &json!([{"reason": "NamespaceTerminating"}]));
    let ends = with(move |_| Some(ends.clone()), create).await.0;
    assert!(matches!(ends, Err(CreateError::NamespaceTerminating(_))), "{ends:?}");
    let forbidden = with(|_| Some(refusal(403, "Forbidden", &json!([]))), create).await.0;
    assert!(matches!(forbidden, Err(CreateError::Write(WriteError::Refused(_)))), "{forbidden:?}");
    let there = with(|_| Some(refusal(409, "AlreadyExists", &json!([]))), create).await.0;
    assert!(matches!(there, Err(CreateError::Write(WriteError::Conflict))), "{there:?}");
    let lost = with(|_| None, create).await.0;
    assert!(matches!(lost, Err(CreateError::Write(WriteError::Ambiguous(_)))), "{lost:?}");
}

#[tokio::test(start_paused = true)]
async fn a_refusal_has_its_code_and_for_how_long_the_api_server_asks_to_wait() {
    let object = json!({"metadata": {"name": "g"}});
    let create = async |clients: &Clients, permit: &Permit| {
        create_object::<Gadgets>(clients, permit, "n", &object).await.map(drop)
    };
    let delete = async |clients: &Clients, permit: &Permit| {
        let revision = Revision { uid: "u", resource_version: None };
        delete_object::<Gadgets>(clients, permit, ("n", "g"), revision).await
    };
    for (code, seconds) in [(403, None), (422, None), (429, Some(7))] {
        let answer = refusal(code, "Odd", &json!([]));
        let again = answer.clone();
        for error in [
            with(move |_| Some(answer.clone()), create).await.0.unwrap_err(),
            with(move |_| Some(again.clone()), delete).await.0.unwrap_err(),
        ] {
            let WriteError::Refused(refusal) = error else { panic!("{error:?}") };
            assert_eq!((refusal.code, refusal.is_throttled()), (Some(code), code == 429));
            assert_eq!(refusal.retry_after, seconds.map(Duration::from_secs));
        }
    }
    // Without an answer there is neither.
    let refused = WriteError::refused("it is not sent");
    assert!(matches!(refused, WriteError::Refused(Refusal { code: None, retry_after: None, .. })));
}
