//! Reserves destructive steps in the shared ledger: the status of `CoppiceConfig/coppice`. How many there may be is decided by
//! `coppice_lifecycle::governor`.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use coppice_api::config::GovernorStatus;
use coppice_api::names::CONFIG_NAME;
use coppice_kinds::{Config, Configs};
use coppice_lifecycle::governor::{self, Denied, Share};
use coppice_quantity::time::ServerTime;
use jiff::Timestamp;
use tokio::sync::oneshot;
use tokio::time::Instant;

use coppice_runtime::client::Clients;
use coppice_runtime::error::chain;
use coppice_runtime::leader::Permit;
use coppice_runtime::read;
use coppice_runtime::store::Store;
use coppice_runtime::write::{self, WriteError};

/// Other writers of the ledger are rare: this many lost races in a row mean that something is wrong.
const MAX_ATTEMPTS: usize = 5;

/// A destructive step that has been reserved: proof that budget was there and that the breaker was closed, in the very
/// revision of the settings that the reservation replaced. Good for one step, which takes it: a
/// [deletion](crate::delete::namespace) or a [scale-down](crate::scale::ReservedScaleDown).
#[derive(Debug)]
pub struct Reservation {
    /// The settings that were reserved under, or as they were read since.
    pub settings: Arc<Config>,
    /// The ledger as it was before this reservation.
    pub budget: GovernorStatus,
    /// When it was asked for; the ledger has it in the same second or the next.
    started: Instant,
}

impl Reservation {
    /// One that was never made, under settings that allow everything.
    #[cfg(test)]
    pub(crate) fn for_tests(settings: Config) -> Self {
        let budget = settings.status.governor.clone();
        Self { settings: Arc::new(settings), budget, started: Instant::now() }
    }

    /// How long ago it was asked for. What is done much later is not what was reserved: many such steps could come together, and
    /// the settings may have changed meanwhile.
    pub fn age(&self) -> Duration {
        self.started.elapsed()
    }

    /// Reads the settings again, for a step that takes longer than a reservation holds.
    pub(crate) async fn renew(
        &mut self,
        clients: &Clients,
        _permit: &Permit,
    ) -> Result<(), ReservationError> {
        let started = Instant::now();
        let settings = read_settings(clients).await?;
        settings.decoded().map_err(|error| ReservationError::Unavailable(error.to_string()))?;
        // One that has opened since stops the step, too.
        self.budget.breaker.clone_from(&settings.status.governor.breaker);
        (self.settings, self.started) = (settings, started);
        Ok(())
    }
}

/// Why a step could not be reserved.
#[derive(Clone, Debug, thiserror::Error)]
pub enum ReservationError {
    /// The governor denies it.
    #[error("{}", .0.message)]
    Denied(Denied),
    /// The ledger could not be read or written: then there is no budget.
    #[error("the governor's ledger (status of CoppiceConfig/coppice) is not available: {0}")]
    Unavailable(String),
}

type ReserveResult = Result<Reservation, ReservationError>;

/// The time between two reservations: where many steps are due, it saves requests to the API server, which has to carry
/// the steps out. A single caller does not wait.
const SPACING: Duration = Duration::from_millis(50);

/// Makes the reservations of a process, one write at a time: the ledger has one writer in a process. A caller that
/// arrives during a reservation, or soon after one, waits for the next, which is for all that wait: one write, in the
/// order of arrival.
#[derive(Debug, Default)]
pub struct Governor {
    /// When the last one started.
    last_write: tokio::sync::Mutex<Option<Instant>>,
    waiting: Mutex<Vec<oneshot::Sender<ReserveResult>>>,
}

impl Governor {
    /// Reserves one destructive step, together with those of all other callers that wait. `now` is called when its turn
    /// has come; `known` is the cache of the settings.
    pub async fn reserve(
        &self,
        clients: &Clients,
        permit: &Permit,
        known: &Store<Configs>,
        share: Share,
        now: impl Fn() -> ServerTime,
    ) -> ReserveResult {
        loop {
            let (reply, mut response) = oneshot::channel();
            self.waiting.lock().unwrap_or_else(PoisonError::into_inner).push(reply);
            let mut last_write = self.last_write.lock().await;
            let mut answer = response.try_recv();
            if matches!(answer, Err(oneshot::error::TryRecvError::Empty)) {
                if let Some(last) = *last_write {
                    tokio::time::sleep_until(last + SPACING).await;
                }
                *last_write = Some(Instant::now());
                let time = now();
                // What is reserved at a wrong time would leave the budget at a wrong time.
                if let Some(denied) = time.uncertainty().map(governor::uncertain) {
                    return Err(ReservationError::Denied(denied));
                }
                self.grant_all(clients, permit, known, share, time.now()).await;
                answer = response.try_recv();
            }
            drop(last_write);
            if let Ok(answer) = answer {
                return answer;
            }
            // The caller that reserved for us was cancelled: its reservation is spent and not used.
        }
    }

