//! API servers whose clocks are wrong: nothing ends early by them, and what they said is forgotten when it is right again.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::{Context as _, ensure};
use coppice_plane::proxy::{Date, Entry, Fault, Match, Proxy, Rule};
use coppice_tests::faulty::{LIVELY_LEASE, Replica, World, soon};
use coppice_tests::{Stage, alone};
use jiff::{SignedDuration, Timestamp};
use serde_json::Value;

type Test = anyhow::Result<()>;

/// Looks until a clock that is right again has to be believed: about two seconds each.
const ROUNDS: usize = 60;
const HOUR: SignedDuration = SignedDuration::from_hours(1);
const SHORT: &str = "{policies: [{name: end, when: {ttl: {after: 1s}}, then: {delete: {}}}]}";

/// What keeps a namespace for half an hour, with a word for its name. `HELD` is half an hour from now.
const KEPT: [(&str, &str); 4] = [
    ("ttl", "{policies: [{name: end, when: {ttl: {after: 30m}}, then: {delete: {}}}]}"),
    (
        "hold",
        "{hold: {until: 'HELD'}, policies: [{name: end, when: {ttl: {after: 1s}}, then: {delete: {}}}]}",
    ),
    (
        "extend",
        "{extendUntil: 'HELD', policies: [{name: end, when: {ttl: {after: 1s}}, then: {delete: {}}}]}",
    ),
    ("notice", "{policies: [{name: end, when: {ttl: {after: 1s}}, then: {delete: {notice: 30m}}}]}"),
];

/// Namespaces that something keeps for half an hour, with their uids.
struct Kept(Vec<(String, String)>);

impl Kept {
    async fn create(stage: &Stage) -> anyhow::Result<Self> {
        #[allow(clippy::disallowed_methods, reason = "by the right clock, which is this machine's")]
        let until = format!("{:.0}", Timestamp::now() + SignedDuration::from_mins(30));
        let mut kept = Vec::new();
        for (word, spec) in KEPT {
            let name = format!("kept-by-{word}");
            let uid = stage.namespace(&name).await?;
            stage.manager(&name, "m", &spec.replace("HELD", &until)).await?;
            kept.push((name, uid));
        }
        Ok(Self(kept))
    }

    fn untouched(&self, stage: &Stage) -> Test {
        let deletes = stage.namespace_deletes()?;
        let touched = deletes.iter().find(|delete| self.0.iter().any(|(name, _)| delete.name == *name));
        ensure!(touched.is_none(), "too early: {touched:?}");
        Ok(())
    }

