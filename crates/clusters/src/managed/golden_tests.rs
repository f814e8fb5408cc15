//! What each extender makes: files with a spec, what is live, and what is expected of each.

use std::collections::BTreeMap;

use coppice_clusters_api::ManagedClusterStatus;
use serde::Deserialize;

use super::*;

#[derive(Deserialize)]
struct Case {
    spec: ManagedClusterSpec,
    #[serde(default)]
    live: Value,
    #[serde(default)]
    addresses: Vec<ZoneAddresses>,
    /// By the name of the extender; what is not named makes nothing.
    desired: BTreeMap<String, Value>,
}

fn check(text: &str) {
    let case: Case = serde_yaml::from_str(text).unwrap();
    let settings = Settings { name: "shop".to_owned(), uid: "u".to_owned(), addresses: case.addresses };
    let extenders = Shape::of(&case.spec).extenders();
    for (name, extend) in extenders {
        let expected = case.desired.get(*name).cloned().unwrap_or_else(|| json!({}));
        let made = extend(&case.spec, &case.live, &settings).unwrap();
        assert_eq!(made, expected, "{name}: {made:#}");
    }
    let is_known = |name: &String| extenders.iter().any(|(known, _)| known == name);
    assert!(case.desired.keys().all(is_known), "{:?}", case.desired.keys());
}

#[test]
fn a_topology_is_made() {
    check(include_str!("golden/topology.yaml"));
}

#[test]
fn a_small_topology_has_only_what_was_asked_for() {
    check(include_str!("golden/topology-small.yaml"));
}

#[test]
fn the_names_of_a_topology_are_as_cluster_api_takes_them() {
    check(include_str!("golden/topology-zones.yaml"));
}

#[test]
fn a_shoot_on_aws_is_made() {
    check(include_str!("golden/shoot-aws.yaml"));
}

#[test]
fn a_shoot_on_aws_that_is_there_keeps_what_gardener_and_others_gave_it() {
    check(include_str!("golden/shoot-aws-live.yaml"));
}

#[test]
fn a_shoot_on_azure_is_made() {
    check(include_str!("golden/shoot-azure.yaml"));
}

#[test]
fn a_shoot_on_google_cloud_is_made() {
    check(include_str!("golden/shoot-gcp.yaml"));
}

#[test]
fn a_shoot_on_openstack_is_made() {
    check(include_str!("golden/shoot-openstack.yaml"));
}

#[test]
fn what_no_variable_takes_is_refused_with_what_to_write() {
    let spec: ManagedClusterSpec = serde_yaml::from_str(
        "{provider: {clusterAPI: {class: small}}, version: 1.33.4, workers: [{name: a, machine: m, min: 1, max: 1}]}",
    )
    .unwrap();
    let settings = Settings { name: "shop".to_owned(), uid: "u".to_owned(), addresses: Vec::new() };
    let failure = desired(&spec, &Value::Null, &settings).unwrap_err();
    let says = "spec.workers[a].machine: write into spec.provider.clusterAPI.variables.machine";
    assert!(failure.message.starts_with(says), "{failure:?}");
    assert_eq!(failure.class, FailureClass::Permanent);
}

/// What is made by a class of a spec that has these fields besides.
fn of_class(class: &str, fields: &str) -> Result<Value, Failure> {
    let text = format!("{{provider: {{clusterAPI: {{{class}}}}}, version: 1.33.4, {fields}}}");
    let spec: ManagedClusterSpec = serde_yaml::from_str(&text).unwrap();
    let settings = Settings { name: "shop".to_owned(), uid: "u".to_owned(), addresses: Vec::new() };
    desired(&spec, &Value::Null, &settings)
}

#[test]
fn no_pool_is_lost_in_another_one_of_its_name() {
    let of = |workers: &str| of_class("class: c", &format!("workers: [{workers}]"));
    let one = "{name: a, min: 1, max: 1, zones: [b-c]}";
    assert!(of(&format!("{one}, {{name: a-b, min: 1, max: 1, zones: [d]}}")).is_ok());
    let failure = of(&format!("{one}, {{name: a-b, min: 1, max: 1, zones: [c]}}")).unwrap_err();
    assert!(failure.message.contains("make the name a-b-c"), "{failure:?}");
    let failure = of("{name: a, min: 2, max: 2, zones: [Z_1, z-1]}").unwrap_err();
    assert!(failure.message.contains("make the name a-z-1"), "{failure:?}");
}

