//! What of a cluster a ManagedCluster would change, and what others have changed of it.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use crate::support::server::{Script, against, status_of};
use coppice_clusters::managed::shoot::authentication;
use coppice_clusters_api::ManagedClusterSpec;
use serde_json::{Value, json};

const MANAGED: &str = "GET /apis/coppice.dev/v1alpha1/namespaces/team/managedclusters/shop";
const CLUSTER: &str = "GET /apis/cluster.x-k8s.io/v1beta2/namespaces/team/clusters/shop";

fn managed() -> Value {
    json!({
        "apiVersion": "coppice.dev/v1alpha1", "kind": "ManagedCluster",
        "metadata": {"name": "shop", "namespace": "team", "uid": "u", "generation": 2},
        "spec": {
            "provider": {"clusterAPI": {"class": "small"}}, "version": "1.34.0",
            "workers": [{"name": "a", "min": 2, "max": 2}]
        }
    })
}

/// As it was made for version 1.33.4 and a worker; since then somebody has changed how many workers there are, and has paused it.
fn cluster() -> Value {
    let topology = |replicas: u32| {
        json!({
            "classRef": {"name": "small"}, "version": "v1.33.4",
            "workers": {"machineDeployments": [{"name": "a", "class": "default-worker", "replicas": replicas}]}
        })
    };
    let labels = json!({"coppice.dev/managed-cluster": "u"});
    let written = json!({"metadata": {"labels": labels}, "spec": {"topology": topology(1)}});
    json!({
        "apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Cluster",
        "metadata": {
            "name": "shop", "namespace": "team", "uid": "c", "labels": labels,
            "annotations": {"coppice.dev/applied": written.to_string()}
        },
        "spec": {"paused": true, "topology": topology(5)}
    })
}

/// There is nothing of that path.
fn none(path: &'static str) -> (&'static str, u16, Value) {
    (path, 404, status_of("NotFound"))
}

fn script() -> Script {
    vec![(MANAGED, 200, managed()), (CLUSTER, 200, cluster())]
}

#[test]
fn a_plan_has_the_fields_that_would_be_changed_alone() {
    let (ran, requests) = against("coppice cluster plan shop -n team", script());
    let expected = "FIELD                                                LIVE      DESIRED\n\
                    spec.topology.version                                v1.33.4   v1.34.0\n\
                    spec.topology.workers.machineDeployments[a].replicas   5         2\n";
    let columns = |text: &str| -> Vec<Vec<String>> {
        text.lines().map(|line| line.split_whitespace().map(str::to_owned).collect()).collect()
    };
    assert_eq!((ran.code, columns(&ran.out)), (0, columns(expected)), "{ran:?}");
    assert!(requests.iter().all(|(method, ..)| method == "GET"), "{requests:?}");
}

#[test]
fn a_plan_of_what_is_not_made_yet_has_everything_and_of_anothers_what_a_hand_over_changes() {
    let (ran, _) =
        against("coppice cluster plan shop -n team -o json", vec![(MANAGED, 200, managed()), none(CLUSTER)]);
    let found: Vec<Value> = serde_json::from_str(&ran.out).unwrap();
    let class = json!({"field": "spec.topology.classRef.name", "from": null, "to": "small"});
    assert!(found.contains(&class) && !ran.err.contains("is not made again"), "{ran:?}");
    // What was made and is gone is not made again, since it would be empty.
    let mut made = managed();
    made["status"] = json!({"cluster": {"kind": "Cluster", "namespace": "team", "name": "shop", "uid": "c"}});
    let (ran, _) = against("coppice cluster plan shop -n team", vec![(MANAGED, 200, made), none(CLUSTER)]);
    assert!(ran.code == 0 && ran.err.contains("the Cluster shop that was made is gone"), "{ran:?}");
    let mut theirs = cluster();
    theirs["metadata"]["labels"] = json!({});
    theirs["metadata"]["annotations"] = json!({});
    let script = || vec![(MANAGED, 200, managed()), (CLUSTER, 200, theirs.clone())];
    let (ran, _) = against("coppice cluster plan shop -n team -o name", script());
    assert!(ran.code == 0 && ran.err.contains("was not made for this ManagedCluster"), "{ran:?}");
    assert!(ran.out.contains("metadata.labels.coppice.dev/managed-cluster\n"), "{ran:?}");
    assert!(ran.out.contains("spec.topology.version\n") && !ran.out.contains("spec.paused"), "{ran:?}");
    let (ran, _) = against("coppice cluster drift shop -n team", script());
    assert!(ran.code == 1 && ran.err.contains("nothing was made"), "{ran:?}");
}

