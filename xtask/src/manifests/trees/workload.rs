//! What runs the controllers of trees.

use coppice_api::names::TREES_ACCOUNT;
use serde_json::{Value, json};

use super::admission;
use crate::manifests::replicas::Replicas;
use crate::manifests::{Install, lifecycle};

/// Service, network policy, disruption budget, Deployment. What installations choose for the operator's pods, these have, too.
pub(super) fn workload(install: &Install) -> Vec<Value> {
    let replicas = Replicas { install, name: TREES_ACCOUNT, account: TREES_ACCOUNT, component: "trees" };
    let mut network = replicas.network_policy("What goes out goes to the API server.");
    network["spec"]["ingress"][0]["from"] = install.value("networkPolicy.metricsFrom", json!([]));
    network["spec"]["ingress"][1]["from"] = install.value("networkPolicy.probesFrom", json!([]));
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
    for (field, values) in [("imagePullPolicy", "image.pullPolicy"), ("resources", "resources")] {
        container[field] = install.value(values, container[field].clone());
    }
    let mut pod = replicas.pod(&container);
    pod["imagePullSecrets"] = install.value("imagePullSecrets", json!([]));
    pod["nodeSelector"] = install.value("nodeSelector", json!({}));
    pod["priorityClassName"] = install.value("priorityClassName", json!(""));
    pod["tolerations"] = install.value("tolerations", json!([]));
    let mut deployment = replicas.deployment(&pod);
    deployment["spec"]["replicas"] = install.value("replicas", deployment["spec"]["replicas"].clone());
    deployment
}
