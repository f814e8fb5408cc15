//! Before Coppice is uninstalled everything that it has scaled down is woken.

use std::process::Output;

use anyhow::{Context as _, ensure};
use coppice_plane::{ADMIN, OPERATOR};
use coppice_tests::fault_injection::SHORT_LEASE;
use coppice_tests::test_cluster::binary;
use coppice_tests::{Operator, TestCluster, on_own_plane};
use serde_json::{Value, json};

type Test = anyhow::Result<()>;

const SCALE_DOWN: &str = "{policies: [{name: sleep, when: {ttl: {after: 1s}}, then: {scaleDown: {selectors: [\
                      {kind: Deployment}, {kind: StatefulSet}, {kind: CronJob}]}}}]}";

async fn wake_all(test_cluster: &TestCluster) -> anyhow::Result<Output> {
    let mut command = tokio::process::Command::new(binary("coppice-operator")?);
    command.arg("--kubeconfig").arg(test_cluster.plane.kubeconfig(OPERATOR)?).args(SHORT_LEASE);
    command.args(["wake-all", "--wait", "280s"]).kill_on_drop(true);
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

async fn replicas(
    test_cluster: &TestCluster,
    kind: &str,
    namespace: &str,
    name: &str,
) -> anyhow::Result<Value> {
    let found =
        test_cluster.get(kind, namespace, name).await?.with_context(|| format!("{kind} {name} is gone"))?;
    Ok(found["spec"][if kind == "cronjob" { "suspend" } else { "replicas" }].clone())
}

async fn recorded(test_cluster: &TestCluster, namespace: &str) -> anyhow::Result<Vec<Value>> {
    let manager = test_cluster.get("nsman", namespace, "m").await?.unwrap_or_default();
    Ok(manager["status"]["scaledDown"].as_array().cloned().unwrap_or_default())
}

#[test]
fn wake_all_takes_over_wakes_everything_and_fails_where_something_stays_scaled_down() -> Test {
    on_own_plane(async {
        let test_cluster = TestCluster::start_without_pods().await?;
        // Nothing is remembered, and nobody leads.
        let first = wake_all(&test_cluster).await?;
        ensure!(first.status.success(), "{first:?}");
        test_cluster.kubectl(ADMIN, &["delete", "lease", "coppice-operator", "-n", "coppice-system"]).await?;
        let mut operator = Operator::spawn(&test_cluster, &SHORT_LEASE).await?;
        operator.ready(&test_cluster).await?;
        for namespace in ["one", "two"] {
            test_cluster.namespace(namespace).await?;
            let all = [
                workload("Deployment", namespace, "web", 3),
                workload("Deployment", namespace, "gone", 1),
                workload("Deployment", namespace, "again", 2),
                workload("StatefulSet", namespace, "set", 2),
                cron_job(namespace),
            ];
            test_cluster.apply(&all.concat()).await?;
            test_cluster.manager(namespace, "m", SCALE_DOWN).await?;
        }
        for namespace in ["one", "two"] {
            test_cluster.phase(namespace, "m", "Fired").await?;
            ensure!(recorded(&test_cluster, namespace).await?.len() == 5);
            test_cluster.kubectl(ADMIN, &["delete", "deployment", "gone", "-n", namespace]).await?;
        }
        // Neither `paused` nor protection stops waking.
        let pause = r#"{"spec":{"governor":{"paused":true}}}"#;
        test_cluster
            .kubectl(ADMIN, &["patch", "coppiceconfig", "coppice", "--type=merge", "-p", pause])
            .await?;
        test_cluster.kubectl(ADMIN, &["label", "namespace", "one", "coppice.dev/protected=true"]).await?;
        // As a backup that was taken meanwhile brings it back: another object, and it sleeps.
        test_cluster.kubectl(ADMIN, &["delete", "deployment", "again", "-n", "two"]).await?;
        test_cluster.apply(&workload("Deployment", "two", "again", 0)).await?;

        let output = wake_all(&test_cluster).await?;
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
                let found = replicas(&test_cluster, kind, namespace, name).await?;
                ensure!(found == size, "{kind} {namespace}/{name}: {found}");
            }
        }
        ensure!(recorded(&test_cluster, "one").await?.is_empty());
        ensure!(recorded(&test_cluster, "two").await?.len() == 1, "what is left is remembered");

        // The Lease was given back, so that the operator goes on at once; then it is fixed, and tried again.
        let mut operator = Operator::spawn(&test_cluster, &SHORT_LEASE).await?;
        let leads = async || operator.leads_now().await.then_some(());
        test_cluster.until("the operator goes on", leads).await?;
        test_cluster.kubectl(ADMIN, &["scale", "deployment", "again", "-n", "two", "--replicas=1"]).await?;
        let output = wake_all(&test_cluster).await?;
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        ensure!(output.status.success() && text.contains("0 woken, 1 left alone, 0 not woken"), "{output:?}");
        ensure!(recorded(&test_cluster, "two").await?.is_empty());
        ensure!(replicas(&test_cluster, "deployment", "two", "again").await? == 1, "somebody's own decision");
        // The Lease is kept, so that nobody acts until Coppice is removed.
        let lease =
            test_cluster.get("lease", "coppice-system", "coppice-operator").await?.unwrap_or_default();
        ensure!(lease["spec"]["leaseDurationSeconds"] == 300, "{lease:#}");
        ensure!(!operator.ended().await?.success());
        Ok(())
    })
}
