//! What the controllers share.

use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::Duration;

use coppice_actions::decision::StepContext;
use coppice_actions::governor::{Governor, Reservation};
use coppice_api::CoppiceConfigSpec;
use coppice_api::config::{GovernorSpec, GovernorStatus};
use coppice_api::names::{CONFIG_NAME, MANAGED_NAMESPACE_NAME};
use coppice_kinds::{
    ClusterManager, ClusterManagers, Config, Configs, DeletedNamespaces, Jobs, ManagedNamespaces, Managers,
    NamespaceRecord, Namespaces, Pods,
};
use coppice_lifecycle::breaker;
use coppice_lifecycle::cluster::census::Census;
use coppice_lifecycle::governor::Share;
use coppice_lifecycle::settings::{PlatformSettings, ScaleKind};
use coppice_quantity::time::ServerTime;
use coppice_runtime::client::Clients;
use coppice_runtime::collapse::Collapse;
use coppice_runtime::events::Events;
use coppice_runtime::kind::Kind as _;
use coppice_runtime::leader::{Gate, LeaderState, Permit};
use coppice_runtime::metrics::Metrics;
use coppice_runtime::object::OwnKind as _;
use coppice_runtime::read::{self, ListError};
use coppice_runtime::server_clock::ServerClock;
use coppice_runtime::shared_read::SharedRead;
use coppice_runtime::store::{Freshness, Store};
use jiff::{SignedDuration, Timestamp};
use tokio::time::Instant;

use crate::delivery_waiters::DeliveryWaiters;
use crate::health::WorkloadStores;
use crate::known_breaker::{KnownBreaker, SettingsSeen};
use crate::losses::LossReader;
use crate::message_texts::MessageTexts;
use crate::metrics::LifecycleMetrics;
use crate::outboxes::Outboxes;
use crate::refused_records::RefusedRecords;

/// What is under way when the signing key is replaced has so long to end.
const REPLACED_GRACE: Duration = Duration::from_mins(1);

/// What can open the breaker by itself: the kinds of the caches below.
const SOURCES: [&str; 8] = [
    ClusterManagers::RESOURCE,
    Configs::RESOURCE,
    DeletedNamespaces::RESOURCE,
    Jobs::RESOURCE,
    ManagedNamespaces::RESOURCE,
    Managers::RESOURCE,
    Namespaces::RESOURCE,
    Pods::RESOURCE,
];

/// Namespace and name of a `NamespaceManager`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ManagerKey {
    /// The namespace.
    pub namespace: Arc<str>,
    /// The name.
    pub name: Arc<str>,
}

impl ManagerKey {
    /// The key of an object.
    pub fn new(namespace: &str, name: &str) -> Self {
        Self { namespace: namespace.into(), name: name.into() }
    }
}

impl std::fmt::Display for ManagerKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

/// The object that a webhook is sent for: when an attempt has ended, the controller of its kind looks at it again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WebhookSubject {
    /// The kind, as in `kind`.
    pub kind: &'static str,
    /// The namespace.
    pub namespace: Arc<str>,
    /// The name.
    pub name: Arc<str>,
}

impl WebhookSubject {
    /// The record of a namespace.
    pub(crate) fn of_record(namespace: &str) -> Self {
        let kind = ManagedNamespaces::KIND;
        Self { kind, namespace: namespace.into(), name: MANAGED_NAMESPACE_NAME.into() }
    }

    /// The record of a deletion, which is in no namespace.
    pub(crate) fn of_deletion(decision: &str) -> Self {
        Self { kind: DeletedNamespaces::KIND, namespace: "".into(), name: decision.into() }
    }
}

impl std::fmt::Display for WebhookSubject {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {}/{}", self.kind, self.namespace, self.name)
    }
}

/// The startup configuration of this operator.
#[derive(Clone, Debug)]
pub struct OperatorOptions {
    /// The namespace that it lives in.
    pub own_namespace: String,
    /// Kinds that tenants may scale down besides the built-in ones.
    pub scale_kinds: Vec<ScaleKind>,
}

