//! A program that runs as a service account, as a process that can be killed.

use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::time::Instant;

use anyhow::Context as _;
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::{Child, ChildStdin, Command};

use crate::scale::process::Sample;
use crate::test_cluster::TIMEOUT;

/// Runs a program, prints its process id, and kills it when standard input ends: also when the test process is killed, or
/// ends without dropping what is static. Both outputs of the program go into its log.
const SUPERVISOR: &str = r#"exec 3<&0; "$@" </dev/null >&2 & pid=$!; echo $pid
{ cat <&3 >/dev/null; kill -9 $pid; } 2>/dev/null & watcher=$!
wait $pid; code=$?; kill $watcher 2>/dev/null; exit $code"#;

/// A program that was started. It is killed when this is dropped.
pub struct Program {
    child: Child,
    /// The supervisor's standard input: dropping it kills the program.
    supervisor_stdin: Option<ChildStdin>,
    pid: u32,
    started: Instant,
    /// What it writes.
    pub log: PathBuf,
}

impl Program {
    /// Starts a program with `--kubeconfig` as its first argument: whose kubeconfig it is, decides what the program may do (see
    /// `TestCluster::service_account`). What it writes goes to `log`. `configure` adds further arguments and variables.
    pub async fn start(
        program: &Path,
        kubeconfig: &Path,
        log: PathBuf,
        configure: impl FnOnce(&mut Command),
    ) -> anyhow::Result<Self> {
        let with_kubeconfig = |command: &mut Command| {
            command.arg("--kubeconfig").arg(kubeconfig);
            configure(command);
        };
        Self::start_without_kubeconfig(program, log, with_kubeconfig).await
    }

    /// The same for a program that needs no API server.
    pub async fn start_without_kubeconfig(
        program: &Path,
        log: PathBuf,
        configure: impl FnOnce(&mut Command),
    ) -> anyhow::Result<Self> {
        let started = Instant::now();
        let mut command = Command::new("/bin/sh");
        command.args(["-c", SUPERVISOR, "supervisor"]).arg(program);
        configure(&mut command);
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(std::fs::File::create(&log)?)
            .kill_on_drop(true)
            .spawn()
            .with_context(|| format!("{} could not be started", program.display()))?;
        let supervisor_stdin = child.stdin.take();
        let stdout = child.stdout.take().context("no output")?;
        let mut line = String::new();
        BufReader::new(stdout).read_line(&mut line).await?;
        let pid = line.trim().parse().context("the supervisor prints no process id")?;
        Ok(Self { child, supervisor_stdin, pid, started, log })
    }

    /// Its process id.
    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// kill -9.
    pub async fn kill(&mut self) -> anyhow::Result<()> {
        drop(self.supervisor_stdin.take());
        self.child.wait().await?;
        Ok(())
    }

    /// SIGTERM, and waits for its end.
    pub async fn terminate(&mut self) -> anyhow::Result<ExitStatus> {
        self.signal("TERM").await?;
        self.ended().await.context("after SIGTERM")
    }

    /// Waits for it to end by itself.
    pub async fn ended(&mut self) -> anyhow::Result<ExitStatus> {
        let ended = tokio::time::timeout(TIMEOUT, self.child.wait()).await;
        Ok(ended.context("it does not end")??)
    }

    /// Sends it a signal, such as `TERM`, `STOP` or `CONT`.
    pub async fn signal(&self, name: &str) -> anyhow::Result<()> {
        let pid = self.pid.to_string();
        let sent = Command::new("kill").args([&format!("-{name}"), &pid]).status().await?;
        anyhow::ensure!(sent.success(), "signal {name} could not be sent");
        Ok(())
    }

    /// Its memory and processor time now.
    pub fn sample(&self) -> anyhow::Result<Sample> {
        Sample::of(self.pid, self.started)
    }

    /// What it has written so far.
    pub fn output(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap_or_default()
    }

    /// The end of that, for failures.
    pub fn last_lines(&self) -> String {
        let output = self.output();
        let lines: Vec<_> = output.lines().rev().take(15).collect();
        let lines = lines.into_iter().rev().collect::<Vec<_>>().join("\n");
        format!("{} ends with:\n{lines}", self.log.display())
    }
}
