//! The program: arguments and wiring only.

mod args;

use std::process::ExitCode;

use anyhow::Context as _;
use args::{Args, Command, ReleaseAllArgs};
use clap::Parser as _;
use coppice_access::release_all;
use coppice_access::replica::{Setup, run};
use coppice_clusters_api::names::PROGRAM;
use coppice_runtime::client::{Clients, load_config};
use coppice_runtime::clock::{Clock, SeededRng};
use coppice_runtime::intervals::ResyncIntervals;
use coppice_runtime::lease::identity;
use coppice_runtime::metrics::Metrics;
use coppice_runtime::replica::shutdown_signal;
use coppice_runtime::server_clock::ServerClock;
use coppice_serve::startup::{Started, prepare, vital_runtime};
use tokio::runtime::{Builder, Handle};

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
    prepare(PROGRAM, args.log_format, args.log.as_deref())?;
    let runtime = Builder::new_multi_thread().enable_all().build()?;
    match &args.command {
        None => runtime.block_on(serve(args, vital_runtime()?.handle())),
        Some(Command::ReleaseAll(own)) => runtime.block_on(release(args, own)),
    }
}

/// Runs until a signal stops it, or until the lease is lost. The lease and the probes run on the runtime `vital`.
async fn serve(args: &Args, vital: &Handle) -> anyhow::Result<()> {
    let Started { clients, server_clock, metrics, readiness, election, gate, name, rng, ports: _ports } =
        Started::new(args.start_options(), |me, seed| args.lease(me, seed), vital).await?;
    let setup = Setup {
        clients,
        server_clock,
        metrics,
        readiness,
        gate,
        identity: name,
        namespace: args.namespace.clone(),
        concurrency: args.concurrency,
        rng,
        intervals: ResyncIntervals::default(),
        unencrypted: args.unencrypted(),
        managed_clusters: args.managed_clusters,
        gone_for: args.gone_for,
        connect: None,
        make_key: None,
    };
    run(setup, election, vital.clone(), shutdown_signal()).await
}

/// Takes finalizers off, before the program is uninstalled.
async fn release(args: &Args, own: &ReleaseAllArgs) -> anyhow::Result<()> {
    let metrics = Metrics::new(env!("CARGO_PKG_VERSION"));
    let server_clock = ServerClock::new(Clock::system());
    let config = load_config(args.kubeconfig.clone(), args.context.clone()).await?;
    let clients =
        Clients::new(config, &server_clock, &metrics).context("the API server's address or certificates")?;
    let mut rng = SeededRng::entropy();
    let me = identity(&release_all::name(args.identity.as_deref()), &mut rng);
    let lease = args.lease(&me, rng.next_u64());
    let setup = release_all::Setup {
        clients,
        server_clock,
        metrics,
        lease,
        namespace: args.namespace.clone(),
        concurrency: args.concurrency,
        rng,
        unencrypted: args.unencrypted(),
        credentials: own.credentials,
        wait: own.wait,
        hold: own.hold,
        dry_run: own.dry_run,
    };
    release_all::run(setup).await
}
