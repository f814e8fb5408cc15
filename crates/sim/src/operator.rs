//! The real operator as a program of a simulation.

use std::sync::Arc;
use std::time::Duration;

use coppice_controllers::{ControllerContext, OperatorOptions};
use coppice_notify::outbox::Deliver;
use coppice_notify::request::{DeliverError, DeliveryRequest};
use coppice_notify::webhook::{Delivered, SendError};
use coppice_operator::{DelivererFactory, Replica};
use coppice_runtime::clock::SeededRng;
use coppice_runtime::events::Events;
use coppice_runtime::intervals::ResyncIntervals;
use coppice_runtime::lease::{Election, LeaseSettings};
use coppice_runtime::metrics::Metrics;
use coppice_runtime::queue::QueueSettings;
use coppice_runtime::readiness::Readiness;
use coppice_runtime::server_clock::ServerClock;
use futures::FutureExt as _;
use futures::future::BoxFuture;
use tokio::runtime::Handle;

use crate::receiver::{self, ReceiverBehavior};
use crate::replica::{Program, ReplicaContext};
use crate::trace::Actor;
use crate::transport::Transport;

/// The user that the API server knows the operator as.
pub(crate) const OPERATOR: &str = "system:serviceaccount:coppice-system:coppice";
/// The name of its Lease.
const LEASE: &str = "coppice-operator";

/// The operator.
#[derive(Clone, Debug)]
pub struct Operator {
    /// Its startup configuration.
    pub setup: OperatorOptions,
    /// How often it looks for missed events.
    pub intervals: ResyncIntervals,
    /// The lease's duration, renew deadline and retry pause; none for those of [`lease_of`].
    pub lease: Option<[Duration; 3]>,
}

impl Default for Operator {
    /// As the program is installed, except for how often it lists and renews its lease.
    fn default() -> Self {
        Self {
            setup: OperatorOptions { own_namespace: "coppice-system".to_owned(), scale_kinds: Vec::new() },
            intervals: intervals(),
            lease: None,
        }
    }
}

/// How often programs list, of every kind; or up to a fifth later.
pub(crate) const RELIST: Duration = Duration::from_mins(4);

/// The intervals of programs, with lists more often, and of bulk kinds as often as of others: a run in which an event was lost ends after
/// the next one, and until then it renews leases.
pub fn intervals() -> ResyncIntervals {
    ResyncIntervals { relist: RELIST, relist_bulk: RELIST, ..ResyncIntervals::default() }
}

/// The lease of a program, as long as by default, and renewed half as often: renewals are most of what a run does.
pub fn lease_of(namespace: &str, name: &str, identity: &str, rng: &mut SeededRng) -> LeaseSettings {
    let default = LeaseSettings::new(namespace, name, identity);
    LeaseSettings { seed: rng.next_u64(), retry: default.retry * 2, ..default }
}

impl Program for Operator {
    fn account(&self) -> &'static str {
        OPERATOR
    }

    fn lease(&self) -> (&str, &str) {
        (&self.setup.own_namespace, LEASE)
    }

    fn run(&self, context: ReplicaContext) -> BoxFuture<'static, anyhow::Result<()>> {
        run(self.clone(), context).boxed()
    }
}

async fn run(operator: Operator, context: ReplicaContext) -> anyhow::Result<()> {
    let Operator { setup, intervals, lease: times } = operator;
    let metrics = Metrics::new("sim");
    let server_clock = ServerClock::new(context.clock.clone()).with_intervals(intervals);
    let clients = context.clients(&server_clock, &metrics);
    let ReplicaContext { identity, clock, mut rng, transport, .. } = context;
    let mut lease = lease_of(&setup.own_namespace, LEASE, &identity, &mut rng);
    if let Some([duration, renew_deadline, retry]) = times {
        lease = LeaseSettings { duration, renew_deadline, retry, ..lease };
    }
    let (election, gate) = Election::new(clients.clone(), lease, clock.clone(), metrics.clone())?;
    let events = Events::new(&clients, clock, metrics.clone(), &identity, SeededRng::new(rng.next_u64()));
    let shared: Arc<ControllerContext> =
        Arc::new(ControllerContext::new(setup, clients, server_clock, gate, metrics, events));
    let queue = QueueSettings { seed: rng.next_u64(), ..QueueSettings::default() };
    let sender: DelivererFactory =
        Arc::new(move |_| Ok(Arc::new(SimulatedDeliverer(transport.clone())) as Arc<dyn Deliver>));
    let replica = Replica::new(shared, queue, Readiness::new(), sender).with_intervals(intervals);
    replica.serve(election, Handle::current(), std::future::pending()).await
}

/// Brings webhooks and messages to the receiver of the run.
struct SimulatedDeliverer(Transport);

impl Deliver for SimulatedDeliverer {
    fn deliver(&self, request: DeliveryRequest) -> BoxFuture<'_, Result<Delivered, DeliverError>> {
        let transport = &self.0;
        async move {
            tokio::time::sleep(transport.simulation.latency()).await;
            transport.wait_if_dead().await;
            if !transport.simulation.cut_off(transport.replica).is_zero() {
                tokio::time::sleep(receiver::TIMEOUT).await;
                return Err(SendError::Timeout { after: receiver::TIMEOUT }.into());
            }
            let (at, id) = (transport.simulation.elapsed(), request.id().to_owned());
            let (behavior, answer) = transport.simulation.with(|state| state.receiver.attempt(at, &request));
            let Some(behavior) = behavior else { return answer };
            transport.simulation.note(Actor::Receiver, format!("{behavior:?} {id}"));
            let pause = if behavior == ReceiverBehavior::TakesSilently {
                receiver::TIMEOUT
            } else {
                transport.simulation.latency()
            };
            tokio::time::sleep(pause).await;
            transport.wait_if_dead().await;
            answer
        }
        .boxed()
    }
}
