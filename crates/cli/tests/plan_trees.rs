//! `coppice plan` of trees of namespaces: what goes, in which order, what waits for what, and what returns.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on has failed")]

use crate::support;

use crate::support::run;
use crate::support::server::{against, list, status, status_of};
use serde_json::{Value, json};

const DELETED: &str = "2026-03-01T12:00:00Z";

fn namespace(name: &str, labels: &Value) -> Value {
    let metadata = json!({
        "name": name, "uid": format!("uid-of-{name}"), "creationTimestamp": "2026-03-01T10:00:00Z", "labels": labels
    });
    json!({"apiVersion": "v1", "kind": "Namespace", "metadata": metadata})
}

fn going(name: &str) -> Value {
    let mut namespace = namespace(name, &json!({}));
    namespace["metadata"]["deletionTimestamp"] = json!(DELETED);
    namespace
}

fn subnamespace(parent: &str, name: &str) -> Value {
    json!({
        "apiVersion": "coppice.dev/v1alpha1", "kind": "Subnamespace",
        "metadata": {"name": name, "namespace": parent, "uid": format!("u-of-{name}"), "generation": 1},
        "spec": {"quota": {"hard": {"pods": "2"}}},
        "status": {
            "phase": "Ready", "tree": "shop", "namespaceUid": format!("uid-of-{name}"),
            "allotment": {"hard": {"pods": "2"}, "decided": 1}
        }
    })
}

/// The same while it is being deleted.
fn deleted(parent: &str, name: &str, spec: &Value) -> Value {
    let mut object = subnamespace(parent, name);
    object["metadata"]["deletionTimestamp"] = json!(DELETED);
    object["spec"] = spec.clone();
    object
}

/// shop above shop-web, that above shop-web-a and shop-web-c, and shop-web-a above shop-web-a-b.
fn tree(web: Value) -> Vec<Value> {
    let names = ["shop", "shop-web", "shop-web-a", "shop-web-a-b", "shop-web-c"];
    let mut all: Vec<Value> = names.iter().map(|name| namespace(name, &json!({}))).collect();
    all.push(web);
    all.push(subnamespace("shop-web", "shop-web-a"));
    all.push(subnamespace("shop-web-a", "shop-web-a-b"));
    all.push(subnamespace("shop-web", "shop-web-c"));
    all
}

/// The exit code, and what is said of each namespace.
fn plan(objects: &[Value]) -> (u8, Vec<Value>) {
    let ran = run("coppice plan -o json -f -", &list(objects).to_string());
    let report: Value = serde_json::from_str(&ran.out).unwrap_or_else(|error| panic!("{error}: {ran:?}"));
    (ran.code, report["items"].as_array().unwrap().clone())
}

#[track_caller]
fn of<'a>(items: &'a [Value], namespace: &str) -> &'a Value {
    items.iter().find(|item| item["namespace"] == namespace).unwrap_or_else(|| panic!("{items:#?}"))
}

fn said(item: &Value) -> (&str, &str, bool) {
    let text = |field: &str| item[field].as_str().unwrap_or_default();
    (text("reason"), text("action"), item["now"] == true)
}

