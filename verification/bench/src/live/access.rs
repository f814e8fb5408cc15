//! Credentials for other clusters (`coppice-bench access`): how soon very many ClusterAccesses are Ready that are created at once, what
//! the program costs while all their credentials are fresh, and what it asks of the targets when it is started again. On two control planes
//! without scheduler and nodes: that with the program, and one that stands for all targets, each with a server of its own.
//!
//! It is no part of `make bench`: there is no peer in it.

mod program;
mod target_log;
mod targets;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use coppice_plane::{ADMIN, Options, Pods};
use coppice_tests::TestCluster;
use coppice_tests::requests::Requests;
use coppice_tests::scale::process::Sample;
use coppice_tests::test_cluster::{access_manifest, repository, until};
use futures::{StreamExt as _, TryStreamExt as _};
use jiff::Timestamp;
use serde_json::{Value, json};

use self::program::{AccessProgram, Start, Steady};
use self::target_log::{Counts, TargetLog};
use self::targets::Targets;
use super::testbed::pause;
use super::trees::{follow, place, watched};
use super::{now, progress};
use crate::report::{Goal, Part, ReportWriter, Subject};
use crate::stats::{count, mib, percentile};

/// The name of its part of the report.
pub const PART: &str = "access";
/// Generous: a busy machine is not a broken program. A watch of the API server lasts for an hour.
const TIMEOUT: Duration = Duration::from_mins(55);
/// Memory is read after so long.
const REST: Duration = Duration::from_secs(15);
/// So many credentials are shown to the target at once.
const AT_ONCE: usize = 16;
/// The most memory, in MiB.
const MEMORY: Goal = Goal::NeverAbove(100.0);
/// The most of a processor while nothing is due.
const PROCESSOR: Goal = Goal::NeverAbove(0.05);
/// What does not happen.
const NEVER: Goal = Goal::NeverAbove(0.0);

/// What is measured.
#[derive(Clone, Debug, clap::Args)]
pub struct AccessArgs {
    /// How many ClusterAccesses there are: each number on planes of its own.
    #[arg(long, value_delimiter = ',', default_values_t = [100_usize, 1_000, 5_000])]
    accesses: Vec<usize>,
    /// For how many clusters they are.
    #[arg(long, default_value_t = 20)]
    clusters: usize,
    /// In how many namespaces they are; all those for a cluster are in one.
    #[arg(long, default_value_t = 1)]
    namespaces: usize,
    /// How often the program is stopped and started again when all are issued.
    #[arg(long, default_value_t = 3)]
    starts: usize,
    /// For how many seconds its processor time is measured while nothing is due.
    #[arg(long, default_value_t = 60)]
    steady_seconds: u64,
    /// Where the report goes [default: docs/benchmarks/access].
    #[arg(long)]
    out: Option<PathBuf>,
    /// End with exit code 1 if a goal is missed: before a release.
    #[arg(long)]
    strict: bool,
}

impl AccessArgs {
    /// How often starts are measured.
    pub const fn starts(&self) -> usize {
        self.starts
    }

    /// Whether a missed goal is a failure.
    pub const fn is_strict(&self) -> bool {
        self.strict
    }

    /// Where the report goes.
    pub fn out(&self) -> PathBuf {
        self.out.clone().unwrap_or_else(|| repository().join("docs/benchmarks/access"))
    }

    const fn steady(&self) -> Duration {
        Duration::from_secs(self.steady_seconds)
    }
}

/// Measures each number of accesses, and writes every figure into the report as it is made.
///
/// # Errors
/// If anything is not as it should be, such as a credential that its target does not take.
pub async fn run(args: &AccessArgs, program: &Path, writer: &mut ReportWriter) -> anyhow::Result<()> {
    let is_whole = args.clusters > 0 && args.namespaces > 0 && !args.accesses.contains(&0);
    ensure!(is_whole, "there is a cluster, an access, and a namespace");
    let title = "Credentials for other clusters";
    writer.begin(Part { name: PART, title, method: method(args), remarks: remarks(), ..Part::default() });
    for &accesses in &args.accesses {
        let measured = measure(args, accesses, program).await;
        measured.with_context(|| format!("{accesses} ClusterAccesses"))?.write(accesses, writer.part(PART));
        writer.save()?;
    }
    Ok(())
}

async fn measure(args: &AccessArgs, accesses: usize, program: &Path) -> anyhow::Result<Measured> {
    let clusters = args.clusters.min(accesses);
    progress(&format!("{accesses} ClusterAccesses for {clusters} clusters"));
    let mut bench = AccessBench::start(args, accesses, program).await?;
    let ready = bench.issue().await?;
    progress("all are Ready");
    pause(REST).await;
    let (issuing, asked) = (bench.program.sample()?, bench.log.since_last()?);
    let steady = bench.steady(args).await?;
    let starts = bench.starts(args).await?;
    let steady_again = bench.steady(args).await?;
    progress("every credential is shown to its target");
    bench.all_are_fresh().await?;
    Ok(Measured { ready, issuing, asked, steady, starts, steady_again })
}

