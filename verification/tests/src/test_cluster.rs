//! The plane with the product's own CRDs, RBAC and admission policy on it.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::{Arc, LazyLock, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use coppice_plane::{ADMIN, AuditEvent, OPERATOR, Options, Plane, Pods, Template};
use serde_json::{Value, json};
use tokio::io::AsyncWriteExt as _;
use tokio::sync::{OnceCell, Semaphore, SemaphorePermit};

use crate::change_feed::ChangeFeed;
use crate::condition;
use crate::requests::{self, Clients, Requests};

/// How long a test waits for a state before it fails. Generous: the machine may be busy, and nothing depends on it. An API
/// server looks for the kind of a policy's parameters every 30 seconds, and on a busy machine may look several times.
pub const TIMEOUT: Duration = Duration::from_mins(5);
/// Between two looks at what nobody tells of.
const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// A running plane with Coppice installed, but for the operator's own pods.
pub struct TestCluster {
    /// The plane.
    pub plane: Plane,
    clients: Clients,
    change_feed: ChangeFeed,
    _slot: Option<SemaphorePermit<'static>>,
}

/// Planes of one process that run at once, by `COPPICE_TEST_PLANES`: each takes half a gigabyte, and to start one takes a
/// processor seconds. With more, on two slow processors API servers need so long for an answer that programs give up in tests of
/// other things.
static SLOTS: LazyLock<Semaphore> = LazyLock::new(|| {
    let wanted = std::env::var("COPPICE_TEST_PLANES").ok().and_then(|text| text.parse().ok());
    Semaphore::new(wanted.unwrap_or(4))
});

/// Planes of one process that start at once: to start one takes a processor for ten seconds, and those that run already must
/// be able to answer meanwhile.
static STARTS: Semaphore = Semaphore::const_new(2);

/// The top of the source tree: above the current folder, or else where this was compiled. In this order, since several
/// checkouts may share a target folder.
pub fn repository() -> PathBuf {
    let current = std::env::current_dir().unwrap_or_default();
    let mut folders = current.ancestors().chain(Path::new(env!("CARGO_MANIFEST_DIR")).ancestors());
    let root =
        folders.find(|folder| folder.join("deploy/install.yaml").is_file() && folder.join("xtask").is_dir());
    root.unwrap_or(&current).to_owned()
}

/// A binary of this workspace, beside the test's own.
pub fn binary(name: &str) -> anyhow::Result<PathBuf> {
    let me = std::env::current_exe()?;
    let folder = me.ancestors().find(|dir| dir.join(name).is_file());
    folder
        .map(|dir| dir.join(name))
        .with_context(|| format!("{name} is not built: run `cargo build --workspace --bins`"))
}

/// `deploy/install.yaml` without the Deployment: the tests and the demo run the operator themselves.
pub fn manifest() -> anyhow::Result<String> {
    without_deployment("install")
}

/// The objects of `deploy/trees.yaml`, without the Deployment in it.
pub fn trees_manifest() -> anyhow::Result<String> {
    without_deployment("trees")
}

/// The objects of `deploy/access.yaml`, without the Deployment in it.
pub fn access_manifest() -> anyhow::Result<String> {
    without_deployment("access")
}

fn without_pods() -> Options {
    Options { pods: Pods::Pending, ..Options::default() }
}

/// What planes start from.
#[derive(Clone, Copy)]
enum Installed {
    /// `deploy/install.yaml`.
    Operator,
    /// The same, and `deploy/trees.yaml`.
    Trees,
    /// `deploy/access.yaml` alone.
    Access,
}

/// What is installed on a plane: installed once in this process, by whoever needs it first. Planes that start from the same are one
/// cluster by their namespaces' uids.
async fn template(installed: Installed) -> anyhow::Result<Template> {
    static TEMPLATES: [OnceCell<Template>; 3] = [const { OnceCell::const_new() }; 3];
    let install = async || {
        let below = match installed {
            Installed::Trees => Some(Box::pin(template(Installed::Operator)).await?),
            Installed::Operator | Installed::Access => None,
        };
        let options = Options { template: below, ..without_pods() };
        let test_cluster = TestCluster::bare_at_once(options).await?;
        match installed {
            Installed::Operator => test_cluster.install().await?,
            Installed::Trees => test_cluster.install_trees().await?,
            Installed::Access => test_cluster.install_access().await?,
        }
        anyhow::Ok(test_cluster.plane.into_template().await?)
    };
    TEMPLATES[installed as usize].get_or_try_init(install).await.cloned()
}

