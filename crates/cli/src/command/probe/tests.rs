//! When a probe gives up, in virtual time.

use std::sync::{Arc, Mutex};

use clap::Parser;
use http::{Request, Response};
use kube::client::Body;
use serde_json::{Value, json};

use super::*;

const COLLECTION: &str = "/apis/coppice.dev/v1alpha1/namespaces/default/clusteraccesses";
const OBJECT: &str = "/apis/coppice.dev/v1alpha1/namespaces/default/clusteraccesses/coppice-probe";

#[derive(Parser)]
struct Line {
    #[command(flatten)]
    connection: ConnectionArgs,
    #[command(flatten)]
    probe: ProbeArgs,
}

/// What a probe has created that began at noon and has five minutes.
fn created() -> Value {
    json!({
        "apiVersion": "coppice.dev/v1alpha1", "kind": "ClusterAccess",
        "metadata": {
            "name": "coppice-probe", "namespace": "default", "uid": "new", "generation": 1,
            "labels": {"coppice.dev/probe": "true"}, "annotations": {"coppice.dev/probe-until": "2026-03-01T12:05:00Z"}
        }
    })
}

/// How a probe ended.
struct Ended {
    exit: Exit,
    report: Value,
    /// In seconds.
    after: u64,
    /// Method and path.
    requests: Vec<String>,
}

/// A probe of five minutes that begins at noon, with an API server that answers so, by method and path; none is never answered.
async fn probe(answer: impl Fn(&str, &str) -> Option<Value> + Send + Sync + 'static) -> Ended {
    let requests: Arc<Mutex<Vec<String>>> = Arc::default();
    let (log, answer) = (Arc::clone(&requests), Arc::new(answer));
    let service = tower::service_fn(move |request: Request<Body>| {
        let (log, answer) = (Arc::clone(&log), Arc::clone(&answer));
        async move {
            let (method, path) = (request.method().to_string(), request.uri().path().to_owned());
            log.lock().unwrap().push(format!("{method} {path}"));
            let Some(object) = answer(&method, &path) else { return std::future::pending().await };
            Ok::<_, std::io::Error>(Response::new(Body::from(object.to_string().into_bytes())))
        }
    });
    let line = ["coppice", "--provider", "shop", "--output", "json"];
    let Line { connection, probe } = Line::try_parse_from(line).unwrap();
    let (mut out, mut err) = (Vec::new(), Vec::new());
    let mut io = Io {
        stdin: &mut std::io::empty(),
        out: &mut out,
        err: &mut err,
        now: "2026-03-01T12:00:00Z".parse().unwrap(),
        color: false,
        width: None,
        progress: false,
        client: Some(kube::Client::new(service, "default")),
    };
    let began = Instant::now();
    let exit = Box::pin(run(&probe, &connection, &mut io)).await.unwrap();
    let requests = requests.lock().unwrap().clone();
    Ended { exit, report: serde_json::from_slice(&out).unwrap(), after: began.elapsed().as_secs(), requests }
}

fn nothing_left() -> Value {
    json!({"apiVersion": "coppice.dev/v1alpha1", "kind": "ClusterAccessList", "metadata": {}, "items": []})
}

#[tokio::test(start_paused = true)]
async fn a_probe_ends_when_what_it_has_created_is_not_left_to_it_any_more() {
    // Whether it was created is never answered. It is looked for then, and deleted.
    let ended = probe(|method, path| match (method, path) {
        ("GET", COLLECTION) => Some(nothing_left()),
        ("POST", _) => None,
        _ => Some(created()),
    })
    .await;
    assert_eq!((ended.exit, ended.after), (Exit::Attention, 300));
    let of = |method: &str, path: &str| format!("{method} {path}");
    let requests = [of("GET", COLLECTION), of("POST", COLLECTION), of("GET", OBJECT), of("DELETE", OBJECT)];
    assert_eq!(ended.requests, requests);
    let cleanup = "its time was over at 2026-03-01T12:05:00Z: give it more by --timeout; ClusterAccess default/coppice-probe is being deleted; \
                   the next probe deletes what is left";
    assert_eq!(ended.report["cleanup"], cleanup, "{:#}", ended.report);
    assert_eq!(ended.report["ok"], false);
}

#[tokio::test(start_paused = true)]
async fn a_clean_up_that_is_not_answered_is_given_up_after_ten_seconds() {
    let ended = probe(|method, path| match (method, path) {
        ("GET", COLLECTION) => Some(nothing_left()),
        _ => None,
    })
    .await;
    assert_eq!((ended.exit, ended.after), (Exit::Attention, 310));
    let cleanup = ended.report["cleanup"].as_str().unwrap();
    for says in [
        "its time was over at 2026-03-01T12:05:00Z",
        "ClusterAccess default/coppice-probe may be there still: the API server does not answer within 10s",
        "a probe deletes it after 2026-03-01T12:05:00Z, or delete it yourself",
    ] {
        assert!(cleanup.contains(says), "{cleanup}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_step_that_takes_all_of_the_time_says_why_and_what_was_created_is_deleted() {
    let ended = probe(|method, path| match (method, path) {
        ("GET", COLLECTION) => Some(nothing_left()),
        _ => Some(created_but_not_issued()),
    })
    .await;
    assert_eq!((ended.exit, ended.after), (Exit::Attention, 300));
    let last = ended.report["steps"].as_array().unwrap().last().unwrap().clone();
    assert_eq!((&last["step"], &last["ok"]), (&json!("issue"), &json!(false)));
    let message = last["message"].as_str().unwrap();
    assert!(message.starts_with("there is none after 5m: coppice-access has not looked at it"), "{message}");
    let cleanup = ended.report["cleanup"].as_str().unwrap();
    assert!(cleanup.starts_with("ClusterAccess default/coppice-probe is being deleted"), "{cleanup}");
}

/// What it has created, with a spec and without a status.
fn created_but_not_issued() -> Value {
    let mut created = created();
    let rule = json!({"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get"]});
    created["spec"] = json!({
        "cluster": {"provider": {"name": "shop"}}, "output": {"secret": "coppice-probe"},
        "rights": {"role": {"namespace": "default", "rules": [rule]}}
    });
    created
}
