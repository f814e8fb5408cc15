//! `ClusterNamespaceManager`: the platform's policies for all namespaces that it selects. Cluster-scoped.
//!
//! A field that this version does not know is refused, not ignored: a selector without the part that a newer version added
//! selects more.

#![allow(clippy::duplicated_attributes, reason = "printer columns of one type")]

use coppice_quantity::Duration;
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::health::HealthSpec;
use crate::identity::{IdentityKeys, Supersede};
use crate::limits::Limits;
pub use crate::manager::{Delete, PodsSucceed, ScaleDown, Ttl, WebhookFormat};
use crate::notify::Notify;
use crate::observed::ObservedCounts;
use crate::owner::OwnerSource;
use crate::schema;
use crate::selector::Selector;

/// The platform's policies for all namespaces that it selects.
///
/// One cluster manager governs a namespace. Where several select it, those that enforce come before those that observe;
/// then the higher priority wins, then the more specific selector (labels before annotations, annotations before names
/// alone), then the name that comes first.
#[derive(CustomResource, Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "coppice.dev",
    version = "v1alpha1",
    kind = "ClusterNamespaceManager",
    plural = "clusternamespacemanagers",
    shortname = "cnsman",
    category = "coppice",
    status = "ClusterNamespaceManagerStatus",
    derive = "PartialEq",
    doc = "The platform's policies for all namespaces that it selects. It observes until its mode is Enforce.",
    printcolumn(name = "Mode", type_ = "string", json_path = ".spec.mode"),
    printcolumn(
        name = "Governed",
        type_ = "integer",
        json_path = ".status.namespaces.governed",
        description = "Namespaces that it governs"
    ),
    printcolumn(
        name = "Due",
        type_ = "integer",
        json_path = ".status.enforce.due",
        description = "Namespaces that are due, or would be if it enforced"
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
#[schemars(extend("x-kubernetes-validations" = [{
    "rule": "has(self.ttl) || !has(self.policies) || self.policies.all(p, !has(p.when.phase) || !('Stale' in p.when.phase.__in__))",
    "message": "a policy waits for the phase Stale, which no namespace has without a ttl: write spec.ttl, such as {after: 2h}"
}, {
    "rule": "has(self.health) || !has(self.policies) || self.policies.all(p, !has(p.when.phase) || p.when.phase.__in__.all(phase, phase in ['Stale', 'Superseded']))",
    "message": "a policy waits for Unstable, Failing or Failed, which no namespace is unless its health is looked at: write spec.health, such as {}"
}, {
    "rule": "has(self.supersede) || !has(self.policies) || self.policies.all(p, !has(p.when.phase) || !('Superseded' in p.when.phase.__in__))",
    "message": "a policy waits for the phase Superseded, which no namespace is without spec.supersede: write it, such as {by: [Branch]}"
}, {
    "rule": "!has(self.supersede) || has(self.identity) && self.supersede.by.all(one, one == 'MergeRequest' ? has(self.identity.mergeRequest) : one == 'Branch' ? has(self.identity.branch) : has(self.identity.commit))",
    "message": "supersede.by names what spec.identity does not read: write there the key of the label or annotation that has it, such as branch: example.com/branch"
}, {
    "rule": "!has(self.supersede) || !self.supersede.waitUntilReady || has(self.health)",
    "message": "supersede.waitUntilReady needs to know when a namespace is ready: write spec.health, such as {}, or waitUntilReady: false"
}]))]
pub struct ClusterNamespaceManagerSpec {
    /// Whether policies act. Default: `Observe`, so that a platform sees what would be done before it is done.
    #[serde(default)]
    pub mode: Mode,
    /// While true nothing is done, and other managers do not take over. The user's switch: Coppice never writes spec. Default:
    /// false, so that a manager does what it says.
    #[serde(default)]
    pub suspend: bool,
    /// Consent to act upon more namespaces than the hourly budget. Needed where a spec makes so many due at once: by its switch to
    /// `Enforce`, a wider selector or a shorter ttl. Default: none, so that nobody acts upon so many by mistake.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub approval: Option<Approval>,
    /// Of several managers that select a namespace, and of which all enforce or all observe, the one with the highest
    /// priority governs it. Default: 0, so that a manager can be put before and after those that say nothing.
    #[serde(default)]
    #[schemars(range(min = -1_000_000, max = 1_000_000))]
    pub priority: i32,
    /// Which namespaces it is about.
    pub selector: NamespaceSelector,
    /// Nothing is done to a namespace before this very spec has governed it for so long: a change of any field but
    /// `suspend`, `approval`, `owner`, `notify`, `identity` without `supersede`, `health.advice` and what `limits` says of `NamespaceManagers` starts it again. Default:
    /// 5m, so that there is time to notice a mistake.
    #[serde(default = "settle")]
    #[schemars(schema_with = "schema::positive_settle", default = "settle")]
    pub settle: Duration,
    /// When namespaces become `Stale`. Default: never, since nothing may expire that nobody gave a time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ttl: Option<NamespaceTtl>,
    /// When namespaces are `Unstable`, `Failing` and `Failed`; `{}` takes every default. Default: never, and their workloads are
    /// not looked at.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub health: Option<HealthSpec>,
    /// How namespaces say what they were made for. By itself it decides nothing. Default: not at all, so that no namespaces are
    /// compared.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub identity: Option<IdentityKeys>,
    /// When a namespace is `Superseded` by a later one for the same merge request, branch or commit. Default: never, since only
    /// a platform knows whether a later namespace replaces an older one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub supersede: Option<Supersede>,
    /// How namespaces say who owns them: records, lists and metrics show it, and `notify` notifies them. By itself it decides
    /// nothing. Default: not at all, so that only what a platform knows to be an owner is shown as one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<OwnerSource>,
    /// What owners are notified of, by which channels. A deletion that is announced waits until somebody has been notified. Default: nobody is
    /// notified, and deletions wait for their policy's notice alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub notify: Option<Notify>,
    /// What is done to namespaces in a phase. Policies are independent of each other, and their order means nothing.
    /// Default: none, since a manager may just show phases.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 10), extend(
        "x-kubernetes-list-type" = "map",
        "x-kubernetes-list-map-keys" = ["name"],
        "x-kubernetes-validations" = [{
            "rule": schema::limit_selector_terms(),
            "message": schema::TOO_MANY_SELECTOR_TERMS
        }]
    ))]
    pub policies: Vec<ClusterPolicy>,
    /// How far the users of its namespaces may go. Default: no limits but those of `CoppiceConfig`, so that they hold for all
    /// namespaces alike.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limits: Option<Limits>,
}

