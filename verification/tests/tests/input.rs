//! Bad input: refused at apply with a sentence that says what to write instead; or accepted, impossible, and said so.

use anyhow::ensure;
use coppice_tests::{Operator, TestCluster, condition, on_own_plane, on_shared_plane};
use serde_json::{Value, json};

type Test = anyhow::Result<()>;

/// Specs that the API server refuses, and a part of the sentence with which it does.
const REFUSED: &[(&str, &str, &str)] = &[
    (
        "ttl as a number",
        "{policies: [{name: p, when: {ttl: 300}, then: {delete: {}}}]}",
        "must be of type object",
    ),
    (
        "a ttl without a unit",
        "{policies: [{name: p, when: {ttl: {after: 300}}, then: {delete: {}}}]}",
        "write a duration with a unit",
    ),
    (
        "a quoted number",
        "{policies: [{name: p, when: {ttl: {after: '300'}}, then: {delete: {}}}]}",
        "write a duration with a unit",
    ),
    (
        "zero",
        "{policies: [{name: p, when: {ttl: {after: 0s}}, then: {delete: {}}}]}",
        "zero is not accepted here",
    ),
    (
        "zero in two units",
        "{policies: [{name: p, when: {ttl: {after: 0h0m}}, then: {delete: {}}}]}",
        "zero is not accepted here",
    ),
    (
        "negative",
        "{policies: [{name: p, when: {ttl: {after: -5m}}, then: {delete: {}}}]}",
        "write a duration with a unit",
    ),
    (
        "units out of order",
        "{policies: [{name: p, when: {ttl: {after: 1m1h}}, then: {delete: {}}}]}",
        "largest unit first",
    ),
    (
        "an empty duration",
        "{policies: [{name: p, when: {ttl: {after: ''}}, then: {delete: {}}}]}",
        "write a duration with a unit",
    ),
    (
        "a duration beyond all numbers",
        "{policies: [{name: p, when: {ttl: {after: 99999999999999999999d}}, then: {delete: {}}}]}",
        "a duration is at most 36525d",
    ),
    (
        "a century and a day",
        "{policies: [{name: p, when: {ttl: {after: 36525d1s}}, then: {delete: {}}}]}",
        "a duration is at most 36525d",
    ),
    (
        "a notice of many weeks",
        "{policies: [{name: p, when: {ttl: {after: 1h}}, then: {delete: {notice: 5218w}}}]}",
        "a duration is at most 36525d",
    ),
    (
        "a label's value that no label has",
        "{policies: [{name: p, when: {podsSucceed: {selector: {matchLabels: {a: 'b c'}}}}, then: {delete: {}}}]}",
        "write a label's value",
    ),
    (
        "a value that ends with a dash",
        "{policies: [{name: p, when: {podsSucceed: {selector: {matchLabels: {a: b-}}}}, then: {delete: {}}}]}",
        "write a label's value",
    ),
    (
        "one of several values that no label has",
        "{policies: [{name: p, when: {podsSucceed: {selector: {matchExpressions: [{key: a, operator: In, values: [b, 'ü']}]}}}, then: {delete: {}}}]}",
        "write a label's value",
    ),
    (
        "a key that no label has",
        "{policies: [{name: p, when: {podsSucceed: {selector: {matchExpressions: [{key: a/b/c, operator: Exists}]}}}, then: {delete: {}}}]}",
        "write a label's key",
    ),
    (
        "a label without a key",
        "{policies: [{name: p, when: {podsSucceed: {selector: {matchLabels: {'': b}}}}, then: {delete: {}}}]}",
        "write a label's key",
    ),
    (
        "two conditions",
        "{policies: [{name: p, when: {ttl: {after: 5m}, podsSucceed: {}}, then: {delete: {}}}]}",
        "write exactly one condition",
    ),
    ("no condition", "{policies: [{name: p, when: {}, then: {delete: {}}}]}", "write exactly one condition"),
    (
        "after and until",
        "{policies: [{name: p, when: {ttl: {after: 5m, until: '2030-01-01T00:00:00Z'}}, then: {delete: {}}}]}",
        "exactly one of after",
    ),
    (
        "neither after nor until",
        "{policies: [{name: p, when: {ttl: {}}, then: {delete: {}}}]}",
        "exactly one of after",
    ),
    (
        "two actions",
        "{policies: [{name: p, when: {podsSucceed: {}}, then: {delete: {}, scaleDown: {}}}]}",
        "write exactly one action",
    ),
    ("no action", "{policies: [{name: p, when: {podsSucceed: {}}, then: {}}]}", "write exactly one action"),
    (
        "a webhook without url",
        "{policies: [{name: p, when: {podsSucceed: {}}, then: {webhook: {}}}]}",
        "url: Required",
    ),
    ("no policy", "{policies: []}", "should have at least 1 items"),
    ("no policies at all", "{suspend: true}", "policies: Required"),
    (
        "two policies of one name",
        "{policies: [{name: p, when: {podsSucceed: {}}, then: {delete: {}}}, {name: p, when: {podsSucceed: {}}, then: {delete: {}}}]}",
        "two policies have the same name",
    ),
    (
        "an ftp url",
        "{policies: [{name: p, when: {podsSucceed: {}}, then: {webhook: {url: 'ftp://a.svc/'}}}]}",
        "absolute http:// or https:// URL",
    ),
    (
        "no url at all",
        "{policies: [{name: p, when: {podsSucceed: {}}, then: {webhook: {url: 'over there'}}}]}",
        "absolute http:// or https:// URL",
    ),
    (
        "an unknown kind",
        "{policies: [{name: p, when: {podsSucceed: {}}, then: {scaleDown: {selectors: [{kind: DaemonSet}]}}}]}",
        "kind must be Deployment, StatefulSet, ReplicaSet or CronJob",
    ),
    (
        "an unknown field",
        "{policies: [{name: p, when: {podsSucceed: {delay: 3s}}, then: {delete: {}}}]}",
        "unknown field",
    ),
    (
        "until without a zone",
        "{policies: [{name: p, when: {ttl: {until: '2030-01-01T00:00:00'}}, then: {delete: {}}}]}",
        "an instant with its zone",
    ),
    (
        "a date alone",
        "{policies: [{name: p, when: {ttl: {until: '2030-01-01'}}, then: {delete: {}}}]}",
        "an instant with its zone",
    ),
    (
        "a hold without an end",
        "{hold: {reason: x}, policies: [{name: p, when: {podsSucceed: {}}, then: {delete: {}}}]}",
        "until: Required",
    ),
    (
        "extendUntil in words",
        "{extendUntil: tomorrow, policies: [{name: p, when: {podsSucceed: {}}, then: {delete: {}}}]}",
        "an instant with its zone",
    ),
    (
        "no workloads by emptiness",
        "{policies: [{name: p, when: {podsSucceed: {}}, then: {scaleDown: {selectors: []}}}]}",
        "leave it out to scale down every Deployment and StatefulSet",
    ),
    (
        "an empty selector",
        "{policies: [{name: p, when: {podsSucceed: {selector: {}}}, then: {delete: {}}}]}",
        "an empty selector is not accepted",
    ),
    (
        "empty matchLabels",
        "{policies: [{name: p, when: {podsSucceed: {selector: {matchLabels: {}}}}, then: {delete: {}}}]}",
        "matchLabels is empty",
    ),
    (
        "empty matchExpressions",
        "{policies: [{name: p, when: {podsSucceed: {selector: {matchExpressions: []}}}, then: {delete: {}}}]}",
        "matchExpressions is empty",
    ),
    (
        "In without values",
        "{policies: [{name: p, when: {podsSucceed: {selector: {matchExpressions: [{key: a, operator: In}]}}}, then: {delete: {}}}]}",
        "need at least one entry in values",
    ),
    (
        "a negative minPods",
        "{policies: [{name: p, when: {podsSucceed: {minPods: -1}}, then: {delete: {}}}]}",
        "greater than or equal to 0",
    ),
    (
        "rearm by zero",
        "{rearm: 0, policies: [{name: p, when: {podsSucceed: {}}, then: {delete: {}}}]}",
        "greater than or equal to 1",
    ),
    (
        "a null action",
        "{policies: [{name: p, when: {podsSucceed: {}}, then: {delete: null}}]}",
        "write exactly one action",
    ),
];

