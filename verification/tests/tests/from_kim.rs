//! Moving from Kyma Infrastructure Manager as `docs/from-kim.md` says, with Gardener's own API server, and that all that `coppice import kim`
//! writes is accepted. The control planes are those of `access_gardener.rs`.

use anyhow::{Context as _, ensure};
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use coppice_plane::ADMIN;
use coppice_tests::shoot::PROJECT_NAMESPACE;
use coppice_tests::test_cluster::repository;
use coppice_tests::{TestCluster, requests};
use serde_json::{Value, json};

use super::access::{Clusters, is_settled};
use super::cli::coppice;

type Test = anyhow::Result<()>;

const NAMESPACE: &str = "kcp-system";
const ID: &str = "88888888-abcd";
const SECRET: &str = "kubeconfig-88888888-abcd";
const LAST_SYNC: &str = "operator.kyma-project.io/last-sync";

/// The kind, with the spec that its own definition has.
const KIND: &str = "
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: gardenerclusters.infrastructuremanager.kyma-project.io}
spec:
  group: infrastructuremanager.kyma-project.io
  names: {kind: GardenerCluster, listKind: GardenerClusterList, plural: gardenerclusters, singular: gardenercluster}
  scope: Namespaced
  versions:
  - name: v1
    served: true
    storage: true
    subresources: {status: {}}
    schema:
      openAPIV3Schema:
        type: object
        properties:
          spec:
            type: object
            required: [kubeconfig, shoot]
            properties:
              kubeconfig:
                type: object
                required: [secret]
                properties:
                  secret:
                    type: object
                    required: [key, name, namespace]
                    properties: {key: {type: string}, name: {type: string}, namespace: {type: string}}
              shoot:
                type: object
                required: [name]
                properties: {name: {type: string}}
          status: {type: object, x-kubernetes-preserve-unknown-fields: true}
";
/// What is there of a cluster once Infrastructure Manager is stopped.
const OBJECTS: &str = "
apiVersion: infrastructuremanager.kyma-project.io/v1
kind: GardenerCluster
metadata:
  name: 88888888-abcd
  namespace: kcp-system
  labels:
    kyma-project.io/runtime-id: 88888888-abcd
    kyma-project.io/shoot-name: shop
    operator.kyma-project.io/kyma-name: 88888888-abcd
spec:
  shoot: {name: shop}
  kubeconfig: {secret: {name: kubeconfig-88888888-abcd, namespace: kcp-system, key: config}}
---
apiVersion: v1
kind: Secret
type: Opaque
metadata:
  name: kubeconfig-88888888-abcd
  namespace: kcp-system
  labels:
    kyma-project.io/runtime-id: 88888888-abcd
    kyma-project.io/shoot-name: shop
    operator.kyma-project.io/kyma-name: 88888888-abcd
    operator.kyma-project.io/managed-by: infrastructure-manager
    operator.kyma-project.io/cluster-name: 88888888-abcd
  annotations: {operator.kyma-project.io/last-sync: '2026-03-01T03:04:05Z'}
data: {config: dGhlaXJz}
";

/// The steps of the page, one after the other, while the program runs.
pub(crate) async fn moved(clusters: &Clusters) -> Test {
    let here = &clusters.here;
    here.namespace(NAMESPACE).await?;
    everything_is_accepted(here).await?;
    here.kubectl_stdin(ADMIN, &["apply", "--server-side", "-f", "-"], KIND).await?;
    let created = async || {
        here.kubectl_stdin(ADMIN, &["apply", "--server-side", "-f", "-"], OBJECTS).await.ok().map(drop)
    };
    here.until("there are objects of Infrastructure Manager", created).await?;
    let theirs = secret(here).await?;

    let (written, _) = imported(here, 3).await?;
    here.kubectl_stdin(ADMIN, &["apply", "--server-side", "--dry-run=server", "-f", "-"], &written).await?;
    ensure!(here.get("clacc", NAMESPACE, ID).await?.is_none(), "nothing is created before it is applied");
    provider(here, &written).await?;
    here.kubectl_stdin(ADMIN, &["apply", "--server-side", "-f", "-"], &written).await?;
    let access = here.get("clacc", NAMESPACE, ID).await?.context("no ClusterAccess")?;
    ensure!(access["spec"]["suspend"] == true, "{access:#}");

    // The second run leaves it, and says the next step, which leads to another one.
    for (command, begins) in [("kubectl label secret ", false), ("kubectl patch clusteraccess ", true)] {
        let (written, said) = imported(here, 3).await?;
        ensure!(requests::documents(&written)?.is_empty(), "{written}");
        let now = secret(here).await?;
        ensure!(now["data"] == theirs["data"], "nothing is written before it begins: {:#}", now["metadata"]);
        let line = said.lines().find_map(|line| line.split_once(command)).context("no such step")?.1;
        // As a shell reads it.
        let words = format!("{command}{line}");
        let words: Vec<&str> = words.split_whitespace().skip(1).map(|word| word.trim_matches('\'')).collect();
        here.kubectl(ADMIN, &words).await?;
        let access = here.get("clacc", NAMESPACE, ID).await?.context("no ClusterAccess")?;
        ensure!((access["spec"]["suspend"] == false) == begins, "{said}: {access:#}");
    }
    written_in_place(clusters, &theirs).await?;
    let (written, said) = imported(here, 0).await?;
    ensure!(
        requests::documents(&written)?.is_empty() && said.contains("is left as it is"),
        "{written}{said}"
    );
    here.admin().await?.delete("clacc", NAMESPACE, ID, &json!({})).await?;
    let gone = async || here.get("secret", NAMESPACE, SECRET).await.ok()?.is_none().then_some(());
    here.until("its Secret goes with it", gone).await
}

