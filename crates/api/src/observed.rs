//! What policies that only observe would have done, and what became of those namespaces.

use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::schema;

/// A policy that observes and would have acted by now, the budget and approvals apart.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct WouldHaveActed {
    /// Its name.
    #[schemars(length(max = 256))]
    pub policy: String,
    /// When that was seen: its condition was true, and `settle` and its notice were over.
    #[schemars(schema_with = "schema::status_instant")]
    pub at: Timestamp,
    /// Why it would have: `TtlElapsed`, `PodsSucceeded` or `Unhealthy`.
    #[schemars(length(max = 1024))]
    pub reason: String,
    /// What became of the namespace, the first of it; absent while the policy would still act.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub outcome: Option<ObservedOutcome>,
    /// When that was seen.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::status_instant")]
    pub outcome_at: Option<Timestamp>,
}

/// A policy that would have acted, of a cluster manager that does not govern the namespace any more.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ObservedBefore {
    /// The uid of that manager.
    #[schemars(length(max = 128))]
    pub manager_uid: String,
    /// The digest of its spec.
    #[schemars(length(max = 128))]
    pub digest: String,
    /// When it was seen that it does not govern the namespace any more.
    #[schemars(schema_with = "schema::status_instant")]
    pub until: Timestamp,
    /// What its policy would have done.
    #[serde(flatten)]
    pub acted: WouldHaveActed,
}

/// What became of a namespace that a policy would have acted upon.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum ObservedOutcome {
    /// What failed in it recovered, or its pods ran again.
    Recovered,
    /// Its users gave it more time.
    Extended,
    /// Its users put it on hold.
    Held,
}

/// What the policies that observe would have done so far.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ObservedCounts {
    /// Since when it is counted: with another spec that decides otherwise, it begins again.
    #[schemars(schema_with = "schema::status_instant")]
    pub since: Timestamp,
    /// What was seen until then is counted.
    #[schemars(schema_with = "schema::status_instant")]
    pub until: Timestamp,
    /// For each policy that observes, by name.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 10), extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]))]
    pub policies: Vec<ObservedPolicy>,
}

/// What one policy would have done so far, each namespace counted once.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ObservedPolicy {
    /// The policy's name.
    #[schemars(length(max = 256))]
    pub name: String,
    /// Namespaces that it would have acted upon, the budget and approvals apart.
    #[serde(default)]
    pub would_have_acted: u32,
    /// Of these: what failed in them recovered later by itself, or their pods ran again.
    #[serde(default)]
    pub recovered: u32,
    /// Of these: their users gave them more time later.
    #[serde(default)]
    pub extended: u32,
    /// Of these: their users put them on hold later.
    #[serde(default)]
    pub held: u32,
    /// Of these: deleted since, by anybody or anything but this policy, which observes; also after one of those before.
    #[serde(default)]
    pub deleted_by_others: u32,
    /// Of these: not governed by this cluster manager any more; also after one of those before but `deletedByOthers`.
    #[serde(default)]
    pub not_governed: u32,
}
