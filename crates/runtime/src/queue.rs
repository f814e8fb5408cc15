//! The work queue of a controller: keys to reconcile now, or at an instant.
//!
//! - Never more than [`QueueSettings::concurrency`] keys are processed at once, and never one key twice at once.
//! - A key that is added while it is processed is processed again afterwards: nothing is lost.
//! - The result of a run *replaces* the key's due time. A ttl that was lengthened from one hour to two never fires
//!   after one (H17).
//! - Ready keys are served in the order in which they became ready. Failures are retried with backoff, per key.
//! - A panic is an error of that key: counted, shown and tried again.
//!
//! Everything runs on tokio's clock. Between events the queue sleeps until the next due time; it does not poll.

mod state;

use std::collections::HashMap;
use std::fmt::Debug;
use std::hash::Hash;
use std::num::NonZeroUsize;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::task::{Id, JoinError, JoinSet};
use tokio::time::{Instant, sleep_until, timeout_at};
use tokio_util::sync::CancellationToken;

pub use self::state::Depths;
use self::state::{RetryPauses, State};
use crate::panic::{Panicked, contain, message_of};

/// Identifies an object to reconcile.
pub trait QueueKey: Clone + Eq + Hash + Ord + Debug + Send + 'static {}
impl<K: Clone + Eq + Hash + Ord + Debug + Send + 'static> QueueKey for K {}

/// How a queue works.
#[derive(Debug, Clone)]
pub struct QueueSettings {
    /// How many keys are processed at once.
    pub concurrency: NonZeroUsize,
    /// The pause after a key's first failure; it doubles with each further one.
    pub first_pause: Duration,
    /// The longest pause between two attempts at a key.
    pub max_pause: Duration,
    /// How long those in progress may take to finish when the queue is stopped.
    pub drain: Duration,
    /// The seed of the pauses' jitter.
    pub seed: u64,
}

impl Default for QueueSettings {
    /// Eight at once, pauses of 0.5 s to 60 s, 10 s to finish.
    fn default() -> Self {
        Self {
            concurrency: NonZeroUsize::MIN.saturating_add(7),
            first_pause: Duration::from_millis(500),
            max_pause: Duration::from_mins(1),
            drain: Duration::from_secs(10),
            seed: 0,
        }
    }
}

/// What a run requests for its key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ReconcileResult {
    /// Nothing, until it is added again.
    Done,
    /// It is due at this instant. If that has passed, after [`MIN_PAUSE`], so that an answer that is always late cannot spin.
    At(Instant),
    /// It was not tried, since others are before it and add it when they have ended; at this instant at the latest. How often it has
    /// failed before is not reset by that.
    Waits(Instant),
    /// The run failed; again after a pause that grows with each failure.
    Retry {
        /// What kind of failure, from a small fixed set: a label of metrics.
        category: &'static str,
        /// How long to wait at least, such as a `Retry-After` of the API server. If not zero, the pause is not cut short by adding the
        /// key, either.
        at_least: Duration,
    },
}

/// The pause before a key whose due time has passed when its run ends.
pub const MIN_PAUSE: Duration = Duration::from_millis(50);

impl ReconcileResult {
    /// The run failed; again after a pause that grows with each failure.
    pub fn retry(category: &'static str) -> Self {
        Self::Retry { category, at_least: Duration::ZERO }
    }
}

/// How a run ended, for metrics and logs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RunOutcome {
    /// The process answered.
    Completed(ReconcileResult),
    /// The process panicked; it is tried again like a failure.
    Panicked(Panicked),
}

/// Observes the queue. `()` ignores everything.
pub trait QueueObserver<K>: Send + Sync {
    /// A run of `key` ended; it took `took`.
    fn finished(&self, key: &K, outcome: &RunOutcome, took: Duration);
    /// The queue's length changed, or may have.
    fn depths(&self, depths: Depths);
}

impl<K> QueueObserver<K> for () {
    fn finished(&self, _: &K, _: &RunOutcome, _: Duration) {}
    fn depths(&self, _: Depths) {}
}

/// How a queue ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Drained<K> {
    /// Keys whose runs did not finish in time and were cut off, wherever they were.
    pub abandoned: Vec<K>,
}

/// A work queue. Clones are the same queue.
#[derive(Debug)]
pub struct Queue<K> {
    shared: Arc<Shared<K>>,
}

impl<K> Clone for Queue<K> {
    fn clone(&self) -> Self {
        Self { shared: Arc::clone(&self.shared) }
    }
}

#[derive(Debug)]
struct Shared<K> {
    state: Mutex<State<K>>,
    changed: Notify,
    settings: QueueSettings,
}

/// The result of a run, and how long it took.
type Run = (Result<ReconcileResult, Panicked>, Duration);

/// The runs in progress, and their keys.
struct Running<K> {
    tasks: JoinSet<Run>,
    keys: HashMap<Id, K>,
}

impl<K: QueueKey> Queue<K> {
    /// An empty queue. Keys may be added before it [runs](Self::run).
    pub fn new(settings: QueueSettings) -> Self {
        let pauses = RetryPauses { first: settings.first_pause, max: settings.max_pause };
        let state = Mutex::new(State::new(pauses, settings.seed));
        Self { shared: Arc::new(Shared { state, changed: Notify::new(), settings }) }
    }

