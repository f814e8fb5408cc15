//! What the controllers share.

use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use coppice_api::CoppiceConfigSpec;
use coppice_api::config::GovernorStatus;
use coppice_api::names::CONFIG_NAME;
use coppice_lifecycle::facts::{JobFacts, NamespaceFacts, PodFacts};
use coppice_lifecycle::law::{Law, ScaleKind};
use coppice_lifecycle::time::ServerTime;
use coppice_notify::outbox::Outbox;
use coppice_runtime::client::Clients;
use coppice_runtime::events::Events;
use coppice_runtime::governor::Counter;
use coppice_runtime::kinds::{Config, Manager};
use coppice_runtime::leader::Gate;
use coppice_runtime::metrics::Metrics;
use coppice_runtime::server_clock::ServerClock;
use coppice_runtime::store::Store;
use jiff::Timestamp;
use tokio::time::Instant;

/// Namespace and name of a `NamespaceManager`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key {
    /// The namespace.
    pub namespace: Arc<str>,
    /// The name.
    pub name: Arc<str>,
}

impl Key {
    /// The key of an object.
    pub fn new(namespace: &str, name: &str) -> Self {
        Self { namespace: namespace.into(), name: name.into() }
    }
}

impl std::fmt::Display for Key {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

/// What this operator is told at its start.
#[derive(Clone, Debug)]
pub struct Setup {
    /// The namespace that it lives in.
    pub own_namespace: String,
    /// Kinds that tenants may scale down besides the built-in ones.
    pub scale_kinds: Vec<ScaleKind>,
}

/// Clients, caches and the little state that the controllers share. Everything in it can be lost at any moment.
pub struct Shared {
    /// What the operator was told.
    pub setup: Setup,
    /// The API server.
    pub clients: Clients,
    /// The API server's time, and this machine's.
    pub server_clock: ServerClock,
    /// Whether this replica writes.
    pub gate: Gate,
    /// Figures.
    pub metrics: Metrics,
    /// Events for people.
    pub events: Events,
    /// Every `NamespaceManager`.
    pub managers: Store<Manager>,
    /// Every namespace.
    pub namespaces: Store<NamespaceFacts>,
    /// Every pod.
    pub pods: Store<PodFacts>,
    /// Every Job.
    pub jobs: Store<JobFacts>,
    /// The settings.
    pub configs: Store<Config>,
    /// Where destructive steps are booked.
    pub counter: Counter,
    outbox: RwLock<Option<(String, Outbox<Key>)>>,
    law: RwLock<Option<Compiled>>,
}

impl Shared {
    /// Everything together, with empty caches.
    pub fn new(
        setup: Setup,
        clients: Clients,
        server_clock: ServerClock,
        gate: Gate,
        metrics: Metrics,
        events: Events,
    ) -> Self {
        Self {
            setup,
            clients,
            server_clock,
            gate,
            metrics,
            events,
            managers: Store::default(),
            namespaces: Store::default(),
            pods: Store::default(),
            jobs: Store::default(),
            configs: Store::default(),
            counter: Counter::default(),
            outbox: RwLock::new(None),
            law: RwLock::new(None),
        }
    }

    /// The time that decisions are made by.
    pub fn time(&self) -> ServerTime {
        self.server_clock.now()
    }

    /// The earliest that it can be: for dates that are written down.
    pub fn now(&self) -> Timestamp {
        self.time().now()
    }

    /// The instant at which [`now`](Self::now) will be `at`; now, if it has passed.
    pub fn instant(&self, at: Timestamp) -> Instant {
        const FAR: Duration = Duration::from_hours(24 * 365 * 100);
        let ahead = Duration::try_from(at.duration_since(self.now())).unwrap_or(Duration::ZERO);
        Instant::now() + ahead.min(FAR)
    }

    /// The law by the cached settings, and the budget's ledger. Settings that are missing, or cannot be understood, allow
    /// nothing.
    pub fn law(&self) -> (Arc<Law>, GovernorStatus) {
        let Some(config) = self.configs.get("", CONFIG_NAME) else {
            let missing = || Law::missing(&self.setup.own_namespace, self.setup.scale_kinds.clone());
            return (self.compiled(("", 0), missing), GovernorStatus::default());
        };
        (self.law_of(&config), config.status.governor.clone())
    }

    /// The law by these settings.
    pub fn law_of(&self, config: &Config) -> Arc<Law> {
        self.compiled((&config.uid, config.generation), || {
            let spec = config.spec.as_ref().map_or_else(|_| nothing_allowed(), |spec| (**spec).clone());
            Law::new(spec, &self.setup.own_namespace, self.setup.scale_kinds.clone())
        })
    }

    fn compiled(&self, (uid, generation): (&str, i64), make: impl FnOnce() -> Law) -> Arc<Law> {
        let known = self.law.read().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = known.as_ref().filter(|k| &*k.uid == uid && k.generation == generation) {
            return Arc::clone(&known.law);
        }
        drop(known);
        let law = Arc::new(make());
        let mut known = self.law.write().unwrap_or_else(PoisonError::into_inner);
        // Settings that a booking still holds do not displace newer ones.
        if known.as_ref().is_none_or(|k| &*k.uid != uid || k.generation < generation) {
            *known = Some(Compiled { uid: uid.into(), generation, law: Arc::clone(&law) });
        }
        law
    }

    /// Webhooks under way; there once the signing key is.
    pub fn outbox(&self) -> Option<Outbox<Key>> {
        let outbox = self.outbox.read().unwrap_or_else(PoisonError::into_inner);
        outbox.as_ref().map(|(_, outbox)| outbox.clone())
    }

    /// Sends webhooks through the outbox that `make` makes from now on, unless there is one for that public key already;
    /// true if that is new. What was under way by another key is sent again, under the same id.
    pub fn send_by<E>(&self, key: &str, make: impl FnOnce() -> Result<Outbox<Key>, E>) -> Result<bool, E> {
        let mut outbox = self.outbox.write().unwrap_or_else(PoisonError::into_inner);
        if outbox.as_ref().is_some_and(|(known, _)| known == key) {
            return Ok(false);
        }
        *outbox = Some((key.to_owned(), make()?));
        Ok(true)
    }

    /// The managers of one namespace.
    pub fn managers_in(&self, namespace: &str) -> Vec<Key> {
        self.managers.list(namespace).iter().map(|m| Key::new(namespace, &m.name)).collect()
    }

    /// How many namespaces are managed.
    pub fn managed(&self) -> u64 {
        self.managers.namespaces() as u64
    }
}

/// The law by the settings of one object in one generation.
struct Compiled {
    uid: Box<str>,
    generation: i64,
    law: Arc<Law>,
}

/// Settings for when those there are cannot be understood.
fn nothing_allowed() -> CoppiceConfigSpec {
    let mut spec = CoppiceConfigSpec::default();
    spec.governor.paused = true;
    spec.tenants.actions.clear();
    spec.tenants.webhook_hosts.clear();
    spec
}
