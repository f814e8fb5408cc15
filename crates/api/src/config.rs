//! `CoppiceConfig`: the whole installation's settings. One object, named `coppice`.

#![allow(clippy::duplicated_attributes, reason = "printer columns of one type")]

use std::fmt;
use std::str::FromStr;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::CustomResource;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};

use crate::channel::{Channel, MessagesSpec};
use crate::manager::Action;
use crate::schema;
use crate::selector::Selector;

/// The whole installation's settings. Only the object named `coppice` is read; without it nothing destructive happens.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "coppice.dev",
    version = "v1alpha1",
    kind = "CoppiceConfig",
    plural = "coppiceconfigs",
    shortname = "copcfg",
    category = "coppice",
    status = "CoppiceConfigStatus",
    derive = "PartialEq",
    doc = "The whole installation's settings. Only the object named coppice is read; without it nothing destructive happens.",
    printcolumn(name = "Paused", type_ = "boolean", json_path = ".spec.governor.paused"),
    printcolumn(name = "Last hour", type_ = "integer", json_path = ".status.governor.lastHour"),
    printcolumn(name = "Per hour", type_ = "integer", json_path = ".status.governor.hourlyLimit"),
    printcolumn(
        name = "Ready",
        type_ = "string",
        json_path = ".status.conditions[?(@.type==\"Ready\")].status"
    ),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[serde(rename_all = "camelCase")]
pub struct CoppiceConfigSpec {
    /// Namespaces that are never deleted or scaled down, in addition to the built-in list. Default: none, since only the
    /// platform knows them.
    #[serde(default)]
    pub protected: Protected,
    /// The budget of destructive steps, and the breaker. What users delete one by one in a tree of namespaces has the same limits for each
    /// tree by itself. Default: each field's own, so that every limit can be set alone.
    #[serde(default)]
    pub governor: GovernorSpec,
    /// What tenants may ask for. Default: each field's own, so that every limit can be set alone.
    #[serde(default)]
    pub tenants: Tenants,
    /// The channels by which cluster managers notify owners (`spec.notify.channels`). Default: none, since only the platform
    /// knows what there is to send by.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16), extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]))]
    pub channels: Vec<Channel>,
    /// The texts of messages by mail and in Slack. Default: the built-in ones, so that every message says what is needed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub messages: Option<MessagesSpec>,
}

/// Namespaces that are never deleted or scaled down. Added to the built-in list (`default`, `kube-*`, the operator's
/// own namespace, the label `coppice.dev/protected` with any value), never subtracted from it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Protected {
    /// Names or globs over the whole name: `prod-*` matches `prod-eu`, not `preprod-eu`. Default: none, since only the platform
    /// knows them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 256), inner(length(min = 1, max = 253)), extend("x-kubernetes-validations" = [{
        "rule": "self.all(name, name.matches('^[a-z0-9*-]+$'))",
        "message": "a namespace's name has lower-case letters, digits and '-'; '*' stands for any of them: anything else would protect nothing"
    }]))]
    pub names: Vec<String>,
    /// Namespaces with these labels. Default: none, since only the platform knows its labels.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub selector: Option<Selector>,
}

/// The budget of destructive steps (deleting, scaling down), and the breaker, which stops all of them: opened by hand
/// (`paused`), or by a list of facts that has collapsed (`status.governor.breaker`).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct GovernorSpec {
    /// Stops destructive steps by hand: while true none is taken. Default: false, so that an installation works.
    #[serde(default)]
    pub paused: bool,
    /// The id of the breaker (`status.governor.breaker.id`) that an administrator has looked at: it closes, and does not
    /// open again under this id. Any other breaker stays open. Default: none, since nobody has looked at one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 128))]
    pub acknowledge: Option<String>,
    /// Destructive steps in any 60 seconds. Default: 30, so that the namespaces of a busy CI system go in time, while a
    /// wrong policy is seen before it has done much.
    #[serde(default = "per_minute")]
    #[schemars(range(min = 0, max = 100_000))]
    pub per_minute: u32,
    /// Destructive steps in any hour. Default: 300, a sixth of what `perMinute` alone would permit: bursts are normal, a
    /// burst that lasts an hour is not.
    #[serde(default = "per_hour")]
    #[schemars(range(min = 0, max = 1_000_000))]
    pub per_hour: u32,
    /// Destructive steps in any hour, as a share of all managed namespaces. Default: 20%, so that a mistake leaves most of
    /// a cluster alone whatever its size.
    #[serde(default)]
    pub max_share: Percent,
    /// The share never limits to fewer than this many an hour. Default: 10, so that small installations work.
    #[serde(default = "at_least")]
    #[schemars(range(min = 0, max = 1_000_000))]
    pub at_least: u32,
}

