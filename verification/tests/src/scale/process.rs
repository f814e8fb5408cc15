//! The operator as a process that is measured, and the other processes of a plane.

use std::net::{Ipv4Addr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use coppice_plane::OPERATOR;
use tokio::process::{Child, Command};

use crate::TestCluster;

/// Generous: a debug build on a busy machine lists for minutes.
const TIMEOUT: Duration = Duration::from_mins(10);
/// So long nothing may happen before the operator counts as settled.
const QUIET: Duration = Duration::from_secs(5);
const POLL_INTERVAL: Duration = Duration::from_millis(100);
/// Clock ticks a second in `/proc/PID/stat`: 100 on every Linux architecture that matters.
const TICKS: f64 = 100.0;

/// A running operator; it ends with this value.
pub(super) struct Measured {
    child: Child,
    pid: u32,
    address: String,
    probes: String,
    log: PathBuf,
    started: Instant,
}

/// What the kernel says about it at one moment, in KiB and seconds.
#[derive(Clone, Copy, Debug, Default, serde::Serialize)]
pub struct Sample {
    /// Seconds since it was started.
    pub at: f64,
    /// Resident now.
    pub rss: u64,
    /// Of that, memory of its own, without the pages of the program file.
    pub anonymous: u64,
    /// The most that was ever resident.
    pub peak: u64,
    /// Seconds of processor time.
    pub cpu: f64,
}

impl Sample {
    /// Memory and processor time of a process now, which was started then.
    ///
    /// # Errors
    ///
    /// There is no such process, or it has ended and nobody has waited for it yet: then it has no memory any more.
    pub fn of(pid: u32, started: Instant) -> anyhow::Result<Self> {
        let status = std::fs::read_to_string(format!("/proc/{pid}/status"))?;
        let line = |name: &str| status.lines().find_map(|line| line.strip_prefix(name)).map(str::trim);
        let field = |name: &str| -> anyhow::Result<u64> {
            let line = line(name).with_context(|| {
                let state = line("State:").unwrap_or("unknown");
                format!("process {pid} has no memory any more, its status lacks {name} (state {state})")
            })?;
            Ok(line.trim_end_matches(" kB").trim().parse()?)
        };
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat"))?;
        // The name in parentheses may have blanks; utime and stime are the 12th and 13th field after it.
        let after = stat.rsplit_once(") ").map(|(_, rest)| rest).unwrap_or_default();
        let ticks = after.split(' ').skip(11).take(2).filter_map(|t| t.parse::<f64>().ok()).sum::<f64>();
        Ok(Self {
            at: started.elapsed().as_secs_f64(),
            rss: field("VmRSS:")?,
            anonymous: field("RssAnon:")?,
            peak: field("VmHWM:")?,
            cpu: ticks / TICKS,
        })
    }
}

impl Measured {
    /// Starts the operator as the service account, with the product's RBAC and the default log.
    pub(super) fn spawn(test_cluster: &TestCluster, program: &Path) -> anyhow::Result<Self> {
        // Free a moment ago; a lost race shows as a start that fails.
        let [port, probes] = free_ports()?;
        let (address, probes) = (format!("127.0.0.1:{port}"), format!("127.0.0.1:{probes}"));
        let log = test_cluster.plane.dir().join(format!("log/operator-{port}.log"));
        let child = Command::new(program)
            .arg("--kubeconfig")
            .arg(test_cluster.plane.kubeconfig(OPERATOR)?)
            .args(["--listen", &address, "--metrics-insecure", "--listen-probes", &probes])
            .args(["--log-format", "json"])
            // The API server is restarted under it: nobody else wants the lease meanwhile.
            .args(["--lease-duration", "120s", "--lease-renew-deadline", "110s"])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(std::fs::File::create(&log)?)
            .kill_on_drop(true)
            .spawn()
            .with_context(|| format!("{} could not be started", program.display()))?;
        let pid = child.id().context("it has ended")?;
        Ok(Self { child, pid, address, probes, log, started: Instant::now() })
    }

    /// Memory and processor time now.
    pub(super) fn sample(&self) -> anyhow::Result<Sample> {
        Sample::of(self.pid, self.started)
    }

    async fn get(&self, path: &str) -> anyhow::Result<String> {
        let address = if path.starts_with("/metrics") { &self.address } else { &self.probes };
        let answer = reqwest::get(format!("http://{address}{path}")).await?.error_for_status()?;
        Ok(answer.text().await?)
    }

    /// Its metrics.
    pub(super) async fn metrics(&self) -> anyhow::Result<Series> {
        Ok(Series(self.get("/metrics").await?))
    }

    /// Waits until `/readyz` says so.
    pub(super) async fn ready(&mut self) -> anyhow::Result<Sample> {
        while self.get("/readyz").await.is_err() {
            self.alive("it is not ready")?;
            tokio::time::sleep(POLL_INTERVAL).await;
        }
        self.sample()
    }

    /// Waits until it leads, has nothing to do, writes no status any more, and `enough` has happened.
    pub(super) async fn settled(&mut self, enough: impl Fn(&Series) -> bool) -> anyhow::Result<Sample> {
        let (mut quiet, mut before) = (Instant::now(), -1.0);
        loop {
            self.alive("it does not settle")?;
            if let Ok(series) = self.metrics().await {
                let queue = series.sum("coppice_queue_depth") + series.sum("coppice_queue_running");
                let done = series.sum("coppice_status_writes_total") + series.sum("coppice_reconciles_total");
                // Counts: less than one more is none more.
                let still = queue < 0.5 && done - before < 0.5 && series.sum("coppice_leader") > 0.5;
                before = done;
                if !still || !enough(&series) {
                    quiet = Instant::now();
                } else if quiet.elapsed() >= QUIET {
                    return self.sample();
                }
            }
            tokio::time::sleep(POLL_INTERVAL * 5).await;
        }
    }

    /// Counts requests while there is nothing to do: all of them, and those that write anything but the Lease.
    pub(super) async fn idle(&mut self, lasts: Duration) -> anyhow::Result<[f64; 2]> {
        let before = self.metrics().await?.requests();
        tokio::time::sleep(lasts).await;
        self.alive("it ended while it was idle")?;
        let after = self.metrics().await?.requests();
        Ok([after[0] - before[0], after[1] - before[1]])
    }

    /// Waits until this has happened.
    pub(super) async fn wait(&mut self, enough: impl Fn(&Series) -> bool) -> anyhow::Result<()> {
        while !self.metrics().await.is_ok_and(|series| enough(&series)) {
            self.alive("what is waited for does not happen")?;
            tokio::time::sleep(POLL_INTERVAL).await;
        }
        Ok(())
    }

    fn alive(&mut self, otherwise: &str) -> anyhow::Result<()> {
        let ended = self.child.try_wait()?;
        if ended.is_none() && self.started.elapsed() < TIMEOUT {
            return Ok(());
        }
        let log = std::fs::read_to_string(&self.log).unwrap_or_default();
        let lines: Vec<_> = log.lines().rev().take(10).collect();
        bail!("{otherwise}; the operator's log, last line first:\n{}", lines.join("\n"))
    }

    /// SIGTERM, so that the lease is released.
    pub(super) async fn stop(mut self) -> anyhow::Result<()> {
        signal(self.pid, "TERM").await?;
        tokio::time::timeout(Duration::from_secs(30), self.child.wait())
            .await
            .context("it does not end")??;
        Ok(())
    }
}

/// What `/metrics` said.
pub struct Series(pub String);

impl Series {
    /// The sum of all series whose name with labels begins so.
    pub fn sum(&self, prefix: &str) -> f64 {
        let values = self.0.lines().filter(|line| line.starts_with(prefix));
        values
            .filter_map(|line| line.rsplit_once(' ')?.1.parse::<f64>().ok())
            .fold(0.0, |sum, value| sum + value)
    }

    /// All requests, and those that write anything but the Lease.
    fn requests(&self) -> [f64; 2] {
        const NAME: &str = "coppice_api_requests_total";
        let reads = ["get", "list", "watch"];
        let writes = self.0.lines().filter(|line| {
            let reads = reads.iter().any(|verb| line.contains(&format!("verb=\"{verb}\"")));
            line.starts_with(NAME) && !reads && !line.contains("resource=\"leases\"")
        });
        let writes = writes.filter_map(|line| line.rsplit_once(' ')?.1.parse::<f64>().ok());
        [self.sum(NAME), writes.sum()]
    }

    /// How many lists of a kind were answered, each page counted.
    pub(super) fn lists(&self, kind: &str) -> f64 {
        let resource = format!("resource=\"{kind}\"");
        let wanted = ["coppice_api_requests_total", "verb=\"list\"", &resource, "=\"200\""];
        let values = self.0.lines().filter(|line| wanted.iter().all(|part| line.contains(part)));
        values
            .filter_map(|line| line.rsplit_once(' ')?.1.parse::<f64>().ok())
            .fold(0.0, |sum, value| sum + value)
    }

    /// How many requests to delete an object of a kind there were, whatever came of them.
    pub(super) fn deletes(&self, kind: &str) -> f64 {
        let resource = format!("resource=\"{kind}\"");
        let wanted = ["coppice_api_requests_total", "verb=\"delete\"", &resource];
        let values = self.0.lines().filter(|line| wanted.iter().all(|part| line.contains(part)));
        values
            .filter_map(|line| line.rsplit_once(' ')?.1.parse::<f64>().ok())
            .fold(0.0, |sum, value| sum + value)
    }

    /// The objects of a kind in the cache.
    pub(super) fn objects(&self, kind: &str) -> f64 {
        self.sum(&format!("coppice_watch_objects{{kind=\"{kind}\"}}"))
    }
}

/// Free a moment ago; both are held until both are known, so that they differ.
fn free_ports() -> anyhow::Result<[u16; 2]> {
    let [a, b] = [(); 2].map(|()| TcpListener::bind((Ipv4Addr::LOCALHOST, 0)));
    let (a, b) = (a?, b?);
    Ok([a.local_addr()?.port(), b.local_addr()?.port()])
}

/// Sends a signal to a process that this program started.
async fn signal(pid: u32, name: &str) -> anyhow::Result<()> {
    let sent = Command::new("kill").args([&format!("-{name}"), &pid.to_string()]).status().await?;
    anyhow::ensure!(sent.success(), "signal {name} could not be sent");
    Ok(())
}

/// The process of a plane that runs this program, and its command line. The plane's folder is its own, so that no
/// other plane's process is meant.
fn of_plane(test_cluster: &TestCluster, program: &str) -> anyhow::Result<(u32, Vec<String>)> {
    let folder = test_cluster.plane.dir().display().to_string();
    for entry in std::fs::read_dir("/proc")?.flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse().ok()) else { continue };
        let line = std::fs::read(entry.path().join("cmdline")).unwrap_or_default();
        let line = String::from_utf8_lossy(&line);
        let words: Vec<String> = line.split_terminator('\0').map(str::to_owned).collect();
        let named = words.first().is_some_and(|first| Path::new(first).ends_with(program));
        if named && words.iter().any(|word| word.contains(&folder)) {
            return Ok((pid, words));
        }
    }
    bail!("the plane has no process {program}")
}

