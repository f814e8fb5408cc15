//! Keeps the credential of each `ClusterAccess` fresh, and revokes it at the end.
//!
//! Watches `ClusterAccess`, `ClusterProvider`, `ManagedCluster`, and the metadata of Secrets with our label; acts on the leader alone. `observe → plan → apply → report`,
//! one step each time, until there is nothing to do. What cannot be understood and is being deleted ends by `undecodable`. Before Coppice is
//! uninstalled it works on what is being deleted alone (`ending`).
//!
//! *Relies on*: the policies of the installation, which say who may write a `ClusterAccess`, and keep this account from Secrets that are
//! not its own. *Guarantees*: nothing is done in a target without an intent in status, or in another cluster than the one that status
//! names; a target that hangs keeps a few workers busy, each for a minute at most, all that did not answer last time a quarter of the
//! workers, and all of one tenant's namespace half of them; the Secret holds a credential that was tried out; the one before is revoked
//! after that alone, or is listed until it expires where it cannot be; nothing that was issued has a right without its `ClusterAccess`,
//! unless its target is away for longer than `spec.forgetAfter`.
//!
//! Errors: what a target does not do is said in status, and tried again after 1 to 30 minutes; of one that has too many requests nothing is
//! asked before it may be again, nor of what its provider leads to; what this API server does not do is tried again with backoff by the queue.

mod apply;
mod endings;
mod issue;
mod observe;
mod plan;
mod report;
mod undecodable;

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use coppice_clusters::{AccessObservation, AccessStep, GrantVerdict, Permission, Turn, urgency};
use coppice_runtime::client::Clients;
use coppice_runtime::controller::Controller;
use coppice_runtime::events::Events;
use coppice_runtime::leader::{Gate, Permit};
use coppice_runtime::queue::{Queue, ReconcileResult};
use coppice_runtime::server_clock::ServerClock;
use coppice_runtime::store::{Freshness, Store};
use coppice_runtime::watches::{Subscription, Watches};
use jiff::Timestamp;
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::Instant;

use self::apply::{Applied, Memory};
pub(crate) use self::endings::{Ending, Endings};
use crate::allowed::AllowedBefore;
use crate::installation::Installation;
use crate::kinds::{Access, ClusterAccesses, OutputSecrets};
use crate::metrics::{AccessMetrics, Counts};
use crate::shared::{Providers, Shared};
use crate::target::MakeKey;
use crate::target_rights::TargetRights;
use crate::targets::{Source, Targets};

/// Steps in a row for one object: a rotation has 16; then others have their turn.
const MAX_ROUNDS: usize = 40;
/// After that it is looked whether there is a place in the target.
const BUSY: Duration = Duration::from_secs(2);
/// No rotation is further away than this.
const FAR: Duration = Duration::from_hours(24 * 365);

/// The controller of `ClusterAccess`.
pub struct ClusterAccessController {
    clients: Clients,
    server_clock: ServerClock,
    gate: Gate,
    events: Events,
    accesses: Store<ClusterAccesses>,
    outputs: Store<OutputSecrets>,
    providers: Providers,
    targets: Arc<Targets>,
    installation: Installation,
    make_key: Option<MakeKey>,
    target_rights: TargetRights,
    allowed_before: AllowedBefore,
    metrics: AccessMetrics,
    /// What has ended, where it works on what is being deleted alone.
    endings: Option<Endings>,
}

/// Namespace and name of a `ClusterAccess`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AccessKey {
    namespace: Arc<str>,
    name: Arc<str>,
}

impl AccessKey {
    /// The key of one.
    pub(crate) fn new(namespace: &str, name: &str) -> Self {
        Self { namespace: namespace.into(), name: name.into() }
    }

    /// Its namespace.
    pub(crate) fn namespace(&self) -> &str {
        &self.namespace
    }
}

impl fmt::Display for AccessKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

