//! What follows from what a target answers, and from for how long it asks to wait.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use coppice_clusters::kubeconfig::{Kubeconfig, Unencrypted, parse, sha256};
use coppice_runtime::read;
use coppice_scripted::{Answer, NOW, Sent, scripted};
use http::Method;
use serde_json::{Value, json};

use super::tests::{begun, controller_with, decoded, object, target};
use super::*;
use crate::targets::Connect;

/// A `ClusterAccess` of that name.
fn named(name: &str, status: &Value) -> Value {
    let mut named = object("8", status);
    (named["metadata"]["name"], named["metadata"]["uid"]) = (json!(name), json!(name));
    named
}

/// The API server here, with any access whose first credential is to be issued, and the kubeconfig of their target.
fn here() -> (Clients, Arc<Mutex<Vec<Sent>>>) {
    scripted(|method, path, body| match *method {
        Method::GET if path.ends_with("/secrets/target") => Answer::Object(200, target()),
        Method::GET if path.ends_with("/namespaces/kube-system") => {
            Answer::Object(200, json!({"metadata": {"uid": "1"}}))
        }
        Method::GET if path.contains("/clusteraccesses/") => {
            Answer::Object(200, named(path.rsplit('/').next().unwrap(), &begun()))
        }
        Method::PUT => {
            Answer::Object(200, named(body["metadata"]["name"].as_str().unwrap(), &body["status"]))
        }
        Method::POST => Answer::Object(201, json!({})),
        _ => Answer::Refused(404),
    })
}

/// How every target is reached, which answers like this; and what it is asked.
fn there(
    answer: impl Fn(&Method, &str) -> Answer + Send + Sync + 'static,
) -> (Connect, Arc<Mutex<Vec<Sent>>>) {
    let (there, asked) = scripted(move |method, path, _| answer(method, path));
    let connect: Connect = Arc::new(move |_: &Kubeconfig, _: &ServerClock| Some(there.clone()));
    (connect, asked)
}

/// What was last said in status of what failed.
fn last_error(requests: &Mutex<Vec<Sent>>) -> Value {
    let requests = requests.lock().unwrap();
    let saved = requests.iter().rfind(|sent| sent.method == Method::PUT).unwrap();
    saved.body["status"]["lastError"].clone()
}

#[tokio::test(start_paused = true)]
async fn nothing_is_asked_before_the_time_that_a_target_says_is_over_and_status_says_until_when() {
    for (answer, wait, until) in [
        (Answer::TooManyRequests(40), 40, "2026-01-01T00:00:42Z"),
        // Five seconds at least, also where it does not say it, and two minutes at most.
        (Answer::TooManyRequests(1), 5, "2026-01-01T00:00:07Z"),
        (Answer::Refused(429), 5, "2026-01-01T00:00:07Z"),
        (Answer::TooManyRequests(3600), 120, "2026-01-01T00:02:02Z"),
    ] {
        let (connect, asked) = there(move |_, _| answer.clone());
        let (clients, requests) = here();
        let (controller, _) = controller_with(clients, Some(connect));
        let controller = Arc::new(controller);
        for name in ["ci", "other"] {
            controller.accesses.upsert("team", decoded(&named(name, &begun())));
        }
        let asked_after = async |name: &str| {
            let _ = Arc::clone(&controller).reconcile(AccessKey::new("team", name)).await;
            asked.lock().unwrap().len()
        };
        assert_eq!(asked_after("ci").await, 1);
        let error = last_error(&requests);
        assert_eq!(error["reason"], "TargetThrottled");
        let message = error["message"].as_str().unwrap();
        assert!(message.ends_with(&format!("; nothing is asked of it before {until}")), "{message}");
        // Nor by another one with the same kubeconfig, which reads nothing for it either.
        let reads = || requests.lock().unwrap().iter().filter(|sent| sent.method == Method::GET).count();
        let before = reads();
        assert_eq!(asked_after("other").await, 1);
        assert_eq!(reads(), before);
        // Status says it in whole seconds, two late at most.
        tokio::time::advance(Duration::from_secs(wait + 1)).await;
        assert_eq!(asked_after("other").await, 1);
        tokio::time::advance(Duration::from_secs(1)).await;
        assert_eq!(asked_after("other").await, 2, "it goes on");
    }
}

/// The status of one that has a credential for a day since so many hours, and is to get another one for this cause.
fn to_be_replaced(name: &str, cause: &str, hours: i64) -> Value {
    let at = |hours: i64| (NOW + jiff::SignedDuration::from_hours(hours)).to_string();
    json!({
        "sequence": 2, "observedGeneration": 1, "credential": format!("{name}-1"), "notBefore": at(-hours), "notAfter": at(24 - hours),
        "target": {"uid": "0", "endpoint": "https://target"},
        "intent": {"credential": format!("{name}-2"), "cause": cause, "since": NOW.to_string()}
    })
}

