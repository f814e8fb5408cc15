//! Coppice's operator and the peer as processes that are measured.

use std::collections::VecDeque;
use std::net::{Ipv4Addr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use coppice_plane::OPERATOR;
use coppice_tests::operator::allocate_as_shipped;
use coppice_tests::scale::process::{Sample, Series};
use jiff::Timestamp;
use tokio::process::{Child, Command};

use super::testbed::{Testbed, pause};
use super::{Programs, now};
use crate::report::Subject;
use crate::stats::count;

/// Generous: a busy machine is not a broken operator.
const TIMEOUT: Duration = Duration::from_mins(10);
/// So long nothing may happen before an operator counts as settled.
const QUIET: Duration = Duration::from_secs(5);
/// How often `/readyz` and `/metrics` are looked at: a part of what is reported as time until ready or leading.
const POLL_INTERVAL: Duration = Duration::from_millis(20);
/// Both work on so many managers at once.
const CONCURRENCY: &str = "16";

/// The times of an election, in whole seconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lease {
    /// How long a replica that does not answer keeps the Lease.
    pub duration: Duration,
    /// How long the leader tries to renew before it gives up.
    pub renew: Duration,
    /// How often the Lease is renewed or asked for.
    pub retry: Duration,
}

impl Lease {
    /// As both are shipped.
    pub const SHIPPED: Self = Self {
        duration: Duration::from_secs(15),
        renew: Duration::from_secs(10),
        retry: Duration::from_secs(2),
    };
}

/// A running operator; it ends with this value, and with this program.
#[derive(Debug)]
pub struct Running {
    child: Child,
    pid: u32,
    subject: Subject,
    probe: String,
    metrics: String,
    log: PathBuf,
    started: Instant,
    /// When it was started.
    pub(super) at: Timestamp,
}

impl Running {
    /// Starts it as the operator's service account.
    pub(super) fn spawn(testbed: &Testbed, programs: &Programs, subject: Subject) -> anyhow::Result<Self> {
        let kubeconfig = testbed.test_cluster.plane.kubeconfig(OPERATOR)?;
        Self::spawn_by(testbed, programs, subject, &kubeconfig, Lease::SHIPPED)
    }

