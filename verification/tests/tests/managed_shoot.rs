//! A cluster that is made by Gardener as a ManagedCluster says, changed, and deleted with it: Gardener's own API server has the Shoot, and the
//! test plays its controllers.

use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use anyhow::{Context as _, ensure};
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use coppice_plane::{ADMIN, AuditEvent, ClientAuthority, Garden, Options};
use coppice_tests::program::Program;
use coppice_tests::requests;
use coppice_tests::shoot::{self, PROJECT_NAMESPACE, create_cloud, create_project, give_cluster};
use coppice_tests::test_cluster::{binary, repository};
use coppice_tests::{TestCluster, condition, on_own_plane};
use serde_json::{Value, json};

use super::access::{bare, is_settled, refused};
use super::access_gardener::of_shoot;
use super::cli::coppice;

type Test = anyhow::Result<()>;

/// Who makes Shoots, with the rights of the examples in the garden alone.
const MAKER: &str = "system:serviceaccount:garden-dev:coppice-access";
const CONFIRM: &str = "confirmation.gardener.cloud/deletion";
const FORCE: &str = "confirmation.gardener.cloud/force-deletion";

pub(crate) fn managed_cluster(version: &str) -> Value {
    let gardener = json!({"clusterProvider": "dev", "cloudProfile": "cloud", "credentialsBinding": "cloud", "infrastructure": "aws"});
    json!({
        "apiVersion": "coppice.dev/v1alpha1", "kind": "ManagedCluster", "metadata": {"name": "shop", "namespace": "team"},
        "spec": {
            "provider": {"gardener": gardener}, "version": version, "region": "here",
            "networks": {"nodes": "10.250.0.0/16", "pods": "10.96.0.0/13", "services": "10.104.0.0/13"},
            "highAvailability": "Node",
            "oidc": {"issuerURL": "https://id.example.com", "clientID": "shop"},
            "workers": [pool("a", 2)],
            "deletion": {"forceAfter": "1h"}
        }
    })
}

pub(crate) fn pool(name: &str, max: u32) -> Value {
    json!({
        "name": name, "machine": "small", "volume": {"type": "gp3", "size": "1Ti"}, "min": 1, "max": max, "zones": ["a", "b"],
        "labels": {"tier": "front"}, "taints": [{"key": "tier", "value": "front", "effect": "NoSchedule"}]
    })
}

/// What Gardener says of its last operation, and up to which generation.
pub(crate) fn operation(type_: &str, state: &str, generation: i64) -> Value {
    let progress = if state == "Succeeded" { 100 } else { 50 };
    json!({"observedGeneration": generation, "lastOperation": {"type": type_, "state": state, "progress": progress,
        "description": format!("{state} at {generation}"), "lastUpdateTime": "2026-01-01T00:00:00Z"}})
}

/// A deletion that has failed with this code.
fn failed_deletion(code: &str) -> Value {
    let mut status = operation("Delete", "Error", 4);
    status["lastOperation"]["description"] = json!(code);
    status["lastErrors"] = json!([{"description": code, "codes": [code]}]);
    status
}

pub(crate) struct Plane {
    pub(crate) here: TestCluster,
    /// The kubeconfig of the program's account.
    pub(crate) account: PathBuf,
    /// That of the garden's.
    pub(crate) maker: PathBuf,
}