/// Ends everything but etcd and the API server: nothing else writes into what was seeded (the owners of the pods do not
/// exist: they would be collected as garbage), and nothing else uses the processors.
pub async fn end_controllers(test_cluster: &TestCluster) -> anyhow::Result<()> {
    for program in ["kube-controller-manager", "kube-scheduler", "kwok"] {
        signal(of_plane(test_cluster, program)?.0, "KILL").await?;
    }
    Ok(())
}

/// Ends the API server and starts it again with the same arguments. `between` is done while it is away: since what
/// happened then is not in the new one's memory, the operator cannot just go on watching and has to list again.
pub(super) async fn restart_api_server(
    test_cluster: &TestCluster,
    between: impl Future<Output = anyhow::Result<()>>,
) -> anyhow::Result<Child> {
    let (pid, words) = of_plane(test_cluster, "kube-apiserver")?;
    signal(pid, "KILL").await?;
    between.await?;
    let (program, arguments) = words.split_first().context("no command line")?;
    let log = std::fs::File::create(test_cluster.plane.dir().join("log/kube-apiserver-again.log"))?;
    let child = Command::new(program)
        .args(arguments)
        .current_dir(test_cluster.plane.dir())
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(log)
        .kill_on_drop(true)
        .spawn()?;
    Ok(child)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn series_are_summed_by_their_beginning() {
        let text = "coppice_api_requests_total{verb=\"get\"} 3\ncoppice_api_requests_total{verb=\"list\"} 4\ncoppice_leader 1\n";
        let series = Series(text.to_owned());
        assert!((series.sum("coppice_api_requests_total") - 7.0).abs() < f64::EPSILON);
        assert!((series.sum("coppice_leader") - 1.0).abs() < f64::EPSILON);
        let text = "coppice_api_requests_total{verb=\"update\",resource=\"leases\"} 3\n\
                    coppice_api_requests_total{verb=\"update\",resource=\"managednamespaces\"} 4\n\
                    coppice_api_requests_total{verb=\"list\",resource=\"pods\"} 5\n\
                    coppice_api_requests_total{verb=\"delete\",resource=\"namespaces\",code=\"409\"} 2\n";
        assert!((Series(text.to_owned()).deletes("namespaces") - 2.0).abs() < f64::EPSILON);
        let counted = Series(text.to_owned()).requests();
        assert!(counted.iter().zip([14.0, 6.0]).all(|(found, meant)| (found - meant).abs() < f64::EPSILON));
    }

    #[test]
    fn a_process_that_has_ended_is_not_measured_but_named() {
        // The other end of its output closes when it has ended; nobody has waited for it yet.
        let mut child = std::process::Command::new("true").stdout(Stdio::piped()).spawn().unwrap();
        let mut output = child.stdout.take().unwrap();
        std::io::copy(&mut output, &mut std::io::sink()).unwrap();
        let pid = child.id();
        // Its memory goes a moment before it is a zombie.
        let gone = format!("process {pid} has no memory any more");
        let error = loop {
            match Sample::of(pid, Instant::now()).map_err(|error| format!("{error:#}")) {
                Err(error) if error.contains("(state Z") => break error,
                Err(error) => assert!(error.contains(&gone), "{error}"),
                Ok(_) => {}
            }
            std::thread::yield_now();
        };
        assert!(error.contains(&gone), "{error}");
        assert!(error.contains("VmRSS: (state Z (zombie))"), "{error}");
        child.wait().unwrap();
    }
}
