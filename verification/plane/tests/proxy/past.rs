//! Views of the past.

use coppice_plane::{
    ALICE,
    proxy::{Active, FaultRule, Match, ProxyFault, Stale, TraceEntry, Watches},
};
use futures::{FutureExt as _, StreamExt as _};
use k8s_openapi::api::core::v1::{Namespace, Secret};
use kube::{
    Api,
    api::{DeleteParams, ListParams, Patch, PatchParams, PostParams, WatchEvent, WatchParams},
};

use super::support::{TestProxy, code, secret, with_timeout};

/// Remembers a revision, at which there are `a` and `b`, and goes on: `a` is changed, `b` is gone, `c` is new. The result
/// is that revision and the one of now.
async fn history(bench: &TestProxy) -> (u64, u64) {
    for name in ["a", "b"] {
        bench.direct.create(&PostParams::default(), &secret(name)).await.unwrap();
    }
    let revision = now(bench).await;
    let label = Patch::Merge(serde_json::json!({"metadata": {"labels": {"later": "yes"}}}));
    bench.direct.patch("a", &PatchParams::default(), &label).await.unwrap();
    bench.direct.delete("b", &DeleteParams::default()).await.unwrap();
    bench.direct.create(&PostParams::default(), &secret("c")).await.unwrap();
    (revision, now(bench).await)
}

/// Without bookmarks, which come when they like.
fn quiet() -> WatchParams {
    WatchParams::default().disable_bookmarks()
}

async fn now(bench: &TestProxy) -> u64 {
    let list = bench.direct.list(&ListParams::default()).await.unwrap();
    list.metadata.resource_version.unwrap().parse().unwrap()
}

fn stale(bench: &TestProxy, revision: u64, watches: Watches) -> Active {
    let secrets = Match::any().resource("secrets").namespace(&bench.namespace);
    bench.proxy.add(FaultRule::new(secrets, ProxyFault::Stale(Stale { revision, watches })))
}

fn names(list: &kube::core::ObjectList<Secret>) -> Vec<&str> {
    list.items.iter().map(|object| object.metadata.name.as_deref().unwrap()).collect()
}

#[tokio::test]
async fn reads_see_the_past_and_writes_do_not() {
    let bench = TestProxy::new("past").await;
    let (revision, _) = history(&bench).await;
    let rule = stale(&bench, revision, Watches::Stop);

    let list = bench.through.list(&ListParams::default()).await.unwrap();
    assert_eq!(names(&list), ["a", "b"]);
    assert_eq!(list.metadata.resource_version, Some(revision.to_string()));
    let a = bench.through.get("a").await.unwrap();
    assert_eq!(a.metadata.labels, None);
    let b = bench.through.get_metadata("b").await.unwrap();
    assert_eq!(b.types.unwrap().kind, "PartialObjectMetadata");
    assert_eq!(code(&bench.through.get("c").await.unwrap_err()), 404);

    // A write with what was read is refused, as the object has changed; one without is not.
    let version = serde_json::json!({"metadata": {"resourceVersion": a.metadata.resource_version}});
    let outdated =
        bench.through.patch("a", &PatchParams::default(), &Patch::Merge(version)).await.unwrap_err();
    assert_eq!(code(&outdated), 409);
    let made = bench.create("d").await.unwrap();
    assert_eq!(code(&bench.through.get("d").await.unwrap_err()), 404);

    drop(rule);
    assert_eq!(names(&bench.through.list(&ListParams::default()).await.unwrap()), ["a", "c", "d"]);
    assert_eq!(bench.through.get("d").await.unwrap().metadata.uid, made.metadata.uid);
    let entries = bench.proxy.trace().entries();
    let (past, live): (Vec<_>, Vec<_>) = entries.iter().partition(|entry| entry.faults == ["stale"]);
    assert!(past.len() == 5 && !past.iter().any(|entry| entry.is_write()), "{past:?}");
    assert!(live.iter().all(|entry| entry.faults.is_empty()), "{live:?}");
}

