//! What users ask for a governed namespace, against an API server that answers from a script.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on has failed")]

use crate::support::server::{RecordedRequest, Script, against, list, status, status_of};
use serde_json::{Value, json};

const NAMESPACE: &str = "GET /api/v1/namespaces/a";
const MANAGERS: &str = "GET /apis/coppice.dev/v1alpha1/namespaces/a/namespacemanagers";
const CLUSTER_MANAGERS: &str = "GET /apis/coppice.dev/v1alpha1/clusternamespacemanagers";
const RECORD: &str = "GET /apis/coppice.dev/v1alpha1/namespaces/a/managednamespaces/coppice";
const RECORDS: &str = "GET /apis/coppice.dev/v1alpha1/namespaces/a/managednamespaces";
const PATCH: &str = "PATCH /apis/coppice.dev/v1alpha1/namespaces/a/managednamespaces/coppice";
const CREATE: &str = "POST /apis/coppice.dev/v1alpha1/namespaces/a/managednamespaces";
const WHO: &str = "POST /apis/authentication.k8s.io/v1/selfsubjectreviews";

fn namespace() -> Value {
    json!({"metadata": {"name": "a", "uid": "ns-1", "creationTimestamp": "2026-03-01T12:00:00Z"}})
}

fn record(revision: &str, spec: &Value, status: &Value) -> Value {
    json!({
        "apiVersion": "coppice.dev/v1alpha1", "kind": "ManagedNamespace",
        "metadata": {
            "name": "coppice", "namespace": "a", "uid": "r-1", "resourceVersion": revision, "generation": 1,
            "creationTimestamp": "2026-03-01T12:00:00Z"
        },
        "spec": spec, "status": status
    })
}

/// Governed, and due at 14:00:01.
fn governed() -> Value {
    json!({
        "observedGeneration": 1, "namespaceUid": "ns-1", "phase": "Ok", "expiresAt": "2026-03-01T14:00:01Z",
        "manager": {"name": "ci", "uid": "c-1", "digest": "c1:1", "generation": 1, "since": "2026-03-01T12:00:02Z"},
        "next": {"action": "delete", "policy": "end", "due": "2026-03-01T14:00:01Z", "reason": "TtlRunning", "message": "the ttl ends at 2026-03-01T14:00:01Z"}
    })
}

fn manager() -> Value {
    json!({
        "apiVersion": "coppice.dev/v1alpha1", "kind": "NamespaceManager", "metadata": {"name": "m", "namespace": "a", "uid": "u-1"},
        "spec": {"policies": [{"name": "p", "when": {"ttl": {"after": "2h"}}, "then": {"delete": {}}}]}
    })
}

fn cluster_manager(names: &str) -> Value {
    json!({
        "metadata": {"name": "ci", "uid": "c-1", "generation": 1},
        "spec": {"selector": {"names": [names]}, "ttl": {"after": "2h"}}
    })
}

fn who() -> (&'static str, u16, Value) {
    (WHO, 201, json!({"metadata": {}, "status": {"userInfo": {"username": "alice"}}}))
}

/// Alice, the namespace, and no manager in it.
fn script(more: Script) -> Script {
    let mut all = vec![who(), (NAMESPACE, 200, namespace()), (MANAGERS, 200, list(&[]))];
    all.extend(more);
    all
}

fn written(requests: &[RecordedRequest]) -> &Value {
    &requests.iter().rfind(|(method, uri, _)| method != "GET" && uri.contains("managednamespaces")).unwrap().2
}

#[test]
fn hold_writes_the_record_of_the_namespace_in_the_users_name_and_again_after_a_conflict() {
    let script = script(vec![
        (RECORD, 200, record("1", &json!({}), &governed())),
        (RECORD, 200, record("2", &json!({}), &governed())),
        (PATCH, 409, status(409, "changed")),
        (PATCH, 200, record("3", &json!({}), &governed())),
    ]);
    let (ran, requests) = against("coppice hold a --for 2h --reason debugging", script);
    assert_eq!((ran.code, ran.err.as_str()), (0, ""));
    assert_eq!(ran.out, "namespace/a held until 2026-03-01T14:30:00Z (in 2h)\n");
    let body = json!({
        "metadata": {"resourceVersion": "2", "uid": "r-1"},
        "spec": {"hold": {"until": "2026-03-01T14:30:00Z", "reason": "debugging", "by": "alice"}}
    });
    assert_eq!(*written(&requests), body);
}

