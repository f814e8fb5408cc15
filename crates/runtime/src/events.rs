//! Kubernetes Events: best effort, deduplicated, without blocking other work.
//!
//! Our own recorder instead of `kube::runtime::events`: that one reads the system's clock, for times and for names, and could
//! not be driven by a simulator; and of Events published at once it would write each one again.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use coppice_api::Reason;
use coppice_api::names::FIELD_MANAGER;
use coppice_api::reason::ReasonPlace;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::api::events::v1::Event;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta};
use kube::api::{Api, Patch, PatchParams, PostParams};
use tokio::sync::Semaphore;
use tokio::time::Instant;
use tokio_util::task::TaskTracker;

use crate::client::Clients;
use crate::clock::{Clock, SeededRng};
use crate::error::chain;
use crate::metrics::Metrics;

/// Writes Events, in the background. Clones share the cache by which repeated Events become series.
#[derive(Clone)]
pub struct Events(Arc<Inner>);

struct Inner {
    client: kube::Client,
    clock: Clock,
    metrics: Metrics,
    instance: String,
    writing: TaskTracker,
    slots: Semaphore,
    correlator: Mutex<Correlator>,
}

struct Correlator {
    rng: SeededRng,
    /// By the [identity](EventKey::identity) of their Events.
    series: BTreeMap<Box<str>, Series>,
}

/// What Events have that form a series. The note is not part of it: it may contain a count or a time. The generation is, if it is given:
/// Kubernetes lets nobody change a note, and what is said of another spec is something else.
struct EventKey {
    uid: String,
    generation: Option<i64>,
    kind: String,
    namespace: Option<String>,
    name: String,
    warning: bool,
    reason: String,
    action: String,
}

struct Series {
    /// By which the name of the Event ends.
    number: u64,
    count: i32,
    last: Instant,
}

/// An Event that is seen again within this time is one more of its series.
const SERIES_WINDOW: Duration = Duration::from_mins(6);
/// Of so many series it is known that an Event is one more; so many as Kubernetes' own components know. Of more, the oldest are forgotten:
/// thousands of namespaces may come in a few minutes, each with several Events.
const MAX_SERIES: usize = 4096;
/// At most this many Events wait to be written; further ones are dropped and counted.
const MAX_PENDING: usize = 1024;
/// At most this many are written at once.
const MAX_CONCURRENT: usize = 4;
/// Kubernetes refuses longer notes.
const MAX_NOTE: usize = 1000;

impl Events {
    /// A recorder that reports as this replica. The seeded RNG makes the names of the Events.
    pub fn new(clients: &Clients, clock: Clock, metrics: Metrics, instance: &str, rng: SeededRng) -> Self {
        Self(Arc::new(Inner {
            client: clients.writes.clone(),
            clock,
            metrics,
            instance: instance.to_owned(),
            writing: TaskTracker::new(),
            slots: Semaphore::new(MAX_CONCURRENT),
            correlator: Mutex::new(Correlator { rng, series: BTreeMap::new() }),
        }))
    }

    /// Writes an Event about an object, soon. Failures are counted and logged: nothing depends on Events.
    pub fn publish(&self, about: ObjectReference, warning: bool, reason: &str, action: &str, note: &str) {
        self.publish_later((about, None), warning, reason, action, note);
    }

    /// The same about one generation of a spec: an Event about a later one is none of its series.
    pub fn publish_of_spec(
        &self,
        of: (ObjectReference, i64),
        warning: bool,
        reason: &str,
        action: &str,
        note: &str,
    ) {
        let (about, generation) = of;
        self.publish_later((about, Some(generation)), warning, reason, action, note);
    }

