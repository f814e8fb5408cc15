//! Labels and annotations that namespaces of a tree inherit, and those that their creators set, on a real API server.

use anyhow::{Context as _, ensure};
use coppice_plane::{ADMIN, ALICE};
use coppice_tests::condition;
use serde_json::{Value, json};

use crate::cli::coppice;
use crate::trees::{Setup, on_shared_trees};
use crate::trees_access::bind;

type Test = anyhow::Result<()>;

#[test]
fn namespaces_have_what_the_tree_allows_and_what_is_inherited() -> Test {
    on_shared_trees(async |cluster| {
        begins(cluster).await?;
        inherits(cluster).await?;
        sets(cluster).await?;
        refusals(cluster).await?;
        ends(cluster).await?;
        exchanges(cluster).await
    })
}

async fn kubectl(cluster: &Setup, user: &str, args: &[&str]) -> Test {
    cluster.test_cluster.kubectl(user, args).await.map(drop)
}

async fn begins(cluster: &Setup) -> Test {
    cluster.tree("shop", &json!({"pods": "10"})).await?;
    bind(&cluster.test_cluster, "shop", ALICE, "admin").await?;
    let metadata = json!({"spec": {"metadata": {
        "allowed": {"labels": ["tier", "stage"], "annotations": ["example.org/note"]},
        "inherited": {"labels": ["team", "stage"], "annotations": ["example.org/contact"]}
    }}});
    cluster.test_cluster.admin().await?.patch("nstree", "", "shop", &metadata).await?;
    kubectl(cluster, ADMIN, &["label", "namespace", "shop", "team=shop", "stage=prod", "private=x"]).await?;
    kubectl(cluster, ADMIN, &["annotate", "namespace", "shop", "example.org/contact=ann"]).await
}

/// Waits until a namespace has these labels and annotations; null: it does not have it.
async fn has(cluster: &Setup, name: &str, labels: &Value, annotations: &Value) -> Test {
    let is = |now: &Value, wanted: &Value| {
        wanted.as_object().into_iter().flatten().all(|(key, value)| now[key] == *value)
    };
    let what = format!("{name} has {labels} and {annotations}");
    let found = cluster.test_cluster.until(&what, async || {
        let namespace = cluster.test_cluster.get("namespace", "", name).await.ok()??;
        let metadata = &namespace["metadata"];
        (is(&metadata["labels"], labels) && is(&metadata["annotations"], annotations)).then_some(())
    });
    if let Err(error) = found.await {
        let namespace = cluster.test_cluster.get("namespace", "", name).await?;
        return Err(error.context(format!("{:#}", namespace.unwrap_or_default()["metadata"])));
    }
    Ok(())
}

/// From the beginning and whenever it changes above, all the way down.
async fn inherits(cluster: &Setup) -> Test {
    let create = ["create", "shop/shop-web", "--quota", "pods=5", "--label", "tier=web"];
    let create = [&create[..], &["--annotation", "example.org/note=a, b = c", "--wait"]].concat();
    let (code, out, err) = coppice(&cluster.test_cluster, ALICE, &create).await?;
    ensure!(code == 0, "{code}: {out}{err}");
    let labels = json!({"team": "shop", "stage": "prod", "tier": "web", "private": null});
    let annotations = json!({"example.org/contact": "ann", "example.org/note": "a, b = c"});
    let namespace = cluster.test_cluster.get("namespace", "", "shop-web").await?.context("shop-web")?;
    for (field, wanted) in [("labels", &labels), ("annotations", &annotations)] {
        for (key, value) in wanted.as_object().into_iter().flatten() {
            ensure!(namespace["metadata"][field][key] == *value, "{key}: {namespace:#}");
        }
    }
    cluster.request(ADMIN, "shop-web", "shop-web-a", &json!({"pods": "1"})).await?;
    cluster.ready("shop-web", "shop-web-a").await?;
    let below = json!({"team": "shop", "stage": "prod", "tier": null});
    has(cluster, "shop-web-a", &below, &json!({"example.org/contact": "ann", "example.org/note": null}))
        .await?;
    kubectl(cluster, ADMIN, &["label", "namespace", "shop", "team=store", "--overwrite"]).await?;
    kubectl(cluster, ADMIN, &["annotate", "namespace", "shop", "example.org/contact-"]).await?;
    for name in ["shop-web", "shop-web-a"] {
        let gone = json!({"example.org/contact": null});
        has(cluster, name, &json!({"team": "store"}), &gone).await?;
    }
    // What somebody else writes over it is put right, and what nobody asked for is left alone.
    kubectl(cluster, ADMIN, &["label", "namespace", "shop-web-a", "team=mine", "own=x", "--overwrite"])
        .await?;
    has(cluster, "shop-web-a", &json!({"team": "store", "own": "x"}), &json!({})).await
}

