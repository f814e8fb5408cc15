//! What `coppice doctor` says of trees: of pods where a tree limits what pods request, and of a namespace that does not go.

use crate::support::server::{Script, against, list, status};
use serde_json::{Value, json};

fn version() -> Value {
    json!({"major": "1", "minor": "36", "gitVersion": "v1.36.3", "gitCommit": "", "gitTreeState": "",
        "buildDate": "", "goVersion": "", "compiler": "", "platform": ""})
}

/// What it says of a tree that limits `cpu`, where these are the LimitRanges of its root.
fn doctor(mode: &str, limit_ranges: (u16, Value)) -> String {
    let tree = json!({
        "apiVersion": "coppice.dev/v1alpha1", "kind": "NamespaceTree", "metadata": {"name": "team", "generation": 1},
        "spec": {"root": "shop", "quota": {"hard": {"cpu": "4", "pods": "10"}}, "propagate": {"limitRanges": {"mode": mode}}},
        "status": {"observedGeneration": 1, "namespaces": 2, "allotted": "4 cpu, 10 pods", "conditions": [{
            "type": "Ready", "status": "True", "reason": "Reconciled", "message": "", "lastTransitionTime": "2026-03-01T12:00:00Z"
        }]}
    });
    let (code, limit_ranges) = limit_ranges;
    let script: Script = vec![
        ("GET /version", 200, version()),
        ("GET /apis/coppice.dev/v1alpha1/namespacetrees", 200, list(&[tree])),
        ("GET /api/v1/namespaces/shop/limitranges", code, limit_ranges),
    ];
    against("coppice doctor", script).0.out
}

fn range() -> Value {
    let limits = json!([{"type": "Container", "defaultRequest": {"cpu": "100m"}}]);
    list(&[
        json!({"apiVersion": "v1", "kind": "LimitRange", "metadata": {"name": "defaults", "namespace": "shop"}, "spec": {"limits": limits}}),
    ])
}

#[test]
fn pods_without_requests_are_explained_where_nothing_gives_them_any() {
    let said = doctor("Ignore", (200, list(&[])));
    for line in [
        "ok       NamespaceTree team: 2 namespaces, 4 cpu, 10 pods",
        "pods whose containers do not state cpu are refused, unless a LimitRange of their namespace states it; none in namespace shop does",
        "-> if they are to be admitted: create a LimitRange of type Container in namespace shop",
        r#"kubectl patch nstree team --type=merge -p '{"spec": {"propagate": {"limitRanges": {"mode": "Propagate"}}}}'"#,
    ] {
        assert!(said.contains(line), "{line} is missing in\n{said}");
    }
    let said = doctor("Ignore", (200, range()));
    assert!(
        said.contains("that of namespace shop is not copied (spec.propagate.limitRanges.mode)"),
        "{said}"
    );
    assert!(said.contains("kubectl patch nstree team") && !said.contains("create a LimitRange"), "{said}");
    let said = doctor("Propagate", (200, range()));
    assert!(said.contains("NamespaceTree team: 2 namespaces") && !said.contains("LimitRange"), "{said}");
    let said = doctor("Propagate", (403, status(403, "not you")));
    assert!(said.contains("unknown  limitranges in shop: cannot be read"), "{said}");
}

#[test]
fn a_namespace_that_does_not_go_is_named_with_the_finalizers_that_keep_it() {
    let since = "2026-03-01T11:00:00Z";
    let left =
        "Some content in the namespace has finalizers remaining: example.org/backup in 1 resource instances";
    let remaining = json!({"type": "NamespaceFinalizersRemaining", "status": "True", "reason": "SomeFinalizersRemain",
        "message": left, "lastTransitionTime": since});
    let namespace = json!({
        "apiVersion": "v1", "kind": "Namespace",
        "metadata": {"name": "shop-web", "deletionTimestamp": since, "finalizers": ["example.org/billing"]},
        "spec": {"finalizers": ["kubernetes"]}, "status": {"phase": "Terminating", "conditions": [remaining]}
    });
    let ready = json!({"type": "Ready", "status": "False", "reason": "NamespaceTerminating",
        "message": "the namespace is being deleted, and its quota returned", "lastTransitionTime": since});
    let subnamespace = json!({
        "apiVersion": "coppice.dev/v1alpha1", "kind": "Subnamespace",
        "metadata": {"name": "shop-web", "namespace": "shop"}, "spec": {"quota": {"hard": {"pods": "4"}}},
        "status": {"phase": "Deleting", "conditions": [ready]}
    });
    let script: Script = vec![
        ("GET /version", 200, version()),
        ("GET /apis/coppice.dev/v1alpha1/subnamespaces", 200, list(&[subnamespace])),
        ("GET /api/v1/namespaces", 200, list(&[namespace])),
    ];
    let said = against("coppice doctor", script).0.out;
    for expected in [
        "shop/shop-web: Deleting: the namespace is being deleted, and its quota returned [NamespaceTerminating]",
        "PROBLEM  namespace shop-web: its deletion was asked for",
        "metadata.finalizers: example.org/billing",
        left,
        "the software that owns example.org/backup must finish its work",
    ] {
        assert!(said.contains(expected), "{expected} is missing in\n{said}");
    }
}
