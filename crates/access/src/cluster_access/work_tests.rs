use std::num::NonZeroUsize;
use std::sync::{Mutex, OnceLock};

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use coppice_clusters::kubeconfig::{Kubeconfig, Unencrypted};
use coppice_clusters::{ClusterFact, ManagedFact, Urgency};
use coppice_runtime::clock::{Clock, SeededRng};
use coppice_runtime::metrics::Metrics;
use coppice_runtime::read;
use coppice_scripted::{Answer, NOW, Sent, scripted};
use http::Method;
use serde_json::{Value, json};

use super::*;
use crate::kinds::{ClusterProviders, Provider};
use crate::targets::Connect;

/// A controller on this API server, and its metrics.
fn controller(clients: Clients) -> (ClusterAccessController, Metrics) {
    controller_with(clients, None)
}

/// The same, which reaches its targets in this way.
pub(super) fn controller_with(
    clients: Clients,
    connect: Option<Connect>,
) -> (ClusterAccessController, Metrics) {
    let (clock, metrics) = (Clock::following_tokio(NOW), Metrics::new("test"));
    let events = Events::new(&clients, clock.clone(), metrics.clone(), "test", SeededRng::new(1));
    let (unencrypted, namespace) = (Unencrypted::Nowhere, "coppice-access-system");
    let workers = NonZeroUsize::MIN.saturating_add(15);
    let shared = Shared::new(clock.clone(), unencrypted, namespace, workers, connect);
    let (server_clock, gate) = (ServerClock::new(clock), Gate::always(Duration::ZERO));
    let of_access = AccessMetrics::new(&metrics);
    let controller = ClusterAccessController::new(clients, server_clock, gate, events, of_access, &shared);
    (controller, metrics)
}

/// A `ClusterAccess` with this status, at this revision.
pub(super) fn object(revision: &str, status: &Value) -> Value {
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

pub(super) fn decoded(object: &Value) -> Access {
    read::decoded::<ClusterAccesses>(object.to_string().as_bytes(), &()).unwrap()
}

/// A Secret with a kubeconfig.
pub(super) fn target() -> Value {
    let kubeconfig = "apiVersion: v1\nkind: Config\ncurrent-context: c\n\
                      clusters: [{name: k, cluster: {server: 'https://target'}}]\nusers: [{name: u, user: {token: t}}]\n\
                      contexts: [{name: c, context: {cluster: k, user: u}}]\n";
    json!({"type": "Opaque", "data": {"kubeconfig": BASE64_STANDARD.encode(kubeconfig)}})
}

/// The status of one whose first credential is to be issued.
pub(super) fn begun() -> Value {
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
        let result = controller.work(&permit, &AccessKey::new("team", "ci"), access, None).await;
        let is_tried_again = matches!(result, ReconcileResult::Retry { category: "api", .. });
        assert_eq!(is_tried_again, expected.is_empty(), "{result:?}");
        let sent = requests.lock().unwrap();
        let saved = sent.iter().filter(|sent| sent.method == Method::PUT);
        let reasons: Vec<&Value> = saved.map(|sent| &sent.body["status"]["lastError"]["reason"]).collect();
        assert_eq!(reasons, expected);
    }
}

