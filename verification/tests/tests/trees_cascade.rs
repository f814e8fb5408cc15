//! A namespace of a tree is deleted with all below it, on a real API server, with a program that is killed.

use anyhow::{Context as _, ensure};
use coppice_plane::{ADMIN, ALICE};
use coppice_tests::{condition, on_own_plane};
use serde_json::{Value, json};

use crate::cli::coppice;
use crate::trees::{Setup, killed};
use crate::trees_access::bind;

type Test = anyhow::Result<()>;

const WEB: (&str, &str) = ("shop", "shop-web");
/// As they go.
const GOING: [&str; 3] = ["shop-web-a-b", "shop-web-a", "shop-web"];

#[test]
fn killed_at_every_write_a_namespace_goes_after_all_below_it_and_only_with_consent() -> Test {
    on_own_plane(async {
        let cluster = Setup::start().await?;
        let mut program = cluster.program().await?;
        let scenario = async {
            grow(&cluster).await?;
            goes(&cluster).await?;
            stays(&cluster).await?;
            waits(&cluster).await
        };
        scenario.await.with_context(|| program.last_lines())?;
        program.kill().await?;
        let cascade = ["tree", "delete", "shop/shop-web", "--cascade"];
        let (code, out, err) = coppice(&cluster.test_cluster, ALICE, &cascade).await?;
        ensure!(code == 0, "{code}: {out}{err}");
        let gone = async || {
            let web = cluster.test_cluster.get("sns", "shop", "shop-web").await.ok()?;
            web.is_none().then_some(())
        };
        killed(&cluster, gone).await?;
        gone_in_order(&cluster).await
    })
}

async fn grow(cluster: &Setup) -> Test {
    cluster.tree("shop", &json!({"pods": "10"})).await?;
    bind(&cluster.test_cluster, "shop", ALICE, "admin").await?;
    for (parent, name, pods) in [
        ("shop", "shop-web", "6"),
        ("shop", "shop-api", "2"),
        ("shop-web", "shop-web-a", "4"),
        ("shop-web-a", "shop-web-a-b", "1"),
    ] {
        cluster.request(ADMIN, parent, name, &json!({"pods": pods})).await?;
        let copied = |object: &Value| condition(object, "Propagated")["status"] == "True";
        cluster.until(("sns", parent, name), "copied", copied).await?;
        cluster.ready(parent, name).await?;
    }
    Ok(())
}

/// With one command, which waits for it. Events say what was deleted, and since what.
async fn goes(cluster: &Setup) -> Test {
    for (parent, name, pods) in [("shop", "shop-old", "1"), ("shop-old", "shop-old-a", "1")] {
        cluster.request(ADMIN, parent, name, &json!({"pods": pods})).await?;
        cluster.ready(parent, name).await?;
    }
    let cascade = ["tree", "delete", "shop/shop-old", "--cascade", "--wait=90s"];
    let (code, out, err) = coppice(&cluster.test_cluster, ADMIN, &cascade).await?;
    ensure!(code == 0 && out.ends_with("shop-old deleted\n"), "{code}: {out}{err}");
    let said =
        "Subnamespace shop-old/shop-old-a was deleted, since shop-old is and spec.cascadeUntil allows it";
    cluster
        .test_cluster
        .until("an Event says so", async || {
            let events = cluster.test_cluster.events("shop", "shop-old", "CascadingDeletion").await.ok()?;
            events.contains(&said.to_owned()).then_some(())
        })
        .await
}

/// Nothing below the namespace is being deleted.
async fn nothing_goes(cluster: &Setup) -> Test {
    for (parent, name) in [("shop-web", "shop-web-a"), ("shop-web-a", "shop-web-a-b")] {
        for object in [("sns", parent), ("namespace", "")] {
            let found = cluster.test_cluster.get(object.0, object.1, name).await?.context(name)?;
            ensure!(found["metadata"]["deletionTimestamp"].is_null(), "{found:#}");
        }
    }
    Ok(())
}

/// The command says what would go, and deletes nothing without `--cascade`, or with a dry run.
async fn stays(cluster: &Setup) -> Test {
    let coppice = async |args: &[&str]| {
        coppice(&cluster.test_cluster, ALICE, &[&["tree", "delete", "shop/shop-web"], args].concat()).await
    };
    let (code, out, err) = coppice(&[]).await?;
    ensure!(code == 3 && err.contains("2 namespaces are below namespace shop-web"), "{code}: {out}{err}");
    let (code, out, err) = coppice(&["--cascade", "--dry-run"]).await?;
    ensure!(code == 0 && out.contains("is being deleted, with all below it until "), "{code}: {out}{err}");
    let at = |name: &str| out.lines().position(|line| line.split_whitespace().next() == Some(name));
    let places = GOING.map(at);
    ensure!(places.is_sorted() && places[0].is_some(), "from the bottom up: {out}");
    ensure!(at("shop-api").is_none() && at("shop").is_none(), "{out}");
    let (code, out, err) = coppice(&["--cascade=25h"]).await?;
    ensure!(code == 2 && err.contains("write at most"), "{code}: {out}{err}");
    let web = cluster.test_cluster.get("sns", WEB.0, WEB.1).await?.context("shop-web")?;
    ensure!(web["metadata"]["deletionTimestamp"].is_null(), "{web:#}");
    ensure!(web["spec"]["cascadeUntil"].is_null(), "{web:#}");
    nothing_goes(cluster).await
}

