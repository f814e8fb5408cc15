//! Many clients race for the last pods of a tree on a real API server, while quota moves between their namespaces, siblings ask for the
//! last of it and are deleted, and the program that moves it is killed, without its admission webhook and with it: they get what the
//! tree has, and not more than beyond a native quota in the same run; nor where pods are deleted as well.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context as _, ensure};
use coppice_plane::{ADMIN, ALICE};
use coppice_tests::requests::Requests;
use coppice_tests::{Operator, on_own_plane};
use futures::StreamExt as _;
use kube::api::WatchEvent;
use serde_json::{Value, json};
use tokio::task::{JoinHandle, JoinSet};

use crate::trees::{Setup, subnamespace};
use crate::trees_access::bind;

type Test = anyhow::Result<()>;

const CLIENTS: usize = 64;
/// The pods of the tree, and of a namespace outside it with a quota of its own.
const TREE: usize = 48;
const PLAIN: usize = 20;
/// Those outside it: the second one is there at last, so that as many namespaces are limited by a native quota as by the tree.
const PLAINS: [&str; 2] = ["plain", "plain-b"];
/// In whose namespaces clients create pods. Nothing runs in another one, `shop-c`, whose quota moves away, and in the root.
const RACED: [&str; 3] = ["shop-a", "shop-b", PLAINS[0]];
/// In which they delete pods, too, at last.
const CHURNED: [&str; 4] = ["shop-a", "shop-b", PLAINS[0], PLAINS[1]];
/// So many requests each client makes there. Every fifth deletes a pod.
const REQUESTS: usize = 25;
/// They come and go: each asks for all pods that the root has, in which clients create pods as a tenant who has rights there once it has them.
const SIBLINGS: [&str; 2] = ["shop-d", "shop-e"];
const LAST: usize = 4;
/// After so many of its writes the program is killed, one life after the other.
const LIVES: [usize; 4] = [2, 5, 9, 14];
/// One client attempts so often: all of them are there when something becomes free, and leave the machine to other tests meanwhile.
const PACE: Duration = Duration::from_secs(2);

#[test]
fn clients_that_race_while_quota_moves_get_what_there_is_and_no_pod_more() -> Test {
    on_own_plane(async {
        let cluster = Setup::start().await?;
        let program = cluster.program().await?;
        prepare(&cluster).await.with_context(|| program.last_lines())?;
        drop(program);
        let pods = Pods::watch(&cluster).await?;
        let clients = Clients::start(&cluster).await?;
        let mut moving = transfers(&cluster, "more", &["shop-a", "shop-c"].repeat(6)).await?;
        for effects in LIVES {
            cluster.writes(effects).await?;
        }
        for reviewed in [false, true] {
            let mut program = next_life(&cluster, reviewed).await?;
            let siblings = last_of_root(&cluster, &pods).await.with_context(|| program.last_lines())?;
            if reviewed {
                cluster.denies(&subnamespace("shop", "shop-f", &last())).await?;
                moving.extend(transfers(&cluster, "late", &["shop-c"; 2]).await?);
            }
            cluster.delete(ALICE, "shop", siblings[0]).await?;
            program.kill().await?;
            let program = next_life(&cluster, reviewed).await?;
            let end = async {
                goes_on(&cluster, &pods, siblings).await?;
                for (source, name) in &moving {
                    let ended = |object: &Value| object["status"]["endedAt"].is_string();
                    cluster.until(("qtr", source, name), "has ended", ended).await?;
                }
                full(&cluster, &pods).await
            };
            end.await.with_context(|| program.last_lines())?;
        }
        let (created, refused) = clients.stop().await?;
        ensure!(created == TREE + PLAIN - spare(&cluster).await?, "{created} were created");
        ensure!(refused > CLIENTS, "{refused} were refused: there was no race");
        pods.never_beyond("pods are created")?;
        cluster.quotas.never_beyond(&(TREE + PLAIN).to_string())?;
        let program = cluster.next_life(&cluster.account).await?;
        churn(&cluster, &pods).await.with_context(|| program.last_lines())?;
        pods.never_beyond("pods are created, and a fifth of all requests deletes one")?;
        cluster.quotas.never_beyond(&(TREE + PLAINS.len() * PLAIN).to_string())
    })
}

/// Starts the program after another was killed, with its admission webhook or without.
async fn next_life(cluster: &Setup, reviewed: bool) -> anyhow::Result<Operator> {
    if reviewed { cluster.asked_again().await } else { cluster.next_life(&cluster.account).await }
}

fn last() -> Value {
    json!({"pods": LAST.to_string()})
}

