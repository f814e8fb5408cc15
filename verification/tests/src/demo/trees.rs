//! A team grows a tree of namespaces inside one quota, reaches a limit, and gets quota from elsewhere in the tree,
//! though the program of trees is killed on the way; then a namespace expires, and its quota returns. The platform creates the tree; all else
//! a tenant does with the rights of an admin of its root.
#![allow(clippy::print_stdout, reason = "this is what the demo is for")]

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Instant;

use anyhow::{Context as _, anyhow, bail, ensure};
use coppice_api::condition::{self, READY};
use coppice_api::names::{ANNOTATION_LEDGER, LABEL_TREE, TREE_QUOTA_NAME};
use coppice_api::{NamespaceTree, QuotaTransfer, Subnamespace, TransferPhase};
use coppice_plane::OUTCOME_LABEL;
use futures::TryStreamExt as _;
use k8s_openapi::api::core::v1::{Namespace, Pod, ResourceQuota};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use kube::api::{ListParams, PostParams, WatchEvent, WatchParams};
use kube::{Api, Client, ResourceExt as _};
use serde_json::json;

use super::cluster::{Cluster, TENANT};
use super::screen::Screen;
use super::table::Table;
use super::{TIMEOUT, coppice, pause};
use crate::Operator;
use crate::memory::client;

/// The root of the tree.
const ROOT: &str = "shop";
/// What the tree has.
const PODS: i64 = 12;
const TREE: &str = "{apiVersion: v1, kind: Namespace, metadata: {name: shop}}\n---\n{apiVersion: coppice.dev/v1alpha1, kind: \
                    NamespaceTree, metadata: {name: shop}, spec: {root: shop, quota: {hard: {pods: '12'}}}}";
/// Gives a tenant the root, and so all that is below it.
const TEAM: &str = "{apiVersion: rbac.authorization.k8s.io/v1, kind: RoleBinding, metadata: {name: team, namespace: shop}, roleRef: {apiGroup: \
                    rbac.authorization.k8s.io, kind: ClusterRole, name: admin}, subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, \
                    name: TENANT}]}";
/// Those below the root, with their quotas.
const NAMESPACES: [(&str, &str); 3] =
    [("shop/shop-web", "pods=4"), ("shop/shop-api", "pods=6"), ("shop-web/shop-web-test", "pods=1")];
const LEAF: &str = "shop-web-test";
/// What gives quota away.
const SOURCE: &str = "shop-api";
/// Deletes the lowest namespace a moment after this is applied.
const EXPIRES: &str = "{apiVersion: coppice.dev/v1alpha1, kind: NamespaceManager, metadata: {name: test, namespace: shop-web-test}, \
                       spec: {policies: [{name: its time is over, when: {ttl: {after: 5s}}, then: {delete: {}}}]}}";
const TRANSFER: &[&str] = &[
    "transfer",
    SOURCE,
    "--to",
    "shop-web",
    "--amount",
    "pods=2",
    "--reason",
    "load test",
    "--name",
    "more",
];

/// Whether every outcome was seen.
pub(super) async fn run(cluster: &Cluster, screen: &Screen) -> anyhow::Result<bool> {
    println!("\nTrees: a team grows a tree of namespaces inside one quota, {PODS} pods.\n");
    cluster.install_trees().await?;
    let trees = cluster.trees().await?;
    cluster.apply(TREE).await?;
    cluster.apply(&TEAM.replace("TENANT", TENANT)).await?;
    let kubeconfig = cluster.tenant_kubeconfig()?;
    let (platform, tenant) = (cluster.client().await?, client(&kubeconfig).await?);
    let (table, screen) = (Table::new(screen, ROOT), screen.clone());
    let mut demonstration = Demonstration { cluster, platform, tenant, kubeconfig, screen, table, trees };
    match demonstration.show().await {
        Ok(()) => Ok(true),
        Err(missed) => {
            demonstration
                .screen
                .say(&format!("\nNOT SEEN  {missed:#}\n{}", demonstration.trees.last_lines()));
            Ok(false)
        }
    }
}

struct Demonstration<'a> {
    cluster: &'a Cluster,
    /// Sees everything,
    platform: Client,
    /// and does what a tenant does.
    tenant: Client,
    /// The tenant's.
    kubeconfig: PathBuf,
    screen: Screen,
    table: Table,
    trees: Operator,
}

