//! The health of a namespace: what a cluster manager asks for, what is failing, and how far its timers are.

use coppice_quantity::Duration;
use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::schema;

/// So many failing objects are shown.
pub const MAX_FAILING: usize = 16;
/// So many workloads without all of their pods are remembered.
pub const MAX_SHORT: usize = 16;

/// When a namespace is `Unstable`, `Failing` and `Failed`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct HealthSpec {
    /// What is looked at. Default: `[Workloads]`, since nothing else can be looked at yet.
    #[serde(default = "sources")]
    #[schemars(length(min = 1, max = 1), default = "sources", extend("x-kubernetes-list-type" = "set"))]
    pub sources: Vec<HealthSource>,
    /// How long something has to fail without a break before a namespace is `Failing`. Default: 5m, so that a restart or a slow
    /// registry does not count as a failure.
    #[serde(default = "settling")]
    #[schemars(schema_with = "schema::positive_period", default = "settling")]
    pub settling_period: Duration,
    /// How long a namespace is `Failing` before it is `Failed`. The timer pauses while nothing fails. Default: 2m, so that people
    /// who see it failing have time to act.
    #[serde(default = "grace")]
    #[schemars(schema_with = "schema::duration", default = "grace")]
    pub grace_period: Duration,
    /// How long nothing may fail before a namespace is `Ok` again. Default: 1m, so that a restarting container does not count as
    /// recovered.
    #[serde(default = "recovery")]
    #[schemars(schema_with = "schema::positive_period", default = "recovery")]
    pub recovery_period: Duration,
    /// How long a namespace may not be `Ok` in total, within a window, before it is `Failing`: for failures that are short, but
    /// repeated. Default: 20 minutes of an hour, so that a crash loop with pauses is found.
    #[serde(default)]
    #[schemars(default)]
    pub failure_budget: FailureBudget,
    /// Failures to ignore. Default: none, so that no failure is overlooked. Atomic, since rules have no names.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 32), extend("x-kubernetes-list-type" = "atomic"))]
    pub ignore: Vec<IgnoreRule>,
    /// What `coppice explain` says to do about a reason, in the words of this platform. It decides nothing. Default: a line for each
    /// reason, as the documentation has it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 12), extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["reason"]))]
    pub advice: Vec<ReasonAdvice>,
}

/// What to do about a reason why something fails.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ReasonAdvice {
    /// The reason.
    pub reason: HealthReason,
    /// What to do: one line.
    #[schemars(length(min = 1, max = 300))]
    pub text: String,
}

fn sources() -> Vec<HealthSource> {
    vec![HealthSource::Workloads]
}

const fn settling() -> Duration {
    Duration::from_secs(300)
}

const fn grace() -> Duration {
    Duration::from_secs(120)
}

const fn recovery() -> Duration {
    Duration::from_secs(60)
}

/// What is looked at to know how a namespace is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum HealthSource {
    /// Its `Deployment`s, `StatefulSet`s, `DaemonSet`s, `ReplicaSet`s, `Job`s, `Pod`s and `PersistentVolumeClaim`s.
    Workloads,
}

/// The shortest window of a failure budget, in seconds: each of its sixty parts is a second long.
pub const SHORTEST_WINDOW: u64 = 60;
/// The longest, in seconds.
pub const LONGEST_WINDOW: u64 = 7 * 24 * 3600;

/// How long a namespace may not be `Ok`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[schemars(extend("x-kubernetes-validations" = [
    {
        "rule": schema::limit_window(SHORTEST_WINDOW, LONGEST_WINDOW),
        "message": "window is from 1m to 7d: write a duration such as 1h"
    },
    {
        "rule": schema::limit_by_window(),
        "message": "max (by default 20m) is at most window: write a shorter max, such as 5m, or a longer window"
    }
]))]
pub struct FailureBudget {
    /// Within this time. It is counted in sixty parts of it. From 1m to 7d. Default: 1h, so that what failed yesterday does not
    /// count today.
    #[serde(default = "window")]
    #[schemars(schema_with = "schema::positive_period", default = "window")]
    pub window: Duration,
    /// The maximum failing time within `window`; at most `window`. Default: 20m, so that a rollout that takes a while is no failure.
    #[serde(default = "budget")]
    #[schemars(schema_with = "schema::positive_period", default = "budget")]
    pub max: Duration,
}

