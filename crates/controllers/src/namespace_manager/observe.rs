//! What there is to decide on: from caches, or (before anything destructive) straight from the API server.

use std::sync::Arc;
use std::time::Duration;

use coppice_api::Reason;
use coppice_api::config::GovernorStatus;
use coppice_api::manager::{Action, Intent};
use coppice_lifecycle::facts::{Fact, JobFacts, Many, NamespaceFacts, PodFacts, World};
use coppice_lifecycle::law::Law;
use coppice_lifecycle::plan::{Delivery, MAX_MANAGERS, ManagerFacts, Observed};
use coppice_lifecycle::time::ServerTime;
use coppice_notify::outbox::Attempt;
use coppice_runtime::decode::Unreadable;
use coppice_runtime::error::chain;
use coppice_runtime::governor::Booking;
use coppice_runtime::kinds::Manager;
use coppice_runtime::leader::LeaderState;
use coppice_runtime::mutants::{self, Mutant};
use coppice_runtime::read;
use coppice_runtime::store::{Freshness, Named, Problem, Store};
use jiff::Timestamp;
use tokio::time::Instant;

use crate::shared::{Key, Shared};

/// Everything that a plan rests on, with the instant of observation.
pub(super) struct Observation {
    pub(super) manager: Arc<Manager>,
    pub(super) namespace: Option<Arc<NamespaceFacts>>,
    pub(super) pods: Fact<Vec<Arc<PodFacts>>>,
    pub(super) jobs: Fact<Vec<Arc<JobFacts>>>,
    pub(super) law: Arc<Law>,
    pub(super) ledger: GovernorStatus,
    pub(super) managed: u64,
    /// How many managers of the namespace come before this one.
    before: usize,
    pub(super) stale: Option<(Reason, String)>,
    pub(super) delivery: Delivery,
    pub(super) at: ServerTime,
    /// When the first question was asked whose answer is in here: nothing in it is older.
    asked: Instant,
    /// What could not be read afresh, if anything.
    pub(super) unread: Option<String>,
}

/// What the caches know of a manager; none if there is no such manager.
pub(super) fn cached(shared: &Shared, key: &Key) -> Option<Observation> {
    let manager = shared.managers.get(&key.namespace, &key.name)?;
    Some(observation(shared, key, manager))
}

/// The same with a manager that was just read or written, and may be newer than the cache.
pub(super) fn with(shared: &Shared, key: &Key, manager: Manager) -> Observation {
    observation(shared, key, Arc::new(manager))
}

fn observation(shared: &Shared, key: &Key, manager: Arc<Manager>) -> Observation {
    let (law, ledger) = shared.law();
    Observation {
        namespace: shared.namespaces.get("", &key.namespace),
        pods: fact(shared, &shared.pods, key, "pods"),
        jobs: fact(shared, &shared.jobs, key, "jobs"),
        law,
        ledger,
        managed: shared.managed(),
        before: before(shared, &manager),
        stale: stale(shared, key),
        delivery: delivery(shared, manager.status.intent.as_ref()),
        at: shared.time(),
        asked: Instant::now(),
        unread: None,
        manager,
    }
}

/// Reads everything afresh. None if the manager is gone. Pods and Jobs that cannot be read are unknown; the policies that
/// do not need them go on.
pub(super) async fn fresh(shared: &Shared, key: &Key) -> Result<Option<Observation>, kube::Error> {
    let client = &shared.clients.reads;
    let asked = Instant::now();
    let lists = || {
        let (pods, jobs) =
            (read::list::<PodFacts>(client, &key.namespace), read::list::<JobFacts>(client, &key.namespace));
        futures::future::join(pods, jobs)
    };
    // All at once: a list of pods can take the API server a tenth of a second, and each answer is held against what was
    // decided by itself.
    let expected = shared.managers.get(&key.namespace, &key.name).is_some_and(|m| asks_for_pods(&m));
    let (manager, namespace, listed) = futures::future::join3(
        read::get::<Manager>(client, &key.namespace, &key.name),
        read::get::<NamespaceFacts>(client, "", &key.namespace),
        async { if expected { Some(lists().await) } else { None } },
    )
    .await;
    let Some(manager) = manager?.map(Arc::new) else { return Ok(None) };
    let mut observation = observation(shared, key, Arc::clone(&manager));
    observation.namespace = namespace?.map(Arc::new);
    if asks_for_pods(&manager) {
        let (pods, jobs) = match listed {
            Some(listed) => listed,
            None => lists().await,
        };
        // How long a source was followed without a gap is known by its watch alone: what the watch does not know, a
        // list cannot tell either.
        observation.pods = renew(observation.pods, pods, "pods", &mut observation.unread);
        observation.jobs = renew(observation.jobs, jobs, "jobs", &mut observation.unread);
    }
    observation.at = shared.time();
    observation.asked = asked;
    Ok(Some(observation))
}

