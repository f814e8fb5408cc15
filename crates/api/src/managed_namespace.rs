//! `ManagedNamespace`: the record of a namespace that a cluster manager governs. It is named `coppice`, in that namespace.

#![allow(clippy::duplicated_attributes, reason = "printer columns of one type")]

use coppice_quantity::Duration;
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::health::{FailingObject, HealthRecord};
pub use crate::manager::{NextStep, PolicyStatus};
use crate::notify::MessageDelivery;
use crate::observed::{ObservedBefore, WouldHaveActed};
use crate::owner::MAX_OWNER;
use crate::schema;
use crate::steps::Steps;

/// The record of a namespace that a cluster manager governs: in spec what its users ask for, in status what Coppice knows
/// and plans. Coppice creates it, and does not overwrite what somebody wrote before.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "coppice.dev",
    version = "v1alpha1",
    kind = "ManagedNamespace",
    plural = "managednamespaces",
    shortname = "mns",
    category = "coppice",
    namespaced,
    status = "ManagedNamespaceStatus",
    derive = "PartialEq",
    doc = "The record of a namespace that a ClusterNamespaceManager governs: its phase, when it expires, and what comes next.",
    printcolumn(name = "Phase", type_ = "string", json_path = ".status.phase"),
    printcolumn(
        name = "Owner",
        type_ = "string",
        json_path = ".status.owner",
        description = "Who owns the namespace, as it says itself"
    ),
    printcolumn(
        name = "Expires",
        type_ = "string",
        json_path = ".status.expiresAt",
        description = "When its time to live ends"
    ),
    printcolumn(
        name = "Next",
        type_ = "string",
        json_path = ".status.next.action",
        description = "What will be done next, or would be"
    ),
    printcolumn(
        name = "Why",
        type_ = "string",
        json_path = ".status.next.message",
        description = "What it waits for, or why nothing will be done",
        priority = 1
    ),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[serde(rename_all = "camelCase")]
pub struct ManagedNamespaceSpec {
    /// No policy of a cluster manager acts until the hold ends. Default: no hold, so that policies act in time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hold: Option<RecordHold>,
    /// The namespace does not become `Stale` before this instant, and no policy's ttl is over. Default: none, so that the ttl's own
    /// date counts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub extend_until: Option<Extension>,
    /// Let policies fire again after this firing, which otherwise do so only when their condition has been false in between: takes
    /// effect while it equals `status.firings`; anything else is ignored. Default: none, so that each policy fires once while its
    /// condition holds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub rearm: Option<i64>,
    /// Undo the scale-downs until this firing (what `coppice wake` writes): takes effect from `status.wakesFrom` to
    /// `status.firings`. Default: none, so that what was scaled down stays so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub wake: Option<i64>,
}

/// No policy of a cluster manager acts until the hold ends.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RecordHold {
    /// When the hold ends.
    #[schemars(schema_with = "schema::instant")]
    pub until: Timestamp,
    /// Why, for people. Default: none, since it decides nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 200))]
    pub reason: Option<String>,
    /// Who holds: the name of the user who changes the hold, as the API server knows it (`kubectl auth whoami`). An
    /// admission policy demands it. Default: none, which only accounts with the verb `set-requester` may write.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 1024))]
    pub by: Option<String>,
}

/// A later end of the time to live.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Extension {
    /// The earliest end.
    #[schemars(schema_with = "schema::instant")]
    pub at: Timestamp,
    /// Who extends: the name of the user who changes the extension, as the API server knows it (`kubectl auth whoami`). An
    /// admission policy demands it. Default: none, which only accounts with the verb `set-requester` may write.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 1024))]
    pub by: Option<String>,
}

