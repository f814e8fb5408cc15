//! Credentials for a Shoot of Gardener: its own API server issues them, and a second real control plane is the Shoot.

use anyhow::{Context as _, ensure};
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use coppice_plane::{ADMIN, Garden, Options};
use coppice_tests::shoot::{PROJECT_NAMESPACE, create_project, create_shoot};
use coppice_tests::test_cluster::repository;
use coppice_tests::{TestCluster, condition, on_own_plane};
use serde_json::{Value, json};

use super::access::{Clusters, access, bare, is_settled, refused, rules};
use super::access_provider::author;
use super::from_kim;

type Test = anyhow::Result<()>;

/// In the Shoot `shop`, with rights of Gardener.
pub(crate) fn of_shoot(name: &str, issuer: &str, ttl: &str) -> Value {
    let mut access = access(name, &format!("{name}-kubeconfig"));
    access["spec"]["cluster"] = json!({"gardener": {"provider": "dev", "shoot": "shop"}});
    access["spec"]["issuer"] = json!(issuer);
    access["spec"]["ttl"] = json!(ttl);
    if let Some(spec) = access["spec"].as_object_mut() {
        spec.remove("rights");
    }
    access
}

#[test]
fn gardener_issues_for_a_shoot_what_it_grants_to_those_alone_whom_a_provider_allows_it() -> Test {
    on_own_plane(async {
        let (_garden, clusters) = garden_and_shoot().await?;
        author(&clusters).await?.create(&of_shoot("ci", "GardenerAdmin", "24h")).await?;
        let program = clusters.next_life(&clusters.account).await?;
        let with_log = |error: anyhow::Error| error.context(program.last_lines());
        issued(&clusters).await.map_err(with_log)?;
        rotated(&clusters).await.map_err(with_log)?;
        not_allowed(&clusters).await.map_err(with_log)?;
        narrower(&clusters).await.map_err(with_log)?;
        from_kim::moved(&clusters).await.map_err(with_log)?;
        ends(&clusters).await.map_err(with_log)
    })
}

/// A plane that is a garden as well, and another one that is its Shoot `shop`, with a ClusterProvider `dev`.
pub(crate) async fn garden_and_shoot() -> anyhow::Result<(Garden, Clusters)> {
    let here = TestCluster::start_with_access(None).await?;
    let garden = Garden::start(&here.plane).await?;
    let trusted = here.plane.dir().join("clients.crt");
    std::fs::write(&trusted, &garden.authority().certificate)?;
    let args = vec![format!("--client-ca-file={}", trusted.display())];
    let there = TestCluster::bare_at_once(Options { apiserver_args: args, ..bare() }).await?;
    create_project(&here).await?;
    create_shoot(&here, "shop", &there, garden.authority()).await?;
    let clusters = Clusters::of(here, there).await?;
    provider(&clusters).await?;
    Ok((garden, clusters))
}

/// With the account of the example in the garden, for administrators' certificates alone.
async fn provider(clusters: &Clusters) -> Test {
    let here = &clusters.here;
    let example = std::fs::read_to_string(repository().join("examples/access/garden.yaml"))?;
    here.kubectl_stdin(ADMIN, &["apply", "--server-side", "-f", "-"], &example).await?;
    let account = here.service_account(PROJECT_NAMESPACE, "coppice-access").await?;
    let labels = json!({"coppice.dev/access": "kubeconfig"});
    let secret = json!({"apiVersion": "v1", "kind": "Secret",
        "metadata": {"name": "garden", "namespace": "coppice-access-system", "labels": labels},
        "data": {"kubeconfig": BASE64_STANDARD.encode(std::fs::read_to_string(account)?)}});
    let admin = here.admin().await?;
    admin.create(&secret).await?;
    here.until("the kind is served", async || admin.list("clprov", "").await.ok()).await?;
    let allow = json!([{"namespaces": ["team"], "maxTtl": "2d", "issuers": ["GardenerAdmin"]}]);
    let mut provider = json!({"apiVersion": "coppice.dev/v1alpha1", "kind": "ClusterProvider", "metadata": {"name": "dev"},
        "spec": {"credential": {"secret": "garden"}, "allow": allow}});
    refused(admin.create(&provider).await, "project: write the project of Gardener")?;
    provider["spec"]["project"] = json!("dev");
    admin.create(&provider).await?;
    let mut bad = of_shoot("bad", "GardenerAdmin", "9m");
    refused(admin.create(&bad).await, "write 10m to 30d")?;
    bad["spec"]["ttl"] = json!("10m");
    bad["spec"]["rights"] = access("bad", "bad")["spec"]["rights"].clone();
    refused(admin.create(&bad).await, "their rights cannot be narrowed")
}

