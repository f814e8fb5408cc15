//! What is seeded, as etcd stores it: realistic in size and shape, since both decide about the memory it costs.

use serde_json::{Value, json};

/// The objects of one plane.
pub struct Objects {
    /// When everything was created, by the plane's clock.
    created: String,
    /// The environment variables of a pod, by which it gets the wanted size.
    environment: Value,
}

/// An object under its key.
pub type EtcdEntry = (String, Value);

fn uid(kind: u32, n: usize) -> String {
    format!("{kind:08x}-5ca1-4e00-8000-{n:012x}")
}

/// The name of the n-th namespace.
pub fn namespace_name(n: usize) -> String {
    format!("team-{:03}-preview-{n:05}", n % 200)
}

impl Objects {
    /// Objects created then, by the plane's clock, whose pods are about so long as JSON.
    pub fn new(created: String, pod_bytes: usize) -> Self {
        let mut this = Self { created, environment: Value::Null };
        let missing = pod_bytes.saturating_sub(this.pod(0, 0, 0).1.to_string().len());
        let variable = |n| json!({"name": format!("APPLICATION_SETTING_{n:02}"), "value": format!("value-of-the-setting-{n:06}")});
        this.environment = (0..missing / 70).map(variable).collect();
        this
    }

    /// The n-th namespace.
    pub fn namespace(&self, n: usize) -> EtcdEntry {
        let name = namespace_name(n);
        let object = json!({
            "apiVersion": "v1", "kind": "Namespace",
            "metadata": {
                "name": name, "uid": uid(1, n), "creationTimestamp": self.created,
                "labels": {"kubernetes.io/metadata.name": name, "team": format!("team-{:03}", n % 200), "stage": "preview"},
            },
            "spec": {"finalizers": ["kubernetes"]},
            "status": {"phase": "Active"},
        });
        (format!("/registry/namespaces/{name}"), object)
    }

    /// The manager of the n-th namespace: it waits for its pods, and in the end for a time far away.
    pub fn manager(&self, n: usize) -> EtcdEntry {
        let namespace = namespace_name(n);
        let object = json!({
            "apiVersion": "coppice.dev/v1alpha1", "kind": "NamespaceManager",
            "metadata": {
                "name": "lifecycle", "namespace": namespace, "uid": uid(2, n), "generation": 1,
                "creationTimestamp": self.created,
            },
            "spec": {"policies": [
                {
                    "name": "scale down when the tests have passed",
                    "when": {"podsSucceed": {"initialDelay": "60s"}},
                    "then": {"scaleDown": {}},
                },
                {
                    "name": "delete after ten months",
                    "when": {"ttl": {"after": "300d"}},
                    "then": {"delete": {}},
                },
            ]},
        });
        (format!("/registry/coppice.dev/namespacemanagers/{namespace}/lifecycle"), object)
    }

