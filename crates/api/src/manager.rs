//! `NamespaceManager`: a tenant's policies for the namespace it lives in.

#![allow(clippy::duplicated_attributes, reason = "printer columns of one type")]

use coppice_quantity::Duration;
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::schema;
use crate::selector::Selector;
pub use crate::steps::{Action, Firing, Intent, Notice, Steps};

/// What happens to the namespace that this object lives in, and when.
///
/// Policies are looked at in order; the first whose condition is true fires, once. The manager is then dormant until
/// its policies change or `rearm` names that firing.
#[derive(CustomResource, Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "coppice.dev",
    version = "v1alpha1",
    kind = "NamespaceManager",
    plural = "namespacemanagers",
    shortname = "nsman",
    category = "coppice",
    namespaced,
    status = "NamespaceManagerStatus",
    derive = "PartialEq",
    doc = "A tenant's policies for the namespace it lives in: the first policy whose condition is true fires, once.",
    printcolumn(name = "Phase", type_ = "string", json_path = ".status.phase"),
    printcolumn(
        name = "Next",
        type_ = "string",
        json_path = ".status.next.action",
        description = "What will be done next"
    ),
    printcolumn(
        name = "Due",
        type_ = "string",
        json_path = ".status.next.due",
        description = "When, if it depends on time alone"
    ),
    printcolumn(
        name = "Why",
        type_ = "string",
        json_path = ".status.next.message",
        description = "What it waits for, or why nothing will be done",
        priority = 1
    ),
    printcolumn(name = "Fired", type_ = "integer", json_path = ".status.firings", priority = 1),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[serde(rename_all = "camelCase")]
pub struct NamespaceManagerSpec {
    /// While true nothing is done. The user's switch: Coppice never writes spec. Default: false, so that a manager does what it
    /// says.
    #[serde(default)]
    pub suspend: bool,
    /// Policies, in order. The first whose condition is true fires.
    #[schemars(length(min = 1, max = 10), extend("x-kubernetes-validations" = [{
        "rule": "self.all(p, self.exists_one(q, q.name == p.name))",
        "message": "two policies have the same name: status and firings refer to policies by name, so each needs its own"
    }, {
        "rule": schema::limit_selector_terms(),
        "message": schema::TOO_MANY_SELECTOR_TERMS
    }]))]
    pub policies: Vec<Policy>,
    /// No policy fires until the hold ends. Default: no hold, so that policies fire in time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hold: Option<Hold>,
    /// No ttl fires before this instant. Default: none, so that the ttl's own date counts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::instant")]
    pub extend_until: Option<Timestamp>,
    /// Fire again after this firing: takes effect while it equals `status.firings`; anything else is ignored, so that the same
    /// object applied again fires nothing. Default: none, so that a policy fires once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub rearm: Option<i64>,
    /// Undo the scale-down of this firing (what `coppice wake` writes): takes effect while it equals `status.firings`. Default:
    /// none, so that what was scaled down stays so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub wake: Option<i64>,
}

/// One condition and the action that it fires.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Policy {
    /// The policy's name, unique in its manager. It can be a sentence.
    #[schemars(length(min = 1, max = 100))]
    pub name: String,
    /// The condition.
    pub when: When,
    /// The action.
    pub then: Then,
}

/// A condition: exactly one of its fields.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [{
    "rule": "[has(self.ttl), has(self.podsSucceed)].filter(x, x).size() == 1",
    "message": "write exactly one condition in when: ttl or podsSucceed; for two conditions write two policies"
}]))]
pub struct When {
    /// True when a time has passed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ttl: Option<Ttl>,
    /// True when the namespace's pods have succeeded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pods_succeed: Option<PodsSucceed>,
}

/// A time to live: exactly one of its fields.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [{
    "rule": "has(self.after) != has(self.until)",
    "message": "write exactly one of after (a duration since the namespace was created, such as 2h) and until (an instant)"
}]))]
pub struct Ttl {
    /// How long after the namespace was created. Never early: creation times have a resolution of one second, so the
    /// policy becomes due up to one second late.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::positive_duration")]
    pub after: Option<Duration>,
    /// At which instant.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::instant")]
    pub until: Option<Timestamp>,
}

