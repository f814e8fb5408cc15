//! Deliveries beside the reconciles: many at once, but only so many, and only a few per host.
//!
//! A reconcile submits a request and returns; when the attempt is over, the object is woken and finds the result here, writes it into
//! its status and forgets it. **Nothing here is durable.** How many attempts were made and when the next one is due stands in the
//! object's status; after a restart the outbox is empty and the object submits again with the same id. So a webhook is delivered at
//! least once, and receivers tell repetitions by `webhook-id`.

use std::collections::HashMap;
use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use jiff::{SignedDuration, Timestamp};
use thiserror::Error;
use tokio::sync::Semaphore;
use tokio::time::{Instant, timeout};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::webhook::{Delivered, SendError, WebhookRequest, WebhookSender};

/// Makes one attempt; a [`WebhookSender`], or its double in a test.
pub trait Deliver: Send + Sync + 'static {
    /// Makes one attempt and ends in bounded time.
    fn deliver(&self, request: WebhookRequest) -> BoxFuture<'_, Result<Delivered, SendError>>;
}

impl Deliver for WebhookSender {
    fn deliver(&self, request: WebhookRequest) -> BoxFuture<'_, Result<Delivered, SendError>> {
        self.send(request).boxed()
    }
}

/// How much an [`Outbox`] takes on. Every number is at least 1; 0 is read as 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Attempts at once.
    pub concurrency: usize,
    /// Attempts at once to one host.
    pub per_host: usize,
    /// Requests that are kept in all: waiting, being attempted, or with a result that was not forgotten yet.
    pub capacity: usize,
    /// Requests for one host that are waiting or being attempted.
    pub capacity_per_host: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self { concurrency: 32, per_host: 4, capacity: 1024, capacity_per_host: 128 }
    }
}

/// What became of a submitted request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Attempt {
    /// Waiting for its turn, or being attempted.
    InFlight,
    /// The attempt is over; forget it when the result is written down.
    Done(Result<Delivered, Failure>),
}

/// An attempt that did not deliver.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{message}")]
pub struct Failure {
    /// One sentence for the object's status.
    pub message: String,
    /// Whether another attempt of the same request is pointless.
    pub permanent: bool,
    /// How long the receiver asked to be left alone; the next attempt should not be earlier.
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
    /// Too many requests for one host.
    #[error("{capacity} webhooks to {host:?} are waiting already; this one is tried again later")]
    HostFull {
        /// The host.
        host: String,
        /// How many may wait for one host.
        capacity: usize,
    },
    /// The operator is ending.
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
    limits: Limits,
    wake: Box<dyn Fn(K) + Send + Sync>,
    slots: Semaphore,
    tasks: TaskTracker,
    stop: CancellationToken,
    book: Mutex<Book>,
}

#[derive(Default)]
struct Book {
    entries: HashMap<String, Entry>,
    hosts: HashMap<String, Lane>,
    finished: u64,
}

enum Entry {
    InFlight { forgotten: bool },
    Done { result: Result<Delivered, Failure>, order: u64 },
}

/// The requests for one host.
struct Lane {
    slots: Arc<Semaphore>,
    pending: usize,
}