#[test]
fn a_plan_of_a_file_is_made_before_it_is_applied() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("shop.yaml");
    let plan = |spec: &str, script: Script| {
        let text = format!(
            "{{apiVersion: coppice.dev/v1alpha1, kind: ManagedCluster, metadata: {{name: shop, namespace: team}}, spec: {{{spec}}}}}"
        );
        std::fs::write(&path, text).unwrap();
        against(&format!("coppice cluster plan shop -n team -o name -f {}", path.display()), script).0
    };
    let spec =
        "provider: {clusterAPI: {class: small}}, version: 1.33.4, workers: [{name: a, min: 5, max: 5}]";
    let more = "provider: {clusterAPI: {class: small}}, version: 1.33.4, workers: [{name: a, min: 5, max: 5}, {name: b, min: 1, max: 1}]";
    assert_eq!(plan(spec, script()).out, "", "it is so");
    let added = plan(more, script()).out;
    let is_of_b = |line: &str| line.starts_with("spec.topology.workers.machineDeployments[b].");
    assert!(!added.is_empty() && added.lines().all(is_of_b), "{added}");
    let absent = plan(spec, vec![none(MANAGED), none(CLUSTER)]);
    assert!(absent.out.contains("spec.topology.version"), "{absent:?}");
    let without_kind = plan(spec, vec![(MANAGED, 200, managed())]);
    assert!(without_kind.code == 1 && without_kind.err.contains("install Cluster API"), "{without_kind:?}");
    let bad = plan("provider: {clusterAPI: {class: small}}, version: v1.33.4", script());
    assert!(bad.code == 1 && bad.err.contains("such as 1.33.4"), "{bad:?}");
    let elsewhere = format!("coppice cluster plan shop -n other -f {}", path.display());
    let (ran, _) = against(&elsewhere, Vec::new());
    assert!(ran.code == 1 && ran.err.contains("has no ManagedCluster other/shop"), "{ran:?}");
}

#[test]
fn drift_is_what_others_changed_of_what_was_written() {
    let (ran, _) = against("coppice cluster drift shop -n team -o json", script());
    let expected = json!([{
        "field": "spec.topology.workers.machineDeployments[a].replicas", "from": 1, "to": 5
    }]);
    assert_eq!((ran.code, serde_json::from_str::<Value>(&ran.out).unwrap()), (3, expected));
    let (ran, _) =
        against("coppice cluster drift shop -n team", vec![(MANAGED, 200, managed()), none(CLUSTER)]);
    assert!(ran.code == 1 && ran.err.contains("nothing was made"), "{ran:?}");
    let (ran, _) = against("coppice cluster drift shop -n team", vec![none(MANAGED)]);
    assert!(ran.code == 1 && ran.err.contains("there is no ManagedCluster shop"), "{ran:?}");
}

#[test]
fn of_a_shoot_its_garden_is_asked() {
    let mut managed = managed();
    managed["spec"] = json!({
        "provider": {"gardener": {"clusterProvider": "dev", "cloudProfile": "gcp", "credentialsBinding": "shop", "infrastructure": "gcp"}},
        "version": "1.34.0", "region": "here", "networks": {"nodes": "10.250.0.0/16"},
        "workers": [{"name": "a", "machine": "small", "min": 1, "max": 2, "zones": ["b"]}]
    });
    managed["status"] = json!({"cluster": {"kind": "Shoot", "namespace": "garden-dev", "name": "shop", "uid": "s", "project": "p"}});
    let workers = |maximum: u32| json!([{"name": "a", "machine": {"type": "small"}, "minimum": 1, "maximum": maximum, "zones": ["b"]}]);
    let written = json!({"spec": {"provider": {"workers": workers(2)}}});
    let shoot = json!({
        "apiVersion": "core.gardener.cloud/v1beta1", "kind": "Shoot",
        "metadata": {
            "name": "shop", "namespace": "garden-dev", "uid": "s", "labels": {"coppice.dev/managed-cluster": "u"},
            "annotations": {"coppice.dev/applied": written.to_string()}
        },
        "spec": {"provider": {"workers": workers(5)}, "kubernetes": {"version": "1.33.4"}}
    });
    let path = "GET /apis/core.gardener.cloud/v1beta1/namespaces/garden-dev/shoots/shop";
    let asked = |question: &str, script: Script| {
        against(&format!("coppice cluster {question} shop -n team -o name"), script).0
    };
    let script = || vec![(MANAGED, 200, managed.clone()), (path, 200, shoot.clone())];
    let drift = asked("drift --garden-kubeconfig garden.yaml", script());
    assert_eq!((drift.code, drift.out.as_str()), (3, "spec.provider.workers[a].maximum\n"), "{drift:?}");
    let plan = asked("plan --garden-kubeconfig garden.yaml", script());
    assert!(plan.out.contains("spec.kubernetes.version\n") && plan.code == 0, "{plan:?}");
    let without = asked("drift", vec![(MANAGED, 200, managed.clone())]);
    assert!(without.code == 1 && without.err.contains("with --garden-kubeconfig"), "{without:?}");
}

