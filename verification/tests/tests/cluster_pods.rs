//! Policies of cluster managers that wait for pods, and their webhooks, on a real API server.

use anyhow::{Context as _, ensure};
use coppice_notify::key::PublicKey;
use coppice_plane::ADMIN;
use coppice_tests::receiver::{Received, Receiver};
use coppice_tests::{TestCluster, on_shared_plane};
use serde_json::{Value, json};

use super::cli::coppice;
use super::cluster_managers::record;
use super::lifecycle::effective_delete;

type Test = anyhow::Result<()>;

/// Calls a receiver, and deletes, when all pods of a namespace have succeeded.
fn manager(name: &str, url: &str) -> String {
    let when = "{podsSucceed: {initialDelay: 0s}}";
    format!(
        "{{apiVersion: coppice.dev/v1alpha1, kind: ClusterNamespaceManager, metadata: {{name: {name}}}, spec: {{mode: Enforce, \
         selector: {{names: ['{name}-*']}}, settle: 1s, policies: [{{name: end, when: {when}, then: {{delete: {{notice: 2s}}}}}}, \
         {{name: tell, when: {when}, then: {{webhook: {{url: '{url}'}}}}}}]}}}}"
    )
}

/// Every request has a signature by the key of the settings' status.
pub(super) async fn signed(test_cluster: &TestCluster, requests: &[Received]) -> Test {
    let config = test_cluster.get("coppiceconfig", "", "coppice").await?.unwrap_or_default();
    let key: PublicKey = config["status"]["webhookKey"].as_str().unwrap_or_default().parse()?;
    for request in requests {
        let timestamp = request.header("webhook-timestamp").parse::<i64>()?;
        let (id, signature) = (request.header("webhook-id"), request.header("webhook-signature"));
        key.verify(id, timestamp, &request.body, signature)?;
    }
    Ok(())
}

#[test]
fn the_webhook_of_a_tenant_is_delivered_before_a_cluster_manager_deletes_its_namespace() -> Test {
    on_shared_plane(async |test_cluster, _| {
        // The fifth attempt is 15 seconds after the first.
        let receiver = Receiver::start(&[503; 4]).await?;
        let uid = test_cluster.namespace("tenant-tells").await?;
        let spec = format!(
            "{{policies: [{{name: tell, when: {{ttl: {{after: 1s}}}}, then: {{webhook: {{url: '{}'}}}}}}]}}",
            receiver.url
        );
        test_cluster.manager("tenant-tells", "hooks", &spec).await?;
        let begun = || (!receiver.received().is_empty()).then_some(());
        test_cluster.until("the first attempt", async || begun()).await?;
        test_cluster
            .apply(
                "{apiVersion: coppice.dev/v1alpha1, kind: ClusterNamespaceManager, metadata: {name: tenant-tells}, spec: \
                 {mode: Enforce, selector: {names: [tenant-tells]}, settle: 1s, ttl: {after: 2s}, policies: [{name: end, \
                 when: {phase: {in: [Stale]}}, then: {delete: {notice: 1s}}}]}}",
            )
            .await?;
        test_cluster.deleted("tenant-tells", &uid).await?;
        ensure!(
            receiver.received().len() >= 5,
            "it went before the fifth attempt: {:?}",
            receiver.received()
        );
        Ok(())
    })
}

#[test]
fn a_receiver_hears_of_succeeded_pods_before_their_namespace_is_deleted() -> Test {
    on_shared_plane(async |test_cluster, _| {
        let receiver = Receiver::start(&[503]).await?;
        let uid = test_cluster.namespace("heard-done").await?;
        test_cluster.namespace("heard-runs").await?;
        test_cluster.pod("heard-done", "test", "succeed", "a: b").await?;
        test_cluster.pod("heard-runs", "test", "run", "a: b").await?;
        test_cluster.apply(&manager("heard", &receiver.url)).await?;
        test_cluster.deleted("heard-done", &uid).await?;

        let requests = receiver.received();
        ensure!(requests.len() >= 2 && receiver.ids().len() == 1, "one webhook, at the second attempt");
        let body: Value = serde_json::from_slice(&requests[0].body)?;
        let manager = json!({"kind": "ClusterNamespaceManager", "name": "heard"});
        ensure!(body["manager"] == manager && body["namespace"] == json!({"name": "heard-done", "uid": uid}));
        ensure!(body["reason"] == "PodsSucceeded" && body["evidence"]["pods"] == "test", "{body:#}");
        signed(test_cluster, &requests).await?;
        // The record is gone with its namespace: what was written to it before is in the audit log.
        let delete = effective_delete(test_cluster, "heard-done").await?;
        let last =
            requests.last().and_then(|request| request.header("webhook-timestamp").parse::<i64>().ok());
        let sent = last.context("the last attempt has no timestamp")?;
        ensure!(sent <= delete.received.as_second(), "the receiver heard of it at {sent}, after {delete:?}");

        let waits = |status: &Value| status["next"]["reason"] == "PodsNotFinished";
        let runs = record(test_cluster, "heard-runs", "what it waits for", waits).await?;
        let verdicts = runs["status"]["policies"].as_array().cloned().unwrap_or_default();
        let verdicts: Vec<_> = verdicts.iter().map(|one| (&one["name"], &one["result"])).collect();
        ensure!(
            verdicts == [(&json!("end"), &json!("False")), (&json!("tell"), &json!("False"))],
            "{runs:#}"
        );
        let (code, said, error) = coppice(test_cluster, ADMIN, &["explain", "heard-runs"]).await?;
        ensure!(code == 0 && said.contains("when every pod succeeded"), "{said}{error}");
        ensure!(said.contains(&format!("call {}", receiver.url)), "{said}");
        ensure!(said.contains("pod test is Running"), "{said}");
        ensure!(receiver.ids().len() == 1, "nobody is notified of what still runs");
        Ok(())
    })
}

#[test]
fn pods_that_run_again_end_the_notice_of_their_namespace() -> Test {
    on_shared_plane(async |test_cluster, _| {
        test_cluster.namespace("again-a").await?;
        test_cluster.pod("again-a", "first", "succeed", "a: b").await?;
        let manager = manager("again", "http://127.0.0.1:1/hook").replace("notice: 2s", "notice: 1h");
        // Without the webhook: a deletion waits for it.
        let (before, _) = manager.split_once(", {name: tell").context("it has a webhook")?;
        test_cluster.apply(&format!("{before}]}}}}")).await?;
        let announced = |status: &Value| status["notice"]["reason"] == "PodsSucceeded";
        record(test_cluster, "again-a", "that it will be deleted", announced).await?;
        test_cluster.pod("again-a", "second", "run", "a: b").await?;
        let stays =
            |status: &Value| status["notice"].is_null() && status["next"]["reason"] == "PodsNotFinished";
        record(test_cluster, "again-a", "that it will not", stays).await?;
        Ok(())
    })
}
