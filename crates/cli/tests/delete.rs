//! `coppice tree delete` against an API server that answers from a script.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on has failed")]

use crate::support::server::{Script, against, list, status, status_of};
use serde_json::{Value, json};

const WEB: &str = "GET /apis/coppice.dev/v1alpha1/namespaces/shop/subnamespaces/shop-web";
const TREES: &str = "GET /apis/coppice.dev/v1alpha1/namespacetrees";
const SUBNAMESPACES: &str = "GET /apis/coppice.dev/v1alpha1/subnamespaces";
const BELOW: &str = "GET /apis/coppice.dev/v1alpha1/namespaces/shop-web/subnamespaces";
const QUOTAS: &str = "GET /api/v1/resourcequotas";
const QUOTA: &str = "GET /api/v1/namespaces/shop-web/resourcequotas/coppice";
const PATCH: &str = "PATCH /apis/coppice.dev/v1alpha1/namespaces/shop/subnamespaces/shop-web";
const DELETE: &str = "DELETE /apis/coppice.dev/v1alpha1/namespaces/shop/subnamespaces/shop-web";

fn subnamespace(parent: &str, name: &str, deleted: bool) -> Value {
    let mut metadata = json!({"name": name, "namespace": parent, "uid": "u", "resourceVersion": "7"});
    if deleted {
        metadata["deletionTimestamp"] = json!("2026-03-01T12:00:00Z");
    }
    let condition = json!({
        "type": "Ready", "status": if deleted { "False" } else { "True" }, "reason": "R", "message": "namespace a first",
        "lastTransitionTime": "2026-03-01T12:00:00Z"
    });
    json!({
        "apiVersion": "coppice.dev/v1alpha1", "kind": "Subnamespace", "metadata": metadata, "spec": {},
        "status": {"namespaceUid": "n", "allotment": {"hard": {"pods": "4"}, "decided": 1}, "conditions": [condition]}
    })
}

/// The tree: the namespace with others below it, or without.
fn read(below: &[&str], deleted: bool) -> Script {
    let tree = json!({
        "apiVersion": "coppice.dev/v1alpha1", "kind": "NamespaceTree", "metadata": {"name": "shop", "uid": "t"},
        "spec": {"root": "shop", "quota": {"hard": {"pods": "10"}}}, "status": {}
    });
    let web = subnamespace("shop", "shop-web", deleted);
    let mut all = vec![web.clone()];
    all.extend(below.iter().map(|name| subnamespace("shop-web", name, false)));
    vec![
        (WEB, 200, web),
        (TREES, 200, list(&[tree])),
        (SUBNAMESPACES, 200, list(&all)),
        (QUOTAS, 200, list(&[])),
    ]
}

fn failed(command: &str, script: Script) -> String {
    let (ran, requests) = against(command, script);
    assert_eq!(ran.code, 1, "{ran:?}");
    assert!(!requests.iter().any(|(method, ..)| method == "DELETE"), "{requests:?}");
    ran.err
}

#[test]
fn what_cannot_be_deleted_is_said_with_what_to_do() {
    let delete = "coppice tree delete shop/shop-web";
    assert_eq!(
        failed(delete, vec![(WEB, 404, status_of("NotFound"))]),
        "error: there is no Subnamespace shop/shop-web: `coppice tree shop` shows those that there are\n"
    );
    assert_eq!(
        failed(delete, vec![(WEB, 200, subnamespace("shop", "shop-web", true))]),
        "error: Subnamespace shop/shop-web is being deleted already: namespace a first\n"
    );
    let (ran, _) = against("coppice tree delete shop/shop-web --cascade=25h", Vec::new());
    assert!(ran.code == 2 && ran.err.contains("'--cascade[=<DURATION>]': write at most 1d"), "{ran:?}");
    let mut script = read(&["shop-web-a"], false);
    script.push((PATCH, 409, status(409, "changed")));
    assert_eq!(
        failed("coppice tree delete shop/shop-web --cascade", script),
        "error: Subnamespace shop/shop-web was changed meanwhile: try again\n"
    );
}

#[test]
fn where_not_all_below_can_be_read_nothing_is_deleted() {
    let mut script = vec![(WEB, 200, subnamespace("shop", "shop-web", false))];
    script.extend([
        (TREES, 403, status(403, "bob may not")),
        (SUBNAMESPACES, 403, status(403, "bob may not")),
        (QUOTAS, 403, status(403, "bob may not")),
        (BELOW, 403, status(403, "bob may not")),
        (QUOTA, 403, status(403, "bob may not")),
    ]);
    let error = failed("coppice tree delete shop/shop-web --cascade", script);
    assert!(error.contains("what is below namespace shop-web cannot be read"), "{error}");
}

#[test]
fn what_nothing_is_below_is_deleted_as_it_was_read() {
    for command in ["coppice tree delete shop/shop-web", "coppice tree delete shop/shop-web --cascade"] {
        let mut script = read(&[], false);
        script.push((DELETE, 200, subnamespace("shop", "shop-web", true)));
        let (ran, requests) = against(command, script);
        assert_eq!((ran.code, ran.err.as_str()), (0, ""));
        assert!(ran.out.ends_with("subnamespace.coppice.dev/shop-web is being deleted\n"), "{}", ran.out);
        assert_eq!(requests.last().unwrap().2["preconditions"], json!({"uid": "u"}));
    }
}

#[test]
fn what_others_are_below_is_deleted_with_consent_alone() {
    let (ran, requests) = against("coppice tree delete shop/shop-web", read(&["shop-web-a"], false));
    assert_eq!((ran.code, requests.len()), (3, 4), "{ran:?}");
    let note = "one namespace is below namespace shop-web, which is not deleted: delete from the bottom up, or with --cascade it goes, too";
    assert!(ran.err.contains(note), "{}", ran.err);
    let rows: Vec<_> = ran.out.lines().filter_map(|line| line.split_whitespace().next()).collect();
    assert_eq!(rows, ["NAMESPACE", "shop-web-a", "shop-web"]);
    for (deleted, dry_run) in [(false, false), (true, false), (false, true)] {
        let mut script = read(&["shop-web-a"], deleted);
        script.push((PATCH, 200, subnamespace("shop", "shop-web", deleted)));
        let deletes = !deleted && !dry_run;
        if deletes {
            script.push((DELETE, 200, subnamespace("shop", "shop-web", true)));
        }
        let command = "coppice tree delete shop/shop-web --cascade=2h";
        let command = if dry_run { format!("{command} --dry-run --wait") } else { command.to_owned() };
        let (ran, requests) = against(&command, script);
        assert_eq!(ran.code, 0, "{ran:?}");
        assert!(
            ran.out.contains("is being deleted, with all below it until 2026-03-01T14:30:00Z"),
            "{}",
            ran.out
        );
        let (_, path, body) = requests.iter().find(|(method, ..)| method == "PATCH").unwrap();
        assert_eq!(path.contains("dryRun=All"), dry_run, "{path}");
        assert_eq!(body["metadata"], json!({"uid": "u", "resourceVersion": "7"}));
        assert_eq!(body["spec"], json!({"cascadeUntil": "2026-03-01T14:30:00Z"}));
        assert_eq!(requests.iter().any(|(method, ..)| method == "DELETE"), deletes, "{requests:?}");
    }
}
