//! Faults of watches and their events.

use std::time::Duration;

use coppice_plane::proxy::{Break, FaultRule, Match, ProxyFault, TraceEntry};
use futures::{FutureExt as _, Stream, StreamExt as _, stream::BoxStream};
use k8s_openapi::api::core::v1::Secret;
use kube::{
    Api,
    api::{DeleteParams, ListParams, PostParams, WatchEvent, WatchParams},
};

use super::support::{TestProxy, secret, with_timeout};

type Events = BoxStream<'static, kube::Result<WatchEvent<Secret>>>;

/// An open watch, without bookmarks, which come when they like.
async fn watch(api: &Api<Secret>) -> Events {
    let list = api.list(&ListParams::default()).await.unwrap();
    api.watch(&WatchParams::default().disable_bookmarks(), &list.metadata.resource_version.unwrap())
        .await
        .unwrap()
        .boxed()
}

/// Makes objects past the proxy.
async fn make<const N: usize>(bench: &TestProxy, names: [&str; N]) {
    for name in names {
        bench.direct.create(&PostParams::default(), &secret(name)).await.unwrap();
    }
}

/// Kind and name of the next event.
async fn next(events: &mut (impl Stream<Item = kube::Result<WatchEvent<Secret>>> + Unpin)) -> String {
    let name = |object: Secret| object.metadata.name.unwrap();
    match with_timeout("an event", events.next()).await {
        Some(Ok(WatchEvent::Added(object))) => format!("+{}", name(object)),
        Some(Ok(WatchEvent::Modified(object))) => format!("~{}", name(object)),
        Some(Ok(WatchEvent::Deleted(object))) => format!("-{}", name(object)),
        Some(Ok(WatchEvent::Error(status))) => format!("!{}", status.code),
        Some(Ok(WatchEvent::Bookmark(_))) => panic!("an unwanted bookmark"),
        Some(Err(_)) => "cut".to_owned(),
        None => "end".to_owned(),
    }
}

async fn take<const N: usize>(events: &mut Events) -> [String; N] {
    let mut taken = [const { String::new() }; N];
    for place in &mut taken {
        *place = next(events).await;
    }
    taken
}

fn of(bench: &TestProxy) -> Match {
    Match::any().resource("secrets").namespace(&bench.namespace)
}

#[tokio::test]
async fn events_are_left_out_by_name_number_and_kind() {
    let bench = TestProxy::new("dropped").await;
    let mut events = watch(&bench.through).await;
    let by_name = bench.proxy.add(FaultRule::new(of(&bench).name("b"), ProxyFault::DropEvent));
    make(&bench, ["a", "b", "c"]).await;
    assert_eq!(take(&mut events).await, ["+a", "+c"]);
    assert_eq!(by_name.count(), 1);
    drop(by_name);

    let by_number = bench.proxy.add(FaultRule::new(of(&bench), ProxyFault::DropEvent).from(2).times(2));
    make(&bench, ["d", "e", "f", "g"]).await;
    assert_eq!(take(&mut events).await, ["+d", "+g"]);
    drop(by_number);

    let by_kind = bench.proxy.add(FaultRule::new(of(&bench).event("DELETED"), ProxyFault::DropEvent));
    bench.direct.delete("a", &DeleteParams::default()).await.unwrap();
    make(&bench, ["a"]).await;
    assert_eq!(next(&mut events).await, "+a");
    drop(by_kind);
    bench.direct.delete("a", &DeleteParams::default()).await.unwrap();
    assert_eq!(next(&mut events).await, "-a");

    let entries = bench.proxy.trace().entries();
    let left_out = entries.iter().filter(|entry| entry.faults == ["drop-event"] && entry.done.is_none());
    let left_out: Vec<_> = left_out.map(|entry| entry.name.as_str()).collect();
    assert_eq!(left_out, ["b", "e", "f", "a"]);
}

#[tokio::test]
async fn held_events_hold_up_those_behind_them() {
    let bench = TestProxy::new("held-events").await;
    let mut events = watch(&bench.through).await;
    let rule = bench.proxy.add(FaultRule::new(of(&bench).name("b"), ProxyFault::HoldEvent));
    make(&bench, ["a", "b", "c"]).await;
    assert_eq!(next(&mut events).await, "+a");
    with_timeout("an event is held", rule.held(1)).await;
    assert!(events.next().now_or_never().is_none());
    rule.release();
    assert_eq!(take(&mut events).await, ["+b", "+c"]);

    bench.direct.delete("b", &DeleteParams::default()).await.unwrap();
    with_timeout("an event is held", rule.held(2)).await;
    rule.discard();
    make(&bench, ["d"]).await;
    assert_eq!(next(&mut events).await, "+d");

    make(&bench, ["b"]).await;
    with_timeout("an event is held", rule.held(3)).await;
    drop(rule);
    assert_eq!(next(&mut events).await, "+b");
}

