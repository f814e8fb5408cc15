//! The real operator, as a process that can be killed.

use std::ops::{Deref, DerefMut};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};

use anyhow::Context as _;
use coppice_plane::OPERATOR;
use serde_json::Value;

use crate::program::Program;
use crate::test_cluster::{TestCluster, binary, until};

/// The lease of an operator whose test asks for no other; arguments count more. Longer than a busy machine keeps the API
/// server from answering: nobody starts an operator again that has lost its lease.
const LONG_LEASE: [(&str, &str); 2] =
    [("COPPICE_LEASE_DURATION", "60s"), ("COPPICE_LEASE_RENEW_DEADLINE", "45s")];

/// Logs of this process so far: a plane may have several operators.
static LOGS: AtomicUsize = AtomicUsize::new(0);

/// What the manifests set for the operator's allocator.
const ALLOCATOR: [&str; 2] = ["MIMALLOC_ALLOW_THP", "MIMALLOC_PURGE_DELAY"];

/// Gives the operator the allocator's settings of the manifests, unless they are set from outside.
pub fn allocate_as_shipped(command: &mut tokio::process::Command) {
    for name in ALLOCATOR.into_iter().filter(|name| std::env::var_os(name).is_none()) {
        command.env(name, "0");
    }
}

/// Where an operator with its log in this folder has the credentials of channels.
pub(crate) fn credentials_beside(logs: &Path) -> PathBuf {
    logs.with_file_name("credentials")
}

/// Writes a file that channels can name, as an update of the mounted Secret does.
pub(crate) fn write_credential(folder: &Path, name: &str, text: &str) -> anyhow::Result<()> {
    std::fs::create_dir_all(folder)?;
    let new = folder.join(format!("..{name}"));
    std::fs::write(&new, text)?;
    Ok(std::fs::rename(new, folder.join(name))?)
}

/// A running operator. It is killed when this is dropped.
pub struct Operator {
    program: Program,
    client: reqwest::Client,
    /// Where it serves `/metrics`.
    pub address: String,
    /// Where it serves `/livez` and `/readyz`.
    probes: String,
    /// Where it has the credentials of channels.
    credentials: PathBuf,
}

impl Operator {
    /// Starts it as the service account with the product's RBAC, and waits until it is ready and leads, and the settings
    /// are in force, which it creates on its very first start.
    pub async fn start(test_cluster: &TestCluster) -> anyhow::Result<Self> {
        Self::spawn(test_cluster, &[]).await?.started(test_cluster).await
    }

    async fn started(self, test_cluster: &TestCluster) -> anyhow::Result<Self> {
        self.ready(test_cluster).await?;
        self.leads(test_cluster).await?;
        test_cluster.settings().await.with_context(|| self.last_lines())?;
        Ok(self)
    }

    /// The same on a machine whose local time is that of this zone.
    pub async fn start_in_zone(test_cluster: &TestCluster, zone: &str) -> anyhow::Result<Self> {
        let (kubeconfig, logs) =
            (test_cluster.plane.kubeconfig(OPERATOR)?, test_cluster.plane.dir().join("log"));
        Self::run(&kubeconfig, &logs, &[], &[("TZ", zone)]).await?.started(test_cluster).await
    }

    /// Starts it with further arguments and waits for nothing.
    pub async fn spawn(test_cluster: &TestCluster, args: &[&str]) -> anyhow::Result<Self> {
        Self::spawn_by(test_cluster, &test_cluster.plane.kubeconfig(OPERATOR)?, args).await
    }

    /// The same, by another kubeconfig.
    pub async fn spawn_by(
        test_cluster: &TestCluster,
        kubeconfig: &Path,
        args: &[&str],
    ) -> anyhow::Result<Self> {
        Self::run(kubeconfig, &test_cluster.plane.dir().join("log"), args, &[]).await
    }

    /// Starts it for any API server with further arguments, its log and its credentials in a folder, and waits until it is ready.
    pub async fn start_by(kubeconfig: &Path, folder: &Path, args: &[&str]) -> anyhow::Result<Self> {
        let logs = folder.join("log");
        std::fs::create_dir_all(&logs)?;
        let operator = Self::run(kubeconfig, &logs, args, &[]).await?;
        let ready = until("the operator is ready", async || operator.http("/readyz").await.ok()).await;
        ready.with_context(|| operator.last_lines())?;
        Ok(operator)
    }

