//! Very many namespaces that are due with a notice to their owners, evenly over a time (`coppice-bench notices`): when owners are
//! told, whether namespaces of which nobody is told are late because of that, memory and requests. Beside it a controller that
//! polls as the SKA manager is documented to (`peer-python`).
//!
//! It is no part of `make bench`: it takes as long as namespaces are due.

mod fleet;
mod outcome;
mod slack;
mod witness;

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, ensure};
use coppice_plane::OPERATOR;
use coppice_tests::program::Program;
use coppice_tests::scale::process::Sample;
use coppice_tests::test_cluster::repository;
use futures::StreamExt as _;
use futures::stream::FuturesUnordered;
use jiff::{SignedDuration, Timestamp};
use serde_json::json;

use self::fleet::{ADDRESS, Fleet, TTL, announced_name};
pub use self::outcome::{Outcome, table};
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
    /// Namespaces that are due, and of which owners are told.
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
}

impl NoticesArgs {
    /// Where the operator is, if not beside this program.
    pub fn operator(&self) -> Option<&Path> {
        self.operator.as_deref()
    }
}

/// Measures both, one after the other, each on a plane of its own.
pub async fn run(args: &NoticesArgs, operator: &Path) -> anyhow::Result<Vec<Outcome>> {
    let mut outcomes = Vec::new();
    if args.only != Some(Only::Peer) {
        outcomes.push(coppice(args, operator).await.context("Coppice")?);
        // What was measured is shown before the next thing is.
        progress(&table(&outcomes));
    }
    if args.only != Some(Only::Coppice) {
        outcomes.push(peer(args).await.context("the peer")?);
    }
    Ok(outcomes)
}

async fn coppice(args: &NoticesArgs, operator: &Path) -> anyhow::Result<Outcome> {
    let notice = SignedDuration::from_secs(args.notice.into());
    let (testbed, slack, fleet) = prepare(args, notice).await?;
    let config = json!({
        "apiVersion": "coppice.dev/v1alpha1", "kind": "CoppiceConfig", "metadata": {"name": "coppice"}, "spec": {
            // It would end the benchmark; it still is booked.
            "governor": {"perMinute": 100_000, "perHour": 100_000, "maxShare": "100%", "atLeast": 100_000},
            "channels": [{"name": "slack", "slack": {"tokenFile": "slack-token", "apiUrl": slack.url}}],
        }
    });
    testbed.test_cluster.credential("slack-token", "xoxb-bench")?;
    testbed.test_cluster.apply(&config.to_string()).await?;
    let notify = format!(
        "owner: {{annotations: [{{key: {ADDRESS}, format: SKA}}]}}, notify: {{channels: [slack], on: []}}, "
    );
    testbed.test_cluster.apply(&manager("told", "team-*", &notify, args.notice)).await?;
    testbed.test_cluster.apply(&manager("others", "other-*", "", 0)).await?;
    let programs = Programs { operator: operator.to_owned(), peer: None };
    let mut running = Running::spawn(&testbed, &programs, Subject::Coppice)?;
    let begins = fleet.due(0) - notice;
    progress("notices: the first looks of Coppice ...");
    running.settled(fleet.namespaces + fleet.others).await?;
    ensure!(now() < begins - LEAD, "its first looks took too long");
    let mut witness = wait(&testbed, OPERATOR, begins).await?;
    let watched = watch(&testbed, &fleet, &mut witness, || running.sample(), args.drain).await?;
    running.stop().await?;
    let owed = |n| fleet.due(n) - notice;
    Ok(Outcome::of("Coppice", &fleet, owed, begins, &slack.posted(), &witness.seen, &watched))
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

async fn peer(args: &NoticesArgs) -> anyhow::Result<Outcome> {
    let (testbed, slack, fleet) = prepare(args, SignedDuration::ZERO).await?;
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
    let log = dir.join("log/ska-peer.log");
    let program = Program::start_without_kubeconfig(&args.python, log, |command| {
        command.arg(folder.join("ska_peer.py")).arg("--kubeconfig").arg(&kubeconfig);
        command.arg("--config").arg(&config).args(["--slack-url", &slack.url]);
    })
    .await?;
    progress("notices: the first looks of the peer ...");
    let begins = fleet.due(0) - SignedDuration::from_secs(1);
    // It adopts each namespace, and writes that it is well.
    let patches = 2 * (fleet.namespaces + fleet.others);
    while first.seen.requests.get("patch namespaces").is_none_or(|n| *n < patches) {
        ensure!(now() < begins - LEAD, "its first looks took too long; {}", program.last_lines());
        pause(POLL_INTERVAL).await;
        first.read()?;
    }
    let mut witness = wait(&testbed, &user, begins).await?;
    let watched = watch(&testbed, &fleet, &mut witness, || program.sample(), args.drain).await?;
    // By its own rule a namespace is due at its creation and ttl, though creation times are cut to whole seconds.
    let owed = |n| fleet.due(n) - SignedDuration::from_secs(1);
    Ok(Outcome::of("the peer", &fleet, owed, begins, &slack.posted(), &witness.seen, &watched))
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
    progress(&format!("notices: the first is to be told in {} s ...", time.as_secs()));
    pause(time.unsigned_abs()).await;
    Witness::new(testbed.test_cluster.plane.dir().join("audit.log"), user)
}

/// Lets it do its work until everything is deleted or the time is over; returns its memory meanwhile, each with its instant.
async fn watch(
    testbed: &Testbed,
    fleet: &Fleet,
    witness: &mut Witness,
    sample: impl Fn() -> anyhow::Result<Sample>,
    drain: u32,
) -> anyhow::Result<Vec<(Timestamp, Sample)>> {
    let mut samples = vec![(now(), sample()?)];
    let last = fleet.end() + SignedDuration::from_secs(drain.into());
    let all = fleet.namespaces + fleet.others;
    let mut removals = FuturesUnordered::new();
    let mut said = now();
    while now() < last && witness.seen.deleted.len() < all {
        let next = tokio::time::Instant::now() + POLL_INTERVAL;
        while tokio::time::timeout_at(next, next_of(&mut removals)).await.is_ok() {}
        removals.extend(witness.read()?.into_iter().map(|name| remove(testbed, name)));
        if samples.last().is_none_or(|(at, _)| now().duration_since(*at) >= SAMPLE_INTERVAL) {
            samples.push((now(), sample()?));
        }
        if now().duration_since(said) >= SignedDuration::from_mins(1) {
            said = now();
            progress(&format!("notices: {} of {all} are deleted ...", witness.seen.deleted.len()));
        }
    }
    pause(LAST_WORDS).await;
    witness.read()?;
    samples.push((now(), sample()?));
    Ok(samples)
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
