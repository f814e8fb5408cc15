//! `ClusterProvider`: a kubeconfig that the platform keeps, and who may have credentials issued with it. Cluster-scoped.

#![allow(clippy::duplicated_attributes, reason = "printer columns of one type")]

use coppice_api::schema as shared;
use coppice_api::selector::Selector;
use coppice_quantity::Duration;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::cluster_access::ttl;
use crate::cluster_source::key;
use crate::largest_rights::LargestRights;
use crate::{Issuer, schema};

/// So many of the ClusterAccesses that name one are in its status, and so many of the ManagedClusters.
pub const MAX_USED_BY: usize = 10;

/// A kubeconfig that the platform keeps, and who may have credentials issued with it.
///
/// A ClusterAccess in a namespace that it allows names it as `spec.cluster.provider`. Nobody there can read the kubeconfig.
#[derive(CustomResource, Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "coppice.dev",
    version = "v1alpha1",
    kind = "ClusterProvider",
    plural = "clusterproviders",
    shortname = "clprov",
    category = "coppice",
    status = "ClusterProviderStatus",
    derive = "PartialEq",
    doc = "A kubeconfig that the platform keeps, which namespaces may have credentials issued with it, and with which rights at most.",
    printcolumn(name = "Secret", type_ = "string", json_path = ".spec.credential.secret"),
    printcolumn(
        name = "Project",
        type_ = "string",
        json_path = ".spec.project",
        description = "The project of Gardener, if it is for Shoots",
        priority = 1
    ),
    printcolumn(
        name = "Accesses",
        type_ = "integer",
        json_path = ".status.accesses",
        description = "How many ClusterAccesses name it"
    ),
    printcolumn(
        name = "Waiting",
        type_ = "integer",
        json_path = ".status.waiting",
        description = "How many ClusterAccesses and ManagedClusters wait for its budget",
        priority = 1
    ),
    printcolumn(
        name = "Ready",
        type_ = "string",
        json_path = ".status.conditions[?(@.type==\"Ready\")].status"
    ),
    printcolumn(
        name = "Why",
        type_ = "string",
        json_path = ".status.conditions[?(@.type==\"Ready\")].message",
        priority = 1
    ),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[schemars(extend("x-kubernetes-validations" = [{
    "rule": "has(self.project) || !has(self.allow) || self.allow.all(entry, !has(entry.issuers) || !entry.issuers.exists(issuer, issuer in ['GardenerAdmin', 'GardenerViewer']))",
    "message": "project: write the project of Gardener whose Shoots GardenerAdmin and GardenerViewer are to issue for, or leave these out of allow[].issuers"
}, {
    "rule": "has(self.project) || !has(self.managedClusters) || size(self.managedClusters) == 0",
    "message": "project: write the project of Gardener that Shoots are to be made in, or leave managedClusters out"
}]))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ClusterProviderSpec {
    /// The kubeconfig that credentials are issued with, in a Secret of the namespace of `coppice-access`. It is read again for each use: with
    /// another one in the Secret that one is used.
    pub credential: ProviderCredential,
    /// The project of Gardener whose Shoots ClusterAccesses name as `spec.cluster.gardener`. The kubeconfig is then that of the garden: of a
    /// user who may read this project, and create `shoots/adminkubeconfig` or `shoots/viewerkubeconfig` in its namespace. Default: none, and
    /// the kubeconfig is that of the cluster that ClusterAccesses name as `spec.cluster.provider`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::project_name")]
    pub project: Option<String>,
    /// How many credentials and changes of rights may be asked for in any minute, and looks at Shoots with what is written then, for all
    /// ClusterAccesses and ManagedClusters together. Credentials that are about to expire go first, then what was asked for, lost or changed, then
    /// what is new, then all others; of ten calls that expiring credentials leave, one is for who has waited for 5 minutes. Namespaces that wait
    /// take turns. Changes that only take rights away and revocations are not counted, and wait for nothing. Default: 60, which no API server notices.
    #[serde(default = "calls_per_minute")]
    #[schemars(schema_with = "schema::calls_per_minute", default = "calls_per_minute")]
    pub calls_per_minute: u32,
    /// The shortest `spec.forgetAfter` that a ClusterAccess may have, 1m to 90d: for so long at least it is tried to revoke the credential of a
    /// deleted one in a target that cannot be reached. Default: an hour, which outlasts the restart of a target.
    #[serde(default = "min_forget_after")]
    #[schemars(schema_with = "schema::forget_after", default = "min_forget_after")]
    pub min_forget_after: Duration,
    /// The namespaces whose ManagedClusters may have Shoots made in `project`, of whatever kind and size: what they cost, quotas of Gardener bound.
    /// Default: none, since every Shoot costs.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "schema::maker_namespaces")]
    pub managed_clusters: Vec<String>,
    /// Who may have credentials issued. Default: nobody, so that no kubeconfig is shared by mistake.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16))]
    pub allow: Vec<Allowed>,
}

const fn calls_per_minute() -> u32 {
    60
}

const fn min_forget_after() -> Duration {
    Duration::from_secs(3600)
}

/// Where the kubeconfig is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ProviderCredential {
    /// The Secret's name, in the namespace of `coppice-access` (`coppice-access-system`). With the label `coppice.dev/access: kubeconfig` its
    /// changes are noticed at once.
    #[schemars(schema_with = "schema::object_name")]
    pub secret: String,
    /// The key in its data. Default: `kubeconfig`, as most tools write it.
    #[serde(default = "key")]
    #[schemars(schema_with = "schema::data_key", default = "key")]
    pub key: String,
}

