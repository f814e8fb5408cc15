//! One LIST, then one WATCH, for ever: keeps a [`Store`] current and wakes whoever depends on it.
//!
//! Our own loop instead of `kube::runtime::watcher` for two things that it does not offer: objects are projected while
//! they are decoded, and every sign of life, bookmarks included, is noted, so that a watch that died silently is told
//! from one that has nothing to say (H6). Why and what else was considered: `docs/decisions/0003-own-watch.md`.

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
use crate::kinds::Watched;
use crate::metrics::Metrics;
use crate::pace::Pace;
use crate::read;
use crate::store::{Problem, Store};

/// How much longer than a watch lasts to wait for a sign of life before the connection is given up.
const GRACE: Duration = Duration::from_secs(10);
/// How long the API server may take to accept a watch.
const OPEN: Duration = Duration::from_secs(15);
const FIRST_PAUSE: Duration = Duration::from_millis(250);
const LONGEST_PAUSE: Duration = Duration::from_secs(10);

/// Told the namespace and name of every object that changed or is gone.
pub type Changed = Arc<dyn Fn(&str, &str) + Send + Sync>;

/// The watch of one kind.
pub struct Watch<T: Watched> {
    /// The cache that it fills.
    pub store: Store<T>,
    /// The API server.
    pub clients: Clients,
    /// For the instant of a list.
    pub clock: Clock,
    /// Where it counts.
    pub metrics: Metrics,
    /// Its line in `/readyz`.
    pub check: Check,
    /// Whom it wakes.
    pub changed: Changed,
    /// How often what may have been missed is looked for.
    pub pace: Pace,
}

/// Why a list is needed out of turn.
enum Interrupted {
    /// The revision is no longer served.
    Expired,
    /// The watch failed.
    Failed(kube::Error),
}

/// How a watch ended.
enum Ended {
    /// The revision is no longer served: list again.
    Expired,
    /// The API server closed the stream, as it does after [`Pace::watch`]: go on from the last revision.
    Closed,
}

impl<T: Watched> Watch<T> {
    /// Follows the API server until told to stop. Errors are shown, waited out and recovered from.
    pub async fn run(self, stop: CancellationToken) {
        tokio::select! {
            biased;
            () = stop.cancelled() => {}
            () = self.forever() => {}
        }
    }

