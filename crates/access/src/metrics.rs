//! Metrics about credentials. No label names a cluster, a namespace or an object.

use std::collections::BTreeMap;

use coppice_api::Reason;
use coppice_api::condition::{self, Condition, READY};
use coppice_api::reason::ReasonPlace;
use coppice_clusters_api::cluster_access::MAX_SUPERSEDED;
use coppice_clusters_api::{AccessPhase, Cause, ClusterAccessStatus, ClusterState, Issuer};
use coppice_runtime::client::code_label;
use coppice_runtime::metrics::{Metrics, Registrar};
use http::StatusCode;
use jiff::{SignedDuration, Timestamp};
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Unit;

use crate::kinds::Access;

/// A credential that was to be revoked so long ago is late.
const LATE_AFTER: SignedDuration = SignedDuration::from_mins(30);
/// Credentials are counted that are valid for no longer than each of these.
const WITHIN: [(&str, SignedDuration); 4] = [
    ("10m", SignedDuration::from_mins(10)),
    ("1h", SignedDuration::from_hours(1)),
    ("6h", SignedDuration::from_hours(6)),
    ("24h", SignedDuration::from_hours(24)),
];

/// What the controller of `ClusterAccess` measures. Clones share it.
#[derive(Clone, Debug)]
pub struct AccessMetrics {
    accesses: Family<ByPhase, Gauge>,
    without_credential: Gauge,
    expiring: Family<ByTimeLeft, Gauge>,
    overdue: Gauge,
    unrevoked: Gauge,
    unreachable: Gauge,
    issued: Family<ByCause, Counter>,
    issue_duration: Family<ByCause, Histogram, fn() -> Histogram>,
    revoked: Counter,
    failures: Family<ByReason, Counter>,
    blocked: Family<ByReason, Counter>,
    issuer_calls: Family<ByIssuer, Counter>,
    tried_out_again: Family<ByResult, Counter>,
    skipped: Counter,
    left_in_targets: Counter,
    sweeps_stopped: Gauge,
    foreign_secrets: Gauge,
    withdrawn: Counter,
    providers: Family<ByReadiness, Gauge>,
    managed_clusters: Family<ByState, Gauge>,
    longest_wait: Gauge,
}

#[derive(Clone, Debug, Default, Hash, PartialEq, Eq, EncodeLabelSet)]
struct ByState {
    state: &'static str,
}

#[derive(Clone, Debug, Default, Hash, PartialEq, Eq, EncodeLabelSet)]
struct ByReadiness {
    ready: &'static str,
}

#[derive(Clone, Debug, Default, Hash, PartialEq, Eq, EncodeLabelSet)]
struct ByTimeLeft {
    within: &'static str,
}

#[derive(Clone, Debug, Default, Hash, PartialEq, Eq, EncodeLabelSet)]
struct ByPhase {
    phase: &'static str,
}

#[derive(Clone, Debug, Default, Hash, PartialEq, Eq, EncodeLabelSet)]
struct ByCause {
    cause: &'static str,
}

#[derive(Clone, Debug, Default, Hash, PartialEq, Eq, EncodeLabelSet)]
struct ByReason {
    reason: &'static str,
}

#[derive(Clone, Debug, Default, Hash, PartialEq, Eq, EncodeLabelSet)]
struct ByIssuer {
    issuer: &'static str,
    code: &'static str,
}

#[derive(Clone, Debug, Default, Hash, PartialEq, Eq, EncodeLabelSet)]
struct ByResult {
    result: &'static str,
}

/// The code of what was issued. There is one of 200 and 201, by the issuer.
const ISSUED: &str = "2xx";
/// In place of a code: there was no answer, or one that is not used.
const NO_CODE: &str = "error";

/// Up to a day: a target may be away for long before a credential is issued.
fn issue_time() -> Histogram {
    Histogram::new([1.0, 2.0, 5.0, 10.0, 30.0, 60.0, 300.0, 1800.0, 3600.0, 21_600.0, 86_400.0])
}