impl Plane {
    /// A plane that has access installed, and is the garden as well.
    pub(crate) async fn start(here: TestCluster) -> anyhow::Result<Self> {
        create_project(&here).await?;
        create_cloud(&here).await?;
        let admin = here.admin().await?;
        here.namespace("team").await?;
        for example in ["garden", "garden-clusters"] {
            let path = repository().join(format!("examples/access/{example}.yaml"));
            let example = std::fs::read_to_string(path)?;
            here.kubectl_stdin(ADMIN, &["apply", "--server-side", "-f", "-"], &example).await?;
        }
        let maker = here.service_account(PROJECT_NAMESPACE, "coppice-access").await?;
        let labels = json!({"coppice.dev/access": "kubeconfig"});
        let secret = json!({"apiVersion": "v1", "kind": "Secret",
            "metadata": {"name": "garden", "namespace": "coppice-access-system", "labels": labels},
            "data": {"kubeconfig": BASE64_STANDARD.encode(std::fs::read_to_string(&maker)?)}});
        admin.create(&secret).await?;
        let allow = json!([{"namespaces": ["team"], "issuers": ["GardenerAdmin"]}]);
        let provider = json!({"apiVersion": "coppice.dev/v1alpha1", "kind": "ClusterProvider", "metadata": {"name": "dev"},
            "spec": {"credential": {"secret": "garden"}, "project": "dev", "managedClusters": ["team"], "callsPerMinute": 600,
                "allow": allow}});
        admin.create(&provider).await?;
        let account = here.service_account("coppice-access-system", "coppice-access").await?;
        Ok(Self { here, account, maker })
    }

    /// Starts the program, without waiting for the lease of one that was killed.
    async fn program(&self) -> anyhow::Result<Program> {
        self.program_by(&self.account, &[]).await
    }

    /// The same by this kubeconfig of its account.
    pub(crate) async fn program_by(&self, kubeconfig: &Path, more: &[&str]) -> anyhow::Result<Program> {
        self.here.remove_lease("coppice-access-system", "coppice-access").await?;
        let log = self.here.plane.dir().join("log/managed-shoot.log");
        Program::start(&binary("coppice-access")?, kubeconfig, log, |command| {
            command.args(["--listen-probes", "127.0.0.1:0", "--listen", "127.0.0.1:0"]);
            command.args(["--managed-clusters", "enabled"]).args(more);
        })
        .await
    }

    /// Waits until the object of that kind is so; the object.
    async fn until(&self, kind: &str, what: &str, is: impl Fn(&Value) -> bool) -> anyhow::Result<Value> {
        let namespace = if kind == "shoot" { PROJECT_NAMESPACE } else { "team" };
        let last = Mutex::new(Value::Null);
        let reached = async || {
            let object = self.here.get(kind, namespace, "shop").await.ok()??;
            if is(&object) {
                return Some(object);
            }
            *last.lock().unwrap_or_else(PoisonError::into_inner) = object;
            None
        };
        let found = self.here.until(&format!("{kind}: {what}"), reached).await;
        found.with_context(|| format!("it is {:#}", last.lock().unwrap_or_else(PoisonError::into_inner)))
    }

    /// The fields that `coppice cluster plan` or `drift` shows, and its exit code.
    async fn shown(&self, question: &str) -> anyhow::Result<(i32, String)> {
        let garden = self.maker.display().to_string();
        let args = ["cluster", question, "shop", "-n", "team", "-o", "name", "--garden-kubeconfig", &garden];
        let (code, out, err) = coppice(&self.here, ADMIN, &args).await?;
        ensure!(code != 1, "{err}");
        Ok((code, out))
    }

    async fn gone(&self, kind: &str, namespace: &str, name: &str) -> Test {
        let gone = async || self.here.get(kind, namespace, name).await.ok()?.is_none().then_some(());
        self.here.until(&format!("the {kind} is gone"), gone).await
    }

    /// Changes the Shoot as somebody else.
    async fn edit(&self, change: &Value) -> anyhow::Result<Value> {
        self.here.admin().await?.patch("shoot", PROJECT_NAMESPACE, "shop", change).await
    }

    pub(crate) async fn change(&self, spec: &Value) -> Test {
        self.here.admin().await?.patch("mcl", "team", "shop", &json!({"spec": spec})).await.map(drop)
    }

    /// Gardener's controllers say this of the Shoot. The ManagedCluster is looked at at once, as after any change of it.
    pub(crate) async fn says(&self, status: &Value) -> Test {
        shoot::status(&self.here, "shop", status).await?;
        let touched = json!({"metadata": {"annotations": {"example.com/touched": status.to_string()}}});
        self.here.admin().await?.patch("mcl", "team", "shop", &touched).await.map(drop)
    }

