use std::num::NonZeroUsize;

use coppice_clusters::kubeconfig::{Cluster, Kubeconfig, Unencrypted, User};
use coppice_clusters_api::SecretKey;
use coppice_runtime::clock::Clock;
use coppice_runtime::collapse::Collapse;
use coppice_runtime::metrics::Metrics;
use coppice_scripted::{Answer, NOW, scripted};
use http::Method;
use serde_json::{Value, json};

use super::*;

/// A binding of a `ClusterAccess` of that uid, with the id of that installation.
fn binding(access: &str, installation: &str) -> Value {
    json!({"metadata": {
        "name": format!("coppice-{access}"), "namespace": "shop", "uid": format!("uid of {access}"),
        "labels": {"coppice.dev/access": access, "coppice.dev/installation": installation}
    }})
}

fn access(uid: &str) -> Value {
    json!({
        "metadata": {"name": uid, "namespace": "team", "uid": uid, "resourceVersion": "5", "generation": 1},
        "spec": {
            "cluster": {"kubeconfigSecret": {"name": "target"}}, "output": {"secret": "out"},
            "rights": {"bind": {"clusterRole": "view", "namespaces": ["shop"]}}
        },
        "status": {"target": {"uid": "0", "endpoint": ""}}
    })
}

/// A controller on an API server that lists these accesses (none: it does not say), with those in the cache.
fn controller(cached: &[&str], listed: Option<&[&str]>) -> (TargetLeftoverController, Metrics) {
    let list = listed.map(|uids| uids.iter().copied().map(access).collect::<Vec<Value>>());
    let (clients, _) = scripted(move |_, path, _| match &list {
        Some(items) if path.ends_with("/clusteraccesses") => {
            Answer::Object(200, json!({"metadata": {"resourceVersion": "9"}, "items": items}))
        }
        _ => Answer::Refused(500),
    });
    let (clock, metrics) = (Clock::following_tokio(NOW), Metrics::new("test"));
    let namespace = "coppice-access-system";
    let shared = Shared::new(clock, Unencrypted::Nowhere, namespace, NonZeroUsize::MIN, None);
    for uid in cached {
        let access = read::decoded::<ClusterAccesses>(access(uid).to_string().as_bytes(), &()).unwrap();
        shared.accesses.upsert("team", access);
    }
    let of_access = AccessMetrics::new(&metrics);
    let gate = Gate::always(Duration::ZERO);
    (TargetLeftoverController::new(clients, gate, of_access, shared, GONE_FOR), metrics)
}

/// Looks through a target once, and again when what is left may be deleted; what came of that.
async fn sweep_twice(controller: &TargetLeftoverController, clients: Clients) -> Result<(), SweepError> {
    let (permit, source, target) = (controller.gate.permit().unwrap(), source(), target(clients));
    controller.sweep_target(&permit, (&source, &target), "i").await.unwrap();
    tokio::time::advance(GONE_FOR).await;
    controller.sweep_target(&permit, (&source, &target), "i").await
}

/// A target at these clients.
fn target(clients: Clients) -> Target {
    let cluster = Cluster { server: "https://target".to_owned(), authorities: None, server_name: None };
    Target { kubeconfig: Kubeconfig { cluster, user: User::Token("t".to_owned()) }, clients }
}

/// Where its kubeconfig is.
fn source() -> Source {
    let key = SecretKey { name: "target".to_owned(), key: "kubeconfig".to_owned() };
    Source::new("team", &key)
}