/// How many there are.
pub(crate) struct Counts {
    phases: BTreeMap<AccessPhase, i64>,
    without_credential: i64,
    /// As [`WITHIN`].
    expiring: [i64; WITHIN.len()],
    overdue: i64,
    unrevoked: i64,
    unreachable: i64,
}

impl Default for Counts {
    /// None of any phase.
    fn default() -> Self {
        Self {
            phases: AccessPhase::ALL.map(|phase| (phase, 0)).into(),
            without_credential: 0,
            expiring: [0; WITHIN.len()],
            overdue: 0,
            unrevoked: 0,
            unreachable: 0,
        }
    }
}

impl Counts {
    /// One more.
    pub(crate) fn add(&mut self, access: &Access, now: Timestamp) {
        let status = &access.status;
        *self.phases.entry(status.phase.unwrap_or(AccessPhase::Pending)).or_default() += 1;
        let is_wanted = !access.terminating && access.spec.as_ref().is_ok_and(|spec| !spec.suspend);
        let is_valid = status.held_until().is_some_and(|until| now < until);
        self.without_credential += i64::from(is_wanted && !is_valid);
        let left =
            status.held_until().filter(|_| is_wanted && is_valid).map(|until| until.duration_since(now));
        for (count, (_, within)) in self.expiring.iter_mut().zip(WITHIN) {
            *count += i64::from(left.is_some_and(|left| left <= within));
        }
        self.overdue += i64::from(is_wanted && is_overdue(status, now));
        self.unrevoked += i64::from(is_unrevoked(status, now));
        let Some(error) = &status.last_error else { return };
        let mut reasons = std::iter::once(&error.reason).chain(error.other.iter().map(|other| &other.reason));
        self.unreachable += i64::from(reasons.any(|reason| reason == Reason::TargetUnreachable.as_str()));
    }
}

/// Why something is not done: what failed last, or else what `Ready` says.
pub(crate) fn blocked_by<'a>(error: Option<&'a str>, conditions: &'a [Condition]) -> Option<&'a str> {
    let ready = || condition::find(conditions, READY).map(|ready| ready.reason.as_str());
    error.or_else(ready)
}

/// Whether more than half of the time between the replacement of its credential and the end of that is over.
fn is_overdue(status: &ClusterAccessStatus, now: Timestamp) -> bool {
    let dates = status.next_rotation.zip(status.not_after);
    dates.is_some_and(|(due, end)| now > due && now.duration_since(due) >= end.duration_since(now))
}

/// Whether a credential was to be revoked half an hour ago or longer. It says so until that is done: a rotation, after which the attempts are
/// counted from one again, changes nothing about it.
fn is_unrevoked(status: &ClusterAccessStatus, now: Timestamp) -> bool {
    let is_late = |since: Timestamp| now.duration_since(since) >= LATE_AFTER;
    let is_superseded = status.pending_revocations.iter().any(|pending| is_late(pending.since));
    // With a short ttl the first ones make room for others before they are late.
    let are_many = status.superseded.len() >= MAX_SUPERSEDED;
    let is_withdrawn = status.revokes_at.is_some_and(is_late);
    let is_deleted = status.last_error.is_some() && status.revoking_since.is_some_and(is_late);
    is_superseded || are_many || is_withdrawn || is_deleted
}

