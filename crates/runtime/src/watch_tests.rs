use std::collections::BTreeSet;
use std::sync::Mutex;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;

use axum::body::Bytes;
use coppice_api::Labels;
use http::{Request, Response};
use kube::client::Body;
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tower::{BoxError, Service};

use super::*;
use crate::client::Deadlines;
use crate::kind::testing::{LabelledWidgets, Wanted, WebWidgets, Widget, Widgets};
use crate::readiness::Readiness;
use crate::server_clock::ServerClock;

pub(super) fn widget(namespace: &str, name: &str, size: &Value) -> Value {
    json!({"metadata": {"name": name, "namespace": namespace, "resourceVersion": "3"}, "size": size})
}

/// A watch of widgets over an API server, whether it is ready, and what it reports as changed.
pub(super) fn watch_over<K: Kind, S>(service: &S) -> (Watch<K>, Readiness, Arc<Mutex<Vec<String>>>)
where
    S: Service<Request<Body>, Response = Response<axum::body::Body>, Error = BoxError>,
    S: Clone + Send + 'static,
    S::Future: Send + 'static,
{
    let (clock, metrics) =
        (Clock::following_tokio("2026-01-01T00:00:00Z".parse().unwrap()), Metrics::new("test"));
    let (readiness, changed) = (Readiness::new(), Arc::new(Mutex::new(Vec::new())));
    let log = Arc::clone(&changed);
    let server_clock = ServerClock::new(clock.clone());
    let watch = Watch {
        store: Store::default(),
        clients: Clients::over(service, Deadlines::default(), &server_clock, &metrics),
        clock,
        metrics,
        check: readiness.register("widgets"),
        changed: Arc::new(move |namespace, name| log.lock().unwrap().push(format!("{namespace}/{name}"))),
        on_collapse: Arc::new(|_| {}),
        intervals: ResyncIntervals::default(),
        seed: 0,
    };
    (watch, readiness, changed)
}

/// Follows a list of one widget that cannot be decoded and one that can, and then these events.
async fn follow(events: Vec<Vec<u8>>) -> (Store<Widgets>, Metrics, bool, Vec<String>) {
    let list = json!({"metadata": {"resourceVersion": "1"}, "items": [widget("bad", "a", &json!(-1)), widget("good", "b", &json!(1))]});
    let (close, mut closed) = mpsc::unbounded_channel::<()>();
    let events = Arc::new(Mutex::new(Some(events)));
    let service = tower::service_fn(move |request: Request<Body>| {
        let (events, close) = (events.lock().unwrap().take_if(|_| is_watch(&request)), close.clone());
        let list = list.to_string().into_bytes();
        async move {
            let frames = match (is_watch(&request), events) {
                (false, _) => vec![list],
                (true, Some(events)) => events,
                (true, None) => {
                    // Everything has been read.
                    let _ = close.send(());
                    std::future::pending().await
                }
            };
            let frames = frames.into_iter().map(|frame| Ok::<_, BoxError>(Bytes::from(frame)));
            let body = axum::body::Body::from_stream(futures::stream::iter(frames));
            Ok::<_, BoxError>(Response::new(body))
        }
    });
    let (watch, readiness, changed) = watch_over::<Widgets, _>(&service);
    let (store, metrics) = (watch.store.clone(), watch.metrics.clone());
    tokio::select! {
        () = watch.run(CancellationToken::new()) => {}
        _ = closed.recv() => {}
    }
    let changed = changed.lock().unwrap().clone();
    (store, metrics, readiness.is_ready(), changed)
}

