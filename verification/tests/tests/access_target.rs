//! Which cluster a credential is for: the kubeconfig of a target is changed, is gone, or leads nowhere. And what is taken away in the
//! target, whatever keeps credentials from being issued; and what is left on both sides of one that is gone.

use std::time::Duration;

use anyhow::{Context as _, ensure};
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use coppice_plane::proxy::{FakeResponse, FaultRule, Match, Proxy, ProxyFault};
use coppice_tests::{condition, on_own_plane};
use serde_json::{Value, json};

use super::access::{Clusters, access, is_settled, rules};
use super::access_probe;

type Test = anyhow::Result<()>;

/// The uid of a ClusterAccess that this cluster does not have.
const GONE: &str = "00000000-0000-4000-8000-000000000001";
/// That of one of another cluster, and of the namespace `kube-system` of that.
const ELSEWHERE: [&str; 2] = ["00000000-0000-4000-8000-000000000002", "00000000-0000-4000-8000-000000000003"];

/// With the administrator's kubeconfig of the target, an access `ci` that is settled.
async fn settled(clusters: &Clusters) -> anyhow::Result<Value> {
    clusters.bootstrap(&there(clusters)?).await?;
    clusters.create("ci", "ci-kubeconfig").await?;
    clusters.until("ci", "settled", is_settled).await
}

fn there(clusters: &Clusters) -> anyhow::Result<String> {
    Ok(std::fs::read_to_string(clusters.there.plane.admin_kubeconfig())?)
}

/// Events about `ci`.
async fn events(clusters: &Clusters, reason: &str) -> anyhow::Result<Vec<String>> {
    let events = clusters.here.list("event", "team").await?;
    let of_it = events.iter().filter(|event| event["reason"] == reason);
    Ok(of_it.map(|event| format!("{} {}", event["note"], event["message"])).collect())
}

#[test]
fn in_another_cluster_nothing_is_issued_or_revoked_and_a_new_address_is_written_at_once() -> Test {
    on_own_plane(async {
        let clusters = Clusters::start().await?;
        let program = clusters.next_life(&clusters.account).await?;
        let with_log = |error: anyhow::Error| error.context(program.last_lines());
        let first = settled(&clusters).await.map_err(with_log)?;
        let uid = clusters.there.get("namespace", "", "kube-system").await?.context("kube-system")?;
        ensure!(first["status"]["target"]["uid"] == uid["metadata"]["uid"], "{first:#}");
        moved(&clusters).await.map_err(with_log)?;
        elsewhere(&clusters).await.map_err(with_log)?;
        ended_elsewhere(&clusters).await.map_err(with_log)
    })
}

/// The same cluster by another address.
async fn moved(clusters: &Clusters) -> Test {
    let old = clusters.holder("ci-kubeconfig").await?;
    let proxy = Proxy::start(&clusters.there.plane, None).await?;
    let through = proxy.kubeconfig(&clusters.there.plane.admin_kubeconfig())?;
    clusters.bootstrap(&std::fs::read_to_string(&through)?).await?;
    let address = proxy.url();
    let written = async || {
        let issued = clusters.issued("ci-kubeconfig").await.ok()?;
        issued.contains(address.trim_end_matches('/')).then_some(())
    };
    clusters.here.until("the new address is in the Secret", written).await?;
    clusters.dead(&old).await?;
    clusters.holder("ci-kubeconfig").await?.list("configmap", "shop").await?;
    throttled(clusters, &proxy).await?;
    clusters.bootstrap(&there(clusters)?).await?;
    let back = async || {
        let issued = clusters.issued("ci-kubeconfig").await.ok()?;
        (!issued.contains(address.trim_end_matches('/'))).then_some(())
    };
    clusters.here.until("the address before is in the Secret", back).await?;
    clusters.until("ci", "settled", is_settled).await.map(drop)
}

