//! What is lost with a namespace, from the objects that say so.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::collections::BTreeMap;

use coppice_lifecycle::losses::{AtStake, Losses, losses, volume_of};
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

fn object<K: DeserializeOwned>(json: Value) -> K {
    serde_json::from_value(json).unwrap()
}

/// A namespace with nothing in it.
fn nothing() -> AtStake<String> {
    let namespace = json!({"metadata": {"name": "e2e"}, "spec": {"finalizers": ["kubernetes"]}});
    AtStake {
        namespace: Ok(object(namespace)),
        claims: Ok(Vec::new()),
        volumes: BTreeMap::new(),
        services: Ok(Vec::new()),
    }
}

fn claim<K: DeserializeOwned>(name: &str, volume: &Value) -> K {
    object(json!({
        "metadata": {"name": name, "namespace": "e2e", "uid": format!("u-{name}"), "finalizers": ["kubernetes.io/pvc-protection"]},
        "spec": {"volumeName": volume},
        "status": {"phase": "Bound", "capacity": {"storage": "8Gi"}},
    }))
}

/// A volume that is bound to the claim of this name.
fn volume<K: DeserializeOwned>(claim: &str, policy: &str) -> K {
    let of = json!({"namespace": "e2e", "name": claim, "uid": format!("u-{claim}")});
    let spec =
        json!({"persistentVolumeReclaimPolicy": policy, "capacity": {"storage": "10Gi"}, "claimRef": of});
    object(json!({ "spec": spec }))
}

fn as_json(losses: &Losses) -> Value {
    serde_json::to_value(losses).unwrap()
}

#[test]
fn of_a_namespace_with_nothing_of_the_kind_there_is_nothing_to_say() {
    assert!(losses(&nothing()).is_empty());
}

#[test]
fn volumes_are_named_with_what_becomes_of_them() {
    let volumes = [
        ("pv-a", Ok(volume("a", "Retain"))),
        ("pv-b", Ok(volume("b", "Delete"))),
        ("pv-c", Err("forbidden".to_owned())),
        ("pv-d", Err("forbidden".to_owned())),
    ];
    let claims = vec![
        claim("a", &json!("pv-a")),
        claim("b", &json!("pv-b")),
        claim("c", &json!("pv-c")),
        claim("d", &json!("pv-d")),
        claim("pending", &Value::Null),
        claim("empty", &json!("")),
        claim("volume-is-gone", &json!("pv-e")),
    ];
    let volumes = volumes.map(|(name, volume)| (name.to_owned(), volume)).into();
    let found = losses(&AtStake { claims: Ok(claims), volumes, ..nothing() });
    assert_eq!(
        as_json(&found),
        json!({
            "volumes": [
                {"claim": "b", "volume": "pv-b", "capacity": "10Gi", "reclaimPolicy": "Delete"},
                {"claim": "c", "volume": "pv-c", "capacity": "8Gi"},
                {"claim": "d", "volume": "pv-d", "capacity": "8Gi"},
                {"claim": "a", "volume": "pv-a", "capacity": "10Gi", "reclaimPolicy": "Retain"},
            ],
            "unknown": ["PersistentVolume pv-c: forbidden"],
        })
    );
}

#[test]
fn of_a_volume_that_is_bound_to_another_claim_nothing_is_said() {
    let mut other: PersistentVolume = volume("db", "Delete");
    let mut again: PersistentVolume = volume("db", "Delete");
    other.spec.as_mut().unwrap().claim_ref.as_mut().unwrap().namespace = Some("prod".to_owned());
    again.spec.as_mut().unwrap().claim_ref.as_mut().unwrap().uid = Some("u-earlier".to_owned());
    for volume in [other, again] {
        let claims = Ok(vec![claim("db", &json!("pv"))]);
        let volumes = [("pv".to_owned(), Ok(volume))].into();
        assert!(losses(&AtStake { claims, volumes, ..nothing() }).is_empty());
    }
    // What a user asks for is not even read.
    let mut pending: PersistentVolumeClaim = claim("db", &json!("prod-db"));
    assert_eq!(volume_of(&pending), Some("prod-db"));
    for phase in [None, Some("Pending"), Some("Lost")] {
        pending.status.as_mut().unwrap().phase = phase.map(str::to_owned);
        assert_eq!(volume_of(&pending), None, "{phase:?}");
    }
}

