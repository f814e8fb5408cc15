//! Trees of namespaces (`coppice-bench trees`): how soon Subnamespaces that many create at once are ready, as the tree grows, and how soon
//! all namespaces of a tree have what is copied from its root. On one control plane with its own controllers, because the quotas of
//! trees are put in force by one of them. And how long the admission webhook takes, before the tree grows and after it, and how
//! soon the program is ready again with the grown tree.
//!
//! It is no part of `make bench`: the one peer in it does not do most of it.

mod hnc;
mod start;
mod webhook;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::PathBuf;
use std::pin::pin;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail, ensure};
use coppice_plane::{ADMIN, Options, Pods};
use coppice_tests::requests::Requests;
use coppice_tests::{Operator, TestCluster};
use futures::stream::FuturesUnordered;
use futures::{Stream, StreamExt as _, TryStreamExt as _};
use kube::api::WatchEvent;
use serde_json::{Value, json};

use self::webhook::Load;
use super::progress;
use super::quiet::quiet;
use super::testbed::pause;
use crate::report::Machine;
use crate::stats::percentile;

const ROOT: &str = "bench";
/// The program of trees; the API server itself does not call its webhook.
const PROGRAM: [&str; 5] = ["trees", "--listen-admission", "127.0.0.1:0", "--admission-name", "127.0.0.1"];
/// What each tenant has besides: what is asked of the webhook.
const SPARE: usize = 1;
/// The webhook is called so often a second, where it admits (three times: one figure alone says little) and where it denies.
const WEBHOOK: [(u32, bool); 4] = [(500, true), (500, true), (500, true), (50, false)];
/// Each namespace that is created asks for so many pods.
const PODS: usize = 1;
/// Generous: a busy machine is not a broken program.
const TIMEOUT: Duration = Duration::from_mins(20);

/// What is measured.
#[derive(Clone, Debug, clap::Args)]
pub struct TreesArgs {
    /// Namespaces right below the root, in each of which somebody creates Subnamespaces.
    #[arg(long, default_value_t = 16)]
    tenants: usize,
    /// How many Subnamespaces they create at once.
    #[arg(long, default_value_t = 100)]
    subnamespaces: usize,
    /// How often; the tree grows by as many each time.
    #[arg(long, default_value_t = 5)]
    rounds: usize,
    /// How often a RoleBinding of the root is created and deleted.
    #[arg(long, default_value_t = 3)]
    bindings: usize,
    /// So many namespaces in a row, each in the one above, after that.
    #[arg(long, default_value_t = 0)]
    chain: usize,
    /// How often the program is stopped and started again, with the grown tree.
    #[arg(long, default_value_t = 3)]
    starts: usize,
    /// For how many seconds the admission webhook is called, each time.
    #[arg(long, default_value_t = 20)]
    webhook_seconds: u32,
    /// Measure how the Hierarchical Namespace Controller copies RoleBindings, too, in a tree with as many namespaces. Needs Go.
    #[arg(long)]
    hnc: bool,
}

impl TreesArgs {
    /// Below the root, when the tree has grown.
    fn namespaces(&self) -> usize {
        self.tenants + self.subnamespaces * self.rounds + self.chain
    }
}

/// One line of the report.
struct Row {
    what: String,
    namespaces: usize,
    /// Of each that had to get there, in seconds.
    times: Vec<f64>,
}

