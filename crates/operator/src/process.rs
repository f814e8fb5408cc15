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
use coppice_runtime::admin::{Admin, Pages, PortLimits, Readiness};
use coppice_runtime::client::{Clients, Deadlines, load_config};
use coppice_runtime::clock::{Clock, SeededRng};
use coppice_runtime::events::Events;
use coppice_runtime::leader::Gate;
use coppice_runtime::lease::{Election, identity};
use coppice_runtime::metrics::Metrics;
use coppice_runtime::queue::QueueSettings;
use coppice_runtime::replica::shutdown_signal;
use coppice_runtime::server_clock::ServerClock;
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
        let probes = admin("--listen-probes", args.listen_probes, vital).await?;
        tracing::info!(address = %probes.address()?, "serving /livez and /readyz");
        let pages = Admin::bind("--listen", args.listen).await?;
        tracing::info!(address = %pages.address()?, "serving /metrics");
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
        let mut serving = JoinSet::new();
        serving.spawn(pages.serve(
            Pages::Metrics(Arc::new(metrics.clone())),
            PortLimits::default(),
            CancellationToken::new(),
        ));
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

async fn admin(flag: &'static str, address: SocketAddr, on: &Handle) -> anyhow::Result<Admin> {
    Ok(on.spawn(Admin::bind(flag, address)).await??)
}

fn serve_probes(probes: Admin, readiness: Readiness, on: &Handle) -> JoinSet<()> {
    let mut ports = JoinSet::new();
    ports.spawn_on(
        probes.serve(Pages::Probes(readiness), PortLimits::default(), CancellationToken::new()),
        on,
    );
    ports
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
            let admin = admin("--listen-probes", "127.0.0.1:0".parse().unwrap(), on).await.unwrap();
            let address = admin.address().unwrap();
            let _probes = serve_probes(admin, Readiness::new(), on);
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
