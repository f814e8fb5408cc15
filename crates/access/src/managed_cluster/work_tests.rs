use std::num::NonZeroUsize;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use coppice_clusters::kubeconfig::{Kubeconfig, Unencrypted};
use coppice_clusters::{Turn, Urgency};
use coppice_clusters_api::managed_cluster::MAX_SPEC_BYTES;
use coppice_runtime::clock::{Clock, SeededRng};
use coppice_runtime::metrics::Metrics;
use coppice_runtime::read;
use coppice_scripted::{Answer, NOW, Sent, scripted};
use http::Method;
use serde_json::{Value, json};

use super::*;
use crate::kinds::ClusterProviders;
use crate::targets::Connect;

pub(super) fn controller(clients: Clients) -> Arc<ManagedClusterController> {
    controller_with(clients, None)
}

/// The same, which reaches gardens in this way.
fn controller_with(clients: Clients, connect: Option<Connect>) -> Arc<ManagedClusterController> {
    let (clock, metrics) = (Clock::following_tokio(NOW), Metrics::new("test"));
    let events = Events::new(&clients, clock.clone(), metrics.clone(), "test", SeededRng::new(1));
    let shared =
        Shared::new(clock.clone(), Unencrypted::Nowhere, "coppice-access-system", NonZeroUsize::MIN, connect);
    let (server_clock, gate) = (ServerClock::new(clock), Gate::always(Duration::ZERO));
    let of_access = AccessMetrics::new(&metrics);
    Arc::new(ManagedClusterController::new(clients, server_clock, gate, events, of_access, &shared))
}

fn object(status: &Value) -> Value {
    json!({
        "metadata": {
            "name": "shop", "namespace": "team", "uid": "u", "resourceVersion": "7", "generation": 1,
            "finalizers": ["coppice.dev/cleanup"]
        },
        "spec": {"provider": {"clusterAPI": {"class": "small"}}, "version": "1.33.4"},
        "status": status
    })
}

/// An answer that names the object which is not there.
fn no_cluster(name: &str) -> Answer {
    Answer::Object(
        404,
        json!({
            "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "code": 404, "message": "not found",
            "reason": "NotFound", "details": {"name": name, "group": "cluster.x-k8s.io", "kind": "clusters"}
        }),
    )
}

fn status_of(status: Value) -> ManagedClusterStatus {
    serde_json::from_value(status).unwrap()
}

/// Reconciles the one that the cache has so.
async fn reconcile(controller: &Arc<ManagedClusterController>, cached: &Value) -> ReconcileResult {
    let cached = read::decoded::<ManagedClusters>(cached.to_string().as_bytes(), &()).unwrap();
    controller.clusters.upsert("team", cached);
    Arc::clone(controller).reconcile(ClusterKey::new("team", "shop")).await
}

/// What a reconcile of it sends, where the API server answers so to a GET of the `Cluster` and to its creation.
async fn sent(look: Answer, create: Answer) -> Vec<Sent> {
    let (clients, requests) = scripted(move |method, path, body| match *method {
        Method::GET if path.ends_with("/clusters/shop") => look.clone(),
        Method::GET => Answer::Object(200, object(&json!({}))),
        Method::POST if path.ends_with("/clusters") => create.clone(),
        Method::PUT => Answer::Object(200, object(&body["status"])),
        _ => Answer::Object(201, json!({})),
    });
    let controller = controller(clients);
    let _ = reconcile(&controller, &object(&json!({}))).await;
    let sent = requests.lock().unwrap();
    sent.iter().filter(|sent| !sent.path.contains("/events")).cloned().collect()
}

fn reasons(sent: &[Sent]) -> Vec<&str> {
    let saved = sent.iter().filter(|sent| sent.method == Method::PUT);
    saved.filter_map(|sent| sent.body["status"]["lastError"]["reason"].as_str()).collect()
}

fn creations(sent: &[Sent]) -> Vec<&Sent> {
    sent.iter().filter(|sent| sent.method == Method::POST && sent.path.ends_with("/clusters")).collect()
}

#[tokio::test(start_paused = true)]
async fn nothing_is_made_where_it_is_not_known_what_is_there() {
    for (look, expected) in [
        (Answer::Refused(403), None),
        (Answer::Refused(503), None),
        (Answer::Never, None),
        (no_cluster(""), Some("ClusterKindMissing")),
        (Answer::Object(200, json!({"metadata": {"name": "shop", "uid": "theirs"}})), Some("ClusterNotOurs")),
    ] {
        let sent = sent(look, Answer::Refused(500)).await;
        assert!(creations(&sent).is_empty(), "{sent:#?}");
        assert_eq!(reasons(&sent), expected.into_iter().collect::<Vec<_>>());
    }
}

