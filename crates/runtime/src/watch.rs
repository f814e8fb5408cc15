//! One LIST, then one WATCH, for ever: keeps a [`Store`] current and wakes its dependents.
//!
//! Our own loop instead of `kube::runtime::watcher` for two things that it does not offer: objects are projected while
//! they are decoded, and every sign of life, bookmarks included, is recorded, which distinguishes a watch that died
//! silently from an idle one (H6). Why and what else was considered: `docs/decisions/0003-own-watch.md`.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use coppice_api::Reason;
use kube::core::Status;
use tokio::time::{Instant, timeout};
use tokio_util::sync::CancellationToken;

use crate::admin::Check;
use crate::client::Clients;
use crate::clock::Clock;
use crate::decode::{self, Event, Item, Unreadable};
use crate::intervals::ResyncIntervals;
use crate::kind::Kind;
use crate::metrics::Metrics;
use crate::read;
use crate::store::{Freshness, Problem, Store};

/// How much longer than a watch lasts to wait for a sign of life before the connection is given up.
const GRACE: Duration = Duration::from_secs(10);
/// How long the API server may take to accept a watch.
const OPEN: Duration = Duration::from_secs(15);
/// By how much the API server's clock may have been faster than ours while a watch lasted.
const CLOCK_DRIFT: Duration = Duration::from_secs(1);
const FIRST_PAUSE: Duration = Duration::from_millis(250);
const MAX_PAUSE: Duration = Duration::from_secs(10);

/// Called with the namespace and name of every object that changed or is gone.
pub type Changed = Arc<dyn Fn(&str, &str) + Send + Sync>;

/// The watch of one kind.
pub struct Watch<K: Kind> {
    /// The cache that it fills.
    pub store: Store<K>,
    /// The API server.
    pub clients: Clients,
    /// For the instant of a list.
    pub clock: Clock,
    /// Its metrics.
    pub metrics: Metrics,
    /// Its line in `/readyz`.
    pub check: Check,
    /// What it wakes.
    pub changed: Changed,
    /// How often to look for missed events.
    pub intervals: ResyncIntervals,
    /// [`WatchEnvironment::seed`](crate::watches::WatchEnvironment::seed).
    pub seed: u64,
}

/// Why a list is needed out of turn.
enum WatchError {
    /// The revision is no longer served.
    Expired,
    /// Nothing has been heard for so long that the cache is not believed any more.
    Stale,
    /// The watch failed.
    Failed(kube::Error),
}

/// How a watch ended.
enum WatchEnd {
    /// The revision is no longer served: list again.
    Expired,
    /// The API server closed the stream, as it does after [`ResyncIntervals::watch`]: continue from the last revision.
    Closed,
    /// The stream was closed before that and said nothing: continue from the last revision, but not at once.
    CutShort,
}

impl<K: Kind> Watch<K> {
    /// Follows the API server until asked to stop. Errors are shown, waited out and recovered from.
    pub async fn run(self, stop: CancellationToken) {
        tokio::select! {
            biased;
            () = stop.cancelled() => {}
            () = self.watch_loop() => {}
        }
    }

    async fn watch_loop(&self) {
        self.store.set_stale_after(self.intervals.fresh);
        // Failures in a row: what ends them is an event or a bookmark, or a watch that ended in order. That a watch could
        // be opened says nothing yet.
        let mut failures = 0u32;
        // Whether something may have been missed since the last list.
        let mut gap = true;
        loop {
            let mut revision = match self.list(gap).await {
                Ok(revision) => revision,
                Err(error) => {
                    gap = true;
                    self.note_problem(&error, "list", &mut failures).await;
                    continue;
                }
            };
            self.check.ready();
            match self.watch_on(&mut revision, &mut failures).await {
                Ok(()) => gap = false,
                Err(WatchError::Expired) => {
                    gap = true;
                    self.metrics.watch_restarted(K::RESOURCE, "expired");
                    self.pause(&mut failures).await;
                }
                Err(WatchError::Stale) => {
                    gap = true;
                    self.metrics.watch_restarted(K::RESOURCE, "stale");
                }
                Err(WatchError::Failed(error)) => {
                    gap = true;
                    self.note_problem(&error, "watch", &mut failures).await;
                }
            }
        }
    }

