//! Deliveries in the background: concurrent, with limits in all, per group and per host. Groups take turns: the namespaces that ask for
//! webhooks, or the channels by which owners are notified.
//!
//! A reconcile submits a request and returns; when the attempt is over, the object is enqueued and finds the result here, writes it into
//! its status and drops it. **Nothing here is durable.** The object's status records how many attempts were made and
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

use crate::request::{DeliverError, DeliveryRequest};
use crate::webhook::Delivered;

mod digest;
mod fair_queue;
mod group_pause;

pub use digest::DigestRule;
use digest::{DigestAdmission, HeldKey, RecipientDigests};
use fair_queue::{FairQueue, QueuedRequest};
pub use group_pause::GroupPauseRule;
use group_pause::GroupPauses;

/// Makes one attempt; a [`Deliverer`](crate::channel::Deliverer), or its double in a test.
pub trait Deliver: Send + Sync + 'static {
    /// Makes one attempt and ends in bounded time.
    fn deliver(&self, request: DeliveryRequest) -> BoxFuture<'_, Result<Delivered, DeliverError>>;
}

/// How much an [`Outbox`] takes on. Every number is at least 1; 0 is read as 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OutboxLimits {
    /// Attempts at once.
    pub concurrency: usize,
    /// Attempts at once on behalf of one group.
    pub per_group: usize,
    /// Attempts at once to one host.
    pub per_host: usize,
    /// Requests that are kept in all: waiting, being attempted, or with a result that was not dropped yet.
    pub capacity: usize,
    /// Requests of one group that are waiting or being attempted.
    pub capacity_per_group: usize,
}

impl Default for OutboxLimits {
    fn default() -> Self {
        Self { concurrency: 32, per_group: 8, per_host: 4, capacity: 1024, capacity_per_group: 64 }
    }
}

/// What an [`Outbox`] does besides, for messages to people.
#[derive(Debug, Clone, Copy, Default)]
pub struct OutboxRules {
    /// Whether a group waits after a failure that is not that of one message. Default: it does not.
    pub group_pause: Option<GroupPauseRule>,
    /// Whether many messages to one recipient become one. Default: they do not.
    pub digest: Option<DigestRule>,
}

/// The state of a submitted request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AttemptState {
    /// Waiting for its turn, or being attempted.
    InFlight,
    /// The attempt is over; drop it when the result is written down.
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
    /// Whether every request of the group would have failed: where there is a [`GroupPauseRule`], the group waits.
    pub by_channel: bool,
}

/// What [`Outbox::submit`] did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Submitted {
    /// An attempt will be made.
    Accepted,
    /// One with this id is in flight already; no second one is made.
    AlreadyInFlight,
    /// One with this id is over and its result was not dropped; no other one is made.
    AlreadyDone,
}

/// Why a request was not taken. The object should try again later; it is not enqueued.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum SubmitError {
    /// Too many requests in all.
    #[error("{capacity} webhooks and messages are waiting already; this one is tried again later")]
    Full {
        /// How many are kept at most.
        capacity: usize,
    },
    /// Too many requests of one group.
    #[error(
        "{capacity} webhooks and messages of {group:?} are waiting already; this one is tried again later"
    )]
    GroupFull {
        /// The namespace, or the channel.
        group: String,
        /// How many one group may have.
        capacity: usize,
    },
    /// The operator is shutting down.
    #[error("nothing is sent while the operator shuts down; this one is tried again after the restart")]
    Closed,
}

/// Attempts in flight and results that nobody fetched yet. `K` is the key of the object to enqueue.
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
    enqueue: Box<dyn Fn(K) + Send + Sync>,
    tasks: TaskTracker,
    /// Ends what waits for its time.
    closing: CancellationToken,
    /// Cuts off attempts.
    stop: CancellationToken,
    locked: Mutex<OutboxState<K>>,
}

struct OutboxState<K> {
    entries: HashMap<String, OutboxEntry>,
    fair_queue: FairQueue<K>,
    digests: RecipientDigests<K>,
    pauses: GroupPauses,
    finished: u64,
    closed: bool,
}

struct OutboxEntry {
    /// The number that it was submitted with.
    attempt: u32,
    state: EntryState,
}

enum EntryState {
    InFlight { acknowledged: bool },
    Done { result: Result<Delivered, AttemptFailure>, order: u64 },
}

