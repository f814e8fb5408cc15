//! One LIST, then one WATCH, for ever: keeps a [`Store`] current and calls its subscribers.
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

use crate::client::Clients;
use crate::clock::Clock;
use crate::collapse::{Collapse, OnCollapse};
use crate::decode::{self, Event, Item, Unreadable};
use crate::intervals::ResyncIntervals;
use crate::kind::Kind;
use crate::metrics::Metrics;
use crate::read;
use crate::readiness::Check;
use crate::store::{Freshness, Store, WatchProblem};

/// How much longer than a watch lasts to wait for a sign of life before the connection is given up.
const GRACE: Duration = Duration::from_secs(10);
/// How long the API server may take to accept a watch.
const OPEN: Duration = Duration::from_secs(15);
/// By how much the API server's clock may have been faster than ours while a watch lasted.
const CLOCK_DRIFT: Duration = Duration::from_secs(1);
/// A list that comes later than this after the last watch was answered slowly, or asked for late.
const MAX_LATE: Duration = Duration::from_secs(3);
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
    /// What it calls for each change.
    pub changed: Changed,
    /// What is called when a list has collapsed.
    pub on_collapse: OnCollapse,
    /// How often to look for missed events.
    pub intervals: ResyncIntervals,
    /// [`WatchEnvironment::seed`](crate::watches::WatchEnvironment::seed).
    pub seed: u64,
}

/// How far a watch has come.
struct Progress {
    /// Failures in a row: what ends them is an event or a bookmark, or a watch that ended in order. That a watch could be
    /// opened says nothing yet.
    failures: u32,
    /// Until when events were followed, at least; none before the first list.
    followed: Option<Instant>,
    /// Whether something may have been missed, even so.
    gap: bool,
}

