//! `list --deleted` and `explain` of a namespace that is gone, against an API server that answers from a script.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on has failed")]

use crate::support::server::{Script, against, list, status, status_of};
use serde_json::{Value, json};

const RECORDS: &str = "GET /apis/coppice.dev/v1alpha1/deletednamespaces";
const EVENTS: &str = "GET /api/v1/namespaces/default/events";
/// Who can list records.
const WHO: &str = "they are cluster-scoped: cluster administrators can list them, and users with a ClusterRoleBinding to the \
                   role view or another that permits `list` on deletednamespaces.coppice.dev; a RoleBinding does not suffice";
const NO_EVENT: &str = "no Event about it is left; Kubernetes keeps Events for an hour unless the API server is configured otherwise";

fn record(name: &str, decided: &str, spec: &Value, status: &Value) -> Value {
    let mut all = json!({
        "namespace": "a", "uid": "ns-1", "namespaceCreated": "2026-03-01T10:00:00Z", "manager": "m", "managerKind": "NamespaceManager", "policy": "expire",
        "decidedAt": decided, "attemptedAt": decided, "reason": "TtlElapsed",
        "evidence": {"due": "2026-03-01T12:00:01Z", "namespaceCreated": "2026-03-01T10:00:00Z"}
    });
    all.as_object_mut().unwrap().extend(spec.as_object().unwrap().clone());
    let mut record = json!({
        "apiVersion": "coppice.dev/v1alpha1", "kind": "DeletedNamespace",
        "metadata": {
            "name": name, "uid": format!("uid-{name}"), "resourceVersion": "7", "creationTimestamp": decided,
            "labels": {"coppice.dev/namespace": all["namespace"]}
        },
        "spec": all
    });
    if !status.is_null() {
        record["status"] = status.clone();
    }
    record
}

fn gone() -> Value {
    json!({"phase": "Deleted", "deletedAt": "2026-03-01T12:10:00Z"})
}

/// Neither in the order of their decisions nor in the reverse.
fn records() -> Value {
    let pods = json!({"namespace": "b", "uid": "ns-2", "policy": "done", "reason": "PodsSucceeded",
        "evidence": {"jobs": "build", "pods": "p".repeat(200), "succeeded": "3"}});
    let mut odd = record("fire-odd", "2026-03-01T12:15:00Z", &json!({"namespace": "c"}), &gone());
    odd["spec"] = json!({"namespace": 7});
    let mut newer = record("fire-newer", "2026-03-01T12:16:00Z", &json!({"namespace": "d"}), &Value::Null);
    newer["status"] = json!({"phase": "Evaporated"});
    list(&[
        record("fire-2", "2026-03-01T12:20:00Z", &pods, &json!({"phase": "Terminating"})),
        record("fire-1", "2026-03-01T12:00:05Z", &json!({}), &gone()),
        record("fire-3", "2026-03-01T12:29:00Z", &json!({"namespace": "e", "evidence": {}}), &Value::Null),
        odd,
        newer,
    ])
}

#[test]
fn deleted_namespaces_are_listed_with_the_newest_decision_first() {
    let script = || vec![(RECORDS, 200, records())];
    let (ran, requests) = against("coppice list --deleted", script());
    insta::assert_snapshot!("list", ran.all());
    assert_eq!(requests.len(), 1);
    assert!(!requests[0].1.contains("labelSelector"), "{requests:?}");
    insta::assert_snapshot!("list_wide", against("coppice ls --deleted -o wide", script()).0.out);
    let (ran, _) = against("coppice list --deleted -A -o name", script());
    let names = ["3", "2", "newer", "odd", "1"].map(|id| format!("deletednamespace.coppice.dev/fire-{id}\n"));
    assert_eq!((ran.code, ran.out), (0, names.concat()));
}

#[test]
fn programs_get_the_records_as_they_are() {
    let script = || vec![(RECORDS, 200, records())];
    let json: Value =
        serde_json::from_str(&against("coppice list --deleted -o json", script()).0.out).unwrap();
    let yaml: Value =
        serde_yaml::from_str(&against("coppice list --deleted -o yaml", script()).0.out).unwrap();
    assert_eq!(json, yaml);
    assert_eq!((&json["kind"], json["items"].as_array().unwrap().len()), (&"List".into(), 5));
    let first = &json["items"][4];
    let mut expected = record("fire-1", "2026-03-01T12:00:05Z", &json!({}), &gone());
    assert_eq!(*first, expected);
    expected["status"] = json!({});
    assert_eq!(json["items"][0]["status"], expected["status"], "only decided");
    assert_eq!(json["items"][3]["metadata"]["name"], "fire-odd");
    assert!(json["items"][3].get("spec").is_none(), "{json}");
}

