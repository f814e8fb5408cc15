//! A namespace of a tree is deleted that others are below, on a real API server, with a program that is killed.

use anyhow::{Context as _, ensure};
use coppice_plane::{ADMIN, ALICE, BOB};
use coppice_tests::{condition, on_own_plane};
use serde_json::{Value, json};

use crate::trees::{Setup, killed, subnamespace};
use crate::trees_access::bind;

type Test = anyhow::Result<()>;

/// Deletes a namespace by its name, as an administrator of trees may.
async fn delete_namespace(cluster: &Setup, name: &str) -> Test {
    cluster.test_cluster.kubectl(ADMIN, &["delete", "namespace", name, "--wait=false"]).await.map(drop)
}

async fn grow(cluster: &Setup) -> Test {
    cluster.tree("shop", &json!({"pods": "10"})).await?;
    bind(&cluster.test_cluster, "shop", ALICE, "admin").await?;
    for (parent, name, pods) in [
        ("shop", "shop-web", "7"),
        ("shop-web", "shop-web-a", "4"),
        ("shop-web-a", "shop-web-a-b", "1"),
        ("shop-web", "shop-web-c", "1"),
    ] {
        cluster.request(ADMIN, parent, name, &json!({"pods": pods})).await?;
        cluster.ready(parent, name).await?;
    }
    // Who has rights in the namespace that will be deleted has them below it.
    bind(&cluster.test_cluster, "shop-web", BOB, "view").await?;
    for name in ["shop-web-a", "shop-web-a-b"] {
        let copied = async || cluster.test_cluster.get("rolebinding", name, "bob-view").await.ok()?.map(drop);
        cluster.test_cluster.until(&format!("{name} has the copy"), copied).await?;
    }
    Ok(())
}

#[test]
fn killed_at_every_write_a_namespace_moves_up_when_the_one_above_it_is_deleted() -> Test {
    on_own_plane(async {
        let cluster = Setup::start().await?;
        let mut program = cluster.program().await?;
        grow(&cluster).await.with_context(|| program.last_lines())?;
        program.kill().await?;
        delete_namespace(&cluster, "shop-web").await?;
        let there = async |parent: &str, name: &str, pods: &str| {
            let object = cluster.test_cluster.get("sns", parent, name).await.ok()??;
            let status = &object["status"];
            let has = status["allotment"]["hard"] == json!({"pods": pods}) && status["phase"] == "Ready";
            has.then_some(())
        };
        killed(&cluster, async || {
            there("shop", "shop-web-a", "4").await?;
            there("shop", "shop-web-c", "1").await?;
            there("shop-web-a", "shop-web-a-b", "1").await?;
            let web = cluster.test_cluster.get("namespace", "", "shop-web").await.ok()?;
            let object = cluster.test_cluster.get("sns", "shop", "shop-web").await.ok()?;
            (web.is_none() && object.is_none()).then_some(())
        })
        .await?;
        let mut program = cluster.program().await?;
        let scenario = async {
            moved(&cluster).await?;
            others_write_no_annotation(&cluster).await?;
            waits(&cluster).await
        };
        scenario.await.with_context(|| program.last_lines())?;
        program.kill().await?;
        cluster.quotas.never_beyond("10")
    })
}

