//! `coppice probe` against an API server that answers from a script; with real clusters it runs in `verification/tests`.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on has failed")]

use crate::support;

use crate::support::run;
use crate::support::server::{Script, against, list, status};
use k8s_openapi::ByteString;
use serde_json::{Value, json};

const ALL: &str = "/apis/coppice.dev/v1alpha1/namespaces/default/clusteraccesses";
const LIST: &str = "GET /apis/coppice.dev/v1alpha1/namespaces/default/clusteraccesses";
const CREATE: &str = "POST /apis/coppice.dev/v1alpha1/namespaces/default/clusteraccesses";
const GET: &str = "GET /apis/coppice.dev/v1alpha1/namespaces/default/clusteraccesses/coppice-probe";
const DELETE: &str = "DELETE /apis/coppice.dev/v1alpha1/namespaces/default/clusteraccesses/coppice-probe";
const SECRET: &str = "GET /api/v1/namespaces/default/secrets/coppice-probe";

/// What a probe that runs until then has created of a kind.
fn created(kind: &str, name: &str, (uid, until): (&str, &str), spec: &Value, state: &Value) -> Value {
    json!({"apiVersion": "coppice.dev/v1alpha1", "kind": kind, "metadata": {"name": name, "namespace": "default",
        "uid": uid, "generation": 1, "labels": {"coppice.dev/probe": "true"}, "annotations": {"coppice.dev/probe-until": until}},
        "spec": spec, "status": state})
}

fn access(uid: &str, until: &str, state: &Value) -> Value {
    let rule = json!({"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get"]});
    let spec = json!({"cluster": {"provider": {"name": "shop"}}, "output": {"secret": "coppice-probe"},
        "rights": {"role": {"namespace": "default", "rules": [rule]}}});
    created("ClusterAccess", "coppice-probe", (uid, until), &spec, state)
}

fn ready_access() -> Value {
    json!({"phase": "Ready", "observedGeneration": 1, "credential": "new-1", "identity": "someone"})
}

fn secret(kubeconfig: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "coppice-probe", "annotations": {"coppice.dev/credential": "new-1"}},
        "data": {"kubeconfig": ByteString(kubeconfig.as_bytes().to_vec())}})
}

/// Without anything of earlier probes: what is created has this state.
fn script(state: &Value, rest: Script) -> Script {
    let new = access("new", "2026-03-01T12:35:00Z", state);
    let mut script =
        vec![(LIST, 200, list(&[])), (CREATE, 201, new.clone()), (GET, 200, new.clone()), (DELETE, 200, new)];
    script.extend(rest);
    script
}

#[test]
fn a_step_that_fails_says_why_and_what_to_do_and_leaves_nothing_behind() {
    let error = json!({"reason": "NotAllowed", "message": "no entry allows namespace default", "generation": 1, "attempts": 1,
        "at": "2026-03-01T12:30:00Z"});
    let refused = script(&json!({"phase": "Refused", "lastError": error}), Vec::new());
    let (ran, requests) = against("coppice probe --provider shop -o json", refused);
    let report: Value = serde_json::from_str(&ran.out).unwrap();
    assert_eq!((ran.code, &report["ok"]), (3, &json!(false)), "{report:#}");
    let steps: Vec<(&str, bool)> = report["steps"]
        .as_array()
        .unwrap()
        .iter()
        .map(|one| (one["step"].as_str().unwrap(), one["ok"].as_bool().unwrap()))
        .collect();
    assert_eq!(steps, [("sweep", true), ("create", true), ("issue", false)]);
    let failed = &report["steps"][2];
    assert_eq!(failed["message"], "NotAllowed: no entry allows namespace default");
    assert!(failed["advice"].is_string() && report["cleanup"].as_str().unwrap().contains("is being deleted"));
    let (_, _, created) = requests.iter().find(|(method, ..)| method == "POST").unwrap();
    assert_eq!(created["metadata"]["annotations"]["coppice.dev/probe-until"], "2026-03-01T12:35:00Z");
    assert_eq!(created["spec"]["cluster"], json!({"provider": {"name": "shop"}}));
    assert_eq!(
        (&created["spec"]["ttl"], &created["spec"]["output"]["secret"]),
        (&json!("10m"), &json!("coppice-probe"))
    );
    let (_, _, deleted) = requests.iter().find(|(method, ..)| method == "DELETE").unwrap();
    assert_eq!(deleted["preconditions"]["uid"], "new");
}

#[test]
fn of_what_is_gone_it_is_not_said_that_it_is_being_deleted() {
    let new = access("new", "2026-03-01T12:35:00Z", &json!({"phase": "Refused"}));
    let script = vec![
        (LIST, 200, list(&[])),
        (CREATE, 201, new.clone()),
        (GET, 200, new),
        (DELETE, 404, status(404, "clusteraccesses.coppice.dev \"coppice-probe\" not found")),
    ];
    let (ran, _) = against("coppice probe --provider shop -o json", script);
    let report: Value = serde_json::from_str(&ran.out).unwrap();
    assert!(ran.code == 3 && report["cleanup"].is_null(), "{report:#}");
}

