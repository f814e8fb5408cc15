//! `make bench-memory`: the operator's memory with very many namespaces and pods. A measurement, no test: it fails only
//! if what was measured is not what was meant.
#![allow(clippy::print_stdout, reason = "this is what the benchmark is for")]

mod governed;
pub mod objects;
pub mod process;
mod report;
pub mod seed;

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::Context as _;
use clap::Parser;
use coppice_plane::Options;

use crate::{TestCluster, on_own_plane};
use objects::Objects;
use process::{Measured, Series};
use report::{Report, Run};

/// Longer than a minute, so that the regular pass over every manager is within it.
const IDLE: Duration = Duration::from_secs(70);

/// What is put on the plane.
#[derive(Clone, Debug, Parser)]
#[command(
    name = "coppice-scale",
    about = "Measures the operator's memory with very many objects on a control plane of its own"
)]
pub struct ScaleArgs {
    /// How many namespaces.
    #[arg(long, default_value_t = 10_000)]
    pub namespaces: usize,
    /// How many pods, spread over the namespaces.
    #[arg(long, default_value_t = 50_000)]
    pub pods: usize,
    /// How many of the namespaces have a `NamespaceManager`.
    #[arg(long, default_value_t = 10_000)]
    pub managers: usize,
    /// Cluster managers with health, and so a record, Deployments and `ReplicaSets` in every namespace, instead of `NamespaceManagers`.
    #[arg(long, conflicts_with_all = ["managers", "churn"])]
    pub governed: bool,
    /// With --governed: how many Deployments, and how many `ReplicaSets`, spread over the namespaces.
    #[arg(long, default_value_t = 20_000, requires = "governed")]
    pub workloads: usize,
    /// How long a pod is as JSON.
    #[arg(long, default_value_t = 4_000)]
    pub pod_bytes: usize,
    /// How many pods are changed at once, each in a namespace of its own as far as there are enough.
    #[arg(long, default_value_t = 5_000)]
    pub churn: usize,
    /// The operator; by default the one beside this program.
    #[arg(long)]
    pub operator: Option<PathBuf>,
}

/// Makes the measurement and prints it.
pub fn run(settings: &ScaleArgs) -> anyhow::Result<()> {
    on_own_plane(async {
        // On Ctrl-C everything that was started ends with this value.
        tokio::select! {
            result = measure(settings) => result,
            _ = tokio::signal::ctrl_c() => anyhow::bail!("interrupted"),
        }
    })
}

async fn measure(settings: &ScaleArgs) -> anyhow::Result<()> {
    let program =
        settings.operator.clone().map_or_else(|| crate::test_cluster::binary("coppice-operator"), Ok)?;
    let test_cluster = TestCluster::bare(Options { scale: true, ..Options::default() }).await?;
    test_cluster.install().await?;
    process::end_controllers(&test_cluster).await?;
    let default = test_cluster.get("namespace", "", "default").await?.context("no namespace default")?;
    let created = default["metadata"]["creationTimestamp"].as_str().unwrap_or_default().to_owned();
    let bench = ScaleRun {
        objects: Objects::new(created, settings.pod_bytes),
        settings: settings.clone(),
        program,
        test_cluster,
    };
    let report = if settings.governed { bench.governed_runs().await? } else { bench.runs().await? };
    report::print(&report)
}

/// Whether a program is a release build, by where cargo put it.
fn build(program: &Path) -> &'static str {
    if program.components().any(|part| part.as_os_str() == "release") { "release" } else { "debug" }
}

struct ScaleRun {
    objects: Objects,
    settings: ScaleArgs,
    program: PathBuf,
    test_cluster: TestCluster,
}

impl ScaleRun {
    async fn runs(&self) -> anyhow::Result<Report> {
        let ScaleArgs { namespaces, managers, pods, .. } = self.settings;
        let mut runs = vec![self.start("nothing", 0).await?];
        self.seed("namespaces", (0..namespaces).map(|n| self.objects.namespace(n))).await?;
        runs.push(self.start("namespaces", 0).await?);
        self.seed("managers", (0..managers).map(|n| self.objects.manager(n))).await?;
        runs.push(self.start("and managers, first pass", managers).await?);
        runs.push(self.start("and managers, started again", 0).await?);
        let mut kib_per_pod = None;
        if pods > 0 {
            let every = (0..pods).map(|n| self.objects.pod(n % namespaces, n / namespaces, 0));
            self.seed("pods", every).await?;
            runs.push(self.start("and pods, first pass", managers).await?);
            runs.push(self.start("and pods, started again", 0).await?);
            kib_per_pod = per_pod(&runs, pods);
            runs.push(self.churn().await?);
        }
        if let Some(last) = runs.last() {
            self.check(last)?;
        }
        Ok(Report { build: build(&self.program), pod_bytes: self.settings.pod_bytes, runs, kib_per_pod })
    }

