use std::num::NonZeroUsize;
use std::sync::{Arc, Mutex};
use std::time::Duration as Time;

use coppice_clusters::kubeconfig::Unencrypted;
use coppice_runtime::clock::{Clock, SeededRng};
use coppice_runtime::events::Events;
use coppice_runtime::leader::Gate;
use coppice_runtime::metrics::Metrics;
use coppice_runtime::server_clock::ServerClock;
use coppice_scripted::{Answer, NOW, scripted};
use http::Method;
use serde_json::json;

use super::*;
use crate::{AccessMetrics, Shared};

/// What comes of one that is being deleted, so many seconds after that; whether its finalizer was taken off, and the metrics.
async fn finalized(spec: Value, status: Value, seconds: i64) -> (ReconcileResult, bool, String) {
    let deleted = NOW - SignedDuration::from_secs(seconds);
    let object = json!({
        "metadata": {
            "name": "ci", "namespace": "team", "uid": "u", "resourceVersion": "7", "generation": 1,
            "deletionTimestamp": deleted.to_string(), "finalizers": ["coppice.dev/cleanup", "others.example.org/stay"]
        },
        "spec": spec, "status": status
    });
    let patches: Arc<Mutex<Vec<Value>>> = Arc::default();
    let log = Arc::clone(&patches);
    let (clients, _) = scripted(move |method, path, body| match *method {
        Method::GET => Answer::Object(200, object.clone()),
        Method::PATCH if path.ends_with("/clusteraccesses/ci") => {
            log.lock().unwrap().push(body["metadata"]["finalizers"].clone());
            Answer::Object(200, object.clone())
        }
        _ => Answer::Object(201, json!({})),
    });
    let (clock, metrics) = (Clock::following_tokio(NOW), Metrics::new("test"));
    let (unencrypted, namespace) = (Unencrypted::Nowhere, "coppice-access-system");
    let shared = Shared::new(clock.clone(), unencrypted, namespace, NonZeroUsize::MIN, None);
    let server_clock = ServerClock::new(clock.clone());
    let events = Events::new(&clients, clock, metrics.clone(), "test", SeededRng::new(1));
    let gate = Gate::always(Time::ZERO);
    let permit = gate.permit().unwrap();
    let access_metrics = AccessMetrics::new(&metrics);
    let controller =
        ClusterAccessController::new(clients, server_clock, gate, events, access_metrics, &shared);
    let result = finalize(&controller, &permit, &AccessKey::new("team", "ci")).await;
    let patches = patches.lock().unwrap().clone();
    assert!(patches.iter().all(|left| *left == json!(["others.example.org/stay"])), "{patches:?}");
    (result, !patches.is_empty(), metrics.encode())
}

fn issued() -> Value {
    json!({"target": {"uid": "c", "endpoint": "e"}, "credential": "u-1"})
}

const SKIPPED: &str = "coppice_revocations_skipped_total 1";

#[tokio::test(start_paused = true)]
async fn what_cannot_be_understood_loses_its_finalizer_when_forget_after_is_over() {
    let spec = || json!({"cluster": 7, "forgetAfter": "1h"});
    let (result, removed, metrics) = finalized(spec(), issued(), 3590).await;
    assert!(matches!(result, ReconcileResult::At(_)) && !removed, "{result:?}");
    assert!(!metrics.contains(SKIPPED));
    let (result, removed, metrics) = finalized(spec(), issued(), 3601).await;
    assert!(matches!(result, ReconcileResult::Done) && removed, "{result:?}");
    assert!(metrics.contains(SKIPPED), "{metrics}");
}

#[tokio::test(start_paused = true)]
async fn where_not_even_that_is_understood_the_default_counts() {
    let week = 7 * 86_400;
    for (spec, status) in [(json!("?"), issued()), (json!({"forgetAfter": 3}), json!({"sequence": "?"}))] {
        let (_, removed, _) = finalized(spec.clone(), status.clone(), week - 10).await;
        assert!(!removed, "{spec}");
        let (_, removed, metrics) = finalized(spec, status, week + 1).await;
        assert!(removed && metrics.contains(SKIPPED));
    }
}

#[tokio::test(start_paused = true)]
async fn where_nothing_was_issued_it_goes_at_once() {
    let (_, removed, metrics) = finalized(json!({"cluster": 7}), json!({}), 1).await;
    assert!(removed && !metrics.contains(SKIPPED));
}