/// True when every pod that counts has succeeded.
///
/// A Job's pods count through the Job: until it is complete they are no success. Pods that are being deleted are no
/// evidence.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PodsSucceed {
    /// Which pods count. Default: every pod of the namespace, so that none that fails is overlooked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub selector: Option<Selector>,
    /// Never true before the namespace is this old. Default: 60s, so that pods have time to appear.
    #[serde(default = "initial_delay")]
    #[schemars(schema_with = "schema::duration", default = "initial_delay")]
    pub initial_delay: Duration,
    /// The minimum number of pods that must have succeeded. With 0, no pods at all count as success. Default: 1, because an
    /// empty namespace more often waits for its pods than it is done.
    #[serde(default = "min_pods")]
    #[schemars(range(min = 0, max = 100_000))]
    pub min_pods: u32,
    /// The condition must hold this long without a break. Default: 0s, since pods that have succeeded stay so.
    #[serde(default)]
    #[schemars(schema_with = "schema::duration", default = "zero")]
    pub settle: Duration,
    /// A failed pod of a Job that completed does not count as failed. Default: true, because the Job has made up for it.
    #[serde(default = "default_true")]
    pub ignore_retried: bool,
}

impl Default for PodsSucceed {
    fn default() -> Self {
        Self {
            selector: None,
            initial_delay: initial_delay(),
            min_pods: min_pods(),
            settle: Duration::ZERO,
            ignore_retried: true,
        }
    }
}

const fn initial_delay() -> Duration {
    Duration::from_secs(60)
}

const fn min_pods() -> u32 {
    1
}

const fn zero() -> Duration {
    Duration::ZERO
}

const fn default_true() -> bool {
    true
}

/// An action: exactly one of its fields.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [{
    "rule": "[has(self.delete), has(self.scaleDown), has(self.webhook)].filter(x, x).size() == 1",
    "message": "write exactly one action in then: delete, scaleDown or webhook; for two actions write two managers"
}]))]
pub struct Then {
    /// Delete the namespace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delete: Option<Delete>,
    /// Scale workloads to zero, remembering their replicas.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scale_down: Option<ScaleDown>,
    /// POST to a URL.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub webhook: Option<Webhook>,
}

/// Delete the namespace and everything in it. Cannot be undone.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Delete {
    /// How long before the deletion it is announced. A ttl is announced ahead of its end, so that it is not prolonged.
    /// Default: 0s, because the namespaces of a CI system have nobody to read a notice.
    #[serde(default)]
    #[schemars(schema_with = "schema::duration", default = "zero")]
    pub notice: Duration,
}

/// Scale workloads to zero and remember their replicas, so that `coppice wake` can undo it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ScaleDown {
    /// Which workloads, a union. Default: every Deployment and StatefulSet, which is what keeps pods running.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 16), extend("x-kubernetes-validations" = [{
        "rule": "size(self) > 0",
        "message": "selectors is empty and would select nothing: leave it out to scale down every Deployment and StatefulSet, or list the kinds"
    }]))]
    pub selectors: Option<Vec<WorkloadSelector>>,
}

/// Workloads of one kind.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [{
    "rule": "has(self.apiVersion) || self.kind in ['Deployment', 'StatefulSet', 'ReplicaSet', 'CronJob']",
    "message": "kind must be Deployment, StatefulSet, ReplicaSet or CronJob; a further kind with a scale subresource needs its apiVersion, and the installation must list it"
}]))]
pub struct WorkloadSelector {
    /// The kind's group and version. Default: that of Deployment, `StatefulSet`, `ReplicaSet` or `CronJob`, since these are
    /// known; other kinds need it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253))]
    pub api_version: Option<String>,
    /// The kind. A `CronJob` is suspended instead of scaled.
    #[schemars(length(min = 1, max = 63))]
    pub kind: String,
    /// Selects by the labels of the workload object itself. Default: every object of the kind, so that none that keeps pods
    /// running is overlooked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub selector: Option<Selector>,
}

