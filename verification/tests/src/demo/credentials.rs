//! A team gets a credential for another cluster, with rights of its own. That cluster refuses what is not among them; the
//! credential is rotated, and revoked in the end.
#![allow(clippy::print_stdout, reason = "this is what the demo is for")]

use std::path::PathBuf;
use std::time::Instant;

use anyhow::{Context as _, bail, ensure};
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use coppice_plane::{ADMIN, Options, Pods};
use serde_json::{Value, json};

use super::cluster::Cluster;
use super::screen::Screen;
use super::table::Table;
use super::{TIMEOUT, pause};
use crate::TestCluster;
use crate::program::Program;
use crate::requests::{self, Requests};
use crate::test_cluster::{access_manifest, binary, repository};

/// The team's namespace, and that in the other cluster which it has rights in.
const TEAM: &str = "payments";
const THERE: &str = "web";
/// The `ClusterAccess`, the Secret with the kubeconfig by which it is issued, and the one with what is issued.
const NAME: &str = "deployer";
const BOOTSTRAP: &str = "other-cluster";
const SECRET: &str = "deployer-kubeconfig";
/// What the other cluster has for a `ClusterAccess`, with its uid as a label.
const LABEL: &str = "coppice.dev/access";
const IN_TARGET: [&str; 4] = ["secret", "serviceaccount", "role", "rolebinding"];

/// Whether every outcome was seen.
pub(super) async fn run(cluster: &Cluster, screen: &Screen) -> anyhow::Result<bool> {
    println!(
        "\nAccess: a team gets a credential for another cluster, which issues, rotates and revokes it.\n"
    );
    let Cluster::Plane(here) = cluster else {
        println!("It is left out: the API server in memory neither issues tokens nor enforces rights.\n");
        return Ok(true);
    };
    println!(
        "starting another control plane, the other cluster (etcd, kube-apiserver, controller-manager) ..."
    );
    let there = TestCluster::bare_at_once(Options { pods: Pods::Pending, ..Options::default() }).await?;
    println!("  up at {}", there.plane.url());
    here.kubectl_stdin(ADMIN, &["apply", "--server-side", "-f", "-"], &access_manifest()?).await?;
    let admin = here.admin().await?;
    until("the kind ClusterAccess is served", async || Ok(admin.list("ClusterAccess", "").await.ok()))
        .await?;
    let program = program(here).await?;
    println!(
        "  installed deploy/access.yaml; coppice-access runs as its service account, with its own rights\n"
    );
    let seen = match show(here, &there, screen).await {
        Ok(()) => true,
        Err(missed) => {
            screen.say(&format!("\nNOT SEEN  {missed:#}\n{}", program.last_lines()));
            false
        }
    };
    drop(program);
    there.plane.stop().await?;
    Ok(seen)
}

async fn program(here: &TestCluster) -> anyhow::Result<Program> {
    let account = here.service_account("coppice-access-system", "coppice-access").await?;
    let log = here.plane.dir().join("log/access.log");
    Program::start(&binary("coppice-access")?, &account, log, |command| {
        command.args(["--listen", "127.0.0.1:0", "--listen-probes", "127.0.0.1:0"]);
    })
    .await
}

/// Plays it between two clusters. The program runs in the one, and nothing has to be there in the other.
///
/// # Errors
/// If an outcome is not seen.
pub async fn show(here: &TestCluster, there: &TestCluster, screen: &Screen) -> anyhow::Result<()> {
    let demonstration = Demonstration::prepare(here, there, screen).await?;
    let (access, first) = demonstration.is_issued().await?;
    demonstration.is_refused(&first).await?;
    let last = demonstration.is_rotated(&access, &first).await?;
    demonstration.is_revoked(&access, &last).await
}

struct Demonstration {
    here: Requests,
    there: Requests,
    /// Where kubeconfigs are written to.
    folder: PathBuf,
    screen: Screen,
    table: Table,
}

impl Demonstration {
    async fn prepare(here: &TestCluster, there: &TestCluster, screen: &Screen) -> anyhow::Result<Self> {
        let account = std::fs::read_to_string(repository().join("examples/access/target.yaml"))?;
        there.kubectl_stdin(ADMIN, &["apply", "--server-side", "-f", "-"], &account).await?;
        let bootstrap = there.service_account("coppice-access", "coppice-bootstrap").await?;
        let bootstrap = BASE64_STANDARD.encode(std::fs::read_to_string(bootstrap)?);
        let folder = here.plane.dir().to_owned();
        let (here, there) = (here.admin().await?, there.admin().await?);
        let namespace =
            |name: &str| json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
        there.apply(&namespace(THERE)).await?;
        here.apply(&namespace(TEAM)).await?;
        let secret = json!({
            "apiVersion": "v1", "kind": "Secret",
            "metadata": {"name": BOOTSTRAP, "namespace": TEAM, "labels": {LABEL: "kubeconfig"}},
            "data": {"kubeconfig": bootstrap}
        });
        here.apply(&secret).await?;
        screen.say("  The team may read the ConfigMaps of one namespace there, by a ClusterAccess.\n");
        let table = Table::new(screen, TEAM);
        Ok(Self { here, there, folder, screen: screen.clone(), table })
    }

