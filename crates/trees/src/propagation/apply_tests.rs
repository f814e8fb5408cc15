use std::sync::Arc;

use coppice_kinds::{Configs, NamespaceTrees, Subnamespaces, TreeQuotas};
use coppice_runtime::controller::Controller as _;
use coppice_runtime::queue::ReconcileResult;
use coppice_scripted::{Sent, Server, WriteAnswer};
use http::Method;

use super::super::PropagationController;
use super::*;
use crate::apply_support;

const COPIES: &str = "/apis/rbac.authorization.k8s.io/v1/namespaces/web/rolebindings";
const STATUS: &str = "/apis/coppice.dev/v1alpha1/namespaces/shop/subnamespaces/web/status";

/// A tree `shop` with a RoleBinding, and `web` below, which has no copy of it yet.
fn tree() -> Server {
    let server = Server::new();
    server.put::<Configs>(json!({"metadata": {"name": "coppice"}, "spec": {}}));
    let spec = json!({"root": "shop", "quota": {"hard": {"pods": "20"}}, "propagate": {}});
    let status = json!({"rootUid": "u-shop"});
    server.put::<NamespaceTrees>(json!({"metadata": {"name": "shop"}, "spec": spec, "status": status}));
    for (name, labels) in [("shop", json!({})), ("web", json!({"coppice.dev/parent": "shop"}))] {
        let metadata = json!({"name": name, "uid": format!("u-{name}"), "labels": labels});
        server.put::<Namespaces>(json!({"metadata": metadata}));
    }
    let metadata = json!({"name": "web", "namespace": "shop", "uid": "u-web"});
    let spec = json!({"quota": {"hard": {"pods": "5"}}});
    let allotment = json!({"hard": {"pods": "5"}, "decided": 0});
    let status = json!({"observedGeneration": 1, "namespaceUid": "u-web", "allotment": allotment});
    server.put::<Subnamespaces>(json!({"metadata": metadata, "spec": spec, "status": status}));
    let ledger = json!({"allotment": {"pods": "5"}, "given": {"pods": "0"}}).to_string();
    server.put::<TreeQuotas>(json!({
        "metadata": {
            "name": "coppice", "namespace": "web", "uid": "q", "labels": {"coppice.dev/tree": "shop"},
            "annotations": {"coppice.dev/ledger": ledger}
        },
        "spec": {"hard": {"pods": "5"}}, "status": {"hard": {"pods": "5"}, "used": {"pods": "0"}}
    }));
    server.put::<RoleBindings>(json!({
        "metadata": {"name": "admins", "namespace": "shop", "uid": "u-admins"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "admin"},
        "subjects": [{"kind": "User", "name": "ann"}]
    }));
    server
}

/// What comes of a reconcile of `web` whose first write is answered so, and which writes were made.
async fn reconciled(server: &Server, answer: WriteAnswer) -> (&'static str, Vec<Sent>) {
    apply_support::reconciled(server, &[answer], PropagationController::new, "web".into()).await
}

/// The condition `Propagated` that was written; none if none was.
fn said(sent: &[Sent]) -> Option<&Value> {
    let status = sent.iter().find(|one| one.path == STATUS)?;
    let mut conditions = status.body["status"]["conditions"].as_array()?.iter();
    conditions.find(|condition| condition["type"] == "Propagated")
}

/// The status of that.
fn propagated(sent: &[Sent]) -> Option<&str> {
    said(sent)?["status"].as_str()
}

#[tokio::test(start_paused = true)]
async fn a_copy_is_created_and_what_follows_depends_on_the_answer() {
    for (answer, end, condition) in [
        (WriteAnswer::Done, "done", Some("True")),
        // It is read and decided again, and nothing is said of what is about to go.
        (WriteAnswer::NamespaceTerminating, "conflict", None),
        (WriteAnswer::Conflict, "conflict", None),
        // The namespace is there: there is no such role.
        (WriteAnswer::Gone, "done", Some("False")),
        (WriteAnswer::Refused(403), "api", Some("False")),
        // Whether it is there is not known.
        (WriteAnswer::Lost, "api", None),
        (WriteAnswer::Never, "api", None),
    ] {
        let server = tree();
        let (found, sent) = reconciled(&server, answer).await;
        assert_eq!((found, propagated(&sent)), (end, condition), "{answer:?}: {sent:#?}");
        let first = &sent[0];
        assert_eq!((&first.method, &*first.path), (&Method::POST, COPIES), "{answer:?}");
        let metadata = &first.body["metadata"];
        assert_eq!(metadata["name"], "admins");
        assert_eq!(metadata["labels"]["coppice.dev/propagated-from"], "shop");
        assert_eq!(metadata["annotations"]["coppice.dev/propagated-uid"], "u-admins");
    }
}

