//! Events for people: best effort, deduplicated, never in the way of work.
//!
//! Our own recorder instead of `kube::runtime::events`: that one reads the system's clock, for times and for names, and could
//! not be driven by a simulator; and of Events published at once it would write each anew.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use coppice_api::names::FIELD_MANAGER;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::api::events::v1::Event;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta};
use kube::api::{Api, Patch, PatchParams, PostParams};
use tokio::sync::Semaphore;
use tokio::time::Instant;
use tokio_util::task::TaskTracker;

use crate::client::Clients;
use crate::clock::{Clock, Dice};
use crate::error::chain;
use crate::metrics::Metrics;

/// Writes Events, in the background. Clones share the memory by which repeated Events become series.
#[derive(Clone)]
pub struct Events(Arc<Inner>);

struct Inner {
    client: kube::Client,
    clock: Clock,
    metrics: Metrics,
    instance: String,
    writing: TaskTracker,
    turns: Semaphore,
    memory: Mutex<Memory>,
}

struct Memory {
    dice: Dice,
    series: BTreeMap<What, Series>,
}

/// What makes two Events the same one, seen again. The note is not part of it: it may count or name a time.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
struct What {
    uid: String,
    kind: String,
    namespace: Option<String>,
    name: String,
    warning: bool,
    reason: String,
    action: String,
}

struct Series {
    event: String,
    count: i32,
    last: Instant,
}

/// An Event that is seen again within this time is one more of its series.
const SERIES: Duration = Duration::from_mins(6);
/// So many Events may wait to be written; what comes on top is dropped and counted.
const WAITING: usize = 1024;
/// So many are written at once.
const AT_ONCE: usize = 4;
/// Kubernetes refuses longer notes.
const MAX_NOTE: usize = 1000;

impl Events {
    /// A recorder that signs as this replica. The dice make the Events' names.
    pub fn new(clients: &Clients, clock: Clock, metrics: Metrics, instance: &str, dice: Dice) -> Self {
        Self(Arc::new(Inner {
            client: clients.writes.clone(),
            clock,
            metrics,
            instance: instance.to_owned(),
            writing: TaskTracker::new(),
            turns: Semaphore::new(AT_ONCE),
            memory: Mutex::new(Memory { dice, series: BTreeMap::new() }),
        }))
    }

    /// Writes an Event about an object, soon. Failures are counted and logged: nothing depends on Events.
    pub fn publish(&self, about: ObjectReference, warning: bool, reason: &str, action: &str, note: &str) {
        if self.0.writing.len() >= WAITING {
            self.0.metrics.event_written(false);
            return;
        }
        let what = What {
            uid: about.uid.clone().unwrap_or_default(),
            kind: about.kind.clone().unwrap_or_default(),
            namespace: about.namespace.clone(),
            name: about.name.clone().unwrap_or_default(),
            warning,
            reason: reason.to_owned(),
            action: action.to_owned(),
        };
        let note = note.chars().take(MAX_NOTE).collect();
        let now = self.0.clock.now();
        let this = Arc::clone(&self.0);
        self.0.writing.spawn(async move { this.write(what, about, note, now).await });
    }

    /// Waits until everything that was published is written, at a shutdown.
    pub async fn flush(&self) {
        self.0.writing.close();
        self.0.writing.wait().await;
    }
}

impl Inner {
    async fn write(&self, what: What, about: ObjectReference, note: String, at: Timestamp) {
        // The semaphore is never closed.
        let _turn = self.turns.acquire().await;
        let reason = what.reason.clone();
        let result = self.record(what, about, note, at).await;
        self.metrics.event_written(result.is_ok());
        if let Err(error) = result {
            // In a namespace that is being deleted nothing can be created: expected, and told elsewhere.
            tracing::debug!(error = %chain(&error), %reason, "event not written");
        }
    }

    async fn record(
        &self,
        what: What,
        about: ObjectReference,
        note: String,
        at: Timestamp,
    ) -> Result<(), kube::Error> {
        let namespace = what.namespace.clone().unwrap_or_else(|| "default".to_owned());
        let api: Api<Event> = Api::namespaced(self.client.clone(), &namespace);
        if let Some((event, count)) = self.seen_again(&what) {
            let series =
                serde_json::json!({ "series": { "count": count, "lastObservedTime": MicroTime(at) } });
            match api.patch(&event, &PatchParams::default(), &Patch::Merge(series)).await {
                // It has expired, or somebody removed it: a new one.
                Err(kube::Error::Api(status)) if status.code == 404 => {}
                other => return other.map(|_| ()),
            }
        }
        let name = self.name(&what.name);
        let event = Event {
            action: Some(what.action.clone()),
            event_time: Some(MicroTime(at)),
            metadata: ObjectMeta {
                name: Some(name.clone()),
                namespace: Some(namespace),
                ..ObjectMeta::default()
            },
            note: Some(note),
            reason: Some(what.reason.clone()),
            regarding: Some(about),
            reporting_controller: Some("coppice".to_owned()),
            reporting_instance: Some(self.instance.clone()),
            type_: Some(if what.warning { "Warning" } else { "Normal" }.to_owned()),
            ..Event::default()
        };
        let parameters =
            PostParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PostParams::default() };
        api.create(&parameters, &event).await?;
        let series = Series { event: name, count: 1, last: Instant::now() };
        self.memory().series.insert(what, series);
        Ok(())
    }

    /// The Event to count up and its new count, if the same was written a short while ago.
    fn seen_again(&self, what: &What) -> Option<(String, i32)> {
        let mut memory = self.memory();
        memory.series.retain(|_, series| series.last.elapsed() < SERIES);
        let series = memory.series.get_mut(what)?;
        series.count = series.count.saturating_add(1);
        series.last = Instant::now();
        Some((series.event.clone(), series.count))
    }

    fn name(&self, about: &str) -> String {
        format!("{about}.{:016x}", self.memory().dice.roll())
    }

    fn memory(&self) -> std::sync::MutexGuard<'_, Memory> {
        // Every change is one assignment: a panic leaves valid data.
        self.memory.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