/// What Coppice observed, decided and did. Only the operator writes it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ManagedNamespaceStatus {
    /// The generation of the spec that this status is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// The uid of the namespace that this status is about: under a later namespace of this name everything begins again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 128))]
    pub namespace_uid: Option<String>,
    /// The cluster manager that governs the namespace; absent while none does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub manager: Option<GoverningManager>,
    /// Who owns the namespace, by what its cluster manager reads; absent if nothing says so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = MAX_OWNER))]
    pub owner: Option<String>,
    /// How the namespace is; absent while no cluster manager governs it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub phase: Option<NamespacePhase>,
    /// Since when.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::status_instant")]
    pub phase_since: Option<Timestamp>,
    /// The phases before this one, the latest first: the last ten. Atomic, since their order counts.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 10), extend("x-kubernetes-list-type" = "atomic"))]
    pub past_phases: Vec<PastPhase>,
    /// What is failing, by kind and name: the first sixteen. Atomic: it is what one look at the namespace has found.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16), extend("x-kubernetes-list-type" = "atomic"))]
    pub failing: Vec<FailingObject>,
    /// How many more are failing; absent if none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failing_more: Option<u32>,
    /// The timers of its health; absent unless its cluster manager looks at that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub health: Option<HealthRecord>,
    /// When everything in it was ready for the first time since it was last anything but `Ok`, or had no running pod: a pod runs,
    /// every pod is ready, and no workload lacks one. Absent before, and unless its cluster manager waits for that to let it
    /// supersede others.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::status_instant")]
    pub ready_at: Option<Timestamp>,
    /// Which namespace has taken its place; absent unless one has.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub superseded_by: Option<Successor>,
    /// Its time to live, where its cluster manager takes that from an annotation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ttl: Option<RecordedTtl>,
    /// How far its users may go, where its cluster manager limits that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limits: Option<RecordLimits>,
    /// For how long it has been held, where its cluster manager limits that; absent if it has not been for 24 hours.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub held: Option<Held>,
    /// The verdict on each policy that waits for pods to succeed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 10), extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]))]
    pub policies: Vec<PodsVerdict>,
    /// When its time to live ends; absent if it has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::status_instant")]
    pub expires_at: Option<Timestamp>,
    /// How that date has changed, the latest first: the last ten. The first date is among it where an extension made it. Atomic, since
    /// their order counts.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 10), extend("x-kubernetes-list-type" = "atomic"))]
    pub expiry_changes: Vec<ExpiryChange>,
    /// What will be done next, or would be if the policy enforced; or why nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<NextStep>,
    /// What has been decided, announced and done.
    #[serde(flatten)]
    pub steps: Steps,
    /// The notifications of its owner, and what is known of their delivery, the oldest first. What a deletion waits for is among it; the rest is
    /// kept while there is room.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 20), extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["key"]))]
    pub notices: Vec<MessageDelivery>,
    /// The least number that `spec.wake` can have: that of the last scale-down. Absent if nothing is scaled down.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wakes_from: Option<i64>,
    /// The policies that have fired, and whose condition has been true ever since: they do not fire again before it has been
    /// false.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 10), extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["policy"]))]
    pub fired: Vec<FiredPolicy>,
    /// The policies that observe, and would have acted upon the namespace by now.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 10), extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["policy"]))]
    pub would_have_acted: Vec<WouldHaveActed>,
    /// The same of cluster managers that do not govern the namespace any more, which count it; the latest first: the last ten. Atomic,
    /// since their order counts.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 10), extend("x-kubernetes-list-type" = "atomic"))]
    pub observed_before: Vec<ObservedBefore>,
    /// `Ready`: what the namespace rests on is known, and nothing is failing. `TtlUnderstood`, where the cluster manager takes
    /// the ttl from an annotation: the namespace has none, or one that is a duration. `WithinLimits`, where the cluster manager
    /// limits ttls or holds: what is asked for counts as it is asked for. `Identified`, where the cluster manager has what is
    /// superseded found: it is known what the namespace was made for.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "schema::conditions")]
    pub conditions: Vec<Condition>,
}

/// A namespace that has taken the place of another one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Successor {
    /// Its name.
    #[schemars(length(max = 63))]
    pub namespace: String,
    /// Its uid.
    #[schemars(length(max = 128))]
    pub uid: String,
    /// When it was created.
    #[schemars(schema_with = "schema::status_instant")]
    pub created: Timestamp,
    /// Since when there has been a successor: this one, or another before it.
    #[schemars(schema_with = "schema::status_instant")]
    pub since: Timestamp,
}

/// How far the users of a namespace may go by its annotations and in its record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RecordLimits {
    /// The latest end that its users can give it: `limits.maxTTL` of its cluster manager after its creation. Absent if there is no
    /// limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::status_instant")]
    pub latest_end: Option<Timestamp>,
    /// For how long its holds count, from the first one on: `limits.maxHold` of its cluster manager. Absent if there is no limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::duration")]
    pub max_hold: Option<Duration>,
}

/// For how long a namespace has been held.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Held {
    /// Since when: `limits.maxHold` counts from here.
    #[schemars(schema_with = "schema::status_instant")]
    pub since: Timestamp,
    /// When the last hold ends, or was removed. A hold that follows within 24 hours, and the longest notice of the policies
    /// besides, is no first one.
    #[schemars(schema_with = "schema::status_instant")]
    pub until: Timestamp,
}

