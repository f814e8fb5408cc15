//! What the operator may do, and what its objects mean for the roles that users have.
//!
//! No wildcard, no `namespaces/finalize`, no pods to delete, no Secret but its own.

use coppice_api::names::{GROUP, LEASE_NAME, SERVICE_ACCOUNT, WEBHOOK_KEY_SECRET};
use serde_json::{Value, json};

use super::Install;

const RBAC: &str = "rbac.authorization.k8s.io";
const VERSION: &str = "rbac.authorization.k8s.io/v1";
/// The name of the operator's roles.
const OPERATOR: &str = "coppice-operator";

/// Every role and binding.
pub(crate) fn objects(install: &Install) -> Vec<Value> {
    vec![
        json!({
            "apiVersion": VERSION, "kind": "ClusterRole",
            "metadata": install.cluster(OPERATOR), "rules": cluster_rules()
        }),
        json!({
            "apiVersion": VERSION, "kind": "ClusterRoleBinding", "metadata": install.cluster(OPERATOR),
            "roleRef": {"apiGroup": RBAC, "kind": "ClusterRole", "name": OPERATOR},
            "subjects": subjects(install)
        }),
        json!({
            "apiVersion": VERSION, "kind": "Role",
            "metadata": install.local(OPERATOR), "rules": local_rules()
        }),
        json!({
            "apiVersion": VERSION, "kind": "RoleBinding", "metadata": install.local(OPERATOR),
            "roleRef": {"apiGroup": RBAC, "kind": "Role", "name": OPERATOR},
            "subjects": subjects(install)
        }),
        user_role(
            install,
            "Who may view a namespace may view its managers; who may view all namespaces also the records of those that were\n\
             deleted.",
            "coppice-view",
            &[("view", "true")],
            (&["deletednamespaces", "namespacemanagers"], &["get", "list", "watch"]),
        ),
        user_role(
            install,
            "Who administers a namespace may write its managers, but never their status: it says what was done. A manager can\n\
             have its namespace deleted, which the role edit does not include; with the label aggregate-to-edit set to \"true\"\n\
             it does.",
            "coppice-edit",
            &[("admin", "true"), ("edit", &install.aggregate_to_edit)],
            (&["namespacemanagers"], &["create", "update", "patch", "delete"]),
        ),
    ]
}

fn subjects(install: &Install) -> Value {
    json!([{"kind": "ServiceAccount", "name": SERVICE_ACCOUNT, "namespace": install.namespace}])
}

fn rule(why: &str, group: &str, resources: &[&str], verbs: &[&str]) -> Value {
    json!({"#": why, "apiGroups": [group], "resources": resources, "verbs": verbs})
}

fn cluster_rules() -> Value {
    json!([
        rule(
            "Namespaces are watched, read again before a deletion, and deleted, always with uid and revision.",
            "",
            &["namespaces"],
            &["get", "list", "watch", "delete"],
        ),
        rule(
            "Whether the pods of a namespace have succeeded. Pods themselves are never changed.",
            "",
            &["pods"],
            &["list", "watch"],
        ),
        rule(
            "A Job's pods count through the Job: until it is complete they are no success.",
            "batch",
            &["jobs"],
            &["list", "watch"],
        ),
        rule(
            "A CronJob is scaled down by suspending it; the policy coppice-guard refuses any other change.",
            "batch",
            &["cronjobs"],
            &["get", "list", "patch"],
        ),
        rule(
            "Which workloads there are to scale down.",
            "apps",
            &["deployments", "replicasets", "statefulsets"],
            &["list"],
        ),
        rule(
            "Their size is read and written through the scale subresource: nothing else of them can be changed.",
            "apps",
            &["deployments/scale", "replicasets/scale", "statefulsets/scale"],
            &["get", "patch"],
        ),
        rule(
            "Tenants' managers: spec is theirs and only read.",
            GROUP,
            &["namespacemanagers"],
            &["get", "list", "watch"],
        ),
        rule(
            "The installation's settings; created with the defaults at the very first start only.",
            GROUP,
            &["coppiceconfigs"],
            &["create", "get", "list", "watch",]
        ),
        rule(
            "The records of deletions: stored before a namespace is deleted, and deleted when they were kept long enough.",
            GROUP,
            &["deletednamespaces"],
            &["create", "delete", "get", "list", "update", "watch"],
        ),
        rule(
            "Status is the operator's: what it observed, decided and did.",
            GROUP,
            &["coppiceconfigs/status", "deletednamespaces/status", "namespacemanagers/status"],
            &["update"],
        ),
        rule(
            "Events in the namespaces of the objects that they are about.",
            "events.k8s.io",
            &["events"],
            &["create", "patch"],
        ),
    ])
}

