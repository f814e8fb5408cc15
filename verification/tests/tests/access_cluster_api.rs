//! Credentials for a cluster of Cluster API: whose Secret is used, who may ask, and what becomes of them when the `Cluster` goes.

use anyhow::{Context as _, ensure};
use coppice_plane::{ADMIN, ALICE};
use coppice_tests::cluster_api::{self, SECRET_TYPE, create_kubeconfig};
use coppice_tests::{condition, on_own_plane};
use serde_json::{Value, json};

use super::access::{AUTHOR, Clusters, access, is_settled};

type Test = anyhow::Result<()>;

/// The author may read the kubeconfig of this cluster, and no other Secret.
const READER: &str = "
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: reader, namespace: team}
rules: [{apiGroups: [''], resources: [secrets], resourceNames: [shop-kubeconfig], verbs: [get]}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: reader, namespace: team}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: reader}
subjects: [{kind: User, name: alice, apiGroup: rbac.authorization.k8s.io}]
";

fn of_cluster_api() -> Value {
    let mut access = access("ci", "ci-kubeconfig");
    access["spec"]["cluster"] = json!({"clusterAPI": {"name": "shop"}});
    access
}

#[test]
fn a_cluster_of_cluster_api_is_reached_by_its_own_secret_until_it_is_deleted() -> Test {
    on_own_plane(async {
        let clusters = Clusters::start().await?;
        let here = &clusters.here;
        cluster_api::install(here).await?;
        let cluster = json!({"apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Cluster", "spec": {"paused": true},
            "metadata": {"name": "shop", "namespace": "team", "finalizers": ["cluster.cluster.x-k8s.io"]}});
        here.admin().await?.create(&cluster).await?;
        who_may_ask(&clusters).await?;
        // Somebody has made the Secret up.
        create_kubeconfig(here, &clusters.there.plane.admin_kubeconfig(), "Opaque").await?;
        let program = clusters.next_life(&clusters.account).await?;
        let with_log = |error: anyhow::Error| error.context(program.last_lines());
        issued(&clusters).await.map_err(with_log)?;
        goes(&clusters).await.map_err(with_log)
    })
}

async fn who_may_ask(clusters: &Clusters) -> Test {
    let here = &clusters.here;
    here.kubectl_stdin(ADMIN, &["apply", "-f", "-"], AUTHOR).await?;
    let alice = here.requests(ALICE).await?;
    let denied = async || {
        let created = alice.create(&of_cluster_api()).await;
        if created.is_ok() {
            here.admin().await.ok()?.delete("clacc", "team", "ci", &json!({})).await.ok()?;
        }
        created.err().map(|error| error.to_string()).filter(|error| error.contains("to get the Secret"))
    };
    here.until("an author who may not read the kubeconfig is refused", denied).await?;
    here.kubectl_stdin(ADMIN, &["apply", "-f", "-"], READER).await?;
    let created = async || alice.create(&of_cluster_api()).await.ok().map(drop);
    here.until("an author who may read it is not", created).await
}

async fn issued(clusters: &Clusters) -> Test {
    let refused = clusters.until("ci", "Refused", |o| o["status"]["phase"] == "Refused").await?;
    let ready = condition(&refused, "Ready");
    ensure!(ready["reason"] == "KubeconfigRefused", "{ready:#}");
    ensure!(ready["message"].to_string().contains("Cluster API did not make"), "{ready:#}");
    ensure!(clusters.in_target("serviceaccount").await?.is_empty());
    clusters.here.admin().await?.delete("secret", "team", "shop-kubeconfig", &json!({})).await?;
    create_kubeconfig(&clusters.here, &clusters.there.plane.admin_kubeconfig(), SECRET_TYPE).await?;
    clusters.change("ci", &json!({"rotate": "real"})).await?;
    clusters.until("ci", "settled", |o| is_settled(o) && o["status"]["rotated"] == "real").await?;
    clusters.holder("ci-kubeconfig").await?.list("configmap", "shop").await.map(drop)
}

/// Nothing is issued for a cluster that is being deleted, or is gone; what was issued works until it is revoked.
async fn goes(clusters: &Clusters) -> Test {
    let (here, holder) = (&clusters.here, clusters.holder("ci-kubeconfig").await?);
    let admin = here.admin().await?;
    let secret = async || here.get("secret", "team", "ci-kubeconfig").await?.context("no Secret");
    let before = secret().await?;
    admin.delete("cluster", "team", "shop", &json!({})).await?;
    for says in ["is being deleted", "is gone"] {
        clusters.change("ci", &json!({"rotate": says})).await?;
        let refused = |o: &Value| o["status"]["lastError"]["message"].to_string().contains(says);
        let refused = clusters.until("ci", says, refused).await?;
        ensure!(refused["status"]["lastError"]["reason"] == "ClusterDeleted", "{refused:#}");
        ensure!(condition(&refused, "Ready")["status"] == "True", "{refused:#}");
        if says == "is being deleted" {
            admin.patch("cluster", "team", "shop", &json!({"metadata": {"finalizers": null}})).await?;
        }
    }
    ensure!(secret().await?["metadata"]["resourceVersion"] == before["metadata"]["resourceVersion"]);
    holder.list("configmap", "shop").await?;
    admin.delete("clacc", "team", "ci", &json!({})).await?;
    clusters.gone("ci").await?;
    clusters.dead(&holder).await?;
    clusters.nothing_is_left().await
}
