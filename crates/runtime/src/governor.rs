//! Books destructive steps on the shared ledger: the status of `CoppiceConfig/coppice`.

use std::time::Duration;

use coppice_api::config::{CoppiceConfigSpec, GovernorStatus};
use coppice_api::names::CONFIG_NAME;
use coppice_lifecycle::governor::{self, Denied};
use jiff::Timestamp;
use tokio::time::Instant;

use crate::client::Clients;
use crate::error::chain;
use crate::kinds::Config;
use crate::leader::Permit;
use crate::read;
use crate::write::{self, WriteError};

/// Other writers of the ledger are rare: so many lost races in a row mean that something is wrong.
const ROUNDS: usize = 5;

/// A destructive step that has been booked: proof that budget was there and that the kill switch was off, by a fresh
/// read, when it was made. Good for one step.
#[derive(Debug)]
pub struct Booking {
    /// The settings that were read with it.
    pub config: CoppiceConfigSpec,
    /// The ledger as it was before this booking.
    pub before: GovernorStatus,
    /// When it was asked for; the ledger holds no later time.
    asked: Instant,
}

impl Booking {
    /// How long ago it was asked for. What is done much later is not what was booked: many such steps could come together, and
    /// the settings may have changed meanwhile.
    pub fn age(&self) -> Duration {
        self.asked.elapsed()
    }
}

/// Why a step could not be booked.
#[derive(Debug, thiserror::Error)]
pub enum BookingError {
    /// The governor says no.
    #[error("{}", .0.message)]
    Denied(Denied),
    /// The ledger could not be read or written: then there is no budget.
    #[error("the governor's ledger (status of CoppiceConfig/coppice) is not available: {0}")]
    Unavailable(String),
}

/// Books one destructive step: reads the ledger, adds the step, writes it back if nobody else did in between.
pub async fn book(
    clients: &Clients,
    permit: &Permit,
    managed: u64,
    now: Timestamp,
) -> Result<Booking, BookingError> {
    let asked = Instant::now();
    for _ in 0..ROUNDS {
        let config = read::get::<Config>(&clients.reads, "", CONFIG_NAME)
            .await
            .map_err(|e| BookingError::Unavailable(chain(&e)))?
            .ok_or_else(|| BookingError::Unavailable("there is no such object yet".to_owned()))?;
        let spec = config.spec.as_deref().map_err(|e| BookingError::Unavailable(e.clone()))?.clone();
        if let Some(error) = &config.status_error {
            return Err(BookingError::Unavailable(error.clone()));
        }
        let before = config.status.governor.clone();
        let mut status = (*config.status).clone();
        let booked = governor::book(&spec.governor, &before, managed, now);
        status.governor = match &booked {
            Ok(ledger) => ledger.clone(),
            Err(denied) => governor::trip(&before, denied, now),
        };
        if status.governor != before {
            match write::status(clients, permit, &config, "CoppiceConfig", &status).await {
                Ok(_) => {}
                // Ambiguous: if the booking did happen, booking again spends one step too many, never one too few.
                Err(WriteError::Conflict | WriteError::Gone | WriteError::Ambiguous(_)) => continue,
                Err(error) => return Err(BookingError::Unavailable(error.to_string())),
            }
        }
        return match booked {
            Ok(_) => Ok(Booking { config: spec, before, asked }),
            Err(denied) => Err(BookingError::Denied(denied)),
        };
    }
    Err(BookingError::Unavailable(format!("{ROUNDS} attempts to write it met other writers")))
}