/// The figures of one number of accesses.
struct Measured {
    /// When each was Ready, in seconds since they were created.
    ready: Vec<f64>,
    /// The program when all were.
    issuing: Sample,
    /// What was asked of the targets by then.
    asked: Counts,
    steady: (Steady, Counts),
    starts: Vec<(Start, Counts)>,
    steady_again: (Steady, Counts),
}

impl Measured {
    fn write(&self, accesses: usize, part: &mut Part) {
        let mut add = |what: &str, unit, goal, value| {
            part.add(&format!("{accesses} accesses: {what}"), unit, Subject::Coppice, goal, value);
        };
        let at = |percent| percentile(&self.ready, percent).unwrap_or_default();
        add("half are Ready", "s", None, at(50.0));
        add("all are Ready", "s", None, at(100.0));
        add("requests to the targets for each", "", None, count(self.asked.requests) / count(accesses));
        add("credentials asked for, each", "", None, count(self.asked.tokens) / count(accesses));
        add("memory when all are Ready", "MiB", Some(MEMORY), mib(self.issuing.rss));
        add("peak until then", "MiB", Some(MEMORY), mib(self.issuing.peak));
        add("processor time until then, each", "ms", None, 1000.0 * self.issuing.cpu / count(accesses));
        let mut steady = |when: &str, (steady, asked): &(Steady, Counts)| {
            add(&format!("{when}, processor"), "cores", Some(PROCESSOR), steady.processor);
            add(&format!("{when}, requests a second"), "", None, steady.requests);
            add(&format!("{when}, credentials asked for"), "", Some(NEVER), count(asked.tokens));
            add(&format!("{when}, writes to targets"), "", Some(NEVER), count(asked.writes));
            add(&format!("{when}, reads of targets"), "", None, count(asked.requests - asked.writes));
        };
        steady("nothing is due", &self.steady);
        steady("nothing is due after a start", &self.steady_again);
        for (start, asked) in &self.starts {
            add("a start until ready", "s", None, start.ready);
            add("a start until nothing waits", "s", None, start.settled);
            add("a start, processor time", "s", None, start.sample.cpu);
            add("a start, credentials asked for", "", Some(NEVER), count(asked.tokens));
            add("a start, writes to targets", "", Some(NEVER), count(asked.writes));
            add("a start, reads of targets", "", None, count(asked.requests - asked.writes));
            add("a start, memory", "MiB", Some(MEMORY), mib(start.sample.rss));
            add("a start, peak", "MiB", Some(MEMORY), mib(start.sample.peak));
        }
    }
}

/// Two clusters, and the program between them.
struct AccessBench {
    accesses: usize,
    here: TestCluster,
    there: TestCluster,
    targets: Targets,
    log: TargetLog,
    admin: Requests,
    program: AccessProgram,
}

impl AccessBench {
    async fn start(args: &AccessArgs, accesses: usize, program: &Path) -> anyhow::Result<Self> {
        // With fsync: otherwise writes are faster than on any real cluster. Only of the targets it is counted what is asked.
        let options = |audit| Options { audit, fsync: true, pods: Pods::Pending, ..Options::default() };
        let here = TestCluster::bare(options(false)).await?;
        let there = TestCluster::bare_at_once(options(true)).await?;
        here.kubectl_stdin(ADMIN, &["apply", "--server-side", "-f", "-"], &access_manifest()?).await?;
        let admin = here.admin().await?;
        until("the kind is served", async || admin.list("ClusterAccess", "").await.ok()).await?;
        let account = here.service_account("coppice-access-system", "coppice-access").await?;
        let clusters = args.clusters.min(accesses);
        let targets = Targets::start(&there, clusters, args.namespaces).await?;
        admin.create_all(&targets.namespaces()).await?;
        admin.create_all(&targets.kubeconfigs()?).await?;
        let log = TargetLog::new(there.plane.dir().join("audit.log"));
        let program = AccessProgram::start(&here, program, &account).await?;
        Ok(Self { accesses, here, there, targets, log, admin, program })
    }

    /// Creates all of them at once; when each was Ready, in seconds from the first request on.
    async fn issue(&mut self) -> anyhow::Result<Vec<f64>> {
        self.program.leads().await?;
        self.log.since_last()?;
        let objects: Vec<Value> = (0..self.accesses).map(|n| self.targets.access(n)).collect();
        let mut waits: BTreeSet<(String, String)> = objects.iter().map(place).collect();
        let events = watched(&self.admin, "ClusterAccess");
        let began = Instant::now();
        let ready = follow(events, |object, gone| {
            (!gone && object["status"]["phase"] == "Ready" && waits.remove(&place(object))).then_some(())?;
            Some(waits.is_empty())
        });
        let all = async { tokio::try_join!(self.admin.create_all(&objects), ready) };
        let ((), at) = tokio::select! {
            all = tokio::time::timeout(TIMEOUT, all) => {
                all.with_context(|| format!("not Ready in time: {}", self.program.last_lines()))??
            }
            error = self.program.fails() => return Err(error),
        };
        Ok(at.into_iter().map(|at| at.duration_since(began).as_secs_f64()).collect())
    }