fn without_deployment(name: &str) -> anyhow::Result<String> {
    let path = repository().join(format!("deploy/{name}.yaml"));
    let manifest = std::fs::read_to_string(&path).with_context(|| path.display().to_string())?;
    // Nor is there a network by which the API server could call a Service.
    let left_out = ["\nkind: Deployment", "\nkind: ValidatingWebhookConfiguration"];
    let documents = manifest.split("\n---").filter(|d| !left_out.iter().any(|kind| d.contains(kind)));
    Ok(documents.collect::<Vec<_>>().join("\n---"))
}

impl TestCluster {
    /// Starts a plane on which `deploy/install.yaml` has been installed as a user would.
    pub async fn start() -> anyhow::Result<Self> {
        Self::start_with(&[]).await
    }

    /// The same with further arguments for the API server.
    pub async fn start_with(apiserver_args: &[&str]) -> anyhow::Result<Self> {
        let apiserver_args = apiserver_args.iter().map(|&arg| arg.to_owned()).collect();
        let template = Some(template(Installed::Operator).await?);
        let options = Options { apiserver_args, template, ..Options::default() };
        Self::bare(options).await?.installed().await
    }

    /// The same on a plane without scheduler and node, for tests in which no pod has to run: they stay `Pending`.
    pub async fn start_without_pods() -> anyhow::Result<Self> {
        let options = Options { template: Some(template(Installed::Operator).await?), ..without_pods() };
        Self::bare(options).await?.installed().await
    }

    /// The same, however many other planes run: for tests that wait for long and do little meanwhile, so that they begin soon.
    pub async fn start_without_pods_at_once() -> anyhow::Result<Self> {
        let options = Options { template: Some(template(Installed::Operator).await?), ..without_pods() };
        Self::bare_at_once(options).await?.installed().await
    }

    /// The same as `start_without_pods` with `deploy/trees.yaml`, but for what needs a network of pods in it.
    pub async fn start_with_trees() -> anyhow::Result<Self> {
        let options = Options { template: Some(template(Installed::Trees).await?), ..without_pods() };
        Self::bare(options).await?.installed_with_trees().await
    }

    /// The same as `start`, however many other planes run.
    pub async fn start_at_once() -> anyhow::Result<Self> {
        let options = Options { template: Some(template(Installed::Operator).await?), ..Options::default() };
        Self::bare_at_once(options).await?.installed().await
    }

    /// The same as `start_with_trees`, however many other planes run.
    pub async fn start_with_trees_at_once() -> anyhow::Result<Self> {
        let options = Options { template: Some(template(Installed::Trees).await?), ..without_pods() };
        Self::bare_at_once(options).await?.installed_with_trees().await
    }

    /// A plane without scheduler and node, on which `deploy/access.yaml` is installed and nothing else of Coppice. It may have another
    /// audit policy.
    pub async fn start_with_access(audit_policy: Option<String>) -> anyhow::Result<Self> {
        let template = Some(template(Installed::Access).await?);
        let this = Self::bare(Options { audit_policy, template, ..without_pods() }).await?;
        this.access_in_force().await?;
        Ok(this)
    }

    async fn installed(self) -> anyhow::Result<Self> {
        self.in_force().await?;
        Ok(self)
    }

    async fn installed_with_trees(self) -> anyhow::Result<Self> {
        let this = self.installed().await?;
        this.trees_in_force().await?;
        Ok(this)
    }

    /// Starts a plane with nothing on it, as soon as not too many others run.
    pub async fn bare(options: Options) -> anyhow::Result<Self> {
        let slot = SLOTS.acquire().await?;
        Self::run(options, Some(slot)).await
    }

    /// The same, however many others run.
    pub async fn bare_at_once(options: Options) -> anyhow::Result<Self> {
        Self::run(options, None).await
    }

