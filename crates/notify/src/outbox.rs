//! Deliveries in the background: concurrent, with limits in all, per namespace and per host. Namespaces take turns.
//!
//! A reconcile submits a request and returns; when the attempt is over, the object is woken and finds the result here, writes it into
//! its status and forgets it. **Nothing here is durable.** The object's status records how many attempts were made and
//! when the next one is due; after a restart the outbox is empty and the object submits again with the same id. So a
//! webhook is delivered at least once, and receivers recognize repetitions by `webhook-id`.

use std::collections::HashMap;
use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use jiff::{SignedDuration, Timestamp};
use thiserror::Error;
use tokio::time::{Instant, timeout};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::webhook::{Delivered, SendError, WebhookClient, WebhookRequest};

mod fair_queue;

use fair_queue::{FairQueue, QueuedRequest};

/// Makes one attempt; a [`WebhookClient`], or its double in a test.
pub trait Deliver: Send + Sync + 'static {
    /// Makes one attempt and ends in bounded time.
    fn deliver(&self, request: WebhookRequest) -> BoxFuture<'_, Result<Delivered, SendError>>;
}

impl Deliver for WebhookClient {
    fn deliver(&self, request: WebhookRequest) -> BoxFuture<'_, Result<Delivered, SendError>> {
        self.send(request).boxed()
    }
}

/// How much an [`Outbox`] takes on. Every number is at least 1; 0 is read as 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OutboxLimits {
    /// Attempts at once.
    pub concurrency: usize,
    /// Attempts at once on behalf of one namespace.
    pub per_namespace: usize,
    /// Attempts at once to one host.
    pub per_host: usize,
    /// Requests that are kept in all: waiting, being attempted, or with a result that was not forgotten yet.
    pub capacity: usize,
    /// Requests of one namespace that are waiting or being attempted.
    pub capacity_per_namespace: usize,
}

impl Default for OutboxLimits {
    fn default() -> Self {
        Self { concurrency: 32, per_namespace: 8, per_host: 4, capacity: 1024, capacity_per_namespace: 64 }
    }
}

/// The state of a submitted request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AttemptState {
    /// Waiting for its turn, or being attempted.
    InFlight,
    /// The attempt is over; forget it when the result is written down.
    Done(Result<Delivered, AttemptFailure>),
}

/// An attempt that did not deliver.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{message}")]
pub struct AttemptFailure {
    /// One sentence for the object's status.
    pub message: String,
    /// Whether another attempt of the same request is pointless.
    pub permanent: bool,
    /// How long the receiver asked to wait; the next attempt should not be earlier.
    pub retry_after: Option<Duration>,
}

/// What [`Outbox::submit`] did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Submitted {
    /// An attempt will be made.
    Accepted,
    /// One with this id is in flight already; no second one is made.
    AlreadyInFlight,
    /// One with this id is over and its result was not forgotten; no other one is made.
    AlreadyDone,
}

/// Why a request was not taken. The object should try again later; it is not woken.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum SubmitError {
    /// Too many requests in all.
    #[error("{capacity} webhooks are waiting already; this one is tried again later")]
    Full {
        /// How many are kept at most.
        capacity: usize,
    },
    /// Too many requests of one namespace.
    #[error(
        "{capacity} webhooks of namespace {namespace:?} are waiting already; this one is tried again later"
    )]
    NamespaceFull {
        /// The namespace.
        namespace: String,
        /// How many one namespace may have.
        capacity: usize,
    },
    /// The operator is shutting down.
    #[error("no webhook is sent while the operator shuts down; this one is tried again after the restart")]
    Closed,
}

/// Attempts in flight and results that nobody fetched yet. `K` names the object to wake.
pub struct Outbox<K> {
    inner: Arc<Inner<K>>,
}

impl<K> Clone for Outbox<K> {
    fn clone(&self) -> Self {
        Self { inner: Arc::clone(&self.inner) }
    }
}

struct Inner<K> {
    deliver: Arc<dyn Deliver>,
    limits: OutboxLimits,
    wake: Box<dyn Fn(K) + Send + Sync>,
    tasks: TaskTracker,
    stop: CancellationToken,
    locked: Mutex<OutboxState<K>>,
}

struct OutboxState<K> {
    entries: HashMap<String, OutboxEntry>,
    fair_queue: FairQueue<K>,
    finished: u64,
    closed: bool,
}

