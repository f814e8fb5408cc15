//! What the caches do not know, because events are lost or the API server is behind.

use anyhow::{Context as _, ensure};
use coppice_plane::ADMIN;
use coppice_plane::proxy::{Active, FaultRule, Match, Proxy, ProxyFault, Stale, TraceEntry, Watches};
use coppice_tests::fault_injection::{
    FAST_LEASE, FaultTestbed, Replica, Work, caches, status_writes, with_timeout,
};
use coppice_tests::{TestCluster, on_own_plane};
use serde_json::Value;

use super::{HOLD, Test, in_seconds, patch};

const ALL_SUCCEED: &str =
    "{policies: [{name: done, when: {podsSucceed: {initialDelay: 0s}}, then: {delete: {}}}]}";

/// Runs a pod, and waits until it is as far as its outcome says.
async fn pod(test_cluster: &TestCluster, namespace: &str, name: &str, outcome: &str) -> anyhow::Result<()> {
    test_cluster.account(namespace).await?;
    test_cluster.pod(namespace, name, outcome, "").await?;
    let phase = if outcome == "run" { "Running" } else { "Succeeded" };
    test_cluster
        .until(&format!("pod {name} is {phase}"), async || {
            let pod = test_cluster.get("pod", namespace, name).await.ok()??;
            (pod["status"]["phase"] == phase).then_some(())
        })
        .await
}

/// All events about these are lost from now on.
fn hide_events(replica: &Replica, matches: Match) -> Active {
    replica.proxy.add(FaultRule::new(matches.when(|entry| entry.event.is_some()), ProxyFault::DropEvent))
}

/// Waits until the operator has read this twice, beside its lists and watches: it has decided on it and looks again.
async fn reconciled_twice(replica: &Replica, what: &str, read: &Match) -> anyhow::Result<()> {
    let looks = |entries: &[TraceEntry]| {
        let looks = entries.iter().filter(|e| e.event.is_none() && e.status.is_some() && read.selects(e));
        (looks.count() >= 2).then_some(())
    };
    let waited = with_timeout(&format!("two looks at {what}"), replica.proxy.trace().wait_until(looks)).await;
    waited.with_context(|| replica.operator.last_lines())
}

/// What the caches do not know for minutes is no reason to write status over and over: looks that lead to nothing are a
/// second apart, and each writes what was decided, what is done about it, and that it is given up.
fn is_quiet(replica: &Replica, namespace: &str) -> Test {
    let entries = replica.proxy.trace().entries();
    let writes: Vec<_> =
        entries.iter().filter(|e| status_writes(namespace).selects(e)).map(|e| e.at).collect();
    let (Some(first), Some(last)) = (writes.first(), writes.last()) else { return Ok(()) };
    let (count, seconds) = (writes.len(), last.saturating_sub(*first).as_secs() + 1);
    ensure!(count as u64 <= 10 + 4 * seconds, "{count} writes of the status in {namespace} in {seconds} s");
    Ok(())
}

fn alive(testbed: &FaultTestbed) -> Test {
    let deletes = testbed.test_cluster.namespace_deletes()?;
    ensure!(deletes.is_empty(), "{deletes:?}");
    Ok(())
}

