//! What the controllers share.

use std::sync::{Arc, Mutex, PoisonError, RwLock};

use coppice_api::CoppiceConfigSpec;
use coppice_api::config::GovernorStatus;
use coppice_api::names::CONFIG_NAME;
use coppice_lifecycle::facts::{JobFacts, NamespaceFacts, PodFacts};
use coppice_lifecycle::law::{Law, ScaleKind};
use coppice_notify::outbox::Outbox;
use coppice_runtime::client::Clients;
use coppice_runtime::clock::Clock;
use coppice_runtime::events::Events;
use coppice_runtime::governor::Counter;
use coppice_runtime::kinds::{Config, Manager};
use coppice_runtime::leader::Gate;
use coppice_runtime::metrics::Metrics;
use coppice_runtime::skew::Skew;
use coppice_runtime::store::Store;
use jiff::{SignedDuration, Timestamp};
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
    /// The time.
    pub clock: Clock,
    /// How far the API server's time differs.
    pub skew: Skew,
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
    latest: Mutex<Option<Timestamp>>,
    outbox: RwLock<Option<(String, Outbox<Key>)>>,
    law: RwLock<Option<Compiled>>,
}

impl Shared {
    /// Everything together, with empty caches.
    pub fn new(
        setup: Setup,
        clients: Clients,
        clock: Clock,
        skew: Skew,
        gate: Gate,
        metrics: Metrics,
        events: Events,
    ) -> Self {
        Self {
            setup,
            clients,
            clock,
            skew,
            gate,
            metrics,
            events,
            managers: Store::default(),
            namespaces: Store::default(),
            pods: Store::default(),
            jobs: Store::default(),
            configs: Store::default(),
            counter: Counter::default(),
            latest: Mutex::new(None),
            outbox: RwLock::new(None),
            law: RwLock::new(None),
        }
    }

    /// The time that decisions are made by: the API server's, which wrote the times that they rest on, as far as its answers
    /// tell it; otherwise this machine's. Once known it does not go back, so that what was due stays due.
    pub fn now(&self) -> Timestamp {
        self.time().0
    }

    /// The same, with how far our clock is from it; none if no answer has told it yet.
    pub fn time(&self) -> (Timestamp, Option<SignedDuration>) {
        let ours = self.clock.now();
        let Some(skew) = self.skew.current() else { return (ours, None) };
        let theirs = ours.saturating_add(skew).unwrap_or(ours);
        let mut latest = self.latest.lock().unwrap_or_else(PoisonError::into_inner);
        let now = latest.map_or(theirs, |latest| latest.max(theirs));
        *latest = Some(now);
        (now, Some(skew))
    }

    /// The instant at which [`now`](Self::now) will be `at`.
    pub fn instant(&self, at: Timestamp) -> Instant {
        let ahead = self.clock.now().duration_since(self.now());
        self.clock.instant(at.saturating_add(ahead).unwrap_or(at))
    }

    /// The law by the cached settings, and the budget's ledger. Settings that are absent have their defaults; settings
    /// that cannot be understood allow nothing.
    pub fn law(&self) -> (Arc<Law>, GovernorStatus) {
        let Some(config) = self.configs.get("", CONFIG_NAME) else {
            return (self.compiled(("", 0), CoppiceConfigSpec::default), GovernorStatus::default());
        };
        (self.law_of(&config), config.status.governor.clone())
    }

    /// The law by these settings.
    pub fn law_of(&self, config: &Config) -> Arc<Law> {
        self.compiled((&config.uid, config.generation), || match &config.spec {
            Ok(spec) => (**spec).clone(),
            Err(_) => nothing_allowed(),
        })
    }

    fn compiled(&self, (uid, generation): (&str, i64), spec: impl FnOnce() -> CoppiceConfigSpec) -> Arc<Law> {
        let known = self.law.read().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = known.as_ref().filter(|k| &*k.uid == uid && k.generation == generation) {
            return Arc::clone(&known.law);
        }
        drop(known);
        let law = Law::new(spec(), &self.setup.own_namespace, self.setup.scale_kinds.clone());
        let law = Arc::new(law);
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