    /// Waits until each is judged by the right time again: what it says of the future is right. A clock that was wrong is not
    /// believed for a minute, so they are looked at again and again.
    async fn judged_rightly(&self, stage: &Stage, replica: &Replica) -> Test {
        for round in 0..ROUNDS {
            let mut wrong = None;
            for (name, uid) in &self.0 {
                ensure!(!stage.is_deleted(name, uid).await, "{name} was deleted");
                let namespace = stage.get("namespace", "", name).await?.context("it is gone")?;
                // Another generation, so that there is something to wait for; what it asks for is the same.
                let again = format!(r#"{{"spec":{{"rearm":{}}}}}"#, 90 + round % 2);
                stage.patch("nsman", name, "m", &again).await?;
                let manager = stage.manager_until(name, "m", "another look", |_| true).await?;
                let status = &manager["status"];
                ensure!(status["intent"].is_null() && status["firings"] == 0, "{name}: {status:#}");
                if !half_an_hour(&namespace, status)? {
                    wrong = Some((name, status.clone()));
                }
            }
            let Some((name, status)) = wrong else { return self.untouched(stage) };
            ensure!(round + 1 < ROUNDS, "{name} is not judged by the right time: {status:#}");
            renewals(replica, 2).await?;
        }
        Ok(())
    }
}

/// Whether a status says that a namespace is kept for half an hour from its creation.
fn half_an_hour(namespace: &Value, status: &Value) -> anyhow::Result<bool> {
    let created: Timestamp =
        namespace["metadata"]["creationTimestamp"].as_str().unwrap_or_default().parse()?;
    let next = &status["next"];
    let due = next["due"].as_str().and_then(|due| due.parse::<Timestamp>().ok());
    let minutes = due.map(|due| due.duration_since(created).as_mins());
    // A hold ends by itself; that is not when the deletion is due.
    let kept = next["reason"] == "Held" || minutes.is_some_and(|minutes| (29..=33).contains(&minutes));
    Ok(kept && next["reason"] != "ClockSkew")
}

/// Waits until the operator has renewed its lease this often from now on, about once a second.
async fn renewals(replica: &Replica, times: usize) -> Test {
    let mark = replica.proxy.trace().last();
    let renewed = move |entries: &[Entry]| {
        let writes = entries.iter().filter(|e| e.seq > mark && e.resource == "leases" && e.is_write());
        (writes.filter(|e| e.status == Some(200)).count() >= times).then_some(())
    };
    let waited = soon("the lease is renewed", replica.proxy.trace().wait_until(renewed)).await;
    waited.with_context(|| replica.operator.last_lines())
}

/// A namespace whose time is over in a second is deleted: the operator acts, and by the right time.
async fn acts(stage: &Stage, name: &str) -> Test {
    let uid = stage.namespace(name).await?;
    stage.manager(name, "m", SHORT).await?;
    stage.deleted(name, &uid).await
}

/// The API server's clock differs by so much at first, and is right later.
async fn wrong_at_first(by: SignedDuration) -> Test {
    let world = World::start_at_once().await?;
    let kept = Kept::create(&world.stage).await?;
    let proxy = Proxy::start(&world.stage.plane, None).await?;
    let wrong = proxy.add(Rule::new(Match::any(), Fault::Date(Date::Shifted(by))));
    let replica = Replica::spawn_by(&world.stage, proxy, &LIVELY_LEASE).await?;
    replica.leads(&world.stage).await?;
    renewals(&replica, 6).await?;
    kept.untouched(&world.stage)?;
    drop(wrong);
    kept.judged_rightly(&world.stage, &replica).await?;
    acts(&world.stage, "marker").await?;
    kept.untouched(&world.stage)
}

#[test]
fn an_hour_ahead_for_the_first_seconds_ends_nothing_early() -> Test {
    alone(wrong_at_first(HOUR))
}

#[test]
fn an_hour_behind_for_the_first_seconds_ends_nothing_early() -> Test {
    alone(wrong_at_first(-HOUR))
}

#[test]
fn one_api_server_of_two_that_is_an_hour_ahead_ends_nothing_early() -> Test {
    alone(async {
        let world = World::start_at_once().await?;
        let kept = Kept::create(&world.stage).await?;
        let proxy = Proxy::start(&world.stage.plane, None).await?;
        let answers = Arc::new(AtomicU64::new(0));
        let second = move |_: &Entry| answers.fetch_add(1, Ordering::Relaxed) % 2 == 1;
        let wrong = proxy.add(Rule::new(Match::any().when(second), Fault::Date(Date::Shifted(HOUR))));
        let replica = Replica::spawn_by(&world.stage, proxy, &LIVELY_LEASE).await?;
        replica.leads(&world.stage).await?;
        for _ in 0..3 {
            // Looked at again and again, whichever answers came last.
            for (name, _) in &kept.0 {
                world.stage.patch("nsman", name, "m", r#"{"spec":{"rearm":99}}"#).await?;
                world.stage.patch("nsman", name, "m", r#"{"spec":{"rearm":98}}"#).await?;
            }
            renewals(&replica, 3).await?;
            kept.untouched(&world.stage)?;
        }
        drop(wrong);
        kept.judged_rightly(&world.stage, &replica).await?;
        acts(&world.stage, "marker").await?;
        kept.untouched(&world.stage)
    })
}

#[test]
fn answers_without_a_time_destroy_nothing_until_there_is_one() -> Test {
    alone(async {
        let world = World::start().await?;
        let stage = &world.stage;
        let proxy = Proxy::start(&stage.plane, None).await?;
        let missing = proxy.add(Rule::new(Match::any(), Fault::Date(Date::Removed)));
        let replica = Replica::spawn_by(stage, proxy, &LIVELY_LEASE).await?;
        replica.leads(stage).await?;
        let uid = stage.namespace("due").await?;
        stage.manager("due", "m", SHORT).await?;
        let skew = |m: &Value| m["status"]["next"]["reason"] == "ClockSkew";
        stage.manager_until("due", "m", "ClockSkew", skew).await?;
        renewals(&replica, 3).await?;
        ensure!(stage.namespace_deletes()?.is_empty() && !stage.is_deleted("due", &uid).await);
        drop(missing);
        stage.deleted("due", &uid).await
    })
}
