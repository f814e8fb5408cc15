//! Namespaces that an administrator names as the root of a tree and that cannot be one, and a root that goes, on a real API server: what the
//! NamespaceTree says to do, and what there is of quota afterwards.

use anyhow::{Context as _, ensure};
use coppice_plane::ADMIN;
use coppice_tests::condition;
use serde_json::{Value, json};

use crate::cli::coppice;
use crate::trees::{Setup, on_shared_trees};
use crate::trees_quotas::Quotas;

type Test = anyhow::Result<()>;

const CREATE_ANOTHER: &str = "delete this NamespaceTree, and create one for another namespace";

/// Creates a tree of ten pods, and nothing else.
async fn create_tree(cluster: &Setup, name: &str, root: &str) -> Test {
    let tree = json!({"apiVersion": "coppice.dev/v1alpha1", "kind": "NamespaceTree", "metadata": {"name": name},
        "spec": {"root": root, "quota": {"hard": {"pods": "10"}}}});
    cluster.test_cluster.admin().await?.create(&tree).await.map(drop)
}

async fn delete_tree(cluster: &Setup, name: &str) -> Test {
    cluster.test_cluster.admin().await?.delete("nstree", "", name, &json!({})).await?;
    let gone = async || cluster.test_cluster.get("nstree", "", name).await.ok()?.is_none().then_some(());
    cluster.test_cluster.until(&format!("NamespaceTree {name} is gone"), gone).await
}

async fn is_set_up(cluster: &Setup, name: &str) -> Test {
    let is_ready = |tree: &Value| condition(tree, "Ready")["status"] == "True";
    cluster.until(("nstree", "", name), "Ready", is_ready).await.map(drop)
}

/// Waits until a NamespaceTree says this, and all of these words.
async fn says(cluster: &Setup, name: &str, reason: &str, words: &[&str]) -> Test {
    let says = |tree: &Value| {
        let ready = condition(tree, "Ready");
        let message = ready["message"].as_str().unwrap_or_default();
        ready["reason"] == reason && words.iter().all(|word| message.contains(word))
    };
    cluster.until(("nstree", "", name), &format!("{reason}: {words:?}"), says).await.map(drop)
}

/// The Event of a tree, which are those of no namespace.
async fn event(cluster: &Setup, name: &str, reason: &str) -> anyhow::Result<String> {
    let published =
        async || cluster.test_cluster.events("default", name, reason).await.ok()?.into_iter().next();
    cluster.test_cluster.until(&format!("the Event {reason} of {name}"), published).await
}

async fn delete_namespace(cluster: &Setup, name: &str) -> Test {
    cluster.test_cluster.kubectl(ADMIN, &["delete", "namespace", name, "--wait=false"]).await.map(drop)
}

/// Waits until namespaces are limited to so many pods, and to nothing else.
async fn limited(cluster: &Setup, expected: &[(&str, &str)]) -> Test {
    for (namespace, pods) in expected {
        let limited = async || {
            let quota = cluster.test_cluster.get("quota", namespace, "coppice").await.ok()??;
            let hard = json!({"pods": pods});
            (quota["spec"]["hard"] == hard && quota["status"]["hard"] == hard).then_some(())
        };
        cluster.test_cluster.until(&format!("{namespace} is limited to {pods} pods"), limited).await?;
    }
    Ok(())
}

/// A namespace has nothing of a tree: no quota, and no labels.
async fn untouched(cluster: &Setup, name: &str) -> Test {
    let quota = cluster.test_cluster.get("quota", name, "coppice").await?;
    ensure!(quota.is_none(), "{name}: {quota:?}");
    let namespace = cluster.test_cluster.get("namespace", "", name).await?.context("it is gone")?;
    let labels = &namespace["metadata"]["labels"];
    ensure!(
        labels["coppice.dev/root"].is_null() && !labels.to_string().contains("tree.coppice.dev"),
        "{labels}"
    );
    Ok(())
}

#[test]
fn a_namespace_that_cannot_be_a_root_is_not_touched_and_its_tree_says_what_to_do() -> Test {
    on_shared_trees(async |cluster| {
        protected(cluster).await?;
        missing(cluster).await?;
        taken(cluster).await?;
        has_a_quota(cluster).await
    })
}