#[tokio::test(start_paused = true)]
async fn that_a_copy_is_refused_is_counted_once() {
    let server = tree();
    let (context, controller, _followers) = apply_support::filled(&server, PropagationController::new).await;
    let counted = "coppice_blocked_total{reason=\"CopyRefused\"} 1";
    for _ in 0..2 {
        // There is no such role.
        server.answer_writes([WriteAnswer::Gone]);
        Arc::clone(&controller).reconcile("web".into()).await;
        let text = context.shared.metrics.encode();
        assert!(text.lines().any(|line| line == counted), "{text}");
    }
}

#[tokio::test(start_paused = true)]
async fn it_is_said_of_the_spec_that_the_namespace_has_the_labels_of() {
    for seen in [1, 2] {
        let server = tree();
        let mut web = server.object::<Subnamespaces>("shop", "web");
        web["metadata"]["generation"] = json!(2);
        web["status"]["observedGeneration"] = json!(seen);
        server.put::<Subnamespaces>(web);
        let (_, sent) = reconciled(&server, WriteAnswer::Done).await;
        let said = said(&sent).unwrap();
        assert_eq!((&said["status"], &said["observedGeneration"]), (&json!("True"), &json!(seen)));
    }
}

#[tokio::test(start_paused = true)]
async fn nobody_has_rights_before_a_quota_of_nothing_is_in_force() {
    for (status, copies) in [(json!({}), 0), (json!({"hard": {"pods": "0"}, "used": {"pods": "0"}}), 1)] {
        let server = tree();
        let ledger = json!({"allotment": {"pods": "0"}, "given": {"pods": "0"}}).to_string();
        server.put::<TreeQuotas>(json!({
            "metadata": {
                "name": "coppice", "namespace": "web", "uid": "q", "labels": {"coppice.dev/tree": "shop"},
                "annotations": {"coppice.dev/ledger": ledger}
            },
            "spec": {"hard": {"pods": "0"}}, "status": status
        }));
        let (_, sent) = reconciled(&server, WriteAnswer::Done).await;
        assert_eq!(sent.iter().filter(|one| one.path == COPIES).count(), copies, "{status}: {sent:#?}");
    }
}

#[tokio::test(start_paused = true)]
async fn the_quota_of_an_earlier_namespace_of_the_name_gives_nobody_rights() {
    for (has_a_quota, copies) in [(true, 1), (false, 0)] {
        let server = tree();
        // It is a new one, and the watch of quotas is behind.
        let metadata = json!({"name": "web", "uid": "u-web", "labels": {"coppice.dev/parent": "shop"}});
        server.put::<Namespaces>(json!({"metadata": metadata}));
        let (_, controller, _followers) = apply_support::filled(&server, PropagationController::new).await;
        if !has_a_quota {
            server.remove::<TreeQuotas>("web", "coppice");
        }
        assert_eq!(controller.reconcile("web".into()).await, ReconcileResult::Done);
        let sent = server.writes();
        assert_eq!(sent.iter().filter(|one| one.path == COPIES).count(), copies, "{sent:#?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_copy_stays_whose_namespace_has_lost_its_root_while_the_tree_is_detached() {
    let server = Server::new();
    server.put::<Configs>(json!({"metadata": {"name": "coppice"}, "spec": {}}));
    let metadata = json!({
        "name": "shop", "deletionTimestamp": "2026-01-01T00:00:00Z", "deletionGracePeriodSeconds": 0
    });
    let spec = json!({"root": "shop", "quota": {"hard": {"pods": "20"}}, "deletionPolicy": "Detach", "propagate": {}});
    let status = json!({"rootUid": "u-shop"});
    server.put::<NamespaceTrees>(json!({"metadata": metadata, "spec": spec, "status": status}));
    let web = |labels: Value| json!({"metadata": {"name": "web", "uid": "u-web", "labels": labels}});
    server.put::<Namespaces>(web(json!({})));
    let labels = json!({"coppice.dev/propagated-from": "shop"});
    server.put::<RoleBindings>(json!({
        "metadata": {"name": "admins", "namespace": "web", "uid": "u-copy", "labels": labels},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "admin"},
        "subjects": [{"kind": "User", "name": "ann"}]
    }));
    let (_, controller, _followers) = apply_support::filled(&server, PropagationController::new).await;
    // The watch does not show that.
    server.put::<Namespaces>(web(json!({"coppice.dev/root": "shop", "coppice.dev/parent": "shop"})));
    assert_eq!(controller.reconcile("web".into()).await, ReconcileResult::Done);
    let sent = server.writes();
    let writes: Vec<&str> = sent.iter().map(|one| one.method.as_str()).collect();
    assert_eq!(writes, ["PATCH"], "{sent:#?}");
    assert_eq!(sent[0].body["metadata"]["labels"], json!({"coppice.dev/propagated-from": null}));
}

/// `admins` in `web`: a copy of what `shop` has, or had.
fn put_copy(server: &Server) {
    let labels = json!({"coppice.dev/propagated-from": "shop"});
    let annotations = json!({"coppice.dev/propagated-uid": "u-admins"});
    server.put::<RoleBindings>(json!({
        "metadata": {
            "name": "admins", "namespace": "web", "uid": "u-copy", "labels": labels, "annotations": annotations
        },
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "admin"},
        "subjects": [{"kind": "User", "name": "ann"}]
    }));
}