impl Default for GovernorSpec {
    fn default() -> Self {
        Self {
            paused: false,
            acknowledge: None,
            per_minute: per_minute(),
            per_hour: per_hour(),
            max_share: Percent::default(),
            at_least: at_least(),
        }
    }
}

const fn per_minute() -> u32 {
    30
}

const fn per_hour() -> u32 {
    300
}

const fn at_least() -> u32 {
    10
}

/// A whole number of percent, written `20%`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Percent(u8);

impl Percent {
    /// Of how many, rounded down.
    pub const fn of(self, whole: u64) -> u64 {
        whole.saturating_mul(self.0 as u64) / 100
    }
}

impl Default for Percent {
    fn default() -> Self {
        Self(20)
    }
}

impl fmt::Display for Percent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}%", self.0)
    }
}

/// A text that is no share.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PercentError(String);

impl fmt::Display for PercentError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} is not a share: write 1% to 100%", self.0)
    }
}

impl std::error::Error for PercentError {}

impl FromStr for Percent {
    type Err = PercentError;

    fn from_str(text: &str) -> Result<Self, PercentError> {
        text.strip_suffix('%')
            .filter(|digits| digits.bytes().all(|b| b.is_ascii_digit()))
            .and_then(|digits| digits.parse().ok())
            .filter(|percent| (1..=100).contains(percent))
            .map(Self)
            .ok_or_else(|| PercentError(text.to_owned()))
    }
}

impl Serialize for Percent {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Percent {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

impl JsonSchema for Percent {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Percent".into()
    }

    fn inline_schema() -> bool {
        true
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "type": "string",
            "maxLength": 4,
            "x-kubernetes-validations": [{
                "rule": "self.matches('^([1-9][0-9]?|100)%$')",
                "message": "write a share from 1% to 100%, such as 20%"
            }]
        })
    }
}

/// What tenants may ask for with their `NamespaceManagers`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Tenants {
    /// Which namespaces may hold `NamespaceManagers`. Default: all, since the right to create them is granted by RBAC.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace_selector: Option<Selector>,
    /// Which actions they may use. Default: all of them, since each is bounded by the budget and by what is protected.
    #[serde(default = "default_actions")]
    #[schemars(length(max = 3))]
    pub actions: Vec<TenantAction>,
    /// Where webhooks may go: hosts (`*.example.org`), `host:port`, IP addresses or prefixes. `{namespace}` stands for the
    /// namespace of the manager. A name never permits a loopback, link-local or metadata address; an address or prefix permits
    /// exactly those addresses. Default: `*.{namespace}.svc` and `*.{namespace}.svc.cluster.local`, so that webhooks reach the
    /// Services of their own namespace only.
    #[serde(default = "default_webhook_hosts")]
    #[schemars(schema_with = "schema::webhook_hosts", default = "default_webhook_hosts")]
    pub webhook_hosts: Vec<String>,
}

/// An action that tenants may use. Waking is none of them: anyone who may scale down may wake.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum TenantAction {
    /// Delete the namespace.
    Delete,
    /// Scale workloads to zero.
    ScaleDown,
    /// POST to a URL.
    Webhook,
}

impl From<TenantAction> for Action {
    fn from(action: TenantAction) -> Self {
        match action {
            TenantAction::Delete => Self::Delete,
            TenantAction::ScaleDown => Self::ScaleDown,
            TenantAction::Webhook => Self::Webhook,
        }
    }
}