    /// A pod of the n-th namespace; `touched` counts how often it was changed.
    pub fn pod(&self, n: usize, which: usize, touched: usize) -> EtcdEntry {
        const APPS: [&str; 5] = ["frontend", "backend", "database", "worker", "mail"];
        let (namespace, app) = (namespace_name(n), APPS[which % APPS.len()]);
        let replica_set = format!("{app}-{:010x}", n * 7919 + which);
        let name = format!("{replica_set}-{:05x}", n * 31 + which);
        let mut labels = json!({
            "app.kubernetes.io/name": app, "app.kubernetes.io/instance": namespace,
            "app.kubernetes.io/managed-by": "Helm", "pod-template-hash": format!("{:010x}", n * 7919 + which),
        });
        if touched > 0 {
            labels["touched"] = json!(touched.to_string());
        }
        let mut object = json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {
                "name": name, "generateName": format!("{replica_set}-"), "namespace": namespace,
                "uid": uid(16 + u32::try_from(which).unwrap_or(0), n), "creationTimestamp": self.created,
                "labels": labels,
                "ownerReferences": [{
                    "apiVersion": "apps/v1", "kind": "ReplicaSet", "name": replica_set, "uid": uid(3, n),
                    "controller": true, "blockOwnerDeletion": true,
                }],
                "managedFields": self.managed_fields(),
            },
            "spec": spec(app),
            "status": self.status(app, n, which),
        });
        object["spec"]["containers"][0]["env"] = self.environment.clone();
        (format!("/registry/pods/{namespace}/{name}"), object)
    }

    /// A Deployment of the n-th namespace, which is well.
    pub fn deployment(&self, n: usize, which: usize) -> EtcdEntry {
        let (namespace, name) = (namespace_name(n), format!("app-{which}"));
        let condition = |kind: &str, reason: &str| {
            json!({"type": kind, "status": "True", "reason": reason,
            "message": "as it should be", "lastUpdateTime": self.created, "lastTransitionTime": self.created})
        };
        let object = json!({
            "apiVersion": "apps/v1", "kind": "Deployment",
            "metadata": {
                "name": name, "namespace": namespace, "uid": uid(0x1000 + kind(which), n), "generation": 1,
                "creationTimestamp": self.created, "labels": {"app.kubernetes.io/name": name},
                "annotations": {"deployment.kubernetes.io/revision": "1"}, "managedFields": self.managed_fields(),
            },
            "spec": {"replicas": 5, "progressDeadlineSeconds": 600, "revisionHistoryLimit": 10,
                "selector": {"matchLabels": {"app.kubernetes.io/name": name}}, "strategy": {"type": "RollingUpdate"},
                "template": {"metadata": {"labels": {"app.kubernetes.io/name": name}}, "spec": spec(&name)}},
            "status": {"observedGeneration": 1, "replicas": 5, "readyReplicas": 5, "updatedReplicas": 5, "availableReplicas": 5,
                "conditions": [condition("Available", "MinimumReplicasAvailable"), condition("Progressing", "NewReplicaSetAvailable")]},
        });
        (format!("/registry/deployments/{namespace}/{name}"), object)
    }

    /// The ReplicaSet of that Deployment.
    pub fn replica_set(&self, n: usize, which: usize) -> EtcdEntry {
        let (namespace, app) = (namespace_name(n), format!("app-{which}"));
        let name = format!("{app}-{:010x}", n * 7919 + which);
        let object = json!({
            "apiVersion": "apps/v1", "kind": "ReplicaSet",
            "metadata": {
                "name": name, "namespace": namespace, "uid": uid(0x2000 + kind(which), n), "generation": 1,
                "creationTimestamp": self.created, "labels": {"app.kubernetes.io/name": app},
                "ownerReferences": [{"apiVersion": "apps/v1", "kind": "Deployment", "name": app,
                    "uid": uid(0x1000 + kind(which), n), "controller": true, "blockOwnerDeletion": true}],
                "managedFields": self.managed_fields(),
            },
            "spec": {"replicas": 5, "selector": {"matchLabels": {"app.kubernetes.io/name": app}},
                "template": {"metadata": {"labels": {"app.kubernetes.io/name": app}}, "spec": spec(&app)}},
            "status": {"observedGeneration": 1, "replicas": 5, "fullyLabeledReplicas": 5, "readyReplicas": 5, "availableReplicas": 5},
        });
        (format!("/registry/replicasets/{namespace}/{name}"), object)
    }

    fn managed_fields(&self) -> Value {
        let labels = json!({".": {}, "f:app.kubernetes.io/name": {}, "f:app.kubernetes.io/instance": {},
            "f:app.kubernetes.io/managed-by": {}, "f:pod-template-hash": {}});
        let container = json!({".": {}, "f:image": {}, "f:imagePullPolicy": {}, "f:name": {}, "f:env": {},
            "f:resources": {}, "f:terminationMessagePath": {}, "f:terminationMessagePolicy": {}});
        json!([
            {
                "manager": "kube-controller-manager", "operation": "Update", "apiVersion": "v1",
                "time": self.created, "fieldsType": "FieldsV1",
                "fieldsV1": {
                    "f:metadata": {"f:generateName": {}, "f:labels": labels, "f:ownerReferences": {".": {}}},
                    "f:spec": {"f:containers": {"k:{\"name\":\"app\"}": container}, "f:restartPolicy": {},
                        "f:dnsPolicy": {}, "f:schedulerName": {}, "f:securityContext": {}},
                },
            },
            {
                "manager": "kubelet", "operation": "Update", "apiVersion": "v1", "subresource": "status",
                "time": self.created, "fieldsType": "FieldsV1",
                "fieldsV1": {"f:status": {"f:conditions": {}, "f:containerStatuses": {}, "f:phase": {},
                    "f:podIP": {}, "f:podIPs": {}, "f:startTime": {}}},
            },
        ])
    }

    fn status(&self, app: &str, n: usize, which: usize) -> Value {
        let condition = |kind: &str| json!({"type": kind, "status": "True", "lastProbeTime": null, "lastTransitionTime": self.created});
        let ip = format!("10.{}.{}.{}", n / 60_000 % 250, n / 250 % 250, n % 250 + which);
        json!({
            "phase": "Running", "qosClass": "Burstable", "hostIP": "10.0.0.1", "podIP": ip, "podIPs": [{"ip": ip}],
            "startTime": self.created,
            "conditions": [condition("Initialized"), condition("Ready"), condition("ContainersReady"), condition("PodScheduled")],
            "containerStatuses": [{
                "name": "app", "ready": true, "started": true, "restartCount": 0,
                "image": format!("registry.example.com/preview/{app}:1.27.3"),
                "imageID": format!("registry.example.com/preview/{app}@sha256:{:064x}", n * 5 + which),
                "containerID": format!("containerd://{:064x}", n * 5 + which + 1),
                "state": {"running": {"startedAt": self.created}}, "lastState": {},
            }],
        })
    }
}