#[tokio::test]
async fn pages_of_the_past_are_of_one_revision() {
    let bench = TestProxy::new("past-pages").await;
    let (revision, _) = history(&bench).await;
    let _rule = stale(&bench, revision, Watches::Stop);
    let first = bench.through.list(&ListParams::default().limit(1)).await.unwrap();
    assert_eq!(names(&first), ["a"]);
    let next = ListParams::default().limit(1).continue_token(first.metadata.continue_.as_ref().unwrap());
    let second = bench.through.list(&next).await.unwrap();
    assert_eq!(names(&second), ["b"]);
    assert_eq!(second.metadata.resource_version, Some(revision.to_string()));
}

#[tokio::test]
async fn who_may_not_read_does_not_read_the_past() {
    let bench = TestProxy::new("past-rights").await;
    let (revision, _) = history(&bench).await;
    let _rule = stale(&bench, revision, Watches::Stop);
    let alice = Api::<Secret>::namespaced(bench.client(ALICE).await, &bench.namespace);
    assert_eq!(code(&alice.get("a").await.unwrap_err()), 403);
    assert_eq!(code(&alice.list(&ListParams::default()).await.unwrap_err()), 403);
}

#[tokio::test]
async fn a_namespace_has_a_past_too() {
    let bench = TestProxy::new("past-namespace").await;
    let revision = now(&bench).await;
    let client = bench.client(coppice_plane::ADMIN).await;
    let namespaces = Api::<Namespace>::all(client);
    let label = Patch::Merge(serde_json::json!({"metadata": {"labels": {"later": "yes"}}}));
    namespaces.patch(&bench.namespace, &PatchParams::default(), &label).await.unwrap();
    let of_it = Match::any().resource("namespaces").name(&bench.namespace);
    let fault = ProxyFault::Stale(Stale { revision, watches: Watches::Stop });
    let _rule = bench.proxy.add(FaultRule::new(of_it, fault));
    for past in [namespaces.get(&bench.namespace).await, namespaces.get_status(&bench.namespace).await] {
        let labels = past.unwrap().metadata.labels.unwrap();
        assert!(!labels.contains_key("later"), "{labels:?}");
    }
}

#[tokio::test]
async fn a_watch_of_the_past_stops_there_until_it_is_released() {
    let bench = TestProxy::new("past-watch").await;
    let (revision, later) = history(&bench).await;
    // One that was open before, and one that begins in the past.
    let mut open = bench.through.watch(&quiet(), &later.to_string()).await.unwrap().boxed();
    let rule = stale(&bench, revision, Watches::Stop);
    let mut events = bench.again().await.watch(&quiet(), &later.to_string()).await.unwrap().boxed();
    bench.create("d").await.unwrap();
    let held = |entries: &[TraceEntry]| {
        let held = entries.iter().filter(|e| e.event.is_some() && e.faults == ["stale"] && e.done.is_none());
        (held.count() == 2).then_some(())
    };
    with_timeout("events are held in both", bench.proxy.trace().wait_until(held)).await;
    assert!(open.next().now_or_never().is_none() && events.next().now_or_never().is_none());

    drop(rule);
    let Some(Ok(WatchEvent::Added(object))) = with_timeout("an event", open.next()).await else { panic!() };
    assert_eq!(object.metadata.name.as_deref(), Some("d"));
    assert_eq!(replay(&mut events).await, ["~a", "-b", "+c", "+d"]);
}

#[tokio::test]
async fn history_is_replayed() {
    let bench = TestProxy::new("replay").await;
    let (revision, later) = history(&bench).await;
    let _rule = stale(&bench, revision, Watches::Replay);
    let mut events = bench.through.watch(&quiet(), &later.to_string()).await.unwrap().boxed();
    bench.create("d").await.unwrap();
    assert_eq!(replay(&mut events).await, ["~a", "-b", "+c", "+d"]);
}

async fn replay(
    events: &mut (impl futures::Stream<Item = kube::Result<WatchEvent<Secret>>> + Unpin),
) -> [String; 4] {
    let mut seen = [const { String::new() }; 4];
    for place in &mut seen {
        let (sign, object) = match with_timeout("an event", events.next()).await {
            Some(Ok(WatchEvent::Added(object))) => ('+', object),
            Some(Ok(WatchEvent::Modified(object))) => ('~', object),
            Some(Ok(WatchEvent::Deleted(object))) => ('-', object),
            other => panic!("{other:?}"),
        };
        *place = format!("{sign}{}", object.metadata.name.unwrap());
    }
    seen
}