/// Without consent, or while nothing may be deleted, those below stay.
async fn waits(cluster: &Setup) -> Test {
    let (test_cluster, admin) = (&cluster.test_cluster, cluster.test_cluster.admin().await?);
    let says = async |reason: &str, words: &str| {
        let said = |object: &Value| {
            let ready = condition(object, "Ready");
            ready["reason"] == reason && ready["message"].as_str().is_some_and(|said| said.contains(words))
        };
        cluster.until(("sns", WEB.0, WEB.1), &format!("{reason}: {words}"), said).await
    };
    cluster.delete(ALICE, WEB.0, WEB.1).await?;
    says("HasChildren", "coppice tree delete shop/shop-web --cascade").await?;
    let again = coppice(test_cluster, ALICE, &["tree", "delete", "shop/shop-web"]).await?;
    ensure!(
        again.0 == 1 && again.2.contains("is being deleted already: namespace shop-web has"),
        "{again:?}"
    );
    let consent = async |until: &str| {
        admin.patch("sns", WEB.0, WEB.1, &json!({"spec": {"cascadeUntil": until}})).await.map(drop)
    };
    consent("2026-01-01T00:00:00Z").await?;
    says("HasChildren", "the consent of spec.cascadeUntil ended at 2026-01-01T00:00:00Z").await?;
    consent("2126-01-01T00:00:00+01:00").await?;
    says("HasChildren", "counts for its last 24 hours alone, from 2125-12-30T23:00:00Z").await?;
    let error = consent("tomorrow").await.err().context("it is refused")?;
    ensure!(format!("{error:#}").contains("write an instant with its zone"), "{error:#}");
    let pause = async |paused: bool| {
        let patch = json!({"spec": {"governor": {"paused": paused}}});
        admin.patch("coppiceconfig", "", "coppice", &patch).await.map(drop)
    };
    pause(true).await?;
    let cascade = ["tree", "delete", "shop/shop-web", "--cascade", "--wait=2s"];
    let (code, out, err) = coppice(test_cluster, ALICE, &cascade).await?;
    ensure!(code == 3 && out.contains("is still being deleted after 2s"), "{code}: {out}{err}");
    says("Paused", "paused").await?;
    is_planned(cluster).await?;
    nothing_goes(cluster).await?;
    // Those below hear of it, until consent is taken back before anything was done about it.
    let lowest = ("sns", "shop-web-a", "shop-web-a-b");
    let pending = |object: &Value| condition(object, "DeletionPending")["status"] == "True";
    cluster.until(lowest, "its deletion is announced", pending).await?;
    admin.patch("sns", WEB.0, WEB.1, &json!({"spec": {"cascadeUntil": null}})).await?;
    says("HasChildren", "has a Subnamespace below it, and stays: delete").await?;
    cluster.until(lowest, "its deletion is withdrawn", |object| !pending(object)).await?;
    pause(false).await?;
    nothing_goes(cluster).await
}

/// `coppice plan` says what goes and in which order, also to who may read what is below one namespace alone.
async fn is_planned(cluster: &Setup) -> Test {
    for user in [ADMIN, ALICE] {
        let plan = ["plan", "-n", "shop", "-o", "json"];
        let (code, out, err) = coppice(&cluster.test_cluster, user, &plan).await?;
        let report: Value = serde_json::from_str(&out).with_context(|| format!("{code}: {out}{err}"))?;
        let mut items = report["items"].as_array().into_iter().flatten();
        let web = items.find(|item| item["managerKind"] == "Subnamespace" && item["namespace"] == WEB.1);
        let before = web.map(|web| &web["before"]);
        ensure!(before == Some(&json!(["shop-web-a-b", "shop-web-a"])), "{user}: {code}: {out}{err}");
    }
    Ok(())
}

/// Each was deleted once and after those below it, and its quota is back.
async fn gone_in_order(cluster: &Setup) -> Test {
    let mut records = cluster.test_cluster.admin().await?.list("delns", "").await?;
    records.retain(|record| GOING.iter().any(|name| record["spec"]["namespace"] == *name));
    // Decisions have whole seconds.
    records.sort_by_key(|record| {
        let place = GOING.iter().position(|name| record["spec"]["namespace"] == *name);
        (record["spec"]["decidedAt"].as_str().unwrap_or_default().to_owned(), place)
    });
    let names: Vec<_> = records.iter().map(|record| record["spec"]["namespace"].as_str()).collect();
    ensure!(names == GOING.map(Some), "{names:?}: {records:#?}");
    for name in GOING {
        cluster
            .test_cluster
            .until(&format!("{name} is gone"), async || {
                cluster.test_cluster.get("namespace", "", name).await.ok()?.is_none().then_some(())
            })
            .await?;
    }
    let api = cluster.test_cluster.get("namespace", "", "shop-api").await?.context("shop-api")?;
    ensure!(api["metadata"]["deletionTimestamp"].is_null(), "{api:#}");
    ensure!(cluster.limits("shop").await? == json!({"pods": "8"}), "{:#}", cluster.limits("shop").await?);
    ensure!(cluster.limits("shop-api").await? == json!({"pods": "2"}));
    cluster.quotas.never_beyond("10")
}
