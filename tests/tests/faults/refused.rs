//! An API server that refuses, forgets, or falls silent.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::{Context as _, ensure};
use coppice_plane::proxy::{Active, Answer, Break, Entry, Fault, Match, Proxy, Rule};
use coppice_tests::alone;
use coppice_tests::faulty::{
    LIVELY_LEASE, Replica, Work, World, cache_lists, cache_watches, caches, soon, status_writes,
};
use tokio::time::timeout;

use super::{Test, in_seconds};

/// Kinds that are watched.
const KINDS: usize = 5;

/// Every `every`-th request is answered by this, beginning with number `from`, and a few times in all: a step that is
/// refused again and again is tried ever more rarely. Events are left alone: to tell is an effort that is made once.
fn share(proxy: &Proxy, answer: Answer, every: u64, from: u64) -> Active {
    let requests = Arc::new(AtomicU64::new(0));
    let chosen = move |entry: &Entry| {
        entry.resource != "events" && requests.fetch_add(1, Ordering::Relaxed) % every == from
    };
    proxy.add(Rule::new(Match::any().when(chosen), Fault::Answer(answer)).times(3))
}

#[test]
fn under_expired_watches_and_errors_at_a_share_of_all_requests_everything_is_done_once() -> Test {
    alone(async {
        let mut world = World::start().await?;
        let replica = Replica::start(&world.stage).await?;
        let works = |prefix: &str| -> Vec<(String, Work)> {
            let deletes = (0..10).map(|n| (format!("{prefix}-{n}"), Work::Delete));
            let others = [Work::Sleep, Work::Tell].map(|work| (format!("{prefix}-{}", work.as_str()), work));
            deletes.chain(others).collect()
        };
        let names = |works: &[(String, Work)]| works.iter().map(|(name, _)| name.clone()).collect::<Vec<_>>();
        let (expired, refused) = (works("expired"), works("refused"));
        world.prepare(&expired).await?;
        world.prepare(&refused).await?;

        // Every watch expires at once: each kind is listed again, once.
        let trace = replica.proxy.trace();
        let mark = trace.last();
        let broken = replica.proxy.break_watches(&caches(), Break::Expire);
        ensure!(broken == KINDS, "{broken} watches were open");
        let opened = |entries: &[Entry]| {
            let open = |e: &&Entry| e.seq > mark && e.status == Some(200) && caches().selects(e);
            let verbs = |verb: &str| entries.iter().filter(open).filter(|e| e.verb == verb).count();
            (verbs("watch") >= KINDS).then(|| verbs("list"))
        };
        let lists = soon("the watches are open again", trace.wait_until(opened)).await?;
        ensure!(lists == KINDS, "{lists} lists for {KINDS} kinds");

        // No watch can be opened at all: lists are enough.
        let rule = replica.proxy.add(Rule::new(cache_watches(), Fault::Answer(Answer::expired())));
        replica.proxy.break_watches(&caches(), Break::Cut);
        world.begin(names(&expired).iter().map(String::as_str)).await?;
        world.done(names(&expired).iter().map(String::as_str)).await?;
        ensure!(rule.count() >= KINDS as u64, "{} watches were refused", rule.count());
        drop(rule);

        let answers = [
            Answer::too_many_requests(1),
            Answer::internal_error(),
            Answer::unavailable(),
            Answer::timeout(),
        ];
        let errors = (0..).zip(answers).map(|(n, answer)| share(&replica.proxy, answer, 40, n * 10));
        let errors: Vec<_> = errors.collect();
        world.begin(names(&refused).iter().map(String::as_str)).await?;
        world.done(names(&refused).iter().map(String::as_str)).await?;
        ensure!(errors.iter().all(|rule| rule.count() > 0), "{errors:?}");
        drop(errors);
        world.quiet().await?;
        world.verify_told_once(&replica.operator).await
    })
}

