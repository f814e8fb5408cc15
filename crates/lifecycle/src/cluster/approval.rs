//! Whether what a spec of a cluster manager makes due at once may be done: more than the hourly budget needs approval.

use std::fmt;

use coppice_mutants::{Mutant, active};
use coppice_quantity::{Duration, count};
use jiff::Timestamp;

use super::ValidClusterManager;
use super::census::Counts;
use crate::condition::later;
use crate::facts::NamespaceFacts;

/// A namespace that is older than this when a spec begins to govern it was there before: what is due then is due by that spec.
/// Records of new namespaces are written within this time, unless no operator runs.
const NEW: Duration = Duration::from_secs(120);

/// Whether a spec, and not time, makes a namespace due: it has governed the namespace since `since`, which was there before
/// and is due before the spec has governed it for its time to settle.
pub fn newly_due(
    manager: &ValidClusterManager,
    namespace: &NamespaceFacts,
    since: Timestamp,
    due: Timestamp,
) -> bool {
    due <= later(since, manager.settle) && later(namespace.created, NEW) < since
}

/// Whether what a spec makes due may be done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ApprovalState {
    /// There is not more of it than the hourly budget.
    NotNeeded,
    /// Somebody has approved it.
    Given,
    /// Nobody has.
    Missing(Missing),
    /// It is not known how many namespaces it makes due.
    NotCounted,
}

/// Why `spec.approval` does not cover what is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Missing {
    /// There is none.
    NotGiven,
    /// It is about another spec.
    OtherSpec,
    /// It is about fewer namespaces.
    TooFew(u32),
    /// It was valid until then.
    Expired(Timestamp),
}

impl fmt::Display for Missing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotGiven => f.write_str("there is no spec.approval"),
            Self::OtherSpec => f.write_str("spec.approval names the digest of another spec"),
            Self::TooFew(namespaces) => {
                write!(f, "spec.approval is for {}", count(*namespaces, "namespace"))
            }
            Self::Expired(at) => write!(f, "spec.approval was valid until {at}"),
        }
    }
}

impl ApprovalState {
    /// Of a spec, of which so much is due, with so many destructive steps an hour.
    pub fn of(manager: &ValidClusterManager, counted: Option<&Counts>, hourly: u32, now: Timestamp) -> Self {
        let Some(counts) = counted.filter(|counts| counts.digest == manager.digest()) else {
            return Self::NotCounted;
        };
        let newly_due = counts.enforce.newly_due;
        if newly_due <= hourly || active(Mutant::ApprovalIgnored) {
            return Self::NotNeeded;
        }
        let Some(approval) = &manager.approval else { return Self::Missing(Missing::NotGiven) };
        if approval.digest != manager.enforcing_digest() {
            return Self::Missing(Missing::OtherSpec);
        }
        if approval.namespaces < newly_due {
            return Self::Missing(Missing::TooFew(approval.namespaces));
        }
        if approval.valid_until <= now {
            return Self::Missing(Missing::Expired(approval.valid_until));
        }
        Self::Given
    }
}
