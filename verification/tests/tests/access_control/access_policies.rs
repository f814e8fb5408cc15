//! What the account of `coppice-access` may not write, and what nobody else may: its policies of admission and its rights.

use anyhow::ensure;
use coppice_plane::ADMIN;
use coppice_tests::TestCluster;
use serde_json::{Value, json};

use super::raw_requests::{JSON, MERGE, PLAIN, Wire, event};
use crate::access::{ACCOUNT, access};

type Test = anyhow::Result<()>;

const ACCESS: &str = "/apis/coppice.dev/v1alpha1/namespaces/team/clusteraccesses/policy";
const MANAGED: &str = "/apis/coppice.dev/v1alpha1/namespaces/team/managedclusters/policy";
const PROVIDER: &str = "/apis/coppice.dev/v1alpha1/clusterproviders/policy";
const FINALIZER: &str = "coppice.dev/cleanup";
const OWN: &str = "Coppice changes nothing of a ClusterAccess or ManagedCluster but its finalizer";
const STATUS: &str = "Only Coppice writes status";

/// While the program does not run.
pub(crate) async fn hold(here: &TestCluster) -> Test {
    // What is refused to it is refused by policy alone: it is in the name of the account, and RBAC permits everything.
    let account = Wire::impersonating(here, ACCOUNT, &["system:masters"])?;
    let (admin, requests) = (Wire::new(here, ADMIN)?, here.admin().await?);
    let served = async || {
        requests.list("mcl", "").await.ok()?;
        requests.list("clprov", "").await.ok()
    };
    here.until("all kinds are served", served).await?;
    for object in [access("policy", "policy"), managed(), provider()] {
        requests.create(&object).await?;
    }
    for spec in [json!({"suspend": true}), json!({"rotate": "now"}), json!({"ttl": "10m"})] {
        unchanged(&account, ACCESS, &json!({"spec": spec})).await?;
    }
    unchanged(&account, MANAGED, &json!({"spec": {"version": "1.34.0"}})).await?;
    for path in [ACCESS, MANAGED] {
        metadata(&account, &admin, path).await?;
    }
    status(here, &account, &admin).await?;
    finalizers(&account, &admin).await?;
    leases_and_events(&account, &admin).await?;
    rights(here).await?;
    for (kind, namespace) in [("clacc", "team"), ("mcl", "team"), ("clprov", "")] {
        requests.delete(kind, namespace, "policy", &json!({})).await?;
    }
    Ok(())
}

fn managed() -> Value {
    json!({"apiVersion": "coppice.dev/v1alpha1", "kind": "ManagedCluster", "metadata": {"name": "policy", "namespace": "team"},
        "spec": {"provider": {"clusterAPI": {"class": "small"}}, "version": "1.33.4"}})
}

fn provider() -> Value {
    json!({"apiVersion": "coppice.dev/v1alpha1", "kind": "ClusterProvider", "metadata": {"name": "policy"},
        "spec": {"credential": {"secret": "policy"}}})
}

/// The account does not change this, by no kind of write.
async fn unchanged(account: &Wire, path: &str, change: &Value) -> Test {
    let before = account.get(path).await?;
    for answer in account.every_write(path, change).await? {
        ensure!(answer.refused(OWN), "{path}: {change}: {answer:?}");
    }
    let after = account.get(path).await?;
    ensure!(after["metadata"]["resourceVersion"] == before["metadata"]["resourceVersion"], "{after:#}");
    Ok(())
}

/// Of metadata the account changes its own finalizer alone.
async fn metadata(account: &Wire, admin: &Wire, path: &str) -> Test {
    let owner = json!([{"apiVersion": "v1", "kind": "ConfigMap", "name": "x", "uid": "11111111-2222-3333-4444-555555555555"}]);
    for (field, value) in [
        ("labels", json!({"a": "b"})),
        ("annotations", json!({"a": "b"})),
        ("ownerReferences", owner),
        ("finalizers", json!(["example.org/never"])),
    ] {
        unchanged(account, path, &json!({"metadata": {field: value}})).await?;
    }
    let with = |finalizers: &[&str]| json!({"metadata": {"finalizers": finalizers}});
    for answer in account.every_write(path, &with(&[FINALIZER])).await? {
        ensure!(answer.accepted(), "{path}: {answer:?}");
    }
    let merged = async |by: &Wire, finalizers: &[&str]| by.send("PATCH", path, MERGE, with(finalizers)).await;
    let theirs = [FINALIZER, "example.org/theirs"];
    ensure!(merged(admin, &theirs).await?.accepted(), "{path}");
    let answer = merged(account, &[FINALIZER]).await?;
    ensure!(answer.refused(OWN), "{path}: {answer:?}");
    // While nothing was issued or made whoever may write it takes it off.
    ensure!(merged(admin, &[]).await?.accepted(), "{path}");
    ensure!(merged(account, &[FINALIZER]).await?.accepted(), "{path}");
    Ok(())
}

