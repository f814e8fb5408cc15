//! `QuotaTransfer`: an amount of quota that moves from one namespace of a tree to another.

#![allow(clippy::duplicated_attributes, reason = "printer columns of one type")]

use std::collections::BTreeMap;

use coppice_quantity::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::namespace_tree::MAX_DEPTH;
use crate::schema;

/// From the end of one branch of a tree to that of another, through its root.
const MAX_STOPS: u32 = 2 * MAX_DEPTH + 1;

/// An amount of quota that moves from the namespace that the object is in to another one of the same tree.
///
/// It is done once. The quota is taken from what the source does not use, moves up to the namespace that `through` names and down to
/// the target; until it has arrived nobody can use it. Deleting the object before that returns the quota.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "coppice.dev",
    version = "v1alpha1",
    kind = "QuotaTransfer",
    plural = "quotatransfers",
    shortname = "qtr",
    category = "coppice",
    namespaced,
    status = "QuotaTransferStatus",
    derive = "PartialEq",
    doc = "An amount of quota that moves from the namespace that the object is in to another one of the same tree.",
    printcolumn(name = "To", type_ = "string", json_path = ".spec.to"),
    printcolumn(name = "Amount", type_ = "string", json_path = ".status.amount"),
    printcolumn(name = "Phase", type_ = "string", json_path = ".status.phase"),
    printcolumn(
        name = "At",
        type_ = "string",
        json_path = ".status.at",
        description = "The namespace that the quota has reached",
        priority = 1
    ),
    printcolumn(name = "Requester", type_ = "string", json_path = ".spec.requester", priority = 1),
    printcolumn(
        name = "Why",
        type_ = "string",
        json_path = ".status.conditions[?(@.type==\"Ready\")].message",
        priority = 1
    ),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[schemars(extend("x-kubernetes-validations" = [{
    "rule": "self.to == oldSelf.to && self.through == oldSelf.through && self.amount == oldSelf.amount && self.reason == oldSelf.reason && self.requester == oldSelf.requester",
    "message": "a QuotaTransfer cannot be changed: delete it, which returns what has not arrived, and create another one"
}, {
    "rule": "!has(oldSelf.approvedBy) || has(self.approvedBy)",
    "message": "an approval cannot be taken back: delete the QuotaTransfer, which returns what has not arrived"
}]))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct QuotaTransferSpec {
    /// The namespace that gets the quota.
    #[schemars(schema_with = "schema::namespace_name")]
    pub to: String,
    /// The nearest namespace that both the source and the target are, or are below of. It says that the one who asks knows whose
    /// quota it stays: written as something else, the transfer is refused.
    #[schemars(schema_with = "schema::namespace_name")]
    pub through: String,
    /// How much moves, as in `spec.quota.hard` of a Subnamespace.
    #[schemars(schema_with = "schema::quota_hard")]
    pub amount: BTreeMap<String, Quantity>,
    /// What for, in the words of the one who asks.
    #[schemars(length(min = 1, max = 1024), extend("x-kubernetes-validations" = [{
        "rule": "size(self) > 0",
        "message": "say what the quota is for: whoever approves it reads that"
    }]))]
    pub reason: String,
    /// The user who asks, as the API server knows them. A policy lets everybody write their own name only.
    #[schemars(length(min = 1, max = 1024), extend("x-kubernetes-validations" = [{
        "rule": "size(self) > 0",
        "message": "write your own name as the API server knows it, which kubectl auth whoami shows"
    }]))]
    pub requester: String,
    /// The user who agrees: with the right to create QuotaTransfers in the source and the target, or in the namespace that `through`
    /// names. A policy lets nobody else write it. Default: none, and the transfer waits for it; it needs none if the source or the
    /// target is that namespace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 1024), extend("x-kubernetes-validations" = [{
        "rule": "self == oldSelf",
        "message": "the QuotaTransfer is approved already"
    }, {
        "rule": "size(self) > 0",
        "message": "leave approvedBy out, or write your own name as the API server knows it: coppice transfer approve does so"
    }]))]
    pub approved_by: Option<String>,
}

/// The state of a QuotaTransfer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
pub enum TransferPhase {
    /// It waits for `spec.approvedBy`.
    PendingApproval,
    /// It has not begun; the condition `Ready` says why.
    Pending,
    /// The quota is on its way to the target.
    Moving,
    /// The quota returns to the source.
    Reversing,
    /// The target has the quota.
    Completed,
    /// Nothing was transferred: the condition `Ready` says why.
    Refused,
}

impl TransferPhase {
    /// All of them.
    pub const ALL: [Self; 6] =
        [Self::PendingApproval, Self::Pending, Self::Moving, Self::Reversing, Self::Completed, Self::Refused];

    /// The phase as written in status.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::PendingApproval => "PendingApproval",
            Self::Pending => "Pending",
            Self::Moving => "Moving",
            Self::Reversing => "Reversing",
            Self::Completed => "Completed",
            Self::Refused => "Refused",
        }
    }
}

/// How far a transfer has come. Only Coppice writes it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct QuotaTransferStatus {
    /// The generation of the spec that this status is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// Its state.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub phase: Option<TransferPhase>,
    /// The NamespaceTree whose quota moves.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 253))]
    pub tree: String,
    /// How much moves, on one line.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 4096))]
    pub amount: String,
    /// The namespaces from the source to the target, from when the transfer has begun. Atomic, since their order counts.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = MAX_STOPS), extend("x-kubernetes-list-type" = "atomic"))]
    pub path: Vec<TransferStop>,
    /// The namespace of `path` that the quota has reached. Absent: none was taken yet, or the transfer has ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 63))]
    pub at: Option<String>,
    /// Why the quota returns to the source. Absent: it does not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 4096))]
    pub failure: Option<String>,
    /// When the transfer began.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::status_instant")]
    pub begun_at: Option<jiff::Timestamp>,
    /// When it ended, and nothing more happens.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::status_instant")]
    pub ended_at: Option<jiff::Timestamp>,
    /// `Ready`: whether the target has the quota.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "schema::conditions")]
    pub conditions: Vec<Condition>,
}

/// A namespace on the way of a transfer.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct TransferStop {
    /// Its name.
    #[schemars(length(max = 63))]
    pub namespace: String,
    /// The uid of its Subnamespace: a later namespace of the same name is not on the way. Empty where the quota turns, at the namespace
    /// that `through` names.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 128))]
    pub uid: String,
}
