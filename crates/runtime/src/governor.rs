//! Books destructive steps on the shared ledger: the status of `CoppiceConfig/coppice`.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use coppice_api::config::GovernorStatus;
use coppice_api::names::CONFIG_NAME;
use coppice_lifecycle::governor::{self, Denied};
use coppice_lifecycle::time::ServerTime;
use jiff::Timestamp;
use tokio::sync::oneshot;
use tokio::time::Instant;

use crate::client::Clients;
use crate::error::chain;
use crate::kinds::Config;
use crate::leader::Permit;
use crate::read;
use crate::store::Store;
use crate::write::{self, WriteError};

/// Other writers of the ledger are rare: so many lost races in a row mean that something is wrong.
const ROUNDS: usize = 5;

/// A destructive step that has been booked: proof that budget was there and that the kill switch was off, in the very
/// revision of the settings that the booking replaced. Good for one step.
#[derive(Debug)]
pub struct Booking {
    /// The settings that were booked under, or as they were read since.
    pub settings: Arc<Config>,
    /// The ledger as it was before this booking.
    pub ledger: GovernorStatus,
    /// When it was asked for; the ledger has it in the same second or the next.
    asked: Instant,
}

impl Booking {
    /// How long ago it was asked for. What is done much later is not what was booked: many such steps could come together, and
    /// the settings may have changed meanwhile.
    pub fn age(&self) -> Duration {
        self.asked.elapsed()
    }

    /// Reads the settings again: for a step that takes longer than a booking holds. What was booked stays booked, whether the
    /// step may go on is for the next decision to say, by these settings.
    pub async fn renew(&mut self, clients: &Clients, _permit: &Permit) -> Result<(), BookingError> {
        let asked = Instant::now();
        let settings = read_settings(clients).await?;
        settings.understood().map_err(|error| BookingError::Unavailable(error.to_owned()))?;
        (self.settings, self.asked) = (settings, asked);
        Ok(())
    }
}

/// Why a step could not be booked.
#[derive(Clone, Debug, thiserror::Error)]
pub enum BookingError {
    /// The governor says no.
    #[error("{}", .0.message)]
    Denied(Denied),
    /// The ledger could not be read or written: then there is no budget.
    #[error("the governor's ledger (status of CoppiceConfig/coppice) is not available: {0}")]
    Unavailable(String),
}

type Told = Result<Booking, BookingError>;

/// From one booking to the next: where many steps are due, so much less is asked of the API server, which has to carry them
/// out. Who comes alone does not wait.
const SPACING: Duration = Duration::from_millis(50);

/// Where a process books, one write at a time: the ledger has one writer in a process. Who asks while a booking is under
/// way, or soon after one, waits for the next, which is for all who wait: one write for all of them, in the order in which
/// they came.
#[derive(Debug, Default)]
pub struct Counter {
    /// When the last one began.
    turn: tokio::sync::Mutex<Option<Instant>>,
    waiting: Mutex<Vec<oneshot::Sender<Told>>>,
}

impl Counter {
    /// Books one destructive step, together with those of all others who wait. `now` is asked when the turn has come;
    /// `known` is the cache of the settings.
    pub async fn book(
        &self,
        clients: &Clients,
        permit: &Permit,
        known: &Store<Config>,
        managed: u64,
        now: impl Fn() -> ServerTime,
    ) -> Told {
        loop {
            let (tell, mut told) = oneshot::channel();
            self.waiting.lock().unwrap_or_else(PoisonError::into_inner).push(tell);
            let mut turn = self.turn.lock().await;
            let mut answer = told.try_recv();
            if matches!(answer, Err(oneshot::error::TryRecvError::Empty)) {
                if let Some(last) = *turn {
                    tokio::time::sleep_until(last + SPACING).await;
                }
                *turn = Some(Instant::now());
                let time = now();
                // What is booked at a wrong time would leave the budget at a wrong time.
                if let Some(denied) = time.doubt().map(governor::doubted) {
                    return Err(BookingError::Denied(denied));
                }
                self.answer_all(clients, permit, known, managed, time.now()).await;
                answer = told.try_recv();
            }
            drop(turn);
            if let Ok(answer) = answer {
                return answer;
            }
            // Who booked for us was stopped in the middle: what was booked then is spent, and nobody's.
        }
    }