    async fn grant_all(
        &self,
        clients: &Clients,
        permit: &Permit,
        known: &Store<Configs>,
        share: Share,
        now: Timestamp,
    ) {
        let mut waiting = std::mem::take(&mut *self.waiting.lock().unwrap_or_else(PoisonError::into_inner));
        // A cancelled caller needs no step.
        waiting.retain(|waiting| !waiting.is_closed());
        let mut batch = reserve(clients, permit, known, share, now, waiting.len()).await;
        for waiting in waiting {
            // The caller is gone: the step is spent and not used.
            drop(waiting.send(batch.as_mut().map_err(|error| error.clone()).and_then(Batch::next)));
        }
    }
}

/// The result of a reservation for several callers.
struct Batch {
    settings: Arc<Config>,
    started: Instant,
    /// Granted, and not handed out yet.
    unassigned: u32,
    /// The denial for the others.
    no_budget: ReservationError,
}

impl Batch {
    fn next(&mut self) -> ReserveResult {
        self.unassigned = self.unassigned.checked_sub(1).ok_or_else(|| self.no_budget.clone())?;
        let budget = self.settings.status.governor.clone();
        Ok(Reservation { settings: Arc::clone(&self.settings), budget, started: self.started })
    }
}

/// Reserves this many destructive steps, or as many of them as there is budget for.
///
/// The ledger is written only in the revision that was read, so a reservation that succeeds relies on current data. So
/// the first read is of the cache. A denial by the cache is not final: it may be behind.
async fn reserve(
    clients: &Clients,
    permit: &Permit,
    known: &Store<Configs>,
    share: Share,
    now: Timestamp,
    steps: usize,
) -> Result<Batch, ReservationError> {
    let steps = u32::try_from(steps).unwrap_or(u32::MAX);
    let started = Instant::now();
    let mut cached = known.get("", CONFIG_NAME).filter(|config| allows(config, share, now));
    for _ in 0..MAX_ATTEMPTS {
        let settings = match cached.take() {
            Some(settings) => settings,
            None => read_settings(clients).await?,
        };
        let spec = settings.decoded().map_err(|error| ReservationError::Unavailable(error.to_string()))?;
        let before = &settings.status.governor;
        let answer = governor::reserve(&spec.governor, before, share, now, steps);
        if answer.granted > 0 || answer.budget != *before {
            let mut status = (*settings.status).clone();
            status.governor = answer.budget;
            match write::status::<Configs>(clients, permit, &settings, &status).await {
                // An edit that the cache does not have yet is left to the watch, which enqueues every manager for it.
                Ok(written) if is_edited(known, &written) => {}
                Ok(written) => known.update_if_newer("", written),
                // Ambiguous: if the reservation did happen, a second one spends more steps, never fewer.
                Err(WriteError::Conflict | WriteError::Gone | WriteError::Ambiguous(_)) => continue,
                Err(error) => return Err(ReservationError::Unavailable(error.to_string())),
            }
        }
        let no_budget = answer.denied.map_or_else(
            || ReservationError::Unavailable("more steps were asked for than were reserved".to_owned()),
            ReservationError::Denied,
        );
        return Ok(Batch { settings, started, unassigned: answer.granted, no_budget });
    }
    Err(ReservationError::Unavailable(format!("{MAX_ATTEMPTS} attempts to write it met other writers")))
}

fn is_edited(known: &Store<Configs>, written: &Config) -> bool {
    known.get("", CONFIG_NAME).is_none_or(|known| known.generation != written.generation)
}

async fn read_settings(clients: &Clients) -> Result<Arc<Config>, ReservationError> {
    let read = read::get::<Configs>(&clients.reads, "", CONFIG_NAME).await;
    let read = read.map_err(|error| ReservationError::Unavailable(chain(&error)))?;
    read.map(Arc::new).ok_or_else(|| ReservationError::Unavailable("it does not exist".to_owned()))
}

fn allows(settings: &Config, share: Share, now: Timestamp) -> bool {
    let budget = &settings.status.governor;
    settings.decoded().is_ok_and(|spec| governor::allow(&spec.governor, budget, share, now).is_ok())
}

#[cfg(test)]
mod tests;
