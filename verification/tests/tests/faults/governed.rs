//! Namespaces under cluster managers: while rights are missing, and while leaders are killed.

use anyhow::{Context as _, ensure};
use coppice_plane::OUTCOME_LABEL;
use coppice_plane::proxy::{FaultRule, Match, ProxyFault};
use coppice_tests::fault_injection::{FAST_LEASE, Replica, with_timeout};
use coppice_tests::receiver::Receiver;
use coppice_tests::{Operator, TestCluster, on_own_plane};
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use super::Test;
use crate::cluster_health::deployment;
use crate::cluster_managers::record;
use crate::cluster_notices::{manager, namespace, notice};
use crate::crash::GENEROUS;
use crate::lifecycle::effective_delete;
use crate::settings::{operator_role, with_role};

/// Deletes what has failed or is superseded: three seconds after it began to fail at the earliest.
const DENIED: &str = "{apiVersion: coppice.dev/v1alpha1, kind: ClusterNamespaceManager, metadata: {name: denied}, spec: {mode: Enforce, \
                      selector: {names: ['denied-*']}, settle: 1s, health: {settlingPeriod: 1s, gracePeriod: 1s, recoveryPeriod: 1s}, \
                      identity: {project: example.org/project, pipeline: example.org/pipeline, branch: example.org/branch}, supersede: \
                      {by: [Branch]}, policies: [{name: end, when: {phase: {in: [Failed, Superseded]}}, then: {delete: {notice: 1s}}}]}}";

/// A namespace that a pipeline has made for the branch `main`, with a pod that is ready; its uid.
async fn made(test_cluster: &TestCluster, name: &str, pipeline: &str) -> anyhow::Result<String> {
    let labels = format!(
        "labels: {{example.org/project: shop, example.org/branch: main, example.org/pipeline: '{pipeline}'}}"
    );
    let uid = namespace(test_cluster, name, &labels).await?;
    test_cluster.account(name).await?;
    test_cluster.pod(name, "web", "run", "a: b").await?;
    Ok(uid)
}

/// Waits for longer than anything takes by `DENIED`: until a namespace of another manager is deleted.
async fn time_passes(test_cluster: &TestCluster, clock: &str) -> Test {
    let uid = test_cluster.namespace(clock).await?;
    let spec = "{policies: [{name: end, when: {ttl: {after: 6s}}, then: {delete: {}}}]}";
    test_cluster.manager(clock, "m", spec).await?;
    test_cluster.deleted(clock, &uid).await
}

#[test]
fn what_may_not_be_listed_neither_deletes_nor_supersedes_until_it_may_be_again() -> Test {
    on_own_plane(async {
        let test_cluster = TestCluster::start().await?;
        let role = operator_role(&test_cluster).await?;
        with_role(&test_cluster, &role, &["daemonsets", "pods"]).await?;
        let operator = Operator::spawn(&test_cluster, &[]).await?;
        operator.leads(&test_cluster).await?;
        let crash = test_cluster.namespace("denied-crash").await?;
        test_cluster.apply(&deployment("denied-crash", &format!("{OUTCOME_LABEL}: crashloop"), "")).await?;
        let old = made(&test_cluster, "denied-1", "1").await?;
        made(&test_cluster, "denied-2", "2").await?;
        test_cluster.apply(DENIED).await?;
        for clock in ["without-pods", "without-daemonsets"] {
            if clock == "without-daemonsets" {
                with_role(&test_cluster, &role, &["daemonsets"]).await?;
                let listed = async || {
                    let series = "coppice_watch_synced{kind=\"pods\"}";
                    (operator.metric(series).await.ok()? == Some(1.0)).then_some(())
                };
                test_cluster.until("pods are listed", listed).await?;
            }
            time_passes(&test_cluster, clock).await?;
            for name in ["denied-crash", "denied-1", "denied-2"] {
                let unknown =
                    |status: &Value| status["phase"] == "Unknown" && status["next"]["reason"] == "Forbidden";
                let stays = record(&test_cluster, name, "that its health is unknown", unknown).await?;
                let status = &stays["status"];
                ensure!(status["supersededBy"].is_null() && status["notice"].is_null(), "{stays:#}");
            }
            let deletes = test_cluster.namespace_deletes()?;
            ensure!(!deletes.iter().any(|e| e.name.starts_with("denied-")), "{deletes:?}");
        }
        let blind = record(&test_cluster, "denied-crash", "what is missing", |_| true).await?;
        let message = blind["status"]["next"]["message"].as_str().unwrap_or_default();
        ensure!(message.contains("daemonsets may not be watched"), "{blind:#}");

        with_role(&test_cluster, &role, &[]).await?;
        test_cluster.deleted("denied-crash", &crash).await?;
        test_cluster.deleted("denied-1", &old).await?;
        record(&test_cluster, "denied-2", "that it stays", |status| status["phase"] == "Ok").await?;
        let deletes = test_cluster.namespace_deletes()?;
        ensure!(!deletes.iter().any(|e| e.name == "denied-2"), "{deletes:?}");
        Ok(())
    })
}

