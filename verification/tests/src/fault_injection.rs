//! Operators behind a proxy that injects faults, the work that they are given, and what has to be true in the end.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::PathBuf;
use std::sync::Arc;

use anyhow::{Context as _, ensure};
use coppice_plane::proxy::{Match, Proxy, TraceEntry};
use coppice_plane::{AuditEvent, HISTORY_ARGS, OPERATOR};
use serde_json::Value;
use tokio::time::timeout;

use crate::receiver::Receiver;
use crate::test_cluster::TIMEOUT;
use crate::{Operator, TestCluster};

/// Renewed every second, so that what an operator writes beside it is soon known to be nothing; and not lost on a busy machine.
pub const FAST_LEASE: [&str; 6] = SHORT_LEASE;
/// Over soon enough to be waited for, where an operator is killed or stopped and another takes over; and not so soon that a
/// busy machine makes the leader lose it.
pub const SHORT_LEASE: [&str; 6] =
    ["--lease-duration", "30s", "--lease-renew-deadline", "22s", "--lease-retry-period", "1s"];

/// So many renewals of the lease with nothing else between them are a quiet operator.
const QUIET: usize = 5;
/// What every workload that is scaled down has before.
const REPLICAS: u64 = 3;

/// A budget that no test spends, and receivers on loopback.
const SETTINGS: &str = r#"{apiVersion: coppice.dev/v1alpha1, kind: CoppiceConfig, metadata: {name: coppice},
    spec: {governor: {perMinute: 1000, perHour: 1000, maxShare: 100%, atLeast: 1000}, tenants: {webhookHosts: ["127.0.0.1"]}}}"#;

/// What the one manager of a namespace is there for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Work {
    /// The namespace is deleted.
    Delete,
    /// Its Deployment is scaled down.
    ScaleDown,
    /// Its Deployment is scaled down, and woken when [`FaultTestbed::wake`] says so.
    Wake,
    /// A webhook is sent.
    Notify,
}

impl Work {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Delete, Self::ScaleDown, Self::Wake, Self::Notify];

    /// How many writes it takes, but for reservations and Events. Status is written with the intent and with the outcome; before
    /// a workload is scaled down also with its size. For [`Work::Wake`] it is the writes of waking.
    pub const fn writes(self) -> u64 {
        match self {
            Self::Notify => 2,
            Self::Delete | Self::Wake => 3,
            Self::ScaleDown => 4,
        }
    }

    /// A word for names of namespaces.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Delete => "delete",
            Self::ScaleDown => "sleep",
            Self::Wake => "wake",
            Self::Notify => "tell",
        }
    }
}

/// A plane whose operators may meet faults, and the work on it.
pub struct FaultTestbed {
    /// The plane.
    pub test_cluster: TestCluster,
    /// Gets every webhook.
    pub receiver: Receiver,
    works: BTreeMap<String, (Work, String)>,
}

/// An operator and its way to the API server. It is killed when this is dropped.
pub struct Replica {
    /// The way to the API server.
    pub proxy: Proxy,
    /// The process.
    pub operator: Operator,
    kubeconfig: PathBuf,
}

impl Replica {
    /// Starts an operator with further arguments, and waits for nothing.
    pub async fn spawn(test_cluster: &TestCluster, args: &[&str]) -> anyhow::Result<Self> {
        Self::spawn_by(test_cluster, Proxy::start(&test_cluster.plane, None).await?, args).await
    }

    /// The same, by a proxy that has its rules already.
    pub async fn spawn_by(test_cluster: &TestCluster, proxy: Proxy, args: &[&str]) -> anyhow::Result<Self> {
        let kubeconfig = proxy.kubeconfig(&test_cluster.plane.kubeconfig(OPERATOR)?)?;
        let operator = Operator::spawn_by(test_cluster, &kubeconfig, args).await?;
        Ok(Self { proxy, operator, kubeconfig })
    }

    /// Starts one whose lease is lively, and waits until it leads and is ready.
    pub async fn start(test_cluster: &TestCluster) -> anyhow::Result<Self> {
        let replica = Self::spawn(test_cluster, &FAST_LEASE).await?;
        replica.operator.ready(test_cluster).await?;
        replica.leads(test_cluster).await?;
        Ok(replica)
    }

    /// Waits until it leads.
    pub async fn leads(&self, test_cluster: &TestCluster) -> anyhow::Result<()> {
        self.operator.leads(test_cluster).await
    }