impl AccessMetrics {
    /// Registered in `metrics`.
    pub fn new(metrics: &Metrics) -> Self {
        let this = Self {
            accesses: Family::default(),
            without_credential: Gauge::default(),
            expiring: Family::default(),
            overdue: Gauge::default(),
            unrevoked: Gauge::default(),
            unreachable: Gauge::default(),
            issued: Family::default(),
            issue_duration: Family::new_with_constructor(issue_time),
            revoked: Counter::default(),
            failures: Family::default(),
            blocked: Family::default(),
            issuer_calls: Family::default(),
            tried_out_again: Family::default(),
            skipped: Counter::default(),
            left_in_targets: Counter::default(),
            sweeps_stopped: Gauge::default(),
            foreign_secrets: Gauge::default(),
            withdrawn: Counter::default(),
            providers: Family::default(),
            managed_clusters: Family::default(),
            longest_wait: Gauge::default(),
        };
        metrics.register(|to| this.register(to));
        if !metrics.is_described() {
            // These series exist from the start, so that a rate sees the first one.
            for cause in Cause::ALL {
                let _ = this.issued.get_or_create(&ByCause { cause: cause.as_str() });
                let _ = this.issue_duration.get_or_create(&ByCause { cause: cause.as_str() });
            }
            for reason in Reason::seen_at(ReasonPlace::AccessBlocked) {
                let _ = this.blocked.get_or_create(&ByReason { reason: reason.as_str() });
            }
            for result in ["valid", "invalid", "unknown"] {
                let _ = this.tried_out_again.get_or_create(&ByResult { result });
            }
            for issuer in Issuer::ALL {
                let _ = this.issuer_calls.get_or_create(&ByIssuer { issuer: issuer.as_str(), code: ISSUED });
            }
        }
        this
    }

    fn register(&self, to: &mut Registrar<'_>) {
        to.register(
            "cluster_accesses",
            "ClusterAccesses by phase, counted once a minute by every replica of `coppice-access`",
            self.accesses.clone(),
        );
        to.register("cluster_accesses_without_credential", "ClusterAccesses whose Secret holds no valid credential, of those that are neither suspended nor being deleted, counted once a minute by every replica of `coppice-access`", self.without_credential.clone());
        to.register(
            "cluster_accesses_expiring",
            "ClusterAccesses whose credential is valid for no longer than that (`within`: `10m`, `1h`, `6h` or `24h`), of those that are neither suspended nor being deleted, counted once a minute by every replica of `coppice-access`; one that has expired is in `coppice_cluster_accesses_without_credential` alone",
            self.expiring.clone(),
        );
        to.register("cluster_accesses_overdue", "ClusterAccesses whose credential was to be replaced and is not, while more than half of the time from then until it expires is over, or that has expired, of those that are neither suspended nor being deleted, counted once a minute by every replica of `coppice-access`", self.overdue.clone());
        to.register("cluster_accesses_unrevoked", "ClusterAccesses with a credential that was to be revoked half an hour ago or longer and is not, or with 16 that wait for it, counted once a minute by every replica of `coppice-access`", self.unrevoked.clone());
        to.register("cluster_accesses_unreachable", "ClusterAccesses whose target did not answer the last attempt, counted once a minute by every replica of `coppice-access`", self.unreachable.clone());
        to.register("credentials_issued", "Credentials that were issued, tried out, and written into a Secret, by cause: `First`, `Due`, `Requested`, `Lost` (the Secret was deleted or edited) or `Moved` (the cluster has another address)", self.issued.clone());
        to.register_with_unit(
            "credential_issue_duration",
            "How long it took from when a credential was to be issued until it was tried out and in its Secret, by cause as `coppice_credentials_issued_total`",
            Unit::Seconds,
            self.issue_duration.clone(),
        );
        to.register(
            "credentials_revoked",
            "Credentials that were superseded and are revoked; those of a ClusterAccess that is deleted are not counted",
            self.revoked.clone(),
        );
        to.register(
            "access_failures",
            "Attempts for a ClusterAccess that failed, by reason: each is tried again after 1 to 30 minutes",
            self.failures.clone(),
        );
        to.register(
            "access_blocked",
            "ClusterAccesses, ClusterProviders and ManagedClusters that began to fail, to be refused or to wait for something, by reason",
            self.blocked.clone(),
        );
        to.register("issuer_calls", "Attempts to have a credential issued, by `issuer` and the HTTP `code` that ended them: `2xx` of what was issued, `error` where there was no answer or one that is not used. `GardenerAdmin` and `GardenerViewer` have also the kubeconfigs by which `coppice-access` itself reaches a Shoot", self.issuer_calls.clone());
        to.register("credential_checks", "Credentials in Secrets that were tried out again, once a day each where they are not replaced before that, by result: `valid`, `invalid` (the target does not take it), or `unknown` (it did not answer)", self.tried_out_again.clone());
        to.register("revocations_skipped", "ClusterAccesses that are gone and whose credential was not revoked: `spec.forgetAfter` was over. Each needs somebody who deletes what is left in its target", self.skipped.clone());
        to.register(
            "access_withdrawals",
            "Times that the rights of a ClusterAccess were removed in its target, or its credential was revoked, since its ClusterProvider does not allow them any more",
            self.withdrawn.clone(),
        );
        to.register(
            "target_leftovers_deleted",
            "Objects in targets that were made for a ClusterAccess of this cluster which is gone, and are deleted",
            self.left_in_targets.clone(),
        );
        to.register(
            "target_sweeps_stopped",
            "1 once a list of ClusterAccesses has lacked much of what was known: nothing that is left in targets is deleted until the replica of `coppice-access` is restarted",
            self.sweeps_stopped.clone(),
        );
        to.register(
            "foreign_secrets",
            "Secrets with a credential of a ClusterAccess that this cluster does not have, which were copied from another cluster or written by an earlier version, counted once a minute by the leader of `coppice-access`. Nothing deletes them: its log names each once",
            self.foreign_secrets.clone(),
        );
        to.register(
            "cluster_providers",
            "ClusterProviders by whether their kubeconfig can be used (`ready`: `true` or `false`), counted once a minute by every replica of `coppice-access`",
            self.providers.clone(),
        );
        to.register(
            "managed_clusters",
            "ManagedClusters by state, counted once a minute by every replica of `coppice-access` that works on them; one whose deletion fails is `Failed`",
            self.managed_clusters.clone(),
        );
        to.register_with_unit(
            "managed_cluster_longest_wait",
            "How long the ManagedCluster waits that waits for longest for what is under way or has failed (`status.waitingSince`), measured once a minute by every replica of `coppice-access` that works on them",
            Unit::Seconds,
            self.longest_wait.clone(),
        );
    }

