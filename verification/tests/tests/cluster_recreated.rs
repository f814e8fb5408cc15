//! A namespace that something creates again each time a cluster manager has deleted it.

use anyhow::{Context as _, ensure};
use coppice_plane::ADMIN;
use coppice_tests::{TestCluster, on_shared_plane};
use serde_json::{Value, json};

use super::cli::coppice;
use super::cluster_managers::record;

type Test = anyhow::Result<()>;

const NAME: &str = "recreated-shop";

/// Creates the namespace as Flux does, once the one before is gone; its uid.
async fn created(test_cluster: &TestCluster) -> anyhow::Result<String> {
    let gone = async || test_cluster.get("namespace", "", NAME).await.ok()?.is_none().then_some(());
    test_cluster.until("the namespace is gone", gone).await?;
    let labels = json!({"kustomize.toolkit.fluxcd.io/name": "apps", "kustomize.toolkit.fluxcd.io/namespace": "flux-system"});
    let namespace =
        json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAME, "labels": labels}});
    let created = test_cluster.admin().await?.create(&namespace).await?;
    Ok(created["metadata"]["uid"].as_str().context("it has no uid")?.to_owned())
}

#[test]
fn what_flux_creates_again_after_each_deletion_is_left_alone_after_three_times() -> Test {
    // Its notice is longer than the time between two counts of what was deleted.
    const MANAGER: &str = "{apiVersion: coppice.dev/v1alpha1, kind: ClusterNamespaceManager, metadata: {name: recreated}, spec: {mode: \
                           Enforce, selector: {names: [recreated-shop]}, settle: 1s, ttl: {after: 1s}, policies: [{name: end, when: \
                           {phase: {in: [Stale]}}, then: {delete: {notice: 6s}}}]}}";
    on_shared_plane(async |test_cluster, _| {
        test_cluster.apply(MANAGER).await?;
        let mut deleted = Vec::new();
        for _ in 0..3 {
            let uid = created(test_cluster).await?;
            test_cluster.deleted(NAME, &uid).await?;
            deleted.push(uid);
        }
        let last = created(test_cluster).await?;
        let left_alone = |status: &Value| status["next"]["reason"] == "RecreatedTooOften";
        let found = record(test_cluster, NAME, "that it is left alone", left_alone).await?;
        let next = &found["status"]["next"];
        let message = next["message"].as_str().unwrap_or_default();
        let by = "namespace recreated-shop was deleted 3 times within 24 hours and is made again each time (its labels and annotations say by \
                  what: kustomize.toolkit.fluxcd.io/name=apps";
        ensure!(message.contains(&format!("{by})")) && next["due"].is_string(), "{found:#}");

        let complete = async || {
            let records = test_cluster.list("delns", "").await.ok()?;
            let gone = records
                .iter()
                .filter(|one| one["spec"]["namespace"] == NAME && one["status"]["phase"] == "Deleted");
            (gone.count() == 3).then_some(())
        };
        test_cluster.until("the records say that three are gone", complete).await?;
        let arguments = ["list", "--deleted", "-n", NAME, "-o", "wide", "--no-headers"];
        let (code, listed, error) = coppice(test_cluster, ADMIN, &arguments).await?;
        let lines: Vec<_> = listed.lines().collect();
        ensure!(code == 0 && lines.len() == 3, "{listed}{error}");
        // The newest first.
        for (line, uid) in lines.iter().zip(deleted.iter().rev()) {
            let words: Vec<_> = line.split_whitespace().collect();
            ensure!(words.starts_with(&[NAME, "Deleted"]) && words.contains(&uid.as_str()), "{line}");
        }
        // As Argo CD does.
        let tracked = r#"{"metadata":{"annotations":{"argocd.argoproj.io/tracking-id":"apps:/Namespace:/recreated-shop"}}}"#;
        test_cluster.patch("ns", "", NAME, tracked).await?;
        let both = format!("{by}, argocd.argoproj.io/tracking-id)");
        let says =
            |status: &Value| status["next"]["message"].as_str().is_some_and(|text| text.contains(&both));
        record(test_cluster, NAME, "by what it is applied, too", says).await?;
        let (code, said, error) = coppice(test_cluster, ADMIN, &["explain", NAME]).await?;
        ensure!(code == 0 && said.contains(&both), "{said}{error}");

        ensure!(!test_cluster.is_deleted(NAME, &last).await, "it is deleted a fourth time");
        let requests = test_cluster.namespace_deletes()?;
        let again = requests.iter().find(|e| e.name == NAME && e.precondition("uid") == Some(&last));
        ensure!(again.is_none(), "{again:?}");
        Ok(())
    })
}
