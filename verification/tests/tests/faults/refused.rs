//! An API server that refuses, forgets, or falls silent.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::{Context as _, ensure};
use coppice_plane::proxy::{Active, Break, FakeResponse, FaultRule, Match, Proxy, ProxyFault, TraceEntry};
use coppice_tests::fault_injection::{
    FAST_LEASE, FaultTestbed, Replica, Work, cache_lists, cache_watches, caches, status_writes, with_timeout,
};
use coppice_tests::on_own_plane;
use tokio::time::timeout;

use super::{Test, in_seconds};

/// Kinds that are watched: `NamespaceManager`, `ClusterNamespaceManager`, `ManagedNamespace`, `DeletedNamespace`, `CoppiceConfig`,
/// namespaces, pods and Jobs.
const KINDS: usize = 8;

/// Every `every`-th request is answered by this, beginning with number `from`, and a few times in all: a step that is
/// refused again and again is tried ever more rarely. Events are left alone: to tell is an effort that is made once.
fn share(proxy: &Proxy, answer: FakeResponse, every: u64, from: u64) -> Active {
    let requests = Arc::new(AtomicU64::new(0));
    let chosen = move |entry: &TraceEntry| {
        entry.resource != "events" && requests.fetch_add(1, Ordering::Relaxed) % every == from
    };
    proxy.add(FaultRule::new(Match::any().when(chosen), ProxyFault::FakeResponse(answer)).times(3))
}

/// What an operator has asked last: whether it runs, and what it waits for.
fn last_requests(replica: &Replica) -> Vec<String> {
    let entries = replica.proxy.trace().entries();
    let last = entries.iter().rev().take(20).rev();
    last.map(|entry| format!("{} {} {:?}", entry.verb, entry.resource, entry.status)).collect()
}

/// Waits until the watch of every kind is open: the API server ends each now and then, and it is opened again.
async fn all_watched(replica: &Replica) -> Test {
    let watches = cache_watches();
    let all = |entries: &[TraceEntry]| {
        let asked = entries.iter().filter(|entry| watches.selects(entry));
        let last: BTreeMap<&str, &TraceEntry> = asked.map(|entry| (entry.resource.as_str(), entry)).collect();
        let open = last.values().filter(|entry| entry.status == Some(200) && entry.done.is_none());
        (open.count() == KINDS).then_some(())
    };
    let in_time = with_timeout("every kind is watched", replica.proxy.trace().wait_until(all)).await;
    in_time.with_context(|| format!("the last requests are {:#?}", last_requests(replica)))
}

#[test]
fn under_expired_watches_and_errors_at_a_share_of_all_requests_everything_is_done_once() -> Test {
    on_own_plane(async {
        let mut testbed = FaultTestbed::start_without_pods().await?;
        let replica = Replica::start(&testbed.test_cluster).await?;
        let works = |prefix: &str| -> Vec<(String, Work)> {
            let deletes = (0..10).map(|n| (format!("{prefix}-{n}"), Work::Delete));
            let others =
                [Work::ScaleDown, Work::Notify].map(|work| (format!("{prefix}-{}", work.as_str()), work));
            deletes.chain(others).collect()
        };
        let names = |works: &[(String, Work)]| works.iter().map(|(name, _)| name.clone()).collect::<Vec<_>>();
        let (expired, refused) = (works("expired"), works("refused"));
        testbed.prepare(&expired).await?;
        testbed.prepare(&refused).await?;

        // Every watch expires at once: each kind is listed again, once.
        let trace = replica.proxy.trace();
        all_watched(&replica).await?;
        let mark = trace.last();
        let broken = replica.proxy.break_watches(&caches(), Break::Expire);
        ensure!(broken + 1 >= KINDS, "{broken} watches were open");
        let opened = |entries: &[TraceEntry]| {
            let open = |e: &&TraceEntry| e.seq > mark && e.status == Some(200) && caches().selects(e);
            let verbs = |verb: &str| entries.iter().filter(open).filter(|e| e.verb == verb).count();
            (verbs("watch") >= KINDS).then(|| verbs("list"))
        };
        let lists = with_timeout("the watches are open again", trace.wait_until(opened)).await?;
        ensure!((broken..=KINDS + 1).contains(&lists), "{lists} lists for {broken} watches");

        // No watch can be opened at all: lists are enough.
        let rule = replica
            .proxy
            .add(FaultRule::new(cache_watches(), ProxyFault::FakeResponse(FakeResponse::expired())));
        replica.proxy.break_watches(&caches(), Break::Cut);
        testbed.begin(names(&expired).iter().map(String::as_str)).await?;
        testbed.done(names(&expired).iter().map(String::as_str)).await?;
        ensure!(rule.count() >= KINDS as u64, "{} watches were refused", rule.count());
        drop(rule);

        let answers = [
            FakeResponse::too_many_requests(1),
            FakeResponse::internal_error(),
            FakeResponse::unavailable(),
            FakeResponse::timeout(),
        ];
        let errors = (0..).zip(answers).map(|(n, answer)| share(&replica.proxy, answer, 40, n * 10));
        let errors: Vec<_> = errors.collect();
        testbed.begin(names(&refused).iter().map(String::as_str)).await?;
        testbed.done(names(&refused).iter().map(String::as_str)).await?;
        ensure!(errors.iter().all(|rule| rule.count() > 0), "{errors:?}");
        drop(errors);
        testbed.quiet().await?;
        testbed.verify_reported_once(&replica.operator).await
    })
}

