//! The facts to decide on: from caches, or (before a deletion) straight from the API server.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use coppice_actions::governor::Reservation;
use coppice_api::Reason;
use coppice_api::config::GovernorStatus;
use coppice_api::names::MANAGED_NAMESPACE_NAME;
use coppice_api::steps::Intent;
use coppice_kinds::{ClusterManager, ManagedNamespaces, Managers, NamespaceRecord, Namespaces};
use coppice_lifecycle::cluster::AddressKey;
use coppice_lifecycle::cluster::census::Census;
use coppice_lifecycle::facts::NamespaceFacts;
use coppice_lifecycle::other_deletion::OtherDeletion;
use coppice_lifecycle::pending_webhook::PendingWebhook;
use coppice_lifecycle::plan::Delivery;
use coppice_lifecycle::settings::PlatformSettings;
use coppice_mutants::{Mutant, active};
use coppice_quantity::time::ServerTime;
use coppice_runtime::object::OwnKind as _;
use coppice_runtime::read;
use tokio::time::Instant;

use crate::context::ControllerContext;
use crate::health::HealthObservation;
use crate::owner_messages;
use crate::pods::{self, PodsObservation};
use crate::staleness::first_stale;
use crate::status_writer::FactsError;
use crate::successor::SuccessorObservation;
use crate::webhook;

/// The inputs of a plan, with the instant of observation.
pub(super) struct Observation {
    pub(super) name: Arc<str>,
    /// The namespace, or why it cannot be understood.
    pub(super) namespace: Result<Arc<NamespaceFacts>, (Reason, String)>,
    pub(super) record: Option<Arc<NamespaceRecord>>,
    /// Every cluster manager.
    pub(super) managers: Vec<Arc<ClusterManager>>,
    /// What is known of its workloads.
    pub(super) health: HealthObservation,
    /// What is known of its pods and Jobs.
    pub(super) pods: PodsObservation,
    pub(super) settings: Arc<PlatformSettings>,
    pub(super) budget: GovernorStatus,
    pub(super) managed: u64,
    pub(super) census: Option<Arc<Census>>,
    /// What is known of the namespace that has taken its place.
    pub(super) successor: SuccessorObservation,
    pub(super) stale: Option<(Reason, String)>,
    /// Which manager in the namespace deletes it, if one does.
    pub(super) other: Option<OtherDeletion>,
    /// Which webhook of a manager in the namespace is under way, if one is.
    pub(super) webhook: Option<PendingWebhook>,
    /// The attempt at the webhook of the record's intent.
    pub(super) delivery: Delivery,
    /// The attempts to tell the owner, by the keys of the notices in the record.
    pub(super) deliveries: BTreeMap<String, Delivery>,
    /// Tells recipients in the record apart.
    pub(super) address_key: Option<Arc<AddressKey>>,
    pub(super) at: ServerTime,
    /// When the first read was sent: nothing in here is older.
    started: Instant,
}

/// What the caches know of a namespace; none if there is no such namespace.
pub(super) fn cached(shared: &ControllerContext, name: &str) -> Option<Observation> {
    let record = shared.record(name);
    observation(shared, name, record)
}

/// The same with a record that was just read or written, and may be newer than the cache.
pub(super) fn with(shared: &ControllerContext, name: &str, record: NamespaceRecord) -> Option<Observation> {
    observation(shared, name, Some(Arc::new(record)))
}

fn observation(
    shared: &ControllerContext,
    name: &str,
    record: Option<Arc<NamespaceRecord>>,
) -> Option<Observation> {
    let namespace = match (shared.namespaces.get("", name), shared.namespaces.unreadable_object(name)) {
        (_, Some(unreadable)) => {
            Err((unreadable.reason, format!("the namespace is not known: {unreadable}")))
        }
        (Some(namespace), None) => Ok(namespace),
        (None, None) => return None,
    };
    let managers = shared.cluster_managers.list("");
    let health = HealthObservation::cached(shared, name);
    let waited_for = pods::waits_any(&managers);
    let pods =
        if waited_for { PodsObservation::cached(shared, name) } else { PodsObservation::not_looked_at() };
    let intent = record.as_ref().and_then(|record| record.status.steps.intent.as_ref());
    let delivery = webhook::delivery(shared, intent);
    let notified = record.as_ref().map(|record| &*record.status.notices);
    let deliveries = owner_messages::deliveries(shared, notified.unwrap_or_default());
    let stale = stale(shared);
    let other = namespace.as_deref().ok().and_then(|namespace| other_deletion(shared, namespace));
    let webhook = namespace
        .as_deref()
        .ok()
        .and_then(|namespace| webhook::under_way(shared.managers.list(&namespace.name).iter(), namespace));
    // After the facts: a list that collapses opens the breaker before it shows in a cache.
    let (settings, budget) = shared.settings();
    Some(Observation {
        name: name.into(),
        namespace,
        record,
        managers,
        health,
        pods,
        delivery,
        deliveries,
        address_key: shared.outboxes().map(|outboxes| outboxes.address_key),
        settings,
        budget,
        managed: shared.managed(),
        census: shared.census(),
        successor: SuccessorObservation::cached(shared, name),
        stale,
        other,
        webhook,
        at: shared.time(),
        started: Instant::now(),
    })
}