impl Default for FailureBudget {
    fn default() -> Self {
        Self { window: window(), max: budget() }
    }
}

const fn window() -> Duration {
    Duration::from_secs(3600)
}

const fn budget() -> Duration {
    Duration::from_secs(1200)
}

/// Failures to ignore: every field that is given has to match.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[schemars(extend("x-kubernetes-validations" = [{
    "rule": "has(self.kind) || has(self.name) || has(self.reason)",
    "message": "write kind, name or reason: a rule without any would ignore every failure"
}]))]
pub struct IgnoreRule {
    /// The kind, as `status.failing` shows it, such as `Deployment`. Default: any, so that a rule can be about names or reasons alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 63))]
    pub kind: Option<String>,
    /// The name, or a glob over the whole name. Default: any, so that a rule can be about kinds or reasons alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253))]
    pub name: Option<String>,
    /// The reason. Default: any, so that a rule can be about kinds or names alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "HealthReason")]
    pub reason: Option<HealthReason>,
}

/// Why something fails, from one table, so that none can be without its texts: its meaning, and one line of advice.
macro_rules! health_reasons {
    ($($(#[doc = $meaning:literal])+ $reason:ident: $advice:literal;)+) => {
        /// Why something in a namespace fails. The more specific comes first.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
        pub enum HealthReason {
            $($(#[doc = $meaning])+ $reason,)+
        }

        impl HealthReason {
            /// Every reason, in their order.
            pub const ALL: &'static [Self] = &[$(Self::$reason),+];

            /// The reason as it is written in status.
            pub const fn as_str(self) -> &'static str {
                match self {
                    $(Self::$reason => stringify!($reason),)+
                }
            }

            /// The reason with these words; none if there is none.
            pub fn parse(text: &str) -> Option<Self> {
                Self::ALL.iter().copied().find(|reason| reason.as_str() == text)
            }

            /// What it means: sentences, in Markdown.
            pub const fn meaning(self) -> &'static str {
                match self {
                    $(Self::$reason => concat!($($meaning),+).trim_ascii(),)+
                }
            }

            /// What to look at first: one line, in Markdown.
            pub const fn advice(self) -> &'static str {
                match self {
                    $(Self::$reason => $advice,)+
                }
            }
        }
    };
}

health_reasons! {
    /// An image cannot be pulled, or its name is invalid.
    ImagePullBackOff: "Check the image's name and tag, the pull secret, and whether the registry answers.";
    /// A container cannot be created or started: a `Secret`, a `ConfigMap`, a command or a mount is missing or wrong.
    CreateContainerError: "Read the message: it names the Secret, ConfigMap or command that is missing.";
    /// A container uses more memory than its limit, is killed, and starts again.
    OOMKilled: "Raise the container's memory limit, or find out what it uses the memory for.";
    /// A container restarts repeatedly. One that has been running for less than a minute since its last restart has not recovered.
    CrashLoopBackOff: "Read the log of the last run: `kubectl logs POD -c CONTAINER --previous`.";
    /// No node can take the pod.
    Unschedulable: "Compare the pod's requests, node selector, affinity and tolerations with the nodes.";
    /// The volume of a claim is gone.
    VolumeLost: "The data is lost: delete the claim and create it again, or restore the volume.";
    /// A pod cannot be scheduled because a claim has no volume.
    VolumePending: "Check the claim's storage class and its provisioner: `kubectl describe pvc NAME`.";
    /// A pod that no controller would replace has failed.
    PodFailed: "Read its log: `kubectl logs POD`; delete it once it is understood.";
    /// A Job has failed, and no later Job of the same CronJob has finished.
    JobFailed: "Read the logs of its pods; delete the Job once it is understood.";
    /// Pods are not created, because a quota or an admission policy refuses them, or their controller does nothing. Where
    /// the status says nothing about it: fewer pods than spec asks for, for ten minutes.
    PodsNotCreated: "Look at the Events of the workload: a quota or an admission policy refuses its pods.";
    /// A roll-out has not gone on within the Deployment's own `progressDeadlineSeconds`.
    ProgressDeadlineExceeded: "Look at the newest pods of the Deployment: `kubectl describe pod`.";
    /// A pod has not been ready for ten minutes, and neither a startup probe nor a roll-out with a deadline of its own is
    /// under way.
    PodsNotReady: "Look at the pod's readiness probe and its log.";
}

/// Something that is failing.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct FailingObject {
    /// The kind of the object that users deal with: of a pod, its `Deployment`, `StatefulSet`, `DaemonSet`, `Job` or whatever
    /// controls it.
    #[schemars(length(max = 63))]
    pub kind: String,
    /// Its name.
    #[schemars(length(max = 253))]
    pub name: String,
    /// Why: an enumerated reason.
    #[schemars(length(max = 63))]
    pub reason: String,
    /// The same for people, as it was when it began.
    #[schemars(length(max = 512))]
    pub message: String,
    /// What says so.
    pub source: HealthSource,
    /// Since when.
    #[schemars(schema_with = "schema::status_instant")]
    pub since: Timestamp,
}