#[test]
fn as_long_as_the_first_lists_are_not_complete_nothing_is_done() -> Test {
    on_own_plane(async {
        let mut testbed = FaultTestbed::start_without_pods().await?;
        let names = ["first", "second"];
        testbed.prepare(&names.map(|name| (name.to_owned(), Work::Delete))).await?;
        testbed.begin(names).await?;
        testbed.test_cluster.namespace("many").await?;
        // More than a page (500, `PAGE` in `runtime/src/read.rs`), so that there are lists that can be cut in the middle.
        let managers = (0..510).map(|n| {
            format!(
                "---\n{{apiVersion: coppice.dev/v1alpha1, kind: NamespaceManager, metadata: {{name: m-{n}, namespace: many}}, \
                 spec: {{policies: [{{name: p, when: {{ttl: {{until: '2099-01-01T00:00:00Z'}}}}, then: {{delete: {{}}}}}}]}}}}\n"
            )
        });
        let managers: String = managers.collect();
        testbed.test_cluster.create_all(&managers).await?;

        let proxy = Proxy::start(&testbed.test_cluster.plane, None).await?;
        let expired = proxy.add(
            FaultRule::new(Match::continued_lists(), ProxyFault::FakeResponse(FakeResponse::expired()))
                .times(2),
        );
        let lost = cache_lists().resource("namespaces");
        let lost = proxy.add(FaultRule::new(lost, ProxyFault::LoseResponse).once());
        // The operator gives a held list up after a while. Without this one it waits nevertheless, however often it asks.
        let settings = cache_lists().resource("coppiceconfigs");
        let settings = proxy.add(FaultRule::new(settings, ProxyFault::HoldRequest));
        let replica = Replica::spawn_by(&testbed.test_cluster, proxy, &FAST_LEASE).await?;
        replica.leads(&testbed.test_cluster).await?;
        with_timeout("the list of settings is held", settings.held(1)).await?;
        with_timeout("a list was cut in its middle, twice", expired.applied(2)).await?;
        with_timeout("the answer of a list was lost", lost.applied(1)).await?;
        let complete = Match::continued_lists().when(|entry| entry.status == Some(200));
        replica.seen("the list is complete in the end", 0, &complete).await?;
        let ready = replica.operator.http("/readyz").await.map_err(|error| error.to_string());
        ensure!(ready.as_ref().is_err_and(|why| why.contains("watch: coppiceconfigs")), "{ready:?}");
        // Whatever it does without the settings is in the audit log when it has renewed its lease again and again.
        testbed.quiet().await?;
        let wrote = replica.count(0, &Match::writes().resource("namespacemanagers"));
        ensure!(
            wrote == 0 && testbed.test_cluster.namespace_deletes()?.is_empty(),
            "{wrote} writes of status"
        );

        drop(settings);
        testbed.done(names).await?;
        replica.operator.ready(&testbed.test_cluster).await?;
        testbed.quiet().await?;
        testbed.verify_reported_once(&replica.operator).await
    })
}

