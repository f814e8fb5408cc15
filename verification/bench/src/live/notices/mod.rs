//! Very many namespaces that are due with a notice to their owners, evenly over a time (`coppice-bench notices`): when owners are
//! notified, whether namespaces of which nobody is notified are late because of that, memory and requests. Beside it a controller that
//! polls as the SKA manager is documented to (`peer-python`).
//!
//! It is no part of `make bench`: it takes as long as namespaces are due.

mod figures;
mod fleet;
mod kept;
mod measured;
mod report;
mod slack;
mod witness;

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, bail, ensure};
use coppice_plane::OPERATOR;
use coppice_tests::program::Program;
use coppice_tests::test_cluster::repository;
use futures::StreamExt as _;
use futures::stream::FuturesUnordered;
use jiff::{SignedDuration, Timestamp};
use serde_json::json;
use tokio::signal::unix::{SignalKind, signal};

use self::fleet::{ADDRESS, Fleet, TTL, announced_name};
use self::kept::{Kept, Process};
use self::measured::Measured;
pub use self::report::NoticesReport;
use self::slack::Slack;
use self::witness::Witness;
use super::testbed::pause;
use super::{Programs, Running, Testbed, now, progress};
use crate::report::Subject;

/// A program has so long until the first moment at which something is to be done, and so long for each namespace besides: it is
/// seeded, and looked at for the first time.
const START: SignedDuration = SignedDuration::from_secs(30);
const FIRST_LOOK: SignedDuration = SignedDuration::from_millis(40);
/// Requests are counted from this long before that moment.
const LEAD: SignedDuration = SignedDuration::from_secs(2);
/// Between two looks at the audit log, and between two at the memory.
const POLL_INTERVAL: Duration = Duration::from_millis(500);
const SAMPLE_INTERVAL: SignedDuration = SignedDuration::from_secs(5);
/// What is in a namespace is removed so long after its deletion, and then the namespace.
const CONTENT_GONE: Duration = Duration::from_secs(2);
/// After the last deletion, for messages that follow it.
const LAST_WORDS: Duration = Duration::from_secs(5);
/// The peer's account and the folder of its program.
const PEER_ACCOUNT: &str = "ska-peer";
const PEER: &str = "verification/bench/peer-python";

/// How many are due in which time.
#[derive(Clone, Debug, clap::Args)]
pub struct Scale {
    /// Namespaces that are due, and of which owners are notified.
    #[arg(long, default_value_t = 10_000)]
    pub namespaces: usize,
    /// Within so many minutes, evenly.
    #[arg(long, default_value_t = 60)]
    pub minutes: u64,
    /// So many owners take turns; one owner gets digests [default: a fifth of the namespaces].
    #[arg(long)]
    pub owners: Option<usize>,
}

/// Whom to measure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Only {
    /// Coppice alone.
    Coppice,
    /// The peer alone.
    Peer,
}

/// What is measured.
#[derive(Clone, Debug, clap::Args)]
pub struct NoticesArgs {
    #[command(flatten)]
    scale: Scale,
    /// The notice of deletions, in seconds. The peer gives none.
    #[arg(long, default_value_t = 30)]
    notice: u32,
    /// The channel takes so many messages a second and refuses what is more [default: any number].
    #[arg(long)]
    limit: Option<f64>,
    /// What is not deleted so many seconds after the last date counts as not deleted.
    #[arg(long, default_value_t = 120)]
    drain: u32,
    /// Measure only one of them.
    #[arg(long, value_enum)]
    only: Option<Only>,
    /// A Python 3.11 or later that has what peer-python/requirements.txt names.
    #[arg(long, default_value = "python3")]
    python: PathBuf,
    /// The operator [default: the one beside this program].
    #[arg(long)]
    operator: Option<PathBuf>,
    /// Where the report goes, and all that is measured as JSON lines [default: bench/results, which is not committed].
    #[arg(long)]
    out: Option<PathBuf>,
}

