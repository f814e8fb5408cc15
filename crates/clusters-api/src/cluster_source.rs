//! How a `ClusterAccess` says which cluster its credential is for.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::schema;

/// How the target is found and who issues there: exactly one field.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ClusterSource {
    /// A kubeconfig in a Secret of the same namespace, whose user may create the service account, its role and its tokens, or the role
    /// and the certificates. Whoever writes the ClusterAccess has to be permitted to read that Secret.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kubeconfig_secret: Option<SecretKey>,
    /// A `Cluster` of Cluster API in the same namespace. The kubeconfig is the one that Cluster API keeps for it, in the Secret
    /// `NAME-kubeconfig`. Whoever writes the ClusterAccess has to be permitted to read that Secret.
    #[serde(default, rename = "clusterAPI", skip_serializing_if = "Option::is_none")]
    pub cluster_api: Option<CapiCluster>,
    /// A Shoot of Gardener, by a ClusterProvider with a kubeconfig of the garden.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gardener: Option<GardenerShoot>,
    /// A ClusterProvider, which has a kubeconfig that the platform keeps and nobody in this namespace can read, and says which rights may be
    /// asked for at most.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub provider: Option<ProviderName>,
    /// A ManagedCluster in the same namespace: the cluster that it makes, once that was ready for the first time. Made by Cluster API it is as
    /// with `clusterAPI`, made by Gardener as with `gardener` and the ClusterProvider of the ManagedCluster. Whoever writes the ClusterAccess
    /// has to be permitted to read the Secret `NAME-kubeconfig`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub managed_cluster: Option<ManagedClusterName>,
}

impl ClusterSource {
    /// The name of the ClusterProvider whose kubeconfig is used: of the cluster, or of the garden with its Shoot.
    pub fn provider_name(&self) -> Option<&str> {
        let of_garden = self.gardener.as_ref().map(|shoot| shoot.provider.as_str());
        self.provider.as_ref().map(|provider| provider.name.as_str()).or(of_garden)
    }

    /// The field that has this name, for messages.
    pub const fn provider_field(&self) -> &'static str {
        if self.managed_cluster.is_some() {
            "spec.cluster.managedCluster"
        } else if self.gardener.is_some() {
            "spec.cluster.gardener.provider"
        } else {
            "spec.cluster.provider"
        }
    }
}

/// A Shoot of Gardener.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct GardenerShoot {
    /// The name of a ClusterProvider with a `project`: its kubeconfig is that of the garden. It says who may have credentials issued.
    #[schemars(schema_with = "schema::object_name")]
    pub provider: String,
    /// The name of the Shoot in that project.
    #[schemars(schema_with = "schema::shoot_name")]
    pub shoot: String,
}

/// A ClusterProvider.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ProviderName {
    /// Its name.
    #[schemars(schema_with = "schema::object_name")]
    pub name: String,
}

/// A ManagedCluster.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ManagedClusterName {
    /// Its name, which is that of its `Cluster` or `Shoot`.
    #[schemars(schema_with = "schema::cluster_name")]
    pub name: String,
}

/// A cluster of Cluster API.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct CapiCluster {
    /// The name of the `Cluster`.
    #[schemars(schema_with = "schema::cluster_name")]
    pub name: String,
}

/// A value in a Secret.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct SecretKey {
    /// The Secret's name.
    #[schemars(schema_with = "schema::object_name")]
    pub name: String,
    /// The key in its data. Default: `kubeconfig`, as most tools write it.
    #[serde(default = "key")]
    #[schemars(schema_with = "schema::data_key", default = "key")]
    pub key: String,
}

pub(crate) fn key() -> String {
    "kubeconfig".to_owned()
}
