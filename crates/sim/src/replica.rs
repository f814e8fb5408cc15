//! The real operator, in the world of a run: started, killed, started again.

use std::sync::Arc;
use std::time::Duration;

use coppice_controllers::{Setup, Shared};
use coppice_notify::outbox::Deliver;
use coppice_notify::webhook::{Delivered, SendError, WebhookRequest};
use coppice_operator::{Replica, Sender};
use coppice_runtime::admin::Readiness;
use coppice_runtime::client::{Clients, Deadlines};
use coppice_runtime::clock::{Clock, Dice};
use coppice_runtime::events::Events;
use coppice_runtime::lease::{Election, LeaseSettings};
use coppice_runtime::metrics::Metrics;
use coppice_runtime::pace::Pace;
use coppice_runtime::queue::QueueSettings;
use coppice_runtime::server_clock::ServerClock;
use futures::FutureExt as _;
use futures::future::BoxFuture;
use jiff::SignedDuration;
use tokio::runtime::Handle;

use crate::fault::dice;
use crate::receiver::Reaction;
use crate::trace::Who;
use crate::transport::Transport;
use crate::world::World;

/// How long after its end a replica is started again.
const RESTART: Duration = Duration::from_secs(3);
/// How long a webhook waits for an answer.
const NO_ANSWER: Duration = Duration::from_secs(10);

/// How a replica is set up.
#[derive(Clone, Debug)]
pub struct ReplicaSettings {
    /// By how much its clock is wrong.
    pub clock_error: SignedDuration,
    /// When its clock is set right, from the beginning of the run.
    pub clock_set_right: Option<Duration>,
    /// When it is set besides, from the beginning of the run, and how much later it shows then.
    pub clock_jumps: Vec<(Duration, SignedDuration)>,
    /// What the operator is told at its start.
    pub setup: Setup,
    /// How often it looks for what it may have missed.
    pub pace: Pace,
    /// The lease's duration, renew deadline and retry pause; none for the program's defaults.
    pub lease: Option<[Duration; 3]>,
}

impl Default for ReplicaSettings {
    /// As the program is installed.
    fn default() -> Self {
        Self {
            clock_error: SignedDuration::ZERO,
            clock_set_right: None,
            clock_jumps: Vec::new(),
            setup: Setup { own_namespace: "coppice-system".to_owned(), scale_kinds: Vec::new() },
            pace: Pace::default(),
            lease: None,
        }
    }
}

impl ReplicaSettings {
    /// By how much its clock is wrong at a time, from the beginning of the run.
    pub(crate) fn clock_error_at(&self, at: Duration) -> SignedDuration {
        let set_right = self.clock_set_right.is_some_and(|right| right <= at);
        let error = if set_right { SignedDuration::ZERO } else { self.clock_error };
        let jumps = self.clock_jumps.iter().filter(|(then, _)| *then <= at);
        jumps.fold(error, |error, (_, by)| error + *by)
    }
}

/// Starts a replica for the first time, and again whenever it has ended. Ends with the run.
pub(crate) async fn keep_running(world: World, replica: usize, settings: ReplicaSettings) {
    for life in 0.. {
        let running = tokio::spawn(run(world.clone(), replica, life, settings.clone()));
        world.with(|state| {
            let present = &mut state.lives[replica];
            present.number = life;
            present.alive = true;
            present.end = Some(running.abort_handle());
        });
        world.note(Who::Replica { replica, life }, "starts".to_owned());
        let ended = match running.await {
            Ok(Ok(())) => "stops".to_owned(),
            Ok(Err(error)) => format!("ends: {error:#}"),
            Err(error) if error.is_panic() => format!("PANICS: {error}"),
            Err(_) => "is dead".to_owned(),
        };
        world.with(|state| state.lives[replica].alive = false);
        world.note(Who::Replica { replica, life }, ended);
        tokio::time::sleep(RESTART).await;
    }
}

async fn run(world: World, replica: usize, life: u32, settings: ReplicaSettings) -> anyhow::Result<()> {
    let mut dice = dice(world.seed(), 2 + replica as u64 * 1000, life.into());
    let clock = world.clock().shifted(settings.clock_error_at(world.elapsed()));
    let set_clock = set_clock(world.clone(), clock.clone(), settings.clone());
    let metrics = Metrics::new("sim");
    let server_clock = ServerClock::new(clock.clone()).at_pace(settings.pace);
    let transport = Transport { world: world.clone(), replica, life };
    let clients = Clients::over(&transport, Deadlines::default(), &server_clock, &metrics);
    let me = format!("replica-{replica}.{life}");
    let ReplicaSettings { setup, pace, lease: times, .. } = settings;
    let mut lease = LeaseSettings {
        seed: dice.roll(),
        ..LeaseSettings::new(&setup.own_namespace, "coppice-operator", &me)
    };
    if let Some([duration, renew_deadline, retry]) = times {
        lease = LeaseSettings { duration, renew_deadline, retry, ..lease };
    }
    let (election, gate) = Election::new(clients.clone(), lease, clock.clone(), metrics.clone())?;
    let events = Events::new(&clients, clock.clone(), metrics.clone(), &me, Dice::new(dice.roll()));
    let shared: Arc<Shared> = Arc::new(Shared::new(setup, clients, server_clock, gate, metrics, events));
    let queue = QueueSettings { seed: dice.roll(), ..QueueSettings::default() };
    let sender: Sender =
        Arc::new(move |_| Ok(Arc::new(Post { world: world.clone(), replica, life }) as Arc<dyn Deliver>));
    let replica = Replica::new(shared, queue, Readiness::new(), sender).at_pace(pace);
    tokio::select! {
        biased;
        () = set_clock => Ok(()),
        ended = replica.serve(election, Handle::current(), std::future::pending()) => ended,
    }
}

/// Sets a replica's clock whenever it is time, and does not end.
async fn set_clock(world: World, clock: Clock, settings: ReplicaSettings) {
    let mut times: Vec<Duration> = settings.clock_jumps.iter().map(|(at, _)| *at).collect();
    times.extend(settings.clock_set_right);
    times.sort_unstable();
    let mut error = settings.clock_error_at(world.elapsed());
    for at in times {
        tokio::time::sleep(at.saturating_sub(world.elapsed())).await;
        let wrong = settings.clock_error_at(world.elapsed());
        clock.jump(wrong - error);
        error = wrong;
    }
    std::future::pending::<()>().await;
}

/// Brings webhooks to the receiver of the run.
struct Post {
    world: World,
    replica: usize,
    life: u32,
}

impl Deliver for Post {
    fn deliver(&self, request: WebhookRequest) -> BoxFuture<'_, Result<Delivered, SendError>> {
        let way = Transport { world: self.world.clone(), replica: self.replica, life: self.life };
        async move {
            tokio::time::sleep(way.world.latency()).await;
            way.still_there().await;
            if !way.world.cut_off(way.replica).is_zero() {
                tokio::time::sleep(NO_ANSWER).await;
                return Err(SendError::Timeout { after: NO_ANSWER });
            }
            let at = way.world.elapsed();
            let (reaction, answer) = way.world.with(|state| state.receiver.attempt(at, &request));
            way.world.note(Who::Receiver, format!("{reaction:?} {}", request.id));
            let pause = if reaction == Reaction::TakesSilently { NO_ANSWER } else { way.world.latency() };
            tokio::time::sleep(pause).await;
            way.still_there().await;
            answer
        }
        .boxed()
    }
}