#[test]
fn a_record_that_does_not_exist_is_created_and_the_user_learns_whether_it_counts() {
    let held = |selected: &str, line: &str| {
        let script = script(vec![
            (RECORD, 404, status_of("NotFound")),
            (CLUSTER_MANAGERS, 200, list(&[cluster_manager(selected)])),
            (CREATE, 201, record("1", &json!({}), &json!({}))),
        ]);
        against(line, script)
    };
    let (ran, requests) = held("a*", "coppice hold a --for 2h");
    assert_eq!((ran.code, ran.out.as_str()), (0, "namespace/a held until 2026-03-01T14:30:00Z (in 2h)\n"));
    let note = "note: ManagedNamespace a/coppice did not exist and is created by this; ClusterNamespaceManager ci governs the \
                namespace\n";
    assert_eq!(ran.err, note);
    let body = written(&requests);
    assert_eq!(body["metadata"]["name"], "coppice");
    assert_eq!(body["spec"], json!({"hold": {"until": "2026-03-01T14:30:00Z", "by": "alice"}}));
    let (ran, _) = held("b*", "coppice hold a --for 2h");
    assert!(
        ran.code == 0 && ran.err.contains("no ClusterNamespaceManager governs the namespace at present"),
        "{ran:?}"
    );
    let (ran, requests) = held("a*", "coppice extend a --by 1h --dry-run");
    assert_eq!(
        ran.out,
        "namespace/a extended: no ttl ends before 2026-03-01T13:30:00Z (in 1h) (server dry run)\n"
    );
    assert!(ran.err.contains("when the ttl ends is not known yet: it is counted from now"), "{ran:?}");
    assert!(requests.last().unwrap().1.contains("dryRun=All"), "{requests:?}");
    let (ran, requests) = held("a*", "coppice release a");
    assert_eq!((ran.out.as_str(), ran.err.as_str()), ("namespace/a had no hold\n", ""));
    assert!(requests.iter().all(|(method, ..)| method == "GET"), "{requests:?}");
}

#[test]
fn a_namespace_that_only_has_managers_is_refused_with_their_names() {
    let held = |command: &str, answer: (&'static str, u16, Value)| {
        let script = vec![
            who(),
            (NAMESPACE, 200, namespace()),
            (MANAGERS, 200, list(&[manager()])),
            (RECORD, 404, status_of("NotFound")),
            answer,
        ];
        let (ran, requests) = against(&format!("coppice {command}"), script);
        assert!(requests.iter().all(|(_, uri, _)| !uri.contains("fieldManager")), "{requests:?}");
        (ran.code, ran.err)
    };
    let other = || (CLUSTER_MANAGERS, 200, list(&[cluster_manager("b*")]));
    let advice = |command: &str| {
        let error = format!(
            "error: namespace a has no record, and no ClusterNamespaceManager selects it: name its NamespaceManager (m), such as \
             `coppice {command} a/m`\n"
        );
        (1, error)
    };
    assert_eq!(held("hold a --for 2h", other()), advice("hold"));
    assert_eq!(held("extend a --by 2h", other()), advice("extend"));
    assert_eq!(held("release a", other()), advice("release"));
    let (code, error) = held("hold a --for 2h", (CLUSTER_MANAGERS, 403, status(403, "not you")));
    assert!(
        code == 1 && error.contains("is not known (cluster managers cannot be listed: not you)"),
        "{error}"
    );
}