    /// Starts another operator in the place of one that has ended. A dead one does not give its lease back: it is taken
    /// away, so that no test waits for it to expire.
    pub async fn again(&mut self, test_cluster: &TestCluster, args: &[&str]) -> anyhow::Result<()> {
        test_cluster.remove_lease("coppice-system", "coppice-operator").await?;
        self.operator = Operator::spawn_by(test_cluster, &self.kubeconfig, args).await?;
        Ok(())
    }

    /// Waits for the first entry of the trace after number `mark` that matches.
    pub async fn seen(&self, what: &str, mark: u64, matches: &Match) -> anyhow::Result<TraceEntry> {
        let wanted = |entry: &TraceEntry| entry.seq > mark && matches.selects(entry);
        with_timeout(what, self.proxy.trace().wait_for(wanted))
            .await
            .with_context(|| self.operator.last_lines())
    }

    /// Waits until a request that matches has been answered by the API server; what it answered.
    pub async fn wait_for_response(&self, what: &str, matches: &Match) -> anyhow::Result<u16> {
        let answer = |entries: &[TraceEntry]| {
            entries.iter().filter(|entry| matches.selects(entry)).find_map(|entry| entry.status)
        };
        with_timeout(what, self.proxy.trace().wait_until(answer)).await
    }

    /// How many requests of the trace after number `mark` match.
    pub fn count(&self, mark: u64, matches: &Match) -> u64 {
        let entries = self.proxy.trace().entries();
        let matching = entries.iter().filter(|e| e.event.is_none() && e.seq > mark && matches.selects(e));
        matching.map(|_| 1).sum()
    }
}

/// What is written into a namespace or to it, but for Events.
pub fn writes_about(namespace: &str) -> Match {
    Match::writes().namespace(namespace).when(|entry| entry.resource != "events")
}

/// Writes of the status of the managers in a namespace.
pub fn status_writes(namespace: &str) -> Match {
    Match::verb("update").resource("namespacemanagers").subresource("status").namespace(namespace)
}

/// Deletions of a namespace.
pub fn deletions(namespace: &str) -> Match {
    Match::verb("delete").resource("namespaces").name(namespace)
}

/// Reservations of destructive steps.
pub fn reservations() -> Match {
    Match::verb("update").resource("coppiceconfigs").subresource("status")
}

/// Lists and watches of all namespaces: what fills the caches, and no fresh read.
pub fn caches() -> Match {
    Match::any().when(|entry| fills_cache(entry, "list") || fills_cache(entry, "watch"))
}

/// The lists among [`caches`].
pub fn cache_lists() -> Match {
    Match::verb("list").when(|entry| fills_cache(entry, "list"))
}

/// The watches among [`caches`].
pub fn cache_watches() -> Match {
    Match::verb("watch").when(|entry| fills_cache(entry, "watch"))
}

fn fills_cache(entry: &TraceEntry, verb: &str) -> bool {
    entry.verb == verb && entry.event.is_none() && entry.namespace.is_empty() && entry.name.is_empty()
}

/// Waits for something that has no deadline of its own.
pub async fn with_timeout<T>(what: &str, future: impl Future<Output = T>) -> anyhow::Result<T> {
    let waited = || format!("waited {} s in vain: {what}", TIMEOUT.as_secs());
    timeout(TIMEOUT, future).await.with_context(waited)
}

impl FaultTestbed {
    /// A plane with Coppice installed, and no operator.
    pub async fn start() -> anyhow::Result<Self> {
        Self::on(TestCluster::start().await?).await
    }

    /// The same on a plane that remembers every revision, for [`ProxyFault::Stale`](coppice_plane::proxy::ProxyFault::Stale).
    pub async fn start_with_history() -> anyhow::Result<Self> {
        Self::on(TestCluster::start_with(&HISTORY_ARGS).await?).await
    }

    /// The same as `start` on a plane without scheduler and node, for tests in which no pod has to run.
    pub async fn start_without_pods() -> anyhow::Result<Self> {
        Self::on(TestCluster::start_without_pods().await?).await
    }

    /// The same, however many planes run: for a test that waits for minutes and does little meanwhile.
    pub async fn start_without_pods_at_once() -> anyhow::Result<Self> {
        Self::on(TestCluster::start_without_pods_at_once().await?).await
    }

    async fn on(test_cluster: TestCluster) -> anyhow::Result<Self> {
        test_cluster.apply(SETTINGS).await?;
        Ok(Self { test_cluster, receiver: Receiver::start(&[]).await?, works: BTreeMap::new() })
    }

