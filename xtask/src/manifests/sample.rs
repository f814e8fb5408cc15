//! The component of `verification/sample`, to be copied: no installation has it. Tests install what is generated from it into
//! `verification/sample/access.yaml`, and every test of components holds for it as well.

use coppice_api::names::FIELD_MANAGER;
use serde_json::{Value, json};

use super::Install;
use super::component::{Component, Policy, deletions, lease, rule};
use super::pod::{container_security, pod_security};

/// The program, its account and its Lease.
const PROGRAM: &str = "coppice-sample";

/// Those of the product, and the sample.
#[cfg(test)]
pub(crate) fn with_sample(install: &Install) -> Vec<Component> {
    let mut all = super::components(install);
    all.push(component(install));
    all
}

/// The component of one installation.
pub(crate) fn component(install: &Install) -> Component {
    Component {
        name: "sample",
        program: PROGRAM,
        binary: PROGRAM,
        account: PROGRAM,
        namespace: None,
        crds: Vec::new(),
        optional: true,
        cluster_rules: cluster_rules(),
        local_rules: lease(PROGRAM).into(),
        user_roles: Vec::new(),
        policies: vec![Policy { name: PROGRAM, spec: own(install), param: None }],
        workload: vec![deployment(install)],
        on_demand: Vec::new(),
    }
}

fn cluster_rules() -> Vec<Value> {
    let mut rules = vec![
        rule(
            "Namespaces are watched, read again before a deletion, and deleted, always with uid and revision: the policies\n\
             coppice-guard and coppice-guard-settings bind every account of Coppice.",
            "",
            &["namespaces"],
            &["get", "list", "watch", "delete"],
        ),
        rule(
            "When namespaces expire: spec is only read.",
            "sample.coppice.dev",
            &["namespaceexpiries"],
            &["get", "list", "watch"],
        ),
        rule("What was decided and done.", "sample.coppice.dev", &["namespaceexpiries/status"], &["update"]),
    ];
    rules.extend(deletions());
    rules.push(rule("Events about what expires.", "events.k8s.io", &["events"], &["create", "patch"]));
    rules
}

/// What RBAC grants by kind only, because the name is not known yet.
fn own(install: &Install) -> Value {
    let rule = |group: &str, resource: &str, operations: &[&str]| json!({"apiGroups": [group], "apiVersions": ["*"], "operations": operations, "resources": [resource]});
    json!({
        "failurePolicy": "Fail",
        "matchConstraints": {"resourceRules": [
            rule("events.k8s.io", "events", &["CREATE", "UPDATE"]),
            rule("coordination.k8s.io", "leases", &["CREATE"]),
        ]},
        "matchConditions": [{
            "name": "by-the-sample", "expression": format!("request.userInfo.username == '{}'", install.user(PROGRAM))
        }],
        "validations": [
            {
                "expression": format!(
                    "request.resource.resource != 'events' ||\n\
                     dyn(object).?reportingController.orValue('') == '{FIELD_MANAGER}'"
                ),
                "message": "The sample writes Events in the name of Coppice only."
            },
            {
                "expression": format!("request.resource.resource != 'leases' || object.metadata.name == '{PROGRAM}'"),
                "message": format!("The sample creates no Lease but {PROGRAM}.")
            }
        ]
    })
}

fn deployment(install: &Install) -> Value {
    let selector = json!({"app.kubernetes.io/name": "coppice", "app.kubernetes.io/component": "sample"});
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": install.local(PROGRAM),
        "spec": {
            "selector": {"matchLabels": selector},
            "template": {
                "metadata": {"labels": selector},
                "spec": {
                    "serviceAccountName": PROGRAM,
                    "automountServiceAccountToken": true,
                    "securityContext": pod_security(),
                    "containers": [{
                        "name": "sample", "image": install.image("sample.image", PROGRAM),
                        "securityContext": container_security()
                    }]
                }
            }
        }
    })
}
