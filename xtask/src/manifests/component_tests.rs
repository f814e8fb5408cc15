//! What must hold of every component.

use std::collections::BTreeSet;

use super::super::{always, sample::with_sample};
use super::*;

fn components() -> Vec<Component> {
    with_sample(&Install::kubectl())
}

/// Every object of a component, whenever it is applied.
fn all_of(component: &Component) -> Vec<Value> {
    let mut objects = component.objects(&Install::kubectl());
    objects.extend(component.on_demand.iter().map(|(_, object)| object.clone()));
    objects
}

fn kind(object: &Value) -> &str {
    object["kind"].as_str().unwrap()
}

fn texts(value: &Value) -> Vec<&str> {
    value.as_array().into_iter().flatten().map(|text| text.as_str().unwrap()).collect()
}

fn rules(component: &Component) -> impl Iterator<Item = &Value> {
    component.cluster_rules.iter().chain(&component.local_rules)
}

/// The pod of a Deployment or Job.
fn pods(component: &Component) -> Vec<Value> {
    let objects = all_of(component).into_iter();
    objects.filter_map(|object| object.pointer("/spec/template/spec").cloned()).collect()
}

#[test]
fn no_two_components_share_a_name_a_program_or_an_account() {
    let components = components();
    assert!(components.len() > 1);
    for of in [|c: &Component| c.name, |c: &Component| c.program, |c: &Component| c.account] {
        let different: BTreeSet<&str> = components.iter().map(of).collect();
        assert_eq!(different.len(), components.len(), "{different:?}");
    }
}

#[test]
fn every_object_is_named_once_and_labelled() {
    let install = Install::kubectl();
    let mut objects = always(&install, &[]).unwrap();
    objects.extend(components().iter().flat_map(all_of));
    let mut seen = BTreeSet::new();
    for object in objects {
        let of = |path: &str| object.pointer(path).and_then(Value::as_str).unwrap_or_default().to_owned();
        let labels = object.pointer("/metadata/labels").unwrap();
        for label in ["name", "part-of", "version", "managed-by"] {
            assert!(labels.get(format!("app.kubernetes.io/{label}")).is_some(), "{label} of {object}");
        }
        assert!(seen.insert((of("/kind"), of("/metadata/namespace"), of("/metadata/name"))), "{object}");
    }
}

#[test]
fn what_is_needed_first_comes_first() {
    let install = Install::kubectl();
    for component in components() {
        let objects = component.objects(&install);
        let kinds: Vec<&str> = objects.iter().map(kind).collect();
        let first = |kind: &str| kinds.iter().position(|k| *k == kind);
        let before = kinds.iter().take_while(|kind| **kind != "ServiceAccount");
        let expected = |kind: &&&str| ["CustomResourceDefinition", "Namespace"].contains(kind);
        assert!(before.clone().all(|kind| expected(&kind)) && before.count() < kinds.len(), "{kinds:?}");
        assert!(first("ClusterRole") < first("ValidatingAdmissionPolicy"), "{kinds:?}");
        assert_eq!(first("Deployment"), Some(kinds.len() - 1), "{kinds:?}");
    }
}

#[test]
fn crds_and_namespace_come_before_the_components_that_every_installation_has() {
    let install = Install::kubectl();
    let components = components();
    let objects = always(&install, &components).unwrap();
    let before = always(&install, &[]).unwrap();
    let kinds: Vec<&str> = before.iter().map(kind).collect();
    let (namespace, crds) = kinds.split_last().unwrap();
    assert_eq!(*namespace, "Namespace");
    assert!(!crds.is_empty() && crds.iter().all(|kind| *kind == "CustomResourceDefinition"), "{crds:?}");
    let (optional, others): (Vec<_>, Vec<_>) = components.iter().partition(|component| component.optional);
    assert_eq!((optional.len(), others.len()), (3, 1));
    assert_eq!(objects, [before, others[0].objects(&install)].concat());
}

#[test]
fn nothing_dangerous_is_granted() {
    for component in components() {
        for rule in rules(&component) {
            assert!(!rule.to_string().replace(&rule["#"].to_string(), "").contains('*'), "{rule}");
            assert!(rule.get("nonResourceURLs").is_none(), "{rule}");
            for resource in texts(&rule["resources"]) {
                for verb in texts(&rule["verbs"]) {
                    let grant = format!("{resource} {verb}");
                    for never in
                        ["finalize", "deletecollection", "impersonate", "escalate", "pods delete", "exec"]
                    {
                        assert!(!grant.contains(never), "{}: {grant}", component.name);
                    }
                    let named = texts(&rule["resourceNames"]);
                    let three = component.name == "trees" && named == ["admin", "edit", "view"];
                    assert!(verb != "bind" || three, "{}: {grant} {named:?}", component.name);
                    let of_trees = component.name == "trees" && resource == "rolebindings";
                    let reads = ["get", "list", "watch", "bind"].contains(&verb);
                    assert!(reads || of_trees || !resource.contains("role"), "{}: {grant}", component.name);
                }
            }
        }
    }
}

#[test]
fn one_component_alone_may_read_the_secrets_of_others_and_that_one_deletes_no_namespace() {
    for component in components() {
        let grants = |resource: &str| {
            component.cluster_rules.iter().any(|rule| texts(&rule["resources"]).contains(&resource))
        };
        assert_eq!(grants("secrets"), component.name == "access", "{}", component.name);
        let mut of_namespaces = component
            .cluster_rules
            .iter()
            .filter(|rule| grants("secrets") && texts(&rule["resources"]).contains(&"namespaces"));
        assert!(of_namespaces.all(|rule| texts(&rule["verbs"]) == ["get"]), "{}", component.name);
    }
}

