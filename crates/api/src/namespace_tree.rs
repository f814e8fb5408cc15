//! `NamespaceTree`: a namespace whose users may create namespaces below it, and the quota that all of them have together.
//! Cluster-scoped.

#![allow(clippy::duplicated_attributes, reason = "printer columns of one type")]

use std::collections::BTreeMap;

use coppice_quantity::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::amounts::Amounts;
use crate::metadata::TreeMetadata;
use crate::names::PROPAGATED_ROLES;
use crate::schema;

/// The most that [`NamespaceTreeSpec::max_depth`] may be.
pub const MAX_DEPTH: u32 = 50;

/// A tree of namespaces.
///
/// Anyone who may create Subnamespaces in the root, or in a namespace below it, creates namespaces there. All of them together never
/// have more quota than the tree: what one is given leaves the namespace above it.
#[derive(CustomResource, Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "coppice.dev",
    version = "v1alpha1",
    kind = "NamespaceTree",
    plural = "namespacetrees",
    shortname = "nstree",
    category = "coppice",
    status = "NamespaceTreeStatus",
    derive = "PartialEq",
    doc = "A namespace whose users may create namespaces below it, and the quota that all of them have together.",
    printcolumn(name = "Root", type_ = "string", json_path = ".spec.root"),
    printcolumn(
        name = "Namespaces",
        type_ = "integer",
        json_path = ".status.namespaces",
        description = "The root and all namespaces below it"
    ),
    printcolumn(
        name = "Quota",
        type_ = "string",
        json_path = ".status.allotted",
        description = "What all of them have together"
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
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct NamespaceTreeSpec {
    /// The namespace at the top, which has to exist. It cannot be changed: writing the NamespaceTree is how an administrator takes an
    /// existing namespace into a tree.
    #[schemars(
        length(min = 1, max = 63),
        extend("x-kubernetes-validations" = [{
            "rule": "self == oldSelf",
            "message": "the root of a tree cannot be changed: delete the NamespaceTree, and create one for the other namespace"
        }, {
            "rule": "self.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?$')",
            "message": "write the name of a namespace: lower-case letters, digits and '-', beginning and ending with a letter or digit"
        }])
    )]
    pub root: String,
    /// What the namespaces of the tree have together.
    pub quota: TreeQuotaSpec,
    /// How far below the root namespaces may be: 1 permits namespaces right below it. Default: 5, so that paths stay readable.
    #[serde(default = "max_depth")]
    #[schemars(range(min = 1, max = MAX_DEPTH), default = "max_depth")]
    pub max_depth: u32,
    /// How many namespaces the tree has at most, its root included. Default: 100, so that a loop in somebody's script ends.
    #[serde(default = "max_namespaces")]
    #[schemars(range(min = 1, max = 10_000), default = "max_namespaces")]
    pub max_namespaces: u32,
    /// Which names Subnamespaces may have: patterns, of which one has to match. `*` stands for any characters, `{parent}` for the name
    /// of the namespace that the Subnamespace is in, `{root}` for that of the root. Default: `{parent}-*`, so that nobody takes a name
    /// that others expect to be theirs.
    #[serde(default = "names")]
    #[schemars(schema_with = "schema::name_patterns", default = "names")]
    pub names: Vec<String>,
    /// Namespaces right below the root whose quota stands for something that the others have not, such as nodes with GPUs. No
    /// QuotaTransfer leads from one of these branches to another branch, or from another branch into one; those that begin or end at
    /// the root do. As long as a name here is no namespace right below the root, the condition `Ready` says so. Default: none,
    /// since most quota stands for the same everywhere.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "schema::partitions")]
    pub partitions: Vec<String>,
    /// What becomes of the namespaces below the root when the NamespaceTree is deleted. `Refuse`: it is not deleted while there are
    /// any. `Detach`: all of them stay, as namespaces of no tree, each with its own quota and what was copied into it; what they had
    /// together nothing limits any more. Default: `Refuse`, so that nobody takes a tree apart by deleting an object.
    #[serde(default, skip_serializing_if = "DeletionPolicy::is_default")]
    #[schemars(default)]
    pub deletion_policy: DeletionPolicy,
    /// Which labels and annotations namespaces below the root may have of others than administrators. Default: none, so that only
    /// administrators say what a namespace is.
    #[serde(default, skip_serializing_if = "TreeMetadata::is_empty")]
    pub metadata: TreeMetadata,
    /// Which objects of a namespace are copied to every namespace below it. Default: RoleBindings alone, so that whoever creates a
    /// namespace can work in it.
    #[serde(default)]
    pub propagate: Propagation,
}

/// What becomes of the namespaces below the root of a tree that is deleted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum DeletionPolicy {
    /// As long as there are any, the tree is not deleted.
    #[default]
    Refuse,
    /// They stay, as namespaces of no tree.
    Detach,
}

impl DeletionPolicy {
    #[allow(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
    fn is_default(&self) -> bool {
        *self == Self::default()
    }
}

