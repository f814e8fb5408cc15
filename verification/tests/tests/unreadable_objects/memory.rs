//! Large objects do not grow the operator's memory.

use anyhow::{Context as _, ensure};
use coppice_plane::{ADMIN, Options, Pods};
use coppice_tests::{Operator, TestCluster, on_own_plane};
use futures::{StreamExt as _, TryStreamExt as _};
use serde_json::{Value, json};

use super::{DUE, PASSED, Test, job, labels, says, too_large};

/// By how much all of them may grow the operator, in KiB. If it kept them, 40 managers and 8 Jobs would grow it by 61 to 78
/// MiB, and the attack by 393.
const GROWTH: u64 = 32 << 10;
/// The memory limit of its manifest, in KiB.
const LIMIT: u64 = 256 << 10;
/// So many managers of a namespace are followed.
const IN_A_NAMESPACE: usize = 20;
const CRD: &str = "namespacemanagers.coppice.dev";

/// `COPPICE_TEST_LARGE_MANAGERS=184 COPPICE_TEST_LARGE_JOBS=200` is the attack that the operator once did not survive.
fn count(variable: &str, otherwise: usize) -> usize {
    std::env::var(variable).ok().and_then(|text| text.parse().ok()).unwrap_or(otherwise)
}

/// The namespace of a large manager.
fn crowd(n: usize) -> String {
    format!("crowd-{}", n / IN_A_NAMESPACE)
}

/// One with 1.2 MB in a selector.
fn manager(namespace: &str, name: &str) -> Value {
    let values: Vec<_> = (0..20).map(|n| format!("{n:02}{}", "v".repeat(60_000))).collect();
    let selector = json!({"matchExpressions": [{"key": "app", "operator": "NotIn", "values": values}]});
    let policy =
        json!({"name": "end", "when": {"podsSucceed": {"selector": selector}}, "then": {"delete": {}}});
    let metadata = json!({"name": name, "namespace": namespace});
    let spec = json!({"policies": [policy]});
    json!({"apiVersion": "coppice.dev/v1alpha1", "kind": "NamespaceManager", "metadata": metadata, "spec": spec})
}

async fn create_all(test_cluster: &TestCluster, objects: impl Iterator<Item = Value>) -> Test {
    let admin = &test_cluster.admin().await?;
    let created = futures::stream::iter(objects).map(async |object| admin.create_unseen(&object).await);
    created.buffer_unordered(4).try_fold((), async |(), ()| Ok(())).await
}

/// Defines managers.
async fn define(test_cluster: &TestCluster, spec: &Value) -> Test {
    let kind = "CustomResourceDefinition";
    let metadata = json!({"name": CRD});
    let crd =
        json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": kind, "metadata": metadata, "spec": spec});
    test_cluster.admin().await?.apply(&crd).await.map(drop)
}

/// Stores large managers by a definition without bounds, and puts the bounds back: the API server keeps what is stored.
async fn store_managers(test_cluster: &TestCluster, count: usize) -> Test {
    let admin = test_cluster.admin().await?;
    let bounded = test_cluster.get("crd", "", CRD).await?.context("the definition of managers")?;
    let mut unbounded = bounded["spec"].clone();
    unbounded["versions"][0]["schema"]["openAPIV3Schema"] =
        json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    define(test_cluster, &unbounded).await?;
    let probe = manager("default", "probe");
    let accepted = async || admin.create_unseen(&probe).await.ok();
    test_cluster.until("a large manager is accepted", accepted).await?;
    create_all(test_cluster, (0..count).map(|n| manager(&crowd(n), &format!("m-{n:03}")))).await?;
    define(test_cluster, &bounded["spec"]).await?;
    let refused = async || {
        admin.delete("nsman", "default", "probe", &json!({})).await.ok();
        let refusal = admin.create_unseen(&probe).await.err()?;
        refusal.to_string().contains("may not be more than 63").then_some(())
    };
    test_cluster.until("a large manager is refused", refused).await
}

