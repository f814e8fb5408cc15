//! What runs the program.

use coppice_clusters_api::names::PROGRAM;
use serde_json::{Value, json};

use crate::manifests::Install;
use crate::manifests::replicas::Replicas;

/// Service, network policy, disruption budget, Deployment. What installations choose for the operator's pods, these have, too.
pub(super) fn workload(install: &Install) -> Vec<Value> {
    let replicas = Replicas { install, name: PROGRAM, account: PROGRAM, component: "access" };
    let mut network =
        replicas.network_policy("What goes out goes to this API server and to those of the other clusters.");
    network["spec"]["ingress"][0]["from"] = install.value("networkPolicy.metricsFrom", json!([]));
    network["spec"]["ingress"][1]["from"] = install.value("networkPolicy.probesFrom", json!([]));
    vec![replicas.service(), network, replicas.disruption_budget(), deployment(install, &replicas)]
}

fn deployment(install: &Install, replicas: &Replicas<'_>) -> Value {
    let env = [json!({"name": "COPPICE_LOG_FORMAT", "value": install.value("logFormat", json!("json"))})];
    let mut container = replicas.container(&install.image("access.image", PROGRAM), env);
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