/// What the operators have written at this place of the status of a namespace's record, each value once, in this order.
fn written(test_cluster: &TestCluster, namespace: &str, place: &str) -> anyhow::Result<Vec<Value>> {
    let writes = test_cluster.by_operator()?;
    let statuses = writes.iter().filter(|e| {
        e.resource == "managednamespaces"
            && e.subresource == "status"
            && e.namespace == namespace
            && e.succeeded()
    });
    let found = statuses.filter_map(|e| e.request.as_ref()?.pointer(&format!("/status{place}")).cloned());
    let mut values: Vec<Value> = found.collect();
    values.dedup();
    Ok(values)
}

fn instant(value: &Value) -> anyhow::Result<Timestamp> {
    Ok(value.as_str().context("no instant")?.parse()?)
}

/// Waits until a namespace is deleted: once, and not before the date of its one notice, however often the leader was killed.
async fn is_deleted_once_and_in_time(test_cluster: &TestCluster, name: &str, uid: &str) -> Test {
    test_cluster.deleted(name, uid).await?;
    let deletes = test_cluster.namespace_deletes()?;
    let gone: Vec<_> = deletes.iter().filter(|e| e.name == name && e.succeeded()).collect();
    ensure!(gone.len() <= 1, "{gone:?}");
    let received = effective_delete(test_cluster, name).await?.received;
    let since = written(test_cluster, name, "/manager/since")?;
    ensure!(since.len() == 1, "it settles once: {since:?}");
    let dates = written(test_cluster, name, "/notice/notBefore")?;
    let dates = dates.iter().map(instant).collect::<anyhow::Result<Vec<_>>>()?;
    ensure!(dates.is_sorted() && dates.last().is_some_and(|last| *last <= received), "{dates:?}");
    // Only the notice of an owner who is notified begins again, with the delivery.
    ensure!(name == "killed-1" || dates.len() == 1, "{dates:?}");
    let given = written(test_cluster, name, "/notice/givenAt")?;
    ensure!(given.len() == 1, "notice is given once: {given:?}");
    Ok(())
}

#[test]
fn leaders_killed_while_it_settles_and_around_a_delivery_hasten_and_repeat_nothing() -> Test {
    const NOTICE: SignedDuration = SignedDuration::from_secs(12);
    on_own_plane(async {
        let test_cluster = TestCluster::start_without_pods().await?;
        test_cluster.apply(GENEROUS).await?;
        let mut replica = Replica::start(&test_cluster).await?;
        let receiver = Receiver::start(&[]).await?;
        test_cluster.channel(&json!({"name": "killed", "webhook": {"url": receiver.url}})).await?;
        let notifies = |name: &str| {
            manager(name, "{labels: [team]}")
                .replace("settle: 1s", "settle: 6s")
                .replace("notice: 2s", &format!("notice: {}s", NOTICE.as_secs()))
        };
        test_cluster.apply(&notifies("killed")).await?;
        let silent = notifies("silent").replace("notify: {channels: [silent], on: []}, ", "");
        test_cluster.apply(&silent).await?;
        let names = ["killed-1", "silent-1"];
        let mut uids = Vec::new();
        for name in names {
            uids.push(namespace(&test_cluster, name, "labels: {team: compilers}").await?);
        }

        for name in names {
            let settles = |status: &Value| status["next"]["reason"] == "Settling";
            record(&test_cluster, name, "that its manager's spec settles", settles).await?;
        }
        replica.operator.kill().await?;

        // Where one owner is notified, and before that is written down: the receiver has it already.
        let heard = receiver.clone();
        let after_delivery =
            Match::verb("update").resource("managednamespaces").subresource("status").namespace("killed-1");
        let after_delivery = after_delivery.when(move |_| !heard.received().is_empty());
        let held = replica.proxy.add(FaultRule::new(after_delivery, ProxyFault::HoldRequest).once());
        replica.again(&test_cluster, &FAST_LEASE).await?;
        let announced = async || test_cluster.events("default", "silent-1", "DeletionAnnounced").await;
        let once = async || (announced().await.ok()?.len() == 1).then_some(());
        test_cluster.until("the other one's notice is announced", once).await?;
        let waited = with_timeout("the write about the delivery", held.held(1)).await;
        waited.with_context(|| replica.operator.last_lines())?;
        replica.operator.kill().await?;
        held.discard();
        drop(held);

        replica.again(&test_cluster, &FAST_LEASE).await?;
        let delivered = |one: &Value| one["state"] == "Delivered";
        let delivered =
            notice(&test_cluster, "killed-1", "that its owner has been notified", delivered).await?;
        replica.operator.kill().await?;
        replica.again(&test_cluster, &FAST_LEASE).await?;

        for (name, uid) in names.into_iter().zip(&uids) {
            is_deleted_once_and_in_time(&test_cluster, name, uid).await?;
        }
        let announced = announced().await?;
        ensure!(announced.len() == 1, "{announced:?}");
        let messages = receiver.received();
        ensure!(messages.len() == 2, "once before each of the first two ends: {messages:?}");
        ensure!(messages.iter().all(|one| delivered["key"] == one.header("webhook-id")), "{delivered:#}");
        let waited = effective_delete(&test_cluster, "killed-1").await?.received;
        let waited = waited.duration_since(instant(&delivered["deliveredAt"])?);
        ensure!(waited >= NOTICE, "deleted {waited} after its owner was notified");
        Ok(())
    })
}
