//! What the account of trees may do, and what trees mean for the roles that users have.

use coppice_api::names::{GROUP, PROPAGATED_ROLES, TREE_QUOTA_NAME, TREES_ACCOUNT};
use serde_json::{Value, json};

use super::admission;
use crate::manifests::Install;
use crate::manifests::component::{deletions, lease, reviews, rule, user_role};

const RBAC: &str = "rbac.authorization.k8s.io";

/// In the whole cluster.
pub(super) fn cluster() -> Vec<Value> {
    let mut rules = of_kubernetes();
    rules.extend(of_coppice());
    rules.extend(deletions());
    rules.extend(reviews());
    rules.push(admission::cluster_rule());
    rules.push(rule(
        "Events in the namespaces of the objects that they are about; and in a namespace below another one, for its users, why it does\n\
         not get the quota that is asked for it: they need not be able to read the namespace above.",
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
            "Namespaces are created for Subnamespaces, labelled, and deleted, always with uid and revision. The policy\n\
             coppice-tree-account leaves this account no label or annotation of them that gives somebody rights; coppice-guard and coppice-guard-settings bind it, too.",
            "",
            &["namespaces"],
            &["get", "list", "watch", "create", "patch", "delete"],
        ),
        rule(
            "The quota of each namespace of a tree, which has the ledger: read with those of others, which are never changed.\n\
             Creation cannot be limited to a name; the policy coppice-tree-own does it.",
            "",
            &["resourcequotas"],
            &["get", "list", "watch", "create"],
        ),
        json!({
            "apiGroups": [""], "resources": ["resourcequotas"], "resourceNames": [TREE_QUOTA_NAME],
            "verbs": ["patch", "delete"]
        }),
        rule(
            "What a tree has copied to the namespaces below. The policy coppice-tree-account-copies leaves this account nothing but\n\
             its copies, and these only in namespaces that were created for Subnamespaces.",
            "",
            &["limitranges"],
            COPIED,
        ),
        rule("The same.", "networking.k8s.io", &["networkpolicies"], COPIED),
        rule("The same.", RBAC, &["rolebindings"], COPIED),
        json!({
            "#": "The API server lets an account bind a role that it does not have itself only with this verb: to copy RoleBindings to\n\
                  further ClusterRoles, grant it on these in a ClusterRole of your own (docs/guides/trees.md).",
            "apiGroups": [RBAC], "resources": ["clusterroles"], "resourceNames": PROPAGATED_ROLES, "verbs": ["bind"]
        }),
    ]
}

/// What is done with the kinds that are copied.
const COPIED: &[&str] = &["get", "list", "watch", "create", "patch", "delete"];

/// On our own kinds.
fn of_coppice() -> Vec<Value> {
    vec![
        rule(
            "The platform's trees: spec is only read; patched is the finalizer. The policy coppice-tree-own leaves this account\n\
             nothing else of them.",
            GROUP,
            &["namespacetrees"],
            &["get", "list", "watch", "patch"],
        ),
        rule(
            "Tenants' Subnamespaces: spec is only read; patched is the finalizer, and deleted are those whose namespace somebody\n\
             deleted. Where a namespace is deleted that others are below, one that takes over is created for each of these. The policy coppice-tree-own leaves this account nothing else of them.",
            GROUP,
            &["subnamespaces"],
            &["get", "list", "watch", "create", "patch", "delete"],
        ),
        rule(
            "Tenants' QuotaTransfers: spec is only read; patched is the finalizer. The policy coppice-tree-own leaves this account\n\
             nothing else of them.",
            GROUP,
            &["quotatransfers"],
            &["get", "list", "watch", "patch"],
        ),
        rule(
            "What was observed, decided and done.",
            GROUP,
            &["namespacetrees/status", "quotatransfers/status", "subnamespaces/status"],
            &["update"],
        ),
    ]
}

/// In Coppice's own namespace.
pub(super) fn local() -> Vec<Value> {
    admission::local_rules().into_iter().chain(lease(TREES_ACCOUNT)).collect()
}

/// What trees mean for the roles that users have.
pub(super) fn user_roles(install: &Install) -> Vec<Value> {
    vec![
        user_role(
            install,
            "coppice-tree-view",
            &[("view", "true")],
            &[rule(
                "Who may view a namespace may view its Subnamespaces and QuotaTransfers; who may view all namespaces also the trees.",
                GROUP,
                &["namespacetrees", "quotatransfers", "subnamespaces"],
                &["get", "list", "watch"],
            )],
        ),
        user_role(
            install,
            "coppice-tree-user",
            &[("admin", "true"), ("edit", &install.aggregate_to_edit)],
            &[rule(
                "Who administers a namespace of a tree may create and delete namespaces below it, within its quota, and transfer\n\
                 quota that it does not use (the policy coppice-tree-transfers says who approves that). The role edit does not\n\
                 include deleting a namespace; with the label aggregate-to-edit set to \"true\" it does.",
                GROUP,
                &["quotatransfers", "subnamespaces"],
                &["get", "list", "watch", "create", "update", "patch", "delete"],
            )],
        ),
        user_role(
            install,
            "coppice-tree-admin",
            &[],
            &[rule(
                "For the platform, by a ClusterRoleBinding: which trees there are, and what each of them has. Not the verb\n\
                 set-tree, with which labels of trees can be written by hand.",
                GROUP,
                &["namespacetrees"],
                &["get", "list", "watch", "create", "update", "patch", "delete"],
            )],
        ),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_quotas_those_of_trees_alone_are_changed_and_their_status_by_kubernetes() {
        for rule in cluster() {
            let text = rule.to_string();
            assert!(!text.contains("resourcequotas/status"), "{rule}");
            let changes =
                ["patch", "update", "delete"].iter().any(|verb| rule["verbs"].to_string().contains(verb));
            if text.contains("\"resourcequotas") && changes {
                assert_eq!(rule["resourceNames"], json!(["coppice"]), "{rule}");
            }
        }
    }

    #[test]
    fn trees_are_written_by_the_platform_and_subnamespaces_by_admins() {
        let roles = user_roles(&Install::kubectl());
        let of = |name: &str, role: &str| {
            let found = roles.iter().find(|o| o["metadata"]["name"] == name).unwrap();
            found["metadata"]["labels"][format!("rbac.authorization.k8s.io/aggregate-to-{role}")].clone()
        };
        assert_eq!(of("coppice-tree-user", "admin"), "true");
        assert_eq!(of("coppice-tree-user", "edit"), "false");
        assert_eq!(of("coppice-tree-user", "view"), Value::Null);
        assert_eq!(of("coppice-tree-view", "view"), "true");
        for role in ["admin", "edit", "view"] {
            assert_eq!(of("coppice-tree-admin", role), Value::Null);
        }
        let all = json!(roles).to_string();
        assert!(!all.contains("\"set-tree\"") && !all.contains("/status"), "{all}");
        // Who may delete a Subnamespace need not be allowed to delete a namespace.
        for rule in roles.iter().flat_map(|role| role["rules"].as_array().into_iter().flatten()) {
            assert_eq!(rule["apiGroups"], json!([GROUP]), "{rule}");
        }
    }
}
