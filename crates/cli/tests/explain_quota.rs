//! What `coppice explain` says of the quota of a namespace of a tree, against an API server that answers from a script.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on has failed")]

use crate::support::server::{Script, against, list, status};
use serde_json::{Value, json};

const QUOTAS: &str = "GET /api/v1/namespaces/shop-web/resourcequotas";
const OBJECT: &str = "GET /apis/coppice.dev/v1alpha1/namespaces/shop/subnamespaces/shop-web";
const EVENTS: &str = "GET /api/v1/namespaces/shop-web/events";

/// The quota of the tree.
fn own(hard: &Value, used: &Value) -> Value {
    let ledger = json!({"allotment": hard, "given": {}}).to_string();
    json!({
        "metadata": {
            "name": "coppice", "namespace": "shop-web", "labels": {"coppice.dev/tree": "shop"},
            "annotations": {"coppice.dev/ledger": ledger}
        },
        "spec": {"hard": hard}, "status": {"hard": hard, "used": used}
    })
}

fn other(name: &str, spec: &Value, used: &Value) -> Value {
    json!({"metadata": {"name": name, "namespace": "shop-web"}, "spec": spec, "status": {"used": used}})
}

fn event(name: &str, minute: u32, message: &str) -> Value {
    json!({
        "metadata": {"name": format!("{name}.{minute}"), "namespace": "shop-web"}, "type": "Warning", "reason": "FailedCreate",
        "involvedObject": {"kind": "ReplicaSet", "name": name, "namespace": "shop-web"},
        "lastTimestamp": format!("2026-03-01T12:{minute:02}:00Z"), "message": message
    })
}

/// A namespace with these labels, and what else there is.
fn script(labels: &Value, more: Script) -> Script {
    let namespace = json!({"metadata": {
        "name": "shop-web", "uid": "ns-1", "creationTimestamp": "2026-03-01T12:00:00Z", "labels": labels,
        "annotations": {"coppice.dev/path": "shop/shop-web"}
    }});
    let no = || status(403, "not you");
    let mut script = vec![
        ("GET /api/v1/namespaces/shop-web", 200, namespace),
        ("GET /apis/coppice.dev/v1alpha1/namespaces/shop-web/namespacemanagers", 200, list(&[])),
        ("GET /apis/coppice.dev/v1alpha1/namespaces/shop-web/managednamespaces", 200, list(&[])),
        ("GET /apis/coppice.dev/v1alpha1/clusternamespacemanagers", 403, no()),
        ("GET /apis/coppice.dev/v1alpha1/coppiceconfigs/coppice", 403, no()),
    ];
    script.extend(more);
    script
}

fn in_tree() -> Value {
    json!({"coppice.dev/root": "shop", "coppice.dev/parent": "shop"})
}

fn whole() -> Script {
    let hard = json!({"cpu": "2", "memory": "4Gi", "pods": "4"});
    let quotas = [
        own(&hard, &json!({"cpu": "500m", "memory": "1Gi", "pods": "6"})),
        other("batch", &json!({"hard": {"pods": "9"}, "scopes": ["NotTerminating"]}), &json!({"pods": "1"})),
        other("company", &json!({"hard": {"requests.memory": "2Gi"}}), &json!({"requests.memory": "1Gi"})),
    ];
    let object = json!({
        "apiVersion": "coppice.dev/v1alpha1", "kind": "Subnamespace",
        "metadata": {"name": "shop-web", "namespace": "shop", "uid": "u", "generation": 1},
        "spec": {"quota": {"hard": {"pods": "9"}}},
        "status": {"phase": "Refused", "conditions": [{
            "type": "Ready", "status": "False", "reason": "QuotaRefused", "message": "pods: needs 5 more",
            "lastTransitionTime": "2026-03-01T12:00:00Z"
        }]}
    });
    let exceeded =
        |pod: &str| format!("pods {pod:?} is forbidden: exceeded quota: coppice, requested: pods=1");
    let events = [
        event("web", 11, &exceeded("web-1")),
        event("web", 28, &exceeded("web-2")),
        event(
            "api",
            27,
            "pods \"api-1\" is forbidden: failed quota: coppice: must specify requests.cpu for: api",
        ),
        event("db", 29, "pods \"db-0\" is forbidden: violates PodSecurity"),
    ];
    script(
        &in_tree(),
        vec![(QUOTAS, 200, list(&quotas)), (OBJECT, 200, object), (EVENTS, 200, list(&events))],
    )
}

const SHOWN: &str = "Quota
  shop/shop-web in NamespaceTree shop
  Subnamespace shop/shop-web is Refused: pods: needs 5 more [QuotaRefused]
  cpu: 1500m free, 500m of 2 used
  memory: 1Gi free by ResourceQuota company, 1Gi of 4Gi used
  pods: 6 of 4 used, 2 beyond its quota: nothing more starts until that much is gone, or it gets more
  ResourceQuota batch (NotTerminating): pods: 1 of 9 used
  ResourceQuota company: requests.memory: 1Gi of 2Gi used
  who could give it more: coppice quota shop-web

Pods that a quota refused
  ReplicaSet/web, 2026-03-01T12:28:00Z (2m ago): pods \"web-2\" is forbidden: exceeded quota: coppice, requested: pods=1
  ReplicaSet/api, 2026-03-01T12:27:00Z (3m ago): pods \"api-1\" is forbidden: failed quota: coppice: must specify requests.cpu for: api
";