const fn settle() -> Duration {
    Duration::from_secs(300)
}

/// Whether policies act.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Mode {
    /// Decide, record and show; act on nothing.
    #[default]
    Observe,
    /// Act.
    Enforce,
}

impl Mode {
    /// The mode as it is written.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Observe => "Observe",
            Self::Enforce => "Enforce",
        }
    }
}

/// Consent to act upon more namespaces than the hourly budget.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Approval {
    /// To which spec: `status.policyDigest` of one that enforces. The message of the condition `Approved` names it while the
    /// manager observes, too. To another spec this is no consent.
    #[schemars(length(min = 1, max = 128))]
    pub digest: String,
    /// To how many namespaces at most: `status.enforce.newlyDue` or more. If more become due, all of them wait.
    #[schemars(range(min = 1))]
    pub namespaces: u32,
    /// When the approval ends. It covers any namespaces that become due until then. Keep it short.
    #[schemars(schema_with = "schema::instant")]
    pub valid_until: Timestamp,
}

/// Selects namespaces: every part that is given must hold.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[schemars(extend("x-kubernetes-validations" = [{
    "rule": "has(self.names) || has(self.labels) || has(self.annotations) || has(self.anyOf)",
    "message": "select by names, labels, annotations or anyOf (exclude alone would select every other namespace); to mean every namespace, write names: [\"*\"]"
}]))]
pub struct NamespaceSelector {
    /// Names, or globs over the whole name, of which one must match: `ci-*` matches `ci-42` and never `cilium-secrets`.
    /// Default: any name, so that another part can select alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::name_globs")]
    pub names: Option<Vec<String>>,
    /// Names, or globs over the whole name, of which none may match. Default: none, so that nothing that is selected is left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::name_globs")]
    pub exclude: Option<Vec<String>>,
    /// Labels of the namespace. Default: any, so that another part can select alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub labels: Option<Selector>,
    /// Annotations of the namespace, all of which it must have. Default: any, so that another part can select alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 8), extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["key"]))]
    pub annotations: Option<Vec<AnnotationRequirement>>,
    /// Alternatives, of which one must hold, besides every other part. Default: none is needed, since most selectors have one
    /// way to say it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 8))]
    pub any_of: Option<Vec<SelectorAlternative>>,
}

/// One alternative of a selector: every part that is given must hold.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[schemars(extend("x-kubernetes-validations" = [{
    "rule": "has(self.names) || has(self.labels) || has(self.annotations)",
    "message": "select by names, labels or annotations in every entry of anyOf (exclude alone would select every other namespace): write one of them, or leave the entry out"
}]))]
pub struct SelectorAlternative {
    /// Names, or globs over the whole name, of which one must match. Default: any name, so that another part can select alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::name_globs")]
    pub names: Option<Vec<String>>,
    /// Names, or globs over the whole name, of which none may match. Default: none, so that nothing that is selected is left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::name_globs")]
    pub exclude: Option<Vec<String>>,
    /// Labels of the namespace. Default: any, so that another part can select alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub labels: Option<Selector>,
    /// Annotations of the namespace, all of which it must have. Default: any, so that another part can select alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 8), extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["key"]))]
    pub annotations: Option<Vec<AnnotationRequirement>>,
}

