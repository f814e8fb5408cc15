//! `coppice tree detach` against an API server that answers from a script.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on has failed")]

use crate::support::server::{Script, against, list, status, status_of};
use serde_json::{Value, json};

const TREE: &str = "GET /apis/coppice.dev/v1alpha1/namespacetrees/shop";
const TREES: &str = "GET /apis/coppice.dev/v1alpha1/namespacetrees";
const SUBNAMESPACES: &str = "GET /apis/coppice.dev/v1alpha1/subnamespaces";
const QUOTAS: &str = "GET /api/v1/resourcequotas";
const PATCH: &str = "PATCH /apis/coppice.dev/v1alpha1/namespacetrees/shop";
const DELETE: &str = "DELETE /apis/coppice.dev/v1alpha1/namespacetrees/shop";

fn tree(deleted: bool, message: &str) -> Value {
    let mut metadata = json!({"name": "shop", "uid": "t", "resourceVersion": "7"});
    if deleted {
        metadata["deletionTimestamp"] = json!("2026-03-01T12:00:00Z");
    }
    let condition = json!({
        "type": "Ready", "status": if message.is_empty() { "True" } else { "False" }, "reason": "R", "message": message,
        "lastTransitionTime": "2026-03-01T12:00:00Z"
    });
    let policy = if deleted { "Detach" } else { "Refuse" };
    json!({
        "apiVersion": "coppice.dev/v1alpha1", "kind": "NamespaceTree", "metadata": metadata,
        "spec": {"root": "shop", "quota": {"hard": {"pods": "10"}}, "deletionPolicy": policy},
        "status": {"namespaces": 1, "rootUid": "shop", "allotment": {"pods": "10"}, "conditions": [condition]}
    })
}

/// A tree without namespaces below its root.
fn read() -> Script {
    vec![
        (TREE, 200, tree(false, "")),
        (TREES, 200, list(&[tree(false, "")])),
        (SUBNAMESPACES, 200, list(&[])),
        (QUOTAS, 200, list(&[])),
    ]
}

#[test]
fn a_tree_that_cannot_be_detached_is_said_with_what_to_do() {
    let failed = |script: Script| {
        let (ran, _) = against("coppice tree detach shop", script);
        assert_eq!(ran.code, 1, "{ran:?}");
        ran.err
    };
    assert_eq!(
        failed(vec![(TREE, 404, status_of("NotFound"))]),
        "error: there is no NamespaceTree shop: `kubectl get nstree` shows those that there are\n"
    );
    assert_eq!(
        failed(vec![(TREE, 200, tree(true, "2 namespaces first"))]),
        "error: NamespaceTree shop is being deleted already: 2 namespaces first\n"
    );
    assert_eq!(
        failed(vec![(TREE, 403, status(403, "bob may not"))]),
        "error: NamespaceTree shop cannot be read: bob may not\n"
    );
}

#[test]
fn it_changes_the_policy_of_what_it_has_read_and_deletes_that() {
    let mut script = read();
    script.extend([(PATCH, 200, tree(false, "")), (DELETE, 200, tree(true, ""))]);
    let (ran, requests) = against("coppice tree detach shop", script);
    assert_eq!((ran.code, ran.err.as_str()), (0, ""));
    assert!(ran.out.ends_with("namespacetree.coppice.dev/shop is being detached\n"), "{}", ran.out);
    let body = |what: &str| {
        let found = requests.iter().find(|(method, ..)| method == what);
        &found.unwrap_or_else(|| panic!("{requests:?}")).2
    };
    let metadata = json!({"uid": "t", "resourceVersion": "7"});
    assert_eq!(body("PATCH"), &json!({"metadata": metadata, "spec": {"deletionPolicy": "Detach"}}));
    assert_eq!(body("DELETE")["preconditions"], json!({"uid": "t"}));
}

#[test]
fn a_dry_run_deletes_nothing_and_a_change_meanwhile_is_no_reason_to() {
    let mut script = read();
    script.push((PATCH, 200, tree(false, "")));
    let (ran, requests) = against("coppice tree detach shop --dry-run --wait", script);
    assert_eq!(ran.code, 0, "{ran:?}");
    assert!(ran.out.ends_with("is being detached (server dry run)\n"), "{}", ran.out);
    assert!(requests.last().unwrap().1.contains("dryRun=All"), "{requests:?}");
    let mut script = read();
    script.push((PATCH, 409, status(409, "changed")));
    let (ran, requests) = against("coppice tree detach shop", script);
    assert_eq!(
        (ran.code, ran.err.as_str()),
        (1, "error: NamespaceTree shop was changed meanwhile: try again\n")
    );
    assert!(!requests.iter().any(|(method, ..)| method == "DELETE"), "{requests:?}");
}

#[test]
fn a_tree_that_was_deleted_after_its_root_is_detached_with_what_is_left_of_it() {
    let mut gone = tree(true, "namespace shop is gone");
    gone["spec"]["deletionPolicy"] = json!("Refuse");
    let quota = |name: &str, given: &str| {
        let ledger = json!({"allotment": {"pods": "4"}, "given": {"pods": given}}).to_string();
        json!({
            "metadata": {
                "name": "coppice", "namespace": name, "labels": {"coppice.dev/tree": "shop"},
                "annotations": {"coppice.dev/ledger": ledger}
            },
            "spec": {"hard": {"pods": "4"}}, "status": {"used": {"pods": "0"}}
        })
    };
    let below = json!({
        "apiVersion": "coppice.dev/v1alpha1", "kind": "Subnamespace",
        "metadata": {"name": "shop-web-a", "namespace": "shop-web", "uid": "u"}, "spec": {},
        "status": {"namespaceUid": "n", "tree": "shop"}
    });
    let script = vec![
        (TREE, 200, gone.clone()),
        (TREES, 200, list(&[gone.clone()])),
        (SUBNAMESPACES, 200, list(&[below])),
        (QUOTAS, 200, list(&[quota("shop-web", "1"), quota("shop-web-a", "0")])),
        (PATCH, 200, gone),
    ];
    let (ran, requests) = against("coppice tree detach shop", script);
    assert_eq!(ran.code, 0, "{ran:?}");
    for line in ["shop-web     3 pods\n", "shop-web-a   4 pods\n", "shop is being detached\n"] {
        assert!(ran.out.contains(line), "{line}: {}", ran.out);
    }
    let methods: Vec<&str> = requests.iter().map(|(method, ..)| method.as_str()).collect();
    assert_eq!(methods.iter().filter(|method| **method == "PATCH").count(), 1, "{requests:?}");
    assert!(!methods.contains(&"DELETE"), "it was deleted before: {requests:?}");
}
