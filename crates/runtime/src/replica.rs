//! One replica of a program: its election and its controllers, until it is stopped or has lost its lease.

use std::time::Duration;

use tokio::runtime::Handle;
use tokio::task::{JoinError, JoinSet};
use tokio_util::sync::CancellationToken;

use crate::controller::Runner;
use crate::lease::{Election, LeaseLost};

/// Steps that are being carried out have this long to end at a shutdown.
const DRAIN_GRACE: Duration = Duration::from_secs(8);

/// Why a replica has ended without being stopped.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// The lease is in other hands, or may be.
    #[error(transparent)]
    Lost(#[from] LeaseLost),
    /// The election has ended by a bug.
    #[error(transparent)]
    Election(JoinError),
    /// A watch, or the work of a controller, has ended by a bug.
    #[error("a task panicked")]
    Task(#[source] JoinError),
    /// The same, without a panic.
    #[error("a task ended before its time")]
    TaskEnded,
}

impl Runner {
    /// Runs every watch and every controller, and an election, until `until` returns what stops it, or until the lease is lost. The election runs on the runtime `on`, so
    /// that no other work can keep it from renewing its lease.
    ///
    /// At a shutdown no new step is begun, those in progress end, `flush` has the time that it takes to report them, and then the
    /// lease is released.
    ///
    /// # Errors
    /// Why it has ended, if nobody has stopped it.
    pub async fn serve(
        self,
        election: Election,
        on: Handle,
        until: impl Future<Output = &'static str>,
        flush: impl Future<Output = ()>,
    ) -> Result<(), ServeError> {
        let (gate, stop) = (self.gate.clone(), self.stop.clone());
        let readiness = self.environment.readiness.clone();
        let release = CancellationToken::new();
        // Dropped with this future, should it be dropped.
        let mut elections = JoinSet::new();
        elections.spawn_on(election.run(release.clone()), &on);
        let mut tasks = JoinSet::new();
        self.start(&mut tasks);
        let ended = tokio::select! {
            biased;
            signal = until => {
                tracing::info!(signal, "stopping: no new step is begun");
                Ok(())
            }
            Some(lost) = elections.join_next() => match lost {
                Ok(Err(lost)) => Err(lost.into()),
                Ok(Ok(_)) => Ok(()),
                Err(panic) => Err(ServeError::Election(panic)),
            },
            Some(task) = tasks.join_next() => {
                Err(task.err().map_or(ServeError::TaskEnded, ServeError::Task))
            }
        };
        readiness.shut_down();
        gate.close();
        stop.cancel();
        if ended.is_ok() {
            // Steps in progress end first, so that they are recorded and reported.
            let _ = tokio::time::timeout(DRAIN_GRACE, gate.drained()).await;
            flush.await;
        } else {
            // Another replica may lead already: stop at once.
            tasks.abort_all();
        }
        release.cancel();
        match elections.join_next().await {
            None => {}
            Some(Ok(Ok(how))) => tracing::info!(?how, "the lease is settled"),
            Some(Ok(Err(lost))) => tracing::warn!(%lost, "the lease was lost while stopping"),
            Some(Err(panic)) => tracing::error!(%panic, "the election panicked"),
        }
        tasks.shutdown().await;
        tracing::info!("stopped");
        ended
    }
}

/// Waits for SIGTERM or SIGINT; its name.
pub async fn shutdown_signal() -> &'static str {
    use tokio::signal::unix::{SignalKind, signal};
    let (Ok(mut term), Ok(mut interrupt)) =
        (signal(SignalKind::terminate()), signal(SignalKind::interrupt()))
    else {
        return "none: signals cannot be handled";
    };
    tokio::select! {
        biased;
        _ = term.recv() => "SIGTERM",
        _ = interrupt.recv() => "SIGINT",
    }
}
