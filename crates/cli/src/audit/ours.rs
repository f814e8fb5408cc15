//! Which objects and accounts are Coppice's, by what an audit event has of them: group, resource, namespace and name. It has no labels.

use coppice_api::names::{SERVICE_ACCOUNT, TREES_ACCOUNT};
use coppice_clusters_api::names::{PROGRAM, TARGET_NAMESPACE, capi_kubeconfig};
use serde_json::Value;

/// The account in targets that `examples/access/target.yaml` makes for the kubeconfigs that credentials are issued with.
const BOOTSTRAP: &str = "coppice-bootstrap";

/// Namespaces and accounts of an installation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Installation {
    /// Its namespaces, and the one that targets have for accounts.
    pub(crate) namespaces: Vec<String>,
    /// The users of its programs.
    pub(crate) accounts: Vec<String>,
    /// The one of them that writes Secrets with credentials.
    pub(crate) issuer: String,
    /// The namespace of the Secrets that ClusterProviders name.
    pub(crate) access: String,
}

impl Installation {
    /// The installation in these namespaces: the operator's, and that of `coppice-access`.
    pub(crate) fn new(system: &str, access: &str) -> Self {
        let account = |namespace: &str, name: &str| format!("system:serviceaccount:{namespace}:{name}");
        let mut namespaces = vec![system.to_owned(), access.to_owned(), TARGET_NAMESPACE.to_owned()];
        namespaces.sort();
        namespaces.dedup();
        let issuer = account(access, PROGRAM);
        let accounts = vec![
            account(system, SERVICE_ACCOUNT),
            account(system, TREES_ACCOUNT),
            issuer.clone(),
            account(TARGET_NAMESPACE, BOOTSTRAP),
        ];
        Self { namespaces, accounts, issuer, access: access.to_owned() }
    }
}

/// Namespace and name of a Secret.
pub(crate) type SecretName = (String, String);

/// The Secrets with credentials that a `ClusterAccess` names: the one that it writes, and that of the kubeconfig which it issues with.
pub(crate) fn secrets_of_access(access: &Value) -> Vec<SecretName> {
    let (namespace, spec) = (access["metadata"]["namespace"].as_str().unwrap_or_default(), &access["spec"]);
    let cluster = &spec["cluster"];
    let names = [
        spec["output"]["secret"].as_str().map(str::to_owned),
        cluster["kubeconfigSecret"]["name"].as_str().map(str::to_owned),
        cluster["clusterAPI"]["name"].as_str().map(capi_kubeconfig),
        cluster["managedCluster"]["name"].as_str().map(capi_kubeconfig),
    ];
    names.into_iter().flatten().map(|name| (namespace.to_owned(), name)).collect()
}

/// The Secret with the kubeconfig of a `ClusterProvider`, if it names one.
pub(crate) fn secrets_of_provider(provider: &Value, installation: &Installation) -> Vec<SecretName> {
    let name = provider["spec"]["credential"]["secret"].as_str();
    name.map(|name| (installation.access.clone(), name.to_owned())).into_iter().collect()
}

/// Controllers of Kubernetes, as service accounts of `kube-system`. Others there, such as add-ons, are nobody special.
const CONTROLLERS: [&str; 37] = [
    "attachdetach-controller",
    "certificate-controller",
    "clusterrole-aggregation-controller",
    "cronjob-controller",
    "daemon-set-controller",
    "deployment-controller",
    "disruption-controller",
    "endpoint-controller",
    "endpointslice-controller",
    "endpointslicemirroring-controller",
    "ephemeral-volume-controller",
    "expand-controller",
    "generic-garbage-collector",
    "horizontal-pod-autoscaler",
    "job-controller",
    "legacy-service-account-token-cleaner",
    "namespace-controller",
    "node-controller",
    "persistent-volume-binder",
    "pod-garbage-collector",
    "pv-protection-controller",
    "pvc-protection-controller",
    "replicaset-controller",
    "replication-controller",
    "resource-claim-controller",
    "resourcequota-controller",
    "root-ca-cert-publisher",
    "route-controller",
    "service-account-controller",
    "service-cidrs-controller",
    "service-controller",
    "statefulset-controller",
    "storage-version-migrator-controller",
    "token-cleaner",
    "ttl-after-finished-controller",
    "ttl-controller",
    "validatingadmissionpolicy-status-controller",
];

/// Whether a user is a part of Kubernetes itself. Kubelets are: they read what pods mount.
pub(super) fn is_kubernetes(user: &str) -> bool {
    let programs = ["system:apiserver", "system:kube-controller-manager", "system:kube-scheduler"];
    let controller = user.strip_prefix("system:serviceaccount:kube-system:");
    programs.contains(&user)
        || user.starts_with("system:node:")
        || controller.is_some_and(|name| CONTROLLERS.contains(&name))
}

/// Whether what is in no namespace of ours has a name that an installation gives: `coppice`, `coppice-access`, `coppice-UID` in
/// targets, `clusteraccesses.coppice.dev`.
pub(super) fn is_our_name(name: &str) -> bool {
    name == "coppice" || name.starts_with("coppice-") || name.ends_with(".coppice.dev")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_secrets_of_an_access_are_the_one_that_it_writes_and_that_of_its_cluster() {
        let access = |cluster: &Value| {
            let spec = json!({"cluster": cluster, "output": {"secret": "out"}});
            let found = secrets_of_access(&json!({"metadata": {"namespace": "team"}, "spec": spec}));
            assert!(found.iter().all(|(namespace, _)| namespace == "team"));
            found.into_iter().map(|(_, name)| name).collect::<Vec<_>>()
        };
        assert_eq!(access(&json!({"kubeconfigSecret": {"name": "target"}})), ["out", "target"]);
        assert_eq!(access(&json!({"clusterAPI": {"name": "shop"}})), ["out", "shop-kubeconfig"]);
        assert_eq!(access(&json!({"managedCluster": {"name": "shop"}})), ["out", "shop-kubeconfig"]);
        assert_eq!(access(&json!({"provider": {"name": "shop"}})), ["out"]);
        let installation = Installation::new("a", "b");
        let provider = json!({"spec": {"credential": {"secret": "shop"}}});
        assert_eq!(secrets_of_provider(&provider, &installation), [("b".to_owned(), "shop".to_owned())]);
    }

    #[test]
    fn an_add_on_in_kube_system_is_not_kubernetes() {
        for user in ["system:node:a", "system:serviceaccount:kube-system:generic-garbage-collector"] {
            assert!(is_kubernetes(user), "{user}");
        }
        for user in
            ["", "system:nodes", "system:serviceaccount:kube-system:sealed-secrets-controller", "alice"]
        {
            assert!(!is_kubernetes(user), "{user}");
        }
    }
}