/// The target has too many requests for so many seconds: status says until when, and nothing is asked of it before that.
async fn throttled(clusters: &Clusters, proxy: &Proxy) -> Test {
    const SECONDS: u32 = 9;
    clusters.until("ci", "settled", is_settled).await?;
    let tokens = Match::writes().resource("serviceaccounts").subresource("token");
    let busy = ProxyFault::FakeResponse(FakeResponse::too_many_requests(SECONDS));
    let busy = proxy.add(FaultRule::new(tokens, busy).once());
    clusters.change("ci", &json!({"rotate": "busy"})).await?;
    let is_throttled = |o: &Value| o["status"]["lastError"]["reason"] == "TargetThrottled";
    let waits = clusters.until("ci", "TargetThrottled", is_throttled).await?;
    let error = &waits["status"]["lastError"];
    let (message, at) =
        (error["message"].as_str().context("no message")?, error["at"].as_str().context("no date")?);
    ensure!(message.contains("issue a token: 429 TooManyRequests"), "{message}");
    let (_, until) =
        message.split_once("nothing is asked of it before ").context("it does not say until when")?;
    let left = until.parse::<jiff::Timestamp>()?.duration_since(at.parse::<jiff::Timestamp>()?);
    ensure!((8..=11).contains(&left.as_secs()), "{message}, {at}");
    // With another spec it is tried at once otherwise.
    clusters.change("ci", &json!({"rotate": "again"})).await?;
    let is_rotated = |o: &Value| is_settled(o) && o["status"]["rotated"] == "again";
    clusters.until("ci", "rotated", is_rotated).await?;
    ensure!(busy.count() == 1, "{} answers", busy.count());
    let entries = proxy.trace().entries();
    let refused = entries.iter().find(|entry| entry.status == Some(429)).context("no such answer")?;
    // What is left there is looked for beside it, by lists.
    let next = entries.iter().find(|entry| entry.seq > refused.seq && entry.verb != "list");
    let next = next.context("nothing was asked after it")?;
    ensure!(next.at >= refused.at + Duration::from_secs(SECONDS.into()), "{refused:?}, then {next:?}");
    Ok(())
}

/// A kubeconfig for the cluster that the program itself is in.
async fn elsewhere(clusters: &Clusters) -> Test {
    let before = clusters.until("ci", "settled", is_settled).await?;
    let holder = clusters.holder("ci-kubeconfig").await?;
    let here = std::fs::read_to_string(clusters.here.plane.admin_kubeconfig())?;
    clusters.bootstrap(&here).await?;
    let refused = clusters.until("ci", "Refused", |o| o["status"]["phase"] == "Refused").await?;
    let reachable = condition(&refused, "Reachable");
    ensure!(reachable["status"] == "False" && reachable["reason"] == "TargetChanged", "{reachable:#}");
    ensure!(refused["status"]["target"]["uid"] == before["status"]["target"]["uid"], "{refused:#}");
    ensure!(refused["status"]["credential"] == before["status"]["credential"], "{refused:#}");
    // Nothing of an access is there, not even the namespace of the accounts; and what was issued works where it was issued.
    ensure!(clusters.here.get("namespace", "", "coppice-access").await?.is_none());
    holder.list("configmap", "shop").await?;
    clusters
        .here
        .until("an Event says so", async || {
            let events = events(clusters, "TargetChanged").await.ok()?;
            events.iter().any(|event| event.contains("another cluster")).then_some(())
        })
        .await
}

/// Deleted while its kubeconfig is that of another cluster, it is kept and nothing counts as revoked; with the one before it ends.
async fn ended_elsewhere(clusters: &Clusters) -> Test {
    let holder = clusters.holder("ci-kubeconfig").await?;
    clusters.here.admin().await?.delete("clacc", "team", "ci", &json!({})).await?;
    let kept = |o: &Value| {
        o["status"]["phase"] == "Revoking" && o["status"]["lastError"]["reason"] == "TargetChanged"
    };
    clusters.until("ci", "kept", kept).await?;
    holder.list("configmap", "shop").await?;
    clusters.bootstrap(&there(clusters)?).await?;
    clusters.gone("ci").await?;
    clusters.dead(&holder).await?;
    ensure!(events(clusters, "RevocationSkipped").await?.is_empty());
    clusters.nothing_is_left().await
}

#[test]
fn rights_are_narrowed_and_credentials_revoked_whatever_keeps_others_from_being_issued() -> Test {
    on_own_plane(async {
        let clusters = Clusters::start_with(Some(access_probe::audit_policy().await?)).await?;
        let probe = access_probe::prepare(&clusters).await?;
        let program = clusters.next_life(&clusters.account).await?;
        let with_log = |error: anyhow::Error| error.context(program.last_lines());
        settled(&clusters).await.map_err(with_log)?;
        let taken_away = async {
            suspended(&clusters).await?;
            foreign(&clusters).await?;
            unusable(&clusters).await
        };
        // A probe waits for long, and disturbs nobody.
        let (taken_away, probed) = tokio::join!(taken_away, access_probe::succeeds(&clusters, &probe));
        taken_away.map_err(with_log)?;
        probed.map_err(with_log)?;
        access_probe::is_audited(&clusters).await
    })
}

fn narrower(resources: &[&str]) -> Value {
    json!({"role": {"namespace": "shop", "rules": rules(resources)}})
}

async fn suspended(clusters: &Clusters) -> Test {
    let holder = clusters.holder("ci-kubeconfig").await?;
    holder.list("configmap", "shop").await?;
    clusters.change("ci", &json!({"suspend": true, "rights": narrower(&["pods"])})).await?;
    let refused = async || holder.list("configmap", "shop").await.is_err().then_some(());
    clusters.there.until("the right is gone", refused).await?;
    holder.list("pod", "shop").await?;
    clusters.change("ci", &json!({"suspend": false, "rights": narrower(&["pods", "configmaps"])})).await?;
    clusters.until("ci", "settled", is_settled).await.map(drop)
}