#[test]
fn what_cannot_be_meant_is_refused_with_advice() -> Test {
    on_shared_plane(async |test_cluster, _| {
        test_cluster.namespace("bad-input").await?;
        let mut wrong = Vec::new();
        for (what, spec, sentence) in REFUSED {
            match test_cluster.manager("bad-input", "m", spec).await {
                Ok(_) => wrong.push(format!("{what}: accepted")),
                Err(error) if error.to_string().contains(sentence) => {}
                Err(error) => wrong.push(format!("{what}: {error}")),
            }
        }
        ensure!(wrong.is_empty(), "{}", wrong.join("\n"));
        // What a user gets to see of it.
        let one = REFUSED[0];
        let manager = format!(
            "{{apiVersion: coppice.dev/v1alpha1, kind: NamespaceManager, metadata: {{name: m, namespace: bad-input}}, spec: {}}}",
            one.1
        );
        let error =
            test_cluster.kubectl_stdin(coppice_plane::ADMIN, &["apply", "-f", "-"], &manager).await.err();
        ensure!(error.as_ref().is_some_and(|e| e.to_string().contains(one.2)), "{error:?}");
        let config = |spec: &str| {
            format!(
                "{{apiVersion: coppice.dev/v1alpha1, kind: CoppiceConfig, metadata: {{name: coppice}}, spec: {spec}}}"
            )
        };
        for (spec, sentence) in [
            ("{governor: {maxShare: '20'}}", "write a share from 1% to 100%"),
            ("{governor: {maxShare: 0%}}", "write a share from 1% to 100%"),
            ("{governor: {perMinute: -1}}", "greater than or equal to 0"),
            ("{tenants: {actions: [explode]}}", "Unsupported value"),
            ("{tenants: {actions: [wake]}}", "Unsupported value"),
            ("{protected: {names: ['Prod_*']}}", "would protect nothing"),
            ("{protected: {selector: {}}}", "an empty selector is not accepted"),
            ("{tenants: {webhookHosts: ['https://ci.example.org']}}", "without a scheme or path"),
            ("{tenants: {webhookHosts: [ci.example.org/hook]}}", "without a scheme or path"),
            ("{tenants: {webhookHosts: ['*']}}", "without a scheme or path"),
            ("{tenants: {webhookHosts: ['ci.*.org']}}", "without a scheme or path"),
            ("{tenants: {webhookHosts: ['a b']}}", "without a scheme or path"),
            ("{tenants: {webhookHosts: ['hook-{namespace}.svc']}}", "without a scheme or path"),
            ("{tenants: {webhookHosts: ['ci.example.org:65536']}}", "without a scheme or path"),
            ("{tenants: {webhookHosts: [10.1.2.256]}}", "without a scheme or path"),
            ("{tenants: {webhookHosts: [10.1.2.3/8]}}", "without a scheme or path"),
            ("{tenants: {webhookHosts: ['[fd00::g]:80']}}", "without a scheme or path"),
        ] {
            // Without running the risk of changing the settings that the other tests share.
            let arguments = ["apply", "--dry-run=server", "-f", "-"];
            let error =
                test_cluster.kubectl_stdin(coppice_plane::ADMIN, &arguments, &config(spec)).await.err();
            ensure!(error.as_ref().is_some_and(|e| e.to_string().contains(sentence)), "{spec}: {error:?}");
        }
        let hosts = "[ci.example.org, 'CI.example.org.:443', '*.svc', '*.{namespace}.svc', '*.{namespace}.svc.cluster.local', localhost, \
                     10.1.2.3, '10.1.2.3:8080', 'fd00::1', '[fd00::1]', '[fd00::1]:8080', 10.1.0.0/16, 'fd00:1::/64', 4you.example]";
        let good = config(&format!("{{tenants: {{webhookHosts: {hosts}}}}}"));
        test_cluster
            .kubectl_stdin(coppice_plane::ADMIN, &["apply", "--dry-run=server", "-f", "-"], &good)
            .await?;
        let other = config("{}").replace("name: coppice", "name: other");
        let error = test_cluster.apply(&other).await.err().map(|e| e.to_string()).unwrap_or_default();
        ensure!(error.contains("there is one CoppiceConfig, named coppice"), "{error}");
        Ok(())
    })
}