/// The most characters of an annotation's value that a selector can ask for.
pub const MAX_ANNOTATION_VALUE: u32 = 256;

/// An annotation that a namespace must have.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct AnnotationRequirement {
    /// The annotation's key.
    #[schemars(schema_with = "schema::annotation_key")]
    pub key: String,
    /// The value that it must have. Default: any, also an empty one, since most often its presence alone says it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = MAX_ANNOTATION_VALUE))]
    pub value: Option<String>,
}

/// When a namespace becomes `Stale`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct NamespaceTtl {
    /// How long after the namespace was created. Never early: creation times have a resolution of one second, so it
    /// becomes stale up to one second late.
    #[schemars(schema_with = "schema::positive_duration")]
    pub after: Duration,
    /// The key of an annotation by which the creator of a namespace gives it a time of its own, such as `2h`: instead of
    /// `after`, and shorter or longer. Without the annotation, or where its value is no duration, it is `after`. Default:
    /// none, since anyone who may annotate a namespace could keep it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::annotation_key")]
    pub from_annotation: Option<String>,
}

/// A condition and the action that follows.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[schemars(extend("x-kubernetes-validations" = [{
    "rule": "!has(self.then.webhook) || self.then.webhook.format != 'consol' || !has(self.when.phase)",
    "message": "the format consol of a webhook has no words for phases: write format coppice, or wait for ttl or podsSucceed in when"
}]))]
pub struct ClusterPolicy {
    /// The policy's name, unique in its manager. It can be a sentence.
    #[schemars(length(min = 1, max = 100))]
    pub name: String,
    /// Whether this policy acts, where its manager enforces: while the manager observes, so do all of its policies. Default: as the
    /// manager, so that one switch is enough for all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Mode")]
    pub mode: Option<Mode>,
    /// The condition.
    pub when: ClusterWhen,
    /// The action.
    pub then: ClusterThen,
}

/// A condition: exactly one of its fields.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[schemars(extend("x-kubernetes-validations" = [{
    "rule": "[has(self.phase), has(self.ttl), has(self.podsSucceed)].filter(x, x).size() == 1",
    "message": "write exactly one condition in when: phase, ttl or podsSucceed; for two conditions write two policies"
}]))]
pub struct ClusterWhen {
    /// True while the namespace is in one of these phases, and has been for a time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub phase: Option<PhaseCondition>,
    /// True once a time has passed, whatever `spec.ttl` says. `extendUntil` in the record of a namespace delays it, as it does
    /// `spec.ttl`. After the instant of `until` it is true for every namespace, also for those that are created later.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ttl: Option<Ttl>,
    /// True when the namespace's pods have succeeded, as for a `NamespaceManager`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pods_succeed: Option<PodsSucceed>,
}

/// True while the namespace is in one of these phases, and has been for a time.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct PhaseCondition {
    /// The phases.
    #[serde(rename = "in")]
    #[schemars(length(min = 1, max = 8), extend("x-kubernetes-list-type" = "set"))]
    pub phases: Vec<PolicyPhase>,
    /// How long the namespace has to be in them. Default: 0s, since a phase has its own times already.
    #[serde(rename = "for", default)]
    #[schemars(schema_with = "schema::duration", default = "zero")]
    pub lasting: Duration,
}

const fn zero() -> Duration {
    Duration::ZERO
}

/// A phase that a policy can wait for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum PolicyPhase {
    /// The time to live is over.
    Stale,
    /// A later namespace has taken its place.
    Superseded,
    /// Something fails.
    Unstable,
    /// Something has been failing for `settlingPeriod`, or again and again.
    Failing,
    /// It has been `Failing` for `gracePeriod`.
    Failed,
}

impl PolicyPhase {
    /// Whether it is a phase of the health.
    pub const fn is_of_health(self) -> bool {
        match self {
            Self::Stale | Self::Superseded => false,
            Self::Unstable | Self::Failing | Self::Failed => true,
        }
    }

    /// The phase as it is written.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Stale => "Stale",
            Self::Superseded => "Superseded",
            Self::Unstable => "Unstable",
            Self::Failing => "Failing",
            Self::Failed => "Failed",
        }
    }
}