#[tokio::test(start_paused = true)]
async fn the_intent_is_saved_before_it_is_made_and_a_refusal_is_said() {
    let sent = sent(no_cluster("shop"), Answer::Refused(422)).await;
    let writes: Vec<&Sent> = sent.iter().filter(|sent| sent.method != Method::GET).collect();
    assert_eq!(writes[0].body["status"]["state"], "Creating");
    let made = creations(&sent);
    assert_eq!(made[0].body["metadata"]["labels"]["coppice.dev/managed-cluster"], "u");
    assert_eq!(made[0].body["spec"]["topology"]["version"], "v1.33.4");
    assert_eq!((made.len(), reasons(&sent)), (1, vec!["ClusterRefused"]));
}

#[tokio::test(start_paused = true)]
async fn a_creation_whose_answer_is_lost_is_said_and_not_sent_again_without_a_look() {
    let sent = sent(no_cluster("shop"), Answer::Refused(500)).await;
    assert_eq!((creations(&sent).len(), reasons(&sent)), (1, vec!["ClusterRefused"]));
    let last = &sent.iter().rfind(|sent| sent.method == Method::PUT).unwrap().body["status"];
    assert_eq!((&last["state"], &last["lastError"]["class"]), (&json!("Failed"), &json!("Transient")));
}

#[tokio::test(start_paused = true)]
async fn an_event_says_that_a_cluster_is_left() {
    let theirs = Answer::Object(200, json!({"metadata": {"name": "shop", "uid": "made"}}));
    for (look, expected) in [(theirs, 1), (no_cluster("shop"), 0)] {
        let cluster = json!({"kind": "Cluster", "namespace": "team", "name": "shop", "uid": "made"});
        let mut deleted = object(&json!({"state": "Deleting", "hash": "h", "cluster": cluster}));
        deleted["metadata"]["deletionTimestamp"] = json!(NOW.to_string());
        let stored = deleted.clone();
        let (clients, requests) = scripted(move |method, path, _| match *method {
            Method::GET if path.ends_with("/clusters/shop") => look.clone(),
            Method::GET | Method::PATCH => Answer::Object(200, stored.clone()),
            _ => Answer::Object(201, json!({})),
        });
        let controller = controller(clients);
        let _ = reconcile(&controller, &deleted).await;
        controller.events.flush().await;
        let sent = requests.lock().unwrap();
        let patched = sent.iter().filter(|sent| sent.method == Method::PATCH).count();
        let said = sent.iter().filter(|sent| sent.body["reason"] == "ClusterNotOurs").count();
        assert_eq!((patched, said), (1, expected), "{sent:#?}");
    }
}

#[tokio::test(start_paused = true)]
async fn what_was_made_for_another_one_of_its_name_is_not_taken_over() {
    let (clients, requests) = scripted(|method, path, _| match *method {
        Method::GET if path.ends_with("/clusters/shop") => Answer::Object(
            200,
            json!({"metadata": {
                "name": "shop", "uid": "made", "resourceVersion": "1", "labels": {"coppice.dev/managed-cluster": "u"}
            }}),
        ),
        Method::GET => {
            let mut another = object(&json!({}));
            another["metadata"]["uid"] = json!("v");
            Answer::Object(200, another)
        }
        _ => Answer::Refused(409),
    });
    let controller = controller(clients);
    let result = reconcile(&controller, &object(&json!({}))).await;
    assert!(matches!(result, ReconcileResult::Retry { category: "behind", .. }));
    let sent = requests.lock().unwrap();
    assert!(sent.iter().all(|sent| sent.method == Method::GET), "{sent:#?}");
}

