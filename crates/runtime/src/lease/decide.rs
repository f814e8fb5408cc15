//! The decision, pure: from what was seen of the lease, when, and by whom.

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::Lease;
use tokio::time::Instant;

/// What a lease says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LeaseView {
    /// Who holds it; nobody if it was released.
    pub holder: Option<String>,
    /// For how long after its last change others leave it alone.
    pub duration: Duration,
    /// How many times it has changed hands.
    pub transitions: i32,
    /// When its holder got it, by the holder's clock: only to be shown.
    pub acquired: Option<Timestamp>,
    /// When it was last renewed, by the holder's clock: only to be compared with itself.
    pub renewed: Option<Timestamp>,
}

impl LeaseView {
    /// Reads a lease. Without a duration of its own, `duration` is taken.
    pub fn of(lease: &Lease, duration: Duration) -> Self {
        let spec = lease.spec.clone().unwrap_or_default();
        let seconds = spec.lease_duration_seconds.map(|seconds| u64::try_from(seconds).unwrap_or(0));
        Self {
            holder: spec.holder_identity.filter(|holder| !holder.is_empty()),
            duration: seconds.map_or(duration, Duration::from_secs),
            transitions: spec.lease_transitions.unwrap_or(0),
            acquired: spec.acquire_time.map(|time| time.0),
            renewed: spec.renew_time.map(|time| time.0),
        }
    }
}

/// What has been seen of a lease so far.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LeaseObservation {
    /// What it said last and since when, on our clock, it has said so. A lease that vanished keeps what it said: its holder may not know
    /// yet.
    pub last: Option<(LeaseView, Instant)>,
    /// Whether it exists.
    pub exists: bool,
}

impl LeaseObservation {
    /// Records what was read at `now`.
    pub fn note(&mut self, view: Option<LeaseView>, now: Instant) {
        self.exists = view.is_some();
        let Some(view) = view else { return };
        if self.last.as_ref().is_none_or(|(last, _)| *last != view) {
            self.last = Some((view, now));
        }
    }

    fn transitions(&self) -> i32 {
        self.last.as_ref().map_or(-1, |(view, _)| view.transitions)
    }
}

/// What to do about the lease.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LeaseDecision {
    /// It does not exist: create it.
    Create {
        /// What it is to say about how many times it changed hands.
        transitions: i32,
    },
    /// It is free, or has expired: replace it by one that is ours.
    Take {
        /// What it is to say about how many times it changed hands.
        transitions: i32,
    },
    /// It is ours: renew it.
    Renew,
    /// Another holds it: leave it alone until then, unless it changes.
    Wait {
        /// When it expires if it does not change.
        until: Instant,
        /// Who holds it.
        holder: String,
    },
    /// We held it, and it is not ours any more.
    Lost {
        /// Who holds it now.
        holder: Option<String>,
    },
}

/// Decides for `me` at `now`. `leading` is whether we have held the lease without a break since we took it.
///
/// A lease that is ours although we do not lead is one whose write was not answered: it is renewed, and that makes us the leader.
pub fn decide(seen: &LeaseObservation, me: &str, leading: bool, now: Instant) -> LeaseDecision {
    let take = |transitions: i32| {
        if seen.exists { LeaseDecision::Take { transitions } } else { LeaseDecision::Create { transitions } }
    };
    let holder =
        seen.last.as_ref().and_then(|(view, since)| Some((view.holder.as_deref()?, *since + view.duration)));
    match holder {
        Some((holder, _)) if holder == me => {
            if seen.exists {
                LeaseDecision::Renew
            } else {
                take(seen.transitions())
            }
        }
        other if leading => LeaseDecision::Lost { holder: other.map(|(holder, _)| holder.to_owned()) },
        Some((holder, until)) if now < until => LeaseDecision::Wait { until, holder: holder.to_owned() },
        _ => take(seen.transitions().saturating_add(1)),
    }
}
