//! The workloads that the health of namespaces depends on: their caches, which are filled while a cluster manager looks at
//! the health of namespaces, and what these know of one namespace.

use std::sync::{Arc, Mutex, PoisonError};

use coppice_api::Reason;
use coppice_kinds::{Claims, DaemonSets, Deployments, Jobs, Pods, ReplicaSets, StatefulSets};
use coppice_lifecycle::cluster::HealthFacts;
use coppice_lifecycle::facts::{JobFacts, ObjectSlice, PodFacts};
use coppice_lifecycle::health::Workloads;
use coppice_lifecycle::health::facts::{ClaimFacts, WorkloadFacts};
use coppice_mutants::{Mutant, active};
use coppice_runtime::kind::Kind;
use coppice_runtime::read;
use coppice_runtime::store::{Freshness, Store};
use coppice_runtime::watches::{Subscription, Watches};
use jiff::Timestamp;

use crate::context::ControllerContext;
use crate::staleness::staleness;
use crate::status_writer::FactsError;

/// The caches of the kinds that nothing else needs.
#[derive(Debug, Default)]
pub struct WorkloadStores {
    deployments: Store<Deployments>,
    replica_sets: Store<ReplicaSets>,
    stateful_sets: Store<StatefulSets>,
    daemon_sets: Store<DaemonSets>,
    claims: Store<Claims>,
}

/// The watches of workloads: they begin when the first cluster manager looks at the health of namespaces, and end when none
/// does.
#[derive(Default)]
pub(crate) struct HealthWatches(Mutex<Vec<Subscription>>);

impl HealthWatches {
    /// Begins or ends them, as the cluster managers ask for. `enqueue` is called with the namespace of every change.
    pub(crate) fn update<W>(&self, shared: &ControllerContext, watches: &Watches, enqueue: W)
    where
        W: Fn(&str) + Clone + Send + Sync + 'static,
    {
        let wanted = is_wanted(shared);
        let mut subscriptions = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let ended = match (wanted, subscriptions.is_empty()) {
            (true, true) => {
                *subscriptions = subscribe(shared, watches, &enqueue);
                Vec::new()
            }
            (false, false) => std::mem::take(&mut *subscriptions),
            (true, false) | (false, true) => Vec::new(),
        };
        drop(subscriptions);
        drop(ended);
    }
}

/// Whether a cluster manager looks at the health of namespaces.
pub(crate) fn is_wanted(shared: &ControllerContext) -> bool {
    let managers = shared.cluster_managers.list("");
    managers
        .iter()
        .any(|manager| !manager.terminating && manager.spec.as_ref().is_ok_and(|spec| spec.health.is_some()))
}

/// Whether the cluster manager that governs a namespace looks at its health.
pub(crate) fn is_looked_at(shared: &ControllerContext, namespace: &str) -> bool {
    let record = shared.record(namespace);
    let Some(governing) = record.as_ref().and_then(|record| record.status.manager.as_ref()) else {
        return false;
    };
    let manager = shared.cluster_managers.get("", &governing.name);
    manager.is_some_and(|manager| manager.spec.as_ref().is_ok_and(|spec| spec.health.is_some()))
}

fn subscribe<W>(shared: &ControllerContext, watches: &Watches, enqueue: &W) -> Vec<Subscription>
where
    W: Fn(&str) + Clone + Send + Sync + 'static,
{
    let changed = || {
        let enqueue = enqueue.clone();
        move |namespace: &str, _: &str| enqueue(namespace)
    };
    let WorkloadStores { deployments, replica_sets, stateful_sets, daemon_sets, claims } = &shared.workloads;
    vec![
        watches.subscribe(deployments, changed()),
        watches.subscribe(replica_sets, changed()),
        watches.subscribe(stateful_sets, changed()),
        watches.subscribe(daemon_sets, changed()),
        watches.subscribe(&shared.jobs, changed()),
        watches.subscribe(&shared.pods, changed()),
        watches.subscribe(claims, changed()),
    ]
}