/// A manager with this selector in each of so many scale-downs, besides that of its pods.
fn selecting(selector: &Value, scaled: usize) -> Value {
    let workloads = vec![json!({"kind": "Deployment", "selector": selector}); scaled];
    let then =
        if scaled == 0 { json!({"delete": {}}) } else { json!({"scaleDown": {"selectors": workloads}}) };
    let policy = json!({"name": "p", "when": {"podsSucceed": {"selector": selector}}, "then": then});
    json!({
        "apiVersion": "coppice.dev/v1alpha1", "kind": "NamespaceManager",
        "metadata": {"name": "m", "namespace": "too-large"}, "spec": {"policies": [policy]}
    })
}

#[test]
fn what_is_too_large_is_refused() -> Test {
    on_shared_plane(async |test_cluster, _| {
        test_cluster.namespace("too-large").await?;
        let labels = |count: usize| -> Value { (0..count).map(|n| (format!("k{n}"), json!("v"))).collect() };
        let expressions = |count: usize, values: usize| {
            vec![json!({"key": "k", "operator": "In", "values": vec!["v"; values]}); count]
        };
        let large = "x".repeat(1_000_000);
        let create = async |manager: &Value| {
            test_cluster
                .kubectl_stdin(coppice_plane::ADMIN, &["create", "-f", "-"], &manager.to_string())
                .await
        };
        for (what, selector, scaled, sentence) in [
            ("a value of a megabyte", json!({"matchLabels": {"a": large}}), 0, "may not be more than 63"),
            ("a key of a megabyte", json!({"matchLabels": {large.as_str(): "a"}}), 0, "write a label's key"),
            ("many labels", json!({"matchLabels": labels(33)}), 0, "must have at most 32 items"),
            (
                "many values",
                json!({"matchExpressions": expressions(8, 64)}),
                0,
                "more than 512 keys and values",
            ),
            ("many selectors", json!({"matchLabels": labels(16)}), 16, "more than 512 keys and values"),
        ] {
            let error = create(&selecting(&selector, scaled)).await.err().map(|e| e.to_string());
            let error = error.unwrap_or_else(|| "accepted".to_owned());
            ensure!(error.contains(sentence), "{what}: {}", error.chars().take(1000).collect::<String>());
        }
        let most = json!({"matchLabels": labels(32), "matchExpressions": expressions(7, 63)});
        create(&selecting(&most, 0)).await?;
        Ok(())
    })
}

