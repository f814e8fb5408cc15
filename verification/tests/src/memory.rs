//! The API server in memory as a process of its own: for its tests, and for the demo where there is no Go toolchain.

use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};

use anyhow::Context as _;
use kube::api::{DynamicObject, Patch, PatchParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::core::GroupVersionKind;
use kube::discovery::{Scope, oneshot};
use kube::{Api, Client};
use serde::Deserialize as _;
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::{Child, ChildStdin, Command};

use crate::test_cluster::{TIMEOUT, binary};

/// Runs a program, sends it SIGINT on SIGTERM, and kills it when standard input ends: also when the parent is killed.
const SUPERVISOR_SCRIPT: &str = r#"exec 3<&0; "$@" </dev/null & pid=$!
{ cat <&3 >/dev/null; kill -9 $pid; } 2>/dev/null & watcher=$!
trap 'kill -INT $pid' TERM; wait $pid; code=$?; [ $code -gt 128 ] && { wait $pid; code=$?; }
kill $watcher 2>/dev/null; exit $code"#;

/// A running `coppice-sim`. It is killed when this is dropped.
pub struct InMemory {
    child: Child,
    /// Standard input of the leash: waiting for the child would close it otherwise.
    _supervisor_stdin: ChildStdin,
    folder: TempDir,
    /// What it printed when it was ready.
    pub greeting: String,
    /// Leads to it.
    pub kubeconfig: PathBuf,
}

impl InMemory {
    /// Starts it with further arguments, and waits until it answers.
    pub async fn start(args: &[&str]) -> anyhow::Result<Self> {
        let folder = tempfile::tempdir()?;
        let kubeconfig = folder.path().join("kubeconfig");
        let mut command = Command::new("/bin/sh");
        command
            .args(["-c", SUPERVISOR_SCRIPT, "leash"])
            .arg(binary("coppice-sim")?)
            .arg("--kubeconfig")
            .arg(&kubeconfig);
        command.args(args).stdin(Stdio::piped()).stdout(Stdio::piped()).kill_on_drop(true);
        let mut child = command.spawn().context("coppice-sim could not be started")?;
        let supervisor_stdin = child.stdin.take().context("no input")?;
        let mut lines = BufReader::new(child.stdout.take().context("no output")?).lines();
        let mut greeting = String::new();
        // The last line is there when everything else is.
        while !greeting.contains("Ctrl-C") {
            let line = tokio::time::timeout(TIMEOUT, lines.next_line()).await??;
            greeting += &line.context("coppice-sim has ended")?;
            greeting.push('\n');
        }
        Ok(Self { child, _supervisor_stdin: supervisor_stdin, folder, greeting, kubeconfig })
    }

    /// A folder that goes with it.
    pub fn dir(&self) -> &Path {
        self.folder.path()
    }

    /// Applies the documents of YAML in turn, without kubectl.
    pub async fn apply(&self, yaml: &str) -> anyhow::Result<()> {
        apply_all(&client(&self.kubeconfig).await?, yaml).await
    }

    /// Ctrl-C, and how it ends.
    pub async fn interrupt(mut self) -> anyhow::Result<ExitStatus> {
        let pid = self.child.id().context("it has ended")?.to_string();
        // To the shell, which makes it SIGINT: a shell that was started with SIGINT ignored, as in the background, cannot trap that.
        Command::new("kill").args(["-TERM", &pid]).status().await?;
        Ok(tokio::time::timeout(TIMEOUT, self.child.wait()).await??)
    }
}

/// A client by a kubeconfig.
pub async fn client(kubeconfig: &Path) -> anyhow::Result<Client> {
    let kubeconfig = Kubeconfig::read_from(kubeconfig)?;
    let config = kube::Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await?;
    Ok(Client::try_from(config)?)
}

/// Applies the documents of YAML in turn, without kubectl, to any API server.
pub async fn apply_all(client: &Client, yaml: &str) -> anyhow::Result<()> {
    for document in serde_yaml::Deserializer::from_str(yaml) {
        let object = Option::<DynamicObject>::deserialize(document).context("YAML of an object")?;
        // Comments alone are a document, too.
        if let Some(object) = object {
            apply(client, object).await?;
        }
    }
    Ok(())
}

async fn apply(client: &Client, object: DynamicObject) -> anyhow::Result<()> {
    let types = object.types.as_ref().context("an object without apiVersion and kind")?;
    let name = object.metadata.name.as_deref().context("an object without a name")?;
    let what = format!("{} {name}", types.kind);
    let kind = GroupVersionKind::try_from(types)?;
    let (resource, capabilities) = oneshot::pinned_kind(client, &kind).await.context(what.clone())?;
    let api: Api<DynamicObject> = match (&capabilities.scope, object.metadata.namespace.as_deref()) {
        (Scope::Namespaced, Some(namespace)) => Api::namespaced_with(client.clone(), namespace, &resource),
        (Scope::Namespaced, None) => Api::default_namespaced_with(client.clone(), &resource),
        (Scope::Cluster, _) => Api::all_with(client.clone(), &resource),
    };
    let by = PatchParams::apply("coppice-demo").force();
    api.patch(name, &by, &Patch::Apply(&object)).await.context(what)?;
    Ok(())
}