impl ClusterAccessController {
    /// The controller, on the API server of this cluster and on what it shares with the others.
    pub fn new(
        clients: Clients,
        server_clock: ServerClock,
        gate: Gate,
        events: Events,
        metrics: AccessMetrics,
        shared: &Shared,
    ) -> Self {
        let Shared { accesses, outputs, providers, targets, installation, make_key, .. } = shared.clone();
        let (target_rights, allowed_before) = (TargetRights::default(), AllowedBefore::default());
        Self {
            clients,
            server_clock,
            gate,
            events,
            accesses,
            outputs,
            providers,
            targets,
            installation,
            make_key,
            target_rights,
            allowed_before,
            metrics,
            endings: None,
        }
    }

    /// The same, which ends what is being deleted and leaves everything else as it is: nothing is issued, replaced or restored.
    pub(crate) fn ending(self, endings: Endings) -> Self {
        Self { endings: Some(endings), ..self }
    }

    /// Whether nothing is done for one, whatever its status says.
    fn is_left_alone(&self, access: &Access) -> bool {
        self.endings.is_some() && !access.terminating
    }

    /// Wakes those that use a Secret: as theirs, or as that with the kubeconfig of their target.
    fn wake_users(&self, (namespace, secret): (&str, &str), queue: &Queue<AccessKey>) {
        self.targets.changed(namespace, secret);
        // The first pass is of all: while it is read which Secrets there are, not every access is looked through for each of them.
        if !self.synced() {
            return;
        }
        let wake = |access: &Access| {
            let is_output = access.spec.as_ref().is_ok_and(|spec| spec.output.secret == secret)
                && *access.namespace == *namespace;
            if is_output || self.providers.is_source_of_access((namespace, secret), access) {
                queue.add(AccessKey::new(&access.namespace, &access.name));
            }
        };
        // Kubeconfigs of providers are used from everywhere, all others in their own namespace.
        if self.providers.are_in(namespace) {
            self.accesses.for_each(wake);
        } else {
            self.accesses.list(namespace).iter().for_each(|access| wake(access));
        }
    }

    /// Asks the budget of its provider for the credential that is being issued, or for other rights; without one, whether others go first in
    /// its target.
    fn take_turn(&self, access: &Access, observed: &AccessObservation) -> Turn {
        let (key, now) = (AccessKey::new(&access.namespace, &access.name), self.now());
        let urgency = urgency(observed, now);
        let Some(provider) = observed.spec.cluster.provider_name() else {
            let (source, turns) = (observe::source(self, access), &self.targets.turns);
            return source.map_or(Turn::Granted, |source| turns.take(&source, &key, urgency, u32::MAX, now));
        };
        let Some(provider) = self.providers.store.get("", provider) else {
            // By the time that it is asked for nobody knows where its target is.
            return Turn::Granted;
        };
        let per_minute = provider.spec.as_ref().map_or(1, |spec| spec.calls_per_minute);
        self.providers.budgets.take(&*provider.name, &key, urgency, per_minute, now)
    }

    /// Nothing was asked for, since the target has no place: it is asked for later, and then counted.
    fn give_back_turn(&self, key: &AccessKey, access: &Access, turn: Turn) {
        if turn != Turn::Granted {
            return;
        }
        let cluster = self.providers.cluster_of(access);
        if let Some(provider) = cluster.as_ref().and_then(|cluster| cluster.provider_name()) {
            self.providers.budgets.give_back(provider, key);
        } else if let Some(source) = observe::source(self, access) {
            self.targets.turns.give_back(&source, key);
        }
    }

    /// Until when one has nothing to do but to wait for the budget of its provider, or for those that go first in its target.
    fn waits_for_turn(
        &self,
        key: &AccessKey,
        access: &Access,
        observed: &AccessObservation,
        step: &AccessStep,
    ) -> Option<Timestamp> {
        if !step.waits_for_turn(observed) {
            return None;
        }
        let (revokes, now) = (!observed.status.superseded.is_empty(), self.now());
        if let Some(provider) = observed.spec.cluster.provider_name() {
            return self.providers.budgets.waits_until(provider, key, revokes, now);
        }
        let (source, turns) = (observe::source(self, access)?, &self.targets.turns);
        if turns.throttled_until(&source, now).is_some() {
            // Nothing is granted now: its place is kept for when something is.
            turns.take(&source, key, urgency(observed, now), u32::MAX, now);
        }
        turns.waits_until(&source, key, revokes, now)
    }

