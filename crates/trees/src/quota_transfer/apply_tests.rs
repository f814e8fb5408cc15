use std::sync::Arc;

use coppice_kinds::{Configs, NamespaceTrees, Namespaces, Subnamespaces};
use coppice_runtime::controller::Controller as _;
use coppice_scripted::{Sent, Server, WriteAnswer};
use http::Method;
use serde_json::{Value, json};

use super::super::{QuotaTransferController, QuotaTransferKey};
use super::*;
use crate::apply_support;

const ID: &str = "web/more/u-1";
const TRANSFER: &str = "/apis/coppice.dev/v1alpha1/namespaces/web/quotatransfers/more";
const STATUS: &str = "/apis/coppice.dev/v1alpha1/namespaces/web/quotatransfers/more/status";
const QUOTA: &str = "/api/v1/namespaces/web/resourcequotas/coppice";

/// A tree `shop` with `web` and `data` below, each with 5 pods, of which nothing is used.
fn tree() -> Server {
    let server = Server::new();
    server.put::<Configs>(json!({"metadata": {"name": "coppice"}, "spec": {}}));
    let spec = json!({"root": "shop", "quota": {"hard": {"pods": "20"}}});
    let status = json!({"rootUid": "u-shop"});
    server.put::<NamespaceTrees>(json!({"metadata": {"name": "shop"}, "spec": spec, "status": status}));
    for name in ["shop", "web", "data"] {
        server.put::<Namespaces>(json!({"metadata": {"name": name, "uid": format!("u-{name}")}}));
        put_quota(&server, name, "5", &json!({"allotment": {"pods": "5"}, "given": {"pods": "0"}}));
    }
    for name in ["web", "data"] {
        let metadata = json!({"name": name, "namespace": "shop", "uid": format!("u-{name}")});
        let spec = json!({"quota": {"hard": {"pods": "5"}}});
        let status =
            json!({"namespaceUid": format!("u-{name}"), "allotment": {"hard": {"pods": "5"}, "decided": 0}});
        server.put::<Subnamespaces>(json!({"metadata": metadata, "spec": spec, "status": status}));
    }
    server
}

fn put_quota(server: &Server, namespace: &str, own: &str, ledger: &Value) {
    server.put::<TreeQuotas>(json!({
        "metadata": {
            "name": "coppice", "namespace": namespace, "uid": "q", "labels": {"coppice.dev/tree": "shop"},
            "annotations": {"coppice.dev/ledger": ledger.to_string()}
        },
        "spec": {"hard": {"pods": own}}, "status": {"hard": {"pods": own}, "used": {"pods": "0"}}
    }));
}

/// What the quota of `web` is while 2 pods of it are held for a transfer.
fn held(server: &Server) {
    let held = json!({ID: {"amount": {"pods": "2"}, "since": "2025-12-31T00:00:00Z"}});
    let ledger = json!({"allotment": {"pods": "5"}, "given": {"pods": "0"}, "held": held});
    put_quota(server, "web", "3", &ledger);
}

/// A transfer of 2 pods from `web` through `shop` to `data`.
fn put_transfer(server: &Server, finalizers: &[&str], status: &Value) {
    let metadata = json!({"name": "more", "namespace": "web", "uid": "u-1", "finalizers": finalizers});
    let spec = json!({
        "to": "data", "through": "shop", "amount": {"pods": "2"}, "reason": "load test", "requester": "ann",
        "approvedBy": "zoe"
    });
    server.put::<QuotaTransfers>(json!({"metadata": metadata, "spec": spec, "status": status}));
}

/// The status of one that has begun.
fn begun() -> Value {
    let path = [("web", "u-web"), ("shop", ""), ("data", "u-data")];
    let path = path.map(|(namespace, uid)| json!({"namespace": namespace, "uid": uid}));
    json!({"tree": "shop", "amount": "2 pods", "path": path, "phase": "Moving", "begunAt": "2025-12-31T00:00:00Z"})
}

