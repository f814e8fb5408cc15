//! The facts to decide on: from caches, or (before anything destructive) straight from the API server.

use std::sync::Arc;
use std::time::Duration;

use coppice_actions::governor::Reservation;
use coppice_api::Reason;
use coppice_api::config::GovernorStatus;
use coppice_kinds::{ClusterManager, ClusterManagers, Manager, Managers, Namespaces, cluster_manager_facts};
use coppice_lifecycle::facts::{NamespaceFacts, NamespaceSnapshot};
use coppice_lifecycle::limits::NamespaceLimits;
use coppice_lifecycle::other_deletion::OtherDeletion;
use coppice_lifecycle::pending_webhook::PendingWebhook;
use coppice_lifecycle::plan::{Delivery, MAX_MANAGERS, ManagerFacts, Observed};
use coppice_lifecycle::settings::PlatformSettings;
use coppice_mutants::Mutant;
use coppice_quantity::time::ServerTime;
use coppice_runtime::object::OwnKind as _;
use coppice_runtime::read;
use tokio::time::Instant;

use crate::context::{ControllerContext, ManagerKey};
use crate::pods::{self, PodsObservation};
use crate::staleness::first_stale;
use crate::webhook;

/// The inputs of a plan, with the instant of observation.
pub(super) struct Observation {
    pub(super) manager: Arc<Manager>,
    pub(super) namespace: Option<Arc<NamespaceFacts>>,
    pub(super) pods: PodsObservation,
    pub(super) settings: Arc<PlatformSettings>,
    /// Every cluster manager; or why they are not known.
    cluster_managers: Result<Vec<Arc<ClusterManager>>, (Reason, String)>,
    pub(super) budget: GovernorStatus,
    pub(super) managed: u64,
    /// How many managers of the namespace come before this one.
    before: usize,
    pub(super) stale: Option<(Reason, String)>,
    /// What the namespace's record says of deleting it.
    pub(super) other: Option<OtherDeletion>,
    /// Which webhook of another manager in the namespace is under way, if one is.
    pub(super) webhook: Option<PendingWebhook>,
    pub(super) delivery: Delivery,
    pub(super) at: ServerTime,
    /// When the first read was sent: nothing in here is older.
    started: Instant,
    /// What could not be read again, if anything.
    pub(super) read_error: Option<String>,
}

/// What the caches know of a manager; none if there is no such manager.
pub(super) fn cached(shared: &ControllerContext, key: &ManagerKey) -> Option<Observation> {
    let manager = shared.managers.get(&key.namespace, &key.name)?;
    Some(observation(shared, key, manager))
}

/// The same with a manager that was just read or written, and may be newer than the cache.
pub(super) fn with(shared: &ControllerContext, key: &ManagerKey, manager: Manager) -> Observation {
    observation(shared, key, Arc::new(manager))
}

fn observation(shared: &ControllerContext, key: &ManagerKey, manager: Arc<Manager>) -> Observation {
    let namespace = shared.namespaces.get("", &key.namespace);
    let pods = PodsObservation::cached(shared, &key.namespace);
    // After the facts: a list that collapses opens the breaker before it shows in a cache.
    let (settings, budget) = shared.settings();
    let other = namespace.as_deref().and_then(|namespace| other_deletion(shared, namespace));
    let webhook = namespace.as_deref().and_then(|namespace| {
        let managers = shared.managers.list(&namespace.name);
        webhook::under_way(managers.iter().filter(|other| other.name != manager.name), namespace)
    });
    Observation {
        namespace,
        other,
        webhook,
        pods,
        settings,
        cluster_managers: cluster_managers(shared),
        budget,
        managed: shared.managed(),
        before: before(shared, &manager),
        stale: stale(shared, key),
        delivery: webhook::delivery(shared, manager.status.steps.intent.as_ref()),
        at: shared.time(),
        started: Instant::now(),
        read_error: None,
        manager,
    }
}

/// The cluster managers, whose limits bind managers.
fn cluster_managers(shared: &ControllerContext) -> Result<Vec<Arc<ClusterManager>>, (Reason, String)> {
    match first_stale(&[(shared.cluster_managers.freshness(), "clusternamespacemanagers")]) {
        Some(_) if coppice_mutants::active(Mutant::ActBeforeSync) => Ok(Vec::new()),
        Some(why) => Err(why),
        None => Ok(shared.cluster_managers.list("")),
    }
}

/// What the record says of deleting its namespace. It comes before managers.
fn other_deletion(shared: &ControllerContext, namespace: &NamespaceFacts) -> Option<OtherDeletion> {
    // One that is being deleted does nothing any more.
    let record = shared.record(&namespace.name).filter(|record| !record.terminating)?;
    let governs = record.status.manager.as_ref()?;
    let by = format!("{} {}", ClusterManagers::KIND, governs.name);
    let said = (&record.status.steps, record.status.next.as_ref());
    OtherDeletion::of(by, true, said, namespace, shared.now())
}

