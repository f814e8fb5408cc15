//! One replica: the parts together, running, and taken apart again in order.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use coppice_controllers::{Key, Shared, config, namespace_manager};
use coppice_notify::key::SigningKey;
use coppice_notify::outbox::{Deliver, Limits, Outbox};
use coppice_runtime::admin::{Check, Readiness};
use coppice_runtime::kinds::Watched;
use coppice_runtime::leader::LeaderState;
use coppice_runtime::lease::Election;
use coppice_runtime::mutants::{self, Mutant};
use coppice_runtime::pace::Pace;
use coppice_runtime::queue::{Queue, QueueSettings};
use coppice_runtime::store::{Freshness, Store};
use coppice_runtime::watch::{Changed, Watch};
use tokio::runtime::Handle;
use tokio::sync::Notify;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

/// A queue whose first key has waited for so long does not work any more.
const STUCK: Duration = Duration::from_mins(5);
/// How often the settings are tried again while something is wrong with them.
const CONFIG_RETRY: Duration = Duration::from_secs(2);
/// Deliveries under way have this long to end at a shutdown.
const OUTBOX_GRACE: Duration = Duration::from_secs(5);
/// Steps that are being carried out have this long to end at a shutdown.
const DRAIN_GRACE: Duration = Duration::from_secs(8);
/// Events that are being written have this long to end at a shutdown.
const EVENTS_GRACE: Duration = Duration::from_secs(1);

/// Makes what sends webhooks by a signing key.
pub type Sender = Arc<dyn Fn(SigningKey) -> anyhow::Result<Arc<dyn Deliver>> + Send + Sync>;

/// One replica of the operator: everything that runs, on whatever API server, clock and network it is given.
#[derive(Clone)]
pub struct Replica {
    shared: Arc<Shared>,
    queue: Queue<Key>,
    readiness: Readiness,
    sender: Sender,
    /// The watch of the settings has brought something.
    settings_seen: Arc<Notify>,
    stop: CancellationToken,
    pace: Pace,
}

impl Replica {
    /// A replica that does nothing yet.
    pub fn new(shared: Arc<Shared>, queue: QueueSettings, readiness: Readiness, sender: Sender) -> Self {
        Self {
            shared,
            queue: Queue::new(queue),
            readiness,
            sender,
            settings_seen: Arc::default(),
            stop: CancellationToken::new(),
            pace: Pace::default(),
        }
    }

    /// The same at another pace than the program's: for simulations.
    #[must_use]
    pub fn at_pace(self, pace: Pace) -> Self {
        Self { pace, ..self }
    }

    /// Runs until `until` answers what stops it, or until the lease is lost. The election runs on
    /// the runtime `on`, so that nothing that a program decides can keep it from renewing its lease.
    pub async fn serve(
        self,
        election: Election,
        on: Handle,
        until: impl Future<Output = &'static str>,
    ) -> anyhow::Result<()> {
        let release = CancellationToken::new();
        // Dropped with this future, should it be dropped.
        let mut elections = JoinSet::new();
        elections.spawn_on(election.run(release.clone()), &on);
        let mut tasks = JoinSet::new();
        self.watch_everything(&mut tasks);
        tasks.spawn(self.clone().lead());
        tasks.spawn(self.clone().pass_regularly());
        tasks.spawn(self.clone().work());
        let ended = tokio::select! {
            biased;
            signal = until => {
                tracing::info!(signal, "stopping: no new step is begun");
                Ok(())
            }
            Some(lost) = elections.join_next() => match lost {
                Ok(Err(lost)) => Err(anyhow::Error::from(lost)),
                Ok(Ok(_)) => Ok(()),
                Err(panic) => Err(panic.into()),
            },
            Some(task) = tasks.join_next() => {
                task.context("a task panicked").and_then(|()| anyhow::bail!("a task ended before its time"))
            }
        };
        self.readiness.shut_down();
        self.shared.gate.close();
        self.stop.cancel();
        if ended.is_ok() {
            // What is being carried out ends first, so that it is recorded and told.
            let _ = tokio::time::timeout(DRAIN_GRACE, self.shared.gate.drained()).await;
            if let Some(outbox) = self.shared.outbox() {
                outbox.shutdown(OUTBOX_GRACE).await;
            }
            // What was done is told, unless the API server does not answer any more.
            let _ = tokio::time::timeout(EVENTS_GRACE, self.shared.events.flush()).await;
        } else {
            // Somebody else may lead already: no time is to be lost.
            tasks.abort_all();
        }
        release.cancel();
        match elections.join_next().await {
            None => {}
            Some(Ok(Ok(how))) => tracing::info!(?how, "the lease is settled"),
            Some(Ok(Err(lost))) => tracing::warn!(%lost, "the lease was lost while stopping"),
            Some(Err(panic)) => tracing::error!(%panic, "the election panicked"),
        }
        tasks.shutdown().await;
        tracing::info!("stopped");
        ended
    }