impl NoticesArgs {
    /// Where the operator is, if not beside this program.
    pub fn operator(&self) -> Option<&Path> {
        self.operator.as_deref()
    }

    /// Where the report goes.
    pub fn out(&self) -> PathBuf {
        self.out.clone().unwrap_or_else(|| repository().join("verification/bench/results"))
    }
}

/// Measures both, one after the other, each on a plane of its own. What is measured is in the report as it is measured.
pub async fn run(args: &NoticesArgs, operator: &Path, report: &mut NoticesReport) -> anyhow::Result<()> {
    if args.only != Some(Only::Peer) {
        coppice(args, operator, report).await.context("Coppice")?;
        // What was measured is shown before the next thing is.
        progress(&report.text(None)?);
    }
    if args.only != Some(Only::Coppice) {
        peer(args, report).await.context("the peer")?;
    }
    Ok(())
}

async fn coppice(args: &NoticesArgs, operator: &Path, report: &mut NoticesReport) -> anyhow::Result<()> {
    let notice = SignedDuration::from_secs(args.notice.into());
    let (testbed, slack, fleet) = until_interrupted(prepare(args, notice)).await?;
    let config = json!({
        "apiVersion": "coppice.dev/v1alpha1", "kind": "CoppiceConfig", "metadata": {"name": "coppice"}, "spec": {
            // It would end the benchmark; each deletion is still reserved.
            "governor": {"perMinute": 100_000, "perHour": 100_000, "maxShare": "100%", "atLeast": 100_000},
            "channels": [{"name": "slack", "slack": {"tokenFile": "slack-token", "apiUrl": slack.url}}],
        }
    });
    testbed.test_cluster.credential("slack-token", "xoxb-bench")?;
    testbed.test_cluster.apply(&config.to_string()).await?;
    let notify = format!(
        "owner: {{annotations: [{{key: {ADDRESS}, format: SKA}}]}}, notify: {{channels: [slack], on: []}}, "
    );
    testbed.test_cluster.apply(&manager("notified", "team-*", &notify, args.notice)).await?;
    testbed.test_cluster.apply(&manager("others", "other-*", "", 0)).await?;
    let programs = Programs { operator: operator.to_owned(), peer: None };
    let start = async || Running::spawn(&testbed, &programs, Subject::Coppice);
    let mut running = start().await?;
    let begins = fleet.due(0) - notice;
    progress("notices: the first looks of Coppice ...");
    let witness = until_interrupted(async {
        running.settled(fleet.namespaces + fleet.others).await?;
        ensure!(now() < begins - LEAD, "its first looks took too long");
        wait(&testbed, OPERATOR, begins).await
    });
    let path = report.folder().join("notices-coppice.jsonl");
    let mut measured = Measured::new("Coppice", (fleet, notice), begins, (witness.await?, slack), &path)?;
    let mut kept = Kept::new(running, start);
    measure(args, &testbed, &mut measured, &mut kept, report).await?;
    kept.into_inner().stop().await
}

/// A cluster manager that enforces, of the namespaces with such names.
fn manager(name: &str, names: &str, notify: &str, notice: u32) -> String {
    let ttl = TTL.as_secs();
    format!(
        "{{apiVersion: coppice.dev/v1alpha1, kind: ClusterNamespaceManager, metadata: {{name: {name}}}, spec: {{mode: Enforce, \
         selector: {{names: ['{names}']}}, settle: 1s, ttl: {{after: {ttl}s}}, health: {{}}, {notify}policies: [{{name: end, \
         when: {{phase: {{in: [Stale]}}}}, then: {{delete: {{notice: {notice}s}}}}}}]}}}}"
    )
}

