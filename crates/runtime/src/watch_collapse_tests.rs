//! Which lists count as a collapse, over an API server that answers as it is scripted.

use std::sync::Mutex;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;

use axum::body::Bytes;
use http::{Request, Response};
use kube::client::Body;
use serde_json::json;
use tokio::sync::mpsc;
use tower::BoxError;

use super::tests::{event, is_watch, watch_over, widget};
use super::*;
use crate::kind::testing::Widgets;

/// How the first watch ends, after which there is a second list.
#[derive(Clone, Copy, PartialEq)]
enum First {
    /// In order, again and again until the periodic list.
    Followed,
    /// The same, after it said that everything was deleted that the second list lacks.
    Explained,
    /// The revision is no longer served.
    Gap,
    /// As the first, and the second list is long in coming.
    SlowList,
    /// As the first, but the process was stopped for minutes meanwhile.
    Stopped,
}

async fn wait(time: Duration) {
    let _ = timeout(time, std::future::pending::<()>()).await;
}

/// Lists this many widgets, and then so many of them. Returns what collapsed, each with how many widgets the cache had when
/// it was called.
async fn collapses(before: usize, then: usize, first: First) -> Vec<(Collapse, usize)> {
    run(before, then, first).await.0
}

/// The same, and how far the cache can be trusted then.
async fn run(before: usize, then: usize, first: First) -> (Vec<(Collapse, usize)>, Freshness) {
    let name = |n: usize| format!("w{n:03}");
    let (lists, watches) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let (close, mut closed) = mpsc::unbounded_channel::<()>();
    let service = tower::service_fn(move |request: Request<Body>| {
        let mut late = Duration::ZERO;
        let body = if is_watch(&request) {
            let deleted = (then..before).map(|n| event("DELETED", &widget("a", &name(n), &json!(1))));
            let expired = json!({"kind": "Status", "code": 410, "message": "too old", "reason": "Expired"});
            let say = match (watches.fetch_add(1, Relaxed), first) {
                (0, First::Gap) => event("ERROR", &expired),
                (0, First::Explained) => deleted.collect(),
                _ => String::new(),
            };
            let ends = async move {
                wait(ResyncIntervals::default().watch).await;
                if first == First::Stopped {
                    tokio::time::advance(Duration::from_mins(5)).await;
                }
                Ok::<_, BoxError>(Bytes::new())
            };
            let said = futures::stream::iter([Ok::<_, BoxError>(Bytes::from(say))]);
            axum::body::Body::from_stream(futures::StreamExt::chain(said, futures::stream::once(ends)))
        } else {
            let number = lists.fetch_add(1, Relaxed);
            if number == 1 && first == First::SlowList {
                late = Duration::from_secs(4);
            }
            let count = [before, then].get(number).copied();
            if count.is_none() {
                let _ = close.send(());
            }
            let items: Vec<_> =
                (0..count.unwrap_or(then)).map(|n| widget("a", &name(n), &json!(1))).collect();
            axum::body::Body::from(json!({"metadata": {"resourceVersion": "9"}, "items": items}).to_string())
        };
        async move {
            wait(late).await;
            Ok::<_, BoxError>(Response::new(body))
        }
    });
    let (mut watch, _, _) = watch_over::<Widgets, _>(&service);
    let seen = Arc::new(Mutex::new(Vec::new()));
    let (log, store) = (Arc::clone(&seen), watch.store.clone());
    let freshness = store.clone();
    watch.on_collapse = Arc::new(move |collapse| log.lock().unwrap().push((collapse, store.len())));
    tokio::select! {
        () = watch.run(CancellationToken::new()) => {}
        _ = closed.recv() => {}
    }
    (seen.lock().unwrap().clone(), freshness.freshness())
}

#[tokio::test(start_paused = true)]
async fn a_list_that_lacks_what_no_event_deleted_is_a_collapse() {
    let collapse =
        |before, missing| vec![(Collapse { resource: "widgets", before, missing, after_gap: false }, before)];
    assert_eq!(collapses(40, 30, First::Followed).await, collapse(40, 10), "before the cache shows it");
    assert_eq!(collapses(40, 31, First::Followed).await, [], "nine may be deleted in between");
    assert_eq!(collapses(50, 40, First::Followed).await, [], "a fifth");
    assert_eq!(collapses(60, 0, First::Explained).await, [], "events said so");
}

#[tokio::test(start_paused = true)]
async fn what_is_missing_after_a_time_that_nobody_followed_is_a_collapse_if_it_is_more_than_half() {
    let collapse =
        |before, missing| vec![(Collapse { resource: "widgets", before, missing, after_gap: true }, before)];
    for first in [First::Gap, First::SlowList, First::Stopped] {
        assert_eq!(collapses(60, 29, first).await, collapse(60, 31));
        assert_eq!(collapses(60, 30, first).await, [], "half of them may have been deleted");
        assert_eq!(collapses(49, 0, first).await, [], "so few may have been deleted");
    }
}

#[tokio::test(start_paused = true)]
async fn what_holds_without_a_break_has_to_hold_again_after_a_time_that_nobody_followed() {
    let first_list = Freshness::Fresh(Duration::ZERO);
    assert_eq!(run(1, 1, First::Followed).await.1, first_list);
    for first in [First::Gap, First::SlowList, First::Stopped] {
        assert_ne!(run(1, 1, first).await.1, first_list);
    }
}