    fn watch_everything(&self, tasks: &mut JoinSet<()>) {
        let (shared, queue) = (&self.shared, &self.queue);
        let wake_manager: Changed = {
            let (shared, queue) = (Arc::clone(shared), queue.clone());
            Arc::new(move |namespace, name| {
                queue.add(Key::new(namespace, name));
                // Another takes the place of one that is gone, where there were too many.
                if shared.managers.get(namespace, name).is_none() {
                    shared.managers_in(namespace).into_iter().for_each(|key| queue.add(key));
                }
            })
        };
        let wake_namespace = |of_object: bool| -> Changed {
            let (shared, queue) = (Arc::clone(shared), queue.clone());
            Arc::new(move |namespace, name| {
                let namespace = if of_object { name } else { namespace };
                shared.managers_in(namespace).into_iter().for_each(|key| queue.add(key));
            })
        };
        let wake_all: Changed = {
            let operator = self.clone();
            // Every booking changes the settings' status: only what changes the law wakes everybody.
            let seen = std::sync::Mutex::new(None);
            Arc::new(move |_, _| {
                operator.settings_seen.notify_one();
                let config = operator.shared.configs.get("", coppice_api::names::CONFIG_NAME);
                let law = config.map(|config| (config.uid.clone(), config.generation));
                let mut seen = seen.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
                if *seen != law {
                    *seen = law;
                    drop(seen);
                    operator.add_all();
                }
            })
        };
        self.watch(tasks, &shared.configs, wake_all);
        self.watch(tasks, &shared.namespaces, wake_namespace(true));
        self.watch(tasks, &shared.pods, wake_namespace(false));
        self.watch(tasks, &shared.jobs, wake_namespace(false));
        self.watch(tasks, &shared.managers, wake_manager);
    }

    fn watch<T: Watched + std::fmt::Debug>(
        &self,
        tasks: &mut JoinSet<()>,
        store: &Store<T>,
        changed: Changed,
    ) {
        let watch = Watch {
            store: store.clone(),
            clients: self.shared.clients.clone(),
            clock: self.shared.server_clock.clock().clone(),
            metrics: self.shared.metrics.clone(),
            check: self.readiness.register(format!("watch: {}", T::RESOURCE)),
            changed,
            pace: self.pace,
        };
        tasks.spawn(watch.run(self.stop.clone()));
    }

    fn add_all(&self) {
        for (namespace, name) in self.shared.managers.keys() {
            self.queue.add(Key::new(&namespace, &name));
        }
    }

    fn synced(&self) -> bool {
        let synced = |freshness| !matches!(freshness, Freshness::NotSynced(_));
        // Pods and Jobs that may not be read make the policies that need them unknown, and stop no other (H26).
        let answered = |freshness| !matches!(freshness, Freshness::NotSynced(None));
        let shared = &self.shared;
        synced(shared.managers.freshness())
            && synced(shared.namespaces.freshness())
            && synced(shared.configs.freshness())
            && answered(shared.pods.freshness())
            && answered(shared.jobs.freshness())
    }