async fn peer(args: &NoticesArgs, report: &mut NoticesReport) -> anyhow::Result<()> {
    let (testbed, slack, fleet) = until_interrupted(prepare(args, SignedDuration::ZERO)).await?;
    let folder = repository().join(PEER);
    let rights = folder.join("rbac.yaml");
    let rights = std::fs::read_to_string(&rights).with_context(|| rights.display().to_string())?;
    testbed.test_cluster.apply(&rights).await?;
    let kubeconfig = testbed.test_cluster.service_account("coppice-system", PEER_ACCOUNT).await?;
    let dir = testbed.test_cluster.plane.dir();
    let config = dir.join("ska-peer.json");
    let entries = json!([{"names": ["team-.*", "other-.*"], "ttl": TTL.as_secs()}]);
    std::fs::write(&config, entries.to_string())?;
    let user = format!("system:serviceaccount:coppice-system:{PEER_ACCOUNT}");
    let mut first = Witness::new(dir.join("audit.log"), &user)?;
    let mut starts = 0;
    let mut start = async || {
        starts += 1;
        Program::start_without_kubeconfig(
            &args.python,
            dir.join(format!("log/ska-peer-{starts}.log")),
            |command| {
                command.arg(folder.join("ska_peer.py")).arg("--kubeconfig").arg(&kubeconfig);
                command.arg("--config").arg(&config).args(["--slack-url", &slack.url]);
            },
        )
        .await
    };
    let program = start().await?;
    progress("notices: the first looks of the peer ...");
    // By its own rule a namespace is due at its creation and ttl, though creation times are cut to whole seconds.
    let lead = SignedDuration::from_secs(1);
    let begins = fleet.due(0) - lead;
    // It adopts each namespace, and writes that it is well.
    let patches = 2 * (fleet.namespaces + fleet.others);
    let witness = until_interrupted(async {
        while first.seen.requests.get("patch namespaces").is_none_or(|n| *n < patches) {
            ensure!(now() < begins - LEAD, "its first looks took too long; {}", program.last_lines());
            pause(POLL_INTERVAL).await;
            first.read()?;
        }
        wait(&testbed, &user, begins).await
    });
    let path = report.folder().join("notices-peer.jsonl");
    let witness = witness.await?;
    let mut kept = Kept::new(program, start);
    let mut measured = Measured::new("the peer", (fleet, lead), begins, (witness, slack.clone()), &path)?;
    measure(args, &testbed, &mut measured, &mut kept, report).await
}

/// A plane with namespaces, of which the first is due after this notice and the time that it takes to look at them.
async fn prepare(args: &NoticesArgs, notice: SignedDuration) -> anyhow::Result<(Testbed, Slack, Fleet)> {
    progress("notices: starting a control plane ...");
    let testbed = Testbed::start().await?;
    let slack = Slack::start(args.limit).await?;
    let all = i32::try_from(args.scale.namespaces)?;
    let first = now() + START + FIRST_LOOK * all + notice;
    let fleet = Fleet::new(&args.scale, Timestamp::from_second(first.as_second())?);
    progress(&format!("notices: seeding {} and {} namespaces ...", fleet.namespaces, fleet.others));
    fleet.seed(&testbed).await?;
    Ok((testbed, slack, fleet))
}

/// Waits until shortly before something is to be done, and counts from then on.
async fn wait(testbed: &Testbed, user: &str, begins: Timestamp) -> anyhow::Result<Witness> {
    let time = (begins - LEAD).duration_since(now()).max(SignedDuration::ZERO);
    progress(&format!("notices: the first is to be notified in {} s ...", time.as_secs()));
    pause(time.unsigned_abs()).await;
    Witness::new(testbed.test_cluster.plane.dir().join("audit.log"), user)
}

/// Watches a program; what was measured by then goes into the report, however that ends.
async fn measure<P: Process, S: AsyncFnMut() -> anyhow::Result<P>>(
    args: &NoticesArgs,
    testbed: &Testbed,
    measured: &mut Measured,
    kept: &mut Kept<P, S>,
    report: &mut NoticesReport,
) -> anyhow::Result<()> {
    let watched = until_interrupted(watch(args, testbed, measured, kept, report)).await;
    let incomplete = watched.as_ref().err().map(|error| format!("{error:#}"));
    report.add(measured, incomplete.as_deref())?;
    watched
}

