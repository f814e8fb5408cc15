use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use http::{Request, Response};
use kube::client::Body;
use serde_json::json;
use tokio::time::timeout;
use tower::BoxError;

use super::*;
use crate::client::{Clients, Deadlines};
use crate::clock::Clock;
use crate::intervals::ResyncIntervals;
use crate::kind::testing::Widgets;
use crate::metrics::Metrics;
use crate::server_clock::ServerClock;
use crate::store::{Freshness, Store};

/// An API server with one widget, which counts the lists that it answers; its watches never end.
fn environment() -> (WatchEnvironment, Arc<AtomicUsize>) {
    let lists = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&lists);
    let service = tower::service_fn(move |request: Request<Body>| {
        let watch = request.uri().query().is_some_and(|query| query.contains("watch=true"));
        if !watch {
            counted.fetch_add(1, Relaxed);
        }
        let widget = json!({"metadata": {"name": "w", "namespace": "n", "resourceVersion": "1"}});
        let list = json!({"metadata": {"resourceVersion": "1"}, "items": [widget]}).to_string();
        let body = if watch {
            // Bookmarks, so that it is believed.
            let bookmark = json!({"type": "BOOKMARK", "object": {"metadata": {"resourceVersion": "2"}}});
            let lines = futures::stream::unfold((), move |()| {
                let line = format!("{bookmark}\n");
                pass(Duration::from_secs(10)).map(move |()| Some((Ok::<_, BoxError>(line), ())))
            });
            axum::body::Body::from_stream(lines)
        } else {
            axum::body::Body::from(list)
        };
        std::future::ready(Ok::<_, BoxError>(Response::new(body)))
    });
    let clock = Clock::following_tokio("2026-01-01T00:00:00Z".parse().unwrap());
    let (metrics, server_clock) = (Metrics::new("test"), ServerClock::new(clock.clone()));
    let clients = Clients::over(&service, Deadlines::default(), &server_clock, &metrics);
    let (readiness, intervals) = (Readiness::new(), ResyncIntervals::default());
    let on_collapse = Arc::new(|_| {});
    (WatchEnvironment { clients, clock, metrics, readiness, intervals, seed: 0, on_collapse }, lists)
}

/// Counts how often it reconciles each widget; the first time, it panics.
struct Counts<const OTHER: bool> {
    store: Store<Widgets>,
    reconciled: Arc<Mutex<Vec<String>>>,
    panics: Arc<Mutex<Vec<String>>>,
}

impl<const OTHER: bool> Controller for Counts<OTHER> {
    type Key = String;
    const NAME: &'static str = if OTHER { "other" } else { "widget" };

    fn subscribe(self: &Arc<Self>, watches: &Watches, queue: &Queue<String>) -> Vec<Subscription> {
        let queue = queue.clone();
        vec![watches.subscribe(&self.store, move |namespace, name| queue.add(format!("{namespace}/{name}")))]
    }

    fn synced(&self) -> bool {
        !matches!(self.store.freshness(), Freshness::NotSynced(_))
    }

    fn all(&self) -> Vec<String> {
        self.store.keys().iter().map(|(namespace, name)| format!("{namespace}/{name}")).collect()
    }

    async fn reconcile(self: Arc<Self>, key: String) -> ReconcileResult {
        let times = {
            let mut reconciled = self.reconciled.lock().unwrap();
            reconciled.push(key);
            reconciled.len()
        };
        assert!(times > 1, "a bug");
        ReconcileResult::Done
    }

    fn panicked(&self, key: &String, message: &str) {
        self.panics.lock().unwrap().push(format!("{key}: {message}"));
    }
}

impl<const OTHER: bool> Counts<OTHER> {
    fn on(store: &Store<Widgets>) -> Self {
        Self { store: store.clone(), reconciled: Arc::default(), panics: Arc::default() }
    }
}

/// Lets the tasks work for a while of tokio's clock.
async fn pass(time: Duration) {
    let _ = timeout(time, std::future::pending::<()>()).await;
}

