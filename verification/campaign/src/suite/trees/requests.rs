//! Requests about trees, and what people wait for before they send the next one.

use std::sync::OnceLock;

use coppice_api::names::{ANNOTATION_LEDGER, LABEL_PARENT, LABEL_SUBNAMESPACE, TREE_QUOTA_NAME};
use coppice_sim::scenario::objects::namespace;
use coppice_sim::server::{Request, Server};
use serde_json::{Value, json};

/// The kinds of trees. Made once, because generating the schemas takes longer than a run.
pub(super) fn definitions() -> &'static [Request] {
    static DEFINITIONS: OnceLock<Vec<Request>> = OnceLock::new();
    DEFINITIONS.get_or_init(|| {
        let of_trees = ["NamespaceTree", "QuotaTransfer", "Subnamespace"];
        let path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
        let definitions = coppice_api::crds().into_iter();
        let definitions = definitions.filter(|crd| of_trees.contains(&crd.spec.names.kind.as_str()));
        definitions.map(|crd| Request::post(path, &json!(crd))).collect()
    })
}

const API: &str = "/apis/coppice.dev/v1alpha1";
const MERGE: &str = "application/merge-patch+json";

/// A quota of so many pods,
pub(super) fn only_pods(pods: u32) -> Value {
    json!({ "pods": pods.to_string() })
}

/// and one of so many cpus.
pub(super) fn only_cpu(cpu: u32) -> Value {
    json!({ "cpu": cpu.to_string() })
}

/// A namespace, and the tree with it as its root.
pub(super) fn tree(root: &str, pods: u32) -> [Request; 2] {
    tree_with(root, &only_pods(pods))
}

/// The same with more than pods.
pub(super) fn tree_with(root: &str, hard: &Value) -> [Request; 2] {
    tree_of(root, &json!({ "root": root, "quota": { "hard": hard } }))
}

/// The same, and `LimitRange`s are copied down the tree.
pub(super) fn tree_with_limits(root: &str, pods: u32) -> [Request; 2] {
    let propagate = json!({ "limitRanges": { "mode": "Propagate" } });
    tree_of(root, &json!({ "root": root, "quota": { "hard": only_pods(pods) }, "propagate": propagate }))
}

fn tree_of(root: &str, spec: &Value) -> [Request; 2] {
    let tree = json!({
        "apiVersion": "coppice.dev/v1alpha1", "kind": "NamespaceTree", "metadata": { "name": root }, "spec": spec,
    });
    [namespace(root), Request::post(&format!("{API}/namespacetrees"), &tree)]
}

pub(super) fn change_total(root: &str, pods: u32) -> Request {
    change_total_to(root, &only_pods(pods))
}

pub(super) fn change_total_to(root: &str, hard: &Value) -> Request {
    let patch = json!({ "spec": { "quota": { "hard": hard } } });
    Request::patch(&format!("{API}/namespacetrees/{root}"), MERGE, &patch)
}

pub(super) fn subnamespace(parent: &str, name: &str, pods: u32) -> Request {
    subnamespace_with(parent, name, &only_pods(pods))
}

pub(super) fn subnamespace_with(parent: &str, name: &str, hard: &Value) -> Request {
    let object = json!({
        "apiVersion": "coppice.dev/v1alpha1", "kind": "Subnamespace",
        "metadata": { "name": name, "namespace": parent },
        "spec": { "quota": { "hard": hard } },
    });
    Request::post(&format!("{API}/namespaces/{parent}/subnamespaces"), &object)
}

pub(super) fn change(parent: &str, name: &str, pods: u32) -> Request {
    change_quota(parent, name, &only_pods(pods))
}

pub(super) fn change_quota(parent: &str, name: &str, hard: &Value) -> Request {
    let patch = json!({ "spec": { "quota": { "hard": hard } } });
    Request::patch(&format!("{API}/namespaces/{parent}/subnamespaces/{name}"), MERGE, &patch)
}

/// The same, and nothing is kept of it.
pub(super) fn dry_run(request: Request) -> Request {
    Request { query: "dryRun=All".to_owned(), ..request }
}

pub(super) fn delete_subnamespace(parent: &str, name: &str) -> Request {
    Request::delete(&format!("{API}/namespaces/{parent}/subnamespaces/{name}"))
}

/// Who has the verb `set-tree` lets a Subnamespace go, whatever it waits for.
pub(super) fn drop_finalizers(parent: &str, name: &str) -> Request {
    let patch = json!({ "metadata": { "finalizers": [] } });
    Request::patch(&format!("{API}/namespaces/{parent}/subnamespaces/{name}"), MERGE, &patch)
}

/// Consent to delete what is below it, too.
pub(super) fn consent(parent: &str, name: &str, until: &str) -> Request {
    let patch = json!({ "spec": { "cascadeUntil": until } });
    Request::patch(&format!("{API}/namespaces/{parent}/subnamespaces/{name}"), MERGE, &patch)
}

