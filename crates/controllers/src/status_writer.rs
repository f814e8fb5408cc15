//! Writes the status of objects that decide steps: a status that was planned, and what came of a step. A write that was lost
//! is read again before anything else is done, since it may have happened.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use coppice_api::manager::{Intent, NamespaceManagerStatus, NextStep};
use coppice_api::{ManagedNamespaceStatus, Reason, Steps, SubnamespaceStatus};
use coppice_kinds::{ManagedNamespaces, Managers, Subnamespaces};
use coppice_lifecycle::plan::PlannedEvent;
use coppice_lifecycle::record::{self, StepOutcome};
use coppice_lifecycle::steps;
use coppice_runtime::error::chain;
use coppice_runtime::leader::Permit;
use coppice_runtime::object::OwnKind;
use coppice_runtime::read::{self, ListError};
use coppice_runtime::store::Store;
use coppice_runtime::write::{self, WriteError};
use jiff::Timestamp;
use tokio::time::Instant;

use crate::context::ControllerContext;

/// A kind whose objects decide steps, which their status holds.
pub trait SteppedKind: OwnKind<Spec: Clone, Status: Clone> {
    /// The steps.
    fn steps(status: &Self::Status) -> &Steps;

    /// The same, to be changed.
    fn steps_mut(status: &mut Self::Status) -> &mut Steps;

    /// What comes next, if status says so.
    fn next(status: &Self::Status) -> Option<&NextStep>;

    /// Writes the outcome of an attempt at an intent of this status into it; returns the Events to publish.
    fn record(
        status: &mut Self::Status,
        intent: &Intent,
        outcome: &StepOutcome,
        now: Timestamp,
    ) -> Vec<PlannedEvent> {
        record::apply(Self::steps_mut(status), intent, outcome, now)
    }
}

impl SteppedKind for Managers {
    fn steps(status: &NamespaceManagerStatus) -> &Steps {
        &status.steps
    }

    fn steps_mut(status: &mut NamespaceManagerStatus) -> &mut Steps {
        &mut status.steps
    }

    fn next(status: &NamespaceManagerStatus) -> Option<&NextStep> {
        status.next.as_ref()
    }

    fn record(
        status: &mut NamespaceManagerStatus,
        intent: &Intent,
        outcome: &StepOutcome,
        now: Timestamp,
    ) -> Vec<PlannedEvent> {
        record::apply_to_manager(status, intent, outcome, now)
    }
}

impl SteppedKind for ManagedNamespaces {
    fn steps(status: &ManagedNamespaceStatus) -> &Steps {
        &status.steps
    }

    fn steps_mut(status: &mut ManagedNamespaceStatus) -> &mut Steps {
        &mut status.steps
    }

    fn next(status: &ManagedNamespaceStatus) -> Option<&NextStep> {
        status.next.as_ref()
    }

    fn record(
        status: &mut ManagedNamespaceStatus,
        intent: &Intent,
        outcome: &StepOutcome,
        now: Timestamp,
    ) -> Vec<PlannedEvent> {
        record::apply_to_record(status, intent, outcome, now)
    }
}

impl SteppedKind for Subnamespaces {
    fn steps(status: &SubnamespaceStatus) -> &Steps {
        &status.steps
    }

    fn steps_mut(status: &mut SubnamespaceStatus) -> &mut Steps {
        &mut status.steps
    }

    fn next(_: &SubnamespaceStatus) -> Option<&NextStep> {
        None
    }
}

/// How carrying out a plan went.
pub enum Applied<O> {
    /// There is more to decide, on this revision of the object.
    Replan(O),
    /// There is nothing to do until then, or until something changes.
    CheckAt(Option<Timestamp>),
    /// Nothing could be done; try again with backoff.
    Failed(StepError),
    /// The caches are behind what was read from the API server: nothing is done until they have had time to catch up.
    CacheBehind,
}

/// The Events of a reconcile.
#[derive(Default)]
pub struct EventBatch {
    /// The Events.
    pub events: Vec<PlannedEvent>,
    /// The intent that they are about, if any.
    pub intent: Option<Intent>,
}