/// Follows an idle kind for three minutes; each watch ends in order after this time. Returns whether the cache was
/// trusted at each second, and how many lists and watches there were.
async fn idle(watches_last: Duration) -> (bool, usize, usize) {
    let asked = Arc::new((AtomicUsize::new(0), AtomicUsize::new(0)));
    let counted = Arc::clone(&asked);
    let service = tower::service_fn(move |request: Request<Body>| {
        let is_watch = is_watch(&request);
        let count = if is_watch { &counted.1 } else { &counted.0 };
        count.fetch_add(1, Relaxed);
        let list = json!({"metadata": {"resourceVersion": "1"}, "items": []}).to_string();
        let ends = async move {
            let _ = timeout(watches_last, std::future::pending::<()>()).await;
            Ok::<_, BoxError>(Bytes::new())
        };
        let body = if is_watch {
            axum::body::Body::from_stream(futures::stream::once(ends))
        } else {
            axum::body::Body::from(list)
        };
        std::future::ready(Ok::<_, BoxError>(Response::new(body)))
    });
    let (watch, _, _) = watch_over::<Widgets, _>(&service);
    let store = watch.store.clone();
    let mut running = std::pin::pin!(watch.run(CancellationToken::new()));
    let mut believed = true;
    for _ in 0..180 {
        assert!(timeout(Duration::from_secs(1), &mut running).await.is_err(), "it is not asked to stop");
        believed &= matches!(store.freshness(), Freshness::Fresh(_));
    }
    (believed, asked.0.load(Relaxed), asked.1.load(Relaxed))
}

#[tokio::test(start_paused = true)]
async fn a_kind_of_which_there_is_nothing_to_say_is_believed() {
    assert_eq!(idle(ResyncIntervals::default().watch).await, (true, 1, 4));
}

#[tokio::test(start_paused = true)]
async fn watches_that_are_cut_short_are_not_believed_nor_opened_without_a_pause() {
    let (believed, lists, watches) = idle(Duration::ZERO).await;
    assert!(!believed, "whoever ends them at once may keep back what there is to say");
    assert_eq!(lists, 2, "what is not believed any more is listed again");
    assert!(watches <= 30, "{watches} watches were opened");
}

/// A list of one widget, then a watch that has expired, and then nothing but errors.
#[tokio::test(start_paused = true)]
async fn a_list_that_fails_is_not_an_empty_one() {
    let lists = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&lists);
    let service = tower::service_fn(move |request: Request<Body>| {
        let listed = if is_watch(&request) { None } else { Some(counted.fetch_add(1, Relaxed)) };
        let list = json!({"metadata": {"resourceVersion": "1"}, "items": [widget("good", "a", &json!(1))]});
        let (code, body) = match listed {
            Some(0) => (200, list.to_string()),
            Some(_) => (503, String::new()),
            None => (410, String::new()),
        };
        let response = Response::builder().status(code).body(axum::body::Body::from(body));
        std::future::ready(response.map_err(BoxError::from))
    });
    let (watch, _, _) = watch_over::<Widgets, _>(&service);
    let (store, metrics) = (watch.store.clone(), watch.metrics.clone());
    let mut running = std::pin::pin!(watch.run(CancellationToken::new()));
    assert!(timeout(Duration::from_secs(30), &mut running).await.is_err(), "it is not asked to stop");
    assert!(lists.load(Relaxed) > 2, "it is listed again and again");
    assert_eq!(store.decoded("good").unwrap().len(), 1, "what was known stays");
    assert!(metrics.encode().contains("coppice_watch_objects{kind=\"widgets\"} 1"), "{}", metrics.encode());
    // What cannot be listed for longer is not believed any more, and is not gone.
    assert!(timeout(Duration::from_mins(2), &mut running).await.is_err(), "it is not asked to stop");
    assert!(!matches!(store.freshness(), Freshness::Fresh(_)));
    assert_eq!(store.decoded("good").unwrap().len(), 1);
}

pub(super) fn is_watch(request: &Request<Body>) -> bool {
    request.uri().query().is_some_and(|query| query.contains("watch=true"))
}

pub(super) fn event(kind: &str, object: &Value) -> String {
    format!("{}\n", json!({"type": kind, "object": object}))
}