/// Clients, caches and the little state that the controllers share. Everything in it can be lost at any moment.
pub struct ControllerContext {
    /// How the operator was started.
    pub setup: OperatorOptions,
    /// The API server.
    pub clients: Clients,
    /// The API server's time, and this machine's.
    pub server_clock: ServerClock,
    /// Whether this replica writes.
    pub gate: Gate,
    /// The registry of metrics, and those of the runtime.
    pub metrics: Metrics,
    /// The metrics of the controllers.
    pub lifecycle_metrics: LifecycleMetrics,
    /// Kubernetes Events.
    pub events: Events,
    /// Every `NamespaceManager`.
    pub managers: Store<Managers>,
    /// Every `ClusterNamespaceManager`.
    pub cluster_managers: Store<ClusterManagers>,
    /// The records of namespaces.
    pub managed_namespaces: Store<ManagedNamespaces>,
    /// Every namespace.
    pub namespaces: Store<Namespaces>,
    /// Every pod.
    pub pods: Store<Pods>,
    /// Every Job.
    pub jobs: Store<Jobs>,
    /// The workloads that say something about the health of their namespace, but for pods and Jobs; filled while a cluster
    /// manager looks at that.
    pub workloads: WorkloadStores,
    /// The settings.
    pub configs: Store<Configs>,
    /// The records of deletions.
    pub deleted_namespaces: Store<DeletedNamespaces>,
    /// Where destructive steps are reserved.
    pub governor: Governor,
    /// The breaker as this replica knows it, whatever the ledger has.
    pub known_breaker: KnownBreaker,
    /// Held while the breaker is shown in the metrics.
    showing: Mutex<()>,
    /// The list of cluster managers that deletions rest on.
    listed_managers: SharedRead<Vec<Arc<ClusterManager>>, ListError>,
    census: RwLock<Option<(LeaderState, Arc<Census>)>>,
    outboxes: RwLock<Option<(String, Outboxes)>>,
    /// Who waits for what is sent.
    pub delivery_waiters: Arc<DeliveryWaiters>,
    settings: RwLock<Option<CompiledSettings>>,
    /// Reads what is lost with namespaces.
    pub(crate) losses: LossReader,
    /// The texts of messages to owners.
    pub(crate) texts: MessageTexts,
    /// Why records of namespaces are not written.
    pub(crate) refused_records: RefusedRecords,
    /// When the last controller that evaluates conditions started.
    started: Mutex<Duration>,
}