/// What is deleted of these bindings, by which preconditions, where the cache and the API server have these accesses.
async fn swept(found: &[Value], cached: &[&str], listed: Option<&[&str]>) -> Vec<(String, Value)> {
    let found = found.to_vec();
    let (clients, requests) = scripted(move |method, path, _| match *method {
        Method::GET if path.ends_with("/rolebindings") => Answer::Object(200, json!({"items": found})),
        // Not every user of a kubeconfig may list everything.
        Method::GET if path.ends_with("/secrets") => Answer::Refused(403),
        Method::GET => Answer::Object(200, json!({"items": []})),
        _ => Answer::Object(200, json!({})),
    });
    let (controller, metrics) = controller(cached, listed);
    let result = sweep_twice(&controller, clients).await;
    assert!(result.is_ok() || listed.is_none(), "{result:?}");
    let sent = requests.lock().unwrap();
    let deleted: Vec<(String, Value)> = sent
        .iter()
        .filter(|sent| sent.method == Method::DELETE)
        .map(|sent| (sent.path.clone(), sent.body["preconditions"]["uid"].clone()))
        .collect();
    assert_eq!(deleted.len(), sent.iter().filter(|sent| sent.method != Method::GET).count());
    let line = format!("coppice_target_leftovers_deleted_total {}", deleted.len());
    let text = metrics.encode();
    assert!(text.lines().any(|l| l == line), "{line}: {text}");
    deleted
}

#[tokio::test(start_paused = true)]
async fn what_is_left_of_an_access_that_is_gone_is_deleted_as_it_was_found() {
    let all = [binding("dead", "i"), binding("living", "i")];
    let path = "/apis/rbac.authorization.k8s.io/v1/namespaces/shop/rolebindings/coppice-dead";
    let expected = [(path.to_owned(), json!("uid of dead"))];
    assert_eq!(swept(&all, &["living"], Some(&["living"])).await, expected);
    // So many at once.
    let many: Vec<Value> = (0..=MAX_DELETED).map(|n| binding(&format!("dead{n}"), "i")).collect();
    assert_eq!(swept(&many, &[], Some(&[])).await.len(), MAX_DELETED);
}

#[tokio::test(start_paused = true)]
async fn what_is_left_stays_while_it_may_be_in_use_or_is_not_ours() {
    let dead = binding("dead", "i");
    let mut of_earlier_version = dead.clone();
    of_earlier_version["metadata"]["labels"] = json!({"coppice.dev/access": "dead"});
    let mut named_by_others = dead.clone();
    named_by_others["metadata"]["name"] = json!("cluster-admin");
    let (none, of_it): (&[&str], &[&str]) = (&[], &["dead"]);
    for (found, cached, listed) in [
        (&dead, of_it, Some(of_it)),
        // The watch has not shown it yet, the list lacks it, or the API server does not say.
        (&dead, none, Some(of_it)),
        (&dead, of_it, Some(none)),
        (&dead, none, None),
        // Its access is of another installation, or of one that did not write down which.
        (&binding("dead", "other"), none, Some(none)),
        (&of_earlier_version, none, Some(none)),
        (&named_by_others, none, Some(none)),
    ] {
        let deleted = swept(std::slice::from_ref(found), cached, listed).await;
        assert_eq!(deleted, Vec::<(String, Value)>::new(), "{found}");
    }
}

#[tokio::test(start_paused = true)]
async fn what_is_left_was_seen_for_an_hour_without_its_access() {
    let found = binding("dead", "i");
    let (clients, requests) = scripted(move |method, path, _| match *method {
        Method::GET if path.ends_with("/rolebindings") => Answer::Object(200, json!({"items": [found]})),
        Method::GET => Answer::Object(200, json!({"items": []})),
        _ => Answer::Object(200, json!({})),
    });
    let (controller, _) = controller(&[], Some(&[]));
    let (permit, source, target) = (controller.gate.permit().unwrap(), source(), target(clients));
    let deleted_after = async |minutes: u64| {
        tokio::time::advance(Duration::from_mins(minutes)).await;
        controller.sweep_target(&permit, (&source, &target), "i").await.unwrap();
        requests.lock().unwrap().iter().filter(|sent| sent.method == Method::DELETE).count()
    };
    assert_eq!((deleted_after(0).await, deleted_after(59).await), (0, 0));
    // The right backup is restored, and then another wrong one.
    let back = read::decoded::<ClusterAccesses>(access("dead").to_string().as_bytes(), &()).unwrap();
    controller.shared.accesses.upsert("team", back);
    assert_eq!(deleted_after(1).await, 0);
    controller.shared.accesses.remove_if("team", "dead", |_| true);
    assert_eq!((deleted_after(0).await, deleted_after(59).await), (0, 0));
    assert_eq!(deleted_after(1).await, 1);
}