#[test]
fn a_table_shows_each_step() {
    let (ran, _) = against(
        "coppice probe --cluster-api shop --no-headers",
        script(&ready_access(), vec![(SECRET, 403, status(403, "secrets is forbidden"))]),
    );
    let rows: Vec<Vec<&str>> = ran.out.lines().map(|row| row.split("   ").map(str::trim).collect()).collect();
    let starts: Vec<String> = rows.iter().map(|row| row[..row.len().min(2)].join(" ")).collect();
    assert_eq!(starts[..3], ["sweep ok", "create ok", "issue FAILED"], "{}", ran.out);
    assert!(ran.out.contains("its Secret cannot be read: secrets is forbidden\n-> "), "{}", ran.out);
}

#[test]
fn what_earlier_probes_left_is_deleted_and_one_that_runs_is_not() {
    let left = access("old", "2026-03-01T12:29:00Z", &ready_access());
    let script = vec![
        (LIST, 200, list(std::slice::from_ref(&left))),
        (LIST, 200, list(&[])),
        (DELETE, 200, left),
        (CREATE, 403, status(403, "clusteraccesses.coppice.dev is forbidden")),
    ];
    let (ran, requests) = against("coppice probe --provider shop", script);
    assert!(ran.code == 3 && ran.out.contains("deleted coppice-probe"), "{}", ran.out);
    assert!(ran.out.contains("is forbidden"), "{}", ran.out);
    let deleted: Vec<&Value> =
        requests.iter().filter(|(method, ..)| method == "DELETE").map(|(_, _, body)| body).collect();
    assert_eq!(deleted.len(), 1, "{deleted:?}");
    assert_eq!(deleted[0]["preconditions"]["uid"], "old");
    assert!(requests[0].1.contains(ALL) && requests[0].1.contains("labelSelector="), "{requests:?}");
    // One that is being deleted has failed or ends: it is waited for.
    let mut going = access("old", "2026-03-01T12:31:00Z", &ready_access());
    going["metadata"]["deletionTimestamp"] = json!("2026-03-01T12:29:30Z");
    let script = vec![
        (LIST, 200, list(std::slice::from_ref(&going))),
        (LIST, 200, list(&[])),
        (DELETE, 200, going),
        (CREATE, 403, status(403, "clusteraccesses.coppice.dev is forbidden")),
    ];
    let (ran, _) = against("coppice probe --provider shop", script);
    assert!(ran.out.contains("deleted coppice-probe"), "{}", ran.out);
    let running = access("old", "2026-03-01T12:31:00Z", &ready_access());
    let (ran, requests) = against("coppice probe --provider shop", vec![(LIST, 200, list(&[running]))]);
    assert!(ran.code == 3 && ran.out.contains("runs until 2026-03-01T12:31:00Z"), "{}", ran.out);
    assert_eq!(requests.len(), 1, "{requests:?}");
}

const CLUSTERS: &str = "GET /apis/coppice.dev/v1alpha1/namespaces/default/managedclusters";
const MAKE: &str = "POST /apis/coppice.dev/v1alpha1/namespaces/default/managedclusters";
const CLUSTER: &str = "GET /apis/coppice.dev/v1alpha1/namespaces/default/managedclusters/shop";
const REMOVE: &str = "DELETE /apis/coppice.dev/v1alpha1/namespaces/default/managedclusters/shop";

fn cluster(uid: &str, until: &str, state: &Value) -> Value {
    let spec = json!({"provider": {"clusterAPI": {"class": "small"}}, "version": "1.33.4"});
    created("ManagedCluster", "shop", (uid, until), &spec, state)
}

/// Runs a probe that makes the cluster of a file with this text.
fn with_new_cluster(text: &str, script: Script) -> (support::Ran, Vec<support::server::RecordedRequest>) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("probe.yaml");
    std::fs::write(&path, text).unwrap();
    against(&format!("coppice probe --new-cluster {} -o json", path.display()), script)
}

const FILE: &str = "{apiVersion: coppice.dev/v1alpha1, kind: ManagedCluster, metadata: {name: shop}, \
    spec: {provider: {clusterAPI: {class: small}}, version: 1.33.4}}";

