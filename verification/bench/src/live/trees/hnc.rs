//! The Hierarchical Namespace Controller beside it: how soon all namespaces of as large a tree have what is copied from its root.
//! What it is, and under which circumstances it runs: `peer-hnc/README.md`.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use coppice_plane::{ADMIN, Options, Pods};
use coppice_tests::TestCluster;
use coppice_tests::program::Program;
use coppice_tests::requests::{Requests, documents};
use coppice_tests::test_cluster::repository;
use serde_json::{Value, json};

use super::{ROOT, Row, TreesArgs, created, members, propagate, tenant};
use crate::live::progress;
use crate::live::testbed::pause;

const MODULE: &str = "sigs.k8s.io/hierarchical-namespaces";
const NAMESPACE: &str = "hnc-system";
/// How many requests a second it may send, and how that is called. The first one lets the tree grow.
const LIMITS: [(&str, &str); 2] =
    [("2000", "HNC without its limit"), ("50", "HNC as shipped, 50 requests a second")];
/// It has its whole burst again, and has done what it does after a start.
const REST: Duration = Duration::from_secs(20);

/// Measures it on a control plane of its own.
pub(super) async fn measure(args: &TreesArgs) -> anyhow::Result<Vec<Row>> {
    let built = tempfile::tempdir()?;
    let program = build(built.path())?;
    let options = Options { fsync: true, pods: Pods::Pending, ..Options::default() };
    let test_cluster = TestCluster::bare(options).await?;
    let admin = test_cluster.requests(ADMIN).await?;
    install(&admin).await?;
    let account = test_cluster.service_account(NAMESPACE, "default").await?;
    test_cluster.namespace(ROOT).await?;
    let mut rows = Vec::new();
    for (number, (limit, called)) in LIMITS.into_iter().enumerate() {
        let log = test_cluster.plane.dir().join(format!("log/hnc-{number}.log"));
        let mut hnc = Program::start(&program, &account, log, |command| {
            command.args(["--no-webhooks", "--enable-stackdriver=false", "--max-reconciles=10"]);
            command.args(["--metrics-addr=0", "--health-probe-bind-address=0"]);
            command.args([format!("--apiserver-qps-throttle={limit}"), format!("--namespace={NAMESPACE}")]);
            let excluded = ["kube-system", "kube-public", NAMESPACE, "kube-node-lease"];
            command.args(excluded.map(|name| format!("--excluded-namespace={name}")));
        })
        .await?;
        let last_lines = || hnc.last_lines();
        if number == 0 {
            grow(&admin, args, &last_lines).await?;
        }
        // The first is not counted: by it what a start brings is over.
        for round in 0..=args.bindings {
            pause(REST).await;
            progress(&format!("{called}: RoleBinding {round}"));
            let name = format!("viewers-{number}-{round}");
            let measured = propagate(&admin, &name, args.namespaces(), REST, &last_lines).await?;
            if round > 0 {
                rows.extend(measured.map(|row| Row { what: format!("{called}: {}", row.what), ..row }));
            }
        }
        hnc.kill().await?;
    }
    Ok(rows)
}

fn module() -> PathBuf {
    repository().join("verification/bench/peer-hnc")
}

fn build(folder: &Path) -> anyhow::Result<PathBuf> {
    eprintln!("building the Hierarchical Namespace Controller (the first time takes some minutes) ...");
    let program = folder.join("hnc");
    let built = Command::new("go")
        .args(["build", "-trimpath", "-ldflags=-s -w", "-o"])
        .arg(&program)
        .arg(format!("{MODULE}/cmd/manager"))
        .current_dir(module())
        .status()
        .context("run go (install Go 1.26 or later)")?;
    ensure!(built.success(), "the Hierarchical Namespace Controller could not be built");
    Ok(program)
}

/// Its kinds, from its module, and all rights.
async fn install(admin: &Requests) -> anyhow::Result<()> {
    let found = Command::new("go")
        .args(["list", "-m", "-f", "{{.Dir}}", MODULE])
        .current_dir(module())
        .output()
        .context("run go")?;
    let folder = Path::new(std::str::from_utf8(&found.stdout)?.trim()).join("config/crd/bases");
    for file in std::fs::read_dir(&folder).with_context(|| folder.display().to_string())? {
        for object in documents(&std::fs::read_to_string(file?.path())?)? {
            admin.apply(&object).await?;
        }
    }
    admin.create(&json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}})).await?;
    admin.create(&json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default", "namespace": NAMESPACE}})).await?;
    admin
        .create(&json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": {"name": "hnc"},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"},
            "subjects": [{"kind": "ServiceAccount", "name": "default", "namespace": NAMESPACE}]}))
        .await?;
    Ok(())
}

/// The same namespaces as Coppice has.
async fn grow(admin: &Requests, args: &TreesArgs, log: &impl Fn() -> String) -> anyhow::Result<()> {
    let anchor = |(parent, name): &(String, String)| {
        json!({"apiVersion": "hnc.x-k8s.io/v1alpha2", "kind": "SubnamespaceAnchor",
            "metadata": {"name": name, "namespace": parent}})
    };
    let is_there = |anchor: &Value| anchor["status"]["status"] == "Ok";
    progress("HNC: the tree grows");
    let tenants = (0..args.tenants).map(|n| vec![(ROOT.to_owned(), tenant(n))]).collect();
    created(admin, "SubnamespaceAnchor", tenants, anchor, is_there, log).await?;
    for round in 1..=args.rounds {
        created(admin, "SubnamespaceAnchor", members(args, round), anchor, is_there, log).await?;
    }
    Ok(())
}
