//! The targets: their kubeconfigs, as they were read last, and clients for a few of them.
//!
//! The kubeconfig of every target in use is kept in memory: if its Secret is gone when something has to be revoked, as with the whole
//! namespace, the one that was there is used. So is the number of those who work on each target now, which is bounded.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::num::NonZeroUsize;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use coppice_api::Reason;
use coppice_clusters::KubeconfigFact;
use coppice_clusters::kubeconfig::{self, Cluster, Kubeconfig, Unencrypted};
use coppice_clusters_api::SecretKey;
use coppice_clusters_api::names::{
    CAPI_KUBECONFIG_KEY, CAPI_LABEL_CLUSTER, CAPI_SECRET_TYPE, capi_kubeconfig,
};
use coppice_runtime::client::Clients;
use coppice_runtime::clock::Clock;
use coppice_runtime::error::chain;
use coppice_runtime::metrics::Metrics;
use coppice_runtime::server_clock::ServerClock;
use kube::config::KubeConfigOptions;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;

use crate::budgets::Budgets;
use crate::output::{Secret, read_secret};
use crate::target::{Failure, Shoot, Target};

/// Why there is no kubeconfig to use.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum ReadError {
    /// The API server here did not say whether there is one. Nothing follows from that: it is read again.
    #[error("the Secret {secret} could not be read: {why}")]
    Unknown {
        /// The Secret.
        secret: String,
        /// What the API server answered, if anything.
        why: String,
    },
    /// There is none, or it is not used.
    #[error(transparent)]
    Unusable(#[from] Failure),
}

/// So many targets have clients at once.
const MAX_CLIENTS: usize = 64;
/// So many bytes of an answer of a target are read: more than any object has. Tenants choose their targets, and what these answer would
/// otherwise decide how much memory is used for all.
const MAX_ANSWER: usize = 2 << 20;
/// So many objects are worked on at once in one target at most: one that hangs keeps the other workers free.
const MAX_AT_ONCE: usize = 4;
/// One of so many workers, at least one, may wait for one target, and for all those together that did not answer last time.
const SHARE: usize = 4;
/// One of so many, at least one, may work on all targets of one tenant's namespace. Not one of more: installations may have them all in one.
const NAMESPACE_SHARE: usize = 2;
/// How many workers there are, unless somebody says otherwise.
const WORKERS: usize = 16;

/// A place among those who work on a target, and among those who wait for one that did not answer last time.
pub(crate) type Place = (OwnedSemaphorePermit, Option<OwnedSemaphorePermit>);
/// After so long a kubeconfig is read again, or twice that at most: who labels its Secret does not wait for that.
const READ_AGAIN: Duration = Duration::from_mins(5);
/// For so long a Shoot is reached with a kubeconfig that its garden has issued; that is valid for twice as long.
const SHOOT_REACHED: Duration = Duration::from_mins(5);
/// For so many seconds a garden is asked for one: it issues none for less.
pub(crate) const SHOOT_SECONDS: u64 = 600;

/// Makes clients of whoever a kubeconfig is for, by the clock of that server; none if no client can be made of it.
pub type Connect = Arc<dyn Fn(&Kubeconfig, &ServerClock) -> Option<Clients> + Send + Sync>;

/// Where a kubeconfig is.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Source {
    namespace: String,
    name: String,
    key: String,
    /// The cluster of Cluster API that the Secret has to be kept for, if it is one.
    cluster: Option<String>,
    /// The Shoot that the kubeconfig, which is that of a garden, is for.
    shoot: Option<Shoot>,
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

impl Source {
    /// In a Secret of that namespace.
    pub(crate) fn new(namespace: &str, SecretKey { name, key }: &SecretKey) -> Self {
        let (name, key) = (name.clone(), key.clone());
        Self { namespace: namespace.to_owned(), name, key, cluster: None, shoot: None }
    }

    /// Of a Shoot: the kubeconfig of its garden is there.
    pub(crate) fn of_shoot(garden: Self, shoot: Shoot) -> Self {
        Self { shoot: Some(shoot), ..garden }
    }