#[test]
fn a_namespace_and_labels_select_records() {
    let asked = |line: &str| {
        let (ran, requests) = against(line, vec![(RECORDS, 200, list(&[]))]);
        assert_eq!((ran.code, ran.out.as_str()), (0, ""));
        (ran.err, requests[0].1.clone())
    };
    let (err, uri) = asked("coppice list --deleted -n a");
    assert_eq!(err, "No resources found in a namespace.\n");
    assert!(uri.contains("labelSelector=coppice.dev%2Fnamespace%3Da&"), "{uri}");
    let (_, uri) = asked("coppice list --deleted -n a -l x=y");
    assert!(uri.contains("labelSelector=coppice.dev%2Fnamespace%3Da%2Cx%3Dy&"), "{uri}");
    let (err, uri) = asked("coppice list --deleted -A -n a -l x=y");
    assert_eq!(err, "No resources found.\n");
    assert!(uri.contains("labelSelector=x%3Dy&"), "{uri}");
}

#[test]
fn records_that_cannot_be_listed_say_what_to_do() {
    let (ran, _) = against("coppice list --deleted", vec![(RECORDS, 403, status(403, "not you"))]);
    let who = format!("error: the DeletedNamespaces cannot be listed: not you; {WHO}\n");
    assert_eq!((ran.code, ran.err), (1, who));
    let (ran, _) = against("coppice list --deleted", Vec::new());
    assert_eq!(
        (ran.code, ran.err.as_str()),
        (
            1,
            "error: the DeletedNamespaces cannot be listed: the API server does not know this kind; apply the CRDs of this \
             version: `coppice crds | kubectl apply --server-side -f -`\n"
        )
    );
}

/// The answers about a namespace that does not exist.
fn about(records: (u16, Value), events: (u16, Value)) -> Script {
    vec![
        ("GET /api/v1/namespaces/a", 404, status_of("NotFound")),
        (RECORDS, records.0, records.1),
        (EVENTS, events.0, events.1),
    ]
}

fn event() -> Value {
    json!({
        "metadata": {"name": "e", "namespace": "default"}, "involvedObject": {"kind": "Namespace", "name": "a", "uid": "ns-1"},
        "type": "Normal", "reason": "NamespaceDeleted", "message": "accepted", "eventTime": "2026-03-01T12:20:00.000000Z"
    })
}

fn of_a() -> Value {
    let mut odd = record("fire-odd", "2026-03-01T12:15:00Z", &json!({}), &gone());
    odd["spec"] = json!({"namespace": 7});
    list(&[
        record("fire-1", "2026-03-01T12:00:05Z", &json!({}), &gone()),
        odd,
        record(
            "fire-2",
            "2026-03-01T12:20:00Z",
            &json!({"uid": "ns-2", "evidence": {}}),
            &json!({"phase": "Terminating"}),
        ),
        record("fire-3", "2026-03-01T12:29:00Z", &json!({"uid": "ns-3"}), &Value::Null),
    ])
}

#[test]
fn a_deleted_namespace_is_explained_by_its_records() {
    let (ran, requests) = against("coppice explain a", about((200, of_a()), (200, list(&[event()]))));
    insta::assert_snapshot!("explain", ran.all());
    let uri = &requests.iter().find(|(_, uri, _)| uri.contains("deletednamespaces")).unwrap().1;
    assert!(uri.contains("labelSelector=coppice.dev%2Fnamespace%3Da&"), "{uri}");
    let (ran, _) = against("coppice explain a -o name", about((200, of_a()), (200, list(&[]))));
    let names = ["3", "2", "odd", "1"].map(|id| format!("deletednamespace.coppice.dev/fire-{id}\n"));
    assert_eq!((ran.code, ran.out), (0, names.concat()));
}

#[test]
fn with_records_missing_events_are_no_error() {
    let one = || list(&[record("fire-1", "2026-03-01T12:00:05Z", &json!({}), &gone())]);
    let (ran, _) = against("coppice explain a", about((200, one()), (200, list(&[]))));
    insta::assert_snapshot!("explain_without_events", ran.all());
    let (ran, _) = against("coppice explain a", about((200, one()), (403, status(403, "not you"))));
    assert_eq!(
        (ran.code, ran.err.as_str()),
        (0, "note: the Events about it in namespace default cannot be read: not you\n")
    );
    assert!(ran.out.contains("Deleted, gone by 2026-03-01T12:10:00Z (20m ago)"), "{}", ran.out);
}

