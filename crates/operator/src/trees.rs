//! `coppice-operator trees`: the controllers of trees of namespaces, as a program of their own.

use coppice_runtime::intervals::ResyncIntervals;
use coppice_runtime::replica::shutdown_signal;
use coppice_trees::replica::{self, NAME, Setup};
use tokio::runtime::Handle;

use crate::args::Args;
use crate::process::Started;

/// Runs until a signal stops it, or until the lease is lost. The lease and the probes run on the runtime `vital`.
pub(crate) async fn run(args: Args, vital: &Handle) -> anyhow::Result<()> {
    let Started { clients, server_clock, metrics, readiness, election, gate, name, rng, ports: _ports } =
        Started::new(&args, NAME, vital).await?;
    let setup = Setup {
        own_namespace: args.namespace,
        clients,
        server_clock,
        metrics,
        readiness,
        gate,
        identity: name,
        concurrency: args.concurrency,
        rng,
        intervals: ResyncIntervals::default(),
    };
    replica::run(setup, election, vital.clone(), shutdown_signal()).await
}
