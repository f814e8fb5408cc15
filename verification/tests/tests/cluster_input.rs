//! Cluster managers and records that cannot be meant, on a real API server: what to write instead.

use anyhow::{Context as _, ensure};
use coppice_tests::{Operator, TestCluster, condition, on_own_plane, on_shared_plane};

type Test = anyhow::Result<()>;

/// Specs of cluster managers that the API server refuses, and a part of the sentence with which it does.
const REFUSED: &[(&str, &str)] = &[
    ("{selector: {}}", "select by names, labels, annotations or anyOf"),
    ("{selector: {exclude: [a]}}", "select by names, labels, annotations or anyOf"),
    ("{selector: {names: []}}", "should have at least 1 items"),
    ("{selector: {names: ['Ci_*']}}", "anything else would select nothing"),
    ("{selector: {names: [a], labels: {}}}", "an empty selector is not accepted"),
    (
        "{selector: {labels: {matchLabels: {}}}}",
        "matchLabels is empty: leave it out, or write at least one label",
    ),
    ("{selector: {labels: {matchLabels: {team: 'a b'}}}}", "write a label's value"),
    ("{selector: {labels: {matchLabels: {'a b': c}}}}", "write a label's key"),
    ("{selector: {labels: {matchLabels: {team: 7}}}}", "must be of type string"),
    (
        "{selector: {labels: {matchExpressions: []}}}",
        "matchExpressions is empty: leave it out, or write at least one expression",
    ),
    ("{selector: {labels: {matchExpressions: [{operator: Exists}]}}}", "key: Required"),
    ("{selector: {labels: {matchExpressions: [{key: a}]}}}", "operator: Required"),
    ("{selector: {labels: {matchExpressions: [{key: 'a b', operator: Exists}]}}}", "write a label's key"),
    (
        "{selector: {labels: {matchExpressions: [{key: a, operator: Equals, values: [b]}]}}}",
        "supported values: \"In\", \"NotIn\", \"Exists\", \"DoesNotExist\"",
    ),
    (
        "{selector: {labels: {matchExpressions: [{key: a, operator: In}]}}}",
        "operators In and NotIn need at least one entry in values",
    ),
    (
        "{selector: {labels: {matchExpressions: [{key: a, operator: Exists, values: [b]}]}}}",
        "operators Exists and DoesNotExist take no values",
    ),
    (
        "{selector: {labels: {matchExpressions: [{key: a, operator: In, values: ['b c']}]}}}",
        "write a label's value",
    ),
    ("{selector: {annotations: []}}", "should have at least 1 items"),
    ("{selector: {annotations: [{value: a}]}}", "key: Required"),
    ("{selector: {annotations: [{key: 'a b'}]}}", "write an annotation's key"),
    ("{selector: {annotations: [{key: a}, {key: a, value: b}]}}", "Duplicate value"),
    ("{selector: {annotations: [{key: a, valeu: b}]}}", "unknown field"),
    ("{selector: {anyOf: []}}", "should have at least 1 items"),
    ("{selector: {names: [a], anyOf: [{}]}}", "in every entry of anyOf"),
    ("{selector: {anyOf: [{names: [a]}, {exclude: [b]}]}}", "in every entry of anyOf"),
    ("{selector: {anyOf: [{names: [a], anyOf: [{names: [a]}]}]}}", "unknown field"),
    ("{selector: {anyOf: [{labels: {}}]}}", "an empty selector is not accepted"),
    ("{selector: {names: [a]}, ttl: {after: 1h, fromAnnotation: ''}}", "should be at least 1 chars"),
    ("{selector: {names: [a]}, ttl: {after: 1h, fromAnnotation: 'a b'}}", "write an annotation's key"),
    ("{selector: {names: [a]}, ttl: {fromAnnotation: a}}", "after: Required"),
    ("{mode: Delete, selector: {names: [a]}}", "Unsupported value"),
    ("{selector: {names: [a]}, settle: 300}", "write a duration with a unit"),
    ("{selector: {names: [a]}, ttl: {after: 0s}}", "zero is not accepted here"),
    ("{selector: {names: [a]}, ttl: {}}", "after: Required"),
    (
        "{selector: {names: [a]}, policies: [{name: p, when: {phase: {in: [Stale]}}, then: {delete: {}}}]}",
        "which no namespace has without a ttl",
    ),
    (
        "{selector: {names: [a]}, ttl: {after: 1h}, policies: [{name: p, when: {phase: {in: [Stale, Failed]}}, then: \
         {delete: {}}}]}",
        "write spec.health, such as {}",
    ),
    ("{selector: {names: [a]}, health: {settlingPeriod: 0s}}", "every moment would count"),
    ("{selector: {names: [a]}, health: {sources: []}}", "should have at least 1 items"),
    ("{selector: {names: [a]}, health: {sources: [Prometheus]}}", "supported values: \"Workloads\""),
    // By default max is 20m.
    ("{selector: {names: [a]}, health: {failureBudget: {window: 10m}}}", "write a shorter max, such as 5m"),
    ("{selector: {names: [a]}, health: {failureBudget: {max: 2h}}}", "or a longer window"),
    ("{selector: {names: [a]}, health: {failureBudget: {window: 59s, max: 10s}}}", "window is from 1m to 7d"),
    ("{selector: {names: [a]}, health: {failureBudget: {window: 7d1s}}}", "window is from 1m to 7d"),
    ("{selector: {names: [a]}, health: {failureBudget: {window: 90}}}", "write a duration"),
    ("{selector: {names: [a]}, health: {failureBudget: {max: 0s}}}", "every moment would count"),
    ("{selector: {names: [a]}, health: {ignore: [{}]}}", "would ignore every failure"),
    ("{selector: {names: [a]}, health: {ignore: [{reason: Ugly}]}}", "Unsupported value"),
    (
        "{selector: {names: [a]}, ttl: {after: 1h}, policies: [{name: p, when: {}, then: {delete: {}}}]}",
        "write exactly one condition",
    ),
    (
        "{selector: {names: [a]}, ttl: {after: 1h}, policies: [{name: p, when: {phase: {in: [Stale]}}, then: {}}]}",
        "write exactly one action",
    ),
    (
        "{selector: {names: [a]}, ttl: {after: 1h}, policies: [{name: p, when: {phase: {in: []}}, then: {delete: {}}}]}",
        "should have at least 1 items",
    ),
    (
        "{selector: {names: [a]}, ttl: {after: 1h}, policies: [{name: p, when: {phase: {in: [Cancelled]}}, then: {delete: {}}}]}",
        "Unsupported value",
    ),
    (
        "{selector: {names: [a]}, ttl: {after: 1h}, policies: [\
         {name: p, when: {phase: {in: [Stale]}}, then: {delete: {}}}, {name: p, when: {phase: {in: [Stale]}}, then: {delete: {}}}]}",
        "Duplicate value",
    ),
    (
        "{selector: {names: [a]}, ttl: {after: 1h}, policies: [{name: p, when: {ttl: {after: 1h}, podsSucceed: {}}, then: {delete: {}}}]}",
        "phase, ttl or podsSucceed; for two conditions write two policies",
    ),
    ("{selector: {names: [a]}, identity: {}}", "project: Required"),
    ("{selector: {names: [a]}, identity: {project: 'a b'}}", "write an annotation's key"),
    ("{selector: {names: [a]}, identity: {project: a, owner: b}}", "unknown field"),
    (
        "{selector: {names: [a]}, health: {}, supersede: {by: [Branch]}}",
        "supersede.by names what spec.identity does not read",
    ),
    (
        "{selector: {names: [a]}, health: {}, identity: {project: a, branch: b}, supersede: {by: [Branch, Commit]}}",
        "supersede.by names what spec.identity does not read",
    ),
    (
        "{selector: {names: [a]}, identity: {project: a, branch: b}, supersede: {by: [Branch]}}",
        "or waitUntilReady: false",
    ),
    (
        "{selector: {names: [a]}, health: {}, identity: {project: a, branch: b}, supersede: {by: []}}",
        "should have at least 1 items",
    ),
    (
        "{selector: {names: [a]}, health: {}, identity: {project: a, branch: b}, supersede: {by: [Author]}}",
        "Unsupported value",
    ),
    (
        "{selector: {names: [a]}, policies: [{name: p, when: {ttl: {}}, then: {delete: {}}}]}",
        "write exactly one of after (a duration since the namespace was created, such as 2h) and until (an instant)",
    ),
    (
        "{selector: {names: [a]}, policies: [{name: p, when: {ttl: {until: tomorrow}}, then: {delete: {}}}]}",
        "until",
    ),
    (
        "{selector: {names: [a]}, ttl: {after: 1h}, policies: [{name: p, when: {podsSucceed: {selector: {}}}, then: {delete: {}}}]}",
        "an empty selector is not accepted",
    ),
    (
        "{selector: {names: [a]}, ttl: {after: 1h}, policies: [{name: p, when: {podsSucceed: {settle: 5}}, then: {delete: {}}}]}",
        "write a duration with a unit",
    ),
    (
        "{selector: {names: [a]}, ttl: {after: 1h}, policies: [{name: p, when: {podsSucceed: {minPods: -1}}, then: {delete: {}}}]}",
        "greater than or equal to 0",
    ),
    (
        "{selector: {names: [a]}, ttl: {after: 1h}, policies: [{name: p, when: {ttl: {after: 1h}}, then: {delete: {}, webhook: {url: 'https://x.example'}}}]}",
        "delete, scaleDown or webhook; for two actions write two policies",
    ),
    (
        "{selector: {names: [a]}, ttl: {after: 1h}, policies: [{name: p, when: {ttl: {after: 1h}}, then: {webhook: {}}}]}",
        "url: Required",
    ),
    (
        "{selector: {names: [a]}, ttl: {after: 1h}, policies: [{name: p, when: {ttl: {after: 1h}}, then: {webhook: {url: ftp://x.example}}}]}",
        "write an absolute http:// or https:// URL",
    ),
    (
        "{selector: {names: [a]}, ttl: {after: 1h}, policies: [{name: p, when: {ttl: {after: 1h}}, then: {webhook: {url: 'https://x.example', format: xml}}}]}",
        "Unsupported value",
    ),
    (
        "{selector: {names: [a]}, ttl: {after: 1h}, policies: [{name: p, when: {phase: {in: [Stale]}}, then: {webhook: {url: 'https://x.example', format: consol}}}]}",
        "has no words for phases",
    ),
    (
        "{selector: {names: [a]}, owner: {}}",
        "write annotations or labels by which namespaces say who owns them",
    ),
    (
        "{selector: {names: [a]}, owner: {labels: [team], fallback: {}}}",
        "write slack or email in owner.fallback",
    ),
    (
        "{selector: {names: [a]}, owner: {labels: [team], fallback: {email: nobody}}}",
        "write one mail address, such as platform@example.org",
    ),
    (
        "{selector: {names: [a]}, owner: {labels: [team], fallback: {slack: platform}}}",
        "write a channel with its '#', such as '#platform', or the id",
    ),
    ("{selector: {names: [a]}, identity: {project: a, links: {job: 'a b'}}}", "write an annotation's key"),
    (
        "{selector: {names: [a]}, notify: {channels: [mail], workingHours: {timeZone: UTC, from: '18:00', to: '08:00'}}}",
        "workingHours.from must be before workingHours.to",
    ),
    (
        "{selector: {names: [a]}, notify: {channels: [mail], workingHours: {from: '08:00'}}}",
        "timeZone: Required",
    ),
    (
        "{selector: {names: [a]}, notify: {channels: [mail], workingHours: {timeZone: UTC, to: '24:01'}}}",
        "write a time of the day as HH:MM, from 00:00 to 24:00, such as '18:00'",
    ),
    (
        "{selector: {names: [a]}, notify: {channels: [mail], workingHours: {timeZone: UTC, from: '8:00'}}}",
        "write a time of the day as HH:MM, from 00:00 to 23:59, such as '08:00'",
    ),
    (
        "{selector: {names: [a]}, notify: {channels: [mail], workingHours: {timeZone: '+01:00'}}}",
        "write the name of a time zone in the IANA database, such as Europe/Berlin or UTC",
    ),
    (
        "{selector: {names: [a]}, notify: {channels: [mail], workingHours: {timeZone: UTC, days: [Someday]}}}",
        "Unsupported value",
    ),
    (
        "{selector: {names: [a]}, notify: {channels: []}}",
        "spec.notify.channels in body should have at least 1 items",
    ),
    ("{selector: {names: [a]}, notify: {}}", "channels: Required"),
    ("{selector: {names: [a]}, owner: {labels: []}}", "should have at least 1 items"),
    ("{selector: {names: [a]}, owner: {labels: [a, a]}}", "Duplicate value"),
    ("{selector: {names: [a]}, owner: {annotations: [{key: 'a b'}]}}", "write an annotation's key"),
    ("{selector: {names: [a]}, owner: {annotations: [{key: a, format: Base64}]}}", "Unsupported value"),
    (
        "{selector: {names: [a]}, health: {advice: [{reason: OOMKilled, text: a}, {reason: OOMKilled, text: b}]}}",
        "Duplicate value",
    ),
    ("{selector: {names: [a]}, health: {advice: [{reason: Ugly, text: a}]}}", "Unsupported value"),
    (
        "{selector: {names: [a]}, health: {advice: [{reason: OOMKilled, text: ''}]}}",
        "should be at least 1 chars",
    ),
    ("{selector: {names: [a]}, priority: 1000001}", "should be less than or equal to 1000000"),
    ("{selector: {names: [a]}, priority: -1000001}", "should be greater than or equal to -1000000"),
    ("{selector: {names: [a]}, priority: high}", "priority in body must be of type integer"),
    (
        "{selector: {names: [a]}, ttl: {after: 1h}, policies: [{name: p, mode: Delete, when: {phase: {in: [Stale]}}, then: {delete: {}}}]}",
        "supported values: \"Observe\", \"Enforce\"",
    ),
    (
        "{selector: {names: [a]}, ttl: {after: 1h}, policies: [{name: p, when: {phase: {in: [Stale], for: 300}}, then: {delete: {}}}]}",
        "phase.for: Invalid value: 300: write a duration with a unit",
    ),
    (
        "{selector: {names: [a]}, health: {gracePeriod: 120}}",
        "gracePeriod: Invalid value: 120: write a duration with a unit",
    ),
    ("{selector: {names: [a]}, health: {recoveryPeriod: 0s}}", "every moment would count; write at least 1s"),
    (
        "{selector: {names: [a]}, health: {recoveryPeriod: 60}}",
        "recoveryPeriod: Invalid value: 60: write a duration with a unit",
    ),
    (
        "{selector: {names: [a]}, limits: {minNotice: 15}}",
        "minNotice: Invalid value: 15: write a duration with a unit",
    ),
    (
        "{selector: {names: [a]}, notify: {channels: [mail], on: [Cancelled]}}",
        "\"Stale\", \"Superseded\", \"Recovered\", \"Expiring\", \"Deleted\"",
    ),
    ("{selector: {names: [a]}, notify: {channels: [mail], on: [Stale, Stale]}}", "Duplicate value"),
    (
        "{selector: {names: [a]}, notify: {channels: [mail], reminders: [24]}}",
        "reminders[0]: Invalid value: 24: write a duration with a unit",
    ),
    (
        "{selector: {names: [a]}, notify: {channels: [mail], reminders: [0s]}}",
        "nobody could act upon it any more; write at least 1s",
    ),
    ("{selector: {names: [a]}, notify: {channels: [mail], reminders: []}}", "should have at least 1 items"),
    (
        "{selector: {names: [a]}, notify: {channels: [mail], reminders: [5h, 4h, 3h, 2h, 1h]}}",
        "must have at most 4 items",
    ),
    (
        "{selector: {names: [a]}, notify: {channels: [mail], undelivered: {after: 30}}}",
        "undelivered.after: Invalid value: 30: write a duration with a unit",
    ),
    (
        "{selector: {names: [a]}, notify: {channels: [mail], undelivered: {after: 0s}}}",
        "no announcement could be delivered before; write at least 1s",
    ),
    (
        "{selector: {names: [a]}, notify: {channels: [mail], undelivered: {then: Delete}}}",
        "supported values: \"Wait\", \"Proceed\"",
    ),
    ("{selector: {names: [a]}, limits: {maxTTL: 0s}}", "zero is not accepted here"),
    ("{selector: {names: [a]}, limits: {maxHold: 300}}", "write a duration with a unit"),
    ("{selector: {names: [a]}, limits: {tenantActions: [destroy]}}", "Unsupported value"),
    ("{selector: {names: [a]}, limits: {tenantActions: [delete, delete]}}", "Duplicate value"),
    ("{selector: {names: [a]}, limits: {webhookHosts: ['http://x']}}", "write a host or address"),
    ("{selector: {names: [a]}, limits: {maxTtl: 1h}}", "unknown field"),
    ("{selector: {names: [a], namess: [b]}}", "unknown field"),
    (
        "{selector: {names: [a]}, settle: 0s}",
        "what a mistake selects would be acted upon at once; write at least 1s",
    ),
    ("{selector: {names: [a]}, suspend: maybe}", "suspend in body must be of type boolean"),
    // What another system takes for zero, or for something else.
    (
        "{selector: {names: [a]}, ttl: {after: 300}}",
        "after: Invalid value: 300: write a duration with a unit",
    ),
    ("{selector: {names: [a]}, ttl: {after: ''}}", "write a duration with a unit"),
    ("{selector: {names: [a]}, ttl: {after: '300'}}", "write a duration with a unit"),
    ("{selector: {names: [a]}, ttl: {after: '1y'}}", "write a duration with a unit"),
    ("{selector: {names: [a]}, ttl: {after: '500ms'}}", "write a duration with a unit"),
    ("{selector: {names: [a]}, ttl: {after: '1h1h'}}", "write a duration with a unit"),
    (
        "{selector: {names: [a]}, health: {settlingPeriod: 300}}",
        "settlingPeriod: Invalid value: 300: write a duration with a unit",
    ),
    (
        "{selector: {names: [a]}, ttl: {after: 1h}, policies: [{name: '', when: {phase: {in: [Stale]}}, then: {delete: {}}}]}",
        "should be at least 1 chars",
    ),
    (
        "{selector: {names: [a]}, ttl: {after: 1h}, policies: [{name: p, when: {phase: {in: [Stale]}}, then: {delete: {notice: 15}}}]}",
        "notice: Invalid value: 15: write a duration with a unit",
    ),
    (
        "{selector: {names: [a]}, ttl: {after: 1h}, policies: [{name: p, when: {phase: {in: [Stale]}}, then: {scaleDown: {selectors: []}}}]}",
        "selectors is empty and would select nothing",
    ),
    (
        "{selector: {names: [a]}, ttl: {after: 1h}, policies: [{name: p, when: {phase: {in: [Stale]}}, then: {scaleDown: {selectors: [{kind: DaemonSet}]}}}]}",
        "kind must be Deployment, StatefulSet, ReplicaSet or CronJob",
    ),
    (
        "{selector: {names: [a]}, ttl: {after: 1h}, policies: [{name: p, when: {podsSucceed: {initialDelay: 5}}, then: {delete: {}}}]}",
        "initialDelay: Invalid value: 5: write a duration with a unit",
    ),
    (
        "{selector: {names: [a]}, ttl: {after: 1h}, policies: [{name: p, when: {podsSucceed: {ignoreRetried: maybe}}, then: {delete: {}}}]}",
        "ignoreRetried in body must be of type boolean",
    ),
    (
        "{selector: {names: [a]}, ttl: {after: 1h}, policies: [{name: p, when: {ttl: {after: 0s}}, then: {delete: {}}}]}",
        "zero is not accepted here: it would expire every namespace at once",
    ),
    ("{selector: {names: [a]}, identity: {project: a, branch: 'a b'}}", "write an annotation's key"),
    ("{selector: {names: [a]}, identity: {project: a, environment: 'a b'}}", "write an annotation's key"),
    ("{selector: {names: [a]}, identity: {project: a, job: 'a b'}}", "write an annotation's key"),
    ("{selector: {names: [a]}, identity: {project: a, mergeRequest: 'a b'}}", "write an annotation's key"),
    ("{selector: {names: [a]}, identity: {project: a, commit: 'a b'}}", "write an annotation's key"),
    ("{selector: {names: [a]}, identity: {project: a, pipeline: 'a b'}}", "write an annotation's key"),
    ("{selector: {names: [a]}, identity: {project: a, run: 'a b'}}", "write an annotation's key"),
    (
        "{selector: {names: [a]}, identity: {project: a, links: {pipeline: 'a b'}}}",
        "write an annotation's key",
    ),
    (
        "{selector: {names: [a]}, identity: {project: a, pipeline: 7}}",
        "pipeline in body must be of type string",
    ),
    (
        "{selector: {names: [a]}, health: {}, identity: {project: a, branch: b}, supersede: {by: [Branch], waitUntilReady: maybe}}",
        "waitUntilReady in body must be of type boolean",
    ),
    ("{selector: {names: [a]}, notify: {channels: [a, b, c, d, e]}}", "must have at most 4 items"),
    (
        "{selector: {names: [a]}, approval: {digest: '', namespaces: 3, validUntil: '2099-01-01T00:00:00Z'}}",
        "should be at least 1 chars",
    ),
    ("{selector: {names: [a]}, approval: {namespaces: 3}}", "digest: Required"),
    ("{selector: {names: [a]}, approval: {digest: a, namespaces: 3}}", "validUntil: Required"),
    ("{selector: {names: [a]}, approval: {digest: a, namespaces: 0}}", "greater than or equal to 1"),
    (
        "{selector: {names: [a]}, approval: {digest: a, namespaces: 3, validUntil: soon}}",
        "an instant with its zone",
    ),
];

