//! What runs the program, and the Job that takes its finalizers off before it is uninstalled.

use coppice_clusters_api::names::PROGRAM;
use serde_json::{Value, json};

use crate::manifests::Install;
use crate::manifests::job::Job;
use crate::manifests::replicas::Replicas;

/// The file in `deploy/` that holds the Job.
pub(super) const RELEASE_ALL_FILE: &str = "release-all";
/// For how long that Job tries to revoke.
const RELEASE_WAIT: &str = "5m";
/// For how long no replica leads after it: the Job that wakes everything comes after it, and tries for ten minutes.
const RELEASE_HOLD: &str = "900s";
/// How long it may exist without an end, in seconds: what it tries for, and four minutes for its image, the Lease, what it writes, and its end.
const RELEASE_DEADLINE: u32 = (5 + 4) * 60;

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

/// Takes the finalizer off every `ClusterAccess` and `ManagedCluster`, before the program is uninstalled. By its own account: it needs the Lease,
/// so that no replica puts them on again meanwhile, and admission leaves finalizers to that account alone.
pub(super) fn release_all(install: &Install) -> Value {
    let job = Job {
        install,
        name: "coppice-release-all",
        component: "release-all",
        account: PROGRAM,
        image: install.image("access.image", PROGRAM),
        args: json!(["release-all", "--credentials", "keep", "--wait", RELEASE_WAIT, "--hold", RELEASE_HOLD]),
        deadline: RELEASE_DEADLINE,
    };
    job.object()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_job_before_an_uninstallation_takes_the_lease_of_the_program_and_comes_to_an_end() {
        let install = Install::kubectl().within("own");
        let job = release_all(&install);
        assert_eq!(
            (&job["metadata"]["namespace"], &job["metadata"]["name"]),
            (&json!("own"), &json!("coppice-release-all"))
        );
        let seconds = |text: &str| -> u64 {
            let (number, unit) = text.split_at(text.len() - 1);
            number.parse::<u64>().unwrap() * if unit == "m" { 60 } else { 1 }
        };
        let deadline = job["spec"]["activeDeadlineSeconds"].as_u64().unwrap();
        // And before Helm gives up after the 15 minutes that the notes advise.
        assert!((seconds(RELEASE_WAIT) + 240..15 * 60).contains(&deadline), "{deadline}");
        // The Job that wakes everything has its ten minutes and its end.
        assert!(seconds(RELEASE_HOLD) >= 12 * 60);
    }
}