#[test]
fn a_cascade_is_shown_in_the_order_in_which_it_goes() {
    let consent = json!({"quota": {"hard": {"pods": "2"}}, "cascadeUntil": "2026-03-01T13:00:00Z"});
    let objects = tree(deleted("shop", "shop-web", &consent));
    let (code, items) = plan(&objects);
    assert_eq!((code, items.len()), (0, 4), "{items:#?}");
    let top = of(&items, "shop-web");
    assert_eq!(said(top), ("CascadingDeletion", "delete", false));
    assert_eq!(top["before"], json!(["shop-web-a-b", "shop-web-c", "shop-web-a"]));
    assert_eq!((&top["parent"], &top["returns"]), (&json!("shop"), &json!({"pods": "2"})));
    let message = top["message"].as_str().unwrap();
    assert!(message.ends_with("allows until 2026-03-01T13:00:00Z: shop-web-a-b is next"), "{message}");
    for (name, now, number) in [("shop-web-a-b", true, 1), ("shop-web-c", false, 2), ("shop-web-a", false, 3)]
    {
        let item = of(&items, name);
        assert_eq!(said(item), ("DeletedWithAncestor", "delete", now), "{name}");
        assert!(item["message"].as_str().unwrap().contains(&format!("number {number} of 3")), "{item}");
    }
    // What is protected stays, and all above it.
    let mut objects = objects;
    objects[2] = namespace("shop-web-a", &json!({"coppice.dev/protected": "true"}));
    let (_, items) = plan(&objects);
    let top = of(&items, "shop-web");
    assert_eq!((said(top).1, &top["before"]), ("", &json!(["shop-web-a-b", "shop-web-c"])));
    assert!(!items.iter().any(|item| item["namespace"] == "shop-web-a"), "{items:#?}");
    // While nothing may be deleted, it is said what would go.
    let mut paused = tree(deleted("shop", "shop-web", &consent));
    paused.push(json!({
        "apiVersion": "coppice.dev/v1alpha1", "kind": "CoppiceConfig", "metadata": {"name": "coppice"},
        "spec": {"governor": {"paused": true}}
    }));
    let (_, items) = plan(&paused);
    assert_eq!(said(of(&items, "shop-web")), ("Paused", "delete", false));
    assert_eq!(of(&items, "shop-web")["before"], json!(["shop-web-a-b", "shop-web-c", "shop-web-a"]));
    assert_eq!(said(of(&items, "shop-web-a-b")), ("DeletedWithAncestor", "delete", false));
    // The clock moves past the end of the consent.
    let text = list(&tree(deleted("shop", "shop-web", &consent))).to_string();
    let late = run("coppice plan -f - --at 2026-03-01T14:00:00Z", &text);
    assert!(late.out.contains("the consent of spec.cascadeUntil ended at 2026-03-01T13:00:00Z"), "{late:?}");
}

#[test]
fn a_cascade_waits_where_a_status_below_is_not_understood() {
    let consent = json!({"quota": {"hard": {"pods": "2"}}, "cascadeUntil": "2026-03-01T13:00:00Z"});
    let mut objects = tree(deleted("shop", "shop-web", &consent));
    objects[8]["status"] = json!({"namespaceUid": 1});
    let (code, items) = plan(&objects);
    let top = of(&items, "shop-web");
    assert_eq!((code, said(top)), (3, ("Undecodable", "", false)), "{items:#?}");
    assert!(top["message"].as_str().unwrap().starts_with("Subnamespace shop-web/shop-web-c: "), "{top}");
    assert_eq!(said(of(&items, "shop-web-a-b")), ("DeletedWithAncestor", "delete", false), "not now");
}

#[test]
fn a_cascade_leaves_one_below_whose_marked_namespace_is_protected() {
    let consent = json!({"quota": {"hard": {"pods": "2"}}, "cascadeUntil": "2026-03-01T13:00:00Z"});
    let mut objects = tree(deleted("shop", "shop-web", &consent));
    objects[8]["status"] = json!({"phase": "Refused", "tree": "shop"});
    let labels = json!({"coppice.dev/subnamespace": "u-of-shop-web-c", "coppice.dev/protected": "true"});
    objects[4] = namespace("shop-web-c", &labels);
    let (_, items) = plan(&objects);
    let top = of(&items, "shop-web");
    assert_eq!((said(top).1, &top["before"]), ("", &json!(["shop-web-a-b", "shop-web-a"])), "{items:#?}");
}

