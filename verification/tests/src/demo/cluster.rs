//! What the demo runs on: a real control plane, or the API server in memory where there is no Go to build one.
#![allow(clippy::print_stdout, reason = "this is what the demo is for")]

use std::path::PathBuf;

use coppice_plane::{ADMIN, ALICE, Binaries, Error, Options};
use kube::Client;

use crate::memory::client;
use crate::test_cluster::{manifest, trees_manifest};
use crate::{InMemory, Operator, TestCluster};

/// The user of [`Cluster::tenant_kubeconfig`].
pub(super) const TENANT: &str = ALICE;

pub(super) enum Cluster {
    Plane(TestCluster),
    InMemory(InMemory),
}

impl Cluster {
    /// Starts one with Coppice installed, and says which.
    pub(super) async fn start() -> anyhow::Result<Self> {
        // Minutes, the first time.
        let cluster = match tokio::task::spawn_blocking(Binaries::locate).await? {
            Ok(_) => {
                println!(
                    "starting a control plane of its own (etcd, kube-apiserver, controller-manager, scheduler, KWOK) ..."
                );
                let test_cluster = TestCluster::bare(Options::default()).await?;
                test_cluster.install().await?;
                println!("  up at {}; nothing else is touched", test_cluster.plane.url());
                Self::Plane(test_cluster)
            }
            Err(error @ Error::Go { .. }) => {
                println!("no real control plane: {error}");
                println!(
                    "the demo runs on the API server in memory (coppice-sim) instead: the same operator, examples and"
                );
                println!("outcomes; but rights (RBAC) and admission policies are not enforced there ...");
                let server = InMemory::start(&[]).await?;
                server.apply(&manifest()?).await?;
                println!("  {}", server.greeting.lines().next().unwrap_or_default());
                Self::InMemory(server)
            }
            Err(error) => return Err(error.into()),
        };
        println!("  look at it yourself: export KUBECONFIG={}", cluster.kubeconfig().display());
        Ok(cluster)
    }

    pub(super) fn kubeconfig(&self) -> PathBuf {
        match self {
            Self::Plane(test_cluster) => test_cluster.plane.admin_kubeconfig(),
            Self::InMemory(server) => server.kubeconfig.clone(),
        }
    }

    /// That of a user who has the rights that roles in namespaces give, and no others; in memory, where no rights are enforced, the same.
    pub(super) fn tenant_kubeconfig(&self) -> anyhow::Result<PathBuf> {
        match self {
            Self::Plane(test_cluster) => Ok(test_cluster.plane.kubeconfig(TENANT)?),
            Self::InMemory(server) => Ok(server.kubeconfig.clone()),
        }
    }

    pub(super) async fn client(&self) -> anyhow::Result<Client> {
        client(&self.kubeconfig()).await
    }

    /// Starts the operator, and waits until it is ready.
    pub(super) async fn operator(&self) -> anyhow::Result<Operator> {
        match self {
            Self::Plane(test_cluster) => {
                println!(
                    "  installed deploy/install.yaml; starting the operator as its service account, with its own rights ..."
                );
                Operator::start(test_cluster).await
            }
            Self::InMemory(server) => {
                println!("  installed deploy/install.yaml; starting the operator ...");
                Operator::start_by(&server.kubeconfig, server.dir(), &[]).await
            }
        }
    }

    /// Installs what trees need, but for the program.
    pub(super) async fn install_trees(&self) -> anyhow::Result<()> {
        match self {
            Self::Plane(test_cluster) => test_cluster.install_trees().await,
            Self::InMemory(server) => server.apply(&trees_manifest()?).await,
        }
    }

    /// Starts the program of trees, which leads soon after another one was killed, and waits until it is ready.
    pub(super) async fn trees(&self) -> anyhow::Result<Operator> {
        let args = "trees --lease-duration 12s --lease-renew-deadline 6s --lease-retry-period 1s";
        let args: Vec<&str> = args.split(' ').collect();
        match self {
            Self::Plane(test_cluster) => {
                let account = test_cluster.service_account("coppice-system", "coppice-trees").await?;
                Operator::start_by(&account, test_cluster.plane.dir(), &args).await
            }
            Self::InMemory(server) => Operator::start_by(&server.kubeconfig, server.dir(), &args).await,
        }
    }

    pub(super) async fn apply(&self, yaml: &str) -> anyhow::Result<()> {
        match self {
            Self::Plane(test_cluster) => {
                test_cluster.kubectl_stdin(ADMIN, &["apply", "-f", "-"], yaml).await.map(drop)
            }
            // Nor is there a kubectl without Go.
            Self::InMemory(server) => server.apply(yaml).await,
        }
    }

    /// The same in the tenant's name.
    pub(super) async fn apply_as_tenant(&self, yaml: &str) -> anyhow::Result<()> {
        match self {
            Self::Plane(test_cluster) => {
                test_cluster.kubectl_stdin(TENANT, &["apply", "-f", "-"], yaml).await.map(drop)
            }
            Self::InMemory(server) => server.apply(yaml).await,
        }
    }

    pub(super) async fn stop(self) -> anyhow::Result<()> {
        match self {
            Self::Plane(test_cluster) => Ok(test_cluster.plane.stop().await?),
            Self::InMemory(server) => server.interrupt().await.map(drop),
        }
    }
}
