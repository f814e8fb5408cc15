//! Before access is uninstalled no object keeps Coppice's finalizer: credentials stay, or are revoked where that is asked for, no cluster is
//! deleted, and what stays valid is named.

use std::process::Output;

use anyhow::{Context as _, ensure};
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use coppice_plane::ADMIN;
use coppice_plane::proxy::{FaultRule, Match, Proxy, ProxyFault};
use coppice_tests::fault_injection::SHORT_LEASE;
use coppice_tests::program::Program;
use coppice_tests::test_cluster::{TIMEOUT, binary};
use coppice_tests::{cluster_api, on_own_plane};
use serde_json::{Value, json};

use super::access::{Clusters, access, is_settled};

type Test = anyhow::Result<()>;

const ACCOUNT: &str = "system:serviceaccount:coppice-access-system:coppice-access";
const CRDS: [&str; 3] =
    ["clusteraccesses.coppice.dev", "clusterproviders.coppice.dev", "managedclusters.coppice.dev"];

#[test]
fn no_finalizer_is_left_credentials_stay_unless_they_are_to_be_revoked_and_no_cluster_is_deleted() -> Test {
    on_own_plane(async {
        let clusters = Clusters::start().await?;
        cluster_api::install(&clusters.here).await?;
        let way = begin(&clusters).await?;
        let mut program = life(&clusters).await?;
        are_settled(&clusters).await.with_context(|| program.last_lines())?;
        deleted_while_away(&clusters, &way).await.with_context(|| program.last_lines())?;
        would(&clusters).await?;
        killed(&clusters, &mut program).await?;
        kept(&clusters).await?;
        let mut program = life(&clusters).await?;
        goes_on(&clusters).await.with_context(|| program.last_lines())?;
        revoked(&clusters, &mut program).await?;
        all_can_go(&clusters).await
    })
}

/// Two accesses, of which one goes through a proxy to its target, and a cluster.
async fn begin(clusters: &Clusters) -> anyhow::Result<Proxy> {
    let kubeconfig = clusters.there.plane.admin_kubeconfig();
    clusters.bootstrap(&std::fs::read_to_string(&kubeconfig)?).await?;
    let way = Proxy::start(&clusters.there.plane, None).await?;
    let through = std::fs::read_to_string(way.kubeconfig(&kubeconfig)?)?;
    let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "through", "namespace": "team"},
        "data": {"kubeconfig": BASE64_STANDARD.encode(through)}});
    let mut away = access("away", "away-kubeconfig");
    away["spec"]["cluster"] = json!({"kubeconfigSecret": {"name": "through"}});
    let cluster = json!({
        "apiVersion": "coppice.dev/v1alpha1", "kind": "ManagedCluster", "metadata": {"name": "shop", "namespace": "team"},
        "spec": {
            "provider": {"clusterAPI": {"class": "small"}}, "version": "1.33.4",
            "workers": [{"name": "a", "min": 1, "max": 1}]
        }
    });
    let admin = clusters.here.admin().await?;
    clusters.here.until("the kind is served", async || admin.list("mcl", "").await.ok()).await?;
    for object in [secret, access("kept", "kept-kubeconfig"), away, cluster] {
        admin.create(&object).await?;
    }
    Ok(way)
}

/// Starts the program as it is installed, or installed again.
async fn life(clusters: &Clusters) -> anyhow::Result<Program> {
    let more = [SHORT_LEASE.as_slice(), ["--managed-clusters", "enabled"].as_slice()].concat();
    clusters.next_life_with(&clusters.account, &more).await
}

/// What `release-all` says and how it ends.
async fn release_all(clusters: &Clusters, more: &[&str]) -> anyhow::Result<(String, Output)> {
    let mut command = tokio::process::Command::new(binary("coppice-access")?);
    command.arg("--kubeconfig").arg(&clusters.account).arg("--unencrypted-loopback").args(SHORT_LEASE);
    command.arg("release-all").args(more).kill_on_drop(true);
    let output = command.output().await.context("release-all could not be started")?;
    Ok((String::from_utf8_lossy(&output.stdout).into_owned(), output))
}

/// Those of our objects that have our finalizer.
async fn with_finalizer(clusters: &Clusters) -> anyhow::Result<Vec<String>> {
    let mut found = Vec::new();
    for kind in ["clacc", "mcl"] {
        let all = clusters.here.list(kind, "").await?;
        found.extend(
            all.iter()
                .filter(|object| has_finalizer(object))
                .map(|object| format!("{kind} {}", object["metadata"]["name"].as_str().unwrap_or_default())),
        );
    }
    found.sort();
    Ok(found)
}

