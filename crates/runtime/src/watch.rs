//! One LIST, then one WATCH, for ever: keeps a [`Store`] current and wakes whoever depends on it.
//!
//! Our own loop instead of `kube::runtime::watcher` for two things that it does not offer: objects are projected while
//! they are decoded, and every sign of life, bookmarks included, is noted, so that a watch that died silently is told
//! from one that has nothing to say (H6). Why and what else was considered: `docs/decisions/0003-own-watch.md`.

use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt as _;
use kube::core::WatchEvent;
use tokio::time::{Instant, timeout};
use tokio_util::sync::CancellationToken;

use crate::admin::Check;
use crate::client::Clients;
use crate::clock::Clock;
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
            for (namespace, object) in page.items.into_iter().map(T::project) {
                list.push(namespace, object);
            }
            if cursor.is_done() {
                break page.metadata.resource_version;
            }
        };
        let differing = self.store.replace(list, since);
        self.metrics.watch_synced(T::RESOURCE, self.store.len(), self.clock.now());
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
        let open = self.clients.reads.request_events::<T::Wire>(read::request(&uri)?);
        let Ok(events) = timeout(OPEN, open).await else { return Err(silent(OPEN)) };
        let events = match events {
            Err(kube::Error::Api(status)) if status.code == 410 => return Ok(Ended::Expired),
            other => other?,
        };
        let mut events = std::pin::pin!(events);
        let patience = self.pace.watch + GRACE;
        loop {
            let Ok(event) = timeout(patience, events.next()).await else { return Err(silent(patience)) };
            let Some(event) = event else { return Ok(Ended::Closed) };
            let event = event?;
            self.alive(failures);
            match event {
                WatchEvent::Added(wire) | WatchEvent::Modified(wire) => {
                    self.apply(wire, revision);
                }
                WatchEvent::Deleted(wire) => {
                    let (namespace, object) = Self::take(wire, revision);
                    self.store.remove(&namespace, object.name());
                    (self.changed)(&namespace, object.name());
                }
                WatchEvent::Bookmark(bookmark) => *revision = bookmark.metadata.resource_version,
                WatchEvent::Error(status) if status.code == 410 => return Ok(Ended::Expired),
                WatchEvent::Error(status) => return Err(kube::Error::Api(status)),
            }
            self.metrics.watch_alive(T::RESOURCE, self.store.len(), self.clock.now());
        }
    }

    fn apply(&self, wire: T::Wire, revision: &mut String) {
        let (namespace, object) = Self::take(wire, revision);
        let name: Box<str> = object.name().into();
        if self.store.upsert(&namespace, object) {
            (self.changed)(&namespace, &name);
        }
    }

    fn take(wire: T::Wire, revision: &mut String) -> (Box<str>, T) {
        if let Some(seen) = T::revision(&wire) {
            seen.clone_into(revision);
        }
        T::project(wire)
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