/// Marks an existing namespace as that of a `Subnamespace`, as `coppice tree adopt` does.
pub(super) fn adopt(server: &Server, parent: &str, name: &str) -> Request {
    let object = server.object("coppice.dev", "subnamespaces", parent, name);
    let uid = object.map_or(Value::Null, |object| object["metadata"]["uid"].clone());
    let patch = json!({ "metadata": { "labels": { LABEL_SUBNAMESPACE: uid, LABEL_PARENT: parent } } });
    Request::patch(&format!("/api/v1/namespaces/{name}"), MERGE, &patch)
}

/// The namespaces of a tree are to stay when it is deleted.
pub(super) fn keep_namespaces(root: &str) -> Request {
    let patch = json!({ "spec": { "deletionPolicy": "Detach" } });
    Request::patch(&format!("{API}/namespacetrees/{root}"), MERGE, &patch)
}

pub(super) fn delete_tree(root: &str) -> Request {
    Request::delete(&format!("{API}/namespacetrees/{root}"))
}

pub(super) fn delete_namespace(name: &str) -> Request {
    Request::delete(&format!("/api/v1/namespaces/{name}"))
}

/// Approved by the one who asks.
pub(super) fn transfer(source: &str, name: &str, to: &str, through: &str, pods: u32) -> Request {
    transfer_of(source, name, (to, through), &only_pods(pods))
}

pub(super) fn transfer_of(source: &str, name: &str, (to, through): (&str, &str), amount: &Value) -> Request {
    let object = json!({
        "apiVersion": "coppice.dev/v1alpha1", "kind": "QuotaTransfer",
        "metadata": { "name": name, "namespace": source },
        "spec": {
            "to": to, "through": through, "amount": amount, "reason": "a load test",
            "requester": "alice", "approvedBy": "alice",
        },
    });
    Request::post(&format!("{API}/namespaces/{source}/quotatransfers"), &object)
}

pub(super) fn delete_transfer(source: &str, name: &str) -> Request {
    Request::delete(&format!("{API}/namespaces/{source}/quotatransfers/{name}"))
}

pub(super) fn bind(namespace: &str, name: &str, user: &str) -> Request {
    let object = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding",
        "metadata": { "name": name, "namespace": namespace },
        "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "edit" },
        "subjects": [{ "apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": user }],
    });
    Request::post(&format!("{BINDINGS}/{namespace}/rolebindings"), &object)
}

const BINDINGS: &str = "/apis/rbac.authorization.k8s.io/v1/namespaces";

pub(super) fn unbind(namespace: &str, name: &str) -> Request {
    Request::delete(&format!("{BINDINGS}/{namespace}/rolebindings/{name}"))
}

/// Containers that do not say what they request get that much cpu.
pub(super) fn limit_range(namespace: &str, name: &str, cpu: &str) -> Request {
    let object = json!({
        "apiVersion": "v1", "kind": "LimitRange", "metadata": { "name": name, "namespace": namespace },
        "spec": limits(cpu),
    });
    Request::post(&format!("/api/v1/namespaces/{namespace}/limitranges"), &object)
}

pub(super) fn change_limit_range(namespace: &str, name: &str, cpu: &str) -> Request {
    let path = format!("/api/v1/namespaces/{namespace}/limitranges/{name}");
    Request::patch(&path, MERGE, &json!({ "spec": limits(cpu) }))
}

pub(super) fn delete_limit_range(namespace: &str, name: &str) -> Request {
    Request::delete(&format!("/api/v1/namespaces/{namespace}/limitranges/{name}"))
}

fn limits(cpu: &str) -> Value {
    json!({ "limits": [{ "type": "Container", "defaultRequest": { "cpu": cpu } }] })
}

/// A pod that asks for a tenth of a cpu.
pub(super) fn pod_with_cpu(namespace: &str, name: &str) -> Request {
    pod_requesting(namespace, name, "100m")
}

/// A pod that asks for a cpu.
pub(super) fn pod_with_one_cpu(namespace: &str, name: &str) -> Request {
    pod_requesting(namespace, name, "1")
}

fn pod_requesting(namespace: &str, name: &str, cpu: &str) -> Request {
    let container = json!({ "name": "main", "image": "test", "resources": { "requests": { "cpu": cpu } } });
    let object = json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": { "name": name, "namespace": namespace },
        "spec": { "containers": [container] },
    });
    Request::post(&format!("/api/v1/namespaces/{namespace}/pods"), &object)
}

pub(super) fn delete_pod(namespace: &str, name: &str) -> Request {
    Request::delete(&format!("/api/v1/namespaces/{namespace}/pods/{name}"))
}

/// Whether a namespace has what was last asked for it.
pub(super) fn ready(server: &Server, parent: &str, name: &str) -> bool {
    server.object("coppice.dev", "subnamespaces", parent, name).is_some_and(|object| {
        let current = object["status"]["observedGeneration"] == object["metadata"]["generation"];
        current && object["status"]["phase"] == "Ready"
    })
}