/// Namespaces of Kubernetes and of Coppice are in no tree, neither as its root nor below one.
async fn protected(cluster: &Setup) -> Test {
    for (root, whose) in [
        ("kube-system", "it belongs to Kubernetes"),
        ("default", "it belongs to Kubernetes"),
        ("coppice-system", "it is Coppice's own"),
    ] {
        let name = format!("of-{root}");
        create_tree(cluster, &name, root).await?;
        says(cluster, &name, "NamespaceProtected", &[whose, CREATE_ANOTHER]).await?;
        let note = event(cluster, &name, "NamespaceProtected").await?;
        ensure!(note.contains(CREATE_ANOTHER), "{note}");
        untouched(cluster, root).await?;
        delete_tree(cluster, &name).await?;
        untouched(cluster, root).await?;
    }
    cluster.tree("kube", &json!({"pods": "10"})).await?;
    is_set_up(cluster, "kube").await?;
    cluster.request(ADMIN, "kube", "kube-web", &json!({"pods": "1"})).await?;
    let (reason, message) = cluster.refused("kube", "kube-web").await?;
    let advised = ["it belongs to Kubernetes", "create a Subnamespace with another name"];
    let advised = advised.iter().all(|words| message.contains(words));
    ensure!(reason == "NamespaceProtected" && advised, "{reason}: {message}");
    ensure!(cluster.test_cluster.get("namespace", "", "kube-web").await?.is_none());
    limited(cluster, &[("kube", "10")]).await
}

/// The root is not there yet; later it is another one, which was never taken into the tree.
async fn missing(cluster: &Setup) -> Test {
    create_tree(cluster, "late", "late").await?;
    says(cluster, "late", "RootMissing", &["there is no namespace late: create it"]).await?;
    cluster.test_cluster.namespace("late").await?;
    is_set_up(cluster, "late").await?;
    limited(cluster, &[("late", "10")]).await?;
    cluster.test_cluster.kubectl(ADMIN, &["delete", "namespace", "late"]).await?;
    says(cluster, "late", "RootMissing", &["there is no namespace late any more: delete this NamespaceTree"])
        .await?;
    cluster.test_cluster.namespace("late").await?;
    let another =
        ["another one than when the tree was set up", "delete this NamespaceTree, and create one for it"];
    says(cluster, "late", "RootMissing", &another).await?;
    untouched(cluster, "late").await?;
    delete_tree(cluster, "late").await?;
    untouched(cluster, "late").await?;
    create_tree(cluster, "late", "late").await?;
    is_set_up(cluster, "late").await?;
    limited(cluster, &[("late", "10")]).await
}

/// A namespace is in one tree, and its quota is that of one.
async fn taken(cluster: &Setup) -> Test {
    cluster.tree("taken", &json!({"pods": "10"})).await?;
    is_set_up(cluster, "taken").await?;
    cluster.request(ADMIN, "taken", "taken-web", &json!({"pods": "4"})).await?;
    cluster.ready("taken", "taken-web").await?;
    for (name, root, why) in [
        ("taken-again", "taken", "it is the root of NamespaceTree taken"),
        ("taken-inside", "taken-web", "Subnamespace taken-web in taken created it"),
    ] {
        create_tree(cluster, name, root).await?;
        says(cluster, name, "RootTaken", &[why, CREATE_ANOTHER]).await?;
        let note = event(cluster, name, "RootTaken").await?;
        ensure!(note.contains(CREATE_ANOTHER), "{note}");
        limited(cluster, &[("taken", "6"), ("taken-web", "4")]).await?;
        delete_tree(cluster, name).await?;
        limited(cluster, &[("taken", "6"), ("taken-web", "4")]).await?;
    }
    is_set_up(cluster, "taken").await?;
    cluster.ready("taken", "taken-web").await.map(drop)
}

/// A quota of an administrator that has the name of ours is left as it is, until they have taken it away.
async fn has_a_quota(cluster: &Setup) -> Test {
    let admin = cluster.test_cluster.admin().await?;
    let quota = |name: &str| {
        json!({"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": name, "namespace": "limited"},
            "spec": {"hard": {"pods": "3"}}})
    };
    cluster.test_cluster.namespace("limited").await?;
    admin.create(&quota("coppice")).await?;
    create_tree(cluster, "limited", "limited").await?;
    let words = [
        "namespace limited has a ResourceQuota coppice that belongs to no tree, and is not taken over: delete it",
        "after you have created another one like it if it is to hold besides",
    ];
    says(cluster, "limited", "QuotaTaken", &words).await?;
    let note = event(cluster, "limited", "QuotaTaken").await?;
    ensure!(note.contains(words[0]), "{note}");
    let theirs = cluster.test_cluster.get("quota", "limited", "coppice").await?.context("it is gone")?;
    let metadata = &theirs["metadata"];
    let is_theirs = metadata["labels"].is_null() && metadata["annotations"].is_null();
    ensure!(is_theirs && theirs["spec"]["hard"] == json!({"pods": "3"}), "{theirs:#}");
    // As it says.
    admin.create(&quota("besides")).await?;
    admin.delete("quota", "limited", "coppice", &json!({})).await?;
    is_set_up(cluster, "limited").await?;
    limited(cluster, &[("limited", "10")]).await?;
    let besides = cluster.test_cluster.get("quota", "limited", "besides").await?.context("it is gone")?;
    ensure!(besides["spec"]["hard"] == json!({"pods": "3"}), "{besides:#}");
    Ok(())
}