#[test]
fn as_long_as_the_first_lists_are_not_complete_nothing_is_done() -> Test {
    alone(async {
        let mut world = World::start().await?;
        let names = ["first", "second"];
        world.prepare(&names.map(|name| (name.to_owned(), Work::Delete))).await?;
        world.begin(names).await?;
        world.stage.namespace("many").await?;
        // More than a page (500, `PAGE` in `runtime/src/read.rs`), so that there are lists that can be cut in the middle.
        let managers = (0..510).map(|n| {
            format!(
                "---\n{{apiVersion: coppice.dev/v1alpha1, kind: NamespaceManager, metadata: {{name: m-{n}, namespace: many}}, \
                 spec: {{policies: [{{name: p, when: {{ttl: {{until: '2099-01-01T00:00:00Z'}}}}, then: {{delete: {{}}}}}}]}}}}\n"
            )
        });
        let managers: String = managers.collect();
        world.stage.create_all(&managers).await?;

        let proxy = Proxy::start(&world.stage.plane, None).await?;
        let expired =
            proxy.add(Rule::new(Match::continued_lists(), Fault::Answer(Answer::expired())).times(2));
        let lost = cache_lists().resource("namespaces");
        let lost = proxy.add(Rule::new(lost, Fault::LoseAnswer).once());
        let pods = cache_lists().resource("pods");
        let pods = proxy.add(Rule::new(pods, Fault::HoldRequest).once());
        let replica = Replica::spawn_by(&world.stage, proxy, &LIVELY_LEASE).await?;
        replica.leads(&world.stage).await?;
        soon("the list of pods is held", pods.held(1)).await?;
        soon("a list was cut in its middle, twice", expired.applied(2)).await?;
        soon("the answer of a list was lost", lost.applied(1)).await?;
        let complete = Match::continued_lists().when(|entry| entry.status == Some(200));
        replica.seen("the list is complete in the end", 0, &complete).await?;
        let ready = replica.operator.http("/readyz").await.map_err(|error| error.to_string());
        ensure!(ready.as_ref().is_err_and(|why| why.contains("watch: pods")), "{ready:?}");
        // Whatever it does without the pods is in the audit log when it has renewed its lease again and again.
        world.quiet().await?;
        let wrote = replica.count(0, &Match::writes().resource("namespacemanagers"));
        ensure!(wrote == 0 && world.stage.namespace_deletes()?.is_empty(), "{wrote} writes of status");

        pods.discard();
        world.done(names).await?;
        replica.operator.ready(&world.stage).await?;
        world.quiet().await?;
        world.verify_told_once(&replica.operator).await
    })
}

#[test]
fn a_silence_of_90_seconds_stops_deletions_until_something_is_heard_again() -> Test {
    /// The silence, and what a busy machine needs beside it.
    const LONG: Duration = Duration::from_mins(4);
    alone(async {
        let mut world = World::start_at_once().await?;
        let replica = Replica::start(&world.stage).await?;
        world.prepare(&[("due".to_owned(), Work::Delete)]).await?;
        let spec = format!(
            "{{policies: [{{name: p, when: {{ttl: {{until: '{}'}}}}, then: {{delete: {{}}}}}}]}}",
            in_seconds(110)
        );
        world.stage.manager("due", "m", &spec).await?;
        world.stage.phase("due", "m", "Active").await?;

        // Connections stay open, and nothing comes; after a minute the operator lists, and that hangs, too.
        let mark = replica.proxy.trace().last();
        let silence = replica.proxy.add(Rule::new(caches(), Fault::HoldRequest));
        let silenced = replica.proxy.break_watches(&caches(), Break::Silence);
        ensure!(silenced == KINDS, "{silenced} watches were open");
        let wanted = move |entry: &Entry| entry.seq > mark && entry.status.is_some();
        let written = replica.proxy.trace().wait_for(|e| wanted(e) && status_writes("due").selects(e));
        timeout(LONG, written).await.context("the ttl never ended")?;
        let manager =
            world.stage.manager_until("due", "m", "Stale", |m| m["status"]["next"]["reason"] == "Stale");
        manager.await.with_context(|| replica.operator.last_lines())?;
        ensure!(silence.count() >= KINDS as u64, "{} lists hung", silence.count());
        world.quiet().await?;
        ensure!(world.stage.namespace_deletes()?.is_empty());

        drop(silence);
        world.done(["due"]).await?;
        world.quiet().await?;
        world.verify_told_once(&replica.operator).await
    })
}