#[test]
fn without_consent_it_waits_for_those_below_it() {
    let (code, items) = plan(&tree(deleted("shop", "shop-web", &json!({}))));
    assert_eq!((code, items.len()), (3, 1), "{items:#?}");
    assert_eq!(said(&items[0]), ("HasChildren", "", false));
    let message = items[0]["message"].as_str().unwrap();
    assert!(message.contains("namespace shop-web has 2 Subnamespaces below it, and stays"), "{message}");
    assert!(message.contains("coppice tree delete shop/shop-web --cascade"), "{message}");
}

#[test]
fn what_is_below_a_namespace_that_goes_moves_up() {
    let mut objects = tree(subnamespace("shop", "shop-web"));
    objects[1] = going("shop-web");
    let (_, items) = plan(&objects);
    assert_eq!(said(of(&items, "shop-web")), ("NamespaceTerminating", "delete", true));
    for name in ["shop-web-a", "shop-web-c"] {
        let item = of(&items, name);
        assert_eq!(said(item), ("MovedToAncestor", "move", true));
        assert!(item["message"].as_str().unwrap().contains("to namespace shop, the nearest"), "{item}");
    }
    assert_eq!(items.len(), 3, "what is further down goes along: {items:#?}");
}

#[test]
fn a_deletion_waits_for_the_budget_of_its_tree() {
    let budgets = json!([{"tree": "shop", "reservations": [{"at": "2026-03-01T12:00:00Z", "steps": 10}]}]);
    let config = json!({
        "apiVersion": "coppice.dev/v1alpha1", "kind": "CoppiceConfig", "metadata": {"name": "coppice"}, "spec": {},
        "status": {"governor": {"treeBudgets": budgets}}
    });
    let web = subnamespace("shop", "shop-web");
    let mut objects = tree(web);
    objects[8] = deleted("shop-web", "shop-web-c", &json!({}));
    assert_eq!(said(of(&plan(&objects).1, "shop-web-c")), ("NamespaceTerminating", "delete", true));
    objects.push(config);
    let (_, items) = plan(&objects);
    let item = of(&items, "shop-web-c");
    assert_eq!(said(item), ("TreeBudgetSpent", "delete", false));
    assert_eq!(item["due"], "2026-03-01T13:00:00Z");
}

#[test]
fn what_expires_in_a_tree_returns_its_quota() {
    let mut objects = tree(subnamespace("shop", "shop-web"));
    objects.push(json!({
        "apiVersion": "coppice.dev/v1alpha1", "kind": "NamespaceManager",
        "metadata": {"name": "m", "namespace": "shop-web-c"},
        "spec": {"policies": [{"name": "p", "when": {"ttl": {"after": "4h"}}, "then": {"delete": {}}}]}
    }));
    let ran = run("coppice plan -f -", &list(&objects).to_string());
    assert!(ran.out.contains("; returns 2 pods to shop-web"), "{ran:?}");
}

#[test]
fn of_a_cluster_subnamespaces_are_read_and_where_there_are_none_nothing_is_said() {
    let objects = tree(deleted("shop", "shop-web", &json!({})));
    let (namespaces, subnamespaces) = objects.split_at(5);
    let managers = ("GET /apis/coppice.dev/v1alpha1/namespacemanagers", 200, list(&[]));
    let config = ("GET /apis/coppice.dev/v1alpha1/coppiceconfigs/coppice", 403, status(403, "not you"));
    let all = ("GET /api/v1/namespaces", 200, list(namespaces));
    let mut script = vec![managers, config, all];
    let (ran, _) = against("coppice plan -A", script.clone());
    assert!(!ran.err.contains("trees") && ran.out.is_empty(), "{ran:?}");
    script.push(("GET /apis/coppice.dev/v1alpha1/subnamespaces", 200, list(subnamespaces)));
    let (ran, _) = against("coppice plan -A", script.clone());
    assert_eq!(ran.code, 3, "{ran:?}");
    assert!(ran.out.contains("sns/shop-web") && ran.out.contains("and stays: delete these first"), "{ran:?}");
    // Those in a namespace and its own, where only that is asked for.
    script.extend([
        ("GET /apis/coppice.dev/v1alpha1/namespaces/shop/namespacemanagers", 200, list(&[])),
        ("GET /api/v1/namespaces/shop", 200, namespaces[0].clone()),
    ]);
    let (ran, _) = against("coppice plan -n shop -o name", script);
    assert_eq!(ran.out, "subnamespace.coppice.dev/shop-web\n", "{ran:?}");
}

