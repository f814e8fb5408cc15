//! What a `ClusterNamespaceManager` does for the health of namespaces, on a real API server with the controllers of
//! Kubernetes, and with a fake kubelet.

use anyhow::{Context as _, ensure};
use coppice_plane::{ADMIN, DELAY_ANNOTATION, OUTCOME_LABEL};
use coppice_tests::{Operator, TestCluster, on_own_plane, on_shared_plane};
use serde_json::Value;

use super::cli::coppice;
use super::cluster_managers::record;
use super::lifecycle::effective_delete;

type Test = anyhow::Result<()>;

/// What fails is deleted after 10 s, 5 s and a notice of 6 s.
const MANAGER: &str = "{apiVersion: coppice.dev/v1alpha1, kind: ClusterNamespaceManager, metadata: {name: health}, spec: \
                       {mode: Enforce, selector: {names: ['health-*']}, settle: 1s, health: {settlingPeriod: 10s, gracePeriod: \
                       5s, recoveryPeriod: 3s}, policies: [{name: end, when: {phase: {in: [Failed]}}, then: {delete: \
                       {notice: 6s}}}]}}";

/// A Deployment `web` of two pods with these labels and annotations.
pub(super) fn deployment(namespace: &str, labels: &str, annotations: &str) -> String {
    format!(
        "{{apiVersion: apps/v1, kind: Deployment, metadata: {{name: web, namespace: {namespace}}}, spec: {{replicas: 2, \
         selector: {{matchLabels: {{app: web}}}}, template: {{metadata: {{labels: {{app: web, {labels}}}, annotations: \
         {{{annotations}}}}}, spec: {{containers: [{{name: main, image: example.com/none}}]}}}}}}}}"
    )
}

/// Waits until the status of a namespace's record is as described.
async fn status(
    test_cluster: &TestCluster,
    namespace: &str,
    what: &str,
    is: impl Fn(&Value) -> bool,
) -> anyhow::Result<Value> {
    Ok(record(test_cluster, namespace, what, is).await?["status"].clone())
}

/// What fails, in short.
fn failing(status: &Value) -> Vec<String> {
    let lines = status["failing"].as_array().into_iter().flatten();
    let words =
        |line: &Value| ["kind", "name", "reason"].map(|field| line[field].as_str().unwrap_or("").to_owned());
    lines.map(|line| words(line).join(" ")).collect()
}

