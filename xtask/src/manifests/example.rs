//! A second component, for tests alone: the least that one can consist of, with a policy.

use serde_json::json;

use super::component::{Component, Policy, rule};
use super::pod::{container_security, pod_security};
use super::{Install, components};

const PROGRAM: &str = "coppice-example";

/// Those of the product, and the example.
pub(crate) fn with_example(install: &Install) -> Vec<Component> {
    let mut all = components(install);
    all.push(component(install));
    all
}

fn component(install: &Install) -> Component {
    let selector = json!({"app.kubernetes.io/name": "coppice", "app.kubernetes.io/component": "example"});
    let user = install.user(PROGRAM);
    Component {
        name: "example",
        program: PROGRAM,
        account: PROGRAM,
        optional: true,
        cluster_rules: vec![rule("Which namespaces there are.", "", &["namespaces"], &["list", "watch"])],
        local_rules: Vec::new(),
        user_roles: Vec::new(),
        policies: vec![Policy {
            name: "coppice-example",
            spec: json!({
                "failurePolicy": "Fail",
                "matchConstraints": {"resourceRules": [{
                    "apiGroups": [""], "apiVersions": ["*"], "operations": ["*"], "resources": ["namespaces"]
                }]},
                "matchConditions": [
                    {"name": "by-the-example", "expression": format!("request.userInfo.username == '{user}'")}
                ],
                "validations": [{"expression": "false", "message": "The example writes nothing."}]
            }),
            param: None,
        }],
        workload: vec![json!({
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
                            "name": "example", "image": install.image("example.image", PROGRAM),
                            "securityContext": container_security()
                        }]
                    }
                }
            }
        })],
        on_demand: Vec::new(),
    }
}
