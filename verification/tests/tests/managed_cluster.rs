//! A cluster that is made by Cluster API as a ManagedCluster says, changed, and deleted with it, and a ClusterAccess that names it. The test
//! plays Cluster API, and the plane itself is the cluster that is made.

use std::sync::{Mutex, PoisonError};

use anyhow::{Context as _, ensure};
use coppice_plane::{ADMIN, ALICE};
use coppice_tests::cluster_api::{self, SECRET_TYPE, create_kubeconfig};
use coppice_tests::program::Program;
use coppice_tests::test_cluster::{binary, repository};
use coppice_tests::{TestCluster, condition, on_own_plane};
use serde_json::{Value, json};

use super::access::{access, is_settled, refused};
use super::cli::coppice;

type Test = anyhow::Result<()>;

const ACCOUNT: &str = "system:serviceaccount:coppice-access-system:coppice-access";

/// May write ManagedClusters and ClusterAccesses, and neither a Cluster nor a Secret.
const AUTHOR: &str = "
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: author, namespace: team}
rules: [{apiGroups: [coppice.dev], resources: [managedclusters, clusteraccesses], verbs: [create]}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: author, namespace: team}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: author}
subjects: [{kind: User, name: alice, apiGroup: rbac.authorization.k8s.io}]
";
/// What the account of a probe with a cluster of its own needs, as the guide says.
const PROBER: &str = "
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: prober, namespace: team}
rules:
- {apiGroups: [coppice.dev], resources: [managedclusters, clusteraccesses], verbs: [create, list, delete]}
- {apiGroups: [coppice.dev], resources: [managedclusters], resourceNames: [shop], verbs: [get]}
- {apiGroups: [coppice.dev], resources: [clusteraccesses], resourceNames: [coppice-probe], verbs: [get, patch]}
- {apiGroups: [cluster.x-k8s.io], resources: [clusters], verbs: [create]}
- {apiGroups: [''], resources: [secrets], resourceNames: [coppice-probe, shop-kubeconfig], verbs: [get]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: prober, namespace: team}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: prober}
subjects: [{kind: User, name: alice, apiGroup: rbac.authorization.k8s.io}]
";
const FOREIGN: &str = "{apiVersion: cluster.x-k8s.io/v1beta2, kind: Cluster, metadata: {name: other, namespace: team}, spec: {paused: true}}";

fn managed_cluster() -> Value {
    json!({
        "apiVersion": "coppice.dev/v1alpha1", "kind": "ManagedCluster", "metadata": {"name": "shop", "namespace": "team"},
        "spec": {
            "provider": {"clusterAPI": {"class": "small"}}, "version": "1.33.4",
            "workers": [{"name": "a", "min": 1, "max": 1}]
        }
    })
}

/// Of the cluster that the ManagedCluster makes.
fn access_to_it() -> Value {
    let mut access = access("shop", "shop-access");
    access["spec"]["cluster"] = json!({"managedCluster": {"name": "shop"}});
    access["spec"]["rights"]["role"]["namespace"] = json!("team");
    access
}

struct Plane {
    here: TestCluster,
}

impl Plane {
    /// Waits until the object of that kind is so; the object.
    async fn until(&self, kind: &str, what: &str, is: impl Fn(&Value) -> bool) -> anyhow::Result<Value> {
        let last = Mutex::new(Value::Null);
        let reached = async || {
            let object = self.here.get(kind, "team", "shop").await.ok()??;
            if is(&object) {
                return Some(object);
            }
            *last.lock().unwrap_or_else(PoisonError::into_inner) = object;
            None
        };
        let found = self.here.until(&format!("{kind}: {what}"), reached).await;
        found.with_context(|| format!("it is {:#}", last.lock().unwrap_or_else(PoisonError::into_inner)))
    }