#[tokio::test]
async fn one_undecodable_object_stops_neither_list_nor_watch() {
    let (store, metrics, ready, changed) = follow(Vec::new()).await;
    assert!(ready, "an odd object of a tenant is no reason not to be ready");
    assert_eq!(store.decoded("good").unwrap().len(), 1);
    assert_eq!(store.decoded("bad").unwrap_err().reason, Reason::Undecodable);
    assert_eq!(changed[..2], ["good/b", "bad/a"]);
    let line = "coppice_watch_objects_unreadable{kind=\"widgets\",reason=\"Undecodable\"} 1";
    assert!(metrics.encode().contains(line));
    let large: serde_json::Map<_, _> = (0..5_000).map(|n| (format!("k{n}"), json!("v"))).collect();
    let mut large = json!({"labels": large});
    large["metadata"] = widget("good", "c", &json!(0))["metadata"].take();
    let text = [
        event("MODIFIED", &widget("bad", "a", &json!(2))),
        event("ADDED", &large),
        event("MODIFIED", &widget("good", "b", &json!("odd"))),
        event("DELETED", &widget("good", "b", &json!("odd"))),
    ];
    // As the network cuts them.
    let frames = text.concat().into_bytes().chunks(1000).map(<[u8]>::to_vec).collect();
    let (store, metrics, ready, changed) = follow(frames).await;
    assert!(ready);
    assert_eq!(store.decoded("bad").unwrap()[0].size, 2);
    assert_eq!(
        store.decoded("good").unwrap_err().to_string(),
        "c has more than 8192 bytes of labels; remove some or delete it"
    );
    assert_eq!(changed[changed.len() - 4..], ["bad/a", "good/c", "good/b", "good/b"]);
    let shown = metrics.encode();
    assert!(!shown.contains("coppice_watch_restarts_total"), "{shown}");
}

/// An API server with these widgets, what its watches say next, and what was asked of it.
struct WebServer {
    widgets: Arc<Mutex<Vec<Value>>>,
    events: mpsc::UnboundedSender<String>,
    asked: Arc<Mutex<Vec<(String, String)>>>,
}

fn web_widget(namespace: &str, name: &str, generation: i64) -> Value {
    let labels = json!({"tier": "web"});
    json!({"metadata": {"name": name, "namespace": namespace, "resourceVersion": "3", "generation": generation, "labels": labels}})
}

/// The watch of web widgets, and the API server under it.
fn web_watch<K: Kind>() -> (Watch<K>, Arc<Mutex<Vec<String>>>, WebServer) {
    let (events, to_send) = mpsc::unbounded_channel();
    let server = WebServer { widgets: Arc::default(), events, asked: Arc::default() };
    let (widgets, asked) = (Arc::clone(&server.widgets), Arc::clone(&server.asked));
    let to_send = Arc::new(tokio::sync::Mutex::new(to_send));
    let service = tower::service_fn(move |request: Request<Body>| {
        let form = request.headers()[http::header::ACCEPT].to_str().unwrap().to_owned();
        asked.lock().unwrap().push((request.uri().query().unwrap().to_owned(), form));
        let body = if is_watch(&request) {
            let lines = futures::stream::unfold(Arc::clone(&to_send), async |to_send| {
                let line = to_send.lock().await.recv().await?;
                Some((Ok::<_, BoxError>(Bytes::from(line)), to_send))
            });
            axum::body::Body::from_stream(lines)
        } else {
            let items = widgets.lock().unwrap().clone();
            axum::body::Body::from(json!({"metadata": {"resourceVersion": "1"}, "items": items}).to_string())
        };
        std::future::ready(Ok::<_, BoxError>(Response::new(body)))
    });
    let (watch, _, changed) = watch_over(&service);
    (watch, changed, server)
}

/// What the store has: the names, and whether with labels.
fn kept<K: Kind<Object = Widget>>(store: &Store<K>) -> Vec<(String, bool)> {
    let mut kept = Vec::new();
    store.for_each(|widget| kept.push((widget.name.to_string(), widget.labels != Labels::default())));
    kept
}

