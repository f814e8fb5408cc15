//! A tree is taken apart, and its namespaces stay, on a real API server, with a program that is killed.

use anyhow::{Context as _, ensure};
use coppice_plane::proxy::{FaultRule, Proxy, ProxyFault};
use coppice_plane::{ADMIN, ALICE};
use coppice_tests::on_own_plane;
use serde_json::{Value, json};

use crate::access_control::raw_requests::{MERGE, PLAIN};
use crate::cli::coppice;
use crate::trees::{Setup, killed, writes};
use crate::trees_access::{bind, child, of, on_trees, quota};
use crate::trees_copies::{all, copy, subject};

type Test = anyhow::Result<()>;

const NAMES: [&str; 3] = ["shop", "shop-web", "shop-web-a"];

/// A tree of three namespaces, with a pod in the lowest, and with Alice as their administrator.
async fn grown() -> anyhow::Result<(Setup, [Value; 3])> {
    let cluster = Setup::start().await?;
    let mut program = cluster.program().await?;
    let grows = async {
        cluster.tree("shop", &json!({"pods": "10"})).await?;
        bind(&cluster.test_cluster, "shop", ALICE, "admin").await?;
        cluster.request(ALICE, "shop", "shop-web", &json!({"pods": "6"})).await?;
        cluster.ready("shop", "shop-web").await?;
        cluster.request(ADMIN, "shop-web", "shop-web-a", &json!({"pods": "2"})).await?;
        for (parent, name) in [("shop", "shop-web"), ("shop-web", "shop-web-a")] {
            let copied = |object: &Value| coppice_tests::condition(object, "Propagated")["status"] == "True";
            cluster.until(("sns", parent, name), "copied", copied).await?;
            cluster.ready(parent, name).await?;
        }
        let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "runs", "namespace": "shop-web-a"},
            "spec": {"containers": [{"name": "c", "image": "busybox"}]}});
        cluster.test_cluster.requests(ALICE).await?.create(&pod).await.map(drop)
    };
    grows.await.with_context(|| program.last_lines())?;
    program.kill().await?;
    let mut uids = Vec::new();
    for name in NAMES {
        let namespace = cluster.test_cluster.get("namespace", "", name).await?.context(name)?;
        uids.push(namespace["metadata"]["uid"].clone());
    }
    let uids = uids.try_into().map_err(|uids| anyhow::anyhow!("{uids:?}"))?;
    Ok((cluster, uids))
}

