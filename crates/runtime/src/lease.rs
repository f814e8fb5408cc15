//! Leader election on a `Lease`, as client-go does it.
//!
//! A lease has expired when *we* have seen its record unchanged for its duration, on our monotonic clock; wall clocks of different
//! machines are never compared. Every write is a replacement of the revision that was decided on. A renewal counts from when its request
//! was *sent*, an observation from when its answer was there, so that errors of timing are on the safe side.
//!
//! A standby watches the lease, so it takes over as soon as it is released, and otherwise costs nothing. It decides on a fresh read.
//!
//! Relies on: an identity that no other process has. Guarantees: as long as no machine's monotonic clock stands still while others run,
//! at most one [`Gate`] is open at a time. Where that cannot be relied on (a suspended machine), preconditions of the writes do (H14).

mod decide;
mod elect;
mod take_over;

use std::time::Duration;

pub use self::decide::{LeaseDecision, LeaseObservation, LeaseView, decide};
pub use self::take_over::{KeepError, SeizeError, keep, take_over};
use crate::client::Clients;
use crate::clock::{Clock, SeededRng};
use crate::leader::{Gate, GateHandle, gate};
use crate::metrics::Metrics;

/// The lease, and the times that go with it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LeaseSettings {
    /// The namespace of the Lease.
    pub namespace: String,
    /// The name of the Lease; it is created if it does not exist.
    pub name: String,
    /// Who we are; no other process may have the same, not even an earlier one of this pod. See [`identity`].
    pub identity: String,
    /// How long others leave the lease alone after the last renewal. Whole seconds; a part of one counts as one.
    pub duration: Duration,
    /// How long a leader continues without having renewed the lease.
    pub renew_deadline: Duration,
    /// The pause between renewals, and between attempts to reach the API server.
    pub retry: Duration,
    /// The seed of the jitter of that pause.
    pub seed: u64,
}

impl LeaseSettings {
    /// The defaults of client-go: 15 s, 10 s, 2 s.
    pub fn new(namespace: impl Into<String>, name: impl Into<String>, identity: impl Into<String>) -> Self {
        Self {
            namespace: namespace.into(),
            name: name.into(),
            identity: identity.into(),
            duration: Duration::from_secs(15),
            renew_deadline: Duration::from_secs(10),
            retry: Duration::from_secs(2),
            seed: 0,
        }
    }

    /// Whether the settings can work.
    pub fn validate(&self) -> Result<(), LeaseSettingsError> {
        let Self { namespace, name, identity, duration, renew_deadline, retry, seed: _ } = self;
        for (what, value) in [("namespace", namespace), ("name", name), ("identity", identity)] {
            if value.is_empty() {
                return Err(LeaseSettingsError::Empty { what });
            }
        }
        if retry.is_zero() {
            return Err(LeaseSettingsError::NoPause);
        }
        if renew_deadline >= duration {
            return Err(LeaseSettingsError::RenewDeadline {
                renew_deadline: *renew_deadline,
                duration: *duration,
            });
        }
        if self.max_pause() >= *renew_deadline {
            return Err(LeaseSettingsError::Retry { retry: *retry, renew_deadline: *renew_deadline });
        }
        Ok(())
    }

    /// Whether what a leader has sent before it lost the lease has ended, one way or the other, before another replica can lead.
    ///
    /// # Errors
    /// If a write that lasts this long could reach into the other's time.
    pub fn validate_writes(&self, longest_write: Duration) -> Result<(), LeaseSettingsError> {
        let Self { renew_deadline, duration, .. } = *self;
        if renew_deadline + longest_write > duration {
            return Err(LeaseSettingsError::Writes { renew_deadline, longest_write, duration });
        }
        Ok(())
    }

    /// The retry pause with all its jitter.
    fn max_pause(&self) -> Duration {
        self.retry + self.retry / 5
    }