/// In a uid: which of the workloads of its namespace.
fn kind(which: usize) -> u32 {
    u32::try_from(which).unwrap_or(0)
}

fn spec(app: &str) -> Value {
    json!({
        "restartPolicy": "Always", "dnsPolicy": "ClusterFirst", "nodeName": "fake", "schedulerName": "default-scheduler",
        "serviceAccountName": "default", "serviceAccount": "default", "securityContext": {},
        "terminationGracePeriodSeconds": 30, "enableServiceLinks": true,
        "containers": [{
            "name": "app", "image": format!("registry.example.com/preview/{app}:1.27.3"),
            "imagePullPolicy": "IfNotPresent", "ports": [{"containerPort": 8080, "protocol": "TCP"}],
            "resources": {"requests": {"cpu": "50m", "memory": "64Mi"}, "limits": {"memory": "256Mi"}},
            "terminationMessagePath": "/dev/termination-log", "terminationMessagePolicy": "File",
            "volumeMounts": [{"name": "config", "mountPath": "/etc/app", "readOnly": true}],
        }],
        "volumes": [{"name": "config", "configMap": {"name": "app", "defaultMode": 420}}],
        "tolerations": [
            {"key": "node.kubernetes.io/not-ready", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300},
            {"key": "node.kubernetes.io/unreachable", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300},
        ],
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pods_have_the_wanted_size_and_names_of_their_own() {
        let objects = Objects::new("2026-01-01T00:00:00Z".to_owned(), 4000);
        let (key, pod) = objects.pod(1234, 3, 0);
        let length = pod.to_string().len();
        assert!((3800..4200).contains(&length), "{length}");
        assert_ne!(key, objects.pod(1234, 4, 0).0);
        assert_eq!(key, objects.pod(1234, 3, 1).0);
    }
}
