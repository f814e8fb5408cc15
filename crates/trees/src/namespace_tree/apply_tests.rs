use std::sync::Arc;

use coppice_api::names::{FINALIZER, LABEL_CHILDREN};
use coppice_kinds::{Configs, Namespaces, Subnamespaces};
use coppice_runtime::controller::Controller as _;
use coppice_runtime::queue::ReconcileResult;
use coppice_scripted::{Sent, Server, WriteAnswer};
use http::Method;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::super::NamespaceTreeController;
use super::*;
use crate::apply_support;

const TREE: &str = "/apis/coppice.dev/v1alpha1/namespacetrees/shop";
const STATUS: &str = "/apis/coppice.dev/v1alpha1/namespacetrees/shop/status";
const ROOT: &str = "/api/v1/namespaces/shop";
const QUOTAS: &str = "/api/v1/namespaces/shop/resourcequotas";
const QUOTA: &str = "/api/v1/namespaces/shop/resourcequotas/coppice";

/// A tree of 10 pods whose metadata is this besides, with this status, and its root with these labels.
fn tree(metadata: &Value, status: &Value, labels: &Value) -> Server {
    let server = Server::new();
    server.put::<Configs>(json!({"metadata": {"name": "coppice"}, "spec": {}}));
    let mut all = json!({"name": "shop", "uid": "t", "finalizers": [FINALIZER]});
    for (key, value) in metadata.as_object().into_iter().flatten() {
        all[key] = value.clone();
    }
    let spec = json!({"root": "shop", "quota": {"hard": {"pods": "10"}}});
    server.put::<NamespaceTrees>(json!({"metadata": all, "spec": spec, "status": status}));
    server.put::<Namespaces>(json!({"metadata": {"name": "shop", "uid": "u-shop", "labels": labels}}));
    server
}

/// The labels of the root of a tree.
fn labels() -> Value {
    json!({"coppice.dev/root": "shop", "shop.tree.coppice.dev/depth": "0"})
}

/// The status once it is known which namespace is the root.
fn known() -> Value {
    json!({"rootUid": "u-shop"})
}

/// A tree that is new.
fn created() -> Server {
    tree(&json!({"finalizers": []}), &json!({}), &json!({}))
}

/// The metadata of one that is being deleted, and that somebody else keeps, too.
fn deleted() -> Value {
    json!({
        "deletionTimestamp": "2026-01-01T00:00:00Z", "deletionGracePeriodSeconds": 0,
        "finalizers": [FINALIZER, "example.com/other"]
    })
}

/// A tree that was set up and is being deleted.
fn ending() -> Server {
    let server = tree(&deleted(), &known(), &labels());
    put_quota(&server);
    server
}

/// The root has the quota of its tree.
fn put_quota(server: &Server) {
    let ledger = json!({"allotment": {"pods": "10"}, "given": {"pods": "0"}}).to_string();
    server.put::<TreeQuotas>(json!({
        "metadata": {
            "name": "coppice", "namespace": "shop", "uid": "q", "labels": {"coppice.dev/tree": "shop"},
            "annotations": {"coppice.dev/ledger": ledger}
        },
        "spec": {"hard": {"pods": "10"}}, "status": {"hard": {"pods": "10"}, "used": {"pods": "2"}}
    }));
}