/// The Secret is somebody else's by now.
async fn foreign(clusters: &Clusters) -> Test {
    let holder = clusters.holder("ci-kubeconfig").await?;
    let admin = clusters.here.admin().await?;
    admin
        .patch(
            "secret",
            "team",
            "ci-kubeconfig",
            &json!({"metadata": {"labels": {"coppice.dev/access": null}}}),
        )
        .await?;
    clusters.until("ci", "Refused", |o| o["status"]["lastError"]["reason"] == "SecretNotOurs").await?;
    clusters.change("ci", &json!({"rights": narrower(&["pods"])})).await?;
    let refused = async || holder.list("configmap", "shop").await.is_err().then_some(());
    clusters.there.until("the right is gone", refused).await?;
    admin.delete("secret", "team", "ci-kubeconfig", &json!({})).await?;
    clusters.change("ci", &json!({"rights": narrower(&["pods", "configmaps"])})).await?;
    clusters.until("ci", "settled", is_settled).await.map(drop)
}

/// Nothing can be written into an immutable Secret: it says so, and is made again when it is deleted.
async fn unusable(clusters: &Clusters) -> Test {
    let admin = clusters.here.admin().await?;
    admin.patch("secret", "team", "ci-kubeconfig", &json!({"immutable": true})).await?;
    clusters.change("ci", &json!({"rotate": "immutable"})).await?;
    let refused = clusters.until("ci", "Refused", |o| o["status"]["phase"] == "Refused").await?;
    let written = refused["status"]["lastError"].to_string();
    ensure!(written.contains("SecretUnusable") && written.contains("delete it"), "{refused:#}");
    ensure!(condition(&refused, "Ready")["status"] == "True", "{refused:#}");
    admin.delete("secret", "team", "ci-kubeconfig", &json!({})).await?;
    let rotated = |o: &Value| is_settled(o) && o["status"]["rotated"] == "immutable";
    clusters.until("ci", "made again", rotated).await?;
    clusters.holder("ci-kubeconfig").await?.list("configmap", "shop").await.map(drop)
}

#[test]
fn a_deletion_after_a_restart_revokes_by_the_kubeconfig_that_was_there_and_is_given_up_at_last() -> Test {
    on_own_plane(async {
        let clusters = Clusters::start().await?;
        let mut program = clusters.next_life(&clusters.account).await?;
        settled(&clusters).await.with_context(|| program.last_lines())?;
        program.kill().await?;
        let reads = || -> anyhow::Result<usize> {
            let events = clusters.here.plane.audit()?;
            let of_target = events
                .iter()
                .filter(|event| event.verb == "get" && event.resource == "secrets" && event.name == "target");
            Ok(of_target.count())
        };
        let before = reads()?;
        let program = clusters.next_life(&clusters.account).await?;
        let with_log = |error: anyhow::Error| error.context(program.last_lines());
        let read = async || (reads().ok()? > before).then_some(());
        clusters.here.until("the new leader has read the kubeconfig", read).await.map_err(with_log)?;
        let holder = clusters.holder("ci-kubeconfig").await?;
        let admin = clusters.here.admin().await?;
        admin.delete("secret", "team", "target", &json!({})).await?;
        admin.delete("clacc", "team", "ci", &json!({})).await?;
        clusters.gone("ci").await.map_err(with_log)?;
        clusters.dead(&holder).await?;
        clusters.nothing_is_left().await?;
        given_up(&clusters).await.map_err(with_log)
    })
}

/// A target that is away for longer than `forgetAfter`: what is left there is said, and is there.
async fn given_up(clusters: &Clusters) -> Test {
    let proxy = Proxy::start(&clusters.there.plane, None).await?;
    let through = proxy.kubeconfig(&clusters.there.plane.admin_kubeconfig())?;
    clusters.bootstrap(&std::fs::read_to_string(&through)?).await?;
    let mut forgets = access("ci", "ci-kubeconfig");
    forgets["spec"]["forgetAfter"] = json!("1m");
    let admin = clusters.here.admin().await?;
    admin.create(&forgets).await?;
    let settled = clusters.until("ci", "settled", is_settled).await?;
    let uid = settled["metadata"]["uid"].as_str().context("no uid")?;
    proxy.cut();
    admin.delete("clacc", "team", "ci", &json!({})).await?;
    clusters.gone("ci").await?;
    let secret = clusters.here.get("secret", "team", "ci-kubeconfig").await?;
    ensure!(secret.is_none(), "the Secret goes with it");
    clusters
        .here
        .until("an Event says so", async || {
            let events = events(clusters, "RevocationSkipped").await.ok()?;
            events.iter().any(|event| event.contains(uid)).then_some(())
        })
        .await?;
    let left = clusters.in_target("serviceaccount").await?;
    ensure!(left.iter().any(|o| o["metadata"]["labels"]["coppice.dev/access"] == uid), "{left:#?}");
    Ok(())
}

