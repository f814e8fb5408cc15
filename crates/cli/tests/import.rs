//! `import consol`: that operator's manifests as ours.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on has failed")]

use crate::support;

use crate::support::{fixture, run};

fn import(name: &str) -> support::Ran {
    run("coppice import consol -", &fixture(&format!("consol/{name}.yaml")))
}

#[test]
fn the_four_examples_are_converted() {
    // The manager of the second one lives elsewhere, and becomes a cluster manager.
    for (name, code) in [("example-01", 0), ("example-02", 3), ("example-03", 0), ("example-04", 0)] {
        let ran = import(name);
        assert_eq!(ran.code, code, "{name}: {}", ran.err);
        insta::assert_snapshot!(name, ran.all());
    }
}

#[test]
fn inexact_conversion_is_reported_and_changes_the_exit_code() {
    let ran = import("awkward");
    assert_eq!(ran.code, 3);
    insta::assert_snapshot!(ran.all());
    let quiet = run("coppice import consol -q -", &fixture("consol/awkward.yaml"));
    assert!(quiet.err.lines().all(|line| line.starts_with("warning: ")) && quiet.code == 3, "{}", quiet.err);
}

#[test]
fn what_is_imported_can_be_planned() {
    for name in ["example-01", "example-02", "example-03", "example-04"] {
        let planned = run("coppice plan --no-headers -f -", &import(name).out);
        assert_eq!((planned.code, planned.out.lines().count()), (0, 1), "{name}: {planned:?}");
    }
}

/// One manager with this policy, in the namespace that it governs.
fn policy(condition: &str, action: &str) -> support::Ran {
    spec(&format!("{{policies: [{{name: a policy, condition: {condition}, action: {action}}}]}}"))
}

fn spec(spec: &str) -> support::Ran {
    let text = format!(
        "apiVersion: k8s.consol.de/v1beta1\nkind: NamespaceManager\nmetadata: {{name: m, namespace: m}}\nspec: {spec}\n"
    );
    run("coppice import consol -", &text)
}

#[test]
fn a_selector_of_a_kind_that_is_not_scaled_changes_the_exit_code_and_is_advised_about() {
    let selectors = "{type: SCALE_DOWN, params: {selectors: [{kind: Deployment}, {kind: DaemonSet}]}}";
    let ran = policy("{type: TTL}", selectors);
    assert_eq!(ran.code, 3, "{}", ran.err);
    let warned = ran.err.lines().find(|line| line.starts_with("warning: ") && line.contains("\"DaemonSet\""));
    assert!(warned.is_some_and(|line| line.contains("take it out of the old manifest")), "{}", ran.err);
    assert!(ran.out.contains("kind: Deployment"), "what can be carried over is: {}", ran.out);
}

#[test]
fn defaults_are_written_out() {
    let ttl = policy("{type: TTL}", "{type: DELETE}");
    assert!(ttl.code == 0 && ttl.out.contains("after: 30m"), "{ttl:?}");
    let pods = policy("{type: PODS_SUCCEED}", "{type: SCALE_DOWN}");
    assert!(
        pods.code == 0 && pods.out.contains("initialDelay: 1m") && pods.out.contains("minPods: 0"),
        "{pods:?}"
    );
    assert!(pods.out.contains("scaleDown: {}") && !pods.out.contains("selector"), "{}", pods.out);
}

/// A manager of that name, which lives in `ops`.
fn of_ops(name: &str, spec: &str) -> String {
    format!(
        "---\napiVersion: k8s.consol.de/v1beta1\nkind: NamespaceManager\nmetadata: {{name: {name}, namespace: ops}}\nspec: {spec}\n"
    )
}

const END: &str = "{name: end, condition: {type: TTL}, action: {type: DELETE}}";