#[test]
fn a_name_that_cluster_api_does_not_take_is_refused_with_what_to_write() {
    let of = |length: usize| {
        let zone = "z".repeat(length);
        of_class("class: c", &format!("workers: [{{name: pool, min: 1, max: 1, zones: [{zone}]}}]"))
    };
    assert!(of(58).is_ok());
    let failure = of(59).unwrap_err();
    assert!(failure.message.starts_with("spec.workers: write a shorter name for the pool"), "{failure:?}");
    assert_eq!((failure.reason, failure.class), (Reason::InvalidSpec, FailureClass::Permanent));
}

#[test]
fn a_variable_takes_one_value() {
    let class = "class: c, variables: {region: x, nodes: x, auditPolicy: y}";
    assert!(of_class(class, "region: r, auditPolicy: p").is_ok(), "one of the two is given");
    let failure = of_class(class, "region: r, networks: {nodes: 10.250.0.0/16}").unwrap_err();
    assert!(failure.message.contains("write another variable for nodes or for region"), "{failure:?}");
    assert_eq!((failure.reason, failure.class), (Reason::InvalidSpec, FailureClass::Permanent));
}

#[test]
fn what_no_object_keeps_is_refused_with_what_to_write() {
    let pool = |at: usize| {
        let annotations: BTreeMap<String, String> =
            (0..16).map(|key| (format!("example.com/{at}-{key}"), "x".repeat(256))).collect();
        let zones = ["a", "b", "c", "d", "e", "f", "g", "h"];
        json!({"name": format!("p{at}"), "min": 8, "max": 8, "zones": zones, "annotations": annotations})
    };
    let observed = |pools: usize| {
        let spec = json!({
            "provider": {"clusterAPI": {"class": "small"}}, "version": "1.33.4",
            "workers": (0..pools).map(pool).collect::<Vec<_>>()
        });
        Managed {
            namespace: "team".to_owned(),
            name: "shop".to_owned(),
            uid: "u".to_owned(),
            generation: 1,
            deleting: false,
            has_finalizer: true,
            spec: serde_json::from_value(spec).unwrap(),
            status: ManagedClusterStatus::default(),
            object_namespace: "team".to_owned(),
            project: None,
            live: LiveFact::Absent,
        }
    };
    assert!(plan::desired_of(&observed(1), &Value::Null).is_ok());
    let failure = plan::desired_of(&observed(8), &Value::Null).unwrap_err();
    assert!(failure.message.starts_with("spec.workers: write fewer or shorter labels"), "{failure:?}");
    assert_eq!((failure.reason, failure.class), (Reason::InvalidSpec, FailureClass::Permanent));
}

#[test]
fn an_infrastructure_that_needs_zones_is_refused_without_one() {
    for (infrastructure, needs) in
        [("aws", "which AWS needs"), ("gcp", "which Google Cloud needs"), ("azure", "")]
    {
        let text = format!(
            "{{provider: {{gardener: {{clusterProvider: g, cloudProfile: c, credentialsBinding: b, infrastructure: {infrastructure}}}}}, version: 1.33.4, \
             region: r, networks: {{nodes: 10.250.0.0/16}}, workers: [{{name: a, machine: m, min: 1, max: 1}}]}}"
        );
        let spec: ManagedClusterSpec = serde_yaml::from_str(&text).unwrap();
        let settings = Settings { name: "shop".to_owned(), uid: "u".to_owned(), addresses: Vec::new() };
        match desired(&spec, &Value::Null, &settings) {
            Ok(made) => assert!(needs.is_empty(), "{infrastructure}: {made:#}"),
            Err(failure) => {
                let says = format!("spec.workers[].zones: write at least one zone, {needs}");
                assert_eq!(failure, Failure::permanent(Reason::InvalidSpec, says), "{infrastructure}");
            }
        }
    }
}

#[test]
fn the_issuer_of_a_shoot_is_in_a_configuration_of_its_own() {
    let mut spec: ManagedClusterSpec = serde_yaml::from_str(
        "{provider: {gardener: {clusterProvider: g, cloudProfile: aws, credentialsBinding: b, infrastructure: aws}}, version: 1.33.4, \
         oidc: {issuerURL: 'https://id.example.org', clientID: c, groupsClaim: groups}}",
    )
    .unwrap();
    let expected = json!({
        "apiVersion": "apiserver.config.k8s.io/v1beta1", "kind": "AuthenticationConfiguration",
        "jwt": [{
            "issuer": {"url": "https://id.example.org", "audiences": ["c"]},
            "claimMappings": {"username": {"claim": "sub", "prefix": "oidc:"}, "groups": {"claim": "groups", "prefix": "oidc:"}},
        }],
    });
    assert_eq!(shoot::authentication(&spec), Some(expected));
    spec.version = "1.29.9".to_owned();
    assert_eq!(shoot::authentication(&spec), None, "it is in the Shoot");
}
