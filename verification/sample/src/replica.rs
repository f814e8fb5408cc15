//! One replica of the sample's program, on whatever API server and clock it is given.

use std::sync::Arc;
use std::time::Duration;

use coppice_api::names::SYSTEM_NAMESPACE;
use coppice_controllers::{ControllerContext, OperatorOptions};
use coppice_runtime::client::{Clients, Deadlines};
use coppice_runtime::clock::SeededRng;
use coppice_runtime::controller::Runner;
use coppice_runtime::events::Events;
use coppice_runtime::intervals::ResyncIntervals;
use coppice_runtime::lease::{Election, LeaseSettings};
use coppice_runtime::metrics::Metrics;
use coppice_runtime::queue::QueueSettings;
use coppice_runtime::readiness::Readiness;
use coppice_runtime::server_clock::ServerClock;
use coppice_runtime::watches::WatchEnvironment;
use tokio::runtime::Handle;
use tokio_util::sync::CancellationToken;

use crate::namespace_expiry::NamespaceExpiries;

/// The service account, the Lease and the program, in the namespace of Coppice.
pub const NAME: &str = "coppice-sample";
/// Events that are being written have this long to end at a shutdown.
const EVENTS_GRACE: Duration = Duration::from_secs(1);

/// What a replica runs on.
pub struct Setup {
    /// The API server.
    pub clients: Clients,
    /// Its time.
    pub server_clock: ServerClock,
    /// The metrics.
    pub metrics: Metrics,
    /// What probes answer.
    pub readiness: Readiness,
    /// The name by which it holds the Lease: no other replica has the same.
    pub identity: String,
    /// Decides its random choices.
    pub rng: SeededRng,
    /// How often it looks for missed events.
    pub intervals: ResyncIntervals,
}

/// Runs a replica until `until` returns what stops it, or until the lease is lost.
///
/// # Errors
/// Why it has ended without being stopped.
pub async fn run(setup: Setup, until: impl Future<Output = &'static str>) -> anyhow::Result<()> {
    let Setup { clients, server_clock, metrics, readiness, identity, mut rng, intervals } = setup;
    let clock = server_clock.clock().clone();
    let lease =
        LeaseSettings { seed: rng.next_u64(), ..LeaseSettings::new(SYSTEM_NAMESPACE, NAME, &identity) };
    lease.validate_writes(Deadlines::default().write)?;
    let (election, gate) = Election::new(clients.clone(), lease, clock.clone(), metrics.clone())?;
    let events =
        Events::new(&clients, clock.clone(), metrics.clone(), &identity, SeededRng::new(rng.next_u64()));
    let queue = QueueSettings { seed: rng.next_u64(), ..QueueSettings::default() };
    let environment = WatchEnvironment {
        clients: clients.clone(),
        clock,
        metrics: metrics.clone(),
        readiness,
        intervals,
        seed: queue.seed,
        // The operator lists namespaces, too, and opens the breaker of the ledger, which stops this program as well.
        on_collapse: Arc::new(|collapse| tracing::error!(?collapse, "a list has collapsed")),
    };
    let options = OperatorOptions { own_namespace: SYSTEM_NAMESPACE.to_owned(), scale_kinds: Vec::new() };
    let shared =
        ControllerContext::new(options, clients, server_clock, gate.clone(), metrics, events.clone());
    let mut runner = Runner::new(environment, gate, queue, CancellationToken::new());
    runner.add(NamespaceExpiries::new(Arc::new(shared)));
    let flush = async { drop(tokio::time::timeout(EVENTS_GRACE, events.flush()).await) };
    Ok(runner.serve(election, Handle::current(), until, flush).await?)
}
