//! Killed, doubled, early and replaced: every policy still fires exactly once.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context as _, ensure};
use coppice_plane::{AuditEvent, OPERATOR, Options, Pods};
use coppice_tests::fault_injection::SHORT_LEASE;
use coppice_tests::proxy::Proxy;
use coppice_tests::receiver::Receiver;
use coppice_tests::{Operator, TestCluster, on_own_plane};
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use super::cluster_notices::{manager, namespace, notice};
use super::lifecycle::effective_delete;

type Test = anyhow::Result<()>;

/// A budget that no test spends, and receivers on loopback.
pub(crate) const GENEROUS: &str = r#"{apiVersion: coppice.dev/v1alpha1, kind: CoppiceConfig, metadata: {name: coppice},
    spec: {governor: {perMinute: 1000, perHour: 1000, maxShare: 100%, atLeast: 1000}, tenants: {webhookHosts: ["127.0.0.1"]}}}"#;

fn writes(test_cluster: &TestCluster) -> anyhow::Result<usize> {
    Ok(test_cluster.by_operator()?.iter().filter(|e| e.is_write() && e.resource != "leases").count())
}

/// Whether every manager has fired.
async fn finished(test_cluster: &TestCluster) -> anyhow::Result<bool> {
    let items = test_cluster.list("nsman", "").await?;
    Ok(items.iter().all(|m| m["status"]["firings"] == 1 && m["status"]["intent"].is_null()))
}

fn policy(action: &str) -> String {
    format!("{{policies: [{{name: p, when: {{ttl: {{after: 1s}}}}, then: {action}}}]}}")
}

/// Starts an operator after another was killed. A dead one does not give its lease back: it is taken away, so that no test
/// waits for it to expire.
async fn next_life(test_cluster: &TestCluster) -> anyhow::Result<Operator> {
    test_cluster.remove_lease("coppice-system", "coppice-operator").await?;
    Operator::spawn(test_cluster, &[]).await
}

#[test]
fn killed_at_every_write_each_policy_fires_exactly_once() -> Test {
    on_own_plane(async {
        let test_cluster = TestCluster::start_without_pods().await?;
        test_cluster.apply(GENEROUS).await?;
        let mut receivers = Vec::new();
        let mut uids = BTreeMap::new();
        for n in 0..3 {
            let receiver = Receiver::start(&[500]).await?;
            for kind in ["end", "sleep", "tell"] {
                let name = format!("{kind}-{n}");
                uids.insert(name.clone(), test_cluster.namespace(&name).await?);
            }
            let name = format!("sleep-{n}");
            test_cluster
                .apply(&format!(
                    "{{apiVersion: apps/v1, kind: Deployment, metadata: {{name: d, namespace: {name}}}, spec: {{replicas: {}, \
                     selector: {{matchLabels: {{a: d}}}}, template: {{metadata: {{labels: {{a: d}}}}, \
                     spec: {{containers: [{{name: c, image: busybox}}]}}}}}}}}",
                    n + 2
                ))
                .await?;
            test_cluster.manager(&format!("end-{n}"), "m", &policy("{delete: {}}")).await?;
            test_cluster.manager(&name, "m", &policy("{scaleDown: {}}")).await?;
            test_cluster
                .manager(
                    &format!("tell-{n}"),
                    "m",
                    &policy(&format!("{{webhook: {{url: '{}'}}}}", receiver.url)),
                )
                .await?;
            receivers.push(receiver);
        }
        // Each life of the operator ends at its first few writes.
        for life in 0..8 {
            let before = writes(&test_cluster)?;
            let mut operator = next_life(&test_cluster).await?;
            let next = async || {
                let wrote = writes(&test_cluster).ok()? > before + life % 3;
                (wrote || finished(&test_cluster).await.ok()?).then_some(())
            };
            let wrote = test_cluster.until("one more write, or the end", next).await;
            operator.kill().await?;
            wrote.with_context(|| format!("life {life}: {}", operator.last_lines()))?;
        }
        let operator = next_life(&test_cluster).await?;
        operator.ready(&test_cluster).await?;
        for (n, receiver) in receivers.iter().enumerate() {
            let name = format!("end-{n}");
            test_cluster.deleted(&name, &uids[&name]).await?;
            let slept = test_cluster.phase(&format!("sleep-{n}"), "m", "Fired").await?;
            ensure!(slept["status"]["firings"] == 1, "{slept:#}");
            ensure!(
                slept["status"]["scaledDown"][0]["replicas"] == n + 2,
                "what it had: {}",
                slept["status"]
            );
            let notified = test_cluster.phase(&format!("tell-{n}"), "m", "Fired").await?;
            ensure!(
                notified["status"]["firings"] == 1
                    && notified["status"]["lastFiring"]["result"] == "WebhookDelivered"
            );
            let ids = receiver.ids();
            ensure!(ids.len() == 1, "one id on every attempt: {ids:?}");
        }
        let accepted: Vec<_> =
            test_cluster.namespace_deletes()?.into_iter().filter(AuditEvent::succeeded).collect();
        for delete in &accepted {
            ensure!(delete.precondition("uid") == Some(uids[&delete.name].as_str()));
            ensure!(delete.precondition("resourceVersion").is_some());
        }
        // The answer to a request whose sender was killed meanwhile can be a failure although it took effect.
        let all = test_cluster.namespace_deletes()?;
        let names = |of: &[AuditEvent]| of.iter().map(|e| e.name.clone()).collect::<BTreeSet<_>>();
        ensure!(names(&accepted).len() == accepted.len(), "each namespace is deleted once: {all:#?}");
        ensure!(names(&all).len() == 3, "nothing else was: {all:#?}");
        Ok(())
    })
}

