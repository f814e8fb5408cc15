//! Killed, doubled, early and replaced: every policy still fires exactly once.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context as _, ensure};
use coppice_plane::{AuditEvent, OPERATOR, Options};
use coppice_tests::proxy::Proxy;
use coppice_tests::receiver::Receiver;
use coppice_tests::{Operator, Stage, alone};

type Test = anyhow::Result<()>;

/// A short lease, so that a test with many crashes does not wait for each to expire for long.
const SHORT_LEASE: [&str; 6] =
    ["--lease-duration", "3s", "--lease-renew-deadline", "2s", "--lease-retry-period", "1s"];

const GENEROUS: &str = r#"{apiVersion: coppice.dev/v1alpha1, kind: CoppiceConfig, metadata: {name: coppice},
    spec: {governor: {perMinute: 1000, perHour: 1000, maxShare: 100%, atLeast: 1000}, tenants: {webhookHosts: ["127.0.0.1"]}}}"#;

fn writes(stage: &Stage) -> anyhow::Result<usize> {
    Ok(stage.by_operator()?.iter().filter(|e| e.is_write() && e.resource != "leases").count())
}

/// Whether every manager has fired.
async fn finished(stage: &Stage) -> anyhow::Result<bool> {
    let items = stage.list("nsman", "").await?;
    Ok(items.iter().all(|m| m["status"]["firings"] == 1 && m["status"]["intent"].is_null()))
}

fn policy(action: &str) -> String {
    format!("{{policies: [{{name: p, when: {{ttl: {{after: 1s}}}}, then: {action}}}]}}")
}

#[test]
fn killed_at_every_write_each_policy_fires_exactly_once() -> Test {
    alone(async {
        let stage = Stage::start().await?;
        stage.apply(GENEROUS).await?;
        let mut receivers = Vec::new();
        let mut uids = BTreeMap::new();
        for n in 0..3 {
            let receiver = Receiver::start(&[500]).await?;
            for kind in ["end", "sleep", "tell"] {
                let name = format!("{kind}-{n}");
                uids.insert(name.clone(), stage.namespace(&name).await?);
            }
            let name = format!("sleep-{n}");
            stage
                .apply(&format!(
                    "{{apiVersion: apps/v1, kind: Deployment, metadata: {{name: d, namespace: {name}}}, spec: {{replicas: {}, \
                     selector: {{matchLabels: {{a: d}}}}, template: {{metadata: {{labels: {{a: d}}}}, \
                     spec: {{containers: [{{name: c, image: busybox}}]}}}}}}}}",
                    n + 2
                ))
                .await?;
            stage.manager(&format!("end-{n}"), "m", &policy("{delete: {}}")).await?;
            stage.manager(&name, "m", &policy("{scaleDown: {}}")).await?;
            stage
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
            let before = writes(&stage)?;
            let mut operator = Operator::spawn(&stage, &SHORT_LEASE).await?;
            let next = async || {
                let wrote = writes(&stage).ok()? > before + life % 3;
                (wrote || finished(&stage).await.ok()?).then_some(())
            };
            let wrote = stage.until("one more write, or the end", next).await;
            operator.kill().await?;
            wrote.with_context(|| format!("life {life}: {}", operator.last_lines()))?;
        }
        let operator = Operator::spawn(&stage, &SHORT_LEASE).await?;
        operator.ready(&stage).await?;
        for (n, receiver) in receivers.iter().enumerate() {
            let name = format!("end-{n}");
            stage.deleted(&name, &uids[&name]).await?;
            let slept = stage.phase(&format!("sleep-{n}"), "m", "Fired").await?;
            ensure!(slept["status"]["firings"] == 1, "{slept:#}");
            ensure!(
                slept["status"]["scaledDown"][0]["replicas"] == n + 2,
                "what it had: {}",
                slept["status"]
            );
            let told = stage.phase(&format!("tell-{n}"), "m", "Fired").await?;
            ensure!(
                told["status"]["firings"] == 1
                    && told["status"]["lastFiring"]["result"] == "WebhookDelivered"
            );
            let ids: BTreeSet<_> =
                receiver.received().iter().map(|r| r.header("webhook-id").to_owned()).collect();
            ensure!(ids.len() == 1, "one id on every attempt: {ids:?}");
        }
        let accepted: Vec<_> = stage.namespace_deletes()?.into_iter().filter(AuditEvent::succeeded).collect();
        for delete in &accepted {
            ensure!(delete.precondition("uid") == Some(uids[&delete.name].as_str()));
            ensure!(delete.precondition("resourceVersion").is_some());
        }
        // The answer to a request whose sender was killed meanwhile can be a failure although it took effect.
        let all = stage.namespace_deletes()?;
        let names = |of: &[AuditEvent]| of.iter().map(|e| e.name.clone()).collect::<BTreeSet<_>>();
        ensure!(names(&accepted).len() == accepted.len(), "each namespace is deleted once: {all:#?}");
        ensure!(names(&all).len() == 3, "nothing else was: {all:#?}");
        Ok(())
    })
}

