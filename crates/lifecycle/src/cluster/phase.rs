//! How a namespace is, and since when. Phases never act: policies do.

use coppice_api::NamespacePhase;
use coppice_api::cluster_manager::PolicyPhase;
use coppice_mutants::{Mutant, active};
use coppice_quantity::Duration;
use jiff::Timestamp;

use super::{ClusterCondition, ValidClusterManager};
use crate::condition::later;
use crate::facts::NamespaceFacts;

/// How a namespace is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PhaseFinding {
    /// The phase.
    pub phase: NamespacePhase,
    /// Since when, where a date decides it; otherwise since it was seen first.
    pub since: Option<Timestamp>,
    /// When its time to live ends, or ended; none if it has none.
    pub expires_at: Option<Timestamp>,
}

/// The phase of a namespace that a cluster manager governs. It does not expire before `extended`.
pub fn phase(
    manager: &ValidClusterManager,
    namespace: &NamespaceFacts,
    extended: Option<Timestamp>,
    now: Timestamp,
) -> PhaseFinding {
    // Creation times are cut to whole seconds: a namespace may be almost a second younger than it looks.
    let own = manager.ttl.map(|ttl| later(later(namespace.created, ttl), Duration::from_secs(1)));
    let extended = extended.filter(|_| !active(Mutant::ExtensionIgnored));
    let expires_at = own.map(|own| extended.map_or(own, |extended| own.max(extended)));
    let (phase, since) = match expires_at {
        _ if namespace.terminating => (NamespacePhase::Terminating, None),
        Some(at) if at <= now => (NamespacePhase::Stale, Some(at)),
        _ => (NamespacePhase::Ok, None),
    };
    PhaseFinding { phase, since, expires_at }
}

impl PhaseFinding {
    /// When a condition is true, or was for the first time, if nothing but time passes; none if time alone does not make
    /// it true.
    pub fn due(&self, condition: &ClusterCondition) -> Option<Timestamp> {
        match condition {
            ClusterCondition::Phase { phases, lasting } => {
                let begins = phases.iter().filter_map(|phase| match phase {
                    PolicyPhase::Stale => self.expires_at,
                });
                begins.min().map(|begins| later(begins, *lasting))
            }
        }
    }
}
