//! The program is killed at each write of a rotation of certificates, which cannot be revoked, also while the target signs them: what is left of
//! each, and what a life asks for. Tokens: `access_rotation.rs`.

use anyhow::{Context as _, ensure};
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use coppice_plane::proxy::{FaultRule, Match, Proxy, ProxyFault};
use coppice_plane::{ADMIN, Plane};
use coppice_tests::on_own_plane;
use coppice_tests::shoot::PROJECT_NAMESPACE;
use coppice_tests::test_cluster::{TIMEOUT, repository};
use serde_json::{Value, json};

use super::access::{Clusters, SIGNING_REQUESTS, access, is_settled, killed, writes};
use super::access_gardener::{garden_and_shoot, of_shoot};

type Test = anyhow::Result<()>;

/// Who may approve in the target, and by which role.
const BOOTSTRAP: &str = "system:serviceaccount:coppice-access:coppice-bootstrap";
const ROLE: &str = "coppice-bootstrap-certificates";

#[test]
fn killed_at_every_write_there_is_one_certificate_and_the_one_before_in_status() -> Test {
    on_own_plane(async {
        let clusters = Clusters::start().await?;
        for example in ["target", "target-certificates"] {
            let path = repository().join(format!("examples/access/{example}.yaml"));
            let example = std::fs::read_to_string(path)?;
            let apply = ["apply", "--server-side", "-f", "-"];
            clusters.there.kubectl_stdin(ADMIN, &apply, &example).await?;
        }
        // A certificate gets through this one.
        let there = Proxy::start_encrypted(&clusters.there.plane, None).await?;
        let bootstrap = clusters.there.service_account("coppice-access", "coppice-bootstrap").await?;
        let bootstrap = there.kubeconfig(&bootstrap)?;
        clusters.bootstrap(&std::fs::read_to_string(&bootstrap)?).await?;
        let mut ci = access("ci", "ci-kubeconfig");
        ci["spec"]["issuer"] = json!("ClientCertificate");
        clusters.here.admin().await?.create(&ci).await?;
        let here = Proxy::start(&clusters.here.plane, None).await?;
        let approvals = || requests(&clusters.there.plane, BOOTSTRAP, "approval");
        let (lives, asked) = rotated(&clusters, [&here, &there], |life| life + 1, approvals).await?;
        // One life ended before it was approved, and one right after.
        ensure!((2..lives).contains(&asked), "{asked} in {lives} lives");
        ensure!(clusters.in_target("csr").await?.is_empty());
        not_approved(&clusters, &here).await?;
        killed_while_signed(&clusters, &there).await
    })
}

#[test]
fn killed_at_every_write_there_is_one_certificate_of_gardener_and_the_one_before_in_status() -> Test {
    on_own_plane(async {
        let (_garden, clusters) = garden_and_shoot().await?;
        let here = Proxy::start(&clusters.here.plane, None).await?;
        let garden = Proxy::start(&clusters.here.plane, None).await?;
        let account = clusters.here.service_account(PROJECT_NAMESPACE, "coppice-access").await?;
        let kubeconfig = std::fs::read_to_string(garden.kubeconfig(&account)?)?;
        let admin = clusters.here.admin().await?;
        let secret = json!({"data": {"kubeconfig": BASE64_STANDARD.encode(kubeconfig)}});
        admin.patch("secret", "coppice-access-system", "garden", &secret).await?;
        admin.create(&of_shoot("ci", "GardenerAdmin", "24h")).await?;
        let user = format!("system:serviceaccount:{PROJECT_NAMESPACE}:coppice-access");
        let kubeconfigs = || requests(&clusters.here.plane, &user, "adminkubeconfig");
        let (lives, asked) = rotated(&clusters, [&here, &garden], |life| life, kubeconfigs).await?;
        // One with which the Shoot is reached, and one that is written.
        ensure!((1..=2 * lives).contains(&asked), "{asked} in {lives} lives");
        // There is nothing to revoke: a garden that is away keeps no access.
        garden.cut();
        admin.delete("clacc", "team", "ci", &json!({})).await?;
        let program = clusters.next_life(&clusters.account).await?;
        clusters.gone("ci").await.with_context(|| program.last_lines())?;
        ensure!(clusters.here.get("secret", "team", "ci-kubeconfig").await?.is_none());
        Ok(())
    })
}

/// Killed at each request by which a certificate is asked for, approved, read back and cleaned up after, before it gets to the target: the next
/// life ends the rotation, with one certificate and nothing left.
async fn killed_while_signed(clusters: &Clusters, there: &Proxy) -> Test {
    for (verb, subresource) in [("create", ""), ("update", "approval"), ("get", ""), ("delete", "")] {
        let id = format!("at-{verb}-{}", if subresource.is_empty() { "itself" } else { subresource });
        clusters.change("ci", &json!({"rotate": id})).await?;
        let is_it = Match::any().when(move |entry| {
            let asked = (&*entry.resource, &*entry.verb, &*entry.subresource);
            asked == (SIGNING_REQUESTS, verb, subresource)
        });
        let held = there.add(FaultRule::new(is_it, ProxyFault::HoldRequest));
        let mut program = clusters.next_life(&clusters.account).await?;
        let asked = tokio::time::timeout(TIMEOUT, held.held(1)).await;
        asked.with_context(|| format!("{id}: {}", program.last_lines()))?;
        program.kill().await?;
        held.discard();
        there.clear();
        let program = clusters.next_life(&clusters.account).await?;
        let rotated = |access: &Value| is_settled(access) && access["status"]["rotated"] == *id;
        clusters.until("ci", "rotated", rotated).await.with_context(|| program.last_lines())?;
        one_certificate(clusters).await?;
        ensure!(clusters.in_target("csr").await?.is_empty(), "{id}");
    }
    Ok(())
}