    /// The Shoot that it is for, and the garden that has it.
    pub(crate) fn shoot(&self) -> Option<(&Shoot, Self)> {
        Some((self.shoot.as_ref()?, Self { shoot: None, ..self.clone() }))
    }

    /// That of a cluster of Cluster API in that namespace.
    pub(crate) fn of_cluster(namespace: &str, cluster: &str) -> Self {
        Self {
            namespace: namespace.to_owned(),
            name: capi_kubeconfig(cluster),
            key: CAPI_KUBECONFIG_KEY.to_owned(),
            cluster: Some(cluster.to_owned()),
            shoot: None,
        }
    }

    /// The namespace of its Secret.
    pub(crate) fn namespace(&self) -> &str {
        &self.namespace
    }

    /// Whether it is in that Secret.
    pub(crate) fn is_in(&self, namespace: &str, secret: &str) -> bool {
        self.namespace == namespace && self.name == secret
    }

    /// That its Secret is not there.
    pub(crate) fn missing(&self) -> Failure {
        let what = match &self.cluster {
            None => "create it",
            Some(_) => "Cluster API creates it once the cluster has a control plane",
        };
        Failure::new(Reason::KubeconfigMissing, format!("there is no Secret {}: {what}", self.name))
    }

    /// What it names in its Secret.
    fn value(&self, secret: &Secret) -> Result<Vec<u8>, Failure> {
        let Self { name, key, .. } = self;
        if let Some(cluster) = self.cluster.as_ref().filter(|cluster| !secret.is_of_cluster(cluster)) {
            let message = format!(
                "Cluster API did not make the Secret {name}, which has not the type {CAPI_SECRET_TYPE} or not the label {CAPI_LABEL_CLUSTER}: {cluster}: \
                 leave that name to Cluster API; of another kubeconfig write the name into a new ClusterAccess, as spec.cluster.kubeconfigSecret"
            );
            return Err(Failure::new(Reason::KubeconfigRefused, message));
        }
        secret.value(key).ok_or_else(|| {
            let message = format!("there is no key {key} in the Secret {name}: create it");
            Failure::new(Reason::KubeconfigMissing, message)
        })
    }

    /// Different times for different Secrets, the same in every replica.
    fn read_again(&self) -> Duration {
        let hash = self.name.bytes().chain(self.namespace.bytes());
        let hash = hash.fold(0_u32, |hash, byte| hash.wrapping_mul(31).wrapping_add(u32::from(byte)));
        READ_AGAIN + READ_AGAIN * (hash % 100) / 100
    }
}

/// The targets.
pub(crate) struct Targets {
    clock: Clock,
    unencrypted: Unencrypted,
    /// How they are reached; none: over the network.
    connect: Option<Connect>,
    /// So many work on one target at once.
    per_target: usize,
    /// So many work at once on those whose kubeconfigs are in one tenant's namespace.
    per_namespace: usize,
    /// How many more may wait for a target that did not answer last time.
    of_silent: Arc<Semaphore>,
    /// Who goes first where no provider leads: of targets that have, or had a moment ago, too many requests. By their kubeconfigs.
    pub(crate) turns: Budgets<Source>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    known: BTreeMap<Source, Known>,
    uses: u64,
    /// By server: how many more may work there now.
    slots: BTreeMap<String, Arc<Semaphore>>,
    /// By namespace of a tenant: how many more may work on its targets.
    shares: BTreeMap<String, Arc<Semaphore>>,
    /// The endpoints that did not answer last time. With other authorities the same server counts as another: who writes a kubeconfig with
    /// wrong ones gets no answer, and slows nobody else.
    silent: BTreeSet<String>,
    /// Of which nothing is asked until then: they have too many requests. By their kubeconfigs, since a server limits its users one by one.
    throttled: BTreeMap<Source, Instant>,
}

/// What is known of a kubeconfig.
#[derive(Default)]
struct Known {
    /// When it was read; none if it has changed since.
    read_at: Option<Instant>,
    /// Whether one was there then that is used.
    is_usable: bool,
    /// The last one that was used.
    last: Option<Kubeconfig>,
    /// The clients for that, and when they were last used, counted in uses.
    clients: Option<(Clients, u64)>,
}