#[tokio::test(start_paused = true)]
async fn while_its_target_is_busy_an_access_gets_its_finalizer_and_its_intent() {
    let target = target();
    let without = |status: &Value| {
        let mut object = object("7", status);
        object["metadata"]["finalizers"] = json!([]);
        object
    };
    let stored = without(&json!({}));
    let (clients, requests) = scripted(move |method, path, body| match *method {
        Method::GET if path.ends_with("/secrets/target") => Answer::Object(200, target.clone()),
        Method::GET if path.ends_with("/clusteraccesses/ci") => Answer::Object(200, stored.clone()),
        Method::PATCH => Answer::Object(200, object("8", &json!({}))),
        Method::PUT => Answer::Object(200, object("9", &body["status"])),
        Method::GET => Answer::Refused(404),
        _ => Answer::Object(201, json!({})),
    });
    let (controller, _) = controller(clients);
    let new = decoded(&without(&json!({})));
    let source = observe::source(&controller, &new).unwrap();
    let hangs = controller.targets.of(&controller.clients, &source, false).await.unwrap();
    let places: Vec<_> = std::iter::from_fn(|| controller.targets.place(&hangs)).collect();
    assert!(!places.is_empty() && controller.targets.is_busy(&source));
    controller.accesses.upsert("team", new);
    let (controller, key) = (Arc::new(controller), AccessKey::new("team", "ci"));
    requests.lock().unwrap().clear();
    let result = Arc::clone(&controller).reconcile(key.clone()).await;
    assert!(matches!(result, ReconcileResult::At(_)), "{result:?}");
    let sent = requests.lock().unwrap().clone();
    let written: Vec<&Value> =
        sent.iter().filter(|sent| sent.method != Method::GET).map(|sent| &sent.body).collect();
    assert_eq!(written[0]["metadata"]["finalizers"], json!(["coppice.dev/cleanup"]));
    assert_eq!(written[1]["status"]["intent"]["credential"], "u-1");
    // What goes on in the target waits, and asks nobody meanwhile.
    controller.accesses.upsert("team", decoded(&object("10", &begun())));
    requests.lock().unwrap().clear();
    let result = Arc::clone(&controller).reconcile(key).await;
    assert!(matches!(result, ReconcileResult::At(_)), "{result:?}");
    assert_eq!(requests.lock().unwrap().len(), 0);
}

#[tokio::test(start_paused = true)]
async fn whoever_finds_no_worker_left_for_its_namespace_reads_nothing_for_its_work() {
    let (clients, requests) = scripted(|method, path, _| match *method {
        Method::GET if path.ends_with("/secrets/target") => Answer::Object(200, target()),
        _ => Answer::Refused(404),
    });
    let (controller, _) = controller(clients);
    for name in ["first", "second"] {
        let mut access = object("7", &begun());
        (access["metadata"]["name"], access["metadata"]["uid"]) = (json!(name), json!(name));
        controller.accesses.upsert("team", decoded(&access));
    }
    let source = observe::source(&controller, &decoded(&object("7", &begun()))).unwrap();
    controller.targets.read(&controller.clients, &source).await.unwrap();
    // Half of the workers but one.
    let _shares: Vec<_> = (0..7).map(|_| controller.targets.share(&source).unwrap()).collect();
    requests.lock().unwrap().clear();
    let controller = Arc::new(controller);
    let reconcile = |name: &str| Arc::clone(&controller).reconcile(AccessKey::new("team", name));
    let (_, second) = tokio::join!(reconcile("first"), reconcile("second"));
    assert!(matches!(second, ReconcileResult::At(_)), "{second:?}");
    let paths: Vec<String> = requests.lock().unwrap().iter().map(|sent| sent.path.clone()).collect();
    let of = |name: &str| paths.iter().any(|path| path.ends_with(&format!("/clusteraccesses/{name}")));
    assert!(of("first") && !of("second"), "{paths:?}");
}

#[tokio::test(start_paused = true)]
async fn a_revocation_is_counted_once_when_status_says_so() {
    let answers = Mutex::new(vec![Some(409), None]);
    let (clients, _) = scripted(move |method, _, body| match *method {
        Method::PUT => match answers.lock().unwrap().remove(0) {
            Some(code) => Answer::Refused(code),
            None => Answer::Object(200, object("8", &body["status"])),
        },
        _ => Answer::Object(201, json!({})),
    });
    let (controller, metrics) = controller(clients);
    let permit = controller.gate.permit().unwrap();
    let access = decoded(&object("7", &json!({"superseded": ["u-0"], "credential": "u-1", "sequence": 1})));
    let mut memory = Memory::new(observe::watched(&controller, &access));
    let observed = observe::observed(&controller, &access, &memory).unwrap();
    let revoked = coppice_clusters::revoked(&observed, "u-0", controller.now());
    for counted in [0, 1] {
        let step = AccessStep::SaveStatus(Box::new(revoked.clone()));
        let applied = apply::apply(&controller, &permit, &access, &observed, &mut memory, step).await;
        assert_eq!(matches!(applied, Applied::Changed(_)), counted == 1);
        let line = format!("coppice_credentials_revoked_total {counted}");
        let text = metrics.encode();
        assert!(text.lines().any(|l| l == line), "{line}: {text}");
    }
}