impl Demonstration<'_> {
    async fn show(&mut self) -> anyhow::Result<()> {
        self.grows().await?;
        self.reaches_its_limit().await?;
        self.gets_more().await?;
        self.expires().await
    }

    async fn coppice(&self, args: &[&str]) -> anyhow::Result<()> {
        coppice(&self.kubeconfig, args, &self.screen).await
    }

    async fn grows(&mut self) -> anyhow::Result<()> {
        self.until("the tree is set up", async |demonstration| {
            let tree = Api::<NamespaceTree>::all(demonstration.platform.clone()).get(ROOT).await?;
            let status = tree.status.unwrap_or_default();
            let ready = condition::find(&status.conditions, READY);
            Ok(ready.is_some_and(|ready| ready.status == "True").then_some(()))
        })
        .await?;
        for (target, quota) in NAMESPACES {
            self.is_tenants(target.split_once('/').map_or(ROOT, |(parent, _)| parent)).await?;
            self.coppice(&["create", target, "--quota", quota, "--wait"]).await?;
        }
        self.own(&[(ROOT, 2), ("shop-web", 3), ("shop-api", 6), (LEAF, 1)]).await?;
        self.table.row(
            ROOT,
            "as expected",
            "three namespaces below it have what they asked for; 2 of its pods are left",
        );
        Ok(())
    }

    /// Waits until the tenant has rights in a namespace: a RoleBinding of the root is copied into each below it.
    async fn is_tenants(&mut self, namespace: &str) -> anyhow::Result<()> {
        self.until(&format!("the tenant has rights in {namespace}"), async |demonstration| {
            let below = Api::<Subnamespace>::namespaced(demonstration.tenant.clone(), namespace);
            match below.list(&ListParams::default()).await {
                Ok(_) => Ok(Some(())),
                Err(kube::Error::Api(status)) if status.code == 403 => Ok(None),
                Err(error) => Err(error.into()),
            }
        })
        .await
    }

    async fn reaches_its_limit(&mut self) -> anyhow::Result<()> {
        for number in 1..=3 {
            self.starts(number).await?;
        }
        match self.pod(4).await {
            Ok(()) => bail!("shop-web: a fourth pod is refused"),
            Err(error) if error.to_string().contains("exceeded quota") => {}
            Err(error) => return Err(error.into()),
        }
        self.table.row(
            "shop-web",
            "as expected",
            "the API server refuses a fourth pod: it has 3, and gave 1",
        );
        self.coppice(&["quota", "shop-web"]).await
    }

    /// Quota moves from another branch, though the program is killed as soon as a ledger says that it is on its way.
    async fn gets_more(&mut self) -> anyhow::Result<()> {
        let leaves = leaves(self.platform.clone(), SOURCE).await?;
        let Self { kubeconfig, screen, trees, .. } = self;
        let killed = async {
            leaves.await?;
            trees.kill().await
        };
        tokio::try_join!(coppice(kubeconfig, TRANSFER, screen), killed)?;
        let phase = self.transfer().await?;
        ensure!(
            phase == Some(TransferPhase::Moving),
            "the transfer is to be under way when coppice-trees is killed; it is {}",
            phase.map_or("not looked at", TransferPhase::as_str)
        );
        self.table.row("-", "killed", "coppice-trees, when the transfer is Moving");
        let own = self.sum_of_own().await?;
        ensure!(own <= PODS, "the namespaces may have {PODS} pods together; they may have {own}");
        let holds = format!(
            "without it the API server goes on to limit the namespaces: to {own} pods of {PODS} together"
        );
        self.table.row("-", "as expected", &holds);
        self.trees = self.cluster.trees().await?;
        self.table.row("-", "started", "coppice-trees again: it goes on where the other one was");
        self.until("the transfer is completed", async |demonstration| {
            Ok(demonstration.transfer().await?.filter(|phase| *phase == TransferPhase::Completed))
        })
        .await?;
        self.own(&[(ROOT, 2), ("shop-web", 5), ("shop-api", 4), (LEAF, 1)]).await?;
        self.table.row("shop-web", "as expected", "it has 2 pods more, which shop-api gave");
        self.starts(4).await?;
        self.table.row("shop-web", "as expected", "its fourth pod starts");
        Ok(())
    }

    async fn expires(&mut self) -> anyhow::Result<()> {
        self.is_tenants(LEAF).await?;
        self.cluster.apply_as_tenant(EXPIRES).await?;
        self.until("shop-web-test goes, with its Subnamespace", async |demonstration| {
            let namespace = Api::<Namespace>::all(demonstration.platform.clone()).get_opt(LEAF).await?;
            let object = Api::<Subnamespace>::namespaced(demonstration.platform.clone(), "shop-web")
                .get_opt(LEAF)
                .await?;
            Ok((namespace.is_none() && object.is_none()).then_some(()))
        })
        .await?;
        self.own(&[(ROOT, 2), ("shop-web", 6), ("shop-api", 4)]).await?;
        self.table.row("shop-web", "as expected", "the pod that shop-web-test had is back");
        self.coppice(&["tree", ROOT]).await
    }

    /// Looks at everything, and prints what is new, until something is there.
    async fn until<T>(
        &mut self,
        what: &str,
        found: impl AsyncFn(&Self) -> anyhow::Result<Option<T>>,
    ) -> anyhow::Result<T> {
        let deadline = Instant::now() + TIMEOUT;
        while Instant::now() < deadline {
            let found = found(self).await?;
            self.table.update(&self.platform).await?;
            if let Some(found) = found {
                return Ok(found);
            }
            pause().await;
        }
        bail!("{what}")
    }

    async fn transfer(&self) -> anyhow::Result<Option<TransferPhase>> {
        let transfer = Api::<QuotaTransfer>::namespaced(self.platform.clone(), SOURCE).get("more").await?;
        Ok(transfer.status.and_then(|status| status.phase))
    }

    /// Waits until the API server limits these namespaces to so many pods.
    async fn own(&mut self, expected: &[(&str, i64)]) -> anyhow::Result<()> {
        for (namespace, pods) in expected {
            let is = format!("{namespace} is limited to {pods} pods");
            self.until(&is, async |demonstration| {
                let quotas = Api::<ResourceQuota>::namespaced(demonstration.platform.clone(), namespace);
                let quota = quotas.get_opt(TREE_QUOTA_NAME).await?.with_context(|| is.clone())?;
                Ok((limit(&quota) == *pods).then_some(()))
            })
            .await?;
        }
        Ok(())
    }

    /// How many pods the namespaces of the tree may have together.
    async fn sum_of_own(&self) -> anyhow::Result<i64> {
        let quotas = Api::<ResourceQuota>::all(self.platform.clone());
        let quotas = quotas.list(&ListParams::default().labels(LABEL_TREE)).await?;
        Ok(quotas.iter().map(limit).sum())
    }

    /// Creates a pod, as soon as its namespace has its service account.
    async fn starts(&mut self, number: u32) -> anyhow::Result<()> {
        self.until(&format!("shop-web: pod {number} starts"), async |demonstration| {
            match demonstration.pod(number).await {
                Ok(()) => Ok(Some(())),
                // The quota may be a moment old, and the service account not there yet.
                Err(kube::Error::Api(status)) if status.code == 403 => Ok(None),
                Err(error) => Err(error.into()),
            }
        })
        .await
    }

    async fn pod(&self, number: u32) -> Result<(), kube::Error> {
        let pod = json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": format!("web-{number}"), "labels": {OUTCOME_LABEL: "run"}},
            "spec": {"containers": [{"name": "main", "image": "example.com/none"}]}
        });
        let pod = serde_json::from_value(pod).map_err(kube::Error::SerdeError)?;
        let pods = Api::<Pod>::namespaced(self.tenant.clone(), "shop-web");
        pods.create(&PostParams::default(), &pod).await.map(drop)
    }
}

