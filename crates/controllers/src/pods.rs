//! The pods and Jobs of a namespace, which policies wait for: as the caches know them, or as they are read again.

use std::sync::Arc;

use coppice_api::Reason;
use coppice_kinds::{ClusterManager, Jobs, Pods};
use coppice_lifecycle::facts::{Fact, JobFacts, ObjectSlice, PodFacts};
use coppice_mutants::{Mutant, active};
use coppice_runtime::decode::Unreadable;
use coppice_runtime::kind::Kind;
use coppice_runtime::read::{self, ListError};
use coppice_runtime::store::{Freshness, Store};
use jiff::{SignedDuration, Timestamp};

use crate::context::ControllerContext;
use crate::staleness::staleness;
use crate::status_writer::FactsError;

/// Whether the cluster manager that governs a namespace waits for its pods.
pub(crate) fn are_waited_for(shared: &ControllerContext, namespace: &str) -> bool {
    if shared.cluster_managers.is_empty() {
        return false;
    }
    let record = shared.record(namespace);
    let Some(governing) = record.as_ref().and_then(|record| record.status.manager.as_ref()) else {
        return false;
    };
    let manager = shared.cluster_managers.get("", &governing.name);
    waits_any(manager.as_slice())
}

/// Whether one of these cluster managers waits for pods.
pub(crate) fn waits_any(managers: &[Arc<ClusterManager>]) -> bool {
    managers.iter().any(|manager| manager.spec.as_ref().is_ok_and(|spec| spec.needs_pods()))
}

/// Whether pods and Jobs are known, or cannot be, as far as cluster managers wait for them.
pub(crate) fn synced(shared: &ControllerContext) -> bool {
    let waits = |freshness: Freshness| matches!(freshness, Freshness::NotSynced(None));
    !waits_any(&shared.cluster_managers.list(""))
        || !(waits(shared.pods.freshness()) || waits(shared.jobs.freshness()))
}

/// What is known of the pods and Jobs of a namespace.
pub(crate) struct PodsObservation {
    pods: Fact<Vec<Arc<PodFacts>>>,
    jobs: Fact<Vec<Arc<JobFacts>>>,
    /// When anything was heard of them last.
    pub(crate) heard: Timestamp,
}

/// What the API server answered.
pub(crate) type PodsListed = (Result<Vec<PodFacts>, ListError>, Result<Vec<JobFacts>, ListError>);

/// Lists the pods and Jobs of a namespace, at once: a list of pods can take the API server a tenth of a second.
pub(crate) async fn list(shared: &ControllerContext, namespace: &str) -> PodsListed {
    let client = &shared.clients.reads;
    futures::future::join(read::list::<Pods>(client, namespace), read::list::<Jobs>(client, namespace)).await
}

impl PodsObservation {
    /// What the caches know.
    pub(crate) fn cached(shared: &ControllerContext, namespace: &str) -> Self {
        let heard = shared.pods.heard_ago().zip(shared.jobs.heard_ago());
        let ago = heard.and_then(|(pods, jobs)| SignedDuration::try_from(pods.max(jobs)).ok());
        let heard = ago.and_then(|ago| shared.now().checked_sub(ago).ok()).unwrap_or(Timestamp::MIN);
        let (pods, jobs) = (cached(shared, &shared.pods, namespace), cached(shared, &shared.jobs, namespace));
        Self { pods, jobs, heard }
    }

    /// Nothing: nobody waits for them.
    pub(crate) fn not_looked_at() -> Self {
        fn unknown<T>() -> Fact<T> {
            Fact::Unknown { reason: Reason::NotSynced, message: "nobody waits for them".to_owned() }
        }
        Self { pods: unknown(), jobs: unknown(), heard: Timestamp::MIN }
    }

    /// What was listed, where that is possible; what was not is unknown, and `read_error` says why.
    pub(crate) fn refreshed(self, (pods, jobs): PodsListed, read_error: &mut Option<String>) -> Self {
        // Only the watch knows how long a source was followed without a gap: what the watch does not know, a list
        // cannot show either.
        Self {
            pods: refreshed(self.pods, pods, read_error),
            jobs: refreshed(self.jobs, jobs, read_error),
            heard: self.heard,
        }
    }

