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
    let whole = "region: r, networks: {nodes: 10.250.0.0/16}, workers: [{name: a, machine: m, min: 1, max: 1, zones: [a]}]";
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
        (format!("{by_class}, deletion: Graceful"), "spec.deletion: must be an object: leave deletion out"),
        (format!("{by_class}, oidc: {{issuerURL: 'http://x', clientID: c}}"), "begins with https://"),
    ] {
        let found = problems(&spec);
        assert!(found.iter().any(|problem| problem.contains(says)), "{spec}: {found:#?}");
    }
}

const OF_CLASS: &str = "provider: {clusterAPI: {class: c}}, version: 1.33.4";

/// Checks each text in the place of `@`: what is good has no problem, what is bad one that begins at the field and says what to write instead.
fn check_each(place: &str, field: &str, good: &[&str], bad: &[&str], says: &str) {
    let problems_with = |value: &str| problems(&format!("{OF_CLASS}, {}", place.replace('@', value)));
    for value in good {
        assert_eq!(problems_with(value), Vec::<String>::new(), "{field}: {value}");
    }
    for value in bad {
        let found = problems_with(value);
        assert!(
            found.iter().any(|found| found.starts_with(field) && found.contains(says)),
            "{field}: {value}: {found:#?}"
        );
    }
}

#[test]
fn what_is_wrong_with_oidc_is_answered_with_what_to_write() {
    let other =
        |field: &str| format!("oidc: {{issuerURL: 'https://id.example.com', clientID: c, {field}: @}}");
    let bad = [
        "'http://id.example.com'",
        "'https://ann:pw@id.example.com'",
        "'https://id.example.com?x=1'",
        "'https://id.example.com/#x'",
        "'https://'",
        "'https://id example.com'",
        "'https://id.example.com/\u{fc}'",
    ];
    check_each(
        "oidc: {issuerURL: @, clientID: c}",
        "spec.oidc.issuerURL",
        &["'https://id.example.com'", "'https://id.example.com:8443/realms/a'"],
        &bad,
        "such as https://id.example.com",
    );
    check_each(
        "oidc: {issuerURL: 'https://id.example.com', clientID: @}",
        "spec.oidc.clientID",
        &["c", "'my client'", "6f1b-42/x"],
        &["' c'", "'c '", "\"a\\tb\"", "'\u{fc}'"],
        "write the client id that the issuer has",
    );
    for claim in ["usernameClaim", "groupsClaim"] {
        let field = format!("spec.oidc.{claim}");
        let good = ["email", "'https://example.com/groups'", "'cognito:groups'"];
        check_each(&other(claim), &field, &good, &["'my groups'", "'\u{fc}'"], "write the name of a claim");
    }
    for prefix in ["usernamePrefix", "groupsPrefix"] {
        let field = format!("spec.oidc.{prefix}");
        let place = other(prefix);
        check_each(&place, &field, &["''", "'oidc:'"], &["'a b'"], "write a prefix of ASCII characters");
        check_each(&place, &field, &[], &["'system:'", "'system:oidc:'"], "does not begin with system:");
    }
}

