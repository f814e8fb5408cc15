//! The program is killed at each write by which a Shoot is made, changed and deleted: once before that is done, and once before its answer.

use anyhow::{Context as _, ensure};
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use coppice_plane::Garden;
use coppice_plane::proxy::{FaultRule, Match, Proxy, ProxyFault};
use coppice_tests::shoot::PROJECT_NAMESPACE;
use coppice_tests::{TestCluster, condition, on_own_plane};
use serde_json::{Value, json};

use super::access::writes;
use super::managed_shoot::{Plane, managed_cluster, operation, pool};

type Test = anyhow::Result<()>;

#[test]
fn killed_at_every_write_there_is_one_shoot_and_none_at_the_end() -> Test {
    on_own_plane(async {
        let here = TestCluster::start_with_access(None).await?;
        let _garden = Garden::start(&here.plane).await?;
        let plane = Plane::start(here).await?;
        let proxy = Proxy::start(&plane.here.plane, None).await?;
        // The garden is reached by it, too.
        let maker = std::fs::read_to_string(proxy.kubeconfig(&plane.maker)?)?;
        let secret = json!({"data": {"kubeconfig": BASE64_STANDARD.encode(maker)}});
        let admin = plane.here.admin().await?;
        admin.patch("secret", "coppice-access-system", "garden", &secret).await?;
        admin.create(&managed_cluster("1.33.4")).await?;
        let made = made(&plane, &proxy).await?;
        changed(&plane, &proxy, &made).await?;
        deleted(&plane, &proxy).await
    })
}

/// The Shoot, of which status has the uid.
async fn made(plane: &Plane, proxy: &Proxy) -> anyhow::Result<Value> {
    let known = async || mcl(plane).await.filter(|mcl| mcl["status"]["cluster"]["uid"].is_string()).map(drop);
    // The finalizer, the addresses, the intent, the ConfigMap beside the Shoot, the Shoot, and that it is made.
    let kills = killed(plane, proxy, "the Shoot is made, and known", known).await?;
    ensure!(kills >= 10, "killed {kills} times");
    let shoot = the_shoot(plane).await?;
    is_ready(plane, proxy, "Create", &shoot).await?;
    ensure!(plane.written()? == ["create"], "{:?}", plane.written()?);
    Ok(shoot)
}

async fn changed(plane: &Plane, proxy: &Proxy, made: &Value) -> Test {
    plane.change(&json!({"version": "1.34.0", "workers": [pool("a", 3), pool("b", 2)]})).await?;
    let written = async || {
        let shoot = plane.here.get("shoot", PROJECT_NAMESPACE, "shop").await.ok()??;
        (shoot["spec"]["kubernetes"]["version"] == "1.34.0").then_some(())
    };
    // The intent, and the change.
    let kills = killed(plane, proxy, "the Shoot is changed", written).await?;
    ensure!(kills >= 3, "killed {kills} times");
    let shoot = the_shoot(plane).await?;
    ensure!(shoot["metadata"]["uid"] == made["metadata"]["uid"], "{shoot:#}");
    ensure!(shoot["spec"]["provider"]["workers"][1]["name"] == "b", "{shoot:#}");
    is_ready(plane, proxy, "Reconcile", &shoot).await?;
    ensure!(plane.written()? == ["create", "patch"], "{:?}", plane.written()?);
    Ok(())
}

/// Gardener says that it has done what was asked for. No intent is left then: status says so of this spec, and of this Shoot.
async fn is_ready(plane: &Plane, proxy: &Proxy, type_: &str, shoot: &Value) -> Test {
    let generation = shoot["metadata"]["generation"].as_i64().context("no generation")?;
    plane.says(&operation(type_, "Succeeded", generation)).await?;
    let ready = async || {
        let is_ready = |mcl: &Value| {
            mcl["status"]["state"] == "Ready"
                && mcl["status"]["observedGeneration"] == mcl["metadata"]["generation"]
        };
        mcl(plane).await.filter(is_ready).map(drop)
    };
    killed(plane, proxy, "it is ready", ready).await?;
    let mcl = mcl(plane).await.context("no ManagedCluster")?;
    ensure!(mcl["status"]["cluster"]["uid"] == shoot["metadata"]["uid"], "{mcl:#}");
    ensure!(mcl["status"]["lastError"].is_null() && mcl["status"]["waitingSince"].is_null(), "{mcl:#}");
    for (type_, status) in [("Ready", "True"), ("Reconciling", "False"), ("Stalled", "False")] {
        ensure!(condition(&mcl, type_)["status"] == status, "{type_}: {mcl:#}");
    }
    Ok(())
}

/// Nothing is left, and each of the three steps was done once.
async fn deleted(plane: &Plane, proxy: &Proxy) -> Test {
    let here = &plane.here;
    here.admin().await?.delete("mcl", "team", "shop", &json!({})).await?;
    let gone = async || here.get("mcl", "team", "shop").await.ok()?.is_none().then_some(());
    // That it is deleted, the confirmation, the deletion, that of the ConfigMap, and the finalizer.
    let kills = killed(plane, proxy, "the ManagedCluster is gone", gone).await?;
    ensure!(kills >= 8, "killed {kills} times");
    let shoots = here.list("shoot", PROJECT_NAMESPACE).await?;
    ensure!(shoots.is_empty(), "{shoots:#?}");
    let beside = here.get("configmap", PROJECT_NAMESPACE, "structured-auth-config-shop").await?;
    ensure!(beside.is_none(), "{beside:#?}");
    ensure!(plane.written()? == ["create", "patch", "patch", "delete"], "{:?}", plane.written()?);
    Ok(())
}

async fn mcl(plane: &Plane) -> Option<Value> {
    plane.here.get("mcl", "team", "shop").await.ok()?
}

/// The one Shoot that there is.
async fn the_shoot(plane: &Plane) -> anyhow::Result<Value> {
    let mut shoots = plane.here.list("shoot", PROJECT_NAMESPACE).await?;
    ensure!(shoots.len() == 1, "{shoots:#?}");
    shoots.pop().context("no Shoot")
}

/// Of the ManagedCluster, its Shoot, and what is beside that.
fn of_clusters() -> Match {
    writes().when(|entry| ["managedclusters", "shoots", "configmaps"].contains(&entry.resource.as_str()))
}

/// Kills the program at the first write of each life, until something is so; how often. Of two lives the first one does not do that write, and
/// the second one does, and does not learn of it.
async fn killed(
    plane: &Plane,
    proxy: &Proxy,
    what: &str,
    done: impl AsyncFn() -> Option<()>,
) -> anyhow::Result<usize> {
    let account = proxy.kubeconfig(&plane.account)?;
    for life in 0..40 {
        let fault = if life % 2 == 0 { ProxyFault::HoldRequest } else { ProxyFault::HoldResponse };
        let held = proxy.add(FaultRule::new(of_clusters(), fault));
        let mut program = plane.program_by(&account, &["--unencrypted-loopback"]).await?;
        let ended = tokio::select! {
            () = held.held(1) => Ok(false),
            done = plane.here.until(what, &done) => done.map(|()| true),
        };
        program.kill().await?;
        held.discard();
        proxy.clear();
        if ended.with_context(|| format!("life {life}: {}", program.last_lines()))? {
            return Ok(life);
        }
    }
    anyhow::bail!("40 lives were not enough")
}
