//! Events for people: best effort, deduplicated, never in the way of work.

use std::sync::Arc;

use k8s_openapi::api::core::v1::ObjectReference;
use kube::runtime::events::{Event, EventType, Recorder, Reporter};
use tokio::sync::Semaphore;
use tokio_util::task::TaskTracker;

use crate::client::Clients;
use crate::error::chain;
use crate::metrics::Metrics;

/// Writes Events, in the background. Clones share the memory by which repeated Events become series.
#[derive(Clone)]
pub struct Events {
    recorder: Recorder,
    metrics: Metrics,
    writing: TaskTracker,
    turns: Arc<Semaphore>,
}

/// So many Events may wait to be written; what comes on top is dropped and counted.
const WAITING: usize = 1024;
/// So many are written at once.
const AT_ONCE: usize = 4;

/// Kubernetes refuses longer notes.
const MAX_NOTE: usize = 1000;

impl Events {
    /// A recorder that signs as this replica.
    pub fn new(clients: &Clients, metrics: Metrics, instance: &str) -> Self {
        let reporter = Reporter { controller: "coppice".to_owned(), instance: Some(instance.to_owned()) };
        let recorder = Recorder::new(clients.writes.clone(), reporter);
        Self { recorder, metrics, writing: TaskTracker::new(), turns: Arc::new(Semaphore::new(AT_ONCE)) }
    }

    /// Writes an Event about an object, soon. Failures are counted and logged: nothing depends on Events.
    pub fn publish(&self, about: ObjectReference, warning: bool, reason: &str, action: &str, note: &str) {
        let event = Event {
            type_: if warning { EventType::Warning } else { EventType::Normal },
            reason: reason.to_owned(),
            note: Some(note.chars().take(MAX_NOTE).collect()),
            action: action.to_owned(),
            secondary: None,
        };
        if self.writing.len() >= WAITING {
            self.metrics.event_written(false);
            return;
        }
        let this = self.clone();
        self.writing.spawn(async move { this.write(&event, &about).await });
    }

    async fn write(&self, event: &Event, about: &ObjectReference) {
        // The semaphore is never closed.
        let _turn = self.turns.acquire().await;
        let result = self.recorder.publish(event, about).await;
        self.metrics.event_written(result.is_ok());
        if let Err(error) = result {
            // In a namespace that is being deleted nothing can be created: expected, and told elsewhere.
            tracing::debug!(error = %chain(&error), reason = %event.reason, "event not written");
        }
    }

    /// Waits until everything that was published is written, at a shutdown.
    pub async fn flush(&self) {
        self.writing.close();
        self.writing.wait().await;
    }
}