#[tokio::test(start_paused = true)]
async fn without_a_provider_the_most_urgent_goes_first_when_a_target_may_be_asked_again() {
    let is_first = AtomicBool::new(true);
    let (connect, asked) = there(move |method, path| match *method {
        Method::GET if is_first.swap(false, Ordering::Relaxed) => Answer::TooManyRequests(40),
        Method::GET if path.ends_with("/namespaces/kube-system") => {
            Answer::Object(200, json!({"metadata": {"uid": "0"}}))
        }
        Method::GET => Answer::Object(200, json!({"items": []})),
        Method::POST if path.ends_with("/token") => Answer::Refused(403),
        _ => Answer::Object(200, json!({"metadata": {"uid": "b"}})),
    });
    // They come in the opposite order.
    let all = [
        ("first", begun()),
        ("routine", to_be_replaced("routine", "Due", 14)),
        ("new", begun()),
        ("forced", to_be_replaced("forced", "Requested", 1)),
        ("expiring", to_be_replaced("expiring", "Due", 20)),
    ];
    let stored: BTreeMap<String, Value> =
        all.iter().map(|(name, status)| ((*name).to_owned(), status.clone())).collect();
    let stored = Mutex::new(stored);
    let (clients, requests) = scripted(move |method, path, body| match *method {
        Method::GET if path.ends_with("/secrets/target") => Answer::Object(200, target()),
        Method::GET if path.ends_with("/namespaces/kube-system") => {
            Answer::Object(200, json!({"metadata": {"uid": "1"}}))
        }
        Method::GET if path.contains("/clusteraccesses/") => {
            let name = path.rsplit('/').next().unwrap();
            Answer::Object(200, named(name, &stored.lock().unwrap()[name]))
        }
        Method::PUT => {
            let name = body["metadata"]["name"].as_str().unwrap();
            stored.lock().unwrap().insert(name.to_owned(), body["status"].clone());
            Answer::Object(200, named(name, &body["status"]))
        }
        Method::POST => Answer::Object(201, json!({})),
        _ => Answer::Refused(404),
    });
    let (controller, _) = controller_with(clients, Some(connect));
    let controller = Arc::new(controller);
    for (name, status) in &all {
        controller.accesses.upsert("team", decoded(&named(name, status)));
    }
    let reconcile = |name: &str| Arc::clone(&controller).reconcile(AccessKey::new("team", name));
    let (mut waiting, mut order) = (Vec::new(), Vec::new());
    for name in all.each_ref().map(|(name, _)| *name) {
        let ReconcileResult::At(at) = reconcile(name).await else { panic!("{name} does not wait") };
        waiting.push((name, at));
    }
    assert_eq!(asked.lock().unwrap().len(), 1, "of the first one alone");
    for _ in 0..59 {
        tokio::time::advance(Duration::from_secs(1)).await;
        // The first one is tried again after a minute.
        for one in &mut waiting[1..] {
            let (name, at) = *one;
            if at > Instant::now() || order.contains(&name) {
                continue;
            }
            let ReconcileResult::At(next) = reconcile(name).await else { panic!("{name} does not wait") };
            one.1 = next;
            let account = format!("/serviceaccounts/coppice-{name}");
            if asked.lock().unwrap().iter().any(|sent| sent.path.contains(&account)) {
                order.push(name);
            }
        }
    }
    assert_eq!(order, ["expiring", "forced", "new", "routine"]);
    let requests = requests.lock().unwrap();
    let says = |sent: &Sent| sent.body["status"]["intent"]["throttled"] == true;
    assert!(requests.iter().any(says), "status says why it waits: {requests:?}");
}

#[tokio::test(start_paused = true)]
async fn what_an_issuer_does_not_issue_is_counted_by_the_code_that_status_has_too() {
    for (answer, code, says) in [
        (Answer::Refused(403), "403", "the target refuses to issue a token: 403: the user of the kubeconfig"),
        (Answer::Refused(500), "500", "the target did not issue a token: 500: it failed"),
        (Answer::TooManyRequests(7), "429", "the target did not issue a token: 429 TooManyRequests: "),
        (Answer::Refused(418), "4xx", "the target refuses to issue a token: 418: it refuses"),
        (Answer::Never, "error", "the target did not issue a token: it did not answer within 5 s"),
        (Answer::Object(201, json!({})), "error", "the target answered a TokenRequest without a token"),
    ] {
        let (connect, _) = there(move |method, path| match *method {
            Method::GET if path.ends_with("/namespaces/kube-system") => {
                Answer::Object(200, json!({"metadata": {"uid": "0"}}))
            }
            Method::GET => Answer::Object(200, json!({"items": []})),
            Method::POST if path.ends_with("/token") => answer.clone(),
            _ => Answer::Object(200, json!({"metadata": {"uid": "b"}})),
        });
        let (clients, requests) = here();
        let (controller, metrics) = controller_with(clients, Some(connect));
        let permit = controller.gate.permit().unwrap();
        let access = decoded(&named("ci", &begun()));
        let _ = controller.work(&permit, &AccessKey::new("team", "ci"), access, None).await;
        let error = last_error(&requests);
        assert!(error["message"].as_str().unwrap().starts_with(says), "{error}");
        let text = metrics.encode();
        for (code, calls) in [(code, 1), ("2xx", 0)] {
            let line =
                format!("coppice_issuer_calls_total{{issuer=\"TokenRequest\",code=\"{code}\"}} {calls}");
            assert!(text.lines().any(|l| l == line), "{line}: {text}");
        }
    }
}

