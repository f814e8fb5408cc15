//! What runs the controllers of trees.

use coppice_api::names::TREES_ACCOUNT;
use serde_json::{Value, json};

use super::admission;
use crate::manifests::replicas::Replicas;
use crate::manifests::{Install, lifecycle};

/// Service, network policy, disruption budget, Deployment. What installations choose for the operator's pods, these have, too.
pub(super) fn workload(install: &Install) -> Vec<Value> {
    let replicas = Replicas { install, name: TREES_ACCOUNT, account: TREES_ACCOUNT, component: "trees" };
    let mut network = replicas.network_policy_by_values("What goes out goes to the API server.");
    // The API server calls from addresses that a NetworkPolicy cannot name.
    let admission = json!({"ports": [{"port": "admission", "protocol": "TCP"}]});
    if let Some(ingress) = network["spec"]["ingress"].as_array_mut() {
        ingress.push(admission);
    }
    let [called, asked] = admission::objects(install, &replicas);
    let deployment = deployment(install, &replicas);
    vec![replicas.service(), called, network, replicas.disruption_budget(), asked, deployment]
}

fn deployment(install: &Install, replicas: &Replicas<'_>) -> Value {
    let env = [
        json!({"name": "COPPICE_LEASE_NAME", "value": TREES_ACCOUNT}),
        json!({"name": "COPPICE_LISTEN_ADMISSION", "value": format!("0.0.0.0:{}", admission::PORT)}),
        json!({"name": "COPPICE_LOG_FORMAT", "value": install.value("logFormat", json!("json"))}),
    ];
    let mut container = replicas.container(&install.image("image", lifecycle::PROGRAM), env);
    container["args"] = json!(["trees"]);
    let port = json!({"name": "admission", "containerPort": admission::PORT, "protocol": "TCP"});
    if let Some(ports) = container["ports"].as_array_mut() {
        ports.push(port);
    }
    replicas.deployment_by_values(container)
}
