//! Cluster managers that scale workloads down before they delete, on a real API server.

use anyhow::{Context as _, ensure};
use coppice_plane::{ADMIN, OUTCOME_LABEL};
use coppice_tests::on_shared_plane;
use serde_json::{Value, json};

use super::cli::coppice;
use super::cluster_health::deployment;
use super::cluster_managers::record;
use super::lifecycle::effective_delete;

type Test = anyhow::Result<()>;

#[test]
fn what_is_scaled_down_for_failing_is_well_again_and_is_not_deleted() -> Test {
    // It would be `Failed` ten seconds after it is scaled down, and announced at once.
    const MANAGER: &str = "{apiVersion: coppice.dev/v1alpha1, kind: ClusterNamespaceManager, metadata: {name: sleeps}, spec: {mode: \
                           Enforce, selector: {names: [sleeps]}, settle: 1s, health: {settlingPeriod: 2s, gracePeriod: 10s, \
                           recoveryPeriod: 12s}, policies: [{name: sleep, when: {phase: {in: [Failing]}}, then: {scaleDown: {}}}, {name: \
                           end, when: {phase: {in: [Failed]}}, then: {delete: {notice: 1s}}}]}}";
    on_shared_plane(async |test_cluster, _| {
        let uid = test_cluster.namespace("sleeps").await?;
        test_cluster.apply(&deployment("sleeps", &format!("{OUTCOME_LABEL}: crashloop"), "")).await?;
        test_cluster.apply(MANAGER).await?;
        let scaled_down = |status: &Value| status["scaledDown"][0]["replicas"] == 2;
        let slept = record(test_cluster, "sleeps", "what is scaled down", scaled_down).await?;
        ensure!(slept["status"]["scaledDown"][0]["name"] == "web", "{slept:#}");
        // It recovers for longer than it takes to be `Failed`, and to be deleted then.
        let well = |status: &Value| status["phase"] == "Ok" && status["health"]["state"] == "Ok";
        let well = record(test_cluster, "sleeps", "that it is well again", well).await?;
        let status = &well["status"];
        let last = &status["lastFiring"];
        ensure!(status["failing"].is_null() && status["notice"].is_null() && scaled_down(status), "{well:#}");
        ensure!(status["firings"] == 1 && last["policy"] == "sleep", "{well:#}");
        ensure!(last["result"] == "ScaledDown", "{well:#}");
        let past = status["pastPhases"].as_array().into_iter().flatten().map(|past| &past["phase"]);
        ensure!(
            past.clone().any(|phase| phase == "Failing") && !past.clone().any(|phase| phase == "Failed"),
            "{well:#}"
        );
        ensure!(!test_cluster.is_deleted("sleeps", &uid).await, "it is deleted");
        ensure!(!test_cluster.namespace_deletes()?.iter().any(|e| e.name == "sleeps"), "it is deleted");
        let (code, said, error) = coppice(test_cluster, ADMIN, &["wake", "sleeps"]).await?;
        ensure!(code == 0 && said.contains("Deployment/web: 2 replicas again"), "{said}{error}");
        Ok(())
    })
}

#[test]
fn of_two_ttls_the_first_scales_down_and_the_second_deletes() -> Test {
    const MANAGER: &str = "{apiVersion: coppice.dev/v1alpha1, kind: ClusterNamespaceManager, metadata: {name: twice}, spec: {mode: \
                           Enforce, selector: {names: [twice]}, settle: 1s, policies: [{name: sleep, when: {ttl: {after: 1s}}, then: \
                           {scaleDown: {}}}, {name: end, when: {ttl: {after: 15s}}, then: {delete: {notice: 5s}}}]}}";
    on_shared_plane(async |test_cluster, _| {
        let uid = test_cluster.namespace("twice").await?;
        let created = test_cluster.get("namespace", "", "twice").await?.context("it is gone")?;
        test_cluster.apply(&deployment("twice", "tier: web", "")).await?;
        test_cluster.apply(MANAGER).await?;
        let slept = |status: &Value| status["fired"][0]["policy"] == "sleep";
        let slept = record(test_cluster, "twice", "that it is scaled down", slept).await?;
        let status = &slept["status"];
        ensure!(status["scaledDown"][0]["replicas"] == 2 && status["next"]["policy"] == "end", "{slept:#}");
        let web = test_cluster.get("deployment", "twice", "web").await?.context("there is no deployment")?;
        ensure!(web["spec"]["replicas"] == 0, "{web:#}");
        test_cluster.deleted("twice", &uid).await?;
        let delete = effective_delete(test_cluster, "twice").await?;
        let created: jiff::Timestamp =
            created["metadata"]["creationTimestamp"].as_str().unwrap_or_default().parse()?;
        let age = delete.received.duration_since(created).as_secs();
        ensure!(age >= 16, "deleted when it was {age} s old");
        let records = test_cluster.list("delns", "").await?;
        let remains =
            records.iter().find(|one| one["spec"]["uid"] == *uid).context("nothing remains of it")?;
        let said = ["policy", "reason"].map(|field| &remains["spec"][field]);
        ensure!(said == [&json!("end"), &json!("TtlElapsed")], "{remains:#}");
        Ok(())
    })
}