/// How far the timers of a namespace's health are. Written when something changes, not when time passes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct HealthRecord {
    /// The phase by health alone.
    pub state: HealthState,
    /// What was seen last.
    pub seen: HealthSeen,
    /// Since when, without a break.
    #[schemars(schema_with = "schema::status_instant")]
    pub seen_since: Timestamp,
    /// How long something had failed before that, in seconds, for the period of the present state.
    #[serde(default)]
    pub failing_seconds: u32,
    /// How long nothing had failed before that, in seconds.
    #[serde(default)]
    pub recovery_seconds: u32,
    /// Since when it is not `Ok`, also where facts were unknown in between; absent while it is. By it a spec of its manager makes
    /// the namespace due, or not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::status_instant")]
    pub not_ok_since: Option<Timestamp>,
    /// Since when it is `Unstable` or worse; absent while it is not. Starts again when facts were unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::status_instant")]
    pub unstable_since: Option<Timestamp>,
    /// The same for `Failing`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::status_instant")]
    pub failing_since: Option<Timestamp>,
    /// The same for `Failed`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::status_instant")]
    pub failed_since: Option<Timestamp>,
    /// What was spent of the failure budget before `unstableSince`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub spent: Option<SpentBudget>,
    /// Workloads with fewer pods than their spec asks for, that have not failed for it yet: the first sixteen. Atomic: they are those of
    /// one look at the namespace.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16), extend("x-kubernetes-list-type" = "atomic"))]
    pub short: Vec<ShortWorkload>,
}

/// The phase of a namespace by its health alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
pub enum HealthState {
    /// Nothing has failed for `recoveryPeriod`, or ever.
    Ok,
    /// Something fails, or did a moment ago.
    Unstable,
    /// Something has been failing for `settlingPeriod`, or the failure budget is spent.
    Failing,
    /// It has been `Failing` for `gracePeriod`.
    Failed,
}

/// What was seen of a namespace's health.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum HealthSeen {
    /// Something fails.
    Failing,
    /// Nothing fails.
    Passing,
    /// Something that is needed is not known: the timers pause.
    Unknown,
}

/// What was spent of a failure budget.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SpentBudget {
    /// The number of the newest part of a window, counted from 1970 in sixtieths of a window.
    pub newest: i64,
    /// How much of each part was spent, the newest first: one letter each, from `0` (nothing) over `A` (10 of 60) to `y`
    /// (all of it).
    #[schemars(length(max = 60))]
    pub parts: String,
}

/// A workload that has fewer pods than its spec asks for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ShortWorkload {
    /// Its kind.
    #[schemars(length(max = 63))]
    pub kind: String,
    /// Its name.
    #[schemars(length(max = 253))]
    pub name: String,
    /// Since when that has been seen.
    #[schemars(schema_with = "schema::status_instant")]
    pub since: Timestamp,
}