#[test]
fn managers_beside_a_record_decide_for_themselves() {
    let script = vec![
        who(),
        (NAMESPACE, 200, namespace()),
        (MANAGERS, 200, list(&[manager()])),
        (RECORD, 200, record("1", &json!({}), &governed())),
        (PATCH, 200, record("2", &json!({}), &governed())),
    ];
    let (ran, _) = against("coppice hold a --for 2h", script);
    let note =
        "note: NamespaceManagers in it decide for themselves (m): `coppice hold a/m` is for one of them\n";
    assert_eq!((ran.code, ran.err.as_str()), (0, note));
}

#[test]
fn what_is_gone_or_going_is_not_held() {
    let held = |answer: (&'static str, u16, Value)| {
        let (ran, requests) = against("coppice hold a --for 2h", vec![who(), answer]);
        assert_eq!(requests.len(), 2, "{requests:?}");
        (ran.code, ran.err)
    };
    let gone = "error: namespace a does not exist; `coppice explain a` says whether Coppice deleted it\n";
    assert_eq!(held((NAMESPACE, 404, status_of("NotFound"))), (1, gone.to_owned()));
    let mut going = namespace();
    going["metadata"]["deletionTimestamp"] = json!("2026-03-01T12:29:00Z");
    let error = "error: namespace a is being deleted already, which nothing stops\n";
    assert_eq!(held((NAMESPACE, 200, going)), (1, error.to_owned()));
}

#[test]
fn nothing_is_written_in_nobodys_name_or_past_a_refusal() {
    let (ran, requests) = against("coppice hold a --for 2h", vec![(WHO, 403, status(403, "not you"))]);
    let error = "error: who you are (`by` in the record) cannot be read: not you\n";
    assert_eq!((ran.code, ran.err.as_str(), requests.len()), (1, error, 1));
    let refused = script(vec![
        (RECORD, 200, record("1", &json!({}), &governed())),
        (PATCH, 422, status(422, "Whoever changes spec.hold has to write their own user name into it")),
    ]);
    let (ran, _) = against("coppice hold a --for 2h", refused);
    let error = "error: ManagedNamespace a/coppice cannot be changed: Whoever changes spec.hold has to write their own user name \
                 into it\n";
    assert_eq!((ran.code, ran.err.as_str(), ran.out.as_str()), (1, error, ""));
}

#[test]
fn extend_counts_from_the_expiry_in_the_record_and_shortens_nothing_silently() {
    let extended = |spec: Value, status: Value, line: &str| {
        let script = script(vec![
            (RECORD, 200, record("1", &spec, &status)),
            (PATCH, 200, record("2", &spec, &status)),
        ]);
        let (ran, requests) = against(line, script);
        let spec = (ran.code == 0).then(|| written(&requests)["spec"].clone());
        (spec.unwrap_or_default(), ran)
    };
    let until = |at: &str| json!({"extendUntil": {"at": at, "by": "alice"}});
    let (spec, ran) = extended(json!({}), governed(), "coppice extend a --by 1h");
    assert_eq!(spec, until("2026-03-01T15:00:01Z"));
    assert_eq!(
        ran.out,
        "namespace/a extended: no ttl ends before 2026-03-01T15:00:01Z (in 2h30m); before: 2026-03-01T14:00:01Z (in 1h30m)\n"
    );
    // Not read yet by the operator.
    let later = json!({"extendUntil": {"at": "2026-03-01T16:00:00Z", "by": "bob"}});
    let (spec, _) = extended(later.clone(), governed(), "coppice extend a --by 1h");
    assert_eq!(spec, until("2026-03-01T17:00:00Z"));
    let (spec, ran) = extended(later, governed(), "coppice extend a --until 2026-03-01T15:00:00Z");
    assert_eq!(spec, until("2026-03-01T15:00:00Z"));
    assert!(ran.err.contains("note: that is earlier than before"), "{ran:?}");
    let mut past = governed();
    past["expiresAt"] = json!("2026-03-01T12:10:00Z");
    let (spec, _) = extended(json!({}), past, "coppice extend a --by 1h");
    assert_eq!(spec, until("2026-03-01T13:30:00Z"), "from now, as its end has passed");
    let mut without = governed();
    without.as_object_mut().unwrap().remove("expiresAt");
    let (_, ran) = extended(json!({}), without, "coppice extend a --by 1h");
    assert!(
        ran.code == 1
            && ran.err.contains("ClusterNamespaceManager ci has no ttl")
            && ran.err.contains("coppice hold a"),
        "{ran:?}"
    );
}