#[test]
fn load_balancers_are_named_with_their_addresses_and_other_services_are_not() {
    let ingress = ["192.0.2.1", "192.0.2.2", "192.0.2.3", "192.0.2.4", "192.0.2.5"];
    let ingress: Vec<_> = ingress.iter().map(|ip| json!({"ip": ip})).collect();
    let services = vec![
        object(
            json!({"metadata": {"name": "web"}, "spec": {"type": "LoadBalancer"}, "status": {"loadBalancer": {"ingress": ingress}}}),
        ),
        object(
            json!({"metadata": {"name": "api"}, "spec": {"type": "LoadBalancer"}, "status": {"loadBalancer": {"ingress": [{"hostname": "lb.example.com"}]}}}),
        ),
        object(json!({"metadata": {"name": "new"}, "spec": {"type": "LoadBalancer"}})),
        object(json!({"metadata": {"name": "inner"}, "spec": {"type": "ClusterIP"}})),
        object(json!({"metadata": {"name": "bare"}})),
    ];
    let found = losses(&AtStake { services: Ok(services), ..nothing() });
    assert_eq!(
        as_json(&found)["loadBalancers"],
        json!([
            {"service": "api", "addresses": ["lb.example.com"]},
            {"service": "new"},
            {"service": "web", "addresses": ["192.0.2.1", "192.0.2.2", "192.0.2.3", "192.0.2.4"]},
        ])
    );
}

#[test]
fn finalizers_of_others_are_named_and_those_of_kubernetes_are_not() {
    let namespace = json!({
        "metadata": {"name": "e2e", "finalizers": ["example.com/tenant"]},
        "spec": {"finalizers": ["kubernetes", "example.com/spec"]},
    });
    let of_claim = json!({"metadata": {"name": "data", "finalizers": ["kubernetes.io/pvc-protection", "example.com/backup"]}});
    let of_kubernetes = ["service.kubernetes.io/load-balancer-cleanup", "foregroundDeletion", "orphan"];
    let service = json!({"metadata": {"name": "web", "finalizers": of_kubernetes}});
    let of_cloud = json!({"metadata": {"name": "api", "finalizers": ["service.k8s.aws/resources"]}});
    let found = losses(&AtStake {
        namespace: Ok(object(namespace)),
        claims: Ok(vec![object(of_claim)]),
        services: Ok(vec![object(service), object(of_cloud)]),
        ..nothing()
    });
    assert_eq!(
        as_json(&found),
        json!({"finalizers": [
            {"finalizer": "example.com/backup", "kind": "PersistentVolumeClaim", "name": "data"},
            {"finalizer": "example.com/spec", "kind": "Namespace", "name": "e2e"},
            {"finalizer": "example.com/tenant", "kind": "Namespace", "name": "e2e"},
            {"finalizer": "service.k8s.aws/resources", "kind": "Service", "name": "api"},
        ]})
    );
}

#[test]
fn what_cannot_be_read_is_not_known_instead_of_nothing() {
    let found = losses(&AtStake {
        namespace: Err("forbidden".to_owned()),
        claims: Err("forbidden".to_owned()),
        services: Err("x".repeat(5000)),
        ..nothing()
    });
    assert_eq!(found.unknown[0], "its PersistentVolumeClaims: forbidden");
    assert_eq!(found.unknown[2], "the namespace: forbidden");
    assert!(found.unknown[1].starts_with("its Services: xxx"), "{found:?}");
    assert!(found.unknown[1].len() <= 1024, "the API server would refuse it");
}

#[test]
fn of_very_many_the_first_are_listed_and_the_others_counted() {
    let names: Vec<String> = (0..20).map(|n| format!("pv-{n:02}")).collect();
    let policy = |name: &str| if name < "pv-04" { "Retain" } else { "Delete" };
    let claims = names.iter().map(|name| claim(name, &json!(name))).collect();
    let volumes = names.iter().map(|name| (name.clone(), Ok(volume(name, policy(name))))).collect();
    let found = losses(&AtStake { claims: Ok(claims), volumes, ..nothing() });
    assert_eq!((found.volumes.len(), found.more), (16, Some(4)));
    assert!(found.volumes.iter().all(|volume| !volume.stays()), "what is lost comes first");
}