/// With all that it had and all below it; the rest is the root's.
async fn moved(cluster: &Setup) -> Test {
    for (namespace, pods) in [("shop", "5"), ("shop-web-a", "3"), ("shop-web-a-b", "1"), ("shop-web-c", "1")]
    {
        let limits = cluster.limits(namespace).await?;
        ensure!(limits == json!({"pods": pods}), "{namespace}: {limits}");
    }
    for (name, path) in [("shop-web-a", "shop/shop-web-a"), ("shop-web-a-b", "shop/shop-web-a/shop-web-a-b")]
    {
        let says = |namespace: &Value| {
            let metadata = &namespace["metadata"];
            metadata["annotations"]["coppice.dev/path"] == path
                && metadata["labels"]["shop-web.tree.coppice.dev/depth"].is_null()
        };
        cluster.until(("namespace", "", name), "says where it is", says).await?;
        // Rights of what it was below are gone, those of what it is below stay.
        let of_old = async || {
            cluster.test_cluster.get("rolebinding", name, "bob-view").await.ok()?.is_none().then_some(())
        };
        cluster.test_cluster.until(&format!("{name} has no rights of shop-web"), of_old).await?;
        let of_root =
            async || cluster.test_cluster.get("rolebinding", name, "alice-admin").await.ok()?.map(drop);
        cluster.test_cluster.until(&format!("{name} has the rights of shop"), of_root).await?;
    }
    let quota = cluster.test_cluster.get("quota", "shop", "coppice").await?.context("shop")?;
    let ledger = quota["metadata"]["annotations"]["coppice.dev/ledger"].as_str().unwrap_or_default();
    ensure!(!ledger.contains("changes") && !ledger.contains("arriving"), "nothing is under way: {ledger}");
    // It is one as any other: it grows, and its users delete it.
    cluster.change("shop", "shop-web-c", &json!({"pods": "2"})).await?;
    let has = |object: &Value| object["status"]["allotment"]["hard"] == json!({"pods": "2"});
    cluster.until(("sns", "shop", "shop-web-c"), "has 2 pods", has).await?;
    cluster.delete(ALICE, "shop", "shop-web-c").await?;
    cluster.gone("shop", "shop-web-c").await
}

async fn others_write_no_annotation(cluster: &Setup) -> Test {
    let mut forged = subnamespace("shop", "shop-x", &json!({"pods": "1"}));
    forged["metadata"]["annotations"] = json!({"coppice.dev/moved-from": "u"});
    let alice = cluster.test_cluster.requests(ALICE).await?;
    let error = alice.create(&forged).await.err().context("it is refused")?;
    ensure!(format!("{error:#}").contains("Coppice alone writes it"), "{error:#}");
    let patch = json!({"metadata": {"annotations": {"coppice.dev/moved-from": null}}});
    let error = alice.patch("sns", "shop", "shop-web-a", &patch).await.err().context("it is refused")?;
    ensure!(format!("{error:#}").contains("Coppice alone writes it"), "{error:#}");
    Ok(())
}

/// Where the name is taken nothing is moved and nothing is deleted, until that is gone.
async fn waits(cluster: &Setup) -> Test {
    let taken = subnamespace("shop", "shop-web-a-b", &json!({"pods": "1"}));
    cluster.test_cluster.admin().await?.create(&taken).await?;
    cluster.refused("shop", "shop-web-a-b").await?;
    delete_namespace(cluster, "shop-web-a").await?;
    let waits = |object: &Value| {
        let ready = condition(object, "Ready");
        let message = ready["message"].as_str().unwrap_or_default();
        ready["reason"] == "MovedToAncestor" && message.contains("kubectl delete sns shop-web-a-b -n shop")
    };
    cluster.until(("sns", "shop-web-a", "shop-web-a-b"), "waits", waits).await?;
    let below = cluster.test_cluster.get("namespace", "", "shop-web-a-b").await?.context("it stays")?;
    ensure!(below["metadata"]["deletionTimestamp"].is_null(), "{below:#}");
    cluster.delete(ADMIN, "shop", "shop-web-a-b").await?;
    cluster.gone("shop", "shop-web-a").await?;
    cluster.ready("shop", "shop-web-a-b").await?;
    ensure!(cluster.limits("shop-web-a-b").await? == json!({"pods": "1"}));
    ensure!(cluster.limits("shop").await? == json!({"pods": "9"}));
    // Here nobody has killed the program before it was written.
    let moved = async || {
        let events = cluster.test_cluster.events("shop", "shop-web-a-b", "MovedToAncestor").await.ok()?;
        events.iter().any(|event| event.contains("namespace shop-web-a-b is below shop now")).then_some(())
    };
    cluster.test_cluster.until("an Event says where it is now", moved).await?;
    Ok(())
}