#[tokio::test(start_paused = true)]
async fn a_spec_that_is_too_large_or_not_understood_is_said_once_and_nothing_is_done() {
    let mut large = object(&json!({}))["spec"].clone();
    large["workers"] =
        json!([{"name": "a", "min": 1, "max": 1, "annotations": {"a": "x".repeat(MAX_SPEC_BYTES)}}]);
    for (spec, says) in
        [(large, "more than the 131072 that are read"), (json!({"version": 7}), "cannot be understood")]
    {
        let mut shop = object(&json!({}));
        shop["spec"] = spec;
        let there = shop.clone();
        let (clients, requests) = scripted(move |method, _, body| match *method {
            Method::GET => Answer::Object(200, there.clone()),
            Method::PUT => {
                let mut saved = there.clone();
                saved["status"] = body["status"].clone();
                Answer::Object(200, saved)
            }
            _ => Answer::Object(201, json!({})),
        });
        let controller = controller(clients);
        let key = ClusterKey::new("team", "shop");
        let decoded =
            |shop: &Value| read::decoded::<ManagedClusters>(shop.to_string().as_bytes(), &()).unwrap();
        controller.clusters.upsert("team", decoded(&shop));
        let _ = Arc::clone(&controller).reconcile(key.clone()).await;
        let writes = || -> Vec<Sent> {
            let sent = requests.lock().unwrap();
            let is_event = |sent: &&Sent| sent.path.contains("/events");
            sent.iter().filter(|sent| sent.method != Method::GET && !is_event(sent)).cloned().collect()
        };
        let saved = writes();
        assert_eq!((saved.len(), reasons(&saved)), (1, vec!["InvalidSpec"]), "{saved:#?}");
        let status = saved[0].body["status"].clone();
        assert_eq!((&status["state"], &status["observedGeneration"]), (&json!("Failed"), &json!(1)));
        assert!(status["lastError"]["message"].as_str().unwrap().contains(says), "{status:#}");
        (shop["status"], shop["metadata"]["resourceVersion"]) = (status, json!("8"));
        controller.clusters.upsert("team", decoded(&shop));
        let _ = Arc::clone(&controller).reconcile(key).await;
        assert_eq!(writes().len(), 1, "it is said already");
    }
}

#[tokio::test(start_paused = true)]
async fn what_a_webhook_takes_off_is_said_and_not_written_again_and_again() {
    let bare = json!({"metadata": {
        "name": "shop", "uid": "made", "resourceVersion": "1", "generation": 1, "labels": {"coppice.dev/managed-cluster": "u"}
    }});
    let (clients, requests) = scripted(move |method, path, body| match *method {
        Method::GET | Method::PATCH if path.ends_with("/clusters/shop") => Answer::Object(200, bare.clone()),
        Method::GET => Answer::Object(200, object(&json!({}))),
        Method::PUT => Answer::Object(200, object(&body["status"])),
        _ => Answer::Object(201, json!({})),
    });
    let controller = controller(clients);
    let _ = reconcile(&controller, &object(&json!({}))).await;
    let sent = requests.lock().unwrap().clone();
    let patches =
        sent.iter().filter(|sent| sent.method == Method::PATCH && sent.path.ends_with("/clusters/shop"));
    assert_eq!((patches.count(), reasons(&sent)), (1, vec!["ClusterRefused"]), "{sent:#?}");
}

#[tokio::test(start_paused = true)]
async fn a_confirmation_that_a_webhook_takes_off_is_said_and_not_written_again_and_again() {
    let bare = json!({"metadata": {
        "name": "shop", "uid": "made", "resourceVersion": "1", "generation": 1, "labels": {"coppice.dev/managed-cluster": "u"}
    }});
    let cluster = json!({"kind": "Cluster", "namespace": "team", "name": "shop", "uid": "made"});
    let mut deleted = object(
        &json!({"state": "Deleting", "hash": "h", "cluster": cluster, "waitingSince": NOW.to_string()}),
    );
    deleted["metadata"]["deletionTimestamp"] = json!(NOW.to_string());
    let stored = deleted.clone();
    let (clients, requests) = scripted(move |method, path, body| match *method {
        Method::GET | Method::PATCH if path.ends_with("/clusters/shop") => Answer::Object(200, bare.clone()),
        Method::PUT => {
            let mut saved = stored.clone();
            saved["status"] = body["status"].clone();
            Answer::Object(200, saved)
        }
        Method::GET => Answer::Object(200, stored.clone()),
        _ => Answer::Object(201, json!({})),
    });
    let controller = controller(clients);
    let result = reconcile(&controller, &deleted).await;
    assert!(matches!(result, ReconcileResult::At(_)), "{result:?}");
    let sent = requests.lock().unwrap().clone();
    let patches = sent.iter().filter(|sent| sent.method == Method::PATCH).count();
    assert_eq!((patches, reasons(&sent)), (1, vec!["ClusterRefused"]), "{sent:#?}");
    let said = sent.iter().find(|sent| sent.method == Method::PUT).unwrap();
    let message = said.body["status"]["lastError"]["message"].as_str().unwrap();
    assert!(message.contains("coppice.dev/confirm-deletion"), "{message}");
}

