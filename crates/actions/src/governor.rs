//! Reserves destructive steps in the shared ledger: the status of `CoppiceConfig/coppice`. How many there may be is decided by
//! `coppice_lifecycle::governor`.
//!
//! [`Governor::reserve`] has the last word: it asks [`governor::reserve`] about the revision of the ledger that its write replaces.
//! [`governor::allow`] is asked earlier, by plans and on the cache, and permits nothing by itself.

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

/// A [`Share`] of one that waits.
#[derive(Debug)]
enum WaitingShare {
    Managers(u64),
    Trees(u64),
    Tree { name: Box<str>, namespaces: u64, all_trees: u64 },
}

impl WaitingShare {
    fn of(share: Share<'_>) -> Self {
        match share {
            Share::Managers(namespaces) => Self::Managers(namespaces),
            Share::Trees(namespaces) => Self::Trees(namespaces),
            Share::Tree { name, namespaces, all_trees } => {
                Self::Tree { name: name.into(), namespaces, all_trees }
            }
        }
    }

    fn get(&self) -> Share<'_> {
        match self {
            Self::Managers(namespaces) => Share::Managers(*namespaces),
            Self::Trees(namespaces) => Share::Trees(*namespaces),
            Self::Tree { name, namespaces, all_trees } => {
                Share::Tree { name, namespaces: *namespaces, all_trees: *all_trees }
            }
        }
    }

    /// Whether both take from the same part of the budget, however many namespaces each has counted.
    fn is_same(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Managers(_), Self::Managers(_)) | (Self::Trees(_), Self::Trees(_)) => true,
            (Self::Tree { name: one, .. }, Self::Tree { name: other, .. }) => one == other,
            _ => false,
        }
    }
}

/// A caller that waits for its step.
#[derive(Debug)]
struct Waiting {
    share: WaitingShare,
    reply: oneshot::Sender<ReserveResult>,
}

/// Those that wait for steps of the same part of the budget, in the order of arrival.
struct Group {
    share: WaitingShare,
    replies: Vec<oneshot::Sender<ReserveResult>>,
}

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
    waiting: Mutex<Vec<Waiting>>,
}

impl Governor {
    /// Reserves one destructive step, together with those of all other callers that wait. `now` is called when its turn
    /// has come; `known` is the cache of the settings.
    pub async fn reserve(
        &self,
        clients: &Clients,
        permit: &Permit,
        known: &Store<Configs>,
        share: Share<'_>,
        now: impl Fn() -> ServerTime,
    ) -> ReserveResult {
        loop {
            let (reply, mut response) = oneshot::channel();
            let waiting = Waiting { share: WaitingShare::of(share), reply };
            self.waiting.lock().unwrap_or_else(PoisonError::into_inner).push(waiting);
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
                self.grant_all(clients, permit, known, time.now()).await;
                answer = response.try_recv();
            }
            drop(last_write);
            if let Ok(answer) = answer {
                return answer;
            }
            // The caller that reserved for us was cancelled: its reservation is spent and not used.
        }
    }

    async fn grant_all(&self, clients: &Clients, permit: &Permit, known: &Store<Configs>, now: Timestamp) {
        let waiting = std::mem::take(&mut *self.waiting.lock().unwrap_or_else(PoisonError::into_inner));
        let groups = grouped(waiting);
        let asked: Vec<_> = groups.iter().map(|group| (group.share.get(), group.replies.len())).collect();
        match reserve(clients, permit, known, &asked, now).await {
            Ok(batches) => {
                for (group, mut batch) in groups.into_iter().zip(batches) {
                    for reply in group.replies {
                        // The caller is gone: the step is spent and not used.
                        drop(reply.send(batch.next()));
                    }
                }
            }
            Err(error) => {
                for reply in groups.into_iter().flat_map(|group| group.replies) {
                    drop(reply.send(Err(error.clone())));
                }
            }
        }
    }
}

fn grouped(waiting: Vec<Waiting>) -> Vec<Group> {
    let mut groups: Vec<Group> = Vec::new();
    for Waiting { share, reply } in waiting {
        // A cancelled caller needs no step.
        if reply.is_closed() {
            continue;
        }
        match groups.iter_mut().find(|group| group.share.is_same(&share)) {
            Some(group) => group.replies.push(reply),
            None => groups.push(Group { share, replies: vec![reply] }),
        }
    }
    groups
}

/// The result of a reservation for several callers, all of the same part of the budget.
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

/// Reserves this many destructive steps of each of these parts of the budget, or as many of them as there is budget for, by one write. The
/// answers are in the same order.
///
/// The ledger is written only in the revision that was read, so a reservation that succeeds relies on current data. So
/// the first read is of the cache. A denial by the cache is not final: it may be behind.
async fn reserve(
    clients: &Clients,
    permit: &Permit,
    known: &Store<Configs>,
    asked: &[(Share<'_>, usize)],
    now: Timestamp,
) -> Result<Vec<Batch>, ReservationError> {
    let started = Instant::now();
    let mut cached = known.get("", CONFIG_NAME).filter(|config| allow_all(config, asked, now));
    for _ in 0..MAX_ATTEMPTS {
        let settings = match cached.take() {
            Some(settings) => settings,
            None => read_settings(clients).await?,
        };
        let spec = settings.decoded().map_err(|error| ReservationError::Unavailable(error.to_string()))?;
        let before = &settings.status.governor;
        let (mut budget, mut answers) = (before.clone(), Vec::with_capacity(asked.len()));
        for (share, steps) in asked {
            let steps = u32::try_from(*steps).unwrap_or(u32::MAX);
            let answer = governor::reserve(&spec.governor, &budget, *share, now, steps);
            budget = answer.budget;
            answers.push((answer.granted, answer.denied));
        }
        if budget != *before || answers.iter().any(|(granted, _)| *granted > 0) {
            let mut status = (*settings.status).clone();
            status.governor = budget;
            match write::status::<Configs>(clients, permit, &settings, &status).await {
                // An edit that the cache does not have yet is left to the watch, which enqueues every manager for it.
                Ok(written) if is_edited(known, &written) => {}
                Ok(written) => known.update_if_newer("", written),
                // Ambiguous: if the reservation did happen, a second one spends more steps, never fewer.
                Err(WriteError::Conflict | WriteError::Gone | WriteError::Ambiguous(_)) => continue,
                Err(error) => return Err(ReservationError::Unavailable(error.to_string())),
            }
        }
        let batch = |(granted, denied): (u32, Option<Denied>)| {
            let no_budget = denied.map_or_else(
                || ReservationError::Unavailable("more steps were asked for than were reserved".to_owned()),
                ReservationError::Denied,
            );
            Batch { settings: Arc::clone(&settings), started, unassigned: granted, no_budget }
        };
        return Ok(answers.into_iter().map(batch).collect());
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

fn allow_all(settings: &Config, asked: &[(Share<'_>, usize)], now: Timestamp) -> bool {
    let budget = &settings.status.governor;
    settings.decoded().is_ok_and(|spec| {
        let allows = |share| governor::allow(&spec.governor, budget, share, now).is_ok();
        asked.iter().all(|(share, _)| allows(*share))
    })
}

#[cfg(test)]
mod tests;