#[test]
fn a_component_in_another_namespace_brings_it_along() {
    let install = Install::kubectl();
    for component in components() {
        let namespaces: BTreeSet<String> = component
            .objects(&install)
            .iter()
            .filter_map(|object| Some(object.pointer("/metadata/namespace")?.as_str()?.to_owned()))
            .collect();
        let own = component.namespace.unwrap_or("coppice-system");
        assert_eq!(namespaces.into_iter().collect::<Vec<_>>(), [own], "{}", component.name);
        let brought = component.objects(&install).iter().any(|object| kind(object) == "Namespace");
        assert_eq!(brought, component.namespace.is_some(), "{}", component.name);
    }
}

#[test]
fn every_rule_says_why_or_narrows_the_one_before() {
    for component in components() {
        for rule in rules(&component) {
            assert!(rule.get("#").is_some() || rule.get("resourceNames").is_some(), "{rule}");
        }
    }
}

#[test]
fn an_account_has_the_roles_of_its_own_component_and_no_others() {
    for component in components() {
        let objects = component.objects(&Install::kubectl());
        let bindings: Vec<_> = objects.iter().filter(|o| kind(o).ends_with("RoleBinding")).collect();
        assert!(!bindings.is_empty());
        for binding in bindings {
            assert_eq!(binding["roleRef"]["name"], component.program);
            let namespace = component.namespace.unwrap_or("coppice-system");
            let account =
                json!([{"kind": "ServiceAccount", "name": component.account, "namespace": namespace}]);
            assert_eq!(binding["subjects"], account);
            let role = kind(binding).trim_end_matches("Binding");
            assert!(
                objects.iter().any(|o| kind(o) == role && o["metadata"]["name"] == component.program),
                "{binding}"
            );
        }
    }
}

#[test]
fn users_never_write_status() {
    for component in components() {
        for role in component.user_roles {
            for rule in role["rules"].as_array().unwrap() {
                let writes =
                    texts(&rule["verbs"]).iter().any(|verb| !["get", "list", "watch"].contains(verb));
                assert!(!writes || !rule["resources"].to_string().contains("/status"), "{role}");
            }
        }
    }
}

#[test]
fn every_pod_runs_as_the_account_of_its_component_and_without_privileges() {
    for component in components() {
        let pods = pods(&component);
        assert_eq!(pods.len(), 1 + component.on_demand.len());
        for pod in pods {
            assert_eq!(pod["serviceAccountName"], component.account);
            assert_eq!(pod["automountServiceAccountToken"], true);
            assert_eq!(pod["securityContext"]["runAsNonRoot"], true);
            assert_eq!(pod["securityContext"]["seccompProfile"]["type"], "RuntimeDefault");
            for container in pod["containers"].as_array().unwrap() {
                let security = &container["securityContext"];
                assert_eq!(security["allowPrivilegeEscalation"], false, "{container}");
                assert_eq!(security["readOnlyRootFilesystem"], true, "{container}");
                assert_eq!(security["capabilities"]["drop"], json!(["ALL"]), "{container}");
                assert_eq!(
                    container["image"],
                    format!("registry.coppice.dev/{}:{}", component.binary, env!("CARGO_PKG_VERSION"))
                );
            }
        }
    }
}

/// Otherwise a Service or a Deployment would take the pods of another component for its own.
#[test]
fn every_selector_is_that_of_one_component() {
    let mut seen = BTreeSet::new();
    for component in components() {
        let deployment = component.workload.last().unwrap();
        let labels = &deployment["spec"]["selector"]["matchLabels"];
        assert!(labels["app.kubernetes.io/component"].is_string(), "{labels}");
        assert!(seen.insert(labels.to_string()), "{labels}");
        let pod = &deployment["spec"]["template"]["metadata"]["labels"];
        for (name, value) in labels.as_object().unwrap() {
            assert_eq!(pod[name], *value, "{name}");
        }
    }
}

fn each_policy(check: impl Fn(&Component, &Policy)) {
    for component in components() {
        component.policies.iter().for_each(|policy| check(&component, policy));
    }
}

#[test]
fn every_message_is_a_sentence() {
    each_policy(|_, policy| {
        for validation in policy.spec["validations"].as_array().unwrap() {
            let message = validation["message"].as_str().unwrap();
            let sentence = message.starts_with(char::is_uppercase) && message.ends_with('.');
            assert!(sentence && message.len() <= 1024, "{}: {message}", policy.name);
        }
    });
}

/// Its parameters are looked up before its match conditions: failing closed would fail everybody's requests.
#[test]
fn only_a_policy_without_parameters_fails_closed() {
    each_policy(|_, policy| {
        let parameters = policy.spec.get("paramKind").is_some();
        assert_eq!(parameters, policy.param.is_some(), "{}", policy.name);
        let expected = if parameters { "Ignore" } else { "Fail" };
        assert_eq!(policy.spec["failurePolicy"], expected, "{}", policy.name);
    });
}

#[test]
fn every_policy_checks_the_account_of_its_component() {
    each_policy(|component, policy| {
        let namespace = component.namespace.unwrap_or("coppice-system");
        let account = format!("'system:serviceaccount:{namespace}:{}'", component.account);
        let expressions = json!([policy.spec["matchConditions"], policy.spec["validations"]]).to_string();
        let checked = [account, is_ours(&Install::kubectl())].iter().any(|of| expressions.contains(of));
        assert!(checked, "{}: {expressions}", policy.name);
    });
}