/// Some namespaces, and what they may ask for at most. A ClusterAccess has to be within one entry.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(extend("x-kubernetes-validations" = [{
    "rule": "has(self.namespaces) != has(self.namespaceSelector)",
    "message": "write exactly one of: namespaces (their names), namespaceSelector (by their labels)"
}, {
    "rule": "has(self.rights) == (!has(self.issuers) || self.issuers.exists(issuer, issuer in ['TokenRequest', 'ClientCertificate']))",
    "message": "rights: write what may be asked for at most of the issuers TokenRequest and ClientCertificate; leave it out where issuers has neither, since the rights of GardenerAdmin and GardenerViewer cannot be narrowed"
}]))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Allowed {
    /// The namespaces, by their names.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "schema::allowed_namespaces")]
    pub namespaces: Vec<String>,
    /// The namespaces, by their labels. Whoever may label a namespace decides about this.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace_selector: Option<Selector>,
    /// The longest `spec.ttl` that may be asked for, 10m to 30d. Default: a day, as that of a ClusterAccess.
    #[serde(default = "ttl")]
    #[schemars(schema_with = "schema::ttl", default = "ttl")]
    pub max_ttl: Duration,
    /// The values of `spec.issuer` that may be asked for. Certificates cannot be revoked, and the kubeconfig's user has to be permitted to
    /// approve them: add `ClientCertificate` only where tokens will not do. `GardenerAdmin` lets these namespaces do everything in every Shoot of
    /// the project, `GardenerViewer` read everything but Secrets. Default: `TokenRequest` alone, whose tokens can be revoked.
    #[serde(default = "issuers")]
    #[schemars(schema_with = "schema::issuers", default = "issuers")]
    pub issuers: Vec<Issuer>,
    /// The rights that may be asked for at most of the issuers `TokenRequest` and `ClientCertificate`. Required, unless `issuers` has neither.
    #[serde(default, skip_serializing_if = "LargestRights::is_empty")]
    #[schemars(default)]
    pub rights: LargestRights,
}

fn issuers() -> Vec<Issuer> {
    vec![Issuer::TokenRequest]
}

/// Whether it can be used. Only Coppice writes it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ClusterProviderStatus {
    /// The generation of the spec that the status is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// How many ClusterAccesses name it, also those that it does not allow; counted once a minute.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub accesses: Option<i64>,
    /// The first 10 of these in the order of their names, as NAMESPACE/NAME. While there is one, the ClusterProvider cannot be deleted.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "schema::used_by")]
    pub used_by: Vec<String>,
    /// How many ManagedClusters name it, also those whose namespace it does not allow; counted once a minute.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub managed_clusters: Option<i64>,
    /// The first 10 of these in the order of their names, as NAMESPACE/NAME. While there is one, the ClusterProvider cannot be deleted.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "schema::used_by")]
    pub used_by_clusters: Vec<String>,
    /// How many ClusterAccesses and ManagedClusters wait since `spec.callsPerMinute` is used up, or the cluster or garden has too many requests (429); counted
    /// once a minute.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waiting: Option<i64>,
    /// `Ready`: whether the kubeconfig is there and can be used.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "shared::conditions")]
    pub conditions: Vec<Condition>,
}