#[test]
fn the_configuration_beside_a_shoot_is_compared_as_well() {
    let mut managed = managed();
    managed["spec"] = json!({
        "provider": {"gardener": {"clusterProvider": "dev", "cloudProfile": "gcp", "credentialsBinding": "shop", "infrastructure": "gcp"}},
        "version": "1.34.0", "oidc": {"issuerURL": "https://id.example.com", "clientID": "shop"}
    });
    managed["status"] = json!({"cluster": {"kind": "Shoot", "namespace": "garden-dev", "name": "shop", "uid": "s", "project": "p"}});
    let digest = json!({"coppice.dev/authentication-hash": "x"});
    let mut annotations = digest.clone();
    annotations["coppice.dev/applied"] = json!(json!({"metadata": {"annotations": digest}}).to_string());
    let shoot = json!({
        "apiVersion": "core.gardener.cloud/v1beta1", "kind": "Shoot",
        "metadata": {
            "name": "shop", "namespace": "garden-dev", "uid": "s", "labels": {"coppice.dev/managed-cluster": "u"}, "annotations": annotations
        }
    });
    let spec: ManagedClusterSpec = serde_json::from_value(managed["spec"].clone()).unwrap();
    let written = authentication(&spec).unwrap().to_string();
    let configuration = "GET /api/v1/namespaces/garden-dev/configmaps/structured-auth-config-shop";
    let with = |text: &str| {
        let object = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c"}, "data": {"config.yaml": text}});
        (configuration, 200, object)
    };
    let changed = "metadata.annotations.coppice.dev/authentication-hash\n";
    for (beside, expected) in [
        (with(&written), (0, "")),
        (with("jwt: []"), (3, changed)),
        (none(configuration), (3, changed)),
        ((configuration, 403, status_of("Forbidden")), (0, "")),
    ] {
        let path = "GET /apis/core.gardener.cloud/v1beta1/namespaces/garden-dev/shoots/shop";
        let script = vec![(MANAGED, 200, managed.clone()), (path, 200, shoot.clone()), beside];
        let line = "coppice cluster drift shop -n team -o name --garden-kubeconfig garden.yaml";
        let (ran, _) = against(line, script);
        assert_eq!((ran.code, ran.out.as_str()), expected, "{ran:?}");
    }
}

#[test]
fn what_waits_for_the_calls_of_its_provider_is_noted() {
    let mut waiting = managed();
    let at = "2026-01-01T00:00:30Z";
    waiting["status"] = json!({"asksAgain": at, "conditions": [{
        "type": "Reconciling", "status": "True", "reason": "ProviderCallsSpent", "message": "It waits.", "lastTransitionTime": at
    }]});
    for question in ["plan", "drift"] {
        let line = format!("coppice cluster {question} shop -n team");
        let (ran, _) = against(&line, vec![(MANAGED, 200, waiting.clone()), (CLUSTER, 200, cluster())]);
        assert!(ran.err.contains("note: It waits.\n"), "{ran:?}");
        assert!(!against(&line, script()).0.err.contains("It waits."));
    }
}

#[test]
fn names_are_checked() {
    let (ran, requests) = against("coppice cluster plan team/shop", Vec::new());
    assert!(
        ran.code == 2 && ran.err.contains("write a ManagedCluster's name") && requests.is_empty(),
        "{ran:?}"
    );
}
