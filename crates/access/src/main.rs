//! The program: arguments and wiring only.

mod args;

use std::process::ExitCode;

use anyhow::Context as _;
use args::Args;
use clap::Parser as _;
use coppice_access::replica::{Setup, run};
use coppice_clusters_api::names::PROGRAM;
use coppice_runtime::client::{Clients, Deadlines, load_config};
use coppice_runtime::clock::{Clock, SeededRng};
use coppice_runtime::intervals::ResyncIntervals;
use coppice_runtime::lease::{Election, identity};
use coppice_runtime::logging;
use coppice_runtime::metrics::Metrics;
use coppice_runtime::readiness::Readiness;
use coppice_runtime::replica::shutdown_signal;
use coppice_runtime::server_clock::ServerClock;
use coppice_serve::access::Access;
use coppice_serve::certificate::{Certificate, SelfSigned};
use coppice_serve::metrics::MetricsPage;
use coppice_serve::port::{Port, PortLimits};
use coppice_serve::probes::Probes;
use tokio::runtime::{Builder, Handle};
use tokio_util::sync::CancellationToken;

/// Gives the pages of a finished list back to the system.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    match start(&Args::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            tracing::error!("{PROGRAM} ends: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn start(args: &Args) -> anyhow::Result<()> {
    let format = match args.log_format {
        args::LogFormat::Text => logging::LogFormat::Text,
        args::LogFormat::Json => logging::LogFormat::Json,
    };
    if let Err(error) = logging::init(format, args.log.as_deref()) {
        // There is no log to write this to.
        eprintln!("{PROGRAM}: --log: {error}");
        anyhow::bail!("--log: {error}");
    }
    coppice_runtime::panic::log_panics();
    if rustls::crypto::ring::default_provider().install_default().is_err() {
        anyhow::bail!("a TLS provider is installed already");
    }
    let runtime = Builder::new_multi_thread().enable_all().build()?;
    // The lease and the probes have a thread of their own: other work can keep the others busy.
    let vital = Builder::new_multi_thread().worker_threads(1).thread_name("vital").enable_all().build()?;
    runtime.block_on(serve(args, vital.handle()))
}

async fn serve(args: &Args, vital: &Handle) -> anyhow::Result<()> {
    let (clock, metrics) = (Clock::system(), Metrics::new(env!("CARGO_PKG_VERSION")));
    let (server_clock, readiness) = (ServerClock::new(clock.clone()), Readiness::new());
    let probes = vital.spawn(Port::bind("--listen-probes", args.listen_probes)).await??;
    tracing::info!(address = %probes.address()?, "serving /livez and /readyz");
    let page = Probes::new(readiness.clone());
    vital.spawn(probes.serve(page, None, PortLimits::default(), CancellationToken::new()));
    let kube_config = load_config(args.kubeconfig.clone(), args.context.clone()).await?;
    tracing::info!(api_server = %kube_config.cluster_url, version = env!("CARGO_PKG_VERSION"), "starting");
    let unusable = "the API server's address or certificates";
    let clients = Clients::new(kube_config.clone(), &server_clock, &metrics).context(unusable)?;
    let for_lease = {
        let _on = vital.enter();
        clients.with_own_connections(kube_config, &server_clock, &metrics).context(unusable)?
    };
    serve_metrics(args, &metrics, &clients).await?;
    let name = args.identity.clone().unwrap_or_else(|| PROGRAM.to_owned());
    let mut rng = SeededRng::entropy();
    let lease = args.lease(&identity(&name, &mut rng), rng.next_u64());
    lease.validate_writes(Deadlines::default().write)?;
    let (election, gate) = Election::new(for_lease, lease, clock, metrics.clone())?;
    let setup = Setup {
        clients,
        server_clock,
        metrics,
        readiness,
        gate,
        identity: name,
        concurrency: args.concurrency,
        rng,
        intervals: ResyncIntervals::default(),
        unencrypted: args.unencrypted(),
    };
    run(setup, election, vital.clone(), shutdown_signal()).await
}

async fn serve_metrics(args: &Args, metrics: &Metrics, clients: &Clients) -> anyhow::Result<()> {
    let port = Port::bind("--listen", args.listen).await?;
    tracing::info!(address = %port.address()?, tls = !args.metrics_insecure, "serving /metrics");
    let (limits, stop) = (PortLimits::default(), CancellationToken::new());
    if args.metrics_insecure {
        tokio::spawn(port.serve(MetricsPage::insecure(metrics.clone()), None, limits, stop));
        return Ok(());
    }
    let certificate = Certificate::default();
    let names = vec!["coppice".to_owned(), "localhost".to_owned()];
    tokio::spawn(SelfSigned::make(names, &certificate, Clock::system())?.keep());
    let page = MetricsPage::new(metrics.clone(), Access::new(clients.clone()));
    tokio::spawn(port.serve(page, Some(certificate.tls()?), limits, stop));
    Ok(())
}