#[tokio::test(start_paused = true)]
async fn a_target_that_shows_other_accesses_each_time_fills_no_memory() {
    let listed = Mutex::new(0);
    let (clients, _) = scripted(move |method, path, _| {
        if *method != Method::GET || !path.ends_with("/rolebindings") {
            return Answer::Object(200, json!({"items": []}));
        }
        let mut listed = listed.lock().unwrap();
        *listed += 1;
        let found: Vec<Value> = (0..=MAX_GONE).map(|n| binding(&format!("{listed}-{n}"), "i")).collect();
        Answer::Object(200, json!({"items": found}))
    });
    let (controller, _) = controller(&[], Some(&[]));
    let (permit, source, target) = (controller.gate.permit().unwrap(), source(), target(clients));
    for _ in 0..3 {
        controller.sweep_target(&permit, (&source, &target), "i").await.unwrap();
        let remembered: Vec<usize> = controller.seen().values().map(|seen| seen.gone.len()).collect();
        assert_eq!(remembered, [MAX_GONE]);
    }
    // Nobody leads to it any more.
    assert!(controller.all().is_empty() && controller.seen().is_empty());
}

#[tokio::test(start_paused = true)]
async fn what_the_target_refuses_to_delete_keeps_nothing_else() {
    let mut bindings: Vec<Value> =
        (0..MAX_REFUSED + 2).map(|n| binding(&format!("refused{n}"), "i")).collect();
    // What somebody else's finalizer keeps is not asked for again.
    let mut deleted = binding("deleted", "i");
    deleted["metadata"]["deletionTimestamp"] = json!(NOW.to_string());
    bindings.insert(0, deleted);
    let role = binding("dead", "i");
    let (clients, requests) = scripted(move |method, path, _| match *method {
        Method::GET if path.ends_with("/rolebindings") => Answer::Object(200, json!({"items": bindings})),
        Method::GET if path.ends_with("/roles") => Answer::Object(200, json!({"items": [role]})),
        Method::GET => Answer::Object(200, json!({"items": []})),
        _ if path.contains("/rolebindings/") => Answer::Refused(403),
        _ => Answer::Object(200, json!({})),
    });
    let (controller, _) = controller(&[], Some(&[]));
    let result = sweep_twice(&controller, clients).await;
    assert!(matches!(&result, Err(SweepError::Target(_))), "{result:?}");
    let sent = requests.lock().unwrap();
    let deleted = sent.iter().filter(|sent| sent.method == Method::DELETE);
    let deleted: Vec<&str> = deleted.map(|sent| sent.path.as_str()).collect();
    assert_eq!(deleted.len(), MAX_REFUSED + 1, "{deleted:?}");
    assert!(deleted[0].ends_with("/coppice-refused0"), "{deleted:?}");
    assert!(deleted[MAX_REFUSED].ends_with("/namespaces/shop/roles/coppice-dead"), "{deleted:?}");
}