fn has_finalizer(object: &Value) -> bool {
    let all = object["metadata"]["finalizers"].as_array();
    all.is_some_and(|all| all.iter().any(|finalizer| finalizer == "coppice.dev/cleanup"))
}

async fn are_settled(clusters: &Clusters) -> Test {
    for name in ["kept", "away"] {
        clusters.until(name, "settled", is_settled).await?;
    }
    let made = async || {
        let managed = clusters.here.get("mcl", "team", "shop").await.ok()??;
        managed["status"]["cluster"].is_object().then_some(())
    };
    clusters.here.until("the Cluster is made", made).await
}

async fn deleted_while_away(clusters: &Clusters, way: &Proxy) -> Test {
    way.cut();
    clusters.here.admin().await?.delete("clacc", "team", "away", &json!({})).await?;
    let tried = |o: &Value| o["status"]["phase"] == "Revoking" && o["status"]["lastError"].is_object();
    clusters.until("away", "tried to be revoked", tried).await.map(drop)
}

/// A dry run names each, and changes nothing.
async fn would(clusters: &Clusters) -> Test {
    let (text, output) = release_all(clusters, &["--dry-run"]).await?;
    ensure!(output.status.success(), "{output:?}");
    for line in [
        "would be kept: ClusterAccess team/kept: its credential (Secret kept-kubeconfig) is valid until ",
        "would be revoked, since it is being deleted: ClusterAccess team/away: ",
        "its finalizer would be taken off: ManagedCluster team/shop: the Cluster team/shop stays as it is",
        "dry run: 3 objects, and nothing was changed",
    ] {
        ensure!(text.contains(line), "{line:?} is missing:\n{text}");
    }
    ensure!(with_finalizer(clusters).await? == ["clacc away", "clacc kept", "mcl shop"]);
    Ok(())
}

/// The program that leads has ended, and what has taken its place is killed with the first finalizer under way.
async fn killed(clusters: &Clusters, program: &mut Program) -> Test {
    let proxy = Proxy::start(&clusters.here.plane, None).await?;
    let finalizers = Match::verb("patch").resource("clusteraccesses").subresource("");
    let held = proxy.add(FaultRule::new(finalizers, ProxyFault::HoldRequest));
    let log = clusters.here.plane.dir().join("log/release-all.log");
    let account = proxy.kubeconfig(&clusters.account)?;
    let mut releasing = Program::start(&binary("coppice-access")?, &account, log, |command| {
        command.arg("--unencrypted-loopback").args(SHORT_LEASE).args(["release-all", "--wait", "2s"]);
    })
    .await?;
    let one = tokio::time::timeout(TIMEOUT, held.held(1)).await;
    one.context("no finalizer is taken off").with_context(|| releasing.last_lines())?;
    ensure!(!program.ended().await?.success(), "who led has ended");
    releasing.kill().await?;
    held.discard();
    proxy.clear();
    Ok(())
}

/// Started again it takes every finalizer off; nothing is revoked that can be used, and no cluster is deleted.
async fn kept(clusters: &Clusters) -> Test {
    let here = &clusters.here;
    let object = async |name: &str| here.get("clacc", "team", name).await?.with_context(|| name.to_owned());
    let (before, away) = (object("kept").await?, object("away").await?);
    let until = before["status"]["notAfter"].as_str().context("notAfter")?;
    let uid = away["metadata"]["uid"].as_str().context("uid")?;
    let (text, output) = release_all(clusters, &["--wait", "2s"]).await?;
    ensure!(output.status.success(), "{output:?}");
    let still_valid = format!(
        "kept: ClusterAccess team/kept: its credential (Secret kept-kubeconfig) is valid until {until}; it is neither replaced nor revoked any more"
    );
    let label = format!("what has the label coppice.dev/access={uid} in the cluster");
    for line in [
        still_valid.as_str(),
        "NOT REVOKED: ClusterAccess team/away: ",
        label.as_str(),
        "cluster kept: ManagedCluster team/shop: the Cluster team/shop stays as it is, and is neither changed nor deleted any more",
        "0 revoked, 1 not revoked, 1 kept, 1 cluster kept, 0 with a finalizer",
    ] {
        ensure!(text.contains(line), "{line:?} is missing:\n{text}");
    }
    ensure!(with_finalizer(clusters).await?.is_empty());
    clusters.gone("away").await?;
    let after = object("kept").await?;
    ensure!(after["spec"] == before["spec"] && after["status"] == before["status"], "{after:#}");
    clusters.holder("kept-kubeconfig").await?.list("configmap", "shop").await?;
    let cluster = here.get("cluster", "team", "shop").await?.context("the Cluster is gone")?;
    ensure!(cluster["metadata"]["deletionTimestamp"].is_null(), "{cluster:#}");
    for (name, reason) in [("away", "RevocationSkipped"), ("kept", "Uninstalled"), ("shop", "Uninstalled")] {
        ensure!(!here.events("team", name, reason).await?.is_empty(), "{name}: no Event {reason}");
    }
    // No replica puts them on again until it is removed.
    let lease = here.get("lease", "coppice-access-system", "coppice-access").await?.unwrap_or_default();
    ensure!(lease["spec"]["leaseDurationSeconds"] == 900, "{lease:#}");
    Ok(())
}

