//! Deliveries beside the reconciles: many at once, but only so many, only a few per namespace and per host. Namespaces take turns.
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
use tokio::time::{Instant, timeout};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::webhook::{Delivered, SendError, WebhookRequest, WebhookSender};

mod turns;

use turns::{Accepted, Turns};

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
    /// Attempts at once on behalf of one namespace.
    pub per_namespace: usize,
    /// Attempts at once to one host.
    pub per_host: usize,
    /// Requests that are kept in all: waiting, being attempted, or with a result that was not forgotten yet.
    pub capacity: usize,
    /// Requests of one namespace that are waiting or being attempted.
    pub capacity_per_namespace: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self { concurrency: 32, per_namespace: 8, per_host: 4, capacity: 1024, capacity_per_namespace: 64 }
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
    tasks: TaskTracker,
    stop: CancellationToken,
    book: Mutex<Book<K>>,
}

struct Book<K> {
    entries: HashMap<String, Entry>,
    turns: Turns<K>,
    finished: u64,
    closed: bool,
}

enum Entry {
    InFlight { forgotten: bool },
    Done { result: Result<Delivered, Failure>, order: u64 },
}

impl<K: Send + 'static> Outbox<K> {
    /// An empty outbox. `wake` is called after each attempt with the key it was submitted with; it must not block.
    pub fn new(deliver: Arc<dyn Deliver>, limits: Limits, wake: impl Fn(K) + Send + Sync + 'static) -> Self {
        let limits = Limits {
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
            book: Mutex::new(Book {
                entries: HashMap::new(),
                turns: Turns::default(),
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
        let mut book = inner.book();
        if book.closed {
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
        book.turns.admits(namespace, &inner.limits)?;
        let displaced = book.make_room(namespace, &inner.limits)?;
        book.entries.insert(request.id.clone(), Entry::InFlight { forgotten: false });
        let host = request.destination.host().to_string();
        let (namespace, submitted) = (namespace.to_owned(), Instant::now());
        book.turns.add(Accepted { key, namespace, host, request, submitted });
        drop(book);
        inner.start_what_may();
        if let Some(key) = displaced {
            (inner.wake)(key);
        }
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
        self.inner.book().turns.in_flight()
    }

    /// Takes nothing more, drops what is waiting, and gives what is being attempted until `grace` has passed. Returns how many
    /// attempts had to be cut off; what was dropped or cut off leaves no result and is submitted again after the restart.
    pub async fn shutdown(&self, grace: Duration) -> usize {
        let inner = &self.inner;
        {
            let mut book = inner.book();
            book.closed = true;
            for dropped in book.turns.clear() {
                book.entries.remove(&dropped.request.id);
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
    /// Begins every attempt whose turn it is.
    fn start_what_may(self: &Arc<Self>) {
        loop {
            let Some(next) = self.book().turns.next(&self.limits) else { return };
            let this = Arc::clone(self);
            self.tasks.spawn(async move {
                let Accepted { key, namespace, host, request, submitted } = next;
                let id = request.id.clone();
                let result = tokio::select! {
                    biased;
                    () = this.stop.cancelled() => None,
                    result = this.attempt(request, submitted) => Some(result),
                };
                let wanted = this.finish(&id, &namespace, &host, result);
                this.start_what_may();
                if wanted {
                    (this.wake)(key);
                }
            });
        }
    }
}

impl<K> Inner<K> {
    fn book(&self) -> MutexGuard<'_, Book<K>> {
        // The book is whole between any two statements that could panic.
        self.book.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn attempt(&self, mut request: WebhookRequest, submitted: Instant) -> Result<Delivered, Failure> {
        request.now = later(request.now, submitted.elapsed());
        let id = request.id.clone();
        let delivery = AssertUnwindSafe(async { self.deliver.deliver(request).await });
        match delivery.catch_unwind().await {
            Ok(Ok(delivered)) => Ok(delivered),
            Ok(Err(error)) => {
                tracing::info!(webhook_id = id, %error, "a webhook was not delivered");
                tracing::debug!(webhook_id = id, ?error, "why a webhook was not delivered");
                Err(Failure {
                    message: error.to_string(),
                    permanent: error.is_permanent(),
                    retry_after: error.retry_after(),
                })
            }
            Err(_panic) => {
                tracing::error!(webhook_id = id, "the delivery of a webhook panicked");
                let message = "the delivery failed inside Coppice; its log has more".to_owned();
                Err(Failure { message, permanent: false, retry_after: None })
            }
        }
    }

    /// Writes the end of an attempt down; `None` leaves no trace. Returns whether somebody waits for the result.
    fn finish(
        &self,
        id: &str,
        namespace: &str,
        host: &str,
        result: Option<Result<Delivered, Failure>>,
    ) -> bool {
        let mut book = self.book();
        book.turns.done(namespace, host);
        let entry = book.entries.remove(id);
        let wanted = matches!(entry, Some(Entry::InFlight { forgotten: false }));
        match result {
            Some(result) if wanted => {
                book.finished += 1;
                let order = book.finished;
                book.entries.insert(id.to_owned(), Entry::Done { result, order });
                true
            }
            _ => false,
        }
    }
}

impl<K> Book<K> {
    /// Makes room for a request of a namespace; the key of an object whose request had to go for it, if one had to.
    fn make_room(&mut self, namespace: &str, limits: &Limits) -> Result<Option<K>, SubmitError> {
        if self.entries.len() < limits.capacity || self.drop_oldest_result() {
            return Ok(None);
        }
        let full = SubmitError::Full { capacity: limits.capacity };
        let displaced = self.turns.displace_for(namespace).ok_or(full)?;
        let entry = self.entries.remove(&displaced.request.id);
        Ok(matches!(entry, Some(Entry::InFlight { forgotten: false })).then_some(displaced.key))
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
