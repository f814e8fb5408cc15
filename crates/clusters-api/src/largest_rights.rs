//! The rights that a `ClusterAccess` may ask for at most, where the platform keeps the kubeconfig.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::cluster_access::Rule;
use crate::schema;

/// In [`LargestRights::namespaces`]: every namespace, and the whole cluster.
pub const EVERYWHERE: &str = "*";
/// So many rules may be written.
pub const MAX_RULES: usize = 12;

/// The rights that may be asked for at most, in these namespaces of the target.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(extend("x-kubernetes-validations" = [{
    "rule": "has(self.rules) || has(self.clusterRoles) || has(self.roles)",
    "message": "write at least one of: rules (what rules of a ClusterAccess may permit), clusterRoles and roles (what it may bind)"
}]))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct LargestRights {
    /// The namespaces of the target that rights may be asked for in. `*`: every namespace but `coppice-access`, which has the accounts of every
    /// ClusterAccess and has to be named, and the whole target (`rights.clusterRole` of a ClusterAccess).
    #[schemars(schema_with = "schema::namespaces_or_all")]
    pub namespaces: Vec<String>,
    /// What the rules of a ClusterAccess may permit: all that these rules permit together, and no more. Default: nothing, so that a
    /// ClusterAccess can only bind roles.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "schema::largest_rules")]
    pub rules: Vec<Rule>,
    /// The ClusterRoles that a ClusterAccess may bind in these namespaces, such as `view`. What they permit is up to the target. Default:
    /// none, so that each is a decision of its own.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "schema::role_names")]
    pub cluster_roles: Vec<String>,
    /// The Roles that a ClusterAccess may bind in these namespaces. Default: none, so that each is a decision of its own.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "schema::role_names")]
    pub roles: Vec<String>,
}

impl LargestRights {
    /// Whether none were written, where no issuer is allowed that they would bound.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}
