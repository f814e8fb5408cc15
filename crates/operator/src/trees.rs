//! `coppice-operator trees`: the controllers of trees of namespaces, as a program of their own.

use anyhow::Context as _;
use coppice_api::names::{TREES_ACCOUNT, TREES_ADMISSION};
use coppice_operator::TreeReviewer;
use coppice_runtime::client::Clients;
use coppice_runtime::clock::Clock;
use coppice_runtime::intervals::ResyncIntervals;
use coppice_runtime::leader::Gate;
use coppice_runtime::metrics::Metrics;
use coppice_runtime::readiness::Readiness;
use coppice_runtime::replica::shutdown_signal;
use coppice_serve::admission::{Admission, AdmissionMetrics, LIMITS, PATH};
use coppice_serve::certificate::{Certificate, FromDirectory};
use coppice_serve::keeper::Keeper;
use coppice_serve::port::Port;
use coppice_serve::startup::Started;
use coppice_trees::admission::Reviews;
use coppice_trees::replica::{NAME, Replica, Setup};
use tokio::runtime::Handle;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::args::{Args, TreesArgs};

/// Runs until a signal stops it, or until the lease is lost. The lease and the probes run on the runtime `vital`.
pub(crate) async fn run(args: Args, own: TreesArgs, vital: &Handle) -> anyhow::Result<()> {
    let Started { clients, server_clock, metrics, readiness, election, gate, name, rng, ports: _ports } =
        Started::new(args.start_options(NAME), |me, seed| args.lease(me, seed), vital).await?;
    let shown = AdmissionParts {
        clients: clients.clone(),
        gate: gate.clone(),
        metrics: metrics.clone(),
        readiness: readiness.clone(),
        namespace: args.namespace.clone(),
    };
    let replica = Replica::new(Setup {
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
    });
    let _admission = serve_admission(&own, shown, replica.reviews()).await?;
    replica.run(election, vital.clone(), shutdown_signal()).await
}

/// What the admission webhook shares with the rest.
struct AdmissionParts {
    clients: Clients,
    gate: Gate,
    metrics: Metrics,
    readiness: Readiness,
    namespace: String,
}

/// Serves the admission webhook, if it is to be served, as long as what is returned is kept.
async fn serve_admission(
    args: &TreesArgs,
    parts: AdmissionParts,
    reviews: Reviews,
) -> anyhow::Result<JoinSet<()>> {
    let mut tasks = JoinSet::new();
    let Some(address) = args.listen_admission else { return Ok(tasks) };
    let port = Port::bind("--listen-admission", address).await?;
    tracing::info!(address = %port.address()?, path = PATH, "serving the admission webhook");
    let certificate = Certificate::default();
    if let Some(directory) = &args.admission_cert_dir {
        let files = FromDirectory::read(directory, &certificate).context("--admission-cert-dir")?;
        tasks.spawn(files.keep());
    } else {
        let keeper = Keeper {
            clients: parts.clients,
            gate: parts.gate,
            clock: Clock::system(),
            names: args.admission_names(&parts.namespace),
            namespace: parts.namespace,
            secret: TREES_ADMISSION,
            configuration: TREES_ACCOUNT,
            certificate: certificate.clone(),
            check: parts.readiness.register("admission: certificate"),
        };
        tasks.spawn(keeper.keep());
    }
    let admission = Admission::new(TreeReviewer(reviews), AdmissionMetrics::new(&parts.metrics));
    tasks.spawn(port.serve(admission, Some(certificate.tls()?), LIMITS, CancellationToken::new()));
    Ok(tasks)
}
