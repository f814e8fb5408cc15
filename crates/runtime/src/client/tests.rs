use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::body::Body as LayerResponse;
use futures::{StreamExt as _, TryStreamExt as _};
use http::{Method, Request, Response};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace};
use kube::api::{Api, ListParams, PostParams, WatchParams};
use kube::client::Body;
use kube::core::Status;
use tower::BoxError;

use super::layer::{NoResponse, RequestInfo};
use super::{Clients, Deadlines, LengthLimitError, ambiguous, deadline};
use crate::clock::Clock;
use crate::kind::testing::Widgets;
use crate::metrics::Metrics;
use crate::read;
use crate::server_clock::ServerClock;

struct Setup {
    clients: Clients,
    server_clock: ServerClock,
    metrics: Metrics,
}

/// Clients over a service that answers with what `answer` makes.
fn over<F>(answer: impl Fn(Request<Body>) -> F + Clone + Send + 'static) -> Setup
where
    F: Future<Output = Result<Response<LayerResponse>, BoxError>> + Send + 'static,
{
    let clock = Clock::following_tokio("2026-01-01T00:00:00Z".parse().unwrap());
    let (server_clock, metrics) = (ServerClock::new(clock), Metrics::new("test"));
    let clients = Clients::over(&tower::service_fn(answer), Deadlines::default(), &server_clock, &metrics);
    Setup { clients, server_clock, metrics }
}

fn no_answer(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Service(error) if error.is::<NoResponse>())
}

const LIST: &str =
    r#"{"apiVersion":"v1","kind":"NamespaceList","metadata":{"resourceVersion":"1"},"items":[]}"#;
const OBJECT: &str =
    r#"{"apiVersion":"v1","kind":"Namespace","metadata":{"name":"x","resourceVersion":"1"}}"#;

