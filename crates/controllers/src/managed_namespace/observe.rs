//! The facts to decide on: from caches, or (before a deletion) straight from the API server.

use std::sync::Arc;
use std::time::Duration;

use coppice_actions::governor::Reservation;
use coppice_api::Reason;
use coppice_api::config::GovernorStatus;
use coppice_api::names::MANAGED_NAMESPACE_NAME;
use coppice_kinds::{ClusterManager, ClusterManagers, ManagedNamespaces, NamespaceRecord, Namespaces};
use coppice_lifecycle::facts::NamespaceFacts;
use coppice_lifecycle::settings::PlatformSettings;
use coppice_quantity::time::ServerTime;
use coppice_runtime::error::chain;
use coppice_runtime::read::{self, ListError};
use tokio::time::Instant;

use crate::context::ControllerContext;
use crate::staleness::first_stale;

/// The inputs of a plan, with the instant of observation.
pub(super) struct Observation {
    pub(super) name: Arc<str>,
    /// The namespace, or why it cannot be understood.
    pub(super) namespace: Result<Arc<NamespaceFacts>, (Reason, String)>,
    pub(super) record: Option<Arc<NamespaceRecord>>,
    /// Every cluster manager.
    pub(super) managers: Vec<Arc<ClusterManager>>,
    pub(super) settings: Arc<PlatformSettings>,
    pub(super) budget: GovernorStatus,
    pub(super) managed: u64,
    pub(super) stale: Option<(Reason, String)>,
    pub(super) at: ServerTime,
    /// When the first read was sent: nothing in here is older.
    started: Instant,
}

/// Why something could not be read.
#[derive(Debug, thiserror::Error)]
pub(super) enum FactsError {
    /// The namespace, or its record.
    #[error("{}", chain(.0))]
    Read(#[from] kube::Error),
    /// The cluster managers.
    #[error("the cluster managers: {0}")]
    Managers(#[from] ListError),
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
    let stale = stale(shared);
    // After the facts: a list that collapses opens the breaker before it shows in a cache.
    let (settings, budget) = shared.settings();
    Some(Observation {
        name: name.into(),
        namespace,
        record,
        managers,
        settings,
        budget,
        managed: shared.managed(),
        stale,
        at: shared.time(),
        started: Instant::now(),
    })
}

/// Reads everything again. None if the namespace or its record is gone.
pub(super) async fn fresh(shared: &ControllerContext, name: &str) -> Result<Option<Observation>, FactsError> {
    let client = &shared.clients.reads;
    let started = Instant::now();
    let (namespace, record, managers) = futures::future::join3(
        read::get::<Namespaces>(client, "", name),
        read::get::<ManagedNamespaces>(client, name, MANAGED_NAMESPACE_NAME),
        read::list::<ClusterManagers>(client, ""),
    )
    .await;
    let (Some(namespace), Some(record)) = (namespace?, record?) else { return Ok(None) };
    let managers = managers?.into_iter().map(Arc::new).collect();
    // What only the caches know: whether the watches are behind, and the breaker.
    let Some(observation) = with(shared, name, record) else { return Ok(None) };
    let at = shared.time();
    Ok(Some(Observation { namespace: Ok(Arc::new(namespace)), managers, at, started, ..observation }))
}

impl Observation {
    /// The same, under the settings and the budget that were reserved under.
    pub(super) fn under(mut self, shared: &ControllerContext, reservation: &Reservation) -> Self {
        self.settings = shared.settings_of(&reservation.settings);
        self.budget = shared.with_breaker(&self.settings, reservation.budget.clone());
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
    ])
}
