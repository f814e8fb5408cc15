//! Programs, and their replicas in a run: started, killed, started again.

use std::sync::Arc;
use std::time::Duration;

use coppice_runtime::client::{Clients, Deadlines};
use coppice_runtime::clock::{Clock, SeededRng};
use coppice_runtime::metrics::Metrics;
use coppice_runtime::server_clock::ServerClock;
use futures::future::BoxFuture;
use jiff::SignedDuration;

use crate::fault::rng;
use crate::simulation::Simulation;
use crate::target::Credential;
use crate::trace::Actor;
use crate::transport::Transport;
use crate::webhook::{WebhookConfiguration, WebhookPort};

/// How long after its end a replica is started again.
const RESTART: Duration = Duration::from_secs(3);

/// A program that runs on clients of the simulated API server until it is stopped.
pub trait Program: Send + Sync {
    /// The user that the API server knows it as.
    fn account(&self) -> &'static str;

    /// Namespace and name of the Lease that its replicas compete for.
    fn lease(&self) -> (&str, &str);

    /// The admission webhook that its replicas serve, if they do.
    fn webhook(&self) -> Option<WebhookConfiguration> {
        None
    }

    /// One life of a replica. It is dropped when the replica is killed; a replica that ends is started again.
    fn run(&self, context: ReplicaContext) -> BoxFuture<'static, anyhow::Result<()>>;
}

/// What a replica has in one of its lives.
pub struct ReplicaContext {
    /// By which name it holds the Lease: no other replica has the same, and no other life of this one.
    pub identity: String,
    /// Its clock, which may be wrong.
    pub clock: Clock,
    /// Decides its random choices.
    pub rng: SeededRng,
    /// Where the API server reaches its admission webhook.
    pub webhook_port: WebhookPort,
    pub(crate) transport: Transport,
}

impl ReplicaContext {
    /// Clients of the API server, under the account of the program.
    pub fn clients(&self, server_clock: &ServerClock, metrics: &Metrics) -> Clients {
        Clients::over(&self.transport, Deadlines::default(), server_clock, metrics)
    }

    /// The way to the second API server.
    pub fn target_port(&self) -> TargetPort {
        TargetPort(self.transport.clone())
    }
}

/// The way of a replica to the second API server of a run, in one of its lives.
#[derive(Clone)]
pub struct TargetPort(Transport);

impl TargetPort {
    /// Clients of that API server, in the name of whoever has this token.
    pub fn clients(&self, token: &str, server_clock: &ServerClock, metrics: &Metrics) -> Clients {
        self.clients_of(Credential::Token(token.into()), server_clock, metrics)
    }

    /// The same in the name of whoever has this certificate and this key, both in PEM, in base64; none if that is no key.
    pub fn clients_by_certificate(
        &self,
        (certificate, key): (&str, &str),
        server_clock: &ServerClock,
        metrics: &Metrics,
    ) -> Option<Clients> {
        let credential = Credential::of_certificate(certificate, key)?;
        Some(self.clients_of(credential, server_clock, metrics))
    }

    fn clients_of(&self, credential: Credential, server_clock: &ServerClock, metrics: &Metrics) -> Clients {
        let transport = Transport { credential: Some(credential), ..self.0.clone() };
        Clients::over(&transport, Deadlines::default(), server_clock, metrics)
    }
}

/// How a replica is set up.
#[derive(Clone)]
pub struct ReplicaSettings {
    /// What it runs.
    pub program: Arc<dyn Program>,
    /// By how much its clock is wrong.
    pub clock_error: SignedDuration,
    /// When its clock is set right, from the beginning of the run.
    pub clock_set_right: Option<Duration>,
    /// When it is set besides, from the beginning of the run, and how much later it shows then.
    pub clock_jumps: Vec<(Duration, SignedDuration)>,
}

impl ReplicaSettings {
    /// A replica of a program, with a clock that is right.
    pub fn new(program: Arc<dyn Program>) -> Self {
        Self { program, clock_error: SignedDuration::ZERO, clock_set_right: None, clock_jumps: Vec::new() }
    }

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
    let rng = rng(simulation.seed(), 2 + replica as u64 * 1000, incarnation.into());
    let clock = simulation.clock().shifted(settings.clock_error_at(simulation.elapsed()));
    let set_clock = set_clock(simulation.clone(), clock.clone(), settings.clone());
    let account = settings.program.account();
    let webhook_port = WebhookPort::new(simulation.clone(), replica, incarnation);
    let transport = Transport { simulation, replica, incarnation, account, credential: None };
    let identity = Actor::Replica { replica, incarnation }.to_string();
    let running = settings.program.run(ReplicaContext { identity, clock, rng, webhook_port, transport });
    tokio::select! {
        biased;
        () = set_clock => Ok(()),
        ended = running => ended,
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
