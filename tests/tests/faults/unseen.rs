//! What the caches do not know, because events are lost or the API server is behind.

use anyhow::{Context as _, ensure};
use coppice_plane::ADMIN;
use coppice_plane::proxy::{Active, Entry, Fault, Match, Proxy, Rule, Stale, Watches};
use coppice_tests::faulty::{LIVELY_LEASE, Replica, Work, World, caches, soon, status_writes};
use coppice_tests::{Stage, alone};
use serde_json::Value;

use super::{HOLD, Test, in_seconds, patch};

const ALL_SUCCEED: &str =
    "{policies: [{name: done, when: {podsSucceed: {initialDelay: 0s}}, then: {delete: {}}}]}";

/// Runs a pod, and waits until it is as far as its outcome says.
async fn pod(stage: &Stage, namespace: &str, name: &str, outcome: &str) -> anyhow::Result<()> {
    stage.account(namespace).await?;
    stage.pod(namespace, name, outcome, "").await?;
    let phase = if outcome == "run" { "Running" } else { "Succeeded" };
    stage
        .until(&format!("pod {name} is {phase}"), async || {
            let pod = stage.get("pod", namespace, name).await.ok()??;
            (pod["status"]["phase"] == phase).then_some(())
        })
        .await
}

/// All events about these are lost from now on.
fn blind(replica: &Replica, matches: Match) -> Active {
    replica.proxy.add(Rule::new(matches.when(|entry| entry.event.is_some()), Fault::DropEvent))
}

/// Waits until the operator has read this twice, beside its lists and watches: it has decided on it and looks again.
async fn looked_twice(replica: &Replica, what: &str, read: &Match) -> anyhow::Result<()> {
    let looks = |entries: &[Entry]| {
        let looks = entries.iter().filter(|e| e.event.is_none() && e.status.is_some() && read.selects(e));
        (looks.count() >= 2).then_some(())
    };
    let waited = soon(&format!("two looks at {what}"), replica.proxy.trace().wait_until(looks)).await;
    waited.with_context(|| replica.operator.last_lines())
}

/// What the caches do not know for minutes is no reason to write status over and over: looks that lead to nothing are a
/// second apart, and each writes what was decided, what is done about it, and that it is given up.
fn calm(replica: &Replica, namespace: &str) -> Test {
    let entries = replica.proxy.trace().entries();
    let writes: Vec<_> =
        entries.iter().filter(|e| status_writes(namespace).selects(e)).map(|e| e.at).collect();
    let (Some(first), Some(last)) = (writes.first(), writes.last()) else { return Ok(()) };
    let (count, seconds) = (writes.len(), last.saturating_sub(*first).as_secs() + 1);
    ensure!(count as u64 <= 10 + 4 * seconds, "{count} writes of the status in {namespace} in {seconds} s");
    Ok(())
}

fn alive(world: &World) -> Test {
    let deletes = world.stage.namespace_deletes()?;
    ensure!(deletes.is_empty(), "{deletes:?}");
    Ok(())
}