/// Asks for all that the root has, whether or not it can be had now.
async fn ask(cluster: &Setup, name: &str) -> Test {
    match cluster.request(ALICE, "shop", name, &last()).await {
        Err(error)
            if !["(AlreadyExists)", "QuotaRefused"].iter().any(|one| format!("{error:#}").contains(one)) =>
        {
            Err(error)
        }
        _ => Ok(()),
    }
}

async fn is_ready(cluster: &Setup, name: &str) -> bool {
    let object = cluster.test_cluster.get("sns", "shop", name).await.ok().flatten();
    object.is_some_and(|object| object["status"]["phase"] == "Ready")
}

/// Two siblings ask for all that the root has. Clients use it up in the one that has got it, which is answered first.
async fn last_of_root(cluster: &Setup, pods: &Pods) -> anyhow::Result<[&'static str; 2]> {
    let [one, other] = SIBLINGS;
    let (first, second) = tokio::join!(ask(cluster, one), ask(cluster, other));
    first.and(second)?;
    let has = async || {
        for siblings in [[one, other], [other, one]] {
            if is_ready(cluster, siblings[0]).await {
                return Some(siblings);
            }
        }
        None
    };
    let siblings = cluster.test_cluster.until("one of two siblings has the last pods", has).await?;
    used(cluster, pods, siblings[0]).await?;
    Ok(siblings)
}

/// The one that is being deleted goes, and the other one gets what it had, and goes as well.
async fn goes_on(cluster: &Setup, pods: &Pods, [gone, next]: [&str; 2]) -> Test {
    let has = async || {
        // Who was denied asks again.
        ask(cluster, next).await.ok()?;
        is_ready(cluster, next).await.then_some(())
    };
    cluster.test_cluster.until(&format!("{next} has what {gone} had"), has).await?;
    cluster.gone("shop", gone).await?;
    used(cluster, pods, next).await?;
    cluster.delete(ALICE, "shop", next).await?;
    cluster.gone("shop", next).await
}

async fn used(cluster: &Setup, pods: &Pods, sibling: &str) -> Test {
    let all = async || (pods.now(sibling) == LAST).then_some(());
    cluster.test_cluster.until(&format!("clients have all of {sibling}"), all).await
}

async fn prepare(cluster: &Setup) -> Test {
    cluster.tree("shop", &json!({"pods": TREE.to_string()})).await?;
    for (name, pods) in [("shop-a", "16"), ("shop-b", "12"), ("shop-c", "16")] {
        cluster.request(ADMIN, "shop", name, &json!({"pods": pods})).await?;
        cluster.ready("shop", name).await?;
    }
    bind(&cluster.test_cluster, "shop", ALICE, "admin").await?;
    cluster.test_cluster.namespace("plain").await?;
    cluster.test_cluster.quota_of_pods("plain", PLAIN).await?;
    for namespace in RACED {
        cluster.test_cluster.account(namespace).await?;
    }
    Ok(())
}