/// Measures, and returns the figures as text.
///
/// # Errors
/// If anything is not as it should be at the end, such as quota that two namespaces have.
pub async fn run(args: &TreesArgs, machine: &mut Machine) -> anyhow::Result<String> {
    let mut bench = TreesBench::start(args).await?;
    let mut rows = Vec::new();
    let mut webhook = bench.webhook(args.tenants, "new").await?;
    for round in 1..=args.rounds {
        progress(&format!("round {round}: {} Subnamespaces by {} tenants", args.subnamespaces, args.tenants));
        rows.push(bench.grow(round).await?);
        bench.adds_up().await?;
    }
    webhook.extend(bench.webhook(args.namespaces() - args.chain, "since the tree was created").await?);
    if args.chain > 0 {
        rows.push(bench.chain().await?);
        bench.adds_up().await?;
    }
    for round in 1..=args.bindings {
        progress(&format!("RoleBinding {round}: copied into all, and gone from all"));
        let (name, log) = (format!("viewers-{round}"), || bench.program.last_lines());
        rows.extend(propagate(&bench.admin, &name, args.namespaces(), Duration::ZERO, &log).await?);
    }
    let grown = bench.program.sample()?;
    let starts = bench.starts().await?;
    if args.starts > 0 {
        webhook.extend(bench.webhook(args.namespaces(), "started again").await?);
    }
    drop(bench);
    if args.hnc {
        rows.extend(hnc::measure(args).await?);
    }
    machine.measure_load_after();
    let mut text = format!("{}\n\n", serde_json::to_string(machine)?);
    writeln!(text, "| What | namespaces below the root | median s | p99 s | last s |")?;
    writeln!(text, "| --- | ---: | ---: | ---: | ---: |")?;
    for Row { what, namespaces, times } in rows {
        let at = |percent| percentile(&times, percent).unwrap_or_default();
        writeln!(text, "| {what} | {namespaces} | {:.2} | {:.2} | {:.2} |", at(50.0), at(99.0), at(100.0))?;
    }
    writeln!(text, "\n| The admission webhook | namespaces below the root | median ms | p99 ms | last ms |")?;
    writeln!(text, "| --- | ---: | ---: | ---: | ---: |")?;
    for Row { what, namespaces, times } in webhook {
        let at = |percent| 1000.0 * percentile(&times, percent).unwrap_or_default();
        writeln!(text, "| {what} | {namespaces} | {:.2} | {:.2} | {:.2} |", at(50.0), at(99.0), at(100.0))?;
    }
    text.push_str(&start::table(&grown, &starts, args.namespaces())?);
    Ok(text)
}

/// A tree that grows.
struct TreesBench {
    args: TreesArgs,
    test_cluster: TestCluster,
    admin: Requests,
    /// The kubeconfig of the program of trees.
    account: PathBuf,
    program: Operator,
    _operator: Operator,
}

impl TreesBench {
    async fn start(args: &TreesArgs) -> anyhow::Result<Self> {
        ensure!(args.tenants > 0 && args.subnamespaces >= args.tenants, "each tenant creates one at least");
        // Otherwise writes are faster than on any real cluster.
        let options = Options { fsync: true, pods: Pods::Pending, ..Options::default() };
        let test_cluster = TestCluster::bare(options).await?;
        test_cluster.install().await?;
        test_cluster.install_trees().await?;
        let operator = Operator::start(&test_cluster).await?;
        let account = test_cluster.service_account("coppice-system", "coppice-trees").await?;
        let program = Operator::spawn_by(&test_cluster, &account, &PROGRAM).await?;
        let admin = test_cluster.requests(ADMIN).await?;
        let bench = Self { args: args.clone(), test_cluster, admin, account, program, _operator: operator };
        bench.test_cluster.namespace(ROOT).await?;
        let total = total(args);
        let tree = json!({"apiVersion": "coppice.dev/v1alpha1", "kind": "NamespaceTree", "metadata": {"name": ROOT},
            "spec": {"root": ROOT, "quota": {"hard": {"pods": total.to_string()}}, "names": ["{root}-*"],
                "maxDepth": args.chain.max(2), "maxNamespaces": args.namespaces() + 1 + SPARE}});
        bench.admin.create(&tree).await?;
        let lists = (0..args.tenants).map(|n| {
            let pods = shares(args, n) * args.rounds * PODS + SPARE;
            vec![((ROOT.to_owned(), tenant(n)), pods)]
        });
        bench.create(lists.collect()).await?;
        Ok(bench)
    }

    /// Creates Subnamespaces, those of one list one after another; when each was ready, in seconds from the first request on.
    async fn create(&self, lists: Vec<Vec<((String, String), usize)>>) -> anyhow::Result<Vec<f64>> {
        let pods: BTreeMap<(String, String), usize> = lists.iter().flatten().cloned().collect();
        let object = |place: &(String, String)| {
            json!({"apiVersion": "coppice.dev/v1alpha1", "kind": "Subnamespace",
                "metadata": {"name": place.1, "namespace": place.0},
                "spec": {"quota": {"hard": {"pods": pods[place].to_string()}}}})
        };
        let places = lists.into_iter().map(|list| list.into_iter().map(|(place, _)| place).collect());
        let is_ready = |object: &Value| object["status"]["phase"] == "Ready";
        let log = || self.program.last_lines();
        created(&self.admin, "Subnamespace", places.collect(), object, is_ready, &log).await
    }

