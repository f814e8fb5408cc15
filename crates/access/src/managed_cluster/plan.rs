//! Decides: what `coppice-clusters` says.

use coppice_clusters::managed::{self, Managed, ManagedStep};
use jiff::Timestamp;

/// The next step.
pub(super) fn plan(observed: &Managed, now: Timestamp) -> ManagedStep {
    managed::plan(observed, now)
}
