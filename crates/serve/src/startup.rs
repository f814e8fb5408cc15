//! What every program does before its controllers run: it sets up its log, opens its ports, and makes its clients and its part in the
//! election.

use std::net::SocketAddr;
use std::path::PathBuf;

use coppice_runtime::client::{Clients, ConfigError, Deadlines, load_config};
use coppice_runtime::clock::{Clock, SeededRng};
use coppice_runtime::leader::Gate;
use coppice_runtime::lease::{Election, LeaseSettings, LeaseSettingsError, identity};
use coppice_runtime::logging::{self, LogFormat, LoggingError};
use coppice_runtime::metrics::Metrics;
use coppice_runtime::panic::log_panics;
use coppice_runtime::readiness::Readiness;
use coppice_runtime::server_clock::ServerClock;
use rustls::crypto::ring::default_provider;
use tokio::runtime::{Builder, Handle, Runtime};
use tokio::task::{JoinError, JoinSet};
use tokio_util::sync::CancellationToken;

use crate::access::MetricsAccess;
use crate::certificate::{Certificate, CertificateError, FromDirectory, SelfSigned};
use crate::metrics::MetricsPage;
use crate::port::{BindError, Port, PortLimits};
use crate::probes::Probes;

/// Why a process cannot be prepared.
#[derive(Debug, thiserror::Error)]
pub enum PrepareError {
    /// There is no log.
    #[error("--log")]
    Log(#[source] LoggingError),
    /// Another part of the process was faster, which is a bug.
    #[error("a TLS provider is installed already")]
    TlsProvider,
}

/// Why a program does not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// A port cannot be opened.
    #[error(transparent)]
    Port(#[from] BindError),
    /// A port is open, and nobody knows where.
    #[error("the address of a port is not known")]
    Address(#[from] std::io::Error),
    /// The runtime of the lease and the probes is gone.
    #[error("the thread of the lease and the probes has ended")]
    Vital(#[from] JoinError),
    /// It is not known where the API server is.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// No client can be made.
    #[error("the API server's address or certificates")]
    Clients(#[source] Box<kube::Error>),
    /// The times of the Lease do not fit together.
    #[error(transparent)]
    Lease(#[from] LeaseSettingsError),
    /// The certificate of `/metrics` cannot be read.
    #[error("--metrics-cert-dir")]
    CertificateFiles(#[source] CertificateError),
    /// None can be made.
    #[error(transparent)]
    Certificate(#[from] CertificateError),
    /// The TLS library offers no protocol.
    #[error(transparent)]
    Tls(#[from] rustls::Error),
}

/// Sets up what the whole process shares: the log, what a panic writes into it, and the provider of TLS. Call once.
pub fn prepare(program: &str, format: LogFormat, filter: Option<&str>) -> Result<(), PrepareError> {
    if let Err(error) = logging::init(format, filter) {
        // There is no log to write this to.
        eprintln!("{program}: --log: {error}");
        return Err(PrepareError::Log(error));
    }
    log_panics();
    // One provider for the whole process; installed once, here.
    default_provider().install_default().map_err(|_| PrepareError::TlsProvider)
}

/// The runtime of the lease and the probes, with a thread of its own: work that tenants cause can keep the others busy.
pub fn vital_runtime() -> std::io::Result<Runtime> {
    Builder::new_multi_thread().worker_threads(1).thread_name("vital").enable_all().build()
}

/// What a program's flags say about its start.
#[derive(Debug, Clone)]
pub struct StartOptions {
    /// The kubeconfig; by default the service account of the pod, else as kubectl would.
    pub kubeconfig: Option<PathBuf>,
    /// The context of the kubeconfig.
    pub context: Option<String>,
    /// Where to serve `/metrics`.
    pub listen: SocketAddr,
    /// Whether it is served by http and to everybody.
    pub metrics_insecure: bool,
    /// The directory with its certificate; by default it is one that nobody can verify.
    pub metrics_cert_dir: Option<PathBuf>,
    /// Where to serve `/livez` and `/readyz`.
    pub listen_probes: SocketAddr,
    /// This replica's name in the Lease and in Events.
    pub name: String,
}

/// What every program has before its controllers run: ports, clients, and its part in the election.
pub struct Started {
    /// The API server.
    pub clients: Clients,
    /// Its time.
    pub server_clock: ServerClock,
    /// The metrics that are served.
    pub metrics: Metrics,
    /// What probes answer.
    pub readiness: Readiness,
    /// This replica's part in the election, on connections and a runtime of its own.
    pub election: Election,
    /// Whether it leads.
    pub gate: Gate,
    /// This replica's name in Events.
    pub name: String,
    /// Decides its random choices.
    pub rng: SeededRng,
    /// Served as long as this is kept. Probes are answered until the very end: everything else stops first.
    pub ports: [JoinSet<()>; 2],
}

impl Started {
    /// Opens the ports and makes the rest; nothing is sent to the API server yet. `lease` has the settings of the Lease for an identity
    /// and a seed. The lease and the probes run on the runtime `vital`.
    pub async fn new(
        options: StartOptions,
        lease: impl FnOnce(&str, u64) -> LeaseSettings,
        vital: &Handle,
    ) -> Result<Self, StartError> {
        let clock = Clock::system();
        // Every program has the version of the workspace.
        let metrics = Metrics::new(env!("CARGO_PKG_VERSION"));
        let server_clock = ServerClock::new(clock.clone());
        let readiness = Readiness::new();
        let probes = vital.spawn(Port::bind("--listen-probes", options.listen_probes)).await??;
        tracing::info!(address = %probes.address()?, "serving /livez and /readyz");
        let for_metrics = Port::bind("--listen", options.listen).await?;
        tracing::info!(address = %for_metrics.address()?, tls = !options.metrics_insecure, "serving /metrics");
        let kube_config = load_config(options.kubeconfig.clone(), options.context.clone()).await?;
        tracing::info!(api_server = %kube_config.cluster_url, version = env!("CARGO_PKG_VERSION"), "starting");
        let unusable = |error| StartError::Clients(Box::new(error));
        let clients = Clients::new(kube_config.clone(), &server_clock, &metrics).map_err(unusable)?;
        let for_lease = {
            let _on = vital.enter();
            clients.with_own_connections(kube_config, &server_clock, &metrics).map_err(unusable)?
        };
        let mut rng = SeededRng::entropy();
        let me = identity(&options.name, &mut rng);
        let lease = lease(&me, rng.next_u64());
        lease.validate_writes(Deadlines::default().write)?;
        let (election, gate) = Election::new(for_lease, lease, clock, metrics.clone())?;
        let serving = serve_metrics(for_metrics, &options, &metrics, &clients)?;
        let ports = [serve_probes(probes, readiness.clone(), vital), serving];
        let name = options.name;
        Ok(Self { clients, server_clock, metrics, readiness, election, gate, name, rng, ports })
    }
}

fn serve_probes(port: Port, readiness: Readiness, on: &Handle) -> JoinSet<()> {
    let mut ports = JoinSet::new();
    let (limits, stop) = (PortLimits::default(), CancellationToken::new());
    ports.spawn_on(port.serve(Probes::new(readiness), None, limits, stop), on);
    ports
}

fn serve_metrics(
    port: Port,
    options: &StartOptions,
    metrics: &Metrics,
    clients: &Clients,
) -> Result<JoinSet<()>, StartError> {
    let (mut tasks, limits, stop) = (JoinSet::new(), PortLimits::default(), CancellationToken::new());
    if options.metrics_insecure {
        tasks.spawn(port.serve(MetricsPage::insecure(metrics.clone()), None, limits, stop));
        return Ok(tasks);
    }
    let certificate = Certificate::default();
    if let Some(directory) = &options.metrics_cert_dir {
        let files = FromDirectory::read(directory, &certificate).map_err(StartError::CertificateFiles)?;
        tasks.spawn(files.keep());
    } else {
        let names = vec!["coppice".to_owned(), "localhost".to_owned()];
        tasks.spawn(SelfSigned::make(names, &certificate, Clock::system())?.keep());
    }
    let page = MetricsPage::new(metrics.clone(), MetricsAccess::new(clients.clone()));
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
        let vital = vital_runtime().unwrap();
        let others = Builder::new_current_thread().enable_all().build().unwrap();
        let on = vital.handle();
        others.block_on(async {
            let address: SocketAddr = "127.0.0.1:0".parse().unwrap();
            let port = on.spawn(Port::bind("--listen-probes", address)).await.unwrap().unwrap();
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