impl Progress {
    /// For how long events were not followed until a list, if so.
    fn gap_before(&self, list: Option<Instant>) -> Option<Duration> {
        let time = list.zip(self.followed).map_or(Duration::ZERO, |(list, until)| list - until);
        (self.gap || time > MAX_LATE).then_some(time)
    }
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
        let mut progress = Progress { failures: 0, followed: None, gap: true };
        let mut context = self.store.context();
        loop {
            context.mark_unchanged();
            tokio::select! {
                biased;
                _ = context.changed() => {
                    if K::CONTEXT_SELECTS {
                        // What was not kept until now was missed.
                        progress.gap = true;
                        self.check.not_ready("what is kept of it has changed: it is listed again");
                        self.metrics.watch_unsynced(K::RESOURCE);
                    }
                    tokio::time::sleep(self.clients.backpressure.remaining()).await;
                }
                () = self.list_and_watch(&mut progress) => {}
            }
        }
    }

    /// Lists once, and watches until a list is needed again.
    async fn list_and_watch(&self, progress: &mut Progress) {
        let mut revision = match self.list(progress).await {
            Ok(revision) => revision,
            Err(error) => {
                progress.gap = true;
                return self.note_problem(&error, "list", progress).await;
            }
        };
        self.check.ready();
        // Whatever ends it: that a watch fails says so itself.
        progress.gap = false;
        let ended = self.watch_on(&mut revision, progress).await;
        progress.gap = ended.is_err();
        if progress.gap {
            self.store.interrupted();
        }
        match ended {
            Ok(()) => {}
            Err(WatchError::Expired) => {
                self.metrics.watch_restarted(K::RESOURCE, "expired");
                self.pause(progress).await;
            }
            Err(WatchError::Stale) => self.metrics.watch_restarted(K::RESOURCE, "stale"),
            Err(WatchError::Failed(error)) => self.note_problem(&error, "watch", progress).await,
        }
    }

    /// Watches from a revision on, one watch after the other, until it is time for a list again, which recovers lost
    /// events (H5). The list comes earlier if nothing has arrived for too long.
    async fn watch_on(&self, revision: &mut String, progress: &mut Progress) -> Result<(), WatchError> {
        let until = Instant::now() + self.intervals.until_relist(&read::path::<K>(""), K::BULK, self.seed);
        while Instant::now() < until {
            if matches!(self.store.freshness(), Freshness::Stale(_)) {
                return Err(WatchError::Stale);
            }
            match self.follow(revision, progress).await.map_err(WatchError::Failed)? {
                WatchEnd::Closed => progress.failures = 0,
                WatchEnd::CutShort => self.pause(progress).await,
                WatchEnd::Expired => return Err(WatchError::Expired),
            }
        }
        Ok(())
    }

    /// Lists everything, replaces the store in one step and reports what differs; after a gap, every object.
    async fn list(&self, progress: &mut Progress) -> Result<String, kube::Error> {
        // What is kept now may be less than what was kept before: then it cannot be compared.
        let comparable = !K::CONTEXT_SELECTS || !matches!(self.store.freshness(), Freshness::NotSynced(_));
        let asked = self.clock.monotonic();
        let mut list = self.store.relist();
        let mut cursor = read::Cursor::default();
        // The list shows what there was at its first page.
        let mut shown = None;
        let revision = loop {
            let page = read::page::<K>(&self.clients.reads, "", &mut cursor, &list.context).await?;
            shown = shown.or_else(|| Some(Instant::now()));
            page.items.into_iter().for_each(|item| list.push(item));
            if cursor.is_done() {
                break page.revision;
            }
        };
        let gap_before = progress.gap_before(shown);
        let comparison = list.compare();
        if K::CAN_COLLAPSE && comparable && comparison.is_collapse(gap_before, K::BULK) {
            let (before, missing) = (comparison.before, comparison.missing);
            let after_gap = gap_before.is_some();
            (self.on_collapse)(Collapse { resource: K::RESOURCE, before, missing, after_gap });
        }
        let gap = gap_before.is_some() || !comparable;
        progress.followed = shown;
        let before = self.store.unreadable();
        let differing = self.store.replace(list, gap.then_some(asked));
        self.metrics.watch_synced(K::RESOURCE, self.store.len(), self.clock.now());
        self.log_unreadable(&before);
        // After a gap what was unknown is known again, though no object may have changed.
        let all = if gap { self.store.keys() } else { Vec::new() };
        for (namespace, name) in differing.into_iter().chain(all) {
            (self.changed)(&namespace, &name);
        }
        Ok(revision)
    }

    async fn follow(&self, revision: &mut String, progress: &mut Progress) -> Result<WatchEnd, kube::Error> {
        let uri = format!(
            "{}?watch=true&allowWatchBookmarks=true&timeoutSeconds={}&resourceVersion={revision}{}",
            read::path::<K>(""),
            self.intervals.watch.as_secs(),
            read::selector_parameter::<K>()
        );
        let context = Arc::clone(&self.store.context().borrow());
        let asked = Instant::now();
        let open = read::lines(&self.clients.reads, &uri, read::object_form::<K>());
        let Ok(lines) = timeout(OPEN, open).await else { return Err(silence_error(OPEN)) };
        let mut lines = match lines {
            Err(kube::Error::Api(status)) if status.code == 410 => return Ok(WatchEnd::Expired),
            other => other?,
        };
        let (silence, mut heard) = (self.intervals.watch + GRACE, false);
        // A process that was stopped reads long after the API server has written, and ended the watch.
        let followed = || Some(Instant::now().min(asked + self.intervals.watch + CLOCK_DRIFT));
        loop {
            let Ok(line) = timeout(silence, lines.next()).await else {
                return Err(silence_error(silence));
            };
            let Some(line) = line else {
                // Ended in order and in time, there was nothing more to say. Bookmarks alone do not do: the API server
                // promises none (kubernetes.io/docs/reference/using-api/api-concepts, "Watch bookmarks").
                let in_time = asked.elapsed() + CLOCK_DRIFT >= self.intervals.watch;
                if in_time || heard {
                    progress.followed = followed();
                }
                if in_time {
                    self.alive(progress);
                    self.metrics.watch_alive(K::RESOURCE, self.store.len(), self.clock.now());
                }
                return Ok(if in_time || heard { WatchEnd::Closed } else { WatchEnd::CutShort });
            };
            let event = decoded::<K>(line?, &context)?;
            self.alive(progress);
            heard = true;
            match event {
                Event::Error(status) if status.code == 410 => return Ok(WatchEnd::Expired),
                Event::Error(status) => return Err(kube::Error::Api(status)),
                Event::Changed(item) => {
                    advance(revision, &item.object_ref.revision);
                    self.apply(item);
                }
                Event::Unwanted(object_ref) => {
                    advance(revision, &object_ref.revision);
                    if self.store.remove(&object_ref.namespace, &object_ref.name) {
                        (self.changed)(&object_ref.namespace, &object_ref.name);
                    }
                }
                Event::Deleted(object_ref) => {
                    advance(revision, &object_ref.revision);
                    self.store.remove(&object_ref.namespace, &object_ref.name);
                    (self.changed)(&object_ref.namespace, &object_ref.name);
                }
                Event::Bookmark(seen) => advance(revision, &seen),
            }
            progress.followed = followed();
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

    fn alive(&self, progress: &mut Progress) {
        progress.failures = 0;
        self.store.seen();
    }

    /// Shows what is wrong, and waits before the next attempt.
    async fn note_problem(&self, error: &kube::Error, what: &'static str, progress: &mut Progress) {
        let problem = explain(error, what, K::RESOURCE);
        if self.store.note_problem(problem.clone()) {
            // Once for each kind of trouble, not at every attempt.
            tracing::warn!(resource = K::RESOURCE, error = %problem.message, "watch interrupted");
        }
        self.metrics.watch_restarted(K::RESOURCE, if problem.forbidden { "forbidden" } else { "error" });
        self.check.not_ready(&problem.message);
        self.pause(progress).await;
    }

    async fn pause(&self, progress: &mut Progress) {
        let pause = FIRST_PAUSE.saturating_mul(1 << progress.failures.min(6)).min(MAX_PAUSE);
        progress.failures += 1;
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
fn decoded<K: Kind>(line: &[u8], context: &K::Context) -> Result<Event<K::Object>, kube::Error> {
    decode::event::<K>(line, context).map_err(|error| match serde_json::from_slice::<Status>(line) {
        Ok(status) => kube::Error::Api(Box::new(status)),
        Err(_) => kube::Error::SerdeError(error),
    })
}

fn silence_error(after: Duration) -> kube::Error {
    let message = format!("no sign of life for {} seconds", after.as_secs());
    kube::Error::Service(std::io::Error::new(std::io::ErrorKind::TimedOut, message).into())
}

/// What is wrong and what to do about it.
fn explain(error: &kube::Error, what: &str, resource: &str) -> WatchProblem {
    match error {
        kube::Error::Api(status) if status.code == 404 => WatchProblem {
            forbidden: false,
            message: format!(
                "the API server does not know {resource}: install Coppice's CRDs (deploy/install.yaml)"
            ),
        },
        kube::Error::Api(status) if status.code == 401 || status.code == 403 => WatchProblem {
            forbidden: true,
            message: format!(
                "the API server refuses to {what} {resource}: {}; apply the ClusterRole of deploy/install.yaml",
                status.message
            ),
        },
        error => WatchProblem {
            forbidden: false,
            message: format!("cannot {what} {resource}: {}", crate::error::chain(error)),
        },
    }
}

#[cfg(test)]
#[path = "watch_tests.rs"]
mod tests;

#[cfg(test)]
#[path = "watch_collapse_tests.rs"]
mod collapse_tests;