/// A generation of a `ClusterProvider` with its kubeconfig in that Secret, for namespaces with a label.
fn provider(generation: i64, secret: &str) -> Provider {
    provider_with(&json!({}), generation, secret)
}

/// The same with this status.
fn provider_with(status: &Value, generation: i64, secret: &str) -> Provider {
    let rights = json!({"namespaces": ["shop"], "clusterRoles": ["view"]});
    let selector = json!({"matchLabels": {"ci": "yes"}});
    let object = json!({
        "metadata": {"name": "p", "uid": "p", "resourceVersion": generation.to_string(), "generation": generation},
        "spec": {"credential": {"secret": secret}, "allow": [{"namespaceSelector": selector, "rights": rights}]},
        "status": status
    });
    read::decoded::<ClusterProviders>(object.to_string().as_bytes(), &()).unwrap()
}

/// A `ClusterAccess` that names it.
fn by_provider(revision: &str, status: &Value) -> Value {
    let mut access = object(revision, status);
    access["spec"]["cluster"] = json!({"provider": {"name": "p"}});
    access
}

#[tokio::test(start_paused = true)]
async fn what_a_provider_allowed_is_not_done_where_it_leads_after_a_change() {
    let (store, after) = (Arc::new(OnceLock::<Store<ClusterProviders>>::new()), provider(2, "after"));
    let changing = Arc::clone(&store);
    let (clients, requests) = scripted(move |_, path, _| {
        if !path.ends_with("/namespaces/team") {
            return Answer::Refused(404);
        }
        // While it is looked what the one before allows.
        changing.get().unwrap().upsert("", after.clone());
        Answer::Object(200, json!({"metadata": {"labels": {"ci": "yes"}}}))
    });
    let (controller, _) = controller(clients);
    controller.providers.store.upsert("", provider(1, "before"));
    assert!(store.set(controller.providers.store.clone()).is_ok());
    let permit = controller.gate.permit().unwrap();
    let access = decoded(&by_provider("7", &begun()));
    let result = controller.work(&permit, &AccessKey::new("team", "ci"), access, None).await;
    assert!(matches!(result, ReconcileResult::Retry { category: "behind", .. }), "{result:?}");
    let paths: Vec<String> = requests.lock().unwrap().iter().map(|sent| sent.path.clone()).collect();
    assert_eq!(paths, ["/api/v1/namespaces/team"]);
}

#[tokio::test(start_paused = true)]
async fn what_a_provider_allows_is_understood_without_its_status() {
    let (clients, _) =
        scripted(|_, _, _| Answer::Object(200, json!({"metadata": {"labels": {"ci": "yes"}}})));
    let (controller, _) = controller(clients);
    let of_another_version = provider_with(&json!({"accesses": "many"}), 1, "of-the-platform");
    assert!(of_another_version.status_error.is_some());
    controller.providers.store.upsert("", of_another_version);
    let access = decoded(&by_provider("7", &begun()));
    assert_eq!(
        observe::permission(&controller, &access).await.unwrap(),
        (Permission::Allowed, GrantVerdict::Allowed)
    );
    assert!(observe::source(&controller, &access).is_some());
}