/// Installed again the program goes on with what there is: nothing is issued for that.
async fn goes_on(clusters: &Clusters) -> Test {
    let credential =
        clusters.here.get("clacc", "team", "kept").await?.context("kept")?["status"]["credential"].clone();
    let on_again =
        async || (with_finalizer(clusters).await.ok()? == ["clacc kept", "mcl shop"]).then_some(());
    clusters.here.until("the finalizers are on again", on_again).await?;
    let kept = clusters.until("kept", "settled", is_settled).await?;
    ensure!(kept["status"]["credential"] == credential, "{kept:#}");
    Ok(())
}

/// To revoke everything takes a right that the account does not have otherwise; without it nothing is changed.
async fn revoked(clusters: &Clusters, program: &mut Program) -> Test {
    let here = &clusters.here;
    let (_, output) = release_all(clusters, &["--credentials", "revoke"]).await?;
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    ensure!(output.status.code() == Some(1), "{output:?}");
    ensure!(said.contains("needs the right to delete ClusterAccesses"), "{said}");
    ensure!(with_finalizer(clusters).await? == ["clacc kept", "mcl shop"]);
    ensure!(!program.ended().await?.success(), "who led has ended");
    let role =
        ["create", "clusterrole", "release-all", "--verb=delete", "--resource=clusteraccesses.coppice.dev"];
    here.kubectl(ADMIN, &role).await?;
    let account = "--serviceaccount=coppice-access-system:coppice-access";
    here.kubectl(
        ADMIN,
        &["create", "clusterrolebinding", "release-all", "--clusterrole=release-all", account],
    )
    .await?;
    let may = ["auth", "can-i", "delete", "clusteraccesses.coppice.dev", "-n", "team", "--as", ACCOUNT];
    here.until("the right is granted", async || here.kubectl(ADMIN, &may).await.ok().map(drop)).await?;
    let uid = here.get("clacc", "team", "kept").await?.context("kept")?["metadata"]["uid"].clone();
    let holder = clusters.holder("kept-kubeconfig").await?;
    let (text, output) = release_all(clusters, &["--credentials", "revoke", "--wait", "4m"]).await?;
    ensure!(output.status.success(), "{output:?}");
    for line in [
        "revoked: ClusterAccess team/kept\n",
        "1 revoked, 0 not revoked, 0 kept, 1 cluster kept, 0 with a finalizer",
    ] {
        ensure!(text.contains(line), "{line:?} is missing:\n{text}");
    }
    clusters.gone("kept").await?;
    clusters.dead(&holder).await?;
    ensure!(here.get("secret", "team", "kept-kubeconfig").await?.is_none());
    for kind in ["secret", "serviceaccount", "role", "rolebinding"] {
        let left = clusters.in_target(kind).await?;
        ensure!(left.iter().all(|o| o["metadata"]["labels"]["coppice.dev/access"] != uid), "{left:#?}");
    }
    ensure!(here.get("cluster", "team", "shop").await?.is_some(), "the Cluster is gone");
    Ok(())
}

/// The kinds can be deleted, with what is left of them, and the namespace.
async fn all_can_go(clusters: &Clusters) -> Test {
    let here = &clusters.here;
    ensure!(with_finalizer(clusters).await?.is_empty());
    here.kubectl(ADMIN, &[["delete", "crd", "--wait=false"].as_slice(), CRDS.as_slice()].concat()).await?;
    for name in CRDS {
        let gone = async || here.get("crd", "", name).await.ok()?.is_none().then_some(());
        here.until(&format!("{name} is gone"), gone).await?;
    }
    here.kubectl(ADMIN, &["delete", "namespace", "team", "--wait=false"]).await?;
    let gone = async || here.get("namespace", "", "team").await.ok()?.is_none().then_some(());
    here.until("the namespace is gone", gone).await
}