#[test]
fn what_a_namespace_of_a_tree_may_use_and_what_was_refused_is_explained() {
    let (ran, _) = against("coppice explain shop-web", whole());
    assert!(ran.code != 1 && ran.out.contains(SHOWN), "{}", ran.all());
    let (ran, _) = against("coppice explain shop-web -o json", whole());
    let report: Value = serde_json::from_str(&ran.out).unwrap();
    let quota = &report["quota"];
    assert_eq!(
        (&quota["path"], &quota["subnamespace"]["phase"]),
        (&json!("shop/shop-web"), &json!("Refused"))
    );
    let memory = json!({"resource": "memory", "allotted": "4Gi", "own": "4Gi", "used": "1Gi", "free": "1Gi", "limitedBy": "company"});
    assert_eq!(quota["resources"][1], memory);
    assert_eq!(quota["resources"][2]["overdraft"], "2");
    assert_eq!(quota["refusedPods"].as_array().map(Vec::len), Some(2), "{quota:#}");
}

#[test]
fn of_what_may_not_be_read_the_rest_is_shown() {
    let no = || status(403, "not you");
    let script = script(&in_tree(), vec![(QUOTAS, 403, no()), (OBJECT, 403, no()), (EVENTS, 403, no())]);
    let (ran, _) = against("coppice explain shop-web", script);
    let unknown = "  what is free is not known: the quotas in namespace shop-web cannot be read: not you\n";
    assert!(ran.code != 1 && ran.out.contains(unknown), "{}", ran.all());
    for note in ["whether it is ready is not shown", "what a quota refused is not shown"] {
        assert!(ran.err.contains(note), "{note}: {}", ran.err);
    }
}

#[test]
fn who_cannot_read_the_subnamespace_is_shown_what_was_said_in_the_namespace() {
    let said = |component: &str, minute: u32, reason: &str, message: &str| {
        json!({
            "metadata": {"name": format!("shop-web.{minute}"), "namespace": "shop-web"}, "type": "Warning", "reason": reason,
            "involvedObject": {"kind": "Namespace", "name": "shop-web", "namespace": "shop-web"}, "message": message,
            "reportingComponent": component, "eventTime": format!("2026-03-01T12:{minute:02}:00.000000Z")
        })
    };
    let events = [
        said("coppice", 20, "QuotaGranted", "namespace shop-web has 4 pods"),
        said("coppice", 28, "QuotaRefused", "pods: needs 5 more, and shop can give 1"),
        said("another", 29, "Seen", "something else"),
    ];
    let script = script(
        &in_tree(),
        vec![(QUOTAS, 200, list(&[])), (OBJECT, 403, status(403, "not you")), (EVENTS, 200, list(&events))],
    );
    let (ran, _) = against("coppice explain shop-web", script);
    let shown = "  last said of it, 2026-03-01T12:28:00Z (2m ago): pods: needs 5 more, and shop can give 1 [QuotaRefused]\n";
    assert!(ran.code != 1 && ran.out.contains(shown), "{}", ran.all());
}

#[test]
fn of_a_namespace_in_no_tree_nothing_more_is_read() {
    let (ran, requests) = against("coppice explain shop-web", script(&json!({}), Vec::new()));
    assert!(ran.code != 1 && !ran.out.contains("Quota"), "{}", ran.all());
    assert!(!requests.iter().any(|(_, uri, _)| uri.contains("resourcequotas")), "{requests:?}");
}

#[test]
fn a_deletion_that_comes_a_tree_without_a_root_and_what_was_given_away_are_explained() {
    let condition = |type_: &str, status: &str, reason: &str, message: &str| {
        json!({
            "type": type_, "status": status, "reason": reason, "message": message, "lastTransitionTime": "2026-03-01T12:00:00Z"
        })
    };
    let pending = condition("DeletionPending", "True", "DeletedWithAncestor", "shop-web will be deleted");
    let object = json!({
        "apiVersion": "coppice.dev/v1alpha1", "kind": "Subnamespace",
        "metadata": {"name": "shop-web", "namespace": "shop", "uid": "u", "generation": 1},
        "spec": {}, "status": {"phase": "Ready", "conditions": [pending]}
    });
    let tree = json!({
        "apiVersion": "coppice.dev/v1alpha1", "kind": "NamespaceTree", "metadata": {"name": "shop", "uid": "t"},
        "spec": {"root": "shop", "quota": {"hard": {"pods": "9"}}},
        "status": {"conditions": [condition("Ready", "False", "RootDeleted", "namespace shop is being deleted")]}
    });
    let mut quota = own(&json!({"pods": "4"}), &json!({"pods": "1"}));
    let ledger = json!({"allotment": {"pods": "9"}, "given": {"pods": "5"}}).to_string();
    quota["metadata"]["annotations"]["coppice.dev/ledger"] = ledger.into();
    let more = vec![
        (QUOTAS, 200, list(&[quota])),
        (OBJECT, 200, object),
        (EVENTS, 200, list(&[])),
        ("GET /apis/coppice.dev/v1alpha1/namespacetrees/shop", 200, tree),
    ];
    let (ran, _) = against("coppice explain shop-web", script(&in_tree(), more));
    let shown = "  shop/shop-web in NamespaceTree shop
  the tree is not ready: namespace shop is being deleted [RootDeleted]
  Subnamespace shop/shop-web is Ready
  DeletionPending: shop-web will be deleted
  pods: 3 free, 1 of 4 used; 5 of its 9 are given to the namespaces below it
";
    assert!(ran.code != 1 && ran.out.contains(shown), "{}", ran.all());
}