    /// What it costs, and what is asked of the targets, while nothing is due.
    async fn steady(&mut self, args: &AccessArgs) -> anyhow::Result<(Steady, Counts)> {
        progress(&format!("nothing is due for {} s", args.steady_seconds));
        self.log.since_last()?;
        Ok((self.program.steady(args.steady()).await?, self.log.since_last()?))
    }

    /// Stops the program in order and starts it again, as often as is asked for; and what is asked of the targets then.
    async fn starts(&mut self, args: &AccessArgs) -> anyhow::Result<Vec<(Start, Counts)>> {
        let mut starts = Vec::new();
        for number in 1..=args.starts {
            progress(&format!("start {number}"));
            self.log.since_last()?;
            let start = self.program.start_again(&self.here, REST).await?;
            starts.push((start, self.log.since_last()?));
        }
        Ok(starts)
    }

    /// Every access is Ready, with a rotation that is not due yet, and its target takes what its Secret holds.
    async fn all_are_fresh(&self) -> anyhow::Result<()> {
        let (now, accesses) = (now(), self.admin.list("ClusterAccess", "").await?);
        ensure!(accesses.len() == self.accesses, "there are {} accesses", accesses.len());
        for access in &accesses {
            let next = access["status"]["nextRotation"].as_str();
            let next = next.and_then(|text| text.parse::<Timestamp>().ok());
            let is_fresh = access["status"]["phase"] == "Ready" && next.is_some_and(|next| next > now);
            ensure!(is_fresh, "it is not fresh: {access:#}");
        }
        let secrets = self.admin.list("Secret", "").await?;
        let tokens: Vec<String> = secrets.iter().filter_map(issued_token).collect();
        ensure!(tokens.len() == self.accesses, "{} Secrets hold a token", tokens.len());
        let ca = reqwest::Certificate::from_pem(self.there.plane.ca_pem().as_bytes())?;
        let http = reqwest::Client::builder().no_proxy().tls_certs_only([ca]).build()?;
        let shown = futures::stream::iter(&tokens).map(|token| self.is_taken(&http, token));
        shown.buffer_unordered(AT_ONCE).try_fold((), async |(), ()| Ok(())).await
    }

    /// The target authenticates a token.
    async fn is_taken(&self, http: &reqwest::Client, token: &str) -> anyhow::Result<()> {
        let review = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": {"token": token}});
        let url = format!("{}/apis/authentication.k8s.io/v1/tokenreviews", self.there.plane.url());
        let request = http.post(url).bearer_auth(self.there.plane.token(ADMIN)?);
        let request = request.header("content-type", "application/json").body(review.to_string());
        let answer: Value = serde_json::from_str(&request.send().await?.error_for_status()?.text().await?)?;
        ensure!(answer["status"]["authenticated"] == true, "a token is not taken: {}", answer["status"]);
        Ok(())
    }
}

/// The token in a Secret that was written for an access.
fn issued_token(secret: &Value) -> Option<String> {
    secret["metadata"]["annotations"]["coppice.dev/credential"].as_str()?;
    let kubeconfig = BASE64_STANDARD.decode(secret["data"]["kubeconfig"].as_str()?).ok()?;
    let kubeconfig: Value = serde_yaml::from_slice(&kubeconfig).ok()?;
    kubeconfig.pointer("/users/0/user/token")?.as_str().map(str::to_owned)
}

fn method(args: &AccessArgs) -> String {
    let AccessArgs { clusters, namespaces, starts, steady_seconds, .. } = args;
    format!(
        "So many ClusterAccesses are created at once, for {clusters} clusters, in {namespaces} namespaces, with TokenRequest, a Role of one rule, and \
         a `ttl` of 24 h. Then nothing is due for {steady_seconds} s, and the program is stopped and started again {starts} times. Two control planes: one \
         with the program, one that is all targets. What is asked of the targets is counted in the audit log there; memory and processor \
         time are the kernel's. In the end every access has to be Ready with a rotation that is not due, and the target \
         authenticates the token of every Secret: otherwise there are no figures."
    )
}

fn remarks() -> Vec<String> {
    let one = "All targets are one API server and one etcd on the same machine, each behind an address of its own: the program takes them for \
               different servers, but they answer more slowly than as many clusters would, and the longer the more credentials there are. Times \
               until Ready are an upper bound.";
    let not_in_it = "Not in it: targets that do not answer, networks with latency, client certificates, ClusterProviders with their `callsPerMinute`.";
    let reads = "What is read of targets while all is fresh are seven lists of each, at the start and then every ten minutes: the search for what \
                 is left there of accesses that have ended. Here each list has what is in all targets, since they are one API server: with 20 \
                 targets twenty times what it would have.";
    vec![one.to_owned(), not_in_it.to_owned(), reads.to_owned()]
}
