//! The real operator, as a process that can be killed.

use std::net::{Ipv4Addr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use anyhow::Context as _;
use coppice_plane::OPERATOR;
use tokio::io::{AsyncBufReadExt as _, BufReader};

use crate::stage::{Stage, binary, until};

/// Runs the operator, tells its process id, and kills it when standard input ends: also when the test process is
/// killed, or ends without dropping what is static.
const SUPERVISOR: &str = r#"exec 3<&0; "$@" </dev/null >/dev/null & pid=$!; echo $pid
{ cat <&3 >/dev/null; kill -9 $pid; } 2>/dev/null & watcher=$!
wait $pid; code=$?; kill $watcher 2>/dev/null; exit $code"#;

/// A running operator. It is killed when this is dropped.
pub struct Operator {
    child: tokio::process::Child,
    /// The supervisor's standard input: dropping it kills the operator.
    leash: Option<tokio::process::ChildStdin>,
    pid: u32,
    client: reqwest::Client,
    /// Where it serves `/metrics`.
    pub address: String,
    /// Where it serves `/livez` and `/readyz`.
    probes: String,
    /// Its log.
    pub log: PathBuf,
}

impl Operator {
    /// Starts it as the service account with the product's RBAC, and waits until it is ready.
    pub async fn start(stage: &Stage) -> anyhow::Result<Self> {
        let operator = Self::spawn(stage, &[]).await?;
        operator.ready(stage).await?;
        Ok(operator)
    }

    /// Starts it with further arguments and waits for nothing.
    pub async fn spawn(stage: &Stage, args: &[&str]) -> anyhow::Result<Self> {
        Self::spawn_by(stage, &stage.plane.kubeconfig(OPERATOR)?, args).await
    }

    /// The same, by another kubeconfig.
    pub async fn spawn_by(stage: &Stage, kubeconfig: &Path, args: &[&str]) -> anyhow::Result<Self> {
        Self::run(kubeconfig, &stage.plane.dir().join("log"), args).await
    }

    /// Starts it for any API server, with its log in a folder, and waits until it is ready.
    pub async fn start_by(kubeconfig: &Path, logs: &Path) -> anyhow::Result<Self> {
        let operator = Self::run(kubeconfig, logs, &[]).await?;
        let ready = until("the operator is ready", async || operator.http("/readyz").await.ok()).await;
        ready.with_context(|| operator.last_lines())?;
        Ok(operator)
    }

    async fn run(kubeconfig: &Path, logs: &Path, args: &[&str]) -> anyhow::Result<Self> {
        // Free a moment ago; a lost race shows as a start that fails.
        let [port, probes] = free_ports()?;
        let (address, probes) = (format!("127.0.0.1:{port}"), format!("127.0.0.1:{probes}"));
        let log = logs.join(format!("operator-{port}.log"));
        let mut child = tokio::process::Command::new("/bin/sh")
            .args(["-c", SUPERVISOR, "supervisor"])
            .arg(binary("coppice-operator")?)
            .arg("--kubeconfig")
            .arg(kubeconfig)
            .args(["--listen", &address, "--listen-probes", &probes])
            .args(["--log-format", "json", "--log", "info,coppice_controllers=debug"])
            .args(args)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(std::fs::File::create(&log)?)
            .kill_on_drop(true)
            .spawn()
            .context("the operator could not be started")?;
        let leash = child.stdin.take();
        let stdout = child.stdout.take().context("no output")?;
        let mut line = String::new();
        BufReader::new(stdout).read_line(&mut line).await?;
        let pid = line.trim().parse().context("the supervisor tells no process id")?;
        let client = reqwest::Client::builder().no_proxy().build()?;
        Ok(Self { child, leash, pid, client, address, probes, log })
    }

    /// Waits until every watch has synced and the first pass is done.
    pub async fn ready(&self, stage: &Stage) -> anyhow::Result<()> {
        let ready = stage.until("the operator is ready", async || self.http("/readyz").await.ok()).await;
        ready.map(|_| ()).with_context(|| self.last_lines())
    }

    /// Waits until it leads.
    pub async fn leads(&self, stage: &Stage) -> anyhow::Result<()> {
        let leads = async || (self.metric("coppice_leader").await.ok()?? > 0.5).then_some(());
        stage.until("the operator leads", leads).await.with_context(|| self.last_lines())
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

    /// One figure of `/metrics`; none if there is no such series.
    pub async fn metric(&self, series: &str) -> anyhow::Result<Option<f64>> {
        let text = self.http("/metrics").await?;
        let line = text.lines().find_map(|line| line.strip_prefix(series)?.strip_prefix(' '));
        Ok(line.and_then(|value| value.trim().parse().ok()))
    }

    /// kill -9.
    pub async fn kill(&mut self) -> anyhow::Result<()> {
        drop(self.leash.take());
        self.child.wait().await?;
        Ok(())
    }

    /// SIGTERM, and waits for its end.
    pub async fn terminate(&mut self) -> anyhow::Result<std::process::ExitStatus> {
        self.signal("TERM").await?;
        let ended = tokio::time::timeout(Duration::from_secs(30), self.child.wait()).await;
        Ok(ended.context("it does not end on SIGTERM")??)
    }

    /// Waits for it to end by itself.
    pub async fn ended(&mut self) -> anyhow::Result<std::process::ExitStatus> {
        let ended = tokio::time::timeout(Duration::from_mins(1), self.child.wait()).await;
        Ok(ended.context("it does not end")??)
    }

    /// Sends it a signal, such as `TERM`, `STOP` or `CONT`.
    pub async fn signal(&self, name: &str) -> anyhow::Result<()> {
        let pid = self.pid.to_string();
        let sent = tokio::process::Command::new("kill").args([&format!("-{name}"), &pid]).status().await?;
        anyhow::ensure!(sent.success(), "signal {name} could not be sent");
        Ok(())
    }

    /// Its resident memory in KiB.
    pub fn resident(&self) -> anyhow::Result<u64> {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.pid))?;
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).context("no VmRSS")?;
        Ok(line.trim().trim_end_matches(" kB").trim().parse()?)
    }

    /// The end of its log, for failures.
    pub fn last_lines(&self) -> String {
        let log = std::fs::read_to_string(&self.log).unwrap_or_default();
        let lines: Vec<_> = log.lines().rev().take(15).collect();
        format!("the operator's log ends with:\n{}", lines.into_iter().rev().collect::<Vec<_>>().join("\n"))
    }
}

/// Free a moment ago; both are held until both are known, so that they differ.
pub(crate) fn free_ports() -> anyhow::Result<[u16; 2]> {
    let [a, b] = [(); 2].map(|()| TcpListener::bind((Ipv4Addr::LOCALHOST, 0)));
    let (a, b) = (a?, b?);
    Ok([a.local_addr()?.port(), b.local_addr()?.port()])
}
