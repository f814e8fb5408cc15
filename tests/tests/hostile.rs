//! What one tenant writes does not hurt another.

use anyhow::{Context as _, ensure};
use coppice_tests::{Operator, Stage, alone};
use serde_json::{Map, Value, json};

type Test = anyhow::Result<()>;

const PASSED: &str =
    "{policies: [{name: p, when: {podsSucceed: {initialDelay: 0s, minPods: 1}}, then: {delete: {}}}]}";

const DUE: &str = "{policies: [{name: end, when: {ttl: {after: 1s}}, then: {delete: {}}}]}";

/// Nearly a megabyte of them.
fn labels() -> Map<String, Value> {
    (0..12_000).map(|n| (format!("key-{n:05}"), json!("v".repeat(60)))).collect()
}

fn job(namespace: &str, metadata: &Value) -> String {
    let mut template =
        json!({"spec": {"restartPolicy": "Never", "containers": [{"name": "main", "image": "busybox"}]}});
    template["metadata"] = metadata.clone();
    // Suspended: it has no pods, and never completes.
    let spec = json!({"suspend": true, "template": template});
    // Without labels of its own it would get those of its pods.
    let metadata = json!({"name": "hostile", "namespace": namespace, "labels": {"a": "b"}});
    json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": spec}).to_string()
}

async fn create(stage: &Stage, object: &str) -> anyhow::Result<String> {
    // Not applied: an annotation would hold it again.
    stage.kubectl_stdin(coppice_plane::ADMIN, &["create", "-f", "-"], object).await
}

fn says(manager: &Value, reason: &str) -> bool {
    manager["status"]["policies"][0]["reason"] == reason
}

async fn one_is_unreadable(operator: &Operator) -> anyhow::Result<bool> {
    let series = r#"coppice_watch_objects_unreadable{kind="jobs",reason="TooLarge"}"#;
    Ok(operator.metric(series).await? == Some(1.0))
}

#[test]
fn a_job_of_the_year_9999_stops_nobody() -> Test {
    alone(async {
        let stage = Stage::start().await?;
        let mut operator = Operator::start(&stage).await?;
        stage.namespace("bad").await?;
        create(&stage, &job("bad", &json!({"creationTimestamp": "9999-12-31T23:59:59Z"}))).await?;
        stage.manager("bad", "m", PASSED).await?;
        let waits = |m: &Value| says(m, "JobNotComplete");
        stage.manager_until("bad", "m", "the Job is seen", waits).await?;
        let good = stage.namespace("good").await?;
        stage.pod("good", "worker", "succeed", "").await?;
        stage.manager("good", "m", PASSED).await?;
        stage.deleted("good", &good).await?;
        // After a restart it is in a page instead of an event.
        operator.terminate().await?;
        let _operator = Operator::start(&stage).await?;
        let good = stage.namespace("good-again").await?;
        stage.pod("good-again", "worker", "succeed", "").await?;
        stage.manager("good-again", "m", PASSED).await?;
        stage.deleted("good-again", &good).await
    })
}

#[test]
fn labels_without_end_are_not_kept() -> Test {
    alone(async {
        let stage = Stage::start().await?;
        let mut operator = Operator::start(&stage).await?;
        stage.namespace("large").await?;
        stage.pod("large", "worker", "succeed", "").await?;
        create(&stage, &job("large", &json!({"labels": labels()}))).await?;
        stage.manager("large", "m", PASSED).await?;
        let manager = stage.manager_until("large", "m", "TooLarge", |m| says(m, "TooLarge")).await?;
        let message = manager["status"]["policies"][0]["message"].as_str().unwrap_or_default();
        ensure!(message.contains("hostile has more than 8192 bytes of labels"), "{message}");
        ensure!(manager["status"]["conditions"][0]["status"] == "Unknown", "{manager:#}");
        ensure!(one_is_unreadable(&operator).await?);
        operator.terminate().await?;
        let operator = Operator::start(&stage).await?;
        ensure!(one_is_unreadable(&operator).await?);
        // A ttl looks at no Job.
        stage.namespace("timed").await?;
        create(&stage, &job("timed", &json!({"labels": labels()}))).await?;
        let timed = stage.get("namespace", "", "timed").await?.context("it was just created")?;
        stage.manager("timed", "m", DUE).await?;
        stage.deleted("timed", timed["metadata"]["uid"].as_str().unwrap_or_default()).await?;
        // Once the object is gone, what is in the namespace is known again.
        let large = stage.get("namespace", "", "large").await?.context("it was deleted on unknown facts")?;
        ensure!(large["metadata"]["deletionTimestamp"].is_null(), "it was deleted on unknown facts");
        stage.kubectl(coppice_plane::ADMIN, &["delete", "job", "hostile", "-n", "large"]).await?;
        stage.deleted("large", large["metadata"]["uid"].as_str().unwrap_or_default()).await
    })
}

#[test]
fn a_namespace_whose_labels_are_not_known_is_left_alone() -> Test {
    alone(async {
        let stage = Stage::start().await?;
        let metadata = json!({"name": "crowded", "labels": labels()});
        create(&stage, &json!({"apiVersion": "v1", "kind": "Namespace", "metadata": metadata}).to_string())
            .await?;
        let _operator = Operator::start(&stage).await?;
        stage.manager("crowded", "m", DUE).await?;
        let waits = |m: &Value| m["status"]["next"]["reason"] == "TooLarge";
        stage.manager_until("crowded", "m", "TooLarge", waits).await?;
        let namespace = stage.get("namespace", "", "crowded").await?.context("it may be protected")?;
        let remove = r#"[{"op": "remove", "path": "/metadata/labels"}]"#;
        let patch = ["patch", "namespace", "crowded", "--type=json", "-p", remove];
        stage.kubectl(coppice_plane::ADMIN, &patch).await?;
        stage.deleted("crowded", namespace["metadata"]["uid"].as_str().unwrap_or_default()).await
    })
}