    async fn run(
        kubeconfig: &Path,
        logs: &Path,
        args: &[&str],
        variables: &[(&str, &str)],
    ) -> anyhow::Result<Self> {
        let log = logs.join(format!("operator-{}.log", LOGS.fetch_add(1, Ordering::Relaxed)));
        let credentials = credentials_beside(logs);
        std::fs::create_dir_all(&credentials)?;
        let mut program = Program::start(&binary("coppice-operator")?, kubeconfig, log, |command| {
            allocate_as_shipped(command);
            command
                .envs(LONG_LEASE)
                .envs(variables.iter().copied())
                .env("COPPICE_CREDENTIALS_DIR", &credentials)
                // It takes free ports itself: one that is chosen here could be taken by others before it is used.
                .args(["--listen", "127.0.0.1:0", "--metrics-insecure", "--listen-probes", "127.0.0.1:0"])
                .args(["--log-format", "json", "--log", "info,coppice_controllers=debug"])
                .args(args);
        })
        .await?;
        let log = program.log.clone();
        let (address, probes) = tokio::select! {
            found = until("the operator names its ports", async || addresses(&log)) => {
                found.with_context(|| program.last_lines())?
            }
            ended = program.ended() => anyhow::bail!("it has ended, {}: {}", ended?, program.last_lines()),
        };
        let client = reqwest::Client::builder().no_proxy().build()?;
        Ok(Self { program, client, address, probes, credentials })
    }

    /// Writes a file that channels can name.
    pub fn credential(&self, name: &str, text: &str) -> anyhow::Result<()> {
        write_credential(&self.credentials, name, text)
    }

    /// Waits until every watch has synced and the first pass is done.
    pub async fn ready(&self, test_cluster: &TestCluster) -> anyhow::Result<()> {
        let ready =
            test_cluster.until("the operator is ready", async || self.http("/readyz").await.ok()).await;
        ready.map(|_| ()).with_context(|| self.last_lines())
    }

    /// Waits until it leads.
    pub async fn leads(&self, test_cluster: &TestCluster) -> anyhow::Result<()> {
        let leads = async || self.leads_now().await.then_some(());
        test_cluster.until("the operator leads", leads).await.with_context(|| self.last_lines())
    }

    /// Whether it says that it leads.
    pub async fn leads_now(&self) -> bool {
        let text = self.http("/metrics").await.unwrap_or_default();
        text.lines().any(|line| line.starts_with("coppice_leader{") && line.ends_with(" 1"))
    }

    /// What it answers to a GET, if with success.
    pub async fn http(&self, path: &str) -> anyhow::Result<String> {
        let address = if path.starts_with("/metrics") { &self.address } else { &self.probes };
        let answer = self.client.get(format!("http://{address}{path}")).send().await?;
        let status = answer.status();
        let text = answer.text().await?;
        anyhow::ensure!(status.is_success(), "{path} answered {status}: {text}");
        Ok(text)
    }

    /// Where it serves the admission webhook, once its log says so.
    pub fn admission(&self) -> Option<String> {
        address(&self.program.log, "serving the admission webhook")
    }

    /// One figure of `/metrics`; none if there is no such series.
    pub async fn metric(&self, series: &str) -> anyhow::Result<Option<f64>> {
        let text = self.http("/metrics").await?;
        let line = text.lines().find_map(|line| line.strip_prefix(series)?.strip_prefix(' '));
        Ok(line.and_then(|value| value.trim().parse().ok()))
    }
}

impl Deref for Operator {
    type Target = Program;

    fn deref(&self) -> &Program {
        &self.program
    }
}

impl DerefMut for Operator {
    fn deref_mut(&mut self) -> &mut Program {
        &mut self.program
    }
}

/// Where it serves `/metrics`, and where its probes, once its log says so.
fn addresses(log: &Path) -> Option<(String, String)> {
    Some((address(log, "serving /metrics")?, address(log, "serving /livez and /readyz")?))
}

/// The address of which its log says this.
fn address(log: &Path, message: &str) -> Option<String> {
    let text = std::fs::read_to_string(log).ok()?;
    let mut lines = text.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let line = lines.find(|line| line["message"] == message)?;
    line["address"].as_str().map(str::to_owned)
}
