//! `NamespaceExpiry`: when one namespace is deleted. Cluster-scoped, named as the namespace.

use coppice_api::{Steps, schema};
use coppice_quantity::Duration;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// When the namespace of this name is deleted. What has fired does not fire again: another namespace of this name needs another
/// `NamespaceExpiry`.
#[derive(CustomResource, Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "sample.coppice.dev",
    version = "v1alpha1",
    kind = "NamespaceExpiry",
    plural = "namespaceexpiries",
    status = "NamespaceExpiryStatus",
    derive = "PartialEq",
    doc = "Has the namespace of its name deleted some time after the creation of the namespace, with notice.",
    printcolumn(name = "Reason", type_ = "string", json_path = ".status.reason")
)]
#[serde(rename_all = "camelCase")]
pub struct NamespaceExpirySpec {
    /// How long after its creation the namespace is deleted. Never early, and up to one second late.
    #[schemars(schema_with = "schema::positive_duration")]
    pub after: Duration,
    /// How long before the deletion it is announced. Default: 0s.
    #[serde(default)]
    #[schemars(schema_with = "schema::duration", default = "zero")]
    pub notice: Duration,
}

const fn zero() -> Duration {
    Duration::ZERO
}

/// What was decided and done. Only the controller writes it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct NamespaceExpiryStatus {
    /// The generation of the spec that this status is about. Absent: of none yet.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// What it waits for, or why nothing will be done: an enumerated reason. Empty: nothing has been decided yet.
    #[schemars(length(max = 63))]
    pub reason: String,
    /// The same for people.
    #[schemars(length(max = 4096))]
    pub message: String,
    /// What has been decided, announced and done.
    #[serde(flatten)]
    pub steps: Steps,
}

/// The definition, to be installed by tests alone.
pub fn crd() -> CustomResourceDefinition {
    coppice_api::crd::<NamespaceExpiry>()
}