    async fn grow(&self, round: usize) -> anyhow::Result<Row> {
        let lists = members(&self.args, round).into_iter();
        let lists = lists.map(|list| list.into_iter().map(|place| (place, PODS)).collect());
        let times = self.create(lists.collect()).await?;
        let namespaces = self.args.tenants + self.args.subnamespaces * round;
        let what = format!("{} created at once by {} are ready", self.args.subnamespaces, self.args.tenants);
        Ok(Row { what, namespaces, times })
    }

    /// Creates the namespaces in a row, each once the one above is ready; how long each took.
    async fn chain(&self) -> anyhow::Result<Row> {
        let length = self.args.chain;
        progress(&format!("{length} namespaces in a row"));
        let (mut parent, mut times) = (ROOT.to_owned(), Vec::new());
        for n in 1..=length {
            let name = format!("{ROOT}-c{n}");
            times.extend(self.create(vec![vec![((parent, name.clone()), (length + 1 - n) * PODS)]]).await?);
            parent = name;
        }
        Ok(Row {
            what: format!("the next of {length} in a row is ready"),
            namespaces: self.args.namespaces(),
            times,
        })
    }

    /// The native quotas of all namespaces are together what the tree has.
    async fn adds_up(&self) -> anyhow::Result<()> {
        let total = total(&self.args);
        let mut sum = 0;
        for quota in self.admin.list("quota", "").await? {
            let pods = quota["spec"]["hard"]["pods"].as_str().context("a quota of pods")?;
            sum += pods.parse::<usize>()?;
        }
        ensure!(sum == total, "the quotas have {sum} pods together, the tree has {total}");
        Ok(())
    }

    /// The webhook is asked about Subnamespaces that nobody creates, with so many namespaces below the root; `program`: which one, in
    /// words.
    async fn webhook(&self, namespaces: usize, program: &str) -> anyhow::Result<Vec<Row>> {
        let mut rows = Vec::new();
        for (per_second, admitted) in WEBHOOK {
            let used = 100.0 * quiet().await?;
            progress(&format!("the webhook with {namespaces} namespaces, {per_second} a second"));
            let load = Load { per_second, seconds: self.args.webhook_seconds, admitted };
            let times = webhook::measure(&self.program, load, |n| tenant(n % self.args.tenants)).await?;
            let what = if admitted { "admitted, from caches" } else { "denied, read again" };
            let what = format!("{per_second} requests/s, {what}; {program}; {used:.0} % in use before");
            rows.push(Row { what, namespaces, times });
        }
        Ok(rows)
    }
}

/// Creates objects that make namespaces, those of one list one after another; when each had done it, in seconds from the first request on.
async fn created(
    admin: &Requests,
    kind: &str,
    lists: Vec<Vec<(String, String)>>,
    object: impl Fn(&(String, String)) -> Value,
    is_ready: impl Fn(&Value) -> bool,
    log: &impl Fn() -> String,
) -> anyhow::Result<Vec<f64>> {
    let mut waits: BTreeSet<(String, String)> = lists.iter().flatten().cloned().collect();
    let events = watched(admin, kind);
    let (began, object) = (Instant::now(), &object);
    let creations: FuturesUnordered<_> = lists
        .into_iter()
        .map(|list| async move {
            for place in list {
                admin.create(&object(&place)).await?;
            }
            anyhow::Ok(())
        })
        .collect();
    let ready = follow(events, |object, gone| {
        (!gone && is_ready(object) && waits.remove(&place(object))).then_some(())?;
        Some(waits.is_empty())
    });
    let measured = async { tokio::try_join!(creations.try_collect::<()>(), ready) };
    let ((), at) = tokio::time::timeout(TIMEOUT, measured)
        .await
        .with_context(|| format!("not ready in time: {}", log()))??;
    Ok(at.into_iter().map(|at| at.duration_since(began).as_secs_f64()).collect())
}

