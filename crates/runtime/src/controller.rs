//! What a controller is, and the runner that is the same for all of them.
//!
//! The runner owns the queues, the first pass, the periodic resync, readiness, liveness and what becomes of panics. A
//! controller says what it needs and what it does for one key.

use std::collections::BTreeSet;
use std::fmt::Display;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use coppice_mutants::Mutant;
use futures::FutureExt as _;
use futures::future::BoxFuture;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::leader::{Gate, LeaderState};
use crate::metrics::ControllerMetrics;
use crate::queue::{Depths, Queue, QueueKey, QueueObserver, QueueSettings, ReconcileResult, RunOutcome};
use crate::readiness::{Check, CheckError, Readiness};
use crate::watches::{Subscription, WatchEnvironment, WatchRunner, Watches};

/// A queue whose first key has waited for this long is stuck.
const STUCK_AFTER: Duration = Duration::from_mins(5);
/// How often to look whether what decisions need has been listed.
const SYNC_POLL: Duration = Duration::from_millis(50);

/// A controller: what it reconciles, what enqueues its keys, and how it reconciles one key.
pub trait Controller: Send + Sync + 'static {
    /// What identifies an object.
    type Key: QueueKey + Display;
    /// The label `controller` of its metrics, and its name in probes and logs.
    const NAME: &'static str;

    /// Watches what it needs, and adds to the queue what a change concerns.
    fn subscribe(self: &Arc<Self>, watches: &Watches, queue: &Queue<Self::Key>) -> Vec<Subscription>;

    /// Whether everything that its decisions need has been listed. It reconciles nothing before.
    fn synced(&self) -> bool;

    /// Called once, when it has [synced](Self::synced) and before it reconciles anything.
    fn started(&self) {}

    /// The key of every object there is: for the first pass, when this replica becomes the leader, and for the periodic
    /// resync.
    fn all(&self) -> Vec<Self::Key>;

    /// Reconciles one object as far as possible, and returns when to reconcile it again. Called on followers as well.
    fn reconcile(self: Arc<Self>, key: Self::Key) -> impl Future<Output = ReconcileResult> + Send;

    /// The reconcile of a key ended in a panic, which is contained, counted, logged and tried again: reports it to users.
    fn panicked(&self, key: &Self::Key, message: &str) {
        let (_, _) = (key, message);
    }

    /// Called with every periodic resync.
    fn resync(&self) {}
}

/// Runs controllers.
pub struct Runner {
    watches: Watches,
    watching: WatchRunner,
    pub(crate) environment: WatchEnvironment,
    pub(crate) gate: Gate,
    queue: QueueSettings,
    pub(crate) stop: CancellationToken,
    controllers: Vec<Arc<dyn Registered>>,
    subscriptions: Vec<Subscription>,
}

impl Runner {
    /// A runner without controllers, whose queues work like this. It ends in order when `stop` is cancelled.
    pub fn new(
        environment: WatchEnvironment,
        gate: Gate,
        queue: QueueSettings,
        stop: CancellationToken,
    ) -> Self {
        let (watches, watching) = Watches::new(environment.clone());
        Self {
            watches,
            watching,
            environment,
            gate,
            queue,
            stop,
            controllers: Vec::new(),
            subscriptions: Vec::new(),
        }
    }

    /// Adds a controller; its queue, for those who have something to add to it.
    pub fn add<C: Controller>(&mut self, controller: C) -> Queue<C::Key> {
        let (controller, queue) = (Arc::new(controller), Queue::new(self.queue.clone()));
        self.subscriptions.extend(controller.subscribe(&self.watches, &queue));
        let readiness = self.environment.readiness.clone();
        let first_pass = readiness.register(format!("first pass: {}", C::NAME));
        first_pass.not_ready("waits for the watches");
        let metrics = self.environment.metrics.controller(C::NAME);
        self.controllers.push(Arc::new(Slot {
            controller,
            queue: queue.clone(),
            first_pass,
            readiness,
            metrics,
        }));
        queue
    }

    /// Runs every watch and every controller, as tasks of this set. None of them ends before `stop` is cancelled.
    pub fn start(self, tasks: &mut JoinSet<()>) {
        let Self { watching, gate, stop, controllers, subscriptions, environment, .. } = self;
        let stopped = stop.clone();
        tasks.spawn(async move {
            tokio::select! {
                biased;
                () = stopped.cancelled() => {}
                () = watching.run() => {}
            }
            drop(subscriptions);
        });
        let all: Arc<[_]> = controllers.into();
        tasks.spawn(enqueue_when_leading(gate, Arc::clone(&all), stop.clone()));
        tasks.spawn(resync_periodically(environment.intervals.pass, Arc::clone(&all), stop.clone()));
        for controller in &*all {
            tasks.spawn(Arc::clone(controller).work(stop.clone()));
        }
    }
}

