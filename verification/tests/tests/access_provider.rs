//! Credentials by a kubeconfig that the platform keeps: who may have them, and with which rights at most.

use std::sync::Arc;

use anyhow::ensure;
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use coppice_plane::{ADMIN, ALICE, AuditEvent};
use coppice_tests::requests::Requests;
use coppice_tests::test_cluster::repository;
use coppice_tests::{TestCluster, condition, on_own_plane};
use serde_json::{Value, json};

use super::access::{AUTHOR, Clusters, access, is_settled, rules};

type Test = anyhow::Result<()>;

/// The account of the example in the target.
const BOOTSTRAP: &str = "system:serviceaccount:coppice-access:coppice-bootstrap";

fn by_provider(name: &str) -> Value {
    let mut access = access(name, &format!("{name}-kubeconfig"));
    access["spec"]["cluster"] = json!({"provider": {"name": "shop"}});
    access["spec"]["ttl"] = json!("1h");
    access
}

fn secret() -> Value {
    let labels = json!({"coppice.dev/access": "kubeconfig"});
    json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "shop", "namespace": "coppice-access-system", "labels": labels}})
}

/// The administrator's kubeconfig of the target, which no tenant can read.
async fn kubeconfig(clusters: &Clusters) -> Test {
    let mut secret = secret();
    let there = std::fs::read_to_string(clusters.there.plane.admin_kubeconfig())?;
    secret["data"] = json!({"kubeconfig": BASE64_STANDARD.encode(there)});
    clusters.here.admin().await?.create(&secret).await.map(drop)
}

/// Namespaces, by this field, may read `ConfigMap`s in `shop`, for an hour.
fn allow(field: &str, namespaces: &Value) -> Value {
    let rights = json!({"namespaces": ["shop"], "rules": rules(&["configmaps"])});
    json!({field: namespaces, "maxTtl": "1h", "rights": rights})
}

async fn allowed(clusters: &Clusters, entries: &[Value]) -> Test {
    let spec = json!({"spec": {"allow": entries}});
    clusters.here.admin().await?.patch("clprov", "", "shop", &spec).await.map(drop)
}

#[test]
fn a_kubeconfig_of_the_platform_is_used_for_those_and_for_the_rights_that_it_allows() -> Test {
    on_own_plane(async {
        let clusters = Clusters::start().await?;
        kubeconfig(&clusters).await?;
        let admin = clusters.here.admin().await?;
        let served = async || admin.list("clprov", "").await.ok();
        clusters.here.until("the kind is served", served).await?;
        let provider = json!({"apiVersion": "coppice.dev/v1alpha1", "kind": "ClusterProvider", "metadata": {"name": "shop"},
            "spec": {"credential": {"secret": "shop"}, "allow": [allow("namespaces", &json!(["team"]))]}});
        admin.create(&provider).await?;
        written_by_whoever_may_not_read_it(&clusters).await?;
        let program = clusters.next_life(&clusters.account).await?;
        let with_log = |error: anyhow::Error| error.context(program.last_lines());
        within(&clusters).await.map_err(with_log)?;
        beyond(&clusters).await.map_err(with_log)?;
        elsewhere(&clusters).await.map_err(with_log)?;
        replaced(&clusters).await.map_err(with_log)?;
        in_turn(&clusters).await.map_err(with_log)?;
        withdrawn(&clusters).await.map_err(with_log)
    })
}

async fn written_by_whoever_may_not_read_it(clusters: &Clusters) -> Test {
    author(clusters).await?.create(&by_provider("ci")).await.map(drop)
}

/// Who may write `ClusterAccess`es and read no Secret, once the policy is in force that demands it of a kubeconfig in the namespace: of others
/// it demands nothing.
pub(crate) async fn author(clusters: &Clusters) -> anyhow::Result<Requests> {
    let here = &clusters.here;
    here.kubectl_stdin(ADMIN, &["apply", "-f", "-"], AUTHOR).await?;
    let alice = here.requests(ALICE).await?;
    let in_force = async || {
        let created = alice.create(&access("probe", "probe")).await;
        if created.is_ok() {
            here.admin().await.ok()?.delete("clacc", "team", "probe", &json!({})).await.ok()?;
        }
        created.err().filter(|error| error.to_string().contains("to get the Secret")).map(drop)
    };
    here.until("an author who may not read a kubeconfig is refused", in_force).await?;
    Ok(alice)
}

async fn within(clusters: &Clusters) -> Test {
    clusters.until("ci", "settled", is_settled).await?;
    let holder = clusters.holder("ci-kubeconfig").await?;
    holder.list("configmap", "shop").await?;
    ensure!(holder.list("configmap", "default").await.is_err());
    let ready = async || {
        let provider = clusters.here.get("clprov", "", "shop").await.ok()??;
        (condition(&provider, "Ready")["reason"] == "KubeconfigUsable").then_some(())
    };
    clusters.here.until("the provider is ready", ready).await
}