    /// What was written of Shoots with the kubeconfig of the provider, in its order. A kubeconfig for one changes nothing of it.
    pub(crate) fn written(&self) -> anyhow::Result<Vec<String>> {
        let events = self.here.plane.audit()?;
        let is = |event: &AuditEvent| {
            let is_done = event.code.is_some_and(|code| code < 300);
            let is_of_shoot = event.resource == "shoots" && event.subresource.is_empty();
            event.user == MAKER && is_of_shoot && event.is_write() && is_done
        };
        Ok(events.iter().filter(|event| is(event)).map(|event| event.verb.clone()).collect())
    }

    /// Has the ManagedCluster wait since three hours ago. Nobody but the program may write that.
    async fn waits_for_long(&self) -> Test {
        let account = requests::Clients::default().by(self.account.clone()).await?;
        let backdated = async || {
            let mut managed = self.here.get("mcl", "team", "shop").await.ok()??;
            let created: jiff::Timestamp = managed["metadata"]["creationTimestamp"].as_str()?.parse().ok()?;
            let since = created.checked_sub(jiff::SignedDuration::from_hours(3)).ok()?;
            managed["status"]["waitingSince"] = json!(since.to_string());
            let uri = "/apis/coppice.dev/v1alpha1/namespaces/team/managedclusters/shop/status";
            let request = http::Request::put(uri).header("content-type", "application/json");
            let request = request.body(managed.to_string().into_bytes()).ok()?;
            account.0.request::<Value>(request).await.ok()
        };
        self.here.until("it waits since three hours ago", backdated).await.map(drop)
    }
}

#[test]
fn a_shoot_is_made_by_gardener_changed_and_deleted() -> Test {
    on_own_plane(async {
        let here = TestCluster::start_with_access(None).await?;
        let garden = Garden::start(&here.plane).await?;
        let plane = Plane::start(here).await?;
        let mut program = plane.program().await?;
        refused_first(&plane).await.with_context(|| program.last_lines())?;
        made(&plane).await.with_context(|| program.last_lines())?;
        accessed(&plane, garden.authority()).await.with_context(|| program.last_lines())?;
        // A Shoot that is ready is looked at every 5 minutes, and when the program starts.
        program.kill().await?;
        edited(&plane).await?;
        let program = plane.program().await?;
        let with_log = |error: anyhow::Error| error.context(program.last_lines());
        drifted(&plane).await.map_err(with_log)?;
        changed(&plane).await.map_err(with_log)?;
        deleted(&plane).await.map_err(with_log)?;
        forced(&plane).await.map_err(with_log)
    })
}

/// Status has the words of Gardener where it refuses a Shoot, here for a version that the CloudProfile does not have. Another spec is tried at
/// once.
async fn refused_first(plane: &Plane) -> Test {
    let mut bad = managed_cluster("1.33.4");
    bad["spec"]["workers"][0]["zones"] = json!([]);
    refused(plane.here.admin().await?.create(&bad).await, "write at least one zone into workers[].zones")?;
    plane.here.admin().await?.create(&managed_cluster("1.32.0")).await?;
    let is_refused = |o: &Value| o["status"]["lastError"]["reason"] == "ClusterRefused";
    let mcl = plane.until("mcl", "refused", is_refused).await?;
    let error = &mcl["status"]["lastError"];
    ensure!(error["message"].to_string().contains("spec.kubernetes.version: Unsupported value"), "{error:#}");
    ensure!(error["class"] == "WaitingForInput" && mcl["status"]["state"] == "Failed", "{mcl:#}");
    ensure!(plane.here.get("shoot", PROJECT_NAMESPACE, "shop").await?.is_none());
    plane.change(&json!({"version": "1.33.4"})).await
}