/// Whether the caches have been filled, or cannot be: what is needed and not known makes the health unknown.
pub(crate) fn synced(shared: &ControllerContext) -> bool {
    let waits = |freshness: &Freshness| matches!(freshness, Freshness::NotSynced(None));
    !is_wanted(shared) || !freshness(shared).iter().any(|(freshness, ..)| waits(freshness))
}

/// How far each cache can be trusted, with its resource.
fn freshness(shared: &ControllerContext) -> [(Freshness, &'static str); 7] {
    fn of<K: Kind>(store: &Store<K>) -> (Freshness, &'static str) {
        (store.freshness(), K::RESOURCE)
    }
    let WorkloadStores { deployments, replica_sets, stateful_sets, daemon_sets, claims } = &shared.workloads;
    [
        of(deployments),
        of(replica_sets),
        of(stateful_sets),
        of(daemon_sets),
        of(&shared.jobs),
        of(&shared.pods),
        of(claims),
    ]
}

/// Of what events may have been missed since everything was listed, if of anything.
fn interrupted(shared: &ControllerContext) -> Option<&'static str> {
    fn of<K: Kind>(store: &Store<K>) -> Option<&'static str> {
        (!store.is_followed()).then_some(K::RESOURCE)
    }
    let WorkloadStores { deployments, replica_sets, stateful_sets, daemon_sets, claims } = &shared.workloads;
    let all = [
        of(deployments),
        of(replica_sets),
        of(stateful_sets),
        of(daemon_sets),
        of(&shared.jobs),
        of(&shared.pods),
        of(claims),
    ];
    all.into_iter().flatten().next()
}

/// What is known of the workloads of a namespace.
pub(crate) enum HealthObservation {
    /// Nothing: nobody asks.
    NotWatched,
    /// Everything, followed without a gap since then.
    Known(Box<Lists>, Timestamp),
    /// The same as it was just read, after what was followed without a gap since then.
    Read(Box<[Lists; 2]>, Timestamp),
    /// Not everything: why.
    Unknown(Reason, String),
}

/// The workloads of a namespace.
pub(crate) struct Lists {
    deployments: Vec<Arc<WorkloadFacts>>,
    replica_sets: Vec<Arc<WorkloadFacts>>,
    stateful_sets: Vec<Arc<WorkloadFacts>>,
    daemon_sets: Vec<Arc<WorkloadFacts>>,
    jobs: Vec<Arc<JobFacts>>,
    pods: Vec<Arc<PodFacts>>,
    claims: Vec<Arc<ClaimFacts>>,
}

impl HealthObservation {
    /// What the caches know.
    pub(crate) fn cached(shared: &ControllerContext, namespace: &str) -> Self {
        if !is_wanted(shared) {
            return Self::NotWatched;
        }
        let followed = match Self::followed(shared) {
            Ok(followed) => followed,
            Err(unknown) => return unknown,
        };
        match Lists::cached(shared, namespace) {
            Ok(lists) => Self::Known(Box::new(lists), followed),
            Err((reason, message)) => Self::Unknown(reason, message),
        }
    }

    /// What the API server says now. Only the watches know for how long the workloads were followed without a gap: what they
    /// do not know, a list cannot show either. After a gap everything is listed again first.
    pub(crate) async fn fresh(shared: &ControllerContext, namespace: &str) -> Result<Self, FactsError> {
        let lists = Lists::fresh(shared, namespace).await?;
        let followed = match Self::followed(shared) {
            Ok(followed) => followed,
            Err(unknown) => return Ok(unknown),
        };
        if let Some(resource) = interrupted(shared).filter(|_| !active(Mutant::GapsUnseen)) {
            let message =
                format!("events of {resource} may have been missed, and they have not been listed again yet");
            return Ok(Self::Unknown(Reason::Stale, message));
        }
        Ok(match Lists::cached(shared, namespace) {
            Ok(cached) => Self::Read(Box::new([lists, cached]), followed),
            Err((reason, message)) => Self::Unknown(reason, message),
        })
    }