/// How many managers of its namespace come before this one: no more are counted than matter.
fn before(shared: &Shared, manager: &Manager) -> usize {
    let all = shared.managers.list(&manager.namespace);
    if all.len() <= MAX_MANAGERS {
        return 0;
    }
    let comes_before = |other: &Manager| (other.created, &*other.name) < (manager.created, &*manager.name);
    all.iter().filter(|other| comes_before(other)).take(MAX_MANAGERS).count()
}

fn asks_for_pods(manager: &Manager) -> bool {
    manager.spec.as_ref().is_ok_and(|spec| spec.policies.iter().any(|p| p.when.pods_succeed.is_some()))
}

impl Observation {
    /// The same, under the settings and the budget that were booked under.
    pub(super) fn under(mut self, shared: &Shared, booking: &Booking) -> Self {
        self.law = shared.law_of(&booking.settings);
        self.ledger = booking.ledger.clone();
        self
    }

    /// How old the oldest of these facts may be.
    pub(super) fn age(&self) -> Duration {
        self.asked.elapsed()
    }

    /// Whether a watch that this manager needs has not been heard of for too long.
    pub(super) fn behind(&self) -> bool {
        let stale = |reason: Option<Reason>| reason == Some(Reason::Stale);
        let pods = [unknown(&self.pods), unknown(&self.jobs)].into_iter().any(stale);
        stale(self.stale.as_ref().map(|(reason, _)| *reason)) || pods && asks_for_pods(&self.manager)
    }

    /// The same, as the pure planner takes it.
    pub(super) fn as_observed(&self) -> Observed<'_> {
        Observed {
            manager: ManagerFacts {
                namespace: &self.manager.namespace,
                name: &self.manager.name,
                uid: &self.manager.uid,
                generation: self.manager.generation,
                terminating: self.manager.terminating,
                spec: self.manager.understood(),
                status: &self.manager.status,
            },
            world: self
                .namespace
                .as_deref()
                .map(|namespace| World::new(namespace, borrow(&self.pods), borrow(&self.jobs))),
            law: &self.law,
            ledger: &self.ledger,
            before: self.before,
            managed: self.managed,
            stale: self.stale.clone(),
            delivery: self.delivery.clone(),
        }
    }
}

fn unknown<T>(fact: &Fact<T>) -> Option<Reason> {
    match fact {
        Fact::Known { .. } => None,
        Fact::Unknown { reason, .. } => Some(*reason),
    }
}

fn borrow<T>(fact: &Fact<Vec<Arc<T>>>) -> Fact<Many<'_, T>> {
    match fact {
        Fact::Known { value, since } => Fact::Known { value: Many::Shared(value), since: *since },
        Fact::Unknown { reason, message } => Fact::Unknown { reason: *reason, message: message.clone() },
    }
}

fn renew<T>(
    cached: Fact<Vec<Arc<T>>>,
    listed: Result<Result<Vec<T>, Unreadable>, kube::Error>,
    what: &str,
    unread: &mut Option<String>,
) -> Fact<Vec<Arc<T>>> {
    match (cached, listed) {
        (Fact::Known { since, .. }, Ok(Ok(listed))) => {
            Fact::Known { value: listed.into_iter().map(Arc::new).collect(), since }
        }
        (Fact::Known { .. }, Ok(Err(unreadable))) => not_understood(&unreadable, what),
        (unknown @ Fact::Unknown { .. }, _) => unknown,
        (Fact::Known { since, .. }, Err(_)) if mutants::active(Mutant::UnreadableIsEmpty) => {
            Fact::Known { value: Vec::new(), since }
        }
        (Fact::Known { .. }, Err(error)) => {
            let message = format!("the facts could not be read afresh: {}", chain(&error));
            *unread = Some(message.clone());
            Fact::Unknown { reason: Reason::Stale, message }
        }
    }
}

