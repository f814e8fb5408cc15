//! The operator's namespace, account and workload.

use coppice_api::names::{SERVICE_ACCOUNT, SYSTEM_NAMESPACE};
use serde_json::{Value, json};

use super::Install;

/// The name of the Deployment, its Service and its `PodDisruptionBudget`.
pub(crate) const NAME: &str = "coppice-operator";
/// The image, without its tag.
pub(crate) const IMAGE: &str = "ghcr.io/coppice-dev/coppice-operator";

/// The namespace. Its pods need no privileges, and none can get any.
pub(crate) fn namespace(install: &Install) -> Value {
    let mut metadata = install.cluster(SYSTEM_NAMESPACE);
    metadata["labels"]["pod-security.kubernetes.io/enforce"] = json!("restricted");
    json!({"apiVersion": "v1", "kind": "Namespace", "metadata": metadata})
}

/// The account that the operator runs as; its token is mounted where a pod asks for it.
pub(crate) fn service_account(install: &Install) -> Value {
    json!({
        "apiVersion": "v1", "kind": "ServiceAccount", "metadata": install.local(SERVICE_ACCOUNT),
        "automountServiceAccountToken": false
    })
}

/// Service, disruption budget, Deployment.
pub(crate) fn workload(install: &Install) -> Vec<Value> {
    vec![
        json!({
            "#": "For metrics: headless, so that each replica is found.",
            "apiVersion": "v1", "kind": "Service", "metadata": install.local(NAME),
            "spec": {
                "clusterIP": "None",
                "selector": selector(),
                "ports": [{"name": "http", "port": 8080, "protocol": "TCP", "targetPort": "http"}]
            }
        }),
        json!({
            "apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": install.local(NAME),
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
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": install.local(NAME),
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

fn pod(install: &Install) -> Value {
    json!({
        "serviceAccountName": SERVICE_ACCOUNT,
        "automountServiceAccountToken": true,
        "enableServiceLinks": false,
        "terminationGracePeriodSeconds": 30,
        "securityContext": {
            "runAsNonRoot": true, "runAsUser": 65532, "runAsGroup": 65532, "fsGroup": 65532,
            "seccompProfile": {"type": "RuntimeDefault"}
        },
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
        "containers": [container(install)]
    })
}

fn container(install: &Install) -> Value {
    let probe = |path: &str, period: u32, failures: u32| {
        json!({
            "httpGet": {"path": path, "port": "http"},
            "periodSeconds": period, "timeoutSeconds": 3, "failureThreshold": failures
        })
    };
    let field =
        |name: &str, path: &str| json!({"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}});
    let mut startup = probe("/livez", 2, 60);
    startup["#"] = json!("Two minutes for a slow node; after that, liveness has the word.");
    json!({
        "name": "operator",
        "image": format!("{IMAGE}:{}", install.version),
        "imagePullPolicy": "IfNotPresent",
        "env": [
            field("COPPICE_NAMESPACE", "metadata.namespace"),
            field("POD_NAME", "metadata.name"),
            {"name": "COPPICE_LISTEN", "value": "0.0.0.0:8080"},
            {"name": "COPPICE_LOG_FORMAT", "value": "json"},
            // Huge pages, where the kernel hands them out to everybody, keep 2 MiB for a few live bytes.
            {"name": "MIMALLOC_ALLOW_THP", "value": "0"},
            // What a list needed goes back to the system at once.
            {"name": "MIMALLOC_PURGE_DELAY", "value": "0"}
        ],
        "ports": [{"name": "http", "containerPort": 8080, "protocol": "TCP"}],
        "startupProbe": startup,
        "livenessProbe": probe("/livez", 10, 3),
        "readinessProbe": probe("/readyz", 5, 2),
        "resources": {"requests": {"cpu": "50m", "memory": "64Mi"}, "limits": {"memory": "256Mi"}},
        "securityContext": {
            "allowPrivilegeEscalation": false, "readOnlyRootFilesystem": true, "capabilities": {"drop": ["ALL"]}
        }
    })
}