/// What the managers in a namespace say of deleting it: the first of them.
fn other_deletion(shared: &ControllerContext, namespace: &NamespaceFacts) -> Option<OtherDeletion> {
    let managers = shared.managers.list(&namespace.name);
    // One that is being deleted does nothing any more.
    let managers = managers.iter().filter(|manager| !manager.terminating);
    OtherDeletion::first(managers.filter_map(|manager| {
        let by = format!("{} {}", Managers::KIND, manager.name);
        let said = (&manager.status.steps, manager.status.next.as_ref());
        OtherDeletion::of(by, false, said, namespace, shared.now())
    }))
}

/// Reads everything again that this step rests on. None if the namespace or its record is gone.
pub(super) async fn fresh(
    shared: &ControllerContext,
    name: &str,
    intent: &Intent,
) -> Result<Option<Observation>, FactsError> {
    let client = &shared.clients.reads;
    let started = Instant::now();
    let by_health = intent.reason == Reason::Unhealthy.as_str() && !active(Mutant::WorkloadsByCaches);
    let by_successor = intent.reason == Reason::Superseded.as_str() && !active(Mutant::SuccessorByCaches);
    let by_pods = intent.reason == Reason::PodsSucceeded.as_str() && !active(Mutant::WorkloadsByCaches);
    // An annotation that a manager names since is not known, as in the cache.
    let keys = shared.namespaces.current_context();
    let reads = futures::future::join5(
        read::get_with::<Namespaces>(client, "", name, &keys),
        read::get::<ManagedNamespaces>(client, name, MANAGED_NAMESPACE_NAME),
        shared.list_cluster_managers(),
        async {
            if by_health {
                Box::pin(HealthObservation::fresh(shared, name)).await.map(Some)
            } else {
                Ok(None)
            }
        },
        async { if by_pods { PodsObservation::fresh(shared, name).await.map(Some) } else { Ok(None) } },
    );
    let successor = async {
        if by_successor {
            Box::pin(SuccessorObservation::fresh(shared, name)).await.map(Some)
        } else {
            Ok(None)
        }
    };
    let ((namespace, record, managers, health, pods), successor) =
        futures::future::join(reads, successor).await;
    let (Some(namespace), Some(record)) = (namespace?, record?) else { return Ok(None) };
    let managers = managers?;
    // What only the caches know: whether the watches are behind, and the breaker.
    let Some(observation) = with(shared, name, record) else { return Ok(None) };
    let (health, pods) = (health?.unwrap_or(observation.health), pods?.unwrap_or(observation.pods));
    let successor = successor?.unwrap_or(observation.successor);
    let (namespace, at) = (Ok(Arc::new(namespace)), shared.time());
    Ok(Some(Observation { namespace, managers, health, pods, successor, at, started, ..observation }))
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

    /// Whether a watch has been silent for too long.
    pub(super) fn behind(&self) -> bool {
        self.stale.as_ref().is_some_and(|(reason, _)| *reason == Reason::Stale)
    }
}

/// Whether the caches that decisions need are behind.
fn stale(shared: &ControllerContext) -> Option<(Reason, String)> {
    first_stale(&[
        (shared.cluster_managers.freshness(), "clusternamespacemanagers"),
        (shared.managed_namespaces.freshness(), "managednamespaces"),
        (shared.namespaces.freshness(), "namespaces"),
        (shared.configs.freshness(), "coppiceconfigs"),
        // What is counted rests on these.
        (shared.managers.freshness(), "namespacemanagers"),
        (shared.deleted_namespaces.freshness(), "deletednamespaces"),
    ])
}
