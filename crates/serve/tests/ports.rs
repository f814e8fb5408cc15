//! The ports as their callers meet them, over TLS.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on has failed")]

use std::sync::Once;

use coppice_runtime::clock::Clock;
use coppice_runtime::metrics::Metrics;
use coppice_scripted::{Answer, scripted};
use coppice_serve::access::MetricsAccess;
use coppice_serve::admission::{
    Admission, AdmissionMetrics, AdmissionRequest, AdmissionVerdict, LIMITS, PATH, Reviewer,
};
use coppice_serve::certificate::{Certificate, SelfSigned};
use coppice_serve::metrics::MetricsPage;
use coppice_serve::port::{Handler, Port, PortLimits};
use http::Method;
use reqwest::{Client, StatusCode};
use serde_json::{Value, json};
use tokio_util::sync::{CancellationToken, DropGuard};

/// Serves by TLS, as long as the guard is kept; where, and a client that asks nobody whom it talks to.
async fn serve(handler: impl Handler, limits: PortLimits) -> (String, Client, DropGuard) {
    static PROVIDER: Once = Once::new();
    PROVIDER.call_once(|| drop(rustls::crypto::ring::default_provider().install_default()));
    let port = Port::bind("--listen", "127.0.0.1:0".parse().unwrap()).await.unwrap();
    let url = format!("https://{}", port.address().unwrap());
    let certificate = Certificate::default();
    SelfSigned::make(vec!["localhost".to_owned()], &certificate, Clock::system()).unwrap();
    let stop = CancellationToken::new();
    tokio::spawn(port.serve(handler, Some(certificate.tls().unwrap()), limits, stop.clone()));
    let client = Client::builder().no_proxy().danger_accept_invalid_certs(true).build().unwrap();
    (url, client, stop.drop_guard())
}

/// Says what the name of the resource says.
struct ByResource;

impl Reviewer for ByResource {
    async fn review(&self, request: &AdmissionRequest<'_>) -> AdmissionVerdict {
        match request.resource.resource.as_str() {
            "bad" => AdmissionVerdict::Denied {
                reason: "Bad".to_owned(),
                message: "it is bad: write another".to_owned(),
            },
            "unknown" => AdmissionVerdict::Unknown,
            "slow" => std::future::pending().await,
            _ => AdmissionVerdict::Allowed,
        }
    }
}

fn review(resource: &str) -> Value {
    json!({
        "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
        "request": {
            "uid": "u-1", "operation": "CREATE", "object": {"kind": "Thing"},
            "resource": {"group": "g", "version": "v1", "resource": resource}
        }
    })
}

#[tokio::test]
async fn the_webhook_answers_what_was_decided_and_errors_are_no_verdicts() {
    let metrics = Metrics::new("test");
    let (url, client, _stop) =
        serve(Admission::new(ByResource, AdmissionMetrics::new(&metrics)), LIMITS).await;
    let send = async |method: Method, path: &str, body: String| {
        let answer = client.request(method, format!("{url}{path}")).body(body).send().await.unwrap();
        (answer.status(), answer.text().await.unwrap())
    };
    let post = async |body: Value| send(Method::POST, PATH, body.to_string()).await;
    let response = async |resource: &str| {
        let (status, text) = post(review(resource)).await;
        assert_eq!(status, StatusCode::OK);
        serde_json::from_str::<Value>(&text).unwrap()
    };
    for resource in ["good", "unknown"] {
        let answer = response(resource).await;
        assert_eq!(answer["response"], json!({"uid": "u-1", "allowed": true}), "{answer}");
        assert_eq!(
            (&answer["apiVersion"], &answer["kind"]),
            (&json!("admission.k8s.io/v1"), &json!("AdmissionReview"))
        );
    }
    let denied = response("bad").await["response"].clone();
    assert_eq!((&denied["allowed"], &denied["status"]["code"]), (&json!(false), &json!(403)));
    assert_eq!(denied["status"]["message"], "Bad: it is bad: write another");

    let mut old = review("good");
    old["apiVersion"] = json!("admission.k8s.io/v1beta1");
    let bad = [
        (post(old).await, StatusCode::BAD_REQUEST, "only admission.k8s.io/v1 is answered"),
        (post(json!([])).await, StatusCode::BAD_REQUEST, "this is no AdmissionReview"),
        (
            send(Method::POST, PATH, "{".to_owned()).await,
            StatusCode::BAD_REQUEST,
            "this is no AdmissionReview",
        ),
        (
            send(Method::POST, PATH, "x".repeat(3 << 20)).await,
            StatusCode::PAYLOAD_TOO_LARGE,
            "more than 2097152 bytes",
        ),
        (send(Method::GET, PATH, String::new()).await, StatusCode::METHOD_NOT_ALLOWED, "only POST"),
        (send(Method::POST, "/other", String::new()).await, StatusCode::NOT_FOUND, "nothing is here"),
        // The API server waits no longer.
        (post(review("slow")).await, StatusCode::SERVICE_UNAVAILABLE, "no time left"),
    ];
    for ((status, text), expected, words) in &bad {
        assert!(status == expected && text.contains(words), "{status}: {text}");
    }
    let counted = metrics.encode();
    for (outcome, count) in [("allowed", 1), ("unknown", 1), ("denied", 1), ("error", bad.len())] {
        let line = format!("coppice_admission_requests_total{{outcome=\"{outcome}\"}} {count}\n");
        assert!(counted.contains(&line), "{line} is not in {counted}");
    }
}

