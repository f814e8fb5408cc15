//! What the pods of all programs have in common.

use serde_json::{Value, json};

/// What the allocator of our programs is asked for.
pub(crate) fn allocator() -> [Value; 2] {
    [
        // Huge pages, where the kernel hands them out to everybody, keep 2 MiB for a few live bytes.
        json!({"name": "MIMALLOC_ALLOW_THP", "value": "0"}),
        // What a list needed goes back to the system at once.
        json!({"name": "MIMALLOC_PURGE_DELAY", "value": "0"}),
    ]
}

/// A variable of the environment that holds a field of the pod.
pub(crate) fn field(name: &str, path: &str) -> Value {
    json!({"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}})
}

/// The `securityContext` of a pod: no user but the image's own.
pub(crate) fn pod_security() -> Value {
    json!({
        "runAsNonRoot": true, "runAsUser": 65532, "runAsGroup": 65532, "fsGroup": 65532,
        "seccompProfile": {"type": "RuntimeDefault"}
    })
}

/// The `securityContext` of a container: no privileges, nothing to write to.
pub(crate) fn container_security() -> Value {
    json!({
        "allowPrivilegeEscalation": false, "readOnlyRootFilesystem": true, "capabilities": {"drop": ["ALL"]}
    })
}