/// Why something that a decision rests on could not be read again.
#[derive(Debug, thiserror::Error)]
pub enum FactsError {
    /// A request failed.
    #[error("{}", chain(.0))]
    Read(#[from] kube::Error),
    /// So did a list.
    #[error("the cluster managers: {0}")]
    ClusterManagers(#[from] Arc<ListError>),
    /// The workloads of a namespace.
    #[error("its {resource}: {error}")]
    Workloads {
        /// Which of them.
        resource: &'static str,
        /// Why.
        error: ListError,
    },
}

/// Why nothing could be done or recorded. The reconcile is tried again with backoff.
#[derive(Debug, thiserror::Error)]
pub enum StepError {
    /// The object could not be read.
    #[error("{}", chain(.0))]
    Read(#[from] kube::Error),
    /// What the step rests on could not be read again, and the object is about another step by now.
    #[error("the facts could not be read again: {0}")]
    Facts(#[source] FactsError),
    /// The API server refused a write.
    #[error("{0}")]
    Write(#[from] WriteError),
    /// Others write the same status, faster than this one.
    #[error("its status changes all the time")]
    Races,
    /// What was read does not have the list.
    #[error("only the number of workloads that are scaled down is known")]
    OnlyCounted,
}

/// The pause before an outcome that the API server refused to take is offered again; at most eight times as long if it asks for it.
const RETRY_PAUSE: Duration = Duration::from_millis(250);
/// Lost races in a row that mean that something is wrong.
const MAX_ATTEMPTS: usize = 5;

/// Writes the status of objects of one kind.
pub struct StatusWriter<'a, K: SteppedKind, N> {
    /// What all controllers share.
    pub shared: &'a ControllerContext,
    /// Allows writing.
    pub permit: &'a Permit,
    /// The cache of the kind.
    pub store: &'a Store<K>,
    /// A status with all that the next evaluation of the object would record anyway: one write for both. What that
    /// evaluation would start, end or report is left to it.
    pub with_next_plan: N,
}

impl<K: SteppedKind, N: Fn(&K::Object, K::Status) -> K::Status> StatusWriter<'_, K, N> {
    /// Writes the status of a plan: a notice that it gives names what is lost with the namespace. If reading that took long, it ends
    /// later by as much; if its write did, it is written again, since it runs from when it can be seen.
    pub async fn save_plan(
        &self,
        object: &K::Object,
        status: &K::Status,
        mut batch: EventBatch,
    ) -> (Applied<K::Object>, EventBatch) {
        let announced = self.with_losses(object, status, &mut batch).await;
        let status = announced.as_ref().unwrap_or(status);
        let began = Instant::now();
        let written = match self.save(object, status).await {
            Ok(written) => written,
            Err(error) => match self.resolve_lost_write(error, object, status, batch).await {
                (Applied::Replan(written), resolved) if *written.status == *status => {
                    batch = resolved;
                    written
                }
                other => return other,
            },
        };
        let written = self.prolonged(written, K::steps(&object.status), began.elapsed(), &mut batch).await;
        (Applied::Replan(written), batch)
    }

    /// Moves the end of a notice whose write has just given it by as much as that took, if it took long, and is not given up by one
    /// refusal: what is announced is the later date.
    async fn prolonged(
        &self,
        written: K::Object,
        before: &Steps,
        took: Duration,
        batch: &mut EventBatch,
    ) -> K::Object {
        let mut current = written;
        for _ in 0..MAX_ATTEMPTS {
            let (mut status, mut events) = ((*current.status).clone(), batch.events.clone());
            let moved = steps::prolong_notice(K::steps_mut(&mut status), before, took, &mut events);
            // Another replica may lead by now, and have decided on what there is.
            if !moved || self.permit.check().is_err() {
                return current;
            }
            let status = (self.with_next_plan)(&current, status);
            match self.save(&current, &status).await {
                Ok(written) => {
                    batch.events = events;
                    return written;
                }
                Err(WriteError::Gone) => return current,
                Err(WriteError::Refused(_)) => self.pause().await,
                Err(WriteError::Conflict | WriteError::Ambiguous(_)) => match self.read_again(&current).await
                {
                    Ok(Some(newer)) if K::steps(&newer.status).notice == K::steps(&status).notice => {
                        batch.events = events;
                        return newer;
                    }
                    Ok(Some(newer)) => current = newer,
                    Ok(None) => return current,
                    Err(_) => self.pause().await,
                },
            }
        }
        let (namespace, name) = (&current.namespace, &current.name);
        tracing::warn!(%namespace, %name, "the notice is shorter by what its write took");
        current
    }

    /// The status with what is lost with the namespace, if it announces that this will be deleted.
    async fn with_losses(
        &self,
        object: &K::Object,
        status: &K::Status,
        batch: &mut EventBatch,
    ) -> Option<K::Status> {
        if !steps::announces(K::steps(status), K::steps(&object.status)) {
            return None;
        }
        let began = Instant::now();
        let read = self.shared.losses.read(&self.shared.clients.reads, &object.namespace);
        let losses = Box::pin(read).await;
        let mut status = status.clone();
        let before = K::steps(&object.status);
        steps::prolong_notice(K::steps_mut(&mut status), before, began.elapsed(), &mut batch.events);
        steps::name_losses(K::steps_mut(&mut status), losses, &mut batch.events);
        Some(status)
    }

    /// Writes the outcome of a step into the object that holds its intent, and takes the workloads with these uids from its
    /// list. The outcome is true whatever else changes meanwhile: lost races are retried on the newest revision.
    pub async fn record_outcome(
        &self,
        intent: Intent,
        outcome: StepOutcome,
        mut object: K::Object,
        unchanged: &BTreeSet<String>,
    ) -> (Applied<K::Object>, EventBatch) {
        let batch = |events| EventBatch { events, intent: Some(intent.clone()) };
        let mut refused = StepError::Races;
        // Each may be the one that was written.
        let mut unanswered: Vec<(K::Status, Vec<PlannedEvent>)> = Vec::new();
        for _ in 0..MAX_ATTEMPTS {
            let Some(current) = K::steps(&object.status).intent.clone().filter(|i| i.id == intent.id) else {
                // It was written and the answer was lost, or another writer recorded and reported it.
                let ours = unanswered.into_iter().find(|(status, _)| *status == *object.status);
                let events = ours.map_or_else(EventBatch::default, |(_, events)| batch(events));
                return (Applied::Replan(object), events);
            };
            if !unchanged.is_empty() && self.permit.check().is_err() {
                // Another replica may have scaled them down since. It records what became of the intent.
                return (Applied::CheckAt(None), EventBatch::default());
            }
            let mut status = (*object.status).clone();
            K::steps_mut(&mut status).remove_unchanged(unchanged);
            let events = K::record(&mut status, &current, &outcome, self.shared.now());
            let status = (self.with_next_plan)(&object, status);
            match self.save(&object, &status).await {
                Ok(written) => return (Applied::Replan(written), batch(events)),
                // The object is gone with its namespace: the outcome is still reported.
                Err(WriteError::Gone) => return (Applied::CheckAt(None), batch(events)),
                Err(error @ WriteError::Refused(_)) => {
                    // It is reported once it is recorded. The API server may only be overloaded.
                    refused = error.into();
                    self.pause().await;
                }
                Err(WriteError::Conflict | WriteError::Ambiguous(_)) => {
                    match self.read_again(&object).await {
                        Ok(Some(newer)) => object = newer,
                        Ok(None) => return (Applied::CheckAt(None), batch(events)),
                        Err(error) => {
                            refused = error.into();
                            self.pause().await;
                        }
                    }
                    unanswered.push((status, events));
                }
            }
        }
        (Applied::Failed(refused), EventBatch::default())
    }

    /// Writes a status on the revision that it was decided on, and brings the cache up to date.
    ///
    /// # Errors
    /// If it is not written, or that is not known.
    pub async fn save(&self, object: &K::Object, status: &K::Status) -> Result<K::Object, WriteError> {
        let Self { shared, permit, store, .. } = self;
        let result = match self.complete(object, status).await {
            Ok(status) => write::status::<K>(&shared.clients, permit, object, &status).await,
            Err(error) => Err(error),
        };
        shared.metrics.status_written(result.is_ok());
        match &result {
            Ok(written) => {
                let reason = |status| K::next(status).map(|next| &*next.reason);
                shared.lifecycle_metrics.newly_blocked(reason(&object.status), reason(&written.status));
                store.update_if_newer(&object.namespace, written.clone());
            }
            Err(WriteError::Gone) => self.remove(object),
            Err(_) => {}
        }
        result
    }

    /// An object that the API server says is gone is not reconciled any more, whether or not the watch has reported it.
    pub fn remove(&self, object: &K::Object) {
        self.store.remove_if(&object.namespace, &object.name, |known| known.uid == object.uid);
    }

    /// A status with the list of what is scaled down, of which caches know only the length.
    async fn complete<'s>(
        &self,
        object: &K::Object,
        status: &'s K::Status,
    ) -> Result<Cow<'s, K::Status>, WriteError> {
        if K::steps(status).scaled_down.listed().is_some() {
            return Ok(Cow::Borrowed(status));
        }
        let now = read::get::<K>(&self.shared.clients.reads, &object.namespace, &object.name).await;
        match now.map_err(|e| WriteError::refused(format!("the object could not be read: {}", chain(&e))))? {
            None => Err(WriteError::Gone),
            Some(now) if now.uid != object.uid || now.resource_version != object.resource_version => {
                Err(WriteError::Conflict)
            }
            Some(now) => {
                let mut status = status.clone();
                K::steps_mut(&mut status).scaled_down = K::steps(&now.status).scaled_down.clone();
                Ok(Cow::Owned(status))
            }
        }
    }

    /// What to do about a write that was lost, and what to report: it may have happened.
    async fn resolve_lost_write(
        &self,
        error: WriteError,
        object: &K::Object,
        written: &K::Status,
        batch: EventBatch,
    ) -> (Applied<K::Object>, EventBatch) {
        match error {
            // Events about the object went with it; that its namespace was deleted is kept elsewhere.
            WriteError::Gone => {
                let deleted = |event: &PlannedEvent| event.reason == Reason::NamespaceDeleted;
                let events = batch.events.into_iter().filter(deleted).collect();
                (Applied::CheckAt(None), EventBatch { events, intent: batch.intent })
            }
            WriteError::Refused(_) => (Applied::Failed(error.into()), EventBatch::default()),
            WriteError::Conflict | WriteError::Ambiguous(_) => match self.read_again(object).await {
                Ok(Some(newer)) if *newer.status == *written => (Applied::Replan(newer), batch),
                Ok(Some(newer)) => (Applied::Replan(newer), EventBatch::default()),
                Ok(None) => (Applied::CheckAt(None), EventBatch::default()),
                Err(error) => (Applied::Failed(error.into()), EventBatch::default()),
            },
        }
    }

    /// Reads an object again whose write was lost; none if it is gone.
    async fn read_again(&self, object: &K::Object) -> Result<Option<K::Object>, kube::Error> {
        let now = read::get::<K>(&self.shared.clients.reads, &object.namespace, &object.name).await?;
        match &now {
            Some(now) => self.store.update_if_newer(&object.namespace, now.clone()),
            None => self.remove(object),
        }
        Ok(now)
    }

    async fn pause(&self) {
        let asked = self.shared.clients.backpressure.remaining();
        tokio::time::sleep(asked.clamp(RETRY_PAUSE, 8 * RETRY_PAUSE)).await;
    }
}

#[cfg(test)]
#[path = "status_writer_tests.rs"]
mod tests;