    /// Watches from a revision on, one watch after the other, until it is time for a list again, which recovers lost
    /// events (H5). The list comes earlier if nothing has arrived for too long.
    async fn watch_on(&self, revision: &mut String, failures: &mut u32) -> Result<(), WatchError> {
        let until = Instant::now() + self.intervals.until_relist(&read::path::<K>(""), K::BULK, self.seed);
        while Instant::now() < until {
            if matches!(self.store.freshness(), Freshness::Stale(_)) {
                return Err(WatchError::Stale);
            }
            match self.follow(revision, failures).await.map_err(WatchError::Failed)? {
                WatchEnd::Closed => *failures = 0,
                WatchEnd::CutShort => self.pause(failures).await,
                WatchEnd::Expired => return Err(WatchError::Expired),
            }
        }
        Ok(())
    }

    /// Lists everything, replaces the store in one step and wakes for what differs; after a gap, for every object.
    async fn list(&self, gap: bool) -> Result<String, kube::Error> {
        let since = gap.then(|| self.clock.monotonic());
        let mut list = self.store.relist();
        let mut cursor = read::Cursor::default();
        let revision = loop {
            let page = read::page::<K>(&self.clients.reads, "", &mut cursor).await?;
            page.items.into_iter().for_each(|item| list.push(item));
            if cursor.is_done() {
                break page.revision;
            }
        };
        let before = self.store.unreadable();
        let differing = self.store.replace(list, since);
        self.metrics.watch_synced(K::RESOURCE, self.store.len(), self.clock.now());
        self.log_unreadable(&before);
        // After a gap what was unknown is known again, though no object may have changed.
        let all = if gap { self.store.keys() } else { Vec::new() };
        for (namespace, name) in differing.into_iter().chain(all) {
            (self.changed)(&namespace, &name);
        }
        Ok(revision)
    }

    async fn follow(&self, revision: &mut String, failures: &mut u32) -> Result<WatchEnd, kube::Error> {
        let uri = format!(
            "{}?watch=true&allowWatchBookmarks=true&timeoutSeconds={}&resourceVersion={revision}",
            read::path::<K>(""),
            self.intervals.watch.as_secs()
        );
        let asked = Instant::now();
        let open = read::lines(&self.clients.reads, &uri);
        let Ok(lines) = timeout(OPEN, open).await else { return Err(silence_error(OPEN)) };
        let mut lines = match lines {
            Err(kube::Error::Api(status)) if status.code == 410 => return Ok(WatchEnd::Expired),
            other => other?,
        };
        let (silence, mut heard) = (self.intervals.watch + GRACE, false);
        loop {
            let Ok(line) = timeout(silence, lines.next()).await else {
                return Err(silence_error(silence));
            };
            let Some(line) = line else {
                // Ended in order and in time, there was nothing more to say. Bookmarks alone do not do: the API server
                // promises none (kubernetes.io/docs/reference/using-api/api-concepts, "Watch bookmarks").
                let in_time = asked.elapsed() + CLOCK_DRIFT >= self.intervals.watch;
                if in_time {
                    self.alive(failures);
                    self.metrics.watch_alive(K::RESOURCE, self.store.len(), self.clock.now());
                }
                return Ok(if in_time || heard { WatchEnd::Closed } else { WatchEnd::CutShort });
            };
            let event = decoded::<K>(line?)?;
            self.alive(failures);
            heard = true;
            match event {
                Event::Changed(item) => {
                    advance(revision, &item.object_ref.revision);
                    self.apply(item);
                }
                Event::Deleted(object_ref) => {
                    advance(revision, &object_ref.revision);
                    self.store.remove(&object_ref.namespace, &object_ref.name);
                    (self.changed)(&object_ref.namespace, &object_ref.name);
                }
                Event::Bookmark(seen) => advance(revision, &seen),
                Event::Error(status) if status.code == 410 => return Ok(WatchEnd::Expired),
                Event::Error(status) => return Err(kube::Error::Api(status)),
            }
            self.metrics.watch_alive(K::RESOURCE, self.store.len(), self.clock.now());
            self.count_unreadable();
        }
    }