    /// Cluster API has done everything, as it says, up to that generation. The ManagedCluster is looked at at once, as after any change of it.
    async fn reconciled(&self, generation: i64) -> Test {
        let condition = |type_: &str| {
            json!({"type": type_, "status": "True", "observedGeneration": generation, "reason": "Done",
                "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z"})
        };
        let status = json!({"status": {"observedGeneration": generation,
            "conditions": [condition("TopologyReconciled"), condition("Available")]}})
        .to_string();
        let patch = ["patch", "cluster", "shop", "-n", "team", "--subresource=status", "--type=merge", "-p"];
        self.here.kubectl(ADMIN, &[&patch[..], &[status.as_str()]].concat()).await?;
        let touched = json!({"metadata": {"annotations": {"example.com/touched": generation.to_string()}}});
        self.here.admin().await?.patch("mcl", "team", "shop", &touched).await.map(drop)
    }

    async fn gone(&self, kind: &str) -> Test {
        let gone = async || self.here.get(kind, "team", "shop").await.ok()?.is_none().then_some(());
        self.here.until(&format!("the {kind} is gone"), gone).await
    }
}

#[test]
fn a_cluster_is_made_by_cluster_api_changed_and_deleted() -> Test {
    on_own_plane(async {
        let here = TestCluster::start_with_access(None).await?;
        cluster_api::install(&here).await?;
        here.namespace("team").await?;
        let account = here.service_account("coppice-access-system", "coppice-access").await?;
        let plane = Plane { here };
        who_may(&plane).await?;
        expected(&plane).await?;
        for object in [access_to_it(), managed_cluster()] {
            plane.here.admin().await?.create(&object).await?;
        }
        let log = plane.here.plane.dir().join("log/managed-cluster.log");
        let program = Program::start(&binary("coppice-access")?, &account, log, |command| {
            command.args(["--listen-probes", "127.0.0.1:0", "--listen", "127.0.0.1:0"]);
            command.args(["--managed-clusters", "enabled", "--unencrypted-loopback"]);
        })
        .await?;
        let with_log = |error: anyhow::Error| error.context(program.last_lines());
        made(&plane).await.map_err(with_log)?;
        changed(&plane).await.map_err(with_log)?;
        deleted(&plane).await.map_err(with_log)?;
        probed(&plane).await.map_err(with_log)
    })
}

/// The author has to be permitted to create a Cluster, and to read the kubeconfig of one that is made; the program makes none without its
/// label.
async fn who_may(plane: &Plane) -> Test {
    let here = &plane.here;
    here.kubectl_stdin(ADMIN, &["apply", "-f", "-"], AUTHOR).await?;
    let alice = here.requests(ALICE).await?;
    for (kind, object, says) in [
        ("mcl", managed_cluster(), "permitted to create clusters"),
        ("clacc", access_to_it(), "permitted to get the Secret"),
    ] {
        let denied = async || {
            let created = alice.create(&object).await;
            if created.is_ok() {
                here.admin().await.ok()?.delete(kind, "team", "shop", &json!({})).await.ok()?;
            }
            created.err().filter(|error| error.to_string().contains(says)).map(drop)
        };
        here.until(&format!("an author of a {kind} who has no right to what it uses is refused"), denied)
            .await?;
    }
    let mut bad = managed_cluster();
    bad["spec"]["networks"] = json!({"pods": "10.96.0.0/33"});
    refused(here.admin().await?.create(&bad).await, "spec.networks.pods: Invalid value")?;
    let as_the_program = ["create", "-f", "-", "--dry-run=server", "--as", ACCOUNT];
    let refused = async || {
        let created = here.kubectl_stdin(ADMIN, &as_the_program, FOREIGN).await;
        created
            .err()
            .filter(|error| error.to_string().contains("no Cluster but those with the label"))
            .map(drop)
    };
    here.until("the account makes no Cluster without its label", refused).await
}