fn fact<T: Named + PartialEq>(shared: &Shared, store: &Store<T>, key: &Key, what: &str) -> Fact<Vec<Arc<T>>> {
    match store.freshness() {
        Freshness::Fresh(since) => match store.understood(&key.namespace) {
            // Followers keep their caches, but nobody looked at what they saw.
            Ok(value) => {
                let since = shared.server_clock.at(since.max(leads_since(shared)));
                Fact::Known { value, since }
            }
            Err(unreadable) => not_understood(&unreadable, what),
        },
        Freshness::NotSynced(_) if mutants::active(Mutant::ActBeforeSync) => {
            Fact::Known { value: store.list(&key.namespace), since: Timestamp::MIN }
        }
        stale => {
            let (reason, message) = why(&stale, what);
            Fact::Unknown { reason, message }
        }
    }
}

/// Nobody knows what an object that cannot be understood would have said.
fn not_understood<T>(unreadable: &Unreadable, what: &str) -> Fact<T> {
    Fact::Unknown { reason: unreadable.reason, message: format!("{what} are not known: {unreadable}") }
}

/// On the monotonic clock.
fn leads_since(shared: &Shared) -> Duration {
    match shared.gate.state() {
        LeaderState::Leader { since, .. } => since,
        LeaderState::Follower { .. } | LeaderState::Unknown { .. } => shared.server_clock.clock().monotonic(),
    }
}

/// Whether the caches that every decision rests on are behind, or the namespace itself cannot be understood.
fn stale(shared: &Shared, key: &Key) -> Option<(Reason, String)> {
    if mutants::active(Mutant::ActBeforeSync) {
        return None;
    }
    let all = [
        (shared.managers.freshness(), "namespacemanagers"),
        (shared.namespaces.freshness(), "namespaces"),
        (shared.configs.freshness(), "coppiceconfigs"),
    ];
    let behind = all.iter().find(|(f, _)| !matches!(f, Freshness::Fresh(_))).map(|(f, what)| why(f, what));
    behind.or_else(|| {
        let unreadable = shared.namespaces.unreadable_object(&key.namespace)?;
        Some((unreadable.reason, format!("the namespace is not known: {unreadable}")))
    })
}

fn why(freshness: &Freshness, what: &str) -> (Reason, String) {
    let detail =
        |problem: &Option<Problem>| problem.as_ref().map(|p| format!(": {}", p.message)).unwrap_or_default();
    match freshness {
        Freshness::NotSynced(Some(p)) | Freshness::Stale(Some(p)) if p.forbidden => {
            (Reason::Forbidden, format!("{what} may not be watched: {}", p.message))
        }
        Freshness::NotSynced(p) => {
            (Reason::NotSynced, format!("{what} have not been listed yet{}", detail(p)))
        }
        Freshness::Stale(p) => {
            (Reason::Stale, format!("nothing has been heard of {what} for 90 seconds{}", detail(p)))
        }
        // Not asked for fresh ones.
        Freshness::Fresh(_) => (Reason::Watching, String::new()),
    }
}

fn delivery(shared: &Shared, intent: Option<&Intent>) -> Delivery {
    let attempt = intent
        .filter(|intent| intent.action == Action::Webhook)
        .and_then(|intent| shared.outbox()?.state(&intent.id));
    match attempt {
        None => Delivery::None,
        Some(Attempt::InFlight) => Delivery::InFlight,
        Some(Attempt::Done(Ok(delivered))) => Delivery::Delivered(delivered.status.to_string()),
        Some(Attempt::Done(Err(failure))) => Delivery::Failed {
            error: failure.message,
            permanent: failure.permanent,
            retry_after: failure.retry_after,
        },
    }
}
