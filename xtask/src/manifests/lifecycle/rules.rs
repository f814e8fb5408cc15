//! What the operator may do, and what its objects mean for the roles that users have.
//!
//! No wildcard, no `namespaces/finalize`, no pods to delete, no Secret but its own.

use coppice_api::names::{GROUP, LEASE_NAME, WEBHOOK_KEY_SECRET};
use coppice_serve::metrics::PATH;
use serde_json::{Value, json};

use crate::manifests::Install;
use crate::manifests::component::{lease, reviews, rule, user_role};

/// In the whole cluster.
pub(super) fn cluster() -> Vec<Value> {
    let mut rules = of_kubernetes();
    rules.extend(of_coppice());
    rules.extend(reviews());
    rules.push(rule(
        "Events in the namespaces of the objects that they are about.",
        "events.k8s.io",
        &["events"],
        &["create", "patch"],
    ));
    rules
}

/// On Kubernetes' own kinds.
fn of_kubernetes() -> Vec<Value> {
    vec![
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
            "A CronJob is scaled down by suspending it; the policy coppice-guard-cronjobs refuses any other change.",
            "batch",
            &["cronjobs"],
            &["get", "list", "patch"],
        ),
        rule(
            "Which workloads there are to scale down; and what of them fails, watched while a cluster manager looks at the\n\
             health of namespaces.",
            "apps",
            &["daemonsets", "deployments", "replicasets", "statefulsets"],
            &["list", "watch"],
        ),
        rule(
            "Whether a claim keeps a pod from being scheduled; and what is lost with a namespace, when its deletion is announced.",
            "",
            &["persistentvolumeclaims"],
            &["list", "watch"],
        ),
        rule("The same: which Services have a load balancer.", "", &["services"], &["list"]),
        rule("The same: what becomes of a volume without its claim.", "", &["persistentvolumes"], &["get"]),
        rule(
            "Their size is read and written through the scale subresource: nothing else of them can be changed.",
            "apps",
            &["deployments/scale", "replicasets/scale", "statefulsets/scale"],
            &["get", "patch"],
        ),
    ]
}

/// On our own kinds.
fn of_coppice() -> Vec<Value> {
    vec![
        rule(
            "Tenants' managers: spec is theirs and only read.",
            GROUP,
            &["namespacemanagers"],
            &["get", "list", "watch"],
        ),
        rule(
            "The platform's managers: spec is theirs and only read, watched for the caches and listed again before a deletion.",
            GROUP,
            &["clusternamespacemanagers"],
            &["list", "watch"],
        ),
        rule(
            "The records of governed namespaces: created where there is none, and read again before a deletion. Their spec is\n\
             their users' and only read.",
            GROUP,
            &["managednamespaces"],
            &["create", "get", "list", "watch"],
        ),
        rule(
            "The installation's settings; created with the defaults at the very first start only.",
            GROUP,
            &["coppiceconfigs"],
            &["create", "get", "list", "watch"],
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
            &[
                "clusternamespacemanagers/status",
                "coppiceconfigs/status",
                "deletednamespaces/status",
                "managednamespaces/status",
                "namespacemanagers/status",
            ],
            &["update"],
        ),
    ]
}

/// In Coppice's own namespace.
pub(super) fn local() -> Vec<Value> {
    let [create, update] = lease(LEASE_NAME);
    vec![
        create,
        update,
        rule(
            "The key that signs webhooks, made at the first start. Creation cannot be limited to a name.",
            "",
            &["secrets"],
            &["create"],
        ),
        json!({
            "apiGroups": [""], "resources": ["secrets"], "resourceNames": [WEBHOOK_KEY_SECRET],
            "verbs": ["get"]
        }),
    ]
}

/// What the objects of Coppice mean for the roles that users have.
pub(super) fn user_roles(install: &Install) -> Vec<Value> {
    vec![
        user_role(
            install,
            "coppice-view",
            &[("view", "true")],
            &[rule(
                "Who may view a namespace may view its managers and its record; who may view all namespaces also the cluster\n\
                 managers, and the records of those that were deleted.",
                GROUP,
                &["clusternamespacemanagers", "deletednamespaces", "managednamespaces", "namespacemanagers"],
                &["get", "list", "watch"],
            )],
        ),
        user_role(
            install,
            "coppice-edit",
            &[("admin", "true"), ("edit", &install.aggregate_to_edit)],
            &[rule(
                "Who administers a namespace may write its managers, but never their status: it says what was done. A manager can\n\
                 have its namespace deleted, which the role edit does not include; with the label aggregate-to-edit set to \"true\"\n\
                 it does.",
                GROUP,
                &["namespacemanagers"],
                &["create", "update", "patch", "delete"],
            )],
        ),
        user_role(
            install,
            "coppice-hold",
            &[("admin", "true"), ("edit", "true")],
            &[rule(
                "Who may edit a namespace may hold and extend it in its record, in their own name, and end what others hold: they may\n\
                 delete all that is in it anyway. The record goes with the namespace and not before.",
                GROUP,
                &["managednamespaces"],
                &["create", "update", "patch"],
            )],
        ),
        user_role(
            install,
            "coppice-metrics-reader",
            &[],
            &[json!({
                "#": "For Prometheus, by a ClusterRoleBinding: the metrics of every program of Coppice.",
                "nonResourceURLs": [PATH], "verbs": ["get"]
            })],
        ),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_deleted_but_namespaces_and_their_records() {
        let rules = [cluster(), local()].concat();
        let destructive =
            rules.iter().filter(|rule| rule["verbs"].as_array().unwrap().contains(&json!("delete")));
        let deleted: Vec<String> =
            destructive.map(|rule| format!("{} {}", rule["apiGroups"], rule["resources"])).collect();
        assert_eq!(deleted, [r#"[""] ["namespaces"]"#, r#"["coppice.dev"] ["deletednamespaces"]"#]);
    }

    #[test]
    fn nothing_is_written_to_a_namespace() {
        let rules = [cluster(), local()].concat();
        let is_namespaces =
            |resource: &Value| resource.as_str().unwrap().split('/').next() == Some("namespaces");
        let of_namespaces =
            rules.iter().filter(|rule| rule["resources"].as_array().unwrap().iter().any(is_namespaces));
        let verbs: Vec<_> =
            of_namespaces.flat_map(|rule| rule["verbs"].as_array().unwrap().clone()).collect();
        let mut verbs: Vec<&str> = verbs.iter().map(|verb| verb.as_str().unwrap()).collect();
        verbs.sort_unstable();
        verbs.dedup();
        assert_eq!(verbs, ["delete", "get", "list", "watch"]);
    }

    #[test]
    fn managers_are_written_by_admins_and_by_editors_only_on_request() {
        let roles = user_roles(&Install::kubectl());
        let of = |name: &str, role: &str| {
            let found = roles.iter().find(|o| o["metadata"]["name"] == name).unwrap();
            found["metadata"]["labels"][format!("rbac.authorization.k8s.io/aggregate-to-{role}")].clone()
        };
        assert_eq!(of("coppice-edit", "admin"), "true");
        assert_eq!(of("coppice-edit", "edit"), "false");
        assert_eq!(of("coppice-edit", "view"), Value::Null);
        assert_eq!(of("coppice-view", "view"), "true");
        assert_eq!(of("coppice-hold", "edit"), "true");
    }
}
