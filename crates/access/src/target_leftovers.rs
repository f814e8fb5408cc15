//! Deletes what is left in targets of a `ClusterAccess` that is gone, as after `spec.forgetAfter`, or once somebody has removed its finalizer.
//!
//! Watches `ClusterAccess` and `ClusterProvider`; acts on the leader alone, at its start and with each periodic resync, on the targets that
//! these reach: some of them each time, in turn.
//!
//! *Relies on*: the id of this installation on everything that it makes in a target. *Guarantees*: an object is deleted only if it has
//! that id, the name that we give, and the uid of a `ClusterAccess` that neither the cache nor the API server has, which is asked after the
//! target; if this replica has seen for an hour that it is left; as it was found; and while no list of `ClusterAccess` has
//! [collapsed](coppice_runtime::collapse). What another installation made, or an earlier version without ids, stays.
//!
//! The hour and the collapse are for a cluster that is restored from a wrong backup, where most of what is in targets seems to be left. A
//! replica that was running sees the list collapse, and waits for somebody to restart it. One that was started after the restore knows of no
//! list before, and gives the hour to put that right.
//!
//! Errors: what a target does not do is logged, and tried again with its next turn; what this API server does not say is asked again
//! with backoff by the queue.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use coppice_api::Reason;
use coppice_clusters_api::ClusterAccessSpec;
use coppice_runtime::client::Clients;
use coppice_runtime::controller::Controller;
use coppice_runtime::error::chain;
use coppice_runtime::leader::{Gate, Permit};
use coppice_runtime::queue::{Queue, ReconcileResult};
use coppice_runtime::read::{self, ListError};
use coppice_runtime::store::Freshness;
use coppice_runtime::watches::{Subscription, Watches};
use tokio::time::Instant;

use crate::kinds::ClusterAccesses;
use crate::metrics::AccessMetrics;
use crate::shared::Shared;
use crate::target::{Failure, Made, Target};
use crate::targets::{ReadError, Source};

/// A target is looked through once in so many periodic resyncs, which are a minute apart: each time all is listed that this installation has
/// made there.
const RESYNCS: usize = 10;
/// So many targets are looked through with one resync: as many as have clients at once. With more than ten times as many it takes longer until
/// it is the same one's turn again.
const MAX_TARGETS: usize = 64;
/// So many objects are deleted in one target then.
const MAX_DELETED: usize = 100;
/// After so many refusals the others of a kind are left for the next time, when they go first.
const MAX_REFUSED: usize = 10;
/// Nothing is deleted in a target before its `ClusterAccess` was seen to be gone for so long.
pub const GONE_FOR: Duration = Duration::from_hours(1);
/// So many `ClusterAccess`es that are gone are remembered of each target, the others once these are done: a target may show others each time.
const MAX_GONE: usize = 1_000;
/// Within this time a target has to answer.
const DEADLINE: Duration = Duration::from_mins(1);

/// The controller of what is left in targets. Its keys are where the kubeconfigs of these are.
pub(crate) struct TargetLeftoverController {
    clients: Clients,
    gate: Gate,
    metrics: AccessMetrics,
    shared: Shared,
    /// For how long it is seen that something is left until it is deleted.
    gone_for: Duration,
    /// The last one that was looked through.
    last: Mutex<Option<Source>>,
    /// What is remembered of each target.
    seen: Mutex<BTreeMap<Source, Seen>>,
}

/// What is remembered of a target.
#[derive(Default)]
struct Seen {
    /// The uids of `ClusterAccess`es that are gone, and left something there: since when this is seen.
    gone: BTreeMap<String, Instant>,
    /// The uids of objects that it refused to delete, until it was asked for all that is left.
    refused: BTreeSet<String>,
}