    /// So many managed clusters are in each state, and so many seconds waits the one that waits for longest.
    pub(crate) fn set_managed_clusters(&self, counts: &BTreeMap<ClusterState, i64>, longest_wait: i64) {
        self.longest_wait.set(longest_wait);
        for (state, count) in counts {
            self.managed_clusters.get_or_create(&ByState { state: state.as_str() }).set(*count);
        }
    }

    /// So many providers are ready, and so many are not.
    pub(crate) fn set_providers(&self, ready: i64, others: i64) {
        self.providers.get_or_create(&ByReadiness { ready: "true" }).set(ready);
        self.providers.get_or_create(&ByReadiness { ready: "false" }).set(others);
    }

    /// So many there are.
    pub(crate) fn set(&self, counts: &Counts) {
        for (phase, count) in &counts.phases {
            self.accesses.get_or_create(&ByPhase { phase: phase.as_str() }).set(*count);
        }
        self.without_credential.set(counts.without_credential);
        for ((within, _), count) in WITHIN.into_iter().zip(counts.expiring) {
            self.expiring.get_or_create(&ByTimeLeft { within }).set(count);
        }
        self.overdue.set(counts.overdue);
        self.unrevoked.set(counts.unrevoked);
        self.unreachable.set(counts.unreachable);
    }

    /// A credential was issued and written, so long after it was to be.
    pub(crate) fn issued(&self, cause: Cause, took: SignedDuration) {
        let by_cause = ByCause { cause: cause.as_str() };
        self.issued.get_or_create(&by_cause).inc();
        self.issue_duration.get_or_create(&by_cause).observe(took.as_secs_f64().max(0.0));
    }

