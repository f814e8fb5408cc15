//! What people write wrong in a ManagedCluster.

use coppice_clusters_api::managed_cluster::MAX_SPEC_BYTES;
use serde_json::json;

use super::*;

fn problems_of(spec: &Value) -> Vec<String> {
    let object = json!({
        "apiVersion": "coppice.dev/v1alpha1", "kind": "ManagedCluster", "metadata": {"name": "shop", "namespace": "team"}, "spec": spec
    });
    check(&object).iter().map(ToString::to_string).collect()
}

fn problems(spec: &str) -> Vec<String> {
    problems_of(&serde_yaml::from_str(&format!("{{{spec}}}")).unwrap())
}

#[test]
fn managed_clusters_are_checked() {
    let by_class = "provider: {clusterAPI: {class: c}}, version: 1.33.4";
    let on_aws = "provider: {gardener: {clusterProvider: g, cloudProfile: aws, credentialsBinding: b, infrastructure: aws}}, version: 1.33.4";
    let whole =
        "region: r, networks: {nodes: 10.250.0.0/16}, workers: [{name: a, machine: m, min: 1, max: 1}]";
    for good in [by_class.to_owned(), format!("{on_aws}, {whole}")] {
        assert_eq!(problems(&good), Vec::<String>::new(), "{good}");
    }
    for (spec, says) in [
        ("provider: {}, version: 1.33.4".to_owned(), "write exactly one of: clusterAPI"),
        ("provider: {clusterAPI: {class: c}}, version: v1.33.4".to_owned(), "such as 1.33.4"),
        (on_aws.to_owned(), "write region, networks.nodes, and workers with a machine each"),
        (
            format!("{on_aws}, {}", whole.replace("min: 1, max: 1", "min: 0, max: 0")),
            "one of them with a max of at least 1",
        ),
        (
            format!("{on_aws}, region: r, networks: {{nodes: 10.250.0.0/16}}, workers: []"),
            "one of them with a max of at least 1",
        ),
        (format!("{on_aws}, {whole}, administrators: [ann]"), "write a ClusterAccess for each of them"),
        (
            format!("{by_class}, workers: [{{name: a, min: 2, max: 1}}]"),
            "write a min that is not larger than max",
        ),
        (
            format!("{by_class}, workers: [{{name: a, min: 0, max: 1, zones: [x, y]}}]"),
            "at least one worker for each of the zones",
        ),
        (format!("{by_class}, workers: [{{name: A, min: 1, max: 1}}]"), "at most 15 lower-case letters"),
        (
            format!("{by_class}, workers: [{{name: a, min: 1, max: 1, volume: {{size: 50G}}}}]"),
            "such as 50Gi",
        ),
        (
            format!(
                "{by_class}, workers: [{{name: a, min: 1, max: 1, taints: [{{key: 'a b', effect: NoSchedule}}]}}]"
            ),
            "write the key of a taint",
        ),
        (
            format!(
                "{by_class}, workers: [{{name: a, min: 1, max: 1, taints: [{{key: x.io/a, value: 'b:c', effect: NoSchedule}}]}}]"
            ),
            "write the value of a taint",
        ),
        (format!("{by_class}, networks: {{pods: 10.0.0.0}}"), "such as 10.250.0.0/16"),
        (format!("{by_class}, networks: {{pods: 10.0.0.0/33}}"), "a length up to 32"),
        (format!("{by_class}, networks: {{services: 10.256.0.0/16}}"), "four numbers up to 255"),
        (format!("{by_class}, networks: {{nodes: 'fd00::/48'}}"), "write an IPv4 prefix"),
        (format!("{by_class}, deletion: {{forceAfter: 1m}}"), "write 1h to 30d"),
        (format!("{by_class}, oidc: {{issuerURL: 'http://x', clientID: c}}"), "begins with https://"),
    ] {
        let found = problems(&spec);
        assert!(found.iter().any(|problem| problem.contains(says)), "{spec}: {found:#?}");
    }
}

/// The longest that is accepted, of characters that JSON has as they are.
fn longest() -> Value {
    let text = |length: usize| "x".repeat(length);
    let word = text(128);
    let key = |at: usize| format!("{}/{at:02}{}", text(253), text(61));
    let pool = |at: usize| {
        let annotations: Vec<(String, Value)> = (0..8).map(|at| (key(at), json!(text(256)))).collect();
        let zones: Vec<String> = (0..8).map(|at| format!("{at}{}", text(62))).collect();
        json!({
            "name": format!("{}{at:02}", text(13)), "machine": word, "image": {"name": word, "version": word},
            "volume": {"type": word, "size": "1000000Gi"}, "min": 1000, "max": 1000, "zones": zones,
            "annotations": annotations.into_iter().collect::<serde_json::Map<_, _>>()
        })
    };
    let variables =
        ["region", "nodes", "oidc", "auditPolicy", "administrators", "machine", "image", "volume", "taints"];
    let variables: serde_json::Map<_, _> =
        variables.map(|name| (name.to_owned(), json!(word))).into_iter().collect();
    let administrators: Vec<String> = (0..64).map(|at| format!("{at:02}{}", text(126))).collect();
    json!({
        "provider": {"clusterAPI": {
            "class": text(253), "classNamespace": text(63), "workerClass": text(253), "variables": variables
        }},
        "version": "1.33.4", "region": word, "highAvailability": "Zone", "auditPolicy": text(253),
        "networks": {"nodes": "10.250.0.0/16", "pods": "100.128.0.0/11", "services": "100.104.0.0/13"},
        "oidc": {
            "issuerURL": format!("https://{}", text(504)), "clientID": text(256), "usernameClaim": text(256),
            "usernamePrefix": text(256), "groupsClaim": text(256), "groupsPrefix": text(256)
        },
        "administrators": administrators, "workers": (0..16).map(pool).collect::<Vec<_>>()
    })
}

#[test]
fn the_longest_managed_cluster_that_is_accepted_is_read() {
    let mut spec = longest();
    assert_eq!(problems_of(&spec), Vec::<String>::new());
    let bytes = spec.to_string().len();
    assert!(bytes <= MAX_SPEC_BYTES && bytes > MAX_SPEC_BYTES / 4 * 3, "{bytes}");
    spec["workers"][0]["labels"] = json!({"one": "more"});
    let found = problems_of(&spec);
    assert!(
        found.len() == 1 && found[0].contains("write at most 128 labels, annotations and taints"),
        "{found:#?}"
    );
}