/// Quota that nobody uses moves to where it is raced for; and some from where it is raced for, too, if it gets away in time.
async fn transfers(
    cluster: &Setup,
    names: &str,
    sources: &[&'static str],
) -> anyhow::Result<Vec<(&'static str, String)>> {
    let mut transfers = Vec::new();
    for (number, source) in sources.iter().copied().enumerate() {
        let name = format!("{names}-{number}");
        let transfer = json!({
            "apiVersion": "coppice.dev/v1alpha1", "kind": "QuotaTransfer", "metadata": {"name": name, "namespace": source},
            "spec": {"to": "shop-b", "through": "shop", "amount": {"pods": "2"}, "reason": "race", "requester": ADMIN, "approvedBy": ADMIN}
        });
        cluster.test_cluster.admin().await?.create(&transfer).await?;
        transfers.push((source, name));
    }
    Ok(transfers)
}

/// To how many pods the API server limits a namespace.
async fn limit(cluster: &Setup, namespace: &str) -> anyhow::Result<usize> {
    let limits = cluster.limits(namespace).await?;
    let pods = limits["pods"].as_str().with_context(|| format!("{namespace} has no quota of pods"))?;
    Ok(pods.parse()?)
}

/// What is left where nothing runs.
async fn spare(cluster: &Setup) -> anyhow::Result<usize> {
    Ok(limit(cluster, "shop").await? + limit(cluster, "shop-c").await?)
}

/// Waits until clients have all that their namespaces have, and sees that the tree has lost nothing.
async fn full(cluster: &Setup, pods: &Pods) -> Test {
    let all = async || {
        let (a, b) = (limit(cluster, "shop-a").await.ok()?, limit(cluster, "shop-b").await.ok()?);
        (pods.now("shop-a") == a && pods.now("shop-b") == b && pods.now("plain") == PLAIN).then_some(a + b)
    };
    let raced = cluster.test_cluster.until("clients have all that there is", all).await?;
    let spare = spare(cluster).await?;
    ensure!(raced + spare == TREE, "{raced} are raced for and {spare} are not: that is not {TREE}");
    Ok(())
}

/// Clients create pods in full namespaces and delete others there, while quota moves between two of them: after a deletion the API server
/// may count too few for a moment.
async fn churn(cluster: &Setup, pods: &Pods) -> Test {
    cluster.test_cluster.namespace(PLAINS[1]).await?;
    cluster.test_cluster.quota_of_pods(PLAINS[1], PLAIN).await?;
    pods.may_be_deleted();
    transfers(cluster, "churn", &["shop-a"; 2]).await?;
    let requests = Arc::new(cluster.test_cluster.admin().await?);
    let mut running: JoinSet<Test> = JoinSet::new();
    for client in 0..CLIENTS {
        let (requests, seen) = (Arc::clone(&requests), Arc::clone(&pods.seen));
        running.spawn(async move {
            for request in 0..REQUESTS {
                let namespace = CHURNED[(client + request) % CHURNED.len()];
                if request % 5 == 4 {
                    delete_one(&requests, &seen, namespace, client).await?;
                } else {
                    create(&requests, namespace, &format!("c-{client}-{request}")).await?;
                }
            }
            Ok(())
        });
    }
    while let Some(ended) = running.join_next().await {
        ended??;
    }
    let all_seen = async || {
        for namespace in CHURNED {
            let there = cluster.test_cluster.list("pod", namespace).await.ok()?;
            (pods.now(namespace) == there.len()).then_some(())?;
        }
        Some(())
    };
    cluster.test_cluster.until("all that has happened is seen", all_seen).await?;
    let deleted = pods.deleted();
    ensure!(deleted > CLIENTS, "{deleted} pods were deleted");
    Ok(())
}

/// Deletes one of the pods in a namespace, for each client another one as far as there are so many.
async fn delete_one(requests: &Requests, seen: &Mutex<Seen>, namespace: &str, client: usize) -> Test {
    let name = seen.lock().unwrap_or_else(PoisonError::into_inner).one_of(namespace, client);
    let Some(name) = name else { return Ok(()) };
    match requests.delete("pod", namespace, &name, &json!({})).await {
        // Another client was faster.
        Err(error) if !format!("{error:#}").contains("(NotFound)") => Err(error),
        _ => Ok(()),
    }
}

/// Clients that create pods until they are stopped. What becomes of those in siblings is not counted here.
struct Clients {
    stopped: Arc<AtomicBool>,
    created: Arc<AtomicUsize>,
    refused: Arc<AtomicUsize>,
    running: JoinSet<Test>,
}

impl Clients {
    async fn start(cluster: &Setup) -> anyhow::Result<Self> {
        let requests = Arc::new(cluster.test_cluster.admin().await?);
        let tenant = Arc::new(cluster.test_cluster.requests(ALICE).await?);
        let mut clients = Self {
            stopped: Arc::default(),
            created: Arc::default(),
            refused: Arc::default(),
            running: JoinSet::new(),
        };
        for client in 0..CLIENTS {
            let (requests, tenant) = (Arc::clone(&requests), Arc::clone(&tenant));
            let stopped = Arc::clone(&clients.stopped);
            let (created, refused) = (Arc::clone(&clients.created), Arc::clone(&clients.refused));
            clients.running.spawn(async move {
                let mut pace = tokio::time::interval(PACE);
                for attempt in client.. {
                    pace.tick().await;
                    if stopped.load(Ordering::Relaxed) {
                        break;
                    }
                    let (name, turn) =
                        (format!("p-{client}-{attempt}"), attempt % (RACED.len() + SIBLINGS.len()));
                    let Some(namespace) = RACED.get(turn) else {
                        try_sibling(&tenant, SIBLINGS[turn - RACED.len()], &name).await?;
                        continue;
                    };
                    let created_one = create(&requests, namespace, &name).await?;
                    let counter = if created_one { &created } else { &refused };
                    counter.fetch_add(1, Ordering::Relaxed);
                }
                Ok(())
            });
        }
        Ok(clients)
    }

    /// How many pods they have created, and how many were refused.
    async fn stop(mut self) -> anyhow::Result<(usize, usize)> {
        self.stopped.store(true, Ordering::Relaxed);
        while let Some(ended) = self.running.join_next().await {
            ended??;
        }
        Ok((self.created.load(Ordering::Relaxed), self.refused.load(Ordering::Relaxed)))
    }
}

/// Whether a pod is created, or refused because of a quota.
async fn create(requests: &Requests, namespace: &str, name: &str) -> anyhow::Result<bool> {
    let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": namespace},
        "spec": {"containers": [{"name": "c", "image": "busybox"}]}});
    match requests.create(&pod).await {
        Ok(_) => Ok(true),
        // Of those that write the same quota at once the API server gives up some, too.
        Err(error) if format!("{error:#}").to_lowercase().contains("quota") => Ok(false),
        Err(error) => Err(error),
    }
}