#[tokio::test(start_paused = true)]
async fn a_kind_may_be_watched_by_its_labels_and_as_metadata_alone() {
    let (watch, _, server) = web_watch::<WebWidgets>();
    assert!(timeout(Duration::from_secs(1), watch.run(CancellationToken::new())).await.is_err());
    let form = |of| format!("application/json;as={of};v=v1;g=meta.k8s.io,application/json");
    let query = "watch=true&allowWatchBookmarks=true&timeoutSeconds=50&resourceVersion=1";
    let expected = [
        ("limit=500&labelSelector=tier%3Dweb".to_owned(), form("PartialObjectMetadataList")),
        (format!("{query}&labelSelector=tier%3Dweb"), form("PartialObjectMetadata")),
    ];
    assert_eq!(*server.asked.lock().unwrap(), expected);
}

#[tokio::test(start_paused = true)]
async fn what_is_kept_follows_the_context() {
    let (watch, changed, server) = web_watch::<WebWidgets>();
    let store = watch.store.clone();
    let changed = || std::mem::take(&mut *changed.lock().unwrap()).into_iter().collect::<BTreeSet<_>>();
    let are = |changed: &[&str]| changed.iter().map(|key| (*key).to_owned()).collect::<BTreeSet<_>>();
    let lists =
        || server.asked.lock().unwrap().iter().filter(|(query, _)| query.starts_with("limit")).count();
    let mut running = std::pin::pin!(watch.run(CancellationToken::new()));
    let mut settle = async || assert!(timeout(Duration::from_secs(1), &mut running).await.is_err());
    *server.widgets.lock().unwrap() =
        [("a", 0), ("b", 0), ("c", 1)].map(|(n, g)| web_widget("n", n, g)).into();
    settle().await;
    let named =
        |names: &[&str], labels| names.iter().map(|name| ((*name).to_owned(), labels)).collect::<Vec<_>>();
    assert_eq!((kept(&store), lists()), (named(&["a", "b"], false), 1));
    assert_eq!(changed(), are(&["n/a", "n/b"]));

    // What is not kept any more is as if it were deleted; what never was changes nothing.
    let send = |widget: &Value| server.events.send(event("MODIFIED", widget)).unwrap();
    for (name, generation) in [("a", 1), ("c", 2), ("c", 3), ("d", 0)] {
        send(&web_widget("n", name, generation));
    }
    settle().await;
    assert_eq!((kept(&store), changed()), (named(&["b", "d"], false), are(&["n/a", "n/d"])));

    store.set_context(Wanted::default());
    assert!(matches!(store.freshness(), Freshness::Fresh(_)), "it is the same");
    store.set_context(Wanted { generation: 1, labels: true });
    assert_eq!(store.freshness(), Freshness::NotSynced(None));
    *server.widgets.lock().unwrap() =
        [("a", 1), ("b", 0), ("d", 1)].map(|(n, g)| web_widget("n", n, g)).into();
    settle().await;
    assert!(matches!(store.freshness(), Freshness::Fresh(since) if since >= Duration::from_secs(2)));
    assert_eq!((kept(&store), lists()), (named(&["a", "d"], true), 2));
    assert_eq!(changed(), are(&["n/a", "n/b", "n/d"]), "also what is gone");
    send(&web_widget("n", "d", 0));
    settle().await;
    assert_eq!((kept(&store), lists()), (named(&["a"], true), 2));
}

#[tokio::test(start_paused = true)]
async fn to_keep_less_than_before_is_no_collapse() {
    let (mut watch, _, server) = web_watch::<WebWidgets>();
    watch.on_collapse = Arc::new(|collapse| panic!("{collapse:?}"));
    let store = watch.store.clone();
    let mut running = std::pin::pin!(watch.run(CancellationToken::new()));
    let mut settle = async || assert!(timeout(Duration::from_secs(1), &mut running).await.is_err());
    *server.widgets.lock().unwrap() = (0..60).map(|n| web_widget("n", &format!("w{n:02}"), 0)).collect();
    settle().await;
    assert_eq!(store.len(), 60);
    store.set_context(Wanted { generation: 1, labels: false });
    settle().await;
    assert_eq!((store.len(), matches!(store.freshness(), Freshness::Fresh(_))), (0, true));
}

