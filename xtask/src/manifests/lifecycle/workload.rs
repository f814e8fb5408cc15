//! What runs the operator, and the Job that wakes everything before Coppice is uninstalled.

use coppice_api::names::SERVICE_ACCOUNT;
use serde_json::{Value, json};

use super::PROGRAM;
use crate::manifests::Install;
use crate::manifests::pod::{allocator, container_security, field, pod_security};

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
    vec![
        json!({
            "#": "For metrics: headless, so that each replica is found.",
            "apiVersion": "v1", "kind": "Service", "metadata": install.local(PROGRAM),
            "spec": {
                "clusterIP": "None",
                "selector": selector(),
                "ports": [{"name": "metrics", "port": 8080, "protocol": "TCP", "targetPort": "metrics"}]
            }
        }),
        json!({
            "#": "What comes in. Probes come from the node's address, which a NetworkPolicy cannot name: their port is open.\n\
                  What goes out is not limited: webhooks go where CoppiceConfig allows.",
            "apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy", "metadata": install.local(PROGRAM),
            "spec": {
                "podSelector": {"matchLabels": selector()},
                "policyTypes": ["Ingress"],
                "ingress": [
                    {"ports": [{"port": "metrics", "protocol": "TCP"}]},
                    {"ports": [{"port": "probes", "protocol": "TCP"}]}
                ]
            }
        }),
        json!({
            "apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": install.local(PROGRAM),
            "spec": {"maxUnavailable": 1, "selector": {"matchLabels": selector()}}
        }),
        deployment(install),
    ]
}

fn selector() -> Value {
    json!({"app.kubernetes.io/name": "coppice", "app.kubernetes.io/component": "operator"})
}

fn deployment(install: &Install) -> Value {
    let mut pod_labels = selector();
    pod_labels["app.kubernetes.io/part-of"] = json!("coppice");
    pod_labels["app.kubernetes.io/version"] = json!(install.version);
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": install.local(PROGRAM),
        "spec": {
            "#": "One replica leads; the other has everything in memory and takes over within seconds.",
            "replicas": 2,
            "selector": {"matchLabels": selector()},
            "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}},
            "template": {
                "metadata": {
                    "annotations": {"kubectl.kubernetes.io/default-container": "operator"},
                    "labels": pod_labels
                },
                "spec": pod(install)
            }
        }
    })
}

/// Gives every workload its replicas back, before Coppice is uninstalled. By the operator's own account: it needs the Lease, so
/// that no replica acts meanwhile, and status, which admission leaves to that account alone.
pub(super) fn wake_all(install: &Install) -> Value {
    let mut env = vec![
        field("COPPICE_NAMESPACE", "metadata.namespace"),
        field("POD_NAME", "metadata.name"),
        json!({"name": "COPPICE_LOG_FORMAT", "value": "json"}),
    ];
    env.extend(allocator());
    let container = json!({
        "name": "wake-all",
        "image": install.image("image", PROGRAM),
        "imagePullPolicy": "IfNotPresent",
        "args": ["wake-all", "--wait", WAKE_WAIT],
        "env": env,
        "resources": {"requests": {"cpu": "50m", "memory": "64Mi"}, "limits": {"memory": "256Mi"}},
        "securityContext": container_security()
    });
    json!({
        "#": "Apply it and wait for it before Coppice is uninstalled: see docs/operations.md.",
        "apiVersion": "batch/v1", "kind": "Job", "metadata": install.local(WAKE_ALL),
        "spec": {
            "backoffLimit": 0,
            "activeDeadlineSeconds": WAKE_DEADLINE,
            "template": {
                "metadata": {"labels": {
                    "app.kubernetes.io/name": "coppice", "app.kubernetes.io/component": "wake-all",
                    "app.kubernetes.io/part-of": "coppice", "app.kubernetes.io/version": install.version
                }},
                "spec": {
                    "restartPolicy": "Never",
                    "serviceAccountName": SERVICE_ACCOUNT,
                    "automountServiceAccountToken": true,
                    "enableServiceLinks": false,
                    "securityContext": pod_security(),
                    "containers": [container]
                }
            }
        }
    })
}

