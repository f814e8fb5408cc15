//! Before Coppice is uninstalled everything that it has scaled down is woken.

use std::process::Output;

use anyhow::{Context as _, ensure};
use coppice_plane::{ADMIN, OPERATOR};
use coppice_tests::stage::binary;
use coppice_tests::{Operator, Stage, alone};
use serde_json::{Value, json};

type Test = anyhow::Result<()>;

/// Shorter times than usual.
const LEASE: [&str; 6] =
    ["--lease-duration", "4s", "--lease-renew-deadline", "3s", "--lease-retry-period", "1s"];
const ASLEEP: &str = "{policies: [{name: sleep, when: {ttl: {after: 1s}}, then: {scaleDown: {selectors: [\
                      {kind: Deployment}, {kind: StatefulSet}, {kind: CronJob}]}}}]}";

async fn wake_all(stage: &Stage) -> anyhow::Result<Output> {
    let mut command = tokio::process::Command::new(binary("coppice-operator")?);
    command.arg("--kubeconfig").arg(stage.plane.kubeconfig(OPERATOR)?).args(LEASE);
    command.args(["wake-all", "--wait", "60s"]).kill_on_drop(true);
    command.output().await.context("wake-all could not be started")
}

fn workload(kind: &str, namespace: &str, name: &str, replicas: u32) -> String {
    let service = if kind == "StatefulSet" { "serviceName: s, " } else { "" };
    format!(
        "---\n{{apiVersion: apps/v1, kind: {kind}, metadata: {{name: {name}, namespace: {namespace}}}, \
         spec: {{replicas: {replicas}, {service}selector: {{matchLabels: {{app: {name}}}}}, \
         template: {{metadata: {{labels: {{app: {name}}}}}, spec: {{containers: [{{name: c, image: busybox}}]}}}}}}}}\n"
    )
}

fn cron_job(namespace: &str) -> String {
    format!(
        "---\n{{apiVersion: batch/v1, kind: CronJob, metadata: {{name: cron, namespace: {namespace}}}, spec: {{schedule: '0 0 1 1 *', \
         jobTemplate: {{spec: {{template: {{spec: {{restartPolicy: Never, containers: [{{name: c, image: busybox}}]}}}}}}}}}}}}\n"
    )
}

async fn replicas(stage: &Stage, kind: &str, namespace: &str, name: &str) -> anyhow::Result<Value> {
    let found = stage.get(kind, namespace, name).await?.with_context(|| format!("{kind} {name} is gone"))?;
    Ok(found["spec"][if kind == "cronjob" { "suspend" } else { "replicas" }].clone())
}

async fn remembered(stage: &Stage, namespace: &str) -> anyhow::Result<Vec<Value>> {
    let manager = stage.get("nsman", namespace, "m").await?.unwrap_or_default();
    Ok(manager["status"]["scaledDown"].as_array().cloned().unwrap_or_default())
}

#[test]
fn wake_all_takes_over_gives_everything_back_and_fails_where_something_stays_asleep() -> Test {
    alone(async {
        let stage = Stage::start().await?;
        // Nothing is remembered, and nobody leads.
        let first = wake_all(&stage).await?;
        ensure!(first.status.success(), "{first:?}");
        stage.kubectl(ADMIN, &["delete", "lease", "coppice-operator", "-n", "coppice-system"]).await?;
        let mut operator = Operator::spawn(&stage, &LEASE).await?;
        operator.ready(&stage).await?;
        for namespace in ["one", "two"] {
            stage.namespace(namespace).await?;
            let all = [
                workload("Deployment", namespace, "web", 3),
                workload("Deployment", namespace, "gone", 1),
                workload("Deployment", namespace, "again", 2),
                workload("StatefulSet", namespace, "set", 2),
                cron_job(namespace),
            ];
            stage.apply(&all.concat()).await?;
            stage.manager(namespace, "m", ASLEEP).await?;
        }
        for namespace in ["one", "two"] {
            stage.phase(namespace, "m", "Fired").await?;
            ensure!(remembered(&stage, namespace).await?.len() == 5);
            stage.kubectl(ADMIN, &["delete", "deployment", "gone", "-n", namespace]).await?;
        }
        // Neither the kill switch nor protection stops waking.
        let pause = r#"{"spec":{"governor":{"paused":true}}}"#;
        stage.kubectl(ADMIN, &["patch", "coppiceconfig", "coppice", "--type=merge", "-p", pause]).await?;
        stage.kubectl(ADMIN, &["label", "namespace", "one", "coppice.dev/protected=true"]).await?;
        // As a backup that was taken meanwhile brings it back: another object, and it sleeps.
        stage.kubectl(ADMIN, &["delete", "deployment", "again", "-n", "two"]).await?;
        stage.apply(&workload("Deployment", "two", "again", 0)).await?;

        let output = wake_all(&stage).await?;
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        ensure!(output.status.code() == Some(1), "{output:?}");
        for line in [
            "woken: Deployment one/web: 3 replicas",
            "woken: CronJob two/cron: not suspended",
            "left alone: Deployment one/gone: it is gone",
            "NOT WOKEN: Deployment two/again: it was replaced by another of the same name; scale it to 2 replicas if that is right",
            "7 woken, 2 left alone, 1 not woken",
        ] {
            ensure!(text.contains(line), "{line:?} is missing:\n{text}");
        }
        // Who led has ended: nothing is scaled down by it any more.
        ensure!(!operator.ended().await?.success());
        for (kind, name, size) in
            [("deployment", "web", json!(3)), ("sts", "set", json!(2)), ("cronjob", "cron", json!(false))]
        {
            for namespace in ["one", "two"] {
                let found = replicas(&stage, kind, namespace, name).await?;
                ensure!(found == size, "{kind} {namespace}/{name}: {found}");
            }
        }
        ensure!(remembered(&stage, "one").await?.is_empty());
        ensure!(remembered(&stage, "two").await?.len() == 1, "what is left is remembered");

        // The Lease was given back, so that the operator goes on at once; then it is fixed, and tried again.
        let mut operator = Operator::spawn(&stage, &LEASE).await?;
        let leads = async || (operator.metric("coppice_leader").await.ok()?? > 0.5).then_some(());
        stage.until("the operator goes on", leads).await?;
        stage.kubectl(ADMIN, &["scale", "deployment", "again", "-n", "two", "--replicas=1"]).await?;
        let output = wake_all(&stage).await?;
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        ensure!(output.status.success() && text.contains("0 woken, 1 left alone, 0 not woken"), "{output:?}");
        ensure!(remembered(&stage, "two").await?.is_empty());
        ensure!(replicas(&stage, "deployment", "two", "again").await? == 1, "somebody's own decision");
        // The Lease is kept, so that nobody acts until Coppice is removed.
        let lease = stage.get("lease", "coppice-system", "coppice-operator").await?.unwrap_or_default();
        ensure!(lease["spec"]["leaseDurationSeconds"] == 300, "{lease:#}");
        ensure!(!operator.ended().await?.success());
        Ok(())
    })
}
