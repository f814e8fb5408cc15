//! `coppice-access` as a process that is measured.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use coppice_tests::TestCluster;
use coppice_tests::operator::allocate_as_shipped;
use coppice_tests::program::Program;
use coppice_tests::scale::process::{Sample, Series};

use crate::live::process::{free_ports, get};
use crate::live::testbed::pause;

/// How often `/readyz` and `/metrics` are looked at: a part of what is reported as time until ready.
const POLL_INTERVAL: Duration = Duration::from_millis(50);
/// How often it is looked whether it still runs.
const ALIVE_INTERVAL: Duration = Duration::from_secs(5);
/// Generous: a busy machine is not a broken program.
const TIMEOUT: Duration = Duration::from_mins(5);

/// The program, as its service account with the rights that are shipped. It ends with this value.
pub(super) struct AccessProgram {
    program: Program,
    binary: PathBuf,
    account: PathBuf,
    metrics: String,
    probes: String,
}

/// One start.
pub(super) struct Start {
    /// Seconds until `/readyz` answered 200: everything has been read, and reconciled once.
    pub(super) ready: f64,
    /// Seconds until it led as well, and nothing waited.
    pub(super) settled: f64,
    /// A while after that.
    pub(super) sample: Sample,
}

/// What it costs while nothing is due.
pub(super) struct Steady {
    /// Processors that it uses.
    pub(super) processor: f64,
    /// Requests to its own API server, in a second.
    pub(super) requests: f64,
}

impl AccessProgram {
    /// Starts it by the kubeconfig of its account, and waits for nothing.
    pub(super) async fn start(here: &TestCluster, binary: &Path, account: &Path) -> anyhow::Result<Self> {
        let [metrics, probes] = free_ports()?.map(|port| format!("127.0.0.1:{port}"));
        let log = here.plane.dir().join(format!("log/access-{}.log", metrics.replace(':', "-")));
        let program = Program::start(binary, account, log, |command| {
            allocate_as_shipped(command);
            command.args(["--listen", &metrics, "--metrics-insecure", "--listen-probes", &probes]);
        });
        let program = program.await?;
        let (binary, account) = (binary.to_owned(), account.to_owned());
        let (metrics, probes) = (format!("http://{metrics}/metrics"), format!("http://{probes}/readyz"));
        Ok(Self { program, binary, account, metrics, probes })
    }

    /// Stops it in order, starts it again, and measures it when it has been at rest for that long.
    pub(super) async fn start_again(&mut self, here: &TestCluster, rest: Duration) -> anyhow::Result<Start> {
        let status = self.program.terminate().await?;
        ensure!(status.success(), "the program has ended with {status}: {}", self.last_lines());
        let began = Instant::now();
        *self = Self::start(here, &self.binary, &self.account).await?;
        self.ready().await?;
        let ready = began.elapsed().as_secs_f64();
        while !self.is_settled().await? {
            self.within(began, "it does not settle")?;
            pause(POLL_INTERVAL).await;
        }
        let settled = began.elapsed().as_secs_f64();
        pause(rest).await;
        Ok(Start { ready, settled, sample: self.sample()? })
    }

    /// Waits until it is ready and leads.
    pub(super) async fn leads(&self) -> anyhow::Result<()> {
        let began = Instant::now();
        self.ready().await?;
        while !self.is_settled().await? {
            self.within(began, "it does not lead")?;
            pause(POLL_INTERVAL).await;
        }
        Ok(())
    }

    /// What it costs for that long.
    pub(super) async fn steady(&self, lasts: Duration) -> anyhow::Result<Steady> {
        let requests = async || anyhow::Ok(self.series().await?.sum("coppice_api_requests_total"));
        let (before, asked) = (self.sample()?, requests().await?);
        pause(lasts).await;
        let (after, asked_by_then) = (self.sample()?, requests().await?);
        let seconds = after.at - before.at;
        Ok(Steady {
            processor: (after.cpu - before.cpu) / seconds,
            requests: (asked_by_then - asked) / seconds,
        })
    }

    /// Why it does not run any more, once it does not.
    pub(super) async fn fails(&self) -> anyhow::Error {
        loop {
            pause(ALIVE_INTERVAL).await;
            if let Err(error) = self.sample() {
                return error;
            }
        }
    }

    /// Memory and processor time now.
    pub(super) fn sample(&self) -> anyhow::Result<Sample> {
        self.program.sample().with_context(|| self.last_lines())
    }

    /// The end of its log.
    pub(super) fn last_lines(&self) -> String {
        self.program.last_lines()
    }

    async fn ready(&self) -> anyhow::Result<()> {
        let began = Instant::now();
        while get(&self.probes).await.is_err() {
            self.within(began, "it is not ready")?;
            pause(POLL_INTERVAL).await;
        }
        Ok(())
    }

    /// Whether it leads, and no object is being worked on or waits for its turn.
    async fn is_settled(&self) -> anyhow::Result<bool> {
        let series = self.series().await?;
        let waiting = series.sum("coppice_queue_depth") + series.sum("coppice_queue_running");
        Ok(series.sum("coppice_leader") > 0.5 && waiting < 0.5)
    }

    async fn series(&self) -> anyhow::Result<Series> {
        Ok(Series(get(&self.metrics).await.with_context(|| self.last_lines())?))
    }

    fn within(&self, began: Instant, otherwise: &str) -> anyhow::Result<()> {
        self.sample()?;
        ensure!(began.elapsed() < TIMEOUT, "{otherwise}: {}", self.last_lines());
        Ok(())
    }
}
