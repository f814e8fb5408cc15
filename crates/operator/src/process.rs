//! The process: from arguments to a running [`Replica`], and the signals that end it.

use std::net::SocketAddr;
use std::sync::Arc;

use anyhow::Context as _;
use coppice_controllers::{ControllerContext, OperatorOptions};
use coppice_notify::channel::Deliverer;
use coppice_notify::credentials::Credentials;
use coppice_notify::outbox::Deliver;
use coppice_notify::webhook::WebhookSettings;
use coppice_operator::{DelivererFactory, Replica};
use coppice_runtime::client::{Clients, Deadlines, load_config};
use coppice_runtime::clock::{Clock, SeededRng};
use coppice_runtime::events::Events;
use coppice_runtime::leader::Gate;
use coppice_runtime::lease::{Election, identity};
use coppice_runtime::metrics::Metrics;
use coppice_runtime::queue::QueueSettings;
use coppice_runtime::readiness::Readiness;
use coppice_runtime::replica::shutdown_signal;
use coppice_runtime::server_clock::ServerClock;
use coppice_serve::access::Access;
use coppice_serve::certificate::{Certificate, FromDirectory, SelfSigned};
use coppice_serve::metrics::MetricsPage;
use coppice_serve::port::{Port, PortLimits};
use coppice_serve::probes::Probes;
use tokio::runtime::Handle;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::args::Args;

/// Runs until a signal stops it, or until the lease is lost. The lease and the probes run on the runtime `vital`.
pub(crate) async fn run(args: Args, vital: &Handle) -> anyhow::Result<()> {
    let Started { clients, server_clock, metrics, readiness, election, gate, name, mut rng, ports: _ports } =
        Started::new(&args, "coppice-operator", vital).await?;
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

/// What every program of this binary has before its controllers run: ports, clients, and its part in the election.
pub(crate) struct Started {
    pub(crate) clients: Clients,
    pub(crate) server_clock: ServerClock,
    pub(crate) metrics: Metrics,
    pub(crate) readiness: Readiness,
    pub(crate) election: Election,
    pub(crate) gate: Gate,
    /// This replica's name in Events.
    pub(crate) name: String,
    pub(crate) rng: SeededRng,
    /// Served as long as this is kept. Probes are answered until the very end: everything else stops first.
    pub(crate) ports: [JoinSet<()>; 2],
}

impl Started {
    /// `default_name`: where the pod's own is not known.
    pub(crate) async fn new(args: &Args, default_name: &str, vital: &Handle) -> anyhow::Result<Self> {
        let clock = Clock::system();
        let metrics = Metrics::new(env!("CARGO_PKG_VERSION"));
        let server_clock = ServerClock::new(clock.clone());
        let readiness = Readiness::new();
        let probes = port("--listen-probes", args.listen_probes, vital).await?;
        tracing::info!(address = %probes.address()?, "serving /livez and /readyz");
        let for_metrics = Port::bind("--listen", args.listen).await?;
        tracing::info!(address = %for_metrics.address()?, tls = !args.metrics_insecure, "serving /metrics");
        let kube_config = load_config(args.kubeconfig.clone(), args.context.clone()).await?;
        tracing::info!(api_server = %kube_config.cluster_url, version = env!("CARGO_PKG_VERSION"), "starting");
        let unusable = "the API server's address or certificates";
        let clients = Clients::new(kube_config.clone(), &server_clock, &metrics).context(unusable)?;
        let for_lease = {
            let _on = vital.enter();
            clients.with_own_connections(kube_config, &server_clock, &metrics).context(unusable)?
        };
        let name = args.identity.clone().unwrap_or_else(|| default_name.to_owned());
        let mut rng = SeededRng::entropy();
        let me = identity(&name, &mut rng);
        let lease = args.lease(&me, rng.next_u64());
        lease.validate_writes(Deadlines::default().write)?;
        let (election, gate) = Election::new(for_lease, lease, clock, metrics.clone())?;
        let serving = serve_metrics(for_metrics, args, &metrics, &clients)?;
        let ports = [serve_probes(probes, readiness.clone(), vital), serving];
        Ok(Self { clients, server_clock, metrics, readiness, election, gate, name, rng, ports })
    }
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

async fn port(flag: &'static str, address: SocketAddr, on: &Handle) -> anyhow::Result<Port> {
    Ok(on.spawn(Port::bind(flag, address)).await??)
}

fn serve_probes(port: Port, readiness: Readiness, on: &Handle) -> JoinSet<()> {
    let mut ports = JoinSet::new();
    let (limits, stop) = (PortLimits::default(), CancellationToken::new());
    ports.spawn_on(port.serve(Probes::new(readiness), None, limits, stop), on);
    ports
}

fn serve_metrics(
    port: Port,
    args: &Args,
    metrics: &Metrics,
    clients: &Clients,
) -> anyhow::Result<JoinSet<()>> {
    let (mut tasks, limits, stop) = (JoinSet::new(), PortLimits::default(), CancellationToken::new());
    if args.metrics_insecure {
        tasks.spawn(port.serve(MetricsPage::insecure(metrics.clone()), None, limits, stop));
        return Ok(tasks);
    }
    let certificate = Certificate::default();
    if let Some(directory) = &args.metrics_cert_dir {
        let files = FromDirectory::read(directory, &certificate).context("--metrics-cert-dir")?;
        tasks.spawn(files.keep());
    } else {
        let names = vec!["coppice".to_owned(), "localhost".to_owned()];
        tasks.spawn(SelfSigned::make(names, &certificate, Clock::system())?.keep());
    }
    let page = MetricsPage::new(metrics.clone(), Access::new(clients.clone()));
    tasks.spawn(port.serve(page, Some(certificate.tls()?), limits, stop));
    Ok(tasks)
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};
    use std::time::Duration;

    use super::*;

    #[test]
    fn probes_are_answered_while_everything_else_is_busy() {
        let vital =
            tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let others = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let on = vital.handle();
        others.block_on(async {
            let port = port("--listen-probes", "127.0.0.1:0".parse().unwrap(), on).await.unwrap();
            let address = port.address().unwrap();
            let _probes = serve_probes(port, Readiness::new(), on);
            // Nothing else is done on this runtime until the answer is there.
            let mut connection = std::net::TcpStream::connect(address).unwrap();
            connection.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
            connection.write_all(b"GET /livez HTTP/1.0\r\n\r\n").unwrap();
            let mut answer = String::new();
            connection.read_to_string(&mut answer).unwrap();
            assert!(answer.contains(" 200 "), "{answer}");
        });
    }
}
