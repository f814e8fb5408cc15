//! Metrics for Prometheus.
//!
//! Every label value is a `&'static str`: words from the source code, so that no label can grow without bound; or it is in a
//! [`DynamicFamily`], which bounds it. The registry is a value that is passed on; tests have their own. Here is what the
//! runtime itself measures; others [register](Metrics::register) theirs.

mod dynamic_family;
mod memory;
mod registrar;

use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use coppice_api::Reason;
use jiff::{SignedDuration, Timestamp};
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::metrics::info::Info;
use prometheus_client::registry::{Registry, Unit};

pub use self::dynamic_family::{DynamicFamily, DynamicLabel, MAX_VALUES, NoLabels, OTHER};
use self::memory::Memory;
pub use self::registrar::{Describe, Registrar};
use crate::queue::{Depths, QueueObserver, ReconcileResult, RunOutcome};

/// The media type of [`Metrics::encode`].
pub const MEDIA_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// All metrics of a process. Clones share them.
#[derive(Debug, Clone)]
pub struct Metrics {
    registry: Arc<Mutex<Registry>>,
    families: Families,
    described: bool,
}

type Seconds = Gauge<f64, AtomicU64>;

#[derive(Clone, Debug, Default, Hash, PartialEq, Eq, EncodeLabelSet)]
struct ByLease {
    lease: String,
}

#[derive(Clone, Debug, Default, Hash, PartialEq, Eq, EncodeLabelSet)]
struct ByController {
    controller: &'static str,
}

#[derive(Clone, Debug, Default, Hash, PartialEq, Eq, EncodeLabelSet)]
struct ByOutcome {
    controller: &'static str,
    outcome: &'static str,
}

#[derive(Clone, Debug, Default, Hash, PartialEq, Eq, EncodeLabelSet)]
struct ByKind {
    kind: &'static str,
}

#[derive(Clone, Debug, Default, Hash, PartialEq, Eq, EncodeLabelSet)]
struct ByRestart {
    kind: &'static str,
    reason: &'static str,
}

#[derive(Clone, Debug, Default, Hash, PartialEq, Eq, EncodeLabelSet)]
struct ByUnreadable {
    kind: &'static str,
    reason: &'static str,
}

#[derive(Clone, Debug, Default, Hash, PartialEq, Eq, EncodeLabelSet)]
struct ByResult {
    result: &'static str,
}

/// The labels of a request to the API server.
#[derive(Clone, Debug, Default, Hash, PartialEq, Eq, EncodeLabelSet)]
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

#[derive(Clone, Debug, Default, Hash, PartialEq, Eq, EncodeLabelSet)]
struct ByCall {
    client: &'static str,
    verb: &'static str,
}

type Histograms<L> = Family<L, Histogram, fn() -> Histogram>;

#[derive(Debug, Clone)]
struct Families {
    leader: Family<ByLease, Gauge>,
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
    events: Family<ByResult, Counter>,
    status_writes: Family<ByResult, Counter>,
}

/// 5 ms to 60 s: what takes longer has run into a deadline.
fn work_time() -> Histogram {
    Histogram::new([0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0])
}

impl Default for Families {
    fn default() -> Self {
        Self {
            leader: Family::default(),
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
            events: Family::default(),
            status_writes: Family::default(),
        }
    }
}

impl Families {
    /// Names and help texts: they are part of the interface, dashboards and alerts depend on them.
    fn register(&self, to: &mut Registrar<'_>) {
        to.register(
            "leader",
            "1 while this replica holds the Lease of its program, else 0",
            self.leader.clone(),
        );
        self.register_work(to);
        self.register_inputs(to);
        self.register_effects(to);
    }

    fn register_work(&self, to: &mut Registrar<'_>) {
        to.register("reconciles", "Reconciles of an object, by how they ended: `done`, `later` (due at an instant), `retry` (failed) or `panic`", self.reconciles.clone());
        let help = "How long a reconcile took";
        to.register_with_unit("reconcile_duration", help, Unit::Seconds, self.reconcile_duration.clone());
        let help = "Reconciles that ended in a panic: each one is a bug";
        to.register("reconcile_panics", help, self.reconcile_panics.clone());
        to.register("queue_depth", "Objects that wait for their turn", self.queue_depth.clone());
        to.register("queue_due", "Objects that wait for an instant", self.queue_due.clone());
        to.register("queue_running", "Objects that are being reconciled", self.queue_running.clone());
    }