#[test]
fn what_fails_is_deleted_with_notice_and_what_recovers_or_starts_slowly_is_not() -> Test {
    on_own_plane(async {
        let test_cluster = TestCluster::start().await?;
        let operator = Operator::start(&test_cluster).await?;
        let watched = async |synced: bool| {
            let series = "coppice_watch_synced{kind=\"deployments\"}";
            let is = async || (operator.metric(series).await.ok()? == synced.then_some(1.0)).then_some(());
            test_cluster.until(&format!("Deployments are watched: {synced}"), is).await
        };
        watched(false).await?;
        let crash = test_cluster.namespace("health-crash").await?;
        for name in ["health-recovers", "health-slow", "health-quota"] {
            test_cluster.namespace(name).await?;
        }
        test_cluster.apply(MANAGER).await?;
        watched(true).await?;
        let crashing = format!("{OUTCOME_LABEL}: crashloop");
        test_cluster
            .apply(&deployment("health-slow", "tier: web", &format!("{DELAY_ANNOTATION}: 600s")))
            .await?;
        test_cluster.apply(&deployment("health-recovers", &crashing, "")).await?;
        status(&test_cluster, "health-recovers", "Unstable", |status| status["phase"] == "Unstable").await?;
        let well = format!("{OUTCOME_LABEL}=run");
        test_cluster
            .kubectl(
                ADMIN,
                &["label", "pods", "-n", "health-recovers", "-l", "app=web", "--overwrite", &well],
            )
            .await?;
        status(&test_cluster, "health-recovers", "Ok again", |status| status["phase"] == "Ok").await?;

        test_cluster.quota_of_pods("health-quota", 0).await?;
        test_cluster.apply(&deployment("health-quota", "tier: web", "")).await?;
        let refused = |status: &Value| failing(status) == ["Deployment web PodsNotCreated"];
        let said = status(&test_cluster, "health-quota", "that no pods are created", refused).await?;
        let message = said["failing"][0]["message"].as_str().unwrap_or_default();
        ensure!(message.contains("exceeded quota"), "{message}");

        test_cluster.apply(&deployment("health-crash", &crashing, "")).await?;
        let failed =
            status(&test_cluster, "health-crash", "Failed", |status| status["phase"] == "Failed").await?;
        ensure!(failing(&failed) == ["Deployment web CrashLoopBackOff"], "{failed:#}");
        let past: Vec<_> =
            failed["pastPhases"].as_array().into_iter().flatten().map(|past| &past["phase"]).collect();
        ensure!(past.starts_with(&[&Value::from("Failing"), &Value::from("Unstable")]), "{failed:#}");
        test_cluster.deleted("health-crash", &crash).await?;
        let delete = effective_delete(&test_cluster, "health-crash").await?;
        let since = failed["phaseSince"].as_str().context("it has no date")?.parse::<jiff::Timestamp>()?;
        let waited = delete.received.duration_since(since);
        ensure!(waited.as_secs() >= 6, "deleted {waited} after it was Failed: its notice takes 6 s");
        // Every list behind it was read again, in the namespace alone.
        let reads = test_cluster.by_operator()?;
        for resource in [
            "deployments",
            "replicasets",
            "statefulsets",
            "daemonsets",
            "jobs",
            "pods",
            "persistentvolumeclaims",
        ] {
            let read = reads
                .iter()
                .any(|e| e.verb == "list" && e.resource == resource && e.namespace == "health-crash");
            ensure!(read, "{resource} were not read again");
        }

        let slow = test_cluster.get("mns", "health-slow", "coppice").await?.context("it has no record")?;
        let past = &slow["status"]["pastPhases"];
        let other = past.as_array().into_iter().flatten().find(|past| past["phase"] == "Unstable");
        ensure!(slow["status"]["phase"] == "Ok" && other.is_none(), "a slow start is no failure: {slow:#}");
        let recovered = test_cluster.get("ns", "", "health-recovers").await?.context("it is gone")?;
        ensure!(recovered["metadata"]["deletionTimestamp"].is_null(), "{recovered:#}");
        test_cluster.patch("cnsman", "", "health", r#"{"spec":{"health":null,"policies":[]}}"#).await?;
        watched(false).await?;
        status(&test_cluster, "health-recovers", "nothing of its health", |status| {
            status["health"].is_null()
        })
        .await?;
        Ok(())
    })
}

#[test]
fn each_cause_is_one_line_with_its_workload_and_advice() -> Test {
    const CAUSES: &str = "{apiVersion: coppice.dev/v1alpha1, kind: ClusterNamespaceManager, metadata: {name: causes}, spec: {selector: \
                          {names: ['causes-*']}, settle: 1s, health: {advice: [{reason: Unschedulable, text: Ask for more nodes.}]}}}";
    on_shared_plane(async |test_cluster, _| {
        test_cluster.namespace("causes-a").await?;
        test_cluster.apply(CAUSES).await?;
        let image = deployment("causes-a", &format!("{OUTCOME_LABEL}: imagepull"), "");
        // The image is there, and its containers are not created yet: that is no failure.
        let starting = deployment("causes-a", &format!("{OUTCOME_LABEL}: pending"), "");
        let nowhere = deployment("causes-a", "tier: web", "")
            .replace("spec: {containers", "spec: {nodeSelector: {example.org/none: here}, containers");
        for (name, deployment) in [("image", image), ("starting", starting), ("nowhere", nowhere)] {
            let named = deployment.replace("app: web", &format!("app: {name}"));
            test_cluster.apply(&named.replace("name: web", &format!("name: {name}"))).await?;
        }
        let waits = async || {
            let pods = test_cluster.list("pods", "causes-a").await.ok()?;
            let creating = pods.iter().filter(|pod| {
                let state = &pod["status"]["containerStatuses"][0]["state"];
                state["waiting"]["reason"] == "ContainerCreating"
            });
            (creating.count() == 2).then_some(())
        };
        test_cluster.until("the containers of one wait to be created", waits).await?;
        let expected = ["Deployment image ImagePullBackOff", "Deployment nowhere Unschedulable"];
        let both = |status: &Value| failing(status) == expected;
        let said = status(test_cluster, "causes-a", "both causes", both).await?;
        let message = |line: usize| said["failing"][line]["message"].as_str().unwrap_or_default();
        ensure!(message(0).starts_with("pod image-") && message(1).starts_with("pod nowhere-"), "{said:#}");
        let (code, said, error) = coppice(test_cluster, ADMIN, &["explain", "causes-a"]).await?;
        ensure!(code == 0, "{said}{error}");
        for (workload, reason, advice) in [
            (
                "image",
                "ImagePullBackOff",
                "Check the image's name and tag, the pull secret, and whether the registry answers.",
            ),
            ("nowhere", "Unschedulable", "Ask for more nodes."),
        ] {
            let reported = said.lines().filter(|line| line.contains(&format!("[{reason}]")));
            let reported: Vec<_> = reported.collect();
            let [line] = reported.as_slice() else { anyhow::bail!("one line with {reason}: {said}") };
            ensure!(line.trim_start().starts_with(&format!("Deployment/{workload}: ")), "{line}");
            ensure!(said.lines().any(|line| line.trim() == format!("{reason}: {advice}")), "{said}");
        }
        Ok(())
    })
}