/// More than is allowed is refused with what to write instead, and gets nothing in the target.
async fn beyond(clusters: &Clusters) -> Test {
    let mut more = by_provider("more");
    more["spec"]["ttl"] = json!("2h");
    clusters.here.admin().await?.create(&more).await?;
    let says = async |what: &str| {
        let says = |o: &Value| {
            let error = &o["status"]["lastError"];
            error["reason"] == "NotAllowed" && error["message"].to_string().contains(what)
        };
        clusters.until("more", what, says).await
    };
    let refused = says("spec.ttl: write at most 1h").await?;
    ensure!(refused["status"]["phase"] == "Refused", "{refused:#}");
    let secrets = json!({"role": {"namespace": "shop", "rules": rules(&["secrets"])}});
    clusters.change("more", &json!({"ttl": "1h", "rights": secrets})).await?;
    says("leave out what is not allowed: get secrets").await?;
    ensure!(clusters.in_target("serviceaccount").await?.len() == 1, "that of ci alone");
    // Nor does one that has a credential get more than that.
    clusters.change("ci", &json!({"rights": secrets})).await?;
    clusters.until("ci", "Refused", |o| o["status"]["lastError"]["reason"] == "NotAllowed").await?;
    let holder = clusters.holder("ci-kubeconfig").await?;
    ensure!(holder.list("secret", "shop").await.is_err());
    holder.list("configmap", "shop").await?;
    let configmaps = json!({"role": {"namespace": "shop", "rules": rules(&["configmaps"])}});
    clusters.change("ci", &json!({"rights": configmaps})).await?;
    clusters.until("ci", "settled", is_settled).await.map(drop)
}

/// Waits until the access of the other namespace is so.
async fn until_there(here: &TestCluster, what: &str, is: impl Fn(&Value) -> bool) -> Test {
    let reached = async || here.get("clacc", "other", "ci").await.ok()?.filter(|o| is(o)).map(drop);
    here.until(what, reached).await
}

/// Another namespace, once the provider allows it by its labels.
async fn elsewhere(clusters: &Clusters) -> Test {
    let here = &clusters.here;
    here.namespace("other").await?;
    let mut other = by_provider("ci");
    other["metadata"]["namespace"] = json!("other");
    here.admin().await?.create(&other).await?;
    let refused = |o: &Value| {
        o["status"]["lastError"]["message"].to_string().contains("does not allow the namespace other")
    };
    until_there(here, "the other namespace is refused", refused).await?;
    let labels = json!({"matchLabels": {"kubernetes.io/metadata.name": "other"}});
    allowed(clusters, &[allow("namespaces", &json!(["team"])), allow("namespaceSelector", &labels)]).await?;
    until_there(here, "it is allowed at once", is_settled).await?;
    let counted = async || {
        let provider = here.get("clprov", "", "shop").await.ok()??;
        (provider["status"]["accesses"] == 3).then_some(())
    };
    here.until("all that name it are counted", counted).await?;
    let admin = here.admin().await?;
    // Neither while a Shoot is made by it. The program does not make any here.
    let gardener = json!({"clusterProvider": "shop", "cloudProfile": "c", "credentialsBinding": "b", "infrastructure": "aws"});
    let managed = json!({
        "apiVersion": "coppice.dev/v1alpha1", "kind": "ManagedCluster", "metadata": {"name": "lab", "namespace": "other"},
        "spec": {
            "provider": {"gardener": gardener}, "version": "1.33.4", "region": "r", "networks": {"nodes": "10.250.0.0/16"},
            "workers": [{"name": "a", "machine": "m", "min": 1, "max": 1, "zones": ["a"]}]
        }
    });
    admin.create(&managed).await?;
    let says = "3 ClusterAccesses name it (such as other/ci, team/ci, team/more) and 1 ManagedClusters name it (such as other/lab)";
    let kept = async || {
        let deleted = admin.delete("clprov", "", "shop", &json!({"dryRun": ["All"]})).await;
        deleted.err().filter(|error| error.to_string().contains(says)).map(drop)
    };
    here.until("it cannot be deleted while they use it", kept).await?;
    admin.delete("mcl", "other", "lab", &json!({})).await
}

/// With the token of another user in the Secret of the platform, the next credential is asked for by that one: the program goes on running.
async fn replaced(clusters: &Clusters) -> Test {
    let (here, there) = (&clusters.here, &clusters.there);
    let example = std::fs::read_to_string(repository().join("examples/access/target.yaml"))?;
    there.kubectl_stdin(ADMIN, &["apply", "--server-side", "-f", "-"], &example).await?;
    let account =
        std::fs::read_to_string(there.service_account("coppice-access", "coppice-bootstrap").await?)?;
    let before = [tokens_by(there, ADMIN)?, tokens_by(there, BOOTSTRAP)?];
    let data = json!({"data": {"kubeconfig": BASE64_STANDARD.encode(account)}});
    here.admin().await?.patch("secret", "coppice-access-system", "shop", &data).await?;
    clusters.change("ci", &json!({"rotate": "replaced"})).await?;
    let is_rotated = |o: &Value| is_settled(o) && o["status"]["rotated"] == "replaced";
    clusters.until("ci", "rotated", is_rotated).await?;
    clusters.holder("ci-kubeconfig").await?.list("configmap", "shop").await?;
    let after = [tokens_by(there, ADMIN)?, tokens_by(there, BOOTSTRAP)?];
    ensure!(before[1] == 0 && after == [before[0], 1], "{before:?}, then {after:?}");
    Ok(())
}