    async fn run(options: Options, slot: Option<SemaphorePermit<'static>>) -> anyhow::Result<Self> {
        let start = STARTS.acquire().await?;
        let plane = Plane::start(options).await?;
        drop(start);
        Ok(Self { plane, clients: Clients::default(), change_feed: ChangeFeed::default(), _slot: slot })
    }

    /// Requests in a user's name, made in this process.
    pub async fn requests(&self, user: &str) -> anyhow::Result<Requests> {
        self.clients.by(self.plane.kubeconfig(user)?).await
    }

    /// The same in the administrator's.
    pub async fn admin(&self) -> anyhow::Result<Requests> {
        self.requests(ADMIN).await
    }

    /// The kubeconfig of a service account, for [`Program`](crate::program::Program): the account exists, and the API server
    /// issues a token as it does for pods, for longer than any program runs here.
    pub async fn service_account(&self, namespace: &str, name: &str) -> anyhow::Result<PathBuf> {
        let token =
            self.kubectl(ADMIN, &["create", "token", name, "-n", namespace, "--duration=12h"]).await?;
        let user = format!("system:serviceaccount:{namespace}:{name}");
        Ok(self.plane.write_kubeconfig(&user, token.trim())?)
    }

    /// Installs `deploy/install.yaml`, without the Deployment: the tests run the operator themselves.
    pub async fn install(&self) -> anyhow::Result<()> {
        let rest = manifest()?;
        self.kubectl_stdin(ADMIN, &["apply", "--server-side", "-f", "-"], &rest).await?;
        self.in_force().await
    }