/// One whose Secret holds a credential for a month that was issued so many hours ago, and that Secret.
fn held(hours: i64) -> (Value, Value) {
    let value = target()["data"]["kubeconfig"].clone();
    let text = BASE64_STANDARD.decode(value.as_str().unwrap()).unwrap();
    let endpoint = parse(&text, Unencrypted::Nowhere).unwrap().cluster.endpoint();
    let at = |hours: i64| (NOW + jiff::SignedDuration::from_hours(hours)).to_string();
    let mut access = object(
        "8",
        &json!({
            "sequence": 1, "observedGeneration": 1, "credential": "u-1", "notBefore": at(-hours), "notAfter": at(30 * 24 - hours),
            "output": {"uid": "s", "resourceVersion": "7", "sha256": sha256(&text)}, "target": {"uid": "0", "endpoint": endpoint}
        }),
    );
    access["spec"]["ttl"] = json!("30d");
    let metadata = json!({
        "name": "out", "namespace": "team", "uid": "s", "resourceVersion": "7", "labels": {"coppice.dev/access": "u"},
        "annotations": {"coppice.dev/credential": "u-1"}
    });
    (access, json!({"metadata": metadata, "type": "Opaque", "data": {"kubeconfig": value}}))
}

#[tokio::test(start_paused = true)]
async fn a_credential_that_is_valid_for_weeks_is_tried_out_once_a_day_by_itself_alone() {
    let who = |name: &str| Answer::Object(201, json!({"status": {"userInfo": {"username": name}}}));
    let ours = || who("system:serviceaccount:coppice-access:coppice-u");
    for (hours, answer, result, expected) in [
        (21, ours(), None, None),
        (25, ours(), Some("valid"), Some(Value::Null)),
        (25, Answer::Refused(401), Some("invalid"), Some(json!("VerificationFailed"))),
        (25, who("somebody"), Some("invalid"), Some(json!("VerificationFailed"))),
        (25, Answer::Refused(503), Some("unknown"), Some(json!("TargetUnreachable"))),
    ] {
        let (connect, asked) = there(move |_, _| answer.clone());
        let (access, secret) = held(hours);
        let (stored, output) = (access.clone(), secret.clone());
        let (clients, requests) = scripted(move |method, path, body| match *method {
            Method::GET if path.ends_with("/secrets/target") => Answer::Object(200, target()),
            Method::GET if path.ends_with("/secrets/out") => Answer::Object(200, output.clone()),
            Method::GET if path.ends_with("/clusteraccesses/ci") => Answer::Object(200, stored.clone()),
            Method::PUT => {
                let mut saved = stored.clone();
                saved["status"] = body["status"].clone();
                Answer::Object(200, saved)
            }
            Method::POST => Answer::Object(201, json!({})),
            _ => Answer::Refused(404),
        });
        let (controller, metrics) = controller_with(clients, Some(connect));
        controller.accesses.upsert("team", decoded(&access));
        let secret = read::decoded::<OutputSecrets>(secret.to_string().as_bytes(), &()).unwrap();
        controller.outputs.upsert("team", secret);
        let done = Arc::new(controller).reconcile(AccessKey::new("team", "ci")).await;
        assert!(matches!(done, ReconcileResult::At(_)), "{done:?}");
        let paths: Vec<String> = asked.lock().unwrap().iter().map(|sent| sent.path.clone()).collect();
        let review = "/apis/authentication.k8s.io/v1/selfsubjectreviews";
        assert_eq!(paths, vec![review; usize::from(result.is_some())], "{hours}");
        let requests = requests.lock().unwrap();
        let saved =
            requests.iter().filter(|sent| sent.method == Method::PUT).map(|sent| &sent.body["status"]);
        let tried: Vec<&Value> =
            saved.filter(|saved| !saved["verifiedAt"].is_null() || !saved["lastError"].is_null()).collect();
        assert_eq!(tried.first().map(|saved| saved["lastError"]["reason"].clone()), expected, "{tried:?}");
        let verified = tried.first().map(|saved| saved["verifiedAt"] == NOW.to_string());
        assert_eq!(verified, expected.as_ref().map(Value::is_null));
        for of in ["valid", "invalid", "unknown"] {
            let line = format!(
                "coppice_credential_checks_total{{result=\"{of}\"}} {}",
                i32::from(result == Some(of))
            );
            let text = metrics.encode();
            assert!(text.lines().any(|l| l == line), "{line}: {text}");
        }
    }
}