#[tokio::test(start_paused = true)]
async fn two_controllers_share_a_watch_and_each_object_is_reconciled_by_both() {
    let (environment, lists) = environment();
    let readiness = environment.readiness.clone();
    let store = Store::<Widgets>::default();
    let (one, two) = (Counts::<false>::on(&store), Counts::<true>::on(&store));
    let (first, second) = (Arc::clone(&one.reconciled), Arc::clone(&two.reconciled));
    let panics = Arc::clone(&one.panics);
    let stop = CancellationToken::new();
    let gate = Gate::always(Duration::ZERO);
    let mut runner = Runner::new(environment, gate, QueueSettings::default(), stop.clone());
    runner.add(one);
    let queue = runner.add(two);
    assert_eq!(readiness.missing().len(), 3, "{:?}", readiness.missing());
    let mut tasks = JoinSet::new();
    runner.start(&mut tasks);
    pass(Duration::from_millis(100)).await;
    assert_eq!(lists.load(Relaxed), 1, "one watch for both");
    assert_eq!(*first.lock().unwrap(), ["n/w"]);
    assert_eq!(*panics.lock().unwrap(), ["n/w: a bug"]);
    assert!(!readiness.is_ready(), "one that panicked has not been reconciled");
    pass(Duration::from_secs(2)).await;
    assert_eq!(*first.lock().unwrap(), ["n/w", "n/w"], "it is tried again");
    assert!(readiness.is_ready(), "{:?}", readiness.missing());
    queue.add("n/w".to_owned());
    pass(Duration::from_millis(100)).await;
    assert_eq!((first.lock().unwrap().len(), second.lock().unwrap().len()), (2, 3), "each has its own queue");
    pass(ResyncIntervals::default().pass).await;
    assert_eq!((first.lock().unwrap().len(), second.lock().unwrap().len()), (3, 4), "the periodic resync");
    assert_eq!(tasks.try_join_next().map(|ended| ended.is_ok()), None, "nothing ends by itself");
    stop.cancel();
    while let Some(ended) = tasks.join_next().await {
        ended.unwrap();
    }
}

/// Has one key, and nothing enqueues it.
struct Still(Arc<AtomicUsize>);

impl Controller for Still {
    type Key = String;
    const NAME: &'static str = "still";

    fn subscribe(self: &Arc<Self>, _: &Watches, _: &Queue<String>) -> Vec<Subscription> {
        Vec::new()
    }

    fn synced(&self) -> bool {
        true
    }

    fn all(&self) -> Vec<String> {
        vec!["one".to_owned()]
    }

    async fn reconcile(self: Arc<Self>, _: String) -> ReconcileResult {
        self.0.fetch_add(1, Relaxed);
        ReconcileResult::Done
    }
}

#[tokio::test(start_paused = true)]
async fn a_follower_is_ready_when_it_has_looked_at_everything_once() {
    let (environment, _) = environment();
    let readiness = environment.readiness.clone();
    let (_keeper, gate) = crate::leader::gate(Duration::from_secs(10));
    let (times, stop) = (Arc::new(AtomicUsize::new(0)), CancellationToken::new());
    let mut runner = Runner::new(environment, gate, QueueSettings::default(), stop);
    runner.add(Still(Arc::clone(&times)));
    let mut tasks = JoinSet::new();
    runner.start(&mut tasks);
    pass(Duration::from_secs(1)).await;
    assert_eq!((times.load(Relaxed), readiness.missing()), (1, Vec::new()));
}

#[tokio::test(start_paused = true)]
async fn a_kind_is_watched_while_somebody_needs_it() {
    let (environment, lists) = environment();
    let (readiness, metrics) = (environment.readiness.clone(), environment.metrics.clone());
    let (watches, runner) = Watches::new(environment);
    let mut tasks = JoinSet::new();
    tasks.spawn(runner.run());
    let (store, calls) = (Store::<Widgets>::default(), Arc::new(AtomicUsize::new(0)));
    let subscribe = || {
        let calls = Arc::clone(&calls);
        watches.subscribe(&store, move |_, _| {
            calls.fetch_add(1, Relaxed);
        })
    };
    pass(Duration::from_secs(1)).await;
    assert_eq!(lists.load(Relaxed), 0, "nobody needs it");
    let (one, two) = (subscribe(), subscribe());
    pass(Duration::from_secs(1)).await;
    assert_eq!(
        (lists.load(Relaxed), calls.load(Relaxed), store.len()),
        (1, 4, 1),
        "a list calls twice for each"
    );
    drop(one);
    pass(Duration::from_secs(1)).await;
    assert!(matches!(store.freshness(), Freshness::Fresh(_)), "the other one still needs it");
    assert!(metrics.encode().contains("coppice_watch_synced{kind=\"widgets\"} 1"));
    drop(two);
    pass(Duration::from_secs(1)).await;
    assert_eq!((store.freshness(), store.len()), (Freshness::NotSynced(None), 0));
    assert!(readiness.missing().is_empty(), "{:?}", readiness.missing());
    assert!(!metrics.encode().contains("kind=\"widgets\""), "an alert would wait for its next sign of life");
    // Gone and needed again before the last watch has ended: the new one fills the store after that.
    drop(subscribe());
    let again = subscribe();
    pass(Duration::from_secs(1)).await;
    assert_eq!((lists.load(Relaxed), calls.load(Relaxed), store.len()), (2, 6, 1));
    assert!(readiness.is_ready());
    drop(again);
}

#[tokio::test(start_paused = true)]
async fn who_is_called_may_hold_a_subscription_itself() {
    let (environment, _) = environment();
    let (watches, _runner) = Watches::new(environment);
    let store = Store::<Widgets>::default();
    let held = watches.subscribe(&store, |_, _| {});
    // It ends with the one that holds it: not under the lock that both need.
    drop(watches.subscribe(&store, move |_, _| {
        let _ = &held;
    }));
    assert_eq!(store.freshness(), Freshness::NotSynced(None));
}