/// There may be no such namespace, not yet with rights in it, or not for long any more.
async fn try_sibling(requests: &Requests, namespace: &str, name: &str) -> Test {
    match create(requests, namespace, name).await {
        Err(error) if !["(Forbidden)", "(NotFound)"].iter().any(|one| format!("{error:#}").contains(one)) => {
            Err(error)
        }
        _ => Ok(()),
    }
}

/// The pods that there are, and the most that there ever were.
struct Pods {
    seen: Arc<Mutex<Seen>>,
    watching: JoinHandle<()>,
}

#[derive(Default)]
struct Seen {
    /// The names of the pods in each namespace.
    now: BTreeMap<String, BTreeSet<String>>,
    most_in_tree: usize,
    /// The most beyond the native quotas outside the tree, together.
    most_beyond_plain: usize,
    /// How many were deleted since all may be.
    deleted: Option<usize>,
    error: Option<String>,
}

impl Seen {
    fn of(&self, namespace: &str) -> usize {
        self.now.get(namespace).map_or(0, BTreeSet::len)
    }

    fn one_of(&self, namespace: &str, number: usize) -> Option<String> {
        let pods = self.now.get(namespace).filter(|pods| !pods.is_empty())?;
        pods.iter().nth(number % pods.len()).cloned()
    }

    fn see(&mut self, event: WatchEvent<Value>) {
        let text = |pod: &Value, field: &str| pod["metadata"][field].as_str().unwrap_or_default().to_owned();
        match event {
            WatchEvent::Added(pod) => {
                self.now.entry(text(&pod, "namespace")).or_default().insert(text(&pod, "name"));
            }
            WatchEvent::Deleted(pod) => {
                let (namespace, name) = (text(&pod, "namespace"), text(&pod, "name"));
                let known = self.now.get_mut(&namespace).is_some_and(|pods| pods.remove(&name));
                self.deleted = self.deleted.map(|deleted| deleted + 1);
                let may_be = self.deleted.is_some() || SIBLINGS.contains(&namespace.as_str());
                if !known || !may_be {
                    self.error = Some(format!("pod {namespace}/{name} is gone"));
                }
            }
            WatchEvent::Error(error) => self.error = Some(error.to_string()),
            WatchEvent::Modified(_) | WatchEvent::Bookmark(_) => {}
        }
        let beyond = PLAINS.iter().map(|namespace| self.of(namespace).saturating_sub(PLAIN));
        self.most_beyond_plain = self.most_beyond_plain.max(beyond.sum());
        let in_tree = ["shop-a", "shop-b"].iter().chain(&SIBLINGS).map(|namespace| self.of(namespace));
        self.most_in_tree = self.most_in_tree.max(in_tree.sum());
    }
}

impl Pods {
    async fn watch(cluster: &Setup) -> anyhow::Result<Self> {
        let mut events = cluster.test_cluster.admin().await?.watch("pod").await?.boxed();
        let seen: Arc<Mutex<Seen>> = Arc::default();
        let watching = tokio::spawn({
            let seen = Arc::clone(&seen);
            async move {
                while let Some(event) = events.next().await {
                    let mut seen = seen.lock().unwrap_or_else(PoisonError::into_inner);
                    match event {
                        Ok(event) => seen.see(event),
                        Err(error) => seen.error = Some(error.to_string()),
                    }
                }
            }
        });
        Ok(Self { seen, watching })
    }

    fn now(&self, namespace: &str) -> usize {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner).of(namespace)
    }

    /// Pods of all namespaces may be deleted from now on, and what there was before counts no more.
    fn may_be_deleted(&self) {
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        (seen.most_in_tree, seen.most_beyond_plain, seen.deleted) = (0, 0, Some(0));
    }

    fn deleted(&self) -> usize {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner).deleted.unwrap_or(0)
    }

    /// Whether the tree was never used beyond its limit by more than native quotas were while this was done.
    fn never_beyond(&self, done: &str) -> Test {
        let seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        ensure!(seen.error.is_none() && !self.watching.is_finished(), "not all was seen: {:?}", seen.error);
        let (most, plain) = (seen.most_in_tree, seen.most_beyond_plain);
        let tree = most.saturating_sub(TREE);
        eprintln!(
            "beyond their limits, while {done}: {tree} pods of {TREE} in a tree ({most} at most), {plain} by native quotas of {PLAIN}"
        );
        ensure!(tree <= plain, "{tree} pods beyond the limit of the tree, {plain} beyond native quotas");
        Ok(())
    }
}