impl OutboxEntry {
    /// Whether somebody waits for the end of an attempt.
    const fn is_awaited(&self) -> bool {
        matches!(self.state, EntryState::InFlight { acknowledged: false })
    }
}

impl<K: Send + 'static> Outbox<K> {
    /// An empty outbox. `enqueue` is called after each attempt with the key it was submitted with; it must not block.
    pub fn new(
        deliver: Arc<dyn Deliver>,
        limits: OutboxLimits,
        enqueue: impl Fn(K) + Send + Sync + 'static,
    ) -> Self {
        Self::with_rules(deliver, limits, OutboxRules::default(), enqueue)
    }

    /// The same, with rules for messages to people.
    pub fn with_rules(
        deliver: Arc<dyn Deliver>,
        limits: OutboxLimits,
        rules: OutboxRules,
        enqueue: impl Fn(K) + Send + Sync + 'static,
    ) -> Self {
        let limits = OutboxLimits {
            concurrency: limits.concurrency.max(1),
            per_group: limits.per_group.max(1),
            per_host: limits.per_host.max(1),
            capacity: limits.capacity.max(1),
            capacity_per_group: limits.capacity_per_group.max(1),
        };
        let inner = Inner {
            deliver,
            limits,
            enqueue: Box::new(enqueue),
            tasks: TaskTracker::new(),
            closing: CancellationToken::new(),
            stop: CancellationToken::new(),
            locked: Mutex::new(OutboxState {
                entries: HashMap::new(),
                fair_queue: FairQueue::default(),
                digests: RecipientDigests::new(rules.digest),
                pauses: GroupPauses::new(rules.group_pause),
                finished: 0,
                closed: false,
            }),
        };
        Self { inner: Arc::new(inner) }
    }

    /// Takes a request of a group, whose `id` is the id here too, and returns at once; must be called inside a tokio runtime. `attempt`
    /// is a number that [`Self::attempt`] gives back.
    ///
    /// The timestamp that is signed is the request's plus the time it waits here. When the outbox is full, the oldest result that
    /// nobody dropped makes room, or else a request that waits for a group with more of them: its object is enqueued, to submit again.
    pub fn submit(
        &self,
        group: &str,
        key: K,
        attempt: u32,
        request: impl Into<DeliveryRequest>,
    ) -> Result<Submitted, SubmitError> {
        let request = request.into();
        let inner = &self.inner;
        let mut locked = inner.locked();
        if locked.closed {
            return Err(SubmitError::Closed);
        }
        match locked.entries.get_mut(request.id()).map(|entry| &mut entry.state) {
            Some(EntryState::InFlight { acknowledged }) => {
                *acknowledged = false;
                return Ok(Submitted::AlreadyInFlight);
            }
            Some(EntryState::Done { .. }) => return Ok(Submitted::AlreadyDone),
            None => {}
        }
        locked.fair_queue.admits(group, locked.digests.held_of(group), &inner.limits)?;
        let evicted = locked.evict_to_fit(group, &inner.limits)?;
        let (id, host) = (request.id().to_owned(), request.host());
        let state = EntryState::InFlight { acknowledged: false };
        locked.entries.insert(id.clone(), OutboxEntry { attempt, state });
        let (group, submitted) = (group.to_owned(), Instant::now());
        let queued = QueuedRequest { parts: vec![(id, key)], group, host, request, submitted };
        match locked.digests.admit(queued, submitted) {
            DigestAdmission::Send(queued) => locked.fair_queue.add(queued),
            DigestAdmission::Held => {}
            DigestAdmission::Full(held) => locked.release(&held),
            DigestAdmission::HeldUntil(held, at) => inner.release_at(held, at),
        }
        drop(locked);
        inner.start_ready();
        for key in evicted {
            (inner.enqueue)(key);
        }
        Ok(Submitted::Accepted)
    }

    /// Why no more can be taken of this group now, if so.
    pub fn has_room(&self, group: &str) -> Result<(), SubmitError> {
        let locked = self.inner.locked();
        locked.fair_queue.admits(group, locked.digests.held_of(group), &self.inner.limits)
    }

    /// The state of a request; `None` when it was never submitted, or was dropped.
    pub fn state(&self, id: &str) -> Option<AttemptState> {
        match &self.inner.locked().entries.get(id)?.state {
            EntryState::InFlight { .. } => Some(AttemptState::InFlight),
            EntryState::Done { result, .. } => Some(AttemptState::Done(result.clone())),
        }
    }

    /// The number that a request was submitted with.
    pub fn attempt(&self, id: &str) -> Option<u32> {
        Some(self.inner.locked().entries.get(id)?.attempt)
    }

    /// Drops a result, or the interest in one: an attempt in flight continues, but enqueues nothing and leaves no result.
    pub fn acknowledge(&self, id: &str) {
        let mut locked = self.inner.locked();
        match locked.entries.get_mut(id).map(|entry| &mut entry.state) {
            Some(EntryState::InFlight { acknowledged }) => *acknowledged = true,
            Some(EntryState::Done { .. }) => drop(locked.entries.remove(id)),
            None => {}
        }
    }

    /// Drops a request that waits for its turn, because its message is not to be sent any more. What is being attempted continues, and
    /// enqueues nothing.
    pub fn withdraw(&self, id: &str) {
        let mut locked = self.inner.locked();
        if locked.fair_queue.remove(id) {
            locked.entries.remove(id);
            return;
        }
        drop(locked);
        // What is held for its recipient is not sent if nobody waits for it.
        self.acknowledge(id);
    }

    /// How many requests are waiting or being attempted.
    pub fn in_flight(&self) -> usize {
        self.inner.locked().in_flight()
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
            let (waiting, held) = (locked.fair_queue.clear(), locked.digests.clear());
            for id in waiting.iter().chain(&held).flat_map(QueuedRequest::ids) {
                locked.entries.remove(id);
            }
        }
        inner.closing.cancel();
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
            let Some(next) = self.locked().next(&self.limits) else { return };
            let this = Arc::clone(self);
            self.tasks.spawn(async move {
                let held = next.held_key();
                let QueuedRequest { parts, group, host, request, submitted } = next;
                let result = tokio::select! {
                    biased;
                    () = this.stop.cancelled() => None,
                    result = this.attempt(request, submitted) => Some(result),
                };
                if let Some(held) = held {
                    this.locked().digests.ended(&held, Instant::now());
                }
                let (ids, keys): (Vec<_>, Vec<_>) = parts.into_iter().unzip();
                let (wanted, paused_until) = this.finish(&ids, &group, &host, result);
                if let Some(until) = paused_until {
                    let waiting = Arc::clone(&this);
                    this.at(until, move || waiting.start_ready());
                }
                this.start_ready();
                for (key, _) in keys.into_iter().zip(wanted).filter(|(_, wanted)| *wanted) {
                    (this.enqueue)(key);
                }
            });
        }
    }

    /// Sends what is held for a recipient at an instant.
    fn release_at(self: &Arc<Self>, held: HeldKey, at: Instant) {
        let this = Arc::clone(self);
        self.at(at, move || {
            this.locked().release(&held);
            this.start_ready();
        });
    }

    /// Does something at an instant, unless this is closed before.
    fn at(&self, at: Instant, then: impl FnOnce() + Send + 'static) {
        let closing = self.closing.clone();
        self.tasks.spawn(async move {
            tokio::select! {
                biased;
                () = closing.cancelled() => {}
                () = tokio::time::sleep_until(at) => then(),
            }
        });
    }
}