/// How many tokens that user has had the target issue.
fn tokens_by(there: &TestCluster, user: &str) -> anyhow::Result<usize> {
    let events = there.plane.audit()?;
    let is_issued =
        |event: &&Arc<AuditEvent>| event.user == user && event.subresource == "token" && event.succeeded();
    Ok(events.iter().filter(is_issued).count())
}

/// A provider of one call a minute: of three that ask at once one has its credential, and the others say what they wait for.
async fn in_turn(clusters: &Clusters) -> Test {
    const NAMES: [&str; 3] = ["first", "second", "third"];
    let (here, admin) = (&clusters.here, clusters.here.admin().await?);
    let allow = [allow("namespaces", &json!(["team"]))];
    let slow = json!({"apiVersion": "coppice.dev/v1alpha1", "kind": "ClusterProvider", "metadata": {"name": "slow"},
        "spec": {"credential": {"secret": "shop"}, "callsPerMinute": 1, "allow": allow}});
    admin.create(&slow).await?;
    for name in NAMES {
        let mut access = by_provider(name);
        access["spec"]["cluster"]["provider"]["name"] = json!("slow");
        admin.create(&access).await?;
    }
    let says = "callsPerMinute of ClusterProvider slow is used up: it is asked for at ";
    let seen = async || {
        let (mut issued, mut waiting) = (0, 0);
        for name in NAMES {
            let access = here.get("clacc", "team", name).await.ok()??;
            let ready = condition(&access, "Ready");
            issued += usize::from(is_settled(&access) && ready["status"] == "True");
            let waits = ready["reason"] == "NotIssued" && access["status"]["credential"].is_null();
            let says_why = ready["message"].as_str().is_some_and(|message| message.contains(says));
            waiting += usize::from(waits && says_why && access["status"]["intent"]["waitsUntil"].is_string());
        }
        (issued == 1 && waiting == 2).then_some(())
    };
    here.until("one has its credential, and two wait for the budget", seen).await?;
    for name in NAMES {
        admin.delete("clacc", "team", name, &json!({})).await?;
        clusters.gone(name).await?;
    }
    Ok(())
}

/// What the provider does not allow any more loses its rights at once, and has them again, with the same token, when it is allowed again in time.
/// It is revoked at the end.
async fn withdrawn(clusters: &Clusters) -> Test {
    let (here, holder) = (&clusters.here, clusters.holder("ci-kubeconfig").await?);
    let before = clusters.until("ci", "settled", is_settled).await?;
    allowed(clusters, &[]).await?;
    let refused = |o: &Value| {
        let status = &o["status"];
        status["lastError"]["reason"] == "NotAllowed" && status["observedGeneration"].is_null()
    };
    let refused = clusters.until("ci", "without rights", refused).await?;
    ensure!(refused["status"]["phase"] == "Refused", "{refused:#}");
    ensure!(refused["status"]["credential"] == before["status"]["credential"], "{refused:#}");
    ensure!(refused["status"]["revokesAt"].is_string(), "{refused:#}");
    let without_rights = async || holder.list("configmap", "shop").await.err().map(drop);
    clusters.there.until("its token has no right", without_rights).await?;
    allowed(clusters, &[allow("namespaces", &json!(["team", "other"]))]).await?;
    let again = clusters.until("ci", "allowed again", is_settled).await?;
    ensure!(again["status"]["credential"] == before["status"]["credential"], "{again:#}");
    ensure!(again["status"]["revokesAt"].is_null(), "{again:#}");
    let with_rights = async || holder.list("configmap", "shop").await.ok();
    clusters.there.until("its token has its rights", with_rights).await?;
    // Its kubeconfig is gone: this is said at once, and what was there revokes.
    let admin = here.admin().await?;
    admin.delete("secret", "coppice-access-system", "shop", &json!({})).await?;
    let missing = async || {
        let provider = here.get("clprov", "", "shop").await.ok()??;
        (condition(&provider, "Ready")["reason"] == "KubeconfigMissing").then_some(())
    };
    here.until("the provider is not ready", missing).await?;
    for (namespace, name) in [("team", "ci"), ("team", "more"), ("other", "ci")] {
        admin.delete("clacc", namespace, name, &json!({})).await?;
    }
    let gone = async || admin.list("clacc", "").await.ok()?.is_empty().then_some(());
    here.until("they are gone", gone).await?;
    clusters.dead(&holder).await?;
    clusters.nothing_is_left().await
}