#[tokio::test(start_paused = true)]
async fn what_the_target_always_refuses_does_not_keep_the_others_of_its_kind_for_ever() {
    let mut bindings: Vec<Value> = (0..MAX_REFUSED).map(|n| binding(&format!("refused{n}"), "i")).collect();
    bindings.push(binding("zdead", "i"));
    let (clients, requests) = scripted(move |method, path, _| match *method {
        Method::GET if path.ends_with("/rolebindings") => Answer::Object(200, json!({"items": bindings})),
        Method::GET => Answer::Object(200, json!({"items": []})),
        _ if path.contains("/coppice-refused") => Answer::Refused(403),
        _ => Answer::Object(200, json!({})),
    });
    let (controller, _) = controller(&[], Some(&[]));
    let last = || requests.lock().unwrap().iter().rev().find(|sent| sent.method == Method::DELETE).cloned();
    sweep_twice(&controller, clients.clone()).await.unwrap_err();
    let refused = format!("/coppice-refused{}", MAX_REFUSED - 1);
    assert!(last().is_some_and(|sent| sent.path.ends_with(&refused)), "{:?}", last());
    requests.lock().unwrap().clear();
    let (permit, source, target) = (controller.gate.permit().unwrap(), source(), target(clients));
    controller.sweep_target(&permit, (&source, &target), "i").await.unwrap_err();
    let sent = requests.lock().unwrap();
    let first = sent.iter().find(|sent| sent.method == Method::DELETE);
    assert!(first.is_some_and(|sent| sent.path.ends_with("/coppice-zdead")), "{first:?}");
}

#[tokio::test(start_paused = true)]
async fn after_a_list_that_lacked_much_nothing_is_deleted() {
    let found = binding("dead", "i");
    for (resource, expected) in [("clusterproviders", 1), ("clusteraccesses", 0)] {
        let found = found.clone();
        let (clients, requests) = scripted(move |method, path, _| match *method {
            Method::GET if path.ends_with("/rolebindings") => Answer::Object(200, json!({"items": [found]})),
            Method::GET => Answer::Object(200, json!({"items": []})),
            _ => Answer::Object(200, json!({})),
        });
        let (controller, metrics) = controller(&[], Some(&[]));
        controller.shared.collapsed(Collapse { resource, before: 50, missing: 50, after_gap: true });
        let result = sweep_twice(&controller, clients).await;
        assert_eq!(matches!(result, Err(SweepError::Collapsed)), expected == 0, "{resource}: {result:?}");
        let sent = requests.lock().unwrap();
        assert_eq!(sent.iter().filter(|sent| sent.method == Method::DELETE).count(), expected, "{resource}");
        controller.resync();
        let (line, text) = (format!("coppice_target_sweeps_stopped {}", 1 - expected), metrics.encode());
        assert!(text.lines().any(|l| l == line), "{line}: {text}");
    }
}

#[tokio::test(start_paused = true)]
async fn each_target_has_its_turn() {
    let (controller, _) = controller(&[], None);
    for n in 0..MAX_TARGETS + 6 {
        let mut object = access(&format!("u{n}"));
        object["spec"]["cluster"]["kubeconfigSecret"]["name"] = json!(format!("target{n:03}"));
        let decoded = read::decoded::<ClusterAccesses>(object.to_string().as_bytes(), &()).unwrap();
        controller.shared.accesses.upsert("team", decoded);
    }
    let first = controller.all();
    assert_eq!(first.len(), MAX_TARGETS, "a start");
    let second = controller.all();
    assert_eq!(second.len(), 7, "a tenth of 70");
    let both: BTreeSet<&Source> = first.iter().chain(&second).collect();
    assert_eq!(both.len(), MAX_TARGETS + 6, "in turn");
    let ten: Vec<Source> = (0..RESYNCS).flat_map(|_| controller.all()).collect();
    assert_eq!((ten.len(), ten.iter().collect::<BTreeSet<_>>().len()), (70, 70), "each once in ten minutes");
    // What was begun nowhere, or is suspended, has no target to look through.
    let (other, _) = self::controller(&[], None);
    let (mut new, mut suspended) = (access("new"), access("suspended"));
    new["status"] = json!({});
    suspended["spec"]["suspend"] = json!(true);
    for object in [new, suspended] {
        let decoded = read::decoded::<ClusterAccesses>(object.to_string().as_bytes(), &()).unwrap();
        other.shared.accesses.upsert("team", decoded);
    }
    assert!(other.all().is_empty());
}