/// Why a target was not looked through, or not to the end.
#[derive(Debug, thiserror::Error)]
enum SweepError {
    /// The API server here did not say which accesses there are.
    #[error(transparent)]
    List(#[from] ListError),
    /// It did not say what the id of this installation is.
    #[error("{}", chain(.0))]
    Get(#[from] kube::Error),
    /// It has no kubeconfig of the target that can be used, which is said where that is named.
    #[error(transparent)]
    Kubeconfig(#[from] ReadError),
    /// The target did not answer, or refused something.
    #[error(transparent)]
    Target(#[from] Failure),
    /// An API server that was restored from a wrong backup lists few of them.
    #[error(
        "a list of ClusterAccesses lacked much of what was known: where these are gone for good, restart this replica (kubectl rollout restart)"
    )]
    Collapsed,
}

impl TargetLeftoverController {
    /// The controller, on the API server of this cluster and on what it shares with the others. It deletes what it has seen to be left
    /// for so long.
    pub(crate) fn new(
        clients: Clients,
        gate: Gate,
        metrics: AccessMetrics,
        shared: Shared,
        gone_for: Duration,
    ) -> Self {
        Self { clients, gate, metrics, shared, gone_for, last: Mutex::default(), seen: Mutex::default() }
    }

    /// Deletes what is left in a target.
    async fn sweep(&self, permit: &Permit, source: &Source) -> Result<(), SweepError> {
        let installation = self.shared.installation.id(&self.clients).await?;
        if installation.is_empty() {
            return Ok(());
        }
        let targets = &self.shared.targets;
        if targets.throttled_for(source).is_some() {
            return Ok(());
        }
        let target = match source.shoot() {
            None => targets.of(&self.clients, source, false).await?,
            // No garden is asked for a kubeconfig for this alone.
            Some(_) => match targets.shoot(source) {
                Some(target) => target,
                None => return Ok(()),
            },
        };
        // It waits for nobody: its turn comes again.
        let Some(_place) = targets.place(&target) else { return Ok(()) };
        let swept = self.sweep_target(permit, (source, &target), &installation).await;
        if let Err(SweepError::Target(failure)) = &swept
            && let Some(wait) = target.asks_to_wait(failure)
        {
            targets.throttle(source, wait);
        }
        swept
    }

    /// The same in this one, of what the installation of this id has made.
    async fn sweep_target(
        &self,
        permit: &Permit,
        (source, target): (&Source, &Target),
        installation: &str,
    ) -> Result<(), SweepError> {
        let mut living: BTreeSet<Box<str>> = BTreeSet::new();
        self.shared.accesses.for_each(|access| {
            living.insert(access.uid.clone());
        });
        let mut left = target.left_by(installation, |made| !living.contains(&*made.access)).await?;
        self.keep_long_gone(source, &living, &mut left);
        if left.is_empty() {
            return Ok(());
        }
        // A list may lack what is there: both have to say so. That of now has each whose objects the target has just shown.
        let listed = read::list::<ClusterAccesses>(&self.clients.reads, "").await?;
        let listed: BTreeSet<&str> = listed.iter().map(|access| &*access.uid).collect();
        left.retain(|made| !listed.contains(&*made.access));
        // After the cache was looked at: that is said before it shows such a list.
        if !left.is_empty() && self.shared.has_lost_accesses() {
            return Err(SweepError::Collapsed);
        }
        self.delete(permit, (source, target), &left).await
    }

    /// Remembers that these are left in a target, and keeps of them those whose access has been gone for long enough.
    fn keep_long_gone(&self, source: &Source, living: &BTreeSet<Box<str>>, left: &mut Vec<Made>) {
        let (now, mut all) = (Instant::now(), self.seen());
        for seen in all.values_mut() {
            seen.gone.retain(|access, _| !living.contains(access.as_str()));
        }
        let gone = &mut all.entry(source.clone()).or_default().gone;
        let before = std::mem::take(gone);
        // Those that are known already keep their place.
        let (known, new): (Vec<&Made>, Vec<&Made>) =
            left.iter().partition(|made| before.contains_key(&made.access));
        for made in known.into_iter().chain(new) {
            if gone.len() < MAX_GONE {
                let since = before.get(&made.access).copied().unwrap_or(now);
                gone.insert(made.access.clone(), since);
            }
        }
        let is_long_gone = |since: &Instant| now.duration_since(*since) >= self.gone_for;
        left.retain(|made| gone.get(&made.access).is_some_and(is_long_gone));
    }

    fn seen(&self) -> MutexGuard<'_, BTreeMap<Source, Seen>> {
        // A panic leaves valid data: at worst something is seen to be left again.
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Deletes these, first what the target did not refuse before. One that it refuses keeps no other from that.
    async fn delete(
        &self,
        permit: &Permit,
        (source, target): (&Source, &Target),
        left: &[Made],
    ) -> Result<(), SweepError> {
        let before = self.refused_before(source, left);
        let mut in_order: Vec<&Made> = left.iter().collect();
        in_order.sort_by_key(|made| before.contains(&made.uid));
        let (mut deleted, mut refusal) = (0, None);
        let mut refused: BTreeMap<&str, usize> = BTreeMap::new();
        for made in in_order {
            if deleted == MAX_DELETED || permit.check().is_err() {
                break;
            }
            if refused.get(made.described()).is_some_and(|times| *times >= MAX_REFUSED) {
                continue;
            }
            match target.delete_made(permit, made).await {
                Ok(()) => deleted += 1,
                Err(failure) if failure.reason == Reason::TargetRefused => {
                    *refused.entry(made.described()).or_default() += 1;
                    self.seen().entry(source.clone()).or_default().refused.insert(made.uid.clone());
                    refusal = Some(failure);
                    continue;
                }
                Err(failure) => return Err(failure.into()),
            }
            self.metrics.left_in_target();
            tracing::warn!(
                kubeconfig = %source,
                access = made.access,
                "its ClusterAccess is gone: a {} that was left in the target is deleted",
                made.described()
            );
        }
        refusal.map_or(Ok(()), |failure| Err(failure.into()))
    }

    /// The uids of those of these that the target refused to delete; none once it refused all of them.
    fn refused_before(&self, source: &Source, left: &[Made]) -> BTreeSet<String> {
        let left: BTreeSet<&str> = left.iter().map(|made| made.uid.as_str()).collect();
        let mut all = self.seen();
        let refused = &mut all.entry(source.clone()).or_default().refused;
        refused.retain(|uid| left.contains(uid.as_str()));
        if refused.len() == left.len() {
            refused.clear();
        }
        refused.clone()
    }

    /// Every target that is reached: by what was begun and is not suspended, and by providers. What Gardener issues has nothing there.
    fn targets(&self) -> BTreeSet<Source> {
        let providers = &self.shared.providers;
        let mut targets = BTreeSet::new();
        self.shared.accesses.for_each(|access| {
            let is_in_use = |spec: &ClusterAccessSpec| !spec.suspend && !spec.issuer.is_of_garden();
            if access.spec.as_ref().is_ok_and(|spec| is_in_use(spec)) && access.status.target.is_some() {
                targets.extend(providers.source_of_access(access));
            }
        });
        targets.extend(providers.store.keys().iter().filter_map(|(_, name)| providers.source_of(name)));
        targets
    }
}

impl Controller for TargetLeftoverController {
    type Key = Source;
    const NAME: &'static str = "target_leftovers";

    /// Woken by nothing: what is left is found when it is the turn of its target.
    fn subscribe(self: &Arc<Self>, watches: &Watches, _: &Queue<Source>) -> Vec<Subscription> {
        let Shared { accesses, providers, .. } = &self.shared;
        vec![watches.subscribe(accesses, |_, _| {}), watches.subscribe(&providers.store, |_, _| {})]
    }

    fn synced(&self) -> bool {
        let synced = |freshness| !matches!(freshness, Freshness::NotSynced(_));
        let Shared { accesses, providers, .. } = &self.shared;
        synced(accesses.freshness()) && synced(providers.store.freshness())
    }

    /// Those whose turn it is: at the start of a leader as many as can be, then a tenth of them; none on a follower.
    fn all(&self) -> Vec<Source> {
        if self.gate.permit().is_err() {
            return Vec::new();
        }
        let targets = self.targets();
        self.seen().retain(|source, _| targets.contains(source));
        // A panic leaves valid data: one assignment.
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        let share = if last.is_some() { targets.len().div_ceil(RESYNCS) } else { targets.len() };
        let after = last.as_ref().map_or(Bound::Unbounded, Bound::Excluded);
        let next = targets.range::<Source, _>((after, Bound::Unbounded)).chain(&targets);
        let next: Vec<Source> = next.take(share.min(MAX_TARGETS)).cloned().collect();
        if let Some(source) = next.last() {
            *last = Some(source.clone());
        }
        next
    }

    fn resync(&self) {
        self.metrics.set_sweeps_stopped(self.shared.has_lost_accesses());
    }

    async fn reconcile(self: Arc<Self>, source: Source) -> ReconcileResult {
        let Ok(permit) = self.gate.permit() else { return ReconcileResult::Done };
        match tokio::time::timeout(DEADLINE, self.sweep(&permit, &source)).await {
            Ok(Ok(())) => ReconcileResult::Done,
            Ok(Err(error @ (SweepError::List(_) | SweepError::Get(_)))) => {
                tracing::warn!(kubeconfig = %source, %error, "what may be left in the target is not deleted; it is tried again");
                ReconcileResult::Retry { category: "api", at_least: self.clients.backpressure.remaining() }
            }
            Ok(Err(error @ (SweepError::Kubeconfig(_) | SweepError::Target(_) | SweepError::Collapsed))) => {
                tracing::info!(kubeconfig = %source, %error, "what may be left in the target is not deleted");
                ReconcileResult::Done
            }
            Err(_) => {
                tracing::info!(kubeconfig = %source, "the target was not looked through in time");
                ReconcileResult::Done
            }
        }
    }
}

#[cfg(test)]
#[path = "target_leftovers_tests.rs"]
mod tests;