/// Status is written by the account alone.
async fn status(here: &TestCluster, account: &Wire, admin: &Wire) -> Test {
    for (path, status) in
        [(ACCESS, json!({"sequence": 1})), (PROVIDER, json!({"waiting": 1})), (MANAGED, json!({"hash": "x"}))]
    {
        let (path, body) = (format!("{path}/status"), json!({"status": status}));
        let refused = async || {
            let answer = admin.send("PATCH", &path, MERGE, body.clone()).await.ok()?;
            answer.refused(STATUS).then_some(())
        };
        here.until(&format!("nobody else writes {path}"), refused).await?;
        let step = json!([{"op": "add", "path": "/status", "value": status}]);
        let answer = admin.send("PATCH", &path, JSON, step).await?;
        ensure!(answer.refused(STATUS), "{path}: {answer:?}");
        let answer = account.send("PATCH", &path, MERGE, body).await?;
        ensure!(answer.accepted(), "{path}: {answer:?}");
    }
    Ok(())
}

/// What has issued or made something keeps the finalizer until the account takes it off.
async fn finalizers(account: &Wire, admin: &Wire) -> Test {
    for (path, says) in
        [(ACCESS, "until its credential is revoked"), (MANAGED, "until its cluster is deleted")]
    {
        let none = json!({"metadata": {"finalizers": null}});
        let step = json!([{"op": "remove", "path": "/metadata/finalizers"}]);
        let mut stripped = admin.get(path).await?;
        stripped["metadata"]["finalizers"] = json!([]);
        for (method, media, body) in
            [("PATCH", MERGE, none.clone()), ("PATCH", JSON, step), ("PUT", PLAIN, stripped)]
        {
            let answer = admin.send(method, path, media, body).await?;
            ensure!(answer.refused(says), "{path}: {media}: {answer:?}");
        }
        let answer = account.send("PATCH", path, MERGE, none).await?;
        ensure!(answer.accepted(), "{path}: {answer:?}");
    }
    Ok(())
}

/// Its own Lease, and Events in its own name.
async fn leases_and_events(account: &Wire, admin: &Wire) -> Test {
    let leases = "/apis/coordination.k8s.io/v1/namespaces/coppice-access-system/leases?dryRun=All";
    let lease = |name: &str| json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": name}});
    let answer = account.send("POST", leases, PLAIN, lease("other")).await?;
    ensure!(answer.refused("creates no Lease but coppice-access"), "{answer:?}");
    let answer = account.send("POST", leases, PLAIN, lease("coppice-access")).await?;
    ensure!(answer.accepted(), "{answer:?}");
    let events = "/apis/events.k8s.io/v1/namespaces/team/events";
    let answer = admin.send("POST", events, PLAIN, event("team", "theirs", "kubelet")).await?;
    ensure!(answer.accepted(), "{answer:?}");
    let forged = json!({"metadata": {"labels": {"x": "y"}}});
    for answer in [
        account.send("POST", events, PLAIN, event("team", "forged", "kubelet")).await?,
        account.send("PATCH", &format!("{events}/theirs"), MERGE, forged.clone()).await?,
        account.send("PATCH", "/api/v1/namespaces/team/events/theirs", MERGE, forged).await?,
    ] {
        ensure!(answer.refused("Coppice writes Events in its own name only"), "{answer:?}");
    }
    let answer = account.send("POST", events, PLAIN, event("team", "ours", "coppice")).await?;
    ensure!(answer.accepted(), "{answer:?}");
    Ok(())
}

/// What no policy is about its roles do not permit.
async fn rights(here: &TestCluster) -> Test {
    let account = Wire::impersonating(here, ACCOUNT, &[])?;
    let (all, object) = ("/apis/coppice.dev/v1alpha1/clusterproviders", provider());
    let spec = json!({"spec": {"callsPerMinute": 1000}});
    for (verb, answer) in [
        ("patch", account.send("PATCH", PROVIDER, MERGE, spec).await?),
        ("create", account.send("POST", all, PLAIN, object).await?),
        ("delete", account.send("DELETE", PROVIDER, PLAIN, json!({})).await?),
        ("delete", account.send("DELETE", ACCESS, PLAIN, json!({})).await?),
        ("delete", account.send("DELETE", MANAGED, PLAIN, json!({})).await?),
    ] {
        ensure!(
            answer.code == 403 && answer.refused(&format!("cannot {verb} resource")),
            "{verb}: {answer:?}"
        );
    }
    Ok(())
}