#[tokio::test(start_paused = true)]
async fn a_request_without_an_answer_ends_at_its_deadline() {
    let s = over(|_| std::future::pending());
    let (reads, writes): (Api<Namespace>, Api<Namespace>) =
        (Api::all(s.clients.reads), Api::all(s.clients.writes));
    let start = tokio::time::Instant::now();
    assert!(no_answer(&reads.get("x").await.unwrap_err()));
    assert_eq!(start.elapsed(), Duration::from_secs(10));
    assert!(no_answer(&reads.list(&ListParams::default()).await.unwrap_err()));
    assert_eq!(start.elapsed(), Duration::from_secs(40));
    let error = writes.create(&PostParams::default(), &Namespace::default()).await.unwrap_err();
    assert_eq!(start.elapsed(), Duration::from_secs(45));
    assert!(no_answer(&error) && ambiguous(&error), "{error}");
    let metrics = s.metrics.encode();
    for line in [
        r#"{client="reads",verb="get",resource="namespaces",code="timeout"} 1"#,
        r#"{client="reads",verb="list",resource="namespaces",code="timeout"} 1"#,
        r#"{client="writes",verb="create",resource="namespaces",code="timeout"} 1"#,
    ] {
        assert!(metrics.contains(line), "{line}\n{metrics}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_begins_and_does_not_end_is_none() {
    let s = over(|_| async {
        let begin = futures::stream::once(async { Ok::<_, BoxError>(&OBJECT[..10]) });
        Ok(Response::new(LayerResponse::from_stream(begin.chain(futures::stream::pending()))))
    });
    let start = tokio::time::Instant::now();
    let error = Api::<Namespace>::all(s.clients.reads).get("x").await.unwrap_err();
    assert!(no_answer(&error), "{error}");
    assert_eq!(start.elapsed(), Duration::from_secs(10));
}

#[tokio::test(start_paused = true)]
async fn a_watch_may_last_but_must_begin() {
    let s = over(|request: Request<Body>| async move {
        if request.uri().path().ends_with("configmaps") {
            return std::future::pending().await;
        }
        let later = futures::stream::once(async {
            tokio::time::sleep(Duration::from_hours(1)).await;
            Ok::<_, BoxError>(format!("{{\"type\":\"ADDED\",\"object\":{OBJECT}}}\n"))
        });
        Ok(Response::new(LayerResponse::from_stream(later)))
    });
    let start = tokio::time::Instant::now();
    let silent: Api<ConfigMap> = Api::all(s.clients.reads.clone());
    assert!(no_answer(&silent.watch(&WatchParams::default(), "1").await.err().unwrap()));
    assert_eq!(start.elapsed(), Duration::from_secs(30));
    let api: Api<Namespace> = Api::all(s.clients.reads);
    let events: Vec<_> = api.watch(&WatchParams::default(), "1").await.unwrap().try_collect().await.unwrap();
    assert_eq!(events.len(), 1);
    assert!(start.elapsed() > Duration::from_hours(1));
}

#[tokio::test]
async fn the_client_for_reads_does_not_write() {
    let calls = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&calls);
    let s = over(move |_| {
        counted.fetch_add(1, Ordering::Relaxed);
        async { Ok(Response::new(LayerResponse::from(OBJECT))) }
    });
    let api: Api<Namespace> = Api::all(s.clients.reads.clone());
    let error = api.delete("x", &kube::api::DeleteParams::default()).await.unwrap_err();
    assert!(
        crate::error::chain(&error).contains("the client for reads was asked to delete namespaces"),
        "{error}"
    );
    assert!(!ambiguous(&error));
    assert_eq!(calls.load(Ordering::Relaxed), 0);
    let review =
        Request::post("/apis/authorization.k8s.io/v1/selfsubjectaccessreviews").body(vec![]).unwrap();
    s.clients.reads.request_text(review).await.unwrap();
    assert_eq!(calls.load(Ordering::Relaxed), 1);
}

#[tokio::test(start_paused = true)]
async fn the_servers_clock_is_noted() {
    let s = over(|_| async {
        let later: Timestamp = "2026-01-01T00:01:00Z".parse().unwrap();
        let date = later.strftime("%a, %d %b %Y %H:%M:%S GMT").to_string();
        Ok(Response::builder().header("date", date).body(LayerResponse::from(LIST)).unwrap())
    });
    Api::<Namespace>::all(s.clients.reads).list(&ListParams::default()).await.unwrap();
    assert_eq!(s.server_clock.skew().unwrap().as_secs(), 60);
    assert!(s.metrics.encode().contains("coppice_clock_skew_seconds 60.0\n"));
}

/// A real server on a real port, which refuses everything with `status`.
async fn refusing(status: u16) -> (kube::Config, Arc<Mutex<Vec<http::HeaderMap>>>) {
    let seen: Arc<Mutex<Vec<http::HeaderMap>>> = Arc::default();
    let noted = Arc::clone(&seen);
    let router = axum::Router::new().fallback(move |headers: http::HeaderMap| {
        noted.lock().unwrap().push(headers);
        std::future::ready((http::StatusCode::from_u16(status).unwrap(), "no"))
    });
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let uri = format!("http://{}", listener.local_addr().unwrap());
    tokio::spawn(async move { axum::serve(listener, router).await });
    (kube::Config::new(uri.parse().unwrap()), seen)
}

#[tokio::test]
async fn of_an_api_server_that_others_run_no_more_is_read_than_was_said() {
    // It answers with two bytes.
    for (limit, is_too_long) in [(1, true), (2, false)] {
        let (config, _) = refusing(503).await;
        let server_clock = ServerClock::new(Clock::system());
        let clients = Clients::limited(config, &server_clock, &Metrics::new("test"), limit).unwrap();
        let error = Api::<Namespace>::all(clients.reads).get("x").await.unwrap_err();
        let too_long = matches!(&error, kube::Error::Service(error) if error.is::<LengthLimitError>());
        assert_eq!(too_long, is_too_long, "{error}");
    }
}

#[tokio::test]
async fn nothing_is_repeated_and_we_say_who_we_are() {
    for status in [429, 500, 503, 504] {
        let (config, seen) = refusing(status).await;
        let server_clock = ServerClock::new(Clock::system());
        let clients = Clients::new(config, &server_clock, &Metrics::new("test")).unwrap();
        let writes: Api<Namespace> = Api::all(clients.writes);
        let error = writes.create(&PostParams::default(), &Namespace::default()).await.unwrap_err();
        assert_eq!(ambiguous(&error), status != 429, "{error}");
        Api::<Namespace>::all(clients.reads).get("x").await.unwrap_err();
        let seen = seen.lock().unwrap();
        assert_eq!(seen.len(), 2, "{status}");
        assert!(seen.iter().all(|h| h["user-agent"].to_str().unwrap().starts_with("coppice-operator/")));
        assert_eq!(server_clock.skew(), Some(jiff::SignedDuration::ZERO), "the same clock on both sides");
    }
}

#[tokio::test]
async fn a_refused_connection_is_not_ambiguous() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let uri = format!("http://{}", listener.local_addr().unwrap()).parse().unwrap();
    drop(listener);
    let clients =
        Clients::new(kube::Config::new(uri), &ServerClock::new(Clock::system()), &Metrics::new("test"))
            .unwrap();
    let error = Api::<Namespace>::all(clients.writes).get("x").await.unwrap_err();
    assert!(!ambiguous(&error), "{error:?}");
}

#[tokio::test]
async fn a_connection_that_breaks_after_the_request_was_sent_is_ambiguous() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let uri = format!("http://{}", listener.local_addr().unwrap()).parse().unwrap();
    tokio::spawn(async move {
        while let Ok((connection, _)) = listener.accept().await {
            connection.readable().await.unwrap();
            let _ = connection.try_read(&mut [0; 4096]);
        }
    });
    let clients =
        Clients::new(kube::Config::new(uri), &ServerClock::new(Clock::system()), &Metrics::new("test"))
            .unwrap();
    let writes: Api<Namespace> = Api::all(clients.writes);
    let error = writes.create(&PostParams::default(), &Namespace::default()).await.unwrap_err();
    assert!(ambiguous(&error), "{error:?}");
}