#[test]
fn what_others_have_labeled_in_the_target_stays() -> Test {
    on_own_plane(async {
        let clusters = Clusters::start().await?;
        let program = clusters.next_life_with(&clusters.account, &["--gone-for", "1s"]).await?;
        let with_log = |error: anyhow::Error| error.context(program.last_lines());
        let first = settled(&clusters).await.map_err(with_log)?;
        clusters.create("another", "another-kubeconfig").await?;
        clusters.until("another", "settled", is_settled).await.map_err(with_log)?;
        // By that others who use the target know that it is not theirs.
        let oldest = clusters.here.get("namespace", "", "kube-system").await?.unwrap_or_default();
        for object in clusters.in_target("serviceaccount").await? {
            let labels = &object["metadata"]["labels"];
            ensure!(labels["coppice.dev/installation"] == oldest["metadata"]["uid"], "{object:#}");
        }
        // Whoever may label an object, and not delete it, has the program delete it otherwise.
        let label = json!({"coppice.dev/access": first["metadata"]["uid"]});
        let binding = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding",
            "metadata": {"name": "theirs", "namespace": "shop", "labels": label},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "view"}, "subjects": []});
        let secret = json!({"apiVersion": "v1", "kind": "Secret",
            "metadata": {"name": "theirs", "namespace": "coppice-access", "labels": label},
            "data": {"a": BASE64_STANDARD.encode("b")}});
        let admin = clusters.there.admin().await?;
        admin.create(&binding).await?;
        admin.create(&secret).await?;
        clusters.change("ci", &json!({"rotate": "now"})).await?;
        clusters.until("ci", "rotated", is_settled).await.map_err(with_log)?;
        clusters.here.admin().await?.delete("clacc", "team", "ci", &json!({})).await?;
        clusters.gone("ci").await.map_err(with_log)?;
        is_swept(&clusters).await.map_err(with_log)?;
        ensure!(clusters.there.get("rolebinding", "shop", "theirs").await?.is_some());
        ensure!(clusters.there.get("secret", "coppice-access", "theirs").await?.is_some());
        clusters.holder("another-kubeconfig").await?.list("configmap", "shop").await.map(drop)
    })
}

/// What is left on both sides of a ClusterAccess that is gone is deleted; what another installation has left stays.
async fn is_swept(clusters: &Clusters) -> Test {
    let oldest = clusters.here.get("namespace", "", "kube-system").await?.context("kube-system")?;
    let ours = oldest["metadata"]["uid"].as_str().context("no uid")?;
    for [uid, installation] in [[GONE, ours], ELSEWHERE] {
        leave(clusters, uid, installation).await?;
    }
    let gone = async || (left_of(clusters, GONE).await.ok()? == [false; 3]).then_some(());
    // With one of two resyncs it is seen for the first time, with the next one it is deleted.
    clusters.there.until("both sides are swept", gone).await?;
    ensure!(left_of(clusters, ELSEWHERE[0]).await? == [true; 3], "what is not ours stays");
    Ok(())
}

/// Makes what a program leaves that has no time to clean up: in the target an account and a Secret that a token is bound to, here a Secret.
async fn leave(clusters: &Clusters, uid: &str, installation: &str) -> Test {
    let there = clusters.there.admin().await?;
    let labels = json!({"coppice.dev/access": uid, "coppice.dev/installation": installation});
    for (kind, name) in [("ServiceAccount", format!("coppice-{uid}")), ("Secret", format!("coppice-{uid}-1"))]
    {
        let metadata = json!({"name": name, "namespace": "coppice-access", "labels": labels});
        there.create(&json!({"apiVersion": "v1", "kind": kind, "metadata": metadata})).await?;
    }
    let annotations = json!({
        "coppice.dev/credential": format!("{uid}-1"), "coppice.dev/installation": installation
    });
    let metadata = json!({"name": format!("left-{uid}"), "namespace": "team",
        "labels": {"coppice.dev/access": uid}, "annotations": annotations});
    let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": metadata});
    clusters.here.admin().await?.create(&secret).await.map(drop)
}

/// What of that is there.
async fn left_of(clusters: &Clusters, uid: &str) -> anyhow::Result<[bool; 3]> {
    let account = clusters.there.get("serviceaccount", "coppice-access", &format!("coppice-{uid}")).await?;
    let bound = clusters.there.get("secret", "coppice-access", &format!("coppice-{uid}-1")).await?;
    let here = clusters.here.get("secret", "team", &format!("left-{uid}")).await?;
    Ok([account.is_some(), bound.is_some(), here.is_some()])
}
