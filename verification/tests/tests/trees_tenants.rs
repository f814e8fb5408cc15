//! Many tenants, each in a namespace of their own, ask together for more than fits: on a real API server they get exactly what fits.

use anyhow::ensure;
use coppice_tests::condition;
use futures::future::try_join_all;
use serde_json::{Value, json};

use crate::access_control::raw_requests::{PLAIN, Wire};
use crate::trees::{Setup, on_shared_trees, subnamespace};
use crate::trees_access::of;
use crate::trees_quotas::Quotas;

type Test = anyhow::Result<()>;

/// The root, and the pods of its tree: as many as its tenants have together.
const ROOT: &str = "many";
const PODS: usize = 40;
/// What they ask for together.
const ASKED: usize = 44;
const TENANTS: usize = 16;

/// How many pods the namespace of a tenant has, and for how many namespaces with one pod they ask.
const fn shares(tenant: usize) -> (usize, usize) {
    match tenant {
        0..4 => (2, 3),
        4..12 => (3, 3),
        _ => (2, 2),
    }
}

fn namespace(tenant: usize) -> String {
    format!("{ROOT}-{tenant:02}")
}

#[test]
fn tenants_who_ask_together_for_more_than_fits_get_exactly_what_fits() -> Test {
    on_shared_trees(async |cluster| {
        let quotas = Quotas::of_tree(ROOT, &cluster.test_cluster).await?;
        let pods = (0..TENANTS).map(|tenant| shares(tenant).0).sum::<usize>();
        let asked = (0..TENANTS).map(|tenant| shares(tenant).1).sum::<usize>();
        ensure!((pods, asked) == (PODS, ASKED), "{pods} pods, {asked} namespaces");
        let tenants = prepare(cluster).await?;
        let asks = (0..TENANTS).flat_map(|tenant| (0..shares(tenant).1).map(move |one| (tenant, one)));
        try_join_all(asks.map(|(tenant, one)| ask(&tenants[tenant], tenant, one))).await?;
        cluster.test_cluster.until("all are answered", async || answered(cluster).await).await?;
        refusals_have_numbers(cluster).await?;
        sums(cluster).await?;
        quotas.never_beyond(&PODS.to_string())
    })
}

/// Each tenant is admin in one namespace, and nowhere else.
async fn prepare(cluster: &Setup) -> anyhow::Result<Vec<Wire>> {
    cluster.tree(ROOT, &json!({"pods": PODS.to_string()})).await?;
    let is_ready = |tree: &Value| condition(tree, "Ready")["status"] == "True";
    cluster.until(("nstree", "", ROOT), "Ready", is_ready).await?;
    let own = |tenant| subnamespace(ROOT, &namespace(tenant), &json!({"pods": shares(tenant).0.to_string()}));
    let all: Vec<Value> = (0..TENANTS).map(own).collect();
    cluster.test_cluster.admin().await?.create_all(&all).await?;
    let mut tenants = Vec::new();
    for tenant in 0..TENANTS {
        cluster.ready(ROOT, &namespace(tenant)).await?;
        tenants.push(admin_of(cluster, tenant).await?);
    }
    Ok(tenants)
}

async fn admin_of(cluster: &Setup, tenant: usize) -> anyhow::Result<Wire> {
    let (group, namespace, user) =
        ("rbac.authorization.k8s.io", namespace(tenant), format!("tenant-{tenant:02}"));
    let binding = json!({
        "apiVersion": format!("{group}/v1"), "kind": "RoleBinding",
        "metadata": {"name": "tenant", "namespace": namespace},
        "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": "admin"},
        "subjects": [{"apiGroup": group, "kind": "User", "name": user}]
    });
    cluster.test_cluster.admin().await?.create(&binding).await?;
    let wire = Wire::impersonating(&cluster.test_cluster, &user, &[])?;
    let path = of(&namespace, "subnamespaces");
    let in_force = async || (wire.get(&path).await.ok()?["kind"] == "SubnamespaceList").then_some(());
    cluster.test_cluster.until(&format!("{user} has their rights"), in_force).await?;
    Ok(wire)
}

async fn ask(tenant: &Wire, number: usize, one: usize) -> Test {
    let parent = namespace(number);
    let object = subnamespace(&parent, &format!("{parent}-{one}"), &json!({"pods": "1"}));
    let answer = tenant.send("POST", &of(&parent, "subnamespaces"), PLAIN, object).await?;
    ensure!(answer.accepted(), "{parent}-{one}: {answer:?}");
    Ok(())
}

/// Whether of what each tenant has asked for as much is ready as fits, and the rest is refused.
async fn answered(cluster: &Setup) -> Option<()> {
    let objects = cluster.test_cluster.list("sns", "").await.ok()?;
    for tenant in 0..TENANTS {
        let own = objects.iter().filter(|object| object["metadata"]["namespace"] == namespace(tenant));
        let phases: Vec<&Value> = own.map(|object| &object["status"]["phase"]).collect();
        let count = |phase: &str| phases.iter().filter(|found| ***found == phase).count();
        let (has, asks) = shares(tenant);
        let fits = has.min(asks);
        ((count("Ready"), count("Refused")) == (fits, asks - fits)).then_some(())?;
    }
    Some(())
}

async fn refusals_have_numbers(cluster: &Setup) -> Test {
    let objects = cluster.test_cluster.list("sns", "").await?;
    let tenants: Vec<String> = (0..TENANTS).map(namespace).collect();
    let mut refused = 0;
    for object in objects.iter().filter(|object| object["status"]["phase"] == "Refused") {
        let parent = object["metadata"]["namespace"].as_str().unwrap_or_default();
        if !tenants.iter().any(|tenant| tenant == parent) {
            continue;
        }
        let ready = condition(object, "Ready");
        let numbers = format!("pods: needs 1 more, and {parent} can give 0");
        let message = ready["message"].as_str().unwrap_or_default();
        ensure!(ready["reason"] == "QuotaRefused" && message.contains(&numbers), "{ready:#}");
        refused += 1;
    }
    ensure!(refused == ASKED - PODS, "{refused} are refused");
    Ok(())
}

/// What the API server limits all namespaces of the tree to is what the tree has, all of it where it was asked for.
async fn sums(cluster: &Setup) -> Test {
    let quotas = cluster.test_cluster.list("quota", "").await?;
    let of_tree = quotas.iter().filter(|quota| quota["metadata"]["labels"]["coppice.dev/tree"] == ROOT);
    let (mut sum, mut of_tenants) = (0, 0);
    for quota in of_tree {
        ensure!(quota["spec"]["hard"] == quota["status"]["hard"], "{quota:#}");
        let pods = quota["status"]["hard"]["pods"].as_str().unwrap_or_default();
        let pods: usize = pods.parse()?;
        sum += pods;
        let namespace = quota["metadata"]["namespace"].as_str().unwrap_or_default();
        if namespace.rsplit_once('-').is_some_and(|(parent, _)| parent != ROOT) {
            of_tenants += pods;
        }
    }
    ensure!(
        (sum, of_tenants) == (PODS, PODS),
        "{sum} pods in all, {of_tenants} of them where they were asked for"
    );
    Ok(())
}