    async fn answer_all(
        &self,
        clients: &Clients,
        permit: &Permit,
        known: &Store<Config>,
        managed: u64,
        now: Timestamp,
    ) {
        let mut waiting = std::mem::take(&mut *self.waiting.lock().unwrap_or_else(PoisonError::into_inner));
        // Who was stopped meanwhile needs no step.
        waiting.retain(|waiting| !waiting.is_closed());
        let mut booked = book(clients, permit, known, managed, now, waiting.len()).await;
        for waiting in waiting {
            // Nobody there any more: the step is spent, and not taken.
            drop(waiting.send(booked.as_mut().map_err(|error| error.clone()).and_then(Batch::next)));
        }
    }
}

/// What came of a booking for several.
struct Batch {
    settings: Arc<Config>,
    asked: Instant,
    /// Granted, and not handed out yet.
    left: u32,
    /// What the others are told.
    no_more: BookingError,
}

impl Batch {
    fn next(&mut self) -> Told {
        self.left = self.left.checked_sub(1).ok_or_else(|| self.no_more.clone())?;
        let ledger = self.settings.status.governor.clone();
        Ok(Booking { settings: Arc::clone(&self.settings), ledger, asked: self.asked })
    }
}

/// Books so many destructive steps, or as many of them as there is budget for.
///
/// The ledger is written only if it is still the revision that was looked at: that makes any look a fresh one that a booking
/// succeeds on. So the first is at the cache. To be denied by it is another matter: it may be behind.
async fn book(
    clients: &Clients,
    permit: &Permit,
    known: &Store<Config>,
    managed: u64,
    now: Timestamp,
    steps: usize,
) -> Result<Batch, BookingError> {
    let steps = u32::try_from(steps).unwrap_or(u32::MAX);
    let asked = Instant::now();
    let mut cached = known.get("", CONFIG_NAME).filter(|config| allows(config, managed, now));
    for _ in 0..ROUNDS {
        let settings = match cached.take() {
            Some(settings) => settings,
            None => read_settings(clients).await?,
        };
        let spec = settings.understood().map_err(|error| BookingError::Unavailable(error.to_owned()))?;
        let before = &settings.status.governor;
        let answer = governor::book(&spec.governor, before, managed, now, steps);
        if answer.granted > 0 || answer.ledger != *before {
            let mut status = (*settings.status).clone();
            status.governor = answer.ledger;
            match write::status(clients, permit, &settings, "CoppiceConfig", &status).await {
                // An edit that the cache has not heard of is left to the watch, which wakes everybody for it.
                Ok(written) if is_edited(known, &written) => {}
                Ok(written) => known.learn("", written),
                // Ambiguous: if the booking did happen, booking again spends more steps, never fewer.
                Err(WriteError::Conflict | WriteError::Gone | WriteError::Ambiguous(_)) => continue,
                Err(error) => return Err(BookingError::Unavailable(error.to_string())),
            }
        }
        let no_more = answer.denied.map_or_else(
            || BookingError::Unavailable("more steps were asked for than were booked".to_owned()),
            BookingError::Denied,
        );
        return Ok(Batch { settings, asked, left: answer.granted, no_more });
    }
    Err(BookingError::Unavailable(format!("{ROUNDS} attempts to write it met other writers")))
}

fn is_edited(known: &Store<Config>, written: &Config) -> bool {
    known.get("", CONFIG_NAME).is_none_or(|known| known.generation != written.generation)
}

async fn read_settings(clients: &Clients) -> Result<Arc<Config>, BookingError> {
    let read = read::get::<Config>(&clients.reads, "", CONFIG_NAME).await;
    let read = read.map_err(|error| BookingError::Unavailable(chain(&error)))?;
    read.map(Arc::new).ok_or_else(|| BookingError::Unavailable("it does not exist".to_owned()))
}

fn allows(settings: &Config, managed: u64, now: Timestamp) -> bool {
    let ledger = &settings.status.governor;
    settings.understood().is_ok_and(|spec| governor::allow(&spec.governor, ledger, managed, now).is_ok())
}

#[cfg(test)]
mod tests;