    fn register_inputs(&self, to: &mut Registrar<'_>) {
        let help = "1 after the kind has been listed completely since the start, else 0";
        to.register("watch_synced", help, self.watch_synced.clone());
        let help =
            "When the watch last received an event or bookmark, or ended in order, in seconds since 1970";
        to.register_with_unit(
            "watch_last_activity_timestamp",
            help,
            Unit::Seconds,
            self.watch_last_activity.clone(),
        );
        to.register(
            "watch_restarts",
            "Watches that were started again, by cause: `expired`, `stale` (listed again), `forbidden` or `error`",
            self.watch_restarts.clone(),
        );
        to.register("watch_objects", "Objects in the cache", self.watch_objects.clone());
        let help = "Objects in the cache that cannot be understood (`Undecodable`, `TooLarge`): the contents of their namespaces are unknown, and conditions that look at them wait. The log names the first of each namespace";
        to.register("watch_objects_unreadable", help, self.watch_unreadable.clone());
        let help = "Requests to the API server. `client` is `reads` or `writes`, `code` the HTTP status, `timeout` or `error`";
        to.register("api_requests", help, self.api_requests.clone());
        let help = "How long the API server took to answer; of a watch until the answer began";
        to.register_with_unit("api_request_duration", help, Unit::Seconds, self.api_request_duration.clone());
        let help = "The API server's clock minus this machine's";
        to.register_with_unit("clock_skew", help, Unit::Seconds, self.clock_skew.clone());
    }

    fn register_effects(&self, to: &mut Registrar<'_>) {
        to.register(
            "events",
            "Kubernetes Events written: `ok`, or `error` (also dropped ones)",
            self.events.clone(),
        );
        to.register(
            "status_writes",
            "Writes of a status: `ok`, or `error` (also lost races)",
            self.status_writes.clone(),
        );
    }
}

impl Metrics {
    /// A registry of its own, everything at zero. `version` is that of the running program.
    pub fn new(version: &str) -> Self {
        let this = Self::with(version, false);
        // These series exist from the start, so that a rate sees the first failure.
        for result in [OK, ERROR] {
            let _ = this.families.events.get_or_create(&ByResult { result });
            let _ = this.families.status_writes.get_or_create(&ByResult { result });
        }
        this
    }

    /// A registry in which each metric has a series from the start, whose labels are empty: [`encode`](Self::encode) then
    /// shows every name, type, label and help text that there is.
    pub fn described() -> Self {
        Self::with("", true)
    }

    /// Whether this registry is there to be [described](Self::described), not to count.
    pub fn is_described(&self) -> bool {
        self.described
    }

    fn with(version: &str, described: bool) -> Self {
        let families = Families::default();
        let registry = Arc::new(Mutex::new(Registry::with_prefix("coppice")));
        let this = Self { registry, families, described };
        this.register(|to| {
            let info = Info::new([("version", version.to_owned())]);
            to.register("build", "The running version", info);
            this.families.register(to);
            to.register_collector(Memory::new(described));
        });
        this
    }

    /// Registers further metrics, once for each registry; `coppice_` is put before their names.
    pub fn register(&self, register: impl FnOnce(&mut Registrar<'_>)) {
        let mut registry = self.registry.lock().unwrap_or_else(PoisonError::into_inner);
        register(&mut Registrar::new(&mut registry, self.described));
    }

    /// Everything, as `OpenMetrics` text ([`MEDIA_TYPE`]).
    pub fn encode(&self) -> String {
        let registry = self.registry.lock().unwrap_or_else(PoisonError::into_inner);
        let mut text = String::new();
        // Writing to a string cannot fail; a metric that cannot be written would show as a missing end.
        if let Err(error) = prometheus_client::encoding::text::encode(&mut text, &registry) {
            tracing::error!(%error, "metrics could not be written");
        }
        text
    }

    /// Whether this replica holds this lease: programs that run beside each other have one each.
    pub fn leader(&self, lease: &str, leads: bool) {
        self.families.leader.get_or_create(&ByLease { lease: lease.to_owned() }).set(i64::from(leads));
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
        for reason in RESTARTS {
            let _ = self.families.watch_restarts.get_or_create(&ByRestart { kind, reason });
        }
    }

    /// The kind is not watched any more: nothing is said about it, so that no alert waits for its next sign of life.
    pub fn watch_stopped(&self, kind: &'static str) {
        self.families.watch_synced.remove(&ByKind { kind });
        self.families.watch_last_activity.remove(&ByKind { kind });
        self.families.watch_objects.remove(&ByKind { kind });
        for reason in RESTARTS {
            self.families.watch_restarts.remove(&ByRestart { kind, reason });
        }
        for reason in [Reason::Undecodable, Reason::TooLarge] {
            self.families.watch_unreadable.remove(&ByUnreadable { kind, reason: reason.as_str() });
        }
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

    /// An Event was written, or could not be.
    pub fn event_written(&self, ok: bool) {
        self.families.events.get_or_create(&ByResult { result: result(ok) }).inc();
    }

    /// A status was written, or could not be.
    pub fn status_written(&self, ok: bool) {
        self.families.status_writes.get_or_create(&ByResult { result: result(ok) }).inc();
    }
}

/// Why watches are started again.
const RESTARTS: [&str; 4] = ["expired", "stale", "forbidden", "error"];
const DONE: &str = "done";
const LATER: &str = "later";
const RETRY: &str = "retry";
const PANIC: &str = "panic";
const OK: &str = "ok";
const ERROR: &str = "error";

fn result(ok: bool) -> &'static str {
    if ok { OK } else { ERROR }
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
            RunOutcome::Completed(ReconcileResult::At(_) | ReconcileResult::Waits(_)) => LATER,
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