    /// The object as it is then, and whoever has what it issued.
    async fn is_issued(&self) -> anyhow::Result<(Value, Requests)> {
        let rules = json!([{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get", "list"]}]);
        let access = json!({
            "apiVersion": "coppice.dev/v1alpha1", "kind": "ClusterAccess",
            "metadata": {"name": NAME, "namespace": TEAM},
            "spec": {
                "cluster": {"kubeconfigSecret": {"name": BOOTSTRAP}},
                "rights": {"role": {"namespace": THERE, "rules": rules}},
                "ttl": "1h",
                "output": {"secret": SECRET}
            }
        });
        self.here.create(&access).await?;
        let access = self.until("its credential is issued", |status| status["phase"] == "Ready").await?;
        let holder = self.holder("first").await?;
        holder.list("configmap", THERE).await?;
        let not_after = access["status"]["notAfter"].as_str().unwrap_or_default();
        let why = format!(
            "the other cluster lists its ConfigMaps to who has the Secret {SECRET}, until {not_after}"
        );
        self.table.row(TEAM, "as expected", &why);
        Ok((access, holder))
    }

    async fn is_refused(&self, holder: &Requests) -> anyhow::Result<()> {
        let answer = holder.list("secret", THERE).await;
        let answer = answer.err().context("who has the credential may not read Secrets")?.to_string();
        ensure!(answer.contains("Forbidden"), "it is refused for another reason: {answer}");
        self.table.row(TEAM, "as expected", "the other cluster refuses to list its Secrets");
        let words = answer.split_once(": ").map_or(answer.as_str(), |(_, words)| words);
        self.screen.quote("What its API server says", words);
        self.screen.say("");
        Ok(())
    }

    /// Whoever has the credential by then.
    async fn is_rotated(&self, access: &Value, old: &Requests) -> anyhow::Result<Requests> {
        self.here.patch("ClusterAccess", TEAM, NAME, &json!({"spec": {"rotate": "now"}})).await?;
        self.table.row(TEAM, "rotated", "by spec.rotate, which names the rotation");
        let before = &access["status"]["credential"];
        let is_rotated = |status: &Value| {
            let is_new = status["rotated"] == "now" && status["credential"] != *before;
            is_new && status["phase"] == "Ready" && status["superseded"].is_null()
        };
        self.until("its credential is another one", is_rotated).await?;
        let new = self.holder("second").await?;
        new.list("configmap", THERE).await?;
        self.table.row(TEAM, "as expected", "the Secret holds another credential, which is valid");
        ends(old).await?;
        self.table.row(TEAM, "as expected", "the one before is not valid any more: Unauthorized");
        Ok(new)
    }

    async fn is_revoked(&self, access: &Value, last: &Requests) -> anyhow::Result<()> {
        self.here.delete("ClusterAccess", TEAM, NAME, &json!({})).await?;
        until("its ClusterAccess goes", async || {
            Ok(self.here.get("ClusterAccess", TEAM, NAME).await?.is_none().then_some(()))
        })
        .await?;
        ensure!(self.here.get("secret", TEAM, SECRET).await?.is_none(), "the Secret {SECRET} goes with it");
        let uid = &access["metadata"]["uid"];
        for kind in IN_TARGET {
            let left = self.there.list(kind, "").await?;
            let ours = left.iter().find(|object| object["metadata"]["labels"][LABEL] == *uid);
            ensure!(ours.is_none(), "nothing of it is left in the other cluster: {kind} {ours:?}");
        }
        self.table.row(TEAM, "as expected", "ClusterAccess deleted: nothing of it is left in either cluster");
        ends(last).await?;
        self.table.row(TEAM, "as expected", "the last credential is not valid any more: Unauthorized");
        self.screen.say("");
        Ok(())
    }

    /// Waits until the status is as described; the object.
    async fn until(&self, what: &str, is: impl Fn(&Value) -> bool) -> anyhow::Result<Value> {
        until(what, async || {
            let access = self.here.get("ClusterAccess", TEAM, NAME).await?;
            Ok(access.filter(|access| is(&access["status"])))
        })
        .await
    }

    /// Whoever has what the Secret holds now.
    async fn holder(&self, which: &str) -> anyhow::Result<Requests> {
        let secret = self.here.get("secret", TEAM, SECRET).await?.context("there is no Secret")?;
        let kubeconfig = secret["data"]["kubeconfig"].as_str().context("the Secret has no kubeconfig")?;
        let path = self.folder.join(format!("{which}-{SECRET}.yaml"));
        std::fs::write(&path, BASE64_STANDARD.decode(kubeconfig)?)?;
        requests::Clients::default().by(path).await
    }
}

/// Waits until a credential is not valid any more: an API server remembers for ten seconds that it was valid.
async fn ends(credential: &Requests) -> anyhow::Result<()> {
    until("a credential that was revoked is not valid any more", async || {
        let answer = credential.list("configmap", THERE).await;
        Ok(answer.is_err_and(|error| error.to_string().contains("Unauthorized")).then_some(()))
    })
    .await
}

/// Looks until something is there.
async fn until<T>(what: &str, found: impl AsyncFn() -> anyhow::Result<Option<T>>) -> anyhow::Result<T> {
    let deadline = Instant::now() + TIMEOUT;
    while Instant::now() < deadline {
        if let Some(found) = found().await? {
            return Ok(found);
        }
        pause().await;
    }
    bail!("{what}")
}