    /// Creates a namespace for each work, with what is to be worked on, but without managers.
    pub async fn prepare(&mut self, works: &[(String, Work)]) -> anyhow::Result<()> {
        let (mut namespaces, mut yaml) = (String::new(), String::new());
        for (name, work) in works {
            writeln!(namespaces, "---\n{{apiVersion: v1, kind: Namespace, metadata: {{name: {name}}}}}")?;
            if matches!(work, Work::ScaleDown | Work::Wake) {
                // Paused: its size is what is looked at, and pods would only cost time.
                writeln!(
                    yaml,
                    "---\n{{apiVersion: apps/v1, kind: Deployment, metadata: {{name: d, namespace: {name}}}, \
                     spec: {{paused: true, replicas: {REPLICAS}, selector: {{matchLabels: {{a: d}}}}, template: \
                     {{metadata: {{labels: {{a: d}}}}, spec: {{containers: [{{name: c, image: busybox}}]}}}}}}}}"
                )?;
            }
        }
        self.test_cluster.create_all(&namespaces).await?;
        self.test_cluster.create_all(&yaml).await?;
        let found = self.test_cluster.list("namespaces", "").await?;
        for (name, work) in works {
            let object = found.iter().find(|o| o["metadata"]["name"] == name.as_str());
            let uid = object.and_then(|o| o["metadata"]["uid"].as_str()).context("no uid")?;
            self.works.insert(name.clone(), (*work, uid.to_owned()));
        }
        Ok(())
    }