    /// Waits until what is installed is served and in force.
    async fn in_force(&self) -> anyhow::Result<()> {
        let admin = self.admin().await?;
        self.until("the CRDs are served", async || {
            let kinds = [
                "clusternamespacemanagers",
                "coppiceconfigs",
                "deletednamespaces",
                "managednamespaces",
                "namespacemanagers",
                "namespacetrees",
                "quotatransfers",
                "subnamespaces",
            ];
            for kind in kinds {
                let name = format!("{kind}.coppice.dev");
                let crd = admin.get("crd", "", &name).await.ok()??;
                (condition(&crd, "Established")["status"] == "True").then_some(())?;
                admin.list(kind, "").await.ok()?;
            }
            Some(())
        })
        .await?;
        // An admission policy is in force a moment after it was created: wait until it refuses what it has to.
        let operator = self.requests(OPERATOR).await?;
        let probe = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "guard-probe"}});
        self.until("the admission policy is in force", async || {
            let _ = admin.create(&probe).await;
            let refused = operator.delete("namespace", "", "guard-probe", &json!({})).await;
            refused.is_err_and(|error| error.to_string().contains("precondition")).then_some(())
        })
        .await
    }

    /// Installs `deploy/trees.yaml`, without the Deployment, and waits until its policies are in force.
    pub async fn install_trees(&self) -> anyhow::Result<()> {
        let manifest = trees_manifest()?;
        self.kubectl_stdin(ADMIN, &["apply", "--server-side", "-f", "-"], &manifest).await?;
        self.trees_in_force().await
    }

    /// Installs `deploy/access.yaml`, without the Deployment, and waits until its kinds are served.
    async fn install_access(&self) -> anyhow::Result<()> {
        self.kubectl_stdin(ADMIN, &["apply", "--server-side", "-f", "-"], &access_manifest()?).await?;
        self.access_in_force().await
    }

    /// Waits until the kinds of access are served.
    async fn access_in_force(&self) -> anyhow::Result<()> {
        let admin = self.admin().await?;
        self.until("the kinds of access are served", async || {
            for kind in ["clusteraccesses", "clusterproviders", "managedclusters"] {
                admin.list(kind, "").await.ok()?;
            }
            Some(())
        })
        .await
    }

    /// Waits until the policies of trees are in force.
    async fn trees_in_force(&self) -> anyhow::Result<()> {
        let (admin, operator) = (self.admin().await?, self.requests(OPERATOR).await?);
        // What is wanted of the last of them: the others came before.
        let probe = json!({"apiVersion": "v1", "kind": "Namespace",
            "metadata": {"name": "tree-probe", "labels": {"coppice.dev/has-children": "probe"}}});
        // That of the template may still be going.
        let probe =
            self.until("there is a namespace to try it on", async || admin.create(&probe).await.ok()).await?;
        let preconditions =
            json!({"uid": probe["metadata"]["uid"], "resourceVersion": probe["metadata"]["resourceVersion"]});
        let options = json!({"apiVersion": "v1", "kind": "DeleteOptions", "dryRun": ["All"], "preconditions": preconditions});
        self.until("the admission policies of trees are in force", async || {
            let refused = operator.delete("namespace", "", "tree-probe", &options).await;
            refused.is_err_and(|error| error.to_string().contains("has subnamespaces")).then_some(())
        })
        .await?;
        admin.delete("namespace", "", "tree-probe", &json!({})).await
    }

    /// Runs kubectl as a user; its output, or its complaint as the error.
    pub async fn kubectl(&self, user: &str, args: &[&str]) -> anyhow::Result<String> {
        self.kubectl_stdin(user, args, "").await
    }

    /// The same, with something on standard input.
    pub async fn kubectl_stdin(&self, user: &str, args: &[&str], stdin: &str) -> anyhow::Result<String> {
        let mut command = tokio::process::Command::from(self.plane.kubectl_as(user)?);
        command
            .args(args)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true);
        let mut child = command.spawn()?;
        if let Some(mut pipe) = child.stdin.take() {
            pipe.write_all(stdin.as_bytes()).await?;
        }
        let output = child.wait_with_output().await?;
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        if !output.status.success() {
            bail!("kubectl {}: {text}{}", args.join(" "), String::from_utf8_lossy(&output.stderr));
        }
        Ok(text)
    }

    /// Applies YAML as the administrator: kinds that tests do not know with kubectl.
    pub async fn apply(&self, yaml: &str) -> anyhow::Result<String> {
        let objects = requests::documents(yaml)?;
        if !objects.iter().all(|object| object["kind"].as_str().is_some_and(requests::knows)) {
            return self.kubectl_stdin(ADMIN, &["apply", "-f", "-"], yaml).await;
        }
        let admin = self.admin().await?;
        let mut said = String::new();
        for object in &objects {
            said += &admin.apply(object).await?;
        }
        Ok(said)
    }

    /// Creates the objects of YAML as the administrator, many at once and in no particular order.
    pub async fn create_all(&self, yaml: &str) -> anyhow::Result<()> {
        self.admin().await?.create_all(&requests::documents(yaml)?).await
    }

    /// Changes an object as the administrator, by a merge patch.
    pub async fn patch(&self, kind: &str, namespace: &str, name: &str, patch: &str) -> anyhow::Result<Value> {
        self.admin().await?.patch(kind, namespace, name, &serde_json::from_str(patch)?).await
    }

    /// Takes away the lease of a program that was killed, if it has left one: no test waits for it to expire.
    pub async fn remove_lease(&self, namespace: &str, name: &str) -> anyhow::Result<()> {
        let admin = self.admin().await?;
        if admin.get("lease", namespace, name).await?.is_none() {
            return Ok(());
        }
        admin.delete("lease", namespace, name, &json!({})).await
    }

    /// Waits until there are settings, and their status says that the operator follows them.
    pub async fn settings(&self) -> anyhow::Result<Value> {
        self.until("the settings are in force", async || {
            let config = self.get("coppiceconfig", "", "coppice").await.ok()??;
            let current = config["status"]["observedGeneration"] == config["metadata"]["generation"];
            (current && config["status"]["webhookKey"].is_string()).then_some(config)
        })
        .await
    }

    /// Gives a namespace a quota of so many pods, and waits until its status says so: before, it limits nothing.
    pub async fn quota_of_pods(&self, namespace: &str, pods: usize) -> anyhow::Result<()> {
        let hard = json!({"pods": pods.to_string()});
        let quota = json!({"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "pods", "namespace": namespace},
            "spec": {"hard": hard}});
        let admin = self.admin().await?;
        admin.create(&quota).await?;
        self.until("the quota is in force", async || {
            let quota = admin.get("quota", namespace, "pods").await.ok()??;
            (quota["status"]["hard"] == hard).then_some(())
        })
        .await
    }

    /// Creates a namespace in which pods can be created.
    pub async fn namespace(&self, name: &str) -> anyhow::Result<String> {
        let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
        let created = self.admin().await?.create(&namespace).await?;
        self.account(name).await?;
        Ok(created["metadata"]["uid"].as_str().unwrap_or_default().to_owned())
    }

    /// Waits until pods can be created in a namespace, or it is being deleted: a short life can end before that.
    pub async fn account(&self, namespace: &str) -> anyhow::Result<()> {
        self.until("the service account of pods", async || {
            if self.get("serviceaccount", namespace, "default").await.ok()?.is_some() {
                return Some(());
            }
            let object = self.get("namespace", "", namespace).await.ok()?;
            object.is_none_or(|object| object["metadata"]["deletionTimestamp"].is_string()).then_some(())
        })
        .await
    }

    /// Applies a `NamespaceManager` with this spec (a YAML flow mapping).
    pub async fn manager(&self, namespace: &str, name: &str, spec: &str) -> anyhow::Result<String> {
        self.apply(&format!(
            "{{apiVersion: coppice.dev/v1alpha1, kind: NamespaceManager, metadata: {{name: {name}, namespace: {namespace}}}, spec: {spec}}}"
        ))
        .await
    }

    /// Runs a pod with an outcome, one of [`OUTCOMES`](coppice_plane::OUTCOMES).
    pub async fn pod(
        &self,
        namespace: &str,
        name: &str,
        outcome: &str,
        labels: &str,
    ) -> anyhow::Result<String> {
        self.apply(&format!(
            "{{apiVersion: v1, kind: Pod, metadata: {{name: {name}, namespace: {namespace}, \
             labels: {{plane.coppice.dev/outcome: {outcome}, {labels}}}}}, \
             spec: {{restartPolicy: Never, containers: [{{name: main, image: busybox}}]}}}}"
        ))
        .await
    }

    /// One object as JSON; none if there is no such object.
    pub async fn get(&self, kind: &str, namespace: &str, name: &str) -> anyhow::Result<Option<Value>> {
        self.admin().await?.get(kind, namespace, name).await
    }

    /// The objects of a kind in a namespace, or in all.
    pub async fn list(&self, kind: &str, namespace: &str) -> anyhow::Result<Vec<Value>> {
        self.admin().await?.list(kind, namespace).await
    }

    /// Waits until a manager's status has a phase; returns the manager.
    pub async fn phase(&self, namespace: &str, name: &str, phase: &str) -> anyhow::Result<Value> {
        self.manager_until(namespace, name, &format!("phase {phase}"), |m| m["status"]["phase"] == phase)
            .await
    }

    /// Waits until a manager is as described; returns it.
    pub async fn manager_until(
        &self,
        namespace: &str,
        name: &str,
        what: &str,
        is: impl Fn(&Value) -> bool,
    ) -> anyhow::Result<Value> {
        let last = Mutex::new(Value::Null);
        let wanted = async || {
            let manager = match self.get("nsman", namespace, name).await {
                Ok(manager) => manager?,
                // A busy API server is asked again; shown if it stays so.
                Err(error) => {
                    *last.lock().unwrap_or_else(PoisonError::into_inner) =
                        json!({"status": {"unread": format!("{error:#}")}});
                    return None;
                }
            };
            let current = manager["status"]["observedGeneration"] == manager["metadata"]["generation"];
            if current && is(&manager) {
                return Some(manager);
            }
            *last.lock().unwrap_or_else(PoisonError::into_inner) = manager;
            None
        };
        let found = self.until(&format!("{namespace}/{name} reaches {what}"), wanted).await;
        let status = || last.lock().unwrap_or_else(PoisonError::into_inner)["status"].clone();
        found.with_context(|| format!("its status is {:#}", status()))
    }

    /// Waits until a namespace is being deleted or gone (or has been replaced), and the audit log has the request.
    pub async fn deleted(&self, name: &str, uid: &str) -> anyhow::Result<()> {
        self.until(&format!("namespace {name} is deleted"), async || {
            // What is deleted is seen before the answer to its request, with which the log is written.
            let about =
                |e: &Arc<AuditEvent>| e.verb == "delete" && e.resource == "namespaces" && e.name == name;
            let deleted = self.is_deleted(name, uid).await;
            (deleted && self.plane.audit().ok()?.iter().any(about)).then_some(())
        })
        .await
    }

    /// Whether a namespace is being deleted or gone.
    pub async fn is_deleted(&self, name: &str, uid: &str) -> bool {
        match self.get("namespace", "", name).await {
            Ok(None) => true,
            Ok(Some(n)) => n["metadata"]["uid"] != uid || !n["metadata"]["deletionTimestamp"].is_null(),
            Err(_) => false,
        }
    }

    /// Waits until something is there: looks again whenever anything on the plane has changed.
    pub async fn until<T>(&self, what: &str, check: impl AsyncFn() -> Option<T>) -> anyhow::Result<T> {
        let mut changes = self.change_feed.changes(self.plane.etcd_url()).await;
        let deadline = Instant::now() + TIMEOUT;
        loop {
            changes.mark();
            if let Some(found) = check().await {
                return Ok(found);
            }
            if Instant::now() > deadline {
                bail!("waited {} s in vain: {what}", TIMEOUT.as_secs());
            }
            changes.next().await;
        }
    }

    /// Writes a file that channels can name, as an update of the mounted Secret does.
    pub fn credential(&self, name: &str, text: &str) -> anyhow::Result<()> {
        let folder = crate::operator::credentials_beside(&self.plane.dir().join("log"));
        crate::operator::write_credential(&folder, name, text)
    }

    /// Adds a channel to the settings, besides those of other tests.
    pub async fn channel(&self, channel: &Value) -> anyhow::Result<()> {
        let config = serde_json::json!({
            "apiVersion": "coppice.dev/v1alpha1", "kind": "CoppiceConfig", "metadata": { "name": "coppice" },
            "spec": { "channels": [channel] }
        });
        let manager = format!("--field-manager=channel-{}", channel["name"].as_str().unwrap_or_default());
        self.settings().await?;
        self.kubectl_stdin(ADMIN, &["apply", "--server-side", &manager, "-f", "-"], &config.to_string())
            .await?;
        Ok(())
    }

    /// Events of a reason about an object: their messages.
    pub async fn events(&self, namespace: &str, name: &str, reason: &str) -> anyhow::Result<Vec<String>> {
        let events = self.list("events", namespace).await?;
        let about = |e: &&Value| e["regarding"]["name"] == name && e["reason"] == reason;
        Ok(events.iter().filter(about).filter_map(|e| e["note"].as_str().map(str::to_owned)).collect())
    }

    /// Every request to delete a namespace by the operator; not those that tests make in its name, such as the
    /// probe that may come before the admission policy is in force.
    pub fn namespace_deletes(&self) -> anyhow::Result<Vec<AuditEvent>> {
        let deletes = self.by_operator()?.into_iter();
        let deletes = deletes.filter(|e| e.verb == "delete" && e.resource == "namespaces");
        Ok(deletes.map(|e| AuditEvent::clone(&e)).collect())
    }

    /// Every request by the operator itself.
    pub fn by_operator(&self) -> anyhow::Result<Vec<Arc<AuditEvent>>> {
        let ours = |agent: &str| agent.starts_with("kubectl") || agent.starts_with(requests::USER_AGENT);
        let events = self.plane.audit()?.into_iter();
        Ok(events.filter(|e| e.user == OPERATOR && !ours(&e.user_agent)).collect())
    }
}

/// Waits until something is there that is not on a plane.
pub async fn until<T>(what: &str, check: impl AsyncFn() -> Option<T>) -> anyhow::Result<T> {
    let deadline = Instant::now() + TIMEOUT;
    loop {
        if let Some(found) = check().await {
            return Ok(found);
        }
        if Instant::now() > deadline {
            bail!("waited {} s in vain: {what}", TIMEOUT.as_secs());
        }
        tokio::time::sleep(POLL_INTERVAL).await;
    }
}
