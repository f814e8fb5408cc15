//! The API server in memory over HTTP: kubectl works on it, and the real operator.

use std::path::PathBuf;
use std::process::{Output, Stdio};

use anyhow::{Context as _, ensure};
use coppice_plane::Binaries;
use coppice_tests::test_cluster::{TIMEOUT, binary, manifest, until};
use coppice_tests::{InMemory, Operator, on_own_plane};
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, Lines};
use tokio::process::{ChildStdout, Command};

/// The server, and kubectl.
struct Sim {
    server: InMemory,
    kubectl: PathBuf,
}

impl Sim {
    async fn start(args: &[&str]) -> anyhow::Result<Self> {
        let server = InMemory::start(args).await?;
        let kubectl = tokio::task::spawn_blocking(Binaries::locate).await??.path("kubectl");
        Ok(Self { server, kubectl })
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(&self.kubectl);
        command.args(args).env("KUBECONFIG", &self.server.kubeconfig).kill_on_drop(true);
        command.env("KUBECACHEDIR", self.server.dir().join("cache"));
        command
    }

    async fn run(&self, args: &[&str], stdin: &str) -> anyhow::Result<Output> {
        let mut command = self.command(args);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn()?;
        child.stdin.take().context("no input")?.write_all(stdin.as_bytes()).await?;
        Ok(tokio::time::timeout(TIMEOUT, child.wait_with_output()).await??)
    }

    /// What kubectl prints; it has to succeed.
    async fn kubectl(&self, args: &[&str], stdin: &str) -> anyhow::Result<String> {
        let output = self.run(args, stdin).await?;
        let complaint = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "kubectl {}: {complaint}", args.join(" "));
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }
}

async fn next(lines: &mut Lines<BufReader<ChildStdout>>) -> anyhow::Result<String> {
    let line = tokio::time::timeout(TIMEOUT, lines.next_line()).await??;
    line.context("the watch has ended")
}

const SETTINGS: &str =
    "---\n{apiVersion: v1, kind: ConfigMap, metadata: {name: settings, namespace: shop}, data: {a: VALUE}}";
const WEB: &str = "---\n{apiVersion: apps/v1, kind: Deployment, metadata: {name: web, namespace: shop}, \
                   spec: {replicas: 2, selector: {matchLabels: {app: web}}, template: {metadata: {labels: {app: web}}, \
                   spec: {containers: [{name: web, image: nginx}]}}}}";

#[test]
fn kubectl_applies_gets_watches_describes_and_deletes() -> anyhow::Result<()> {
    on_own_plane(async {
        let sim = Sim::start(&[]).await?;
        ensure!(sim.server.greeting.contains("in memory"), "it says what it is: {}", sim.server.greeting);
        // In protobuf, whatever kubectl is asked for.
        let created = sim.kubectl(&["create", "namespace", "shop"], "").await?;
        ensure!(created == "namespace/shop created\n", "{created}");

        let mut watch =
            sim.command(&["get", "configmaps", "-n", "shop", "-w", "--no-headers", "--output-watch-events"]);
        let mut watch = watch.stdout(Stdio::piped()).spawn()?;
        let mut lines = BufReader::new(watch.stdout.take().context("no output")?).lines();
        for (value, says, event) in [
            ("one", "created", Some("ADDED")),
            ("one", "unchanged", None),
            ("two", "configured", Some("MODIFIED")),
        ] {
            let applied = sim.kubectl(&["apply", "-f", "-"], &SETTINGS.replace("VALUE", value)).await?;
            ensure!(applied == format!("configmap/settings {says}\n"), "{value}: {applied}");
            // Read before the next change: a watch that begins later would see only what came of both.
            let Some(event) = event else { continue };
            let mut line = next(&mut lines).await?;
            while !line.contains(" settings ") {
                line = next(&mut lines).await?;
            }
            ensure!(line.split(' ').next() == Some(event), "{value}: {line}");
        }

        let by = ["apply", "--server-side", "--field-manager=other", "-f", "-"];
        let refused = sim.run(&by, &SETTINGS.replace("VALUE", "three")).await?;
        let complaint = String::from_utf8_lossy(&refused.stderr).into_owned();
        ensure!(
            !refused.status.success() && complaint.contains("conflict with \"kubectl-client-side-apply\""),
            "{complaint}"
        );

        sim.kubectl(&["apply", "--server-side", "-f", "-"], WEB).await?;
        let wait = ["wait", "-n", "shop", "deployment/web", "--for=condition=Available", "--timeout=300s"];
        sim.kubectl(&wait, "").await?;
        sim.kubectl(&["scale", "-n", "shop", "deployment/web", "--replicas=3"], "").await?;
        let wait = [
            "wait",
            "-n",
            "shop",
            "deployment/web",
            "--for=jsonpath={.status.readyReplicas}=3",
            "--timeout=300s",
        ];
        sim.kubectl(&wait, "").await?;
        let described = sim.kubectl(&["describe", "deployment", "web", "-n", "shop"], "").await?;
        ensure!(described.contains("3 desired | 3 updated | 3 total | 3 available"), "{described}");

        sim.kubectl(&["delete", "namespace", "shop", "--wait"], "").await?;
        while !next(&mut lines).await?.starts_with("DELETED") {}
        let gone = sim.run(&["get", "namespace", "shop"], "").await?;
        let complaint = String::from_utf8_lossy(&gone.stderr).into_owned();
        ensure!(complaint.contains("namespaces \"shop\" not found"), "{complaint}");
        Ok(())
    })
}

