//! `DeletedNamespace`: what remains of a namespace that Coppice deleted. Cluster-scoped, named by the decision.

#![allow(clippy::duplicated_attributes, reason = "printer columns of one type")]

use std::collections::BTreeMap;

use jiff::Timestamp;
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::losses::Losses;
use crate::notify::{DeletionNotification, MessageDelivery};
use crate::schema;

/// The record of a namespace that Coppice deleted, or is about to delete. Its name is the id of the decision, which is also
/// in the `User-Agent` of the request that deletes the namespace, so that the audit log of the API server leads here.
///
/// Only the operator writes it: before the namespace is deleted, and once it is gone. It is kept for 30 days, and the newest
/// 10,000 of them at most.
#[derive(CustomResource, Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "coppice.dev",
    version = "v1alpha1",
    kind = "DeletedNamespace",
    plural = "deletednamespaces",
    shortname = "delns",
    category = "coppice",
    status = "DeletedNamespaceStatus",
    derive = "PartialEq",
    doc = "The record of a namespace that Coppice deleted: written before the deletion, kept for 30 days. Only the operator writes it.",
    printcolumn(name = "Namespace", type_ = "string", json_path = ".spec.namespace"),
    printcolumn(name = "Phase", type_ = "string", json_path = ".status.phase"),
    printcolumn(name = "Manager", type_ = "string", json_path = ".spec.manager"),
    printcolumn(name = "Policy", type_ = "string", json_path = ".spec.policy"),
    printcolumn(name = "Why", type_ = "string", json_path = ".spec.reason", priority = 1),
    printcolumn(name = "UID", type_ = "string", json_path = ".spec.uid", priority = 1),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[serde(rename_all = "camelCase")]
pub struct DeletedNamespaceSpec {
    /// The namespace's name.
    #[schemars(length(min = 1, max = 63))]
    pub namespace: String,
    /// The namespace's uid: a later namespace of the same name has another.
    #[schemars(length(max = 128))]
    pub uid: String,
    /// When the namespace was created.
    #[schemars(schema_with = "schema::status_instant")]
    pub namespace_created: Timestamp,
    /// The kind of the object that had it deleted. Default: `NamespaceManager`, the only one that there was at first.
    #[serde(default = "namespace_manager")]
    #[schemars(length(min = 1, max = 63), default = "namespace_manager")]
    pub manager_kind: String,
    /// The object that had it deleted: a `NamespaceManager` went with its namespace.
    #[schemars(length(max = 253))]
    pub manager: String,
    /// The policy that fired.
    #[schemars(length(max = 256))]
    pub policy: String,
    /// When the deletion was decided.
    #[schemars(schema_with = "schema::status_instant")]
    pub decided_at: Timestamp,
    /// When the operator last set out to delete the namespace.
    #[schemars(schema_with = "schema::status_instant")]
    pub attempted_at: Timestamp,
    /// Why it was decided: an enumerated reason.
    #[schemars(length(max = 1024))]
    pub reason: String,
    /// What was seen when it was decided. Default: nothing, where the reason says it all.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(schema_with = "schema::evidence")]
    pub evidence: BTreeMap<String, String>,
    /// What was lost with it, as it was when the deletion was announced; absent where it was not announced.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub losses: Option<Losses>,
    /// What its owner is notified of once it is gone; absent where nobody is notified.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub notification: Option<DeletionNotification>,
}

fn namespace_manager() -> String {
    "NamespaceManager".to_owned()
}

/// What became of the namespace. Only the operator writes it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DeletedNamespaceStatus {
    /// What became of the namespace; absent while it is not being deleted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub phase: Option<DeletionPhase>,
    /// When the operator saw that the namespace was gone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::status_instant")]
    pub deleted_at: Option<Timestamp>,
    /// What its owner is notified of, and what is known of the delivery.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 4), extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["key"]))]
    pub notices: Vec<MessageDelivery>,
}

/// What became of the namespace after the decision. Whose request it was is in the audit log of the API server: somebody else may
/// have deleted it first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
pub enum DeletionPhase {
    /// The API server deletes what is in the namespace. Finalizers that nobody removes keep it so.
    Terminating,
    /// The namespace is gone.
    Deleted,
}

impl DeletionPhase {
    /// The phase as written in status.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Terminating => "Terminating",
            Self::Deleted => "Deleted",
        }
    }
}
