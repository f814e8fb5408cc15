//! What the account of `coppice-access` may do, and what users may do with its kinds.

use coppice_api::names::GROUP;
use coppice_clusters_api::names::PROGRAM;
use serde_json::{Value, json};

use crate::manifests::Install;
use crate::manifests::component::{reviews, rule, user_role};

/// In the whole cluster.
pub(super) fn cluster() -> Vec<Value> {
    let mut rules = vec![
        rule(
            "Tenants' ClusterAccesses: spec is only read; patched is the finalizer, which release-all takes off before the program is uninstalled.\n\
             The policy coppice-access-own leaves this account nothing else of them. None is deleted: who has release-all revoke everything\n\
             grants that for as long as it takes.",
            GROUP,
            &["clusteraccesses"],
            &["get", "list", "watch", "patch"],
        ),
        rule("What was issued, and what is under way.", GROUP, &["clusteraccesses/status"], &["update"]),
        rule(
            "The platform's ClusterProviders: who may have credentials issued by a kubeconfig in the namespace of this account.",
            GROUP,
            &["clusterproviders"],
            &["get", "list", "watch"],
        ),
        rule("Whether their kubeconfigs can be used.", GROUP, &["clusterproviders/status"], &["update"]),
        rule(
            "Tenants' ManagedClusters, which ClusterAccesses may name: spec is only read; patched is the finalizer, where they are switched on, and by\n\
             release-all. The policy coppice-access-own leaves this account nothing else of them.",
            GROUP,
            &["managedclusters"],
            &["get", "list", "watch", "patch"],
        ),
        rule("What was made, and what is under way.", GROUP, &["managedclusters/status"], &["update"]),
        rule(
            "The labels of a namespace, where a ClusterProvider allows namespaces by these, and the uid of kube-system, by which targets know this installation.",
            "",
            &["namespaces"],
            &["get"],
        ),
        rule(
            "Read are the kubeconfigs that ClusterAccesses name, and those that were written for them; listed and watched are the\n\
             latter alone, by their label and without what is in them. RBAC cannot say which Secrets these are: the policy\n\
             coppice-access-own leaves this account no change of a Secret without that label.",
            "",
            &["secrets"],
            &["get", "list", "watch", "create", "update", "delete"],
        ),
        rule(
            "Of Cluster API: whether the Cluster that a ClusterAccess names stays, since nothing is issued for one that is being deleted; and the\n\
             Clusters that ManagedClusters ask for, where they are switched on. The policy coppice-access-own leaves this account no change of a\n\
             Cluster without their label.",
            "cluster.x-k8s.io",
            &["clusters"],
            &["get", "create", "patch", "delete"],
        ),
        rule(
            "Events in the namespaces of the objects that they are about.",
            "events.k8s.io",
            &["events"],
            &["create", "patch"],
        ),
    ];
    rules.extend(reviews());
    rules
}

/// In its own namespace.
pub(super) fn local() -> Vec<Value> {
    vec![
        rule(
            "The Lease by which replicas agree on who writes, and which release-all takes from them. Creation cannot be limited to a name; the policy\n\
             coppice-access-own does it.",
            "coordination.k8s.io",
            &["leases"],
            &["create"],
        ),
        json!({
            "apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "resourceNames": [PROGRAM],
            "verbs": ["get", "update", "watch"]
        }),
    ]
}

/// What its kinds mean for the roles that users have.
pub(super) fn user_roles(install: &Install) -> Vec<Value> {
    vec![
        user_role(
            install,
            "coppice-access-view",
            &[("view", "true")],
            &[rule(
                "Who may view a namespace may view its ClusterAccesses, which hold no credential, and its ManagedClusters.",
                GROUP,
                &["clusteraccesses", "managedclusters"],
                &["get", "list", "watch"],
            )],
        ),
        user_role(
            install,
            "coppice-access-user",
            &[("admin", "true")],
            &[rule(
                "Who administers a namespace may have credentials issued there, with a kubeconfig that they may read (the policy\n\
                 coppice-access-authors), and clusters made, if they may create a Cluster there (the policy coppice-access-clusters).",
                GROUP,
                &["clusteraccesses", "managedclusters"],
                &["get", "list", "watch", "create", "update", "patch", "delete"],
            )],
        ),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_may_do_nothing_to_namespaces_workloads_or_roles() {
        let resources: Vec<Value> = cluster().iter().map(|rule| rule["resources"].clone()).collect();
        let expected = json!([
            ["clusteraccesses"],
            ["clusteraccesses/status"],
            ["clusterproviders"],
            ["clusterproviders/status"],
            ["managedclusters"],
            ["managedclusters/status"],
            ["namespaces"],
            ["secrets"],
            ["clusters"],
            ["events"],
            ["tokenreviews"],
            ["subjectaccessreviews"]
        ]);
        assert_eq!(json!(resources), expected);
        let of_namespaces = cluster().into_iter().find(|rule| rule["resources"] == json!(["namespaces"]));
        assert_eq!(of_namespaces.map(|rule| rule["verbs"].clone()), Some(json!(["get"])));
    }
}