impl Targets {
    pub(crate) fn new(clock: Clock, unencrypted: Unencrypted) -> Self {
        let (per_target, per_namespace, of_silent) = Self::limits(WORKERS);
        let (connect, turns, state) = (None, Budgets::default(), Mutex::default());
        Self { clock, unencrypted, connect, per_target, per_namespace, of_silent, turns, state }
    }

    /// The same, reached in this way; none: over the network.
    pub(crate) fn with_connect(self, connect: Option<Connect>) -> Self {
        Self { connect, ..self }
    }

    /// The same for so many workers.
    pub(crate) fn with_workers(self, workers: NonZeroUsize) -> Self {
        let (per_target, per_namespace, of_silent) = Self::limits(workers.get());
        Self { per_target, per_namespace, of_silent, ..self }
    }

    fn limits(workers: usize) -> (usize, usize, Arc<Semaphore>) {
        let share = (workers / SHARE).max(1);
        let per_namespace = (workers / NAMESPACE_SHARE).max(1);
        (share.min(MAX_AT_ONCE), per_namespace, Arc::new(Semaphore::new(share)))
    }

    /// What is known of a kubeconfig without asking anybody.
    pub(crate) fn fact(&self, source: &Source) -> KubeconfigFact {
        if let Some((_, garden)) = source.shoot() {
            return match self.fact(&garden) {
                KubeconfigFact::Endpoint(_) => KubeconfigFact::OfGarden,
                fact => fact,
            };
        }
        let state = self.state();
        let known = state
            .known
            .get(source)
            .filter(|known| known.read_at.is_some_and(|read_at| read_at.elapsed() < source.read_again()));
        match known {
            None => KubeconfigFact::Unread,
            Some(Known { is_usable: true, last: Some(last), .. }) => {
                KubeconfigFact::Endpoint(last.cluster.endpoint())
            }
            Some(_) => KubeconfigFact::Unusable,
        }
    }

    /// Those in a Secret have changed.
    pub(crate) fn changed(&self, namespace: &str, secret: &str) {
        let mut state = self.state();
        let of_it = state.known.iter_mut();
        of_it
            .filter(|(source, _)| source.is_in(namespace, secret))
            .for_each(|(_, known)| known.read_at = None);
    }

    /// Removes those that nobody uses any more.
    pub(crate) fn retain(&self, used: &BTreeSet<Source>) {
        self.turns.retain(|source| used.contains(source));
        let mut state = self.state();
        let State { known, silent, .. } = &mut *state;
        known.retain(|source, _| used.contains(source));
        let endpoints: BTreeSet<String> =
            known.values().filter_map(|known| Some(known.last.as_ref()?.cluster.endpoint())).collect();
        silent.retain(|endpoint| endpoints.contains(endpoint));
    }

    /// Whether as many work on the target now as may, or on its garden.
    pub(crate) fn is_busy(&self, source: &Source) -> bool {
        if source.shoot().is_some_and(|(_, garden)| self.is_busy(&garden)) {
            return true;
        }
        let state = self.state();
        let last = state.known.get(source).and_then(|known| known.last.as_ref());
        last.is_some_and(|last| !self.has_place(&state, &last.cluster))
    }

    /// A target that did not answer last time is tried by one at a time, and not by many workers for all of those together: so that those
    /// that answer go on.
    fn has_place(&self, state: &State, cluster: &Cluster) -> bool {
        let of_server = state.slots.get(&cluster.server);
        let free = of_server.map_or(self.per_target, |slots| slots.available_permits());
        if state.silent.contains(&cluster.endpoint()) {
            free == self.per_target && self.of_silent.available_permits() > 0
        } else {
            free > 0
        }
    }