#[test]
fn a_silence_of_90_seconds_stops_deletions_until_an_event_arrives() -> Test {
    /// The silence, and what a busy machine needs beside it.
    const LONG: Duration = Duration::from_mins(6);
    on_own_plane(async {
        let mut testbed = FaultTestbed::start_without_pods_at_once().await?;
        let replica = Replica::start(&testbed.test_cluster).await?;
        testbed.prepare(&[("due".to_owned(), Work::Delete)]).await?;
        // So late that 90 seconds of silence are over by then, also where it takes a while until they begin.
        let spec = format!(
            "{{policies: [{{name: p, when: {{ttl: {{until: '{}'}}}}, then: {{delete: {{}}}}}}]}}",
            in_seconds(200)
        );
        testbed.test_cluster.manager("due", "m", &spec).await?;
        testbed.test_cluster.phase("due", "m", "Active").await?;

        // Connections stay open, and nothing comes; after a minute the operator lists, and that hangs, too.
        all_watched(&replica).await?;
        let mark = replica.proxy.trace().last();
        let silence = replica.proxy.add(FaultRule::new(caches(), ProxyFault::HoldRequest));
        // One that has just ended by itself cannot be opened again.
        replica.proxy.break_watches(&caches(), Break::Silence);
        let wanted = move |entry: &TraceEntry| entry.seq > mark && entry.status.is_some();
        let written = replica.proxy.trace().wait_for(|e| wanted(e) && status_writes("due").selects(e));
        timeout(LONG, written).await.context("the ttl never ended")?;
        let manager = testbed.test_cluster.manager_until("due", "m", "that no update is received", |m| {
            // Whichever cache has been silent for so long first: that of the managers, or of those that limit them.
            m["status"]["next"]["message"].to_string().contains("has been received for 90 seconds")
        });
        manager.await.with_context(|| replica.operator.last_lines())?;
        ensure!(silence.count() >= KINDS as u64, "{} lists hung", silence.count());
        testbed.quiet().await?;
        ensure!(testbed.test_cluster.namespace_deletes()?.is_empty());

        drop(silence);
        testbed.done(["due"]).await?;
        testbed.quiet().await?;
        testbed.verify_reported_once(&replica.operator).await
    })
}

#[test]
fn a_namespace_whose_deletion_cannot_be_recorded_stays_and_its_manager_says_why() -> Test {
    on_own_plane(async {
        let mut testbed = FaultTestbed::start_without_pods().await?;
        let replica = Replica::start(&testbed.test_cluster).await?;
        let records = Match::verb("create").resource("deletednamespaces");
        let answers = [
            ("refused", FakeResponse::forbidden()),
            ("unknown", FakeResponse::status(404, "NotFound", "injected: not found")),
        ];
        testbed.prepare(&[("unrecorded".to_owned(), Work::Delete)]).await?;
        let mut begun = false;
        for (what, answer) in answers {
            let rule = replica.proxy.add(FaultRule::new(records.clone(), ProxyFault::FakeResponse(answer)));
            if !begun {
                testbed.begin(["unrecorded"]).await?;
                begun = true;
            }
            let says = if what == "unknown" { "apply the CRDs" } else { "(403)" };
            let error = |m: &serde_json::Value| m["status"]["intent"]["lastError"].to_string();
            let manager = testbed
                .test_cluster
                .manager_until("unrecorded", "m", what, |m| error(m).contains(says))
                .await?;
            ensure!(error(&manager).contains("not deleted: its record, DeletedNamespace/"), "{manager:#}");
            ensure!(rule.count() > 0);
        }
        ensure!(testbed.test_cluster.namespace_deletes()?.is_empty(), "it was deleted without a record");
        testbed.done(["unrecorded"]).await?;
        testbed.quiet().await?;
        testbed.verify_reported_once(&replica.operator).await
    })
}
