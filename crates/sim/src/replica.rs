//! The real operator in a run: started, killed, started again.

use std::sync::Arc;
use std::time::Duration;

use coppice_controllers::{ControllerContext, OperatorOptions};
use coppice_notify::outbox::Deliver;
use coppice_notify::webhook::{Delivered, SendError, WebhookRequest};
use coppice_operator::{DelivererFactory, Replica};
use coppice_runtime::admin::Readiness;
use coppice_runtime::client::{Clients, Deadlines};
use coppice_runtime::clock::{Clock, SeededRng};
use coppice_runtime::events::Events;
use coppice_runtime::intervals::ResyncIntervals;
use coppice_runtime::lease::{Election, LeaseSettings};
use coppice_runtime::metrics::Metrics;
use coppice_runtime::queue::QueueSettings;
use coppice_runtime::server_clock::ServerClock;
use futures::FutureExt as _;
use futures::future::BoxFuture;
use jiff::SignedDuration;
use tokio::runtime::Handle;

use crate::fault::rng;
use crate::receiver::ReceiverBehavior;
use crate::simulation::Simulation;
use crate::trace::Actor;
use crate::transport::Transport;

/// How long after its end a replica is started again.
const RESTART: Duration = Duration::from_secs(3);
/// How long a webhook waits for an answer.
const WEBHOOK_TIMEOUT: Duration = Duration::from_secs(10);

/// How a replica is set up.
#[derive(Clone, Debug)]
pub struct ReplicaSettings {
    /// By how much its clock is wrong.
    pub clock_error: SignedDuration,
    /// When its clock is set right, from the beginning of the run.
    pub clock_set_right: Option<Duration>,
    /// When it is set besides, from the beginning of the run, and how much later it shows then.
    pub clock_jumps: Vec<(Duration, SignedDuration)>,
    /// The startup configuration of the operator.
    pub setup: OperatorOptions,
    /// How often it looks for missed events.
    pub intervals: ResyncIntervals,
    /// The lease's duration, renew deadline and retry pause; none for the program's defaults.
    pub lease: Option<[Duration; 3]>,
}

impl Default for ReplicaSettings {
    /// As the program is installed, except for lists of bulk kinds.
    fn default() -> Self {
        Self {
            clock_error: SignedDuration::ZERO,
            clock_set_right: None,
            clock_jumps: Vec::new(),
            setup: OperatorOptions { own_namespace: "coppice-system".to_owned(), scale_kinds: Vec::new() },
            intervals: intervals(),
            lease: None,
        }
    }
}

/// The program's, with as many lists of bulk kinds as of others: a run in which an event was lost ends after the next one.
fn intervals() -> ResyncIntervals {
    let program = ResyncIntervals::default();
    ResyncIntervals { relist_bulk: program.relist, ..program }
}

impl ReplicaSettings {
    /// By how much its clock is wrong at a time, from the beginning of the run.
    pub fn clock_error_at(&self, at: Duration) -> SignedDuration {
        let set_right = self.clock_set_right.is_some_and(|right| right <= at);
        let error = if set_right { SignedDuration::ZERO } else { self.clock_error };
        let jumps = self.clock_jumps.iter().filter(|(then, _)| *then <= at);
        jumps.fold(error, |error, (_, by)| error + *by)
    }
}

/// Starts a replica for the first time, and again whenever it has ended. Ends with the run.
pub(crate) async fn keep_running(simulation: Simulation, replica: usize, settings: ReplicaSettings) {
    for incarnation in 0.. {
        let running = tokio::spawn(run(simulation.clone(), replica, incarnation, settings.clone()));
        simulation.with(|state| {
            let present = &mut state.incarnations[replica];
            present.number = incarnation;
            present.alive = true;
            present.end = Some(running.abort_handle());
        });
        simulation.note(Actor::Replica { replica, incarnation }, "starts".to_owned());
        let ended = match running.await {
            Ok(Ok(())) => "stops".to_owned(),
            Ok(Err(error)) => format!("ends: {error:#}"),
            Err(error) if error.is_panic() => format!("PANICS: {error}"),
            Err(_) => "is dead".to_owned(),
        };
        simulation.with(|state| state.incarnations[replica].alive = false);
        simulation.note(Actor::Replica { replica, incarnation }, ended);
        tokio::time::sleep(RESTART).await;
    }
}

