//! An existing namespace becomes one of a tree, by an administrator's explicit act, on a real API server.

use anyhow::{Context as _, ensure};
use coppice_plane::{ADMIN, ALICE};
use coppice_tests::{condition, on_own_plane};
use serde_json::{Value, json};

use crate::cli::coppice;
use crate::trees::Setup;
use crate::trees_access::bind;
use crate::trees_transfers::approved;

type Test = anyhow::Result<()>;

const ADOPT: [&str; 3] = ["tree", "adopt", "shop/shop-old"];

#[test]
fn an_administrator_has_an_existing_namespace_adopted_and_nobody_else() -> Test {
    on_own_plane(async {
        let cluster = Setup::start().await?;
        let program = cluster.program().await?;
        let scenario = async {
            cluster.tree("shop", &json!({"pods": "10"})).await?;
            bind(&cluster.test_cluster, "shop", ALICE, "admin").await?;
            let uid = cluster.test_cluster.namespace("shop-old").await?;
            for name in ["one", "two"] {
                pod(&cluster, "shop-old", name).await?;
            }
            refusals(&cluster).await?;
            adopts(&cluster, &uid).await?;
            ends(&cluster, &uid).await?;
            runs_on_beyond_its_quota(&cluster).await
        };
        scenario.await.with_context(|| program.last_lines())?;
        cluster.quotas.never_beyond("10")
    })
}

async fn pod(cluster: &Setup, namespace: &str, name: &str) -> Test {
    let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": namespace},
        "spec": {"containers": [{"name": "c", "image": "busybox"}]}});
    cluster.test_cluster.admin().await?.create(&pod).await.map(drop)
}

/// The `Subnamespace`, the namespace and the one who asks have to be as they should.
async fn refusals(cluster: &Setup) -> Test {
    let expect = async |user: &str, message: &str| -> Test {
        let (code, out, err) = coppice(&cluster.test_cluster, user, &ADOPT).await?;
        ensure!(code == 1 && err.contains(message), "{code}: {out}{err}");
        Ok(())
    };
    expect(ADMIN, "there is no Subnamespace shop/shop-old: create it first").await?;
    cluster.request(ALICE, "shop", "shop-old", &json!({"pods": "20"})).await?;
    let (reason, message) = cluster.refused("shop", "shop-old").await?;
    ensure!(reason == "NameTaken" && message.contains("coppice tree adopt shop/shop-old"), "{message}");
    // Who asks for the namespace is not who may have it: Alice may not even read it.
    expect(ALICE, "shop-old cannot be read").await?;
    bind(&cluster.test_cluster, "shop-old", ALICE, "admin").await?;
    expect(ALICE, "verb set-tree on namespacetrees.coppice.dev").await?;
    let kubectl = async |args: &[&str]| cluster.test_cluster.kubectl(ADMIN, args).await.map(drop);
    kubectl(&["label", "namespace", "shop-old", "coppice.dev/protected=yes"]).await?;
    expect(ADMIN, "namespace shop-old is protected").await?;
    kubectl(&["label", "namespace", "shop-old", "coppice.dev/protected-"]).await?;
    kubectl(&["create", "quota", "coppice", "-n", "shop-old", "--hard=services=50"]).await?;
    expect(ADMIN, "has a ResourceQuota coppice, which is the name of that of the tree").await?;
    kubectl(&["delete", "quota", "coppice", "-n", "shop-old"]).await
}