/// Gardener accepts what is made, and what it gives the Shoot besides is written over by nobody.
async fn made(plane: &Plane) -> Test {
    let shoot = plane.until("shoot", "made", |_| true).await?;
    let (spec, worker) = (&shoot["spec"], &shoot["spec"]["provider"]["workers"][0]);
    ensure!(spec["kubernetes"]["version"] == "1.33.4" && spec["purpose"] == "evaluation", "{shoot:#}");
    ensure!(worker["machine"]["image"] == json!({"name": "os", "version": "1.1.0"}), "{worker:#}");
    // Gardener knows no Ti.
    ensure!(worker["volume"] == json!({"type": "gp3", "size": "1024Gi"}), "{worker:#}");
    let zones = &spec["provider"]["infrastructureConfig"]["networks"]["zones"];
    ensure!(zones[1]["name"] == "b" && zones[1]["workers"] == "10.250.64.0/19", "{zones:#}");
    plane.edit(&json!({"metadata": {"finalizers": ["gardener"]}})).await?;
    let mut status = operation("Create", "Processing", 1);
    status["technicalID"] = json!("shoot--dev--shop");
    plane.says(&status).await?;
    let says = |o: &Value| condition(o, "Ready")["message"].to_string().contains("Create is Processing");
    let mcl = plane.until("mcl", "says how far it is", says).await?;
    ensure!(mcl["status"]["state"] == "Creating", "{mcl:#}");
    ensure!(mcl["status"]["cluster"]["uid"] == shoot["metadata"]["uid"], "{mcl:#}");
    plane.says(&operation("Create", "Succeeded", 1)).await?;
    let mcl = plane.until("mcl", "Ready", |o| o["status"]["state"] == "Ready").await?;
    ensure!(condition(&mcl, "Ready")["message"] == "The cluster is as its spec says.", "{mcl:#}");
    ensure!(mcl["status"]["observedGeneration"] == mcl["metadata"]["generation"], "{mcl:#}");
    let shoot = plane.until("shoot", "there", |_| true).await?;
    ensure!(shoot["metadata"]["generation"] == 1, "{shoot:#}");
    ensure!(plane.written()? == ["create"], "{:?}", plane.written()?);
    Ok(())
}

/// A ClusterAccess that names the ManagedCluster gets what Gardener issues for its Shoot, which the API server of that accepts.
async fn accessed(plane: &Plane, authority: &ClientAuthority) -> Test {
    let here = &plane.here;
    let trusted = here.plane.dir().join("clients.crt");
    std::fs::write(&trusted, &authority.certificate)?;
    let args = vec![format!("--client-ca-file={}", trusted.display())];
    let there = TestCluster::bare_at_once(Options { apiserver_args: args, ..bare() }).await?;
    give_cluster(here, "shop", &there, authority).await?;
    let mut access = of_shoot("shop", "GardenerAdmin", "24h");
    access["spec"]["cluster"] = json!({"managedCluster": {"name": "shop"}});
    access["spec"]["output"] = json!({"secret": "shop-access"});
    let admin = here.admin().await?;
    admin.create(&access).await?;
    let access = plane.until("clacc", "Ready", is_settled).await?;
    for type_ in ["Ready", "Reachable", "Verified", "Written"] {
        ensure!(condition(&access, type_)["status"] == "True", "{type_}: {access:#}");
    }
    let mcl = plane.until("mcl", "there", |_| true).await?;
    let named = json!({"uid": mcl["metadata"]["uid"], "provider": "dev"});
    ensure!(access["status"]["managedCluster"] == named, "{access:#}");
    // As whom Gardener has issued it: the account of the provider in the garden.
    let identity = access["status"]["identity"].as_str().unwrap_or_default();
    ensure!(identity.ends_with(&format!(":{MAKER}")), "{access:#}");
    let system = there.get("namespace", "", "kube-system").await?.context("kube-system")?;
    ensure!(access["status"]["target"]["uid"] == system["metadata"]["uid"], "{access:#}");
    let secret = here.get("secret", "team", "shop-access").await?.context("no Secret")?;
    let kubeconfig = secret["data"]["kubeconfig"].as_str().context("no kubeconfig")?;
    let path = here.plane.dir().join("shop-access.yaml");
    std::fs::write(&path, BASE64_STANDARD.decode(kubeconfig)?)?;
    let holder = requests::Clients::default().by(path).await?;
    // An administrator of that cluster, and of no other.
    holder.list("secret", "kube-system").await?;
    ensure!(holder.get("namespace", "", "team").await?.is_none());
    admin.delete("clacc", "team", "shop", &json!({})).await?;
    plane.gone("clacc", "team", "shop").await?;
    plane.gone("secret", "team", "shop-access").await
}