#[test]
fn refusals_are_certain_and_the_rest_is_not() {
    let api = |code| kube::Error::Api(Status::failure("m", "r").with_code(code).boxed());
    for code in [400, 401, 403, 404, 405, 409, 410, 413, 415, 422, 429] {
        assert!(!ambiguous(&api(code)), "{code}");
    }
    for code in [0, 302, 408, 500, 502, 503, 504] {
        assert!(ambiguous(&api(code)), "{code}");
    }
    let garbled = serde_json::from_str::<u8>("x").unwrap_err();
    assert!(ambiguous(&kube::Error::SerdeError(garbled)), "there was an answer, so it probably happened");
    let broken = std::io::Error::from(std::io::ErrorKind::ConnectionReset);
    assert!(ambiguous(&kube::Error::Service(broken.into())));
    assert!(!ambiguous(&kube::Error::TlsRequired));
}

#[tokio::test(start_paused = true)]
async fn whoever_tries_again_waits_as_long_as_the_server_asked_for() {
    let s = over(|request: Request<Body>| async move {
        let code = if request.uri().path().ends_with("/busy") { 429 } else { 409 };
        Ok(Response::builder().status(code).header("retry-after", "3").body(LayerResponse::from(OBJECT))?)
    });
    let api: Api<Namespace> = Api::all(s.clients.reads.clone());
    api.get("other").await.unwrap_err();
    assert_eq!(s.clients.backpressure.remaining(), Duration::ZERO, "only overload is a reason to wait");
    api.get("busy").await.unwrap_err();
    assert_eq!(s.clients.backpressure.remaining(), Duration::from_secs(3));
    tokio::time::advance(Duration::from_secs(4)).await;
    assert_eq!(s.clients.backpressure.remaining(), Duration::ZERO);
}

#[tokio::test(start_paused = true)]
async fn a_deadline_names_what_was_late() {
    let error =
        deadline("the lookup", Duration::from_millis(1500), std::future::pending::<()>()).await.unwrap_err();
    assert_eq!(error.to_string(), "the lookup took longer than 1.5 s and was given up");
}

#[tokio::test]
async fn requests_for_a_kind_are_counted_by_the_name_of_its_resource() {
    let s = over(|_| async { Ok(Response::new(LayerResponse::from(OBJECT))) });
    read::get::<Widgets>(&s.clients.reads, "", "x").await.unwrap();
    let path = format!("{}/x", read::path::<Widgets>(""));
    s.clients.reads.request_text(read::request(&path).unwrap()).await.unwrap();
    let metrics = s.metrics.encode();
    for line in [
        r#"{client="reads",verb="get",resource="widgets",code="200"} 1"#,
        r#"{client="reads",verb="get",resource="other",code="200"} 1"#,
    ] {
        assert!(metrics.contains(line), "{line}\n{metrics}");
    }
}

#[test]
fn requests_are_classified_by_their_paths() {
    let asked = |method: Method, uri: &str| {
        let asked = RequestInfo::of(&Request::builder().method(method).uri(uri).body(()).unwrap());
        (asked.verb, asked.resource, asked.watch, asked.writes)
    };
    for (method, uri, expected) in [
        (Method::GET, "/api/v1/namespaces", ("list", "namespaces", false, false)),
        (Method::GET, "/api/v1/namespaces?limit=500&", ("list", "namespaces", false, false)),
        (Method::GET, "/api/v1/namespaces/x", ("get", "namespaces", false, false)),
        (Method::GET, "/api/v1/pods?&watch=true&resourceVersion=1", ("watch", "pods", true, false)),
        (Method::PUT, "/api/v1/namespaces/x/status", ("update", "namespaces", false, true)),
        (Method::GET, "/api/v1/namespaces/x/pods", ("list", "pods", false, false)),
        (Method::POST, "/api/v1/namespaces/x/pods/y/eviction", ("create", "pods", false, true)),
        (Method::DELETE, "/apis/batch/v1/namespaces/x/jobs/y", ("delete", "jobs", false, true)),
        (Method::DELETE, "/apis/batch/v1/namespaces/x/jobs", ("deletecollection", "jobs", false, true)),
        (
            Method::PATCH,
            "/apis/apps/v1/namespaces/x/deployments/y/scale",
            ("patch", "deployments", false, true),
        ),
        (Method::GET, "/apis/example.com/v1/widgets/y", ("get", "other", false, false)),
        (Method::GET, "/version", ("get", "none", false, false)),
        (Method::GET, "/apis/batch/v1", ("get", "none", false, false)),
        (Method::GET, "/", ("get", "none", false, false)),
    ] {
        assert_eq!(asked(method, uri), expected, "{uri}");
    }
}