    /// A superseded credential was revoked.
    pub(crate) fn revoked(&self) {
        self.revoked.inc();
    }

    /// An attempt failed.
    pub(crate) fn failed(&self, reason: &str) {
        let reason = Reason::parse(reason).map_or("other", Reason::as_str);
        self.failures.get_or_create(&ByReason { reason }).inc();
    }

    /// A status was written: counts what is not done, once this reason for it begins. Which reasons these are is in their table.
    pub(crate) fn newly_blocked(&self, before: Option<&str>, after: Option<&str>) {
        if let Some(reason) = Reason::begins_at(ReasonPlace::AccessBlocked, before, after) {
            self.blocked.get_or_create(&ByReason { reason: reason.as_str() }).inc();
        }
    }

    /// An issuer was asked for a credential. `Err`: it issued none, and answered with this code, if with any.
    pub(crate) fn issuer_called(&self, issuer: Issuer, answer: Result<(), Option<u16>>) {
        let label = |code: Option<u16>| StatusCode::from_u16(code?).ok().map(code_label);
        let code = answer.map_or_else(|code| label(code).unwrap_or(NO_CODE), |()| ISSUED);
        self.issuer_calls.get_or_create(&ByIssuer { issuer: issuer.as_str(), code }).inc();
    }

    /// A credential in a Secret was tried out again: `valid`, `invalid` or `unknown`.
    pub(crate) fn tried_out_again(&self, result: &'static str) {
        self.tried_out_again.get_or_create(&ByResult { result }).inc();
    }

    /// An access is gone, and nothing was revoked.
    pub(crate) fn skipped(&self) {
        self.skipped.inc();
    }

    /// The rights or the credential of an access were taken away.
    pub(crate) fn withdrawn(&self) {
        self.withdrawn.inc();
    }

    /// Whether nothing that is left in targets is deleted any more.
    pub(crate) fn set_sweeps_stopped(&self, is_stopped: bool) {
        self.sweeps_stopped.set(i64::from(is_stopped));
    }

    /// How many Secrets with a credential another installation wrote.
    pub(crate) fn set_foreign_secrets(&self, secrets: usize) {
        self.foreign_secrets.set(i64::try_from(secrets).unwrap_or(i64::MAX));
    }