#[test]
fn programs_get_records_and_events() {
    let script = || about((200, of_a()), (200, list(&[event()])));
    let (ran, _) = against("coppice explain a -o json", script());
    let report: Value = serde_json::from_str(&ran.out).unwrap();
    let spec = record("", "2026-03-01T12:00:05Z", &json!({}), &Value::Null)["spec"].clone();
    let mut first = spec.as_object().unwrap().clone();
    first.insert("decision".to_owned(), "fire-1".into());
    first.insert("phase".to_owned(), "Deleted".into());
    first.insert("deletedAt".to_owned(), "2026-03-01T12:10:00Z".into());
    assert_eq!(report["records"][3], Value::Object(first));
    assert_eq!(report["records"][0]["phase"], Value::Null);
    let problem = report["records"][2]["problem"].as_str().unwrap();
    assert!(problem.starts_with("spec cannot be understood: "), "{problem}");
    assert_eq!((&report["exists"], &report["events"][0]["uid"]), (&false.into(), &"ns-1".into()));
    let yaml: Value = serde_yaml::from_str(&against("coppice explain a -o yaml", script()).0.out).unwrap();
    assert_eq!(report, yaml);
    let forbidden = || (403, status(403, "not you"));
    for (script, unknown, known) in [
        (about((200, of_a()), forbidden()), "events", "records"),
        (about(forbidden(), (200, list(&[event()]))), "records", "events"),
    ] {
        let (ran, _) = against("coppice explain a -o json", script);
        let report: Value = serde_json::from_str(&ran.out).unwrap();
        assert!(report[unknown].is_null() && report[known].is_array(), "{ran:?}");
    }
}

#[test]
fn without_records_the_events_are_shown_and_a_note() {
    let cases = [
        (
            (200, list(&[])),
            "there is no DeletedNamespace for it: Coppice did not delete it, or no longer keeps the record (30 days, the newest \
             10,000)"
                .to_owned(),
        ),
        (
            (403, status(403, "not you")),
            format!("the DeletedNamespaces cannot be listed: not you; {WHO}"),
        ),
        (
            (404, status(404, "404 page not found")),
            "the DeletedNamespaces cannot be listed: the API server does not know this kind; apply the CRDs of this version: \
             `coppice crds | kubectl apply --server-side -f -`"
                .to_owned(),
        ),
    ];
    for (records, why) in cases {
        let (ran, _) = against("coppice explain a", about(records.clone(), (200, list(&[event()]))));
        assert_eq!((ran.code, &ran.err), (0, &format!("note: {why}\n")));
        assert_eq!(
            ran.out,
            "Namespace a does not exist (any more). What is remembered of it:\n\n\
             WHEN                             TYPE     REASON             WHAT\n\
             2026-03-01T12:20:00Z (10m ago)   Normal   NamespaceDeleted   accepted\n"
        );
        let (ran, _) = against("coppice explain a", about(records, (200, list(&[]))));
        let all = format!(
            "error: namespace a does not exist, and nothing is known about it:\n  {why}\n  {NO_EVENT}\n"
        );
        assert_eq!((ran.code, ran.out.as_str(), ran.err), (1, "", all));
    }
}

#[test]
fn what_a_record_says_does_not_act_on_the_terminal() {
    let hostile = "\u{1b}]0;title\u{7}x\r\nother   line\u{9b}1m";
    let mut spec = json!({"evidence": {}});
    for field in ["namespace", "uid", "manager", "policy", "reason"] {
        spec[field] = hostile.into();
    }
    spec["evidence"][hostile] = hostile.into();
    let one = record("fire-1", "2026-03-01T12:00:05Z", &spec, &gone());
    let odd = record("fire-2", "2026-03-01T12:00:05Z", &json!({}), &json!({"phase": hostile}));
    let all = list(&[one, odd]);
    for line in [
        "coppice list --deleted",
        "coppice list --deleted -o wide",
        "coppice list --deleted -o json",
        "coppice list --deleted -o yaml",
        "coppice explain a",
        "coppice explain a -o json",
    ] {
        let (ran, _) = against(line, about((200, all.clone()), (200, list(&[]))));
        let shown = ran.all();
        assert!(ran.code == 0 && shown.contains("other   line"), "{line}: {shown}");
        assert!(!shown.contains(|c: char| c.is_control() && c != '\n'), "{line}: {shown:?}");
        assert!(!shown.lines().any(|shown| shown.starts_with("other")), "{line}: {shown}");
    }
}

#[test]
fn of_a_namespace_that_was_created_again_it_says_that_an_earlier_one_was_deleted() {
    let script = |uid: &str, records: (u16, Value)| -> Script {
        let metadata = json!({"name": "a", "uid": uid, "creationTimestamp": "2026-03-01T12:25:00Z"});
        vec![
            ("GET /api/v1/namespaces/a", 200, json!({"metadata": metadata, "status": {"phase": "Active"}})),
            (RECORDS, records.0, records.1),
            ("GET /apis/coppice.dev/v1alpha1/namespaces/a/namespacemanagers", 200, list(&[])),
        ]
    };
    let note = "note: Coppice deleted an earlier namespace of this name: coppice list --deleted -n a";
    let records = || list(&[record("fire-1", "2026-03-01T12:00:05Z", &json!({}), &gone())]);
    let says = |uid: &str, records| against("coppice explain a", script(uid, records)).0.all().contains(note);
    assert!(says("ns-9", (200, records())));
    // The record is about this very namespace, or there is none, or it may not be read.
    assert!(!says("ns-1", (200, records())));
    assert!(!says("ns-9", (200, list(&[]))));
    assert!(!says("ns-9", (403, status(403, "not you"))));
}
