//! `coppice-access release-all`: before the program is uninstalled, it takes Coppice's finalizer off every `ClusterAccess` and `ManagedCluster`,
//! which nobody else would.
//!
//! It takes the Lease, so that the leader ends, its successors follow, and nothing is issued or put on again meanwhile. `ClusterAccess`es that are
//! being deleted are ended as ever, by their controller, for as long as is asked for; all others are kept with what was issued for them, or
//! deleted first where that is asked for. Then finalizers are taken off. After success the Lease is kept for a while, in which the program
//! can be removed; otherwise it is given back, and the program goes on.
//!
//! *Guarantees*: no cluster is deleted; no `ClusterAccess` is deleted unless that is asked for; whatever is not revoked is named, with until
//! when it is valid. It may be killed at any time and started again: what it has not done is found by what the objects say.

mod deletions;
mod finalizers;
mod report;
mod revocation;

use std::io::Write as _;
use std::num::NonZeroUsize;
use std::time::Duration;

use anyhow::{Context as _, anyhow};
use coppice_clusters::kubeconfig::Unencrypted;
use coppice_quantity::count;
use coppice_runtime::client::{Clients, Deadlines};
use coppice_runtime::clock::SeededRng;
use coppice_runtime::events::Events;
use coppice_runtime::leader::{Gate, NotLeader};
use coppice_runtime::lease::{Election, LeaseSettings, keep, take_over};
use coppice_runtime::metrics::Metrics;
use coppice_runtime::object::OwnKind;
use coppice_runtime::read::{self, ListError};
use coppice_runtime::server_clock::ServerClock;
use coppice_runtime::write::WriteError;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout, timeout_at};
use tokio_util::sync::CancellationToken;

use self::report::Tally;
use crate::kinds::{ClusterAccesses, ManagedClusters};

/// The pause before what failed is tried again, and between two looks.
const PAUSE: Duration = Duration::from_secs(2);
/// For so long it is tried to take the Lease: that of a program which runs takes its duration.
const LEASE_WAIT: Duration = Duration::from_mins(2);
/// The longest time for deletions, and that for finalizers.
const WRITES_WAIT: Duration = Duration::from_mins(2);
/// The longest time to give the Lease back.
const GRACE: Duration = Duration::from_secs(15);
/// Events that are being written have this long to end.
const EVENTS_GRACE: Duration = Duration::from_secs(30);
/// So many objects are written at once.
const CONCURRENCY: usize = 8;
/// What the identity of each `release-all` in the Lease begins with. A pod's name, which is the program's, has no slash.
const PEER: &str = "release-all/";

/// What becomes of the credentials of those `ClusterAccess`es that nobody has deleted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CredentialHandling {
    /// They stay in their Secrets, and are valid until they expire.
    Keep,
    /// They are revoked: each `ClusterAccess` is deleted.
    Revoke,
}

/// What it runs on, and what is asked for.
pub struct Setup {
    /// The API server.
    pub clients: Clients,
    /// Its time.
    pub server_clock: ServerClock,
    /// The metrics, which nobody reads.
    pub metrics: Metrics,
    /// The Lease, for an identity with this [`name`].
    pub lease: LeaseSettings,
    /// The namespace of the program, with the kubeconfigs of providers.
    pub namespace: String,
    /// How many `ClusterAccess`es are ended at once.
    pub concurrency: NonZeroUsize,
    /// Decides its random choices.
    pub rng: SeededRng,
    /// To which targets credentials may go unencrypted.
    pub unencrypted: Unencrypted,
    /// What becomes of credentials.
    pub credentials: CredentialHandling,
    /// For how long it is tried to revoke.
    pub wait: Duration,
    /// For how long no replica leads after success.
    pub hold: Duration,
    /// Whether it only says what it would do.
    pub dry_run: bool,
}

