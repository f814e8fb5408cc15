//! What runs the program.

use coppice_clusters_api::names::PROGRAM;
use serde_json::{Value, json};

use crate::manifests::Install;
use crate::manifests::replicas::Replicas;

/// Service, network policy, disruption budget, Deployment. What installations choose for the operator's pods, these have, too.
pub(super) fn workload(install: &Install) -> Vec<Value> {
    let replicas = Replicas { install, name: PROGRAM, account: PROGRAM, component: "access" };
    let network = replicas.network_policy_by_values(
        "What goes out goes to this API server and to those of the other clusters.",
    );
    vec![replicas.service(), network, replicas.disruption_budget(), deployment(install, &replicas)]
}

fn deployment(install: &Install, replicas: &Replicas<'_>) -> Value {
    let env = [
        json!({"name": "COPPICE_LOG_FORMAT", "value": install.value("logFormat", json!("json"))}),
        json!({
            "name": "COPPICE_MANAGED_CLUSTERS",
            "value": install.value("access.managedClusters", json!("disabled"))
        }),
    ];
    let container = replicas.container(&install.image("access.image", PROGRAM), env);
    replicas.deployment_by_values(container)
}