/// Somebody changes a field that the spec decides, and one that it does not.
async fn edited(plane: &Plane) -> Test {
    let shoot = plane.until("shoot", "there", |_| true).await?;
    let mut workers = shoot["spec"]["provider"]["workers"].clone();
    workers[0]["maximum"] = json!(5);
    let window = json!({"begin": "220000+0100", "end": "230000+0100"});
    let spec = json!({"provider": {"workers": workers}, "maintenance": {"timeWindow": window}});
    plane.edit(&json!({"spec": spec})).await?;
    plane.says(&operation("Reconcile", "Succeeded", 2)).await
}

/// It is said how many of the fields that the spec decides are others', and which, and nothing is changed back.
async fn drifted(plane: &Plane) -> Test {
    let says = |o: &Value| {
        condition(o, "Ready")["message"].to_string().contains("others have changed 1 of its fields")
    };
    let mcl = plane.until("mcl", "says that others have changed a field", says).await?;
    ensure!(mcl["status"]["state"] == "Ready", "{mcl:#}");
    for (question, expected) in [("drift", 3), ("plan", 0)] {
        let (code, shown) = plane.shown(question).await?;
        ensure!(
            (code, shown.as_str()) == (expected, "spec.provider.workers[a].maximum\n"),
            "{code}: {shown}"
        );
    }
    ensure!(plane.written()? == ["create"], "{:?}", plane.written()?);
    Ok(())
}

/// Another spec is one patch: of the fields that it decides, those of others included. The success before does not count.
async fn changed(plane: &Plane) -> Test {
    plane.change(&json!({"version": "1.34.0", "workers": [pool("a", 3), pool("b", 2)]})).await?;
    let is_written = |o: &Value| o["spec"]["kubernetes"]["version"] == "1.34.0";
    let shoot = plane.until("shoot", "changed", is_written).await?;
    let workers = &shoot["spec"]["provider"]["workers"];
    ensure!(workers[0]["maximum"] == 3 && workers[0]["machine"]["image"]["version"] == "1.1.0", "{shoot:#}");
    ensure!(workers[1]["name"] == "b" && workers[1]["machine"]["image"]["version"] == "1.1.0", "{shoot:#}");
    ensure!(shoot["spec"]["maintenance"]["timeWindow"]["begin"] == "220000+0100", "{shoot:#}");
    ensure!(shoot["metadata"]["generation"] == 3, "{shoot:#}");
    let is_updating = |o: &Value| condition(o, "Ready")["message"].to_string().contains("has not observed");
    let mcl = plane.until("mcl", "Updating", is_updating).await?;
    ensure!(mcl["status"]["state"] == "Updating" && condition(&mcl, "Ready")["status"] == "False", "{mcl:#}");
    plane.says(&operation("Reconcile", "Succeeded", 3)).await?;
    let mcl = plane.until("mcl", "Ready", |o| o["status"]["state"] == "Ready").await?;
    ensure!(condition(&mcl, "Ready")["message"] == "The cluster is as its spec says.", "{mcl:#}");
    for question in ["drift", "plan"] {
        let (code, shown) = plane.shown(question).await?;
        ensure!(code == 0 && shown.is_empty(), "{question}: {code}: {shown}");
    }
    ensure!(plane.written()? == ["create", "patch"], "{:?}", plane.written()?);
    Ok(())
}

