//! What a replica of a program runs on in the simulation. The operator has the same in `coppice-sim`, besides its webhooks.

use std::num::NonZeroUsize;

use coppice_runtime::client::Clients;
use coppice_runtime::clock::SeededRng;
use coppice_runtime::intervals::ResyncIntervals;
use coppice_runtime::leader::Gate;
use coppice_runtime::lease::{Election, LeaseSettingsError};
use coppice_runtime::metrics::Metrics;
use coppice_runtime::readiness::Readiness;
use coppice_runtime::server_clock::ServerClock;
use coppice_sim::ReplicaContext;

/// How many objects a program works on at once by default.
pub(super) const CONCURRENCY: NonZeroUsize = NonZeroUsize::MIN.saturating_add(15);

/// What a replica runs on, in one of its lives.
pub(super) struct ReplicaEnvironment {
    /// The API server, under the account of the program.
    pub(super) clients: Clients,
    /// Its time.
    pub(super) server_clock: ServerClock,
    /// The metrics, which nobody reads.
    pub(super) metrics: Metrics,
    /// What probes would be answered.
    pub(super) readiness: Readiness,
    /// The name by which it holds the Lease.
    pub(super) identity: String,
    /// Decides its random choices.
    pub(super) rng: SeededRng,
    /// How often it looks for missed events.
    pub(super) intervals: ResyncIntervals,
}

impl ReplicaEnvironment {
    /// That of a replica.
    pub(super) fn new(context: ReplicaContext) -> Self {
        let metrics = Metrics::new("sim");
        let server_clock = ServerClock::new(context.clock.clone());
        let clients = context.clients(&server_clock, &metrics);
        let ReplicaContext { identity, rng, .. } = context;
        let (readiness, intervals) = (Readiness::new(), coppice_sim::intervals());
        Self { clients, server_clock, metrics, readiness, identity, rng, intervals }
    }

    /// Its election for the Lease of this name. Takes one random number.
    pub(super) fn election(
        &mut self,
        namespace: &str,
        name: &str,
    ) -> Result<(Election, Gate), LeaseSettingsError> {
        let lease = coppice_sim::lease_of(namespace, name, &self.identity, &mut self.rng);
        let clock = self.server_clock.clock().clone();
        Election::new(self.clients.clone(), lease, clock, self.metrics.clone())
    }
}