#[test]
fn what_is_wrong_with_pools_is_answered_with_what_to_write() {
    let pool = |field: &str| format!("workers: [{{name: a, min: 1, max: 1, {field}}}]");
    let long = format!("{}: a", "x".repeat(64));
    let keys = ["tier: a", "example.com/tier: a", "example.com/T_1: ''", "example.com/a..b: c"];
    let bad_keys = [
        "'a b': c",
        "'-a': c",
        "'Example.com/a': c",
        "'a/b/c': d",
        "'example.com/': c",
        "'a..b/c': d",
        "'a-.b/c': d",
        long.as_str(),
    ];
    for (map, says) in
        [("labels", "write the key of a label"), ("annotations", "write the key of an annotation")]
    {
        let field = format!("spec.workers[0].{map}");
        check_each(&pool(&format!("{map}: {{@}}")), &field, &keys, &bad_keys, says);
    }
    check_each(
        &pool("labels: {tier: @}"),
        "spec.workers[0].labels",
        &["front", "''", "a.b_c-1"],
        &["'a b'", "'-a'", "'a:b'"],
        "write the value of a label",
    );
    check_each(
        &pool("taints: [@]"),
        "spec.workers[0].taints",
        &["{key: a, effect: NoSchedule}, {key: a, effect: NoExecute}, {key: b, effect: NoSchedule}"],
        &["{key: a, effect: NoSchedule}, {key: a, value: x, effect: NoSchedule}"],
        "write a taint of a key and an effect once",
    );
    let name = "write the name that the provider has for it";
    for field in
        ["machine: @", "image: {name: @}", "image: {name: a, version: @}", "volume: {size: 1Gi, type: @}"]
    {
        check_each(&pool(field), "spec.workers[0].", &["a", "m6i.large"], &["'a b'", "'-a'"], name);
    }
    check_each(&pool("zones: [@]"), "spec.workers[0].zones[0]", &["a", "'1'"], &["'a b'"], name);
}

#[test]
fn what_is_wrong_with_names_and_networks_is_answered_with_what_to_write() {
    let good = ["ann", "'oidc:ann@example.com'", "'CN=Ann Example'"];
    let says = "write the name of a user as the API server of the cluster has it";
    check_each(
        "administrators: [@]",
        "spec.administrators[0]",
        &good,
        &["' ann'", "'ann '", "\"a\\nb\""],
        says,
    );
    let says = "write the name of an object";
    check_each(
        "auditPolicy: @",
        "spec.auditPolicy",
        &["a", "a.b-c"],
        &["A", "'a b'", "a_b", "a..b", "a.-b", "a-.b"],
        says,
    );
    for network in ["nodes", "pods", "services"] {
        let (place, field) = (format!("networks: {{{network}: @}}"), format!("spec.networks.{network}"));
        let bad = ["10.250.0.1/16", "10.250.0.0", "010.0.0.0/8"];
        check_each(&place, &field, &["10.250.0.0/16"], &bad, "that begins at its first address");
    }
    check_each(
        "region: @",
        "spec.region",
        &["eu-central-1"],
        &["'a b'"],
        "write the name that the provider has",
    );
}

#[test]
fn what_an_infrastructure_does_not_take_is_answered_with_what_to_write() {
    let on = |infrastructure: &str, nodes: &str, zones: &str| {
        problems(&format!(
            "provider: {{gardener: {{clusterProvider: g, cloudProfile: c, credentialsBinding: b, infrastructure: {infrastructure}}}}}, version: 1.33.4, \
             region: r, networks: {{nodes: {nodes}}}, workers: [{{name: a, machine: m, min: 1, max: 1, zones: [{zones}]}}]"
        ))
    };
    let sized = "write a networks.nodes of 16 to 24 bits";
    for (infrastructure, nodes, zones, says) in [
        ("aws", "10.0.0.0/15", "a", sized),
        ("azure", "10.250.0.0/25", "'1'", sized),
        ("azure", "10.250.0.0/16", "a", "write the numbers of zones of Azure"),
        ("gcp", "10.250.0.0/16", "", "write at least one zone"),
        ("aws", "10.250.0.0/16", "", "write at least one zone"),
    ] {
        let found = on(infrastructure, nodes, zones);
        assert!(found.len() == 1 && found[0].contains(says), "{infrastructure} {nodes} {zones}: {found:#?}");
    }
    for (infrastructure, nodes, zones) in
        [("aws", "10.250.0.0/16", "a"), ("azure", "10.250.0.0/24", "'1'"), ("gcp", "10.0.0.0/8", "a")]
    {
        assert_eq!(on(infrastructure, nodes, zones), Vec::<String>::new());
    }
    let found = problems(&format!("{OF_CLASS}, deletion: {{forceAfter: 1h}}"));
    assert!(found.len() == 1 && found[0].contains("leave out deletion.forceAfter"), "{found:#?}");
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