#[test]
fn a_new_cluster_is_made_and_waited_for_and_deleted_also_where_a_step_fails() {
    let made = json!({"kind": "Cluster", "namespace": "default", "name": "shop", "uid": "c"});
    let ready = json!({"state": "Ready", "observedGeneration": 1, "cluster": made});
    let stalled = json!({"state": "Failed", "conditions": [{"type": "Stalled", "status": "True", "reason": "ClusterRefused",
        "message": "", "lastTransitionTime": "2026-03-01T12:00:00Z"}]});
    for (state, expected) in [
        (&ready, vec![("sweep", true), ("make", true), ("ready", true), ("create", false)]),
        (&stalled, vec![("sweep", true), ("make", true), ("ready", false)]),
    ] {
        let left = cluster("old", "2026-03-01T12:29:00Z", &ready);
        let new = cluster("new", "2026-03-01T15:35:00Z", state);
        let script = vec![
            (LIST, 200, list(&[])),
            (CLUSTERS, 200, list(std::slice::from_ref(&left))),
            (CLUSTERS, 200, list(&[])),
            (REMOVE, 200, left),
            (MAKE, 201, new.clone()),
            (CLUSTER, 200, new),
            (CREATE, 403, status(403, "clusteraccesses.coppice.dev is forbidden")),
        ];
        let (ran, requests) = with_new_cluster(FILE, script);
        let report: Value = serde_json::from_str(&ran.out).unwrap();
        let steps = report["steps"].as_array().unwrap().iter();
        let steps: Vec<(&str, bool)> =
            steps.map(|one| (one["step"].as_str().unwrap(), one["ok"].as_bool().unwrap())).collect();
        assert_eq!((ran.code, steps), (3, expected), "{report:#}");
        assert_eq!(report["steps"][0]["message"], "deleted shop");
        let cleanup = report["cleanup"].as_str().unwrap();
        assert!(cleanup.starts_with("ManagedCluster default/shop is being deleted"), "{cleanup}");
        let (_, _, created) = requests.iter().find(|(method, ..)| method == "POST").unwrap();
        assert_eq!(created["spec"]["version"], "1.33.4");
        // An hour for what others left, for the cluster and for its deletion, and five minutes.
        assert_eq!(created["metadata"]["annotations"]["coppice.dev/probe-until"], "2026-03-01T15:35:00Z");
        let deleted = requests.iter().filter(|(method, ..)| method == "DELETE");
        let uids: Vec<&Value> = deleted.map(|(_, _, body)| &body["preconditions"]["uid"]).collect();
        assert_eq!(uids, [&json!("old"), &json!("new")]);
    }
}

#[test]
fn a_cluster_whose_creation_was_not_answered_is_deleted_if_it_is_of_this_probe() {
    for (until, is_own) in [("2026-03-01T15:35:00Z", true), ("2026-03-01T15:35:01Z", false)] {
        let new = cluster("new", until, &json!({}));
        let script = vec![
            (LIST, 200, list(&[])),
            (CLUSTERS, 200, list(&[])),
            (MAKE, 504, status(504, "request did not complete within the allotted timeout")),
            (CLUSTER, 200, new.clone()),
            (REMOVE, 200, new),
        ];
        let (ran, requests) = with_new_cluster(FILE, script);
        let report: Value = serde_json::from_str(&ran.out).unwrap();
        let deleted = requests.iter().filter(|(method, ..)| method == "DELETE");
        let uids: Vec<&Value> = deleted.map(|(_, _, body)| &body["preconditions"]["uid"]).collect();
        let expected = json!("new");
        assert_eq!(uids, if is_own { vec![&expected] } else { Vec::new() });
        let says = if is_own { "is being deleted" } else { "may be created still" };
        assert!(ran.code == 3 && report["cleanup"].as_str().unwrap().contains(says), "{report:#}");
    }
}

#[test]
fn a_cluster_that_has_the_label_alone_is_none_of_a_probe() {
    let mut copied = cluster("old", "", &json!({}));
    copied["metadata"].as_object_mut().unwrap().remove("annotations");
    let script = vec![
        (LIST, 200, list(&[])),
        (CLUSTERS, 200, list(&[copied])),
        (MAKE, 409, status(409, "managedclusters.coppice.dev \"shop\" already exists")),
    ];
    let (ran, requests) = with_new_cluster(FILE, script);
    assert!(ran.code == 3 && ran.out.contains("which no probe has left"), "{}", ran.out);
    assert!(requests.iter().all(|(method, ..)| method != "DELETE"), "{requests:?}");
}