#[test]
fn a_deletion_that_fails_is_counted_as_failed_and_the_longest_wait_is_measured() {
    let error = json!({
        "reason": "ClusterOverdue", "class": "Transient", "message": "m", "generation": 2, "attempts": 1, "at": "2026-01-01T00:00:00Z"
    });
    let of = |status: Value| counted_as(&status_of(status));
    assert_eq!(of(json!({})), ClusterState::Planning);
    assert_eq!(of(json!({"state": "Deleting"})), ClusterState::Deleting);
    assert_eq!(of(json!({"state": "Deleting", "lastError": error})), ClusterState::Failed);
    assert_eq!(of(json!({"state": "Ready"})), ClusterState::Ready);
    let since = |status: Value| waits_for(&status_of(status), NOW);
    assert_eq!((since(json!({})), since(json!({"waitingSince": "2025-12-31T23:59:00Z"}))), (0, 60));
}

/// A Secret with the kubeconfig of a garden.
fn garden() -> Value {
    let kubeconfig = "apiVersion: v1\nkind: Config\ncurrent-context: c\n\
                      clusters: [{name: k, cluster: {server: 'https://garden'}}]\nusers: [{name: u, user: {token: t}}]\n\
                      contexts: [{name: c, context: {cluster: k, user: u}}]\n";
    json!({"type": "Opaque", "data": {"kubeconfig": BASE64_STANDARD.encode(kubeconfig)}})
}

/// The one of that name, which is a Shoot of that garden.
fn of_garden(name: &str) -> Value {
    let mut shop = object(&json!({}));
    (shop["metadata"]["name"], shop["metadata"]["uid"]) = (json!(name), json!(name));
    shop["spec"] = json!({"provider": {"gardener": {
        "clusterProvider": "dev", "cloudProfile": "aws", "credentialsBinding": "b", "infrastructure": "aws"
    }}, "version": "1.33.4"});
    shop
}

/// The provider of that garden, with so many calls a minute.
fn use_provider(controller: &ManagedClusterController, per_minute: u32) {
    let provider = json!({
        "metadata": {"name": "dev", "uid": "p", "resourceVersion": "1", "generation": 1},
        "spec": {"credential": {"secret": "garden"}, "project": "dev", "managedClusters": ["team"], "callsPerMinute": per_minute}
    });
    let provider = read::decoded::<ClusterProviders>(provider.to_string().as_bytes(), &()).unwrap();
    controller.providers.store.upsert("", provider);
}

#[tokio::test(start_paused = true)]
async fn a_garden_is_asked_for_nothing_before_the_time_that_it_says_and_status_says_until_when() {
    let (there, asked) = scripted(|_, _, _| Answer::TooManyRequests(40));
    let connect: Connect = Arc::new(move |_: &Kubeconfig, _: &ServerClock| Some(there.clone()));
    let (clients, requests) = scripted(|method, path, body| match *method {
        Method::GET if path.ends_with("/secrets/garden") => Answer::Object(200, garden()),
        Method::GET if path.contains("/managedclusters/") => {
            Answer::Object(200, of_garden(path.rsplit('/').next().unwrap()))
        }
        Method::PUT => {
            let mut saved = of_garden(body["metadata"]["name"].as_str().unwrap());
            saved["status"] = body["status"].clone();
            Answer::Object(200, saved)
        }
        _ => Answer::Object(201, json!({})),
    });
    let controller = controller_with(clients, Some(connect));
    use_provider(&controller, 60);
    for name in ["shop", "other"] {
        let cached = of_garden(name).to_string();
        controller.clusters.upsert("team", read::decoded::<ManagedClusters>(cached.as_bytes(), &()).unwrap());
    }
    let asked_after = async |name: &str| {
        let _ = Arc::clone(&controller).reconcile(ClusterKey::new("team", name)).await;
        asked.lock().unwrap().len()
    };
    let said = || -> Value {
        let requests = requests.lock().unwrap();
        requests.iter().rfind(|sent| sent.method == Method::PUT).unwrap().body["status"].clone()
    };
    assert_eq!(asked_after("shop").await, 1);
    assert_eq!(said()["lastError"]["reason"], "TargetThrottled");
    // Nor for another one.
    assert_eq!(asked_after("other").await, 1);
    assert_eq!(said()["asksAgain"], "2026-01-01T00:00:42Z");
    tokio::time::advance(Duration::from_secs(41)).await;
    assert_eq!(asked_after("other").await, 1);
    tokio::time::advance(Duration::from_secs(1)).await;
    assert_eq!(asked_after("other").await, 2, "it goes on");
}