/// A namespace whose owner has just been notified that it will be deleted.
struct Announced {
    receiver: Receiver,
    uid: String,
    notice: Value,
}

impl Announced {
    const NAME: &str = "taken-1";
    /// As long as another replica takes to notice that the leader is dead.
    const NOTICE: SignedDuration = SignedDuration::from_secs(30);

    async fn by_leader(test_cluster: &TestCluster) -> anyhow::Result<Self> {
        let receiver = Receiver::start(&[]).await?;
        test_cluster.channel(&json!({"name": "taken", "webhook": {"url": receiver.url}})).await?;
        let notice_of = format!("notice: {}s", Self::NOTICE.as_secs());
        test_cluster.apply(&manager("taken", "{labels: [team]}").replace("notice: 2s", &notice_of)).await?;
        let uid = namespace(test_cluster, Self::NAME, "labels: {team: compilers}").await?;
        let delivered = |one: &Value| one["state"] == "Delivered";
        let notice = notice(test_cluster, Self::NAME, "its owner has been notified", delivered).await?;
        Ok(Self { receiver, uid, notice })
    }

    /// Whoever leads now: it is deleted once the notice is over that runs from the delivery, and nobody is notified again.
    async fn is_deleted_in_time(&self, test_cluster: &TestCluster) -> Test {
        test_cluster.deleted(Self::NAME, &self.uid).await?;
        let delete = effective_delete(test_cluster, Self::NAME).await?;
        let delivered: Timestamp =
            self.notice["deliveredAt"].as_str().context("it was not delivered")?.parse()?;
        let notice = delete.received.duration_since(delivered);
        ensure!(notice >= Self::NOTICE, "deleted {notice} after {delivered}");
        let received = self.receiver.received();
        ensure!(received.len() == 1, "{received:?}");
        ensure!(received[0].header("webhook-id") == self.notice["key"], "{:#} {received:?}", self.notice);
        Ok(())
    }
}

