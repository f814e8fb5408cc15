//! Ends each `ClusterAccess` that is being deleted: what was issued for it is revoked in its target, its rights are removed there, and its
//! Secret is deleted. By the controller that does so otherwise; it works on nothing else.

use std::sync::Arc;
use std::time::Duration;

use coppice_runtime::client::Clients;
use coppice_runtime::controller::Runner;
use coppice_runtime::events::Events;
use coppice_runtime::intervals::ResyncIntervals;
use coppice_runtime::leader::Gate;
use coppice_runtime::queue::QueueSettings;
use coppice_runtime::read::ListError;
use coppice_runtime::readiness::Readiness;
use coppice_runtime::store::Freshness;
use coppice_runtime::watches::WatchEnvironment;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};
use tokio_util::sync::CancellationToken;

use super::{PAUSE, Setup, WRITES_WAIT, listed, listed_until};
use crate::cluster_access::{ClusterAccessController, Ending, Endings};
use crate::kinds::{Access, ClusterAccesses};
use crate::metrics::AccessMetrics;
use crate::shared::Shared;

/// It is said this often how many are left.
const PROGRESS: Duration = Duration::from_secs(10);
/// What is being done has this long to end, once the time is over.
const DRAIN: Duration = Duration::from_secs(5);
/// Then this long passes until it is cut off.
const STOP: Duration = Duration::from_secs(8);

/// Ends what is being deleted, until nothing of it is left or the time is over. `ended` is called for each that has ended.
///
/// # Errors
/// If it is not known what is being deleted.
pub(super) async fn end_deleted(
    setup: &mut Setup,
    gate: &Gate,
    events: &Events,
    until: Instant,
    mut ended: impl FnMut(&Ending),
) -> Result<(), ListError> {
    let mut being_deleted =
        listed_until::<ClusterAccesses>(&setup.clients, Instant::now() + WRITES_WAIT).await?;
    being_deleted.retain(is_kept);
    let began = being_deleted.len();
    if began == 0 {
        return Ok(());
    }
    tracing::info!(
        "{began} ClusterAccesses are being deleted: what was issued for them is revoked in their targets"
    );
    let (endings, stop) = (Endings::default(), CancellationToken::new());
    let mut tasks = JoinSet::new();
    let shared = start(setup, gate, events, &endings, (&stop, &mut tasks));
    let mut said = Instant::now();
    loop {
        let now = Instant::now();
        let left = left_in(&shared).unwrap_or(began);
        for ending in endings.take() {
            ended(&ending);
        }
        if now >= until || (left == 0 && none_is_left(&setup.clients).await) {
            break;
        }
        if now.duration_since(said) >= PROGRESS {
            said = now;
            let remaining = until.duration_since(now).as_secs();
            tracing::info!(
                "{left} ClusterAccesses are still to be revoked; it is tried for another {remaining} s"
            );
        }
        sleep(PAUSE.min(until.duration_since(now))).await;
    }
    stop.cancel();
    let _ = timeout(STOP, async { while tasks.join_next().await.is_some() {} }).await;
    tasks.shutdown().await;
    for ending in endings.take() {
        ended(&ending);
    }
    Ok(())
}

/// Whether the API server says so, too.
async fn none_is_left(clients: &Clients) -> bool {
    let all = listed::<ClusterAccesses>(clients).await;
    all.is_ok_and(|all| !all.iter().any(is_kept))
}

/// Whether it is being deleted, and our finalizer keeps it until it has ended.
const fn is_kept(access: &Access) -> bool {
    access.terminating && access.has_finalizer
}

/// How many of these the cache has; none before it was filled.
fn left_in(shared: &Shared) -> Option<usize> {
    if matches!(shared.accesses.freshness(), Freshness::NotSynced(_)) {
        return None;
    }
    let mut left = 0;
    shared.accesses.for_each(|access| left += usize::from(is_kept(access)));
    Some(left)
}

/// Runs the controller, as tasks of this set; what it shares.
fn start(
    setup: &mut Setup,
    gate: &Gate,
    events: &Events,
    endings: &Endings,
    (stop, tasks): (&CancellationToken, &mut JoinSet<()>),
) -> Shared {
    let clock = setup.server_clock.clock().clone();
    let (concurrency, seed) = (setup.concurrency, setup.rng.next_u64());
    let shared = Shared::new(clock.clone(), setup.unencrypted, &setup.namespace, concurrency, None);
    let environment = WatchEnvironment {
        clients: setup.clients.clone(),
        clock,
        metrics: setup.metrics.clone(),
        readiness: Readiness::new(),
        intervals: ResyncIntervals::default(),
        seed,
        on_collapse: {
            let shared = shared.clone();
            Arc::new(move |collapse| shared.collapsed(collapse))
        },
    };
    let queue = QueueSettings { seed, concurrency, drain: DRAIN, ..QueueSettings::default() };
    let mut runner = Runner::new(environment, gate.clone(), queue, stop.clone());
    let controller = ClusterAccessController::new(
        setup.clients.clone(),
        setup.server_clock.clone(),
        gate.clone(),
        events.clone(),
        AccessMetrics::new(&setup.metrics),
        &shared,
    );
    runner.add(controller.ending(endings.clone()));
    runner.start(tasks);
    shared
}
