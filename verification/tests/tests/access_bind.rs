//! Rights by a role that the target has (`spec.rights.bind`), in some of its namespaces. It is a part of a test of `access.rs`.

use anyhow::ensure;
use coppice_tests::condition;
use coppice_tests::requests::Requests;
use serde_json::{Value, json};

use super::access::{Clusters, is_settled, refused};

type Test = anyhow::Result<()>;

/// A Role of the target, in both of the namespaces, which permits less than the ClusterRole `view`.
const READERS: &str = "
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: reader, namespace: shop}
rules: [{apiGroups: [''], resources: [configmaps], verbs: [get, list]}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: reader, namespace: stock}
rules: [{apiGroups: [''], resources: [configmaps], verbs: [get, list]}]
";

/// `ci` has what `view` permits in two namespaces of the target, then what a Role permits in one of them. Who has the last credential.
pub(crate) async fn bound(clusters: &Clusters) -> anyhow::Result<Requests> {
    clusters.there.namespace("stock").await?;
    clusters.there.apply(READERS).await?;
    let view = json!({"role": null, "bind": {"clusterRole": "view", "namespaces": ["shop", "stock"]}});
    let holder = verified(clusters, "view", &view).await?;
    for namespace in ["shop", "stock"] {
        for kind in ["configmap", "pod"] {
            let permitted = async || holder.list(kind, namespace).await.ok().map(drop);
            clusters.there.until(&format!("a {kind} of {namespace} is shown"), permitted).await?;
        }
        // What `view` leaves out.
        refused(holder.list("secret", namespace).await, "Forbidden")?;
    }
    refused(holder.list("configmap", "default").await, "Forbidden")?;
    is_bound(clusters, &json!({"kind": "ClusterRole", "name": "view"}), &["shop", "stock"]).await?;

    let reader = json!({"bind": {"clusterRole": null, "role": "reader", "namespaces": ["stock"]}});
    let holder = verified(clusters, "reader", &reader).await?;
    for (kind, namespace) in [("pod", "stock"), ("configmap", "shop")] {
        let forbidden = async || {
            let answer = holder.list(kind, namespace).await;
            answer.is_err_and(|error| error.to_string().contains("Forbidden")).then_some(())
        };
        clusters.there.until(&format!("no {kind} of {namespace} is shown"), forbidden).await?;
    }
    let permitted = async || holder.list("configmap", "stock").await.ok().map(drop);
    clusters.there.until("a ConfigMap of stock is shown", permitted).await?;
    is_bound(clusters, &json!({"kind": "Role", "name": "reader"}), &["stock"]).await?;
    Ok(holder)
}

/// Gives `ci` other rights and another credential, which is tried out with these; who has it.
async fn verified(clusters: &Clusters, id: &str, rights: &Value) -> anyhow::Result<Requests> {
    clusters.change("ci", &json!({"rights": rights, "rotate": id})).await?;
    let is_rotated = |o: &Value| is_settled(o) && o["status"]["rotated"] == id;
    let ci = clusters.until("ci", id, is_rotated).await?;
    let verified = condition(&ci, "Verified");
    let is_of_these = verified["observedGeneration"] == ci["metadata"]["generation"];
    ensure!(verified["status"] == "True" && is_of_these, "{ci:#}");
    clusters.holder("ci-kubeconfig").await
}

/// Whether the target has a binding of this role in each of these namespaces, and nothing else that gives a right.
async fn is_bound(clusters: &Clusters, role: &Value, namespaces: &[&str]) -> Test {
    for kind in ["role", "clusterrole", "clusterrolebinding"] {
        let found = clusters.in_target(kind).await?;
        ensure!(found.is_empty(), "{kind}: {found:#?}");
    }
    let bindings = clusters.in_target("rolebinding").await?;
    let mut found: Vec<&str> =
        bindings.iter().filter_map(|binding| binding["metadata"]["namespace"].as_str()).collect();
    found.sort_unstable();
    ensure!(found == namespaces, "{bindings:#?}");
    for binding in &bindings {
        let of = &binding["roleRef"];
        ensure!(of["kind"] == role["kind"] && of["name"] == role["name"], "{binding:#}");
    }
    Ok(())
}