#[tokio::test(start_paused = true)]
async fn a_copy_is_deleted_as_it_was_before_its_source_was_looked_for() {
    let source = tree().object::<RoleBindings>("shop", "admins");
    // What the watch does not show, what comes of it, how many requests delete something, and whether the copy is gone.
    for (unseen, end, requests, gone) in [
        (None, ReconcileResult::Done, 1, true),
        (Some("source"), ReconcileResult::Done, 0, false),
        (Some("copy"), ReconcileResult::retry("conflict"), 1, false),
    ] {
        let server = tree();
        server.remove::<RoleBindings>("shop", "admins");
        put_copy(&server);
        let known = server.object::<RoleBindings>("web", "admins")["metadata"]["resourceVersion"].clone();
        let (_, controller, _followers) = apply_support::filled(&server, PropagationController::new).await;
        match unseen {
            Some("source") => server.put::<RoleBindings>(source.clone()),
            Some(_) => put_copy(&server),
            None => {}
        }
        assert_eq!(controller.reconcile("web".into()).await, end, "{unseen:?}");
        let sent = server.writes();
        let deletes: Vec<&Sent> = sent.iter().filter(|one| one.method == Method::DELETE).collect();
        assert_eq!(deletes.len(), requests, "{unseen:?}: {sent:#?}");
        for delete in deletes {
            let expected = json!({"uid": "u-copy", "resourceVersion": known});
            assert_eq!(
                (&*delete.path, &delete.body["preconditions"]),
                (&*format!("{COPIES}/admins"), &expected)
            );
        }
        assert_eq!(server.object::<RoleBindings>("web", "admins").is_null(), gone, "{unseen:?}");
    }
}

#[test]
fn a_merge_leaves_nothing_of_what_was_there() {
    for (before, after, patch) in [
        (json!({"a": 1}), json!({"a": 1}), json!({})),
        (json!({"a": 1, "b": 2}), json!({"a": 3}), json!({"a": 3, "b": null})),
        (
            json!({"spec": {"podSelector": {"matchLabels": {"a": "b", "c": "d"}}, "egress": [1]}}),
            json!({"spec": {"podSelector": {"matchLabels": {"a": "x"}}}}),
            json!({"spec": {"podSelector": {"matchLabels": {"a": "x", "c": null}}, "egress": null}}),
        ),
        (json!({"l": [{"a": 1}]}), json!({"l": [{"b": 1}]}), json!({"l": [{"b": 1}]})),
        (json!({"spec": null}), json!({"spec": {"a": 1}}), json!({"spec": {"a": 1}})),
        (json!({"spec": {"a": 1}}), json!({"spec": null}), json!({"spec": null})),
    ] {
        assert_eq!(merge_patch(&before, &after), patch, "{before} to {after}");
    }
}