/// Whether what was last asked for a namespace is refused.
pub(super) fn refused(server: &Server, parent: &str, name: &str) -> bool {
    server.object("coppice.dev", "subnamespaces", parent, name).is_some_and(|object| {
        let current = object["status"]["observedGeneration"] == object["metadata"]["generation"];
        current && object["status"]["phase"] == "Refused"
    })
}

/// Whether a namespace has been allotted so many pods.
pub(super) fn allotted(server: &Server, namespace: &str, pods: u32) -> bool {
    server.object("", "resourcequotas", namespace, TREE_QUOTA_NAME).is_some_and(|quota| {
        let ledger = quota["metadata"]["annotations"][ANNOTATION_LEDGER].as_str().unwrap_or_default();
        let ledger: Value = serde_json::from_str(ledger).unwrap_or_default();
        ledger["allotment"]["pods"] == *pods.to_string()
    })
}

/// Whether a namespace has an own quota of so many pods, in force.
pub(super) fn owns(server: &Server, namespace: &str, pods: u32) -> bool {
    server.object("", "resourcequotas", namespace, TREE_QUOTA_NAME).is_some_and(|quota| {
        let pods = pods.to_string();
        ["spec", "status"].iter().all(|part| quota[part]["hard"]["pods"] == *pods)
    })
}

/// Whether a namespace has a `LimitRange` with so much cpu.
pub(super) fn has_limits(server: &Server, namespace: &str, name: &str, cpu: &str) -> bool {
    let object = server.object("", "limitranges", namespace, name);
    object.is_some_and(|object| object["spec"] == limits(cpu))
}

/// Whether a namespace has a role binding of this name, of its own or as a copy.
pub(super) fn bound(server: &Server, namespace: &str, name: &str) -> bool {
    server.object("rbac.authorization.k8s.io", "rolebindings", namespace, name).is_some()
}

/// Whether nothing of a namespace and of its quota says that they are of a tree.
pub(super) fn in_no_tree(server: &Server, namespace: &str) -> bool {
    let marked = |object: &Value| {
        let fields = ["labels", "annotations"].map(|field| &object["metadata"][field]);
        let mut keys = fields.into_iter().flat_map(|field| field.as_object().into_iter().flatten());
        keys.any(|(key, _)| key.contains("coppice.dev"))
    };
    let own = server.object("", "namespaces", "", namespace);
    let quota = server.object("", "resourcequotas", namespace, TREE_QUOTA_NAME);
    [own, quota].into_iter().all(|object| object.is_some_and(|object| !marked(object)))
}

/// Whether a `Subnamespace` is being deleted.
pub(super) fn is_going(server: &Server, parent: &str, name: &str) -> bool {
    let object = server.object("coppice.dev", "subnamespaces", parent, name);
    object.is_some_and(|object| object["metadata"]["deletionTimestamp"].is_string())
}

/// Whether a `Subnamespace` is gone.
pub(super) fn gone(server: &Server, parent: &str, name: &str) -> bool {
    server.object("coppice.dev", "subnamespaces", parent, name).is_none()
}

/// Whether a transfer has ended.
pub(super) fn ended(server: &Server, source: &str, name: &str) -> bool {
    server
        .object("coppice.dev", "quotatransfers", source, name)
        .is_none_or(|transfer| transfer["status"]["endedAt"].is_string())
}

/// Whether there is no such transfer, or not any more.
pub(super) fn no_transfer(server: &Server, source: &str, name: &str) -> bool {
    server.object("coppice.dev", "quotatransfers", source, name).is_none()
}

/// Whether a namespace has put aside what it is to give, which may not be in force yet; or the transfer has ended.
pub(super) fn holds_or_ended(server: &Server, source: &str, name: &str) -> bool {
    let quota = server.object("", "resourcequotas", source, TREE_QUOTA_NAME);
    let ledger = quota.and_then(|quota| quota["metadata"]["annotations"][ANNOTATION_LEDGER].as_str());
    ledger.is_some_and(|ledger| ledger.contains("held")) || ended(server, source, name)
}

/// Whether a transfer has begun.
pub(super) fn begun(server: &Server, source: &str, name: &str) -> bool {
    server
        .object("coppice.dev", "quotatransfers", source, name)
        .is_none_or(|transfer| transfer["status"]["begunAt"].is_string())
}

/// A pod that takes its time to stop.
pub(super) fn slow_pod(namespace: &str, name: &str, delay: &str) -> Request {
    let object = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {
            "name": name, "namespace": namespace,
            "labels": { "plane.coppice.dev/delete-delay": delay },
        },
        "spec": { "containers": [{ "name": "main", "image": "test" }], "restartPolicy": "Never" },
    });
    Request::post(&format!("/api/v1/namespaces/{namespace}/pods"), &object)
}
