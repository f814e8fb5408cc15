//! A `NamespaceExpiry`, its namespace, and what stops a deletion: from caches, or straight from the API server.

use std::sync::Arc;
use std::time::Duration;

use coppice_actions::decision::FreshFacts;
use coppice_actions::governor::Reservation;
use coppice_api::Reason;
use coppice_api::config::GovernorStatus;
use coppice_controllers::{ControllerContext, first_stale};
use coppice_kinds::Namespaces;
use coppice_lifecycle::PlatformSettings;
use coppice_lifecycle::circumstances::Circumstances;
use coppice_lifecycle::facts::NamespaceFacts;
use coppice_lifecycle::governor::Share;
use coppice_quantity::time::ServerTime;
use coppice_runtime::read;
use tokio::time::Instant;

use super::NamespaceExpiries;
use crate::object::{Expiries, Expiry};

/// What a plan is made from.
pub(super) struct Observation {
    pub(super) expiry: Arc<Expiry>,
    /// None if there is none, unless what is known is `stale`.
    pub(super) namespace: Option<Arc<NamespaceFacts>>,
    pub(super) stale: Option<(Reason, String)>,
    pub(super) settings: Arc<PlatformSettings>,
    pub(super) budget: GovernorStatus,
    /// How many namespaces this controller manages: its budget an hour is a share of them.
    pub(super) managed: u64,
    pub(super) time: ServerTime,
    /// When the first read was sent: nothing in here is older.
    pub(super) started: Instant,
}

/// What the caches know; none if there is no such object.
pub(super) fn cached(controller: &NamespaceExpiries, name: &str) -> Option<Observation> {
    let expiry = controller.expiries.get("", name)?;
    let namespace = controller.shared.namespaces.get("", name);
    Some(observation(controller, expiry, namespace, Instant::now()))
}

/// The same from fresh reads.
pub(super) async fn fresh(
    controller: &NamespaceExpiries,
    name: &str,
) -> Result<Option<Observation>, kube::Error> {
    let (started, client) = (Instant::now(), &controller.shared.clients.reads);
    let Some(expiry) = read::get::<Expiries>(client, "", name).await? else { return Ok(None) };
    let namespace = read::get::<Namespaces>(client, "", name).await?.map(Arc::new);
    Ok(Some(observation(controller, Arc::new(expiry), namespace, started)))
}

fn observation(
    controller: &NamespaceExpiries,
    expiry: Arc<Expiry>,
    namespace: Option<Arc<NamespaceFacts>>,
    started: Instant,
) -> Observation {
    let shared = &controller.shared;
    let behind = first_stale(&[
        (controller.expiries.freshness(), "namespaceexpiries"),
        (shared.namespaces.freshness(), "namespaces"),
        (shared.configs.freshness(), "coppiceconfigs"),
    ]);
    let unreadable = || {
        let unreadable = shared.namespaces.unreadable_object(&expiry.name)?;
        Some((unreadable.reason, format!("the namespace is not known: {unreadable}")))
    };
    let (settings, budget) = shared.settings();
    Observation {
        namespace,
        stale: behind.or_else(unreadable),
        settings,
        budget,
        managed: controller.expiries.len() as u64,
        time: shared.time(),
        started,
        expiry,
    }
}

impl Observation {
    /// The same, under the settings and the budget that were reserved under.
    pub(super) fn under(mut self, shared: &ControllerContext, reservation: &Reservation) -> Self {
        (self.settings, self.budget) = shared.reserved(reservation);
        self
    }

    /// What stops steps, whatever asks for them.
    pub(super) fn circumstances(&self) -> Circumstances<'_> {
        Circumstances {
            time: self.time,
            stale: self.stale.as_ref(),
            other: None,
            webhook: None,
            unknown_limits: None,
            settings: &self.settings,
            budget: &self.budget,
            share: Share::Managers(self.managed),
        }
    }
}

impl FreshFacts for Observation {
    fn namespace(&self) -> Option<&NamespaceFacts> {
        self.namespace.as_deref()
    }

    fn settings(&self) -> &PlatformSettings {
        &self.settings
    }

    fn age(&self) -> Duration {
        self.started.elapsed()
    }
}
