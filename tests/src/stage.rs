//! The plane with the product's own CRDs, RBAC and admission policy on it.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use coppice_plane::{ADMIN, AuditEvent, OPERATOR, Options, Plane};
use serde_json::Value;
use tokio::io::AsyncWriteExt as _;

/// How long a test waits for a state before it fails. Generous: the machine may be busy, and nothing depends on it.
pub const PATIENCE: Duration = Duration::from_secs(90);

/// A running plane with Coppice installed, but for the operator's own pods.
pub struct Stage {
    /// The plane.
    pub plane: Plane,
}

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
        .with_context(|| format!("{name} is not built: run `cargo build --workspace`"))
}

/// `deploy/install.yaml` without the Deployment: the tests and the demo run the operator themselves.
pub fn manifest() -> anyhow::Result<String> {
    let path = repository().join("deploy/install.yaml");
    let manifest = std::fs::read_to_string(&path).with_context(|| path.display().to_string())?;
    let documents = manifest.split("\n---").filter(|d| !d.contains("\nkind: Deployment"));
    Ok(documents.collect::<Vec<_>>().join("\n---"))
}

impl Stage {
    /// Starts a plane and installs `deploy/install.yaml` as a user would.
    pub async fn start() -> anyhow::Result<Self> {
        let stage = Self::bare(Options::default()).await?;
        stage.install().await?;
        Ok(stage)
    }

    /// Starts a plane with nothing on it.
    pub async fn bare(options: Options) -> anyhow::Result<Self> {
        Ok(Self { plane: Plane::start(options).await? })
    }

    /// Installs `deploy/install.yaml`, without the Deployment: the tests run the operator themselves.
    pub async fn install(&self) -> anyhow::Result<()> {
        let rest = manifest()?;
        self.kubectl_stdin(ADMIN, &["apply", "--server-side", "-f", "-"], &rest).await?;
        let crds = "crd/namespacemanagers.coppice.dev crd/coppiceconfigs.coppice.dev";
        let mut wait = vec!["wait", "--for=condition=Established", "--timeout=60s"];
        wait.extend(crds.split(' '));
        self.kubectl(ADMIN, &wait).await?;
        // An admission policy is in force a moment after it was created: wait until it refuses what it shall refuse.
        self.until("the admission policy is in force", async || {
            let forged = r#"{"status":{"firings":1}}"#;
            let write =
                ["patch", "coppiceconfig", "none", "--subresource=status", "--type=merge", "-p", forged];
            let _ = self.kubectl(ADMIN, &write).await;
            let name = "guard-probe";
            let _ = self.kubectl(ADMIN, &["create", "namespace", name]).await;
            let refused = self.kubectl(OPERATOR, &["delete", "namespace", name, "--wait=false"]).await;
            match refused {
                Err(error) => error.to_string().contains("precondition").then_some(()),
                Ok(_) => None,
            }
        })
        .await
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

    /// Applies YAML as the administrator.
    pub async fn apply(&self, yaml: &str) -> anyhow::Result<String> {
        self.kubectl_stdin(ADMIN, &["apply", "-f", "-"], yaml).await
    }

    /// Creates a namespace in which pods can be created.
    pub async fn namespace(&self, name: &str) -> anyhow::Result<String> {
        self.kubectl(ADMIN, &["create", "namespace", name]).await?;
        let wait = ["wait", "-n", name, "--for=create", "serviceaccount/default", "--timeout=60s"];
        self.kubectl(ADMIN, &wait).await?;
        self.uid("namespace", name).await
    }

    /// Applies a `NamespaceManager` with this spec (a YAML flow mapping).
    pub async fn manager(&self, namespace: &str, name: &str, spec: &str) -> anyhow::Result<String> {
        self.apply(&format!(
            "{{apiVersion: coppice.dev/v1alpha1, kind: NamespaceManager, metadata: {{name: {name}, namespace: {namespace}}}, spec: {spec}}}"
        ))
        .await
    }

    /// Runs a pod that ends as told: `run`, `succeed`, `fail`, `crashloop`, `imagepull`, `pending`.
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
        let mut args = vec!["get", kind, name, "-o", "json", "--ignore-not-found"];
        if !namespace.is_empty() {
            args.extend(["-n", namespace]);
        }
        let text = self.kubectl(ADMIN, &args).await?;
        if text.trim().is_empty() { Ok(None) } else { Ok(Some(serde_json::from_str(&text)?)) }
    }

    async fn uid(&self, kind: &str, name: &str) -> anyhow::Result<String> {
        let object = self.get(kind, "", name).await?.with_context(|| format!("{kind} {name} is gone"))?;
        Ok(object["metadata"]["uid"].as_str().unwrap_or_default().to_owned())
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
        let mut last = Value::Null;
        let deadline = Instant::now() + PATIENCE;
        while Instant::now() < deadline {
            if let Some(manager) = self.get("nsman", namespace, name).await? {
                let current = manager["status"]["observedGeneration"] == manager["metadata"]["generation"];
                if current && is(&manager) {
                    return Ok(manager);
                }
                last = manager;
            }
            pause().await;
        }
        bail!("{namespace}/{name} never reached {what}; its status is {:#}", last["status"])
    }

    /// Waits until a namespace is being deleted or gone (or has been replaced).
    pub async fn deleted(&self, name: &str, uid: &str) -> anyhow::Result<()> {
        self.until(&format!("namespace {name} is deleted"), async || {
            self.is_deleted(name, uid).await.then_some(())
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

    /// Waits until something is there.
    pub async fn until<T>(&self, what: &str, check: impl AsyncFn() -> Option<T>) -> anyhow::Result<T> {
        until(what, check).await
    }

    /// Events of a reason about an object: their messages.
    pub async fn events(&self, namespace: &str, name: &str, reason: &str) -> anyhow::Result<Vec<String>> {
        let text =
            self.kubectl(ADMIN, &["get", "events.v1.events.k8s.io", "-n", namespace, "-o", "json"]).await?;
        let list: Value = serde_json::from_str(&text)?;
        let events = list["items"].as_array().cloned().unwrap_or_default();
        let about = |e: &&Value| e["regarding"]["name"] == name && e["reason"] == reason;
        Ok(events.iter().filter(about).filter_map(|e| e["note"].as_str().map(str::to_owned)).collect())
    }

    /// Every request to delete a namespace by the operator; not those that tests make with kubectl in its name, such as the
    /// probe that may come before the admission policy is in force.
    pub fn namespace_deletes(&self) -> anyhow::Result<Vec<AuditEvent>> {
        let events = self.plane.audit()?;
        Ok(events
            .into_iter()
            .filter(|e| {
                e.user == OPERATOR
                    && !e.user_agent.starts_with("kubectl")
                    && e.verb == "delete"
                    && e.resource == "namespaces"
            })
            .collect())
    }
}

/// Waits until something is there.
pub async fn until<T>(what: &str, check: impl AsyncFn() -> Option<T>) -> anyhow::Result<T> {
    let deadline = Instant::now() + PATIENCE;
    while Instant::now() < deadline {
        if let Some(found) = check().await {
            return Ok(found);
        }
        pause().await;
    }
    bail!("waited {} s in vain: {what}", PATIENCE.as_secs())
}

/// Between two looks at the API server.
async fn pause() {
    tokio::time::sleep(Duration::from_millis(100)).await;
}
