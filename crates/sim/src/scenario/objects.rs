//! Objects of the scenarios, and requests about them.

use serde_json::{Value, json};

use crate::server::{Request, Server, ServerReply};

/// The path of a manager.
pub fn manager_path(namespace: &str) -> String {
    format!("/apis/coppice.dev/v1alpha1/namespaces/{namespace}/namespacemanagers")
}

/// Creates a namespace.
pub fn namespace(name: &str) -> Request {
    let object = json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": name } });
    Request::post("/api/v1/namespaces", &object)
}

/// Creates the manager `m` of a namespace.
pub fn manager(namespace: &str, policies: &Value) -> Request {
    manager_with(namespace, &json!({ "policies": policies }))
}

/// Creates the manager `m` of a namespace, with any spec.
pub fn manager_with(namespace: &str, spec: &Value) -> Request {
    let object = json!({
        "apiVersion": "coppice.dev/v1alpha1", "kind": "NamespaceManager",
        "metadata": { "name": "m", "namespace": namespace }, "spec": spec,
    });
    Request::post(&manager_path(namespace), &object)
}

/// Changes the spec of the manager `m` by a merge patch.
pub fn change_manager(namespace: &str, spec: &Value) -> Request {
    let path = format!("{}/m", manager_path(namespace));
    Request::patch(&path, "application/merge-patch+json", &json!({ "spec": spec }))
}

/// The path of cluster managers.
const CLUSTER_MANAGERS: &str = "/apis/coppice.dev/v1alpha1/clusternamespacemanagers";

/// Creates a cluster manager.
pub fn cluster_manager(name: &str, spec: &Value) -> Request {
    let object = json!({
        "apiVersion": "coppice.dev/v1alpha1", "kind": "ClusterNamespaceManager",
        "metadata": { "name": name }, "spec": spec,
    });
    Request::post(CLUSTER_MANAGERS, &object)
}

/// Changes the spec of a cluster manager by a merge patch.
pub fn change_cluster_manager(name: &str, spec: &Value) -> Request {
    let path = format!("{CLUSTER_MANAGERS}/{name}");
    Request::patch(&path, "application/merge-patch+json", &json!({ "spec": spec }))
}

/// Approves what the present spec of a cluster manager makes due, for so many namespaces and until then.
pub fn approve(server: &Server, name: &str, namespaces: u32, until: &str) -> Request {
    let manager = server.object("coppice.dev", "clusternamespacemanagers", "", name);
    let digest = manager.map_or(Value::Null, |manager| manager["status"]["policyDigest"].clone());
    let approval = json!({ "digest": digest, "namespaces": namespaces, "validUntil": until });
    change_cluster_manager(name, &json!({ "approval": approval }))
}

/// Deletes a cluster manager.
pub fn delete_cluster_manager(name: &str) -> Request {
    Request::delete(&format!("{CLUSTER_MANAGERS}/{name}"))
}

/// Creates the record of a namespace, as its users may.
pub fn namespace_record(namespace: &str, spec: &Value) -> Request {
    let object = json!({
        "apiVersion": "coppice.dev/v1alpha1", "kind": "ManagedNamespace",
        "metadata": { "name": "coppice", "namespace": namespace }, "spec": spec,
    });
    Request::post(&format!("/apis/coppice.dev/v1alpha1/namespaces/{namespace}/managednamespaces"), &object)
}

/// Changes the spec of the record of a namespace by a merge patch.
pub fn change_record(namespace: &str, spec: &Value) -> Request {
    let path = format!("/apis/coppice.dev/v1alpha1/namespaces/{namespace}/managednamespaces/coppice");
    Request::patch(&path, "application/merge-patch+json", &json!({ "spec": spec }))
}

/// The record of a namespace; null if it is not there.
pub fn record_of(server: &Server, namespace: &str) -> Value {
    let record = server.object("coppice.dev", "managednamespaces", namespace, "coppice");
    record.map_or(Value::Null, |record| (**record).clone())
}

/// The settings, as they are at the beginning unless a scenario says otherwise.
pub fn config(spec: &Value) -> Request {
    let object = json!({
        "apiVersion": "coppice.dev/v1alpha1", "kind": "CoppiceConfig",
        "metadata": { "name": "coppice" }, "spec": spec,
    });
    Request::post("/apis/coppice.dev/v1alpha1/coppiceconfigs", &object)
}

/// Changes the settings by a merge patch.
pub fn change_config(spec: &Value) -> Request {
    let path = "/apis/coppice.dev/v1alpha1/coppiceconfigs/coppice";
    Request::patch(path, "application/merge-patch+json", &json!({ "spec": spec }))
}

/// A policy that deletes the namespace some time after its creation.
pub fn delete_after(after: &str) -> Value {
    json!({ "name": "delete", "when": { "ttl": { "after": after } }, "then": { "delete": {} } })
}

/// Creates a pod that no controller owns.
pub fn pod(namespace: &str, name: &str) -> Request {
    labeled_pod(namespace, name, &json!({ "app": "test" }))
}

/// The same, whose container the simulated kubelet never starts.
pub fn pod_that_waits(namespace: &str, name: &str) -> Request {
    labeled_pod(namespace, name, &json!({ "plane.coppice.dev/outcome": "pending" }))
}

fn labeled_pod(namespace: &str, name: &str, labels: &Value) -> Request {
    let object = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": { "name": name, "namespace": namespace, "labels": labels },
        "spec": { "containers": [{ "name": "main", "image": "test" }], "restartPolicy": "Never" },
    });
    Request::post(&format!("/api/v1/namespaces/{namespace}/pods"), &object)
}

/// Sets the phase of a pod, as its node would.
pub fn pod_phase(namespace: &str, name: &str, phase: &str) -> Request {
    let path = format!("/api/v1/namespaces/{namespace}/pods/{name}/status");
    Request::patch(&path, "application/merge-patch+json", &json!({ "status": { "phase": phase } }))
}

/// A pod runs, and its node says this of whether it is ready: `True`, `False` or `Unknown`.
pub fn pod_runs(namespace: &str, name: &str, ready: &str) -> Request {
    let path = format!("/api/v1/namespaces/{namespace}/pods/{name}/status");
    let conditions = json!([{ "type": "Ready", "status": ready }]);
    let status = json!({ "phase": "Running", "conditions": conditions });
    Request::patch(&path, "application/merge-patch+json", &json!({ "status": status }))
}

/// Creates a Deployment.
pub fn deployment(namespace: &str, name: &str, replicas: u32) -> Request {
    let labels = json!({ "app": name });
    let object = json!({
        "apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": { "name": name, "namespace": namespace, "labels": labels },
        "spec": {
            "replicas": replicas, "selector": { "matchLabels": labels },
            "template": {
                "metadata": { "labels": labels },
                "spec": { "containers": [{ "name": "main", "image": "test" }] },
            },
        },
    });
    Request::post(&format!("/apis/apps/v1/namespaces/{namespace}/deployments"), &object)
}

/// The manager `m` of a namespace; null if it is not there.
pub fn manager_of(server: &Server, namespace: &str) -> Value {
    let manager = server.object("coppice.dev", "namespacemanagers", namespace, "m");
    manager.map_or(Value::Null, |manager| (**manager).clone())
}

/// Whether a namespace is there.
pub fn exists(server: &Server, namespace: &str) -> bool {
    server.object("", "namespaces", "", namespace).is_some()
}

/// Whether an answer says that it was done.
pub(crate) fn done(answer: &ServerReply) -> bool {
    match answer {
        ServerReply::Done(response) => response.code < 300,
        ServerReply::Watch(_) => true,
    }
}
