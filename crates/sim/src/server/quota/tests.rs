//! Expected values are what Kubernetes 1.36 documents and does: `pkg/quota/v1/evaluator/core`, `pkg/admission/plugin/resourcequota`.

use std::sync::Arc;

use jiff::Timestamp;
use serde_json::{Value, json};

use super::check::{Candidate, QuotaAdmissionError, QuotaUsage, check};
use super::pods::quality;
use super::usage::{Amounts, usage, used_by};

const PODS: (&str, &str) = ("", "pods");
const CLAIMS: (&str, &str) = ("", "persistentvolumeclaims");
const SERVICES: (&str, &str) = ("", "services");

fn now() -> Timestamp {
    "2026-01-01T00:01:00Z".parse().unwrap()
}

/// Amounts as they are printed.
fn printed(amounts: &Amounts) -> Value {
    amounts.iter().map(|(name, amount)| (name.clone(), json!(amount.to_string()))).collect()
}

fn used(kind: (&str, &str), object: &Value) -> Value {
    printed(&usage(kind, object, now()))
}

fn container(name: &str, requests: &Value, limits: &Value) -> Value {
    json!({"name": name, "resources": {"requests": requests, "limits": limits}})
}

fn pod(cpu: &str) -> Value {
    json!({"spec": {"containers": [container("main", &json!({"cpu": cpu}), &Value::Null)]}})
}

fn quota(name: &str, hard: &Value, used: &Value) -> Arc<Value> {
    Arc::new(json!({
        "metadata": {"name": name}, "spec": {"hard": {"pods": "0"}}, "status": {"hard": hard, "used": used},
    }))
}

fn checked(
    quotas: &[Arc<Value>],
    kind: (&str, &str),
    object: &Value,
    old: Option<&Value>,
) -> Result<Vec<QuotaUsage>, QuotaAdmissionError> {
    check(quotas, Candidate { kind, object, old }, now())
}

fn refusal(quotas: &[Arc<Value>], kind: (&str, &str), object: &Value) -> String {
    checked(quotas, kind, object, None).unwrap_err().to_string()
}

/// What the one quota is to say that limits an object.
fn reserved(quotas: &[Arc<Value>], kind: (&str, &str), object: &Value, old: Option<&Value>) -> Value {
    let usages = checked(quotas, kind, object, old).unwrap();
    assert!(usages.len() < 2, "{usages:?}");
    usages.first().map_or(Value::Null, |one| printed(&one.used))
}

#[test]
fn each_resource_is_used_by_one_kind() {
    for (kind, resources) in [
        (PODS, "pods count/pods cpu requests.memory limits.ephemeral-storage"),
        (PODS, "hugepages-2Mi requests.hugepages-2Mi requests.example.com/gpu"),
        (CLAIMS, "persistentvolumeclaims count/persistentvolumeclaims requests.storage"),
        (CLAIMS, "gold.storageclass.storage.k8s.io/requests.storage"),
        (CLAIMS, "gold.storageclass.storage.k8s.io/persistentvolumeclaims"),
        (SERVICES, "services services.nodeports services.loadbalancers count/services"),
        (("", "configmaps"), "configmaps count/configmaps"),
        (("apps", "deployments"), "count/deployments.apps"),
        (("coppice.dev", "subnamespaces"), "count/subnamespaces.coppice.dev"),
    ] {
        for resource in resources.split(' ') {
            assert_eq!(used_by(resource), Some(kind), "{resource}");
        }
    }
    for resource in ["example.com/gpu", "limits.example.com/gpu", "limits.hugepages-2Mi", "serviceaccounts"] {
        assert_eq!(used_by(resource), None, "{resource}");
    }
}

#[test]
fn a_pod_uses_what_its_containers_request_together() {
    let requests = json!({"cpu": "250m", "memory": "64Mi", "example.com/gpu": "1"});
    let limits = json!({"cpu": "1", "ephemeral-storage": "1Gi"});
    let containers = [container("a", &requests, &limits), container("b", &json!({"cpu": "500m"}), &limits)];
    let expected = json!({
        "count/pods": "1", "pods": "1",
        "cpu": "750m", "requests.cpu": "750m", "limits.cpu": "2",
        "memory": "64Mi", "requests.memory": "64Mi", "limits.ephemeral-storage": "2Gi",
        "requests.example.com/gpu": "1",
    });
    assert_eq!(used(PODS, &json!({"spec": {"containers": containers}})), expected);
    let nothing = json!({"spec": {"containers": [{"name": "main"}]}});
    assert_eq!(used(PODS, &nothing), json!({"count/pods": "1", "pods": "1"}));
}