#[tokio::test(start_paused = true)]
async fn nothing_is_taken_away_by_what_a_provider_said_before() {
    let mut status = begun();
    status["observedGeneration"] = json!(1);
    let access = decoded(&by_provider("7", &status));
    for (now, expected) in [(Some(1), Some(GrantVerdict::RightsNotAllowed)), (Some(2), None), (None, None)] {
        let (clients, _) = scripted(move |_, path, _| match now {
            _ if path.ends_with("/namespaces/team") => {
                Answer::Object(200, json!({"metadata": {"labels": {"ci": "no"}}}))
            }
            Some(generation) if path.ends_with("/clusterproviders/p") => {
                let metadata =
                    json!({"name": "p", "uid": "p", "resourceVersion": "9", "generation": generation});
                Answer::Object(200, json!({"metadata": metadata, "spec": {}}))
            }
            _ => Answer::Refused(404),
        });
        let (controller, _) = controller(clients);
        controller.providers.store.upsert("", provider(1, "of-the-platform"));
        let grant = observe::permission(&controller, &access).await.map(|(_, grant)| grant);
        assert_eq!(grant.ok(), expected, "{now:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_managed_cluster_is_gone_where_the_api_server_says_so_and_not_where_a_cache_lacks_it() {
    let mut of_managed = object("7", &json!({"managedCluster": {"uid": "m"}, "sequence": 1}));
    of_managed["spec"]["cluster"] = json!({"managedCluster": {"name": "shop"}});
    let access = decoded(&of_managed);
    for (now, expected) in [
        (json!({"uid": "m"}), (ManagedFact::Stays, ClusterFact::Stays)),
        (
            json!({"uid": "m", "deletionTimestamp": NOW.to_string()}),
            (ManagedFact::Deleting, ClusterFact::Stays),
        ),
        (json!({"uid": "n"}), (ManagedFact::Gone, ClusterFact::Gone)),
        (Value::Null, (ManagedFact::Gone, ClusterFact::Gone)),
    ] {
        let (clients, _) = scripted(move |_, path, _| {
            if now.is_null() || !path.ends_with("/managedclusters/shop") {
                return Answer::Refused(404);
            }
            let mut metadata = now.clone();
            (metadata["name"], metadata["namespace"]) = (json!("shop"), json!("team"));
            (metadata["resourceVersion"], metadata["generation"]) = (json!("1"), json!(1));
            let spec = json!({"provider": {"clusterAPI": {"class": "small"}}, "version": "1.33.4"});
            Answer::Object(200, json!({"metadata": metadata, "spec": spec}))
        });
        let (controller, _) = controller(clients);
        // The cache has none.
        assert_eq!(observe::cluster(&controller, &access).await.unwrap(), expected);
    }
}

#[tokio::test(start_paused = true)]
async fn a_tenant_is_asked_for_nothing_that_the_platform_keeps() {
    let (clients, requests) = scripted(|method, path, body| match *method {
        Method::GET if path.ends_with("/namespaces/team") => {
            Answer::Object(200, json!({"metadata": {"labels": {"ci": "yes"}}}))
        }
        Method::PUT => Answer::Object(200, by_provider("8", &body["status"])),
        _ => Answer::Refused(404),
    });
    let (controller, _) = controller(clients);
    controller.providers.store.upsert("", provider(1, "of-the-platform"));
    let permit = controller.gate.permit().unwrap();
    let access = decoded(&by_provider("7", &begun()));
    controller.work(&permit, &AccessKey::new("team", "ci"), access, None).await;
    let sent = requests.lock().unwrap();
    let saved = sent.iter().find(|sent| sent.method == Method::PUT).unwrap();
    let error = &saved.body["status"]["lastError"];
    assert_eq!(error["reason"], "KubeconfigMissing");
    let message = error["message"].as_str().unwrap();
    assert!(message.contains("ClusterProvider p") && message.contains("ask the platform"), "{message}");
    assert!(!saved.body.to_string().contains("of-the-platform"), "{}", saved.body);
}

#[tokio::test(start_paused = true)]
async fn whoever_finds_no_place_in_the_target_takes_no_call_of_its_provider() {
    let (clients, _) = scripted(|method, path, _| match *method {
        Method::GET if path.ends_with("/namespaces/team") => {
            Answer::Object(200, json!({"metadata": {"labels": {"ci": "yes"}}}))
        }
        Method::GET if path.ends_with("/secrets/of-the-platform") => Answer::Object(200, target()),
        _ => Answer::Refused(404),
    });
    let (controller, _) = controller(clients);
    controller.providers.store.upsert("", provider(1, "of-the-platform"));
    let mut status = begun();
    // Its rights are there, and a credential is what it needs.
    status["observedGeneration"] = json!(1);
    let access = decoded(&by_provider("7", &status));
    let source = observe::source(&controller, &access).unwrap();
    let hangs = controller.targets.of(&controller.clients, &source, false).await.unwrap();
    let _places: Vec<_> = std::iter::from_fn(|| controller.targets.place(&hangs)).collect();
    let (permit, key) = (controller.gate.permit().unwrap(), AccessKey::new("team", "ci"));
    for _ in 0..3 {
        let result = controller.work(&permit, &key, access.clone(), None).await;
        assert!(matches!(result, ReconcileResult::At(_)), "{result:?}");
    }
    let (other, budgets) = (AccessKey::new("team", "other"), &controller.providers.budgets);
    assert_eq!(budgets.take("p", &other, Urgency::New, 1, controller.now()), Turn::Granted);
}

#[tokio::test(start_paused = true)]
async fn what_was_given_is_looked_at_once_while_nothing_changes() {
    let status = json!({
        "sequence": 1, "observedGeneration": 1, "credential": "u-1", "notBefore": NOW.to_string(),
        "notAfter": (NOW + jiff::SignedDuration::from_hours(24)).to_string(),
        "output": {"uid": "s", "resourceVersion": "7", "sha256": "x"}, "target": {"uid": "0", "endpoint": ""}
    });
    let stored = by_provider("7", &status);
    let (clients, requests) = scripted(move |method, path, body| match *method {
        Method::GET if path.ends_with("/namespaces/team") => {
            Answer::Object(200, json!({"metadata": {"labels": {"ci": "yes"}}}))
        }
        Method::GET if path.ends_with("/clusteraccesses/ci") => Answer::Object(200, stored.clone()),
        Method::PUT => Answer::Object(200, by_provider("8", &body["status"])),
        _ => Answer::Refused(404),
    });
    let (controller, _) = controller(clients);
    controller.providers.store.upsert("", provider(1, "of-the-platform"));
    controller.accesses.upsert("team", decoded(&by_provider("7", &status)));
    let secret = json!({"metadata": {
        "name": "out", "namespace": "team", "uid": "s", "resourceVersion": "7", "labels": {"coppice.dev/access": "u"}
    }});
    let secret = read::decoded::<OutputSecrets>(secret.to_string().as_bytes(), &()).unwrap();
    controller.outputs.upsert("team", secret);
    let (controller, key) = (Arc::new(controller), AccessKey::new("team", "ci"));
    let looked = async || {
        requests.lock().unwrap().clear();
        let result = Arc::clone(&controller).reconcile(key.clone()).await;
        assert!(matches!(result, ReconcileResult::At(_)), "{result:?}");
        let sent = requests.lock().unwrap();
        sent.iter().filter(|sent| sent.path.ends_with("/namespaces/team")).count()
    };
    assert_eq!((looked().await, looked().await), (1, 0));
    // Another generation of the provider may allow something else.
    controller.providers.store.upsert("", provider(2, "of-the-platform"));
    assert_eq!((looked().await, looked().await), (1, 0));
}

/// How every target is reached that answers each request with this code; and what it is asked.
fn refusing(code: u16) -> (Option<Connect>, Arc<Mutex<Vec<Sent>>>) {
    let (there, asked) = scripted(move |_, _, _| Answer::Refused(code));
    let connect: Connect = Arc::new(move |_: &Kubeconfig, _: &ServerClock| Some(there.clone()));
    (Some(connect), asked)
}

#[tokio::test(start_paused = true)]
async fn the_budget_of_a_provider_waits_while_its_cluster_has_too_many_requests() {
    for (code, expected) in [(429, true), (403, false)] {
        let (clients, _) = scripted(|method, path, body| match *method {
            Method::GET if path.ends_with("/namespaces/team") => {
                Answer::Object(200, json!({"metadata": {"labels": {"ci": "yes"}}}))
            }
            Method::GET if path.ends_with("/secrets/of-the-platform") => Answer::Object(200, target()),
            Method::PUT => Answer::Object(200, by_provider("8", &body["status"])),
            _ => Answer::Refused(404),
        });
        let (controller, _) = controller_with(clients, refusing(code).0);
        controller.providers.store.upsert("", provider(1, "of-the-platform"));
        let mut status = begun();
        status["observedGeneration"] = json!(1);
        let permit = controller.gate.permit().unwrap();
        let access = decoded(&by_provider("7", &status));
        controller.work(&permit, &AccessKey::new("team", "ci"), access, None).await;
        let (other, budgets) = (AccessKey::new("team", "other"), &controller.providers.budgets);
        let turn = budgets.take("p", &other, Urgency::Expiring, 60, controller.now());
        assert_eq!(matches!(turn, Turn::Throttled { .. }), expected, "{turn:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_revocation_waits_for_the_target_alone_and_not_for_who_is_more_urgent() {
    let mut status = begun();
    (status["observedGeneration"], status["sequence"]) = (json!(1), json!(2));
    status["intent"]["credential"] = json!("u-2");
    (status["superseded"], status["target"]) =
        (json!(["u-0"]), json!({"uid": "0", "endpoint": "https://target"}));
    let (there, asked) = scripted(|method, _, _| match *method {
        Method::GET => Answer::Object(200, json!({"metadata": {"uid": "0"}})),
        _ => Answer::Object(200, json!({})),
    });
    let connect: Connect = Arc::new(move |_: &Kubeconfig, _: &ServerClock| Some(there.clone()));
    let stored = Mutex::new(by_provider("7", &status));
    let (clients, _) = scripted(move |method, path, body| match *method {
        Method::GET if path.ends_with("/namespaces/team") => {
            Answer::Object(200, json!({"metadata": {"labels": {"ci": "yes"}}}))
        }
        Method::GET if path.ends_with("/namespaces/kube-system") => {
            Answer::Object(200, json!({"metadata": {"uid": "1"}}))
        }
        Method::GET if path.ends_with("/secrets/of-the-platform") => Answer::Object(200, target()),
        Method::GET if path.ends_with("/clusteraccesses/ci") => {
            Answer::Object(200, stored.lock().unwrap().clone())
        }
        Method::PUT => {
            let saved = by_provider("8", &body["status"]);
            stored.lock().unwrap().clone_from(&saved);
            Answer::Object(200, saved)
        }
        _ => Answer::Refused(404),
    });
    let (controller, _) = controller_with(clients, Some(connect));
    controller.providers.store.upsert("", provider(1, "of-the-platform"));
    controller.accesses.upsert("team", decoded(&by_provider("7", &status)));
    let until = controller.now() + jiff::SignedDuration::from_secs(7);
    let (other, budgets) = (AccessKey::new("team", "other"), controller.providers.budgets.clone());
    budgets.throttle("p", until);
    // It goes before the credential, and does not ask for its own.
    assert!(matches!(
        budgets.take("p", &other, Urgency::Expiring, 60, controller.now()),
        Turn::Throttled { .. }
    ));
    let controller = Arc::new(controller);
    let deleted = async || {
        Arc::clone(&controller).reconcile(AccessKey::new("team", "ci")).await;
        asked.lock().unwrap().iter().filter(|sent| sent.method == Method::DELETE).count()
    };
    assert_eq!((deleted().await, deleted().await), (0, 0), "it is asked for nothing");
    tokio::time::advance(Duration::from_secs(7)).await;
    assert_eq!(deleted().await, 1);
    let sent = asked.lock().unwrap();
    assert!(sent.iter().all(|sent| sent.method == Method::GET || sent.path.ends_with("-0")), "{sent:?}");
}

#[tokio::test(start_paused = true)]
async fn at_the_end_a_credential_that_is_not_revoked_keeps_no_account_and_no_right() {
    let (there, asked) = scripted(|method, path, _| match *method {
        Method::GET if path.ends_with("/namespaces/kube-system") => {
            Answer::Object(200, json!({"metadata": {"uid": "0"}}))
        }
        Method::GET if path.ends_with("/secrets") => {
            let metadata = json!({"name": "coppice-u-1", "uid": "b", "labels": {"coppice.dev/access": "u"}});
            Answer::Object(200, json!({"items": [{"metadata": metadata}]}))
        }
        Method::GET => Answer::Object(200, json!({"items": []})),
        _ if path.ends_with("/secrets/coppice-u-1") => Answer::Refused(403),
        _ => Answer::Object(200, json!({})),
    });
    let connect: Connect = Arc::new(move |_: &Kubeconfig, _: &ServerClock| Some(there.clone()));
    let deleting = |revision: &str, status: &Value| {
        let mut deleting = object(revision, status);
        deleting["metadata"]["deletionTimestamp"] = json!(NOW.to_string());
        deleting
    };
    let (clients, requests) = scripted(move |method, path, body| match *method {
        Method::GET if path.ends_with("/secrets/target") => Answer::Object(200, target()),
        Method::GET if path.ends_with("/namespaces/kube-system") => {
            Answer::Object(200, json!({"metadata": {"uid": "1"}}))
        }
        Method::PUT => Answer::Object(200, deleting("8", &body["status"])),
        _ => Answer::Refused(404),
    });
    let (controller, _) = controller_with(clients, Some(connect));
    let permit = controller.gate.permit().unwrap();
    let access = decoded(&deleting(
        "7",
        &json!({
            "sequence": 1, "credential": "u-1", "observedGeneration": 1, "revokingSince": NOW.to_string(),
            "target": {"uid": "0", "endpoint": "https://target"}
        }),
    ));
    controller.work(&permit, &AccessKey::new("team", "ci"), access, None).await;
    let sent = requests.lock().unwrap();
    let saved = sent.iter().find(|sent| sent.method == Method::PUT).unwrap();
    assert_eq!(saved.body["status"]["lastError"]["reason"], "TargetRefused");
    let asked = asked.lock().unwrap();
    let is_deleted =
        |path: &str| asked.iter().any(|sent| sent.method == Method::DELETE && sent.path.ends_with(path));
    assert!(is_deleted("/serviceaccounts/coppice-u"), "{asked:?}");
}

#[tokio::test(start_paused = true)]
async fn what_is_withdrawn_waits_for_no_call_of_the_provider() {
    let status = json!({
        "sequence": 1, "observedGeneration": 1, "credential": "u-1", "notBefore": NOW.to_string(),
        "notAfter": (NOW + jiff::SignedDuration::from_hours(24)).to_string(),
        "output": {"uid": "s", "resourceVersion": "7", "sha256": "x"}, "target": {"uid": "0", "endpoint": ""}
    });
    // Its spec asks for more than the target has.
    let wider = |revision: &str, status: &Value| {
        let mut wider = by_provider(revision, status);
        wider["metadata"]["generation"] = json!(2);
        wider
    };
    for (label, expected) in [("yes", 0), ("no", 1)] {
        let stored = wider("7", &status);
        let (clients, requests) = scripted(move |method, path, body| match *method {
            Method::GET if path.ends_with("/namespaces/team") => {
                Answer::Object(200, json!({"metadata": {"labels": {"ci": label}}}))
            }
            Method::GET if path.ends_with("/clusteraccesses/ci") => Answer::Object(200, stored.clone()),
            Method::PUT => Answer::Object(200, wider("8", &body["status"])),
            _ => Answer::Refused(404),
        });
        let (controller, _) = controller(clients);
        controller.providers.store.upsert("", provider(1, "of-the-platform"));
        let (access, key) = (decoded(&wider("7", &status)), AccessKey::new("team", "ci"));
        controller.target_rights.found(&key, access.decoded().unwrap(), Vec::new());
        controller.accesses.upsert("team", access);
        let (other, budgets, now) =
            (AccessKey::new("team", "other"), controller.providers.budgets.clone(), controller.now());
        assert_eq!(budgets.take("p", &other, Urgency::New, 1, now), Turn::Granted);
        assert!(matches!(budgets.take("p", &key, Urgency::Forced, 1, now), Turn::NotBefore(_)));
        let result = Arc::new(controller).reconcile(key).await;
        assert!(matches!(result, ReconcileResult::At(_)), "{result:?}");
        let sent = requests.lock().unwrap();
        let saved: Vec<&Sent> = sent.iter().filter(|sent| sent.method == Method::PUT).collect();
        assert_eq!(saved.len(), expected, "{sent:?}");
        assert!(saved.iter().all(|saved| !saved.body["status"]["revokesAt"].is_null()), "{saved:?}");
    }
}