/// An action: exactly one of its fields.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[schemars(extend("x-kubernetes-validations" = [{
    "rule": "[has(self.delete), has(self.scaleDown), has(self.webhook)].filter(x, x).size() == 1",
    "message": "write exactly one action in then: delete, scaleDown or webhook; for two actions write two policies"
}]))]
pub struct ClusterThen {
    /// Delete the namespace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delete: Option<Delete>,
    /// Scale workloads to zero, remembering their replicas. Done once, until the condition has been false in between.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scale_down: Option<ScaleDown>,
    /// POST to a URL. Done once, until the condition has been false in between.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub webhook: Option<ClusterWebhook>,
}

/// POST a signed JSON document to a URL until the receiver answers with success or the attempts are used up.
///
/// Its host need not be in `tenants.webhookHosts` of `CoppiceConfig`, which bind tenants. An IP address, also one that the host
/// resolves to, has to be there if it is a loopback, link-local or otherwise special one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ClusterWebhook {
    /// Where to.
    #[schemars(schema_with = "schema::http_url")]
    pub url: String,
    /// What the body looks like. Default: `coppice`, the only one that carries the evidence.
    #[serde(default)]
    pub format: WebhookFormat,
}

/// What Coppice observed, and what is due. Only the operator writes it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ClusterNamespaceManagerStatus {
    /// The generation of the spec that this status is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// A digest of all fields of spec that decide, which is every one but `suspend`, `approval`, `owner`, `notify`, `health.advice` and
    /// what `limits` says of `NamespaceManagers`. Records of namespaces and approvals name it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 128))]
    pub policy_digest: Option<String>,
    /// How many namespaces there are for it.
    #[serde(default)]
    pub namespaces: NamespaceCounts,
    /// What is due, or would be if every policy enforced.
    #[serde(default)]
    pub enforce: DueCounts,
    /// What policies that observe would have done so far, and what became of those namespaces; absent if none observes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed: Option<ObservedCounts>,
    /// `Accepted`: spec can be understood. `Ready`: every namespace that it governs has a record that says so. `Approved`: no
    /// approval is needed, or it was given. `BudgetSufficient`: the hourly budget is not less than what becomes due in an hour.
    /// `OwnersKnown`, where `spec.owner` is written: every namespace says who owns it. `ChannelsKnown`, where `spec.notify` is: CoppiceConfig has
    /// every channel that it names. `IdentitiesKnown`, where `spec.supersede` is:
    /// of every namespace it is known what it was made for.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "schema::conditions")]
    pub conditions: Vec<Condition>,
}

/// How many namespaces there are for a cluster manager.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NamespaceCounts {
    /// Namespaces that its selector selects.
    #[serde(default)]
    pub selected: u32,
    /// Those of them that it governs: no other cluster manager comes before it.
    #[serde(default)]
    pub governed: u32,
    /// Those of them that have a record (`ManagedNamespace`) by which it governs them with its present spec.
    #[serde(default)]
    pub recorded: u32,
    /// Those that it governs of which nothing says who owns them; absent unless `spec.owner` is written.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub without_owner: Option<u32>,
    /// Those that it governs of which it is not known what they were made for; absent unless `spec.supersede` is written.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub without_identity: Option<u32>,
    /// Who governs the others, by name: the first 16 managers.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16), extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]))]
    pub governed_by: Vec<GovernedBy>,
}

/// A cluster manager that comes before this one.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct GovernedBy {
    /// Its name.
    #[schemars(length(max = 253))]
    pub name: String,
    /// How many of the selected namespaces it governs.
    pub namespaces: u32,
}

/// What is due, or would be if every policy enforced.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DueCounts {
    /// Governed namespaces for which a policy is true, and which are neither protected nor held. Settle, notice and budget
    /// may still keep them for a time.
    #[serde(default)]
    pub due: u32,
    /// Those that this spec makes due, and not time: they were there before it governed them, and are due before it has
    /// governed them for `settle`. Policies whose own mode is `Observe` do not count. More of them than `hourlyBudget`
    /// wait for `spec.approval`.
    #[serde(default)]
    pub newly_due: u32,
    /// How many become due in an hour as time passes, at the present rate: of those of the next hour, or of the ttl if that is
    /// shorter, but of ten minutes at least.
    #[serde(default)]
    pub per_hour: u32,
    /// How many destructive steps an hour the platform's settings allow at present, for all managers together.
    #[serde(default)]
    pub hourly_budget: u32,
    /// For how many each policy is true, by name.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 10), extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]))]
    pub policies: Vec<PolicyDue>,
    /// The first ten of them, by name. Atomic: they are those of one count.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 10), inner(length(max = 63)), extend("x-kubernetes-list-type" = "atomic"))]
    pub sample: Vec<String>,
}

/// For how many namespaces a policy is true.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PolicyDue {
    /// The policy's name.
    #[schemars(length(max = 256))]
    pub name: String,
    /// How many.
    pub due: u32,
}