async fn change(cluster: &Setup, metadata: &Value) -> Test {
    let patch = json!({"spec": {"metadata": metadata}});
    cluster.test_cluster.requests(ALICE).await?.patch("sns", "shop", "shop-web", &patch).await.map(drop)
}

/// What is set counts over what is inherited, also below, and goes when it is wanted no more.
async fn sets(cluster: &Setup) -> Test {
    let annotations = json!({"example.org/note": null});
    change(cluster, &json!({"labels": {"tier": null, "stage": "test"}, "annotations": annotations})).await?;
    has(cluster, "shop-web", &json!({"tier": null, "stage": "test"}), &annotations).await?;
    has(cluster, "shop-web-a", &json!({"stage": "test"}), &json!({})).await?;
    change(cluster, &json!({"labels": {"stage": null}})).await?;
    for name in ["shop-web", "shop-web-a"] {
        has(cluster, name, &json!({"stage": "prod"}), &json!({})).await?;
    }
    Ok(())
}

async fn refusals(cluster: &Setup) -> Test {
    // The tree does not allow it: everything stays as it is.
    change(cluster, &json!({"labels": {"tier": "db", "owner": "me"}})).await?;
    let (reason, message) = cluster.refused("shop", "shop-web").await?;
    ensure!(
        reason == "MetadataNotAllowed" && message.contains("spec.metadata.labels names owner"),
        "{message}"
    );
    ensure!(message.contains("spec.metadata.allowed.labels: tier, stage"), "{message}");
    has(cluster, "shop-web", &json!({"tier": null, "owner": null}), &json!({})).await?;
    let dry_run = ["create", "shop/shop-api", "--quota", "pods=1", "--label", "owner=me", "--dry-run"];
    let (code, out, err) = coppice(&cluster.test_cluster, ADMIN, &dry_run).await?;
    ensure!(code == 3 && err.contains("spec.metadata.labels names owner"), "{code}: {out}{err}");
    let twice = ["create", "shop/shop-api", "--label", "tier=a,tier=b"];
    let (code, out, err) = coppice(&cluster.test_cluster, ALICE, &twice).await?;
    ensure!(code == 1 && err.contains("--label: tier is given twice, as a and as b"), "{code}: {out}{err}");
    // No namespace is created for it.
    let asked = json!({"apiVersion": "coppice.dev/v1alpha1", "kind": "Subnamespace",
        "metadata": {"name": "shop-api", "namespace": "shop"}, "spec": {"metadata": {"annotations": {"a": "b"}}}});
    cluster.test_cluster.requests(ALICE).await?.create(&asked).await?;
    let (reason, _) = cluster.refused("shop", "shop-api").await?;
    ensure!(reason == "MetadataNotAllowed", "{reason}");
    ensure!(cluster.test_cluster.get("namespace", "", "shop-api").await?.is_none());
    // What gives rights nobody asks for, nor can the platform allow it.
    for (metadata, said) in [
        (json!({"labels": {"pod-security.kubernetes.io/enforce": "privileged"}}), "say who may do what"),
        (json!({"annotations": {"field.cattle.io/projectId": "p"}}), "say who may do what"),
        (json!({"labels": {"coppice.dev/root": "x"}}), "say who may do what"),
        (json!({"labels": {"tier": "a b"}}), "write a label's value"),
        (json!({"labels": {"-tier": "a"}}), "write a label's key"),
        (json!({"annotations": {"a/b/c": ""}}), "write an annotation's key"),
    ] {
        let error = change(cluster, &metadata).await.err().context("it is refused")?;
        ensure!(format!("{error:#}").contains(said), "{metadata}: {error:#}");
    }
    for keys in [
        json!({"allowed": {"labels": ["kubernetes.io/x"]}}),
        json!({"inherited": {"annotations": ["x.k8s.io/y"]}}),
    ] {
        let patch = json!({"spec": {"metadata": keys}});
        let error = cluster.test_cluster.admin().await?.patch("nstree", "", "shop", &patch).await.err();
        let error = error.context("it is refused")?;
        ensure!(format!("{error:#}").contains("say who may do what"), "{keys}: {error:#}");
    }
    change(cluster, &json!({"labels": {"owner": null}})).await?;
    cluster.ready("shop", "shop-web").await?;
    has(cluster, "shop-web", &json!({"tier": "db"}), &json!({})).await
}

