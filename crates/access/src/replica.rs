//! One replica of the program, on whatever API server and clock it is given.

use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::Duration;

use coppice_clusters::kubeconfig::Unencrypted;
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

use crate::cluster_access::ClusterAccessController;
use crate::cluster_provider::ClusterProviderController;
use crate::leftovers::LeftoverController;
use crate::managed_cluster::ManagedClusterController;
use crate::metrics::AccessMetrics;
use crate::shared::Shared;
use crate::target::MakeKey;
use crate::target_leftovers::TargetLeftoverController;
use crate::targets::Connect;

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
    /// Whether it leads.
    pub gate: Gate,
    /// The name by which it signs Events.
    pub identity: String,
    /// The namespace that it lives in, with the kubeconfigs of providers.
    pub namespace: String,
    /// How many objects are worked on at once.
    pub concurrency: NonZeroUsize,
    /// Decides its random choices.
    pub rng: SeededRng,
    /// How often it looks for missed events.
    pub intervals: ResyncIntervals,
    /// To which targets credentials may go unencrypted.
    pub unencrypted: Unencrypted,
    /// Whether it works on `ManagedCluster`s, too.
    pub managed_clusters: bool,
    /// For how long the leader sees that something is left in a target until it deletes it; usually [`GONE_FOR`](crate::GONE_FOR).
    pub gone_for: Duration,
    /// How it reaches targets; none: over the network.
    pub connect: Option<Connect>,
    /// How it makes keys of certificates; none: with the system's randomness.
    pub make_key: Option<MakeKey>,
}

/// Runs a replica until `until` returns what stops it, or until the lease is lost. The election runs on the runtime `on`, so that no
/// other work can keep it from renewing its lease.
///
/// # Errors
/// Why it has ended without being stopped.
pub async fn run(
    setup: Setup,
    election: Election,
    on: Handle,
    until: impl Future<Output = &'static str>,
) -> anyhow::Result<()> {
    let Setup { clients, server_clock, metrics, readiness, gate, .. } = setup;
    let Setup { identity, namespace, concurrency, mut rng, intervals, .. } = setup;
    let Setup { unencrypted, managed_clusters, gone_for, connect, make_key, .. } = setup;
    let clock = server_clock.clock().clone();
    let shared =
        Shared::new(clock.clone(), unencrypted, &namespace, concurrency, connect).with_keys(make_key);
    let seed = SeededRng::new(rng.next_u64());
    let access_metrics = AccessMetrics::new(&metrics);
    let events = Events::new(&clients, clock.clone(), metrics.clone(), &identity, seed);
    let queue = QueueSettings { seed: rng.next_u64(), concurrency, ..QueueSettings::default() };
    let environment = WatchEnvironment {
        clients: clients.clone(),
        clock,
        metrics,
        readiness,
        intervals,
        seed: queue.seed,
        on_collapse: {
            let shared = shared.clone();
            Arc::new(move |collapse| shared.collapsed(collapse))
        },
    };
    let mut runner = Runner::new(environment, gate.clone(), queue, CancellationToken::new());
    runner.add(ClusterAccessController::new(
        clients.clone(),
        server_clock.clone(),
        gate.clone(),
        events.clone(),
        access_metrics.clone(),
        &shared,
    ));
    runner.add(LeftoverController::new(clients.clone(), gate.clone(), access_metrics.clone(), &shared));
    runner.add(TargetLeftoverController::new(
        clients.clone(),
        gate.clone(),
        access_metrics.clone(),
        shared.clone(),
        gone_for,
    ));
    if managed_clusters {
        runner.add(ManagedClusterController::new(
            clients.clone(),
            server_clock.clone(),
            gate.clone(),
            events.clone(),
            access_metrics.clone(),
            &shared,
        ));
    }
    runner.add(ClusterProviderController::new(
        clients,
        server_clock,
        gate,
        events.clone(),
        access_metrics,
        shared,
    ));
    let flush = async { drop(tokio::time::timeout(EVENTS_GRACE, events.flush()).await) };
    Ok(runner.serve(election, on, until, flush).await?)
}