#[test]
fn of_two_operators_one_acts_and_the_other_takes_over() -> Test {
    on_own_plane(async {
        let test_cluster = TestCluster::start_without_pods().await?;
        test_cluster.apply(GENEROUS).await?;
        let leads = async |operator: &Operator| operator.leads_now().await;
        let mut first = Operator::spawn(&test_cluster, &SHORT_LEASE).await?;
        first.ready(&test_cluster).await?;
        first.leads(&test_cluster).await?;
        let mut second = Operator::spawn(&test_cluster, &SHORT_LEASE).await?;
        second.ready(&test_cluster).await?;
        let uid = test_cluster.namespace("one").await?;
        test_cluster.manager("one", "m", &policy("{delete: {}}")).await?;
        test_cluster.deleted("one", &uid).await?;
        ensure!(!leads(&second).await, "two leaders");
        let fired = async |operator: &Operator| -> anyhow::Result<bool> {
            let series = "coppice_firings_total{action=\"delete\",result=\"NamespaceDeleted\"}";
            Ok(operator.metric(series).await?.is_some_and(|count| count > 0.0))
        };
        let counted = async || fired(&first).await.ok()?.then_some(());
        test_cluster.until("the leader has counted it", counted).await.with_context(|| first.last_lines())?;
        ensure!(!fired(&second).await?, "the follower has acted");
        let announced = Announced::by_leader(&test_cluster).await?;
        first.kill().await?;
        second.leads(&test_cluster).await?;
        announced.is_deleted_in_time(&test_cluster).await?;
        let counted = async || fired(&second).await.ok()?.then_some(());
        test_cluster.until("the second has done it", counted).await.with_context(|| second.last_lines())?;
        let uid = test_cluster.namespace("two").await?;
        test_cluster.manager("two", "m", &policy("{delete: {}}")).await?;
        test_cluster.deleted("two", &uid).await?;

        // A graceful end hands the lease over at once; this one would take an hour to expire.
        let long = ["--lease-duration", "1h"];
        let third = Operator::spawn(&test_cluster, &long).await?;
        third.ready(&test_cluster).await?;
        let status = second.terminate().await?;
        ensure!(status.success(), "{status}: {}", second.last_lines());
        third.leads(&test_cluster).await
    })
}

#[test]
fn started_before_the_crds_are_there_it_says_so_waits_and_recovers() -> Test {
    on_own_plane(async {
        let test_cluster = TestCluster::bare(Options { pods: Pods::Pending, ..Options::default() }).await?;
        let operator = Operator::spawn(&test_cluster, &[]).await?;
        let why = test_cluster
            .until("it says what is missing", async || {
                let error = operator.http("/readyz").await.err()?.to_string();
                error.contains("apply the ClusterRole").then_some(error)
            })
            .await?;
        ensure!(why.contains("503") && why.contains("watch: pods"), "{why}");
        ensure!(operator.http("/livez").await.is_ok(), "a restart would not help");
        test_cluster.install().await?;
        operator.ready(&test_cluster).await?;
        let uid = test_cluster.namespace("late").await?;
        test_cluster.manager("late", "m", &policy("{delete: {}}")).await?;
        test_cluster.deleted("late", &uid).await
    })
}

#[test]
fn cut_off_from_the_api_server_a_follower_waits_and_recovers_and_a_leader_ends() -> Test {
    on_own_plane(async {
        let test_cluster = TestCluster::start_without_pods().await?;
        test_cluster.apply(GENEROUS).await?;
        // It is killed below, and its lease has to expire: the follower has seen it.
        let leader = Operator::spawn(&test_cluster, &SHORT_LEASE).await?;
        leader.ready(&test_cluster).await?;
        leader.leads(&test_cluster).await?;
        let mut proxy = Proxy::start(test_cluster.plane.url()).await?;
        let detour = proxy.kubeconfig(&test_cluster.plane.kubeconfig(OPERATOR)?)?;
        let mut follower = Operator::spawn_by(&test_cluster, &detour, &SHORT_LEASE).await?;
        follower.ready(&test_cluster).await?;
        proxy.cut().await;
        let says = async || {
            let error = follower.http("/readyz").await.err()?.to_string();
            // First the watch fails, and from then on the list.
            let cut_off = ["cannot watch pods", "cannot list pods"].iter().any(|says| error.contains(says));
            cut_off.then_some(error)
        };
        test_cluster.until("the follower says that it is cut off", says).await?;
        ensure!(follower.http("/livez").await.is_ok(), "a restart would not help");
        proxy.heal().await?;
        follower.ready(&test_cluster).await?;

        // Now it leads; cut off, it must not go on believing so.
        drop(leader);
        follower.leads(&test_cluster).await?;
        proxy.cut().await;
        let status = follower.ended().await?;
        ensure!(!status.success(), "it ends with an error, so that it is started again");
        ensure!(follower.last_lines().contains("could not be renewed"), "{}", follower.last_lines());
        Ok(())
    })
}