enum OutboxEntry {
    InFlight { acknowledged: bool },
    Done { result: Result<Delivered, AttemptFailure>, order: u64 },
}

impl<K: Send + 'static> Outbox<K> {
    /// An empty outbox. `wake` is called after each attempt with the key it was submitted with; it must not block.
    pub fn new(
        deliver: Arc<dyn Deliver>,
        limits: OutboxLimits,
        wake: impl Fn(K) + Send + Sync + 'static,
    ) -> Self {
        let limits = OutboxLimits {
            concurrency: limits.concurrency.max(1),
            per_namespace: limits.per_namespace.max(1),
            per_host: limits.per_host.max(1),
            capacity: limits.capacity.max(1),
            capacity_per_namespace: limits.capacity_per_namespace.max(1),
        };
        let inner = Inner {
            deliver,
            limits,
            wake: Box::new(wake),
            tasks: TaskTracker::new(),
            stop: CancellationToken::new(),
            locked: Mutex::new(OutboxState {
                entries: HashMap::new(),
                fair_queue: FairQueue::default(),
                finished: 0,
                closed: false,
            }),
        };
        Self { inner: Arc::new(inner) }
    }

    /// Takes a request of a namespace, whose `id` is the id here too, and returns at once; must be called inside a tokio runtime.
    ///
    /// The timestamp that is signed is the request's plus the time it waits here. When the outbox is full, the oldest result that
    /// nobody forgot makes room, or else a request that waits for a namespace with more of them: its object is woken, to submit again.
    pub fn submit(&self, namespace: &str, key: K, request: WebhookRequest) -> Result<Submitted, SubmitError> {
        let inner = &self.inner;
        let mut locked = inner.locked();
        if locked.closed {
            return Err(SubmitError::Closed);
        }
        match locked.entries.get_mut(&request.id) {
            Some(OutboxEntry::InFlight { acknowledged }) => {
                *acknowledged = false;
                return Ok(Submitted::AlreadyInFlight);
            }
            Some(OutboxEntry::Done { .. }) => return Ok(Submitted::AlreadyDone),
            None => {}
        }
        locked.fair_queue.admits(namespace, &inner.limits)?;
        let evicted = locked.evict_to_fit(namespace, &inner.limits)?;
        locked.entries.insert(request.id.clone(), OutboxEntry::InFlight { acknowledged: false });
        let host = request.destination.host().to_string();
        let (namespace, submitted) = (namespace.to_owned(), Instant::now());
        locked.fair_queue.add(QueuedRequest { key, namespace, host, request, submitted });
        drop(locked);
        inner.start_ready();
        if let Some(key) = evicted {
            (inner.wake)(key);
        }
        Ok(Submitted::Accepted)
    }

    /// The state of a request; `None` when it was never submitted, was forgotten, or was dropped.
    pub fn state(&self, id: &str) -> Option<AttemptState> {
        match self.inner.locked().entries.get(id)? {
            OutboxEntry::InFlight { .. } => Some(AttemptState::InFlight),
            OutboxEntry::Done { result, .. } => Some(AttemptState::Done(result.clone())),
        }
    }

    /// Drops a result, or the interest in one: an attempt in flight continues, but wakes nobody and leaves no result.
    pub fn acknowledge(&self, id: &str) {
        let mut locked = self.inner.locked();
        match locked.entries.get_mut(id) {
            Some(OutboxEntry::InFlight { acknowledged }) => *acknowledged = true,
            Some(OutboxEntry::Done { .. }) => drop(locked.entries.remove(id)),
            None => {}
        }
    }

    /// How many requests are waiting or being attempted.
    pub fn in_flight(&self) -> usize {
        self.inner.locked().fair_queue.in_flight()
    }

    /// How many requests can wait or be attempted at once.
    pub fn capacity(&self) -> usize {
        self.inner.limits.capacity
    }

    /// Takes nothing more, drops what is waiting, and gives what is being attempted until `grace` has passed. Returns how many
    /// attempts had to be cut off; what was dropped or cut off leaves no result and is submitted again after the restart.
    pub async fn shutdown(&self, grace: Duration) -> usize {
        let inner = &self.inner;
        {
            let mut locked = inner.locked();
            locked.closed = true;
            for dropped in locked.fair_queue.clear() {
                locked.entries.remove(&dropped.request.id);
            }
        }
        inner.tasks.close();
        if timeout(grace, inner.tasks.wait()).await.is_ok() {
            return 0;
        }
        let cut_off = inner.tasks.len();
        inner.stop.cancel();
        inner.tasks.wait().await;
        cut_off
    }
}

