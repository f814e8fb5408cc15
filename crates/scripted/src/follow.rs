//! Controllers that watch, without the runner that reconciles for them.

use std::sync::Arc;

use coppice_runtime::client::Clients;
use coppice_runtime::controller::Controller;
use coppice_runtime::intervals::ResyncIntervals;
use coppice_runtime::kind::Kind;
use coppice_runtime::metrics::Metrics;
use coppice_runtime::queue::{Queue, QueueSettings};
use coppice_runtime::readiness::Readiness;
use coppice_runtime::server_clock::ServerClock;
use coppice_runtime::store::{Freshness, Store};
use coppice_runtime::watches::{Subscription, WatchEnvironment, Watches};

/// So often other tasks have their turn before what was to be listed should be.
const TURNS: usize = 10_000;

/// Has controllers watch, so that their caches are fresh; a test reconciles.
pub struct Followers {
    watches: Watches,
    subscriptions: Vec<Subscription>,
}

impl Followers {
    /// Nobody watches yet. Must be called on a tokio runtime.
    pub fn new(clients: &Clients, server_clock: &ServerClock) -> Self {
        let (watches, runner) = Watches::new(WatchEnvironment {
            clients: clients.clone(),
            clock: server_clock.clock().clone(),
            metrics: Metrics::new("test"),
            readiness: Readiness::new(),
            intervals: ResyncIntervals::default(),
            seed: 0,
            on_collapse: Arc::new(|_| {}),
        });
        tokio::spawn(runner.run());
        Self { watches, subscriptions: Vec::new() }
    }

    /// Has a controller watch, and waits until everything that it needs has been listed.
    ///
    /// # Panics
    /// If that is never the case.
    pub async fn add<C: Controller>(&mut self, controller: &Arc<C>) -> Queue<C::Key> {
        let queue = Queue::new(QueueSettings::default());
        self.subscriptions.extend(controller.subscribe(&self.watches, &queue));
        until(|| controller.synced()).await;
        queue
    }

    /// Fills one more cache.
    ///
    /// # Panics
    /// If the kind cannot be listed.
    pub async fn fill<K: Kind>(&mut self, store: &Store<K>) {
        self.subscriptions.push(self.watches.subscribe(store, |_, _| {}));
        until(|| matches!(store.freshness(), Freshness::Fresh(_))).await;
    }
}

async fn until(holds: impl Fn() -> bool) {
    for _ in 0..TURNS {
        if holds() {
            return;
        }
        tokio::task::yield_now().await;
    }
    assert!(holds(), "not everything was listed");
}