    /// No attempt at the lease takes longer, so that one that hangs leaves time for another.
    fn attempt(&self) -> Duration {
        (self.renew_deadline / 2).min(Duration::from_secs(5))
    }
}

/// Why the settings of a lease cannot work.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LeaseSettingsError {
    /// A name is missing.
    #[error("the lease's {what} is empty")]
    Empty {
        /// Which one.
        what: &'static str,
    },
    /// There would be no pause between requests.
    #[error("the lease's retry period is 0; 2s is usual")]
    NoPause,
    /// A leader would continue after the lease has expired.
    #[error(
        "the lease's renew deadline ({renew_deadline:?}) must be shorter than its duration ({duration:?}), \
         or two replicas could write at once"
    )]
    RenewDeadline {
        /// As configured.
        renew_deadline: Duration,
        /// As configured.
        duration: Duration,
    },
    /// What a leader has sent could be carried out while another leads.
    #[error(
        "the lease's renew deadline ({renew_deadline:?}) and the {longest_write:?} that a write may take must not be longer \
         than its duration ({duration:?}): lengthen the duration or shorten the renew deadline"
    )]
    Writes {
        /// As configured.
        renew_deadline: Duration,
        /// The deadline of a write.
        longest_write: Duration,
        /// As configured.
        duration: Duration,
    },
    /// A leader would lose the lease between two renewals.
    #[error(
        "the lease's retry period ({retry:?}) and a fifth must be shorter than its renew deadline ({renew_deadline:?}), \
         or there is no second attempt"
    )]
    Retry {
        /// As configured.
        retry: Duration,
        /// As configured.
        renew_deadline: Duration,
    },
}

/// An identity that no other process has: `<pod>_<random>`, with [`SeededRng::entropy`].
pub fn identity(pod: &str, rng: &mut SeededRng) -> String {
    format!("{pod}_{:016x}{:016x}", rng.next_u64(), rng.next_u64())
}

/// The lease was held and is no longer: the process must end, because what it believes may be out of date.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LeaseLost {
    /// It is in other hands.
    #[error("the lease {lease} is no longer ours: {} took it", holder.as_deref().unwrap_or("somebody released it, or"))]
    Taken {
        /// The lease, as `namespace/name`.
        lease: String,
        /// Who has it.
        holder: Option<String>,
    },
    /// It could not be renewed in time.
    #[error("the lease {lease} could not be renewed for {} s: {problem}", after.as_secs_f32())]
    NotRenewed {
        /// The lease, as `namespace/name`.
        lease: String,
        /// For how long.
        after: Duration,
        /// The last attempt's problem.
        problem: String,
    },
}

/// How an election ended that was asked to end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ElectionEnd {
    /// We did not lead.
    Followed,
    /// We led, and a standby can take over at once.
    Released,
    /// We led, and a standby takes over when the lease expires.
    LeftToExpire {
        /// Why it was not released.
        why: String,
    },
}

/// The loop that tries to hold the lease.
#[derive(Debug)]
pub struct Election {
    clients: Clients,
    settings: LeaseSettings,
    clock: Clock,
    metrics: Metrics,
    gate_handle: GateHandle,
}

impl Election {
    /// An election, and the gate that it opens and shuts.
    pub fn new(
        clients: Clients,
        settings: LeaseSettings,
        clock: Clock,
        metrics: Metrics,
    ) -> Result<(Self, Gate), LeaseSettingsError> {
        settings.validate()?;
        let (gate_handle, gate) = gate(settings.renew_deadline);
        Ok((Self { clients, settings, clock, metrics, gate_handle }, gate))
    }
}

fn whole_seconds(duration: Duration) -> i32 {
    let seconds = duration.as_secs() + u64::from(duration.subsec_nanos() > 0);
    i32::try_from(seconds).unwrap_or(i32::MAX)
}

#[cfg(test)]
mod fake;
#[cfg(test)]
mod tests;