impl<K> Inner<K> {
    fn locked(&self) -> MutexGuard<'_, OutboxState<K>> {
        // The state is consistent between any two statements that could panic.
        self.locked.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes an attempt. A failure comes with whether the channel works, if it shows that.
    async fn attempt(
        &self,
        request: DeliveryRequest,
        submitted: Instant,
    ) -> Result<Delivered, (AttemptFailure, Option<bool>)> {
        let request = request.at(|then| later(then, submitted.elapsed()));
        let id = request.id().to_owned();
        let delivery = AssertUnwindSafe(async { self.deliver.deliver(request).await });
        match delivery.catch_unwind().await {
            Ok(Ok(delivered)) => Ok(delivered),
            Ok(Err(error)) => {
                tracing::info!(id, %error, "an attempt did not deliver");
                tracing::debug!(id, ?error, "why an attempt did not deliver");
                let works = error.channel_works();
                let failure = AttemptFailure {
                    message: error.to_string(),
                    permanent: error.is_permanent(),
                    retry_after: error.retry_after(),
                    by_channel: works == Some(false),
                };
                Err((failure, works))
            }
            Err(_panic) => {
                tracing::error!(id, "the delivery panicked");
                let message = "the delivery failed inside Coppice; its log has more".to_owned();
                let failure =
                    AttemptFailure { message, permanent: false, retry_after: None, by_channel: false };
                Err((failure, None))
            }
        }
    }