#[test]
fn the_operator_deletes_a_namespace_when_its_time_is_over() -> anyhow::Result<()> {
    on_own_plane(async {
        let sim = Sim::start(&[]).await?;
        let installed = sim.kubectl(&["apply", "--server-side", "-f", "-"], &manifest()?).await?;
        ensure!(installed.contains("namespacemanagers.coppice.dev serverside-applied"), "{installed}");
        let operator = Operator::start_by(&sim.server.kubeconfig, sim.server.dir(), &[]).await?;
        sim.kubectl(&["create", "namespace", "preview"], "").await?;
        let manager = "---\n{apiVersion: coppice.dev/v1alpha1, kind: NamespaceManager, metadata: {name: ttl, namespace: preview}, \
                       spec: {policies: [{name: p, when: {ttl: {after: 3s}}, then: {delete: {}}}]}}";
        sim.kubectl(&["apply", "-f", "-"], manager).await?;
        let gone = sim.kubectl(&["wait", "namespace/preview", "--for=delete", "--timeout=300s"], "").await;
        gone.with_context(|| operator.last_lines())?;
        let about =
            ["get", "events", "-n", "default", "--field-selector=reason=NamespaceDeleted", "-o", "name"];
        // It is written a moment after the deletion.
        let one = async || (sim.kubectl(&about, "").await.ok()?.lines().count() == 1).then_some(());
        until("one Event says so", one).await.with_context(|| operator.last_lines())
    })
}

#[test]
fn it_listens_on_loopback_only_overwrites_nothing_and_ends_cleanly() -> anyhow::Result<()> {
    on_own_plane(async {
        let refused = Command::new(binary("coppice-sim")?).args(["--listen", "0.0.0.0:0"]).output().await?;
        let complaint = String::from_utf8_lossy(&refused.stderr).into_owned();
        ensure!(!refused.status.success() && complaint.contains("not an address of loopback"), "{complaint}");
        let theirs = tempfile::NamedTempFile::new()?;
        let refused =
            Command::new(binary("coppice-sim")?).arg("--kubeconfig").arg(theirs.path()).output().await?;
        let complaint = String::from_utf8_lossy(&refused.stderr).into_owned();
        ensure!(!refused.status.success() && complaint.contains("name another file"), "{complaint}");
        ensure!(std::fs::read(theirs.path())?.is_empty(), "it is as it was");
        let sim = Sim::start(&["--crds"]).await?;
        let kinds = sim.kubectl(&["api-resources", "--api-group=coppice.dev", "-o", "name"], "").await?;
        ensure!(kinds.contains("namespacemanagers.coppice.dev"), "{kinds}");
        let ended = sim.server.interrupt().await?;
        ensure!(ended.success(), "Ctrl-C: {ended}");
        Ok(())
    })
}