    /// Wakes those that name a `ClusterProvider`.
    fn wake_of_provider(&self, name: &str, queue: &Queue<AccessKey>) {
        self.accesses.for_each(|access| {
            let cluster = self.providers.cluster_of(access);
            if cluster.is_some_and(|cluster| cluster.provider_name() == Some(name)) {
                queue.add(AccessKey::new(&access.namespace, &access.name));
            }
        });
    }

    /// Wakes those that name a `ManagedCluster`.
    fn wake_of_managed(&self, (namespace, name): (&str, &str), queue: &Queue<AccessKey>) {
        // As with Secrets: the first pass is of all.
        if !self.synced() {
            return;
        }
        for access in self.accesses.list(namespace) {
            let named = access.spec.as_ref().ok().and_then(|spec| spec.cluster.managed_cluster.as_ref());
            if named.is_some_and(|named| named.name == name) {
                queue.add(AccessKey::new(namespace, &access.name));
            }
        }
    }

    fn now(&self) -> Timestamp {
        self.server_clock.now().now()
    }

    /// Carries out one step after the other. The object is the API server's: what was planned from a cache is planned again on it.
    /// What it does in the target counts as `share` of the workers of its namespace, if it has one already.
    async fn work(
        &self,
        permit: &Permit,
        key: &AccessKey,
        mut access: Access,
        share: Option<OwnedSemaphorePermit>,
    ) -> ReconcileResult {
        let mut memory = self.memory(&access).with_share(share);
        let provider = self.provider_of(&access);
        for _ in 0..MAX_ROUNDS {
            if permit.check().is_err() {
                return ReconcileResult::Done;
            }
            // What one generation of it allows is not done in the cluster of another.
            if self.provider_of(&access) != provider {
                return ReconcileResult::Retry { category: "behind", at_least: Duration::ZERO };
            }
            let Some(observed) = observe::observed(self, &access, &memory) else {
                return ReconcileResult::Done;
            };
            let step = plan::plan(&observed, self.now());
            match apply::apply(self, permit, &access, &observed, &mut memory, step).await {
                Applied::Again => {}
                Applied::Changed(changed) => access = *changed,
                Applied::CheckAt(at) => return self.at(at),
                Applied::Behind => {
                    return ReconcileResult::Retry { category: "behind", at_least: Duration::ZERO };
                }
                Applied::Failed(error) => return self.failed(key, &error.to_string()),
                Applied::Busy => {
                    self.give_back_turn(key, &access, memory.turn);
                    return busy();
                }
            }
        }
        ReconcileResult::Retry { category: "rounds", at_least: Duration::ZERO }
    }

    /// What is known at the beginning of a reconcile.
    fn memory(&self, access: &Access) -> Memory {
        let mut memory = Memory::new(observe::watched(self, access));
        memory.grant = observe::known_grant(self, access);
        memory
    }

    /// Which generation of its provider is in the cache; none if it names none, or that is not there.
    fn provider_of(&self, access: &Access) -> Option<(Box<str>, i64)> {
        let cluster = self.providers.cluster_of(access)?;
        let provider = self.providers.store.get("", cluster.provider_name()?)?;
        Some((provider.uid.clone(), provider.generation))
    }

    /// What is in memory, and the next step by that; none if the object cannot be understood.
    fn planned(&self, access: &Access) -> Option<(AccessObservation, AccessStep)> {
        let memory = self.memory(access);
        let observed = observe::observed(self, access, &memory)?;
        let step = plan::plan(&observed, self.now());
        Some((observed, step))
    }

