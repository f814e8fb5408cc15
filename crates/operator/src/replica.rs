//! One replica: assembles its parts, runs them, and shuts them down in order.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use anyhow::Context as _;
use coppice_controllers::cluster_manager::ClusterNamespaceManagers;
use coppice_controllers::config::PlatformConfig;
use coppice_controllers::deleted_namespace::DeletionRecords;
use coppice_controllers::managed_namespace::NamespaceRecords;
use coppice_controllers::namespace_manager::NamespaceManagers;
use coppice_controllers::{ControllerContext, Outboxes};
use coppice_notify::key::SigningKey;
use coppice_notify::outbox::Deliver;
use coppice_notify::seal::Seal;
use coppice_runtime::controller::Runner;
use coppice_runtime::intervals::ResyncIntervals;
use coppice_runtime::lease::Election;
use coppice_runtime::queue::QueueSettings;
use coppice_runtime::readiness::Readiness;
use coppice_runtime::watches::WatchEnvironment;
use tokio::runtime::Handle;
use tokio_util::sync::CancellationToken;

/// Deliveries under way have this long to end at a shutdown.
const OUTBOX_GRACE: Duration = Duration::from_secs(5);
/// Events that are being written have this long to end at a shutdown.
const EVENTS_GRACE: Duration = Duration::from_secs(1);

/// Makes the deliverer of webhooks for a signing key.
pub type DelivererFactory = Arc<dyn Fn(SigningKey) -> anyhow::Result<Arc<dyn Deliver>> + Send + Sync>;

/// One replica of the operator: everything that runs, on whatever API server, clock and network it is given.
pub struct Replica {
    shared: Arc<ControllerContext>,
    queue: QueueSettings,
    readiness: Readiness,
    deliverer_factory: DelivererFactory,
    intervals: ResyncIntervals,
}

impl Replica {
    /// A replica that does nothing yet.
    pub fn new(
        shared: Arc<ControllerContext>,
        queue: QueueSettings,
        readiness: Readiness,
        deliverer_factory: DelivererFactory,
    ) -> Self {
        Self { shared, queue, readiness, deliverer_factory, intervals: ResyncIntervals::default() }
    }

    /// The same with other resync intervals than the program's: for simulations.
    #[must_use]
    pub fn with_intervals(self, intervals: ResyncIntervals) -> Self {
        Self { intervals, ..self }
    }

    /// Runs until `until` returns what stops it, or until the lease is lost. The election runs on the runtime `on`, so
    /// that no other work can keep it from renewing its lease.
    pub async fn serve(
        self,
        election: Election,
        on: Handle,
        until: impl Future<Output = &'static str>,
    ) -> anyhow::Result<()> {
        let (runner, shared) = (self.runner(), self.shared);
        let flush = async {
            if let Some(outboxes) = shared.outboxes() {
                outboxes.shutdown(OUTBOX_GRACE).await;
            }
            // Completed steps are reported, unless the API server no longer answers.
            let _ = tokio::time::timeout(EVENTS_GRACE, shared.events.flush()).await;
        };
        Ok(runner.serve(election, on, until, flush).await?)
    }

    /// Everything that runs: a further controller is a further line.
    fn runner(&self) -> Runner {
        let shared = &self.shared;
        let environment = WatchEnvironment {
            clients: shared.clients.clone(),
            clock: shared.server_clock.clock().clone(),
            metrics: shared.metrics.clone(),
            readiness: self.readiness.clone(),
            intervals: self.intervals,
            seed: self.queue.seed,
            on_collapse: {
                let shared = Arc::clone(shared);
                Arc::new(move |collapse| shared.collapsed(collapse))
            },
        };
        let mut runner =
            Runner::new(environment, shared.gate.clone(), self.queue.clone(), CancellationToken::new());
        runner.add(NamespaceManagers::new(Arc::clone(shared)));
        runner.add(DeletionRecords::new(Arc::clone(shared)));
        runner.add(PlatformConfig::new(Arc::clone(shared), self.open_outboxes()));
        let records = Arc::new(OnceLock::new());
        let counts = runner.add(ClusterNamespaceManagers::new(Arc::clone(shared), Arc::clone(&records)));
        // Added once.
        let _ = records.set(runner.add(NamespaceRecords::new(Arc::clone(shared), counts)));
        runner
    }

    /// Sends webhooks as soon as there is a key to sign them with; their ends enqueue those who wait for them.
    fn open_outboxes(&self) -> impl Fn(SigningKey) + Send + Sync + 'static {
        let (shared, deliverer_factory) = (Arc::clone(&self.shared), Arc::clone(&self.deliverer_factory));
        move |key| {
            let opened = shared.set_outboxes(&key.public().to_string(), || {
                let seal = Seal::new(&key).context("no key for addresses can be derived")?;
                let waiters = Arc::clone(&shared.delivery_waiters);
                let enqueue = move |subject| waiters.ended(&subject);
                anyhow::Ok(Outboxes::new(&deliverer_factory(key)?, seal, enqueue))
            });
            match opened {
                Ok(true) => shared.delivery_waiters.opened(&shared),
                Ok(false) => {}
                Err(error) => tracing::error!(%error, "webhooks cannot be sent"),
            }
        }
    }
}
