use std::num::NonZeroUsize;
use std::time::Duration;

use coppice_clusters::kubeconfig::Unencrypted;
use coppice_runtime::clock::Clock;
use coppice_runtime::metrics::Metrics;
use coppice_scripted::{Answer, NOW, Sent, scripted};
use http::Method;
use serde_json::{Value, json};

use super::*;

/// A Secret with that label and the id of that credential.
fn secret(access: &str, credential: &str, of_type: &str) -> Value {
    json!({
        "metadata": {
            "name": "out", "namespace": "team", "uid": "s", "resourceVersion": "7",
            "labels": {"coppice.dev/access": access},
            "annotations": {"coppice.dev/credential": credential, "coppice.dev/installation": "0a-1"}
        },
        "type": of_type, "data": {"kubeconfig": ""}
    })
}

/// A `ClusterAccess` of that uid.
fn access(uid: &str) -> Value {
    json!({
        "metadata": {"name": "ci", "namespace": "team", "uid": uid, "resourceVersion": "5", "generation": 1},
        "spec": {
            "cluster": {"kubeconfigSecret": {"name": "target"}}, "output": {"secret": "out"},
            "rights": {"bind": {"clusterRole": "view", "namespaces": ["shop"]}}
        }
    })
}

/// A controller of a cluster whose `kube-system` has the uid 0a-1, with this Secret and these accesses in its caches, where the API server
/// lists these (none: it does not say); what it asks, and what it measures.
fn controller(
    secret: &Value,
    cached: &[Value],
    listed: Option<&[Value]>,
) -> (Arc<LeftoverController>, Arc<Mutex<Vec<Sent>>>, Metrics) {
    let (answer, list) = (secret.clone(), listed.map(<[Value]>::to_vec));
    let (clients, requests) = scripted(move |method, path, _| match (method, &list) {
        (&Method::GET, Some(items)) if path.ends_with("/clusteraccesses") => {
            Answer::Object(200, json!({"metadata": {"resourceVersion": "9"}, "items": items}))
        }
        (&Method::GET, None) if path.ends_with("/clusteraccesses") => Answer::Refused(500),
        (&Method::GET, _) if path.ends_with("/kube-system") => {
            Answer::Object(200, json!({"metadata": {"uid": "0a-1"}}))
        }
        (&Method::GET, _) => Answer::Object(200, answer.clone()),
        _ => Answer::Object(200, json!({})),
    });
    let clock = Clock::following_tokio(NOW);
    let shared = Shared::new(clock, Unencrypted::Nowhere, "coppice-access-system", NonZeroUsize::MIN, None);
    for access in cached {
        let access = read::decoded::<ClusterAccesses>(access.to_string().as_bytes(), &()).unwrap();
        shared.accesses.upsert("team", access);
    }
    let output = read::decoded::<OutputSecrets>(secret.to_string().as_bytes(), &()).unwrap();
    shared.outputs.upsert("team", output);
    let (metrics, gate) = (Metrics::new("test"), Gate::always(Duration::ZERO));
    let of_access = AccessMetrics::new(&metrics);
    (Arc::new(LeftoverController::new(clients, gate, of_access, &shared)), requests, metrics)
}

fn key() -> OutputKey {
    OutputKey { namespace: "team".into(), name: "out".into() }
}

/// What is deleted of this Secret, by which preconditions, where the cache and the API server have these accesses (none: it does not say).
async fn swept(secret: &Value, cached: &[Value], listed: Option<&[Value]>) -> Vec<Value> {
    let (controller, requests, _) = controller(secret, cached, listed);
    let is_looked_at = controller.all() == [key()];
    let result = Arc::clone(&controller).reconcile(key()).await;
    assert_eq!(matches!(result, ReconcileResult::Retry { .. }), listed.is_none(), "{result:?}");
    let sent = requests.lock().unwrap();
    let deleted: Vec<Value> = sent
        .iter()
        .filter(|sent| sent.method == Method::DELETE && sent.path.ends_with("/namespaces/team/secrets/out"))
        .map(|sent| sent.body["preconditions"].clone())
        .collect();
    assert_eq!(deleted.len(), sent.iter().filter(|sent| sent.method != Method::GET).count());
    assert!(is_looked_at || deleted.is_empty());
    deleted
}

#[tokio::test(start_paused = true)]
async fn a_secret_whose_access_is_gone_is_deleted_as_it_was_read() {
    let expected = [json!({"uid": "s", "resourceVersion": "7"})];
    assert_eq!(swept(&secret("u", "u-3", "Opaque"), &[], Some(&[])).await, expected);
    // Another access of that name needs it to be gone.
    let other = [access("other")];
    assert_eq!(swept(&secret("u", "u-3", "Opaque"), &other, Some(&other)).await, expected);
}

#[tokio::test(start_paused = true)]
async fn a_secret_stays_that_may_be_in_use_or_is_somebody_elses() {
    let (ours, living, none): (_, _, &[Value]) = (secret("u", "u-3", "Opaque"), [access("u")], &[]);
    for (secret, cached, listed) in [
        (&ours, &living[..], Some(&living[..])),
        // The watch has not shown it yet, or the list lacks it.
        (&ours, none, Some(&living[..])),
        (&ours, &living[..], Some(none)),
        (&ours, none, None),
        (&secret("kubeconfig", "kubeconfig-1", "Opaque"), none, Some(none)),
        (&secret("u", "", "Opaque"), none, Some(none)),
        (&secret("u", "u2-1", "Opaque"), none, Some(none)),
        (&secret("u", "u-3", "kubernetes.io/tls"), none, Some(none)),
    ] {
        assert_eq!(swept(secret, cached, listed).await, Vec::<Value>::new(), "{secret}");
    }
}

#[tokio::test(start_paused = true)]
async fn what_another_installation_wrote_stays_and_is_looked_at_once() {
    let mut copied = secret("u", "u-3", "Opaque");
    copied["metadata"]["annotations"]["coppice.dev/installation"] = json!("0b-2");
    let mut of_earlier_version = secret("u", "u-3", "Opaque");
    of_earlier_version["metadata"]["annotations"] = json!({"coppice.dev/credential": "u-3"});
    for secret in [copied, of_earlier_version] {
        let (controller, requests, metrics) = controller(&secret, &[], Some(&[]));
        let measures = |expected: usize| {
            controller.resync();
            let (line, text) = (format!("coppice_foreign_secrets {expected}"), metrics.encode());
            assert!(text.lines().any(|l| l == line), "{line}: {text}");
        };
        measures(0);
        let looked_at = async || {
            requests.lock().unwrap().clear();
            assert_eq!(controller.all(), [key()]);
            let result = Arc::clone(&controller).reconcile(key()).await;
            assert!(matches!(result, ReconcileResult::Done), "{result:?}");
            let sent = requests.lock().unwrap();
            assert!(sent.iter().all(|sent| sent.method == Method::GET), "{sent:?}");
            !sent.is_empty()
        };
        assert_eq!((looked_at().await, looked_at().await), (true, false));
        measures(1);
        // Another revision of it may be ours.
        let mut later = secret.clone();
        later["metadata"]["resourceVersion"] = json!("8");
        let later = read::decoded::<OutputSecrets>(later.to_string().as_bytes(), &()).unwrap();
        controller.outputs.upsert("team", later);
        measures(0);
        assert!(looked_at().await);
        measures(1);
        // Its access comes, as from a backup.
        let restored = read::decoded::<ClusterAccesses>(access("u").to_string().as_bytes(), &()).unwrap();
        controller.accesses.upsert("team", restored);
        measures(0);
    }
}
