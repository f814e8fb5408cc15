//! Metrics for Prometheus.
//!
//! Every label value is a `&'static str`: words from the source code, so that no label can grow without bound. The registry is a value
//! that is passed on; tests have their own.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::metrics::info::Info;
use prometheus_client::registry::{Registry, Unit};

use crate::queue::{Depths, QueueObserver, ReconcileResult, RunOutcome};

/// The media type of [`Metrics::encode`].
pub const MEDIA_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// All metrics of a process. Clones share them.
#[derive(Debug, Clone)]
pub struct Metrics {
    registry: Arc<Registry>,
    families: Families,
}

type Seconds = Gauge<f64, AtomicU64>;

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct ByController {
    controller: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct ByOutcome {
    controller: &'static str,
    outcome: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct ByKind {
    kind: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct ByRestart {
    kind: &'static str,
    reason: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct ByUnreadable {
    kind: &'static str,
    reason: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct ByPhase {
    phase: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct ByAction {
    action: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct ByFiring {
    action: &'static str,
    result: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct ByReason {
    reason: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct ByResult {
    result: &'static str,
}

/// The labels of a request to the API server.
#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
pub struct ApiRequest {
    /// `reads` or `writes`.
    pub client: &'static str,
    /// The verb of the Kubernetes API: `get`, `list`, `watch`, `create`, `update`, `patch`, `delete`, `deletecollection`.
    pub verb: &'static str,
    /// The resource in the plural, `other` if it is none of those that Coppice knows, `none` if the path names none.
    pub resource: &'static str,
    /// The HTTP status code, `timeout` when the deadline passed, or `error` when there was no answer for another reason.
    pub code: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct ByCall {
    client: &'static str,
    verb: &'static str,
}

type Histograms<L> = Family<L, Histogram, fn() -> Histogram>;

#[derive(Debug, Clone)]
struct Families {
    leader: Gauge,
    reconciles: Family<ByOutcome, Counter>,
    reconcile_duration: Histograms<ByController>,
    reconcile_panics: Family<ByController, Counter>,
    queue_depth: Family<ByController, Gauge>,
    queue_due: Family<ByController, Gauge>,
    queue_running: Family<ByController, Gauge>,
    watch_synced: Family<ByKind, Gauge>,
    watch_last_activity: Family<ByKind, Seconds>,
    watch_restarts: Family<ByRestart, Counter>,
    watch_objects: Family<ByKind, Gauge>,
    watch_unreadable: Family<ByUnreadable, Gauge>,
    api_requests: Family<ApiRequest, Counter>,
    api_request_duration: Histograms<ByCall>,
    clock_skew: Seconds,
    managers: Family<ByPhase, Gauge>,
    deleted_namespaces: Family<ByPhase, Gauge>,
    firings: Family<ByFiring, Counter>,
    firing_lateness: Histograms<ByAction>,
    blocked: Family<ByReason, Counter>,
    webhook_attempts: Family<ByResult, Counter>,
    governor_reserved: Gauge,
    governor_limit: Gauge,
    events: Family<ByResult, Counter>,
    status_writes: Family<ByResult, Counter>,
}

/// 5 ms to 60 s: what takes longer has run into a deadline.
fn work_time() -> Histogram {
    Histogram::new([0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0])
}

/// Up to a day: a step can be blocked for long before it is done.
fn lateness() -> Histogram {
    Histogram::new([0.1, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0, 300.0, 1800.0, 3600.0, 21_600.0, 86_400.0])
}

impl Default for Families {
    fn default() -> Self {
        Self {
            leader: Gauge::default(),
            reconciles: Family::default(),
            reconcile_duration: Family::new_with_constructor(work_time),
            reconcile_panics: Family::default(),
            queue_depth: Family::default(),
            queue_due: Family::default(),
            queue_running: Family::default(),
            watch_synced: Family::default(),
            watch_last_activity: Family::default(),
            watch_restarts: Family::default(),
            watch_objects: Family::default(),
            watch_unreadable: Family::default(),
            api_requests: Family::default(),
            api_request_duration: Family::new_with_constructor(work_time),
            clock_skew: Gauge::default(),
            managers: Family::default(),
            deleted_namespaces: Family::default(),
            firings: Family::default(),
            firing_lateness: Family::new_with_constructor(lateness),
            blocked: Family::default(),
            webhook_attempts: Family::default(),
            governor_reserved: Gauge::default(),
            governor_limit: Gauge::default(),
            events: Family::default(),
            status_writes: Family::default(),
        }
    }
}

impl Families {
    /// Names and help texts: they are part of the interface, dashboards and alerts depend on them.
    fn register(&self, to: &mut Registry) {
        to.register(
            "leader",
            "Whether this replica writes: 1 while it holds the lease, else 0",
            self.leader.clone(),
        );
        self.register_work(to);
        self.register_inputs(to);
        self.register_effects(to);
    }

    fn register_work(&self, to: &mut Registry) {
        to.register("reconciles", "Looks at an object, by how they ended", self.reconciles.clone());
        let help = "How long a look at an object took";
        to.register_with_unit("reconcile_duration", help, Unit::Seconds, self.reconcile_duration.clone());
        let help = "Looks at an object that ended in a panic: each one is a bug";
        to.register("reconcile_panics", help, self.reconcile_panics.clone());
        to.register("queue_depth", "Objects that wait for their turn", self.queue_depth.clone());
        to.register("queue_due", "Objects that wait for an instant", self.queue_due.clone());
        to.register("queue_running", "Objects that are being looked at", self.queue_running.clone());
    }

    fn register_inputs(&self, to: &mut Registry) {
        let help = "Whether the kind was listed completely since the start: 1 or 0";
        to.register("watch_synced", help, self.watch_synced.clone());
        let help = "When the watch last showed a sign of life, as seconds since the epoch";
        to.register_with_unit(
            "watch_last_activity_timestamp",
            help,
            Unit::Seconds,
            self.watch_last_activity.clone(),
        );
        to.register(
            "watch_restarts",
            "Watches that were started again, by cause",
            self.watch_restarts.clone(),
        );
        to.register("watch_objects", "Objects in the cache", self.watch_objects.clone());
        let help = "Objects that cannot be understood: what is in their namespaces is unknown, by why";
        to.register("watch_objects_unreadable", help, self.watch_unreadable.clone());
        let help = "Requests to the API server, by what came of them";
        to.register("api_requests", help, self.api_requests.clone());
        let help = "How long the API server took to answer; for watches, until the answer began";
        to.register_with_unit("api_request_duration", help, Unit::Seconds, self.api_request_duration.clone());
        let help = "By how much the API server's clock is ahead of this machine's; negative if behind";
        to.register_with_unit("clock_skew", help, Unit::Seconds, self.clock_skew.clone());
    }

    fn register_effects(&self, to: &mut Registry) {
        to.register("managers", "Managers, by phase", self.managers.clone());
        let deleted = self.deleted_namespaces.clone();
        to.register("deleted_namespaces", "Records of deletions of namespaces, by phase", deleted);
        to.register("firings", "Steps of policies that fired, by how they ended", self.firings.clone());
        let help = "How long after it was due a step was done";
        to.register_with_unit("firing_lateness", help, Unit::Seconds, self.firing_lateness.clone());
        to.register("blocked", "Steps that were held back, by reason", self.blocked.clone());
        to.register("webhook_attempts", "Attempts to deliver a webhook", self.webhook_attempts.clone());
        let help = "Destructive steps that the governor has reserved in the last hour";
        to.register("governor_reserved_last_hour", help, self.governor_reserved.clone());
        let help = "Destructive steps that the governor allows in an hour";
        to.register("governor_limit_per_hour", help, self.governor_limit.clone());
        to.register("events", "Kubernetes Events written, by result", self.events.clone());
        to.register("status_writes", "Writes of a status, by result", self.status_writes.clone());
    }
}

impl Metrics {
    /// A registry of its own, everything at zero. `version` is that of the running program.
    pub fn new(version: &str) -> Self {
        let families = Families::default();
        let mut registry = Registry::with_prefix("coppice");
        let info = Info::new([("version", version.to_owned())]);
        registry.register("build", "The running version of Coppice", info);
        families.register(&mut registry);
        Self { registry: Arc::new(registry), families }
    }

    /// Everything, as `OpenMetrics` text ([`MEDIA_TYPE`]).
    pub fn encode(&self) -> String {
        let mut text = String::new();
        // Writing to a string cannot fail; a metric that cannot be written would show as a missing end.
        if let Err(error) = prometheus_client::encoding::text::encode(&mut text, &self.registry) {
            tracing::error!(%error, "metrics could not be written");
        }
        text
    }

    /// Whether this replica holds the lease.
    pub fn leader(&self, leads: bool) {
        self.families.leader.set(i64::from(leads));
    }

    /// The metrics of one controller's queue; hand it to [`Queue::run`](crate::queue::Queue::run).
    pub fn controller(&self, name: &'static str) -> ControllerMetrics {
        // All series exist from the start, so that a rate over the first failure is seen.
        for outcome in [DONE, LATER, RETRY, PANIC] {
            let _ = self.families.reconciles.get_or_create(&ByOutcome { controller: name, outcome });
        }
        let _ = self.families.reconcile_panics.get_or_create(&ByController { controller: name });
        ControllerMetrics { families: self.families.clone(), controller: name }
    }

    /// The kind is being listed for the first time, and nothing is known of it yet.
    pub fn watch_unsynced(&self, kind: &'static str) {
        self.families.watch_synced.get_or_create(&ByKind { kind }).set(0);
    }

    /// The kind was listed completely: this many objects, at this time.
    pub fn watch_synced(&self, kind: &'static str, objects: usize, now: Timestamp) {
        self.families.watch_synced.get_or_create(&ByKind { kind }).set(1);
        self.watch_alive(kind, objects, now);
    }

    /// The watch showed a sign of life, an event or a bookmark; the cache holds this many objects.
    pub fn watch_alive(&self, kind: &'static str, objects: usize, now: Timestamp) {
        let seconds = now.duration_since(Timestamp::UNIX_EPOCH).as_secs_f64();
        self.families.watch_last_activity.get_or_create(&ByKind { kind }).set(seconds);
        self.families.watch_objects.get_or_create(&ByKind { kind }).set(whole(objects));
    }

    /// This many objects of the kind cannot be decoded, for this reason.
    pub fn watch_unreadable(&self, kind: &'static str, reason: &'static str, count: usize) {
        self.families.watch_unreadable.get_or_create(&ByUnreadable { kind, reason }).set(whole(count));
    }

    /// The watch was started again.
    pub fn watch_restarted(&self, kind: &'static str, reason: &'static str) {
        self.families.watch_restarts.get_or_create(&ByRestart { kind, reason }).inc();
    }

    /// A request to the API server ended after `took`.
    pub fn api_request(&self, request: &ApiRequest, took: Duration) {
        self.families.api_requests.get_or_create(request).inc();
        let call = ByCall { client: request.client, verb: request.verb };
        self.families.api_request_duration.get_or_create(&call).observe(took.as_secs_f64());
    }

    /// The estimate of [`ServerClock::skew`](crate::server_clock::ServerClock::skew).
    pub fn clock_skew(&self, skew: SignedDuration) {
        self.families.clock_skew.set(skew.as_secs_f64());
    }

    /// This many managers are in this phase.
    pub fn managers(&self, phase: &'static str, count: usize) {
        self.families.managers.get_or_create(&ByPhase { phase }).set(whole(count));
    }

    /// This many records of deletions are in this phase.
    pub fn deleted_namespaces(&self, phase: &'static str, count: usize) {
        self.families.deleted_namespaces.get_or_create(&ByPhase { phase }).set(whole(count));
    }

    /// A step of a policy that fired has ended.
    pub fn firing(&self, action: &'static str, result: &'static str) {
        self.families.firings.get_or_create(&ByFiring { action, result }).inc();
    }

    /// A step was done this long after it was due. Early (which does not happen) counts as on time.
    pub fn firing_lateness(&self, action: &'static str, late: SignedDuration) {
        let seconds = late.as_secs_f64().max(0.0);
        self.families.firing_lateness.get_or_create(&ByAction { action }).observe(seconds);
    }

    /// A step was held back.
    pub fn blocked(&self, reason: &'static str) {
        self.families.blocked.get_or_create(&ByReason { reason }).inc();
    }

    /// An attempt to deliver a webhook has ended.
    pub fn webhook_attempt(&self, result: &'static str) {
        self.families.webhook_attempts.get_or_create(&ByResult { result }).inc();
    }

    /// What the governor has reserved in the last hour, and what it allows in one.
    pub fn governor(&self, reserved_last_hour: u64, limit_per_hour: u64) {
        self.families.governor_reserved.set(whole(reserved_last_hour));
        self.families.governor_limit.set(whole(limit_per_hour));
    }

    /// An Event was written, or could not be.
    pub fn event_written(&self, ok: bool) {
        self.families.events.get_or_create(&ByResult { result: result(ok) }).inc();
    }

    /// A status was written, or could not be.
    pub fn status_written(&self, ok: bool) {
        self.families.status_writes.get_or_create(&ByResult { result: result(ok) }).inc();
    }
}

const DONE: &str = "done";
const LATER: &str = "later";
const RETRY: &str = "retry";
const PANIC: &str = "panic";

fn result(ok: bool) -> &'static str {
    if ok { "ok" } else { "error" }
}

fn whole(count: impl TryInto<i64>) -> i64 {
    count.try_into().unwrap_or(i64::MAX)
}

/// The metrics of one controller.
#[derive(Debug, Clone)]
pub struct ControllerMetrics {
    families: Families,
    controller: &'static str,
}

impl<K> QueueObserver<K> for ControllerMetrics {
    fn finished(&self, _: &K, outcome: &RunOutcome, took: Duration) {
        let label = ByController { controller: self.controller };
        let word = match outcome {
            RunOutcome::Completed(ReconcileResult::Done) => DONE,
            RunOutcome::Completed(ReconcileResult::At(_)) => LATER,
            RunOutcome::Completed(ReconcileResult::Retry { .. }) => RETRY,
            RunOutcome::Panicked(_) => {
                self.families.reconcile_panics.get_or_create(&label).inc();
                PANIC
            }
        };
        let labels = ByOutcome { controller: self.controller, outcome: word };
        self.families.reconciles.get_or_create(&labels).inc();
        self.families.reconcile_duration.get_or_create(&label).observe(took.as_secs_f64());
    }

    fn depths(&self, depths: Depths) {
        let label = ByController { controller: self.controller };
        self.families.queue_depth.get_or_create(&label).set(whole(depths.ready));
        self.families.queue_due.get_or_create(&label).set(whole(depths.due));
        self.families.queue_running.get_or_create(&label).set(whole(depths.running));
    }
}

#[cfg(test)]
#[path = "metrics_tests.rs"]
mod tests;