/// A RoleBinding is created in the root, and deleted after a rest: when the copy of each namespace is there, and gone.
async fn propagate(
    admin: &Requests,
    name: &str,
    namespaces: usize,
    rest: Duration,
    log: &impl Fn() -> String,
) -> anyhow::Result<[Row; 2]> {
    let binding = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding",
        "metadata": {"name": name, "namespace": ROOT},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "view"},
        "subjects": [{"kind": "User", "name": "somebody", "apiGroup": "rbac.authorization.k8s.io"}]});
    let mut rows = Vec::new();
    for deleted in [false, true] {
        let events = admin.watch("rolebinding").await?.map_err(anyhow::Error::from);
        if deleted {
            pause(rest).await;
        }
        let began = Instant::now();
        if deleted {
            admin.delete("rolebinding", ROOT, name, &json!({})).await?;
        } else {
            admin.create(&binding).await?;
        }
        let mut done = BTreeSet::new();
        let followed = follow(events, |object, gone| {
            let (namespace, of) = place(object);
            (of == name && namespace != ROOT && gone == deleted).then_some(())?;
            done.insert(namespace).then_some(())?;
            Some(done.len() == namespaces)
        });
        let at = tokio::time::timeout(TIMEOUT, followed)
            .await
            .with_context(|| format!("not everywhere in time: {}", log()))??;
        let times = at.into_iter().map(|at| at.duration_since(began).as_secs_f64()).collect();
        let what = if deleted { "a deleted RoleBinding is gone" } else { "a RoleBinding is copied" };
        rows.push(Row { what: what.to_owned(), namespaces, times });
    }
    rows.try_into().map_err(|_| anyhow::anyhow!("two rows"))
}

/// Parent and name of each namespace that is created in a round, by the tenant in whose namespace that is.
fn members(args: &TreesArgs, round: usize) -> Vec<Vec<(String, String)>> {
    let mut lists = vec![Vec::new(); args.tenants];
    for n in 0..args.subnamespaces {
        let parent = tenant(n % args.tenants);
        let name = format!("{parent}-{round}-{n}");
        lists[n % args.tenants].push((parent, name));
    }
    lists
}

/// What the tree has, in pods.
fn total(args: &TreesArgs) -> usize {
    PODS * (args.subnamespaces * args.rounds + args.chain) + SPARE * args.tenants
}

/// How many Subnamespaces this tenant creates in each round.
fn shares(args: &TreesArgs, tenant: usize) -> usize {
    (0..args.subnamespaces).filter(|n| n % args.tenants == tenant).count()
}

fn tenant(n: usize) -> String {
    format!("{ROOT}-t{n}")
}

pub(super) fn place(object: &Value) -> (String, String) {
    let text = |field: &str| object["metadata"][field].as_str().unwrap_or_default().to_owned();
    (text("namespace"), text("name"))
}

/// What happens to the objects of a kind. The API server ends the watch of who reads more slowly than they change: the next one begins with
/// what is there.
pub(super) fn watched(admin: &Requests, kind: &str) -> impl Stream<Item = anyhow::Result<WatchEvent<Value>>> {
    let watches = futures::stream::repeat_with(move || admin.watch(kind)).then(|watch| watch);
    watches.map_ok(|watch| watch.map_err(anyhow::Error::from)).try_flatten()
}

/// When each was seen that counts (some); ends with the one that is the last (true). What is seen is an object, and whether it is gone.
pub(super) async fn follow(
    events: impl Stream<Item = anyhow::Result<WatchEvent<Value>>>,
    mut counts: impl FnMut(&Value, bool) -> Option<bool>,
) -> anyhow::Result<Vec<Instant>> {
    let (mut events, mut at) = (pin!(events), Vec::new());
    while let Some(event) = events.next().await {
        let (object, gone) = match event? {
            WatchEvent::Added(object) | WatchEvent::Modified(object) => (object, false),
            WatchEvent::Deleted(object) => (object, true),
            WatchEvent::Bookmark(_) => continue,
            WatchEvent::Error(error) => bail!("the watch has ended: {error:?}"),
        };
        if let Some(last) = counts(&object, gone) {
            at.push(Instant::now());
            if last {
                return Ok(at);
            }
        }
    }
    bail!("the watch has ended")
}