    /// Gives each of these namespaces its manager, whose one policy is due at once.
    pub async fn begin<'a>(&self, names: impl IntoIterator<Item = &'a str>) -> anyhow::Result<()> {
        let managers =
            names.into_iter().map(|name| self.manager(name, "")).collect::<anyhow::Result<String>>();
        self.test_cluster.apply(&managers?).await.map(|_| ())
    }

    /// Asks for these to be woken.
    pub async fn wake<'a>(&self, names: impl IntoIterator<Item = &'a str>) -> anyhow::Result<()> {
        let managers =
            names.into_iter().map(|name| self.manager(name, "wake: 1, ")).collect::<anyhow::Result<String>>();
        self.test_cluster.apply(&managers?).await.map(|_| ())
    }

    fn manager(&self, name: &str, more: &str) -> anyhow::Result<String> {
        let (work, _) = self.works.get(name).with_context(|| format!("{name} was not prepared"))?;
        let action = match work {
            Work::Delete => "{delete: {}}".to_owned(),
            Work::ScaleDown | Work::Wake => "{scaleDown: {}}".to_owned(),
            Work::Notify => format!("{{webhook: {{url: '{}'}}}}", self.receiver.url),
        };
        Ok(format!(
            "---\n{{apiVersion: coppice.dev/v1alpha1, kind: NamespaceManager, metadata: {{name: m, namespace: {name}}}, \
             spec: {{{more}policies: [{{name: p, when: {{ttl: {{until: '2026-01-01T00:00:00Z'}}}}, then: {action}}}]}}}}\n"
        ))
    }

    /// The uid of a prepared namespace.
    pub fn uid(&self, name: &str) -> &str {
        self.works.get(name).map_or("", |(_, uid)| uid)
    }

    /// Waits until each of these has reached its end: deleted, scaled down, woken or delivered.
    pub async fn done<'a>(&self, names: impl IntoIterator<Item = &'a str>) -> anyhow::Result<()> {
        let names: Vec<&str> = names.into_iter().collect();
        let all = async || self.undone(&names).await.ok()?.is_empty().then_some(());
        let Err(error) = self.test_cluster.until("the work is done", all).await else { return Ok(()) };
        Err(error.context(format!("{:#?}", self.undone(&names).await?)))
    }

    async fn undone(&self, names: &[&str]) -> anyhow::Result<Vec<(String, Value)>> {
        let lists =
            ["namespaces", "deployments", "namespacemanagers"].map(|kind| self.test_cluster.list(kind, ""));
        let found = futures::future::try_join_all(lists).await?.concat();
        let get = |kind: &str, namespace: &str, name: &str| {
            let is = |o: &&Value| {
                o["kind"] == kind
                    && o["metadata"]["name"] == name
                    && o["metadata"]["namespace"].as_str().unwrap_or_default() == namespace
            };
            found.iter().find(is).cloned().unwrap_or_default()
        };
        let undone = names.iter().filter_map(|name| {
            let (work, uid) = self.works.get(*name)?;
            let (namespace, manager) = (get("Namespace", "", name), get("NamespaceManager", name, "m"));
            let status = &manager["status"];
            let fired = status["firings"] == 1 && status["intent"].is_null();
            let replicas = &get("Deployment", name, "d")["spec"]["replicas"];
            let done = match work {
                Work::Delete => {
                    namespace["metadata"]["uid"] != uid.as_str()
                        || !namespace["metadata"]["deletionTimestamp"].is_null()
                }
                Work::ScaleDown => fired && *replicas == 0 && status["scaledDown"][0]["replicas"] == REPLICAS,
                Work::Wake if manager["spec"]["wake"].is_null() => fired && *replicas == 0,
                Work::Wake => fired && *replicas == REPLICAS && status["scaledDown"].is_null(),
                Work::Notify => fired && status["lastFiring"]["result"] == "WebhookDelivered",
            };
            (!done).then(|| ((*name).to_owned(), manager))
        });
        Ok(undone.collect())
    }

    /// Checks what no fault may break: no namespace was deleted but those that were to be, each once, each by its uid and
    /// revision; and no webhook has come under two ids.
    pub fn verify(&self) -> anyhow::Result<()> {
        let mut deleted = BTreeSet::new();
        for delete in self.test_cluster.namespace_deletes()? {
            ensure!(delete.precondition("uid").is_some(), "without uid: {delete:?}");
            ensure!(delete.precondition("resourceVersion").is_some(), "without revision: {delete:?}");
            if delete.succeeded() {
                let expected = self.works.get(&delete.name).filter(|(work, _)| *work == Work::Delete);
                let uid = expected.map(|(_, uid)| uid.as_str());
                ensure!(delete.precondition("uid") == uid && uid.is_some(), "not to be deleted: {delete:?}");
                ensure!(deleted.insert(delete.name.clone()), "deleted twice: {}", delete.name);
            }
        }
        let mut ids: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
        for request in self.receiver.received() {
            let body: Value = serde_json::from_slice(&request.body)?;
            let namespace = body["namespace"]["name"].as_str().unwrap_or_default();
            ids.entry(namespace.to_owned()).or_default().insert(request.header("webhook-id").to_owned());
        }
        let many = ids.iter().find(|(_, ids)| ids.len() != 1);
        ensure!(many.is_none(), "one webhook under several ids: {many:?}");
        Ok(())
    }

    /// The same, for work that has all been done by one operator that was never killed, and whose Events met no fault:
    /// each firing has one Event, and is counted once.
    pub async fn verify_reported_once(&self, operator: &Operator) -> anyhow::Result<()> {
        self.verify()?;
        let mut reported: BTreeMap<&str, u64> = BTreeMap::new();
        let events = self.test_cluster.list("events", "").await?;
        for event in &events {
            let about = &event["regarding"];
            let name = match (event["reason"].as_str(), about["kind"].as_str()) {
                // Kept in another namespace, as this one is gone.
                (Some("NamespaceDeleted"), Some("Namespace")) => &about["name"],
                (Some("ScaledDown" | "WebhookDelivered"), _) => &about["namespace"],
                _ => continue,
            };
            let times = event["series"]["count"].as_u64().unwrap_or(1);
            *reported.entry(name.as_str().unwrap_or_default()).or_default() += times;
        }
        let times =
            self.works.keys().map(|name| (name, reported.get(name.as_str()).copied().unwrap_or_default()));
        let others: Vec<_> = times.filter(|(_, times)| *times != 1).collect();
        ensure!(others.is_empty(), "not exactly one Event: {others:?}");
        let metrics = operator.http("/metrics").await?;
        let firings = metrics.lines().filter_map(|line| line.strip_prefix("coppice_firings_total{"));
        let firings = firings.filter_map(|line| line.rsplit_once(' ')?.1.parse::<f64>().ok()).sum::<f64>();
        let works = u32::try_from(self.works.len())?;
        ensure!(
            (firings - f64::from(works)).abs() < 0.5,
            "{works} works, but {firings} firings were counted"
        );
        Ok(())
    }

    /// Waits until the operators write nothing any more but their lease.
    pub async fn quiet(&self) -> anyhow::Result<()> {
        let writes = || -> anyhow::Result<Vec<Arc<AuditEvent>>> {
            Ok(self.test_cluster.by_operator()?.into_iter().filter(|e| e.is_write()).collect())
        };
        let quiet = async || {
            let renewals = writes().ok()?.iter().rev().take_while(|e| e.resource == "leases").count();
            (renewals >= QUIET).then_some(())
        };
        let waited = self.test_cluster.until("nothing is written but the lease", quiet).await;
        waited.with_context(|| {
            let last = writes().unwrap_or_default();
            let last = last.iter().rev().filter(|e| e.resource != "leases").take(10);
            format!("{:#?}", last.map(|e| format!("{} {} {:?}", e.verb, e.uri, e.code)).collect::<Vec<_>>())
        })
    }
}