impl Default for Tenants {
    fn default() -> Self {
        Self { namespace_selector: None, actions: default_actions(), webhook_hosts: default_webhook_hosts() }
    }
}

fn default_actions() -> Vec<TenantAction> {
    vec![TenantAction::Delete, TenantAction::ScaleDown, TenantAction::Webhook]
}

fn default_webhook_hosts() -> Vec<String> {
    vec!["*.{namespace}.svc".to_owned(), "*.{namespace}.svc.cluster.local".to_owned()]
}

/// What is in force. Only the operator writes it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CoppiceConfigStatus {
    /// The generation of the spec that this status is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// The public half of the key that signs webhooks, as Standard Webhooks writes it (`whpk_...`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 256))]
    pub webhook_key: Option<String>,
    /// The version of the operator that writes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 128))]
    pub version: Option<String>,
    /// The budget and what is spent of it.
    #[serde(default)]
    pub governor: GovernorStatus,
    /// `Ready`: every entry of spec is in force.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "schema::conditions")]
    pub conditions: Vec<Condition>,
}

/// The budget of destructive steps: a ledger that every replica shares by compare-and-swap.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct GovernorStatus {
    /// How many steps an hour managers and cluster managers are allowed at present.
    #[serde(default)]
    pub hourly_limit: u32,
    /// Steps reserved for them in the last hour; brought up to date once a minute.
    #[serde(default)]
    pub last_hour: u32,
    /// The breaker that a collapse of facts has opened: no destructive step is taken until `spec.governor.acknowledge`
    /// names it. Absent while none is open; one that is opened by `spec.governor.paused` is not shown here.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub breaker: Option<Breaker>,
    /// What stops their steps, and since when; absent while steps are allowed; brought up to date once a minute.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub blocked: Option<Blocked>,
    /// Steps reserved for managers and cluster managers in the last hour, oldest first, those of one instant together. Atomic, since their
    /// order counts.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 1024), extend("x-kubernetes-list-type" = "atomic"))]
    pub reservations: Vec<ReservationEntry>,
    /// The same for what trees of namespaces have in common, whose hourly share is their own: where a namespace is deleted with all
    /// below it. Atomic, since their order counts.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 1024), extend("x-kubernetes-list-type" = "atomic"))]
    pub tree_reservations: Vec<ReservationEntry>,
    /// The budget of each tree of namespaces, by its name: what its users delete one by one. A tree of which nothing was reserved in
    /// the last hour is left out. Atomic: who reserves writes the whole ledger that was read.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 100), extend("x-kubernetes-list-type" = "atomic"))]
    pub tree_budgets: Vec<TreeBudget>,
}

/// What was reserved of the budget of one tree of namespaces.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct TreeBudget {
    /// The name of its NamespaceTree.
    #[schemars(length(max = 253))]
    pub tree: String,
    /// Steps reserved for it in the last hour, oldest first, those of one instant together. Atomic, since their order counts.
    #[serde(default)]
    #[schemars(length(max = 1024), extend("x-kubernetes-list-type" = "atomic"))]
    pub reservations: Vec<ReservationEntry>,
}

/// A breaker that a collapse of facts has opened.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Breaker {
    /// Names this breaker and no other: its source and the instant at which it opened.
    #[schemars(length(max = 128))]
    pub id: String,
    /// The resource whose list collapsed, such as `pods`.
    #[schemars(length(max = 63))]
    pub source: String,
    /// What was seen, for people.
    #[schemars(length(max = 32768))]
    pub message: String,
    /// Since when it is open.
    #[schemars(schema_with = "schema::status_instant")]
    pub since: Timestamp,
}

/// Why the governor stops steps.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Blocked {
    /// An enumerated reason.
    #[schemars(length(max = 1024))]
    pub reason: String,
    /// The same for people.
    #[schemars(length(max = 32768))]
    pub message: String,
    /// Since when.
    #[schemars(schema_with = "schema::status_instant")]
    pub since: Timestamp,
}

/// Steps reserved at one instant.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ReservationEntry {
    /// When; whole seconds, rounded up.
    #[schemars(schema_with = "schema::status_instant")]
    pub at: Timestamp,
    /// How many.
    pub steps: u32,
}