impl<K: Send + 'static> Outbox<K> {
    /// An empty outbox. `wake` is called after each attempt with the key it was submitted with; it must not block.
    pub fn new(deliver: Arc<dyn Deliver>, limits: Limits, wake: impl Fn(K) + Send + Sync + 'static) -> Self {
        let limits = Limits {
            concurrency: limits.concurrency.clamp(1, Semaphore::MAX_PERMITS),
            per_host: limits.per_host.clamp(1, Semaphore::MAX_PERMITS),
            capacity: limits.capacity.max(1),
            capacity_per_host: limits.capacity_per_host.max(1),
        };
        let inner = Inner {
            deliver,
            limits,
            wake: Box::new(wake),
            slots: Semaphore::new(limits.concurrency),
            tasks: TaskTracker::new(),
            stop: CancellationToken::new(),
            book: Mutex::default(),
        };
        Self { inner: Arc::new(inner) }
    }

    /// Takes a request, whose `id` is the id here too, and returns at once; must be called inside a tokio runtime.
    ///
    /// The timestamp that is signed is the request's plus the time it waits here. When the outbox is full of results that nobody
    /// forgot, the oldest of them makes room.
    pub fn submit(&self, key: K, request: WebhookRequest) -> Result<Submitted, SubmitError> {
        let inner = &self.inner;
        let host = request.destination.host().to_string();
        let mut book = inner.book();
        if inner.slots.is_closed() {
            return Err(SubmitError::Closed);
        }
        match book.entries.get_mut(&request.id) {
            Some(Entry::InFlight { forgotten }) => {
                *forgotten = false;
                return Ok(Submitted::AlreadyInFlight);
            }
            Some(Entry::Done { .. }) => return Ok(Submitted::AlreadyDone),
            None => {}
        }
        let lane = book.reserve(&request.id, &host, &inner.limits)?;
        drop(book);
        let submitted = Instant::now();
        let this = Arc::clone(inner);
        inner.tasks.spawn(async move {
            let id = request.id.clone();
            let result = tokio::select! {
                biased;
                () = this.stop.cancelled() => None,
                result = this.attempt(&lane, request, submitted) => result,
            };
            this.finish(&id, &host, result, key);
        });
        Ok(Submitted::Accepted)
    }

    /// What became of a request; `None` when it was never submitted, was forgotten, or was dropped.
    pub fn state(&self, id: &str) -> Option<Attempt> {
        match self.inner.book().entries.get(id)? {
            Entry::InFlight { .. } => Some(Attempt::InFlight),
            Entry::Done { result, .. } => Some(Attempt::Done(result.clone())),
        }
    }

    /// Drops a result, or the interest in one: an attempt in flight goes on, but wakes nobody and leaves no result.
    pub fn forget(&self, id: &str) {
        let mut book = self.inner.book();
        match book.entries.get_mut(id) {
            Some(Entry::InFlight { forgotten }) => *forgotten = true,
            Some(Entry::Done { .. }) => drop(book.entries.remove(id)),
            None => {}
        }
    }

    /// How many requests are waiting or being attempted.
    pub fn in_flight(&self) -> usize {
        self.inner.book().hosts.values().map(|lane| lane.pending).sum()
    }

    /// Takes nothing more, drops what is waiting, and gives what is being attempted until `grace` has passed. Returns how many
    /// attempts had to be cut off; what was dropped or cut off leaves no result and is submitted again after the restart.
    pub async fn shutdown(&self, grace: Duration) -> usize {
        let inner = &self.inner;
        {
            let book = inner.book();
            inner.slots.close();
            book.hosts.values().for_each(|lane| lane.slots.close());
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

impl<K> Inner<K> {
    fn book(&self) -> MutexGuard<'_, Book> {
        // The book is whole between any two statements that could panic.
        self.book.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for a turn and makes the attempt; `None` when the outbox closed before its turn came.
    async fn attempt(
        &self,
        lane: &Semaphore,
        mut request: WebhookRequest,
        submitted: Instant,
    ) -> Option<Result<Delivered, Failure>> {
        // The host's turn first: what waits for a slow host must not hold one of the slots of all.
        let _host = lane.acquire().await.ok()?;
        let _slot = self.slots.acquire().await.ok()?;
        request.now = later(request.now, submitted.elapsed());
        let id = request.id.clone();
        let delivery = AssertUnwindSafe(async { self.deliver.deliver(request).await });
        let failure = match delivery.catch_unwind().await {
            Ok(Ok(delivered)) => return Some(Ok(delivered)),
            Ok(Err(error)) => {
                tracing::info!(webhook_id = id, ?error, "a webhook was not delivered");
                Failure {
                    message: error.to_string(),
                    permanent: error.is_permanent(),
                    retry_after: error.retry_after(),
                }
            }
            Err(_panic) => {
                tracing::error!(webhook_id = id, "the delivery of a webhook panicked");
                let message = "the delivery failed inside Coppice; its log has more".to_owned();
                Failure { message, permanent: false, retry_after: None }
            }
        };
        Some(Err(failure))
    }

    fn finish(&self, id: &str, host: &str, result: Option<Result<Delivered, Failure>>, key: K) {
        let wanted = self.book().finish(id, host, result);
        if wanted {
            (self.wake)(key);
        }
    }
}

impl Book {
    /// Writes a new request down and returns the lane of its host.
    fn reserve(&mut self, id: &str, host: &str, limits: &Limits) -> Result<Arc<Semaphore>, SubmitError> {
        let pending = self.hosts.get(host).map_or(0, |lane| lane.pending);
        if pending >= limits.capacity_per_host {
            return Err(SubmitError::HostFull { host: host.to_owned(), capacity: limits.capacity_per_host });
        }
        if self.entries.len() >= limits.capacity && !self.drop_oldest_result() {
            return Err(SubmitError::Full { capacity: limits.capacity });
        }
        self.entries.insert(id.to_owned(), Entry::InFlight { forgotten: false });
        let lane = self
            .hosts
            .entry(host.to_owned())
            .or_insert_with(|| Lane { slots: Arc::new(Semaphore::new(limits.per_host)), pending: 0 });
        lane.pending += 1;
        Ok(Arc::clone(&lane.slots))
    }

    /// Writes the end of an attempt down; `None` leaves no trace. Returns whether somebody waits for the result.
    fn finish(&mut self, id: &str, host: &str, result: Option<Result<Delivered, Failure>>) -> bool {
        if let Some(lane) = self.hosts.get_mut(host) {
            lane.pending = lane.pending.saturating_sub(1);
            if lane.pending == 0 {
                self.hosts.remove(host);
            }
        }
        let entry = self.entries.remove(id);
        let wanted = matches!(entry, Some(Entry::InFlight { forgotten: false }));
        match result {
            Some(result) if wanted => {
                self.finished += 1;
                self.entries.insert(id.to_owned(), Entry::Done { result, order: self.finished });
                true
            }
            _ => false,
        }
    }

    fn drop_oldest_result(&mut self) -> bool {
        let oldest = self
            .entries
            .iter()
            .filter_map(|(id, entry)| match entry {
                Entry::Done { order, .. } => Some((*order, id.clone())),
                Entry::InFlight { .. } => None,
            })
            .min();
        oldest.is_some_and(|(_, id)| self.entries.remove(&id).is_some())
    }
}

fn later(now: Timestamp, waited: Duration) -> Timestamp {
    SignedDuration::try_from(waited).ok().and_then(|waited| now.checked_add(waited).ok()).unwrap_or(now)
}