/// A time to live that an annotation may change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RecordedTtl {
    /// The one that counts, from the creation of the namespace on.
    #[schemars(schema_with = "schema::positive_duration")]
    pub after: Duration,
    /// The longest under this spec of the cluster manager: by a shorter one it is the annotation, and not the spec, that makes the
    /// namespace due.
    #[schemars(schema_with = "schema::positive_duration")]
    pub first: Duration,
    /// A shorter one that the annotation asks for, and that has not settled; absent if there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shorter: Option<ShorterTtl>,
}

/// A shorter time to live, which does not count yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ShorterTtl {
    /// From the creation of the namespace on.
    #[schemars(schema_with = "schema::positive_duration")]
    pub after: Duration,
    /// It counts from this instant on, if the annotation stays as it is: the manager's `settle` after it was seen.
    #[schemars(schema_with = "schema::status_instant")]
    pub from: Timestamp,
}

/// The verdict on a policy that waits for pods to succeed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PodsVerdict {
    /// The verdict.
    #[serde(flatten)]
    pub verdict: PolicyStatus,
    /// Since when the pods have succeeded, under the present spec of the cluster manager, as far as is known: what is unknown for a
    /// time does not end it. Absent if they are known not to have.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::status_instant")]
    pub succeeded_since: Option<Timestamp>,
}

/// A policy that has fired.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct FiredPolicy {
    /// Its name.
    #[schemars(length(max = 256))]
    pub policy: String,
    /// A digest of the policy: one that was changed is another, and may fire.
    #[schemars(length(max = 128))]
    pub digest: String,
    /// When.
    #[schemars(schema_with = "schema::status_instant")]
    pub at: Timestamp,
}

/// A phase that a namespace was in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PastPhase {
    /// The phase.
    pub phase: NamespacePhase,
    /// Since when it was in it; until the next one began.
    #[schemars(schema_with = "schema::status_instant")]
    pub since: Timestamp,
}

/// A change of the date on which a namespace expires.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ExpiryChange {
    /// When that was seen.
    #[schemars(schema_with = "schema::status_instant")]
    pub at: Timestamp,
    /// The date before; absent if it had none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::status_instant")]
    pub from: Option<Timestamp>,
    /// The date since; absent if it has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::status_instant")]
    pub to: Option<Timestamp>,
    /// What makes the date since: an enumerated reason.
    #[schemars(length(max = 1024))]
    pub reason: String,
    /// The same for people.
    #[schemars(length(max = 1024))]
    pub message: String,
    /// Who asked for it, where the API server knows that: `extendUntil.by`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 1024))]
    pub by: Option<String>,
}

/// The cluster manager that governs a namespace.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct GoverningManager {
    /// Its name.
    #[schemars(length(max = 253))]
    pub name: String,
    /// Its uid: a later one of the same name is another.
    #[schemars(length(max = 128))]
    pub uid: String,
    /// The digest of its spec.
    #[schemars(length(max = 128))]
    pub digest: String,
    /// The generation of its spec.
    pub generation: i64,
    /// Since when this very spec governs the namespace: `settle` counts from here.
    #[schemars(schema_with = "schema::status_instant")]
    pub since: Timestamp,
}

/// How a namespace is. The first that applies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
pub enum NamespacePhase {
    /// It is being deleted.
    Terminating,
    /// Its time to live is over.
    Stale,
    /// A later namespace for the same merge request, branch or commit has taken its place.
    Superseded,
    /// It has been `Failing` for the `gracePeriod` of its cluster manager.
    Failed,
    /// Something has been failing for `settlingPeriod`, or again and again.
    Failing,
    /// Something fails, or did a moment ago.
    Unstable,
    /// Nothing is wrong with it.
    Ok,
    /// A fact that is needed is not known. Never acted upon.
    Unknown,
}

impl NamespacePhase {
    /// Every phase, for metrics.
    pub const ALL: [Self; 8] = [
        Self::Terminating,
        Self::Stale,
        Self::Superseded,
        Self::Failed,
        Self::Failing,
        Self::Unstable,
        Self::Ok,
        Self::Unknown,
    ];

    /// The phase as written in status.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Terminating => "Terminating",
            Self::Stale => "Stale",
            Self::Superseded => "Superseded",
            Self::Failed => "Failed",
            Self::Failing => "Failing",
            Self::Unstable => "Unstable",
            Self::Ok => "Ok",
            Self::Unknown => "Unknown",
        }
    }
}
