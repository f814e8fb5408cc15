//! A tree that limits other resources than `cpu` and `pods`, each by whichever of its names: a real API server admits what a namespace of it was
//! given, and no more.

use anyhow::{Context as _, ensure};
use coppice_plane::ADMIN;
use coppice_tests::condition;
use serde_json::{Value, json};

use crate::trees::{Setup, on_shared_trees};
use crate::trees_transfers::approved;

type Test = anyhow::Result<()>;

const GOLD: &str = "gold.storageclass.storage.k8s.io/requests.storage";
const GPU: &str = "requests.nvidia.com/gpu";

#[test]
fn whatever_a_tree_limits_its_namespaces_get_and_the_api_server_holds() -> Test {
    on_shared_trees(async |cluster| {
        let tree = json!({
            "cpu": "4", "limits.memory": "8Gi", "requests.hugepages-2Mi": "16Mi", GPU: "4", GOLD: "100Gi",
            "count/deployments.apps": "4", "count/services": "6", "services.nodeports": "4", "services.loadbalancers": "2"
        });
        cluster.tree("goods", &tree).await?;
        let is_ready = |tree: &Value| condition(tree, "Ready")["status"] == "True";
        cluster.until(("nstree", "", "goods"), "Ready", is_ready).await?;
        is_given(cluster).await?;
        moves(cluster).await?;
        is_used(cluster).await?;
        is_held(cluster).await
    })
}

/// What the API server limits a namespace to now.
async fn in_force(cluster: &Setup, namespace: &str) -> anyhow::Result<Value> {
    let quota = cluster.test_cluster.get("quota", namespace, "coppice").await?;
    let quota = quota.with_context(|| format!("{namespace} has no quota"))?;
    ensure!(quota["spec"]["hard"] == quota["status"]["hard"], "{quota:#}");
    Ok(quota["status"]["hard"].clone())
}

/// A share of each, some by other names than those that the tree has: what has two names is one resource.
async fn is_given(cluster: &Setup) -> Test {
    let share = json!({
        "requests.cpu": "1500m", "limits.memory": "1Gi", "hugepages-2Mi": "4Mi", GPU: "3", GOLD: "10Gi",
        "count/deployments.apps": "1", "services": "3", "services.nodeports": "1", "services.loadbalancers": "1"
    });
    cluster.request(ADMIN, "goods", "goods-web", &share).await?;
    cluster.ready("goods", "goods-web").await?;
    let web = in_force(cluster, "goods-web").await?;
    let given = json!({
        "cpu": "1500m", "limits.memory": "1Gi", "hugepages-2Mi": "4Mi", GPU: "3", GOLD: "10Gi",
        "count/deployments.apps": "1", "services": "3", "services.nodeports": "1", "services.loadbalancers": "1"
    });
    ensure!(web == given, "{web:#}");
    let root = in_force(cluster, "goods").await?;
    let left = json!({
        "cpu": "2500m", "limits.memory": "7Gi", "hugepages-2Mi": "12Mi", GPU: "1", GOLD: "90Gi",
        "count/deployments.apps": "3", "services": "3", "services.nodeports": "3", "services.loadbalancers": "1"
    });
    ensure!(root == left, "{root:#}");
    // What is not there is refused by the name that the resource has in the tree.
    cluster.request(ADMIN, "goods", "goods-more", &json!({"requests.cpu": "3"})).await?;
    let (reason, message) = cluster.refused("goods", "goods-more").await?;
    let numbers = "cpu: needs 3 more, and goods can give 2500m";
    ensure!(reason == "QuotaRefused" && message.contains(numbers), "{reason}: {message}");
    cluster.delete(ADMIN, "goods", "goods-more").await?;
    cluster.gone("goods", "goods-more").await
}

/// One of them is transferred, and nothing else with it.
async fn moves(cluster: &Setup) -> Test {
    cluster.request(ADMIN, "goods", "goods-api", &json!({"requests.cpu": "1"})).await?;
    cluster.ready("goods", "goods-api").await?;
    let mut transfer = approved(ADMIN, "gpu", ("goods-web", "goods-api", "goods"), "0");
    transfer["spec"]["amount"] = json!({GPU: "1"});
    cluster.transfers(ADMIN, &transfer).await?;
    let (_, message) = cluster.phase("goods-web", "gpu", "Completed").await?;
    ensure!(message == format!("namespace goods-api has 1 {GPU} from namespace goods-web"), "{message}");
    let arrived = async || {
        let limits = in_force(cluster, "goods-api").await.ok()?;
        (limits[GPU] == "1" && limits["cpu"] == "1" && limits[GOLD] == "0").then_some(())
    };
    cluster.test_cluster.until("goods-api has the GPU", arrived).await?;
    let web = in_force(cluster, "goods-web").await?;
    ensure!(web[GPU] == "2" && web[GOLD] == "10Gi" && web["cpu"] == "1500m", "{web:#}");
    let root = in_force(cluster, "goods").await?;
    ensure!(root[GPU] == "1" && root["cpu"] == "1500m", "{root:#}");
    Ok(())
}