    /// Since when all workloads have been followed without a gap, by a replica that evaluates.
    fn followed(shared: &ControllerContext) -> Result<Timestamp, Self> {
        let mut followed = shared.evaluates_since();
        for (freshness, resource) in freshness(shared) {
            match freshness {
                Freshness::Fresh(since) => followed = followed.max(since),
                stale => {
                    let (reason, message) = staleness(&stale, resource);
                    return Err(Self::Unknown(reason, message));
                }
            }
        }
        Ok(shared.server_clock.at(followed))
    }

    /// As the planner takes it.
    pub(crate) fn facts(&self) -> HealthFacts<'_> {
        match self {
            Self::NotWatched => HealthFacts::NotWatched,
            Self::Known(lists, followed) => {
                HealthFacts::Known { workloads: lists.workloads(), followed: *followed, before: None }
            }
            Self::Read(lists, followed) => {
                let [workloads, before] = lists.each_ref().map(Lists::workloads);
                HealthFacts::Known { workloads, followed: *followed, before: Some(Box::new(before)) }
            }
            Self::Unknown(reason, message) => {
                HealthFacts::Unknown { reason: *reason, message: message.clone() }
            }
        }
    }
}

impl Lists {
    fn cached(shared: &ControllerContext, namespace: &str) -> Result<Self, (Reason, String)> {
        fn of<K: Kind>(store: &Store<K>, namespace: &str) -> Result<Vec<Arc<K::Object>>, (Reason, String)> {
            store.decoded(namespace).map_err(|unreadable| {
                (unreadable.reason, format!("{} are not known: {unreadable}", K::RESOURCE))
            })
        }
        let WorkloadStores { deployments, replica_sets, stateful_sets, daemon_sets, claims } =
            &shared.workloads;
        Ok(Self {
            deployments: of(deployments, namespace)?,
            replica_sets: of(replica_sets, namespace)?,
            stateful_sets: of(stateful_sets, namespace)?,
            daemon_sets: of(daemon_sets, namespace)?,
            jobs: of(&shared.jobs, namespace)?,
            pods: of(&shared.pods, namespace)?,
            claims: of(claims, namespace)?,
        })
    }

    /// All lists at once: each of them can take the API server a tenth of a second.
    async fn fresh(shared: &ControllerContext, namespace: &str) -> Result<Self, FactsError> {
        async fn of<K: Kind<Context = ()>>(
            shared: &ControllerContext,
            namespace: &str,
        ) -> Result<Vec<Arc<K::Object>>, FactsError> {
            let listed = read::list::<K>(&shared.clients.reads, namespace).await;
            let listed = listed.map_err(|error| FactsError::Workloads { resource: K::RESOURCE, error })?;
            Ok(listed.into_iter().map(Arc::new).collect())
        }
        let (deployments, replica_sets, stateful_sets, daemon_sets, jobs, pods, claims) = tokio::try_join!(
            of::<Deployments>(shared, namespace),
            of::<ReplicaSets>(shared, namespace),
            of::<StatefulSets>(shared, namespace),
            of::<DaemonSets>(shared, namespace),
            of::<Jobs>(shared, namespace),
            of::<Pods>(shared, namespace),
            of::<Claims>(shared, namespace),
        )?;
        Ok(Self { deployments, replica_sets, stateful_sets, daemon_sets, jobs, pods, claims })
    }

    fn workloads(&self) -> Workloads<'_> {
        Workloads {
            deployments: ObjectSlice::Shared(&self.deployments),
            replica_sets: ObjectSlice::Shared(&self.replica_sets),
            stateful_sets: ObjectSlice::Shared(&self.stateful_sets),
            daemon_sets: ObjectSlice::Shared(&self.daemon_sets),
            jobs: ObjectSlice::Shared(&self.jobs),
            pods: ObjectSlice::Shared(&self.pods),
            claims: ObjectSlice::Shared(&self.claims),
        }
    }
}