    /// What was left in a target of an access that is gone is deleted.
    pub(crate) fn left_in_target(&self) {
        self.left_in_targets.inc();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn access(status: &serde_json::Value) -> Access {
        let object = serde_json::json!({
            "metadata": {"name": "a", "namespace": "n", "uid": "u", "resourceVersion": "1", "generation": 1},
            "spec": {
                "cluster": {"kubeconfigSecret": {"name": "target"}}, "output": {"secret": "out"},
                "rights": {"bind": {"clusterRole": "view", "namespaces": ["shop"]}},
            },
            "status": status,
        });
        let body = object.to_string();
        coppice_runtime::read::decoded::<crate::kinds::ClusterAccesses>(body.as_bytes(), &()).unwrap()
    }

    #[test]
    fn accesses_are_counted_by_phase_and_those_without_a_valid_credential() {
        let registry = Metrics::new("test");
        let metrics = AccessMetrics::new(&registry);
        let now = "2026-01-01T00:00:00Z".parse().unwrap();
        let output = serde_json::json!({"uid": "s", "resourceVersion": "1", "sha256": "x"});
        let mut counts = Counts::default();
        for (phase, not_after) in [
            ("Ready", "2026-01-01T01:00:00Z"),
            ("Degraded", "2025-12-31T23:00:00Z"),
            ("Degraded", "2026-01-02T00:00:00Z"),
        ] {
            counts.add(
                &access(&serde_json::json!({"phase": phase, "notAfter": not_after, "output": output})),
                now,
            );
        }
        counts.add(&access(&serde_json::json!({})), now);
        metrics.set(&counts);
        metrics.failed("TargetUnreachable");
        metrics.issued(Cause::Due, SignedDuration::from_secs(7));
        metrics.issuer_called(Issuer::TokenRequest, Ok(()));
        metrics.issuer_called(Issuer::GardenerAdmin, Err(Some(403)));
        // A target may answer with any number.
        metrics.issuer_called(Issuer::GardenerAdmin, Err(Some(65_535)));
        let text = registry.encode();
        for line in [
            "coppice_cluster_accesses{phase=\"Ready\"} 1",
            "coppice_cluster_accesses{phase=\"Degraded\"} 2",
            "coppice_cluster_accesses{phase=\"Pending\"} 1",
            "coppice_cluster_accesses{phase=\"Refused\"} 0",
            "coppice_cluster_accesses_without_credential 2",
            "coppice_access_failures_total{reason=\"TargetUnreachable\"} 1",
            "coppice_issuer_calls_total{issuer=\"TokenRequest\",code=\"2xx\"} 1",
            "coppice_issuer_calls_total{issuer=\"GardenerAdmin\",code=\"403\"} 1",
            "coppice_issuer_calls_total{issuer=\"GardenerAdmin\",code=\"error\"} 1",
            "coppice_issuer_calls_total{issuer=\"ClientCertificate\",code=\"2xx\"} 0",
            "coppice_credentials_issued_total{cause=\"Due\"} 1",
            "coppice_credentials_issued_total{cause=\"First\"} 0",
            "coppice_credential_issue_duration_seconds_count{cause=\"Due\"} 1",
            "coppice_credential_issue_duration_seconds_sum{cause=\"Due\"} 7.0",
        ] {
            assert!(text.lines().any(|l| l == line), "{line}: {text}");
        }
    }

    #[test]
    fn whatever_is_not_done_is_counted_once_when_that_begins() {
        let registry = Metrics::new("test");
        let metrics = AccessMetrics::new(&registry);
        let count = |reason: &str| {
            let line = format!("coppice_access_blocked_total{{reason=\"{reason}\"}} ");
            registry.encode().lines().find_map(|l| l.strip_prefix(&line).map(str::to_owned))
        };
        assert_eq!(count("NotAllowed").as_deref(), Some("0"), "a rate sees the first one");
        let valid = Some("CredentialValid");
        for (before, after) in [
            (None, Some("NotAllowed")),
            (Some("NotAllowed"), Some("NotAllowed")),
            (Some("NotAllowed"), valid),
            (valid, Some("ClusterKindMissing")),
        ] {
            metrics.newly_blocked(before, after);
        }
        assert_eq!(count("NotAllowed").as_deref(), Some("1"));
        assert_eq!(count("ClusterKindMissing").as_deref(), Some("1"));
        assert_eq!(count("CredentialValid"), None);
        // What fails beside a credential that is valid is not hidden by it.
        let status = serde_json::json!([{
            "type": "Ready", "status": "True", "reason": "CredentialValid", "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z"
        }]);
        let conditions: Vec<Condition> = serde_json::from_value(status).unwrap();
        assert_eq!(blocked_by(Some("TargetUnreachable"), &conditions), Some("TargetUnreachable"));
        assert_eq!(blocked_by(None, &conditions), valid);
    }

    #[test]
    fn those_that_expire_soon_are_counted_by_the_time_that_is_left() {
        let registry = Metrics::new("test");
        let metrics = AccessMetrics::new(&registry);
        let (mut counts, now) = (Counts::default(), "2026-01-01T00:00:00Z".parse().unwrap());
        for until in
            ["2026-01-01T00:00:00Z", "2026-01-01T00:10:00Z", "2026-01-01T05:00:00Z", "2026-01-03T00:00:00Z"]
        {
            let output = serde_json::json!({"uid": "s", "resourceVersion": "1", "sha256": "x"});
            counts.add(&access(&serde_json::json!({"notAfter": until, "output": output})), now);
        }
        metrics.set(&counts);
        let text = registry.encode();
        // The first one has expired.
        for (within, count) in [("10m", 1), ("1h", 1), ("6h", 2), ("24h", 2)] {
            let line = format!("coppice_cluster_accesses_expiring{{within=\"{within}\"}} {count}");
            assert!(text.lines().any(|l| l == line), "{line}: {text}");
        }
    }

    #[test]
    fn what_is_overdue_unrevoked_or_unreachable_is_counted() {
        let registry = Metrics::new("test");
        let metrics = AccessMetrics::new(&registry);
        let failed = |reason: &str, attempts: u32, other: serde_json::Value| {
            serde_json::json!({
                "reason": reason, "message": "", "generation": 1, "attempts": attempts, "at": "2026-01-01T00:00:00Z", "other": other
            })
        };
        let dates = |error: serde_json::Value, since: &str| {
            serde_json::json!({
                "nextRotation": "2026-01-01T06:00:00Z", "notAfter": "2026-01-01T10:00:00Z",
                "output": {"uid": "s", "resourceVersion": "1", "sha256": "x"}, "lastError": error,
                "superseded": ["u-0"], "pendingRevocations": [{"credential": "u-0", "since": since}]
            })
        };
        let none = serde_json::Value::Null;
        let other = serde_json::json!({"reason": "TargetUnreachable", "message": ""});
        let lately = "2026-01-01T11:31:00Z";
        let all = [
            // Since then another one was issued.
            dates(none.clone(), "2026-01-01T04:30:00Z"),
            dates(failed("TargetRefused", 6, none.clone()), lately),
            dates(failed("SecretNotOurs", 6, other), lately),
            dates(failed("TargetUnreachable", 1, none), lately),
        ];
        for (now, overdue) in
            [("05:00", 0), ("07:59", 0), ("08:00", all.len()), ("10:00", all.len()), ("12:00", all.len())]
        {
            let now = format!("2026-01-01T{now}:00Z").parse().unwrap();
            let mut counts = Counts::default();
            for status in &all {
                counts.add(&access(status), now);
            }
            metrics.set(&counts);
            let text = registry.encode();
            for line in [
                format!("coppice_cluster_accesses_overdue {overdue}"),
                "coppice_cluster_accesses_unrevoked 1".to_owned(),
                "coppice_cluster_accesses_unreachable 2".to_owned(),
            ] {
                assert!(text.lines().any(|l| l == line), "{now}: {line}: {text}");
            }
        }
    }

    #[test]
    fn what_was_to_be_revoked_half_an_hour_ago_is_unrevoked_until_it_is_revoked() {
        let (then, later) = ("2026-01-01T00:00:00Z", "2026-01-01T00:00:01Z");
        let superseded = |since: &str| {
            let pending = serde_json::json!([{"credential": "u-0", "since": since}]);
            serde_json::json!({"superseded": ["u-0"], "pendingRevocations": pending})
        };
        let many: Vec<String> = (0..16).map(|n| format!("u-{n}")).collect();
        let error = serde_json::json!({
            "reason": "TargetUnreachable", "message": "", "generation": 1, "attempts": 1, "at": then
        });
        for (status, expected) in [
            (superseded(then), true),
            (superseded(later), false),
            (serde_json::json!({"superseded": many}), true),
            (serde_json::json!({"revokesAt": then}), true),
            (serde_json::json!({"revokesAt": later}), false),
            (serde_json::json!({"revokingSince": then, "lastError": error}), true),
            (serde_json::json!({"revokingSince": later, "lastError": error}), false),
            // What this API server does not do is no matter of the target.
            (serde_json::json!({"revokingSince": then}), false),
        ] {
            let now = "2026-01-01T00:30:00Z".parse().unwrap();
            assert_eq!(is_unrevoked(&access(&status).status, now), expected, "{status}");
        }
    }
}