/// The Secret of others holds a certificate of Coppice: it was never missing, and whoever finds it by its labels still does.
async fn written_in_place(clusters: &Clusters, theirs: &Value) -> Test {
    let here = &clusters.here;
    let settled = async || here.get("clacc", NAMESPACE, ID).await.ok()?.filter(is_settled);
    let access = here.until("it has a credential", settled).await?;
    let ours = secret(here).await?;
    ensure!(ours["metadata"]["uid"] == theirs["metadata"]["uid"], "{:#}", ours["metadata"]);
    let labels = theirs["metadata"]["labels"].as_object().context("no labels")?;
    for (label, value) in labels {
        ensure!(ours["metadata"]["labels"][label] == *value, "{label}: {:#}", ours["metadata"]);
    }
    let [before, after] = [theirs, &ours].map(|secret| &secret["metadata"]["annotations"][LAST_SYNC]);
    ensure!(before.is_string() && after.is_string() && before != after, "{before}, {after}: {access:#}");
    let config = ours["data"]["config"].as_str().context("no kubeconfig")?;
    let path = here.plane.dir().join("taken-over.yaml");
    std::fs::write(&path, BASE64_STANDARD.decode(config)?)?;
    let holder = requests::Clients::default().by(path).await?;
    holder.list("secret", "shop").await.map(drop)
}

async fn secret(here: &TestCluster) -> anyhow::Result<Value> {
    here.get("secret", NAMESPACE, SECRET).await?.context("no Secret")
}

/// What is imported of what is there now, and what is said of it, with this exit code.
async fn imported(here: &TestCluster, expected: i32) -> anyhow::Result<(String, String)> {
    let mut args = vec!["import".to_owned(), "kim".to_owned()];
    for (file, get) in [
        ("kcp.yaml", ["gardenercluster,secret,clusteraccess", "-A"].as_slice()),
        ("shoots.yaml", ["shoot", "-n", PROJECT_NAMESPACE].as_slice()),
    ] {
        let dump = here.kubectl(ADMIN, &[["get", "-o", "yaml"].as_slice(), get].concat()).await?;
        let path = here.plane.dir().join(file);
        std::fs::write(&path, dump)?;
        args.push(path.to_str().context("a path that is no text")?.to_owned());
    }
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let (code, written, said) = coppice(here, ADMIN, &args).await?;
    ensure!(code == expected, "it ended with {code}: {said}");
    Ok((written, said))
}

/// Creates the ClusterProvider at the head of what was written, with the kubeconfig of the garden that there is.
async fn provider(here: &TestCluster, written: &str) -> Test {
    let admin = here.admin().await?;
    let garden = here.get("secret", "coppice-access-system", "garden").await?.context("no Secret garden")?;
    let metadata = json!({"name": "gardener-credentials", "namespace": "coppice-access-system", "labels": garden["metadata"]["labels"]});
    let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "data": garden["data"]});
    admin.create(&secret).await?;
    let head: Vec<&str> = written.lines().filter_map(|line| line.strip_prefix("#   ")).collect();
    let providers = requests::documents(&head.join("\n"))?;
    let [provider] = &*providers else { anyhow::bail!("{written}") };
    ensure!(provider["spec"]["project"] == "dev", "{provider:#}");
    admin.create(provider).await.map(drop)
}

/// The API server takes all that is made of the fixtures of the command line's own tests.
async fn everything_is_accepted(here: &TestCluster) -> Test {
    let fixtures = repository().join("crates/cli/tests/fixtures/kim");
    for (file, objects) in [("kcp.yaml", 4), ("runtime.yaml", 1)] {
        let path = fixtures.join(file);
        let path = path.to_str().context("a path that is no text")?;
        let (code, written, said) =
            coppice(here, ADMIN, &["import", "kim", "--managed-clusters", path]).await?;
        ensure!(code == 3, "it ended with {code}: {said}");
        let try_out = ["apply", "--server-side", "--dry-run=server", "-f", "-"];
        let said = here.kubectl_stdin(ADMIN, &try_out, &written).await?;
        let accepted = said.matches("serverside-applied (server dry run)").count();
        ensure!(accepted == objects, "{accepted} of {objects}: {said}");
    }
    Ok(())
}