    fn apply(&self, item: Item<K::Object>) {
        let object_ref = item.object_ref.clone();
        let before = item.object.is_err().then(|| self.store.unreadable());
        if self.store.put(item) {
            (self.changed)(&object_ref.namespace, &object_ref.name);
        }
        if let Some(before) = before {
            self.log_unreadable(&before);
        }
    }

    /// Shows in which namespaces something cannot be understood any more; not each object, of which there may be many.
    fn log_unreadable(&self, before: &BTreeMap<Box<str>, Unreadable>) {
        for (namespace, unreadable) in self.store.unreadable() {
            if !before.contains_key(&namespace) {
                tracing::warn!(
                    resource = K::RESOURCE,
                    %namespace,
                    object = %unreadable.name,
                    reason = %unreadable.reason,
                    "{unreadable}; until then the facts about {} are unknown there",
                    K::RESOURCE,
                );
            }
        }
        self.count_unreadable();
    }

    fn count_unreadable(&self) {
        for reason in [Reason::Undecodable, Reason::TooLarge] {
            let count = self.store.count_unreadable(reason);
            self.metrics.watch_unreadable(K::RESOURCE, reason.as_str(), count);
        }
    }

    fn alive(&self, failures: &mut u32) {
        *failures = 0;
        self.store.seen();
    }

    /// Shows what is wrong, and waits before the next attempt.
    async fn note_problem(&self, error: &kube::Error, what: &'static str, failures: &mut u32) {
        let problem = explain(error, what, K::RESOURCE);
        if self.store.note_problem(problem.clone()) {
            // Once for each kind of trouble, not at every attempt.
            tracing::warn!(resource = K::RESOURCE, error = %problem.message, "watch interrupted");
        }
        self.metrics.watch_restarted(K::RESOURCE, if problem.forbidden { "forbidden" } else { "error" });
        self.check.not_ready(&problem.message);
        self.pause(failures).await;
    }

    async fn pause(&self, failures: &mut u32) {
        let pause = FIRST_PAUSE.saturating_mul(1 << (*failures).min(6)).min(MAX_PAUSE);
        *failures += 1;
        tokio::time::sleep(pause.max(self.clients.backpressure.remaining())).await;
    }
}

/// Advances to the revision that was seen, if there is one.
fn advance(revision: &mut String, seen: &str) {
    if !seen.is_empty() {
        seen.clone_into(revision);
    }
}

/// What is no event may be a refusal.
fn decoded<K: Kind>(line: &[u8]) -> Result<Event<K::Object>, kube::Error> {
    decode::event::<K>(line).map_err(|error| match serde_json::from_slice::<Status>(line) {
        Ok(status) => kube::Error::Api(Box::new(status)),
        Err(_) => kube::Error::SerdeError(error),
    })
}

fn silence_error(after: Duration) -> kube::Error {
    let message = format!("no sign of life for {} seconds", after.as_secs());
    kube::Error::Service(std::io::Error::new(std::io::ErrorKind::TimedOut, message).into())
}