/// <https://kubernetes.io/docs/concepts/workloads/pods/sidecar-containers/#resource-sharing-within-containers>
#[test]
fn init_containers_count_where_they_need_more_and_sidecars_always_do() {
    let cpu = |name: &str, cpu: &str| container(name, &json!({"cpu": cpu}), &Value::Null);
    let mut sidecar = cpu("sidecar", "200m");
    sidecar["restartPolicy"] = json!("Always");
    for (init, expected) in [
        (vec![cpu("init", "400m")], "500m"),
        (vec![cpu("init", "700m"), cpu("next", "600m")], "700m"),
        (vec![sidecar.clone()], "700m"),
        // What runs before the sidecar is there does not run beside it.
        (vec![cpu("init", "800m"), sidecar.clone()], "800m"),
        (vec![sidecar, cpu("init", "800m")], "1"),
    ] {
        let pod = json!({"spec": {"containers": [cpu("main", "500m")], "initContainers": init}});
        assert_eq!(used(PODS, &pod)["requests.cpu"], expected, "{pod}");
    }
}

#[test]
fn overhead_adds_to_requests_and_to_the_limits_that_are_stated() {
    let main = container("main", &json!({"cpu": "500m"}), &json!({"memory": "64Mi"}));
    let overhead = json!({"cpu": "100m", "memory": "16Mi"});
    let used = used(PODS, &json!({"spec": {"containers": [main], "overhead": overhead}}));
    let of = |name: &str| used[name].clone();
    assert_eq!([of("cpu"), of("memory"), of("limits.memory")], ["600m", "16Mi", "80Mi"]);
    assert_eq!(of("limits.cpu"), Value::Null);
}

#[test]
fn a_pod_that_has_ended_or_should_be_gone_counts_as_an_object_only() {
    let counts = |change: &dyn Fn(&mut Value)| {
        let mut pod = pod("1");
        change(&mut pod);
        used(PODS, &pod) != json!({"count/pods": "1"})
    };
    assert!(counts(&|_| {}));
    for (phase, expected) in [("Running", true), ("Pending", true), ("Succeeded", false), ("Failed", false)] {
        assert_eq!(counts(&|pod| pod["status"]["phase"] = phase.into()), expected, "{phase}");
    }
    // The end of a deletion, and its grace period besides: it is 00:01:00.
    for (deletion, expected) in [("2026-01-01T00:00:30Z", true), ("2026-01-01T00:00:29Z", false)] {
        let metadata = json!({"deletionTimestamp": deletion, "deletionGracePeriodSeconds": 30});
        assert_eq!(counts(&|pod| pod["metadata"] = metadata.clone()), expected, "{deletion}");
    }
}

#[test]
fn claims_use_storage_of_their_class_too() {
    let claim = json!({"spec": {"storageClassName": "gold", "resources": {"requests": {"storage": "10Gi"}}}});
    let expected = json!({
        "count/persistentvolumeclaims": "1", "persistentvolumeclaims": "1", "requests.storage": "10Gi",
        "gold.storageclass.storage.k8s.io/persistentvolumeclaims": "1",
        "gold.storageclass.storage.k8s.io/requests.storage": "10Gi",
    });
    assert_eq!(used(CLAIMS, &claim), expected);
    let plain = json!({"spec": {"resources": {"requests": {"storage": "1Gi"}}}});
    let expected = json!({
        "count/persistentvolumeclaims": "1", "persistentvolumeclaims": "1", "requests.storage": "1Gi",
    });
    assert_eq!(used(CLAIMS, &plain), expected);
}

#[test]
fn services_use_node_ports_by_their_type() {
    let ports = json!([{"port": 80}, {"port": 81, "nodePort": 30081}]);
    let none = json!({"type": "LoadBalancer", "allocateLoadBalancerNodePorts": false, "ports": ports});
    for (spec, balancers, node_ports) in [
        (json!({"ports": ports}), "0", "0"),
        (json!({"type": "ClusterIP", "ports": ports}), "0", "0"),
        (json!({"type": "NodePort", "ports": ports}), "0", "2"),
        (json!({"type": "LoadBalancer", "ports": ports}), "1", "2"),
        (none, "1", "1"),
    ] {
        let expected = json!({
            "count/services": "1", "services": "1",
            "services.loadbalancers": balancers, "services.nodeports": node_ports,
        });
        assert_eq!(used(SERVICES, &json!({"spec": spec})), expected, "{spec}");
    }
}

#[test]
fn what_is_in_force_limits_and_what_is_admitted_is_reserved() {
    let hard = json!({"requests.cpu": "1", "pods": "3", "count/configmaps": "1"});
    let quotas = [quota("q", &hard, &json!({"requests.cpu": "500m", "pods": "1", "count/configmaps": "1"}))];
    let expected = json!({"requests.cpu": "1", "pods": "2"});
    assert_eq!(reserved(&quotas, PODS, &pod("500m"), None), expected, "whatever spec.hard says");
    assert_eq!(
        refusal(&quotas, PODS, &pod("501m")),
        "exceeded quota: q, requested: requests.cpu=501m, used: requests.cpu=500m, limited: requests.cpu=1"
    );
    assert_eq!(
        refusal(&quotas, ("", "configmaps"), &json!({})),
        "exceeded quota: q, requested: count/configmaps=1, used: count/configmaps=1, limited: count/configmaps=1"
    );
    assert_eq!(reserved(&quotas, ("", "secrets"), &json!({}), None), Value::Null, "nothing limits it");
}