/// Reads everything again. None if the manager is gone. Pods and Jobs that cannot be read are unknown; the policies that
/// do not need them continue.
pub(super) async fn fresh(
    shared: &ControllerContext,
    key: &ManagerKey,
) -> Result<Option<Observation>, kube::Error> {
    let client = &shared.clients.reads;
    let started = Instant::now();
    let lists = || pods::list(shared, &key.namespace);
    // All at once: each answer is held against what was decided by itself.
    let expected = shared.managers.get(&key.namespace, &key.name).is_some_and(|m| needs_pods(&m));
    let exist = !shared.cluster_managers.is_empty();
    // An annotation that a cluster manager names since is not known, as in the cache.
    let keys = shared.namespaces.current_context();
    let (manager, namespace, listed, cluster_managers) = futures::future::join4(
        read::get::<Managers>(client, &key.namespace, &key.name),
        read::get_with::<Namespaces>(client, "", &key.namespace, &keys),
        async { if expected { Some(lists().await) } else { None } },
        async { if exist { Some(shared.list_cluster_managers().await) } else { None } },
    )
    .await;
    let Some(manager) = manager?.map(Arc::new) else { return Ok(None) };
    let mut observation = observation(shared, key, Arc::clone(&manager));
    observation.namespace = namespace?.map(Arc::new);
    if let (Ok(known), Some(listed)) = (&mut observation.cluster_managers, cluster_managers) {
        match listed {
            Ok(listed) => *known = listed,
            Err(error) => {
                let why = format!("clusternamespacemanagers could not be read again: {error}");
                observation.read_error = Some(why.clone());
                observation.cluster_managers = Err((Reason::LimitsUnknown, why));
            }
        }
    }
    if needs_pods(&manager) {
        let listed = match listed {
            Some(listed) => listed,
            None => lists().await,
        };
        observation.pods = observation.pods.refreshed(listed, &mut observation.read_error);
    }
    observation.at = shared.time();
    observation.started = started;
    Ok(Some(observation))
}

/// How many managers of its namespace come before this one: no more are counted than matter.
fn before(shared: &ControllerContext, manager: &Manager) -> usize {
    let all = shared.managers.list(&manager.namespace);
    if all.len() <= MAX_MANAGERS {
        return 0;
    }
    let comes_before = |other: &Manager| (other.created, &*other.name) < (manager.created, &*manager.name);
    all.iter().filter(|other| comes_before(other)).take(MAX_MANAGERS).count()
}

fn needs_pods(manager: &Manager) -> bool {
    manager.spec.as_ref().is_ok_and(|spec| spec.needs_pods())
}

impl Observation {
    /// The same, under the settings and the budget that were reserved under.
    pub(super) fn under(mut self, shared: &ControllerContext, reservation: &Reservation) -> Self {
        (self.settings, self.budget) = shared.reserved(reservation);
        self
    }

    /// How old the oldest of these facts may be.
    pub(super) fn age(&self) -> Duration {
        self.started.elapsed()
    }

    /// Whether a watch that this manager needs has been silent for too long.
    pub(super) fn behind(&self) -> bool {
        let behind = [&self.stale, &self.cluster_managers.as_ref().err().cloned()];
        behind.into_iter().flatten().any(|(reason, _)| *reason == Reason::Stale)
            || self.pods.behind() && needs_pods(&self.manager)
    }

    /// What the cluster manager of the namespace permits.
    fn limits(&self) -> NamespaceLimits<'_> {
        match (&self.cluster_managers, self.namespace.as_deref()) {
            (Ok(managers), Some(namespace)) => {
                NamespaceLimits::of(managers.iter().map(|one| cluster_manager_facts(one)), namespace)
            }
            // Without the namespace nothing is done.
            (Ok(_), None) => NamespaceLimits::None,
            (Err((_, why)), _) => NamespaceLimits::unknown(why),
        }
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
                spec: self.manager.decoded(),
                status: &self.manager.status,
            },
            snapshot: self
                .namespace
                .as_deref()
                .map(|namespace| NamespaceSnapshot::new(namespace, self.pods.pods(), self.pods.jobs())),
            settings: &self.settings,
            limits: self.limits(),
            budget: &self.budget,
            before: self.before,
            managed: self.managed,
            stale: self.stale.clone(),
            other: self.other.clone(),
            webhook: self.webhook.clone(),
            delivery: self.delivery.clone(),
        }
    }
}

/// Whether the caches that every decision needs are behind, or the namespace itself cannot be understood.
fn stale(shared: &ControllerContext, key: &ManagerKey) -> Option<(Reason, String)> {
    if coppice_mutants::active(Mutant::ActBeforeSync) {
        return None;
    }
    let behind = first_stale(&[
        (shared.managers.freshness(), "namespacemanagers"),
        (shared.namespaces.freshness(), "namespaces"),
        (shared.configs.freshness(), "coppiceconfigs"),
    ]);
    behind.or_else(|| {
        let unreadable = shared.namespaces.unreadable_object(&key.namespace)?;
        Some((unreadable.reason, format!("the namespace is not known: {unreadable}")))
    })
}
