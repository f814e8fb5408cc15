//! The admission webhook of trees: what the API server asks it, and what it needs of its own.

use coppice_api::names::{GROUP, TREES_ACCOUNT, TREES_ADMISSION};
use coppice_serve::admission::PATH;
use serde_json::{Value, json};

use crate::manifests::Install;
use crate::manifests::component::{rule, validation};
use crate::manifests::replicas::Replicas;

/// The port of the pods.
pub(super) const PORT: u16 = 9443;

/// In the whole cluster: whom the API server trusts.
pub(super) fn cluster_rule() -> Value {
    json!({
        "#": "Whom the API server trusts as its admission webhook: patched is caBundle. No admission policy can narrow this, since the\n\
              API server asks none about webhook configurations; RBAC leaves this account that one object.",
        "apiGroups": ["admissionregistration.k8s.io"], "resources": ["validatingwebhookconfigurations"],
        "resourceNames": [TREES_ACCOUNT], "verbs": ["get", "patch"]
    })
}

/// In Coppice's own namespace: the certificate authority.
pub(super) fn local_rules() -> [Value; 2] {
    [
        rule(
            "The certificate authority of the admission webhook, made at the first start. Creation cannot be limited to a name; the\n\
             policy coppice-tree-own does it.",
            "",
            &["secrets"],
            &["create"],
        ),
        json!({
            "apiGroups": [""], "resources": ["secrets"], "resourceNames": [TREES_ADMISSION],
            "verbs": ["get", "patch"]
        }),
    ]
}

/// What the account creates of Secrets.
pub(super) fn own_secret() -> Value {
    validation(
        &format!(
            "request.resource.resource != 'secrets' ||\n\
             object.metadata.name == '{TREES_ADMISSION}' && dyn(object).?type.orValue('Opaque') == 'Opaque'"
        ),
        &format!("The account of trees creates no Secret but {TREES_ADMISSION}, of type Opaque."),
    )
}

/// What the API server calls, and when.
pub(super) fn objects(install: &Install, replicas: &Replicas<'_>) -> [Value; 2] {
    let mut service = replicas.service();
    service["#"] = json!("For the API server, which calls the admission webhook of any replica.");
    service["metadata"] = install.local(TREES_ADMISSION);
    service["spec"].as_object_mut().map(|spec| spec.remove("clusterIP"));
    service["spec"]["ports"] =
        json!([{"name": "admission", "port": 443, "protocol": "TCP", "targetPort": "admission"}]);
    let asked = |operations: &[&str], resource: &str| {
        json!({
            "apiGroups": [GROUP], "apiVersions": ["v1alpha1"], "operations": operations, "resources": [resource],
            "scope": "Namespaced"
        })
    };
    let user = install.user(TREES_ACCOUNT);
    let configuration = json!({
        "#": "Says early, in a sentence, what would be refused a moment later. Nothing relies on it: where it does not answer within 2 s,\n\
              the API server admits. Coppice keeps caBundle by itself, unless it is started with --admission-cert-dir.",
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration",
        "metadata": install.cluster(TREES_ACCOUNT),
        "webhooks": [{
            "name": "trees.coppice.dev",
            "admissionReviewVersions": ["v1"],
            "clientConfig": {"service": {
                "name": TREES_ADMISSION, "namespace": install.namespace, "path": PATH, "port": 443
            }},
            "failurePolicy": "Ignore",
            "matchConditions": [{"name": "by-others", "expression": format!("request.userInfo.username != '{user}'")}],
            "matchPolicy": "Equivalent",
            "rules": [asked(&["CREATE", "UPDATE"], "subnamespaces"), asked(&["CREATE"], "quotatransfers")],
            "sideEffects": "None",
            "timeoutSeconds": 2
        }]
    });
    [service, configuration]
}