#[test]
fn of_two_operators_one_acts_and_the_other_takes_over() -> Test {
    alone(async {
        let stage = Stage::start().await?;
        stage.apply(GENEROUS).await?;
        let leads =
            async |operator: &Operator| operator.metric("coppice_leader").await.ok().flatten() == Some(1.0);
        let mut first = Operator::spawn(&stage, &SHORT_LEASE).await?;
        first.ready(&stage).await?;
        first.leads(&stage).await?;
        let mut second = Operator::spawn(&stage, &SHORT_LEASE).await?;
        second.ready(&stage).await?;
        let uid = stage.namespace("one").await?;
        stage.manager("one", "m", &policy("{delete: {}}")).await?;
        stage.deleted("one", &uid).await?;
        ensure!(!leads(&second).await, "two leaders");
        let fired = async |operator: &Operator| -> anyhow::Result<bool> {
            Ok(operator.http("/metrics").await?.contains("coppice_firings_total{action=\"delete\""))
        };
        let counted = async || fired(&first).await.ok()?.then_some(());
        stage.until("the leader has counted it", counted).await.with_context(|| first.last_lines())?;
        ensure!(!fired(&second).await?, "the follower has acted");
        first.kill().await?;
        second.leads(&stage).await?;
        let uid = stage.namespace("two").await?;
        stage.manager("two", "m", &policy("{delete: {}}")).await?;
        stage.deleted("two", &uid).await?;

        // A graceful end hands the lease over at once; this one would take an hour to expire.
        let long = ["--lease-duration", "1h"];
        let third = Operator::spawn(&stage, &long).await?;
        third.ready(&stage).await?;
        let status = second.terminate().await?;
        ensure!(status.success(), "{status}: {}", second.last_lines());
        third.leads(&stage).await
    })
}

#[test]
fn started_before_the_crds_are_there_it_says_so_waits_and_recovers() -> Test {
    alone(async {
        let stage = Stage::bare(Options::default()).await?;
        let operator = Operator::spawn(&stage, &[]).await?;
        let why = stage
            .until("it says what is missing", async || {
                let error = operator.http("/readyz").await.err()?.to_string();
                error.contains("apply the ClusterRole").then_some(error)
            })
            .await?;
        ensure!(why.contains("503") && why.contains("watch: pods"), "{why}");
        ensure!(operator.http("/livez").await.is_ok(), "a restart would not help");
        stage.install().await?;
        operator.ready(&stage).await?;
        let uid = stage.namespace("late").await?;
        stage.manager("late", "m", &policy("{delete: {}}")).await?;
        stage.deleted("late", &uid).await
    })
}

#[test]
fn cut_off_from_the_api_server_a_follower_waits_and_recovers_and_a_leader_ends() -> Test {
    alone(async {
        let stage = Stage::start().await?;
        stage.apply(GENEROUS).await?;
        let leader = Operator::start(&stage).await?;
        let mut proxy = Proxy::start(stage.plane.url()).await?;
        let detour = proxy.kubeconfig(&stage.plane.kubeconfig(OPERATOR)?)?;
        let mut follower = Operator::spawn_by(&stage, &detour, &SHORT_LEASE).await?;
        follower.ready(&stage).await?;
        proxy.cut().await;
        let says = async || {
            let error = follower.http("/readyz").await.err()?.to_string();
            // First the watch fails, and from then on the list.
            let cut_off = ["cannot watch pods", "cannot list pods"].iter().any(|says| error.contains(says));
            cut_off.then_some(error)
        };
        stage.until("the follower says that it is cut off", says).await?;
        ensure!(follower.http("/livez").await.is_ok(), "a restart would not help");
        proxy.heal().await?;
        follower.ready(&stage).await?;

        // Now it leads; cut off, it must not go on believing so.
        drop(leader);
        follower.leads(&stage).await?;
        proxy.cut().await;
        let status = follower.ended().await?;
        ensure!(!status.success(), "it ends with an error, so that it is started again");
        ensure!(follower.last_lines().contains("could not be renewed"), "{}", follower.last_lines());
        Ok(())
    })
}