#[test]
fn a_cluster_manager_that_cannot_be_meant_is_refused_with_advice() -> Test {
    on_shared_plane(async |test_cluster, _| {
        let object = |kind: &str, metadata: &str, spec: &str| {
            format!("{{apiVersion: coppice.dev/v1alpha1, kind: {kind}, metadata: {metadata}, spec: {spec}}}")
        };
        let mut wrong = Vec::new();
        for (spec, sentence) in REFUSED {
            match test_cluster.apply(&object("ClusterNamespaceManager", "{name: bad}", spec)).await {
                Ok(_) => wrong.push(format!("{spec}: accepted")),
                Err(error) if error.to_string().contains(sentence) => {}
                Err(error) => wrong.push(format!("{spec}: {error}")),
            }
        }
        ensure!(wrong.is_empty(), "{}", wrong.join("\n"));
        for (metadata, spec, sentence) in [
            (
                "{name: other, namespace: default}",
                "{}",
                "there is one ManagedNamespace in a namespace, named coppice",
            ),
            ("{name: coppice, namespace: default}", "{hold: {until: tomorrow}}", "an instant with its zone"),
            ("{name: coppice, namespace: default}", "{hold: {reason: debugging}}", "until: Required"),
            ("{name: coppice, namespace: default}", "{extendUntil: {}}", "at: Required"),
            ("{name: coppice, namespace: default}", "{extendUntil: {at: soon}}", "an instant with its zone"),
            (
                "{name: coppice, namespace: default}",
                "{rearm: 0}",
                "rearm in body should be greater than or equal to 1",
            ),
            ("{name: coppice, namespace: default}", "{rearm: yes}", "rearm in body must be of type integer"),
            (
                "{name: coppice, namespace: default}",
                "{wake: -1}",
                "wake in body should be greater than or equal to 0",
            ),
            ("{name: coppice, namespace: default}", "{wake: all}", "wake in body must be of type integer"),
        ] {
            let refused = test_cluster.apply(&object("ManagedNamespace", metadata, spec)).await.err();
            let refused = refused.map(|error| error.to_string()).unwrap_or_default();
            ensure!(refused.contains(sentence), "{spec}: {refused}");
        }
        Ok(())
    })
}