/// What comes of a reconcile where writes are answered so, and which were made.
async fn reconciled(server: &Server, answers: &[WriteAnswer]) -> (&'static str, Vec<Sent>) {
    apply_support::reconciled(
        server,
        answers,
        QuotaTransferController::new,
        QuotaTransferKey::new("web", "more"),
    )
    .await
}

/// What the first write is.
#[track_caller]
fn first<'a>(sent: &'a [Sent], method: &Method, path: &str) -> &'a Value {
    let Some(first) = sent.first() else { panic!("nothing was written") };
    assert_eq!((&first.method, &*first.path), (method, path), "{sent:#?}");
    &first.body
}

/// How often a path was written.
fn count(sent: &[Sent], path: &str) -> usize {
    sent.iter().filter(|one| one.path == path).count()
}

#[tokio::test(start_paused = true)]
async fn a_finalizer_is_the_first_write_and_the_last() {
    let server = tree();
    put_transfer(&server, &[], &json!({}));
    let (_, sent) = reconciled(&server, &[]).await;
    let metadata = &first(&sent, &Method::PATCH, TRANSFER)["metadata"];
    assert_eq!((&metadata["uid"], &metadata["finalizers"]), (&json!("u-1"), &json!(["coppice.dev/cleanup"])));
    assert!(metadata["resourceVersion"].is_string());

    for (answer, expected, writes) in [
        (WriteAnswer::Done, "done", 1),
        (WriteAnswer::Lost, "api", 1),
        (WriteAnswer::Refused(403), "api", 1),
        (WriteAnswer::Never, "api", 1),
        // Somebody else has removed the object with the last finalizer.
        (WriteAnswer::Gone, "done", 1),
        // It is read and decided again.
        (WriteAnswer::Conflict, "done", 2),
    ] {
        let server = tree();
        let ended = json!({"phase": "Completed", "endedAt": "2025-12-31T00:00:00Z"});
        put_transfer(&server, &["coppice.dev/cleanup", "example.com/other"], &ended);
        let (end, sent) = reconciled(&server, &[answer]).await;
        let metadata = &first(&sent, &Method::PATCH, TRANSFER)["metadata"];
        assert_eq!(metadata["finalizers"], json!(["example.com/other"]), "those of others stay");
        assert_eq!((end, sent.len()), (expected, writes), "{answer:?}: {sent:#?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_transfer_that_is_completed_stays_ready_if_its_finalizer_is_removed_at_the_second_attempt() {
    let server = tree();
    let ready = json!({
        "type": "Ready", "status": "True", "reason": "QuotaMoved", "message": "namespace data has 2 pods",
        "observedGeneration": 1, "lastTransitionTime": "2025-12-31T00:00:00Z"
    });
    let status = json!({
        "observedGeneration": 1, "phase": "Completed", "endedAt": "2025-12-31T00:00:00Z", "conditions": [ready]
    });
    put_transfer(&server, &["coppice.dev/cleanup"], &status);
    for (answer, expected) in [(WriteAnswer::Refused(403), "api"), (WriteAnswer::Done, "done")] {
        assert_eq!(reconciled(&server, &[answer]).await.0, expected);
        assert_eq!(server.object::<QuotaTransfers>("web", "more")["status"], status, "{answer:?}");
    }
    assert_eq!(server.object::<QuotaTransfers>("web", "more")["metadata"]["finalizers"], json!([]));
}

#[tokio::test(start_paused = true)]
async fn an_amount_is_taken_by_one_write_of_limits_and_ledger_at_the_revision_that_was_read() {
    for (answer, expected) in
        [(WriteAnswer::Lost, "api"), (WriteAnswer::Never, "api"), (WriteAnswer::Refused(403), "api")]
    {
        let server = tree();
        put_transfer(&server, &["coppice.dev/cleanup"], &begun());
        let read = server.object::<TreeQuotas>("web", "coppice");
        let (end, sent) = reconciled(&server, &[answer]).await;
        let body = first(&sent, &Method::PATCH, QUOTA);
        assert_eq!(body["metadata"]["uid"], "q");
        assert_eq!(body["metadata"]["resourceVersion"], read["metadata"]["resourceVersion"]);
        assert_eq!(body["spec"]["hard"], json!({"pods": "3"}));
        let ledger = body["metadata"]["annotations"]["coppice.dev/ledger"].as_str().unwrap();
        let ledger: Value = serde_json::from_str(ledger).unwrap();
        assert_eq!(ledger["held"][ID]["amount"], json!({"pods": "2"}), "{ledger:#}");
        assert_eq!((end, count(&sent, QUOTA)), (expected, 1), "{answer:?}");
        let said = sent.get(1).map(|status| (&*status.path, status.body["status"]["conditions"].to_string()));
        match said {
            Some((path, conditions)) => {
                assert_eq!((answer, path), (WriteAnswer::Refused(403), STATUS));
                assert!(conditions.contains("the API server refused"), "{conditions}");
            }
            None => assert_ne!(answer, WriteAnswer::Refused(403)),
        }
    }
}

#[tokio::test(start_paused = true)]
async fn an_amount_that_was_taken_though_the_answer_was_lost_is_not_taken_again() {
    let server = tree();
    put_transfer(&server, &["coppice.dev/cleanup"], &begun());
    reconciled(&server, &[WriteAnswer::Lost]).await;
    let (_, sent) = reconciled(&server, &[]).await;
    let status = &first(&sent, &Method::PUT, STATUS)["status"];
    assert_eq!(status["at"], "web", "{status:#}");
    let own = &server.object::<TreeQuotas>("web", "coppice")["spec"]["hard"]["pods"];
    assert_eq!(own, "3");
}

#[tokio::test(start_paused = true)]
async fn after_a_conflict_the_amount_is_taken_from_the_quota_as_it_is_by_now() {
    let server = tree();
    put_transfer(&server, &["coppice.dev/cleanup"], &begun());
    let (_, sent) = reconciled(&server, &[WriteAnswer::Conflict]).await;
    let revision = |at: usize| sent[at].body["metadata"]["resourceVersion"].clone();
    assert_eq!((&*sent[0].path, &*sent[1].path), (QUOTA, QUOTA));
    assert_ne!(revision(0), revision(1));
    assert_eq!(sent[0].body["spec"], sent[1].body["spec"]);
}

#[tokio::test(start_paused = true)]
async fn what_is_held_for_a_transfer_that_is_gone_becomes_the_namespaces_own_quota_again() {
    for (answer, expected) in [
        (WriteAnswer::Done, "done"),
        (WriteAnswer::Lost, "api"),
        (WriteAnswer::Conflict, "api"),
        (WriteAnswer::Gone, "api"),
        (WriteAnswer::Refused(403), "api"),
        (WriteAnswer::Never, "api"),
    ] {
        let server = tree();
        held(&server);
        let read = server.object::<TreeQuotas>("web", "coppice");
        let (end, sent) = reconciled(&server, &[answer]).await;
        let body = first(&sent, &Method::PATCH, QUOTA);
        assert_eq!(body["metadata"]["resourceVersion"], read["metadata"]["resourceVersion"]);
        assert_eq!(body["spec"]["hard"], json!({"pods": "5"}));
        assert_eq!((end, sent.len()), (expected, 1), "{answer:?}");
    }
    // Nothing is released for one that there is.
    let server = tree();
    held(&server);
    put_transfer(&server, &["coppice.dev/cleanup"], &begun());
    let (_, sent) = reconciled(&server, &[]).await;
    first(&sent, &Method::PUT, STATUS);
}

#[tokio::test(start_paused = true)]
async fn that_a_transfer_is_refused_is_counted_once() {
    let server = tree();
    // Nothing says that `web` is in the tree.
    put_transfer(&server, &["coppice.dev/cleanup", "example.com/other"], &json!({}));
    let (context, controller, _followers) =
        apply_support::filled(&server, QuotaTransferController::new).await;
    let counted = "coppice_blocked_total{reason=\"TransferRefused\"} 1";
    for _ in 0..2 {
        Arc::clone(&controller).reconcile(QuotaTransferKey::new("web", "more")).await;
        let text = context.shared.metrics.encode();
        assert!(text.lines().any(|line| line == counted), "{text}");
    }
}