/// Trees in each state in which something is written, and what is written first.
fn states() -> [(Server, Method, &'static str); 6] {
    [
        (created(), Method::PATCH, TREE),
        (tree(&json!({}), &json!({}), &json!({})), Method::PUT, STATUS),
        (tree(&json!({}), &known(), &json!({})), Method::PATCH, ROOT),
        (tree(&json!({}), &known(), &labels()), Method::POST, QUOTAS),
        (ending(), Method::DELETE, QUOTA),
        (tree(&deleted(), &known(), &json!({})), Method::PATCH, TREE),
    ]
}

/// What comes of a reconcile where writes are answered so, and which were made.
async fn reconciled(server: &Server, answers: &[WriteAnswer]) -> (&'static str, Vec<Sent>) {
    apply_support::reconciled(server, answers, NamespaceTreeController::new, "shop".into()).await
}

/// Verbs and paths of writes.
fn made(sent: &[Sent]) -> Vec<(&str, &str)> {
    sent.iter().map(|one| (one.method.as_str(), one.path.as_str())).collect()
}

/// The revision that a write requires.
fn revision(sent: &Sent) -> &Value {
    let required = if sent.method == Method::DELETE { "preconditions" } else { "metadata" };
    &sent.body[required]["resourceVersion"]
}

/// The condition `Ready` of a status that was written.
#[track_caller]
fn ready(sent: &Sent) -> &Value {
    let conditions = sent.body["status"]["conditions"].as_array().unwrap();
    conditions.iter().find(|condition| condition["type"] == "Ready").unwrap()
}

#[tokio::test(start_paused = true)]
async fn a_tree_is_set_up_write_by_write_and_the_uid_of_its_root_is_stored_first() {
    let server = created();
    let (end, sent) = reconciled(&server, &[]).await;
    let expected = [("PATCH", TREE), ("PUT", STATUS), ("PATCH", ROOT), ("POST", QUOTAS), ("PUT", STATUS)];
    assert_eq!((end, &made(&sent)[..]), ("done", &expected[..]));
    assert_eq!(sent[0].body["metadata"]["finalizers"], json!([FINALIZER]));
    assert_eq!(sent[1].body["status"]["rootUid"], "u-shop");
    assert_eq!(sent[2].body["metadata"]["uid"], "u-shop");
    assert_eq!(sent[2].body["metadata"]["labels"], labels());
    assert_eq!(sent[3].body["spec"]["hard"], json!({"pods": "10"}));
    assert_eq!(sent[3].body["metadata"]["labels"]["coppice.dev/tree"], "shop");
    let waits = ready(&sent[4]);
    assert_eq!((&waits["status"], &waits["reason"]), (&json!("False"), &json!("QuotaChanging")));
    // Kubernetes limits by it.
    let mut quota = server.object::<TreeQuotas>("shop", "coppice");
    quota["metadata"]["namespace"] = json!("shop");
    quota["status"] = json!({"hard": {"pods": "10"}, "used": {"pods": "0"}});
    server.put::<TreeQuotas>(quota);
    let (end, sent) = reconciled(&server, &[]).await;
    assert_eq!((end, &made(&sent)[..]), ("done", &[("PUT", STATUS)][..]));
    assert_eq!(ready(&sent[0])["status"], "True", "{:#}", sent[0].body);
}

#[tokio::test(start_paused = true)]
async fn of_a_tree_that_is_deleted_nothing_stays_at_its_root_and_the_finalizer_is_removed_last() {
    // A quota that somebody else has just deleted is as good.
    for answer in [WriteAnswer::Done, WriteAnswer::Gone] {
        let server = ending();
        let quota = server.object::<TreeQuotas>("shop", "coppice");
        let (end, sent) = reconciled(&server, &[answer]).await;
        // Who else keeps the tree can read that it is being deleted.
        let expected = [("DELETE", QUOTA), ("PATCH", ROOT), ("PATCH", TREE), ("PUT", STATUS)];
        assert_eq!((end, &made(&sent)[..]), ("done", &expected[..]), "{answer:?}");
        let preconditions = json!({"uid": "q", "resourceVersion": quota["metadata"]["resourceVersion"]});
        assert_eq!(sent[0].body["preconditions"], preconditions);
        let none = json!({"coppice.dev/root": null, "shop.tree.coppice.dev/depth": null});
        assert_eq!(sent[1].body["metadata"]["labels"], none);
        assert_eq!(sent[2].body["metadata"]["finalizers"], json!(["example.com/other"]));
    }
}

#[tokio::test(start_paused = true)]
async fn what_is_refused_is_said_in_status_and_tried_again_later() {
    for (server, method, path) in states() {
        let (end, sent) = reconciled(&server, &[WriteAnswer::Refused(403)]).await;
        let mut expected = vec![(method.as_str(), path)];
        // Where status cannot be written, nothing can be said there.
        if path != STATUS {
            expected.push(("PUT", STATUS));
        }
        assert_eq!((end, made(&sent)), ("api", expected));
        if let Some(status) = sent.get(1) {
            let ready = ready(status);
            assert_eq!((&ready["status"], &ready["reason"]), (&json!("False"), &json!("Retrying")));
            assert!(ready["message"].as_str().unwrap().contains("the API server refused"), "{ready}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn after_a_write_whose_answer_is_lost_nothing_is_written_until_later() {
    for answer in [WriteAnswer::Lost, WriteAnswer::Never] {
        for (server, method, path) in states() {
            let (end, sent) = reconciled(&server, &[answer]).await;
            assert_eq!((end, made(&sent)), ("api", vec![(method.as_str(), path)]), "{answer:?}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn after_a_conflict_everything_is_read_and_decided_again_at_once() {
    for (server, method, path) in states() {
        let (end, sent) = reconciled(&server, &[WriteAnswer::Conflict]).await;
        let twice = [(method.as_str(), path); 2];
        assert_eq!((end, &made(&sent)[..2]), ("done", &twice[..]));
        // What is created requires no revision.
        if method != Method::POST {
            assert_ne!(revision(&sent[0]), revision(&sent[1]), "{path}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn nothing_is_written_to_what_is_gone() {
    let [created, stored, labelled, ..] = states();
    for (server, method, path) in [created, stored] {
        let (end, sent) = reconciled(&server, &[WriteAnswer::Gone]).await;
        assert_eq!((end, made(&sent)), ("done", vec![(method.as_str(), path)]));
    }
    let (end, sent) = reconciled(&labelled.0, &[WriteAnswer::Gone]).await;
    assert_eq!((end, made(&sent)), ("done", vec![("PATCH", ROOT), ("PUT", STATUS)]));
    assert_eq!(ready(&sent[1])["reason"], "RootMissing");
}

#[tokio::test(start_paused = true)]
async fn a_tree_stays_whose_cache_does_not_show_yet_that_its_root_is_gone() {
    let server = tree(&deleted(), &known(), &labels());
    let labels = json!({"coppice.dev/root": "shop", "coppice.dev/parent": "shop"});
    server.put::<Namespaces>(json!({"metadata": {"name": "shop-web", "labels": labels}}));
    let (end, mut sent) = reconciled(&server, &[WriteAnswer::Gone]).await;
    sent.retain(|one| !one.path.ends_with("/events"));
    assert_eq!((end, &made(&sent)[..]), ("done", &[("PATCH", ROOT), ("PUT", STATUS)][..]));
    let ready = ready(&sent[1]);
    assert_eq!(ready["reason"], "RootDeleted");
    assert!(ready["message"].as_str().unwrap().contains("shop/shop-web"), "{ready}");
}

/// A tree that is set up, with two namespaces in it besides its root, and this status.
fn grown(status: &Value) -> Server {
    let server = tree(&json!({}), status, &labels());
    put_quota(&server);
    for name in ["a", "b"] {
        let spec = json!({"quota": {"hard": {"pods": "1"}}});
        let status = json!({"tree": "shop", "namespaceUid": format!("u-{name}")});
        let metadata = json!({"name": name, "namespace": "web"});
        server.put::<Subnamespaces>(json!({"metadata": metadata, "spec": spec, "status": status}));
    }
    server
}

#[tokio::test(start_paused = true)]
async fn that_a_tree_is_larger_is_said_once_a_second_and_that_it_is_smaller_at_once() {
    let server = grown(&known());
    assert_eq!(reconciled(&server, &[]).await.0, "done");
    let mut status = server.object::<NamespaceTrees>("", "shop")["status"].clone();
    assert_eq!(status["namespaces"], 3);
    // The watch does not show what was said, so there is as much to say the second time.
    for (before, said_again) in [(2, 0), (4, 1)] {
        status["namespaces"] = json!(before);
        let server = grown(&status);
        let (_, controller, _followers) = apply_support::filled(&server, NamespaceTreeController::new).await;
        assert_eq!(Arc::clone(&controller).reconcile("shop".into()).await, ReconcileResult::Done);
        let sent = server.writes();
        let [put] = &sent[..] else { panic!("{before}: {sent:#?}") };
        assert_eq!((&*put.path, &put.body["status"]["namespaces"]), (STATUS, &json!(3)));
        let again = controller.reconcile("shop".into()).await;
        let waits = matches!(again, ReconcileResult::At(at) if at > Instant::now());
        assert_eq!((waits, server.writes().len()), (said_again == 0, said_again), "{before}: {again:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_quota_that_an_earlier_tree_has_left_says_whose_it_is_now() {
    let server = tree(&json!({}), &known(), &labels());
    let ledger = json!({"allotment": {"pods": "10"}, "given": {"pods": "0"}}).to_string();
    server.put::<TreeQuotas>(json!({
        "metadata": {
            "name": "coppice", "namespace": "shop", "uid": "q", "labels": {"coppice.dev/tree": "earlier"},
            "annotations": {"coppice.dev/ledger": ledger}
        },
        "spec": {"hard": {"pods": "10"}}, "status": {"hard": {"pods": "10"}, "used": {"pods": "2"}}
    }));
    let (_, sent) = reconciled(&server, &[]).await;
    assert_eq!(made(&sent)[0], ("PATCH", QUOTA));
    assert_eq!(sent[0].body["metadata"]["labels"], json!({"coppice.dev/tree": "shop"}));
    assert_eq!(sent[0].body["spec"]["hard"], json!({"pods": "10"}));
}

#[tokio::test(start_paused = true)]
async fn what_somebody_has_written_under_a_second_name_is_put_right_by_one_write() {
    for (hard, is_repaired) in [
        (json!({"cpu": "10", "requests.cpu": "20"}), true),
        (json!({"cpu": "20", "requests.cpu": "10"}), true),
        (json!({"cpu": "10", "requests.cpu": "10"}), true),
        (json!({"requests.cpu": "20"}), true),
        // That is the same quota.
        (json!({"requests.cpu": "10"}), false),
    ] {
        let server = tree(&json!({}), &known(), &labels());
        let metadata = json!({"name": "shop", "uid": "t", "finalizers": [FINALIZER]});
        let spec = json!({"root": "shop", "quota": {"hard": {"cpu": "10"}}});
        server.put::<NamespaceTrees>(json!({"metadata": metadata, "spec": spec, "status": known()}));
        let ledger = json!({"allotment": {"cpu": "10"}, "given": {}}).to_string();
        let status = json!({"hard": {"cpu": "10"}, "used": {"cpu": "2"}});
        server.put::<TreeQuotas>(json!({
            "metadata": {
                "name": "coppice", "namespace": "shop", "uid": "q", "labels": {"coppice.dev/tree": "shop"},
                "annotations": {"coppice.dev/ledger": ledger}
            },
            "spec": {"hard": hard}, "status": status
        }));
        let (end, sent) = reconciled(&server, &[]).await;
        let expected = [("PATCH", QUOTA), ("PUT", STATUS)];
        let expected = if is_repaired { &expected[..] } else { &expected[1..] };
        assert_eq!((end, &made(&sent)[..]), ("done", expected), "{hard}");
        let now = server.object::<TreeQuotas>("shop", "coppice")["spec"]["hard"].clone();
        assert_eq!(now, if is_repaired { json!({"cpu": "10"}) } else { hard });
    }
}

#[tokio::test(start_paused = true)]
async fn that_a_root_is_missing_is_counted_once() {
    let server = tree(&json!({}), &json!({}), &json!({}));
    server.remove::<Namespaces>("", "shop");
    let (context, controller, _followers) =
        apply_support::filled(&server, NamespaceTreeController::new).await;
    let counted = "coppice_blocked_total{reason=\"RootMissing\"} 1";
    for _ in 0..2 {
        Arc::clone(&controller).reconcile("shop".into()).await;
        let text = context.shared.metrics.encode();
        assert!(text.lines().any(|line| line == counted), "{text}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_partition_is_absent_until_a_subnamespace_in_the_root_has_created_it() {
    let mut labels = labels();
    labels[LABEL_CHILDREN] = json!("u");
    let server = tree(&json!({}), &known(), &labels);
    put_quota(&server);
    let mut object = server.object::<NamespaceTrees>("", "shop");
    object["spec"]["partitions"] = json!(["shop-gpu", "shop-gpus", "web"]);
    server.put::<NamespaceTrees>(object);
    for (parent, name, uid) in [
        ("shop", "shop-gpu", json!("u-gpu")),
        ("shop", "shop-gpus", Value::Null),
        ("shop-gpu", "web", json!("u-web")),
    ] {
        let status = json!({"tree": "shop", "namespaceUid": uid});
        let metadata = json!({"name": name, "namespace": parent});
        server.put::<Subnamespaces>(json!({"metadata": metadata, "spec": {}, "status": status}));
    }
    let (end, sent) = reconciled(&server, &[]).await;
    assert_eq!((end, &made(&sent)[..]), ("done", &[("PUT", STATUS)][..]));
    let message = ready(&sent[0])["message"].as_str().unwrap();
    assert!(message.ends_with("no namespace right below shop yet: shop-gpus, web"), "{message}");
}