#[test]
fn what_becomes_of_a_namespace_that_cannot_be_read_is_not_known() {
    let objects = tree(deleted("shop", "shop-web", &json!({})));
    let managers = ("GET /apis/coppice.dev/v1alpha1/namespacemanagers", 200, list(&[]));
    let refused = |path: &'static str| (path, 403, status(403, "not you"));
    let none = ("GET /api/v1/namespaces/shop-api", 404, status_of("NotFound"));
    let mut subnamespaces = objects[5..].to_vec();
    subnamespaces.push(deleted("shop", "shop-api", &json!({})));
    let all = vec![
        managers,
        refused("GET /apis/coppice.dev/v1alpha1/coppiceconfigs/coppice"),
        refused("GET /api/v1/namespaces"),
        ("GET /apis/coppice.dev/v1alpha1/subnamespaces", 200, list(&subnamespaces)),
    ];
    let planned = |ran: &support::Ran| -> Vec<Value> {
        let report: Value = serde_json::from_str(&ran.out).unwrap_or_else(|error| panic!("{error}: {ran:?}"));
        report["items"].as_array().unwrap().clone()
    };
    let (ran, _) = against("coppice plan -A -o json", all.clone());
    let items = planned(&ran);
    let web = of(&items, "shop-web");
    assert_eq!((said(web), &web["unknown"]), (("NotSynced", "", false), &json!(true)));
    assert!(web["message"].as_str().unwrap().starts_with("namespace shop-web could not be read"), "{web}");
    assert_eq!(ran.code, 3, "{ran:?}");
    let warning = "6 namespaces of trees could not be read (shop, shop-api, shop-web, shop-web-a, shop-web-a-b and 1 more)";
    assert!(ran.err.contains(warning), "{ran:?}");

    // Of one that is gone that is known, beside one that may not be read.
    let mut one = all;
    one.extend([
        ("GET /apis/coppice.dev/v1alpha1/namespaces/shop/namespacemanagers", 200, list(&[])),
        ("GET /api/v1/namespaces/shop", 200, objects[0].clone()),
        refused("GET /api/v1/namespaces/shop-web"),
        none,
    ]);
    let (ran, _) = against("coppice plan -n shop -o json", one);
    let items = planned(&ran);
    assert_eq!(of(&items, "shop-web")["unknown"], true);
    let api = of(&items, "shop-api");
    assert_eq!((&api["unknown"], said(api).0), (&json!(false), "NamespaceTerminating"));
    assert!(api["message"].as_str().unwrap().contains("there is no namespace shop-api any more"), "{api}");
}

#[test]
fn a_namespace_that_files_do_not_have_is_not_taken_as_gone() {
    let web = deleted("shop", "shop-web", &json!({}));
    let manager = json!({
        "apiVersion": "coppice.dev/v1alpha1", "kind": "NamespaceManager",
        "metadata": {"name": "m", "namespace": "shop-web"},
        "spec": {"policies": [{"name": "p", "when": {"ttl": {"after": "4h"}}, "then": {"delete": {}}}]}
    });
    let (_, items) = plan(&[web, manager]);
    let item = items.iter().find(|item| item["managerKind"] == "Subnamespace").unwrap();
    assert_eq!(said(item), ("NamespaceTerminating", "delete", true));
    assert!(item["message"].as_str().unwrap().contains("is being deleted, and its quota returned"), "{item}");
}