/// For how long what an access has is valid, in seconds.
fn granted(access: &Value) -> anyhow::Result<i64> {
    let at = |field: &str| access["status"][field].as_str().unwrap_or_default().parse::<jiff::Timestamp>();
    Ok(at("notAfter")?.duration_since(at("notBefore")?).as_secs())
}

/// What was granted counts, and the certificate is that of an administrator of the Shoot.
async fn issued(clusters: &Clusters) -> Test {
    let ci = clusters.until("ci", "Ready", is_settled).await?;
    let identity = ci["status"]["identity"].as_str().unwrap_or_default();
    ensure!(identity.ends_with(":system:serviceaccount:garden-dev:coppice-access"), "{ci:#}");
    for type_ in ["Ready", "Reachable", "Verified", "Written"] {
        ensure!(condition(&ci, type_)["status"] == "True", "{type_}: {ci:#}");
    }
    let uid = clusters.there.get("namespace", "", "kube-system").await?.context("kube-system")?;
    ensure!(ci["status"]["target"]["uid"] == uid["metadata"]["uid"], "{ci:#}");
    clusters.holder("ci-kubeconfig").await?.list("secret", "shop").await?;
    clusters.here.admin().await?.create(&of_shoot("longer", "GardenerAdmin", "48h")).await?;
    let longer = clusters.until("longer", "Ready", is_settled).await?;
    for access in [&ci, &longer] {
        let granted = granted(access)?;
        // From the second in which it was asked for.
        ensure!((86_390..=86_460).contains(&granted), "{granted}");
    }
    // Nothing of them is in the Shoot.
    for kind in ["serviceaccount", "clusterrolebinding", "rolebinding", "csr"] {
        ensure!(clusters.in_target(kind).await?.is_empty(), "{kind}");
    }
    ensure!(clusters.there.get("namespace", "", "coppice-access").await?.is_none());
    Ok(())
}

/// The one before cannot be revoked, and status says until when it is valid.
async fn rotated(clusters: &Clusters) -> Test {
    let old = clusters.holder("ci-kubeconfig").await?;
    let before = clusters.until("ci", "settled", is_settled).await?;
    clusters.change("ci", &json!({"rotate": "now"})).await?;
    let after = clusters.until("ci", "rotated", |o| is_settled(o) && o["status"]["rotated"] == "now").await?;
    ensure!(after["status"]["identity"] != before["status"]["identity"], "{after:#}");
    let listed =
        json!([{"credential": before["status"]["credential"], "notAfter": before["status"]["notAfter"]}]);
    ensure!(after["status"]["supersededCertificates"] == listed, "{after:#}");
    clusters.holder("ci-kubeconfig").await?.list("secret", "shop").await?;
    old.list("secret", "shop").await.map(drop)
}