/// Lets it do its work until everything is deleted or the time is over, and looks at its memory meanwhile.
async fn watch<P: Process, S: AsyncFnMut() -> anyhow::Result<P>>(
    args: &NoticesArgs,
    testbed: &Testbed,
    measured: &mut Measured,
    kept: &mut Kept<P, S>,
    report: &mut NoticesReport,
) -> anyhow::Result<()> {
    measured.look(kept.sample().await?)?;
    let (mut looked, mut said) = (now(), now());
    let last = measured.fleet.end() + SignedDuration::from_secs(args.drain.into());
    let all = measured.fleet.namespaces + measured.fleet.others;
    let mut removals = FuturesUnordered::new();
    while now() < last && measured.witness.seen.deleted.len() < all {
        let next = tokio::time::Instant::now() + POLL_INTERVAL;
        while tokio::time::timeout_at(next, next_of(&mut removals)).await.is_ok() {}
        removals.extend(measured.read()?.into_iter().map(|name| remove(testbed, name)));
        if now().duration_since(looked) >= SAMPLE_INTERVAL {
            looked = now();
            measured.look(kept.sample().await?)?;
        }
        if now().duration_since(said) >= SignedDuration::from_mins(1) {
            said = now();
            progress(&format!("notices: {}", measured.state(all)));
            report.save_meanwhile(measured)?;
        }
    }
    pause(LAST_WORDS).await;
    measured.read()?;
    measured.look(kept.sample().await?)
}

/// Ends with this work, or with an error when somebody interrupts or ends this program.
async fn until_interrupted<T>(work: impl Future<Output = anyhow::Result<T>>) -> anyhow::Result<T> {
    let mut terminate = signal(SignalKind::terminate())?;
    tokio::select! {
        done = work => done,
        _ = tokio::signal::ctrl_c() => bail!("interrupted"),
        _ = terminate.recv() => bail!("interrupted by SIGTERM"),
    }
}

/// The next end of one of them; never if there is none.
async fn next_of(removals: &mut FuturesUnordered<impl Future<Output = ()>>) {
    if removals.next().await.is_none() {
        futures::future::pending::<()>().await;
    }
}

/// What the cluster's controller of namespaces does with one that is being deleted, which does not run here: it removes what is
/// in it, and then itself. What is not there any more needs no removal.
async fn remove(testbed: &Testbed, name: String) {
    pause(CONTENT_GONE).await;
    let mut paths = vec![format!("/apis/coppice.dev/v1alpha1/namespaces/{name}/managednamespaces/coppice")];
    if let Some(n) = number_of(&name) {
        let workloads = [testbed.objects.deployment(n, 0), testbed.objects.replica_set(n, 0)];
        // Such as /registry/deployments/NAMESPACE/NAME.
        let path = |key: &str| {
            let (kind, name_of) = (key.split('/').nth(2)?, key.rsplit('/').next()?);
            Some(format!("/apis/apps/v1/namespaces/{name}/{kind}/{name_of}"))
        };
        paths.extend(workloads.iter().filter_map(|(key, _)| path(key)));
    }
    for path in paths {
        drop(testbed.request("DELETE", &path, None).await);
    }
    let body = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}, "spec": {"finalizers": []}});
    if let Err(error) =
        testbed.request("PUT", &format!("/api/v1/namespaces/{name}/finalize"), Some(&body)).await
    {
        progress(&format!("notices: {name} stays: {error:#}"));
    }
}

/// The number of the announced namespace with this name.
fn number_of(name: &str) -> Option<usize> {
    let n = name.rsplit('-').next()?.parse().ok()?;
    (announced_name(n) == name).then_some(n)
}