    /// For how long nothing is asked of its target yet, or of its garden, which have too many requests. Whoever is to ask the budget of a provider
    /// waits there, where the most urgent goes first; of what no provider leads to whoever is to take turns has its place by now.
    fn throttled_for(
        &self,
        access: &Access,
        observed: &AccessObservation,
        step: &AccessStep,
    ) -> Option<Duration> {
        let source = observe::source(self, access)?;
        let of_shoot = source.shoot().and_then(|_| self.targets.throttled_for(&source));
        if observed.spec.cluster.provider_name().is_some() && step.waits_for_turn(observed) {
            return of_shoot;
        }
        let garden = source.shoot().map(|(_, garden)| garden);
        of_shoot.max(self.targets.throttled_for(garden.as_ref().unwrap_or(&source)))
    }

    /// What one takes before it is read for its work in the target: a share of the workers of its namespace, where tenants decide where that
    /// is. `Err`: there is none left, or no place in the target.
    fn take_share(&self, access: &Access) -> Result<Option<OwnedSemaphorePermit>, Busy> {
        let Some(source) = observe::source(self, access) else { return Ok(None) };
        if self.targets.is_busy(&source) {
            return Err(Busy);
        }
        if !self.is_of_tenants(&source) {
            return Ok(None);
        }
        self.targets.share(&source).map(Some).ok_or(Busy)
    }

    /// Whether tenants, who write Secrets in its namespace, decide where a kubeconfig leads, and not the platform.
    fn is_of_tenants(&self, source: &Source) -> bool {
        !self.providers.are_in(source.namespace())
    }

    fn at(&self, at: Option<Timestamp>) -> ReconcileResult {
        let Some(at) = at else { return ReconcileResult::Done };
        let ahead = Duration::try_from(at.duration_since(self.now())).unwrap_or(Duration::ZERO);
        ReconcileResult::At(Instant::now() + ahead.min(FAR))
    }

    fn failed(&self, key: &AccessKey, error: &str) -> ReconcileResult {
        report::failed(key, error);
        ReconcileResult::Retry { category: "api", at_least: self.clients.backpressure.remaining() }
    }
}

/// Whether something that was given is not allowed any more, or that has to be found out.
const fn is_withdrawn(permission: &Permission, grant: GrantVerdict) -> bool {
    let is_to_go = matches!(
        grant,
        GrantVerdict::Unknown | GrantVerdict::RightsNotAllowed | GrantVerdict::CredentialNotAllowed
    );
    matches!(permission, Permission::Refused(..)) && is_to_go
}

/// As many work on the target, or for its namespace, as may.
struct Busy;

/// There is no place in the target: no worker waits for one.
fn busy() -> ReconcileResult {
    ReconcileResult::At(Instant::now() + BUSY)
}

impl Controller for ClusterAccessController {
    type Key = AccessKey;
    const NAME: &'static str = "cluster_access";

    /// Woken by every change of its object, of its Secret, of its provider, and of the `ManagedCluster` that it names.
    fn subscribe(self: &Arc<Self>, watches: &Watches, queue: &Queue<AccessKey>) -> Vec<Subscription> {
        let (of_access, of_output, of_provider) = (queue.clone(), queue.clone(), queue.clone());
        let (this, that) = (Arc::clone(self), Arc::clone(self));
        let (of_managed, it) = (queue.clone(), Arc::clone(self));
        vec![
            watches.subscribe(&self.accesses, move |namespace, name| {
                of_access.add(AccessKey::new(namespace, name));
            }),
            watches.subscribe(&self.outputs, move |namespace, secret| {
                this.wake_users((namespace, secret), &of_output);
            }),
            watches.subscribe(&self.providers.store, move |_, name| {
                that.wake_of_provider(name, &of_provider);
            }),
            watches.subscribe(&self.providers.managed, move |namespace, name| {
                it.wake_of_managed((namespace, name), &of_managed);
            }),
        ]
    }