/// What the provider does not name is not issued, however much its kubeconfig may; nor is its kubeconfig used as that of a cluster.
async fn not_allowed(clusters: &Clusters) -> Test {
    let admin = clusters.here.admin().await?;
    let says = async |name: &str, what: &str| {
        let says = |o: &Value| {
            let error = &o["status"]["lastError"];
            error["reason"] == "NotAllowed" && error["message"].to_string().contains(what)
        };
        clusters.until(name, what, says).await
    };
    admin.create(&of_shoot("viewer", "GardenerViewer", "1h")).await?;
    says("viewer", "spec.issuer: write GardenerAdmin into a new ClusterAccess").await?;
    let mut garden = access("garden", "garden-kubeconfig");
    garden["spec"]["cluster"] = json!({"provider": {"name": "dev"}});
    admin.create(&garden).await?;
    says("garden", "is for Shoots of a project of Gardener").await?;
    admin.delete("clacc", "team", "garden", &json!({})).await?;
    clusters.gone("garden").await
}

/// A viewer's certificate, and a token with rights of its own, for which the Shoot is reached by its garden.
async fn narrower(clusters: &Clusters) -> Test {
    let admin = clusters.here.admin().await?;
    let rights = json!({"namespaces": ["shop"], "rules": rules(&["configmaps"])});
    let issuers = json!(["GardenerAdmin", "GardenerViewer", "TokenRequest"]);
    let allow = json!([{"namespaces": ["team"], "maxTtl": "2d", "issuers": issuers, "rights": rights}]);
    admin.patch("clprov", "", "dev", &json!({"spec": {"allow": allow}})).await?;
    let mut token = of_shoot("token", "TokenRequest", "1h");
    token["spec"]["rights"] = access("token", "token")["spec"]["rights"].clone();
    admin.create(&token).await?;
    clusters.until("viewer", "Ready", is_settled).await?;
    clusters.until("token", "Ready", is_settled).await?;
    let [viewer, token] =
        [clusters.holder("viewer-kubeconfig").await?, clusters.holder("token-kubeconfig").await?];
    for holder in [&viewer, &token] {
        holder.list("configmap", "shop").await?;
        refused(holder.list("secret", "shop").await, "Forbidden")?;
    }
    viewer.list("configmap", "default").await?;
    refused(token.list("configmap", "default").await, "Forbidden")?;
    admin.delete("clacc", "team", "token", &json!({})).await?;
    clusters.gone("token").await?;
    clusters.dead(&token).await?;
    clusters.nothing_is_left().await
}

/// A Shoot is not needed for the end: its certificates are valid until they expire, which the Event says.
async fn ends(clusters: &Clusters) -> Test {
    let last = clusters.holder("ci-kubeconfig").await?;
    let here = &clusters.here;
    let confirmed =
        json!({"metadata": {"annotations": {"confirmation.gardener.cloud/deletion": "true"}}}).to_string();
    let on_shoot =
        async |args: &[&str]| here.kubectl(ADMIN, &[args, &["-n", PROJECT_NAMESPACE]].concat()).await;
    on_shoot(&["patch", "shoot", "shop", "--type=merge", "-p", &confirmed]).await?;
    on_shoot(&["delete", "shoot", "shop"]).await?;
    clusters.change("longer", &json!({"rotate": "gone"})).await?;
    let says = |o: &Value| o["status"]["lastError"]["message"].to_string().contains("no Shoot shop");
    let refused = clusters.until("longer", "the Shoot is gone", says).await?;
    ensure!(condition(&refused, "Ready")["status"] == "True", "{refused:#}");
    for name in ["ci", "longer", "viewer"] {
        here.admin().await?.delete("clacc", "team", name, &json!({})).await?;
        clusters.gone(name).await?;
        ensure!(here.get("secret", "team", &format!("{name}-kubeconfig")).await?.is_none());
        let said = async || {
            let events = here.events("team", name, "CertificatesRemain").await.ok()?;
            events.iter().any(|event| event.contains("is valid until")).then_some(())
        };
        here.until("an Event says until when its certificates are valid", said).await?;
    }
    last.list("secret", "shop").await.map(drop)
}