impl ControllerContext {
    /// Everything together, with empty caches.
    pub fn new(
        setup: OperatorOptions,
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
            lifecycle_metrics: LifecycleMetrics::new(&metrics),
            metrics,
            events,
            managers: Store::default(),
            cluster_managers: Store::default(),
            managed_namespaces: Store::default(),
            namespaces: Store::default(),
            pods: Store::default(),
            jobs: Store::default(),
            workloads: WorkloadStores::default(),
            configs: Store::default(),
            deleted_namespaces: Store::default(),
            governor: Governor::default(),
            known_breaker: KnownBreaker::default(),
            showing: Mutex::new(()),
            listed_managers: SharedRead::default(),
            census: RwLock::new(None),
            outboxes: RwLock::new(None),
            delivery_waiters: Arc::default(),
            settings: RwLock::new(None),
            losses: LossReader::default(),
            texts: MessageTexts::default(),
            refused_records: RefusedRecords::default(),
            started: Mutex::default(),
        }
    }

    /// Reads every cluster manager again. Of what is due in one moment, all share the answer.
    ///
    /// # Errors
    /// If they cannot be listed, or one of them cannot be understood.
    pub async fn list_cluster_managers(&self) -> Result<Vec<Arc<ClusterManager>>, Arc<ListError>> {
        let list = async {
            let listed = read::list::<ClusterManagers>(&self.clients.reads, "").await?;
            Ok(listed.into_iter().map(Arc::new).collect())
        };
        Box::pin(self.listed_managers.read(list)).await.map(|managers| managers.to_vec())
    }

    /// What carrying out a decision takes, with this permit.
    pub fn step<'a>(&'a self, permit: &'a Permit) -> StepContext<'a> {
        StepContext {
            clients: &self.clients,
            permit,
            governor: &self.governor,
            configs: &self.configs,
            share: Share::Managers(self.managed()),
            clock: &self.server_clock,
        }
    }

    /// The time that decisions are made by.
    pub fn time(&self) -> ServerTime {
        self.server_clock.now()
    }

    /// The earliest possible current time: for dates that are recorded.
    pub fn now(&self) -> Timestamp {
        self.time().now()
    }

    /// The instant at which [`now`](Self::now) will be `at`; now, if it has passed.
    pub fn instant(&self, at: Timestamp) -> Instant {
        const FAR: Duration = Duration::from_hours(24 * 365 * 100);
        let ahead = Duration::try_from(at.duration_since(self.now())).unwrap_or(Duration::ZERO);
        Instant::now() + ahead.min(FAR)
    }

    /// The settings that were reserved under, compiled, and the budget's ledger as it was before that, with the breaker that is open.
    pub fn reserved(&self, reservation: &Reservation) -> (Arc<PlatformSettings>, GovernorStatus) {
        let settings = self.settings_of(&reservation.settings);
        let budget = self.with_breaker(&settings, reservation.budget.clone());
        (settings, budget)
    }

    /// The compiled form of the cached settings, and the budget's ledger with the breaker that is open. Settings that are
    /// missing, or cannot be understood, allow nothing.
    pub fn settings(&self) -> (Arc<PlatformSettings>, GovernorStatus) {
        let (settings, ledger) = self.cached_settings();
        let budget = self.with_breaker(&settings, ledger);
        (settings, budget)
    }

    /// A ledger under these settings, with the breaker that is open: also one that the ledger does not have yet, did not
    /// have when it was read, or does not have any more though nobody acknowledged it.
    fn with_breaker(&self, settings: &PlatformSettings, ledger: GovernorStatus) -> GovernorStatus {
        breaker::with_known(&settings.config.governor, ledger, &self.known_breaker.get())
    }

    /// Opens the breaker, here and at once; the leader writes it into the ledger.
    pub fn collapsed(&self, collapse: Collapse) {
        let Collapse { resource, before, missing, after_gap } = collapse;
        let new = breaker::opened(resource, before, missing, after_gap, self.now());
        let (new_id, message) = (new.id.clone(), new.message.clone());
        let id = self.known_breaker.record_collapse(new, self.server_clock.clock().monotonic()).id;
        if id == new_id {
            tracing::error!(%id, "the breaker opens: {message}; find out why, then run `coppice acknowledge {id}`");
        } else {
            tracing::error!(%id, "{message}; the breaker is open already");
        }
        self.show_breaker();
    }

    /// Takes notice of the breaker in the ledger of these settings, and of what they acknowledge. What is acknowledged in a
    /// spec that cannot be understood is not known: nothing.
    pub(crate) fn observe_breaker(&self, config: &Config) {
        let nothing = GovernorSpec::default();
        let settings = config.spec.as_ref().map_or(&nothing, |spec| &spec.governor);
        let followed_since = match self.configs.freshness() {
            Freshness::Fresh(since) => Some(since),
            Freshness::NotSynced(_) | Freshness::Stale(_) => None,
        };
        let seen = SettingsSeen { at: self.server_clock.clock().monotonic(), followed_since };
        self.known_breaker.observe(settings, &config.status.governor, seen);
        self.show_breaker();
    }

    /// Every replica shows the breaker that it goes by.
    pub(crate) fn show_breaker(&self) {
        // Whoever writes last has looked last.
        let _showing = self.showing.lock().unwrap_or_else(PoisonError::into_inner);
        let (settings, budget) = self.settings();
        let open = budget.breaker.as_ref().map(|breaker| breaker.source.as_str());
        self.lifecycle_metrics.breaker_open(&SOURCES, open, settings.config.governor.paused);
    }

    fn cached_settings(&self) -> (Arc<PlatformSettings>, GovernorStatus) {
        let Some(config) = self.configs.get("", CONFIG_NAME) else {
            let missing =
                || PlatformSettings::missing(&self.setup.own_namespace, self.setup.scale_kinds.clone());
            return (self.compiled(("", 0), missing), GovernorStatus::default());
        };
        (self.settings_of(&config), config.status.governor.clone())
    }

    /// These settings, compiled.
    fn settings_of(&self, config: &Config) -> Arc<PlatformSettings> {
        self.compiled((&config.uid, config.generation), || {
            let spec = config.spec.as_ref().map_or_else(|_| deny_all(), |spec| (**spec).clone());
            PlatformSettings::new(spec, &self.setup.own_namespace, self.setup.scale_kinds.clone())
        })
    }

    fn compiled(
        &self,
        (uid, generation): (&str, i64),
        make: impl FnOnce() -> PlatformSettings,
    ) -> Arc<PlatformSettings> {
        let known = self.settings.read().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = known.as_ref().filter(|k| &*k.uid == uid && k.generation == generation) {
            return Arc::clone(&known.settings);
        }
        drop(known);
        let settings = Arc::new(make());
        let mut known = self.settings.write().unwrap_or_else(PoisonError::into_inner);
        // Settings that a reservation still holds do not displace newer ones.
        if known.as_ref().is_none_or(|k| &*k.uid != uid || k.generation < generation) {
            *known = Some(CompiledSettings { uid: uid.into(), generation, settings: Arc::clone(&settings) });
        }
        settings
    }

    /// When to look again at something that is about to change.
    pub(crate) fn in_one_second(&self) -> Option<Timestamp> {
        self.now().checked_add(SignedDuration::from_secs(1)).ok()
    }

    /// What is sent in the background; set once the signing key is there.
    pub fn outboxes(&self) -> Option<Outboxes> {
        let outboxes = self.outboxes.read().unwrap_or_else(PoisonError::into_inner);
        outboxes.as_ref().map(|(_, outboxes)| outboxes.clone())
    }

    /// Sends through the outboxes that `make` creates from now on, unless there are some for that public key
    /// already; true if they are new. Deliveries in flight under another key are sent again, with the same id.
    pub fn set_outboxes<E>(&self, key: &str, make: impl FnOnce() -> Result<Outboxes, E>) -> Result<bool, E> {
        let mut outboxes = self.outboxes.write().unwrap_or_else(PoisonError::into_inner);
        if outboxes.as_ref().is_some_and(|(known, _)| known == key) {
            return Ok(false);
        }
        let before = outboxes.replace((key.to_owned(), make()?));
        if let Some((_, before)) = before {
            // What waits in them is sent by the new ones: it would come twice.
            tokio::spawn(async move { before.shutdown(REPLACED_GRACE).await });
        }
        Ok(true)
    }

    /// The managers of one namespace.
    pub fn managers_in(&self, namespace: &str) -> Vec<ManagerKey> {
        self.managers.list(namespace).iter().map(|m| ManagerKey::new(namespace, &m.name)).collect()
    }

    /// Every manager.
    pub fn manager_keys(&self) -> Vec<ManagerKey> {
        let keys = self.managers.keys();
        keys.iter().map(|(namespace, name)| ManagerKey::new(namespace, name)).collect()
    }

    /// How many namespaces are managed: by managers of their own, or by a cluster manager that enforces. Until those were
    /// counted there are none, which makes the budget smaller.
    pub fn managed(&self) -> u64 {
        self.managers.namespaces() as u64 + self.census().map_or(0, |census| census.enforced)
    }

    /// What there is for each cluster manager, as last counted since this replica leads; none while it is not known who
    /// governs what.
    pub(crate) fn census(&self) -> Option<Arc<Census>> {
        let known = self.census.read().unwrap_or_else(PoisonError::into_inner);
        let (leads, census) = known.as_ref()?;
        (*leads == self.gate.state()).then(|| Arc::clone(census))
    }

    pub(crate) fn set_census(&self, census: Option<Arc<Census>>) {
        let leads = self.gate.state();
        *self.census.write().unwrap_or_else(PoisonError::into_inner) = census.map(|census| (leads, census));
    }

    /// A controller that evaluates conditions has listed everything, and starts.
    pub(crate) fn starts_evaluating(&self) {
        let now = self.server_clock.clock().monotonic();
        let mut started = self.started.lock().unwrap_or_else(PoisonError::into_inner);
        *started = now.max(*started);
    }

    /// Since when this replica evaluates conditions, on the monotonic clock: since it leads and has listed everything. Now, if
    /// it does not lead.
    pub(crate) fn evaluates_since(&self) -> Duration {
        match self.gate.state() {
            LeaderState::Leader { since, .. } => {
                since.max(*self.started.lock().unwrap_or_else(PoisonError::into_inner))
            }
            LeaderState::Follower { .. } | LeaderState::Unknown { .. } => {
                self.server_clock.clock().monotonic()
            }
        }
    }

    /// The record of a namespace.
    pub(crate) fn record(&self, namespace: &str) -> Option<Arc<NamespaceRecord>> {
        self.managed_namespaces.get(namespace, MANAGED_NAMESPACE_NAME)
    }
}

/// The compiled settings of one object in one generation.
struct CompiledSettings {
    uid: Box<str>,
    generation: i64,
    settings: Arc<PlatformSettings>,
}

/// Settings for when those there are cannot be understood.
fn deny_all() -> CoppiceConfigSpec {
    let mut spec = CoppiceConfigSpec::default();
    spec.governor.paused = true;
    spec.tenants.actions.clear();
    spec.tenants.webhook_hosts.clear();
    spec
}