#[test]
fn of_what_is_exceeded_all_is_said_in_order() {
    let hard = json!({"requests.cpu": "1", "cpu": "1", "pods": "9"});
    let quotas = [quota("q", &hard, &json!({"requests.cpu": "2", "cpu": "2", "pods": "1"}))];
    assert_eq!(
        refusal(&quotas, PODS, &pod("1")),
        "exceeded quota: q, requested: cpu=1,requests.cpu=1, used: cpu=2,requests.cpu=2, limited: cpu=1,requests.cpu=1"
    );
    let free = json!({"spec": {"containers": [container("main", &json!({"cpu": "0"}), &Value::Null)]}});
    assert_eq!(reserved(&quotas, PODS, &free, None), json!({"pods": "2"}), "it asks for no more cpu");
}

#[test]
fn every_container_states_the_compute_resources_that_a_quota_names() {
    let quotas = |resource: &str| [quota("q", &json!({resource: "9"}), &json!({resource: "0"}))];
    let some = container("a", &json!({"cpu": "1"}), &json!({"cpu": "1"}));
    let pod = json!({"spec": {"containers": [some, {"name": "c"}, {"name": "b"}], "initContainers": [{"name": "d"}]}});
    for (resource, containers) in [
        ("cpu", "b,c,d"),
        ("requests.cpu", "b,c,d"),
        ("limits.cpu", "b,c,d"),
        ("memory", "a,b,c,d"),
        ("requests.memory", "a,b,c,d"),
        ("limits.memory", "a,b,c,d"),
    ] {
        let expected = format!("failed quota: q: must specify {resource} for: {containers}");
        assert_eq!(refusal(&quotas(resource), PODS, &pod), expected);
    }
    for resource in ["pods", "requests.ephemeral-storage", "requests.example.com/gpu"] {
        assert!(checked(&quotas(resource), PODS, &pod, None).is_ok(), "{resource}");
    }
    let both = json!({"requests.memory": "1Gi", "limits.cpu": "1"});
    assert_eq!(
        refusal(&[quota("q", &both, &both)], PODS, &json!({"spec": {"containers": [{"name": "a"}]}})),
        "failed quota: q: must specify limits.cpu for: a; requests.memory for: a"
    );
}

#[test]
fn nothing_is_admitted_before_it_is_counted() {
    let hard = json!({"requests.cpu": "1", "pods": "1", "secrets": "1"});
    let quotas = [quota("q", &hard, &json!({"pods": "0"}))];
    let expected = "status unknown for quota: q, resources: pods,requests.cpu";
    assert_eq!(refusal(&quotas, PODS, &pod("1")), expected);
    let unseen =
        [Arc::new(json!({"metadata": {"name": "q"}, "spec": {"hard": {"pods": "0"}}, "status": {}}))];
    assert!(checked(&unseen, PODS, &pod("1"), None).is_ok(), "it is not in force yet");
}

#[test]
fn one_quota_that_is_full_is_enough() {
    let small = quota("small", &json!({"pods": "1"}), &json!({"pods": "1"}));
    let large = quota("large", &json!({"pods": "9"}), &json!({"pods": "1"}));
    assert_eq!(
        refusal(&[Arc::clone(&large), small], PODS, &pod("1")),
        "exceeded quota: small, requested: pods=1, used: pods=1, limited: pods=1"
    );
    let mut scoped = quota("scoped", &json!({"pods": "1"}), &json!({"pods": "1"}));
    Arc::make_mut(&mut scoped)["spec"]["scopes"] = json!(["BestEffort"]);
    assert_eq!(
        reserved(&[large, scoped], PODS, &pod("1"), None),
        json!({"pods": "2"}),
        "scopes are not evaluated"
    );
}

#[test]
fn a_change_uses_what_it_adds() {
    let service = |kind: &str| json!({"spec": {"type": kind, "ports": [{"port": 80}]}});
    let (inside, balanced) = (service("ClusterIP"), service("LoadBalancer"));
    let hard = json!({"services": "1", "services.loadbalancers": "1"});
    let quotas = [quota("q", &hard, &json!({"services": "1", "services.loadbalancers": "0"}))];
    let expected = json!({"services.loadbalancers": "1"});
    assert_eq!(reserved(&quotas, SERVICES, &balanced, Some(&inside)), expected);
    assert_eq!(
        reserved(&quotas, SERVICES, &inside, Some(&balanced)),
        Value::Null,
        "that is for the controller"
    );
}

#[test]
fn the_quality_of_service_follows_from_requests_and_limits() {
    let (none, half) = (Value::Null, json!({"cpu": "1"}));
    let (all, less) = (json!({"cpu": "1", "memory": "1Gi"}), json!({"cpu": "500m", "memory": "1Gi"}));
    for (requests, limits, expected) in [
        (&none, &none, "BestEffort"),
        (&half, &none, "Burstable"),
        (&half, &half, "Burstable"),
        (&less, &all, "Burstable"),
        (&all, &all, "Guaranteed"),
    ] {
        let pod = json!({"spec": {"containers": [container("main", requests, limits)]}});
        assert_eq!(quality(&pod), expected, "{pod}");
    }
}
