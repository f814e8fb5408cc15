use coppice_runtime::clock::{Clock, SeededRng};
use coppice_runtime::metrics::Metrics;
use coppice_runtime::read;
use coppice_scripted::{Answer, NOW, scripted};
use http::Method;
use serde_json::{Value, json};

use super::*;

/// A controller on this API server, and its metrics.
fn controller(clients: Clients) -> (ClusterAccessController, Metrics) {
    let (clock, metrics) = (Clock::following_tokio(NOW), Metrics::new("test"));
    let events = Events::new(&clients, clock.clone(), metrics.clone(), "test", SeededRng::new(1));
    let (server_clock, gate) = (ServerClock::new(clock), Gate::always(Duration::ZERO));
    let (of_access, unencrypted) = (AccessMetrics::new(&metrics), Unencrypted::Nowhere);
    let controller =
        ClusterAccessController::new(clients, server_clock, gate, events, of_access, unencrypted);
    (controller, metrics)
}

/// A `ClusterAccess` with this status, at this revision.
fn object(revision: &str, status: &Value) -> Value {
    json!({
        "metadata": {
            "name": "ci", "namespace": "team", "uid": "u", "resourceVersion": revision, "generation": 1,
            "finalizers": ["coppice.dev/cleanup"]
        },
        "spec": {
            "cluster": {"kubeconfigSecret": {"name": "target"}}, "output": {"secret": "out"},
            "rights": {"bind": {"clusterRole": "view", "namespaces": ["shop"]}},
        },
        "status": status
    })
}

fn decoded(object: &Value) -> Access {
    read::decoded::<ClusterAccesses>(object.to_string().as_bytes(), &()).unwrap()
}

/// The status of one whose first credential is to be issued.
fn begun() -> Value {
    json!({"sequence": 1, "intent": {"credential": "u-1", "cause": "First", "since": NOW.to_string()}})
}

#[tokio::test(start_paused = true)]
async fn what_this_api_server_does_not_say_about_the_kubeconfig_is_no_verdict() {
    for (answer, expected) in [
        (Answer::Refused(403), vec![]),
        (Answer::Refused(500), vec![]),
        (Answer::Never, vec![]),
        (Answer::Refused(404), vec!["KubeconfigMissing"]),
    ] {
        let (clients, requests) = scripted(move |method, path, body| match *method {
            Method::GET if path.ends_with("/secrets/target") => answer.clone(),
            Method::PUT => Answer::Object(200, object("8", &body["status"])),
            _ => Answer::Object(201, json!({})),
        });
        let (controller, _) = controller(clients);
        let permit = controller.gate.permit().unwrap();
        let access = decoded(&object("7", &begun()));
        let result = controller.work(&permit, &AccessKey::new("team", "ci"), access).await;
        let is_tried_again = matches!(result, ReconcileResult::Retry { category: "api", .. });
        assert_eq!(is_tried_again, expected.is_empty(), "{result:?}");
        let sent = requests.lock().unwrap();
        let saved = sent.iter().filter(|sent| sent.method == Method::PUT);
        let reasons: Vec<&Value> = saved.map(|sent| &sent.body["status"]["lastError"]["reason"]).collect();
        assert_eq!(reasons, expected);
    }
}