fn object((version, kind): (&str, &str), name: &str, spec: &Value) -> Value {
    json!({"apiVersion": version, "kind": kind, "metadata": {"name": name, "namespace": "goods-web"}, "spec": spec})
}

fn pod(name: &str, requests: &Value, limits: &Value) -> Value {
    let resources = json!({"requests": requests, "limits": limits});
    let containers = json!([{"name": "c", "image": "busybox", "resources": resources}]);
    object(("v1", "Pod"), name, &json!({"containers": containers}))
}

fn claim(name: &str, storage: &str) -> Value {
    let spec = json!({"storageClassName": "gold", "accessModes": ["ReadWriteOnce"],
        "resources": {"requests": {"storage": storage}}});
    object(("v1", "PersistentVolumeClaim"), name, &spec)
}

fn service(name: &str, kind: &str) -> Value {
    let mut spec = json!({"type": kind, "ports": [{"port": 80}]});
    if kind == "LoadBalancer" {
        // Otherwise it has a port of nodes, too.
        spec["allocateLoadBalancerNodePorts"] = json!(false);
    }
    object(("v1", "Service"), name, &spec)
}

fn deployment(name: &str) -> Value {
    let spec = json!({"replicas": 0, "selector": {"matchLabels": {"a": "b"}}, "template": {
        "metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "busybox"}]}
    }});
    object(("apps/v1", "Deployment"), name, &spec)
}

/// The namespace uses nearly all that it has, and the API server counts it.
async fn is_used(cluster: &Setup) -> Test {
    cluster.test_cluster.account("goods-web").await?;
    let admin = cluster.test_cluster.admin().await?;
    let limits = json!({"memory": "512Mi", "hugepages-2Mi": "4Mi", "nvidia.com/gpu": "2"});
    for fits in [
        pod("fits", &json!({"cpu": "500m", "hugepages-2Mi": "4Mi"}), &limits),
        claim("fits", "10Gi"),
        service("fits-node", "NodePort"),
        service("fits-balancer", "LoadBalancer"),
        deployment("fits"),
    ] {
        admin.create(&fits).await?;
    }
    let used = json!({
        "cpu": "500m", "limits.memory": "512Mi", "hugepages-2Mi": "4Mi", GPU: "2", GOLD: "10Gi",
        "count/deployments.apps": "1", "services": "2", "services.nodeports": "1", "services.loadbalancers": "1"
    });
    let counted = async || {
        let quota = cluster.test_cluster.get("quota", "goods-web", "coppice").await.ok()??;
        (quota["status"]["used"] == used).then_some(())
    };
    cluster.test_cluster.until("all of it is counted", counted).await
}

/// One object more of each is refused, for the one resource of which there is not enough.
async fn is_held(cluster: &Setup) -> Test {
    let admin = cluster.test_cluster.admin().await?;
    let little = json!({"cpu": "1m"});
    for (resource, beyond) in [
        ("cpu", pod("beyond", &json!({"cpu": "1100m"}), &json!({"memory": "1Mi"}))),
        ("limits.memory", pod("beyond", &little, &json!({"memory": "513Mi"}))),
        ("hugepages-2Mi", pod("beyond", &little, &json!({"memory": "1Mi", "hugepages-2Mi": "2Mi"}))),
        (GPU, pod("beyond", &little, &json!({"memory": "1Mi", "nvidia.com/gpu": "1"}))),
        (GOLD, claim("beyond", "1Gi")),
        ("services.nodeports", service("beyond", "NodePort")),
        ("services.loadbalancers", service("beyond", "LoadBalancer")),
        ("count/deployments.apps", deployment("beyond")),
    ] {
        let refused = admin.create(&beyond).await.err().with_context(|| format!("{resource}: admitted"))?;
        let refused = format!("{refused:#}");
        let says = format!("exceeded quota: coppice, requested: {resource}=");
        ensure!(refused.contains(&says), "{resource}: {refused}");
    }
    Ok(())
}