#[tokio::test]
async fn one_caller_cannot_take_all_requests_from_the_webhook() {
    let admission = Admission::with_rate(ByResource, AdmissionMetrics::new(&Metrics::new("test")), 1);
    let (url, client, _stop) = serve(admission, LIMITS).await;
    let body = review("good").to_string();
    // Sixty take less than a minute.
    let many = (0..60).map(|_| client.post(format!("{url}{PATH}")).body(body.clone()).send());
    let answers = futures::future::join_all(many).await.into_iter().map(Result::unwrap);
    let (answered, refused): (Vec<_>, Vec<_>) = answers.partition(|answer| answer.status() == StatusCode::OK);
    assert!(!answered.is_empty() && !refused.is_empty(), "{} and {}", answered.len(), refused.len());
    for answer in refused {
        assert_eq!(answer.status(), StatusCode::TOO_MANY_REQUESTS);
        assert_eq!(answer.text().await.unwrap(), "more than 1 requests a second from 127.0.0.1\n");
    }
}

#[tokio::test]
async fn metrics_are_for_those_whom_the_api_server_lets_in() {
    let (clients, asked) = scripted(|_, path, body| match path {
        "/apis/authentication.k8s.io/v1/tokenreviews" => match body["spec"]["token"].as_str() {
            Some("broken") => Answer::Refused(500),
            Some(name @ ("reader" | "other")) => {
                let user = json!({"username": name, "groups": ["g"], "uid": "u"});
                Answer::Object(201, json!({"spec": {}, "status": {"authenticated": true, "user": user}}))
            }
            _ => Answer::Object(201, json!({"spec": {}, "status": {"authenticated": false}})),
        },
        "/apis/authorization.k8s.io/v1/subjectaccessreviews" => {
            let asked = json!({"user": "reader", "uid": "u", "groups": ["g"],
                "nonResourceAttributes": {"path": "/metrics", "verb": "get"}});
            Answer::Object(201, json!({"spec": {}, "status": {"allowed": body["spec"] == asked}}))
        }
        _ => Answer::Refused(404),
    });
    let page = MetricsPage::new(Metrics::new("test"), MetricsAccess::new(clients));
    let (url, client, _stop) = serve(page, PortLimits::default()).await;
    let get = async |token: Option<&str>| {
        let request = client.get(format!("{url}/metrics"));
        let request =
            token.into_iter().fold(request, |request, token| request.header("authorization", token));
        let answer = request.send().await.unwrap();
        (answer.status(), answer.text().await.unwrap())
    };
    let requests = || asked.lock().unwrap().len();
    for (token, expected, words, questions) in [
        (None, StatusCode::UNAUTHORIZED, "a token is needed", 0),
        (Some("Basic reader"), StatusCode::UNAUTHORIZED, "a token is needed", 0),
        (Some("Bearer "), StatusCode::UNAUTHORIZED, "a token is needed", 0),
        (Some("Bearer nobody"), StatusCode::UNAUTHORIZED, "does not know this token", 1),
        (Some("Bearer broken"), StatusCode::SERVICE_UNAVAILABLE, "could not be asked", 2),
        // Not known is not remembered.
        (Some("Bearer broken"), StatusCode::SERVICE_UNAVAILABLE, "could not be asked", 3),
        (Some("Bearer other"), StatusCode::FORBIDDEN, "other may not get /metrics", 5),
        (Some("Bearer reader"), StatusCode::OK, "coppice_build_info", 7),
        // What was answered holds for a while.
        (Some("bearer reader"), StatusCode::OK, "coppice_build_info", 7),
        (Some("Bearer other"), StatusCode::FORBIDDEN, "coppice-metrics-reader", 7),
        (Some("Bearer nobody"), StatusCode::UNAUTHORIZED, "does not know this token", 7),
    ] {
        let (status, text) = get(token).await;
        assert!(status == expected && text.contains(words), "{token:?}: {status}: {text}");
        assert_eq!(requests(), questions, "{token:?}");
    }
}