#[test]
fn a_manager_governs_the_namespace_of_its_own_name_unless_it_says_another() {
    let text = of_ops("team-a", &format!("{{policies: [{END}]}}"));
    let ran = run("coppice import consol -", &text);
    assert!(
        ran.out.contains("names:\n    - team-a\n")
            && ran.err.contains("lived in namespace ops and governed team-a"),
        "{ran:?}"
    );
}

#[test]
fn a_manager_that_lives_elsewhere_becomes_a_cluster_manager_that_observes() {
    let spec = format!(
        "{{deactivated: true, namespace: team-a, policies: [{END}, {{name: tell, condition: {{type: TTL}}, action: {{type: WEBHOOK, \
         params: {{url: 'https://ci.example.org/hook'}}}}}}]}}"
    );
    let ran = run("coppice import consol -", &of_ops("m", &spec));
    let expected = "---
apiVersion: coppice.dev/v1alpha1
kind: ClusterNamespaceManager
metadata:
  name: m
spec:
  mode: Observe
  suspend: true
  selector:
    names:
    - team-a
  policies:
  - name: end
    when:
      ttl:
        after: 30m
    then:
      delete:
        notice: 0s
  - name: tell
    when:
      ttl:
        after: 30m
    then:
      webhook:
        url: https://ci.example.org/hook
        format: consol
";
    assert_eq!((ran.code, &*ran.out), (3, expected), "{}", ran.err);
    assert!(
        ran.err.contains("mode: Enforce") && ran.err.contains("in every later namespace team-a"),
        "{ran:?}"
    );
    assert!(!ran.err.contains("webhookHosts"), "the platform's own webhooks need no entry: {}", ran.err);
    let accepted = run("coppice preview -f - --from tests/fixtures/governed.yaml", &ran.out);
    assert_eq!(accepted.code, 0, "{accepted:?}");
}

#[test]
fn managers_of_one_namespace_that_live_elsewhere_become_one_cluster_manager() {
    let scale = "{name: end, condition: {type: TTL, params: {ttlSeconds: 60}}, action: {type: SCALE_DOWN}}";
    let text = [
        of_ops("first", &format!("{{namespace: team-a, policies: [{END}]}}")),
        of_ops("second", &format!("{{namespace: team-a, deactivated: true, policies: [{scale}]}}")),
        of_ops("team-b", &format!("{{policies: [{END}]}}")),
    ]
    .concat();
    let ran = run("coppice import consol -", &text);
    let all: Vec<serde_yaml::Value> =
        ran.out.split("---\n").skip(1).map(|text| serde_yaml::from_str(text).unwrap()).collect();
    let [first, second] = &*all else { panic!("{ran:?}") };
    assert_eq!(
        first["spec"]["policies"],
        serde_yaml::from_str::<serde_yaml::Value>(
            "- {name: end, when: {ttl: {after: 30m}}, then: {delete: {notice: 0s}}}\n\
             - {name: end 2, mode: Observe, when: {ttl: {after: 1m}}, then: {scaleDown: {}}}\n"
        )
        .unwrap(),
        "what was deactivated goes on doing nothing: {ran:?}"
    );
    assert!(first["spec"]["suspend"].is_null() && second["metadata"]["name"] == "team-b", "{ran:?}");
    assert!(ran.err.contains(
        "second: one cluster manager governs a namespace: its policies are in ClusterNamespaceManager first"
    ));
}

#[test]
fn more_policies_than_one_cluster_manager_has_are_not_lost_unseen() {
    let policies = |from: usize, to: usize| -> String {
        let one = |n| {
            format!(
                "{{name: p{n}, condition: {{type: TTL, params: {{ttlSeconds: {n}}}}}, action: {{type: DELETE}}}}"
            )
        };
        (from..to).map(one).collect::<Vec<_>>().join(", ")
    };
    let text = [
        of_ops("first", &format!("{{namespace: team-a, policies: [{}]}}", policies(1, 9))),
        of_ops("second", &format!("{{namespace: team-a, policies: [{}]}}", policies(9, 13))),
    ]
    .concat();
    let ran = run("coppice import consol -", &text);
    assert!(ran.code == 3 && ran.out.matches("kind: ClusterNamespaceManager").count() == 1, "{ran:?}");
    assert!(ran.err.contains("second: one cluster manager governs a namespace, and together with those of first there are 12 policies"));
}