    /// A place among those that work on a target; none if as many do as may.
    pub(crate) fn place(&self, target: &Target) -> Option<Place> {
        let mut state = self.state();
        // A place that is taken keeps its semaphore.
        state.slots.retain(|_, slots| Arc::strong_count(slots) > 1);
        let cluster = &target.kubeconfig.cluster;
        if !self.has_place(&state, cluster) {
            return None;
        }
        let is_silent = state.silent.contains(&cluster.endpoint());
        let of_silent = is_silent.then(|| Arc::clone(&self.of_silent).try_acquire_owned());
        let of_silent = of_silent.transpose().ok()?;
        let new = || Arc::new(Semaphore::new(self.per_target));
        let slots = state.slots.entry(cluster.server.clone()).or_insert_with(new);
        Some((Arc::clone(slots).try_acquire_owned().ok()?, of_silent))
    }

    /// A share of the workers for a target of the namespace that its kubeconfig is in; none if as many work on these as may. Otherwise a tenant
    /// who writes one server after the other that hangs, none of which is known as silent, would keep the workers of all.
    pub(crate) fn share(&self, source: &Source) -> Option<OwnedSemaphorePermit> {
        let mut state = self.state();
        state.shares.retain(|_, share| Arc::strong_count(share) > 1);
        let new = || Arc::new(Semaphore::new(self.per_namespace));
        let share = state.shares.entry(source.namespace.clone()).or_insert_with(new);
        Arc::clone(share).try_acquire_owned().ok()
    }

    /// Whether a target has answered.
    pub(crate) fn answered(&self, target: &Target, answered: bool) {
        let (mut state, endpoint) = (self.state(), target.kubeconfig.cluster.endpoint());
        if answered {
            state.silent.remove(&endpoint);
        } else {
            state.silent.insert(endpoint);
        }
    }

    /// Nothing is asked of a target for so long.
    pub(crate) fn throttle(&self, source: &Source, wait: Duration) {
        let (mut state, now) = (self.state(), Instant::now());
        state.throttled.retain(|_, until| *until > now);
        let until = state.throttled.entry(source.clone()).or_insert(now);
        *until = (*until).max(now + wait);
    }

    /// For how long nothing is asked of it yet; none if it may be.
    pub(crate) fn throttled_for(&self, source: &Source) -> Option<Duration> {
        let until = *self.state().throttled.get(source)?;
        Some(until.saturating_duration_since(Instant::now())).filter(|left| !left.is_zero())
    }

    /// The target of a kubeconfig, which is read. `even_if_gone`: if its Secret is gone, by the one that was there, if that is known.
    pub(crate) async fn of(
        &self,
        clients: &Clients,
        source: &Source,
        even_if_gone: bool,
    ) -> Result<Target, ReadError> {
        let read = match self.read(clients, source).await? {
            None if even_if_gone => self.state().known.get(source).and_then(|known| known.last.clone()),
            read => read,
        };
        let kubeconfig = read.ok_or_else(|| source.missing())?;
        if let Some(clients) = self.kept_clients(source, &kubeconfig) {
            return Ok(Target { kubeconfig, clients });
        }
        let clients = self.clients(&kubeconfig).await?;
        self.keep_clients(source, &kubeconfig, &clients);
        Ok(Target { kubeconfig, clients })
    }

    /// A Shoot, as long as it is reached with the kubeconfig that its garden issued last.
    pub(crate) fn shoot(&self, source: &Source) -> Option<Target> {
        let is_new = |known: &&Known| known.read_at.is_some_and(|at| at.elapsed() < SHOOT_REACHED);
        let kubeconfig = self.state().known.get(source).filter(is_new)?.last.clone()?;
        let clients = self.kept_clients(source, &kubeconfig)?;
        Some(Target { kubeconfig, clients })
    }

    /// A Shoot, by a kubeconfig that its garden has just issued: it is in memory alone.
    pub(crate) async fn keep_shoot(
        &self,
        source: &Source,
        kubeconfig: Kubeconfig,
    ) -> Result<Target, Failure> {
        let clients = self.clients(&kubeconfig).await?;
        let last = Some(kubeconfig.clone());
        let known = Known { read_at: Some(Instant::now()), is_usable: true, last, clients: None };
        self.state().known.insert(source.clone(), known);
        self.keep_clients(source, &kubeconfig, &clients);
        Ok(Target { kubeconfig, clients })
    }

    /// Removes that of a Shoot from memory: it is reached with another one next time.
    pub(crate) fn remove_shoot_kubeconfig(&self, source: &Source) {
        if source.shoot.is_some() {
            self.state().known.remove(source);
        }
    }