impl<K: Send + 'static> Inner<K> {
    /// Starts every attempt whose turn it is.
    fn start_ready(self: &Arc<Self>) {
        loop {
            let Some(next) = self.locked().fair_queue.next(&self.limits) else { return };
            let this = Arc::clone(self);
            self.tasks.spawn(async move {
                let QueuedRequest { key, namespace, host, request, submitted } = next;
                let id = request.id.clone();
                let result = tokio::select! {
                    biased;
                    () = this.stop.cancelled() => None,
                    result = this.attempt(request, submitted) => Some(result),
                };
                let wanted = this.finish(&id, &namespace, &host, result);
                this.start_ready();
                if wanted {
                    (this.wake)(key);
                }
            });
        }
    }
}

impl<K> Inner<K> {
    fn locked(&self) -> MutexGuard<'_, OutboxState<K>> {
        // The state is consistent between any two statements that could panic.
        self.locked.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn attempt(
        &self,
        mut request: WebhookRequest,
        submitted: Instant,
    ) -> Result<Delivered, AttemptFailure> {
        request.now = later(request.now, submitted.elapsed());
        let id = request.id.clone();
        let delivery = AssertUnwindSafe(async { self.deliver.deliver(request).await });
        match delivery.catch_unwind().await {
            Ok(Ok(delivered)) => Ok(delivered),
            Ok(Err(error)) => {
                tracing::info!(webhook_id = id, %error, "a webhook was not delivered");
                tracing::debug!(webhook_id = id, ?error, "why a webhook was not delivered");
                Err(AttemptFailure {
                    message: error.to_string(),
                    permanent: error.is_permanent(),
                    retry_after: error.retry_after(),
                })
            }
            Err(_panic) => {
                tracing::error!(webhook_id = id, "the delivery of a webhook panicked");
                let message = "the delivery failed inside Coppice; its log has more".to_owned();
                Err(AttemptFailure { message, permanent: false, retry_after: None })
            }
        }
    }

    /// Records the end of an attempt; `None` leaves no result. Returns whether somebody waits for the result.
    fn finish(
        &self,
        id: &str,
        namespace: &str,
        host: &str,
        result: Option<Result<Delivered, AttemptFailure>>,
    ) -> bool {
        let mut locked = self.locked();
        locked.fair_queue.done(namespace, host);
        let entry = locked.entries.remove(id);
        let wanted = matches!(entry, Some(OutboxEntry::InFlight { acknowledged: false }));
        match result {
            Some(result) if wanted => {
                locked.finished += 1;
                let order = locked.finished;
                locked.entries.insert(id.to_owned(), OutboxEntry::Done { result, order });
                true
            }
            _ => false,
        }
    }
}

impl<K> OutboxState<K> {
    /// Makes room for a request of a namespace; returns the key of the object whose request was dropped for it, if any.
    fn evict_to_fit(&mut self, namespace: &str, limits: &OutboxLimits) -> Result<Option<K>, SubmitError> {
        // Results wait for those who record them: what is new displaces none of them. They are bounded by themselves.
        if self.entries.len() - self.fair_queue.in_flight().min(self.entries.len()) >= limits.capacity {
            self.drop_oldest_result();
        }
        if self.fair_queue.in_flight() < limits.capacity {
            return Ok(None);
        }
        let full = SubmitError::Full { capacity: limits.capacity };
        let evicted = self.fair_queue.evict_for(namespace).ok_or(full)?;
        let entry = self.entries.remove(&evicted.request.id);
        Ok(matches!(entry, Some(OutboxEntry::InFlight { acknowledged: false })).then_some(evicted.key))
    }

    fn drop_oldest_result(&mut self) -> bool {
        let oldest = self
            .entries
            .iter()
            .filter_map(|(id, entry)| match entry {
                OutboxEntry::Done { order, .. } => Some((*order, id.clone())),
                OutboxEntry::InFlight { .. } => None,
            })
            .min();
        oldest.is_some_and(|(_, id)| self.entries.remove(&id).is_some())
    }
}

fn later(now: Timestamp, waited: Duration) -> Timestamp {
    SignedDuration::try_from(waited).ok().and_then(|waited| now.checked_add(waited).ok()).unwrap_or(now)
}