/// Of a block that is written in part, and of what is null, the rest has its defaults.
#[test]
fn what_of_the_health_is_left_out_or_null_is_the_default() -> Test {
    on_shared_plane(async |test_cluster, _| {
        let manager = "{apiVersion: coppice.dev/v1alpha1, kind: ClusterNamespaceManager, metadata: {name: partly}, spec: \
                       {selector: {names: [partly]}, health: {settlingPeriod: null, gracePeriod: 7m, failureBudget: {max: 5m}, ignore: null}, ttl: null}}";
        test_cluster.apply(manager).await?;
        let stored = test_cluster.get("cnsman", "", "partly").await?.unwrap_or_default();
        let health = &stored["spec"]["health"];
        let expected = serde_json::json!({
            "sources": ["Workloads"], "settlingPeriod": "5m", "gracePeriod": "7m", "recoveryPeriod": "1m",
            "failureBudget": { "window": "1h", "max": "5m" },
        });
        ensure!(*health == expected, "{health:#}");
        let ttl = stored["spec"].get("ttl");
        ensure!(ttl.is_none(), "nothing expires that nobody gave a time: {ttl:?}");
        Ok(())
    })
}

/// Time zones are in no schema: the operator looks them up.
#[test]
fn what_only_the_operator_refuses_is_in_an_event_and_counted_until_it_is_corrected() -> Test {
    // It stops every cluster manager of a plane.
    on_own_plane(async {
        let test_cluster = &TestCluster::start_without_pods().await?;
        let operator = Operator::start(test_cluster).await?;
        let object = |zone: &str| {
            format!(
                "{{apiVersion: coppice.dev/v1alpha1, kind: ClusterNamespaceManager, metadata: {{name: zones}}, spec: {{selector: \
                 {{names: ['zones-*']}}, notify: {{channels: [mail], workingHours: {{timeZone: {zone}}}}}}}}}"
            )
        };
        let accepted = async |status: &str| {
            let is = async || {
                let manager = test_cluster.get("cnsman", "", "zones").await.ok()??;
                let said = condition(&manager, "Accepted");
                let current = manager["status"]["observedGeneration"] == manager["metadata"]["generation"];
                (current && said["status"] == status).then_some(said)
            };
            test_cluster.until(&format!("the cluster manager is accepted: {status}"), is).await
        };
        let counted = async |series: &str, count: Option<f64>| {
            let is = async || (operator.metric(series).await.ok()? == count).then_some(());
            test_cluster.until(&format!("{series} is {count:?}"), is).await
        };
        test_cluster.apply(&object("Europe/Atlantis")).await?;
        let refused = accepted("False").await?;
        let message = refused["message"].as_str().context("no message")?;
        ensure!(refused["reason"] == "InvalidSpec", "{refused:#}");
        ensure!(message.contains("timeZone \"Europe/Atlantis\" is not known"), "{message}");
        let published = async || {
            let events = test_cluster.events("default", "zones", "InvalidSpec").await.ok()?;
            events.iter().any(|note| note == message).then_some(())
        };
        test_cluster.until("an Event says what is wrong", published).await?;
        let series = "coppice_cluster_managers{condition=\"Accepted\",reason=\"InvalidSpec\"}";
        counted(series, Some(1.0)).await?;
        test_cluster.apply(&object("Europe/Berlin")).await?;
        accepted("True").await?;
        counted(series, None).await
    })
}
