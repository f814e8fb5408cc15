//! The watches that controllers share: one for each kind, however many controllers need it.
//!
//! A watch begins with the first [`Subscription`] to its kind, calls every subscriber for each change, and ends with the
//! last one: its cache is empty and not synced then.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};

use futures::FutureExt as _;
use futures::future::BoxFuture;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::client::Clients;
use crate::clock::Clock;
use crate::collapse::OnCollapse;
use crate::intervals::ResyncIntervals;
use crate::kind::Kind;
use crate::metrics::Metrics;
use crate::readiness::Readiness;
use crate::store::Store;
use crate::watch::{Changed, Watch};

/// What every watch is made with.
#[derive(Clone)]
pub struct WatchEnvironment {
    /// The API server.
    pub clients: Clients,
    /// For the instants of lists.
    pub clock: Clock,
    /// The metrics of watches.
    pub metrics: Metrics,
    /// Every watch has a line in it.
    pub readiness: Readiness,
    /// How often to look for missed events.
    pub intervals: ResyncIntervals,
    /// Another one in each replica, so that they do not list at the same time.
    pub seed: u64,
    /// What is called when the list of any kind has collapsed.
    pub on_collapse: OnCollapse,
}

/// The watches of a program. Clones share them.
#[derive(Clone)]
pub struct Watches(Arc<Shared>);

struct Shared {
    environment: WatchEnvironment,
    slots: Mutex<BTreeMap<Path, Slot>>,
    /// Held by the watch of a kind while it runs: the next one begins when the last one writes no more into the store.
    turns: Mutex<BTreeMap<Path, Arc<tokio::sync::Mutex<()>>>>,
    begun: mpsc::UnboundedSender<BoxFuture<'static, ()>>,
}

/// Where a kind is served: group and version, and the resource.
type Path = (&'static str, &'static str);

/// Those who are called for each change of a kind, in the order in which they subscribed.
type Subscribers = Arc<RwLock<Vec<(u64, Changed)>>>;

struct Slot {
    subscribers: Subscribers,
    next_id: u64,
    stop: CancellationToken,
    /// Empties the cache.
    clear: Box<dyn Fn() + Send>,
    /// Which store it fills.
    store: usize,
}

/// As long as this is kept, its kind is watched and its subscriber is called.
#[must_use = "the subscription ends when this is dropped"]
pub struct Subscription {
    watches: Watches,
    path: Path,
    id: u64,
}

/// Runs the watches that are begun. Its future ends only by a panic of one of them.
pub struct WatchRunner(mpsc::UnboundedReceiver<BoxFuture<'static, ()>>);

impl Watches {
    /// No watches yet, and what runs them once there are.
    pub fn new(environment: WatchEnvironment) -> (Self, WatchRunner) {
        let (begun, to_run) = mpsc::unbounded_channel();
        (
            Self(Arc::new(Shared { environment, slots: Mutex::default(), turns: Mutex::default(), begun })),
            WatchRunner(to_run),
        )
    }

    /// Has `changed` called with the namespace and name of every object of the kind that changed or is gone, and the
    /// store filled: one for each kind, the same for all subscribers.
    ///
    /// # Panics
    /// If others have the kind in another store: it would never be filled.
    pub fn subscribe<K: Kind>(
        &self,
        store: &Store<K>,
        changed: impl Fn(&str, &str) + Send + Sync + 'static,
    ) -> Subscription {
        let mut slots = self.slots();
        let path = (K::GROUP_PATH, K::RESOURCE);
        let slot = slots.entry(path).or_insert_with(|| self.begin(store));
        assert_eq!(slot.store, store.id(), "{} are watched into two stores", K::RESOURCE);
        let id = slot.next_id;
        slot.next_id += 1;
        let mut subscribers = slot.subscribers.write().unwrap_or_else(PoisonError::into_inner);
        subscribers.push((id, Arc::new(changed)));
        drop(subscribers);
        Subscription { watches: self.clone(), path, id }
    }

    fn begin<K: Kind>(&self, store: &Store<K>) -> Slot {
        let WatchEnvironment { clients, clock, metrics, readiness, intervals, seed, on_collapse } =
            self.0.environment.clone();
        let (subscribers, stop) = (Subscribers::default(), CancellationToken::new());
        let called = Arc::clone(&subscribers);
        let watch = Watch {
            store: store.clone(),
            clients,
            clock,
            metrics,
            check: readiness.register(check_name(K::RESOURCE)),
            changed: Arc::new(move |namespace, name| {
                // Called without the lock: who is called may subscribe to something.
                let called = called.read().unwrap_or_else(PoisonError::into_inner).clone();
                for (_, changed) in called {
                    changed(namespace, name);
                }
            }),
            on_collapse,
            intervals,
            seed,
        };
        let (cleared, id) = (store.clone(), store.id());
        let shown = self.0.environment.metrics.clone();
        let (store, stopped, turn) = (store.clone(), stop.clone(), self.turn((K::GROUP_PATH, K::RESOURCE)));
        let run = async move {
            let _turn = turn.lock().await;
            shown.watch_unsynced(K::RESOURCE);
            watch.run(stopped).await;
            store.clear();
            shown.watch_stopped(K::RESOURCE);
        };
        // Whoever runs the watches may be gone already: then nothing is watched any more.
        let _ = self.0.begun.send(run.boxed());
        Slot { subscribers, next_id: 0, stop, clear: Box::new(move || cleared.clear()), store: id }
    }

    fn turn(&self, path: Path) -> Arc<tokio::sync::Mutex<()>> {
        let mut turns = self.0.turns.lock().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(turns.entry(path).or_default())
    }

    fn slots(&self) -> MutexGuard<'_, BTreeMap<Path, Slot>> {
        self.0.slots.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn check_name(resource: &str) -> String {
    format!("watch: {resource}")
}

impl Drop for Subscription {
    fn drop(&mut self) {
        // Dropped without the lock: who was called may have held a subscription, too.
        let _ended = self.end();
    }
}

impl Subscription {
    /// Ends it, and the watch if nobody else needs it. Returns what is left of them.
    fn end(&self) -> (Option<(u64, Changed)>, Option<Slot>) {
        let mut slots = self.watches.slots();
        let Some(slot) = slots.get(&self.path) else { return (None, None) };
        let mut subscribers = slot.subscribers.write().unwrap_or_else(PoisonError::into_inner);
        let at = subscribers.iter().position(|(id, _)| *id == self.id);
        let removed = at.map(|at| subscribers.remove(at));
        let unused = subscribers.is_empty();
        drop(subscribers);
        let slot = if unused { slots.remove(&self.path) } else { None };
        if let Some(slot) = &slot {
            slot.stop.cancel();
            (slot.clear)();
            self.watches.0.environment.readiness.unregister(&check_name(self.path.1));
        }
        (removed, slot)
    }
}

impl WatchRunner {
    /// Runs them until one panics; dropping the future ends all.
    pub async fn run(mut self) {
        let mut tasks = JoinSet::new();
        loop {
            tokio::select! {
                biased;
                Some(watch) = self.0.recv() => { tasks.spawn(watch); }
                Some(ended) = tasks.join_next() => {
                    // One that nobody needs any more ends; anything else is a bug, which ends the program.
                    if let Err(error) = ended && error.is_panic() {
                        std::panic::resume_unwind(error.into_panic());
                    }
                }
                else => std::future::pending().await,
            }
        }
    }
}