#[test]
fn values_of_labels_become_text() {
    let ran =
        policy("{type: PODS_SUCCEED, params: {podLabels: {a: 1, b: true, c: 'yes'}}}", "{type: DELETE}");
    assert!(
        ran.out.contains("a: \"1\"") && ran.out.contains("b: \"true\"") && ran.out.contains("c: \"yes\""),
        "{}",
        ran.out
    );
}

#[test]
fn zero_and_negative_times_are_reported() {
    let ran = policy("{type: TTL, params: {ttlSeconds: -5}}", "{type: DELETE}");
    assert!(ran.code == 3 && ran.out.contains("after: 1s") && ran.err.contains("ttlSeconds -5"), "{ran:?}");
    let ran = policy("{type: PODS_SUCCEED, params: {initialDelaySeconds: -5}}", "{type: DELETE}");
    assert!(ran.code == 0 && ran.out.contains("initialDelay: 0s"), "{ran:?}");
}

#[test]
fn several_policies_cannot_be_converted_exactly() {
    let ran = spec(
        "{policies: [{name: one, condition: {type: TTL}, action: {type: DELETE}}, {name: two, condition: {type: PODS_SUCCEED}, action: {type: DELETE}}]}",
    );
    assert!(ran.code == 3 && ran.err.contains("in no certain order"), "{ran:?}");
}

#[test]
fn bad_documents_are_named_and_nothing_is_written() {
    for (ran, expected) in [
        (
            policy("{type: SOMETIMES}", "{type: DELETE}"),
            "spec.policies[0].condition.type: \"SOMETIMES\" is unknown",
        ),
        (
            policy("{type: TTL, params: {ttlSeconds: soon}}", "{type: DELETE}"),
            "condition.params.ttlSeconds: must be a whole number",
        ),
        (policy("{type: TTL}", "{}"), "spec.policies[0].action.type: required"),
        (
            policy("{type: TTL}", "{type: SCALE_DOWN, params: {selectors: [{}]}}"),
            "selectors[0].kind: required",
        ),
        (spec("{}"), "spec.policies: required"),
        (spec("{policies: []}"), "at least 1"),
        (
            spec(
                "{namespace: Not_A_Name, policies: [{name: end, condition: {type: TTL}, action: {type: DELETE}}]}",
            ),
            "spec.namespace",
        ),
        (run("coppice import consol -", "a: 1\n---\na: [\n"), "standard input, document 2 cannot be read"),
        (
            run("coppice import consol -", "{apiVersion: k8s.consol.de/v2, kind: NamespaceManager}"),
            "is not known",
        ),
    ] {
        assert!(ran.code == 1 && ran.err.contains(expected) && ran.out.is_empty(), "{expected}: {ran:?}");
        assert!(ran.err.contains("standard input, document"), "{}", ran.err);
    }
}

#[test]
fn managers_in_a_list_are_found_and_other_items_kept() {
    let text = "apiVersion: v1\nkind: List\nitems:\n- {apiVersion: v1, kind: ConfigMap, metadata: {name: c}, data: {a: 'on'}}\n- apiVersion: k8s.consol.de/v1beta1\n  kind: NamespaceManager\n  metadata: {name: m, namespace: m}\n  spec: {policies: [{name: end, condition: {type: TTL}, action: {type: DELETE}}]}\n";
    let ran = run("coppice import consol -", text);
    assert!(
        ran.out.contains("kind: ConfigMap")
            && ran.out.contains("a: \"on\"")
            && ran.out.contains("coppice.dev/v1alpha1"),
        "{}",
        ran.out
    );
}