/// It gets what it asks for, and before that nothing holds there; what runs there runs on.
async fn adopts(cluster: &Setup, uid: &str) -> Test {
    let dry_run = [&ADOPT[..], &["--dry-run"]].concat();
    let (code, out, err) = coppice(&cluster.test_cluster, ADMIN, &dry_run).await?;
    ensure!(code == 0 && out.contains("adopted (server dry run)"), "{code}: {out}{err}");
    ensure!(out.contains("it will be deleted with Subnamespace shop/shop-old"), "{out}");
    // Without room for what it is to have it would be limited to nothing: it is not taken in.
    let (code, out, err) = coppice(&cluster.test_cluster, ADMIN, &ADOPT).await?;
    ensure!(code == 0 && out.ends_with("namespace/shop-old adopted\n"), "{code}: {out}{err}");
    let refused = |object: &Value| condition(object, "Ready")["reason"] == "QuotaRefused";
    cluster.until(("sns", "shop", "shop-old"), "no room", refused).await?;
    let quota = cluster.test_cluster.get("quota", "shop-old", "coppice").await?;
    ensure!(quota.is_none(), "{quota:?}");
    pod(cluster, "shop-old", "three").await?;
    cluster.change("shop", "shop-old", &json!({"pods": "4"})).await?;
    cluster.ready("shop", "shop-old").await?;
    ensure!(cluster.limits("shop-old").await? == json!({"pods": "4"}));
    ensure!(cluster.limits("shop").await? == json!({"pods": "6"}));
    let namespace = cluster.test_cluster.get("namespace", "", "shop-old").await?.context("shop-old")?;
    ensure!(namespace["metadata"]["uid"] == uid, "{namespace:#}");
    ensure!(namespace["metadata"]["labels"]["shop.tree.coppice.dev/depth"] == "1", "{namespace:#}");
    for name in ["one", "two", "three"] {
        ensure!(cluster.test_cluster.get("pod", "shop-old", name).await?.is_some(), "{name} is gone");
    }
    let (code, out, err) = coppice(&cluster.test_cluster, ADMIN, &ADOPT).await?;
    ensure!(code == 0 && out.contains("belongs to Subnamespace shop/shop-old already"), "{code}: {out}{err}");
    Ok(())
}

/// It goes with its `Subnamespace`, as any other, and its quota returns.
async fn ends(cluster: &Setup, uid: &str) -> Test {
    cluster.delete(ALICE, "shop", "shop-old").await?;
    let deleted = async || cluster.test_cluster.is_deleted("shop-old", uid).await.then_some(());
    cluster.test_cluster.until("shop-old is deleted", deleted).await?;
    let returned = async || {
        let limits = cluster.limits("shop").await.ok()?;
        (limits == json!({"pods": "10"})).then_some(())
    };
    cluster.test_cluster.until("the quota is back", returned).await
}

/// What ran there runs on, also beyond the quota that it gets: that is said while it lasts, and worked off by refusing more.
async fn runs_on_beyond_its_quota(cluster: &Setup) -> Test {
    let pods = ["p-1", "p-2", "p-3", "p-4", "p-5"];
    cluster.test_cluster.namespace("shop-busy").await?;
    for name in pods {
        pod(cluster, "shop-busy", name).await?;
    }
    cluster.request(ALICE, "shop", "shop-busy", &json!({"pods": "2"})).await?;
    cluster.refused("shop", "shop-busy").await?;
    let (code, out, err) =
        coppice(&cluster.test_cluster, ADMIN, &["tree", "adopt", "shop/shop-busy"]).await?;
    ensure!(code == 0, "{code}: {out}{err}");
    let is_over = |object: &Value| condition(object, "WithinQuota")["status"] == "False";
    let object = cluster.until(("sns", "shop", "shop-busy"), "beyond its quota", is_over).await?;
    let said = condition(&object, "WithinQuota");
    let message = said["message"].as_str().unwrap_or_default();
    ensure!(said["reason"] == "Overdraft" && message.contains("5 of 2 pods"), "{said:#}");
    ensure!(object["status"]["phase"] == "Ready", "{object:#}");
    let event = async |reason: &str| {
        let published =
            async || cluster.test_cluster.events("shop", "shop-busy", reason).await.ok()?.into_iter().next();
        cluster.test_cluster.until(&format!("the Event {reason}"), published).await
    };
    let note = event("Overdraft").await?;
    ensure!(note.contains("5 of 2 pods"), "{note}");
    // Nothing more comes, and nothing goes to others.
    let more = pod(cluster, "shop-busy", "p-6").await.err().context("a sixth pod was admitted")?;
    ensure!(format!("{more:#}").contains("exceeded quota: coppice"), "{more:#}");
    cluster.transfers(ADMIN, &approved(ADMIN, "out", ("shop-busy", "shop", "shop"), "1")).await?;
    let (reason, message) = cluster.phase("shop-busy", "out", "Refused").await?;
    ensure!(reason == "TransferRefused" && message.contains("pods"), "{reason}: {message}");
    for name in pods {
        let pod = cluster.test_cluster.get("pod", "shop-busy", name).await?;
        let runs_on = pod.is_some_and(|pod| pod["metadata"]["deletionTimestamp"].is_null());
        ensure!(runs_on, "{name} is gone");
    }
    Ok(())
}