#[test]
fn a_root_that_is_deleted_leaves_those_below_it_with_their_quotas_until_the_tree_is_taken_apart() -> Test {
    on_shared_trees(async |cluster| {
        let quotas = Quotas::of_tree("ends", &cluster.test_cluster).await?;
        cluster.tree("ends", &json!({"pods": "10"})).await?;
        is_set_up(cluster, "ends").await?;
        for (parent, name, pods) in [("ends", "ends-web", "6"), ("ends-web", "ends-web-ci", "2")] {
            cluster.request(ADMIN, parent, name, &json!({"pods": pods})).await?;
            cluster.ready(parent, name).await?;
        }
        limited(cluster, &[("ends", "4"), ("ends-web", "4"), ("ends-web-ci", "2")]).await?;
        is_deleted(cluster).await?;
        comes_apart(cluster).await?;
        quotas.never_beyond("10")
    })
}

/// There is nobody above to whom they could move: they stay, and the tree says what an administrator can do.
async fn is_deleted(cluster: &Setup) -> Test {
    delete_namespace(cluster, "ends").await?;
    let words = [
        "namespace ends is being deleted, and the number of namespaces below it that are left without a root is 2",
        "ends/ends-web, ends/ends-web/ends-web-ci; they stay with the quota that they have",
        "(kubectl delete namespace NAME), or keep all of them without a tree (coppice tree detach ends)",
    ];
    says(cluster, "ends", "RootDeleted", &words).await?;
    let note = event(cluster, "ends", "RootDeleted").await?;
    ensure!(words.iter().all(|word| note.contains(word)), "{note}");
    let stays = |object: &Value| {
        let message = condition(object, "Ready")["message"].clone();
        message
            .as_str()
            .is_some_and(|text| text.contains("namespace ends-web stays until somebody deletes it"))
    };
    cluster.until(("sns", "ends", "ends-web"), "stays", stays).await?;
    for name in ["ends-web", "ends-web-ci"] {
        let namespace = cluster.test_cluster.get("namespace", "", name).await?.context(name)?;
        ensure!(namespace["metadata"]["deletionTimestamp"].is_null(), "{namespace:#}");
    }
    limited(cluster, &[("ends-web", "4"), ("ends-web-ci", "2")]).await?;
    // From the bottom up, as it says: what the lower one had returns to the one above.
    delete_namespace(cluster, "ends-web-ci").await?;
    cluster.gone("ends-web", "ends-web-ci").await?;
    limited(cluster, &[("ends-web", "6")]).await?;
    says(cluster, "ends", "RootDeleted", &["without a root is 1: ends/ends-web; they stay"]).await
}

/// Or they are kept without the tree, with what they have: the root's own went with it.
async fn comes_apart(cluster: &Setup) -> Test {
    let (code, out, err) =
        coppice(&cluster.test_cluster, ADMIN, &["tree", "detach", "ends", "--wait"]).await?;
    ensure!(code == 0 && out.ends_with("namespacetree.coppice.dev/ends detached\n"), "{code}: {out}{err}");
    let web = cluster.test_cluster.get("namespace", "", "ends-web").await?.context("ends-web")?;
    let metadata = &web["metadata"];
    ensure!(metadata["deletionTimestamp"].is_null(), "{web:#}");
    let keys = ["labels", "annotations"].map(|field| metadata[field].to_string());
    ensure!(!keys.iter().any(|keys| keys.contains("coppice.dev")), "{web:#}");
    let quota = cluster.test_cluster.get("quota", "ends-web", "coppice").await?.context("no quota")?;
    let is_own = quota["metadata"]["labels"]["coppice.dev/tree"].is_null();
    ensure!(is_own && quota["status"]["hard"] == json!({"pods": "6"}), "{quota:#}");
    Ok(())
}
