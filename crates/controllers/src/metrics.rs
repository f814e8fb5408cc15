//! Metrics about managers, steps and the budget. Every label value is a word from the source, or bounded.

use std::collections::BTreeMap;

use coppice_api::Reason;
use coppice_api::condition::{self, Condition};
use coppice_api::reason::ReasonPlace;
use coppice_api::steps::Action;
use coppice_runtime::metrics::{DynamicFamily, Metrics, Registrar};
use jiff::SignedDuration;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Unit;

/// What the controllers measure. Clones share it.
#[derive(Clone, Debug)]
pub struct LifecycleMetrics {
    managers: Family<ByPhase, Gauge>,
    managed_namespaces: Family<ByPhase, Gauge>,
    by_manager: DynamicFamily<ByPhase, Gauge>,
    by_owner: DynamicFamily<ByPhase, Gauge>,
    by_condition: DynamicFamily<ByReason, Gauge>,
    deleted_namespaces: Family<ByPhase, Gauge>,
    firings: Family<ByFiring, Counter>,
    firing_lateness: Family<ByAction, Histogram, fn() -> Histogram>,
    blocked: Family<ByReason, Counter>,
    webhook_attempts: Family<ByResult, Counter>,
    notice_attempts: Family<ByChannel, Counter>,
    notices: Family<ByState, Gauge>,
    governor_reserved: Gauge,
    governor_limit: Gauge,
    breaker_open: Family<BySource, Gauge>,
}

/// Labels of what is counted by phase.
#[derive(Clone, Debug, Default, Hash, PartialEq, Eq, PartialOrd, Ord, EncodeLabelSet)]
pub struct ByPhase {
    /// The phase.
    pub phase: &'static str,
}

#[derive(Clone, Debug, Default, Hash, PartialEq, Eq, EncodeLabelSet)]
struct ByAction {
    action: &'static str,
}

#[derive(Clone, Debug, Default, Hash, PartialEq, Eq, EncodeLabelSet)]
struct ByFiring {
    action: &'static str,
    result: &'static str,
}

#[derive(Clone, Debug, Default, Hash, PartialEq, Eq, PartialOrd, Ord, EncodeLabelSet)]
struct ByReason {
    reason: &'static str,
}

#[derive(Clone, Debug, Default, Hash, PartialEq, Eq, EncodeLabelSet)]
struct BySource {
    source: &'static str,
}

#[derive(Clone, Debug, Default, Hash, PartialEq, Eq, EncodeLabelSet)]
struct ByResult {
    result: &'static str,
}

#[derive(Clone, Debug, Default, Hash, PartialEq, Eq, EncodeLabelSet)]
struct ByChannel {
    channel: &'static str,
    result: &'static str,
}

#[derive(Clone, Debug, Default, Hash, PartialEq, Eq, EncodeLabelSet)]
struct ByState {
    state: &'static str,
}

/// The kinds of channels to owners.
const CHANNELS: [&str; 3] = ["email", "slack", "webhook"];

/// How the steps of policies end.
const ENDS: [(Action, Reason); 5] = [
    (Action::Delete, Reason::NamespaceDeleted),
    (Action::ScaleDown, Reason::ScaledDown),
    (Action::ScaleDown, Reason::RevertedTooOften),
    (Action::Webhook, Reason::WebhookDelivered),
    (Action::Webhook, Reason::WebhookGivenUp),
];

/// Up to a day: a step can be blocked for long before it is done.
fn lateness() -> Histogram {
    Histogram::new([0.1, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0, 300.0, 1800.0, 3600.0, 21_600.0, 86_400.0])
}

fn whole(count: impl TryInto<i64>) -> i64 {
    count.try_into().unwrap_or(i64::MAX)
}