/// A tree that says nothing of metadata any more takes back what it gave.
async fn ends(cluster: &Setup) -> Test {
    change(cluster, &json!({"labels": {"tier": null}})).await?;
    has(cluster, "shop-web", &json!({"tier": null}), &json!({})).await?;
    let patch = json!({"spec": {"metadata": null}});
    cluster.test_cluster.admin().await?.patch("nstree", "", "shop", &patch).await?;
    let gone = json!({"team": null, "stage": null});
    has(cluster, "shop-web", &gone, &json!({})).await?;
    has(cluster, "shop-web-a", &json!({"team": null, "stage": null, "own": "x"}), &json!({})).await?;
    let object = cluster.ready("shop", "shop-web").await?;
    ensure!(condition(&object, "Ready")["reason"] == "Reconciled", "{object:#}");
    ensure!(object["status"]["metadata"].is_null(), "{object:#}");
    has(cluster, "shop", &json!({"team": "store", "stage": "prod"}), &json!({})).await
}

/// As many labels as a tree can name, all of them exchanged for others at once.
async fn exchanges(cluster: &Setup) -> Test {
    const MOST: usize = 32;
    let keys = |prefix: &str| (0..MOST).map(|n| format!("{prefix}-{n}")).collect::<Vec<_>>();
    let labels = |prefixes: &[&str], value: &Value| {
        let keys = prefixes.iter().flat_map(|prefix| keys(prefix));
        Value::Object(keys.map(|key| (key, value.clone())).collect())
    };
    let (there, gone) = (json!("x"), Value::Null);
    let admin = cluster.test_cluster.admin().await?;
    let names = async |allowed: &str, inherited: &str| {
        let metadata =
            json!({"allowed": {"labels": keys(allowed)}, "inherited": {"labels": keys(inherited)}});
        admin.patch("nstree", "", "big", &json!({"spec": {"metadata": metadata}})).await
    };
    cluster.tree("big", &json!({"pods": "10"})).await?;
    let above = json!({"metadata": {"labels": labels(&["above-a", "above-b"], &there)}});
    admin.patch("namespace", "", "big", &above).await?;
    names("asked-a", "above-a").await?;
    let asked = json!({"apiVersion": "coppice.dev/v1alpha1", "kind": "Subnamespace",
        "metadata": {"name": "big-a", "namespace": "big"},
        "spec": {"quota": {"hard": {"pods": "1"}}, "metadata": {"labels": labels(&["asked-a"], &there)}}});
    admin.create(&asked).await?;
    has(cluster, "big-a", &labels(&["asked-a", "above-a"], &there), &json!({})).await?;
    // What is asked for is not allowed now, and everything stays as it is until that is put right.
    names("asked-b", "above-b").await?;
    let (reason, _) = cluster.refused("big", "big-a").await?;
    ensure!(reason == "MetadataNotAllowed", "{reason}");
    let mut others = labels(&["asked-a"], &gone);
    others.as_object_mut().context("labels")?.extend(
        labels(&["asked-b"], &there).as_object().into_iter().flatten().map(|(k, v)| (k.clone(), v.clone())),
    );
    admin.patch("sns", "big", "big-a", &json!({"spec": {"metadata": {"labels": others}}})).await?;
    has(cluster, "big-a", &labels(&["asked-b", "above-b"], &there), &json!({})).await?;
    has(cluster, "big-a", &labels(&["asked-a", "above-a"], &gone), &json!({})).await?;
    cluster.ready("big", "big-a").await.map(drop)
}
