//! Who makes a `ManagedCluster`, and as which object.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::schema;

/// Who makes a cluster: exactly one field.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(extend("x-kubernetes-validations" = [{
    "rule": "has(self.clusterAPI) != has(self.gardener)",
    "message": "write exactly one of: clusterAPI (a Cluster of Cluster API, by a ClusterClass), gardener (a Shoot)"
}, {
    "rule": "has(self.clusterAPI) == has(oldSelf.clusterAPI)",
    "message": "a cluster cannot go from one provider to another: write another ManagedCluster"
}, {
    "rule": "!has(self.gardener) || !has(oldSelf.gardener) || self.gardener.clusterProvider == oldSelf.gardener.clusterProvider && self.gardener.infrastructure == oldSelf.gardener.infrastructure",
    "message": "clusterProvider and infrastructure of a cluster cannot be changed: write another ManagedCluster"
}]))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ClusterMaker {
    /// Cluster API: a `Cluster` with a topology, in this namespace, with the name of the ManagedCluster. Whoever writes the ManagedCluster has
    /// to be permitted to create such a `Cluster`.
    #[serde(default, rename = "clusterAPI", skip_serializing_if = "Option::is_none")]
    pub cluster_api: Option<CapiTopology>,
    /// Gardener: a `Shoot` in the project of a ClusterProvider, with the name of the ManagedCluster.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gardener: Option<ShootTemplate>,
}

/// A `Cluster` of Cluster API.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct CapiTopology {
    /// The ClusterClass that it is made by.
    #[schemars(schema_with = "schema::object_name")]
    pub class: String,
    /// The namespace of that. Default: that of the ManagedCluster, as Cluster API has it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "coppice_api::schema::namespace_name")]
    pub class_namespace: Option<String>,
    /// The class in it that workers are made by. Default: `default-worker`, as the quick start of Cluster API names it.
    #[serde(default = "worker_class")]
    #[schemars(schema_with = "schema::object_name", default = "worker_class")]
    pub worker_class: String,
    /// The variables of the ClusterClass that take what the topology of a `Cluster` has no field for. Default: none, and what needs one is refused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub variables: Option<ClassVariables>,
}

fn worker_class() -> String {
    "default-worker".to_owned()
}

/// Names of variables of a ClusterClass.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ClassVariables {
    /// The one that takes `region`, a text. Default: none has it, and what needs it is refused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::variable")]
    pub region: Option<String>,
    /// The one that takes `networks.nodes`, a text. Default: none has it, and what needs it is refused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::variable")]
    pub nodes: Option<String>,
    /// The one that takes `oidc`, as an object with its fields. Default: none has it, and what needs it is refused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::variable")]
    pub oidc: Option<String>,
    /// The one that takes `auditPolicy`, a text. Default: none has it, and what needs it is refused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::variable")]
    pub audit_policy: Option<String>,
    /// The one that takes `administrators`, a list of texts. Default: none has it, and what needs it is refused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::variable")]
    pub administrators: Option<String>,
    /// The one that takes `machine` of a pool, a text. Default: none has it, and what needs it is refused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::variable")]
    pub machine: Option<String>,
    /// The one that takes `image` of a pool, as an object with its fields. Default: none has it, and what needs it is refused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::variable")]
    pub image: Option<String>,
    /// The one that takes `volume` of a pool, as an object with its fields. Default: none has it, and what needs it is refused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::variable")]
    pub volume: Option<String>,
    /// The one that takes `taints` of a pool, a list of objects with their fields. Default: none has it, and what needs it is refused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::variable")]
    pub taints: Option<String>,
}

/// A `Shoot` of Gardener.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(extend("x-kubernetes-validations" = [{
    "rule": "(self.infrastructure == 'openstack') == has(self.openstack)",
    "message": "write openstack (its floating pool and load balancer) for the infrastructure openstack, and for no other"
}]))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ShootTemplate {
    /// The ClusterProvider whose kubeconfig is that of the Gardener project. It cannot be changed.
    #[schemars(schema_with = "schema::object_name")]
    pub cluster_provider: String,
    /// The CloudProfile.
    #[schemars(schema_with = "schema::object_name")]
    pub cloud_profile: String,
    /// The CredentialsBinding in the project, which has the account of the cloud.
    #[schemars(schema_with = "schema::object_name")]
    pub credentials_binding: String,
    /// The infrastructure. It cannot be changed.
    pub infrastructure: Infrastructure,
    /// What the cluster is for. Default: `evaluation`, as Gardener's own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub purpose: Option<Purpose>,
    /// The network extension, such as `calico` or `cilium`. Default: `calico`, as in Gardener's own examples.
    #[serde(default = "network")]
    #[schemars(schema_with = "schema::variable", default = "network")]
    pub network: String,
    /// What OpenStack needs besides. Default: none, which every infrastructure but `openstack` takes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub openstack: Option<OpenStack>,
}

fn network() -> String {
    "calico".to_owned()
}

/// An infrastructure that Gardener makes clusters on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Infrastructure {
    /// AWS.
    Aws,
    /// Azure.
    Azure,
    /// Google Cloud.
    Gcp,
    /// OpenStack.
    Openstack,
}

impl Infrastructure {
    /// As Gardener names it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Aws => "aws",
            Self::Azure => "azure",
            Self::Gcp => "gcp",
            Self::Openstack => "openstack",
        }
    }
}

/// What a cluster of Gardener is for. Default: `evaluation`, as Gardener's own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Purpose {
    /// To try something out.
    Evaluation,
    /// Tests.
    Testing,
    /// Development.
    Development,
    /// Production.
    Production,
}

/// What OpenStack needs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct OpenStack {
    /// The pool of floating addresses.
    #[schemars(schema_with = "schema::provider_word")]
    pub floating_pool: String,
    /// The provider of load balancers, such as `octavia`.
    #[schemars(schema_with = "schema::provider_word")]
    pub load_balancer: String,
}