    /// Reads a kubeconfig and remembers it, of a Shoot that of its garden; none if there is no such Secret.
    pub(crate) async fn read(
        &self,
        clients: &Clients,
        source: &Source,
    ) -> Result<Option<Kubeconfig>, ReadError> {
        let garden = source.shoot().map(|(_, garden)| garden);
        let source = garden.as_ref().unwrap_or(source);
        let Source { namespace, name, .. } = source;
        let secret = read_secret(clients, namespace, name)
            .await
            .map_err(|error| ReadError::Unknown { secret: name.clone(), why: chain(&error) })?;
        let found = secret.map(|secret| source.value(&secret)).transpose();
        let parsed = found.and_then(|value| value.map(|value| self.parse(&value, source)).transpose());
        let mut state = self.state();
        let known = state.known.entry(source.clone()).or_default();
        known.read_at = Some(Instant::now());
        known.is_usable = matches!(parsed, Ok(Some(_)));
        if let Ok(Some(kubeconfig)) = &parsed
            && known.last.as_ref() != Some(kubeconfig)
        {
            known.last = Some(kubeconfig.clone());
            known.clients = None;
        }
        parsed.map_err(ReadError::Unusable)
    }

    fn parse(&self, value: &[u8], Source { name, key, .. }: &Source) -> Result<Kubeconfig, Failure> {
        kubeconfig::parse(value, self.unencrypted).map_err(|why| {
            Failure::new(Reason::KubeconfigRefused, format!("{key} in the Secret {name}: {why}"))
        })
    }

    /// Clients with deadlines, clock and backpressure of their own. What they are asked is in no metric: nothing there names a target.
    pub(crate) async fn clients(&self, kubeconfig: &Kubeconfig) -> Result<Clients, Failure> {
        // What the error says may quote a credential.
        let refused = || {
            let message = "the kubeconfig cannot be used: compare its server, and whether its authorities, certificate and key are in PEM";
            Failure::new(Reason::KubeconfigRefused, message)
        };
        let server_clock = ServerClock::new(self.clock.clone());
        if let Some(connect) = &self.connect {
            return connect(kubeconfig, &server_clock).ok_or_else(refused);
        }
        // Of the fields that are used alone: nothing else reaches the client.
        let parsed = kube::config::Kubeconfig::from_yaml(&kubeconfig.text()).map_err(|_| refused())?;
        let config = kube::Config::from_custom_kubeconfig(parsed, &KubeConfigOptions::default()).await;
        let config = config.map_err(|_| refused())?;
        let metrics = Metrics::new(env!("CARGO_PKG_VERSION"));
        Clients::limited(config, &server_clock, &metrics, MAX_ANSWER).map_err(|_| refused())
    }

    fn kept_clients(&self, source: &Source, kubeconfig: &Kubeconfig) -> Option<Clients> {
        let mut state = self.state();
        state.uses += 1;
        let uses = state.uses;
        let known = state.known.get_mut(source).filter(|known| known.last.as_ref() == Some(kubeconfig))?;
        let (clients, last_use) = known.clients.as_mut()?;
        *last_use = uses;
        Some(clients.clone())
    }

    fn keep_clients(&self, source: &Source, kubeconfig: &Kubeconfig, clients: &Clients) {
        let mut state = self.state();
        let uses = state.uses;
        let Some(known) = state.known.get_mut(source).filter(|known| known.last.as_ref() == Some(kubeconfig))
        else {
            return;
        };
        known.clients = Some((clients.clone(), uses));
        let with_clients = state.known.values().filter(|known| known.clients.is_some());
        if with_clients.count() > MAX_CLIENTS {
            let last_use = |known: &Known| known.clients.as_ref().map(|(_, last_use)| *last_use);
            let with_clients = state.known.values_mut().filter(|known| known.clients.is_some());
            if let Some(oldest) = with_clients.min_by_key(|known| last_use(known)) {
                oldest.clients = None;
            }
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Every change is one assignment: a panic leaves valid data.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
#[path = "targets_tests.rs"]
mod tests;