    /// What the API server says now. An error is one of the attempt for which it is read.
    pub(crate) async fn fresh(shared: &ControllerContext, namespace: &str) -> Result<Self, FactsError> {
        let failed = |resource| move |error| FactsError::Workloads { resource, error };
        let heard = shared.now();
        let (pods, jobs) = list(shared, namespace).await;
        let (pods, jobs) = (pods.map_err(failed(Pods::RESOURCE))?, jobs.map_err(failed(Jobs::RESOURCE))?);
        Ok(Self { heard, ..Self::cached(shared, namespace).refreshed((Ok(pods), Ok(jobs)), &mut None) })
    }

    /// The pods, as the planner takes them.
    pub(crate) fn pods(&self) -> Fact<ObjectSlice<'_, PodFacts>> {
        borrow(&self.pods)
    }

    /// The Jobs, as the planner takes them.
    pub(crate) fn jobs(&self) -> Fact<ObjectSlice<'_, JobFacts>> {
        borrow(&self.jobs)
    }

    /// Whether a watch has been silent for too long.
    pub(crate) fn behind(&self) -> bool {
        [unknown(&self.pods), unknown(&self.jobs)].contains(&Some(Reason::Stale))
    }
}

fn unknown<T>(fact: &Fact<T>) -> Option<Reason> {
    match fact {
        Fact::Known { .. } => None,
        Fact::Unknown { reason, .. } => Some(*reason),
    }
}

fn borrow<T>(fact: &Fact<Vec<Arc<T>>>) -> Fact<ObjectSlice<'_, T>> {
    match fact {
        Fact::Known { value, since } => Fact::Known { value: ObjectSlice::Shared(value), since: *since },
        Fact::Unknown { reason, message } => Fact::Unknown { reason: *reason, message: message.clone() },
    }
}

fn cached<K: Kind>(
    shared: &ControllerContext,
    store: &Store<K>,
    namespace: &str,
) -> Fact<Vec<Arc<K::Object>>> {
    match store.freshness() {
        Freshness::Fresh(since) => match store.decoded(namespace) {
            // Followers keep their caches, but evaluate nothing, and nor does a leader that has not listed everything: that
            // time does not count.
            Ok(value) => {
                let since = shared.server_clock.at(since.max(shared.evaluates_since()));
                Fact::Known { value, since }
            }
            Err(unreadable) => unreadable_fact::<K, _>(&unreadable),
        },
        Freshness::NotSynced(_) if active(Mutant::ActBeforeSync) => {
            Fact::Known { value: store.list(namespace), since: Timestamp::MIN }
        }
        stale => {
            let (reason, message) = staleness(&stale, K::RESOURCE);
            Fact::Unknown { reason, message }
        }
    }
}

fn refreshed<T>(
    cached: Fact<Vec<Arc<T>>>,
    listed: Result<Vec<T>, ListError>,
    read_error: &mut Option<String>,
) -> Fact<Vec<Arc<T>>>
where
    T: Listed,
{
    match (cached, listed) {
        (Fact::Known { since, .. }, Ok(listed)) => {
            Fact::Known { value: listed.into_iter().map(Arc::new).collect(), since }
        }
        (Fact::Known { .. }, Err(ListError::Unreadable(unreadable))) => {
            unreadable_fact::<T::Kind, _>(&unreadable)
        }
        (unknown @ Fact::Unknown { .. }, _) => unknown,
        (Fact::Known { since, .. }, Err(_)) if active(Mutant::UnreadableIsEmpty) => {
            Fact::Known { value: Vec::new(), since }
        }
        (Fact::Known { .. }, Err(error)) => {
            let message = format!("the facts could not be read again: {error}");
            *read_error = Some(message.clone());
            let reason = if error.is_forbidden() { Reason::Forbidden } else { Reason::Stale };
            Fact::Unknown { reason, message }
        }
    }
}

/// Facts of a kind that is listed.
trait Listed {
    /// That kind.
    type Kind: Kind;
}

impl Listed for PodFacts {
    type Kind = Pods;
}

impl Listed for JobFacts {
    type Kind = Jobs;
}

/// The content of an object that cannot be decoded is unknown.
fn unreadable_fact<K: Kind, T>(unreadable: &Unreadable) -> Fact<T> {
    Fact::Unknown {
        reason: unreadable.reason,
        message: format!("{} are not known: {unreadable}", K::RESOURCE),
    }
}