/// Nothing is left of the tree, and everything else is.
async fn apart(cluster: &Setup, uids: &[Value; 3]) -> Test {
    let test_cluster = &cluster.test_cluster;
    for ((name, pods), uid) in NAMES.into_iter().zip(["4", "4", "2"]).zip(uids) {
        let namespace = test_cluster.get("namespace", "", name).await?.context(name)?;
        let metadata = &namespace["metadata"];
        ensure!(metadata["uid"] == *uid && metadata["deletionTimestamp"].is_null(), "{namespace:#}");
        let keys = ["labels", "annotations"]
            .into_iter()
            .flat_map(|field| metadata[field].as_object().into_iter().flatten());
        let left: Vec<_> = keys.filter(|(key, _)| key.contains("coppice.dev")).collect();
        ensure!(left.is_empty(), "{name}: {left:?}");
        let quota = test_cluster.get("quota", name, "coppice").await?.context(name)?;
        ensure!(quota["spec"]["hard"] == json!({"pods": pods}), "{quota:#}");
        let metadata = &quota["metadata"];
        ensure!(metadata["labels"]["coppice.dev/tree"].is_null(), "{quota:#}");
        ensure!(metadata["annotations"]["coppice.dev/ledger"].is_null(), "{quota:#}");
        let binding = test_cluster.get("rolebinding", name, "alice-admin").await?.context(name)?;
        ensure!(binding["metadata"]["labels"]["coppice.dev/propagated-from"].is_null(), "{binding:#}");
        ensure!(binding["metadata"]["annotations"]["coppice.dev/propagated-uid"].is_null(), "{binding:#}");
    }
    ensure!(test_cluster.get("pod", "shop-web-a", "runs").await?.is_some());
    ensure!(test_cluster.admin().await?.list("sns", "").await?.is_empty());
    ensure!(test_cluster.admin().await?.list("delns", "").await?.is_empty(), "nothing was deleted");
    // Everything in there is theirs again.
    test_cluster.kubectl(ALICE, &["create", "configmap", "mine", "-n", "shop-web-a"]).await?;
    test_cluster
        .kubectl(
            ADMIN,
            &["patch", "quota", "coppice", "-n", "shop-web", "-p", r#"{"spec":{"hard":{"pods":"3"}}}"#],
        )
        .await?;
    test_cluster.kubectl(ADMIN, &["delete", "rolebinding", "alice-admin", "-n", "shop-web-a"]).await?;
    test_cluster.kubectl(ADMIN, &["label", "namespace", "shop-web", "team=web"]).await.map(drop)
}

#[test]
fn killed_at_every_write_a_tree_comes_apart_and_nothing_of_its_namespaces_is_lost() -> Test {
    on_own_plane(async {
        let (cluster, uids) = grown().await?;
        let coppice = async |args: &[&str]| coppice(&cluster.test_cluster, ADMIN, args).await;
        let refused = cluster.test_cluster.kubectl(ADMIN, &["delete", "nstree", "shop"]).await.unwrap_err();
        ensure!(format!("{refused:#}").contains("coppice tree detach"), "{refused:#}");
        let (code, out, err) = coppice(&["tree", "detach", "shop", "--dry-run"]).await?;
        ensure!(code == 0, "{code}: {out}{err}");
        for line in ["shop         4 pods", "shop-web     4 pods", "shop-web-a   2 pods", "(server dry run)"]
        {
            ensure!(out.contains(line), "{line}: {out}");
        }
        let tree = cluster.test_cluster.get("nstree", "", "shop").await?.context("shop")?;
        ensure!(
            tree["spec"]["deletionPolicy"].is_null() || tree["spec"]["deletionPolicy"] == "Refuse",
            "{tree:#}"
        );
        let (code, out, err) = coppice(&["tree", "detach", "shop", "--wait=1s"]).await?;
        ensure!(code == 3 && out.contains("is still being detached after 1s"), "{code}: {out}{err}");
        // Whoever deletes a Subnamespace now does not delete its namespace, nor does one come into the tree.
        cluster.delete(ALICE, "shop", "shop-web").await?;
        cluster.request(ALICE, "shop", "shop-late", &json!({"pods": "1"})).await?;
        let gone =
            async || cluster.test_cluster.get("nstree", "", "shop").await.ok()?.is_none().then_some(());
        killed(&cluster, gone).await?;
        ensure!(cluster.test_cluster.get("namespace", "", "shop-late").await?.is_none());
        apart(&cluster, &uids).await?;
        cluster.quotas.never_beyond("10")
    })
}

#[test]
fn what_has_begun_in_a_tree_ends_before_it_comes_apart() -> Test {
    on_own_plane(async {
        let (cluster, _) = grown().await?;
        // More for the one, which is on its way when the program is killed.
        cluster.change("shop-web", "shop-web-a", &json!({"pods": "5"})).await?;
        let proxy = Proxy::start(&cluster.test_cluster.plane, None).await?;
        let held = proxy.add(FaultRule::new(writes(), ProxyFault::HoldRequest));
        let mut first = cluster.next_life(&proxy.kubeconfig(&cluster.account)?).await?;
        let begun = async || {
            let quota = cluster.test_cluster.get("quota", "shop-web", "coppice").await.ok()??;
            let ledger = quota["metadata"]["annotations"]["coppice.dev/ledger"].as_str()?;
            ledger.contains("changes").then_some(())
        };
        for passed in 1.. {
            held.held(passed).await;
            if begun().await.is_some() {
                break;
            }
            held.release_one();
        }
        first.kill().await?;
        held.discard();
        let args = ["tree", "detach", "shop", "--wait"];
        let program = cluster.next_life(&cluster.account).await?;
        let (code, out, err) = coppice(&cluster.test_cluster, ADMIN, &args).await?;
        ensure!(code == 0 && out.ends_with("detached\n"), "{code}: {out}{err}{}", program.last_lines());
        let mut sum = 0;
        for name in NAMES {
            let pods = cluster.limits(name).await?["pods"].as_str().unwrap_or_default().parse::<u32>()?;
            ensure!(pods > 0, "{name}");
            sum += pods;
        }
        ensure!(sum == 10, "{sum} pods: nothing is lost on its way");
        cluster.quotas.never_beyond("10")
    })
}

/// Two changes in one.
fn both(mut one: Value, other: &Value) -> Value {
    for (key, value) in other.as_object().into_iter().flatten() {
        if key == "metadata" {
            one[key] = both(one[key].clone(), value);
        } else if key == "labels" || key == "annotations" {
            for (key_of, value) in value.as_object().into_iter().flatten() {
                one[key][key_of] = value.clone();
            }
        } else {
            one[key] = value.clone();
        }
    }
    one
}

#[test]
fn what_a_stolen_token_takes_out_of_a_tree_stays_as_it_is() -> Test {
    const NOTHING_ELSE: &str = "changes nothing of one whose label it removes";
    on_trees(async |on| {
        child(on, "leaves-child").await?;
        let quotas = of("leaves-child", "resourcequotas");
        let tree = json!({"coppice.dev/tree": "t"});
        ensure!(on.account.send("POST", &quotas, PLAIN, quota("coppice", &tree, "5")).await?.accepted());
        let path = format!("{quotas}/coppice");
        let out = json!({"metadata": {"labels": {"coppice.dev/tree": null}, "annotations": {"coppice.dev/ledger": null}}});
        let raised = json!({"spec": {"hard": {"pods": "9"}}});
        let answer = on.stolen.send("PATCH", &path, MERGE, both(out.clone(), &raised)).await?;
        ensure!(answer.refused(NOTHING_ELSE), "{answer:?}");
        ensure!(on.account.send("PATCH", &path, MERGE, out).await?.accepted());
        // It is others' from then on.
        for change in [raised.clone(), json!({"metadata": {"labels": tree}})] {
            let answer = on.stolen.send("PATCH", &path, MERGE, change).await?;
            ensure!(answer.refused("no ResourceQuota but coppice with the label"), "{answer:?}");
        }
        ensure!(on.admin.send("PATCH", &path, MERGE, raised).await?.accepted());

        let copies = all("leaves-child");
        ensure!(on.account.send("POST", &copies, PLAIN, copy("view")).await?.accepted());
        let path = format!("{copies}/view");
        let out = json!({"metadata": {
            "labels": {"coppice.dev/propagated-from": null}, "annotations": {"coppice.dev/propagated-uid": null}
        }});
        for (change, why) in [
            (subject("thief"), "without the label coppice.dev/propagated-from"),
            (json!({"metadata": {"labels": {"a": "b"}}}), "nothing of the metadata of a copy"),
            (json!({"metadata": {"annotations": {"a": "b"}}}), "nothing of the metadata of a copy"),
            (json!({"metadata": {"finalizers": ["example.org/never"]}}), "nothing of the metadata of a copy"),
        ] {
            let answer = on.stolen.send("PATCH", &path, MERGE, both(out.clone(), &change)).await?;
            ensure!(answer.refused(why), "{change}: {answer:?}");
        }
        ensure!(on.account.send("PATCH", &path, MERGE, out).await?.accepted());
        let answer = on.stolen.send("PATCH", &path, MERGE, subject("thief")).await?;
        ensure!(answer.refused("without the label coppice.dev/propagated-from"), "{answer:?}");
        ensure!(on.admin.send("PATCH", &path, MERGE, subject("other")).await?.accepted());
        Ok(())
    })
}