    fn publish_later(
        &self,
        of: (ObjectReference, Option<i64>),
        warning: bool,
        reason: &str,
        action: &str,
        note: &str,
    ) {
        let (about, generation) = of;
        debug_assert!(
            Reason::parse(reason).is_none_or(|known| known.places().contains(&ReasonPlace::Event)),
            "{reason} is the reason of an Event: say so in its places"
        );
        if self.0.writing.len() >= MAX_PENDING {
            self.0.metrics.event_written(false);
            return;
        }
        let key = EventKey {
            uid: about.uid.clone().unwrap_or_default(),
            generation,
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
        self.0.writing.spawn(async move { this.write(key, about, note, now).await });
    }

    /// Waits until everything that was published is written, at a shutdown.
    pub async fn flush(&self) {
        self.0.writing.close();
        self.0.writing.wait().await;
    }
}

impl Inner {
    async fn write(&self, key: EventKey, about: ObjectReference, note: String, at: Timestamp) {
        // The semaphore is never closed.
        let _turn = self.slots.acquire().await;
        let reason = key.reason.clone();
        let result = self.record(key, about, note, at).await;
        self.metrics.event_written(result.is_ok());
        if let Err(error) = result {
            // In a namespace that is being deleted nothing can be created: expected, and reported elsewhere.
            tracing::debug!(error = %chain(&error), %reason, "event not written");
        }
    }

    async fn record(
        &self,
        key: EventKey,
        about: ObjectReference,
        note: String,
        at: Timestamp,
    ) -> Result<(), kube::Error> {
        let namespace = key.namespace.clone().unwrap_or_else(|| "default".to_owned());
        let api: Api<Event> = Api::namespaced(self.client.clone(), &namespace);
        let again = self.correlator().count_up(&key);
        if let Some((event, count)) = again {
            let series =
                serde_json::json!({ "series": { "count": count, "lastObservedTime": MicroTime(at) } });
            match api.patch(&event, &PatchParams::default(), &Patch::Merge(series)).await {
                // It has expired, or somebody removed it: a new one.
                Err(kube::Error::Api(status)) if status.code == 404 => {}
                other => return other.map(|_| ()),
            }
        }
        let number = self.correlator().rng.next_u64();
        let event = Event {
            action: Some(key.action.clone()),
            event_time: Some(MicroTime(at)),
            metadata: ObjectMeta {
                name: Some(key.event(number)),
                namespace: Some(namespace),
                ..ObjectMeta::default()
            },
            note: Some(note),
            reason: Some(key.reason.clone()),
            regarding: Some(about),
            reporting_controller: Some("coppice".to_owned()),
            reporting_instance: Some(self.instance.clone()),
            type_: Some(if key.warning { "Warning" } else { "Normal" }.to_owned()),
            ..Event::default()
        };
        let parameters =
            PostParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PostParams::default() };
        api.create(&parameters, &event).await?;
        self.correlator().begin(&key, number);
        Ok(())
    }

    fn correlator(&self) -> std::sync::MutexGuard<'_, Correlator> {
        // Every change is one assignment: a panic leaves valid data.
        self.correlator.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Correlator {
    /// The Event to count up and its new count, if the same was written a short while ago.
    fn count_up(&mut self, key: &EventKey) -> Option<(String, i32)> {
        self.series.retain(|_, series| series.last.elapsed() < SERIES_WINDOW);
        let series = self.series.get_mut(&*key.identity())?;
        series.count = series.count.saturating_add(1);
        series.last = Instant::now();
        Some((key.event(series.number), series.count))
    }

    /// An Event was written that others may be one more of.
    fn begin(&mut self, key: &EventKey, number: u64) {
        let identity = key.identity();
        if self.series.len() >= MAX_SERIES && !self.series.contains_key(&identity) {
            let oldest = self.series.iter().min_by_key(|(_, series)| series.last);
            if let Some(oldest) = oldest.map(|(identity, _)| identity.clone()) {
                self.series.remove(&oldest);
            }
        }
        self.series.insert(identity, Series { number, count: 1, last: Instant::now() });
    }
}

impl EventKey {
    /// All of it in one text: there are thousands. (No part of it can have a NUL: the API server refuses it.)
    fn identity(&self) -> Box<str> {
        let namespace = self.namespace.as_deref().unwrap_or_default();
        let warning = if self.warning { "Warning" } else { "" };
        let generation = self.generation.map(|generation| generation.to_string()).unwrap_or_default();
        [&*self.uid, &*generation, &*self.kind, namespace, &*self.name, warning, &*self.reason, &*self.action]
            .join("\0")
            .into_boxed_str()
    }

    /// The name of the Event with this number.
    fn event(&self, number: u64) -> String {
        format!("{}.{number:016x}", self.name)
    }
}

#[cfg(test)]
#[path = "events_tests.rs"]
mod tests;