#[tokio::test(start_paused = true)]
async fn what_is_known_of_objects_stays_true_while_more_of_each_is_asked_for() {
    let (mut watch, changed, server) = web_watch::<LabelledWidgets>();
    let collapsed = Arc::new(Mutex::new(Vec::<usize>::new()));
    let log = Arc::clone(&collapsed);
    watch.on_collapse = Arc::new(move |collapse| log.lock().unwrap().push(collapse.missing));
    let store = watch.store.clone();
    let mut running = std::pin::pin!(watch.run(CancellationToken::new()));
    let mut settle = async || assert!(timeout(Duration::from_secs(1), &mut running).await.is_err());
    let widgets = |n| (0..n).map(|n| web_widget("n", &format!("w{n:02}"), 0)).collect();
    let all = |n, labels| (0..n).map(|n| (format!("w{n:02}"), labels)).collect::<Vec<_>>();
    *server.widgets.lock().unwrap() = widgets(60);
    assert!(!store.is_listed());
    settle().await;
    assert_eq!((kept(&store), store.is_listed()), (all(60, false), true));
    let since = store.freshness();
    assert!(matches!(since, Freshness::Fresh(_)));
    changed.lock().unwrap().clear();

    store.set_context(Wanted { generation: 0, labels: true });
    assert_eq!((store.freshness(), store.is_listed()), (since.clone(), false), "what is known is still true");
    settle().await;
    assert_eq!((kept(&store), store.is_listed()), (all(60, true), true));
    assert_eq!(store.freshness(), since, "nothing was missed");
    assert_eq!(changed.lock().unwrap().len(), 60, "more is known of each");
    assert!(collapsed.lock().unwrap().is_empty());

    // Such a list can collapse as any other.
    *server.widgets.lock().unwrap() = widgets(20);
    store.set_context(Wanted { generation: 1, labels: true });
    settle().await;
    assert_eq!((store.len(), &**collapsed.lock().unwrap()), (20, &[40][..]));
}

#[tokio::test(start_paused = true)]
async fn a_context_that_changes_in_the_moment_in_which_a_watch_ends_is_not_missed() {
    let to_change = Arc::new(Mutex::new(None::<Store<WebWidgets>>));
    let (at_the_end, list) =
        (Arc::clone(&to_change), json!({"metadata": {"resourceVersion": "1"}, "items": []}).to_string());
    let service = tower::service_fn(move |request: Request<Body>| {
        let store = Arc::clone(&at_the_end);
        let body = if is_watch(&request) {
            axum::body::Body::from_stream(futures::stream::once(async move {
                // Longer than it is until the next list.
                let _ = timeout(ResyncIntervals::default().watch, std::future::pending::<()>()).await;
                if let Some(store) = store.lock().unwrap().as_ref() {
                    store.set_context(Wanted { generation: 1, labels: true });
                }
                Ok::<_, BoxError>(Bytes::new())
            }))
        } else {
            axum::body::Body::from(list.clone())
        };
        std::future::ready(Ok::<_, BoxError>(Response::new(body)))
    });
    let (mut watch, readiness, _) = watch_over::<WebWidgets, _>(&service);
    watch.intervals.relist = Duration::from_secs(1);
    let store = watch.store.clone();
    *to_change.lock().unwrap() = Some(store.clone());
    let mut running = std::pin::pin!(watch.run(CancellationToken::new()));
    assert!(timeout(Duration::from_secs(49), &mut running).await.is_err());
    assert!(matches!(store.freshness(), Freshness::Fresh(_)));
    assert!(timeout(Duration::from_secs(2), &mut running).await.is_err());
    assert!(matches!(store.freshness(), Freshness::Fresh(_)), "{:?}", store.freshness());
    assert!(readiness.is_ready());
}
