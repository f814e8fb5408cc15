//! The process: from arguments to a running [`Replica`], and the signals that end it.

use std::sync::Arc;

use anyhow::Context as _;
use coppice_controllers::{ControllerContext, OperatorOptions};
use coppice_notify::channel::Deliverer;
use coppice_notify::credentials::Credentials;
use coppice_notify::outbox::Deliver;
use coppice_notify::webhook::WebhookSettings;
use coppice_operator::{DelivererFactory, Replica};
use coppice_runtime::clock::SeededRng;
use coppice_runtime::events::Events;
use coppice_runtime::queue::QueueSettings;
use coppice_runtime::replica::shutdown_signal;
use coppice_serve::startup::Started;
use tokio::runtime::Handle;

use crate::args::Args;

/// Runs until a signal stops it, or until the lease is lost. The lease and the probes run on the runtime `vital`.
pub(crate) async fn run(args: Args, vital: &Handle) -> anyhow::Result<()> {
    let Started { clients, server_clock, metrics, readiness, election, gate, name, mut rng, ports: _ports } =
        Started::new(args.start_options("coppice-operator"), |me, seed| args.lease(me, seed), vital).await?;
    let events = Events::new(
        &clients,
        server_clock.clock().clone(),
        metrics.clone(),
        &name,
        SeededRng::new(rng.next_u64()),
    );
    let setup =
        OperatorOptions { own_namespace: args.namespace.clone(), scale_kinds: args.scale_kinds.clone() };
    let shared = Arc::new(ControllerContext::new(setup, clients, server_clock, gate, metrics, events));
    let queue =
        QueueSettings { concurrency: args.concurrency, seed: rng.next_u64(), ..QueueSettings::default() };
    let replica = Replica::new(shared, queue, readiness, deliverer_factory(&args)?);
    replica.serve(election, vital.clone(), shutdown_signal()).await
}

fn deliverer_factory(args: &Args) -> anyhow::Result<DelivererFactory> {
    let roots = match &args.webhook_ca_file {
        Some(path) => std::fs::read(path)
            .with_context(|| format!("--webhook-ca-file {} cannot be read", path.display()))?,
        None => Vec::new(),
    };
    if let Some(directory) = &args.credentials_dir {
        // What is in it is read when it is needed; that there is no such directory is found now.
        let found = std::fs::metadata(directory).is_ok_and(|found| found.is_dir());
        anyhow::ensure!(found, "--credentials-dir {} is no directory", directory.display());
    }
    let credentials = Credentials::of_directory(args.credentials_dir.clone());
    Ok(Arc::new(move |key| {
        let settings = WebhookSettings { extra_roots_pem: roots.clone(), ..WebhookSettings::new(key) };
        Ok(Arc::new(Deliverer::new(settings, credentials.clone())?) as Arc<dyn Deliver>)
    }))
}