/// Waits until each large manager says why nothing comes of it.
async fn refused(test_cluster: &TestCluster, count: usize) -> Test {
    let why = "bytes, more than the 131072 that are read: shorten it";
    // In a table: to read each of them whole takes a while.
    let all = async || {
        let table =
            test_cluster.kubectl(ADMIN, &["get", "nsman", "--all-namespaces", "-o", "wide"]).await.ok()?;
        let refused = table.lines().filter(|line| line.contains(" Refused ") && line.contains(why));
        (refused.count() == count).then_some(())
    };
    test_cluster.until("every large manager is refused", all).await?;
    let manager = test_cluster.phase(&crowd(0), "m-000", "Refused").await?;
    ensure!(manager["status"]["next"]["reason"] == "InvalidSpec", "{}", manager["status"]);
    Ok(())
}

/// Waits until no large Job is kept.
async fn unreadable(test_cluster: &TestCluster, operator: &Operator, count: usize) -> Test {
    let count = Some(f64::from(u32::try_from(count)?));
    let all = async || (too_large(operator).await.ok()? == count).then_some(());
    test_cluster
        .until("every large Job is seen and not kept", all)
        .await
        .with_context(|| operator.last_lines())
}

/// Somebody else's namespace is deleted when its time has come.
async fn others_go_on(test_cluster: &TestCluster, operator: &Operator, name: &str) -> Test {
    let uid = test_cluster.namespace(name).await?;
    test_cluster.manager(name, "m", DUE).await?;
    let deleted = async || test_cluster.is_deleted(name, &uid).await.then_some(());
    let deleted = test_cluster.until(&format!("namespace {name} is deleted"), deleted).await;
    deleted.with_context(|| operator.last_lines())
}

/// Resident memory of the operator, in KiB.
fn resident(operator: &Operator, when: &str) -> anyhow::Result<u64> {
    let sample = operator.sample()?;
    eprintln!("{when}: {} KiB resident, {} at the peak", sample.rss, sample.peak);
    ensure!(sample.peak < LIMIT, "{when}: {} KiB at the peak", sample.peak);
    Ok(sample.rss)
}

/// Waits until it has given back what it took to read them.
async fn stays_small(test_cluster: &TestCluster, operator: &Operator, before: u64, when: &str) -> Test {
    let small = async || (operator.sample().ok()?.rss < before + GROWTH).then_some(());
    let given_back = test_cluster.until("its memory is given back", small).await;
    let now = resident(operator, when)?;
    given_back.with_context(|| format!("{when}: {before} KiB have become {now}"))
}

#[test]
fn what_tenants_write_does_not_decide_how_much_memory_is_taken() -> Test {
    on_own_plane(async {
        let managers = count("COPPICE_TEST_LARGE_MANAGERS", 4);
        let jobs = count("COPPICE_TEST_LARGE_JOBS", 1);
        // An audit log would keep all of it.
        let options = Options { audit: false, pods: Pods::Pending, ..Options::default() };
        let test_cluster = TestCluster::bare(options).await?;
        test_cluster.install().await?;
        let mut operator = Operator::start(&test_cluster).await?;
        others_go_on(&test_cluster, &operator, "before").await?;
        let before = resident(&operator, "before")?;
        operator.terminate().await?;

        for n in (0..managers).step_by(IN_A_NAMESPACE) {
            test_cluster.namespace(&crowd(n)).await?;
        }
        store_managers(&test_cluster, managers).await?;
        let mut operator = Operator::start(&test_cluster).await?;
        refused(&test_cluster, managers).await?;
        stays_small(&test_cluster, &operator, before, "with large managers").await?;
        test_cluster.namespace("large-jobs").await?;
        let metadata = json!({"labels": labels()});
        create_all(&test_cluster, (0..jobs).map(|n| job("large-jobs", &format!("j-{n:03}"), &metadata)))
            .await?;
        unreadable(&test_cluster, &operator, jobs).await?;
        test_cluster.manager("large-jobs", "m", PASSED).await?;
        test_cluster.manager_until("large-jobs", "m", "TooLarge", |m| says(m, "TooLarge")).await?;
        others_go_on(&test_cluster, &operator, "beside").await?;
        stays_small(&test_cluster, &operator, before, "with large managers and Jobs").await?;

        // After a restart they come in pages instead of events.
        operator.terminate().await?;
        let operator = Operator::start(&test_cluster).await?;
        unreadable(&test_cluster, &operator, jobs).await?;
        others_go_on(&test_cluster, &operator, "after").await?;
        stays_small(&test_cluster, &operator, before, "started again").await
    })
}