#[tokio::test]
async fn a_delayed_event_takes_its_time() {
    let bench = TestProxy::new("delayed-events").await;
    let mut events = watch(&bench.through).await;
    let delay = Duration::from_millis(200);
    let _rule = bench.proxy.add(FaultRule::new(of(&bench), ProxyFault::DelayEvent(delay)).once());
    make(&bench, ["a", "b"]).await;
    assert_eq!(take(&mut events).await, ["+a", "+b"]);
    let passed = |entry: &TraceEntry| entry.faults == ["delay-event"] && entry.done.is_some();
    let entry = with_timeout("the event is passed on", bench.proxy.trace().wait_for(passed)).await;
    assert!(entry.took().unwrap() >= delay, "{entry:?}");
}

#[tokio::test]
async fn watches_end_are_cut_and_expire() {
    let bench = TestProxy::new("broken").await;
    for (how, seen) in [(Break::End, "end"), (Break::Cut, "cut"), (Break::Expire, "!410")] {
        // At once.
        let mut events = watch(&bench.through).await;
        let watches = Match::verb("watch").namespace(&bench.namespace);
        bench.opened(1).await;
        assert_eq!(bench.proxy.break_watches(&watches, how), 1);
        assert_eq!(next(&mut events).await, seen);

        // In place of an event.
        let mut events = watch(&bench.through).await;
        let rule = bench.proxy.add(FaultRule::new(of(&bench).name("b"), ProxyFault::Break(how)));
        make(&bench, ["a", "b", "c"]).await;
        assert_eq!(take(&mut events).await, ["+a", seen]);
        drop(rule);
        if how == Break::Expire {
            assert_eq!(next(&mut events).await, "end");
        }

        // The next one is whole.
        let mut events = watch(&bench.through).await;
        for name in ["a", "b", "c"] {
            bench.direct.delete(name, &DeleteParams::default()).await.unwrap();
        }
        assert_eq!(take(&mut events).await, ["-a", "-b", "-c"]);
        drop(events);
        bench.opened(0).await;
    }
}

#[tokio::test]
async fn a_silent_watch_stays_open_beside_others() {
    let bench = TestProxy::new("silent").await;
    let other = bench.again().await;
    let (mut silent, mut lively) = (watch(&bench.through).await, watch(&other).await);
    let first = bench.proxy.trace().wait_for(|entry| entry.verb == "watch").await.seq;
    let in_first = move |entry: &TraceEntry| entry.event.as_ref().is_some_and(|event| event.watch == first);
    let rule = FaultRule::new(of(&bench).when(in_first), ProxyFault::Break(Break::Silence));
    let rule = bench.proxy.add(rule);
    make(&bench, ["a"]).await;
    assert_eq!(next(&mut lively).await, "+a");
    with_timeout("the watch is silenced", rule.applied(1)).await;
    drop(rule);
    make(&bench, ["b"]).await;
    assert_eq!(next(&mut lively).await, "+b");
    assert!(silent.next().now_or_never().is_none());
    assert_eq!(bench.proxy.trace().entries()[usize::try_from(first).unwrap() - 1].done, None);
}

#[tokio::test]
async fn a_frozen_proxy_passes_events_on_when_healed_and_a_cut_one_breaks_watches() {
    let bench = TestProxy::new("frozen-events").await;
    let mut events = watch(&bench.through).await;
    bench.proxy.freeze();
    make(&bench, ["a"]).await;
    let came = |entry: &TraceEntry| entry.event.is_some();
    let entry = with_timeout("the event is there", bench.proxy.trace().wait_for(came)).await;
    assert!(entry.done.is_none() && events.next().now_or_never().is_none());
    bench.proxy.heal();
    assert_eq!(next(&mut events).await, "+a");

    bench.proxy.cut_connections();
    assert_eq!(next(&mut events).await, "cut");
    let mut events = watch(&bench.through).await;
    bench.proxy.cut();
    assert_eq!(next(&mut events).await, "cut");
    bench.proxy.heal();
    let mut events = watch(&bench.through).await;
    make(&bench, ["b"]).await;
    assert_eq!(next(&mut events).await, "+b");
}

#[tokio::test]
async fn an_event_is_in_the_trace_after_the_write_that_it_reports() {
    let bench = TestProxy::new("order").await;
    let mut events = watch(&bench.through).await;
    let mut made = Vec::new();
    for name in ["a", "b"] {
        made.push(bench.create(name).await.unwrap().metadata);
        assert_eq!(next(&mut events).await, format!("+{name}"));
    }
    let entries = bench.proxy.trace().entries();
    let words: Vec<_> = entries
        .iter()
        .map(|entry| {
            (entry.verb.as_str(), entry.event.as_ref().map(|event| event.kind.as_str()), entry.name.as_str())
        })
        .collect();
    let (list, watch, added) =
        (("list", None, ""), ("watch", None, ""), |name| ("watch", Some("ADDED"), name));
    assert_eq!(words, [list, watch, ("create", None, "a"), added("a"), ("create", None, "b"), added("b")]);
    for (event, object) in [(&entries[3], &made[0]), (&entries[5], &made[1])] {
        assert_eq!(event.event.as_ref().unwrap().watch, entries[1].seq);
        assert_eq!(Some(&event.uid), object.uid.as_ref());
        assert_eq!(Some(&event.resource_version), object.resource_version.as_ref());
    }
    assert_eq!(entries[1].status, Some(200));
}