impl LifecycleMetrics {
    /// Everything at zero, registered in `metrics`.
    pub fn new(metrics: &Metrics) -> Self {
        let this = Self {
            managers: Family::default(),
            managed_namespaces: Family::default(),
            by_manager: DynamicFamily::new("manager"),
            by_owner: DynamicFamily::new("owner"),
            by_condition: DynamicFamily::new("condition"),
            deleted_namespaces: Family::default(),
            firings: Family::default(),
            firing_lateness: Family::new_with_constructor(lateness),
            blocked: Family::default(),
            webhook_attempts: Family::default(),
            notice_attempts: Family::default(),
            notices: Family::default(),
            governor_reserved: Gauge::default(),
            governor_limit: Gauge::default(),
            breaker_open: Family::default(),
        };
        metrics.register(|registry| this.register(registry));
        if !metrics.is_described() {
            this.begin();
        }
        this
    }

    /// These series exist from the start, so that a rate sees the first of each.
    fn begin(&self) {
        for (action, result) in ENDS {
            let (action, result) = (action.as_str(), result.as_str());
            let _ = self.firings.get_or_create(&ByFiring { action, result });
        }
        for result in ["delivered", "failed"] {
            let _ = self.webhook_attempts.get_or_create(&ByResult { result });
            for channel in CHANNELS {
                let _ = self.notice_attempts.get_or_create(&ByChannel { channel, result });
            }
        }
        for reason in Reason::seen_at(ReasonPlace::Blocked) {
            let _ = self.blocked.get_or_create(&ByReason { reason: reason.as_str() });
        }
    }

    /// Names and help texts: they are part of the interface, dashboards and alerts depend on them.
    fn register(&self, to: &mut Registrar<'_>) {
        to.register(
            "managers",
            "NamespaceManagers by phase, counted once a minute by every replica",
            self.managers.clone(),
        );
        let governed = self.managed_namespaces.clone();
        to.register("managed_namespaces", "Namespaces that a cluster manager governs, by the phase of their ManagedNamespace, counted once a minute by every replica", governed);
        to.register("cluster_manager_namespaces", "Namespaces that a cluster manager governs, by its name and the phase of their ManagedNamespace, counted once a minute by every replica; the 64 cluster managers with the most, the rest as `other`", self.by_manager.clone());
        to.register("owner_namespaces", "Namespaces that a cluster manager governs and whose owner it reads, by owner and phase, counted once a minute by every replica; the 64 owners with the most, the rest as `other`", self.by_owner.clone());
        to.register("cluster_managers", "ClusterNamespaceManagers by condition and its reason, `Approved` and `BudgetSufficient` only of those that enforce, counted once a minute by every replica", self.by_condition.clone());
        let deleted = self.deleted_namespaces.clone();
        to.register("deleted_namespaces", "Records of deletions (DeletedNamespaces) by phase, `Pending` if only decided, counted once a minute by every replica", deleted);
        to.register(
            "firings",
            "Steps that ended: `NamespaceDeleted`, `ScaledDown`, `RevertedTooOften`, `WebhookDelivered` or `WebhookGivenUp`",
            self.firings.clone(),
        );
        let help = "How long after it was due a step of a `ttl` was done, time spent waiting for budget, holds or receivers included";
        to.register_with_unit("firing_lateness", help, Unit::Seconds, self.firing_lateness.clone());
        to.register("blocked", "Managers, governed namespaces, NamespaceTrees, Subnamespaces and QuotaTransfers that became blocked or were refused, or whose copies were, scale-downs that cannot be remembered (`TooManyWorkloads`), reservations that were refused (also `GovernorUnavailable`), and reconciles of a status that another version wrote (`UnsupportedStatus`), by reason", self.blocked.clone());
        to.register(
            "webhook_attempts",
            "Attempts to deliver a webhook: `delivered` or `failed`",
            self.webhook_attempts.clone(),
        );
        to.register(
            "notice_attempts",
            "Attempts to deliver a message to the owner of a namespace, by kind of channel: `delivered` or `failed`",
            self.notice_attempts.clone(),
        );
        to.register(
            "notices",
            "Messages to owners in the records of namespaces and of deletions by state, counted once a minute by every replica; `Failed` are dead letters",
            self.notices.clone(),
        );
        let help = "Steps reserved in the last hour, by the leader, once a minute";
        to.register("governor_reserved_last_hour", help, self.governor_reserved.clone());
        let help =
            "Steps that the budget allows in an hour, by the leader, once a minute; 0 without CoppiceConfig";
        to.register("governor_limit_per_hour", help, self.governor_limit.clone());
        let help = "1 while this source keeps the breaker open, by every replica: the resource whose list collapsed, or `spec` (`paused`)";
        to.register("breaker_open", help, self.breaker_open.clone());
    }

