//! What runs the operator, and the Job that wakes everything before Coppice is uninstalled.

use coppice_api::names::SERVICE_ACCOUNT;
use serde_json::{Value, json};

use super::PROGRAM;
use crate::manifests::Install;
use crate::manifests::job::Job;
use crate::manifests::replicas::Replicas;

/// The file in `deploy/` that holds the Job.
pub(super) const WAKE_ALL_FILE: &str = "wake-all";
/// The name of the Job.
const WAKE_ALL: &str = "coppice-wake-all";
/// The Secret with the credentials of channels.
const CREDENTIALS: &str = "coppice-channels";
/// Where it is mounted.
const CREDENTIALS_DIR: &str = "/etc/coppice/credentials";
/// How long that Job tries.
const WAKE_WAIT: &str = "10m";
/// How long it may exist without an end, in seconds: what it tries for, and two minutes for its image, its start and its end.
const WAKE_DEADLINE: u32 = (10 + 2) * 60;

/// Service, network policy, disruption budget, Deployment.
pub(super) fn workload(install: &Install) -> Vec<Value> {
    let replicas = Replicas { install, name: PROGRAM, account: SERVICE_ACCOUNT, component: "operator" };
    vec![
        replicas.service(),
        replicas.network_policy("What goes out is not limited: webhooks go where CoppiceConfig allows."),
        replicas.disruption_budget(),
        replicas.deployment(&pod(install, &replicas)),
    ]
}

/// Gives every workload its replicas back, before Coppice is uninstalled. By the operator's own account: it needs the Lease, so
/// that no replica acts meanwhile, and status, which admission leaves to that account alone.
pub(super) fn wake_all(install: &Install) -> Value {
    let job = Job {
        install,
        name: WAKE_ALL,
        component: "wake-all",
        account: SERVICE_ACCOUNT,
        image: install.image("image", PROGRAM),
        args: json!(["wake-all", "--wait", WAKE_WAIT]),
        deadline: WAKE_DEADLINE,
    };
    job.object()
}

fn pod(install: &Install, replicas: &Replicas<'_>) -> Value {
    let env = [
        json!({"name": "COPPICE_LOG_FORMAT", "value": "json"}),
        json!({"name": "COPPICE_CREDENTIALS_DIR", "value": CREDENTIALS_DIR}),
    ];
    let mut container = replicas.container(&install.image("image", PROGRAM), env);
    container["volumeMounts"] =
        json!([{"name": "credentials", "mountPath": CREDENTIALS_DIR, "readOnly": true}]);
    let mut pod = replicas.pod(&container);
    pod["dnsConfig"] = json!({
        "#": "With the usual ndots:5 an outside host such as ci.example.org is first looked for below the cluster's own\n\
              domain, where a tenant who owns the namespace org could answer for it. With 1 it is asked for as it is.",
        "options": [{"name": "ndots", "value": "1"}]
    });
    pod["volumes"] = json!([{
        "#": "The credentials of the channels in CoppiceConfig, for those who have any: each key is a file.",
        "name": "credentials", "secret": {"secretName": CREDENTIALS, "optional": true}
    }]);
    pod
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_job_before_an_uninstallation_runs_as_the_operator_does_and_comes_to_an_end() {
        let install = Install::kubectl();
        let env = |object: &Value| {
            let all = object.pointer("/spec/template/spec/containers/0/env").and_then(Value::as_array);
            // It serves nothing, and notifies nobody.
            let others = |variable: &&Value| {
                let name = variable["name"].as_str().unwrap_or_default();
                !name.starts_with("COPPICE_LISTEN") && name != "COPPICE_CREDENTIALS_DIR"
            };
            all.into_iter().flatten().filter(others).cloned().collect::<Vec<_>>()
        };
        let workload = workload(&install);
        let (job, operator) = (wake_all(&install), workload.last().unwrap().clone());
        assert!(env(&job).len() > 3);
        assert_eq!(env(&job), env(&operator));
        let minutes: u64 = WAKE_WAIT.strip_suffix('m').unwrap().parse().unwrap();
        let deadline = job["spec"]["activeDeadlineSeconds"].as_u64().unwrap();
        // And before Helm gives up after the 15 minutes that the notes advise.
        assert!((minutes * 60 + 60..15 * 60).contains(&deadline), "{deadline}");
    }
}