    /// Records the end of an attempt; `None` leaves no result. Returns of each id whether somebody waits for the result, and until when
    /// its group waits, if that has just been decided.
    fn finish(
        &self,
        ids: &[String],
        group: &str,
        host: &str,
        result: Option<Result<Delivered, (AttemptFailure, Option<bool>)>>,
    ) -> (Vec<bool>, Option<Instant>) {
        let mut locked = self.locked();
        locked.fair_queue.done(group, host);
        let paused_until = match &result {
            Some(Ok(_) | Err((_, Some(true)))) => {
                locked.pauses.works(group);
                None
            }
            Some(Err((failure, Some(false)))) => {
                locked.pauses.fails(group, failure.retry_after.unwrap_or_default(), Instant::now())
            }
            Some(Err((_, None))) | None => None,
        };
        if let Some(Err((failure, _))) = result.as_ref().filter(|_| paused_until.is_some()) {
            tracing::warn!(group, error = failure.message, "nothing is sent for a while");
        }
        let result = result.map(|result| result.map_err(|(failure, _)| failure));
        let wanted = ids.iter().map(|id| locked.finish(id, result.as_ref())).collect();
        (wanted, paused_until)
    }
}

impl<K> OutboxState<K> {
    /// Takes what is to be attempted now.
    fn next(&mut self, limits: &OutboxLimits) -> Option<QueuedRequest<K>> {
        let (now, pauses) = (Instant::now(), &self.pauses);
        self.fair_queue.next(limits, |group, running| pauses.permits(group, running, now))
    }

    /// What is held for a recipient waits for its turn from now on, without what nobody waits for any more.
    fn release(&mut self, held: &HeldKey) {
        if self.closed {
            return;
        }
        let entries = &mut self.entries;
        let wanted = |id: &str| {
            let is_awaited = entries.get(id).is_some_and(OutboxEntry::is_awaited);
            if !is_awaited {
                entries.remove(id);
            }
            is_awaited
        };
        for queued in self.digests.release(held, Instant::now(), wanted) {
            self.fair_queue.add(queued);
        }
    }

    fn in_flight(&self) -> usize {
        self.fair_queue.in_flight() + self.digests.held()
    }

    /// Records the end of an attempt at one of its parts. Returns whether somebody waits for the result.
    fn finish(&mut self, id: &str, result: Option<&Result<Delivered, AttemptFailure>>) -> bool {
        let Some(entry) = self.entries.remove(id) else { return false };
        let Some(result) = result.filter(|_| entry.is_awaited()) else { return false };
        self.finished += 1;
        let state = EntryState::Done { result: result.clone(), order: self.finished };
        self.entries.insert(id.to_owned(), OutboxEntry { state, ..entry });
        true
    }

    /// Makes room for a request of a group; returns the keys of the objects whose request was dropped for it.
    fn evict_to_fit(&mut self, group: &str, limits: &OutboxLimits) -> Result<Vec<K>, SubmitError> {
        // Results wait for those who record them: what is new displaces none of them. They are bounded by themselves.
        let results = self.entries.values().filter(|entry| matches!(entry.state, EntryState::Done { .. }));
        if results.count() >= limits.capacity {
            self.drop_oldest_result();
        }
        if self.in_flight() < limits.capacity {
            return Ok(Vec::new());
        }
        let full = SubmitError::Full { capacity: limits.capacity };
        let evicted = self.fair_queue.evict_for(group).ok_or(full)?;
        let keys = evicted.parts.into_iter().filter_map(|(id, key)| {
            self.entries.remove(&id).is_some_and(|entry| entry.is_awaited()).then_some(key)
        });
        Ok(keys.collect())
    }

    fn drop_oldest_result(&mut self) -> bool {
        let oldest = self
            .entries
            .iter()
            .filter_map(|(id, entry)| match entry.state {
                EntryState::Done { order, .. } => Some((order, id.clone())),
                EntryState::InFlight { .. } => None,
            })
            .min();
        oldest.is_some_and(|(_, id)| self.entries.remove(&id).is_some())
    }
}

fn later(now: Timestamp, waited: Duration) -> Timestamp {
    SignedDuration::try_from(waited).ok().and_then(|waited| now.checked_add(waited).ok()).unwrap_or(now)
}
