//! The process: from arguments to a running [`Replica`], and the signals that end it.

use std::sync::Arc;

use anyhow::Context as _;
use coppice_controllers::{Setup, Shared};
use coppice_notify::outbox::Deliver;
use coppice_notify::webhook::{WebhookSender, WebhookSettings};
use coppice_operator::{Replica, Sender};
use coppice_runtime::admin::{Admin, Limits, Pages, Readiness};
use coppice_runtime::client::{Clients, load_config};
use coppice_runtime::clock::{Clock, Dice};
use coppice_runtime::events::Events;
use coppice_runtime::lease::{Election, identity};
use coppice_runtime::metrics::Metrics;
use coppice_runtime::queue::QueueSettings;
use coppice_runtime::server_clock::ServerClock;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::args::Args;

/// Runs until told to stop, or until the lease is lost.
pub(crate) async fn run(args: Args) -> anyhow::Result<()> {
    let clock = Clock::system();
    let metrics = Metrics::new(env!("CARGO_PKG_VERSION"));
    let server_clock = ServerClock::new(clock.clone());
    let readiness = Readiness::new();
    let probes = Admin::bind("--listen-probes", args.listen_probes).await?;
    tracing::info!(address = %probes.address()?, "serving /livez and /readyz");
    let scrapes = Admin::bind("--listen", args.listen).await?;
    tracing::info!(address = %scrapes.address()?, "serving /metrics");
    let kube_config = load_config(args.kubeconfig.clone(), args.context.clone()).await?;
    tracing::info!(api_server = %kube_config.cluster_url, version = env!("CARGO_PKG_VERSION"), "starting");
    let clients = Clients::new(kube_config, &server_clock, &metrics)
        .context("the API server's address or certificates")?;
    let name = args.identity.clone().unwrap_or_else(|| "coppice-operator".to_owned());
    let mut dice = Dice::entropy();
    let me = identity(&name, &mut dice);
    let lease = args.lease(&me, dice.roll());
    let (election, gate) = Election::new(clients.clone(), lease, clock.clone(), metrics.clone())?;
    let events = Events::new(&clients, clock.clone(), metrics.clone(), &name, Dice::new(dice.roll()));
    let setup = Setup { own_namespace: args.namespace.clone(), scale_kinds: args.scale_kinds.clone() };
    let shared = Arc::new(Shared::new(setup, clients, server_clock, gate, metrics.clone(), events));
    let queue =
        QueueSettings { concurrency: args.concurrency, seed: dice.roll(), ..QueueSettings::default() };
    let replica = Replica::new(shared, queue, readiness.clone(), sender(roots(&args)?));
    let mut ports = JoinSet::new();
    // Probes are answered until the very end: everything else stops first.
    ports.spawn(probes.serve(Pages::Probes(readiness), Limits::default(), CancellationToken::new()));
    ports.spawn(scrapes.serve(
        Pages::Metrics(Arc::new(metrics)),
        Limits::default(),
        CancellationToken::new(),
    ));
    replica.serve(election, shutdown_signal()).await
}

fn roots(args: &Args) -> anyhow::Result<Vec<u8>> {
    let Some(path) = &args.webhook_ca_file else { return Ok(Vec::new()) };
    std::fs::read(path).with_context(|| format!("--webhook-ca-file {} cannot be read", path.display()))
}

fn sender(roots: Vec<u8>) -> Sender {
    Arc::new(move |key| {
        let settings = WebhookSettings { extra_roots_pem: roots.clone(), ..WebhookSettings::new(key) };
        Ok(Arc::new(WebhookSender::new(settings)?) as Arc<dyn Deliver>)
    })
}

async fn shutdown_signal() -> &'static str {
    use tokio::signal::unix::{SignalKind, signal};
    let (Ok(mut term), Ok(mut interrupt)) =
        (signal(SignalKind::terminate()), signal(SignalKind::interrupt()))
    else {
        return "none: signals cannot be handled";
    };
    tokio::select! {
        biased;
        _ = term.recv() => "SIGTERM",
        _ = interrupt.recv() => "SIGINT",
    }
}