#[test]
fn release_takes_the_hold_of_the_record_away_and_nothing_else() {
    let held = json!({"hold": {"until": "2026-03-01T18:00:00Z", "by": "bob"}, "extendUntil": {"at": "2026-03-01T18:00:00Z"}});
    let script = vec![
        (NAMESPACE, 200, namespace()),
        (MANAGERS, 200, list(&[])),
        (RECORD, 200, record("1", &held, &governed())),
        (PATCH, 200, record("2", &json!({}), &governed())),
    ];
    let (ran, requests) = against("coppice release a", script);
    assert_eq!(ran.out, "namespace/a released (was held until 2026-03-01T18:00:00Z (in 5h30m))\n");
    assert_eq!(written(&requests)["spec"], json!({"hold": null}));
}

#[test]
fn list_shows_records_beside_managers() {
    let spec = json!({"hold": {"until": "2026-03-01T18:00:00Z", "by": "bob"}});
    let listed = |format: &str| {
        let script = vec![
            (MANAGERS, 200, list(&[manager()])),
            (RECORDS, 200, list(&[record("1", &spec, &governed())])),
        ];
        against(&format!("coppice list -n a{format}"), script).0
    };
    insta::assert_snapshot!("list_records", listed("").all());
    insta::assert_snapshot!("list_records_wide", listed(" -o wide").all());
    assert_eq!(
        listed(" -o name").out,
        "managednamespace.coppice.dev/coppice\nnamespacemanager.coppice.dev/m\n"
    );
    let items: Value = serde_json::from_str(&listed(" -o json").out).unwrap();
    let kinds: Vec<_> = items["items"].as_array().unwrap().iter().map(|item| item["kind"].clone()).collect();
    assert_eq!(kinds, ["ManagedNamespace", "NamespaceManager"]);
    assert_eq!(items["items"][0]["spec"], spec);
    let script = vec![(MANAGERS, 200, list(&[])), (RECORDS, 403, status(403, "not you"))];
    let (ran, _) = against("coppice list -n a", script);
    assert_eq!(ran.code, 0);
    assert!(ran.err.contains("cannot be listed: not you; only managers are shown"), "{ran:?}");
}

#[test]
fn list_says_that_what_is_only_observed_would_be_done() {
    let mut observed = governed();
    observed["next"]["reason"] = json!("Observing");
    let script =
        vec![(MANAGERS, 200, list(&[])), (RECORDS, 200, list(&[record("1", &json!({}), &observed)]))];
    let (ran, _) = against("coppice list -n a --no-headers", script);
    let row = "a   Ok   -   2026-03-01T14:00:01Z (in 1h30m)   would delete   2026-03-01T14:00:01Z (in 1h30m)   30m\n";
    assert_eq!((ran.code, &*ran.out), (0, row), "{}", ran.all());
}

/// What a tenant may read: the namespace, and what is in it.
fn tenant(records: &[Value], managers: &[Value]) -> Script {
    vec![
        (NAMESPACE, 200, namespace()),
        (MANAGERS, 200, list(managers)),
        (RECORDS, 200, list(records)),
        (CLUSTER_MANAGERS, 403, status(403, "not you")),
        (CONFIG, 403, status(403, "not you")),
    ]
}

const CONFIG: &str = "GET /apis/coppice.dev/v1alpha1/coppiceconfigs/coppice";