/// What is wrong and what to do about it.
fn explain(error: &kube::Error, what: &str, resource: &str) -> Problem {
    match error {
        kube::Error::Api(status) if status.code == 404 => Problem {
            forbidden: false,
            message: format!(
                "the API server does not know {resource}: install Coppice's CRDs (deploy/install.yaml)"
            ),
        },
        kube::Error::Api(status) if status.code == 401 || status.code == 403 => Problem {
            forbidden: true,
            message: format!(
                "the API server refuses to {what} {resource}: {}; apply the ClusterRole of deploy/install.yaml",
                status.message
            ),
        },
        error => Problem {
            forbidden: false,
            message: format!("cannot {what} {resource}: {}", crate::error::chain(error)),
        },
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;
    use std::sync::atomic::AtomicUsize;
    use std::sync::atomic::Ordering::Relaxed;

    use axum::body::Bytes;
    use http::{Request, Response};
    use kube::client::Body;
    use serde_json::{Value, json};
    use tokio::sync::mpsc;
    use tower::{BoxError, Service};

    use super::*;
    use crate::admin::Readiness;
    use crate::client::Deadlines;
    use crate::kind::testing::Widgets;
    use crate::server_clock::ServerClock;

    fn widget(namespace: &str, name: &str, size: &Value) -> Value {
        json!({"metadata": {"name": name, "namespace": namespace, "resourceVersion": "3"}, "size": size})
    }

    /// A watch of widgets over an API server, whether it is ready, and what it wakes.
    fn watch_over<S>(service: &S) -> (Watch<Widgets>, Readiness, Arc<Mutex<Vec<String>>>)
    where
        S: Service<Request<Body>, Response = Response<axum::body::Body>, Error = BoxError>,
        S: Clone + Send + 'static,
        S::Future: Send + 'static,
    {
        let (clock, metrics) =
            (Clock::following_tokio("2026-01-01T00:00:00Z".parse().unwrap()), Metrics::new("test"));
        let (readiness, woken) = (Readiness::new(), Arc::new(Mutex::new(Vec::new())));
        let log = Arc::clone(&woken);
        let server_clock = ServerClock::new(clock.clone());
        let watch = Watch {
            store: Store::default(),
            clients: Clients::over(service, Deadlines::default(), &server_clock, &metrics),
            clock,
            metrics,
            check: readiness.register("widgets"),
            changed: Arc::new(move |namespace, name| log.lock().unwrap().push(format!("{namespace}/{name}"))),
            intervals: ResyncIntervals::default(),
            seed: 0,
        };
        (watch, readiness, woken)
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
        let (watch, readiness, woken) = watch_over(&service);
        let (store, metrics) = (watch.store.clone(), watch.metrics.clone());
        tokio::select! {
            () = watch.run(CancellationToken::new()) => {}
            _ = closed.recv() => {}
        }
        let woken = woken.lock().unwrap().clone();
        (store, metrics, readiness.is_ready(), woken)
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
        let (watch, _, _) = watch_over(&service);
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

    fn is_watch(request: &Request<Body>) -> bool {
        request.uri().query().is_some_and(|query| query.contains("watch=true"))
    }

    fn event(kind: &str, object: &Value) -> String {
        format!("{}\n", json!({"type": kind, "object": object}))
    }

    #[tokio::test]
    async fn one_undecodable_object_stops_neither_list_nor_watch() {
        let (store, metrics, ready, woken) = follow(Vec::new()).await;
        assert!(ready, "an odd object of a tenant is no reason not to be ready");
        assert_eq!(store.decoded("good").unwrap().len(), 1);
        assert_eq!(store.decoded("bad").unwrap_err().reason, Reason::Undecodable);
        assert_eq!(woken[..2], ["good/b", "bad/a"]);
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
        let (store, metrics, ready, woken) = follow(frames).await;
        assert!(ready);
        assert_eq!(store.decoded("bad").unwrap()[0].size, 2);
        assert_eq!(
            store.decoded("good").unwrap_err().to_string(),
            "c has more than 8192 bytes of labels; remove some or delete it"
        );
        assert_eq!(woken[woken.len() - 4..], ["bad/a", "good/c", "good/b", "good/b"]);
        let shown = metrics.encode();
        assert!(!shown.contains("coppice_watch_restarts_total"), "{shown}");
    }
}