async fn run(
    simulation: Simulation,
    replica: usize,
    incarnation: u32,
    settings: ReplicaSettings,
) -> anyhow::Result<()> {
    let mut rng = rng(simulation.seed(), 2 + replica as u64 * 1000, incarnation.into());
    let clock = simulation.clock().shifted(settings.clock_error_at(simulation.elapsed()));
    let set_clock = set_clock(simulation.clone(), clock.clone(), settings.clone());
    let metrics = Metrics::new("sim");
    let server_clock = ServerClock::new(clock.clone()).with_intervals(settings.intervals);
    let transport = Transport { simulation: simulation.clone(), replica, incarnation };
    let clients = Clients::over(&transport, Deadlines::default(), &server_clock, &metrics);
    let me = format!("replica-{replica}.{incarnation}");
    let ReplicaSettings { setup, intervals, lease: times, .. } = settings;
    let mut lease = LeaseSettings {
        seed: rng.next_u64(),
        ..LeaseSettings::new(&setup.own_namespace, "coppice-operator", &me)
    };
    if let Some([duration, renew_deadline, retry]) = times {
        lease = LeaseSettings { duration, renew_deadline, retry, ..lease };
    }
    let (election, gate) = Election::new(clients.clone(), lease, clock.clone(), metrics.clone())?;
    let events = Events::new(&clients, clock.clone(), metrics.clone(), &me, SeededRng::new(rng.next_u64()));
    let shared: Arc<ControllerContext> =
        Arc::new(ControllerContext::new(setup, clients, server_clock, gate, metrics, events));
    let queue = QueueSettings { seed: rng.next_u64(), ..QueueSettings::default() };
    let sender: DelivererFactory = Arc::new(move |_| {
        Ok(Arc::new(SimulatedDeliverer { simulation: simulation.clone(), replica, incarnation })
            as Arc<dyn Deliver>)
    });
    let replica = Replica::new(shared, queue, Readiness::new(), sender).with_intervals(intervals);
    tokio::select! {
        biased;
        () = set_clock => Ok(()),
        ended = replica.serve(election, Handle::current(), std::future::pending()) => ended,
    }
}

/// Sets a replica's clock whenever it is time, and does not end.
async fn set_clock(simulation: Simulation, clock: Clock, settings: ReplicaSettings) {
    let mut times: Vec<Duration> = settings.clock_jumps.iter().map(|(at, _)| *at).collect();
    times.extend(settings.clock_set_right);
    times.sort_unstable();
    let mut error = settings.clock_error_at(simulation.elapsed());
    for at in times {
        tokio::time::sleep(at.saturating_sub(simulation.elapsed())).await;
        let wrong = settings.clock_error_at(simulation.elapsed());
        clock.jump(wrong - error);
        error = wrong;
    }
    std::future::pending::<()>().await;
}

/// Brings webhooks to the receiver of the run.
struct SimulatedDeliverer {
    simulation: Simulation,
    replica: usize,
    incarnation: u32,
}

impl Deliver for SimulatedDeliverer {
    fn deliver(&self, request: WebhookRequest) -> BoxFuture<'_, Result<Delivered, SendError>> {
        let transport = Transport {
            simulation: self.simulation.clone(),
            replica: self.replica,
            incarnation: self.incarnation,
        };
        async move {
            tokio::time::sleep(transport.simulation.latency()).await;
            transport.wait_if_dead().await;
            if !transport.simulation.cut_off(transport.replica).is_zero() {
                tokio::time::sleep(WEBHOOK_TIMEOUT).await;
                return Err(SendError::Timeout { after: WEBHOOK_TIMEOUT });
            }
            let at = transport.simulation.elapsed();
            let (reaction, answer) = transport.simulation.with(|state| state.receiver.attempt(at, &request));
            transport.simulation.note(Actor::Receiver, format!("{reaction:?} {}", request.id));
            let pause = if reaction == ReceiverBehavior::TakesSilently {
                WEBHOOK_TIMEOUT
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