/// Why something was not done to an object.
#[derive(Debug, thiserror::Error)]
enum StepError {
    /// The API server did not do it.
    #[error(transparent)]
    Write(#[from] WriteError),
    /// The Lease is not held any more.
    #[error(transparent)]
    NotLeader(#[from] NotLeader),
}

/// The name in the Lease of a `release-all` in this pod.
pub fn name(pod: Option<&str>) -> String {
    format!("{PEER}{}", pod.unwrap_or("coppice-release-all"))
}

/// Whether another `release-all` has this identity.
fn is_peer(holder: &str) -> bool {
    holder.starts_with(PEER)
}

/// Succeeds if no object has our finalizer any more, and no replica can put it on again for a while.
///
/// # Errors
/// If a finalizer is left, the Lease could not be taken or kept, or an object could not be deleted that was to be.
pub async fn run(setup: Setup) -> anyhow::Result<()> {
    if setup.dry_run {
        return dry_run(&setup).await;
    }
    let (clients, lease, hold) = (setup.clients.clone(), setup.lease.clone(), setup.hold);
    let clock = setup.server_clock.clock().clone();
    // The program does not start with these. Here a write that is late still carries the revision that was read.
    if let Err(risk) = lease.validate_writes(Deadlines::default().write) {
        tracing::warn!("{risk}; it goes on");
    }
    let (election, gate) =
        Election::new(clients.clone(), lease.clone(), clock.clone(), setup.metrics.clone())?;
    timeout(LEASE_WAIT, take_over(&clients, &lease, &clock, is_peer)).await.map_err(|_| {
        let (namespace, name) = (&lease.namespace, &lease.name);
        anyhow!(
            "the Lease {namespace}/{name} could not be taken for {} s: see the log for the reason, and start it again",
            LEASE_WAIT.as_secs()
        )
    })??;
    let release = CancellationToken::new();
    let mut elections = JoinSet::new();
    elections.spawn(election.run(release.clone()));
    let done = tokio::select! {
        done = Box::pin(work(setup, &gate)) => done,
        ended = elections.join_next() => match ended {
            Some(Ok(Err(lost))) => Err(lost.into()),
            _ => Err(anyhow!("the election ended before its time")),
        }
    };
    if done.is_err() {
        release.cancel();
        let _ = timeout(GRACE, elections.join_next()).await;
        return done;
    }
    elections.shutdown().await;
    let kept = keep(&clients, &lease, &clock, hold).await;
    kept.context(
        "a replica may put finalizers on again: scale coppice-access to zero, and start this again",
    )?;
    print_line(&format!("for {} s no replica leads: uninstall coppice-access now", hold.as_secs()));
    Ok(())
}

/// Does it, while the Lease is ours.
async fn work(mut setup: Setup, gate: &Gate) -> anyhow::Result<()> {
    leads(gate).await?;
    let clients = setup.clients.clone();
    let clock = setup.server_clock.clock().clone();
    let rng = SeededRng::new(setup.rng.next_u64());
    let events = Events::new(&clients, clock, setup.metrics.clone(), &setup.lease.identity, rng);
    let mut tally = Tally::default();
    if setup.credentials == CredentialHandling::Revoke {
        deletions::delete_all(&clients, gate).await?;
    }
    let until = Instant::now() + setup.wait;
    revocation::end_deleted(&mut setup, gate, &events, until, |ending| tally.ended(ending)).await?;
    let (now, end) = (setup.server_clock.now().now(), Instant::now() + WRITES_WAIT);
    let left = finalizers::take_off::<ClusterAccesses>(&clients, gate, end, |access| {
        tally.access(&events, access, now);
    });
    let mut left = left.await?;
    let managed = finalizers::take_off::<ManagedClusters>(&clients, gate, end, |managed| {
        tally.managed(&events, managed);
    });
    left.extend(managed.await?);
    let _ = timeout(EVENTS_GRACE, events.flush()).await;
    tally.conclude(&left)
}

/// Says what it would do. The Lease is not touched, nor anything else.
async fn dry_run(setup: &Setup) -> anyhow::Result<()> {
    let (accesses, clusters) =
        (listed::<ClusterAccesses>(&setup.clients).await?, listed::<ManagedClusters>(&setup.clients).await?);
    let now = setup.server_clock.now().now();
    let of_accesses = accesses.iter().filter_map(|access| report::planned(access, setup.credentials, now));
    let of_clusters = clusters.iter().filter_map(report::planned_of_cluster);
    let lines: Vec<String> = of_accesses.chain(of_clusters).collect();
    for line in &lines {
        print_line(line);
    }
    print_line(&format!("dry run: {}, and nothing was changed", count(lines.len(), "object")));
    Ok(())
}

/// Waits until the Lease, which is ours already, is known to be so.
async fn leads(gate: &Gate) -> anyhow::Result<()> {
    let (mut state, end) = (gate.subscribe(), Instant::now() + LEASE_WAIT);
    while !gate.is_leader() {
        let changed = timeout_at(end, state.changed()).await;
        changed.context("the Lease could not be renewed")?.context("the election ended")?;
    }
    Ok(())
}

/// Every object of a kind; none if the kind is not there.
async fn listed<K: OwnKind>(clients: &Clients) -> Result<Vec<K::Object>, ListError> {
    match read::list::<K>(&clients.reads, "").await {
        Err(ListError::Api(kube::Error::Api(status))) if status.code == 404 => Ok(Vec::new()),
        listed => listed,
    }
}

/// The same; what fails is tried again until then.
async fn listed_until<K: OwnKind>(clients: &Clients, end: Instant) -> Result<Vec<K::Object>, ListError> {
    loop {
        match listed::<K>(clients).await {
            Err(error) if Instant::now() + PAUSE < end => {
                tracing::warn!("the objects of the kind {} are listed again: {error}", K::KIND);
                sleep(PAUSE.max(clients.backpressure.remaining())).await;
            }
            listed => return listed,
        }
    }
}

/// Does this to each of these, a few at once; the results, in no particular order. One that panics has none.
async fn each<T, F>(all: Vec<T>, work: impl Fn(T) -> F) -> Vec<F::Output>
where
    F: Future + Send + 'static,
    F::Output: Send + 'static,
{
    let (mut tasks, mut results) = (JoinSet::new(), Vec::new());
    for one in all {
        if tasks.len() >= CONCURRENCY
            && let Some(done) = tasks.join_next().await
        {
            results.extend(done);
        }
        tasks.spawn(work(one));
    }
    while let Some(done) = tasks.join_next().await {
        results.extend(done);
    }
    results
}

/// What it prints is its output; that nobody reads it is no reason to stop.
fn print_line(line: &str) {
    let _ = writeln!(std::io::stdout(), "{line}");
}

#[cfg(test)]
mod tests;