    /// This many managers are in this phase.
    pub fn managers(&self, phase: &'static str, count: usize) {
        self.managers.get_or_create(&ByPhase { phase }).set(whole(count));
    }

    /// This many namespaces that a cluster manager governs are in this phase.
    pub fn managed_namespaces(&self, phase: &'static str, count: usize) {
        self.managed_namespaces.get_or_create(&ByPhase { phase }).set(whole(count));
    }

    /// So many namespaces that cluster managers govern there are by the name of the cluster manager, and by owner; each with the phase.
    pub fn namespaces_by(
        &self,
        managers: &BTreeMap<(String, ByPhase), i64>,
        owners: &BTreeMap<(String, ByPhase), i64>,
    ) {
        self.by_manager.set_all(managers);
        self.by_owner.set_all(owners);
    }

    /// Cluster managers say this: each condition of each, with its reason. What none says any more ends.
    pub fn cluster_managers<'a>(&self, said: impl IntoIterator<Item = (&'a str, Reason)>) {
        let mut counts = BTreeMap::new();
        for (condition, reason) in said {
            let by_reason = ByReason { reason: reason.as_str() };
            *counts.entry((condition.to_owned(), by_reason)).or_insert(0_i64) += 1;
        }
        self.by_condition.set_all(&counts);
    }

    /// This many records of deletions are in this phase.
    pub fn deleted_namespaces(&self, phase: &'static str, count: usize) {
        self.deleted_namespaces.get_or_create(&ByPhase { phase }).set(whole(count));
    }

    /// A step of a policy that fired has ended.
    pub fn firing(&self, action: &'static str, result: &'static str) {
        self.firings.get_or_create(&ByFiring { action, result }).inc();
    }

    /// A step was done this long after it was due. Early (which does not happen) counts as on time.
    pub fn firing_lateness(&self, action: &'static str, late: SignedDuration) {
        let seconds = late.as_secs_f64().max(0.0);
        self.firing_lateness.get_or_create(&ByAction { action }).observe(seconds);
    }

    /// A step was held back.
    pub fn blocked(&self, reason: &'static str) {
        self.blocked.get_or_create(&ByReason { reason }).inc();
    }

    /// A status was written, and with it the reason why what comes next is not done: counts what is held back or refused, once
    /// it starts to be. Which reasons these are is in their table.
    pub fn newly_blocked(&self, before: Option<&str>, after: Option<&str>) {
        if let Some(reason) = Reason::begins_at(ReasonPlace::Blocked, before, after) {
            self.blocked(reason.as_str());
        }
    }

    /// The same where the reason is that of the condition of this type, which was among those `before`.
    pub fn newly_blocked_by(&self, type_: &str, before: &[Condition], after: &[Condition]) {
        let before = condition::find(before, type_).map(|found| found.reason.as_str());
        let after = condition::find(after, type_).map(|found| found.reason.as_str());
        self.newly_blocked(before, after);
    }

    /// An attempt to deliver a webhook has ended.
    pub fn webhook_attempt(&self, result: &'static str) {
        self.webhook_attempts.get_or_create(&ByResult { result }).inc();
    }

    /// An attempt to deliver a message to an owner by a kind of channel has ended.
    pub fn notice_attempt(&self, channel: &'static str, result: &'static str) {
        self.notice_attempts.get_or_create(&ByChannel { channel, result }).inc();
    }

    /// This many messages to owners are in this state.
    pub fn notices(&self, state: &'static str, count: usize) {
        self.notices.get_or_create(&ByState { state }).set(whole(count));
    }

    /// What the governor has reserved in the last hour, and what it allows in one.
    pub fn governor(&self, reserved_last_hour: u64, limit_per_hour: u64) {
        self.governor_reserved.set(whole(reserved_last_hour));
        self.governor_limit.set(whole(limit_per_hour));
    }

    /// Which of these resources has opened the breaker by a list that collapsed, if one has, and whether it is open by hand
    /// (`paused`), which is the source `spec`.
    pub fn breaker_open(&self, resources: &[&'static str], open: Option<&str>, paused: bool) {
        let set = |source, open| self.breaker_open.get_or_create(&BySource { source }).set(i64::from(open));
        for resource in resources {
            set(resource, open == Some(resource));
        }
        // Another version's ledger may name what this one does not watch.
        set("other", open.is_some_and(|open| !resources.contains(&open)));
        set("spec", paused);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_metric_has_its_name_help_and_value() {
        let registry = Metrics::new("test");
        let metrics = LifecycleMetrics::new(&registry);
        metrics.managers("Watching", 2);
        metrics.managed_namespaces("Stale", 5);
        metrics.cluster_managers([("Accepted", Reason::InvalidSpec), ("Accepted", Reason::InvalidSpec)]);
        metrics.deleted_namespaces("Deleted", 3);
        metrics.firing("delete", "done");
        metrics.firing_lateness("delete", SignedDuration::from_secs(3));
        for (before, after) in
            [(None, "TtlRunning"), (Some("TtlRunning"), "Paused"), (Some("Paused"), "Paused")]
        {
            metrics.newly_blocked(before, Some(after));
        }
        metrics.webhook_attempt("delivered");
        metrics.notice_attempt("email", "failed");
        metrics.notices("Pending", 7);
        metrics.governor(4, 100);
        metrics.breaker_open(&["jobs", "pods"], Some("pods"), false);
        let text = registry.encode();
        for line in [
            "coppice_managers{phase=\"Watching\"} 2",
            "coppice_managed_namespaces{phase=\"Stale\"} 5",
            "coppice_cluster_managers{condition=\"Accepted\",reason=\"InvalidSpec\"} 2",
            "coppice_deleted_namespaces{phase=\"Deleted\"} 3",
            "coppice_firings_total{action=\"delete\",result=\"done\"} 1",
            "coppice_firing_lateness_seconds_bucket{le=\"5.0\",action=\"delete\"} 1",
            "coppice_blocked_total{reason=\"Paused\"} 1",
            "coppice_webhook_attempts_total{result=\"delivered\"} 1",
            "coppice_notice_attempts_total{channel=\"email\",result=\"failed\"} 1",
            "coppice_notices{state=\"Pending\"} 7",
            "coppice_governor_reserved_last_hour 4",
            "coppice_governor_limit_per_hour 100",
            "coppice_breaker_open{source=\"pods\"} 1",
            "coppice_breaker_open{source=\"jobs\"} 0",
            "coppice_breaker_open{source=\"other\"} 0",
            "coppice_breaker_open{source=\"spec\"} 0",
            "# HELP coppice_managers NamespaceManagers by phase, counted once a minute by every replica.",
            "# HELP coppice_managed_namespaces Namespaces that a cluster manager governs, by the phase of their ManagedNamespace, counted once a minute by every replica.",
            "# HELP coppice_cluster_managers ClusterNamespaceManagers by condition and its reason, `Approved` and `BudgetSufficient` only of those that enforce, counted once a minute by every replica.",
            "# HELP coppice_deleted_namespaces Records of deletions (DeletedNamespaces) by phase, `Pending` if only decided, counted once a minute by every replica.",
            "# HELP coppice_firings Steps that ended: `NamespaceDeleted`, `ScaledDown`, `RevertedTooOften`, `WebhookDelivered` or `WebhookGivenUp`.",
            "# HELP coppice_firing_lateness_seconds How long after it was due a step of a `ttl` was done, time spent waiting for budget, holds or receivers included.",
            "# HELP coppice_blocked Managers, governed namespaces, NamespaceTrees, Subnamespaces and QuotaTransfers that became blocked or were refused, or whose copies were, scale-downs that cannot be remembered (`TooManyWorkloads`), reservations that were refused (also `GovernorUnavailable`), and reconciles of a status that another version wrote (`UnsupportedStatus`), by reason.",
            "# HELP coppice_webhook_attempts Attempts to deliver a webhook: `delivered` or `failed`.",
            "# HELP coppice_governor_reserved_last_hour Steps reserved in the last hour, by the leader, once a minute.",
            "# HELP coppice_governor_limit_per_hour Steps that the budget allows in an hour, by the leader, once a minute; 0 without CoppiceConfig.",
        ] {
            assert!(text.lines().any(|l| l == line), "{line} is missing in\n{text}");
        }
        metrics.breaker_open(&["jobs", "pods"], Some("secrets"), true);
        assert!(registry.encode().contains("coppice_breaker_open{source=\"other\"} 1"));
    }

    #[test]
    fn what_alerts_count_is_there_before_the_first_time() {
        let registry = Metrics::new("test");
        let _metrics = LifecycleMetrics::new(&registry);
        let text = registry.encode();
        for line in [
            "coppice_firings_total{action=\"webhook\",result=\"WebhookGivenUp\"} 0",
            "coppice_webhook_attempts_total{result=\"failed\"} 0",
            "coppice_notice_attempts_total{channel=\"slack\",result=\"failed\"} 0",
            "coppice_blocked_total{reason=\"BudgetSpent\"} 0",
            "coppice_blocked_total{reason=\"UnsupportedStatus\"} 0",
            "coppice_blocked_total{reason=\"QuotaRefused\"} 0",
            "coppice_events_total{result=\"error\"} 0",
        ] {
            assert!(text.lines().any(|l| l == line), "{line} is missing in\n{text}");
        }
        let ends = Reason::seen_at(ReasonPlace::Firings);
        let missing: Vec<Reason> = ends.filter(|reason| !ENDS.iter().any(|(_, end)| end == reason)).collect();
        assert_eq!(missing, [], "every reason that is counted as an end of a step");
    }

    #[test]
    fn whatever_stops_a_step_is_counted_once() {
        let (registry, active) = (Metrics::new("test"), Reason::Watching.as_str());
        let metrics = LifecycleMetrics::new(&registry);
        let count = |reason: Reason| {
            let line = format!("coppice_blocked_total{{reason=\"{reason}\"}} ");
            let text = registry.encode();
            text.lines().find_map(|l| l.strip_prefix(&line).map(str::to_owned))
        };
        for reason in [
            Reason::Paused,
            Reason::BreakerOpen,
            Reason::BudgetSpent,
            Reason::SettingsMissing,
            Reason::ActionNotAllowed,
            Reason::QuotaRefused,
        ] {
            let blocked = reason.as_str();
            metrics.newly_blocked(None, Some(blocked));
            metrics.newly_blocked(Some(active), Some(blocked));
            metrics.newly_blocked(Some(blocked), Some(blocked));
            metrics.newly_blocked(Some(blocked), Some(active));
            assert_eq!(count(reason).as_deref(), Some("2"), "{reason}");
        }
        metrics.newly_blocked(Some(Reason::Paused.as_str()), Some(Reason::Stale.as_str()));
        assert_eq!(count(Reason::Stale).as_deref(), Some("1"));
        for reason in [Reason::InProgress, Reason::Held, Reason::NoticeRunning, Reason::Retrying] {
            metrics.newly_blocked(Some(active), Some(reason.as_str()));
            assert_eq!(count(reason), None, "{reason}: nothing stops it");
        }
    }
}
