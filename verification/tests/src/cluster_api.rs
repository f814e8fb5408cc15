//! What stands in for Cluster API: its kind `Cluster`, and the kubeconfig that it writes for one.

use std::path::Path;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use coppice_plane::ADMIN;
use serde_json::json;

use crate::TestCluster;

/// The type of the Secrets that Cluster API writes.
pub const SECRET_TYPE: &str = "cluster.x-k8s.io/secret";
/// As much of the kind as is looked at: generations count the spec alone.
const KIND: &str = "
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: clusters.cluster.x-k8s.io}
spec:
  group: cluster.x-k8s.io
  names: {kind: Cluster, plural: clusters, singular: cluster}
  scope: Namespaced
  versions:
  - name: v1beta2
    served: true
    storage: true
    subresources: {status: {}}
    schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}
";

/// Installs the kind, and waits until it is served.
pub async fn install(here: &TestCluster) -> anyhow::Result<()> {
    here.kubectl_stdin(ADMIN, &["apply", "--server-side", "-f", "-"], KIND).await?;
    let admin = here.admin().await?;
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