fn local_rules() -> Value {
    json!([
        rule(
            "The Lease by which replicas agree on who writes. Creation cannot be limited to a name.",
            "coordination.k8s.io",
            &["leases"],
            &["create"],
        ),
        {
            "apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "resourceNames": [LEASE_NAME],
            "verbs": ["get", "update", "watch"]
        },
        rule(
            "The key that signs webhooks, made at the first start. Creation cannot be limited to a name.",
            "",
            &["secrets"],
            &["create"],
        ),
        {
            "apiGroups": [""], "resources": ["secrets"], "resourceNames": [WEBHOOK_KEY_SECRET],
            "verbs": ["get"]
        },
    ])
}

/// `into`: the roles of Kubernetes that this one is a part of, if the text is `true`.
fn user_role(
    install: &Install,
    why: &str,
    name: &str,
    into: &[(&str, &str)],
    (resources, verbs): (&[&str], &[&str]),
) -> Value {
    let mut metadata = install.cluster(name);
    for (role, whether) in into {
        metadata["labels"][format!("{RBAC}/aggregate-to-{role}")] = json!(whether);
    }
    json!({
        "apiVersion": VERSION, "kind": "ClusterRole", "metadata": metadata,
        "rules": [rule(why, GROUP, resources, verbs)]
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `group/resource verb` of every rule, for the operator's own roles.
    fn grants() -> Vec<String> {
        let objects = objects(&Install::kubectl());
        let own = objects.iter().filter(|o| o["metadata"]["name"] == OPERATOR);
        let rules = own.flat_map(|o| o["rules"].as_array().cloned().unwrap_or_default());
        let texts = |value: &Value| -> Vec<String> {
            value.as_array().unwrap().iter().map(|v| v.as_str().unwrap().to_owned()).collect()
        };
        let mut grants = Vec::new();
        for rule in rules {
            for resource in texts(&rule["resources"]) {
                for verb in texts(&rule["verbs"]) {
                    grants.push(format!("{}/{resource} {verb}", rule["apiGroups"][0].as_str().unwrap()));
                }
            }
        }
        grants
    }

    #[test]
    fn nothing_dangerous_is_granted() {
        for grant in grants() {
            assert!(!grant.contains('*'), "{grant}");
            for never in
                ["finalize", "deletecollection", "impersonate", "escalate", "bind", "/pods delete", "exec"]
            {
                assert!(!grant.contains(never), "{grant}");
            }
            let deletes = ["/namespaces delete", "coppice.dev/deletednamespaces delete"];
            assert!(!grant.ends_with(" delete") || deletes.contains(&grant.as_str()), "{grant}");
        }
    }

    #[test]
    fn secrets_are_granted_in_its_own_namespace_only() {
        for rule in cluster_rules().as_array().unwrap() {
            assert!(!rule["resources"].as_array().unwrap().contains(&json!("secrets")));
        }
    }

    #[test]
    fn users_never_write_status() {
        for object in objects(&Install::kubectl()) {
            if object["metadata"]["name"] == "coppice-edit" {
                assert!(!object["rules"].to_string().contains("status\""), "{object}");
            }
        }
    }

    #[test]
    fn managers_are_written_by_admins_and_by_editors_only_on_request() {
        let objects = objects(&Install::kubectl());
        let of = |name: &str, role: &str| {
            let found = objects.iter().find(|o| o["metadata"]["name"] == name).unwrap();
            found["metadata"]["labels"][format!("{RBAC}/aggregate-to-{role}")].clone()
        };
        assert_eq!(of("coppice-edit", "admin"), "true");
        assert_eq!(of("coppice-edit", "edit"), "false");
        assert_eq!(of("coppice-edit", "view"), Value::Null);
        assert_eq!(of("coppice-view", "view"), "true");
    }

    #[test]
    fn every_rule_of_the_operator_says_why_or_narrows_the_one_before() {
        for rule in cluster_rules().as_array().unwrap().iter().chain(local_rules().as_array().unwrap()) {
            assert!(rule.get("#").is_some() || rule.get("resourceNames").is_some(), "{rule}");
        }
    }
}