#[test]
fn what_lost_events_contained_is_read_before_anything_is_deleted() -> Test {
    on_own_plane(async {
        let mut testbed = FaultTestbed::start().await?;
        let replica = Replica::start(&testbed.test_cluster).await?;
        let names = ["pod-unseen", "hold-unseen", "label-unseen", "settings-unseen"];
        testbed.prepare(&names.map(|name| (name.to_owned(), Work::Delete))).await?;
        let test_cluster = &testbed.test_cluster;

        // A hold that the cache knows nothing of when the ttl ends.
        let spec = format!(
            "{{policies: [{{name: p, when: {{ttl: {{until: '{}'}}}}, then: {{delete: {{}}}}}}]}}",
            in_seconds(90)
        );
        test_cluster.manager("hold-unseen", "m", &spec).await?;
        test_cluster.phase("hold-unseen", "m", "Active").await?;
        let hold = hide_events(&replica, Match::any().resource("namespacemanagers").namespace("hold-unseen"));
        patch(test_cluster, "hold-unseen", HOLD).await?;

        // A second pod, when the first has succeeded.
        let second =
            hide_events(&replica, Match::any().resource("pods").namespace("pod-unseen").name("second"));
        pod(test_cluster, "pod-unseen", "second", "run").await?;
        pod(test_cluster, "pod-unseen", "first", "succeed").await?;
        test_cluster.manager("pod-unseen", "m", ALL_SUCCEED).await?;
        let fresh = Match::verb("list").resource("pods").namespace("pod-unseen");
        reconciled_twice(&replica, "the pods of pod-unseen", &fresh).await?;

        // The label that protects a namespace.
        let label = hide_events(&replica, Match::any().resource("namespaces").name("label-unseen"));
        let protect = ["label", "namespace", "label-unseen", "coppice.dev/protected=true"];
        test_cluster.kubectl(ADMIN, &protect).await?;
        testbed.begin(["label-unseen"]).await?;
        let fresh = Match::verb("get").resource("namespaces").name("label-unseen");
        reconciled_twice(&replica, "the namespace label-unseen", &fresh).await?;

        let conflict = status_writes("hold-unseen").when(|entry| entry.status == Some(409));
        replica.seen("the ttl ends, and the hold is in the way", 0, &conflict).await?;
        test_cluster.phase("hold-unseen", "m", "Held").await?;

        // `paused`.
        let settings = hide_events(&replica, Match::any().resource("coppiceconfigs"));
        paused(test_cluster, true).await?;
        let mark = replica.proxy.trace().last();
        testbed.begin(["settings-unseen"]).await?;
        let read = Match::verb("get").resource("coppiceconfigs").when(move |entry| entry.seq > mark);
        reconciled_twice(&replica, "the settings", &read).await?;
        alive(&testbed)?;

        for name in names {
            is_quiet(&replica, name)?;
        }

        // Sight comes back with the next change, and what was kept back is done when nothing is in the way any more.
        drop((hold, second, label, settings));
        paused(test_cluster, false).await?;
        test_cluster
            .kubectl(ADMIN, &["label", "namespace", "label-unseen", "coppice.dev/protected-"])
            .await?;
        test_cluster.kubectl(ADMIN, &["delete", "pod", "second", "-n", "pod-unseen", "--wait=false"]).await?;
        patch(test_cluster, "hold-unseen", r#"{"spec":{"hold":null}}"#).await?;
        testbed.done(names).await?;
        testbed.quiet().await?;
        testbed.verify_reported_once(&replica.operator).await
    })
}

async fn paused(test_cluster: &TestCluster, paused: bool) -> anyhow::Result<()> {
    let switch = format!(r#"{{"spec":{{"governor":{{"paused":{paused}}}}}}}"#);
    test_cluster.patch("coppiceconfig", "", "coppice", &switch).await.map(drop)
}

/// The revision of now.
async fn revision(test_cluster: &TestCluster) -> anyhow::Result<u64> {
    let list = test_cluster.kubectl(ADMIN, &["get", "--raw", "/api/v1/namespaces?limit=1"]).await?;
    let list: Value = serde_json::from_str(&list)?;
    Ok(list["metadata"]["resourceVersion"].as_str().unwrap_or_default().parse()?)
}

#[test]
fn started_on_caches_of_the_past_it_does_nothing_that_is_not_true_now() -> Test {
    on_own_plane(async {
        let mut testbed = FaultTestbed::start_with_history().await?;
        let deletes = ["due", "held", "grown", "replaced", "withdrawn"];
        let mut works = deletes.map(|name| (name.to_owned(), Work::Delete)).to_vec();
        works.push(("changed".to_owned(), Work::Notify));
        testbed.prepare(&works).await?;
        testbed.begin(["due", "held", "replaced", "withdrawn", "changed"]).await?;
        let test_cluster = &testbed.test_cluster;
        pod(test_cluster, "grown", "first", "succeed").await?;
        test_cluster.manager("grown", "m", ALL_SUCCEED).await?;
        let revision = revision(test_cluster).await?;

        pod(test_cluster, "grown", "second", "run").await?;
        patch(test_cluster, "held", HOLD).await?;
        patch(test_cluster, "changed", r#"{"spec":{"suspend":true}}"#).await?;
        test_cluster.kubectl(ADMIN, &["delete", "nsman", "m", "-n", "withdrawn"]).await?;
        test_cluster.kubectl(ADMIN, &["delete", "namespace", "replaced"]).await?;
        let replacement = test_cluster.namespace("replaced").await?;

        let proxy = Proxy::start(&test_cluster.plane, None).await?;
        let past = ProxyFault::Stale(Stale { revision, watches: Watches::Stop });
        let past = proxy.add(FaultRule::new(caches(), past));
        let replica = Replica::spawn_by(test_cluster, proxy, &FAST_LEASE).await?;
        replica.operator.ready(test_cluster).await?;
        testbed.done(["due"]).await?;
        for (name, code) in [("held", 409), ("changed", 409), ("replaced", 404), ("withdrawn", 404)] {
            let answer =
                replica.wait_for_response(&format!("a write about {name}"), &status_writes(name)).await?;
            ensure!(answer == code, "the status of {name}: {answer}");
        }
        let fresh = Match::verb("list").resource("pods").namespace("grown");
        reconciled_twice(&replica, "the pods of grown", &fresh).await?;
        ensure!(test_cluster.namespace_deletes()?.iter().all(|delete| delete.name == "due"));

        drop(past);
        test_cluster.phase("held", "m", "Held").await?;
        test_cluster.phase("changed", "m", "Suspended").await?;
        let unfinished = |m: &Value| m["status"]["policies"][0]["reason"] == "PodsNotFinished";
        test_cluster.manager_until("grown", "m", "PodsNotFinished", unfinished).await?;
        testbed.quiet().await?;
        ensure!(testbed.receiver.received().is_empty(), "{:?}", testbed.receiver.received());
        ensure!(test_cluster.namespace_deletes()?.iter().all(|delete| delete.name == "due"));
        ensure!(!test_cluster.is_deleted("replaced", &replacement).await);

        test_cluster.kubectl(ADMIN, &["delete", "pod", "second", "-n", "grown", "--wait=false"]).await?;
        patch(test_cluster, "held", r#"{"spec":{"hold":null}}"#).await?;
        patch(test_cluster, "changed", r#"{"spec":{"suspend":false}}"#).await?;
        testbed.done(["due", "held", "grown", "changed"]).await?;
        testbed.quiet().await?;
        testbed.verify()
    })
}