    /// The key is processed as soon as possible, whatever its due time; if it is in progress, again afterwards. This
    /// also ends the pause of a key that is to be retried: the change may be what it waits for. A minimum pause that
    /// its run asked for stays.
    pub fn add(&self, key: K) {
        self.state().add(key, Instant::now());
        self.shared.changed.notify_one();
    }

    /// The key is processed at `due`, or at its due time if that is earlier.
    pub fn add_at(&self, key: K, due: Instant) {
        self.state().add_at(key, due, Instant::now());
        self.shared.changed.notify_one();
    }

    /// How many keys are ready, waiting for their time, and in progress.
    pub fn depths(&self) -> Depths {
        self.state().depths()
    }

    /// How many keys there are in all.
    pub fn len(&self) -> usize {
        self.state().len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// For how long the first key in the line has been waiting for its turn, zero if none is: a measure of overload, and large if the
    /// queue is stuck.
    pub fn lag(&self) -> Duration {
        self.state().lag(Instant::now())
    }

    /// Processes keys until `stop`; then no further one is started, and those in progress have [`QueueSettings::drain`]
    /// to finish. Call it
    /// once. When its future is dropped, what is in progress is cut off at once.
    pub async fn run<F, Fut>(
        &self,
        process: F,
        observe: impl QueueObserver<K>,
        stop: CancellationToken,
    ) -> Drained<K>
    where
        F: Fn(K) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = ReconcileResult> + Send + 'static,
    {
        let process = Arc::new(process);
        let mut running = Running { tasks: JoinSet::new(), keys: HashMap::new() };
        while !stop.is_cancelled() {
            let next_due = self.begin(&mut running, &process);
            observe.depths(self.depths());
            tokio::select! {
                biased;
                () = stop.cancelled() => break,
                Some(ended) = running.tasks.join_next_with_id() => self.finish(&mut running, ended, &observe),
                () = self.shared.changed.notified() => {}
                () = sleep_until_due(next_due) => {}
            }
        }
        self.drain(running, &observe).await
    }

    /// Starts as many runs as allowed, and returns when the next key becomes due.
    fn begin<F, Fut>(&self, running: &mut Running<K>, process: &Arc<F>) -> Option<Instant>
    where
        F: Fn(K) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = ReconcileResult> + Send + 'static,
    {
        let mut state = self.state();
        let now = Instant::now();
        while running.keys.len() < self.shared.settings.concurrency.get() {
            let Some(key) = state.start(now) else { break };
            let (process, started) = (Arc::clone(process), key.clone());
            // The call is inside, so that a panic in it is contained as well.
            let run = async move { process(started).await };
            let task = running.tasks.spawn(async move {
                let result = contain(run).await;
                (result, now.elapsed())
            });
            running.keys.insert(task.id(), key);
        }
        // While all are busy it is the end of a run that matters, not a due time.
        if running.keys.len() < self.shared.settings.concurrency.get() { state.next_due() } else { None }
    }

    fn finish(
        &self,
        running: &mut Running<K>,
        ended: Result<(Id, Run), JoinError>,
        observe: &impl QueueObserver<K>,
    ) {
        let (id, result, took) = match ended {
            Ok((id, (result, took))) => (id, result, took),
            // A panic outside of what is contained: while the run was dropped.
            Err(error) => {
                let id = error.id();
                let message =
                    error.try_into_panic().map_or_else(|e| e.to_string(), |payload| message_of(&*payload));
                (id, Err(Panicked { message }), Duration::ZERO)
            }
        };
        let Some(key) = running.keys.remove(&id) else { return };
        let (next, outcome) = match result {
            Ok(next) => (next.clone(), RunOutcome::Completed(next)),
            Err(panicked) => {
                tracing::error!(?key, "{panicked}");
                (ReconcileResult::retry("panic"), RunOutcome::Panicked(panicked))
            }
        };
        self.state().finish(&key, &next, Instant::now());
        observe.finished(&key, &outcome, took);
    }

    async fn drain(&self, mut running: Running<K>, observe: &impl QueueObserver<K>) -> Drained<K> {
        let deadline = Instant::now() + self.shared.settings.drain;
        while let Ok(Some(ended)) = timeout_at(deadline, running.tasks.join_next_with_id()).await {
            self.finish(&mut running, ended, observe);
        }
        let mut abandoned: Vec<K> = running.keys.into_values().collect();
        abandoned.sort();
        if !abandoned.is_empty() {
            tracing::warn!(?abandoned, "cut off: still in progress at the end of the time to finish");
            running.tasks.shutdown().await;
        }
        observe.depths(self.depths());
        Drained { abandoned }
    }

    fn state(&self) -> MutexGuard<'_, State<K>> {
        self.shared.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

async fn sleep_until_due(due: Option<Instant>) {
    match due {
        Some(due) => sleep_until(due).await,
        None => std::future::pending().await,
    }
}

#[cfg(test)]
mod tests;