#[test]
fn what_lost_events_would_have_told_is_seen_before_anything_is_deleted() -> Test {
    alone(async {
        let mut world = World::start().await?;
        let replica = Replica::start(&world.stage).await?;
        let names = ["pod-unseen", "hold-unseen", "label-unseen", "settings-unseen"];
        world.prepare(&names.map(|name| (name.to_owned(), Work::Delete))).await?;
        let stage = &world.stage;

        // A hold that the cache knows nothing of when the ttl ends.
        let spec = format!(
            "{{policies: [{{name: p, when: {{ttl: {{until: '{}'}}}}, then: {{delete: {{}}}}}}]}}",
            in_seconds(8)
        );
        stage.manager("hold-unseen", "m", &spec).await?;
        stage.phase("hold-unseen", "m", "Active").await?;
        let hold = blind(&replica, Match::any().resource("namespacemanagers").namespace("hold-unseen"));
        patch(stage, "hold-unseen", HOLD).await?;

        // A second pod, when the first has succeeded.
        let second = blind(&replica, Match::any().resource("pods").namespace("pod-unseen").name("second"));
        pod(stage, "pod-unseen", "second", "run").await?;
        pod(stage, "pod-unseen", "first", "succeed").await?;
        stage.manager("pod-unseen", "m", ALL_SUCCEED).await?;
        let fresh = Match::verb("list").resource("pods").namespace("pod-unseen");
        looked_twice(&replica, "the pods of pod-unseen", &fresh).await?;

        // The label that protects a namespace.
        let label = blind(&replica, Match::any().resource("namespaces").name("label-unseen"));
        let protect = ["label", "namespace", "label-unseen", "coppice.dev/protected=true"];
        stage.kubectl(ADMIN, &protect).await?;
        world.begin(["label-unseen"]).await?;
        let fresh = Match::verb("get").resource("namespaces").name("label-unseen");
        looked_twice(&replica, "the namespace label-unseen", &fresh).await?;

        let conflict = status_writes("hold-unseen").when(|entry| entry.status == Some(409));
        replica.seen("the ttl ends, and the hold is in the way", 0, &conflict).await?;
        stage.phase("hold-unseen", "m", "Held").await?;

        // The kill switch.
        let settings = blind(&replica, Match::any().resource("coppiceconfigs"));
        paused(stage, true).await?;
        let mark = replica.proxy.trace().last();
        world.begin(["settings-unseen"]).await?;
        let read = Match::verb("get").resource("coppiceconfigs").when(move |entry| entry.seq > mark);
        looked_twice(&replica, "the settings", &read).await?;
        alive(&world)?;

        for name in names {
            calm(&replica, name)?;
        }

        // Sight comes back with the next change, and what was kept back is done when nothing is in the way any more.
        drop((hold, second, label, settings));
        paused(stage, false).await?;
        stage.kubectl(ADMIN, &["label", "namespace", "label-unseen", "coppice.dev/protected-"]).await?;
        stage.kubectl(ADMIN, &["delete", "pod", "second", "-n", "pod-unseen", "--wait=false"]).await?;
        patch(stage, "hold-unseen", r#"{"spec":{"hold":null}}"#).await?;
        world.done(names).await?;
        world.quiet().await?;
        world.verify_told_once(&replica.operator).await
    })
}

async fn paused(stage: &Stage, paused: bool) -> anyhow::Result<()> {
    let switch = format!(r#"{{"spec":{{"governor":{{"paused":{paused}}}}}}}"#);
    stage.patch("coppiceconfig", "", "coppice", &switch).await.map(drop)
}

/// The revision of now.
async fn revision(stage: &Stage) -> anyhow::Result<u64> {
    let list = stage.kubectl(ADMIN, &["get", "--raw", "/api/v1/namespaces?limit=1"]).await?;
    let list: Value = serde_json::from_str(&list)?;
    Ok(list["metadata"]["resourceVersion"].as_str().unwrap_or_default().parse()?)
}

#[test]
fn started_on_caches_of_the_past_it_does_nothing_that_is_not_true_now() -> Test {
    alone(async {
        let mut world = World::start().await?;
        let deletes = ["due", "held", "grown", "replaced", "withdrawn"];
        let mut works = deletes.map(|name| (name.to_owned(), Work::Delete)).to_vec();
        works.push(("changed".to_owned(), Work::Tell));
        world.prepare(&works).await?;
        world.begin(["due", "held", "replaced", "withdrawn", "changed"]).await?;
        let stage = &world.stage;
        pod(stage, "grown", "first", "succeed").await?;
        stage.manager("grown", "m", ALL_SUCCEED).await?;
        let revision = revision(stage).await?;

        pod(stage, "grown", "second", "run").await?;
        patch(stage, "held", HOLD).await?;
        patch(stage, "changed", r#"{"spec":{"suspend":true}}"#).await?;
        stage.kubectl(ADMIN, &["delete", "nsman", "m", "-n", "withdrawn"]).await?;
        stage.kubectl(ADMIN, &["delete", "namespace", "replaced"]).await?;
        let anew = stage.namespace("replaced").await?;

        let proxy = Proxy::start(&stage.plane, None).await?;
        let past = Fault::Stale(Stale { revision, watches: Watches::Stop });
        let past = proxy.add(Rule::new(caches(), past));
        let replica = Replica::spawn_by(stage, proxy, &LIVELY_LEASE).await?;
        replica.operator.ready(stage).await?;
        world.done(["due"]).await?;
        for (name, code) in [("held", 409), ("changed", 409), ("replaced", 404), ("withdrawn", 404)] {
            let answer = replica.answered(&format!("a write about {name}"), &status_writes(name)).await?;
            ensure!(answer == code, "the status of {name}: {answer}");
        }
        let fresh = Match::verb("list").resource("pods").namespace("grown");
        looked_twice(&replica, "the pods of grown", &fresh).await?;
        ensure!(stage.namespace_deletes()?.iter().all(|delete| delete.name == "due"));

        drop(past);
        stage.phase("held", "m", "Held").await?;
        stage.phase("changed", "m", "Suspended").await?;
        let unfinished = |m: &Value| m["status"]["policies"][0]["reason"] == "PodsNotFinished";
        stage.manager_until("grown", "m", "PodsNotFinished", unfinished).await?;
        world.quiet().await?;
        ensure!(world.receiver.received().is_empty(), "{:?}", world.receiver.received());
        ensure!(stage.namespace_deletes()?.iter().all(|delete| delete.name == "due"));
        ensure!(!stage.is_deleted("replaced", &anew).await);

        stage.kubectl(ADMIN, &["delete", "pod", "second", "-n", "grown", "--wait=false"]).await?;
        patch(stage, "held", r#"{"spec":{"hold":null}}"#).await?;
        patch(stage, "changed", r#"{"spec":{"suspend":false}}"#).await?;
        world.done(["due", "held", "grown", "changed"]).await?;
        world.quiet().await?;
        world.verify()
    })
}