/// How many requests of this user for this subresource were granted.
fn requests(plane: &Plane, user: &str, subresource: &str) -> anyhow::Result<u64> {
    let mut count = 0;
    for event in plane.audit()? {
        let is_granted = event.code.is_some_and(|code| code < 300);
        count += u64::from(event.user == user && event.subresource == subresource && is_granted);
    }
    Ok(count)
}

/// Rotates the credential of `ci`, killed after so many writes of each life: the new one is in the Secret, and the one before in status until
/// it expires. The number of lives, and of credentials that they asked for.
async fn rotated(
    clusters: &Clusters,
    proxies: [&Proxy; 2],
    passes: impl Fn(u64) -> u64,
    asked: impl Fn() -> anyhow::Result<u64>,
) -> anyhow::Result<(u64, u64)> {
    let mut program = clusters.next_life(&clusters.account).await?;
    let before = clusters.until("ci", "settled", is_settled).await;
    let before = before.with_context(|| program.last_lines())?;
    program.kill().await?;
    let old = clusters.holder("ci-kubeconfig").await?;
    let asked_before = asked()?;
    clusters.change("ci", &json!({"rotate": "now"})).await?;
    let settled = async || {
        let access = clusters.here.get("clacc", "team", "ci").await.ok()??;
        is_settled(&access).then_some(())
    };
    let lives = killed(clusters, proxies, settled, true, passes).await?;
    let after = one_certificate(clusters).await?;
    ensure!(after["status"]["credential"] != before["status"]["credential"], "{after:#}");
    ensure!(after["status"]["supersededCertificates"] == json!([superseded(&before)]), "{after:#}");
    if !is_of_garden(&before) {
        ensure!(after["status"]["identity"] == before["status"]["identity"], "{after:#}");
    }
    // Until then it is valid, as status says.
    old.list("configmap", "shop").await?;
    Ok((lives, asked()? - asked_before))
}

/// Gardener gives each credential another user.
fn is_of_garden(access: &Value) -> bool {
    access["spec"]["issuer"].as_str().is_some_and(|issuer| issuer.starts_with("Gardener"))
}

/// What status says of the certificate of this access once another one is there.
fn superseded(access: &Value) -> Value {
    json!({"credential": access["status"]["credential"], "notAfter": access["status"]["notAfter"]})
}

/// The Secret holds the certificate of status, which works, and no intent is left; the access.
async fn one_certificate(clusters: &Clusters) -> anyhow::Result<Value> {
    let access = clusters.until("ci", "settled", is_settled).await?;
    let secret = clusters.here.get("secret", "team", "ci-kubeconfig").await?.context("no Secret")?;
    let annotations = &secret["metadata"]["annotations"];
    for (annotation, field) in [("credential", "credential"), ("not-after", "notAfter")] {
        let value = &annotations[format!("coppice.dev/{annotation}")];
        ensure!(*value == access["status"][field], "{annotation}: {annotations:#}, {access:#}");
    }
    clusters.holder("ci-kubeconfig").await?.list("configmap", "shop").await?;
    Ok(access)
}

/// Killed while what it has asked for is not approved, which it may not do for once: that is deleted, and asked for with another key.
async fn not_approved(clusters: &Clusters, here: &Proxy) -> Test {
    let target = clusters.there.admin().await?;
    let rules = target.get("clusterrole", "", ROLE).await?.context(ROLE)?["rules"].clone();
    let mut without = rules.clone();
    without[1]["verbs"] = json!(["get"]);
    target.patch("clusterrole", "", ROLE, &json!({"rules": without})).await?;
    may_approve(clusters, false).await?;
    let before = clusters.until("ci", "settled", is_settled).await?;
    clusters.change("ci", &json!({"rotate": "again"})).await?;
    let held = here.add(FaultRule::new(writes(), ProxyFault::HoldRequest));
    let mut program = clusters.next_life(&here.kubeconfig(&clusters.account)?).await?;
    for write in 1.. {
        ensure!(write < 10, "nothing is asked for: {}", program.last_lines());
        let written = tokio::time::timeout(TIMEOUT, held.held(write)).await;
        written.with_context(|| program.last_lines())?;
        // Once it has asked, the next write would say that it may not approve.
        if !clusters.in_target("csr").await?.is_empty() {
            break;
        }
        held.release_one();
    }
    program.kill().await?;
    held.discard();
    here.clear();
    target.patch("clusterrole", "", ROLE, &json!({"rules": rules})).await?;
    may_approve(clusters, true).await?;
    let program = clusters.next_life(&clusters.account).await?;
    let is_again = |o: &Value| is_settled(o) && o["status"]["rotated"] == "again";
    clusters.until("ci", "rotated", is_again).await.with_context(|| program.last_lines())?;
    let after = one_certificate(clusters).await?;
    let listed = after["status"]["supersededCertificates"].as_array().context("superseded")?;
    ensure!(listed.len() == 2 && listed.contains(&superseded(&before)), "{after:#}");
    ensure!(clusters.in_target("csr").await?.is_empty());
    Ok(())
}

/// Waits until the account may approve in the target, or may not.
async fn may_approve(clusters: &Clusters, may: bool) -> Test {
    let account = format!("--as={BOOTSTRAP}");
    let asks = ["auth", "can-i", "update", "certificatesigningrequests", "--subresource=approval", &account];
    let is_so = async || (clusters.there.kubectl(ADMIN, &asks).await.is_ok() == may).then_some(());
    clusters.there.until("the right is as it is to be", is_so).await
}