/// What extenders are expected to make is as Cluster API's own schema has it, and has no field that this does not have: such a field is refused.
async fn expected(plane: &Plane) -> Test {
    let create = ["create", "-n", "team", "-f", "-", "--dry-run=server", "--validate=strict"];
    let mut count = 0;
    for entry in std::fs::read_dir(repository().join("crates/clusters/src/managed/golden"))? {
        let entry = entry?;
        if !entry.file_name().to_string_lossy().starts_with("topology") {
            continue;
        }
        count += 1;
        let golden: Value = serde_yaml::from_str(&std::fs::read_to_string(entry.path())?)?;
        let mut cluster = json!({"apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Cluster", "metadata": {"name": "golden"}});
        for part in golden["desired"].as_object().context("nothing is expected")?.values() {
            merge(&mut cluster, part);
        }
        let created = plane.here.kubectl_stdin(ADMIN, &create, &cluster.to_string()).await;
        created.with_context(|| format!("{}: {cluster:#}", entry.path().display()))?;
        // Of another version of its API.
        cluster["spec"]["topology"]["class"] = json!("small");
        let created = plane.here.kubectl_stdin(ADMIN, &create, &cluster.to_string()).await;
        refused(created, "unknown field \"spec.topology.class\"")?;
    }
    ensure!(count >= 3, "{count} topologies are expected");
    Ok(())
}

/// Adds the fields of an object to those of another one.
fn merge(into: &mut Value, from: &Value) {
    match (into, from) {
        (Value::Object(into), Value::Object(from)) => {
            for (field, value) in from {
                merge(into.entry(field).or_insert(Value::Null), value);
            }
        }
        (into, from) => *into = from.clone(),
    }
}

async fn made(plane: &Plane) -> Test {
    let cluster = plane.until("cluster", "made", |_| true).await?;
    let topology = &cluster["spec"]["topology"];
    ensure!(topology["classRef"]["name"] == "small" && topology["version"] == "v1.33.4", "{cluster:#}");
    let mcl = plane.until("mcl", "Creating", |o| o["status"]["cluster"].is_object()).await?;
    ensure!(mcl["status"]["state"] == "Creating", "{mcl:#}");
    ensure!(mcl["status"]["cluster"]["uid"] == cluster["metadata"]["uid"], "{mcl:#}");
    ensure!(condition(&mcl, "Reconciling")["status"] == "True", "{mcl:#}");
    let waits = |o: &Value| condition(o, "Ready")["reason"] == "ClusterNotReady";
    let access = plane.until("clacc", "waiting for the ManagedCluster", waits).await?;
    ensure!(access["status"]["phase"] == "Pending", "{access:#}");
    create_kubeconfig(&plane.here, &plane.here.plane.admin_kubeconfig(), SECRET_TYPE).await?;
    plane.reconciled(1).await?;
    let mcl = plane.until("mcl", "Ready", |o| o["status"]["state"] == "Ready").await?;
    ensure!(condition(&mcl, "Ready")["status"] == "True", "{mcl:#}");
    ensure!(mcl["status"]["observedGeneration"] == mcl["metadata"]["generation"], "{mcl:#}");
    let access = plane.until("clacc", "Ready", is_settled).await?;
    ensure!(access["status"]["managedCluster"]["uid"] == mcl["metadata"]["uid"], "{access:#}");
    Ok(())
}

/// Another spec is written into what is there; what others have written there stays, and the success before does not count.
async fn changed(plane: &Plane) -> Test {
    let admin = plane.here.admin().await?;
    admin
        .patch("cluster", "team", "shop", &json!({"spec": {"controlPlaneEndpoint": {"port": 6443}}}))
        .await?;
    plane.reconciled(2).await?;
    let spec = json!({"spec": {"version": "1.34.0", "workers": [{"name": "a", "min": 1, "max": 3}, {"name": "b", "min": 2, "max": 2}]}});
    admin.patch("mcl", "team", "shop", &spec).await?;
    let is_written = |o: &Value| o["spec"]["topology"]["version"] == "v1.34.0";
    let cluster = plane.until("cluster", "changed", is_written).await?;
    let workers = &cluster["spec"]["topology"]["workers"]["machineDeployments"];
    ensure!(workers[0]["replicas"].is_null() && workers[1]["replicas"] == 2, "{cluster:#}");
    ensure!(cluster["spec"]["controlPlaneEndpoint"]["port"] == 6443, "{cluster:#}");
    ensure!(cluster["metadata"]["generation"] == 3, "{cluster:#}");
    let is_updating = |o: &Value| o["status"]["observedGeneration"] == o["metadata"]["generation"];
    let mcl = plane.until("mcl", "Updating", is_updating).await?;
    ensure!(mcl["status"]["state"] == "Updating" && condition(&mcl, "Ready")["status"] == "False", "{mcl:#}");
    plane.reconciled(3).await?;
    plane.until("mcl", "Ready", |o| o["status"]["state"] == "Ready").await.map(drop)
}

