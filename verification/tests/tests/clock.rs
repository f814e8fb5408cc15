//! API servers whose clocks are wrong: nothing ends early by them, and what they said is dropped when it is right again.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::{Context as _, ensure};
use coppice_plane::proxy::{Date, FaultRule, Match, Proxy, ProxyFault, TraceEntry};
use coppice_tests::fault_injection::{FAST_LEASE, FaultTestbed, Replica, with_timeout};
use coppice_tests::{TestCluster, on_own_plane};
use jiff::{SignedDuration, Timestamp};
use serde_json::Value;

type Test = anyhow::Result<()>;

/// Looks until a clock that is right again has to be believed: about two seconds each.
const ROUNDS: usize = 60;
const HOUR: SignedDuration = SignedDuration::from_hours(1);
const SHORT: &str = "{policies: [{name: end, when: {ttl: {after: 1s}}, then: {delete: {}}}]}";

/// What keeps a namespace for half an hour, with a word for its name. `HELD` is half an hour from now.
const KEPT_NAMESPACES: [(&str, &str); 4] = [
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
struct KeptNamespaces(Vec<(String, String)>);

impl KeptNamespaces {
    async fn create(test_cluster: &TestCluster) -> anyhow::Result<Self> {
        #[allow(clippy::disallowed_methods, reason = "by the right clock, which is this machine's")]
        let until = format!("{:.0}", Timestamp::now() + SignedDuration::from_mins(30));
        let mut kept = Vec::new();
        for (word, spec) in KEPT_NAMESPACES {
            let name = format!("kept-by-{word}");
            let uid = test_cluster.namespace(&name).await?;
            test_cluster.manager(&name, "m", &spec.replace("HELD", &until)).await?;
            kept.push((name, uid));
        }
        Ok(Self(kept))
    }

    fn untouched(&self, test_cluster: &TestCluster) -> Test {
        let deletes = test_cluster.namespace_deletes()?;
        let touched = deletes.iter().find(|delete| self.0.iter().any(|(name, _)| delete.name == *name));
        ensure!(touched.is_none(), "too early: {touched:?}");
        Ok(())
    }

    /// Waits until each is judged by the right time again: what it says of the future is right. A clock that was wrong is not
    /// believed for a minute, so they are looked at again and again.
    async fn evaluates_correctly(&self, test_cluster: &TestCluster, replica: &Replica) -> Test {
        for round in 0..ROUNDS {
            let mut wrong = None;
            for (name, uid) in &self.0 {
                ensure!(!test_cluster.is_deleted(name, uid).await, "{name} was deleted");
                let namespace = test_cluster.get("namespace", "", name).await?.context("it is gone")?;
                // Another generation, so that there is something to wait for; what it asks for is the same.
                let again = format!(r#"{{"spec":{{"rearm":{}}}}}"#, 90 + round % 2);
                test_cluster.patch("nsman", name, "m", &again).await?;
                let manager = test_cluster.manager_until(name, "m", "another look", |_| true).await?;
                let status = &manager["status"];
                ensure!(status["intent"].is_null() && status["firings"] == 0, "{name}: {status:#}");
                if !half_an_hour(&namespace, status)? {
                    wrong = Some((name, status.clone()));
                }
            }
            let Some((name, status)) = wrong else { return self.untouched(test_cluster) };
            ensure!(round + 1 < ROUNDS, "{name} is not judged by the right time: {status:#}");
            renewals(replica, 2).await?;
        }
        Ok(())
    }
}

/// Whether a status says that a namespace is kept for half an hour, from its creation at the earliest and from now at the
/// latest: a machine may be slow.
fn half_an_hour(namespace: &Value, status: &Value) -> anyhow::Result<bool> {
    let created: Timestamp =
        namespace["metadata"]["creationTimestamp"].as_str().unwrap_or_default().parse()?;
    let next = &status["next"];
    let due = next["due"].as_str().and_then(|due| due.parse::<Timestamp>().ok());
    #[allow(clippy::disallowed_methods, reason = "by the right clock, which is this machine's")]
    let now = Timestamp::now();
    let expected = created + SignedDuration::from_mins(29)..=now + SignedDuration::from_mins(31);
    // A hold ends by itself; that is not when the deletion is due.
    let kept = next["reason"] == "Held" || due.is_some_and(|due| expected.contains(&due));
    Ok(kept && next["reason"] != "ClockSkew")
}

/// Waits until the operator has renewed its lease this often from now on, about once a second.
async fn renewals(replica: &Replica, times: usize) -> Test {
    let mark = replica.proxy.trace().last();
    let renewed = move |entries: &[TraceEntry]| {
        let writes = entries.iter().filter(|e| e.seq > mark && e.resource == "leases" && e.is_write());
        (writes.filter(|e| e.status == Some(200)).count() >= times).then_some(())
    };
    let waited = with_timeout("the lease is renewed", replica.proxy.trace().wait_until(renewed)).await;
    waited.with_context(|| replica.operator.last_lines())
}

/// A namespace whose time is over in a second is deleted: the operator acts, and by the right time.
async fn acts(test_cluster: &TestCluster, name: &str) -> Test {
    let uid = test_cluster.namespace(name).await?;
    test_cluster.manager(name, "m", SHORT).await?;
    test_cluster.deleted(name, &uid).await
}

/// Some answers have another date at first, and are right later: nothing that is kept is touched, and then all is evaluated
/// by the right time.
async fn wrong_at_first(
    wrong: FaultRule,
    meanwhile: impl AsyncFnOnce(&TestCluster, &KeptNamespaces, &Replica) -> Test,
) -> Test {
    let testbed = FaultTestbed::start_without_pods_at_once().await?;
    let test_cluster = &testbed.test_cluster;
    let kept = KeptNamespaces::create(test_cluster).await?;
    let proxy = Proxy::start(&test_cluster.plane, None).await?;
    let wrong = proxy.add(wrong);
    let replica = Replica::spawn_by(test_cluster, proxy, &FAST_LEASE).await?;
    replica.leads(test_cluster).await?;
    meanwhile(test_cluster, &kept, &replica).await?;
    drop(wrong);
    kept.evaluates_correctly(test_cluster, &replica).await?;
    acts(test_cluster, "marker").await?;
    kept.untouched(test_cluster)
}

/// The API server's clock differs by so much at first.
async fn clock_wrong_at_first(by: SignedDuration) -> Test {
    let wrong = FaultRule::new(Match::any(), ProxyFault::Date(Date::Shifted(by)));
    wrong_at_first(wrong, async |test_cluster, kept, replica| {
        renewals(replica, 6).await?;
        kept.untouched(test_cluster)
    })
    .await
}

#[test]
fn an_hour_ahead_for_the_first_seconds_ends_nothing_early() -> Test {
    on_own_plane(clock_wrong_at_first(HOUR))
}

#[test]
fn an_hour_behind_for_the_first_seconds_ends_nothing_early() -> Test {
    on_own_plane(clock_wrong_at_first(-HOUR))
}

#[test]
fn one_api_server_of_two_that_is_an_hour_ahead_ends_nothing_early() -> Test {
    let answers = Arc::new(AtomicU64::new(0));
    let second = move |_: &TraceEntry| answers.fetch_add(1, Ordering::Relaxed) % 2 == 1;
    let wrong = FaultRule::new(Match::any().when(second), ProxyFault::Date(Date::Shifted(HOUR)));
    on_own_plane(wrong_at_first(wrong, async |test_cluster, kept, replica| {
        for _ in 0..3 {
            // Looked at again and again, whichever answers came last.
            for (name, _) in &kept.0 {
                test_cluster.patch("nsman", name, "m", r#"{"spec":{"rearm":99}}"#).await?;
                test_cluster.patch("nsman", name, "m", r#"{"spec":{"rearm":98}}"#).await?;
            }
            renewals(replica, 3).await?;
            kept.untouched(test_cluster)?;
        }
        Ok(())
    }))
}

#[test]
fn answers_without_a_time_destroy_nothing_until_there_is_one() -> Test {
    on_own_plane(async {
        let testbed = FaultTestbed::start_without_pods().await?;
        let test_cluster = &testbed.test_cluster;
        let proxy = Proxy::start(&test_cluster.plane, None).await?;
        let missing = proxy.add(FaultRule::new(Match::any(), ProxyFault::Date(Date::Removed)));
        let replica = Replica::spawn_by(test_cluster, proxy, &FAST_LEASE).await?;
        replica.leads(test_cluster).await?;
        let uid = test_cluster.namespace("due").await?;
        test_cluster.manager("due", "m", SHORT).await?;
        let skew = |m: &Value| m["status"]["next"]["reason"] == "ClockSkew";
        test_cluster.manager_until("due", "m", "ClockSkew", skew).await?;
        renewals(&replica, 3).await?;
        ensure!(test_cluster.namespace_deletes()?.is_empty() && !test_cluster.is_deleted("due", &uid).await);
        drop(missing);
        // Nothing wakes the manager but the look at all of them each minute, which leaves a busy machine little of the time.
        if test_cluster.deleted("due", &uid).await.is_ok() {
            return Ok(());
        }
        test_cluster.deleted("due", &uid).await
    })
}