    async fn forever(&self) {
        self.store.believe_for(self.pace.fresh);
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
                    self.trouble(&error, "list", &mut failures).await;
                    continue;
                }
            };
            self.check.ready();
            match self.watch_on(&mut revision, &mut failures).await {
                Ok(()) => gap = false,
                Err(Interrupted::Expired) => {
                    gap = true;
                    self.metrics.watch_restarted(T::RESOURCE, "expired");
                    self.pause(&mut failures).await;
                }
                Err(Interrupted::Failed(error)) => {
                    gap = true;
                    self.trouble(&error, "watch", &mut failures).await;
                }
            }
        }
    }

    /// Watches from a revision on, one watch after the other, until it is time for a list again: events that were lost
    /// on the way, by whoever, are made up for by then (H5).
    async fn watch_on(&self, revision: &mut String, failures: &mut u32) -> Result<(), Interrupted> {
        let until = Instant::now() + self.pace.relist + Duration::from_secs(T::RESOURCE.len() as u64 * 7);
        while Instant::now() < until {
            match self.follow(revision, failures).await.map_err(Interrupted::Failed)? {
                Ended::Closed => *failures = 0,
                Ended::Expired => return Err(Interrupted::Expired),
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
            let page = read::page::<T>(&self.clients.reads, "", &mut cursor).await?;
            page.items.into_iter().for_each(|item| list.push(item));
            if cursor.is_done() {
                break page.revision;
            }
        };
        let before = self.store.unreadable();
        let differing = self.store.replace(list, since);
        self.metrics.watch_synced(T::RESOURCE, self.store.len(), self.clock.now());
        self.tell_unreadable(&before);
        // After a gap what was unknown is known again, though no object may have changed.
        let all = if gap { self.store.keys() } else { Vec::new() };
        for (namespace, name) in differing.into_iter().chain(all) {
            (self.changed)(&namespace, &name);
        }
        Ok(revision)
    }

    async fn follow(&self, revision: &mut String, failures: &mut u32) -> Result<Ended, kube::Error> {
        let uri = format!(
            "{}?watch=true&allowWatchBookmarks=true&timeoutSeconds={}&resourceVersion={revision}",
            read::path::<T>(""),
            self.pace.watch.as_secs()
        );
        let open = read::lines(&self.clients.reads, &uri);
        let Ok(lines) = timeout(OPEN, open).await else { return Err(silent(OPEN)) };
        let mut lines = match lines {
            Err(kube::Error::Api(status)) if status.code == 410 => return Ok(Ended::Expired),
            other => other?,
        };
        let patience = self.pace.watch + GRACE;
        loop {
            let Ok(line) = timeout(patience, lines.next()).await else { return Err(silent(patience)) };
            let Some(line) = line else { return Ok(Ended::Closed) };
            let event = understood(line?)?;
            self.alive(failures);
            match event {
                Event::Changed(item) => {
                    advance(revision, &item.place.revision);
                    self.apply(item);
                }
                Event::Deleted(place) => {
                    advance(revision, &place.revision);
                    self.store.remove(&place.namespace, &place.name);
                    (self.changed)(&place.namespace, &place.name);
                }
                Event::Bookmark(seen) => advance(revision, &seen),
                Event::Error(status) if status.code == 410 => return Ok(Ended::Expired),
                Event::Error(status) => return Err(kube::Error::Api(status)),
            }
            self.metrics.watch_alive(T::RESOURCE, self.store.len(), self.clock.now());
            self.count_unreadable();
        }
    }

    fn apply(&self, item: Item<T>) {
        let place = item.place.clone();
        let before = item.object.is_err().then(|| self.store.unreadable());
        if self.store.put(item) {
            (self.changed)(&place.namespace, &place.name);
        }
        if let Some(before) = before {
            self.tell_unreadable(&before);
        }
    }

    /// Shows in which namespaces something cannot be understood any more; not each object, of which there may be many.
    fn tell_unreadable(&self, before: &BTreeMap<Box<str>, Unreadable>) {
        for (namespace, unreadable) in self.store.unreadable() {
            if !before.contains_key(&namespace) {
                tracing::warn!(
                    resource = T::RESOURCE,
                    %namespace,
                    object = %unreadable.name,
                    reason = %unreadable.reason,
                    "{unreadable}; until then the facts about {} are unknown there",
                    T::RESOURCE,
                );
            }
        }
        self.count_unreadable();
    }

    fn count_unreadable(&self) {
        for reason in [Reason::Undecodable, Reason::TooLarge] {
            let count = self.store.count_unreadable(reason);
            self.metrics.watch_unreadable(T::RESOURCE, reason.as_str(), count);
        }
    }

    fn alive(&self, failures: &mut u32) {
        *failures = 0;
        self.store.seen();
    }

    /// Shows what is wrong, and waits before the next attempt.
    async fn trouble(&self, error: &kube::Error, what: &'static str, failures: &mut u32) {
        let problem = explain(error, what, T::RESOURCE);
        if self.store.trouble(problem.clone()) {
            // Once for each kind of trouble, not at every attempt.
            tracing::warn!(resource = T::RESOURCE, error = %problem.message, "watch interrupted");
        }
        self.metrics.watch_restarted(T::RESOURCE, if problem.forbidden { "forbidden" } else { "error" });
        self.check.not_ready(&problem.message);
        self.pause(failures).await;
    }

    async fn pause(&self, failures: &mut u32) {
        let pause = FIRST_PAUSE.saturating_mul(1 << (*failures).min(6)).min(LONGEST_PAUSE);
        *failures += 1;
        tokio::time::sleep(pause.max(self.clients.patience.remaining())).await;
    }
}

/// Goes on from there, if it says where it is.
fn advance(revision: &mut String, seen: &str) {
    if !seen.is_empty() {
        seen.clone_into(revision);
    }
}

/// What is no event may be a refusal.
fn understood<T: Watched>(line: &[u8]) -> Result<Event<T>, kube::Error> {
    decode::event(line).map_err(|error| match serde_json::from_slice::<Status>(line) {
        Ok(status) => kube::Error::Api(Box::new(status)),
        Err(_) => kube::Error::SerdeError(error),
    })
}

