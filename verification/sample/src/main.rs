//! The sample's program: arguments and wiring only.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::Parser;
use coppice_runtime::client::{Clients, load_config};
use coppice_runtime::clock::{Clock, SeededRng};
use coppice_runtime::intervals::ResyncIntervals;
use coppice_runtime::lease::identity;
use coppice_runtime::logging::LogFormat;
use coppice_runtime::metrics::Metrics;
use coppice_runtime::readiness::Readiness;
use coppice_runtime::replica::shutdown_signal;
use coppice_runtime::server_clock::ServerClock;
use coppice_sample::replica::{NAME, Setup, run};
use coppice_serve::port::{Port, PortLimits};
use coppice_serve::probes::Probes;
use coppice_serve::startup::prepare;
use tokio_util::sync::CancellationToken;

/// Deletes namespaces by their `NamespaceExpiry`.
#[derive(Debug, Parser)]
#[command(name = NAME, version)]
struct Args {
    /// Connect by this kubeconfig; by default by the service account of the pod, else as kubectl would.
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,

    /// Where to serve /livez and /readyz.
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "127.0.0.1:8081")]
    listen_probes: SocketAddr,
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let args = Args::parse();
    prepare(NAME, LogFormat::Text, None)?;
    let metrics = Metrics::new(env!("CARGO_PKG_VERSION"));
    let server_clock = ServerClock::new(Clock::system());
    let config = load_config(args.kubeconfig, None).await?;
    let clients = Clients::new(config, &server_clock, &metrics)?;
    let readiness = Readiness::new();
    let probes = Port::bind("--listen-probes", args.listen_probes).await?;
    let page = Probes::new(readiness.clone());
    tokio::spawn(probes.serve(page, None, PortLimits::default(), CancellationToken::new()));
    let mut rng = SeededRng::entropy();
    let identity = identity(NAME, &mut rng);
    let intervals = ResyncIntervals::default();
    let setup = Setup { clients, server_clock, metrics, readiness, identity, rng, intervals };
    run(setup, shutdown_signal()).await
}
