//! The audit policy by which an API server logs what [`Judge`](super::Judge) looks for, and no more.

use anyhow::Result;
use coppice_api::names::{GROUP, TREE_QUOTA_NAME};
use serde_json::{Value, json};

use super::judge::ENTRIES;
use super::ours::Installation;
use crate::yaml::{self, COMMENT};

const EDITS: [&str; 5] = ["create", "update", "patch", "delete", "deletecollection"];
const READS: [&str; 3] = ["get", "list", "watch"];
/// Names alone: who, when, what, and never a body.
const NAMES: &str = "Metadata";

/// What to log.
#[derive(Debug)]
pub(crate) struct PolicyOptions<'a> {
    pub(crate) installation: &'a Installation,
    /// The namespaces whose Secrets are logged; empty for all.
    pub(crate) secrets_in: &'a [String],
    /// Edits of objects of Coppice with what was written.
    pub(crate) bodies: bool,
    /// Only the rules, for a policy that exists.
    pub(crate) rules_only: bool,
}

/// The policy, or its rules, as YAML with comments.
pub(crate) fn text(options: &PolicyOptions<'_>) -> Result<String> {
    let mut rules = rules(options);
    let body = if options.rules_only {
        // The policy that they are written into may omit other stages.
        for rule in &mut rules {
            rule["omitStages"] = json!(["RequestReceived"]);
        }
        yaml::with_comments(&serde_yaml::to_value(rules)?)
    } else {
        rules.push(json!({COMMENT: "Nothing else.", "level": "None"}));
        let policy = json!({
            "apiVersion": "audit.k8s.io/v1", "kind": "Policy",
            "omitStages": ["RequestReceived"], "omitManagedFields": true,
            "rules": rules,
        });
        yaml::with_comments(&serde_yaml::to_value(policy)?)
    };
    Ok(format!("{}{body}", head(options)))
}

/// What it is for, and what no audit policy can do.
fn head(options: &PolicyOptions<'_>) -> String {
    let usage = if options.rules_only {
        "# Write these rules in front of those of your audit policy: the first rule that fits decides.\n"
    } else {
        "# The API server reads it with --audit-policy-file. If it has a policy already, write the rules of\n\
         # `coppice audit policy --rules-only` in front of those.\n"
    };
    let places = if options.secrets_in.is_empty() { "" } else { " in the namespaces below" };
    format!(
        "# Audit policy of Coppice: who edits its objects, who edits and who reads credentials, and what is refused.\n\
         # `coppice audit check` reads the log. It fits the cluster that Coppice runs in, and those that credentials are for.\n\
         {usage}#\n\
         # What no audit policy can do:\n\
         # - select by labels. The Secrets that Coppice writes look like others: all requests for Secrets{places} are\n\
         #   logged, without bodies.\n\
         # - say which Secrets a list or a watch has shown: it counts as a read of all of them.\n\
         # - say which pod reads a Secret that it mounts: that request is the kubelet's.\n\
         # - show what is read from a backup of etcd, or what is done by a stolen token of Coppice's own accounts: that looks like Coppice.\n"
    )
}

fn rules(options: &PolicyOptions<'_>) -> Vec<Value> {
    let PolicyOptions { installation, secrets_in, bodies, .. } = options;
    let (own, inside) = (&installation.accounts, &installation.namespaces);
    let kinds = json!([{"group": GROUP}]);
    let mut rules = vec![
        json!({
            COMMENT: "What Coppice itself reads of its kinds, and its Leases and Events: all the time, and of no interest.",
            "level": "None", "users": own, "verbs": READS, "resources": kinds
        }),
        json!({
            "level": "None", "users": own,
            "resources": [
                {"group": "coordination.k8s.io", "resources": ["leases"]},
                {"group": "", "resources": ["events"]},
                {"group": "events.k8s.io", "resources": ["events"]},
            ]
        }),
    ];
    if *bodies {
        rules.push(json!({
            COMMENT: "Coppice writes status often; what it writes is in the object.",
            "level": NAMES, "users": own, "verbs": EDITS, "resources": kinds
        }));
    }
    rules.push(json!({
        COMMENT: "Edits of objects of all kinds of Coppice. None of them has a credential.",
        "level": if *bodies { "Request" } else { NAMES }, "verbs": EDITS, "resources": kinds
    }));
    let mut secrets = json!({
        COMMENT: "Edits and reads of Secrets, without their values.",
        "level": NAMES, "resources": [{"group": "", "resources": ["secrets"]}]
    });
    if !secrets_in.is_empty() {
        // Without a namespace are lists of the whole cluster.
        let mut namespaces = vec![String::new()];
        namespaces.extend(secrets_in.iter().chain(inside).cloned());
        namespaces.sort();
        namespaces.dedup();
        secrets["namespaces"] = json!(namespaces);
    }
    rules.push(secrets);
    let mut subresources = vec!["serviceaccounts/token".to_owned()];
    subresources.extend(ENTRIES.map(|entry| format!("pods/{entry}")));
    rules.extend([
        json!({
            COMMENT: "Tokens of Coppice's accounts, and whoever gets into its pods, whose memory has credentials.",
            "level": NAMES, "namespaces": inside, "resources": [{"group": "", "resources": subresources}]
        }),
        json!({
            COMMENT: "Edits of whatever else is in its namespaces: programs, accounts, roles.",
            "level": NAMES, "namespaces": inside, "verbs": EDITS
        }),
        json!({
            COMMENT: "Roles, admission policies and kinds of the whole cluster, which give rights over all this or guard it, and the quotas of trees.",
            "level": NAMES, "verbs": EDITS,
            "resources": [
                {"group": "rbac.authorization.k8s.io"},
                {"group": "admissionregistration.k8s.io"},
                {"group": "apiextensions.k8s.io", "resources": ["customresourcedefinitions"]},
                {"group": "certificates.k8s.io",
                    "resources": ["certificatesigningrequests", "certificatesigningrequests/approval"]},
                {"group": "", "resources": ["namespaces"], "resourceNames": inside},
                {"group": "", "resources": ["resourcequotas"], "resourceNames": [TREE_QUOTA_NAME]},
            ]
        }),
    ]);
    rules
}

#[cfg(test)]
#[path = "policy_tests.rs"]
mod tests;
