//! Client certificates of another cluster, signed by a second real control plane; and Secrets in the form of Kyma.

use anyhow::{Context as _, ensure};
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use coppice_plane::ADMIN;
use coppice_tests::on_own_plane;
use coppice_tests::requests::Requests;
use coppice_tests::test_cluster::repository;
use serde_json::{Value, json};

use super::access::{Clusters, access, is_settled, refused};

type Test = anyhow::Result<()>;

#[test]
fn a_certificate_is_issued_with_its_rights_alone_rotated_and_without_rights_at_the_end() -> Test {
    on_own_plane(async {
        let clusters = Clusters::start().await?;
        let there = &clusters.there;
        for example in ["target", "target-certificates"] {
            let path = repository().join(format!("examples/access/{example}.yaml"));
            let example = std::fs::read_to_string(path)?;
            there.kubectl_stdin(ADMIN, &["apply", "--server-side", "-f", "-"], &example).await?;
        }
        // What certificates do not need: service accounts and Secrets.
        there.admin().await?.delete("role", "coppice-access", "coppice-bootstrap", &json!({})).await?;
        let bootstrap = there.service_account("coppice-access", "coppice-bootstrap").await?;
        clusters.bootstrap(&std::fs::read_to_string(&bootstrap)?).await?;
        let program = clusters.next_life(&clusters.account).await?;
        let with_log = |error: anyhow::Error| error.context(program.last_lines());
        issued(&clusters).await.map_err(with_log)?;
        let before = rotated(&clusters).await.map_err(with_log)?;
        in_the_form_of_kyma(&clusters).await.map_err(with_log)?;
        ends(&clusters, &before).await.map_err(with_log)
    })
}

/// An access by certificates.
fn by_certificate(name: &str, secret: &str) -> Value {
    let mut access = access(name, secret);
    access["spec"]["issuer"] = json!("ClientCertificate");
    access
}

async fn issued(clusters: &Clusters) -> Test {
    let admin = clusters.here.admin().await?;
    admin.create(&by_certificate("ci", "ci-kubeconfig")).await?;
    let ci = clusters.until("ci", "Ready", is_settled).await?;
    let uid = ci["metadata"]["uid"].as_str().context("no uid")?;
    let identity = format!("coppice-access:{uid}");
    ensure!(ci["status"]["identity"] == identity, "{ci:#}");
    let at = |field: &str| ci["status"][field].as_str().unwrap_or_default().parse::<jiff::Timestamp>();
    let granted = at("notAfter")?.duration_since(at("notBefore")?).as_secs();
    ensure!((3590..=3660).contains(&granted), "{granted}");
    let kubeconfig = clusters.issued("ci-kubeconfig").await?;
    ensure!(kubeconfig.contains("client-key-data") && !kubeconfig.contains("token"));
    let holder = clusters.holder("ci-kubeconfig").await?;
    holder.list("configmap", "shop").await?;
    refused(holder.list("secret", "shop").await, "Forbidden")?;
    refused(holder.list("configmap", "default").await, &identity)?;
    for kind in ["csr", "secret", "serviceaccount"] {
        let found = clusters.in_target(kind).await?;
        ensure!(found.is_empty(), "{kind}: {found:#?}");
    }
    let other = json!({"spec": {"issuer": "TokenRequest"}});
    refused(
        admin.patch("clacc", "team", "ci", &other).await,
        "the issuer of a ClusterAccess cannot be changed",
    )
}

/// The one before cannot be revoked, and status says until when it is valid; who has it.
async fn rotated(clusters: &Clusters) -> anyhow::Result<Requests> {
    let old = clusters.holder("ci-kubeconfig").await?;
    let before = clusters.until("ci", "settled", is_settled).await?;
    clusters.change("ci", &json!({"rotate": "now"})).await?;
    let after = clusters.until("ci", "rotated", |o| is_settled(o) && o["status"]["rotated"] == "now").await?;
    ensure!(after["status"]["credential"] != before["status"]["credential"], "{after:#}");
    let listed =
        json!([{"credential": before["status"]["credential"], "notAfter": before["status"]["notAfter"]}]);
    ensure!(after["status"]["supersededCertificates"] == listed, "{after:#}");
    clusters.holder("ci-kubeconfig").await?.list("configmap", "shop").await?;
    old.list("configmap", "shop").await?;
    Ok(old)
}

async fn in_the_form_of_kyma(clusters: &Clusters) -> Test {
    let mut kyma = by_certificate("kyma", "kubeconfig-one");
    kyma["metadata"]["labels"] = json!({"kyma-project.io/shoot-name": "c-1", "team": "a"});
    kyma["spec"]["output"]["format"] = json!("Kyma");
    let admin = clusters.here.admin().await?;
    admin.create(&kyma).await?;
    clusters.until("kyma", "Ready", is_settled).await?;
    let secret = clusters.here.get("secret", "team", "kubeconfig-one").await?.context("kubeconfig-one")?;
    let keys: Vec<&String> = secret["data"].as_object().context("data")?.keys().collect();
    ensure!(keys == ["config"], "{keys:?}");
    let text = BASE64_STANDARD.decode(secret["data"]["config"].as_str().unwrap_or_default())?;
    ensure!(String::from_utf8(text)?.contains("client-certificate-data"));
    let labels = &secret["metadata"]["labels"];
    for (label, value) in [
        ("kyma-project.io/shoot-name", "c-1"),
        ("operator.kyma-project.io/managed-by", "infrastructure-manager"),
        ("operator.kyma-project.io/cluster-name", "kyma"),
    ] {
        ensure!(labels[label] == value, "{label}: {labels:#}");
    }
    ensure!(labels["team"].is_null(), "{labels:#}");
    let annotations = &secret["metadata"]["annotations"];
    let last_sync = annotations["operator.kyma-project.io/last-sync"].as_str().unwrap_or_default();
    last_sync.parse::<jiff::Timestamp>().with_context(|| format!("{annotations:#}"))?;
    admin.delete("clacc", "team", "kyma", &json!({})).await?;
    clusters.gone("kyma").await
}

/// Nobody of those who have a certificate has a right any more.
async fn ends(clusters: &Clusters, before: &Requests) -> Test {
    let last = clusters.holder("ci-kubeconfig").await?;
    clusters.here.admin().await?.delete("clacc", "team", "ci", &json!({})).await?;
    clusters.gone("ci").await?;
    for holder in [before, &last] {
        let forbidden = async || {
            let answer = holder.list("configmap", "shop").await;
            answer.is_err_and(|error| error.to_string().contains("Forbidden")).then_some(())
        };
        clusters.there.until("the certificate has no right", forbidden).await?;
    }
    clusters.nothing_is_left().await?;
    ensure!(clusters.in_target("csr").await?.is_empty());
    ensure!(clusters.here.get("secret", "team", "ci-kubeconfig").await?.is_none());
    Ok(())
}