fn pod(install: &Install) -> Value {
    json!({
        "serviceAccountName": SERVICE_ACCOUNT,
        "automountServiceAccountToken": true,
        "enableServiceLinks": false,
        "terminationGracePeriodSeconds": 30,
        "securityContext": pod_security(),
        "dnsConfig": {
            "#": "With the usual ndots:5 an outside host such as ci.example.org is first looked for below the cluster's own\n\
                  domain, where a tenant who owns the namespace org could answer for it. With 1 it is asked for as it is.",
            "options": [{"name": "ndots", "value": "1"}]
        },
        "affinity": {"podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [{
            "weight": 100,
            "podAffinityTerm": {
                "topologyKey": "kubernetes.io/hostname",
                "labelSelector": {"matchLabels": selector()}
            }
        }]}},
        "topologySpreadConstraints": [{
            "maxSkew": 1, "topologyKey": "topology.kubernetes.io/zone", "whenUnsatisfiable": "ScheduleAnyway",
            "labelSelector": {"matchLabels": selector()}
        }],
        "volumes": [{
            "#": "The credentials of the channels in CoppiceConfig, for those who have any: each key is a file.",
            "name": "credentials", "secret": {"secretName": CREDENTIALS, "optional": true}
        }],
        "containers": [container(install)]
    })
}

fn container(install: &Install) -> Value {
    let probe = |path: &str, period: u32, failures: u32| {
        json!({
            "httpGet": {"path": path, "port": "probes"},
            "periodSeconds": period, "timeoutSeconds": 3, "failureThreshold": failures
        })
    };
    let mut startup = probe("/livez", 2, 60);
    startup["#"] = json!("Two minutes for a slow node; after that, liveness has the word.");
    let mut env = vec![
        field("COPPICE_NAMESPACE", "metadata.namespace"),
        field("POD_NAME", "metadata.name"),
        json!({"name": "COPPICE_LISTEN", "value": "0.0.0.0:8080"}),
        json!({"name": "COPPICE_LISTEN_PROBES", "value": "0.0.0.0:8081"}),
        json!({"name": "COPPICE_LOG_FORMAT", "value": "json"}),
        json!({"name": "COPPICE_CREDENTIALS_DIR", "value": CREDENTIALS_DIR}),
    ];
    env.extend(allocator());
    json!({
        "name": "operator",
        "image": install.image("image", PROGRAM),
        "imagePullPolicy": "IfNotPresent",
        "env": env,
        "ports": [
            {"name": "metrics", "containerPort": 8080, "protocol": "TCP"},
            {"name": "probes", "containerPort": 8081, "protocol": "TCP"}
        ],
        "startupProbe": startup,
        "livenessProbe": probe("/livez", 10, 3),
        "readinessProbe": probe("/readyz", 5, 2),
        "resources": {"requests": {"cpu": "50m", "memory": "64Mi"}, "limits": {"memory": "256Mi"}},
        "volumeMounts": [{"name": "credentials", "mountPath": CREDENTIALS_DIR, "readOnly": true}],
        "securityContext": container_security()
    })
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
        let (job, operator) = (wake_all(&install), deployment(&install));
        assert!(env(&job).len() > 3);
        assert_eq!(env(&job), env(&operator));
        let minutes: u64 = WAKE_WAIT.strip_suffix('m').unwrap().parse().unwrap();
        let deadline = job["spec"]["activeDeadlineSeconds"].as_u64().unwrap();
        // And before Helm gives up after the 15 minutes that the notes advise.
        assert!((minutes * 60 + 60..15 * 60).contains(&deadline), "{deadline}");
    }
}