/// From now on, waits until the ledger of a namespace says that quota is on its way from there.
async fn leaves(
    client: Client,
    namespace: &str,
) -> anyhow::Result<impl Future<Output = anyhow::Result<()>> + use<>> {
    let quotas = Api::<ResourceQuota>::namespaced(client, namespace);
    let now = quotas.list(&ListParams::default()).await?.metadata.resource_version.unwrap_or_default();
    let events = quotas.watch(&WatchParams::default(), &now).await?;
    let begun = async move {
        let mut events = std::pin::pin!(events);
        while let Some(event) = events.try_next().await? {
            if let WatchEvent::Added(quota) | WatchEvent::Modified(quota) = event
                && quota
                    .annotations()
                    .get(ANNOTATION_LEDGER)
                    .is_some_and(|ledger| ledger.contains("\"held\""))
            {
                return Ok(());
            }
        }
        Err(anyhow!("the watch has ended, and no ledger said that quota is on its way"))
    };
    Ok(async move {
        tokio::time::timeout(TIMEOUT, begun).await.context("no ledger said that quota is on its way")?
    })
}

/// To how many pods a quota limits its namespace: to the larger of what is written and what is in force.
fn limit(quota: &ResourceQuota) -> i64 {
    let of = |hard: Option<&BTreeMap<String, Quantity>>| hard?.get("pods")?.0.parse().ok();
    let written = of(quota.spec.as_ref().and_then(|spec| spec.hard.as_ref()));
    let in_force = of(quota.status.as_ref().and_then(|status| status.hard.as_ref()));
    written.max(in_force).unwrap_or(0)
}