    /// The same, by another kubeconfig and with other times of the election.
    pub(super) fn spawn_by(
        testbed: &Testbed,
        programs: &Programs,
        subject: Subject,
        kubeconfig: &Path,
        lease: Lease,
    ) -> anyhow::Result<Self> {
        let [metrics, probe] = free_ports()?.map(|port| format!("127.0.0.1:{port}"));
        let log = testbed.test_cluster.plane.dir().join(format!("log/{}.log", metrics.replace(':', "-")));
        // Its end is tied to this program's, also if that is killed.
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "KILL"]);
        let time = |time: Duration| format!("{}s", time.as_secs());
        let duration = time(lease.duration);
        match subject {
            Subject::Coppice => {
                command.arg(&programs.operator).arg("--kubeconfig").arg(kubeconfig);
                command.args(["--listen", &metrics, "--metrics-insecure", "--listen-probes", &probe]);
                command.args(["--log-format", "json", "--concurrency", CONCURRENCY]);
                command.args(["--lease-renew-deadline", &time(lease.renew)]);
                command.args(["--lease-retry-period", &time(lease.retry)]);
                allocate_as_shipped(&mut command);
                let credentials = testbed.test_cluster.plane.dir().join("credentials");
                if credentials.is_dir() {
                    command.env("COPPICE_CREDENTIALS_DIR", credentials);
                }
            }
            Subject::Bare => bail!("a bare client is no process"),
            Subject::Peer | Subject::PeerStripped => {
                command
                    .arg(programs.peer.as_ref().context("there is no peer")?)
                    .arg("--kubeconfig")
                    .arg(kubeconfig);
                command.args(["--metrics-bind-address", &metrics, "--health-probe-bind-address", &probe]);
                command.args(["--leader-elect", "--concurrency", CONCURRENCY]);
                command.args(["--renew-deadline", &time(lease.renew), "--retry-period", &time(lease.retry)]);
                if subject == Subject::PeerStripped {
                    command.arg("--strip-managed-fields");
                }
            }
        }
        command.args(["--lease-duration", &duration]);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(std::fs::File::create(&log)?);
        let (started, at) = (Instant::now(), now());
        let child =
            command.kill_on_drop(true).spawn().context("setpriv (of util-linux) could not be started")?;
        let pid = child.id().context("it has ended")?;
        Ok(Self {
            child,
            pid,
            subject,
            probe: format!("http://{probe}/readyz"),
            metrics: format!("http://{metrics}/metrics"),
            log,
            started,
            at,
        })
    }

    /// Memory and processor time now.
    pub(super) fn sample(&self) -> anyhow::Result<Sample> {
        Sample::of(self.pid, self.started)
    }

    async fn series(&self) -> anyhow::Result<Series> {
        Ok(Series(get(&self.metrics).await?))
    }

    /// Waits until `/readyz` says so; when that was seen.
    pub(super) async fn ready(&mut self) -> anyhow::Result<Timestamp> {
        while get(&self.probe).await.is_err() {
            self.alive("it is not ready")?;
            pause(POLL_INTERVAL).await;
        }
        Ok(now())
    }

    /// Waits until it leads; when that was seen.
    pub(super) async fn leads(&mut self) -> anyhow::Result<Timestamp> {
        while !self.leads_now().await {
            self.alive("it does not lead")?;
            pause(POLL_INTERVAL).await;
        }
        Ok(now())
    }

    /// Whether it says that it leads.
    pub(super) async fn leads_now(&self) -> bool {
        let name = match self.subject {
            Subject::Coppice => "coppice_leader",
            Subject::Peer | Subject::PeerStripped | Subject::Bare => "leader_election_master_status",
        };
        self.series().await.is_ok_and(|series| series.sum(name) > 0.5)
    }

    /// Waits until it leads, has looked at that many managers, and then nothing has happened for five seconds. Returns
    /// the seconds from its start until it was still.
    pub(super) async fn settled(&mut self, managers: usize) -> anyhow::Result<f64> {
        let (mut quiet, mut before) = (Instant::now(), -1.0);
        loop {
            self.alive("it does not settle")?;
            if let Ok((queued, done)) = self.work().await {
                // Counts: less than one more is none more.
                let still = queued < 0.5 && done - before < 0.5 && done > count(managers) - 0.5;
                before = done;
                if !still || !self.leads_now().await {
                    quiet = Instant::now();
                } else if quiet.elapsed() >= QUIET {
                    return Ok(quiet.duration_since(self.started).as_secs_f64());
                }
            }
            pause(POLL_INTERVAL * 10).await;
        }
    }

    /// Waits until it has looked at that many managers and has nothing left to do, or until that instant.
    pub(super) async fn wait_until_reconciled(
        &mut self,
        managers: usize,
        until: Timestamp,
    ) -> anyhow::Result<()> {
        while now() < until {
            self.alive("it does not look at every manager")?;
            if let Ok((queued, done)) = self.work().await
                && queued < 0.5
                && done > count(managers) - 0.5
            {
                return Ok(());
            }
            pause(POLL_INTERVAL * 10).await;
        }
        Ok(())
    }

    /// How many managers wait or are worked on, and how often it has looked at one.
    async fn work(&self) -> anyhow::Result<(f64, f64)> {
        let (depth, running, done) = match self.subject {
            Subject::Coppice => ("coppice_queue_depth", "coppice_queue_running", "coppice_reconciles_total"),
            Subject::Peer | Subject::PeerStripped | Subject::Bare => {
                ("workqueue_depth", "controller_runtime_active_workers", "controller_runtime_reconcile_total")
            }
        };
        let series = self.series().await?;
        Ok((series.sum(depth) + series.sum(running), series.sum(done)))
    }

    fn alive(&mut self, otherwise: &str) -> anyhow::Result<()> {
        let ended = self.child.try_wait()?;
        if ended.is_none() && self.started.elapsed() < TIMEOUT {
            return Ok(());
        }
        bail!("{}: {otherwise}; its log ends with:\n{}", self.subject.label(), self.last_lines())
    }

    /// The end of its log.
    pub(super) fn last_lines(&self) -> String {
        let log = std::fs::read_to_string(&self.log).unwrap_or_default();
        let mut last = VecDeque::new();
        for line in log.lines() {
            last.push_back(line);
            if last.len() > 10 {
                last.pop_front();
            }
        }
        Vec::from(last).join("\n")
    }

    /// Sends it a signal, such as `KILL` or `STOP`.
    pub(super) async fn signal(&self, name: &str) -> anyhow::Result<()> {
        let sent = Command::new("kill").args([&format!("-{name}"), &self.pid.to_string()]).status().await?;
        anyhow::ensure!(sent.success(), "signal {name} could not be sent");
        Ok(())
    }

    /// Waits for its end.
    pub(super) async fn ended(&mut self) -> anyhow::Result<ExitStatus> {
        let ended = tokio::time::timeout(Duration::from_mins(2), self.child.wait()).await;
        Ok(ended.context("it does not end")??)
    }

    /// SIGTERM, so that the Lease is released.
    pub(super) async fn stop(mut self) -> anyhow::Result<()> {
        self.signal("TERM").await?;
        self.ended().await.map(drop)
    }
}

pub(super) async fn get(url: &str) -> anyhow::Result<String> {
    Ok(reqwest::get(url).await?.error_for_status()?.text().await?)
}

/// Free a moment ago; a lost race shows as a start that fails.
pub(super) fn free_ports() -> anyhow::Result<[u16; 2]> {
    let [a, b] = [(); 2].map(|()| TcpListener::bind((Ipv4Addr::LOCALHOST, 0)));
    Ok([a?.local_addr()?.port(), b?.local_addr()?.port()])
}