fn silent(after: Duration) -> kube::Error {
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

    use axum::body::Bytes;
    use coppice_lifecycle::facts::JobFacts;
    use http::{Request, Response};
    use kube::client::Body;
    use serde_json::{Value, json};
    use tokio::sync::mpsc;
    use tower::BoxError;

    use super::*;
    use crate::admin::Readiness;
    use crate::client::Deadlines;
    use crate::server_clock::ServerClock;

    fn job(namespace: &str, name: &str, succeeded: &Value) -> Value {
        json!({"metadata": {"name": name, "namespace": namespace, "resourceVersion": "3"}, "status": {"succeeded": succeeded}})
    }

    /// Follows a list of one Job that cannot be decoded and one that can, and then these events.
    async fn follow(events: Vec<Vec<u8>>) -> (Store<JobFacts>, Metrics, bool, Vec<String>) {
        let list = json!({"metadata": {"resourceVersion": "1"}, "items": [job("bad", "a", &json!(-1)), job("good", "b", &json!(1))]});
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
        let (clock, metrics) =
            (Clock::following_tokio("2026-01-01T00:00:00Z".parse().unwrap()), Metrics::new("test"));
        let (store, readiness, woken) =
            (Store::default(), Readiness::new(), Arc::new(Mutex::new(Vec::new())));
        let log = Arc::clone(&woken);
        let watch = Watch::<JobFacts> {
            store: store.clone(),
            clients: Clients::over(
                &service,
                Deadlines::default(),
                &ServerClock::new(clock.clone()),
                &metrics,
            ),
            clock,
            metrics: metrics.clone(),
            check: readiness.register("jobs"),
            changed: Arc::new(move |namespace, name| log.lock().unwrap().push(format!("{namespace}/{name}"))),
            pace: Pace::default(),
        };
        tokio::select! {
            () = watch.run(CancellationToken::new()) => {}
            _ = closed.recv() => {}
        }
        let woken = woken.lock().unwrap().clone();
        (store, metrics, readiness.is_ready(), woken)
    }

    fn is_watch(request: &Request<Body>) -> bool {
        request.uri().query().is_some_and(|query| query.contains("watch=true"))
    }

    fn event(kind: &str, object: &Value) -> String {
        format!("{}\n", json!({"type": kind, "object": object}))
    }

    #[tokio::test]
    async fn one_object_that_cannot_be_understood_stops_neither_list_nor_watch() {
        let (store, metrics, ready, woken) = follow(Vec::new()).await;
        assert!(ready, "an odd object of a tenant is no reason not to be ready");
        assert_eq!(store.understood("good").unwrap().len(), 1);
        assert_eq!(store.understood("bad").unwrap_err().reason, Reason::Undecodable);
        assert_eq!(woken[..2], ["good/b", "bad/a"]);
        let line = "coppice_watch_objects_unreadable{kind=\"jobs\",reason=\"Undecodable\"} 1";
        assert!(metrics.encode().contains(line));
        let large: serde_json::Map<_, _> = (0..5_000).map(|n| (format!("k{n}"), json!("v"))).collect();
        let mut large = json!({"spec": {"template": {"metadata": {"labels": large}}}});
        large["metadata"] = job("good", "c", &json!(0))["metadata"].take();
        let text = [
            event("MODIFIED", &job("bad", "a", &json!(2))),
            event("ADDED", &large),
            event("MODIFIED", &job("good", "b", &json!("odd"))),
            event("DELETED", &job("good", "b", &json!("odd"))),
        ];
        // As the network cuts them.
        let frames = text.concat().into_bytes().chunks(1000).map(<[u8]>::to_vec).collect();
        let (store, metrics, ready, woken) = follow(frames).await;
        assert!(ready);
        assert_eq!(store.understood("bad").unwrap()[0].succeeded, 2);
        assert_eq!(
            store.understood("good").unwrap_err().to_string(),
            "c has more than 8192 bytes of labels in its pod template; remove some or delete it"
        );
        assert_eq!(woken[woken.len() - 4..], ["bad/a", "good/c", "good/b", "good/b"]);
        let shown = metrics.encode();
        assert!(!shown.contains("coppice_watch_restarts_total"), "{shown}");
    }
}
