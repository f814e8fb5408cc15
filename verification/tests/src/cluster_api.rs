//! What stands in for Cluster API: its own kind `Cluster` without its controllers, and the kubeconfig that it writes for one.

use std::path::Path;

use anyhow::Context as _;
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use serde_json::{Value, json};

use crate::TestCluster;

/// The type of the Secrets that Cluster API writes.
pub const SECRET_TYPE: &str = "cluster.x-k8s.io/secret";
/// The one of its kinds that is written and read: no API server looks at what a topology names.
const KIND: &str = "clusters.cluster.x-k8s.io";

/// Installs the kind, and waits until it is served.
pub async fn install(here: &TestCluster) -> anyhow::Result<()> {
    let file = tokio::task::spawn_blocking(coppice_plane::cluster_api).await??;
    let all: Value = serde_json::from_str(&std::fs::read_to_string(file)?)?;
    let found =
        all["items"].as_array().and_then(|all| all.iter().find(|one| one["metadata"]["name"] == KIND));
    let admin = here.admin().await?;
    admin.create(found.context(KIND)?).await?;
    here.until("the kind Cluster is served", async || admin.list("cluster", "").await.ok().map(drop)).await
}

/// Creates the Secret with the kubeconfig of the `Cluster` `shop` in the namespace `team`. Cluster API makes it of [`SECRET_TYPE`].
pub async fn create_kubeconfig(here: &TestCluster, kubeconfig: &Path, type_: &str) -> anyhow::Result<()> {
    let kubeconfig = std::fs::read_to_string(kubeconfig)?;
    let labels = json!({"cluster.x-k8s.io/cluster-name": "shop"});
    let secret = json!({"apiVersion": "v1", "kind": "Secret", "type": type_,
        "metadata": {"name": "shop-kubeconfig", "namespace": "team", "labels": labels},
        "data": {"value": BASE64_STANDARD.encode(kubeconfig)}});
    here.admin().await?.create(&secret).await.map(drop)
}