#[test]
fn where_cluster_managers_may_not_be_read_the_record_is_shown_as_the_operator_reports_it() {
    let governed = || tenant(&[record("1", &json!({}), &self::governed())], &[]);
    let (ran, _) = against("coppice plan -n a", governed());
    assert_eq!(ran.code, 0);
    let reported = "a           cnsman/ci   Ok      delete   2026-03-01T14:00:01Z (in 1h30m)";
    assert!(ran.out.contains(reported), "{}", ran.all());
    let note = "warning: cluster managers cannot be listed: not you; of governed namespaces is shown what the operator last \
                reported\n";
    assert!(ran.err.contains(note), "{}", ran.err);
    let (ran, _) = against("coppice explain a", governed());
    assert!(
        ran.out.contains("Governed:   by ClusterNamespaceManager ci, as it is now since"),
        "{}",
        ran.all()
    );
    assert!(ran.out.contains("not known: cluster managers cannot be listed: not you"), "{}", ran.out);
    let mut fails = self::governed();
    fails["failing"] = json!([{
        "kind": "Deployment", "name": "web", "reason": "ImagePullBackOff", "message": "the image cannot be pulled",
        "source": "Workloads", "since": "2026-03-01T12:10:00Z"
    }]);
    fails["failingMore"] = json!(2);
    let (ran, _) = against("coppice explain a", tenant(&[record("1", &json!({}), &fails)], &[]));
    let shown = "What fails\n  Deployment/web: the image cannot be pulled [ImagePullBackOff], since 2026-03-01T12:10:00Z (20m \
                 ago)\n  and 2 more\n  ImagePullBackOff: Check the image's name and tag, the pull secret, and whether the registry \
                 answers.\n";
    assert!(ran.out.contains(shown), "{}", ran.all());
}

#[test]
fn a_tenant_of_a_namespace_without_record_reads_about_managers_alone() {
    for command in ["plan -n a", "explain a"] {
        let (ran, _) = against(&format!("coppice {command}"), tenant(&[], &[manager()]));
        assert_eq!(ran.code, 0, "{}", ran.all());
        assert!(!ran.all().contains("cluster managers") && !ran.out.contains("Governed"), "{}", ran.all());
    }
    let (ran, _) = against("coppice explain a", tenant(&[], &[]));
    assert!(ran.out.contains("Governed:   not known"), "{}", ran.out);
}

#[test]
fn a_live_plan_of_one_namespace_takes_the_counts_that_the_operator_reports() {
    let manager = |newly_due: u32| {
        let digest = digest();
        json!({
            "metadata": {"name": "ci", "uid": "c-1", "generation": 1},
            "spec": {
                "mode": "Enforce", "selector": {"names": ["a"]}, "settle": "1m", "ttl": {"after": "1s"},
                "policies": [{"name": "end", "when": {"phase": {"in": ["Stale"]}}, "then": {"delete": {}}}]
            },
            "status": {"policyDigest": digest, "enforce": {"due": newly_due, "newlyDue": newly_due}}
        })
    };
    let planned = |newly_due: u32| {
        let governing = json!({
            "observedGeneration": 1, "namespaceUid": "ns-1",
            "manager": {"name": "ci", "uid": "c-1", "digest": digest(), "generation": 1, "since": "2026-03-01T12:10:00Z"}
        });
        let script = vec![
            (NAMESPACE, 200, namespace()),
            (MANAGERS, 200, list(&[])),
            (RECORDS, 200, list(&[record("1", &json!({}), &governing)])),
            (CLUSTER_MANAGERS, 200, list(&[manager(newly_due)])),
            (
                CONFIG,
                200,
                json!({"metadata": {"name": "coppice"}, "spec": {}, "status": {"governor": {"hourlyLimit": 10}}}),
            ),
        ];
        against("coppice plan -n a -o json", script).0
    };
    let few = planned(1);
    assert!(few.out.contains("\"now\": true"), "{}", few.all());
    let many = planned(1000);
    assert!(many.out.contains("ApprovalNeeded"), "{}", many.all());
}

/// Of the manager above.
fn digest() -> String {
    let spec = "{mode: Enforce, selector: {names: [a]}, settle: 1m, ttl: {after: 1s}, policies: [{name: end, when: {phase: {in: \
                [Stale]}}, then: {delete: {}}}]}";
    let spec: coppice_lifecycle::cluster::ValidClusterManager = serde_yaml::from_str(spec).unwrap();
    spec.digest().to_owned()
}
