//! What every new namespace gets: a service account and the certificates of the API server.

use jiff::Timestamp;
use serde_json::json;

use super::super::{ObjectKey, Server, meta};
use super::Requeue;
use super::support::{ControllerUser, find, kind};

/// The config map with the certificates.
pub(super) const ROOT_CA: &str = "kube-root-ca.crt";
const DESCRIPTION: &str = "Contains a CA bundle that can be used to verify the kube-apiserver when using internal endpoints such as the internal service IP or kubernetes.default.svc. No other usage is guaranteed across distributions of Kubernetes clusters.";
const CERTIFICATE: &str = "-----BEGIN CERTIFICATE-----\n-----END CERTIFICATE-----\n";

fn active(server: &Server, namespace: &str) -> bool {
    find(server, "", "namespaces", &ObjectKey::new("", namespace)).is_some_and(|(_, o)| !meta::deleting(&o))
}

/// Makes the service account `default` if it is not there.
pub(super) fn service_account(server: &mut Server, now: Timestamp, namespace: &str) -> Requeue {
    let who = ControllerUser::new("system:serviceaccount:kube-system:service-account-controller", now);
    let key = ObjectKey::new(namespace, "default");
    if !active(server, namespace) || find(server, "", "serviceaccounts", &key).is_some() {
        return Requeue::No;
    }
    let Some(kind) = kind(server, "", "serviceaccounts") else { return Requeue::No };
    let account = json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default"}});
    match who.create(server, &kind, namespace, account) {
        Ok(_) => Requeue::No,
        Err(_) => Requeue::AfterFailure,
    }
}

/// Makes the config map with the certificates if it is not there, and restores it.
pub(super) fn root_ca(server: &mut Server, now: Timestamp, namespace: &str) -> Requeue {
    let who = ControllerUser::new("system:serviceaccount:kube-system:root-ca-cert-publisher", now);
    if !active(server, namespace) {
        return Requeue::No;
    }
    let Some(kind) = kind(server, "", "configmaps") else { return Requeue::No };
    let data = json!({"ca.crt": CERTIFICATE});
    let done = match find(server, "", "configmaps", &ObjectKey::new(namespace, ROOT_CA)) {
        Some((_, map)) if map["data"] == data => Ok(map),
        Some((_, map)) => who.update(server, &kind, &map, |map| map["data"] = data),
        None => {
            let map = json!({
                "apiVersion": "v1",
                "kind": "ConfigMap",
                "metadata": {"name": ROOT_CA, "annotations": {"kubernetes.io/description": DESCRIPTION}},
                "data": data,
            });
            who.create(server, &kind, namespace, map)
        }
    };
    if done.is_ok() { Requeue::No } else { Requeue::AfterFailure }
}
