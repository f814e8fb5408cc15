//! An existing namespace becomes one of a tree, by an administrator's explicit act, on a real API server.

use anyhow::{Context as _, ensure};
use coppice_plane::{ADMIN, ALICE};
use coppice_tests::{Operator, condition, on_own_plane};
use serde_json::{Value, json};

use crate::cli::coppice;
use crate::trees::Setup;
use crate::trees_access::bind;
use crate::trees_quotas::Quotas;
use crate::trees_transfers::approved;

type Test = anyhow::Result<()>;

const ADOPT: [&str; 3] = ["tree", "adopt", "shop/shop-old"];
const OVERDRAFT: &str = r#"coppice_tree_quota{tree="shop",resource="pods",state="overdraft"}"#;

#[test]
fn an_administrator_has_an_existing_namespace_adopted_and_nobody_else() -> Test {
    on_own_plane(async {
        let cluster = Setup::start().await?;
        let program = cluster.program().await?;
        // Administrators create quotas of their own here.
        let quotas = Quotas::of_tree("shop", &cluster.test_cluster).await?;
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
            runs_on_beyond_its_quota(&cluster).await?;
            is_shown(&cluster, &program).await?;
            is_worked_off(&cluster).await?;
            is_limited_besides(&cluster).await
        };
        scenario.await.with_context(|| program.last_lines())?;
        quotas.never_beyond("10")
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
    for namespace in ["shop", "shop-busy"] {
        let note = event(cluster, namespace, "shop-busy", "Overdraft").await?;
        ensure!(note.contains("5 of 2 pods"), "{note}");
    }
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

/// Waits for an Event about an object; what it says.
async fn event(cluster: &Setup, namespace: &str, name: &str, reason: &str) -> anyhow::Result<String> {
    let published =
        async || cluster.test_cluster.events(namespace, name, reason).await.ok()?.into_iter().next();
    cluster.test_cluster.until(&format!("the Event {reason} in {namespace}"), published).await
}

/// A tenant sees it, with what was refused for it and with what else limits the namespace; and so do the metrics.
async fn is_shown(cluster: &Setup, program: &Operator) -> Test {
    let admin = cluster.test_cluster.admin().await?;
    cluster.test_cluster.quota_of_pods("shop-busy", 9).await?;
    let more = json!({"apiVersion": "apps/v1", "kind": "ReplicaSet", "metadata": {"name": "more", "namespace": "shop-busy"},
    "spec": {"replicas": 1, "selector": {"matchLabels": {"a": "b"}}, "template": {
        "metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "busybox"}]}
    }}});
    admin.create(&more).await?;
    let refused = event(cluster, "shop-busy", "more", "FailedCreate").await?;
    ensure!(refused.contains("exceeded quota: coppice"), "{refused}");
    // What is used and what Coppice does is counted once a minute.
    let counted = async || (program.metric(OVERDRAFT).await.ok()? == Some(3.0)).then_some(());
    cluster.test_cluster.until("the overdraft is counted", counted).await?;
    explains(
        cluster,
        &[
            "pods: 5 of 2 used, 3 beyond its quota: nothing more starts until that much is gone, or it gets more\n",
            "ResourceQuota pods: pods: 5 of 9 used\n",
            "Pods that a quota refused",
            "ReplicaSet/more",
            "exceeded quota: coppice",
        ],
    )
    .await
}

/// Alice administers the root, and so what is below it.
async fn explains(cluster: &Setup, expected: &[&str]) -> Test {
    let copied = |object: &Value| condition(object, "Propagated")["status"] == "True";
    cluster.until(("sns", "shop", "shop-busy"), "has her rights", copied).await?;
    let (code, out, err) = coppice(&cluster.test_cluster, ALICE, &["explain", "shop-busy"]).await?;
    for part in expected {
        ensure!(out.contains(part), "{part:?} is not in {code}: {out}{err}");
    }
    Ok(())
}

/// It ends when less is used, and not by Coppice.
async fn is_worked_off(cluster: &Setup) -> Test {
    let admin = cluster.test_cluster.admin().await?;
    admin.delete("replicaset", "shop-busy", "more", &json!({})).await?;
    for name in ["p-1", "p-2", "p-3"] {
        admin.delete("pod", "shop-busy", name, &json!({})).await?;
    }
    let within = |object: &Value| condition(object, "WithinQuota")["status"] == "True";
    let object = cluster.until(("sns", "shop", "shop-busy"), "within its quota", within).await?;
    let said = condition(&object, "WithinQuota");
    let again = "namespace shop-busy is within its quota again";
    ensure!(said["reason"] == "OverdraftEnded" && said["message"] == again, "{said:#}");
    // Also for who may read the namespace alone.
    for namespace in ["shop", "shop-busy"] {
        ensure!(event(cluster, namespace, "shop-busy", "OverdraftEnded").await? == again);
    }
    for name in ["p-4", "p-5"] {
        ensure!(cluster.test_cluster.get("pod", "shop-busy", name).await?.is_some(), "{name} is gone");
    }
    Ok(())
}

/// A further quota of an administrator is left alone, and counts: what it leaves is what is free.
async fn is_limited_besides(cluster: &Setup) -> Test {
    cluster.change("shop", "shop-busy", &json!({"pods": "4"})).await?;
    cluster.ready("shop", "shop-busy").await?;
    let pods = async || cluster.test_cluster.get("quota", "shop-busy", "pods").await.ok()?;
    let less = json!({"pods": "2"});
    let admin = cluster.test_cluster.admin().await?;
    admin.patch("quota", "shop-busy", "pods", &json!({"spec": {"hard": less}})).await?;
    let in_force = async || pods().await.filter(|quota| quota["status"]["hard"] == less);
    cluster.test_cluster.until("there is less", in_force).await?;
    let refused = pod(cluster, "shop-busy", "p-7").await.err().context("a third pod was admitted")?;
    ensure!(format!("{refused:#}").contains("exceeded quota: pods"), "{refused:#}");
    let left = "pods: 0 free by ResourceQuota pods, 2 of 4 used\n";
    explains(cluster, &[left, "ResourceQuota pods: pods: 2 of 2 used\n"]).await?;
    let theirs = pods().await.context("it is gone")?;
    ensure!(theirs["spec"]["hard"] == less && theirs["metadata"]["labels"].is_null(), "{theirs:#}");
    ensure!(cluster.limits("shop-busy").await? == json!({"pods": "4"}));
    Ok(())
}