/// Takes the bounds and rules from the spec of a CRD, as it was in an earlier version.
fn loosen(schema: &mut Value) {
    match schema {
        Value::Object(fields) => {
            for bound in ["maxLength", "maxItems", "maxProperties", "x-kubernetes-validations"] {
                fields.remove(bound);
            }
            fields.values_mut().for_each(loosen);
        }
        Value::Array(items) => items.iter_mut().for_each(loosen),
        _ => {}
    }
}

#[test]
fn what_an_earlier_version_accepted_beyond_the_bounds_still_gets_its_status() -> Test {
    on_own_plane(async {
        let test_cluster = TestCluster::start_without_pods().await?;
        let replace = async |crd: &Value| {
            test_cluster.kubectl_stdin(coppice_plane::ADMIN, &["replace", "-f", "-"], &crd.to_string()).await
        };
        let name = "namespacemanagers.coppice.dev";
        let mut now = test_cluster.get("crd", "", name).await?.unwrap_or_default();
        for field in ["resourceVersion", "managedFields"] {
            now["metadata"].as_object_mut().map(|metadata| metadata.remove(field));
        }
        let mut earlier = now.clone();
        loosen(&mut earlier["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]);
        replace(&earlier).await?;
        test_cluster.namespace("wide").await?;
        let wide = format!(
            "{{policies: [{{name: p, when: {{podsSucceed: {{selector: {{matchLabels: {{a: {}}}}}}}}}, then: {{delete: {{}}}}}}]}}",
            "x".repeat(100_000)
        );
        test_cluster
            .until("the earlier schema", async || test_cluster.manager("wide", "m", &wide).await.ok())
            .await?;
        replace(&now).await?;
        let refused = async || test_cluster.manager("wide", "other", &wide).await.is_err().then_some(());
        test_cluster.until("the present schema", refused).await?;
        let _operator = Operator::start(&test_cluster).await?;
        test_cluster.phase("wide", "m", "Active").await?;
        Ok(())
    })
}

#[test]
fn what_is_impossible_is_refused_reported_and_not_done() -> Test {
    on_shared_plane(async |test_cluster, _| {
        let cases = [
            ("guarded-ns", "{ttl: {after: 1s}}", "{delete: {}}", "NamespaceProtected"),
            ("guarded-scale", "{ttl: {after: 1s}}", "{scaleDown: {}}", "NamespaceProtected"),
            (
                "bad-host",
                "{ttl: {after: 1s}}",
                "{webhook: {url: 'http://evil.example.org/'}}",
                "HostNotAllowed",
            ),
            (
                "bad-address",
                "{ttl: {after: 1s}}",
                "{webhook: {url: 'http://169.254.169.254/latest'}}",
                "HostNotAllowed",
            ),
            (
                "bad-kind",
                "{ttl: {after: 1s}}",
                "{scaleDown: {selectors: [{apiVersion: argoproj.io/v1alpha1, kind: Rollout}]}}",
                "KindNotAllowed",
            ),
        ];
        for (namespace, when, then, reason) in cases {
            let uid = test_cluster.namespace(namespace).await?;
            let spec = format!("{{policies: [{{name: p, when: {when}, then: {then}}}]}}");
            test_cluster.manager(namespace, "m", &spec).await?;
            let manager = test_cluster.phase(namespace, "m", "Refused").await?;
            let next = &manager["status"]["next"];
            ensure!(
                next["reason"] == reason && next["message"].as_str().is_some_and(|m| m.len() > 30),
                "{next}"
            );
            ensure!(condition(&manager, "Accepted")["reason"] == reason, "{manager:#}");
            ensure!(condition(&manager, "Ready")["status"] == "False", "{manager:#}");
            let reported = test_cluster
                .until("the Event", async || {
                    test_cluster.events(namespace, "m", reason).await.ok().filter(|events| !events.is_empty())
                })
                .await?;
            ensure!(reported.len() == 1, "{reported:?}");
            ensure!(!test_cluster.is_deleted(namespace, &uid).await);
        }
        let deletes = test_cluster.namespace_deletes()?;
        ensure!(
            !deletes.iter().any(|e| e.name.starts_with("guarded-")),
            "a protected namespace was asked to be deleted"
        );
        Ok(())
    })
}
