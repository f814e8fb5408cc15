//! Many targets that are one control plane.

use std::net::Ipv4Addr;

use anyhow::Context as _;
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use coppice_plane::ADMIN;
use coppice_tests::TestCluster;
use coppice_tests::test_cluster::repository;
use serde_json::{Value, json};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

/// A name in the certificate of the plane's API server.
const SERVER_NAME: &str = "localhost";
/// Addresses of a network, without its first and its last.
const ADDRESSES: usize = 250;

/// The targets, and what names them in the cluster of the program.
pub(super) struct Targets {
    clusters: usize,
    namespaces: usize,
    /// The kubeconfig of the account that issues there.
    bootstrap: Value,
    port: u16,
    /// What forwards connections; it ends with this value.
    _forwarding: JoinSet<()>,
}

impl Targets {
    /// So many clusters, whose accesses are in so many namespaces. Each has a namespace of its own on the plane, so that the API server does not
    /// go through the bindings of all others.
    pub(super) async fn start(
        there: &TestCluster,
        clusters: usize,
        namespaces: usize,
    ) -> anyhow::Result<Self> {
        let account = std::fs::read_to_string(repository().join("examples/access/target.yaml"))?;
        there.kubectl_stdin(ADMIN, &["apply", "--server-side", "-f", "-"], &account).await?;
        let bootstrap = there.service_account("coppice-access", "coppice-bootstrap").await?;
        let bootstrap = serde_yaml::from_str(&std::fs::read_to_string(bootstrap)?)?;
        let shops: Vec<Value> = (0..clusters).map(|cluster| namespace(&shop(cluster))).collect();
        there.admin().await?.create_all(&shops).await?;
        let server = there.plane.url().strip_prefix("https://").context("a plane without TLS")?.to_owned();
        let listener = TcpListener::bind((Ipv4Addr::UNSPECIFIED, 0)).await?;
        let port = listener.local_addr()?.port();
        let mut forwarding = JoinSet::new();
        forwarding.spawn(forward(listener, server));
        Ok(Self { clusters, namespaces, bootstrap, port, _forwarding: forwarding })
    }

    /// The namespaces in the cluster of the program.
    pub(super) fn namespaces(&self) -> Vec<Value> {
        (0..self.namespaces).map(|n| namespace(&team(n))).collect()
    }

    /// The Secrets there with the kubeconfig of each target: the same account, by an address of its own.
    pub(super) fn kubeconfigs(&self) -> anyhow::Result<Vec<Value>> {
        (0..self.clusters).map(|cluster| self.kubeconfig(cluster)).collect()
    }

    fn kubeconfig(&self, cluster: usize) -> anyhow::Result<Value> {
        let mut kubeconfig = self.bootstrap.clone();
        let at = kubeconfig.pointer_mut("/clusters/0/cluster").context("a kubeconfig without a cluster")?;
        let (network, host) = (cluster / ADDRESSES, cluster % ADDRESSES + 1);
        at["server"] = json!(format!("https://127.1.{network}.{host}:{}", self.port));
        at["tls-server-name"] = json!(SERVER_NAME);
        Ok(json!({
            "apiVersion": "v1", "kind": "Secret",
            "metadata": {
                "name": format!("cluster-{cluster}"), "namespace": self.team_of(cluster),
                "labels": {"coppice.dev/access": "kubeconfig"}
            },
            "data": {"kubeconfig": BASE64_STANDARD.encode(kubeconfig.to_string())}
        }))
    }

    /// The n-th access: those that are created one after another are for different clusters.
    pub(super) fn access(&self, n: usize) -> Value {
        let (cluster, which) = (n % self.clusters, n / self.clusters);
        let name = format!("cluster-{cluster}-access-{which}");
        let rules = json!([{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get", "list"]}]);
        json!({
            "apiVersion": "coppice.dev/v1alpha1", "kind": "ClusterAccess",
            "metadata": {"name": name, "namespace": self.team_of(cluster)},
            "spec": {
                "cluster": {"kubeconfigSecret": {"name": format!("cluster-{cluster}")}},
                "rights": {"role": {"namespace": shop(cluster), "rules": rules}},
                "output": {"secret": name}
            }
        })
    }

    fn team_of(&self, cluster: usize) -> String {
        team(cluster % self.namespaces)
    }
}

/// A namespace in the cluster of the program.
fn team(n: usize) -> String {
    format!("team-{n}")
}

/// A namespace in a target, in which its credentials have rights.
fn shop(cluster: usize) -> String {
    format!("shop-{cluster}")
}

fn namespace(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
}

/// Connects whoever comes by any loopback address with an API server.
async fn forward(listener: TcpListener, server: String) {
    while let Ok((mut client, from)) = listener.accept().await {
        // It listens on all addresses, since those of 127.0.0.0/8 are not one.
        if !from.ip().is_loopback() {
            continue;
        }
        let server = server.clone();
        tokio::spawn(async move {
            let Ok(mut server) = TcpStream::connect(server).await else { return };
            let _ = (client.set_nodelay(true), server.set_nodelay(true));
            // That one of them ends the connection is no failure.
            let _ = tokio::io::copy_bidirectional(&mut client, &mut server).await;
        });
    }
}