    /// Whether what was in the caches is what was seeded.
    fn check(&self, run: &Run) -> anyhow::Result<()> {
        let ScaleArgs { namespaces, managers, pods, .. } = self.settings;
        let [seen_namespaces, seen_managers, seen_pods] = run.objects;
        // Beside those that were seeded there are those of the plane itself.
        anyhow::ensure!(seen_namespaces >= count(namespaces), "only {seen_namespaces} namespaces were seen");
        let same = |seen: f64, meant: usize| (seen - count(meant)).abs() < 0.5;
        anyhow::ensure!(same(seen_managers, managers), "{seen_managers} managers were seen");
        anyhow::ensure!(same(seen_pods, pods), "{seen_pods} pods were seen");
        Ok(())
    }

    async fn seed(
        &self,
        what: &str,
        entries: impl Iterator<Item = objects::EtcdEntry>,
    ) -> anyhow::Result<()> {
        let since = Instant::now();
        let written = seed::seed(self.test_cluster.plane.etcd_url(), entries).await?;
        println!("seeded {written} {what} in {:.1} s", since.elapsed().as_secs_f64());
        Ok(())
    }

    /// Starts the operator, looks at it when it is ready and when it has settled, and ends it.
    async fn start(&self, what: &'static str, writes: usize) -> anyhow::Result<Run> {
        println!("running the operator: {what} ...");
        let mut operator = Measured::spawn(&self.test_cluster, &self.program)?;
        let ready = operator.ready().await?;
        let enough = count(writes);
        let settled = operator.settled(|s| s.sum("coppice_status_writes_total") >= enough).await?;
        finish(operator, what, vec![("ready", ready), ("settled", settled)]).await
    }

    /// Starts the operator and lets the cluster change meanwhile.
    async fn churn(&self) -> anyhow::Result<Run> {
        println!("running the operator: pods change, the API server is restarted, and a minute passes ...");
        let mut operator = Measured::spawn(&self.test_cluster, &self.program)?;
        let mut samples = vec![("ready", operator.ready().await?)];
        samples.push(("settled", operator.settled(|_| true).await?));
        let looked_at = operator.metrics().await?.sum("coppice_reconciles_total");
        self.touch(1).await?;
        let enough = looked_at + count(self.settings.churn.min(self.settings.managers));
        samples
            .push(("pods changed", operator.settled(|s| s.sum("coppice_reconciles_total") >= enough).await?));
        let lists = operator.metrics().await?.lists("pods");
        let _server = process::restart_api_server(&self.test_cluster, self.touch(2)).await?;
        let relisted = |series: &Series| series.lists("pods") > lists;
        samples.push(("listed again", operator.settled(relisted).await?));
        tokio::time::sleep(IDLE).await;
        samples.push(("a minute later", operator.settled(|_| true).await?));
        finish(operator, "and pods, with changes", samples).await
    }

    async fn touch(&self, touched: usize) -> anyhow::Result<()> {
        let ScaleArgs { namespaces, pods, churn, .. } = self.settings;
        let some = (0..churn.min(pods)).map(|n| self.objects.pod(n % namespaces, n / namespaces, touched));
        self.seed("changes of pods", some).await
    }
}

async fn finish(
    operator: Measured,
    what: &'static str,
    samples: Vec<(&'static str, process::Sample)>,
) -> anyhow::Result<Run> {
    let series = operator.metrics().await?;
    operator.stop().await?;
    Ok(Run {
        what,
        samples,
        objects: ["namespaces", "namespacemanagers", "pods"].map(|kind| series.objects(kind)),
        governed: ["managednamespaces", "deployments", "replicasets"].map(|kind| series.objects(kind)),
        requests: series.sum("coppice_api_requests_total"),
        status_writes: series.sum("coppice_status_writes_total"),
        relists: series.sum("coppice_watch_restarts_total"),
        idle: None,
    })
}

/// From the two runs that had nothing to write, without and with pods, when they had settled.
fn per_pod(runs: &[Run], pods: usize) -> Option<f64> {
    let of = |what: &str| runs.iter().find(|run| run.what == what)?.sample("settled").map(|s| s.rss);
    let (without, with) = (of("and managers, started again")?, of("and pods, started again")?);
    Some((count_of(with) - count_of(without)) / count(pods))
}

#[allow(clippy::cast_precision_loss, reason = "counts of objects are far below 2^52")]
fn count(n: usize) -> f64 {
    n as f64
}

#[allow(clippy::cast_precision_loss, reason = "KiB of one process are far below 2^52")]
fn count_of(n: u64) -> f64 {
    n as f64
}
