//! What one tenant writes does not hurt another.

mod memory;

use anyhow::{Context as _, ensure};
use coppice_tests::{Operator, TestCluster, condition, on_own_plane};
use serde_json::{Map, Value, json};

type Test = anyhow::Result<()>;

const PASSED: &str =
    "{policies: [{name: p, when: {podsSucceed: {initialDelay: 0s, minPods: 1}}, then: {delete: {}}}]}";

const DUE: &str = "{policies: [{name: end, when: {ttl: {after: 1s}}, then: {delete: {}}}]}";

/// Nearly a megabyte of them.
fn labels() -> Map<String, Value> {
    (0..12_000).map(|n| (format!("key-{n:05}"), json!("v".repeat(60)))).collect()
}

/// A Job whose pods have this metadata.
fn job(namespace: &str, name: &str, pods: &Value) -> Value {
    let mut template =
        json!({"spec": {"restartPolicy": "Never", "containers": [{"name": "main", "image": "busybox"}]}});
    template["metadata"] = pods.clone();
    // Suspended: it has no pods, and never completes.
    let spec = json!({"suspend": true, "template": template});
    // Without labels of its own it would get those of its pods.
    let metadata = json!({"name": name, "namespace": namespace, "labels": {"a": "b"}});
    json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": spec})
}

async fn create(test_cluster: &TestCluster, object: &Value) -> anyhow::Result<String> {
    // Not applied: an annotation would hold it again.
    test_cluster.kubectl_stdin(coppice_plane::ADMIN, &["create", "-f", "-"], &object.to_string()).await
}

fn says(manager: &Value, reason: &str) -> bool {
    manager["status"]["policies"][0]["reason"] == reason
}

/// How many Jobs are too large to keep.
async fn too_large(operator: &Operator) -> anyhow::Result<Option<f64>> {
    operator.metric(r#"coppice_watch_objects_unreadable{kind="jobs",reason="TooLarge"}"#).await
}

async fn one_is_unreadable(operator: &Operator) -> anyhow::Result<bool> {
    Ok(too_large(operator).await? == Some(1.0))
}

#[test]
fn a_job_of_the_year_9999_stops_nobody() -> Test {
    on_own_plane(async {
        let test_cluster = TestCluster::start().await?;
        let mut operator = Operator::start(&test_cluster).await?;
        test_cluster.namespace("bad").await?;
        create(&test_cluster, &job("bad", "hostile", &json!({"creationTimestamp": "9999-12-31T23:59:59Z"})))
            .await?;
        test_cluster.manager("bad", "m", PASSED).await?;
        let waits = |m: &Value| says(m, "JobNotComplete");
        test_cluster.manager_until("bad", "m", "the Job is seen", waits).await?;
        let good = test_cluster.namespace("good").await?;
        test_cluster.pod("good", "worker", "succeed", "").await?;
        test_cluster.manager("good", "m", PASSED).await?;
        test_cluster.deleted("good", &good).await?;
        // After a restart it is in a page instead of an event.
        operator.terminate().await?;
        let _operator = Operator::start(&test_cluster).await?;
        let good = test_cluster.namespace("good-again").await?;
        test_cluster.pod("good-again", "worker", "succeed", "").await?;
        test_cluster.manager("good-again", "m", PASSED).await?;
        test_cluster.deleted("good-again", &good).await
    })
}

#[test]
fn labels_without_end_are_not_kept() -> Test {
    on_own_plane(async {
        let test_cluster = TestCluster::start().await?;
        let mut operator = Operator::start(&test_cluster).await?;
        test_cluster.namespace("large").await?;
        test_cluster.pod("large", "worker", "succeed", "").await?;
        create(&test_cluster, &job("large", "hostile", &json!({"labels": labels()}))).await?;
        test_cluster.manager("large", "m", PASSED).await?;
        let manager = test_cluster.manager_until("large", "m", "TooLarge", |m| says(m, "TooLarge")).await?;
        let message = manager["status"]["policies"][0]["message"].as_str().unwrap_or_default();
        ensure!(message.contains("hostile has more than 8192 bytes of labels"), "{message}");
        ensure!(condition(&manager, "Ready")["status"] == "Unknown", "{manager:#}");
        // Counted after the manager was woken.
        let counted = async || one_is_unreadable(&operator).await.ok()?.then_some(());
        test_cluster.until("it is counted", counted).await?;
        operator.terminate().await?;
        let operator = Operator::start(&test_cluster).await?;
        ensure!(one_is_unreadable(&operator).await?);
        // A ttl looks at no Job.
        test_cluster.namespace("timed").await?;
        create(&test_cluster, &job("timed", "hostile", &json!({"labels": labels()}))).await?;
        let timed = test_cluster.get("namespace", "", "timed").await?.context("it was just created")?;
        test_cluster.manager("timed", "m", DUE).await?;
        test_cluster.deleted("timed", timed["metadata"]["uid"].as_str().unwrap_or_default()).await?;
        // Once the object is gone, what is in the namespace is known again.
        let large =
            test_cluster.get("namespace", "", "large").await?.context("it was deleted on unknown facts")?;
        ensure!(large["metadata"]["deletionTimestamp"].is_null(), "it was deleted on unknown facts");
        test_cluster.kubectl(coppice_plane::ADMIN, &["delete", "job", "hostile", "-n", "large"]).await?;
        test_cluster.deleted("large", large["metadata"]["uid"].as_str().unwrap_or_default()).await
    })
}

#[test]
fn a_namespace_whose_labels_are_unknown_is_skipped() -> Test {
    on_own_plane(async {
        let test_cluster = TestCluster::start_without_pods().await?;
        let metadata = json!({"name": "crowded", "labels": labels()});
        create(&test_cluster, &json!({"apiVersion": "v1", "kind": "Namespace", "metadata": metadata}))
            .await?;
        let _operator = Operator::start(&test_cluster).await?;
        test_cluster.manager("crowded", "m", DUE).await?;
        let waits = |m: &Value| m["status"]["next"]["reason"] == "TooLarge";
        test_cluster.manager_until("crowded", "m", "TooLarge", waits).await?;
        let namespace = test_cluster.get("namespace", "", "crowded").await?.context("it may be protected")?;
        let remove = r#"[{"op": "remove", "path": "/metadata/labels"}]"#;
        let patch = ["patch", "namespace", "crowded", "--type=json", "-p", remove];
        test_cluster.kubectl(coppice_plane::ADMIN, &patch).await?;
        test_cluster.deleted("crowded", namespace["metadata"]["uid"].as_str().unwrap_or_default()).await
    })
}