#[tokio::test(start_paused = true)]
async fn a_garden_is_not_asked_while_the_budget_of_its_provider_is_used_up_and_status_says_so() {
    let mut shop = of_garden("shop");
    let there = shop.clone();
    let (clients, requests) = scripted(move |method, path, body| match *method {
        Method::GET if path.ends_with("/secrets/garden") => Answer::Object(200, garden()),
        Method::GET if path.ends_with("/managedclusters/shop") => Answer::Object(200, there.clone()),
        Method::PUT => {
            let mut saved = there.clone();
            saved["status"] = body["status"].clone();
            Answer::Object(200, saved)
        }
        _ => Answer::Refused(404),
    });
    let controller = controller(clients);
    use_provider(&controller, 1);
    let decoded = |shop: &Value| read::decoded::<ManagedClusters>(shop.to_string().as_bytes(), &()).unwrap();
    controller.clusters.upsert("team", decoded(&shop));
    let (other, budgets) = (ClusterKey::new("team", "other"), &controller.providers.budgets);
    assert_eq!(budgets.take("dev", &other, Urgency::Routine, 1, controller.now()), Turn::Granted);
    let key = ClusterKey::new("team", "shop");
    let result = Arc::clone(&controller).reconcile(key.clone()).await;
    assert!(matches!(result, ReconcileResult::At(_)), "{result:?}");
    assert_eq!(controller.providers.budgets.waiting("dev", controller.now()), 1);
    let kubeconfig = "/api/v1/namespaces/coppice-access-system/secrets/garden";
    let managed = "/apis/coppice.dev/v1alpha1/namespaces/team/managedclusters/shop";
    let paths = || -> Vec<String> { requests.lock().unwrap().iter().map(|sent| sent.path.clone()).collect() };
    assert_eq!(paths(), [kubeconfig.to_owned(), managed.to_owned(), format!("{managed}/status")]);
    let said = requests.lock().unwrap()[2].body["status"].clone();
    let ready = said["conditions"].as_array().unwrap().iter().find(|found| found["type"] == "Ready");
    assert_eq!(ready.unwrap()["reason"], "ProviderCallsSpent");
    // It is woken by that write, and writes nothing more.
    (shop["status"], shop["metadata"]["resourceVersion"]) = (said, json!("8"));
    controller.clusters.upsert("team", decoded(&shop));
    let result = Arc::clone(&controller).reconcile(key.clone()).await;
    assert!(matches!(result, ReconcileResult::At(_)), "{result:?}");
    assert!(paths().iter().filter(|path| path.ends_with("/status")).count() == 1, "{:?}", paths());
    assert!(!controller.settled().contains_key(&key), "nobody has looked at it");
}

#[tokio::test(start_paused = true)]
async fn a_failure_has_an_event_once_for_each_spec() {
    let (clients, requests) = scripted(|_, _, _| Answer::Object(201, json!({})));
    let controller = controller(clients);
    let failed = |generation: i64, attempts: u32| {
        json!({"state": "Failed", "lastError": {
            "reason": "ClusterKindMissing", "class": "WaitingForInput", "message": format!("spec {generation}"),
            "generation": generation, "attempts": attempts, "at": NOW.to_string()
        }})
    };
    let states = [failed(1, 1), failed(1, 2), failed(2, 1), failed(2, 2)];
    let mut before = json!({});
    for status in states {
        let mut managed = object(&status);
        managed["metadata"]["generation"] = status["lastError"]["generation"].clone();
        let managed = read::decoded::<ManagedClusters>(managed.to_string().as_bytes(), &()).unwrap();
        report::saved(&controller, &managed, &status_of(before));
        controller.events.flush().await;
        before = status;
    }
    let sent = requests.lock().unwrap();
    let said: Vec<_> = sent.iter().map(|sent| (&sent.method, &sent.body["note"])).collect();
    assert_eq!(said, [(&Method::POST, &json!("spec 1")), (&Method::POST, &json!("spec 2"))]);
}
