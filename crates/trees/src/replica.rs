//! One replica of the controllers of trees, on whatever API server and clock it is given.

use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::Duration;

use coppice_api::names::TREES_ACCOUNT;
use coppice_controllers::{ControllerContext, OperatorOptions};
use coppice_runtime::client::Clients;
use coppice_runtime::clock::SeededRng;
use coppice_runtime::controller::Runner;
use coppice_runtime::events::Events;
use coppice_runtime::intervals::ResyncIntervals;
use coppice_runtime::leader::Gate;
use coppice_runtime::lease::Election;
use coppice_runtime::metrics::Metrics;
use coppice_runtime::queue::QueueSettings;
use coppice_runtime::readiness::Readiness;
use coppice_runtime::server_clock::ServerClock;
use coppice_runtime::watches::WatchEnvironment;
use tokio::runtime::Handle;
use tokio_util::sync::CancellationToken;

use crate::admission::Reviews;
use crate::context::TreeContext;
use crate::namespace_tree::NamespaceTreeController;
use crate::propagation::PropagationController;
use crate::quota_transfer::QuotaTransferController;
use crate::subnamespace::SubnamespaceController;

/// The service account, the Lease and the Deployment.
pub const NAME: &str = TREES_ACCOUNT;
/// Events that are being written have this long to end at a shutdown.
const EVENTS_GRACE: Duration = Duration::from_secs(1);

const TWO: NonZeroUsize = NonZeroUsize::MIN.saturating_add(1);

/// What a replica runs on.
pub struct Setup {
    /// The namespace that it lives in.
    pub own_namespace: String,
    /// The API server.
    pub clients: Clients,
    /// Its time.
    pub server_clock: ServerClock,
    /// The metrics.
    pub metrics: Metrics,
    /// What probes answer.
    pub readiness: Readiness,
    /// Whether it leads.
    pub gate: Gate,
    /// The name by which it signs Events.
    pub identity: String,
    /// Twice as many objects of a kind are worked on at once. Of siblings one is; the others wait for their turn without being worked on.
    pub concurrency: NonZeroUsize,
    /// Decides its random choices.
    pub rng: SeededRng,
    /// How often it looks for missed events.
    pub intervals: ResyncIntervals,
}

/// A replica that does not run yet.
pub struct Replica {
    runner: Runner,
    events: Events,
    context: Arc<TreeContext>,
}

impl Replica {
    /// With everything that runs: a further controller is a further line.
    pub fn new(setup: Setup) -> Self {
        let Setup { own_namespace, clients, server_clock, metrics, readiness, gate, identity, .. } = setup;
        let (concurrency, mut rng, intervals) = (setup.concurrency, setup.rng, setup.intervals);
        let clock = server_clock.clock().clone();
        let events =
            Events::new(&clients, clock.clone(), metrics.clone(), &identity, SeededRng::new(rng.next_u64()));
        // Most of the time each waits for the API server.
        let concurrency = concurrency.saturating_mul(TWO);
        let queue = QueueSettings { seed: rng.next_u64(), concurrency, ..QueueSettings::default() };
        let environment = WatchEnvironment {
            clients: clients.clone(),
            clock,
            metrics: metrics.clone(),
            readiness,
            intervals,
            seed: queue.seed,
            // The operator lists namespaces, too, and opens the breaker of the ledger, which stops deletions of this program as well.
            on_collapse: Arc::new(|collapse| tracing::error!(?collapse, "a list has collapsed")),
        };
        let options = OperatorOptions { own_namespace, scale_kinds: Vec::new() };
        let shared =
            ControllerContext::new(options, clients, server_clock, gate.clone(), metrics, events.clone());
        let context = Arc::new(TreeContext::new(shared));
        let mut runner = Runner::new(environment, gate, queue, CancellationToken::new());
        runner.add(NamespaceTreeController::new(Arc::clone(&context)));
        runner.add(SubnamespaceController::new(Arc::clone(&context)));
        runner.add(QuotaTransferController::new(Arc::clone(&context)));
        runner.add(PropagationController::new(Arc::clone(&context)));
        Self { runner, events, context }
    }

    /// What answers requests to the API server, on the caches of this replica, whether it leads or not.
    pub fn reviews(&self) -> Reviews {
        Reviews::new(Arc::clone(&self.context))
    }

    /// Runs until `until` returns what stops it, or until the lease is lost. The election runs on the runtime `on`, so that no other
    /// work can keep it from renewing its lease.
    ///
    /// # Errors
    /// Why it has ended without being stopped.
    pub async fn run(
        self,
        election: Election,
        on: Handle,
        until: impl Future<Output = &'static str>,
    ) -> anyhow::Result<()> {
        let Self { runner, events, .. } = self;
        let flush = async { drop(tokio::time::timeout(EVENTS_GRACE, events.flush()).await) };
        Ok(runner.serve(election, on, until, flush).await?)
    }
}