    fn synced(&self) -> bool {
        let synced = |freshness| !matches!(freshness, Freshness::NotSynced(_));
        let Providers { store, managed, .. } = &self.providers;
        let watched = [self.accesses.freshness(), self.outputs.freshness()];
        watched.into_iter().chain([store.freshness(), managed.freshness()]).all(synced)
    }

    fn all(&self) -> Vec<AccessKey> {
        self.accesses.keys().iter().map(|(namespace, name)| AccessKey::new(namespace, name)).collect()
    }

    async fn reconcile(self: Arc<Self>, key: AccessKey) -> ReconcileResult {
        let Ok(permit) = self.gate.permit() else { return ReconcileResult::Done };
        let cached = self.accesses.get(&key.namespace, &key.name);
        let Some(cached) = cached.filter(|cached| !self.is_left_alone(cached)) else {
            return ReconcileResult::Done;
        };
        if let Err(error) = cached.decoded() {
            report::not_understood(&key, &error.to_string());
            let is_kept = cached.terminating && cached.has_finalizer;
            return if is_kept {
                undecodable::finalize(&self, &permit, &key).await
            } else {
                ReconcileResult::Done
            };
        }
        if cached.terminating {
            self.providers.budgets.stop_waiting(&key);
            self.targets.turns.stop_waiting(&key);
            self.target_rights.remove_access(&key);
        }
        let (mut planned, mut takes_away) = (self.planned(&cached), false);
        // For these two alone the object is not read again: a new leader does them for each.
        if matches!(&planned, Some((observed, AccessStep::ReadProvider)) if observed.grant == GrantVerdict::Unread)
        {
            match observe::permission(&self, &cached).await {
                Ok((permission, grant)) => takes_away = is_withdrawn(&permission, grant),
                Err(error) => return self.failed(&key, &error.to_string()),
            }
            planned = self.planned(&cached);
        }
        if matches!(planned, Some((_, AccessStep::ReadKubeconfig))) {
            if let Err(error) = observe::read_kubeconfig(&self, &cached).await {
                return self.failed(&key, &error.to_string());
            }
            planned = self.planned(&cached);
        }
        let turn =
            planned.as_ref().and_then(|(observed, step)| self.waits_for_turn(&key, &cached, observed, step));
        // What is not allowed any more is taken away at once, whatever else waits.
        if turn.is_some() && !takes_away {
            return self.at(turn);
        }
        let mut share = None;
        match planned {
            None => return ReconcileResult::Done,
            Some((_, AccessStep::Wait(at))) => return self.at(at),
            Some((observed, step)) if step.waits_for_place(&observed) => {
                if let Some(wait) = self.throttled_for(&cached, &observed, &step) {
                    return ReconcileResult::At(Instant::now() + wait);
                }
                // Others that wait find none then, and read nothing for it.
                match self.take_share(&cached) {
                    Ok(taken) => share = taken,
                    Err(Busy) => return busy(),
                }
            }
            Some(_) => {}
        }
        match observe::fresh(&self, &key).await {
            // Another one of its name may be there by now.
            Ok(Some(access)) if !self.is_left_alone(&access) => self.work(&permit, &key, access, share).await,
            Ok(_) => ReconcileResult::Done,
            Err(error) => self.failed(&key, &error.to_string()),
        }
    }

    fn resync(&self) {
        let (mut used, mut counts) = (BTreeSet::new(), Counts::default());
        let now = self.now();
        self.accesses.for_each(|access| {
            used.extend(observe::source(self, access));
            counts.add(access, now);
        });
        self.providers.store.for_each(|provider| {
            used.extend(provider.spec.as_ref().ok().map(|spec| self.providers.source(spec)));
        });
        self.targets.retain(&used);
        self.metrics.set(&counts);
        self.providers.retain_budgets();
        let is_there = |key: &AccessKey| self.accesses.get(&key.namespace, &key.name).is_some();
        self.target_rights.retain(is_there);
        self.allowed_before.retain(is_there);
    }
}

#[cfg(test)]
#[path = "work_tests.rs"]
mod tests;

#[cfg(test)]
mod answers_tests;