/// A new leader reconciles everything.
async fn enqueue_when_leading(gate: Gate, controllers: Arc<[Arc<dyn Registered>]>, stop: CancellationToken) {
    let mut state = gate.subscribe();
    loop {
        if matches!(*state.borrow_and_update(), LeaderState::Leader { .. }) {
            tracing::info!("this replica leads");
            controllers.iter().for_each(|controller| controller.add_all());
        }
        tokio::select! {
            biased;
            () = stop.cancelled() => return,
            changed = state.changed() => if changed.is_err() { return },
        }
    }
}

/// Recovers lost events.
async fn resync_periodically(
    interval: Duration,
    controllers: Arc<[Arc<dyn Registered>]>,
    stop: CancellationToken,
) {
    loop {
        tokio::select! {
            biased;
            () = stop.cancelled() => return,
            () = tokio::time::sleep(interval) => {}
        }
        for controller in &*controllers {
            controller.add_all();
            controller.resync();
        }
    }
}

/// A controller of any kind, with its queue.
trait Registered: Send + Sync {
    fn add_all(&self);
    fn resync(&self);
    fn work(self: Arc<Self>, stop: CancellationToken) -> BoxFuture<'static, ()>;
}

struct Slot<C: Controller> {
    controller: Arc<C>,
    queue: Queue<C::Key>,
    first_pass: Check,
    readiness: Readiness,
    metrics: ControllerMetrics,
}

impl<C: Controller> Registered for Slot<C> {
    fn add_all(&self) {
        self.controller.all().into_iter().for_each(|key| self.queue.add(key));
    }

    fn resync(&self) {
        self.controller.resync();
    }

    fn work(self: Arc<Self>, stop: CancellationToken) -> BoxFuture<'static, ()> {
        self.run(stop).boxed()
    }
}

impl<C: Controller> Slot<C> {
    /// Reconciles, once everything that decisions need has been listed.
    async fn run(self: Arc<Self>, stop: CancellationToken) {
        while !self.controller.synced() && !coppice_mutants::active(Mutant::ActBeforeSync) {
            tokio::select! {
                biased;
                () = stop.cancelled() => return,
                () = tokio::time::sleep(SYNC_POLL) => {}
            }
        }
        self.controller.started();
        // On followers nothing else adds those that no list enqueues.
        let keys = self.controller.all();
        for key in &keys {
            self.queue.add(key.clone());
        }
        let first = Arc::new(InitialPass::of::<C>(keys, self.first_pass.clone()));
        let controller = Arc::clone(&self.controller);
        let process = move |key: C::Key| {
            let (controller, first) = (Arc::clone(&controller), Arc::clone(&first));
            async move {
                let next = controller.reconcile(key.clone()).await;
                first.reconciled::<C>(&key);
                next
            }
        };
        let queue = self.queue.clone();
        self.readiness.register_liveness(format!("queue: {}", C::NAME), move || {
            let lag = queue.lag();
            if lag < STUCK_AFTER { Ok(()) } else { Err(CheckError::Stuck { lag }) }
        });
        let observer = Observer { controller: Arc::clone(&self.controller), metrics: self.metrics.clone() };
        let drained = self.queue.run(process, observer, stop).await;
        if !drained.abandoned.is_empty() {
            let abandoned: Vec<_> = drained.abandoned.iter().map(ToString::to_string).collect();
            tracing::warn!(
                controller = C::NAME,
                ?abandoned,
                "cut off while stopping; the next leader takes them up again"
            );
        }
    }
}

/// Counts, and reports panics.
struct Observer<C> {
    controller: Arc<C>,
    metrics: ControllerMetrics,
}

impl<C: Controller> QueueObserver<C::Key> for Observer<C> {
    fn finished(&self, key: &C::Key, outcome: &RunOutcome, took: Duration) {
        self.metrics.finished(key, outcome, took);
        if let RunOutcome::Panicked(panic) = outcome {
            self.controller.panicked(key, &panic.message);
        }
    }

    fn depths(&self, depths: Depths) {
        QueueObserver::<C::Key>::depths(&self.metrics, depths);
    }
}

/// The first pass is done when every object that there was has been reconciled once.
struct InitialPass<K> {
    pending: Mutex<BTreeSet<K>>,
    check: Check,
}

impl<K: QueueKey> InitialPass<K> {
    fn of<C: Controller<Key = K>>(keys: Vec<K>, check: Check) -> Self {
        check.not_ready("looks at every object for the first time");
        let this = Self { pending: Mutex::new(keys.into_iter().collect()), check };
        if this.pending.lock().unwrap_or_else(PoisonError::into_inner).is_empty() {
            this.done::<C>();
        }
        this
    }

    fn reconciled<C: Controller<Key = K>>(&self, key: &K) {
        let mut pending = self.pending.lock().unwrap_or_else(PoisonError::into_inner);
        if pending.remove(key) && pending.is_empty() {
            self.done::<C>();
        }
    }

    fn done<C: Controller<Key = K>>(&self) {
        self.check.ready();
        tracing::info!(controller = C::NAME, "every watch has synced and the first pass is done");
    }
}

#[cfg(test)]
#[path = "controller_tests.rs"]
mod tests;