    /// Works on managers, once everything that decisions rest on has been listed.
    async fn work(self) {
        let first_pass = self.readiness.register("first pass");
        first_pass.not_ready("waits for the watches");
        while !self.synced() && !mutants::active(Mutant::ActBeforeSync) {
            tokio::select! {
                biased;
                () = self.stop.cancelled() => return,
                () = tokio::time::sleep(Duration::from_millis(50)) => {}
            }
        }
        let shared = Arc::clone(&self.shared);
        let observe = namespace_manager::Listener::new(Arc::clone(&self.shared));
        let first = Arc::new(FirstPass::of(&self.shared, first_pass));
        let process = move |key: Key| {
            let (shared, first) = (Arc::clone(&shared), Arc::clone(&first));
            async move {
                let next = namespace_manager::reconcile(shared, key.clone()).await;
                first.looked_at(&key);
                next
            }
        };
        let queue = self.queue.clone();
        self.readiness.register_liveness("queue", move || {
            let lag = queue.lag();
            if lag < STUCK {
                Ok(())
            } else {
                Err(format!("the first in the queue has waited for {} s", lag.as_secs()))
            }
        });
        let drained = self.queue.run(process, observe, self.stop.clone()).await;
        if !drained.abandoned.is_empty() {
            tracing::warn!(managers = ?drained.abandoned, "cut off while stopping; they are taken up again by the next leader");
        }
    }

    /// Looks after the settings while this replica leads, and at every manager when it begins to.
    async fn lead(self) {
        let mut state = self.shared.gate.subscribe();
        loop {
            let leads = matches!(*state.borrow_and_update(), LeaderState::Leader { .. });
            if leads {
                tracing::info!("this replica leads");
                self.add_all();
                self.keep_settings(&mut state).await;
            } else {
                tokio::select! {
                    biased;
                    () = self.stop.cancelled() => return,
                    changed = state.changed() => if changed.is_err() { return },
                }
            }
            if self.stop.is_cancelled() {
                return;
            }
        }
    }

    async fn keep_settings(&self, state: &mut tokio::sync::watch::Receiver<LeaderState>) {
        loop {
            let pause = match config::reconcile(&self.shared).await {
                Ok(key) => {
                    if let Some(key) = key {
                        self.open_outbox(key);
                    }
                    self.pace.pass
                }
                Err(error) => {
                    tracing::warn!(%error, "settings");
                    CONFIG_RETRY
                }
            };
            tokio::select! {
                biased;
                () = self.stop.cancelled() => return,
                _ = state.changed() => return,
                () = self.settings_outdated() => {}
                () = tokio::time::sleep(pause) => {}
            }
        }
    }

    /// Ends when settings are seen that their status is not about: they were edited, or are gone.
    async fn settings_outdated(&self) {
        loop {
            self.settings_seen.notified().await;
            let config = self.shared.configs.get("", coppice_api::names::CONFIG_NAME);
            if config.is_none_or(|c| c.status.observed_generation != Some(c.generation)) {
                return;
            }
        }
    }

    fn open_outbox(&self, key: coppice_notify::key::SigningKey) {
        let opened = self.shared.send_by(&key.public().to_string(), || {
            let queue = self.queue.clone();
            let sender = (self.sender)(key)?;
            anyhow::Ok(Outbox::new(sender, Limits::default(), move |key| queue.add(key)))
        });
        match opened {
            Ok(true) => self.add_all(),
            Ok(false) => {}
            Err(error) => tracing::error!(%error, "webhooks cannot be sent"),
        }
    }

    /// The slow pass that makes up for lost events; also counts managers by phase.
    async fn pass_regularly(self) {
        loop {
            tokio::select! {
                biased;
                () = self.stop.cancelled() => return,
                () = tokio::time::sleep(self.pace.pass) => {}
            }
            self.add_all();
            namespace_manager::count_phases(&self.shared);
        }
    }
}

/// The first pass is done when every manager that there was has been looked at once.
struct FirstPass {
    left: std::sync::Mutex<std::collections::BTreeSet<Key>>,
    check: Check,
}

impl FirstPass {
    fn of(shared: &Shared, check: Check) -> Self {
        let left: std::collections::BTreeSet<_> =
            shared.managers.keys().iter().map(|(namespace, name)| Key::new(namespace, name)).collect();
        check.not_ready("looks at every manager for the first time");
        let none = left.is_empty();
        let this = Self { left: left.into(), check };
        if none {
            this.done();
        }
        this
    }

    fn looked_at(&self, key: &Key) {
        let mut left = self.left.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        if left.remove(key) && left.is_empty() {
            self.done();
        }
    }

    fn done(&self) {
        self.check.ready();
        tracing::info!("every watch has synced and the first pass is done");
    }
}