/// Gardener deletes nothing without a confirmation. A deletion that has failed is not forced before its time.
async fn deleted(plane: &Plane) -> Test {
    let admin = plane.here.admin().await?;
    refused(admin.delete("shoot", PROJECT_NAMESPACE, "shop", &json!({})).await, CONFIRM)?;
    admin.delete("mcl", "team", "shop", &json!({})).await?;
    let is_deleted = |o: &Value| o["metadata"]["deletionTimestamp"].is_string();
    let shoot = plane.until("shoot", "being deleted", is_deleted).await?;
    let annotations = &shoot["metadata"]["annotations"];
    ensure!(annotations[CONFIRM] == "true", "{annotations:#}");
    ensure!(annotations["deletion.gardener.cloud/confirmed-by"] == MAKER, "{annotations:#}");
    plane.says(&failed_deletion("ERR_INFRA_DEPENDENCIES")).await?;
    let says = |o: &Value| condition(o, "Ready")["message"].to_string().contains("ERR_INFRA_DEPENDENCIES");
    let mcl = plane.until("mcl", "says why it lasts", says).await?;
    ensure!(mcl["status"]["state"] == "Deleting" && mcl["status"]["forced"].is_null(), "{mcl:#}");
    ensure!(plane.written()? == ["create", "patch", "patch", "delete"], "{:?}", plane.written()?);
    Ok(())
}

/// Nor where Gardener does not permit it, however long it lasts. Then it is, once, and with the Shoot all goes.
async fn forced(plane: &Plane) -> Test {
    plane.says(&failed_deletion("ERR_INFRA_QUOTA_EXCEEDED")).await?;
    let says = |o: &Value| condition(o, "Ready")["message"].to_string().contains("ERR_INFRA_QUOTA_EXCEEDED");
    plane.until("mcl", "says why it lasts", says).await?;
    plane.waits_for_long().await?;
    let is_overdue = |o: &Value| o["status"]["lastError"]["reason"] == "ClusterOverdue";
    let mcl = plane.until("mcl", "overdue", is_overdue).await?;
    ensure!(mcl["status"]["forced"].is_null(), "{mcl:#}");
    let force = json!({"metadata": {"annotations": {FORCE: "true"}}});
    refused(plane.edit(&force).await, "force-deletion annotation cannot be set")?;
    plane.says(&failed_deletion("ERR_CLEANUP_CLUSTER_RESOURCES")).await?;
    // Another spec is tried at once.
    plane.change(&json!({"deletion": {"forceAfter": "2h"}})).await?;
    let is_forced = |o: &Value| o["metadata"]["annotations"][FORCE] == "true";
    plane.until("shoot", "forced", is_forced).await?;
    plane.until("mcl", "says so", |o| o["status"]["forced"].is_string()).await?;
    let said = async || {
        let events = plane.here.events("team", "shop", "DeletionForced").await.ok()?;
        (!events.is_empty()).then_some(())
    };
    plane.here.until("an Event says so", said).await?;
    let finalizers = json!({"metadata": {"finalizers": null}});
    refused(plane.edit(&finalizers).await, "shoot deletion has not completed successfully yet")?;
    plane.says(&operation("Delete", "Succeeded", 5)).await?;
    plane.edit(&finalizers).await?;
    plane.gone("shoot", PROJECT_NAMESPACE, "shop").await?;
    // It may be gone by itself at this moment.
    let _ = plane.change(&json!({"deletion": {"forceAfter": "1h"}})).await;
    plane.gone("mcl", "team", "shop").await?;
    plane.gone("configmap", PROJECT_NAMESPACE, "structured-auth-config-shop").await?;
    let expected = ["create", "patch", "patch", "delete", "patch"];
    ensure!(plane.written()? == expected, "{:?}", plane.written()?);
    Ok(())
}