/// POST a signed JSON document to a URL until the receiver answers with success or the attempts are used up.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Webhook {
    /// Where to; the host must be allowed by `CoppiceConfig`.
    #[schemars(length(max = 2048), extend("x-kubernetes-validations" = [{
        "rule": "isURL(self) && url(self).getScheme() in ['http', 'https'] && url(self).getHostname() != ''",
        "message": "write an absolute http:// or https:// URL, such as http://receiver.my-namespace.svc/hook"
    }]))]
    pub url: String,
    /// What the body looks like. Default: `coppice`, the only one that carries the evidence.
    #[serde(default)]
    pub format: WebhookFormat,
}

/// What a webhook's body looks like.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum WebhookFormat {
    /// Coppice's own: manager, policy, namespace, uid, firing id, evidence.
    #[default]
    Coppice,
    /// The body of the ConSol k8s-namespace-manager, for its receivers.
    Consol,
}

/// Nothing fires until the hold ends.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Hold {
    /// When the hold ends.
    #[schemars(schema_with = "schema::instant")]
    pub until: Timestamp,
    /// Why, for people. Default: none, since it decides nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 200))]
    pub reason: Option<String>,
}

/// What Coppice observed, decided and did. Only the operator writes it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NamespaceManagerStatus {
    /// The generation of the spec that this status is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// Where the manager stands.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub phase: Option<Phase>,
    /// What has been decided, announced and done.
    #[serde(flatten)]
    pub steps: Steps,
    /// What will be done next, or why nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<NextStep>,
    /// A digest of the policies that `policies` is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 128))]
    pub policies_digest: Option<String>,
    /// The verdict on each policy, in the order of spec.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16), extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]))]
    pub policies: Vec<PolicyStatus>,
    /// `Accepted`: spec is valid and permitted by the platform settings. `Fired`: a policy has fired since the policies
    /// were changed or the manager was re-armed. `Ready`: spec is in force and nothing is failing.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "schema::conditions")]
    pub conditions: Vec<Condition>,
}

/// Where a manager stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
pub enum Phase {
    /// Policies are being watched.
    Active,
    /// Something has been decided or announced and is not complete.
    Pending,
    /// A policy has fired; dormant until the policies change or the manager is re-armed.
    Fired,
    /// A hold is in force.
    Held,
    /// `spec.suspend` is true.
    Suspended,
    /// Something in spec is impossible here; nothing is done.
    Refused,
    /// The namespace is being deleted.
    Terminating,
}

impl Phase {
    /// Every phase, for metrics.
    pub const ALL: [Self; 7] = [
        Self::Active,
        Self::Pending,
        Self::Fired,
        Self::Held,
        Self::Suspended,
        Self::Refused,
        Self::Terminating,
    ];

    /// The phase as written in status.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Active => "Active",
            Self::Pending => "Pending",
            Self::Fired => "Fired",
            Self::Held => "Held",
            Self::Suspended => "Suspended",
            Self::Refused => "Refused",
            Self::Terminating => "Terminating",
        }
    }
}

/// What will be done next, for people and printer columns.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NextStep {
    /// The action (`delete`, `scaleDown`, `webhook`, `wake`), absent when nothing will be done.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 63))]
    pub action: Option<String>,
    /// The policy behind it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 256))]
    pub policy: Option<String>,
    /// When it is due, if that depends on time alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::status_instant")]
    pub due: Option<Timestamp>,
    /// Why it waits, or why nothing will be done: an enumerated reason.
    #[schemars(length(max = 1024))]
    pub reason: String,
    /// The same for people.
    #[schemars(length(max = 32768))]
    pub message: String,
}

/// A three-valued verdict.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Verdict {
    /// The condition holds.
    True,
    /// It does not.
    False,
    /// Not enough is known. Never acted upon.
    Unknown,
}

/// The verdict on one policy.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PolicyStatus {
    /// The policy's name.
    #[schemars(length(max = 256))]
    pub name: String,
    /// Whether its condition holds.
    pub result: Verdict,
    /// Why: an enumerated reason.
    #[schemars(length(max = 1024))]
    pub reason: String,
    /// The same for people.
    #[schemars(length(max = 32768))]
    pub message: String,
    /// Since when the result is what it is.
    #[schemars(schema_with = "schema::status_instant")]
    pub since: Timestamp,
    /// When the policy is due, if that depends on time alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::status_instant")]
    pub due: Option<Timestamp>,
}
