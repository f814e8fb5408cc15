//! `Subnamespace`: a namespace below the one that the object is in, with a part of its quota.

#![allow(clippy::duplicated_attributes, reason = "printer columns of one type")]

use std::collections::BTreeMap;

use coppice_quantity::Quantity;
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::amounts::Amounts;
use crate::metadata::{MetadataSet, NamespaceMetadata};
use crate::schema;
use crate::steps::RareSteps;

/// A namespace below the one that the object is in. It has the name of the object.
///
/// Coppice creates the namespace, and gives it the quota that is asked for if the namespace above it has that much left. Deleting
/// the Subnamespace deletes the namespace, and returns its quota; deleting the namespace does the same.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "coppice.dev",
    version = "v1alpha1",
    kind = "Subnamespace",
    plural = "subnamespaces",
    shortname = "sns",
    category = "coppice",
    namespaced,
    status = "SubnamespaceStatus",
    derive = "PartialEq",
    doc = "A namespace below the one that the object is in, with a part of its quota. It has the name of the object.",
    printcolumn(name = "Phase", type_ = "string", json_path = ".status.phase"),
    printcolumn(
        name = "Requested",
        type_ = "string",
        json_path = ".status.requested",
        description = "The quota that spec asks for"
    ),
    printcolumn(
        name = "Allotted",
        type_ = "string",
        json_path = ".status.allotted",
        description = "What the namespace and all below it have together"
    ),
    printcolumn(name = "Path", type_ = "string", json_path = ".status.path", priority = 1),
    printcolumn(
        name = "Why",
        type_ = "string",
        json_path = ".status.conditions[?(@.type==\"Ready\")].message",
        description = "Why it is not ready",
        priority = 1
    ),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct SubnamespaceSpec {
    /// The quota of the namespace, and of all namespaces below it together. Default: nothing of what the tree limits, so that no
    /// quota goes where nobody asked for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub quota: Option<QuotaRequest>,
    /// Labels and annotations of the namespace: those that `spec.metadata.allowed` of the NamespaceTree names. Default: none but
    /// those that are inherited from the namespace above, which is enough for most.
    #[serde(default, skip_serializing_if = "NamespaceMetadata::is_empty")]
    pub metadata: NamespaceMetadata,
    /// Consent to a cascade, with an end: until this instant, deleting the Subnamespace first deletes all namespaces below its own, from
    /// the bottom up. It counts in the 24 hours before that instant; what is not deleted by then stays. Default: a namespace
    /// is not deleted while others are below it, so that one mistaken request deletes one namespace at most.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::instant")]
    pub cascade_until: Option<Timestamp>,
}

/// A quota that is asked for.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[schemars(transform = schema::refuse_scopes)]
pub struct QuotaRequest {
    /// Amounts of resources, as in `spec.hard` of a ResourceQuota; `cpu` and `requests.cpu` are the same. Only what the tree limits
    /// can be asked for; of what is left out, the namespace gets nothing.
    ///
    /// It is a request: it counts when it differs from the last one that was granted (`status.request`). What the namespace has is
    /// `status.allotment`.
    #[schemars(schema_with = "schema::quota_hard")]
    pub hard: BTreeMap<String, Quantity>,
}

/// The state of a Subnamespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
pub enum SubnamespacePhase {
    /// The namespace is being created, or its quota changed.
    Pending,
    /// The namespace is there, with the quota that was asked for.
    Ready,
    /// What spec asks for cannot be done now: the condition `Ready` says why. What there was before stays as it is.
    Refused,
    /// The namespace is being deleted, and its quota returned.
    Deleting,
    /// The tree was detached: the namespace is in none any more and stays, and the Subnamespace goes.
    Detached,
}

impl SubnamespacePhase {
    /// The phase as written in status.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "Pending",
            Self::Ready => "Ready",
            Self::Refused => "Refused",
            Self::Deleting => "Deleting",
            Self::Detached => "Detached",
        }
    }
}

/// What the namespace has. Only Coppice writes it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SubnamespaceStatus {
    /// The generation of the spec that this status is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// Its state.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub phase: Option<SubnamespacePhase>,
    /// The NamespaceTree that it belongs to.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 253))]
    pub tree: String,
    /// The names from the root of the tree down to this namespace.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    // 51 names of 63 characters, and what is between them.
    #[schemars(length(max = 4096))]
    pub path: String,
    /// How far the namespace is below the root.
    #[serde(default)]
    pub depth: u32,
    /// The uid of the namespace that was created. Absent: not yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 128))]
    pub namespace_uid: Option<String>,
    /// The last request that was granted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request: Option<GrantedRequest>,
    /// What the namespace was given; absent until that is decided for the first time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub allotment: Option<Allotment>,
    /// Why the last change of the quota was given up after it had begun; absent once another is granted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refused: Option<Box<RefusedChange>>,
    /// What spec asks for, on one line.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 4096))]
    pub requested: String,
    /// What the namespace was given, on one line.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 4096))]
    pub allotted: String,
    /// The labels and annotations of `spec.metadata` and of the namespace above that the namespace was given.
    #[serde(default, skip_serializing_if = "MetadataSet::is_empty")]
    pub metadata: MetadataSet,
    /// How many Subnamespaces are in the namespace.
    #[serde(default)]
    pub children: u32,
    /// The deletion of the namespace, while it is decided and carried out.
    #[serde(flatten)]
    pub steps: RareSteps,
    /// `Ready`: whether the namespace is there with the quota that spec asks for. `Propagated`: whether it has what is copied from the
    /// namespaces above. `WithinQuota`: whether what is used in it is within its quota; absent if it always was. `DeletionPending`: that it
    /// will be deleted with a namespace above it, and how to prevent that; absent if not.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "schema::conditions")]
    pub conditions: Vec<Condition>,
}

/// A request that was granted.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct GrantedRequest {
    /// The amounts.
    #[schemars(schema_with = "schema::status_hard")]
    pub hard: Amounts,
}

/// What a namespace was given, for itself and all below it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Allotment {
    /// The amounts.
    #[schemars(schema_with = "schema::status_hard")]
    pub hard: Amounts,
    /// The number of the last change of it that was decided.
    #[schemars(range(min = 0, max = 9_007_199_254_740_991_i64))]
    pub decided: i64,
}

/// A change that was begun and not carried out.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RefusedChange {
    /// What was asked for. The same is not tried again before `until`.
    #[schemars(schema_with = "schema::status_hard")]
    pub hard: Amounts,
    /// Why not, with the numbers.
    #[schemars(length(max = 4096))]
    pub message: String,
    /// How often in a row the same was given up.
    #[serde(default)]
    pub attempts: u32,
    /// When the same is tried again: after a minute, and each further time after twice as long, up to five minutes.
    #[schemars(schema_with = "schema::status_instant")]
    pub until: jiff::Timestamp,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_status_of_one_of_thousands_is_small() {
        // Besides texts, amounts and conditions. Each of 5,000 in a cache is rounded up to this.
        assert!(size_of::<SubnamespaceStatus>() <= 320, "{}", size_of::<SubnamespaceStatus>());
    }
}