#[test]
fn a_cluster_that_was_left_goes_although_an_access_stays() {
    let (access, cluster) = (
        access("a", "2026-03-01T12:29:00Z", &ready_access()),
        cluster("old", "2026-03-01T12:29:00Z", &json!({})),
    );
    let script = vec![
        (LIST, 200, list(&[access])),
        (DELETE, 403, status(403, "clusteraccesses.coppice.dev is forbidden")),
        (CLUSTERS, 200, list(std::slice::from_ref(&cluster))),
        (REMOVE, 200, cluster),
    ];
    let (ran, requests) = with_new_cluster(FILE, script);
    let report: Value = serde_json::from_str(&ran.out).unwrap();
    let steps = report["steps"].as_array().unwrap();
    assert!(steps.len() == 1 && steps[0]["message"].as_str().unwrap().contains("forbidden"), "{report:#}");
    let removed =
        requests.iter().find(|(method, path, _)| method == "DELETE" && path.contains("/managedclusters/"));
    assert_eq!(removed.unwrap().2["preconditions"]["uid"], "old");
}

#[test]
fn the_access_of_a_new_cluster_names_it() {
    let made = json!({"kind": "Cluster", "namespace": "default", "name": "shop", "uid": "c"});
    let ready = json!({"state": "Ready", "observedGeneration": 1, "cluster": made});
    let new = cluster("new", "2026-03-01T15:35:00Z", &ready);
    let script = script(
        &ready_access(),
        vec![
            (CLUSTERS, 200, list(&[])),
            (MAKE, 201, new.clone()),
            (CLUSTER, 200, new.clone()),
            (REMOVE, 200, new),
            (SECRET, 403, status(403, "secrets is forbidden")),
        ],
    );
    let (ran, requests) = with_new_cluster(FILE, script);
    let report: Value = serde_json::from_str(&ran.out).unwrap();
    let access =
        requests.iter().find(|(method, path, _)| method == "POST" && path.contains("/clusteraccesses"));
    assert_eq!(access.unwrap().2["spec"]["cluster"], json!({"managedCluster": {"name": "shop"}}));
    let last = report["steps"].as_array().unwrap().last().unwrap();
    assert_eq!((&last["step"], &last["ok"]), (&json!("issue"), &json!(false)), "{report:#}");
    let deleted: Vec<&str> =
        requests.iter().filter(|(method, ..)| method == "DELETE").map(|(_, path, _)| path.as_str()).collect();
    assert!(
        deleted.len() == 2 && deleted[0].contains("/clusteraccesses/"),
        "the access goes first: {deleted:?}"
    );
}

#[test]
fn a_file_has_one_managed_cluster_of_this_namespace() {
    let of = |metadata: &str, spec: &str| {
        format!(
            "{{apiVersion: coppice.dev/v1alpha1, kind: ManagedCluster, metadata: {metadata}, spec: {spec}}}"
        )
    };
    let spec = "{provider: {clusterAPI: {class: small}}, version: 1.33.4}";
    for (text, says) in [
        (format!("{FILE}\n---\n{FILE}"), "has 2 objects: write one ManagedCluster"),
        ("{apiVersion: v1, kind: Secret, metadata: {name: shop}}".to_owned(), "write a ManagedCluster"),
        (of("{name: shop, namespace: other}", spec), "leave metadata.namespace out"),
        (of("{name: shop}", "{provider: {clusterAPI: {class: small}}, version: v1.33.4}"), "such as 1.33.4"),
    ] {
        let (ran, requests) = with_new_cluster(&text, Vec::new());
        assert!(ran.code == 1 && ran.err.contains(says) && requests.is_empty(), "{says}: {}", ran.err);
    }
}

#[test]
fn a_kubeconfig_that_would_run_a_program_or_send_a_file_is_not_used() {
    for (user, says) in [
        ("exec: {apiVersion: client.authentication.k8s.io/v1, command: 'false'}", "would run a program"),
        ("tokenFile: /var/run/secrets/kubernetes.io/serviceaccount/token", "names files of this machine"),
        ("client-certificate-data: '', client-key: /etc/key.pem", "names files of this machine"),
    ] {
        let kubeconfig = format!(
            "{{apiVersion: v1, kind: Config, current-context: a, contexts: [{{name: a, context: {{cluster: a, user: a}}}}], \
             clusters: [{{name: a, cluster: {{server: 'https://127.0.0.1:1'}}}}], users: [{{name: a, user: {{{user}}}}}]}}"
        );
        let edited = script(&ready_access(), vec![(SECRET, 200, secret(&kubeconfig))]);
        let (ran, _) = against("coppice probe --provider shop", edited);
        assert!(ran.code == 3 && ran.out.contains(says), "{}", ran.out);
    }
}

#[test]
fn exactly_one_cluster_is_named_by_names_of_objects() {
    for line in [
        "coppice probe",
        "coppice probe --provider a --cluster-api b",
        "coppice probe --provider a --timeout 0s",
        "coppice probe --provider a --cluster-timeout 1h",
        "coppice probe --provider a/b",
        "coppice probe --provider a --name A_B",
        "coppice probe --kubeconfig-secret target/",
        "coppice probe --kubeconfig-secret /config",
    ] {
        assert_eq!(run(line, "").code, 2, "{line}");
    }
}