/// Which objects of a namespace are copied to every namespace below it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Propagation {
    /// RoleBindings: who has a role in a namespace has it in every namespace below. Default: those to `admin`, `edit` and `view`,
    /// so that whoever creates a namespace can work in it.
    #[serde(default)]
    pub role_bindings: RoleBindingPropagation,
    /// LimitRanges: what containers request that do not say it, and how much they may. Where the tree limits `cpu` or `memory`, one
    /// in the root with `Propagate` is what pods without requests need. Default: they are left alone, so that a namespace below may
    /// have limits of its own.
    #[serde(default)]
    pub limit_ranges: ObjectPropagation,
    /// NetworkPolicies: what pods may talk to. Default: they are left alone, so that no connection ends because a namespace is in a
    /// tree.
    #[serde(default)]
    pub network_policies: ObjectPropagation,
}

/// Whether the objects of a kind are copied to every namespace below theirs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ObjectPropagation {
    /// `Propagate`: each one is copied, and copies of what is gone are deleted. `Remove`: all copies are deleted. `Ignore`: copies are
    /// left as they are, and no more are made. Default: `Ignore`, so that nothing of this kind is copied unless the platform says so.
    #[serde(default = "ignore")]
    #[schemars(default = "ignore")]
    pub mode: PropagationMode,
}

impl Default for ObjectPropagation {
    fn default() -> Self {
        Self { mode: ignore() }
    }
}

const fn ignore() -> PropagationMode {
    PropagationMode::Ignore
}

/// Which RoleBindings of a namespace are copied to every namespace below it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct RoleBindingPropagation {
    /// `Propagate`: those of these ClusterRoles are copied, and copies of what is gone are deleted. `Remove`: all copies are deleted.
    /// `Ignore`: copies are left as they are, and no more are made. Default: `Propagate`, so that anyone who creates a namespace can work
    /// in it.
    #[serde(default)]
    pub mode: PropagationMode,
    /// The ClusterRoles whose RoleBindings are copied. Coppice may bind `admin`, `edit` and `view`; for another one a cluster
    /// administrator grants it the verb `bind` on that ClusterRole. RoleBindings to Roles are never copied. Default: these
    /// three, which Coppice may bind as it is installed.
    #[serde(default = "cluster_roles")]
    #[schemars(schema_with = "schema::cluster_roles", default = "cluster_roles")]
    pub cluster_roles: Vec<String>,
}

impl Default for RoleBindingPropagation {
    fn default() -> Self {
        Self { mode: PropagationMode::default(), cluster_roles: cluster_roles() }
    }
}

/// What becomes of the copies of a kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum PropagationMode {
    /// They are as their sources are.
    #[default]
    Propagate,
    /// They are deleted.
    Remove,
    /// They are left as they are, and no more are made.
    Ignore,
}

/// The quota of a tree.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[schemars(transform = schema::refuse_scopes, extend("x-kubernetes-validations" = [{
    "rule": "!has(self.required) || self.required.all(name, name in self.hard)",
    "message": "a resource that Subnamespaces have to name has to be one that the tree limits: write in required names as they are in hard"
}]))]
pub struct TreeQuotaSpec {
    /// Amounts of resources, as in `spec.hard` of a ResourceQuota; `cpu` and `requests.cpu` are the same. Of what is not named here
    /// namespaces of the tree may use any amount. A resource that is named stays named.
    #[schemars(schema_with = "schema::tree_hard")]
    pub hard: BTreeMap<String, Quantity>,
    /// Resources that a Subnamespace has to name in its `spec.quota.hard` to be granted anything, written as in `hard`; one that was
    /// granted before stays as it is. Default: none, and of what a Subnamespace does not name it gets nothing.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "schema::required_resources")]
    pub required: Vec<String>,
}

const fn max_depth() -> u32 {
    5
}

const fn max_namespaces() -> u32 {
    100
}

fn names() -> Vec<String> {
    vec!["{parent}-*".to_owned()]
}

fn cluster_roles() -> Vec<String> {
    PROPAGATED_ROLES.map(str::to_owned).into()
}

/// What is known of the tree. Only Coppice writes it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NamespaceTreeStatus {
    /// The generation of the spec that this status is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// The uid of the root when the tree was set up: a later namespace of its name is no root. Absent: not yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 128))]
    pub root_uid: Option<String>,
    /// How many namespaces the tree has, its root included.
    #[serde(default)]
    pub namespaces: u32,
    /// What the tree has, as it is in force.
    #[serde(default, skip_serializing_if = "Amounts::is_empty")]
    #[schemars(schema_with = "schema::status_hard")]
    pub allotment: Amounts,
    /// The same on one line, for people.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 4096))]
    pub allotted: String,
    /// `Ready`: whether spec is in force. `WithinQuota`: whether what is used in the root is within its own quota; absent if it always
    /// was.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "schema::conditions")]
    pub conditions: Vec<Condition>,
}