async fn deleted(plane: &Plane) -> Test {
    let admin = plane.here.admin().await?;
    let finalizers = |finalizers: Value| json!({"metadata": {"finalizers": finalizers}});
    let kept = finalizers(json!(["cluster.cluster.x-k8s.io"]));
    admin.patch("cluster", "team", "shop", &kept).await?;
    // No single request of the program deletes a cluster.
    let as_the_program = ["delete", "cluster", "shop", "-n", "team", "--dry-run=server", "--as", ACCOUNT];
    let deleted = plane.here.kubectl(ADMIN, &as_the_program).await;
    refused(deleted, "once its annotation coppice.dev/confirm-deletion names the ManagedCluster")?;
    admin.delete("mcl", "team", "shop", &json!({})).await?;
    plane.until("cluster", "being deleted", |o| o["metadata"]["deletionTimestamp"].is_string()).await?;
    plane.until("mcl", "Deleting", |o| o["status"]["state"] == "Deleting").await?;
    admin.patch("cluster", "team", "shop", &finalizers(Value::Null)).await?;
    plane.gone("cluster").await?;
    let touched = json!({"metadata": {"annotations": {"example.com/touched": "gone"}}});
    // It may be gone by itself at this moment.
    let _ = admin.patch("mcl", "team", "shop", &touched).await;
    plane.gone("mcl").await?;
    // What was issued is revoked by the kubeconfig that is there.
    admin.patch("clacc", "team", "shop", &json!({"spec": {"rotate": "gone"}})).await?;
    let is_refused = |o: &Value| o["status"]["lastError"]["reason"] == "ClusterDeleted";
    let access = plane.until("clacc", "refused", is_refused).await?;
    let message = access["status"]["lastError"]["message"].to_string();
    ensure!(message.contains("the ManagedCluster shop is gone"), "{access:#}");
    admin.delete("clacc", "team", "shop", &json!({})).await?;
    plane.gone("clacc").await
}

/// `coppice probe` has a cluster of its own made, uses it, and deletes it.
async fn probed(plane: &Plane) -> Test {
    let here = &plane.here;
    here.kubectl_stdin(ADMIN, &["apply", "-f", "-"], PROBER).await?;
    let may = ["auth", "can-i", "list", "managedclusters.coppice.dev", "-n", "team"];
    here.until("alice may probe", async || here.kubectl(ALICE, &may).await.ok()).await?;
    let file = here.plane.dir().join("probe.json");
    std::fs::write(&file, managed_cluster().to_string())?;
    let file = file.to_str().context("the path is no text")?;
    let args = ["probe", "-n", "team", "--new-cluster", file, "--target-namespace", "team", "-o", "json"];
    let played = async {
        plane.until("cluster", "made for the probe", |_| true).await?;
        plane.until("mcl", "Creating", |o| o["status"]["cluster"].is_object()).await?;
        plane.reconciled(1).await
    };
    let ((code, out, err), ()) = tokio::try_join!(coppice(here, ALICE, &args), played)?;
    ensure!(code == 0, "{code}: {out}{err}");
    let report: Value = serde_json::from_str(&out)?;
    let steps = report["steps"].as_array().context("no steps")?;
    let names: Vec<&str> = steps.iter().filter_map(|one| one["step"].as_str()).collect();
    let of_access = ["create", "issue", "use", "rotate", "replaced", "delete", "revoked"];
    ensure!(names == [&["sweep", "make", "ready"][..], &of_access, &["remove"]].concat(), "{report:#}");
    for kind in ["mcl", "cluster"] {
        let left = here.get(kind, "team", "shop").await?;
        ensure!(left.is_none(), "{left:#?}");
    }
    Ok(())
}
